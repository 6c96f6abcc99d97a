/* cpu.h: what the pipeline must know of the CPU device before it lowers a program for it. */
#ifndef KI_CPU_H
#define KI_CPU_H

#include "base/env.h"
#include "stages/target.h"

/* Threads: KN_THREADS, else ki_cpu_count. */
unsigned ki_cpu_threads(ki_env *env);
/* From how many bytes on an output is written past the caches: KN_STREAM, else half of the last cache, and no more than 32 MiB: with
 * what it is made from an output fills the cache then. */
uint64_t ki_cpu_stream(ki_env *env);

#endif
