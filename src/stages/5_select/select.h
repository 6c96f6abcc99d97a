/* select.h: stage 5, from lane axes to what the target's registers and instructions hold.
 *
 * In:  a kernel of stage expand: shaped values with one axis a lane axis, LOADs and STOREs with linear indices.
 * Out: every value is () or (n,) with n a power of two that fits the target's vectors; REDUCE is gone; THREAD ranges are
 *      SPECIAL "thread"; no arithmetic of dtype index is left but RANGE bounds; ops the target lacks are decomposed. */
#ifndef KI_SELECT_H
#define KI_SELECT_H

#include "stages/target.h"

kn_uop ki_select(ki_ir *ir, const ki_target *t, kn_uop sink);

/* The steps, in order. */
kn_uop ki_devectorize(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_lower_index(ki_ir *ir, kn_uop sink);

#endif
