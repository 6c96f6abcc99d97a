/* test_cgroup.c: the least limit on the way up to the root counts, of processors and of memory; in a tree of this file's own. */
#include "../tap.h"
#include "base/cgroup.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static const char *at(const char *name) {
    static char path[2][128];
    static int k;
    snprintf(path[k = !k], sizeof path[0], "%s/%s", root, name);
    return path[k];
}
static void put(const char *name, const char *text) {
    FILE *f = fopen(at(name), "w");
    if (f) fputs(text, f), fclose(f);
}

int main(void) {
    static const char *const folder[] = {"a", "a/b"}, *const file[] = {"list",          "cpu.max",      "a/cpu.max",
                                                                       "a/b/cpu.max",   "a/memory.max", "memory.max",
                                                                       "a/b/memory.max"};
    const char *temp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.40s/koine-XXXXXX", temp ? temp : "/tmp");
    CHECK(mkdtemp(root), "a folder");
    for (int i = 0; i < 2; i++) mkdir(at(folder[i]), 0700);
    put("list", "4:memory:/other\n0::/a/b\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "memory.max") == 0, "no file, no limit");
    put("memory.max", "9000000000\n"), put("a/memory.max", "max\n"), put("a/b/memory.max", "max\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "memory.max") == UINT64_C(9000000000), "the root's");
    put("a/memory.max", "1048576\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "memory.max") == 1048576, "one on the way");
    put("a/b/memory.max", "4096\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "memory.max") == 4096, "its own");
    put("cpu.max", "max 100000\n"), put("a/cpu.max", "250000 100000\n"), put("a/b/cpu.max", "400000 100000\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "cpu.max") == 3, "a quota is rounded up to whole processors");
    put("list", "4:memory:/a/b\n0::/\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "cpu.max") == 0, "where it is in the root itself");
    CHECK(ki_cgroup_limit_of(at("none"), root, "memory.max") == UINT64_C(9000000000), "or in no group");
    put("memory.max", "what\n");
    CHECK(ki_cgroup_limit_of(at("list"), root, "memory.max") == 0, "a file that says nothing");
    uint64_t all = ki_memory_bytes(), here = ki_cgroup_limit("memory.max");
    CHECK(all && (!here || all <= here), "this process may use memory, and no more than its group");
    for (unsigned i = 0; i < sizeof file / sizeof *file; i++) unlink(at(file[i]));
    for (int i = 1; i >= 0; i--) rmdir(at(folder[i]));
    CHECK(rmdir(root) == 0, "all is gone again");
    return tap_done();
}
