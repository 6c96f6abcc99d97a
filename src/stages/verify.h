/* verify.h: is a program what its stage's spec says, and does it still mean what it meant? KN_VERIFY asks (stages.h). */
#ifndef KI_STAGES_VERIFY_H
#define KI_STAGES_VERIFY_H

#include "ir/program.h"

/* Spec of p's stage, its root and, from linearize on, the order of its instructions. False: env says where. */
bool ki_verify_stage(const ki_program *p);
/* `out`, made of `in` by some stages, computes the same on made-up inputs, by the interpreter (DESIGN 10.12). Programs
 * that the interpreter cannot run on such inputs (positions out of range) pass. */
bool ki_verify_meaning(const ki_program *in, const ki_program *out);

#endif
