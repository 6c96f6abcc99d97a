"""`koine train digits`: real digits through --data, MNIST's files, repeatability, memory."""
import gzip
import json
import shutil
import struct
import subprocess

import pytest

np = pytest.importorskip("numpy")


def result(r):
    return json.loads(r.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """100 images of 8 x 8 in two classes: bright left, bright right."""
    where = tmp_path_factory.mktemp("small")
    r = np.random.default_rng(0)
    y = np.arange(100) % 2
    x = r.random((100, 8, 8), dtype=np.float32)
    x[y == 0, :, :4] += 1
    x[y == 1, :, 4:] += 1
    np.save(where / "x.npy", x)
    np.save(where / "y.npy", y)
    return where / "x.npy", where / "y.npy"


def test_real_digits_reach_97_percent(koine, tmp_path, sanitized):
    if sanitized:
        pytest.skip("says nothing new under a sanitizer")
    data = pytest.importorskip("sklearn.datasets").load_digits()
    np.save(tmp_path / "x.npy", data.images)
    np.save(tmp_path / "y.npy", data.target)
    got = [result(koine("train", "digits", "--data", "x.npy", "y.npy", "--epochs", 8, "--seed", s, "--json")) for s in range(5)]
    assert all(g["test_images"] == 359 for g in got)
    assert sorted(g["test_accuracy"] for g in got)[2] >= 97


def test_drawn_digits_are_learnt(koine, sanitized):
    steps = 3 if sanitized else 60
    r = koine("train", "digits", "--steps", steps, "--batch", 64)
    assert "test accuracy " in r.stdout and "kernels" in r.stdout and "images/s" in r.stderr
    accuracy = float(r.stdout.split("test accuracy ")[1].split()[0])
    assert sanitized or accuracy > 60, r.stdout


def test_the_same_seed_gives_the_same_network(koine, small):
    a, b, c = (result(koine("train", "digits", "--data", *small, "--steps", 5, "--seed", s, "--json")) for s in (3, 3, 4))
    assert a["test_accuracy"] == b["test_accuracy"] and a["kernels"] > 0
    assert c["steps"] == 5


@pytest.mark.parametrize("device", ["CPU", "INTERP"])
def test_every_device_trains(koine, small, device):
    got = result(koine("train", "digits", "--data", *small, "--steps", 12, "--batch", 16, "--device", device, "--json"))
    assert got["test_accuracy"] >= 95


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_files(koine, tmp_path, packed):
    r = np.random.default_rng(1)
    for part, n in (("train", 64), ("t10k", 20)):
        x = r.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        y = r.integers(0, 10, n, dtype=np.uint8)
        for name, a, magic in ((f"{part}-images-idx3-ubyte", x, 0x803), (f"{part}-labels-idx1-ubyte", y, 0x801)):
            raw = struct.pack(f">I{a.ndim}I", magic, *a.shape) + a.tobytes()
            (tmp_path / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
    got = result(koine("train", "digits", "--mnist", tmp_path, "--steps", 2, "--json"))
    assert got["test_images"] == 20
    name = tmp_path / ("t10k-labels-idx1-ubyte" + ".gz" * packed)
    name.write_bytes(name.read_bytes()[:-3])
    bad = koine("train", "digits", "--mnist", tmp_path, "--steps", 2, ok=False)
    assert bad.returncode == 1 and ("gzip" if packed else "cut short") in bad.stderr and name.name in bad.stderr


@pytest.mark.parametrize("x, y, what", [
    (np.zeros((100, 8, 8)), np.zeros(99, int), "expected integers of shape (100,)"),
    (np.zeros((100, 8, 8)), np.zeros(100), "labels are f64"),
    (np.zeros((100, 8, 8)), np.full(100, -1), "label -1 at position 0"),
    (np.zeros(100), np.zeros(100, int), "images of shape (100,)"),
    (np.zeros((100, 5)), np.zeros(100, int), "images of shape (100, 5)"),
    (np.zeros((5, 8, 8)), np.zeros(5, int), "at least 10"),
    (np.zeros((100, 4, 4)), np.zeros(100, int), "too small"),
])
def test_unfit_data_is_told(koine, tmp_path, x, y, what):
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    r = koine("train", "digits", "--data", "x.npy", "y.npy", ok=False)
    assert r.returncode == 1 and what in r.stderr, r.stderr


def test_memory_stays_flat(koine, small, sanitized):
    """Resident memory after the last step is within 2 % of that after step 500; each step builds its graph anew."""
    import os
    if sanitized:
        pytest.skip("a sanitizer keeps freed memory")
    rss = []
    with subprocess.Popen([koine.path, "train", "digits", "--data", *small, "--steps", "10000", "--batch", "1"], text=True,
                          stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          env={**os.environ, "KN_VERIFY": "0", "KN_CACHE": str(koine.cwd)}) as p:
        for line in p.stderr:
            if line.startswith("training"):
                with open(f"/proc/{p.pid}/statm") as f:
                    rss.append(int(f.read().split()[1]))  # 0: it has ended already
    assert p.returncode == 0 and len(rss) == 20
    # the store grows by a few thousand nodes between two collections: compare the tops of that
    assert max(rss[-4:]) <= max(rss[:3]) * 1.02, rss


def test_valgrind_finds_no_leak(koine, small, sanitized, levels):
    if sanitized or not shutil.which("valgrind"):
        pytest.skip("no valgrind, or a sanitizer")
    import os
    r = subprocess.run(["valgrind", "--leak-check=full", "--error-exitcode=9", "--errors-for-leak-kinds=definite,indirect,possible",
                        koine.path, "train", "digits", "--data", *small, "--steps", "2", "--batch", "8"], text=True,
                       capture_output=True, timeout=600, env={**os.environ, "KN_CPU": levels[:2][-1], "KN_VERIFY": "0", "KN_CACHE": str(koine.cwd)})
    assert r.returncode == 0, r.stderr[-4000:]
