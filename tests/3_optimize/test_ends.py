"""What follows a tile's sums, where that is much, is a loop of its own along rows that are kept (ends.c)."""
import re

import numpy as np
import pytest

ADAM = """%ga = mul %g 0.1
%m1 = mul %m 0.9
%y1 = add %m1 %ga
%gg = mul %g %g
%gb = mul %gg 0.001
%v1 = mul %v 0.999
%y2 = add %v1 %gb
%r = sqrt %y2
%d = add %r 1e-3
%q = div %y1 %d
%l = mul %q 0.01
%y0 = sub %p %l
"""
LIGHT = """%y0 = sub %p %g
%y1 = add %m %g
%y2 = add %v %g
"""


def step(koine, tmp_path, k, n, m, after=ADAM, level="fp16", threads=1):
    """The gradient of weights [n, m], x [k, n] turned by y [k, m], and an optimizer's step: OptOps, and how many instructions."""
    of = "\n".join(f"""%{s}0 = param "{s}" : f32 [{n * m}]
%{s} = reshape %{s}0 ({n}, {m})""" for s in "pmv")
    (tmp_path / "p.kn").write_text(f"""koine 1 tensor
%x = param "x" : f32 [{k * n}]
%y = param "y" : f32 [{k * m}]
{of}
%xr = reshape %x ({k}, {n}, 1)
%xe = expand %xr ({k}, {n}, {m})
%yr = reshape %y ({k}, 1, {m})
%ye = expand %yr ({k}, {n}, {m})
%t = mul %xe %ye
%s = reduce add %t axes=(0)
%g = reshape %s ({n}, {m})
{after}out "y0" = %y0
out "y1" = %y1
out "y2" = %y2
""")
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": threads}
    opts = re.search(r"opts=\[(.*)\]", koine("compile", tmp_path / "p.kn", "--target", "x86", "--to", "optimize", env=env).stdout)[1]
    return opts, int(re.search(r"(\d+) instructions in", koine("compile", tmp_path / "p.kn", "--target", "x86", env=env).stdout)[1])


@pytest.mark.parametrize("k, n, m, part", [(128, 768, 768, 0), (128, 768, 3072, 768), (64, 96, 512, 0), (256, 768, 1024, 512)])
def test_steps_of_weights_go_along_rows(koine, tmp_path, k, n, m, part):
    """Rows in parts, which go around all others, where one is more than a first-level cache has room for, or what the product streams more than a
    second-level one."""
    opts, code = step(koine, tmp_path, k, n, m)
    assert re.search(r" [68] L #\d+, split \d+ (\d+) R #\d+, rows \d+ \d+ #1", opts)[1] == str(k), opts
    assert re.search(r"split 1 (\d+) L", opts)[1] == str(part) if part else not re.search(r"split 1 \d+ L", opts), opts
    assert code < 350 and step(koine, tmp_path, k, n, m, LIGHT)[1] < 350


@pytest.mark.parametrize("k, n, m, after", [(128, 768, 768, LIGHT), (16, 768, 768, ADAM), (1576, 768, 768, ADAM), (128, 768, 128, ADAM)])
def test_what_goes_along_no_rows(koine, tmp_path, k, n, m, after):
    """Little that follows; few terms, and many, beside which too little of a row would be kept at once; short rows."""
    assert "rows " not in step(koine, tmp_path, k, n, m, after)[0]


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx2", "fp16"])
@pytest.mark.parametrize("k, n, m", [(128, 96, 768), (128, 97, 3072), (64, 100, 256), (256, 24, 1536), (33, 48, 272)])
def test_steps_along_rows_on_the_processor(koine, tmp_path, level, k, n, m):
    """Against numpy, and the same bits for any number of threads."""
    step(koine, tmp_path, k, n, m)
    rng = np.random.default_rng(n + m)
    a = {s: rng.standard_normal(size).astype(np.float32) for s, size in (("x", k * n), ("y", k * m), ("p", n * m), ("m", n * m), ("v", n * m))}
    a["v"] = a["v"] ** 2
    given = []
    for name, v in a.items():
        np.save(tmp_path / f"{name}.npy", v)
        given += ["--in", f"{name}={tmp_path / name}.npy"]
    got = []
    for threads in (1, 2, 3):
        env = {"KN_CPU": level, "KN_THREADS": threads, "KN_VERIFY": "1"}
        koine("run", tmp_path / "p.kn", *given, *(s for i in range(3) for s in ("--out", f"y{i}={tmp_path / f'y{i}.npy'}")), env=env)
        got.append([np.load(tmp_path / f"y{i}.npy").reshape(n, m) for i in range(3)])
    x, y, p, first, second = (v.astype(np.float64) for v in a.values())
    g = x.reshape(k, n).T @ y.reshape(k, m)
    first = first.reshape(n, m) * 0.9 + g * 0.1
    second = second.reshape(n, m) * 0.999 + g * g * 0.001
    want = p.reshape(n, m) - 0.01 * first / (np.sqrt(second) + 1e-3), first, second
    for i in range(3):
        assert np.abs(got[0][i] - want[i]).max() < 1e-4
        assert all(np.array_equal(got[0][i], z[i]) for z in got[1:])
