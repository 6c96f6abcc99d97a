/* test_deep.c: what one kernel is made of stays bounded, however deep the graph and however many its inputs: layers of norms
 * are lowered in linear time, a sum of 200 tensors and 100 of them beside each other are several kernels. */
#include "../tap.h"
#include "stages/stages.h"
#include "tensor/context.h"

#include <koine/koine.h>

#include <math.h>
#include <string.h>

enum { ROWS = 3, WIDTH = 40, MANY = 200 };

/* Each layer's result is asked for by its norm's two sums and by what is added to it. */
static kn_tensor layers(kn_tensor x, int n) {
    for (int i = 0; i < n; i++) x = kn_add(x, kn_tanh(kn_layer_norm(x, 1, NULL, NULL, 1e-5)));
    return x;
}

/* Nodes of the store that holds n layers as kernels. 0: failed. */
static uint32_t nodes(int n, bool gradient) {
    uint32_t count = 0;
    kn_ctx *k = kn_open("NULL");
    kn_tensor x = kn_param(kn_zeros(k, KN_SHAPE(64, 256), KN_F32)), y = layers(x, n);
    if (gradient) y = kn_grad1(kn_mean(kn_mul(y, y)), x);
    ki_plan plan = {0};
    ki_ir ir;
    ki_program out = {0};
    ki_lower_opts o = {0};
    if (ki_plan_open(k, &y, 1, &plan) && ki_plan_program(k, &plan) && ki_ir_open(&ir, &k->env)) {
        if (ki_lower(&plan.program, &ir, KI_S_RANGEIFY, &o, &out)) count = ir.n;
        ki_program_free(&out);
        ki_ir_close(&ir);
    }
    if (!count) printf("# %d layers: %s\n", n, kn_message(k));
    ki_plan_close(&plan);
    kn_close(k);
    return count;
}

static void lowering(bool gradient) {
    const char *what = gradient ? "layers and their gradients" : "layers";
    uint32_t four = nodes(4, gradient), six = nodes(6, gradient);
    if (!CHECK(four && six < 2 * four, "six %s are %u nodes, four %u", what, six, four)) return;
    uint32_t half = nodes(32, gradient), all = nodes(64, gradient);
    CHECK(half && all < 3 * half, "64 %s are %u nodes, 32 %u", what, all, half);
}

static void values(const char *device) {
    float x[ROWS * WIDTH], y[ROWS * WIDTH];
    double want[ROWS * WIDTH], worst = 0;
    for (int i = 0; i < ROWS * WIDTH; i++) want[i] = x[i] = (float)sin(i * 1.7);
    for (int layer = 0; layer < 32; layer++)
        for (int r = 0; r < ROWS; r++) {
            double mean = 0, var = 0, *row = want + r * WIDTH;
            for (int i = 0; i < WIDTH; i++) mean += row[i] / WIDTH;
            for (int i = 0; i < WIDTH; i++) var += (row[i] - mean) * (row[i] - mean) / WIDTH;
            for (int i = 0; i < WIDTH; i++) row[i] += tanh((row[i] - mean) / sqrt(var + 1e-5));
        }
    kn_ctx *k = kn_open(device);
    kn_tensor t = layers(kn_from_host(k, x, KN_F32, KN_SHAPE(ROWS, WIDTH)), 32);
    CHECK(kn_to_host(t, y, sizeof y) == KN_OK, "%s: 32 layers run %s", device, kn_why(t));
    for (int i = 0; i < ROWS * WIDTH; i++) worst = fmax(worst, fabs(y[i] - want[i]));
    CHECK(worst < 1e-3, "%s: they are what they should be, but for %g", device, worst);
    kn_close(k);
}

static void many(const char *device) {
    kn_ctx *k = kn_open(device);
    kn_tensor t[MANY], sum = NULL;
    float x[4], got[MANY * 4];
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < 4; j++) x[j] = (float)(i * 4 + j);
        t[i] = kn_from_host(k, x, KN_F32, KN_SHAPE(4));
        sum = sum ? kn_add(sum, t[i]) : t[i];
    }
    bool ok = kn_to_host(sum, got, sizeof x) == KN_OK;
    for (int j = 0; j < 4; j++) ok &= got[j] == (float)(MANY * (MANY - 1) * 2 + j * MANY);
    CHECK(ok, "%s: a sum of %d tensors %s", device, MANY, kn_message(k));
    const kn_tensor beside[2] = {kn_stack(t, MANY, 0), kn_cat(t, MANY, 0)};
    for (int s = 0; s < 2; s++) {
        ok = kn_to_host(beside[s], got, sizeof got) == KN_OK;
        for (int i = 0; i < MANY * 4; i++) ok &= got[i] == (float)i;
        CHECK(ok, "%s: %s of %d tensors %s", device, s ? "cat" : "stack", MANY, kn_message(k));
    }
    kn_tensor part = kn_shrink(t[0], KN_LIST(0), KN_SHAPE(kn_sym(kn_variable(k, "n", 1, 4)))), same[40];
    for (int i = 0; i < 40; i++) same[i] = part;
    CHECK(kn_check(kn_stack(same, 40, 0)) == KN_OK, "%s: stack of 40 of symbolic length %s", device, kn_message(k));
    kn_close(k);
}

int main(void) {
    lowering(false);
    lowering(true);
    values("INTERP");
    values("CPU");
    many("INTERP");
    many("CPU");
    return tap_done();
}
