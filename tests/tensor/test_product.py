"""Products, indexing by tensors, convolutions, pooling, norms, losses and attention against numpy in f64."""
import itertools
import math

import koine
import numpy as np
from conftest import Case
from data import values

CASES = []
W = np.float64


def add(key, build, ref, **more):
    CASES.append(Case(key, build, ref, **{"tol": 2e-5, "atol": 1e-5, **more}))


def call_case(fn, key, arrays, args, ref, **more):
    def build(k):
        return koine.call(fn, *[k.array(a) if isinstance(a, np.ndarray) else a for a in arrays], *args)
    add(f"{fn}-{key}", build, lambda: ref(*[a.astype(W) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays]), **more)


def arrays(key, *shapes, dtype=np.float32):
    return [values(f"{key}{i}", s, dtype) for i, s in enumerate(shapes)]


# ---- products
for i, (a, b) in enumerate([((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
                            ((3, 0), (0, 4)), ((0, 4), (4, 2)), ((64, 130), (130, 33)), ((4,), (2, 4, 3)), ((1, 1), (1, 1))]):
    call_case("matmul", str(i), arrays(f"mm{i}", a, b), (), np.matmul)
for d in (np.int32, np.uint8, np.float64, np.float16):
    a, b = arrays(f"mm{d}", (3, 4), (4, 2), dtype=d)
    call_case("matmul", np.dtype(d).name, [a, b], (), np.matmul, **({"tol": 2e-3} if d == np.float16 else {}))
for i, (m, k, n) in enumerate(((16, 8192, 24), (9, 5003, 17))):  # in parts; a prime number leaves some terms behind
    call_case("matmul", f"long-{i}", arrays(f"mml{i}", (m, k), (k, n)), (), np.matmul, atol=1e-3)
add("matmul-views", lambda k: k.array(arrays("mv", (4, 6))[0]).mT().matmul(k.array(arrays("mv", (4, 6))[0]).slice(1, 0, 6, 2)),
    lambda: arrays("mv", (4, 6))[0].T.astype(W) @ arrays("mv", (4, 6))[0][:, ::2])
for i, n in enumerate((1, 5, 0, 1000)):
    call_case("dot", str(i), arrays(f"dot{i}", (n,), (n,)), (), np.dot, atol=1e-3)
    call_case("outer", str(i), arrays(f"outer{i}", (n,), (3,)), (), np.outer)
for i, s in enumerate(((2, 3, 4), (1, 1, 1), (16, 16, 16), (5, 0, 2))):
    call_case("gemm", str(i), arrays(f"gemm{i}", s[:2], s[1:]), (), np.matmul)
for i, s in enumerate(((3,), (2, 3), (4, 2, 3), (0, 3))):
    x, w, b = arrays(f"lin{i}", s, (5, 3), (5,))
    call_case("linear", f"{i}", [x, w, b], (), lambda x, w, b: x @ w.T + b)
    call_case("linear", f"{i}-no-bias", [x, w, None], (), lambda x, w, b: x @ w.T)

# ---- indexing
for i, (s, axis, idx) in enumerate((((5,), 0, [0, 4, 2]), ((5, 3), 0, [[1, 1], [4, 0]]), ((2, 6, 3), 1, [5, -1, 0]), ((2, 6), -1, [-6, 3]), ((3, 2), 0, []),
                                    ((600, 2), 0, [599, 0, 512, -1]), ((4,), 0, 3))):
    for it in (np.int32, np.int64):
        x, j = values(f"take{i}", s), np.array(idx, it)
        call_case("take", f"{i}-{np.dtype(it).name}", [x, j], (axis,), lambda x, j, axis=axis: np.take(x, j, axis))
for i, (s, idx) in enumerate((((5,), [0, 4, 2]), ((5, 3), [1, 1]), ((300, 2), [299, 256]), ((1, 2, 2), [[0]]))):
    for it in (np.uint8, np.int32):
        if max(np.ravel(idx)) > 255 and it == np.uint8:
            it = np.uint16
        call_case("gather", f"{i}-{np.dtype(it).name}", [values(f"gat{i}", s), np.array(idx, it)], (), lambda x, j: x[j])
add("gather-outside", lambda k: k.array(np.ones(3, np.float32)).gather(k.array(np.array([5, 1, -1]))), lambda: np.array([0, 1, 0.0]))
for i, (v, d, idx) in enumerate(((7, 3, [1, 6, 0]), (4, 1, [[0, 3], [2, 2]]), (1000, 4, [999, 513, 1]), (5, 2, []))):
    call_case("embedding", str(i), [values(f"emb{i}", (v, d)), np.array(idx, np.int32)], (), lambda w, j: w[j])
for i, (s, axis, idx) in enumerate((((3, 4), 1, [[0], [3], [-1]]), ((3, 4), 0, [[2, 1, 0, 0]]), ((2, 3, 2), 1, np.zeros((2, 1, 2), int)), ((5,), 0, [4, 4, 0, 1, 2, 3]))):
    call_case("take_along_axis", str(i), [values(f"taa{i}", s), np.array(idx, np.int64)], (axis,), lambda x, j, axis=axis: np.take_along_axis(x, j, axis))


def scattered(x, j, v):
    x = x.copy()
    np.add.at(x, j, v)
    return x


for i, (s, idx, d) in enumerate((((5,), [0, 4, 0], np.float32), ((3, 2), [1, 1, 1, 2], np.float32), ((4,), [], np.float32), ((6,), [5, 5, 1], np.int32), ((300, 2), [299, 0], np.float64))):
    x, v = values(f"sca{i}", s, d), values(f"scv{i}", (len(idx),) + s[1:], d)
    call_case("scatter_add", str(i), [x, np.array(idx, np.int32), v], (), scattered)
for i, (s, axis, si) in enumerate((((3, 4), 1, (3, 2)), ((3, 4), 0, (5, 4)), ((6,), 0, (2,)), ((2, 3, 2), 1, (2, 4, 2)))):
    x, v, j = values(f"saa{i}", s), values(f"sav{i}", si), values(f"saj{i}", si, np.int64, 0, s[axis] - 1)
    def ref(x, j, v, axis=axis):
        x = x.copy()
        grid = list(np.indices(j.shape))
        grid[axis] = j
        np.add.at(x, tuple(grid), v)
        return x
    add(f"scatter_add_along_axis-{i}", lambda k, x=x, v=v, j=j, axis=axis: k.array(x).scatter_add_along_axis(axis, k.array(j), k.array(v)),
        lambda x=x, v=v, j=j, ref=ref: ref(x.astype(W), j, v))
for i, (idx, n, d) in enumerate((([0, 2, 1], 3, "f32"), ([[1], [0]], 2, "i64"), (1, 4, "bool"), ([], 5, "f32"))):
    j = np.array(idx, np.int32)
    add(f"one_hot-{i}", lambda k, j=j, n=n, d=d: k.array(j).one_hot(n, d), lambda j=j, n=n: np.eye(n)[j], dtype=d)


# ---- convolution, pooling
def conv(x, w, b, stride, padding, dilation, groups):
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    cg, og = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        c = (o // og) * cg
        for at in itertools.product(*[range(v) for v in w.shape[2:]]):
            s = tuple(slice(at[i] * dilation[i], at[i] * dilation[i] + (out[i] - 1) * stride[i] + 1, stride[i]) for i in range(n))
            y[:, o] += np.tensordot(x[(slice(None), slice(c, c + cg)) + s], w[(o, slice(None)) + at], ((1,), (0,)))
    return y if b is None else y + b.reshape(-1, *[1] * n)


for i, (xs, ws, st, pa, di, gr) in enumerate((((1, 1, 5, 5), (1, 1, 3, 3), 1, 0, 1, 1), ((2, 3, 7, 8), (4, 3, 3, 3), 1, 1, 1, 1), ((2, 3, 9, 9), (4, 3, 3, 2), 2, 1, 1, 1),
                                              ((1, 4, 8, 8), (6, 2, 3, 3), 1, 0, 2, 2), ((2, 4, 6, 6), (4, 1, 3, 3), 1, 1, 1, 4), ((1, 2, 5, 5), (3, 2, 1, 1), 2, 0, 1, 1),
                                              ((1, 1, 8, 8), (1, 1, 2, 2), 5, 0, 1, 1), ((0, 2, 5, 5), (3, 2, 3, 3), 1, 0, 1, 1), ((1, 8, 28, 28), (16, 8, 5, 5), 1, 2, 1, 1))):
    x, w, b = arrays(f"conv{i}", xs, ws, ws[:1])
    call_case("conv2d", str(i), [x, w, b if i % 2 else None], (st, pa, di, gr), lambda x, w, b, st=st, pa=pa, di=di, gr=gr: conv(x, w, b, (st, st), (pa, pa), (di, di), gr), tol=1e-4)
for i, (xs, ws, st, pa, di, gr) in enumerate((((2, 3, 10), (4, 3, 3), (2,), (1,), (1,), 1), ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 0), (1, 1, 2), 1),
                                              ((1, 2, 6, 7), (2, 1, 3, 2), (2, 1), (1, 0), (1, 2), 2), ((3, 1, 1), (2, 1, 1), (1,), (0,), (1,), 1))):
    x, w, b = arrays(f"convn{i}", xs, ws, ws[:1])
    call_case("conv", str(i), [x, w, b], (st, pa, di, gr), lambda x, w, b, st=st, pa=pa, di=di, gr=gr: conv(x, w, b, st, pa, di, gr), tol=1e-4)


def pool(x, f, size, stride, padding, dilation=1, fill=0.0):
    n = x.ndim - 2
    size, stride, padding = [v * n if len(v) == 1 else v for v in (size, stride, padding)]
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding], constant_values=fill)
    for i in range(n):
        reach = dilation * (size[i] - 1) + 1
        x = np.lib.stride_tricks.sliding_window_view(x, reach, 2 + i)[(slice(None),) * (2 + i) + (slice(None, None, stride[i]),)][..., ::dilation]
    return f(x, tuple(range(2 + n, 2 + 2 * n)))


for i, (xs, size, st, pa) in enumerate((((1, 1, 4, 4), 2, 2, 0), ((2, 3, 7, 7), 3, 2, 1), ((1, 2, 5, 6), 3, 1, 0), ((2, 1, 9, 9), 2, 5, 0), ((1, 1, 3, 3), 3, 3, 1))):
    x = values(f"pool{i}", xs)
    call_case("max_pool2d", str(i), [x], (size, st, pa), lambda x, size=size, st=st, pa=pa: pool(x, np.max, (size,), (st,), (pa,), fill=-np.inf))
    call_case("avg_pool2d", str(i), [x], (size, st, pa), lambda x, size=size, st=st, pa=pa: pool(x, np.mean, (size,), (st,), (pa,)))
for i, (xs, size, st, pa) in enumerate((((1, 2, 9), (3,), (2,), (1,)), ((1, 1, 5, 6), (2, 3), (1, 2), (0, 1)), ((2, 1, 4, 4, 4), (2,), (2,), (0,)), ((1, 3, 7), (1,), (3,), (0,)))):
    x = values(f"pooln{i}", xs)
    call_case("max_pool", str(i), [x], (size, st, pa, (1,), 0), lambda x, size=size, st=st, pa=pa: pool(x, np.max, size, st, pa, fill=-np.inf))
    call_case("avg_pool", str(i), [x], (size, st, pa, 0, 1), lambda x, size=size, st=st, pa=pa: pool(x, np.mean, size, st, pa))
    call_case("avg_pool", f"{i}-uncounted", [x], (size, st, pa, 0, 0),
              lambda x, size=size, st=st, pa=pa: pool(x, np.sum, size, st, pa) / pool(np.ones_like(x), np.sum, size, st, pa))
x = values("pool-dilated", (1, 1, 9, 9))
call_case("max_pool", "dilated", [x], ((3,), (2,), (0,), (2,), 0), lambda x: pool(x, np.max, (3,), (2,), (0,), 2, -np.inf))


# ---- norms, losses, attention
def standard(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


for i, (s, n) in enumerate((((4, 8), 1), ((2, 3, 5), 2), ((7,), 1), ((2, 64), 1))):
    x, w, b = arrays(f"ln{i}", s, s[-n:], s[-n:])
    axes = tuple(range(len(s) - n, len(s)))
    call_case("layer_norm", f"{i}", [x], (n, None, None, 1e-5), lambda x, axes=axes: standard(x, axes))
    add(f"layer_norm-{i}-affine", lambda k, x=x, w=w, b=b, n=n: k.array(x).layer_norm(n, k.array(w), k.array(b), 1e-5),
        lambda x=x, w=w, b=b, axes=axes: standard(x.astype(W), axes) * w + b)
    add(f"rms_norm-{i}", lambda k, x=x, w=w, n=n: k.array(x).rms_norm(n, k.array(w), 1e-5),
        lambda x=x, w=w, axes=axes: x / np.sqrt((x.astype(W) ** 2).mean(axes, keepdims=True) + 1e-5) * w)
for i, (s, g) in enumerate((((2, 4, 3), 2), ((1, 6, 2, 2), 3), ((3, 4), 1), ((2, 4, 5), 4))):
    x, w, b = arrays(f"gn{i}", s, s[1:2], s[1:2])
    def ref(x=x, w=w, b=b, g=g):
        y = standard(x.astype(W).reshape(x.shape[0], g, -1), (2,)).reshape(x.shape)
        c = (1, -1) + (1,) * (x.ndim - 2)
        return y * w.reshape(c) + b.reshape(c)
    add(f"group_norm-{i}", lambda k, x=x, w=w, b=b, g=g: k.array(x).group_norm(g, k.array(w), k.array(b), 1e-5), ref)
for i, s in enumerate(((4, 3), (2, 3, 5), (2, 4, 3, 3), (1, 1, 2, 2))):
    c = (1, -1) + (1,) * (len(s) - 2)
    x, m, w, b = arrays(f"bn{i}", s, s[1:2], s[1:2], s[1:2])
    v = values(f"bnv{i}", s[1:2], lo=0.5)
    add(f"batch_norm-{i}", lambda k, x=x, m=m, v=v, w=w, b=b: k.array(x).batch_norm(k.array(m), k.array(v), k.array(w), k.array(b), 1e-5),
        lambda x=x, m=m, v=v, w=w, b=b, c=c: (x - m.reshape(c)) / np.sqrt(v.astype(W).reshape(c) + 1e-5) * w.reshape(c) + b.reshape(c))
    axes = (0,) + tuple(range(2, len(s)))
    add(f"batch_norm_train-{i}", lambda k, x=x, w=w, b=b: k.array(x).batch_norm_train(None, None, k.array(w), k.array(b), 0.1, 1e-5),
        lambda x=x, w=w, b=b, c=c, axes=axes: standard(x.astype(W), axes) * w.reshape(c) + b.reshape(c), tol=1e-3, atol=1e-3)


def log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


for i, s in enumerate(((5, 4), (3,), (2, 5, 3), (64, 600))):
    x = values(f"ce{i}", s)
    axis = 1 if len(s) > 1 else 0
    y = values(f"cey{i}", s[:axis] + s[axis + 1:], np.int64, 0, s[axis] - 1)
    def nll(lp, y, axis=axis):
        return -np.take_along_axis(lp, np.expand_dims(y, axis), axis).mean()
    call_case("cross_entropy", str(i), [x, y], (), lambda x, y, axis=axis, nll=nll: nll(log_softmax(x, axis), y))
    call_case("nll_loss", str(i), [x, y.astype(np.int32)], (), lambda x, y, nll=nll: nll(x, y))
huber = lambda d, delta: np.where(abs(d) < delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta))
for i, (sa, sb) in enumerate((((4,), (4,)), ((3, 2), (2,)), ((), ()), ((50, 60), (50, 60)))):
    x, y = arrays(f"loss{i}", sa, sb)
    p, q = values(f"p{i}", sa, lo=0.05, hi=0.95), values(f"q{i}", sb, lo=0, hi=1)
    call_case("mse_loss", str(i), [x, y], (), lambda x, y: ((x - y) ** 2).mean())
    call_case("l1_loss", str(i), [x, y], (), lambda x, y: abs(x - y).mean())
    call_case("huber_loss", str(i), [x, y], (0.7,), lambda x, y: huber(x - y, 0.7).mean())
    call_case("bce_loss", str(i), [p, q], (), lambda p, q: -(q * np.log(p) + (1 - q) * np.log(1 - p)).mean())
    call_case("bce_with_logits", str(i), [x, q], (), lambda x, q: (np.logaddexp(x, 0) - x * q).mean())


def rotary(x, angle):
    """As complex numbers, a pair each, turned."""
    half = x.shape[-1] // 2
    y = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([y.real, y.imag], -1)


for i, (s, a) in enumerate((((5, 8), (5, 4)), ((2, 3, 4, 6), (4, 3)), ((2, 2), (1,)), ((3, 2, 4), (3, 1, 2)))):
    x, angle = values(f"rotary{i}", s), values(f"angle{i}", a)
    add(f"rotary-{i}", lambda k, x=x, a=angle: k.array(x).rotary(k.array(np.cos(a)), k.array(np.sin(a))),
        lambda x=x, a=angle: rotary(x.astype(W), a.astype(W)))


def attention(q, k, v, mask=None, causal=False, scale=None):
    s = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(s.shape[-2], s.shape[-1], dtype=bool), s, -np.inf)
    return np.exp(log_softmax(s, -1)) @ v


for i, (sq, sk, sv) in enumerate((((3, 4), (3, 4), (3, 4)), ((2, 5, 8), (2, 5, 8), (2, 5, 6)), ((2, 2, 7, 4), (2, 2, 9, 4), (2, 2, 9, 4)), ((1, 64, 16), (1, 64, 16), (1, 64, 16)))):
    q, kk, v = arrays(f"att{i}", sq, sk, sv)
    L, S = sq[-2], sk[-2]
    soft, hard = values(f"attm{i}", (L, S)), values(f"atth{i}", (L, S), np.bool_)
    hard[:, 0] = True
    for label, mask, causal, scale in (("plain", None, 0, 0.0), ("causal", None, 1, 0.0), ("bool", hard, 0, 0.3), ("added", soft, 0, 0.0)):
        add(f"attention-{i}-{label}", lambda k, q=q, kk=kk, v=v, mask=mask, causal=causal, scale=scale:
            k.array(q).attention(k.array(kk), k.array(v), None if mask is None else k.array(mask), causal, scale),
            lambda q=q, kk=kk, v=v, mask=mask, causal=causal, scale=scale: attention(q.astype(W), kk, v, mask, causal, scale or None))


# Sequences of 128 and more: their scores are in no memory, so each is one kernel (tests/golden/kernels.txt).
for label, sq, sk, width, mask, causal in (
        ("heads", (2, 4, 160, 16), (2, 4, 200, 16), 16, None, 0), ("causal", (2, 4, 160, 16), (2, 4, 160, 16), 16, None, 1),
        ("bool", (2, 4, 160, 16), (2, 4, 200, 16), 16, (160, 200), 0), ("batches", (2, 4, 160, 16), (2, 4, 200, 16), 16, (2, 1, 160, 200), 0),
        ("shared", (2, 8, 130, 16), (2, 2, 130, 16), 16, None, 0), ("shared-causal", (8, 130, 16), (2, 130, 16), 16, None, 1),
        ("shared-mask", (2, 8, 130, 16), (2, 2, 131, 16), 16, (2, 1, 130, 131), 0), ("wide", (3, 129, 24), (3, 133, 24), 70, None, 0), ("one", (160, 16), (200, 16), 16, None, 0)):
    q, kk, v = arrays(f"attl-{label}", sq, sk, (*sk[:-1], width))
    m = None if mask is None else values(f"attl-{label}-mask", mask, np.bool_) if label == "bool" else values(f"attl-{label}-mask", mask)
    if label == "bool":
        m[:, 0] = True
    def long_ref(q=q, kk=kk, v=v, m=m, causal=causal):
        times = q.shape[-3] // kk.shape[-3] if q.ndim > 2 else 1
        kk, v = (np.repeat(x, times, -3) if times > 1 else x for x in (kk, v))
        return attention(q.astype(W), kk, v, m, causal)
    add(f"attention-long-{label}", lambda k, q=q, kk=kk, v=v, m=m, causal=causal: k.array(q).attention(k.array(kk), k.array(v), None if m is None else k.array(m), causal, 0.0), long_ref)


# ---- windows as columns
def im2col(x, size, stride, padding, dilation):
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(x.shape[2 + i] - dilation[i] * (size[i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    parts = [x[(slice(None), slice(None)) + tuple(slice(at[i] * dilation[i], at[i] * dilation[i] + (out[i] - 1) * stride[i] + 1, stride[i]) for i in range(n))]
             for at in itertools.product(*[range(s) for s in size])]
    return np.stack(parts, 2).reshape(x.shape[0], -1, math.prod(out))


def col2im(c, image, size, stride, padding, dilation):
    """The transpose, by a basis of images."""
    channels = c.shape[1] // math.prod(size)
    count = channels * math.prod(image)
    m = im2col(np.eye(count).reshape((count, channels) + image), size, stride, padding, dilation).reshape(count, -1)
    return (c.reshape(c.shape[0], -1) @ m.T).reshape((c.shape[0], channels) + image)


for i, (xs, size, st, pa, di) in enumerate((((1, 1, 4, 4), (2, 2), (1, 1), (0, 0), (1, 1)), ((2, 3, 7, 6), (3, 2), (2, 1), (1, 0), (1, 2)), ((2, 2, 9), (3,), (3,), (0,), (1,)),
                                            ((1, 2, 3, 4, 5), (2, 1, 3), (1, 2, 1), (0, 0, 1), (1, 1, 2)), ((1, 3, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1)))):
    x = values(f"i2c{i}", xs)
    c = values(f"c2i{i}", im2col(x, size, st, pa, di).shape)
    call_case("im2col", str(i), [x], (size, st, pa, di), lambda x, a=(size, st, pa, di): im2col(x, *a))
    call_case("col2im", str(i), [c], (xs[2:], size, st, pa, di), lambda c, a=(xs[2:], size, st, pa, di): col2im(c, *a))


def test_case(case, device, check):
    check(case, device)
