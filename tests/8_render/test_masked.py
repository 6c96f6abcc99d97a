"""Comparisons under a mask: a truth and'ed with one about data is one instruction, and means what the interpreter says."""
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


@pytest.mark.parametrize("dtype, size", (("f32", 4), ("f64", 8)))
@pytest.mark.parametrize("n", (256, 37))
def test_larger_unless_it_is_no_number(koine, tmp_path, dtype, size, n):
    some = np.array([np.nan, -np.nan, -np.inf, np.inf, -0.0, 0.0, 1.5, -2.0], f"f{size}")
    m, x = np.repeat(some, 32)[:n], np.tile(some, 32)[:n]
    p, env = tmp_path / "p.kn", {"KN_CPU": "avx512", "KN_THREADS": 1}
    p.write_text(PROGRAM.format(dtype=dtype, n=n))
    np.save(tmp_path / "m.npy", m)
    np.save(tmp_path / "x.npy", x)
    koine("run", p, "--in", f"m={tmp_path}/m.npy", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", env=env)
    want = np.where(~(x <= m) & (m == m), x, m)
    assert np.load(tmp_path / "y.npy").tobytes() == want.tobytes()
    code = koine("compile", p, "--target", "x86", env=env).stdout
    assert re.search(r"vcmpp[sd] k\d\{k\d\}", code) and "kand" not in code
