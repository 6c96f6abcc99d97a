"""Lanes a few elements apart, or in reverse, at the ends of memory and under masks: machine code gives what the interpreter gives."""
import pytest

LEVELS = ["avx512", "avx2", "sse2"]
# Elements from one lane to the next, which of these is read, and what stands around: nothing, zeros, or ones.
CASES = [(apart, at, around) for apart in (1, 2, 3, 4, 5) for at in {0, apart - 1} for around in ("nothing", "zeros", "ones")]


def output(k, dtype, n, apart, at, around):
    """Column `at` of n rows of `apart`; reversed, if that is the last one."""
    lines = [f'%x{k} = param "x{k}" : {dtype} [{n * apart}]', f"%r{k} = reshape %x{k} ({n}, {apart})",
             f"%c{k} = shrink %r{k} (0, {at}) ({n}, 1)", f"%v{k} = reshape %c{k} ({n})",
             f"%f{k} = flip %v{k} axes=(0)" if at == apart - 1 else f"%f{k} = permute %v{k} order=(0)",
             f"%p{k} = pad %f{k} (3) ({n + 8})" if around != "nothing" else f"%p{k} = permute %f{k} order=(0)"]
    if around == "ones":
        lines += [f"%t{k} = reshape true:bool (1)", f"%e{k} = expand %t{k} ({n})", f"%m{k} = pad %e{k} (3) ({n + 8})",
                  f"%i{k} = reshape 1:{dtype} (1)", f"%j{k} = expand %i{k} ({n + 8})", f"%q{k} = where %m{k} %p{k} %j{k}"]
    last = f"%{'q' if around == 'ones' else 'p'}{k}"
    return lines + [f"%y{k} = add {last} {last}", f'out "y{k}" = %y{k}']


def program(dtype, n):
    return "\n".join(["koine 1 tensor"] + [line for k, c in enumerate(CASES) for line in output(k, dtype, n, *c)]) + "\n"


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "u32", "i64", "i16"])
@pytest.mark.parametrize("n", [4, 16, 37, 64])
def test_strided(koine, tmp_path, dtype, level, n):
    p = tmp_path / "p.kn"
    p.write_text(program(dtype, n))
    want = koine("run", p, "--device", "INTERP").stdout
    assert want.count("y") >= len(CASES)
    assert koine("run", p, env={"KN_CODE": "x86", "KN_CPU": level}).stdout == want


@pytest.mark.parametrize("level, takes", [("avx512", "vpermt2ps"), ("avx2", "vshufps")])
@pytest.mark.parametrize("n", [16, 37, 64])
def test_permuted(koine, level, takes, n):
    assert takes in koine("compile", "-", "--target", "x86", stdin=program("f32", n), env={"KN_CPU": level}).stdout
