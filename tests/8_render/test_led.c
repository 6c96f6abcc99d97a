/* What numbers from memory lead to is asked for iterations before (3_optimize/led.c): no number behind the last one is read, which ends at a page that must
 * not be touched, by any number of threads, and what is looked up is right. */
#include "run/run.h"
#include "../tap.h"
#include "../text.h"

#include <koine/koine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 300, WIDTH = 64, MOST = 100 };

static kn_ctx *k;

/* Rows of x that i says, those beyond it zeros: x (WORDS, WIDTH), i (n). */
static void look_up(char *s, size_t size, int n) {
    snprintf(s, size,
             "koine 1 tensor\n%%i = param \"i\" : i32 [%d]\n%%x = param \"x\" : f32 [%d, %d]\n%%o = reshape 1:i32 (1)\n"
             "%%s = expand %%o (%d)\n%%p = pad %%s (%d) (%d)\n%%p2 = reshape %%p (1, %d)\n%%px = expand %%p2 (%d, %d)\n"
             "%%p1 = reshape %%px (%d)\n%%c = shrink %%p1 (0) (%d)\n%%w = reshape %%c (%d, %d)\n"
             "%%v = shrink %%w (0, 0) (%d, %d)\n%%k = reduce add %%v axes=(1)\n%%r = reshape %%k (1, %d, 1)\n"
             "%%t = sub %%r 1\n%%te = expand %%t (%d, %d, %d)\n%%ir = reshape %%i (%d, 1, 1)\n"
             "%%ie = expand %%ir (%d, %d, %d)\n%%h = eq %%te %%ie\n%%xr = reshape %%x (1, %d, %d)\n"
             "%%xe = expand %%xr (%d, %d, %d)\n%%y = where %%h %%xe -0.0\n%%z = reduce add %%y axes=(1)\n"
             "%%q = reshape %%z (%d, %d)\nout \"y\" = %%q\n",
             n, WORDS, WIDTH, WORDS, WORDS - 1, 2 * WORDS - 1, 2 * WORDS - 1, WORDS + 1, 2 * WORDS - 1,
             (WORDS + 1) * (2 * WORDS - 1), 2 * WORDS * WORDS, WORDS, 2 * WORDS, WORDS, WORDS, WORDS, n, WORDS, WIDTH,
             n, n, WORDS, WIDTH, WORDS, WIDTH, n, WORDS, WIDTH, n, WIDTH);
}

/* Memory that ends where a page begins that nobody may touch. */
static char *before_a_wall(size_t bytes, size_t *all) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, *all = room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + room, page, PROT_NONE)) return NULL;
    return p + room;
}

static bool is_right(const int32_t *i, const float *x, const float *y, int n) {
    for (int r = 0; r < n; r++)
        for (int c = 0; c < WIDTH; c++)
            if (y[r * WIDTH + c] != (i[r] < 0 || i[r] >= WORDS ? 0 : x[i[r] * WIDTH + c])) return false;
    return true;
}

static void looked_up(const char *level, const char *threads, int n) {
    static float x[WORDS * WIDTH], y[MOST * WIDTH];
    char s[2048];
    size_t all;
    char *wall = before_a_wall((size_t)n * sizeof(int32_t), &all);
    int32_t *i = wall ? (int32_t *)wall - n : NULL;
    for (int r = 0; r < n && i; r++) i[r] = (r * 37) % (WORDS + 6) - 3;
    for (int e = 0; e < WORDS * WIDTH; e++) x[e] = (float)e;
    look_up(s, sizeof s, n);
    text t;
    ki_exec *e = NULL;
    kn_set(k, "KN_CPU", level), kn_set(k, "KN_THREADS", threads);
    bool ok = i && text_parse(&t, &k->env, s);
    const ki_program *p = &t.p;
    bool made = ok && ki_prepare(k, "CPU", &p, 1, &e), here = made || k->env.err != KI_E_CPU_LEVEL;
    if (here) {
        ok = made && ki_run_prepared(k, e, p, (void *[]){i, x}, (void *[]){y}) && is_right(i, x, y, n);
        CHECK(ok, "%s, %s threads: %d numbers at the end of a page %s", level, threads, n,
              k->env.message.s ? k->env.message.s : "");
    }
    ki_env_clear(&k->env);
    if (made) ki_exec_free(e);
    text_drop(&t);
    if (wall) munmap(wall + sysconf(_SC_PAGESIZE) - all, all);
    kn_set(k, "KN_CPU", NULL), kn_set(k, "KN_THREADS", NULL);
}

int main(void) {
    if (!(k = kn_open("CPU"))) return 1;
    kn_set(k, "KN_STREAM", "1024"), kn_set(k, "KN_ALONE", "1");
    for (int level = 0; level < 3; level++)
        for (int t = 0; t < 3; t++)
            for (int n = 0; n < 4; n++)
                looked_up((const char *[]){"sse2", "avx2", "avx512"}[level], (const char *[]){"1", "2", "5"}[t],
                          (const int[]){2, 7, 33, MOST}[n]);
    kn_close(k);
    return tap_done();
}
