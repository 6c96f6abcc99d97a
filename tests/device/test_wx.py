"""No page is writable and executable at once: neither what the process's maps show, while code is being made and while it runs, nor what
it ever asks the kernel for (a library loaded before all others sees each call)."""
import re
import subprocess
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void say(const char *what, int prot, int fd) {
    char line[64];
    int to = open(getenv("SHIM_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    int n = snprintf(line, sizeof line, "%s %c%c %s\n", what, prot & PROT_WRITE ? 'w' : '-', prot & PROT_EXEC ? 'x' : '-', fd >= 0 ? "file" : "own");
    if (to >= 0) { if (write(to, line, (size_t)n) < 0) abort(); close(to); }
}
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    if (prot & PROT_EXEC) say("mmap", prot, fd);
    return real(at, n, prot, flags, fd, off);
}
int mprotect(void *at, size_t n, int prot) {
    static int (*real)(void *, size_t, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mprotect");
    if (prot & PROT_EXEC) say("mprotect", prot, -1);
    return real(at, n, prot);
}
#ifdef BREAK
__attribute__((constructor)) static void breaks(void) { mprotect(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, 7); usleep(200000); }
#endif
"""


def watched(koine, tmp_path, preload, args, **env):
    """What it asked for (lines of the shim), and every line of its maps that was both, as often as they could be read."""
    log = tmp_path / "log"
    env = koine.env(LD_PRELOAD=preload, SHIM_LOG=str(log), KN_CACHE="off", KN_VERIFY="0", **env)
    p = subprocess.Popen([koine.path, *map(str, args)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    both, seen = set(), [0]

    def look():
        while p.poll() is None:
            try:
                lines = Path(f"/proc/{p.pid}/maps").read_text().splitlines()
            except OSError:
                return
            seen[0] += 1
            both.update(x for x in lines if re.match(r"\S+ .wx", x))
    t = threading.Thread(target=look)
    t.start()
    _, err = p.communicate(timeout=600)
    t.join()
    assert p.returncode == 0, err
    return log.read_text().split("\n")[:-1] if log.exists() else [], both, seen[0]


JOBS = [("train", ["train", "digits", "--steps", "4"], {}), ("threads", ["run", ROOT / "examples/attention.kn"], {"KN_THREADS": "5", "KN_ALONE": "1"}),
        ("search", ["run", ROOT / "examples/matmul.kn"], {"KN_BEAM": "1"}), ("named for perf", ["run", ROOT / "examples/conv.kn"], {"KN_PERF": "1"})]


@pytest.mark.parametrize("name, args, env", JOBS, ids=[j[0] for j in JOBS])
def test_never_both(koine, tmp_path, preload, name, args, env):
    asked, both, seen = watched(koine, tmp_path, preload(SHIM), args, KN_CODE="x86", **env)
    sealed = [x for x in asked if x == "mprotect -x own"]
    assert sealed and (seen > 3 or name != "train"), (asked, seen)
    assert not both and not [x for x in asked if " wx " in x]
    assert not [x for x in asked if x.startswith("mmap") and x.endswith("own")], "code is written before it may run"


def test_it_would_be_seen(koine, tmp_path, preload):
    """One page that is both, for a fifth of a second, at the start."""
    asked, both, _ = watched(koine, tmp_path, preload(SHIM, "-DBREAK"), ["run", ROOT / "examples/conv.kn"], KN_CODE="x86")
    assert both and "mprotect wx own" in asked
