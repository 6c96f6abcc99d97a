"""Do the random programs find a stage that is broken? Each row of defects.py is a mistake a person would make, in one stage: its
file is patched in a scratch folder, compiled and linked before the library, and random programs are run until one fails.

    broken_stages.py [-n PROGRAMS] [-j JOBS] [PATTERN...]     defects whose "stage name" contains a pattern; all

It prints after how many programs each defect was found, and fails if one was not, if it does not compile, or if its text no
longer stands (once) in its file. `make test` runs one a stage; `make test DEFECTS=all T=tests/random` runs them all."""
import argparse
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from defects import DEFECTS  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("KOINE_BUILD", ROOT / "build"))
TEST = "tests/random/test_random_programs"
MOST = 500


class Defect(Exception):
    pass


def patched(defect):
    """The file with the mistake in it."""
    text = (ROOT / defect.file).read_text()
    count = text.count(defect.before)
    if count != 1:
        raise Defect(f"{defect}: its text stands {count} times in {defect.file}:\n{defect.before}")
    return text.replace(defect.before, defect.after)


def compile_broken(defect, folder):
    """The random-program test over a library with the mistake in it."""
    source = Path(folder) / defect.file
    source.parent.mkdir(parents=True)
    source.write_text(patched(defect))
    flags = [f.replace("-Werror", "-w") for f in shlex.split((BUILD / "flags").read_text())]
    if source.suffix == ".kr":
        made = source.with_suffix(".c")
        run([BUILD / "krc", source, made], defect)
        source = made
    broken, program = Path(folder) / "broken.o", Path(folder) / "test"
    run([*flags, "-c", source, "-o", broken], defect)
    run([*flags, BUILD / f"{TEST}.o", broken, BUILD / "libkoine.a", "-lm", "-lpthread", "-ldl", "-o", program], defect)
    return program


def run(command, defect):
    r = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True)
    if r.returncode:
        raise Defect(f"{defect}: {command[0]} fails\n{r.stderr[-2000:]}")


def programs_until_found(defect, most=MOST, seed=1):
    """(number of the first program that fails, how it fails), or (None, what was printed)."""
    with tempfile.TemporaryDirectory(prefix="koine-broken-") as folder:
        program = compile_broken(defect, folder)
        command = [program, "--first", "--jobs", 1, "--programs", most, "--seed", seed]
        command += ["--c-every", 1 if defect.cpu == "c" else most + 1] if defect.cpu else ["--stages-only"]
        env = {**os.environ, "KN_CACHE": str(Path(folder) / "cache")}
        env.pop("LD_PRELOAD", None)
        r = subprocess.run([str(c) for c in command], cwd=folder, env=env, capture_output=True, text=True, timeout=1800)
    m = re.search(r"^program (\d+): (.*)", r.stdout, re.M | re.S)
    return (int(m[1]), m[2].strip()) if m else (None, r.stdout + r.stderr)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("-n", type=int, default=MOST, metavar="PROGRAMS")
    a.add_argument("-j", type=int, default=os.cpu_count(), metavar="JOBS")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("pattern", nargs="*")
    o = a.parse_args()
    chosen = [d for d in DEFECTS if not o.pattern or any(p in str(d) for p in o.pattern)]
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(o.j) as pool:
        work = {d: pool.submit(programs_until_found, d, o.n, o.seed) for d in chosen}
        for d in chosen:
            try:
                n, how = work[d].result()
            except Defect as e:
                n, how = None, str(e)
            missed += n is None
            print(f"{d!s:58} {'NOT FOUND' if n is None else n:>9}  {how.splitlines()[0][:90] if how else ''}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} defects found within {o.n} programs")
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
