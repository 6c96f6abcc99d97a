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
    assert code < 350 and step(koine, tmp_path, k, n, m, LIGHT)[1] < 450


@pytest.mark.parametrize("k, n, m", [(1576, 384, 1536), (768, 128, 3072)])
def test_rows_of_panels(koine, tmp_path, k, n, m):
    """Many terms: what a tile's columns read is packed, once, and a tile's rows are kept."""
    opts, code = step(koine, tmp_path, k, n, m)
    assert re.search(r"split 1 (\d+) L #\d+, swap [01] [01] #-1, stage 1 \d+, split 0 [68] L #\d+, split 2 \d+ R #\d+, rows 2 ", opts), opts
    assert code < 350


@pytest.mark.parametrize("k, n, m, after", [(128, 768, 768, LIGHT), (16, 768, 768, ADAM), (128, 768, 128, ADAM)])
def test_what_goes_along_no_rows(koine, tmp_path, k, n, m, after):
    """Little that follows; few terms; short rows."""
    assert "rows " not in step(koine, tmp_path, k, n, m, after)[0]


@pytest.mark.runs
@pytest.mark.parametrize("level", ["avx2", "fp16"])
@pytest.mark.parametrize("k, n, m", [(128, 96, 768), (128, 97, 3072), (64, 100, 256), (256, 24, 1536), (33, 48, 272), (768, 128, 1024)])
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


TANH = """%t = tanh %s
%u = mul %t %t
%h = mul %u %s
%y = add %h %t"""


def turned(koine, tmp_path, rows, k, columns, outputs=1, threads=1, level="fp16"):
    """x [rows, k] times w [columns, k], and a function of it, of which the sum itself may be a result, too."""
    (tmp_path / "p.kn").write_text(f"""koine 1 tensor
%x = param "x" : f32 [{rows * k}]
%w = param "w" : f32 [{columns * k}]
%xr = reshape %x ({rows}, 1, {k})
%xe = expand %xr ({rows}, {columns}, {k})
%wr = reshape %w (1, {columns}, {k})
%we = expand %wr ({rows}, {columns}, {k})
%p = mul %xe %we
%s = reduce add %p axes=(2)
{TANH}
out "y" = %y
""" + ('out "s" = %s\n' if outputs > 1 else ""))
    env = {"KN_CODE": "x86", "KN_CPU": level, "KN_THREADS": threads}
    opts = re.search(r"opts=\[(.*)\]", koine("compile", tmp_path / "p.kn", "--target", "x86", "--to", "optimize", env=env).stdout)[1]
    return opts, int(re.search(r"(\d+) instructions in", koine("compile", tmp_path / "p.kn", "--target", "x86", env=env).stdout)[1])


@pytest.mark.parametrize("level, lanes", [("fp16", 16), ("avx2", 8)])
@pytest.mark.parametrize("rows, k, columns, outputs", [(128, 768, 3072, 1), (128, 768, 3072, 2), (128, 512, 8192, 1), (128, 2048, 1536, 1)])
def test_strips_are_turned_before_what_follows(koine, tmp_path, rows, k, columns, outputs, level, lanes):
    """A block of rows, by a copy, also of results that several parts of a sum were added to; what many strips leave over is one itself."""
    opts, code = turned(koine, tmp_path, rows, k, columns, outputs, level=level)
    blocks = re.findall(rf"split \d+ {lanes} u #\d+, split \d+ {lanes} L #\d+, stage \d+ -\d+ ", opts)
    assert len(blocks) == (2 if columns % 384 else 1), opts
    assert code < (800 if k > 1024 or lanes == 8 else 700) * len(blocks), "several parts have a nest for what is kept"


@pytest.mark.runs("fp16")
@pytest.mark.parametrize("rows, k, columns, outputs", [(128, 256, 1536, 2), (64, 512, 3200, 1), (80, 256, 768, 2)])
def test_turned_strips_on_the_processor(koine, tmp_path, rows, k, columns, outputs):
    """Against numpy, and the same bits for any number of threads."""
    turned(koine, tmp_path, rows, k, columns, outputs)
    rng = np.random.default_rng(rows + k)
    a = {"x": rng.standard_normal(rows * k), "w": rng.standard_normal(k * columns) / k**0.5}
    for name, v in a.items():
        np.save(tmp_path / f"{name}.npy", v.astype(np.float32))
    given = [s for name in a for s in ("--in", f"{name}={tmp_path / name}.npy")]
    s = a["x"].reshape(rows, k) @ a["w"].reshape(columns, k).T
    t, got = np.tanh(s), []
    for threads in (1, 2, 3):
        koine("run", tmp_path / "p.kn", *given, "--out", f"y={tmp_path / 'y.npy'}", env={"KN_CPU": "fp16", "KN_THREADS": threads, "KN_VERIFY": "1"})
        got.append(np.load(tmp_path / "y.npy").reshape(rows, columns))
    assert np.abs(got[0] - (t * t * s + t)).max() < 1e-4
    assert all(np.array_equal(got[0], y) for y in got[1:])
