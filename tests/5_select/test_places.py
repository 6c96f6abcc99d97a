"""An accumulator's parts are places and one list of lanes' numbers, however many they are: constants once took half of select's time."""
import re

import pytest


@pytest.mark.parametrize("stage, most", [("expand", 4), ("select", 1)])
def test_lists_are_of_one_axis(koine, root, stage, most):
    env = {"KN_CPU": "avx512", "KN_THREADS": 1, "KN_CODE": "x86"}
    out = koine("compile", root / "examples/matmul.kn", "--target", "x86", "--to", stage, env=env).stdout
    lists = {m for m in re.findall(r"\((\d+(?:, \d+)+)\)", out) if len(m.split(",")) > 4}
    assert 0 < len(lists) <= most and max(len(m.split(",")) for m in lists) == 16  # else 640 of expand, a list a part of select
