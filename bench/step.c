/* step.c: times koine's steps for bench/player.py, so that no Python stands between them. A step is captured: an expression, assigned
 * to a tensor that is there already. */
#define KN_NO_LOC
#include <koine/koine.h>

#include <time.h>

#define CALLED __attribute__((visibility("default")))

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* NULL on failure. It goes with the context. */
CALLED kn_captured *bench_step(kn_ctx *k, kn_tensor out, kn_tensor value) {
    kn_scope_open(k);
    kn_tensor t = kn_assign(out, value);
    kn_captured *step = kn_capture_at(NULL, 0, 1, &t);
    kn_scope_close(k);
    return step;
}

/* Steps until budget_us have gone by or most steps are done, at least one; us[] receives their times. Returns how many, -1 on failure. */
CALLED int bench_steps(kn_captured *step, double budget_us, int most, double *us) {
    double begun = now_us(), last = begun;
    for (int i = 0; i < most; i++) {
        if (kn_replay(step)) return -1;
        double end = now_us();
        us[i] = end - last;
        last = end;
        if (end - begun > budget_us) return i + 1;
    }
    return most;
}
