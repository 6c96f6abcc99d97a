"""max of floats with AVX-512: three instructions, NaN where one is, +0 of zeros of both signs, whichever stands first."""
import itertools

import numpy as np
import pytest

SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-45, -1e-45]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values(koine, tmp_path, dtype):
    kind = np.float32 if dtype == "f32" else np.float64
    x, y = (np.array(v, kind) for v in zip(*itertools.product(SPECIAL, SPECIAL)))
    p = tmp_path / "p.kn"
    p.write_text(f'koine 1 tensor\n%x = param "x" : {dtype} [100]\n%y = param "y" : {dtype} [100]\n%m = max %x %y\nout "m" = %m\n')
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "y.npy", y)
    koine("run", p, "--in", f"x={tmp_path}/x.npy", "--in", f"y={tmp_path}/y.npy", "--out", f"m={tmp_path}/m.npy", env={"KN_CODE": "x86"})
    m, want = np.load(tmp_path / "m.npy"), np.maximum(x, y)
    assert (np.isnan(m) == np.isnan(want)).all()
    least = np.signbit(x) & np.signbit(y)  # of two zeros -0 only if both are
    here = ~np.isnan(want)
    assert (m[here] == want[here]).all() and (np.signbit(m[here & (want == 0)]) == least[here & (want == 0)]).all()


def loop_of(koine, tmp_path, dtype, axis):
    """Mnemonics of the innermost loop of the maxima of rows or columns."""
    p = tmp_path / "p.kn"
    p.write_text(f'koine 1 tensor\n%x = param "x" : {dtype} [512, 4096]\n%m = reduce max %x axes=({axis})\nout "m" = %m\n')
    code = koine("compile", p, "--target", "x86", env={"KN_CPU": "avx512", "KN_THREADS": 1}).stdout
    body, most = [], []
    for word in (line.split()[0] for line in code.splitlines() if line.split("#")[0].strip()):
        body = [] if word.endswith(":") else body + [word]
        if word == "jl":
            most, body = max(most, body, key=lambda b: sum(w.startswith("vrange") for w in b)), []
    return most


@pytest.mark.parametrize("dtype, suffix", [("f32", "ps"), ("f64", "pd")])
def test_nans_are_looked_for_together(koine, tmp_path, dtype, suffix):
    row, column = (loop_of(koine, tmp_path, dtype, axis) for axis in (1, 0))
    names = [f"vrange{suffix}", f"vcmp{suffix}", f"vblendm{suffix}"]
    assert [row.count(n) for n in names] == [4, 3, 2]
    ranges, compared, chosen = (column.count(n) for n in names)
    assert ranges and ranges == 4 * chosen and 8 * compared == 5 * ranges
    assert not [w for w in row + column if w.startswith(("vmax", "vsub"))]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_one_of_many(koine, tmp_path, dtype, axis):
    """One special value at each place of a vector, a step and a group of rows."""
    n, kind = 64, np.float32 if dtype == "f32" else np.float64
    for special in SPECIAL:
        x = np.full((4 * n, 4 * n), -2.0, kind) if special != special or special > -2 else np.full((4 * n, 4 * n), -np.inf, kind)
        x[np.arange(4 * n), np.arange(4 * n)] = special
        p = tmp_path / "p.kn"
        p.write_text(f'koine 1 tensor\n%x = param "x" : {dtype} [{4 * n}, {4 * n}]\n%m = reduce max %x axes=({axis})\nout "m" = %m\n')
        np.save(tmp_path / "x.npy", x)
        koine("run", p, "--in", f"x={tmp_path}/x.npy", "--out", f"m={tmp_path}/m.npy", env={"KN_CODE": "x86"})
        m, want = np.load(tmp_path / "m.npy").reshape(-1), np.max(x, axis=axis)
        assert np.array_equal(m, want, equal_nan=True) and (np.signbit(m) == np.signbit(want))[~np.isnan(want)].all()
