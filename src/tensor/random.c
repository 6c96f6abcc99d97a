/* random.c: random tensors by the counter-based generator Threefry 2x32 of 20 rounds (the THREEFRY op).
 *
 * The scheme, which is part of the library's promise: a call on n elements takes the counters base .. base+n-1, where
 * base is the sum of the sizes of the calls before it; element i (row-major) is the 64 bits threefry(base + i, seed).
 *  - f32 uniform: top 24 bits of the low word / 2^24; f64: top 53 of all 64; f16 11, bf16 8 bits of the low word.
 *  - normal: Box and Muller on both words, with logarithm and cosine written out in multiplications, additions and one
 *    square root, which every device rounds alike: the same bits everywhere.
 *  - integers: floor(low word * range / 2^32), or all 64 bits modulo the range when it is larger than 2^32.
 * seed and base reach the graph through a buffer, not as constants: a step rebuilt with fresh numbers is the same
 * program. */
#include "tensor/build.h"

#include <math.h>
#include <string.h>

#define L(v) ki_t_lit(k, x, v)

void kn_manual_seed(kn_ctx *k, uint64_t seed) {
    k->rng_seed = seed;
    k->rng_counter = 0;
}

kn_uop ki_t_rand_bits(kn_ctx *k, const ki_shape *s) {
    const ki_type *type = ki_type_make(&k->ir, s->n, s->d, 0, -1);
    kn_uop state = type ? ki_buffer_new(k, 2, KN_U64, k->device) : NULL;
    if (!state || !ki_storage_host(k, ki_storage_of(k, state), 16)) return NULL;
    uint64_t v[2] = {k->rng_counter, k->rng_seed};
    memcpy(ki_storage_of(k, state)->data, v, sizeof v);
    k->rng_counter += (uint64_t)type->numel;
    kn_uop base = ki_t_squeeze(k, ki_t_narrow(k, state, 0, 0, 1), 1),
           key = ki_t_squeeze(k, ki_t_narrow(k, state, 0, 1, 1), 1);
    kn_uop i = ki_t_iota(k, type->numel, KN_U64);
    return ki_t_reshape_to(k, ki_t_binary(k, KN_THREEFRY, ki_t_add(k, base, i), key), s);
}

static kn_uop low_word(kn_ctx *k, kn_uop bits) { return ki_t_cast(k, bits, KN_U32); }
static kn_uop high_word(kn_ctx *k, kn_uop bits) {
    return ki_t_cast(k, ki_t_binary(k, KN_SHR, bits, ki_t_lit(k, bits, 32)), KN_U32);
}

/* The top n bits of a word as a fraction of dtype t. */
static kn_uop fraction(kn_ctx *k, kn_uop word, unsigned width, unsigned n, kn_dtype t) {
    kn_uop top = ki_t_binary(k, KN_SHR, word, ki_t_lit(k, word, width - n));
    return ki_t_mul(k, ki_t_cast(k, top, t), ki_t_const(k, t, ldexp(1, -(int)n)));
}

static kn_uop uniform_from(kn_ctx *k, kn_uop bits, kn_dtype t) {
    if (t == KN_F64) return fraction(k, bits, 64, 53, t);
    unsigned n = t == KN_F32 ? 24 : t == KN_F16 ? 11 : t == KN_BF16 ? 8 : t == KN_F8E4M3 ? 4 : 3;
    return fraction(k, low_word(k, bits), 32, n, t);
}

kn_uop ki_t_rand(kn_ctx *k, const ki_shape *s, kn_dtype t) { return uniform_from(k, ki_t_rand_bits(k, s), t); }

/* Natural logarithm of a normal f32 x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh(z) with
 * z = (m - 1) / (m + 1) as its series. Only exactly rounded operations. */
static kn_uop plain_log(kn_ctx *k, kn_uop x) {
    kn_uop bits = x ? ki_bitcast(&k->ir, x, KN_I32) : NULL;
    kn_uop from = ki_t_sub(k, bits, ki_t_lit(k, bits, 0x3f3504f3)); /* sqrt(1/2) */
    kn_uop e = ki_t_binary(k, KN_SHR, from, ki_t_lit(k, bits, 23));
    kn_uop m = ki_t_sub(k, bits, ki_t_binary(k, KN_SHL, e, ki_t_lit(k, bits, 23)));
    m = m ? ki_bitcast(&k->ir, m, KN_F32) : NULL;
    kn_uop z = ki_t_div(k, ki_t_sub(k, m, x ? L(1) : NULL), ki_t_add(k, m, x ? L(1) : NULL)), q = ki_t_mul(k, z, z);
    if (!q) return NULL;
    kn_uop p = L(2.0 / 9);
    for (int n = 7; n >= 1; n -= 2) p = ki_t_add(k, ki_t_mul(k, p, q), L(2.0 / n));
    return ki_t_add(k, ki_t_mul(k, ki_t_cast(k, e, KN_F32), L(0.69314718055994530942)), ki_t_mul(k, z, p));
}

/* cos(2 pi u) of a 32-bit word u / 2^32: the word's top three bits are the octant, the rest an angle below pi/4. */
static kn_uop plain_cos(kn_ctx *k, kn_uop word) {
    if (!word) return NULL;
    kn_uop turned = ki_t_add(k, word, ki_t_lit(k, word, 0x20000000)); /* octants centred on the quarters */
    kn_uop quarter = ki_t_binary(k, KN_SHR, turned, ki_t_lit(k, word, 30));
    kn_uop rest = ki_t_binary(k, KN_AND, turned, ki_t_lit(k, word, 0x3fffffff));
    kn_uop x = ki_t_cast(k, ki_t_sub(k, ki_t_cast(k, rest, KN_I32), ki_t_const(k, KN_I32, 0x20000000)), KN_F32);
    if (!x) return NULL;
    x = ki_t_mul(k, x, L(1.4629180792671596e-09)); /* 2 pi / 2^32: |x| <= pi/4 */
    kn_uop q = ki_t_mul(k, x, x), c = L(1.0 / 40320), s = L(1.0 / 362880);
    static const double cs[] = {-1.0 / 720, 1.0 / 24, -0.5, 1}, ss[] = {-1.0 / 5040, 1.0 / 120, -1.0 / 6, 1};
    for (int n = 0; n < 4; n++) {
        c = ki_t_add(k, ki_t_mul(k, c, q), L(cs[n]));
        s = ki_t_add(k, ki_t_mul(k, s, q), L(ss[n]));
    }
    s = ki_t_mul(k, s, x);
    /* cos(x + j pi/2) for j = 0..3: c, -s, -c, s */
    kn_uop odd = ki_t_ne(k, ki_t_binary(k, KN_AND, quarter, ki_t_lit(k, word, 1)), ki_t_lit(k, word, 0));
    kn_uop v = ki_t_where(k, odd, s, c), minus = ki_t_binary(k, KN_OR, ki_t_eq(k, quarter, ki_t_lit(k, word, 1)),
                                                             ki_t_eq(k, quarter, ki_t_lit(k, word, 2)));
    return ki_t_where(k, minus, ki_t_neg(k, v), v);
}

static kn_uop normal(kn_ctx *k, const ki_shape *s) {
    kn_uop bits = ki_t_rand_bits(k, s), lo = low_word(k, bits);
    /* (word + 1) / 2^32, in (0, 1] */
    kn_uop x =
        ki_t_mul(k, ki_t_add(k, ki_t_cast(k, lo, KN_F32), ki_t_const(k, KN_F32, 1)), ki_t_const(k, KN_F32, 0x1p-32));
    if (!x) return NULL;
    kn_uop radius = ki_t_sqrt(k, ki_t_max(k, ki_t_mul(k, L(-2), plain_log(k, x)), L(0)));
    return ki_t_mul(k, radius, plain_cos(k, high_word(k, bits)));
}

/* ---- public ------------------------------------------------------------------------------------------------ */

static bool float_shape(kn_ctx *k, const char *fn, kn_ints shape, kn_dtype t, ki_shape *s) {
    ENTER_CTX(fn);
    if ((unsigned)t >= KI_DTYPE_COUNT || !ki_is_float(t))
        return FAIL(KI_E_DTYPE_GIVEN, fn, kn_dtype_name(t), "a float dtype");
    if (!ki_shape_read(k, shape, s)) return false;
    for (unsigned i = 0; i < s->n; i++)
        if (s->d[i].sym) return FAIL(KI_E_SYMBOLIC_DATA, fn);
    return true;
}
kn_tensor kn_rand_as(kn_ctx *k, kn_ints shape, kn_dtype t) {
    ki_shape s;
    return ki_handle(k, float_shape(k, "rand", shape, t, &s) ? ki_t_rand(k, &s, t) : NULL);
}
kn_tensor kn_randn_as(kn_ctx *k, kn_ints shape, kn_dtype t) {
    ki_shape s;
    return ki_handle(k, float_shape(k, "randn", shape, t, &s) ? ki_t_cast(k, normal(k, &s), t) : NULL);
}
kn_tensor kn_rand(kn_ctx *k, kn_ints shape) { return kn_rand_as(k, shape, KN_F32); }
kn_tensor kn_randn(kn_ctx *k, kn_ints shape) { return kn_randn_as(k, shape, KN_F32); }

kn_tensor kn_uniform(kn_ctx *k, kn_ints shape, double lo, double hi) {
    ki_shape s;
    if (!float_shape(k, "uniform", shape, KN_F32, &s)) return ki_handle(k, NULL);
    kn_uop x = ki_t_rand(k, &s, KN_F32);
    return ki_handle(k, x ? ki_t_add(k, ki_t_mul(k, x, L(hi - lo)), L(lo)) : NULL);
}
kn_tensor kn_normal(kn_ctx *k, kn_ints shape, double mean, double deviation) {
    ki_shape s;
    if (!float_shape(k, "normal", shape, KN_F32, &s)) return ki_handle(k, NULL);
    kn_uop x = normal(k, &s);
    return ki_handle(k, x ? ki_t_add(k, ki_t_mul(k, x, L(deviation)), L(mean)) : NULL);
}

kn_tensor kn_randint(kn_ctx *k, kn_ints shape, int64_t lo, int64_t hi, kn_dtype t) {
    ki_shape s;
    if (!float_shape(k, "randint", shape, KN_F32, &s)) return ki_handle(k, NULL);
    if ((unsigned)t >= KI_DTYPE_COUNT || ki_is_float(t) || t == KN_VOID || t == KN_IDX)
        return FAIL(KI_E_DTYPE_GIVEN, "randint", kn_dtype_name(t), "an integer dtype"), ki_handle(k, NULL);
    if (lo >= hi) return FAIL(KI_E_RANDINT_RANGE, (long long)lo, (long long)hi), ki_handle(k, NULL);
    uint64_t range = (uint64_t)hi - (uint64_t)lo;
    kn_uop bits = ki_t_rand_bits(k, &s), r = ki_const_bits(&k->ir, KN_U64, range), v;
    if (range <= UINT64_C(1) << 32) {
        kn_uop low = ki_t_binary(k, KN_AND, bits, ki_const_bits(&k->ir, KN_U64, UINT32_MAX));
        v = ki_t_binary(k, KN_SHR, ki_t_mul(k, low, r), ki_t_const(k, KN_U64, 32));
    } else {
        v = ki_t_binary(k, KN_MOD, bits, r);
    }
    v = ki_t_add(k, ki_t_cast(k, v, KN_I64), ki_const_int(&k->ir, KN_I64, lo));
    return ki_handle(k, ki_t_cast(k, v, t));
}

kn_tensor kn_bernoulli(kn_tensor p) {
    ENTER("bernoulli", p);
    kn_uop x = ki_t_float(k, p->u);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    ki_shape s = ki_shape_like(x);
    return ki_handle(
        k, ki_t_cast(k, ki_t_lt(k, ki_t_rand(k, &s, x->dtype == KN_F64 ? KN_F64 : KN_F32), x), (kn_dtype)x->dtype));
}

kn_tensor kn_dropout(kn_tensor t, double p) {
    ENTER("dropout", t);
    kn_uop x = ki_t_float(k, t->u);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (!(p >= 0 && p <= 1)) return FAIL(KI_E_PROBABILITY, "dropout", p), ki_handle(k, NULL);
    if (p == 0) return ki_handle(k, x);
    ki_shape s = ki_shape_like(x);
    kn_uop r = ki_t_rand(k, &s, KN_F32), kept = r ? ki_t_ge(k, r, ki_t_lit(k, r, p)) : NULL;
    return ki_handle(k, ki_t_where(k, kept, ki_t_mul(k, x, L(p < 1 ? 1 / (1 - p) : 0)), L(0)));
}

kn_tensor kn_threefry(kn_tensor counter, kn_tensor key) {
    ENTER("threefry", counter, key);
    if (counter->u->dtype != KN_U64 || key->u->dtype != KN_U64)
        return FAIL(KI_E_FN_DTYPE, "threefry",
                    ki_dtypes[counter->u->dtype == KN_U64 ? key->u->dtype : counter->u->dtype].name, "u64"),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_binary(k, KN_THREEFRY, counter->u, key->u));
}
