"""kn_checkpoint: what a function computes is computed again on the way back; values and gradients are those without it."""
import ctypes
import random

import koine
import numpy as np
import pytest
from koine import _abi

P = _abi.P


def traced(name, k, f, ins, n=1):
    """n results of kn_checkpoint or kn_function over ins."""
    def body(user, given, out):
        r = f(*[koine.Tensor(k, h) for h in (P * max(len(ins), 1)).from_address(given)[: len(ins)]])
        for i, y in enumerate(r if isinstance(r, (list, tuple)) else [r]):
            (P * n).from_address(out)[i] = y.h
    made = (P * n)()
    getattr(koine.load(), "kn_" + name)(k.h, _abi.KINDS["kn_fn"](body), None, (P * max(len(ins), 1))(*[x.h for x in ins]), len(ins), made, n)
    return [koine.Tensor(k, h) for h in made]


def checkpoint(k, f, ins, n=1):
    return traced("checkpoint", k, f, ins, n)


def plain(k, f, ins, n=1):
    r = f(*ins)
    return list(r) if isinstance(r, (list, tuple)) else [r]


def layers(k, x, ws, cut):
    """tanh(x w) for each w; cut(k, f, ins) around as many as it says."""
    def run(x, *ws):
        for w in ws:
            x = (x @ w).tanh()
        return x
    return cut(run, x, ws)


def segments(k, size):
    def cut(run, x, ws):
        for i in range(0, len(ws), size):
            x, = checkpoint(k, run, [x, *ws[i : i + size]])
        return x
    return cut


def halves(k, run, x, ws):
    if len(ws) == 1:
        return run(x, *ws)
    m = len(ws) // 2
    x, = checkpoint(k, lambda x, *w: halves(k, run, x, w), [x, *ws[:m]])
    return checkpoint(k, lambda x, *w: halves(k, run, x, w), [x, *ws[m:]])[0]


def chain(device, n, cut=None, size=(64, 32)):
    """Loss and gradients of n layers; kernels launched, and memory for intermediate values in layers' results."""
    k, r = koine.Context(device), np.random.default_rng(0)
    koine.load().kn_set(k.h, b"KN_THREADS", b"1")
    x = k.array(r.normal(size=size).astype(np.float32))
    ws = [k.array((r.normal(size=(size[1],) * 2) * 0.3).astype(np.float32)) for _ in range(n)]
    y = layers(k, x, ws, cut(k) if cut else lambda run, x, ws: run(x, *ws))
    out = [y.square().sum()]
    out += koine.several("grad", n + 1, out[0], [x, *ws])
    k.realize(*out)
    s = koine.load().kn_stats_of(k.h)
    values = [t.numpy() for t in out]
    k.close()
    return values, s.kernels_launched, s.scratch_bytes / (4 * size[0] * size[1])


CUTS = {"ones": lambda k: segments(k, 1), "fours": lambda k: segments(k, 4), "all": lambda k: segments(k, 16),
        "halves": lambda k: lambda run, x, ws: halves(k, run, x, ws)}


@pytest.mark.parametrize("cut", CUTS)
def test_gradients_are_the_same(cut):
    want = chain("INTERP", 8)[0]
    for a, b in zip(chain("INTERP", 8, CUTS[cut])[0], want):  # to the bit: sums have one order there
        assert np.array_equal(a, b)
    for a, b in zip(chain("CPU", 8, CUTS[cut])[0], want):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)

def test_memory():
    """A chain of n layers keeps n results at a time, in segments of sqrt(n) twice sqrt(n), in halves of halves some log n. Each layer
    is computed again: nodes that are alike did not become one."""
    for n in (16, 64):
        root, (_, kernels, kept) = int(n**0.5), chain("NULL", n)
        _, again, some = chain("NULL", n, lambda k: segments(k, root))
        _, often, few = chain("NULL", n, CUTS["halves"])
        assert kept >= n and some <= 2 * root + 1 and few <= n.bit_length() + 2
        assert often > again >= 3 * n - 2


def step(r, xs):
    """Some function of some of xs, (8, 8), which has a second derivative nearly everywhere."""
    a, b, how = r.choice(xs), r.choice(xs), r.randrange(9)
    return (lambda: a.tanh(), lambda: a.mul(b), lambda: a.add(b.mT()), lambda: a.softmax(1), lambda: a.sub(a.mean_over((0,), 1)), lambda: (a @ b).sin(),
            lambda: koine.cat([a.slice(0, 0, 4, 1), b.slice(0, 4, 8, 1)], 0), lambda: a.cumsum(0).muls(0.1), lambda: a.maximum(b))[how]().adds(r.random())


def program(k, seed, kinds):
    """Loss, gradients and H v of a random program: blocks in blocks, each a checkpoint, a function or plain; some find what is outside."""
    r, draw, inner = random.Random(seed), np.random.default_rng(seed), []
    ins = [k.array(draw.normal(size=(8, 8))) for _ in range(3)]

    def block(xs, depth):
        xs = list(xs)
        for _ in range(r.randrange(1, 5)):
            if depth < 3 and r.random() < 0.45:
                given, n, kind = r.sample(xs, r.randrange(1, min(3, len(xs)) + 1)), r.randrange(1, 3), r.randrange(5)
                outside = [r.choice(xs)] if r.random() < 0.4 else []
                xs += kinds[kind > 2](k, lambda *x: (block([*x, *outside], depth + 1) * 2)[-n:], given, n)
            else:
                xs.append(step(r, xs))
                if not depth:
                    inner.append(xs[-1])
        return xs

    xs = block(ins, 0)
    loss = xs[-1].mul(k.array(draw.normal(size=(8, 8)))).sum()
    wrt = ins + inner[:1]
    out = [loss, *koine.several("grad", len(wrt), loss, wrt), *xs[-2:]]
    if seed % 3 == 0:
        out += koine.several("hvp", 3, loss, ins, [k.array(draw.normal(size=(8, 8))) for _ in ins])
    if seed % 5 == 1:
        k.realize(loss)
    k.realize(*out)
    return [t.numpy() for t in out]


function = lambda k, f, ins, n=1: traced("function", k, f, ins, n)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(k, seed):
    for a, b in zip(program(k, seed, (plain, plain)), program(k, seed, (checkpoint, function))):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_what_is_found_outside(k):
    """Values that f finds are captured as they are, in their shape: gradients reach them, and what they were computed from."""
    x, w = k.array(np.arange(6.0).reshape(2, 3)), k.array(np.ones((3, 2)))
    e = w.exp()
    y, = checkpoint(k, lambda x: x @ e + (x @ w).square(), [x])
    gx, gw, ge = koine.several("grad", 3, y.sum(), [x, w, e])
    a = np.arange(6.0).reshape(2, 3)
    s = a.sum(1, keepdims=True)
    np.testing.assert_allclose(ge.numpy(), np.tile(a.sum(0)[:, None], (1, 2)))
    np.testing.assert_allclose(gw.numpy(), np.tile(a.sum(0)[:, None], (1, 2)) * np.e + (2 * a * s).sum(0)[:, None])
    np.testing.assert_allclose(gx.numpy(), np.full((2, 3), 2 * np.e) + 4 * s)


def test_results_of_all_kinds(k):
    """Integers, an input as it was, the same twice, one that is not used; a gradient by a result, and the same gradient twice."""
    x = k.array(np.array([1.0, -2.0, 3.0]))
    y, n, same, also, unused = checkpoint(k, lambda x, i: (x.square(), i.adds(1), x, x.square(), x.exp()), [x, k.array(np.arange(3))], 5)
    loss = y.mul(same).sum() + also.sum()
    assert n.numpy().tolist() == [1, 2, 3]
    a, b = koine.several("grad", 2, loss, [x, y]), koine.several("grad", 2, loss, [x, y])
    for g in a, b:
        assert g[0].numpy().tolist() == [5, 8, 33] and g[1].numpy().tolist() == [1, -2, 3]
    assert x.sum().add(koine.several("grad", 1, loss, [x])[0].sum()).numpy() == 48
    h = koine.several("grad", 1, koine.several("grad", 1, loss, [x])[0].sum(), [x])[0]  # of gradients through what was computed again
    assert h.numpy().tolist() == [8, -10, 20]


def test_a_dropout_is_the_same_again(k):
    x = k.array(np.ones(1000, np.float32))
    y, = checkpoint(k, lambda x: x.dropout(0.5, None).square(), [x])
    g, = koine.several("grad", 1, y.sum(), [x])
    k.realize(y, g)
    assert np.array_equal(y.numpy() > 0, g.numpy() > 0) and 300 < (g.numpy() > 0).sum() < 700


def test_mistakes(k):
    x = k.array(np.ones(3))
    with pytest.raises(koine.Error, match="KN1162: checkpoint: the callback left output 1 unset"):
        checkpoint(k, lambda x: [x], [x], 2)[1].check()
    koine.load().kn_clear(k.h)
    with pytest.raises(koine.Error, match="KN1203: cannot broadcast add"):  # what f does wrong is what the results are
        checkpoint(k, lambda x: x.add(k.array(np.ones(2))), [x])[0].check()
    koine.load().kn_clear(k.h)
    with pytest.raises(koine.Error, match="KN1125"):
        checkpoint(k, lambda x: x.exp(), [x.sum_over((3,), 0)])[0].check()
    koine.load().kn_clear(k.h)
    with pytest.raises(koine.Error, match="KN1170"):
        checkpoint(k, lambda x: x.argmax(0, 0), [x])[0].grad1(x).check()
