"""Programs lowered for machine code: every op on data is an instruction, and the interpreter, which takes each for what it
means, gives what it gives for the same program lowered for C at that level."""
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
LEVELS = ["avx512", "avx2", "sse2"]
STAGES = ["select", "linearize", "plan"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples(koine, tmp_path, example, level):
    env = {"KN_CPU": level, "KN_VERIFY": "1"}

    def interpreted(target, stage):
        text = tmp_path / f"{target}.kn"
        text.write_text(koine("compile", example, "--target", target, "--to", stage, env=env).stdout)
        return koine("run", text, "--device", "INTERP").stdout, text.read_text()
    want, _ = interpreted("c", "plan")
    for stage in STAGES:
        got, text = interpreted("x86", stage)
        assert got == want
    assert " ins " in text or "add" not in example.read_text()


def test_what_has_no_instruction_is_named(koine, tmp_path):
    p = tmp_path / "p.kn"
    p.write_text('koine 1 tensor\n%x = param "x" : f64 [8]\n%y = mulacc %x %x %x\nout "y" = %y\n')
    r = koine("compile", p, "--target", "x86", "--to", "select", ok=False, env={"KN_CPU": "sse2"})
    assert r.returncode == 1 and "KN4223" in r.stderr and "mulacc" in r.stderr and "sse2" in r.stderr
