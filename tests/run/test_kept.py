"""Programs of machine code are kept on disk: the second process neither lowers nor compiles, and whatever happened to the file,
the answer is the same."""
import re

import pytest

from damage import damages

EXAMPLES = ["attention", "conv", "cumsum", "gather", "scatter", "softmax"]


@pytest.fixture
def run(koine, tmp_path):
    def go(program, **env):
        env = {"KN_CODE": "x86", "KN_CACHE": str(tmp_path / "cache"), "KN_VERIFY": "0", **env}
        r = koine("run", program, env=env)
        kernels, cached = map(int, re.search(r"\((\d+) kernels, (\d+) cached\)", r.stderr).groups())
        return r.stdout, kernels, cached
    return go


def files(tmp_path):
    return sorted((tmp_path / "cache").glob("*.kn"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_second_process_compiles_nothing(run, root, name):
    program = root / "examples" / f"{name}.kn"
    first, n, cached = run(program)
    again, m, found = run(program)
    assert again == first and n == m > 0 and cached == 0 and found == n


def test_what_it_depends_on(run, root, tmp_path):
    """Another number of threads, another program: another file."""
    program = root / "examples/softmax.kn"
    for k, env in enumerate([{}, {"KN_THREADS": "7"}, {"KN_STREAM": "4096"}, {"KN_AHEAD": "8192"}, {"KN_ALONE": "1"}]):
        assert run(program, **env)[2] == 0 and len(files(tmp_path)) == k + 1
    assert run(program, KN_THREADS="7")[2] == 1
    assert run(root / "examples/layernorm.kn")[2] == 0 and len(files(tmp_path)) == 6


@pytest.mark.runs("avx2")
def test_it_depends_on_the_level(run, root):
    for found in (0, 1):
        assert [run(root / "examples/softmax.kn", KN_CPU=level)[2] for level in ("avx2", "sse2")] == [found, found]


def test_who_looks_at_the_stages_sees_them_run(koine, run, root, tmp_path):
    program = root / "examples/softmax.kn"
    run(program)
    r = koine("run", program, env={"KN_CODE": "x86", "KN_CACHE": str(tmp_path / "cache"), "KN_VERIFY": "0", "KN_DEBUG": "rangeify"})
    assert "koine 1 rangeify" in r.stderr and "0 cached" in r.stderr
    assert run(program, KN_VERIFY="1")[2] == 0


def test_a_damaged_file_is_made_again(run, root, tmp_path):
    program = root / "examples/softmax.kn"
    want, _, _ = run(program)
    file, = files(tmp_path)
    good = file.read_bytes()
    for bad in [*damages(good, 3, 12, 24), good[::-1]]:
        file.write_bytes(bad)
        assert run(program)[::2] == (want, 0)
        assert file.read_bytes() == good
    assert run(program)[::2] == (want, 1)


def test_a_file_under_another_name(run, root, tmp_path):
    """A sound file of another program is not taken."""
    a, b = root / "examples/softmax.kn", root / "examples/layernorm.kn"
    run(a)
    of_a, = files(tmp_path)
    want, _, _ = run(b)
    of_b, = set(files(tmp_path)) - {of_a}
    of_b.write_bytes(of_a.read_bytes())
    assert run(b)[::2] == (want, 0)


def test_a_file_that_others_could_have_written(run, root, tmp_path):
    program = root / "examples/softmax.kn"
    want, _, _ = run(program)
    file, = files(tmp_path)
    file.chmod(0o666)
    assert run(program)[::2] == (want, 0)


def test_no_folder(run, root, tmp_path):
    program = root / "examples/softmax.kn"
    want, _, _ = run(program)
    assert run(program, KN_CACHE="off")[::2] == (want, 0)
    (tmp_path / "file").write_text("not a folder")
    assert run(program, KN_CACHE=str(tmp_path / "file"))[::2] == (want, 0)


SWAPPED = """koine 1 tensor
%x = param "x" : f32 [64]
%a = mul %x %x
%b = add %x 1.0
in "x" = %x
out "{0}" = {1}
out "{2}" = {3}
"""


def test_ports_belong_to_the_program(run, tmp_path):
    """The same graph, its results in another order and under other names."""
    got = []
    for k, names in enumerate([("a", "%a", "b", "%b"), ("b", "%b", "a", "%a"), ("b", "%a", "a", "%b")]):
        p = tmp_path / f"{k}.kn"
        p.write_text(SWAPPED.format(*names))
        for _ in range(2):
            got.append(dict(line.split(" : ") for line in run(p)[0].splitlines()))
    assert got[0] == got[1] == got[2] == got[3]
    assert got[4] == got[5] == {"a": got[0]["b"], "b": got[0]["a"]}


def test_training_is_found_again(koine, tmp_path):
    def train():
        r = koine("train", "digits", "--steps", "3", env={"KN_CODE": "x86", "KN_CACHE": str(tmp_path / "cache"), "KN_VERIFY": "0"})
        return re.search(r"test accuracy.*", r.stdout).group(), r.stdout
    first, _ = train()
    again, _ = train()
    assert first == again and files(tmp_path)
