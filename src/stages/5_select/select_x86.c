/* select_x86.c: the last step of select for native targets: each op on data becomes an instruction, by the rule sets of the
 * target's level. What no rule takes is an error that names it. */
#include "stages/5_select/select.h"

#include "base/cpuid.h"
#include "rules/rules.h"

#include "rules.h"

#include <string.h>

/* In the order they are asked (select.h). */
static const ki_ruleset *const sse2[] = {&ki_rules_select_sse2, &ki_rules_select_narrow, &ki_rules_x86_sse2},
                               *const avx2[] = {&ki_rules_select_avx2, &ki_rules_select_narrow, &ki_rules_x86_avx2,
                                                &ki_rules_x86_sse2},
                               *const avx512[] = {&ki_rules_select_avx512, &ki_rules_x86_avx512, &ki_rules_x86_avx2,
                                                  &ki_rules_x86_sse2},
                               *const fp16[] = {&ki_rules_select_avx512, &ki_rules_x86_fp16, &ki_rules_x86_avx512,
                                                &ki_rules_x86_avx2, &ki_rules_x86_sse2};
static const struct {
    const ki_ruleset *const *sets;
    unsigned n;
} levels[] = {{sse2, sizeof sse2 / sizeof *sse2},       {avx2, sizeof avx2 / sizeof *avx2},
              {avx512, sizeof avx512 / sizeof *avx512}, {avx512, sizeof avx512 / sizeof *avx512},
              {fp16, sizeof fp16 / sizeof *fp16},       {fp16, sizeof fp16 / sizeof *fp16}};

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

/* The constant 0, of any shape. */
bool ki_is_zero(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    kn_uop c = ki_peel_const(v[0].node);
    *out = (ki_val){.kind = KI_V_BOOL, .i = c && !ki_is_float((kn_dtype)c->dtype) && c->arg.i == 0};
    return true;
}

static bool is_word(kn_uop u) { return ki_is_uint((kn_dtype)u->dtype) || ki_is_sint((kn_dtype)u->dtype); }

/* Below AVX-512: what masks.c and select_narrow leave. Signs, lanes that halve or (SSE2) double, bytes that are truths. */
static bool is_left_narrow(const ki_target *t, kn_uop u) {
    kn_uop s = u->src[0];
    if (u->op == KN_CMPLT) return !(ki_is_sint((kn_dtype)s->dtype) && ki_is_const(u->src[1]) && u->src[1]->arg.i == 0);
    if (u->op != KN_CAST) return true;
    if (s->dtype == KN_BOOL) return !(u->dtype == KN_I8 && s->op == KN_LOAD);
    if (u->dtype == KN_BOOL) return s->dtype != KN_U8;
    unsigned from = ki_dtypes[s->dtype].bits, to = ki_dtypes[u->dtype].bits;
    return !is_word(u) || !is_word(s) || !(from == 2 * to || (to == 2 * from && t->level == KI_CPU_SSE2_LEVEL));
}

static bool is_left(const ki_target *t, kn_uop u) {
    if (u->op == KN_CUSTOM) return true; /* C text */
    if (!ki_is_elementwise((kn_op)u->op) || is_general(u)) return false;
    return t->level >= KI_CPU_AVX512_LEVEL || is_left_narrow(t, u);
}

/* A vector of more than a register. */
static bool is_wide(const ki_target *t, kn_uop u) {
    if (!ki_rank(u) || u->dtype == KN_IDX || u->dtype == KN_BOOL || u->dtype == KN_VOID) return false;
    bool value = u->op == KN_INS || u->op == KN_LOAD || u->op == KN_BITCAST || ki_is_elementwise((kn_op)u->op);
    uint64_t bytes = (uint64_t)ki_numel(u) * ki_itemsize((kn_dtype)u->dtype);
    return value && bytes > t->vector && !(t->level >= KI_CPU_AMX_LEVEL && bytes == 1024); /* a tile */
}

static bool refuse(ki_ir *ir, const ki_target *t, kn_uop u) {
    char shape[64];
    ki_fail(ir->env, KI_E_SELECT_NATIVE, ki_ops[u->op].name, ki_dtypes[u->dtype].name,
            ki_shape_text(u->type, shape, sizeof shape), u->nsrc ? ki_dtypes[u->src[0]->dtype].name : "", t->name);
    return false;
}

/* The oldest that was not taken is named. */
static bool all_taken(ki_ir *ir, const ki_target *t, kn_uop sink) {
    const kn_uop *node;
    kn_uop left = NULL;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    for (int64_t k = 0; k < n; k++)
        if ((is_left(t, node[k]) || is_wide(t, node[k])) && (!left || node[k]->id < left->id)) left = node[k];
    return n >= 0 && (!left || refuse(ir, t, left));
}

/* The kernel's info says what its ops are from now on. */
static kn_uop marked(ki_ir *ir, const ki_target *t, kn_uop sink) {
    const ki_kernel *old = sink->arg.kernel;
    if (!old) return sink;
    size_t size = sizeof *old + old->nopt * sizeof(ki_opt) + old->len + 1;
    ki_kernel *k = ki_malloc(size);
    if (!k) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    memcpy(k, old, size);
    k->native = 1u + t->level;
    const void *p = ki_intern(ir, k, size);
    ki_free(k);
    return p ? ki_with_arg(ir, sink, (kn_arg){.p = p}) : NULL;
}

kn_uop ki_select_x86(ki_ir *ir, const ki_target *t, kn_uop sink) {
    ki_rewrite_opts o = {.sets = levels[t->level].sets, .nsets = levels[t->level].n};
    if (t->level < KI_CPU_AVX512_LEVEL) sink = ki_masks_as_signs(ir, sink);
    kn_uop s = sink ? ki_rewrite(ir, sink, &o) : NULL;
    return s && all_taken(ir, t, s) ? marked(ir, t, s) : NULL;
}
