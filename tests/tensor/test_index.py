"""Indexing by several tensors, writing by them and through views, scatter_reduce: against numpy; and that no kernel of it loops over
places and terms."""
import itertools

import koine
import numpy as np
import pytest
from conftest import Case
from data import values
from test_scatter import loops, schedule

CASES = []
W = np.float64
NAN, INF = np.nan, np.inf


def add(key, build, ref, **more):
    CASES.append(Case(key, build, ref, **{"tol": 1e-6, "atol": 1e-6, **more}))


def tensors(k, idx):
    return [None if j is None else k.array(np.asarray(j)) for j in idx]


def numpy_index(idx):
    return tuple(slice(None) if j is None else np.asarray(j) for j in idx)


def index(x, idx):
    return koine.call("index", x, idx)


def index_put(x, idx, value, more):
    return koine.call("index_put", x, idx, value, more)


def setitem(x, idx, value):
    return koine.call("setitem", x, idx, value)


I32 = np.int32
INDICES = [  # shape, indices
    ((5,), ([4, 0, -1],)), ((5, 4), ([4, 0, -1],)), ((5, 4), ([4, 0, -1], [0, 3, -4])), ((5, 4), ([[4], [0]], [0, 3, 1])), ((5, 4, 3), (None, [1, 3])), ((5, 4, 3), ([0, 4], None, [2, 1])),
    ((5, 4, 3), (None, [0, 3], [2, -1])), ((5, 4, 3), ([0, 1], [1, 2], [2, 0])), ((2, 3, 4, 2), (None, [[0, 2], [1, 1]], [[3, 0], [-1, 2]])), ((2, 3, 4, 2), ([1, 0, 1], None, None, [0, 1, 1])),
    ((5, 4), (2, [0, 1])), ((5, 4), (2, -1)), ((5, 4), ([], [])), ((300, 70), (np.arange(90) * 7 % 300, np.arange(90) % 70)), ((3, 4), (np.zeros((2, 3, 2), int), [1, 2]))]
for i, (s, idx) in enumerate(INDICES):
    for d in (np.float32, np.int64) if i % 2 else (np.float64, np.uint8):
        x = values(f"ix{i}", s, d)
        if not np.ravel(idx[0]).size and idx[0] is not None:
            idx = tuple(np.zeros(0, np.int64) for _ in idx)
        add(f"index-{i}-{np.dtype(d).name}", lambda k, x=x, idx=idx: index(k.array(x), tensors(k, idx)), lambda x=x, idx=idx: x[numpy_index(idx)])
        v = values(f"ixv{i}", x[numpy_index(idx)].shape, d)
        for more in (0, 1):
            def put(x=x, idx=idx, v=v, more=more):
                y = x.copy()
                (np.add.at(y, numpy_index(idx), v) if more else y.__setitem__(numpy_index(idx), v))
                return y
            add(f"index_put-{i}-{np.dtype(d).name}-{more}", lambda k, x=x, idx=idx, v=v, more=more: index_put(k.array(x), tensors(k, idx), k.array(v), more), put)
        def assigned(k, x=x, idx=idx, v=v):
            w = k.array(x).param()
            setitem(w, tensors(k, idx), k.array(v))
            return w
        add(f"setitem-{i}-{np.dtype(d).name}", assigned, lambda x=x, idx=idx, v=v: (lambda y: (y.__setitem__(numpy_index(idx), v), y)[1])(x.copy()))
X = values("broadcast", (4, 5, 3))
add("index_put-broadcast", lambda k: index_put(k.array(X), tensors(k, ([0, 2],)), k.array(np.float32(7)), 0), lambda: (lambda y: (y.__setitem__([0, 2], 7), y)[1])(X.copy()))
add("index_put-weak", lambda k: index_put(k.array(X), tensors(k, ([0, 2], None, [1, 1])), k.scalar(7.0), 0), lambda: (lambda y: (y.__setitem__(([0, 2], slice(None), [1, 1]), 7), y)[1])(X.copy()))
add("index_put-last-wins", lambda k: index_put(k.zeros((3,), "f32"), tensors(k, ([1, 1, 2, 1],)), k.array(np.array([5, -0.0, NAN, 3], np.float32)), 0), lambda: np.array([0, 3, NAN]))
add("index_put-outside", lambda k: index_put(k.zeros((3,), "f32"), tensors(k, ([7, 1, -9],)), k.array(np.array([5, 4, 3], np.float32)), 0), lambda: np.array([0, 4, 0]))
add("index-outside", lambda k: index(k.array(np.ones((3, 2), np.float32)), tensors(k, ([7, 1, 0], [0, -3, 1]))), lambda: np.array([0, 0, 1]))
add("index-special", lambda k: index(k.array(np.array([NAN, INF, -0.0, 1], np.float32)), tensors(k, ([2, 1, 3],))).recip(), lambda: np.array([-INF, 0, 1]))
M = values("mask", (4, 5), np.bool_)
add("index_put-mask", lambda k: index_put(k.array(X), tensors(k, (M,)), k.array(np.float32(2)), 0), lambda: np.where(M[..., None], 2, X))
add("index_put-mask-add", lambda k: index_put(k.array(X), tensors(k, (M,)), k.array(np.float32(2)), 1), lambda: np.where(M[..., None], X + 2, X))
def masked(k):
    w = k.array(X).param()
    setitem(w, tensors(k, (M,)), k.array(np.float32(2)))
    return w
add("setitem-mask", masked, lambda: np.where(M[..., None], 2, X))

# ---- through views
VIEWS = {
    "steps": (lambda t: t.slice(0, 0, koine.END, 2), lambda a: a[::2]),
    "steps over the end": (lambda t: t.slice(0, 1, koine.END, 3), lambda a: a[1::3]),
    "negative steps": (lambda t: t.slice(0, -1, koine.END, -2), lambda a: a[::-2]),
    "steps of both": (lambda t: t.slice(0, 0, koine.END, 2).slice(1, 5, koine.END, -2), lambda a: a[::2, 5::-2]),
    "column": (lambda t: t.select(1, -1), lambda a: a[:, -1]),
    "transposed": (lambda t: t.mT().slice(0, 1, 4, 1), lambda a: a.T[1:4]),
    "steps of a slice": (lambda t: t.slice(0, 1, 6, 1).slice(0, 0, koine.END, 2), lambda a: a[1:6][::2]),
    "diagonal": (lambda t: t.shrink((0, 0), (6, 6)).diagonal(0), lambda a: a[np.arange(6), np.arange(6)]),
}
Z = values("places", (7, 6))
for name, (view, array) in VIEWS.items():
    for d in (np.float32, np.int32):
        z, v = Z.astype(d), values(f"through {name}", array(Z).shape, d)
        def through(k, z=z, v=v, view=view):
            w = k.array(z).param()
            view(w).assign(k.array(v))
            return w
        def wanted(z=z, v=v, name=name, array=array):
            y = z.copy()
            if name == "diagonal":
                y[np.arange(6), np.arange(6)] = v
            else:
                array(y)[...] = v
            return y
        add(f"assign-{name}-{np.dtype(d).name}", through, wanted)


def overlapping(k, write):
    w = k.array(Z.ravel().copy()).param()
    write(w)
    return w


def moved(n, back):
    y = Z.ravel().copy()
    if back:
        y[:-n] = y[n:].copy()
    else:
        y[n:] = y[:-n].copy()
    return y


for n in (1, 5):
    add(f"assign-onto-itself-{n}", lambda k, n=n: overlapping(k, lambda w: w.slice(0, n, koine.END, 1).assign(w.slice(0, 0, -n, 1))), lambda n=n: moved(n, False))
    add(f"assign-onto-itself-back-{n}", lambda k, n=n: overlapping(k, lambda w: w.slice(0, 0, -n, 1).assign(w.slice(0, n, koine.END, 1))), lambda n=n: moved(n, True))
add("assign-reversed", lambda k: overlapping(k, lambda w: w.assign(w.flip((0,)))), lambda: Z.ravel()[::-1])
add("assign-steps-reversed", lambda k: overlapping(k, lambda w: w.slice(0, 0, koine.END, 5).assign(w.slice(0, 0, koine.END, 5).flip((0,)))),
    lambda: (lambda y: (y.__setitem__(slice(None, None, 5), y[::5][::-1].copy()), y)[1])(Z.ravel().copy()))
add("assign-windows", lambda k: overlapping(k, lambda w: w.unfold(0, 3, 2).assign(k.array(np.arange(60, dtype=np.float32).reshape(20, 3)))),
    lambda: (lambda y: ([y.__setitem__(slice(2 * i, 2 * i + 3), np.arange(3) + 3 * i) for i in range(19, -1, -1)], y)[1])(Z.ravel().copy()))
add("assign-expanded", lambda k: overlapping(k, lambda w: w.unsqueeze(0).expand((3, 42)).assign(k.array(np.arange(126, dtype=np.float32).reshape(3, 42)))), lambda: np.arange(84, 126))


def twice(k):
    w = k.array(Z.ravel().copy()).param()
    w.slice(0, 0, koine.END, 5).assign(k.full((9,), 1.0, "f32"))
    w.slice(0, 1, koine.END, 5).assign(w.slice(0, 0, koine.END, 5))
    return w.muls(2)


add("assign-steps-twice", twice, lambda: (lambda y: (y.__setitem__(slice(None, None, 5), 1), y.__setitem__(slice(1, None, 5), 1), 2 * y)[2])(Z.ravel().copy()))

# ---- along an axis
HOW = {"sum": (np.add, 0), "prod": (np.multiply, 1), "amax": (np.maximum, None), "amin": (np.minimum, None), "mean": (np.add, 0)}


def reduced(x, axis, j, v, how, include):
    y, n = x.astype(W if x.dtype.kind == "f" else x.dtype).copy(), np.zeros(x.shape, int)
    grid = list(np.indices(j.shape))
    grid[axis] = j
    at = tuple(grid)
    np.add.at(n, at, 1)
    v = np.broadcast_to(v, j.shape).astype(y.dtype)
    if not include:
        info = np.finfo(W) if y.dtype.kind == "f" else np.iinfo(y.dtype)
        low, high = (-INF, INF) if y.dtype.kind == "f" else (info.min, info.max)
        start = {"amax": low, "amin": high}.get(how, HOW[how][1])
        y[n > 0] = start
    HOW[how][0].at(y, at, v)
    if how == "mean":
        d = n + (1 if include else 0)
        y = np.where(n > 0, (y / np.maximum(d, 1)) if y.dtype.kind == "f" else y // np.maximum(d, 1), y)
    return y


for i, (s, axis, sj) in enumerate((((6,), 0, (9,)), ((4, 5), 0, (3, 5)), ((4, 5), 1, (4, 9)), ((4, 5), 1, (2, 3)), ((2, 3, 4), 1, (2, 5, 4)), ((2, 3, 4), -1, (1, 2, 7)), ((200, 3), 0, (90, 3)))):
    for how, include in itertools.product(HOW, (0, 1)):
        for d in ((np.float32, np.int32) if (i + include) % 2 else (np.float64, np.uint8)):
            x, v, j = values(f"sr{i}", s, d, 1, 4), values(f"srv{i}", sj, d, 1, 3), values(f"srj{i}", sj, np.int64, 0, s[axis] - 1)
            add(f"scatter_reduce-{how}-{include}-{i}-{np.dtype(d).name}", lambda k, x=x, v=v, j=j, axis=axis, how=how, include=include:
                k.array(x).scatter_reduce(axis, k.array(j), k.array(v), how, include),
                lambda x=x, v=v, j=j, axis=axis, how=how, include=include: reduced(x, axis, j, v, how, include), tol=1e-5)
    x, v, j = values(f"pa{i}", s), values(f"pav{i}", sj), values(f"paj{i}", sj, np.int64, -s[axis], s[axis] - 1)
    def put_along(x=x, v=v, j=j, axis=axis):
        y = x.copy()
        grid = list(np.indices(j.shape))
        grid[axis] = j
        y[tuple(grid)] = v
        return y
    add(f"put_along_axis-{i}", lambda k, x=x, v=v, j=j, axis=axis: k.array(x).put_along_axis(axis, k.array(j), k.array(v)), put_along)
SPECIAL = np.array([NAN, 1, INF, -INF, -0.0, 2], np.float32)
J = np.array([0, 0, 1, 1, 2, 3])
for how in ("amax", "amin", "sum", "prod"):
    add(f"scatter_reduce-special-{how}", lambda k, how=how: k.zeros((5,), "f32").scatter_reduce(0, k.array(J), k.array(SPECIAL), how, 0),
        lambda how=how: np.array({"amax": [NAN, INF, 0, 2, 0], "amin": [NAN, -INF, 0, 2, 0], "sum": [NAN, NAN, 0, 2, 0], "prod": [NAN, -INF, 0, 2, 0]}[how]))
add("scatter_reduce-f16", lambda k: k.zeros((2,), "f16").scatter_reduce(0, k.array(np.zeros(4000, np.int32)), k.full((4000,), 1.0, "f16"), "sum", 1), lambda: np.array([4000, 0]), tol=1e-3)
add("put_along_axis-none", lambda k: k.array(X).put_along_axis(0, k.array(np.zeros((0, 5, 3), np.int64)), k.zeros((0, 5, 3), "f32")), lambda: X)
add("put_along_axis-weak", lambda k: k.array(X).put_along_axis(0, k.array(np.ones((1, 5, 3), np.int64)), k.scalar(9.0)), lambda: (lambda y: (y.__setitem__(1, 9), y)[1])(X.copy()))


def test_case(case, device, check):
    check(case, device)


# ---- what becomes of it

N, D, T = 512, 96, 24
LINEAR = {  # the most elements a kernel of it may pass through
    "index": (D, lambda k: index(k.array(np.zeros((N, N), np.float32)), tensors(k, (np.zeros(D, I32), np.zeros(D, I32))))),
    "index, one whole": (D * T, lambda k: index(k.array(np.zeros((N, T, N), np.float32)), tensors(k, (np.zeros(D, I32), None, np.zeros(D, I32))))),
    "index_put": (N * T, lambda k: index_put(k.zeros((N, T), "f32").contiguous(), tensors(k, (np.zeros(D, I32),)), k.array(np.ones((D, T), np.float32)), 0)),
    "index_put of two": (N * T, lambda k: index_put(k.zeros((N, T), "f32").contiguous(), tensors(k, (np.zeros(D, I32), np.zeros(D, I32))), k.array(np.ones(D, np.float32)), 0)),
    "index_put adds": (N * T, lambda k: index_put(k.zeros((N, T), "f32").contiguous(), tensors(k, (np.zeros(D, I32), np.zeros(D, I32))), k.array(np.ones(D, np.float32)), 1)),
    "put_along_axis": (N * T, lambda k: k.zeros((T, N), "f32").contiguous().put_along_axis(1, k.array(np.zeros((T, D), I32)), k.array(np.ones((T, D), np.float32)))),
    **{how: (N * T, lambda k, how=how: k.zeros((T, N), "f32").contiguous().scatter_reduce(1, k.array(np.zeros((T, D), I32)), k.array(np.ones((T, D), np.float32)), how, 1)) for how in HOW},
}


@pytest.mark.parametrize("what", LINEAR)
def test_no_loop_over_places_and_terms(monkeypatch, what):
    most, build = LINEAR[what]
    work = loops(schedule(monkeypatch, build))
    assert work and max(work) <= most, work


def test_many_terms():
    """More than the digits of positions that a kernel looks through."""
    k = koine.Context("CPU")
    n = 300000
    j, v = np.random.default_rng(3).integers(0, n, n), np.arange(n, dtype=np.float32)
    want = np.zeros(n, np.float32)
    want[j] = v
    np.testing.assert_array_equal(index_put(k.zeros((n,), "f32"), [k.array(j)], k.array(v), 0).numpy(), want)
    np.testing.assert_array_equal(k.zeros((n,), "f32").put_along_axis(0, k.array(j), k.array(v)).numpy(), want)
    k.close()
