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

/* By id: how often nodes are read. */
typedef struct readers {
    uint32_t n;
    uint8_t *of; /* 2: more than once */
} readers;

/* (s, x): s is what a loop carries in registers, and nothing but the rule's sum reads e^x, as far as anyone counted. */
bool ki_is_added_only(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    const readers *r = m->user;
    kn_uop s = v[0].node, e = m->root->src[m->root->src[0] == s], from = s->op == KN_LOAD ? s->src[0] : NULL;
    (void)n;
    while (from && from->nsrc && from->op != KN_BUFFER) from = from->src[0];
    bool carried = from && from->op == KN_BUFFER && from->arg.buffer->addrspace == KN_REG;
    *out = (ki_val){.kind = KI_V_BOOL, .i = !r->of || (carried && e->id < r->n && r->of[e->id] == 1)};
    return true;
}

/* Powers that are added to a sum, and read by nothing else, have rules of their own. */
static kn_uop add_powers(ki_ir *ir, kn_uop sink) {
    static const ki_ruleset *const sets[] = {&ki_rules_added32};
    kn_uop *node;
    int64_t count = sink ? ki_toposort(ir, &sink, 1, &node) : -1;
    if (count < 0) return NULL;
    bool any = false;
    for (int64_t i = 0; i < count && !any; i++) any = node[i]->op == KN_EXP;
    readers r = {.n = ir->n, .of = any ? ki_calloc(ir->n, 1) : NULL};
    for (int64_t i = 0; i < count && r.of; i++)
        for (uint32_t j = 0; j < node[i]->nsrc; j++) r.of[node[i]->src[j]->id] += r.of[node[i]->src[j]->id] < 2;
    ki_free(node);
    if (!any) return sink;
    ki_rewrite_opts o = {.sets = sets, .nsets = 1, .fp = KI_FP_AFN | KI_FP_CONTRACT, .user = &r};
    kn_uop u = r.of ? ki_rewrite(ir, sink, &o) : (ki_fail(ir->env, KI_E_NOMEM), NULL);
    ki_free(r.of);
    return u;
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
    if (wide) sink = add_powers(ir, sink);
    if (ki_target_has(t, KN_MULACC)) return apply(ir, sink, functions, n);
    kn_uop u = apply(ir, sink, keep, 1);
    u = apply(ir, u, functions, n);
    u = apply(ir, u, split, 1);
    return apply(ir, u, back, 1);
}
