"""Gates of index arithmetic: what an access alone asks is compared where it is asked, beside the jump, and 0 <= x < n is one comparison."""
import re

import numpy as np
import pytest

ADDED = """koine 1 optimize
%1 = param slot=0                       : f32 [50]
%15 = param slot=1                      : i32 [64]
%16 = range 0 LOOP 64                   : index
%17 = index %15 %16                     : i32
%18 = cast %17                          : index
%19 = lt %18 50                         : bool
%20 = mul %18 -1                        : index
%21 = lt %20 1                          : bool
%22 = and %19 %21                       : bool
{more}
%23 = where %22 %18 invalid             : index
%24 = index %1 %23                      : f32
%25 = param slot=2                      : f32 [64]
%26 = index %25 %16                     : f32
%27 = add %26 %24                       : f32
%28 = store %24 %27
%29 = end %28 %16
%30 = sink %29 name="added" optimized=1
%40 = buffer 0 GLOBAL size=50           : f32 [50]
%41 = buffer 1 GLOBAL size=64           : i32 [64]
%42 = buffer 2 GLOBAL size=64           : f32 [64]
%33 = call %30 %40 %41 %42
%50 = linear %33
in "i" = %41                            : i32 [64]
in "x" = %42                            : f32 [64]
in "y" = %40                            : f32 [50]
root %50
out "y" = %40                           : f32 [50]
"""
EVEN = """%60 = mod %16 2                         : index
%61 = eq %60 0                          : bool
%62 = and %22 %61                       : bool"""  # a conjunction of which a part is one, too


def program(even):
    return ADDED.format(more=EVEN).replace("where %22", "where %62") if even else ADDED.format(more="")


@pytest.mark.parametrize("even", (False, True))
def test_gates_are_jumps(koine, even):
    code = koine("compile", "-", "--target", "x86", env={"KN_CPU": "avx512", "KN_THREADS": 1}, stdin=program(even)).stdout
    lines = [line.split("#")[0].strip() for line in code.splitlines() if not line.lstrip().startswith("#")]
    loop = "\n".join(lines[lines.index(".L1:"):])
    if even:  # two ask, of two conditions: their value is kept
        assert len(re.findall(r"cmp r\w+, 50\nsetb", loop)) == 1 and "imul" not in loop, loop
    else:
        assert len(re.findall(r"cmp r\w+, 50\njae", loop)) == 2 and not re.search(r"set|imul|test", loop), loop


def test_conditions_of_one_gate_are_a_jump_each(koine):
    text = program(True).replace("%28 = store %24 %27", "%70 = index %25 %16 : f32\n%28 = store %70 %27")
    code = koine("compile", "-", "--target", "x86", env={"KN_CPU": "avx512", "KN_THREADS": 1}, stdin=text).stdout
    lines = [line.split("#")[0].strip() for line in code.splitlines() if not line.lstrip().startswith("#")]
    loop = "\n".join(lines[lines.index(".L1:"):])
    assert re.search(r"cmp r\w+, 0\njne (\.L\d)\ncmp r\w+, 50\njae \1\n", loop) and not re.search(r"set|imul|test", loop), loop


@pytest.mark.runs
@pytest.mark.parametrize("level", ("avx512", "avx2", "sse2"))
@pytest.mark.parametrize("even", (False, True))
def test_what_is_outside_stays_out(koine, tmp_path, level, even):
    edges = np.array([-2**31, -50, -1, 0, 1, 49, 50, 51, 2**31 - 1], np.int32)
    i = np.concatenate([edges, np.random.default_rng(1).integers(-60, 110, 64 - len(edges)).astype(np.int32)])
    x, y = np.arange(64, dtype=np.float32), np.arange(50, dtype=np.float32) * 100
    for name, a in (("i", i), ("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", a)
    p = tmp_path / "p.kn"
    p.write_text(program(even))
    given = [a for n in "ixy" for a in ("--in", f"{n}={tmp_path}/{n}.npy")]
    koine("run", p, *given, "--out", f"y={tmp_path}/z.npy", env={"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1})
    want = y.copy()
    for k in range(64):
        if 0 <= i[k] < 50 and not (even and k % 2):
            want[i[k]] += x[k]
    assert np.array_equal(np.load(tmp_path / "z.npy"), want) and not np.array_equal(want, y)
