/* kept.h: values that are kept in a buffer, lane by lane, from one loop to another (chains.c, rare.c, tiles.c). Private to 5_select. */
#ifndef KI_SELECT_KEPT_H
#define KI_SELECT_KEPT_H

#include "stages/scope.h"

#define KI_KEPT_LANES 64 /* of a value, at most */

/* AFTER(buffer, the loops around v but `but`, and those of threads): in each of their iterations v is kept there anew. *lanes: the place of each of v's
 * lanes, those of the first axis side by side. */
kn_uop ki_keep_in(const ki_scope *s, kn_uop v, kn_uop buffer, kn_uop but, kn_uop *lanes);

#endif
