"""`make bench`: koine beside its peers in one run; ratios of medians.

    bench.py KOINE LIBKOINE LIBPROBE PEERS [--json]

PEERS is the python that has numpy and tinygrad; what it lacks is named, with what would fetch it, and left out.
"""
import json
import statistics
import subprocess
import sys
from pathlib import Path

import networks

HERE = Path(__file__).resolve().parent
KOINE, LIB, PROBE, PEERS = sys.argv[1:5]
JSON = "--json" in sys.argv
TIMES = 3
NETWORKS = (HERE / "peer_networks.py").read_text()


def run(*command):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if p.returncode:
        print("bench:", *command[1:3], (p.stderr.strip().splitlines() or ["failed"])[-1], file=sys.stderr)
    return p.stdout.splitlines()


def has(module):
    """The version of a peer, or None."""
    code = f"from importlib.metadata import version as v; import {module}; print(v('{module}'))"
    p = subprocess.run([PEERS, "-c", code], capture_output=True, text=True)
    return p.stdout.strip() or None


def out(record, text):
    print(json.dumps(record) if JSON else text, flush=True)


def title(*text):
    if not JSON:
        print("", *text, sep="\n", flush=True)


def kernels():
    title("Kernels: bytes moved, and the least any schedule could move", f"  {'program':16} kernels    ratio")
    names = []
    for line in run(KOINE, "bench", "kernels", "--json"):
        r = json.loads(line)
        names.append(r["program"])
        out({"bench": "kernels"} | r, f"  {r['program']:16} {r['kernels']:7} {r['bytes'] / r['floor']:8.3f}")
    return names


def compile_row(name, tinygrad):
    ours, cold, again, row = [], [], [], {"bench": "compile", "program": name}
    network = f'"{name}":' in NETWORKS  # seconds a time, so once
    for _ in range(1 if network else TIMES):  # by turns: what else the machine does falls on both
        ours += [json.loads(line) for line in run(KOINE, "bench", "compile", name, "--json")]
        theirs = run(PEERS, HERE / "peer_compile.py", name) if tinygrad else []
        if theirs:
            c, a, row["peer_kernels"] = (int(v) for v in theirs[-1].split())
            cold.append(c)
            again.append(a)
    row |= {"us": statistics.median(r["us"] for r in ours), "kernels": ours[0]["kernels"]}
    if cold:
        row |= {"peer": "tinygrad " + tinygrad, "peer_us": statistics.median(cold), "peer_again_us": statistics.median(again)}
        row |= {f: round(row[p] / row["us"], 1) for f, p in (("ratio", "peer_us"), ("ratio_again", "peer_again_us"))}
    return row


def compiling(names, tinygrad):
    title(f"Compiling, tensor calls to rendered kernels, us: koine and tinygrad {tinygrad or '(not here)'}",
          f"  {'program':16} {'koine':>8} kernels {'cold':>11} {'again':>11} kernels {'ratio':>7} {'again':>7}")
    for name in names:
        r = compile_row(name, tinygrad)
        text = f"  {name:16} {r['us']:8.0f} {r['kernels']:7}"
        if "peer_us" in r:
            text += f" {r['peer_us']:11.0f} {r['peer_again_us']:11.0f} {r['peer_kernels']:7}"
            text += f" {r['ratio']:7.0f} {r['ratio_again']:7.0f}"
        out(r, text)


def speed_text(r):
    if r["bench"] == "ceiling":
        return (f"  on {r['threads']}: read {r['read_gbs']} GB/s, copy {r['copy_gbs']} GB/s, "
                f"multiply-add {r['fma_gflops']} GFLOP/s")
    if "error" in r:
        return f"  {r['program']:16} {r['threads']:7}  {r['error']}"
    met = "" if r["ratio"] >= r["bar"] else "  below"
    return (f"  {r['program']:16} {r['threads']:7} {r['us']:8.0f} {r['peer_us']:8.0f} {r['ratio']:6.2f} {r['cpu_ratio']:6.2f} {r['bar']:5}"
            f" {r['floor_us']:8.0f} {r['distance']:6.2f}{met}")


def speed(numpy):
    title(f"Running on the CPU, us: koine and numpy {numpy}; the floor is what the machine needs",
          f"  {'program':16} threads {'koine':>8} {'numpy':>8} {'ratio':>6} {'cpu':>6} {'bar':>5} {'floor':>8} {'x floor':>6}")
    for threads in (1, 2):
        for line in run(PEERS, HERE / "speed.py", threads, LIB, PROBE):
            r = json.loads(line)
            out(r, speed_text(r))


def whole_networks():
    title("Whole networks on the CPU, ms a step and peak memory", f"  {'program':16} batch threads {'koine':>9}")
    for r in networks.rows(Path(KOINE).parent, PROBE, [PEERS, "/usr/bin/python3"]):
        out(r, networks.text(r))


tinygrad, numpy = has("tinygrad"), has("numpy")
compiling(kernels(), tinygrad)
if numpy:
    speed(numpy)
whole_networks()
