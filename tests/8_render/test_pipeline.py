"""PIPELINE: a row's maximum is found along with the sum of the row before; no bit of a result changes, at any level, on any number of threads."""
import re

import pytest

LEVELS = ["fp16", "avx512", "avx2", "sse2"]


def log_sum_exp(rows, n):
    return (f'koine 1 tensor\n%x = param "x" : f32 [{rows}, {n}]\n%m = reduce max %x axes=(1)\n%b = expand %m ({rows}, {n})\n%d = sub %x %b\n%e = exp %d\n'
            f'%s = reduce add %e axes=(1)\n%l = log %s\n%y = add %l %m\nout "y" = %y\n')


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("code", ["x86", "c"])
@pytest.mark.parametrize("rows, n", [(64, 256), (97, 131)])
def test_it_changes_nothing(koine, tmp_path, level, code, rows, n):
    p = tmp_path / "p.kn"
    p.write_text(log_sum_exp(rows, n))
    env = {"KN_CPU": level, "KN_CODE": code}
    runs = [koine("run", p, env={**env, "KN_STREAM": s, "KN_THREADS": t}).stdout for s in (0, 1) for t in (1, 2, 5)]
    assert len(set(runs)) == 1 and "y" in runs[0]


@pytest.mark.parametrize("n", [256, 131])
def test_the_maximum_stands_beside_the_exponentials(koine, tmp_path, n):
    """And asks for its row alone, once a line; this row has come before."""
    p = tmp_path / "p.kn"
    p.write_text(log_sum_exp(1 << 14, n))
    env = {"KN_CPU": "fp16", "KN_CODE": "x86", "KN_THREADS": 1}
    assert "pipeline" in koine("compile", p, "--to", "optimize", env=env).stdout
    loops = [b for b in re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout) if "vscalefps" in b]
    assert loops and all("vrangeps" in b for b in loops)
    assert loops[0].count("prefetcht1") == 2


def test_threads_share_the_rows(koine, tmp_path):
    """One thread has no PIPELINE where orders of sums are compared (3_optimize/orders.c): the sum is added up alike all the same."""
    p = tmp_path / "p.kn"
    p.write_text(log_sum_exp(1 << 10, 50257))
    text = koine("compile", p, "--to", "optimize", env={"KN_CPU": "fp16", "KN_CODE": "x86", "KN_THREADS": 2}).stdout
    assert "pipeline" in text and re.search(r"split \d+ 2 t top", text)


@pytest.mark.parametrize("stage", ["optimize", "expand", "select", "linearize", "plan"])
def test_every_stage_means_the_same(koine, tmp_path, stage):
    def numbers(text):
        return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]

    p, q = tmp_path / "p.kn", tmp_path / "q.kn"
    p.write_text(log_sum_exp(40, 150))
    q.write_text(koine("compile", p, "--to", stage, env={"KN_CODE": "x86", "KN_STREAM": 1, "KN_THREADS": 2, "KN_VERIFY": 1}).stdout)
    got, want = (numbers(koine("run", f, "--device", "INTERP").stdout) for f in (q, p))
    assert "pipeline" in q.read_text() and got == pytest.approx(want, rel=1e-5) and got
