"""Programs lowered for machine code: every op on data is an instruction, and the interpreter, which takes each for what it
means, gives what it gives for the same program lowered for C at that level, to the bit, but where AVX-512 has a function's steps of its own."""
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
LEVELS = ["fp16", "avx512", "avx2", "sse2"]
STAGES = ["select", "linearize", "plan"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples(koine, tmp_path, example, level):
    env = {"KN_CPU": level, "KN_VERIFY": "1"}

    def interpreted(target, stage):
        text = tmp_path / f"{target}.kn"
        text.write_text(koine("compile", example, "--target", target, "--to", stage, env=env).stdout)
        return koine("run", text, "--device", "INTERP").stdout, text.read_text()

    def numbers(text):
        return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e[-+]?\d+)?", text)]
    want, _ = interpreted("c", "plan")
    own = level in ("fp16", "avx512") and re.search(r"= exp\b", example.read_text())
    for stage in STAGES:
        got, text = interpreted("x86", stage)
        if own:
            assert numbers(got) == pytest.approx(numbers(want), rel=1e-6) and numbers(got)
        else:
            assert got == want
    # gather: its sum is of positions, and what is out of range is the load's other value
    assert " ins " in text or "add" not in example.read_text() or example.stem == "gather"


CUSTOM = """koine 1 expand
%1 = param slot=0            : f32 [1]
%2 = index %1 0              : f32
%3 = param "x"               : f32
%4 = custom "-({0})" %3      : f32
%5 = store %2 %4
%6 = sink %5 name="c" optimized=1
%7 = buffer 0 GLOBAL size=1  : f32 [1]
%8 = call %6 %7 %3
%9 = linear %8
in "x" = %3                  : f32 []
root %9
out "y" = %7                 : f32 []
"""


def test_a_program_with_c_text_in_it_stays_c(koine, tmp_path):
    p = tmp_path / "p.kn"
    p.write_text(CUSTOM)
    text = koine("compile", p, "--target", "x86", "--to", "plan", env={"KN_VERIFY": "0"}).stdout
    assert "custom" in text and "native" not in text
    assert koine("run", p, "--in", "x=2", "--out", f"y={tmp_path}/y.npy", env={"KN_CODE": "x86", "KN_VERIFY": "0"})
    assert np.load(tmp_path / "y.npy") == -2
    r = koine("compile", p, "--target", "x86", ok=False, env={"KN_VERIFY": "0"})
    assert r.returncode == 1 and "KN4212" in r.stderr and "C text" in r.stderr


# ---- dtype index: general registers, but data in memory ----

INDEX = {
    "a variable": '%n = param "n" bounds=[1, 4] : index\n%y = add %n 1\n',
    "vectors": '%z = param "z" : index [67]\n%y = add %z 1:index\n',
    "sums": '%z = param "z" : index [67]\n%s = reduce add %z axes=(0) : index [1]\n%m = reduce max %z axes=(0) : index [1]\n'
            "%e = add %s %m\n%y = mod %e 9:index\n",
}


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", INDEX)
def test_data_of_dtype_index(koine, tmp_path, name, level):
    p = tmp_path / "p.kn"
    p.write_text(f'koine 1 tensor\n{INDEX[name]}out "y" = %y\n')
    env = {"KN_CPU": level, "KN_CODE": "x86"}
    want = koine("run", p, "--device", "INTERP").stdout
    assert koine("run", p, env=env).stdout == want
    text = koine("compile", p, "--to", "plan", env=env).stdout
    assert koine("run", "-", "--device", "INTERP", stdin=text).stdout == want


# ---- a * b + c of f64 where no instruction does it ----

FUSED = """koine 1 tensor
%x = param "x" : f64 [{n}]
%y = param "y" : f64 [{n}]
%z = param "z" : f64 [{n}]
%r = mulacc %x %y %z
in "x" = %x
in "y" = %y
in "z" = %z
out "r" = %r
"""


def exact(x, y, z):
    """Of rationals, rounded once."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    r = Fraction(x) * Fraction(y) + Fraction(z)
    if r == 0:
        return x * y + z if x == 0 or y == 0 else 0.0
    try:
        return math.copysign(float(r), -1.0 if r < 0 else 1.0)
    except OverflowError:
        return math.inf if r > 0 else -math.inf


def triples(n):
    """Sums that cancel, wholly or but for the last digits; products at both ends of the range; terms far apart; every special."""
    rng = np.random.default_rng(5)

    def number(e):
        digits = rng.integers(0, 1 << 52, n, dtype=np.uint64)
        few = rng.integers(0, 53, n).astype(np.uint64)
        digits = np.where(rng.random(n) < 0.5, digits, digits >> few << few)
        sign = rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(63)
        return (sign | np.clip(e, 0, 2046).astype(np.uint64) << np.uint64(52) | digits).view(np.float64)
    ex = rng.integers(0, 2047, n)
    ey = np.choose(rng.integers(0, 4, n), [1023 - ex + rng.integers(-120, 60, n), 3069 - ex + rng.integers(-3, 3, n),
                                           rng.integers(0, 2047, n), 2046 - ex + rng.integers(-60, 60, n)])
    x, y = number(ex), number(ey)
    ez = np.clip(ex, 1, 2046) + np.clip(ey, 1, 2046) - 1023 + rng.integers(-120, 120, n)
    z = number(np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), ez))
    with np.errstate(all="ignore"):
        z = np.where(rng.random(n) < 0.3, -(x * y), z)
    z = np.where(rng.random(n) < 0.1, (z.view(np.int64) + rng.integers(-3, 4, n)).view(np.float64), z)
    special = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, np.inf, -np.inf, np.nan])
    some = np.array(np.meshgrid(special, special, special)).reshape(3, -1)
    return [np.concatenate([a, b]) for a, b in zip((x, y, z), some)]


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_a_fused_product_and_sum_rounds_once(koine, tmp_path, level):
    abc = triples(6000)
    p = tmp_path / "p.kn"
    p.write_text(FUSED.format(n=len(abc[0])))
    given = []
    for name, a in zip("xyz", abc):
        np.save(tmp_path / f"{name}.npy", a)
        given += ["--in", f"{name}={tmp_path}/{name}.npy"]
    koine("run", p, *given, "--out", f"r={tmp_path}/r.npy", env={"KN_CODE": "x86", "KN_CPU": level})
    want = np.array([exact(*t) for t in zip(*(a.tolist() for a in abc))])
    got = np.load(tmp_path / "r.npy")
    bad = ~((got.view(np.int64) == want.view(np.int64)) | (np.isnan(got) & np.isnan(want)))
    assert not bad.any(), [(*(a[k].hex() for a in abc), got[k].hex(), want[k].hex()) for k in np.flatnonzero(bad)[:5]]
