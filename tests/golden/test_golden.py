"""Golden files. tests/golden/*.kn: comments at the top say what is done and what must come of it.

    # stages: rangeify            lower to this stage; `# stages: tensor` reads and prints
    # expect:                     then, commented, the text that must be printed
    # error: KN2031 5:9           instead: the number and line:column of the failure (0:0, or nothing: no place)

KN_BLESS=1 rewrites what is expected. tests/golden/regress/*.kn are programs that once went wrong: every stage must mean
what the program means (KN_VERIFY=3), and CPU must agree with INTERP."""
import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FILES = sorted(HERE.glob("*.kn"))
REGRESS = sorted((HERE / "regress").glob("*.kn"))
BLESS = os.environ.get("KN_BLESS")


def split(text):
    """Header (directives), expectation, program."""
    head, expect, body = {}, [], []
    lines = text.splitlines()
    at = 0
    while at < len(lines) and lines[at].startswith("#"):
        m = re.match(r"# (stages|error|idea): ?(.*)", lines[at])
        if m:
            head[m[1]] = m[2].strip()
        elif lines[at].startswith("# expect:"):
            at += 1
            while at < len(lines) and lines[at].startswith("#|"):
                expect.append(lines[at][2:].removeprefix(" "))
                at += 1
            continue
        at += 1
    body = lines[at:]
    return head, expect, "\n".join(body) + "\n"


def join(head, expect, body):
    out = [f"# {k}: {v}" for k, v in head.items()]
    if "error" not in head:
        out += ["# expect:"] + [f"#| {line}" if line else "#|" for line in expect]
    return "\n".join(out) + "\n" + body


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden(koine_session, path):
    head, expect, body = split(path.read_text())
    assert "idea" in head and "stages" in head, "say the idea, and the stages"
    env = {"KN_VERIFY": "1", "KN_CODE": "x86", "KN_CPU": "sse2", "KN_THREADS": "1", "KN_STREAM": "4194304"}  # the same on every machine
    r = koine_session("compile", "-", "--to", head["stages"], stdin=body, env=env, ok=False)
    if r.returncode:
        m = re.search(r"(?:standard input:(\d+):(\d+): )?(KN\d+)", r.stderr)
        got = {"error": f"{m[3]} {m[1] or 0}:{m[2] or 0}"}
        assert "hint:" in r.stderr, r.stderr
        new = join({**{k: v for k, v in head.items() if k != "error"}, **got}, [], body)
    else:
        head.pop("error", None) if BLESS else None
        new = join(head, r.stdout.splitlines(), body)
    if BLESS:
        path.write_text(new)
    elif r.returncode:
        assert head.get("error") == got["error"], r.stderr
    else:
        assert "error" not in head, "it was to fail"
        assert r.stdout.splitlines() == expect, "KN_BLESS=1 rewrites the file if this is meant"


@pytest.mark.parametrize("path", REGRESS, ids=lambda p: p.stem)
def test_what_went_wrong_once(koine_session, path):
    koine_session("compile", path, "--to", "render", env={"KN_VERIFY": "3"})


def test_what_went_wrong_once_in_text_and_on_cpu(build):
    """The same programs through the text of every stage, and on the CPU, by the random-program checker."""
    import subprocess
    checker = build / "tests/random/test_random_programs"
    if not checker.exists():
        pytest.skip("make tests")
    r = subprocess.run([checker, *map(str, REGRESS)], capture_output=True, text=True, cwd=build.parent)
    assert r.returncode == 0, r.stdout
