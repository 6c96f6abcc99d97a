/* verify.h: is a program what its stage's spec says, and does it still mean what it meant? KN_VERIFY asks (stages.h). */
#ifndef KI_STAGES_VERIFY_H
#define KI_STAGES_VERIFY_H

#include "ir/program.h"
#include "rules/rules.h"

/* Spec of p's stage, its root and, from linearize on, the order of its instructions. False: env says where. */
bool ki_verify_stage(const ki_program *p);
/* The same, and what is so of all that koine itself lowers, but may not be of what others write or edit: calls pass what their kernels take, and
 * accesses stay in their memory as far as loops say where they lead. */
bool ki_verify_text(const ki_program *p);
/* The last two of the ports' values, or of any (NULL). A variable outside its bounds is left to who runs it. */
bool ki_verify_calls(const ki_program *p, const void *const *in);
/* The same as far as 2^24 steps of the interpreter go, which know where data leads; with more elements than that in its ports a program
 * passes. in, out: their arrays; what is in out is lost. */
bool ki_verify_run(const ki_program *p, const void *const *in, void *const *out);
/* Specs of a stage: a node is legal when one of them accepts it. */
const ki_ruleset *const *ki_stage_specs(ki_stage s, unsigned *n);
/* The same of one kernel in a store of its own. */
bool ki_verify_kernel(ki_ir *ir, kn_uop kernel, ki_stage stage);
/* Stage `s` begins: who watches learns its name and, with `check`, what its rewrites may make: nodes that the specs of its
 * input or output accept, or that stand in between only (between.spec.kr). */
void ki_watch_between(ki_env *env, ki_stage s, bool check);
/* `out`, made of `in` by some stages, computes the same on made-up inputs, by the interpreter (DESIGN 10.12). Programs
 * that the interpreter cannot run on such inputs (positions out of range) pass. */
bool ki_verify_meaning(const ki_program *in, const ki_program *out);

#endif
