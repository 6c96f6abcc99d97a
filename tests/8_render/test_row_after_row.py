"""What is done of one row goes along with another row's work: LATE stores a row while the next one is worked on, past the caches, PIPELINE finds a row's
maximum along with the sum of the row before, or with what is kept of it. No bit of a result changes, at any level, on any number of threads."""
import re

import numpy as np
import pytest

LEVELS = ["fp16", "avx512", "avx2", "sse2"]
EXPONENTIALS = """koine 1 tensor
%x = param "x" : f32 [{rows}, {n}]
%m = reduce max %x axes=(1)
%b = expand %m ({rows}, {n})
%d = sub %x %b
%e = exp %d
%s = reduce add %e axes=(1)
"""
SOFTMAX = EXPONENTIALS + '%r = recip %s\n%t = expand %r ({rows}, {n})\n%y = mul %e %t\nout "y" = %y\n'
ONCE = EXPONENTIALS + '%t = param "t" : f32 [{rows}, 1]\n%l = log %s\n%u = sub %t %m\n%y = sub %u %l\nout "y" = %y\n'
LOG_SUM_EXP = EXPONENTIALS + '%l = log %s\n%y = add %l %m\nout "y" = %y\n'


@pytest.fixture
def program(tmp_path):
    def write(text, rows, n):
        p = tmp_path / "p.kn"
        p.write_text(text.format(rows=rows, n=n))
        return p
    return write


def opts(koine, p, **env):
    return koine("compile", p, "--to", "optimize", env=env).stdout


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("code", ["x86", "c"])
@pytest.mark.parametrize("text, rows, n", [(SOFTMAX, 64, 256), (SOFTMAX, 97, 128), (LOG_SUM_EXP, 160, 256), (LOG_SUM_EXP, 97, 131), (ONCE, 97, 263)])
def test_it_changes_nothing(koine, program, level, code, text, rows, n):
    p, env = program(text, rows, n), {"KN_CPU": level, "KN_CODE": code}
    runs = [koine("run", p, env={**env, **more, "KN_THREADS": t}).stdout
            for more in ({"KN_STREAM": 0}, {"KN_STREAM": 1}, {"KN_STREAM": 1, "KN_AHEAD": 16384}) for t in (1, 2, 5)]
    assert len(set(runs)) == 1 and "y" in runs[0]


@pytest.mark.parametrize("stage", ["optimize", "expand", "select", "linearize", "plan"])
@pytest.mark.parametrize("op, text, n, ahead", [("late", SOFTMAX, 64, 0), ("pipeline", LOG_SUM_EXP, 150, 0), ("pipeline", SOFTMAX, 128, 16384)])
def test_every_stage_means_the_same(koine, program, tmp_path, stage, op, text, n, ahead):
    def numbers(text):
        return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]

    p, q = program(text, 40, n), tmp_path / "q.kn"
    q.write_text(koine("compile", p, "--to", stage, env={"KN_CODE": "x86", "KN_STREAM": 1, "KN_THREADS": 2, "KN_AHEAD": ahead, "KN_VERIFY": 1}).stdout)
    got, want = (numbers(koine("run", f, "--device", "INTERP").stdout) for f in (q, p))
    assert op in q.read_text() and got == pytest.approx(want, rel=1e-5) and got


@pytest.mark.parametrize("n, places", [(4096, 4), (2048, 2), (1024, 0)])
def test_kept_rows_go_in_places_a_page_apart(koine, program, n, places):
    """With FP16 what is stored of the row before, while this one is read."""
    found = opts(koine, program(SOFTMAX, 4096, n), KN_CPU="fp16", KN_CODE="x86", KN_STREAM=1 << 20, KN_THREADS=1)
    assert "late 0 0" in found
    assert re.search(rf"split 2 {n // places} L #\d+, split 2 {places} u #\d+", found) if places else " L #" not in found, found


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("rows, n", [(256, 4096), (257, 2048), (64, 8208)])
def test_kept_rows_in_places_on_the_processor(koine, program, tmp_path, rows, n):
    x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    p, got = program(SOFTMAX, rows, n), []
    for threads in (1, 2, 3, 5):
        env = {"KN_CPU": "fp16", "KN_CODE": "x86", "KN_THREADS": threads, "KN_VERIFY": "1", "KN_STREAM": 1 << 20}
        koine("run", p, "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", env=env)
        got.append(np.load(tmp_path / "y.npy"))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.allclose(got[0], e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-9)
    assert all(np.array_equal(got[0], y) for y in got[1:])


def test_stores_stand_beside_the_exponentials(koine, program):
    p, env = program(SOFTMAX, 64, 256), {"KN_CPU": "avx512", "KN_STREAM": 1, "KN_THREADS": 1}
    assert "late" in opts(koine, p, **env)
    loops = re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout)
    assert [("vscalefps" in b) for b in loops if "vmovntps" in b] == [True, False]


def test_the_next_maximum_stands_beside_both(koine, program):
    """Where much is to be under way: one loop reads the next row, works on this one and stores the one before. As that one is kept, less is asked for."""
    p, env = program(SOFTMAX, 64, 256), {"KN_CPU": "avx512", "KN_CODE": "x86", "KN_STREAM": 1, "KN_THREADS": 1, "KN_AHEAD": 16384}
    made = opts(koine, p, **env)
    assert "late 0 0" in made and "pipeline 0 0" in made and re.findall(r"prefetch \d+ (\d+)( top)?", made) == [("8192", "")]
    loops = re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout)
    assert [[i in b for i in ("vscalefps", "vrangeps", "prefetcht0")] for b in loops if "vmovntps" in b] == [[True] * 3, [False] * 3]


@pytest.mark.parametrize("n", [256, 131])
def test_the_maximum_stands_beside_the_exponentials(koine, program, n):
    """And asks for its row alone, once a line; this row has come before."""
    p, env = program(LOG_SUM_EXP, 1 << 14, n), {"KN_CPU": "fp16", "KN_CODE": "x86", "KN_THREADS": 1}
    assert "pipeline" in opts(koine, p, **env)
    loops = [b for b in re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout) if "vscalefps" in b]
    assert loops and all("vrangeps" in b for b in loops)
    assert loops[0].count("prefetcht1") == 2


def test_it_asks_further_ahead_where_much_is_to_be_under_way(koine, program):
    """KN_AHEAD: into the first cache. Where no hardware fetches streams, further than where it does."""
    p, env = program(LOG_SUM_EXP, 64, 256), {"KN_CODE": "x86", "KN_THREADS": 1, "KN_STREAM": 1}
    asked = [re.findall(r"prefetch \d+ (\d+)( top)?", opts(koine, p, **env, **more))
             for more in ({"KN_CPU": "dot", "KN_AHEAD": 16384}, {"KN_CPU": "dot"}, {"KN_CPU": "fp16"})]
    assert asked == [[("16384", "")], [("8192", " top")], [("4096", " top")]]


@pytest.mark.parametrize("rows, n, threads", [(160, 256, 2), (160, 256, 5), (1 << 10, 50257, 2)])
def test_threads_share_the_rows(koine, program, rows, n, threads):
    """One thread has no PIPELINE where orders of sums are compared (3_optimize/orders.c): the sum is added up alike all the same."""
    text = opts(koine, program(LOG_SUM_EXP, rows, n), KN_CPU="fp16", KN_CODE="x86", KN_STREAM=1, KN_THREADS=threads)
    assert "pipeline" in text and re.search(rf"split \d+ {threads} t top", text)


@pytest.mark.runs
@pytest.mark.parametrize("level", ["fp16", "avx2"])
@pytest.mark.parametrize("text, rows, n", [(LOG_SUM_EXP, 20, 16384), (LOG_SUM_EXP, 40, 16384 + 77), (LOG_SUM_EXP, 40, 20000), (ONCE, 40, 16384 + 77)])
def test_a_long_row_adds_up_alike(koine, program, level, text, rows, n):
    p, env = program(text, rows, n), {"KN_CODE": "x86", "KN_CPU": level, "KN_STREAM": 1, "KN_ALONE": 1}
    runs = [koine("run", p, env={**env, "KN_THREADS": t}).stdout for t in (1, 2, 5)]
    assert len(set(runs)) == 1 and "y" in runs[0]


def test_a_long_row_goes_in_parts(koine, program):
    """Four of them beside each other where there is FP16, each asked for ahead."""
    def parts(level, n):
        env = {"KN_CODE": "x86", "KN_CPU": level, "KN_STREAM": 1, "KN_THREADS": 2}
        p = program(LOG_SUM_EXP, 40, n)
        loops = [b for b in re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout) if "vscalefps" in b]
        return bool(re.search(r"pipeline .*split \d+ 4 R top", opts(koine, p, **env))), loops[0].count("prefetcht1")

    assert parts("fp16", 20000) == parts("fp16", 16384) == (True, 4)
    assert parts("avx512", 20000) == parts("fp16", 8192) == (False, 2)


def test_a_row_is_gone_through_once(koine, program):
    """One loop that is asked ahead, in four parts where there is FP16, and two that run where data says so."""
    def found(more):
        env = {"KN_CODE": "x86", "KN_THREADS": 2, "KN_STREAM": 1, **more}
        p = program(ONCE, 40, 20000)
        text = opts(koine, p, **env)
        loops = re.findall(r"loop of (\S+),", koine("compile", p, "--target", "x86", env=env).stdout)
        seldom = [n for n in loops if n.startswith("where(")]
        assert "pipeline" not in text and len(seldom) == 2
        return re.findall(r"prefetch \d+ (\d+)( top)? #\d+\]", text), bool(re.search(r"split \d+ 4 R top", text))

    assert found({"KN_CPU": "dot", "KN_AHEAD": 16384}) == ([("24576", "")], False)
    assert found({"KN_CPU": "dot"}) == ([("8192", " top")], False)
    assert found({"KN_CPU": "fp16"}) == ([("1024", " top")], True)
