/* Lengths known at launch: sums, rows, elements of so many at every length, whole vectors and rests and nothing, by one program. */
#include "../tap.h"

#include <koine/device.h>
#include <koine/koine.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, MOST = 200 };
static float x[ROWS * MOST];

typedef struct net {
    kn_ctx *k;
    kn_tensor all;
    kn_tensor t[5]; /* softmax, sum, another sum, exp, the softmax times a matrix */
} net;

/* Anew for each length: what has no axis of it stays what it was once it is there. */
static void build(net *n) {
    kn_tensor len = kn_variable(n->k, "n", 0, MOST);
    kn_tensor part = kn_shrink(n->all, KN_LIST(0, 0), KN_SHAPE(ROWS, kn_sym(len)));
    kn_tensor column = kn_shrink(kn_reshape(n->all, KN_SHAPE(MOST, ROWS)), KN_LIST(0, 0), KN_SHAPE(kn_sym(len), ROWS));
    n->t[0] = kn_softmax(part, -1);
    n->t[1] = kn_sum_over(part, KN_AXES(1), 0);
    n->t[2] = kn_sum_over(kn_maximums(part, -0.5), KN_AXES(1), 0);
    n->t[3] = kn_exp(part);
    n->t[4] = kn_matmul(n->t[0], column);
}

static bool near(float got, double want) { return fabs(got - want) <= 2e-5 * (1 + fabs(want)); }

static bool right(net *n, int len) {
    kn_scope_open(n->k);
    build(n);
    float *got = malloc(sizeof x), sum[ROWS], high[ROWS], out[ROWS * ROWS];
    bool ok = got && kn_bind(n->k, "n", len) == KN_OK;
    for (int e = 0; e < 2 && ok; e++) { /* of softmax and exp */
        ok = kn_to_host(n->t[e ? 3 : 0], got, sizeof(float) * ROWS * (size_t)len) == KN_OK;
        for (int i = 0; i < ROWS; i++) {
            double m = -INFINITY, all = 0;
            for (int j = 0; j < len; j++) m = fmax(m, (double)x[i * MOST + j]);
            for (int j = 0; j < len; j++) all += exp((double)x[i * MOST + j] - m);
            for (int j = 0; j < len && ok; j++)
                ok = near(got[i * len + j], e ? exp((double)x[i * MOST + j]) : exp((double)x[i * MOST + j] - m) / all);
        }
    }
    ok = ok && kn_to_host(n->t[1], sum, sizeof sum) == KN_OK && kn_to_host(n->t[2], high, sizeof high) == KN_OK;
    for (int i = 0; i < ROWS && ok; i++) {
        double a = 0, b = 0;
        for (int j = 0; j < len; j++) a += (double)x[i * MOST + j], b += fmax((double)x[i * MOST + j], -0.5);
        ok = near(sum[i], a) && near(high[i], b);
    }
    ok = ok && kn_to_host(n->t[0], got, sizeof(float) * ROWS * (size_t)len) == KN_OK &&
         kn_to_host(n->t[4], out, sizeof out) == KN_OK;
    for (int i = 0; i < ROWS && ok; i++)
        for (int c = 0; c < ROWS && ok; c++) {
            double a = 0;
            for (int j = 0; j < len; j++) a += (double)got[i * len + j] * (double)x[j * ROWS + c];
            ok = near(out[i * ROWS + c], a);
        }
    free(got);
    kn_scope_close(n->k);
    return ok;
}

static void on(const char *device) {
    net n = {.k = kn_open(device)};
    n.all = kn_from_host(n.k, x, KN_F32, KN_SHAPE(ROWS, MOST));
    bool ok = right(&n, MOST);
    uint64_t programs = kn_stats_of(n.k).programs;
    for (int len = 0; len <= MOST && ok; len += device[0] == 'I' ? 37 : 1)
        if (!(ok = right(&n, len))) printf("# of length %d\n", len);
    CHECK(ok, "%s: every length up to %d (%s)", device, MOST, kn_message(n.k));
    CHECK(kn_stats_of(n.k).programs == programs, "%s: one program each for all of them", device);
    kn_close(n.k);
}

int main(void) {
    for (int i = 0; i < ROWS * MOST; i++) x[i] = (float)((i * 7919 % 1013) - 506) / 253;
    on("CPU");
    on("INTERP");
    return tap_done();
}
