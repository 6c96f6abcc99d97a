#!/usr/bin/env python3
"""Coefficients of the polynomials in src/stages/5_select/math*.kr. Run on demand (needs mpmath): prints each fit with its
degree, interval and largest error, so that the constants in the rules can be made again.

    tools/minimax.py [NAME]...

A fit is f(x) ~ sum c_k x^k over [a, b], weighted: least squares on Chebyshev nodes, reweighted by the error it leaves until
that is level (Lawson). Coefficients are then rounded to the format one by one, from the lowest, and the others fitted
anew, so that each makes good what the rounding of those before it lost."""
import struct
import sys
import mpmath as mp

mp.mp.dps = 70


def rounded(c, bits):
    if c == 0:
        return mp.mpf(0)
    e = mp.floor(mp.log(abs(c), 2)) + 1
    s = mp.mpf(2) ** (bits - e)
    return mp.nint(c * s) / s


def solve(rows, target, weight, n):
    m = mp.matrix(n, n)
    v = mp.matrix(n, 1)
    for r, t, w in zip(rows, target, weight):
        for i in range(n):
            wr = w * r[i]
            v[i] += wr * t
            for j in range(i + 1):
                m[i, j] += wr * r[j]
    for i in range(n):
        for j in range(i):
            m[j, i] = m[i, j]
    return list(mp.lu_solve(m, v))


def level(rows, target, n, rounds=24):
    weight = [mp.mpf(1)] * len(rows)
    best, least = None, None
    for _ in range(rounds):
        c = solve(rows, target, weight, n)
        err = [abs(t - mp.fsum(ci * ri for ci, ri in zip(c, r))) for r, t in zip(rows, target)]
        worst = max(err)
        if least is None or worst < least:
            best, least = c, worst
        if worst == 0:
            break
        weight = [w * (e / worst + mp.mpf("1e-9")) for w, e in zip(weight, err)]
        s = mp.fsum(weight)
        weight = [w * len(rows) / s for w in weight]
    return best, least


def fit(f, a, b, deg, bits, weight, wide=0):
    """c_0..c_deg; the first `wide` of them keep 2 * bits (their low parts are constants of their own)."""
    n = deg + 1
    a, b = mp.mpf(a), mp.mpf(b)
    count = 10 * n
    x = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]
    x = [v for v in x if v != 0]
    w = [weight(v) for v in x]
    target = [f(v) * wv for v, wv in zip(x, w)]
    rows = [[v ** k * wv for k in range(n)] for v, wv in zip(x, w)]
    done = []
    while len(done) < n:
        k = len(done)
        rest = [t - mp.fsum(c * r[i] for i, c in enumerate(done)) for t, r in zip(target, rows)]
        c, _ = level([r[k:] for r in rows], rest, n - k, 24 if k == 0 else 8)
        done.append(rounded(c[0], 2 * bits if k < wide else bits))
    err = max(abs(t - mp.fsum(c * ri for c, ri in zip(done, r))) for t, r in zip(target, rows))
    return done, err


LN2 = mp.log(2)
L2E = 1 / LN2


def log_tail(f):
    """(log(1 + f) - f + f^2 / 2) / f^3"""
    if abs(f) < mp.mpf("1e-12"):
        return mp.mpf(1) / 3 - f / 4
    return (mp.log1p(f) - f + f * f / 2) / f ** 3


def one(_):
    return mp.mpf(1)


def root(f):
    """f of the square root, as a series in z sees it; z > 0."""
    return lambda z: f(mp.sqrt(z))


def inverse_weight(f, power):
    """Relative error of f(x) = ... + x^power P(x^2), in z = x^2."""
    return lambda z: abs(mp.sqrt(z) ** power / f(mp.sqrt(z)))


FITS = {
    # e^r = 1 + r + r^2 P(r), n = round(x log2 e - 0.0833): r in [-0.4167, 0.5833] log 2 and what rounding adds
    "exp32": lambda: fit(lambda r: (mp.exp(r) - 1 - r) / r ** 2, -0.2892, 0.4047, 4, 24, lambda r: r * r / mp.exp(r)),
    # the same, n = round(16 x log2 e) / 16
    "exp32_table": lambda: fit(lambda r: (mp.exp(r) - 1 - r) / r ** 2, -0.021662, 0.021662, 1, 24, lambda r: r * r / mp.exp(r)),
    # 2^r = 1 + r + r P(r)
    "exp2_32": lambda: fit(lambda r: (mp.mpf(2) ** r - 1) / r - 1, -0.4171, 0.5837, 6, 24, lambda r: r / mp.mpf(2) ** r),
    # log(1 + f) = f - f^2 / 2 + f^3 P(f), 1 + f in [sqrt 1/2, sqrt 2]
    "log32": lambda: fit(log_tail, -0.29290, 0.41422, 8, 24, lambda f: f ** 3 / mp.log1p(f)),
    # tanh x = x + x^3 P(x^2), x below 0.55
    "tanh32": lambda: fit(root(lambda x: (mp.tanh(x) - x) / x ** 3), 0, 0.3026, 4, 24, inverse_weight(mp.tanh, 3)),
    # erf x = x + x P(x^2), x below 0.84; erf x = 1 - e^-(x + Q(x)) up to 4
    "erf32": lambda: fit(root(lambda x: mp.erf(x) / x - 1), 0, 0.7057, 5, 24, inverse_weight(mp.erf, 1)),
    "erfc32": lambda: fit(lambda x: -mp.log(mp.erfc(x)) - x, 0.84, 4, 7, 24, lambda x: mp.erfc(x) / mp.erf(x)),
    # sin r = r + r^3 P(r^2), cos r = 1 - r^2 / 2 + r^4 P(r^2), |r| below pi / 4
    "sin32": lambda: fit(root(lambda x: (mp.sin(x) - x) / x ** 3), 0, 0.6170, 2, 24, inverse_weight(mp.sin, 3)),
    "cos32": lambda: fit(root(lambda x: (mp.cos(x) - 1 + x * x / 2) / x ** 4), 0, 0.6170, 2, 24, inverse_weight(mp.cos, 4)),
    # log2((1 + s) / (1 - s)) = 2 s log2 e + s^3 P(s^2)
    "pow32": lambda: fit(root(lambda s: 2 * L2E * (mp.atanh(s) - s) / s ** 3), 0, 0.02945, 3, 24, inverse_weight(mp.atanh, 3), wide=1),
    # f64: e^r = 1 + r + r^2 P(r), |r| below log(2) / 2; 2^r = 1 + r + r P(r), |r| at most 1/2
    "exp64": lambda: fit(lambda r: (mp.exp(r) - 1 - r) / r ** 2, -0.3467, 0.3467, 9, 53, lambda r: r * r / mp.exp(r)),
    "exp2_64": lambda: fit(lambda r: (mp.mpf(2) ** r - 1) / r - 1, -0.5001, 0.5001, 11, 53, lambda r: r / mp.mpf(2) ** r),
    # log(1 + f) = 2 s + s z P(z), s = f / (2 + f), z = s^2, 1 + f in [sqrt 1/2, sqrt 2]
    "log64": lambda: fit(root(lambda s: 2 * (mp.atanh(s) - s) / s ** 3), 0, 0.02945, 6, 53, inverse_weight(mp.atanh, 3)),
    # 3 atanh(s) / s = 3 + z + z^2 P(z), z = s^2, |s| at most (sqrt 3/2 - 1) / (sqrt 3/2 + 1)
    "pow64": lambda: fit(root(lambda s: (3 * mp.atanh(s) / s - 3 - s * s) / s ** 4), 0, 0.01021, 5, 53, lambda z: z * z / 3),
    # tanh x = x + x^3 P(x^2), x below 0.55
    "tanh64": lambda: fit(root(lambda x: (mp.tanh(x) - x) / x ** 3), 0, 0.3026, 10, 53, inverse_weight(mp.tanh, 3)),
    # erf x = x + x P(x^2), x below 0.84; erf x = 1 - e^-(x + Q(x)) up to 6
    "erf64": lambda: fit(root(lambda x: mp.erf(x) / x - 1), 0, 0.7057, 11, 53, inverse_weight(mp.erf, 1)),
    "erfc64": lambda: fit(lambda x: -mp.log(mp.erfc(x)) - x, 0.84, 6, 19, 53, lambda x: mp.erfc(x) / mp.erf(x)),
    # sin r = r + r^3 P(r^2), cos r = 1 - r^2 / 2 + r^4 P(r^2), |r| below pi / 4
    "sin64": lambda: fit(root(lambda x: (mp.sin(x) - x) / x ** 3), 0, 0.6170, 5, 53, inverse_weight(mp.sin, 3)),
    "cos64": lambda: fit(root(lambda x: (mp.cos(x) - 1 + x * x / 2) / x ** 4), 0, 0.6170, 5, 53, inverse_weight(mp.cos, 4)),
}


def near(f, a, b):
    """A number in the middle of [a, b] where f is nearly one of 24 bits."""
    middle = rounded((a + b) / 2, 24)
    step = mp.mpf(2) ** (mp.floor(mp.log(middle, 2)) - 23)
    off = lambda x: abs(f(x) - rounded(f(x), 24)) / f(x)
    return min((middle + k * step for k in range(-300, 301)), key=off)


def pieces(f, shift, bits, end, deg):
    """f up to `end` on at most 32 intervals as f(b) + d (c_1 + c_2 d + ...), d = x - b; near 0, where b is 0, as d + d (c_1 + ...). Five bits of x + shift, as a
    f32, from `bits` on choose the interval. Rows b, f(b), c_1, ... in that order."""
    rows, worst = [[mp.mpf(0)] * 32 for _ in range(deg + 2)], mp.mpf(0)
    first = struct.unpack("I", struct.pack("f", shift))[0] >> bits
    edge = lambda k: mp.mpf(struct.unpack("f", struct.pack("I", k << bits))[0]) - shift
    for k in range(first, first + 32):
        lo, hi = edge(k), edge(k + 1)
        if lo > end:
            break
        if k == first:
            b, at = mp.mpf(0), mp.mpf(0)
            c, err = fit(lambda d: (f(d) - d) / d, 0, hi, deg - 1, 24, lambda d: d / f(d))
        else:
            b = near(f, lo, hi)
            at = rounded(f(b), 24)
            c, err = fit(lambda d: (f(b + d) - at) / d, lo - b, hi - b, deg - 1, 24, lambda d: abs(d) / f(b + d))
        for row, v in zip(rows, [b, at] + c):
            row[k & 31] = v
        worst = max(worst, err)
    return rows, worst


def steps(f, w, deg):
    """f about the first 32 multiples b of w as c_0 + d (c_1 + ...), d = x - b, |d| at most w / 2; b = 0 begins with c_0 = 0. Where fewer coefficients
    do the others are 0. Rows b, c_0, c_1, ... in that order; the largest error is an absolute one."""
    rows, worst = [[mp.mpf(0)] * 32 for _ in range(deg + 2)], mp.mpf(0)
    for k in range(32):
        b, lo, hi = k * w, -w / 2, w / 2
        if k == 0:
            c, err = fit(lambda d: f(d) / d, 0, hi, deg - 1, 24, lambda d: d / f(d))
            c, err = [mp.mpf(0)] + c, err * f(hi)
        else:
            least = next((n for n in range(deg) if fit(lambda d: f(b + d), lo, hi, n, 60, one)[1] < mp.mpf(2) ** -27.5), deg)
            c, err = fit(lambda d: f(b + d), lo, hi, least, 24, one)
        for row, v in zip(rows, [b] + c):
            row[k] = v
        worst = max(worst, err)
    return rows, worst


TABLES = {
    "tanh32_table": lambda: pieces(mp.tanh, 0.625, 20, 9.2, 4),
    "erf32_table": lambda: pieces(mp.erf, 1.5, 19, 3.96, 4),
    "phi32_table": lambda: steps(lambda x: mp.erf(x * rounded(mp.sqrt(0.5), 24)) / 2, mp.mpf(0.25), 4),
}


def shortest(v, bits):
    """Fewest digits that read back as v."""
    for digits in range(1, 18):
        s = mp.nstr(v, digits)
        if rounded(mp.mpf(s), bits) == v:
            return s
    return mp.nstr(v, 17)


def top(v, bits):
    """v cut to this many bits."""
    s = mp.mpf(2) ** (bits - mp.floor(mp.log(v, 2)) - 1)
    return mp.floor(v * s) / s


def constants():
    """What the reductions take off in parts, and the bits of 2 / pi."""
    for name, v, cut, bits in (("log 2", LN2, 15, 24), ("log 2", LN2, 42, 53), ("log2 e", L2E, 12, 24), ("log2 e", L2E, 32, 53),
                               ("2 log2 e", 2 * L2E, 12, 24), ("2/3 log2 e", 2 * L2E / 3, 21, 53), ("log2 3/2", mp.log(mp.mpf(3) / 2, 2), 21, 53), ("pi / 2 2^-32", mp.pi / 2 / 2 ** 32, 12, 24),
                               ("pi / 2 2^-64", mp.pi / 2 / 2 ** 64, 26, 53)):
        hi = top(v, cut)
        print(f"{name}: {cut} bits {shortest(hi, bits)}, rest {shortest(rounded(v - hi, bits), bits)}")
    with mp.workprec(1600):
        for zeros, width, n in ((26, 32, 7), (55, 64, 20)):
            all_bits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** (width * n - zeros)))
            words = [all_bits >> (width * (n - 1 - k)) & ((1 << width) - 1) for k in range(n)]
            print(f"2 / pi after {zeros} zeros: " + " ".join(str(w - (w >> 63 << 64)) for w in words))


def main():
    for name, make in FITS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        c, err = make()
        bits = 53 if "64" in name else 24
        print(f"{name}: degree {len(c) - 1}, error 2^{float(mp.log(err, 2)):.1f}")
        for k, v in enumerate(c):
            hi = rounded(v, bits)
            print(f"    x^{k:<2} {shortest(hi, bits)}" + (f" and {shortest(rounded(v - hi, bits), bits)}" if v != hi else ""))
    for name, make in TABLES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        rows, err = make()
        print(f"{name}: degree {len(rows) - 2}, error 2^{float(mp.log(err, 2)):.1f}")
        for k, row in enumerate(rows):
            print(f"    {'b' if k == 0 else f'x^{k - 1}'} " + ", ".join(shortest(v, 24) for v in row))
    if not sys.argv[1:]:
        constants()


if __name__ == "__main__":
    main()
