"""The array object: a handle of a lazy tensor, with Python's operators, and the ways in and out of it.

Every operation makes a C call at once, which checks shapes and dtypes; what it computes runs when values are asked for: by
realize, print, float, numpy. An array is a value: x[0] = 1 changes x alone, never what was computed from it or is a view of
it. (An array made by param() is a place instead: what its layer, its optimizer and its views see too.)
"""
import ctypes
import operator
from weakref import ref

import numpy as np

from . import _abi, _context
from ._context import ArgumentError, AxisError, DTypeError, Error, L, S, UnsupportedError, current, place
from ._dtypes import ALL, BITS_OF, BY_NAME, default, dtype as dtype_of

VALUE, OWN, PLACE = range(3)  # whose memory: shared by whatever is equal; nobody else's so far; a parameter's
_index = operator.index
_number = (bool, int, float)


class Array:
    """A tensor. `koine.asarray(data)` makes one; functions of koine take it, and those whose first operand it is are its methods."""

    __slots__ = ("_k", "_h", "_d", "_own", "_s", "__weakref__")
    __array_priority__ = 1000  # numpy's operators let this class's go first
    __hash__ = None

    def __new__(cls, *_, **__):
        raise TypeError("koine.asarray(data) makes an array")

    def __del__(self):
        k = self._k
        if k._c:
            k.dead.append(self._h)

    # ---- what it is ----

    @property
    def dtype(self):
        return ALL[self._d]

    @property
    def shape(self):
        s = self._s
        if s is None:  # asked for once: no array changes its shape
            with self._k.lock:
                s = L.kn_shape(self._h)
            s = self._s = tuple(s.v[: s.n])
        return s

    @property
    def ndim(self):
        with self._k.lock:
            return self._there(L.kn_rank(self._h))

    @property
    def size(self):
        with self._k.lock:
            return self._there(L.kn_numel(self._h))

    def _there(self, n):
        """n, or (it is below 0) the failure of an array whose values are gone."""
        if n < 0:
            wrap(self._k, L.kn_contiguous(self._h))  # raises it, with the line
        return n

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    @property
    def device(self):
        """Name of the device it is on: "CPU"."""
        return self._k.name

    @property
    def context(self):
        return self._k

    @property
    def T(self):
        if self.ndim != 2:
            raise ArgumentError(f"T: a matrix expected, got {self.ndim} axes; mT swaps the last two, permute_dims any")
        return self.mT

    @property
    def mT(self):
        return call(L.kn_mT, self)

    def to_device(self, device, /, *, stream=None):
        """The same values on another device (a name, or a Context), through host memory; itself if it is there already."""
        k = _context.device(device)
        return self if k is self._k else asarray(np.array(self), dtype=self.dtype, device=k)

    def __array_namespace__(self, *, api_version=None):
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"array API version {api_version!r}; koine follows 2024.12")
        import koine
        return koine

    # ---- values ----

    def _host(self, out):
        """Copies the elements to a numpy array of their bytes."""
        k = self._k
        with k.lock:
            k.values()
            k.check(S.kn_to_host(self._h, out.ctypes.data, out.nbytes))
        return out

    def _now(self):
        """The shape, symbolic sizes with the values their variables have now; None: it has no symbolic one."""
        k = self._k
        with k.lock:
            u = L.kn_graph(self._h)
            symbols = [L.kn_uop_sym(u, a) for a in range(L.kn_uop_rank(u))]
            if not any(symbols):
                return None
            shape = list(self.shape)
            values = [wrap(k, L.kn_from_graph(k._c, s)) for s in symbols if s]  # all of them before anything is computed: nodes move then
            for a in [a for a, s in enumerate(symbols) if s]:
                shape[a] = call(L.kn_cast, values.pop(0), BY_NAME["int64"].number).item()
            return tuple(shape)

    def numpy(self):
        """As np.asarray(x)."""
        return self.__array__()

    def __array__(self, dtype=None, copy=None):
        """np.asarray(x): read-only, of koine's own memory where nothing will ever write to that; np.array(x) copies."""
        d = self.dtype
        now = self._now() if self._own == VALUE else None
        if self._own == VALUE and not copy and self.size and not now:
            a = self._shared()
        elif copy is False:
            raise ValueError("this array's memory may be written to: it is copied to numpy, or not given")
        else:
            a = self._host(np.empty(now or self.shape, BITS_OF.get(d.name, d if d.in_numpy else np.int64)))
        if d.name in BITS_OF:
            a = _from_bits(a, d)
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)

    def _shared(self):
        """A read-only numpy array of this one's memory, which lives as long as it is used."""
        pointer, d, shape = self._pointer(), self.dtype, self.shape
        bits = np.dtype(BITS_OF.get(d.name, d if d.in_numpy else np.int64))
        buffer = (ctypes.c_char * (self.size * bits.itemsize)).from_address(pointer)
        buffer._held = _Held(self)
        a = np.frombuffer(buffer, bits).reshape(shape)
        a.flags.writeable = False
        return a

    def _pointer(self):
        k = self._k
        with k.lock:
            k.values()
            p = S.kn_data(self._h)
            if not p and self.size:
                file, line = place()
                L.kn_at_data_(p, file, line)
                k.fail()
        return p or 0

    def tolist(self):
        """The elements as (nested lists of) Python numbers."""
        return self.__array__().tolist()

    def item(self):
        """The only element as a Python number."""
        d = self.dtype
        if self.size != 1:
            raise ArgumentError(f"item: an array of one element expected, not of shape {self.shape}")
        a = self._host(np.empty((), BITS_OF.get(d.name, d if d.in_numpy else np.int64)))
        return (_from_bits(a, d) if d.name in BITS_OF else a).item()

    def _scalar(self, what):
        if self.ndim:
            raise DTypeError(f"{what}: only an array without axes is a number, not one of shape {self.shape}")
        return self.item()

    def __float__(self):
        return float(self._scalar("float"))

    def __int__(self):
        return int(self._scalar("int"))

    def __complex__(self):
        return complex(self._scalar("complex"))

    def __bool__(self):
        if self.size != 1:
            raise ArgumentError(f"the truth of an array of shape {self.shape}: use koine.any or koine.all")
        return bool(self.item())

    def __index__(self):
        if self.dtype.kind not in "iu":
            raise DTypeError(f"index: an integer expected, not {self.dtype}")
        return int(self._scalar("index"))

    def __len__(self):
        if not self.ndim:
            raise DTypeError("len: an array without axes has none")
        return self.shape[0]

    def __iter__(self):
        if not self.ndim:
            raise DTypeError("iter: an array without axes has no elements to go through")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value):
        return bool((self == value).any())

    def __repr__(self):
        if self._unknown():
            return f"Array(traced, shape={self.shape}, dtype={self.dtype})"
        a = self.__array__()
        if a.dtype.kind not in "biuf":
            a = a.astype(np.float32)
        lines = np.array2string(a, separator=", ", prefix="Array(")
        return f"Array({lines}, dtype={self.dtype})"

    def __str__(self):
        return repr(self) if self._unknown() else str(self.__array__())

    def __format__(self, spec):
        return format(self.item() if self.ndim == 0 else self, spec) if spec else str(self)

    def _unknown(self):
        """Is it shown while a function is traced that has not computed it, or a step captured?"""
        with self._k.lock:
            return bool(self._k.tracing) and (self._k.capturing or not self._is_data())

    def _is_data(self):
        """Has it memory already (a view of one)?"""
        with self._k.lock:
            u = L.kn_graph(self._h)
            while L.kn_uop_op(u) in (b"reshape", b"permute", b"flip", b"shrink"):
                u = L.kn_uop_src(u, 0)
            return L.kn_uop_op(u) == b"buffer"

    def __copy__(self):
        return copied(self) if self._own else wrap(self._k, self._again(), VALUE)

    def __deepcopy__(self, memo):
        return copied(self, PLACE if self._own == PLACE else OWN)

    def _again(self):
        return L.kn_from_graph(self._k._c, L.kn_graph(self._h))

    def __reduce__(self):
        bits = self._host(np.empty(self.shape, BITS_OF.get(self.dtype.name, self.dtype if self.dtype.in_numpy else np.int64)))
        return _unpickle, (bits, self.dtype.name, self._own == PLACE)

    # ---- DLPack ----

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        from . import _dlpack
        return _dlpack.export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self):
        return 1, 0  # the CPU's memory

    # ---- parts ----

    def __getitem__(self, key):
        return Parts(self, key).get()

    def __setitem__(self, key, value):
        """x[key] = value: x is another array then; what was computed from it is not."""
        k = self._k
        with k.lock:
            if k.dead:
                k.drain()
            if k.tracing and self._own == PLACE and not k.in_step:
                raise DTypeError("a parameter is assigned to while a function is traced: return the new value instead")
            if k.made is not None and self._own != PLACE and not any(made() is self for made, _, _ in k.made):
                raise DTypeError(f"x[key] = value {k.meanwhile}, of an array that was made outside: it would be written at the first call alone; x = kn.param(x) is written at each")
            if k.tracing and self._own != PLACE:  # memory that is written to is no value of a function: another array instead
                self._become(Parts(self, key).put(value), VALUE)
                return
            if self._own == VALUE:
                self._become(copied(self), OWN)
            Parts(self, key).set(value)

    def assign(self, value):
        """Takes the value's elements: x[...] = value."""
        self[...] = value
        return self

    def _become(self, other, own):
        """Takes over another array's handle."""
        self._h, other._h = other._h, self._h
        self._d, self._own, self._s = other._d, own, other._s


class _Held:
    """While it lives an array's memory is lent out."""

    def __init__(self, array):
        self.array = array
        array._k.lent.add(id(self))

    def __del__(self):
        self.array._k.lent.discard(id(self))


def _from_bits(a, d):
    """Bits of a dtype that numpy lacks, as ml_dtypes' where that is installed, else the same values as float32."""
    try:
        return a.view(d.dtype)
    except TypeError:
        k = current()
        x = wrap(k, L.kn_from_host(k._c, np.ascontiguousarray(a).ctypes.data, d.number, _abi.ints(a.shape)))
        return np.asarray(call(L.kn_cast, x, BY_NAME["float32"].number))


def _unpickle(bits, name, is_param):
    d = BY_NAME[name]
    a = _of_numpy(current(), bits, d)
    return copied(a, PLACE) if is_param else a


# ---- making arrays from handles ----

_new = object.__new__


def wrap(k, h, own=VALUE):
    """The array of a handle just made, or the exception of what went wrong."""
    file, line = place()
    L.kn_at_(h, file, line)
    d = L.kn_dtype_of(h)
    if not d:
        raise k.failed(h) from None
    a = _new(Array)
    a._k, a._h, a._d, a._own, a._s = k, h, d, own, None
    if k.made is not None:
        k.made.append((ref(a), file, line))
    return a


def wrap_as(k, h, d, shape):
    """The array of a handle that is right, of a dtype and a shape that are known."""
    a = _new(Array)
    a._k, a._h, a._d, a._own, a._s = k, h, d, VALUE, shape
    return a


def call(f, x, *args, own=VALUE):
    """f(x, plain arguments) as an array."""
    k = x._k
    with k.lock:
        if k.dead:
            k.drain()
        if x._own == OWN:
            x._own = VALUE
        return wrap(k, f(x._h, *args), own)


def copied(x, own=OWN):
    """x in memory of its own. While a function is traced there is no memory: the same value, which nothing will write to."""
    k = x._k
    if not k.tracing:
        return call(L.kn_param, x, own=own)
    if own == PLACE:
        raise DTypeError(f"a parameter is made {k.meanwhile}: make it outside, or pass it in")
    return wrap(k, x._again())


def operand(k, x, d):
    """The handle of an operand: an array's, a number's beside dtype number d, that of what asarray makes of it; None: NULL."""
    t = type(x)
    if t is Array:
        if x._k is not k and not x._k._c:
            raise Error("the array's context has been closed")
        if x._own == OWN:
            x._own = VALUE
        return x._h
    if x is None:
        return None
    d = ALL[d] if d else None
    if t in _number:
        if t is int and d is not None and d.kind in "iu" and not _low(d) <= x <= _high(d):
            raise OverflowError(f"{x} does not fit {d}: koine.asarray({x}) has a wider dtype, or astype the array first")
        return k.scalar(x, d)
    k.nested += 1  # the array made ends at once, and its handle must last for this call
    try:
        return asarray(x, device=k)._h
    finally:
        k.nested -= 1


def context_of(*operands):
    """The context of the first array among them, else the current one; and its dtype number."""
    for x in operands:
        if type(x) is Array:
            return x._k, x._d
    return current(), 0


# ---- operators ----

def _binary(name, reflected=False):
    f = getattr(L, "kn_" + name)

    def op(a, b):
        if type(b) is not Array and not isinstance(b, (*_number, np.ndarray, np.generic)):
            return NotImplemented
        k = a._k
        with k.lock:
            if k.dead:
                k.drain()
            if a._own == OWN:
                a._own = VALUE
            b = operand(k, b, a._d)
            return wrap(k, f(b, a._h) if reflected else f(a._h, b))

    return op


for _op, _name in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("floordiv", "floor_divide"), ("mod", "remainder"), ("pow", "pow"),
                   ("matmul", "matmul"), ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"), ("lshift", "shift_left"), ("rshift", "shift_right")):
    setattr(Array, f"__{_op}__", _binary(_name))
    setattr(Array, f"__r{_op}__", _binary(_name, True))
for _op in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Array, f"__{_op}__", _binary(_op))
Array.__neg__ = lambda x: call(L.kn_neg, x)
Array.__pos__ = lambda x: x
Array.__abs__ = lambda x: call(L.kn_abs, x)
Array.__invert__ = lambda x: call(L.kn_bitwise_not, x)
Array.__divmod__ = lambda x, y: (x // y, x % y)
Array.__rdivmod__ = lambda x, y: (y // x, y % x)
Array.copy = lambda x: copied(x)
Array.copy.__doc__ = """x in memory of its own."""
Array.__round__ = lambda x, ndigits=None: x.round(ndigits or 0)


# ---- x[key] ----

class _Side:
    """What stands for positions that a mask gave: how many places it has along their axis."""

    def __init__(self, size):
        self.size = size


def _is_mask(p):
    return isinstance(p, Array) and p.dtype.kind == "b"


class Parts:
    """A key, read: on each axis an integer, a slice, a new axis, an array of integers."""

    def __init__(self, x, key):
        self.x, self.mask = x, None
        key = key if isinstance(key, tuple) else (key,)
        given, key = list(key), [self._one(p) for p in key]
        if len(key) == 1 and _is_mask(key[0]):
            self.mask, self.given = key[0], given[0]
            for axis, (a, b) in enumerate(zip(self.mask.shape, x.shape)):
                if a != b:
                    raise AxisError(f"a mask of shape {self.mask.shape} for an array of shape {x.shape}: axis {axis} has {b} places, not {a}")
            if self.mask.ndim <= x.ndim:
                return
        self._read(key, given)

    def _read(self, key, given):
        for i in [i for i, p in enumerate(key) if _is_mask(p)][::-1]:
            if not key[i].ndim:
                raise AxisError(f"x[{given[i]}]: a mask has an axis at least; kn.where(condition, x, other) chooses by one truth")
            given[i : i + 1], key[i : i + 1] = [_Side(n) for n in key[i].shape], self._true(key[i], given[i])
        taken = sum(1 for p in key if p is not None and p is not Ellipsis)
        rank = self.x.ndim
        if sum(1 for p in key if p is Ellipsis) > 1:
            raise AxisError("an index has one ... at most")
        if taken > rank:
            raise AxisError(f"{taken} indices for an array of {rank} axes")
        at = next((i for i, p in enumerate(key) if p is Ellipsis), len(key))
        self.key = key[:at] + [slice(None)] * (rank - taken) + key[at + 1 :]
        self._within(given[:at] + [None] * (rank - taken) + given[at + 1 :])
        self.arrays = [i for i, p in enumerate(self.key) if isinstance(p, Array)]

    @staticmethod
    def _true(mask, given):
        """Where a mask is true: positions along each of its axes, which is how numpy has it. How many there are is computed now."""
        if not isinstance(given, Array):
            return [asarray(i, device=mask._k) for i in np.nonzero(given)]
        k, rank = mask._k, mask.ndim
        if k.tracing:
            raise AxisError(f"x[mask] {k.meanwhile}: how many elements there are depends on data, and a shape cannot; kn.where(mask, x, other) keeps the shape, kn.masked_select(x, mask, size) has room for `size`")
        at = call(L.kn_nonzero, mask, call(L.kn_count_nonzero, mask).item(), None)
        return [call(L.kn_select, at, 1, i) for i in range(rank)]

    def _within(self, given):
        """Positions that are known now, in lists and numpy's arrays, are looked at; those of koine's arrays give 0 where there is none."""
        axis, shape = 0, self.x.shape
        for p, g in zip(self.key, given):
            if p is None:
                continue
            if type(g) in (list, np.ndarray) and p.dtype.kind in "iu" and p.size:
                a = np.asarray(g)
                if a.max() >= shape[axis] or a.min() < -shape[axis]:
                    raise AxisError(f"index {a.max() if a.max() >= shape[axis] else a.min()} is out of range for axis {axis} of size {shape[axis]}")
            if type(g) is _Side and g.size != shape[axis]:
                raise AxisError(f"a mask has {g.size} places along axis {axis}, the array {shape[axis]}")
            axis += 1

    @staticmethod
    def _one(p):
        if p is None or p is Ellipsis or isinstance(p, (int, slice, Array)) and not isinstance(p, bool):
            return p
        if isinstance(p, (list, np.ndarray, bool, np.bool_)):
            p = asarray(p if np.size(p) or getattr(p, "dtype", None) == bool else np.zeros(np.shape(p), np.int64))
            if p.dtype.kind in "iub":
                return p
        try:
            return _index(p)
        except TypeError:
            raise DTypeError(f"an index is an integer, a slice, None, ... or an array of integers, not {p!r}") from None

    def get(self):
        if self.mask is not None and not self.mask.ndim and not self.mask._k.tracing:  # one truth: x, or nothing of it
            return self.x[None][np.zeros(int(self.mask.item()), np.int64)]
        if self.mask is not None:
            self._read([self.mask], [self.given])
        x, k = self.x, self.x._k
        with k.lock:
            if k.dead:
                k.drain()
            h, made = self._view(x._h)
            if len(self.arrays) == 1 and (self._together() or not any(isinstance(p, int) for p in self.key)):
                (i,) = self.arrays
                h = L.kn_take(h, operand(k, self.key[i], 0), sum(1 for p in self.key[:i] if not isinstance(p, int)))
                made.append(h)
            elif self.arrays:
                h, made = self._index(h, made)
            if not made:
                h = L.kn_from_graph(k._c, L.kn_graph(h))
            else:
                k.dead.extend(made[:-1])
            if x._own == OWN:
                x._own = VALUE
            return wrap(k, h, PLACE if x._own == PLACE and not self.arrays else VALUE)

    def _places(self):
        """What kn_index takes: for each axis of the view NULL or the array; integers beside arrays are arrays (they were not selected)."""
        at = [operand(self.x._k, p, 0) if isinstance(p, Array) else None for p in self.key if not isinstance(p, int)]
        return (_abi.P * max(len(at), 1))(*at), len(at)

    def _index(self, h, made):
        if not hasattr(L, "kn_index"):
            raise AxisError("more than one array of indices: take them one by one, x[:, j][i], or flatten x and compute the positions")
        if any(isinstance(p, int) for p in self.key):  # numpy's rule: beside arrays an integer is one
            k, whole = self.x._k, [asarray(p, device=self.x._k) if isinstance(p, int) else p for p in self.key]
            again = Parts.__new__(Parts)
            again.x, again.mask, again.key, again.arrays = self.x, None, whole, [i for i, p in enumerate(whole) if isinstance(p, Array)]
            k.dead.extend(made)
            h, made = again._view(self.x._h)
            return again._index(h, made)
        h = L.kn_index(h, *self._places())
        return h, made + [h]

    def _together(self):
        """numpy's rule: the array and integers beside each other keep their place."""
        at = [i for i, p in enumerate(self.key) if isinstance(p, (int, Array))]
        return at[-1] - at[0] + 1 == len(at)

    def _view(self, h):
        """The handle after integers, slices and new axes, and all handles made on the way."""
        made, axis = [], 0
        for p in self.key:
            if p is None:
                h = L.kn_unsqueeze(h, axis)
            elif isinstance(p, Array):
                axis += 1
                continue
            elif isinstance(p, slice):
                axis += 1
                step = 1 if p.step is None else _index(p.step)
                if p.start is None and p.stop is None and step == 1:
                    continue
                start = _index(p.start) if p.start is not None else 0 if step > 0 else -1
                h = L.kn_slice(h, axis - 1, start, _abi.TO_END if p.stop is None else _index(p.stop), step)
            else:
                h = L.kn_select(h, axis, _index(p))
            if p is None:
                axis += 1
            made.append(h)
        return h, made

    def put(self, value):
        """x with its elements at the key replaced, as another array."""
        k, x = self.x._k, self.x
        value = self._ready(value)
        if self.mask is not None:
            return wrap(k, L.kn_where(self.mask._h, operand(k, value, x._d), x._h))
        value = operand(k, value, x._d)
        if not hasattr(L, "kn_index_put") or None in [p for p in self.key if not isinstance(p, Array)]:
            raise UnsupportedError(f"x[key] = value {k.meanwhile}: kn.where, kn.concat and kn.pad make another array")
        places, n = [], len(self.key)
        for axis, p in enumerate(self.key):
            if isinstance(p, slice) and not self.arrays:
                p = range(*p.indices(x.shape[axis]))
            if isinstance(p, slice) and p != slice(None):
                raise UnsupportedError(f"x[array, a:b] = value {k.meanwhile}: x[array] with whole axes alone")
            rest = (1,) * sum(isinstance(q, slice) for q in self.key[axis + 1 :])
            places.append(p if isinstance(p, Array) else None if isinstance(p, slice) else asarray(np.array(p, np.int64).reshape(np.shape(p) + (rest if np.ndim(p) else ())), device=k))
        at = (_abi.P * max(n, 1))(*[None if p is None else p._h for p in places])
        return wrap(k, L.kn_index_put(x._h, at, n, value, 0))

    def _ready(self, value):
        """What is stored. Where x[mask] = value puts the same wherever the mask is true it stays a mask, with as many axes as x, and nobody
        counts; else it is positions."""
        value, x = self._weak(value), self.x
        if self.mask is None:
            return value
        value = value if type(value) in _number else asarray(value, device=x._k)
        rest = x.ndim - self.mask.ndim
        while type(value) is Array and value.ndim > rest and value.shape[0] == 1:  # one for all
            value = call(L.kn_select, value, 0, 0)
        nothing = type(value) is Array and value.ndim == rest + 1 and value.shape[0] == 0
        if nothing and not self.mask.ndim and not x._k.tracing and not self.mask.item():
            value = False  # x[False] = nothing: any value, nowhere
        if (0 if type(value) in _number else value.ndim) > rest:
            self._read([self.mask], [self.given])
            self.mask = None
        elif rest:
            self.mask = call(L.kn_reshape, self.mask, _abi.ints(self.mask.shape + (1,) * rest))
        return value

    def _weak(self, value):
        """What is stored: Python's numbers in lists take the array's dtype, as those alone do."""
        if value is None:
            raise DTypeError("x[key] = None: a number or an array expected")
        if isinstance(value, (list, tuple)) and not _holds_typed(value):
            d, kind = self.x.dtype, np.asarray(value).dtype.kind
            return asarray(value, dtype=d if "biuf".find(kind) <= "biuf".find(d.kind) or kind == "i" and d.kind == "u" else None, device=self.x._k)
        return value

    def set(self, value):
        k, x = self.x._k, self.x
        value = self._ready(value)
        held, value = value, operand(k, value, x._d)
        if self.mask is not None or self.arrays or any(isinstance(p, slice) and p.step not in (None, 1, -1) for p in self.key):
            t = self._scatter(value)
        else:
            h, made = self._view(x._h)
            k.dead.extend(made)
            t = L.kn_assign(h, value)
            made.append(h)
        if L.kn_check(t):
            file, line = place()
            L.kn_at_(t, file, line)
            if t in k.dead:  # a view that failed comes back as it is
                k.dead.remove(t)
            raise k.failed(t)
        if t not in (x._h, *k.dead):
            k.dead.append(t)

    def _scatter(self, value):
        """Where the key is no view: through masks, index arrays, steps."""
        k, x = self.x._k, self.x
        if self.mask is not None:
            value = L.kn_where(self.mask._h, value, x._h)
            k.dead.append(value)
            return L.kn_assign(x._h, value)
        if not hasattr(L, "kn_setitem"):
            raise UnsupportedError("x[array] = value, x[::2] = value: not yet; kn.scatter_add, kn.where and kn.one_hot write by position")
        h, made = self._view(x._h)
        k.dead.extend(made)
        if not self.arrays:
            return L.kn_assign(h, value)
        return L.kn_setitem(h, *self._places(), value)


# ---- from data ----

def _of_numpy(k, a, d=None):
    """A copy of a numpy array."""
    if a.dtype.kind == "c":
        raise DTypeError("complex numbers are out of koine's scope; keep real and imaginary parts apart")
    d = d or dtype_of(a.dtype)
    shape = a.shape
    a = np.ascontiguousarray(a, a.dtype.newbyteorder("="))
    with k.lock:
        if k.dead or k.bytes > 64 << 20:
            k.drain()
        k.bytes += a.nbytes
        return wrap(k, L.kn_from_host(k._c, a.ctypes.data, d.number, _abi.ints(shape)), OWN)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """An array of anything that holds numbers: numbers, nested lists, numpy's arrays, other libraries' (DLPack), koine's.

    Data is copied, so that the array does not change when the data does; copy=False uses it in place where that is possible,
    and is an error where not. Python's floats become float32, its integers int64."""
    d = None if dtype is None else dtype_of(dtype)
    k = current() if device is None else _context.device(device)
    if type(obj) is Array:
        if device is not None and obj._k is not k:
            obj = obj.to_device(k)
        if d is not None and obj._d != d.number:
            if copy is False:
                raise ArgumentError(f"asarray: {obj.dtype} becomes {d} by a copy alone")
            return call(L.kn_cast, obj, d.number)
        return copied(obj) if copy else obj
    if type(obj) in _number and copy is not False:
        d = d or dtype_of(type(obj))
        if type(obj) is int:
            _fits(obj, obj, d)
            if abs(obj) >= 2**53:
                return _of_numpy(k, np.asarray(obj, d.dtype))
        with k.lock:
            if k.dead:
                k.drain()
            return wrap(k, L.kn_full(k._c, _abi.ints(()), obj, d.number))
    if copy is False or hasattr(obj, "__dlpack__") and not isinstance(obj, (np.ndarray, np.generic)):
        from . import _dlpack
        a = _dlpack.take(obj, k, copy=False if copy is False else True)
        if copy is False and d is not None and a._d != d.number:
            raise ArgumentError(f"asarray: {a.dtype} becomes {d} by a copy alone")
        return a if d is None or a._d == d.number else call(L.kn_cast, a, d.number)
    typed = hasattr(obj, "dtype") or hasattr(obj, "__array__") or hasattr(obj, "__array_interface__") or isinstance(obj, (bytes, bytearray, memoryview))
    try:
        a = np.asarray(obj)
    except ValueError as e:
        raise ArgumentError(f"asarray: {e}") from None
    if a.dtype.kind in "OUSMmV" and a.dtype.name not in BY_NAME:
        large = [v for v in a.ravel() if type(v) is int and not -(2**63) <= v < 2**64] if a.dtype.kind == "O" else []
        if large:
            raise OverflowError(f"asarray: {large[0]} does not fit 64 bits")
        raise DTypeError(f"asarray: numbers expected, not {type(obj).__name__} of {'objects' if a.dtype.kind == 'O' else a.dtype}")
    if not typed and d is not None and a.dtype.kind in "iu" and a.size:
        _fits(int(a.min()), int(a.max()), d)
    if not typed:  # nested lists: Python's numbers, unless there are arrays among them
        d = d or (default(a.dtype.kind) if a.dtype in (np.float64, np.int64, np.bool_) and not _holds_typed(obj) else None)
    if d is not None and dtype_of(a.dtype) != d:
        if d.in_numpy and (not typed or a.dtype.kind != "f" or d.kind == "f"):
            a = a.astype(d.dtype)
        else:
            return call(L.kn_cast, _of_numpy(k, a), d.number)
    return _of_numpy(k, a)


def _low(d):
    return -(1 << d.itemsize * 8 - 1) if d.kind == "i" else 0


def _high(d):
    return (1 << d.itemsize * 8 - (d.kind == "i")) - 1


def _fits(low, high, d):
    """Python's integers are not wrapped: those of an array are, by astype."""
    if d.kind in "iu" and not _low(d) <= low <= high <= _high(d):
        bad = low if low < _low(d) else high
        raise OverflowError(f"{bad} does not fit {d}" + (f": koine.asarray({bad}).astype({d.name!r}) wraps" if -(2**63) <= bad < 2**63 else ""))


def _holds_typed(obj):
    while isinstance(obj, (list, tuple)) and obj:
        obj = obj[0]
    return hasattr(obj, "dtype")
