"""What is installed can be used: headers from C and C++, pkg-config, CMake; the library shows only kn_ and is small."""
import os
import re
import shutil
import subprocess

import pytest

PROGRAM = r"""
#include <koine/koine.h>
#include <stdio.h>
int main(void) {
    kn_ctx *k = kn_open("INTERP");
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    kn_tensor t = kn_from_host(k, x, KN_F32, KN_SHAPE(2, 2));
    int bad = kn_to_host(kn_matmul(t, t), y, sizeof y);
    if (bad) puts(kn_message(k));
    kn_close(k);
    printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
    return bad != 0;
}
"""


def run(*args, **kw):
    r = subprocess.run(list(map(str, args)), capture_output=True, text=True, **kw)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


@pytest.fixture(scope="module")
def prefix(root, build, sanitized, tmp_path_factory):
    if sanitized:
        pytest.skip("the plain build is what is installed")
    where = tmp_path_factory.mktemp("prefix")
    b = os.path.relpath(build, root)  # as whoever built it said it: by another name all would be built anew, under the other tests' feet
    run("make", "-s", "-C", root, f"B={b}", "install", f"PREFIX={where}")
    return where


def test_files_are_in_place(prefix):
    for name in ("bin/koine", "include/koine/koine.h", "lib/libkoine.a", "lib/libkoine.so", "lib/libkoine.so.0",
                 "lib/pkgconfig/koine.pc", "lib/cmake/koine/koine-config.cmake", "share/man/man1/koine.1"):
        assert (prefix / name).exists(), name


def flags(prefix):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    return run("pkg-config", "--cflags", "--libs", "koine", env=env).split()


@pytest.mark.parametrize("compiler, ending", [("cc", "c"), ("c++", "cc"), ("clang", "c"), ("clang++", "cc")])
def test_a_program_builds_with_pkg_config_and_runs(prefix, tmp_path, compiler, ending):
    if not shutil.which(compiler) or not shutil.which("pkg-config"):
        pytest.skip(f"no {compiler} or no pkg-config")
    (tmp_path / f"p.{ending}").write_text(PROGRAM)
    run(compiler, "-Wall", "-Wextra", "-Werror", tmp_path / f"p.{ending}", "-o", tmp_path / "p", *flags(prefix))
    assert run(tmp_path / "p", env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}) == "7 10 15 22\n"


def test_a_program_builds_with_cmake(prefix, tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    (tmp_path / "p.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p C)\nfind_package(koine 0.1 REQUIRED)\n"
        "add_executable(p p.c)\ntarget_link_libraries(p koine::koine)\n"
        "add_executable(q p.c)\ntarget_link_libraries(q koine::static)\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "b")
    for program in "pq":
        assert run(tmp_path / "b" / program) == "7 10 15 22\n"


@pytest.mark.parametrize("header", ["base.h", "uop.h", "tensor.h", "io.h", "device.h", "koine.h"])
@pytest.mark.parametrize("compiler, language", [("cc", "-std=c99"), ("c++", "-std=c++11")])
def test_each_header_stands_alone(root, tmp_path, header, compiler, language):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    if not (root / "include/koine" / header).exists():
        pytest.skip("not yet")
    source = tmp_path / ("t.c" if compiler == "cc" else "t.cc")
    source.write_text(f"#include <koine/{header}>\nint main(void) {{ return 0; }}\n")
    run(compiler, language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", root / "include", "-fsyntax-only", source)


def test_only_kn_is_exported(libkoine):
    names = re.findall(r" [A-Z] (\S+)", run("nm", "-D", "--defined-only", libkoine))
    assert names and all(re.match(r"kn_|KOINE_0", n) for n in names), [n for n in names if not n.startswith("kn_")]


def test_it_needs_libc_and_libm_and_is_small(libkoine, sanitized, tmp_path):
    if sanitized:
        pytest.skip("the plain build is what is measured")
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", run("readelf", "-d", libkoine))
    assert {n.split(".so")[0] for n in needed} <= {"libc", "libm", "ld-linux-x86-64"}, needed
    assert "libkoine.so.0" in run("readelf", "-d", libkoine)
    stripped = tmp_path / "lib.so"
    run("strip", "-o", stripped, libkoine)
    assert stripped.stat().st_size < 2_000_000


def test_the_wording_of_rules_stays_in_the_command(koine_session, build, libkoine, sanitized):
    if sanitized:
        pytest.skip("the plain build is what is measured")
    library, command = libkoine.read_bytes(), (build / "koine").read_bytes()
    rules = [r for r in koine_session.json("rules") if "rule" in r]
    assert len(rules) > 1000 and all(r["text"].encode() in command for r in rules)
    assert all(r["text"].encode() in library for r in rules if r["kind"] == "accept"), "messages of specs show it"
    assert [r["rule"] for r in rules if r["kind"] != "accept" and len(r["text"]) > 40 and r["text"].encode() in library] == []
    assert all(r["rule"].encode() in library for r in rules), "failures and traces name every rule"


def test_every_public_function_is_defined(root, libkoine):
    declared = set()
    for h in (root / "include/koine").glob("*.h"):
        declared |= set(re.findall(r"^KN_API [^;(]*?\**(kn_\w+)\(", h.read_text(), re.M))
    defined = set(re.findall(r" T (kn_\w+)", run("nm", "-D", "--defined-only", libkoine)))
    assert declared - defined == set()
    assert defined - declared == set()
