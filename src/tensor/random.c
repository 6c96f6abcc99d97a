/* random.c: random tensors by the counter-based generator Threefry 2x32 of 20 rounds (the THREEFRY op), and its keys.
 *
 * The scheme, which is part of the library's promise: a call on n elements takes n counters, and element i (row-major) is
 * the 64 bits that the generator makes of the i-th.
 *  - Of the context's stream: threefry(base + i, seed), where base counts those that the calls before it took. f32 uniform: top 24
 *    bits of the low word / 2^24; f64: top 53 of all 64; f16 11, bf16 8 bits of the low word.
 *  - Of a key: JAX's threefry2x32 with jax_threefry_partitionable: counter i, its high word first, is the input, the key's high
 *    word the first of the key; 32 bits are both words' exclusive or, 64 the first word above the second, 16 and 8 the
 *    low ones of the 32; f32 uniform: top 23 of 32 bits, f64 52 of 64, f16 10 of 16, bf16 7 of 8. Key i of a split is what
 *    the generator makes of i.
 *  - normal: Box and Muller on both words, in functions that every device rounds alike: the same bits everywhere.
 *  - integers: floor(low word * range / 2^32), or all 64 bits modulo the range when it is larger than 2^32.
 * seed, base and keys reach the graph through buffers, not as constants: a step rebuilt with fresh numbers is the same
 * program. */
#include "tensor/random.h"

#include <math.h>
#include <string.h>

#define L(v) ki_t_lit(k, x, v)

/* ---- streams ------------------------------------------------------------------------------------------------ */

void kn_manual_seed(kn_ctx *k, uint64_t seed) {
    if (!k) return;
    k->rng_seed = seed;
    k->rng_counter = 0;
}

/* n numbers in a buffer, (n,). */
static kn_uop numbers(kn_ctx *k, const uint64_t *v, int64_t n) {
    kn_uop b = ki_buffer_new(k, n, KN_U64, k->device);
    if (!b || !ki_storage_host(k, ki_storage_of(k, b), (size_t)n * sizeof *v)) return NULL;
    memcpy(ki_storage_of(k, b)->data, v, (size_t)n * sizeof *v);
    return b;
}

kn_tensor ki_key_enter(kn_ctx *k, const char *fn, kn_tensor key) {
    kn_ctx *own;
    char s[128];
    if (!key) return NULL;
    kn_tensor bad = ki_enter(&own, fn, &key, 1, 0);
    if (bad) return bad;
    if (own != k) return ki_fail(&k->env, KI_E_TENSOR_CONTEXT, fn), ki_handle(k, NULL);
    if (key->u->dtype != KN_U64 || ki_rank(key->u))
        return FAIL(KI_E_KEY, fn, ki_dtypes[key->u->dtype].name, ki_shape_text(key->u->type, s, sizeof s)),
               ki_handle(k, NULL);
    return NULL;
}

/* The words of u64 in the other order. */
static kn_uop swapped(kn_ctx *k, kn_uop x) {
    return x ? ki_t_binary(k, KN_OR, ki_t_binary(k, KN_SHL, x, L(32)), ki_t_binary(k, KN_SHR, x, L(32))) : NULL;
}

bool ki_stream_open(kn_ctx *k, ki_stream *o, kn_tensor key, int64_t count) {
    *o = (ki_stream){.wide = count > INT64_C(1) << 32};
    if (key) {
        o->key = swapped(k, key->u);
        return o->key != NULL;
    }
    uint64_t v[2] = {k->rng_counter, k->rng_seed};
    kn_uop state = numbers(k, v, 2);
    if (state) ki_storage_of(k, state)->drawn = (uint64_t)count;
    o->base = ki_t_squeeze(k, ki_t_narrow(k, state, 0, 0, 1), 1);
    o->key = ki_t_squeeze(k, ki_t_narrow(k, state, 0, 1, 1), 1);
    k->rng_counter += (uint64_t)count;
    return o->base && o->key;
}

kn_uop ki_stream_at(kn_ctx *k, const ki_stream *o, kn_uop counter) {
    if (!counter) return NULL;
    if (o->base) counter = ki_t_add(k, o->base, counter);
    else counter = o->wide ? swapped(k, counter) : ki_t_binary(k, KN_SHL, counter, ki_t_lit(k, counter, 32));
    return ki_t_binary(k, KN_THREEFRY, counter, o->key);
}

kn_uop ki_stream_draw(kn_ctx *k, const ki_stream *o, const ki_shape *s) {
    const ki_type *type = ki_type_make(&k->ir, s->n, s->d, 0, -1);
    return type ? ki_t_reshape_to(k, ki_stream_at(k, o, ki_t_iota(k, type->numel, KN_U64)), s) : NULL;
}

kn_uop ki_drawn(kn_ctx *k, kn_tensor key, const ki_shape *s) {
    const ki_type *type = ki_type_make(&k->ir, s->n, s->d, 0, -1);
    ki_stream o;
    return type && ki_stream_open(k, &o, key, type->numel) ? ki_stream_draw(k, &o, s) : NULL;
}

kn_uop ki_word32(kn_ctx *k, kn_uop bits, unsigned which) {
    if (which) bits = bits ? ki_t_binary(k, KN_SHR, bits, ki_t_lit(k, bits, 32)) : NULL;
    return ki_t_cast(k, bits, KN_U32);
}

/* All bits, or 32 of them: of a key as JAX has them. */
static kn_uop bits_of(kn_ctx *k, kn_uop bits, bool keyed, bool wide) {
    if (wide) return keyed ? swapped(k, bits) : bits;
    return keyed ? ki_t_binary(k, KN_XOR, ki_word32(k, bits, 0), ki_word32(k, bits, 1)) : ki_word32(k, bits, 0);
}

/* ---- uniform and normal -------------------------------------------------------------------------------------- */

/* Which bits make a fraction: the top n of the low `of`; of a key those of JAX, one fewer. */
typedef struct kind {
    kn_dtype t, word;
    uint8_t of, n;
} kind;

kn_uop ki_uniform(kn_ctx *k, kn_uop bits, bool keyed, kn_dtype t) {
    static const kind kinds[2][6] = {{{KN_F64, KN_U64, 64, 53},
                                      {KN_F32, KN_U32, 32, 24},
                                      {KN_F16, KN_U32, 32, 11},
                                      {KN_BF16, KN_U32, 32, 8},
                                      {KN_F8E4M3, KN_U32, 32, 4},
                                      {KN_F8E5M2, KN_U32, 32, 3}},
                                     {{KN_F64, KN_U64, 64, 52},
                                      {KN_F32, KN_U32, 32, 23},
                                      {KN_F16, KN_U16, 16, 10},
                                      {KN_BF16, KN_U8, 8, 7},
                                      {KN_F8E4M3, KN_U8, 8, 3},
                                      {KN_F8E5M2, KN_U8, 8, 2}}};
    const kind *m = kinds[keyed];
    while (m->t != t) m++;
    kn_uop word = ki_t_cast(k, bits_of(k, bits, keyed, t == KN_F64), m->word);
    kn_uop top = word ? ki_t_binary(k, KN_SHR, word, ki_t_lit(k, word, m->of - m->n)) : NULL;
    return ki_t_mul(k, ki_t_cast(k, top, t), ki_t_const(k, t, ldexp(1, -m->n)));
}

kn_uop ki_normal(kn_ctx *k, kn_uop bits, kn_dtype t) {
    /* (word + 1) / 2^32, in (0, 1] */
    kn_uop x = ki_t_mul(k, ki_t_add(k, ki_t_cast(k, ki_word32(k, bits, 0), t), ki_t_const(k, t, 1)),
                        ki_t_const(k, t, 0x1p-32)),
           turn;
    if (!x) return NULL;
    ki_plain_turn(k, ki_word32(k, bits, 1), NULL, t, &turn, NULL);
    return ki_t_mul(k, ki_t_sqrt(k, ki_t_max(k, ki_t_mul(k, L(-2), ki_plain_log(k, x)), L(0))), turn);
}

/* ---- public ------------------------------------------------------------------------------------------------ */

bool ki_draw_shape(kn_ctx *k, const char *fn, kn_ints shape, kn_dtype t, ki_shape *s) {
    if ((unsigned)t >= KI_DTYPE_COUNT || !ki_is_float(t))
        return FAIL(KI_E_DTYPE_GIVEN, fn, kn_dtype_name(t), "a float dtype");
    if (!ki_shape_read(k, shape, s)) return false;
    for (unsigned i = 0; i < s->n; i++)
        if (s->d[i].sym) return FAIL(KI_E_SYMBOLIC_DATA, fn);
    return true;
}

/* Keys in a buffer, not as constants: another key is the same program. */
kn_tensor kn_key(kn_ctx *k, uint64_t seed) {
    ENTER_CTX("key");
    kn_uop b = numbers(k, &seed, 1);
    return ki_handle(k, ki_t_squeeze(k, b, 1));
}
/* The generator's words for counter i are key i's; ki_stream_at reads a key with its words changed. */
static kn_uop keys_of(kn_ctx *k, kn_tensor key, kn_uop counter) {
    ki_stream o;
    return ki_stream_open(k, &o, key, INT64_MAX) ? swapped(k, ki_stream_at(k, &o, counter)) : NULL;
}
kn_tensor kn_key_split(kn_tensor key, int64_t n) {
    ENTER("key_split", key);
    kn_tensor bad = ki_key_enter(k, "key_split", key);
    if (bad) return bad;
    if (n < 0 || n > INT64_C(1) << 47) return FAIL(KI_E_KEY_COUNT, (long long)n), ki_handle(k, NULL);
    return ki_handle(k, keys_of(k, key, ki_t_iota(k, n, KN_U64)));
}
kn_tensor kn_key_fold(kn_tensor key, kn_tensor data) {
    ENTER("key_fold", key, data);
    kn_tensor bad = ki_key_enter(k, "key_fold", key);
    if (bad) return bad;
    if (ki_is_float((kn_dtype)data->u->dtype))
        return FAIL(KI_E_FN_DTYPE, "key_fold", ki_dtypes[data->u->dtype].name, "an integer dtype"), ki_handle(k, NULL);
    return ki_handle(k, keys_of(k, key, ki_t_cast(k, data->u, KN_U64)));
}

kn_tensor kn_random_bits(kn_ctx *k, kn_ints shape, kn_dtype t, kn_tensor key) {
    ENTER_KEY("random_bits", key);
    ki_shape s;
    if (t < KN_U8 || t > KN_U64)
        return FAIL(KI_E_DTYPE_GIVEN, "random_bits", kn_dtype_name(t), "u8, u16, u32 or u64"), ki_handle(k, NULL);
    if (!ki_draw_shape(k, "random_bits", shape, KN_F32, &s)) return ki_handle(k, NULL);
    return ki_handle(k, ki_t_cast(k, bits_of(k, ki_drawn(k, key, &s), key != NULL, t == KN_U64), t));
}

static kn_tensor uniform(kn_ctx *k, const char *fn, kn_ints shape, double lo, double hi, kn_dtype t, kn_tensor key) {
    ENTER_KEY(fn, key);
    ki_shape s;
    if (!ki_draw_shape(k, fn, shape, t, &s)) return ki_handle(k, NULL);
    if (!(lo <= hi)) return FAIL(KI_E_DRAW_BOUNDS, fn, lo, hi), ki_handle(k, NULL);
    kn_uop x = ki_uniform(k, ki_drawn(k, key, &s), key != NULL, t);
    if (x && lo == 0 && hi == 1) return ki_handle(k, x);
    return ki_handle(k, x ? ki_t_max(k, ki_t_add(k, ki_t_mul(k, x, ki_t_sub(k, L(hi), L(lo))), L(lo)), L(lo)) : NULL);
}
static kn_tensor normal(kn_ctx *k, const char *fn, kn_ints shape, double mean, double deviation, kn_dtype t,
                        kn_tensor key) {
    ENTER_KEY(fn, key);
    ki_shape s;
    if (!ki_draw_shape(k, fn, shape, t, &s)) return ki_handle(k, NULL);
    if (!(deviation >= 0)) return FAIL(KI_E_DRAW_SCALE, fn, deviation), ki_handle(k, NULL);
    kn_uop x = ki_normal(k, ki_drawn(k, key, &s), ki_draw_dtype(t));
    if (x && (mean != 0 || deviation != 1)) x = ki_t_add(k, ki_t_mul(k, x, L(deviation)), L(mean));
    return ki_handle(k, ki_t_cast(k, x, t));
}
kn_tensor kn_rand_as(kn_ctx *k, kn_ints shape, kn_dtype t, kn_tensor key) {
    return uniform(k, "rand", shape, 0, 1, t, key);
}
kn_tensor kn_randn_as(kn_ctx *k, kn_ints shape, kn_dtype t, kn_tensor key) {
    return normal(k, "randn", shape, 0, 1, t, key);
}
kn_tensor kn_rand(kn_ctx *k, kn_ints shape) { return kn_rand_as(k, shape, KN_F32, NULL); }
kn_tensor kn_randn(kn_ctx *k, kn_ints shape) { return kn_randn_as(k, shape, KN_F32, NULL); }
kn_tensor kn_uniform(kn_ctx *k, kn_ints shape, double lo, double hi, kn_dtype t, kn_tensor key) {
    return uniform(k, "uniform", shape, lo, hi, t, key);
}
kn_tensor kn_normal(kn_ctx *k, kn_ints shape, double mean, double deviation, kn_dtype t, kn_tensor key) {
    return normal(k, "normal", shape, mean, deviation, t, key);
}

kn_tensor kn_randint(kn_ctx *k, kn_ints shape, int64_t lo, int64_t hi, kn_dtype t, kn_tensor key) {
    ENTER_KEY("randint", key);
    ki_shape s;
    if (!ki_draw_shape(k, "randint", shape, KN_F32, &s)) return ki_handle(k, NULL);
    if ((unsigned)t >= KI_DTYPE_COUNT || ki_is_float(t) || t == KN_VOID || t == KN_IDX)
        return FAIL(KI_E_DTYPE_GIVEN, "randint", kn_dtype_name(t), "an integer dtype"), ki_handle(k, NULL);
    if (lo >= hi) return FAIL(KI_E_RANDINT_RANGE, (long long)lo, (long long)hi), ki_handle(k, NULL);
    uint64_t range = (uint64_t)hi - (uint64_t)lo;
    kn_uop bits = ki_drawn(k, key, &s), r = ki_const_bits(&k->ir, KN_U64, range), v;
    if (range <= UINT64_C(1) << 32) {
        kn_uop low = ki_t_binary(k, KN_AND, bits, ki_const_bits(&k->ir, KN_U64, UINT32_MAX));
        v = ki_t_binary(k, KN_SHR, ki_t_mul(k, low, r), ki_t_const(k, KN_U64, 32));
    } else {
        v = ki_t_binary(k, KN_MOD, bits, r);
    }
    v = ki_t_add(k, ki_t_cast(k, v, KN_I64), ki_const_int(&k->ir, KN_I64, lo));
    return ki_handle(k, ki_t_cast(k, v, t));
}

/* Uniform numbers of x's shape. */
static kn_uop beside(kn_ctx *k, kn_uop x, kn_dtype t, kn_tensor key) {
    ki_shape s = ki_shape_like(x);
    return ki_uniform(k, ki_drawn(k, key, &s), key != NULL, t);
}
kn_tensor kn_bernoulli(kn_tensor p, kn_tensor key) {
    ENTER_("bernoulli", 2, p, key);
    kn_tensor bad = ki_key_enter(k, "bernoulli", key);
    if (bad) return bad;
    kn_uop x = ki_t_float(k, p->u);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    kn_uop drawn_below = ki_t_lt(k, beside(k, x, ki_draw_dtype((kn_dtype)x->dtype), key), x);
    return ki_handle(k, ki_t_cast(k, drawn_below, (kn_dtype)x->dtype));
}

kn_tensor kn_dropout(kn_tensor t, double p, kn_tensor key) {
    ENTER_("dropout", 2, t, key);
    kn_tensor bad = ki_key_enter(k, "dropout", key);
    if (bad) return bad;
    kn_uop x = ki_t_float(k, t->u);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (!(p >= 0 && p <= 1)) return FAIL(KI_E_PROBABILITY, "dropout", p), ki_handle(k, NULL);
    if (p == 0) return ki_handle(k, x);
    kn_uop r = beside(k, x, KN_F32, key), kept = r ? ki_t_ge(k, r, ki_t_lit(k, r, p)) : NULL;
    return ki_handle(k, ki_t_where(k, kept, ki_t_mul(k, x, L(p < 1 ? 1 / (1 - p) : 0)), L(0)));
}

kn_tensor kn_rrelu(kn_tensor t, double lower, double upper, int training, kn_tensor key) {
    ENTER_("rrelu", 2, t, key);
    kn_tensor bad = ki_key_enter(k, "rrelu", key);
    if (bad) return bad;
    kn_uop x = ki_t_float(k, t->u);
    if (!(lower <= upper)) return FAIL(KI_E_DRAW_BOUNDS, "rrelu", lower, upper), ki_handle(k, NULL);
    if (training && !ki_shape_known(k, x)) return ki_handle(k, NULL);
    kn_uop slope = x ? L((lower + upper) / 2) : NULL;
    if (training && x) {
        kn_uop r = beside(k, x, ki_draw_dtype((kn_dtype)x->dtype), key);
        slope = r ? ki_t_add(k, ki_t_mul(k, r, ki_t_lit(k, r, upper - lower)), ki_t_lit(k, r, lower)) : NULL;
        slope = ki_t_cast(k, slope, (kn_dtype)x->dtype);
    }
    return ki_handle(k, ki_t_where(k, ki_t_gt(k, x, L(0)), x, ki_t_mul(k, x, slope)));
}

kn_tensor kn_threefry(kn_tensor counter, kn_tensor key) {
    ENTER("threefry", counter, key);
    if (counter->u->dtype != KN_U64 || key->u->dtype != KN_U64)
        return FAIL(KI_E_FN_DTYPE, "threefry",
                    ki_dtypes[counter->u->dtype == KN_U64 ? key->u->dtype : counter->u->dtype].name, "u64"),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_binary(k, KN_THREEFRY, counter->u, key->u));
}
