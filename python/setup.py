"""`pip install ./python` after `make`: the library and the headers, which the package reads, go into it as koine/_c."""
import os
import re
import shutil
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
            os.system(f"strip '{to / LIBRARY.name}'")


class Binary(Distribution):
    def has_ext_modules(self):
        return True


try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70: the wheel package has it
    from wheel.bdist_wheel import bdist_wheel


class wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


version = ".".join(re.findall(r"^#define KN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (HEADERS / "base.h").read_text(), re.M))
setup(version=version, cmdclass={"build_py": build, "bdist_wheel": wheel}, distclass=Binary)
