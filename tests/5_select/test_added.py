"""With AVX-512 e^x that is only added to sums that a loop carries, lane by lane, is no value of its own (added32, math32.kr): by how much it is off, what its ends
are, and what is left alone."""
import re

import numpy as np
import pytest

ROWS = """koine 1 tensor
%x = param "x" : f32 [{m}, {n}]
%e = exp %x
%s = reduce add %e axes=(1)
%y = reshape %s ({m})
out "y" = %y
"""
SOFTMAX = ROWS.replace('out "y" = %y', '%r = expand %s ({m}, {n})\n%q = div %e %r\nout "q" = %q')


def sets(koine, text, level):
    out = koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": level, "KN_THREADS": "1"}).stdout
    return set(re.findall(r"\b(added32|scale32|math32)\.(?!kr)", out))


def sums(koine, tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    koine("run", "-", "--in", f"x={tmp_path / 'x.npy'}", "--out", f"y={tmp_path / 'y.npy'}", stdin=ROWS.format(m=x.shape[0], n=x.shape[1]),
          env={"KN_CPU": "avx512", "KN_THREADS": "1"})
    return np.load(tmp_path / "y.npy")


def test_what_is_only_added(koine):
    text = ROWS.format(m=64, n=1024)
    assert sets(koine, text, "avx512") >= {"added32"} and "scale32" not in sets(koine, text, "avx512")
    assert "added32" not in sets(koine, text, "avx2")
    assert "added32" not in sets(koine, text.replace("f32", "f64"), "avx512")
    assert "added32" not in sets(koine, SOFTMAX.format(m=64, n=1024), "avx512")  # what else reads it has it already


@pytest.mark.runs("avx512")
def test_how_far_it_is_off(koine, tmp_path):
    """Each row has one power that counts: the sum is that, rounded twice."""
    rng = np.random.default_rng(3)
    x = np.full((4096, 1024), -np.inf, np.float32)
    power = rng.uniform(-104, 88.72, 4096).astype(np.float32)
    x[np.arange(4096), rng.integers(0, 1024, 4096)] = power
    want = np.exp(power.astype(np.float64))
    unit = np.maximum(2.0 ** (np.floor(np.log2(want)) - 23), 2.0**-149)
    assert (np.abs(sums(koine, tmp_path, x) - want) / unit).max() < 2.6


@pytest.mark.runs("avx512")
@pytest.mark.parametrize("power, want", [(88.7228, np.exp(np.float64(np.float32(88.7228)))), (88.71, np.exp(np.float64(np.float32(88.71)))), (88.73, np.inf), (np.inf, np.inf), (3e38, np.inf), (1e9, np.inf),
                                         (-np.inf, 0.0), (-3e38, 0.0), (-1e6, 0.0), (np.nan, np.nan), (0.0, 1.0), (-0.0, 1.0)])
def test_its_ends(koine, tmp_path, power, want):
    """T 2^n is infinite where e^x is not yet: half of T is taken."""
    x = np.full((16, 1024), -np.inf, np.float32)
    x[:, 517] = power
    np.testing.assert_allclose(sums(koine, tmp_path, x), np.full(16, want), rtol=3e-7)


def test_which_sums(koine):
    """Those with lanes, under a condition or not: a column's is plain, which rows may be added to one by one (3_optimize/test_threaded_sums.py)."""
    rows = ROWS.format(m=64, n=1000)
    padded = rows.replace("%s = reduce add %e", "%p = pad %e (1, 0) (66, 1000)\n%s = reduce add %p").replace("%s (64)", "%s (66)")
    columns = rows.replace("axes=(1)", "axes=(0)").replace("%s (64)", "%s (1000)")
    assert "added32" in sets(koine, rows, "avx512") and "added32" in sets(koine, padded, "avx512")
    assert "added32" not in sets(koine, columns, "avx512")
