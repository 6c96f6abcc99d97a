"""Tables of cases for the front end: a module lists CASES, and `test_case(case, device, answer)` compares.

A case is (name, build, expected): build(k) makes a tensor, expected() is numpy's answer. All cases of a module are built
in one context per device and realised together, so that a compiling device compiles once; if that fails, one by one.
KOINE_DEVICES: comma-separated devices, default INTERP,CPU.
"""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
np = pytest.importorskip("numpy")

DEVICES = os.environ.get("KOINE_DEVICES", "INTERP,CPU").split(",")
TOLERANCE = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-12}


class Case:
    def __init__(self, name, build, expected, tol=None, atol=None, dtype=None):
        self.name, self.build, self.expected, self.tol, self.atol, self.dtype = name, build, expected, tol, atol, dtype


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """The modules of this folder test C: what they import as koine is its calls by their names, koine._thin, not the package for users."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    from koine import _thin
    package = sys.modules["koine"]
    sys.modules["koine"] = _thin
    try:
        return (yield)
    finally:
        sys.modules["koine"] = package


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = metafunc.module.CASES
        names = [c.name for c in cases]
        assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1][:5]
        metafunc.parametrize("case", cases, ids=names)
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES)


def _answers(cases, device):
    from koine import _thin as koine
    k = koine.Context(device)
    made, out = {}, {}
    for c in cases:
        try:
            made[c.name] = c.build(k).check()
        except Exception as e:
            out[c.name] = e
    tensors = list(made.values())
    try:
        for i in range(0, len(tensors), 150):
            k.realize(*tensors[i : i + 150])
    except koine.Error:
        pass
    for name, t in made.items():
        try:
            out[name] = (t.dtype, t.numpy())
        except Exception as e:
            out[name] = e
    k.close()
    return out


@pytest.fixture(scope="session")
def _cache():
    return {}


@pytest.fixture
def answer(request, _cache):
    """answer(case, device): (dtype, array), or raises what went wrong."""
    def get(case, device):
        key = (request.module.__name__, device)
        if key not in _cache:
            _cache[key] = _answers(request.module.CASES, device)
        r = _cache[key][case.name]
        if isinstance(r, Exception):
            raise r
        return r
    return get


@pytest.fixture
def check(answer):
    """Compares a case's answer with numpy's: shape, dtype, values within the dtype's tolerance."""
    def run(case, device):
        dtype, got = answer(case, device)
        with np.errstate(all="ignore"):
            want = np.asarray(case.expected())
        assert got.shape == want.shape
        if case.dtype:
            assert dtype == case.dtype
        if want.dtype.kind in "biu" and got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
            return
        tol = case.tol or TOLERANCE.get(dtype, 0)
        atol = tol if case.atol is None else case.atol
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tol, atol=atol)
    return run


@pytest.fixture(params=DEVICES)
def k(request):
    from koine import _thin as koine
    context = koine.Context(request.param)
    yield context
    context.close()
