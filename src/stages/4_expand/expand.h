/* expand.h: stage 4, parallel ranges become shape, reduces become accumulators, reads become LOADs.
 *
 * In:  a kernel SINK after *optimize* (any form from *rangeify* on).
 * Out: no UPCAST or UNROLL RANGE, no REDUCE over ranges (one over lane axes may remain), no `invalid`; every
 * read a LOAD. The k-th UPCAST or UNROLL range, in order of range id, is lane axis k; a value is () or has
 * every lane axis, with 1 where it does not vary. A value all of whose lanes are 1 is (). */
#ifndef KI_EXPAND_H
#define KI_EXPAND_H

#include "ir/uop.h"
#include "stages/target.h"

/* t may be NULL; where it has MULACC a product added to an accumulator becomes one. NULL: env says why. */
kn_uop ki_expand_kernel(ki_ir *ir, const ki_target *t, kn_uop sink);

#endif
