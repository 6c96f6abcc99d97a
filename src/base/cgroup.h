/* cgroup.h: what the control groups (version 2) that this process is in leave it. A group's limit holds for those below it too, so the
 * least on the way from the process's own up to the root counts. */
#ifndef KI_CGROUP_H
#define KI_CGROUP_H

#include <stdint.h>

/* memory.max in bytes, cpu.max in processors (the quota over its period, rounded up); 0: no limit. */
uint64_t ki_cgroup_limit(const char *name);
/* The same by another list of groups and another root than the system's. */
uint64_t ki_cgroup_limit_of(const char *list, const char *root, const char *name);

/* Bytes of memory that this process may use: what there is, cut by the groups' limit; 0: not known. */
uint64_t ki_memory_bytes(void);

#endif
