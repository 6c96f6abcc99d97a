"""Every message of the catalogue has a remedy, and a test that raises it by its number or its name."""
import re

# What no known input brings about: a carrier of other messages, a limit of rangeify, and defects of koine itself.
UNRAISED = {"TENSOR_ERROR", "ASSIGN_CYCLE", "INTERNAL", "STAGE_VALUES"}


def rows(root):
    return re.findall(r'^KI_ERROR\((\d+), (\w+), \w+, "((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\)', (root / "src/base/errors.def").read_text(), re.M)


def test_numbers_are_unique_and_remedies_given(root):
    table = rows(root)
    assert len(table) == len(re.findall(r"^KI_ERROR\(", (root / "src/base/errors.def").read_text(), re.M))
    assert len({n for n, *_ in table}) == len(table)
    assert [name for _, name, _, hint in table if not hint] == ["TEXT_NODE"]  # it carries another's hint


def test_every_message_is_raised_by_a_test(root):
    files = [p for p in (root / "tests").rglob("*") if p.suffix in (".c", ".h", ".py", ".kn") and p.name != "test_catalogue.py"]
    words = {word for p in files for word in re.findall(r"\w+", p.read_text())}
    missing = [f"KN{n} {name}" for n, name, *_ in rows(root) if not {n, f"KN{n}", name, f"KI_E_{name}"} & words]
    assert [m for m in missing if m.split()[1] not in UNRAISED] == []
