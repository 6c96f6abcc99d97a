"""The networks of bench/zoo beside their peers: time a step and peak memory. Each side is a process of its own, and they take turns of a few
steps, so that what the machine does else falls on all alike. Yields (record, text) a row. peer_zoo.py holds the peers."""
import statistics
from pathlib import Path

from players import Over, Player

HERE = Path(__file__).resolve().parent
LIMIT, SEARCH = 300, 1800  # seconds in which a turn ends; the first of one that may have to search
TURN = 0.3  # seconds, or one step; a step before it finds again what it needs in the caches where it is
SHORT = 0.25
BUDGET = 30  # seconds a row for all turns:
TURNS, FEWEST, ONCE = 41, 5, 20  # at most; at least; where a round of all sides takes so many seconds, one round
HEAD = f"  {'row':24} thr {'koine':>9} {'beam':>9} {'memory':>7}  peers"
# program, batch, peers, the bar over the best of them; None: none, or 1.25 of the time to read the weights once
ROWS = [
    ("resnet50_forward", 1, ("onnxruntime", "torch"), 1.0),
    ("resnet50_forward", 16, ("onnxruntime", "torch"), 1.0),
    ("resnet50_train", 16, ("torch",), None),
    ("gpt2_forward", 1, ("torch",), 1.5),
    ("gpt2_train", 1, ("torch",), 1.5),
    ("gpt2_decode", 1, ("torch",), None),
    ("llama_decode", 1, ("torch",), None),
    ("vit_forward", 1, ("torch",), None),
    ("vit_train", 8, ("torch",), None),
    ("lstm_forward", 16, ("torch",), None),
    ("lstm_train", 16, ("torch",), None),
    ("unet_forward", 1, ("torch",), None),
    ("unet_train", 4, ("torch",), None),
    ("moe_forward", 1, ("torch",), None),
    ("moe_train", 1, ("torch",), None),
]
OF_FLOOR = 1.25  # decode steps: at most so many times the time to read the weights once


def sides(build, python, beam, threads, program, batch, peers):
    env = {"KN_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    zoo = [build / "zoo" / program, "--turns", "--batch", batch]
    found = {"koine": Player(zoo, env | {"KN_BEAM": "0"})}
    if beam:
        found["beam"] = Player(zoo, env | {"KN_BEAM": beam})
    return found | {p: Player([python, HERE / "peer_zoo.py", p, program, batch, threads], env) for p in peers}


def asked(player, steps, limit=LIMIT):
    """Its answer; what went wrong is one too."""
    try:
        return player.ask(limit, steps)
    except Over as over:
        return {"error": f"over {over.args[0]:.0f} s"}


def turns(players, between):
    """Every side's answers, by turns; a side that failed once is not asked again. between: called in each round, with what koine answered first."""
    done = {side: [asked(p, 1, SEARCH if side == "beam" else LIMIT)] for side, p in players.items()}
    playing = {side: players[side] for side, answers in done.items() if "error" not in answers[0]}
    once = {side: done[side][0]["ms"] / 1e3 for side in playing}
    steps = {side: max(1, int(TURN / s)) for side, s in once.items()}
    a_round = sum(once[side] * steps[side] for side in playing)
    for _ in range(1 if a_round > ONCE else max(FEWEST, min(TURNS, int(BUDGET / max(a_round, 0.1))))):
        for side in playing:
            if "error" in done[side][-1]:
                continue
            first = asked(players[side], 1) if once[side] < SHORT else {}
            done[side].append(first if "error" in first else asked(players[side], steps[side]))
        between(done["koine"][0])
    return {side: answers if "error" in answers[-1] else answers[1:] for side, answers in done.items()}


def record(done, reads, threads, program, batch, bar):
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
    if reads:  # bytes a second
        r["floor"] = round(1e3 * ours["weight_bytes"] / statistics.median(reads), 3)
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
        for program, batch, peers, bar in ROWS:
            if not wanted(f"zoo_{program}_b{batch}"):
                continue
            say(f"zoo_{program}_b{batch}")
            reads = []  # of the weights, by turns with the sides: what memory gives changes within minutes

            def read_weights(koine):
                if "decode" in program and "error" not in koine:
                    reads.append(ceilings.read_of(koine["weight_bytes"], n))

            players = sides(build, python, beam, n, program, batch, [p for p in peers if p in found])
            try:
                done = turns(players, read_weights)
            finally:
                for p in players.values():
                    p.end()
            r = record(done, reads, n, program, batch, bar)
            yield r, text_of(r)
