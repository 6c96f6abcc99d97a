"""With AVX-512 e^x that is only added to sums that a loop carries, lane by lane, is no value of its own (added32, math32.kr): by how much it is off, what its ends
are, that threads have the same bits, and what is left alone."""
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


# What few threads add up row by row, in memory, or in vectors beside conditions, others do in a loop of their own: (shape, order of axes, axis of the sum, less the
# maximum, padded before and to).
THREADS = [((2, 16), (1, 0), 1, False, None), ((65, 32, 24), (0, 1, 2), 0, False, ((0, 1, 3), (70, 33, 28))), ((8, 24), (1, 0), 1, True, None),
           ((2, 65, 65), (0, 1, 2), 0, True, None), ((33, 257), (0, 1), 1, True, ((1, 0), (37, 257))), ((64, 1000), (0, 1), 1, False, None)]


def program(shape, order, axis, less, pad):
    def text(values):
        return ", ".join(map(str, values))
    dims = [shape[k] for k in order]
    lines = ["koine 1 tensor", f'%x = param "x" : f32 [{text(shape)}]', f"%v = permute %x order=({text(order)})"]
    if less:
        lines += [f"%m = reduce max %v axes=({axis})", f"%b = expand %m ({text(dims)})", "%d = sub %v %b"]
    lines += [f"%e = exp {'%d' if less else '%v'}"]
    if pad:
        lines += [f"%p = pad %e ({text(pad[0])}) ({text(pad[1])})"]
        dims = pad[1]
    lines += [f"%s = reduce add {'%p' if pad else '%e'} axes=({axis})", f"%y = expand %s ({text(dims)})", 'out "y" = %y']
    return "\n".join(lines) + "\n"


@pytest.mark.runs("avx512")
@pytest.mark.parametrize("shape, order, axis, less, pad", THREADS)
def test_threads_have_the_same_bits(koine, tmp_path, shape, order, axis, less, pad):
    np.save(tmp_path / "x.npy", np.random.default_rng(1).uniform(-4, 4, shape).astype(np.float32))
    made = []
    for threads in (1, 2, 3, 5):
        koine("run", "-", "--in", f"x={tmp_path / 'x.npy'}", "--out", f"y={tmp_path / 'y.npy'}", stdin=program(shape, order, axis, less, pad),
              env={"KN_CPU": "avx512", "KN_THREADS": str(threads), "KN_ALONE": "1", "KN_STREAM": "1"})
        made.append(np.load(tmp_path / "y.npy").view(np.int32))
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)


def test_which_sums(koine):
    """Those with lanes, under conditions or not: a column's is plain, which rows may be added to one by one."""
    assert "added32" in sets(koine, program((64, 1000), (0, 1), 1, False, None), "avx512")
    assert "added32" in sets(koine, program((64, 1000), (0, 1), 1, False, ((1, 0), (66, 1000))), "avx512")
    assert "added32" not in sets(koine, program((1000, 64), (0, 1), 0, False, None), "avx512")
    assert "added32" not in sets(koine, program((2, 16), (1, 0), 1, False, None), "avx512")
