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


def interleaved(dtype, lanes, apart):
    """Sums of five rows, `lanes` at once: y[i * apart + a] is those of x[a]'s column i."""
    n, ends = 3 * lanes, []
    lines = ["koine 1 optimize", f"%p = param slot=0 : {dtype} [{n * apart}]"]
    for a in range(apart):
        lines += [f"%x{a} = param slot={a + 1} : {dtype} [{5 * n}]", f"%r{a} = range {2 * a} LOOP 3 : index",
                  f"%u{a} = range {2 * a + 1} UPCAST {lanes} : index", f"%q{a} = range {50 + a} REDUCE 5 : index", f"%h{a} = mul %r{a} {lanes} : index",
                  f"%j{a} = add %h{a} %u{a} : index", f"%g{a} = mul %q{a} {n} : index", f"%d{a} = add %g{a} %j{a} : index",
                  f"%m{a} = mul %j{a} {apart} : index", *([f"%i{a} = add %m{a} {a} : index"] if a else []), f"%t{a} = index %p %{'i' if a else 'm'}{a} : {dtype}",
                  f"%v{a} = index %x{a} %d{a} : {dtype}", f"%w{a} = reduce add %v{a} %q{a} : {dtype}", f"%s{a} = store %t{a} %w{a}",
                  f"%e{a} = end %s{a} %r{a} %u{a}"]
        ends.append(f"%e{a}")
    lines += [f'%k = sink {" ".join(ends)} name="k" optimized=1', f"%b = buffer 100 GLOBAL size={n * apart} : {dtype} [{n * apart}]"]
    lines += [f"%b{a} = buffer {a} GLOBAL size={5 * n} : {dtype} [{5 * n}]" for a in range(apart)]
    lines += ["%c = call %k %b " + " ".join(f"%b{a}" for a in range(apart)), "%l = linear %c"]
    lines += [f'in "x{a}" = %b{a} : {dtype} [{5 * n}]' for a in range(apart)]
    return "\n".join([*lines, "root %l", f'out "y" = %b : {dtype} [{n * apart}]', ""])


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "u32", "i64", "i16"])
@pytest.mark.parametrize("apart", [2, 3, 4, 5])
def test_stored_apart(koine, tmp_path, dtype, level, apart):
    for lanes in (4, 8, 16):
        (tmp_path / "p.kn").write_text(interleaved(dtype, lanes, apart))
        want = koine("run", tmp_path / "p.kn", "--device", "INTERP").stdout
        assert want.startswith("y") and koine("run", tmp_path / "p.kn", env={"KN_CODE": "x86", "KN_CPU": level}).stdout == want, lanes


@pytest.mark.parametrize("lanes, apart, permuted", [(16, 2, 4), (16, 3, 9), (16, 4, 16), (16, 5, 0), (8, 2, 4), (8, 4, 0), (4, 2, 0)])
def test_stored_under_masks(koine, lanes, apart, permuted):
    """Where that is fewer instructions than one lane after the other."""
    code = koine("compile", "-", "--target", "x86", stdin=interleaved("f32", lanes, apart), env={"KN_CPU": "avx512"}).stdout
    assert code.count("vpermt2ps") == permuted == code.count("}, zmm") + code.count("}, ymm"), code
