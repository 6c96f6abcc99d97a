/* given.h: simplification under a condition: what a conjunction of comparisons says of linear forms. */
#ifndef KI_GIVEN_H
#define KI_GIVEN_H

#include "rules/indexmath.h"

enum { KI_MAX_FACTS = 16 };

/* form[i] (its constant is 0) is at most hi[i]. */
typedef struct ki_facts {
    unsigned n;
    ki_linear form[KI_MAX_FACTS];
    int64_t hi[KI_MAX_FACTS];
} ki_facts;

/* Parts of a conjunction, oldest first, each once; part has room for KI_MAX_TERMS. 0: too many. */
unsigned ki_conjuncts(kn_uop c, kn_uop *part);

kn_uop ki_given_div(ki_match *m);
kn_uop ki_given_mod(ki_match *m);
kn_uop ki_given_lt(ki_match *m);

kn_uop ki_conjunction(ki_match *m); /* a & b & ...: by age, each once, none that the others imply */
kn_uop ki_gate_reads(ki_match *m);  /* where(c, x, z): the gated reads of x under c */
kn_uop ki_given_index(ki_match *m); /* where(c, i, invalid): i under c */

#endif
