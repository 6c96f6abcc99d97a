"""How costs grow: functions that order, count and look up over four sizes, nanoseconds of processor time an element, and whether one bends upward.

    build/venv/bin/python bench/growth.py [NAME ...]        (KN_THREADS=1)

Each is built and realised again on new data; the first time, which compiles, is stated apart. A bar is as long as the time of an element;
what is expected to grow by a logarithm is divided by it. `bends` stands where an element of the largest size takes twice what one of the
second takes. Past the caches what goes here and there waits for memory, which is no growth of the work: rows marked * do, all over their
arrays, and may take as much longer as numpy's take of the same places does (the first row), and a quarter.
"""
import math
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("KN_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import numpy as np  # noqa: E402

try:
    from koine import _thin as koine  # noqa: E402
except ImportError:
    import koine  # noqa: E402

SIZES = [16000, 64000, 256000, 1024000]
RNG = np.random.default_rng(0)


def floats(n):
    return RNG.standard_normal(n, dtype=np.float32)


def places(n):
    return RNG.integers(0, n, n).astype(np.int32)


def near(n):
    """Places that are not far: work grows alike, but what is written at random all over memory waits for that past the caches."""
    return (np.arange(n) // 4000 * 4000 + RNG.integers(0, 4000, n)).astype(np.int32)


def squares(k, n):
    return [k.array(floats(n * n).reshape(n, n)) for _ in range(2)]


def written(place, index, value):
    koine.call("setitem", place, [index], value)
    return place


def sliced(place, x):
    n = x.shape[0]
    place.slice(0, 1, koine.END, 2).assign(x.slice(0, 0, n // 2, 1))
    return place


FUNCTIONS = {  # name: (data, function of it, expected beside n); a * waits for memory
    "sort": (floats, lambda k, x, n: x.sort(0, 0), 1),
    "argsort": (floats, lambda k, x, n: x.argsort(0, 0), 1),
    "sort i64": (lambda n: RNG.integers(-(2**62), 2**62, n), lambda k, x, n: x.sort(0, 0), 1),
    "sort of rows of 250": (floats, lambda k, x, n: x.reshape((n // 250, 250)).sort(1, 0), 1),
    "sort, gradient": (floats, lambda k, x, n: koine.grad1((x.sort(0, 0) * x).sum(), x), 1),
    "topk 10": (floats, lambda k, x, n: koine.outputs("topk", 1, x, 10, 0, 1)[1], 1),
    "topk 1000": (floats, lambda k, x, n: koine.outputs("topk", 1, x, 1000, 0, 1)[1], 1),
    "median": (floats, lambda k, x, n: x.median(), 1),
    "unique": (floats, lambda k, x, n: koine.outputs("unique", 4, x, n)[2], 1),
    "mode": (floats, lambda k, x, n: koine.outputs("mode", 1, x, 0, 0)[0], 1),
    "searchsorted": (floats, lambda k, x, n: k.array(np.sort(floats(n))).searchsorted(x, 0), math.log),
    "histogram": (floats, lambda k, x, n: x.histogram(100, -3.0, 3.0, None, None), 1),
    "bincount *": (places, lambda k, x, n: x.bincount(n, None), 1),
    "nonzero": (lambda n: RNG.integers(0, 2, n).astype(np.int32), lambda k, x, n: x.nonzero(n, None), 1),
    "masked_select": (floats, lambda k, x, n: x.masked_select(x.gts(0.0), n, None), 1),
    "cumsum": (floats, lambda k, x, n: x.cumsum(0), 1),
    "cumprod": (floats, lambda k, x, n: x.cumprod(0), 1),
    "cummax": (floats, lambda k, x, n: x.cummax(0), 1),
    "cummax, gradient": (floats, lambda k, x, n: koine.grad1((x.cummax(0) * x).sum(), x), 1),
    "logcumsumexp": (floats, lambda k, x, n: x.logcumsumexp(0), 1),
    "gather *": (places, lambda k, x, n: k.array(floats(n)).gather(x), 1),
    "scatter_add *": (places, lambda k, x, n: k.zeros((n,), "f32").scatter_add(x, k.array(floats(n))), 1),
    "scatter_reduce, max": (near, lambda k, x, n: k.zeros((n,), "f32").scatter_reduce(0, x, k.array(floats(n)), "amax", 1), 1),
    "put_along_axis": (near, lambda k, x, n: k.zeros((n,), "f32").put_along_axis(0, x, k.array(floats(n))), 1),
    "index_put": (near, lambda k, x, n: koine.call("index_put", k.zeros((n,), "f32"), [x], k.array(floats(n)), 0), 1),
    "index_put, added": (near, lambda k, x, n: koine.call("index_put", k.zeros((n,), "f32"), [x], k.array(floats(n)), 1), 1),
    "setitem by index": (near, lambda k, x, n: written(k.zeros((n,), "f32").param(), x, k.array(floats(n))), 1),
    "setitem by mask": (floats, lambda k, x, n: written(k.zeros((n,), "f32").param(), x.gts(0.0), k.array(np.float32(1))), 1),
    "assign to a slice": (floats, lambda k, x, n: sliced(k.zeros((n,), "f32").param(), x), 1),
    "einsum of three": (floats, lambda k, x, n: koine.call("einsum", "ab,bc,cd->ad", [x.reshape((n // 64, 64)), *squares(k, 64)]), 1),
    "einsum, batched": (floats, lambda k, x, n: koine.call("einsum", "zab,zcb->zac", [x.reshape((n // 250, 10, 25))] * 2), 1),
    "einsum, a vector": (floats, lambda k, x, n: koine.call("einsum", "ab,b,a->", [x.reshape((n // 250, 250)), k.array(floats(250)), k.array(floats(n // 250))]), 1),
    "einsum, gradient": (floats, lambda k, x, n: koine.grad1(koine.call("einsum", "ab,bc,ac->", [x.reshape((n // 64, 64)), squares(k, 64)[0], x.reshape((n // 64, 64))]), x), 1),
}


def koines(data, function, n):
    """Seconds of each of some rounds of one kind, on new data; the first one compiles what is not kept."""
    k, times = koine.Context("CPU"), []
    for _ in range(12):
        koine.call("scope_open", k)  # what a round leaves is written over by the next: pages are met once
        x = k.array(data(n))
        y = function(k, x, n)
        start = time.process_time()
        k.realize(y)
        times.append(time.process_time() - start)
        koine.call("scope_close", k)
    k.close()
    return times


def numpys(n):
    times, out = [], np.empty(n, np.float32)
    for _ in range(12):
        x, i = floats(n), places(n).astype(np.int64)
        start = time.process_time()
        np.take(x, i, out=out, mode="clip")
        times.append(time.process_time() - start)
    return times


def row(name, growth, times, most):
    """Prints one; how much longer an element of the largest size takes than one of the second."""
    each = []
    for n in SIZES:
        first, *others = times(n)
        least = min(others)
        each.append(least / n * 1e9 / (growth(n) / growth(SIZES[0]) if callable(growth) else 1))
        print(f"{name if n == SIZES[0] else '':20} {n:8} {least * 1e3:9.3f} ms {each[-1]:8.1f} ns  first {first * 1e3:7.1f} ms  "
              + "#" * max(1, round(20 * each[-1] / each[0])), end="\n" if n != SIZES[-1] else "")
    longer = each[-1] / each[1]
    print(f"  bends: {longer:.1f} times" if most and longer > most else "", flush=True)
    return longer


def main(names):
    unknown = [n for n in names if n not in FUNCTIONS]
    if unknown:
        sys.exit(f"growth.py: no function {', '.join(unknown)}; there are: {', '.join(FUNCTIONS)}")
    waits = max(2, 1.25 * row("numpy.take", 1, numpys, 0))
    bent = False
    for name in names or FUNCTIONS:
        data, function, growth = FUNCTIONS[name]
        most = waits if name.endswith("*") else 2
        bent |= row(name, growth, lambda n: koines(data, function, n), most) > most  # noqa: B023
    return int(bent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
