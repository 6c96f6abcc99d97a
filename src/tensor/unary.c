/* unary.c: functions of one operand: the rows of unary.def as functions on UOps and as public calls. */
#include "tensor/build.h"

#include <math.h>

#define L(v) lit(k, x, v)

/* ---- the longer ones --------------------------------------------------------------------------------------- */

/* -|x| with derivative -1 at 0 from the side of x >= 0. */
static kn_uop minus_abs(kn_ctx *k, kn_uop x) { return u_where(k, u_lt(k, x, L(0)), x, u_neg(k, x)); }

/* 2 t / (1 - t) with t = tanh(x/2) keeps the small digits; away from 0 the plain form does. */
static kn_uop expm1_of(kn_ctx *k, kn_uop x) {
    kn_uop near = u_lt(k, u_abs(k, x), L(0.5)), t = u_tanh(k, u_mul(k, u_where(k, near, x, L(0)), L(0.5)));
    return u_where(k, near, u_div(k, u_add(k, t, t), u_sub(k, L(1), t)), u_sub(k, u_exp(k, x), L(1)));
}

/* log(u) + (x - (u - 1)) / u with u = 1 + x: the second term is what the sum lost; its derivative is 0. */
static kn_uop log1p_of(kn_ctx *k, kn_uop x) {
    kn_uop u = u_add(k, L(1), x), lost = u_sub(k, x, u_sub(k, u, L(1)));
    kn_uop inside = u1(k, KN_NOT, u2(k, KN_OR, u_eq(k, u, L(0)), u_isinf(k, u)));
    return u_add(k, u_log(k, u), u_where(k, inside, u_div(k, lost, u_where(k, inside, u, L(1))), L(0)));
}

static kn_uop sinh_of(kn_ctx *k, kn_uop x) {
    kn_uop far = u_gt(k, u_abs(k, x), L(1)), t = u_expm1(k, u_where(k, far, L(0), x));
    kn_uop small = u_mul(k, L(0.5), u_add(k, t, u_div(k, t, u_add(k, t, L(1)))));
    kn_uop large = u_sub(k, u_mul(k, L(0.5), u_exp(k, x)), u_mul(k, L(0.5), u_exp(k, u_neg(k, x))));
    return u_where(k, far, large, small);
}

static kn_uop asinh_of(kn_ctx *k, kn_uop x) {
    kn_uop a = u_neg(k, minus_abs(k, x)), big = u_gt(k, a, L(1e4)), s = u_where(k, big, L(1), a), q = u_mul(k, s, s);
    kn_uop small = u_log1p(k, u_add(k, s, u_div(k, q, u_add(k, L(1), u_sqrt(k, u_add(k, L(1), q))))));
    kn_uop r = u_where(k, big, u_add(k, u_log(k, a), L(0.69314718055994530942)), small);
    return u_where(k, u_lt(k, x, L(0)), u_neg(k, r), r);
}

/* |x| > 1 by pi/2 - atan(1/|x|); then atan(y) = 2 atan(y / (1 + sqrt(1 + y^2))) three times, which leaves
 * y <= tan(pi/32), where the odd series ends after nine terms. */
static kn_uop atan_of(kn_ctx *k, kn_uop x) {
    kn_uop a = u_neg(k, minus_abs(k, x)), big = u_gt(k, a, L(1)), y = u_where(k, big, u_recip(k, u_where(k, big, a, L(1))), a);
    for (int i = 0; i < 3; i++) y = u_div(k, y, u_add(k, L(1), u_sqrt(k, u_add(k, L(1), u_mul(k, y, y)))));
    kn_uop q = u_mul(k, y, y), p = L(1.0 / 17);
    for (int n = 15; n >= 1; n -= 2) p = u_sub(k, L(1.0 / n), u_mul(k, q, p));
    kn_uop r = u_mul(k, L(8), u_mul(k, y, p));
    r = u_where(k, big, u_sub(k, L(1.57079632679489661923), r), r);
    return u_where(k, u_lt(k, x, L(0)), u_neg(k, r), u_where(k, u_eq(k, x, L(0)), x, r));
}

static kn_uop floor_of(kn_ctx *k, kn_uop x, int dir) {
    if (!ki_is_float((kn_dtype)x->dtype)) return x;
    kn_uop t = u_trunc(k, x);
    return u_where(k, dir < 0 ? u_gt(k, t, x) : u_lt(k, t, x), u_add(k, t, L(dir)), t);
}

static kn_uop round_of(kn_ctx *k, kn_uop x) {
    if (!ki_is_float((kn_dtype)x->dtype)) return x;
    kn_uop t = u_trunc(k, x), d = u_abs(k, u_sub(k, x, t)), h = u_mul(k, t, L(0.5));
    kn_uop odd = u_ne(k, u_trunc(k, h), h);
    kn_uop up = u2(k, KN_OR, u_gt(k, d, L(0.5)), u2(k, KN_AND, u_eq(k, d, L(0.5)), odd));
    return u_where(k, up, u_add(k, t, u_where(k, u_lt(k, x, L(0)), L(-1), L(1))), t);
}

static kn_uop signbit_of(kn_ctx *k, kn_uop x) {
    if (ki_is_float((kn_dtype)x->dtype)) {
        size_t n = ki_itemsize((kn_dtype)x->dtype);
        x = ki_bitcast(&k->ir, x, n == 1 ? KN_I8 : n == 2 ? KN_I16 : n == 4 ? KN_I32 : KN_I64);
    }
    return u_lt(k, x, L(0));
}

static kn_uop sigmoid_of(kn_ctx *k, kn_uop x) {
    kn_uop e = u_exp(k, minus_abs(k, x)), r = u_recip(k, u_add(k, L(1), e));
    return u_where(k, u_lt(k, x, L(0)), u_mul(k, e, r), r);
}

kn_uop u_elu(kn_ctx *k, kn_uop x, double alpha) {
    kn_uop pos = x ? u_gt(k, x, L(0)) : NULL;
    return u_where(k, pos, x, u_mul(k, x ? L(alpha) : NULL, u_expm1(k, u_where(k, pos, x ? L(0) : NULL, x))));
}

/* ---- the table --------------------------------------------------------------------------------------------- */

enum { OPERAND_ANY, OPERAND_FLOAT, OPERAND_NUM, OPERAND_INT };

static kn_uop operand(kn_ctx *k, kn_uop x, int kind) {
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    if (kind == OPERAND_FLOAT) return u_float(k, x);
    if (kind == OPERAND_NUM && t == KN_BOOL) return FAIL(KI_E_FN_DTYPE, k->fn, "bool", "a number");
    if (kind == OPERAND_INT && ki_is_float(t)) return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[t].name, "an integer or bool dtype");
    return x;
}

#define UNARY(name, kind, ...)                                                                                \
    kn_uop u_##name(kn_ctx *k, kn_uop x) {                                                                    \
        x = operand(k, x, OPERAND_##kind);                                                                    \
        return x ? (__VA_ARGS__) : NULL;                                                                      \
    }                                                                                                         \
    kn_tensor kn_##name(kn_tensor t) {                                                                        \
        ENTER(#name, t);                                                                                      \
        return ki_handle(k, u_##name(k, t->u));                                                               \
    }
#include "tensor/unary.def"
#undef UNARY

/* ---- with a number ----------------------------------------------------------------------------------------- */

kn_tensor kn_leaky_relu(kn_tensor t, double slope) {
    ENTER("leaky_relu", t);
    kn_uop x = u_float(k, t->u);
    return ki_handle(k, x ? u_where(k, u_gt(k, x, L(0)), x, u_mul(k, L(slope), x)) : NULL);
}
kn_tensor kn_elu(kn_tensor t, double alpha) {
    ENTER("elu", t);
    return ki_handle(k, u_elu(k, u_float(k, t->u), alpha));
}
kn_tensor kn_celu(kn_tensor t, double alpha) {
    ENTER("celu", t);
    kn_uop x = u_float(k, t->u), pos = x ? u_gt(k, x, L(0)) : NULL;
    if (!pos) return ki_handle(k, NULL);
    kn_uop e = u_expm1(k, u_div(k, u_where(k, pos, L(0), x), L(alpha)));
    return ki_handle(k, u_where(k, pos, x, u_mul(k, L(alpha), e)));
}
kn_tensor kn_clamp(kn_tensor t, double lo, double hi) {
    ENTER("clamp", t);
    kn_uop x = t->u;
    x = u_max(k, x, ki_literal(k, x, lo));
    return ki_handle(k, u_min(k, x, x ? ki_literal(k, x, hi) : NULL));
}
kn_tensor kn_nan_to_num(kn_tensor t, double nan) {
    ENTER("nan_to_num", t);
    kn_uop x = t->u;
    return ki_handle(k, ki_is_float((kn_dtype)x->dtype) ? u_where(k, u_isnan(k, x), L(nan), x) : x);
}
