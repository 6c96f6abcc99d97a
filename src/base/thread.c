/* thread.c: a pool with per-thread shares and stealing. See thread.h.
 *
 * A share is one 64-bit word: generation | next task | end. A claim is one compare-and-swap on the whole word, so a
 * thread that was asleep through a run can never take a task of the next one with the last one's bounds: its
 * word's generation is old. `fn` and `arg` are read after a successful claim, and cannot change before that task ends. */
#include "base/thread.h"

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/gnu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

enum {
    TASK_BITS = 20,
    MAX_BATCH = (1 << TASK_BITS) - 1,
    MAX_THREADS = 1024,
    SPIN = 4000,
    FEW_CORES = 4,
    LINE = 64,
    STACK = 16 << 20,
    STEP = 1 << 20,
    ROOM = KI_FRAME_MOST + STEP /* and for what else runs above it */
};
enum { HOT_NS = 1000000 };

typedef struct share {
    _Alignas(LINE) _Atomic uint64_t word;
} share;

struct ki_pool {
    unsigned threads; /* including the caller */
    int64_t hot_ns;   /* how long a worker spins before it sleeps; 0 where there are more threads than cores */
    share *share;
    pthread_t *worker;
    struct start {
        ki_pool *pool;
        unsigned self;
#if defined(__linux__)
        cpu_set_t may, now; /* under the lock: where it may run, and wake: */
        bool away;          /* it sleeps with leave to wake on any of these but one */
#endif
    } * start;
    _Atomic(ki_task *) fn;
    _Atomic(void *) arg;
    _Alignas(LINE) _Atomic uint64_t generation; /* bumped by each run; the workers wait on it */
    _Alignas(LINE) _Atomic int64_t left;        /* tasks that have not returned */
    _Atomic int sleepers, caller_sleeps, stop;
    _Atomic int caller_cpu; /* where the last run was announced */
    unsigned forks;         /* of this process's ancestors, when it was opened */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* ---- how many ------------------------------------------------------------------------------------------------ */

/* Files of the system are read once in a process: reading them takes as long as compiling a small kernel. */
static uint64_t quota(void) {
    static _Atomic(uint64_t) known; /* plus one; 0: not yet */
    uint64_t n = atomic_load_explicit(&known, memory_order_relaxed);
    if (!n) atomic_store_explicit(&known, n = ki_cgroup_limit("cpu.max") + 1, memory_order_relaxed);
    return n - 1;
}

unsigned ki_cpu_count(void) {
    long n = 0;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
    if (n < 1) n = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t limit = quota();
    if (limit && n > 0 && limit < (uint64_t)n) n = (long)limit;
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (unsigned)n;
}

/* /sys has a folder for each cache, the last ones the farthest. (sysconf counts what no core reaches alone.) */
static uint64_t find_cache(void) {
    uint64_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[64], unit = 0;
        unsigned long long n = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "re");
        if (!f) break;
        int got = fscanf(f, "%llu%c", &n, &unit);
        fclose(f);
        if (got < 1 || n > 1 << 24) continue;
        n <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
        if (n > most) most = n;
    }
    return most ? most : 32 << 20;
}
uint64_t ki_cache_bytes(void) {
    static _Atomic(uint64_t) known;
    uint64_t n = atomic_load_explicit(&known, memory_order_relaxed);
    if (!n) atomic_store_explicit(&known, n = find_cache(), memory_order_relaxed);
    return n;
}

/* ---- a run --------------------------------------------------------------------------------------------------- */

static inline uint64_t pack(uint64_t generation, uint64_t next, uint64_t end) {
    return generation << (2 * TASK_BITS) | next << TASK_BITS | end;
}

/* A task of share k in that generation, or -1. */
static int64_t claim(ki_pool *p, unsigned k, uint64_t generation) {
    uint64_t w = atomic_load_explicit(&p->share[k].word, memory_order_acquire);
    for (;;) {
        uint64_t next = w >> TASK_BITS & MAX_BATCH;
        if ((w ^ pack(generation, 0, 0)) >> (2 * TASK_BITS) || next >= (w & MAX_BATCH)) return -1;
        if (atomic_compare_exchange_weak_explicit(&p->share[k].word, &w, w + ((uint64_t)1 << TASK_BITS),
                                                  memory_order_acq_rel, memory_order_acquire))
            return (int64_t)next;
    }
}

static void finished_one(ki_pool *p) {
    if (atomic_fetch_sub(&p->left, 1) != 1 || !atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

/* Own share first, then the others', nearest first. */
static void help(ki_pool *p, unsigned self, uint64_t generation) {
    for (unsigned d = 0; d < p->threads; d++) {
        unsigned k = self + d < p->threads ? self + d : self + d - p->threads;
        for (int64_t i; (i = claim(p, k, generation)) >= 0; finished_one(p)) {
            ki_task *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
            fn(atomic_load_explicit(&p->arg, memory_order_relaxed), i);
        }
    }
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if defined(__linux__)
/* A worker that is woken on the caller's core waits there until the caller's time is up, which may be a kernel's length; some
 * kernels do put it there. So it falls asleep with leave to wake on any core but that one; where the next run comes from another, make_way. Where
 * somebody else has said meanwhile where it may run that holds. */
static void leave_core(pthread_t worker, struct start *s, int cpu) {
    cpu_set_t set = s->may, now;
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &set);
    if (pthread_getaffinity_np(worker, sizeof now, &now) || !CPU_EQUAL(&now, &s->now)) s->away = false;
    else if (CPU_COUNT(&set) && pthread_setaffinity_np(worker, sizeof set, &set) == 0) s->now = set;
}
static void sleep_until(struct start *s, uint64_t seen) {
    ki_pool *p = s->pool;
    s->away = sched_getaffinity(0, sizeof s->may, &s->may) == 0;
    s->now = s->may;
    if (s->away) leave_core(pthread_self(), s, atomic_load(&p->caller_cpu));
    while (atomic_load(&p->generation) == seen) pthread_cond_wait(&p->work, &p->lock);
    if (s->away) leave_core(pthread_self(), s, -1);
    s->away = false;
}
/* Of many cores one more that is taken is no matter, and each worker is a call of the system. */
static void make_way(ki_pool *p, int cpu) {
    for (unsigned k = 1; k < p->threads; k++)
        if (p->start[k].away && CPU_COUNT(&p->start[k].may) <= FEW_CORES) leave_core(p->worker[k], &p->start[k], cpu);
}
static int this_cpu(void) { return sched_getcpu(); }
#else
static void sleep_until(struct start *s, uint64_t seen) {
    ki_pool *p = s->pool;
    while (atomic_load(&p->generation) == seen) pthread_cond_wait(&p->work, &p->lock);
}
static void make_way(ki_pool *p, int cpu) { (void)p, (void)cpu; }
static int this_cpu(void) { return -1; }
#endif

/* The generation after `seen`: spins, then sleeps. */
static uint64_t await_work(struct start *s, uint64_t seen) {
    ki_pool *p = s->pool;
    uint64_t g = seen;
    for (int64_t until = now_ns() + p->hot_ns; now_ns() < until;)
        for (int i = 0; i < 64; i++) {
            if ((g = atomic_load_explicit(&p->generation, memory_order_acquire)) != seen) return g;
            relax();
        }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    sleep_until(s, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->generation);
}

static void *worker_main(void *arg) {
    struct start *s = arg;
    ki_pool *p = s->pool;
    for (uint64_t g = 0;;) {
        g = await_work(s, g);
        if (atomic_load(&p->stop)) return NULL;
        help(p, s->self, g);
    }
}

/* A new generation for all to see; wakes those who sleep. */
static void announce(ki_pool *p, uint64_t generation) {
    int cpu = this_cpu(), last = atomic_exchange(&p->caller_cpu, cpu);
    atomic_store(&p->generation, generation);
    if (!atomic_load(&p->sleepers)) return;
    pthread_mutex_lock(&p->lock);
    if (cpu != last) make_way(p, cpu);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static void await_done(ki_pool *p) {
    for (int i = 0; i < SPIN; i++) {
        if (!atomic_load_explicit(&p->left, memory_order_acquire)) return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, 1);
    while (atomic_load(&p->left)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, 0);
    pthread_mutex_unlock(&p->lock);
}

/* One batch; the tasks of a batch are numbered from 0, `base` is added by the caller's wrapper. */
static void run_batch(ki_pool *p, int64_t n, ki_task *fn, void *arg) {
    uint64_t g = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    unsigned t = p->threads;
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store(&p->left, n);
    for (unsigned k = 0; k < t; k++)
        atomic_store_explicit(&p->share[k].word, pack(g, (uint64_t)n * k / t, (uint64_t)n * (k + 1) / t),
                              memory_order_release);
    announce(p, g);
    help(p, 0, g);
    await_done(p);
}

typedef struct batch {
    ki_task *fn;
    void *arg;
    int64_t base;
} batch;
static void run_one_of_batch(void *arg, int64_t i) {
    const batch *b = arg;
    b->fn(b->arg, b->base + i);
}

void ki_pool_run(ki_pool *p, int64_t n, ki_task *fn, void *arg) {
    if (!p || p->threads == 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++) fn(arg, i);
        return;
    }
    if (n <= MAX_BATCH) {
        run_batch(p, n, fn, arg);
        return;
    }
    batch b = {fn, arg, 0};
    for (; b.base < n; b.base += MAX_BATCH)
        run_batch(p, n - b.base < MAX_BATCH ? n - b.base : MAX_BATCH, run_one_of_batch, &b);
}

/* ---- forks ---------------------------------------------------------------------------------------------------- */

static atomic_uint forks;
static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

bool ki_pool_is_left(const ki_pool *p) { return p && p->forks != atomic_load_explicit(&forks, memory_order_relaxed); }

/* ---- life ---------------------------------------------------------------------------------------------------- */

unsigned ki_pool_threads(const ki_pool *p) { return p ? p->threads : 1; }

static void pool_free(ki_pool *p) {
    ki_free(p->share);
    ki_free(p->worker);
    ki_free(p->start);
    ki_free(p);
}

/* Of a thread that takes no signals, which are the host's, and has room for what kernels keep on its stack. False: there is none. */
static bool start_thread(pthread_t *t, void *(*main)(void *), void *arg) {
    sigset_t all, old;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr)) return false;
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool made = pthread_create(t, &attr, main, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return made;
}

/* Workers read p->threads only after the first run was announced. */
static unsigned start_workers(ki_pool *p, unsigned threads) {
    unsigned made = 1;
    for (; made < threads; made++) {
        p->start[made] = (struct start){.pool = p, .self = made};
        if (!start_thread(&p->worker[made], worker_main, &p->start[made])) break;
    }
    return made;
}

ki_pool *ki_pool_open(unsigned threads) {
    if (threads < 1) threads = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ki_pool *p = ki_aligned(LINE, sizeof *p);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->share = ki_aligned(LINE, threads * sizeof *p->share);
    p->worker = ki_calloc(threads, sizeof *p->worker);
    p->start = ki_calloc(threads, sizeof *p->start);
    if (!p->share || !p->worker || !p->start) {
        pool_free(p);
        return NULL;
    }
    memset(p->share, 0, threads * sizeof *p->share);
    pthread_once(&once, watch_forks);
    p->forks = atomic_load(&forks);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    p->hot_ns = threads <= ki_cpu_count() ? HOT_NS : 0;
    p->caller_cpu = this_cpu();
    unsigned made = start_workers(p, threads);
    p->threads = made;
    return p;
}

static void end_workers(ki_pool *p) {
    atomic_store(&p->stop, 1);
    announce(p, atomic_load(&p->generation) + 1);
    for (unsigned k = 1; k < p->threads; k++) pthread_join(p->worker[k], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
}

void ki_pool_close(ki_pool *p) {
    if (!p) return;
    if (!ki_pool_is_left(p)) end_workers(p);
    pool_free(p);
}

/* ---- the caller's stack ---------------------------------------------------------------------------------------- */

static void *stack_main(void *arg) {
    const batch *b = arg;
    b->fn(b->arg, b->base);
    return NULL;
}

/* In a thread of its own, which is made for it. */
static bool elsewhere(ki_task *fn, void *arg) {
    batch b = {fn, arg, 0};
    pthread_t t;
    bool made = start_thread(&t, stack_main, &b);
    if (made) pthread_join(t, NULL);
    return made;
}

#if defined(__linux__)
/* Frame by frame: memory checkers take a longer step for another stack. */
static KI_NOINLINE void reach(size_t n) { /* whole steps */
    volatile char frame[STEP];
    frame[0] = 0;
    if (n > STEP) reach(n - STEP);
    frame[1] = frame[0]; /* no tail call */
}

/* Where the calling thread's stack is, and how far down it is there: the first thread's grows as it is touched, all others' from the beginning. */
typedef struct stack {
    uintptr_t low, high, there;
} stack;

static stack find_stack(void) {
    pthread_attr_t attr;
    stack s = {0};
    void *low;
    size_t n;
    if (pthread_getattr_np(pthread_self(), &attr)) return s;
    if (pthread_attr_getstack(&attr, &low, &n) == 0) s.low = (uintptr_t)low, s.high = s.low + n;
    pthread_attr_destroy(&attr);
    s.there = getpid() == (pid_t)syscall(SYS_gettid) ? s.high : s.low;
    return s;
}

/* Where there is no memory left for a stack that grows the process dies, so it grows now. Of what is not the thread's own (a coroutine's) nothing is
 * known. */
static bool has_room(void) {
    static _Thread_local stack s;
    char here;
    uintptr_t at = (uintptr_t)&here;
    if (!s.high) s = find_stack();
    if (at < s.low || at >= s.high || at - s.low < ROOM) return false;
    if (at - ROOM >= s.there) return true;
    void *p = mmap(NULL, ROOM + STEP, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    (void)munmap(p, ROOM + STEP);
    reach(ROOM);
    s.there = at - ROOM;
    return true;
}
#else
static bool has_room(void) { return false; }
#endif

bool ki_with_stack(ki_task *fn, void *arg) {
    if (!has_room()) return elsewhere(fn, arg);
    fn(arg, 0);
    return true;
}
