"""What a kernel's loops would compute again is kept once a row (2_rangeify/row.c): softmax's product with v, whose quotients are a product each."""
import re

import numpy as np
import pytest

SOFTMAX = """koine 1 tensor
%x = param "x" : f32 [{m}, {k}]
%v = param "v" : f32 [{k}, {n}]
%e = exp %x
%s = reduce add %e axes=(1)
%r = recip %s
%rx = expand %r ({m}, {k})
%p = mul %e %rx
%p3 = reshape %p ({m}, {k}, 1)
%px = expand %p3 ({m}, {k}, {n})
%v3 = reshape %v (1, {k}, {n})
%vx = expand %v3 ({m}, {k}, {n})
%pv = mul %px %vx
%o = reduce add %pv axes=(1)
%y = reshape %o ({m}, {n})
out "y" = %y
"""


def rows(koine, text):
    """Sizes of the rows that are kept, and the ops of what each is filled with."""
    out = koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    op = dict(re.findall(r"^(%\d+) = (\w+)", out, re.M))
    source = dict(re.findall(r"^%\d+ = store (%\d+) (%\d+)", out, re.M))
    return [int(n) for n in re.findall(r"LOCAL size=(\d+)", out)], [op[v] for v in source.values()]


def test_quotients_are_kept_beside_the_row_they_are_of(koine):
    sizes, filled = rows(koine, SOFTMAX.format(m=24, k=40, n=16))
    assert sizes == [40, 40] and filled == ["exp", "mul", "reduce"], (sizes, filled)


def test_a_product_of_what_is_read_is_made_again(koine):
    """Beside a matrix that no row of is kept, so that its product is a matrix product still."""
    text = SOFTMAX.format(m=24, k=40, n=16).replace("%e = exp %x", "%e = mul %x 0.5").replace("mul %e %rx", "mul %e 0.25")
    assert rows(koine, text)[0] == []


@pytest.mark.parametrize("m, k, n, threads", [(24, 40, 16, 1), (197, 197, 64, 1), (13, 129, 33, 3), (128, 128, 64, 2)])
def test_its_values(koine, tmp_path, m, k, n, threads):
    rng = np.random.default_rng(k)
    x, v = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "v.npy", v)
    koine("run", "-", "--in", f"x={tmp_path / 'x.npy'}", "--in", f"v={tmp_path / 'v.npy'}", "--out", f"y={tmp_path / 'y.npy'}",
          stdin=SOFTMAX.format(m=m, k=k, n=n), env={"KN_THREADS": threads, "KN_ALONE": "1", "KN_VERIFY": "2"})
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), e / e.sum(1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)
