/* prove_ulps.h: what is promised of the functions that rules write out. Private to the prover. */
#ifndef KI_PROVE_ULPS_H
#define KI_PROVE_ULPS_H

#include "rules/rules.h"

/* How many units in the last place a result of op may be off, with mulacc fused or not; 0: nothing is promised. */
double ki_ulps_promised(kn_op op, kn_dtype t, bool fused);
/* How many it is; in: the bits of its sources. Infinite: another NaN, infinity, zero or sign. */
double ki_ulps_off(kn_op op, kn_dtype t, const uint64_t *in, uint64_t got);

#endif
