"""What few arguments need stands in a loop that runs where a lane has such a one (5_select/rare.c): sin, cos and tan of 2^17 and more. Each lane's value is that of its
argument alone, and right; the interpreter runs the same list to the same bits."""
import math
import re

import numpy as np
import pytest

from on_arrays import run, text

ULPS = {"sin": 0.88, "cos": 0.88, "tan": 1.66}  # docs/accuracy.md, and what a double leaves open
FAR = 131072.0
LEVELS = [pytest.param("avx512", marks=pytest.mark.runs("avx512")), pytest.param("avx2", marks=pytest.mark.runs("avx2"))]


def same(a, b):
    return np.array_equal(a.view(np.uint32)[~np.isnan(a)], b.view(np.uint32)[~np.isnan(b)]) and np.array_equal(np.isnan(a), np.isnan(b))


def arguments(n, far):
    """A share of them far off, the edges among them."""
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 5, n)).astype(np.float32)
    x[np.abs(x) >= FAR] = 1.0
    at = rng.random(n) < far
    x[at] = (rng.choice([-1, 1], n) * 2.0 ** rng.uniform(17, 127.9, n)).astype(np.float32)[at]
    edges = np.array([FAR, np.nextafter(np.float32(FAR), np.float32(0)), -FAR, 0.0, -0.0, 1e-42, 105032.87, 3e38, np.inf, -np.inf, np.nan], np.float32)
    if far: x[:len(edges)] = edges[:n]
    return x


@pytest.mark.parametrize("function", ULPS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n, far", [(1, 0), (1, 1), (5, 0.5), (16, 0), (37, 0.1), (1000, 0), (1000, 0.003), (1000, 1), (4096, 0.5)])
def test_right_and_the_lane_s_own(koine, tmp_path, function, level, n, far):
    x = arguments(n, far)
    got = run(koine, tmp_path, [f"%y = {function} %x"], x, level)
    want = np.array([getattr(math, function)(v) if np.isfinite(v) else np.nan for v in x.astype(np.float64)])
    ok = np.isfinite(x)
    ulp = np.spacing(2.0 ** np.floor(np.log2(np.maximum(np.abs(want[ok]), 2.0 ** -126))).astype(np.float32))
    assert np.isnan(got[~ok]).all() and (np.abs(got[ok].astype(np.float64) - want[ok]) < ULPS[function] * ulp).all()
    assert (np.signbit(got[x == 0]) == (np.signbit(x[x == 0]) & (function != "cos"))).all()
    order = np.random.default_rng(1).permutation(n)
    assert same(run(koine, tmp_path, [f"%y = {function} %x"], x[order], level), got[order]), "which lanes stand beside it"


def loops(koine, tmp_path, lines, shape, level):
    """Of a kernel those that run so often as a value says."""
    p = tmp_path / "p.kn"
    p.write_text(text(lines, shape))
    out = koine("compile", p, "--to", "select", env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": "1"}).stdout
    bounds = re.findall(r"= range \d+ \w+ (\S+) ", out)
    return sum(b.startswith("%") for b in bounds)


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_ops_of_one_argument_share_a_loop(koine, tmp_path, level):
    both = ["%a = sin %x", "%b = cos %x", "%y = add %a %b"]
    two = ["%a = sin %x", "%h = mul %x 0.5", "%b = cos %h", "%y = add %a %b"]
    assert loops(koine, tmp_path, both, (8, 4096), level) == 1
    assert loops(koine, tmp_path, two, (8, 4096), level) == 2
    assert loops(koine, tmp_path, ["%y = exp %x"], (8, 4096), level) == 0


def test_short_vectors_have_none(koine, tmp_path):
    assert loops(koine, tmp_path, ["%y = sin %x"], (8, 4096), "sse2") == 0


PROGRAMS = {
    "within": ["%a = sin %x", "%y = cos %a"],
    "twice": ["%a = mul %x %x", "%b = sin %a", "%y = sin %b"],
    "summed": ["%a = sin %x", "%y = reduce add %a axes=(1)"],
    "of_sums": ["%a = reduce add %x axes=(1)", "%b = cos %a", "%c = expand %b (12, 130)", "%y = mul %c %x"],
    "largest": ["%a = tan %x", "%b = reduce max %a axes=(0)", "%c = expand %b (12, 130)", "%y = sub %a %c"],
    "turned": ["%t = permute %x order=(1, 0)", "%y = sin %t"],
    "chosen": ["%a = sin %x", "%b = lt 0.0 %x", "%y = where %b %a %x"],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_processor_agrees(koine, tmp_path, name, level, threads):
    """With the interpreter, on the list of instructions."""
    x = arguments(12 * 130, 0.02).reshape(12, 130)
    got = run(koine, tmp_path, PROGRAMS[name], x, level, threads)
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": str(threads)}
    listed = koine("compile", tmp_path / "p.kn", "--to", "plan", env=env).stdout
    koine("run", "-", "--device", "INTERP", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/z.npy", stdin=listed)
    assert same(np.load(tmp_path / "z.npy"), got)


def test_what_stands_behind_a_loop_that_did_not_run(koine):
    """Two nests in a kernel: the interpreter once had the second one's constants where the first one's rare loop, which ran for no lane, had used them first."""
    program = "koine 1 tensor\n%x = param \"x\" : f32 [4, 6] in [-1, 1]\n%y = tan %x\n%u = param \"u\" : f32 [7] in [-1, 1]\n%v = tanh %u\nout \"y\" = %y\nout \"v\" = %v\n"
    env = {"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": "1"}
    select, listed = (koine("compile", "-", "--to", to, env=env, stdin=program).stdout for to in ("select", "linearize"))
    assert listed.count("= sink ") == 1 and "range" in listed
    want, got = (koine("run", "-", "--device", "INTERP", stdin=s).stdout for s in (select, listed))
    assert want == got and "0.6" in want
