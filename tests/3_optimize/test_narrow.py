"""What is chosen where a cache line takes two vectors (AVX2): terms of a tile's sums are written out, rows by rows go in blocks, running sums take two
rows at once, what is added up as memory lies is not asked for; and constants are read where they lie, so that functions go two vectors at once."""
import re

import pytest

PRODUCT = """koine 1 tensor
%a = param "a" : f32 [{m}, {k}]
%b = param "b" : f32 [{b}]
%x = reshape %a ({x})
%ax = expand %x ({all})
%y = reshape %b ({y})
%by = expand %y ({all})
%p = mul %ax %by
%s = reduce add %p axes=({axis})
%r = reshape %s ({m}, {n})
out "y" = %r
"""


def product(m, n, k):
    return PRODUCT.format(m=m, n=n, k=k, b=f"{k}, {n}", x=f"{m}, {k}, 1", y=f"1, {k}, {n}", all=f"{m}, {k}, {n}", axis=1)


def rows_by_rows(m, n, k):
    return PRODUCT.format(m=m, n=n, k=k, b=f"{n}, {k}", x=f"{m}, 1, {k}", y=f"1, {n}, {k}", all=f"{m}, {n}, {k}", axis=2)


def sums(op, axis, m=2048, n=2048):
    return f'koine 1 tensor\n%x = param "x" : f32 [{m}, {n}]\n%s = reduce {op} %x axes=({axis})\nout "y" = %s\n'


def opts(koine, text, level="avx2", **env):
    r = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_CPU": level, "KN_THREADS": 1, "KN_CODE": "x86"} | env)
    return re.search(r"opts=\[(.*)\]", r.stdout)[1].split(", ")


def code(koine, text):
    return koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": "avx2", "KN_THREADS": 1}).stdout


@pytest.mark.parametrize("m, n, k", [(256, 256, 256), (1024, 1024, 1024), (512, 768, 300), (2048, 2048, 2048)])
def test_terms_are_written_out(koine, m, n, k):
    """And their vectors stay in registers: with more of one side's beside each other a row's would not."""
    assert any(o.startswith("terms") for o in opts(koine, product(m, n, k)))
    assert not any(o.startswith("terms") for o in opts(koine, product(m, n, k), "avx512"))
    spilled = re.search(r"in innermost loops (\d+), (\d+), \d+", code(koine, product(m, n, k)))
    assert spilled and int(spilled[1]) == 0 and int(spilled[2]) <= 1


@pytest.mark.parametrize("n, k, blocks", [(3072, 768, 64), (2304, 768, 48), (768, 3072, 64)])
def test_rows_by_rows_go_in_blocks(koine, n, k, blocks):
    """A block of one side's rows is what a second-level cache keeps beside a tile's rows of the other."""
    assert opts(koine, rows_by_rows(128, n, k))[0] == f"split 1 {blocks} L top #3"
    assert not any(" L " in o for o in opts(koine, rows_by_rows(16, n, 256)))


@pytest.mark.parametrize("op, axis, asks", [("add", 1, False), ("add", 0, False), ("max", 1, True)])
def test_what_is_asked_for(koine, op, axis, asks):
    assert any(o.startswith("prefetch") for o in opts(koine, sums(op, axis), KN_STREAM=1 << 20)) == asks


@pytest.mark.parametrize("function", ["erf", "tanh", "exp"])
def test_constants_are_read_where_they_lie(koine, function):
    """Few are brought to a register first, and nothing is spilled."""
    text = code(koine, f'koine 1 tensor\n%x = param "x" : f32 [65536]\n%y = {function} %x\nout "y" = %y\n')
    in_place = len(re.findall(r"\bv(?:fm|fnm|add|mul|sub|min|max)\S*ps ymm.*YMMWORD PTR \[rip", text))
    assert in_place >= 4 and " spill " not in text and "vbroadcastss" not in text.split(".L1:")[1]


def test_a_few_rows_share_strips(koine):
    """All panels of a strip are packed at once, row by row, and the next one's rows are asked for in the tiles' sums; threads take columns, not rows,
    for each of which all would be packed."""
    one, two = (opts(koine, product(64, 4096, 4096), KN_THREADS=t) for t in (1, 2))
    for found in (one, two):
        rows = re.search(r"stage 2 2 #\d, swap (\d+) (\d+)", ", ".join(found))
        assert rows and int(rows[2]) == int(rows[1]) + 1 and any(o.endswith(f" {256 * 16384} top #2") for o in found)
    assert two[0].startswith("split 1 2 t")
    assert opts(koine, product(2048, 2048, 2048), KN_THREADS=2)[0].startswith("split 0 2 t")
    assert "prefetch 16 12000 #2" in opts(koine, product(96, 3000, 2048))  # the next row, where tiles do not divide a strip's


def test_the_next_strip_is_asked_for_beside_sums(koine):
    """Of 256 rows of 384 columns each of 16 by 16 tiles asks for one, in 16 parts of its sum, a sixteenth of the row in each."""
    text = code(koine, product(64, 4096, 4096))
    asking = text[: text.index("prefetcht1")].split(".L")[-1]
    assert [int(n) for n in re.findall(r"imul \S+ (?:\S+|QWORD PTR \[\S+\]), (\d+)", asking)] == [384 // 16, 4096, 16 * 4096]
    lines = [int(n) - 256 * 4 * 4096 for n in re.findall(r"prefetcht1 \[\S+\+(\d+)\]", text.split(asking)[1].split(".L")[0])]
    assert lines == [0, 64, 92]  # of 96 bytes that begin anywhere in a line


def test_the_next_panel_is_asked_for_beside_sums(koine):
    """Of 256 rows of 24 columns each of 16 tiles asks for sixteen; what 512 tiles share is not asked for."""
    found = ", ".join(opts(koine, product(64, 3072, 256)))
    assert re.search(r"split (\d+) 16 R #\d+, prefetch \1 96 top #2", found)
    assert not any(re.match(r"prefetch \d+ \d+ top #2", o) for o in opts(koine, product(2048, 2048, 2048)))


def test_windows_are_copied_a_channel_at_a_time(koine):
    """What masks hang on, the places of a window, are lanes of the copy; of 128 channels, 1.5 MiB, the three rows below are asked for."""
    text = re.sub(r"\b64\b", "128", koine("bench", "text", "conv_bn").stdout.replace(" @NULL", ""))
    found = ", ".join(opts(koine, text))
    assert re.search(r"stage 1 \d+ #\d+, split \d+ 3 u #\d+, split \d+ 3 u #\d+", found)
    assert re.search(rf"prefetch \d+ {3 * 56 * 4} top", found)


STRIDED = """koine 1 tensor
%x = param "x" : f32 [512, 14, 14]
%w = param "w" : f32 [256, 512]
%a = reshape %x (512, 7, 2, 7, 2)
%d = shrink %a (0, 0, 0, 0, 0) (512, 7, 1, 7, 1)
%b = reshape %d (1, 512, 7, 7)
%bx = expand %b (256, 512, 7, 7)
%c = reshape %w (256, 512, 1, 1)
%cx = expand %c (256, 512, 7, 7)
%p = mul %bx %cx
%s = reduce add %p axes=(1)
%y = reshape %s (256, 7, 7)
out "y" = %y
"""


def test_what_was_copied_in_rows_is_packed(koine):
    """A strided product of 7 x 7 places: rows of 49, of which a tile takes 24, that begin anywhere in a line."""
    found = ", ".join(opts(koine, STRIDED))
    assert found.startswith("stage -1 1, join 1 2") and "split 1 3 u #12, stage 1 -1 #1" in found
    assert "stage 1 -1" not in ", ".join(opts(koine, STRIDED, "avx512"))
