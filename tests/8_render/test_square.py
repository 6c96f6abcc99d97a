"""Transposing in registers: machine code gives what the interpreter gives, of every element size, at the ends of memory, in reverse; where eight
or sixteen columns of sixteen rows are read, or eight are written, they are read and written as rows."""
import re

import numpy as np
import pytest


def program(dtype, rows, cols, flip):
    around = f"%f = flip %x axes=({flip})" if flip is not None else "%f = permute %x order=(0, 1)"
    return (f'koine 1 tensor\n%x = param "x" : {dtype} [{rows}, {cols}]\n{around}\n%t = permute %f order=(1, 0)\n'
            f'%y = add %t %t\nout "y" = %y\n')


@pytest.mark.parametrize("level", ["avx512", "avx2"])
@pytest.mark.parametrize("dtype", ["f32", "u32", "f64", "i16"])
@pytest.mark.parametrize("rows, cols", [(64, 8), (64, 64), (80, 24), (100, 37), (16, 7), (272, 64), (264, 40)])
@pytest.mark.parametrize("flip", [None, 0, 1])
def test_transposed(koine, tmp_path, level, dtype, rows, cols, flip):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(program(dtype, rows, cols, flip))
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout
    code = koine("compile", p, "--target", "x86", env=env).stdout
    square = level == "avx512" and dtype in ("f32", "u32") and rows >= 16 and cols >= 8 and flip != 1
    if square and rows % 16 == 0 and cols % 8 == 0: # nothing goes through the frame, lane by lane, nor in what a cut leaves
        halves, across = code.count("vinsertf64x4"), code.count("vshuff32x4")
        assert across >= 8 and "# frame" not in code
        assert halves == 0 and across % 16 == 0 if cols % 16 == 0 else halves >= 8 and across == halves  # lines read whole
    elif not square:
        assert "vshuff32x4" not in code


@pytest.mark.parametrize("batch, rows, cols", [(1, 64, 64), (3, 50, 48), (2, 272, 24), (2, 49, 64)])
def test_what_a_cut_leaves(koine, tmp_path, batch, rows, cols):
    """Rows that no vector takes are cut off inside the batch, and the other loop inside them: what is left goes in squares."""
    p, env = tmp_path / "p.kn", {"KN_CPU": "avx512", "KN_THREADS": 1}
    p.write_text(f'koine 1 tensor\n%x = param "x" : f32 [{batch}, {rows}, {cols}]\n%y = permute %x order=(0, 2, 1)\nout "y" = %y\n')
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout
    code = koine("compile", p, "--target", "x86", env=env).stdout
    assert code.count("vunpcklps") >= 8 and "vgather" not in code
    assert rows % 16 or "# frame" not in code


LINEAR = """koine 1 tensor
%x = param "x" : f32 [{m}, {k}]
%w = param "w" : f32 [{n}, {k}]
%r = param "r" : f32 [{m}, {n}]
%xr = reshape %x ({m}, 1, {k})
%xe = expand %xr ({m}, {n}, {k})
%wr = reshape %w (1, {n}, {k})
%we = expand %wr ({m}, {n}, {k})
%p = mul %xe %we
%s = reduce add %p axes=(2)
%sr = reshape %s ({m}, {n})
{after}
out "y" = %y
"""
PLAIN, ADDED, CHANGED = "%y = add %sr 0.0", "%y = add %sr %r", "%a = add %sr %r\n%b = mul %a %a\n%y = mul %b %sr"


@pytest.mark.parametrize("after", [PLAIN, ADDED, CHANGED])
@pytest.mark.parametrize("m, k, n", [(32, 24, 64), (48, 16, 64), (64, 40, 65), (96, 7, 97)])
@pytest.mark.parametrize("threads", [1, 3])
def test_columns_are_written_as_rows(koine, tmp_path, after, m, k, n, threads):
    """Rows by rows: the results of a tile are columns, which go to memory as rows of eight, once the last one is there."""
    p, rng = tmp_path / "p.kn", np.random.default_rng(m + n)
    p.write_text(LINEAR.format(m=m, k=k, n=n, after=after))
    x, w, r = (rng.integers(-8, 9, s).astype("f4") for s in ((m, k), (n, k), (m, n)))
    for name, a in (("x", x), ("w", w), ("r", r)):
        np.save(tmp_path / f"{name}.npy", a)
    env = {"KN_CPU": "avx512", "KN_THREADS": threads, "KN_ALONE": 1}
    given = ("x", "w") if after == PLAIN else ("x", "w", "r")
    koine("run", p, *[a for v in given for a in ("--in", f"{v}={tmp_path}/{v}.npy")], "--out", f"y={tmp_path}/y.npy", env=env)
    s = x @ w.T
    want = s if after == PLAIN else s + r if after == ADDED else (s + r) ** 2 * s
    assert np.array_equal(np.load(tmp_path / "y.npy"), want)
    code = koine("compile", p, "--target", "x86", env=env).stdout
    assert len(re.findall("vextractf64x4 YMMWORD", code)) >= 8, "two rows from each"
    assert "spill" not in code.split("registers:")[0]
