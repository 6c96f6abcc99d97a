"""The proofs of all rules, as the command gives them, and what may be left unproved."""
import shutil

import pytest


@pytest.fixture(scope="module")
def proofs(koine_session, sanitized, once):
    few = ["--budget", "60000"] if sanitized else []
    return once("proofs", lambda: koine_session.json("rules", "--prove", *few))


def test_no_rule_is_refuted(proofs):
    assert [r for r in proofs if r["verdict"] == "refuted"] == []


def test_what_is_unproved_is_listed(proofs, root):
    text = (root / "tests/rules/unproved.txt").read_text()
    listed = {line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")}
    unproved = {f'{r["set"]}.{r["rule"]}' for r in proofs if r["verdict"] == "unproved"}
    assert unproved == listed, "the list holds exactly what is unproved, and may only shrink"


def test_arithmetic_is_proved_by_values_or_a_solver(proofs, sanitized):
    if sanitized:
        pytest.skip("with fewer values under the sanitizers")
    if not shutil.which("z3"):
        pytest.skip("rules on f32 and f64 need a solver")
    arith = [r for r in proofs if r["arith"]]
    solid = [r for r in arith if r["verdict"] in ("smt", "exhaustive")]
    assert len(arith) > 500 and len(solid) >= 0.95 * len(arith)


def test_few_rules_escape_to_c(proofs):
    assert sum(r["do"] for r in proofs) < 0.15 * len(proofs)


def test_a_verdict_rests_on_instances(proofs):
    assert all(r["instances"] > 0 for r in proofs if r["verdict"] in ("smt", "exhaustive", "execution"))


