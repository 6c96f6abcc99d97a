/* sample.h: how long compiled kernels take, each run in a process of its own, so that one that crashes, loops or writes where it
 * must not costs itself alone.
 *
 * Why fork, and what the child may do: a library cannot start a helper program (there may be none on this machine), and fork in
 * a process with threads leaves a child in which only what is safe in a signal handler may be called, since another thread may
 * have held any lock. So all that needs a lock is done before: kernels are compiled, loaded and sealed, inputs made. The child
 * maps its outputs, reads the clock, calls the kernel, compares and ends, all by system calls and plain loops. The threads of a kernel are as many children that share the outputs and meet at a counter. Children die with their
 * parent, and of what ends processes from a terminal, leave no core, and are waited for by process id; no signal handler of the caller's is touched, nor run in a child.
 *
 * What did not even begin, or was ended from outside (for want of memory, by Ctrl-C), was not measured: KI_NO_CHILD. */
#ifndef KI_SAMPLE_H
#define KI_SAMPLE_H

#include "device/device.h"
#include "ir/dtype.h"

typedef struct ki_sample_buffer {
    size_t bytes;
    kn_dtype dtype;
    bool read, written;
    void *data;   /* what it holds at first, NULL: zeros */
    void *want;   /* of one that is written: what the first sample left there; shared */
    double most;  /* the largest number there, infinities aside */
    void *shared; /* of one that is written: for kernels with threads */
} ki_sample_buffer;

typedef struct ki_sampling { /* what all samples of a kernel have in common */
    ki_env *env;
    ki_sample_buffer *buffer;
    size_t nbuffer;
    const int64_t *var;
    double slack;  /* by how much results may differ, of the largest in their buffer; 0: not at all */
    bool decides;  /* floats are compared or become integers: some of these may differ */
    unsigned jobs; /* samples that may run at once */
    double floor;  /* seconds that any sample may take; 0: one */
    bool has_want;
} ki_sampling;

typedef enum ki_outcome { KI_RAN, KI_CRASHED, KI_TIMED_OUT, KI_WRONG, KI_NO_CHILD } ki_outcome;
typedef struct ki_sample {
    ki_entry *entry;
    uint32_t threads;
    double seconds; /* out: of one run, the least of several; INFINITY unless it ran */
    ki_outcome outcome;
    int signal;                /* KI_CRASHED: by which; 0: it ended in some way that the host's handling of SIGCHLD hides */
    size_t buffer, at;         /* KI_WRONG: the first element that is */
    double got, expected;
} ki_sample;

/* Memory for the buffers: bytes, dtype, read, written are given, data is made, and filled by the caller (input_sealed). False: env
 * says why. */
bool ki_sampling_open(ki_sampling *s, ki_env *env);
/* From here on nothing can write to what is only read. */
void ki_sampling_seal(ki_sampling *s);
void ki_sampling_close(ki_sampling *s);
/* Runs them. best: seconds of the best so far, 0: unknown; what takes several times as long is given up. The first sample that ever
 * runs sets what the others' results are compared with. False: from some KI_NO_CHILD on no more were begun, which are KI_NO_CHILD too. */
bool ki_sample_all(ki_sampling *s, ki_sample *v, size_t n, double best);

#endif
