"""Misuses of the command: malformed text, wrong files, wrong options. Each gives one clear message with a number and a
remedy, exit code 1 or 2, nothing on standard output and no crash. Those of the C API are in test_bad_input.c."""
import gzip
import re
import struct

import pytest

H = "koine 1 tensor\n"
X = '%x = param "x" : f32 [4, 4]\n'
O = 'out "y" = %y\n'
LOOP = "%r = range 0 LOOP 4\n%y = index %x %r %r\n"
CALLIFY = ("koine 1 callify\n%p = param slot=0 : f32 [8]\n%n = neg %p\n%s = sqrt %p\n%t = tuple %n %s\n%b = buffer 0 GLOBAL size=8 : f32 [8]\n"
           "%f = function %t %b\n%y = gettuple %f at=0\n%z = gettuple %f at=1\nin \"x\" = %b : f32 [8]\nroot %f\n")
Y, Z = 'out "y" = %y : f32 [8]\n', 'out "z" = %z : f32 [8]\n'
# name, text, number, line, part of the message
TEXTS = [
    ("empty file", "", 2002, None, ""),
    ("no header", X + "%y = neg %x\n" + O, 2002, 1, ""),
    ("another version", "koine 9 tensor\n" + X, 2003, 1, ""),
    ("unknown stage", "koine 1 tensr\n" + X, 2004, 1, "tensor"),
    ("unknown op", H + X + "%y = ngg %x\n" + O, 2006, 3, "neg"),
    ("unknown name", H + X + "%y = neg %z\n" + O, 2007, 3, "%z"),
    ("name used above its line", H + "%y = neg %x\n" + X + O, 2007, 2, "%x"),
    ("name defined twice", H + X + X + "%y = neg %x\n" + O, 2008, 3, "%x"),
    ("too few operands", H + X + "%y = add %x\n" + O, 1001, 3, "add"),
    ("too many operands", H + X + "%y = neg %x %x\n" + O, 1001, 3, "neg"),
    ("dtypes differ", H + X + '%z = param "z" : i32 [4, 4]\n%y = add %x %z\n' + O, 1003, 4, "f32 and i32"),
    ("shapes differ", H + X + '%z = param "z" : f32 [4, 5]\n%y = add %x %z\n' + O, 1005, 4, "(4, 5)"),
    ("ranks differ", H + X + '%z = param "z" : f32 [4]\n%y = add %x %z\n' + O, 1005, 4, "(4,)"),
    ("a float op on integers", H + '%x = param "x" : i32 [4]\n%y = exp %x\n' + O, 1004, 3, "float"),
    ("an integer op on floats", H + X + "%y = xor %x %x\n" + O, 1004, 3, "integer"),
    ("a condition that is no bool", H + X + "%y = where %x %x %x\n" + O, 1004, 3, "bool"),
    ("the wrong type is stated", H + X + "%y = neg %x : f32 [4, 5]\n" + O, 2017, 3, "f32"),
    ("the wrong dtype is stated", H + X + "%y = neg %x : f16\n" + O, 2017, 3, "f16"),
    ("unknown dtype", H + '%x = param "x" : f31 [4]\n' + O, 2016, 2, "f31"),
    ("reshape to another size", H + X + "%y = reshape %x (5, 5)\n" + O, 1006, 3, "16"),
    ("expand of an axis that is not 1", H + X + "%y = expand %x (4, 8)\n" + O, 1007, 3, "axis 1"),
    ("permute with a repeated axis", H + X + "%y = permute %x order=(0, 0)\n" + O, 1008, 3, "permute"),
    ("flip of an axis there is not", H + X + "%y = flip %x axes=(7)\n" + O, 1020, 3, "flip"),
    ("pad that does not fit", H + X + "%y = pad %x (3, 0) (5, 4)\n" + O, 1009, 3, "pad"),
    ("shrink behind the end", H + X + "%y = shrink %x (3, 0) (2, 4)\n" + O, 1009, 3, "shrink"),
    ("reduce of an axis there is not", H + X + "%y = reduce add %x axes=(4)\n" + O, 1013, 3, "axis"),
    ("reduce by another op", H + X + "%y = reduce sub %x axes=(0)\n" + O, 2023, 3, "sub"),
    ("stack of different shapes", H + X + '%z = param "z" : f32 [4]\n%y = stack %x %z\n' + O, 1011, 4, "stack"),
    ("more indices than axes", H + X + "%y = index %x 0 0 0\n" + O, 1010, 3, "rank 2"),
    ("bitcast that does not divide", H + '%x = param "x" : f32 [3]\n%y = bitcast %x : f64\n' + O, 1012, 3, "bitcast"),
    ("negative size", H + '%x = param "x" : f32 [-4]\n' + O, 2014, 2, ""),
    ("absurd size", H + '%x = param "x" : f32 [9999999999999999999999]\n' + O, 2014, 2, ""),
    ("absurd product of sizes", H + '%x = param "x" : f32 [1000000000000, 1000000000000]\n' + O, 1023, 2, ""),
    ("too many axes", H + '%x = param "x" : f32 [' + ", ".join(["1"] * 40) + "]\n" + O, 2037, 2, ""),
    ("a number that does not fit", H + '%x = param "x" : u8 [4]\n%y = add %x 300\n' + O, 2014, 3, "300"),
    ("a fraction for an integer", H + '%x = param "x" : i32 [4]\n%y = add %x 1.5\n' + O, 2013, 3, "1.5"),
    ("a literal without dtype", H + "%y = add 1 2\n" + O, 2015, 2, ""),
    ("an unknown key", H + X + "%y = neg %x colour=3\n" + O, 2010, 3, "colour"),
    ("an open string", H + '%x = param "x : f32 [4]\n', 2020, 2, ""),
    ("a stray character", H + X + "%y = neg %x ;\n" + O, 2028, 3, ""),
    ("an output without a value", H + X + 'out "y" =\n', 2009, 3, ""),
    ("no output", H + X, 2034, None, ""),
    ("an output that is no name", H + X + 'out "y" = 5\n', 2009, 3, ""),
    ("a range that is none", H + '%x = param "x" : f32 [4] in [3, 1]\n%y = neg %x\n' + O, 2036, 2, ""),
    ("a later stage without a root", "koine 1 plan\n" + X, 2034, None, ""),
    ("binary rubbish", "\x01\x02\x7f\x00", 2002, None, ""),
    ("pad of another rank", H + X + "%y = pad %x (0) (5)\n" + O, 1015, 3, "rank 2"),
    ("a value where a shape belongs", H + X + "%y = reshape %x %x\n" + O, 1016, 3, "(4, %n)"),
    ("an element the tuple does not have", H + X + "%t = tuple %x %x\n%y = gettuple %t at=5\n" + O, 1021, 4, "2 elements"),
    ("an element of no tuple", H + X + "%y = gettuple %x at=0\n" + O, 1020, 3, "no tuple"),
    ("store of another shape", H + X + '%z = param "z" : f32 [5]\n%s = store %x %z\n%y = after %x %s\n' + O, 1018, 4, "(5,)"),
    ("store of another dtype", H + X + '%z = param "z" : i32 [4, 4]\n%s = store %x %z\n%y = after %x %s\n' + O, 1019, 4, "i32"),
    ("store into a computed value", H + X + "%z = neg %x\n%s = store %z %x\n%y = after %z %s\n" + O, 4002, None, "assign"),
    ("a loop in a tensor program", H + X + LOOP + O, 3040, None, "range"),
    ("an input without a name", H + "%x = param slot=0 : f32 [4]\n%y = neg %x\n" + O, 4005, None, "name"),
    ("a cast to nothing", H + X + "%y = cast %x : void\n" + O, 2019, 3, "void"),
    ("an unknown address space", H + X + "%y = load to=NOWHERE %x\n" + O, 2025, 3, "GLOBAL LOCAL REG"),
    ("two outputs of one name", H + X + "%y = neg %x\n" + O + O, 2030, 5, "y"),
    ("bounds without a value", H + '%n = param "n" bounds=[5, 2] : index\n%y = add %n 1\n' + O, 2036, 2, "bounds"),
    ("a kernel of too many inputs", H + "".join(f'%x{i} = param "x{i}" : f32 [4]\n' for i in range(70))
     + "%y = stack " + " ".join(f"%x{i}" for i in range(70)) + "\n" + O, 4004, None, "64 buffers"),
    ("a shape that never ends", H + X + "%y = reshape %x (4, 4\n" + O, 2009, 3, "')'"),
    ("outputs in another order", CALLIFY + Z + Y, 4050, None, "order of the TUPLE"),
    ("an output twice", CALLIFY + Y + Z.replace("%z", "%y"), 4050, None, "order of the TUPLE"),
    ("an output too few", CALLIFY + Z, 4050, None, "for each element"),
    ("an output too many", CALLIFY + Y + Z + Z.replace('"z"', '"w"'), 4050, None, "for each element"),
    ("a kernel that is none", "koine 1 rangeify\n" + X + "%s = sink %x name=\"k\"\nroot %s\n" + 'out "y" = %x : f32 [4, 4]\n', 4050, None, "LINEAR"),
]


def one_message(r):
    """One message: its first line names what went wrong, then details, then a hint."""
    assert r.returncode in (1, 2), (r.returncode, r.stdout[:300], r.stderr[:300])
    assert not r.stdout, r.stdout[:300]
    assert len(re.findall(r"\bKN\d{4}: ", r.stderr.split("ill-formed node")[0])) <= 1, r.stderr
    return r.stderr


@pytest.mark.parametrize("name, text, number, line, what", TEXTS, ids=[t[0] for t in TEXTS])
def test_malformed_text(koine_session, name, text, number, line, what):
    err = one_message(koine_session("compile", "-", "--to", "render", stdin=text, ok=False, env={"KN_VERIFY": "1"}))
    assert re.findall(r"KN(\d{4}): ", err)[-1] == str(number) and "hint: " in err, err
    assert what in err, err
    if line:
        assert f"standard input:{line}:" in err, err


def test_a_text_is_checked_though_nobody_asks(koine_session):
    """Operands of different shapes would be read beyond their ends."""
    text = 'koine 1 tensor\n%a = param "a" : f32 [2, 2]\n%b = param "b" : f32 [2, 1]\n%c = mul %a %b : f32 [2, 2]\nout "y" = %c\n'
    err = one_message(koine_session("run", "-", stdin=text, ok=False, env={"KN_VERIFY": ""}))
    assert "KN3040: tensor: node" in err and "hint: " in err, err


def test_a_loop_in_a_tensor_program_unchecked(koine_session):
    """Without the specs the stage itself refuses it."""
    err = one_message(koine_session("compile", "-", stdin=H + X + LOOP + O, ok=False, env={"KN_VERIFY": "0"}))
    assert "KN4001: rangeify: range" in err and "hint: " in err, err


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
    ("a seed that is too large", ["run", "p.kn", "--seed", "99999999999999999999"], "whole number"),
    ("a seed without its number", ["run", "p.kn", "--seed"], "--seed needs N"),
    ("an input without its file", ["run", "p.kn", "--in", "x"], "NAME=FILE"),
    ("an input of an absurd size", ["run", "huge.kn"], "KN6017"),
    ("a number outside a variable's bounds", ["run", "n.kn", "--in", "n=9"], "KN5013: variable 'n' = 9"),
    ("a fraction for an integer", ["run", "n.kn", "--in", "n=2.5"], "whole number"),
    ("a full disk", ["run", "p.kn", "--out", "y=/dev/full"], "KN6002: cannot write /dev/full: No space left"),
    ("an output that is a folder", ["run", "p.kn", "--out", "y=."], "Is a directory"),
    ("an output to two files", ["run", "p.kn", "--out", "y=a.npy", "--out", "y=b.npy"], "--out y=b.npy: given before, as a.npy"),
    ("an input from two files", ["run", "p.kn", "--in", "x=x.npy", "--in", "x=x.npy"], "--in x=x.npy: given before, as x.npy"),
    ("two outputs to one file", ["run", "two.kn", "--out", "y=a.npy", "--out", "z=a.npy"], "--out z=a.npy: --out y=a.npy is to be written there"),
    ("a word for a number", ["run", "n.kn", "--in", "n=abc"], "--in n=abc: neither a number nor a file that is there; input n is index ()"),
    ("a stage that no name is near to", ["compile", "p.kn", "--to", "bogus"], "stages: tensor callify rangeify"),
    ("two programs", ["run", "p.kn", "q.kn"], "too many words"),
    ("no program", ["run"], "something is missing"),
    ("a target there is not", ["compile", "p.kn", "--target", "ptx"], "there are c"),
    ("a rule there is not", ["rules", "--explain", "add_zer"], "add_zero"),
    ("a rule set there is not", ["rules", "symbolik"], "symbolic"),
    ("an op there is not", ["ops", "addd"], "addd"),
    ("a benchmark there is not", ["bench", "kernal"], "kernel"),
    ("a job there is not", ["train", "letters"], "digits"),
    ("no steps", ["train", "digits", "--steps", "0"], "from 1"),
    ("a rate below nothing", ["train", "digits", "--rate", "-1"], "expected a number"),
    ("images without labels", ["train", "digits", "--data", "x.npy"], "--data needs X.npy Y.npy"),
    ("images that are not there", ["train", "digits", "--data", "no.npy", "no.npy"], "no.npy"),
    ("images in no square", ["train", "digits", "--data", "other.npy", "other.npy"], "KN6027"),
    ("labels that are no integers", ["train", "digits", "--data", "images.npy", "x.npy"], "KN6028"),
    ("too few images", ["train", "digits", "--data", "three.npy", "labels.npy"], "KN6029"),
    ("negative labels", ["train", "digits", "--data", "images.npy", "minus.npy"], "KN6025"),
    ("a folder without MNIST", ["train", "digits", "--mnist", "."], "KN6026"),
]
# What numpy or a broken transfer may leave in place of an array, and what the message says of it.
ARRAYS = {
    "cut in its header": (lambda b: b[:100], "KN6014", "the header"), "cut in its data": (lambda b: b[:-9], "KN6014", "the data"),
    "too long": (lambda b: b + b"zz", "KN6015", "66 are there"), "empty": (lambda b: b"", "KN6010", "npy"),
    "without a shape": (lambda b: b.replace(b"'shape'", b"'shope'"), "KN6012", "shape"),
    "of version 9": (lambda b: b[:6] + b"\x09" + b[7:], "KN6011", "9.0"),
    "of a negative size": (lambda b: b.replace(b"(4, 4)", b"(4,-4)"), "KN6012", "a size"),
    "of an absurd size": (lambda b: b.replace(b"(4, 4), }" + b" " * 12, b"(99999999999999999999)"[:-1] + b"}"), "KN6012", "2^63"),
    "of more axes than there may be": (lambda b: npy(b"1, " * 17, b"\0" * 4), "KN6016", "17"),
    "of complex numbers": (lambda b: b.replace(b"<f4", b"<c8"), "KN6013", "c8"), "of objects": (lambda b: b.replace(b"<f4", b"|O4"), "KN6013", "O"),
    "a zip archive": (lambda b: b"PK\3\4" + b, "KN6010", "npz"), "a text": (lambda b: b"1,2,3\n", "KN6010", "npy"),
    "a cut gzip file": (lambda b: gzip.compress(b)[:-12], "KN6003", "gzip"),
    "a gzip file with a wrong checksum": (lambda b: gzip.compress(b)[:-6] + b"\1" + gzip.compress(b)[-5:], "KN6003", "checksum"),
    "a gzip file of rubbish": (lambda b: b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 40, "KN6003", "gzip"),
}
# The same of MNIST's files; the labels' one is damaged.
IDX = {
    "no IDX file": (lambda b: b"PNG!" + b, "KN6020"), "cut": (lambda b: b[:-3], "KN6021"), "too long": (lambda b: b + b"z", "KN6022"),
    "cut in its header": (lambda b: b[:6], "KN6021"), "images for labels": (lambda b: struct.pack(">IIII", 0x803, 20, 1, 1) + bytes(20), "KN6023"),
    "of another number": (lambda b: struct.pack(">II", 0x801, 19) + bytes(19), "KN6024"),
    "of an absurd number": (lambda b: struct.pack(">II", 0x801, 0xffffffff) + bytes(20), "KN6021"),
    "of floats": (lambda b: struct.pack(">II", 0xd01, 20) + bytes(80), "KN6023"),
}


def npy(shape, data, dtype=b"<f4"):
    h = b"{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (dtype, shape)
    h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(h).to_bytes(2, "little") + h + data


@pytest.fixture(scope="module")
def folder(koine_session):
    cwd = koine_session.cwd
    (cwd / "p.kn").write_text(H + X + "%y = neg %x\n" + O)
    (cwd / "q.kn").write_text(koine_session("compile", "p.kn", "--to", "plan").stdout)
    (cwd / "huge.kn").write_text(H + '%x = param "x" : f32 [1000000, 1000000, 1000]\n%y = neg %x\n' + O)
    (cwd / "two.kn").write_text(H + X + "%y = neg %x\n%z = add %x %x\n" + O + 'out "z" = %z\n')
    (cwd / "n.kn").write_text(H + '%n = param "n" bounds=[1, 4] : index\n%y = add %n 1\n' + O)
    (cwd / "x.npy").write_bytes(npy(b"4, 4", b"\0" * 64))
    (cwd / "images.npy").write_bytes(npy(b"20, 8, 8", b"\0" * 20 * 64 * 4))
    (cwd / "three.npy").write_bytes(npy(b"3, 8, 8", b"\0" * 3 * 64 * 4))
    (cwd / "labels.npy").write_bytes(npy(b"3,", b"\0" * 24, b"<i8"))
    (cwd / "minus.npy").write_bytes(npy(b"20,", b"\xff" * 160, b"<i8"))
    (cwd / "short.npy").write_bytes(npy(b"4, 4", b"\0" * 10))
    (cwd / "other.npy").write_bytes(npy(b"2,", b"\0" * 8))
    return cwd


@pytest.mark.parametrize("name, args, what", FILES, ids=[f[0] for f in FILES])
def test_wrong_files_and_options(koine_session, folder, name, args, what):
    err = one_message(koine_session(*args, ok=False, cwd=folder))
    assert what in err, err
    assert len(err.splitlines()) <= 6, err


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_is_none(koine_session, folder, name):
    damage, number, what = ARRAYS[name]
    good = npy(b"4, 4", b"\0" * 64)
    (folder / "a.npy").write_bytes(damage(good))
    assert damage(good) != good
    err = one_message(koine_session("run", "p.kn", "--in", "x=a.npy", ok=False, cwd=folder))
    assert f"{number}: " in err and what in err and "hint: " in err, err
    assert "a.npy" in err or number == "KN6016", err


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", IDX)
def test_an_idx_file_that_is_none(koine_session, tmp_path, name, packed):
    damage, number = IDX[name]
    for part in ("train", "t10k"):
        for kind, raw in (("images-idx3", struct.pack(">IIII", 0x803, 20, 8, 8) + bytes(20 * 64)), ("labels-idx1", struct.pack(">II", 0x801, 20) + bytes(20))):
            raw = damage(raw) if (part, kind) == ("t10k", "labels-idx1") else raw
            (tmp_path / f"{part}-{kind}-ubyte{'.gz' * packed}").write_bytes(gzip.compress(raw) if packed else raw)
    err = one_message(koine_session("train", "digits", "--mnist", tmp_path, "--steps", 1, ok=False))
    assert f"{number}: " in err and "t10k-labels-idx1-ubyte" in err and "hint: " in err, err


SETTINGS = [
    ("threads that are no number", {"KN_THREADS": "abc"}, ["run", "p.kn"], "KN_THREADS=abc"),
    ("no threads", {"KN_THREADS": "0"}, ["compile", "p.kn"], "1..1024"),
    ("a level of checks there is not", {"KN_VERIFY": "9"}, ["run", "p.kn"], "0..3"),
    ("a seed that is a word", {"KN_SEED": "abc"}, ["train", "digits", "--steps", "1"], "KN_SEED=abc"),
    ("a processor there is not", {"KN_CPU": "mips"}, ["run", "p.kn"], "KN_CPU=mips: expected one of sse2"),
    ("a processor to write for there is not", {"KN_CPU": "mips"}, ["compile", "p.kn"], "KN_CPU=mips: expected one of sse2"),
    ("a language of kernels there is not", {"KN_CODE": "llvm"}, ["run", "p.kn"], "KN_CODE=llvm: expected one of x86 c"),
    ("a stage to print there is not", {"KN_DEBUG": "rangeify,nosuch"}, ["run", "p.kn"], "KN4052: KN_DEBUG: no stage is named 'nosuch'"),
    ("a default device there is not", {"KN_DEVICE": "TPU"}, ["run", "p.kn"], "CPU, INTERP, NULL"),
    ("a unit there is not", {"KN_DEVICE": "CPU:64"}, ["run", "p.kn"], "0 to 63"),
    ("a compiler there is not", {"KN_CODE": "c", "KN_CC": "/nonexistent/cc", "KN_CACHE": "off"}, ["run", "p.kn"], "/nonexistent/cc"),
    ("a compiler that fails", {"KN_CODE": "c", "KN_CC": "/bin/false", "KN_CACHE": "off"}, ["run", "p.kn"], "exit status 1"),
    ("no folder for temporary files", {"KN_CODE": "c", "TMPDIR": "/nonexistent", "KN_CACHE": "off"}, ["run", "p.kn"], "TMPDIR"),
]


@pytest.mark.parametrize("name, env, args, what", SETTINGS, ids=[s[0] for s in SETTINGS])
def test_wrong_settings(koine_session, folder, name, env, args, what):
    err = one_message(koine_session(*args, ok=False, cwd=folder, env=env))
    assert what in err and "hint: " in err, err


def test_settings_that_only_cost_time_are_told_and_passed_over(koine_session, folder):
    """A cache that cannot be kept, a misspelt name: the program runs, and says so."""
    for env, what in (({"KN_CACHE": "/proc/nosuch"}, "KN_CACHE=/proc/nosuch"), ({"KN_CACHE": "/dev/null"}, "Not a directory"),
                      ({"KN_THREAD": "2"}, "did you mean KN_THREADS?")):
        for code in ("c", "x86"):
            r = koine_session("run", "p.kn", cwd=folder, env={"KN_CODE": code, "KN_VERIFY": "0", **env})
            assert "y : f32 (4, 4)" in r.stdout and what in r.stderr, r.stderr


def test_outputs_to_what_is_no_file_may_share_it(koine_session, folder):
    koine_session("run", "two.kn", "--out", "y=/dev/null", "--out", "z=/dev/null", cwd=folder)


def test_a_damaged_cache_is_no_obstacle(koine_session, folder, tmp_path):
    """Cut, filled with rubbish, emptied, read-only: a cached kernel that is not sound is compiled again. Machine code: tests/run/test_kept.py."""
    env = {"KN_CODE": "c", "KN_CACHE": str(tmp_path)}
    want = koine_session("run", "p.kn", cwd=folder, env=env).stdout
    (kept,) = tmp_path.glob("*.so")
    whole = kept.read_bytes()
    for damage in (b"", whole[:100], whole[:-1], whole[:200] + b"\0\1" + whole[202:], b"#!/bin/sh\n" * 100):
        kept.write_bytes(damage)
        assert koine_session("run", "p.kn", cwd=folder, env=env).stdout == want
    kept.write_bytes(b"rubbish")
    tmp_path.chmod(0o500)
    assert koine_session("run", "p.kn", cwd=folder, env=env).stdout == want
    tmp_path.chmod(0o700)


def test_there_are_enough(root):
    api = (root / "tests/test_bad_input.c").read_text()
    n = len(re.findall(r"^    (?:BAD|BAD_STATUS|NODE|told|rule)\(\"", api, re.M))
    assert n + len(TEXTS) + len(FILES) + len(SETTINGS) + len(ARRAYS) + len(IDX) >= 200
