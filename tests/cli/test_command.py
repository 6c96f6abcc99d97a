"""The command itself: verbs, options, help, exit codes. What each verb does is tested where it belongs."""
import json
import os
import re

import pytest

VERBS = ["run", "compile", "train", "bench", "rules", "ops", "devices", "info", "help"]


def test_without_a_command_help_goes_to_stderr(koine):
    r = koine(ok=False)
    assert r.returncode == 2 and "commands:" in r.stderr and not r.stdout


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_lists_every_verb(koine, flag):
    out = koine(flag).stdout
    for v in VERBS:
        assert re.search(rf"^  {v} ", out, re.M), v


def test_version(koine):
    assert re.fullmatch(r"koine \d+\.\d+\.\d+\n", koine("--version").stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_a_place_in_the_man_page(koine, verb):
    out = koine(verb, "--help").stdout
    assert out.startswith(f"koine {verb}") and "--help" in out
    man = koine("help", "--man").stdout
    assert f".SS koine {verb}\n" in man
    for option in re.findall(r"^  --([a-z-]+)", out, re.M):
        if option != "help":
            assert f".B \\-\\-{option}".replace("-", "-") in man or f"\\-\\-{option}" in man.replace("\\-", "-").replace("--", "\\-\\-")


@pytest.mark.parametrize("args, what", [
    (["opps"], "did you mean ops?"),
    (["xyzzy"], "unknown command xyzzy"),
    (["ops", "--jsn"], "unknown option --jsn; did you mean --json?"),
    (["ops", "--json=1"], "--json takes no value"),
    (["ops", "-j"], "options begin with --"),
    (["run"], "something is missing"),
    (["run", "a.kn", "b.kn"], "too many words"),
    (["run", "a.kn", "--seed"], "--seed needs N"),
    (["run", "a.kn", "--seed", "many"], "expected a whole number"),
    (["compile", "a.kn", "--to", "rangefy"], "did you mean rangeify?"),
    (["compile", "a.kn", "--target", "fortran"], "no target fortran"),
    (["train", "letters"], "no job letters"),
    (["train", "digits", "--steps", "0"], "from 1 to"),
    (["train", "digits", "--data", "x.npy"], "--data needs X.npy Y.npy"),
    (["train", "digits", "--data", "x", "y", "--mnist", "d"], "not both"),
    (["help", "runn"], "did you mean run?"),
])
def test_misuse_exits_with_2_and_says_what(koine, args, what):
    r = koine(*args, ok=False)
    assert r.returncode == 2 and what in r.stderr and not r.stdout


@pytest.mark.parametrize("args, what", [
    (["run", "none.kn"], "cannot read none.kn"),
    (["compile", "none.kn"], "cannot read none.kn"),
    (["ops", "frobnicate"], "no op or class frobnicate"),
    (["ops", "--x86", "frobnicate"], "no instruction frobnicate"),
    (["train", "digits", "--mnist", "."], "no train-images-idx3-ubyte"),
    (["train", "digits", "--data", "x.npy", "y.npy"], "cannot read x.npy"),
])
def test_failure_exits_with_1_and_says_what(koine, args, what):
    r = koine(*args, ok=False)
    assert r.returncode == 1 and what in r.stderr


def test_ops_prints_the_instructions(koine):
    rows = koine.json("ops", "--x86")
    assert len(rows) > 800
    row = next(r for r in rows if r["name"] == "vfmadd231ps")
    assert row["operands"] == "Vx, Hx, Wx" and row["meaning"] == "mulacc(a, b, d)" and "EVEX:AVX512F" in row["encodings"]
    assert koine("ops", "--x86", "addps").stdout.startswith("vaddps")


def test_ops_prints_the_table(koine, root):
    rows = koine.json("ops")
    text = (root / "src/ir/ops.def").read_text()
    assert [r["name"] for r in rows] == re.findall(r'^KI_OP\(\w+,\s*"(\w+)"', text, re.M)
    assert koine("ops", "mulacc").stdout.count("\n") == 2


def test_ops_page_is_current(root, build):
    import subprocess
    b = os.path.relpath(build, root)  # by another name all would be built anew
    made = subprocess.run(["make", "-s", "-C", str(root), f"B={b}", f"{b}/opdoc"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert subprocess.run([build / "opdoc"], capture_output=True, text=True).stdout == (root / "docs/ops.md").read_text(), \
        "make docs"


def test_man_page_is_current(koine, root):
    assert koine("help", "--man").stdout == (root / "docs/koine.1").read_text(), "make docs"


def test_devices(koine):
    rows = {r["device"]: r for r in koine.json("devices")}
    assert {"CPU", "INTERP", "NULL"} <= set(rows)
    assert rows["CPU"]["default"] and not rows["NULL"]["runs"]
    starred = [line for line in koine("devices", env={"KN_DEVICE": "INTERP"}).stdout.splitlines() if line.startswith("*")]
    assert len(starred) == 1 and "INTERP" in starred[0]


def test_info_lists_every_setting_and_dtype(koine, root):
    rows = koine.json("info", env={"KN_SEED": "7"})
    settings = {r["setting"]: r for r in rows if "setting" in r}
    assert set(settings) == {"KN_" + n for n in re.findall(r"^KI_ENV\((\w+),", (root / "src/base/env.def").read_text(), re.M)}
    assert settings["KN_SEED"]["value"] == "7" and settings["KN_SEED"]["set"]
    assert {r["dtype"] for r in rows if "dtype" in r} >= {"bool", "u8", "i64", "bf16", "f8e4m3", "f32", "f64"}
    text = koine("info").stdout
    assert all(name in text for name in settings)


@pytest.mark.parametrize("name, value", [("KN_THREADS", "many"), ("KN_CPU", "bogus"), ("KN_CODE", "llvm"), ("KN_DEVICE", "bogus")])
def test_info_says_which_setting_is_none(koine, name, value):
    """Behind the table, which says what it could be."""
    r = koine("info", env={name: value}, ok=False)
    assert r.returncode == 1 and name in r.stdout and value in r.stderr and value not in r.stdout.split("\n\n")[0], (r.stdout, r.stderr)


def test_a_full_disk_is_a_failure(koine):
    import os
    import subprocess
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        r = subprocess.run([koine.path, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 1 and "cannot write the output" in r.stderr


def test_json_is_json(koine):
    for args in (["ops"], ["devices"], ["info"], ["rules"]):
        for line in koine(*args, "--json").stdout.splitlines():
            assert isinstance(json.loads(line), dict)


def test_a_proof_has_a_verdict_for_each_rule(koine):
    rows = koine.json("rules", "bool", "--prove")
    listed = [r["rule"] for r in koine.json("rules", "bool")]
    assert [r["rule"] for r in rows] == listed
    assert all(r["verdict"] in ("smt", "exhaustive", "execution", "unproved", "refuted") for r in rows)
    assert all({"arith", "do", "reason"} <= set(r) for r in rows)


def test_a_rule_is_explained_with_its_verdict(koine):
    out = koine("rules", "--explain", "add_zero").stdout
    assert "src/rules/" in out and "x:int + 0" in out and "exhaustive" in out
    assert "did you mean add_zero?" in koine("rules", "--explain", "add_zer", ok=False).stderr


def test_rules_count_what_is_not_a_rule(koine):
    out = koine("rules").stdout
    assert re.search(r"^\d+ rules, \d+ of them do \([\d.]+ %\); \d+ C functions of the stages build nodes$", out, re.M)
