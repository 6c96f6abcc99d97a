/* unary.c: functions of one operand: the rows of unary.def as functions on UOps and as public calls. */
#include "tensor/build.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

/* ---- the longer ones --------------------------------------------------------------------------------------- */

/* -|x| with derivative -1 at 0 from the side of x >= 0. */
static kn_uop minus_abs(kn_ctx *k, kn_uop x) { return ki_t_where(k, ki_t_lt(k, x, L(0)), x, ki_t_neg(k, x)); }

/* 2 t / (1 - t) with t = tanh(x/2) keeps the small digits; away from 0 the plain form does. */
static kn_uop expm1_of(kn_ctx *k, kn_uop x) {
    kn_uop near = ki_t_lt(k, ki_t_abs(k, x), L(0.5)),
           t = ki_t_tanh(k, ki_t_mul(k, ki_t_where(k, near, x, L(0)), L(0.5)));
    return ki_t_where(k, near, ki_t_div(k, ki_t_add(k, t, t), ki_t_sub(k, L(1), t)), ki_t_sub(k, ki_t_exp(k, x), L(1)));
}

/* log(u) + (x - (u - 1)) / u with u = 1 + x: the second term is what the sum lost; its derivative is 0. */
static kn_uop log1p_of(kn_ctx *k, kn_uop x) {
    kn_uop u = ki_t_add(k, L(1), x), lost = ki_t_sub(k, x, ki_t_sub(k, u, L(1)));
    kn_uop inside = ki_t_unary(k, KN_NOT, ki_t_binary(k, KN_OR, ki_t_eq(k, u, L(0)), ki_t_isinf(k, u)));
    return ki_t_add(k, ki_t_log(k, u), ki_t_where(k, inside, ki_t_div(k, lost, ki_t_where(k, inside, u, L(1))), L(0)));
}

/* e^x / 2, which ends where e^x / 2 does and not where e^x does: from there on as e^(x - c) * e^c / 2, where x - c is exact and
 * e^c / 2 nearly so in f32 and in f64. */
static kn_uop half_exp(kn_ctx *k, kn_uop x) {
    kn_uop far = ki_t_gt(k, x, L(x->dtype == KN_F64 ? 709 : 88));
    kn_uop e = ki_t_exp(k, ki_t_where(k, far, ki_t_sub(k, x, L(1.7607421875)), x));
    return ki_t_mul(k, ki_t_where(k, far, L(2.9083764570227584), L(0.5)), e);
}

static kn_uop sinh_of(kn_ctx *k, kn_uop x) {
    kn_uop far = ki_t_gt(k, ki_t_abs(k, x), L(1)), t = ki_t_expm1(k, ki_t_where(k, far, L(0), x));
    kn_uop small = ki_t_mul(k, L(0.5), ki_t_add(k, t, ki_t_div(k, t, ki_t_add(k, t, L(1)))));
    return ki_t_where(k, far, ki_t_sub(k, half_exp(k, x), half_exp(k, ki_t_neg(k, x))), small);
}

/* What an odd function of |x| is of x. 0 keeps its sign. */
static kn_uop odd(kn_ctx *k, kn_uop x, kn_uop r) {
    return ki_t_where(k, ki_t_eq(k, x, L(0)), x, ki_t_where(k, ki_t_lt(k, x, L(0)), ki_t_neg(k, r), r));
}

static kn_uop asinh_of(kn_ctx *k, kn_uop x) {
    kn_uop a = ki_t_neg(k, minus_abs(k, x)), big = ki_t_gt(k, a, L(1e9)), s = ki_t_where(k, big, L(1), a),
           q = ki_t_mul(k, s, s);
    kn_uop small = log1p_of(k, ki_t_add(k, s, ki_t_div(k, q, ki_t_add(k, L(1), ki_t_sqrt(k, ki_t_add(k, L(1), q))))));
    return odd(k, x, ki_t_where(k, big, ki_t_add(k, ki_t_log(k, a), L(0.69314718055994530942)), small));
}

/* By t = x - 1, which is exact near 1. Two roots: below 1 one of them is NaN. */
static kn_uop acosh_of(kn_ctx *k, kn_uop x) {
    kn_uop big = ki_t_gt(k, x, L(1e9)), t = ki_t_sub(k, ki_t_where(k, big, L(2), x), L(1));
    kn_uop near = log1p_of(k, ki_t_add(k, t, ki_t_mul(k, ki_t_sqrt(k, t), ki_t_sqrt(k, ki_t_add(k, t, L(2))))));
    return ki_t_where(k, big, ki_t_add(k, ki_t_log(k, x), L(0.69314718055994530942)), near);
}

static kn_uop atanh_of(kn_ctx *k, kn_uop x) {
    kn_uop a = ki_t_neg(k, minus_abs(k, x));
    return odd(k, x, ki_t_mul(k, L(0.5), log1p_of(k, ki_t_div(k, ki_t_add(k, a, a), ki_t_sub(k, L(1), a)))));
}

/* Next to 0 it is x. |x| > 1 by pi/2 - atan(1/|x|); then atan(y) = 2 atan(y / (1 + sqrt(1 + y^2))) three times, which leaves
 * y <= tan(pi/32), where the odd series ends after nine terms. */
static kn_uop atan_of(kn_ctx *k, kn_uop x) {
    kn_uop a = ki_t_neg(k, minus_abs(k, x)), big = ki_t_gt(k, a, L(1)),
           y = ki_t_where(k, big, ki_t_recip(k, ki_t_where(k, big, a, L(1))), a);
    for (int i = 0; i < 3; i++)
        y = ki_t_div(k, y, ki_t_add(k, L(1), ki_t_sqrt(k, ki_t_add(k, L(1), ki_t_mul(k, y, y)))));
    kn_uop q = ki_t_mul(k, y, y), p = L(1.0 / 17);
    for (int n = 15; n >= 1; n -= 2) p = ki_t_sub(k, L(1.0 / n), ki_t_mul(k, q, p));
    kn_uop r = ki_t_mul(k, L(8), ki_t_mul(k, y, p));
    r = ki_t_where(k, big, ki_t_sub(k, L(1.57079632679489661923), r), r);
    return odd(k, x, ki_t_where(k, ki_t_lt(k, a, L(1e-30)), a, r));
}

static kn_uop floor_of(kn_ctx *k, kn_uop x, int dir) {
    if (!ki_is_float((kn_dtype)x->dtype)) return x;
    kn_uop t = ki_t_trunc(k, x);
    return ki_t_where(k, dir < 0 ? ki_t_gt(k, t, x) : ki_t_lt(k, t, x), ki_t_add(k, t, L(dir)), t);
}

static kn_uop round_of(kn_ctx *k, kn_uop x) {
    if (!ki_is_float((kn_dtype)x->dtype)) return x;
    kn_uop t = ki_t_trunc(k, x), d = ki_t_abs(k, ki_t_sub(k, x, t)), h = ki_t_mul(k, t, L(0.5));
    kn_uop odd = ki_t_ne(k, ki_t_trunc(k, h), h);
    kn_uop up = ki_t_binary(k, KN_OR, ki_t_gt(k, d, L(0.5)), ki_t_binary(k, KN_AND, ki_t_eq(k, d, L(0.5)), odd));
    return ki_t_where(k, up, ki_t_add(k, t, ki_t_where(k, ki_t_lt(k, x, L(0)), L(-1), L(1))), t);
}

static kn_uop signbit_of(kn_ctx *k, kn_uop x) {
    if (ki_is_float((kn_dtype)x->dtype)) {
        size_t n = ki_itemsize((kn_dtype)x->dtype);
        x = ki_bitcast(&k->ir, x, n == 1 ? KN_I8 : n == 2 ? KN_I16 : n == 4 ? KN_I32 : KN_I64);
    }
    return ki_t_lt(k, x, L(0));
}

static kn_uop sigmoid_of(kn_ctx *k, kn_uop x) {
    kn_uop e = ki_t_exp(k, minus_abs(k, x)), r = ki_t_recip(k, ki_t_add(k, L(1), e));
    return ki_t_where(k, ki_t_lt(k, x, L(0)), ki_t_mul(k, e, r), r);
}

kn_uop ki_t_elu(kn_ctx *k, kn_uop x, double alpha) {
    kn_uop pos = x ? ki_t_gt(k, x, L(0)) : NULL;
    return ki_t_where(k, pos, x,
                      ki_t_mul(k, x ? L(alpha) : NULL, ki_t_expm1(k, ki_t_where(k, pos, x ? L(0) : NULL, x))));
}

/* ---- the table --------------------------------------------------------------------------------------------- */

enum { OPERAND_ANY, OPERAND_FLOAT, OPERAND_WIDE, OPERAND_NUM, OPERAND_INT };

/* x as a composition of several roundings takes it; *t is the dtype of its result. */
static kn_uop wide(kn_ctx *k, kn_uop x, kn_dtype *t) {
    x = ki_t_float(k, x);
    if (x) *t = (kn_dtype)x->dtype;
    return x && ki_itemsize(*t) < 4 ? ki_t_cast(k, x, KN_F32) : x;
}
static kn_uop narrow(kn_ctx *k, kn_uop r, kn_dtype t) { return r && t != KN_VOID ? ki_t_cast(k, r, t) : r; }

static kn_uop operand(kn_ctx *k, kn_uop x, int kind, kn_dtype *result) {
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    if (kind == OPERAND_FLOAT) return ki_t_float(k, x);
    if (kind == OPERAND_WIDE) return wide(k, x, result);
    if (kind == OPERAND_NUM && t == KN_BOOL) return FAIL(KI_E_FN_DTYPE, k->fn, "bool", "a number");
    if (kind == OPERAND_INT && ki_is_float(t))
        return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[t].name, "an integer or bool dtype");
    return x;
}

#define UNARY(name, kind, ...)                                                                                         \
    kn_uop ki_t_##name(kn_ctx *k, kn_uop x) {                                                                          \
        kn_dtype result = KN_VOID;                                                                                     \
        x = operand(k, x, OPERAND_##kind, &result);                                                                    \
        return x ? narrow(k, (__VA_ARGS__), result) : NULL;                                                            \
    }                                                                                                                  \
    kn_tensor kn_##name(kn_tensor t) {                                                                                 \
        ENTER(#name, t);                                                                                               \
        return ki_handle(k, ki_t_##name(k, t->u));                                                                     \
    }
#include "tensor/unary.def"
#undef UNARY

/* ---- with a number ----------------------------------------------------------------------------------------- */

kn_tensor kn_leaky_relu(kn_tensor t, double slope) {
    ENTER("leaky_relu", t);
    kn_dtype r = KN_VOID;
    kn_uop x = wide(k, t->u, &r);
    return ki_handle(k, x ? narrow(k, ki_t_where(k, ki_t_gt(k, x, L(0)), x, ki_t_mul(k, L(slope), x)), r) : NULL);
}
kn_tensor kn_threshold(kn_tensor t, double least, double value) {
    ENTER("threshold", t);
    kn_uop x = ki_t_float(k, t->u);
    return ki_handle(k, x ? ki_t_where(k, ki_t_le(k, x, L(least)), L(value), x) : NULL);
}
kn_tensor kn_hardshrink(kn_tensor t, double size) {
    ENTER("hardshrink", t);
    kn_uop x = ki_t_float(k, t->u);
    return ki_handle(k, x ? ki_t_where(k, ki_t_le(k, ki_t_abs(k, x), L(size)), L(0), x) : NULL);
}
kn_tensor kn_softshrink(kn_tensor t, double size) {
    ENTER("softshrink", t);
    kn_uop x = ki_t_float(k, t->u);
    if (!x) return ki_handle(k, NULL);
    kn_uop less = ki_t_where(k, ki_t_gt(k, x, L(0)), ki_t_sub(k, x, L(size)), ki_t_add(k, x, L(size)));
    return ki_handle(k, ki_t_where(k, ki_t_le(k, ki_t_abs(k, x), L(size)), L(0), less));
}
kn_tensor kn_logit(kn_tensor t, double eps) {
    ENTER("logit", t);
    kn_dtype r = KN_VOID;
    kn_uop x = wide(k, t->u, &r);
    if (eps > 0) x = ki_t_clamp(k, x, eps, 1 - eps);
    return ki_handle(k, x ? narrow(k, ki_t_sub(k, ki_t_log(k, x), log1p_of(k, ki_t_neg(k, x))), r) : NULL);
}
kn_tensor kn_prelu(kn_tensor t, kn_tensor weight) {
    ENTER("prelu", t, weight);
    char a[128], b[128];
    kn_uop x = ki_t_float(k, t->u), w = weight->u;
    if (!x) return ki_handle(k, NULL);
    unsigned axis = ki_rank(x) > 1;
    bool one = ki_rank(w) == 0 || (ki_rank(w) == 1 && ki_dim_n(w, 0) == 1);
    if (!one && (ki_rank(w) != 1 || ki_rank(x) == 0 || ki_dim_n(w, 0) != ki_dim_n(x, axis)))
        return FAIL(KI_E_CHANNELS, k->fn, ki_shape_text(w->type, a, sizeof a), ki_shape_text(x->type, b, sizeof b)),
               ki_handle(k, NULL);
    ki_shape s = {.n = ki_rank(x)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = !one && i == axis ? ki_dim_n(w, 0) : 1;
    w = ki_t_cast(k, ki_t_reshape_to(k, w, &s), (kn_dtype)x->dtype);
    return ki_handle(k, ki_t_where(k, ki_t_gt(k, x, L(0)), x, ki_t_mul(k, w, x)));
}
kn_tensor kn_glu(kn_tensor t, int axis) {
    ENTER("glu", t);
    kn_uop x = ki_t_float(k, t->u);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !x || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    int64_t n = ki_dim_n(x, (unsigned)a);
    if (n % 2) return FAIL(KI_E_ODD_AXIS, k->fn, a, (long long)n), ki_handle(k, NULL);
    kn_uop gate = ki_t_sigmoid(k, ki_t_narrow(k, x, (unsigned)a, n / 2, n / 2));
    return ki_handle(k, ki_t_mul(k, ki_t_narrow(k, x, (unsigned)a, 0, n / 2), gate));
}
kn_tensor kn_elu(kn_tensor t, double alpha) {
    ENTER("elu", t);
    kn_dtype r = KN_VOID;
    kn_uop x = wide(k, t->u, &r);
    return ki_handle(k, narrow(k, ki_t_elu(k, x, alpha), r));
}
kn_tensor kn_celu(kn_tensor t, double alpha) {
    ENTER("celu", t);
    kn_dtype r = KN_VOID;
    kn_uop x = wide(k, t->u, &r), pos = x ? ki_t_gt(k, x, L(0)) : NULL;
    if (!pos) return ki_handle(k, NULL);
    kn_uop e = ki_t_expm1(k, ki_t_div(k, ki_t_where(k, pos, L(0), x), L(alpha)));
    return ki_handle(k, narrow(k, ki_t_where(k, pos, x, ki_t_mul(k, L(alpha), e)), r));
}
kn_tensor kn_clamp(kn_tensor t, double lo, double hi) {
    ENTER("clamp", t);
    kn_uop x = t->u;
    x = ki_t_max(k, x, ki_literal(k, x, lo));
    return ki_handle(k, ki_t_min(k, x, x ? ki_literal(k, x, hi) : NULL));
}
kn_tensor kn_nan_to_num(kn_tensor t, double nan) {
    ENTER("nan_to_num", t);
    kn_uop x = t->u;
    return ki_handle(k, ki_is_float((kn_dtype)x->dtype) ? ki_t_where(k, ki_t_isnan(k, x), L(nan), x) : x);
}
