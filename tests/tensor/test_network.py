"""Transposed convolutions, pooling, interpolation, norms, losses and grouped attention against plain numpy in f64."""
import itertools
import math

import koine
import numpy as np
from conftest import Case
from data import values

CASES = []
W = np.float64
MEAN, SUM, EACH, BATCH = range(4)
NONE = -(2**63)


def case(fn, key, arrays, args, ref, **more):
    """kn_fn(arrays, args), and ref of the arrays in f64."""
    wide = [a.astype(W) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays]
    CASES.append(Case(f"{fn}-{key}", lambda k: koine.call(fn, *[k.array(a) if isinstance(a, np.ndarray) else a for a in arrays], *args),
                      lambda: ref(*wide), **{"tol": 2e-5, "atol": 2e-5, **more}))


def some(key, *shapes, lo=-2.0, hi=2.0):
    return [values(f"{key}{i}", s, np.float32, lo, hi) for i, s in enumerate(shapes)]


# ---- transposed convolution: each input element adds its kernel to the output
def conv_transpose(x, w, b, stride, padding, extra, dilation, groups):
    n, cin, *s = x.shape
    stride, padding, extra, dilation = (v if isinstance(v, tuple) else (v,) * len(s) for v in (stride, padding, extra, dilation))
    kernel, per, out = w.shape[2:], cin // groups, w.shape[1]
    full = [(a - 1) * st + di * (k - 1) + 1 + e for a, k, st, di, e in zip(s, kernel, stride, dilation, extra)]
    y = np.zeros([n, out * groups] + full)
    for at in itertools.product(*map(range, s)):
        for tap in itertools.product(*map(range, kernel)):
            where = tuple(a * st + t * di for a, t, st, di in zip(at, tap, stride, dilation))
            for g in range(groups):
                rows = slice(g * per, (g + 1) * per)
                y[(slice(None), slice(g * out, (g + 1) * out)) + where] += x[(slice(None), rows) + at] @ w[(rows, slice(None)) + tap]
    y = y[(slice(None), slice(None)) + tuple(slice(p, f - p) for p, f in zip(padding, full))]
    return y + b.reshape((1, -1) + (1,) * len(s)) if b is not None else y


for d in (1, 2, 3):
    for i, (st, pa, ex, di, g, kk) in enumerate(((1, 0, 0, 1, 1, 3), (2, 1, 1, 1, 1, 3), (2, 0, 0, 1, 2, 2), (3, 1, 2, 1, 1, 4), (2, 1, 1, 2, 2, 3), (1, 0, 1, 2, 1, 3))):
        x, w, b = some(f"ct{d}{i}", (2, 4) + (5, 4, 3)[:d], (4, 6 // g) + (kk,) * d, (6,))
        b = b if i % 2 else None
        case("conv_transpose", f"{d}-{i}", [x, w, b], ((st,), (pa,), (ex,), (di,), g),
             lambda x, w, b, a=(st, pa, ex, di, g): conv_transpose(x, w, b, *a), tol=1e-4)
        if d == 2:
            case("conv_transpose2d", str(i), [x, w, b], (st, pa, ex, di, g), lambda x, w, b, a=(st, pa, ex, di, g): conv_transpose(x, w, b, *a), tol=1e-4)
x, w = some("ctu", (1, 2, 3, 4), (2, 3, 2, 3))
uneven = ((1, 3), (0, 1), (0, 2), (1, 2), 1)
case("conv_transpose", "uneven", [x, w, None], uneven, lambda x, w, b: conv_transpose(x, w, b, *uneven))


# ---- pooling: windows one by one
def pool(x, size, stride, padding, ceil, f):
    """f(elements inside, how many positions are input or padding) of each window."""
    s = x.shape[2:]
    def number(n):
        out = -((n + 2 * padding - size) // -stride) + 1 if ceil else (n + 2 * padding - size) // stride + 1
        return out - 1 if ceil and (out - 1) * stride >= n + padding else out
    outs = [number(n) for n in s]
    y = np.empty(x.shape[:2] + tuple(outs))
    for at in itertools.product(*map(range, outs)):
        lo = [a * stride - padding for a in at]
        hi = [min(l + size, n + padding) for l, n in zip(lo, s)]
        area = math.prod(h - l for l, h in zip(lo, hi))
        inside = tuple(slice(max(l, 0), min(h, n)) for l, h, n in zip(lo, hi, s))
        v = x[(slice(None), slice(None)) + inside].reshape(x.shape[:2] + (-1,))
        y[(slice(None), slice(None)) + at] = f(v, area)
    return y


for i, (s, size, st, pa, ce) in enumerate(itertools.product(((1, 2, 7, 8), (2, 1, 5)), (2, 3), (1, 2, 3), (0, 1), (0, 1))):
    x = values(f"pool{i}", s)
    case("max_pool", str(i), [x], ((size,), (st,), (pa,), (1,), ce), lambda x, a=(size, st, pa, ce): pool(x, *a, lambda v, n: v.max(-1)))
    case("avg_pool", f"{i}-counted", [x], ((size,), (st,), (pa,), ce, 1), lambda x, a=(size, st, pa, ce): pool(x, *a, lambda v, n: v.sum(-1) / n))
    case("avg_pool", f"{i}-inside", [x], ((size,), (st,), (pa,), ce, 0), lambda x, a=(size, st, pa, ce): pool(x, *a, lambda v, n: v.mean(-1)))
    if pa == 0:
        for p in (1.0, 2.0, 3.0):
            case("lp_pool", f"{i}-{p}", [x], (p, (size,), (st,), ce), lambda x, p=p, a=(size, st, pa, ce): pool(x, *a, lambda v, n: (abs(v) ** p).sum(-1) ** (1 / p)))
case("max_pool", "integers", [values("pooli", (1, 1, 5), np.int32)], ((2,), (2,), (0,), (1,), 1), lambda x: pool(x, 2, 2, 0, 1, lambda v, n: v.max(-1)).astype(np.int32))


def adaptive(x, sizes, f):
    for axis, out in enumerate(sizes, 2):
        n = x.shape[axis]
        x = np.stack([f(x.take(range(i * n // out, -((i + 1) * n // -out)), axis), axis) for i in range(out)], axis)
    return x


for i, (s, sizes) in enumerate((((2, 3, 7, 10), (3, 4)), ((1, 2, 6, 6), (2, 3)), ((1, 2, 5, 4), (1, 1)), ((1, 1, 3, 5), (7, 5)), ((2, 2, 9), (5,)), ((1, 1, 4, 5, 6), (3, 2, 4)), ((1, 1, 5, 5), (3,)))):
    x, full = values(f"ad{i}", s), sizes * (len(s) - 2) if len(sizes) == 1 else sizes
    case("adaptive_avg_pool", str(i), [x], (sizes,), lambda x, full=full: adaptive(x, full, lambda v, a: v.mean(a)))
    case("adaptive_max_pool", str(i), [x], (sizes,), lambda x, full=full: adaptive(x, full, lambda v, a: v.max(a)))


# ---- interpolation: a matrix for each axis
def kernel(d, a=-0.75):
    d = abs(d)
    return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0


def weights(n, out, how, aligned):
    m = np.zeros((out, n))
    for i in range(out):
        if how == 0:
            m[i, i * n // out] = 1
        elif how == 1:
            m[i, (2 * i + 1) * n // (2 * out)] = 1
        else:
            at = i * (n - 1) / max(out - 1, 1) if aligned else (i + 0.5) * n / out - 0.5
            first = math.floor(at)
            for j in range(-1, 3):
                w = kernel(at - first - j) if how == 3 else max(0, 1 - abs(at - first - j))
                m[i, min(max(first + j, 0), n - 1)] += w
    return m


def interpolate(x, sizes, how, aligned):
    for axis, out in enumerate(sizes, 2):
        if out != x.shape[axis]:
            x = np.moveaxis(np.tensordot(weights(x.shape[axis], out, how, aligned), x, (1, axis)), 0, axis)
    return x


for i, (s, sizes) in enumerate((((2, 2, 5, 6), (10, 12)), ((1, 2, 5, 6), (7, 3)), ((1, 1, 3, 8), (3, 5)), ((1, 2, 4, 4), (1, 1)), ((1, 2, 1, 4), (4, 13)), ((2, 2, 5), (9,)), ((1, 1, 2, 3, 4), (3, 4, 5)), ((1, 2, 12, 9), (4, 3)))):
    x = values(f"ip{i}", s)
    for how, aligned in ((0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)):
        case("interpolate", f"{i}-{how}-{aligned}", [x], (sizes, how, aligned), lambda x, a=(sizes, how, aligned): interpolate(x, *a))
case("interpolate", "integers", [values("ipi", (1, 1, 4), np.int32)], ((6,), 0, 0), lambda x: interpolate(x, (6,), 0, 0).astype(np.int32))
for i, (s, r) in enumerate((((2, 18, 4, 5), 3), ((8, 2, 2), 2), ((1, 2, 4, 3, 1), 2))):
    n, (c, h, w) = s[:-3], s[-3:]
    x, y = values(f"px{i}", s), values(f"py{i}", n + (c // (r * r), h * r, w * r))
    up = lambda x, n=n, c=c, h=h, w=w, r=r: np.moveaxis(x.reshape(n + (c // (r * r), r, r, h, w)), (-4, -3), (-3, -1)).reshape(n + (c // (r * r), h * r, w * r))
    case("pixel_shuffle", str(i), [x], (r,), up, dtype="f32")
    CASES.append(Case(f"pixel_unshuffle-{i}", lambda k, x=x, r=r: k.array(x).pixel_shuffle(r).pixel_unshuffle(r), lambda x=x: x))
    CASES.append(Case(f"pixel_unshuffle-{i}-again", lambda k, y=y, r=r: k.array(y).pixel_unshuffle(r).pixel_shuffle(r), lambda y=y: y))


# ---- norms
def over_channels(v, x):
    return v.reshape((1, -1) + (1,) * (x.ndim - 2))


for i, s in enumerate(((2, 3, 5), (2, 4, 3, 6), (1, 1, 4))):
    x, w, b = some(f"in{i}", s, s[1:2], s[1:2])
    axes = tuple(range(2, len(s)))
    def standard(x, axes=axes):
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    case("instance_norm", str(i), [x, w, b], (1e-5,), lambda x, w, b, f=standard: f(x) * over_channels(w, x) + over_channels(b, x), tol=1e-4, atol=1e-4)
    case("instance_norm", f"{i}-plain", [x, None, None], (1e-5,), lambda x, w, b, f=standard: f(x), tol=1e-4, atol=1e-4)
    for size in (1, 2, 3, 5):
        def near(x, size=size):
            q, m = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2)) + ((0, 0),) * (x.ndim - 2)), x.shape[1]
            return x / (1.5 + 0.3 * sum(q[:, j : j + m] for j in range(size)) / size) ** 0.75
        case("local_response_norm", f"{i}-{size}", [x], (size, 0.3, 0.75, 1.5), near)
    for p in (1.0, 2.0, 3.0, math.inf):
        case("normalize", f"{i}-{p}", [x], (p, 1, 1e-12), lambda x, p=p: x / np.maximum(abs(x).max(1, keepdims=True) if p == math.inf else (abs(x) ** p).sum(1, keepdims=True) ** (1 / p), 1e-12))
    y = values(f"cos{i}", s)
    case("cosine_similarity", str(i), [x, y], (1, 1e-8), lambda x, y: (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1)))
case("normalize", "zero", [np.zeros((2, 3), np.float32)], (2.0, 1, 1e-12), lambda x: x)
for i, s in enumerate(((2,), (3, 4, 2), (0, 4))):
    case("glu", f"{i}-last", [values(f"glul{i}", s)], (-1,), lambda x: x[..., : x.shape[-1] // 2] / (1 + np.exp(-x[..., x.shape[-1] // 2 :])))
    case("logit", f"{i}", [values(f"logit{i}", s, lo=0.02, hi=0.98)], (0.0,), lambda x: np.log(x / (1 - x)))
    case("cosine_similarity", f"{i}-last", some(f"cosl{i}", s, s[-1:]), (-1, 1e-8), lambda x, y: (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1)))
case("glu", "0", [values("glu", (4, 6))], (0,), lambda x: x[:2] / (1 + np.exp(-x[2:])))
case("glu", "1", [values("glu", (4, 6))], (-1,), lambda x: x[:, :3] / (1 + np.exp(-x[:, 3:])))
case("logit", "plain", [values("logit", (9,), lo=0.02, hi=0.98)], (0.0,), lambda x: np.log(x / (1 - x)))
case("logit", "clamped", [values("logitc", (9,), lo=-0.5, hi=1.5)], (0.1,), lambda x: np.log(np.clip(x, 0.1, 0.9) / (1 - np.clip(x, 0.1, 0.9))))
for i, (s, w) in enumerate((((2, 3, 4), (3,)), ((2, 3), (1,)), ((5,), (5,)), ((2, 3, 2), ()), ((), ()))):
    case("prelu", str(i), some(f"prelu{i}", s, w), (), lambda x, w: np.where(x > 0, x, x * (over_channels(w, x) if x.ndim > 1 and w.size > 1 else w)))


# ---- losses
def gathered(v, how):
    return {MEAN: v.mean, SUM: v.sum, EACH: lambda: v, BATCH: lambda: v.sum() / v.shape[0]}[how]()


def log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def cross_entropy(x, y, w, ignore, smoothing, how, log=True):
    """Probabilities written out for each position; a mean is by weights where y are labels."""
    c = 1 if x.ndim > 1 else 0
    lp, n = log_softmax(x, c) if log else x, x.shape[c]
    w = np.ones(n) if w is None else w
    labels = y.dtype.kind == "i"
    p = np.moveaxis(np.eye(n)[np.clip(y, 0, n - 1)], -1, c) if labels else y
    along = w.reshape([-1 if a == c else 1 for a in range(x.ndim)])
    each = -(along * ((1 - smoothing) * p + smoothing / n) * lp).sum(c) if not labels else \
        (1 - smoothing) * -(along * p * lp).sum(c) + smoothing / n * -(along * lp).sum(c)
    if not labels:
        return gathered(each, how)
    counts = np.where(y == ignore, 0, w[np.clip(y, 0, n - 1)])
    each = np.where(y == ignore, 0, each)
    return each.sum() / counts.sum() if how == MEAN else gathered(each, how)


for i, s in enumerate(((6, 4), (2, 4, 3), (2, 4, 2, 3), (5,))):
    n, shape = s[1 if len(s) > 1 else 0], s[:1] + s[2:] if len(s) > 1 else ()
    x, w, p = *some(f"ce{i}", s, (n,), lo=0.1), values(f"cep{i}", s, lo=0, hi=1)
    y = values(f"cel{i}", shape, np.int64, 0, n - 1)
    z = y.copy()
    if z.ndim:
        z.flat[1] = -100
    for how, weight, smoothing in itertools.product((MEAN, SUM, EACH), (None, w), (0.0, 0.1)):
        key = f"{i}-{how}{'-weighted' if weight is not None else ''}-{smoothing}"
        for label, t, ignore in (("", y, NONE), ("-none", z, -100), ("-2", y, 2), ("-p", p, NONE)):
            if ignore != NONE and not np.any(t != ignore):
                continue
            case("cross_entropy_as", key + label, [x, t, weight], (ignore, smoothing, how), lambda x, t, v, a=(ignore, smoothing, how): cross_entropy(x, t, v, *a))
            if smoothing == 0 and label != "-p":
                case("nll_loss_as", key + label, [x, t, weight], (ignore, how), lambda x, t, v, a=(ignore, 0, how): cross_entropy(x, t, v, *a, log=False))
softplus = lambda x: np.logaddexp(x, 0)
for i, (sa, sb) in enumerate((((4, 5), (4, 5)), ((3, 2), (2,)), ((7,), (7,)), ((), ()))):
    x, y = some(f"pl{i}", sa, sb)
    p, q, v = values(f"pp{i}", sa, lo=0.05, hi=0.95), values(f"pq{i}", sb, lo=0.05, hi=0.95), values(f"pv{i}", sa, lo=0.1, hi=2)
    sign = np.where(y > 0, 1, -1).astype(np.float32)
    for how in (MEAN, SUM, EACH) + ((BATCH,) if sa else ()):
        key = f"{i}-{how}"
        def pair(fn, arrays, args, f, how=how, key=key):
            case(fn, key, arrays, (*args, how), lambda *a: gathered(f(*np.broadcast_arrays(*a)), how))
        pair("mse_loss_as", [x, y], (), lambda x, y: (x - y) ** 2)
        pair("l1_loss_as", [x, y], (), lambda x, y: abs(x - y))
        pair("huber_loss_as", [x, y], (0.7,), lambda x, y: np.where(abs(x - y) < 0.7, 0.5 * (x - y) ** 2, 0.7 * (abs(x - y) - 0.35)))
        pair("smooth_l1_loss", [x, y], (0.7,), lambda x, y: np.where(abs(x - y) < 0.7, 0.5 * (x - y) ** 2 / 0.7, abs(x - y) - 0.35))
        pair("bce_loss_as", [p, q], (), lambda p, q: -(q * np.log(p) + (1 - q) * np.log(1 - p)))
        pair("bce_with_logits_as", [x, q, v, q], (), lambda x, q, v, w: v * (w * q * softplus(-x) + (1 - q) * softplus(x)))
        pair("soft_margin_loss_as", [x, sign], (), lambda x, y: softplus(-x * y))
        pair("kl_div", [x, q], (0,), lambda x, q: q * (np.log(q) - x))
        pair("poisson_nll_loss", [x, q], (1, 1e-8), lambda x, q: np.exp(x) - q * x)
        pair("gaussian_nll_loss", [x, y, v], (0.3,), lambda x, y, v: 0.5 * (np.log(np.maximum(v, 0.3)) + (x - y) ** 2 / np.maximum(v, 0.3)))
        pair("hinge_embedding_loss", [x, sign], (1.0,), lambda x, y: np.where(y > 0, x, np.maximum(0, 1 - x)))
        pair("margin_ranking_loss", [x, y, sign], (0.2,), lambda x, y, t: np.maximum(0, 0.2 - t * (x - y)))
    case("kl_div", f"{i}-log", [x, y], (1, MEAN), lambda x, y: np.mean(np.exp(y) * (y - x)))
    case("poisson_nll_loss", f"{i}-plain", [p, q], (0, 1e-8, SUM), lambda p, q: np.sum(p - q * np.log(p)))
    case("smooth_l1_loss", f"{i}-straight", [x, y], (0.0, SUM), lambda x, y: abs(x - y).sum())
    case("soft_margin_loss", str(i), [x, sign], (), lambda x, y: softplus(-x * y).mean())
case("kl_div", "nothing", [values("kl0", (3,)), np.array([0, 0.5, 0], np.float32)], (0, EACH), lambda x, q: np.where(q > 0, q * (np.log(np.maximum(q, 1e-9)) - x), 0))
a, b, c = some("vec", (5, 6), (5, 6), (5, 6))
t = np.array([1, -1, 1, -1, -1], np.float32)
cosine = lambda a, b: (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
apart = lambda a, b: np.sqrt(((a - b + 1e-6) ** 2).sum(-1))
for how in (MEAN, SUM, EACH, BATCH):
    case("cosine_embedding_loss", str(how), [a, b, t], (0.1, how), lambda a, b, t, how=how: gathered(np.where(t > 0, 1 - cosine(a, b), np.maximum(0, cosine(a, b) - 0.1)), how))
    case("triplet_margin_loss", str(how), [a, b, c], (0.7, how), lambda a, b, c, how=how: gathered(np.maximum(0, apart(a, b) - apart(a, c) + 0.7), how))


# ---- CTC: all paths
def ctc(lp, labels, steps, lengths, blank):
    out = []
    for n in range(lp.shape[1]):
        p = 0.0
        for path in itertools.product(range(lp.shape[2]), repeat=int(steps[n])):
            short = [c for c, _ in itertools.groupby(path) if c != blank]
            if short == list(labels[n, : lengths[n]]):
                p += math.exp(sum(lp[i, n, c] for i, c in enumerate(path)))
        out.append(-math.log(p) if p else math.inf)
    return np.array(out)


for i, (steps, classes, labels, lengths, blank) in enumerate((
        (5, 3, [[1, 2], [2, 2]], [2, 2], 0), (4, 4, [[1, 2, 3], [3, 1, 0]], [3, 2], 0), (4, 3, [[0, 1], [1, 1]], [1, 0], 2), (3, 3, [[1, 1], [2, 1]], [2, 1], 0), (1, 2, [[1], [1]], [1, 1], 0),
        (3, 2, [[1, 1], [1, 1]], [2, 1], 0), (2, 3, [[], []], [0, 0], 1))):
    x = values(f"ctc{i}", (steps, 2, classes))
    lp = (x - np.log(np.exp(x).sum(2, keepdims=True))).astype(np.float32)
    lab, st, ln = np.array(labels, np.int64).reshape(2, -1), np.array([steps, max(1, steps - 1)]), np.array(lengths)
    each = lambda lp, lab, st, ln, b=blank: ctc(lp, lab, st, ln, b)
    case("ctc_loss", f"{i}-each", [lp, lab, st, ln], (blank, 0, EACH), each, tol=1e-4)
    finite = lambda *a, f=each: np.where(np.isinf(f(*a)), 0, f(*a))
    case("ctc_loss", f"{i}-mean", [lp, lab, st, ln], (blank, 1, MEAN), lambda lp, lab, st, ln, f=finite: (f(lp, lab, st, ln) / np.maximum(ln, 1)).mean(), tol=1e-4)
    case("ctc_loss", f"{i}-sum", [lp, lab, st, ln], (blank, 1, SUM), lambda lp, lab, st, ln, f=finite: f(lp, lab, st, ln).sum(), tol=1e-4)


# ---- attention whose heads share keys and values
def attention(q, k, v, mask, causal):
    k, v = (np.repeat(a, q.shape[-3] // a.shape[-3], -3) for a in (k, v))
    s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    return np.exp(log_softmax(s, -1)) @ v


for i, (batch, hq, hk) in enumerate((((2,), 4, 2), ((), 6, 3), ((1, 2), 8, 2), ((2,), 4, 1))):
    q, kk, v = some(f"gqa{i}", batch + (hq, 3, 4), batch + (hk, 5, 4), batch + (hk, 5, 2))
    for label, ms, causal in (("plain", None, 0), ("causal", None, 1), ("mask", (3, 5), 0), ("heads", batch + (hq, 3, 5), 0), ("batch", batch + (1, 3, 5), 1)):
        mask = None if ms is None else values(f"gqam{i}{label}", ms, np.bool_) | (np.arange(5) == 0)
        CASES.append(Case(f"attention-{i}-{label}", lambda k, a=(q, kk, v, mask), c=causal: k.array(a[0]).attention(k.array(a[1]), k.array(a[2]), None if a[3] is None else k.array(a[3]), c, 0.0),
                          lambda a=(q, kk, v, mask), c=causal: attention(a[0].astype(W), a[1], a[2], a[3], c), tol=2e-5, atol=1e-5))


def test_case(case, device, check):
    check(case, device)
