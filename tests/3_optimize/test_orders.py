"""Sums are added up in the order of one thread on any number of threads (3_optimize/orders.c, where.c), and threads are not given up for it."""
import re

import numpy as np
import pytest

PRODUCT = """koine 1 tensor
%a = param "a" : f32 [{m}, {k}]
%b = param "b" : f32 [{k}, {n}]
%a3 = reshape %a ({m}, {k}, 1)
%ax = expand %a3 ({m}, {k}, {n})
%b3 = reshape %b (1, {k}, {n})
%bx = expand %b3 ({m}, {k}, {n})
%p = mul %ax %bx
%o = reduce add %p axes=(1)
%y = reshape %o ({m}, {n})
out "y" = %y
"""

# What is left of the rows of one goes the ways of columns of the other, about as many: by a padded store, by a last block that begins earlier, by uneven parts.
SIZES = [(33, 128, 65), (97, 64, 97), (73, 128, 33), (101, 64, 49), (19, 128, 25), (34, 97, 33), (51, 1024, 97), (49, 512, 99), (97, 512, 99), (46, 512, 131)]


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "dot"])
@pytest.mark.parametrize("m, k, n", SIZES)
def test_products_are_the_same_to_the_last_bit(koine, tmp_path, m, k, n, level):
    rng = np.random.default_rng(m * n)
    np.save(tmp_path / "a.npy", rng.standard_normal((m, k)).astype(np.float32))
    np.save(tmp_path / "b.npy", rng.standard_normal((k, n)).astype(np.float32))
    made = []
    for threads in (1, 2, 3, 5):
        koine("run", "-", "--in", f"a={tmp_path / 'a.npy'}", "--in", f"b={tmp_path / 'b.npy'}", "--out", f"y={tmp_path / 'y.npy'}",
              stdin=PRODUCT.format(m=m, k=k, n=n), env={"KN_THREADS": threads, "KN_ALONE": "1", "KN_CPU": level})
        made.append(np.load(tmp_path / "y.npy").view(np.int32))
    for other in made[1:]:
        np.testing.assert_array_equal(made[0], other)


@pytest.mark.parametrize("m, k, n", [(97, 64, 97), (73, 128, 33), (101, 64, 49), (34, 97, 33), (97, 16, 97), (63, 128, 98)])
def test_two_threads_share_them(koine, m, k, n):
    """Columns that are no whole vectors go to one of them where rows cannot be shared out else."""
    said = koine("compile", "-", "--to", "optimize", stdin=PRODUCT.format(m=m, k=k, n=n),
                 env={"KN_THREADS": 2, "KN_ALONE": "1", "KN_CPU": "avx2", "KN_CODE": "x86"})
    assert re.search(r"threads=2 ", said.stdout), said.stdout


ROWS = """koine 1 tensor
%x = param "x" : f32 [{m}, {n}]
%s = reduce {op} %x axes=(1)
%y = reshape %s ({m})
out "y" = %y
"""


@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("m, n, threads, parts", [(4096, 4096, 2, 16), (16384, 4096, 2, 64), (1000, 4096, 2, 2), (128, 1024, 2, 2), (4096, 4096, 3, 3), (1 << 20, 16, 2, 2)])
def test_rows_in_memory_go_in_parts(koine, op, m, n, threads, parts):
    """A MiB each and no less, of each place that is read at once, so that one thread that is held up leaves some to the others."""
    said = koine("compile", "-", "--to", "optimize", stdin=ROWS.format(op=op, m=m, n=n),
                 env={"KN_THREADS": threads, "KN_ALONE": "1", "KN_CPU": "avx2", "KN_CODE": "x86"})
    assert re.findall(r"threads=(\d+)", said.stdout) == [str(parts)], said.stdout


def test_parts_are_for_one_sum_of_each_row(koine, root):
    """Kernels of several sums gained nothing by more parts, some lost."""
    text = (root / "examples/softmax.kn").read_text().replace("32, 64", "4096, 4096").replace("32, 1", "4096, 1")
    said = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_THREADS": 2, "KN_ALONE": "1", "KN_CPU": "avx2", "KN_CODE": "x86"})
    assert re.findall(r"threads=(\d+)", said.stdout) == ["2"], said.stdout
