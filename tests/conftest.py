"""What every test can use, and how C test programs become pytest items.

A C test program tests/**/test_*.c prints TAP; make builds it at the same place under the build folder. It is run once,
when collected, and each of its lines becomes an item (so -k finds a case, and a case counts as one). A program that
crashes, prints no plan or stops early has one failing item more, `program`. With several workers (-n), which all collect
the same items, each program runs in the first that claims it.

A test whose machine code of a level is run too, not only looked at, says so: `@pytest.mark.runs("avx512")`, or `@pytest.mark.runs` where its
parameter `level` is the level. Where the processor has less, it is left out (not skipped), and the last lines say how many were.

Fixtures: `build` (folder), `koine` (runs the command), `libkoine` (path of the shared library), `levels` (what this processor runs, sse2 first),
`once` (what takes long is made by one worker, for all), `preload` (a C source that stands before a program's own functions), `work` (= tmp_path).
Helpers for test modules: none to import; all is fixtures.
"""
import collections
import fcntl
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("KOINE_BUILD", ROOT / "build"))
SANITIZED = bool(os.environ.get("KOINE_SAN"))


def child_env(**more):
    """Environment of a program under test: its own leak check, NULL for a block too large, no preloaded runtime, a cache inside the build."""
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    env["ASAN_OPTIONS"] = "allocator_may_return_null=1"
    env.setdefault("KN_CACHE", str(BUILD / "cache"))
    env.setdefault("KN_AHEAD", "0")  # listings are the same on every processor
    env["UBSAN_OPTIONS"] = "print_stacktrace=1"
    env.update({k: str(v) for k, v in more.items()})
    return env


# ---- what cannot run for want of a package ----

NEEDS = ["numpy", "hypothesis", "sklearn", "ml_dtypes", "jax"]
MISSING = [m for m in NEEDS if importlib.util.find_spec(m) is None]


def is_left_out(path):
    """A module that imports what is not installed, or a folder whose conftest does."""
    if not MISSING:
        return False
    files = [path] if path.suffix == ".py" else sorted(path.glob("conftest.py")) if path.is_dir() and path.parent != ROOT else []
    imports = re.compile(rf"\b(?:import|from|importorskip\(.)\s*(?:{'|'.join(MISSING)})\b")
    return any(f.parent != ROOT / "tests" and imports.search(f.read_text()) for f in files)


def pytest_ignore_collect(collection_path, config):
    """They are named at the end (tools/runtests makes that a failure)."""
    return is_left_out(collection_path) or None


def pytest_terminal_summary(terminalreporter):
    left_out = [p for p in sorted((ROOT / "tests").rglob("*")) if p.suffix in ("", ".py") and is_left_out(p)]
    if left_out:
        terminalreporter.write_line(f"not run, no {', '.join(MISSING)}: {' '.join(str(p.relative_to(ROOT)) for p in left_out)}")
    for level, n in sorted(terminalreporter.config.stash.get(BEYOND, {}).items()):
        terminalreporter.write_line(f"left out: {n} that run {level}")
    if os.environ.get("KOINE_ALL"):
        for r in terminalreporter.stats.get("skipped", []):
            terminalreporter.write_line(f"should have run: {r.nodeid}: {r.longrepr[2] if isinstance(r.longrepr, tuple) else r.longrepr}")


def pytest_sessionfinish(session):
    """KOINE_ALL: where everything is installed, a skipped test is a failure."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["beyond"] = dict(session.config.stash.get(BEYOND, {}))
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("KOINE_ALL") and reporter and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = 1


# ---- levels of the processor ----

LEVELS = ["sse2", "avx2", "avx512", "dot", "fp16", "amx"]
BEYOND = pytest.StashKey()  # a level there is not -> how many items run it


def levels_here():
    """Of the machine, whatever KN_CPU says, and as koine was built to see it (CPU_MOST)."""
    r = subprocess.run([str(BUILD / "koine"), "info", "--json"], stdout=subprocess.PIPE, text=True, check=True, env=child_env(KN_CPU=""))
    return LEVELS[:LEVELS.index(json.loads(r.stdout.splitlines()[0])["cpu"]) + 1]


def pytest_collection_modifyitems(config, items):
    run = {item: mark.args[0] if mark.args else item.callspec.params["level"] for item in items if (mark := item.get_closest_marker("runs"))}
    assert set(run.values()) <= set(LEVELS), "runs: a level"
    here = levels_here() if run else []
    beyond = {item: level for item, level in run.items() if level not in here}
    items[:] = [item for item in items if item not in beyond]
    config.hook.pytest_deselected(items=list(beyond))
    config.stash[BEYOND] = collections.Counter(beyond.values())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """All workers collect the same."""
    node.config.stash[BEYOND] = getattr(node, "workeroutput", {}).get("beyond") or node.config.stash.get(BEYOND, {})


# ---- TAP ----

TAPS = pytest.StashKey()  # a program -> what running it gave
TAPS_DIR = pytest.StashKey()


def pytest_configure(config):
    config.stash[TAPS] = Shared(config) if hasattr(config, "workerinput") else run_tap


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """A folder for all workers of this run."""
    if TAPS_DIR not in node.config.stash:
        node.config.stash[TAPS_DIR] = tempfile.TemporaryDirectory()
    node.workerinput["taps"] = node.config.stash[TAPS_DIR].name


class Shared:
    """What a program printed, whichever worker ran it. One that would wait for another's program runs those that follow first."""

    def __init__(self, config):
        self.dir = Path(config.workerinput["taps"])
        asked = [Path(a.split("::")[0]).resolve() for a in config.args]
        sources = {s for a in asked for s in ([a] if a.is_file() else a.rglob("test_*.c"))}
        self.ahead = [p for s in sorted(sources) if (p := program_of(s)).exists()]

    def __call__(self, program):
        while self.ahead:
            self.claim(self.ahead.pop(0), wait=False)
        return self.claim(program, wait=True)

    def claim(self, program, wait):
        with open(self.dir / str(program.relative_to(BUILD)).replace("/", "."), "a+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return None
            f.seek(0)
            text = f.read()
            if not text:
                text = json.dumps(run_tap(program))
                f.write(text)
            return json.loads(text)


def program_of(source):
    return BUILD / source.relative_to(ROOT).with_suffix("")


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".c" and file_path.name.startswith("test_"):
        return TapFile.from_parent(parent, path=file_path)
    return None


class TapFile(pytest.File):
    def collect(self):
        program = program_of(self.path)
        if not program.exists():
            yield TapItem.from_parent(self, name="program", ok=False, text=f"{program} is not built: make tests")
            return
        out, text, rc = self.config.stash[TAPS](program)
        plan = re.search(r"^1\.\.(\d+)(.*)$", out, re.M)
        seen, names = 0, set()
        notes = []
        for line in out.splitlines():
            m = re.match(r"(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*)(?:#\s*(\w+)\s*(.*))?$", line)
            if not m:
                notes.append(line)
                continue
            seen += 1
            name = m[3].strip() or str(seen)
            while name in names:
                name += f" ({seen})"
            names.add(name)
            skip = m[5] or "skipped" if (m[4] or "").upper() == "SKIP" else None
            yield TapItem.from_parent(self, name=name, ok=not m[1], text="\n".join(notes + [line]), skip=skip)
            notes = []
        whole = plan and int(plan[1]) == seen
        failed = "\nnot ok" in "\n" + out
        if not whole or (rc != 0 and not failed):
            why = f"{program}: exit {rc}, plan {plan[0] if plan else 'missing'}, {seen} lines\n{text[-6000:]}"
            yield TapItem.from_parent(self, name="program", ok=False, text=why)


def run_tap(program):
    try:
        r = subprocess.run([str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=child_env(),
                           timeout=1800 if SANITIZED else 600)
        out, err, rc = r.stdout, r.stderr, r.returncode
    except subprocess.TimeoutExpired as e:
        out, err, rc = e.stdout or b"", b"timed out", -1
    out, err = out.decode(errors="replace"), err.decode(errors="replace")
    return out, out + err, rc


class TapItem(pytest.Item):
    def __init__(self, *, ok, text, skip=None, **kw):
        super().__init__(**kw)
        self.ok, self.text, self.skip = ok, text, skip

    def runtest(self):
        if self.skip:
            pytest.skip(self.skip)
        if not self.ok:
            raise TapFailure(self.text)

    def repr_failure(self, excinfo):
        return str(excinfo.value) if isinstance(excinfo.value, TapFailure) else super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, 0, f"{self.path.stem}: {self.name}"


class TapFailure(Exception):
    pass


# ---- fixtures ----

class Koine:
    """koine("run", "x.npy", ok=True, stdin=..., env={...}) -> CompletedProcess with text output."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.path = BUILD / "koine"

    def env(self, **more):
        """The environment its children get."""
        return child_env(**more)

    def __call__(self, *args, ok=True, stdin=None, env=None, cwd=None, timeout=600, text=True):
        r = subprocess.run([str(self.path), *map(str, args)], input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=text, cwd=cwd or self.cwd, timeout=timeout,
                           env=child_env(**(env or {})))
        if ok and r.returncode != 0:
            raise AssertionError(f"koine {' '.join(map(str, args))}: exit {r.returncode}\n{r.stdout}\n{r.stderr}")
        assert b"Sanitizer" not in (r.stderr if not text else r.stderr.encode()), r.stderr
        return r

    def under(self, limits):
        """What to put before a command that is to have no more than that: {as, fsize, nproc: n}. It hears of a file's limit by errno."""
        return ["sh", "-c", "trap '' XFSZ; exec prlimit \"$@\"", "sh", *(f"--{what}={n}" for what, n in limits.items())]

    def json(self, *args, **kw):
        """The objects of a --json listing."""
        return [json.loads(line) for line in self(*args, "--json", **kw).stdout.splitlines()]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def build():
    return BUILD


@pytest.fixture(scope="session")
def once(request):
    """once(name, make) -> what make() gave (as JSON has it), whichever worker called it."""
    def made(name, make):
        if not hasattr(request.config, "workerinput"):
            return make()
        with open(Path(request.config.workerinput["taps"]) / name, "a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            if not (text := f.read()):
                text = json.dumps(make())
                f.write(text)
            return json.loads(text)
    return made


@pytest.fixture(scope="session")
def levels():
    return levels_here()


@pytest.fixture(scope="session")
def sanitized():
    return SANITIZED


@pytest.fixture
def koine(tmp_path):
    return Koine(tmp_path)


@pytest.fixture(scope="session")
def koine_session(tmp_path_factory):
    return Koine(tmp_path_factory.mktemp("koine"))


@pytest.fixture(scope="session")
def libkoine():
    return BUILD / "libkoine.so"


@pytest.fixture
def preload(tmp_path):
    """preload(source in C, flags...) -> the LD_PRELOAD that loads it before all else, but for the sanitizers' runtime, which insists on being first."""
    def made(source, *flags):
        (tmp_path / "shim.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", *flags, "-o", tmp_path / "shim.so", tmp_path / "shim.c", "-ldl"], check=True)
        return f"{os.environ.get('LD_PRELOAD', '')} {tmp_path / 'shim.so'}"
    return made
