"""Distributions drawn by rejection with a fixed number of tries: gamma and what is made of it, poisson, binomial. A million numbers of each
pass Kolmogorov and Smirnov's test, or chi-square where they are whole. Seeds are fixed."""
import koine
import numpy as np
import pytest

stats = pytest.importorskip("scipy.stats")
N = 1_000_000
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def cpu():
    k = koine.Context("CPU")
    yield k
    k.close()


def many(k, v, dtype="f64"):
    return k.full((N,), v, dtype)


LAWS = {"gamma": stats.gamma, "chi_square": stats.chi2, "student_t": stats.t, "beta": stats.beta}
CONTINUOUS = [("gamma", a) for a in ((0.1,), (0.7,), (1,), (2.5,), (30,), (1e5,))] + [("chi_square", (v,)) for v in (0.5, 1, 3, 100)] + \
             [("student_t", (v,)) for v in (0.5, 1, 4, 1000)] + [("beta", ab) for ab in ((0.4, 0.3), (2, 3), (0.5, 7), (200, 100))]


@pytest.mark.parametrize("fn, p", CONTINUOUS)
def test_continuous(cpu, fn, p):
    v = getattr(many(cpu, p[0]), fn)(*[many(cpu, b) for b in p[1:]], cpu.key(6)).numpy()
    assert stats.kstest(v, LAWS[fn](*p).cdf).pvalue > 1e-3


def test_parameters_of_data(cpu):
    """gamma, student_t, beta, chi_square: each element has parameters of its own; what lies below a number is uniform."""
    a, b = np.random.default_rng(0).uniform(0.3, 20, (2, N))
    for fn, args in (("gamma", (a,)), ("student_t", (a,)), ("chi_square", (a,)), ("beta", (a, b))):
        v = getattr(cpu.array(args[0]), fn)(*[cpu.array(x) for x in args[1:]], cpu.key(2)).numpy()
        assert stats.kstest(LAWS[fn].cdf(v, *args), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("a", [(1, 2, 3), (0.3, 0.3, 5), (50, 20, 1)])
def test_dirichlet(cpu, a):
    """Each has a beta distribution, and they add up to 1."""
    v = cpu.array(np.array(a, np.float64)).broadcast_to((N // 4, 3)).dirichlet(cpu.key(6)).numpy()
    np.testing.assert_allclose(v.sum(axis=1), 1, rtol=1e-14)
    for i in range(3):
        assert stats.kstest(v[:, i], stats.beta(a[i], sum(a) - a[i]).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(v[:, 0], v[:, 1])[0, 1] + (a[0] * a[1] / ((sum(a) - a[0]) * (sum(a) - a[1]))) ** 0.5) < 0.01


COUNTS = [("poisson", p) for p in ((0.1,), (2,), (9.9,), (10,), (33.3,), (1000,), (1e6,))] + \
         [("binomial", p) for p in ((10, 0.3), (1, 0.5), (100, 0.05), (100, 0.1), (40, 0.7), (1000, 0.5), (50, 0.999), (10**7, 0.4))]


@pytest.mark.parametrize("fn, p", COUNTS)
def test_counts(cpu, fn, p):
    law = stats.poisson(*p) if fn == "poisson" else stats.binom(*p)
    v = getattr(many(cpu, p[0]), fn)(*[many(cpu, b) for b in p[1:]], cpu.key(6)).numpy()
    assert (v == np.floor(v)).all() and v.min() >= 0
    edges = np.unique(np.linspace(law.ppf(1e-3), law.ppf(1 - 1e-3), 100).astype(int))  # bins from each to the next
    share = np.diff(np.concatenate([[0], law.cdf(edges - 1), [1]])) * N
    there = np.bincount(np.searchsorted(edges, v, side="right"), minlength=len(edges) + 1)
    assert there[share == 0].sum() == 0
    few = share < 5
    assert stats.chisquare(np.append(there[~few], there[few].sum() + 1e-9), np.append(share[~few], share[few].sum() + 1e-9)).pvalue > 1e-3


def of(k, fn, a, b, key):
    """fn of as many of the parameters as it takes."""
    return getattr(a, fn)(*([b] if fn in ("beta", "binomial") else []), key)


FUNCTIONS = ["gamma", "chi_square", "student_t", "beta", "dirichlet", "poisson", "binomial"]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_the_same_everywhere(levels, fn):
    """Any device, level of it and number of threads, whatever was drawn before; a seed, too. A sum (of dirichlet) is rounded as sums are."""
    r, want = np.random.default_rng(1), {}
    a, b = r.uniform(0, 4, (20, 7)) ** 3, r.uniform(0, 1, (20, 7))
    for device, threads, level in (("INTERP", 1, ""), ("CPU", 1, ""), ("CPU", 1, "sse2"), ("CPU", 2, levels[:2][-1]), ("CPU", 3, "")):
        k = koine.Context(device)
        koine.load().kn_set(k.h, b"KN_THREADS", b"%d" % threads)
        koine.load().kn_set(k.h, b"KN_CPU", level.encode())
        if threads > 1:
            of(k, fn, k.array(a), k.array(b), None).numpy()
        got = {"key": of(k, fn, k.array(a), k.array(b), k.key(5)).numpy(), "other": of(k, fn, k.array(a), k.array(b), k.key(6)).numpy()}
        k.manual_seed(9)
        got["seed"] = of(k, fn, k.array(a), k.array(b), None).numpy()
        got["next"] = of(k, fn, k.array(a), k.array(b), None).numpy()
        k.close()
        want = want or got
        for name, v in got.items():
            np.testing.assert_allclose(v, want[name], rtol=1e-15 if fn == "dirichlet" else 0)
        for x, y in (("key", "other"), ("seed", "next"), ("key", "seed")):
            assert not np.array_equal(got[x], got[y])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i32"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_dtypes(k, fn, dtype):
    """Computed in f64 and rounded: gamma, chi_square, student_t, beta, dirichlet, poisson, binomial. Integers give f32."""
    r = np.random.default_rng(1)
    a, b = k.array(r.uniform(1, 9, (10, 7))).cast(dtype), k.array(r.uniform(0.1, 1, 7)).cast("f32" if dtype == "i32" else dtype)
    got = of(k, fn, a, b, k.key(5))
    inner = of(k, fn, a.cast("f64"), b.cast("f64"), k.key(5))
    assert got.dtype == ("f32" if dtype == "i32" else dtype) and got.shape == (10, 7)
    np.testing.assert_array_equal(got.cast("f32").numpy(), inner.cast(got.dtype).cast("f32").numpy())


def test_edges(k):
    """What parameters at the ends of their ranges give, and NaN beyond: gamma, chi_square, student_t, beta, dirichlet, poisson, binomial"""
    f, key = lambda *v: k.array(np.array(v, np.float64)), k.key(3)
    same = lambda x, v: np.testing.assert_array_equal(x.numpy(), np.array(v, np.float64))
    same(f(0, -1, NAN, 1e-300).gamma(key), [0, NAN, NAN, 0])
    same(f(0, -1, NAN).chi_square(key), [0, NAN, NAN])
    same(f(-1, NAN).student_t(key), [NAN, NAN])
    same(f(0, 1, 0, -1, 1).beta(f(1, 0, 0, 1, NAN), key), [0, 1, NAN, NAN, NAN])
    same(f(0, 1, 0).dirichlet(key), [0, 1, 0])
    same(f(0, -1, NAN, 1e-300).poisson(key), [0, NAN, NAN, 0])
    same(f(0, 5, 5, -1, 5, 5, 100, 3.7).binomial(f(0.5, 0, 1, 0.5, 1.5, NAN, 1, 1), key), [0, 0, 5, NAN, NAN, NAN, 100, 3])
    near = k.array(np.full((50, 2), 1e-4)).dirichlet(key).numpy()
    assert np.isfinite(near).all() and ((near == 0) | (near == 1)).mean() > 0.9  # small parameters underflow nothing to NaN
    big = f(1e12, 1e8).gamma(key).numpy()
    np.testing.assert_allclose(big, [1e12, 1e8], rtol=1e-3)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_shapes_and_gradients(k, fn, shape):
    """Nothing flows back into parameters."""
    if fn == "dirichlet" and not shape:
        return
    x = k.full(shape, 0.5, "f32")
    v = of(k, fn, x, k.full((), 0.5, "f32"), k.key(1))
    assert v.shape == shape and v.numpy().shape == shape
    np.testing.assert_array_equal(v.sum().grad1(x).numpy(), np.zeros(shape))
    if fn in ("beta", "binomial"):
        v = of(k, fn, k.full(shape + (1,), 2, "f32"), k.full((5,), 0.5, "f64"), k.key(1))
        assert v.shape == shape + (5,) and v.dtype == "f64" and v.numpy().shape == v.shape
