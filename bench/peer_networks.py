"""The networks of bench/zoo, written for tinygrad: the same shapes and the same optimizers. For peer_compile.py."""
from tinygrad import Context, Tensor, dtypes, nn
from tinygrad.nn.optim import SGD, AdamW
from tinygrad.nn.state import get_state_dict

BLOCKS = (3, 4, 6, 3)


def given(*shape, dtype=dtypes.float32):
    return Tensor.empty(*shape, dtype=dtype)


def ready(model):
    """Its weights as inputs."""
    for t in get_state_dict(model).values():
        t.replace(given(*t.shape, dtype=t.dtype))
    return model


class Bottleneck:
    def __init__(self, n, width, stride, first):
        parts = ((n, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1), (n, 4 * width, 1, stride))
        self.c = [nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in parts[: 4 if first else 3]]
        self.b = [nn.BatchNorm2d(o) for _, o, _, _ in parts[: 4 if first else 3]]

    def __call__(self, x):
        y = self.b[0](self.c[0](x)).relu()
        y = self.b[1](self.c[1](y)).relu()
        y = self.b[2](self.c[2](y))
        return (y + (self.b[3](self.c[3](x)) if len(self.c) == 4 else x)).relu()


class ResNet:
    def __init__(self):
        self.c, self.b, self.blocks, n = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), [], 64
        for stage, blocks in enumerate(BLOCKS):
            for i in range(blocks):
                self.blocks.append(Bottleneck(n, 64 << stage, 2 if stage and not i else 1, not i))
                n = 256 << stage
        self.fc = nn.Linear(n, 1000)

    def __call__(self, x):
        x = self.b(self.c(x)).relu().max_pool2d((3, 3), 2, padding=1)
        return self.fc(x.sequential(self.blocks).mean((2, 3)))


class Block:
    def __init__(self, d, heads, decode, batch):
        self.heads, self.decode = heads, decode  # None: each token sees all
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn, self.proj, self.fc, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        if decode:
            self.cache = given(2, batch, heads, 1024, d // heads)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = self.attn(self.ln_1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).chunk(3)
        q, k, v = q[0], k[0], v[0]
        if self.decode:
            self.cache[:, :, :, 128:129].assign(Tensor.stack(k, v))
            k, v = self.cache[0, :, :, :129], self.cache[1, :, :, :129]
        a = q.scaled_dot_product_attention(k, v, is_causal=self.decode is False)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.out(self.fc(self.ln_2(x)).gelu())


class GPT2:
    def __init__(self, decode=False, batch=1, d=768):
        self.wte, self.wpe, self.ln_f = nn.Embedding(50257, d), nn.Embedding(1024, d), nn.LayerNorm(d)
        self.h = [Block(d, 12, decode, batch) for _ in range(12)]

    def __call__(self, tokens, at=0):
        x = self.wte(tokens) + self.wpe.weight[at : at + tokens.shape[1]]
        return self.ln_f(x.sequential(self.h)) @ self.wte.weight.T


class Layer:
    def __init__(self, d, hidden, kv, each):
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, d + 2 * kv * each, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((d, hidden), (d, hidden), (hidden, d)))
        self.cache = given(2, 1, kv, 512, each)

    def __call__(self, x, cos, sin):
        def rotary(x):
            a, b = x.chunk(2, -1)
            return (a * cos - b * sin).cat(b * cos + a * sin, dim=-1)
        b, t, d = x.shape
        h = self.qkv(self.n1(x)).reshape(b, 48, 64)
        q, k, v = h[:, :32].reshape(b, 8, 4, 64), h[:, 32:40].reshape(b, 8, 1, 64), h[:, 40:].reshape(b, 8, 1, 64)
        self.cache[:, :, :, 128:129].assign(Tensor.stack(rotary(k), v))
        a = rotary(q).scaled_dot_product_attention(self.cache[0, :, :, :129], self.cache[1, :, :, :129])
        x = x + self.o(a.reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(self.gate(h).silu() * self.up(h))


class Llama:
    def __init__(self, d=2048):
        self.embed, self.norm = nn.Embedding(128256, d), nn.RMSNorm(d)
        self.layers = [Layer(d, 8192, 8, 64) for _ in range(16)]

    def __call__(self, tokens):
        angle = 128 * 500000.0 ** (-Tensor.arange(32) / 32)
        x, cos, sin = self.embed(tokens), angle.cos(), angle.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x) @ self.embed.weight.T


class ViT:
    def __init__(self, d=384):
        self.patch, self.head, self.norm = nn.Conv2d(3, d, 16, 16), nn.Linear(d, 1000), nn.LayerNorm(d, 1e-6)
        self.first, self.at = given(1, 1, d), given(1, 197, d)
        self.blocks = [Block(d, 6, None, 1) for _ in range(12)]

    def __call__(self, x):
        x = self.first.expand(x.shape[0], 1, -1).cat(self.patch(x).flatten(2).transpose(1, 2), dim=1) + self.at
        return self.head(self.norm(x.sequential(self.blocks)[:, 0]))


class LSTM:
    def __init__(self, n=128, hidden=256):
        self.ih, self.hh, self.fc = nn.Linear(n, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(hidden, 10)

    def __call__(self, x):
        x, h = self.ih(x), Tensor.zeros(x.shape[1], 256)
        c = h
        for t in range(x.shape[0]):
            i, f, g, o = (x[t] + self.hh(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.fc(h)


class UNet:
    def __init__(self, c=64):
        sizes = {"enter": (4, c, 1), "down": (c, 2 * c, 2), "middle": (2 * c, 2 * c, 1), "up": (2 * c, c, 1), "leave": (2 * c, c, 1)}
        self.unit = {name: (nn.Conv2d(i, o, 3, stride, 1), nn.GroupNorm(8, o)) for name, (i, o, stride) in sizes.items()}
        self.out = nn.Conv2d(c, 4, 1)

    def __call__(self, x):
        def unit(name, x):
            conv, norm = self.unit[name]
            return norm(conv(x)).silu()
        kept = unit("enter", x)
        x = unit("middle", unit("down", kept)).repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.out(unit("leave", kept.cat(unit("up", x), dim=1)))


class Experts:
    def __init__(self, d=512, hidden=1024, experts=8):
        self.gate, self.up, self.down = nn.Linear(d, experts, bias=False), given(experts * hidden, d), given(experts * hidden, d)

    def __call__(self, x):
        rate = self.gate(x)
        known = rate.detach()
        first = known == known.max(-1, keepdim=True)
        rest = first.where(float("-inf"), known)
        chosen = (first | (rest == rest.max(-1, keepdim=True))).detach()
        weight = chosen.where(rate, float("-inf")).softmax(-1)
        h = (x @ self.up.T).gelu().reshape(x.shape[0], 8, -1) * weight.unsqueeze(-1)
        balance = (chosen.float().mean(0) * rate.softmax(-1).mean(0)).sum() * 4
        return x + h.reshape(x.shape[0], -1) @ self.down, balance


def small_train(model, *inputs, optim=lambda p: AdamW(p, 1e-3)):
    return *trained(ready(model), optim), *inputs


def experts_train(m, o, s, x, y):
    got, balance = m(x)
    return train((got - y).square().mean() + 0.01 * balance, o, s)


def tokens(*shape):
    return given(*shape, dtype=dtypes.int32)


def trained(model, optim):
    """The model, its optimizer, and what else a step writes."""
    state = get_state_dict(model)
    opt = optim([t for k, t in state.items() if "running_" not in k and "num_batches" not in k])
    Tensor.realize(*get_state_dict(opt).values())
    return model, opt, [t for k, t in state.items() if "running_" in k]


def train(loss, opt, stats):
    opt.zero_grad()
    loss.backward()
    return [loss] + opt.schedule_step() + stats


def resnet_train():
    model = ready(ResNet())
    return *trained(model, lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=1e-4)), given(16, 3, 224, 224), tokens(16)


def gpt2_train():
    return *trained(ready(GPT2()), lambda p: AdamW(p, 1e-3)), tokens(1, 128), tokens(1, 128)


def inferred(model, x):
    with Context(TRAINING=0):
        return model(x)


def caches(model):
    return [layer.cache for layer in getattr(model, "h", None) or model.layers]


NETWORKS = {
    "resnet50_forward": (lambda: [ready(ResNet()), given(1, 3, 224, 224)], inferred),
    "resnet50_train": (resnet_train, lambda m, o, s, x, y: train(m(x).sparse_categorical_crossentropy(y), o, s)),
    "gpt2_forward": (lambda: [ready(GPT2()), tokens(1, 128)], lambda m, x: m(x)),
    "gpt2_train": (gpt2_train, lambda m, o, s, x, y: train(m(x).sparse_categorical_crossentropy(y), o, s)),
    "gpt2_decode": (lambda: [ready(GPT2(True)), tokens(1, 1)], lambda m, x: [m(x, 128)] + caches(m)),
    "llama_decode": (lambda: [ready(Llama()), tokens(1, 1)], lambda m, x: [m(x)] + caches(m)),
    "vit_forward": (lambda: [ready(ViT()), given(1, 3, 224, 224)], inferred),
    "vit_train": (lambda: small_train(ViT(), given(8, 3, 224, 224), tokens(8)), lambda m, o, s, x, y: train(m(x).sparse_categorical_crossentropy(y), o, s)),
    "lstm_forward": (lambda: [ready(LSTM()), given(32, 16, 128)], inferred),
    "lstm_train": (lambda: small_train(LSTM(), given(32, 16, 128), tokens(16), optim=lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=1e-4)),
                   lambda m, o, s, x, y: train(m(x).sparse_categorical_crossentropy(y), o, s)),
    "unet_forward": (lambda: [ready(UNet()), given(1, 4, 64, 64)], inferred),
    "unet_train": (lambda: small_train(UNet(), given(4, 4, 64, 64), given(4, 4, 64, 64)), lambda m, o, s, x, y: train((m(x) - y).square().mean(), o, s)),
    "moe_forward": (lambda: [ready(Experts()), given(128, 512)], lambda m, x: inferred(m, x)[0]),
    "moe_train": (lambda: small_train(Experts(), given(128, 512), given(128, 512)), experts_train),
}
