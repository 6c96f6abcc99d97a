"""Distributions: a million numbers of each pass Kolmogorov and Smirnov's test, or chi-square where they are whole. Seeds are fixed: a test
that passes once passes always."""
import koine
import numpy as np
import pytest

stats = pytest.importorskip("scipy.stats")
N = 1_000_000
INF = float("inf")


@pytest.fixture
def cpu():
    k = koine.Context("CPU")
    yield k
    k.close()


def truncated(lo, hi):
    """scipy's, which takes seconds, as ratios of small probabilities."""
    ndtr = stats.norm.cdf
    if lo > 0:
        return lambda x: 1 - truncated(-hi, -lo)(-x)
    return lambda x: (ndtr(x) - ndtr(lo)) / (ndtr(hi) - ndtr(lo))


CONTINUOUS = {
    "uniform": ("uniform", (-1, 3), stats.uniform(-1, 4).cdf),
    "normal": ("normal", (1, 2), stats.norm(1, 2).cdf),
    "exponential": ("exponential", (2,), stats.expon(0, 2).cdf),
    "laplace": ("laplace", (1, 2), stats.laplace(1, 2).cdf),
    "gumbel": ("gumbel", (-1, 0.5), stats.gumbel_r(-1, 0.5).cdf),
    "logistic": ("logistic", (1, 2), stats.logistic(1, 2).cdf),
    "cauchy": ("cauchy", (1, 2), stats.cauchy(1, 2).cdf),
    "truncated normal": ("truncated_normal", (-2, 1), truncated(-2, 1)),
    "one side": ("truncated_normal", (0.5, INF), truncated(0.5, INF)),
    "upper tail": ("truncated_normal", (20, 21), truncated(20, 21)),
    "lower tail": ("truncated_normal", (-9, -8.5), truncated(-9, -8.5)),
    "no bounds": ("truncated_normal", (-INF, INF), stats.norm().cdf),
}


@pytest.mark.parametrize("dtype, keyed", [("f32", True), ("f64", True), ("f32", False)])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(cpu, name, dtype, keyed):
    """uniform, normal, exponential, laplace, gumbel, logistic, cauchy, truncated_normal"""
    fn, args, law = CONTINUOUS[name]
    cpu.manual_seed(4)
    v = getattr(cpu, fn)((N,), *args, dtype, cpu.key(3) if keyed else None)
    assert v.dtype == dtype
    assert stats.kstest(v.numpy(), law).pvalue > 1e-3


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_same_in_every_dtype(k, name):
    """exponential, laplace, gumbel, logistic, cauchy, truncated_normal: f16 and bf16 are what they are computed in, rounded; f64 has more bits."""
    fn, args, _ = CONTINUOUS[name]
    inner = "f64" if fn == "truncated_normal" else "f32"
    draw = lambda dtype: getattr(k, fn)((500,), *args, dtype, k.key(8))
    if fn != "uniform":
        for t in ("f16", "bf16", "f8e5m2"):
            np.testing.assert_array_equal(draw(t).cast("f32").numpy(), draw(inner).cast(t).cast("f32").numpy())
    if fn in ("normal", "truncated_normal"):
        np.testing.assert_allclose(draw("f64").numpy(), draw("f32").numpy(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
def test_edges(k, shape, dtype):
    """What has no spread is its place: uniform, normal, exponential, laplace, gumbel, logistic, cauchy, truncated_normal."""
    key = k.key(1)
    for fn, args, place in (("uniform", (2, 2), 2), ("normal", (3, 0), 3), ("exponential", (0,), 0), ("laplace", (1, 0), 1), ("gumbel", (1, 0), 1),
                            ("logistic", (-1, 0), -1), ("cauchy", (0.5, 0), 0.5), ("truncated_normal", (1.5, 1.5), 1.5), ("truncated_normal", (50, 60), 50)):
        v = getattr(k, fn)(shape, *args, dtype, key)
        assert v.dtype == dtype and v.shape == shape
        np.testing.assert_array_equal(v.cast("f64").numpy(), np.full(shape, place, np.float64))


def chi_square(counts, p):
    """counts of each outcome, which have probabilities p"""
    counts, p = np.asarray(counts, np.float64).ravel(), np.asarray(p, np.float64).ravel()
    assert counts[p == 0].sum() == 0
    counts, p = counts[p > 0], p[p > 0] / p.sum()
    return stats.chisquare(counts, p * counts.sum()).pvalue


@pytest.mark.parametrize("lo, hi, dtype", [(-3, 9, "i32"), (0, 256, "u8"), (5, 6, "i64"), (0, 3 * 2**40, "i64")])
def test_randint(cpu, lo, hi, dtype):
    v = cpu.randint((N,), lo, hi, dtype, cpu.key(2)).numpy().astype(np.int64)
    assert v.min() >= lo and v.max() < hi
    bins = min(hi - lo, 300)
    assert bins == 1 or chi_square(np.bincount((v - lo) * bins // (hi - lo), minlength=bins), np.full(bins, 1 / bins)) > 1e-3


@pytest.mark.parametrize("p", [0.0, 0.001, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_bernoulli(cpu, dtype, p):
    v = cpu.full((N,), p, dtype).bernoulli(cpu.key(2))
    assert v.dtype == dtype
    p = float(koine.NUMPY[dtype](p))
    ones = int(v.numpy().astype(np.float64).sum())
    assert chi_square([N - ones, ones], [1 - p, p]) > 1e-3 if 0 < p < 1 else ones == p * N


@pytest.mark.parametrize("n", [0, 1, 2, 500, 513])
def test_permutation(k, n):
    """permutation and shuffle: each place once; rows alike; gradients go where values came from."""
    key = k.key(7)
    at = k.permutation(n, key)
    assert at.dtype == "i64" and at.shape == (n,)
    np.testing.assert_array_equal(np.sort(at.numpy()), np.arange(n))
    x = k.arange(0, 3 * n, 1, "f32").reshape((n, 3))
    np.testing.assert_array_equal(x.shuffle(0, key).numpy(), x.numpy()[at.numpy()])
    np.testing.assert_array_equal(x.mT().shuffle(-1, key).numpy(), x.numpy()[at.numpy()].T)
    if n > 1:
        g = x.shuffle(0, key).mul(x).sum().grad1(x).numpy()
        inverse = np.argsort(at.numpy())
        np.testing.assert_array_equal(g, x.numpy()[at.numpy()] + x.numpy()[inverse])
        assert n < 500 or not np.array_equal(at.numpy(), np.arange(n))


def test_permutation_is_uniform(cpu):
    """All 24 orders of four, and a long one's places."""
    order = cpu.random_bits((N // 8, 4), "u64", cpu.key(5)).numpy()  # what a permutation sorts
    ranks = np.argsort(order, axis=1, kind="stable") @ [64, 16, 4, 1]
    assert chi_square(np.unique(ranks, return_counts=True)[1], np.full(24, 1 / 24)) > 1e-3
    at = cpu.permutation(N, cpu.key(5)).numpy()
    assert stats.kstest(at[: N // 2] / N, "uniform").pvalue > 1e-3 and abs(np.corrcoef(at, np.arange(N))[0, 1]) < 4 / N**0.5
    assert chi_square(np.bincount((at[1:] > at[:-1]).astype(int)), [0.5, 0.5]) > 1e-3
    np.testing.assert_array_equal(np.sort(at), np.arange(N))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_categorical(cpu, dtype, axis):
    logits = np.array([0.5, -1, -INF, 2, 0], koine.NUMPY[dtype])
    p = np.exp(logits.astype(np.float64))
    x = cpu.array(logits).reshape((5, 1) if axis == 0 else (1, 5)).broadcast_to((5, N // 5) if axis == 0 else (N // 5, 5))
    v = x.categorical(axis, cpu.key(9))
    assert v.dtype == "i64" and v.shape == (N // 5,)
    assert chi_square(np.bincount(v.numpy(), minlength=5), p / p.sum()) > 1e-3


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32"])
def test_multinomial(cpu, dtype):
    p = np.array([1, 0, 5, 2, 2], koine.NUMPY[dtype])
    v = cpu.array(p).multinomial(N, 1, cpu.key(9))
    assert v.dtype == "i64" and v.shape == (N,)
    assert chi_square(np.bincount(v.numpy(), minlength=5), p / p.sum()) > 1e-3
    rows = N // 8  # without replacement: the first and the second, in order
    v = cpu.array(p).broadcast_to((rows, 5)).multinomial(2, 0, cpu.key(9)).numpy()
    q = p.astype(np.float64) / p.sum()
    pairs = q[:, None] * q / (1 - q[:, None])
    np.fill_diagonal(pairs, 0)
    assert chi_square(np.bincount(v[:, 0] * 5 + v[:, 1], minlength=25), pairs) > 1e-3
    all_of_them = cpu.array(p).multinomial(5, 0, cpu.key(1)).numpy()
    assert sorted(all_of_them) == [0, 1, 2, 3, 4] and all_of_them[4] == 1


@pytest.mark.parametrize("shape, n, replace", [((5,), 0, 1), ((3, 5), 0, 0), ((0, 5), 2, 1), ((2, 3, 4), 7, 1), ((2, 3, 4), 4, 0), ((1,), 3, 1)])
def test_choices_of_shapes(k, shape, n, replace):
    """multinomial and categorical"""
    v = k.ones(shape, "f32").multinomial(n, replace, k.key(1))
    assert v.shape == shape[:-1] + (n,) and (v.numpy() < shape[-1]).all() and (v.numpy() >= 0).all()
    assert replace or all(len(set(row)) == n for row in v.numpy().reshape(-1, max(n, 1)))
    assert k.ones(shape, "f32").categorical(-1, k.key(1)).shape == shape[:-1]
