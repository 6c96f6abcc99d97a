"""What the machine can do, by bench/probe.c. For a row it is measured as its sides are, by turns with them in the same minutes: the median of its
turns. Beside it stands the best rate seen in the run so far, which other programs can only lower."""
import ctypes
import statistics
import time

KINDS = ["fma", "dot_bf16", "dot_i8", "amx_bf16", "amx_i8", "read", "copy", "triad"]
UNIT = {"read": "GB/s", "copy": "GB/s", "triad": "GB/s"}
ARRAY = 128 << 20  # bytes of each of probe.c's (FLOATS): of what is read again and again a last cache keeps a part, the more the smaller that is
PEAKS = {"fma": ["fma"], "bf16": ["amx_bf16", "dot_bf16", "fma"], "i8": ["amx_i8", "dot_i8"]}  # the best the processor has


class Ceilings:
    """Operations and bytes a second by kind and number of threads."""

    def __init__(self, library):
        self.rate = ctypes.CDLL(str(library)).probe_rate
        self.rate.restype, self.rate.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int]
        self.read = ctypes.CDLL(str(library)).probe_read
        self.read.restype, self.read.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_int, ctypes.c_int]
        self.best = {}
        self.reads = {}  # by bytes and threads

    def look(self, kind, threads, times=1):
        for _ in range(times):
            self.measure(kind, 0, threads)
        return self.best[kind, threads]

    def measure(self, kind, amount, threads):
        """Operations or bytes a second where so much is done. More than probe.c's arrays is read from one as large."""
        if kind == "read" and amount > ARRAY:
            return self.read_of(amount, threads, 1)
        seen = self.rate(KINDS.index(kind), threads)
        self.best[kind, threads] = max(seen, self.best.get((kind, threads), 0.0))
        return seen

    def read_of(self, size, threads, times=2):
        """Bytes a second where so many are read once: of more than the last cache holds they come from memory."""
        seen = self.read(size, threads, times)
        self.reads[size, threads] = max(seen, self.reads.get((size, threads), 0.0))
        return seen if seen > 0 else self.look("read", threads, 5)

    def peak_of(self, row, threads):
        """The kind that bounds the row's arithmetic here; None: nothing does."""
        return next((k for k in PEAKS[row.peak] if self.best.get((k, threads)) or self.look(k, threads, 3)), None)

    def tiles(self):
        return self.look("amx_bf16", 1) > 0

    def work_of(self, row, threads):
        """What the row does at least, by the kind of rate that bounds it: bytes, operations."""
        kind = self.peak_of(row, threads) if row.flops else None
        return {row.memory: row.bytes} | ({kind: row.flops} if kind else {})

    def turn(self, work, threads, seconds):
        """The seconds that so much work takes, by kind: the median of calls for so long, after one that wakes the machine up."""
        took = {}
        for kind, amount in work.items():
            self.measure(kind, amount, threads)
            end, rates = time.perf_counter() + seconds, []
            while not rates or time.perf_counter() < end:
                rates.append(self.measure(kind, amount, threads))
            took[kind] = amount / statistics.median(rates)
        return took

    def least(self, work, threads):
        """The seconds at the best rates seen."""
        best = {kind: kind == "read" and amount > ARRAY and self.reads[amount, threads] or self.best[kind, threads] for kind, amount in work.items()}
        return max(amount / best[kind] for kind, amount in work.items())

    def records(self):
        for (kind, threads), rate in sorted(self.best.items(), key=lambda b: (b[0][1], KINDS.index(b[0][0]))):
            if rate > 0:
                yield {"row": f"ceiling_{kind}", "threads": threads, "unit": UNIT.get(kind, "Gop/s"), "ceiling": round(rate / 1e9, 1)}
        for (size, threads), rate in sorted(self.reads.items(), key=lambda b: (b[0][1], b[0][0])):
            if rate > 0:
                yield {"row": f"ceiling_read_{size >> 20}MiB", "threads": threads, "unit": "GB/s", "ceiling": round(rate / 1e9, 1)}
