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

enum { OFTEN = 2, READ = 3, ACROSS = 4 };

/* By id: how often a node is read, OFTEN: more than once; of a BUFFER ACROSS, too: what it holds is added up, lane by lane. */
typedef struct readers {
    uint32_t n;
    uint8_t *of;
} readers;

/* What a LOAD reads; NULL: u is none. */
static kn_uop buffer_of(kn_uop u) {
    kn_uop from = u->op == KN_LOAD ? u->src[0] : NULL;
    while (from && from->nsrc && from->op != KN_BUFFER) from = from->src[0];
    return from && from->op == KN_BUFFER ? from : NULL;
}

static bool is_read_once(const readers *r, kn_uop u) { return u->id < r->n && (r->of[u->id] & READ) == 1; }

/* (s, x): s are sums in registers that a loop carries and that are added up at its end, and nothing but the rule's sum reads e^x, as far as
 * anyone counted. Which sums have such lanes does not hang on the number of threads (3_optimize/orders.c); whether rows are added one by
 * one, by a loop in registers or in memory, does. */
bool ki_is_added_only(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    const readers *r = m->user;
    kn_uop s = v[0].node, e = m->root->src[m->root->src[0] == s], from = buffer_of(s);
    (void)n;
    kn_uop power = e->op == KN_WHERE ? e->src[e->src[1]->op == KN_EXP ? 1 : 2] : e;
    bool carried = r->of && from && from->arg.buffer->addrspace == KN_REG && r->of[from->id] & ACROSS;
    *out = (ki_val){.kind = KI_V_BOOL, .i = !r->of || (carried && is_read_once(r, e) && is_read_once(r, power))};
    return true;
}

static void count_readers(const readers *r, kn_uop u) {
    for (uint32_t j = 0; j < u->nsrc; j++) r->of[u->src[j]->id] += (r->of[u->src[j]->id] & READ) < OFTEN;
    kn_uop from = u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD ? buffer_of(u->src[0]) : NULL;
    if (from) r->of[from->id] |= ACROSS;
}

/* Powers that are added to a sum, and read by nothing else, have rules of their own. */
static kn_uop add_powers(ki_ir *ir, kn_uop sink) {
    static const ki_ruleset *const sets[] = {&ki_rules_gated, &ki_rules_added32};
    kn_uop *node;
    int64_t count = sink ? ki_toposort(ir, &sink, 1, &node) : -1;
    if (count < 0) return NULL;
    bool any = false;
    for (int64_t i = 0; i < count && !any; i++) any = node[i]->op == KN_EXP;
    readers r = {.n = ir->n, .of = any ? ki_calloc(ir->n, 1) : NULL};
    for (int64_t i = 0; i < count && r.of; i++) count_readers(&r, node[i]);
    ki_free(node);
    if (!any) return sink;
    ki_rewrite_opts o = {.sets = sets, .nsets = 2, .fp = KI_FP_AFN | KI_FP_CONTRACT, .user = &r};
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
