"""Looking up and counting (searchsorted, bincount, histogram, unique, mode, nonzero, masked_select), reductions that leave NaN out, running
maxima with their places and logcumsumexp: against numpy; gradients; and that no kernel loops over elements and places."""
import numpy as np
import pytest

from conftest import Case
from test_order import work
from test_scatter import koine, schedule

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of rows of NaN alone
RNG = np.random.default_rng(15)
CASES = []
NAN = np.nan


def add(name, build, expected, **more):
    CASES.append(Case(name, build, expected, **more))


def few(shape, dtype, high=6):
    a = RNG.integers(0 if np.dtype(dtype).kind in "ub" else -high, high, shape).astype(dtype)
    if np.dtype(dtype).kind == "f" and a.size > 5:
        a.flat[RNG.integers(0, a.size, a.size // 5)] = NAN
        a.flat[RNG.integers(0, a.size, a.size // 5)] = np.inf
        a.flat[RNG.integers(0, a.size, a.size // 5)] = -0.0
    return a


# ---- tables

for t, dtype in enumerate((np.float32, np.int8, np.uint64, np.float64, np.float16, np.int32)):
    for n in (0, 1, 5, 32, 33, 100):
        table, v = np.sort(few(n, dtype, 40)), few((3, 7), dtype, 40)
        for right in (0, 1):
            side = ("left", "right")[right]
            add(f"searchsorted-{np.dtype(dtype).name}-{n}-{side}", lambda k, a=table, v=v, r=right: k.array(a).searchsorted(k.array(v), r),
                lambda a=table, v=v, s=side: np.searchsorted(a, v, s), dtype="i64")
            if n and t < 2:
                add(f"bucketize-{np.dtype(dtype).name}-{n}-{side}", lambda k, a=table, v=v, r=right: k.array(v).bucketize(k.array(a), r),
                    lambda a=table, v=v, s=side: np.searchsorted(a, v, s))
ROWS, FIND = np.sort(few((2, 3, 40), np.float32, 99)), few((2, 3, 5), np.float32, 99)
add("searchsorted-rows", lambda k: k.array(ROWS).searchsorted(k.array(FIND), 0),
    lambda: np.stack([np.searchsorted(a, v) for a, v in zip(ROWS.reshape(6, 40), FIND.reshape(6, 5))]).reshape(2, 3, 5))
add("searchsorted-scalar", lambda k: k.array(ROWS[0, 0]).searchsorted(k.array(np.float32(3)), 1), lambda: np.searchsorted(ROWS[0, 0], 3, "right"))
add("searchsorted-mixed", lambda k: k.array(np.arange(50)).searchsorted(k.array(np.array([1.5, 2, -1, 99], np.float64)), 0), lambda: np.array([2, 2, 0, 50]))

# ---- counts

for i, dtype in enumerate((np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64)):
    for n, size in ((0, 4), (40, 5), (900, 13)):
        x = RNG.integers(0 if np.dtype(dtype).kind == "u" else -2, 9, n).astype(dtype)
        if n and np.dtype(dtype).itemsize >= 4:
            x[0], x[1] = np.iinfo(dtype).max, np.iinfo(dtype).min
        inside = x[(x >= 0) & (x.astype(np.float64) < size)].astype(np.int64)
        add(f"bincount-{np.dtype(dtype).name}-{n}", lambda k, x=x, s=size: k.array(x).bincount(s, None), lambda i=inside, s=size: np.bincount(i, minlength=s), dtype="i64")
        for w in (np.float32, np.int16):
            weights = RNG.integers(-8, 8, n).astype(w)
            add(f"bincount-{np.dtype(dtype).name}-{n}-{np.dtype(w).name}", lambda k, x=x, s=size, w=weights: k.array(x).bincount(s, k.array(w)),
                lambda x=x, w=weights, s=size: np.bincount(x[(x >= 0) & (x.astype(np.float64) < s)].astype(np.int64), w[(x >= 0) & (x.astype(np.float64) < s)], s))

for i, x in enumerate((RNG.standard_normal(500).astype(np.float32), RNG.standard_normal((20, 30)), RNG.integers(-9, 9, 300), np.array([], np.float32),
                       np.array([0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, NAN, -NAN, np.inf], np.float32), np.linspace(0, 1, 77).astype(np.float32), np.full(5, 2.0))):
    for bins, lo, hi in ((10, -1.5, 2.0), (7, 0.0, 1.0), (1, -1.0, 1.0), (10, 0.0, 0.0)):
        if lo == hi and np.isnan(x.astype(float)).any():
            continue
        want = lambda x=x, b=bins, r=(lo, hi), **m: np.histogram(x, b, None if r[0] == r[1] else r, **m)
        if x.size == 0 and lo == hi:
            want = lambda b=bins, **m: np.histogram(np.zeros(0), b, (-0.5, 0.5), **m)
        w = RNG.integers(-5, 5, x.shape).astype(np.float32)
        add(f"histogram-{i}-{bins}-{lo}", lambda k, x=x, a=(bins, lo, hi): k.array(x).histogram(*a, None, None), lambda f=want: f()[0], dtype="i64")
        if not (x.size == 0 and lo == hi):
            add(f"histogram-weights-{i}-{bins}-{lo}", lambda k, x=x, w=w, a=(bins, lo, hi): k.array(x).histogram(*a, k.array(w), None), lambda f=want, w=w: f(weights=w)[0], dtype="f32")
        add(f"histogram-edges-{i}-{bins}-{lo}", lambda k, x=x, a=(bins, lo, hi): koine.outputs("histogram", 1, k.array(x), *a, None)[1], lambda f=want: f()[1], atol=1e-6)

# ---- distinct ones

for i, (shape, dtype) in enumerate((((0,), np.float32), ((1,), np.int32), ((30,), np.float32), ((5, 7), np.int8), ((2, 3, 4), np.bool_), ((), np.int64), ((600,), np.float32), ((40, 20), np.uint16), ((50,), np.float64))):
    x = few(shape, dtype) if shape else np.array(7)
    for size in (x.size + 3, 2):
        def room(a, fill=0, size=size):
            return np.concatenate([a, np.full(max(size - len(a), 0), fill, a.dtype)])[:size]
        unique = lambda x=x: np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        made = lambda k, x=x, size=size: koine.outputs("unique", 4, k.array(x), size)
        add(f"unique-{i}-{size}", lambda k, m=made: m(k)[0], lambda u=unique, r=room: r(u()[0]))
        add(f"unique-index-{i}-{size}", lambda k, m=made: m(k)[1], lambda u=unique, r=room, x=x: r(u()[1], x.size), dtype="i64")
        add(f"unique-inverse-{i}-{size}", lambda k, m=made: m(k)[2], lambda u=unique, x=x: u()[2].reshape(x.shape), dtype="i64")
        add(f"unique-counts-{i}-{size}", lambda k, m=made: m(k)[3], lambda u=unique, r=room: r(u()[3]))
        add(f"unique-number-{i}-{size}", lambda k, m=made: m(k)[4], lambda u=unique: len(u()[0]))
        p = few(shape, np.int8, 2) if shape else np.array(3)
        where = lambda p=p, size=size: np.concatenate([np.argwhere(p)[:size], np.tile(np.array(p.shape, np.int64), (max(size - np.count_nonzero(p), 0), 1))]).reshape(size, p.ndim)
        add(f"nonzero-{i}-{size}", lambda k, p=p, size=size: koine.outputs("nonzero", 1, k.array(p), size)[0], where)
        add(f"nonzero-number-{i}-{size}", lambda k, p=p, size=size: koine.outputs("nonzero", 1, k.array(p), size)[1], lambda p=p: np.count_nonzero(p))
        add(f"masked_select-{i}-{size}", lambda k, x=x, p=p, size=size: koine.outputs("masked_select", 1, k.array(x), k.array(p), size)[0], lambda x=x, p=p, r=room: r(x[p != 0]))
add("masked_select-broadcast", lambda k: k.array(np.arange(3.0)).masked_select(k.array(np.array([[True], [False], [True]])), 8, None), lambda: np.array([0.0, 1, 2, 0, 1, 2, 0, 0]))


def mode(x, axis):
    def of(v):
        u, n = np.unique(v, return_counts=True)
        return u[n.argmax()]
    return np.apply_along_axis(of, axis, x)


for i, (shape, axis, dtype) in enumerate((((9,), 0, np.int32), ((6, 11), 1, np.float32), ((11, 6), 0, np.int8), ((3, 8, 2), -2, np.uint8), ((700,), 0, np.float32), ((5, 4), 1, np.bool_))):
    x = few(shape, dtype, 4)
    add(f"mode-{i}", lambda k, x=x, axis=axis: koine.outputs("mode", 1, k.array(x), axis, 0)[0], lambda x=x, axis=axis: mode(x, axis))
    add(f"mode-indices-{i}", lambda k, x=x, axis=axis: koine.outputs("mode", 1, k.array(x), axis, 1)[1],
        lambda x=x, axis=axis: (lambda m: ((x == m) | (x != x) & (m != m)).argmax(axis, keepdims=True))(np.expand_dims(mode(x, axis), axis)))

# ---- leaving NaN out

for i, (shape, axes) in enumerate((((7,), (0,)), ((4, 5), (1,)), ((3, 4, 5), (0, 2)), ((2, 3), ()), ((60, 70), (0,)))):
    x = few(shape, np.float32, 3)
    x[np.isinf(x)] = 2
    if len(shape) == 2:
        x[0] = NAN
    for f in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean"):
        add(f"{f}_over-{i}", lambda k, x=x, f=f, axes=axes: getattr(k.array(x), f + "_over")(axes, i % 2), lambda x=x, f=f, axes=axes: getattr(np, f)(x, axes, keepdims=bool(i % 2)), tol=2e-6)
        add(f"{f}-{i}", lambda k, x=x, f=f: getattr(k.array(x), f)(), lambda x=x, f=f: getattr(np, f)(x.astype(np.float64)), tol=1e-5)
        add(f"{f}-i16-{i}", lambda k, x=x, f=f: getattr(k.array(np.nan_to_num(x).astype(np.int16)), f)(), lambda x=x, f=f: getattr(np, f)(np.nan_to_num(x).astype(np.int16)), tol=1e-6)
    for f in ("nanvar", "nanstd"):
        for c in (0, 1):
            add(f"{f}_over-{i}-{c}", lambda k, x=x, f=f, axes=axes, c=c: getattr(k.array(x), f + "_over")(axes, 0, float(c)), lambda x=x, f=f, axes=axes, c=c: getattr(np, f)(x, axes, ddof=c), tol=1e-5)
            add(f"{f}-{i}-{c}", lambda k, x=x, f=f, c=c: getattr(k.array(x), f)(float(c)), lambda x=x, f=f, c=c: getattr(np, f)(x.astype(np.float64), ddof=c), tol=1e-5)

# ---- running


def records(x, axis, least):
    """PyTorch's cummax: the last of equals, NaN once there is one."""
    x = np.moveaxis(x, axis, -1)
    out = np.zeros(x.shape, np.int64)
    for at in np.ndindex(x.shape[:-1]):
        best = 0
        for j in range(x.shape[-1]):
            v, b = x[at][j], x[at][best]
            if v != v or (b == b and (v <= b if least else v >= b)):
                best = j
            out[at][j] = best
    return np.moveaxis(out, -1, axis)


for i, (shape, axis, dtype) in enumerate((((9,), 0, np.float32), ((4, 30), 1, np.float32), ((30, 4), 0, np.int8), ((3, 8, 2), -2, np.uint8), ((2, 300), 1, np.float64), ((1,), 0, np.int32), ((40,), 0, np.bool_), ((0, 3), 0, np.float32))):
    x = few(shape, dtype, 9)
    for f, least in (("cummax", False), ("cummin", True)):
        add(f"{f}_indices-{i}", lambda k, x=x, f=f, axis=axis: getattr(k.array(x), f + "_indices")(axis), lambda x=x, axis=axis, least=least: records(x, axis, least), dtype="i64")
        add(f"{f}-{i}", lambda k, x=x, f=f, axis=axis: getattr(k.array(x), f)(axis), lambda x=x, f=f, axis=axis: (np.maximum, np.minimum)[f == "cummin"].accumulate(x, axis))
    if np.dtype(dtype).kind == "f":
        finite = (RNG.standard_normal(shape) * 300).astype(dtype)
        if finite.size > 3:
            finite.flat[3] = -np.inf
        add(f"logcumsumexp-{i}", lambda k, x=finite, axis=axis: k.array(x).logcumsumexp(axis), lambda x=finite, axis=axis: np.logaddexp.accumulate(x.astype(np.float64), axis), tol=1e-6 if dtype == np.float32 else 1e-12)
        add(f"cumprod-{i}", lambda k, x=x, axis=axis: k.array(np.nan_to_num(x, posinf=2)).cumprod(axis), lambda x=x, axis=axis: np.cumprod(np.nan_to_num(x, posinf=2), axis))
add("logcumsumexp-i32", lambda k: k.array(np.arange(40)).logcumsumexp(0).cast("f64"), lambda: np.logaddexp.accumulate(np.arange(40.0)), tol=1e-6)
add("logcumsumexp-f16", lambda k: k.array(np.arange(40, dtype=np.float16)).logcumsumexp(0).cast("f64"), lambda: np.logaddexp.accumulate(np.arange(40.0)), tol=1e-3)
add("logcumsumexp-none", lambda k: k.array(np.full(40, -np.inf, np.float32)).logcumsumexp(0), lambda: np.full(40, -np.inf))
add("cumprod-i32", lambda k: k.array(np.arange(1, 30)).cumprod(0), lambda: np.cumprod(np.arange(1, 30)))


def test_case(case, device, check):
    check(case, device)


# ---- gradients


def test_unique_gradient(k):
    x = k.array(np.array([3, 1, 3, 2, 1], np.float32))
    v = koine.outputs("unique", 4, x, 6)[0]
    np.testing.assert_array_equal(koine.grad1((v * k.array(np.array([1, 2, 4, 8, 16, 32], np.float32))).sum(), x).numpy(), [4, 1, 0, 2, 0])


def test_masked_select_gradient(k):
    x = k.array(np.arange(5, dtype=np.float32))
    v = x.masked_select(k.array(np.array([True, False, True, False, True])), 4, None)
    np.testing.assert_array_equal(koine.grad1((v * k.array(np.array([1, 2, 4, 8], np.float32))).sum(), x).numpy(), [1, 0, 2, 0, 4])


def test_mode_gradient(k):
    x = k.array(np.array([[3, 1, 3], [2, 2, 1]], np.float32))
    np.testing.assert_array_equal(koine.grad1(koine.outputs("mode", 1, x, 1, 0)[0].sum(), x).numpy(), [[1, 0, 0], [1, 0, 0]])


def test_weights_gradient(k):
    w = k.array(np.ones(4, np.float32))
    got = k.array(np.array([0, 2, 2, 9], np.int32)).bincount(3, w) * k.array(np.array([1, 2, 4], np.float32))
    np.testing.assert_array_equal(koine.grad1(got.sum(), w).numpy(), [1, 4, 4, 0])
    h = k.array(np.array([0.1, 0.6, 0.9, 2], np.float32)).histogram(2, 0.0, 1.0, w, None) * k.array(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(koine.grad1(h.sum(), w).numpy(), [1, 2, 2, 0])


@pytest.mark.parametrize("what", ["nansum", "nanmean", "nanmax", "nanmin", "nanprod"])
def test_nan_gradient(k, what):
    x = k.array(np.array([2, NAN, 4, 8], np.float32))
    want = {"nansum": [1, 0, 1, 1], "nanmean": [1 / 3, 0, 1 / 3, 1 / 3], "nanmax": [0, 0, 0, 1], "nanmin": [1, 0, 0, 0], "nanprod": [32, 0, 16, 8]}[what]
    np.testing.assert_allclose(koine.grad1(getattr(x, what)(), x).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("what", ["nanvar", "nanstd"])
def test_nan_spread_gradient(k, what):
    x = k.array(np.array([2, NAN, 4, 9], np.float32))
    d = np.array([2, 0, 4, 9.0]) - np.array([5, 0, 5, 5])
    want = 2 * d / 3 if what == "nanvar" else d / 3 / np.sqrt((d * d).sum() / 3)
    np.testing.assert_allclose(koine.grad1(getattr(x, what)(0.0), x).numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("what", ["nanvar", "nanstd"])
def test_nan_spread_of_an_infinity(k, what):
    """What is left out is NaN in x, not what an infinity's distance from the mean is."""
    x = np.array([[1, np.inf, 2], [np.inf, -np.inf, NAN], [1, NAN, 3]], np.float32)
    want = np.array([NAN, NAN, 1])
    np.testing.assert_array_equal(getattr(k.array(x), what + "_over")((1,), 0, 0.0).numpy(), want)


@pytest.mark.parametrize("n", [7, 40])
def test_logcumsumexp_gradient(k, n):
    a = (RNG.standard_normal(n) * 3).astype(np.float32)
    x, g = k.array(a), RNG.standard_normal(n).astype(np.float32)
    got = koine.grad1((x.logcumsumexp(0) * k.array(g)).sum(), x).numpy()
    y = np.logaddexp.accumulate(a.astype(np.float64))
    want = np.array([(g[i:] * np.exp(a[i] - y[i:])).sum() for i in range(n)])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


# ---- what it costs

LONG = 4000
COST = {  # the most a node is computed, kernels
    "searchsorted": (LONG, lambda k, x: k.array(np.zeros(3000, np.float32)).searchsorted(x, 0)),
    "bincount": (LONG, lambda k, x: k.array(np.zeros(LONG, np.int32)).bincount(LONG, None)),
    "histogram": (LONG, lambda k, x: x.histogram(100, 0.0, 1.0, None, None)),
    "unique": (8 * LONG + 1024, lambda k, x: koine.outputs("unique", 4, x, LONG)[2]),
    "mode": (8 * LONG + 1024, lambda k, x: koine.outputs("mode", 1, x, 0, 0)[0]),
    "nonzero": (LONG, lambda k, x: x.nonzero(LONG, None)),
    "masked_select": (LONG, lambda k, x: x.masked_select(k.array(np.zeros(LONG, bool)), LONG, None)),
    "cummax": (LONG, lambda k, x: x.cummax(0)),
    "cummin": (LONG, lambda k, x: x.cummin(0)),
    "cummax of bytes": (LONG, lambda k, x: k.array(np.zeros(LONG, np.uint8)).cummax(0)),
    "cumprod": (LONG, lambda k, x: x.cumprod(0)),
    "cumprod of integers": (LONG, lambda k, x: k.array(np.zeros(LONG, np.int32)).cumprod(0)),
    "cummin_indices": (LONG, lambda k, x: x.cummin_indices(0)),
    "logcumsumexp": (16 * LONG, lambda k, x: x.logcumsumexp(0)),
}
KERNELS = {"searchsorted": 2, "bincount": 3, "histogram": 3, "unique": 74, "mode": 74, "nonzero": 5, "masked_select": 5, "cummax": 1, "cummin": 1, "cummax of bytes": 1, "cumprod": 1, "cumprod of integers": 1, "cummin_indices": 2, "logcumsumexp": 5}


@pytest.mark.parametrize("what", COST)
def test_linear(monkeypatch, what):
    most, build = COST[what]
    text = schedule(monkeypatch, lambda k: build(k, k.array(np.zeros(LONG, np.float32))))
    assert max(work(text)) <= most, work(text)
    assert text.count("= call ") <= KERNELS[what]
