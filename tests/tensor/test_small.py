"""bf16 and the 8-bit floats: storage, conversion, arithmetic rounded once to the dtype."""
import numpy as np
from conftest import Case
from data import values

CASES = []
BITS = {"bf16": (8, 7, 127), "f16": (5, 10, 15), "f8e5m2": (5, 2, 15), "f8e4m3": (4, 3, 7)}


def rounded(x, dtype):
    """x to the nearest value of the dtype, ties to even, as float64 (the test's numbers are in range)."""
    e, m, bias = BITS[dtype]
    x = np.asarray(x, np.float64)
    with np.errstate(divide="ignore"):
        p = np.maximum(np.floor(np.log2(np.where(x == 0, 1, np.abs(x)))), 1 - bias)
    step = 2.0 ** (p - m)
    return np.round(x / step) * step


def add(key, build, ref, tol=0.0):
    CASES.append(Case(key, lambda k: build(k).cast("f64"), ref, tol=tol or 1e-12, atol=1e-12))


for d in BITS:
    for i, shape in enumerate(((), (7,), (3, 5), (0,))):
        a, b = values(f"{d}a{i}", shape, np.float64, -3, 3), values(f"{d}b{i}", shape, np.float64, 0.5, 3)
        ra, rb = rounded(a, d), rounded(b, d)
        add(f"cast-{d}-{i}", lambda k, a=a, d=d: k.array(a).cast("f32").cast(d), lambda a=a, d=d: rounded(a.astype(np.float32), d))
        for fn, f in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("maximum", np.maximum)):
            add(f"{fn}-{d}-{i}", lambda k, a=a, b=b, d=d, fn=fn: getattr(k.array(rounded(a, d)).cast(d), fn)(k.array(rounded(b, d)).cast(d)),
                lambda ra=ra, rb=rb, d=d, f=f: rounded(f(ra, rb), d), tol=2.0 ** -BITS[d][1])
        add(f"sum-{d}-{i}", lambda k, a=a, d=d: k.array(rounded(a, d)).cast(d).sum(), lambda ra=ra, d=d: rounded(ra.astype(np.float32).sum(), d), tol=2.0 ** -BITS[d][1])


for d in ("bf16", "f16"):
    a, b = rounded(values(f"{d}ma", (5, 70), np.float64), d), rounded(values(f"{d}mb", (70, 3), np.float64), d)
    tol = 2.0 ** -BITS[d][1]
    add(f"matmul-{d}", lambda k, a=a, b=b, d=d: k.array(a).cast(d) @ k.array(b).cast(d), lambda a=a, b=b: a @ b, tol=4 * tol)
    add(f"softmax-{d}", lambda k, a=a, d=d: k.array(a).cast(d).softmax(-1), lambda a=a: np.exp(a) / np.exp(a).sum(-1, keepdims=True), tol=4 * tol)
    add(f"mean-{d}", lambda k, a=a, d=d: k.array(a).cast(d).mean_over((1,), 0), lambda a=a: a.mean(1), tol=2 * tol)
    add(f"layer_norm-{d}", lambda k, a=a, d=d: k.array(a).cast(d).layer_norm(1, None, None, 1e-5),
        lambda a=a: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5), tol=8 * tol)
    add(f"exp-{d}", lambda k, a=a, d=d: k.array(a).cast(d).exp(), lambda a=a, d=d: rounded(np.exp(a), d), tol=2 * tol)
    add(f"promote-{d}-i32", lambda k, a=a, d=d: k.array(a).cast(d).mul(k.array(np.full(70, 2, np.int32))), lambda a=a: a * 2)
    add(f"grad-{d}", lambda k, a=a, d=d: (lambda x: x.square().sum().grad1(x))(k.array(a).cast(d)), lambda a=a: 2 * a)


def test_case(case, device, check):
    check(case, device)
