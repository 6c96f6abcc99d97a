/* child.c: see child.h. */
#include "run/search/child.h"

#include "ir/scalar.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BUFFERS = 256, LEAST_RUNS = 3, MOST_RUNS = 200, EXEMPT = 100 /* one in so many */ };
#define ENOUGH 0.010 /* seconds of runs */
#define SHORT  2e-5  /* seconds: shorter ones are timed several at once */
#define SLOW   3     /* times the best: known well enough */

/* One thread's time is the processor's: what others take of a busy machine is not the kernel's fault. */
static double now(const ki_child *c) {
    struct timespec t;
    clock_gettime(c->sample->threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Leaves without running anything the parent registered. */
static void leave(void) {
    for (;;) kill(getpid(), SIGKILL);
}

/* ---- results ------------------------------------------------------------------------------------------------ */

static double element(kn_dtype t, const void *p, size_t i) {
    uint64_t bits = 0;
    size_t n = ki_itemsize(t);
    memcpy(&bits, (const char *)p + i * n, n);
    return ki_is_float(t) ? ki_f64_from_bits(t, bits) : (double)(int64_t)bits;
}

double ki_sample_largest(const ki_sample_buffer *b) {
    double most = 0;
    for (size_t i = 0, n = b->bytes / ki_itemsize(b->dtype); i < n; i++) {
        double x = fabs(element(b->dtype, b->want, i));
        if (x > most && x < (double)INFINITY) most = x;
    }
    return most;
}

static bool is_close(double a, double b, double may) {
    if (a == b || (a != a && b != b)) return true;
    return fabs(a - b) <= may;
}

static bool floats_close(const void *got, const void *want, size_t from, size_t to, float may) {
    const float *g = got, *w = want;
    bool all = true;
    for (size_t i = from; i < to; i++) all &= fabsf(g[i] - w[i]) <= may; /* infinities and NaN: looked at singly */
    return all;
}

/* Elements of [from, to) that are further off than they may be; more than one in EXEMPT, or one by far: a wrong answer. */
static bool check(const ki_child *c, size_t which, const void *got) {
    const ki_sample_buffer *b = &c->on->buffer[which];
    size_t item = ki_itemsize(b->dtype), n = b->bytes / item, off = 0, chunk = 4096 / item;
    double may = -1, far = (double)INFINITY;
    for (size_t from = 0; from < n; from += chunk) {
        size_t to = from + chunk < n ? from + chunk : n;
        if (memcmp((const char *)got + from * item, (const char *)b->want + from * item, (to - from) * item) == 0)
            continue;
        if (may < 0) {
            bool floats = ki_is_float(b->dtype);
            may = floats ? c->on->slack * b->most * (ki_itemsize(b->dtype) < 4 ? 1 << 16 : 1) : 0;
            if (floats && b->dtype == KN_F64) may /= 1 << 29;
            far = floats || c->on->decides ? 1e4 * may : 0;
            if (c->on->decides) far = (double)INFINITY;
        }
        if (b->dtype == KN_F32 && floats_close(got, b->want, from, to, (float)may)) continue;
        for (size_t i = from; i < to; i++) {
            double g = element(b->dtype, got, i), w = element(b->dtype, b->want, i);
            if (is_close(g, w, may)) continue;
            if (++off * EXEMPT <= n && is_close(g, w, far)) continue;
            c->report->buffer = which, c->report->at = i, c->report->got = g, c->report->expected = w;
            return false;
        }
    }
    return true;
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

typedef struct runner {
    const ki_child *c;
    void *mem[MOST_BUFFERS];
    bool restores;
} runner;

/* Outputs as they were at first: of kernels that read them, before every run. */
static void restore(runner *r, bool all) {
    for (size_t i = 0; i < r->c->on->nbuffer; i++) {
        const ki_sample_buffer *b = &r->c->on->buffer[i];
        if (!b->written) continue;
        if (b->read) memcpy(r->mem[i], b->data, b->bytes);
        else if (all) memset(r->mem[i], 0, b->bytes);
    }
}

/* One run on all threads; thread 0 leads. */
static void lead(runner *r) {
    const ki_sample *s = r->c->sample;
    ki_report *p = r->c->report;
    if (s->threads > 1) {
        atomic_store(&p->done, 0);
        atomic_fetch_add(&p->turn, 1);
    }
    s->entry(r->mem, r->c->on->var, 0);
    for (unsigned spins = 0; s->threads > 1 && atomic_load(&p->done) < s->threads - 1;)
        if (++spins % 1024 == 0) sched_yield();
}

static void follow(runner *r, unsigned thread) {
    ki_report *p = r->c->report;
    for (uint32_t seen = 0;; seen++) {
        for (unsigned spins = 0; atomic_load(&p->turn) == seen;)
            if (++spins % 1024 == 0) {
                if (getppid() != r->c->parent) leave();
                sched_yield();
            }
        r->c->sample->entry(r->mem, r->c->on->var, thread);
        atomic_fetch_add(&p->done, 1);
    }
}

static double timed(runner *r, int times) {
    if (r->restores) restore(r, false);
    double start = now(r->c);
    for (int k = 0; k < times; k++) lead(r);
    return (now(r->c) - start) / times;
}

static void measure(runner *r) {
    const ki_sampling *s = r->c->on;
    ki_report *p = r->c->report;
    restore(r, r->c->sample->threads > 1);
    atomic_store(&p->state, KI_REPORT_BEGUN);
    lead(r);
    for (size_t i = 0; i < s->nbuffer; i++) {
        if (!s->buffer[i].written) continue;
        if (!s->has_want) memcpy(s->buffer[i].want, r->mem[i], s->buffer[i].bytes);
        else if (!check(r->c, i, r->mem[i])) {
            atomic_store(&p->state, KI_REPORT_WRONG);
            return;
        }
    }
    double least = timed(r, 1), sum = least, best = r->c->best;
    int times = r->restores || least > SHORT ? 1 : (int)(SHORT / (least > 1e-8 ? least : 1e-8)) + 1;
    bool slow = best > 0 && least > SLOW * best && least > 1e-4;
    for (int k = 0; k < MOST_RUNS && !slow && (k < LEAST_RUNS || sum < ENOUGH); k++) {
        double t = timed(r, times);
        if (t < least) least = t;
        sum += t * times;
    }
    p->seconds = least > 0 ? least : 1e-9;
    atomic_store(&p->state, KI_REPORT_RAN);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

enum { FAULTS = 8, ENDS = 4 };
static const int fault[FAULTS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGXCPU};
static const int end[ENDS] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP}; /* whole groups of processes, mostly */

bool ki_child_fault(int sig) {
    for (int i = 0; i < FAULTS; i++)
        if (fault[i] == sig) return true;
    return false;
}

/* Faults end it, and so does what ends others, unless the host ignores that. All else stays blocked: it is the host's. */
static void settle(const ki_child *c) {
    sigset_t blocked;
    struct sigaction was;
    sigfillset(&blocked);
    for (int i = 0; i < FAULTS; i++) signal(fault[i], SIG_DFL), sigdelset(&blocked, fault[i]);
    for (int i = 0; i < ENDS; i++) {
        if (sigaction(end[i], NULL, &was) || was.sa_handler != SIG_IGN) signal(end[i], SIG_DFL);
        sigdelset(&blocked, end[i]);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != c->parent) leave(); /* it was gone before that */
}

void ki_child_run(const ki_child *c, unsigned thread) {
    runner r = {.c = c};
    settle(c);
    bool ok = c->on->nbuffer <= MOST_BUFFERS;
    for (size_t i = 0; i < c->on->nbuffer && ok; i++) {
        const ki_sample_buffer *b = &c->on->buffer[i];
        r.mem[i] = !b->written ? b->data : c->sample->threads > 1 ? b->shared : ki_sample_map(b->bytes, false, c->page);
        ok = r.mem[i] || !b->bytes;
        r.restores |= b->written && b->read;
    }
    if (ok && thread) follow(&r, thread);
    if (ok) measure(&r);
    leave();
}
