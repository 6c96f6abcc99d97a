"""One side of the rows, in a process of its own, so that each has its threads, its settings and its failures to itself.

    player.py koine|numpy|torch|tinygrad THREADS [LIBKOINE LIBSTEP]

Reads a JSON command a line from standard input and answers each with a JSON line on what was standard output; what libraries print goes to
standard error. Commands: {do: row, name}, {do: want, to}, {do: check, of}, {do: turn, ms}. A failure is answered {error}.
"""
import json
import os
import statistics
import sys
import time
from pathlib import Path

SIDE, THREADS = sys.argv[1], int(sys.argv[2])
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KN_THREADS", "NUM_CPU_THREADS"), str(THREADS)),
                  THREADS=str(int(THREADS > 1)), DEV="CPU")

import numpy as np  # noqa: E402

from rows import BY_NAME, TOLERANCE  # noqa: E402
from turns import quiet, serve  # noqa: E402

NUMPY = {"f32": np.float32, "bf16": np.float32, "i8": np.int8, "i32": np.int32, "i64": np.int64}
MOST = 64  # calls a turn
SLOW = 0.25  # a call of so many seconds is not repeated within a turn
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of images, or of filters, so that channels lie innermost, and back


def given(row):
    """The inputs, the same in every process. bf16 are f32 whose low half is 0."""
    rng, arrays = np.random.default_rng(len(row.name)), []
    for dtype, shape, *high in row.inputs:
        if high:
            arrays.append(rng.integers(-high[0] if dtype == "i8" else 0, high[0], shape, NUMPY[dtype]))
            continue
        a = rng.standard_normal(shape, dtype=np.float32)
        arrays.append((a.view(np.uint32) & 0xFFFF0000).view(np.float32) if dtype == "bf16" else a)
    return arrays


def lay(a):
    return np.ascontiguousarray(a.transpose(LAST))


class Side:
    """prepare(row, arrays) leaves a call to time; result() is what it computed, as numpy's array; how: which of several ways that is."""

    how = None

    def prepare(self, row, arrays):
        raise NotImplementedError

    def times(self, seconds, most):
        begun, us = time.perf_counter(), []
        last = begun
        while not us or (last - begun < seconds and len(us) < most):
            self.call()
            end = time.perf_counter()
            us.append(1e6 * (end - last))
            last = end
        return us


class Numpy(Side):
    def prepare(self, row, arrays):
        self.out = np.empty(row.out[1], NUMPY[row.out[0]])
        self.call = lambda: row.numpy(np, self.out, *arrays)
        self.result = lambda: self.out


class Torch(Side):
    def __init__(self):
        import torch
        self.torch = torch
        torch.set_num_threads(THREADS)
        torch.set_grad_enabled(False)

    def prepare(self, row, arrays):
        torch, fastest = self.torch, None
        dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
        wide = dtypes | {"i32": torch.int64}  # of indices PyTorch's own dtype
        plain = [torch.from_numpy(a).to(wide[i[0]]) for a, i in zip(arrays, row.inputs)]
        for how, f in (row.torch if isinstance(row.torch, dict) else {None: row.torch}).items():
            inputs = [t.to(memory_format=torch.channels_last) for t in plain] if how == "channels_last" else plain
            out, last = torch.empty(row.out[1], dtype=dtypes[row.out[0]]), []

            def call(f=f, inputs=inputs, out=out, last=last):
                r = f(torch, out, *inputs)
                last[:] = [out if r is None else r]

            self.call = call
            self.times(0.1, 3)
            took = min(self.times(0.1, 20))
            if not fastest or took < fastest[0]:
                fastest = took, call, last, how
        _, self.call, last, self.how = fastest
        self.result = lambda: (last[0].float() if row.out[0] == "bf16" else last[0]).contiguous().numpy()


class Tinygrad(Side):
    def __init__(self):
        import tinygrad
        self.tinygrad = tinygrad

    def prepare(self, row, arrays):
        tg, last = self.tinygrad, []
        jit = tg.TinyJit(lambda *a: row.tinygrad(*a).contiguous().realize())
        inputs = [tg.Tensor(a, device="CPU").cast(tg.dtypes.bfloat16 if i[0] == "bf16" else str(a.dtype)).contiguous().realize()
                  for a, i in zip(arrays, row.inputs)]

        def call():
            last[:] = [jit(*inputs)]
            tg.Device["CPU"].synchronize()

        call()
        call()  # the second call is recorded, and what comes after replays it
        self.call = call
        self.result = lambda: (last[0].float() if row.out[0] == "bf16" else last[0]).numpy()


class Koine(Side):
    def __init__(self):
        import ctypes
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
        os.environ["KOINE_LIB"] = sys.argv[3]
        from koine import _thin as koine
        self.koine, self.k, self.us = koine, None, (ctypes.c_double * MOST)()
        lib = ctypes.CDLL(sys.argv[4])
        self.capture, self.steps = lib.bench_step, lib.bench_steps
        self.capture.argtypes, self.capture.restype = [ctypes.c_void_p] * 3, ctypes.c_void_p
        self.steps.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_int, ctypes.c_void_p]

    def prepare(self, row, arrays):
        if self.k:
            self.k.close()
        k = self.k = self.koine.Context("CPU")
        bits = [(a.view(np.uint32) >> 16).astype(np.uint16) if i[0] == "bf16" else a for a, i in zip(arrays, row.inputs)]
        fastest = None
        for how, f in (row.koine if isinstance(row.koine, dict) else {None: row.koine}).items():
            last = how == "channels_last"  # as PyTorch has them: of the same axes, in another order in memory
            inputs = [k.array(lay(a) if last else a, i[0]) for a, i in zip(bits, row.inputs)]
            shape = row.out[1]
            out = k.zeros(tuple(shape[a] for a in LAST) if last else shape, row.out[0]).param()
            k.realize(out, *inputs)
            value = f(k, *(t.permute(FIRST) for t in inputs)).permute(LAST) if last else f(k, *inputs)
            self.step = self.capture(k.h, out.h, value.check().h)
            if not self.step:
                raise self.koine.Error(k.message())
            took = min(self.times(0.1, 20)) if how else 0
            if not fastest or took < fastest[0]:
                fastest = took, self.step, out, how
        _, self.step, self.out, self.how = fastest

        def result():
            v = self.out.numpy()
            v = (v.astype(np.uint32) << 16).view(np.float32) if row.out[0] == "bf16" else v
            return v.transpose(FIRST) if self.how == "channels_last" else v

        self.result = result

    def times(self, seconds, most):
        n = self.steps(self.step, 1e6 * seconds, most, self.us)
        if n < 0:
            raise self.koine.Error(self.k.message())
        return self.us[:n]


def off(row, got, want):
    """By how much of the largest value, or what else is wrong."""
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    worst = float(np.max(np.abs(got.astype(np.float64) - want)) / max(float(np.max(np.abs(want))), 1e-30))
    return None if worst <= TOLERANCE[row.out[0]] else f"off by {worst:.1e} of the largest value"


class Player:
    def __init__(self):
        self.side = {"koine": Koine, "numpy": Numpy, "torch": Torch, "tinygrad": Tinygrad}[SIDE]()
        self.row = self.arrays = None

    def do_row(self, name):
        """Ready to be timed; seconds of a call."""
        self.row, self.arrays = BY_NAME[name], None
        self.arrays = given(self.row)
        self.side.prepare(self.row, self.arrays)
        self.once = 1e-6 * min(self.side.times(0.02, 3))
        quiet()
        return {"once": self.once, "how": self.side.how}

    def do_want(self, name, to):
        """The reference, for the others."""
        row, out = BY_NAME[name], None
        arrays = given(row)
        if row.want:
            out = row.want(np, *arrays)
        else:
            out = np.empty(row.out[1], NUMPY[row.out[0]])
            row.numpy(np, out, *arrays)
        np.save(to, out)
        quiet()
        return {}

    def do_check(self, of):
        wrong = off(self.row, np.asarray(self.side.result()), np.load(of, mmap_mode="r"))
        return {"error": wrong} if wrong else {}

    def do_turn(self, ms):
        quiet()
        if self.once < SLOW:
            self.side.times(0, 1)  # what it needs is in the caches again, and threads that slept are awake
        spent = time.process_time()
        us = self.side.times(ms / 1e3, MOST)
        spent = 1e6 * (time.process_time() - spent)
        quiet()
        return {"us": statistics.median(us), "least": min(us), "cpu": spent / len(us)}


def main():
    player = Player()
    serve(lambda command: getattr(player, "do_" + command.pop("do"))(**command))


main()
