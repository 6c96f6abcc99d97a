"""Labelled images to train on: (x, y), float32 (n, channels, height, width) and int32 (n,)."""
import ctypes

import numpy as np

from . import _abi
from ._array import _of_numpy
from ._context import L, S, current

_Images = _abi.STRUCTS["kn_images"].type


def _arrays(f, *args):
    k, im = current(), _Images()
    with k.lock:
        k.check(f(k._c, *args, ctypes.addressof(im)))
        shape = (im.n, im.channels, im.height, im.width)
        x = np.ctypeslib.as_array(ctypes.cast(im.x, ctypes.POINTER(ctypes.c_float)), shape)
        y = np.ctypeslib.as_array(ctypes.cast(im.y, ctypes.POINTER(ctypes.c_int32)), shape[:1])
        out = _of_numpy(k, x), _of_numpy(k, y)
        L.kn_images_free(ctypes.addressof(im))
    return out


def digits(n, seed=0):
    """n handwritten-style digits, 28 x 28, ink in [0, 1], drawn by koine: the same for the same seed."""
    return _arrays(S.kn_images_digits, seed, n)


def mnist(folder, test=False):
    """MNIST's training or test files in a folder, plain or .gz."""
    return _arrays(S.kn_images_mnist, str(folder).encode(), bool(test))
