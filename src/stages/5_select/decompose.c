/* decompose.c: ops the target lacks, written in ops it has, by the rules of decomp.kr. What no rule takes (f64, pow,
 * sin) stays: a C target calls libm for it, lane by lane. */
#include "stages/5_select/select.h"

#include "rules/rules.h"

#include "rules.h"

static kn_uop apply(ki_ir *ir, kn_uop u, const ki_ruleset *set) {
    const ki_ruleset *sets[] = {set};
    ki_rewrite_opts o = {.sets = sets, .nsets = 1, .fp = KI_FP_AFN | KI_FP_CONTRACT};
    return u ? ki_rewrite(ir, u, &o) : NULL;
}

kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink) {
    if (ki_target_has(t, KN_MULACC)) return apply(ir, sink, &ki_rules_decomp);
    kn_uop u = apply(ir, sink, &ki_rules_keep_mulacc);
    u = apply(ir, u, &ki_rules_decomp);
    u = apply(ir, u, &ki_rules_split);
    return apply(ir, u, &ki_rules_back);
}
