"""dtypes as objects that equal numpy's, and what the array API asks about them."""
import numpy as np

from . import _abi
from ._context import DTypeError

LONG = {"u": "uint", "i": "int", "f": "float"}
ODD = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bool": "bool", "index": "index"}
BITS_OF = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}  # what numpy lacks


class DType:
    """A dtype: koine.float32. Equal to numpy's dtype of the same name and to its names ("float32", "f32")."""

    __slots__ = ("number", "short", "name", "itemsize", "kind", "_hash")

    def __init__(self, short, number, itemsize):
        self.short, self.number, self.itemsize = short, number, itemsize
        self.kind = {"bool": "b", "bf16": "f", "index": "i"}.get(short, short[0])
        self.name = ODD.get(short) or LONG[short[0]] + short[1:]
        self._hash = hash(np.dtype(self.name)) if self.in_numpy else hash(self.name)

    @property
    def in_numpy(self):
        return self.name not in BITS_OF and self.name != "index"

    @property
    def dtype(self):
        """numpy's dtype: so that numpy takes this object as one."""
        if not self.in_numpy and self.name in BITS_OF:
            try:
                import ml_dtypes
                return np.dtype(getattr(ml_dtypes, self.name))
            except ImportError:
                raise DTypeError(f"numpy has no {self.name}: install ml_dtypes, or astype float32 first") from None
        return np.dtype("int64" if self.name == "index" else self.name)

    def __eq__(self, other):
        if isinstance(other, DType):
            return self is other
        if isinstance(other, str):
            return other in (self.name, self.short)
        if isinstance(other, type):
            try:
                other = np.dtype(other)
            except TypeError:
                return NotImplemented
        return other.name == self.name if isinstance(other, np.dtype) else NotImplemented

    def __hash__(self):
        return self._hash

    def __repr__(self):
        return f"koine.{self.name}"

    def __str__(self):
        return self.name

    def __reduce__(self):
        return dtype, (self.name,)


_sizes = {"bool": 1, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "index": 8}
ALL = [None] * (max(_abi.DTYPE_NUMBERS.values()) + 1)
for _short, _number in _abi.DTYPE_NUMBERS.items():
    if _short != "void":
        ALL[_number] = DType(_short, _number, _sizes.get(_short) or int(_short[1:]) // 8)
BY_NAME = {n: d for d in ALL if d for n in (d.name, d.short)}
_known = {bool: BY_NAME["bool"], int: BY_NAME["int64"], float: BY_NAME["float32"]}  # Python's types: the default dtypes


def dtype(d):
    """The DType that d names: a DType, a name, numpy's dtype, or bool, int, float for the default ones."""
    if isinstance(d, DType):
        return d
    if d is None or hasattr(d, "__array__") and not isinstance(d, type):  # numpy reads None as float64; np.float32 is a class with __array__
        raise DTypeError(f"a dtype expected, not {'None' if d is None else 'an array: x.dtype is its dtype'}")
    try:
        return _known[d]
    except (KeyError, TypeError):
        pass
    found = BY_NAME.get(d) if isinstance(d, str) else None
    if found is None:
        try:
            found = BY_NAME.get(np.dtype(d).name)
        except (TypeError, ValueError):
            pass
    if found is None:
        raise DTypeError(f"{d!r} is no dtype of koine; those are {', '.join(x.name for x in ALL if x and x.name != 'index')} (no complex ones)")
    try:
        _known[d] = found
    except TypeError:
        pass
    return found


_named = dtype


def dtype_of(x):
    """The dtype of an array, or that which x names."""
    return dtype(x if isinstance(x, type) else getattr(x, "dtype", x))


def default(kind):
    return _known[{"b": bool, "u": int, "i": int, "f": float}[kind]]


# ---- the array API's questions ----

KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f", "complex floating": "", "numeric": "iuf"}


def isdtype(dtype, kind):
    """Is dtype of a kind: a dtype, one of "bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric", or a tuple of such?"""
    d = _named(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, k) for k in kind)
    if isinstance(kind, str) and kind in KINDS:
        return d.kind in KINDS[kind]
    return d == _named(kind)


class finfo:
    """Limits of a floating dtype: bits, eps, max, min, smallest_normal, dtype."""

    TABLE = {"float8_e4m3fn": (2.0**-3, 448.0, 2.0**-6), "float8_e5m2": (2.0**-2, 57344.0, 2.0**-14), "bfloat16": (2.0**-7, 255 * 2.0**120, 2.0**-126)}

    def __init__(self, type):
        d = dtype_of(type)
        if d.kind != "f":
            raise DTypeError(f"finfo: {d} is no floating dtype; iinfo is for integers")
        if d.name in self.TABLE:
            self.eps, self.max, self.smallest_normal = self.TABLE[d.name]
        else:
            f = np.finfo(d.name)
            self.eps, self.max, self.smallest_normal = float(f.eps), float(f.max), float(f.smallest_normal)
        self.bits, self.min, self.dtype = d.itemsize * 8, -self.max, d

    def __repr__(self):
        return f"finfo({self.dtype}: eps={self.eps}, max={self.max}, smallest_normal={self.smallest_normal})"


class iinfo:
    """Limits of an integer dtype: bits, max, min, dtype."""

    def __init__(self, type):
        d = dtype_of(type)
        if d.kind not in "iu":
            raise DTypeError(f"iinfo: {d} is no integer dtype; finfo is for floating ones")
        self.bits, self.dtype = d.itemsize * 8, d
        self.max = 2 ** (self.bits - (d.kind == "i")) - 1
        self.min = -self.max - 1 if d.kind == "i" else 0

    def __repr__(self):
        return f"iinfo({self.dtype}: min={self.min}, max={self.max})"
