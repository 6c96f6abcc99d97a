"""gelu and 1 + erf(x / sqrt 2) are written out as a whole with AVX-512 (gelu32 and erfc32, math32.kr): by how much they are off, what their ends are, and what is left alone."""
import math
import re

import numpy as np
import pytest

from on_arrays import run, text

UNITS = {"phi": 2.006, "gelu": 2.747}  # docs/accuracy.md, and what a double leaves open; of 2^-24, times |x| / 2 for gelu
C = float(np.float32(0.5**0.5))
SUM = ["%c = mul %x 0.7071067811865476", "%e = erf %c", "%o = add %e 1.0"]
GELU = {"half of x": ["%h = mul %x 0.5", "%y = mul %h %o"], "half at last": ["%h = mul %x %o", "%y = mul %h 0.5"], "half of the sum": ["%h = mul %o 0.5", "%y = mul %x %h"]}
FORMS = [pytest.param("phi", [*SUM[:2], "%y = add %e 1.0"], id="sum"), *(pytest.param("gelu", [*SUM, *rest], id=name) for name, rest in GELU.items())]
EDGES = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 0.125, -0.125, 0.375, 2.125, -2.125, 5.25, 5.625, -5.625, 7.75, -7.75, np.nextafter(np.float32(-7.75), np.float32(-8)),
                  -5.4, -6.0, 7.9, -14.0, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


def arguments(n):
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * 2.0 ** rng.uniform(-20, 2.5, n)).astype(np.float32)
    x[:len(EDGES)] = EDGES[:n]
    return x


def takes(koine, tmp_path, lines, level):
    """The sets of rules that the kernel's instructions come from."""
    p = tmp_path / "p.kn"
    p.write_text(text(lines, (4096,)))
    out = koine("compile", p, "--target", "x86", env={"KN_CPU": level, "KN_THREADS": "1"}).stdout
    return set(re.findall(r"\b(gelu32|erfc32|scale32|math32)\.(?!kr)", out))


@pytest.mark.runs("avx512")
@pytest.mark.parametrize("what, lines", FORMS)
@pytest.mark.parametrize("n", [1, 5, 37, 100000])
def test_right(koine, tmp_path, what, lines, n):
    x = arguments(n)
    got = run(koine, tmp_path, lines, x, "avx512").astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = np.array([math.erfc(-v * C) for v in x.astype(np.float64)]) * (x.astype(np.float64) / 2 if what == "gelu" else 1)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(want)).all()
    ok = np.isfinite(want) & np.isfinite(x)
    unit = np.maximum(2.0**-24 * (np.abs(x[ok].astype(np.float64)) / 2 if what == "gelu" else 1), 2.0**-149)
    assert (np.abs(got[ok] - want[ok]) < UNITS[what] * unit).all()
    rounded = (got[ok] == 0) & ((x[ok] < -5.6) | (np.abs(x[ok]) == np.float32(1e-45)))  # of either sign
    assert (np.signbit(got[ok]) == np.signbit(want[ok]))[~rounded].all()
    if n > len(EDGES) and what == "phi":
        ends = got[:len(EDGES)]
        assert (ends[EDGES <= -6] == 0).all() and (ends[EDGES > 6] == 2).all()


@pytest.mark.parametrize("what, lines", FORMS)
def test_as_a_whole(koine, tmp_path, what, lines):
    sets = takes(koine, tmp_path, lines, "avx512")
    assert sets == ({"gelu32", "erfc32"} if what == "gelu" else {"erfc32"})
    assert takes(koine, tmp_path, lines, "avx2") == {"math32"}


@pytest.mark.parametrize("lines", [["%c = mul %x 0.70710671", "%e = erf %c", "%y = add %e 1.0"], ["%e = erf %x", "%y = add %e 1.0"], [*SUM[:2], "%y = sub 1.0 %e"]],
                         ids=["another number", "of x itself", "1 - erf"])
def test_what_it_is_not(koine, tmp_path, lines):
    assert "scale32" in takes(koine, tmp_path, lines, "avx512")
