"""`make bench`: its table is consistent, a row runs without peers or network, and what is wrong, dead or missing is said."""
import importlib.util
import json
import math
import re
import shutil
import subprocess
import sys

import pytest

NAMED = """matmul_256 matmul_512 matmul_1024 matmul_2048 matmul_1023 matmul_64x4096x4096 matmul_1x4096x4096 matmul_bf16_1024 matmul_bf16_2048
matmul_bf16_4096 matmul_i8_1024 matmul_i8_2048 matmul_i8_4096 conv_3x3_b1 conv_3x3_b16 conv_7x7_b1 conv_7x7_b16 conv_depthwise_b1
conv_depthwise_b16 attention_128 attention_1024 attention_4096 add mul_add exp gelu tanh sum_rows sum_columns max_rows max_columns argmax_rows argmax_columns cumsum_rows cumsum_columns softmax
layer_norm transpose embedding cross_entropy tiny_add""".split()


def table(folder):
    spec = importlib.util.spec_from_file_location("bench_rows", folder / "rows.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(root):
    return table(root / "bench")


def test_every_row_is_there_once(rows):
    assert sorted(r.name for r in rows.ROWS) == sorted(NAMED)


@pytest.fixture(scope="module")
def binding(root, libkoine):
    pytest.importorskip("numpy")
    sys.path.insert(0, str(root / "python"))
    from koine import _thin as koine
    return koine


@pytest.mark.parametrize("name", NAMED)
def test_koine_builds_what_the_table_says(rows, binding, name):
    """Shapes and dtypes, from the graph alone: nothing runs."""
    row, k = rows.BY_NAME[name], binding.Context("NULL")
    inputs = [k.input(f"x{i}", dtype, shape) for i, (dtype, shape, *_) in enumerate(row.inputs)]
    for build in row.koine.values() if isinstance(row.koine, dict) else [row.koine]:
        t = build(k, *inputs)
        assert (t.check().dtype, t.shape) == row.out
    k.close()


def test_least_work(rows):
    """By hand: what must be read and written once, and the operations."""
    r = rows.BY_NAME
    assert r["add"].bytes == 3 * 64 * 2**20 and r["mul_add"].bytes == 4 * 64 * 2**20 and r["sum_rows"].bytes == 64 * 2**20 + 4 * 4096
    assert r["embedding"].bytes == 1024 * (768 * 2 * 4 + 4)
    assert r["matmul_bf16_1024"].bytes == 3 * 2 * 2**20 and r["matmul_i8_1024"].bytes == (1 + 1 + 4) * 2**20
    assert r["conv_3x3_b16"].flops == 16 * 64 * 56 * 56 * 64 * 9 * 2
    assert r["conv_7x7_b1"].flops == 64 * 112 * 112 * 3 * 49 * 2
    assert r["conv_depthwise_b1"].flops == 128 * 56 * 56 * 9 * 2


def test_references_that_are_nobody_elses(rows):
    np = pytest.importorskip("numpy")
    x = np.linspace(-6, 6, 4001, dtype=np.float32)
    want = [v * 0.5 * (1 + math.erf(v * 0.5**0.5)) for v in x.tolist()]
    assert np.max(np.abs(rows.np_gelu(np, x) - want)) < 2e-6
    rng = np.random.default_rng(0)
    for stride, padding, groups in ((1, 1, 1), (2, 3, 1), (1, 1, 4)):
        size = 2 * padding + 1
        a, w = rng.standard_normal((2, 4, 8, 8)), rng.standard_normal((4, 4 // groups, size, size))
        got = rows.np_conv(stride, padding, groups)(np, a, w)
        assert got.shape == (2, 4, 8 // stride, 8 // stride)
        for n, o, i, j in ((0, 0, 0, 0), (1, 3, 1, 2), (0, 2, 3, 3)):
            terms = (a[n, o // (4 // groups) * (4 // groups) + c, i * stride + u - padding, j * stride + v - padding] * w[o, c, u, v]
                     for c in range(4 // groups) for u in range(size) for v in range(size)
                     if 0 <= i * stride + u - padding < 8 and 0 <= j * stride + v - padding < 8)
            assert got[n, o, i, j] == pytest.approx(sum(terms))


@pytest.fixture
def bench(root, build, koine, sanitized):
    if sanitized:
        pytest.skip("what it times is the plain build")

    def run(*args, folder=root / "bench"):
        command = [sys.executable, folder / "bench.py", build, sys.executable, "--json", "--threads", "1", *args]
        p = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=koine.env(), timeout=120)
        return p.returncode, [json.loads(line) for line in p.stdout.splitlines()], p.stderr
    return run


def test_a_row_of_each_kind_without_network(bench):
    rc, records, said = bench("--rows", "tiny_add", "dispatch", "again", "kernels_add", "compile_add")
    assert rc == 0, said
    by = {r["row"]: r for r in records}
    assert set(by) >= {"tiny_add", "dispatch", "again_training", "kernels_add", "compile_add", "ceiling_triad"}
    assert all({"row", "threads", "koine", "beam", "unit", "peers", "ratio", "ceiling"} <= set(r) for r in records)
    tiny = by["tiny_add"]
    assert tiny["ratio"] == pytest.approx(min(tiny["peers"].values()) / tiny["koine"], rel=0.01)
    assert tiny["ceiling"] == pytest.approx(tiny["floor"] / tiny["koine"], rel=0.01) and 0 < tiny["koine"] < 1e5
    assert 0 < by["dispatch"]["koine"] < 1e5 and by["kernels_add"]["koine"] == 1
    for peer in ("torch", "tinygrad", "onnxruntime"):
        if not importlib.util.find_spec(peer):
            assert f"{peer} is not here" in said and f"pip install {peer}" in said


@pytest.mark.parametrize("computes, says", [("x * y", "off by"), ("c.close() or __import__('os')._exit(7)", "died (7)")])
def test_wrong_and_dead_are_said(bench, root, tmp_path, computes, says):
    """A table in which koine computes something else, or takes its process with it: the row has no time, and the run fails."""
    shutil.copytree(root / "bench", tmp_path / "bench")
    (tmp_path / "python").symlink_to(root / "python")
    table = tmp_path / "bench/rows.py"
    text, n = re.subn(r'(Row\("tiny_add".*?lambda c, x, y: )x \+ y', lambda m: m[1] + computes, table.read_text())
    assert n == 1
    table.write_text(text)
    rc, records, said = bench("--rows", "tiny_add", folder=tmp_path / "bench")
    assert rc == 1
    row = next(r for r in records if r["row"] == "tiny_add")
    assert row["koine"] is None and row["met"] is False and says in row["why"] and says in said
    assert "numpy" in row["peers"]
