"""The C functions by their names, for tests and benches: one call, one C call, nothing checked or converted.

A tensor function is a method or a module function by its C name without kn_: x.softmax(-1), k.zeros((2, 3), "f32"), thin.where(p, a, b).

    from koine import _thin as koine
    k = koine.Context("CPU")            # or INTERP
    x = k.array(numpy_array)
    y = (x @ x.mT()).softmax(-1)
    y.numpy()                           # realises; a failure raises Error with koine's message
"""
import ctypes

import numpy as np

from . import _abi
from ._abi import FUNCTIONS, KINDS, P, TO_END as END  # noqa: F401

DTYPES = sorted(_abi.DTYPE_NUMBERS, key=_abi.DTYPE_NUMBERS.get)
# bf16 and the 8-bit floats travel as their bits.
NUMPY = {"bool": np.bool_, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "i8": np.int8,
         "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
         "bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8, "index": np.int64}
OF_NUMPY = {np.dtype(v): k for k, v in NUMPY.items() if k not in ("bf16", "f8e4m3", "f8e5m2", "index")}


class Error(Exception):
    pass


def ints(values):
    return _abi.ints([int(v) for v in (values if isinstance(values, (list, tuple, np.ndarray)) else [values])])


def dtype_number(d):
    if isinstance(d, int):
        return d
    return DTYPES.index(d if isinstance(d, str) and d in DTYPES else OF_NUMPY[np.dtype(d)])


_lib = None


def load(path=None):
    """The library, with other threads let run."""
    global _lib
    if _lib is None:
        _abi.load(path)
        _lib = _abi.slow()
    return _lib


def _convert(kind, v, keep):
    if kind in ("kn_tensor", "kn_ctx *", "const kn_ctx *"):
        return None if v is None else v.h
    if kind == "kn_ints":
        return ints(v)
    if kind == "kn_dtype":
        return dtype_number(v)
    if kind == "const char *":
        return v.encode() if isinstance(v, str) else v
    if kind == "const kn_tensor *":
        a = (P * max(len(v), 1))(*[t.h if t is not None else None for t in v])
        keep.append(a)
        return ctypes.cast(a, P)
    return v


def _flatten(args, kinds):
    """A list of tensors, None among them, stands for the pair (pointer, count); two with one count stand for the three."""
    flat = []
    for a in args:
        flat.append(a)
        if isinstance(a, list) and a and all(t is None or isinstance(t, Tensor) for t in a) and kinds[len(flat)] != "const kn_tensor *":
            flat.append(len(a))
    return flat


def _context(args):
    for a in args:
        a = a[0] if isinstance(a, list) and a else a
        if isinstance(a, Context):
            return a
        if isinstance(a, Tensor):
            return a.k
    return None


def call(name, *args):
    """kn_<name>(args)."""
    f = getattr(load(), "kn_" + name)
    c = FUNCTIONS["kn_" + name]
    kinds = c.kinds
    flat, keep = _flatten(args, kinds), []
    if len(flat) != len(kinds):
        raise TypeError(f"kn_{name}({', '.join(kinds)}) called with {len(flat)} arguments")
    r = f(*[_convert(k, v, keep) for k, v in zip(kinds, flat)])
    return Tensor(_context(args), r) if c.result == "kn_tensor" else r


def several(name, n, *args):
    """A call whose last parameter receives n tensors (split, chunk, grad): the tensors."""
    f = getattr(load(), "kn_" + name)
    kinds, out, keep = FUNCTIONS["kn_" + name].kinds, (P * max(n, 1))(), []
    f(*[_convert(k, v, keep) for k, v in zip(kinds, _flatten(args, kinds))], ctypes.cast(out, P))
    return [Tensor(_context(args), out[i]) for i in range(n)]


def outputs(name, n, *args):
    """A call whose last n parameters each receive a tensor (topk): [its result, those]."""
    out = [P() for _ in range(n)]
    r = call(name, *args, *[ctypes.byref(o) for o in out])
    return [r] + [Tensor(r.k, o) for o in out]


class Context:
    def __init__(self, device=None):
        load()
        self.h = _lib.kn_open(device.encode() if device else None)
        if not self.h:
            raise Error("kn_open failed")

    def close(self):
        if self.h:
            _lib.kn_close(self.h)
            self.h = None

    def array(self, a, dtype=None):
        """A tensor of a numpy array's (or number list's) data; dtype names one that numpy lacks."""
        a = np.asarray(a)
        shape, a = a.shape, np.ascontiguousarray(a)
        d = dtype or OF_NUMPY[a.dtype]
        return Tensor(self, _lib.kn_from_host(self.h, a.ctypes.data, dtype_number(d), ints(shape)))

    def message(self):
        return _lib.kn_message(self.h).decode()

    def realize(self, *tensors):
        a = (P * len(tensors))(*[t.h for t in tensors])
        if _lib.kn_realize_at(None, 0, len(tensors), ctypes.cast(a, P)):
            text = self.message()
            _lib.kn_clear(self.h)
            raise Error(text)

    def __getattr__(self, name):
        if "kn_" + name not in FUNCTIONS:
            raise AttributeError(name)
        return lambda *args: call(name, self, *args)


class Tensor:
    def __init__(self, k, h):
        self.k, self.h = k, h

    @property
    def dtype(self):
        return DTYPES[_lib.kn_dtype_of(self.h)]

    @property
    def shape(self):
        s = _lib.kn_shape(self.h)
        return tuple(s.v[: s.n])

    def why(self):
        return _lib.kn_why(self.h).decode()

    def check(self):
        if _lib.kn_check(self.h):
            text = self.why()
            _lib.kn_clear(self.k.h)
            raise Error(text)
        return self

    def numpy(self):
        self.check()
        a = np.empty(self.shape, NUMPY[self.dtype])
        if _lib.kn_to_host(self.h, a.ctypes.data, a.nbytes):
            text = self.k.message()
            _lib.kn_clear(self.k.h)
            raise Error(text)
        return a

    def item(self):
        return self.numpy().item()

    def _with(self, name, other):
        return call(name, self, other) if isinstance(other, Tensor) else call(name + "s", self, other)

    def __getattr__(self, name):
        if "kn_" + name not in FUNCTIONS:
            raise AttributeError(name)
        return lambda *args: call(name, self, *args)

    __add__ = lambda a, b: a._with("add", b)
    __sub__ = lambda a, b: a._with("sub", b)
    __mul__ = lambda a, b: a._with("mul", b)
    __truediv__ = lambda a, b: a._with("div", b)
    __pow__ = lambda a, b: a._with("pow", b)
    __lt__ = lambda a, b: a._with("lt", b)
    __gt__ = lambda a, b: a._with("gt", b)
    __le__ = lambda a, b: a._with("le", b)
    __ge__ = lambda a, b: a._with("ge", b)
    __matmul__ = lambda a, b: call("matmul", a, b)
    __neg__ = lambda a: call("neg", a)


def __getattr__(name):
    if "kn_" + name not in FUNCTIONS:
        raise AttributeError(name)
    return lambda *args: call(name, *args)
