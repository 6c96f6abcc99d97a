"""Products of very many terms are summed up in parts, which are stored and added up: how many the shape alone says."""
import re

import pytest


def product(m, k, n, dtype="f32"):
    """a @ b"""
    lines = [f'%x = param "x" : {dtype} [{m}, {k}] in [-2, 2]', f'%w = param "w" : {dtype} [{k}, {n}] in [-2, 2]']
    x, w = "%x", "%w"
    if dtype != "f32":
        lines += [f"%xc = cast %x : f32 [{m}, {k}]", f"%wc = cast %w : f32 [{k}, {n}]"]
        x, w = "%xc", "%wc"
    lines += [f"%x1 = reshape {x} ({m}, 1, {k})", f"%x2 = expand %x1 ({m}, {n}, {k})", f"%w0 = permute {w} order=(1, 0)", f"%w1 = reshape %w0 (1, {n}, {k})",
              f"%w2 = expand %w1 ({m}, {n}, {k})", "%p = mul %x2 %w2", "%s = reduce add %p axes=(2)", f"%y = reshape %s ({m}, {n})", 'out "y" = %y']
    return "koine 1 tensor\n" + "\n".join(lines) + "\n"


def sums(koine, text):
    """The extents of each kernel's sums."""
    out = koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    return sorted(int(n) for n in re.findall(r"range \d+ REDUCE (\d+)", out))


@pytest.mark.parametrize("m, k, n, want", [
    (64, 8192, 48, [8, 1024]),
    (64, 5003, 48, [3, 5, 1000]),        # a prime number leaves some behind
    (64, 5000, 48, [5, 1000]),
    (64, 4096, 48, [4096]),              # the caches hold a tile's side
    (4, 8192, 48, [8192]),               # each weight is in four products: rows of memory, read once
    (64, 131072, 48, [64, 2048]),        # no more than 64 parts
    (512, 8192, 512, [8, 1024]),
    (2048, 8192, 2048, [8, 1024]),
    (4096, 8192, 4096, [4, 2048]),       # no more sums in parts than elements on both sides
])
def test_parts(koine, m, k, n, want):
    assert sums(koine, product(m, k, n)) == want


def test_narrow_ones_are_not_cut(koine):
    """Their words go by dot products."""
    assert sums(koine, product(64, 8192, 48, "bf16")) == [8192]


@pytest.mark.parametrize("m, k, n", [(16, 8192, 24), (9, 5003, 17), (160, 4099, 80)])
def test_the_same_bits_on_threads(koine, m, k, n):
    seen = {koine("run", "-", "--json", stdin=product(m, k, n), env={"KN_THREADS": t}).stdout for t in (1, 2, 5)}
    assert len(seen) == 1
