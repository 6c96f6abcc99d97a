"""Order along an axis: sort, argsort, topk, kthvalue, medians and quantiles against numpy, bit for bit; their gradients; errors; and
that no kernel of a long one loops over places and elements. Rows up to 512 are counted, longer ones go digit by digit: both are here."""
import math
import re

import numpy as np
import pytest

import koine
from conftest import Case
from test_scatter import schedule

RNG = np.random.default_rng(5)
CASES = []
SHAPES = [((), None), ((1,), 0), ((0,), 0), ((3, 0, 2), 1), ((2, 0), 0), ((17,), -1), ((5, 6), 0), ((5, 6), 1), ((2, 33, 3), 1), ((700,), 0), ((2, 600), 1), ((520, 2), 0)]
DTYPES = ["f32", "f64", "f16", "bf16", "f8e4m3", "f8e5m2", "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]


def bits(shape, dtype):
    """Every value of the dtype alike, the ends, NaN and both zeros and infinities among them; many ties."""
    t = np.dtype(koine.NUMPY[dtype])
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if t.kind == "f":
        a = np.where(RNG.random(shape) < 0.5, RNG.integers(-3, 4, shape), RNG.standard_normal(shape) * 1e3).astype(t)
        special = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf], t)
        return np.where(RNG.random(shape) < 0.3, special[RNG.integers(0, 6, shape)], a)
    a = RNG.integers(0, 2**63, shape, dtype=np.uint64) * np.uint64(2) + RNG.integers(0, 2, shape, dtype=np.uint64)
    a = np.where(RNG.random(shape) < 0.4, a & np.uint64(3), a)
    return a.astype(f"u{t.itemsize}").view(t)


def numbers(a, dtype):
    """What numpy orders as koine does: -0.0 as 0.0, NaN last."""
    if dtype not in ("bf16", "f8e4m3", "f8e5m2"):
        return a
    width, mantissa, bias = {"bf16": (16, 7, 127), "f8e4m3": (8, 3, 7), "f8e5m2": (8, 2, 15)}[dtype]
    b = a.astype(np.int64)
    e, m = b >> mantissa & ((1 << (width - 1 - mantissa)) - 1), b & ((1 << mantissa) - 1)
    top = (1 << (width - 1 - mantissa)) - 1
    x = np.where(e == 0, m * 2.0 ** (1 - bias - mantissa), (1 + m / 2.0**mantissa) * 2.0 ** (e - bias))
    x = np.where((e == top) & (m == (7 if dtype == "f8e4m3" else m)) & (m != 0), np.nan, np.where((e == top) & (m == 0) & (dtype != "f8e4m3"), np.inf, x))
    return np.where(b >> (width - 1) & 1, -x, x)


def stable(a, dtype, axis, down=False):
    """numpy's stable order; descending: equals keep theirs, NaN comes first."""
    x = numbers(a, dtype)
    if not down:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


def add(name, build, expected, **more):
    CASES.append(Case(name, build, expected, **more))


def tensor(k, a, dtype):
    return k.array(a, dtype)


def exact(t):
    """Bits, 1 for NaN."""
    b = t.bitcast(f"u{8 * np.dtype(koine.NUMPY[t.dtype]).itemsize}")
    return koine.where(t.isnan(), t.k.int(1), b) if t.dtype[0] in "fb" else b


def exact_of(a, dtype):
    return np.where(numbers(a, dtype) != numbers(a, dtype), 1, a.view(f"u{a.dtype.itemsize}")).astype(f"u{a.dtype.itemsize}")


for d, dtype in enumerate(DTYPES):
    for s, (shape, axis) in enumerate(SHAPES):
        if axis is None or (s > 8 and (s + d) % 3 and dtype not in ("f32", "i64")):
            continue
        a, down = bits(shape, dtype), (s + d) % 2
        order = stable(a, dtype, axis, down)
        add(f"argsort-{dtype}-{s}", lambda k, a=a, t=dtype, axis=axis, down=down: tensor(k, a, t).argsort(axis, down), lambda o=order: o, dtype="i64")
        if dtype != "bool":
            add(f"sort-{dtype}-{s}", lambda k, a=a, t=dtype, axis=axis, down=down: exact(tensor(k, a, t).sort(axis, down)),
                lambda a=a, t=dtype, o=order, axis=axis: exact_of(np.take_along_axis(a, o, axis), t))
        if shape[axis] > 1:
            n = 1 + (s + d) % min(shape[axis], 9)
            first = np.take(order, np.arange(n), axis)
            add(f"topk-{dtype}-{s}", lambda k, a=a, t=dtype, axis=axis, down=down, n=n: koine.outputs("topk", 1, tensor(k, a, t), n, axis, down)[1],
                lambda o=first: o, dtype="i64")
            up = stable(a, dtype, axis)
            add(f"kthvalue-{dtype}-{s}", lambda k, a=a, t=dtype, axis=axis, n=n: koine.outputs("kthvalue", 1, tensor(k, a, t), n, axis, 1)[0].cast("f64"),
                lambda a=a, t=dtype, o=up, axis=axis, n=n: np.take(np.take_along_axis(numbers(a, t), o, axis), [n - 1], axis).astype(np.float64), tol=1e-30)

# ---- medians and quantiles

METHODS = ["linear", "lower", "higher", "midpoint", "nearest"]
SPREAD = [((1,), None), ((2,), None), ((7,), None), ((3, 8), (1,)), ((4, 5, 6), (0, 2)), ((601,), None), ((2, 600), (-1,)), ((600, 2), (0,)), ((), None)]
for s, (shape, axes) in enumerate(SPREAD):
    a = RNG.integers(-5, 6, shape).astype(np.float32)
    b = np.where(RNG.random(shape) < 0.2, np.float32(np.nan), RNG.standard_normal(shape).astype(np.float32))
    c = RNG.integers(-100, 100, shape).astype(np.int16)
    for name, x in (("ties", a), ("nan", b), ("i16", c)):
        x = np.asarray(x)
        for keep in (0, 1)[: 1 if axes is None else 2]:
            def build(k, f, *m, x=x, axes=axes, keep=keep):
                t = k.array(x)
                if axes is None:
                    return getattr(t, f)(*m)
                return getattr(t, f + "_over")(*m[:1], axes, keep, *m[1:])
            def over(f, *m, x=x, axes=axes, keep=keep, **more):
                return f(x.astype(np.float64), *m, axis=axes, keepdims=bool(keep), **more) if axes else f(x.astype(np.float64), *m, **more)
            add(f"median-{name}-{s}-{keep}", lambda k, b=build: b(k, "median"), lambda o=over: o(np.median))
            if name == "nan":
                add(f"nanmedian-{s}-{keep}", lambda k, b=build: b(k, "nanmedian"), lambda o=over: o(np.nanmedian))
            for m, method in enumerate(METHODS):
                q = [0, 0.3, 0.5, 0.77, 1][(m + s) % 5]
                add(f"quantile-{name}-{s}-{keep}-{method}", lambda k, b=build, q=q, m=m: b(k, "quantile", q, m),
                    lambda o=over, q=q, method=method: o(np.quantile, q, method=method), atol=1e-6)
                if name == "nan" and (m + s) % 2:
                    add(f"nanquantile-{s}-{keep}-{method}", lambda k, b=build, q=q, m=m: b(k, "nanquantile", q, m),
                        lambda o=over, q=q, method=method: o(np.nanquantile, q, method=method), atol=1e-6)
add("median-inf", lambda k: k.array(np.full(4, np.inf, np.float32)).median(), lambda: np.float32(np.inf))
add("nanmedian-none", lambda k: k.array(np.full(4, np.nan, np.float32)).nanmedian(), lambda: np.float32(np.nan))
add("median-f16", lambda k: k.array(np.array([1, 2, 60000, 65504], np.float16)).median().cast("f32"), lambda: np.float32(np.float16(30001)))


def test_case(case, device, check):
    check(case, device)


# ---- gradients: each value's goes where the value came from

def distinct(shape):
    return RNG.permutation(np.arange(np.prod(shape))).reshape(shape).astype(np.float32) / 8


@pytest.mark.parametrize("shape,axis", [((9,), 0), ((4, 5), 0), ((4, 5), 1), ((600,), 0)])
@pytest.mark.parametrize("what", ["sort", "topk", "kthvalue", "median"])
def test_gradient(k, what, shape, axis):
    a, n = distinct(shape), shape[axis]
    x = k.array(a)
    order = np.argsort(a, axis=axis, kind="stable")
    if what == "sort":
        y, places = x.sort(axis, 0), order
    elif what == "topk":
        y, places = koine.outputs("topk", 1, x, 3, axis, 1)[0], np.take(np.flip(order, axis), [0, 1, 2], axis)
    elif what == "kthvalue":
        y, places = koine.outputs("kthvalue", 1, x, 2, axis, 1)[0], np.take(order, [1], axis)
    else:
        y, places = x.median_over((axis,), 1), np.take(order, sorted({(n - 1) // 2, n // 2}), axis)
    w = (RNG.integers(-8, 9, y.shape) / 4).astype(np.float32)
    got = koine.grad1((y * k.array(w)).sum(), x).numpy()
    want = np.zeros_like(a)
    np.put_along_axis(want, places, np.broadcast_to(w / (places.shape[axis] if what == "median" else 1), places.shape), axis)
    np.testing.assert_array_equal(got, want)


def test_one_graph_sorts_once(k):
    """Values and positions of one tensor come from one order."""
    x = k.array(distinct((40,)))
    v, i = x.sort(0, 0), x.argsort(0, 0)
    np.testing.assert_array_equal(v.numpy(), x.numpy()[i.numpy()])


# ---- what it costs: no loop over places and elements, but where few are asked for

def work(text):
    """Of each kernel, the most that a node of it is computed: the extents of the ranges it is under, multiplied."""
    free, extent, most, kernels = {}, {}, 0, []
    for name, node in re.findall(r"^(%\w+) = (.*?)(?:\s+:.*)?$", text, re.M):
        refs = [r for r in re.findall(r"%\w+", node) if r in free]
        if m := re.match(r"range \d+ \w+ (\d+)", node):
            free[name], extent[name] = {name}, int(m[1])
            continue
        free[name] = set().union(*[free[r] for r in refs]) if refs else set()
        most = max(most, math.prod(extent[r] for r in free[name]))
        if node.startswith(("reduce", "end")):
            free[name] -= {r for r in refs[1:] if r in extent}
        if node.startswith("sink"):
            kernels.append(most)
            most = 0
    return kernels


LONG = 4000
LINEAR = {
    "sort": lambda x: x.sort(0, 0),
    "argsort": lambda x: x.argsort(0, 1),
    "topk": lambda x: koine.outputs("topk", 1, x, 10, 0, 1)[0],
    "kthvalue": lambda x: koine.outputs("kthvalue", 1, x, 10, 0, 0)[0],
    "median": lambda x: x.median(),
    "nanquantile": lambda x: x.nanquantile(0.3, 0),
    "gradient": lambda x: koine.grad1((x.sort(0, 0) * x).sum(), x),
}
KERNELS = {"sort": 67, "argsort": 67, "topk": 28, "kthvalue": 23, "median": 23, "nanquantile": 23, "gradient": 70}


@pytest.mark.parametrize("what", LINEAR)
def test_linear(monkeypatch, what):
    text = schedule(monkeypatch, lambda k: LINEAR[what](k.array(np.zeros(LONG, np.float32))))
    assert max(work(text)) <= 10 * (LONG + 128), sorted(work(text))[-3:]
    assert len(re.findall(r"= call ", text)) <= KERNELS[what]


def test_running_sums_beside_each_other(monkeypatch, k):
    """Two in one kernel are both carried (one was summed anew for every element)."""
    a, b = RNG.integers(-9, 9, (2, 3, 70)).astype(np.float32)
    two = lambda k: k.array(a).cumsum(1) * k.array(b).cumsum(1)
    assert max(work(schedule(monkeypatch, two))) == a.size
    np.testing.assert_array_equal(two(k).numpy(), np.cumsum(a, 1) * np.cumsum(b, 1))
    both = k.array(a).cumsum(1) * k.array(b).cumsum(0)
    np.testing.assert_array_equal(both.numpy(), np.cumsum(a, 1) * np.cumsum(b, 0))
