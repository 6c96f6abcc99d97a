"""What is read in several places far apart, where the hardware fetches ahead for several faster than for one (3_optimize/places.c: AVX2, FP16), and squares
that are stored past the caches with FP16."""
import re

import numpy as np
import pytest

AVX2, FP16 = ("avx2", 8), ("fp16", 16)
RUN = [pytest.param(*level, marks=pytest.mark.runs(level[0])) for level in (AVX2, FP16)]

FIRST = """koine 1 tensor
%x = param "x" : f32 [{m}, {n}]
%m = reduce max %x axes=(1)
%mx = expand %m ({m}, {n})
%eq = eq %x %mx
%nan = ne %x %x
%hit = or %eq %nan
%one = reshape 1:i32 (1)
%ones = expand %one ({n})
%op = pad %ones ({n_1}) ({nn_1})
%o2 = reshape %op (1, {nn_1})
%ox = expand %o2 ({n1}, {nn_1})
%o1 = reshape %ox ({all})
%oc = shrink %o1 (0) ({cut})
%ow = reshape %oc ({n}, {nn})
%win = shrink %ow (0, 0) ({n}, {n})
%cnt = reduce add %win axes=(1)
%back = sub {n1} %cnt
%bk = reshape %back (1, {n})
%bx = expand %bk ({m}, {n})
%sc = where %hit %bx 0
%best = reduce max %sc axes=(1)
%pos = sub {n} %best
out "y" = %pos
"""  # argmax, as examples/argmax.kn, the first NaN if there is one


def opts(koine, text, level, **env):
    r = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_CPU": level, "KN_THREADS": 1, "KN_CODE": "x86"} | env)
    return re.search(r"opts=\[(.*)\]", r.stdout)[1]


def rows_of(op, m, n):
    if op != "argmax":
        return f'koine 1 tensor\n%x = param "x" : f32 [{m}, {n}]\n%s = reduce {op} %x axes=(1)\nout "y" = %s\n'
    counts = {"nn": 2 * n, "n1": n + 1, "n_1": n - 1, "nn_1": 2 * n - 1, "all": (n + 1) * (2 * n - 1), "cut": 2 * n * n}
    return FIRST.format(m=m, n=n, **counts)


@pytest.mark.parametrize("level, lanes", [AVX2, FP16])
@pytest.mark.parametrize("op", ["add", "max", "argmax"])
def test_rows_are_read_in_four_places(koine, op, level, lanes):
    """Of a quarter of them each, a vector of each, whatever threads have of it; short rows, few of them and what stays in a cache are not."""
    for m, threads, cut in ((4096, 1, ""), (4099, 3, r"cut 0 4096 #\d, ")):
        found = opts(koine, rows_of(op, m, 4096), level, KN_THREADS=threads)
        assert re.match(cut + r"split 0 1024 L #\d, split 0 4 u #\d", found), found
        assert re.search(rf"split 1 {lanes} r #\d" if op != "argmax" else rf"first \d {lanes} ", found), found
        assert level != "fp16" or threads == 3 or re.search(r"prefetch \d 1024 (top )?#1", found), found
    assert "split 0 250 L #" in opts(koine, rows_of(op, 1000, 2048), level, KN_THREADS=4)  # as many threads as places
    for m, n in ((1 << 20, 64), (63, 1 << 20), (256, 256)):
        assert not re.search(r"split 0 \d+ L #\d, split 0 4 u", opts(koine, rows_of(op, m, n), level))
    assert " L #" not in opts(koine, rows_of(op, 4096, 4096), "avx512")


@pytest.mark.parametrize("level, lanes", RUN)
@pytest.mark.parametrize("op, m, n", [(op, m, n) for op in ("add", "max", "argmax") for m, n in ((1024, 4096), (1033, 4099))])
def test_rows_in_four_places_on_the_processor(koine, tmp_path, op, m, n, level, lanes):
    """With NaNs, infinities and what is largest twice; the same for any number of threads, and whatever is stored past the caches."""
    x = np.random.default_rng(n).standard_normal((m, n)).astype(np.float32)
    x[5, 7:9], x[6, [100, 3000]], x[m - 1, n - 1], x[m - 2] = np.inf, 9, 9, -np.inf
    if op != "add":
        x[300, [50, 2000]], x[301] = np.nan, np.nan
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "p.kn").write_text(rows_of(op, m, n))
    got = []
    for threads in (1, 2, 3, 5):
        env = {"KN_CPU": level, "KN_CODE": "x86", "KN_THREADS": threads, "KN_VERIFY": "1", "KN_STREAM": threads >> 1}
        koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", env=env)
        got.append(np.load(tmp_path / "y.npy").reshape(m))
    want = {"add": lambda: x.astype(np.float64).sum(1), "max": lambda: x.max(1), "argmax": lambda: x.argmax(1)}[op]()
    assert np.allclose(got[0], want, atol=1e-3, rtol=0, equal_nan=True)
    assert all(np.array_equal(got[0], y, equal_nan=True) for y in got[1:])


ONE, TWO, THREE = ["%y = neg %a"], ["%y = add %a %b"], ["%p = mul %a %b", "%y = add %p %c"]
EXP, ROOT, SINE = ["%y = exp %a"], ["%y = sqrt %a"], ["%p = sin %a", "%q = cos %a", "%y = mul %p %q"]


def elements(n, lines):
    """Of as many operands as the lines name, element by element."""
    names = sorted(set(re.findall(r"%([abc])\b", " ".join(lines))))
    return "\n".join(["koine 1 tensor", *(f'%{a} = param "{a}" : f32 [{n}]' for a in names), *lines, 'out "y" = %y\n'])


# lines, level: places, vectors of each, what is asked for; 0 places: as it lies
MANY = [(TWO, AVX2, 2, 4, None), (ONE, AVX2, 0, 4, None), (THREE, AVX2, 0, 4, None),
        (ONE, FP16, 4, 2, 2048), (EXP, FP16, 4, 1, 4096), (TWO, FP16, 2, 2, 2048), (THREE, FP16, 2, 2, 2048), (ROOT, FP16, 0, 4, 2048), (SINE, FP16, 0, 1, None)]


@pytest.mark.parametrize("lines, level, places, vectors, asked", MANY)
def test_elements_go_in_places(koine, lines, level, places, vectors, asked):
    """From memory, of each thread's part; what the places do not divide is cut off."""
    level, lanes = level
    found = opts(koine, elements((1 << 24) + 40, lines), level)
    split = rf"split 0 {(1 << 24) // (places or 1)} L #\d, split 0 {places} u #\d, " if places else ""
    more = rf", split \d {vectors} u #\d" if vectors > 1 else r", (?!split 3)"
    assert re.search(rf"{'cut 0 16777216 ' if places else ''}.*{split}split \d {lanes} u #\d{more}", found), found
    if places:
        assert re.findall(r"prefetch \d (\d+) (?:top )?#1", found)[:1] == [str(asked)] * bool(asked), found
        assert re.match(rf"split 0 2 t (top )?#1, split 0 {(1 << 23) // places} L #2, ", opts(koine, elements(1 << 24, lines), level, KN_THREADS=2))
    else:
        assert " L #" not in found
    assert " L #" not in opts(koine, elements(1 << 16, lines), level)
    assert not re.search(r"split 0 \d+ L #\d, split 0 \d u", opts(koine, elements(1 << 24, lines), "avx512"))


@pytest.mark.parametrize("level, lanes", RUN)
@pytest.mark.parametrize("lines, want", [(ONE, lambda a: -a), (TWO, lambda a, b: a + b), (THREE, lambda a, b, c: a * b + c), (EXP, lambda a: np.exp(a))])
def test_elements_in_places_on_the_processor(koine, tmp_path, lines, want, level, lanes):
    n = (1 << 22) + 77
    x = dict(zip("abc", np.random.default_rng(1).standard_normal((3, n)).astype(np.float32)))
    (tmp_path / "p.kn").write_text(elements(n, lines))
    names, given = "abc"[: want.__code__.co_argcount], []
    for a in names:
        np.save(tmp_path / f"{a}.npy", x[a])
        given += ["--in", f"{a}={tmp_path}/{a}.npy"]
    for threads in (1, 2, 3):
        env = {"KN_CPU": level, "KN_CODE": "x86", "KN_THREADS": threads, "KN_VERIFY": "1", "KN_STREAM": 1 << 20}
        koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path}/y.npy", env=env)
        y, right = np.load(tmp_path / "y.npy"), want(*(x[a].astype(np.float64) for a in names))
        assert np.allclose(y, right, rtol=1e-6, atol=1e-6), np.abs(y - right).max()


def vector_by_rows(n, k):
    """A vector by a matrix whose rows lie along the sum, as a linear layer has its weights."""
    return "\n".join(["koine 1 tensor", f'%x = param "x" : f32 [{k}]', f'%w = param "w" : f32 [{n}, {k}]', f"%r = reshape %x (1, {k})",
                      f"%e = expand %r ({n}, {k})", "%p = mul %e %w", "%y = reduce add %p axes=(1)", 'out "y" = %y\n'])


@pytest.mark.parametrize("n, k, level, places", [(50257, 768, "fp16", True), (50257, 768, "avx512", False), (512, 64, "fp16", False)])
def test_a_vector_by_rows_reads_four_places(koine, n, k, level, places):
    """From memory: rows of a quarter of the matrix each, whatever is left over apart, asked for a little ahead."""
    found = opts(koine, vector_by_rows(n, k), level)
    assert bool(re.search(rf"split 0 {n // 4} L #\d, split 0 4 u #\d", found)) == places, found
    assert not places or "prefetch 1 1024 " in found, found


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("n, k", [(50257, 100), (8195, 768)])
def test_a_vector_by_rows_on_the_processor(koine, tmp_path, n, k):
    r = np.random.default_rng(n)
    x, w = r.standard_normal(k).astype(np.float32), r.standard_normal((n, k)).astype(np.float32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    (tmp_path / "p.kn").write_text(vector_by_rows(n, k))
    got = []
    for threads in (1, 2, 3, 5):
        koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y.npy",
              env={"KN_CPU": "fp16", "KN_CODE": "x86", "KN_THREADS": threads, "KN_VERIFY": "1"})
        got.append(np.load(tmp_path / "y.npy").reshape(n))
    assert np.allclose(got[0], w.astype(np.float64) @ x, atol=1e-4)
    assert all(np.array_equal(got[0], y) for y in got[1:])


def turned(n, m):
    return f'koine 1 tensor\n%x = param "x" : f32 [{n}, {m}]\n%t = permute %x order=(1, 0)\n%y = contiguous %t\nout "y" = %y\n'


@pytest.mark.parametrize("n, m, level, stream, lines", [(4096, 4096, "fp16", True, 2), (768, 768, "fp16", True, 2), (512, 512, "fp16", False, 2),
                                                        (4096, 4096, "avx512", True, 16), (768, 768, "avx512", False, 2)])
def test_squares_are_stored_past_the_caches(koine, n, m, level, stream, lines):
    """With FP16 where a second-level cache does not hold them, two lines beside each other; else where the last one does not."""
    found = opts(koine, turned(n, m), level)
    assert ("stream 0 0" in found) == stream and re.search(rf"split \d {lines} u #", found), found
