"""A sum that two loops of a kernel need: a CUT of one of them writes it another way, and what is done to its range is done to both."""
import numpy as np
import pytest

PROGRAM = """koine 1 tensor
%x = param "x" : f32 [6, 9]
%c = param "c" : f32 [6, 1]
%1 = expand %c (6, 9)
%2 = sub %x %1
%3 = reduce add %2 axes=(1)
%4 = expand %3 (6, 9)
%5 = div %2 %4
%6 = pad %5 (0, 1) (6, 17)
%7 = reshape %6 (6, 1, 17)
%8 = expand %7 (6, 10, 17)
%9 = reshape %8 (6, 170)
%10 = shrink %9 (0, 0) (6, 162)
%11 = reshape %10 (6, 9, 18)
%12 = shrink %11 (0, 0, 0) (6, 9, 9)
%13 = reduce max %12 axes=(2)
out "y" = %13
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cpu", ["sse2", "avx2", "avx512"])
def test_largest_of_what_follows_divided_by_its_rows_sum(koine, tmp_path, cpu, threads):
    r = np.random.default_rng(3)
    x, c = (r.integers(-16, 17, s).astype("f4") / 4 for s in ((6, 9), (6, 1)))  # sums are exact in any order
    (tmp_path / "p.kn").write_text(PROGRAM)
    env = {"KN_CPU": cpu, "KN_THREADS": str(threads), "KN_ALONE": "1", "KN_STREAM": "1"}
    (tmp_path / "o.kn").write_text(koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout)
    for name, value in ("x", x), ("c", c):
        np.save(tmp_path / f"{name}.npy", value)
    koine("run", tmp_path / "o.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"c={tmp_path}/c.npy", "--out", f"y={tmp_path}/y.npy",
          "--device", "INTERP")
    d = x - c
    q = np.pad(d / d.sum(axis=1, keepdims=True), ((0, 0), (1, 7)))  # y[i, j] = max over k of row j's window: q[i, j + k]
    want = np.stack([q[:, j : j + 9].max(axis=1) for j in range(9)], axis=1)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").reshape(6, 9), want)
