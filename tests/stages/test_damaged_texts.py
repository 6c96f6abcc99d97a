"""Texts of every stage with mistakes in them: calls that pass something else than their kernels take, loops and numbers that lead out of
memory. Where a mistake cannot be proved to be none it is told, with a number and a remedy; nothing crashes."""
import itertools
import random
import re
import signal
import subprocess

import numpy as np
import pytest

STAGES = ["callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render"]
KERNELS = STAGES[1:]
PROGRAMS = ["matmul", "softmax", "layernorm", "conv", "cumsum", "linear_relu", "attention", "gather", "scatter"]


@pytest.fixture(scope="module")
def text_of(koine_session, root):
    kept = {}

    def text(name, stage):
        if (name, stage) not in kept:
            env = {"KN_THREADS": "3", "KN_CPU": "", "KN_CODE": "x86"}
            kept[name, stage] = koine_session("compile", root / f"examples/{name}.kn", "--to", stage, env=env).stdout
        return kept[name, stage]
    return text


@pytest.fixture(scope="module")
def run(koine_session):
    """What a device says of a text: exit status and standard error. None: it runs for too long, which is no crash."""
    def run(text, device):
        try:
            r = koine_session("run", "-", "--device", device, stdin=text, ok=False, env={"KN_THREADS": "3", "KN_CACHE": "off", "KN_VERIFY": ""}, timeout=10)
        except subprocess.TimeoutExpired:
            return None
        assert r.returncode in (0, 1, 2), f"{signal.Signals(-r.returncode).name} on {device}:\n{text}"
        return r.returncode, r.stderr
    return run


# ---- one mistake ----

def names(operands):
    """%1 %3..%5 as the four names it stands for."""
    runs = (re.fullmatch(r"%(\d+)\.\.%(\d+)", word) for word in operands.split())
    return [name for r, word in zip(runs, operands.split()) for name in ([f"%{k}" for k in range(int(r[1]), int(r[2]) + 1)] if r else [word])]


def in_calls(change):
    """The arguments of each call are what `change` makes of them."""
    def damage(text):
        def call(m):
            kernel, *args = names(m[1])
            return " = call " + " ".join([kernel, *change(args)])
        return re.sub(r" = call (.*)", call, text)
    return damage


def smaller(line):
    """A buffer or PARAM of a quarter of its elements, and of no fewer than one."""
    n = max(1, int(re.search(r"\[(\d+)\]", line)[1]) // 4)
    return re.sub(r"\[\d+\]", f"[{n}]", re.sub(r"size=\d+", f"size={n}", line))


def in_lines(what, change):
    return lambda text: "\n".join(change(line) if re.match(what, line) else line for line in text.split("\n"))


MISTAKES = {
    "no arguments": (in_calls(lambda args: []), "4507"),
    "the last argument missing": (in_calls(lambda args: args[:-1]), "4507"),
    "one buffer for all": (in_calls(lambda args: args[:1] * len(args)), "450[78]"),
    "a slot that no argument has": (in_lines(r"%\w+ = param.* slot=0", lambda s: s.replace("slot=0", "slot=40")), "4507|3040"),
    "longer loops": (in_lines(r"%\w+ = range", lambda s: re.sub(r"(LOOP|REDUCE) (\d+)", lambda m: f"{m[1]} {9 * int(m[2])}", s)), "4503"),
    "parameters that are not there": (in_lines(r"%\w+ = param slot", smaller), "4503"),
    "more threads than there are": (in_lines(r"%\w+ = (sink|program) .*threads=", lambda s: re.sub(r"threads=\d+", "threads=7", s)), "4050"),
    "loops that never run": (in_lines(r"%\w+ = range", lambda s: re.sub(r"(LOOP|REDUCE) \d+", r"\1 0", s)), "4050"),
    "a LOCAL buffer outside": (lambda text: text.replace(" GLOBAL size", " LOCAL size"), "4507|4050|3040"),
}


def can_be_made(mistake, name, stage):
    """From plan on loops and sizes are operands of instructions; threads share the product alone."""
    if mistake == "more threads than there are":
        return name == "matmul" and stage != "rangeify"
    return stage not in ("plan", "render") or mistake not in ("longer loops", "parameters that are not there", "loops that never run")


@pytest.mark.parametrize("mistake, name, stage", [c for c in itertools.product(MISTAKES, ["matmul", "softmax", "conv"], KERNELS) if can_be_made(*c)])
def test_a_mistake_is_told(text_of, run, name, stage, mistake):
    damage, number = MISTAKES[mistake]
    text = text_of(name, stage)
    bad = damage(text)
    assert bad != text
    for device in ("CPU", "INTERP", "NULL"):
        code, told = run(bad, device)
        assert code and "hint: " in told, told
        assert re.search(rf"KN({number}): ", told), told


@pytest.mark.parametrize("change, what", [
    (lambda t: t.replace("slot=0", "slot=9"), "at its slot"), (lambda t: re.sub(r"(buffer \d+ GLOBAL size=)\d+(.*)\[\d+\]", r"\g<1>3\2[3]", t), "as many elements"),
    (lambda t: t.replace("GLOBAL", "REG"), "GLOBAL BUFFER"), (lambda t: re.sub(r"( = function %\d+).*", r"\1", t), "at its slot")])
def test_a_function_gets_what_it_takes(text_of, run, change, what):
    text = re.sub(r'^in "(.*)" = (%\d+).*', r'in "\1" = \2', change(text_of("matmul", "callify")), flags=re.M)
    code, told = run(text, "CPU")
    assert code and "KN4050: callify: " in told and what in told, told


def test_variables_lead_out_of_memory_with_some_values(koine_session):
    """Which is known once they have values."""
    text = ('koine 1 rangeify\n%n = param "n" bounds=[1, 100] : index\n%x = param slot=0 : f32 [8]\n%r = range 0 LOOP %n\n%i = index %x %r\n%s = store %i 1.0\n'
            '%e = end %s %r\n%k = sink %e name="e"\n%b = buffer 0 GLOBAL size=8 : f32 [8]\n%c = call %k %b %n\n%l = linear %c\nin "n" = %n\nroot %l\nout "y" = %b : f32 [8]\n')
    for device in ("CPU", "INTERP"):
        assert "[1, 1, 1" in koine_session("run", "-", "--device", device, "--in", "n=8", stdin=text).stdout
        r = koine_session("run", "-", "--device", device, "--in", "n=9", stdin=text, ok=False)
        assert "KN4503: store" in r.stderr and "index 8 is outside the 8 elements" in r.stderr and "PARAM slot 0" in r.stderr and "in kernel e" in r.stderr
        assert "KN5013" in koine_session("run", "-", "--device", device, "--in", "n=101", stdin=text, ok=False).stderr


@pytest.mark.parametrize("stage", ["rangeify", "plan", "render"])
def test_data_leads_out_of_memory(koine_session, root, tmp_path, stage):
    """Which is known once there is data. The gate lets through what the table has not."""
    text = koine_session("compile", root / "examples/gather.kn", "--to", "rangeify", env={"KN_CPU": ""}).stdout
    wide = re.sub(r"(= lt %\w+) 16\b", r"\1 1000000000", text)
    assert wide != text
    wide = koine_session("compile", "-", "--to", stage, stdin=wide, env={"KN_CPU": ""}).stdout
    for row, fits in ((15, True), (16, False), (900_000_000, False)):
        np.save(tmp_path / "i.npy", np.array([0, 3, row, 1, 2, 0], np.int32))
        for device in ("CPU", "INTERP"):
            r = koine_session("run", "-", "--device", device, "--in", f"index={tmp_path / 'i.npy'}", stdin=wide, ok=False)
            assert (r.returncode == 0) == fits, r.stderr
            assert fits or re.search(rf"KN4503: .*index {8 * row} is outside the 128 elements", r.stderr), r.stderr


def test_iterations_in_the_midst_lead_out_of_memory(koine_session):
    """One of a hundred thousand, which no end of a loop shows."""
    text = ('koine 1 rangeify\n%x = param slot=0 : f32 [8]\n%r = range 0 LOOP 100000\n%a = lt %r 40002\n%b = lt 40000 %r\n%c = and %a %b\n%w = where %c %r invalid\n'
            '%i = index %x %w\n%s = store %i 1.0\n%e = end %s %r\n%k = sink %e name="e"\n%b0 = buffer 0 GLOBAL size=8 : f32 [8]\n%l = call %k %b0\n%n = linear %l\nroot %n\nout "y" = %b0 : f32 [8]\n')
    for device in ("CPU", "INTERP"):
        r = koine_session("run", "-", "--device", device, stdin=text, ok=False)
        assert r.returncode and "KN4503" in r.stderr and "index 40001 is outside the 8 elements" in r.stderr, r.stderr


def test_one_kernel_called_twice_with_fewer_arguments(text_of, run):
    text = text_of("matmul", "rangeify")
    call = re.search(r"(%\d+) = call (.*)", text)
    kernel, *args = names(call[2])
    text = text.replace(call[0], f"{call[0]}\n%again = call {kernel} {args[0]}").replace(f" = linear {call[1]}", f" = linear {call[1]} %again")
    code, told = run(text, "CPU")
    assert code and "KN4507: call" in told and "more arguments, or fewer" in told, told


# ---- any mistake ----

def a_number(rng, line):
    spots = list(re.finditer(r"(?<![\w%.\"])-?\d+(?![\w.\"])", line))
    if not spots:
        return line
    m = rng.choice(spots)
    v = int(m[0])
    far = [] if " range " in line else [-v, 1000 * v, 1 << 31, (1 << 63) - 1, -1]  # a loop that long is no mistake
    return line[:m.start()] + str(rng.choice([v + 1, v - 1, 2 * v, v // 2, v + 7, 0, *far])) + line[m.end():]


def a_name(rng, line):
    name, _, rest = line.partition(" = ")
    words = re.findall(r"%\w+", rest)
    if not words:
        return line
    w, k = rng.choice(words), rng.randrange(3)
    other = "%" + str(rng.randrange(1, int(name[1:]) if name[1:].isdigit() else 2)) if k == 2 else rng.choice(words)
    return name + " = " + rest.replace(w, ["", f"{w} {w}", other][k], 1)


def a_word(rng, line):
    of = [r"\b(f32|i32|index|bool|f16|u8|i64|f64)\b", r"\b(LOOP|REDUCE|THREAD|UPCAST|UNROLL|GLOBAL|LOCAL|REG)\b", r"\b(add|mul|sub|max|lt|idiv|mod)\b"]
    for words in rng.sample(of, len(of)):
        if m := re.search(words, line):
            return line[:m.start()] + rng.choice(words[3:-3].split("|")) + line[m.end():]
    return line


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_texts_damaged_at_random(text_of, run, name, stage):
    """No device crashes, and what the interpreter refuses the CPU refuses too."""
    rng = random.Random(f"{name} {stage}")
    lines = text_of(name, stage).split("\n")
    refused = passed = 0
    while refused + passed < 12:
        k = rng.randrange(1, len(lines) - 1)
        line = rng.choice([a_number, a_number, a_name, a_word])(rng, lines[k])
        if line == lines[k]:
            continue
        text = "\n".join(lines[:k] + [line] + lines[k + 1:])
        cpu = run(text, "CPU")
        told = run(text, "INTERP") if cpu and not cpu[0] else cpu
        assert not (cpu and cpu[0]) or "hint: " in cpu[1], cpu
        refused += bool(cpu and cpu[0])
        passed += not (cpu and cpu[0])
        assert not (cpu and not cpu[0] and told and told[0]), (told, text)
