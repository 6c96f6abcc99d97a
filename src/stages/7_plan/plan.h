/* plan.h: stage 7, where things lie.
 *
 * In:  LINEAR(CALL(SINK(LINEAR(...)), buffers..., variables...)...), in execution order.
 *      A buffer may be SLICE(BUFFER, constant), a part of one.
 * Out: the same; an intermediate GLOBAL BUFFER, or part of one, is SLICE(arena, offset), one arena of bytes a device, 64-byte aligned,
 *      BUFFERs that are never live at one time share bytes; each instruction of a kernel has its position as tag.
 * Never moved: `keep` (ports), a BUFFER that is read before any call writes it, and one on several devices. */
#ifndef KI_PLAN_H
#define KI_PLAN_H

#include "ir/uop.h"

typedef struct ki_plan_sizes {
    int64_t separate; /* bytes of the intermediate BUFFERs if each had its own */
    int64_t arena;    /* bytes of the arenas */
} ki_plan_sizes;

/* A kernel, in another store or in its own, with each instruction's position as its tag. ki_plan takes kernels that are so as
 * they are. */
kn_uop ki_plan_kernel(ki_ir *to, ki_ir *from, kn_uop sink);
/* filled[k]: whether a call of `body` writes all that its source k, one of n, holds before reading it, as far as can be told: a
 * kernel stores to the slot before it loads from it; a copy writes its first argument. */
void ki_plan_filled(kn_uop body, uint8_t *filled, uint32_t n);
/* filled: as ki_plan_filled, of one call after the other; NULL: the calls' lists say so. sizes may be NULL. */
kn_uop ki_plan(ki_ir *ir, kn_uop root, const kn_uop *keep, size_t nkeep, const uint8_t *filled, ki_plan_sizes *sizes);

#endif
