"""Layers and optimizers: against numpy's own steps, and a network that learns."""
import ctypes
import os
import subprocess
from pathlib import Path

import koine
import numpy as np
import pytest

F = np.float32


class Optim:
    """The C optimizer; ctypes knows it as a pointer."""

    def __init__(self, k, name, params, *numbers):
        lib = koine.load()
        f = getattr(lib, "kn_" + name)
        f.restype, f.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_double] * len(numbers)
        for g, args in (("step", [ctypes.c_void_p] * 2), ("realize", [ctypes.c_void_p] * 2), ("free", [ctypes.c_void_p]), ("rate", [ctypes.c_void_p, ctypes.c_double])):
            h = getattr(lib, "kn_optim_" + g)
            h.argtypes, h.restype = args, None if g == "free" else ctypes.c_int
        self.lib, self.k, a = lib, k, (ctypes.c_void_p * len(params))(*[p.h for p in params])
        self.h = f(k.h, ctypes.cast(a, ctypes.c_void_p), len(params), *map(float, numbers))
        assert self.h, k.message()

    def step(self, loss):
        assert self.lib.kn_optim_step(self.h, loss.h) == 0, self.k.message()
        assert self.lib.kn_optim_realize(self.h, loss.h) == 0, self.k.message()

    def rate(self, r):
        assert self.lib.kn_optim_rate(self.h, r) == 0

    def free(self):
        self.lib.kn_optim_free(self.h)


def sgd(p, g, s, t, rate, momentum, decay):
    g = g + decay * p
    if momentum:
        s["v"] = g = momentum * s.get("v", 0) + g
    return p - rate * g


def adam(p, g, s, t, rate, b1, b2, eps, decay=0.0):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    return p - rate * (s["m"] / (1 - b1**t) / (np.sqrt(s["v"] / (1 - b2**t)) + eps) + decay * p)


@pytest.mark.parametrize("name, ref, numbers", [
    ("sgd", sgd, (0.1, 0.0, 0.0)), ("sgd", sgd, (0.1, 0.9, 0.0)), ("sgd", sgd, (0.05, 0.5, 0.01)), ("sgd", sgd, (0.05, 0.0, 0.1)),
    ("adam", adam, (0.01, 0.9, 0.999, 1e-8)), ("adam", adam, (0.1, 0.5, 0.9, 1e-3)),
    ("adamw", adam, (0.01, 0.9, 0.999, 1e-8, 0.1)), ("adamw", adam, (0.1, 0.8, 0.99, 1e-6, 0.01))])
def test_steps(k, name, ref, numbers):
    a, b = np.array([[1.0, -2.0], [3.0, 0.5]], F), np.array([0.5, -1.0], F)
    x = np.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.0]], F)
    p, q = k.array(a).param(), k.array(b).param()
    opt = Optim(k, name, [p, q], *numbers)
    a, b, sa, sb = a.astype(np.float64), b.astype(np.float64), {}, {}
    for t in range(1, 6):
        k.scope_open()
        if t == 4:
            opt.rate(numbers[0] / 2)
            numbers = (numbers[0] / 2,) + numbers[1:]
        y = (k.array(x) @ p + q).tanh()
        loss = y.square().mean()
        opt.step(loss)
        h = np.tanh(x @ a + b)
        np.testing.assert_allclose(loss.item(), (h * h).mean(), rtol=1e-5)
        d = 2 * h * (1 - h * h) / h.size
        a, b = ref(a, x.T @ d, sa, t, *numbers), ref(b, d.sum(0), sb, t, *numbers)
        k.scope_close()
        np.testing.assert_allclose(p.numpy(), a, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(q.numpy(), b, rtol=2e-5, atol=1e-6)
    opt.free()


def test_a_step_keeps_the_rate_it_was_built_with(k):
    """Whatever the rate is when the step is realised, and by whom; after that the rate is another, of the same steps."""
    p, want = k.array(np.array([1.0, -2.0], F)).param(), np.array([1.0, -2.0])
    opt = Optim(k, "sgd", [p], 0.5, 0.0, 0.0)
    for built, later, by_all in (0.5, 0.25, True), (0.25, 0.125, False), (0.125, 0.5, False), (0.5, 1.0, True):
        k.scope_open()
        loss = (p * p).sum()
        assert opt.lib.kn_optim_step(opt.h, loss.h) == 0, k.message()
        opt.rate(later)
        if by_all:
            assert opt.lib.kn_optim_realize(opt.h, loss.h) == 0, k.message()
        np.testing.assert_allclose(p.numpy(), want := want - built * 2 * want)
        k.scope_close()
    opt.free()


def test_learns_xor(k):
    k.manual_seed(4)
    x = k.array(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], F))
    y = k.array(np.array([0, 1, 1, 0], np.int32))
    w1, b1 = k.randn((8, 2)).param(), k.zeros((8,), "f32").param()
    w2, b2 = k.randn((2, 8)).param(), k.zeros((2,), "f32").param()
    opt = Optim(k, "adam", [w1, b1, w2, b2], 0.05, 0.9, 0.999, 1e-8)
    for _ in range(60):
        k.scope_open()
        logits = x.linear(w1, b1).tanh().linear(w2, b2)
        loss = logits.cross_entropy(y)
        opt.step(loss)
        last = loss.item()
        k.scope_close()
    opt.free()
    assert last < 0.1
    assert x.linear(w1, b1).tanh().linear(w2, b2).argmax(1, 0).numpy().tolist() == [0, 1, 1, 0]


def test_running_statistics(k):
    x = np.random.default_rng(0).normal(3, 2, (16, 4, 5)).astype(F)
    mean, var = k.zeros((4,), "f32").param(), k.ones((4,), "f32").param()
    m, v = np.zeros(4), np.ones(4)
    for _ in range(3):
        y = k.array(x).batch_norm_train(mean, var, None, None, 0.1, 1e-5)
        k.realize(y, mean, var)
        m, v = 0.9 * m + 0.1 * x.mean((0, 2)), 0.9 * v + 0.1 * x.var((0, 2), ddof=1)
    np.testing.assert_allclose(mean.numpy(), m, rtol=1e-5)
    np.testing.assert_allclose(var.numpy(), v, rtol=1e-5)


def test_memory_stays_flat(k, sanitized):
    """1,000 steps, the graph built anew each time: the resident size after 300 is that after 1,000."""
    if sanitized:
        pytest.skip("a sanitizer keeps freed memory")

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    w = k.ones((64, 64), "f32").param()
    x = k.array(np.ones((8, 64), F))
    opt = Optim(k, "sgd", [w], 1e-3, 0.9, 0.0)
    for i in range(1000):
        k.scope_open()
        opt.step((x @ w).relu().square().mean())
        k.scope_close()
        if i == 300:
            before = resident()
    opt.free()
    assert resident() - before < 4 << 20


def test_by_hand(root, build, device):
    """The graphs of the first documents, built through the C API, rendered and run."""
    if not (build / "examples/by_hand").exists():
        pytest.skip("examples are not built: make tests")
    r = subprocess.run([str(build / "examples/by_hand")], capture_output=True, text=True, env={**os.environ, "KN_DEVICE": device})
    assert r.returncode == 0, r.stdout + r.stderr
    assert r.stdout.count(": right") == 7 and "void tester(" in r.stdout
