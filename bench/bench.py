"""`make bench`: koine beside its peers in one run; ratios of medians, fractions of what the machine can do.

    bench.py BUILD PYTHON [--json] [--beam N] [--threads N,N] [--rows NAME...]

PYTHON is that of the peers (numpy, torch, tinygrad, onnxruntime). A row is run if its name begins with one of the names given; without any, all
are. Rows: rows.py (kernels), and kernels_, compile_, dispatch, again, zoo_ below. --json: one object a line, {row, threads, koine, beam, unit,
peers, ratio, ceiling, ...}; docs/performance.md says what each means.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import compiling
import networks
from ceilings import Ceilings
from players import Match, cleared, of_kernels, progress
from rows import ROWS

PEERS = {"numpy": "numpy", "torch": "torch", "tinygrad": "tinygrad", "onnxruntime": "onnxruntime, onnx"}
SIDES = ("numpy", "torch", "tinygrad")
COLUMNS = f"  {'row':20} thr {'koine':>9} {'beam':>9} {'numpy':>9} {'torch':>9} {'tinygrad':>9} {'ratio':>6} {'beam':>5} {'bar':>4} {'ceiling':>8}"


def arguments():
    a = argparse.ArgumentParser()
    a.add_argument("build", type=Path)
    a.add_argument("python")
    a.add_argument("--json", action="store_true")
    a.add_argument("--beam", default="4")
    a.add_argument("--threads", default="1,2")
    a.add_argument("--rows", nargs="*", default=[])
    return a.parse_args()


ARGS = arguments()
KOINE = ARGS.build / "koine"
CODE = os.environ.setdefault("KN_CODE", "x86")
failures, below = [], []


def versions():
    """Of the peers that are here."""
    found = {}
    for peer, modules in PEERS.items():
        code = f"from importlib.metadata import version as v; import {modules}; print(v('{peer}'))"
        p = subprocess.run([ARGS.python, "-c", code], capture_output=True, text=True)
        if p.returncode == 0:
            found[peer] = p.stdout.strip()
        else:
            print(f"bench: {peer} is not here, its column is left out: {ARGS.python} -m pip install {modules.replace(',', '')}", file=sys.stderr)
    return found


def wanted(name, hidden=False):
    return name in ARGS.rows or not hidden and (not ARGS.rows or any(name.startswith(r) for r in ARGS.rows))


def out(record, text):
    cleared()
    base = {"row": None, "threads": 1, "code": CODE, "koine": None, "beam": None, "unit": None, "peers": {}, "ratio": None, "ceiling": None}
    r = base | record
    met = r.get("met")
    if met is False:
        below.append(r)
    print(json.dumps(r) if ARGS.json else "  " + text + ("  below" if met is False else ""), flush=True)


def title(*text):
    if not ARGS.json:
        print("", *text, sep="\n", flush=True)


def rounded(v):
    return None if v is None else float(f"{v:.4g}")


def shown(v, width=9):
    return f"{'-' if v is None else f'{v:.4g}' if v < 1e4 else f'{v:.0f}':>{width}}"


def ratio(v, width):
    return f"{'-' if v is None else f'{v:.2f}':>{width}}"


# ---- kernels of rows.py ----


def record_of(row, threads, played, tiles):
    us, r = played["us"], {"row": row.name, "threads": threads, "unit": "us"}
    bar, beam_bar = (None, None) if row.tiles and not tiles else (row.bar, row.beam_bar)
    r |= {"koine": rounded(us.get("koine")), "beam": rounded(us.get("beam")), "peers": {p: rounded(us[p]) for p in SIDES if p in us}}
    r |= {"bar": bar} | {f: played[f] for f in ("over", "failed", "how")}
    r |= {f: {side: rounded(v) for side, v in played[f].items()} for f in ("least", "cpu")}
    best = min(r["peers"].values(), default=None)
    if r["koine"] is None:
        why = played["failed"].get("koine") or f"over {played['over'].get('koine')} s"
        failures.append(f"{row.name}, {threads} threads: {why}")
        return r | {"met": False, "why": why}
    floor, kind = played["floor"], played["floor_of"]
    r |= {"ratio": best and rounded(best / r["koine"]), "beam_ratio": best and r["beam"] and rounded(best / r["beam"])}
    r |= {"ceiling": rounded(1e6 * floor / r["koine"]), "ceiling_of": kind, "floor": rounded(1e6 * floor), "floor_bar": row.floor_bar}
    r |= {"of_best": rounded(1e6 * played["best_floor"] / r["koine"])}
    met = [r["ratio"] >= bar] if bar and best else []
    met += [r["beam_ratio"] >= beam_bar] if beam_bar and r["beam_ratio"] else []
    met += [max(r["ceiling"], 1e6 * floor / (r["beam"] or r["koine"])) >= row.floor_bar] if row.floor_bar else []
    return r | {"met": all(met) if met else None} | ({"note": "no AMX here: no bar"} if row.tiles and not tiles else {})


def kernel_text(r):
    cells = [shown(r["koine"]), shown(r["beam"])]
    for p in SIDES:
        cells.append(shown(r["peers"].get(p)) if p not in r["over"] else f"{'>' + str(r['over'][p]) + ' s':>9}")
    text = f"{r['row']:20} {r['threads']:3} {' '.join(cells)}"
    if r["koine"] is None:
        return f"{text}  koine: {r['why']}"
    text += f" {shown(r['ratio'], 6)} {shown(r['beam_ratio'], 5)} {shown(r['bar'], 4)} {r['ceiling']:8.2f} {r['ceiling_of']}"
    notes = [f"{p} {how}" for p, how in r["how"].items()] + [f"{p}: {why}" for p, why in r["failed"].items()] + [r.get("note")]
    return text + "".join(f"; {n}" for n in notes if n)


def kernels(rows, found, beam, ceilings, all_threads):
    libraries, tiles = (ARGS.build / "libkoine.so", ARGS.build / "bench/libstep.so"), ceilings.tiles()
    title(f"Kernels on the CPU, us; ratio: the best peer's time over koine's; ceiling: the least the machine allows over koine's{'' if tiles else '; no AMX'}", COLUMNS)
    for threads in all_threads:
        players = {"koine": of_kernels("koine", ARGS.python, threads, {"KN_BEAM": "0"} if beam else {}, *libraries)}
        if beam:
            players["beam"] = of_kernels("beam", ARGS.python, threads, {"KN_BEAM": ARGS.beam}, *libraries)
        peers = {p: of_kernels(p, ARGS.python, threads, {}) for p in SIDES if p in found}
        match = Match(players | peers, ceilings, threads, progress)
        try:
            for row in rows:
                played = {}
                match.play(row, played)
                r = record_of(row, threads, played, tiles)
                out(r, kernel_text(r))
        finally:
            match.close()


# ---- the rest ----


def program(name):
    """What build/bench/NAME prints, on one thread; None: it failed, which is noted."""
    p = subprocess.run([ARGS.build / "bench" / name], capture_output=True, text=True, env=os.environ | {"KN_THREADS": "1"})
    if p.returncode:
        failures.append(f"{name}: {p.stderr.strip()}")
    return None if p.returncode else json.loads(p.stdout)


def dispatch():
    title("Dispatch: 1,000 dependent tiny kernels in a realised schedule, ns a kernel beyond the kernels, one thread")
    d = program("dispatch")
    if d:
        r = {"row": "dispatch", "koine": d["ns"], "unit": "ns", "kernel_ns": d["kernel_ns"], "bar": 300, "met": d["ns"] <= 300}
        out(r, f"{'dispatch':20} {1:3} {d['ns']:9.1f}  (a kernel itself: {d['kernel_ns']:.1f}); bar 300")


def again():
    title("Again: a second call of a traced network of two layers, realised, us in the median of 21; in brackets the median of later ones; one thread")
    for name, d in (program("again") or {}).items():
        r = {"row": f"again_{name}", "koine": d["second_us"], "unit": "us", "later_us": d["us"], "first_context_us": d["cold_us"]}
        out(r | {"bar": 50, "met": d["second_us"] <= 50}, f"{r['row']:20} {1:3} {d['second_us']:9.1f}  ({d['us']:.1f}); bar 50")


def section(rows, *head):
    first = True
    for r, text in rows:
        if first:
            title(*head)
        first = False
        if r.get("error"):
            failures.append(f"{r['row']}: {r['error']}")
        out(r, text)


def summary():
    cleared()
    if below and not ARGS.json:
        title("Below their bar, the worst first:")
        for r in sorted(below, key=lambda r: r.get("ratio") if r.get("ratio") is not None else -1):
            print(f"  {r['row']:24} threads {r['threads']}  ratio {r.get('ratio')}  ceiling {r.get('ceiling')}")
    for f in failures:
        print("bench: failed:", f, file=sys.stderr)
    return 1 if failures else 0


def main():
    found = versions()
    beam = ARGS.beam != "0" and re.search(r"\bKN_BEAM\b", subprocess.run([KOINE, "info"], capture_output=True, text=True).stdout)
    cpu = re.search(r"^cpu +(.*)", subprocess.run([KOINE, "info"], capture_output=True, text=True).stdout, re.M)
    head = (f"koine: {'machine code' if CODE == 'x86' else 'C, compiled'} (KN_CODE={CODE}), {cpu[1] if cpu else '?'}, "
            f"{f'search KN_BEAM={ARGS.beam}' if beam else 'no search (KN_BEAM) in this build'}; peers: {', '.join(f'{p} {v}' for p, v in found.items()) or 'none'}")
    print(head, file=sys.stderr if ARGS.json else sys.stdout, flush=True)
    ceilings, threads = Ceilings(ARGS.build / "bench/libprobe.so"), list(map(int, ARGS.threads.split(",")))
    rows = [r for r in ROWS if wanted(r.name, hidden=r.name.startswith("tiny"))]
    if rows and "numpy" in found:
        kernels(rows, found, beam, ceilings, threads)
    elif rows:
        failures.append("no rows of kernels without numpy, which the results are checked against")
    if wanted("dispatch"):
        dispatch()
    if wanted("again"):
        again()
    section(compiling.kernels(KOINE, wanted), "Kernels of a program, and the bytes they move over the least any schedule could move", compiling.KERNELS_HEAD)
    section(compiling.rows(KOINE, ARGS.python if "tinygrad" in found else None, wanted, progress),
            f"Compiling, from tensor calls to {'machine code' if CODE == 'x86' else 'C'}, us, one thread; tinygrad: to machine code, by clang", compiling.COMPILE_HEAD)
    section(networks.rows(ARGS.build, ARGS.python, found, ARGS.beam if beam else None, wanted, threads, ceilings, progress),
            "Whole networks, ms a step, and peak memory, MiB", networks.HEAD)
    section(((c, f"{c['row']:20} {c['threads']:3} {c['ceiling']:9} {c['unit']}") for c in ceilings.records()), "Ceilings: the best rates seen in this run")
    return summary()


sys.exit(main())
