/* fft.c: discrete Fourier transforms as compositions. There are no complex dtypes: (real, imaginary) are the last axis, of 2.
 *
 * Cooley and Tukey's, by large factors: n = p q is q sums over p, a turn of each value, and p sums over q; a sum over p of
 * pairs is a product with a matrix (2p, 2p) of cosines and sines, which is what matrices are fast for. A large prime goes
 * through a convolution of a length that has small factors (Bluestein's). Tables are made in f64 and rounded once. */
#include "tensor/build.h"

#include <math.h>

enum { WHOLE = 64, LARGEST_PRIME = 512 }; /* in one product: any n up to the one, primes up to the other */

#define L(like, v) ki_t_lit(k, like, v)

/* cos and sin of 2 pi i / n for an integer tensor i, as dtype t; stored, as many read them. */
static bool circle(kn_ctx *k, kn_uop i, int64_t n, kn_dtype t, kn_uop *c, kn_uop *s) {
    kn_uop turn = i ? ki_t_binary(k, KN_MOD, i, L(i, (double)n)) : NULL;
    kn_uop angle =
        ki_t_mul(k, ki_t_cast(k, turn, KN_F64), ki_t_const(k, KN_F64, 2 * 3.14159265358979323846 / (double)n));
    *c = ki_t_cast(k, ki_t_cos(k, angle), t);
    *s = ki_t_cast(k, ki_t_sin(k, angle), t);
    return *c && *s;
}
static kn_uop stored(kn_ctx *k, kn_uop x) { return x ? ki_op1(&k->ir, KN_CONTIGUOUS, x) : NULL; }

/* x (.., n, 2) summed with the roots of one: a product with (2n, 2n). sign: of the exponent. */
static kn_uop direct(kn_ctx *k, kn_uop x, int64_t n, int sign) {
    kn_dtype t = (kn_dtype)x->dtype;
    kn_uop i = ki_t_iota(k, n, KN_I64), c, s;
    if (!i || !circle(k, ki_t_mul(k, RESHAPE(i, n, 1, 1, 1), RESHAPE(i, 1, 1, n, 1)), n, t, &c, &s)) return NULL;
    kn_uop two = ki_t_iota(k, 2, KN_I32), from = RESHAPE(two, 1, 2, 1, 1), to = RESHAPE(two, 1, 1, 1, 2);
    kn_uop plus = sign > 0 ? ki_t_lt(k, from, to) : ki_t_gt(k, from, to);
    kn_uop table = stored(k, ki_t_where(k, ki_t_eq(k, from, to), c, ki_t_where(k, plus, s, ki_t_neg(k, s))));
    ki_shape own = ki_shape_like(x), flat = own;
    flat.n--;
    flat.d[flat.n - 1].n = 2 * n;
    return ki_t_reshape_to(k, ki_t_matmul(k, ki_t_reshape_to(k, x, &flat), RESHAPE(table, 2 * n, 2 * n)), &own);
}

/* Pairs x (.., 2) times c + i s, broadcast; s turned by sign. */
static kn_uop turned(kn_ctx *k, kn_uop x, kn_uop c, kn_uop s, int sign) {
    if (!x || !c || !s) return NULL;
    unsigned last = ki_rank(x) - 1;
    kn_uop first = ki_t_eq(k, ki_t_iota(k, 2, KN_I32), ki_t_const(k, KN_I32, 0));
    c = ki_t_unsqueeze(k, c, ki_rank(c)), s = ki_t_unsqueeze(k, s, ki_rank(s));
    kn_uop minus = ki_t_neg(k, s), across = sign > 0 ? ki_t_where(k, first, minus, s) : ki_t_where(k, first, s, minus);
    return ki_t_add(k, ki_t_mul(k, x, c), ki_t_mul(k, ki_t_flip_axis(k, x, last), across));
}

/* The largest factor up to WHOLE, else the least prime. */
static int64_t factor(int64_t n) {
    for (int64_t p = n < WHOLE ? n : WHOLE; p > 1; p--)
        if (n % p == 0) return p;
    for (int64_t p = WHOLE + 1; p * p <= n; p++)
        if (n % p == 0) return p;
    return n;
}

/* Factor by factor: (.., done, m, 2), of which m = p q is summed over p. What becomes of j = q j1 + j2 is k1 + p k2: the new
 * digit stands above those that are done. large: for primes that no product takes. */
static kn_uop in_steps(kn_ctx *k, kn_uop x, int64_t n, int sign, kn_uop (*large)(kn_ctx *, kn_uop, int64_t, int)) {
    unsigned a = ki_rank(x) - 2;
    ki_shape own = ki_shape_like(x), s = own;
    if (own.n + 2 > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK - 2);
    s.n += 2;
    for (int64_t done = 1, left = n; left > 1 && x;) {
        int64_t p = factor(left), q = left / p;
        s.d[a].n = done, s.d[a + 1].n = p, s.d[a + 2].n = q, s.d[a + 3].n = 2;
        x = ki_t_move(k, ki_t_reshape_to(k, x, &s), a + 1, a + 2); /* (.., done, q, p, 2) */
        x = !x ? NULL : p <= LARGEST_PRIME || !large ? direct(k, x, p, sign) : large(k, x, p, sign);
        if (q > 1) {
            kn_uop c, sn,
                i = ki_t_mul(k, RESHAPE(ki_t_iota(k, q, KN_I64), q, 1), RESHAPE(ki_t_iota(k, p, KN_I64), 1, p));
            if (!circle(k, i, left, (kn_dtype)(x ? x->dtype : KN_F32), &c, &sn)) return NULL;
            x = stored(k, turned(k, x, stored(k, c), stored(k, sn), sign));
        }
        x = ki_t_move(k, x, a + 2, a); /* (.., p, done, q, 2) */
        done *= p, left = q;
    }
    return ki_t_reshape_to(k, x, &own);
}

/* j k = (j^2 + k^2 - (k - j)^2) / 2: turned values, a convolution, turned back. */
static kn_uop by_convolution(kn_ctx *k, kn_uop x, int64_t n, int sign) {
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    unsigned a = ki_rank(x) - 2;
    kn_dtype t = (kn_dtype)x->dtype;
    kn_uop i = ki_t_iota(k, n, KN_I64), c, s;
    if (!i || !circle(k, ki_t_mul(k, i, i), 2 * n, t, &c, &s)) return NULL;
    c = stored(k, c), s = stored(k, s);
    kn_uop y = ki_t_pad_axis(k, turned(k, x, c, s, sign), a, 0, m - n);
    /* The other factor, whose sign is the opposite: at 0 .. n-1, and from the end at -1 .. -(n-1). */
    kn_uop pair = c && s ? ki_opn(&k->ir, KN_STACK, (kn_uop[]){c, sign > 0 ? ki_t_neg(k, s) : s}, 2) : NULL;
    kn_uop h = ki_t_move(k, pair, 0, 1); /* (n, 2) */
    if (!h || !y) return NULL;
    kn_uop back = ki_t_flip_axis(k, ki_t_narrow(k, h, 0, 1, n - 1), 0);
    h = ki_t_cat(k, (kn_uop[]){ki_t_pad_axis(k, h, 0, 0, m - 2 * n + 1), back}, 2, 0);
    y = stored(k, in_steps(k, stored(k, y), m, -1, NULL));
    h = h ? stored(k, in_steps(k, stored(k, h), m, -1, NULL)) : NULL;
    kn_uop hc = h ? ki_t_squeeze(k, ki_t_narrow(k, h, 1, 0, 1), 2) : NULL,
           hs = h ? ki_t_squeeze(k, ki_t_narrow(k, h, 1, 1, 1), 2) : NULL;
    y = stored(k, turned(k, y, hc, hs, 1));
    y = y ? ki_t_narrow(k, in_steps(k, y, m, 1, NULL), a, 0, n) : NULL;
    y = turned(k, y, c, s, sign);
    return y ? ki_t_mul(k, y, L(y, 1 / (double)m)) : NULL;
}

static kn_uop dft(kn_ctx *k, kn_uop x, int64_t n, int sign) { return in_steps(k, x, n, sign, by_convolution); }

/* Pairs, in a dtype to compute with. */
static kn_uop pairs(kn_ctx *k, kn_uop x, kn_dtype *t) {
    unsigned rank = ki_rank(x);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, rank);
    if (!ki_shape_known(k, x)) return NULL;
    if (ki_dim_n(x, rank - 1) != 2) return FAIL(KI_E_FFT_PAIR, k->fn, (long long)ki_dim_n(x, rank - 1));
    *t = ki_fraction((kn_dtype)x->dtype);
    return ki_t_cast(k, x, ki_dtypes[*t].bits < 32 ? KN_F32 : *t);
}

static kn_uop over_axis(kn_ctx *k, kn_uop x, unsigned axis, int sign) {
    if (!x) return NULL;
    unsigned last = ki_rank(x) - 2;
    int64_t n = ki_dim_n(x, axis);
    if (n <= 1) return x;
    kn_uop y = dft(k, ki_t_move(k, x, axis, last), n, sign);
    if (sign > 0 && y) y = ki_t_mul(k, y, L(y, 1 / (double)n));
    return ki_t_move(k, y, last, axis);
}

static kn_tensor transformed(kn_tensor x, kn_ints axes, int sign, const char *fn) {
    ENTER(fn, x);
    kn_dtype t;
    uint32_t bits;
    kn_uop u = pairs(k, x->u, &t);
    if (!u || !ki_axes(k, axes, ki_rank(u) - 1, &bits)) return ki_handle(k, NULL);
    for (unsigned i = 0; i + 1 < ki_rank(x->u) && u; i++)
        if (bits >> i & 1) u = over_axis(k, u, i, sign);
    return ki_handle(k, ki_t_cast(k, u, t));
}
kn_tensor kn_fft(kn_tensor x, kn_ints axes) { return transformed(x, axes, -1, "fft"); }
kn_tensor kn_ifft(kn_tensor x, kn_ints axes) { return transformed(x, axes, 1, "ifft"); }

/* Of real values: the first half of what comes out, which the other half mirrors. */
static kn_tensor half_of(kn_tensor x, int axis, int sign, const char *fn) {
    ENTER(fn, x);
    kn_uop u = ki_t_float(k, x->u);
    int a = ki_axis(k, axis, ki_rank(x->u));
    if (a < 0 || !ki_shape_known(k, u)) return ki_handle(k, NULL);
    if (ki_rank(u) == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK - 1), ki_handle(k, NULL);
    kn_dtype t;
    u = ki_t_pad_axis(k, ki_t_unsqueeze(k, u, ki_rank(u)), ki_rank(u), 0, 1);
    u = u ? over_axis(k, pairs(k, u, &t), (unsigned)a, sign) : NULL;
    return ki_handle(k,
                     u ? ki_t_cast(k, ki_t_narrow(k, u, (unsigned)a, 0, ki_dim_n(u, (unsigned)a) / 2 + 1), t) : NULL);
}
kn_tensor kn_rfft(kn_tensor x, int axis) { return half_of(x, axis, -1, "rfft"); }
kn_tensor kn_ihfft(kn_tensor x, int axis) { return half_of(x, axis, 1, "ihfft"); }

/* To n real values, of the first half of n pairs. */
static kn_tensor real_of(kn_tensor x, int64_t n, int axis, int sign, const char *fn) {
    ENTER(fn, x);
    kn_dtype t;
    kn_uop u = pairs(k, x->u, &t);
    int a = u ? ki_axis(k, axis, ki_rank(u) - 1) : -1;
    if (a < 0) return ki_handle(k, NULL);
    unsigned at = (unsigned)a, last = ki_rank(u) - 1;
    int64_t half = n / 2 + 1, have = ki_dim_n(u, at);
    if (n < 1 || n > INT64_C(1) << 40) return FAIL(KI_E_SIZE_RANGE, k->fn, (long long)n, at), ki_handle(k, NULL);
    u = have < half ? ki_t_pad_axis(k, u, at, 0, half - have) : ki_t_narrow(k, u, at, 0, half);
    /* The other half is the first one mirrored, its imaginary parts negated; those of the ends do not count. */
    kn_uop first = ki_t_eq(k, ki_t_iota(k, 2, KN_I32), ki_t_const(k, KN_I32, 0));
    kn_uop rest = n > 2 ? ki_t_flip_axis(k, ki_t_narrow(k, u, at, 1, (n - 1) / 2), at) : NULL;
    kn_uop whole = rest ? ki_t_cat(k, (kn_uop[]){u, ki_t_where(k, first, rest, ki_t_neg(k, rest))}, 2, a) : u;
    ki_shape s = ki_shape_like(u);
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == at ? n : 1;
    kn_uop i = ki_t_reshape_to(k, ki_t_iota(k, n, KN_I64), &s);
    kn_uop end = i ? ki_t_eq(k, i, L(i, 0)) : NULL;
    if (end && n % 2 == 0) end = ki_t_binary(k, KN_OR, end, ki_t_eq(k, i, L(i, (double)(n / 2))));
    kn_uop imaginary = end ? ki_t_binary(k, KN_AND, end, ki_t_unary(k, KN_NOT, first)) : NULL;
    whole = whole ? ki_t_where(k, imaginary, L(whole, 0), whole) : NULL;
    kn_uop y = over_axis(k, whole, at, sign);
    y = y ? ki_t_squeeze(k, ki_t_narrow(k, y, last, 0, 1), UINT32_C(1) << last) : NULL;
    return ki_handle(k, ki_t_cast(k, y, t));
}
kn_tensor kn_irfft(kn_tensor x, int64_t n, int axis) { return real_of(x, n, axis, 1, "irfft"); }
kn_tensor kn_hfft(kn_tensor x, int64_t n, int axis) { return real_of(x, n, axis, -1, "hfft"); }

/* ---- frequencies ------------------------------------------------------------------------------------------------ */

/* 0, 1, .. in units of 1 / (n d); from the middle on negative, or only to there. */
static kn_tensor frequencies(kn_ctx *k, const char *fn, int64_t n, bool half, double d, kn_dtype t) {
    ENTER_CTX(fn);
    if (n < 1 || n > INT64_C(1) << 40) return FAIL(KI_E_SIZE_RANGE, fn, (long long)n, 0u), ki_handle(k, NULL);
    if ((unsigned)t >= KI_DTYPE_COUNT || !ki_is_float(t))
        return FAIL(KI_E_DTYPE_GIVEN, fn, (unsigned)t < KI_DTYPE_COUNT ? ki_dtypes[t].name : "?", "a float"),
               ki_handle(k, NULL);
    kn_uop i = ki_t_iota(k, half ? n / 2 + 1 : n, KN_I64);
    if (i && !half) i = ki_t_where(k, ki_t_ge(k, i, L(i, (double)((n + 1) / 2))), ki_t_sub(k, i, L(i, (double)n)), i);
    return ki_handle(k,
                     ki_t_cast(k, ki_t_mul(k, ki_t_cast(k, i, KN_F64), ki_t_const(k, KN_F64, 1 / ((double)n * d))), t));
}
kn_tensor kn_fftfreq(kn_ctx *k, int64_t n, double spacing, kn_dtype t) {
    return frequencies(k, "fftfreq", n, false, spacing, t);
}
kn_tensor kn_rfftfreq(kn_ctx *k, int64_t n, double spacing, kn_dtype t) {
    return frequencies(k, "rfftfreq", n, true, spacing, t);
}

static kn_tensor shifted(kn_tensor x, kn_ints axes, bool back, const char *fn) {
    ENTER(fn, x);
    uint32_t bits;
    kn_uop u = x->u;
    if (!ki_axes(k, axes, ki_rank(u), &bits) || !ki_shape_known(k, u)) return ki_handle(k, NULL);
    for (unsigned i = 0; i < ki_rank(x->u) && u; i++) {
        int64_t n = ki_dim_n(u, i), by = back ? n / 2 : n - n / 2;
        if (bits >> i & 1 && n > 1) u = ki_t_narrow(k, ki_t_tile_axis(k, u, i, 2), i, by, n);
    }
    return ki_handle(k, u);
}
kn_tensor kn_fftshift(kn_tensor x, kn_ints axes) { return shifted(x, axes, false, "fftshift"); }
kn_tensor kn_ifftshift(kn_tensor x, kn_ints axes) { return shifted(x, axes, true, "ifftshift"); }
