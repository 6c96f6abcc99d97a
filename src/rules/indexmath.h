/* indexmath.h: linear forms over `index`, and the host functions of divmod.kr that rest on them. */
#ifndef KI_INDEXMATH_H
#define KI_INDEXMATH_H

#include "rules/rules.h"

enum { KI_MAX_TERMS = 48 };

/* k + Σ coef·term, terms ascending by id, no zero coefficient, no term that is itself a sum, difference or multiple. */
typedef struct ki_linear {
    int64_t k;
    unsigned n;
    int64_t coef[KI_MAX_TERMS];
    kn_uop term[KI_MAX_TERMS];
} ki_linear;

/* False: more terms than fit, or a coefficient overflows. */
bool ki_linear_of(kn_uop u, ki_linear *out);
kn_uop ki_linear_uop(ki_ir *ir, const ki_linear *l);
/* Exact bounds of the form, from those of its terms; infinities as INT64_MIN and INT64_MAX. */
void ki_linear_bounds(const ki_linear *l, int64_t *lo, int64_t *hi);

struct ki_facts;
/* Narrows [lo, hi], bounds of l, by what the facts say. */
void ki_facts_tighten(const struct ki_facts *f, const ki_linear *l, int64_t *lo, int64_t *hi);
/* l = q·c + r with r inside one period of c, so that l / c = q and l % c = r; false if no choice of remainders does it.
 * sign: take the remainder of each coefficient nearest to zero instead of the non-negative one. facts may be NULL. */
bool ki_one_period(const ki_linear *l, int64_t c, bool sign, const struct ki_facts *facts, ki_linear *q, ki_linear *r);

kn_uop ki_index_sum(ki_match *m);  /* x + y: canonical order, like terms joined, x % c + x / c * c joined */
kn_uop ki_index_div(ki_match *m);  /* (sum) / c */
kn_uop ki_index_mod(ki_match *m);  /* (sum) % c */
kn_uop ki_index_lt(ki_match *m);   /* x < y as Σ coef·term < c */

#endif
