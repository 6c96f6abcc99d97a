/* prove_ulps.h: what is promised of the functions that rules write out, and of what they write out as a whole. Private to the prover. */
#ifndef KI_PROVE_ULPS_H
#define KI_PROVE_ULPS_H

#include "rules/rules.h"

/* Expressions of f32: 1 + erf(x / sqrt 2), whose error is counted in units of 2^-24, and gelu as a product in three orders, in units of |x| / 2 times that. */
enum { KI_WHOLES = 4 };
typedef struct ki_promise ki_promise;

const ki_promise *ki_promise_of(kn_op op);        /* NULL: none */
const ki_promise *ki_promise_of_whole(unsigned k); /* the k-th */
const char *ki_promise_name(const ki_promise *p);
kn_uop ki_whole_of(ki_ir *ir, unsigned k, kn_uop x);
/* How many units in the last place a result may be off, with mulacc fused or not; 0: nothing is promised. */
double ki_ulps_promised(const ki_promise *p, kn_dtype t, bool fused);
/* How many it is; in: the bits of its arguments. Infinite: another NaN, infinity, zero or sign (signless: but that of a zero whose argument is none). */
double ki_ulps_off(const ki_promise *p, kn_dtype t, const uint64_t *in, uint64_t got, bool signless);

#endif
