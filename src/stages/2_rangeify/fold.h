/* fold.h: host functions of fold.kr. */
#ifndef KI_FOLD_H
#define KI_FOLD_H

#include "rules/rules.h"

/* Does x mention range r? */
bool ki_depends(ki_ir *ir, kn_uop x, kn_uop r);

bool ki_fold_has_unused(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_fold_uses_all(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_fold_is_zero(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
kn_uop ki_fold_shorter(ki_match *m);
kn_uop ki_fold_unused(ki_match *m);
kn_uop ki_fold_count(ki_match *m);
kn_uop ki_fold_one_hot(ki_match *m);

#endif
