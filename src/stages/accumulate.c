/* accumulate.c: see accumulate.h. Rows (3_optimize/rows.c) and loops (4_expand/reduce.c) go by it alike, so that a sum is the same to the last bit whichever of
 * them the number of threads leaves. A condition that all places of a loop meet is none, so what it chooses is added as it is without. */
#include "stages/accumulate.h"

#include "ir/scalar.h"

/* A dot product added to nothing (3_optimize/dots.c): its instruction adds it to the accumulator. */
static bool is_dot(kn_uop v) {
    if (v->op != KN_INS || v->nsrc != 3 || !ki_is_const(v->src[0])) return false;
    return v->src[0]->arg.bits == ki_scalar_identity(KN_ADD, (kn_dtype)v->dtype, true);
}

/* Of a product's factors, or of their factors: a constant, and 1 + erf. */
static void note_factor(kn_uop f, bool *half, bool *erf) {
    *half |= ki_is_const(f);
    *erf |= f->op == KN_ADD && (f->src[0]->op == KN_ERF || f->src[1]->op == KN_ERF);
}

/* Of f32 or f64, but no x (1 + erf(x / sqrt 2)) / 2, which is a function of its own (gelu32, math32.kr), in the first of several rows as well as in the others. */
static bool is_product(kn_uop v) {
    bool half = false, erf = false;
    if (v->op != KN_MUL || (v->dtype != KN_F32 && v->dtype != KN_F64)) return false;
    for (uint32_t k = 0; k < 2; k++) {
        kn_uop f = v->src[k];
        note_factor(f, &half, &erf);
        for (uint32_t j = 0; j < 2 && f->op == KN_MUL; j++) note_factor(f->src[j], &half, &erf);
    }
    return !half || !erf;
}

kn_uop ki_accumulate(ki_ir *ir, bool contract, kn_op op, kn_uop old, kn_uop v) {
    contract &= op == KN_ADD;
    bool chosen = contract && v->op == KN_WHERE && (is_product(v->src[1]) || is_product(v->src[2]));
    kn_uop term[2] = {chosen ? v->src[1] : v, chosen ? v->src[2] : NULL}, sum[2];
    if (op == KN_ADD && is_dot(v)) return ki_with_src(ir, v, (kn_uop[]){old, v->src[1], v->src[2]});
    for (uint32_t k = 0; k < 1u + chosen; k++)
        sum[k] = contract && is_product(term[k])       ? ki_op3(ir, KN_MULACC, term[k]->src[0], term[k]->src[1], old)
                 : chosen && ki_is_minus_zero(term[k]) ? old
                                                       : ki_op2(ir, op, old, term[k]);
    return chosen ? ki_op3(ir, KN_WHERE, v->src[0], sum[0], sum[1]) : sum[0];
}
