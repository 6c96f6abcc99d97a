/* child.h: what a forked child does with one kernel. Only system calls and loops (sample.h). */
#ifndef KI_CHILD_H
#define KI_CHILD_H

#include "run/search/sample.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { KI_REPORT_NONE, KI_REPORT_BEGUN, KI_REPORT_RAN, KI_REPORT_WRONG };
typedef struct ki_report {
    _Atomic uint32_t state;
    _Atomic uint32_t turn, done; /* threads: the run that is on, how many have finished it */
    double seconds;
    size_t buffer, at;
    double got, expected;
} ki_report;

typedef struct ki_child {
    const ki_sampling *on;
    const ki_sample *sample;
    ki_report *report;
    double best;
    size_t page;
    pid_t parent;
} ki_child;

/* Does not return. The parent has blocked all signals. */
void ki_child_run(const ki_child *c, unsigned thread);
bool ki_child_fault(int sig); /* one that a kernel brings about itself */
double ki_sample_largest(const ki_sample_buffer *b);
/* Memory with a page behind it that nothing may touch; by system calls alone. */
void *ki_sample_map(size_t bytes, bool shared, size_t page);

#endif
