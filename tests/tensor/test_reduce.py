"""Reductions, scans and softmax against numpy: axes, keepdims, empty axes, NaN, dtypes of sums."""
import koine
import numpy as np
import pytest
from conftest import Case
from data import VIEWS, operand, values, viewed

CASES = []


def lse(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x.astype(np.float64)), axis=axis, keepdims=keepdims))


def norm(x, axis=None, keepdims=False):
    return np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=axis, keepdims=keepdims))


SUMS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "any": np.any, "all": np.all,
        "logsumexp": lse, "count_nonzero": np.count_nonzero, "norm": norm}
FLAT = {"empty", "empty3"}
for name, f in SUMS.items():
    for view in VIEWS:
        if view in FLAT and name in ("max", "min", "mean", "logsumexp"):
            continue
        a = values(f"{name}{view}", VIEWS[view][0])
        if name == "prod" and view == "large":
            a = (1 + a / 1e4).astype(np.float32)
        wide = (lambda x, f=f: f(x.astype(np.float64))) if name in ("sum", "prod", "mean") else f
        CASES.append(Case(f"{name}-all-{view}", lambda k, a=a, view=view, name=name: getattr(operand(k, a, view), name)(),
                          lambda a=a, view=view, f=wide: f(viewed(a, view)), tol=2e-5, atol=2e-4 if view == "large" else 2e-6))
    for axes, keep in (((0,), 0), ((1,), 1), ((-1, 0), 0), ((0, 1, 2), 1), ((), 0)):
        a = values(f"{name}{axes}", (3, 4, 5), lo=0.5)
        if name in ("any", "all", "count_nonzero"):
            a = np.trunc(a).astype(np.int32)
        ref = lambda x, f=f, axes=axes, keep=keep: f(x, axis=tuple(axes), keepdims=bool(keep)) if f is not np.mean or axes else x
        CASES.append(Case(f"{name}-over-{axes}-{keep}", lambda k, a=a, name=name, axes=axes, keep=keep: koine.call(name + "_over", k.array(a), axes, keep),
                          lambda a=a, ref=ref: ref(a), tol=1e-5))
for name in ("sum", "prod", "max", "min", "mean"):
    for dtype in (np.bool_, np.int8, np.uint16, np.int64, np.float16, np.float64):
        a = values(f"{name}{dtype.__name__}", (3, 6), dtype, 0, 3)
        if name in ("max", "min") and dtype == np.bool_:
            ref = np.logical_or.reduce if name == "max" else np.logical_and.reduce
            want = lambda a=a, ref=ref: ref(a, axis=1)
        elif name == "mean" and np.dtype(dtype).kind != "f":
            want = lambda a=a: a.mean(1).astype(np.float32)
        elif np.dtype(dtype) == np.float16:
            want = lambda a=a, name=name: getattr(a.astype(np.float32), name)(1).astype(np.float16)
        else:
            want = lambda a=a, name=name: getattr(a, name)(1)
        CASES.append(Case(f"{name}-{np.dtype(dtype).name}", lambda k, a=a, name=name: koine.call(name + "_over", k.array(a), (1,), 0), want))
for name in ("var", "std"):
    for correction in (0, 1):
        for axes, keep in (((0,), 0), ((1, 2), 1)):
            a = values(f"{name}{correction}{axes}", (4, 3, 5))
            CASES.append(Case(f"{name}-{correction}-{axes}", lambda k, a=a, name=name, axes=axes, keep=keep, c=correction: koine.call(name + "_over", k.array(a), axes, keep, c),
                              lambda a=a, name=name, axes=axes, keep=keep, c=correction: getattr(np, name)(a.astype(np.float64), axis=axes, keepdims=bool(keep), ddof=c), tol=1e-5))
        for view in ("vector", "transposed", "expanded", "large"):
            a = values(f"{name}{correction}{view}", VIEWS[view][0])
            CASES.append(Case(f"{name}-{correction}-all-{view}", lambda k, a=a, view=view, name=name, c=correction: getattr(operand(k, a, view), name)(c),
                              lambda a=a, view=view, name=name, c=correction: getattr(np, name)(viewed(a, view).astype(np.float64), ddof=c), tol=1e-5))

for name in ("argmax", "argmin"):
    for axis, shape in ((0, (4, 5)), (-1, (4, 5)), (1, (2, 7, 3)), (0, (1,)), (0, (700,))):
        a = np.trunc(values(f"{name}{axis}{shape}", shape, lo=-4, hi=4))
        for keep in (0, 1):
            CASES.append(Case(f"{name}-{axis}-{shape}-{keep}", lambda k, a=a, name=name, axis=axis, keep=keep: getattr(k.array(a), name)(axis, keep),
                              lambda a=a, name=name, axis=axis, keep=keep: getattr(np, name)(a, axis=axis, keepdims=bool(keep)), dtype="i64"))
    a = np.array([1, np.nan, 3, np.nan], np.float32)
    CASES.append(Case(f"{name}-nan", lambda k, a=a, name=name: getattr(k.array(a), name)(0, 0), lambda a=a, name=name: getattr(np, name)(a)))
    a = np.array([3, -128, 127, -128, 127], np.int8)
    CASES.append(Case(f"{name}-i8", lambda k, a=a, name=name: getattr(k.array(a), name)(0, 0), lambda a=a, name=name: getattr(np, name)(a)))

SCANS = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}
for name, f in SCANS.items():
    for axis, shape in ((0, (7,)), (1, (3, 5)), (0, (4, 3)), (-1, (2, 3, 6)), (0, (1, 4)), (0, (0, 2))):
        a = values(f"{name}{axis}{shape}", shape)
        CASES.append(Case(f"{name}-{axis}-{shape}", lambda k, a=a, name=name, axis=axis: getattr(k.array(a), name)(axis),
                          lambda a=a, f=f, axis=axis: f(a, axis=axis), tol=1e-5))
    for dtype in (np.int32, np.uint8, np.float64):
        a = values(f"{name}{dtype.__name__}", (6,), dtype, -3, 3)
        CASES.append(Case(f"{name}-{np.dtype(dtype).name}", lambda k, a=a, name=name: getattr(k.array(a), name)(0), lambda a=a, f=f: f(a)))
for shape in ((5,), (3, 4), (0,), (1,)):
    a = values(f"prefix{shape}", shape)
    CASES.append(Case(f"prefix_sum-{shape}", lambda k, a=a: k.array(a).prefix_sum(), lambda a=a: np.cumsum(a, 0), tol=1e-5))


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


for axis, shape, scale in ((-1, (3, 5), 1), (0, (3, 5), 1), (1, (2, 3, 4), 50), (-1, (7,), 1000)):
    a = (values(f"softmax{axis}{shape}", shape) * scale).astype(np.float32)
    for name, f in (("softmax", softmax), ("log_softmax", lambda x, ax: x - x.max(ax, keepdims=True) - np.log(np.exp(x - x.max(ax, keepdims=True)).sum(ax, keepdims=True))),
                    ("softmin", lambda x, ax: softmax(-x, ax))):
        CASES.append(Case(f"{name}-{axis}-{shape}", lambda k, a=a, name=name, axis=axis: getattr(k.array(a), name)(axis),
                          lambda a=a, f=f, axis=axis: f(a.astype(np.float64), axis), tol=1e-5))
        CASES.append(Case(f"{name}-{axis}-{shape}-f64", lambda k, a=a, name=name, axis=axis: getattr(k.array(a.astype(np.float64)), name)(axis),
                          lambda a=a, f=f, axis=axis: f(a.astype(np.float64), axis)))

n = np.array([[1, np.nan, 3], [4, 5, 6]], np.float32)
i = np.array([[-np.inf, -np.inf], [np.inf, 1]], np.float32)
for name in ("sum", "max", "min", "prod", "mean"):
    CASES.append(Case(f"{name}-nan", lambda k, name=name: koine.call(name + "_over", k.array(n), (1,), 0), lambda name=name: getattr(n, name)(1)))
CASES.append(Case("logsumexp-inf", lambda k: k.array(i).logsumexp_over((1,), 0), lambda: np.logaddexp.reduce(i, 1)))
CASES.append(Case("min-i64-extreme", lambda k: k.array(np.array([-2**63, 5])).min(), lambda: np.int64(-2**63)))
CASES.append(Case("min-u64-extreme", lambda k: k.array(np.array([2**64 - 1, 2**63], np.uint64)).min(), lambda: np.uint64(2**63)))


def test_case(case, device, check):
    check(case, device)


def test_softmax_divides_a_row_once(koine, k):
    """The listing has one division; where x - max is exact the values are within 4 units in the last place (exp 1, the sum, its reciprocal, the product)."""
    text = koine("compile", "-", "--target", "x86", stdin=koine("bench", "text", "softmax").stdout).stdout
    divisions = [l.split()[0] for l in text.splitlines() if l.strip().startswith(("vdiv", "div", "vrcp"))]
    assert len(divisions) == 1, divisions
    x = np.random.default_rng(1).integers(-20, 21, (64, 300)).astype(np.float32)
    want = softmax(x.astype(np.float64), -1)
    assert (np.abs(k.array(x).softmax(-1).numpy() - want) / np.spacing(want.astype(np.float32))).max() < 4


@pytest.mark.parametrize("n", (2, 7, 64))
def test_a_running_sum_of_negative_zeros_is_one(k, n):
    """What is not there yet adds nothing, not even +0.0."""
    x = np.full((3, n), -0.0, np.float32)
    assert np.signbit(k.array(x).cumsum(1).numpy()).all() and np.signbit(k.array(x).cumsum(0).numpy()).all()
