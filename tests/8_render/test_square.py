"""Transposing in registers: machine code gives what the interpreter gives, of every element size, at the ends of memory, in reverse; where eight
columns of sixteen rows are read, they are read as rows."""
import pytest


def program(dtype, rows, cols, flip):
    around = f"%f = flip %x axes=({flip})" if flip is not None else "%f = permute %x order=(0, 1)"
    return (f'koine 1 tensor\n%x = param "x" : {dtype} [{rows}, {cols}]\n{around}\n%t = permute %f order=(1, 0)\n'
            f'%y = add %t %t\nout "y" = %y\n')


@pytest.mark.parametrize("level", ["avx512", "avx2"])
@pytest.mark.parametrize("dtype", ["f32", "u32", "f64", "i16"])
@pytest.mark.parametrize("rows, cols", [(64, 8), (64, 64), (80, 24), (100, 37), (16, 7)])
@pytest.mark.parametrize("flip", [None, 0, 1])
def test_transposed(koine, tmp_path, level, dtype, rows, cols, flip):
    p, env = tmp_path / "p.kn", {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": 1}
    p.write_text(program(dtype, rows, cols, flip))
    assert koine("run", p, env=env).stdout == koine("run", p, "--device", "INTERP").stdout
    code = koine("compile", p, "--target", "x86", env=env).stdout
    square = level == "avx512" and dtype in ("f32", "u32") and rows >= 16 and cols >= 8 and flip != 1
    if square and rows % 32 == 0 and cols % 8 == 0: # nothing goes through the frame, lane by lane
        assert code.count("vinsertf64x4") >= 8 and code.count("vshuff32x4") == code.count("vinsertf64x4") and "# frame" not in code
    elif not square:
        assert "vshuff32x4" not in code
