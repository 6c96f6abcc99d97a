"""A convolution over pixels repeated by two: its panels lie as vectors are read of them, and are filled by vectors, whatever their masks."""
import re

import pytest


def program(c, h, w, out):
    H, W = 2 * h, 2 * w
    return f"""koine 1 tensor
%x = param "x" : f32 [{c}, {h}, {w}] in [-3, 3]
%k = param "k" : f32 [{out}, {c}, 3, 3] in [-3, 3]
%xi = cast %x : i32
%xf = cast %xi : f32
%ki = cast %k : i32
%kf = cast %ki : f32
%y0 = reshape %xf ({c}, {h}, 1, {w}, 1)
%y1 = expand %y0 ({c}, {h}, 2, {w}, 2)
%y2 = reshape %y1 ({c}, {H}, {W})
%b = pad %y2 (0, 1, 1) ({c}, {H + 2}, {W + 2})
%h0 = reshape %b ({c}, 1, {H + 2}, {W + 2})
%h1 = expand %h0 ({c}, 4, {H + 2}, {W + 2})
%h2 = reshape %h1 ({c}, {4 * (H + 2)}, {W + 2})
%h3 = shrink %h2 (0, 0, 0) ({c}, {3 * (H + 3)}, {W + 2})
%h4 = reshape %h3 ({c}, 3, {H + 3}, {W + 2})
%h5 = shrink %h4 (0, 0, 0, 0) ({c}, 3, {H}, {W + 2})
%v0 = reshape %h5 ({c}, 3, {H}, 1, {W + 2})
%v1 = expand %v0 ({c}, 3, {H}, 4, {W + 2})
%v2 = reshape %v1 ({c}, 3, {H}, {4 * (W + 2)})
%v3 = shrink %v2 (0, 0, 0, 0) ({c}, 3, {H}, {3 * (W + 3)})
%v4 = reshape %v3 ({c}, 3, {H}, 3, {W + 3})
%v5 = shrink %v4 (0, 0, 0, 0, 0) ({c}, 3, {H}, 3, {W})
%i = permute %v5 order=(0, 2, 4, 1, 3)
%ir = reshape %i (1, {c}, {H}, {W}, 3, 3)
%ie = expand %ir ({out}, {c}, {H}, {W}, 3, 3)
%wr = reshape %kf ({out}, {c}, 1, 1, 3, 3)
%we = expand %wr ({out}, {c}, {H}, {W}, 3, 3)
%m = mul %ie %we
%s = reduce add %m axes=(1, 4, 5)
%y = reshape %s ({out}, {H}, {W})
out "y" = %y
"""


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("c, h, w, out", [(8, 16, 32, 40), (5, 9, 16, 24), (4, 6, 11, 33)])
def test_repeated_pixels(koine, tmp_path, level, c, h, w, out):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(program(c, h, w, out))
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout
    code = koine("compile", p, "--target", "x86", env=env).stdout
    listed = koine("compile", p, "--target", "x86", "--to", "optimize", env=env).stdout
    if level == "avx512" and w % 16 == 0:  # the sum's vectors are read as they lie, the panel's are gathered, those under a mask of rows alone too
        assert "stage" in listed and "vpgatherdd" in code and "vpermt2" not in code
        assert len(re.findall(r"DWORD PTR \[rsp\+\d+\], \w+ +# frame", code)) == 0


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
def test_all_lanes_of_a_gather_or_none(koine, tmp_path, level):
    """A row beyond the border is not read at all: its zeros are the border's, and before the first row there is nothing."""
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text("""koine 1 tensor
%x = param "x" : f32 [8, 32] in [-3, 3]
%z = param "z" : f32 [18, 64] in [-3, 3]
%x1 = reshape %x (8, 1, 32, 1)
%x2 = expand %x1 (8, 2, 32, 2)
%x3 = reshape %x2 (16, 64)
%b = pad %x3 (1, 0) (18, 64)
%e = mul %z %z
%y = add %b %e
out "y" = %y
""")
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout
    code = koine("compile", p, "--target", "x86", env=env).stdout
    assert level != "avx512" or re.search(r"    je (\.L\d+)\n(?!\.L)(?:.*\n){1,12}?    vpgatherdd [^\n]*\n\1:", code)
