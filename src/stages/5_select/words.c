/* words.c: a word of 32 bits put together of elements that lie beside each other in memory (3_optimize/dots.c) is read at once, in
 * each lane:
 *
 *   cast(bitcast(load(index(p, i)); u16); u32) | cast(bitcast(load(index(p, i + 1)); u16); u32) << 16
 *     =>  index(bitcast(load(index(p, i + (0, 1))); u32), 0)
 *   the same of lanes   =>  bitcast(load(index(p, i + (lane 0, lane 0 + 1, lane 1, ...))); u32) */
#include "base/cpuid.h"
#include "rules/rules.h"
#include "stages/5_select/select.h"

#include "rules.h"

enum { PARTS = 4, LANES = 16 };

typedef struct part {
    kn_uop load, base; /* base: of the address, without constants; NULL none */
    int64_t at[LANES]; /* beside the base, by lane */
    uint32_t lanes;
} part;

/* index as base + constants. */
static bool split(kn_uop index, part *p) {
    kn_uop list = ki_rank(index) ? index : NULL, base = list ? NULL : index;
    if (list && list->op == KN_ADD) base = list->src[0], list = list->src[1];
    p->lanes = list ? list->nsrc : 1;
    if ((list && list->op != KN_STACK) || p->lanes > LANES || (base && ki_rank(base))) return false;
    for (uint32_t k = 0; k < p->lanes; k++) {
        if (list && !ki_is_const(list->src[k])) return false;
        p->at[k] = list ? list->src[k]->arg.i : 0;
    }
    while (base && base->op == KN_ADD && ki_is_const(base->src[1])) {
        for (uint32_t k = 0; k < p->lanes; k++) p->at[k] += base->src[1]->arg.i;
        base = base->src[0];
    }
    p->base = base;
    return true;
}

/* The elements of a word, the lowest first; their number, 0: it is no such word. */
static uint32_t parts_of(kn_uop word, part *list) {
    struct {
        kn_uop u;
        int64_t by;
    } stack[8] = {{word, 0}};
    uint32_t n = 0, bits = 0;
    for (uint32_t depth = 1; depth--;) {
        kn_uop u = stack[depth].u;
        int64_t by = stack[depth].by;
        if (u->op == KN_OR && depth + 2 <= 8) {
            stack[depth].u = u->src[1];
            stack[depth + 1].u = u->src[0], stack[depth + 1].by = by;
            depth += 2;
            continue;
        }
        if (u->op == KN_SHL && ki_is_const(u->src[1])) {
            stack[depth++].u = u->src[0];
            stack[depth - 1].by = by + u->src[1]->arg.i;
            continue;
        }
        kn_uop e = u->op == KN_CAST ? u->src[0] : NULL;
        if (e && e->op == KN_BITCAST) e = e->src[0];
        bool plain = e && e->op == KN_LOAD && e->nsrc == 1 && e->src[0]->op == KN_INDEX &&
                     ki_is_uint((kn_dtype)u->src[0]->dtype);
        if (!plain || n == PARTS || by != bits || e->src[0]->nsrc != 2 || !split(e->src[0]->src[1], &list[n])) return 0;
        list[n++].load = e;
        bits += ki_dtypes[e->dtype].bits;
    }
    return bits == 32 ? n : 0;
}

kn_uop ki_read_word(ki_match *m) {
    ki_ir *ir = m->ir;
    part p[PARTS];
    uint32_t n = parts_of(m->root, p), lanes = n ? p[0].lanes : 0;
    kn_uop at[LANES * PARTS];
    for (uint32_t k = 0; k < n; k++) {
        if (p[k].load->src[0]->src[0] != p[0].load->src[0]->src[0] || p[k].base != p[0].base || p[k].lanes != lanes)
            return NULL;
        for (uint32_t j = 0; j < lanes; j++) {
            if (p[k].at[j] != p[0].at[j] + k) return NULL;
            at[j * n + k] = ki_index(ir, lanes == 1 ? k : p[k].at[j]);
        }
    }
    if (!n) return NULL;
    kn_uop list = ki_opn(ir, KN_STACK, at, lanes * n), base = p[0].base;
    if (lanes == 1 && p[0].at[0])
        base = base ? ki_op2(ir, KN_ADD, base, ki_index(ir, p[0].at[0])) : ki_index(ir, p[0].at[0]);
    if (base) list = ki_op2(ir, KN_ADD, base, list);
    kn_uop bits = ki_bitcast(ir, ki_op1(ir, KN_LOAD, ki_op2(ir, KN_INDEX, p[0].load->src[0]->src[0], list)), KN_U32);
    return ki_rank(m->root) ? bits : ki_op2(ir, KN_INDEX, bits, ki_index(ir, 0));
}

kn_uop ki_read_words(ki_ir *ir, const ki_target *t, kn_uop sink) {
    static const ki_ruleset *const sets[] = {&ki_rules_words};
    return !sink || t->level < KI_CPU_DOT_LEVEL ? sink
                                                : ki_rewrite(ir, sink, &(ki_rewrite_opts){.sets = sets, .nsets = 1});
}
