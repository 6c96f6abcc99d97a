/* helpers.h: host functions for rules that need no callback; generated tables name them too. */
#ifndef KI_HELPERS_H
#define KI_HELPERS_H

#include "rules/rules.h"

bool ki_is_pow2(ki_match *m, const ki_val *v, unsigned n, ki_val *out);       /* int: a positive power of two */
bool ki_log2_exact(ki_match *m, const ki_val *v, unsigned n, ki_val *out);    /* int: its exponent */
bool ki_is_loaded(ki_match *m, const ki_val *v, unsigned n, ki_val *out);     /* nodes: none is an INDEX into memory */
bool ki_unpermute(ki_match *m, const ki_val *v, unsigned n, ki_val *out);     /* ints, nodes: in a mapped rest */
bool ki_compose_order(ki_match *m, const ki_val *v, unsigned n, ki_val *out); /* ints, ints: two permutations in one */
bool ki_is_identity(ki_match *m, const ki_val *v, unsigned n, ki_val *out);   /* ints: 0, 1, 2, ... */

#endif
