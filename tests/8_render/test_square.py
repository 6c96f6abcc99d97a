"""Transposing in registers: machine code gives what the interpreter gives, of every element size, at the ends of memory, in reverse; where eight
or sixteen columns of sixteen rows are read, or eight are written, they are read and written as rows; with AVX2 four or eight of eight rows."""
import re

import numpy as np
import pytest

LEVELS = ["avx512", "avx2", "sse2"]


def program(dtype, rows, cols, flip):
    around = f"%f = flip %x axes=({flip})" if flip is not None else "%f = permute %x order=(0, 1)"
    return (f'koine 1 tensor\n%x = param "x" : {dtype} [{rows}, {cols}]\n{around}\n%t = permute %f order=(1, 0)\n'
            f'%y = add %t %t\nout "y" = %y\n')


def code_of(koine, text, threads=1, level="avx512", **env):
    return koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": 1} | env).stdout


SIZES = [(64, 8), (64, 64), (80, 24), (100, 37), (16, 7), (272, 64), (264, 40)]


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "u32", "f64", "i16"])
@pytest.mark.parametrize("rows, cols", SIZES)
@pytest.mark.parametrize("flip", [None, 0, 1])
def test_transposed(koine, tmp_path, level, dtype, rows, cols, flip):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(program(dtype, rows, cols, flip))
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout


@pytest.mark.parametrize("dtype", ["f32", "u32"])
@pytest.mark.parametrize("rows, cols", [(r, c) for r, c in SIZES if r % 16 == 0 and c % 8 == 0])
@pytest.mark.parametrize("flip", [None, 0])
def test_squares(koine, dtype, rows, cols, flip):
    """Nothing goes through the frame, lane by lane, nor in what a cut leaves."""
    code = code_of(koine, program(dtype, rows, cols, flip))
    halves, across = code.count("vinsertf64x4"), code.count("vshuff32x4")
    assert across >= 8 and "# frame" not in code
    assert halves == 0 and across % 16 == 0 if cols % 16 == 0 else halves >= 8 and across == halves  # lines read whole


@pytest.mark.parametrize("dtype", ["f32", "u32"])
@pytest.mark.parametrize("rows, cols", [(r, c) for r, c in SIZES if r % 8 == 0 and c % 4 == 0])
@pytest.mark.parametrize("flip", [None, 0])
def test_halves_of_squares(koine, dtype, rows, cols, flip):
    """AVX2: four elements of each of eight rows, in four registers."""
    code = code_of(koine, program(dtype, rows, cols, flip), level="avx2")
    assert code.count("vinsertf128") >= 4 and "# frame" not in code and "vinsertps" not in code and "vpinsr" not in code
    assert code.count("vinsertf128") == code.count("vunpcklps") * 2


def test_lines_are_stored_whole(koine):
    """Past the caches a line of two vectors is no two halves with others between them: it would go to memory in two parts."""
    code = code_of(koine, program("f32", 128, 128, None), level="avx2", KN_STREAM=1024)
    stores = [int(m[1] or 0) for m in re.finditer(r"vmovntps YMMWORD PTR \[\w+\+\w+\*4(?:\+(\d+))?\]", code)]
    assert len(stores) == 8 and all(b == a + 32 for a, b in zip(stores[::2], stores[1::2]))


@pytest.mark.parametrize("level, stores", [("avx512", 16), ("avx2", 4)])
def test_one_test_of_what_is_aligned_alike(koine, level, stores):
    """Of rows whole lines apart the stores of a square that is copied are aligned if one is; of others each is asked."""
    def counts(rows):
        code = code_of(koine, program("f32", rows, 128, None).replace("add %t %t", "contiguous %t"), level=level, KN_STREAM=1024)
        return code.count("vmovntps"), len(re.findall(r"test r?\w+, (?:63|31)\b", code))

    many, tests = counts(128)
    assert many == stores * tests > 0
    assert level == "avx2" or len(set(counts(131))) == 1


@pytest.mark.parametrize("dtype, rows, cols, flip", [("f64", 64, 64, None), ("i16", 64, 64, None), ("f32", 64, 64, 1), ("f32", 16, 7, None), ("u32", 16, 7, 0)])
def test_what_is_no_square(koine, dtype, rows, cols, flip):
    assert "vshuff32x4" not in code_of(koine, program(dtype, rows, cols, flip))


HEAVY = {
    "exp": "%y = exp %t",
    "erf": "%a = erf %t\n%b = mul %t %a\n%y = add %b %t",
    "other": "%e = exp %z\n%b = mul %t %z\n%y = add %b %e",  # one of two is transposed
    "sqrt": "%a = mul %t %t\n%b = add %a 1.0\n%c = sqrt %b\n%y = mul %c %z",
}


def heavy(name, rows, cols):
    return (f'koine 1 tensor\n%x = param "x" : f32 [{rows}, {cols}] in [-2, 2]\n%z = param "z" : f32 [{cols}, {rows}] in [-2, 2]\n'
            f'%t = permute %x order=(1, 0)\n{HEAVY[name]}\nout "y" = %y\n')


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("rows, cols", [(64, 64), (100, 37), (272, 40)])
def test_much_of_what_is_transposed(koine, tmp_path, level, name, rows, cols):
    p, rng = tmp_path / "p.kn", np.random.default_rng(rows)
    p.write_text(heavy(name, rows, cols))
    x, z = rng.uniform(-2, 2, (rows, cols)).astype("f4"), rng.uniform(-2, 2, (cols, rows)).astype("f4")
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "z.npy", z)
    given = ["--in", f"x={tmp_path}/x.npy"] + (["--in", f"z={tmp_path}/z.npy"] if "%z" in HEAVY[name] else [])
    got = []
    for env, device in (({"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}, "CPU"), ({}, "INTERP")):
        koine("run", p, *given, "--device", device, "--out", f"y={tmp_path}/{device}.npy", env=env)
        got.append(np.load(tmp_path / f"{device}.npy"))
    np.testing.assert_allclose(got[0], got[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", ["avx512", "avx2"])
@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("rows, cols", [(64, 64), (272, 40)])
def test_it_goes_by_squares(koine, level, name, rows, cols):
    """Lane by lane the rows, far apart, took ten to twenty times as long."""
    code = code_of(koine, heavy(name, rows, cols), level=level)
    assert code.count("vunpcklps") >= (4 if level == "avx512" else 2) and "vgather" not in code and "vinsertps" not in code and "vpinsr" not in code


BATCHES = [(1, 64, 64), (3, 50, 48), (2, 272, 24), (2, 49, 64)]


def batched(batch, rows, cols):
    return f'koine 1 tensor\n%x = param "x" : f32 [{batch}, {rows}, {cols}]\n%y = permute %x order=(0, 2, 1)\nout "y" = %y\n'


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("batch, rows, cols", BATCHES)
def test_batches(koine, tmp_path, level, batch, rows, cols):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(batched(batch, rows, cols))
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout


@pytest.mark.parametrize("batch, rows, cols", BATCHES)
def test_what_a_cut_leaves(koine, batch, rows, cols):
    """Rows that no vector takes are cut off inside the batch, and the other loop inside them: what is left goes in squares."""
    code = code_of(koine, batched(batch, rows, cols))
    assert code.count("vunpcklps") >= 8 and "vgather" not in code
    assert rows % 16 or "# frame" not in code


LINEAR = """koine 1 tensor
%x = param "x" : f32 [{m}, {k}]
%w = param "w" : f32 [{n}, {k}]
%r = param "r" : f32 [{m}, {n}]
%xr = reshape %x ({m}, 1, {k})
%xe = expand %xr ({m}, {n}, {k})
%wr = reshape %w (1, {n}, {k})
%we = expand %wr ({m}, {n}, {k})
%p = mul %xe %we
%s = reduce add %p axes=(2)
%sr = reshape %s ({m}, {n})
{after}
out "y" = %y
"""
PLAIN, ADDED, CHANGED = "%y = add %sr 0.0", "%y = add %sr %r", "%a = add %sr %r\n%b = mul %a %a\n%y = mul %b %sr"


PRODUCTS = pytest.mark.parametrize("after, m, k, n, threads", [
    (after, *size, threads) for after in (PLAIN, ADDED, CHANGED) for size in ((32, 24, 64), (48, 16, 64), (64, 40, 65), (96, 7, 97)) for threads in (1, 3)])


@PRODUCTS
def test_columns_are_written_as_rows(koine, after, m, k, n, threads):
    """Rows by rows: the results of a tile are columns, which go to memory as rows of eight, once the last one is there."""
    code = code_of(koine, LINEAR.format(m=m, k=k, n=n, after=after), threads)
    assert len(re.findall("vextractf64x4 YMMWORD", code)) >= 8, "two rows from each"
    assert "spill" not in code.split("registers:")[0]


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@PRODUCTS
def test_rows_by_rows(koine, tmp_path, level, after, m, k, n, threads):
    p, rng = tmp_path / "p.kn", np.random.default_rng(m + n)
    p.write_text(LINEAR.format(m=m, k=k, n=n, after=after))
    x, w, r = (rng.integers(-8, 9, s).astype("f4") for s in ((m, k), (n, k), (m, n)))
    for name, a in (("x", x), ("w", w), ("r", r)):
        np.save(tmp_path / f"{name}.npy", a)
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": 1}
    given = ("x", "w") if after == PLAIN else ("x", "w", "r")
    koine("run", p, *[a for v in given for a in ("--in", f"{v}={tmp_path}/{v}.npy")], "--out", f"y={tmp_path}/y.npy", env=env)
    s = x @ w.T
    want = s if after == PLAIN else s + r if after == ADDED else (s + r) ** 2 * s
    assert np.array_equal(np.load(tmp_path / "y.npy"), want)
