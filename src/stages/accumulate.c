/* accumulate.c: see accumulate.h. Rows (3_optimize/rows.c) and loops (4_expand/reduce.c) go by it alike, so that a sum is the same to the last bit whichever of
 * them the number of threads leaves. A condition that all places of a loop meet is none, so what it chooses is added as it is without. */
#include "stages/accumulate.h"

/* Of a product's factors, or of their factors: a constant, and 1 + erf. */
static void note_factor(kn_uop f, bool *half, bool *erf) {
    *half |= ki_is_const(f);
    *erf |= f->op == KN_ADD && (f->src[0]->op == KN_ERF || f->src[1]->op == KN_ERF);
}

/* x (1 + erf(x / sqrt 2)) / 2 is a function of its own (gelu32, math32.kr), the first of several rows as well as the others. */
static bool is_gelu(kn_uop v) {
    bool half = false, erf = false;
    for (uint32_t k = 0; k < 2; k++) {
        kn_uop f = v->src[k];
        note_factor(f, &half, &erf);
        for (uint32_t j = 0; j < 2 && f->op == KN_MUL; j++) note_factor(f->src[j], &half, &erf);
    }
    return half && erf;
}

static kn_uop with_product(ki_ir *ir, kn_uop old, kn_uop v) {
    if (v->op == KN_MUL && !is_gelu(v)) return ki_op3(ir, KN_MULACC, v->src[0], v->src[1], old);
    return ki_is_minus_zero(v) ? old : ki_op2(ir, KN_ADD, old, v);
}

kn_uop ki_accumulate(ki_ir *ir, bool contract, kn_op op, kn_uop old, kn_uop v) {
    if (!contract || op != KN_ADD || (v->dtype != KN_F32 && v->dtype != KN_F64)) return ki_op2(ir, op, old, v);
    if (v->op == KN_MUL) return with_product(ir, old, v);
    if (v->op != KN_WHERE || (v->src[1]->op != KN_MUL && v->src[2]->op != KN_MUL)) return ki_op2(ir, op, old, v);
    return ki_op3(ir, KN_WHERE, v->src[0], with_product(ir, old, v->src[1]), with_product(ir, old, v->src[2]));
}
