"""The C text of every example, and of every program that once went wrong, gives a compiler nothing to warn of: shifts wider than their
type, overflow in a constant."""
import subprocess


def test_no_text_is_warned_of(koine_session, root, tmp_path):
    files = sorted([*(root / "examples").glob("*.kn"), *(root / "tests/golden/regress").glob("*.kn")])
    assert len(files) > 40
    for path in files:
        text = koine_session("compile", str(path), "--target", "c").stdout
        source = tmp_path / "text.c"
        source.write_text(text)
        r = subprocess.run(["cc", "-std=gnu17", "-fsyntax-only", "-Wshift-count-overflow", "-Wshift-count-negative", "-Woverflow", "-Wno-psabi",
                            "-Werror", source], capture_output=True, text=True)
        assert r.returncode == 0, f"{path.name}: {r.stderr}"
