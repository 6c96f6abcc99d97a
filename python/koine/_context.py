"""Contexts: a device, the arrays on it, and who may call when; and koine's failures as Python exceptions.

A context is used by one thread at a time: every call holds its lock. Building a graph keeps Python's global lock, computing
lets it go. An array that ends is only queued here (Python may end it in any thread, inside any call), and dropped by the
next call.
"""
import atexit
import collections
import ctypes
import functools
import os
import re
import sys
import threading

from . import _abi

L = _abi.load()
S = _abi.slow()
PACKAGE = os.path.dirname(os.path.abspath(__file__))


# ---- errors ----

class Error(Exception):
    """What koine refuses, in its own words. number: as in "KN1203"; 0 where there is none."""

    number = 0


class ArgumentError(Error, ValueError):
    """Shapes, sizes, values that do not fit."""


class DTypeError(Error, TypeError):
    """A dtype, or a kind of object, that does not fit."""


class AxisError(Error, ValueError, IndexError):
    """An axis or an index that is not there."""


class NoMemoryError(Error, MemoryError):
    pass


class FileError(Error, OSError):
    pass


class UnsupportedError(Error, NotImplementedError):
    """Right, but not to be had here."""


for _c in (Error, ArgumentError, DTypeError, AxisError, NoMemoryError, FileError, UnsupportedError):
    _c.__module__ = "koine"
DTYPES, AXES = {1103, 1124, 1150, 1151, 1161, 1170}, {1125, 1126, 1136}
BY_STATUS = {"KN_BAD_ARGUMENT": ArgumentError, "KN_PARSE": ArgumentError, "KN_IO": FileError, "KN_NOMEM": NoMemoryError, "KN_UNSUPPORTED": UnsupportedError}


# What C's hints name that Python has otherwise.
SAID = ((r"kn_bind\(k, name, value\), or --in .*", "koine.bind(name, value)"), (r"copy one through host memory: kn_data, kn_from_host", "x.to_device(y.context) copies x to where y is"),
        (r"kn_cast (it|the value)( first)?", r"\1.astype(dtype)\2"), (r"\b(?:it|the (value))\.astype", lambda m: (m[1] or "x") + ".astype"),
        (r"KN_BOOL, KN_I32, KN_F32 \.\.\.: `koine info` lists them", "koine.bool, koine.int32, koine.float32 ..."), (r"copy larger ones to the host \(kn_to_host\) and use a library for them", "numpy.linalg takes koine's arrays, of any size"),
        (r"KN_DEVICE, --device, kn_open, kn_copy_to", "KN_DEVICE, koine.device, x.to_device"), (r"kn_assign it to a slice of a kn_param, and capture that", "write it to a part of a koine.param, p[...] = x"),
        (r"realise it before that, or together with the kn_assign", "koine.realize it before that; a step that is captured returns what it makes"),
        (r"copy it with kn_from_host", "copy it: koine.asarray"), (r"kn_to_host copies", "np.array(x) copies"),
        (r"operand (\d+) is NULL", r"operand \1 is None"),
        (r"it was never set; only tensors that the header names as optional may be NULL", "an array expected; None only where it is the default"))


def error(text, status):
    for c, python in SAID:
        text = re.sub(c, python, text)
    text = re.sub(r"\bkn_(\w+)\b", r"kn.\1", text)  # names and lists as Python has them
    text = re.sub(r"\bKN_(?:PADS|LIST|SHAPE|AXES)\(", "(", text)
    m = re.search(r"\bKN(\d+): ", text)
    number = int(m[1]) if m else 0
    kind = DTypeError if number in DTYPES else AxisError if number in AXES else BY_STATUS.get(_abi.STATUS.get(status), Error)
    e = kind(text)
    e.number = number
    return e


# ---- where the user's program is ----

_files = {}  # by name: as C keeps it, or False for this package's own


def place():
    """File and line of the innermost frame outside this package. The file's bytes live on: C keeps the pointer."""
    f = sys._getframe(2)
    while f is not None:
        name = f.f_code.co_filename
        file = _files.get(name)
        if file is None:
            own = name.startswith("<koine ") or os.path.dirname(os.path.abspath(name)).startswith(PACKAGE)
            file = _files[name] = False if own else name.encode(errors="replace")
        if file:
            return file, f.f_lineno
        f = f.f_back
    return b"?", 0


# ---- contexts ----

@functools.lru_cache(None)
def devices():
    """Names of the kinds of device there are."""
    info, out = _abi.STRUCTS["kn_device_info"].type(), []
    while L.kn_device_at(len(out), ctypes.addressof(info)):
        out.append(info.name.decode())
    return out


class _Closed:
    """A closed context's lock."""

    def __enter__(self):
        raise Error("the array's context has been closed")

    def __exit__(self, *_):
        pass


class Context:
    """A device and all arrays made on it. `with Context("INTERP"):` makes it the one new arrays are made in; arrays of two contexts do not mix."""

    def __init__(self, device=None):
        if device and device.upper() not in devices():
            raise ArgumentError(f"no device is named {device!r}; there are {', '.join(devices())}")
        self._c = L.kn_open(device.encode() if device else None)
        if not self._c:
            raise NoMemoryError("kn_open: out of memory")
        self.lock, self.dead, self._scalars = threading.RLock(), collections.deque(), {}
        self.tracing = self.nested = self.dropped = self.bytes = 0
        self.made = None  # while a step is captured: its arrays so far, weakly, with the line of each
        self.lent = set()  # who uses memory of an array here
        self.name = (device or L.kn_get(self._c, b"KN_DEVICE").decode()).upper()
        if L.kn_error(self._c):  # a setting in the environment
            try:
                self.fail()
            finally:
                self.close()

    def __repr__(self):
        return f"Context({self.name!r})"

    def close(self):
        """Frees the context and its arrays. Refused while memory of one is shared through DLPack or numpy."""
        with self.lock:
            if self.lent:
                raise Error(f"{len(self.lent)} arrays of this context are in use elsewhere (numpy views, DLPack): let go of them first")
            c, self._c, self.lock = self._c, None, _Closed()
            L.kn_close(c)

    def __enter__(self):
        _current.stack = (*getattr(_current, "stack", ()), self)
        return self

    def __exit__(self, *_):
        _current.stack = _current.stack[:-1]

    # ---- settings and figures ----

    def set(self, name, value):
        """A setting by its environment variable's name: set("KN_THREADS", 1); None restores the default."""
        with self.lock:
            self.check(L.kn_set(self._c, name.encode(), None if value is None else str(value).encode()))
            self._scalars.clear()

    def get(self, name):
        with self.lock:
            v = L.kn_get(self._c, name.encode())
        return None if v is None else v.decode()

    @property
    def stats(self):
        """What the context has done so far, by the names of kn_stats: programs, kernels_launched, run_seconds, bytes, ..."""
        with self.lock:
            s = L.kn_stats_of(self._c)
        return {name: getattr(s, name) for name, _ in s._fields_}

    # ---- for this package ----

    @property
    def capturing(self):
        """Is a step captured? Nothing is computed meanwhile."""
        return self.made is not None

    @property
    def in_step(self):
        """Is a step captured, and no function traced inside it?"""
        return self.made is not None and self.tracing == 1

    @property
    def meanwhile(self):
        return "while a step is captured" if self.in_step else "while a function is traced"

    def values(self):
        """A value is asked for now."""
        if self.made is not None:
            raise ArgumentError("a value is asked for while a step is captured: nothing is computed before it has returned\n"
                                "  hint: float(x), print(x), np.f(x), if x: belong outside, on what it returns; kn.where(x, a, b) chooses inside")

    def between(self, what):
        """Something a step cannot do."""
        if self.made is not None:
            raise ArgumentError(f"{what} while a step is captured, which the first call alone would do: between calls it holds for those that follow")

    def check(self, status):
        """Raises the failure a call just had."""
        if status:
            file, line = place()
            L.kn_at_status_(status, file, line)
            self.fail(status)

    def fail(self, status=None):
        text, status = L.kn_message(self._c).decode(errors="replace"), status or L.kn_error(self._c)
        L.kn_clear(self._c)
        if "KN5016: input '#py" in text:
            text = text[: text.index("KN5016")] + (
                "KN5016: a value is asked for that is not known while a function is traced\n"
                "  hint: float(x), print(x), np.f(x), if x: belong outside; kn.where(x, a, b) chooses inside" if self.tracing else
                "KN5016: an array is used that stood for an argument while a function was traced\n  hint: what a function makes it must return; it is run once, not at each call")
        raise error(text, status) from None

    def failed(self, h):
        """The exception of an error tensor, which ends."""
        if not h:
            return DTypeError("an array expected, not None (or none in a list)")
        text, status = L.kn_why(h).decode(errors="replace"), L.kn_check(h)
        L.kn_drop(h)
        L.kn_clear(self._c)
        return error(text, status)

    def drain(self):
        """Ends the arrays that Python has let go of; now and then what they held is collected. Not inside another call."""
        if self.nested:
            return
        while self.dead:
            L.kn_drop(self.dead.popleft())
            self.dropped += 1
        if self.dropped > 4096 or self.bytes > 64 << 20:
            self.dropped = self.bytes = 0
            L.kn_scope_open(self._c)
            L.kn_scope_close(self._c)  # where the library collects

    def scalar(self, v, d):
        """The handle of a Python number beside an array of dtype d (its DType, or None): kept, for the next time."""
        t = type(v)
        key = (t, v, d.kind if d is not None and t is float else None)
        h = self._scalars.get(key)
        if h is not None and (v or t is not float) and v == v:
            return h
        if len(self._scalars) > 1000:
            self.dead.extend(self._scalars.values())
            self._scalars.clear()
        if t is bool:
            h = L.kn_full(self._c, _abi.ints(()), v, _abi.DTYPE_NUMBERS["bool"])
        elif t is int:
            if not -(2**63) <= v < 2**63:
                raise OverflowError(f"{v} does not fit 64 bits")
            h = L.kn_int(self._c, v)
        elif d is not None and d.kind != "f":
            h = L.kn_full(self._c, _abi.ints(()), v, _abi.DTYPE_NUMBERS["f32"])  # a float stays one beside integers
        else:
            h = L.kn_scalar(self._c, v)
        if not v and t is float or v != v:  # -0.0 and 0.0 are one key
            self.dead.append(h)
        else:
            self._scalars[key] = h
        return h


_current = threading.local()
_by_name, _lock = {}, threading.Lock()


def device(name=None):
    """The context of a device by name, made when first asked for: `with koine.device("INTERP"):` makes new arrays on it. None: KN_DEVICE, else CPU."""
    if isinstance(name, Context):
        return name
    if name is not None and not isinstance(name, str):
        raise DTypeError(f"a device is a name or a Context, not {name!r}; there are {', '.join(devices())}")
    key = (name or os.environ.get("KN_DEVICE") or "CPU").upper()
    with _lock:
        k = _by_name.get(key)
        if k is None or k._c is None:
            k = _by_name[key] = Context(key)
    return k


def current():
    """The context new arrays are made in."""
    stack = getattr(_current, "stack", None)
    return stack[-1] if stack else _default or _open_default()


_default = None


def _open_default():
    global _default
    if _default is None or _default._c is None:
        _default = device()
    return _default


@atexit.register
def _close_all():
    for k in _by_name.values():
        if k._c and not k.lent and k.lock.acquire(blocking=False):  # another thread may be computing
            k.close()


# ---- memory that others own ----

_owners = {}  # by number: what keeps borrowed memory alive


def _release(number):
    _owners.pop(number or 0, None)


@functools.lru_cache(None)
def release():
    """The C function koine calls. Made when first needed: a callback is memory that is written and executed."""
    return _abi.KINDS["release"](_release)


_numbers = iter(range(1, 1 << 62))


def borrow(owner):
    """Keeps `owner` until koine releases the number returned."""
    n = next(_numbers)
    _owners[n] = owner
    return ctypes.c_void_p(n)
