/* thread.h: the pool on which a kernel's THREAD axis runs, and how many threads this process may use.
 *
 * A run is n tasks. Each thread owns an equal, contiguous share of them, the same one on every run, so that what a
 * kernel wrote is read by the core that has it; who is done early takes tasks from others' shares, so that a
 * core lost to another process delays nothing but its own task. Workers stay hot: between runs they spin for a
 * millisecond (where each has a core) and only then sleep.
 *
 * One thread uses a pool at a time. A task must not run the pool it runs on. */
#ifndef KI_THREAD_H
#define KI_THREAD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ki_pool ki_pool;
typedef void ki_task(void *arg, int64_t i);

/* Threads this process may use: the affinity mask, cut by the cgroup's quota. At least 1. */
unsigned ki_cpu_count(void);

/* Bytes of the last cache a core shares with others; a guess where the system does not say. */
uint64_t ki_cache_bytes(void);

/* A pool of `threads`, the caller's included; fewer when the host refuses to make them. NULL: out of memory. */
ki_pool *ki_pool_open(unsigned threads);
/* Joins all workers. NULL is allowed. */
void ki_pool_close(ki_pool *p);
unsigned ki_pool_threads(const ki_pool *p);

/* Does it belong to the process that this one was forked from? Its workers are there and not here: it is to be closed, which joins none. */
bool ki_pool_is_left(const ki_pool *p);

/* Runs fn(arg, i) for 0 <= i < n, and returns when all have returned. Their effects are visible to the caller. */
void ki_pool_run(ki_pool *p, int64_t n, ki_task *fn, void *arg);

/* The largest frame of a kernel, in bytes. */
enum { KI_FRAME_MOST = 6 << 20 };

/* Runs fn(arg, 0) where a stack has room for what kernels keep there: on the caller's, or, of which little is left, on that of a thread made for it.
 * False: there is no memory for either. */
bool ki_with_stack(ki_task *fn, void *arg);

#endif
