"""The loop of a tile's sums is written out several times (unroll.c), and what its addresses go on by is added once for all of them (induction.c)."""
import re

import numpy as np
import pytest

from test_machine_code import PRODUCT


def loops_of(koine, text, level):
    """Innermost loops and what stands behind each, up to the next label, without what the listing says of it."""
    listing = koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": level, "KN_THREADS": 1}).stdout
    code = re.sub(r"\n+", "\n", re.sub(r" *#.*", "", listing))
    return re.findall(r"(\.L\d+):\n((?:(?!\.L)(?! *j).*\n)*) +jl \1\n((?:(?!\.L)(?! *j).*\n)*)", code)


def tile_of(koine, k, level):
    loops = loops_of(koine, PRODUCT.format(m=256, n=256, k=k), level)
    return max((loop[1:] for loop in loops), key=lambda x: x[0].count("vfmadd231ps"))


@pytest.mark.parametrize("level, sums", [("avx2", 12), ("fp16", 16)])
def test_four_terms_and_the_rest(koine, level, sums):
    """The terms that four do not divide stand behind the loop. Each operand is read at a place of its own, and no address is computed in the loop."""
    loop, behind = tile_of(koine, 251, level)
    assert loop.count("vfmadd231ps") == 4 * sums and behind.count("vfmadd231ps") == 3 * sums, (loop, behind)
    for part, copies in ((loop, 4), (behind, 3)):
        read = re.findall(r"(?:vmovups [yz]mm\d+|vbroadcastss [yz]mm\d+|vfmadd231ps .*), \w+ PTR (\[.*\])", part)
        assert len(set(read)) == len(read) and len(read) % copies == 0, read
    work = [line.split()[0] for line in loop.splitlines() if "xmm" not in line and "ymm" not in line and "zmm" not in line and line.strip()]
    assert sorted(work) == ["add", "add", "add", "cmp"], work
    assert "[rsp" not in loop, "nothing is spilled: panels have a register of their own"


def test_where_one_multiply_add_is_done_a_cycle_it_is_as_it_was(koine):
    """What counts the loop is done beside it."""
    assert tile_of(koine, 256, "avx512")[0].count("vfmadd231ps") == 16


@pytest.mark.parametrize("op", ["add", "max"])
def test_sums_of_rows_are_left_alone(koine, op):
    """They took longer written out."""
    text = f'koine 1 tensor\n%x = param "x" : f32 [1000, 1021]\n%s = reduce {op} %x axes=(1)\nout "y" = %s\n'
    found = [x.count(f"v{op}ps") for _, x, _ in loops_of(koine, text, "avx2")]
    assert 0 < max(found) <= 8, found


def test_few_sums_are_left_alone(koine):
    """Of a product that has no tile."""
    found = [x.count("vfmadd231ps") for _, x, _ in loops_of(koine, PRODUCT.format(m=1000, k=1024, n=1), "avx2")]
    assert 0 < max(found) < 8, found


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx2", "fp16"])
@pytest.mark.parametrize("k", [8, 9, 10, 11, 12, 13, 67, 254])
def test_values(koine, tmp_path, level, k):
    """However many terms are left: of small integers the product is exact."""
    m, n = 26, 72
    rng = np.random.default_rng(k)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float32), rng.integers(-3, 4, (k, n)).astype(np.float32)
    np.save(tmp_path / "a.npy", a), np.save(tmp_path / "b.npy", b)
    koine("run", "-", "--in", f"a={tmp_path / 'a.npy'}", "--in", f"b={tmp_path / 'b.npy'}", "--out", f"y={tmp_path / 'y.npy'}",
          stdin=PRODUCT.format(m=m, n=n, k=k), env={"KN_CPU": level, "KN_THREADS": 1, "KN_ALONE": 1})
    assert (np.load(tmp_path / "y.npy").reshape(m, n) == a @ b).all()
