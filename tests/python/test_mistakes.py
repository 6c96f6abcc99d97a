"""What the user is told: the kind of exception, the line of their own file, what is wrong, what to do."""
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np  # noqa: F401
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import koine as kn  # noqa: E402
from koine._context import error  # noqa: E402

V, T, I = ValueError, TypeError, IndexError
MISTAKES = """
x + kn.ones(3)                              | V | KN1203 (2, 2) (3,) kn.reshape
x @ kn.ones(3)                              | V | KN1210 sizes 2 and 3 kn.mT
x + "a"                                     | T | unsupported operand
x & 1                                       | T | KN1151 bitwise_and f32 an integer or bool
kn.astype(x, "int8") + 300                  | OverflowError | 300 does not fit int8 astype
x[5]                                        | I | KN1136 index 5 axis 0 of size 2
x[0, 0, 0]                                  | I | 3 indices 2 axes
x["a"]                                      | T | an integer, a slice 'a'
x[1.5]                                      | T | not 1.5
kn.function(lambda v: v[v > 1])(x)          | I | depends on data kn.where
x[..., ...]                                 | I | one ... at most
kn.softmax(x, axis=2)                       | I | KN1125 axis 2 rank 2
kn.softmax(x, axis=1.5)                     | T | integer 1.5
kn.softmax("abc")                           | T | numbers expected str
kn.sum(x, axis=3)                           | I | KN1125 axis 3
kn.sum(x, axis="0")                         | T | sequence of integers '0'
kn.max(kn.zeros(0))                         | V | KN1152 no elements
kn.argmax(x, axis=-3)                       | I | KN1125 -3
kn.reshape(x, (3, 3))                       | V | KN1006 4 elements 9
kn.reshape(x, (-1, -1))                     | V | KN1130 more than one -1
kn.reshape(x, 3.5)                          | T | 3.5
kn.permute_dims(x, (0, 0))                  | I | KN1126 named twice
kn.squeeze(x, axis=0)                       | V | axis 0 has size 2
kn.flip(x, axis=7)                          | I | KN1125 axis 7
kn.pad(x, (1, 1))                           | V | KN1132 4 amounts got 2 (before0
kn.zeros((2, -1))                           | V | KN1121 size -1 axis 1
kn.zeros("23")                              | T | '23'
kn.zeros(2, dtype="flot32")                 | T | 'flot32' no dtype float32
kn.full((2,), "a")                          | T | a number 'a'
kn.arange(0, 1, 0)                          | V | KN1142 step
kn.linspace(0, 1, -3)                       | V | KN1121 -3
kn.eye(2.5)                                 | T | 2.5
kn.asarray([[1, 2], [3]])                   | V | asarray inhomogeneous
kn.asarray("hello")                         | T | numbers expected str
kn.asarray([1j])                            | T | complex real and imaginary
kn.asarray(x.T * 1, dtype="int8", copy=False) | V | by a copy alone
kn.astype(x, "complex64")                   | T | no dtype complex
kn.from_dlpack(3)                           | T | __dlpack__ int asarray
kn.concat([x, kn.ones((3, 3))])             | V | KN1137 tensor 1 (3, 3) (2, 2)
kn.stack([])                                | V | stack: one at least
kn.split(x, (1, 2))                         | V | KN1138 add up to 3
kn.split(x, 2)                              | T | a list of sizes kn.chunk(x, 2)
kn.chunk(x, 2.5)                            | T | chunk: n 2.5
kn.concat(x, x)                             | T | concat: a list of arrays (2, 2)
kn.concat([])                               | V | concat: one at least
x[[0, 5]]                                   | I | index 5 axis 0 of size 2
x[:, np.array([-3])]                        | I | index -3 axis 1
x.__setitem__(5, 1)                         | I | KN1136 index 5 axis 0 of size 2
x.__setitem__(0, [1, 2, 3])                 | V | KN1204 (3,) (2,)
x.__setitem__(0, None)                      | T | None: a number
i.__setitem__(0, 1.5)                        | T | KN1161 i64 value.astype(dtype)
kn.asarray(None)                            | T | numbers expected NoneType
kn.asarray([1, None])                       | T | numbers expected objects
kn.asarray(300, dtype="int8")               | OverflowError | 300 does not fit int8 astype
kn.asarray([1, -1], dtype="uint8")          | OverflowError | -1 does not fit uint8
kn.asarray([2**70])                         | OverflowError | does not fit 64 bits
kn.full(2, 256, dtype="uint8")              | OverflowError | 256 does not fit uint8
kn.full(2, None)                            | T | full: a number None
kn.arange("a")                              | T | arange: stop: a number 'a'
kn.linspace(0, "b", 3)                      | T | linspace: stop 'b'
kn.sin(None)                                | T | an array expected None
kn.equal(x, None)                           | T | KN1103 operand 1 is None
x.astype(None)                              | T | a dtype expected None
kn.isdtype(x, "numeric")                    | T | x.dtype is its dtype
round(x, 2)                                 | V | whole numbers
kn.layer_norm(x, (2,))                      | T | layer_norm: axes (2,)
kn.einsum(x, "ij->ji")                      | T | expression: text
kn.attention(x, x, x, mask=i)               | T | KN1151 attention i64 bool
kn.cumulative_sum(x)                        | V | axis= 2 axes
kn.vector_norm(x, ord="fro")                | T | vector_norm: ord 'fro'
kn.linalg.pinv(x, rtol="a")                 | T | rtol 'a'
kn.linalg.matrix_norm(x, ord="max")         | V | KN1262 "max" fro, nuc
kn.fft.fftfreq("a")                         | T | fftfreq: n
kn.imag(x)                                  | T | no complex
kn.device(3)                                | T | a name 3
kn.realize(3)                               | T | an array 3
kn.grad(3)                                  | T | a function 3 grad(f)(x)
kn.function(3)                              | T | a function 3
kn.capture(3)                               | T | a function 3 capture(f)(x)
kn.capture(lambda a: float(a.sum()))(x)     | V | while a step is captured kn.where
kn.capture(lambda a: a[a > 1])(x)           | I | while a step is captured kn.where
kn.capture(lambda a: kn.param(a))(x)        | T | while a step is captured outside
kn.capture(lambda a: kn.bind("n", 3))(x)    | V | bind while a step is captured between calls
kn.capture(lambda a: kn.random.seed(3))(x)  | V | seed while a step is captured between calls
kn.capture(lambda a: setattr(kn.nn.SGD(p), "lr", 3))(x) | V | lr is set while a step is captured between calls
kn.capture(lambda a: i.__setitem__(0, 3))(x) | T | made outside kn.param(x)
kn.capture(lambda a: a + kn.ones(3))(x)     | V | KN1203 (2, 2) (3,) kn.reshape
kn.function(kn.capture(lambda a: a * p))(x) | T | while a function is traced outside koine.function
kn.capture(lambda a: a)([1, x], {3})        | T | a dict takes as a key
kn.nn.Sequential([kn.relu])                 | T | Sequential(*parts)
kn.nn.Adam([p], lr="a")                     | T | Adam: lr 'a'
kn.nn.Adam([p]).step(1.0)                   | T | the loss expected 1.0
kn.nn.Conv2d(1, 2, (3, 3))                  | T | Conv2d: size (3, 3)
x + kn.asarray([1.0], device="INTERP")      | V | KN1104 to_device
kn.random.uniform(2, dtype="int32")         | T | KN1150 koine.float32
kn.take(x, 1.5, axis=0)                     | T | KN1151 integer index
kn.take(x, i)                               | V | an axis 2 axes
kn.repeat(x, i)                             | V | one number for all
kn.roll(x, (1, 2), axis=0)                  | V | 2 shifts for 1 axes
kn.moveaxis(x, 0, 9)                        | I | KN1125 axis 9
kn.conv2d(x, x)                             | V | KN1128 rank 4 rank 2
kn.cross_entropy(x, kn.ones((7,)))          | V | KN1230 (N, C, ...) labels
kn.linear(x, kn.ones((3, 3)))               | V | KN1211 (out, in)
kn.layer_norm(x, 5)                         | V | KN1231 last 5 axes
kn.dropout(x, 1.5)                          | V | KN1154 1.5 0 to 1
kn.random.randint((2,), 5, 1)               | V | KN1153 [5, 1) above
kn.attention(x, x)                          | T | 'v'
float(x)                                    | T | without axes (2, 2)
bool(x)                                     | V | truth koine.any
[1, 2][x]                                   | T | integer float32
x.T[None].T                                 | V | 3 axes permute_dims
p.assign(kn.ones(3))                        | V | KN1204 (3,) (2, 2)
p.assign(i)                                 | T | KN1161 f32 i64 value.astype(dtype)
p.assign("a")                               | T | numbers
kn.grad(lambda a: a)(i)                     | T | int64 no derivative
kn.grad(lambda a: 3)(x)                     | T | returned int
kn.grad(lambda a: (a, 1))(x)                | T | tuple has_aux=True
kn.grad(lambda a: a, argnums=1)(x)          | T | argnums 1 1 positional
kn.grad(lambda a: float(a.sum()))(x)        | V | not known while kn.where
kn.function(lambda a: a if a > 0 else -a)(x[0, 0]) | V | not known while kn.where
kn.function(lambda a, s: a)(x, set())       | T | a dict takes as a key
kn.function(lambda a: p.assign(a))(x)       | T | while a function is traced return
kn.nn.Adam([x])                             | T | koine.param
kn.nn.Linear("a", 3)                        | T | integer 'a'
kn.nn.Linear(2, 3)(kn.ones((4, 5)))         | V | KN1211 5 features 2
x.to_device("GPU")                          | V | 'GPU' CPU
kn.Context("NPU")                           | V | 'NPU' INTERP
kn.current_context().set("KN_COLOUR", 1)    | V | KN1107 koine info
kn.current_context().set("KN_VERIFY", 7)    | V | KN1111 0..3
kn.load_npy("/nonexistent.npy")             | OSError | KN6001 /nonexistent.npy
kn.save_npy(x, "/nonexistent/x.npy")        | OSError | KN6002
kn.linalg.svd(kn.ones((70, 70)))            | NotImplementedError | KN1267 64 numpy.linalg
kn.fft.fft(kn.ones(4))                      | V | fft: (real, imaginary) last axis (4,) kn.stack
kn.fft.ifftn(x[0, 0])                       | V | ifftn: (real, imaginary) last axis ()
kn.linalg.norm(x, ord="max")                | V | KN1262 "max" fro
kn.linalg.norm(kn.ones((2, 2, 2)), 1)       | V | norm: one axis or two
kn.iinfo("float32")                         | T | no integer finfo
kn.isdtype("float32", "flt")                | T | 'flt'
""".strip().splitlines()


@pytest.mark.parametrize("line", MISTAKES, ids=lambda s: s.split("|")[0].strip())
def test_mistake(line):
    code, kind, parts = (s.strip() for s in line.split("|"))
    x, i = kn.asarray([[1.0, 2], [3, 4]]), kn.asarray([1, 2])
    names = {"kn": kn, "np": np, "x": x, "i": i, "p": kn.param(x)}
    with pytest.raises(eval(kind)) as e:
        eval(compile("\n" * 41 + code, "their_program.py", "eval"), names)
    text = str(e.value)
    for part in parts.split():
        assert part in text, text
    if isinstance(e.value, kn.Error) and e.value.number:
        assert text.startswith("their_program.py:42: KN"), text
    assert any(f.filename == "their_program.py" and f.lineno == 42 for f in traceback.extract_tb(e.tb))
    assert "kn_" not in text and not [n for n in re.findall(r"\bkn\.(\w+)", text) if not hasattr(kn, n)], text
    assert kn.current_context().tracing == 0
    assert (x + 1).tolist() == [[2, 3], [4, 5]]  # nothing is left behind


def test_kinds():
    with pytest.raises(kn.AxisError) as e:
        kn.ones(3)[3]
    assert isinstance(e.value, IndexError) and isinstance(e.value, ValueError) and isinstance(e.value, kn.Error) and e.value.number == 1136
    for kind, of in ((kn.ArgumentError, V), (kn.DTypeError, T), (kn.NoMemoryError, MemoryError), (kn.FileError, OSError), (kn.UnsupportedError, NotImplementedError)):
        assert issubclass(kind, of) and issubclass(kind, kn.Error)


def test_what_hints_name_exists():
    """Of every message that a Python program can meet: the names in it are Python's."""
    only_c = {"keep", "hand_up", "scope_close", "drop", "why", "numel", "dtype_size", "dtype_of", "reduction", "interpolation", "u_", "u_kernel"}
    table = (Path(__file__).resolve().parents[2] / "src/base/errors.def").read_text()
    for line in re.findall(r"^KI_ERROR.*", table, re.M):
        text = str(error(line, 0))
        assert {n for n in re.findall(r"\bkn\.(\w+)", text) if not hasattr(kn, n)} <= only_c, text


def test_a_setting_that_is_none():
    """The environment's settings are as good as set's: the first array says what is wrong with one."""
    got = subprocess.run([sys.executable, "-c", "import koine as kn; kn.ones(2)"], cwd=Path(__file__).resolve().parents[2] / "python", capture_output=True, text=True, env=dict(os.environ, KN_BEAM="-1"))
    assert got.returncode and "koine.ArgumentError: KN1111: KN_BEAM=-1: expected a whole number in 0..64" in got.stderr
