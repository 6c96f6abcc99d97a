"""Straight-through: values as without, gradients as PyTorch defines them, on both devices, by the same formulas in numpy."""
import koine
import numpy as np
import pytest

A = np.array([[-7.3, -0.5, 0.49, 0.5], [1.5, 2.5, 3.49, 99.0], [0.0, -0.0, 6.4, -2.51]], np.float32)
G = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


@pytest.fixture(params=["CPU", "INTERP"])
def k(request):
    c = koine.Context(request.param)
    yield c
    c.close()


def value_and_gradient(k, y, x, g=G):
    d = koine.several("vjp", 1, y, k.array(g), [x])[0]
    k.realize(y, d)
    return y.numpy(), d.numpy()


FORWARD = {"round": np.round, "sign": np.sign, "floor": np.floor}


@pytest.mark.parametrize("name", [*FORWARD, "clamp", "truth"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_straight_through(k, name, dtype):
    x = k.array(A).cast(dtype)
    v = {"clamp": lambda: x.clamp(-1.0, 2.0), "truth": lambda: x.gts(0.0)}.get(name, lambda: koine.call(name, x))()
    y, d = value_and_gradient(k, v.straight_through(x), x, G.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[dtype]))
    want = {"clamp": lambda a: np.clip(a, -1, 2), "truth": lambda a: a > 0}.get(name) or FORWARD[name]
    assert np.array_equal(y, want(x.numpy()).astype(y.dtype)) and np.array_equal(d, G)


def test_through_a_chain_and_twice(k):
    """d/dx sum(round(x^2)^3) = 3 round(x^2)^2 * 2 x; again: round's derivative is 1 there too."""
    x = k.array(A / 4)
    q = x.square().round().straight_through(x.square())
    g = q.pows(3.0).sum().grad1(x)
    h = g.sum().grad1(x)
    k.realize(g, h)
    a = A / 4
    r = np.round(a * a)
    assert np.allclose(g.numpy(), 6 * r * r * a, rtol=1e-5) and np.allclose(h.numpy(), 6 * r * r + 24 * r * a * a, rtol=1e-5)


def test_other_leaves_and_infinities(k):
    """Its value does not touch what the gradient goes to, which may be infinite, and memory of its own."""
    x, v = k.array(np.array([np.inf, np.nan, 1.0], "f4")), k.array(np.array([1.0, 2.0, 3.0], "f4"))
    y, d = value_and_gradient(k, v.straight_through(x), x, np.ones(3, "f4"))
    assert np.array_equal(y, [1, 2, 3]) and np.array_equal(d, [1, 1, 1])
    assert not v.straight_through(x).sum().grad1(v).numpy().any()
    moved = koine.call("jvp", v.straight_through(x), [x], [k.array(np.array([4.0, 5.0, 6.0], "f4"))])
    assert np.array_equal(moved.numpy(), [4, 5, 6])


def quantized(a, scale, zero, low, high):
    q = np.round(a * (np.float32(1) / scale)) + zero
    return (np.clip(q, low, high) - zero) * scale, (q >= low) & (q <= high)


@pytest.mark.parametrize("scale, zero, low, high", [(0.1, 0, -128, 127), (0.5, 3, 0, 15), (2.0, 0, -1, 1), (0.25, -4, -8, 7), (0.7, 128, 0, 255)])
def test_fake_quantize_per_tensor_affine(k, scale, zero, low, high):
    x = k.array(A)
    y, d = value_and_gradient(k, x.fake_quantize_per_tensor_affine(scale, zero, low, high), x)
    want, within = quantized(A, np.float32(scale), zero, low, high)
    assert np.array_equal(y, want.astype("f4")) and np.array_equal(d, np.where(within, G, 0)) and 0 < within.sum()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("zero_dtype", ["i32", "f32"])
def test_fake_quantize_per_channel_affine(k, axis, zero_dtype):
    n = A.shape[axis]
    scale, zero = np.linspace(0.1, 1.0, n).astype("f4"), np.arange(n)
    x = k.array(A)
    y, d = value_and_gradient(k, x.fake_quantize_per_channel_affine(k.array(scale), k.array(zero.astype("i4")).cast(zero_dtype), axis, -8, 7), x)
    shape = [-1 if i == axis % 2 else 1 for i in range(2)]
    want, within = quantized(A, scale.reshape(shape), zero.reshape(shape).astype("f4"), -8, 7)
    assert np.array_equal(y, want.astype("f4")) and np.array_equal(d, np.where(within, G, 0))


def test_fake_quantize_in_half(k):
    """fake_quantize_per_tensor_affine and fake_quantize_per_channel_affine of f16: computed in f32."""
    x = k.array(A.astype("f2"))
    y = x.fake_quantize_per_tensor_affine(0.1, 0, -128, 127)
    want, _ = quantized(A.astype("f2").astype("f4"), np.float32(0.1), 0, -128, 127)
    assert y.dtype == "f16" and np.array_equal(y.numpy(), want.astype("f2"))


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_gumbel_softmax(k, tau, axis):
    key, logits = k.key(7), k.array(A / 9)
    noise = k.gumbel((3, 4), 0.0, 1.0, "f32", key).numpy()
    z = np.exp((A / 9 + noise) / tau)
    p = z / z.sum(axis, keepdims=True)
    soft, g = value_and_gradient(k, logits.gumbel_softmax(tau, 0, axis, key), logits)
    want = p * (G - (G * p).sum(axis, keepdims=True)) / tau
    assert np.allclose(soft, p, rtol=1e-5, atol=1e-7) and np.allclose(g, want, rtol=1e-4, atol=1e-6)
    hard, h = value_and_gradient(k, logits.gumbel_softmax(tau, 1, axis, key), logits)
    assert np.array_equal(hard, (p == p.max(axis, keepdims=True)).astype("f4")) and np.allclose(h, want, rtol=1e-4, atol=1e-6)
    assert np.array_equal(hard.argmax(axis), logits.categorical(axis, key).numpy())
