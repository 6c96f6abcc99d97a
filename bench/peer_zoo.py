"""The networks of bench/zoo by others: PyTorch (eager) and ONNX Runtime, random weights, f32.

    peer_zoo.py torch|onnxruntime PROGRAM BATCH THREADS

Each line of standard input says how many steps are next, and is answered {"ms": their median, "peak_mib": ...}; two steps go before the
first. ONNX Runtime is given the graph of a checkpoint, ResNet-50 with its batch
normalisation, and folds it itself.
"""
import statistics
import sys
import time
from pathlib import Path

from turns import quiet, serve

PEER, PROGRAM = sys.argv[1:3]
BATCH, THREADS = (int(a) for a in sys.argv[3:5])
BLOCKS = (3, 4, 6, 3)


def onnx_resnet():
    """A session's step."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    rng, nodes, weights = np.random.default_rng(0), [], []

    def weight(*shape, lo=-0.05, hi=0.05):
        weights.append(numpy_helper.from_array(rng.uniform(lo, hi, shape).astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    def node(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv_bn(x, n_in, n_out, size, stride):
        x = node("Conv", x, weight(n_out, n_in, size, size), strides=[stride] * 2, pads=[size // 2] * 4, kernel_shape=[size] * 2)
        return node("BatchNormalization", x, *(weight(n_out, lo=0.5, hi=1.5) for _ in range(4)))

    x, channels = node("Relu", conv_bn("x", 3, 64, 7, 2)), 64
    x = node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, blocks in enumerate(BLOCKS):
        for b in range(blocks):
            width, stride = 64 << stage, 2 if stage and not b else 1
            y = node("Relu", conv_bn(x, channels, width, 1, 1))
            y = node("Relu", conv_bn(y, width, width, 3, stride))
            y = conv_bn(y, width, 4 * width, 1, 1)
            x = node("Relu", node("Add", y, x if b else conv_bn(x, channels, 4 * width, 1, stride)))
            channels = 4 * width
    x = node("Flatten", node("GlobalAveragePool", x))
    node("Gemm", x, weight(1000, channels), weight(1000), transB=1)
    graph = helper.make_graph(nodes, "resnet50", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, 3, 224, 224])],
                              [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [BATCH, 1000])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    image = rng.uniform(-1, 1, (BATCH, 3, 224, 224)).astype(np.float32)
    return lambda: session.run(None, {"x": image})


def torch_step():
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)

    class Bottleneck(nn.Module):
        def __init__(self, n, width, stride, first):
            super().__init__()
            parts = ((n, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1), (n, 4 * width, 1, stride))
            self.c = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in parts[: 4 if first else 3])
            self.b = nn.ModuleList(nn.BatchNorm2d(c.out_channels) for c in self.c)

        def forward(self, x):
            y = F.relu(self.b[0](self.c[0](x)))
            y = F.relu(self.b[1](self.c[1](y)))
            y = self.b[2](self.c[2](y))
            return F.relu(y + (self.b[3](self.c[3](x)) if len(self.c) == 4 else x))

    def resnet():
        parts, n = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for stage, blocks in enumerate(BLOCKS):
            for b in range(blocks):
                parts.append(Bottleneck(n, 64 << stage, 2 if stage and not b else 1, not b))
                n = 256 << stage
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 1000)).to(memory_format=torch.channels_last)

    class Block(nn.Module):
        def __init__(self, d=768, heads=12, context=1024):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.attn, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.cache = [torch.rand(BATCH, heads, context, d // heads) for _ in "kv"] if "decode" in PROGRAM else None
            self.register_buffer("mask", torch.full((128, 128), float("-inf")).triu(1), persistent=False)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.attn(self.ln_1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            mask = self.mask
            if self.cache:
                k, v, mask = *cached(self.cache, k, v), None
            x = x + self.proj(attention(q, k, v, mask).transpose(1, 2).reshape(b, t, d))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self, d=768):
            super().__init__()
            self.wte, self.wpe, self.ln_f = nn.Embedding(50257, d), nn.Embedding(1024, d), nn.LayerNorm(d)
            self.h = nn.Sequential(*(Block() for _ in range(12)))

        def forward(self, tokens, at=0):
            x = self.wte(tokens) + self.wpe.weight[at : at + tokens.shape[1]]
            return F.linear(self.ln_f(self.h(x)), self.wte.weight)

    def cached(cache, k, v, at=128):
        for c, new in zip(cache, (k, v)):
            c[:, :, at : at + 1] = new
        return [c[:, :, : at + 1] for c in cache]

    def attention(q, k, v, mask):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(s if mask is None else s + mask, -1) @ v

    class Llama(nn.Module):
        def __init__(self, d=2048, hidden=8192, layers=16, kv=8, each=64):
            super().__init__()
            with torch.no_grad():
                make = lambda *s: nn.Parameter(torch.empty(*s).uniform_(-0.02, 0.02))  # noqa: E731
                self.embed, self.norm = make(128256, d), make(d)
                self.layers = nn.ModuleList(nn.ParameterList([make(d), make(d + 2 * kv * each, d), make(d, d), make(d), make(2 * hidden, d), make(d, hidden)]) for _ in range(layers))
            self.cache = [[torch.rand(BATCH, kv, 512, each) for _ in "kv"] for _ in range(layers)]
            angle = 128 * 500000.0 ** (-torch.arange(each // 2) / (each // 2))
            self.cos, self.sin = angle.cos(), angle.sin()

        def rotary(self, x):
            a, b = x.chunk(2, -1)
            return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)

        def forward(self, tokens):
            rms = lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w  # noqa: E731
            x = F.embedding(tokens, self.embed)
            b, t, d = x.shape
            for (n1, qkv, o, n2, gate_up, down), cache in zip(self.layers, self.cache):
                h = F.linear(rms(x, n1), qkv).view(b, 48, 64)
                q, k, v = h[:, :32].view(b, 8, 4, 64), h[:, 32:40, None], h[:, 40:, None]
                k, v = cached(cache, self.rotary(k), v)
                x = x + F.linear(attention(self.rotary(q), k, v, None).reshape(b, t, d), o)
                gate, up = F.linear(rms(x, n2), gate_up).chunk(2, -1)
                x = x + F.linear(F.silu(gate) * up, down)
            return F.linear(rms(x, self.norm), self.embed)

    class ViT(nn.Module):
        def __init__(self, d=384, heads=6, layers=12):
            super().__init__()
            self.patch, self.head, self.norm = nn.Conv2d(3, d, 16, 16), nn.Linear(d, 1000), nn.LayerNorm(d, 1e-6)
            self.first, self.at = nn.Parameter(torch.rand(1, 1, d)), nn.Parameter(torch.rand(1, 197, d))
            self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(d, 1e-6), nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d, 1e-6),
                                                       nn.Linear(d, 4 * d), nn.Linear(4 * d, d)]) for _ in range(layers))

        def forward(self, x):
            x = torch.cat([self.first.expand(len(x), -1, -1), self.patch(x).flatten(2).transpose(1, 2)], 1) + self.at
            b, t, d = x.shape
            for n1, qkv, proj, n2, fc, out in self.blocks:
                q, k, v = qkv(n1(x)).view(b, t, 3, 6, d // 6).permute(2, 0, 3, 1, 4)
                x = x + proj(attention(q, k, v, None).transpose(1, 2).reshape(b, t, d))
                x = x + out(F.gelu(fc(n2(x))))
            return self.head(self.norm(x[:, 0]))

    class LSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(128, 256), nn.Linear(256, 10)

        def forward(self, x):
            return self.fc(self.lstm(x)[0][-1])

    class UNet(nn.Module):
        def __init__(self, c=64):
            super().__init__()
            unit = lambda i, o, stride=1: nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.GroupNorm(8, o), nn.SiLU())  # noqa: E731
            self.enter, self.leave, self.out = unit(4, c), unit(2 * c, c), nn.Conv2d(c, 4, 1)
            self.inner = nn.Sequential(unit(c, 2 * c, 2), unit(2 * c, 2 * c), nn.Upsample(scale_factor=2), unit(2 * c, c))

        def forward(self, x):
            kept = self.enter(x)
            return self.out(self.leave(torch.cat([kept, self.inner(kept)], 1)))

    class Experts(nn.Module):
        def __init__(self, d=512, hidden=1024, experts=8):
            super().__init__()
            self.gate = nn.Linear(d, experts, bias=False)
            self.up, self.down = (nn.ParameterList(nn.Parameter(torch.rand(hidden, d) * 0.05) for _ in range(experts)) for _ in "ud")

        def forward(self, x):
            rate = self.gate(x)
            best, which = rate.topk(2)
            weight, y = best.softmax(-1), x.clone()
            for e, (up, down) in enumerate(zip(self.up, self.down)):
                token, choice = torch.where(which == e)
                y = y.index_add(0, token, F.gelu(x[token] @ up.T, approximate="tanh") @ down * weight[token, choice, None])
            share = F.one_hot(which, 8).sum(1).float().mean(0)
            return y, (share * rate.softmax(-1).mean(0)).sum() * 4

    train, loss = PROGRAM.endswith("train"), lambda y: F.cross_entropy(y.view(-1, y.shape[-1]), labels)
    small = {"vit": (ViT, (BATCH, 3, 224, 224), 1000), "lstm": (LSTM, (32, BATCH, 128), 10), "unet": (UNet, (BATCH, 4, 64, 64), None),
             "moe": (Experts, (BATCH * 128, 512), None)}.get(PROGRAM.split("_")[0])
    if small:
        model, x, labels = small[0](), torch.rand(small[1]), torch.randint(small[2] or 1, (BATCH,))
        if PROGRAM.startswith("unet"):
            loss = lambda y: F.mse_loss(y, x)  # noqa: E731
        if PROGRAM.startswith("moe"):
            loss = lambda y: F.mse_loss(y[0], x + 1) + 0.01 * y[1]  # noqa: E731
        optim = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=1e-4) if "lstm" in PROGRAM else torch.optim.AdamW(model.parameters(), 1e-3)
    elif PROGRAM.startswith("resnet"):
        model, labels = resnet(), torch.randint(1000, (BATCH,))
        x = torch.rand(BATCH, 3, 224, 224).to(memory_format=torch.channels_last)
        optim = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4) if train else None
    elif PROGRAM.startswith("gpt2"):
        model, x = GPT2(), torch.randint(50257, (BATCH, 1 if "decode" in PROGRAM else 128))
        labels = torch.randint(50257, (BATCH * 128,))
        optim = torch.optim.AdamW(model.parameters(), 1e-3) if train else None
    else:
        model, x = Llama(), torch.randint(128256, (BATCH, 1))
    if train:
        def step():
            optim.zero_grad(set_to_none=True)
            loss(model(x)).backward()
            optim.step()
        return step
    model.eval()
    for p in model.parameters():
        p.requires_grad_(False)

    def forward():
        with torch.no_grad():
            model(x, 128) if PROGRAM == "gpt2_decode" else model(x)
    return forward


def turn(steps):
    ms = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        ms.append(1e3 * (time.perf_counter() - begun))
    quiet()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {"ms": round(statistics.median(ms), 3), "peak_mib": int(status["VmHWM"].split()[0]) >> 10}


step = onnx_resnet() if PEER == "onnxruntime" else torch_step()
turn(2)
serve(turn)
