"""A network of equal layers: what is found out of an index in one of them is not found out again in the next."""
import re

import pytest

LAYER = """%h{o} = reshape %x{i} (16, 4, 24)
%p{o} = permute %h{o} order=(1, 0, 2)
%q{o} = reshape %p{o} (4, 24, 16)
%w{o} = param "w{o}" : f32 [4, 24, 24]
%qe{o} = reshape %q{o} (4, 24, 1, 16)
%qx{o} = expand %qe{o} (4, 24, 24, 16)
%we{o} = reshape %w{o} (4, 24, 24, 1)
%wx{o} = expand %we{o} (4, 24, 24, 16)
%m{o} = mul %qx{o} %wx{o}
%s{o} = reduce add %m{o} axes=(1)
%r{o} = reshape %s{o} (4, 16, 24)
%t{o} = permute %r{o} order=(1, 0, 2)
%f{o} = reshape %t{o} (16, 96)
%e{o} = exp %f{o}
%n{o} = reduce add %e{o} axes=(1)
%nx{o} = expand %n{o} (16, 96)
%x{o} = div %e{o} %nx{o}
"""


def rewrites(koine, tmp_path, layers):
    text = 'koine 1 tensor\n%x0 = param "x" : f32 [16, 96]\n' + "".join(LAYER.format(i=k, o=k + 1) for k in range(layers))
    path = tmp_path / f"{layers}.txt"
    out = koine("compile", "-", "--to", "rangeify", stdin=text + f'out "y" = %x{layers}\n', env={"KN_TRACE": path}).stdout
    kernels = len(re.findall(r"= call ", out))
    ours = [line for line in path.read_text().splitlines() if line.startswith("rangeify ")]
    index = [line for line in ours if not line.split()[1].startswith(("push.", "prepare."))]
    return kernels, len(index)


def test_index_arithmetic_is_done_once(koine, tmp_path):
    few, some = rewrites(koine, tmp_path, 4)
    many, more = rewrites(koine, tmp_path, 12)
    assert many == 3 * few and some
    assert more == some, f"{some} rewrites of indices for 4 layers, {more} for 12"


NESTS = """koine 1 tensor
%a = param "a" : f32 [6, 8] in [-4, 4]
%b = param "b" : f32 [6, 8] in [-4, 4]
%w = param "w" : f32 [9, 8] in [-4, 4]
"""
# One nest, and others that differ from it in one thing: what is read, a constant, an op, where it is read, which of two is which.
ONE = ("{v}r = sub {x} {y}\n{v}s = mul {v}r {c}\n{v}o = reduce {op} {v}s axes=(1)\n", {"x": "%a", "y": "%b", "c": "2.0", "op": "add"})
OTHERS = [{}, {"c": "3.0"}, {"op": "max"}, {"x": "%b", "y": "%a"}, {"y": "%a"}, {"y": "%fb"}, {"y": "%w0"}, {"y": "%w3"}, {"c": "%b"}]


def test_nests_that_differ_are_not_taken_for_each_other(koine):
    np = pytest.importorskip("numpy")
    text = NESTS + "%fb = flip %b axes=(1)\n%w0 = shrink %w (0, 0) (6, 8)\n%w3 = shrink %w (3, 0) (6, 8)\n"
    text += "".join(ONE[0].format(v=f"%v{k}", **ONE[1] | o) for k, o in enumerate(OTHERS))
    text += "".join(f'out "y{k}" = %v{k}o\n' for k in range(len(OTHERS)))
    (koine.cwd / "nests.kn").write_text(text)
    got = {}
    for device in ("CPU", "INTERP"):
        out = [a for k in range(len(OTHERS)) for a in ("--out", f"y{k}={device}{k}.npy")]
        koine("run", "nests.kn", "--device", device, *out)
        got[device] = [np.load(koine.cwd / f"{device}{k}.npy") for k in range(len(OTHERS))]
    for k, (x, y) in enumerate(zip(got["CPU"], got["INTERP"])):
        assert np.allclose(x, y, rtol=1e-5, atol=1e-5), OTHERS[k]
