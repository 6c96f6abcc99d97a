/* schedule.h: the order of the instructions of a loop's body, once they are machine instructions. */
#ifndef KI_SCHEDULE_H
#define KI_SCHEDULE_H

#include "ir/uop.h"

/* item: a body without loops in it, sources before their users, what closes it last; it is put into another such order where
 * that lets more be under way at once. place: by id, all 0, and so again afterwards. False: no memory. */
bool ki_schedule(ki_env *env, kn_uop *item, uint32_t n, uint32_t *place, unsigned nvector);

#endif
