"""The networks of bench/zoo, at a reduced size, against numpy in f64: the same weights and inputs, the same results and, of a
training step, the same weights afterwards."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import nets  # noqa: E402
from tape import V, backward  # noqa: E402


class Weights(dict):
    """Arrays by name, those below a prefix by what is left of their names."""

    def of(self, prefix):
        return Weights((k[len(prefix) + 1 :], v) for k, v in self.items() if k.startswith(prefix + "."))


def linear(w, x):
    y = x @ w["weight"].mT
    return y + w["bias"] if "bias" in w else y


# ---- ResNet-50 ----


def windows(x, size, stride, pad, fill=0.0):
    """(N, C, H, W) to (N, C, oh, ow, size * size)"""
    x = x.pad(((0, 0), (0, 0), (pad, pad), (pad, pad)), fill)
    oh, ow = ((n - size) // stride + 1 for n in x.shape[2:])
    i, j = np.arange(oh)[:, None, None, None] * stride, np.arange(ow)[None, :, None, None] * stride
    rows, columns = np.broadcast_arrays(i + np.arange(size)[:, None], j + np.arange(size))
    n, c = x.shape[:2]
    return x[:, :, rows, columns].reshape(n, c, oh, ow, size * size)


def conv_bn(w, conv, bn, x, stride, after):
    weight, p = w[conv + ".weight"], w.of(bn)
    o, c, size, _ = weight.shape
    v = windows(x, size, stride, size // 2)
    n, _, oh, ow, _ = v.shape
    v = v.permute(0, 2, 3, 1, 4).reshape(n, oh, ow, c * size * size)
    y = (v @ weight.reshape(o, c * size * size).mT).permute(0, 3, 1, 2)
    mean, var = (p["running_" + s].reshape(1, o, 1, 1) for s in ("mean", "var"))
    if after is not None:
        mean = y.mean((0, 2, 3))
        var = ((y - mean) * (y - mean)).mean((0, 2, 3))
        m = n * oh * ow
        for s, v, scale in (("mean", mean, 1), ("var", var, m / (m - 1))):
            name = f"{after[1]}{bn}.running_{s}"
            after[0][name] = 0.9 * p["running_" + s].value + 0.1 * scale * v.value.reshape(o)
    return (y - mean) * (var + 1e-5).power(-0.5) * p["weight"].reshape(1, o, 1, 1) + p["bias"].reshape(1, o, 1, 1)


def bottleneck(w, x, stride, after):
    y = conv_bn(w, "conv1", "bn1", x, 1, after).relu()
    y = conv_bn(w, "conv2", "bn2", y, stride, after).relu()
    y = conv_bn(w, "conv3", "bn3", y, 1, after)
    if "downsample.0.weight" in w:
        x = conv_bn(w, "downsample.0", "downsample.1", x, stride, after)
    return (x + y).relu()


def resnet(w, after=None):
    x = conv_bn(w, "conv1", "bn1", w["x"], 2, after if after is None else (after, "")).relu()
    x = windows(x, 3, 2, 1, -np.inf).max_last()
    for stage in range(4):
        b = 0
        while f"layer{stage + 1}.{b}.conv1.weight" in w:
            name = f"layer{stage + 1}.{b}"
            x = bottleneck(w.of(name), x, 2 if b == 0 and stage else 1, after if after is None else (after, name + "."))
            b += 1
    return linear(w.of("fc"), x.mean((2, 3), False))


# ---- transformers ----


def softmax(x):
    e = (x - x.value.max(-1, keepdims=True)).exp()
    return e / e.sum(-1)


def attention(q, k, v, causal):
    s = q @ k.mT * (1 / np.sqrt(q.shape[-1]))
    if causal:
        s = s + np.where(np.tri(*s.shape[-2:], dtype=bool), 0, -1e30)
    return softmax(s) @ v


def layer_norm(w, x):
    d = x - x.mean(-1)
    return d * ((d * d).mean(-1) + 1e-5).power(-0.5) * w["weight"] + w["bias"]


def gelu(x):
    return x * ((x + x * x * x * 0.044715) * np.sqrt(2 / np.pi)).tanh() * 0.5 + x * 0.5


def caches(w, prefix, k, v, position, after):
    """The caches with a token's keys and values at its position; what is up to it."""
    out = []
    for name, new in (("k", k), ("v", v)):
        c = w[f"{prefix}.{name}"].value.copy()
        c[:, :, position : position + 1] = new.value
        after[f"{prefix}.{name}"] = c
        out.append(V(c[:, :, : position + 1]))
    return out


def gpt2(w, position=None, after=None, heads=4):
    tokens = w["tokens"].value.astype(int)
    (b, t), at = tokens.shape, position or 0
    x = w["wte.weight"][tokens] + w["wpe.weight"][at : at + t]
    d, i = x.shape[-1], 0
    while f"h.{i}.ln_1.weight" in w:
        l = w.of(f"h.{i}")
        h = linear(l.of("attn.c_attn"), layer_norm(l.of("ln_1"), x)).reshape(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        q, k, v = h[0], h[1], h[2]
        if position is not None:
            k, v = caches(w, f"h.{i}.attn", k, v, position, after)
        x = x + linear(l.of("attn.c_proj"), attention(q, k, v, position is None).permute(0, 2, 1, 3).reshape(b, t, d))
        x = x + linear(l.of("mlp.c_proj"), gelu(linear(l.of("mlp.c_fc"), layer_norm(l.of("ln_2"), x))))
        i += 1
    return layer_norm(w.of("ln_f"), x) @ w["wte.weight"].mT


def rms_norm(w, x):
    return x * ((x * x).mean(-1) + 1e-5).power(-0.5) * w


def rotary(x, position):
    """Of the token at a position, or, None, of all of them."""
    half = x.shape[-1] // 2
    at = np.arange(x.shape[-2])[:, None] if position is None else position
    turn = np.exp(1j * at * 500000.0 ** (-np.arange(half) / half))
    y = (x.value[..., :half] + 1j * x.value[..., half:]) * turn
    return V(np.concatenate([y.real, y.imag], -1))


def llama(w, after, position=128, heads=4, kv=2):
    x = w["embed_tokens.weight"][w["tokens"].value.astype(int)]
    (b, t, d), i = x.shape, 0
    each = d // heads
    while f"layers.{i}.norm" in w or f"layers.{i}.input_layernorm.weight" in w:
        l = w.of(f"layers.{i}")
        h = rms_norm(l["input_layernorm.weight"], x)
        h = linear(l.of("self_attn.qkv_proj"), h).reshape(b, t, heads + 2 * kv, each).permute(0, 2, 1, 3)
        q, k, v = h[:, :heads], h[:, heads : heads + kv], h[:, heads + kv :]
        k = rotary(k, position)
        if position is not None:
            k, v = caches(w, f"layers.{i}.self_attn", k, v, position, after)
        k, v = (V(np.repeat(c.value, heads // kv, 1)) for c in (k, v))
        x = x + linear(l.of("self_attn.o_proj"), attention(rotary(q, position), k, v, position is None).permute(0, 2, 1, 3).reshape(b, t, d))
        h = rms_norm(l["post_attention_layernorm.weight"], x)
        gate = linear(l.of("mlp.gate_proj"), h)
        gate = gate / ((gate * -1).exp() + 1)
        x = x + linear(l.of("mlp.down_proj"), gate * linear(l.of("mlp.up_proj"), h))
        i += 1
    return rms_norm(w["norm.weight"], x) @ w["embed_tokens.weight"].mT


# ---- training ----


def cross_entropy(logits, labels):
    x = logits - logits.value.max(-1, keepdims=True)
    p = x - x.exp().sum(-1).log()
    return p[np.arange(len(labels)), labels].mean(0, False) * -1


def trained(w, loss, after, update):
    backward(loss)
    for name, v in w.items():
        if v.grad is not None and name not in after and name not in ("x", "tokens"):
            after[name] = update(v.value, v.grad)
    return loss.value


def sgd(p, g):
    return p - 0.1 * (g + 1e-4 * p)


def adamw(p, g):
    """The first step: the corrected moments are g and g * g, so it is the gradient's sign, and nothing where that is rounding's (keys'
    biases, which softmax takes out again). A row of a table that nobody reads only decays."""
    y = p - 1e-3 * (g / (np.sqrt(g * g) + 1e-8) + 0.01 * p)
    return np.where((np.abs(g) > 1e-2 * np.abs(g).max()) | ((g == 0) & (g.ndim > 1)), y, np.nan)


def train_resnet(w, after):
    return trained(w, cross_entropy(resnet(w, after), w["labels"].value.astype(int)), after, sgd)


def train_gpt2(w, after):
    y = gpt2(w)
    return trained(w, cross_entropy(y.reshape(-1, y.shape[-1]), w["labels"].value.astype(int)), after, adamw)


def train_by_jax(name, update):
    def run(w, after):
        loss, grad = nets.gradients(name, {k: v.value for k, v in w.items()})
        after.update((k, update(w[k].value, np.asarray(g))) for k, g in grad.items())
        return np.asarray(loss)
    return run


MODELS = {
    "resnet50_forward": lambda w, after: resnet(w).value,
    "resnet50_train": train_resnet,
    "gpt2_forward": lambda w, after: gpt2(w).value,
    "gpt2_train": train_gpt2,
    "gpt2_decode": lambda w, after: gpt2(w, 128, after).value,
    "llama_decode": lambda w, after: llama(w, after).value,
    **{name: lambda w, after, f=f: np.asarray(f({k: v.value for k, v in w.items()})) for name, f in nets.FORWARD.items()},
    **{name: train_by_jax(name, sgd if name == "lstm_train" else adamw) for name in nets.LOSS},
}
BATCH = {"resnet50_train": 4, "gpt2_decode": 1, "llama_decode": 1}


def close(got, want, tolerance, what):
    error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-6)
    assert error < tolerance, f"{what}: off by {error:.2e} of its largest value"


@pytest.mark.parametrize("device", ["CPU", "INTERP"])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, device, build, tmp_path):
    program = build / "zoo" / name
    r = subprocess.run([program, "--small", "--steps", "1", "--device", device, "--batch", str(BATCH.get(name, 2)), "--save", tmp_path, "--json"],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["program"] == name
    before, saved = ({f.name[len(w) + 1 : -4]: np.load(f) for f in tmp_path.glob(w + ".*.npy")} for w in ("before", "after"))
    after = {}
    want = MODELS[name](Weights((k, V(v)) for k, v in before.items()), after)
    close(np.load(tmp_path / "result.npy"), want, 2e-5, "result")
    assert set(saved) == set(before) and set(after) <= set(saved)
    assert len(after) >= {"resnet50_train": 20, "gpt2_train": 20, "gpt2_decode": 4, "llama_decode": 4, "vit_train": 30, "lstm_train": 5,
                          "unet_train": 22, "moe_train": 3}.get(name, 0)
    for k in saved:
        if k not in after:
            np.testing.assert_array_equal(saved[k], before[k], k)
            continue
        known = ~np.isnan(after[k])
        assert known.mean() > 0.3, f"{k}: of {known.mean():.2f} of it we know where it goes"
        close((saved[k] - before[k])[known], (after[k] - before[k])[known], 5e-4, k)  # what the step changed


@pytest.mark.runs
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("name", MODELS)
def test_every_access_is_in_bounds(name, level, build):
    """KN_VERIFY=3 interprets the program after each stage, the last time as the lists that machine code is made of; there an access
    outside of its buffer is an error (KN4503). Every kernel that can be is shared out to three threads."""
    env = dict(os.environ, KN_VERIFY="3", KN_CPU=level, KN_CODE="x86", KN_CACHE="off", KN_THREADS="3", KN_ALONE="1")
    r = subprocess.run([build / "zoo" / name, "--small", "--steps", "1", "--device", "CPU", "--batch", str(BATCH.get(name, 2)), "--json"],
                       capture_output=True, text=True, env=env)
    assert r.returncode == 0, r.stderr


# ---- decoding ----


def prefixes(name, w, tokens):
    """The logits at every position of all tokens before it and its own, computed at once."""
    w["tokens"] = V(tokens[None])
    return (gpt2(w) if name == "gpt2_decode" else llama(w, {}, None)).value[0]


@pytest.mark.parametrize("name", ["gpt2_decode", "llama_decode"])
def test_one_program_decodes_every_position(name, build, tmp_path):
    """1,000 positions: nothing is compiled after the first, and each gives what its whole prefix gives."""
    r = subprocess.run([build / "zoo" / name, "--small", "--decode", "1000", "--save", tmp_path, "--json"], capture_output=True, text=True,
                       env=dict(os.environ, KN_VERIFY="1"))
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["compiled_later"] == 0
    w = Weights((f.name[7:-4], V(np.load(f))) for f in tmp_path.glob("before.*.npy"))
    tokens, logits = np.load(tmp_path / "tokens.npy"), np.load(tmp_path / "logits.npy")
    assert len(set(tokens)) > 90
    close(logits, prefixes(name, w, tokens), 2e-5, "logits")


def test_decoding_ends_with_the_context(build):
    for program, n in (("gpt2_decode", "1025"), ("gpt2_forward", "3")):
        r = subprocess.run([build / "zoo" / program, "--small", "--decode", n], capture_output=True, text=True)
        assert r.returncode == 1 and "--decode wants a decode step" in r.stderr


def test_unknown_option(build):
    r = subprocess.run([build / "zoo/gpt2_forward", "--nothing"], capture_output=True, text=True)
    assert r.returncode == 2 and r.stderr.startswith("usage: ")
