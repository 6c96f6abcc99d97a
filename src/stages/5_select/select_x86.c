/* select_x86.c: the last step of select for native targets: each op on data becomes an instruction, by the rule sets of the
 * target's level. What no rule takes is an error that names it. */
#include "stages/5_select/select.h"

#include "rules/rules.h"

#include "rules.h"

#include <string.h>

/* In the order they are asked (select.h). */
static const ki_ruleset *const sse2[] = {&ki_rules_select_x86, &ki_rules_x86_sse2},
                               *const avx2[] = {&ki_rules_select_x86, &ki_rules_x86_avx2},
                               *const avx512[] = {&ki_rules_select_avx512, &ki_rules_select_x86, &ki_rules_x86_avx512};
static const struct {
    const ki_ruleset *const *sets;
    unsigned n;
} levels[] = {{sse2, sizeof sse2 / sizeof *sse2},
              {avx2, sizeof avx2 / sizeof *avx2},
              {avx512, sizeof avx512 / sizeof *avx512},
              {avx512, sizeof avx512 / sizeof *avx512}};

/* Index scalars and truths about them are general registers: their ops stay. */
static bool is_general(kn_uop u) {
    if (ki_rank(u)) return u->dtype == KN_IDX; /* the tail of an address */
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (u->src[k]->dtype == KN_IDX || u->dtype == KN_IDX) return true;
    return u->dtype == KN_BOOL; /* made of other such truths: those of data are instructions */
}

/* A truth that rules may take for a mask: one about data, of any shape, in whatever register it is. */
bool ki_is_masked(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    kn_uop u = v[0].node;
    bool general = ki_rank(u) == 0 && (ki_is_elementwise((kn_op)u->op) || u->op == KN_CONST || u->op == KN_PARAM);
    *out = (ki_val){.kind = KI_V_BOOL, .i = !general};
    return true;
}

static bool is_left(kn_uop u) { return ki_is_elementwise((kn_op)u->op) && !is_general(u); }

static bool refuse(ki_ir *ir, const ki_target *t, kn_uop u) {
    char shape[64];
    ki_fail(ir->env, KI_E_SELECT_NATIVE, ki_ops[u->op].name, ki_dtypes[u->dtype].name,
            ki_shape_text(u->type, shape, sizeof shape), u->nsrc ? ki_dtypes[u->src[0]->dtype].name : "", t->name);
    return false;
}

static bool all_taken(ki_ir *ir, const ki_target *t, kn_uop sink) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    bool ok = n >= 0;
    for (int64_t k = 0; k < n && ok; k++) ok = !is_left(node[k]) || refuse(ir, t, node[k]);
    ki_free(node);
    return ok;
}

/* The kernel's info says what its ops are from now on. */
static kn_uop marked(ki_ir *ir, kn_uop sink) {
    const ki_kernel *old = sink->arg.kernel;
    if (!old) return sink;
    size_t size = sizeof *old + old->nopt * sizeof(ki_opt) + old->len + 1;
    ki_kernel *k = ki_malloc(size);
    if (!k) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    memcpy(k, old, size);
    k->native = 1;
    const void *p = ki_intern(ir, k, size);
    ki_free(k);
    return p ? ki_with_arg(ir, sink, (kn_arg){.p = p}) : NULL;
}

kn_uop ki_select_x86(ki_ir *ir, const ki_target *t, kn_uop sink) {
    ki_rewrite_opts o = {.sets = levels[t->level].sets, .nsets = levels[t->level].n};
    kn_uop s = ki_rewrite(ir, sink, &o);
    return s && all_taken(ir, t, s) ? marked(ir, s) : NULL;
}
