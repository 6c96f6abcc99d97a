/* Traced functions and borrowed memory, run on a compiling device and on the interpreter. */
#include <koine/koine.h>

#include "../tap.h"

static void body(void *user, const kn_tensor *in, kn_tensor *out) {
    out[0] = kn_add(kn_mul(in[0], in[1]), *(kn_tensor *)user);
    out[1] = kn_sum(kn_square(in[0]));
}
static void nested(void *user, const kn_tensor *in, kn_tensor *out) {
    kn_tensor inner[2];
    kn_function(kn_context(in[0]), body, user, (kn_tensor[]){in[0], in[0]}, 2, inner, 2);
    out[0] = kn_mul(inner[0], inner[1]);
}

static int equal(kn_tensor t, size_t n, const float *want) {
    const float *p = kn_data(t);
    if (!p) return printf("# %s\n", kn_message(kn_context(t))), kn_clear(kn_context(t)), 0;
    for (size_t i = 0; i < n; i++)
        if (p[i] != want[i]) return printf("# [%zu] %g, not %g\n", i, (double)p[i], (double)want[i]), 0;
    return 1;
}

static void functions(kn_ctx *k, const char *device) {
    kn_tensor a = kn_from_host(k, (float[]){1, 2}, KN_F32, KN_SHAPE(2)),
              b = kn_from_host(k, (float[]){3, 4}, KN_F32, KN_SHAPE(2));
    kn_tensor c = kn_from_host(k, (float[]){10, 20}, KN_F32, KN_SHAPE(2)), out[2], one[1];
    kn_function(k, body, &c, (kn_tensor[]){a, b}, 2, out, 2);
    CHECK(equal(out[0], 2, (float[]){13, 28}), "%s: a function runs", device);
    CHECK(equal(out[1], 1, (float[]){5}), "%s: all its outputs", device);
    kn_function(k, body, &c, (kn_tensor[]){b, a}, 2, out, 2);
    CHECK(equal(out[1], 1, (float[]){25}), "%s: called again with other arguments", device);
    kn_function(k, body, &c, (kn_tensor[]){a, b}, 2, out, 2);
    CHECK(equal(kn_grad1(kn_sum(out[0]), b), 2, (float[]){1, 2}), "%s: a gradient through it", device);
    kn_function(k, nested, &c, (kn_tensor[]){a}, 1, one, 1);
    CHECK(equal(one[0], 2, (float[]){55, 120}), "%s: a function that calls one", device);
    CHECK(equal(kn_grad1(kn_sum(one[0]), a), 2, (float[]){80, 160}), "%s: and its gradient", device);
    kn_tensor w = kn_param(a);
    kn_function(k, body, &w, (kn_tensor[]){a, b}, 2, out, 2);
    CHECK(equal(out[0], 2, (float[]){4, 10}), "%s: a parameter captured", device);
}

/* Keeps what it made of its first argument, and gives that to later calls. */
static kn_tensor kept;
static void leaks(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    if (!kept) kept = kn_muls(in[0], 3);
    out[0] = kn_add(in[0], kept);
}

static void traces(kn_ctx *k, const char *device) {
    kn_tensor a = kn_from_host(k, (float[]){1, 2}, KN_F32, KN_SHAPE(2)), out[1], g[2];
    kept = NULL;
    kn_function(k, leaks, NULL, &a, 1, out, 1);
    CHECK(equal(out[0], 2, (float[]){4, 8}), "%s: what a trace keeps is its own", device);
    kn_function(k, leaks, NULL, &a, 1, out, 1);
    CHECK(kn_realize(out[0]) != KN_OK, "%s: and no value in the next one (%s)", device, kn_message(k));
    kn_clear(k);
    int ok = 1;
    for (int i = 0; i < 8 && ok; i++) { /* scopes that end, one that does not, a collection */
        if (i != 4) kn_scope_open(k);
        kn_tensor w = kn_from_host(k, (float[]){(float)i, 1}, KN_F32, KN_SHAPE(2)), s;
        kn_function(k, nested, &w, &a, 1, out, 1);
        s = kn_sum(out[0]);
        kn_grad(s, (kn_tensor[]){a, w}, 2, g);
        /* (a a + w) sum(a a): 5 a a + 5 w; by a: 10 a + 2 a (a a + w) summed over both, by w: 5 */
        float both = (float)(1 + i + 4 + 1);
        ok = equal(out[0], 2, (float[]){5 + 5 * (float)i, 25}) && equal(g[1], 2, (float[]){5, 5}) &&
             equal(g[0], 2, (float[]){10 + 2 * both, 20 + 4 * both});
        if (i != 4) kn_scope_close(k);
        if (i == 5) ok = ok && kn_realize(kn_full(k, KN_SHAPE(6000000), 1, KN_F32)) == KN_OK;
    }
    CHECK(ok, "%s: traced and differentiated again and again", device);
    kn_tensor w = kn_param(a);
    kn_scope_open(k);
    kn_function(k, nested, &w, &a, 1, out, 1);
    kn_scope_close(k);
    kn_scope_open(k);
    kn_checkpoint(k, nested, &w, &a, 1, out, 1); /* its nodes are there: they are still its own */
    CHECK(equal(kn_grad1(kn_sum(out[0]), a), 2, (float[]){26, 52}), "%s: a checkpoint of what was traced", device);
    kn_scope_close(k);
}

static void released(void *owner) { ++*(int *)owner; }

static void memory(kn_ctx *k, const char *device) {
    int count = 0;
    float data[4] = {1, 2, 3, 4};
    kn_scope_open(k);
    kn_tensor t = kn_borrow_host(k, data, KN_F32, KN_SHAPE(2, 2), released, &count);
    CHECK(equal(kn_adds(t, 1), 4, (float[]){2, 3, 4, 5}), "%s: borrowed memory is read", device);
    kn_assign(t, kn_mT(kn_contiguous(t)));
    CHECK(!kn_realize(t) && data[1] == 3 && data[2] == 2, "%s: and written", device);
    CHECK(kn_data(t) == data, "%s: in place", device);
    kn_scope_close(k);
    for (int i = 0; i < 40 && !count; i++) {
        kn_scope_open(k);
        for (int j = 0; j < 1000; j++) kn_scalar(k, i * 1000 + j);
        kn_scope_close(k);
    }
    CHECK(count == 1, "%s: and given back once", device);
}

int main(void) {
    const char *devices[] = {"INTERP", "CPU"};
    for (int i = 0; i < 2; i++) {
        kn_ctx *k = kn_open(devices[i]);
        if (!k) return 1;
        functions(k, devices[i]);
        traces(k, devices[i]);
        memory(k, devices[i]);
        kn_close(k);
    }
    return tap_done();
}
