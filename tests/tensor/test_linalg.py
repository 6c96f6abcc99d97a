"""Linear algebra of small matrices against numpy, and what defines each result; gradients are in test_grad.py."""
import koine
import numpy as np
from conftest import Case
from data import values

CASES = []
W = np.float64
TOL = {np.float32: 2e-4, W: 1e-9, np.float16: 2e-2, np.int32: 2e-4}


def add(key, build, ref, d, **more):
    CASES.append(Case(key, build, ref, **{"tol": TOL[d], "atol": TOL[d], **more}))


def matrix(key, shape, dtype=W):
    """Well enough conditioned: noise and a diagonal that leads, rows shuffled so that pivots move."""
    a = values(key, shape, W)
    n = min(shape[-2:])
    a[..., np.arange(n), np.arange(n)] += 3
    a = a[..., np.random.default_rng(n).permutation(shape[-2]), :]
    return (np.round(a * 2) if np.dtype(dtype).kind == "i" else a).astype(dtype)


def definite(key, shape, dtype=W):
    a = values(key, shape, W)
    return (a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])).astype(dtype)


def vectors_alike(v):
    """Columns up to their sign."""
    return v * np.sign(v[..., :1, :])


SHAPES = [((1, 1), W), ((2, 2), np.float32), ((3, 3), W), ((2, 4, 4), np.float32), ((2, 3, 5, 5), W), ((12, 12), np.float32), ((0, 3, 3), W), ((33, 33), W), ((3, 3), np.float16), ((0, 0), W)]
for i, (s, d) in enumerate(SHAPES):
    name = f"{i}-{np.dtype(d).name}"
    a, p, b = matrix(f"la{i}", s, d), definite(f"ld{i}", s, d), values(f"lb{i}", s[:-1] + (3,), d)
    wide = lambda x: x.astype(W)
    add(f"cholesky-{name}", lambda k, p=p: k.array(np.tril(p)).cholesky(0), lambda p=p: np.linalg.cholesky(wide(p)), d)
    add(f"cholesky-upper-{name}", lambda k, p=p: k.array(np.triu(p)).cholesky(1), lambda p=p: np.swapaxes(np.linalg.cholesky(wide(p)), -1, -2), d)
    for upper in (0, 1):
        half, whole = (np.triu if upper else np.tril), matrix(f"lt{i}", s, d)
        whole[..., np.arange(s[-1]), np.arange(s[-1])] = 3
        add(f"solve_triangular-{upper}-{name}", lambda k, w=whole, b=b, upper=upper: k.array(w).solve_triangular(k.array(b), upper, 0),
            lambda w=whole, b=b, half=half: np.linalg.solve(half(wide(w)), wide(b)), d)
    if d == np.float16:
        continue
    add(f"inv-{name}", lambda k, a=a: k.array(a).inv(), lambda a=a: np.linalg.inv(wide(a)), d)
    add(f"solve-{name}", lambda k, a=a, b=b: k.array(a).solve(k.array(b)), lambda a=a, b=b: np.linalg.solve(wide(a), wide(b)), d)
    add(f"det-{name}", lambda k, a=a: k.array(a).det(), lambda a=a: np.linalg.det(wide(a)), d)
    for j in range(2):
        add(f"slogdet-{j}-{name}", lambda k, a=a, j=j: koine.several("slogdet", 2, k.array(-a))[j], lambda a=a, j=j: np.linalg.slogdet(wide(-a))[j], d)
for i, (s, d) in enumerate((((3, 3), W), ((5, 3), np.float32), ((3, 5), W), ((2, 4, 4), np.float32), ((1, 4), W), ((4, 1), W), ((20, 17), W))):
    a = matrix(f"qr{i}", s, d)
    for complete in (0, 1):
        for j in range(2):
            add(f"qr-{i}-{complete}-{j}", lambda k, a=a, complete=complete, j=j: koine.several("qr", 2, k.array(a), complete)[j],
                lambda a=a, complete=complete, j=j: np.linalg.qr(a.astype(W), ("reduced", "complete")[complete])[j] if complete == 0 or j == 1 or a.shape[0] <= a.shape[1] else whole_q(a), d)
        add(f"qr-product-{i}-{complete}", lambda k, a=a, complete=complete: (lambda q, r: q @ r)(*koine.several("qr", 2, k.array(a), complete)), lambda a=a: a, d)


def whole_q(a):
    return np.linalg.qr(a.astype(W), "complete")[0]


for i, (s, d) in enumerate((((1, 1), W), ((2, 2), W), ((3, 3), np.float32), ((2, 4, 4), W), ((7, 7), W), ((10, 10), np.float32))):
    a = values(f"eh{i}", s, W)
    a = (a + np.swapaxes(a, -1, -2)).astype(d)
    low = np.tril(a) + np.triu(np.ones(s), 1).astype(d)  # the other triangle is not read
    add(f"eigh-values-{i}", lambda k, a=low: koine.several("eigh", 2, k.array(a))[0], lambda a=a: np.linalg.eigvalsh(a.astype(W)), d)
    add(f"eigvalsh-{i}", lambda k, a=low: k.array(a).eigvalsh(), lambda a=a: np.linalg.eigvalsh(a.astype(W)), d)
    add(f"eigh-vectors-{i}", lambda k, a=low: (lambda v: v.mul(v.slice(len(v.shape) - 2, 0, 1, 1).sign()))(koine.several("eigh", 2, k.array(a))[1]),
        lambda a=a: vectors_alike(np.linalg.eigh(a.astype(W))[1]), d)
for i, (s, d) in enumerate((((1, 1), W), ((3, 3), W), ((5, 3), np.float32), ((3, 5), W), ((2, 4, 4), W), ((4, 1), W), ((12, 9), np.float32), ((2, 2, 6), np.float32))):
    a = values(f"svd{i}", s, d)
    want = lambda a=a: np.linalg.svd(a.astype(W), full_matrices=False)
    add(f"svdvals-{i}", lambda k, a=a: k.array(a).svdvals(), lambda want=want: want()[1], d)
    add(f"svd-values-{i}", lambda k, a=a: koine.several("svd", 3, k.array(a), 0)[1], lambda want=want: want()[1], d)
    add(f"svd-product-{i}", lambda k, a=a: (lambda u, s, v: u.mul(s.unsqueeze(-2)) @ v)(*koine.several("svd", 3, k.array(a), 0)), lambda a=a: a, d)
    for complete in (0, 1):
        for j, label in ((0, "left"), (2, "right")):
            def own(k, a=a, j=j, complete=complete):
                u = koine.several("svd", 3, k.array(a), complete)[j]
                return u.mT() @ u if j == 0 else u @ u.mT()
            n = (a.shape[-2] if j == 0 else a.shape[-1]) if complete else min(a.shape[-2:])
            add(f"svd-{label}-{complete}-{i}", own, lambda a=a, n=n: np.broadcast_to(np.eye(n), a.shape[:-2] + (n, n)), d)
    add(f"pinv-{i}", lambda k, a=a: k.array(a).pinv(0.0), lambda a=a: np.linalg.pinv(a.astype(W)), d)
    add(f"matrix_rank-{i}", lambda k, a=a: k.array(a).matrix_rank(0.0), lambda a=a: np.linalg.matrix_rank(a.astype(W)), d)
    for o in ("fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf"):
        add(f"matrix_norm-{o}-{i}", lambda k, a=a, o=o, i=i: k.array(a).matrix_norm(o, i % 2),
            lambda a=a, o=o, i=i: np.linalg.norm(a.astype(W), o if o in ("fro", "nuc") else float(o), (-2, -1), i % 2 == 1), d)
for i, s in enumerate(((150, 4), (4, 150), (2, 200, 3), (65, 7), (129, 1))):  # narrow, of any length
    a = values(f"long{i}", s, W)
    thin = lambda a=a: np.linalg.svd(a, full_matrices=False)
    for j in range(2):
        add(f"qr-long-{i}-{j}", lambda k, a=a, j=j: koine.several("qr", 2, k.array(a), 0)[j], lambda a=a, j=j: np.linalg.qr(a)[j], W)
    add(f"svd-long-values-{i}", lambda k, a=a: koine.several("svd", 3, k.array(a), 0)[1], lambda thin=thin: thin()[1], W)
    add(f"svd-long-product-{i}", lambda k, a=a: (lambda u, s, v: u.mul(s.unsqueeze(-2)) @ v)(*koine.several("svd", 3, k.array(a), 0)), lambda a=a: a, W)
    for j in (0, 2):
        add(f"svd-long-{'left' if j == 0 else 'right'}-{i}", lambda k, a=a, j=j: (lambda u: u.mT() @ u if j == 0 else u @ u.mT())(koine.several("svd", 3, k.array(a), 0)[j]),
            lambda s=s: np.broadcast_to(np.eye(min(s[-2:])), s[:-2] + (min(s[-2:]),) * 2), W)
    add(f"pinv-long-{i}", lambda k, a=a: k.array(a).pinv(0.0), lambda a=a: np.linalg.pinv(a), W)
    add(f"svd-long-slope-{i}", lambda k, a=a: (lambda x: koine.grad1(x.svdvals().sum(), x))(k.array(a)), lambda thin=thin: (lambda u, s, v: u @ v)(*thin()), W)
LOW = np.outer([1.0, 2, 3, 4], [1.0, -1, 2])  # of rank 1
add("matrix_rank-low", lambda k: k.array(LOW).matrix_rank(0.0), lambda: 1, W)
add("pinv-low", lambda k: k.array(LOW).pinv(0.0), lambda: np.linalg.pinv(LOW), W)
add("svd-low", lambda k: (lambda u: u.mT() @ u)(koine.several("svd", 3, k.array(LOW), 1)[0]), lambda: np.eye(4), W)
add("svd-zeros", lambda k: (lambda u: u.mT() @ u)(koine.several("svd", 3, k.zeros((3, 2), "f64"), 0)[0]), lambda: np.eye(2), W)
SAME = np.diag([2.0, 1.0, 2.0, 2.0])
add("eigh-equal-values", lambda k: (lambda w, v: v.mul(w.unsqueeze(0)) @ v.mT())(*koine.several("eigh", 2, k.array(SAME))), lambda: SAME, W)
add("eigh-zeros", lambda k: koine.several("eigh", 2, k.zeros((3, 3), "f64"))[0], lambda: np.zeros(3), W)
P = definite("powers", (3, 3))
for n in (-2, -1, 0, 1, 2, 5):
    add(f"matrix_power-{n}", lambda k, n=n: k.array(P).matrix_power(n), lambda n=n: np.linalg.matrix_power(P, n), W)
add("matrix_power-integers", lambda k: k.array(np.array([[1, 1], [1, 0]])).matrix_power(10), lambda: np.linalg.matrix_power(np.array([[1, 1], [1, 0]]), 10), W, dtype="i64")
add("inv-integers", lambda k: k.array(np.array([[2, 1], [1, 1]], np.int32)).inv(), lambda: np.array([[1, -1], [-1, 2]]), W, dtype="f32")
add("inv-zero-in-front", lambda k: k.array(np.array([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]])).inv(), lambda: np.linalg.inv(np.array([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]])), W)
add("det-singular", lambda k: k.array(np.array([[1.0, 2], [2, 4]])).det(), lambda: np.float64(0), W)
add("det-swapped", lambda k: k.array(np.eye(5)[[1, 0, 4, 2, 3]]).det(), lambda: np.linalg.det(np.eye(5)[[1, 0, 4, 2, 3]]), W)
add("solve-vector", lambda k: k.array(P).solve(k.array(np.arange(3.0))), lambda: np.linalg.solve(P, np.arange(3.0)), W)
add("solve-batched", lambda k: k.array(P).solve(k.array(values("many", (4, 3, 2), W))), lambda: np.linalg.solve(P, values("many", (4, 3, 2), W)), W)
add("solve-of-many", lambda k: k.array(definite("many2", (4, 3, 3))).solve(k.array(values("few", (3, 2), W))), lambda: np.linalg.solve(definite("many2", (4, 3, 3)), values("few", (3, 2), W)), W)
add("solve_triangular-unit", lambda k: k.array(P).solve_triangular(k.array(np.eye(3)), 0, 1), lambda: np.linalg.inv(np.tril(P, -1) + np.eye(3)), W)
add("solve_triangular-vector", lambda k: k.array(P).solve_triangular(k.array(np.arange(3.0)), 1, 0), lambda: np.linalg.solve(np.triu(P), np.arange(3.0)), W)
add("cholesky-indefinite", lambda k: k.array(np.array([[1.0, 2], [2, 1]])).cholesky(0).isnan().any(), lambda: np.True_, W)
add("inv-singular", lambda k: k.array(np.array([[1.0, 2], [2, 4]])).inv().isfinite().all(), lambda: np.False_, W)
add("qr-of-zeros", lambda k: koine.several("qr", 2, k.zeros((4, 3), "f64"), 0)[0], lambda: np.eye(4, 3), W)


def test_case(case, device, check):
    check(case, device)


def test_a_large_one_compiles():
    """The largest that is allowed: steps are the same kernels, or cheap ones."""
    k = koine.Context("CPU")
    a = definite("large", (128, 128))
    np.testing.assert_allclose(k.array(a).inv().numpy() @ a, np.eye(128), atol=1e-8)
    l = k.array(a).cholesky(0).numpy()
    np.testing.assert_allclose(l @ l.T, a, rtol=1e-10, atol=1e-9)
    k.close()
