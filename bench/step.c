/* step.c: times koine's steps for bench/player.py, so that no Python stands between them. A step is what a program that keeps its graph
 * and its buffers does again and again: assign the expression into a tensor that is there already, and realise it. */
#define KN_NO_LOC
#include <koine/koine.h>

#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Steps until budget_us have gone by or most steps are done, at least one; us[] receives their times. Returns how many, -1 on failure. */
__attribute__((visibility("default"))) int bench_steps(kn_ctx *k, kn_tensor out, kn_tensor value, double budget_us,
                                                       int most, double *us) {
    double begun = now_us(), last = begun;
    for (int i = 0; i < most; i++) {
        kn_scope_open(k);
        kn_tensor t = kn_assign(out, value);
        kn_status s = kn_realize_at(NULL, 0, 1, &t);
        kn_scope_close(k);
        if (s) return -1;
        double end = now_us();
        us[i] = end - last;
        last = end;
        if (end - begun > budget_us) return i + 1;
    }
    return most;
}
