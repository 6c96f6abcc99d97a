/* alu.c: elementwise arithmetic on UOps with promotion and broadcasting: what every composition is made of. */
#include "tensor/build.h"

#include <math.h>

kn_uop ki_t_cast(kn_ctx *k, kn_uop x, kn_dtype t) { return ki_cast(&k->ir, x, t); }

kn_uop ki_t_const(kn_ctx *k, kn_dtype t, double v) {
    if (ki_is_float(t)) return ki_const_float(&k->ir, t, v);
    return ki_const_int(&k->ir, t, v >= 9223372036854775808.0 ? (int64_t)(uint64_t)v : (int64_t)v);
}
kn_uop ki_t_lit(kn_ctx *k, kn_uop like, double v) { return like ? ki_t_const(k, (kn_dtype)like->dtype, v) : NULL; }

kn_uop ki_t_full(kn_ctx *k, const ki_shape *s, kn_uop scalar) {
    ki_shape ones = {.n = s->n};
    for (unsigned i = 0; i < s->n; i++) ones.d[i] = (ki_dim){1, NULL};
    return ki_t_expand_to(k, ki_t_reshape_to(k, scalar, &ones), s);
}

kn_uop ki_t_lowest(kn_ctx *k, kn_dtype t) {
    if (t == KN_F8E4M3) return ki_const_float(&k->ir, t, -448); /* it has no infinity */
    if (ki_is_float(t)) return ki_const_float(&k->ir, t, -(double)INFINITY);
    return ki_const_int(&k->ir, t, ki_int_min(t));
}

kn_uop ki_t_truth(kn_ctx *k, kn_uop x) { return !x || x->dtype == KN_BOOL ? x : ki_t_ne(k, x, ki_t_lit(k, x, 0)); }

/* ---- operands ---------------------------------------------------------------------------------------------- */

static bool wrong_dtype(kn_ctx *k, kn_op op, kn_dtype t) {
    const ki_op_info *info = &ki_ops[op];
    const char *want = (info->flags & KI_INT) && ki_is_float(t)          ? "an integer or bool dtype"
                       : (info->flags & KI_NUM) && t == KN_BOOL          ? "a number (for bool: logical_... functions)"
                       : t == KN_VOID || (t == KN_IDX && ki_is_float(t)) ? "a value"
                                                                         : NULL;
    return want && (ki_fail(&k->env, KI_E_FN_DTYPE, k->fn, ki_dtypes[t].name, want), true);
}

kn_uop ki_t_unary(kn_ctx *k, kn_op op, kn_uop x) {
    if (!x) return NULL;
    if (ki_ops[op].flags & KI_FLOAT) x = ki_t_float(k, x);
    if (!x || wrong_dtype(k, op, (kn_dtype)x->dtype)) return NULL;
    return ki_op1(&k->ir, op, x);
}

static bool meet(kn_ctx *k, kn_uop *a, kn_uop *b) {
    if (!*a || !*b) return false;
    if ((*a)->dtype != (*b)->dtype) {
        kn_dtype t = ki_promote((kn_dtype)(*a)->dtype, (kn_dtype)(*b)->dtype);
        *a = ki_t_cast(k, *a, t);
        *b = ki_t_cast(k, *b, t);
    }
    return ki_broadcast(k, a, b);
}

kn_uop ki_t_binary(kn_ctx *k, kn_op op, kn_uop a, kn_uop b) {
    if (!meet(k, &a, &b)) return NULL;
    if (ki_ops[op].flags & KI_FLOAT) a = ki_t_float(k, a), b = ki_t_float(k, b);
    if (!a || !b || wrong_dtype(k, op, (kn_dtype)a->dtype)) return NULL;
    return ki_op2(&k->ir, op, a, b);
}

kn_uop ki_t_where(kn_ctx *k, kn_uop p, kn_uop a, kn_uop b) {
    p = ki_t_truth(k, p);
    if (!meet(k, &a, &b) || !ki_broadcast(k, &p, &a) || !ki_broadcast(k, &p, &b) || !ki_broadcast(k, &a, &b))
        return NULL;
    return ki_op3(&k->ir, KN_WHERE, p, a, b);
}

/* ---- named ------------------------------------------------------------------------------------------------- */

kn_uop ki_t_add(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_ADD, a, b); }
kn_uop ki_t_sub(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_SUB, a, b); }
kn_uop ki_t_mul(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_MUL, a, b); }
kn_uop ki_t_div(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_DIV, a, b); }
kn_uop ki_t_max(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_MAX, a, b); }
kn_uop ki_t_lt(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPLT, a, b); }
kn_uop ki_t_gt(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPGT, a, b); }
kn_uop ki_t_le(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPLE, a, b); }
kn_uop ki_t_ge(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPGE, a, b); }
kn_uop ki_t_eq(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPEQ, a, b); }
kn_uop ki_t_ne(kn_ctx *k, kn_uop a, kn_uop b) { return ki_t_binary(k, KN_CMPNE, a, b); }

/* Floats: -max(-a, -b), which keeps NaN and gives -0.0 for (-0.0, 0.0). Integers: exact even at the least one. */
kn_uop ki_t_min(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!meet(k, &a, &b)) return NULL;
    if (ki_is_float((kn_dtype)a->dtype)) return ki_t_neg(k, ki_t_max(k, ki_t_neg(k, a), ki_t_neg(k, b)));
    if (a->dtype == KN_BOOL) return ki_t_mul(k, a, b);
    return ki_t_where(k, ki_t_lt(k, a, b), a, b);
}

kn_uop ki_t_clamp(kn_ctx *k, kn_uop x, double lo, double hi) {
    return ki_t_min(k, ki_t_max(k, x, ki_t_lit(k, x, lo)), ki_t_lit(k, x, hi));
}
