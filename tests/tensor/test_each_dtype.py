"""Elementwise functions, movements and reductions over every dtype; of 8- and 16-bit floats every value there is (INTERP: a part).

The oracle is numpy in f64, rounded once (ml_dtypes knows the small floats). ULP is the one table of tolerances: units in the last place of the
true value, of f32 and f64; 16- and 8-bit floats are computed in f32, so HALF holds for all of their functions. SPREAD allows more, absolutely:
what a formula loses where it subtracts. NaN, infinities, overflow and signs of zero are compared exactly, but for LOOSE_ZERO's signs."""
import math
from functools import cache

import koine
import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy on NaN and overflow
FLOATS = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INTS = {f"{s}{b}": np.dtype(f"{s}{b // 8}").type for s in "iu" for b in (8, 16, 32, 64)}
erf, erfc = (np.vectorize(f, otypes=[np.float64]) for f in (math.erf, math.erfc))
HALF = 0.51


def sigmoid(x):
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def softplus(x):
    return np.logaddexp(x, 0)


def elu(x, a):
    return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "relu": lambda x: np.where(x <= 0, 0, x), "relu6": lambda x: np.minimum(np.where(x <= 0, 0, x), 6),
    "hardtanh": lambda x: np.clip(x, -1, 1), "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc, "frac": lambda x: x - np.trunc(x), "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "recip": lambda x: 1 / x, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf, "sigmoid": sigmoid, "gelu": lambda x: 0.5 * x * erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)), "quick_gelu": lambda x: x * sigmoid(1.702 * x), "silu": lambda x: x * sigmoid(x), "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)), "softsign": lambda x: x / (1 + abs(x)), "logsigmoid": lambda x: -softplus(-x), "selu": lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "hardswish": lambda x: x * (np.clip(x + 3, 0, 6) / 6), "tanhshrink": lambda x: x - np.tanh(x), "deg2rad": np.deg2rad, "rad2deg": np.rad2deg,
}
GIVEN = {
    "leaky_relu": ((0.3,), lambda x, s: np.where(x > 0, x, s * x)), "elu": ((0.7,), elu), "celu": ((0.7,), lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a))),
    "threshold": ((0.5, -2.0), lambda x, t, v: np.where(x <= t, v, x)), "hardshrink": ((0.5,), lambda x, s: np.where(abs(x) <= s, 0, x)), "clamp": ((-0.5, 1.5), np.clip),
    "softshrink": ((0.5,), lambda x, s: np.where(abs(x) <= s, 0, np.where(x > 0, x - s, x + s))), "nan_to_num": ((7.0,), lambda x, v: np.where(np.isnan(x), v, x)),
    "logit": ((0.0,), lambda x, e: np.log(x) - np.log1p(-x)),
}
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": np.fmod, "remainder": np.remainder, "logaddexp": np.logaddexp, "hypot": np.hypot, "atan2": np.arctan2, "copysign": np.copysign, "xlogy": lambda a, b: np.where(a == 0, 0 * a, a * np.log(b)),
}
TRUTH = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
         "logical_xor": np.logical_xor}
WHOLE = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
         "bitwise_xor": np.bitwise_xor, "floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod, "trunc_divide": lambda a, b: ((a - np.fmod(a, b)) // np.where(b == 0, 1, b)).astype(a.dtype)}
# name: f32, f64. What is not named: 1 and 2 (numpy's own functions err by one in f64).
ULP = {"rsqrt": (1.5, 2), "expm1": (2.5, 3), "log10": (2, 3), "log1p": (1.5, 2), "tan": (1.7, 3), "sinh": (4, 4), "cosh": (2, 2), "asin": (6, 6), "acos": (6, 6), "atan": (5, 5), "atan2": (6, 6),
       "asinh": (2, 3), "acosh": (2, 3), "atanh": (2, 3), "sigmoid": (4, 4), "softplus": (3, 3), "logsigmoid": (3, 3), "softsign": (1.5, 2), "selu": (4, 4), "hardsigmoid": (1.5, 2), "hardswish": (3, 3),
       "silu": (5, 5), "mish": (5, 6), "elu": (3, 4), "celu": (4, 4), "logit": (2, 3), "hypot": (2.5, 3), "xlogy": (2, 3), "quick_gelu": (4, 5), "logaddexp": (2, 3), "gelu": (4, 5), "gelu_tanh": (4, 5), "fmod": (0, 0)}
# name: how large a number may be rounded on the way, whose unit in f32 (f64 for f64) is allowed too.
SPREAD = {"gelu": abs, "gelu_tanh": abs, "tanhshrink": lambda x: 2 * abs(x), "logaddexp": lambda a, b: 2 * np.fmax(abs(a), abs(b)), "logit": lambda x: np.ones_like(x),
          "quick_gelu": lambda x: abs(x * x * sigmoid(1.702 * x)) * 2, "silu": lambda x: abs(x) * 1e-37, "mish": lambda x: abs(x) * 1e-37, "cosh": lambda x: 0 * x}
LOOSE_ZERO = {"sign", "relu6", "selu", "maximum", "minimum", "fmax", "fmin", "remainder", "elu", "celu", "tanhshrink", "clamp", "hardtanh", "threshold", "hardshrink", "softshrink", "relu", "leaky_relu", "xlogy"}


def bits_of(d):
    return np.dtype(f"u{np.dtype(FLOATS.get(d) or INTS[d]).itemsize}")


@cache
def patterns(d, device):
    """Values of dtype d, as bits."""
    u = bits_of(d)
    if u.itemsize <= 2:
        return np.arange(0, 1 << 8 * u.itemsize, 1 if u.itemsize == 1 or device != "INTERP" else 61).astype(u)
    r, t, f = np.random.default_rng(1), FLOATS[d], np.finfo(FLOATS[d])
    special = np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, f.max, f.min, f.tiny, -f.tiny, f.smallest_subnormal, -f.smallest_subnormal, f.tiny / 2, f.eps, 100, -100, 1e3, -1e3], t)
    n = 400 if device == "INTERP" else 4000
    near = np.concatenate([r.uniform(-10, 10, n), r.uniform(-1, 1, n), r.normal(size=n) * 1e-3]).astype(t)
    return np.concatenate([special.view(u), near.view(u), np.frombuffer(r.bytes(n * u.itemsize), u)])


@cache
def pairs(d, device):
    p = patterns(d, device)
    if bits_of(d).itemsize == 1 and device != "INTERP":
        return tuple(g.ravel() for g in np.meshgrid(p, p))
    r, n, few = np.random.default_rng(2), 1500 if device == "INTERP" else 40000, p[:24]
    near = r.uniform(-4, 4, (2, n // 4)).astype(FLOATS[d]).view(bits_of(d)) if d in FLOATS else r.choice(p, (2, 1))
    special = np.meshgrid(few, few)
    return tuple(np.concatenate([r.choice(p, n), near[i], special[i].ravel()]) for i in range(2))


@cache
def unit(d):
    """ulp of a true value, as a function."""
    f = ml_dtypes.finfo(FLOATS[d])

    def of(x):
        e = np.floor(np.log2(np.where(x == 0, 1, abs(x))))
        return np.where(x == 0, 0, np.maximum(np.ldexp(1.0, (np.clip(e, -1070, 1023) - f.nmant).astype(int)), float(f.smallest_subnormal)))
    return of


def close(name, d, got, want, args):
    """got, of dtype d, is want, in f64, as the tables say."""
    exact = want.astype(FLOATS[d]).astype(np.float64)
    unequal = (np.isnan(got) != np.isnan(exact)) | ((np.isinf(got) | np.isinf(exact)) & (got != exact) & ~np.isnan(exact))
    if name not in LOOSE_ZERO:
        unequal |= (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact))
    n = ULP.get(name, (1, 2))[d == "f64"] if d in ("f32", "f64") else HALF
    wide = "f64" if d == "f64" else "f32"
    spread = unit(wide)(SPREAD[name](*args)) + (abs(args[0]) * float(ml_dtypes.finfo(FLOATS[wide]).smallest_subnormal)) if name in SPREAD else 0
    both = np.isfinite(got) & np.isfinite(want) & np.isfinite(exact)
    error = np.where(both, abs(np.where(both, got - want, 0)) - np.where(both, spread, 0), 0)
    bad = unequal | (error > n * np.where(both, np.maximum(unit(d)(np.where(both, want, 1)), unit(d)(np.full_like(want, 5e-324)) if d in ("f32", "f64") else 0), 1) * (1 + 1e-9))
    assert not bad.any(), f"{bad.sum()} of {bad.size}: " + "; ".join(f"{name}{tuple(float(a[i]) for a in args)} is {got[i]}, not {want[i]}" for i in np.flatnonzero(bad)[:4])


@pytest.fixture(scope="module")
def computed():
    """All functions of a kind and dtype on a device, one program."""
    done, contexts = {}, {}

    def get(kind, d, device):
        if (kind, d, device) not in done:
            k = contexts.setdefault(device, koine.Context(device))
            a = [patterns(d, device)] if kind in ("unary", "given") else pairs(d, device)
            t = [k.array(x, d) for x in a]
            names = {"unary": UNARY, "given": GIVEN, "binary": BINARY, "truth": TRUTH, "whole": WHOLE}[kind]
            out = {n: koine.call(n, *t, *(GIVEN[n][0] if kind == "given" else ())).check() for n in names}
            k.realize(*out.values())
            done[kind, d, device] = a, {n: (x.dtype, x.numpy()) for n, x in out.items()}
        return done[kind, d, device]
    yield get
    for k in contexts.values():
        k.close()


def floats(kind, name, d, device, computed, f):
    a, out = computed(kind, d, device)
    dtype, got = out[name]
    assert dtype == d
    args = [x.view(FLOATS[d]).astype(np.float64) for x in a]
    with np.errstate(all="ignore"):
        want = np.asarray(f(*args), np.float64)
        close(name, d, got.view(FLOATS[d]).astype(np.float64), want, args)


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, d, device, computed):
    floats("unary", name, d, device, computed, UNARY[name])


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("name", GIVEN)
def test_with_numbers(name, d, device, computed):
    args, f = GIVEN[name]
    if name in ("threshold", "nan_to_num", "clamp", "hardshrink"):  # literals are of x's dtype
        args = [float(np.asarray(v, FLOATS[d])) for v in args]
    floats("given", name, d, device, computed, lambda x: f(x, *args))


@pytest.mark.parametrize("d", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, d, device, computed):
    floats("binary", name, d, device, computed, BINARY[name])


@pytest.mark.parametrize("d", [*FLOATS, *(d for d in INTS if d[1:] in ("8", "16"))])
@pytest.mark.parametrize("name", TRUTH)
def test_truths(name, d, device, computed):
    (a, b), out = computed("truth", d, device)
    dtype, got = out[name]
    t = FLOATS.get(d) or INTS[d]
    a, b = (x.view(t).astype(np.float64) for x in (a, b))
    assert dtype == "bool" and (got == TRUTH[name](a, b)).all()


@pytest.mark.parametrize("d", [d for d in INTS if d[1:] in ("8", "16")])
@pytest.mark.parametrize("name", WHOLE)
def test_integers(name, d, device, computed):
    (a, b), out = computed("whole", d, device)
    a, b = a.view(INTS[d]), b.view(INTS[d])
    with np.errstate(all="ignore"):
        want = WHOLE[name](a, b)
    if "div" in name or name in ("remainder", "fmod"):
        want = np.where(b == 0, 0, want)
    assert out[name][0] == d and (out[name][1] == want).all()


# ---- movements keep the bits of every dtype ----

ALL = [*FLOATS, *INTS, "bool"]
MOVE = {
    "reshape": (lambda t: t.reshape((5, -1)), lambda a: a.reshape(5, -1)), "permute": (lambda t: t.permute((2, 0, 1)), lambda a: a.transpose(2, 0, 1)), "mT": (lambda t: t.mT(), lambda a: a.swapaxes(1, 2)),
    "expand": (lambda t: t.unsqueeze(1).expand((4, 2, 3, 5)), lambda a: np.broadcast_to(a[:, None], (4, 2, 3, 5))), "pad": (lambda t: t.pad((1, 0, 0, 2, 1, 1), 0.0), lambda a: np.pad(a, ((1, 0), (0, 2), (1, 1)))),
    "pad_mode": (lambda t: t.pad_mode((1, 2, 0, 1, 2, 2), "reflect", 0.0), lambda a: np.pad(a, ((1, 2), (0, 1), (2, 2)), "reflect")), "shrink": (lambda t: t.shrink((1, 0, 2), (2, 3, 3)), lambda a: a[1:3, :, 2:]),
    "flip": (lambda t: t.flip((0, 2)), lambda a: a[::-1, :, ::-1]), "rot90": (lambda t: t.rot90(3, 1, 2), lambda a: np.rot90(a, 3, (1, 2))), "slice": (lambda t: t.slice(2, -1, -99, -2), lambda a: a[:, :, ::-2]),
    "select": (lambda t: t.select(1, -2), lambda a: a[:, 1]), "cat": (lambda t: koine.cat([t, t.flip((0,)), t], 1), lambda a: np.concatenate([a, a[::-1], a], 1)),
    "stack": (lambda t: koine.stack([t, t.flip((1,))], 3), lambda a: np.stack([a, a[:, ::-1]], 3)), "tile": (lambda t: t.tile((2, 1, 3)), lambda a: np.tile(a, (2, 1, 3))),
    "repeat": (lambda t: t.repeat(3, 1), lambda a: a.repeat(3, 1)), "roll": (lambda t: t.roll(-2, 2), lambda a: np.roll(a, -2, 2)), "tril": (lambda t: t.tril(1), lambda a: np.tril(a, 1)),
    "triu": (lambda t: t.triu(-1), lambda a: np.triu(a, -1)), "diagonal": (lambda t: t.diagonal(1), lambda a: a.diagonal(1, 1, 2)), "unfold": (lambda t: t.unfold(2, 3, 2), lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, 2)[:, :, ::2]),
    "contiguous": (lambda t: t.mT().contiguous(), lambda a: a.swapaxes(1, 2)), "param": (lambda t: t.param(), lambda a: a), "diag": (lambda t: t.flatten(0, -1).diag(), lambda a: np.diag(a.ravel())),
    "where": (lambda t: t.k.array(MASK).where(t, t.flip((0,))), lambda a: np.where(MASK, a, a[::-1])), "split": (lambda t: koine.several("split", 2, t, 2, (2, 3))[1], lambda a: a[:, :, 2:]),
    "gather": (lambda t: t.take(t.k.array(np.array([3, 0, 3])), 0), lambda a: a[[3, 0, 3]]), "index": (lambda t: koine.call("index", t, [t.k.array(np.array([1, 3])), None, t.k.array(np.array([4, 0]))]), lambda a: a[[1, 3], :, [4, 0]]),
    "take_along_axis": (lambda t: t.take_along_axis(t.k.array(ALONG), 2), lambda a: np.take_along_axis(a, ALONG, 2)), "put_along_axis": (lambda t: t.put_along_axis(2, t.k.array(ALONG), t.shrink((0, 0, 0), (4, 3, 2))), lambda a: put(a)),
    "sort": (lambda t: t.sort(1, 0), lambda a: np.sort(a, 1)), "unsqueeze": (lambda t: t.unsqueeze(0), lambda a: a[None]), "moveaxis": (lambda t: t.moveaxis(0, 2), lambda a: np.moveaxis(a, 0, 2)),
    "unflatten": (lambda t: t.unflatten(0, (2, 2)), lambda a: a.reshape(2, 2, 3, 5)), "empty": (lambda t: t.shrink((0, 0, 0), (0, 3, 5)), lambda a: a[:0]), "scalar": (lambda t: t.select(0, 1).select(0, 1).select(0, 1), lambda a: a[1, 1, 1]),
    "masked_select": (lambda t: t.masked_select(t.k.array(MASK), 20, None), lambda a: a[MASK][:20]), "meshgrid": (lambda t: koine.several("meshgrid", 2, [t.flatten(0, -1), t.select(0, 0).select(0, 0)], 1)[0], lambda a: np.meshgrid(a.ravel(), a[0, 0])[0]),
}
MASK = np.random.default_rng(5).integers(0, 2, (4, 3, 5)).astype(bool)
ALONG = np.random.default_rng(6).permuted(np.tile(np.arange(5), (4, 3, 1)), axis=2)[:, :, :2]


def put(a):
    a = a.copy()
    np.put_along_axis(a, ALONG, a[:, :, :2].copy(), 2)
    return a


def some(d):
    """(4, 3, 5) of dtype d as bits: no NaN, no zero (sorting and padding know zeros of one sign), extremes among them."""
    r = np.random.default_rng(7)
    if d == "bool":
        return r.integers(0, 2, (4, 3, 5)).astype(bool)
    if d in INTS:
        i = np.iinfo(INTS[d])
        a = r.integers(max(i.min, -100), 100, (4, 3, 5)).astype(INTS[d])
        a.flat[:2] = i.min, i.max
        return a
    f = ml_dtypes.finfo(FLOATS[d])
    a = r.uniform(0.5, 4, (4, 3, 5)).astype(FLOATS[d]) * np.where(r.integers(0, 2, (4, 3, 5)), 1, -1).astype(FLOATS[d])
    a.flat[:4] = f.max, f.min, f.smallest_subnormal, -float(f.tiny)
    return a


NOT_OF = {("mse_loss", "bool")}  # truths have no difference


def together(make, calls):
    """get(d, device): the array made of dtype d, and every call's dtype and elements, computed at once."""
    @cache
    def get(d, device):
        k, a = koine.Context(device), make(d)
        t = k.array(a.view(bits_of(d)) if d in FLOATS else a, d)
        out = {n: f(t).check() for n, (f, _) in calls.items() if (n, d) not in NOT_OF}
        k.realize(*out.values())
        done = a, {n: (x.dtype, x.numpy()) for n, x in out.items()}
        k.close()
        return done
    return get


@pytest.fixture(scope="module")
def moved():
    return together(some, MOVE)


@pytest.mark.parametrize("d", ALL)
@pytest.mark.parametrize("name", MOVE)
def test_movements(name, d, device, moved):
    a, out = moved(d, device)
    dtype, got = out[name]
    want = np.array(MOVE[name][1](a if name == "sort" or d not in FLOATS else a.view(bits_of(d))), order="C")
    assert dtype == d and got.shape == want.shape and (got.reshape(-1).view(np.uint8) == want.reshape(-1).view(np.uint8)).all()


# ---- reductions: of integers exact, of floats within what adding up so many may lose, rounded once ----

def wide(a):
    return a.astype(np.float64) if a.dtype.kind not in "biu" else a


REDUCE = {
    "sum": (lambda t: t.sum_over((1,), 0), lambda a: a.sum(1)), "prod": (lambda t: t.prod_over((2,), 1), lambda a: a.prod(2, keepdims=True)), "max": (lambda t: t.max_over((0, 2), 0), lambda a: a.max((0, 2))),
    "min": (lambda t: t.min(), lambda a: a.min()), "mean": (lambda t: t.mean_over((0,), 0), lambda a: wide(a).mean(0)), "any": (lambda t: t.any_over((1,), 0), lambda a: a.astype(bool).any(1)),
    "all": (lambda t: t.all_over((1,), 0), lambda a: a.astype(bool).all(1)), "count_nonzero": (lambda t: t.count_nonzero_over((2,), 0), lambda a: np.count_nonzero(a, 2)),
    "argmax": (lambda t: t.argmax(2, 0), lambda a: wide(a).argmax(2)), "argmin": (lambda t: t.argmin(1, 1), lambda a: wide(a).argmin(1, keepdims=True)), "cumsum": (lambda t: t.cumsum(2), lambda a: a.cumsum(2)),
    "cummax": (lambda t: t.cummax(1), lambda a: np.maximum.accumulate(a, 1)), "cummin": (lambda t: t.cummin(0), lambda a: np.minimum.accumulate(a, 0)), "var": (lambda t: t.var_over((2,), 0, 1.0), lambda a: wide(a).var(2, ddof=1)),
    "std": (lambda t: t.std_over((2,), 0, 0.0), lambda a: wide(a).std(2)), "norm": (lambda t: t.norm_over((1,), 0), lambda a: np.sqrt((wide(a) ** 2.0).sum(1))), "median": (lambda t: t.median_over((2,), 0), lambda a: np.median(wide(a), 2)),
    "logsumexp": (lambda t: t.logsumexp_over((2,), 0), lambda a: np.logaddexp.reduce(wide(a).astype(float), 2)), "softmax": (lambda t: t.softmax(-1), lambda a: softmax(wide(a).astype(float))),
    "log_softmax": (lambda t: t.log_softmax(-1), lambda a: np.log(softmax(wide(a).astype(float)))), "normalize": (lambda t: t.normalize(2.0, 2, 1e-12), lambda a: wide(a) / np.sqrt((wide(a) ** 2.0).sum(2, keepdims=True))),
    "layer_norm": (lambda t: t.layer_norm(1, None, None, 1e-3), lambda a: standard(wide(a))), "rms_norm": (lambda t: t.rms_norm(1, None, 1e-3), lambda a: wide(a) / np.sqrt((wide(a) ** 2.0).mean(2, keepdims=True) + 1e-3)),
    "matmul": (lambda t: t.matmul(t.mT()), lambda a: wide(a) @ wide(a).swapaxes(1, 2)), "einsum": (lambda t: koine.call("einsum", "abc,abd->acd", [t, t]), lambda a: np.einsum("abc,abd->acd", wide(a), wide(a))),
    "avg_pool": (lambda t: t.avg_pool((2,), (1,), (0,), 0, 0), lambda a: (a[:, :, 1:] + wide(a)[:, :, :-1].astype(float)) / 2), "max_pool": (lambda t: t.max_pool((3,), (2,), (0,), (1,), 0), lambda a: np.maximum(np.maximum(a[:, :, :-2], a[:, :, 1:-1]), a[:, :, 2:])[:, :, ::2]),
    "conv": (lambda t: t.conv(t.shrink((0, 0, 0), (2, 3, 2)), None, (1,), (1,), (1,), 1), lambda a: conv(wide(a))), "interpolate": (lambda t: t.interpolate((10,), 2, 1), lambda a: lines(wide(a), 10)),
    "mse_loss": (lambda t: t.mse_loss(t.flip((0,))), lambda a: (difference(a) ** 2.0).mean()), "logcumsumexp": (lambda t: t.logcumsumexp(2), lambda a: np.logaddexp.accumulate(wide(a).astype(float), 2)),
}
SAME = {"max", "min", "cummax", "cummin", "max_pool", "matmul", "einsum", "conv"}  # of integers too; those of any dtype: any, all, count_nonzero, arg...
LOSES = {"prod": 4, "var": 8, "std": 8, "softmax": 8, "log_softmax": 8, "layer_norm": 24, "logcumsumexp": 8, "interpolate": 6}  # in units of f32 (f64) of the largest operand or result; else 4


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def standard(a):
    return (a - a.mean(2, keepdims=True)) / np.sqrt(a.var(2, keepdims=True) + 1e-3)


def conv(a):
    p = np.pad(a, ((0, 0), (0, 0), (1, 1)))
    return np.einsum("ncsk,ock->nos", np.lib.stride_tricks.sliding_window_view(p, 2, 2), a[:2, :, :2])


def difference(a):
    return (a.astype(np.float32) - a[::-1]) if a.dtype.kind == 'u' else wide(a) - wide(a)[::-1]


def lines(a, n):
    at = np.linspace(0, a.shape[2] - 1, n)
    i = np.minimum(at.astype(int), a.shape[2] - 2)
    return a[:, :, i] * (1 - (at - i)) + a[:, :, i + 1] * (at - i)


def plain(d):
    """(4, 3, 5) in a range that no result leaves."""
    r = np.random.default_rng(8)
    if d == "bool":
        return r.integers(0, 2, (4, 3, 5)).astype(bool)
    return (r.integers(0 if d[0] == "u" else -3, 4, (4, 3, 5)) if d in INTS else r.uniform(-2, 2, (4, 3, 5))).astype(INTS.get(d) or FLOATS[d])


@pytest.fixture(scope="module")
def reduced():
    return together(plain, REDUCE)


@pytest.mark.parametrize("name, d", [(n, d) for n in REDUCE for d in ALL if (n, d) not in NOT_OF])
def test_reductions(name, d, device, reduced):
    a, out = reduced(d, device)
    dtype, got = out[name]
    with np.errstate(all="ignore"):
        want = np.asarray(REDUCE[name][1](a if d not in FLOATS else a.astype(np.float64)))
    assert got.shape == want.shape
    if dtype in INTS or dtype == "bool":
        assert (got == want.astype(got.dtype)).all() and (name not in SAME or dtype == d)
        return
    assert dtype == (d if d in FLOATS else "f32")
    got, wider = got.view(FLOATS[dtype]).astype(np.float64), "f64" if dtype == "f64" else "f32"
    large = max(1, abs(want).max(initial=0), abs(a.astype(np.float64)).max() if name in ("mean", "var", "std", "conv", "matmul", "einsum", "sum", "cumsum") else 0)
    error = abs(got - want) - LOSES.get(name, 4) * unit(wider)(np.float64(large)) - (HALF * unit(dtype)(np.where(want == 0, 5e-324, want)) if dtype not in ("f32", "f64") else 0)
    assert (error <= 0).all(), f"{got.ravel()[error.argmax()]}, not {want.ravel()[error.argmax()]}"

