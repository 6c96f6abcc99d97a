/* again.c: build/bench/again: microseconds that a call of a function costs which was called before: a network of two layers traced by
 * kn_function and realised, without and with the gradients of its four weights, and these of a new batch each time. On one thread
 * (KN_THREADS), through the public API alone.
 *
 * The second call is what a program pays once the first has compiled: its caches are cold, its pages new, so each of several contexts is
 * asked, and the median reported. What kernels ran is stated apart: all of a call is in `us`, what is beyond its kernels in `beyond_us`. */
#define KN_NO_LOC
#include <koine/device.h>
#include <koine/koine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXTS = 21, CALLS = 400, ROWS = 4, WIDTH = 16 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* in: x, w1, b1, w2, b2. out: the loss, and where `user` says so its gradients. */
static void network(void *user, const kn_tensor *in, kn_tensor *out) {
    kn_tensor h = kn_relu(kn_add(kn_matmul(in[0], in[1]), in[2]));
    out[0] = kn_mean(kn_square(kn_add(kn_matmul(h, in[3]), in[4])));
    if (*(const int *)user) kn_grad(out[0], in + 1, 4, out + 1);
}

typedef struct network_of {
    kn_ctx *k;
    kn_tensor in[5];
    int training, batches;
} network_of;

static float data[WIDTH * WIDTH];

static int open_network(network_of *n, int training, int batches) {
    for (int i = 0; i < WIDTH * WIDTH; i++) data[i] = (float)(i % 7) - 3;
    n->training = training;
    n->batches = batches;
    n->k = kn_open("CPU");
    if (!n->k) return 0;
    n->in[0] = kn_from_host(n->k, data, KN_F32, KN_SHAPE(ROWS, WIDTH));
    n->in[1] = kn_param(kn_from_host(n->k, data, KN_F32, KN_SHAPE(WIDTH, WIDTH)));
    n->in[2] = kn_param(kn_from_host(n->k, data, KN_F32, KN_SHAPE(WIDTH)));
    n->in[3] = kn_param(kn_from_host(n->k, data, KN_F32, KN_SHAPE(WIDTH, WIDTH)));
    n->in[4] = kn_param(kn_from_host(n->k, data, KN_F32, KN_SHAPE(WIDTH)));
    return !kn_realize_at(NULL, 0, 5, n->in);
}

static int call(network_of *n, double *us, double *beyond) {
    kn_tensor out[5];
    size_t most = n->training ? 5 : 1;
    double ran = kn_stats_of(n->k).run_seconds, begun = now_us();
    kn_scope_open(n->k);
    if (n->batches) n->in[0] = kn_from_host(n->k, data, KN_F32, KN_SHAPE(ROWS, WIDTH));
    kn_function(n->k, network, &n->training, n->in, 5, out, most);
    kn_status s = kn_realize_at(NULL, 0, most, out);
    kn_scope_close(n->k);
    *us = now_us() - begun;
    *beyond = *us - 1e6 * (kn_stats_of(n->k).run_seconds - ran);
    if (s) fprintf(stderr, "again: %s\n", kn_message(n->k));
    return s == KN_OK;
}

static int measure(const char *name, int training, int batches, int last) {
    static double second[CONTEXTS], second_beyond[CONTEXTS], us[CALLS], beyond[CALLS];
    for (int c = 0; c < CONTEXTS; c++) {
        network_of n;
        int ok = open_network(&n, training, batches) && call(&n, us, beyond) && call(&n, second + c, second_beyond + c);
        for (int i = 0; i < CALLS && ok; i++) ok = call(&n, us + i, beyond + i);
        kn_close(n.k);
        if (!ok) return 0;
    }
    double cold = second[0];
    printf("\"%s\": {\"cold_us\": %.1f, \"second_us\": %.1f, \"second_beyond_us\": %.1f, \"us\": %.1f, \"beyond_us\": "
           "%.1f}%s",
           name, cold, median(second, CONTEXTS), median(second_beyond, CONTEXTS), median(us, CALLS),
           median(beyond, CALLS), last ? "" : ", ");
    return 1;
}

int main(void) {
    printf("{");
    int ok = measure("forward", 0, 0, 0) && measure("training", 1, 0, 0) && measure("batches", 1, 1, 1);
    printf("}\n");
    return !ok;
}
