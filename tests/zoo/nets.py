"""ViT, an LSTM, a U-Net block and a layer of experts in JAX, f64: w holds every array by its name."""
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def scaled(w, name, x, axes, eps, shape):
    y = (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + eps)
    return y.reshape(shape), w[name + ".weight"], w[name + ".bias"]


def layer_norm(w, name, x):
    y, scale, shift = scaled(w, name, x, -1, 1e-6, x.shape)
    return y * scale + shift


def vit(w, heads=4, patch=4):
    b, _, side, _ = w["x"].shape
    n = side // patch
    x = w["x"].reshape(b, 3, n, patch, n, patch).transpose(0, 2, 4, 1, 3, 5).reshape(b, n * n, -1)
    x = linear(w, "patch_embed.proj", x)
    x = jnp.concatenate([jnp.broadcast_to(w["cls_token"], (b, 1, x.shape[-1])), x], 1) + w["pos_embed"]
    t, d = x.shape[1:]
    for i in range(2):
        p = f"blocks.{i}."
        q, k, v = linear(w, p + "attn.qkv", layer_norm(w, p + "norm1", x)).reshape(b, t, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5) @ v
        x = x + linear(w, p + "attn.proj", a.transpose(0, 2, 1, 3).reshape(b, t, d))
        h = jax.nn.gelu(linear(w, p + "mlp.fc1", layer_norm(w, p + "norm2", x)), approximate=False)
        x = x + linear(w, p + "mlp.fc2", h)
    return linear(w, "head", layer_norm(w, "norm", x[:, 0]))


def lstm(w):
    x = w["x"]
    h = c = jnp.zeros((x.shape[1], w["lstm.hh.weight"].shape[1]))
    for t in range(x.shape[0]):
        i, f, g, o = jnp.split(linear(w, "lstm.ih", x[t]) + linear(w, "lstm.hh", h), 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return linear(w, "fc", h)


def conv(w, name, x, stride=1):
    k = w[name + ".weight"]
    pad = [(k.shape[-1] // 2,) * 2] * 2
    return jax.lax.conv_general_dilated(x, k, (stride, stride), pad) + w[name + ".bias"][:, None, None]


def unit(w, name, x, stride=1, groups=4):
    x = conv(w, name + ".conv", x, stride)
    y, scale, shift = scaled(w, name + ".norm", x.reshape(x.shape[0], groups, -1), -1, 1e-5, x.shape)
    return jax.nn.silu(y * scale[:, None, None] + shift[:, None, None])


def unet(w):
    kept = unit(w, "enter", w["x"])
    x = unit(w, "middle", unit(w, "down", kept, 2))
    x = unit(w, "up", x.repeat(2, -1).repeat(2, -2))
    return conv(w, "out", unit(w, "leave", jnp.concatenate([kept, x], 1)))


def moe_layer(w, experts=4):
    x = w["x"]
    rate = linear(w, "gate", x)
    best, which = jax.lax.top_k(rate, 2)
    weight, y = jax.nn.softmax(best), jnp.zeros_like(x)
    up, down = (w["experts." + n].reshape(experts, -1, x.shape[1]) for n in ("up", "down"))
    for choice in range(2):  # each token's own experts alone
        h = jax.nn.gelu(jnp.einsum("nd,nhd->nh", x, up[which[:, choice]]))
        y = y + weight[:, choice, None] * jnp.einsum("nh,nhd->nd", h, down[which[:, choice]])
    share = jax.nn.one_hot(which, experts).sum(1).mean(0)
    return x + y, (share * jax.nn.softmax(rate).mean(0)).sum() * experts / 2


def cross_entropy(logits, w):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), w["labels"].astype(int)[:, None], 1).mean()


def moe_loss(w):
    y, balance = moe_layer(w)
    return ((y - w["target"]) ** 2).mean() + 0.01 * balance


FORWARD = {"vit_forward": vit, "lstm_forward": lstm, "unet_forward": unet, "moe_forward": lambda w: moe_layer(w)[0]}
LOSS = {
    "vit_train": lambda w: cross_entropy(vit(w), w),
    "lstm_train": lambda w: cross_entropy(lstm(w), w),
    "unet_train": lambda w: ((unet(w) - w["target"]) ** 2).mean(),
    "moe_train": moe_loss,
}
INPUTS = ("x", "labels", "target")


def gradients(name, w):
    """The loss, and the gradient of each weight."""
    given = {k: jnp.asarray(v) for k, v in w.items() if k in INPUTS}
    loss, grad = jax.value_and_grad(lambda p: LOSS[name](p | given))({k: jnp.asarray(v) for k, v in w.items() if k not in INPUTS})
    return loss, grad
