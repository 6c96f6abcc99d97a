"""f16 computed as it is (level fp16), bit for bit what one rounding of the exact result gives, over all values; and which
instructions that takes. The other levels compute in f32."""
import re
from fractions import Fraction

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy on NaN and overflow
LEVELS = ["fp16", "avx512", "avx2", "sse2"]
ALL = np.arange(65536, dtype=np.uint16).view(np.float16)
SOME = np.concatenate([np.array([0.0, -0.0, 1, -1, 0.5, -2, 3, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8, -6e-8, 6.1e-5, 2048], np.float16),
                       np.random.default_rng(3).integers(0, 65536, 16).astype(np.uint16).view(np.float16)])


def computed(koine, folder, level, text, args):
    p = folder / "p.kn"
    p.write_text(text)
    given, outs = [], re.findall(r'^out "(\w+)"', text, re.M)
    for name, a in args.items():
        np.save(folder / f"{name}.npy", a)
        given += ["--in", f"{name}={folder}/{name}.npy"]
    for name in outs:
        given += ["--out", f"{name}={folder}/{name}_out.npy"]
    koine("run", p, *given, env={"KN_CODE": "x86", "KN_CPU": level})
    return {name: np.load(folder / f"{name}_out.npy") for name in outs}


def same(name, got, want, *args):
    bad = (got != want) & ~((got != got) & (want != want))
    if got.dtype.kind == "f":
        bad |= (np.signbit(got) != np.signbit(want)) & (got == got)
    at = np.flatnonzero(bad.ravel())
    assert not at.size, f"{name}: {at.size} of {bad.size}: " + "; ".join(f"{[a.ravel()[i] for a in args]} gives {got.ravel()[i]}, not {want.ravel()[i]}" for i in at[:4])


PAIRS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
         "eq": np.equal, "ne": np.not_equal, "max": lambda x, y: np.where((x == 0) & (y == 0) & ~(np.signbit(x) & np.signbit(y)), np.float16(0), np.maximum(x, y))}
ONES = {"sqrt": np.sqrt, "trunc": np.trunc, "neg": np.negative}
CASTS = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64}


def saturated(x, t):
    """Toward zero, what does not fit as far as it can, NaN 0."""
    lo, hi = (int(v) for v in (np.iinfo(t).min, np.iinfo(t).max))
    return np.array([0 if v != v else lo if v == -np.inf else hi if v == np.inf else min(max(int(v), lo), hi) for v in x.astype(np.float64).tolist()], t)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_two_operands(koine, tmp_path, level):
    x, y = (np.ascontiguousarray(a) for a in np.broadcast_arrays(ALL[None, :], SOME[:, None]))
    text = 'koine 1 tensor\n%x = param "x" : f16 [32, 65536]\n%y = param "y" : f16 [32, 65536]\n' + "".join(
        f"%r{k} = {op} %x %y\n" for k, op in enumerate(PAIRS)) + "".join(f'out "{op}" = %r{k}\n' for k, op in enumerate(PAIRS))
    for op, got in computed(koine, tmp_path, level, text, {"x": x, "y": y}).items():
        same(op, got, PAIRS[op](x, y), x, y)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_a_constant_and_choices(koine, tmp_path, level):
    text = """koine 1 tensor
%x = param "x" : f16 [65536]
%a = max %x 1.5:f16
%b = max %x 0.0:f16
%l = lt %x 2.0:f16
%c = where %l %x 2.0:f16
%g = le %x 1.0:f16
%n = not %g
%d = where %n %x -1.0:f16
%h = mul %x 0.5:f16
%e = sub %h %x
out "a" = %a
out "b" = %b
out "c" = %c
out "d" = %d
out "e" = %e
"""
    f, x = np.float16, ALL
    want = {"a": np.maximum(x, f(1.5)), "b": np.maximum(x, f(0)) + f(0), "c": np.where(x < 2, x, f(2)), "d": np.where(~(x <= 1), x, f(-1)), "e": x * f(0.5) - x}
    for name, got in computed(koine, tmp_path, level, text, {"x": x}).items():
        same(name, got, want[name].astype(f), x)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_one_operand_and_casts(koine, tmp_path, level):
    text = 'koine 1 tensor\n%x = param "x" : f16 [65536]\n' + "".join(f"%{op} = {op} %x\n" for op in ONES) + "".join(f"%c{t} = cast %x : {t}\n" for t in CASTS)
    text += "".join(f'out "{op}" = %{op}\n' for op in ONES) + "".join(f'out "{t}" = %c{t}\n' for t in CASTS)
    for name, got in computed(koine, tmp_path, level, text, {"x": ALL}).items():
        t = CASTS.get(name)
        same(name, got, ONES[name](ALL) if not t else ALL.astype(t) if name[0] == "f" else saturated(ALL, t), ALL)


def nearest(v):
    """An exact number as f16, to nearest even; a zero's sign is its caller's."""
    if v == 0:
        return 0.0
    a, e = abs(v), -24
    while a >= Fraction(2) ** (e + 11):
        e += 1
    n, rest = divmod(a / Fraction(2) ** e, 1)
    n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n % 2)
    r = n * Fraction(2) ** e
    return (1 if v > 0 else -1) * (float(r) if r <= 65504 else np.inf)


HALVES = np.append(ALL[:31744].astype(np.float64), 65536)  # not negative, in order; the last stands for infinity
MIDDLES = (HALVES[1:] + HALVES[:-1]) / 2  # exact


def rounded(v):
    """f64 as f16, to nearest even."""
    k = np.searchsorted(MIDDLES, np.abs(v))
    k += (np.append(MIDDLES, np.inf)[k] == np.abs(v)) & (k % 2 == 1)
    return np.where(np.isnan(v), v, np.copysign(np.append(HALVES[:-1], np.inf)[k], v)).astype(np.float16)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_casts_to_half(koine, tmp_path, level):
    r, n = np.random.default_rng(4), 20000
    ties = (ALL[:31743].astype(np.float64) + ALL[1:31744].astype(np.float64)) / 2
    near = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9), [65519.99, 65520.0, 1e300, 1e-300, np.inf, -np.inf, np.nan, -0.0]])
    args = {"i8": np.arange(-128, 128).astype(np.int8), "u8": np.arange(256).astype(np.uint8), "i16": np.arange(-32768, 32768).astype(np.int16), "u16": np.arange(65536).astype(np.uint16),
            "i32": r.integers(-70000, 70000, n).astype(np.int32), "u64": r.integers(0, 70000, n).astype(np.uint64), "f32": near.astype(np.float32), "f64": np.concatenate([near, -near])}
    text = "koine 1 tensor\n" + "".join(f'%{t} = param "{t}" : {t} [{a.size}]\n' for t, a in args.items()) + "".join(f"%h{t} = cast %{t} : f16\n" for t in args)
    text += "".join(f'out "h{t}" = %h{t}\n' for t in args)
    for name, got in computed(koine, tmp_path, level, text, args).items():
        a = args[name[1:]]
        same(name, got, rounded(a.astype(np.float64)), a)


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
def test_a_fused_product_and_sum_rounds_once(koine, tmp_path, level):
    r, n = np.random.default_rng(5), 30000
    x, y, z = r.integers(0, 65536, (3, n)).astype(np.uint16).view(np.float16)
    z = np.where(r.random(n) < 0.4, -(x * y), z)  # what cancels but for the last digits
    text = 'koine 1 tensor\n' + "".join(f'%{v} = param "{v}" : f16 [{n}]\n' for v in "xyz") + '%r = mulacc %x %y %z\nout "r" = %r\n'
    got = computed(koine, tmp_path, level, text, {"x": x, "y": y, "z": z})["r"]
    wide = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)  # right where it is zero, infinite or none
    plain = ~np.isfinite(wide) | (wide == 0)
    exact = [0 if p else nearest(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c, p in zip(x, y, z, plain)]
    want = np.where(plain, wide, exact)
    want = np.where((want == 0) & ~plain, np.copysign(0, wide), want)
    same("mulacc", got, want.astype(np.float16), x, y, z)


# ---- instructions ----

def inner(koine, folder, level, text):
    p = folder / "p.kn"
    p.write_text("koine 1 tensor\n" + text)
    listing = koine("compile", p, "--target", "x86", env={"KN_CPU": level, "KN_THREADS": "1"}).stdout
    return [line.split("#")[0].strip() for line in listing.splitlines() if line.startswith("    ") and line.strip()[0] == "v"]


XYZ = '%x = param "x" : f16 [4096]\n%y = param "y" : f16 [4096]\n%z = param "z" : f16 [4096]\n'


def test_arithmetic_is_done_in_32_lanes(koine, tmp_path):
    text = XYZ + '%a = mul %x %y\n%b = add %a %z\n%l = lt %b %x\n%c = where %l %b %y\nout "c" = %c\n'
    code = inner(koine, tmp_path, "fp16", text)
    assert {"vmulph", "vaddph"} <= {i.split()[0] for i in code} and not any(i.startswith("vcvt") or "ymm" in i for i in code)
    assert any(re.match(r"v\w+ph zmm\d+, zmm\d+, ZMMWORD PTR", i) for i in code)  # a load is an operand
    assert not any(re.match(r"v\w+ph ", i) for i in inner(koine, tmp_path, "dot", text) if not i.startswith("vcvt"))


def test_quotients_and_roots_are_done_in_f32(koine, tmp_path):
    code = inner(koine, tmp_path, "fp16", XYZ + '%a = div %x %y\n%b = sqrt %a\nout "b" = %b\n')
    names = {i.split()[0] for i in code}
    assert {"vdivps", "vsqrtps"} <= names and not {"vdivph", "vsqrtph"} & names
    assert any(re.match(r"vcvtph2ps zmm\d+, YMMWORD PTR", i) for i in code)


MIXED = {
    "a sum in f32": '%a = cast %x : f32\n%b = reduce add %a axes=(0)\n%c = cast %b : f16\nout "c" = %c\n',
    "products in f32": '%a = cast %x : f32\n%b = cast %y : f32\n%c = mul %a %b\n%d = reduce add %c axes=(0)\nout "d" = %d\n',
    "functions": '%a = exp %x\n%b = tanh %a\nout "b" = %b\n',
}


@pytest.mark.parametrize("name", MIXED)
def test_what_is_computed_in_f32_is_as_it_was(koine, tmp_path, name):
    dot, fp16 = (inner(koine, tmp_path, level, XYZ + MIXED[name]) for level in ("dot", "fp16"))
    assert dot == fp16 and any("vcvtph2ps" in i for i in fp16)


def test_beside_f32_it_is_done_in_16_lanes(koine, tmp_path):
    text = XYZ + '%a = mul %x %y\n%b = cast %a : f32\n%c = cast %z : f32\n%d = add %b %c\nout "d" = %d\n'
    code = inner(koine, tmp_path, "fp16", text)
    assert sum("vmulph ymm" in i for i in code) == sum("vaddps zmm" in i for i in code) > 0
    assert len(code) < len(inner(koine, tmp_path, "dot", text))
