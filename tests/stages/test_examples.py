"""Every example at every stage: what a stage prints runs to the same bits, lowers on to the same text, and means the same
to the interpreter; the C compiles alone."""
import shutil
import subprocess
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.kn"))
STAGES = ["callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render"]


def ids(p):
    return p.stem


@pytest.fixture(scope="module")
def once(koine_session):
    """Results that several stages of one example share."""
    cache = {}

    def get(example, what):
        if (example, what) not in cache:
            if what == "run":
                cache[example, what] = koine_session("run", example, "--json").stdout
            elif what == "render":
                cache[example, what] = koine_session("compile", example).stdout
            elif what == "values":
                cache[example, what] = values(koine_session, example, None, "CPU")
        return cache[example, what]
    return get


def outputs(koine, example):
    """Names of the outputs."""
    import json
    return [json.loads(line)["output"] for line in koine("run", example, "--json", "--device", "NULL").stdout.splitlines()]


def values(koine, example, stdin, device):
    names = outputs(koine, example)
    args = [a for i, n in enumerate(names) for a in ("--out", f"{n}={example.stem}.{i}.npy")]
    koine("run", example if stdin is None else "-", "--device", device, *args, stdin=stdin)
    return [np.load(koine.cwd / f"{example.stem}.{i}.npy") for i in range(len(names))]


def test_there_are_enough():
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_stage(koine, once, example, stage):
    text = koine("compile", example, "--to", stage).stdout
    assert text.startswith(f"koine 1 {stage}\n")
    assert koine("compile", "-", "--to", stage, stdin=text).stdout == text, "print o parse is not the identity"
    assert koine("run", "-", "--json", stdin=text).stdout == once(example, "run"), "other bits than from the start"
    assert koine("compile", "-", stdin=text).stdout == once(example, "render"), "lowering on gives another text"


@pytest.mark.parametrize("stage", ["tensor"] + STAGES)
@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_interpreter_agrees(koine, once, example, stage):
    text = koine("compile", example, "--to", stage).stdout
    for got, want in zip(values(koine, example, text, "INTERP"), once(example, "values")):
        if want.dtype.kind in "fV" and want.dtype.kind != "V":
            assert np.allclose(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)
        else:
            assert np.array_equal(got, want)


@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_c_compiles_alone(koine, example, tmp_path):
    source = koine("compile", example, "--target", "c").stdout
    (tmp_path / "k.c").write_text(source)
    for cc in ("cc", "gcc", "clang"):
        if shutil.which(cc):
            r = subprocess.run([cc, "-c", "k.c", "-o", "k.o"], cwd=tmp_path, capture_output=True, text=True)
            assert r.returncode == 0, f"{cc}: {r.stderr[:2000]}"


def test_a_stage_cannot_be_undone(koine):
    text = koine("compile", EXAMPLES[0], "--to", "expand").stdout
    r = koine("compile", "-", "--to", "rangeify", stdin=text, ok=False)
    assert r.returncode == 1 and "at stage expand already" in r.stderr


def test_a_file_is_an_input(koine, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "p.kn").write_text('koine 1 tensor\n%x = param "x" slot=0 : f32 [3, 4]\n%y = mul %x %x\nout "y" = %y\n')
    koine("run", "p.kn", "--in", "x=x.npy", "--out", "y=y.npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), x * x)
    np.save(tmp_path / "x.npy", np.asfortranarray(x).astype(">f4"))
    koine("run", "p.kn", "--in", "x=x.npy", "--out", "y=y.npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), x * x)


@pytest.mark.parametrize("args, what", [
    (["--in", "z=x.npy"], "no such input; it has x"),
    (["--out", "z=y.npy"], "no such output; it has y"),
    (["--in", "x"], "expected NAME=FILE"),
    (["--in", "x=x.npy"], "holds f64 (3, 4), input x is f32 (3, 4)"),
    (["--in", "x=none.npy"], "cannot read none.npy"),
    (["--in", "x=p.kn"], "not an npy file"),
    (["--out", "y=/nonexistent/y.npy"], "cannot write /nonexistent/y.npy"),
    (["--device", "TPU"], "TPU"),
])
def test_wrong_inputs_are_told(koine, tmp_path, args, what):
    np.save(tmp_path / "x.npy", np.zeros((3, 4)))
    (tmp_path / "p.kn").write_text('koine 1 tensor\n%x = param "x" slot=0 : f32 [3, 4]\n%y = mul %x %x\nout "y" = %y\n')
    r = koine("run", "p.kn", *args, ok=False)
    assert r.returncode != 0 and what in r.stderr, r.stderr


@pytest.mark.parametrize("stage", ["tensor"] + STAGES)
def test_a_read_is_made_whether_its_loop_runs_or_not(koine, stage):
    """What does not depend on a loop is computed outside, as in the tensor program: w[n - 1] with n = 0 is an error of the
    program after every stage, and not one that a stage brings in."""
    program = ('koine 1 tensor\n%n = param "n" bounds=[0, 8] : index\n%x = param "x" : f32 [8]\n%w = param "w" : f32 [8]\n'
               '%m = sub %n 1\n%c = index %w %m\n%s = shrink %x (0) (%n)\n%r = reshape %c (1)\n%e = expand %r (%n)\n'
               '%q = mul %s %e\n%t = reduce add %q axes=(0)\nout "y" = %t\n')
    text = koine("compile", "-", "--to", stage, stdin=program).stdout
    assert "[" in koine("run", "-", "--device", "INTERP", "--in", "n=1", stdin=text).stdout
    r = koine("run", "-", "--device", "INTERP", "--in", "n=0", stdin=text, ok=False)
    assert r.returncode == 1 and "KN4503" in r.stderr and "index -1 is outside" in r.stderr


DTYPES = ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64", "index"]


@pytest.mark.parametrize("stage", ["tensor"] + STAGES)
def test_scalar_inputs_of_every_dtype(koine, stage):
    """A scalar param is a variable from the tensor graph on: its value arrives at launch, whatever its dtype."""
    lines = [f'%{t}_x = param "x.{t}" {"slot=%d" % i if i % 2 else ""} : {t} []\n%{t}_y = max %{t}_x {"false" if t == "bool" else 1}:{t}\n'
             f'out "y.{t}" = %{t}_y\n' for i, t in enumerate(DTYPES)]
    text = koine("compile", "-", "--to", stage, stdin="koine 1 tensor\n" + "".join(lines)).stdout
    given = [a for t in DTYPES for a in ("--in", f"x.{t}={1 if t == 'bool' else 3}")]
    for device in ("CPU", "INTERP"):
        out = koine("run", "-", "--device", device, *given, stdin=text).stdout
        assert [line.split("  ")[-1] for line in out.splitlines()] == ["[true]"] + ["[3]"] * (len(DTYPES) - 1), device


@pytest.mark.parametrize("dtype, value, what", [
    ("i32", "2.5", "expected a whole number"), ("u8", "256", "from 0 to 255"), ("i8", "-129", "from -128 to 127"),
    ("bool", "2", "from 0 to 1"), ("u64", "-1", "from 0 to 18446744073709551615"), ("f32", "abc", "neither a number nor a file"),
])
def test_a_scalar_that_does_not_fit_is_told(koine, dtype, value, what):
    text = f'koine 1 tensor\n%x = param "x" : {dtype} []\n%y = max %x %x\nout "y" = %y\n'
    r = koine("run", "-", "--in", f"x={value}", stdin=text, ok=False)
    assert r.returncode == 1 and what in r.stderr, r.stderr


def test_made_up_inputs_follow_the_seed_and_the_range(koine, tmp_path):
    (tmp_path / "p.kn").write_text('koine 1 tensor\n%x = param "x" slot=0 : f32 [1000]   in [2, 3]\n'
                                   '%i = param "i" slot=1 : i32 [1000]   in [-1, 4]\n%y = mul %x %x\n%j = add %i %i\n'
                                   'out "y" = %y\nout "j" = %j\n')
    a = koine("run", "p.kn", "--out", "y=y.npy", "--out", "j=j.npy")
    y, j = np.load(tmp_path / "y.npy"), np.load(tmp_path / "j.npy")
    assert y.min() >= 4 and y.max() <= 9 and y.std() > 1
    assert set(j) == {-2, 0, 2, 4, 6, 8}
    assert koine("run", "p.kn").stdout == koine("run", "p.kn", "--seed", 0).stdout
    assert koine("run", "p.kn").stdout != koine("run", "p.kn", "--seed", 1).stdout
    assert a.stdout == ""
    assert "run" in a.stderr and "compile" in a.stderr
