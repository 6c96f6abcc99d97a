"""Every ```console block in docs/ shows what its commands print. KN_BLESS=1 rewrites the blocks."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [p for p in sorted((ROOT / "docs").glob("*.md")) if "```console" in p.read_text()]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def shown(block, build):
    """The block as it should be: each `$ command` and what it prints."""
    env = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}", "KN_CODE": "x86", "KN_CPU": "avx2", "KN_THREADS": "1"}
    for name in ("LD_PRELOAD", "ASAN_OPTIONS"):
        env.pop(name, None)
    out = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            r = subprocess.run(["bash", "-o", "pipefail", "-c", line[2:]], cwd=ROOT, env=env, capture_output=True, text=True)
            assert r.returncode == 0, f"{line}\n{r.stderr}"
            out += line + "\n" + r.stdout
    return out


@pytest.mark.runs("avx2")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_blocks_are_true(page, build):
    text = page.read_text()
    new = BLOCK.sub(lambda m: "```console\n" + shown(m.group(1), build) + "```", text)
    if os.environ.get("KN_BLESS"):
        page.write_text(new)
    else:
        assert new == text, "KN_BLESS=1 make test T=tests/docs"
