"""Running sums along rows: threads deal out the rows, whatever a nest that carries a sum looks like."""
import re

import numpy as np
import pytest

ROWS, LENGTH = 12, 256
TEXT = f"""koine 1 rangeify
%y = param slot=0 : f32 [{ROWS * LENGTH}]
%r = range 0 LOOP {ROWS} : index
%1 = mul %r {LENGTH}
%c = range 1 LOOP {LENGTH} : index
%2 = add %1 %c
%3 = index %y %2 : f32
%s = buffer 0 REG size=1 : f32 [1]
%4 = after %s %r
%5 = index %4 0 : f32
%6 = store %5 -0.0
%7 = after %s %6 %c
%8 = index %7 0 : f32
%x = param slot=1 : f32 [{ROWS * LENGTH}]
%9 = index %x %2 : f32
%10 = add %8 %9
%11 = store %8 %10
%12 = after %s %11
%13 = index %12 0 : f32
%14 = store %3 %13
%15 = end %14 %r %c
%16 = sink %15 name="rows"
%17 = buffer 0 GLOBAL size={ROWS * LENGTH} : f32 [{ROWS * LENGTH}]
%18 = buffer 1 GLOBAL size={ROWS * LENGTH} : f32 [{ROWS * LENGTH}]
%19 = call %16 %17 %18
%20 = linear %19
in "x" = %18 : f32 [{ROWS}, {LENGTH}]
root %20
out "y" = %17 : f32 [{ROWS}, {LENGTH}]
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cpu", ["sse2", "avx2", "avx512"])
def test_running_sums_use_threads(koine, tmp_path, cpu, threads):
    x = np.random.default_rng(1).integers(-8, 9, (ROWS, LENGTH)).astype("f4")  # sums are exact in any order
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "p.kn").write_text(TEXT)
    env = {"KN_CPU": cpu, "KN_THREADS": str(threads), "KN_ALONE": "1"}
    lowered = koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout
    (tmp_path / "o.kn").write_text(lowered)
    koine("run", tmp_path / "o.kn", "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy", "--device", "INTERP")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x.cumsum(axis=1))
    opts = re.search(r"opts=\[(.*)\]", lowered)[1]
    assert "scan 1" in opts and (threads == 1 or f"split 0 {threads} t top" in opts)
