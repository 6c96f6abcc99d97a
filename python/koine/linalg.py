"""The array API's linear algebra, as far as C has it."""
from . import _api
from ._functions import GENERATED as _G

for _name in ("cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "kron", "matmul", "matrix_power", "matrix_transpose", "norm", "outer", "qr", "slogdet", "solve",
              "solve_triangular", "svd", "svdvals", "pinv", "matrix_rank", "tensordot", "trace", "vecdot"):
    _f = getattr(_api, _name, None) or _G.get(_name)
    if _f is not None:
        globals()[_name] = _f

if "vector_norm" in _G:
    def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
        """The ord-th root of the sum of |x|^ord over all elements, or over axis."""
        return _G["vector_norm"](x, ord=ord, axis=axis, keepdims=keepdims)

if "qr" in _G:
    def qr(x, /, *, mode="reduced"):
        """Q with orthonormal columns, R upper triangular; mode "complete": Q square."""
        if mode not in ("reduced", "complete"):
            raise _api.ArgumentError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
        return _G["qr"](x, mode == "complete")

if "svd" in _G:
    def svd(x, /, *, full_matrices=True):
        """U, singular values in descending order, V'; full_matrices False: no more columns of U and rows of V' than there are values."""
        return _G["svd"](x, bool(full_matrices))
