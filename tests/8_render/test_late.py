"""LATE: a row's result is stored past the caches while the next row is worked on; no bit of it changes, at any level, on any number of threads."""
import re

import pytest

LEVELS = ["avx512", "avx2", "sse2"]


def softmax(rows, n):
    return (f'koine 1 tensor\n%x = param "x" : f32 [{rows}, {n}]\n%m = reduce max %x axes=(1)\n%b = expand %m ({rows}, {n})\n%d = sub %x %b\n%e = exp %d\n'
            f'%s = reduce add %e axes=(1)\n%r = recip %s\n%t = expand %r ({rows}, {n})\n%y = mul %e %t\nout "y" = %y\n')


@pytest.mark.runs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("code", ["x86", "c"])
@pytest.mark.parametrize("rows, n", [(64, 256), (97, 128)])
def test_it_changes_nothing(koine, tmp_path, level, code, rows, n):
    p = tmp_path / "p.kn"
    p.write_text(softmax(rows, n))
    env = {"KN_CPU": level, "KN_CODE": code}
    runs = [koine("run", p, env={**env, "KN_STREAM": s, "KN_THREADS": t}).stdout for s in (0, 1) for t in (1, 2, 5)]
    assert len(set(runs)) == 1 and "y" in runs[0]


def test_stores_stand_beside_the_exponentials(koine, tmp_path):
    p = tmp_path / "p.kn"
    p.write_text(softmax(64, 256))
    env = {"KN_CPU": "avx512", "KN_STREAM": 1, "KN_THREADS": 1}
    assert "late" in koine("compile", p, "--to", "optimize", env=env).stdout
    loops = re.split(r"\n\s*jl ", koine("compile", p, "--target", "x86", env=env).stdout)
    assert [("vscalefps" in b) for b in loops if "vmovntps" in b] == [True, False]


@pytest.mark.parametrize("stage", ["optimize", "expand", "select", "linearize", "plan"])
def test_every_stage_means_the_same(koine, tmp_path, stage):
    def numbers(text):
        return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]

    p, q = tmp_path / "p.kn", tmp_path / "q.kn"
    p.write_text(softmax(40, 64))
    q.write_text(koine("compile", p, "--to", stage, env={"KN_STREAM": 1, "KN_THREADS": 2, "KN_VERIFY": 1}).stdout)
    got, want = (numbers(koine("run", f, "--device", "INTERP").stdout) for f in (q, p))
    assert "late" in q.read_text() and got == pytest.approx(want, rel=1e-5) and got
