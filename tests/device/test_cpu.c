/* The CPU device: compiling, the two caches and what may happen to the one on disk, the compiler's absence and its
 * errors, names of devices, memory. */
#include "base/cpuid.h"
#include "device/cpu/cache.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "../tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/koine-test-XXXXXX";

static ki_env env;
static unsigned cpu;

static ki_device *fresh(void) {
    ki_env_clear(&env);
    return ki_device_open(&env, cpu);
}

#define TEXT(name, value)                                                                                              \
    "#ifndef KN_ONCE\n#define KN_ONCE\nstatic float once(float x) { return x + 1; }\n#endif\n"                         \
    "void " name "(void *const *buf, const long *var, long thread) {\n"                                                \
    "    ((float *)buf[0])[thread] = once(" value ") + (float)var[0];\n}\n"

static ki_kernel_text kernel(const char *name, const char *text) {
    return (ki_kernel_text){.name = name, .text = text, .n = strlen(text)};
}

/* What kernel k writes, run alone with variable 10. */
static float result(ki_device *d, const ki_kernel_text *k) {
    float f = -1;
    void *buf[] = {&f};
    int64_t var[] = {10};
    ki_launch l = {.entry = k->entry, .buf = buf, .var = var, .threads = 1};
    return k->entry && d->is->submit(d, &l, 1) && d->is->wait(d) ? f : -2;
}

static bool compile(ki_device *d, ki_kernel_text *k, size_t n) { return d->is->compile(d, "", k, n); }

/* Path of the only object in the cache folder. */
static bool only_file(char *path, size_t n) {
    DIR *f = opendir(dir);
    int count = 0;
    for (struct dirent *e; f && (e = readdir(f));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, n, "%s/%s", dir, e->d_name);
        count++;
    }
    if (f) closedir(f);
    return count == 1;
}

static void compiles(void) {
    ki_device *d = fresh();
    /* The same name twice with different texts, and one text twice. */
    ki_kernel_text k[] = {kernel("add", TEXT("add", "1")), kernel("add", TEXT("add", "2")),
                          kernel("other", TEXT("other", "3")), kernel("add", TEXT("add", "1"))};
    CHECK(compile(d, k, 4), "several kernels compile: %s", env.message.s ? env.message.s : "");
    CHECK(result(d, &k[0]) == 12 && result(d, &k[1]) == 13 && result(d, &k[2]) == 14 && result(d, &k[3]) == 12,
          "each is itself");
    CHECK(d->stats.compiled == 3 && d->stats.compiler_runs == 1, "three kernels, one compiler process");
    CHECK(compile(d, k, 4) && d->stats.compiler_runs == 1, "again: found in memory");
    ki_device_close(d);
    d = fresh();
    for (int i = 0; i < 4; i++) k[i].entry = NULL;
    CHECK(compile(d, k, 4) && d->stats.compiler_runs == 0 && d->stats.cached == 3, "another device: found on disk");
    CHECK(result(d, &k[1]) == 13, "what was found runs");
    ki_device_close(d);
}

/* The cached file after `harm` must be noticed and made again. */
static void survives(const char *what, void (*harm)(const char *path)) {
    char path[512];
    ki_kernel_text k = kernel("add", TEXT("add", "1"));
    bool there = only_file(path, sizeof path);
    harm(path);
    ki_device *d = fresh();
    CHECK(there && compile(d, &k, 1) && d->stats.compiler_runs == 1 && result(d, &k) == 12, "%s: compiled again", what);
    ki_device_close(d);
    d = fresh();
    k.entry = NULL;
    CHECK(compile(d, &k, 1) && d->stats.cached == 1 && result(d, &k) == 12, "%s: and kept", what);
    ki_device_close(d);
}
static void harm_cut(const char *path) {
    struct stat st;
    if (stat(path, &st) || truncate(path, st.st_size / 2)) perror(path);
}
static void flip_at(const char *path, long at, int whence) {
    FILE *f = fopen(path, "r+b");
    fseek(f, at, whence);
    int c = fgetc(f);
    fseek(f, at, whence);
    fputc(c ^ 0x55, f);
    fclose(f);
}
static void harm_byte(const char *path) { flip_at(path, 5000, SEEK_SET); }
static void harm_key(const char *path) { flip_at(path, -3, SEEK_END); }
static void harm_empty(const char *path) {
    if (truncate(path, 0)) perror(path);
}
static void harm_mode(const char *path) { chmod(path, 0777); }

static void clean(void) {
    DIR *f = opendir(dir);
    for (struct dirent *e; f && (e = readdir(f));)
        if (e->d_name[0] != '.') unlinkat(dirfd(f), e->d_name, 0);
    if (f) closedir(f);
}

static void disk(void) {
    clean();
    ki_kernel_text k = kernel("add", TEXT("add", "1"));
    ki_device *d = fresh();
    CHECK(compile(d, &k, 1), "one kernel compiles");
    ki_device_close(d);
    survives("cut", harm_cut);
    survives("damaged", harm_byte);
    survives("of another key", harm_key);
    survives("empty", harm_empty);
    survives("writable by others", harm_mode);
    clean();
    ki_setting_set(&env, KI_VAR_CACHE, "/proc/nowhere");
    d = fresh();
    CHECK(compile(d, &k, 1) && result(d, &k) == 12, "a folder that cannot be made is no error");
    ki_device_close(d);
    ki_setting_set(&env, KI_VAR_CACHE, "off");
    d = fresh();
    CHECK(compile(d, &k, 1) && result(d, &k) == 12 && d->stats.compiled == 1, "the cache can be switched off");
    ki_device_close(d);
    ki_setting_set(&env, KI_VAR_CACHE, dir);
}

static bool says(const char *text) { return env.message.s && strstr(env.message.s, text); }

static void compilers(void) {
    clean();
    ki_kernel_text k = kernel("add", TEXT("add", "1"));
    ki_setting_set(&env, KI_VAR_CC, "/no/such/compiler -O3");
    ki_device *d = fresh();
    CHECK(!compile(d, &k, 1) && env.err == KI_E_CC_MISSING && says("/no/such/compiler") && says("KN_CC"),
          "a missing compiler is named, and the way out");
    ki_device_close(d);
    ki_kernel_text way = kernel("way", "#ifdef __OPTIMIZE__\n#define WAY 1\n#else\n#define WAY 2\n#endif\n"
                                       "void way(void *const *buf, const long *var, long thread) {\n"
                                       "    ((float *)buf[0])[thread] = WAY;\n}\n");
    ki_setting_set(&env, KI_VAR_CC, "/usr/bin/env cc -O0");
    d = fresh();
    CHECK(compile(d, &way, 1) && result(d, &way) == 2, "options behind the compiler's name win");
    ki_device_close(d);
    ki_setting_set(&env, KI_VAR_CC, NULL);
    way.entry = NULL;
    d = fresh();
    CHECK(compile(d, &way, 1) && result(d, &way) == 1, "without them it optimizes");
    ki_setting_set(&env, KI_VAR_CC, "/usr/bin/env cc -O0");
    CHECK(compile(d, &way, 1) && result(d, &way) == 2, "another compiler counts from then on");
    uint64_t runs = d->stats.compiler_runs;
    ki_setting_set(&env, KI_VAR_CC, NULL);
    CHECK(compile(d, &way, 1) && result(d, &way) == 1 && d->stats.compiler_runs == runs,
          "and what the first one made is still known");
    ki_device_close(d);
    char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *cc = getenv("CC") ? strdup(getenv("CC")) : NULL;
    setenv("PATH", "/nowhere", 1);
    unsetenv("CC");
    d = fresh();
    CHECK(!compile(d, &k, 1) && env.err == KI_E_CC_MISSING && says("cc, gcc, clang") && says("KN_CC=/path"),
          "no compiler at all");
    ki_device_close(d);
    setenv("PATH", path, 1);
    if (cc) setenv("CC", cc, 1);
    free(path);
    free(cc);
    ki_setting_set(&env, KI_VAR_CC, "/bin/false");
    d = fresh();
    CHECK(!compile(d, &k, 1) && env.err == KI_E_CC_FAILED && says("/bin/false") && says("exit status 1"),
          "a compiler that fails");
    ki_device_close(d);
    char script[600];
    snprintf(script, sizeof script, "%s/.not-a-program", dir);
    FILE *f0 = fopen(script, "w");
    fputs("\1\2\3 this is no program\n", f0);
    fclose(f0);
    chmod(script, 0700);
    ki_setting_set(&env, KI_VAR_CC, script);
    d = fresh();
    CHECK(!compile(d, &k, 1) && env.err == KI_E_CC_START && says(script), "a compiler that is no program: %s",
          env.message.s);
    ki_device_close(d);
    unlink(script);
    ki_setting_set(&env, KI_VAR_CC, NULL);
    ki_setting_set(&env, KI_VAR_CACHE, "off");
    char *temp = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    setenv("TMPDIR", "/no/such/folder", 1);
    d = fresh();
    CHECK(!compile(d, &k, 1) && env.err == KI_E_TEMP_FILE && says("/no/such/folder") && says("TMPDIR"),
          "no room for temporary files");
    ki_device_close(d);
    if (temp) setenv("TMPDIR", temp, 1);
    else unsetenv("TMPDIR");
    free(temp);
    ki_setting_set(&env, KI_VAR_CACHE, dir);
    d = fresh();
    ki_kernel_text bad = kernel("bad", "void bad(void) { int x = nonsense; }\n");
    CHECK(!compile(d, &bad, 1) && env.err == KI_E_CC_FAILED && says("nonsense"),
          "what the compiler says is part of the message");
    ki_env_clear(&env);
    CHECK(compile(d, &k, 1) && result(d, &k) == 12, "and the device works on");
    ki_kernel_text missing = kernel("absent", "int present;\n");
    CHECK(!compile(d, &missing, 1) && env.err == KI_E_CODE_LOAD && says("absent"),
          "a kernel that its text does not define");
    ki_env_clear(&env);
    ki_kernel_text undefined = kernel("u", "void nobody_has_this(void);\nvoid u(void) { nobody_has_this(); }\n");
    CHECK(!compile(d, &undefined, 1) && env.err == KI_E_CODE_LOAD && says("nobody_has_this"), "a symbol nobody has");
    ki_device_close(d);
    ki_env_clear(&env);
    DIR *f = opendir(dir);
    int left = 0;
    for (struct dirent *e; f && (e = readdir(f));) left += strncmp(e->d_name, ".koine", 6) == 0;
    if (f) closedir(f);
    CHECK(left == 0, "no temporary file is left behind");
}

/* A file of a process that was killed while it wrote it, so long ago that it is not one of those that write now. */
static void left_behind(void) {
    static const char *const name[] = {".koine-killed.so", ".koine-killed.kn", ".koine-writes.kn"};
    const struct timespec long_ago[] = {{1000000000, 0}, {1000000000, 0}};
    char path[3][512];
    clean();
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", dir, name[i]);
        FILE *f = fopen(path[i], "w");
        if (f) fclose(f);
        if (i < 2) utimensat(AT_FDCWD, path[i], long_ago, 0);
    }
    ki_kernel_text k = kernel("add", TEXT("add", "1"));
    ki_device *d = fresh();
    CHECK(compile(d, &k, 1) && access(path[0], F_OK) && access(path[1], F_OK), "what was left behind is removed");
    CHECK(access(path[2], F_OK) == 0, "what is being written is not");
    unlink(path[2]);
    ki_device_close(d);
}

/* Whatever allocation fails, an object is kept under its own key or not at all. The compiler copies what a real one made. */
static void no_memory(void) {
    char made[512], path[512], script[512], copy[512], text[2048];
    clean();
    ki_kernel_text k = kernel("add", TEXT("add", "1"));
    ki_device *d = fresh();
    bool good = compile(d, &k, 1) && only_file(path, sizeof path);
    ki_device_close(d);
    snprintf(copy, sizeof copy, "%s/.made", dir);
    snprintf(script, sizeof script, "%s/.copy", dir);
    snprintf(text, sizeof text, "#!/bin/sh\nwhile [ $1 != -o ]; do shift; done\ncp %s $2\n", copy);
    good = good && rename(path, copy) == 0;
    FILE *f = fopen(script, "w");
    fputs(text, f);
    fclose(f);
    chmod(script, 0700);
    ki_setting_set(&env, KI_VAR_CC, script);
    int n = 0, failed = 0;
    for (int in_a_row = 0; good && in_a_row < 10;) {
        clean();
        d = fresh();
        k.entry = NULL;
        ki_alloc_fail((uint64_t)++n, 0);
        bool ok = compile(d, &k, 1);
        ki_alloc_fail(0, 0);
        good =
            ok ? result(d, &k) == 12 : env.err == KI_E_NOMEM || env.err == KI_E_CC_MISSING || env.err == KI_E_TEMP_FILE;
        ki_device_close(d);
        bool kept = only_file(made, sizeof made);
        d = fresh();
        k.entry = NULL;
        good = good && compile(d, &k, 1) && d->stats.cached == kept;
        ki_device_close(d);
        if (!good) printf("# %d: %s\n", n, env.message.s);
        failed += !ok;
        in_a_row = ok ? in_a_row + 1 : 0;
    }
    CHECK(good && failed > 10, "each of %d allocations may fail, and what is kept is found", n);
    ki_setting_set(&env, KI_VAR_CC, NULL);
    unlink(script);
    unlink(copy);
    ki_code_cache c;
    for (n = 1; n < 3; n++) {
        ki_env_clear(&env);
        ki_alloc_fail((uint64_t)n, 1);
        CHECK(!ki_code_cache_open(&env, &c) && env.err == KI_E_NOMEM && !c.dir && !c.temp,
              "a cache that has no memory from the %d. allocation on has nothing", n);
        ki_alloc_fail(0, 0);
        ki_code_cache_close(&c);
    }
    ki_env_clear(&env);
}

static void many(void) {
    enum { N = 40 };
    static char text[N][4096], name[N][8];
    ki_kernel_text k[N];
    for (int i = 0; i < N; i++) {
        char pad[3000];
        memset(pad, ' ', sizeof pad);
        snprintf(name[i], sizeof name[i], "k%d", i % 7);
        snprintf(text[i], sizeof text[i],
                 "%.*s void %s(void *const *buf, const long *var, long t) { *(float *)buf[0] = %d + t; }\n", 2900, pad,
                 name[i], i);
        k[i] = kernel(name[i], text[i]);
    }
    ki_device *d = fresh();
    bool good = compile(d, k, N);
    for (int i = 0; i < N && good; i++) good = result(d, &k[i]) == (float)i;
    CHECK(good, "forty kernels: %s", env.message.s ? env.message.s : "");
    CHECK(d->stats.compiler_runs <= 8, "in a few processes (%d)", (int)d->stats.compiler_runs);
    ki_device_close(d);
}

static void threads(void) {
    ki_kernel_text k = kernel("t", "void t(void *const *buf, const long *var, long thread) { ((float *)buf[0])[thread] "
                                   "= thread * 2 + var[0]; }\n");
    ki_setting_set(&env, KI_VAR_THREADS, "3");
    ki_device *d = fresh();
    float out[300] = {0};
    void *buf[] = {out};
    int64_t var[] = {5};
    ki_launch l = {.entry = NULL, .buf = buf, .var = var, .threads = 300};
    bool good = compile(d, &k, 1);
    l.entry = k.entry;
    good = good && d->is->submit(d, &l, 1);
    for (int i = 0; i < 300; i++) good = good && out[i] == (float)(2 * i + 5);
    CHECK(good, "a kernel runs once for each thread number");
    ki_device_close(d);
    ki_env_clear(&env);
    CHECK(!ki_setting_set(&env, KI_VAR_THREADS, "many") && env.err == KI_E_SETTING_VALUE && ki_cpu_threads(&env) == 3,
          "KN_THREADS=many is refused, and changes nothing");
    ki_env_clear(&env);
    CHECK(ki_setting_set(&env, KI_VAR_THREADS, "") && ki_cpu_threads(&env) >= 1, "an empty setting is the default");
    ki_env_clear(&env);
    CHECK(!ki_setting_set(&env, KI_VAR_STREAM, "1e6") && env.err == KI_E_SETTING_VALUE, "KN_STREAM=1e6 is refused");
    ki_env_clear(&env);
    ki_setting_set(&env, KI_VAR_STREAM, "4096");
    CHECK(ki_cpu_machine(&env).stream == 4096, "KN_STREAM=4096 is a number of bytes");
    ki_setting_set(&env, KI_VAR_STREAM, NULL);
    CHECK(ki_cpu_machine(&env).stream >= 32 << 10, "without it a part of the last cache (%d KiB)",
          (int)(ki_cpu_machine(&env).stream >> 10));
    ki_setting_set(&env, KI_VAR_AHEAD, "8192");
    CHECK(ki_cpu_machine(&env).ahead == 8192, "KN_AHEAD=8192 is a number of bytes");
    ki_setting_set(&env, KI_VAR_AHEAD, "0");
    CHECK(ki_cpu_machine(&env).ahead == 0, "KN_AHEAD=0 is as most processors need");
    ki_setting_set(&env, KI_VAR_AHEAD, NULL);
    CHECK(ki_cpu_machine(&env).ahead == ki_cpu_under_way(), "without it as this one does");
    CHECK(!ki_setting_set(&env, KI_VAR_CPU, "z80") && env.err == KI_E_SETTING_VALUE && says("sse2"),
          "KN_CPU=z80 is refused: %s", env.message.s);
    ki_env_clear(&env);
    bool all = true;
    for (int l = 0; l < KI_CPU_LEVELS; l++) all = all && ki_setting_set(&env, KI_VAR_CPU, ki_cpu_level_names[l]);
    CHECK(all, "KN_CPU takes the name of every level");
    bool here = ki_cpu_host_level() + 1 == KI_CPU_LEVELS;
    CHECK(here || (ki_target_chosen(&env, false) && !ki_target_chosen(&env, true) && env.err == KI_E_CPU_LEVEL),
          "above the processor's own it is to write for, not to run");
    ki_setting_set(&env, KI_VAR_CPU, "sse2");
    ki_env_clear(&env);
    CHECK(ki_target_chosen(&env, true) && !strcmp(ki_target_chosen(&env, true)->name, "sse2"),
          "KN_CPU=sse2 forces the level down");
    ki_setting_set(&env, KI_VAR_CODE, "x86");
    CHECK(ki_target_chosen(&env, true) && ki_target_chosen(&env, true) == ki_target_native("sse2"),
          "KN_CODE=x86: the same level, in machine code");
    CHECK(!ki_setting_set(&env, KI_VAR_CODE, "pascal") && env.err == KI_E_SETTING_VALUE && says("x86"),
          "KN_CODE=pascal is refused: %s", env.message.s);
    ki_env_clear(&env);
    ki_setting_set(&env, KI_VAR_CODE, NULL);
    ki_setting_set(&env, KI_VAR_CPU, NULL);
}

static void names(void) {
    ki_env_clear(&env);
    CHECK(ki_device_intern(&env, "cpu:0") == cpu && ki_device_intern(&env, "CPU") == cpu, "cpu:0 is CPU");
    CHECK(ki_device_intern(&env, "null") != cpu && ki_device_intern(&env, "CPU:3") != cpu, "others are others");
    CHECK(!ki_device_intern(&env, "GPU") && env.err == KI_E_DEVICE_UNKNOWN && says("CPU, INTERP, NULL"),
          "an unknown one: %s", env.message.s);
    const char *const bad[] = {"CPU:", "CPU:x", "CPU:99999999999999999999", "CPU1", "C", ":0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ki_env_clear(&env);
        CHECK(!ki_device_intern(&env, bad[i]) && env.err == KI_E_DEVICE_UNKNOWN, "'%s' is refused", bad[i]);
    }
    ki_env_clear(&env);
    CHECK(!ki_device_open(&env, ki_device_id(&env, "CPU:0,CPU:1")) && env.err == KI_E_DEVICE_TUPLE,
          "tuples are refused by name");
}

static void memory(void) {
    ki_device *d = fresh();
    bool good = true;
    void *p[200];
    size_t size[200];
    for (int i = 0; i < 200 && good; i++) {
        size[i] = (size_t)i * i * 7 + (size_t)i % 3;
        p[i] = d->is->alloc(d, size[i]);
        good = p[i] && (uintptr_t)p[i] % 64 == 0;
        if (good) memset(p[i], i, size[i]);
    }
    for (int i = 0; i < 200 && good; i++)
        for (size_t b = 0; b < size[i] && good; b += 61) good = ((unsigned char *)p[i])[b] == i;
    CHECK(good, "blocks are aligned and do not overlap");
    for (int i = 0; i < 200; i++) d->is->free(d, p[i], size[i]);
    CHECK(d->stats.bytes == 0 && d->stats.pooled > 0, "freed blocks are kept");
    void *a = d->is->alloc(d, 100000);
    d->is->free(d, a, 100000);
    CHECK(d->is->alloc(d, 100000) == a, "and given out again");
    d->is->free(d, a, 100000);
    CHECK(!d->is->alloc(d, SIZE_MAX / 2) && env.err == KI_E_DEVICE_MEMORY, "an absurd size fails by name");
    ki_env_clear(&env);
    ki_alloc_fail(1, 1);
    CHECK(!d->is->alloc(d, 1 << 20 | 77) && env.err == KI_E_DEVICE_MEMORY, "no memory fails by name");
    ki_alloc_fail(0, 0);
    ki_device_close(d);
}

int main(void) {
    unsetenv("KN_CPU");
    unsetenv("KN_THREADS");
    if (!mkdtemp(dir) || !ki_env_open(&env)) return 1;
    ki_setting_set(&env, KI_VAR_CACHE, dir);
    cpu = ki_device_id(&env, "CPU");
    compiles();
    disk();
    compilers();
    left_behind();
    no_memory();
    many();
    threads();
    names();
    memory();
    clean();
    rmdir(dir);
    ki_env_close(&env);
    return tap_done();
}
