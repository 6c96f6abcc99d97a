"""The array API's linear algebra, as far as C has it. Several results are named ones, as numpy's."""
from collections import namedtuple

from . import _api
from ._context import ArgumentError
from ._functions import GENERATED as _G, real as _real

for _name in ("cholesky", "cross", "det", "diagonal", "eigvalsh", "inv", "kron", "matmul", "matrix_power", "matrix_transpose", "outer", "solve",
              "solve_triangular", "svdvals", "tensordot", "vecdot"):
    globals()[_name] = getattr(_api, _name, None) or _G[_name]

EighResult, QRResult = namedtuple("EighResult", "eigenvalues eigenvectors"), namedtuple("QRResult", "Q R")
SlogdetResult, SVDResult = namedtuple("SlogdetResult", "sign logabsdet"), namedtuple("SVDResult", "U S Vh")


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The ord-th root of the sum of |x|^ord over all elements, or over axis."""
    return _G["vector_norm"](x, ord=ord, axis=axis, keepdims=keepdims)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Of the last two axes. ord: "fro"; "nuc", the sum of singular values; 2, -2, the largest and the smallest; 1, -1, inf, -inf, the largest
    and the smallest sum of a column's and of a row's sizes."""
    return _G["matrix_norm"](x, ord if isinstance(ord, str) else f"{ord:g}" if isinstance(ord, (int, float)) else ord, keepdims)


def norm(x, /, ord=None, axis=None, keepdims=False):
    """numpy's: of all elements; with an axis of vectors along it, with two of matrices. ord: as vector_norm and matrix_norm have it."""
    x = _api.asarray(x)
    axes = [axis] if isinstance(axis, int) else list(range(x.ndim)) if axis is None else [*axis]
    if ord is None or len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ArgumentError(f"norm: ord {ord!r} is one of vectors and matrices: one axis or two, not {len(axes)}")
    axes = [_api._axis(x, a) for a in axes]
    y = matrix_norm(_api.moveaxis(x, axes, (-2, -1)), ord=ord)
    for a in sorted(axes) if keepdims else []:
        y = _api.expand_dims(y, a)
    return y


def eigh(x, /):
    """(eigenvalues in ascending order, eigenvectors as columns) of a symmetric matrix."""
    return EighResult(*_G["eigh"](x))


def qr(x, /, *, mode="reduced"):
    """(Q with orthonormal columns, R upper triangular); mode "complete": Q square."""
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    return QRResult(*_G["qr"](x, mode == "complete"))


def slogdet(x, /):
    """(the determinant's sign, the logarithm of its size)."""
    return SlogdetResult(*_G["slogdet"](x))


def svd(x, /, *, full_matrices=True):
    """(U, singular values in descending order, V'); full_matrices False: no more columns of U and rows of V' than there are values."""
    return SVDResult(*_G["svd"](x, bool(full_matrices)))


def pinv(x, /, *, rtol=None):
    """The pseudoinverse. Singular values up to rtol times the largest count as 0; None: the longer side times the dtype's epsilon."""
    return _G["pinv"](x, _least(rtol))


def matrix_rank(x, /, *, rtol=None):
    """How many singular values are above rtol times the largest; None: the longer side times the dtype's epsilon."""
    return _G["matrix_rank"](x, _least(rtol))


def _least(rtol):
    """C's 0 is its default: no tolerance at all is the smallest there is."""
    return 0.0 if rtol is None else _real(rtol, "rtol") or 5e-324


def trace(x, /, *, offset=0, dtype=None):
    """The sum along a diagonal of the last two axes."""
    return _api.sum(_G["diagonal"](x, offset), axis=-1, dtype=dtype)
