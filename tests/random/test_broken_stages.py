"""A stage with a mistake in it is found by random programs: one mistake a stage, all with DEFECTS=all."""
import os

import pytest

from broken_stages import DEFECTS, MOST, patched, programs_until_found

ALL = os.environ.get("DEFECTS") == "all"
FIRST = list({d.stage: d for d in reversed(DEFECTS)}.values())


@pytest.mark.parametrize("defect", DEFECTS, ids=str)
def test_defect_is_still_one(defect):
    assert defect.before != defect.after
    patched(defect)


@pytest.mark.parametrize("defect", DEFECTS if ALL else FIRST, ids=str)
def test_random_programs_find(defect, sanitized):
    if sanitized:
        pytest.skip("finds nothing more under a sanitizer")
    n, how = programs_until_found(defect)
    assert n, f"{defect} is not found within {MOST} programs\n{how}"


def test_every_stage_has_three():
    for stage in ("callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render", "machine code", "interpreter"):
        assert sum(d.stage == stage for d in DEFECTS) >= 3, stage
