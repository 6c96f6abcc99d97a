"""What heuristics must not do, or must not ask for: a step that is refused costs a kernel all that had been chosen for it, and one that is made where it
does not hold its values."""
import re

import numpy as np
import pytest


def opts(koine, text, **env):
    said = koine("compile", "-", stdin=text, env={"KN_DEBUG": "optimize", "KN_CODE": "x86"} | env)
    return re.findall(r"opts=(.*)", said.stdout + said.stderr)


def conv(n, ci, co, rows, columns):
    """3 x 3 windows of a padded image, as examples/conv.kn has them."""
    h, w = rows + 2, columns + 2
    return f"""koine 1 tensor
%x = param "x" : f32 [{n}, {ci}, {rows}, {columns}]
%w = param "w" : f32 [{co}, {ci}, 3, 3]
%xp = pad %x (0, 0, 1, 1) ({n}, {ci}, {h}, {w})
%x6 = reshape %xp ({n}, {ci}, 1, {h}, 1, {w})
%xr = expand %x6 ({n}, {ci}, 4, {h}, 4, {w})
%xf = reshape %xr ({n}, {ci}, {4 * h}, {4 * w})
%xc = shrink %xf (0, 0, 0, 0) ({n}, {ci}, {3 * h + 3}, {3 * w + 3})
%xw = reshape %xc ({n}, {ci}, 3, {h + 1}, 3, {w + 1})
%xs = shrink %xw (0, 0, 0, 0, 0, 0) ({n}, {ci}, 3, {rows}, 3, {columns})
%xt = permute %xs order=(0, 3, 5, 1, 2, 4)
%x7 = reshape %xt ({n}, 1, {rows}, {columns}, {ci}, 3, 3)
%xx = expand %x7 ({n}, {co}, {rows}, {columns}, {ci}, 3, 3)
%w7 = reshape %w (1, {co}, 1, 1, {ci}, 3, 3)
%wx = expand %w7 ({n}, {co}, {rows}, {columns}, {ci}, 3, 3)
%p = mul %xx %wx
%s = reduce add %p axes=(4, 5, 6)
%y = reshape %s ({n}, {co}, {rows}, {columns})
out "y" = %y
"""


def test_what_a_cut_leaves_has_no_second_loop_of_rows(koine):
    """A tile that is remembered from what is cut off named a loop that is not there: the kernel lost its threads."""
    for rows in (11, 12):
        found = opts(koine, conv(1, 32, 7, rows, 13), KN_CPU="avx512", KN_THREADS="2")
        assert found and " t" in found[0], rows


@pytest.mark.runs("avx512")
def test_squares_under_a_mask_end_where_memory_does(koine, tmp_path):
    """28 columns are stored by squares of 7, the last of them 28 bytes from the buffer's end; a store that reached further found no page there."""
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((16, 2, 128, 28), np.float32), rng.standard_normal((64, 2, 3, 3), np.float32)
    (tmp_path / "p.kn").write_text(conv(16, 2, 64, 128, 28))
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "w.npy", w)
    koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y.npy",
          env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": "1"})
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    want = np.moveaxis(np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))), 3, 1)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, atol=1e-4)


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
def test_a_row_that_is_filled_once_for_all_rows(koine, tmp_path, level):
    """LATE stores a row while the next one is filled: a buffer that is filled before all rows is none of theirs."""
    text = """koine 1 tensor
%x = param "x" : f32 [33, 128]
%w = param "w" : f32 [128]
%e = exp %w
%e2 = reshape %e (1, 128)
%ex = expand %e2 (33, 128)
%q = mul %x %x
%s = reduce add %q axes=(1)
%m = mul %s 0.0078125
%v = add %m 1e-5
%r = sqrt %v
%i = recip %r
%ix = expand %i (33, 128)
%n = mul %x %ix
%y = mul %n %ex
out "y" = %y
"""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((33, 128), np.float32), rng.standard_normal(128, np.float32)
    for name, a in (("p.kn", text), ("x.npy", x), ("w.npy", w)):
        (tmp_path / name).write_text(a) if name == "p.kn" else np.save(tmp_path / name, a)
    koine("run", tmp_path / "p.kn", "--in", f"x={tmp_path}/x.npy", "--in", f"w={tmp_path}/w.npy", "--out", f"y={tmp_path}/y.npy",
          env={"KN_CODE": "x86", "KN_CPU": level, "KN_STREAM": "1", "KN_THREADS": "1"})
    want = x / np.sqrt((x.astype(np.float64)**2).mean(1, keepdims=True) + 1e-5) * np.exp(w.astype(np.float64))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-5)


def test_a_length_known_at_launch_has_no_panel(koine):
    text = """koine 1 tensor
%n = param "n" bounds=[1, 16] : index
%a = param "a" : f32 [16, 256]
%b = shrink %a (0, 0) (%n, 256)
%c = param "c" : f32 [7, 16]
%d = shrink %c (0, 0) (7, %n)
%e = permute %b order=(1, 0)
%f = reshape %e (256, 1, %n)
%g = expand %f (256, 7, %n)
%h = reshape %d (1, 7, %n)
%i = expand %h (256, 7, %n)
%j = mul %g %i
%k = reduce add %j axes=(2)
%y = reshape %k (256, 7)
out "y" = %y
"""
    for level in ("avx512", "avx2"):
        assert opts(koine, text, KN_CPU=level, KN_THREADS="1"), level


def test_many_reads_of_one_input_are_asked_about_once(koine):
    """700 reads of one array: what each of them was asked once took minutes, each of all others."""
    lines = ['koine 1 tensor', '%x = param "x" : f32 [4096, 2756]']
    for k in range(700):
        lines += [f"%t{k} = shrink %x (0, {k}) (4096, 2056)", f"%m{k} = mul %t{k} {k + 1}.5"]
        lines += [f"%s{k} = add %{'s' if k > 1 else 'm'}{k - 1} %m{k}"] if k else []
    text = "\n".join([*lines, "%y = cast %s699 : f16", 'out "y" = %y', ""])
    koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": "avx512", "KN_STREAM": "1", "KN_THREADS": "1"}, timeout=120)


def test_rows_that_no_stack_holds_are_not_kept(koine):
    """Sixteen sums down columns each keep a row of 256 KiB: together more than a kernel's frame may have, which refused the program."""
    lines = ['koine 1 tensor', '%x = param "x" : f32 [64, 65536]']
    for k in range(16):
        lines += [f"%m{k} = mul %x {k + 1}.5", f"%s{k} = reduce add %m{k} axes=(0)", f"%y{k} = reshape %s{k} (65536)"]
    text = "\n".join([*lines, *(f'out "y{k}" = %y{k}' for k in range(16)), ""])
    koine("compile", "-", "--target", "x86", stdin=text, env={"KN_CPU": "avx512", "KN_THREADS": "1"})
