"""The programs of python/README.md run as they stand there."""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy  # noqa: F401  (the package needs it)
import pytest
import sklearn  # noqa: F401  (scipy comes with it)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (ROOT / "python/README.md").read_text(), re.M | re.S)


def run(code, tmp_path):
    (tmp_path / "example.py").write_text(code)
    r = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("i", range(len(EXAMPLES)))
def test_it_runs(i, tmp_path):
    out = run(EXAMPLES[i], tmp_path)
    if i == 0:
        assert len(EXAMPLES[0].splitlines()) < 25
        assert float(re.search(r"accuracy (\S+)", out)[1]) > 0.75, out
    if i == 1:
        assert "[ 6. 12.]" in out and "traced 1 times" in out, out
    if i == 2:
        right = [float(r) for r in re.findall(r"(\S+) right", out)]
        assert len(right) == 4 and right[-1] > 0.8, out
        assert "captured 1 times, called 150 times" in out and "walk, captured 1 times, called 20 times" in out, out
    if i == 3:
        assert out.startswith("True "), out
