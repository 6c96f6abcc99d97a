/* test_sample.c: kernels that crash, loop, write where they must not, or give a wrong answer cost themselves alone; those that are
 * right are timed, on one thread and on several; what could not be run, or was ended from outside, is told from these. The kernels are
 * C functions of this file, and so is fork, which can be told to fail. */
#include "../tap.h"
#include "run/search/sample.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 3000, MANY = 100 };
static ki_env env;
static volatile int zero;

/* What children and this process see alike. */
static struct shared { atomic_int inside, beside, handled; } * shared;

static unsigned forks, forks_most = ~0u;
static int at_birth; /* a signal that a child finds as soon as it is there; 0: none */
pid_t fork(void) {
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (++forks > forks_most) return errno = EAGAIN, -1;
    pid_t pid = real();
    if (pid == 0 && at_birth) kill(getpid(), at_birth);
    return pid;
}

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

static void hundredths(void *const *buf, const int64_t *var, int64_t thread) {
    float *out = buf[0];
    const float *in = buf[1];
    (void)var;
    for (int64_t i = thread * (N / MANY); i < (thread + 1) * (N / MANY); i++) out[i] = 2 * in[i];
}
static void killed(void *const *buf, const int64_t *var, int64_t thread) {
    (void)buf, (void)var, (void)thread;
    kill(getpid(), SIGKILL);
}
static void second_killed(void *const *buf, const int64_t *var, int64_t thread) {
    if (thread) killed(buf, var, thread);
    halves(buf, var, thread);
}
static void terminated(void *const *buf, const int64_t *var, int64_t thread) {
    kill(getpid(), SIGTERM);
    twice(buf, var, thread);
}
static void interrupted(void *const *buf, const int64_t *var, int64_t thread) {
    kill(getpid(), SIGINT);
    twice(buf, var, thread);
}
static void signalled(void *const *buf, const int64_t *var, int64_t thread) {
    kill(getpid(), SIGUSR1);
    twice(buf, var, thread);
}
/* Two threads that take their time, and one kernel that looks whether they are there. */
static void halves_slowly(void *const *buf, const int64_t *var, int64_t thread) {
    atomic_store(&shared->inside, 1);
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    halves(buf, var, thread);
    atomic_store(&shared->inside, 0);
}
static void looks(void *const *buf, const int64_t *var, int64_t thread) {
    if (atomic_load(&shared->inside)) atomic_store(&shared->beside, 1);
    twice(buf, var, thread);
}

static ki_sample_buffer buffers[2];
static ki_sampling open_sampling(bool place) {
    ki_sampling s = {.buffer = buffers, .nbuffer = 2, .slack = ldexp(16, -24), .jobs = 3, .floor = 60};
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
        {"a slow one", slower, 1, KI_RAN},
    };
    enum { ROWS = sizeof row / sizeof *row };
    ki_sampling s = open_sampling(false);
    s.floor = 0.3;
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
    CHECK(v[13].seconds > v[0].seconds, "what takes longer is seen to");
    CHECK(no_children(), "no child is left");
    CHECK(((float *)buffers[1].data)[5] == 6, "the inputs are as they were");
    ki_sampling_close(&s);
}

/* The first sample fails: the next one that runs sets the results. */
static void first_fails(void) {
    ki_sampling s = open_sampling(false);
    s.floor = 0.3;
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

/* Only so many processes as there may be: what has none was not measured, and no more is asked for. */
static void no_process(void) {
    for (unsigned most = 0; most < 4; most++) {
        ki_sampling s = open_sampling(false);
        ki_sample v[] = {of(twice, 1), of(halves, 2), of(twice, 1)};
        forks = 0, forks_most = most;
        bool ok = ki_sample_all(&s, v, 3, 0);
        unsigned tried = forks;
        forks_most = ~0u;
        CHECK(!ok && tried == most + 1 && no_children(), "of four processes %u: no more is tried, none is left", most);
        for (unsigned i = 0; i < 3; i++)
            CHECK(v[i].outcome == (i == 0 && most >= 1   ? KI_RAN
                                   : i == 1 && most >= 3 ? KI_RAN
                                                         : KI_NO_CHILD),
                  "of four processes %u: sample %u: %d", most, i, (int)v[i].outcome);
        CHECK(ki_sample_all(&s, v, 3, 0) && v[1].outcome == KI_RAN && v[2].outcome == KI_RAN, "later there are");
        ki_sampling_close(&s);
    }
}

/* Other than by a fault of its own: that says nothing of the kernel. */
static void ended_from_outside(void) {
    static const struct {
        const char *how;
        ki_entry *entry;
        uint32_t threads;
    } row[] = {{"killed", killed, 1}, {"killed in its second thread", second_killed, 2}, {"terminated", terminated, 1}};
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        ki_sampling s = open_sampling(false);
        ki_sample v[] = {of(twice, 1), of(row[i].entry, row[i].threads), of(twice, 1)};
        bool ok = ki_sample_all(&s, v, 3, 0);
        CHECK(!ok && v[0].outcome == KI_RAN && v[1].outcome == KI_NO_CHILD && no_children(), "%s: %d", row[i].how,
              (int)v[1].outcome);
        ki_sampling_close(&s);
    }
}

static size_t address_space(void) {
    unsigned long all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &all) != 1) all = 0;
    if (f) fclose(f);
    return (size_t)all * (size_t)sysconf(_SC_PAGESIZE);
}

/* A child has no room for its results: it does not begin. */
static void no_room(void) {
    static const size_t large = (size_t)64 << 20;
    struct rlimit was;
    ki_sampling s = open_sampling(false);
    ki_sampling_close(&s);
    buffers[0].bytes = large;
    CHECK(ki_sampling_open(&s, &env) && getrlimit(RLIMIT_AS, &was) == 0, "larger buffers");
    ki_sample v = of(writes_nothing, 1);
    setrlimit(RLIMIT_AS, &(struct rlimit){address_space() + large / 4, was.rlim_max});
    bool ok = ki_sample_all(&s, &v, 1, 0);
    setrlimit(RLIMIT_AS, &was);
    CHECK(!ok && v.outcome == KI_NO_CHILD, "no room in the child: %d", (int)v.outcome);
    CHECK(ki_sample_all(&s, &v, 1, 0) && v.outcome == KI_RAN, "and with room");
    ki_sampling_close(&s);
}

/* As many as a pool may have. */
static void many_threads(void) {
    ki_sampling s = open_sampling(false);
    ki_sample v[] = {of(twice, 1), of(hundredths, MANY)};
    bool ok = ki_sample_all(&s, v, 2, 0);
    CHECK(ok && v[1].outcome == KI_RAN && v[1].seconds < 60, "%d threads: %d", MANY, (int)v[1].outcome);
    CHECK(no_children(), "none of them is left");
    ki_sampling_close(&s);
}

static void threads_run_alone(void) {
    ki_sampling s = open_sampling(false);
    ki_sample first = of(twice, 1), v[] = {of(looks, 1), of(halves_slowly, 2), of(looks, 1), of(looks, 1)};
    bool ok = ki_sample_all(&s, &first, 1, 0) && ki_sample_all(&s, v, 4, 0);
    for (int i = 0; i < 4; i++) ok = ok && v[i].outcome == KI_RAN;
    CHECK(ok && !shared->inside, "threads among others that have none");
    CHECK(!shared->beside, "nothing runs beside what has threads");
    ki_sampling_close(&s);
}

/* The host's handlers are for its own process: a child ends by what ends processes, whenever it comes, and sees nothing of the rest. */
static void on_signal(int sig) { (void)sig, atomic_fetch_add(&shared->handled, 1); }
static void hosts_handlers(void) {
    struct sigaction a = {.sa_handler = on_signal}, was[2];
    sigset_t before, after;
    sigaction(SIGINT, &a, &was[0]);
    sigaction(SIGUSR1, &a, &was[1]);
    sigprocmask(SIG_SETMASK, NULL, &before);
    ki_sampling s = open_sampling(false);
    ki_sample v[] = {of(twice, 1), of(signalled, 1), of(interrupted, 1)};
    bool ok = ki_sample_all(&s, v, 3, 0);
    CHECK(!ok && v[1].outcome == KI_RAN && v[2].outcome == KI_NO_CHILD, "a signal of the host's, %d, and Ctrl-C, %d",
          (int)v[1].outcome, (int)v[2].outcome);
    for (int i = 0; i < 2; i++) {
        at_birth = i ? SIGUSR1 : SIGINT;
        ok = ki_sample_all(&s, v, 1, 0);
        CHECK(ok == (v[0].outcome == KI_RAN) && v[0].outcome == (i ? KI_RAN : KI_NO_CHILD),
              "and at the very beginning");
    }
    at_birth = 0;
    CHECK(!shared->handled, "no handler of the host's ran in a child");
    sigprocmask(SIG_SETMASK, NULL, &after);
    CHECK(sigismember(&after, SIGINT) == sigismember(&before, SIGINT) && !sigismember(&after, SIGUSR1),
          "the host's own signals are as they were");
    a.sa_handler = SIG_IGN;
    sigaction(SIGINT, &a, NULL);
    CHECK(ki_sample_all(&s, v, 3, 0) && v[2].outcome == KI_RAN, "what the host ignores ends no child");
    sigaction(SIGINT, &was[0], NULL);
    sigaction(SIGUSR1, &was[1], NULL);
    ki_sampling_close(&s);
}

int main(void) {
    ki_env_open(&env);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    outcomes();
    first_fails();
    in_its_place();
    callers_own();
    no_process();
    ended_from_outside();
    no_room();
    many_threads();
    threads_run_alone();
    hosts_handlers();
    ki_env_close(&env);
    return tap_done();
}
