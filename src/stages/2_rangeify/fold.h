/* fold.h: host functions of fold.kr. */
#ifndef KI_FOLD_H
#define KI_FOLD_H

#include "rules/rules.h"

/* A conjunction split by a range: bounds of the range, the value it must equal, and what does not mention it. */
typedef struct ki_solved {
    kn_uop lower, upper; /* lower <= r < upper; NULL: none */
    kn_uop equal;
    kn_uop rest; /* NULL: true */
    bool other;  /* mentions r in another way */
} ki_solved;

/* False when some part mentions r in a way that is not understood. */
bool ki_solve(ki_ir *ir, kn_uop cond, kn_uop r, ki_solved *s);
/* Whether s->equal is a value of r that the bounds allow. */
kn_uop ki_solved_in(ki_ir *ir, const ki_solved *s, kn_uop r);

bool ki_fold_has_unused(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_fold_uses_all(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_fold_is_zero(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
kn_uop ki_fold_shorter(ki_match *m);
kn_uop ki_fold_unused(ki_match *m);
kn_uop ki_fold_count(ki_match *m);
kn_uop ki_fold_one_hot(ki_match *m);

#endif
