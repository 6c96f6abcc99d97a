"""Sums of products of bf16 and bytes as dot products (TC, 3_optimize/dots.c): matrix products of all layouts and remainders against
numpy, on the processor where it has the instructions, and from the list of instructions in the interpreter everywhere."""
import re

import numpy as np
import pytest

ROW = {"bf16": "VDPBF16PS", "i8": "VPDPBUSD", "u8": "VPDPBUSD"}
TILE = {("bf16", "bf16"): "TDPBF16PS", ("i8", "i8"): "TDPBSSD", ("u8", "u8"): "TDPBUUD", ("u8", "i8"): "TDPBUSD", ("i8", "u8"): "TDPBUSD"}
SUM = {"bf16": "f32", "i8": "i32", "u8": "i32"}

# batch, rows, terms, columns
SHAPES = [(1, 16, 64, 64), (1, 33, 70, 50), (1, 17, 67, 129), (2, 24, 37, 48), (1, 8, 512, 16), (1, 65, 31, 97), (1, 9, 258, 200),
          (1, 40, 1003, 70), (1, 331, 1804, 100)]


def program(x, y, shape, a_turned, b_turned):
    """x, y: dtypes of the factors. Inputs are f32 or i32, converted by a kernel of their own."""
    n, m, k, j = shape
    s, of = SUM[x], {"bf16": "f32"}.get(x, "i32")
    sa = (n, k, m) if a_turned else (n, m, k)
    sb = (n, j, k) if b_turned else (n, k, j)
    lines = ["koine 1 tensor"]
    for name, d, dims, turned in (("a", x, sa, a_turned), ("b", y, sb, b_turned)):
        lines += [f'%{name} = param "{name}" : {of} {list(dims)}', f"%{name}1 = cast %{name} : {d}", f"%{name}2 = contiguous %{name}1"]
        lines += [f"%{name}3 = permute %{name}2 order=(0, 2, 1)" if turned else f"%{name}3 = reshape %{name}2 {dims}"]
        lines += [f"%{name}4 = cast %{name}3 : {s}"]
    lines += [f"%a5 = reshape %a4 ({n}, {m}, {k}, 1)", f"%b5 = reshape %b4 ({n}, 1, {k}, {j})"]
    lines += [f"%a6 = expand %a5 ({n}, {m}, {k}, {j})", f"%b6 = expand %b5 ({n}, {m}, {k}, {j})"]
    lines += ["%p = mul %a6 %b6", "%s = reduce add %p axes=(2)", f"%o = reshape %s ({n}, {m}, {j})", 'out "o" = %o', ""]
    return "\n".join(lines), sa, sb


def data(x, shape, seed):
    r = np.random.default_rng(seed)
    if x == "bf16":
        return (r.standard_normal(shape).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    lo, hi = (0, 256) if x == "u8" else (-128, 128)
    v = r.integers(lo, hi, shape)
    v[..., 0], v[..., -1] = lo, hi - 1
    return v.astype(np.int32)


def product(a, b, a_turned, b_turned):
    wide = [v.astype(np.float64 if v.dtype == np.float32 else np.int64) for v in (a, b)]
    return np.matmul(wide[0].swapaxes(1, 2) if a_turned else wide[0], wide[1].swapaxes(1, 2) if b_turned else wide[1])


def close(got, want, x, k):
    if x != "bf16":
        return np.array_equal(got, want)
    return np.abs(got - want).max() <= k * 2.0**-22 * np.abs(want).max() + 1e-6


CASES = [(x, y, s, at, bt) for s in SHAPES for x, y in (("bf16", "bf16"), ("i8", "i8"), ("u8", "i8"), ("i8", "u8"))
         for at, bt in ((0, 0), (0, 1), (1, 0), (1, 1)) if (x, y) in (("bf16", "bf16"), ("i8", "i8")) or not (at or bt)]


@pytest.fixture
def case(tmp_path, request):
    x, y, shape, at, bt = request.param
    text, sa, sb = program(x, y, shape, at, bt)
    p = tmp_path / "p.kn"
    p.write_text(text)
    a, b = data(x, sa, 1), data(y, sb, 2)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    args = ["--in", f"a={tmp_path}/a.npy", "--in", f"b={tmp_path}/b.npy", "--out", f"o={tmp_path}/o.npy"]
    return p, args, tmp_path / "o.npy", product(a, b, at, bt), x, shape[2]


def name(c):
    return f"{c[0]}-{c[1]}-{'x'.join(map(str, c[2]))}-{'t' if c[3] else 'n'}{'t' if c[4] else 'n'}"


@pytest.mark.runs
@pytest.mark.parametrize("case, level", [(c, level) for c in CASES for level in ("dot", "avx512", "avx2", "sse2") if level == "dot" or c[2][2] == 67],
                         ids=lambda v: v if isinstance(v, str) else name(v), indirect=["case"])
def test_products(koine, case, level):
    """Where there are no such instructions, too."""
    p, args, out, want, x, k = case
    koine("run", p, *args, env={"KN_CPU": level, "KN_VERIFY": "1"})
    assert close(np.load(out), want, x, k)


@pytest.mark.parametrize("case", [c for c in CASES if c[2] in SHAPES[:3]], ids=name, indirect=True)
def test_the_list_of_instructions_interpreted(koine, case, tmp_path):
    p, args, out, want, x, k = case
    text = koine("compile", p, "--target", "x86", "--to", "plan", env={"KN_CPU": "dot", "KN_THREADS": "1"}).stdout
    q = tmp_path / "q.kn"
    q.write_text(text)
    assert f'ins "{ROW[x]}"' in text
    koine("run", q, *args, "--device", "INTERP")
    assert close(np.load(out), want, x, k)
    assert f'ins "{ROW[x]}"' not in koine("compile", p, "--target", "x86", "--to", "select", env={"KN_CPU": "avx512"}).stdout


@pytest.mark.parametrize("level", ["dot", "amx"])
@pytest.mark.parametrize("case", [CASES[0]], ids=name, indirect=True)
def test_after_expand_an_instruction_has_more_lanes_than_a_register(koine, case, tmp_path, level):
    p, args, out, want, x, k = case
    q = tmp_path / "q.kn"
    q.write_text(koine("compile", p, "--target", "x86", "--to", "expand", env={"KN_CPU": level, "KN_THREADS": "1"}).stdout)
    assert f'ins "{ROW[x]}"' in q.read_text()
    koine("run", q, *args, "--device", "INTERP")
    assert close(np.load(out), want, x, k)


# ---- AMX: the same as products of tiles. Run where the processor has them, interpreted everywhere. ----
TILES = [(x, y, s, at, bt) for s in [(1, 32, 128, 64), (1, 50, 200, 81), (2, 35, 131, 32)]
         for x, y in (("bf16", "bf16"), ("i8", "i8"), ("u8", "i8"), ("u8", "u8")) for at, bt in ((0, 0), (0, 1), (1, 0), (1, 1))
         if (x, y) != ("u8", "i8") or not (at or bt)]


# Rows of more than four kilobytes: the sum goes in blocks, what is summed up so far is kept in memory and is what the tiles begin as.
LONG = [("bf16", "bf16", (1, 64, 2560, 64), 0, 0), ("bf16", "bf16", (1, 96, 3072, 32), 0, 0), ("bf16", "bf16", (1, 43, 2112, 70), 0, 0),
        ("i8", "i8", (1, 64, 4608, 64), 0, 0), ("u8", "i8", (1, 32, 6144, 96), 0, 0), ("u8", "u8", (1, 48, 4608, 38), 0, 0),
        ("bf16", "bf16", (1, 288, 2304, 64), 0, 0), ("i8", "i8", (1, 160, 4608, 66), 0, 0)]


@pytest.mark.parametrize("case", LONG, ids=name, indirect=True)
def test_tiles_begin_as_what_is_kept(koine, case, tmp_path):
    p, args, out, want, x, k = case
    env = {"KN_CPU": "amx", "KN_THREADS": "1", "KN_VERIFY": "1", "KN_CODE": "x86"}
    for stage in ("optimize", "expand", "plan"):
        text = koine("compile", p, "--target", "x86", "--to", stage, env=env).stdout
        q = tmp_path / "q.kn"
        q.write_text(text)
        parts = re.search(r"rows \d+ \d+( top)?", text)  # top: in each tile, where no tiles divide rows and columns
        assert parts and (parts[1] is not None) == any(n % 32 for n in want.shape[1:])
        koine("run", q, *args, "--device", "INTERP")
        assert close(np.load(out), want, x, k)
    whole = not any(n % 16 for n in want.shape[1:])
    added = "VADDPS" if x == "bf16" else "VPADDD"
    assert not whole or f'"{added}"' not in text  # nothing is added outside the tiles


# Remainders of each kind: none that threads leave may add up otherwise.
THREADS = [("bf16", "bf16", s, 0, 0) for s in [(1, 50, 200, 81), (1, 40, 1024, 400), (1, 200, 96, 331), (1, 170, 1056, 130), (3, 33, 64, 40),
                                               (1, 64, 1024, 136), (1, 256, 64, 1000), (1, 170, 2304, 130), (1, 112, 128, 64), (1, 144, 96, 64)]]
THREADS += [("bf16", "bf16", s, at, bt) for s in [(1, 208, 365, 467), (1, 101, 77, 330), (2, 90, 40, 75)] for at, bt in ((0, 1), (1, 0), (1, 1))]


@pytest.mark.parametrize("case", THREADS, ids=name, indirect=True)
def test_the_same_tiles_on_any_number_of_threads(koine, case, tmp_path):
    """What is no whole tile adds up in another order, and is no reason to use one thread."""
    p, args, out, want, x, k = case
    got, rows = [], want.shape[1]
    for threads in ("1", "2", "5"):
        env = {"KN_CPU": "amx", "KN_THREADS": threads, "KN_ALONE": "1", "KN_CODE": "x86"}
        q = tmp_path / "q.kn"
        plan = koine("compile", p, "--target", "x86", "--to", "plan", env=env).stdout
        product = re.search(r'name="r_[^\n]*', plan)[0]
        assert (threads != "2" or rows < 64) or "threads=2" in product
        q.write_text(plan)
        koine("run", q, *args, "--device", "INTERP")
        got.append(np.load(out))
    assert close(got[0], want, x, k) and all(np.array_equal(g, got[0]) for g in got)


@pytest.mark.parametrize("case", TILES, ids=name, indirect=True)
def test_tiles(koine, case, tmp_path):
    p, args, out, want, x, k = case
    text = koine("compile", p, "--target", "x86", "--to", "plan", env={"KN_CPU": "amx", "KN_THREADS": "1", "KN_VERIFY": "1"}).stdout
    q = tmp_path / "q.kn"
    q.write_text(text)
    y = p.read_text().split("%b1 = cast %b : ")[1].split()[0]
    assert f'ins "{TILE[x, y]}"' in text
    koine("run", q, *args, "--device", "INTERP")
    assert close(np.load(out), want, x, k)
    listing = koine("compile", p, "--target", "x86", env={"KN_CPU": "amx", "KN_THREADS": "1"}).stdout
    assert listing.count("ldtilecfg") == listing.count("tilerelease") == 1 and "tdp" in listing


def test_results_are_rounded_by_one_instruction(koine, tmp_path):
    """The processor's tiles flush subnormal results (the interpreter's do not), so what flushes them too rounds as the rest does."""
    text, sa, sb = program("bf16", "bf16", (1, 32, 1024, 96), 0, 0)
    rounded = text.replace('out "o" = %o', '%o1 = cast %o : bf16\n%o2 = contiguous %o1\n%o3 = cast %o2 : f32\nout "o" = %o3')
    a, b = data("bf16", sa, 1), data("bf16", sb, 2)
    a[0, :2] = 0
    a[0, :3, 5] = 2.0**-126, np.inf, np.nan  # rows of subnormal results, infinite ones and NaNs
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    got = []
    for k, program_text in enumerate((text, rounded)):
        p, q, out = tmp_path / "p.kn", tmp_path / "q.kn", tmp_path / f"{k}.npy"
        p.write_text(program_text)
        plan = koine("compile", p, "--target", "x86", "--to", "plan", env={"KN_CPU": "amx", "KN_THREADS": "1", "KN_CODE": "x86"}).stdout
        assert ("VCVTNEPS2BF16" in plan.split("TDPBF16PS")[-1]) == k
        q.write_text(plan)
        koine("run", q, "--in", f"a={tmp_path}/a.npy", "--in", f"b={tmp_path}/b.npy", "--out", f"o={out}", "--device", "INTERP")
        got.append(np.load(out))
    bits = np.where(np.abs(got[0]) < 2.0**-126, np.copysign(np.float32(0), got[0]), got[0]).view(np.uint32)
    up = (bits + (bits >> 16 & 1) + 0x7FFF) & 0xFFFF0000
    want = np.where(np.isnan(got[0]), np.float32(np.nan), up.view(np.float32))
    assert np.isnan(want).any() and np.isinf(want).any() and ((want == 0) & (got[0] != 0)).any()
    assert np.array_equal(got[1], want, equal_nan=True)


# A tile that one product reads, where rows are two or four: neither is an instruction's memory operand.
ONE = [("bf16", "bf16", (1, 16, 64, 16), 0, 0), ("bf16", "bf16", (1, 16, 64, 16), 1, 1), ("u8", "i8", (1, 16, 128, 16), 0, 0),
       ("i8", "i8", (1, 16, 128, 16), 0, 0), ("u8", "u8", (1, 16, 128, 16), 0, 0)]


@pytest.mark.parametrize("case", ONE, ids=name, indirect=True)
def test_one_tile(koine, case):
    assert "tdp" in koine("compile", case[0], "--target", "x86", env={"KN_CPU": "amx", "KN_THREADS": "1"}).stdout


@pytest.mark.runs("amx")
@pytest.mark.parametrize("case", TILES + LONG + ONE, ids=name, indirect=True)
def test_tiles_of_the_processor(koine, case):
    p, args, out, want, x, k = case
    koine("run", p, *args, env={"KN_CPU": "amx"})
    assert close(np.load(out), want, x, k)


@pytest.mark.parametrize("rows", [16, 48, 112])
def test_sixteen_rows_that_are_left_are_tiles(koine, tmp_path, rows):
    """Their lanes share axes with those of the nest before, in whatever order; on some numbers of threads they were tiles, on others not."""
    p = tmp_path / "p.kn"
    p.write_text(program("bf16", "bf16", (1, rows, 128, 64), 0, 0)[0])
    code = listing_of(koine, p)
    assert "tdpbf16ps" in code and "vdpbf16ps" not in code


def gate(x, shape, a_turned, b_turned):
    """Two products of the same rows, multiplied: a gate and what it lets through."""
    text = program(x, x, shape, a_turned, b_turned)[0].split("\n")
    other = [re.sub(r"%([bps]\d?)\b", r"%\1x", line).replace('param "b"', 'param "c"') for line in text if re.match(r"%[bps]", line)]
    n, m, k, j = shape
    return "\n".join(text[:-3] + other + ["%t = mul %s %sx", f"%o = reshape %t ({n}, {m}, {j})", 'out "o" = %o', ""])


# No size is so odd that whole tiles would not do for 16 rows and columns: the last ones lap, and of terms that are left both sides are copied.
ODD = [(x, s, at, bt) for x in ("bf16", "i8") for s in [(1, 33, 256, 49), (1, 500, 96, 130), (1, 64, 300, 64), (1, 47, 77, 501), (2, 100, 1033, 70)]
       for at, bt in ((0, 0), (0, 1), (1, 0), (1, 1))]


@pytest.mark.parametrize("x, shape, at, bt", ODD)
def test_whole_tiles_whatever_the_size(koine, tmp_path, x, shape, at, bt):
    p = tmp_path / "p.kn"
    for both, text in enumerate((program(x, x, shape, at, bt)[0], gate(x, shape, at, bt))):
        if both and at:
            continue  # one copy of rows is for one sum
        p.write_text(text)
        code = listing_of(koine, p)
        tiles = code.count("tdp")
        assert "vdpbf16ps" not in code and "vpdpbusd" not in code
        assert tiles == (1 + both) * (2 if shape[3] == 70 else 4) * (2 if shape[2] % (64 if x == "i8" else 32) else 1)


@pytest.mark.runs("amx")
@pytest.mark.parametrize("x, shape, at, bt", ODD)
def test_gates_of_the_processor(koine, tmp_path, x, shape, at, bt):
    p, out = tmp_path / "p.kn", tmp_path / "o.npy"
    p.write_text(gate(x, shape, at, bt))
    n, m, k, j = shape
    a, b, c = (data(x, s, i) % 4 if x == "i8" else data(x, s, i) for i, s in
               enumerate([(n, k, m) if at else (n, m, k), *[(n, j, k) if bt else (n, k, j)] * 2]))
    args = ["--out", f"o={out}"]
    for name_, v in (("a", a), ("b", b), ("c", c)):
        np.save(tmp_path / f"{name_}.npy", v)
        args += ["--in", f"{name_}={tmp_path}/{name_}.npy"]
    want, got = product(a, b, at, bt) * product(a, c, at, bt), []
    for threads in (1, 2, 3):
        koine("run", p, *args, env={"KN_CPU": "amx", "KN_THREADS": threads, "KN_ALONE": 1})
        got.append(np.load(out))
    assert np.array_equal(got[0], want) if x == "i8" else np.abs(got[0] - want).max() <= k * 2.0**-20 * np.abs(want).max()
    assert all(np.array_equal(g, got[0]) for g in got)


def test_words_along_a_sum_are_read_as_vectors(koine, tmp_path):
    """Of 104 words along the sum 96 are vectors and the rest is cut off: a vector of words is not read in part, but byte by byte."""
    p = tmp_path / "p.kn"
    for rows in (31, 310):
        p.write_text(program("i8", "i8", (1, rows, 416, 580), 0, 1)[0])
        code = listing_of(koine, p, "dot")
        assert "vpdpbusd" in code and len(re.findall(r"^    (movzx|movsx|vpinsr)", code, re.M)) <= 256  # eight words


def test_rows_that_lie_along_columns_are_transposed_in_squares(koine, tmp_path):
    """A tile's terms lie along its rows: what lies along the sum's columns is copied by vectors, eight of which are stored as rows."""
    p = tmp_path / "p.kn"
    p.write_text(program("bf16", "bf16", (1, 512, 1024, 512), 1, 0)[0])
    code = listing_of(koine, p)
    assert "tdpbf16ps" in code and "vunpcklps" in code and not re.search(r"^    (movzx|vmovd) ", code, re.M)


# Sums so long that a panel, or a strip of copied rows, is more than a cache holds; those of sizes that tiles do not divide go in no parts.
@pytest.mark.parametrize("shape, at", [((1, 64, 40000, 64), 0), ((1, 64, 40000, 64), 1), ((1, 50, 40000, 50), 0), ((1, 50, 16000, 50), 1), ((1, 50, 16384, 70), 1)])
def test_long_sums_go_by_tiles(koine, tmp_path, shape, at):
    p = tmp_path / "p.kn"
    p.write_text(program("bf16", "bf16", shape, at, 0)[0])
    code = listing_of(koine, p)
    assert "tdpbf16ps" in code and "vdpbf16ps" not in code


def test_few_rows_by_large_weights_go_in_blocks_of_panels(koine, tmp_path):
    """A panel's line of each row, far from the next one's, would come by itself: rows are copied for many panels at once."""
    p = tmp_path / "p.kn"
    for rows in (16, 64, 100):
        p.write_text(program("bf16", "bf16", (1, rows, 1024, 2048), 0, 0)[0])
        text = koine("compile", p, "--to", "optimize", env={"KN_CPU": "amx", "KN_THREADS": "1"}).stdout
        assert "LOCAL size=262144" in text  # 1024 terms, two a word, of 512 columns


# Columns that blocks do not divide, rows that threads deal out unevenly, too few of either for whole blocks.
WIDE = [("bf16", "bf16", (1, 128, 2304, 1000), 0, 0), ("bf16", "bf16", (1, 1000, 4096, 1000), 0, 0), ("i8", "i8", (1, 144, 4608, 700), 0, 0),
        ("bf16", "bf16", (2, 300, 2560, 344), 0, 0), ("u8", "u8", (1, 2100, 4160, 330), 0, 0)]


@pytest.mark.runs("amx")
@pytest.mark.parametrize("case", WIDE, ids=name, indirect=True)
def test_parts_on_any_number_of_threads(koine, case):
    p, args, out, want, x, k = case
    got = []
    for threads in (1, 2, 3, 5):
        koine("run", p, *args, env={"KN_CPU": "amx", "KN_THREADS": threads, "KN_ALONE": 1})
        got.append(np.load(out))
    assert close(got[0], want, x, k) and all(np.array_equal(g, got[0]) for g in got)


def test_panels_lie_side_by_side(koine, tmp_path):
    """As many as a second cache holds, copied once for all rows, which go through all of them."""
    p = tmp_path / "p.kn"
    p.write_text(program("bf16", "bf16", (1, 512, 1024, 1024), 0, 0)[0])
    env = {"KN_CPU": "amx", "KN_THREADS": "1", "KN_CODE": "x86"}
    text = koine("compile", p, "--to", "optimize", env=env).stdout
    assert "LOCAL size=262144" in text  # 1024 terms, two a word, of 512 columns
    assert "rows" not in text.split("opts=")[1]  # the sum is one: a second cache keeps a strip of so short rows beside panels
    listing = koine("compile", p, "--target", "x86", env=env).stdout
    assert listing.count("tileloaddt1") == 2 * listing.count("tdpbf16ps") // 4  # the panels', not the rows' nor what is kept
    assert "vmovd " not in listing


def listing_of(koine, p, level="amx", **env):
    return koine("compile", p, "--target", "x86", env={"KN_CPU": level, "KN_THREADS": "1", "KN_CODE": "x86", "KN_STREAM": str(4 << 20)} | env).stdout


def steps_of(code):
    """The innermost loops that multiply tiles: their instructions."""
    loops = [re.findall(r"^    (\S+)", part.split("\n    jl ")[0], re.M) for part in code.split(":\n") if "\n    jl " in part]
    return [loop for loop in loops if any(i.startswith("tdp") for i in loop)]


@pytest.mark.parametrize("terms", [1024, 2048])
def test_what_is_asked_for_beside_tiles(koine, tmp_path, terms):
    """In each step a line of the next tile's results, and two of the next strip of rows (of its 32, in 16 panels or 8), which come past the first cache
    where they are so long that it would keep none of them."""
    p = tmp_path / "p.kn"
    text = program("bf16", "bf16", (1, 1024, terms, 1024), 0, 0)[0]
    p.write_text(text.replace('out "o" = %o', '%o1 = cast %o : bf16\nout "o" = %o1'))
    step, = steps_of(listing_of(koine, p))
    assert step.count("tdpbf16ps") == 4 and step.count("prefetchw") == 1
    assert step.count("prefetcht1") == (2 if terms == 1024 else 4)
    assert (step.count("tileloadd"), step.count("tileloaddt1")) == ((2, 2) if terms == 1024 else (0, 4))
    assert "prefetchw" in listing_of(koine, p, "fp16")  # as where sums take longer (tests/8_render/test_prefetch.py)


def test_long_rows_go_in_parts(koine, tmp_path):
    """Of 4096 terms 1024 at a time, for all rows and as many columns as the second cache has panels of then: what is summed up is kept, and asked for a tile
    ahead. In a kernel of three such products each has its part of the stack."""
    p = tmp_path / "p.kn"
    p.write_text(program("bf16", "bf16", (1, 512, 4096, 1024), 0, 0)[0])
    env = {"KN_CPU": "amx", "KN_THREADS": "1", "KN_CODE": "x86"}
    text = koine("compile", p, "--to", "optimize", env=env).stdout
    assert len(re.findall(r"LOCAL size=262144\b", text)) == 2 and "split 2 32 R" in text  # 512 rows' sums, 1024 terms' words, of 512 columns
    step, = steps_of(listing_of(koine, p))
    assert step.count("tdpbf16ps") == 4 and step.count("prefetchw") == 2 and step.count("prefetcht1") == 2
    lines = ["koine 1 tensor", '%x = param "x" : bf16 [1024, 4096]', "%xc = cast %x : f32", "%x1 = reshape %xc (1024, 4096, 1)", "%xe = expand %x1 (1024, 4096, 1024)"]
    for k in range(3):
        lines += [f'%w{k} = param "w{k}" : bf16 [4096, 1024]', f"%c{k} = cast %w{k} : f32", f"%r{k} = reshape %c{k} (1, 4096, 1024)", f"%e{k} = expand %r{k} (1024, 4096, 1024)",
                  f"%p{k} = mul %xe %e{k}", f"%y{k} = reduce add %p{k} axes=(1)", f'out "y{k}" = %y{k}']
    p.write_text("\n".join(lines) + "\n")
    code = listing_of(koine, p)
    assert len(steps_of(code)) == 3 and max(int(n) for n in re.findall(r"frame (\d+) bytes", code)) < 6 << 20


def test_signs_are_turned_where_words_are_copied(koine, tmp_path):
    """A tile's rows at once, whole vectors of them, and not one word after the other at each of its uses."""
    p = tmp_path / "p.kn"
    p.write_text(program("i8", "i8", (1, 64, 512, 96), 0, 0)[0])
    code = koine("compile", p, "--target", "x86", env={"KN_CPU": "dot", "KN_THREADS": "1"}).stdout
    assert "vpxord zmm" in code and "vpxord xmm" not in code


# Bytes of one sign that no tile takes: vectors of processors with AMX have none for them.
ONE_SIGN = """koine 1 optimize
%1 = range 0 LOOP 5 : index
%2 = param slot=0 : i32 [5]
%3 = index %2 %1 : i32
%4 = range 1 REDUCE 6 : index
%5 = param slot=1 : u32 [30]
%6 = mul %1 6 : index
%7 = add %6 %4 : index
%8 = index %5 %7 : u32
%9 = param slot=2 : u32 [6]
%10 = index %9 %4 : u32
%11 = ins "ROW" 0:i32 %8 %10 : i32
%12 = reduce add %11 %4 : i32
%13 = store %3 %12
%14 = end %13 %1
%15 = sink %14 name="dot" optimized=1
%16 = buffer 0 GLOBAL size=5 : i32 [5]
%17 = buffer 1 GLOBAL size=30 : u32 [30]
%18 = buffer 2 GLOBAL size=6 : u32 [6]
%19 = call %15..%18
%20 = linear %19
in "a" = %17 : u32 [5, 6]
in "b" = %18 : u32 [6]
root %20
out "o" = %16 : i32 [5]
"""


@pytest.fixture
def one_sign(tmp_path, request):
    row, of = request.param
    p, r = tmp_path / "p.kn", np.random.default_rng(7)
    p.write_text(ONE_SIGN.replace("ROW", row))
    a, b = r.integers(0, 1 << 32, (5, 6), np.uint32), r.integers(0, 1 << 32, 6, np.uint32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    args = ["--in", f"a={tmp_path}/a.npy", "--in", f"b={tmp_path}/b.npy", "--out", f"o={tmp_path}/o.npy"]
    return p, args, tmp_path / "o.npy", a.view(of).astype(np.int32) @ b.view(of).astype(np.int32), row


SIGNS = pytest.mark.parametrize("one_sign", [("VPDPBSSD", np.int8), ("VPDPBUUD", np.uint8)], ids=["i8", "u8"], indirect=True)


@SIGNS
def test_bytes_of_one_sign_without_a_tile(koine, tmp_path, one_sign):
    p, args, out, want, row = one_sign
    koine("run", p, *args, "--device", "INTERP")
    assert np.array_equal(np.load(out), want)
    q = tmp_path / "q.kn"
    q.write_text(koine("compile", p, "--target", "x86", "--to", "plan", env={"KN_CPU": "amx", "KN_THREADS": "1", "KN_VERIFY": "1"}).stdout)
    assert row not in q.read_text()
    koine("run", q, *args, "--device", "INTERP")
    assert np.array_equal(np.load(out), want)


@SIGNS
@pytest.mark.runs("amx")
def test_bytes_of_one_sign_beside_tiles(koine, one_sign):
    p, args, out, want, _ = one_sign
    koine("run", p, *args, env={"KN_CPU": "amx"})
    assert np.array_equal(np.load(out), want)
