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
LEVELS = [n for n in NEEDS if NEEDS[n] <= FLAGS]


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
        items = re.findall(r"^# %\d+ = ([\w.]+)(?:\(.*\))? : \w+", text, re.M)
        assert len(items) > 5 and len(items) == len(re.findall("^# %", text, re.M)), "what each instruction is for"


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


STAGED = """koine 1 linearize
%1 = stack 4:index                      : index [1]
%2 = param %1 slot=0                    : f32 [4]
%3 = const 0                            : index
%4 = const {last}                       : index
%5 = buffer 0 LOCAL size={size}         : f32 [{size}]
%6 = const {size}                       : index
%7 = param %1 slot=1                    : f32 [4]
%8 = range 0 LOOP 4:index               : index
%9 = add %8 %4                          : index
%10 = index %5 %9                       : f32
%11 = index %7 %8                       : f32
%12 = load %11                          : f32
%13 = store %10 %12
%14 = end %13 %8
%15 = after %5 %14                      : f32 [{size}]
%16 = range 1 LOOP 4:index              : index
%17 = add %16 %4                        : index
%18 = index %15 %17                     : f32
%19 = load %18                          : f32
%20 = index %2 %16                      : f32
%21 = store %20 %19
%22 = end %21 %16
%23 = linear 4:index %1..%22
%24 = sink %23 name="staged" optimized=1 native=sse2
%25 = buffer 1 GLOBAL size=4            : f32 [4]
%26 = buffer 0 GLOBAL size=4            : f32 [4]
%27 = call %24..%26
%28 = linear %27
in "x" = %26                            : f32 [4]
root %28
out "y" = %25                           : f32 [4]
"""


def staged(koine, tmp_path, size, ok=True):
    p = tmp_path / "staged.kn"
    p.write_text(STAGED.format(size=size, last=size - 4))
    return koine("run", p, ok=ok, env={"KN_CODE": "x86"}), koine("run", p, "--device", "INTERP").stdout


@pytest.mark.parametrize("size", [5, 1000, 2048, 3000, 100_000, 1_000_000])
def test_frames(koine, tmp_path, size):
    """From none to many pages: each is touched in turn."""
    got, want = staged(koine, tmp_path, size)
    assert got.stdout == want


def test_a_frame_too_large_is_refused(koine, tmp_path):
    r, _ = staged(koine, tmp_path, 2_000_000, ok=False)
    assert r.returncode == 1 and "KN4263" in r.stderr and "8000000 bytes" in r.stderr.replace(",", "")


# ---- texts from select on say what they were selected for ----

SOFTMAX = "softmax.kn"


def lowered(koine, root, stage, **env):
    return koine("compile", root / "examples" / SOFTMAX, "--to", stage, env=env).stdout


@pytest.mark.parametrize("stage", ["select", "linearize", "plan", "render"])
@pytest.mark.parametrize("code, other", [("x86", "c"), ("c", "x86")])
def test_a_text_is_run_as_what_it_was_selected_for(koine, root, stage, code, other):
    text = lowered(koine, root, stage, KN_CODE=code)
    want = koine("run", "-", stdin=text, env={"KN_CODE": code}).stdout
    assert koine("run", "-", stdin=text, env={"KN_CODE": other}).stdout == want


def test_a_text_of_a_lesser_level_runs_as_it_is(koine, root):
    text = lowered(koine, root, "plan", KN_CODE="x86", KN_CPU="sse2")
    assert "native=sse2" in text
    assert koine("run", "-", stdin=text).stdout == koine("run", "-", stdin=text, env={"KN_CPU": "sse2"}).stdout


def test_a_text_of_a_higher_level_is_refused(koine, root):
    text = lowered(koine, root, "render", KN_CODE="x86", KN_CPU="avx2")
    r = koine("run", "-", stdin=text, env={"KN_CPU": "sse2"}, ok=False)
    assert r.returncode == 1 and "KN4213" in r.stderr and "avx2" in r.stderr and "sse2" in r.stderr


def test_machine_code_in_a_text_is_made_again(koine, root):
    """Damaged, it would crash or compute something else."""
    text = lowered(koine, root, "render", KN_CODE="x86")
    damaged, n = re.subn(r'(?<=x")554889e5', "0f0b0f0b", text)  # ud2 in place of the first two
    assert n
    assert koine("run", "-", stdin=damaged).stdout == koine("run", "-", stdin=text).stdout


def test_no_such_level(koine, root):
    text = lowered(koine, root, "plan", KN_CODE="x86", KN_CPU="sse2").replace("native=sse2", "native=z80")
    r = koine("run", "-", stdin=text, ok=False)
    assert r.returncode == 1 and "KN2044" in r.stderr and "z80" in r.stderr and "avx512" in r.stderr


def test_a_listing_of_what_was_selected_for_c(koine, root):
    r = koine("compile", "-", "--target", "x86", stdin=lowered(koine, root, "plan", KN_CODE="c"), ok=False)
    assert r.returncode == 1 and "KN4212" in r.stderr and "selected for C" in r.stderr
