"""The package's type stubs, from the headers' declarations and the package's own signatures: `python -m koine._stubs FOLDER`
writes __init__.pyi and those of the modules below there. Nothing generated is committed: `pip install` makes them."""
import inspect
import sys
from pathlib import Path

import koine

from . import _abi, _functions
from ._abi import FUNCTIONS

HEAD = '''"""Made by koine/_stubs.py from the C headers and the package's signatures."""
from builtins import bool as _bool
from typing import Any, Callable, Iterator, Literal, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import datasets as datasets, fft as fft, linalg as linalg, nn as nn, random as random

ArrayLike = Union["Array", _bool, int, float, np.ndarray, Sequence[Any]]
DTypeLike = Union["DType", str, type, np.dtype]
Ints = Union[int, Sequence[int]]
Device = Union[str, "Context"]

'''
# bool is a dtype of the package: the type is _bool here.
KINDS = {"kn_tensor": "ArrayLike", "kn_ints": "Ints", "kn_dtype": "DTypeLike", "const kn_tensor *": "Sequence[ArrayLike]", "double": "float", "const char *": "str"}
# Of the package's own functions, by parameter.
NAMES = {"x": "ArrayLike", "shape": "Ints", "dtype": "Optional[DTypeLike]", "device": "Optional[Device]", "axis": "Optional[Ints]", "keepdims": "_bool", "copy": "Optional[_bool]",
         "fill_value": "Union[_bool, int, float]", "start": "float", "stop": "Optional[float]", "step": "float", "num": "int", "endpoint": "_bool", "n_rows": "int", "n_cols": "Optional[int]",
         "k": "int", "include_initial": "_bool", "arrays": "Sequence[ArrayLike]", "repeats": "int", "shift": "Ints", "repetitions": "Ints", "indices": "ArrayLike", "condition": "ArrayLike",
         "x1": "ArrayLike", "x2": "ArrayLike", "source": "Ints", "destination": "Ints", "min": "Optional[ArrayLike]", "max": "Optional[ArrayLike]", "decimals": "int", "obj": "Any",
         "target": "Array", "value": "ArrayLike", "f": "Callable[..., Any]", "argnums": "Ints", "has_aux": "_bool", "seed": "int", "kind": "Any", "from_": "Any", "to": "Any", "name": "Any",
         "size": "Optional[int]", "n": "Optional[int]", "s": "Optional[Sequence[int]]", "axes": "Optional[Ints]", "norm": "str", "d": "DTypeLike", "dtype_": "DTypeLike", "correction": "float", "ddof": "Optional[int]", "out": "None"}
RETURNS = {"unstack": "Tuple[Array, ...]", "meshgrid": "list[Array]", "broadcast_arrays": "list[Array]", "isdtype": "_bool", "can_cast": "_bool", "result_type": "DType", "dtype": "DType", "realize": "Any",
           "manual_seed": "None", "grad": "Callable[..., Any]", "value_and_grad": "Callable[..., Tuple[Any, Any]]", "vjp": "Tuple[Array, Callable[..., Tuple[Any, ...]]]", "jvp": "Tuple[Array, Array]", "hvp": "Tuple[Array, Tuple[Any, ...]]",
           "jacobian": "Callable[..., Array]", "hessian": "Callable[..., Array]", "checkpoint": "Callable[..., Any]", "device": "Context", "current_context": "Context"}


def parameter(p, kinds):
    t = kinds.get(p.name) or NAMES.get(p.name, "Any")
    if p.kind is p.VAR_POSITIONAL:
        return f"*{p.name}: {'ArrayLike' if p.name == 'arrays' else 'Any'}"
    if p.kind is p.VAR_KEYWORD:
        return f"**{p.name}: Any"
    if p.default is p.empty:
        return f"{p.name}: {t}"
    if p.default is None and not t.startswith(("Optional", "Any", "None")):
        t = f"Optional[{t}]"
    if isinstance(p.default, (bool, float)):
        t = "_bool" if isinstance(p.default, bool) else "float"
    return f"{p.name}: {t} = {p.default!r}"


def choices(kind):
    """An enum's members by name."""
    return f"Literal[{', '.join(map(repr, _abi.CHOICES[kind]))}]" if kind in _abi.CHOICES else "int"


def signature_of(name, f, method=False):
    c = _functions.whole(FUNCTIONS["kn_" + f.__name__]) if getattr(f, "__name__", "") in _functions.GENERATED else None
    kinds, returns = {}, RETURNS.get(name, "Array") if not method else METHODS.get(name) or RETURNS.get(name, "Array")
    if c:
        kinds = {p.name: KINDS.get(p.kind) or choices(p.kind) for p in _functions.signature(c)}
        kinds.update(axis="Optional[Ints]" if "kn_" + c.name[3:] + "_over" in FUNCTIONS else "int", keepdims="_bool")
        outs = [n for kind, n in c.params if kind == "kn_tensor *"]
        if c.result == "kn_status":
            returns = "None" if not outs else "Tuple[Array, ...]" if outs == ["out"] else f"Tuple[{', '.join(['Array'] * len(outs))}]" if len(outs) > 1 else "Array"
        elif outs:
            returns = f"Tuple[{', '.join(['Array'] * (1 + len(outs)))}]"
    parts, star, slash = [], False, False
    params = list(inspect.signature(f).parameters.values())
    for i, p in enumerate(params):
        if p.kind is p.POSITIONAL_ONLY:
            slash = True
        elif slash:
            parts.append("/")
            slash = False
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star |= p.kind is p.VAR_POSITIONAL
        parts.append("self" if method and i == 0 else parameter(p, kinds))
    if slash:
        parts.append("/")
    return f"({', '.join(parts)}) -> {returns}"


def function(name, f, indent="", method=False):
    doc = (inspect.getdoc(f) or "").split("\n\n")
    doc = "\n\n".join(doc[:-1]) if f.__name__ in _functions.GENERATED and doc[-1].startswith("koine/") else doc[0]
    doc = doc.replace("\\", "\\\\").replace('"""', "'''")
    body = f'\n{indent}    """{doc}"""\n' if doc else " ...\n"
    return f"{indent}def {name}{signature_of(name, f, method)}:{body}"


def of_class(c):
    if issubclass(c, tuple):
        return f"class {c.__name__}(NamedTuple):\n" + "".join(f"    {f}: Array\n" for f in c._fields)
    lines = [f"class {c.__name__}{'(' + ', '.join(b.__name__ for b in c.__bases__ if b is not object) + ')' if c.__bases__ != (object,) else ''}:"]
    if c.__doc__:
        lines.append(f'    """{inspect.cleandoc(c.__doc__)}"""')
    for name, v in sorted(vars(c).items()):
        if isinstance(v, property):
            lines.append(f"    @property\n    def {name}(self) -> {PROPERTIES.get(name, 'Any')}: ...")
            if v.fset:
                lines.append(f"    @{name}.setter\n    def {name}(self, value: {PROPERTIES.get(name, 'Any')}) -> None: ...")
        elif inspect.isfunction(v) and (not name.startswith("_") or name.startswith("__") and name not in SKIPPED):
            if name == "__init__" and c.__module__ == "koine.nn":
                lines.append(f"    def __init__{signature_of(name, v, True)}: ...")
            elif name.startswith("__"):
                lines.append(f"    def {name}(self, *args: Any, **more: Any) -> {OPERATORS.get(name, 'Array' if c is koine.Array else 'Any')}: ...")
            else:
                lines.append(function(name, v, "    ", True).rstrip())
    if len(lines) == 1:
        lines.append("    ...")
    return "\n".join(lines) + "\n"


PROPERTIES = {"lr": "float", "dtype": "DType", "shape": "Tuple[int, ...]", "ndim": "int", "size": "int", "nbytes": "int", "device": "str", "context": "Context", "T": "Array", "mT": "Array",
              "stats": "dict[str, Any]"}
OPERATORS = {"__float__": "float", "__int__": "int", "__bool__": "_bool", "__index__": "int", "__len__": "int", "__iter__": "Iterator[Array]", "__array__": "np.ndarray", "__repr__": "str",
             "__str__": "str", "__complex__": "complex", "__contains__": "_bool", "__format__": "str", "__setitem__": "None", "__init__": "None", "__exit__": "None", "__eq__": "Any", "__ne__": "Any"}
SKIPPED = ("__del__", "__new__", "__reduce__")
METHODS = {"item": "Union[_bool, int, float]", "tolist": "Any", "numpy": "np.ndarray", "close": "None", "set": "None", "get": "Optional[str]", "check": "None", "drain": "None",
           "parameters": "list[Array]", "__init__": "None"}
RETURNS.update({n: t for n, t in METHODS.items() if n not in ("parameters", "__init__")})
RETURNS.update({"unique_all": "UniqueAllResult", "unique_counts": "UniqueCountsResult", "unique_inverse": "UniqueInverseResult", "svd": "SVDResult", "qr": "QRResult", "eigh": "EighResult", "slogdet": "SlogdetResult", "digits": "Tuple[Array, Array]", "mnist": "Tuple[Array, Array]", "seed": "None"})


def text():
    out, names = [HEAD], sorted(n for n in vars(koine) if not n.startswith("_"))
    for name in names:
        v = getattr(koine, name)
        if inspect.isclass(v) and name == v.__name__:
            out.append(of_class(v))
        elif inspect.isfunction(v):
            out.append(function(name, v))
        elif isinstance(v, koine.DType):
            out.append(f"{name}: DType\n")
        elif isinstance(v, (int, float)):
            out.append(f"{name}: {type(v).__name__}\n")
    out.append("newaxis: None\n__version__: str\n__array_api_version__: str\n")
    return "\n".join(out)


MODULES = {"datasets": koine.datasets, "fft": koine.fft, "linalg": koine.linalg, "random": koine.random, "nn/functional": koine.nn.functional, "nn/__init__": koine.nn}
NAMES.update({"inputs": "int", "outputs": "int", "size": "int", "stride": "int", "padding": "int", "channels": "int", "count": "int", "p": "float", "lr": "float", "loss": "Array",
              "params": "Union[Sequence[Array], Module, Array]", "beta1": "float", "beta2": "float", "eps": "float", "momentum": "float", "weight_decay": "float", "bias": "_bool"})


def of_module(m):
    out = [HEAD.replace("from . import datasets as datasets, fft as fft, linalg as linalg, nn as nn, random as random", "from koine import Array, Context, DType")]
    for name in getattr(m, "__all__", None) or sorted(n for n in vars(m) if not n.startswith("_")):
        v = getattr(m, name)
        if inspect.isclass(v) and issubclass(v, tuple):
            out.append(of_class(v))
        elif inspect.isclass(v) and v.__module__ == m.__name__:
            out += [of_class(b) for b in v.__mro__[-2:0:-1] if b.__name__.startswith("_") and f"class {b.__name__}" not in "".join(out)] + [of_class(v)]
        elif inspect.isfunction(v) and v.__module__ in ("koine", m.__name__, "koine._api"):
            out.append(function(name, v))
        elif inspect.ismodule(v) and v.__name__.startswith(m.__name__):
            out.append(f"from . import {name} as {name}\n")
    return "\n".join(out)


if __name__ == "__main__":
    (Path(sys.argv[1]) / "__init__.pyi").write_text(text())
    for _name, _module in MODULES.items():
        (Path(sys.argv[1]) / f"{_name}.pyi").write_text(of_module(_module))
    assert _abi
