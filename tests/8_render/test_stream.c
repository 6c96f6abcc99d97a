/* Outputs written past the caches: right at every length and every alignment of the output, on every target, and nothing
 * beside them is touched; not where the kernel reads what it writes, writes under a gate, or apart. */
#include "ir/eval.h"
#include "run/run.h"
#include "../tap.h"
#include "../text.h"

#include <koine/koine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kn_ctx *k;

static const char *why(void) { return k->env.message.s ? k->env.message.s : ""; }

/* The text after `stage` of a program lowered for two threads, streaming from `from` bytes on. */
static void lowered(const char *program, const char *target, ki_stage stage, uint64_t from, ki_text *out) {
    text t;
    ki_ir low;
    ki_program q = {0};
    ki_lower_opts o = {.target = ki_target_named(target), .machine.threads = 2, .machine.stream = from, .verify = 1};
    ki_text_cut(out, 0);
    bool ok = text_parse(&t, &k->env, program) && ki_ir_open(&low, &k->env) && ki_lower(&t.p, &low, stage, &o, &q) &&
              ki_print(&q, out);
    if (!ok) ki_text_printf(out, "failed: %s", why());
    ki_env_clear(&k->env);
    ki_program_free(&q);
    ki_ir_close(&low);
    text_drop(&t);
}

static bool says(const ki_text *t, const char *s) { return t->s && strstr(t->s, s); }

#define ADD                                                                                                            \
    "koine 1 tensor\n%x = param \"x\" : f32 [4096]\n%y = param \"y\" : f32 [4096]\n%z = add %x %y\nout \"z\" = %z\n"

static void marks(void) {
    ki_text t = {0};
    static const char *const targets[] = {"sse2", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        for (ki_stage s = KI_S_OPTIMIZE; s <= KI_S_PLAN; s++) {
            lowered(ADD, targets[i], s, 4096 * 4, &t);
            CHECK(says(&t, "stream=1") && says(&t, "stream 0"), "%s: the store of a large output is marked after %s",
                  targets[i], ki_stage_names[s]);
        }
        lowered(ADD, targets[i], KI_S_RENDER, 4096 * 4, &t);
        CHECK(says(&t, "_stream(p0") && says(&t, "sfence"), "%s: and rendered so, with a fence", targets[i]);
        lowered(ADD, targets[i], KI_S_RENDER, 4096 * 4 + 1, &t);
        CHECK(t.n && !says(&t, "stream") && !says(&t, "sfence"), "%s: a smaller one is not", targets[i]);
    }
    lowered(ADD, "avx2", KI_S_RENDER, 0, &t);
    CHECK(t.n && !says(&t, "stream"), "0 is never");
    lowered(ADD, "generic", KI_S_RENDER, 1, &t);
    CHECK(t.n && !says(&t, "stream"), "a target without such stores has none");
    static const char *const none[] = {
        "koine 1 tensor\n%x = param \"x\" : f32 [64, 64]\n%y = reduce add %x axes=(1)\nout \"y\" = %y\n", /* one by one */
        "koine 1 tensor\n%x = param \"x\" : f32 [64, 7]\n%y = reduce max %x axes=(0)\n%z = pad %y (0, 0) (1, 9)\n"
        "%s = shrink %x (0, 0) (1, 7)\n%t = pad %s (0, 2) (1, 9)\n%u = add %t %z\nout \"u\" = %u\n", /* less than a line */
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        lowered(none[i], "avx512", KI_S_RENDER, 1, &t);
        CHECK(says(&t, "program") && !says(&t, "stream"), "what is not written in whole lines is not: %d", (int)i);
    }
    ki_text_free(&t);
}

/* An output that its kernel reads: x += 1 in place. */
static void in_place(void) {
    kn_set(k, "KN_STREAM", "1");
    kn_tensor x = kn_contiguous(kn_adds(kn_arange(k, 0, 4096, 1, KN_F32), 1));
    bool ok = kn_realize(x) == KN_OK;
    float v[4096];
    for (int i = 0; i < 3 && ok; i++) {
        kn_assign(x, kn_adds(kn_muls(x, 2), 1));
        ok = kn_realize(x) == KN_OK;
    }
    ok = ok && kn_to_host(x, v, sizeof v) == KN_OK;
    for (int i = 0; i < 4096 && ok; i++) ok = v[i] == (float)(8 * (i + 1) + 7);
    CHECK(ok, "what is assigned in place is right %s", kn_message(k));
    kn_set(k, "KN_STREAM", NULL);
}

enum { GUARD = 128, ROOM = 4 * 4096 * 8 };

static const struct {
    const char *name;
    size_t bytes;
} types[] = {{"f32", 4}, {"f64", 8}, {"u8", 1}, {"i32", 4}, {"f16", 2}, {"bool", 1}};

/* x + x (of bools: their disjunction) of n elements, the output at every offset of a line; 0 right. */
static bool right_at(ki_exec *e, const ki_program *p, unsigned type, size_t n) {
    static _Alignas(64) uint8_t in[ROOM], out[ROOM], want[ROOM];
    size_t size = types[type].bytes, bytes = n * size;
    void *from[] = {in}, *to[1];
    for (size_t i = 0; i < bytes; i++) in[i] = 0;
    for (size_t i = 0; i < n; i++)
        in[i * size + size - 1] = type >= 5 ? i % 3 == 0 : (uint8_t)(size == 1 ? i * 7 : i % 48);
    to[0] = want + GUARD;
    bool ok = ki_eval(p, (const void *const *)from, to, NULL) == KI_OK;
    for (size_t at = 0; at < 64 && ok; at += size) {
        memset(out, 0xa5, sizeof out);
        to[0] = out + GUARD + at;
        ok = ki_run_prepared(k, e, p, from, to) && memcmp(to[0], want + GUARD, bytes) == 0;
        for (size_t i = 0; ok && i < GUARD; i++) ok = out[i] == 0xa5 && out[GUARD + at + bytes + i] == 0xa5;
        for (size_t i = GUARD; ok && i < GUARD + at; i++) ok = out[i] == 0xa5;
    }
    return ok;
}

static void everywhere(const char *target) {
    static const int sizes[] = {1, 15, 16, 17, 63, 64, 65, 255, 256, 1000, 1024, 1037, 4096};
    enum { N = sizeof sizes / sizeof *sizes, M = sizeof types / sizeof *types };
    static text t[M * N];
    const ki_program *p[M * N];
    ki_exec *e[M * N];
    size_t count = 0;
    CHECK(!kn_set(k, "KN_CPU", target) && !kn_set(k, "KN_STREAM", "1"), "%s: settings", target);
    for (unsigned i = 0; i < M; i++)
        for (unsigned j = 0; j < N; j++) {
            char s[200];
            snprintf(s, sizeof s, "koine 1 tensor\n%%x = param \"x\" : %s [%d]\n%%y = %s %%x %%x\nout \"y\" = %%y\n",
                     types[i].name, sizes[j], i == 5 ? "or" : "add");
            if (!text_parse(&t[count], &k->env, s)) printf("# %s\n", why());
            p[count] = &t[count].p;
            count++;
        }
    bool ok = ki_prepare(k, "CPU", p, count, e);
    if (!ok && k->env.err == KI_E_CPU_LEVEL) {
        printf("# %s: not on this machine\n", target);
        ki_env_clear(&k->env);
    } else {
        for (unsigned i = 0; i < M; i++) {
            bool good = ok;
            for (unsigned j = 0; j < N && good; j++)
                if (!(good = right_at(e[i * N + j], p[i * N + j], i, (size_t)sizes[j])))
                    printf("# %d elements: %s\n", sizes[j], why());
            CHECK(good, "%s: %s, %d lengths at every alignment %s", target, types[i].name, N, why());
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (ok) ki_exec_free(e[i]);
        text_drop(&t[i]);
    }
    kn_set(k, "KN_CPU", NULL), kn_set(k, "KN_STREAM", NULL);
}

/* Transposed: a square's stores share the test whether they are aligned (memory.c, put_past). */
static void squares(const char *target) {
    static const int shapes[][2] = {{64, 64}, {32, 128}, {64, 50}, {50, 64}};
    bool ok = !kn_set(k, "KN_CPU", target) && !kn_set(k, "KN_STREAM", "1"), here = true;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes && ok && here; i++) {
        const int *n = shapes[i / 2];
        unsigned type = i % 2 ? 3 : 0;
        text t;
        char s[200];
        snprintf(s, sizeof s,
                 "koine 1 tensor\n%%x = param \"x\" : %s [%d, %d]\n%%t = permute %%x order=(1, 0)\n"
                 "%%y = %s\nout \"y\" = %%y\n",
                 types[type].name, n[0], n[1], i % 2 ? "add %t %t" : "contiguous %t");
        ok = text_parse(&t, &k->env, s);
        const ki_program *p = &t.p;
        ki_exec *e = NULL;
        bool made = ok && ki_prepare(k, "CPU", &p, 1, &e);
        here = made || k->env.err != KI_E_CPU_LEVEL;
        if (!here) ki_env_clear(&k->env);
        ok = !here || (made && right_at(e, p, type, (size_t)n[0] * (size_t)n[1]));
        if (made) ki_exec_free(e);
        text_drop(&t);
    }
    CHECK(ok, "%s: transposed, at every alignment %s", target, ok ? here ? "" : "(not on this machine)" : why());
    kn_set(k, "KN_CPU", NULL), kn_set(k, "KN_STREAM", NULL);
}

int main(void) {
    k = kn_open("CPU");
    if (!k) return 1;
    kn_set(k, "KN_THREADS", "2");
    marks();
    in_place();
    for (int i = 0; i < 3; i++) {
        const char *target = (const char *[]){"sse2", "avx2", "avx512"}[i];
        everywhere(target);
        squares(target);
    }
    kn_close(k);
    return tap_done();
}
