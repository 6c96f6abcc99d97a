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


def test_three_instructions(koine, tmp_path):
    p = tmp_path / "p.kn"
    p.write_text('koine 1 tensor\n%x = param "x" : f32 [64, 4096]\n%m = reduce max %x axes=(1)\nout "m" = %m\n')
    code = koine("compile", p, "--target", "x86", env={"KN_CPU": "avx512", "KN_THREADS": 1}).stdout
    code = "\n".join(line.split("#")[0] for line in code.splitlines())
    row = code[code.index(".L3:"):code.index("jl .L3")]
    assert row.count("vrangeps") == row.count("vcmpps") == row.count("vblendmps") == row.count("vmovups") > 1
    assert "vmaxps" not in row and "vsubps" not in row
