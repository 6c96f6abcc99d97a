/* cgroup.c: see cgroup.h. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "limit", "limit period", or "max" for none. */
static uint64_t limit_in(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned long long limit = 0, period = 0;
    if (!f) return 0;
    int got = fscanf(f, "%llu %llu", &limit, &period);
    fclose(f);
    if (got < 1) return 0;
    return got == 2 && period ? limit / period + (limit % period != 0) : limit;
}

uint64_t ki_cgroup_limit_of(const char *list, const char *root, const char *name) {
    char line[1024], dir[1024] = "", path[1400];
    uint64_t least = 0;
    FILE *f = fopen(list, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0) snprintf(dir, sizeof dir, "%s", line + 3);
    }
    if (f) fclose(f);
    for (;;) {
        snprintf(path, sizeof path, "%.255s%s/%.64s", root, strcmp(dir, "/") ? dir : "", name);
        uint64_t limit = limit_in(path);
        if (limit && (!least || limit < least)) least = limit;
        char *cut = strrchr(dir, '/');
        if (!cut) return least;
        *cut = 0;
    }
}

uint64_t ki_cgroup_limit(const char *name) { return ki_cgroup_limit_of("/proc/self/cgroup", "/sys/fs/cgroup", name); }

uint64_t ki_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0, limit = ki_cgroup_limit("memory.max");
    return limit && (!all || limit < all) ? limit : all;
}
