/* stages.h: from a tensor program to rendered kernels. The page a newcomer opens first is stages.def. */
#ifndef KI_STAGES_H
#define KI_STAGES_H

#include "ir/program.h"
#include "stages/target.h"

typedef struct ki_lower_opts {
    const ki_target *target; /* NULL: the host's */
    ki_machine machine;
    int verify; /* as KN_VERIFY, which counts if it is higher */
    /* An optimized kernel in place of what the heuristics would make; NULL: none, and env is as it was. */
    kn_uop (*choose)(void *user, ki_ir *ir, const struct ki_lower_opts *o, kn_uop sink);
    void *user;
    bool rough; /* the rendered program is for running: what is left of its making may stay in the store */
} ki_lower_opts;

/* Lowers `in` (at any stage) to stage `to`, in `ir`, an open and empty store. `in` is not touched; out's ports are the
 * caller's to free (ki_program_free), its nodes live in ir. port.origin of an in port is the node of `in` it came from.
 * False: env (that of ir) says why. */
bool ki_lower(const ki_program *in, ki_ir *ir, ki_stage to, const ki_lower_opts *o, ki_program *out);

/* Stage entries. Program stages rewrite p->root and ports; kernel stages take and give the kernel's SINK. */
bool ki_callify(const ki_program *in, ki_ir *ir, ki_program *out);
bool ki_rangeify(ki_program *p, const ki_lower_opts *o);
/* Kernels and bytes of a lowered program (stage rangeify or later), for `koine bench kernels`; each, if there is one, is called for what
 * each kernel does with its arguments. */
typedef struct ki_traffic {
    int64_t kernels, bytes;
} ki_traffic;
typedef void ki_traffic_each(void *user, kn_uop memory, int64_t read, int64_t written);
ki_traffic ki_count_traffic(const ki_program *p, ki_traffic_each *each, void *user);

#endif
