"""Every example, stopped at every stage: the text runs to the same bits, lowers on to the same text, means the same to
the interpreter and passes its spec; rendered, it compiles alone."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
STAGES = ["callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render"]




@pytest.fixture(scope="module")
def whole(koine_session):
    memo = {}

    def get(path, *args):
        key = (path, args)
        if key not in memo:
            memo[key] = koine_session("run", path, *args).stdout
        return memo[key]
    return get


@pytest.fixture(scope="module")
def stage_text(koine_session):
    memo = {}

    def get(path, stage):
        if (path, stage) not in memo:
            memo[path, stage] = koine_session("compile", path, "--to", stage).stdout
        return memo[path, stage]
    return get


def test_there_are_enough_examples():
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
class TestStage:
    def test_runs_to_the_same_bits(self, koine_session, whole, stage_text, path, stage):
        got = koine_session("run", "-", stdin=stage_text(path, stage)).stdout
        assert got == whole(path)

    def test_lowers_on_to_the_same_text(self, koine_session, stage_text, path, stage):
        got = koine_session("compile", "-", "--to", "render", stdin=stage_text(path, stage)).stdout
        assert got == stage_text(path, "render")

    def test_passes_its_spec(self, koine_session, stage_text, path, stage):
        env = {"KN_VERIFY": "1"}
        koine_session("compile", "-", "--to", stage, stdin=stage_text(path, stage), env=env)

    def test_interpreter_agrees(self, koine_session, path, stage):
        """KN_VERIFY=3 evaluates after each stage and compares with the tensor program."""
        if stage == "render":
            koine_session("compile", path, "--to", "render", env={"KN_VERIFY": "3"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_tensor_program_is_no_callified_one(koine_session, path):
    """The spec of a later stage refuses it: the stage's name is changed, nothing else."""
    text = path.read_text()
    lie = re.sub(r"koine 1 tensor", "koine 1 rangeify", text, count=1)
    r = koine_session("compile", "-", "--to", "rangeify", stdin=lie, env={"KN_VERIFY": "1"}, ok=False)
    assert r.returncode != 0 and "KN" in r.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_c_text_compiles_alone(koine_session, path, tmp_path):
    c = tmp_path / "kernel.c"
    c.write_text(koine_session("compile", path, "--target", "c").stdout)
    cc = os.environ.get("CC", "cc").split()
    r = subprocess.run([*cc, "-c", str(c), "-o", str(tmp_path / "kernel.o")], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr[:2000]
