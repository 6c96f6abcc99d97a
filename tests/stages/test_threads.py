"""The same bits whatever the number of threads, for whole programs large enough to be shared out: the parts that an uneven
split leaves over must add up in the same order."""
import json

import pytest

EXP = """koine 1 tensor
%x = param "x" : f32 [{m}, {n}] in [-4, 4]
%m = reduce max %x axes=(1)
%mx = expand %m ({m}, {n})
%d = sub %x %mx
%e = exp %d
%s = reduce add %e axes=(1)
%sx = expand %s ({m}, {n})
"""

SOFTMAX = EXP + """%y = div %e %sx
out "y" = %y
"""

ROWS = EXP + """%v = param "v" : f32 [{n}, {c}] in [-1, 1]
%p = div %e %sx
%p3 = reshape %p ({m}, 1, {n})
%px = expand %p3 ({m}, {c}, {n})
%vt = permute %v order=(1, 0)
%v3 = reshape %vt (1, {c}, {n})
%vx = expand %v3 ({m}, {c}, {n})
%q = mul %px %vx
%r = reduce add %q axes=(2)
%y = reshape %r ({m}, {c})
out "y" = %y
"""


@pytest.mark.parametrize("text, m, n, c", [(ROWS, 131, 200, 50), (ROWS, 96, 64, 64), (ROWS, 61, 333, 17), (ROWS, 40, 90, 8),
                                           (SOFTMAX, 131, 333, 0), (SOFTMAX, 64, 1000, 0)])
def test_same_bits(koine, text, m, n, c):
    text = text.format(m=m, n=n, c=c)
    seen = {koine("run", "-", "--json", stdin=text, env={"KN_THREADS": str(t)}).stdout for t in (1, 2, 3, 5)}
    assert len(seen) == 1
    assert "LOCAL" in koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    spread = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_THREADS": "3"}).stdout
    assert "threads=3" in spread or "threads=2" in spread
    json.loads(seen.pop().splitlines()[0])
