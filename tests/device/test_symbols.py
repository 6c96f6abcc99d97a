"""Machine code has names: gdb stops in a kernel by its name, perf finds it in its map."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def kernel_of(koine, example):
    return re.search(r"^# (\S+): \d+ bytes", koine("compile", example, "--target", "x86").stdout, re.M).group(1)


@pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb: apt-get install gdb")
def test_gdb_knows_kernels(koine, root, tmp_path):
    example = root / "examples/matmul.kn"
    name = kernel_of(koine, example)
    script = tmp_path / "gdb"
    script.write_text(f"set breakpoint pending on\nset pagination off\nbreak {name}\nrun\ninfo symbol $pc\nbacktrace 2\n")
    r = subprocess.run(["gdb", "-nx", "-batch", "-x", script, "--args", str(koine.path), "run", str(example)], text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, env=koine.env(KN_CODE="x86", KN_THREADS="1"))
    assert re.search(rf"^{name} \+ \d+ in section \.text of <in-memory@", r.stdout, re.M), r.stdout
    assert re.search(rf"^#0 .* in {name} ", r.stdout, re.M) and re.search(r"^#1 .* in run_all", r.stdout, re.M), r.stdout


def perf_map(koine, root, **env):
    p = subprocess.Popen([koine.path, "run", root / "examples/softmax.kn"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         cwd=koine.cwd, env=koine.env(KN_CODE="x86", **env))
    assert p.wait(300) == 0
    path = Path(f"/tmp/perf-{p.pid}.map")
    if not path.exists():
        return None
    text = path.read_text()
    path.unlink()
    return text


def test_perf_finds_kernels_in_its_map(koine, root):
    lines = perf_map(koine, root, KN_PERF="1").splitlines()
    name = kernel_of(koine, root / "examples/softmax.kn")
    found = [re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) (\S+)", line) for line in lines]
    assert all(found) and [m.group(3) for m in found] == [name]
    size = int(re.search(rf"^# {name}: (\d+) bytes", koine("compile", root / "examples/softmax.kn", "--target", "x86").stdout, re.M).group(1))
    assert int(found[0].group(2), 16) == size and int(found[0].group(1), 16) % 64 == 0


def test_no_map_unless_asked(koine, root):
    assert perf_map(koine, root) is None
