"""Comparisons under a mask: a truth and'ed with one about data, or about an index in lanes, is one instruction, and means what the interpreter says."""
import re

import numpy as np
import pytest

PROGRAM = """koine 1 tensor
%m = param "m" : {dtype} [{n}]
%x = param "x" : {dtype} [{n}]
%le = le %x %m : bool [{n}]
%more = not %le : bool [{n}]
%is = eq %m %m : bool [{n}]
%new = and %more %is : bool [{n}]
%y = where %new %x %m : {dtype} [{n}]
out "y" = %y
"""


@pytest.mark.runs
@pytest.mark.parametrize("level", ("avx512", "avx2", "sse2"))
@pytest.mark.parametrize("dtype, size", (("f32", 4), ("f64", 8)))
@pytest.mark.parametrize("n", (256, 37))
def test_larger_unless_it_is_no_number(koine, tmp_path, level, dtype, size, n):
    some = np.array([np.nan, -np.nan, -np.inf, np.inf, -0.0, 0.0, 1.5, -2.0], f"f{size}")
    m, x = np.repeat(some, 32)[:n], np.tile(some, 32)[:n]
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(PROGRAM.format(dtype=dtype, n=n))
    np.save(tmp_path / "m.npy", m)
    np.save(tmp_path / "x.npy", x)
    koine("run", p, "--in", f"m={tmp_path}/m.npy", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", env=env)
    want = np.where(~(x <= m) & (m == m), x, m)
    assert np.load(tmp_path / "y.npy").tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ("f32", "f64"))
@pytest.mark.parametrize("n", (256, 37))
def test_it_is_one_comparison(koine, dtype, n):
    env = {"KN_CPU": "avx512", "KN_THREADS": 1}
    code = koine("compile", "-", "--target", "x86", env=env, stdin=PROGRAM.format(dtype=dtype, n=n)).stdout
    assert re.search(r"vcmpp[sd] k\d\{k\d\}", code) and "kand" not in code


def test_conditions_of_a_window_are_a_comparison_each(koine):
    """Two for each of three vectors where the window's rows are counted, under the mask of what its columns say, known outside: no lanes
    are added to, no masks joined; in the nest of the last vector, which lies in one row, what is known outside the innermost loop is. Of the
    batch norm behind them an element has a product and an addition. 40 filters are no whole panels, so the image is read in place."""
    text = re.sub(r"\b64\b", "40", koine("bench", "text", "conv_bn").stdout.replace("@NULL", "@CPU"))
    code = koine("compile", "-", "--target", "x86", env={"KN_CPU": "avx512", "KN_THREADS": 1}, stdin=text).stdout
    lines = [line.strip() for line in code.splitlines() if not line.lstrip().startswith("#")]
    first, last = (f(i for i, line in enumerate(lines) if line.startswith("vfmadd231ps zmm")) for f in (min, max))
    labels = [i for i in range(first) if lines[i].endswith(":")]
    window = "\n".join(lines[labels[-2]:labels[-1]])
    assert len(re.findall(r"vpcmpd k\d\{k\d\}", window)) == 6 and "vpadd" not in window and "kand" not in window, window
    assert not [item for item in code.split("\n# %") if "kand" in item and "innermost" in item]
    behind = "\n".join(lines[last:])
    assert len(re.findall(r"vmulps zmm", behind)) == len(re.findall(r"vmovups ZMM\S+ \S+ \[r[^s]", behind)) and "vsubps zmm" not in behind, behind
