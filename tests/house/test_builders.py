"""C functions of the stages that build nodes: each is listed with what keeps it from being a rule."""


def test_each_is_listed_with_its_reason(koine_session, root):
    lines = (root / "tests/house/builders.txt").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    assert all(len(r) == 3 and len(r[2]) > 3 for r in rows), "file, functions and reason, parted by tabs"
    listed = [(f"src/stages/{file}", name) for file, names, _ in rows for name in names.split()]
    assert len(set(listed)) == len(listed)
    built = {(r["file"], r["builder"]) for r in koine_session.json("rules") if "builder" in r}
    assert built - set(listed) == set(), "can a rule say it? if not, list it with the reason"
    assert set(listed) - built == set(), "listed, and builds nothing any more"


def test_the_count_only_shrinks(koine_session):
    built = [r for r in koine_session.json("rules") if "builder" in r]
    assert len(built) <= 200, "what one node becomes is a rule"
