"""Koine and its peers, by turns: each a process of its own (player.py), waiting while another has its turn.

What the machine does else falls on all of them alike, so the ratio of their medians is worth more than any one of the times.
"""
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TURN_MS = 25
TURNS = 9  # of a row, fewer where they take long:
BUDGET = 4.0  # seconds a row for all turns
FEWEST = 3
FAR = 4  # a peer that takes so many times what koine does has no more than the fewest turns
PREPARE = {"koine": 60, "beam": 900, "numpy": 30, "torch": 30, "tinygrad": 12}  # seconds in which to be ready, compiling
# (and for beam a search that no earlier run has left on disk) included
LOAD = 60


class Over(Exception):
    pass


class Player:
    """A process that answers a line of JSON with a line of JSON, started when it is first asked and again after it died or took too long."""

    def __init__(self, command, environment):
        self.command, self.environment, self.process = [str(c) for c in command], {**os.environ, **environment}, None

    def ask(self, limit, question):
        fresh = self.process is None
        if fresh:
            self.said = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, env=self.environment,
                                            text=True)
            limit += LOAD
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline() if select.select([self.process.stdout], [], [], limit)[0] else None
        except BrokenPipeError:
            answer = ""
        if answer is None:
            self.end()
            raise Over(limit - LOAD * fresh)
        if not answer:
            code = self.process.wait()
            self.said.seek(0)
            text = self.said.read().strip().splitlines()
            self.end()
            return {"error": f"died ({code}) {text[-1] if text else ''}"}
        return json.loads(answer)

    def end(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.said.close()
            self.process = None


def of_kernels(side, python, threads, environment, *libraries):
    return Player([python, HERE / "player.py", "koine" if side == "beam" else side, threads, *libraries], environment)


class Match:
    """All sides at one number of threads, and what the machine can do beside them."""

    def __init__(self, players, ceilings, threads, say):
        self.players, self.ceilings, self.threads, self.say = players, ceilings, threads, say
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

    def close(self):
        for p in self.players.values():
            p.end()
        self.folder.cleanup()

    def ready(self, row, want, r):
        """The sides that can play it: each has run it once and got the right result."""
        sides = {}
        for name, p in self.players.items():
            if name not in ("koine", "beam") and not getattr(row, name):
                continue
            self.say(f"{row.name}: {name}")
            try:
                answer = p.ask(PREPARE[name], {"do": "row", "name": row.name})
                checked = answer if "error" in answer else p.ask(LOAD, {"do": "check", "of": want})
            except Over as over:
                r["over"][name] = over.args[0]
                continue
            if "error" in checked:
                r["failed"][name] = checked["error"]
                continue
            sides[name] = answer["once"]
            if answer["how"]:
                r["how"][name] = answer["how"]
        return sides

    def turns(self, sides):
        """How many turns each side has. A turn is two calls, or as many as its time allows; one where a call takes long."""
        least = sides.get("koine", min(sides.values()))
        far = {n for n, once in sides.items() if once > max(FAR * least, 0.1)}
        near = sum(max(TURN_MS / 1e3, 2 * once) for n, once in sides.items() if n not in far)
        n = int(min(TURNS, max(FEWEST, BUDGET / near)))
        return {name: (n if name not in far else 1 if once > 0.5 else FEWEST) for name, once in sides.items()}

    def play(self, row, r):
        """Fills r: microseconds a call by side: the median of its turns in `us`, the `least` of any call, and `cpu`, of all its threads' processor
        time, which waiting for a core that others have is not in. And why a side has none. `floor`: the seconds that the machine takes for what the
        row does at least, the median of its turns, of the kind of work that takes longest, `floor_of`; `best_floor`: at the best rates seen."""
        r |= {"over": {}, "failed": {}, "how": {}, "us": {}, "least": {}, "cpu": {}}
        want = Path(self.folder.name) / "want.npy"
        answer = self.players["numpy"].ask(120, {"do": "want", "name": row.name, "to": str(want)})
        if "error" in answer:
            raise RuntimeError(f"{row.name}: no reference: {answer['error']}")
        sides = self.ready(row, str(want), r)
        want.unlink()
        if not sides:
            return
        due, times = self.turns(sides), {name: [] for name in sides}
        work, machine = self.ceilings.work_of(row, self.threads), []
        for i in range(max(due.values())):
            self.say(f"{row.name}: turn {i + 1} of {max(due.values())}")
            for name in sides:
                if i >= due[name] or name in r["failed"]:
                    continue
                try:
                    answer = self.players[name].ask(4 * LOAD, {"do": "turn", "ms": TURN_MS})
                except Over as over:
                    answer = {"error": f"hangs: over {over.args[0]:.0f} s"}
                if "error" in answer:
                    r["failed"][name] = answer["error"]
                else:
                    times[name].append(answer)
            machine.append(self.ceilings.turn(work, self.threads, TURN_MS / 1e3))
        r["floor"], r["floor_of"] = max((statistics.median(turn[kind] for turn in machine), kind) for kind in work)
        r["best_floor"] = self.ceilings.least(work, self.threads)
        for name, t in times.items():
            if t and name not in r["failed"]:
                r["us"][name], r["cpu"][name] = (statistics.median(turn[what] for turn in t) for what in ("us", "cpu"))
                r["least"][name] = min(turn["least"] for turn in t)


def progress(text):
    """A line that the next one replaces, for who watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K  {text}", end="", file=sys.stderr, flush=True)


def cleared():
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
