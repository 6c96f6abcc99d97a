"""Every elementwise op and reduction of the interpreter against numpy, whole arrays at a time, through the command.

One program a dtype, with one output an op: numpy says what each should be."""
import pytest

np = pytest.importorskip("numpy")

INTS = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"]
NP = {"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
      "f16": "float16", "f32": "float32", "f64": "float64"}


def interpret(koine, tmp_path, dtype, lines, arrays, outs):
    text = "koine 1 tensor\n"
    for name, a in arrays.items():
        np.save(tmp_path / f"{name}.npy", a)
        text += f'%{name} = param "{name}" : {dtype} [{a.shape[0]}]\n'
    text += "\n".join(lines) + "\n" + "".join(f'out "{o}" = %{o}\n' for o in outs)
    (tmp_path / "p.kn").write_text(text)
    args = [x for n in arrays for x in ("--in", f"{n}={n}.npy")] + [x for o in outs for x in ("--out", f"{o}={o}.npy")]
    koine("run", "p.kn", "--device", "INTERP", *args)
    return {o: np.load(tmp_path / f"{o}.npy") for o in outs}


def same(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind == "f":
        nan = np.isnan(got) & np.isnan(want)
        np.testing.assert_array_equal(np.where(nan, 0, got), np.where(nan, 0, want))
        np.testing.assert_array_equal(np.signbit(np.where(nan, 0, got)), np.signbit(np.where(nan, 0, want)))
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", INTS)
def test_integers(koine, tmp_path, dtype):
    t = np.dtype(NP[dtype])
    info = np.iinfo(t)
    rng = np.random.default_rng(7)
    edge = np.array([info.min, info.min + 1, 0, 1, 2, 3, info.max - 1, info.max], t)
    a = np.concatenate([np.repeat(edge, 8), rng.integers(info.min, info.max, 192, t, endpoint=True)])
    b = np.concatenate([np.tile(edge, 8), rng.integers(info.min, info.max, 96, t, endpoint=True), rng.integers(0, 9, 96).astype(t)])
    with np.errstate(all="ignore"):
        zero = b == 0
        safe = np.where(zero, 1, b).astype(t)
        if info.min < 0:  # INT_MIN // -1
            wrap = (a == info.min) & (b == -1)
            safe = np.where(wrap, 1, safe).astype(t)
        else:
            wrap = np.zeros_like(zero)
        width = t.itemsize * 8
        far = (b >= width) | (b < 0)
        n = np.where(far, 0, b).astype(t)
        want = {
            "add": a + b, "sub": a - b, "mul": a * b, "max": np.maximum(a, b),
            "idiv": np.where(zero, 0, np.where(wrap, info.min, a // safe)).astype(t),
            "mod": np.where(zero | wrap, 0, a % safe).astype(t),
            "xor": a ^ b, "or": a | b, "and": a & b,
            "shl": np.where(far, 0, a << n).astype(t),
            "shr": np.where(far, np.where(a < 0, -1, 0).astype(t), a >> n).astype(t),
            "lt": a < b, "gt": a > b, "le": a <= b, "ge": a >= b, "eq": a == b, "ne": a != b,
        }
    lines = [f"%{op} = {op} %a %b" for op in want]
    lines += ["%neg = neg %a", "%not = not %a", "%mulacc = mulacc %a %b %a", "%sum = reduce add %a axes=(0)",
              "%prod = reduce mul %b axes=(0)", "%top = reduce max %a axes=(0)"]
    with np.errstate(all="ignore"):
        want |= {"neg": (0 - a).astype(t), "not": ~a, "mulacc": a * b + a, "sum": a.sum(0, t, keepdims=True),
                 "prod": b.prod(0, t, keepdims=True), "top": a.max(0, keepdims=True)}
    got = interpret(koine, tmp_path, dtype, lines, {"a": a, "b": b}, list(want))
    for op in want:
        same(got[op], want[op])


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_floats(koine, tmp_path, dtype):
    t = np.dtype(NP[dtype])
    rng = np.random.default_rng(8)
    fi = np.finfo(t)
    edge = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, fi.max, fi.tiny, fi.smallest_subnormal, 0.5, 3], t)
    a = np.concatenate([np.repeat(edge, 12), (rng.standard_normal(200) * 4).astype(t)])
    b = np.concatenate([np.tile(edge, 12), (rng.standard_normal(200) * 4).astype(t)])
    with np.errstate(all="ignore"):
        zeros = (a == 0) & (b == 0)
        top = np.maximum(a, b)
        top = np.where(zeros, np.where(np.signbit(a) & np.signbit(b), t.type(-0.0), t.type(0.0)), top).astype(t)
        want = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "max": top,
                "lt": a < b, "gt": a > b, "le": a <= b, "ge": a >= b, "eq": a == b, "ne": a != b}
        lines = [f"%{op} = {op} %a %b" for op in want]
        want |= {"neg": -a, "recip": t.type(1) / a, "sqrt": np.sqrt(a), "trunc": np.trunc(a)}
        lines += [f"%{op} = {op} %a" for op in ("neg", "recip", "sqrt", "trunc")]
        near = {"exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh}
        x = a.astype(np.float64)
        wide = {op: f(x) for op, f in near.items()} | {"pow": np.power(x, b.astype(np.float64))}
    lines += [f"%{op} = {op} %a" for op in near] + ["%pow = pow %a %b"]
    got = interpret(koine, tmp_path, dtype, lines, {"a": a, "b": b}, list(want) + list(wide))
    for op in want:
        same(got[op], want[op])
    with np.errstate(all="ignore"):
        for op, w in wide.items():
            w = w.astype(t)
            ok = (got[op] == w) | (np.isnan(got[op]) & np.isnan(w)) | (np.abs(got[op] - w) <= 2 * np.spacing(np.abs(w)))
            assert ok.all(), (op, a[~ok][:4], got[op][~ok][:4], w[~ok][:4])


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_float_casts(koine, tmp_path, dtype):
    t = np.dtype(NP[dtype])
    rng = np.random.default_rng(9)
    a = np.concatenate([np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.99, -0.99, 255.5, -128.9, 65504], t), (rng.standard_normal(100) * 1000).astype(t)])
    to = INTS + ["f16", "f32", "f64", "bool"]
    lines = [f"%{d} = cast %a : {d}" for d in to]
    got = interpret(koine, tmp_path, dtype, lines, {"a": a}, to)
    with np.errstate(all="ignore"):
        for d in INTS:
            info = np.iinfo(NP[d])
            x = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0, posinf=np.inf, neginf=-np.inf))
            want = [info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x]
            same(got[d], np.array(want, NP[d]))
        for d in ("f16", "f32", "f64"):
            same(got[d], a.astype(NP[d]))
        same(got["bool"], a != 0)
