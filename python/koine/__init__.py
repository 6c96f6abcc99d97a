"""koine: a tensor compiler in C, from Python.

    import koine as kn

    x = kn.asarray(numpy_array)              # numbers, nested lists, numpy's arrays, other libraries'
    y = kn.softmax(x @ w + b)                # lazy: checked at once, computed when its values are asked for
    print(y)                                 # here; float(y), np.asarray(y), kn.realize(y, z) too
    g = kn.grad(loss)(w)                     # derivatives; kn.function compiles once
    with kn.device("INTERP"): ...            # another device for what is made inside

The names are those of the array API standard (2024.12), and beyond it those of koine's C functions without kn_. Shapes and
dtypes that do not fit raise at the line that did it (kn.Error, which is a ValueError, TypeError, IndexError, ... as it fits).
"""
from . import _functions as _f
from ._abi import TO_END  # noqa: F401
from ._array import Array, asarray
from ._context import ArgumentError, AxisError, Context, DTypeError, Error, FileError, NoMemoryError, UnsupportedError, device  # noqa: F401
from ._context import current as current_context  # noqa: F401
from ._dtypes import ALL as _ALL, DType, dtype  # noqa: F401

__array_api_version__ = "2024.12"
globals().update(_f.GENERATED)
from . import _api  # noqa: E402
from ._api import __array_namespace_info__  # noqa: E402,F401

_own = ("koine", "koine._api", "koine._dlpack", "koine._dtypes")
globals().update({n: v for n, v in vars(_api).items() if not n.startswith("_") and (getattr(v, "__module__", None) in _own or type(v) is float)})
newaxis = None

globals().update({d.name: d for d in _ALL if d and d.name != "index"})
float8_e4m3, index_dtype = globals()["float8_e4m3fn"], _ALL[-1]
__version__ = __import__("koine._context", fromlist=["L"]).L.kn_version().decode()

del fft  # noqa: F821  (the function: koine.fft is the module)
from . import datasets, fft, linalg, nn, random  # noqa: E402,F401
from ._capture import capture  # noqa: E402,F401
from ._transform import checkpoint, function, grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp  # noqa: E402,F401


def _methods():
    """Functions whose first operand is an array are its methods."""
    first = {f: s[0] for f in _f.GENERATED for s in [_f.signature(_f.FUNCTIONS["kn_" + f])] if s and s[0].kind == "kn_tensor"}
    for name, f in list(globals().items()):
        code = getattr(f, "__code__", None)
        if code and code.co_argcount and (name in first or code.co_varnames[0] == "x" and not name.startswith("_")) and not hasattr(Array, name):
            setattr(Array, name, f)


def _reduction(f):
    """The method, also as numpy's functions call it: np.mean(x) is x.mean(axis=None, dtype=None, out=None)."""
    import functools

    @functools.wraps(f)
    def method(x, axis=None, dtype=None, out=None, ddof=None, **more):
        if out is not None:
            raise TypeError(f"{f.__name__}: out= has no meaning here: arrays are computed later")
        if ddof:
            more["correction"] = ddof
        return f(x if dtype is None else x.astype(dtype), axis=axis, **more)

    return method


_methods()
for _name in ("sum", "prod", "max", "min", "mean", "any", "all", "var", "std"):
    setattr(Array, _name, _reduction(globals()[_name]))
Array.reshape = lambda x, *shape, copy=None: globals()["reshape"](x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape, copy=copy)
Array.reshape.__doc__ = globals()["reshape"].__doc__
