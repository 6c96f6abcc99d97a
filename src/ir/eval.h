/* eval.h: the reference interpreter: any verified program, at any stage, in plain scalar C. It shares the op table and
 * the scalar semantics with the rest and nothing else: no rules, no renderer, no pass.
 *
 * Arrays are dense, row-major, in storage form (small floats as their bits, bool a byte, index int64). A symbolic
 * dimension is laid out at its upper bound, as the port's shape states; elements beyond its value are not touched.
 * A variable is an array of one element. A load or store out of bounds is an error that names the node, the index and
 * the size; so is an index that overflows, an input that is missing, and a program that takes more steps than allowed. */
#ifndef KI_EVAL_H
#define KI_EVAL_H

#include "ir/program.h"

typedef struct ki_eval_opts {
    uint64_t budget;      /* steps (elements and instructions); 0 = no limit */
    double *const *bound; /* tensor and callify: for each output an array for the error bounds (ki_agree), or NULL */
    bool dry; /* rangeify and later: without memory: do calls and accesses fit? Kernels that cannot be run pass. in: for the variables, or NULL */
} ki_eval_opts;

/* in[i], out[i]: the arrays of p's ports. o may be NULL. Returns KI_OK, or a status with the failure in the store's env.
 * Scratch nodes made on the way are dropped again. */
int ki_eval(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o);

/* ---- one kernel: what the INTERP device launches ---- */

/* A CALL of a kernel (SINK as a graph or as a LINEAR, PROGRAM), or the SINK or PROGRAM itself when it takes no
 * variables, compiled to a flat list of instructions. It holds no pointer into the store. NULL: env says why. */
typedef struct ki_vm ki_vm;
ki_vm *ki_vm_make(ki_ir *ir, kn_uop call);
void ki_vm_free(ki_vm *vm);
/* buf[k], bytes[k]: storage of PARAM slot k; var[i]: the i-th trailing (scalar) argument of the CALL. budget: steps left,
 * counted down, or NULL. A vm may run on several threads at once, each with its own env. */
int ki_vm_run(const ki_vm *vm, ki_env *env, void *const *buf, const int64_t *bytes, const int64_t *var,
              uint64_t *budget);

#endif
