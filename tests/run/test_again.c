/* Realising the same nodes again (run/again.c): the program is not looked for, and everything that may have changed since counts. */
#include "run/run.h"
#include "../tap.h"

#include <koine/koine.h>

static double item_of(kn_tensor t, int i) {
    float v[8];
    return kn_to_host(t, v, sizeof v) == KN_OK ? (double)v[i] : -1e9;
}

static bool known(kn_ctx *k, kn_tensor t) {
    ki_plan plan;
    ki_run *r = ki_run_of(k);
    size_t n;
    if (!ki_plan_open(k, &t, 1, &plan)) return false;
    uint64_t *key = ki_again_key(r, &plan, &n);
    bool found = key && ki_again_find(r, key, n, ki_exec_settings(r, ki_run_device(r, k->device))) != NULL;
    ki_free(key);
    ki_plan_close(&plan);
    return found;
}

/* What stays: an input, and where results go. */
typedef struct bench {
    kn_ctx *k;
    kn_tensor x, out;
} bench;

static bench open_bench(const char *device) {
    bench b = {.k = kn_open(device)};
    b.x = kn_param(kn_full(b.k, KN_SHAPE(8), 1, KN_F32));
    b.out = kn_param(kn_zeros(b.k, KN_SHAPE(8), KN_F32));
    kn_realize(b.x, b.out);
    return b;
}

static kn_status step(bench *b, int i, bool *was_known) {
    kn_scope_open(b->k);
    kn_tensor t = kn_assign(b->out, kn_adds(kn_muls(b->x, 2), i)); /* the same nodes each time */
    *was_known = known(b->k, t);
    kn_status s = kn_realize(t);
    kn_scope_close(b->k);
    return s;
}

static void set_input(bench *b, double v) {
    kn_scope_open(b->k);
    kn_realize(kn_assign(b->x, kn_full(b->k, KN_SHAPE(8), v, KN_F32)));
    kn_scope_close(b->k);
}

static void on(const char *device) {
    bench b = open_bench(device);
    bool was, ok = step(&b, 0, &was) == KN_OK && !was;
    CHECK(ok && item_of(b.out, 3) == 2, "%s: the first time it is looked for", device);
    CHECK(step(&b, 0, &was) == KN_OK && was && item_of(b.out, 3) == 2, "%s: then it is known", device);
    set_input(&b, 5);
    CHECK(step(&b, 0, &was) == KN_OK && item_of(b.out, 3) == 10, "%s: inputs are read anew", device);
    for (int i = 0; i < 18 && ok; i++) ok = step(&b, i % 6, &was) == KN_OK && item_of(b.out, 7) == 10 + i % 6;
    CHECK(ok, "%s: more programs by turns than are remembered", device);
    step(&b, 1, &was);
    ki_collect(b.k);
    CHECK(step(&b, 1, &was) == KN_OK && !was && item_of(b.out, 0) == 11, "%s: not after a collection", device);
    uint64_t programs = kn_stats_of(b.k).programs;
    kn_set(b.k, "KN_STREAM", "1");
    CHECK(step(&b, 1, &was) == KN_OK && !was && item_of(b.out, 0) == 11 && kn_stats_of(b.k).programs == programs + 1,
          "%s: other settings, another program", device);
    for (int i = 0; i < 3 && ok; i++) {
        ki_collect(b.k);
        for (int j = 5; j >= 0 && ok; j--) ok = step(&b, j, &was) == KN_OK && item_of(b.out, 2) == 10 + j;
    }
    CHECK(ok && kn_error(b.k) == KN_OK, "%s: collected between steps (%s)", device, kn_message(b.k));
    kn_close(b.k);
}

static void bound(void) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor n = kn_variable(k, "n", 1, 8), out = kn_param(kn_zeros(k, KN_SHAPE(8), KN_F32));
    kn_tensor value = kn_mul(kn_ones(k, KN_SHAPE(8), KN_F32), kn_cast(n, KN_F32));
    kn_realize(out);
    bool ok = true;
    for (int i = 1; i < 5; i++) {
        kn_bind(k, "n", i);
        kn_scope_open(k);
        ok = ok && kn_realize(kn_assign(out, value)) == KN_OK;
        kn_scope_close(k);
        ok = ok && item_of(out, 4) == i;
    }
    CHECK(ok, "variables have their values of now (%s)", kn_message(k));
    kn_close(k);
}

static void twice_and(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    out[0] = kn_add(kn_muls(in[0], 2), kn_reshape(in[1], kn_shape(in[0])));
}

/* 2 a + b of eight numbers, b in any shape: its element 3, and whether it was known before it was run. */
static double called(kn_ctx *k, kn_tensor a, kn_tensor b, bool *was_known) {
    kn_scope_open(k);
    kn_tensor t;
    kn_function(k, twice_and, NULL, (const kn_tensor[]){a, b}, 2, &t, 1);
    *was_known = known(k, t);
    double v = kn_realize(t) == KN_OK ? item_of(t, 3) : -1e9;
    kn_scope_close(k);
    return v;
}

/* A function's results are known by its body: its arguments may be other buffers. */
static void functions(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor v[4];
    for (int i = 0; i < 4; i++) v[i] = kn_param(kn_full(k, KN_SHAPE(8), i + 1, KN_F32));
    kn_tensor square = kn_param(kn_full(k, KN_SHAPE(2, 4), 7, KN_F32)), view = kn_reshape(v[0], KN_SHAPE(2, 4));
    kn_realize(v[0], v[1], v[2], v[3], square);
    bool was;
    CHECK(called(k, v[0], v[1], &was) == 4 && !was, "%s: a function the first time", device);
    CHECK(called(k, v[2], v[3], &was) == 10 && was, "%s: other arguments, the same program", device);
    CHECK(called(k, v[1], v[0], &was) == 5 && was, "%s: the other way round", device);
    CHECK(called(k, v[0], square, &was) == 9 && !was, "%s: another shape is another body", device);
    CHECK(called(k, v[0], v[0], &was) == 3 && !was, "%s: one argument twice", device);
    CHECK(called(k, v[0], view, &was) == 3 && !was, "%s: one buffer in two shapes", device);
    CHECK(called(k, v[3], square, &was) == 15 && was, "%s: and in shapes met before", device);
    kn_close(k);
}

int main(void) {
    functions("CPU");
    functions("INTERP");
    on("CPU");
    on("INTERP");
    bound();
    return tap_done();
}
