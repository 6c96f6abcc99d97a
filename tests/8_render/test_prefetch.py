"""PREFETCH: what the heuristics have machine code ask for ahead, where, and how far; that it changes no bit, at no length."""
import itertools
import re

import numpy as np
import pytest

LEVELS = ["avx512", "avx2", "sse2"]


def of_row(rows, n, axis, op):
    return f'%x = param "x" : f32 [{rows}, {n}]\n%y = reduce {op} %x axes=({axis})\nout "y" = %y\n'


def softmax(rows, n):
    return (f'%x = param "x" : f32 [{rows}, {n}]\n%m = reduce max %x axes=(1)\n%b = expand %m ({rows}, {n})\n%d = sub %x %b\n%e = exp %d\n'
            f'%s = reduce add %e axes=(1)\n%t = expand %s ({rows}, {n})\n%y = div %e %t\nout "y" = %y\n')


def norm(rows, n):
    return (f'%x = param "x" : f32 [{rows}, {n}]\n%s = reduce add %x axes=(1)\n%m = mul %s {1 / n!r}\n%b = expand %m ({rows}, {n})\n%d = sub %x %b\n'
            f'%q = mul %d %d\n%v = reduce add %q axes=(1)\n%r = sqrt %v\n%e = expand %r ({rows}, {n})\n%y = mul %d %e\nout "y" = %y\n')


def scaled(rows, n):
    """By the root of each row's squares."""
    return (f'%x = param "x" : f32 [{rows}, {n}]\n%q = mul %x %x\n%v = reduce add %q axes=(1)\n%r = sqrt %v\n%e = expand %r ({rows}, {n})\n'
            f'%y = mul %x %e\nout "y" = %y\n')


def first_of_largest(rows, n, axis=1):
    """Of each row, or column, its largest element's first place, counted from the end."""
    m, across = ((n, f"(1, {n})"), (rows, f"({rows}, 1)"))[axis == 0]
    return (f'%x = param "x" : f32 [{rows}, {n}]\n%m = reduce max %x axes=({axis})\n%b = expand %m ({rows}, {n})\n%e = eq %x %b\n%n = ne %x %x\n%h = or %e %n\n'
            f'%o = reshape 1:i32 (1)\n%os = expand %o ({m})\n%p = pad %os ({m - 1}) ({2 * m - 1})\n%p2 = reshape %p (1, {2 * m - 1})\n'
            f'%px = expand %p2 ({m + 1}, {2 * m - 1})\n%p1 = reshape %px ({(m + 1) * (2 * m - 1)})\n%c = shrink %p1 (0) ({2 * m * m})\n'
            f'%w = reshape %c ({m}, {2 * m})\n%v = shrink %w (0, 0) ({m}, {m})\n%k = reduce add %v axes=(1)\n%t = sub {m + 1} %k\n'
            f'%u = reshape %t {across}\n%f = expand %u ({rows}, {n})\n%s = where %h %f 0\n%y = reduce max %s axes=({axis})\nout "y" = %y\n')


def each(n, op):
    return f'%x = param "x" : f32 [{n}]\n%y = {op} %x\nout "y" = %y\n'


def stage(koine, path, text, *to, **env):
    path.write_text("koine 1 tensor\n" + text)
    return koine("compile", path, *to, env={"KN_CODE": "x86", "KN_THREADS": 1, **env}).stdout


def lists(koine, path, text, **env):
    """The (bytes, slot) of each PREFETCH, and the machine code."""
    optimized, code = stage(koine, path, text, "--to", "optimize", **env), stage(koine, path, text, "--target", "x86", **env)
    return [(int(b), int(s or 0)) for b, s in re.findall(r"prefetch \d+ (\d+)(?: top)?(?: #(\d+))?", optimized)], code


def loops_that_ask(code):
    """Of each innermost loop that asks, in order: the distances, and whether it stores past the caches."""
    loops = [(list(map(int, re.findall(r"prefetcht1 \[.*?\+(\d+)\]", b))), "vmovntps" in b) for b in re.split(r"\n\s*jl ", code)]
    return [loop for loop in loops if loop[0]]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("text, want", [
    (each(65536, "exp"), [(4096, 1)]),             # long between two loads
    (each(65536 + 37, "exp"), [(4096, 1)]),        # and what a cut leaves over has none
    (each(65536, "neg"), []),                      # memory alone decides, of what is near
    (of_row(64, 512, 1, "add"), []),               # along rows, of what is near
    (first_of_largest(64, 512), []),               # likewise, though it carries what it found
    (of_row(64, 1 << 17, 0, "add"), []),           # rows too far apart
], ids=["exp", "exp_cut", "neg", "sum_rows", "argmax_rows", "far"])
def test_what_is_asked_for(koine, tmp_path, level, text, want):
    opts, code = lists(koine, tmp_path / "p.kn", text, KN_CPU=level, KN_STREAM=1)
    assert opts == want
    ahead = [int(n) for n in re.findall(r"prefetcht0 \[.*?([+-]\d+)\]", code)]
    assert bool(ahead) == bool(want)
    if want:  # once a line, each line once an iteration
        assert len(set(ahead)) == len(ahead) and all((n - want[0][0]) % 64 == 0 for n in ahead)
    opts, code = lists(koine, tmp_path / "p.kn", text, KN_CPU=level, KN_STREAM=0)
    assert not opts and "prefetch" not in code


@pytest.mark.parametrize("level", ["avx512", "avx2"])
@pytest.mark.parametrize("op", ["add", "max"])
def test_along_rows(koine, tmp_path, level, op):
    """What no cache holds is asked for into the second one, each line once; not what the last one has, nor what AVX2 adds up."""
    opts, code = lists(koine, tmp_path / "p.kn", of_row(1024, 1021, 1, op), KN_CPU=level, KN_STREAM=1 << 20)
    if (level, op) == ("avx2", "add"):
        assert not opts and "prefetch" not in code
        return
    ahead = [int(n) for n in re.findall(r"prefetcht1 \[.*?([+-]\d+)\]", code)]
    assert opts == [(1536, 1)] and ahead and len(set(ahead)) == len(ahead) and all(n % 64 == 0 for n in ahead), (opts, ahead)
    assert "prefetch" not in lists(koine, tmp_path / "p.kn", of_row(1024, 1021, 1, op), KN_CPU=level, KN_STREAM=1 << 22)[1]


@pytest.mark.parametrize("text", [of_row(1024, 2048, axis, op) for axis in (0, 1) for op in ("add", "max")])
def test_where_the_hardware_fetches_streams(koine, tmp_path, text):
    """With FP16: of several rows at once what is next in each of them, into the first cache."""
    opts, code = lists(koine, tmp_path / "p.kn", text, KN_CPU="fp16", KN_STREAM=1 << 20)
    assert opts == [(1024, 1)] and "prefetcht0" in code and "prefetcht1" not in code


@pytest.mark.parametrize("level, want", [("fp16", [(1024, 1)]), ("avx512", []), ("avx2", [])])
def test_what_is_largest_and_where(koine, tmp_path, level, want):
    """Found in one pass: where the hardware fetches streams, into the second cache, as what is done to a vector takes longer than a sum."""
    opts, code = lists(koine, tmp_path / "p.kn", first_of_largest(1024, 2048), KN_CPU=level, KN_STREAM=1 << 20)
    assert opts == want and ("prefetcht1" in code) == bool(want) and "prefetcht0" not in code


@pytest.mark.parametrize("text, want", [
    (of_row(1024, 2048, 1, "add"), [16384]),
    (of_row(1024, 2048, 1, "max"), [16384]),
    (first_of_largest(1024, 2048), [16384]),     # carried
    (of_row(512, 4096, 0, "add"), [1024]),         # eight rows at once: what is next in each
    (of_row(1024, 2048, 0, "add"), [8192]),        # one at a time: half as far along memory, beside the sums
    (of_row(4096, 512, 0, "add"), [8192]),
    (of_row(4096, 300, 0, "add"), [8 * 1200]),     # in whole rows, of which 256 columns count
    (of_row(512, 4096, 0, "max"), [8192]),         # a maximum's rows may be longer
    (of_row(256, 8192, 0, "max"), [1024]),
    (of_row(512, 4000, 0, "max"), [16000]),
    (norm(64, 1024), [4 * 4096, 4 * 4096 + 1]),   # two passes, each for all lines of the next rows
    (norm(64, 4096), [16384, 16384 + 1]),
    (each(1 << 19, "exp"), [16384]),
], ids=["sum_rows", "max_rows", "argmax_rows", "columns", "columns_8K", "columns_2K", "columns_1200", "max_columns", "max_columns_32K", "max_columns_16000",
        "rows_4K", "rows_16K", "exp"])
def test_where_much_is_to_be_under_way(koine, tmp_path, text, want):
    """KN_AHEAD: so far ahead along memory, and into the first cache, which has room for two rows."""
    env = {"KN_CPU": "avx512", "KN_STREAM": 1 << 18}
    opts, code = lists(koine, tmp_path / "p.kn", text, **env, KN_AHEAD=16384)
    assert sorted(b for b, _ in opts) == want and "prefetcht0" in code and "prefetcht1" not in code
    assert lists(koine, tmp_path / "p.kn", text, **env)[0] != opts, "without it less"


def test_a_part_of_a_row_is_not_along_memory(koine, tmp_path):
    """Threads take parts of rows: several at once, as where less is under way."""
    opts, _ = lists(koine, tmp_path / "p.kn", of_row(4096, 4096, 0, "max"), KN_CPU="avx512", KN_STREAM=1 << 18, KN_AHEAD=16384, KN_THREADS=2)
    assert opts == [(1024, 1)]


@pytest.mark.parametrize("n, want, without", [
    (1024, (8, 2), (1, 4)), (8192, (8, 2), (8, 1)), (16384, (8, 1), (8, 1)), (528, (8, 1), (1, 1)), (1000, (1, 1), (1, 1)),
])
def test_what_is_largest_down_columns(koine, tmp_path, n, want, without):
    """Where much is to be under way (KN_AHEAD) eight rows at once, if they are whole lines, and two vectors beside each other, if they are not too long."""
    for ahead, steps in (16384, want), (0, without):
        text = stage(koine, tmp_path / "p.kn", first_of_largest(1024, n, 0), "--to", "optimize", KN_CPU="avx512", KN_STREAM=1 << 18, KN_AHEAD=ahead)
        last = max(map(int, re.findall(r"split (\d+) 16 u", text)))
        beside = re.findall(rf"split {last} (\d) u", text) or [1]
        assert (int(re.search(r"rows \d+ \d+ top #(\d)", text)[1]), int(beside[0])) == steps


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", ["add", "max", "first"])
@pytest.mark.parametrize("rows, n", [(131, 4096), (300, 2048), (1024, 300), (700, 519)])
def test_columns_are_the_same_however_they_go(koine, tmp_path, level, op, rows, n):
    """Row by row or several at once, by any number of threads: to the bit, zeros of either sign too; which NaN one is nobody promises."""
    p, rng = tmp_path / "p.kn", np.random.default_rng(rows)
    x = rng.choice(np.float32([-0.0, 0.0, -1.5, 3e-39]), (rows, n)) if op != "add" else rng.standard_normal((rows, n)).astype("f4")
    x[rng.integers(rows, size=9), rng.integers(n, size=9)] = np.nan
    p.write_text("koine 1 tensor\n" + (first_of_largest(rows, n, 0) if op == "first" else of_row(rows, n, 0, op)))
    np.save(tmp_path / "x.npy", x)
    got = []
    for ahead, threads in [(0, 1), (16384, 1), (16384, 2), (16384, 5)]:
        koine("run", p, "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy",
              env={"KN_CPU": level, "KN_STREAM": 1 << 18, "KN_AHEAD": ahead, "KN_THREADS": threads, "KN_ALONE": 1})
        got.append(np.load(tmp_path / "y.npy")[0])
    want = {"max": lambda: np.max(x, axis=0), "first": lambda: rows - np.argmax(x, axis=0), "add": lambda: np.sum(x, axis=0, dtype="f8")}[op]()
    assert np.allclose(got[0], want, rtol=1e-5, atol=1e-4, equal_nan=True)
    if op == "max":
        assert np.array_equal(np.signbit(got[0])[want == 0], ~np.any((x == 0) & ~np.signbit(x), axis=0)[want == 0])
    assert len({(np.isnan(g).tobytes(), np.where(np.isnan(g), 0, g).tobytes()) for g in got}) == 1


def test_no_more_than_the_first_cache_has(koine, tmp_path):
    """Rows of which it has no room for two: into the second one, as everywhere."""
    opts, code = lists(koine, tmp_path / "p.kn", norm(64, 8192), KN_CPU="avx512", KN_STREAM=1, KN_AHEAD=16384)
    assert opts == [(32768, 1)] * 2 and "prefetcht1" in code and "prefetcht0" not in code


@pytest.mark.parametrize("n", [0, 1, 100, 65536])
def test_any_distance_is_one(koine, tmp_path, n):
    """Of lines: what is none is rounded up."""
    opts, _ = lists(koine, tmp_path / "p.kn", of_row(1024, 2048, 1, "add"), KN_CPU="avx512", KN_STREAM=1 << 20, KN_AHEAD=n)
    assert opts == [((n + 63) // 64 * 64 or 1536, 1)]


@pytest.mark.parametrize("rows, wide, n, ahead, want", [
    (512, 4096, 4096, 64, []),                       # half a line is none
    (400, 40000, 64, 16384, [32 * 160000]),          # few columns of long rows: many rows on
    (400, 400000, 64, 16384, []),                    # as far as that is a distance
    (40, 4000000, 16, 16384, []),
])
def test_rows_too_far_on_are_not_asked_for(koine, tmp_path, rows, wide, n, ahead, want):
    text = f'%x = param "x" : f32 [{rows}, {wide}]\n%s = shrink %x (0, 0) ({rows}, {n})\n%y = reduce max %s axes=(0)\nout "y" = %y\n'
    env = {"KN_CPU": "avx512", "KN_STREAM": 1 << 18, "KN_AHEAD": ahead}
    opts, _ = lists(koine, tmp_path / "p.kn", text, **env)
    assert [b for b, _ in opts] == want and "rows 1 0" in stage(koine, tmp_path / "p.kn", text, "--to", "optimize", **env)


@pytest.mark.parametrize("inputs, hint", [(1, "prefetcht0"), (2, "prefetcht1"), (3, None)])
def test_what_is_stored_past_the_caches(koine, tmp_path, inputs, hint):
    """Each line of what is read once: one input into the first cache, two into the second; not what a cache has, nor what is stored in parts of lines."""
    n, p = 1 << 19, tmp_path / "p.kn"
    text = "".join(f'%x{i} = param "x{i}" : f32 [{n}]\n' for i in range(inputs)) + "%y0 = mul %x0 3.0\n"
    text += "".join(f"%y{i} = add %y{i - 1} %x{i}\n" for i in range(1, inputs)) + f'out "y" = %y{inputs - 1}\n'
    opts, code = lists(koine, p, text, KN_CPU="avx512", KN_STREAM=1 << 20)
    assert opts == [(2048, 1 + i) for i in range(inputs if hint else 0)]
    asked = [(h, int(a)) for h, a in re.findall(r"(prefetch\w+) \[.*?([+-]\d+)\]", code)]
    assert sorted(asked) == sorted((hint, 2048 + 64 * i) for i in range(4 if hint else 0) for _ in range(inputs))
    assert "prefetch" not in lists(koine, p, text, KN_CPU="avx512", KN_STREAM=1 << 21)[1]
    assert "prefetch" not in lists(koine, p, text, KN_CPU="avx512", KN_STREAM=0)[1]
    narrow = f'%x = param "x" : f32 [{n}]\n%y = cast %x : bf16 [{n}]\nout "y" = %y\n'
    assert not lists(koine, p, narrow, KN_CPU="avx512", KN_STREAM=1 << 20)[0]


@pytest.mark.parametrize("level, want", [("avx512", [(16384, 1)]), ("avx2", [(16384, 1)]), ("sse2", [(16384, 1)])])
def test_down_the_rows(koine, tmp_path, level, want):
    """Of what goes down strips, two KiB of them, or one where much follows each: a sum of what meets its column's maximum. Sums of what is read alone go row by row, and ask for nothing."""
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_STREAM": 1}
    down = softmax(64, 512).replace("axes=(1)", "axes=(0)")
    assert lists(koine, tmp_path / "p.kn", down, **env)[0] == want
    for op in ("add", "max"):
        assert lists(koine, tmp_path / "p.kn", of_row(64, 512, 0, op), **env)[0] == []


@pytest.mark.parametrize("level, want, into", [("fp16", 2048, "prefetcht0"), ("avx2", 2048, "prefetcht0"), ("avx512", 8192, "prefetcht1")])
def test_it_stands_in_the_heaviest_loop(koine, tmp_path, level, want, into):
    """The next row: not in the loop that takes the maximum, nor that which writes the result. Where PIPELINE finds the next maximum in the loop of this row's exp,
    what is further on along memory."""
    opts, code = lists(koine, tmp_path / "p.kn", softmax(64, 512), KN_CPU=level, KN_STREAM=1)
    loops = re.split(r"\n\s*jl ", code)
    asking = [b for b in loops if "prefetch" in b]
    assert opts == [(want, 1)] and len(asking) == 1 and into in asking[0]
    assert "vscalefps" in asking[0] or level == "avx2"


def sums_and(k, n, rows=128):
    """r + a @ b, of rows x n: r and the result are met when a tile's sums are done."""
    return (f'%a = param "a" : f32 [{rows}, {k}]\n%b = param "b" : f32 [{k}, {n}]\n%c = reshape %a ({rows}, 1, {k})\n%d = expand %c ({rows}, {n}, {k})\n'
            f'%e = permute %b order=(1, 0)\n%f = reshape %e (1, {n}, {k})\n%g = expand %f ({rows}, {n}, {k})\n%h = mul %d %g\n'
            f'%i = reduce add %h axes=(2)\n%j = reshape %i ({rows}, {n})\n%r = param "r" : f32 [{rows}, {n}]\n%y = add %j %r\nout "y" = %y\n')


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_behind_sums(koine, tmp_path, level):
    """The next tile's rows of what is added to the sums, and of where they go, while its sums run: not for a few terms, nor where all is near,
    nor what goes past the caches."""
    p = tmp_path / "p.kn"
    opts, code = lists(koine, p, sums_and(64, 1024), KN_CPU=level)
    rows = [b for b, _ in opts]
    assert len(opts) == 2 and rows[0] == rows[1] and rows[0] % 4096 == 0
    asked = {form: len(re.findall(form + r" \[", code)) for form in ("prefetcht0", "prefetchw")}
    assert asked["prefetcht0"] == asked["prefetchw"] > 0
    assert not lists(koine, p, sums_and(8, 1024), KN_CPU=level)[0]
    assert not lists(koine, p, sums_and(64, 256), KN_CPU=level)[0]
    if level == "avx512":  # AVX2 stores the result as it is
        assert all(slot for _, slot in lists(koine, p, sums_and(64, 1024), KN_CPU=level, KN_STREAM=1024)[0])


@pytest.mark.parametrize("k, times, rows, vectors", [(64, 4, 1, 4), (250, 2, 2, 4), (251, 0, 4, 4), (256, 4, 1, 4)])
def test_behind_long_sums_row_by_row(koine, tmp_path, k, times, rows, vectors):
    """Not all at once where the sums are done: so many rows of the next tile, their lines and the one each may end in, in each part of the
    terms, unless these cannot be parted."""
    opts, code = lists(koine, tmp_path / "p.kn", sums_and(k, 1024), KN_CPU="avx512")
    asked = len(re.findall(r"prefetch\w+ \[", code))
    assert len(opts) == 2 and asked == 2 * rows * (vectors + (times > 0))
    loops = re.split(r"\n\.L\d+:", code)
    asking = [b for b in loops if "prefetch" in b]
    assert len(asking) == 1 and not (times and "vfmadd" in asking[0]) and (not times or f"loop of {times}, " in code)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("text", [each(n, "exp") for n in (1, 16, 37, 1037)] + [of_row(37, 61, 0, "add"), softmax(5, 300), softmax(3, 9000), norm(5, 1024), sums_and(33, 529), sums_and(256, 1029)])
def test_it_changes_nothing(koine, tmp_path, level, text):
    p = tmp_path / "p.kn"
    p.write_text("koine 1 tensor\n" + text)
    runs = [koine("run", p, env={"KN_CPU": level, "KN_CODE": c, "KN_STREAM": s}).stdout for c, s in (("x86", 1), ("x86", 0))]
    assert runs[0] == runs[1] and "y" in runs[0]


@pytest.mark.parametrize("n, rows", [(512, 0), (1024, 4), (1500, 3), (2048, 2), (4096, 1), (8192, 1), (12500, 1)])
def test_rows_that_fill_the_first_cache(koine, tmp_path, n, rows):
    """Long ones go behind it, so many whole rows ahead that there is time."""
    opts, code = lists(koine, tmp_path / "p.kn", softmax(64, n), KN_CPU="fp16", KN_STREAM=1)
    assert ("prefetcht1" in code) == (rows > 0) and ("prefetcht0" in code) != (rows > 0)
    assert opts == [(4 * n * (rows or 1), 1)]


@pytest.mark.parametrize("n, want", [(512, (2048, 1)), (1024, (1536, 1)), (2048, (1536, 1)), (4096, (16384, 1))])
def test_the_first_to_read_a_row(koine, tmp_path, n, want):
    """Of two passes: it asks, for little where it would wait for much and the other has the row in the first cache."""
    opts, code = lists(koine, tmp_path / "p.kn", scaled(65, n), KN_CPU="avx512", KN_STREAM=1)
    assert opts == [want]
    asking = [b for b in re.split(r"\n\s*jl ", code) if "prefetch" in b]
    assert len(asking) == 1 and "vmovntps" not in asking[0] and ("prefetcht1" in asking[0]) == (n > 512)


@pytest.mark.parametrize("n, rows", [(1024, 4), (2048, 2)])
def test_two_loops_share_the_next_row(koine, tmp_path, n, rows):
    """Of a row's three passes the two that come later: every line is asked for by one of them, of four three while the result is stored."""
    opts, code = lists(koine, tmp_path / "p.kn", norm(65, n), KN_CPU="avx512", KN_STREAM=1)
    assert opts == [(4 * n * rows, 1)] * 2
    asked = {past: [a - 4 * n * rows for a in lines] for lines, past in loops_that_ask(code)}
    assert set(asked) == {False, True} and len(asked[True]) == 3 * len(asked[False])
    assert sorted(asked[False] + asked[True]) == list(range(0, 64 * 4 * len(asked[False]), 64))
    assert "prefetch" not in lists(koine, tmp_path / "p.kn", norm(65, n), KN_CPU="avx512", KN_STREAM=0)[1]


@pytest.mark.parametrize("text, rows, n, ahead", [(norm, 65, 4096, 4096), (norm, 64, 4096, 8192), (norm, 64, 1024, 4096), (norm, 65, 1024, 4096), (scaled, 64, 2048, 4096)])
def test_the_loop_that_stores_asks_where_the_hardware_fetches_streams(koine, tmp_path, text, rows, n, ahead):
    """For the next row or rows, and no other loop; two go at once, of 4 KiB and more, if there is an even number of them."""
    p, env = tmp_path / "p.kn", {"KN_CPU": "fp16", "KN_STREAM": 1}
    opts, code = lists(koine, p, text(rows, n), **env)
    assert opts == [(4 * ahead, 1)] and [past for _, past in loops_that_ask(code)] == [True]
    assert ("opts=[split 0 2 u" in stage(koine, p, text(rows, n), "--to", "optimize", **env)) == (rows == 64)


@pytest.mark.parametrize("n", [3072, 4096, 8192])
def test_all_three_ask_where_stores_stand_in_the_way(koine, tmp_path, n):
    """The later two for all of the next row, the first for what it reads soon. Rows that no two divide: they go by themselves."""
    opts, code = lists(koine, tmp_path / "p.kn", norm(65, n), KN_CPU="avx512", KN_STREAM=1)
    row = next(a for a, _ in opts)
    assert opts == [(row, 1), (row + 1, 1), (8192, 1)] and row % (4 * n) == 0 and row >= 12288
    asked = loops_that_ask(code)
    assert [past for _, past in asked] == [False, False, True]
    assert [lines for lines, _ in asked] == [[first + 64 * k for k in range(len(lines))] for (lines, _), first in zip(asked, (8192, row, row + 1))]
    assert len({len(lines) for lines, _ in asked}) == 1


@pytest.mark.parametrize("text", [norm, scaled])
@pytest.mark.parametrize("n", [2048, 3000, 4096, 32768])
def test_two_rows_at_once_where_stores_stand_in_the_way(koine, tmp_path, text, n):
    """The next two while these are stored, each line four times, and by the first loop, which waits for it, what it reads soon."""
    p, env = tmp_path / "p.kn", {"KN_CPU": "avx512", "KN_STREAM": 1}
    opts, code = lists(koine, p, text(64, n), **env)
    assert opts == [(8 * n, 1)] * 4 + [(8192, 1)]
    assert re.search(r"opts=\[split 0 2 u", stage(koine, p, text(64, n), "--to", "optimize", **env))
    (first, _), (stores, past) = loops_that_ask(code)
    assert past and first == [8192 + row * 4 * n + 64 * k for row in (0, 1) for k in range(len(first) // 2)]
    assert stores == [8 * n + row * 4 * n + 64 * k for row in (0, 1) for k in range(len(stores) // 8) for _ in range(4)]


def total(rows, n):
    """Less the logarithm of its exponentials' sum: found in one pass, or else in three."""
    return (f'%x = param "x" : f32 [{rows}, {n}]\n%m = reduce max %x axes=(1)\n%a = max %m -3.4028234663852886e38\n%b = neg %a\n%c = max %b -3.4028234663852886e38\n'
            f'%d = neg %c\n%z = detach %d\n%w = expand %z ({rows}, {n})\n%f = sub %x %w\n%e = exp %f\n%s = reduce add %e axes=(1)\n%l = log %s\n%t = add %l %z\n'
            f'%q = expand %t ({rows}, {n})\n%y = sub %x %q\nout "y" = %y\n')


def of_columns(text):
    """The same of a matrix whose rows lie down columns."""
    shape = re.search(r'f32 \[(\d+), (\d+)\]', text)
    return text.replace(shape[0], f"f32 [{shape[2]}, {shape[1]}]").replace("%x", "%p", 1).replace("\n", "\n%x = permute %p order=(1, 0)\n", 1)


@pytest.mark.parametrize("text, env", [
    (total(64, 4096), {}), (of_columns(norm(64, 4096)), {}), (norm(64, 4096).replace("out \"y\" = %y", "%h = cast %y : f16\nout \"y\" = %h"), {}),
    (norm(63, 4096), {}), (norm(64, 1024), {}), (norm(64, 65536), {}), (softmax(64, 4096), {}), (norm(64, 512), {"KN_CPU": "fp16"}),
    (norm(64, 4096), {"KN_CPU": "avx2"}), (norm(64, 4096), {"KN_AHEAD": 16384}), (norm(64, 4096), {"KN_STREAM": 0}),
    (of_row(64, 4096, 1, "add"), {}), (of_row(64, 4096, 0, "add"), {}),
], ids=["seldom", "columns_of_x", "narrower", "odd", "short", "long", "kept", "fp16", "avx2", "ahead", "near", "sums", "columns"])
def test_else_they_go_one_by_one(koine, tmp_path, text, env):
    assert "split 0 2 u" not in stage(koine, tmp_path / "p.kn", text, "--to", "optimize", **{"KN_CPU": "avx512", "KN_STREAM": 1, **env})


@pytest.mark.parametrize("level", [pytest.param(level, marks=pytest.mark.runs(level)) for level in ("avx512", "fp16")])
@pytest.mark.parametrize("rows, n", [(64, 2048), (6, 4096), (10, 2051), (6, 32768), (64, 1024)])
def test_a_row_is_the_same_beside_another(koine, tmp_path, rows, n, level):
    """To the bit, on any number of threads: of rows one more than these, which go one by one, all but the last."""
    x = np.random.default_rng(n).standard_normal((rows + 1, n), dtype=np.float32)
    got = {}
    for m, threads in ((rows, 1), (rows, 2), (rows, 5), (rows + 1, 1)):
        np.save(tmp_path / "x.npy", x[:m])
        p = tmp_path / "p.kn"
        p.write_text("koine 1 tensor\n" + norm(m, n))
        koine("run", p, "--in", f"x={tmp_path / 'x.npy'}", "--out", f"y={tmp_path / 'y.npy'}", env={"KN_CPU": level, "KN_CODE": "x86", "KN_STREAM": 1, "KN_ALONE": 1, "KN_THREADS": threads})
        got[m, threads] = np.load(tmp_path / "y.npy")
    for y in got.values():
        assert y[:rows].tobytes() == got[rows + 1, 1][:rows].tobytes()
    x = x.astype(np.float64)
    d = x - x.mean(axis=1, keepdims=True)
    want = d * np.sqrt((d * d).sum(axis=1, keepdims=True))
    assert np.allclose(got[rows + 1, 1], want, rtol=1e-4, atol=1e-3 * n ** 0.5)


@pytest.mark.parametrize("rows, k, n, strip", [(64, 512, 784, 192), (64, 256, 784, 0), (64, 2048, 160, 0), (12, 512, 784, 0)])
def test_the_next_strip(koine, tmp_path, rows, k, n, strip):
    """Of what a tile's sums read in place: behind the second-level cache, by rows far apart, and gone through again meanwhile."""
    opts, code = lists(koine, tmp_path / "p.kn", sums_and(k, n, rows), KN_CPU="avx512")
    assert (strip in [ahead for ahead, _ in opts]) == (strip > 0)
    assert len(re.findall(r"prefetcht1 \[", code)) == strip // 64


def linear(m, k, n):
    return (f'%x = param "x" : f32 [{m}, {k}]\n%w = param "w" : f32 [{n}, {k}]\n%a = reshape %x ({m}, 1, {k})\n%b = expand %a ({m}, {n}, {k})\n'
            f'%c = reshape %w (1, {n}, {k})\n%d = expand %c ({m}, {n}, {k})\n%p = mul %b %d\n%y = reduce add %p axes=(2)\nout "y" = %y\n')


@pytest.mark.parametrize("m, k, n, want", [
    (32, 512, 1024, "prefetcht0"),   # sixteen KiB a tile
    (32, 4096, 128, "prefetcht1"),   # what the first cache does not have
    (32, 4100, 128, None),           # no whole lines
    (32, 512, 256, None),            # the caches have it
])
def test_the_next_tiles_rows(koine, tmp_path, m, k, n, want):
    """Weights that a tile goes along, eight rows at a time, element by element: those of the next one, a line of each every sixteen terms."""
    opts, code = lists(koine, tmp_path / "p.kn", linear(m, k, n), KN_CPU="avx512")
    asked = re.findall(r"(prefetcht\d) \[.*?\+(\d+)\]", code)
    assert ((8 * k * 4, 2) in opts) == bool(want), opts
    assert asked == ([(want, str((8 + r) * k * 4)) for r in range(8)] if want else []), asked


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2"])
@pytest.mark.parametrize("m, k, n", [(32, 512, 1024), (32, 4096, 128)])
def test_the_next_tiles_rows_are_any_threads(koine, tmp_path, level, m, k, n):
    p = tmp_path / "p.kn"
    p.write_text("koine 1 tensor\n" + linear(m, k, n))
    got = [koine("run", p, env={"KN_CPU": level, "KN_THREADS": t}).stdout for t in (1, 2)]
    assert got[0] == got[1]


@pytest.mark.parametrize("m, k, n, rows, hint", [
    (128, 768, 3072, 3, "prefetcht0"),     # two panels go along a tile's rows: each asks for half of the next one's
    (192, 512, 3072, 2, "prefetcht0"),     # three
    (64, 768, 3072, 6, "prefetcht0"),      # one
    (128, 3072, 768, 3, "prefetcht1"),
])
def test_a_strips_rows_are_asked_for_once(koine, tmp_path, m, k, n, rows, hint):
    opts, code = lists(koine, tmp_path / "p.kn", linear(m, k, n), KN_CPU="fp16")
    asked = re.findall(r"(prefetcht\d) \[.*?\+(\d+)\]", code)
    assert (6 * k * 4, 2) in opts and asked == [(hint, str((6 + r) * k * 4)) for r in range(rows)], (opts, asked)


def test_a_strips_panels(koine, tmp_path):
    """Lines of local memory that squares of x are copied to: those of the next eight terms, of four vectors each."""
    opts, code = lists(koine, tmp_path / "p.kn", linear(128, 768, 3072), KN_CPU="fp16")
    asked = [int(n) for n in re.findall(r"prefetchw \[.*?\+(\d+)\]", code)]
    assert sorted(asked) == [2048 + 64 * i for i in range(32)] and any(bytes == 2048 for bytes, _ in opts), (opts, asked)
    assert "prefetchw" not in lists(koine, tmp_path / "p.kn", linear(128, 768, 3072), KN_CPU="avx512")[1], "no strips"


@pytest.mark.parametrize("n, across", [(3073, True), (3072 + 16, False)])
def test_results_across_lines(koine, tmp_path, n, across):
    """Rows of results that begin within lines: of each of a square's sixteen rows the second line that the next square is stored to."""
    opts, code = lists(koine, tmp_path / "p.kn", linear(128, 768, n), KN_CPU="fp16")
    asked = [int(b) for b in re.findall(r"prefetchw \[.*?\+(\d+)\]", code)]
    assert ((124, 0) in opts) == across and {124 + 4 * n * r for r in range(16)} <= set(asked) or not across, (opts, asked)
    assert across or not any(b % 64 == 60 for b in asked)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("k, times", [(64, 4), (250, 5), (251, 0)])
def test_what_is_read_and_then_stored_in_place(koine, tmp_path, k, times, stream):
    """Weights and their moments, added to a sum: each line of the next tile's rows once, though two vectors meet it, however large they are."""
    m, n = 96, 4096
    p = tmp_path / "p.kn"
    p.write_text(f"""koine 1 rangeify
%1 = param slot=0 : f32 [{m * n}]
%2 = param slot=1 : f32 [{k * m}]
%3 = param slot=2 : f32 [{k * n}]
%4 = range 0 LOOP {m} : index
%5 = range 1 LOOP {n} : index
%6 = range 2 REDUCE {k} : index
%7 = mul %4 {n} : index
%8 = add %7 %5 : index
%9 = index %1 %8 : f32
%10 = mul %6 {m} : index
%11 = add %4 %10 : index
%12 = index %2 %11 : f32
%13 = mul %6 {n} : index
%14 = add %5 %13 : index
%15 = index %3 %14 : f32
%16 = mul %15 %12 : f32
%17 = reduce add %16 %6 : f32
%18 = sub %9 %17 : f32
%19 = store %9 %18
%20 = end %19 %4 %5
%21 = sink %20 name="r"
%22 = buffer 0 GLOBAL size={m * n} : f32 [{m * n}]
%23 = buffer 1 GLOBAL size={k * m} : f32 [{k * m}]
%24 = buffer 2 GLOBAL size={k * n} : f32 [{k * n}]
%25 = call %21..%24
%26 = linear %25
in "w" = %22 : f32 [{m * n}]
in "a" = %23 : f32 [{k * m}]
in "b" = %24 : f32 [{k * n}]
root %26
out "y" = %22 : f32 [{m * n}]
""")
    env = {"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1} | ({"KN_STREAM": 1} if stream else {})
    optimized, code = koine("compile", p, "--to", "optimize", env=env).stdout, koine("compile", p, "--target", "x86", env=env).stdout
    assert len(re.findall(r"prefetch \d+ \d+(?: #0)?[,\]]", optimized)) == 1, optimized
    lanes = {int(a): [int(n) for x, n in re.findall(r"split (\d+) (\d+) u", optimized) if x == a] for a in "01"}
    rows, vectors = lanes[0][0], lanes[1][-1]
    asked = [int(a) for a in re.findall(r"prefetchw \[.*?\+(\d+)\]", code)]
    at_a_time = -(-rows // times) if times else rows
    assert len(asked) == len(set(asked)) == at_a_time * (vectors + (times > 0)), (asked, rows, vectors, optimized)
    assert len({a // (4 * n) for a in asked}) == at_a_time


def transposed(rows, cols):
    return f'%x = param "x" : f32 [{rows}, {cols}]\n%t = permute %x order=(1, 0)\n%y = mul %t 3.0\nout "y" = %y\n'


@pytest.mark.parametrize("rows, cols, ahead, lines", [
    (512, 1024, 256, 128),           # 128 rows, four lines further on in each
    (512, 1056, 256, 128),
    (512, 16384, 256, 128),
    (512, 32768, 256, 64),           # fewer of rows so far apart
    (528, 1024, 256, 128),           # what a cut leaves asks for nothing
    (512, 512, 256, 128),
    (512, 256, 128 * 256 * 4, 128),  # of short rows the next block's
    (512, 128, 0, 0),                  # too few lines in a row
])
def test_squares_rows(koine, tmp_path, rows, cols, ahead, lines):
    """Of squares, which are read column after column: each line asks for one of its row, or of the next block's."""
    opts, code = lists(koine, tmp_path / "p.kn", transposed(rows, cols), KN_CPU="avx512", KN_STREAM=1)
    asked = [int(n) for n in re.findall(r"prefetcht1 \[.*?\+(\d+)\]", code)]
    assert asked == [ahead + row * cols * 4 for row in range(lines)] and ((ahead, 1) in opts) == bool(lines), (opts, asked)
    assert "prefetch" not in lists(koine, tmp_path / "p.kn", transposed(rows, cols), KN_CPU="avx512", KN_STREAM=0)[1]


@pytest.mark.parametrize("rows, cols, level, lines, apart", [
    (512, 512, "avx512", 8, 1), (512, 16384, "avx512", 8, 1), (16384, 512, "avx512", 8, 1), (528, 512, "avx512", 8, 1),
    (520, 512, "avx512", 8, 0),                                                                # of rows that are no whole lines apart
    (2048, 2048, "avx512", 16, 1), (2048, 8192, "avx512", 16, 1), (8192, 2048, "avx512", 16, 1),
    (2064, 2048, "avx512", 16, 1), (2192, 2048, "avx512", 8, 1), (2048, 16384, "avx512", 8, 1), # what is left is cut off; no whole blocks; rows far apart
    (512, 32768, "avx512", 4, 1), (32768, 512, "avx512", 4, 1),                                # and further
    (512, 512, "fp16", 2, 0), (2048, 2048, "fp16", 2, 0), (520, 512, "fp16", 2, 0),            # where the hardware fetches streams
])
def test_lines_beside_each_other(koine, tmp_path, rows, cols, level, lines, apart):
    """Past the caches some lines of a row are written one soon after another; where stores wait for memory more of them, each an iteration further on than
    the one before, as long as rows are not far apart."""
    program, env = (koine, tmp_path / "p.kn", transposed(rows, cols)), {"KN_CPU": level, "KN_STREAM": 1}
    code = lists(*program, **env)[1]
    assert len(re.findall(r"vmovntps ZMMWORD PTR \[.*\], zmm", code[:code.index("    jl ")])) == 16 * lines and "nothing spilled" in code
    ops = stage(*program, "--to", "optimize", **env)
    assert re.findall(r"rotate \d+ (\d+)", ops) == [str(apart)] * bool(apart), ops


def test_nor_where_another_matrix_is_read_beside_it(koine, tmp_path):
    text = ('%x = param "x" : f32 [2048, 2048]\n%a = param "a" : f32 [2048, 2048]\n%t = permute %x order=(1, 0)\n%y = mul %t %a\nout "y" = %y\n')
    ops = stage(koine, tmp_path / "p.kn", text, "--to", "optimize", KN_CPU="avx512", KN_STREAM=1)
    assert "rotate" not in ops and re.search(r"split \d+ 4 u", ops), ops


@pytest.mark.parametrize("rows, cols, lines, apart, threads", [
    (512, 2048, 3, 6, 1), (8192, 2048, 3, 4, 1), (32768, 2048, 3, 1, 1), (512, 2064, 3, 6, 1), (384, 2048, 3, 6, 1), (512, 4096, 3, 6, 2),
    (512, 512, 3, 0, 1),                              # not of short rows
    (520, 2064, 2, 0, 1),                             # nor where rows of results are no whole lines apart
    (528, 2048, 2, 12, 1), (528, 4096, 2, 12, 2),     # no multiple of eight lines apart
    (32784, 2048, 2, 1, 1),
])
def test_lines_where_much_is_under_way(koine, tmp_path, rows, cols, lines, apart, threads):
    """There three lines are written side by side, or two, and the next two squares of a long row are asked for, once. Rows that are whole lines apart are
    read some lines from each other, as far as what is stored is not too far apart. Each square is read as rows, all of them before they are permuted, and
    stored before the next one is read, whatever is left over."""
    program = (koine, tmp_path / "p.kn", transposed(rows, cols))
    env = {"KN_CPU": "avx512", "KN_STREAM": 1, "KN_AHEAD": 16384, "KN_THREADS": threads, "KN_ALONE": 1}
    opts, code = lists(*program, **env)
    first = code[:code.index("    jl ")]
    assert "nothing spilled" in code and "YMMWORD" not in first
    assert len(re.findall(r"vmovntps ZMMWORD PTR \[.*\], zmm", first)) == 16 * lines
    read = [line.split()[0] for line in first.splitlines() if re.match(r" +(vmovups zmm\d+, ZMM|vunpck)", line)]
    assert [k for k, _ in itertools.groupby(op[:5] for op in read)] == ["vmovu", "vunpc"] * lines
    once = cols > 512
    assert opts == [(128 if once else 16 * lines * cols * 4, 1)]
    assert [len(re.findall(rf"prefetch{to} \[", code)) for to in ("nta", "t1")] == [16 * lines * once, 16 * lines * (not once)]
    ops = stage(*program, "--to", "optimize", **env)
    assert re.findall(r"rotate \d+ (\d+)", ops) == [str(apart)] * bool(apart), ops


def test_what_a_sum_goes_along_too_is_not_rotated(koine, tmp_path):
    """What is refused at last must not cost all that was chosen before it."""
    x, wide = "%x = permute %t order=(1, 0)\n", norm(100000, 8192).split("\n", 1)[1]
    text = f'%t = param "x" : f32 [8192, 100000]\n{x}{wide}'
    made = stage(koine, tmp_path / "p.kn", text, "--to", "optimize", KN_CPU="avx512", KN_AHEAD=16384)
    assert "stream 0 0" in made and "prefetch 0 128" in made and "rotate" not in made


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows, cols, ahead", [(64, 512, 0), (160, 528, 0), (200, 1001, 0), (2064, 2048, 0), (256, 2048, 16384), (384, 2304, 16384), (400, 2304, 16384)])
def test_it_moves_no_element_of_a_block(koine, tmp_path, level, rows, cols, ahead):
    p, x = tmp_path / "p.kn", np.random.default_rng(rows).standard_normal((rows, cols)).astype("f4")
    p.write_text("koine 1 tensor\n" + transposed(rows, cols))
    np.save(tmp_path / "x.npy", x)
    for threads in (1, 2):
        koine("run", p, "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", env={"KN_CPU": level, "KN_STREAM": 1, "KN_AHEAD": ahead, "KN_THREADS": threads, "KN_ALONE": 1})
        assert np.array_equal(np.load(tmp_path / "y.npy"), x.T * np.float32(3))


def looked_up(words, n, width):
    """Rows of a table that numbers lead to, those beyond it zeros."""
    return (f'%i = param "i" : i32 [{n}]\n%x = param "x" : f32 [{words}, {width}]\n%o = reshape 1:i32 (1)\n%s = expand %o ({words})\n'
            f'%p = pad %s ({words - 1}) ({2 * words - 1})\n%p2 = reshape %p (1, {2 * words - 1})\n%px = expand %p2 ({words + 1}, {2 * words - 1})\n'
            f'%p1 = reshape %px ({(words + 1) * (2 * words - 1)})\n%c = shrink %p1 (0) ({2 * words * words})\n%w = reshape %c ({words}, {2 * words})\n'
            f'%v = shrink %w (0, 0) ({words}, {words})\n%k = reduce add %v axes=(1)\n%r = reshape %k (1, {words}, 1)\n%t = sub %r 1\n'
            f'%te = expand %t ({n}, {words}, {width})\n%ir = reshape %i ({n}, 1, 1)\n%ie = expand %ir ({n}, {words}, {width})\n%h = eq %te %ie\n'
            f'%xr = reshape %x (1, {words}, {width})\n%xe = expand %xr ({n}, {words}, {width})\n%y = where %h %xe -0.0\n%z = reduce add %y axes=(1)\n'
            f'%q = reshape %z ({n}, {width})\nout "y" = %q\n')


@pytest.mark.parametrize("width, times", [(16, 0), (32, 8), (128, 8), (256, 6), (768, 2), (2048, 1), (5000, 1)])
def test_where_numbers_lead(koine, tmp_path, width, times):
    """A row that a number leads to is asked for while those before it are copied: one iteration, or several, ahead; the last ones read no number beyond."""
    opts, code = lists(koine, tmp_path / "p.kn", looked_up(40000, 100, width), KN_CPU="avx512", KN_STREAM=1 << 21)
    assert [b for b, s in opts if s == 2] == [times] * (times > 0)
    assert bool(re.search(r"cmovge (\w+), \w+ .*\n\s+movsxd \w+, DWORD PTR \[\1\]", code)) == (times > 0)
    asked = re.findall(r"prefetcht0 \[(\w+)\+(\w+)\*4(?:\+(\d+))?\].*\n\s+vmovups \w+, \w+ PTR \[(\w+)\+(\w+)\*4(?:\+(\d+))?\]", code)
    assert bool(asked) == (times > 0) and all(a[1:3] == a[4:6] and a[0] != a[3] for a in asked), "what is read, counted from somewhere else"
    if times:
        assert re.search(rf"lea (\w+), \[\w+\+{times}\] .*\n\s+cmp \1, 100 ", code)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n, width", [(1, 64), (2, 768), (7, 64), (100, 100), (33, 257)])
def test_looking_up_gives_the_rows(koine, tmp_path, level, n, width):
    p, rng, words = tmp_path / "p.kn", np.random.default_rng(n), 200
    p.write_text("koine 1 tensor\n" + looked_up(words, n, width))
    x, i = rng.standard_normal((words, width)).astype("f4"), rng.integers(-3, words + 3, n).astype("i4")
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "i.npy", i)
    want = np.where(((i >= 0) & (i < words))[:, None], x[np.clip(i, 0, words - 1)], 0)
    for threads in 1, 2, 5:
        koine("run", p, "--in", f"x={tmp_path}/x.npy", "--in", f"i={tmp_path}/i.npy", "--out", f"y={tmp_path}/y.npy",
              env={"KN_CPU": level, "KN_STREAM": 1 << 10, "KN_THREADS": threads, "KN_ALONE": 1})
        assert np.array_equal(np.load(tmp_path / "y.npy"), want)
