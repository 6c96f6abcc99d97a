"""Operands for the tables: arrays and the views of them that a tensor library must not confuse."""
import zlib

import numpy as np


def rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def values(name, shape, dtype=np.float32, lo=-2.0, hi=2.0):
    r, d = rng(name), np.dtype(dtype)
    if d.kind == "f":
        return r.uniform(lo, hi, shape).astype(d)
    if d.kind == "b":
        return r.integers(0, 2, shape).astype(d)
    lo, hi = int(np.ceil(lo)), int(np.floor(hi))
    if d.kind == "u":
        lo = max(lo, 0)
    return r.integers(lo, max(hi, lo) + 1, shape).astype(d)


# name -> (base shape, koine's view of a tensor, numpy's of an array)
VIEWS = {
    "scalar": ((), lambda t: t, lambda a: a),
    "empty": ((0,), lambda t: t, lambda a: a),
    "empty3": ((2, 0, 3), lambda t: t, lambda a: a),
    "vector": ((17,), lambda t: t, lambda a: a),
    "transposed": ((3, 5), lambda t: t.transpose(0, 1), lambda a: a.T),
    "strided": ((4, 9), lambda t: t.slice(1, 7, 0, -2), lambda a: a[:, 7:0:-2]),
    "expanded": ((3, 1, 2), lambda t: t.expand((3, 4, 2)), lambda a: np.broadcast_to(a, (3, 4, 2))),
    "padded": ((2, 3), lambda t: t.pad((1, 0, 0, 2), 1.0), lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=1)),
    "large": ((257, 263), lambda t: t, lambda a: a),
}


def operand(k, a, view="vector"):
    return VIEWS[view][1](k.array(a))


def viewed(a, view="vector"):
    return VIEWS[view][2](a)
