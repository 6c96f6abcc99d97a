"""The functions: one Python function for each C function that makes tensors, written out from the headers' declarations.

What the declarations do not say stands in the tables here: defaults, and names that Python or the array API wants otherwise.
A function and its ..._over form are one, with axis and keepdims; a pair (array, count) is a sequence; tensors written through
pointers are what the function returns.
"""
import operator
import os
import re

import numpy as np

from . import _abi
from ._abi import FUNCTIONS, P
from ._array import Array, context_of, operand, wrap
from ._context import ArgumentError, DTypeError, L
from ._dtypes import dtype as dtype_of

# Parameters that may be left out, by name, or by function and name.
DEFAULTS = {
    "bias": None, "weight": None, "mask": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1, "eps": 1e-5, "causal": False, "scale": 0.0,
    "correction": 0.0, "dtype": None, "diagonal": 0, "offset": 0, "momentum": 0.1, "count_padding": True, "training": False,
    "softmax.axis": -1, "log_softmax.axis": -1, "softmin.axis": -1, "leaky_relu.slope": 0.01, "elu.alpha": 1.0, "celu.alpha": 1.0, "huber_loss.delta": 1.0,
    "layer_norm.axes": 1, "rms_norm.axes": 1, "pad.value": 0.0, "stack.axis": 0, "cat.axis": 0, "nan_to_num.nan": 0.0, "flatten.first": 0,
    "flatten.last": -1, "dropout.p": 0.5, "rrelu.lower": 1 / 8, "rrelu.upper": 1 / 3, "max_pool2d.stride": "size", "avg_pool2d.stride": "size", "max_pool.stride": "size", "avg_pool.stride": "size",
    "argmax.axis": None, "argmin.axis": None, "randint.dtype": "int64", "one_hot.dtype": "float32", "uniform.lo": 0.0, "uniform.hi": 1.0, "normal.mean": 0.0, "normal.deviation": 1.0,
    "sort.axis": -1, "argsort.axis": -1, "sort.descending": False, "argsort.descending": False, "topk.axis": -1, "topk.largest": True, "unfold.step": 1,
    "take.axis": 0, "roll.axis": 0, "linear.weight": ..., "embedding.weight": ..., "lerp.weight": ..., "batch_norm.mean": None, "batch_norm_train.mean": None,
    "batch_norm_train.var": None, "quantile.method": "linear", "nanquantile.method": "linear", "include_self": True, "upper": False, "unit": False, "complete": False,
    "diff.times": 1, "diff.axis": -1, "vecdot.axis": -1, "cross.axis": -1, "cdist.p": 2.0, "pad_mode.value": 0.0, "pad_mode.mode": "constant", "rot90.times": 1,
    "rot90.from": 0, "rot90.to": 1, "vector_norm.ord": 2.0, "unstack.axis": 0, "kthvalue.axis": -1, "kthvalue.keep": False, "mode.axis": -1, "mode.keep": False, "weights": None, "right": False, "tolerance": 0.0, "spacing": 1.0, "rfft.axis": -1, "irfft.axis": -1, "hfft.axis": -1, "ihfft.axis": -1, "fft.axes": -1, "ifft.axes": -1, "histogram.bins": 10, "histogram.lo": 0.0, "histogram.hi": 0.0, "logcumsumexp.axis": -1,
    "how": "mean", "ceil": False, "smoothing": 0.0, "ignore": -(2**63), "positive": None, "interpolate.how": "nearest", "align_corners": False, "output_padding": 0,
    "lp_pool.stride": "size", "lp_pool.p": 2.0, "prelu.weight": ..., "glu.axis": -1, "normalize.p": 2.0, "normalize.axis": 1, "normalize.eps": 1e-12, "cosine_similarity.axis": 1,
    "cosine_similarity.eps": 1e-8, "logit.eps": 0.0, "hardshrink.size": 0.5, "softshrink.size": 0.5, "huber_loss_as.delta": 1.0, "smooth_l1_loss.beta": 1.0,
    "kl_div.log_target": False, "poisson_nll_loss.log_input": True, "poisson_nll_loss.eps": 1e-8, "gaussian_nll_loss.eps": 1e-6, "hinge_embedding_loss.margin": 1.0,
    "margin_ranking_loss.margin": 0.0, "cosine_embedding_loss.margin": 0.0, "triplet_margin_loss.margin": 1.0, "ctc_loss.blank": 0, "ctc_loss.zero_infinity": False,
    "key": None, "key_split.key": ..., "key_split.n": 2, "key_fold.key": ..., "threefry.key": ..., "location": 0.0, "exponential.scale": 1.0, "laplace.scale": 1.0, "gumbel.scale": 1.0, "logistic.scale": 1.0, "cauchy.scale": 1.0,
    "shuffle.axis": 0, "categorical.axis": -1, "gumbel_softmax.tau": 1.0, "hard": False, "gumbel_softmax.axis": -1, "fake_quantize_per_tensor_affine.scale": ..., "fake_quantize_per_channel_affine.scale": ..., "replace": True, "random_bits.dtype": "uint32",
    "local_response_norm.alpha": 1e-4, "local_response_norm.beta": 0.75, "local_response_norm.add": 1.0,
}
NAMES = {"keep": "keepdims", "in": "inputs", "from": "source", "to": "destination", "lambda": "lambda_", "def": "default"}
# Not for users of Python: handles, memory, places; what _array, _transform and nn serve; literals, which are operands.
LEFT_OUT = {"keep", "hand_up", "context", "from_graph", "from_host", "borrow_host", "scalar", "int", "function", "grad", "grad1", "vjp", "jvp", "hvp", "checkpoint", "jacobian", "hessian", "at_", "cat2",
            "split", "chunk", "assign", "param", "full", "full_like", "zeros", "ones", "zeros_like", "ones_like", "arange", "linspace", "eye", "copy_to", "setitem"}
_counts = ("int", "unsigned", "int64_t", "uint64_t", "uint32_t", "size_t")
SCALARS = {**{kind: "_index({}, {!r})" for kind in _counts}, "double": "_real({}, {!r})", "kn_dtype": "_number_of({})", "kn_ints": "_int_list({}, {!r})", "const char *": "_text_of({}, {!r})"}


def said(v):
    """An object as an error names it."""
    return f"an array of shape {v.shape}" if hasattr(v, "shape") else repr(v) if len(repr(v)) < 60 else f"a {type(v).__name__}"


def wrong(expected, v, name):
    return DTypeError(f"{name + ': ' if name else ''}{expected} expected, not {said(v)}")


def int_list(v, name=""):
    """kn_ints of an integer or a sequence of them; of pads also of pairs, as numpy has them."""
    try:
        return _abi.ints([operator.index(v)])
    except TypeError:
        pass
    try:
        if name.endswith(": pads"):
            v = [i for p in v for i in (p if isinstance(p, (tuple, list, np.ndarray)) and len(p) == 2 else (p,))]
        return _abi.ints([operator.index(i) for i in v])
    except TypeError:
        raise wrong("an integer or a sequence of integers", v, name) from None


def real(v, name=""):
    if isinstance(v, bool):
        raise wrong("a number", v, name)
    try:
        return float(v)
    except (TypeError, ValueError):
        raise wrong("a number", v, name) from None


def number_of(d):
    return 14 if d is None else dtype_of(d).number  # float32


def text_of(v, name=""):
    try:
        return os.fsencode(v)
    except TypeError:
        raise wrong("text", v, name) from None


def index(v, name=""):
    try:
        return operator.index(v)
    except TypeError:
        raise wrong("an integer", v, name) from None


def choice(enum, v):
    """One of an enum by its name."""
    names = _abi.CHOICES[enum]
    if isinstance(v, str) and v.lower() in names:
        return names[v.lower()]
    if isinstance(v, str):
        raise ArgumentError(f"{v!r} is none of {', '.join(names)}")
    return index(v)


def is_literal_form(short):
    """kn_adds beside kn_add"""
    whole = FUNCTIONS.get("kn_" + short[:-1]) if short.endswith("s") else None
    return whole is not None and FUNCTIONS["kn_" + short].kinds == ["kn_tensor", "double"] and whole.kinds == ["kn_tensor", "kn_tensor"]


def is_public(f):
    short = f.name.removeprefix("kn_")
    returns = f.result == "kn_tensor" or f.result == "kn_status" and any(kind == "kn_tensor *" for kind in f.kinds)
    returns |= f.header == "io.h" and f.result == "kn_status" and f.kinds[0] == "kn_tensor"
    known = all(kind in SCALARS or kind in _abi.CHOICES or kind in ("kn_tensor", "kn_ctx *", "const kn_tensor *", "kn_tensor *") for kind in f.kinds)
    return (f.header in ("tensor.h", "io.h") and returns and known and short not in LEFT_OUT and not short.endswith("_at")
            and not is_literal_form(short) and not (short.endswith("_over") and "kn_" + short[:-5] in FUNCTIONS))


class Parameter:
    def __init__(self, function, name, kind):
        self.name, self.kind = NAMES.get(name, name), kind
        self.default = DEFAULTS.get(f"{function}.{name}", DEFAULTS.get(name, ...))

    def __str__(self):
        if self.default is ...:
            return self.name
        return f"{self.name}={None if self.default == 'size' else repr(self.default)}"


def signature(f):
    """Parameters as Python has them: no context, no counts, no results."""
    short, params, skip = f.name.removeprefix("kn_"), [], False
    for i, (kind, name) in enumerate(f.params):
        if kind in ("kn_ctx *", "kn_tensor *") or skip:
            skip = False
            continue
        skip = kind == "const kn_tensor *"
        params.append(Parameter(short, name, kind))
    while_default = False
    for p in params:  # what follows a parameter that may be left out may be, too
        while_default |= p.default is not ...
        if while_default and p.default is ...:
            for q in params[: params.index(p)]:
                q.default = ...
            while_default = False
    return params


def source(f):
    """The text of the Python function, and its signature's."""
    short, params, over = f.name.removeprefix("kn_"), signature(f), FUNCTIONS.get(f.name + "_over")
    tensors = [p.name for p in params if p.kind == "kn_tensor"]
    lists = [p.name for p in params if p.kind == "const kn_tensor *"]
    head, lines = [str(p) for p in params], []
    if over:
        head = [str(p) for p in params if p.default is ...] + ["axis=None"] + [str(p) for p in params if p.default is not ...] + ["keepdims=False"]
    for p in params:
        if p.default == "size":
            lines.append(f"if {p.name} is None: {p.name} = size")
    first = ", ".join(tensors + [f"*{x}" for x in lists])
    lines += [f"{x} = list({x})" for x in lists]
    lines += [f"_k, _d = _context_of({first})", "with _k.lock:", "    if _k.dead: _k.drain()"]
    args, outs, before = [], [], None
    for i, (kind, name) in enumerate(f.params):
        name = NAMES.get(name, name)
        if kind == "kn_ctx *":
            args.append("_k._c")
        elif kind == "kn_tensor":
            args.append(f"_operand(_k, {name}, _d)")
        elif kind == "const kn_tensor *":
            args.append(f"(_P * max(len({name}), 1))(*[_operand(_k, v, _d) for v in {name}])")
        elif before == "const kn_tensor *":
            args.append(f"len({lists[-1]})")
        elif kind == "kn_tensor *":
            outs.append(name)
            args.append("_to_" + name)
        elif kind in _abi.CHOICES and kind not in SCALARS:
            args.append(f"_choice({kind!r}, {name})")
        else:
            args.append(SCALARS[kind].format(name, f"{short}: {name}"))
        before = kind
    call_ = lambda name, args: f"_L.{name}({', '.join(args)})"
    if over:
        given = {name: a for (_, name), a in zip(f.params, args)}
        given.update(axes="_all_axes(_x) if axis is None else _int_list(axis, 'axis')", keep="bool(keepdims)", **{params[0].name: "_x"})
        lines += ["    if axis is None and not keepdims: return _wrap(_k, " + call_(f.name, args) + ")",
                  "    _x = _operand(_k, " + params[0].name + ", _d)",
                  "    return _wrap(_k, " + call_(over.name, [given[name] for _, name in over.params]) + ")"]
    elif outs:
        # One call's results are in `out`, as many as it writes: 64 are room enough, unless a list or an axis says how many.
        count = next((f"len({n})" for kind, n in reversed(f.params) if kind in ("kn_ints", "const kn_tensor *")), None) or \
            next((f"_index({n})" for kind, n in f.params if n == "n"), None) or (f"_axis_size({tensors[0]}, axis)" if any(n == "axis" for _, n in f.params) else "0")
        many = f.result == "kn_status" and outs == ["out"]
        lines += [f"    _to_{o} = (_P * {f'max({count}, 64)' if many else '1'})()" for o in outs]
        lines.append("    _result = " + call_(f.name, args))
        if f.result == "kn_status":
            lines.append("    if _result: _k.check(_result)")
        got = ["_wrap(_k, _result)"] if f.result == "kn_tensor" else []
        lines.append("    return tuple(_wrap(_k, h) for h in _to_out if h)" if many else "    return " + ", ".join(got + [f"_wrap(_k, _to_{o}[0])" for o in outs]))
    elif f.result == "kn_status":
        lines += ["    _k.values()", "    _k.check(" + call_(f.name, args) + ")"]
    else:
        lines += ["    return _wrap(_k, " + call_(f.name, args) + ")"]
    return f"def {short}({', '.join(head)}):\n    " + "\n    ".join(lines) + "\n"


def all_axes(h):
    return _abi.ints(range(L.kn_rank(h)))


def axis_size(x, axis):
    """For a call that makes as many arrays as an axis has places; one where it has no such axis, to hold the failure."""
    return x.shape[axis] if type(x) is Array and -x.ndim <= axis < x.ndim else 1


def document(f):
    """The header's comment, and where it is from; help() shows the signature."""
    doc = f.doc[:1].upper() + f.doc[1:] if re.match(r"[a-z]+[ ,;]", f.doc) and not any(re.match(rf"{n}\b", f.doc) for _, n in f.params) else f.doc
    c = whole(f)
    return (doc + "\n\n" if doc else "") + f"koine/{f.header}, {f.section}: {c.name}({', '.join(n for _, n in c.params)})"


def whole(f):
    """The declaration that Python's function of this name calls: of kn_mse_loss kn_mse_loss_as, whose further parameters may be left out."""
    more = FUNCTIONS.get(f.name + "_as")
    return more if more and more.params[: len(f.params)] == f.params and all(p.default is not ... for p in signature(more)[len(signature(f)):]) else f


def make():
    """All of them, by name. Functions whose names end in _ or that only read are left to the package."""
    room = {"_" + f.__name__: f for f in (operand, wrap, context_of, index, real, int_list, number_of, text_of, all_axes, axis_size, choice)}
    room.update(_L=L, _P=P)
    out = {}
    for f in FUNCTIONS.values():
        if not is_public(f) or not hasattr(L, f.name):
            continue
        short, called = f.name.removeprefix("kn_"), whole(f)
        text = source(called).replace(f"def {called.name.removeprefix('kn_')}(", f"def {short}(", 1)
        exec(compile(text, f"<koine {short}>", "exec"), room, out)  # not into room: some have builtins' names
        out[short].__doc__, out[short].__module__ = document(f), "koine"
    return out


GENERATED = make()
