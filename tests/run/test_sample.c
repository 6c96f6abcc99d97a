/* test_sample.c: kernels that crash, loop, write where they must not, or give a wrong answer cost themselves alone; those that are
 * right are timed, on one thread and on several. The kernels are C functions of this file. */
#include "../tap.h"
#include "run/search/sample.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3000 };
static ki_env env;
static volatile int zero;

/* out[i] = 2 in[i] */
static void twice(void *const *buf, const int64_t *var, int64_t thread) {
    float *out = buf[0];
    const float *in = buf[1];
    (void)var, (void)thread;
    for (int i = 0; i < N; i++) out[i] = 2 * in[i];
}
static void slower(void *const *buf, const int64_t *var, int64_t thread) {
    for (int k = 0; k < 50; k++) twice(buf, var, thread);
}
static void halves(void *const *buf, const int64_t *var, int64_t thread) { /* two threads */
    float *out = buf[0];
    const float *in = buf[1];
    (void)var;
    for (int64_t i = thread * (N / 2); i < (thread + 1) * (N / 2); i++) out[i] = 2 * in[i];
}
static void crashes(void *const *buf, const int64_t *var, int64_t thread) {
    (void)var, (void)thread;
    *(volatile float *)((char *)buf[1] + ((size_t)1 << 46)) = 1;
}
static void second_crashes(void *const *buf, const int64_t *var, int64_t thread) {
    if (thread) crashes(buf, var, thread);
    halves(buf, var, thread);
}
static void loops(void *const *buf, const int64_t *var, int64_t thread) {
    (void)buf, (void)var, (void)thread;
    while (!zero) continue;
}
static void second_loops(void *const *buf, const int64_t *var, int64_t thread) {
    if (thread) loops(buf, var, thread);
    halves(buf, var, thread);
}
static void past_the_end(void *const *buf, const int64_t *var, int64_t thread) {
    twice(buf, var, thread);
    ((volatile float *)buf[0])[N + 16] = 1; /* the end is rounded up to 64 bytes */
}
static void writes_input(void *const *buf, const int64_t *var, int64_t thread) {
    twice(buf, var, thread);
    ((volatile float *)buf[1])[5] = 1;
}
static void one_wrong(void *const *buf, const int64_t *var, int64_t thread) {
    twice(buf, var, thread);
    ((float *)buf[0])[N - 1] += 1;
}
static void writes_nothing(void *const *buf, const int64_t *var, int64_t thread) { (void)buf, (void)var, (void)thread; }
static void rounds(void *const *buf, const int64_t *var, int64_t thread) {
    twice(buf, var, thread);
    for (int i = 0; i < N; i += 7) ((float *)buf[0])[i] *= 1 + 1e-7f;
}
static void stops(void *const *buf, const int64_t *var, int64_t thread) {
    (void)buf, (void)var, (void)thread;
    kill(getpid(), SIGSTOP);
    for (;;) kill(getpid(), SIGSTOP);
}
/* in place: x[i] += 1, which shows if it starts twice from the same values */
static void in_place(void *const *buf, const int64_t *var, int64_t thread) {
    float *x = buf[0];
    (void)var, (void)thread;
    for (int i = 0; i < N; i++) x[i] += 1;
}

static ki_sample_buffer buffers[2];
static ki_sampling open_sampling(bool place) {
    ki_sampling s = {.buffer = buffers, .nbuffer = 2, .slack = ldexp(16, -24), .jobs = 3, .floor = 0.3};
    buffers[0] = (ki_sample_buffer){.bytes = N * sizeof(float), .dtype = KN_F32, .written = true, .read = place};
    buffers[1] = (ki_sample_buffer){.bytes = N * sizeof(float), .dtype = KN_F32, .read = true};
    CHECK(ki_sampling_open(&s, &env), "buffers");
    for (int i = 0; i < N; i++) ((float *)buffers[1].data)[i] = (float)(i % 17) + 1;
    if (place) memcpy(buffers[0].data, buffers[1].data, buffers[0].bytes);
    ki_sampling_seal(&s);
    return s;
}
static ki_sample of(ki_entry *e, uint32_t threads) { return (ki_sample){.entry = e, .threads = threads}; }
static bool no_children(void) { return waitpid(-1, NULL, WNOHANG) < 0; }

static void outcomes(void) {
    static const struct {
        const char *name;
        ki_entry *entry;
        uint32_t threads;
        ki_outcome want;
    } row[] = {
        {"one that is right", twice, 1, KI_RAN},
        {"a crash", crashes, 1, KI_CRASHED},
        {"a loop", loops, 1, KI_TIMED_OUT},
        {"one that stops", stops, 1, KI_TIMED_OUT},
        {"a write past the end", past_the_end, 1, KI_CRASHED},
        {"a write to an input", writes_input, 1, KI_CRASHED},
        {"one wrong element", one_wrong, 1, KI_WRONG},
        {"nothing written", writes_nothing, 1, KI_WRONG},
        {"another rounding", rounds, 1, KI_RAN},
        {"two threads", halves, 2, KI_RAN},
        {"nothing written by two threads", writes_nothing, 2, KI_WRONG},
        {"a crash of the second thread", second_crashes, 2, KI_CRASHED},
        {"a loop of the second thread", second_loops, 2, KI_TIMED_OUT},
        {"more threads than there may be", twice, 1000, KI_NO_CHILD},
        {"a slow one", slower, 1, KI_RAN},
    };
    enum { ROWS = sizeof row / sizeof *row };
    ki_sampling s = open_sampling(false);
    ki_sample first = of(twice, 1), v[ROWS];
    ki_sample_all(&s, &first, 1, 0);
    CHECK(first.outcome == KI_RAN && first.seconds > 0 && first.seconds < 1 && s.has_want,
          "the first sets the results");
    for (int i = 0; i < ROWS; i++) v[i] = of(row[i].entry, row[i].threads);
    ki_sample_all(&s, v, ROWS, first.seconds);
    for (int i = 0; i < ROWS; i++)
        CHECK(v[i].outcome == row[i].want && (v[i].seconds < (double)INFINITY) == (row[i].want == KI_RAN), "%s: %d",
              row[i].name, (int)v[i].outcome);
    CHECK(v[1].signal == SIGSEGV && v[11].signal == SIGSEGV, "a crash is known by its signal");
    CHECK(v[6].buffer == 0 && v[6].at == N - 1 && v[6].got == v[6].expected + 1,
          "a wrong element by its place and value");
    CHECK(v[14].seconds > v[0].seconds, "what takes longer is seen to");
    CHECK(no_children(), "no child is left");
    CHECK(((float *)buffers[1].data)[5] == 6, "the inputs are as they were");
    ki_sampling_close(&s);
}

/* The first sample fails: the next one that runs sets the results. */
static void first_fails(void) {
    ki_sampling s = open_sampling(false);
    ki_sample v[] = {of(crashes, 1), of(loops, 1), of(twice, 1), of(one_wrong, 1), of(halves, 2)};
    ki_sample_all(&s, v, 5, 1e-6);
    CHECK(v[0].outcome == KI_CRASHED && v[1].outcome == KI_TIMED_OUT && v[2].outcome == KI_RAN &&
              v[3].outcome == KI_WRONG && v[4].outcome == KI_RAN,
          "where the first ones fail the next sets the results");
    ki_sampling_close(&s);
}

static void in_its_place(void) {
    ki_sampling s = open_sampling(true);
    ki_sample v[] = {of(in_place, 1), of(in_place, 1), of(writes_nothing, 1)};
    ki_sample_all(&s, v, 3, 0);
    CHECK(v[0].outcome == KI_RAN && v[1].outcome == KI_RAN && v[2].outcome == KI_WRONG,
          "a kernel that reads what it writes starts from the same each time");
    ki_sampling_close(&s);
}

/* The caller's own signal handlers and children are its own. */
static volatile sig_atomic_t seen;
static void on_child(int sig) { (void)sig, seen++; }
static void callers_own(void) {
    struct sigaction a = {.sa_handler = SIG_IGN}, was;
    sigaction(SIGCHLD, &a, &was);
    ki_sampling s = open_sampling(false);
    ki_sample v[] = {of(twice, 1), of(crashes, 1), of(halves, 2)};
    ki_sample_all(&s, v, 3, 0);
    CHECK(v[0].outcome == KI_RAN && v[1].outcome == KI_CRASHED && v[2].outcome == KI_RAN, "SIGCHLD may be ignored");
    a.sa_handler = on_child;
    sigaction(SIGCHLD, &a, NULL);
    ki_sample_all(&s, v, 3, 0);
    CHECK(v[0].outcome == KI_RAN && v[1].outcome == KI_CRASHED && v[2].outcome == KI_RAN && seen > 0, "or be handled");
    sigaction(SIGCHLD, &was, NULL);
    ki_sampling_close(&s);
}

int main(void) {
    ki_env_open(&env);
    outcomes();
    first_fails();
    in_its_place();
    callers_own();
    ki_env_close(&env);
    return tap_done();
}
