/* cpu.h: what the pipeline must know of the CPU device before it lowers a program for it. */
#ifndef KI_CPU_H
#define KI_CPU_H

#include "base/env.h"
#include "base/thread.h"
#include "stages/target.h"

struct ki_device;

/* Threads: KN_THREADS, else ki_cpu_count. */
unsigned ki_cpu_threads(ki_env *env);
/* What kernels are optimized for: KN_THREADS, KN_STREAM (else half of the last cache, and no more than 32 MiB), KN_AHEAD (else as the processor
 * needs, ki_cpu_under_way), KN_ALONE. Caches are left to who searches. */
ki_machine ki_cpu_machine(ki_env *env);
/* The threads that kernels run on, for other work of the host; NULL: d is no CPU device, or there is no memory. */
ki_pool *ki_cpu_pool(struct ki_device *d);

#endif
