"""Large shapes, of which random programs have none: whatever the machine is like the heuristics choose something, and what they would like besides but
must not do, which is refused, does not cost what was chosen before. Kernels are only compiled."""
import random
import resource

import pytest

SIZES = [1, 2, 3, 7, 16, 48, 64, 100, 127, 128, 300, 519, 1000, 2048, 4096, 5000, 8192, 50257, 100000, 400000]
AHEAD = ["0", "64", "16384"]


def shape(rng):
    while True:
        dims = [rng.choice(SIZES) for _ in range(rng.choice([2, 2, 3]))]
        n = 1
        for d in dims:
            n *= d
        if 1 << 18 < n < 1 << 30 and dims[-1] > 7 and dims[0] > 7:
            return dims


def program(rng):
    """Of a part of x, perhaps, with its axes in some order: a function, a sum or a maximum, a softmax, what it divides by, or deviations."""
    dims = shape(rng)
    text, x = f'koine 1 tensor\n%x = param "x" : f32 {dims}\n', "%x"
    if rng.random() < 0.4:
        part = [rng.choice([d, max(1, d // 2), min(d, 64), max(1, d - 1)]) for d in dims]
        text += f"%s = shrink {x} ({listed(rng.randrange(d - p + 1) for d, p in zip(dims, part))}) ({listed(part)})\n"
        x, dims = "%s", part
    if rng.random() < 0.3:
        order = rng.sample(range(len(dims)), len(dims))
        text += f"%p = permute {x} order=({listed(order)})\n"
        x, dims = "%p", [dims[i] for i in order]
    axis, to = rng.randrange(len(dims)), listed(dims)
    largest = f"%m = reduce max {x} axes=({axis})\n%b = expand %m ({to})\n%d = sub {x} %b\n%e = exp %d\n%t = reduce add %e axes=({axis})\n"
    text += rng.choice([
        f"%y = exp {x}\n",
        f"%y = reduce add {x} axes=({axis})\n",
        f"%y = reduce max {x} axes=({axis})\n",
        f"{largest}%y = log %t\n",
        f"{largest}%u = expand %t ({to})\n%y = div %e %u\n",
        f"%m = reduce add {x} axes=({axis})\n%b = expand %m ({to})\n%d = sub {x} %b\n%q = mul %d %d\n%v = reduce add %q axes=({axis})\n"
        f"%w = expand %v ({to})\n%y = mul %d %w\n",
    ])
    return text + 'out "y" = %y\n'


def listed(numbers):
    return ", ".join(map(str, numbers))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("threads", ["1", "2"])
def test_something_is_chosen(koine, tmp_path, seed, threads):
    rng, p = random.Random(seed), tmp_path / "p.kn"
    for _ in range(20):
        p.write_text(program(rng))
        made = [koine("compile", p, "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": "avx512", "KN_THREADS": threads, "KN_AHEAD": a}).stdout for a in AHEAD]
        assert len({"opts=" in m for m in made}) == 1, p.read_text()


def columns(nests, rows, cols):
    """A maximum and a sum of each column of products of one array, all in one kernel."""
    text = f'koine 1 tensor\n%x = param "x" : f32 [{rows}, {cols}]\n'
    for i in range(nests):
        text += f'%q{i} = mul %x {1.0 + i}\n%m{i} = reduce max %q{i} axes=(0)\n%s{i} = reduce add %q{i} axes=(0)\n'
    return text + "".join(f'out "{r}{i}" = %{r}{i}\n' for i in range(nests) for r in "ms")


def seconds(koine, path, text, cpu):
    """Of the processor's time, to choose: the least of three."""
    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        koine("compile", path, "--to", "optimize", env={"KN_CODE": "x86", "KN_CPU": cpu, "KN_THREADS": 1})
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    path.write_text(text)
    return min(once() for _ in range(3))


@pytest.mark.parametrize("cpu", ["avx512", "avx2"])
def test_what_is_asked_for_is_chosen_fast(koine, tmp_path, cpu):
    """Nobody asks for what a cache has, so choosing that for a small array takes no time: a large one in as many nests takes little more."""
    small, large = (seconds(koine, tmp_path / "p.kn", columns(8, *shape), cpu) for shape in [(64, 128), (4096, 4096)])
    assert large < 10 * small + 0.05


def shuffled(pieces):
    """Of one array, pieces in another order."""
    text, whole = f'koine 1 tensor\n%x = param "x" : f32 [{64 * pieces}, 100]\n', "%p0"
    for i in range(pieces):
        text += f"%c{i} = shrink %x ({64 * (7 * i % pieces)}, 0) (64, 100)\n%p{i} = pad %c{i} ({64 * i}, 0) ({64 * pieces}, 100)\n"
        if i:
            text, whole = text + f"%s{i} = add {whole} %p{i}\n", f"%s{i}"
    return text + f'out "y" = {whole}\n'


def test_many_pieces_are_chosen_fast(koine, tmp_path):
    """Each is read and compared for by itself; what is asked of all of them is asked once. Eight times as many take little more than eight times."""
    few, many = (seconds(koine, tmp_path / "p.kn", shuffled(n), "avx512") for n in (512, 4096))
    assert many < 20 * few + 0.05
