/* plain.c: functions written out in operations that are rounded exactly, so that every device gives the same bits. All are
 * series about the middle of a range: in f32 within 2 units in the last place or so, in f64 within a few. */
#include "tensor/random.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)), of the float's bits. */
static kn_uop parts(kn_ctx *k, kn_uop x, kn_uop *e) {
    bool wide = x && x->dtype == KN_F64;
    kn_uop bits = x ? ki_bitcast(&k->ir, x, wide ? KN_I64 : KN_I32) : NULL,
           shift = bits ? ki_t_lit(k, bits, wide ? 52 : 23) : NULL;
    if (!bits) return *e = NULL;
    kn_uop root = ki_const_int(&k->ir, (kn_dtype)bits->dtype, wide ? INT64_C(0x3fe6a09e667f3bcd) : 0x3f3504f3);
    *e = ki_t_binary(k, KN_SHR, ki_t_sub(k, bits, root), shift);
    kn_uop m = ki_t_sub(k, bits, ki_t_binary(k, KN_SHL, *e, shift));
    *e = ki_t_cast(k, *e, (kn_dtype)x->dtype);
    return m ? ki_bitcast(&k->ir, m, (kn_dtype)x->dtype) : NULL;
}

/* e log 2 + 2 atanh(z), |z| < 0.172: the series. */
static kn_uop log_of(kn_ctx *k, kn_uop e, kn_uop z) {
    kn_uop q = ki_t_mul(k, z, z), x = z;
    if (!q) return NULL;
    int last = x->dtype == KN_F64 ? 23 : 9;
    kn_uop p = L(2.0 / last);
    for (int n = last - 2; n >= 1; n -= 2) p = ki_t_add(k, ki_t_mul(k, p, q), L(2.0 / n));
    return ki_t_add(k, ki_t_mul(k, e, L(0.69314718055994530942)), ki_t_mul(k, z, p));
}

kn_uop ki_plain_log(kn_ctx *k, kn_uop x) {
    kn_uop e, m = parts(k, x, &e);
    return m ? log_of(k, e, ki_t_div(k, ki_t_sub(k, m, L(1)), ki_t_add(k, m, L(1)))) : NULL;
}

/* The word's top three bits are the octant, centred on the quarters; the rest is an angle of at most pi/4. */
void ki_plain_turn(kn_ctx *k, kn_uop word, kn_uop within, kn_dtype t, kn_uop *cosine, kn_uop *sine) {
    *cosine = NULL;
    if (sine) *sine = NULL;
    if (!word) return;
    kn_uop turned = ki_t_add(k, word, ki_t_lit(k, word, 0x20000000));
    kn_uop quarter = ki_t_binary(k, KN_SHR, turned, ki_t_lit(k, word, 30));
    kn_uop rest = ki_t_binary(k, KN_AND, turned, ki_t_lit(k, word, 0x3fffffff));
    kn_uop x = ki_t_cast(k, ki_t_sub(k, ki_t_cast(k, rest, KN_I32), ki_t_const(k, KN_I32, 0x20000000)), t);
    if (x && within) x = ki_t_add(k, x, within);
    if (!x) return;
    x = ki_t_mul(k, x, L(1.4629180792671596e-09)); /* 2 pi / 2^32 */
    int terms = t == KN_F64 ? 8 : 4;
    double factorial = 1;
    for (int n = 2; n <= 2 * terms; n++) factorial *= n;
    kn_uop q = ki_t_mul(k, x, x), c = L(1 / factorial), s = L(1 / (factorial * (2 * terms + 1)));
    for (int n = 2 * terms - 2; n >= 0; n -= 2) {
        factorial /= -(n + 1.0) * (n + 2.0); /* of n, with the sign of the term */
        c = ki_t_add(k, ki_t_mul(k, c, q), L(1 / factorial));
        s = ki_t_add(k, ki_t_mul(k, s, q), L(1 / (factorial * (n + 1))));
    }
    s = ki_t_mul(k, s, x);
    /* cos(x + j pi/2) for j = 0..3: c, -s, -c, s; sin: s, c, -s, -c */
    kn_uop one = ki_t_lit(k, word, 1), odd = ki_t_ne(k, ki_t_binary(k, KN_AND, quarter, one), ki_t_lit(k, word, 0));
    kn_uop two = ki_t_eq(k, quarter, ki_t_lit(k, word, 2)), v = ki_t_where(k, odd, s, c);
    *cosine = ki_t_where(k, ki_t_binary(k, KN_OR, ki_t_eq(k, quarter, one), two), ki_t_neg(k, v), v);
    if (!sine) return;
    v = ki_t_where(k, odd, c, s);
    *sine = ki_t_where(k, ki_t_ge(k, quarter, ki_t_lit(k, word, 2)), ki_t_neg(k, v), v);
}

/* ---- exponentials --------------------------------------------------------------------------------------------- */

/* The middle of the part of [0, 1] that a word stands for, in (0, 1]. */
static kn_uop middle(kn_ctx *k, kn_uop word, kn_dtype t) {
    kn_uop x = ki_t_cast(k, word, t);
    return x ? ki_t_mul(k, ki_t_add(k, x, L(0.5)), L(word->dtype == KN_U64 ? 0x1p-64 : 0x1p-32)) : NULL;
}
static kn_uop word_for(kn_ctx *k, kn_uop bits, kn_dtype t) { return t == KN_F64 ? bits : ki_word32(k, bits, 0); }

kn_uop ki_plain_middle(kn_ctx *k, kn_uop bits, kn_dtype t) { return middle(k, word_for(k, bits, t), t); }

/* -log(u); u below 3/4 by its parts, above by what it lacks of 1, v, so that small values are as exact as large ones. */
kn_uop ki_plain_exponential(kn_ctx *k, kn_uop bits, kn_dtype t) {
    kn_uop word = word_for(k, bits, t), x = middle(k, word, t), e;
    kn_uop m = parts(k, middle(k, ki_t_bitwise_not(k, word), t), &e);
    if (!x || !m) return NULL;
    kn_uop near = ki_t_lt(k, x, L(0.25)), over = ki_t_where(k, near, ki_t_neg(k, x), ki_t_sub(k, m, L(1)));
    kn_uop under = ki_t_where(k, near, ki_t_sub(k, L(2), x), ki_t_add(k, m, L(1)));
    return ki_t_neg(k, log_of(k, ki_t_where(k, near, L(0), e), ki_t_div(k, over, under)));
}

/* log(u / (1 - u)) */
kn_uop ki_plain_logistic(kn_ctx *k, kn_uop bits, kn_dtype t) {
    kn_uop word = word_for(k, bits, t);
    return ki_plain_log(k, ki_t_div(k, middle(k, word, t), middle(k, ki_t_bitwise_not(k, word), t)));
}

/* f64: x = n log 2 + r with |r| <= log(2) / 2; the series of r, times 2^n in two steps, so that small results are rounded once. */
kn_uop ki_plain_exp(kn_ctx *k, kn_uop x) {
    enum { TERMS = 13, BIAS = 1023, SHIFT = 52 };
    if (!x) return NULL;
    kn_uop least = L(-760), most = L(709.78); /* beyond: 0, infinity */
    kn_uop y = ki_t_where(k, ki_t_gt(k, x, least), x, least), over = ki_t_gt(k, x, most);
    y = ki_t_where(k, over, most, y);
    kn_uop n = ki_t_floor(k, ki_t_add(k, ki_t_mul(k, y, L(1.4426950408889634)), L(0.5)));
    kn_uop r = ki_t_sub(k, y, ki_t_mul(k, n, L(0x1.62e42feep-1))); /* log 2 in two parts, the first times n exact */
    r = ki_t_sub(k, r, ki_t_mul(k, n, L(0x1.a39ef35793c76p-33)));
    double factorial = 1;
    for (int i = 2; i <= TERMS; i++) factorial *= i;
    kn_uop p = L(1 / factorial);
    for (int i = TERMS; i >= 1; i--) {
        factorial /= i;
        p = ki_t_add(k, ki_t_mul(k, p, r), L(1 / factorial));
    }
    kn_uop two = ki_t_cast(k, n, KN_I64), half = two ? ki_t_binary(k, KN_SHR, two, ki_t_lit(k, two, 1)) : NULL;
    kn_uop part[2] = {half, ki_t_sub(k, two, half)};
    for (int i = 0; i < 2 && p && part[i]; i++) {
        kn_uop b = ki_t_binary(k, KN_SHL, ki_t_add(k, part[i], ki_t_lit(k, half, BIAS)), ki_t_lit(k, half, SHIFT));
        p = b ? ki_t_mul(k, p, ki_bitcast(&k->ir, b, KN_F64)) : NULL;
    }
    return ki_t_where(k, ki_t_eq(k, x, x), ki_t_where(k, over, L(INFINITY), p), x);
}

/* ---- the normal distribution's inverse: Wichura's algorithm AS 241 --------------------------------------------- */

/* Coefficients of a numerator and a denominator, from the seventh power down. */
typedef double ratio[2][8];
static kn_uop ratio_of(kn_ctx *k, kn_uop x, const ratio c) {
    kn_uop p[2] = {0};
    for (int i = 0; i < 2 && x; i++) {
        p[i] = L(c[i][0]);
        for (int n = 1; n < 8; n++) p[i] = ki_t_add(k, ki_t_mul(k, p[i], x), L(c[i][n]));
    }
    return ki_t_div(k, p[0], p[1]);
}

/* f64, p in (0, 1]; relative error 1e-15 or so. */
kn_uop ki_plain_normal_at(kn_ctx *k, kn_uop p) {
    static const ratio middle_part = {
        {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
         1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e0},
        {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
         5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1}};
    static const ratio near = {
        {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
         3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0},
        {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
         6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1}};
    static const ratio far = {
        {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
         2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0},
        {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
         1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1}};
    kn_uop x = p;
    if (!x) return NULL;
    kn_uop q = ki_t_sub(k, p, L(0.5)), other = ki_t_sub(k, L(1), p), below = ki_t_lt(k, q, L(0));
    kn_uop r = ki_t_sqrt(k, ki_t_neg(k, ki_plain_log(k, ki_t_where(k, below, p, other))));
    kn_uop tail = ki_t_where(k, ki_t_le(k, r, L(5)), ratio_of(k, ki_t_sub(k, r, L(1.6)), near),
                             ratio_of(k, ki_t_sub(k, r, L(5)), far));
    kn_uop central = ki_t_mul(k, q, ratio_of(k, ki_t_sub(k, L(0.180625), ki_t_mul(k, q, q)), middle_part));
    return ki_t_where(k, ki_t_le(k, ki_t_abs(k, q), L(0.425)), central, ki_t_where(k, below, ki_t_neg(k, tail), tail));
}
