/* Realising tensors: results, the schedule cache, assignments, storage, variables, what is counted, and failures. */
#include "base/alloc.h"
#include "run/run.h"
#include "../tap.h"

#include <koine/koine.h>
#include <koine/nn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool same(kn_tensor t, const float *want, size_t n) {
    float *got = malloc(n * sizeof *got);
    bool ok = kn_to_host(t, got, n * sizeof *got) == KN_OK;
    for (size_t i = 0; i < n && ok; i++) ok = fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]));
    free(got);
    return ok;
}
#define SAME(t, ...) same(t, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static const float six[] = {1, 2, 3, 4, 5, 6};

static void values(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(2, 3));
    CHECK(SAME(x, 1, 2, 3, 4, 5, 6) && kn_stats_of(k).programs == 0, "%s: host data needs no program", device);
    CHECK(SAME(kn_permute(x, KN_LIST(1, 0)), 1, 4, 2, 5, 3, 6), "%s: a view is made contiguous", device);
    kn_tensor a = kn_adds(x, 1), b = kn_muls(a, 2), c = kn_reshape(b, KN_SHAPE(6));
    CHECK(kn_realize(a, b, c, x, a) == KN_OK && SAME(a, 2, 3, 4, 5, 6, 7) && SAME(c, 4, 6, 8, 10, 12, 14),
          "%s: several at once", device);
    uint64_t before = kn_stats_of(k).programs;
    CHECK(SAME(b, 4, 6, 8, 10, 12, 14) && kn_stats_of(k).programs == before, "%s: realised stays realised", device);
    kn_tensor d = kn_add(a, a), e = kn_mul(d, d);
    CHECK(kn_realize(d) == KN_OK && kn_graph(e)->src[0] == kn_graph(d),
          "%s: who reads a realised value reads its buffer", device);
    CHECK(kn_item(kn_sum(x)) == 21 && kn_item(kn_from_host(k, (int8_t[]){-5}, KN_I8, KN_SHAPE())) == -5, "%s: item",
          device);
    CHECK(kn_item(kn_scalar(k, 2.5)) == 2.5 && kn_item(kn_mean(kn_full(k, KN_SHAPE(3, 3), 4, KN_F64))) == 4,
          "%s: constants", device);
    kn_tensor none = kn_zeros(k, KN_SHAPE(0, 3), KN_F32);
    CHECK(kn_to_host(kn_adds(none, 1), NULL, 0) == KN_OK, "%s: nothing at all", device);
    const float *data = kn_data(kn_neg(x));
    CHECK(data && data[5] == -6, "%s: data in place", device);
    CHECK(kn_error(k) == KN_OK, "%s: no failure (%s)", device, kn_message(k));
    kn_close(k);
}

static void assigns(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor w = kn_param(kn_from_host(k, six, KN_F32, KN_SHAPE(6)));
    const void *place = kn_data(w);
    kn_tensor sum = kn_sum(w);
    kn_assign(w, kn_adds(w, 1));
    CHECK(kn_realize(w, sum) == KN_OK && kn_item(sum) == 21 && SAME(w, 2, 3, 4, 5, 6, 7),
          "%s: the old value with the assign", device);
    CHECK(kn_data(w) == place, "%s: in place", device);
    kn_tensor row = kn_shrink(w, KN_LIST(2), KN_SHAPE(2));
    kn_assign(row, kn_scalar(k, 9));
    CHECK(SAME(w, 2, 3, 9, 9, 6, 7) && kn_data(w) == place, "%s: a part of it", device);
    for (int i = 0; i < 3; i++) kn_assign(w, kn_muls(w, 2));
    CHECK(SAME(w, 16, 24, 72, 72, 48, 56) && kn_data(w) == place, "%s: three times in one program", device);
    CHECK(kn_error(k) == KN_OK, "%s: no failure (%s)", device, kn_message(k));
    kn_close(k);
}

static void borrowed_is_gone(void *owner) { ++*(int *)owner; }

static void storage(void) {
    int released = 0;
    float mine[] = {1, 2, 3};
    kn_ctx *k = kn_open("CPU");
    kn_scope_open(k);
    kn_tensor x = kn_borrow_host(k, mine, KN_F32, KN_SHAPE(3), borrowed_is_gone, &released);
    mine[0] = 5;
    CHECK(SAME(kn_adds(x, 1), 6, 3, 4), "borrowed memory is read where it is");
    kn_assign(x, kn_muls(x, 2));
    CHECK(kn_realize(x) == KN_OK && mine[2] == 6, "and written there");
    kn_scope_close(k);
    ki_collect(k);
    CHECK(released == 1, "and given back");
    size_t bytes = 0;
    for (int i = 0; i < 200; i++) {
        kn_scope_open(k);
        kn_tensor big = kn_adds(kn_ones(k, KN_SHAPE(1 << 18), KN_F32), i);
        if (kn_realize(big)) break;
        kn_scope_close(k);
        if (i == 100) bytes = kn_stats_of(k).peak_bytes;
    }
    CHECK(bytes && kn_stats_of(k).peak_bytes == bytes && bytes < (64u << 20), "dead results are freed (%zu bytes)",
          bytes);
    kn_close(k);
}

/* A training step, its graph built anew each time. */
static double step(kn_ctx *k, kn_tensor w, int i) {
    float data[32];
    for (int j = 0; j < 32; j++) data[j] = (float)((i * 7 + j * 3) % 11) / 11;
    kn_scope_open(k);
    kn_tensor x = kn_from_host(k, data, KN_F32, KN_SHAPE(4, 8));
    kn_tensor loss = kn_mean(kn_square(kn_adds(kn_matmul(x, w), -1)));
    kn_assign(w, kn_sub(w, kn_muls(kn_grad1(loss, w), 0.1)));
    kn_status s = kn_realize(w, loss);
    double v = s ? NAN : kn_item(loss);
    kn_scope_close(k);
    return v;
}

static void training(void) {
    kn_ctx *k = kn_open("CPU"), *ref = kn_open("INTERP");
    kn_tensor w = kn_param(kn_zeros(k, KN_SHAPE(8, 3), KN_F32)), v = kn_param(kn_zeros(ref, KN_SHAPE(8, 3), KN_F32));
    double first = 0, last = 0;
    bool agree = true;
    for (int i = 0; i < 20; i++) {
        last = step(k, w, i);
        if (i == 0) first = last;
        agree = agree && fabs(last - step(ref, v, i)) < 1e-5;
    }
    CHECK(last < first, "the loss falls (%g to %g) %s", first, last, kn_message(k));
    CHECK(agree, "as in the interpreter %s", kn_message(ref));
    kn_stats s = kn_stats_of(k);
    CHECK(s.programs <= 2 && s.replays == 20, "20 steps, %d programs", (int)s.programs);
    uint32_t nodes = 0;
    size_t bytes = 0, stored = 0;
    for (int i = 0; i < 2000; i++) {
        step(k, w, i);
        if (i == 1000) nodes = k->ir.cap, bytes = kn_stats_of(k).peak_bytes, stored = k->nstorage;
    }
    CHECK(k->ir.cap <= nodes && kn_stats_of(k).peak_bytes == bytes && k->nstorage == stored &&
              kn_stats_of(k).programs == s.programs,
          "2000 steps in flat memory (%u nodes, %zu bytes, %zu storages)", nodes, bytes, stored);
    kn_close(k);
    kn_close(ref);
}

static void variables(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(6)), n = kn_variable(k, "n", 0, 10);
    kn_tensor y = kn_mul(x, kn_cast(n, KN_F32));
    CHECK(kn_realize(y) != KN_OK && strstr(kn_message(k), "'n' has no value"), "%s: an unbound variable: %s", device,
          kn_message(k));
    kn_clear(k);
    kn_bind(k, "n", 11);
    CHECK(kn_realize(y) != KN_OK && strstr(kn_message(k), "outside [0, 10]"), "%s: out of its bounds", device);
    kn_clear(k);
    kn_bind(k, "n", 3);
    CHECK(SAME(y, 3, 6, 9, 12, 15, 18), "%s: bound (%s)", device, kn_message(k));
    kn_bind(k, "n", 4);
    uint64_t programs = kn_stats_of(k).programs;
    CHECK(SAME(kn_mul(x, kn_cast(n, KN_F32)), 4, 8, 12, 16, 20, 24) && kn_stats_of(k).programs == programs,
          "%s: another value, the same program", device);
    kn_tensor part = kn_adds(kn_shrink(kn_reshape(x, KN_SHAPE(3, 2)), KN_LIST(0, 0), KN_SHAPE(3, 2)), 0);
    kn_tensor m = kn_variable(k, "m", 0, 2), some = kn_shrink(part, KN_LIST(0, 0), KN_SHAPE(3, kn_sym(m))),
              more = kn_muls(some, 10);
    kn_bind(k, "m", 1);
    CHECK(SAME(some, 1, 3, 5) && SAME(more, 10, 30, 50), "%s: elements of a symbolic shape (%s)", device,
          kn_message(k));
    kn_bind(k, "m", 2);
    CHECK(SAME(more, 10, 20, 30, 40, 50, 60) && kn_item(kn_sum(some)) == 21, "%s: and of another (%s)", device,
          kn_message(k));
    kn_bind(k, "m", 0);
    CHECK(kn_to_host(more, NULL, 0) == KN_OK, "%s: and of none (%s)", device, kn_message(k));
    CHECK(!kn_data(more) && strstr(kn_message(k), "kn_to_host"), "%s: which has no place", device);
    kn_close(k);
}

/* Sizes that variables have, of data, which nothing computes: the same messages as of what is computed. */
static void sizes(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(6)), n = kn_variable(k, "n", 1, 6);
    kn_tensor some = kn_shrink(x, KN_LIST(0), KN_SHAPE(kn_sym(n)));
    float out[6] = {-1};
    CHECK(kn_to_host(some, out, 12) == KN_BAD_ARGUMENT && strstr(kn_message(k), "'n' has no value"),
          "%s: a size that was never bound: %s", device, kn_message(k));
    kn_clear(k);
    kn_bind(k, "n", 3);
    CHECK(SAME(some, 1, 2, 3), "%s: one that is (%s)", device, kn_message(k));
    static const int outside[] = {-1, 0, 7, 100};
    for (int i = 0; i < 4; i++) {
        kn_bind(k, "n", outside[i]);
        size_t bytes = outside[i] > 0 ? 4 * (size_t)outside[i] : 0;
        CHECK(kn_to_host(some, out, bytes) == KN_BAD_ARGUMENT && strstr(kn_message(k), "outside [1, 6]") &&
                  out[0] == -1,
              "%s: %d is outside its bounds: %s", device, outside[i], kn_message(k));
        kn_clear(k);
    }
    kn_tensor m = kn_variable(k, "m", 0, 1), one = kn_shrink(x, KN_LIST(0), KN_SHAPE(kn_sym(m)));
    kn_bind(k, "m", 1);
    CHECK(kn_item(one) == 1, "%s: the only element (%s)", device, kn_message(k));
    kn_bind(k, "m", 0);
    CHECK(isnan(kn_item(one)) && strstr(kn_message(k), "0 elements"), "%s: when there is none: %s", device,
          kn_message(k));
    kn_clear(k);
    kn_bind(k, "m", 2);
    CHECK(isnan(kn_item(one)) && strstr(kn_message(k), "outside [0, 1]"), "%s: or too many: %s", device, kn_message(k));
    kn_clear(k);
    kn_bind(k, "n", 2);
    kn_tensor less = kn_shrink(x, KN_LIST(0), KN_SHAPE(kn_sym(kn_subs(n, 3))));
    CHECK(kn_to_host(less, out, 0) == KN_BAD_ARGUMENT && strstr(kn_message(k), "KN5024"), "%s: less than nothing: %s",
          device, kn_message(k));
    kn_clear(k);
    kn_bind(k, "n", 5);
    CHECK(SAME(less, 1, 2), "%s: a size computed of a variable (%s)", device, kn_message(k));
    kn_tensor data = kn_cast(kn_sum(kn_from_host(k, (int[]){1, 2}, KN_I32, KN_SHAPE(2))), KN_IDX);
    CHECK(kn_to_host(kn_shrink(x, KN_LIST(0), KN_SHAPE(kn_sym(data))), out, 12) == KN_UNSUPPORTED &&
              strstr(kn_message(k), "KN5025"),
          "%s: of data: %s", device, kn_message(k));
    kn_close(k);
}

/* What a setting says about code holds from then on: what was made ready before is made anew. */
static void settings(void) {
    const char *code_is = getenv("KN_CODE");
    const struct {
        const char *name, *value;
    } other[] = {{"KN_THREADS", "77"},    {"KN_ALONE", "7"},
                 {"KN_CPU", "sse2"},      {"KN_CODE", code_is && !strcmp(code_is, "c") ? "x86" : "c"},
                 {"KN_BEAM", "3"},        {"KN_STREAM", "77"},
                 {"KN_AHEAD", "77"},      {"KN_CC", "cc -O1"},
                 {"KN_DEVICE", "INTERP"}, {"KN_PERF", "1"},
                 {"KN_CACHE", "off"},     {"KN_SEED", "7"}};
    int code = 0, marked = 0;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        kn_ctx *k = kn_open("NULL");
        kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(6));
        kn_realize(kn_muls(x, 3));
        kn_set(k, other[i].name, other[i].value);
        kn_realize(kn_muls(x, 3));
        bool anew = kn_stats_of(k).programs == 2;
        CHECK(anew == (i < 8), "%s: %s (%s)", other[i].name, anew ? "another program" : "the same program",
              kn_message(k));
        code += anew;
        kn_close(k);
    }
    for (int v = 0; v < KI_VAR_COUNT; v++) marked += ki_vars[v].code;
    CHECK(code == marked, "each of the %d settings that code depends on was looked at", marked);
}

static void failures(void) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(2, 3));
    float out[6];
    CHECK(kn_to_host(x, out, 20) == KN_BAD_ARGUMENT && strstr(kn_message(k), "24 bytes"),
          "to_host with too little room: %s", kn_message(k));
    kn_clear(k);
    CHECK(isnan(kn_item(x)) && strstr(kn_message(k), "6 elements"), "item of six");
    kn_clear(k);
    kn_tensor bad = kn_add(x, kn_zeros(k, KN_SHAPE(4), KN_F32));
    CHECK(kn_realize(x, bad) == KN_BAD_ARGUMENT, "an error tensor's failure is realize's");
    kn_clear(k);
    CHECK(kn_realize(kn_input(k, "data", KN_F32, KN_SHAPE(4))) != KN_OK && strstr(kn_message(k), "data"),
          "an input without data: %s", kn_message(k));
    kn_clear(k);
    CHECK(kn_realize_at(NULL, 0, 1, (kn_tensor[]){NULL}) != KN_OK, "NULL is refused");
    kn_close(k);
    k = kn_open("GPU");
    CHECK(kn_realize(kn_ones(k, KN_SHAPE(2), KN_F32)) == KN_UNSUPPORTED && strstr(kn_message(k), "CPU, INTERP, NULL"),
          "an unknown device");
    kn_close(k);
    k = kn_open("CPU");
    kn_set(k, "KN_CODE", "c");
    kn_set(k, "KN_CC", "/no/such/cc");
    kn_set(k, "KN_CACHE", "off");
    CHECK(kn_realize(kn_adds(kn_ones(k, KN_SHAPE(2), KN_F32), 3)) == KN_DEVICE && strstr(kn_message(k), "KN_CC"),
          "no compiler: %s", kn_message(k));
    kn_close(k);
}

/* What a realize computes is read from then on by whatever was to compute it, old or new, view or place of a pending assign: once an
 * input of it is overwritten, it cannot be computed again. */
static void readers(void) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor b = kn_param(kn_from_host(k, six, KN_F32, KN_SHAPE(6))), p = kn_param(kn_zeros(k, KN_SHAPE(6), KN_F32));
    kn_realize(b, p);
    kn_tensor x = kn_adds(b, 1), twice = kn_muls(x, 2), view = kn_flip(p, KN_LIST(0)), unread = kn_muls(b, 3);
    kn_assign(p, kn_muls(x, 2));
    kn_realize(x);
    kn_tensor late = kn_adds(x, 10);
    kn_assign(b, kn_full(k, KN_SHAPE(6), 100, KN_F32));
    CHECK(kn_realize(b) == KN_OK && SAME(twice, 4, 6, 8, 10, 12, 14) && SAME(late, 12, 13, 14, 15, 16, 17),
          "old and new readers have the value: %s", kn_message(k));
    CHECK(SAME(view, 14, 12, 10, 8, 6, 4) && SAME(p, 4, 6, 8, 10, 12, 14),
          "so has what is to be assigned, and its view");
    CHECK(kn_check(unread) != KN_OK && strstr(kn_why(unread), "has been overwritten"),
          "what needs the old input says so");
    kn_tensor turned = kn_flip(p, KN_LIST(0)), again = kn_flip(turned, KN_LIST(0)), more = kn_adds(turned, 1);
    kn_realize(turned);
    kn_assign(p, kn_full(k, KN_SHAPE(6), 7, KN_F32));
    CHECK(kn_realize(p) == KN_OK && SAME(turned, 14, 12, 10, 8, 6, 4) && SAME(again, 4, 6, 8, 10, 12, 14) &&
              SAME(more, 15, 13, 11, 9, 7, 5),
          "a view that is wanted itself becomes data, and what reads it: %s", kn_message(k));
    kn_close(k);
}

/* What is still to be assigned reads a place as it was when that was said, whatever is realised in between. */
static void still_to_be_assigned(void) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor one = kn_ones(k, KN_SHAPE(2), KN_F32), p = kn_param(one), q = kn_param(kn_muls(one, 2)),
              r = kn_param(kn_muls(one, 3)), s = kn_param(kn_muls(one, 4)), t[4];
    kn_realize(p, q, r, s);
    CHECK(kn_pending(k, 0, NULL) == 0, "nothing is to be assigned");
    kn_assign(r, kn_adds(q, 5));
    kn_assign(q, kn_adds(p, 1));
    kn_assign(s, kn_full(k, KN_SHAPE(2), 9, KN_F32));
    kn_assign(p, kn_full(k, KN_SHAPE(2), 10, KN_F32));
    CHECK(kn_pending(k, 4, t) == 4, "four places are");
    CHECK(kn_realize(p) == KN_OK && SAME(q, 2, 2) && SAME(r, 7, 7) && SAME(p, 10, 10),
          "what reads what is overwritten is assigned with it: %s", kn_message(k));
    CHECK(kn_pending(k, 1, t) == 1 && t[0] == s && SAME(s, 9, 9) && kn_pending(k, 0, NULL) == 0, "the rest stays");
    kn_close(k);
}

/* Each reads what the next one overwrites, the last one what is realised; one that reads nothing of theirs does no harm. */
static void chain(void) {
    kn_ctx *k = kn_open("CPU");
    enum { N = 100 };
    kn_tensor p[N];
    for (int i = 0; i < N; i++) p[i] = kn_param(kn_full(k, KN_SHAPE(2), i, KN_F32));
    kn_realize_at(NULL, 0, N, p);
    for (int i = N; --i > 0;) kn_assign(p[i], p[i - 1]);
    kn_assign(p[0], kn_full(k, KN_SHAPE(2), -1, KN_F32));
    bool ok = kn_realize(p[0]) == KN_OK && kn_pending(k, 0, NULL) == 0;
    for (int i = 0; i < N && ok; i++) ok = SAME(p[i], i - 1, i - 1);
    CHECK(ok, "a shift through many places: %s", kn_message(k));
    kn_close(k);
}

/* The same value is assigned before another and behind it. */
static void assigned_again(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor p = kn_param(kn_ones(k, KN_SHAPE(2), KN_F32)), q = kn_from_host(k, six, KN_F32, KN_SHAPE(2));
    kn_realize(p);
    kn_assign(p, q);
    kn_assign(p, kn_add(kn_muls(p, 0.5), q));
    kn_assign(p, q);
    CHECK(kn_realize(p) == KN_OK && SAME(p, 1, 2), "%s: the last of several assigns stands", device);
    kn_close(k);
}

/* Nothing shows it for a while. */
static void shown_again(void) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor p = kn_param(kn_ones(k, KN_SHAPE(2), KN_F32)), x = kn_from_host(k, six, KN_F32, KN_SHAPE(2)), t[1];
    kn_realize(p);
    kn_assign(p, x);
    kn_uop u = kn_graph(p);
    kn_drop(p);
    CHECK(kn_pending(k, 0, NULL) == 0, "what nobody can see is not to be assigned");
    p = kn_from_graph(k, u);
    CHECK(kn_pending(k, 1, t) == 1 && t[0] == p, "until somebody can");
    CHECK(kn_write(x, (float[]){8, 9}, 8) == KN_OK && SAME(p, 1, 2), "and comes before a write: %s", kn_message(k));
    kn_close(k);
}

/* A step's loss moves running statistics: by what the parameters were. */
static void running_statistics(void) {
    kn_ctx *k = kn_open("CPU");
    kn_linear_layer l = kn_linear_new(k, 3, 2, 0);
    kn_norm_layer n = kn_batch_norm_new(k, 2);
    kn_optim *o = kn_sgd(k, &l.weight, 1, 0.5, 0, 0);
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(2, 3)), want[2], got[2];
    for (int i = 0; i < 2; i++) {
        want[i] = kn_muls(kn_mean_over(kn_linear_apply(&l, x), KN_AXES(0), 0), 0.1);
        if (i) want[i] = kn_add(want[i], kn_muls(kn_detach(got[0]), 0.9));
        kn_realize(want[i]);
        kn_tensor loss = kn_mean(kn_abs(kn_batch_norm_apply(&n, kn_linear_apply(&l, x), 1)));
        kn_optim_step(o, loss);
        CHECK(kn_optim_realize(o, loss) == KN_OK && kn_pending(k, 0, NULL) == 0, "step %d: %s", i, kn_message(k));
        got[i] = kn_muls(n.mean, 1);
        CHECK(kn_item(kn_max(kn_abs(kn_sub(got[i], want[i])))) < 1e-5, "step %d moved the mean: %s", i, kn_message(k));
    }
    kn_optim_free(o);
    kn_close(k);
}

/* Of tensors that all live on, one after the other is realised: that costs what it computes, not what lives. */
static double seconds_to_realize(int n) {
    kn_ctx *k = kn_open("CPU");
    kn_tensor *t = calloc((size_t)n, sizeof *t);
    for (int i = 0; t && i < n; i++) t[i] = kn_from_host(k, six, KN_F32, KN_SHAPE(6));
    clock_t begun = clock();
    for (int i = 0; t && i < n; i++) kn_realize(kn_adds(t[i], 1));
    double s = (double)(clock() - begun) / CLOCKS_PER_SEC;
    free(t);
    kn_close(k);
    return s;
}

static void many_live(void) {
    double few = 1, many = 1;
    for (int i = 0; i < 3; i++) {
        double a = seconds_to_realize(1000), b = seconds_to_realize(8000);
        if (!i || a < few) few = a;
        if (!i || b < many) many = b;
    }
    CHECK(many < 8 * 6 * few, "8 times as many live tensors take %.1f times as long", many / few);
}

/* Each allocation of a realize may fail: it says so, and the context works on. */
static void no_memory(const char *code) {
    kn_ctx *k = kn_open("CPU");
    kn_set(k, "KN_CODE", code);
    kn_tensor x = kn_from_host(k, six, KN_F32, KN_SHAPE(6));
    bool good = kn_realize(kn_adds(kn_exp(x), 77)) == KN_OK; /* compiled, loaded, pooled */
    int tried = 0;
    for (uint64_t i = 1; good; i++) {
        kn_scope_open(k);
        kn_tensor y = kn_adds(kn_exp(x), 77);
        ki_alloc_fail(i, 0);
        kn_status s = kn_realize(y);
        ki_alloc_fail(0, 0);
        if (!s) {
            good = SAME(kn_subs(y, 77), expf(1), expf(2), expf(3), expf(4), expf(5), expf(6));
            break;
        }
        good = s == KN_NOMEM;
        if (!good) printf("# %d: %s\n", (int)i, kn_message(k));
        kn_clear(k);
        kn_scope_close(k);
        tried++;
    }
    CHECK(good && tried > 5, "%s: each of %d allocations may fail", code, tried);
    kn_close(k);
}

/* What is assigned is whole, or was not: whichever allocation fails, realised again it is what it should be. */
static void no_memory_to_assign(void) {
    bool good = true;
    int tried = 0;
    for (uint64_t i = 1; good; i++, tried++) {
        kn_ctx *k = kn_open("CPU");
        kn_tensor p[4];
        for (int j = 0; j < 4; j++) p[j] = kn_param(kn_full(k, KN_SHAPE(2), j, KN_F32));
        kn_realize_at(NULL, 0, 4, p);
        for (int j = 4; --j > 0;) kn_assign(p[j], kn_adds(p[j - 1], 1));
        kn_assign(p[0], kn_full(k, KN_SHAPE(2), 9, KN_F32));
        ki_alloc_fail(i, 0);
        kn_status s = kn_realize(p[0]);
        ki_alloc_fail(0, 0);
        good = (s == KN_OK || s == KN_NOMEM) && kn_realize_at(NULL, 0, 4, p) == KN_OK && SAME(p[0], 9, 9) &&
               SAME(p[1], 1, 1) && SAME(p[2], 2, 2) && SAME(p[3], 3, 3);
        if (!good) printf("# %d: %d %s\n", (int)i, (int)s, kn_message(k));
        kn_close(k);
        if (s == KN_OK) break;
    }
    CHECK(good && tried > 20, "each of %d allocations may fail where several are assigned", tried);
}

/* What adds to what was there adds once, and nobody hears of it before it has: a step that was never run, or one that was. */
static bool adds_once(const char *device, const char *code, bool known, uint64_t n, kn_status *s) {
    kn_ctx *k = kn_open(device);
    kn_set(k, "KN_CODE", code);
    kn_tensor p = kn_param(kn_from_host(k, six, KN_F32, KN_SHAPE(6))), old = NULL, twice = NULL;
    kn_realize(p);
    for (int i = !known; i < 2; i++) {
        kn_scope_open(k);
        if (i) old = kn_hand_up(kn_muls(p, 3));
        kn_assign(p, kn_adds(p, 1));
        if (i) twice = kn_hand_up(kn_muls(p, 2));
        ki_alloc_fail(i ? n : 0, 0);
        *s = i ? kn_realize(p, twice) : kn_realize(p);
        ki_alloc_fail(0, 0);
        kn_scope_close(k);
    }
    float a = (float)known;
    bool good = *s == KN_OK ? kn_check(old) != KN_OK : *s == KN_NOMEM && kn_check(old) == KN_OK;
    kn_clear(k);
    good = good && kn_realize(p, twice) == KN_OK && kn_check(old) != KN_OK && kn_pending(k, 0, NULL) == 0 &&
           SAME(p, 2 + a, 3 + a, 4 + a, 5 + a, 6 + a, 7 + a) &&
           SAME(twice, 4 + 2 * a, 6 + 2 * a, 8 + 2 * a, 10 + 2 * a, 12 + 2 * a, 14 + 2 * a);
    if (!good) printf("# %d: %d %s\n", (int)n, (int)*s, kn_message(k));
    kn_close(k);
    return good;
}

static void no_memory_to_add(const char *device, const char *code, bool known) {
    uint64_t n = 0, noticed = 0;
    bool good = true;
    kn_status s;
    for (int in_a_row = 0; good && in_a_row < 30; in_a_row = s == KN_OK ? in_a_row + 1 : 0) {
        good = adds_once(device, code, known, ++n, &s);
        noticed += s != KN_OK;
    }
    CHECK(good && noticed > 10, "%s, %s: a step %s: any of %d allocations may fail, of which %d were noticed", device,
          code, known ? "known" : "new", (int)n, (int)noticed);
}

static void counts(void) {
    kn_ctx *k = kn_open("NULL");
    CHECK(kn_stats_of(k).programs == 0, "nothing yet");
    CHECK(kn_realize(kn_softmax(kn_rand(k, KN_SHAPE(64, 64)), -1)) == KN_OK, "NULL compiles");
    kn_stats s = kn_stats_of(k);
    CHECK(s.programs == 1 && s.replays == 1 && s.kernels_launched >= 1 && s.lower_seconds > 0 && s.compiler_runs == 0,
          "and counts");
    kn_close(k);
    kn_device_info d;
    CHECK(kn_device_at(0, &d) && !strcmp(d.name, "CPU") && !kn_device_at(3, &d) && !kn_device_at(99, &d),
          "devices are listed");
}

int main(void) {
    const char *const devices[] = {"CPU", "INTERP"};
    for (int i = 0; i < 2; i++) {
        values(devices[i]);
        assigns(devices[i]);
        variables(devices[i]);
        sizes(devices[i]);
    }
    settings();
    storage();
    training();
    failures();
    readers();
    still_to_be_assigned();
    chain();
    assigned_again("CPU");
    assigned_again("INTERP");
    shown_again();
    running_statistics();
    many_live();
    no_memory("c");
    no_memory("x86");
    no_memory_to_assign();
    for (int i = 0; i < 2; i++) {
        no_memory_to_add("CPU", "x86", i);
        no_memory_to_add("CPU", "c", i);
        no_memory_to_add("INTERP", "x86", i);
    }
    counts();
    return tap_done();
}
