"""The specs of the stages, and what KN_VERIFY makes of them."""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
STAGES = ["callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_text_of_a_stage_passes_its_spec(koine_session, path, stage):
    text = koine_session("compile", path, "--to", stage).stdout
    koine_session("run", "-", "--device", "NULL", stdin=text, env={"KN_VERIFY": "1"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_stage_means_the_same(koine_session, path):
    """KN_VERIFY=3 evaluates after each stage and compares with the program as given."""
    koine_session("compile", path, "--to", "render", env={"KN_VERIFY": "3"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_a_tensor_program_is_no_callified_one(koine_session, path):
    """The tensor graph under the name of a later stage is refused, by the reader or by the spec."""
    lines = [re.sub(r"\s+in \[[^]]*\]$", "", re.sub(r"#.*", "", line)).rstrip() for line in path.read_text().splitlines()]
    lines = [line for line in lines if line]
    outs = re.findall(r'out "[^"]*" = (%\w+)', "\n".join(lines))
    ins = re.findall(r'(%\w+) = param "([^"]*)"', "\n".join(lines))
    body = [line for line in lines if not line.startswith(("koine", "out"))]
    text = "\n".join(["koine 1 rangeify", *body, *[f'in "{name}" = {node}' for node, name in ins],
                      "%root_ = sink " + " ".join(outs), *[f'out "{i}" = {o}' for i, o in enumerate(outs)], "root %root_", ""])
    r = koine_session("compile", "-", "--to", "optimize", stdin=text, env={"KN_VERIFY": "1"}, ok=False)
    assert r.returncode == 1 and re.search(r"KN(4050|3040)", r.stderr), r.stderr


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_what_a_stage_is_given_is_not_what_it_gives(koine_session, path, stage):
    """The text of the stage before, under this stage's name, is refused."""
    before = (["tensor"] + STAGES)[STAGES.index(stage)]
    text = koine_session("compile", path, "--to", before).stdout
    renamed = text.replace(f"koine 1 {before}\n", f"koine 1 {stage}\n", 1)
    assert renamed != text
    r = koine_session("run", "-", "--device", "NULL", stdin=renamed, env={"KN_VERIFY": "1"}, ok=False)
    assert r.returncode == 1 and re.search(r"KN(2\d\d\d|3040|4050): ", r.stderr), r.stderr or r.stdout


BROKEN = [
    # name, stage, what to change in softmax's text of that stage, what the message says
    ("a view in a kernel", "rangeify", (r"= exp (%\w+) .*", r"= reshape \1 ()"), "KN3040"),
    ("a load without index", "expand", (r"= load (%\w+) .*", r"= load to=GLOBAL \1"), "KN"),
    ("a store of another dtype", "rangeify", (r"= store (%\w+) (%\w+)", r"= store \1 1:i32"), "KN"),
    ("a kernel that is no list", "linearize", (r"^(%\w+) = linear .*(\n%\w+ = sink) %\w+", r"\1 = group\2 \1"), "KN"),
]


@pytest.mark.parametrize("name, stage, edit, what", BROKEN, ids=[b[0] for b in BROKEN])
def test_broken_programs_are_named(koine_session, name, stage, edit, what):
    text = koine_session("compile", ROOT / "examples/softmax.kn", "--to", stage).stdout
    broken = re.sub(*edit, text, count=1, flags=re.M)
    assert broken != text
    r = koine_session("compile", "-", "--to", "render", stdin=broken, env={"KN_VERIFY": "1"}, ok=False)
    assert r.returncode == 1 and what in r.stderr, r.stderr
