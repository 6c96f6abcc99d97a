/* Captured steps: a replay is the step built anew, bit for bit: what it reads, writes, draws, and what it makes an error of. */
#include "base/alloc.h"
#include "run/run.h"
#include "../tap.h"

#include <koine/koine.h>
#include <koine/nn.h>

#include <string.h>

#define HAS(k, text) (strstr(kn_message(k), text) != NULL)

static bool same(kn_tensor a, kn_tensor b) {
    size_t n = (size_t)kn_numel(a) * sizeof(float);
    const void *x = kn_data(a), *y = kn_data(b);
    return x && y && kn_numel(a) == kn_numel(b) && memcmp(x, y, n) == 0;
}

static kn_tensor model(kn_tensor x, kn_tensor w) { return kn_softmax(kn_matmul(kn_tanh(x), w), -1); }

static void inference(const char *device) {
    kn_ctx *k = kn_open(device);
    float rows[3][8];
    for (int i = 0; i < 24; i++) rows[i / 8][i % 8] = (float)(i * i % 7) - 3;
    kn_tensor w = kn_randn(k, KN_SHAPE(4, 5)), x = kn_from_host(k, rows[0], KN_F32, KN_SHAPE(2, 4)), y = NULL;
    kn_realize(w);
    kn_scope_open(k);
    y = kn_hand_up(model(x, w));
    kn_captured *step = kn_capture(y);
    kn_scope_close(k);
    bool ok = step != NULL;
    kn_stats before = kn_stats_of(k);
    for (int i = 0; i < 9 && ok; i++) {
        kn_scope_open(k);
        kn_tensor anew = model(kn_from_host(k, rows[i % 3], KN_F32, KN_SHAPE(2, 4)), w);
        ok = kn_write(x, rows[i % 3], sizeof rows[0]) == KN_OK && kn_replay(step) == KN_OK && same(y, anew);
        kn_scope_close(k);
    }
    CHECK(ok, "%s: a replay reads its input anew: %s", device, kn_message(k));
    CHECK(kn_stats_of(k).programs == before.programs, "%s: nothing is compiled again", device);
    const void *at = kn_data(y);
    kn_replay(step);
    CHECK(kn_data(y) == at, "%s: a result stays where it is", device);
    kn_drop(x), kn_drop(y), kn_drop(w);
    ki_collect(k);
    CHECK(kn_replay(step) == KN_OK && kn_replay(step) == KN_OK, "%s: what a step reads and writes outlives the tensors",
          device);
    uint64_t held = kn_stats_of(k).bytes + k->live_bytes;
    kn_captured_free(step);
    ki_collect(k);
    CHECK(kn_stats_of(k).bytes + k->live_bytes < held, "%s: until the step is freed", device);
    kn_close(k);
}

/* Of two networks of the same seed one is trained by steps built anew, the other by a captured one. */
typedef struct net {
    kn_ctx *k;
    kn_linear_layer l;
    kn_optim *o;
    kn_tensor x;
} net;

static net open_net(const char *device) {
    net n = {.k = kn_open(device)};
    kn_manual_seed(n.k, 11);
    n.l = kn_linear_new(n.k, 6, 3, 1);
    kn_tensor p[2] = {n.l.weight, n.l.bias};
    n.o = kn_adam(n.k, p, 2, 0.05, 0.9, 0.999, 1e-8);
    n.x = kn_param(kn_zeros(n.k, KN_SHAPE(4, 6), KN_F32));
    kn_realize(n.x, n.l.weight, n.l.bias);
    return n;
}

/* Two draws of the stream, one of them of another length. */
static kn_tensor loss_of(net *n) {
    kn_tensor h = kn_add(kn_dropout(n->x, 0.5, NULL), kn_rand(n->k, KN_SHAPE(6)));
    return kn_mean(kn_square(kn_linear_apply(&n->l, h)));
}

static void fill(net *n, int i) {
    float v[24];
    for (int j = 0; j < 24; j++) v[j] = (float)((i + 1) * (j + 3) % 11) / 5;
    kn_write(n->x, v, sizeof v);
}

static void training(const char *device) {
    net a = open_net(device), b = open_net(device);
    kn_captured *step = NULL;
    kn_tensor loss = NULL;
    bool ok = true;
    for (int i = 0; i < 8 && ok; i++) {
        fill(&a, i), fill(&b, i);
        kn_scope_open(a.k);
        kn_tensor l = loss_of(&a);
        ok = !kn_optim_step(a.o, l) && !kn_optim_realize(a.o, l);
        if (!step) {
            kn_scope_open(b.k);
            loss = kn_hand_up(loss_of(&b));
            ok = ok && !kn_optim_step(b.o, loss) && (step = kn_optim_capture(b.o, loss));
            kn_scope_close(b.k);
        } else {
            ok = ok && !kn_replay(step);
        }
        ok = ok && same(l, loss) && same(a.l.weight, b.l.weight) && same(a.l.bias, b.l.bias);
        kn_scope_close(a.k);
        if (i == 3) kn_optim_rate(a.o, 0.2), kn_optim_rate(b.o, 0.2);
        if (i == 5) kn_manual_seed(a.k, 5), kn_manual_seed(b.k, 5);
    }
    CHECK(ok, "%s: eight steps of training, dropout and rates as if built anew: %s%s", device, kn_message(a.k),
          kn_message(b.k));
    kn_optim_free(a.o);
    kn_optim_free(b.o);
    CHECK(kn_replay(step) == KN_OK, "%s: the optimizer may go", device);
    kn_close(a.k);
    kn_close(b.k); /* with the step */
}

static void variables(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor n = kn_variable(k, "n", 1, 8), out = kn_param(kn_zeros(k, KN_SHAPE(4), KN_F32));
    kn_bind(k, "n", 2);
    kn_assign(out, kn_add(out, kn_mul(kn_ones(k, KN_SHAPE(4), KN_F32), kn_cast(n, KN_F32))));
    kn_captured *step = kn_capture(out);
    CHECK(step && kn_item(kn_select(out, 0, 1)) == 2, "%s: a step with a variable: %s", device, kn_message(k));
    kn_bind(k, "n", 5);
    CHECK(kn_replay(step) == KN_OK && kn_item(kn_select(out, 0, 3)) == 7, "%s: bound anew, and added to", device);
    kn_bind(k, "n", 9);
    CHECK(kn_replay(step) == KN_BAD_ARGUMENT && HAS(k, "KN5013"), "%s: outside its bounds: %s", device, kn_message(k));
    kn_clear(k);
    kn_bind(k, "n", 1);
    CHECK(kn_item(kn_select(out, 0, 3)) == 7 && kn_replay(step) == KN_OK && kn_item(kn_select(out, 0, 3)) == 8,
          "%s: nothing had been written", device);
    kn_captured_free(step);
    kn_captured *symbolic = kn_capture(kn_shrink(kn_arange(k, 0, 8, 1, KN_F32), KN_LIST(0), KN_LIST(3)), n);
    CHECK(!symbolic && HAS(k, "KN5021"), "%s: a variable has no place: %s", device, kn_message(k));
    kn_close(k);
}

/* Tensors that read what a replay overwrites. */
static void overwritten(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor x = kn_from_host(k, (float[]){1, 2, 3}, KN_F32, KN_SHAPE(3)), y = kn_muls(x, 2);
    kn_tensor early = kn_adds(y, 1), computed = kn_adds(y, 3);
    kn_captured *step = kn_capture(y);
    kn_realize(computed);
    kn_tensor late = kn_adds(y, 1), view = kn_flip(y, KN_LIST(0)), of_x = kn_adds(x, 1);
    CHECK(kn_write(x, (float[]){4, 5, 6}, 12) == KN_OK && kn_replay(step) == KN_OK, "%s: %s", device, kn_message(k));
    CHECK(kn_item(kn_select(view, 0, 0)) == 12 && kn_item(kn_select(computed, 0, 0)) == 5,
          "%s: views show new values, what was computed stays", device);
    CHECK(kn_check(early) && kn_check(late) && kn_check(of_x) && strstr(kn_why(late), "overwritten"),
          "%s: what was to be computed of old ones says so: %s", device, kn_why(late));
    kn_clear(k);
    kn_tensor now = kn_adds(y, 1);
    CHECK(kn_item(kn_select(now, 0, 2)) == 13, "%s: what is built now reads the new ones", device);
    kn_tensor g = kn_grad1(computed, x);
    CHECK(kn_check(g) && HAS(k, "overwritten"), "%s: no gradient reaches through: %s", device, kn_why(g));
    kn_clear(k);

    CHECK(!kn_capture(y) && HAS(k, "KN5020"), "%s: nothing to compute: %s", device, kn_message(k));
    kn_clear(k);
    CHECK(!kn_capture(kn_add(x, kn_zeros(k, KN_SHAPE(2), KN_F32))) && kn_error(k), "%s: an error tensor", device);
    kn_clear(k);
    CHECK(kn_write(x, (float[]){1}, 4) == KN_BAD_ARGUMENT && HAS(k, "KN5023"), "%s: %s", device, kn_message(k));
    kn_clear(k);
    CHECK(kn_write(view, (float[]){1, 2, 3}, 12) == KN_BAD_ARGUMENT && HAS(k, "KN5022"), "%s: %s", device,
          kn_message(k));
    kn_clear(k);
    CHECK(kn_write(NULL, NULL, 0) == KN_BAD_ARGUMENT && kn_replay(NULL) == KN_BAD_ARGUMENT, "%s: NULL", device);
    kn_captured_free(NULL);
    CHECK(kn_item(kn_select(x, 0, 0)) == 4, "%s: nothing was written", device);
    float own[2] = {1, 2};
    kn_tensor lent = kn_borrow_host(k, own, KN_F32, KN_SHAPE(2), NULL, NULL), p = kn_param(kn_muls(lent, 3));
    CHECK(kn_write(lent, (float[]){7, 8}, 8) == KN_OK && own[1] == 8, "%s: the caller's memory is written", device);
    kn_clear(k);
    p = kn_param(kn_muls(lent, 3));
    CHECK(kn_write(kn_reshape(p, KN_SHAPE(1, 2)), (float[]){5, 6}, 8) == KN_OK && kn_item(kn_select(p, 0, 0)) == 5,
          "%s: a place that was never computed, by a view: %s", device, kn_message(k));
    kn_close(k);
}

/* One input passed through, one result twice. */
static void shared(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor x = kn_param(kn_full(k, KN_SHAPE(3), 2, KN_F32)), y = kn_muls(x, 5), z = kn_reshape(y, KN_SHAPE(3, 1));
    kn_realize(x);
    kn_tensor copy = kn_contiguous(x);
    kn_captured *step = kn_capture(y, z, copy);
    bool ok = step && !kn_write(x, (float[]){1, 2, 3}, 12) && !kn_replay(step);
    CHECK(ok && kn_item(kn_select(y, 0, 2)) == 15 && kn_item(kn_select(kn_reshape(z, KN_SHAPE(3)), 0, 1)) == 10 &&
              kn_item(kn_select(copy, 0, 2)) == 3,
          "%s: one value twice, and an input's: %s", device, kn_message(k));
    kn_close(k);
}

/* What is assigned and still to be computed comes before a replay and a write, as it would before the step built anew. */
static void assigned_before(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor one = kn_ones(k, KN_SHAPE(2), KN_F32), x = kn_param(one), y = kn_muls(x, 3), of_y = kn_param(one),
              of_x = kn_param(one);
    kn_captured *step = kn_capture(y);
    kn_realize(of_y, of_x);
    kn_assign(of_y, kn_adds(y, 1));
    kn_assign(x, kn_full(k, KN_SHAPE(2), 5, KN_F32));
    CHECK(kn_replay(step) == KN_OK && kn_item(kn_select(y, 0, 0)) == 15, "%s: a replay reads what was assigned: %s",
          device, kn_message(k));
    CHECK(kn_item(kn_select(of_y, 0, 0)) == 4, "%s: and what is overwritten was read before", device);
    kn_assign(of_x, kn_adds(x, 1));
    kn_assign(x, kn_muls(x, 2));
    CHECK(kn_write(x, (float[]){7, 8}, 8) == KN_OK && kn_item(kn_select(of_x, 0, 0)) == 6 &&
              kn_item(kn_select(x, 0, 1)) == 8,
          "%s: so do those of a write: %s", device, kn_message(k));
    kn_assign(of_x, kn_cast(kn_variable(k, "n", 0, 9), KN_F32));
    CHECK(kn_replay(step) != KN_OK && HAS(k, "'n'") && HAS(k, "assigned before"),
          "%s: who cannot be computed is said: %s", device, kn_message(k));
    kn_close(k);
}

/* A step captured with more than its loss knows of a new rate. */
static void rate(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor w = kn_param(kn_zeros(k, KN_SHAPE(2), KN_F32)), loss = kn_sum(w), t[8];
    kn_optim *o = kn_sgd(k, &w, 1, 1, 0, 0);
    kn_optim_step(o, loss);
    kn_realize(w);
    loss = kn_sum(w);
    kn_optim_step(o, loss);
    size_t n = kn_pending(k, 6, t);
    t[n++] = loss, t[n++] = kn_muls(loss, 2);
    kn_captured *step = kn_capture_at(NULL, 0, n, t);
    kn_optim_rate(o, 10);
    CHECK(step && kn_replay(step) == KN_OK && kn_item(kn_select(w, 0, 0)) == -12, "%s: a new rate: %s", device,
          kn_message(k));
    loss = kn_sum(w);
    kn_optim_step(o, loss);
    kn_optim_rate(o, 100);
    CHECK(kn_realize(w) == KN_OK && kn_item(kn_select(w, 0, 0)) == -22 && kn_replay(step) == KN_OK &&
              kn_item(kn_select(w, 0, 0)) == -122,
          "%s: a step that is still to be computed takes the rate it was made with: %s", device, kn_message(k));
    ki_alloc_fail(1, 0);
    kn_captured *none = kn_optim_capture(o, NULL);
    ki_alloc_fail(0, 0);
    CHECK(!none && HAS(k, "memory"), "%s: no memory to capture is said: %s", device, kn_message(k));
    kn_captured_free(step);
    kn_optim_free(o);
    kn_close(k);
}

/* More programs than are kept: the step's stays. */
static void driven_out(void) {
    kn_ctx *k = kn_open("NULL");
    kn_tensor x = kn_param(kn_zeros(k, KN_SHAPE(3), KN_F32));
    kn_captured *step = kn_capture(kn_muls(x, 3)), *other = kn_capture(kn_adds(x, 4));
    for (int i = 1; i < 3000 && !kn_error(k); i++) {
        kn_scope_open(k);
        kn_realize(kn_full(k, KN_SHAPE(i), 1, KN_F32));
        kn_scope_close(k);
    }
    CHECK(step && other && !kn_error(k) && kn_replay(step) == KN_OK && kn_replay(other) == KN_OK,
          "programs come and go: %s", kn_message(k));
    kn_captured_free(step);
    CHECK(kn_replay(other) == KN_OK, "of two steps one is left");
    kn_close(k);
}

/* Memory that runs out at any allocation of a capture, and then of a replay that has readers to mark: a message or a step. */
static bool survives(uint64_t n, bool *good) {
    kn_ctx *k = kn_open("INTERP");
    kn_tensor x = kn_param(kn_ones(k, KN_SHAPE(2), KN_F32)), y = kn_muls(x, 3), z = NULL;
    ki_alloc_fail(n, 0);
    kn_captured *step = kn_capture(y);
    z = kn_adds(y, 1);
    kn_status s = step ? kn_replay(step) : kn_error(k);
    bool told = s == KN_OK || kn_error(k);
    ki_alloc_fail(0, 0);
    *good = s == KN_OK;
    kn_clear(k);
    bool right = s || kn_item(kn_select(y, 0, 1)) == 3;
    if (step) right = right && kn_replay(step) == KN_OK && kn_check(z) != KN_OK; /* a failed replay has told nobody */
    kn_close(k);
    return told && right;
}

static void no_memory(void) {
    uint64_t n = 0, noticed = 0;
    bool ok = true, good;
    for (int in_a_row = 0; ok && in_a_row < 50; in_a_row = good ? in_a_row + 1 : 0) {
        ok = survives(++n, &good);
        noticed += !good;
    }
    CHECK(ok && noticed > 30, "memory that runs out: %llu times noticed, in the first %llu allocations",
          (unsigned long long)noticed, (unsigned long long)n);
}

/* A capture that fails has not run: what it adds is added once. Nor is a first value there that failed, for a step not to begin with. */
static bool adds_once(const char *device, bool has_value, uint64_t n, bool *good) {
    kn_ctx *k = kn_open(device);
    kn_tensor p = kn_param(kn_full(k, KN_SHAPE(2), 5, KN_F32));
    kn_captured *step = NULL;
    if (has_value) kn_realize(p), kn_assign(p, kn_adds(p, 1));
    ki_alloc_fail(n, 0);
    if (has_value) step = kn_capture(p);
    else kn_realize(p);
    ki_alloc_fail(0, 0);
    *good = !kn_error(k);
    bool told = has_value ? *good == (step != NULL) : *good || kn_error(k) == KN_NOMEM;
    kn_clear(k);
    if (!has_value) kn_assign(p, kn_adds(p, 1));
    if (!step) step = kn_capture(p);
    bool right =
        step && kn_item(kn_select(p, 0, 1)) == 6 && kn_replay(step) == KN_OK && kn_item(kn_select(p, 0, 1)) == 7;
    if (!told || !right) printf("# %d: %s\n", (int)n, kn_message(k));
    kn_close(k);
    return told && right;
}

static void no_memory_to_add(const char *device, bool has_value) {
    uint64_t n = 0, noticed = 0;
    bool ok = true, good;
    for (int in_a_row = 0; ok && in_a_row < 50; in_a_row = good ? in_a_row + 1 : 0) {
        ok = adds_once(device, has_value, ++n, &good);
        noticed += !good;
    }
    CHECK(ok && noticed > 30, "%s: a place %s: added once, whichever of %d allocations fails", device,
          has_value ? "that has a value" : "without one", (int)n);
}

int main(void) {
    static const char *const devices[] = {"CPU", "INTERP"};
    for (int i = 0; i < 2; i++) {
        inference(devices[i]);
        training(devices[i]);
        variables(devices[i]);
        overwritten(devices[i]);
        shared(devices[i]);
        assigned_before(devices[i]);
        rate(devices[i]);
    }
    driven_out();
    no_memory();
    for (int i = 0; i < 4; i++) no_memory_to_add(devices[i / 2], i % 2);
    return tap_done();
}
