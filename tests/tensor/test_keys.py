"""Keys: bits and uniform numbers are JAX's (threefry2x32 with jax_threefry_partitionable on), and what is drawn depends on the key alone."""
import koine
import numpy as np
import pytest

SEEDS = [0, 7, 2**32 - 1, 2**40 + 5, 2**63 + 11]
SHAPES = [(), (3,), (4, 5), (1001,), (0,), (2, 0, 3)]
FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True), jax.threefry_partitionable(True):
        yield jax


def words(keys, jax):
    d = np.asarray(jax.random.key_data(keys)).astype(np.uint64)
    return d[..., 0] << np.uint64(32) | d[..., 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_jax_s(k, jax, seed):
    theirs, ours = jax.random.key(np.uint64(seed)), k.key(seed)
    assert ours.numpy() == words(theirs, jax) and ours.shape == () and ours.dtype == "u64"
    for n in (0, 1, 5, 300):
        np.testing.assert_array_equal(ours.key_split(n).numpy(), words(jax.random.split(theirs, n), jax))
    for data in (0, 9, 2**32 - 1):
        assert ours.key_fold(k.array(np.uint32(data))).numpy() == words(jax.random.fold_in(theirs, data), jax)
    grandchild = ours.key_split(3).select(0, 2).key_fold(k.int(4)).key_split(2)
    np.testing.assert_array_equal(grandchild.numpy(), words(jax.random.split(jax.random.fold_in(jax.random.split(theirs, 3)[2], 4)), jax))


@pytest.mark.parametrize("seed, dtype", [(s, "u32") for s in SEEDS] + [(SEEDS[-1], d) for d in ("u8", "u16", "u64")])
def test_bits_are_jax_s(k, jax, seed, dtype):
    theirs, ours = jax.random.key(np.uint64(seed)), k.key(seed)
    for shape in SHAPES:
        got = k.random_bits(shape, dtype, ours)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.numpy(), np.asarray(jax.random.bits(theirs, shape, koine.NUMPY[dtype])))


@pytest.mark.parametrize("seed, dtype", [(s, "f32") for s in SEEDS] + [(SEEDS[-1], d) for d in FLOATS if d != "f32"])
def test_uniform_is_jax_s(k, jax, seed, dtype):
    """Between bounds, too, whose difference makes no product round (XLA rounds product and sum at once)."""
    theirs, ours = jax.random.key(np.uint64(seed)), k.key(seed)
    for shape in SHAPES:
        got = k.rand_as(shape, dtype, ours)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.cast("f64").numpy(), np.asarray(jax.random.uniform(theirs, shape, FLOATS[dtype]).astype("float64")))
        for lo, hi in ((-1, 3), (5, 5.5), (2, 2)):
            got = k.uniform(shape, lo, hi, dtype, ours).cast("f64").numpy()
            np.testing.assert_array_equal(got, np.asarray(jax.random.uniform(theirs, shape, FLOATS[dtype], lo, hi).astype("float64")))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
def test_bernoulli_is_jax_s(k, jax, p, dtype):
    theirs, ours = jax.random.key(3), k.key(3)
    p = np.full((50, 70), p, koine.NUMPY[dtype])
    np.testing.assert_array_equal(k.array(p).bernoulli(ours).numpy(), np.asarray(jax.random.bernoulli(theirs, p)))


DRAWS = {
    "random_bits": lambda k, key: k.random_bits((40, 50), "u32", key),
    "rand_as": lambda k, key: k.rand_as((2000,), "f32", key),
    "randn_as": lambda k, key: k.randn_as((2000,), "f64", key),
    "uniform": lambda k, key: k.uniform((2000,), 0.1, 0.7, "f32", key),
    "normal": lambda k, key: k.normal((100, 30), 2, 0.3, "f32", key),
    "randint": lambda k, key: k.randint((2000,), -5, 1000, "i32", key),
    "bernoulli": lambda k, key: k.full((2000,), 0.3, "f32").bernoulli(key),
    "exponential": lambda k, key: k.exponential((2000,), 2, "f32", key),
    "laplace": lambda k, key: k.laplace((2000,), 1, 2, "f64", key),
    "gumbel": lambda k, key: k.gumbel((2000,), 0, 1, "f32", key),
    "logistic": lambda k, key: k.logistic((2000,), 0, 1, "f32", key),
    "cauchy": lambda k, key: k.cauchy((2000,), 0, 1, "f32", key),
    "truncated_normal": lambda k, key: k.truncated_normal((2000,), -1, 3, "f32", key),
    "permutation": lambda k, key: k.permutation(700, key),
    "shuffle": lambda k, key: k.arange(0, 600, 1, "f32").reshape((200, 3)).shuffle(0, key),
    "categorical": lambda k, key: k.arange(0, 5, 1, "f32").broadcast_to((400, 5)).categorical(1, key),
    "multinomial": lambda k, key: k.arange(0, 5, 1, "f32").multinomial(400, 1, key),
    "without replacement": lambda k, key: k.arange(1, 801, 1, "f32").multinomial(20, 0, key),
    "dropout": lambda k, key: k.arange(0, 2000, 1, "f32").dropout(0.25, key),
    "rrelu": lambda k, key: k.arange(-2000, 0, 1, "f32").rrelu(0.125, 0.5, 1, key),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_depend_on_the_key_alone(levels, draw):
    """Any device, any level of it and number of threads, whatever was drawn or realised before; another key draws something else. The same of a seed."""
    want = {}
    for device, threads, level in (("INTERP", 1, ""), ("CPU", 1, ""), ("CPU", 1, "sse2"), ("CPU", 2, levels[:2][-1]), ("CPU", 3, "")):
        k = koine.Context(device)
        koine.load().kn_set(k.h, b"KN_THREADS", b"%d" % threads)
        koine.load().kn_set(k.h, b"KN_CPU", level.encode())
        if threads > 1:
            k.rand((threads,)).numpy()
            DRAWS[draw](k, None)
        got = {"key": DRAWS[draw](k, k.key(11)).numpy(), "child": DRAWS[draw](k, k.key(11).key_split(4).select(0, 3)).numpy()}
        k.manual_seed(5)
        got["seed"] = DRAWS[draw](k, None).numpy()
        first, again = DRAWS[draw](k, None), DRAWS[draw](k, k.key(11))
        got["next"] = DRAWS[draw](k, None).numpy()  # realised before the one that was drawn first
        got["first"] = first.numpy()
        assert np.array_equal(again.numpy(), got["key"])
        k.close()
        want = want or got
        for name, v in got.items():
            assert np.array_equal(v, want[name]), (device, threads, name)
        for a, b in (("key", "child"), ("seed", "first"), ("first", "next"), ("key", "seed")):
            assert not np.array_equal(got[a], got[b])


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
def test_no_gradient_flows_into_draws(k, draw, keyed):
    """Nothing but zeros, dropout's mask, or rrelu's slopes."""
    x = k.full((4,), 0.5, "f32")
    y = {"bernoulli": lambda key: x.bernoulli(key), "dropout": lambda key: x.dropout(0.5, key), "rrelu": lambda key: x.neg().rrelu(0.1, 0.3, 1, key)}.get(draw, lambda key: DRAWS[draw](k, key).cast("f32").sum().mul(x))
    key = k.key(1) if keyed else None
    k.manual_seed(1)
    v = y(key)
    g = v.sum().grad1(x).numpy()
    np.testing.assert_allclose(g, v.numpy() / 0.5 if draw != "bernoulli" else np.zeros(4), rtol=1e-6)
