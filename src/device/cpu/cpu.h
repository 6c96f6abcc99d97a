/* cpu.h: what the pipeline must know of the CPU device before it lowers a program for it. */
#ifndef KI_CPU_H
#define KI_CPU_H

#include "base/env.h"
#include "base/thread.h"
#include "stages/target.h"

struct ki_device;

/* Threads: KN_THREADS, else ki_cpu_count. */
unsigned ki_cpu_threads(ki_env *env);
/* From how many bytes on an output is written past the caches: KN_STREAM, else half of the last cache, and no more than 32 MiB: with
 * what it is made from an output fills the cache then. */
uint64_t ki_cpu_stream(ki_env *env);
/* How many bytes are to be under way where a kernel goes along memory: KN_AHEAD, else as the processor needs (ki_cpu_under_way). */
uint64_t ki_cpu_ahead(ki_env *env);
/* The threads that kernels run on, for other work of the host; NULL: d is no CPU device, or there is no memory. */
ki_pool *ki_cpu_pool(struct ki_device *d);

#endif
