"""What lies beside each other along what a sum adds up is read part by part: it is not stored once more, and each part is a sum of its own."""
import re

import numpy as np
import pytest

ENV = {"KN_CODE": "x86", "KN_CACHE": "off"}


def joined(parts, axis=0, n=16, m=160, made=None, also=""):
    """w @ the parts, put together as kn_cat does: each a parameter, or made of one by an op (by default all but the first)."""
    made = made or [""] + ["exp"] * (len(parts) - 1)
    total, at, lines, whole = sum(parts), 0, [], None
    shape = lambda k: f"({k}, {n})" if axis == 0 else f"({n}, {k})"
    pad = lambda k: f"({k}, 0)" if axis == 0 else f"(0, {k})"
    lines += ["%t = reshape true (1, 1)"]
    for i, k in enumerate(parts):
        lines += [f'%x{i} = param "x{i}" : f32 [{shape(k)[1:-1]}]', f"%m{i} = {made[i]} %x{i}" if made[i] else ""]
        lines += [f"%p{i} = pad %{'m' if made[i] else 'x'}{i} {pad(at)} {shape(total)}"]
        if whole:
            lines += [f"%u{i} = expand %t {shape(at)}", f"%c{i} = pad %u{i} (0, 0) {shape(total)}", f"%j{i} = where %c{i} {whole} %p{i}"]
        whole, at = f"%j{i}" if whole else f"%p{i}", at + k
    lines += [f"%v = permute {whole} order=({'0, 1' if axis == 0 else '1, 0'})", f"%xr = reshape %v (1, {total}, {n})", f"%xe = expand %xr ({m}, {total}, {n})",
              f'%w = param "w" : f32 [{m}, {total}]', f"%wr = reshape %w ({m}, {total}, 1)", f"%we = expand %wr ({m}, {total}, {n})",
              "%p = mul %xe %we", "%s = reduce add %p axes=(1)", f"%y = reshape %s ({m}, {n})", also.format(whole=whole), 'out "y" = %y']
    return "koine 1 tensor\n" + "\n".join(lines) + "\n"


def stores_whole(koine, text, size):
    out = koine("compile", "-", "--to", "rangeify", stdin=text).stdout
    return re.search(rf"= buffer \d+ GLOBAL size={size} ", out) is not None


@pytest.mark.parametrize("parts, axis, stored", [
    ([8, 8], 0, False), ([30, 9], 0, False), ([30, 9], 1, False), ([9, 8, 20], 0, False), ([8, 9, 10, 11], 1, False),
    ([9, 9, 9, 9, 9], 0, True),  # a kernel has tiles for four sums
    ([30, 7], 0, True), ([3, 30], 0, True),  # one that has hardly begun
])
def test_parts(koine, parts, axis, stored):
    assert stores_whole(koine, joined(parts, axis), 16 * sum(parts)) == stored


def test_parts_that_are_stored_for_this_alone_are_stored_together(koine):
    """One kernel writes all of them, and the sum reads as much."""
    assert stores_whole(koine, joined([20, 20], made=["exp", "exp"]), 16 * 40)
    assert not stores_whole(koine, joined([20, 20, 20], made=["exp", "exp", ""]), 16 * 60)  # the last is there: none is stored together


def test_what_others_read_whole_is_stored(koine):
    assert stores_whole(koine, joined([20, 20], also='%q = reduce add {whole} axes=(1)\nout "q" = %q'), 16 * 40)
    assert stores_whole(koine, joined([20, 20], also='out "q" = {whole}'), 16 * 40)


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("parts, axis, n, m", [([30, 9], 0, 16, 24), ([20, 44], 1, 33, 40), ([9, 8, 20], 0, 50, 17), ([64, 64], 0, 96, 64)])
def test_values(koine, tmp_path, level, parts, axis, n, m):
    """Those of numpy, the same on any number of threads; and each part is read in a sum that compares no place."""
    r = np.random.default_rng(5)
    xs = [r.standard_normal((k, n) if axis == 0 else (n, k)).astype("f4") for k in parts]
    w = r.standard_normal((m, sum(parts))).astype("f4")
    (tmp_path / "p.kn").write_text(joined(parts, axis, n, m))
    inputs = ["--in", f"w={tmp_path}/w.npy"]
    np.save(tmp_path / "w.npy", w)
    for i, x in enumerate(xs):
        np.save(tmp_path / f"x{i}.npy", x)
        inputs += ["--in", f"x{i}={tmp_path}/x{i}.npy"]
    seen = set()
    for threads in ("1", "2", "3"):
        koine("run", tmp_path / "p.kn", *inputs, "--out", f"y={tmp_path}/y.npy", env={**ENV, "KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": "1"})
        y = np.load(tmp_path / "y.npy")
        seen.add(y.tobytes())
    assert len(seen) == 1
    whole = np.concatenate([x if i == 0 else np.exp(x) for i, x in enumerate(xs)], axis=axis)
    want = w.astype("f8") @ (whole if axis == 0 else whole.T).astype("f8")
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    text = koine("compile", tmp_path / "p.kn", "--target", "x86", "--to", "optimize", env={**ENV, "KN_CPU": level, "KN_THREADS": "1"}).stdout
    cuts = [int(c) for c in re.findall(r"cut \d+ (\d+)", re.findall(r"opts=\[(.*)\]", text)[-1])]
    assert parts[0] in cuts, cuts


CONVOLUTION = """koine 1 tensor
%t = reshape true (1, 1, 1)
%x = param "x" : f32 [16, 12, 12] in [-2, 2]
%z = param "z" : f32 [16, 12, 12] in [-2, 2]
%w = param "w" : f32 [24, 32, 3, 3] in [-2, 2]
%e = exp %z
%u = expand %t (16, 12, 12)
%c = pad %u (0, 0, 0) (32, 12, 12)
%p0 = pad %x (0, 0, 0) (32, 12, 12)
%p1 = pad %e (16, 0, 0) (32, 12, 12)
%j = where %c %p0 %p1
%b = pad %j (0, 1, 1) (32, 14, 14)
%h0 = reshape %b (32, 1, 14, 14)
%h1 = expand %h0 (32, 4, 14, 14)
%h2 = reshape %h1 (32, 56, 14)
%h3 = shrink %h2 (0, 0, 0) (32, 45, 14)
%h4 = reshape %h3 (32, 3, 15, 14)
%h5 = shrink %h4 (0, 0, 0, 0) (32, 3, 12, 14)
%v0 = reshape %h5 (32, 3, 12, 1, 14)
%v1 = expand %v0 (32, 3, 12, 4, 14)
%v2 = reshape %v1 (32, 3, 12, 56)
%v3 = shrink %v2 (0, 0, 0, 0) (32, 3, 12, 45)
%v4 = reshape %v3 (32, 3, 12, 3, 15)
%v5 = shrink %v4 (0, 0, 0, 0, 0) (32, 3, 12, 3, 12)
%i = permute %v5 order=(0, 2, 4, 1, 3)
%ir = reshape %i (1, 32, 12, 12, 3, 3)
%ie = expand %ir (24, 32, 12, 12, 3, 3)
%wr = reshape %w (24, 32, 1, 1, 3, 3)
%we = expand %wr (24, 32, 12, 12, 3, 3)
%m = mul %ie %we
%s = reduce add %m axes=(1, 4, 5)
%y = reshape %s (24, 12, 12)
out "y" = %y
"""


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
def test_a_convolution_masks_its_border_alone(koine, level):
    """A window's reads are under one condition, the border's: no value is chosen or masked again."""
    assert not stores_whole(koine, CONVOLUTION, 32 * 144)
    env = {**ENV, "KN_CPU": level, "KN_THREADS": "1"}
    text = koine("compile", "-", "--target", "x86", "--to", "optimize", stdin=CONVOLUTION, env=env).stdout
    assert "cut" in text and not re.search(r"= where .* : f32", text)
    seen = {koine("run", "-", stdin=CONVOLUTION, env={**env, "KN_THREADS": t, "KN_ALONE": "1"}).stdout for t in ("1", "2", "5")}
    assert len(seen) == 1
