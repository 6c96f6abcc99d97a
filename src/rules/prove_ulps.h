/* prove_ulps.h: what is promised of the functions that rules write out, of gelu, which they write out as a whole, and of a sum that takes up a power.
 * Private to the prover. */
#ifndef KI_PROVE_ULPS_H
#define KI_PROVE_ULPS_H

#include "rules/rules.h"

typedef struct ki_promise ki_promise;

const ki_promise *ki_promise_of(kn_op op, kn_dtype t); /* NULL: none */
const ki_promise *ki_promise_of_whole(unsigned order);
const char *ki_promise_name(const ki_promise *p);
/* gelu(x), f32, its factors in one of three orders; s + e^x. */
enum { KI_SUM_OF_POWER = 3, KI_WHOLES };
kn_uop ki_whole_of(ki_ir *ir, unsigned order, kn_uop x, kn_uop s);
/* How many units in the last place a result may be off, with mulacc fused or not; 0: nothing is promised. A gelu's unit is 2^-25 |x|, at least 2^-149. */
double ki_ulps_promised(const ki_promise *p, kn_dtype t, bool fused);
/* How many it is; in: the bits of its arguments. Infinite: another NaN, infinity, zero or sign. */
double ki_ulps_off(const ki_promise *p, kn_dtype t, const uint64_t *in, uint64_t got);

#endif
