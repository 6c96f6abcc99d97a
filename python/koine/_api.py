"""The array API standard (2024.12) by its names and parameters, over the C functions. Each is one C call, or one with its
arguments made what C takes."""
import builtins
import functools
import math
from collections import namedtuple

import numpy as np

from . import _abi, _dtypes
from ._array import PLACE, Array, _fits, asarray, call, copied, wrap
from ._context import AxisError, L, S, DTypeError, ArgumentError, current, device as context_named, devices, place
from ._dlpack import from_dlpack  # noqa: F401
from ._dtypes import finfo, iinfo, isdtype  # noqa: F401
from ._functions import GENERATED as G, int_list, index, number_of, real as _real, said

_bool, _int, _abs, _max, _min, _all, _any, _sum, _pow, _round = (getattr(builtins, n) for n in ("bool", "int", "abs", "max", "min", "all", "any", "sum", "pow", "round"))


def _on(device):
    return current() if device is None else context_named(device)


def _make(f, *args, device=None):
    k = _on(device)
    with k.lock:
        if k.dead:
            k.drain()
        return wrap(k, f(k._c, *args))


# ---- creation ----

def zeros(shape, *, dtype=None, device=None):
    """Zeros of a shape; float32 unless a dtype is given."""
    return _make(L.kn_zeros, int_list(shape), number_of(dtype), device=device)


def ones(shape, *, dtype=None, device=None):
    """Ones of a shape; float32 unless a dtype is given."""
    return _make(L.kn_ones, int_list(shape), number_of(dtype), device=device)


def empty(shape, *, dtype=None, device=None):
    """As zeros: there is no memory before something is computed."""
    return zeros(shape, dtype=dtype, device=device)


def full(shape, fill_value, *, dtype=None, device=None):
    """A shape filled with one value; the dtype is the value's unless one is given."""
    if isinstance(fill_value, str) or isinstance(fill_value, complex):
        raise DTypeError(f"full: a number expected, not {fill_value!r}")
    if fill_value is None:
        raise DTypeError("full: a number expected, not None")
    d = _dtypes.dtype(dtype if dtype is not None else fill_value.dtype if hasattr(fill_value, "dtype") else type(fill_value))
    if type(fill_value) is _int:
        _fits(fill_value, fill_value, d)
    if isinstance(fill_value, (_bool, float)) or isinstance(fill_value, _int) and _abs(fill_value) < 2**53:
        return _make(L.kn_full, int_list(shape), fill_value, d.number, device=device)
    return call(L.kn_expand, asarray(fill_value, dtype=d, device=device), int_list(shape))


def _like(x, dtype, device, value):
    if dtype is None and device is None and value in (0, 1):
        return call(L.kn_ones_like if value else L.kn_zeros_like, x)
    return full(x.shape, value, dtype=dtype or x.dtype, device=device or x._k)


def zeros_like(x, /, *, dtype=None, device=None):
    """Zeros of x's shape and dtype."""
    return _like(x, dtype, device, 0)


def ones_like(x, /, *, dtype=None, device=None):
    """Ones of x's shape and dtype."""
    return _like(x, dtype, device, 1)


def empty_like(x, /, *, dtype=None, device=None):
    """As zeros_like."""
    return _like(x, dtype, device, 0)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """One value, in x's shape and dtype."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x._k)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """start, start + step, ... below stop; from 0 if one number is given. int64, or float32 if any of the numbers is a float."""
    if stop is None:
        start, stop = 0, start
    d = dtype or (float if _any(isinstance(v, (float, np.floating)) for v in (start, stop, step)) else _int)
    return _make(L.kn_arange, *(_real(v, f"arange: {name}") for v, name in ((start, "start"), (stop, "stop"), (step, "step"))), number_of(d), device=device)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """num numbers from start to stop, evenly; endpoint False: stop is not one of them."""
    start, stop, num = _real(start, "linspace: start"), _real(stop, "linspace: stop"), index(num, "linspace: num")
    if not endpoint and num > 0:
        stop = start + (stop - start) * (num - 1) / num
    return _make(L.kn_linspace, start, stop, num, number_of(dtype), device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Ones on a diagonal (k above the main one), zeros elsewhere."""
    rows, cols = index(n_rows), index(n_rows if n_cols is None else n_cols)
    return _make(L.kn_eye, rows + _max(k, 0), cols + _max(-k, 0), number_of(dtype), device=device)[_max(k, 0) :, _max(-k, 0) :]


def array(obj, /, *, dtype=None, device=None, copy=True):
    """asarray, in memory of its own."""
    return asarray(obj, dtype=dtype, device=device, copy=copy)


def param(x):
    """x in memory of its own, which assign and optimizers write: all that share it see the new value."""
    return copied(asarray(x), PLACE)


def assign(target, value):
    """target takes value's elements, broadcast; the dtypes are equal. Returns target."""
    return target.assign(value)


# ---- dtypes ----

def astype(x, dtype, /, *, copy=True, device=None):
    """x in another dtype. Floats become integers by dropping the fraction, clamped to the range; integers wrap."""
    x = asarray(x) if device is None else asarray(x).to_device(device)
    d = _dtypes.dtype(dtype)
    return x if d.number == x._d and not copy else call(L.kn_cast, x, d.number)


def result_type(*arrays_and_dtypes):
    """The dtype in which arrays, dtypes and Python's numbers meet."""
    if not arrays_and_dtypes:
        raise ValueError("result_type: at least one array or dtype")
    k = current()
    numbers = [x for x in arrays_and_dtypes if type(x) in (_bool, _int, float)]
    rest = [x for x in arrays_and_dtypes if type(x) not in (_bool, _int, float)]
    d = _dtypes.dtype_of(rest[0]) if rest else None
    for x in rest[1:]:
        d = _meet(d, _dtypes.dtype_of(x))
    for x in numbers:
        with k.lock:
            if d is None:
                d = _dtypes.dtype(type(x))
            else:
                one = wrap(k, L.kn_zeros(k._c, _abi.ints(()), d.number))
                d = (one + x).dtype
    return d


@functools.lru_cache(None)
def _meet(a, b):
    k = current()
    with k.lock:
        x, y = (wrap(k, L.kn_zeros(k._c, _abi.ints(()), d.number)) for d in (a, b))
        return wrap(k, L.kn_add(x._h, y._h)).dtype


def can_cast(from_, to, /):
    """Does every value of one dtype (or array's) fit the other?"""
    a, b = _dtypes.dtype_of(from_), _dtypes.dtype(to)
    return a is b or (a.kind == b.kind or a.kind + b.kind in ("bu", "bi", "bf", "ui")) and _meet(a, b) is b


# ---- elementwise: names the standard has otherwise ----

def _named(name, c, doc=None):
    f = G[c]
    out = type(f)(f.__code__, f.__globals__, name, f.__defaults__)
    out.__doc__, out.__module__ = f.__doc__, "koine"
    return out


RENAMED = {"acos": "acos", "divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg", "equal": "eq", "not_equal": "ne", "less": "lt",
           "less_equal": "le", "greater": "gt", "greater_equal": "ge", "reciprocal": "recip", "bitwise_invert": "bitwise_not",
           "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "expand_dims": "unsqueeze", "swapaxes": "transpose", "ravel": "flatten",
           "concatenate": "cat", "matrix_transpose": "mT", "cumulative_max": "cummax", "cumulative_min": "cummin"}
for _name, _c in RENAMED.items():
    if _c in G:
        globals()[_name] = _named(_name, _c)


def positive(x, /):
    """x itself."""
    return asarray(x)


def clip(x, /, min=None, max=None):
    """x between min and max, each a number, an array or None."""
    if min is not None:
        x = G["maximum"](x, min)
    return x if max is None else G["minimum"](x, max)


def nan_to_num(x, /, nan=0.0, posinf=None, neginf=None):
    """nan in place of NaN, posinf and neginf in place of the infinities; None: the largest and the least of the dtype."""
    x = G["nan_to_num"](x, nan)
    if not isdtype(x.dtype, "real floating"):
        return x
    least, most = (asarray(end if v is None else v, dtype=x.dtype, device=x._k) for v, end in ((neginf, finfo(x.dtype).min), (posinf, finfo(x.dtype).max)))
    return G["where"](x == math.inf, most, G["where"](x == -math.inf, least, x))


def round(x, /, decimals=0):
    """To the nearest integer, halves to the even one; the dtype stays."""
    if decimals:
        raise ArgumentError("round: to whole numbers alone; multiply by a power of ten before, divide after")
    return G["round"](x)


# ---- reductions ----

def _in(f, doc):
    def reduce(x, /, axis=None, *, dtype=None, keepdims=False):
        if dtype is None:
            return f(x, axis, keepdims)
        return astype(f(astype(x, dtype, copy=False), axis, keepdims), dtype, copy=False)
    reduce.__name__ = reduce.__qualname__ = f.__name__
    reduce.__doc__, reduce.__module__ = doc + "\n\n" + f.__doc__.split("\n\n")[-1], "koine"
    return reduce


sum = _in(G["sum"], "The sum over all elements, or over axis (an integer or several). Of bool and integers int64 or uint64, of floats their dtype, accumulated in "
          "float32 at least; dtype: summed in that one.")
prod = _in(G["prod"], "The product over all elements, or over axis. dtypes as for sum.")


def argmax(x, /, axis=None, *, keepdims=False):
    """Where the largest element is, the first of equals: of all in row-major order, or along axis. NaN counts as largest."""
    return _extreme(G["argmax"], x, axis, keepdims)


def argmin(x, /, axis=None, *, keepdims=False):
    """Where the smallest element is, as argmax."""
    return _extreme(G["argmin"], x, axis, keepdims)


def _extreme(f, x, axis, keepdims):
    if axis is not None:
        return f(x, axis, keepdims)
    at = f(reshape(x, (-1,)), 0, False)
    return reshape(at, (1,) * x.ndim) if keepdims else at


def cumulative_sum(x, /, axis=None, *, dtype=None, include_initial=False):
    """Running sums along axis (of a vector: its only one)."""
    return _running(G["cumsum"], x, axis, dtype, include_initial, 0.0)


def cumulative_prod(x, /, axis=None, *, dtype=None, include_initial=False):
    """Running products along axis."""
    return _running(G["cumprod"], x, axis, dtype, include_initial, 1.0)


def _running(f, x, axis, dtype, include_initial, first):
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"{f.__name__}: say along which axis=: the array has {x.ndim} axes")
        axis = 0
    y = f(x, axis) if dtype is None else astype(f(astype(x, dtype, copy=False), axis), dtype, copy=False)
    if include_initial:
        pads = [0] * (2 * x.ndim)
        pads[2 * (axis % x.ndim)] = 1
        y = G["pad"](y, pads, first)
    return y


def _of_several(f):
    def quantile(x, q, axis=None, method="linear", keepdims=False):
        if np.ndim(q) == 0:
            return f(x, q, axis, method, keepdims)
        each = [f(x, v, axis, method, keepdims) for v in np.ravel(q).tolist()]
        if not each:
            raise ArgumentError(f"{f.__name__}: q has no elements; one at least")
        return stack(each).reshape(*np.shape(q), *each[0].shape)
    quantile.__name__ = quantile.__qualname__ = f.__name__
    quantile.__doc__, quantile.__module__ = f.__doc__.replace("q from 0 to 1;", "q, one or several (their axes come first), from 0 to 1;"), "koine"
    return quantile


quantile, nanquantile = _of_several(G["quantile"]), _of_several(G["nanquantile"])


# ---- shapes ----

def reshape(x, /, shape, *, copy=None):
    """The same elements in another shape; one -1: what is left."""
    if copy:
        x = copied(x)
    return call(L.kn_reshape, asarray(x), int_list(shape))


def broadcast_to(x, /, shape):
    """x repeated along axes of size 1, and new ones in front, to a shape."""
    return call(L.kn_expand, asarray(x), int_list(shape))


def broadcast_arrays(*arrays):
    """All of them in the shape they meet in."""
    shape = np.broadcast_shapes(*(x.shape for x in arrays)) if _compatible(arrays) else None
    return [broadcast_to(x, shape) for x in arrays]


def _compatible(arrays):
    try:
        return np.broadcast_shapes(*(x.shape for x in arrays)) is not None
    except ValueError:
        raise ArgumentError(f"broadcast_arrays: shapes {', '.join(str(x.shape) for x in arrays)}: sizes must be equal or 1 on each axis, counted from the end") from None


def concat(arrays, /, axis=0):
    """One behind the other along an axis; None: all flattened."""
    arrays = _met(arrays, "concat")
    return G["cat"]([reshape(x, (-1,)) for x in arrays] if axis is None else arrays, 0 if axis is None else axis)


def stack(arrays, /, axis=0):
    """Side by side along a new axis."""
    return G["stack"](_met(arrays, "stack"), axis)


def split(x, sizes, /, axis=0):
    """Cut along an axis into parts of these sizes, which add up to its own."""
    if isinstance(sizes, (_int, np.integer)):
        raise DTypeError(f"split: a list of sizes expected, not {sizes}; kn.chunk(x, {sizes}) makes {sizes} parts")
    return _several(L.kn_split, x, index(axis, "split: axis"), int_list(sizes, "split: sizes"), len(sizes))


def chunk(x, n, /, axis=0):
    """Cut along an axis into n parts, whose sizes differ by 1 at most."""
    n = index(n, "chunk: n")
    return _several(L.kn_chunk, x, index(axis, "chunk: axis"), n, n)


def _several(f, x, axis, how, n):
    x = asarray(x)
    k = x._k
    with k.lock:
        if k.dead:
            k.drain()
        out = (_abi.P * _max(n, 64))()
        k.check(f(x._h, axis, how, out))
        return tuple(wrap(k, h) for h in out if h)


def _met(arrays, name):
    """In one dtype: what cat takes."""
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise DTypeError(f"{name}: a list of arrays expected, not {said(arrays)}") if arrays != [] and arrays != () else ArgumentError(f"{name}: of no arrays; one at least")
    arrays = [asarray(x) for x in arrays]
    if len({x._d for x in arrays}) > 1:
        d = result_type(*arrays)
        arrays = [astype(x, d, copy=False) for x in arrays]
    return arrays


def pad(x, pads, value=0.0, *, mode="constant"):
    """x with a border: pairs (before, after) for each axis, of value, or by mode: "reflect", "symmetric", "edge" (or "replicate"), "wrap" (or "circular")."""
    return G["pad"](x, pads, value) if mode == "constant" else G["pad_mode"](x, pads, {"edge": "replicate", "wrap": "circular"}.get(mode, mode), value)


def unstack(x, /, axis=0):
    """x along an axis, as a tuple of arrays without it."""
    n = x.shape[axis] if -x.ndim <= axis < x.ndim else 1
    return tuple(G["select"](x, axis, i) for i in range(n))


def squeeze(x, /, axis=None):
    """Without an axis of size 1, several, or (None) all such."""
    if axis is None:
        return G["squeeze_all"](x)
    for a in sorted({_int(a) % _max(x.ndim, 1) if -x.ndim <= a < x.ndim else a for a in ([axis] if isinstance(axis, _int) else axis)}, reverse=True):
        if -x.ndim <= a < x.ndim and x.shape[a] != 1:
            raise ArgumentError(f"squeeze: axis {a} has size {x.shape[a]}, not 1")
        x = G["squeeze"](x, a)
    return x


def flip(x, /, axis=None):
    """Backwards along an axis, several, or (None) all."""
    return G["flip"](x, range(x.ndim) if axis is None else axis)


def permute_dims(x, /, axes):
    """Axis i of the result is x's axis axes[i]."""
    return G["permute"](x, axes)


def moveaxis(x, source, destination, /):
    """An axis, or several, to other places."""
    if isinstance(source, _int):
        return G["moveaxis"](x, source, destination)
    source, destination = ([_axis(x, a) for a in v] for v in (source, destination))
    if len(source) != len(destination):
        raise ArgumentError("moveaxis: as many places as axes")
    order = [a for a in range(x.ndim) if a not in source]
    for to, a in sorted(zip(destination, source)):
        order.insert(to, a)
    return G["permute"](x, order)


def _axis(x, a):
    return _axis_of(x.ndim, a)


def _axis_of(rank, a):
    if not -rank <= index(a, "axis") < rank:
        raise AxisError(f"axis {a} of an array of {rank} axes")
    return a % rank


def repeat(x, repeats, /, axis=None):
    """Each element several times in a row, along an axis or (None) of x flattened. repeats: one number for all, or one for each, whose values
    are needed now."""
    x, axis = (reshape(x, (-1,)), 0) if axis is None else (asarray(x), _axis(asarray(x), axis))
    if isinstance(repeats, (_int, np.integer)):
        return G["repeat"](x, repeats, axis)
    n = np.asarray(repeats)
    if n.dtype.kind not in "iu":
        raise DTypeError(f"repeat: integers expected, not {said(repeats)}")
    if n.ndim == 0 or n.shape == (1,):
        return G["repeat"](x, _int(n.reshape(())), axis)
    if n.shape != (x.shape[axis],) or (n < 0).any():
        raise ArgumentError(f"repeat: one number for all, or {x.shape[axis]} of them, 0 or more, for axis {axis} of {x.shape}, not {said(repeats)}")
    return G["take"](x, np.repeat(np.arange(n.size), n), axis)


def roll(x, /, shift, axis=None):
    """Elements pushed out at one end come in at the other: along an axis, several, or (None) of x as if flattened."""
    if axis is None:
        return reshape(G["roll"](reshape(x, (-1,)), shift, 0), x.shape)
    axes = [axis] if isinstance(axis, _int) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, _int) else list(shift)
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for s, a in zip(shifts, axes):
        x = G["roll"](x, s, a)
    return x


def tile(x, repetitions, /):
    """x several times beside itself; the list counts from the last axis."""
    n = [repetitions] if isinstance(repetitions, _int) else list(repetitions)
    rank = _max(len(n), x.ndim)
    x = reshape(x, (1,) * (rank - x.ndim) + x.shape) if x.ndim < rank else x
    return G["tile"](x, [1] * (rank - len(n)) + n)


def tril(x, /, *, k=0):
    """Zeros above a diagonal of the last two axes."""
    return G["tril"](x, k)


def triu(x, /, *, k=0):
    """Zeros below a diagonal of the last two axes."""
    return G["triu"](x, k)


def take(x, indices, /, axis=None):
    """x at positions along an axis; negative ones count from the end, one out of range gives 0. None: of a vector."""
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"take: an axis, for an array of {x.ndim} axes")
    return G["take"](x, indices, axis or 0)


def take_along_axis(x, indices, /, axis=-1):
    """x's element at a position along axis, for each of indices, which has x's other sizes (or 1)."""
    return G["take_along_axis"](x, indices, axis)


def where(condition, x1, x2, /):
    """x1 where condition is true, else x2, broadcast."""
    return G["where"](condition, x1, x2)


# ---- where C has the function ----

def real(x, /):
    """x: there are no complex arrays."""
    return asarray(x)


def conj(x, /):
    """x: there are no complex arrays."""
    return asarray(x)


def imag(x, /):
    """Complex numbers are out of koine's scope."""
    raise DTypeError("imag: there are no complex arrays; real(x) is x")


if "sort" in G:
    def sort(x, /, axis=-1, *, descending=False, stable=True):
        """x in order along an axis; equals keep theirs, NaN counts as largest."""
        return G["sort"](x, axis, descending)

    def argsort(x, /, axis=-1, *, descending=False, stable=True):
        """Where the elements of sort(x) are in x."""
        return G["argsort"](x, axis, descending)

if "meshgrid" in G:
    def meshgrid(*arrays, indexing="xy"):
        """Vectors as the coordinates of a grid; indexing "xy": the first two axes swapped, "ij": as they come."""
        if indexing not in ("xy", "ij"):
            raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
        return list(G["meshgrid"](_met(arrays, "meshgrid"), indexing == "xy")) if arrays else []

if "broadcast_tensors" in G:
    def broadcast_arrays(*arrays):  # noqa: F811
        """All of them in the shape they meet in."""
        return list(G["broadcast_tensors"](arrays))

if "clip" in G:
    def clip(x, /, min=None, max=None):  # noqa: F811
        """x between min and max, each a number, an array or None."""
        return G["clip"](x, min, max)

if "einsum" in G:
    def einsum(expression, *operands):
        return G["einsum"](expression, operands)

    einsum.__doc__ = G["einsum"].__doc__

if "tensordot" in G:
    def tensordot(x1, x2, /, *, axes=2):
        """Summed over pairs of axes: the last n of x1 with the first n of x2, or (axes of x1, axes of x2)."""
        x1, x2 = asarray(x1), asarray(x2)
        if isinstance(axes, _int):
            if not 0 <= axes <= _min(x1.ndim, x2.ndim):
                raise AxisError(f"tensordot: {axes} axes of arrays of {x1.ndim} and {x2.ndim}")
            axes = (range(x1.ndim - axes, x1.ndim), range(axes))
        return G["tensordot"](x1, x2, axes[0], axes[1])

if "diff" in G:
    def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
        """x[i + 1] - x[i] along an axis, n times; prepend and append are put at its ends before."""
        parts = [p for p in (prepend, x, append) if p is not None]
        return G["diff"](concat(parts, axis=axis) if len(parts) > 1 else x, n, axis)

if "searchsorted" in G:
    _search = G["searchsorted"]

    def searchsorted(x1, x2, /, *, side="left", sorter=None):
        """Where each of x2 would stand in the sorted vector x1: before its equals (left) or behind them (right)."""
        if side not in ("left", "right"):
            raise ArgumentError(f"searchsorted: side is 'left' or 'right', not {side!r}")
        return _search(x1 if sorter is None else G["take"](x1, sorter, 0), x2, side == "right")


# ---- shapes that depend on data: bounded by size, or computed now ----

UniqueAllResult = namedtuple("UniqueAllResult", "values indices inverse_indices counts")
UniqueCountsResult = namedtuple("UniqueCountsResult", "values counts")
UniqueInverseResult = namedtuple("UniqueInverseResult", "values inverse_indices")


def _counted(name, x, size):
    """How many there may be; None: as many as there are, which is only known once x is."""
    if size is None and x._k.tracing:
        raise ArgumentError(f"{name} {x._k.meanwhile}: how many there are depends on data, and a shape cannot: {name}(x, size=n) has room for n, x.size at most")
    return x.size if size is None else index(size, f"{name}: size")


def _unique(name, x, size):
    x = asarray(x)
    values, at, inverse, counts, number = G["unique"](x, _counted(name, x, size))
    if size is None:
        n = number.item()
        values, at, counts = values[:n], at[:n], counts[:n]
    return values, at, inverse, counts


def unique_values(x, /, *, size=None):
    """The distinct elements of x, ascending: the first `size` of them, 0 behind those that there are; None: as many as there are, computed now."""
    return _unique("unique_values", x, size)[0]


def unique_counts(x, /, *, size=None):
    """(unique_values(x), how often each is there)."""
    values, _, _, counts = _unique("unique_counts", x, size)
    return UniqueCountsResult(values, counts)


def unique_inverse(x, /, *, size=None):
    """(unique_values(x), which of them each element of x is)."""
    values, _, inverse, _ = _unique("unique_inverse", x, size)
    return UniqueInverseResult(values, inverse)


def unique_all(x, /, *, size=None):
    """(unique_values(x), where each is first, which of them each element of x is, how often each is there)."""
    return UniqueAllResult(*_unique("unique_all", x, size))


def bincount(x, /, size=None, weights=None, *, minlength=0):
    """How often each of 0 .. size - 1 is in x, or the sum of its weights; None: as many as x's largest, computed now, and minlength ask for."""
    x = asarray(x)
    if size is None:
        _counted("bincount", x, None)
        size = _max(G["max"](x).item() + 1 if x.size else 0, index(minlength, "bincount: minlength"))
    return G["bincount"](x, size, weights)


def nonzero(x, /, size=None):
    """Where x is not 0: positions along each of its axes, as many as there are, computed now. With a size: (the first `size` of them, (size, x.ndim),
    x's shape behind those that there are; how many there are)."""
    x = asarray(x)
    if size is not None:
        return G["nonzero"](x, size)
    if not x.ndim:
        raise ArgumentError("nonzero: of an array without axes there are no positions")
    _counted("nonzero", x, None)
    return unstack(G["nonzero"](x, G["count_nonzero"](x).item())[0], axis=1)


# ---- running ----

def realize(*arrays):
    """Computes arrays (also in nested lists, tuples and dicts) together, in one program, and returns them. What is not computed
    before is when its values are asked for."""
    flat, rest = [], list(arrays)
    while rest:
        x = rest.pop()
        if type(x) is Array:
            flat.append(x)
        elif isinstance(x, (list, tuple)):
            rest += x
        elif isinstance(x, dict):
            rest += x.values()
        else:
            raise DTypeError(f"realize: an array expected, not {said(x)}")
    if flat:
        computed(flat[0]._k, flat)
    return arrays[0] if len(arrays) == 1 else arrays


def computed(k, arrays):
    """Computes a list of arrays of context k."""
    with k.lock:
        k.values()
        if k.dead:
            k.drain()
        file, line = place()
        n = len(arrays)
        status = S.kn_realize_at(file, line, n, (_abi.P * n)(*[x._h for x in arrays]))
        if status:
            k.fail(status)


def sym(variable):
    """A koine.variable as a size in a shape: kn.shrink(x, (0, 0), (kn.sym(n), 4)). Its value arrives with kn.bind(name, value)."""
    k = variable._k
    with k.lock:
        size = L.kn_sym(variable._h)
        if size == -1:
            k.fail()
    return size


def bind(name, value):
    """Gives a variable of the current context its value for what is computed from now on."""
    k = current()
    with k.lock:
        k.between("bind")
        k.check(L.kn_bind(k._c, name.encode(), index(value)))


def manual_seed(seed):
    """Where the random functions start from, on the current context."""
    k = current()
    with k.lock:
        k.between("seed")
        L.kn_manual_seed(k._c, index(seed))


class _Info:
    """__array_namespace_info__"""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self):
        return current().name

    def default_dtypes(self, *, device=None):
        return {"real floating": _dtypes.dtype(float), "complex floating": None, "integral": _dtypes.dtype(_int), "indexing": _dtypes.dtype(_int)}

    def dtypes(self, *, device=None, kind=None):
        standard = [d for d in _dtypes.ALL if d and d.name not in ("index", "float16", *_dtypes.BITS_OF)]
        return {d.name: d for d in standard if kind is None or isdtype(d, kind)}

    def devices(self):
        return list(devices())


def __array_namespace_info__():
    """What the array API asks of a namespace: capabilities, dtypes, devices."""
    return _Info()


e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
