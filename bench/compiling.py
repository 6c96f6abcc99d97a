"""The compiler itself: how few kernels and bytes (`koine bench kernels`), and how long it takes (`koine bench compile`), beside tinygrad
on its CPU device (peer_compile.py, a fresh process each time). Yields (record, text) a row."""
import json
import os
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZOO = ("resnet50_forward", "resnet50_train", "gpt2_forward", "gpt2_train", "gpt2_decode", "llama_decode", "vit_forward", "vit_train",
       "lstm_forward", "lstm_train", "unet_forward", "unet_train", "moe_forward", "moe_train")
TIMES = 3
LIMIT = 400  # seconds a peer may take
RATIO, PER_KERNEL, RESNET = 300, 150, 30e3  # bars: of tinygrad; us a kernel, the median over the zoo; us
KERNELS_HEAD = f"  {'program':24} kernels   bytes/floor"
COMPILE_HEAD = f"  {'program':24} {'koine':>9} kernels  a kernel {'tinygrad':>11} {'again':>11} kernels {'ratio':>6} {'again':>6}"


def lines(*command, threads="1", limit=None):
    try:
        p = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=os.environ | {"KN_THREADS": threads}, timeout=limit)
    except subprocess.TimeoutExpired:
        return [], f"over {limit} s"
    return p.stdout.splitlines(), None if p.returncode == 0 else (p.stderr.strip().splitlines() or ["failed"])[-1]


def programs(koine):
    return ("add", "matmul", "linear_relu", "softmax", "layernorm", "attention", "embedding", "conv_bn", "digits_step", *ZOO)


def kernels(koine, wanted):
    for name in programs(koine):
        row = f"kernels_{name}"
        if not wanted(row):
            continue
        text, wrong = lines(koine, "bench", "kernels", name, "--json")
        if wrong:
            yield {"row": row, "error": wrong}, f"{row:24} {wrong}"
            continue
        k = json.loads(text[0])
        r = {"row": row, "unit": "kernels", "koine": k["kernels"], "bytes": k["bytes"], "floor": k["floor"], "ceiling": round(k["floor"] / k["bytes"], 4)}
        yield r, f"{row:24} {k['kernels']:7} {k['bytes'] / k['floor']:13.3f}"


def compiled(koine, python, name):
    """koine's and tinygrad's times, by turns."""
    ours, cold, again, r = [], [], [], {"row": f"compile_{name}", "unit": "us"}
    for i in range(2 if name in ZOO else TIMES):  # a whole network of tinygrad's once, between two of koine's
        text, wrong = lines(koine, "bench", "compile", name, "--json")
        if wrong:
            return r | {"error": wrong}
        ours.append(json.loads(text[0]))
        if not python or i and name in ZOO or r.get("over") or r.get("failed"):
            continue
        text, wrong = lines(python, HERE / "peer_compile.py", name, limit=LIMIT)
        if wrong:
            r |= {"over": {"tinygrad": LIMIT}} if wrong.startswith("over") else {"failed": {"tinygrad": wrong}}
            continue
        c, a, r["peer_kernels"] = (int(v) for v in text[-1].split())
        cold.append(c)
        again += [a] if a else []
    r |= {"koine": statistics.median(o["us"] for o in ours), "kernels": ours[0]["kernels"], "peers": {}}
    if cold:
        r["peers"] = {"tinygrad": statistics.median(cold)} | ({"tinygrad again": statistics.median(again)} if again else {})
        r["ratio"] = round(r["peers"]["tinygrad"] / r["koine"], 1)
        r |= {"bar": RATIO, "met": r["ratio"] >= RATIO}
    if name == "resnet50_forward":
        r["met"] = r.get("met", True) and r["koine"] <= RESNET
    return r


def text_of(r):
    if "error" in r:
        return f"{r['row']:24} {r['error']}"
    text = f"{r['row']:24} {r['koine']:9.0f} {r['kernels']:7} {r['koine'] / r['kernels']:9.0f}"
    if "ratio" in r:
        again = r["peers"].get("tinygrad again")
        text += f" {r['peers']['tinygrad']:11.0f} {again or 0:11.0f} {r['peer_kernels']:7} {r['ratio']:6.0f} {(again or 0) / r['koine']:6.0f}"
    return text + "".join(f"  {p}: {why}" for f in ("over", "failed") for p, why in r.get(f, {}).items())


def rows(koine, python, wanted, say):
    a_kernel = []
    for name in programs(koine):
        if not wanted(f"compile_{name}"):
            continue
        say(f"compile_{name}")
        r = compiled(koine, python, name)
        if name in ZOO and "error" not in r:
            a_kernel.append(r["koine"] / r["kernels"])
        yield r, text_of(r)
    if len(a_kernel) == len(ZOO):
        v = statistics.median(a_kernel)
        yield ({"row": "compile_kernel", "unit": "us", "koine": round(v, 1), "bar": PER_KERNEL, "met": v <= PER_KERNEL},
               f"{'compile_kernel':24} {v:9.0f}  a kernel, the median of the zoo; bar {PER_KERNEL}")
