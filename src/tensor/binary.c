/* binary.c: functions of two operands: the rows of binary.def as public calls, and literals. */
#include "tensor/build.h"

#include <math.h>

#define L(like, v) ki_t_lit(k, like, v)

/* ---- literals ---------------------------------------------------------------------------------------------- */

/* What a weak literal becomes beside a value of dtype t. */
static kn_uop literal_beside(kn_ctx *k, kn_dtype t, bool whole, int64_t i, double f) {
    if (ki_is_float(t)) return ki_const_float(&k->ir, t, whole ? (double)i : f);
    if (!whole) return ki_const_float(&k->ir, KN_F32, f);
    return ki_const_int(&k->ir, t == KN_BOOL ? KN_I64 : t, i);
}

static bool is_whole(double v) { return v == trunc(v) && fabs(v) < 9007199254740992.0; }

kn_uop ki_literal(kn_ctx *k, kn_uop a, double b) {
    bool whole = is_whole(b) && !(b == 0 && signbit(b));
    return a ? literal_beside(k, (kn_dtype)a->dtype, whole, whole ? (int64_t)b : 0, b) : NULL;
}

static kn_uop meet_one(kn_ctx *k, kn_tensor weak, kn_tensor strong) {
    bool whole = weak->weak == KI_WEAK_INT || (is_whole(weak->lit.f) && !signbit(weak->lit.f)) ||
                 (is_whole(weak->lit.f) && weak->lit.f != 0);
    int64_t i = weak->weak == KI_WEAK_INT ? weak->lit.i : whole ? (int64_t)weak->lit.f : 0;
    return literal_beside(k, (kn_dtype)strong->u->dtype, whole, i, weak->lit.f);
}

void ki_meet(kn_ctx *k, kn_tensor a, kn_tensor b, kn_uop *ua, kn_uop *ub) {
    *ua = a->weak && !b->weak ? meet_one(k, a, b) : a->u;
    *ub = b->weak && !a->weak ? meet_one(k, b, a) : b->u;
}

/* ---- the longer ones --------------------------------------------------------------------------------------- */

static bool both_float(kn_ctx *k, kn_uop *a, kn_uop *b) {
    if (!*a || !*b) return false;
    kn_dtype t = ki_promote((kn_dtype)(*a)->dtype, (kn_dtype)(*b)->dtype);
    *a = ki_t_cast(k, *a, t);
    *b = ki_t_cast(k, *b, t);
    return ki_is_float(t);
}

/* Integer power by squaring, over all bits of the exponent; wraps as multiplication does. A negative exponent gives
 * the truncated quotient: 0, or +-1 for a base of +-1. */
static kn_uop integer_pow(kn_ctx *k, kn_uop a, kn_uop b) {
    kn_dtype t = (kn_dtype)a->dtype;
    unsigned bits = t == KN_BOOL ? 1 : ki_dtypes[t].bits;
    kn_uop r = L(a, 1), base = a;
    if (t == KN_BOOL) return ki_t_binary(k, KN_OR, a, ki_t_unary(k, KN_NOT, b));
    if (b->op == KN_CONST && b->arg.i >= 0) {
        for (uint64_t e = (uint64_t)b->arg.i; e; e >>= 1) {
            if (e & 1) r = ki_t_mul(k, r, base);
            if (e > 1) base = ki_t_mul(k, base, base);
        }
        return r && ki_same_shape(r, a) ? r : ki_t_add(k, ki_t_mul(k, a, L(a, 0)), r);
    }
    for (unsigned i = 0; i < bits; i++) {
        kn_uop set = ki_t_ne(k, ki_t_binary(k, KN_AND, ki_t_binary(k, KN_SHR, b, L(b, i)), L(b, 1)), L(b, 0));
        r = ki_t_where(k, set, ki_t_mul(k, r, base), r);
        base = ki_t_mul(k, base, base);
    }
    if (ki_is_uint(t)) return r;
    kn_uop odd = ki_t_ne(k, ki_t_binary(k, KN_AND, b, L(b, 1)), L(b, 0));
    kn_uop unit = ki_t_where(k, ki_t_eq(k, a, L(a, 1)), L(a, 1),
                             ki_t_where(k, ki_t_eq(k, a, L(a, -1)), ki_t_where(k, odd, L(a, -1), L(a, 1)), L(a, 0)));
    return ki_t_where(k, ki_t_lt(k, b, L(b, 0)), unit, r);
}

kn_uop ki_t_pow(kn_ctx *k, kn_uop a, kn_uop b) {
    if (both_float(k, &a, &b)) {
        if (b->op == KN_CONST) { /* exact forms where there are */
            double e = ki_const_f64(b);
            if (e == 2) return ki_t_mul(k, a, a);
            if (e == 1) return a;
            if (e == -1) return ki_t_recip(k, a);
        }
        return ki_t_binary(k, KN_POW, a, b);
    }
    return a && b && k->env.err == KI_E_NONE ? integer_pow(k, a, b) : NULL;
}

static kn_uop floor_div_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!both_float(k, &a, &b)) return a && b && k->env.err == KI_E_NONE ? ki_t_binary(k, KN_IDIV, a, b) : NULL;
    return ki_t_floor(k, ki_t_div(k, a, b));
}

/* Toward zero: the floor quotient, one more where the signs differ and something remains. */
static kn_uop trunc_div_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (both_float(k, &a, &b)) return ki_t_trunc(k, ki_t_div(k, a, b));
    kn_uop q = ki_t_binary(k, KN_IDIV, a, b);
    if (!q || !ki_is_sint((kn_dtype)q->dtype)) return q;
    kn_uop below = ki_t_binary(k, KN_AND, ki_t_lt(k, q, L(q, 0)), ki_t_ne(k, ki_t_binary(k, KN_MOD, a, b), L(q, 0)));
    return ki_t_where(k, below, ki_t_add(k, q, L(q, 1)), q);
}

/* Steps of fmod, each of DIGITS bits of the quotient, that dtype t needs at most: what its exponents span, and its mantissa. */
enum { DIGITS = 52, SPAN_F64 = 2098, SPAN_F32 = 277, SPAN_HALF = 48 };
static int steps_of(kn_dtype t) {
    int bits = t == KN_F64 ? SPAN_F64 : t == KN_F32 || t == KN_BF16 ? SPAN_F32 : SPAN_HALF;
    return (bits + DIGITS - 1) / DIGITS;
}

/* b 2^e, infinite where that is too large. */
static kn_uop scaled(kn_ctx *k, kn_uop b, int e) {
    for (; e > 1023; e -= 1023) b = ki_t_mul(k, b, L(b, 0x1p1023));
    return e ? ki_t_mul(k, b, L(b, ldexp(1, e))) : b;
}

/* Long division, exact: what |a| leaves of |b| 2^104, what that leaves of |b| 2^52, and so on, in f64. A quotient has DIGITS bits at most;
 * rounding may make it one too many, never one too few; what MULACC makes of it has b's last bit or a's, and is exact. */
static kn_uop fmod_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!both_float(k, &a, &b)) {
        kn_uop q = a && b && k->env.err == KI_E_NONE ? trunc_div_of(k, a, b) : NULL,
               r = q ? ki_t_sub(k, a, ki_t_mul(k, q, b)) : NULL;
        return r ? ki_t_where(k, ki_t_eq(k, b, L(b, 0)), L(r, 0), r) : NULL;
    }
    if (!ki_broadcast(k, &a, &b)) return NULL;
    kn_dtype t = (kn_dtype)a->dtype;
    kn_uop whole = ki_t_trunc(k, ki_t_div(k, a, b)), smooth = ki_t_sub(k, a, ki_t_mul(k, whole, b));
    kn_uop x = ki_t_cast(k, a, KN_F64), size = ki_t_abs(k, ki_t_cast(k, b, KN_F64)), neg = ki_t_signbit(k, a);
    kn_uop r = ki_t_where(k, neg, ki_t_neg(k, x), x);
    for (int i = steps_of(t) - 1; i >= 0 && r && size; i--) {
        kn_uop m = scaled(k, size, DIGITS * i), q = ki_t_trunc(k, ki_t_div(k, r, m));
        kn_uop left = q ? ki_op3(&k->ir, KN_MULACC, ki_t_neg(k, q), m, r) : NULL;
        if (!left) return NULL;
        left = ki_t_where(k, ki_t_lt(k, left, L(left, 0)), ki_t_add(k, left, m), left);
        r = ki_t_where(k, ki_t_lt(k, r, m), r, left); /* of an infinite m too */
    }
    r = ki_t_cast(k, ki_t_where(k, neg, ki_t_neg(k, r), r), t);
    return ki_t_straight(k, r, smooth); /* 1, and the quotient less */
}

static kn_uop remainder_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!both_float(k, &a, &b)) return a && b && k->env.err == KI_E_NONE ? ki_t_binary(k, KN_MOD, a, b) : NULL;
    kn_uop r = fmod_of(k, a, b);
    if (!r) return NULL;
    kn_uop wrong =
        ki_t_binary(k, KN_AND, ki_t_ne(k, r, L(r, 0)), ki_t_ne(k, ki_t_lt(k, r, L(r, 0)), ki_t_lt(k, b, L(b, 0))));
    /* A zero has the divisor's sign. Sums with zero say so, and leave the derivative 1. */
    kn_uop up = ki_t_add(k, r, L(r, 0)), down = ki_t_neg(k, ki_t_add(k, ki_t_neg(k, r), L(r, 0)));
    return ki_t_where(k, wrong, ki_t_add(k, r, b), ki_t_where(k, ki_t_lt(k, b, L(b, 0)), down, up));
}

/* The larger one by d = a - b, so that equals share the gradient; infinities of one sign are their sum. */
kn_uop ki_t_logaddexp(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b) return NULL;
    kn_uop d = ki_t_sub(k, a, b), below = d ? ki_t_lt(k, d, L(d, 0)) : NULL;
    if (!below) return NULL;
    kn_uop less = ki_t_where(k, below, d, ki_t_neg(k, d)), endless = ki_t_isinf(k, a);
    kn_uop same = ki_t_binary(k, KN_AND, ki_t_eq(k, a, b), endless);
    return ki_t_where(k, same, ki_t_add(k, a, b),
                      ki_t_add(k, ki_t_where(k, below, b, a), ki_t_log1p(k, ki_t_exp(k, less))));
}

static kn_uop hypot_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b) return NULL;
    kn_uop x = ki_t_abs(k, a), y = ki_t_abs(k, b), m = ki_t_max(k, x, y), n = ki_t_min(k, x, y);
    if (!m) return NULL;
    kn_uop q = ki_t_div(k, n, ki_t_where(k, ki_t_eq(k, m, L(m, 0)), L(m, 1), m));
    kn_uop r = ki_t_mul(k, m, ki_t_sqrt(k, ki_t_add(k, L(m, 1), ki_t_mul(k, q, q))));
    return ki_t_where(k, ki_t_binary(k, KN_OR, ki_t_isinf(k, a), ki_t_isinf(k, b)), L(m, INFINITY), r);
}

/* a is y, b is x. The angle of (x, |y|) from atan of the smaller over the larger. */
static kn_uop atan2_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b || !ki_broadcast(k, &a, &b)) return NULL;
    const double pi = 3.14159265358979323846;
    kn_uop y = ki_t_abs(k, a), x = ki_t_abs(k, b), both = ki_t_binary(k, KN_AND, ki_t_isinf(k, a), ki_t_isinf(k, b)),
           steep = ki_t_gt(k, y, x), m = ki_t_where(k, steep, y, x);
    if (!m) return NULL;
    kn_uop n = ki_t_where(k, steep, x, y), zero = ki_t_eq(k, m, L(m, 0));
    kn_uop t = ki_t_atan(k, ki_t_where(k, both, L(m, 1), ki_t_div(k, n, ki_t_where(k, zero, L(m, 1), m))));
    t = ki_t_where(k, steep, ki_t_sub(k, L(m, pi / 2), t), t);
    t = ki_t_where(k, ki_t_signbit(k, b), ki_t_sub(k, L(m, pi), t), t);
    return ki_t_where(k, ki_t_signbit(k, a), ki_t_neg(k, t), t);
}

/* The next value from a towards b: floats of one sign are ordered as their bits are, so a step of 1. */
static kn_uop nextafter_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b || !both_float(k, &a, &b)) return NULL;
    if (!ki_broadcast(k, &a, &b)) return NULL;
    kn_dtype t = (kn_dtype)a->dtype;
    size_t n = ki_itemsize(t);
    kn_dtype it = n == 1 ? KN_I8 : n == 2 ? KN_I16 : n == 4 ? KN_I32 : KN_I64;
    kn_uop bits = ki_bitcast(&k->ir, a, it), up = ki_t_lt(k, a, b), minus = ki_t_lt(k, a, L(a, 0));
    if (!bits || !up) return NULL;
    kn_uop grows = ki_t_ne(k, up, minus);
    kn_uop moved = ki_t_add(k, bits, ki_t_where(k, grows, L(bits, 1), L(bits, -1)));
    kn_uop tiny = ki_t_where(k, up, L(bits, 1), ki_t_add(k, L(bits, 1), ki_const_int(&k->ir, it, ki_int_min(it))));
    moved = ki_t_where(k, ki_t_eq(k, a, L(a, 0)), tiny, moved);
    moved = moved ? ki_bitcast(&k->ir, moved, t) : NULL;
    moved = ki_t_where(k, ki_t_eq(k, a, b), b, moved);
    return ki_t_where(k, ki_t_ne(k, a, a), a, ki_t_where(k, ki_t_ne(k, b, b), b, moved));
}

static kn_uop xlogy_of(kn_ctx *k, kn_uop a, kn_uop b) {
    return a ? ki_t_where(k, ki_t_eq(k, a, L(a, 0)), L(a, 0), ki_t_mul(k, a, ki_t_log(k, b))) : NULL;
}

/* f of floats of 16 and 8 bits as they are in dtype `in`. */
static kn_uop wide(kn_ctx *k, kn_uop a, kn_uop b, kn_dtype in, kn_uop (*f)(kn_ctx *, kn_uop, kn_uop)) {
    bool small = both_float(k, &a, &b) && ki_itemsize((kn_dtype)a->dtype) < 4;
    if (!small) return a && b && k->env.err == KI_E_NONE ? f(k, a, b) : NULL;
    kn_uop r = f(k, ki_t_cast(k, a, in), ki_t_cast(k, b, in));
    return r ? ki_t_cast(k, r, (kn_dtype)a->dtype) : NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------- */

#define LITERAL_N(name)
#define LITERAL_S(name)                                                                                                \
    kn_tensor kn_##name##s(kn_tensor x, double v) {                                                                    \
        ENTER(#name, x);                                                                                               \
        return ki_handle(k, b_##name(k, x->u, ki_literal(k, x->u, v)));                                                \
    }
#define BINARY(name, s, ...)                                                                                           \
    static kn_uop b_##name(kn_ctx *k, kn_uop a, kn_uop b) { return a && b ? (__VA_ARGS__) : NULL; }                    \
    kn_tensor kn_##name(kn_tensor x, kn_tensor y) {                                                                    \
        ENTER(#name, x, y);                                                                                            \
        kn_uop a, b;                                                                                                   \
        ki_meet(k, x, y, &a, &b);                                                                                      \
        return ki_handle(k, b_##name(k, a, b));                                                                        \
    }                                                                                                                  \
    LITERAL_##s(name)
#include "tensor/binary.def"
#undef BINARY

/* ---- three operands ---------------------------------------------------------------------------------------- */

kn_tensor kn_where(kn_tensor p, kn_tensor x, kn_tensor y) {
    ENTER("where", p, x, y);
    kn_uop a, b;
    ki_meet(k, x, y, &a, &b);
    return ki_handle(k, ki_t_where(k, p->u, a, b));
}
kn_tensor kn_clip(kn_tensor x, kn_tensor lo, kn_tensor hi) {
    ENTER_("clip", 6, x, lo, hi);
    kn_uop u = x->u, own, bound;
    if (lo) ki_meet(k, x, lo, &own, &bound), u = ki_t_max(k, u, bound);
    if (hi) ki_meet(k, x, hi, &own, &bound), u = ki_t_min(k, u, bound);
    return ki_handle(k, u);
}
kn_tensor kn_masked_fill(kn_tensor x, kn_tensor mask, double value) {
    ENTER("masked_fill", x, mask);
    return ki_handle(k, ki_t_where(k, mask->u, L(x->u, value), x->u));
}
kn_tensor kn_mulacc(kn_tensor x, kn_tensor y, kn_tensor z) {
    ENTER("mulacc", x, y, z);
    kn_uop a, b, c = z->u;
    ki_meet(k, x, y, &a, &b);
    kn_dtype t = ki_promote(ki_promote((kn_dtype)a->dtype, (kn_dtype)b->dtype), (kn_dtype)c->dtype);
    if (t == KN_VOID || t == KN_BOOL)
        return FAIL(KI_E_FN_DTYPE, "mulacc", ki_dtypes[t].name, "numbers"), ki_handle(k, NULL);
    a = ki_t_cast(k, a, t), b = ki_t_cast(k, b, t), c = ki_t_cast(k, c, t);
    bool ok = ki_broadcast(k, &a, &b) && ki_broadcast(k, &a, &c) && ki_broadcast(k, &b, &c) && ki_broadcast(k, &a, &b);
    return ki_handle(k, ok ? ki_op3(&k->ir, KN_MULACC, a, b, c) : NULL);
}
kn_tensor kn_lerp(kn_tensor x, kn_tensor y, double weight) {
    ENTER("lerp", x, y);
    kn_uop a, b;
    ki_meet(k, x, y, &a, &b);
    kn_uop d = ki_t_sub(k, ki_t_float(k, b), ki_t_float(k, a));
    return ki_handle(k, d ? ki_t_add(k, a, ki_t_mul(k, L(d, weight), d)) : NULL);
}
