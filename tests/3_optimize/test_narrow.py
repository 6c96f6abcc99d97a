"""What is chosen where a cache line takes two vectors (AVX2): terms of a tile's sums are written out, rows by rows go in blocks, running sums take two
rows at once, what is added up as memory lies is not asked for; and constants are read where they lie, so that functions go two vectors at once."""
import re

import numpy as np
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


def keeps_its_registers(text):
    """The loop of the tile's sums, four terms written out: nothing is spilled in it."""
    sums = max(re.split(r"(?m)^\.L\d+:| jl ", text), key=lambda block: block.count("vfmadd231ps"))
    return len(re.findall(r"(?m)^ +vfmadd231ps", sums)) == 48 and "spill" not in sums and "reload" not in sums


@pytest.mark.parametrize("m, n, k", [(256, 256, 256), (1024, 1024, 1024), (512, 768, 300), (1536, 1536, 1536)])
def test_terms_are_written_out(koine, m, n, k):
    """By the renderer, which costs less; their vectors stay in registers: with more of one side's beside each other a row's would not."""
    assert not any(o.startswith("terms") for level in ("avx2", "avx512") for o in opts(koine, product(m, n, k), level))
    assert keeps_its_registers(code(koine, product(m, n, k)))
    spilled = re.search(r"in innermost loops (\d+), (\d+), \d+", code(koine, product(m, n, k)))
    assert spilled and int(spilled[1]) == 0 and int(spilled[2]) <= 1


@pytest.mark.parametrize("n, k, strip, part", [(3072, 768, 384, 384), (768, 3072, 384, 512), (1160, 1024, 384, 512), (600, 512, 120, 512)])
def test_rows_by_rows_go_in_strips(koine, n, k, strip, part):
    """Vectors go across the store, along rows of the one side, all of which are packed once; the other side's next six rows are asked for, one by
    each panel; nothing is spilled where terms are added up."""
    found = opts(koine, rows_by_rows(128, n, k))
    assert f"split 1 {strip} L #" in re.sub(r"#\d+", "#", ", ".join(found)) and any(f" {part} R #" in o for o in found)
    assert any(o.startswith("rows 2 ") for o in found) and any(o.startswith("prefetch") and f" {6 * k * 4}" in o for o in found)
    assert found.count("swap 0 1 #-1") == 1 and re.search(r"split \d+ 6 u #\d+, split \d+ 8 u #\d+, split \d+ 2 u", ", ".join(found))
    assert keeps_its_registers(code(koine, rows_by_rows(128, n, k)))


@pytest.mark.parametrize("n, of_nodes", [(2048, True), (2064, False)])
def test_terms_of_rows_that_vectors_lie_across_are_nodes(koine, n, of_nodes):
    """Eight columns that strips leave over: four terms of eight rows are read as squares."""
    assert any(o.startswith("terms") for o in opts(koine, product(2048, n, 2048))) == of_nodes


def test_strips_are_as_long_as_what_is_kept_allows(koine):
    """Of whole vectors all the same; what they leave over goes so too."""
    assert "split 1 96 L #3" in opts(koine, rows_by_rows(256, 1056, 512))
    found = ", ".join(opts(koine, rows_by_rows(256, 264, 512)))
    assert "cut 1 240 #3" in found and len(re.findall(r"rows \d+ ", found)) == 2, found


@pytest.mark.parametrize("m, n, k, blocks", [(124, 3072, 768, 64), (132, 2304, 768, 48), (36, 768, 3072, 0), (124, 768, 3072, 64)])
def test_other_rows_by_rows_go_in_blocks(koine, m, n, k, blocks):
    """Of rows that are no whole vectors, or few. A block of one side's rows is what a second-level cache keeps beside a tile's rows of the other."""
    found = opts(koine, rows_by_rows(m, n, k))
    assert not any(o.startswith("rows") for o in found) and (f"split 1 {blocks} L top #" in ", ".join(found)) == (blocks > 0)
    assert not any(" L " in o for o in opts(koine, rows_by_rows(16, n, 256)))


@pytest.mark.runs("avx2")
@pytest.mark.parametrize("of, m, n, k", [(rows_by_rows, 128, 400, 768), (rows_by_rows, 64, 393, 1024), (rows_by_rows, 72, 50, 3072), (rows_by_rows, 200, 777, 512), (product, 1600, 523, 2048), (product, 2100, 512, 2500)])
def test_strips_on_the_processor(koine, tmp_path, of, m, n, k):
    """Against numpy, and the same bits for any number of threads, with what no strip, and no vector, divides."""
    rng = np.random.default_rng(m + n)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k) if of is rows_by_rows else (k, n)))
    np.save(tmp_path / "a.npy", a), np.save(tmp_path / "b.npy", b)
    (tmp_path / "p.kn").write_text(of(m, n, k))
    got = []
    for threads in (1, 2, 3, 5):
        env = {"KN_CPU": "avx2", "KN_CODE": "x86", "KN_THREADS": threads, "KN_VERIFY": "1"}
        given = ["--in", f"a={tmp_path}/a.npy", "--in", f"b={tmp_path}/b.npy", "--out", f"y={tmp_path}/y.npy"]
        koine("run", tmp_path / "p.kn", *given, env=env)
        got.append(np.load(tmp_path / "y.npy"))
    assert np.abs(got[0] - a.astype(np.float64) @ (b.T if of is rows_by_rows else b)).max() < 1e-3
    assert all(np.array_equal(got[0], y) for y in got[1:])


@pytest.mark.parametrize("m, n, k, strip, part, blocks", [(2048, 2048, 2048, 120, 512, 0), (1000, 1500, 4000, 120, 500, 0), (5000, 1152, 2048, 96, 512, 5)])
def test_very_many_rows_go_in_strips_of_columns(koine, m, n, k, strip, part, blocks):
    """Of whole tiles, their panels packed at once, row by row; what is kept of the next tile is asked for; rows that are more go in blocks."""
    found = ", ".join(opts(koine, product(m, n, k)))
    assert f" {strip} L #" in found and f" {part} R #" in found and re.search(r"rows \d+ ", found), found
    assert re.search(r"stage (\d+) 2 #\d, swap (\d+) (\d+)", found) and re.search(r"prefetch \d+ 96 #-\d", found), found
    assert re.findall(r"split 0 (\d+) L #", found) == ([str(m // blocks)] if blocks else []), found
    assert keeps_its_registers(code(koine, product(m, n, k)))
    assert "rows" not in ", ".join(opts(koine, product(1024, 1024, 2048)) + opts(koine, product(4096, 1024, 1024)))


@pytest.mark.parametrize("of, m, n, k, threads", [(product, 2047, 264, 4000, 5), (product, 4999, 1160, 2500, 5), (rows_by_rows, 5000, 768, 768, 1), (rows_by_rows, 72, 50, 3072, 3)])
def test_what_threads_leave_is_a_nest_like_others(koine, of, m, n, k, threads):
    """A few rows of very many (they were no block, and a division by none), and more rows than are packed."""
    assert opts(koine, of(m, n, k), KN_THREADS=threads)


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_have_the_order_of_strips(koine, threads):
    """Of what strips leave a column goes along the sum, whatever threads there are; places of what is kept are those of who reads it."""
    found = opts(koine, rows_by_rows(128, 50257, 768), KN_THREADS=threads)
    assert found[0] == f"split 0 {threads} t top #3" and any(o.startswith("rows") for o in found)


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


@pytest.mark.parametrize("function, vectors", [("exp", 4), ("exp2", 4), ("tanh", 2), ("erf", 2)])
def test_an_exp_takes_four_vectors_at_once(koine, function, vectors):
    """The others have no registers for as many."""
    text = f'koine 1 tensor\n%x = param "x" : f32 [65536]\n%y = {function} %x\nout "y" = %y\n'
    assert opts(koine, text)[:2] == ["split 0 8 u #1", f"split 0 {vectors} u #2"]


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
