#!/usr/bin/env python3
"""docs/functions.md: each function of tensor.h and nn.h with its comment, what running its example says (tests/docs/examples.def by
build/tests/docs/test_functions --facts), and the messages of its mistakes (src/base/errors.def, tests/tensor/test_errors.py).

    tools/functions.py PROGRAM >docs/functions.md
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python/koine"))
import _abi  # noqa: E402

HEAD = """# Functions

Made from `include/koine/tensor.h`, `include/koine/nn.h` and `tests/docs/examples.def` by `make docs`: do not edit. What all of them
share (errors, lifetime, dtypes, axes) stands at the head of `tensor.h`; how exact they are in [accuracy.md](accuracy.md).

Each has an example, which is a test. `vec(1, 2)`, `mat(rows, columns, ...)` and `data(shape, ...)` are f32 tensors of these numbers,
`counting(2, 3)` has 1, 2, ... in that shape, `ints(1, 2)` is i64, `bools(1, 0)` bool, `k` is the context; `show` prints a result, to
four digits. A whole program:

```c
#include <koine/koine.h>
#include <stdio.h>
int main(void) {
    kn_ctx *k = kn_open(NULL);
    kn_tensor x = kn_from_host(k, (float[]){1, 2, 3}, KN_F32, KN_SHAPE(3)); /* vec(1, 2, 3) */
    float out[3];
    if (kn_to_host(kn_softmax(x, -1), out, sizeof out)) return fputs(kn_message(k), stderr), 1;
    printf("%g %g %g\\n", out[0], out[1], out[2]);
    kn_close(k);
}
```

Behind each example, found by running it:

* shapes of its data → of its results;
* **dtypes**: what comes of data of each dtype (floats: f8e4m3 to f64; integers: i8 to u64), or the message it is refused with;
* **gradient**: *rule*: one operation, which has a rule in `src/tensor/grad.kr`; *composition*: through the rules of its operations;
  *zero*: constant in pieces, or cut off; *none*: results are whole numbers or truths, or a message says why;
* **made of**: the operations of its graph ([ops.md](ops.md)), in the order they stand there; movements are views;
* **mistakes**: [numbers of messages](#messages) that tests raise with it. All: KN1101 after the scope's end, KN1103 for NULL.

"""
FLOATS = ["f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"]
SIGNED, UNSIGNED = ["i8", "i16", "i32", "i64"], ["u8", "u16", "u32", "u64"]
CLASSES = [("floats", FLOATS), ("integers", SIGNED + UNSIGNED), ("bool", ["bool"])]
NO_MATH = ("context", "running", "creation", "random", "layers", "optimizers")  # sections without derivatives
LEAVES = {"param", "buffer", "const"}


def examples(text):
    """{name: lines of C}, in order."""
    out = {}
    for m in re.finditer(r"^EXAMPLE\((kn_\w+), \{(.*?)\}\)$", text, re.M | re.S):
        lines = [line[4:] if line.startswith("    ") else line for line in m[2].strip("\n").split("\n")]
        out[m[1]] = [re.sub(r'^IS\((.*), "((?:[^"\\]|\\.)*)"\);$', r"show(\1); /* \2 */", line.strip(" ") if len(lines) == 1 else line) for line in lines]
    return out


def blocks(items):
    """Lists of items by a key, adjacent ones together: [(key, [name])]."""
    out = []
    for key, name in items:
        if out and out[-1][0] == key:
            out[-1][1].append(name)
        else:
            out.append((key, [name]))
    return out


def dtypes(text):
    """bool=KN1151 u8=u8 ...: in words."""
    got = dict(p.split("=") for p in text.split())
    parts = []
    for title, of in CLASSES:
        if all(got[d] == d for d in of):
            parts.append(f"{title}: the same" if title != "bool" else "bool: bool")
        elif title == "integers" and len({got[d] for d in of}) > 1:
            for name, some in (("signed", SIGNED), ("unsigned", UNSIGNED)):
                values = {got[d] for d in some}
                if len(values) == 1:
                    parts.append(f"{name}: {values.pop()}")
                else:
                    parts.append("; ".join(f"{', '.join(names)}: {v}" for v, names in blocks((got[d], d) for d in some)))
        elif len({got[d] for d in of}) == 1:
            parts.append(f"{title}: {got[of[0]]}")
        else:
            parts.append("; ".join(f"{', '.join(names)}: {'the same' if names == [v] else v}" for v, names in blocks((got[d], d) for d in of)))
    same = [p.split(": ")[0] for p in parts if p.endswith(": the same") or p == "bool: bool"]
    if len(same) == 3:
        return "any, kept"
    values = {p.split(": ")[1] for p in parts}
    return f"any: {values.pop()}" if len(values) == 1 else "; ".join(parts)


def gradient(found, ops, ruled):
    if found == "integer":
        return "none"
    if found == "flows":
        return "rule" if len(ops) == 1 and ops[0] in ruled else "composition"
    return f"none ({found})" if found.startswith("KN") else found


def errors():
    """{number: (text, hint)}, and {function: numbers} of the misuses in test_errors.py."""
    rows = re.findall(r'^KI_ERROR\((\d+), \w+, \w+, "((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"\)', (ROOT / "src/base/errors.def").read_text(), re.M)
    of = {}
    for number, build in re.findall(r'^ {4}"[^"]+": \("KN(\d+)", .*?, lambda k: (.*)\),$', (ROOT / "tests/tensor/test_errors.py").read_text(), re.M):
        m = re.findall(r'koine\.(?:call|several|outputs)\("(\w+)"', build) or outermost(build)
        if m:
            of.setdefault("kn_" + m[-1], []).append("KN" + number)
    return {"KN" + n: (re.sub(r"%(?:lld|[sdug])", "…", text), hint) for n, text, hint in rows}, of


def outermost(build):
    """Methods called at depth 0: t(k, 2).add(t(k, 3)) is add."""
    depth, flat = 0, ""
    for c in build:
        depth -= c in ")]"
        flat += c if depth == 0 else ""
        depth += c in "(["
    return re.findall(r"\.(\w+)\(", flat)


def comment(f):
    """Its own, or that of the function that it is over axes."""
    base = _abi.FUNCTIONS.get(re.sub(r"_over$", "", f.name), f)
    doc = f.doc or base.doc or _abi.FUNCTIONS.get(base.name.replace("kn_nan", "kn_"), base).doc
    return doc if f.doc or base is f else f"{doc}{' ' if doc.endswith('.') else '; '}over axes"


def declaration(f):
    return f"{f.result}{'' if f.result.endswith('*') else ' '}{f.name}({', '.join(p[0] + ('' if p[0].endswith('*') else ' ') + p[1] for p in f.params) or 'void'});"


def listed():
    return [f for f in _abi.FUNCTIONS.values() if f.header in ("tensor.h", "nn.h") and not f.name.endswith("_")]


def page(program):
    told = subprocess.run([str(program), "--facts"], capture_output=True, text=True, check=True).stdout
    facts = {name: rest for name, *rest in (line.split("\t") for line in told.splitlines())}
    shown = examples((ROOT / "tests/docs/examples.def").read_text())
    ruled = set(re.findall(r"^grad (\w+)", (ROOT / "src/tensor/grad.kr").read_text(), re.M))
    messages, mistakes = errors()
    sections = blocks((f.section, f) for f in listed())
    titles = [t[0].upper() + t[1:] for t, _ in sections]
    out = [HEAD]
    for title, (_, functions) in zip(titles, sections):
        out.append(f"**[{title}](#{re.sub(r'[^a-z0-9 -]', '', title.lower()).replace(' ', '-')})** " + " ".join(f"[{f.name[3:]}](#{f.name})" for f in functions) + "\n\n")
    used = set()
    for title, (section, functions) in zip(titles, sections):
        out.append(f"## {title}\n\n")
        for f in functions:
            out.append(f"### {f.name}\n\n{comment(f)}\n\n```c\n{declaration(f)}\n" + "".join(f"    {line}\n" for line in shown.get(f.name, ["(no example)"])) + "```\n\n")
            inputs, results, ops, flows, by_dtype, wrong = (facts.get(f.name, []) + [""] * 6)[:6]
            ops = [o for o in dict.fromkeys(ops.split()) if o not in LEAVES]
            line = []
            if results:
                line.append(f"{inputs} → {results}" if inputs else results)
            if section not in NO_MATH or f.name.endswith("_apply"):
                line += [f"**dtypes** {dtypes(by_dtype)}"] if by_dtype else []
                line += [f"**gradient** {gradient(flows, ops, ruled)}"] if flows else []
            if ops:
                line.append("**made of** " + " ".join(ops).replace("reduce_", "reduce "))
            numbers = sorted(set(wrong.split()) | set(mistakes.get(f.name, [])))
            used |= set(numbers) | set(re.findall(r"KN\d{4}", by_dtype + flows))
            if numbers:
                line.append("**mistakes** " + " ".join(numbers))
            out.append(" · ".join(line) + ("\n\n" if line else ""))
    out.append("## Messages\n\n| number | message | what to do |\n|---|---|---|\n")
    out += [f"| {n} | {text} | {hint} |\n" for n, (text, hint) in messages.items() if n in used | {"KN1101", "KN1103"}]
    return re.sub(r"\n{3,}", "\n\n", "".join(out))


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1]))
