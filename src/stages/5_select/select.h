/* select.h: stage 5, from lane axes to what the target's registers and instructions hold.
 *
 * In:  a kernel of stage expand: shaped values with one axis a lane axis, LOADs and STOREs with linear indices.
 * Out: every value is () or (n,) with n a power of two that fits the target's vectors; REDUCE is gone; THREAD ranges are
 *      SPECIAL "thread"; no arithmetic of dtype index is left but RANGE bounds; ops the target lacks are decomposed.
 *      Native targets: scalars of dtype index stay (they are general registers), every op on data is an INS.
 *
 * Native targets, last step: one rewrite with the rule sets of the target's level, in this order, so that a set sees only
 * what those before it left (select_x86.c lists them):
 *   select_<level>  by hand: comparisons, masks, blends, max, shifts, casts
 *   x86_<level>     made from the table: an op that is one instruction's meaning
 *   lack...         dialect to dialect: what no instruction of the level does (lack_x86.kr); what they make is selected in turn */
#ifndef KI_SELECT_H
#define KI_SELECT_H

#include "stages/target.h"

kn_uop ki_select(ki_ir *ir, const ki_target *t, kn_uop sink);

/* The steps, in order. */
kn_uop ki_devectorize(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_lower_index(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_lack(ki_ir *ir, unsigned level, kn_uop sink); /* native targets; level: ki_cpu_level */
kn_uop ki_select_x86(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets */

#endif
