/* Assignments that overwrite what is still needed: each program must give what doing one thing after the other gives. CPU
 * and INTERP run it as one program; the reference realises after every assignment and copies what it reads first. */
#include "../tap.h"

#include <koine/koine.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef kn_tensor made(kn_tensor a, kn_tensor b);

static kn_tensor flipped(kn_tensor a, kn_tensor b) { return (void)b, kn_flip(a, KN_LIST(0, 1)); }
static kn_tensor transposed(kn_tensor a, kn_tensor b) { return (void)b, kn_permute(a, KN_LIST(1, 0)); }
static kn_tensor plus_sum(kn_tensor a, kn_tensor b) { return (void)b, kn_add(a, kn_sum(a)); }
static kn_tensor squared(kn_tensor a, kn_tensor b) { return (void)b, kn_divs(kn_matmul(a, a), 100); }
static kn_tensor rolled(kn_tensor a, kn_tensor b) { return (void)b, kn_roll(a, 1, 0); }
static kn_tensor summed_up(kn_tensor a, kn_tensor b) { return (void)b, kn_cumsum(a, 0); }
static kn_tensor softmax(kn_tensor a, kn_tensor b) { return (void)b, kn_softmax(a, 0); }
static kn_tensor minus_other(kn_tensor a, kn_tensor b) { return kn_sub(a, b); }
static kn_tensor other_reversed(kn_tensor a, kn_tensor b) { return kn_add(kn_flip(b, KN_LIST(0)), kn_muls(a, 0.5)); }
static kn_tensor other(kn_tensor a, kn_tensor b) { return (void)a, kn_adds(b, 0); }

static const struct {
    const char *name;
    made *f;
} table[] = {{"flipped", flipped},
             {"transposed", transposed},
             {"plus its sum", plus_sum},
             {"squared", squared},
             {"rolled", rolled},
             {"summed up", summed_up},
             {"softmax", softmax},
             {"minus the other", minus_other},
             {"the other reversed", other_reversed},
             {"the other", other}};
enum { N = sizeof table / sizeof *table };

typedef struct pair {
    float a[16], b[16];
} pair;

static void open_pair(kn_ctx *k, kn_tensor *a, kn_tensor *b) {
    float x[16], y[16];
    for (int i = 0; i < 16; i++) x[i] = (float)i / 4, y[i] = 10 - (float)i / 2;
    *a = kn_param(kn_from_host(k, x, KN_F32, KN_SHAPE(4, 4)));
    *b = kn_param(kn_from_host(k, y, KN_F32, KN_SHAPE(4, 4)));
    kn_realize(*a, *b);
}

static bool close_pair(kn_ctx *k, kn_tensor a, kn_tensor b, pair *out) {
    bool ok = !kn_realize(a, b) && !kn_to_host(a, out->a, sizeof out->a) && !kn_to_host(b, out->b, sizeof out->b);
    if (!ok) printf("# %s\n", kn_message(k));
    kn_close(k);
    return ok;
}

static bool near(const pair *x, const pair *y) {
    bool ok = true;
    for (int i = 0; i < 16; i++)
        ok = ok && fabsf(x->a[i] - y->a[i]) <= 1e-4f * (1 + fabsf(y->a[i])) &&
             fabsf(x->b[i] - y->b[i]) <= 1e-4f * (1 + fabsf(y->b[i]));
    return ok;
}

/* both: a := f(a, b) and b := g(b, a) of the same old values. chain: then a := f(a, b) again, of the new ones. */
static bool together(const char *device, made *f, made *g, bool chain, pair *out) {
    kn_ctx *k = kn_open(device);
    kn_tensor a, b;
    open_pair(k, &a, &b);
    kn_tensor x = f(a, b), y = g(b, a);
    kn_assign(a, x);
    kn_assign(b, y);
    if (chain) kn_assign(a, f(a, b));
    return close_pair(k, a, b, out);
}

static bool one_by_one(made *f, made *g, bool chain, pair *out) {
    kn_ctx *k = kn_open("INTERP");
    kn_tensor a, b;
    open_pair(k, &a, &b);
    kn_tensor x = kn_contiguous(f(a, b)), y = kn_contiguous(g(b, a));
    kn_realize(x, y);
    kn_assign(a, x);
    kn_assign(b, y);
    kn_realize(a, b);
    if (chain) {
        x = kn_contiguous(f(a, b));
        kn_realize(x);
        kn_assign(a, x);
    }
    return close_pair(k, a, b, out);
}

/* A part of a is written from another, overlapping one; then all of it is read. */
static bool parts(const char *device, bool apart, pair *out) {
    kn_ctx *k = kn_open(device);
    kn_tensor a, b;
    open_pair(k, &a, &b);
    kn_tensor to = kn_shrink(a, KN_LIST(1, 0), KN_SHAPE(3, 4)), from = kn_shrink(a, KN_LIST(0, 0), KN_SHAPE(3, 4));
    if (apart) kn_realize(from = kn_contiguous(from));
    kn_assign(to, from);
    if (apart) kn_realize(a);
    kn_assign(b, kn_add(b, a));
    if (apart) kn_realize(b);
    kn_assign(kn_select(a, 0, 1), kn_select(b, 0, 2));
    return close_pair(k, a, b, out);
}

/* What is left of a tensor's views, some dead, some of handles used again, some of nodes collected, shows what is assigned. */
static bool views_follow(void) {
    kn_ctx *k = kn_open("INTERP");
    float x[6] = {0, 1, 2, 3, 4, 5}, got[6] = {0};
    kn_tensor a = kn_param(kn_from_host(k, x, KN_F32, KN_SHAPE(6))), first = kn_reshape(a, KN_SHAPE(2, 3));
    kn_scope_open(k);
    kn_reshape(a, KN_SHAPE(3, 2));
    kn_tensor kept = kn_keep(kn_shrink(first, KN_LIST(1, 0), KN_SHAPE(1, 3)));
    kn_flip(a, KN_LIST(0));
    kn_scope_close(k);
    bool ok = true;
    for (int i = 0; i < 40 && ok; i++) {
        kn_scope_open(k);
        kn_tensor row = i % 2 ? kept : kn_shrink(first, KN_LIST(0, 0), KN_SHAPE(1, 3));
        kn_assign(row, kn_adds(row, 1));
        for (int j = 0; j < 400; j++) kn_adds(kn_flip(kept, KN_LIST(1)), j); /* so that nodes are collected */
        ok = i % 5 || !kn_realize(a);
        kn_scope_close(k);
    }
    ok = ok && !kn_realize(a, first, kept) && !kn_to_host(first, got, sizeof got);
    for (int i = 0; i < 6; i++) ok = ok && got[i] == x[i] + 20;
    ok = ok && !kn_to_host(kept, got, 3 * sizeof *got) && got[0] == 23 && got[2] == 25;
    if (!ok) printf("# %s\n", kn_message(k));
    kn_close(k);
    return ok;
}

/* An optimizer assigns to each of its places: that costs what the place has, not what all have. */
static double seconds_to_assign(size_t n) {
    kn_ctx *k = kn_open("NULL");
    for (size_t i = 0; i < n; i++) kn_param(kn_zeros(k, KN_SHAPE(4), KN_F32));
    kn_tensor *t = calloc(n, sizeof *t);
    for (size_t i = 0; t && i < n; i++) t[i] = kn_param(kn_zeros(k, KN_SHAPE(4), KN_F32));
    clock_t begun = clock();
    for (size_t i = 0; t && i < n; i++) kn_assign(t[i], kn_adds(t[i], 1));
    double s = (double)(clock() - begun) / CLOCKS_PER_SEC;
    free(t);
    kn_close(k);
    return s;
}

int main(void) {
    pair got, want;
    CHECK(views_follow(), "views follow what is assigned, whatever has died meanwhile");
    double few = 1, many = 1;
    for (int i = 0; i < 3; i++) {
        double a = seconds_to_assign(1500), b = seconds_to_assign(12000);
        if (!i || a < few) few = a;
        if (!i || b < many) many = b;
    }
    CHECK(many < 8 * 4 * few, "8 times as many places take %.1f times as long", many / few);
    for (int d = 0; d < 2; d++) {
        const char *device = d ? "INTERP" : "CPU";
        for (int f = 0; f < N; f++)
            for (int chain = 0; chain < 2; chain++) {
                int g = (f * 3 + 7 * chain + 8) % N;
                bool ok = together(device, table[f].f, table[g].f, chain, &got) &&
                          one_by_one(table[f].f, table[g].f, chain, &want);
                CHECK(ok && near(&got, &want), "%s: a becomes %s%s, b becomes %s", device, table[f].name,
                      chain ? ", twice" : "", table[g].name);
            }
        bool ok = parts(device, false, &got) && parts("INTERP", true, &want);
        CHECK(ok && near(&got, &want), "%s: overlapping parts", device);
    }
    return tap_done();
}
