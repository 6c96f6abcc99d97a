"""docs/functions.md is what tools/functions.py makes of the headers and the examples; every function has both. KN_BLESS=1 writes it, and
the texts of the examples (test_functions.c runs them)."""
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests/docs/examples.def"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("functions", ROOT / "tools/functions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bless(program):
    """Each IS(..., "text") becomes what is shown now."""
    out = subprocess.run([str(program), "--shown"], capture_output=True, text=True, check=True).stdout
    shown = {(name, int(i)): text for name, i, text in (line.split("\t") for line in out.splitlines())}

    def example(m):
        count = iter(range(100))
        return re.sub(r', "(?:[^"\\]|\\.)*"\);(?=[^;]*$)', lambda _: f', "{shown[m[1], next(count)]}");', m[0], flags=re.M)
    EXAMPLES.write_text(re.sub(r"^EXAMPLE\((\w+), .*?\}\)$", example, EXAMPLES.read_text(), flags=re.M | re.S))


def test_every_function_has_an_example_and_a_comment(tool):
    names = [f.name for f in tool.listed()]
    there = tool.examples(EXAMPLES.read_text())
    assert [n for n in names if n not in there] == [] and [n for n in there if n not in names] == [], "tests/docs/examples.def"
    assert [f.name for f in tool.listed() if not tool.comment(f)] == [], "say in the header what it does"
    assert [n for n, lines in there.items() if not any("show(" in line for line in lines)] == [], "an example shows something"
    assert [n for n, lines in there.items() if not any(re.search(rf"\b{n.removesuffix('_at')}\(", line) for line in lines)] == [], "and calls it"


def test_the_page_is_true(tool, build, sanitized):
    if sanitized:
        pytest.skip("the same page, slowly")
    program = build / "tests/docs/test_functions"
    if os.environ.get("KN_BLESS"):
        bless(program)
    page = tool.page(program)
    if os.environ.get("KN_BLESS"):
        (ROOT / "docs/functions.md").write_text(page)
    assert page == (ROOT / "docs/functions.md").read_text(), "make docs"


def test_settings_are_named_as_they_are():
    """What documents and headers show of kn_set and kn_get."""
    names = {f"KN_{n}" for n in re.findall(r"^KI_ENV\((\w+)", (ROOT / "src/base/env.def").read_text(), re.M)}
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "include").rglob("*.h"), *(ROOT / "src").rglob("*.h")]
    shown = {(f.name, n) for f in files for n in re.findall(r'\bkn_[gs]et\(\w+, "(\w*)"', f.read_text())}
    assert shown and not [s for s in shown if s[1] not in names]
