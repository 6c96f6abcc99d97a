"""The programs of `koine bench compile`, written for tinygrad (whole networks: peer_networks.py): microseconds from tensor calls to
compiled kernels.

    peer_compile.py PROGRAM      prints `cold again kernels`

To the machine code of its CPU device. cold: the first time in this process. again: once more, its caches emptied
and its rules already loaded, which is the fairer figure beside a compiler whose rules are tables in its text; 0 where cold took so long
that it is not worth it. Imports and inputs are not counted, and nothing is run. No worker pool: koine's figure is one thread's too.
"""
import os
import sys
import time

os.environ.update(DEV="CPU", CACHELEVEL="0", SCACHE="0", PARALLEL="0", BEAM="0", TRAINING="1")

from tinygrad import Tensor, dtypes  # noqa: E402
from tinygrad.engine.realize import compile_linear, to_program_cache  # noqa: E402
from tinygrad.nn.optim import Adam  # noqa: E402
from tinygrad.uop.ops import Ops  # noqa: E402
from peer_networks import NETWORKS, given  # noqa: E402


def digits_step(opt, p, x, y):
    h = x.conv2d(p[0], p[1], stride=2).relu()
    h = h.conv2d(p[2], p[3]).relu().max_pool2d((2, 2))
    loss = (h.reshape(128, -1) @ p[4].T + p[5]).sparse_categorical_crossentropy(y)
    opt.zero_grad()
    loss.backward()
    return [loss] + opt.schedule_step()


def digits_inputs():
    shapes = [(16, 1, 5, 5), (16,), (32, 16, 5, 5), (32,), (10, 512), (10,)]
    p = [Tensor.zeros(*s).contiguous().realize() for s in shapes]
    opt = Adam(p, lr=0.001, b2=0.99, eps=1e-7)
    Tensor.realize(*[t for t in opt.m + opt.v + [opt.b1_t, opt.b2_t, opt.lr]])
    return opt, p, given(128, 1, 28, 28), given(128, dtype=dtypes.int32)


def layernorm(x, w, b):
    return x.layernorm(eps=1e-5) * w + b


def conv_bn(x, w, mean, var, g, b):
    return x.conv2d(w, padding=1).batchnorm(g, b, mean, (var + 1e-5).rsqrt()).relu()


WORTH = 15  # seconds
SQUARE, C = (1024, 1024), (64,)
PROGRAMS = {  # name: the inputs, what is timed
    "add": (lambda: [given(4096, 4096), given(4096, 4096)], lambda a, b: a + b),
    "matmul": (lambda: [given(*SQUARE), given(*SQUARE)], lambda a, b: a @ b),
    "linear_relu": (lambda: [given(64, 1024), given(*SQUARE), given(1024)], lambda x, w, b: (x @ w.T + b).relu()),
    "softmax": (lambda: [given(4096, 4096)], lambda x: x.softmax(-1)),
    "layernorm": (lambda: [given(4096, 4096), given(4096), given(4096)], layernorm),
    "attention": (lambda: [given(1, 12, 128, 64) for _ in "qkv"], lambda q, k, v: q.scaled_dot_product_attention(k, v)),
    "embedding": (lambda: [given(50257, 768), given(1024, dtype=dtypes.int32)], lambda w, i: w[i]),
    "conv_bn": (lambda: [given(1, 64, 56, 56), given(64, 64, 3, 3)] + [given(*C) for _ in range(4)], conv_bn),
    "digits_step": (digits_inputs, digits_step),
} | NETWORKS


def once(inputs, build):
    given_inputs = inputs()
    to_program_cache.clear()
    begun = time.perf_counter()
    out = build(*given_inputs)
    out = out if isinstance(out, list) else [out]
    linear = compile_linear(out[0].schedule_linear(*out[1:]))
    us = 1e6 * (time.perf_counter() - begun)
    programs = [c.src[0] for c in linear.src if c.src[0].op is Ops.PROGRAM]
    assert programs and all(any(s.op is Ops.BINARY for s in p.src) for p in programs), "not compiled"
    return us, len(programs)


cold, kernels = once(*PROGRAMS[sys.argv[1]])
again = once(*PROGRAMS[sys.argv[1]])[0] if cold < 1e6 * WORTH else 0
print(f"{cold:.0f} {again:.0f} {kernels}")
