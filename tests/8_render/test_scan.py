"""SCAN: running sums along rows, a vector at a time, or a line where that is two: the heuristics choose it, and machine code gives what the interpreter gives for the
same list, and, where the sums are exact, for the program as it was."""
import itertools
import re

import pytest

LANES = {"avx512": 64, "avx2": 32, "sse2": 16}
SIZE = {"f32": 4, "f64": 8, "i32": 4}


def running(dtype, rows, n, back):
    """y[i, j] = x[i, 0] + ... + x[i, j]; back: of the row from its end."""
    at = f"%f = mul %j -1\n%g = add %f {n - 1}\n%at = add %s %g" if back else "%at = add %s %j"
    none = "-0.0" if dtype[0] == "f" else "0"
    return f"""koine 1 rangeify
%y = param slot=0 : {dtype} [{rows * n}]
%x = param slot=1 : {dtype} [{rows * n}]
%i = range 0 LOOP {rows} : index
%s = mul %i {n}
%j = range 1 LOOP {n} : index
{at}
%to = index %y %at
%acc = buffer 0 REG size=1 : {dtype} [1]
%out = after %acc %i
%begin = index %out 0
%start = store %begin {none}
%in = after %acc %start %j
%old = index %in 0
%term = index %x %at
%new = add %old %term
%grown = store %old %new
%now = after %acc %grown
%sum = index %now 0
%put = store %to %sum
%end = end %put %i %j
%k = sink %end name="running"
%a = buffer 0 GLOBAL size={rows * n} : {dtype} [{rows * n}]
%b = buffer 1 GLOBAL size={rows * n} : {dtype} [{rows * n}]
%c = call %k %a %b
%l = linear %c
in "x" = %b
root %l
out "y" = %a
"""


def vectors(level, lanes, n):
    """At a time."""
    return 2 if level == "avx2" and n % (2 * lanes) == 0 and n >= 8 * lanes else 1


SUMS = pytest.mark.parametrize("level, dtype, n, back", list(itertools.product(LANES, SIZE, [256, 64, 48, 37], [False, True])))


@SUMS
def test_where_it_pays(koine, level, dtype, n, back):
    lanes = LANES[level] // SIZE[dtype]
    opts = koine("compile", "-", "--to", "optimize", stdin=running(dtype, 3, n, back), env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}).stdout
    pays = n % lanes == 0 and n >= 4 * lanes and lanes >= 4
    assert re.findall(r"scan 1 (\d+) #2", opts) == ([str(lanes * vectors(level, lanes, n))] if pays else [])


@pytest.mark.runs
@SUMS
def test_running_sums(koine, tmp_path, level, dtype, n, back):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(running(dtype, 3, n, back))
    got = koine("run", p, env=env).stdout
    assert got == koine("run", "-", "--device", "INTERP", stdin=koine("compile", p, "--to", "plan", env=env).stdout).stdout
    if dtype == "i32":
        assert got == koine("run", p, "--device", "INTERP").stdout
    assert got == koine("run", p, env={**env, "KN_THREADS": 2}).stdout


VECTORS = pytest.mark.parametrize("level, dtype", [("avx512", "f32"), ("avx2", "f32"), ("avx2", "i32"), ("sse2", "f32")])


@VECTORS
def test_log_steps(koine, level, dtype):
    """A vector takes as many permutations and additions as its lanes have doublings, and both once more for what came before; of two the second takes
    what the first comes to. Nothing goes through memory."""
    text = koine("compile", "-", "--target", "x86", stdin=running(dtype, 3, 256, False), env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}).stdout
    lanes = LANES[level] // SIZE[dtype]
    two = vectors(level, lanes, 256) - 1
    steps = (1 + two) * lanes.bit_length()
    assert len(re.findall(r"^ +(?:vpermps|v?pshufd .*, [1-9])", text, re.M)) == steps
    assert len(re.findall(r"^ +v?p?add(?:ps|d) ", text, re.M)) == steps + two
    assert "PTR [rsp" not in text


@pytest.mark.runs
@VECTORS
def test_c_adds_up_in_the_same_order(koine, tmp_path, level, dtype):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(running(dtype, 3, 256, False))
    assert koine("run", p, env=env).stdout == koine("run", p, env={**env, "KN_CODE": "c"}).stdout
