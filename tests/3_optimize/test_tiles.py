"""What the heuristics make of a matrix product: in place or packed, along the sum or beside it, which operand is read again."""
import re

import numpy as np
import pytest

PLAIN = "%y = add %s %b"
GELU = """%h = mul %s 0.5
%e = mul %s 0.70710678
%f = exp2 %e
%g = add %f 1.0
%q = div %h %g
%r = exp2 %q
%t = sin %r
%y = mul %t %b"""


def optimized(koine, tmp_path, m, k, n, across=True, after=PLAIN, threads=1, level="avx512"):
    """x [m, k] times w [k, n] (or [n, k], if it lies along the sum): the OptOps of its one kernel, and the extents of its loops."""
    shape, order = ((n, k), "(0, 2, 1)") if across else ((k, n), "(0, 1, 2)")
    last = f"""%wp = reshape %w (1, {shape[0]}, {shape[1]})
%wq = permute %wp order={order}"""
    text = f"""koine 1 tensor
%x = param "x" : f32 [{m * k}]
%w = param "w" : f32 [{k * n}]
%b0 = param "b" : f32 [{n}]
%xr = reshape %x ({m}, {k}, 1)
%xe = expand %xr ({m}, {k}, {n})
{last}
%we = expand %wq ({m}, {k}, {n})
%p = mul %xe %we
%s = reduce add %p axes=(1)
%br = reshape %b0 (1, 1, {n})
%b = expand %br ({m}, 1, {n})
{after}
out "y" = %y
"""
    p = tmp_path / "p.kn"
    p.write_text(text)
    out = koine("compile", p, "--target", "x86", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": threads}).stdout
    loops = {i: int(e) for i, e in re.findall(r"^(%\d+) = range \d+ LOOP (\d+)", out, re.M)}
    end = re.findall(r"^%\d+ = end %\d+((?: %\d+)+)", out, re.M)[-1].split()
    return re.search(r"opts=\[(.*)\]", out)[1], [loops[i] for i in end if i in loops]


def of_more_terms(koine, tmp_path, m, k, n, times):
    """Of a sum so many times as long, which from tensors would be of parts."""
    optimized(koine, tmp_path, m, k, n)
    text = koine("compile", tmp_path / "p.kn", "--to", "rangeify").stdout
    for size in (k * m, k * n, k):
        text = re.sub(rf"\b{size}\b", str(size * times), text)
    out = koine("compile", "-", "--target", "x86", "--to", "optimize", stdin=text, env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": "1"}).stdout
    return re.search(r"opts=\[(.*)\]", out)[1]


ROOT = """%c0 = recip %b0
%c1 = sqrt %c0
%c2 = div 2.0 %c1
%cr = reshape %c2 (1, 1, {n})
%c = expand %cr ({m}, 1, {n})
%y = mul %s %c"""


def test_what_a_channel_costs_is_kept_and_packing_stays(koine, tmp_path):
    """A row that serves the whole kernel is filled by no tile: panels are packed as if it were a parameter."""
    m, k, n = 128, 3072, 768
    plain, _ = optimized(koine, tmp_path, m, k, n)
    kept, _ = optimized(koine, tmp_path, m, k, n, after=ROOT.format(m=m, n=n))
    assert "stage" in plain and plain.count("stage") == kept.count("stage"), (plain, kept)
    assert " LOCAL " in koine("compile", tmp_path / "p.kn", "--to", "rangeify").stdout


@pytest.mark.parametrize("m, k, n", [(64, 3072, 4096), (1024, 768, 768), (128, 3072, 768), (128, 3072, 769)])
def test_a_sum_along_both_operands_goes_across_the_store(koine, tmp_path, m, k, n):
    """Two vectors of x's rows, which are packed, by eight of w's, which stay where they are; of what eight do not divide the last begin earlier."""
    opts, loops = optimized(koine, tmp_path, m, k, n)
    assert "cut" not in opts and "swap 0 1" not in opts, opts
    assert re.search(r"split 0 16 u #\d+, split 0 2 u #\d+, stage 0 1", opts), opts
    assert loops == [m // 32, -(-n // 8)], loops


@pytest.mark.parametrize("n", [2304, 2305])
def test_rows_that_the_cache_has_are_packed_once(koine, tmp_path, n):
    """So that w is read from memory once; eight rows of it at a time, of which the last begin earlier."""
    opts, loops = optimized(koine, tmp_path, 128, 768, n)
    assert "stage -1 1" in opts and "cut" not in opts, opts
    assert loops == [-(-n // 8), 4], loops


@pytest.mark.parametrize("m, k, n, strip", [(128, 768, 2304, 384), (128, 3072, 768, 384), (64, 512, 1248, 96), (256, 512, 768, 192), (128, 768, 3073, 384)])
def test_rows_by_rows_go_in_strips(koine, tmp_path, m, k, n, strip):
    """Where two multiply-adds a cycle are done: tiles of 24 accumulators, all of x packed once, parts of the sum of at most 1024 terms, the next
    tile's rows of w asked for, and results, which are kept, transposed from the frame a line at a time."""
    opts, _ = optimized(koine, tmp_path, m, k, n, level="fp16")
    part, ahead = min(k, 1024), 6 * k * 4
    assert f" {strip} L #" in opts and f" {part} R #" in opts and "rows 2 " in opts, opts
    assert re.search(r"stage (-1|2) 1|split \d+ 1 L top #(\d+), stage \2 1", opts), opts
    assert re.search(r"split \d+ 6 u #\d+, split \d+ 16 u #\d+, split \d+ 4 u", opts) and f" {ahead} " in opts, opts
    code = koine("compile", tmp_path / "p.kn", "--target", "x86", env={"KN_CPU": "fp16", "KN_THREADS": 1}).stdout
    assert code.count("vshuff32x4") >= 64 and "gather" not in code and "vinsertps" not in code
    most = max(re.split(r"(?m)^\.L\d+:| jl ", re.sub(r"#.*", "", code)), key=lambda block: block.count("vfmadd231ps"))
    assert most.count("vfmadd231ps") == 4 * 24, "four terms behind each other"
    assert "vmovups" in most and "[rsp" not in most, "panels have a register of their own"
    nests = koine("compile", tmp_path / "p.kn", "--target", "x86", "--to", "optimize", env={"KN_CPU": "fp16", "KN_THREADS": 1}).stdout
    assert (f"LOOP {strip} " in nests) == (k > 1024), "one part alone is added to nothing"
    assert "rows 2 " not in optimized(koine, tmp_path, m, k, n)[0], "one a cycle: squares of eight"


@pytest.mark.parametrize("m, k, n", [(32, 768, 2304), (128, 768, 500), (128, 250, 768), (512, 768, 768), (128, 8192, 768)])
def test_what_goes_in_no_strips(koine, tmp_path, m, k, n):
    """Few rows of x; rows of w that are no strips; few terms; more of x than the second-level cache has room for."""
    assert "rows 2 " not in optimized(koine, tmp_path, m, k, n, level="fp16")[0]


@pytest.mark.parametrize("threads", [2, 3, 4, 5])
def test_threads_have_the_order_of_strips(koine, tmp_path, threads):
    opts, _ = optimized(koine, tmp_path, 128, 3072, 768, level="fp16", threads=threads)
    assert " t top" in opts and " 1024 R #" in opts, opts


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("m, k, n, threads", [(128, 768, 768, 1), (64, 3072, 192, 1), (128, 2048, 768, 3), (128, 256, 3073, 1), (96, 512, 768, 2)])
def test_strips_on_the_processor(koine, tmp_path, m, k, n, threads):
    optimized(koine, tmp_path, m, k, n, after=GELU)
    rng = np.random.default_rng(m + n)
    a = {"x": rng.standard_normal(m * k), "w": rng.standard_normal(k * n) / k**0.5, "b": rng.standard_normal(n)}
    for name, v in a.items():
        np.save(tmp_path / f"{name}.npy", v.astype(np.float32))
    given = [s for name in a for s in ("--in", f"{name}={tmp_path / name}.npy")]
    koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path / 'y.npy'}", env={"KN_CPU": "fp16", "KN_THREADS": threads, "KN_VERIFY": "1"})
    s = a["x"].reshape(m, k) @ a["w"].reshape(n, k).T
    want = np.sin(2 ** (s / 2 / (2 ** (s * 0.70710678) + 1))) * a["b"]
    assert np.abs(np.load(tmp_path / "y.npy").reshape(m, n) - want).max() < 1e-4


def scores(koine, tmp_path, tokens, heads, width, level, threads):
    """Of queries and keys that lie in one matrix [tokens, 3, heads, width], each head its own, less what comes later: the OptOps of the one kernel."""
    dim = heads * width
    cut = "\n".join(f"""%c{n} = shrink %x3 (0, {at * dim}) ({tokens}, {dim})
%h{n} = reshape %c{n} ({tokens}, {heads}, {width})
%p{n} = permute %h{n} order=(1, 0, 2)
%r{n} = reshape %p{n} {shape}
%e{n} = expand %r{n} ({heads}, {tokens}, {tokens}, {width})""" for n, at, shape in (("q", 0, (heads, tokens, 1, width)), ("k", 1, (heads, 1, tokens, width))))
    p = tmp_path / "s.kn"
    p.write_text(f"""koine 1 tensor
%x = param "x" : f32 [{tokens * 3 * dim}]
%x3 = reshape %x ({tokens}, {3 * dim})
{cut}
%m = mul %eq %ek
%s = reduce add %m axes=(3)
%y = mul %s 0.125
out "y" = %y
""")
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": threads}
    return re.search(r"opts=\[(.*)\]", koine("compile", p, "--target", "x86", "--to", "optimize", env=env).stdout)[1]


@pytest.mark.parametrize("level, tokens, width, packed", [("fp16", 128, 64, True), ("dot", 128, 64, False), ("fp16", 128, 1024, False), ("fp16", 64, 32, True)])
def test_keys_that_lie_beside_queries_are_packed(koine, tmp_path, level, tokens, width, packed):
    """One of two reads of a buffer; a sum across lanes for each score was three quarters of the time. Not of long rows, beside which it is little."""
    opts = scores(koine, tmp_path, tokens, 4, width, level, 1)
    assert ("stage" in opts) == packed and ("r #" in opts) == (not packed), opts


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("tokens, heads, width", [(128, 12, 64), (100, 1, 64), (128, 2, 48)])
def test_scores_are_the_same_on_all_threads(koine, tmp_path, tokens, heads, width):
    x = np.random.default_rng(tokens + heads).standard_normal(tokens * 3 * heads * width).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    got = []
    for threads in (1, 2, 5):
        scores(koine, tmp_path, tokens, heads, width, "fp16", threads)
        env = {"KN_CPU": "fp16", "KN_THREADS": threads, "KN_ALONE": 1000, "KN_VERIFY": "1"}
        koine("run", tmp_path / "s.kn", "--in", f"x={tmp_path / 'x.npy'}", "--out", f"y={tmp_path / 'y.npy'}", env=env)
        got.append(np.load(tmp_path / "y.npy").reshape(heads, tokens, tokens))
    q, k, _ = x.reshape(tokens, 3, heads, width).transpose(1, 2, 0, 3).astype(np.float64)
    assert np.abs(got[0] - q @ k.transpose(0, 2, 1) / 8).max() < 1e-5 and all((g == got[0]).all() for g in got[1:])


@pytest.mark.runs("fp16")
def test_rows_that_tokens_name_leave_registers_whole(koine, tmp_path):
    """What is added to a strip's results lies where a table's row does: places of 64 bits, of which a register has eight."""
    m, k, n, rows = 128, 256, 768, 40
    grown = f"""%one = reshape 1:i32 (1)
%i0 = expand %one ({rows})
%i1 = pad %i0 ({rows - 1}) ({2 * rows - 1})
%i2 = reshape %i1 (1, {2 * rows - 1})
%i3 = expand %i2 ({rows + 1}, {2 * rows - 1})
%i4 = reshape %i3 ({(rows + 1) * (2 * rows - 1)})
%i5 = shrink %i4 (0) ({2 * rows * rows})
%i6 = reshape %i5 ({rows}, {2 * rows})
%i7 = shrink %i6 (0, 0) ({rows}, {rows})
%i8 = reduce add %i7 axes=(1)
%i9 = reshape %i8 ({rows})
%ia = sub %i9 1
%ib = reshape %ia ({rows}, 1, 1)
%ic = expand %ib ({rows}, {m}, {n})
%t = param "t" : i32 [{m}]
%t0 = reshape %t (1, {m}, 1)
%t1 = expand %t0 ({rows}, {m}, {n})
%is = eq %ic %t1
%e = param "e" : f32 [{rows * n}]
%e0 = reshape %e ({rows}, 1, {n})
%e1 = expand %e0 ({rows}, {m}, {n})
%e2 = where %is %e1 -0.0
%e3 = reduce add %e2 axes=(0)
%e4 = reshape %e3 ({m}, 1, {n})
%e5 = add %e4 %b
%y = add %s %e5"""
    opts, _ = optimized(koine, tmp_path, m, k, n, after=grown, level="fp16")
    assert "rows 2 " in opts and "split 0 16 u" not in opts, opts
    code = koine("compile", tmp_path / "p.kn", "--target", "x86", env={"KN_CPU": "fp16", "KN_THREADS": 1}).stdout
    products = re.findall(r"vfmadd\w+ +([xyz])mm", code)
    assert products.count("z") >= 24 and "y" not in products, products
    rng = np.random.default_rng(m)
    a = {"x": rng.standard_normal((m, k)), "w": rng.standard_normal((n, k)), "b": rng.standard_normal(n), "e": rng.standard_normal((rows, n))}
    a = {name: v.astype(np.float32) for name, v in a.items()} | {"t": rng.integers(-1, rows + 1, m).astype(np.int32)}
    for name, v in a.items():
        np.save(tmp_path / f"{name}.npy", v.ravel())
    given = [s for name in a for s in ("--in", f"{name}={tmp_path / name}.npy")]
    koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path / 'y.npy'}", env={"KN_CPU": "fp16", "KN_THREADS": 1, "KN_VERIFY": "1"})
    chosen = np.where(((a["t"] >= 0) & (a["t"] < rows))[:, None], a["e"][np.clip(a["t"], 0, rows - 1)], 0)
    want = a["x"].astype(np.float64) @ a["w"].T + a["b"] + chosen
    assert np.abs(np.load(tmp_path / "y.npy").reshape(m, n) - want).max() < 1e-3


@pytest.mark.parametrize("m, k, n, strip, part", [(64, 4096, 4096, 384, 256), (8, 2048, 1024, 384, 256), (90, 2000, 3000, 384, 250), (96, 4096, 512, 0, 256)])
def test_few_rows_go_in_strips_of_columns(koine, tmp_path, m, k, n, strip, part):
    """By a large matrix that lies along its columns: parts of the sum, around results that are kept. What strips leave over goes so too."""
    opts, _ = optimized(koine, tmp_path, m, k, n, across=False, level="fp16")
    nests = 1 if n == 512 or n % 384 == 0 else 2
    assert opts.count(f" {part} R #") == nests and len(re.findall(r"rows \d+ ", opts)) == nests and (not strip or f" {strip} L #" in opts), opts
    assert "rows " not in optimized(koine, tmp_path, m, k, n, across=False)[0], "one multiply-add a cycle: whole panels"


@pytest.mark.parametrize("m, k, n", [(7, 4096, 1024), (97, 4096, 1024), (64, 256, 8192), (64, 1031, 1024), (64, 1024, 512)])
def test_what_goes_in_no_strips_of_columns(koine, tmp_path, m, k, n):
    """Fewer rows, and more; few terms, and a prime number of them; a matrix that the second-level cache has room for."""
    assert not re.search(r" R #\d+, rows ", optimized(koine, tmp_path, m, k, n, across=False, level="fp16")[0])


@pytest.mark.parametrize("m, k, n, dtype, level", [(64, 4096, 4096, "f32", "fp16"), (512, 4096, 1024, "bf16", "amx")])
def test_two_products_in_a_nest_stay_in_one_tile(koine, m, k, n, dtype, level):
    """As a gate and what it lets through: of the one that is not kept each element would be summed up by itself, in what is left of the nest."""
    lines = ["koine 1 tensor", f'%x = param "x" : {dtype} [{m}, {k}]', "%xc = cast %x : f32", f"%x1 = reshape %xc ({m}, {k}, 1)", f"%xe = expand %x1 ({m}, {k}, {n})"]
    for i in range(2):
        lines += [f'%w{i} = param "w{i}" : {dtype} [{k}, {n}]', f"%c{i} = cast %w{i} : f32", f"%r{i} = reshape %c{i} (1, {k}, {n})", f"%e{i} = expand %r{i} ({m}, {k}, {n})",
                  f"%p{i} = mul %xe %e{i}", f"%y{i} = reduce add %p{i} axes=(1)"]
    text = "\n".join([*lines, "%z = mul %y0 %y1", 'out "o" = %z', ""])
    found = koine("compile", "-", "--target", "x86", "--to", "optimize", env={"KN_CPU": level, "KN_THREADS": 1, "KN_CODE": "x86"}, stdin=text).stdout.split("opts=")[1]
    assert len(re.findall(r"stage \d+ [23]\b", found)) == 2, found


@pytest.mark.parametrize("m, k, n, threads", [(64, 4096, 4096, 2), (64, 4096, 4096, 5), (16, 4096, 1000, 3), (64, 2048, 2048, 4)])
def test_threads_share_out_columns_where_rows_are_few(koine, tmp_path, m, k, n, threads):
    """Around rows each of them would read the whole matrix."""
    opts, _ = optimized(koine, tmp_path, m, k, n, across=False, level="fp16", threads=threads)
    assert re.search(r"split [14] \d+ t top|cut 1 .*split 1 \d+ t top", opts) and " 256 R #" in opts, opts


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("m, k, n", [(64, 1024, 1500), (90, 2000, 1111), (8, 1024, 1024), (24, 512, 2049)])
def test_strips_of_columns_on_the_processor(koine, tmp_path, m, k, n):
    """Against numpy, and the same bits for any number of threads."""
    optimized(koine, tmp_path, m, k, n, across=False, level="fp16")
    rng = np.random.default_rng(m + n)
    a = {"x": rng.standard_normal(m * k), "w": rng.standard_normal(k * n) / k**0.5, "b": rng.standard_normal(n)}
    for name, v in a.items():
        np.save(tmp_path / f"{name}.npy", v.astype(np.float32))
    given = [s for name in a for s in ("--in", f"{name}={tmp_path / name}.npy")]
    y = []
    for threads in (1, 2, 5):
        koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path / 'y.npy'}", env={"KN_CPU": "fp16", "KN_THREADS": threads, "KN_VERIFY": "1"})
        y.append(np.load(tmp_path / "y.npy").reshape(m, n))
    assert np.abs(y[0] - (a["x"].reshape(m, k) @ a["w"].reshape(k, n) + a["b"])).max() < 1e-4
    assert all(np.array_equal(y[0], z) for z in y[1:])


@pytest.mark.parametrize("m, n, level, whole", [(1024, 196, "fp16", True), (768, 196, "fp16", False), (1024, 500, "fp16", False), (1024, 196, "dot", False)])
def test_all_panels_are_packed_before_rows_that_do_not_stay(koine, tmp_path, m, n, level, whole):
    """A megabyte of rows would come from the last cache for each panel."""
    opts, _ = optimized(koine, tmp_path, m, 256, n, across=False, level=level)
    assert ("split 0 1 L top" in opts) == whole and "stage" in opts, opts


def test_much_more_than_either_side_of_the_sum(koine, tmp_path):
    opts, _ = optimized(koine, tmp_path, 1024, 1024, 64)
    assert "stage 0" not in opts, "packing x takes as long as a fifteenth of the products"
    opts = of_more_terms(koine, tmp_path, 128, 4096, 256, 4)
    assert "split 0 2 u" not in opts and "split 0 16 u" in opts, "one vector's rows are a megabyte"
    opts = of_more_terms(koine, tmp_path, 128, 4096, 256, 8)
    assert "stage" not in opts and re.search(r"split \d+ 16 r", opts), opts


def test_much_to_do_after_the_sum_is_done_in_vectors(koine, tmp_path):
    opts, _ = optimized(koine, tmp_path, 120, 768, 3072, after=GELU)
    assert "stage" in opts and not re.search(r"split \d+ 16 r", opts), opts
    opts, _ = optimized(koine, tmp_path, 8, 768, 3072, after=GELU)
    assert "stage" not in opts, "few rows do not pay for packing"


@pytest.mark.parametrize("k", [1024, 4096])
def test_rows_that_meet_in_the_cache_are_packed(koine, tmp_path, k):
    opts, _ = optimized(koine, tmp_path, 64, k, 4096, across=False)
    assert "stage" in opts, opts


@pytest.mark.parametrize("k, tile", [(64, "split 0 4 u #3, split 1 16 u #4, split 1 4 u"), (256, "split 0 8 u #3, split 1 16 u #4, split 1 2 u")])
def test_products_of_few_terms_are_stored_four_vectors_wide(koine, tmp_path, k, tile):
    """Where an operand is read in place: what is stored weighs more beside 64 terms than beside 256."""
    opts, _ = optimized(koine, tmp_path, 64, k, 3136, across=False)
    assert tile in opts and "stage" not in opts and "padto" not in opts, opts


@pytest.mark.parametrize("n, ahead", [(196, "prefetch 9 16464 #2"), (4096, None)])
def test_rows_near_each_other_that_are_packed_are_asked_for(koine, tmp_path, n, ahead):
    """21 rows of three vectors; rows of 16 KiB come to the same lines of a cache, and would drive each other out."""
    opts, _ = optimized(koine, tmp_path, 256, 1024, n, across=False)
    assert re.search(r"stage \d+ 2", opts) and bool(re.search(r"prefetch \d+ \d+ #2", opts)) == bool(ahead), opts
    assert not ahead or ahead in opts, opts


@pytest.mark.parametrize("m, k, n, blocks", [(512, 2048, 49, "split 0 8 L top"), (512, 1024, 196, None), (64, 2048, 49, None)])
def test_what_is_cut_off_goes_with_a_block_of_rows(koine, tmp_path, m, k, n, blocks):
    """The second cache has the block when the last column is its turn; several panels are not packed for each block again."""
    opts, _ = optimized(koine, tmp_path, m, k, n, across=False)
    assert f"cut 1 {n // 48 * 48}" in opts and (blocks in opts if blocks else " L top" not in opts), opts


@pytest.mark.parametrize("m, k, n", [(512, 2048, 49), (256, 1024, 196)])
def test_rows_of_the_next_tile_are_asked_for(koine, tmp_path, m, k, n):
    """A megabyte of them and more, a line of each every 16 terms, where they are met first: what is cut off goes through a block that the cache has."""
    opts, _ = optimized(koine, tmp_path, m, k, n, across=False)
    asked = re.findall(r"prefetch (\d+) (\d+)( top)? #1\b", opts)
    assert len(asked) == 1 and int(asked[0][1]) == 8 * k * 4 and f"16 R #{asked[0][0]}," in opts, opts


@pytest.mark.parametrize("k, n, rows", [(768, 3072, 1), (2048, 768, 1), (768, 300, 6)])
def test_a_matrix_times_a_vector_goes_row_by_row(koine, tmp_path, k, n, rows):
    """As it lies in memory, unless a cache has it."""
    opts, loops = optimized(koine, tmp_path, 1, k, n)
    assert loops == [n // rows] and (rows == 1) == (" u" not in opts), opts


def test_the_next_rows_are_asked_for_where_several_go_at_once(koine, tmp_path):
    """Eight rows of 16 KiB, then eight more; rows that go one by one are one stream."""
    opts, _ = optimized(koine, tmp_path, 1, 512, 4096, across=False)
    assert re.search(r"rows 1 \d top #8", opts) and re.search(r"prefetch \d 131072 top #", opts), opts
    opts, _ = optimized(koine, tmp_path, 1, 4096, 1024, across=False)
    assert re.search(r"rows 1 \d top #1\b", opts) and "prefetch" not in opts, opts


def times_vector(k, n, matrices):
    """The product of so many matrices' [n, k] products with a vector."""
    text = ["koine 1 tensor", f'%x = param "x" : f32 [{k}]', f"%xr = reshape %x (1, {k})", f"%xe = expand %xr ({n}, {k})"]
    for i in range(matrices):
        text += [f'%w{i} = param "w{i}" : f32 [{n}, {k}]', f"%p{i} = mul %w{i} %xe", f"%s{i} = reduce add %p{i} axes=(1)"]
        text.append(f"%y{i} = mul %y{i - 1} %s{i}" if i else "%y0 = add %s0 0.5")
    return "\n".join([*text, f"%y = reshape %y{matrices - 1} ({n})", 'out "y" = %y', ""])


@pytest.mark.parametrize("k, n, matrices, parts", [(3072, 122, 1, 4), (4096, 8, 1, 1), (1024, 322, 2, 8), (1000, 322, 3, 8), (1024, 322, 1, 1)])
def test_matrices_that_take_turns_are_read_in_parts(koine, tmp_path, k, n, matrices, parts):
    """Where rows are long, or several matrices take turns, and with AVX2 always, a row of each of four or eight parts beside each other, which is asked
    for ahead, but with AVX2; the numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(k)
    data = {"x": rng.standard_normal(k, np.float32)} | {f"w{i}": rng.standard_normal((n, k), np.float32) / 64 for i in range(matrices)}
    want = data["w0"].astype(np.float64) @ data["x"] + 0.5
    for i in range(1, matrices):
        want *= data[f"w{i}"].astype(np.float64) @ data["x"]
    (tmp_path / "p.kn").write_text(times_vector(k, n, matrices))
    ins = [a for name, v in data.items() if not np.save(tmp_path / f"{name}.npy", v) for a in ("--in", f"{name}={tmp_path}/{name}.npy")]
    for level in ("avx512", "avx2"):
        opts = koine("compile", tmp_path / "p.kn", "--target", "x86", "--to", "optimize", env={"KN_CPU": level, "KN_THREADS": 1}).stdout
        assert opts.count(" 2048 top #") == (matrices if parts > 1 and level == "avx512" else 0), opts
        in_parts = parts > 1 or (level == "avx2" and n >= 16)
        assert (f"split 0 {n // max(parts, 4)} L" in opts) == in_parts, opts
    for threads in (1, 2, 3):
        koine("run", tmp_path / "p.kn", *ins, "--out", f"y={tmp_path}/y{threads}.npy", env={"KN_THREADS": threads, "KN_ALONE": 1})
        y = np.load(tmp_path / f"y{threads}.npy")
        np.testing.assert_allclose(y, want, rtol=1e-3, atol=1e-4)
        assert threads == 1 or (y == np.load(tmp_path / "y1.npy")).all()


def test_rows_that_do_not_meet_stay(koine, tmp_path):
    opts, _ = optimized(koine, tmp_path, 128, 256, 784, across=False)
    assert "stage" not in opts and "cut 1 768" in opts and "padto" not in opts, opts
    opts, _ = optimized(koine, tmp_path, 128, 256, 6544, across=False)
    assert "stage" in opts, "what comes from memory is better read ahead"


def conv(n, ci, co, side, stride=1):
    """3 x 3 windows of a padded image, every stride-th of them, written as kn_conv2d does."""
    m = side * stride
    p, q, r = m + 2, 4 * (m + 2), 3 * (m + 3)
    return "\n".join([
        "koine 1 tensor", f'%x = param "x" : f32 [{n}, {ci}, {m}, {m}]', f'%w = param "w" : f32 [{co}, {ci}, 3, 3]',
        f"%a = pad %x (0, 0, 1, 1) ({n}, {ci}, {p}, {p})", f"%b = reshape %a ({n}, {ci}, 1, {p}, 1, {p})",
        f"%c = expand %b ({n}, {ci}, 4, {p}, 4, {p})", f"%d = reshape %c ({n}, {ci}, {q}, {q})",
        f"%e = shrink %d (0, 0, 0, 0) ({n}, {ci}, {r}, {r})", f"%f = reshape %e ({n}, {ci}, 3, {m + 3}, 3, {m + 3})",
        f"%g = shrink %f (0, 0, 0, 0, 0, 0) ({n}, {ci}, 3, {m}, 3, {m})", f"%s = reshape %g ({n}, {ci}, 3, {side}, {stride}, 3, {side}, {stride})",
        f"%t = shrink %s (0, 0, 0, 0, 0, 0, 0, 0) ({n}, {ci}, 3, {side}, 1, 3, {side}, 1)", f"%u = reshape %t ({n}, {ci}, 3, {side}, 3, {side})",
        "%h = permute %u order=(0, 3, 5, 1, 2, 4)",
        f"%i = reshape %h ({n}, 1, {side}, {side}, {ci}, 3, 3)", f"%j = expand %i ({n}, {co}, {side}, {side}, {ci}, 3, 3)",
        f"%k = reshape %w (1, {co}, 1, 1, {ci}, 3, 3)", f"%l = expand %k ({n}, {co}, {side}, {side}, {ci}, 3, 3)", "%m = mul %j %l",
        f"%o = reduce add %m axes=(4, 5, 6)", f"%y = reshape %o ({n}, {co}, {side}, {side})", 'out "y" = %y', ""])


def computes(koine, tmp_path, x, w, stride, **env):
    """p.kn convolves x.npy with w.npy as numpy does, and alike on one, two and three threads."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))[:, :, ::stride, ::stride]
    want = np.moveaxis(np.tensordot(windows.astype(np.float64), w.astype(np.float64), ((1, 4, 5), (1, 2, 3))), 3, 1)
    for threads in (1, 2, 3):
        koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y{threads}.npy",
              env={"KN_THREADS": threads, "KN_ALONE": 1, **env})
        y = np.load(tmp_path / f"y{threads}.npy")
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1.5e-6 * np.abs(want).max())
        assert threads == 1 or (y == np.load(tmp_path / "y1.npy")).all()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("side, ci, parts", [(28, 64, 7), (12, 256, 3), (28, 16, 0), (9, 400, "deal"), (14, 256, "deal")])
def test_rows_of_a_strided_image_are_dealt_out_or_staged_a_few_at_a_time(koine, tmp_path, n, side, ci, parts):
    """Where the whole is more than a megabyte: 4 rows of 28 positions are seven vectors, and of 12 three; where no rows fill vectors, even and odd rows and
    columns of the image lie apart; the numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((n, ci, 2 * side, 2 * side), np.float32), rng.standard_normal((16, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(n, ci, 16, side, 2))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    y, block = (1, 5 + 1) if n == 1 else (2, 6 + 1)
    deals = parts == "deal"
    assert (f"deal {n - 2} 1, join {y} {y + 1}" in opts) == deals and ("deal" in opts) == deals, opts
    assert (f"split {y} {parts} L top" in opts and f"stage {block} 1, join {y} {y + 1}" in opts) if parts and not deals else " L top" not in opts or deals, opts
    computes(koine, tmp_path, x, w, 2)


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_a_cut_leaves_the_same_places_whatever_the_threads(koine, tmp_path, level):
    """On one thread the last column of nine goes along the sum, on three it was the last three of 27 places: as many, and others."""
    rng = np.random.default_rng(9)
    x, w = rng.standard_normal((1, 400, 18, 18), np.float32), rng.standard_normal((16, 400, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, 400, 16, 9, 2))
    computes(koine, tmp_path, x, w, 2, KN_CPU=level, KN_CODE="x86")


@pytest.mark.parametrize("side, ci, stride, steps", [(14, 256, 1, "frame -1 1, join 1 2"), (7, 256, 2, "frame -1 1, join 1 2"), (56, 32, 1, None), (112, 3, 2, "frame -1 1, "), (112, 24, 2, "split 1 8 L top #6, swap 0 6 #-1, frame 6 1, ")])
def test_windows_are_framed_where_masks_take_the_place_of_multiply_adds(koine, tmp_path, side, ci, stride, steps):
    """Where a second-level cache keeps the whole, or, rows filling their vectors, parts of it, and filters do not lie along vectors. The numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((1, ci, side * stride, side * stride), np.float32), rng.standard_normal((48, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, ci, 48, side, stride))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "fp16", "KN_THREADS": 1}).stdout)[1]
    assert steps in opts if steps else "frame" not in opts, opts
    computes(koine, tmp_path, x, w, stride)


@pytest.mark.parametrize("co, side, ci, stride", [(128, 14, 256, 1), (512, 7, 128, 1), (64, 14, 256, 1), (64, 14, 512, 2)])
def test_filters_are_asked_for_a_row_in_each_place_of_a_window(koine, tmp_path, co, side, ci, stride):
    """Filters of a megabyte and more, whose lines a block of channels goes through once for each of nine places: in each place it asks, term by term, for a
    row's next block. Smaller ones some cache has. It changes no bit; the numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((1, ci, side * stride, side * stride), np.float32), rng.standard_normal((co, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, ci, co, side, stride))
    env = {"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout)[1]
    code = koine("compile", tmp_path / "p.kn", "--target", "x86", env=env).stdout
    block = re.search(r"split \d+ (\d+) R", opts)
    ahead = 36 * int(block[1]) if block else 36 * ci
    large = co * ci * 36 >= 1 << 20
    asking = [b for b in re.split(r"\n\s*jl ", code) if "prefetcht0" in b]
    assert ("prefetch" in opts and f" {ahead} #2" in opts) == large and len(asking) == large, opts
    assert not large or len(re.findall("prefetcht0", asking[0])) == 1 and f"+{ahead}]" in asking[0]
    computes(koine, tmp_path, x, w, stride)
    first = np.load(tmp_path / "y1.npy")
    koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y.npy", env={"KN_THREADS": 1, "KN_STREAM": 0})
    assert (np.load(tmp_path / "y.npy") == first).all()


@pytest.mark.parametrize("side, ci, cut", [(28, 64, "cut 1 768"), (56, 32, "cut 1 3120"), (28, 16, None)])
def test_a_vector_left_of_windows_is_done_apart_beside_long_sums(koine, tmp_path, side, ci, cut):
    """49 vectors are sixteen tiles of three and one more: neither a tile done twice nor one that is padded. Beside few terms the nest for it would take as long.
    16 filters are no whole panels, so the tile goes along the image's rows."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((1, ci, side, side), np.float32), rng.standard_normal((16, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, ci, 16, side))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    assert (cut or "split 1 48 u") in opts and ("cut" in opts) == bool(cut), opts
    computes(koine, tmp_path, x, w, 1)


def test_a_sum_over_what_was_staged_whole_is_one_loop(koine, tmp_path):
    """Windows in steps that were copied lie as the sum goes, and filters anyway: one loop over all terms, whose rows the next tile's are asked for from."""
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((1, 512, 14, 14), np.float32), rng.standard_normal((64, 512, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, 512, 64, 7, 2))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    assert opts.startswith("[stage -1 1") and "join 3 4 #-1, join 5 3 #-1" in opts and "split 5 16 R #26, prefetch 26 147456 top #2" in opts, opts
    computes(koine, tmp_path, x, w, 2)


WINDOWS = [  # images, channels, filters, side, step, how the image is framed, columns of a tile
    (1, 16, 64, 56, 1, "frame -1 1 top, split 2 8 u", 8), (2, 8, 32, 28, 2, "frame 0 1 top, split 3 7 u", 7), (3, 8, 32, 18, 1, "frame 0 1 top, split 3 6 u", 6),
    (1, 64, 32, 112, 1, "split 1 8 L top #6, swap 0 6 #-1, frame 6 1 top, split 2 8 u", 8), (5, 200, 32, 14, 1, "frame 0 1 top, split 3 7 u", 7)]


@pytest.mark.parametrize("n, ci, co, side, stride, steps, columns", WINDOWS)
def test_few_filters_lie_along_vectors(koine, tmp_path, n, ci, co, side, stride, steps, columns):
    """The image, rows of it where it is large, is copied once, and read element by element; filters are packed, for all images at once; a row of a
    window is written out; results are stored by squares of so many columns. The numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((n, ci, side * stride, side * stride), np.float32), rng.standard_normal((co, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(n, ci, co, side, stride))
    env = {"KN_CODE": "x86", "KN_CPU": "fp16", "KN_THREADS": 1}
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout)[1]
    assert steps in opts and re.search(r"stage (-1|0) 2 #1, terms \d", opts) and (n == 1 or "stage -1" in opts), opts
    code = koine("compile", tmp_path / "p.kn", "--target", "x86", env=env).stdout
    assert len(re.findall(r"vextractf64x4 YMMWORD" if columns == 8 else r"vmovups YMMWORD PTR [^,]*\{k", code)) >= 16 and "vscatter" not in code
    computes(koine, tmp_path, x, w, stride)


def network(n, side, channels, strides):
    """Convolutions one after the other, each rectified, a root that the next one's images are read for more than once."""
    lines, last = ["koine 1 tensor"], None
    for i, stride in enumerate(strides):
        text = conv(n, channels[i], channels[i + 1], side, stride).splitlines()
        side = side // strides[i + 1] if i + 1 < len(strides) else side
        text = [re.sub(r"%(\w+)", rf"%\1_{i}", a) for a in text[1:-1]]
        if last: text = [a.replace(f"%x_{i} ", f"{last} ") for a in text[1:]]
        lines += [a.replace('param "w"', f'param "w{i}"') for a in text]
        last = f"%r_{i}"
        lines.append(f"{last} = max %y_{i} 0.0")
    return "\n".join(lines + [f'out "y" = {last}', ""])


@pytest.mark.parametrize("n, side, strides, first", [(4, 28, (1, 1, 1), "stage -1"), (3, 28, (1, 1, 2), "stage -1"), (16, 7, (1, 1, 1), "stage -1")])
def test_images_between_convolutions_have_channels_innermost(koine, tmp_path, n, side, strides, first):
    """Of several images: filters are packed once, for all of them, a window as one row (its loops are joined), results and what comes after go by whole
    vectors (nothing is stored by squares, no row of a window written out). Not of one, nor with 16 registers. The numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    channels = (16, 64, 64, 64)
    sides = np.cumprod((1,) + strides[::-1])[::-1] * (side if strides[-1] == 1 else side // 2)
    x, w = rng.standard_normal((n, 16, sides[0], sides[0]), np.float32), [rng.standard_normal((channels[i + 1], channels[i], 3, 3), np.float32) for i in range(3)]
    np.save(tmp_path / "x.npy", x)
    given, want = ["--in", f"x={tmp_path}/x.npy"], x.astype(np.float64)
    for i, a in enumerate(w):
        np.save(tmp_path / f"w{i}.npy", a)
        given += ["--in", f"w{i}={tmp_path}/w{i}.npy"]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(want, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))[:, :, ::strides[i], ::strides[i]]
        want = np.maximum(np.moveaxis(np.tensordot(windows, a.astype(np.float64), ((1, 4, 5), (1, 2, 3))), 3, 1), 0)
    (tmp_path / "p.kn").write_text(network(n, sides[1], channels, strides))
    lists = [re.findall("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": c, "KN_THREADS": 1}).stdout) for c in ("fp16", "avx2")]
    assert all(first in a and "terms" not in a for a in lists[0][:-1]) and re.match(r"\[swap 6 5 #-1, swap 5 4 #-1, frame 0 1 top, swap 1 3", lists[0][1]) and not any(first in a for a in lists[1]), lists
    assert re.search(r"stage -1 2 #1, join 5 6 #-1, join (\d+) \d+ #-1, cut", lists[0][1]), lists
    for threads in (1, 2, 3):
        koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path}/y{threads}.npy", env={"KN_THREADS": threads, "KN_ALONE": 1})
        y = np.load(tmp_path / f"y{threads}.npy")
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=3e-6 * np.abs(want).max())


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("filters", ["oihw", "ohwi"])
def test_images_and_filters_given_with_channels_innermost(koine, tmp_path, n, filters):
    """Filters that lie along the sum as the image does are packed in panels once, for one image or several: no sum goes across lanes."""
    rng = np.random.default_rng(n)
    x, w = rng.standard_normal((n, 32, 28, 28), np.float32), rng.standard_normal((32, 32, 3, 3), np.float32)
    text = conv(n, 32, 32, 28).replace(f'%x = param "x" : f32 [{n}, 32, 28, 28]', f'%xx = param "x" : f32 [{n}, 28, 28, 32]\n%x = permute %xx order=(0, 3, 1, 2)')
    text = text.replace('out "y" = %y', '%yy = permute %y order=(0, 2, 3, 1)\nout "y" = %yy')
    if filters == "ohwi":
        text = text.replace('%w = param "w" : f32 [32, 32, 3, 3]', '%ww = param "w" : f32 [32, 3, 3, 32]\n%w = permute %ww order=(0, 3, 1, 2)')
    (tmp_path / "p.kn").write_text(text)
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    assert "top, split 2 7 u" in opts or "top, split 1 7 u" in opts, opts
    assert "stage -1 2" in opts and " r #" not in opts, opts
    np.save(tmp_path / "x.npy", x.transpose(0, 2, 3, 1)), np.save(tmp_path / "w.npy", w.transpose(0, 2, 3, 1) if filters == "ohwi" else w)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    want = np.tensordot(windows.astype(np.float64), w.astype(np.float64), ((1, 4, 5), (1, 2, 3)))
    for threads in (1, 2, 3):
        koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y{threads}.npy", env={"KN_THREADS": threads, "KN_ALONE": 1})
        np.testing.assert_allclose(np.load(tmp_path / f"y{threads}.npy"), want, rtol=1e-4, atol=2e-4)
        assert (np.load(tmp_path / f"y{threads}.npy") == np.load(tmp_path / "y1.npy")).all()


@pytest.mark.parametrize("side, top", [(24, True), (28, False)])
def test_what_results_are_added_to_comes_by_squares_too(koine, tmp_path, side, top):
    """Of eight columns: windows of rows of 28 are packed."""
    text = conv(1, 64, 32, side).replace('out "y" = %y', f'%r = param "r" : f32 [1, 32, {side}, {side}]\n%z = add %y %r\nout "y" = %z')
    (tmp_path / "p.kn").write_text(text)
    env = {"KN_CODE": "x86", "KN_CPU": "fp16", "KN_THREADS": 1}
    assert (" top, split 2 8 u" in koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout) == top
    code = koine("compile", tmp_path / "p.kn", "--target", "x86", env=env).stdout
    assert "vgather" not in code and "vscatter" not in code


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("side, cut", [(7, "cut 1 48"), (14, "cut 1 192"), (28, None), (8, None)])
def test_what_a_tile_does_not_divide_of_an_image_is_done_apart(koine, tmp_path, n, side, cut):
    """One position, a part of a register: three vectors at a time before it; where these begin earlier instead, no more than a twentieth is done twice.
    The numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((n, 24, side, side), np.float32), rng.standard_normal((16, 24, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(n, 24, 16, side))
    opts = koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout
    assert ("cut" in opts) == bool(cut) and (not cut or n > 1 or cut in opts), opts
    assert side != 28 or re.search(r"split \d+ 48 u", opts), opts
    computes(koine, tmp_path, x, w, 1)


@pytest.mark.parametrize("side, ci, stride, steps", [(56, 8, 1, ["join 1 2", "stage", "join 3 4 #-1, join 5 3"]), (7, 32, 1, ["cut 1 48"]), (14, 256, 2, ["padto 2 8", "stage"])])
def test_what_is_packed_for_few_registers(koine, tmp_path, side, ci, stride, steps):
    """Rows of seven vectors are one with others, so that a tile is more than one vector wide; a sum over a panel counts its terms; one position that vectors leave is
    done apart; an image with masks that cost something is not dealt out. The numbers are numpy's, whatever threads there are."""
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((1, ci, side * stride, side * stride), np.float32), rng.standard_normal((32, ci, 3, 3), np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(conv(1, ci, 32, side, stride))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx2", "KN_THREADS": 1}).stdout)[1]
    assert all(step in opts for step in steps) and "deal" not in opts, opts
    computes(koine, tmp_path, x, w, stride)


@pytest.mark.parametrize("stride, rows", [(1, 4), (2, 2)])
def test_rows_of_windows_stand_beside_each_other_as_long_as_that_saves_reading(koine, tmp_path, stride, rows):
    """Four of 3 x 3 read 6 rows, two of them 4 each: with steps of 2 9 and 5, and twice the code."""
    text = conv(1, 8, 1, 64, stride)
    text = text[:text.index("%h")] + "%h = permute %u order=(0, 1, 3, 5, 2, 4)\n%y = reduce max %h axes=(4, 5)\nout \"y\" = %y\n"
    (tmp_path / "p.kn").write_text("\n".join(line for line in text.split("\n") if not line.startswith("%w")))
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    assert opts.count("3 r #") == 2 and f"split 1 {rows} u" in opts, opts
    x = np.random.default_rng(stride).standard_normal((1, 8, 64 * stride, 64 * stride), np.float32)
    np.save(tmp_path / "x.npy", x)
    koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy")
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))[:, :, ::stride, ::stride]
    assert (np.load(tmp_path / "y.npy")[..., 0, 0] == windows.max((4, 5))).all()


def downsampled(n, ci, cj, co, side):
    """1 x 1 windows of every other position of an image, added to those of another image of half the side."""
    p = side * side
    return "\n".join([
        "koine 1 tensor", f'%x = param "x" : f32 [{n}, {ci}, {2 * side}, {2 * side}]', f'%w = param "w" : f32 [{co}, {ci}]',
        f'%z = param "z" : f32 [{n}, {cj}, {side}, {side}]', f'%v = param "v" : f32 [{co}, {cj}]',
        f"%a = reshape %x ({n}, {ci}, {side}, 2, {side}, 2)", f"%b = shrink %a (0, 0, 0, 0, 0, 0) ({n}, {ci}, {side}, 1, {side}, 1)",
        f"%c = reshape %b ({n}, 1, {ci}, {side}, {side})", f"%d = expand %c ({n}, {co}, {ci}, {side}, {side})",
        f"%e = reshape %w (1, {co}, {ci}, 1, 1)", f"%f = expand %e ({n}, {co}, {ci}, {side}, {side})", "%g = mul %d %f", "%h = reduce add %g axes=(2)",
        f"%i = reshape %z ({n}, 1, {cj}, {p})", f"%j = expand %i ({n}, {co}, {cj}, {p})",
        f"%k = reshape %v (1, {co}, {cj}, 1)", f"%l = expand %k ({n}, {co}, {cj}, {p})", "%m = mul %j %l", "%o = reduce add %m axes=(2)",
        f"%q = reshape %o ({n}, {co}, {side}, {side})", f"%r = reshape %h ({n}, {co}, {side}, {side})", "%y = add %q %r", 'out "y" = %y', ""])


@pytest.mark.parametrize("n, side", [(1, 7), (3, 7), (1, 10), (3, 14)])
@pytest.mark.parametrize("kind", ["conv", "large", "downsampled"])
def test_few_positions_go_along_the_sum(koine, tmp_path, n, side, kind):
    """One, or four: their terms lie apart, they are copied as the filters lie, from the image or from what was copied of it, and multiplied by
    vectors. Filters of more than a cache holds go block by block, these positions' beside all others'."""
    rng = np.random.default_rng(n)
    if kind != "downsampled":
        ci, co = (32, 16) if kind == "conv" else (256, 480)
        x, w = rng.standard_normal((n, ci, side, side), np.float32), rng.standard_normal((co, ci, 3, 3), np.float32)
        data, text, stages = {"x": x, "w": w}, conv(n, ci, co, side), 1
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        want = np.moveaxis(np.tensordot(windows.astype(np.float64), w.astype(np.float64), ((1, 4, 5), (1, 2, 3))), 3, 1)
    else:
        x, z = rng.standard_normal((n, 64, 2 * side, 2 * side), np.float32), rng.standard_normal((n, 96, side, side), np.float32)
        w, v = rng.standard_normal((16, 64), np.float32), rng.standard_normal((16, 96), np.float32)
        data, text, stages = {"x": x, "z": z, "w": w, "v": v}, downsampled(n, 64, 96, 16, side), 3
        want = np.einsum("ncyx,oc->noyx", x[:, :, ::2, ::2].astype(np.float64), w.astype(np.float64))
        want += np.einsum("ncyx,oc->noyx", z.astype(np.float64), v.astype(np.float64))
    (tmp_path / "p.kn").write_text(text)
    program, given = tmp_path / "p.kn", []
    for name, a in data.items():
        np.save(tmp_path / f"{name}.npy", a)
        given += ["--in", f"{name}={tmp_path}/{name}.npy"]
    opts = re.search("opts=(.*)", koine("compile", program, "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout)[1]
    assert opts.count("stage") == stages and opts.count("16 r") == (2 if kind == "downsampled" else 1), opts
    assert opts.count("join") == {"conv": 3, "large": 4, "downsampled": 1}[kind] and ("L top" in opts) == (kind == "large"), opts
    assert len(re.findall(r"stage \S+ \S+ top", opts)) == (side > 7) * (1 if kind != "downsampled" else 2), opts
    assert re.search(r"split \d+ (\d) u #\d+, split \d+ 16 r", opts)[1] == ("2" if side > 7 and kind != "large" else "4"), opts  # as keep multipliers busy, or a cache
    assert len(re.findall(r"split (\d+) 16 u #\d+, split \1 \d u", opts)) == 1, opts  # the tile's: copies take a vector at a time
    for threads in (1, 2, 3):
        koine("run", program, *given, "--out", f"y={tmp_path}/y{threads}.npy", env={"KN_THREADS": threads, "KN_ALONE": 1})
        y = np.load(tmp_path / f"y{threads}.npy")
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
        assert threads == 1 or (y == np.load(tmp_path / "y1.npy")).all()


def products(n, ci, co, positions):
    """1 x 1 windows of images: w [co, ci] times each x [ci, positions]."""
    return "\n".join([
        "koine 1 tensor", f'%x = param "x" : f32 [{n}, {ci}, {positions}]', f'%w = param "w" : f32 [{co}, {ci}]',
        f"%a = reshape %x ({n}, 1, {ci}, {positions})", f"%b = expand %a ({n}, {co}, {ci}, {positions})", f"%c = reshape %w (1, {co}, {ci}, 1)",
        f"%d = expand %c ({n}, {co}, {ci}, {positions})", "%e = mul %b %d", "%f = reduce add %e axes=(2)", f"%y = reshape %f ({n}, {co}, {positions})",
        'out "y" = %y', ""])


@pytest.mark.parametrize("ci, co, positions, how", [(512, 64, 784, "cut 2 768"), (64, 256, 3136, "stream 0, split 2 4 u"), (64, 64, 3136, "split 2 4 u")])
def test_images_are_read_in_place_one_after_the_other(koine, tmp_path, ci, co, positions, how):
    """However many there are: an image is what a tile goes through again. What is larger than a cache is written past it, without masks."""
    (tmp_path / "p.kn").write_text(products(16, ci, co, positions))
    env = {"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1, "KN_STREAM": 1 << 24}
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout)[1]
    assert "stage" not in opts and [w for w in ("stream 0", "cut 2 768", "padto 2 48", "split 2 4 u", "split 2 48 u") if w in opts] == how.split(", "), opts


def added_to(n, ci, co, positions):
    """The products, and what they are added to."""
    return products(n, ci, co, positions).replace('out "y" = %y', f'%r = param "r" : f32 [{n}, {co}, {positions}]\n%z = add %y %r\nout "z" = %z')


@pytest.mark.parametrize("text, level, stream, rows", [
    (added_to(16, 64, 256, 3136), "fp16", 1 << 24, True), (added_to(16, 128, 256, 3136), "fp16", 1 << 24, False),
    (added_to(16, 64, 256, 6400), "fp16", 1 << 24, False), (added_to(16, 64, 256, 3136), "fp16", 1 << 27, False),
    (added_to(16, 64, 256, 3136), "avx512", 1 << 24, False), (products(16, 64, 256, 3136), "fp16", 1 << 24, False)])
def test_short_sums_that_go_past_the_caches_are_stored_along_rows(koine, tmp_path, text, level, stream, rows):
    """Where they are added to what comes from memory, and an image stays in the second-level cache."""
    (tmp_path / "p.kn").write_text(text)
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1, "KN_STREAM": stream}
    opts = re.search("opts=(.*)", koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout)[1]
    assert ("swap 1 2" not in opts) == rows and ("stream 0" in opts) == (stream < 1 << 27), opts


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_along_rows_on_the_processor(koine, tmp_path, threads):
    rng = np.random.default_rng(threads)
    x, w, r = (rng.standard_normal(shape, np.float32) for shape in ((3, 64, 832), (20, 64), (3, 20, 832)))
    for name, a in (("x", x), ("w", w), ("r", r)):
        np.save(tmp_path / f"{name}.npy", a)
    (tmp_path / "p.kn").write_text(added_to(3, 64, 20, 832))
    env = {"KN_CPU": "fp16", "KN_THREADS": threads, "KN_STREAM": 1 << 16, "KN_VERIFY": "1"}
    opts = koine("compile", tmp_path / "p.kn", "--to", "optimize", env={**env, "KN_CODE": "x86"}).stdout
    given = [arg for name in "xwr" for arg in ("--in", f"{name}={tmp_path / name}.npy")]
    koine("run", tmp_path / "p.kn", *given, "--out", f"z={tmp_path / 'z.npy'}", env=env)
    assert "stream" in opts and (threads > 1 or "swap 1 2" not in opts)
    want = np.einsum("oc,ncp->nop", w.astype(np.float64), x.astype(np.float64)) + r
    assert np.abs(np.load(tmp_path / "z.npy") - want).max() < 1e-4


def test_a_row_too_short_for_a_register_is_not_packed_where_another_fills_one(koine, tmp_path):
    """Five sums beside each other of what lies apart: packed, they fill a third of a register, and packing takes longer than adding up."""
    (tmp_path / "p.kn").write_text("\n".join([
        "koine 1 tensor", '%a = param "a" : f32 [512, 32]', '%b = param "b" : f32 [512, 10]', "%c = reshape %b (512, 5, 2)",
        "%d = shrink %c (0, 0, 0) (512, 5, 1)", "%e = reshape %d (512, 5)", "%f = permute %e order=(1, 0)", "%g = reshape %f (1, 5, 512)",
        "%h = expand %g (32, 5, 512)", "%i = permute %a order=(1, 0)", "%j = reshape %i (32, 1, 512)", "%k = expand %j (32, 5, 512)",
        "%l = mul %k %h", "%m = reduce add %l axes=(2)", "%y = reshape %m (32, 5)", 'out "y" = %y', ""]))
    opts = koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}).stdout
    assert "split 0 16 u" in opts and "stage" not in opts, opts


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_copy_what_they_need(koine, threads):
    """Of a convolution with stride 2 whose rows fill vectors each thread has rows of the image, and copies these alone."""
    net = koine("bench", "text", "resnet50_forward").stdout
    env = {"KN_CODE": "x86", "KN_CPU": "avx2", "KN_THREADS": str(threads)}
    out = koine("compile", "-", "--target", "x86", "--to", "optimize", stdin=net, env=env).stdout
    opts = re.search(r"_7_7_64_112_112\".* opts=\[(.*)\]", out)[1]
    assert opts.startswith(f"split 1 {threads} t") and "stage 1 " in opts, opts


@pytest.mark.parametrize("m, k, n, parts, packs", [(64, 64, 3136, 2, False), (66, 64, 3136, 1, False), (256, 1024, 196, 1, True)])
def test_parts_for_each_thread(koine, tmp_path, m, k, n, parts, packs):
    """Two where they divide the rows and copy nothing: a thread that is late leaves one to the others. What is packed is packed by each part."""
    opts, _ = optimized(koine, tmp_path, m, k, n, across=False, threads=2)
    assert re.match(rf"split [01] {2 * parts} t top", opts) and ("stage" in opts) == packs, opts


@pytest.mark.parametrize("level", ["avx2", "avx512", "fp16"])
@pytest.mark.parametrize("layers", [6, 12])
def test_layers_that_share_their_input_fit_the_stack(koine, level, layers):
    """They are one kernel, each with panels and kept sums of its own: together more than a stack has, and then none packs."""
    text = 'koine 1 tensor\n%x = param "x" : f32 [128, 3072]\n%x1 = reshape %x (128, 1, 3072) : f32 [128, 1, 3072]\n%xe = expand %x1 (128, 768, 3072) : f32 [128, 768, 3072]\n'
    for i in range(layers):
        text += (f'%w{i} = param "w{i}" : f32 [768, 3072]\n%r{i} = reshape %w{i} (1, 768, 3072)\n%e{i} = expand %r{i} (128, 768, 3072)\n%p{i} = mul %xe %e{i}\n'
                 f'%y{i} = reduce add %p{i} axes=(2)\nout "y{i}" = %y{i}\n')
    r = koine("compile", "-", "--target", "x86", env={"KN_CPU": level, "KN_THREADS": 1}, stdin=text)
    frames = [int(n) for n in re.findall(r"frame (\d+) bytes", r.stdout)]
    assert frames and max(frames) < 4 << 20
