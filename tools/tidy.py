#!/usr/bin/env python3
"""make tidy: the house rules that a machine can check. Prints file:line: what; exits 1 if there is anything.

 layers     base <- ir <- rules <- tensor, stages <- run, device <- io, nn <- bench/zoo <- cli, by #include
 silence    nothing under src/ exits, aborts, asserts or prints
 length     files up to 800 lines, functions up to 70 (a tenth more is let pass)
 recursion  no function that takes a kn_uop is on a cycle of calls, unless the comment before it says what bounds the depth
            ("recursion: ...")
 names      functions of the library seen outside their file begin with ki_ or kn_
 errors     every row of errors.def is used
 format     clang-format on *.c (headers are laid out by hand), when installed
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYER = {"base": 0, "ir": 1, "rules": 2, "tensor": 3, "stages": 3, "run": 4, "device": 4, "io": 5, "nn": 5, "bench": 6, "zoo": 6, "cli": 7}
SIBLINGS = [{"run", "device"}, {"io", "nn"}, {"bench", "zoo"}]
PUBLIC = {"base.h": 0, "uop.h": 1, "rules.h": 2, "tensor.h": 3, "here.h": 3, "device.h": 4, "io.h": 5, "nn.h": 3, "koine.h": 6}
FILE_LINES, FUNCTION_LINES = 880, 77
FORBIDDEN = {
    r"\b(?:exit|_exit|_Exit|quick_exit|abort|raise)\s*\(": "ends the process",
    r"\bassert\s*\(": "asserts: record a failure instead",
    r"(?<![\w])(?:printf|vprintf|puts|putchar|perror)\s*\(": "prints",
    r"\bstd(?:out|err)\b": "prints",
    r"\b(?:set|long)jmp\s*\(": "jumps",
}

problems = []


def report(path, line, what):
    problems.append(f"{path.relative_to(ROOT)}:{line}: {what}")


def tracked(*globs):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *globs], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / p for p in out.stdout.split("\n") if p and (ROOT / p).exists()]


def strip(text):
    """Comments and literals become blanks, line ends stay."""
    def blank(m):
        s = m.group(0)
        return ('""' if s[0] == '"' else "' '" if s[0] == "'" else " ") + "\n" * s.count("\n")
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


# ---- layers ----

def area(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else parts[0]


def check_layers(path, text):
    here = area(path)
    if here not in LAYER:
        return
    for m in re.finditer(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M):
        inc, line = m.group(1), text.count("\n", 0, m.start()) + 1
        top, _, rest = inc.partition("/")
        if top == "koine":
            there, level = inc, PUBLIC.get(rest, 0)
            if level <= LAYER[here]:
                continue
        elif top in LAYER and rest:
            there, level = top, LAYER[top]
            if level < LAYER[here] or top == here or any({top, here} <= s for s in SIBLINGS):
                continue
        else:
            continue
        report(path, line, f"{here} includes {there}, which stands above it or beside it")


# ---- functions ----



class Function:
    def __init__(self, path, name, args, static, line, body, bounded=False):
        self.bounded = bounded
        self.path, self.name, self.args, self.static, self.line, self.body = path, name, args, static, line, body


def functions(path, text, code):
    found, lines, raw = [], code.split("\n"), text.split("\n")
    i = 0
    while i < len(lines):
        if not re.match(r"[A-Za-z_]", lines[i]):
            i += 1
            continue
        j, head = i, lines[i]
        while "{" not in head and ";" not in head and j + 1 < len(lines) and j - i < 8:
            j += 1
            head += " " + lines[j].strip()
        m = re.match(r"(?!typedef|extern|else|#)(.*?)\(?\b(\w+)\)?\s*\((.*)\)\s*(?:KI_\w+(?:\([^)]*\))?\s*)?\{(.*)$", head)
        if not m or "=" in m.group(1) or m.group(2) in ("if", "for", "while", "switch"):
            i += 1
            continue
        end = j
        if not m.group(4).rstrip().endswith("}"):
            while end < len(lines) and not lines[end].startswith("}"):
                end += 1
        body = m.group(4) + "\n".join(lines[j + 1:end + 1])
        bounded = "recursion:" in "".join(raw[max(0, i - 4):i])
        found.append(Function(path, m.group(2), m.group(3), "static" in m.group(1), i + 1, body, bounded))
        if end - i + 1 > FUNCTION_LINES:
            report(path, i + 1, f"{m.group(2)} has {end - i + 1} lines")
        i = end + 1
    return found


def check_names(fs):
    for f in fs:
        if area(f.path) not in ("cli", "bench") and not f.static and not f.name.isupper() and not f.name.startswith(("ki_", "kn_")):
            report(f.path, f.line, f"{f.name} is seen outside its file: call it ki_{f.name} or make it static")


def check_recursion(fs):
    """Cycles of calls, Tarjan's algorithm without recursion; calls through pointers are not seen."""
    by_file, shared = {}, {}
    for n, f in enumerate(fs):
        (by_file.setdefault(f.path, {}) if f.static else shared)[f.name] = n
    word = re.compile(r"\b([A-Za-z_]\w*)\s*\)?\(")
    calls = []
    for f in fs:
        own = by_file.get(f.path, {})
        names = set(word.findall(f.body))
        calls.append(sorted({own[w] if w in own else shared[w] for w in names if w in own or w in shared}))
    index, low, on, stack, count = {}, {}, set(), [], 0
    for root in range(len(fs)):
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            v, at = work.pop()
            if at == 0:
                index[v] = low[v] = count
                count += 1
                stack.append(v)
                on.add(v)
            else:
                low[v] = min(low[v], low[calls[v][at - 1]])
            for k in range(at, len(calls[v])):
                w = calls[v][k]
                if w not in index:
                    work += [(v, k + 1), (w, 0)]
                    break
                if w in on:
                    low[v] = min(low[v], index[w])
            else:
                if low[v] == index[v]:
                    group = []
                    while True:
                        w = stack.pop()
                        on.discard(w)
                        group.append(w)
                        if w == v:
                            break
                    cycle(fs, calls, group)


def cycle(fs, calls, group):
    if len(group) == 1 and group[0] not in calls[group[0]]:
        return
    over_graph = [fs[g] for g in group if re.search(r"\bkn_uop\b", fs[g].args)]
    if any(f.bounded for f in over_graph):
        return
    if over_graph:
        f = over_graph[0]
        report(f.path, f.line, "recursion over a graph: " + " -> ".join(fs[g].name for g in group))


# ---- the rest ----

def check_silence(path, code):
    for pattern, why in FORBIDDEN.items():
        for m in re.finditer(pattern, code):
            report(path, code.count("\n", 0, m.start()) + 1, f"{m.group(0).rstrip('( ')} {why}; the library never does")


def check_errors(texts):
    names = re.findall(r"^KI_ERROR\((\d+), (\w+),", (ROOT / "src/base/errors.def").read_text(), re.M)
    seen = set()
    for number, name in names:
        if number in seen:
            report(ROOT / "src/base/errors.def", 1, f"number {number} stands twice")
        seen.add(number)
        if not any(f"KI_E_{name}" in t for t in texts):
            report(ROOT / "src/base/errors.def", 1, f"{number} {name} is never raised")


def check_format(files):
    if not shutil.which("clang-format"):
        print("tidy: clang-format is not installed: format not checked")
        return
    for i in range(0, len(files), 50):
        r = subprocess.run(["clang-format", "--dry-run", *map(str, files[i:i + 50])], cwd=ROOT, capture_output=True, text=True)
        seen = set()
        for m in re.finditer(r"^(\S+?):(\d+):\d+: warning: code should be clang-formatted", r.stderr, re.M):
            if m.group(1) not in seen:
                seen.add(m.group(1))
                report((ROOT / m.group(1)).resolve(), m.group(2), "make format")


def main():
    files = [p for p in tracked("src/*.c", "src/*.h", "cli/*.c", "cli/*.h", "bench/zoo/*.c", "bench/zoo/*.h")]
    fs, texts = [], []
    for path in files:
        text = path.read_text()
        texts.append(text)
        lines = text.count("\n")
        if lines > FILE_LINES:
            report(path, lines, f"{lines} lines: one idea per file")
        check_layers(path, text)
        code = strip(text)
        if path.suffix == ".c":
            found = functions(path, text, code)
            check_names(found)
            fs += found
        if path.parts[len(ROOT.parts)] == "src":
            check_silence(path, code)
    check_recursion(fs)
    check_errors(texts)
    if "--no-format" not in sys.argv:
        check_format(tracked("*.c"))
    for p in sorted(problems):
        print(p)
    print(f"tidy: {len(files)} files, {len(fs)} functions, {len(problems)} problems")
    return bool(problems)


sys.exit(main())
