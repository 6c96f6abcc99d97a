"""What a listing says of its instructions is read from what was written: under valgrind nothing else is."""
import shutil
import subprocess

import pytest


def test_valgrind_finds_nothing_unwritten(koine, build, sanitized, levels):
    """An address without a base has no register to look up."""
    if sanitized or not shutil.which("valgrind"):
        pytest.skip("no valgrind, or a sanitizer")
    level = "avx2" if "avx2" in levels else levels[-1]
    for name in ("attention", "matmul"):
        r = subprocess.run(["valgrind", "-q", "--error-exitcode=9", build / "koine", "compile", f"examples/{name}.kn", "--target", "x86"],
                           capture_output=True, text=True, env={"KN_CPU": level, "KN_CACHE": "off", "KN_THREADS": "1", "PATH": "/usr/bin:/bin"})
        assert r.returncode == 0, r.stderr[:2000]
