"""make tidy finds nothing (format apart: that depends on which clang-format is installed)."""
import subprocess
import sys


def test_house_rules(root):
    r = subprocess.run([sys.executable, root / "tools/tidy.py", "--no-format"], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout
