/* simplify.c: the rule sets rangeify runs, in one place. */
#include "stages/2_rangeify/rangeify.h"

#include <rules.h>

kn_uop ki_range_simplify(rangeifier *r, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates, &ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod,
                                             &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .memo = &r->memo};
    return u ? ki_rewrite(r->ir, u, &o) : NULL;
}

kn_uop ki_range_fold(ki_ir *ir, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates,  &ki_rules_symbolic, &ki_rules_bool,
                                             &ki_rules_divmod, &ki_rules_float,    &ki_rules_fold};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT};
    return u ? ki_rewrite(ir, u, &o) : NULL;
}

kn_uop ki_range_prepare(ki_ir *ir, kn_uop tuple) {
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod, &ki_rules_float,
                                             &ki_rules_prepare};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT};
    return ki_rewrite(ir, tuple, &o);
}
