"""Fourier transforms, by the array API's names, of pairs: there are no complex dtypes, (real, imaginary) are the last axis, of 2, and axes
are counted without it.

    pairs = kn.fft.rfft(x)                   # (..., n // 2 + 1, 2); np.asarray(pairs).view(complex) is numpy's

norm: "backward", the inverse divides by n; "forward", the way there does; "ortho", each by the root of n.
"""
import math

import numpy as np

from . import _api
from ._api import _make
from ._context import ArgumentError, L
from ._functions import GENERATED as _G, index as _index, number_of as _number_of, real as _real

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]


def _scaled(y, n, norm, back):
    """C's way there divides by nothing, its way back by n."""
    if norm not in ("backward", "ortho", "forward"):
        raise ArgumentError(f"norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "backward":
        return y
    f = math.sqrt(n) if norm == "ortho" else n
    return y * (f if back else 1 / f)


def _sized(x, n, axis, rank):
    """x with n places along an axis, cut or filled up with zeros; of all `rank` of them, and n."""
    axis = _api._axis_of(rank, axis)
    have = x.shape[axis]
    n = have if n is None else _index(n, "n")
    if n < 1:
        raise ArgumentError(f"a transform of {n} places along axis {axis}: one at least")
    if n < have:
        x = _G["slice"](x, axis, 0, n, 1)
    elif n > have:
        x = _G["pad"](x, [n - have if i == 2 * axis + 1 else 0 for i in range(2 * x.ndim)])
    return x, n, axis


def _pairs(x, name):
    """x, whose last axis is pairs."""
    x = _api.asarray(x)
    if x.shape[-1:] != (2,):
        raise ArgumentError(f"{name}: (real, imaginary) expected as the last axis, of 2, not shape {x.shape}; of a real x kn.stack([x, kn.zeros_like(x)], axis=-1)")
    return x


def _along(function, x, n, axis, norm, back, pairs=True):
    x = _pairs(x, function.__name__) if pairs else _api.asarray(x)
    x, n, axis = _sized(x, n, axis, x.ndim - pairs)
    return _scaled(function(x, axis), n, norm, back)


def _axes_of(rank, s, axes, least=0):
    """Axes and how many places along each; None: as many as there are. axes None: all, or as many of the last as s has sizes."""
    if axes is None:
        axes = range(0 if s is None else max(rank - len(s), 0), rank)
    axes = [_api._axis_of(rank, a) for a in ([axes] if isinstance(axes, (int, np.integer)) else axes)]
    if s is not None and len(s) != len(axes):
        raise ArgumentError(f"s has {len(s)} sizes for {len(axes)} axes")
    if len(axes) < least:
        raise ArgumentError("a transform along no axis: real values need one at least")
    return axes, [None] * len(axes) if s is None else list(s)


def _over(function, x, s, axes, norm, back):
    x = _pairs(x, function.__name__ + "n")
    for axis, n in zip(*_axes_of(x.ndim - 1, s, axes)):
        x = _along(function, x, n, axis, norm, back)
    return x


def fft(x, /, *, n=None, axis=-1, norm="backward"):
    """Of pairs along an axis; n: of so many places, cut or filled up with zeros."""
    return _along(_G["fft"], x, n, axis, norm, False)


def ifft(x, /, *, n=None, axis=-1, norm="backward"):
    """fft undone."""
    return _along(_G["ifft"], x, n, axis, norm, True)


def fftn(x, /, *, s=None, axes=None, norm="backward"):
    """fft along several axes, or (None) all; s: how many places along each."""
    return _over(_G["fft"], x, s, axes, norm, False)


def ifftn(x, /, *, s=None, axes=None, norm="backward"):
    """fftn undone."""
    return _over(_G["ifft"], x, s, axes, norm, True)


def rfft(x, /, *, n=None, axis=-1, norm="backward"):
    """Of a real array: the first n // 2 + 1 pairs, which the others mirror."""
    return _along(_G["rfft"], x, n, axis, norm, False, pairs=False)


def irfft(x, /, *, n=None, axis=-1, norm="backward"):
    """rfft undone: n real values; None: 2 (m - 1) of m pairs."""
    return _real_of(_G["irfft"], x, n, axis, norm, True)


def hfft(x, /, *, n=None, axis=-1, norm="backward"):
    """n real values, of the first half of what is Hermitian; None: 2 (m - 1) of m pairs."""
    return _real_of(_G["hfft"], x, n, axis, norm, False)


def ihfft(x, /, *, n=None, axis=-1, norm="backward"):
    """hfft undone: the first half, as rfft's."""
    return _along(_G["ihfft"], x, n, axis, norm, True, pairs=False)


def _real_of(function, x, n, axis, norm, back):
    x = _pairs(x, function.__name__)
    axis = _api._axis_of(x.ndim - 1, axis)
    n = 2 * (x.shape[axis] - 1) if n is None else _index(n, "n")
    return _scaled(function(x, n, axis), n, norm, back)


def rfftn(x, /, *, s=None, axes=None, norm="backward"):
    """rfft along the last of axes, then fft along the others; None: all."""
    x = _api.asarray(x)
    axes, s = _axes_of(x.ndim, s, axes, least=1)
    return _over(_G["fft"], _along(_G["rfft"], x, s[-1], axes[-1], norm, False, pairs=False), s[:-1], axes[:-1], norm, False)


def irfftn(x, /, *, s=None, axes=None, norm="backward"):
    """rfftn undone."""
    x = _pairs(x, "irfftn")
    axes, s = _axes_of(x.ndim - 1, s, axes, least=1)
    return _real_of(_G["irfft"], _over(_G["ifft"], x, s[:-1], axes[:-1], norm, True), s[-1], axes[-1], norm, True)


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of fft's places, for samples d apart."""
    return _make(L.kn_fftfreq, _index(n, "fftfreq: n"), _real(d, "fftfreq: d"), _number_of(dtype), device=device)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of rfft's places, for samples d apart."""
    return _make(L.kn_rfftfreq, _index(n, "rfftfreq: n"), _real(d, "rfftfreq: d"), _number_of(dtype), device=device)


def fftshift(x, /, *, axes=None):
    """Frequency 0 to the middle, along axes or (None) all; a plain array's axes."""
    x = _api.asarray(x)
    return _G["fftshift"](x, range(x.ndim) if axes is None else axes)


def ifftshift(x, /, *, axes=None):
    """fftshift undone."""
    x = _api.asarray(x)
    return _G["ifftshift"](x, range(x.ndim) if axes is None else axes)
