"""The C headers as Python reads them: prototypes, structs, enums and comments. Nothing of the ABI is written twice.

`FUNCTIONS[name]` is a Function: what it returns, its parameters, its comment, its section. `lib()` is the loaded library,
every function with its ctypes prototype. Two handles on the same library differ in one thing: `lib()` keeps Python's global
lock (building a graph takes microseconds), `slow()` lets other threads run (compiling and computing).
"""
import ctypes
import os
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]  # of a checkout
INSTALLED = (HERE / "_c").is_dir()
HEADERS = HERE / "_c" if INSTALLED else ROOT / "include" / "koine"
MAX_LIST = 32
TO_END = 2**63 - 1

P = ctypes.c_void_p


class Ints(ctypes.Structure):
    """kn_ints"""
    _fields_ = [("n", ctypes.c_int64), ("v", ctypes.c_int64 * MAX_LIST)]


def ints(values):
    """kn_ints of a sequence of integers; one that is too long is left for the library to refuse."""
    out = Ints(len(values))
    out.v[: min(len(values), MAX_LIST)] = values[:MAX_LIST]
    return out


class Function:
    def __init__(self, name, result, params, doc, section, header):
        self.name, self.result, self.params, self.doc, self.section, self.header = name, result, params, doc, section, header

    @property
    def kinds(self):
        return [kind for kind, _ in self.params]


class Struct:
    """A struct of the headers that holds data; opaque ones are void pointers."""

    def __init__(self, name, fields, doc):
        self.name, self.fields, self.doc = name, fields, doc
        self.type = type(name, (ctypes.Structure,), {"_fields_": [(f, KINDS[kind]) for kind, f in fields]})


KINDS = {"void": None, "int": ctypes.c_int, "unsigned": ctypes.c_uint, "double": ctypes.c_double, "size_t": ctypes.c_size_t,
         "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "kn_ints": Ints, "kn_tensor": P, "kn_uop": P, "char *": P, "const char *": ctypes.c_char_p,
         "kn_fn": ctypes.PYFUNCTYPE(None, P, P, P), "release": ctypes.CFUNCTYPE(None, P)}
FUNCTIONS, STRUCTS, ENUMS = {}, {}, {}
CHOICES = {}  # an enum by what tells its members apart: KN_QUANTILE_LINEAR is CHOICES["kn_quantile_method"]["linear"]


def kind_of(text):
    """A parameter's or result's type as KINDS names it; pointers to what it does not name are void pointers."""
    text = re.sub(r"\s*\*\s*", " *", text.strip())
    if text not in KINDS and text.endswith("*"):
        KINDS[text] = P
    return text


def _params(text):
    text = re.sub(r"void \(\*(\w+)\)\(void \*\w*\)", r"release \1", text)
    text = re.sub(r"\w+ \(\*(\w+)\)\([^()]*\)", r"void *\1", text)
    if text.strip() == "void":
        return []
    return [(kind_of(m[1]), m[2]) for m in (re.match(r"(.*?[\s*])(\w+)$", p.strip()) for p in text.split(","))]


def _words(comment):
    """A C comment's text."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment[2:-2].strip().split("\n")]
    return " ".join(line.strip() for line in lines).strip()


TOKEN = re.compile(r"(?P<section>/\* ---- (?P<title>.*?) -* ?(?:\n \* .*?)?\*/)|(?P<comment>/\*.*?\*/)|(?P<blank>\n[ \t]*(?=\n))"
                   r"|KN_API (?P<result>[\w ]+?[ *]+?)(?P<name>kn_\w+)\((?P<params>(?:[^;{}()]|\(\*\w+\)\([^()]*\))*)\);"
                   r"|typedef struct (?P<struct>\w+) \{(?P<fields>[^}]*)\} \w+;|typedef enum (?P<enum>\w+) \{(?P<members>[^}]*)\} \w+;"
                   r"|#define[^\n]*(?:\\\n[^\n]*)*|[^\n]", re.S)


def _fields(text):
    text, out = re.sub(r"/\*.*?\*/", "", text, flags=re.S), []
    for one in filter(None, (f.strip() for f in text.split(";"))):
        first, *more = one.split(",")
        m = re.match(r"(.*?[\s*])(\w+)$", first)
        out += [(kind_of(m[1]), name.strip()) for name in [m[2], *more]]
    return out


def _goes_on(comment, name, params):
    """Is a comment that stands inside a block, above another declaration, about this one too?"""
    words = set(re.findall(r"\w{3,}", comment)) - {"axis"}
    return comment.startswith("The same") or name.removeprefix("kn_") in words or any(p in words for _, p in params)


def _read(header):
    """A comment at the head of a block of declarations is for all of it, one inside it for the next and those it names,
    one behind a declaration for that alone."""
    above, head, first, section, last, text = "", True, True, "", None, header.read_text()
    for m in TOKEN.finditer(text):
        if m["section"]:
            above, head, last, section = "", True, None, re.split(r" \(|: ", m["title"].strip())[0]
        elif m["blank"] is not None:
            above, head, last = "", True, None
        elif m["comment"] and last and "\n" not in text[last[1] : m.start()]:
            last[0].doc = (last[0].doc + " " + _words(m[0])).strip()
        elif m["comment"]:
            above, first, last, group = _words(m[0]), True, None, head
        elif m["name"]:
            params = _params(m["params"])
            if above and not (first or group or _goes_on(above, m["name"], params)):
                above = ""
            f = FUNCTIONS[m["name"]] = Function(m["name"], kind_of(m["result"]), params, above, section, header.name)
            first, head, last = False, False, (f, m.end())
        elif m["struct"] and m["struct"] not in KINDS:
            STRUCTS[m["struct"]] = s = Struct(m["struct"], _fields(m["fields"]), above)
            KINDS[s.name], KINDS[f"const {s.name} *"], KINDS[f"{s.name} *"] = s.type, P, P
        elif m["enum"]:
            KINDS[m["enum"]], value = ctypes.c_int, -1
            for one in filter(None, (e.strip() for e in re.sub(r"/\*.*?\*/", "", m["members"], flags=re.S).split(","))):
                name, _, given = one.partition("=")
                value = int(given) if given else value + 1
                ENUMS.setdefault(m["enum"], {})[name.strip()] = value
            common = len(os.path.commonprefix(list(ENUMS[m["enum"]])).rpartition("_")[0]) + 1
            CHOICES[m["enum"]] = {n[common:].lower(): v for n, v in ENUMS[m["enum"]].items()}


for _h in ("base.h", "uop.h", "device.h", "tensor.h", "nn.h", "io.h"):
    _read(HEADERS / _h)
DTYPE_NUMBERS = {n.removeprefix("KN_").lower() if n != "KN_IDX" else "index": v for n, v in ENUMS["kn_dtype"].items() if n != "KN_DTYPE_COUNT"}
STATUS = {v: n for n, v in ENUMS["kn_status"].items()}

_lib = _slow = None


def library_path():
    """KOINE_LIB, else the package's own, else that of the checkout's build folder (KOINE_BUILD)."""
    if os.environ.get("KOINE_LIB"):
        return Path(os.environ["KOINE_LIB"])
    return HERE / "_c" / "libkoine.so" if INSTALLED else Path(os.environ.get("KOINE_BUILD", ROOT / "build")) / "libkoine.so"


def load(path=None):
    """The library; the first call decides which."""
    global _lib, _slow
    if _lib is None:
        path = Path(path or library_path())
        if not path.exists():
            raise ImportError(f"{path} is not there: run `make` in koine's folder, or name the library in KOINE_LIB")
        slow, quick = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        for f in FUNCTIONS.values():
            for one in (slow, quick):
                c = getattr(one, f.name, None)
                if c is not None:
                    c.restype, c.argtypes = KINDS[f.result], [KINDS[kind] for kind in f.kinds]
        _lib, _slow = quick, slow
    return _lib


def slow():
    load()
    return _slow
