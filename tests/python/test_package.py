"""Names, documents, stubs: made from the headers, so that a new declaration is a new function; and the package installs."""
import ast
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import koine as kn  # noqa: E402
from koine import _abi, _functions  # noqa: E402

# The standard's functions, and those that are missing: C has no function for them (or it is not on this branch).
STANDARD = """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype
result_type abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip copysign cos cosh
divide equal exp expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or
logical_xor maximum minimum multiply negative nextafter not_equal positive pow reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take
take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack
argmax argmin count_nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum var all any diff e inf nan newaxis pi
__array_namespace_info__ bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64""".split()
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()
C_NAMES = {"meshgrid", "nextafter", "tensordot", "vecdot", "searchsorted", "argsort", "sort", "diff"}


def test_the_standard():
    missing = {n for n in STANDARD if not hasattr(kn, n)}
    assert missing <= {n for n in C_NAMES if "kn_" + n not in _abi.FUNCTIONS}
    assert kn.__array_api_version__ == "2024.12" and kn.newaxis is None
    assert not [n for n in FFT if not getattr(kn.fft, n).__doc__]
    for n in STANDARD:
        f = getattr(kn, n, None)
        assert not inspect.isfunction(f) or f.__doc__, n


def test_methods():
    """A function whose first operand is a tensor is a method."""
    x = kn.ones((2, 2))
    for name in ("softmax", "relu", "sum", "reshape", "matmul", "astype", "take", "flip", "exp", "cumsum"):
        assert callable(getattr(x, name))
    assert x.reshape(4).shape == x.reshape((4,)).shape == (4,) and x.reshape(4, 1).shape == (4, 1)
    assert not hasattr(x, "zeros") and not hasattr(x, "arange")


def test_documents_come_from_the_headers():
    assert "halves to even" in kn._functions.GENERATED["round"].__doc__.lower() and "tensor.h" in kn.softmax.__doc__ and kn.softmax.__doc__.startswith("exp(x - max)") and str(inspect.signature(kn.softmax)) == "(x, axis=-1)"
    assert _abi.FUNCTIONS["kn_gelu"].doc == "with erf" and _abi.FUNCTIONS["kn_silu"].doc == "x sigmoid(x)"
    assert _abi.FUNCTIONS["kn_std_over"].doc.startswith("correction 0") and "NULL" in _abi.FUNCTIONS["kn_layer_norm"].doc


def test_every_declaration_is_read():
    import re
    for h in ("base.h", "uop.h", "device.h", "tensor.h", "nn.h", "io.h"):
        declared = set(re.findall(r"^KN_API [^;(]*?\**(kn_\w+)\(", (_abi.HEADERS / h).read_text(), re.M))
        assert declared == {f.name for f in _abi.FUNCTIONS.values() if f.header == h}


NEW = """
/* ---- things ------------------------------------------------------------------------------------------------ */

/* Of a block. */
KN_API kn_tensor kn_thing(kn_tensor x, const kn_tensor *more, size_t n, kn_ints sizes, double eps, int k);
KN_API kn_tensor kn_largest(kn_tensor x, int64_t n, kn_tensor *indices, kn_tensor *index); /* and of its own */
KN_API kn_status kn_parts(kn_tensor x, int axis, kn_tensor *out);
KN_API kn_status kn_factors(kn_tensor x, kn_tensor *out);
typedef enum kn_order { KN_TOTAL_FIRST, KN_TOTAL_LAST } kn_order;
KN_API kn_tensor kn_total(kn_tensor x, double q, kn_order method);
KN_API kn_tensor kn_total_over(kn_tensor x, double q, kn_ints axes, int keep, kn_order method);
"""


def test_a_new_declaration(tmp_path):
    """What is added to tensor.h needs no line here."""
    known = set(_abi.FUNCTIONS)
    try:
        (tmp_path / "tensor.h").write_text(NEW)
        _abi._read(tmp_path / "tensor.h")
        f = {n: _abi.FUNCTIONS[n] for n in set(_abi.FUNCTIONS) - known}
        assert sorted(f) == ["kn_factors", "kn_largest", "kn_parts", "kn_thing", "kn_total", "kn_total_over"]
        assert f["kn_largest"].doc == "Of a block. and of its own" and f["kn_thing"].section == "things"
        text = {n: _functions.source(c) for n, c in f.items() if _functions.is_public(c)}
        assert sorted(text) == ["kn_factors", "kn_largest", "kn_parts", "kn_thing", "kn_total"]
        assert text["kn_thing"].startswith("def thing(x, more, sizes, eps, k):") and "len(more)" in text["kn_thing"]
        assert text["kn_largest"].startswith("def largest(x, n):") and "return _wrap(_k, _result), _wrap(_k, _to_indices[0]), _wrap(_k, _to_index[0])" in text["kn_largest"]
        assert text["kn_parts"].startswith("def parts(x, axis):") and "_axis_size(x, axis)" in text["kn_parts"]
        assert text["kn_total"].startswith("def total(x, q, method, axis=None, keepdims=False):")
        assert "_P * max(0, 64)" in text["kn_factors"] and "_choice('kn_order', method)" in text["kn_total"] and _functions.choice("kn_order", "last") == 1
        for t in text.values():
            ast.parse(t)
    finally:
        for n in set(_abi.FUNCTIONS) - known:
            del _abi.FUNCTIONS[n]
        _abi.CHOICES.pop("total", None)


def test_stubs():
    from koine import _stubs
    tree = ast.parse(_stubs.text())
    names = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))} | {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    assert {f for f in _functions.GENERATED} - {"fft"} <= names and {"Array", "Context", "function", "capture", "float32", "pi", "zeros", "asarray"} <= names
    array = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Array")
    assert {"softmax", "shape", "__add__", "reshape"} <= {n.name for n in array.body if isinstance(n, ast.FunctionDef)}
    for name, module in _stubs.MODULES.items():
        names = {n.name for n in ast.parse(_stubs.of_module(module)).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        assert {"nn/__init__": {"Linear", "Adam", "Sequential"}, "linalg": {"svd", "SVDResult"}, "fft": {"fft", "fftfreq"}}.get(name, set()) <= names and names, name
    assert "how: Literal['mean', 'sum', 'each', 'batch'] = 'mean'" in _stubs.text() and "lr: float = 0.001" in _stubs.of_module(kn.nn)


def test_it_installs(tmp_path):
    """What `pip install ./python` puts in place works away from the checkout. (pip itself, in a fresh environment, needs a network.)"""
    if importlib.util.find_spec("setuptools") is None:
        return
    r = subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path, "build", "-b", tmp_path / "b", "--build-lib", tmp_path / "lib"], cwd=ROOT / "python",
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    there = {p.relative_to(tmp_path / "lib").as_posix() for p in (tmp_path / "lib").rglob("*")}
    assert {"koine/_c/libkoine.so", "koine/_c/tensor.h", "koine/nn/functional.py", "koine/py.typed", "koine/__init__.pyi", "koine/nn/__init__.pyi", "koine/linalg.pyi"} <= there
    env = {k: v for k, v in os.environ.items() if k not in ("KOINE_LIB", "KOINE_BUILD")}
    r = subprocess.run([sys.executable, "-c", "import koine as kn; print(kn.softmax(kn.ones(2)), kn.__file__)"], cwd=tmp_path, env={**env, "PYTHONPATH": str(tmp_path / "lib")},
                       capture_output=True, text=True)
    assert r.stdout.startswith("[0.5 0.5]") and str(tmp_path) in r.stdout, r.stderr


def test_a_library_that_is_not_there(tmp_path):
    env = {**os.environ, "KOINE_LIB": str(tmp_path / "no.so"), "PYTHONPATH": str(ROOT / "python")}
    r = subprocess.run([sys.executable, "-c", "import koine"], env=env, capture_output=True, text=True)
    assert "ImportError" in r.stderr and "run `make`" in r.stderr
