"""Attention's scores are made, row by row, by the kernel that weighs the values with them (2_rangeify/taken.c), in tiles of rows that share packed keys
(3_optimize/filled.c): nowhere is there memory for all of them."""
import re

import numpy as np
import pytest

ENV = {"KN_CACHE": "off", "KN_CODE": "x86"}


def attention(heads, queries, keys, width, scale=True, causal=False, dtype="f32", also=""):
    h, t, s, e = heads, queries, keys, width
    first = f"%qs = mul %q {e ** -.5}" if scale else "%qs = mul %q 1"
    hide = f"""%one = reshape 1:i32 (1) : i32 [1]
%ones = expand %one ({s}) : i32 [{s}]
%op = pad %ones ({s - 1}) ({2 * s - 1})
%o2 = reshape %op (1, {2 * s - 1})
%ox = expand %o2 ({s + 1}, {2 * s - 1})
%o1 = reshape %ox ({(s + 1) * (2 * s - 1)})
%oc = shrink %o1 (0) ({2 * s * s})
%ow = reshape %oc ({s}, {2 * s})
%win = shrink %ow (0, 0) ({s}, {s})
%cnt = reduce add %win axes=(1)
%row = reshape %cnt (1, {s}, 1)
%rowx = expand %row ({h}, {s}, {s})
%col = reshape %cnt (1, 1, {s})
%colx = expand %col ({h}, {s}, {s})
%hid = gt %colx %rowx
%ms = where %hid -inf %dot
""" if causal else ""
    m = "%ms" if causal else "%dot"
    return f"""koine 1 tensor
%q = param "q" : {dtype} [{h}, {t}, {e}] in [-2, 2]
%k = param "k" : {dtype} [{h}, {s}, {e}] in [-2, 2]
%v = param "v" : {dtype} [{h}, {s}, {e}] in [-2, 2]
{first}
%q4 = reshape %qs ({h}, {t}, 1, {e})
%qx = expand %q4 ({h}, {t}, {s}, {e})
%k4 = reshape %k ({h}, 1, {s}, {e})
%kx = expand %k4 ({h}, {t}, {s}, {e})
%qk = mul %qx %kx
%dot4 = reduce add %qk axes=(3)
%dot = reshape %dot4 ({h}, {t}, {s})
{hide}%m = reduce max {m} axes=(2)
%mx = expand %m ({h}, {t}, {s})
%d = sub {m} %mx
%e = exp %d
%s = reduce add %e axes=(2)
%sx = expand %s ({h}, {t}, {s})
%p = div %e %sx
%p4 = reshape %p ({h}, {t}, {s}, 1)
%px = expand %p4 ({h}, {t}, {s}, {e})
%v4 = reshape %v ({h}, 1, {s}, {e})
%vx = expand %v4 ({h}, {t}, {s}, {e})
%pv = mul %px %vx
%o = reduce add %pv axes=(2)
%y = reshape %o ({h}, {t}, {e})
out "y" = %y
{also}"""


def want(q, k, v, causal):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def inputs(tmp_path, shape):
    """q, k and v by name, and the options that give them to `koine run`."""
    rng, (h, t, s, e) = np.random.default_rng(shape[1]), shape
    x = {n: rng.standard_normal((h, t if n == "q" else s, e), np.float32) for n in "qkv"}
    for n in x:
        np.save(tmp_path / f"{n}.npy", x[n])
    return x, [a for n in x for a in ("--in", f"{n}={tmp_path}/{n}.npy")]


SHAPES = [(3, 131, 131, 8), (3, 333, 333, 100), (2, 150, 129, 16), (2, 128, 200, 64), (12, 128, 128, 64), (1, 1024, 1024, 64), (2, 197, 1030, 7)]


def sinks(koine, text, **env):
    out = koine("compile", "-", "--to", "rangeify", stdin=text, env={**ENV, **env}).stdout
    return out, out.count(" = sink ")


def globals_of(out, n):
    return len(set(re.findall(rf"= (buffer \d+) GLOBAL size={n} ", out)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_in_no_memory(koine, shape, causal):
    causal &= shape[1] == shape[2]
    out, kernels = sinks(koine, attention(*shape, causal=causal))
    assert kernels == 1 and globals_of(out, shape[0] * shape[1] * shape[2]) == 0, out
    opts = re.search("opts=(.*)", koine("compile", "-", "--to", "optimize", stdin=attention(*shape, causal=causal), env={**ENV, "KN_CPU": "avx512"}).stdout)[1]
    assert re.search(r"stage -?\d+ [23]\b", opts), "keys are packed: " + opts


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512", "dot"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_numpys_whatever_the_threads(koine, tmp_path, shape, level):
    x, given = inputs(tmp_path, shape)
    causal = shape[1] == shape[2] < 500
    for threads in (1, 2, 5):
        koine("run", "-", *given, "--out", f"y={tmp_path}/y{threads}.npy", stdin=attention(*shape, causal=causal),
              env={**ENV, "KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": 1})
        y = np.load(tmp_path / f"y{threads}.npy")
        np.testing.assert_allclose(y, want(x["q"], x["k"], x["v"], causal), rtol=1e-5, atol=3e-6)
        assert (y == np.load(tmp_path / "y1.npy")).all()


@pytest.mark.parametrize("shape", [(3, 333, 333, 100), (2, 128, 4100, 64)])
def test_as_c(koine, tmp_path, shape):
    """Frames of megabytes, in C too."""
    x, given = inputs(tmp_path, shape)
    koine("run", "-", *given, "--out", f"y={tmp_path}/y.npy", stdin=attention(*shape),
          env={**ENV, "KN_CODE": "c", "KN_THREADS": 2})
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want(x["q"], x["k"], x["v"], False), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("stage", ["rangeify", "optimize", "expand", "select", "plan"])
def test_every_stage_computes_the_same(koine, tmp_path, stage):
    shape = (1, 130, 131, 5)
    x, given = inputs(tmp_path, shape)
    lowered = koine("compile", "-", "--to", stage, stdin=attention(*shape), env={**ENV, "KN_THREADS": 2, "KN_ALONE": 1}).stdout
    assert lowered.count(" = sink ") <= 1
    koine("run", "-", "--device", "INTERP", *given, "--out", f"y={tmp_path}/y.npy", stdin=lowered, env=ENV)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want(x["q"], x["k"], x["v"], False), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("text, why", [
    (attention(2, 140, 148, 8, also='out "scores" = %dot\n'), "they are asked for"),
    (attention(2, 140, 148, 8, also='%twice = mul %dot 2\nout "z" = %twice\n'), "another kernel reads them"),
    (attention(2, 64, 148, 8), "few rows meet the same keys"),
    (attention(2, 164, 64, 8), "short rows"),
])
def test_scores_that_are_stored(koine, text, why):
    assert sinks(koine, text)[1] > 1, why


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("cpu", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("keys", [4096, 16384, 20001, 32768, 65536])
def test_long_rows_fit_the_stack(koine, keys, cpu, dtype):
    """A product of softmax's rows is one sum, however long; what a tile keeps is bounded by fewer rows in it."""
    text = attention(1, keys, keys, 64, dtype=dtype)
    out, kernels = sinks(koine, text)
    assert kernels == (1 if keys <= 32768 else 2)
    listing = koine("compile", "-", "--target", "x86", stdin=text, env={**ENV, "KN_CPU": cpu, "KN_THREADS": 2}).stdout
    assert all(int(n) < 4 << 20 for n in re.findall(r"frame (\d+) bytes", listing))
