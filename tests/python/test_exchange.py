"""Memory shared with other libraries: DLPack both ways, and scipy."""
import copy
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn  # noqa: F401  (scipy comes with it)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import koine as kn  # noqa: E402
from koine import _context, _dlpack  # noqa: E402

A = np.arange(12, dtype=np.float32).reshape(3, 4)
DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("d", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2), (2, 1, 3)])
def test_both_ways(d, shape):
    a = np.arange(int(np.prod(shape))).reshape(shape).astype(d)
    x = kn.from_dlpack(a)
    assert x.dtype == d and x.shape == shape
    b = np.from_dlpack(x)
    assert b.dtype == a.dtype and b.shape == shape and np.array_equal(a, b)
    c = np.from_dlpack(kn.logical_not(x))
    assert np.array_equal(c, np.logical_not(a))


def test_no_copy():
    a = A.copy()
    x = kn.from_dlpack(a)
    a[0, 0] = 100
    assert float(x[0, 0]) == 100 and np.asarray(x)[0, 0] == 100
    assert np.shares_memory(np.asarray(x), a)
    y = x + 1
    b = np.from_dlpack(y)
    assert not b.flags.writeable and np.shares_memory(b, np.asarray(y)) and np.shares_memory(np.from_dlpack(kn.from_dlpack(b)), b)
    assert kn.from_dlpack(y) is y
    z = kn.from_dlpack(a, copy=True)
    a[0, 0] = 5
    assert float(z[0, 0]) == 100
    x[0, 1] = -1  # x is another array then: memory lent to koine is not written to
    assert a[0, 1] == 1 and float(x[0, 1]) == -1


def test_layouts():
    for a in (A.T, A[::2], A[:, ::-1], A[:, 1:3], np.broadcast_to(A[0], (2, 4))):
        assert np.array_equal(np.asarray(kn.from_dlpack(a)), a)
        with pytest.raises(ValueError, match="row-major"):
            kn.from_dlpack(a, copy=False)
    assert np.array_equal(np.asarray(kn.from_dlpack(A[1:], copy=False)), A[1:])


def test_memory_is_given_back():
    a = A.copy()
    before, owners, lent = sys.getrefcount(a), len(_context._owners), len(_dlpack._lent)
    with kn.Context("INTERP") as k:
        x = kn.from_dlpack(a)
        assert len(_context._owners) == owners + 1 and sys.getrefcount(a) > before
        del x
        for i in range(40000):  # what nothing needs is collected now and then
            kn.asarray(float(i))
            if len(_context._owners) == owners:
                break
        assert len(_context._owners) == owners and sys.getrefcount(a) == before
        y = kn.asarray(a) * 2
        b = np.from_dlpack(y)
        want = b.copy()
        assert len(k.lent) == 1 and len(_dlpack._lent) == lent + 1
        del y
        for i in range(100):
            np.asarray(kn.asarray(a) + i)
        assert np.array_equal(b, want)
        del b
        gc.collect()
        assert not k.lent and len(_dlpack._lent) == lent
        capsule = (kn.asarray(a) + 1).__dlpack__(max_version=(1, 0))
        assert len(_dlpack._lent) == lent + 1
        del capsule  # nobody took it
        gc.collect()
        assert len(_dlpack._lent) == lent and not k.lent
    k.close()


def test_old_protocol():
    """Consumers that do not know read-only memory get a copy; producers that know no version are understood."""

    class Old:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, stream=None):
            return self.a.__dlpack__()

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    x = kn.asarray(A) + 1
    b = np.from_dlpack(Old(x))
    assert np.array_equal(b, A + 1) and not np.shares_memory(b, np.asarray(x))
    assert np.array_equal(np.asarray(kn.from_dlpack(Old(A))), A)
    assert np.array_equal(np.asarray(kn.asarray(Old(A))), A)


def test_refusals():
    x = kn.asarray(A) + 1
    for bad, kind in ((lambda: x.__dlpack__(dl_device=(2, 0)), BufferError), (lambda: x.__dlpack__(stream=1), BufferError), (lambda: x.__dlpack__(copy=False), BufferError),
                      (lambda: kn.from_dlpack([1, 2]), TypeError), (lambda: kn.from_dlpack(np.zeros(2, "complex64")), BufferError)):
        with pytest.raises(kind):
            bad()
    assert x.__dlpack_device__() == (1, 0)


def test_small_floats():
    import ml_dtypes
    x = kn.asarray(np.array([1.5, -2.0], ml_dtypes.bfloat16))
    y = kn.from_dlpack(x.__dlpack__ and _Wrapped(x))
    assert y.dtype == kn.bfloat16 and y.tolist() == [1.5, -2.0]


class _Wrapped:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kw):
        return self.x.__dlpack__(**kw)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_scipy():
    from scipy import integrate, linalg, special, stats
    x = kn.asarray(A + np.eye(3, 4, dtype=np.float32))
    a = np.asarray(x)
    assert np.allclose(linalg.norm(x), np.linalg.norm(a)) and np.allclose(linalg.svdvals(x), np.linalg.svd(a, compute_uv=False))
    assert np.allclose(special.expit(x), 1 / (1 + np.exp(-a))) and np.allclose(stats.zscore(x), stats.zscore(a)) and np.allclose(integrate.trapezoid(x, axis=0), np.trapezoid(a, axis=0))
    assert np.allclose(np.sin(x), np.sin(a)) and np.allclose(np.concatenate([x, x]), np.concatenate([a, a])) 
    for f in (np.mean, np.sum, np.max, np.std, np.any, np.argmax):
        assert np.allclose(f(x), f(a)) and np.allclose(f(x, axis=1), f(a, axis=1))
    assert np.allclose(np.var(x, ddof=1), a.var(ddof=1))
    assert np.array_equal(copy.deepcopy(x), a)
