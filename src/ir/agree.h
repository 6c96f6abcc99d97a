/* agree.h: do two runs agree (DESIGN 10.12)? The bounds come from ki_eval; eval_bound.c states them op by op.
 *
 * For each element, with its bound e:
 *   e infinite      exempt: some comparison, cast or index fell inside its bound. At most 1 % may be
 *   e <= KI_ROUNDED certain: the same bits (any NaN for a NaN). Integers and bools are always so, or exempt
 *   else            |got - want| <= e; infinities equal, NaN for NaN */
#ifndef KI_AGREE_H
#define KI_AGREE_H

#include "ir/uop.h"

typedef struct ki_agreement {
    bool ok; /* nothing wrong, and not too much exempt */
    int64_t n, exempt, wrong;
    int64_t first; /* first wrong element, -1 none; its values and bound: */
    double got, want, bound;
    double worst; /* largest |got - want| / bound among uncertain elements that agree */
} ki_agreement;

/* got, want: n elements in storage form; bound: theirs, NULL: all certain. slack: ulps granted to certain floats that were
 * rounded (0 in this dialect: floats are IEEE; a device that contracts needs 1 or more). Returns r->ok. */
bool ki_agree(kn_dtype t, int64_t n, const void *got, const void *want, const double *bound, int slack,
              ki_agreement *r);

#endif
