"""What random programs found in C text: each is what the interpreter makes of it."""
import re

import pytest

ROUNDED_ONCE = """koine 1 tensor
%a = param "a" : f32 []
%b = cast %a : bf16 []
%c = mulacc %b 1.5 1.0 : bf16 []
%y = cast %c : f32 []
out "y" = %y
"""
# An index that is a shift, where lanes are left out.
SHIFTED = """koine 1 tensor
%1 = param "x" : f32 [1, 8]
%2 = expand %1 (3, 8)
%3 = reshape %2 (24)
%4 = shrink %3 (0) (18)
%5 = reshape %4 (2, 9)
%6 = shrink %5 (0, 0) (2, 7)
%7 = permute %6 order=(1, 0)
%8 = bitcast %7 : f8e5m2 [7, 8]
%9 = cast %8 : f32 [7, 8]
%10 = reduce add %9 axes=(0, 1)
out "y" = %10
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_narrow_multiply_add_rounds_once(koine, tmp_path, sign):
    """1.5 a lies half way between two bf16, and 1 beyond it, which a double does not show."""
    p = tmp_path / "p.kn"
    p.write_text(ROUNDED_ONCE)
    for env in ({"KN_CODE": "c"}, {"KN_CODE": "x86"}, {"KN_DEVICE": "INTERP"}):
        out = koine("run", p, "--in", f"a={sign * 1.0234375 * 2**60}", env=env).stdout
        assert float(re.findall(r"\[?(-?[\d.]+e[+]\d+)", out)[-1]) == pytest.approx(sign * (197 if sign > 0 else 196) / 128 * 2**60, rel=1e-6)


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
def test_where_a_vector_begins_may_be_a_shift(koine, tmp_path, level):
    p = tmp_path / "p.kn"
    p.write_text(SHIFTED)
    outs = [koine("run", p, env=env).stdout for env in ({"KN_CODE": "c", "KN_CPU": level}, {"KN_DEVICE": "INTERP"})]
    assert outs[0] == outs[1] and "y" in outs[0]
