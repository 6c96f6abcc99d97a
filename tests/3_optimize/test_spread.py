"""What several results share: a sum that is spread over a window of them is computed once, and a window's directions share one load."""
import re

import numpy as np
import pytest

POOLED = """koine 1 tensor
%x = param "x" : f32 [8, 8, {w}, 16]
%d = param "d" : f32 [8, 10]
%k = param "k" : f32 [10, 4, {v}, 16]
%1 = reshape %d (8, 10, 1, 1, 1)
%2 = expand %1 (8, 10, 4, {v}, 16)
%3 = reshape %k (1, 10, 4, {v}, 16)
%4 = expand %3 (8, 10, 4, {v}, 16)
%5 = mul %2 %4
%6 = reduce add %5 axes=(1)
%7 = reshape %6 (8, 4, 1, {v}, 1, 16)
%8 = expand %7 (8, 4, 2, {v}, {f}, 16)
%9 = reshape %8 (8, 8, {w}, 16)
%10 = le %x 0.0
%11 = where %10 0.0 %9
out "y" = %11
"""

# The gradient of a convolution's filters, one channel in: y[c, i, j] = sum of d[b, h, w, c] x[b, h + i, w + j].
FILTERS = """koine 1 rangeify
%y = param slot=0 : f32 [{size}]
%x = param slot=1 : f32 [1152]
%d = param slot=2 : f32 [8192]
%c = range 0 LOOP 16 : index
%i = range 1 LOOP {i} : index
%j = range 2 LOOP {j} : index
%b = range 3 REDUCE 8 : index
%h = range 4 REDUCE 8 : index
%w = range 5 REDUCE 8 : index
%1 = mul %c {ij}
%2 = mul %i {j}
%3 = add %1 %2
%4 = add %3 %j
%5 = index %y %4 : f32
%6 = mul %b 144
%7 = add %h %i
%8 = mul %7 12
%9 = add %6 %8
%10 = add %9 %w
%11 = add %10 %j
%12 = index %x %11 : f32
%13 = mul %b 1024
%14 = mul %h 128
%15 = add %13 %14
%16 = mul %w 16
%17 = add %15 %16
%18 = add %17 %c
%19 = index %d %18 : f32
%20 = mul %12 %19
%21 = reduce add %20 %b %h %w
%22 = store %5 %21
%23 = end %22 %c %i %j
%24 = sink %23 name="r"
%25 = buffer 0 GLOBAL size=1152 : f32 [1152]
%26 = buffer 1 GLOBAL size=8192 : f32 [8192]
%27 = buffer 2 GLOBAL size={size} : f32 [{size}]
%28 = call %24 %27 %25 %26
%29 = linear %28
in "x" = %25 : f32 [1152]
in "d" = %26 : f32 [8192]
root %29
out "y" = %27 : f32 [{size}]
"""


def run(koine, tmp_path, text, data, cpu, threads, **code):
    """The OptOps of its one kernel, and what it stores."""
    env = {"KN_CPU": cpu, "KN_THREADS": str(threads), "KN_ALONE": "1", **code}
    (tmp_path / "p.kn").write_text(text)
    lowered = koine("compile", tmp_path / "p.kn", "--to", "optimize", env=env).stdout
    (tmp_path / "o.kn").write_text(lowered)
    args = []
    for name, value in data.items():
        np.save(tmp_path / f"{name}.npy", value)
        args += ["--in", f"{name}={tmp_path}/{name}.npy"]
    koine("run", tmp_path / "o.kn", *args, "--out", f"y={tmp_path}/y.npy", "--device", "INTERP")
    (opts,) = re.findall(r"sink .* opts=\[(.*)\]", lowered)
    return opts, np.load(tmp_path / "y.npy"), lowered


def whole(r, *shape):  # sums are exact in any order
    return r.integers(-8, 9, shape).astype("f4")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cpu", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("f", [2, 3, 8])
def test_places_that_share_a_sum_stand_beside_each_other(koine, tmp_path, cpu, threads, f):
    r, v = np.random.default_rng(f), 3
    x, d, k = whole(r, 8, 8, v * f, 16), whole(r, 8, 10), whole(r, 10, 4, v, 16)
    opts, y, lowered = run(koine, tmp_path, POOLED.format(w=v * f, v=v, f=f), dict(x=x, d=d, k=k), cpu, threads)
    s = np.einsum("bk,khwc->bhwc", d, k).repeat(2, axis=1).repeat(f, axis=2)
    np.testing.assert_array_equal(y.reshape(s.shape), np.where(x > 0, s, 0))
    own = re.findall(r"split \d+ (\d) L #(\d+)", opts)
    lanes = [m for m, i in own if re.search(rf"split {i} {m} u", opts)]
    if threads == 1:
        assert sorted(lanes) == {2: ["2", "2"], 3: ["2"], 8: ["2"]}[f]  # four places at most
    (reduced,) = re.findall(r"= reduce add %\d+((?: %\d+)+)", lowered)
    assert len(reduced.split()) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cpu", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("i, j", [(5, 5), (3, 3), (5, 4), (1, 5)])
@pytest.mark.parametrize("code", ["x86", "c"])
def test_both_directions_of_a_window_share_a_load(koine, tmp_path, code, cpu, threads, i, j):
    """In machine code alone: in C it is too much text."""
    r = np.random.default_rng(i * j)
    x, d = whole(r, 8, 12, 12), whole(r, 8, 8, 8, 16)
    text = FILTERS.format(i=i, j=j, ij=i * j, size=16 * i * j)
    opts, y, _ = run(koine, tmp_path, text, dict(x=x.ravel(), d=d.ravel()), cpu, threads, KN_CODE=code)
    want = np.array([[np.einsum("bhw,bhwc->c", x[:, p : p + 8, q : q + 8], d) for q in range(j)] for p in range(i)])
    np.testing.assert_array_equal(y.reshape(16, i, j), want.transpose(2, 0, 1))
    if code == "x86" and cpu == "avx512" and threads == 1 and i > 1 and j > 3:
        assert f"split 1 {i} u" in opts and f"split 2 {j} u" in opts and "split 0 16 u" in opts and "stage" not in opts
