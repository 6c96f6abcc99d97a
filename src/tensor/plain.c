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
void ki_plain_turn(kn_ctx *k, kn_uop word, bool between, kn_dtype t, kn_uop *cosine, kn_uop *sine) {
    *cosine = NULL;
    if (sine) *sine = NULL;
    if (!word) return;
    kn_uop turned = ki_t_add(k, word, ki_t_lit(k, word, 0x20000000));
    kn_uop quarter = ki_t_binary(k, KN_SHR, turned, ki_t_lit(k, word, 30));
    kn_uop rest = ki_t_binary(k, KN_AND, turned, ki_t_lit(k, word, 0x3fffffff));
    kn_uop x = ki_t_cast(k, ki_t_sub(k, ki_t_cast(k, rest, KN_I32), ki_t_const(k, KN_I32, 0x20000000)), t);
    if (x && between) x = ki_t_add(k, x, L(0.5));
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
