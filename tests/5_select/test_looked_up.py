"""Rows that are looked up by 64-bit numbers: an address is a base and so much a lane, and takes no lane of a vector."""
import pytest

ROWS, COLUMNS = 4, 16


def kernel():
    n = 8 * ROWS
    return "\n".join([
        "koine 1 optimize", f"%y = param slot=0 : f32 [{n * COLUMNS}]", f"%t = param slot=1 : i64 [{n}]", f"%w = param slot=2 : f32 [{50 * COLUMNS}]",
        "%r = range 0 LOOP 8 : index", f"%u = range 1 UPCAST {ROWS} : index", f"%c = range 2 UPCAST {COLUMNS} : index", f"%a = mul %r {ROWS} : index",
        "%row = add %a %u : index", "%at = index %t %row : i64", "%token = cast %at : index", f"%b = mul %row {COLUMNS} : index", "%to = add %b %c : index",
        f"%d = mul %token {COLUMNS} : index", "%from = add %d %c : index", "%e = index %w %from : f32", "%f = add %e 1.0 : f32", "%g = index %y %to : f32",
        "%s = store %g %f", "%end = end %s %r %u %c", '%k = sink %end name="k" optimized=1', f"%by = buffer 0 GLOBAL size={n * COLUMNS} : f32 [{n * COLUMNS}]",
        f"%bt = buffer 1 GLOBAL size={n} : i64 [{n}]", f"%bw = buffer 2 GLOBAL size={50 * COLUMNS} : f32 [{50 * COLUMNS}]", "%call = call %k %by %bt %bw",
        "%l = linear %call", f'in "t" = %bt : i64 [{n}] in [0, 49]', f'in "w" = %bw : f32 [{50 * COLUMNS}]', "root %l", f'out "y" = %by : f32 [{n * COLUMNS}]', ""])


def test_columns_fill_vectors(koine):
    code = koine("compile", "-", "--target", "x86", stdin=kernel(), env={"KN_CPU": "avx512"}).stdout
    assert code.count("vaddps zmm") == ROWS and "vaddps ymm" not in code, code


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
def test_they_are_the_interpreters(koine, level):
    want = koine("run", "-", "--device", "INTERP", stdin=kernel()).stdout
    assert want.startswith("y") and koine("run", "-", stdin=kernel(), env={"KN_CODE": "x86", "KN_CPU": level}).stdout == want
