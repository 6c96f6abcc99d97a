/* Assignments that overwrite what is still needed: each program must give what doing one thing after the other gives. CPU
 * and INTERP run it as one program; the reference realises after every assignment and copies what it reads first. */
#include "../tap.h"

#include <koine/koine.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

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

int main(void) {
    pair got, want;
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
