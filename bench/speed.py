"""koine and numpy, round after round in one process: one JSON object a row.

    speed.py THREADS LIBKOINE LIBPROBE [ROW...]

A koine step is what a program does: open a scope, build the graph, realise it, close the scope; its compiled form is found
again, so this is dispatch and work. numpy is given its output. A round runs koine, numpy and the floor one after another, so
that what else the machine does falls on all three. Each row is checked against numpy before it is timed.
"""
import ctypes
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS, ONLY = int(sys.argv[1]), sys.argv[4:]
os.environ.update(OPENBLAS_NUM_THREADS=sys.argv[1], OMP_NUM_THREADS=sys.argv[1], KN_THREADS=sys.argv[1])

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import koine  # noqa: E402

ROUNDS, WARM = 11, 8
MI16, SIDE, N = 1 << 24, 4096, 1024
lib = koine.load(sys.argv[2])
probe = ctypes.CDLL(sys.argv[3])
probe.probe_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
probe.probe_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
probe.probe_fma.argtypes = [ctypes.c_double, ctypes.c_void_p]
probe.probe_fma.restype = ctypes.c_double
pool = ThreadPoolExecutor(THREADS)
rng = np.random.default_rng(0)
k = koine.Context("CPU")


def random(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def quiet():
    """Wait until no thread of this process runs: OpenBLAS's wait for their next work in a loop, on a core the other side needs."""
    for _ in range(100):
        spent = time.process_time()
        time.sleep(0.01)
        if time.process_time() - spent < 0.002:
            return


def timed(f):
    """Microseconds by the clock, and of processors, all threads together: what others make us wait is not in those. Of the
    second of two calls: threads that were let sleep are awake."""
    quiet()
    f()
    begun, spent = time.perf_counter(), time.process_time()
    f()
    return 1e6 * (time.perf_counter() - begun), 1e6 * (time.process_time() - spent)


def step(build):
    lib.kn_scope_open(k.h)
    k.realize(build())
    lib.kn_scope_close(k.h)


# ---- ceilings: bytes or operations a microsecond, measured in every round; the best of the run makes the floors ----


def each(f):
    begun = time.perf_counter()
    list(pool.map(f, range(THREADS)))
    return 1e6 * (time.perf_counter() - begun)


def aligned(n):
    raw = np.empty(n + 16, np.float32)
    return raw[(-raw.ctypes.data // 4) % 16 :][:n]


SRC, DST = aligned(MI16), aligned(MI16)
SRC[:], DST[:] = 1, 1
SHARE = MI16 // THREADS


def read():
    return SRC.nbytes / each(lambda i: probe.probe_read(SRC[i * SHARE :].ctypes.data, SHARE))


def copy():
    src, dst = SRC.ctypes.data, DST.ctypes.data
    return 2 * SRC.nbytes / each(lambda i: probe.probe_copy(dst + 4 * i * SHARE, src + 4 * i * SHARE, SHARE))


def fma():
    sink = (ctypes.c_float * (16 * THREADS))()
    flops = THREADS * 1e8  # about a millisecond: short enough to fall between what else runs
    return flops / min(each(lambda i: probe.probe_fma(1e8, ctypes.addressof(sink) + 64 * i)) for _ in range(5))


# ---- what numpy does ----


def np_softmax(x, out):
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)
    return out


def np_layer_norm(x, w, b, out):
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    scale = 1 / np.sqrt(np.einsum("ij,ij->i", out, out)[:, None] / x.shape[-1] + np.float32(1e-5))
    np.multiply(out, scale, out=out)
    np.multiply(out, w, out=out)
    return np.add(out, b, out=out)


def rows():
    """name, bar, koine's graph, numpy's call, ceiling, bytes or operations"""
    a, b, out = random(N, N), random(N, N), np.empty((N, N), np.float32)
    ka, kb = k.array(a), k.array(b)
    yield "matmul", 0.4, lambda: ka @ kb, lambda: np.matmul(a, b, out=out), fma, 2 * N**3
    x, y, out1 = random(MI16), random(MI16), np.ones(MI16, np.float32)
    kx, ky = k.array(x), k.array(y)
    yield "add", 0.9, lambda: kx + ky, lambda: np.add(x, y, out=out1), copy, 3 * x.nbytes
    yield "exp", 0.9, lambda: kx.exp(), lambda: np.exp(x, out=out1), copy, 2 * x.nbytes
    yield "sum", 0.9, lambda: kx.sum(), lambda: np.sum(x), read, x.nbytes
    s, w, c, out2 = x.reshape(SIDE, SIDE), y[:SIDE], y[SIDE : 2 * SIDE], out1.reshape(SIDE, SIDE)
    ks, kw, kc = k.array(s), k.array(w), k.array(c)
    yield "softmax", 2, lambda: ks.softmax(-1), lambda: np_softmax(s, out2), copy, 2 * s.nbytes
    norm = lambda: koine.call("layer_norm", ks, 1, kw, kc, 1e-5)  # noqa: E731
    yield "layernorm", 2, norm, lambda: np_layer_norm(s, w, c, out2), copy, 2 * s.nbytes


def measure(bar, ours, theirs, ceiling, work):
    lib.kn_scope_open(k.h)
    got, want = ours().numpy(), theirs()
    lib.kn_scope_close(k.h)
    error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
    if error > 1e-3:
        return {"error": f"off by {error:.1e} of the largest value"}
    for _ in range(WARM):
        step(ours)
    t = []
    for _ in range(ROUNDS):
        t.append(timed(lambda: step(ours)) + timed(theirs))
        best[ceiling.__name__] = max(best[ceiling.__name__], ceiling())
    us, cpu, peer, peer_cpu = (statistics.median(column) for column in zip(*t))
    return {"us": us, "peer": "numpy " + np.__version__, "peer_us": peer, "ratio": peer / us, "bar": bar,
            "cpu_us": cpu, "peer_cpu_us": peer_cpu, "cpu_ratio": peer_cpu / cpu,
            "least_us": min(r[0] for r in t), "ceiling": ceiling.__name__, "work": work}


best, done = {"read": 0.0, "copy": 0.0, "fma": 0.0}, []
for name, *how in rows():
    if ONLY and name not in ONLY:
        continue
    try:
        row = measure(*how)
    except koine.Error as e:
        row = {"error": str(e)}
    done.append({"bench": "speed", "program": name, "threads": THREADS} | row)
best["read"] = max(best["read"], best["copy"])  # a copy reads too
for row in done:
    if "us" in row:
        row["floor_us"] = row.pop("work") / best[row["ceiling"]]
        row["distance"] = row["us"] / row["floor_us"]
    print(json.dumps({f: round(v, 3) if isinstance(v, float) else v for f, v in row.items()}))
print(json.dumps({"bench": "ceiling", "threads": THREADS, "read_gbs": round(best["read"] / 1e3, 1),
                  "copy_gbs": round(best["copy"] / 1e3, 1), "fma_gflops": round(best["fma"] / 1e3, 1)}))
