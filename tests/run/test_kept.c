/* Programs on disk: what this build is, read out of the notes the linker wrote, and files that are sound but no such program. */
#include "base/alloc.h"
#include "run/kept.h"
#include "../tap.h"

#include <koine/koine.h>

#include <dirent.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- notes ------------------------------------------------------------------------------------------------------- */

static size_t add_note(char *to, unsigned type, const char *name, const char *text, bool fill) {
    ElfW(Nhdr) h = {(unsigned)strlen(name) + 1, (unsigned)strlen(text), type};
    size_t desc = sizeof h + (h.n_namesz + 3) / 4 * 4, end = desc + h.n_descsz;
    memcpy(to, &h, sizeof h);
    memcpy(to + sizeof h, name, h.n_namesz);
    memcpy(to + desc, text, h.n_descsz);
    return fill ? (end + 3) / 4 * 4 : end;
}

/* The notes stand before a page that may not be read, so that nothing behind them is. */
static bool finds(const char *notes, size_t n, ki_digest *id) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE)) return false;
    memcpy(p + page - n, notes, n);
    bool found = ki_build_id_in(p + page - n, n, id);
    munmap(p, 2 * page);
    return found;
}

static void notes(void) {
    char v[256] = {0};
    size_t other = add_note(v, 1, "GNU", "version", true), last = other + add_note(v + other, 7, "Other", "odd", false);
    ki_digest id, want = ki_digest_bytes("0123456789", 10);
    CHECK(!finds(v, last, &id), "a last note that is not filled up: nothing behind it is read");
    size_t n = other + add_note(v + other, NT_GNU_BUILD_ID, "GNU", "0123456789", false);
    CHECK(finds(v, n, &id) && id.a == want.a && id.b == want.b, "nor need the build's be");
    bool none = false;
    for (size_t cut = 0; cut < n; cut++) none = none || finds(v, cut, &id);
    CHECK(!none, "none is found in notes that are cut");
    bool ours = ki_build_id(&want) && ki_build_id(&id);
    CHECK(ours && id.a == want.a && id.b == want.b, "this build has one");
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char dir[] = "/tmp/koine-test-XXXXXX";

/* The key of the one program that is kept. */
static bool only_key(ki_digest *key) {
    DIR *f = opendir(dir);
    unsigned long long a, b;
    int count = 0;
    for (struct dirent *e; f && (e = readdir(f));) {
        if (sscanf(e->d_name, "%16llx%16llx.kn", &a, &b) != 2) continue;
        *key = (ki_digest){a, b};
        count++;
    }
    if (f) closedir(f);
    return count == 1;
}

static bool clean(void) {
    DIR *f = opendir(dir);
    for (struct dirent *e; f && (e = readdir(f));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(f), e->d_name, 0);
    if (f) closedir(f);
    return rmdir(dir) == 0;
}

/* n: the allocation that fails, 0: none. */
static kn_status answer(uint64_t n, uint64_t *cached, float *y) {
    kn_ctx *k = kn_open("CPU");
    kn_set(k, "KN_CODE", "x86");
    kn_set(k, "KN_VERIFY", "0");
    kn_set(k, "KN_CACHE", dir);
    kn_tensor x = kn_muls(kn_from_host(k, (float[]){1, 2, 3}, KN_F32, KN_SHAPE(3)), 2);
    ki_alloc_fail(n, 0);
    kn_status s = kn_realize(x);
    ki_alloc_fail(0, 0);
    *cached = kn_stats_of(k).kernels_cached;
    float v[3] = {0};
    if (s == KN_OK) kn_to_host(x, v, sizeof v);
    *y = v[2];
    kn_close(k);
    return s;
}

static void no_program(const char *what, const char *text) {
    ki_digest key;
    ki_env env = {0};
    ki_code_cache c = {0};
    uint64_t cached, n = 0;
    float y;
    bool good = answer(0, &cached, &y) == KN_OK && only_key(&key) && ki_env_open(&env);
    ki_setting_set(&env, KI_VAR_CACHE, dir);
    good = good && ki_code_cache_open(&env, &c);
    for (int in_a_row = 0; good && in_a_row < 50;) {
        ki_code_cache_write(&c, key, ".kn", text, strlen(text));
        kn_status s = answer(n++, &cached, &y);
        good = s == KN_OK ? y == 6 && !cached : s == KN_NOMEM;
        in_a_row = s == KN_OK ? in_a_row + 1 : 0;
    }
    CHECK(good && n > 60, "%s: made again, whichever of %d allocations fails", what, (int)n);
    CHECK(answer(0, &cached, &y) == KN_OK && y == 6 && cached == 1, "%s: and found from then on", what);
    ki_code_cache_close(&c);
    ki_env_close(&env);
}

int main(void) {
    notes();
    if (!mkdtemp(dir)) return 1;
    no_program("a file of nonsense", "nonsense");
    no_program("a program of another stage", "koine 1 tensor\n%a = const 1.0 : f32\nout \"a\" = %a\n");
    CHECK(clean(), "nothing else is left");
    return tap_done();
}
