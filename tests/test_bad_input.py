"""Misuses of the command: malformed text, wrong files, wrong options. Each gives one clear message with a number and a
remedy, exit code 1 or 2, nothing on standard output and no crash. Those of the C API are in test_bad_input.c."""
import re

import pytest

H = "koine 1 tensor\n"
X = '%x = param "x" : f32 [4, 4]\n'
O = 'out "y" = %y\n'

# name, text, place, part of the message
TEXTS = [
    ("empty file", "", None, ""),
    ("no header", X + "%y = neg %x\n" + O, 1, ""),
    ("another version", "koine 9 tensor\n" + X, 1, ""),
    ("unknown stage", "koine 1 tensr\n" + X, 1, "tensor"),
    ("unknown op", H + X + "%y = ngg %x\n" + O, 3, "neg"),
    ("unknown name", H + X + "%y = neg %z\n" + O, 3, "%z"),
    ("name used above its line", H + "%y = neg %x\n" + X + O, 2, "%x"),
    ("name defined twice", H + X + X + "%y = neg %x\n" + O, 3, "%x"),
    ("too few operands", H + X + "%y = add %x\n" + O, 3, "add"),
    ("too many operands", H + X + "%y = neg %x %x\n" + O, 3, "neg"),
    ("dtypes differ", H + X + '%z = param "z" : i32 [4, 4]\n%y = add %x %z\n' + O, 4, "f32 and i32"),
    ("shapes differ", H + X + '%z = param "z" : f32 [4, 5]\n%y = add %x %z\n' + O, 4, "(4, 5)"),
    ("ranks differ", H + X + '%z = param "z" : f32 [4]\n%y = add %x %z\n' + O, 4, "(4,)"),
    ("a float op on integers", H + '%x = param "x" : i32 [4]\n%y = exp %x\n' + O, 3, "float"),
    ("an integer op on floats", H + X + "%y = xor %x %x\n" + O, 3, "integer"),
    ("a condition that is no bool", H + X + "%y = where %x %x %x\n" + O, 3, "bool"),
    ("the wrong type is stated", H + X + "%y = neg %x : f32 [4, 5]\n" + O, 3, "f32"),
    ("the wrong dtype is stated", H + X + "%y = neg %x : f16\n" + O, 3, "f16"),
    ("unknown dtype", H + '%x = param "x" : f31 [4]\n' + O, 2, "f31"),
    ("reshape to another size", H + X + "%y = reshape %x (5, 5)\n" + O, 3, "16"),
    ("expand of an axis that is not 1", H + X + "%y = expand %x (4, 8)\n" + O, 3, "axis 1"),
    ("permute with a repeated axis", H + X + "%y = permute %x order=(0, 0)\n" + O, 3, "permute"),
    ("flip of an axis there is not", H + X + "%y = flip %x axes=(7)\n" + O, 3, "flip"),
    ("pad that does not fit", H + X + "%y = pad %x (3, 0) (5, 4)\n" + O, 3, "pad"),
    ("shrink behind the end", H + X + "%y = shrink %x (3, 0) (2, 4)\n" + O, 3, "shrink"),
    ("reduce of an axis there is not", H + X + "%y = reduce add %x axes=(4)\n" + O, 3, "axis"),
    ("reduce by another op", H + X + "%y = reduce sub %x axes=(0)\n" + O, 3, "sub"),
    ("stack of different shapes", H + X + '%z = param "z" : f32 [4]\n%y = stack %x %z\n' + O, 4, "stack"),
    ("more indices than axes", H + X + "%y = index %x 0 0 0\n" + O, 3, "rank 2"),
    ("bitcast that does not divide", H + '%x = param "x" : f32 [3]\n%y = bitcast %x : f64\n' + O, 3, "bitcast"),
    ("negative size", H + '%x = param "x" : f32 [-4]\n' + O, 2, ""),
    ("absurd size", H + '%x = param "x" : f32 [9999999999999999999999]\n' + O, 2, ""),
    ("absurd product of sizes", H + '%x = param "x" : f32 [1000000000000, 1000000000000]\n' + O, 2, ""),
    ("too many axes", H + '%x = param "x" : f32 [' + ", ".join(["1"] * 40) + "]\n" + O, 2, ""),
    ("a number that does not fit", H + '%x = param "x" : u8 [4]\n%y = add %x 300\n' + O, 3, "300"),
    ("a fraction for an integer", H + '%x = param "x" : i32 [4]\n%y = add %x 1.5\n' + O, 3, "1.5"),
    ("a literal without dtype", H + "%y = add 1 2\n" + O, 2, ""),
    ("an unknown key", H + X + "%y = neg %x colour=3\n" + O, 3, "colour"),
    ("an open string", H + '%x = param "x : f32 [4]\n', 2, ""),
    ("a stray character", H + X + "%y = neg %x ;\n" + O, 3, ""),
    ("an output without a value", H + X + 'out "y" =\n', 3, ""),
    ("no output", H + X, None, ""),
    ("an output that is no name", H + X + 'out "y" = 5\n', 3, ""),
    ("a range that is none", H + '%x = param "x" : f32 [4] in [3, 1]\n%y = neg %x\n' + O, 2, ""),
    ("a later stage without a root", "koine 1 plan\n" + X, None, ""),
    ("binary rubbish", "\x01\x02\x7f\x00", None, ""),
]


def one_message(r):
    """One message: its first line names what went wrong, then details, then a hint."""
    assert r.returncode in (1, 2), (r.returncode, r.stdout[:300], r.stderr[:300])
    assert not r.stdout, r.stdout[:300]
    assert len(re.findall(r"\bKN\d{4}: ", r.stderr.split("ill-formed node")[0])) <= 1, r.stderr
    return r.stderr


@pytest.mark.parametrize("name, text, line, what", TEXTS, ids=[t[0] for t in TEXTS])
def test_malformed_text(koine_session, name, text, line, what):
    err = one_message(koine_session("compile", "-", "--to", "render", stdin=text, ok=False))
    assert re.search(r"KN\d{4}: ", err) and "hint: " in err, err
    assert what in err, err
    if line:
        assert f"standard input:{line}:" in err, err


FILES = [
    ("missing program", ["run", "none.kn"], "none.kn"),
    ("a folder", ["run", "."], "."),
    ("missing input", ["run", "p.kn", "--in", "x=none.npy"], "none.npy"),
    ("input that is no npy", ["run", "p.kn", "--in", "x=p.kn"], "npy"),
    ("truncated npy", ["run", "p.kn", "--in", "x=short.npy"], "short.npy"),
    ("npy of another shape", ["run", "p.kn", "--in", "x=other.npy"], "(2,)"),
    ("input there is not", ["run", "p.kn", "--in", "q=other.npy"], "it has x"),
    ("output there is not", ["run", "p.kn", "--out", "q=q.npy"], "it has y"),
    ("output into no folder", ["run", "p.kn", "--out", "y=none/q.npy"], "none/q.npy"),
    ("no such device", ["run", "p.kn", "--device", "TPU"], "TPU"),
    ("no such stage", ["compile", "p.kn", "--to", "rangfy"], "rangeify"),
    ("a stage that is past", ["compile", "q.kn", "--to", "callify"], "already"),
    ("no such verb", ["complie", "p.kn"], "compile"),
    ("no such option", ["run", "p.kn", "--sede", "3"], "--seed"),
    ("a seed that is no number", ["run", "p.kn", "--seed", "x"], "whole number"),
]


@pytest.fixture(scope="module")
def folder(koine_session):
    cwd = koine_session.cwd
    (cwd / "p.kn").write_text(H + X + "%y = neg %x\n" + O)
    (cwd / "q.kn").write_text(koine_session("compile", "p.kn", "--to", "plan").stdout)
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"

    def npy(shape, data):
        h = head % shape
        h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
        return b"\x93NUMPY\x01\x00" + len(h).to_bytes(2, "little") + h + data
    (cwd / "short.npy").write_bytes(npy(b"4, 4", b"\0" * 10))
    (cwd / "other.npy").write_bytes(npy(b"2,", b"\0" * 8))
    return cwd


@pytest.mark.parametrize("name, args, what", FILES, ids=[f[0] for f in FILES])
def test_wrong_files_and_options(koine_session, folder, name, args, what):
    err = one_message(koine_session(*args, ok=False, cwd=folder))
    assert what in err, err
    assert len(err.splitlines()) <= 6, err


def test_there_are_a_hundred(root):
    api = (root / "tests/test_bad_input.c").read_text()
    n = len(re.findall(r"^    (?:BAD|BAD_STATUS|told|rule)\(\"", api, re.M))
    assert n + len(TEXTS) + len(FILES) >= 100
