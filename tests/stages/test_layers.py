"""A network of equal layers: what is found out of an index in one of them is not found out again in the next."""
import re

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
