"""What is chosen does not depend on the order in which equal loops stand: else one SWAP undoes the other, for ever."""
import re

PROGRAM = """koine 1 tensor
%a = param "a" : f32 [64, 96, 64]
%b = param "b" : f32 [128, 96]
%p = permute %a order=(0, 2, 1)
%1 = reshape %p (64, 64, 1, 96)
%2 = expand %1 (64, 64, 128, 96)
%3 = reshape %b (1, 1, 128, 96)
%4 = expand %3 (64, 64, 128, 96)
%5 = mul %2 %4
%6 = reduce add %5 axes=(3)
%7 = reshape %6 (64, 64, 128)
out "y" = %7
"""


def test_two_loops_of_one_length_beside_a_packed_operand(koine, tmp_path):
    (tmp_path / "p.kn").write_text(PROGRAM)
    r = koine("compile", tmp_path / "p.kn", "--to", "optimize", env={"KN_THREADS": "1"})
    opts = re.search(r"opts=\[(.*)\]", r.stdout)[1].split(", ")
    assert [o for o in opts if o.startswith("stage")] and len([o for o in opts if o.startswith("swap")]) < 4
