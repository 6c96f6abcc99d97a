"""koine from Python: a thin ctypes binding, used by the tests.

Prototypes are read from the C headers (tensor.h, nn.h), so nothing is written twice. A tensor function is a method or a
module function by its C name without kn_: x.softmax(-1), k.zeros((2, 3), "f32"), koine.where(p, a, b).

    k = Context("CPU")                  # or INTERP
    x = k.array(numpy_array)
    y = (x @ x.mT()).softmax(-1)
    y.numpy()                           # realises; a failure raises koine.Error with koine's message
"""
import ctypes
import os
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ["void", "bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32",
          "f64", "index"]
# bf16 and the 8-bit floats travel as their bits.
NUMPY = {"bool": np.bool_, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "i8": np.int8,
         "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
         "bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8, "index": np.int64}
OF_NUMPY = {np.dtype(v): k for k, v in NUMPY.items() if k not in ("bf16", "f8e4m3", "f8e5m2", "index")}
END = 2**63 - 1
MAX_LIST = 32


class Error(Exception):
    pass


class Ints(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int64), ("v", ctypes.c_int64 * MAX_LIST)]


def ints(values):
    values = [int(v) for v in (values if isinstance(values, (list, tuple, np.ndarray)) else [values])]
    out = Ints(len(values))
    for i, v in enumerate(values[:MAX_LIST]):
        out.v[i] = v
    return out


def dtype_number(d):
    if isinstance(d, int):
        return d
    return DTYPES.index(d if isinstance(d, str) and d in DTYPES else OF_NUMPY[np.dtype(d)])


# ---- prototypes ----

P = ctypes.c_void_p
KINDS = {"kn_tensor": P, "kn_ctx *": P, "const kn_ctx *": P, "kn_ints": Ints, "int": ctypes.c_int, "double": ctypes.c_double,
         "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "kn_dtype": ctypes.c_int,
         "kn_status": ctypes.c_int, "const char *": ctypes.c_char_p, "const kn_tensor *": P, "kn_tensor *": P,
         "const void *": P, "void *": P, "void": None, "kn_uop": P, "char *": P, "uint32_t": ctypes.c_uint32,
         "unsigned": ctypes.c_uint}
FUNCTIONS = {}


def _read(header):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    for m in re.finditer(r"KN_API\s+([\w ]+?[ *]+?)(kn_\w+)\(([^;{}()]*)\);", text):
        result, name = m[1].strip(), m[2]
        kinds = [re.sub(r"\w+$", "", p.strip()).strip() if p.strip() != "void" else "void" for p in m[3].split(",")]
        kinds = [] if kinds == ["void"] else kinds
        if result in KINDS and all(x in KINDS for x in kinds):
            FUNCTIONS[name] = (result, kinds)


for _h in ("base.h", "tensor.h", "nn.h"):
    _read(ROOT / "include" / "koine" / _h)

_lib = None


def load(path=None):
    """The library; path, else KOINE_LIB, else the build folder's."""
    global _lib
    if _lib is None:
        build = os.environ.get("KOINE_BUILD", str(ROOT / "build"))
        _lib = ctypes.CDLL(str(path or os.environ.get("KOINE_LIB") or Path(build) / "libkoine.so"))
        for name, (result, kinds) in FUNCTIONS.items():
            f = getattr(_lib, name, None)
            if f is not None:
                f.restype, f.argtypes = KINDS[result], [KINDS[x] for x in kinds]
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


def _flatten(args):
    """A list of tensors stands for the pair (pointer, count)."""
    flat = []
    for a in args:
        flat += [a, len(a)] if isinstance(a, list) and a and isinstance(a[0], Tensor) else [a]
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
    result, kinds = FUNCTIONS["kn_" + name]
    flat, keep = _flatten(args), []
    if len(flat) != len(kinds):
        raise TypeError(f"kn_{name}({', '.join(kinds)}) called with {len(flat)} arguments")
    r = f(*[_convert(k, v, keep) for k, v in zip(kinds, flat)])
    return Tensor(_context(args), r) if result == "kn_tensor" else r


def several(name, n, *args):
    """A call whose last parameter receives n tensors (split, chunk, grad): the tensors."""
    f = getattr(load(), "kn_" + name)
    kinds, out, keep = FUNCTIONS["kn_" + name][1], (P * max(n, 1))(), []
    f(*[_convert(k, v, keep) for k, v in zip(kinds, _flatten(args))], ctypes.cast(out, P))
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
