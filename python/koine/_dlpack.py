"""DLPack, both ways: memory lent to other libraries, and theirs used in place."""
import ctypes
import functools
import itertools

import numpy as np

from . import _abi
from ._array import VALUE, Array, _of_numpy, copied, wrap
from ._context import L, ArgumentError, borrow, _owners, release
from ._dtypes import BITS_OF, BY_NAME

CODES = {(0, b): f"int{b}" for b in (8, 16, 32, 64)} | {(1, b): f"uint{b}" for b in (8, 16, 32, 64)} | \
    {(2, b): f"float{b}" for b in (16, 32, 64)} | {(4, 16): "bfloat16", (6, 8): "bool", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
CODE_OF = {name: code for code, name in CODES.items()}
READ_ONLY, COPIED = 1, 2
CPU = 1
i64p = ctypes.POINTER(ctypes.c_int64)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", i64p), ("strides", i64p), ("byte_offset", ctypes.c_uint64)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("t", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("t", Tensor)]


_py = ctypes.pythonapi
_py.PyCapsule_New.restype, _py.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_py.PyCapsule_IsValid.restype, _py.PyCapsule_IsValid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_py.PyCapsule_GetPointer.restype, _py.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_py.PyCapsule_SetName.restype, _py.PyCapsule_SetName.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
NAMES = {True: (b"dltensor_versioned", b"used_dltensor_versioned", Versioned), False: (b"dltensor", b"used_dltensor", Managed)}

# ---- out ----

_lent, _number = {}, itertools.count(1)  # by manager_ctx: what keeps the memory and the struct alive


# A capsule that nobody took is given to its destructor while it is being freed: plain C types alone.
_get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def _destroy(capsule):
    for name, _, kind in NAMES.values():
        if _valid(capsule, name):
            _lent.pop(kind.from_address(_get(capsule, name)).manager_ctx, None)


@functools.lru_cache(None)
def _callbacks():
    """Deleters, by versioned or not, and the capsules' destructor, as C calls them."""
    return {v: DELETER(lambda p, kind=kind, lent=_lent: lent.pop(kind.from_address(p).manager_ctx, None) and None) for v, (_, _, kind) in NAMES.items()}, \
        ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)


def export(x, stream, max_version, dl_device, copy):
    if dl_device not in (None, (CPU, 0)):
        raise BufferError(f"koine's arrays are in the CPU's memory, not on DLPack device {dl_device}")
    if stream is not None:
        raise BufferError("the CPU has no streams: stream must be None")
    versioned = max_version is not None and max_version[0] >= 1
    d = x.dtype
    if d.name not in CODE_OF:
        raise BufferError(f"DLPack has no {d}")
    # Consumers of the old protocol may write to what they get: they get a copy.
    if copy or not versioned or x._own != VALUE or not x.size:
        if copy is False and x.size:
            raise BufferError("this array is lent as a copy alone: its memory may be written to, or the consumer does not know read-only memory")
        held = x._host(np.empty(x.shape, BITS_OF.get(d.name, d if d.in_numpy else np.int64)))
        pointer, flags = held.ctypes.data, COPIED
    else:
        held = x._shared()
        pointer, flags = held.ctypes.data, READ_ONLY
    name, _, kind = NAMES[versioned]
    shape, m = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape), kind()
    strides = (ctypes.c_int64 * max(x.ndim, 1))(*[int(np.prod(x.shape[i + 1 :])) for i in range(x.ndim)])
    m.t = Tensor(pointer, CPU, 0, x.ndim, *CODE_OF[d.name], 1, ctypes.cast(shape, i64p), ctypes.cast(strides, i64p), 0)
    m.manager_ctx = next(_number)
    deleters, destroy = _callbacks()
    m.deleter = ctypes.cast(deleters[versioned], ctypes.c_void_p).value
    if versioned:
        m.major, m.minor, m.flags = 1, 0, flags
    _lent[m.manager_ctx] = (m, shape, strides, held)
    return _py.PyCapsule_New(ctypes.addressof(m), name, ctypes.cast(destroy, ctypes.c_void_p))


# ---- in ----

class _Taken:
    """Another library's memory; its deleter runs when this ends."""

    def __init__(self, m):
        self.m = m

    def __del__(self, deleter=DELETER, address=ctypes.addressof):  # as they were: the interpreter may be ending
        if self.m.deleter:
            deleter(self.m.deleter)(address(self.m))


def take(obj, k, copy=None):
    """obj's memory in place where its layout is a row-major one (copy None or False), else copied (None or True)."""
    if type(obj) is Array:
        if obj._k is not k and copy is False:
            raise ArgumentError(f"from_dlpack: from {obj.device} to {k.name} is a copy")
        return obj.to_device(k) if obj._k is not k else copied(obj) if copy else obj
    if not hasattr(obj, "__dlpack__"):
        raise TypeError(f"from_dlpack: an object with __dlpack__ expected, not {type(obj).__name__}; asarray takes anything that holds numbers")
    if obj.__dlpack_device__()[0] not in (CPU, 3, 11, 13):  # what the host reads as it is: also pinned and managed memory
        raise BufferError(f"from_dlpack: the data is on DLPack device {tuple(obj.__dlpack_device__())}; bring it to the CPU first")
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # an older producer
        capsule = obj.__dlpack__()
    except BufferError:
        if not isinstance(obj, np.ndarray) or copy is False:
            raise
        return _of_numpy(k, obj)
    versioned = bool(_py.PyCapsule_IsValid(capsule, b"dltensor_versioned"))
    name, used, kind = NAMES[versioned]
    m = kind.from_address(_py.PyCapsule_GetPointer(capsule, name))
    t = m.t
    if versioned and m.major > 1:
        raise BufferError(f"from_dlpack: version {m.major}.{m.minor} of DLPack; koine reads 1")
    d = BY_NAME.get(CODES.get((t.code, t.bits), "")) if t.lanes == 1 else None
    if d is None:
        raise BufferError(f"from_dlpack: type code {t.code} of {t.bits} bits and {t.lanes} lanes is no dtype of koine" + (" (complex)" if t.code == 5 else ""))
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    _py.PyCapsule_SetName(capsule, used)
    owner, address = _Taken(m), (t.data or 0) + t.byte_offset
    n, expected = 1, []
    for size in reversed(shape):
        expected.insert(0, n)
        n *= size
    plain = strides is None or not n or all(s == e or size == 1 for s, e, size in zip(strides, expected, shape))
    if copy or not plain or address % d.itemsize or not n:
        if copy is False and n:
            raise ArgumentError("from_dlpack: the data is not row-major, or not aligned to its elements; without copy=False it is copied")
        bits = np.dtype(BITS_OF.get(d.name, d if d.in_numpy else np.int64))
        if not n:
            return _of_numpy(k, np.empty(shape, bits), d)
        steps = [s * bits.itemsize for s in strides or expected]
        low = address + sum(min(0, (size - 1) * s) for size, s in zip(shape, steps))
        high = address + sum(max(0, (size - 1) * s) for size, s in zip(shape, steps)) + bits.itemsize
        flat = np.frombuffer((ctypes.c_char * (high - low)).from_address(low), np.uint8)
        return _of_numpy(k, np.ndarray(shape, bits, flat, address - low, steps), d)
    with k.lock:
        if k.dead:
            k.drain()
        number = borrow(owner)
        h = L.kn_borrow_host(k._c, address, d.number, _abi.ints(shape), release(), number)
        if L.kn_check(h):
            _owners.pop(number.value, None)
        return wrap(k, h)


def from_dlpack(x, /, *, device=None, copy=None):
    """An array of another library's memory, in place where its layout is row-major: koine reads it when it computes, so do not
    change it before. copy=True copies; copy=False raises where a copy would be needed."""
    from ._context import current, device as context_of_device
    return take(x, (x._k if type(x) is Array else current()) if device is None else context_of_device(device), copy)
