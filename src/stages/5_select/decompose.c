/* decompose.c: ops the target lacks, written in ops it has, by the rules of decomp.kr, math32.kr and math64.kr. What no
 * rule takes stays: a C target calls libm for it, lane by lane. */
#include "stages/5_select/select.h"

#include "base/cpuid.h"
#include "rules/rules.h"

#include "rules.h"

static kn_uop apply(ki_ir *ir, kn_uop u, const ki_ruleset *const *sets, unsigned n) {
    ki_rewrite_opts o = {.sets = sets, .nsets = n, .fp = KI_FP_AFN | KI_FP_CONTRACT};
    return u ? ki_rewrite(ir, u, &o) : NULL;
}

kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink) {
    static const ki_ruleset *const keep[] = {&ki_rules_keep_mulacc}, *const split[] = {&ki_rules_split},
                                   *const back[] = {&ki_rules_back},
                                   *const before[] = {&ki_rules_near32, &ki_rules_gelu32};
    bool native = t->native, wide = native && t->level >= KI_CPU_AVX512_LEVEL;
    const ki_ruleset *functions[8] = {&ki_rules_decomp};
    unsigned n = 1;
    if (wide) functions[n++] = &ki_rules_scale32;
    functions[n++] = &ki_rules_math32;
    /* Many shifts and long products for two or four lanes: with short vectors libm is faster. */
    if (!t->libm || t->vector >= 32) {
        functions[n++] = &ki_rules_pow32;
        functions[n++] = &ki_rules_trig32;
        functions[n++] = &ki_rules_math64;
        functions[n++] = &ki_rules_pow64;
        functions[n++] = &ki_rules_trig64;
    }
    if (native && t->level >= KI_CPU_AVX2_LEVEL) sink = apply(ir, sink, before, wide ? 2 : 1);
    if (ki_target_has(t, KN_MULACC)) return apply(ir, sink, functions, n);
    kn_uop u = apply(ir, sink, keep, 1);
    u = apply(ir, u, functions, n);
    u = apply(ir, u, split, 1);
    return apply(ir, u, back, 1);
}
