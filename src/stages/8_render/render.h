/* render.h: stage 8, a kernel's instructions become text.
 *
 * C: one function  void NAME(void *const *buf, const int64_t *var, int64_t thread)  a kernel. buf[k] is PARAM slot k,
 * var the variables in the order of the CALL's trailing sources (of ids, where only the SINK is given), thread the
 * SPECIAL "thread". The text compiles alone with KI_C_FLAGS and the target's flags, gcc or clang; texts of several
 * kernels may be joined in one file: what they share is guarded. */
#ifndef KI_RENDER_H
#define KI_RENDER_H

#include "stages/target.h"

/* kernel: SINK(LINEAR(...)), or CALL of one. Appends to out. */
bool ki_render_c(ki_ir *ir, const ki_target *t, kn_uop kernel, ki_text *out);

/* What a kernel (SINK or PROGRAM) is written for, in a program lowered for t: machine code of the level whose instructions select
 * chose, C where it chose none. NULL: t is of a lower level; env says so. */
const ki_target *ki_render_target(ki_env *env, const ki_target *t, kn_uop kernel);

/* LINEAR(CALL(SINK(LINEAR)...)...) with each SINK replaced by PROGRAM(LINEAR, SOURCE), or BINARY where the target is native. A
 * PROGRAM(LINEAR, BINARY) is made again from its LINEAR. */
kn_uop ki_render(ki_ir *ir, const ki_target *t, kn_uop root);

/* A kernel on its own: SINK(LINEAR(...)), in store `own`, as PROGRAM(LINEAR(), BINARY) in `ir`: its list stays behind. call, in
 * store `calls`, says where its variables stand. */
kn_uop ki_render_alone(ki_ir *ir, ki_ir *own, const ki_target *t, kn_uop sink, ki_ir *calls, kn_uop call);
/* Whether two calls of one kernel are one text: their variables stand in the same places. */
bool ki_render_same(kn_uop a, kn_uop b);

#endif
