"""Functions of one operand against numpy: shapes, views, dtypes, special values."""
import math

import numpy as np
from conftest import Case
from data import VIEWS, operand, values, viewed

erf = np.vectorize(math.erf, otypes=[np.float64])


def softplus(x):
    return np.logaddexp(x, 0)


def sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))), 1 / (1 + np.exp(-np.maximum(x, 0))))


def elu(x, a=1.0):
    return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


# name: (numpy, lo, hi); the operand lies in [lo, hi]
FLOAT = {
    "sqrt": (np.sqrt, 0, 50), "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 50), "recip": (lambda x: 1 / x, 0.1, 50),
    "exp": (np.exp, -20, 20), "exp2": (np.exp2, -20, 20), "expm1": (np.expm1, -2, 2), "log": (np.log, 0.01, 99),
    "log2": (np.log2, 0.01, 99), "log10": (np.log10, 0.01, 99), "log1p": (np.log1p, -0.9, 9), "sin": (np.sin, -9, 9),
    "cos": (np.cos, -9, 9), "tan": (np.tan, -1.5, 1.5), "sinh": (np.sinh, -9, 9), "cosh": (np.cosh, -9, 9),
    "tanh": (np.tanh, -5, 5), "asin": (np.arcsin, -1, 1), "acos": (np.arccos, -1, 1), "atan": (np.arctan, -9, 9),
    "asinh": (np.arcsinh, -99, 99), "acosh": (np.arccosh, 1.1, 99), "atanh": (np.arctanh, -0.9, 0.9), "erf": (erf, -4, 4),
    "sigmoid": (sigmoid, -20, 20), "gelu": (lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), -5, 5),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), -5, 5),
    "quick_gelu": (lambda x: x * sigmoid(1.702 * x), -9, 9), "silu": (lambda x: x * sigmoid(x), -9, 9),
    "softplus": (softplus, -30, 30), "mish": (lambda x: x * np.tanh(softplus(x)), -9, 9),
    "tanhshrink": (lambda x: x - np.tanh(x), -9, 9), "softsign": (lambda x: x / (1 + abs(x)), -9, 9), "logsigmoid": (lambda x: -softplus(-x), -30, 30),
    "selu": (lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), -9, 9),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), -5, 5),
    "hardswish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5, 5), "frac": (lambda x: x - np.trunc(x), -9, 9),
    "deg2rad": (np.deg2rad, -360, 360), "rad2deg": (np.rad2deg, -9, 9),
}
NUM = {
    "neg": (np.negative, -9, 9), "abs": (np.abs, -9, 9), "sign": (np.sign, -2, 2), "square": (np.square, -9, 9),
    "relu": (lambda x: np.maximum(x, 0), -9, 9), "relu6": (lambda x: np.clip(x, 0, 6), -9, 9),
    "hardtanh": (lambda x: np.clip(x, -1, 1), -3, 3), "floor": (np.floor, -9, 9), "ceil": (np.ceil, -9, 9),
    "round": (np.round, -9, 9), "trunc": (np.trunc, -9, 9),
}
TRUTH = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit, "logical_not": np.logical_not}

CASES = []


def add(name, operand_dtype, view, lo, hi, ref, **more):
    key = f"{name}-{np.dtype(operand_dtype).name}-{view}"
    a = values(key, VIEWS[view][0], operand_dtype, lo, hi)
    build = lambda k: getattr(operand(k, a, view), name)()
    CASES.append(Case(key, build, lambda: ref(viewed(a, view)), **more))


for name, (f, lo, hi) in FLOAT.items():
    wide = lambda x, f=f: f(x.astype(np.float64))
    loose = {"tol": 1e-5} if name in ("tan", "acosh", "atanh", "asinh", "sinh") else {}
    for view in ("scalar", "empty", "transposed", "strided"):
        add(name, np.float32, view, lo, hi, wide, dtype="f32", **loose)
    add(name, np.float64, "expanded", lo, hi, f, dtype="f64", tol=1e-12)
    add(name, np.float16, "vector", max(lo, -8), min(hi, 8), wide, dtype="f16")
    add(name, np.int32, "vector", max(math.ceil(lo), -3), min(hi, 4), wide, dtype="f32", **loose)
for name, (f, lo, hi) in NUM.items():
    for view in ("scalar", "empty3", "transposed", "strided", "large"):
        add(name, np.float32, view, lo, hi, f, dtype="f32")
    for dtype in (np.int8, np.int64, np.uint8):
        if np.dtype(dtype).kind != "u" or name not in ("hardtanh",):
            add(name, dtype, "expanded", lo, hi, lambda x, f=f: f(x).astype(x.dtype))
for name, f in TRUTH.items():
    for view in ("scalar", "empty", "strided", "expanded"):
        add(name, np.float32, view, -3, 3, f, dtype="bool")
for dtype in (np.bool_, np.int8, np.uint16, np.int64):
    add("bitwise_not", dtype, "transposed", -99, 99, np.invert)

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e30, -1e30, 1e-30], np.float32)
for name, f in {**{n: v[0] for n, v in FLOAT.items()}, **{n: v[0] for n, v in NUM.items()}, **TRUTH}.items():
    if name in ("gelu", "gelu_tanh", "quick_gelu", "silu", "mish", "softsign", "hardswish", "frac", "logsigmoid", "selu", "asinh",
                "acosh", "tan", "sin", "cos", "rsqrt", "recip", "deg2rad", "rad2deg"):
        continue  # numpy's own formula is not defined there, or the argument reduction is the device's
    def want(f=f):
        with np.errstate(all="ignore"):
            return np.asarray(f(SPECIAL.astype(np.float64))).astype(np.float64 if f not in TRUTH.values() else bool)
    def close(w):  # what overflows f32
        return np.where(np.abs(w) > 3.4e38, np.sign(w) * np.inf, w) if w.dtype != bool else w
    CASES.append(Case(f"{name}-special", lambda k, name=name: getattr(k.array(SPECIAL), name)(), lambda want=want, close=close: close(want())))

PARAMETER = {
    "leaky_relu": ((0.1,), lambda x, s: np.where(x > 0, x, s * x)), "elu": ((0.7,), elu),
    "celu": ((0.7,), lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a))),
    "clamp": ((-0.5, 1.25), lambda x, lo, hi: np.clip(x, lo, hi)),
    "threshold": ((0.3, -5.0), lambda x, t, v: np.where(x > t, x, v)),
    "hardshrink": ((0.5,), lambda x, s: np.where(abs(x) > s, x, 0)),
    "softshrink": ((0.5,), lambda x, s: np.sign(x) * np.maximum(abs(x) - s, 0)),
    "nan_to_num": ((7.0,), lambda x, v: np.where(np.isnan(x), v, x)),
}
for name, (args, f) in PARAMETER.items():
    for view in ("scalar", "empty", "transposed", "expanded"):
        key = f"{name}-{view}"
        a = values(key, VIEWS[view][0])
        if name == "nan_to_num" and a.size > 2:
            a.flat[1] = np.nan
        CASES.append(Case(key, lambda k, a=a, view=view, name=name, args=args: getattr(operand(k, a, view), name)(*args),
                          lambda a=a, view=view, f=f, args=args: f(viewed(a, view), *args)))


def test_case(case, device, check):
    check(case, device)
