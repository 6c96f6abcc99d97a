/* Traced functions and borrowed memory, run on a compiling device and on the interpreter. */
#include <koine/device.h>
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

/* in: a part of the input, the last state, a weight. out: the next state. */
static void step(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    out[0] = kn_add(in[0], kn_muls(kn_matmul(in[2], in[1]), 0.5));
}

enum { MOST = 80 };

/* n steps of w floats each over parts of one input; their states too if kept: each is assigned to its part of one buffer. *wrong: values
 * are not those of loops here. Returns how many kernels were made. */
static uint64_t steps(const char *device, int n, int w, int kept, int *wrong) {
    static float x[MOST * 16], m[16 * 16], want[MOST * 16], h[16];
    kn_ctx *k = kn_open(device);
    if (!k) return *wrong = 1, 0;
    for (int i = 0; i < n * w; i++) x[i] = (float)(i * 7 % 9) / 8;
    for (int i = 0; i < w * w; i++) m[i] = i % w == (i / w + 1) % w; /* so that all is exact */
    for (int j = 0; j < w; j++) h[j] = (float)j;
    kn_tensor all = kn_from_host(k, x, KN_F32, KN_SHAPE(n, w)), weight = kn_from_host(k, m, KN_F32, KN_SHAPE(w, w)),
              state = kn_from_host(k, h, KN_F32, KN_SHAPE(w)), out = kn_param(kn_zeros(k, KN_SHAPE(n, w), KN_F32));
    for (int t = 0; t < n; t++) {
        kn_tensor in[3] = {kn_select(all, 0, t), state, weight};
        kn_function(k, step, NULL, in, 3, &state, 1);
        if (kept) kn_assign(kn_select(out, 0, t), state);
        for (int j = 0; j < w; j++) {
            float sum = 0;
            for (int i = 0; i < w; i++) sum += m[j * w + i] * (t ? want[(t - 1) * w + i] : h[i]);
            want[t * w + j] = x[t * w + j] + sum * 0.5f;
        }
    }
    uint64_t before = kn_stats_of(k).kernels_compiled + kn_stats_of(k).kernels_cached;
    *wrong |= !(kept ? equal(out, (size_t)(n * w), want) : equal(state, (size_t)w, want + (n - 1) * w));
    kn_stats s = kn_stats_of(k);
    kn_close(k);
    return s.kernels_compiled + s.kernels_cached - before;
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

/* Steps are compiled once, however many there are: for each place in a line of memory that a part may begin at, at most. */
static void once(const char *device) {
    static const struct { int w, kept, most; } row[] = {{16, 0, 1}, {16, 1, 4}, {3, 0, 16}, {3, 1, 20}};
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        int wrong = 0, w = row[i].w, kept = row[i].kept;
        uint64_t few = steps(device, MOST / 2, w, kept, &wrong), many = steps(device, MOST, w, kept, &wrong);
        CHECK(!wrong, "%s: %d and %d steps of %d elements%s", device, MOST / 2, MOST, w, kept ? ", kept" : "");
        CHECK(few == many && few <= (uint64_t)row[i].most, "%s: as many kernels: %d, %d", device, (int)few, (int)many);
    }
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
    once("CPU");
    return tap_done();
}
