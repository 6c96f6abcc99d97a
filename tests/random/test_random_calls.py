"""Random programs of public calls (calls.h) agree at every stage and on the processor. CONTRIBUTING.md says how to run many of them."""
import subprocess

import pytest


@pytest.mark.parametrize("seed", [1, 251])
def test_calls_agree(build, koine, seed):
    r = subprocess.run([build / "tests/random/test_random_programs", "--seed", str(seed), "--calls", "--programs", "250", "--c-every", "0"], env=koine.env(), capture_output=True, text=True)
    assert r.returncode == 0, r.stdout[-6000:]
