"""Functions of two operands against numpy: broadcasting, promotion, literals, division by zero."""
import numpy as np
from conftest import Case
from data import values

CASES = []
SHAPES = {"same": ((3, 4), (3, 4)), "scalars": ((), ()), "broadcast": ((4, 1, 3), (2, 1)), "with_scalar": ((5,), ()),
          "empty": ((0, 3), (3,)), "large": ((200, 1), (1, 301))}


def add(key, fn, a, b, ref, **more):
    CASES.append(Case(key, lambda k: getattr(k.array(a), fn)(k.array(b)), lambda: ref(a, b), **more))


def pair(key, shapes, dtype, lo, hi, lob=None, hib=None):
    sa, sb = SHAPES[shapes]
    return values(key + "a", sa, dtype, lo, hi), values(key + "b", sb, dtype, lo if lob is None else lob, hi if hib is None else hib)


FLOATS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
          "fmax": np.fmax, "fmin": np.fmin, "floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod,
          "trunc_divide": lambda a, b: np.trunc(a / b), "lt": np.less, "le": np.less_equal, "gt": np.greater,
          "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "logical_and": np.logical_and,
          "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logaddexp": np.logaddexp, "hypot": np.hypot,
          "atan2": np.arctan2, "copysign": np.copysign}
for fn, f in FLOATS.items():
    for shapes in SHAPES:
        key = f"{fn}-f32-{shapes}"
        a, b = pair(key, shapes, np.float32, -4, 4)
        loose = {"atol": 2e-6} if fn in ("fmod", "remainder", "logaddexp") else {}
        add(key, fn, a, b, f, **loose)
    key = f"{fn}-f64"
    a, b = pair(key, "broadcast", np.float64, -4, 4)
    add(key, fn, a, b, f)
    key = f"{fn}-f16"
    a, b = pair(key, "same", np.float16, -4, 4)
    add(key, fn, a, b, lambda a, b, f=f: f(a.astype(np.float32), b.astype(np.float32)).astype(f(a, b).dtype), atol=4e-3)
ZEROS = np.repeat([0.0, -0.0, 4, -4, np.inf, np.nan], 4).astype(np.float32), np.tile([1.0, -1, 2, -np.inf], 6).astype(np.float32)
for fn in ("remainder", "fmod", "maximum", "minimum", "copysign"):
    CASES.append(Case(f"{fn}-zeros", lambda k, fn=fn: (lambda y: y.signbit().logical_and(y.eq(y)))(getattr(k.array(ZEROS[0]), fn)(k.array(ZEROS[1]))),
                      lambda f=FLOATS[fn]: (lambda y: np.signbit(y) & (y == y))(f(*ZEROS))))
for fn in ("pow",):
    for shapes in SHAPES:
        a, b = pair(f"pow-{shapes}", shapes, np.float32, 0.1, 4, -3, 3)
        add(f"pow-f32-{shapes}", fn, a, b, lambda a, b: np.power(a.astype(np.float64), b), tol=1e-5)
        a, b = pair(f"xlogy-{shapes}", shapes, np.float32, 0, 4, 0.1, 3)
        add(f"xlogy-f32-{shapes}", "xlogy", np.trunc(a), b, lambda a, b: np.where(a == 0, 0, a * np.log(b)), tol=1e-5)

INTS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
        "floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod, "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "lt": np.less, "ge": np.greater_equal, "eq": np.equal,
        "trunc_divide": lambda a, b: (np.trunc(a.astype(np.float64) / np.where(b == 0, 1, b)) * (b != 0)).astype(a.dtype)}
for fn, f in INTS.items():
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint32):
        key = f"{fn}-{np.dtype(dtype).name}"
        a, b = pair(key, "broadcast", dtype, -100, 100, -5, 5)
        add(key, fn, a, b, f)
for fn, f in (("shift_left", np.left_shift), ("shift_right", np.right_shift)):
    for dtype in (np.int32, np.uint8, np.int64, np.uint16):
        key = f"{fn}-{np.dtype(dtype).name}"
        a, b = pair(key, "same", dtype, -100, 100, 0, 7)
        add(key, fn, a, b, f)
for fn, f in (("logical_and", np.logical_and), ("bitwise_xor", np.bitwise_xor), ("add", np.logical_or), ("mul", np.logical_and),
              ("maximum", np.logical_or), ("minimum", np.logical_and), ("eq", np.equal), ("bitwise_or", np.bitwise_or)):
    a, b = pair(f"{fn}-bool", "broadcast", np.bool_, 0, 1)
    add(f"{fn}-bool", fn, a, b, f, dtype="bool")
for e in (np.int32, np.uint8, np.int64):
    name = np.dtype(e).name
    a, b = pair(f"pow-{name}", "broadcast", e, -5, 5, 0, 9)
    add(f"pow-{name}", "pow", a, b, np.power)

# Promotion: numpy's lattice, but for integers with small floats, which keep the float.
KINDS = {"bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
         "i64": np.int64, "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64}
FLOAT_KINDS = ("f16", "f32", "f64")
for x, dx in KINDS.items():
    for y, dy in KINDS.items():
        if x >= y:
            continue
        a, b = values(f"promote{x}", (4,), dx, 0, 3), values(f"promote{y}", (4,), dy, 0, 3)
        fx, fy = x in FLOAT_KINDS, y in FLOAT_KINDS
        want = x if fx and not fy else y if fy and not fx else None
        if want is None:
            want = next(n for n, d in KINDS.items() if d == np.promote_types(dx, dy))
        d = KINDS[want]
        add(f"promote-{x}-{y}", "add", a, b, lambda a, b, d=d: a.astype(d) + b.astype(d), dtype=want)

# Literals take the tensor's dtype; a fraction with integers gives f32.
for fn, f in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum)):
    for name in ("i8", "u16", "i64", "f16", "f64"):
        a = values(f"lit{fn}{name}", (2, 3), KINDS[name], 0, 9)
        CASES.append(Case(f"{fn}s-{name}", lambda k, fn=fn, a=a: getattr(k.array(a), fn + "s")(3),
                          lambda f=f, a=a: f(a, a.dtype.type(3)), dtype=name))
    a = values(f"frac{fn}", (4,), np.int32, 0, 9)
    CASES.append(Case(f"{fn}s-i32-fraction", lambda k, fn=fn, a=a: getattr(k.array(a), fn + "s")(0.5),
                      lambda f=f, a=a: f(a.astype(np.float32), np.float32(0.5)), dtype="f32"))
for fn, f in (("lt", np.less), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal), ("eq", np.equal), ("ne", np.not_equal)):
    for name in ("i8", "u16", "f32", "f64"):
        a = values(f"lit{fn}{name}", (2, 3), KINDS[name], 0, 4)
        CASES.append(Case(f"{fn}s-{name}", lambda k, fn=fn, a=a: getattr(k.array(a), fn + "s")(2),
                          lambda f=f, a=a: f(a, a.dtype.type(2)), dtype="bool"))
for e in (0, 1, 2, 3, -1, 0.5, -2.5):
    a = values(f"pows{e}", (3, 4), np.float32, 0.2, 3)
    CASES.append(Case(f"pows-{e}", lambda k, a=a, e=e: a is not None and k.array(a).pows(e), lambda a=a, e=e: a.astype(np.float64) ** e, tol=1e-5))
for name in ("i32", "f32", "f64", "f16"):
    a = values(f"divs{name}", (5,), KINDS[name], 1, 9)
    CASES.append(Case(f"divs-{name}", lambda k, a=a: k.array(a).divs(3), lambda a=a: a / (np.float32(3) if a.dtype.kind == "i" else a.dtype.type(3)),
                      dtype="f32" if name == "i32" else name))

# where, masked_fill, mulacc, lerp
for name, shapes in (("same", ((3, 4), (3, 4), (3, 4))), ("broadcast", ((4,), (3, 1), (1,))), ("scalar", ((), (2,), ())), ("empty", ((0,), (0,), (1,)))):
    p, a, b = values("wp" + name, shapes[0], np.bool_), values("wa" + name, shapes[1]), values("wb" + name, shapes[2])
    CASES.append(Case(f"where-{name}", lambda k, p=p, a=a, b=b: k.array(p).where(k.array(a), k.array(b)), lambda p=p, a=a, b=b: np.where(p, a, b)))
    CASES.append(Case(f"masked_fill-{name}", lambda k, p=p, a=a: k.array(a).masked_fill(k.array(p), 7), lambda p=p, a=a: np.where(p, np.float32(7), a)))
    c = values("wc" + name, shapes[0])
    CASES.append(Case(f"mulacc-{name}", lambda k, a=a, b=b, c=c: k.array(a).mulacc(k.array(b), k.array(c)), lambda a=a, b=b, c=c: a * b + c, atol=1e-6))
    CASES.append(Case(f"lerp-{name}", lambda k, a=a, b=b: k.array(a).lerp(k.array(b), 0.25), lambda a=a, b=b: a + 0.25 * (b - a)))

# Edges
I = np.array([-128, -7, -1, 0, 1, 7, 127], np.int8)
A, B = np.repeat(I, 7), np.tile(I, 7)
def nonzero(f):
    return lambda a, b: np.where(b == 0, 0, f(a, np.where(b == 0, 1, b).astype(a.dtype))).astype(a.dtype)
def no_trap(f):  # INT_MIN // -1 wraps
    return lambda a, b: f(a.astype(np.int64), b.astype(np.int64)).astype(a.dtype)
for fn, f in (("floor_divide", np.floor_divide), ("remainder", np.remainder), ("fmod", np.fmod)):
    add(f"{fn}-edges", fn, A, B, lambda a, b, f=f: nonzero(no_trap(f))(a, b))
S = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3.5], np.float32)
SA, SB = np.repeat(S, 8), np.tile(S, 8)
for fn in ("maximum", "minimum", "fmax", "fmin", "lt", "ne", "eq", "ge", "atan2", "hypot", "copysign", "div", "logaddexp"):
    add(f"{fn}-special", fn, SA, SB, FLOATS[fn])


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38, np.inf, -np.inf, np.nan], np.float32)
for d in (np.float32, np.float64, np.float16):
    x = np.where(np.isfinite(EDGES), np.clip(EDGES, -65504, 65504) if d == np.float16 else EDGES, EDGES).astype(d)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    add(f"nextafter-{np.dtype(d).name}", "nextafter", a, b, np.nextafter, tol=1e-12, atol=0.0)
add("nextafter-signs", "nextafter", EDGES[:1], EDGES[3:4], lambda a, b: np.nextafter(a, b), tol=1e-12, atol=0.0)
A, LO, HI = values("clip", (3, 4)), values("clip-lo", (4,), lo=-1, hi=0), values("clip-hi", (3, 1), lo=0, hi=1)
for i, (lo, hi) in enumerate(((LO, HI), (LO, None), (None, HI), (None, None), (np.float32(0.5), np.float32(-0.5)), (np.array([np.nan] * 4, np.float32), HI))):
    CASES.append(Case(f"clip-{i}", lambda k, lo=lo, hi=hi: k.array(A).clip(*[None if v is None else k.array(v) for v in (lo, hi)]),
                      lambda lo=lo, hi=hi: A if lo is None and hi is None else np.clip(A, lo, hi)))
CASES.append(Case("clip-weak", lambda k: k.array(np.arange(5)).clip(k.int(1), k.int(3)), lambda: np.arange(5).clip(1, 3), dtype="i64"))


def test_case(case, device, check):
    check(case, device)
