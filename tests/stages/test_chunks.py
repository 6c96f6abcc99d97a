"""Products of very many terms are summed up in parts, which are stored and added up, and so are many products: how many the shape alone says."""
import re

import numpy as np
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


def steps(n, b, m, k):
    """What n steps add to a gradient: the sum over i and the first axis of x_i * w_i."""
    lines = []
    for i in range(n):
        for name, wide, row in (("x", m, f"({b}, {m}, 1)"), ("w", k, f"({b}, 1, {k})")):
            lines += [f'%{name}{i} = param "{name}{i}" : f32 [{b}, {wide}] in [-2, 2]',
                      f"%{name}r{i} = reshape %{name}{i} {row}", f"%{name}e{i} = expand %{name}r{i} ({b}, {m}, {k})"]
        lines += [f"%p{i} = mul %xe{i} %we{i}", f"%s{i} = add %{f's{i - 1}' if i > 1 else 'p0'} %p{i}" if i else ""]
    lines += [f"%r = reduce add %s{n - 1} axes=(0)", f"%y = reshape %r ({m}, {k})", 'out "y" = %y']
    return "koine 1 tensor\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("n, kernels", [(2, 1), (20, 1), (21, 1), (22, 2), (31, 2), (40, 2), (55, 3)])
def test_many_products_are_summed_up_in_parts(koine, tmp_path, n, kernels):
    """What their sum reads is more than a kernel has room for: what is kept is a sum, not one element of all its terms."""
    b, m, k = 16, 24, 40
    text = steps(n, b, m, k)
    low = koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    assert len(re.findall(r"= call ", low)) == kernels
    assert {int(s) for s in re.findall(r"= buffer \d+ GLOBAL size=(\d+)", low)} <= {b * m, b * k, m * k}
    rng, files, want = np.random.default_rng(n), [], 0
    for i in range(n):
        x, w = (rng.standard_normal((b, s)).astype(np.float32) for s in (m, k))
        want = want + x.T.astype(np.float64) @ w
        for name, v in (("x", x), ("w", w)):
            np.save(tmp_path / f"{name}{i}.npy", v)
            files += ["--in", f"{name}{i}={tmp_path}/{name}{i}.npy"]
    koine("run", "-", *files, "--out", f"y={tmp_path}/y.npy", stdin=text)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-4, atol=1e-4 * n**0.5)


def test_parts_go_around_the_values_they_are_of(koine):
    """Counts of a vector's elements below seven numbers: a part is read for all of them before the next, not the vector for each."""
    n = 1 << 20
    text = "\n".join(["koine 1 tensor", f'%x = param "x" : f32 [{n}] in [-2, 2]', f"%x1 = reshape %x (1, {n})", f"%x2 = expand %x1 (7, {n})", '%v = param "v" : f32 [7] in [-2, 2]',
                      "%v1 = reshape %v (7, 1)", f"%v2 = expand %v1 (7, {n})", "%l = lt %x2 %v2", "%c = cast %l : i32", "%s = reduce add %c axes=(1)", "%y = reshape %s (7)", 'out "y" = %y', ""])
    low = koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    assert re.search(r"range 0 LOOP 64 ", low) and re.search(r"range 1 LOOP 7 ", low)
