"""The networks of bench/zoo beside their peers, each a process of its own, by turns: one dict a row.

PyTorch's wheel on PyPI brings CUDA (539 MB and more than that again in libraries it loads), so a Python that has it is looked for, not
made: the bench's own, then the system's (Debian: apt-get install python3-torch, 1.13). peer_zoo.py holds the peers.
"""
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMES = 3
# program, batch, steps, peers, the bar over the best of them; None: 1.25 of the time to read the weights once
ROWS = [
    ("resnet50_forward", 1, 15, ("onnxruntime", "torch"), 1.0),
    ("resnet50_forward", 16, 3, ("onnxruntime", "torch"), 1.0),
    ("resnet50_train", 16, 1, ("torch",), 1.0),
    ("gpt2_forward", 1, 5, ("torch",), 1.5),
    ("gpt2_train", 1, 3, ("torch",), 1.5),
    ("gpt2_decode", 1, 15, ("torch",), None),
    ("llama_decode", 1, 5, ("torch",), None),
]
MODULES = {"torch": "torch", "onnxruntime": "onnxruntime, onnx"}
WANTED = {"torch": "apt-get install python3-torch", "onnxruntime": "pip install onnxruntime onnx"}


def find(pythons):
    """peer: (its python, its version), for those that are here; says what is not."""
    found = {}
    for peer, modules in MODULES.items():
        for python in pythons:
            p = subprocess.run([python, "-c", f"import {modules}; print({peer}.__version__)"], capture_output=True, text=True)
            if p.returncode == 0:
                found[peer] = (python, p.stdout.strip())
                break
        else:
            print(f"bench: {peer} is not here: {WANTED[peer]}", file=sys.stderr)
    return found


def read_rate(probe, threads):
    """Bytes a second from memory: past all caches."""
    lib = ctypes.CDLL(str(probe))
    lib.probe_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    n = 1 << 27
    data = (ctypes.c_float * n)()
    ctypes.memset(data, 1, 4 * n)
    best, part = float("inf"), n // threads
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(7):
            begun = time.perf_counter()
            list(pool.map(lambda i: lib.probe_read(ctypes.addressof(data) + 4 * part * i, part), range(threads)))
            best = min(best, time.perf_counter() - begun)
    return 4 * n / best


def process(*command, threads):
    env = {**os.environ, "KN_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    if p.returncode:
        print("bench:", *command[:3], (p.stderr.strip().splitlines() or ["failed"])[-1], file=sys.stderr)
        return None
    return json.loads(p.stdout.splitlines()[-1])


def row(build, found, rate, threads, program, batch, steps, peers, bar):
    ours, theirs = [], {p: [] for p in peers if p in found}
    for _ in range(TIMES):
        ours.append(process(build / "zoo" / program, "--json", "--batch", batch, "--steps", steps, threads=threads))
        for p in theirs:
            theirs[p].append(process(found[p][0], HERE / "peer_zoo.py", p, program, batch, threads, steps, threads=threads))
    r = {"bench": "networks", "program": program, "batch": batch, "threads": threads, "peers": {}}
    if not all(ours):
        return r | {"error": "failed"}
    r |= {"ms": statistics.median(o["ms"] for o in ours), "kernels": ours[0]["kernels"], "peak_mib": ours[0]["peak_mib"]}
    for p, times in theirs.items():
        if all(times):
            r["peers"][f"{p} {found[p][1]}"] = {"ms": statistics.median(t["ms"] for t in times), "peak_mib": times[0]["peak_mib"]}
    if r["peers"]:
        r["ratio"] = round(min(p["ms"] for p in r["peers"].values()) / r["ms"], 3)
    if bar:
        return r | {"bar": bar, "met": r.get("ratio", bar) >= bar}
    r["floor_ms"] = round(1e3 * ours[0]["weight_bytes"] / rate, 3)
    return r | {"distance": round(r["ms"] / r["floor_ms"], 3), "met": r["ms"] <= 1.25 * r["floor_ms"]}


def text(r):
    if "error" in r:
        return f"  {r['program']:16} {r['batch']:5} {r['threads']:7}  {r['error']}"
    peers = ", ".join(f"{p} {v['ms']:.1f} ({v['peak_mib']} MiB)" for p, v in r["peers"].items()) or "-"
    aim = f"of floor {r['distance']:.2f}, bar 1.25" if "floor_ms" in r else f"ratio {r.get('ratio', 0):.2f}, bar {r['bar']}"
    return f"  {r['program']:16} {r['batch']:5} {r['threads']:7} {r['ms']:9.1f} {r['peak_mib']:6} MiB  {aim}{'' if r['met'] else ' below'}; {peers}"


def rows(build, probe, pythons, only=()):
    found = find(pythons)
    for threads in (1, 2):
        rate = read_rate(probe, threads)
        for name, *rest in ROWS:
            if not only or name in only:
                yield row(Path(build), found, rate, threads, name, *rest)


if __name__ == "__main__":  # networks.py BUILD LIBPROBE PYTHON [PROGRAM...]
    for r in rows(sys.argv[1], sys.argv[2], [sys.argv[3], "/usr/bin/python3"], sys.argv[4:]):
        print(text(r), flush=True)
