"""Machine code: the processor gives the bits that the interpreter gives for the same list of instructions, at every level this
processor has; no page can be written and executed at once; no compiler is needed."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
FLAGS = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M).group(1).split())
NEEDS = {"sse2": {"sse2"}, "avx2": {"avx2", "fma", "f16c", "bmi2"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
COMPLETE = ["avx512"]  # levels at which every op has its instructions
LEVELS = [n for n in COMPLETE if NEEDS[n] <= FLAGS]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_the_processor_agrees_with_the_interpreter(koine, tmp_path, example, level):
    env = {"KN_CODE": "x86", "KN_CPU": level}
    listed = koine("compile", example, "--to", "plan", env=env).stdout
    want = koine("run", "-", "--device", "INTERP", stdin=listed).stdout
    assert koine("run", example, env=env).stdout == want


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_the_listing_is_what_an_assembler_reads(koine, tmp_path, example, level):
    """The listing, constants apart, is text that GNU as takes; of each kernel as many instructions come out as went in."""
    listing = koine("compile", example, "--target", "x86", env={"KN_CPU": level}).stdout
    kernels = re.split(r"^# \S+: \d+ bytes.*$", listing, flags=re.M)[1:]
    assert kernels
    for k, text in enumerate(kernels):
        bound = set(re.findall(r"^(\.L\d+):", text, re.M))
        pool = sorted(set(re.findall(r"\.L\d+", text)) - bound)
        source = ".intel_syntax noprefix\n" + text + "\n.data\n" + "".join(f"{label}: .quad 0\n" for label in pool)
        (tmp_path / f"{k}.s").write_text(source)
        subprocess.run(["as", "-o", f"{k}.o", f"{k}.s"], cwd=tmp_path, check=True)
        back = subprocess.run(["objdump", "-d", f"{k}.o"], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout
        assert len(re.findall(r"^ +[0-9a-f]+:\t.*\t", back, re.M)) == len(re.findall(r"^    \S", text, re.M))


def test_digits_train_with_nothing_on_the_path(koine):
    """No compiler can be found, and none is looked for."""
    r = koine("train", "digits", "--steps", "3", env={"KN_CODE": "x86", "PATH": "", "KN_CC": "", "CC": ""})
    assert "test accuracy" in r.stdout


PROBE = """
import re, sys
import numpy as np
sys.path.insert(0, sys.argv[2])
import koine
koine.load(sys.argv[1])
c = koine.Context("CPU")
x = c.array(np.arange(64, dtype=np.float32))
assert ((x + x).numpy() == 2 * np.arange(64)).all()
maps = open("/proc/self/maps").read().splitlines()
both = [m for m in maps if re.match(r"\\S+ .wx", m)]
own = [m for m in maps if re.match(r"\\S+ r-x. \\S+ 00:00 0 *$", m)]  # executable, of no file
print(len(both), len(own))
"""


def test_no_page_is_writable_and_executable(root, build, libkoine, tmp_path):
    env = dict(os.environ, KN_CODE="x86")
    r = subprocess.run([sys.executable, "-c", PROBE, str(libkoine), str(root / "python")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    assert r.returncode == 0, r.stderr
    both, executable = map(int, r.stdout.split())
    assert both == 0 and executable >= 1
