"""Every function of one or two tensors that the header declares, over kinds of operands that tables of cases tend to leave out: none, one,
many elements, views, NaN, infinities, zeros of both signs, subnormals. What a function means is tested elsewhere; here the devices agree, and
a view of memory is what its elements are. A function that is added is here by itself."""
import koine
import numpy as np
import pytest
from koine import _abi

INTERP, CPU = "INTERP", "CPU"
# Of tensors of a kind of their own, of memory, or random: they have tables.
SECTIONS = {"context", "creation", "random", "linear algebra", "Fourier transforms", "functions and gradients", "gradients", "functions", "running", "variables"}
LEFT_OUT = {"assign", "param", "grad1", "kron"}  # kron: of large ones a gigabyte
tiny = np.float32(1e-41)
ROWS = [[0.5, -1.5, 2, 3, -0.25, 1], [1, np.nan, 2, -1, 0.5, 4], [1, np.inf, 2, -1, 0.5, 4], [np.inf, 1, -np.inf, 2, 0.5, -3], [0.0, -0.0, 1, -0.0, 0.0, -1], [tiny, -tiny, 1e-39, 0.5, -1e-38, 2]]


def special():
    return np.array(ROWS, np.float32), np.array(ROWS, np.float32)[:, ::-1].copy()


def plain(shape):
    r = np.random.default_rng(17)
    return tuple((r.uniform(0.1, 0.9, shape) * r.choice([1, -1], shape)).astype(np.float32) for _ in range(2))


KINDS = {"special": special, "empty": lambda: plain((0, 6)), "one": lambda: plain((1, 1)), "large": lambda: plain((80, 70))}


def functions():
    """{name: call(x, y)}: of x alone, x and an axis, an axis and keep, axes and keep; of x and y."""
    out = {}
    for f in _abi.FUNCTIONS.values():
        short, names = f.name.removeprefix("kn_"), [n for _, n in f.params]
        if f.header != "tensor.h" or f.result != "kn_tensor" or f.section.split(":")[0].strip() in SECTIONS or short in LEFT_OUT or short.endswith(("_", "_at")):
            continue
        if f.kinds == ["kn_tensor"]:
            out[short] = lambda x, y, f=short: koine.call(f, x)
        elif f.kinds == ["kn_tensor", "int"] and names[1] == "axis":
            out[short] = lambda x, y, f=short: koine.call(f, x, 1)
        elif f.kinds == ["kn_tensor", "int", "int"] and names[1:] == ["axis", "keep"]:
            out[short] = lambda x, y, f=short: koine.call(f, x, 1, 1)
        elif f.kinds == ["kn_tensor", "kn_ints", "int"]:
            out[short] = lambda x, y, f=short: koine.call(f, x, (1,), 0)
        elif f.kinds == ["kn_tensor", "kn_tensor"]:
            out[short] = lambda x, y, f=short: koine.call(f, x, y)
    return out


def positions(x):
    """Integers in range, some more than once."""
    return x.argmax(1, 0)


# Those with other parameters, by the name of what they call.
MORE = {
    "where": lambda x, y: x.gt(y).where(x, y), "masked_fill": lambda x, y: x.masked_fill(x.gt(y), 7.0), "clip": lambda x, y: x.clip(y, None), "clamp": lambda x, y: x.clamp(-1.0, 1.0),
    "mulacc": lambda x, y: x.mulacc(y, x), "lerp": lambda x, y: x.lerp(y, 0.25), "nan_to_num": lambda x, y: x.nan_to_num(3.0), "leaky_relu": lambda x, y: x.leaky_relu(0.1),
    "elu": lambda x, y: x.elu(0.5), "celu": lambda x, y: x.celu(0.5), "threshold": lambda x, y: x.threshold(0.25, 9.0), "hardshrink": lambda x, y: x.hardshrink(0.5),
    "softshrink": lambda x, y: x.softshrink(0.5), "logit": lambda x, y: x.logit(0.1), "adds": lambda x, y: x.adds(0.5), "pows": lambda x, y: x.pows(3.0), "maximums": lambda x, y: x.maximums(0.0),
    "permute": lambda x, y: x.permute((1, 0)), "expand": lambda x, y: x.unsqueeze(0).expand((3, -1, -1)), "flip": lambda x, y: x.flip((0, 1)), "pad": lambda x, y: x.pad((0, 1, 2, 0), -1.5),
    "pad_mode": lambda x, y: x.pad_mode((0, 0, 1, 1), "replicate", 0.0), "slice": lambda x, y: x.slice(1, -1, -100, -2), "tile": lambda x, y: x.tile((2, 3)), "repeat": lambda x, y: x.repeat(2, 1),
    "roll": lambda x, y: x.roll(-1, 1), "tril": lambda x, y: x.tril(-1), "triu": lambda x, y: x.triu(1), "diagonal": lambda x, y: x.diagonal(0), "diff": lambda x, y: x.diff(2, 1),
    "rot90": lambda x, y: x.rot90(3, 0, 1), "unfold": lambda x, y: x.unfold(1, 1, 1), "cat": lambda x, y: koine.cat([x, y, x], 1), "stack": lambda x, y: koine.stack([x, y], 2),
    "split": lambda x, y: koine.several("chunk", 2, x, 1, 2)[1], "flatten": lambda x, y: x.flatten(0, 1), "cast": lambda x, y: x.cast("i16"), "half": lambda x, y: x.cast("bf16").cast("f32"),
    "var": lambda x, y: x.var_over((1,), 0, 1.0), "std": lambda x, y: x.std_over((0,), 1, 0.0), "nanvar": lambda x, y: x.nanvar_over((1,), 0, 0.0), "quantile": lambda x, y: x.quantile_over(0.3, (1,), 0, 0),
    "sort": lambda x, y: x.sort(1, 0), "sort down": lambda x, y: x.sort(0, 1), "argsort": lambda x, y: x.argsort(1, 1), "topk": lambda x, y: koine.outputs("topk", 1, x, 1, 1, 1)[0],
    "kthvalue": lambda x, y: koine.outputs("kthvalue", 1, x, 1, 1, 0)[1], "searchsorted": lambda x, y: x.sort(1, 0).searchsorted(y, 1), "unique": lambda x, y: koine.outputs("unique", 4, x, 9)[4],
    "histogram": lambda x, y: x.histogram(4, -2.0, 2.0, None, None), "take": lambda x, y: x.take(positions(x), 1), "gather": lambda x, y: x.gather(positions(x)),
    "scatter_add": lambda x, y: x.scatter_add(positions(x), y), "scatter_reduce": lambda x, y: x.scatter_reduce(1, x.gt(y).cast("i64").muls(0), y, "amax", 1), "one_hot": lambda x, y: positions(x).one_hot(3, "f32"),
    "linear": lambda x, y: x.linear(y, None), "vecdot": lambda x, y: x.vecdot(y, 1), "softmax": lambda x, y: x.softmax(0), "layer_norm": lambda x, y: x.layer_norm(1, None, None, 1e-5),
    "rms_norm": lambda x, y: x.rms_norm(1, None, 1e-5), "normalize": lambda x, y: x.normalize(2.0, 1, 1e-12), "cosine_similarity": lambda x, y: x.cosine_similarity(y, 1, 1e-8),
    "attention": lambda x, y: x.attention(y, x, None, 1, 0.0), "max_pool": lambda x, y: x.unsqueeze(0).max_pool((2,), (1,), (1,), (1,), 0), "avg_pool": lambda x, y: x.unsqueeze(0).avg_pool((2,), (1,), (1,), 0, 1),
    "conv": lambda x, y: x.unsqueeze(1).conv(y.shrink((0, 0), (1, 1)).unsqueeze(0), None, (1,), (0,), (1,), 1), "interpolate": lambda x, y: x.unsqueeze(0).interpolate((7,), 1, 0),
    "huber_loss": lambda x, y: x.huber_loss(y, 1.0), "kl_div": lambda x, y: x.kl_div(y, 0, 2), "vector_norm": lambda x, y: x.vector_norm_over(3.0, (1,), 0), "cdist": lambda x, y: x.cdist(y, 1.0),
    "einsum": lambda x, y: koine.call("einsum", "ij,kj->ik", [x, y]), "index": lambda x, y: koine.call("index", x, [positions(x)]),
}
FUNCTIONS = {**functions(), **MORE}


@pytest.fixture(scope="module")
def computed():
    """computed(kind, device, made): every function's result or its error's number, all in few programs. made(k, a): how a tensor is made of an array."""
    done = {}

    def get(kind, device, made=lambda k, a: k.array(a)):
        if (kind, device) not in done:
            k, out = koine.Context(device), {}
            x, y = (made(k, a) for a in KINDS.get(kind, special)())
            for name, f in FUNCTIONS.items():
                t = f(x, y)
                out[name] = t.why().split(": ")[1] if koine.load().kn_check(t.h) else t
                koine.load().kn_clear(k.h)
            k.realize(*[t for t in out.values() if not isinstance(t, str)])
            done[kind, device] = {n: t if isinstance(t, str) else t.numpy() for n, t in out.items()}
            k.close()
        return done[kind, device]

    return get


def same(got, want, name):
    assert type(got) is type(want), (got, want)
    if isinstance(got, str):
        assert got == want
        return
    assert got.shape == want.shape and got.dtype == want.dtype
    loose = got.dtype.kind == "f"
    np.testing.assert_allclose(got, want, rtol=1e-5 * loose, atol=5e-6 * loose * (np.abs(want[np.isfinite(want)]).max(initial=0) > 1e-30) * max(1, want.shape[0] if want.ndim else 1) ** 0.5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_devices_agree(name, kind, computed):
    same(computed(kind, CPU)[name], computed(kind, INTERP)[name], name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_views(name, computed):
    """Of columns in reverse, transposed: the same elements."""
    views = computed("views", CPU, lambda k, a: k.array(np.ascontiguousarray(a[:, ::-1].T)).flip((0,)).transpose(0, 1))
    same(views[name], computed("special", CPU)[name], name)
