"""Fourier transforms, of pairs: there are no complex dtypes, (real, imaginary) are the last axis, of 2, and axes are counted without it.

    pairs = kn.fft.rfft(x)                   # (..., n // 2 + 1, 2); np.asarray(pairs).view(complex) is numpy's
"""
from . import _api
from ._api import _make
from ._context import L
from ._functions import GENERATED as _G, index as _index, number_of as _number_of, real as _real

__all__ = ["fft", "fftfreq", "fftshift", "ifft", "ifftshift", "irfft", "rfft", "rfftfreq"]
for _name in ("fft", "ifft", "rfft", "irfft"):
    globals()[_name] = _G[_name]


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
