/* dots.h: words of narrow elements and the sums of dot products made of them (TC). See dots.c. Private to 3_optimize. */
#ifndef KI_DOTS_H
#define KI_DOTS_H

#include "stages/3_optimize/choose.h"

/* The row of the table for this sum on this target, -1: none. y: the factor that goes as signed bytes, x the other; `top` as TC
 * wants it; *group: the elements of a word. */
int ki_dot_row(const ki_target *t, kn_uop sum, bool *top, kn_uop y, int64_t *group);

/* Sums of products that are worth it go by dot products. */
void ki_choose_dots(ki_choice *c);

#endif
