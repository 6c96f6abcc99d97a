/* norm.c: normalisations, in their textbook stable forms, in f32 at least. */
#include "tensor/build.h"

#define L(v) ki_t_lit(k, x, v)

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

kn_tensor kn_instance_norm(kn_tensor t, kn_tensor weight, kn_tensor bias, double eps) {
    ENTER_("instance_norm", 6, t, weight, bias);
    kn_uop x = t->u;
    kn_dtype d = (kn_dtype)x->dtype;
    if (ki_rank(x) < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, ki_rank(x)), ki_handle(k, NULL);
    kn_uop y = affine(k, normalised(k, ki_t_cast(k, x, wide(d)), all_axes(x) & ~3u, eps), weight, bias);
    return ki_handle(k, y && ki_is_float(d) && d != KN_F32 ? ki_t_cast(k, y, d) : y);
}

kn_tensor kn_local_response_norm(kn_tensor t, int64_t size, double alpha, double beta, double add) {
    ENTER("local_response_norm", t);
    kn_uop x = ki_t_float(k, t->u);
    if (ki_rank(t->u) < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ki_rank(t->u)), ki_handle(k, NULL);
    if (size < 1) return FAIL(KI_E_CONV_VALUE, k->fn, "size", (long long)size, 1LL), ki_handle(k, NULL);
    kn_uop square = ki_t_pad_axis(k, ki_t_mul(k, x, x), 1, size / 2, (size - 1) / 2);
    kn_uop near = ki_t_windows(k, square, 1, size, 1, 1);
    if (!near) return ki_handle(k, NULL);
    uint32_t last = UINT32_C(1) << ki_rank(x);
    kn_uop mean = ki_t_squeeze(k, ki_t_mean(k, near, last), last);
    kn_uop by = ki_t_pow(k, ki_t_add(k, L(add), ki_t_mul(k, L(alpha), mean)), L(beta));
    return ki_handle(k, ki_t_div(k, x, by));
}

/* ---- lengths of vectors along an axis ---------------------------------------------------------------------- */

kn_tensor kn_normalize(kn_tensor t, double p, int axis, double eps) {
    ENTER("normalize", t);
    kn_uop x = ki_t_float(k, t->u);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (!(p > 0)) return FAIL(KI_E_POWER, k->fn, p), ki_handle(k, NULL);
    if (a < 0 || !x) return ki_handle(k, NULL);
    kn_dtype d = (kn_dtype)x->dtype;
    x = ki_t_cast(k, x, wide(d));
    kn_uop length = ki_t_max(k, ki_t_vector_norm(k, x, p, UINT32_C(1) << a), L(eps));
    return ki_handle(k, ki_t_cast(k, ki_t_div(k, x, length), d));
}

kn_tensor kn_cosine_similarity(kn_tensor p, kn_tensor q, int axis, double eps) {
    ENTER("cosine_similarity", p, q);
    kn_uop x, y;
    ki_meet(k, p, q, &x, &y);
    x = ki_t_float(k, x), y = ki_t_float(k, y);
    if (!x || !y || !ki_broadcast(k, &x, &y)) return ki_handle(k, NULL);
    int a = ki_axis(k, axis, ki_rank(x));
    if (a < 0) return ki_handle(k, NULL);
    uint32_t bit = UINT32_C(1) << a;
    kn_dtype d = (kn_dtype)x->dtype;
    x = ki_t_cast(k, x, wide(d)), y = ki_t_cast(k, y, wide(d));
    kn_uop lengths = ki_t_mul(k, ki_t_max(k, ki_t_vector_norm(k, x, 2, bit), L(eps)),
                              ki_t_max(k, ki_t_vector_norm(k, y, 2, bit), L(eps)));
    kn_uop cosine = ki_t_div(k, ki_t_sum(k, ki_t_mul(k, x, y), bit), lengths);
    return ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, cosine, bit), d));
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

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
