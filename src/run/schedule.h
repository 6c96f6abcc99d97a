/* schedule.h: a rendered program as a command buffer: a flat array of launches with slots for buffers and variables.
 *
 * Making one walks the graph once and compiles its kernels. Running it writes addresses and values into their places and
 * submits: no allocation, no hashing, no graph. It holds no pointer into the store it was made from. */
#ifndef KI_SCHEDULE_H
#define KI_SCHEDULE_H

#include "device/device.h"
#include "ir/program.h"

typedef struct ki_sched_slot { /* one BUFFER of the program */
    size_t bytes;
    int64_t scratch; /* offset in the scratch block; -1: a port, whose memory is given at each run */
} ki_sched_slot;

typedef struct ki_sched_var {
    char *name;
    kn_dtype dtype;
    int64_t lo, hi; /* bounds, of integers */
} ki_sched_var;
/* The number of p's variable, by its name, among n of them, and its bounds within p's; false: there is none. */
bool ki_sched_var_find(ki_sched_var *v, uint32_t n, const ki_param *p, int32_t *number);
/* Name and bounds of p; false when out of memory. */
bool ki_sched_var_make(const ki_param *p, ki_sched_var *out);

typedef struct ki_sched_arg {
    uint32_t slot;
    int64_t offset; /* bytes */
} ki_sched_arg;

typedef struct ki_schedule {
    ki_launch *launch;
    ki_sched_arg *arg; /* arg[i] says what ptr[i] is */
    void **ptr;        /* all launches' buf arrays, end to end */
    int32_t *var_of;   /* var_of[i] says which variable value[i] is; -1: a constant */
    int64_t *value;
    size_t nlaunch, narg, nvalue, nkernel;
    ki_sched_slot *slot;
    void **base; /* by slot */
    uint32_t nslot;
    ki_sched_var *var;
    uint32_t nvar;
    int32_t *in_slot, *out_slot; /* by port; an in port that is a variable: -1 - its number */
    size_t nin, nout;
    size_t scratch; /* bytes of the block that run needs */
} ki_schedule;

/* p: stage render. NULL: env says why. Its kernels are compiled by the caller, who may do so for several programs at
 * once: ki_schedule_texts fills text[0 .. nkernel), ki_schedule_entries takes their entries back. */
ki_schedule *ki_schedule_make(const ki_program *p);
void ki_schedule_texts(const ki_program *p, bool kept, ki_kernel_text *text);
void ki_schedule_entries(ki_schedule *s, const ki_kernel_text *text);
void ki_schedule_free(ki_schedule *s);

/* base[slot] of each port's slot must be set; var: values by number; scratch: a block of s->scratch bytes. */
bool ki_schedule_run(ki_schedule *s, ki_device *d, const int64_t *var, void *scratch);

#endif
