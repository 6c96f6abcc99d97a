"""What a process may not have: memory (at any size of its address space), room for files, a folder it may write to. A clear message,
or the answer: never a crash, never another answer, nothing left behind."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = 1 << 14


@pytest.fixture
def limited(koine, tmp_path):
    """koine under limits {prlimit's option: bytes}: exit code, stdout, stderr."""
    def go(*args, limits, stdin=None, timeout=600, **env):
        env = koine.env(**{"KN_CACHE": str(tmp_path / "cache"), "KN_VERIFY": "0", "KN_THREADS": "2", **env})
        r = subprocess.run([*koine.under(limits), koine.path, *map(str, args)], env=env, input=stdin, capture_output=True, text=True, timeout=timeout)
        return r.returncode, r.stdout, r.stderr
    return go


def refusal(err):
    """One message, with its number and what to do."""
    said = [line for line in err.splitlines() if line.startswith("koine")]
    return len(said) == 1 and re.search(r"KN\d{4}: |out of memory", said[0])


def enough(limited, *args, **env):
    """The least address space, in steps, in which it succeeds."""
    low, high = 1, 1 << 18
    while high - low > 1:
        mid = (low + high) // 2
        rc, _, _ = limited(*args, limits={"as": mid * STEP}, **env)
        low, high = (low, mid) if rc == 0 else (mid, high)
    return high


JOBS = [
    ("run", [("run", ROOT / "examples/attention.kn")], {}),
    ("interpreted", [("run", ROOT / "examples/conv.kn", "--device", "INTERP")], {}),
    ("compile", [("compile", ROOT / "examples/attention.kn", "--target", "x86")], {}),
    ("train", [("train", "digits", "--steps", "2", "--json")], {}),
    ("search", [("run", ROOT / "examples/softmax.kn")], {"KN_BEAM": "1"}),
]


def answer(out):
    """Without times."""
    return re.sub(r'"(images_s|\w*seconds|compile_s|run_s)": [\d.e+-]+,? ?', "", out)


@pytest.mark.parametrize("name, job, env", JOBS, ids=[j[0] for j in JOBS])
def test_address_space(limited, sanitized, name, job, env):
    """From what is enough downwards, closely at first."""
    if sanitized:
        pytest.skip("a sanitizer's own tables take 14 TiB of it")
    args, = job
    want = answer(limited(*args, limits={}, **env)[1])
    most = enough(limited, *args, KN_CACHE="off", **env)
    begins = enough(limited, "help")  # below, it is the loader that fails, as it likes
    refused = 0
    for steps in {*range(most - 12, most + 2), *(begins + (most - begins) * k // 16 for k in range(1, 16))}:
        if steps < begins:
            continue
        rc, out, err = limited(*args, limits={"as": steps * STEP}, KN_CACHE="off", **env)
        assert rc in (0, 1), (steps, rc, err)
        if rc == 0 and name != "search":
            assert answer(out) == want, steps
        if rc:
            refused += 1
            assert refusal(err), (steps, err)
    assert refused >= 3, (begins, most)


@pytest.mark.parametrize("code", ["x86", "c"])
@pytest.mark.parametrize("room", [0, 100, 1000])
def test_a_full_folder(limited, koine, tmp_path, code, room):
    """Files end at so many bytes, as on a full disk: what could not be kept is made each time, and no part of it is left."""
    program = ROOT / "examples/softmax.kn"
    want = koine("run", program, env={"KN_CODE": code}).stdout
    if code == "c":  # the compiler needs files too: its failure is a message
        rc, out, err = limited("run", program, limits={"fsize": room}, KN_CODE=code)
        assert rc == 1 and refusal(err) and not out, err
    else:
        for _ in range(2):
            rc, out, err = limited("run", program, limits={"fsize": room}, KN_CODE=code)
            assert (rc, out) == (0, want), err
            assert "0 cached" in err, err
    left = [p.name for p in (tmp_path / "cache").iterdir()] if (tmp_path / "cache").exists() else []
    assert not [p for p in left if not p.endswith(".lock")], left
    rc, out, err = limited("run", program, limits={}, KN_CODE=code)
    assert (rc, out) == (0, want)
    rc, out, err = limited("run", program, limits={}, KN_CODE=code)
    assert (rc, out) == (0, want) and " 0 cached" not in err


@pytest.mark.parametrize("folder", ["/sys/kernel", "/proc/self", "/dev/full"])
@pytest.mark.parametrize("code, beam", [("x86", "0"), ("c", "0"), ("x86", "1")])
def test_a_folder_that_cannot_be_written(limited, koine, folder, code, beam):
    """Not even by root, to whom it looks as if it could: the answer all the same, and told unless nothing had to be written."""
    program = ROOT / "examples/gather.kn"
    want = koine("run", program, env={"KN_CODE": code}).stdout
    rc, out, err = limited("run", program, limits={}, KN_CACHE=folder, KN_CODE=code, KN_BEAM=beam)
    assert (rc, out) == (0, want), err
    assert err.count(f"KN_CACHE={folder}") == 1 or (folder == "/sys/kernel" and code == "x86"), err


def test_another_versions_files(limited, koine, tmp_path):
    """Of the same name, sound in themselves, but for the version they state."""
    program = ROOT / "examples/softmax.kn"
    want = limited("run", program, limits={}, KN_CODE="x86", KN_BEAM="1")[1]
    files = sorted((tmp_path / "cache").glob("*.kn")) + sorted((tmp_path / "cache").glob("*.opt"))
    assert len(files) >= 2
    for f in files:
        good = f.read_bytes()
        versions = [m.start() for m in re.finditer(rb"koine (?:search )?1", good)]
        assert versions, f
        for at in versions:
            digit = good.index(b"1", at)
            f.write_bytes(good[:digit] + b"7" + good[digit + 1:])
            rc, out, err = limited("run", program, limits={}, KN_CODE="x86", KN_BEAM="1")
            assert rc == 0 and len(out) == len(want), err
        f.write_bytes(good)
    rc, out, err = limited("run", program, limits={}, KN_CODE="x86", KN_BEAM="1")
    assert (rc, out) == (0, want) and "searched" not in err


def test_no_threads_are_to_be_had(limited, koine):
    """The pool cannot start its threads: it does with those it has, or says so."""
    program = ROOT / "examples/softmax.kn"
    want = koine("run", program).stdout
    rc, out, err = limited("run", program, limits={"nproc": 1}, KN_THREADS="5", KN_ALONE="1")
    assert (rc == 0 and out == want) or (rc == 1 and refusal(err)), (rc, err)


FULL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int is_full(const char *path) { return strncmp(path, getenv("FULL"), strlen(getenv("FULL"))) == 0; }
ssize_t write(int fd, const void *data, size_t n) {
    static ssize_t (*real)(int, const void *, size_t);
    char link[64], path[4096];
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t at = readlink(link, path, sizeof path - 1);
    path[at > 0 ? at : 0] = 0;
    return is_full(path) ? errno = ENOSPC, -1 : real(fd, data, n);
}
int statvfs(const char *path, struct statvfs *v) {
    static int (*real)(const char *, struct statvfs *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    int r = real(path, v);
    if (r == 0 && is_full(path)) v->f_bavail = 1;
    return r;
}
"""


@pytest.mark.parametrize("code", ["c", "x86"])
def test_a_file_system_that_is_full(limited, koine, tmp_path, code):
    """New names can be had and nothing written to them (a library loaded before all others sees to it): the answer, told once."""
    (tmp_path / "full.c").write_text(FULL)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "full.so", tmp_path / "full.c", "-ldl"], check=True)
    program, folder = ROOT / "examples/softmax.kn", tmp_path / "cache"
    want = koine("run", program, env={"KN_CODE": code}).stdout
    before = f"{os.environ.get('LD_PRELOAD', '')} {tmp_path / 'full.so'}"
    env = {"KN_CODE": code, "LD_PRELOAD": before, "FULL": str(folder), "ASAN_OPTIONS": "detect_leaks=0"}  # the linker has leaks
    for _ in range(2):
        rc, out, err = limited("run", program, limits={}, **env)
        assert (rc, out) == (0, want), err
        assert err.count("compiled kernels are not kept") == 1 and f"KN_CACHE={folder}: No space left" in err, err
        assert not list(folder.iterdir())


@pytest.mark.parametrize("code, suffix", [("c", "so"), ("x86", "kn")])
def test_a_pipe_in_place_of_a_file(limited, tmp_path, code, suffix):
    """Nobody writes to it: it is not waited for, and what was made takes its place."""
    program = ROOT / "examples/softmax.kn"
    want = limited("run", program, limits={}, KN_CODE=code)[1]
    file, = (tmp_path / "cache").glob(f"*.{suffix}")
    file.unlink()
    os.mkfifo(file)
    rc, out, err = limited("run", program, limits={}, timeout=60, KN_CODE=code)
    assert (rc, out) == (0, want) and " 0 cached" in err and file.is_file(), err
