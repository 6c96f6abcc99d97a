"""Whatever is added up, any number of threads gives the bits of one: programs of one sum or a few, in which rows, loops, vectors, paddings and conditions are what
threads leave to each other (random programs seldom meet that). KOINE_THREADED=N tries N of each kind; a failure names the seed and prints the program."""
import os
import random

import numpy as np
import pytest

PROGRAMS = int(os.environ.get("KOINE_THREADED", "0"))
SIZES = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 97, 100, 128, 130, 200, 257, 300, 512, 1000]
SETTINGS = [("1", ""), ("2", "1"), ("3", "1"), ("5", "1"), ("8", "1"), ("2", "")]  # KN_THREADS, KN_ALONE


@pytest.fixture
def few(sanitized):
    """Where a program takes long: under the sanitizers, and where a C compiler makes each."""
    return sanitized or os.environ.get("KN_CODE") == "c"


class Text:
    def __init__(self):
        self.lines, self.n, self.outs = ["koine 1 tensor"], 0, 0

    def __call__(self, op, *args):
        self.n += 1
        self.lines.append(f"%{self.n} = {op} " + " ".join(f"({', '.join(map(str, a))})" if isinstance(a, (tuple, list)) else str(a) for a in args))
        return f"%{self.n}"

    def param(self, name, dims):
        return self("param", f'"{name}" : f32 [{", ".join(map(str, dims))}]')

    def reduced(self, op, v, axes):
        return self("reduce", op, v, f"axes=({', '.join(map(str, axes))})")

    def out(self, v):
        self.lines.append(f'out "y{self.outs}" = {v}')
        self.outs += 1


def term(t, r, kind, v):
    """What is added up, of v."""
    if kind == "power":
        return t("exp", v)
    if kind == "gelu":
        e = t("add", t("erf", t("mul", v, 0.70710677)), 1.0)
        return r.choice([lambda: t("mul", t("mul", v, 0.5), e), lambda: t("mul", t("mul", v, e), 0.5), lambda: t("mul", v, t("mul", e, 0.5))])()
    if kind == "product":
        return t("mul", v, t("add", t("mul", v, 1.37), 0.3))
    return v


def sums(r, kind):
    t, rank = Text(), r.choice([1, 2, 2, 2, 3])
    d = [min(r.choice(SIZES), 65 if rank == 3 else 1000) for _ in range(rank)]
    v = t.param("x", d)
    if rank > 1 and r.random() < 0.4:
        order = r.sample(range(rank), rank)
        v, d = t("permute", v, f"order=({', '.join(map(str, order))})"), [d[k] for k in order]
    axes = sorted(r.sample(range(rank), r.choice([1, 1, min(2, rank)])))
    if r.random() < 0.4:
        v = t("sub", v, t("expand", t.reduced("max", v, axes), d))
    p = term(t, r, kind, v)
    shape = r.choice(["whole", "padded", "padded", "cut", "chosen", "two"])
    if shape == "padded":
        before = [r.choice([0, 0, 1, 3]) for _ in d]
        d = [k + b + r.choice([0, 0, 1, 5]) for k, b in zip(d, before)]
        p = t("pad", p, before, d)
    if shape == "cut":
        before = [r.randrange(k) for k in d]
        d = [r.randrange(1, k - b + 1) for k, b in zip(d, before)]
        p = t("shrink", p, before, d)
    if shape == "chosen":
        p = t("where", t("lt", v, 0.25), *r.sample([p, "0.0"], 2))
    s = t.reduced("add", p, axes)
    t.out(s)
    if shape == "two":
        t.out(t.reduced("add", t("mul", p, v), axes))
    if r.random() < 0.5:
        b = t("expand", s, d)
        t.out(t("div", p, b) if r.random() < 0.7 else b)
    return t


def attention(r, _):
    t, n, m, h = Text(), r.choice(SIZES[:17]), r.choice(SIZES[:17]), r.choice([1, 3, 8, 16, 17, 32, 33, 64])
    q, k, v = t.param("q", [n, h]), t.param("k", [m, h]), t.param("v", [m, h])
    a, b = t("expand", t("reshape", q, [n, 1, h]), [n, m, h]), t("expand", t("reshape", k, [1, m, h]), [n, m, h])
    s = t("reshape", t.reduced("add", t("mul", a, b), [2]), [n, m])
    if r.random() < 0.7:
        s = t("sub", s, t("expand", t.reduced("max", s, [1]), [n, m]))
    p = t("exp", s)
    total = t.reduced("add", p, [1])
    p = t("div", p, t("expand", total, [n, m]))
    w = t("expand", t("reshape", v, [1, m, h]), [n, m, h])
    t.out(t("reshape", t.reduced("add", t("mul", t("expand", t("reshape", p, [n, m, 1]), [n, m, h]), w), [1]), [n, h]))
    if r.random() < 0.5:
        t.out(total)
    return t


def norms(r, _):
    t, d, axis = Text(), [r.choice(SIZES), r.choice(SIZES)], r.choice([0, 1])
    x = t.param("x", d)
    if r.random() < 0.4:
        d = d[::-1]
        x = t("permute", x, "order=(1, 0)")

    def spread(v):
        return t("expand", t.reduced("add", v, [axis]), d)
    kind = r.choice(["layer", "square", "softmax", "entropy", "gradient"])
    if kind == "layer":
        y = t("sub", x, t("mul", spread(x), 1 / d[axis]))
        t.out(t("div", y, t("sqrt", t("add", spread(t("mul", y, y)), 0.00001))))
    elif kind == "square":
        t.out(t("div", x, spread(t("mul", x, x))))
    else:
        y = t("sub", x, t("expand", t.reduced("max", x, [axis]), d))
        p = t("exp", y)
        s = spread(p)
        q = t("div", p, s)
        if kind == "softmax":
            t.out(q)
        elif kind == "entropy":
            t.out(t.reduced("add", t("sub", y, t("log", s)), [0, 1]))
        else:
            g = t.param("g", d)
            t.out(t("mul", q, t("sub", g, spread(t("mul", q, g)))))
    return t


KINDS = {"power": sums, "gelu": sums, "product": sums, "element": sums, "attention": attention, "norm": norms}


def same_bits(koine, tmp_path, t, seed, level, stream):
    text, one = "\n".join(t.lines) + "\n", None
    outs = [arg for k in range(t.outs) for arg in ("--out", f"y{k}={tmp_path / f'y{k}.npy'}")]
    for threads, alone in SETTINGS:
        koine("run", "-", "--seed", str(seed), *outs, stdin=text,
              env={"KN_CPU": level, "KN_THREADS": threads, "KN_ALONE": alone, "KN_STREAM": stream, "KN_CACHE": "off"})
        got = [np.load(tmp_path / f"y{k}.npy").view(np.int32) for k in range(t.outs)]
        one = one or got
        assert all((a == b).all() for a, b in zip(one, got)), f"seed {seed}, {threads} threads, KN_ALONE={alone}, KN_STREAM={stream}\n{text}"


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_one(koine, tmp_path, few, kind, level):
    for seed in range(PROGRAMS or (3 if few else 30)):
        r = random.Random(f"{kind} {level} {seed}")
        same_bits(koine, tmp_path, KINDS[kind](r, kind), seed, level, r.choice(["1", "1", "1024", ""]))


# Those that were not: kind, shape, order of axes, axis of the sum, less the maximum, padded before and to. Rows were added one by one in memory, or in a loop, or
# in vectors beside a padding's condition, as threads had it.
MET = [("power", (2, 16), (1, 0), 1, False, None), ("power", (65, 32, 24), (0, 1, 2), 0, False, ((0, 1, 3), (70, 33, 28))),
       ("power", (8, 24), (1, 0), 1, True, None),
       ("gelu", (33, 97), (1, 0), 1, False, None), ("gelu", (32, 64), (1, 0), 1, False, None), ("gelu", (5, 256), (1, 0), 1, False, None),
       ("product", (200, 100), (1, 0), 1, False, ((1, 1), (102, 206))), ("product", (48, 32), (1, 0), 1, False, ((0, 3), (37, 52))),
       ("product", (31, 7), (1, 0), 1, False, ((3, 1), (11, 33)))]


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx512", "avx2", "sse2"])
@pytest.mark.parametrize("kind, shape, order, axis, less, pad", MET)
def test_bits_that_were_others(koine, tmp_path, kind, shape, order, axis, less, pad, level):
    t, d = Text(), [shape[k] for k in order]
    v = t("permute", t.param("x", shape), f"order=({', '.join(map(str, order))})")
    if less:
        v = t("sub", v, t("expand", t.reduced("max", v, [axis]), d))
    p = term(t, random.Random(0), kind, v)
    if pad:
        p, d = t("pad", p, *pad), pad[1]
    t.out(t("expand", t.reduced("add", p, [axis]), d))
    same_bits(koine, tmp_path, t, 1, level, "1")
