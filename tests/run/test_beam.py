"""KN_BEAM=n: a kernel's loops are searched for once and found from then on; stopped, or short of processes, it goes on; whatever happened to
its file, the answer is that of the heuristics, up to the order of sums."""
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from damage import damages

MATMUL = """koine 1 tensor
%a = param "a" : f32 [{0}, {1}] in [-2, 2]
%b = param "b" : f32 [{1}, {2}] in [-2, 2]
%a3 = reshape %a ({0}, {1}, 1)
%ax = expand %a3 ({0}, {1}, {2})
%b3 = reshape %b (1, {1}, {2})
%bx = expand %b3 ({0}, {1}, {2})
%p = mul %ax %bx
%s = reduce add %p axes=(1)
%y = reshape %s ({0}, {2})
out "y" = %y
"""


@pytest.fixture
def small(tmp_path):
    p = tmp_path / "small.kn"
    p.write_text(MATMUL.format(17, 19, 33))
    return p


class Ran:
    def __init__(self, r, out):
        self.log = r.stderr
        m = re.search(r"searched for (\d+) kernels, measured (\d+) lists", r.stderr)
        self.searched, self.measured = map(int, m.groups()) if m else (0, 0)
        self.y = np.load(out)


@pytest.fixture
def run(koine, tmp_path):
    def go(program, *args, **env):
        out = tmp_path / "y.npy"
        env = {"KN_CODE": "x86", "KN_CACHE": str(tmp_path / "cache"), "KN_VERIFY": "0", "KN_BEAM": "1", **env}
        return Ran(koine("run", program, "--out", f"y={out}", *args, env=env), out)
    return go


def records(tmp_path):
    return sorted((tmp_path / "cache").glob("*.opt"))


def drop_programs(tmp_path):
    for f in (tmp_path / "cache").glob("*.kn"):
        f.unlink()


def agrees(a, b):
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=1e-5 * np.abs(b).max())


# In C each list is compiled by a process of its own: one program of it is enough.
@pytest.mark.parametrize("name, code", [(n, "x86") for n in ("softmax", "matmul", "gather", "scatter", "cumsum", "conv")] + [("gather", "c")])
def test_the_second_run_measures_nothing(run, root, tmp_path, name, code):
    program = root / "examples" / f"{name}.kn"
    plain = run(program, KN_BEAM="0", KN_CODE=code)
    assert plain.searched == 0 and not records(tmp_path)
    first = run(program, KN_CODE=code)
    assert first.searched == len(records(tmp_path)) > 0 and first.measured > 3, first.log
    assert "a defect of the compiler" not in first.log and agrees(first.y, plain.y)
    for again in (run(program, KN_CODE=code), run(program, KN_CODE=code, KN_VERIFY="1")):
        assert again.searched == 0 and again.y.tobytes() == first.y.tobytes()
    drop_programs(tmp_path)
    assert run(program, KN_CODE=code).searched == 0


def test_what_it_depends_on(run, small, tmp_path):
    """Other threads: another search. A narrower one takes what a wider one found; a wider one goes on."""
    base = {"KN_THREADS": "2"}
    first = run(small, **base)
    for k, env in enumerate([{"KN_THREADS": "1"}, {"KN_STREAM": "4096"}, {"KN_AHEAD": "8192"}]):
        assert run(small, **{**base, **env}).searched == 1 and len(records(tmp_path)) == k + 2
    wider = run(small, **base, KN_BEAM="2")
    assert wider.searched == 1 and len(records(tmp_path)) == 4
    drop_programs(tmp_path)
    assert run(small, **base).searched == 0 and run(small, **base, KN_BEAM="2").searched == 0 and first.measured > 0


@pytest.mark.runs("avx2")
def test_it_depends_on_the_level(run, small):
    for searched in (1, 0):
        assert [run(small, KN_CPU=level).searched for level in ("avx2", "sse2")] == [searched, searched]


def test_a_device_that_does_not_search(run, small, tmp_path):
    """What it keeps is what the heuristics choose: found where nobody asks for a search, and not where somebody does."""
    assert run(small, KN_DEVICE="NULL").searched == 0
    assert "0 cached" in run(small).log and len(records(tmp_path)) == 1
    assert "1 cached" in run(small, KN_BEAM="0").log and "1 cached" in run(small).log


def test_kernels_that_are_alike_are_searched_for_once(run, tmp_path):
    p = tmp_path / "two.kn"
    p.write_text("""koine 1 tensor
%a = param "a" : f32 [40, 50]
%b = param "b" : f32 [40, 50]
%s = reduce add %a axes=(1)
%t = reduce add %b axes=(1)
%x = reshape %s (40)
%y = reshape %t (40)
%z = reduce max %a axes=(0)
out "x" = %x
out "y" = %y
out "z" = %z
""")
    got = run(p)
    assert got.searched == len(records(tmp_path))


def test_a_damaged_file_is_made_again(run, small, tmp_path):
    want = run(small)
    file, = records(tmp_path)
    good = file.read_bytes()
    for bad in [*damages(good, 5, 4, 8), good.replace(b"koine search 1", b"koine search 2"), good.replace(b"opt 0", b"opt 5")]:
        drop_programs(tmp_path)
        file.write_bytes(bad)
        got = run(small)
        assert got.searched == 1 and agrees(got.y, want.y), bad[:60]
        drop_programs(tmp_path)
        assert run(small).searched == 0


def test_a_file_of_another_kernel(run, small, root, tmp_path):
    run(small)
    mine, = records(tmp_path)
    want = run(root / "examples/softmax.kn")
    for other in set(records(tmp_path)) - {mine}:
        other.write_bytes(mine.read_bytes())
    drop_programs(tmp_path)
    got = run(root / "examples/softmax.kn")
    assert got.searched and agrees(got.y, want.y)


def test_no_folder(run, small, tmp_path):
    """Nothing can be kept: each process searches, and says what is wrong with a folder it was told of."""
    plain = run(small, KN_BEAM="0")
    (tmp_path / "file").write_text("not a folder")
    for cache in ["off", str(tmp_path / "file"), "/proc/nowhere"]:
        got = run(small, KN_CACHE=cache)
        assert got.searched == 1 and agrees(got.y, plain.y)
        assert cache == "off" or f"KN_CACHE={cache}" in got.log


def test_a_full_folder(koine, small, tmp_path):
    env = koine.env(KN_CODE="x86", KN_CACHE=str(tmp_path / "cache"), KN_VERIFY="0", KN_BEAM="1")
    r = subprocess.run([*koine.under({"fsize": 0}), koine.path, "run", small], env=env, capture_output=True, text=True)
    assert r.returncode == 0 and "searched for 1 kernels" in r.stderr, r.stderr
    assert not records(tmp_path) and not list((tmp_path / "cache").glob(".koine*"))


@pytest.mark.filterwarnings("ignore:os.fork")  # JAX, where another test has it in this process, warns of any
@pytest.mark.parametrize("how", ["killed", "Ctrl-C"])
def test_stopped_and_gone_on_with(koine, run, tmp_path, how):
    p = tmp_path / "long.kn"
    p.write_text(MATMUL.format(160, 160, 160))
    env = koine.env(KN_CODE="x86", KN_CACHE=str(tmp_path / "cache"), KN_VERIFY="0", KN_BEAM="6")
    begun = subprocess.Popen([koine.path, "run", p], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    for _ in range(2400):
        if records(tmp_path) or begun.poll() is not None:
            break
        time.sleep(0.05)
    if how == "killed":
        begun.kill()
    else:
        os.killpg(begun.pid, signal.SIGINT)  # as a terminal sends it: to its children too
    assert -begun.wait(60) in (signal.SIGKILL, signal.SIGINT, 0)
    file, = records(tmp_path)
    known = file.read_text(errors="replace")
    if "\nfound " in known:
        pytest.skip("it was done before it could be stopped")
    times = known.count("\ntime ")
    got = run(p, KN_BEAM="6")
    assert "some before" in got.log and got.searched == 1
    after = file.read_text(errors="replace")
    assert "\nfound 6 " in after and after.count("\ntime ") == times + got.measured
    kept = set(re.findall(r"time (\w+ \w+) \w+", known))
    assert kept <= set(re.findall(r"time (\w+ \w+) \w+", after))


# Only so many processes as PROCESSES says.
FEW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void compilers_are_as_they_are(void) { unsetenv("LD_PRELOAD"); }
static int may(void) { static int n; return n++ < atoi(getenv("PROCESSES")); }
pid_t fork(void) {
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    return may() ? real() : (errno = EAGAIN, -1);
}
int posix_spawn(pid_t *p, const char *path, const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *a, char *const *v, char *const *e) {
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *);
    *(void **)&real = dlsym(RTLD_NEXT, "posix_spawn");
    return may() ? real(p, path, fa, a, v, e) : EAGAIN;
}
"""


# In C each list takes a process to compile it too, and the answer's own is there from the plain run.
@pytest.mark.parametrize("code, processes", [("x86", 0), ("x86", 1), ("x86", 9), ("c", 2)])
def test_too_few_processes(run, small, tmp_path, preload, code, processes):
    """What could not be run was not measured: nothing is found and no program kept, and a later search goes on from what was."""
    env = {"KN_THREADS": "1", "KN_CODE": code}
    plain = run(small, **env, KN_BEAM="0")
    drop_programs(tmp_path)
    few = run(small, **env, LD_PRELOAD=preload(FEW), PROCESSES=processes)
    assert "given up, a run could not be made" in few.log and "defect" not in few.log and few.y.tobytes() == plain.y.tobytes()
    assert not list((tmp_path / "cache").glob("*.kn")) and len(records(tmp_path)) == (processes > 0)
    known = "".join(f.read_text(errors="replace") for f in records(tmp_path))
    assert "\nfound " not in known
    kept = set(re.findall(r"time (\w+ \w+ \w+)", known))
    assert {t for t in kept if "7ff0000000000000" not in t} if processes else not kept
    later = run(small, **env)
    assert later.searched == 1 and ("some before" in later.log) == (processes > 0) and agrees(later.y, plain.y)
    after = records(tmp_path)[0].read_text(errors="replace")
    assert "\nfound 1 " in after and {t.rsplit(" ", 1)[0] for t in kept} <= set(re.findall(r"time (\w+ \w+) \w+", after))
    assert run(small, **env).searched == 0


def test_many_threads(run, tmp_path):
    """Lists for more threads than there are cores are run as well: what is found is compared with a time. (Where it is not, within what a
    busy machine gives, the search says so.)"""
    p = tmp_path / "many.kn"
    p.write_text(MATMUL.format(192, 24, 32))
    got = run(p, KN_THREADS="96", KN_ALONE="1")
    assert got.searched == 1 and not re.search(r"\b(inf|nan)\b|no time ", got.log), got.log
    assert re.search(r"us -> |ms -> |given up", got.log), got.log
    for f in records(tmp_path):
        assert not re.search(r"\nfound .*7ff0000000000000", f.read_text(errors="replace"))


# Terms that do not vary, vary in whether they are there, or are few numbers: errors of their sums all go one way.
@pytest.mark.parametrize("rows, terms", [
    (1, "%c = reshape 0.1:f32 (1, 1)\n%t = expand %c (1, 1048576)"),
    (1, '%x = param "x" : f32 [1, 1048576]\n%p = lt %x 0.5\n%t = where %p 0.1:f32 0:f32'),
    (1, '%x = param "x" : u8 [1, 1048576]\n%f = cast %x : f32\n%t = mul %f 0.1'),
    (256, '%x = param "x" : f32 [256, 1]\n%e = expand %x (256, 65536)\n%t = exp %e'),
], ids=["constant", "there", "few", "rows"])
def test_sums_of_what_does_not_vary(run, tmp_path, rows, terms):
    (tmp_path / "sum.kn").write_text(f'koine 1 tensor\n{terms}\n%y = reduce add %t axes=(1)\nout "y" = %y\n')
    plain, found = run(tmp_path / "sum.kn", KN_BEAM="0"), run(tmp_path / "sum.kn", KN_BEAM="2")
    assert found.searched and found.measured > 3 and "defect" not in found.log, found.log
    assert np.allclose(found.y, plain.y, rtol=2e-2), (found.y, plain.y)
