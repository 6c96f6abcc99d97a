/* dots.h: words of narrow elements and the sums of dot products made of them (TC). See dots.c. Private to 3_optimize. */
#ifndef KI_DOTS_H
#define KI_DOTS_H

#include "stages/3_optimize/choose.h"

/* Sums of products that are worth it go by dot products. */
void ki_choose_dots(ki_choice *c);
#define KI_TILE_SIDE 16 /* rows, columns and words of an AMX tile */
/* Does this sum go by AMX tiles? */
bool ki_is_tiled(kn_uop sum);

#endif
