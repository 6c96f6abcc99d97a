"""Each function of tensor.h that takes tensors has its derivatives tested (test_grad.py's cases, against finite differences, forward and
backward, and twice where it is smooth), or stands here: it has none, and what is said of that. A new function has to be in one of the two."""
import koine
import numpy as np
import pytest
import test_grad
from koine import _abi
from test_errors import calls_of

A = np.array([[0.3, -1.2, 2.7], [1.6, -0.4, 0.9]])
# Steps and constants: between the steps nothing changes. PyTorch's gradients of these are zeros too.
FLAT = {
    "floor": lambda x: x.floor(), "ceil": lambda x: x.ceil(), "round": lambda x: x.round(), "trunc": lambda x: x.trunc(), "sign": lambda x: x.sign(),
    "floor_divide": lambda x: x.floor_divide(x.square()), "trunc_divide": lambda x: x.trunc_divide(x.square()), "detach": lambda x: x.detach(),
    "full_like": lambda x: x.full_like(2.0), "ones_like": lambda x: x.ones_like(), "zeros_like": lambda x: x.zeros_like(),
    "bernoulli": lambda x: x.sigmoid().bernoulli(None), "param": lambda x: x.param(), "nextafter": lambda x: x.nextafter(x.exp()),
}
# Truths and integers: what is differentiated must be a float.
WHOLE = {
    "argmax": lambda x: x.argmax(0, 0), "argmin": lambda x: x.argmin(0, 0), "argsort": lambda x: x.argsort(0, 0), "all": lambda x: x.all(), "any": lambda x: x.any(),
    "all_over": lambda x: x.all_over((0,), 0), "any_over": lambda x: x.any_over((0,), 0), "bucketize": lambda x: x.bucketize(x.k.array(np.arange(3.0)), 0),
    "searchsorted": lambda x: x.k.array(np.arange(3.0)).searchsorted(x.flatten(0, 1), 0), "count_nonzero": lambda x: x.count_nonzero(),
    "count_nonzero_over": lambda x: x.count_nonzero_over((0,), 0), "cummax_indices": lambda x: x.cummax_indices(0), "cummin_indices": lambda x: x.cummin_indices(0),
    "isfinite": lambda x: x.isfinite(), "isinf": lambda x: x.isinf(), "isnan": lambda x: x.isnan(), "signbit": lambda x: x.signbit(), "logical_not": lambda x: x.logical_not(),
    "matrix_rank": lambda x: x.matrix_rank(0.0), "nonzero": lambda x: x.nonzero(6, None),
    **{n: lambda x, n=n: koine.call(n, x, x.square()) for n in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")},
    **{n: lambda x, n=n: koine.call(n, x, 0.5) for n in ("eqs", "nes", "lts", "les", "gts", "ges")},
}
# Of integers alone; bits; what runs, describes, keeps or writes; layers and optimizers, which are made of the others.
OTHER = {
    "bitwise_and bitwise_not bitwise_or bitwise_xor shift_left shift_right threefry one_hot": "of integers",
    "bitcast": "of bits: test_bits",
    "at_ capture_at captured_free check context data drop dtype_of graph hand_up item keep numel rank realize_at replay shape size sym to_host why write": "describes, runs or keeps",
    "assign setitem": "writes: a gradient by what is written ends there",
    "function checkpoint grad grad1 vjp jvp hvp jacobian hessian": "of functions: test_function.c, test_checkpoint.py, test_grad.py",
    "copy_to": "between devices: test_copy",
    "key_fold key_split normal rand_as randint randn_as random_bits uniform": "of a key alone, which is an integer",
    "exponential laplace gumbel logistic cauchy truncated_normal permutation": "of a key alone, which is an integer",
    "categorical multinomial poisson binomial": "drawn: whole numbers",
    "gamma chi_square student_t beta dirichlet": "drawn by tries: a gradient is that of the try taken, not the distribution's",
    "shuffle": "taken at places that are drawn: as take",
    "straight_through gumbel_softmax fake_quantize_per_tensor_affine fake_quantize_per_channel_affine": "straight-through: test_straight.py",
    "dropout rrelu": "drawn anew by each call: test_dropout, test_keys.py",
    "linear_apply conv2d_apply layer_norm_apply batch_norm_apply adam adamw sgd optim_step optim_realize optim_capture": "nn.h: tests/nn, tests/tensor/test_layers.c",
}


@pytest.fixture(scope="module")
def k():
    c = koine.Context("INTERP")
    yield c
    c.close()


def test_every_function_has_its_derivative_or_a_reason():
    tested = set()
    for shapes, f, _, _ in test_grad.CASES.values():
        tested |= calls_of(lambda k: f(*[k.array(np.full(s, 0.5)) for s in shapes]))
    reasons = {name for names in OTHER for name in names.split()}
    functions = {f.name.removeprefix("kn_") for f in _abi.FUNCTIONS.values() if f.header in ("tensor.h", "nn.h") and {"kn_tensor", "const kn_tensor *"} & set(f.kinds)}
    missing = functions - tested - set(FLAT) - set(WHOLE) - reasons
    assert not missing, f"no derivative is tested: {sorted(missing)}: a case in test_grad.py, or a reason here"


@pytest.mark.parametrize("name", FLAT)
def test_flat(k, name):
    x = k.array(A)
    y = FLAT[name](x).check()
    assert not y.sum().grad1(x).numpy().any() and not koine.call("jvp", y, [x], [x]).numpy().any()


@pytest.mark.parametrize("name", WHOLE)
def test_whole(k, name):
    x = k.array(A)
    y = WHOLE[name](x).check()
    assert y.dtype[0] in "iub"
    with pytest.raises(koine.Error, match=rf"KN1170: grad: what is differentiated has dtype {y.dtype}"):
        y.grad1(x).check()
    koine.load().kn_clear(k.h)
    assert not y.cast("f64").sum().grad1(x).numpy().any()  # a float made of it is flat


def test_dropout(k):
    x = k.array(np.ones(100))
    y = x.dropout(0.5, None)
    g = y.sum().grad1(x)
    k.realize(y, g)
    assert np.array_equal(y.numpy(), g.numpy()) and set(y.numpy()) == {0.0, 2.0}


def test_bits(k):
    x = k.array(A)
    assert not x.bitcast("i64").bitcast("f64").sum().grad1(x).numpy().any()
    with pytest.raises(koine.Error, match="KN1172: grad: op bitcast"):
        x.bitcast("f32").sum().grad1(x).check()
    koine.load().kn_clear(k.h)


def test_copy(k):
    x = k.array(A)
    assert np.array_equal(x.copy_to("INTERP").mul(x).sum().grad1(x).numpy(), 2 * A) and x.copy_to("CPU").square().sum().grad1(x).check().shape == A.shape
