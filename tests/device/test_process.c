/* What the host does with its threads: kernels run where a stack has little room left and in what was forked, and a worker stays on the cores that
 * somebody has given it. */
#include "base/thread.h"

#include <koine/koine.h>

#include "../tap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__linux__)
#include <dirent.h>
#include <sched.h>
#endif

/* ---- stacks ---------------------------------------------------------------------------------------------------- */

/* As a kernel with the largest frame there is. */
static void deep(void *arg, int64_t i) {
    volatile char frame[KI_FRAME_MOST];
    for (size_t k = 0; k < sizeof frame; k += 4096) frame[k] = (char)i;
    *(bool *)arg = frame[4096] == (char)i;
}

static bool goes_deep(void) {
    bool done = false;
    return ki_with_stack(deep, &done) && done;
}

static void *in_thread(void *arg) {
    *(bool *)arg = goes_deep() && goes_deep();
    return NULL;
}

static bool thread_goes_deep(size_t stack) {
    pthread_attr_t attr;
    pthread_t t;
    bool done = false;
    pthread_attr_init(&attr);
    bool made = pthread_attr_setstacksize(&attr, stack) == 0 && pthread_create(&t, &attr, in_thread, &done) == 0;
    if (made) pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
    return made && done;
}

static __attribute__((noinline)) bool after(size_t used) {
    volatile char frame[1 << 19];
    frame[0] = frame[sizeof frame - 1] = 1;
    bool ok = used > sizeof frame ? after(used - sizeof frame) : goes_deep();
    return ok && frame[0];
}

static ucontext_t caller, routine;
static bool routine_done;
static void coroutine(void) { routine_done = goes_deep(); }

static bool coroutine_goes_deep(void) {
    size_t n = 1 << 18;
    void *stack = malloc(n);
    if (!stack || getcontext(&routine)) return false;
    routine.uc_stack.ss_sp = stack, routine.uc_stack.ss_size = n, routine.uc_link = &caller;
    makecontext(&routine, coroutine, 0);
    bool ok = swapcontext(&caller, &routine) == 0;
    free(stack);
    return ok && routine_done;
}

static void test_stacks(void) {
    struct rlimit most = {0};
    getrlimit(RLIMIT_STACK, &most);
    CHECK(goes_deep(), "the first thread has room");
    if (most.rlim_cur >= 8 << 20)
        CHECK(after((most.rlim_cur < 64 << 20 ? most.rlim_cur : 64 << 20) - (2 << 20)), "most of its stack used");
    CHECK(thread_goes_deep(64 << 20), "a thread with much room");
    CHECK(thread_goes_deep(KI_FRAME_MOST + (1 << 20)), "a thread with room for a frame, but for nothing besides");
    CHECK(thread_goes_deep(1 << 20) && thread_goes_deep(1 << 17), "threads with little room");
    CHECK(coroutine_goes_deep(), "a stack that is no thread's");
}

/* ---- forks ----------------------------------------------------------------------------------------------------- */

/* A row times a matrix of ones, on two threads: 512 in each place. */
static bool multiplies(kn_ctx *k) {
    float got[512] = {0};
    kn_tensor a = kn_ones(k, KN_SHAPE(512, 512), KN_F32);
    bool ok = kn_to_host(kn_sum_over(kn_matmul(a, a), KN_LIST(0), 0), got, sizeof got) == KN_OK;
    for (int i = 0; i < 512; i++) ok = ok && got[i] == 512 * 512;
    return ok;
}

static int end_of(pid_t child) {
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_forks(void) {
    kn_ctx *k = kn_open("CPU");
    kn_set(k, "KN_THREADS", "2");
    CHECK(multiplies(k), "before");
    for (int runs = 0; runs < 2; runs++) {
        usleep(20000); /* workers sleep */
        pid_t child = fork();
        if (!child) {
            alarm(60);
            bool ok = !runs || multiplies(k);
            pid_t next = ok ? fork() : -1;
            if (!next) ok = multiplies(k);
            else ok = ok && !end_of(next);
            kn_close(k);
            _exit(!ok);
        }
        CHECK(end_of(child) == 0, "what was forked %s and closes, and so does what it forks",
              runs ? "computes" : "does not compute");
    }
    CHECK(multiplies(k), "after");
    kn_close(k);
}

/* ---- cores ----------------------------------------------------------------------------------------------------- */

#if defined(__linux__)
static void nothing(void *arg, int64_t i) { (void)arg, (void)i; }

/* The one other thread of this process, or 0. */
static pid_t other_thread(void) {
    DIR *d = opendir("/proc/self/task");
    pid_t found = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && atoi(e->d_name) != getpid()) found = (pid_t)atoi(e->d_name);
    if (d) closedir(d);
    return found;
}

/* Does a worker stay on the caller's core, where it does not sleep, if it was put there while it slept? */
static bool stays(void) {
    cpu_set_t all, one, now;
    ki_pool *p = ki_pool_open(2);
    int cpu = sched_getcpu();
    bool ok = cpu >= 0 && sched_getaffinity(0, sizeof all, &all) == 0;
    CPU_ZERO(&one);
    if (ok) CPU_SET(cpu, &one);
    ok = ok && sched_setaffinity(0, sizeof one, &one) == 0; /* the caller stays, too */
    ki_pool_run(p, 2, nothing, NULL);
    usleep(50000); /* it sleeps */
    pid_t worker = other_thread();
    ok = ok && worker && sched_setaffinity(worker, sizeof one, &one) == 0;
    for (int i = 0; i < 3 && ok; i++) {
        ki_pool_run(p, 2, nothing, NULL);
        usleep(50000);
        ok = sched_getaffinity(worker, sizeof now, &now) == 0 && CPU_EQUAL(&now, &one);
    }
    sched_setaffinity(0, sizeof all, &all);
    ki_pool_close(p);
    return ok;
}

static void test_cores(void) { CHECK(stays(), "a worker stays where it was put while it slept"); }
#endif

int main(void) {
    test_stacks();
    test_forks();
#if defined(__linux__)
    test_cores();
#endif
    return tap_done();
}
