"""The same bits whatever the number of threads: for programs large enough to be shared out, and for small ones where KN_ALONE=1 has
every kernel shared out that can be. The parts that an uneven split leaves over, and what is tiled otherwise because fewer rows are
left to a thread, must add up in the same order."""
import json
import re
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
SMALL = sorted((HERE.parents[1] / "examples").glob("*.kn")) + sorted((HERE / "threads").glob("*.kn"))

EXP = """koine 1 tensor
%x = param "x" : f32 [{m}, {n}] in [-4, 4]
%m = reduce max %x axes=(1)
%mx = expand %m ({m}, {n})
%d = sub %x %mx
%e = exp %d
%s = reduce add %e axes=(1)
%sx = expand %s ({m}, {n})
"""

SOFTMAX = EXP + """%y = div %e %sx
out "y" = %y
"""

ROWS = EXP + """%v = param "v" : f32 [{n}, {c}] in [-1, 1]
%p = div %e %sx
%p3 = reshape %p ({m}, 1, {n})
%px = expand %p3 ({m}, {c}, {n})
%vt = permute %v order=(1, 0)
%v3 = reshape %vt (1, {c}, {n})
%vx = expand %v3 ({m}, {c}, {n})
%q = mul %px %vx
%r = reduce add %q axes=(2)
%y = reshape %r ({m}, {c})
out "y" = %y
"""


@pytest.mark.parametrize("text, m, n, c", [(ROWS, 131, 200, 50), (ROWS, 96, 64, 64), (ROWS, 61, 333, 17), (ROWS, 40, 90, 8),
                                           (SOFTMAX, 131, 333, 0), (SOFTMAX, 64, 1000, 0)])
def test_same_bits(koine, text, m, n, c):
    text = text.format(m=m, n=n, c=c)
    seen = {koine("run", "-", "--json", stdin=text, env={"KN_THREADS": str(t)}).stdout for t in (1, 2, 3, 5)}
    assert len(seen) == 1
    assert "LOCAL" in koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    spread = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_THREADS": "3"}).stdout
    assert "threads=3" in spread or "threads=2" in spread
    json.loads(seen.pop().splitlines()[0])


@pytest.mark.parametrize("code", ["x86", "c"])
@pytest.mark.parametrize("program", SMALL, ids=lambda p: p.stem)
def test_same_bits_of_small_programs(koine, tmp_path, program, code):
    def run(threads):
        out = koine("run", program, "--json", env={"KN_THREADS": str(threads), "KN_ALONE": "1", "KN_CODE": code}).stdout
        return [json.loads(line) for line in out.splitlines()]
    seen = [run(t) for t in ((1, 2, 5) if code == "x86" else (1, 5))]
    assert all(s == seen[0] for s in seen)


def test_small_programs_are_shared_out(koine):
    """Else the test above shows nothing."""
    threads = [koine("compile", p, "--to", "optimize", env={"KN_THREADS": "5", "KN_ALONE": "1"}).stdout.count(" threads=") for p in SMALL]
    assert sum(n > 0 for n in threads) > len(SMALL) * 3 // 4


def train(koine, threads, **env):
    """All losses on the way, which is to say all weights, go into the one that is printed."""
    out = koine("train", "digits", "--steps", "12", "--json", env={"KN_THREADS": str(threads), **env}).stdout
    return re.findall(r'"(?:loss|test_accuracy)": [\d.]+', out)


@pytest.mark.parametrize("alone", ["", "1"])
def test_training_is_the_same(koine, alone):
    seen = [train(koine, t, KN_ALONE=alone) for t in (1, 2, 5)]
    assert len(seen[0]) == 2 and all(s == seen[0] for s in seen), seen


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2"])
def test_training_is_the_same_at_each_level(koine, level):
    """With SSE2 24 columns of 32 went along the sum where threads were, and 8 where there was one: two orders in both."""
    seen = [train(koine, t, KN_CPU=level) for t in (1, 2, 5)]
    assert len(seen[0]) == 2 and all(s == seen[0] for s in seen), seen


def test_rows_that_a_tile_leaves_are_the_same_rows(koine, tmp_path):
    """Of 403 rows tiles of six leave one, of threads' parts more, and the last 13 columns of those go by lanes: as many, or one thread does it all."""
    x = np.random.default_rng(0).standard_normal((403, 333)).astype(np.float32)
    x[:, :320] = 0  # else what the 13 add up to is rounded away
    np.save(tmp_path / "x.npy", x)
    text = """koine 1 tensor
%x = param "x" : f32 [403, 333]
%r = shrink %x (0, 0) (1, 333)
%s = reduce add %r axes=(1)
%t = expand %s (1, 333)
%n = sub %r %t
%a = expand %n (403, 333)
%m = mul %x %a
%y = reduce add %m axes=(1)
out "y" = %y
"""
    seen = {koine("run", "-", "--json", "--in", f"x={tmp_path}/x.npy", stdin=text, env={"KN_THREADS": str(t), "KN_ALONE": "1", "KN_STREAM": "1"}).stdout
            for t in (1, 2, 3, 5)}
    assert len(seen) == 1


def test_a_sum_that_is_split_otherwise_is_shared_out(koine):
    """Parts one inside the other, for what is asked for ahead, add up as the whole loop does, however long they are."""
    m, k, n = 128, 2304, 768
    text = f"""koine 1 tensor
%x = param "x" : f32 [{m}, {k}] in [-1, 1]
%w = param "w" : f32 [{k}, {n}] in [-1, 1]
%a = reshape %x ({m}, {k}, 1)
%b = expand %a ({m}, {k}, {n})
%c = reshape %w (1, {k}, {n})
%d = expand %c ({m}, {k}, {n})
%p = mul %b %d
%s = reduce add %p axes=(1)
%y = reshape %s ({m}, {n})
out "y" = %y
"""
    def opts(threads):
        out = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_CODE": "x86", "KN_THREADS": str(threads), "KN_CPU": "avx512"}).stdout
        return re.findall(r"split \d+ \d+ R", out), "threads=2" in out
    (alone, _), (two, shared) = opts(1), opts(2)
    assert shared and len(alone) != len(two), (alone, two)
    assert len({koine("run", "-", "--json", stdin=text, env={"KN_THREADS": str(t)}).stdout for t in (1, 2, 3)}) == 1


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
def test_rows_that_are_threads_are_not_cut(koine, level):
    """What the heuristics may not do to a THREAD loop left the kernel as it was, and its sum in another order."""
    program, env = HERE / "threads/values-beside-each-other.kn", {"KN_ALONE": "1", "KN_CPU": level}
    assert len({koine("run", program, "--json", env=env | {"KN_THREADS": t}).stdout for t in (1, 5)}) == 1
    assert "threads=5" in koine("compile", program, "--to", "optimize", env=env | {"KN_THREADS": 5}).stdout


@pytest.mark.runs
@pytest.mark.parametrize("level, channels", [("sse2", 32), ("sse2", 40), ("avx2", 28), ("avx2", 64), ("avx512", 56), ("avx512", 160)])
def test_what_a_cut_leaves_is_a_nest_of_its_own(koine, level, channels):
    """Two nests that have lanes in common: once the first was decided, nothing was for the second, whose sum then went along its terms. Which was
    first hung on the threads, and orders of sums did not tell 24 channels and 8 from 8 and 24."""
    text = (HERE / "threads/a_tile_and_what_is_left.kn").read_text()
    text = re.sub(r"\b32\b", str(channels), text).replace("512", str(16 * channels))
    seen = {koine("run", "-", "--json", stdin=text, env={"KN_CPU": level, "KN_THREADS": str(t), "KN_ALONE": "1"}).stdout for t in (1, 2, 5)}
    assert len(seen) == 1
    kernel = koine("compile", "-", "--to", "optimize", stdin=text, env={"KN_CPU": level, "KN_THREADS": "2", "KN_ALONE": "1", "KN_CODE": "x86"}).stdout
    assert "threads=2" in kernel and " cut " in kernel and "UNROLL" not in kernel
