/* draw.c: distributions of a location and a scale, permutations and choices, of one counter an element (random.c). All in functions that
 * every device rounds alike (plain.c).
 *
 *  - exponential, laplace, gumbel, logistic: the inverse of their distribution, of 32 bits, or 64 for f64, in (0, 1): -log(u) is as
 *    exact near 0 as far from it, and ends at 22.9 (f64: 45).
 *  - cauchy: the tangent of a random angle.
 *  - truncated_normal: the inverse of the normal distribution, in f64 for every dtype, on the side where probabilities are small.
 *  - choices: of class i with weight p[i], the one whose p[i] / E[i] is greatest, E exponential; the n greatest are n draws without
 *    replacement, in order.
 *  - permutation: positions in the order of 64 random bits each. Two of n are equal with probability n^2 / 2^65, and stay in order. */
#include "tensor/random.h"
#include "tensor/sort.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

/* ---- of a location and a scale --------------------------------------------------------------------------------- */

typedef kn_uop standard(kn_ctx *k, kn_uop bits, kn_dtype t);

static kn_uop laplace(kn_ctx *k, kn_uop bits,
                      kn_dtype t) { /* the sign is a bit that decides little of the size, or nothing */
    kn_uop x = ki_plain_exponential(k, bits, t), sign = t == KN_F64 ? bits : ki_word32(k, bits, 1);
    if (!x || !sign) return NULL;
    sign = ki_t_binary(k, KN_AND, sign, ki_t_lit(k, sign, 1));
    return ki_t_where(k, ki_t_ne(k, sign, ki_t_lit(k, sign, 0)), ki_t_neg(k, x), x);
}
static kn_uop gumbel(kn_ctx *k, kn_uop bits, kn_dtype t) {
    return ki_t_neg(k, ki_plain_log(k, ki_plain_exponential(k, bits, t)));
}
static kn_uop cauchy(kn_ctx *k, kn_uop bits, kn_dtype t) {
    kn_uop x = ki_t_cast(k, ki_word32(k, bits, 0), t), c, s;
    kn_uop within = !x ? NULL : t == KN_F64 ? ki_t_mul(k, ki_t_add(k, x, L(0.5)), L(0x1p-32)) : L(0.5);
    ki_plain_turn(k, ki_word32(k, bits, 1), within, t, &c, &s);
    return ki_t_div(k, s, c);
}

static kn_tensor located(kn_ctx *k, const char *fn, standard *of, kn_ints shape, double location, double scale,
                         kn_dtype t, kn_tensor key) {
    ENTER_KEY(fn, key);
    ki_shape s;
    if (!ki_draw_shape(k, fn, shape, t, &s)) return ki_handle(k, NULL);
    if (!(scale >= 0)) return FAIL(KI_E_DRAW_SCALE, fn, scale), ki_handle(k, NULL);
    kn_uop x = of(k, ki_drawn(k, key, &s), ki_draw_dtype(t));
    if (x && scale != 1) x = ki_t_mul(k, x, L(scale));
    if (x && location != 0) x = ki_t_add(k, x, L(location));
    return ki_handle(k, ki_t_cast(k, x, t));
}
kn_tensor kn_exponential(kn_ctx *k, kn_ints shape, double scale, kn_dtype t, kn_tensor key) {
    return located(k, "exponential", ki_plain_exponential, shape, 0, scale, t, key);
}
#define LOCATED(name, of)                                                                                              \
    kn_tensor kn_##name(kn_ctx *k, kn_ints shape, double location, double scale, kn_dtype t, kn_tensor key) {          \
        return located(k, #name, of, shape, location, scale, t, key);                                                  \
    }
LOCATED(laplace, laplace)
LOCATED(gumbel, gumbel)
LOCATED(logistic, ki_plain_logistic)
LOCATED(cauchy, cauchy)

static double below(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

kn_tensor kn_truncated_normal(kn_ctx *k, kn_ints shape, double lo, double hi, kn_dtype t, kn_tensor key) {
    ENTER_KEY("truncated_normal", key);
    ki_shape s;
    if (!ki_draw_shape(k, "truncated_normal", shape, t, &s)) return ki_handle(k, NULL);
    if (!(lo <= hi)) return FAIL(KI_E_DRAW_BOUNDS, "truncated_normal", lo, hi), ki_handle(k, NULL);
    bool mirrored = lo > 0; /* where probabilities are small they are exact */
    double from = below(mirrored ? -hi : lo), to = below(mirrored ? -lo : hi);
    kn_uop x = ki_plain_middle(k, ki_drawn(k, key, &s), KN_F64);
    x = x ? ki_plain_normal_at(k, ki_t_add(k, ki_t_mul(k, x, L(to - from)), L(from))) : NULL;
    if (x && mirrored) x = ki_t_neg(k, x);
    return ki_handle(k, x ? ki_t_clamp(k, ki_t_cast(k, x, t), lo, hi) : NULL);
}

/* ---- order and choice ------------------------------------------------------------------------------------------ */

static kn_uop permutation(kn_ctx *k, int64_t n, kn_tensor key) {
    const ki_shape s = {1, {{n, NULL}}};
    if (n >= INT32_MAX) return FAIL(KI_E_SORT_LONG, k->fn, (long long)n);
    kn_uop bits = ki_t_stored(k, ki_drawn(k, key, &s)), at = bits ? ki_t_order(k, RESHAPE(bits, 1, n), 64) : NULL;
    return at ? RESHAPE(at, n) : NULL;
}
kn_tensor kn_permutation(kn_ctx *k, int64_t n, kn_tensor key) {
    ENTER_KEY("permutation", key);
    if (n < 0) return FAIL(KI_E_SIZE_RANGE, "permutation", (long long)n, 0u), ki_handle(k, NULL);
    return ki_handle(k, ki_t_cast(k, permutation(k, n, key), KN_I64));
}
kn_tensor kn_shuffle(kn_tensor t, int axis, kn_tensor key) {
    ENTER_("shuffle", 2, t, key);
    kn_tensor bad = ki_key_enter(k, "shuffle", key);
    if (bad) return bad;
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, t->u)) return ki_handle(k, NULL);
    kn_uop at = ki_t_stored(k, permutation(k, ki_dim_n(t->u, (unsigned)a), key));
    return ki_handle(k, ki_t_take(k, t->u, at, (unsigned)a));
}

/* x and Gumbel's numbers, in the dtype that these are drawn in. */
static kn_uop perturbed(kn_ctx *k, kn_uop x, kn_tensor key) {
    ki_shape s = ki_shape_like(x);
    kn_dtype t = ki_draw_dtype((kn_dtype)x->dtype);
    return ki_t_add(k, ki_t_cast(k, x, t), gumbel(k, ki_drawn(k, key, &s), t));
}

/* One of each row: the greatest of x + Gumbel's numbers. */
kn_tensor kn_categorical(kn_tensor logits, int axis, kn_tensor key) {
    ENTER_("categorical", 2, logits, key);
    kn_tensor bad = ki_key_enter(k, "categorical", key);
    if (bad) return bad;
    kn_uop x = ki_t_float(k, logits->u);
    int a = ki_axis(k, axis, ki_rank(logits->u));
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    return kn_argmax(ki_handle(k, perturbed(k, x, key)), a, 0);
}

kn_tensor kn_gumbel_softmax(kn_tensor logits, double tau, int hard, int axis, kn_tensor key) {
    ENTER_("gumbel_softmax", 2, logits, key);
    kn_tensor bad = ki_key_enter(k, "gumbel_softmax", key);
    if (bad) return bad;
    kn_uop x = ki_t_float(k, logits->u);
    int a = ki_axis(k, axis, ki_rank(logits->u));
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (!(tau > 0)) return FAIL(KI_E_TEMPERATURE, k->fn, tau), ki_handle(k, NULL);
    kn_dtype t = (kn_dtype)x->dtype;
    x = perturbed(k, x, key);
    x = x ? ki_t_div(k, x, L(tau)) : NULL;
    kn_uop soft = x ? ki_t_cast(k, ki_t_softmax(k, x, (unsigned)a), t) : NULL;
    if (!hard || !soft || !ki_numel(x)) return ki_handle(k, soft);
    kn_tensor at = kn_argmax(ki_handle(k, x), a, 1);
    int64_t n = ki_dim_n(x, (unsigned)a), dim[KI_MAX_RANK];
    for (unsigned i = 0; i < ki_rank(x); i++) dim[i] = i == (unsigned)a ? n : 1;
    kn_uop one =
        at->u ? ki_t_eq(k, at->u, ki_t_reshape(k, ki_t_iota(k, n, (kn_dtype)at->u->dtype), ki_rank(x), dim)) : NULL;
    return ki_handle(k, ki_t_straight(k, one, soft));
}

kn_tensor kn_multinomial(kn_tensor p, int64_t n, int replace, kn_tensor key) {
    ENTER_("multinomial", 2, p, key);
    kn_tensor bad = ki_key_enter(k, "multinomial", key), at = NULL;
    if (bad) return bad;
    kn_uop x = ki_t_float(k, p->u);
    int a = ki_axis(k, -1, ki_rank(p->u));
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    int64_t size = ki_dim_n(x, (unsigned)a);
    if (n < 0 || (replace ? n >= INT32_MAX || (n && !size) : n > size))
        return FAIL(KI_E_DRAW_COUNT, (long long)n, (long long)size), ki_handle(k, NULL);
    kn_dtype t = ki_draw_dtype((kn_dtype)x->dtype);
    x = ki_t_cast(k, x, t);
    if (replace) x = ki_t_expand_axis(k, ki_t_unsqueeze(k, x, (unsigned)a), (unsigned)a, n);
    if (!x) return ki_handle(k, NULL);
    ki_shape s = ki_shape_like(x);
    x = ki_t_div(k, x, ki_plain_exponential(k, ki_drawn(k, key, &s), t));
    if (replace) return kn_argmax(ki_handle(k, x), -1, 0);
    kn_topk(ki_handle(k, ki_t_stored(k, x)), n, -1, 1, &at);
    return at;
}
