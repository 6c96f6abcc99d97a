"""Values, gradients and second derivatives against JAX: windows with all their options, scatters, segments, linear algebra, Fourier
transforms, resizing, order, what nn.h's users know as layers.

Operands are bf16 values, which every wider float holds: one answer of JAX, in f64, serves all dtypes. TOLERANCE is of the largest element."""
from functools import cache, partial

import jax
import koine
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # compiling is what takes time
jnp, lax, nn = jax.numpy, jax.lax, jax.nn
TOLERANCE = {"f64": 1e-9, "f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}
CASES = {}


class Case:
    def __init__(self, f, g, shapes, lo=-2.0, hi=2.0, grad=True, second=False, dtypes=("f64", "f32"), loose=1):
        self.f, self.g, self.shapes, self.lo, self.hi, self.grad, self.second, self.dtypes, self.loose = f, g, shapes, lo, hi, grad, second, dtypes, loose


def case(name, f, g, *shapes, **more):
    assert name not in CASES
    CASES[name] = Case(f, g, shapes, **more)


FOUR = ("f64", "f32", "f16", "bf16")
# ---- of each element ----
for name, g in {"gelu": partial(nn.gelu, approximate=False), "gelu_tanh": nn.gelu, "silu": nn.silu, "mish": nn.mish, "softplus": nn.softplus, "selu": nn.selu, "logsigmoid": nn.log_sigmoid,
                "sigmoid": nn.sigmoid, "softsign": nn.soft_sign, "relu6": nn.relu6, "hardtanh": nn.hard_tanh, "hardsigmoid": nn.hard_sigmoid, "hardswish": nn.hard_silu, "erf": jax.scipy.special.erf,
                "expm1": jnp.expm1, "log1p": jnp.log1p, "asinh": jnp.arcsinh, "atan": jnp.arctan, "tanh": jnp.tanh, "sinh": jnp.sinh, "tan": jnp.tan}.items():
    case(name, lambda x, name=name: koine.call(name, x), g, (3, 7), lo=-0.9, hi=1.4, second=name in ("gelu", "silu", "mish", "softplus", "tanh", "sinh", "asinh"), dtypes=FOUR)
for name, g in {"asin": jnp.arcsin, "acos": jnp.arccos, "atanh": jnp.arctanh}.items():
    case(name, lambda x, name=name: koine.call(name, x), g, (11,), lo=-0.8, hi=0.8)
case("acosh", lambda x: x.acosh(), jnp.arccosh, (11,), lo=1.1, hi=9, second=True)
case("elu", lambda x: x.elu(0.7), lambda x: nn.elu(x, 0.7), (9,))
case("celu", lambda x: x.celu(0.7), lambda x: nn.celu(x, 0.7), (9,))
case("glu", lambda x: x.glu(1), nn.glu, (3, 8), second=True, dtypes=FOUR)
for name, g in {"logaddexp": jnp.logaddexp, "hypot": jnp.hypot, "atan2": jnp.arctan2, "pow": jnp.power, "xlogy": jax.scipy.special.xlogy}.items():
    case(name, lambda a, b, name=name: koine.call(name, a, b), g, (2, 1, 3), (4, 1), lo=0.3, second=name != "xlogy")
# ---- windows ----
SPATIAL = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCDHW", "OIDHW", "NCDHW")}


def conv(x, w, b=None, s=1, p=0, d=1, groups=1):
    n = x.ndim - 2
    y = lax.conv_general_dilated(x, w, (s,) * n, [(p, p)] * n, rhs_dilation=(d,) * n, feature_group_count=groups, dimension_numbers=SPATIAL[n])
    return y if b is None else y + b.reshape(-1, *[1] * n)


for s, p, d, groups in ((1, 0, 1, 1), (1, 2, 1, 2), (1, 2, 2, 1), (1, 0, 2, 2), (2, 0, 1, 1), (2, 2, 1, 2), (2, 2, 2, 1), (3, 1, 1, 1)):
    case(f"conv2d-{s}{p}{d}{groups}", lambda x, w, b, a=(s, p, d, groups): x.conv2d(w, b, *a), lambda x, w, b, a=(s, p, d, groups): conv(x, w, b, *a), (2, 4, 7, 6), (6, 4 // groups, 3, 2), (6,),
         dtypes=FOUR if (s, d) == (2, 1) else ("f64", "f32"), second=s == d == groups == 1)
for n, s, p, d, groups in ((1, 1, 1, 1, 1), (1, 3, 0, 2, 3), (3, 1, 1, 1, 1), (3, 2, 0, 1, 2)):
    sizes = (9,) if n == 1 else (4, 5, 4)
    case(f"conv{n}d-{s}{p}{d}{groups}", lambda x, w, a=(s, p, d), g=groups: x.conv(w, None, *((v,) for v in a), g), lambda x, w, a=(s, p, d, groups): conv(x, w, None, *a), (2, 6, *sizes), (6, 6 // groups, *(2,) * n))


def conv_transpose(x, w, s, p, extra, d, groups):
    size = tuple((m - 1) * s - 2 * p + d * (k - 1) + 1 + extra for m, k in zip(x.shape[2:], w.shape[2:]))
    back = jax.linear_transpose(lambda i: conv(i, w, None, s, p, d, groups), jax.ShapeDtypeStruct((x.shape[0], w.shape[1] * groups, *size), x.dtype))
    return back(x)[0]


for s, p, extra, d, groups in ((1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 0, 2, 1, 2), (2, 1, 0, 2, 2)):
    case(f"conv_transpose2d-{s}{p}{extra}{d}{groups}", lambda x, w, a=(s, p, extra, d, groups): x.conv_transpose2d(w, None, *a), lambda x, w, a=(s, p, extra, d, groups): conv_transpose(x, w, *a), (2, 4, 4, 3), (4, 3, 3, 2))


def pool(x, n, s, p, d=1, kind="max"):
    zero, op = (-jnp.inf, lax.max) if kind == "max" else (0.0, lax.add)
    y = lax.reduce_window(x, zero, op, (1, 1, n, n), (1, 1, s, s), [(0, 0), (0, 0), (p, p), (p, p)], window_dilation=(1, 1, d, d))
    return y if kind != "mean" else y / (n * n)


for n, s, p, d in ((2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 0, 2)):
    case(f"max_pool-{n}{s}{p}{d}", lambda x, a=(n, s, p, d): x.max_pool(*((v,) for v in a), 0), lambda x, a=(n, s, p, d): pool(x, *a), (2, 3, 8, 7), grad=d == 1, dtypes=FOUR)
    if d == 1:
        case(f"avg_pool-{n}{s}{p}", lambda x, a=(n, s, p): x.avg_pool2d(*a), lambda x, a=(n, s, p): pool(x, *a, kind="mean"), (2, 3, 8, 7), dtypes=FOUR)
case("interpolate-linear", lambda x: x.interpolate((7, 3), 2, 0), lambda x: jax.image.resize(x, (2, 3, 7, 3), "linear", antialias=False), (2, 3, 4, 5), dtypes=FOUR)
case("interpolate-nearest", lambda x: x.interpolate((7, 3), 1, 0), lambda x: jax.image.resize(x, (2, 3, 7, 3), "nearest"), (2, 3, 4, 5), dtypes=FOUR)
# ---- writing and reading by index ----
I, J, SEGMENT = np.array([4, 0, 4, -1, 2]), np.array([1, 2, 1, 0, 2]), np.array([0, 2, 2, 5, 1, 0, 9])
INSIDE = (SEGMENT < 6)[:, None]
case("scatter_add", lambda x, v: x.scatter_add(x.k.array(I % 6), v), lambda x, v: x.at[I].add(v), (6, 3), (5, 3), dtypes=FOUR)
case("index_put", lambda x, v: koine.call("index_put", x, [x.k.array(I[1:]), x.k.array(J[1:])], v, 0), lambda x, v: x.at[I[1:], J[1:]].set(v), (6, 3), (4,), dtypes=FOUR)
case("index_put-add", lambda x, v: koine.call("index_put", x, [x.k.array(I), x.k.array(J)], v, 1), lambda x, v: x.at[I, J].add(v), (6, 3), (5,), dtypes=FOUR)
case("index", lambda x: koine.call("index", x, [x.k.array(I), None, x.k.array(J)]), lambda x: x[I, :, J], (6, 2, 3), dtypes=FOUR)
for how, way in (("sum", "add"), ("prod", "multiply"), ("amax", "max"), ("amin", "min")):
    case(f"scatter_reduce-{how}", lambda x, v, how=how: x.scatter_reduce(0, x.k.array(np.repeat(I[:, None] % 6, 3, 1)), v, how, 1), lambda x, v, way=way: getattr(x.at[I], way)(v), (6, 3), (5, 3),
         lo=0.4, grad=how != "prod", dtypes=("f64", "f32"))
for how, g in (("sum", jax.ops.segment_sum), ("amax", jax.ops.segment_max), ("prod", jax.ops.segment_prod)):
    def segments(v, how=how):
        z = v.k.zeros((6, 3), v.dtype) if how != "prod" else v.k.ones((6, 3), v.dtype)
        return z.scatter_reduce(0, v.k.array(np.repeat(SEGMENT[:, None], 3, 1)), v, how, how != "amax")
    case(f"segment-{how}", segments, lambda v, g=g: jnp.nan_to_num(g(v, SEGMENT, 6), neginf=0.0), (7, 3), grad=how != "prod", dtypes=("f64", "f32"))
case("take_along_axis", lambda x: x.take_along_axis(x.k.array(J[None, :, None] + np.zeros((2, 1, 4), int)), 1), lambda x: jnp.take_along_axis(x, J[None, :, None] + np.zeros((2, 1, 4), int), 1), (2, 5, 4))
# ---- order and running ----
case("sort", lambda x: x.sort(1, 0), lambda x: jnp.sort(x, 1), (3, 17), dtypes=FOUR)
case("topk", lambda x: koine.outputs("topk", 1, x, 4, 1, 1)[0], lambda x: lax.top_k(x, 4)[0], (3, 17), dtypes=FOUR)
case("median", lambda x: x.median_over((1,), 0), lambda x: jnp.median(x, 1), (3, 9), dtypes=("f64", "f32"))
for q in (0.0, 0.3, 1.0):
    case(f"quantile-{q}", lambda x, q=q: x.quantile_over(q, (1,), 0, 0), lambda x, q=q: jnp.quantile(x, q, 1), (3, 8))
for name, g in {"cumsum": jnp.cumsum, "cumprod": jnp.cumprod, "cummax": lax.cummax, "cummin": lax.cummin, "logcumsumexp": lax.cumlogsumexp}.items():
    case(name, lambda x, name=name: koine.call(name, x, 1), lambda x, g=g: g(x, axis=1), (3, 9), lo=0.2, second=name == "cumprod")
case("logsumexp", lambda x: x.logsumexp_over((0, 2), 0), lambda x: nn.logsumexp(x, (0, 2)), (3, 4, 5), second=True, dtypes=FOUR)
case("softmax", lambda x: x.softmax(1), lambda x: nn.softmax(x, 1), (3, 4, 5), second=True, dtypes=FOUR)
case("log_softmax", lambda x: x.log_softmax(-1), nn.log_softmax, (3, 4, 5), second=True, dtypes=FOUR)
case("var", lambda x: x.var_over((1,), 0, 1.0), lambda x: jnp.var(x, 1, ddof=1), (3, 8), second=True, dtypes=FOUR)
case("prod", lambda x: x.prod_over((1,), 0), lambda x: jnp.prod(x, 1), (3, 5), lo=0.3, second=True)
case("layer_norm", lambda x, w, b: x.layer_norm(1, w, b, 1e-5), lambda x, w, b: nn.standardize(x, -1, epsilon=1e-5) * w + b, (4, 9), (9,), (9,), second=True, dtypes=FOUR)
case("one_hot", lambda x: x.mul(x.k.array(I).one_hot(6, x.dtype)), lambda x: x * nn.one_hot(np.where(I < 0, 99, I), 6, dtype=x.dtype), (5, 6), dtypes=FOUR)


def attention(q, k, v, causal):
    k, v = (jnp.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    x = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5  # jax.nn's own computes in f32
    return nn.softmax(jnp.where(np.tri(*x.shape[-2:], dtype=bool), x, -jnp.inf) if causal else x) @ v


for causal, kv in ((0, 4), (1, 4), (1, 2)):
    case(f"attention-{causal}-{kv}", lambda q, k, v, c=causal: q.attention(k, v, None, c, 0.0), lambda q, k, v, c=causal: attention(q, k, v, bool(c)), (2, 4, 5, 8), (2, kv, 5, 8), (2, kv, 5, 8),
         dtypes=FOUR, second=kv == 4)
LABELS = np.array([1, 0, 3])
case("cross_entropy", lambda x: x.cross_entropy(x.k.array(LABELS)), lambda x: -nn.log_softmax(x)[np.arange(3), LABELS].mean(), (3, 4), second=True, dtypes=FOUR)
case("bce_with_logits", lambda x, y: x.bce_with_logits(y), lambda x, y: -(y * nn.log_sigmoid(x) + (1 - y) * nn.log_sigmoid(-x)).mean(), (4, 3), (4, 3), lo=0.1, hi=0.9, second=True, dtypes=FOUR)
# ---- products ----
for i, (e, *shapes) in enumerate((("ij,jk->ik", (4, 5), (5, 3)), ("bij,bkj->bik", (2, 4, 5), (2, 3, 5)), ("ii->i", (4, 4)), ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)), ("...i,i->...", (2, 3, 4), (4,)), ("ab,cd->dbca", (2, 3), (2, 2)))):
    case(f"einsum-{i}", lambda *t, e=e: koine.call("einsum", e, list(t)), lambda *a, e=e: jnp.einsum(e, *a), *shapes, second=i == 0, dtypes=FOUR)
case("matmul", lambda a, b: a.matmul(b), jnp.matmul, (2, 1, 4, 33), (3, 33, 5), dtypes=FOUR)
case("tensordot", lambda a, b: a.tensordot(b, (2, 0), (1, 2)), lambda a, b: jnp.tensordot(a, b, ((2, 0), (1, 2))), (2, 3, 4), (3, 4, 2))
case("kron", lambda a, b: a.kron(b), jnp.kron, (2, 3), (3, 2))
case("cross", lambda a, b: a.cross(b, -1), jnp.cross, (4, 3), (4, 3))
# ---- matrices ----
EYE = np.eye(4)


def definite(x):
    return x.matmul(x.mT()).add(x.k.array(EYE).cast(x.dtype))


def spread(x):
    return x.add(x.k.array(np.diag([5.0, -2.0, 3.0, 1.0])).cast(x.dtype))


D, S = (lambda x: x @ x.swapaxes(-1, -2) + EYE), (lambda x: x + np.diag([5.0, -2.0, 3.0, 1.0]))
small = {"lo": -0.5, "hi": 0.5, "second": True, "loose": 20}
case("cholesky", lambda x: definite(x).cholesky(0), lambda x: jnp.linalg.cholesky(D(x)), (2, 4, 4), **small)
case("inv", lambda x: spread(x).inv(), lambda x: jnp.linalg.inv(S(x)), (2, 4, 4), **small)
case("det", lambda x: spread(x).det(), lambda x: jnp.linalg.det(S(x)), (2, 4, 4), **small)
case("slogdet", lambda x: koine.several("slogdet", 2, spread(x))[1], lambda x: jnp.linalg.slogdet(S(x))[1], (2, 4, 4), **{**small, "second": False})
case("solve", lambda x, b: spread(x).solve(b), lambda x, b: jnp.linalg.solve(S(x), b), (4, 4), (4, 2), **small)
case("solve_triangular", lambda x, b: spread(x).solve_triangular(b, 1, 0), lambda x, b: jax.scipy.linalg.solve_triangular(S(x), b), (4, 4), (4, 2), **{**small, "second": False})
case("matrix_power", lambda x: spread(x).matrix_power(3), lambda x: jnp.linalg.matrix_power(S(x), 3), (4, 4), **{**small, "second": False})
case("eigvalsh", lambda x: spread(x.add(x.mT())).eigvalsh(), lambda x: jnp.linalg.eigvalsh(S(x + x.T)), (4, 4), **small)
case("svdvals", lambda x: spread(x).svdvals(), lambda x: jnp.linalg.svd(S(x), compute_uv=False), (4, 4), **small)
case("pinv", lambda x: spread(x).pinv(0.0), lambda x: jnp.linalg.pinv(S(x)), (4, 4), lo=-0.5, hi=0.5, loose=20)
case("nuclear", lambda x: spread(x).matrix_norm("nuc", 0), lambda x: jnp.linalg.norm(S(x), "nuc"), (4, 4), **{**small, "second": False})
case("qr", lambda x: koine.several("qr", 2, spread(x), 0)[1].abs(), lambda x: abs(jnp.linalg.qr(S(x))[1]), (4, 4), **{**small, "second": False})
# ---- Fourier ----


def as_complex(x):
    return x[..., 0] + 1j * x[..., 1]


def as_pair(z):
    return jnp.stack([z.real, z.imag], -1)


for n in (1, 2, 7, 12, 64, 67):
    case(f"fft-{n}", lambda x: x.fft((1,)), lambda x: as_pair(jnp.fft.fft(as_complex(x))), (2, n, 2))
    case(f"rfft-{n}", lambda x: x.rfft(1), lambda x: as_pair(jnp.fft.rfft(x)), (2, n))
case("ifft", lambda x: x.ifft((0, 1)), lambda x: as_pair(jnp.fft.ifft2(as_complex(x))), (6, 5, 2))
case("irfft", lambda x: x.irfft(7, 1), lambda x: jnp.fft.irfft(as_complex(x), 7), (2, 4, 2))
for n in (6, 7):
    case(f"hfft-{n}", lambda x, n=n: x.hfft(n, 1), lambda x, n=n: jnp.fft.hfft(as_complex(x), n), (2, 4, 2))
    case(f"ihfft-{n}", lambda x: x.ihfft(1), lambda x: as_pair(jnp.fft.ihfft(x)), (2, n))


# ---- both sides ----


def different(r, n, lo, hi):
    """n numbers, no two of which round to one bf16 while there are few (of equals JAX takes the first, koine all)."""
    return r.permutation(np.linspace(lo, hi, n)) if n < 400 else r.uniform(lo, hi, n)


@cache
def operands(name):
    r, c = np.random.default_rng(len(name) * 131 + sum(name.encode())), CASES[name]
    return [np.asarray(jnp.asarray(different(r, int(np.prod(s)), c.lo, c.hi).reshape(s)).astype(jnp.bfloat16).astype(jnp.float64)) for s in c.shapes]


def weights(shape, by=1.7):
    return np.cos(np.arange(int(np.prod(shape, dtype=int))) * by + 0.3).reshape(shape)


@cache
def answers(name):
    """JAX's value; gradients of its sum by weights; gradients of those's sum by weights."""
    c, a = CASES[name], operands(name)

    def loss(*t):
        y = c.g(*t)
        return (y * weights(y.shape)).sum(), y

    def slope(*t):
        g, y = jax.grad(loss, tuple(range(len(t))), has_aux=True)(*t)
        return sum((d * weights(d.shape, 0.9)).sum() for d in g), (g, y)
    if not c.grad:
        return np.asarray(jax.jit(c.g)(*a)), [], []
    if not c.second:
        _, (g, y) = jax.jit(slope)(*a)
        return np.asarray(y), [np.asarray(v) for v in g], []
    h, (g, y) = jax.jit(jax.grad(slope, tuple(range(len(a))), has_aux=True))(*a)
    return np.asarray(y), [np.asarray(v) for v in g], [np.asarray(v) for v in h]


@pytest.fixture(scope="module")
def contexts():
    made = {}
    yield lambda device: made.setdefault(device, koine.Context(device))
    for k in made.values():
        k.close()


def total(k, ts, by):
    parts = [t.mul(k.array(weights(t.shape, by)).cast(t.dtype)).sum() for t in ts]
    out = parts[0]
    for p in parts[1:]:
        out = out + p
    return out


@pytest.mark.parametrize("name, d", [(name, d) for name, c in CASES.items() for d in c.dtypes])
def test_against_jax(name, d, device, contexts):
    c, k = CASES[name], contexts(device)
    want, slopes, bends = answers(name)
    k.scope_open()
    t = [k.array(a).cast(d).contiguous() for a in operands(name)]
    y = c.f(*t).check()
    assert y.dtype == d and tuple(y.shape) == want.shape
    got, wanted = [y], [want]
    if slopes and d in ("f64", "f32"):
        g = koine.several("grad", len(t), total(k, [y], 1.7), t)
        got, wanted = got + g, wanted + slopes
        if bends and d == "f64":
            got, wanted = got + koine.several("grad", len(t), total(k, g, 0.9), t), wanted + bends
    wide = [x.cast("f64") for x in got]
    k.realize(*wide)
    for x, w, what in zip(wide, wanted, ["value"] + ["gradient"] * len(slopes) + ["second"] * len(bends)):
        np.testing.assert_allclose(x.numpy(), w, rtol=0, atol=TOLERANCE[d] * c.loose * max(1, abs(w).max(initial=0)), err_msg=what)
    k.scope_close()
