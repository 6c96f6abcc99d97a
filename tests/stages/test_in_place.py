"""A result takes the place of a value that is read there for the last time (2_rangeify/inplace.c)."""
import re

import numpy as np
import pytest

ENV = {"KN_CODE": "x86", "KN_CACHE": "off", "KN_STREAM": "1"}
N, M = 61, 96


def matmul(y, x, w, n, k, m):
    return f"""%{y}0 = reshape %{x} ({n}, {k}, 1)
%{y}1 = expand %{y}0 ({n}, {k}, {m})
%{y}2 = reshape %{w} (1, {k}, {m})
%{y}3 = expand %{y}2 ({n}, {k}, {m})
%{y}4 = mul %{y}1 %{y}3
%{y}5 = reduce add %{y}4 axes=(1)
%{y} = reshape %{y}5 ({n}, {m})
"""


def residual(body="%s = add %x %b", also="", last=True):
    """x = p w, b = exp(x w) w, s: of x and b; y = s w."""
    return f"""koine 1 tensor
%p = param "p" : f32 [{N}, {M}] in [-1, 1]
%w = param "w" : f32 [{M}, {M}] in [-1, 1]
{matmul("x", "p", "w", N, M, M)}{matmul("h", "x", "w", N, M, M)}%e = exp %h
{matmul("b", "e", "w", N, M, M)}{body}
{matmul("y", "s", "w", N, M, M) if last else ""}{also}
out "y" = %{"y" if last else "s"}
"""


def buffers(koine, text, **env):
    """Between kernels, and ports, of x's size."""
    out = koine("compile", "-", "--to", "rangeify", stdin=text, env={**ENV, **env}).stdout
    return len(set(re.findall(rf"= (buffer \d+) GLOBAL size={N * M} ", out)))


def test_a_sum_goes_where_its_operand_was(koine):
    assert buffers(koine, residual()) == 4  # p, x and s, e, y
    assert buffers(koine, residual(), KN_STREAM="") == 5  # what is small stays apart


@pytest.mark.parametrize("body, also, last", [
    ("%s = add %x %b", "", False),  # the result is asked for
    ("%s = add %x %b", 'out "x" = %x', True),  # x is, too
    ("%f = flip %x axes=(0)\n%s = add %f %b", "", True),  # of x another place is read
    (f"%m = reduce max %x axes=(1)\n%n = expand %m ({N}, {M})\n%d = sub %x %n\n%s = add %d %b", "", True),  # or all of a row, too
])
def test_what_stays_apart(koine, body, also, last):
    apart = residual(body, also, last)
    small = buffers(koine, apart, KN_STREAM="")
    assert buffers(koine, apart) == small


def test_of_two_that_are_read_one_is_stored_to(koine):
    assert buffers(koine, residual("%q = add %x %b\n%s = mul %q %e")) == 4  # e's place is as good, and stays


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512", "fp16"])
@pytest.mark.parametrize("body", ["%s = add %x %b", "%q = add %x %b\n%s = mul %q %e", "%q = add %x %x\n%r = mul %q %b\n%s = sub %r %x"])
def test_values(koine, tmp_path, level, body):
    """Those of numpy, the same on any number of threads."""
    r = np.random.default_rng(3)
    p, w = (r.uniform(-0.2, 0.2, s).astype("f4") for s in ((N, M), (M, M)))
    np.save(tmp_path / "p.npy", p)
    np.save(tmp_path / "w.npy", w)
    (tmp_path / "t.kn").write_text(residual(body))
    seen = set()
    for threads in ("1", "2", "3"):
        koine("run", tmp_path / "t.kn", "--in", f"p={tmp_path}/p.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y.npy",
              env={**ENV, "KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": "1"})
        seen.add(np.load(tmp_path / "y.npy").tobytes())
    assert len(seen) == 1
    p, w = p.astype("f8"), w.astype("f8")
    x = p @ w
    e = np.exp(x @ w)
    b = e @ w
    s = {"add": x + b, "mul": (x + b) * e, "sub": 2 * x * b - x}[body.split("%s = ")[1][:3]]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), s @ w, rtol=1e-4, atol=1e-4)
