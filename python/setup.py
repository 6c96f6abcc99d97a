"""`pip install ./python` after `make`: the library and the headers, which the package reads, go into it as koine/_c."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent / "include" / "koine"
LIBRARY = Path(os.environ.get("KOINE_BUILD", HERE.parent / "build")) / "libkoine.so"


class build(build_py):
    def run(self):
        super().run()
        if not LIBRARY.exists():
            raise SystemExit(f"koine: {LIBRARY} is not there. Run `make` in {HERE.parent} first, or name another build folder in KOINE_BUILD.")
        to = Path(self.build_lib) / "koine" / "_c"
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for f in [LIBRARY, *sorted(HEADERS.glob("*.h"))]:
            shutil.copyfile(f, to / f.name)
        if shutil.which("strip"):
            subprocess.run(["strip", to / LIBRARY.name], check=True)
        # Type stubs, from the headers that were just copied. Without numpy at hand the package has none, and works as well.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([self.build_lib, *sys.path])}
        r = subprocess.run([sys.executable, "-m", "koine._stubs", to.parent], env=env, stderr=subprocess.PIPE, text=True)
        if r.returncode:
            print(f"koine: no type stubs: {r.stderr.strip().splitlines()[-1]}", file=sys.stderr)


class Binary(Distribution):
    def has_ext_modules(self):
        return True


commands = {"build_py": build}
try:
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # setuptools before 70: the wheel package has it
        from wheel.bdist_wheel import bdist_wheel

    class wheel(bdist_wheel):
        def get_tag(self):  # no code of Python's own is in it: any Python 3 on this kind of machine
            return "py3", "none", super().get_tag()[2]

    commands["bdist_wheel"] = wheel
except ImportError:
    pass

version = ".".join(re.findall(r"^#define KN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (HEADERS / "base.h").read_text(), re.M))
setup(version=version, cmdclass=commands, distclass=Binary)
