"""Programs that once went wrong: found/*.kn, each named after what was wrong; most are random programs, shrunk, some a kernel
written by hand. No value depends on the order or the contraction of arithmetic, so every device gives the interpreter's bits."""
from pathlib import Path

import numpy as np
import pytest

FOUND = sorted((Path(__file__).parent / "found").glob("*.kn"))


@pytest.mark.runs
@pytest.mark.parametrize("program", FOUND, ids=lambda p: p.stem)
@pytest.mark.parametrize("code, level", [(code, level) for level in ("avx512", "avx2", "sse2") for code in ("c", "x86")] + [("x86", level) for level in ("dot", "fp16", "amx")])
def test_gives_the_interpreters_bits(koine, tmp_path, program, code, level):
    got = []
    for device in ("INTERP", "CPU"):
        out = tmp_path / f"{device}.npy"
        koine("run", program, "--device", device, "--out", f"y0={out}", env={"KN_CODE": code, "KN_CPU": level})
        got.append(np.load(out))
    assert got[0].tobytes() == got[1].tobytes(), f"{np.sum(got[0] != got[1])} of {got[0].size} differ"


@pytest.mark.parametrize("program", FOUND, ids=lambda p: p.stem)
def test_threads_give_them_too(koine, tmp_path, program):
    """However little there is to do."""
    got = []
    for device, threads in (("INTERP", 1), ("CPU", 2), ("CPU", 3)):
        out = tmp_path / "y.npy"
        koine("run", program, "--device", device, "--out", f"y0={out}", env={"KN_THREADS": threads, "KN_ALONE": 1})
        got.append(np.load(out).tobytes())
    assert got[0] == got[1] == got[2]
