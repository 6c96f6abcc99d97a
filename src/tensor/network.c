/* network.c: losses, normalisations and attention, in their textbook stable forms. */
#include "tensor/build.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

/* ---- losses ------------------------------------------------------------------------------------------------ */

static kn_uop mean_all(kn_ctx *k, kn_uop x) {
    return x ? ki_t_squeeze(k, ki_t_mean(k, x, all_axes(x)), all_axes(x)) : NULL;
}

/* -mean of log_p at the labels: a masked sum over the classes, axis 1 (0 without a batch). */
static kn_uop nll(kn_ctx *k, kn_uop x, kn_uop labels) {
    char a[128], b[128];
    if (!x) return NULL;
    unsigned rank = ki_rank(x), axis = rank > 1;
    bool fits = rank >= 1 && ki_rank(labels) + 1 == rank;
    for (unsigned i = 0, j = 0; fits && i < rank; i++)
        if (i != axis) fits = ki_dim_n(labels, j) == ki_dim_n(x, i), j++;
    if (!fits)
        return FAIL(KI_E_SCORE_SHAPE, k->fn, ki_shape_text(x->type, a, sizeof a),
                    ki_shape_text(labels->type, b, sizeof b));
    if (ki_is_float((kn_dtype)labels->dtype) || labels->dtype == KN_BOOL)
        return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[labels->dtype].name, "integer labels");
    kn_dtype t = ki_index_dtype((kn_dtype)labels->dtype, ki_dim_n(x, axis));
    kn_uop hit = ki_t_eq(k, ki_t_iota_axis(k, x, axis, t), ki_t_unsqueeze(k, ki_t_cast(k, labels, t), axis));
    kn_uop picked = ki_t_reduce(k, ki_t_where(k, hit, x, L(-0.0)), KN_ADD, UINT32_C(1) << axis);
    return ki_t_neg(k, mean_all(k, ki_t_squeeze(k, picked, UINT32_C(1) << axis)));
}
kn_tensor kn_nll_loss(kn_tensor log_p, kn_tensor labels) {
    ENTER("nll_loss", log_p, labels);
    return ki_handle(k, nll(k, ki_t_float(k, log_p->u), labels->u));
}
kn_tensor kn_cross_entropy(kn_tensor logits, kn_tensor labels) {
    ENTER("cross_entropy", logits, labels);
    unsigned rank = ki_rank(logits->u);
    if (rank == 0) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u), ki_handle(k, NULL);
    return ki_handle(k, nll(k, ki_t_log_softmax(k, logits->u, rank > 1), labels->u));
}

/* One loss per pair of elements, then the mean. */
#define PAIR_LOSS(name, ...)                                                                                           \
    kn_tensor kn_##name(kn_tensor p, kn_tensor q) {                                                                    \
        ENTER(#name, p, q);                                                                                            \
        kn_uop x, y;                                                                                                   \
        ki_meet(k, p, q, &x, &y);                                                                                      \
        x = ki_t_float(k, x), y = ki_t_float(k, y);                                                                    \
        return ki_handle(k, x && y ? mean_all(k, __VA_ARGS__) : NULL);                                                 \
    }
PAIR_LOSS(mse_loss, ki_t_square(k, ki_t_sub(k, x, y)))
PAIR_LOSS(l1_loss, ki_t_abs(k, ki_t_sub(k, x, y)))
PAIR_LOSS(bce_loss, ki_t_neg(k, ki_t_add(k, ki_t_mul(k, y, ki_t_max(k, ki_t_log(k, x), L(-100))),
                                         ki_t_mul(k, ki_t_sub(k, L(1), y),
                                                  ki_t_max(k, ki_t_log(k, ki_t_sub(k, L(1), x)), L(-100))))))
PAIR_LOSS(bce_with_logits, ki_t_sub(k, ki_t_softplus(k, x), ki_t_mul(k, x, y)))

kn_tensor kn_huber_loss(kn_tensor p, kn_tensor q, double delta) {
    ENTER("huber_loss", p, q);
    kn_uop a, b;
    ki_meet(k, p, q, &a, &b);
    kn_uop x = ki_t_float(k, ki_t_sub(k, ki_t_float(k, a), ki_t_float(k, b)));
    if (!x) return ki_handle(k, NULL);
    kn_uop size = ki_t_abs(k, x), small = ki_t_mul(k, L(0.5), ki_t_mul(k, x, x));
    kn_uop large = ki_t_mul(k, L(delta), ki_t_sub(k, size, L(0.5 * delta)));
    return ki_handle(k, mean_all(k, ki_t_where(k, ki_t_lt(k, size, L(delta)), small, large)));
}

/* ---- normalisation ----------------------------------------------------------------------------------------- */

static kn_dtype wide(kn_dtype t) { return ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : ki_fraction(t); }

/* (x - mean) / sqrt(var + eps) over some axes, in f32 at least. */
static kn_uop normalised(kn_ctx *k, kn_uop x, uint32_t axes, double eps) {
    if (!x) return NULL;
    kn_uop d = ki_t_sub(k, x, ki_t_mean(k, x, axes)), var = ki_t_mean(k, ki_t_mul(k, d, d), axes);
    return ki_t_mul(k, d, ki_t_rsqrt(k, ki_t_add(k, var, L(eps))));
}

static bool tail_axes(kn_ctx *k, kn_uop x, int axes, uint32_t *bits) {
    int rank = (int)ki_rank(x);
    if (axes < 1 || axes > rank) return FAIL(KI_E_NORM_AXES, k->fn, axes, rank);
    *bits = all_axes(x) & ~((UINT32_C(1) << (rank - axes)) - 1);
    return true;
}

static kn_uop scaled(kn_ctx *k, kn_uop y, kn_tensor weight, kn_tensor bias, kn_dtype t) {
    if (weight) y = ki_t_mul(k, y, weight->u);
    if (bias) y = ki_t_add(k, y, bias->u);
    return y && ki_is_float(t) && ki_dtypes[y->dtype].bits > ki_dtypes[t].bits && t != KN_F32 ? ki_t_cast(k, y, t) : y;
}

kn_tensor kn_layer_norm(kn_tensor t, int axes, kn_tensor weight, kn_tensor bias, double eps) {
    ENTER_("layer_norm", 6, t, weight, bias);
    uint32_t bits;
    kn_dtype d = (kn_dtype)t->u->dtype;
    if (!tail_axes(k, t->u, axes, &bits)) return ki_handle(k, NULL);
    return ki_handle(k, scaled(k, normalised(k, ki_t_cast(k, t->u, wide(d)), bits, eps), weight, bias, d));
}

kn_tensor kn_rms_norm(kn_tensor t, int axes, kn_tensor weight, double eps) {
    ENTER_("rms_norm", 2, t, weight);
    uint32_t bits;
    kn_dtype d = (kn_dtype)t->u->dtype;
    if (!tail_axes(k, t->u, axes, &bits)) return ki_handle(k, NULL);
    kn_uop x = ki_t_cast(k, t->u, wide(d));
    if (!x) return ki_handle(k, NULL);
    kn_uop y = ki_t_mul(k, x, ki_t_rsqrt(k, ki_t_add(k, ki_t_mean(k, ki_t_mul(k, x, x), bits), L(eps))));
    return ki_handle(k, scaled(k, y, weight, NULL, d));
}

/* Statistics of x (N, C, ..): per channel, as (1, C, 1, ..). */
static kn_uop channels(kn_ctx *k, kn_uop v, kn_uop x) {
    char a[128], b[128];
    if (!v || !x) return NULL;
    if (ki_rank(v) != 1 || ki_dim_n(v, 0) != ki_dim_n(x, 1))
        return FAIL(KI_E_CHANNELS, k->fn, ki_shape_text(v->type, a, sizeof a), ki_shape_text(x->type, b, sizeof b));
    ki_shape s = {.n = ki_rank(x)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == 1 ? ki_dim_n(v, 0) : 1;
    return ki_t_reshape_to(k, v, &s);
}

static kn_uop affine(kn_ctx *k, kn_uop y, kn_tensor weight, kn_tensor bias) {
    if (weight) y = ki_t_mul(k, y, channels(k, weight->u, y));
    if (bias) y = ki_t_add(k, y, channels(k, bias->u, y));
    return y;
}

kn_tensor kn_group_norm(kn_tensor t, int groups, kn_tensor weight, kn_tensor bias, double eps) {
    ENTER_("group_norm", 6, t, weight, bias);
    kn_uop x = t->u;
    kn_dtype d = (kn_dtype)x->dtype;
    if (ki_rank(x) < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ki_rank(x)), ki_handle(k, NULL);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (groups < 1 || ki_dim_n(x, 1) % groups)
        return FAIL(KI_E_GROUPS, groups, (long long)ki_dim_n(x, 1)), ki_handle(k, NULL);
    ki_shape s = ki_shape_like(x);
    int64_t n = ki_dim_n(x, 0), rest = 1;
    for (unsigned i = 1; i < s.n; i++) rest *= s.d[i].n;
    kn_uop y = normalised(k, RESHAPE(ki_t_cast(k, x, wide(d)), n, groups, rest / groups), 4, eps);
    y = affine(k, ki_t_reshape_to(k, y, &s), weight, bias);
    return ki_handle(k, y && ki_is_float(d) && d != KN_F32 ? ki_t_cast(k, y, d) : y);
}

static kn_uop batch_norm(kn_ctx *k, kn_uop x, kn_uop mean, kn_uop var, kn_tensor weight, kn_tensor bias, double eps) {
    if (!x || !mean || !var) return NULL;
    kn_uop scale = ki_t_rsqrt(k, ki_t_add(k, var, ki_t_lit(k, var, eps)));
    return affine(k, ki_t_mul(k, ki_t_sub(k, x, mean), scale), weight, bias);
}

kn_tensor kn_batch_norm(kn_tensor t, kn_tensor mean, kn_tensor var, kn_tensor weight, kn_tensor bias, double eps) {
    ENTER_("batch_norm", 24, t, mean, var, weight, bias);
    kn_uop x = ki_t_float(k, t->u);
    if (ki_rank(t->u) < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ki_rank(t->u)), ki_handle(k, NULL);
    kn_uop m = channels(k, mean->u, x), v = m ? channels(k, var->u, x) : NULL;
    if (!v) return ki_handle(k, NULL);
    /* x a + (bias - mean a): for each element a product and an addition. */
    kn_uop a = ki_t_rsqrt(k, ki_t_add(k, v, ki_t_lit(k, v, eps)));
    if (weight) a = ki_t_mul(k, a, channels(k, weight->u, x));
    kn_uop shift = ki_t_mul(k, m, a);
    if (bias) shift = ki_t_sub(k, channels(k, bias->u, x), shift);
    return ki_handle(k, (bias ? ki_t_add : ki_t_sub)(k, ki_t_mul(k, x, a), shift));
}

kn_tensor kn_batch_norm_train(kn_tensor t, kn_tensor mean, kn_tensor var, kn_tensor weight, kn_tensor bias,
                              double momentum, double eps) {
    ENTER_("batch_norm_train", 30, t, mean, var, weight, bias);
    kn_uop x = ki_t_float(k, t->u);
    if (ki_rank(t->u) < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ki_rank(t->u)), ki_handle(k, NULL);
    uint32_t axes = all_axes(x) & ~2u;
    kn_uop m = ki_t_mean(k, x, axes), v = ki_t_var(k, x, axes, 0);
    kn_tensor y = ki_handle(k, batch_norm(k, x, m, v, weight, bias, eps));
    if (!y->u) return y;
    double n = (double)ki_numel(x) / (double)ki_dim_n(x, 1);
    const kn_tensor running[2] = {mean, var};
    const kn_uop now[2] = {
        m, ki_t_mul(k, v, ki_t_lit(k, v, n > 1 ? n / (n - 1) : 1))}; /* running var is the unbiased one */
    for (int i = 0; i < 2; i++) {
        if (!running[i]) continue;
        kn_uop old = running[i]->u, flat = ki_t_squeeze(k, ki_op1(&k->ir, KN_DETACH, now[i]), axes);
        kn_uop next = ki_t_add(k, ki_t_mul(k, old, ki_t_lit(k, old, 1 - momentum)),
                               ki_t_cast(k, ki_t_mul(k, flat, ki_t_lit(k, flat, momentum)), (kn_dtype)old->dtype));
        kn_tensor a = kn_assign(running[i], ki_handle(k, next));
        if (!a->u) return a;
    }
    return y;
}

/* ---- attention --------------------------------------------------------------------------------------------- */

/* The two halves of the last axis, x as (.., 2, E/2): x cos + (the other half) sin, the first half's sine negated. */
static kn_uop rotary(kn_ctx *k, kn_uop x, kn_uop cos, kn_uop sin) {
    unsigned r = ki_rank(x);
    ki_shape s = ki_shape_like(x), split = s;
    split.n = r + 1;
    split.d[r].n = s.d[r - 1].n / 2;
    split.d[r - 1].n = 2;
    kn_uop h = ki_t_reshape_to(k, x, &split), other = h ? ki_t_flip_axis(k, h, r - 1) : NULL;
    if (!other) return NULL;
    kn_uop first = ki_t_eq(k, ki_t_iota_axis(k, h, r - 1, KN_I32), ki_t_const(k, KN_I32, 0));
    cos = ki_t_unsqueeze(k, cos, ki_rank(cos) - 1);
    sin = ki_t_unsqueeze(k, sin, ki_rank(sin) - 1);
    sin = sin ? ki_t_where(k, first, ki_t_neg(k, sin), sin) : NULL;
    return ki_t_reshape_to(k, ki_t_add(k, ki_t_mul(k, h, cos), ki_t_mul(k, other, sin)), &s);
}

kn_tensor kn_rotary(kn_tensor t, kn_tensor cos, kn_tensor sin) {
    ENTER("rotary", t, cos, sin);
    kn_uop x = ki_t_float(k, t->u), c = cos->u, s = sin->u;
    if (!x || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (!ki_rank(x) || !ki_rank(c) || !ki_rank(s)) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u), ki_handle(k, NULL);
    int64_t e = ki_dim_n(x, ki_rank(x) - 1), half = ki_dim_n(c, ki_rank(c) - 1);
    if (ki_rank(x) == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), ki_handle(k, NULL);
    if (e != 2 * half || ki_dim_n(s, ki_rank(s) - 1) != half)
        return FAIL(KI_E_ROTARY_SHAPES, (long long)e, (long long)half, (long long)ki_dim_n(s, ki_rank(s) - 1)),
               ki_handle(k, NULL);
    return ki_handle(k, rotary(k, x, c, s));
}

static kn_uop masked(kn_ctx *k, kn_uop x, kn_uop mask, bool causal) {
    if (mask && mask->dtype != KN_BOOL) x = ki_t_add(k, x, mask);
    if (mask && mask->dtype == KN_BOOL) x = ki_t_where(k, mask, x, x ? L(-(double)INFINITY) : NULL);
    if (!causal || !x) return x;
    unsigned r = ki_rank(x);
    kn_dtype t = ki_index_dtype(KN_I32, ki_dim_n(x, r - 1) + ki_dim_n(x, r - 2));
    kn_uop later = ki_t_gt(k, ki_t_iota_axis(k, x, r - 1, t), ki_t_iota_axis(k, x, r - 2, t));
    return ki_t_where(k, later, L(-(double)INFINITY), x);
}

kn_tensor kn_attention(kn_tensor q, kn_tensor key, kn_tensor v, kn_tensor mask, int causal, double scale) {
    ENTER_("attention", 8, q, key, v, mask);
    kn_uop x = ki_t_float(k, q->u), b = key->u;
    if (ki_rank(x) < 2 || ki_rank(b) < 2 || ki_rank(v->u) < 2)
        return FAIL(KI_E_RANK_WANTED, k->fn, 2,
                    ki_rank(x) < 2   ? ki_rank(x)
                    : ki_rank(b) < 2 ? ki_rank(b)
                                     : ki_rank(v->u)),
               ki_handle(k, NULL);
    ki_dim eq = x->type->dim[ki_rank(x) - 1], ek = b->type->dim[ki_rank(b) - 1];
    if (eq.n != ek.n || eq.sym != ek.sym) {
        char sq[128], sk[128];
        return FAIL(KI_E_ATTENTION_SHAPES, ki_shape_text(x->type, sq, sizeof sq),
                    ki_shape_text(b->type, sk, sizeof sk)),
               ki_handle(k, NULL);
    }
    if (scale == 0) scale = 1 / sqrt((double)ki_dim_n(x, ki_rank(x) - 1));
    kn_uop s = ki_t_matmul(k, ki_t_mul(k, x, L(scale)), ki_t_swap(k, b, ki_rank(b) - 2, ki_rank(b) - 1));
    s = masked(k, s, mask ? mask->u : NULL, causal);
    return ki_handle(k, s ? ki_t_matmul(k, ki_t_softmax(k, s, ki_rank(s) - 1), v->u) : NULL);
}
