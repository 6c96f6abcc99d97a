"""gelu is written out as a whole with AVX-512 (gelu32, math32.kr): by how much it is off, what its ends are, and what is left alone."""
import math
import re

import numpy as np
import pytest

from on_arrays import run, text

UNITS = 2.747  # docs/accuracy.md, and what a double leaves open; of 2^-25 |x|
C = float(np.float32(0.5**0.5))
SUM = ["%c = mul %x 0.7071067811865476", "%e = erf %c", "%o = add %e 1.0"]
ORDERS = {"half of x": ["%h = mul %x 0.5", "%y = mul %h %o"], "half at last": ["%h = mul %x %o", "%y = mul %h 0.5"], "half of the sum": ["%h = mul %o 0.5", "%y = mul %x %h"]}
EDGES = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 0.125, -0.125, 0.375, 2.125, -2.125, 5.25, 5.625, -5.625, 7.75, -7.75, np.nextafter(np.float32(-7.75), np.float32(-8)),
                  -5.4, -6.0, 7.9, -14.0, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


def arguments(n):
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * 2.0 ** rng.uniform(-20, 2.5, n)).astype(np.float32)
    x[:len(EDGES)] = EDGES[:n]
    return x


def takes(koine, tmp_path, lines, level, dtype="f32"):
    """The sets of rules that the kernel's instructions come from."""
    p = tmp_path / "p.kn"
    p.write_text(text(lines, (4096,)).replace(" f32 ", f" {dtype} "))
    out = koine("compile", p, "--target", "x86", env={"KN_CPU": level, "KN_THREADS": "1"}).stdout
    return set(re.findall(r"\b(gelu32|scale32|math32|math64)\.(?!kr)", out))


@pytest.mark.runs("avx512")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 5, 37, 100000])
def test_right(koine, tmp_path, order, n):
    x = arguments(n)
    got, wide = run(koine, tmp_path, [*SUM, *ORDERS[order]], x, "avx512").astype(np.float64), x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = np.array([math.erfc(-v * C) for v in wide]) * (wide / 2)
    assert (np.isnan(got) == np.isnan(want)).all() and (got[np.isinf(want)] == want[np.isinf(want)]).all()
    ok = np.isfinite(want)
    assert (np.abs(got[ok] - want[ok]) < UNITS * np.maximum(2.0**-25 * np.abs(wide[ok]), 2.0**-149)).all()
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("order", ORDERS)
def test_as_a_whole(koine, tmp_path, order):
    assert takes(koine, tmp_path, [*SUM, *ORDERS[order]], "avx512") == {"gelu32"}
    assert takes(koine, tmp_path, [*SUM, *ORDERS[order]], "avx2") == {"math32"}
    assert takes(koine, tmp_path, [*SUM, *ORDERS[order]], "avx512", "f64") == {"math64"}


@pytest.mark.parametrize("lines", [["%c = mul %x 0.70710671", "%e = erf %c", "%o = add %e 1.0", "%h = mul %x 0.5", "%y = mul %h %o"], ["%e = erf %x", "%o = add %e 1.0", "%h = mul %x 0.5", "%y = mul %h %o"],
                                   [*SUM, "%z = mul %x %x", "%h = mul %z 0.5", "%y = mul %h %o"], [*SUM, "%h = mul %x 0.25", "%y = mul %h %o"], [*SUM[:2], "%y = add %e 1.0"]],
                         ids=["another number", "of x itself", "another factor", "a quarter", "the sum alone"])
def test_what_it_is_not(koine, tmp_path, lines):
    sets = takes(koine, tmp_path, lines, "avx512")
    assert "scale32" in sets and "gelu32" not in sets


@pytest.mark.runs("avx512")
def test_beside_the_sum_that_it_is_made_of(koine, tmp_path):
    """What else reads the sum has it as ever."""
    x = arguments(1000)[len(EDGES):]
    both = [*SUM, "%h = mul %x 0.5", "%g = mul %h %o", "%y = add %g %o"]
    assert takes(koine, tmp_path, both, "avx512") >= {"gelu32", "scale32"}
    want = np.array([math.erfc(-v * C) * (1 + v / 2) for v in x.astype(np.float64)])
    assert np.abs(run(koine, tmp_path, both, x, "avx512") - want).max() < 2.0**-20
