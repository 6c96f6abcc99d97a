/* The thread pool: every task runs exactly once, in every shape of run, and sleeping workers wake. */
#include "base/thread.h"
#include "../tap.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct counts {
    _Atomic int hit[5000];
    int64_t plain[5000]; /* written by tasks, read by the caller: the pool must order the two */
} counts;

static void hit(void *arg, int64_t i) {
    counts *c = arg;
    atomic_fetch_add(&c->hit[i], 1);
    c->plain[i] = i * 3;
}

static bool once_each(ki_pool *p, counts *c, int64_t n) {
    memset(c, 0, sizeof *c);
    ki_pool_run(p, n, hit, c);
    for (int64_t i = 0; i < n; i++)
        if (c->hit[i] != 1 || c->plain[i] != i * 3) return false;
    return true;
}

#if defined(__linux__)
/* Two cores this process may run on; false: it has one. */
static bool two_cores(int core[2]) {
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return false;
    for (int k = 0; k < CPU_SETSIZE && n < 2; k++)
        if (CPU_ISSET(k, &set)) core[n++] = k;
    return n == 2;
}

static void go_to(int core) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof all, &all);
}

typedef struct place {
    int core;
    pthread_t thread;
} place;

static void where(void *arg, int64_t i) {
    ((place *)arg)[i] = (place){sched_getcpu(), pthread_self()};
    for (clock_t until = clock() + CLOCKS_PER_SEC / 1000; clock() < until;) continue;
}

/* A caller that has moved to another core since its workers fell asleep is not in their way. Where it did both tasks itself, other processes held the
 * worker up. */
static void test_moved(void) {
    int core[2], same = 0, both = 0;
    place at[2];
    if (!two_cores(core)) return;
    ki_pool *p = ki_pool_open(2);
    for (int k = 0; k < 200 && both < 20; k++) {
        go_to(core[k % 2]);
        ki_pool_run(p, 2, where, at);
        usleep(10000);
        go_to(core[(k + 1) % 2]);
        ki_pool_run(p, 2, where, at);
        if (pthread_equal(at[0].thread, at[1].thread)) continue;
        both++, same += at[0].core == at[1].core;
    }
    ki_pool_close(p);
    CHECK(both && same <= both / 4, "workers wake away from the caller's core (%d of %d do not)", same, both);
}
#endif

static void sum(void *arg, int64_t i) { atomic_fetch_add((_Atomic int64_t *)arg, i); }

int main(void) {
    counts *c = malloc(sizeof *c);
    CHECK(ki_cpu_count() >= 1, "this process may use a thread");
    ki_pool_close(NULL);
    for (unsigned t = 1; t <= 5; t++) {
        ki_pool *p = ki_pool_open(t);
        bool good = p != NULL;
        for (int64_t n = 0; n < 40 && good; n++) good = once_each(p, c, n);
        CHECK(good && once_each(p, c, 5000), "%u threads run each task once", t);
        good = true;
        for (int i = 0; i < 2000 && good; i++) good = once_each(p, c, t);
        CHECK(good, "%u threads, 2000 short runs", t);
        ki_pool_close(p);
    }
    ki_pool *p = ki_pool_open(4);
    bool good = once_each(p, c, 8);
    usleep(30000); /* all workers are asleep now */
    CHECK(good && once_each(p, c, 8), "sleeping workers wake");
    _Atomic int64_t total = 0;
    int64_t n = INT64_C(2500000); /* more tasks than one batch holds */
    ki_pool_run(p, n, sum, &total);
    CHECK(total == n * (n - 1) / 2, "more tasks than a batch holds");
    ki_pool_close(p);
#if defined(__linux__)
    test_moved();
#endif
    for (int i = 0; i < 50; i++) ki_pool_close(ki_pool_open(3));
    CHECK(1, "pools open and close without running");
    free(c);
    return tap_done();
}
