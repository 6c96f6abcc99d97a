/* dispatch.c: build/dispatch: nanoseconds a kernel that a realised schedule of 1,000 dependent tiny kernels costs beyond the kernels. On one
 * thread (KN_THREADS), through the public API alone.
 *
 * Each kernel is y' = max(y) - y of 16 numbers: it needs all of the one before, so none can be merged or left out, and after an even number the
 * numbers are back, which is checked. A step assigns the last of them into a tensor that is there already and realises it; the first step
 * compiles. What is reported is a step's time, less what the library says its kernels ran (they and the calls between them), by their number:
 * so everything that a step does again is in it, finding the compiled schedule by the graph too. */
#define KN_NO_LOC
#include <koine/device.h>
#include <koine/koine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KERNELS = 1000, STEPS = 101, N = 16 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static kn_status step(kn_ctx *k, kn_tensor out, kn_tensor value, double *whole, double *inside) {
    kn_stats before = kn_stats_of(k);
    double begun = now_ns();
    kn_scope_open(k);
    kn_tensor t = kn_assign(out, value);
    kn_status s = kn_realize_at(NULL, 0, 1, &t);
    kn_scope_close(k);
    *whole = now_ns() - begun;
    kn_stats after = kn_stats_of(k);
    *inside = 1e9 * (after.run_seconds - before.run_seconds);
    if (!s && after.kernels_launched - before.kernels_launched == KERNELS) return KN_OK;
    fprintf(stderr, "dispatch: %s\n", s ? kn_message(k) : "not as many kernels as there should be");
    return s ? s : KN_INTERNAL;
}

int main(void) {
    float first[N], last[N];
    double beyond[STEPS], inside[STEPS], whole, ran;
    for (int i = 0; i < N; i++) first[i] = (float)i;
    kn_ctx *k = kn_open("CPU");
    kn_tensor x = kn_from_host(k, first, KN_F32, KN_SHAPE(N)), out = kn_param(kn_zeros(k, KN_SHAPE(N), KN_F32)), y = x;
    for (int i = 0; i < KERNELS; i++) y = kn_sub(kn_max(y), y);
    if (kn_realize_at(NULL, 0, 1, &out) || step(k, out, y, &whole, &ran)) return 1;
    for (int i = 0; i < STEPS; i++) {
        if (step(k, out, y, &whole, &ran)) return 1;
        beyond[i] = (whole - ran) / KERNELS;
        inside[i] = ran / KERNELS;
    }
    if (kn_to_host(out, last, sizeof last) || memcmp(first, last, sizeof last))
        return fputs("dispatch: wrong result\n", stderr), 1;
    qsort(beyond, STEPS, sizeof *beyond, by_value);
    qsort(inside, STEPS, sizeof *inside, by_value);
    printf("{\"kernels\": %d, \"ns\": %.1f, \"kernel_ns\": %.1f}\n", KERNELS, beyond[STEPS / 2], inside[STEPS / 2]);
    kn_close(k);
    return 0;
}
