"""The networks of bench/zoo beside their peers, each run a process of its own, by turns: time a step and peak memory. Yields (record, text)
a row. peer_zoo.py holds the peers."""
import json
import os
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT, SEARCH = 300, 1800  # seconds a process may take; one that may have to search
HEAD = f"  {'row':24} thr {'koine':>9} {'beam':>9} {'memory':>7}  peers"
# program, batch, runs, steps of each, peers, the bar over the best of them; None: none, or 1.25 of the time to read the weights once
ROWS = [
    ("resnet50_forward", 1, 9, 15, ("onnxruntime", "torch"), 1.0),
    ("resnet50_forward", 16, 5, 5, ("onnxruntime", "torch"), 1.0),
    ("resnet50_train", 16, 1, 1, ("torch",), None),
    ("gpt2_forward", 1, 3, 5, ("torch",), 1.5),
    ("gpt2_train", 1, 3, 3, ("torch",), 1.5),
    ("gpt2_decode", 1, 3, 15, ("torch",), None),
    ("llama_decode", 1, 3, 5, ("torch",), None),
    ("vit_forward", 1, 3, 9, ("torch",), None),
    ("vit_train", 8, 1, 1, ("torch",), None),
    ("lstm_forward", 16, 3, 31, ("torch",), None),
    ("lstm_train", 16, 3, 15, ("torch",), None),
    ("unet_forward", 1, 3, 15, ("torch",), None),
    ("unet_train", 4, 1, 3, ("torch",), None),
    ("moe_forward", 1, 3, 15, ("torch",), None),
    ("moe_train", 1, 3, 5, ("torch",), None),
]
OF_FLOOR = 1.25  # decode steps: at most so many times the time to read the weights once


def process(*command, threads, limit=LIMIT, **settings):
    env = os.environ | {"KN_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)} | settings
    try:
        p = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"over {limit} s"}
    if p.returncode:
        return {"error": (p.stderr.strip().splitlines() or [f"died ({p.returncode})"])[-1]}
    return json.loads(p.stdout.splitlines()[-1])


def runs(build, python, beam, threads, program, batch, times, steps, peers):
    """Every side's runs, by turns; a side that failed once is not asked again."""
    zoo = [build / "zoo" / program, "--json", "--batch", batch, "--steps", steps]
    sides = {"koine": lambda: process(*zoo, threads=threads, **({"KN_BEAM": "0"} if beam else {}))}
    if beam:
        sides["beam"] = lambda: process(*zoo, threads=threads, limit=SEARCH, KN_BEAM=beam)
    for p in peers:
        sides[p] = lambda p=p: process(python, HERE / "peer_zoo.py", p, program, batch, threads, steps, threads=threads)
    done = {side: [] for side in sides}
    for _ in range(times):
        for side, run in sides.items():
            if not any("error" in r for r in done[side]):
                done[side].append(run())
    return done


def record(done, rate, threads, program, batch, bar):
    r = {"row": f"zoo_{program}_b{batch}", "threads": threads, "unit": "ms", "peers": {}, "peak_mib": {}, "failed": {}}
    for side, of_it in done.items():
        wrong = next((t["error"] for t in of_it if "error" in t), None)
        if wrong:
            r["failed"][side] = wrong
            continue
        ms = round(statistics.median(t["ms"] for t in of_it), 3)
        (r if side in ("koine", "beam") else r["peers"])[side] = ms
        r["peak_mib"][side] = max(t["peak_mib"] for t in of_it)
    if "koine" not in r:
        return r | {"error": r["failed"].get("koine", "failed")}
    ours = done["koine"][0]
    r["kernels"], met = ours["kernels"], []
    if r["peers"]:
        r["ratio"] = round(min(r["peers"].values()) / r["koine"], 3)
        met += [r["ratio"] >= bar] if bar else []
    if "torch" in r["peak_mib"]:
        met.append(r["peak_mib"]["koine"] <= r["peak_mib"]["torch"])
    if "decode" in program:
        r["floor"] = round(1e3 * ours["weight_bytes"] / rate, 3)
        r["ceiling"] = round(r["floor"] / r["koine"], 3)
        met.append(r["koine"] <= OF_FLOOR * r["floor"])
    return r | {"bar": bar, "met": all(met) if met else None}


def text_of(r):
    if "error" in r:
        return f"{r['row']:24} {r['threads']:3}  {r['error']}"
    beam = f"{r['beam']:9.1f}" if r.get("beam") else f"{'-':>9}"
    peers = ", ".join(f"{p} {ms:.1f} ({r['peak_mib'][p]} MiB)" for p, ms in r["peers"].items()) or "-"
    aim = f"; ratio {r['ratio']:.2f}" if "ratio" in r else ""
    aim += f", bar {r['bar']}" if r["bar"] else f"; {1 / r['ceiling']:.2f} of the floor, bar {OF_FLOOR}" if "ceiling" in r else ""
    lost = "".join(f"; {side}: {why}" for side, why in r["failed"].items())
    return f"{r['row']:24} {r['threads']:3} {r['koine']:9.1f} {beam} {r['peak_mib']['koine']:7}  {peers}{aim}{lost}"


def rows(build, python, found, beam, wanted, threads, ceilings, say):
    for n in threads:
        for program, batch, times, steps, peers, bar in ROWS:
            if not wanted(f"zoo_{program}_b{batch}"):
                continue
            say(f"zoo_{program}_b{batch}")
            done = runs(build, python, beam, n, program, batch, times, steps, [p for p in peers if p in found])
            r = record(done, ceilings.look("read", n, 5), n, program, batch, bar)
            yield r, text_of(r)
