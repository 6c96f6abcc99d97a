"""Sums that add each term where data says: scatter_add, the gradients of gathers, and compositions of the same form, against
numpy.add.at; what a kernel does of it (loops over positions or over terms, not over both), and that a large one is quick.

The oracle is exact: terms are quarters, and the sign of a zero is that of the sum as written, which starts at -0.0 and has a
zero of the composition's for every term that goes elsewhere."""
import ctypes
import math
import re

import numpy as np
import pytest

import koine
from conftest import DEVICES, Case

RNG = np.random.default_rng(24)
CASES = []


def values(shape, dtype):
    """Quarters with many zeros of both signs, or small integers."""
    if np.dtype(dtype).kind != "f":
        return RNG.integers(0 if np.dtype(dtype).kind == "u" else -60, 60, shape).astype(dtype)
    a = (RNG.integers(-8, 9, shape) / 4).astype(dtype)
    return np.where(RNG.random(shape) < 0.3, np.asarray(-0.0, dtype), a).astype(dtype)


def positions(shape, n, dtype, way):
    """inside; outside: some; far: the ends of the dtype among them; one: all the same."""
    info = np.iinfo(dtype)
    if way == "one":
        return np.full(shape, min(n - 1, info.max), dtype)
    low, high = (0, n - 1) if way == "inside" else (-3, n + 3)
    a = RNG.integers(max(low, info.min), min(high, info.max) + 1, shape).astype(dtype)
    if way == "far" and a.size > 3:
        a.flat[[0, a.size // 2]] = info.max
        a.flat[[1, a.size - 1]] = info.min
        a.flat[a.size // 3] = min(info.max, 1 << 40)
    return a


def added(n, j, v, axis=0, missed=-0.0):
    """Sum over d of where(k = j[d], v[.., d, ..], missed) for k below n: j takes one axis of v."""
    v = np.moveaxis(v, axis, 0)
    out = np.full((n,) + v.shape[1:], -0.0 if v.dtype.kind == "f" else 0, v.dtype)
    j = [int(x) for x in j]
    inside = [i for i, x in enumerate(j) if 0 <= x < n]
    np.add.at(out, [j[i] for i in inside], v[inside])
    if v.dtype.kind == "f":
        for k in range(n):
            if any(x != k for x in j):
                out[k] += np.asarray(missed, v.dtype)
            if not j:
                out[k] = 0
    return np.moveaxis(out, 0, axis)


def add(name, build, expected):
    CASES.append(Case(name, build, expected))


WAYS = ["inside", "outside", "far", "one"]
SIZES = [(40, 13, ()), (300, 9, ()), (5, 30, (16,)), (40, 64, (33,)), (7, 8, (4, 5)), (2, 300, (64,)), (1, 9, (40,)), (50, 7, (3,)), (50, 1, (3,)), (9, 0, (4,))]
DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint64]
INDICES = [np.int32, np.int64, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64]
for i, (n, d, rest) in enumerate(SIZES):
    for w, way in enumerate(WAYS):
        dtype, index = DTYPES[(i + w) % 8], INDICES[(i + 3 * w) % 8]
        x, v, j = values((n,) + rest, dtype), values((d,) + rest, dtype), positions(d, n, index, way)
        add(f"scatter_add-{i}-{way}-{np.dtype(dtype).name}-{np.dtype(index).name}",
            lambda k, x=x, j=j, v=v: k.array(x).scatter_add(k.array(j), k.array(v)), lambda n=n, x=x, j=j, v=v: x + added(n, j, v))

for i, (shape, axis, d) in enumerate((((40,), 0, 9), ((3, 40), 1, 12), ((40, 3), 0, 12), ((2, 5, 40), 2, 8), ((2, 5, 40), 1, 30), ((1, 64, 2), 1, 9))):
    side = shape[:axis] + (d,) + shape[axis + 1:]
    x, v, j = values(shape, np.float32), values(side, np.float32), positions(side, shape[axis], np.int64, "inside")
    def along(x=x, v=v, j=j, axis=axis):
        at = list(np.indices(j.shape))
        at[axis] = j
        s = np.full(x.shape, -0.0, x.dtype)
        np.add.at(s, tuple(at), v)
        return x + s
    add(f"scatter_add_along_axis-{i}", lambda k, x=x, j=j, v=v, axis=axis: k.array(x).scatter_add_along_axis(axis, k.array(j), k.array(v)), along)


# ---- gradients

def gradient(way, x, j, g):
    def build(k):
        w = koine.param(k.array(x))
        return koine.grad1((way(w, k.array(j)) * k.array(g)).sum(), w)
    return build


for i, (n, si, t) in enumerate(((50, (16,), 33), (50, (3, 9), 8), (300, (2, 2, 5), 1), (5, (40,), 16), (33, (1, 8), 16), (40, (0,), 3))):
    for w, way in enumerate(WAYS):
        j = positions(si, n, INDICES[(2 * i + w) % 4], way)
        x, g = values((n, t), np.float32), values(si + (t,), np.float32)
        add(f"embedding-gradient-{i}-{way}", gradient(lambda w, j: w.embedding(j), x, j, g),
            lambda n=n, j=j, g=g, t=t: added(n, j.ravel(), g.reshape(-1, t), missed=0.0))
for i, (shape, axis, d) in enumerate((((40,), 0, 9), ((2, 40), 1, 9), ((2, 40, 3), 1, 9), ((40, 2, 2), 0, 16))):
    x, g, j = values(shape, np.float64), values(shape[:axis] + (d,) + shape[axis + 1:], np.float64), positions(d, shape[axis], np.int64, "inside")
    add(f"take-gradient-{i}", gradient(lambda w, j, axis=axis: w.take(j, axis), x, j, g),
        lambda n=shape[axis], j=j, g=g, axis=axis: added(n, j, g, axis, missed=0.0))


def embedding_half(k, w, j, g):
    """16-bit weights: their gradient is summed in f32."""
    t = koine.param(k.array(w))
    return koine.grad1((t.embedding(k.array(j)) * k.array(g)).sum(), t)


W16, J16, G16 = values((40, 8), np.float16), positions(20, 40, np.int32, "inside"), values((20, 8), np.float16)
add("embedding-gradient-f16", lambda k: embedding_half(k, W16, J16, G16), lambda: added(40, J16, G16.astype(np.float32), missed=0.0).astype(np.float16))


def second(k, x, j, g):
    """s = sum of (d/dw sum(w[j]^2 g))·w = 2 sum of w[j]^2 g: its gradients go through the sum that scatters."""
    w, up = koine.param(k.array(x)), koine.param(k.array(g))
    y = w.embedding(k.array(j))
    first = koine.grad1((y * y * up).sum(), w)
    return (first * w).sum(), w, up


X2, J2, G2 = np.abs(values((50, 16), np.float64)) + 1, positions(24, 50, np.int64, "inside"), np.abs(values((24, 16), np.float64)) + 1


def by_upstream(k):
    s, _, up = second(k, X2, J2, G2)
    return koine.grad1(s, up)


def by_weight(k):
    s, w, _ = second(k, X2, J2, G2)
    return koine.grad1(s, w)


add("second-derivative-by-upstream", by_upstream, lambda: 2 * X2[J2] ** 2)
add("second-derivative-by-weight", by_weight, lambda: added(50, J2, 4 * X2[J2] * G2, missed=0.0))


# ---- compositions of the same form

def axis_of(k, n, at, rank):
    """0 .. n-1 along one axis of so many."""
    return k.arange(0.0, float(n), 1.0, "i32").reshape([n if i == at else 1 for i in range(rank)])


def where(hit, v, zero):
    return koine.call("where", hit, v, v.k.full((), zero, v.dtype))


def eq(a, b):
    return koine.call("eq", a, b)


P, Q, V = positions(40, 9, np.int32, "outside"), positions(40, 11, np.int32, "outside"), values((40, 3), np.float32)


def two_axes(k, zero):
    """out[a, b, t] = sum over d of where(a = P[d] and b = Q[d], V[d, t], 0)."""
    p, q = k.array(P).reshape((1, 1, 40, 1)), k.array(Q).reshape((1, 1, 40, 1))
    hit = koine.call("logical_and", eq(axis_of(k, 9, 0, 4), p), eq(axis_of(k, 11, 1, 4), q))
    return where(hit, k.array(V).reshape((1, 1, 40, 3)), zero).sum_over([2], 0)


def two_axes_flat(k, zero):
    """The place of each (a, b) as one number."""
    hit = eq(k.arange(0.0, 99.0, 1.0, "i32").reshape((9, 11, 1)), k.array(P * 11 + Q).reshape((1, 1, 40)))
    return where(hit, k.array(V[:, 0].copy()).reshape((1, 1, 40)), zero).sum_over([2], 0)


def two_axes_expected(zero):
    inside = (P >= 0) & (P < 9) & (Q >= 0) & (Q < 11)
    return added(99, np.where(inside, P * 11 + Q, -1), V, missed=zero).reshape(9, 11, 3)


for z in (0.0, -0.0):
    add(f"two-axes-{z}", lambda k, z=z: two_axes(k, z), lambda z=z: two_axes_expected(z))
    add(f"two-axes-flat-{z}", lambda k, z=z: two_axes_flat(k, z), lambda z=z: added(99, P * 11 + Q, V[:, 0], missed=z).reshape(9, 11))

U = values((6, 40, 5, 3), np.float32)


def sums_inside(k):
    """The condition knows one of three reduced axes."""
    hit = eq(axis_of(k, 33, 0, 5), k.array(P).reshape((1, 1, 40, 1, 1)))
    return where(hit, k.array(U).reshape((1, 6, 40, 5, 3)), -0.0).sum_over([1, 2, 3], 0)


add("sums-inside", sums_inside, lambda: added(33, P, U.sum((0, 2))))
R = values((6, 3), np.int32)
IJ = positions((6, 40), 33, np.int64, "far")


def grid(k, zero):
    """Two reduced axes that both name the place, and a term that knows the place."""
    j, v = k.array(IJ).reshape((1, 6, 40, 1)), k.array(R.astype(np.float32)).reshape((1, 6, 1, 3))
    return where(eq(axis_of(k, 33, 0, 4).cast("i64"), j), v * axis_of(k, 33, 0, 4).cast("f32"), zero).sum_over([1, 2], 0)


def grid_expected(zero):
    v = np.broadcast_to(R[:, None].astype(np.float32), (6, 40, 3)).reshape(240, 3)
    return added(33, IJ.ravel(), v * np.where(IJ < 0, 0, IJ).clip(0, 32).reshape(240, 1).astype(np.float32), missed=zero)


for z in (0.0, -0.0):
    add(f"grid-{z}", lambda k, z=z: grid(k, z), lambda z=z: grid_expected(z))
NOTHING = np.full((1, 12, 8), -0.0, np.float32)
for z in (0.0, -0.0):  # all terms to one place, all of them -0.0: the sum is -0.0 if nothing else is in it
    for miss in (None, 0, 5, 11):
        j = np.array([[4] * 12], np.int32)
        if miss is not None:
            j[0, miss] = 6
        add(f"minus-zeros-{z}-{miss}",
            lambda k, j=j, z=z: where(eq(axis_of(k, 9, 0, 3), k.array(j).reshape((1, 12, 1))), k.array(NOTHING), z).sum_over([1], 0),
            lambda j=j, z=z: added(9, j[0], NOTHING[0], missed=z))

MASK, FEW = RNG.random(40) < 0.6, RNG.random(3) < 0.6
W33 = np.abs(values((33, 3), np.float32)) + 1
FAR = positions(40, 33, np.int64, "far")


def masked(zero, way):
    """More of a condition than the equality: known to d, or to what trails; in one where, in two, or the other way round."""
    def build(k):
        hit = eq(axis_of(k, 33, 0, 3), k.array(P).reshape((1, 40, 1)))
        more = k.array(MASK).reshape((1, 40, 1)) if way != "trailing" else k.array(FEW).reshape((1, 1, 3))
        v = k.array(V).reshape((1, 40, 3))
        if way == "nested":
            return where(hit, where(more, v, zero), zero).sum_over([1], 0)
        if way == "not":
            both = koine.call("logical_not", koine.call("logical_and", hit, more))
            return koine.call("where", both, k.full((), zero, "f32"), v).sum_over([1], 0)
        return where(koine.call("logical_and", hit, more), v, zero).sum_over([1], 0)
    return build


def masked_expected(zero, way):
    if way != "trailing":
        return added(33, np.where(MASK, P, -1), V, missed=zero)
    return np.stack([added(33, P if FEW[t] else np.full(40, -1), V[:, t], missed=zero) for t in range(3)], 1)


for z in (0.0, -0.0):
    for way in ("and", "nested", "not", "trailing"):
        add(f"masked-{way}-{z}", masked(z, way), lambda z=z, way=way: masked_expected(z, way))


def not_equal(k):
    miss = koine.call("ne", axis_of(k, 33, 0, 3), k.array(P).reshape((1, 40, 1)))
    return koine.call("where", miss, k.full((), 0.0, "f32"), k.array(V).reshape((1, 40, 3))).sum_over([1], 0)


def rows_read(k):
    """The term reads at the place that it goes to, which may be nowhere."""
    hit = eq(axis_of(k, 33, 0, 3).cast("i64"), k.array(FAR).reshape((1, 40, 1)))
    return where(hit, k.array(V).reshape((1, 40, 3)) * k.array(W33).reshape((33, 1, 3)), -0.0).sum_over([1], 0)


def padded(k, dtype):
    """Terms after the last one are zeros, and so is every sum that would be -0.0."""
    v, j = k.array(V.astype(dtype)).pad([0, 9, 0, 0], 0.0), k.array(np.concatenate([P, P[:9]]))
    return where(eq(axis_of(k, 33, 0, 3), j.reshape((1, 49, 1))), v.reshape((1, 49, 3)), 0.0).sum_over([1], 0)


def padded_after(k, zero):
    """The masked terms and nine zeros."""
    hit = eq(axis_of(k, 33, 0, 3), k.array(P).reshape((1, 40, 1)))
    return where(hit, k.array(V).reshape((1, 40, 3)), zero).pad([0, 0, 0, 9, 0, 0], 0.0).sum_over([1], 0)


def wider(k, dtype):
    """The masked terms beside two columns of zeros."""
    hit = eq(axis_of(k, 33, 0, 3), k.array(P).reshape((1, 40, 1)))
    return where(hit, k.array(V.astype(dtype)).reshape((1, 40, 3)), 0.0).pad([0, 0, 0, 0, 0, 2], 0.0).sum_over([1], 0)


def bounded(k, axis, dtype):
    """A comparison of one of the positions, beside the equality."""
    hit, few = eq(axis_of(k, 33, 0, 3), k.array(P).reshape((1, 40, 1))), axis_of(k, (40, 3)[axis - 1], axis, 3)
    hit = koine.call("logical_and", hit, koine.call("lts", few, float((30, 2)[axis - 1])))
    return where(hit, k.array(V.astype(dtype)).reshape((1, 40, 3)), 0.0).sum_over([1], 0)


def bounded_expected(axis, dtype):
    v = V.astype(dtype)
    return np.stack([added(33, np.where((np.arange(40) < 30) if axis == 1 else t < 2, P, -1), v[:, t], missed=0.0) for t in range(3)], 1).astype(WIDE[dtype])


def tied(k, first):
    """out[a, b] = sum where(a = P[d] and a + b = Q[d]): one axis says where the other is."""
    a, b = axis_of(k, 9, 0 if first else 1, 3), axis_of(k, 11, 1 if first else 0, 3)
    hit = koine.call("logical_and", eq(a, k.array(P).reshape((1, 1, 40))), eq(a + b, k.array(Q).reshape((1, 1, 40))))
    return where(hit, k.array(V[:, 0].copy()).reshape((1, 1, 40)), -0.0).sum_over([2], 0)


def tied_expected(first):
    b = Q - P
    inside = (P >= 0) & (P < 9) & (b >= 0) & (b < 11)
    out = added(99, np.where(inside, P * 11 + b, -1), V[:, 0]).reshape(9, 11)
    return out if first else out.T


def one_row(k):
    """An equality that no term knows, beside one that they do."""
    hit = koine.call("logical_and", eq(axis_of(k, 9, 0, 3), k.array(np.array(4, np.int32))), eq(axis_of(k, 33, 1, 3), k.array(P).reshape((1, 1, 40))))
    return where(hit, k.array(V[:, 0].copy()).reshape((1, 1, 40)), -0.0).sum_over([2], 0)


add("not-equal", not_equal, lambda: added(33, P, V, missed=0.0))
add("rows-read", rows_read, lambda: added(33, FAR, V * W33[FAR.clip(0, 32)]))
WIDE = {np.float32: np.float32, np.int32: np.int64}  # a sum's dtype
for t in WIDE:
    add(f"padded-{np.dtype(t).name}", lambda k, t=t: padded(k, t), lambda t=t: (added(33, P, V.astype(t)) + np.asarray(0, t)).astype(WIDE[t]))
    add(f"wider-{np.dtype(t).name}", lambda k, t=t: wider(k, t), lambda t=t: np.pad(added(33, P, V.astype(t), missed=0.0), ((0, 0), (0, 2))).astype(WIDE[t]))
    for axis in (1, 2):
        add(f"bounded-{axis}-{np.dtype(t).name}", lambda k, t=t, axis=axis: bounded(k, axis, t), lambda t=t, axis=axis: bounded_expected(axis, t))
for z in (0.0, -0.0):
    add(f"padded-after-{z}", lambda k, z=z: padded_after(k, z), lambda: added(33, P, V, missed=0.0) + np.float32(0))
for first in (True, False):
    add(f"tied-{first}", lambda k, first=first: tied(k, first), lambda first=first: tied_expected(first))
add("one-row", one_row, lambda: np.where(np.arange(9)[:, None] == 4, added(33, P, V[:, 0]), np.float32(-0.0)))


def times(k, dtype, weight):
    """How often each place is named; or the sum of what is there, as a product with zero or one."""
    hit = eq(axis_of(k, 33, 0, 2), k.array(P).reshape((1, 40)))
    return (hit.cast(dtype) * k.array(weight).reshape((1, 40)) if weight is not None else hit.cast(dtype) if dtype else hit).sum_over([1], 0)


ONES, WEIGHT = np.ones(40), values(40, np.int16)
for name, dtype, weight, t in (("count", None, None, np.int64), ("count-f32", "f32", None, np.float32), ("count-u8", "u8", None, np.uint64), ("weighted", "i16", WEIGHT, np.int64)):
    add(name, lambda k, dtype=dtype, weight=weight: times(k, dtype, weight),
        lambda weight=weight, t=t: added(33, P, (ONES if weight is None else weight).astype(t), missed=0.0))
add("one-hot", lambda k: k.array(P).one_hot(33, "f32").sum_over([0], 0), lambda: added(33, P, ONES.astype(np.float32), missed=0.0))


def in_a_grid(k, j):
    hit = eq(axis_of(k, 33, 0, 4), k.array(j).reshape((1, 6, 40, 1)))
    return where(hit, k.array(np.full((1, 6, 1, 3), -0.0, np.float32)), 0.0).sum_over([1, 2], 0)


for i, at in enumerate((None, 3, (slice(None), 7))):  # which terms go elsewhere: none, a row of the grid, a column
    j = np.full((6, 40), 5, np.int32)
    if at is not None:
        j[at] = 6
    add(f"minus-zeros-in-a-grid-{i}", lambda k, j=j: in_a_grid(k, j), lambda j=j: added(33, j.ravel(), np.full((240, 3), -0.0, np.float32), missed=0.0))



def test_case(case, device, answer):
    _, got = answer(case, device)
    want = np.asarray(case.expected())
    assert got.shape == want.shape and got.dtype == want.dtype
    assert got.tobytes() == want.tobytes(), np.argwhere((got != want) | (np.signbit(got) != np.signbit(want)))[:5]


# ---- what becomes of it

def schedule(monkeypatch, build):
    """The text after rangeify of what build(k) makes."""
    log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
    texts = []
    take = log(lambda _, text: texts.append(text.decode()))
    monkeypatch.setenv("KN_DEBUG", "rangeify")
    k = koine.Context("NULL")
    monkeypatch.delenv("KN_DEBUG")
    koine.load().kn_set_log(ctypes.c_void_p(k.h), take, None)
    try:
        k.realize(build(k))
    finally:
        k.close()
    return "".join(texts)


def extents(text):
    """Of each kernel: the extents of all its ranges."""
    made = dict(re.findall(r"^(%\w+) = (.*?)(?:\s+:.*)?$", text, re.M))
    work = []
    for name, node in made.items():
        if not node.startswith("sink"):
            continue
        seen, todo, found = set(), [name], []
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            todo += re.findall(r"%\w+", made[n])
            m = re.match(r"range \d+ \w+ (\d+)", made[n])
            found += [int(m[1])] if m else []
        work.append(found)
    return work


def loops(text):
    return [math.prod(e) for e in extents(text)]


N, D, T = 512, 96, 24
ROWS = np.ones((D, T), np.float32)
LINEAR = {  # what, and the most elements a kernel of it may pass through
    "scatter_add": (N * T, lambda k: k.zeros((N, T), "f32").contiguous().scatter_add(k.array(np.zeros(D, np.int32)), k.array(ROWS))),
    "scatter_add last axis": (N * T, lambda k: k.zeros((T, N), "f32").contiguous().scatter_add_along_axis(1, k.array(np.zeros((T, D), np.int64)), k.array(ROWS.T))),
    "embedding": (N * T, gradient(lambda w, j: w.embedding(j), np.zeros((N, T), np.float32), np.zeros((4, D // 4), np.int64), ROWS.reshape(4, D // 4, T))),
    "take": (N * T, gradient(lambda w, j: w.take(j, 1), np.zeros((2, N, T // 2), np.float32), np.zeros(D, np.int32), ROWS.reshape(2, D, T // 2))),
    "gather": (N * T, gradient(lambda w, j: w.gather(j), np.zeros((N, T), np.float32), np.zeros(D, np.uint8), ROWS)),
    "second derivative": (N * T, lambda k: (lambda s: koine.grad1(s[0], s[1]))(second(k, np.ones((N, T), np.float32), np.zeros(D, np.int32), ROWS))),
    "two axes": (9 * 11 * 3, lambda k: two_axes(k, 0.0)),
    "two axes flat": (9 * 11, lambda k: two_axes_flat(k, 0.0)),
    "sums inside": (U.size, sums_inside),
    "masked": (33 * 3 + 40 * 3, masked(0.0, "and")),
    "masked, nested": (40 * 3, masked(0.0, "nested")),
    "masked, not": (40 * 3, masked(0.0, "not")),
    "not equal": (40 * 3, not_equal),
    "rows read": (40 * 3, rows_read),
    "padded": (49 * 3, lambda k: padded(k, np.float32)),
    "padded integers": (49 * 3, lambda k: padded(k, np.int32)),
    "padded after": (40 * 3, lambda k: padded_after(k, -0.0)),
    "wider": (40 * 5, lambda k: wider(k, np.float32)),
    "wider integers": (40 * 5, lambda k: wider(k, np.int32)),
    "bounded": (40 * 3, lambda k: bounded(k, 1, np.float32)),
    "bounded trailing": (40 * 3, lambda k: bounded(k, 2, np.float32)),
    "bounded trailing integers": (40 * 3, lambda k: bounded(k, 2, np.int32)),
    "count": (40, lambda k: times(k, None, None)),
    "count in f32": (40, lambda k: times(k, "f32", None)),
    "weighted": (40, lambda k: times(k, "i16", WEIGHT)),
    "one row": (9 * 33, one_row),
    "grid": (6 * 40 * 3, lambda k: grid(k, 0.0)),
}


@pytest.mark.parametrize("what", LINEAR)
def test_no_loop_over_places_and_terms(monkeypatch, what):
    most, build = LINEAR[what]
    work = loops(schedule(monkeypatch, build))
    assert work and max(work) <= most, work


@pytest.mark.parametrize("layers", [1, 3])
def test_behind_layers(monkeypatch, layers):
    """However much there is between the rows taken and the loss: positions of more than 512 rows are sums of sums, found before that is."""
    def network(w, j):
        x = w.embedding(j)
        for _ in range(layers):
            x = x + x.layer_norm(1, None, None, 1e-5).gelu()
        return x
    text = schedule(monkeypatch, gradient(network, np.zeros((2000, T), np.float32), np.zeros(D, np.int32), ROWS))
    assert any(D in e for e in extents(text)) and not any(D in e and 2000 in e for e in extents(text)), extents(text)


def test_few_terms_stay_in_their_users_kernel(monkeypatch):
    few = lambda k: k.zeros((N, T), "f32").contiguous().scatter_add(k.array(np.zeros(4, np.int32)), k.array(ROWS[:4]))
    assert len(loops(schedule(monkeypatch, few))) == 1


def test_a_dense_sum_is_seen_as_one(monkeypatch):
    """The count above counts: one_hot summed by another condition than equality stays dense."""
    dense = lambda k: where(koine.call("lt", axis_of(k, N, 0, 2), k.array(np.zeros((1, D), np.int32))), k.array(np.ones((1, D), np.float32)), 0.0).sum_over([1], 0)
    assert max(loops(schedule(monkeypatch, dense))) == N * D
