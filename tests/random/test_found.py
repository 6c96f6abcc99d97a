"""Programs that once went wrong: found/*.kn, each named after what was wrong; most are random programs, shrunk, some a kernel
written by hand. No value depends on the order or the contraction of arithmetic, so every device gives the interpreter's bits."""
from pathlib import Path

import numpy as np
import pytest

FOUND = sorted((Path(__file__).parent / "found").glob("*.kn"))


@pytest.mark.parametrize("program", FOUND, ids=lambda p: p.stem)
@pytest.mark.parametrize("level", ["", "avx2", "sse2"])
@pytest.mark.parametrize("code", ["c", "x86"])
def test_gives_the_interpreters_bits(koine, tmp_path, program, code, level):
    got = []
    for device in ("INTERP", "CPU"):
        out = tmp_path / f"{device}.npy"
        koine("run", program, "--device", device, "--out", f"y0={out}", env={"KN_CODE": code, "KN_CPU": level})
        got.append(np.load(out))
    assert got[0].tobytes() == got[1].tobytes(), f"{np.sum(got[0] != got[1])} of {got[0].size} differ"
