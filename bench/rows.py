"""The rows of `make bench` that run a kernel: one table. How koine builds each, how each peer does, what it needs at least, its bar.

Inputs are (dtype, shape) or (dtype, shape, high): normal floats, integers below high, the same for every side. Each side's function gets
them as its own arrays:
    koine     (k, *inputs) -> tensor      assigned into a tensor that is there already; or several, as PyTorch's
    numpy     (np, out, *inputs)          writes into out
    torch     (torch, out, *inputs)       writes into out, or returns a new tensor where PyTorch offers no out=; or several by name, of which the
                                          fastest counts; that called channels_last gets its inputs so
    tinygrad  (*inputs) -> Tensor         under TinyJit
A side without a function does not take part. `want` is the reference that all sides are checked against, in numpy; left out, it is numpy's
own function. No module but the standard library is imported here: the driver reads the table where numpy may not be.
"""
from dataclasses import dataclass
from math import prod
from typing import Callable

SIZE = {"f32": 4, "bf16": 2, "i8": 1, "i32": 4, "i64": 8}
TOLERANCE = {"f32": 1e-4, "bf16": 1e-2, "i32": 0, "i64": 0}  # of the largest value


@dataclass
class Row:
    name: str
    inputs: list
    out: tuple
    koine: Callable
    numpy: Callable = None
    torch: Callable = None
    tinygrad: Callable = None
    want: Callable = None
    flops: float = 0  # operations at least
    peak: str = "fma"  # whose rate bounds them
    memory: str = "copy"  # whose rate bounds the bytes: read, copy, triad
    least: int = 0  # bytes at least; left out: each input once, the output once
    bar: float = 1.0  # of the best peer, by heuristics
    beam_bar: float = 1.0  # after search
    floor_bar: float = None  # of the ceiling
    tiles: bool = False  # the bar is for processors with AMX

    @property
    def bytes(self):
        return self.least or sum(prod(shape) * SIZE[dtype] for dtype, shape, *_ in [*self.inputs, self.out])


# ---- what takes a peer more than a call ----

_scratch = {}


def scratch(np, x):
    """An array like x that is there already."""
    if _scratch.get("shape") != x.shape:
        _scratch.update(shape=x.shape, array=np.empty_like(x))
    return _scratch["array"]


def np_mul_add(np, out, x, y, z):
    np.add(np.multiply(x, y, out=out), z, out=out)


def np_gelu(np, x):
    """erf of Abramowitz and Stegun 7.1.26, within 1.5e-7."""
    a = np.abs(x) * np.float32(2**-0.5)
    t = 1 / (1 + np.float32(0.3275911) * a)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return 0.5 * x * (1 + np.sign(x) * (1 - poly * np.exp(-a * a)))


def np_softmax(np, out, x):
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def np_layer_norm(np, out, x, w, b):
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    scale = 1 / np.sqrt(np.einsum("ij,ij->i", out, out)[:, None] / x.shape[-1] + np.float32(1e-5))
    np.multiply(out, scale, out=out)
    np.multiply(out, w, out=out)
    np.add(out, b, out=out)


def np_attention(np, q, k, v):
    s = np.matmul(q * np.float32(q.shape[-1]**-0.5), k.swapaxes(1, 2))
    np_softmax(np, s, s)
    return np.matmul(s, v)


def np_cross_entropy(np, out, x, labels):
    e, m = scratch(np, x), x.max(axis=1)
    np.exp(np.subtract(x, m[:, None], out=e), out=e)
    out[...] = np.mean(np.log(e.sum(axis=1)) + m - x[np.arange(len(x)), labels])


def np_conv(stride, padding, groups):
    def conv(np, x, w):
        p = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        seen = np.lib.stride_tricks.sliding_window_view(p, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
        if groups > 1:
            return np.einsum("nchwij,cij->nchw", seen, w[:, 0])
        return np.tensordot(seen, w, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return conv


def torch_layer_norm(t, out, x, w, b):
    mean = rstd = t.empty(len(x), 1)
    t.ops.aten.native_layer_norm.out(x, x.shape[1:], w, b, 1e-5, out0=out, out1=mean, out2=t.empty_like(rstd))


# ---- the families ----


def matmul(m, k, n):
    name = f"matmul_{m}" if m == k == n else f"matmul_{m}x{k}x{n}"
    return Row(name, [("f32", (m, k)), ("f32", (k, n))], ("f32", (m, n)), lambda c, a, b: a @ b, flops=2 * m * k * n, memory="read", bar=0.95,
               numpy=lambda np, o, a, b: np.matmul(a, b, out=o), torch=lambda t, o, a, b: t.mm(a, b, out=o), tinygrad=lambda a, b: a @ b)


def matmul_bf16(n):
    """Sums are f32's, rounded once at the end, on all sides."""
    return Row(f"matmul_bf16_{n}", [("bf16", (n, n))] * 2, ("bf16", (n, n)), lambda c, a, b: a @ b, flops=2 * n**3, peak="bf16", memory="read",
               bar=1.2, beam_bar=1.2, tiles=True, want=lambda np, a, b: a @ b,
               torch=lambda t, o, a, b: t.mm(a, b, out=o), tinygrad=lambda a, b: a @ b)


def matmul_i8(n):
    """koine has no function that takes i8 and gives i32: the operands are cast, as a program would write it."""
    return Row(f"matmul_i8_{n}", [("i8", (n, n), 127)] * 2, ("i32", (n, n)), lambda c, a, b: a.cast("i32") @ b.cast("i32"), flops=2 * n**3, peak="i8",
               memory="read", bar=1.2, beam_bar=1.2, tiles=True, want=lambda np, a, b: a.astype("f8") @ b.astype("f8"),
               torch=lambda t, o, a, b: t._int_mm(a, b, out=o), tinygrad=lambda a, b: a.int() @ b.int())


def attention(heads, length, width):
    """Of all heads of a layer; scores are nobody's result."""
    x = ("f32", (heads, length, width))
    return Row(f"attention_{length}", [x] * 3, x, lambda c, q, k, v: q.attention(k, v, None, 0, 0.0), flops=4 * heads * length**2 * width,
               want=np_attention, numpy=lambda np, o, q, k, v: np.copyto(o, np_attention(np, q, k, v)),
               torch=lambda t, o, q, k, v: t.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0],
               tinygrad=lambda q, k, v: q.scaled_dot_product_attention(k, v))


def conv(what, batch, channels, out, side, size, stride, groups=1):
    padding, to = size // 2, side // stride
    x, w = ("f32", (batch, channels, side, side)), ("f32", (out, channels // groups, size, size))
    flops = 2 * batch * out * to * to * channels // groups * size * size

    def torch(t, o, x, w):
        return t.conv2d(x, w, None, stride, padding, 1, groups)

    def koine(c, x, w):
        return x.conv2d(w, None, stride, padding, 1, groups)

    both = ("contiguous", "channels_last")
    return Row(f"conv_{what}_b{batch}", [x, w], ("f32", (batch, out, to, to)), dict.fromkeys(both, koine), flops=flops,
               want=np_conv(stride, padding, groups), torch=dict.fromkeys(both, torch),
               tinygrad=lambda x, w: x.conv2d(w, stride=stride, padding=padding, groups=groups))


MI16, SIDE = 16 << 20, 4096
VECTOR, MATRIX, ROW = ("f32", (MI16,)), ("f32", (SIDE, SIDE)), ("f32", (SIDE,))


def elementwise(name, inputs, koine, memory="copy", **sides):
    return Row(name, [VECTOR] * inputs, VECTOR, koine, memory=memory, floor_bar=0.85, **sides)


def along(name, axis, out, koine, **how):
    how = {"floor_bar": 0.85, "memory": "read"} | how
    return Row(f"{name}_{'rows' if axis else 'columns'}", [MATRIX], out, koine, **how)


def reductions(axis):
    """Of each row (axis 1), and of each column (axis 0)."""
    yield along("sum", axis, ROW, lambda c, x: x.sum_over(axis, 0), numpy=lambda np, o, x: np.sum(x, axis=axis, out=o),
                torch=lambda t, o, x: t.sum(x, axis, out=o), tinygrad=lambda x: x.sum(axis))
    yield along("max", axis, ROW, lambda c, x: x.max_over(axis, 0), numpy=lambda np, o, x: np.max(x, axis=axis, out=o),
                torch=lambda t, o, x: t.amax(x, axis, out=o), tinygrad=lambda x: x.max(axis))
    yield along("argmax", axis, ("i64", (SIDE,)), lambda c, x: x.argmax(axis, 0), numpy=lambda np, o, x: np.argmax(x, axis=axis, out=o),
                torch=lambda t, o, x: t.argmax(x, axis, out=o), tinygrad=lambda x: x.argmax(axis))
    yield along("cumsum", axis, MATRIX, lambda c, x: x.cumsum(axis), memory="copy", numpy=lambda np, o, x: np.cumsum(x, axis=axis, out=o),
                torch=lambda t, o, x: t.cumsum(x, axis, out=o), tinygrad=lambda x: x.cumsum(axis))


TOKENS, WIDTH, WORDS = 1024, 768, 50257

ROWS = [
    *(matmul(n, n, n) for n in (256, 512, 1024, 2048, 1023)), matmul(64, 4096, 4096), matmul(1, 4096, 4096),
    *(matmul_bf16(n) for n in (1024, 2048, 4096)),
    *(matmul_i8(n) for n in (1024, 2048, 4096)),
    *(conv("3x3", b, 64, 64, 56, 3, 1) for b in (1, 16)),
    *(conv("7x7", b, 3, 64, 224, 7, 2) for b in (1, 16)),
    *(conv("depthwise", b, 128, 128, 56, 3, 1, groups=128) for b in (1, 16)),
    *(attention(12, n, 64) for n in (128, 1024, 4096)),
    elementwise("add", 2, lambda c, x, y: x + y, "triad", numpy=lambda np, o, x, y: np.add(x, y, out=o),
                torch=lambda t, o, x, y: t.add(x, y, out=o), tinygrad=lambda x, y: x + y),
    elementwise("mul_add", 3, lambda c, x, y, z: x * y + z, "triad", numpy=np_mul_add,
                torch=lambda t, o, x, y, z: t.addcmul(z, x, y, out=o), tinygrad=lambda x, y, z: x * y + z),
    elementwise("exp", 1, lambda c, x: x.exp(), numpy=lambda np, o, x: np.exp(x, out=o),
                torch=lambda t, o, x: t.exp(x, out=o), tinygrad=lambda x: x.exp()),
    elementwise("gelu", 1, lambda c, x: x.gelu(), want=np_gelu,
                torch={"given": lambda t, o, x: t.ops.aten.gelu.out(x, out=o), "new": lambda t, o, x: t.nn.functional.gelu(x)}, tinygrad=lambda x: x * 0.5 * (1 + (x * 2**-0.5).erf())),
    elementwise("tanh", 1, lambda c, x: x.tanh(), numpy=lambda np, o, x: np.tanh(x, out=o),
                torch=lambda t, o, x: t.tanh(x, out=o), tinygrad=lambda x: x.tanh()),
    *reductions(1), *reductions(0),
    Row("softmax", [MATRIX], MATRIX, lambda c, x: x.softmax(-1), np_softmax, lambda t, o, x: t.softmax(x, -1, out=o),
        lambda x: x.softmax(-1), floor_bar=0.85),
    Row("layer_norm", [MATRIX, ROW, ROW], MATRIX, lambda c, x, w, b: x.layer_norm(1, w, b, 1e-5), np_layer_norm,
        {"given": torch_layer_norm, "new": lambda t, o, x, w, b: t.nn.functional.layer_norm(x, (SIDE,), w, b)},
        lambda x, w, b: x.layernorm() * w + b, floor_bar=0.85),
    Row("transpose", [MATRIX], MATRIX, lambda c, x: x.transpose(0, 1), lambda np, o, x: np.copyto(o, x.T), lambda t, o, x: o.copy_(x.t()),
        lambda x: x.T.contiguous(), floor_bar=0.85),
    Row("embedding", [("f32", (WORDS, WIDTH)), ("i32", (TOKENS,), WORDS)], ("f32", (TOKENS, WIDTH)), lambda c, w, i: w.embedding(i),
        lambda np, o, w, i: np.take(w, i, axis=0, out=o, mode="clip"), lambda t, o, w, i: t.index_select(w, 0, i, out=o),
        lambda w, i: w[i], least=4 * TOKENS * (2 * WIDTH + 1), floor_bar=0.85),
    Row("cross_entropy", [("f32", (TOKENS, WORDS)), ("i32", (TOKENS,), WORDS)], ("f32", ()), lambda c, x, y: x.cross_entropy(y),
        np_cross_entropy, lambda t, o, x, y: t.nn.functional.cross_entropy(x, y), lambda x, y: x.sparse_categorical_crossentropy(y),
        memory="read", floor_bar=0.85),
    # not in the table of docs/performance.md: small enough for a test of the bench itself
    Row("tiny_add", [("f32", (64, 16))] * 2, ("f32", (64, 16)), lambda c, x, y: x + y, lambda np, o, x, y: np.add(x, y, out=o),
        lambda t, o, x, y: t.add(x, y, out=o), lambda x, y: x + y, memory="triad", bar=None, beam_bar=None),
]
BY_NAME = {r.name: r for r in ROWS}
