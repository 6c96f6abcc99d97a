"""Loops of long chains in two, below AVX-512 (5_select/chains.c): how many loops there are, and that values stay what they were, to the bit."""
import math
import re

import numpy as np
import pytest

from on_arrays import run, text

GELU = ['%a = mul %x 0.70710677', '%b = erf %a', '%c = add %b 1.0', '%d = mul %x 0.5', '%y = mul %d %c']
TWICE = ['%a = tanh %x', '%y = erf %a']
TANH = ['%y = tanh %x']
LIGHT = ['%y = mul %x 0.5']


def ends(koine, tmp_path, lines, level, shape=(8, 4096)):
    """Loops of the kernel that are closed."""
    p = tmp_path / "p.kn"
    p.write_text(text(lines, shape))
    out = koine("compile", p, "--to", "select", env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": "1"}).stdout
    return len(re.findall(r"= end ", out))


@pytest.mark.parametrize("lines, least", [(GELU, 2), (TWICE, 3), (TANH, 2)])
def test_is_cut(koine, tmp_path, lines, least):
    assert ends(koine, tmp_path, lines, "avx2") >= least
    assert ends(koine, tmp_path, lines, "sse2") >= least
    assert ends(koine, tmp_path, lines, "avx512") == 1


def test_short_chains_stay(koine, tmp_path):
    assert ends(koine, tmp_path, LIGHT, "avx2") == 1


WHOLE = 16 * 16411  # a prime number of iterations makes no blocks, and is too much to keep: one loop


@pytest.mark.runs
@pytest.mark.parametrize("lines", [GELU, TWICE, TANH])
@pytest.mark.parametrize("level", ["avx2", "sse2"])
@pytest.mark.parametrize("columns", [64, 1000, 1024, 4096, 4099])
def test_same_bits(koine, tmp_path, lines, level, columns):
    x = (np.random.default_rng(columns).standard_normal((5, columns)) * 4).astype(np.float32)
    x.ravel()[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42]
    one = np.zeros(WHOLE, np.float32)
    one[:x.size] = x.ravel()
    assert ends(koine, tmp_path, lines, level, one.shape) == 1
    got, want = run(koine, tmp_path, lines, x, level), run(koine, tmp_path, lines, one, level)[:x.size].reshape(x.shape)
    assert (got.view(np.uint32) == want.view(np.uint32))[~np.isnan(want)].all() and (np.isnan(got) == np.isnan(want)).all()


@pytest.mark.runs("avx2")
def test_sums_of_chains(koine, tmp_path):
    x = np.random.default_rng(1).standard_normal((5, 4096)).astype(np.float32)
    want = np.vectorize(math.erf)(x.astype(np.float64)).sum(1)
    got = run(koine, tmp_path, ["%e = erf %x", "%y = reduce add %e axes=(1)"], x, "avx2")
    np.testing.assert_allclose(got.ravel(), want, atol=2e-3)


@pytest.mark.runs("avx2")
def test_one_value_for_all_lanes_is_not_kept(koine, tmp_path):
    """A row's sum, which each lane of the row reads: of what is kept each lane has its own."""
    lines = ["%m = reduce max %x axes=(1)", "%mx = expand %m (2048, 8)", "%d = sub %x %mx", "%e = exp %d", "%s = reduce add %e axes=(1)",
             "%i = recip %s", "%ix = expand %i (2048, 8)", "%p = mul %e %ix", "%y = erf %p"]
    x = np.random.default_rng(2).standard_normal((2048, 8)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(koine, tmp_path, lines, x, "avx2"), np.vectorize(math.erf)(e / e.sum(1, keepdims=True)), atol=1e-6)
