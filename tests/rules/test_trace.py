"""KN_TRACE and KN_VERIFY=2 through the command, and which rules the example programs fire."""
import re

import pytest

LINE = re.compile(r"(tensor|callify|rangeify|optimize|expand|select|linearize|plan|render) (\w+)\.(\w+) (\S+\.kr):(\d+): (.+) => (.+)")


@pytest.fixture(scope="module")
def programs(root):
    return sorted((root / "examples").glob("*.kn"))


@pytest.fixture(scope="module")
def lines(koine_session, programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "trace.txt"
    for p in programs:
        koine_session("compile", p, "--to", "render", env={"KN_TRACE": path})
    return path.read_text().splitlines()


def test_each_line_is_a_rule_its_place_before_and_after(lines, koine_session, root):
    rules = {(r["set"], r["rule"]): r for r in koine_session.json("rules") if "rule" in r}
    assert len(lines) > 500
    for line in lines:
        m = LINE.fullmatch(line)
        assert m, line
        rule = rules[m[2], m[3]]
        assert (rule["file"], rule["line"]) == (m[4], int(m[5])) and m[6] != m[7]


def test_the_examples_fire_a_good_part_of_the_rules(lines):
    fired = {LINE.fullmatch(line).group(2, 3) for line in lines}
    stages = {line.split()[0] for line in lines}
    assert {"rangeify", "select"} <= stages
    assert len(fired) > 30, sorted(fired)


def test_a_trace_that_cannot_be_written_is_told_once(koine_session, programs):
    r = koine_session("run", programs[0], env={"KN_TRACE": "/dev/full"})
    assert r.stdout and r.stderr.count("KN_TRACE=/dev/full: No space left on device; the trace is not whole") == 1, r.stderr


def test_nothing_changes_where_somebody_watches(koine_session, programs, tmp_path):
    for p in programs[:4]:
        plain = koine_session("compile", p, "--to", "render").stdout
        for env in ({"KN_TRACE": tmp_path / "t"}, {"KN_VERIFY": "2"}):
            assert koine_session("compile", p, "--to", "render", env=env).stdout == plain


def test_what_each_rewrite_makes_fits_a_spec(koine_session, programs, root):
    for p in programs + sorted((root / "tests/golden/regress").glob("*.kn")):
        koine_session("compile", p, "--to", "render", env={"KN_VERIFY": "2"})


def test_a_trace_that_cannot_be_written(koine_session, programs):
    r = koine_session("compile", programs[0], "--to", "expand", env={"KN_TRACE": "/nowhere/at/all"}, ok=False)
    assert r.returncode == 1 and "KN6002" in r.stderr and "/nowhere/at/all" in r.stderr
