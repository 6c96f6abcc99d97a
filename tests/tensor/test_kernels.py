"""How many kernels each case of this folder's tables is, and each gradient of test_grad's: no more than tests/golden/kernels.txt has,
which may only go down. KN_BLESS=1 writes what is new and what is less; what is more stays a failure, unless the row is taken out first.

A row: a module, what cases begin with, and for each number of kernels the ends of their names; the cases that are not there are one
kernel or none. Counted on the NULL device, each case by itself: all of them together take seconds."""
import importlib
import os
from collections import defaultdict
from pathlib import Path

import koine
import pytest
from data import values

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "golden/kernels.txt"


def tables():
    """Modules with a table of cases."""
    out = {}
    for p in sorted(HERE.glob("test_*.py")):
        if p.stem != "test_kernels" and "\nCASES" in p.read_text():
            m = importlib.import_module(p.stem)
            if p.stem == "test_grad" or any(hasattr(c, "build") for c in m.CASES):
                out[p.stem.removeprefix("test_")] = m
    return out


MODULES = tables()


def gradients(m):
    """name, and what makes the gradients by all operands."""
    for name, (shapes, f, lo, hi) in m.CASES.items():
        def build(k, name=name, shapes=shapes, f=f, lo=lo, hi=hi):
            y, t = m.loss(k, f, [values(f"{name}{i}", s, "f8", lo, hi) for i, s in enumerate(shapes)])
            return koine.several("grad", len(t), y, t)
        yield name, build


def counted(module):
    """{case: kernels}"""
    k, out = koine.Context("NULL"), {}
    lib = koine.load()
    lib.kn_set(k.h, b"KN_VERIFY", b"0")
    m = MODULES[module]
    for name, build in gradients(m) if module == "grad" else [(c.name, c.build) for c in m.CASES]:
        k.scope_open()
        t = build(k)
        before = lib.kn_stats_of(k.h).kernels_launched
        k.realize(*(t if isinstance(t, list) else [t]))
        out[name] = lib.kn_stats_of(k.h).kernels_launched - before
        k.scope_close()
    k.close()
    return out


def read():
    """{(module, case): kernels}"""
    out = {}
    for line in TABLE.read_text().splitlines() if TABLE.exists() else []:
        head, _, rest = line.partition(": ")
        if line.startswith("#"):
            continue
        module, first = head.split()
        for part in rest.split("; "):
            n, *ends = part.split()
            out.update({(module, first if e == "." else f"{first}-{e}"): int(n) for e in ends})
    return out


def write(counts):
    rows = defaultdict(lambda: defaultdict(list))
    for (module, case), n in sorted(counts.items()):
        first, _, end = case.partition("-")
        if n > 1:
            rows[module, first][n].append(end or ".")
    TABLE.write_text("# How many kernels a case of tests/tensor is (test_kernels.py); one or none where nothing is said.\n" + "".join(
        f"{module} {first}: " + "; ".join(f"{n} {' '.join(ends)}" for n, ends in sorted(by.items())) + "\n" for (module, first), by in sorted(rows.items())))


@pytest.mark.parametrize("module", MODULES)
def test_no_case_takes_more_kernels(module):
    best, now = read(), {(module, name.replace(" ", "_")): n for name, n in counted(module).items()}
    bless = os.environ.get("KN_BLESS")
    more = {key[1]: f"{n}, was {best.get(key, 1)}" for key, n in now.items() if n > best.get(key, 1) and (key in best or not bless)}
    less = {key[1]: f"{n}, was {best[key]}" for key, n in now.items() if n < best.get(key, 0)}
    if bless:
        kept = {key: n for key, n in best.items() if key[0] != module}
        write(kept | {key: min(n, best.get(key, n)) for key, n in now.items()})
        less = {}
    assert not more, f"more kernels: {more}"
    assert not less, f"fewer kernels, KN_BLESS=1 keeps it so: {less}"
