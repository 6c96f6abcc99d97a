"""Tables in registers: with AVX-512 tanh and erf look their coefficients up in two each, exp a power in one; machine code gives the bits that the interpreter gives for the
same list, of registers however full: one lane, a row that ends in parts, eight lanes beside f64."""
import pytest

ENV = {"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": 1}
LENGTHS = [1, 3, 8, 16, 47, 256]


def program(function, n, wide):
    tail = (f'%w = cast %t : f64 [{n}]\n%y = add %w %w\n' if wide else f'%y = add %t %t\n')
    return f'koine 1 tensor\n%x = param "x" : f32 [{n}] in [-5, 5]\n%t = {function} %x\n{tail}out "y" = %y\n'


@pytest.mark.runs("avx512")
@pytest.mark.parametrize("function", ["tanh", "erf", "exp"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_the_processor_agrees(koine, tmp_path, function, wide, n):
    p = tmp_path / "p.kn"
    p.write_text(program(function, n, wide))
    listed = koine("compile", p, "--to", "plan", env=ENV).stdout
    assert koine("run", p, env=ENV).stdout == koine("run", "-", "--device", "INTERP", stdin=listed).stdout


@pytest.mark.parametrize("function, instruction, lookups", [("tanh", "vpermt2ps", 6), ("erf", "vpermt2ps", 6), ("exp", "vpermps", 1)])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_looked_up(koine, function, instruction, lookups, wide, n):
    code = koine("compile", "-", "--target", "x86", stdin=program(function, n, wide), env=ENV).stdout
    assert code.count(instruction) % lookups == 0 and code.count(instruction) > 0
    masked = any(f", {mask}\n" in code for mask in (15, 31))
    assert "vdivps" not in code and not masked, "the permutation reads the low bits of the number: it needs no mask"
