"""NULL in each place of each public function: nothing crashes, and what needs the pointer says which one is missing. Functions and their
parameters are read from the headers, so that a new one is tried too."""
import copy
import ctypes
import os
import re

import koine
import pytest
from koine import _abi

P = _abi.P
# A callback gets its kn_match from the library, and no one else has one; kn_..._ are what here.h adds.
NOT_CALLED = {"kn_match_ctx", "kn_match_user", "kn_match_root", "kn_match_node", "kn_match_rest"}
# What may be NULL by what the header says: by the name of the parameter, or that of one function.
OPTIONAL = {"user", "owner", "release", "log", "file", "key", "bias", "indices", "index", "edges", "inverse", "counts", "number", "extra",
            "kn_rules_load callbacks", "kn_rules_load source", "kn_rewrite set", "kn_open device", "kn_set value"}
ONLY_HERE = {("kn_copy_to", "device"): "copy_to: no device name given", ("kn_input", "name"): "input: no name given", ("kn_u_input", "name"): "input: no name given"}
# Of these NULL is the answer to NULL: it is an earlier failure, which has been told, and a reader has nowhere to tell.
SILENT = {"kn_ctx *", "const kn_ctx *", "kn_tensor", "kn_uop", "kn_optim *", "const kn_optim *", "kn_captured *", "const kn_rules *", "kn_rules *"}
SILENT_CALLS = {"kn_get", "kn_free", "kn_images_free", "kn_pending", "kn_device_at", "kn_optim_state", "kn_ints_of", "kn_uop_bounds_int", "kn_uop_bounds_float",
                "kn_uop_const_int", "kn_uop_const_float", "kn_realize_at", "kn_capture_at", "kn_cat", "kn_stack", "kn_broadcast_tensors", "kn_meshgrid"}
SILENT_PARAMETERS = {("kn_einsum", "operands")}  # a list of operands is where a context would come from
TEXT = {"ord": b"fro", "mode": b"constant", "how": b"sum", "expression": b"ij,jk", "device": b"NULL", "op": b"add", "target": b"c", "text": b"ruleset r\n", "set": None}
LISTS = {"sizes": (2, 2), "pads": (0, 0, 0, 0), "shape": (4, 4), "axes": ()}
NUMBERS = {"bytes": 64, "n": 2, "nin": 2, "nout": 1, "dtype": 14, "t": 14}


def functions():
    """All that the headers declare, rules.h too, which the package does not read."""
    lib, known = koine.load(), [copy.copy(d) for d in (_abi.FUNCTIONS, _abi.STRUCTS, _abi.ENUMS, _abi.KINDS, _abi.CHOICES)]
    try:
        _abi.KINDS.update(kn_rule_build=P, kn_rule_test=P)
        _abi._read(_abi.HEADERS / "rules.h")
        for f in _abi.FUNCTIONS.values():
            one = getattr(lib, f.name)
            one.restype, one.argtypes = _abi.KINDS[f.result], [_abi.KINDS[kind] for kind in f.kinds]
        return [f for f in _abi.FUNCTIONS.values() if f.name not in NOT_CALLED and not f.name.endswith("_")]
    finally:
        for d, was in zip((_abi.FUNCTIONS, _abi.STRUCTS, _abi.ENUMS, _abi.KINDS, _abi.CHOICES), known):
            d.clear()
            d.update(was)


def optional(f, name):
    return name in OPTIONAL or f"{f.name} {name}" in OPTIONAL


class Makes:
    """Right arguments for each kind of parameter."""

    def __init__(self):
        self.lib, self.k = koine.load(), koine.Context("INTERP")
        self.held = []

    def ones(self):
        return self.lib.kn_param(self.lib.kn_ones(self.k.h, koine.ints((4, 4)), 14))

    def kernel(self):
        lib, k, u = self.lib, self.k.h, (P * 2)
        i = lib.kn_u_range(k, lib.kn_u_int(k, _abi.ENUMS["kn_dtype"]["KN_IDX"], 4), 4)
        at = lib.kn_u_make(k, b"index", 2, u(lib.kn_u_param(k, 0, 14, 4), i))
        store = lib.kn_u_make(k, b"store", 2, u(at, lib.kn_u_float(k, 14, 1.0)))
        return lib.kn_u_kernel(k, b"one", lib.kn_u_make(k, b"end", 2, u(store, i)))

    def optim(self):
        return self.lib.kn_sgd(self.k.h, (P * 2)(self.ones(), self.ones()), 2, 0.1, 0.0, 0.0)

    def layer(self, kind):
        new = {"kn_linear_layer": ("kn_linear_new", 4, 4, 1), "kn_conv2d_layer": ("kn_conv2d_new", 4, 4, 1, 1, 0, 1), "kn_norm_layer": ("kn_layer_norm_new", 4)}[kind]
        return getattr(self.lib, new[0])(self.k.h, *new[1:])

    def of(self, f, kind, name):
        lib, k = self.lib, self.k.h
        if kind in ("kn_ctx *", "const kn_ctx *"):
            return k
        if kind == "kn_tensor":
            return None if optional(f, name) else self.ones()
        if kind == "const kn_tensor *":
            return (P * 2)(self.ones(), self.ones())
        if kind == "kn_uop":
            return self.kernel() if name in ("kernel", "effect", "tuple") else lib.kn_u_int(k, 4 + 4, 1)
        if kind == "const kn_uop *":
            return (P * 2)(lib.kn_u_int(k, 8, 1), lib.kn_u_int(k, 8, 2))
        if kind == "const char *":
            return TEXT.get(name, b"KN_DEBUG" if f.name in ("kn_set", "kn_get") else b"nothing/here")
        if kind in ("kn_optim *", "const kn_optim *"):
            return self.optim()
        if kind == "kn_captured *":
            return lib.kn_capture_at(None, 0, 1, (P * 1)(self.ones()))
        if kind in ("kn_rules *", "const kn_rules *"):
            return lib.kn_rules_load(k, b"r", b"ruleset r\n", None)
        if kind == "release":
            return _abi.KINDS[kind]()
        if kind == "kn_fn":
            return _abi.KINDS["kn_fn"](lambda user, a, out: ctypes.cast(out, ctypes.POINTER(P)).__setitem__(0, ctypes.cast(a, ctypes.POINTER(P))[0]))
        if "layer *" in kind:
            return ctypes.byref(self.layer(kind.split()[1]))
        if kind == "kn_ints":
            return koine.ints(LISTS.get(name, (2, 2)))
        if kind == "const int64_t *":
            return (ctypes.c_int64 * 2)(2, 2)
        if kind == "void *const *":
            return (P * 1)(ctypes.addressof(self.room()))
        if kind.endswith("*"):
            return None if optional(f, name) or f.name in ("kn_free", "kn_images_free") else ctypes.addressof(self.room())
        if kind == "size_t" and f.name == "kn_kernel_run":
            return 1
        return NUMBERS.get(name, 1.0 if kind == "double" else 0 if name == "axis" or kind.startswith("kn_") else 1)

    def room(self):
        self.held.append(ctypes.create_string_buffer(4096))
        return self.held[-1]


def call(f, missing):
    """What f said with NULL for one parameter: (did it fail, the message)."""
    makes = Makes()
    lib, null = makes.lib, f.params[missing][0]
    args = [None if i == missing else makes.of(f, kind, name) for i, (kind, name) in enumerate(f.params)]
    if null in ("kn_fn", "release"):
        args[missing] = _abi.KINDS[null]()
    assert not lib.kn_error(makes.k.h), makes.k.message()
    r = getattr(lib, f.name)(*args)
    failed = r != 0 if f.result == "kn_status" else not r or lib.kn_check(r) != 0 if f.result == "kn_tensor" else not r if f.result.endswith("*") or f.result == "kn_uop" else True
    return failed, makes.k.message()


def in_a_child(f, missing):
    """call, where a crash is one of a child."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            failed, text = call(f, missing)
            os.write(w, f"{int(failed)}{text}".encode())
        except BaseException as e:
            os.write(w, f"?{e!r}".encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0 and said, "it crashed"
    assert said[0] != "?", said
    return said[0] == "1", said[1:]


def pointers():
    return [(f, i) for f in functions() for i, (kind, name) in enumerate(f.params) if kind.endswith("*") or kind in ("kn_tensor", "kn_uop", "kn_fn", "release")]


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX, where another test has it in this process, warns of any
def test_no_pointer_is_taken_on_trust():
    wrong, tried = {}, pointers()
    assert len(tried) > 600
    for f, i in tried:
        kind, name = f.params[i]
        try:
            failed, text = in_a_child(f, i)
            assert "(null)" not in text, text
            told = kind not in SILENT and not optional(f, name) and f.name not in SILENT_CALLS and (f.name, name) not in SILENT_PARAMETERS
            if (f.name, name) in ONLY_HERE:
                assert failed and ONLY_HERE[f.name, name] in text, text
            elif told:
                assert failed and re.search(r"\bKN1109: \w+: .* is NULL\n", text), (failed, text)
        except AssertionError as e:
            wrong[f.name, name] = str(e).splitlines()[0]
    assert not wrong, "\n".join(f"{c}: {why}" for c, why in wrong.items())


def test_what_no_context_says():
    lib = koine.load()
    assert lib.kn_error(None) == _abi.ENUMS["kn_status"]["KN_NOMEM"]
    assert b"no context" in lib.kn_message(None)
