/* index.c: indexing by tensors, as the spec's compositions: a comparison of positions with the index, and a sum.
 * Where nothing matches a float sum is -0.0, the identity of addition, so that folding the sum to an indexed read is
 * exact for every selected value. */
#include "tensor/build.h"

static kn_uop nothing(kn_ctx *k, kn_uop like) {
    return ki_t_lit(k, like, ki_is_float((kn_dtype)like->dtype) ? -0.0 : 0);
}

static bool integer_index(kn_ctx *k, kn_uop idx) {
    if (!idx) return false;
    return (!ki_is_float((kn_dtype)idx->dtype) && idx->dtype != KN_BOOL) ||
           FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[idx->dtype].name, "an integer index");
}

/* Sum over one axis in the value's own dtype: exactly one term counts. */
static kn_uop pick(kn_ctx *k, kn_uop mask, kn_uop x, unsigned axis) {
    kn_uop chosen = x ? ki_t_where(k, mask, x, nothing(k, x)) : NULL;
    return ki_t_squeeze(k, ki_t_reduce(k, chosen, KN_ADD, UINT32_C(1) << axis), UINT32_C(1) << axis);
}

/* x (A.., n, B..) and idx (I..) to (A.., I.., B..): positions (n, 1.., 1..) against idx, summed over n. */
kn_uop ki_t_take(kn_ctx *k, kn_uop x, kn_uop idx, unsigned axis) {
    if (!x || !integer_index(k, idx) || !ki_shape_known(k, x)) return NULL;
    unsigned rx = ki_rank(x), ri = ki_rank(idx);
    if (rx + ri > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    int64_t n = ki_dim_n(x, axis);
    kn_dtype t = ki_index_dtype((kn_dtype)idx->dtype, n);
    ki_shape sx = {0}, si = {0}, sp = {0};
    for (unsigned i = 0; i <= axis; i++) sx.d[sx.n++] = x->type->dim[i];
    for (unsigned i = 0; i < ri; i++) sx.d[sx.n++].n = 1;
    for (unsigned i = axis + 1; i < rx; i++) sx.d[sx.n++] = x->type->dim[i];
    for (unsigned i = 0; i < sx.n; i++) sp.d[sp.n++].n = i == axis ? n : 1;
    for (unsigned i = 0; i < sx.n; i++) {
        si.d[si.n].n = 1;
        if (i > axis && i <= axis + ri) si.d[si.n] = idx->type->dim[i - axis - 1];
        si.n++;
    }
    kn_uop hit = ki_t_eq(k, ki_t_reshape_to(k, ki_t_iota(k, n, t), &sp), ki_t_reshape_to(k, ki_t_cast(k, idx, t), &si));
    return pick(k, hit, ki_t_reshape_to(k, x, &sx), axis);
}

static kn_uop from_end(kn_ctx *k, kn_uop idx, int64_t n) {
    if (!idx || !integer_index(k, idx)) return NULL;
    if (ki_is_uint((kn_dtype)idx->dtype)) return idx;
    idx = ki_t_cast(k, idx, ki_index_dtype((kn_dtype)idx->dtype, n));
    return idx ? ki_t_where(k, ki_t_lt(k, idx, ki_t_lit(k, idx, 0)), ki_t_add(k, idx, ki_t_lit(k, idx, (double)n)), idx)
               : NULL;
}

kn_tensor kn_gather(kn_tensor x, kn_tensor idx) {
    ENTER("gather", x, idx);
    int a = ki_axis(k, 0, ki_rank(x->u));
    return ki_handle(k, a < 0 ? NULL : ki_t_take(k, x->u, idx->u, 0));
}
kn_tensor kn_embedding(kn_tensor weight, kn_tensor idx) {
    ENTER("embedding", weight, idx);
    if (ki_rank(weight->u) != 2) return FAIL(KI_E_RANK_WANTED, "embedding", 2, ki_rank(weight->u)), ki_handle(k, NULL);
    return ki_handle(k, ki_t_take(k, weight->u, idx->u, 0));
}
kn_tensor kn_take(kn_tensor x, kn_tensor idx, int axis) {
    ENTER("take", x, idx);
    int a = ki_axis(k, axis, ki_rank(x->u));
    return ki_handle(k,
                     a < 0 ? NULL : ki_t_take(k, x->u, from_end(k, idx->u, ki_dim_n(x->u, (unsigned)a)), (unsigned)a));
}

/* out[.., i, ..] = x[.., idx[.., i, ..], ..]: x and idx equal but for the axis (or 1, broadcast). */
kn_tensor kn_take_along_axis(kn_tensor x, kn_tensor idx, int axis) {
    ENTER("take_along_axis", x, idx);
    unsigned rank = ki_rank(x->u);
    int a = ki_axis(k, axis, rank);
    if (a >= 0 && ki_rank(idx->u) != rank)
        FAIL(KI_E_RANK_WANTED, "take_along_axis", (int)rank, ki_rank(idx->u)), a = -1;
    if (a < 0 || !ki_shape_known(k, x->u) || rank == KI_MAX_RANK) return ki_handle(k, NULL);
    unsigned u = (unsigned)a;
    int64_t n = ki_dim_n(x->u, u);
    kn_uop i = from_end(k, idx->u, n);
    if (!i) return ki_handle(k, NULL);
    kn_dtype t = ki_index_dtype((kn_dtype)i->dtype, n);
    kn_uop source = ki_t_unsqueeze(k, x->u, u + 1), at = ki_t_unsqueeze(k, ki_t_cast(k, i, t), u);
    kn_uop hit = source ? ki_t_eq(k, ki_t_iota_axis(k, source, u, t), at) : NULL;
    return ki_handle(k, pick(k, hit, source, u));
}

/* ---- the other way ----------------------------------------------------------------------------------------- */

/* x (K, R..) + sum over D of where(position = idx (D), value (D, R..), 0). */
static kn_uop scatter_add(kn_ctx *k, kn_uop x, kn_uop idx, kn_uop value) {
    if (!x || !value || !integer_index(k, idx) || !ki_shape_known(k, x)) return NULL;
    unsigned rank = ki_rank(x);
    if (rank == 0 || ki_rank(idx) != 1) return FAIL(KI_E_RANK_WANTED, k->fn, 1, rank ? ki_rank(idx) : 0);
    ki_shape sv = ki_shape_like(x);
    sv.d[0] = idx->type->dim[0];
    int64_t n = ki_dim_n(x, 0);
    kn_dtype t = ki_index_dtype((kn_dtype)idx->dtype, n);
    value = ki_t_cast(k, ki_t_broadcast_to(k, value, &sv), (kn_dtype)x->dtype);
    value = ki_t_unsqueeze(k, value, 0); /* (1, D, R..) */
    if (!value) return NULL;
    ki_shape sp = {.n = ki_rank(value)}, si = {.n = ki_rank(value)};
    for (unsigned i = 0; i < sp.n; i++)
        sp.d[i].n = i == 0 ? n : 1, si.d[i] = i == 1 ? idx->type->dim[0] : (ki_dim){1, NULL};
    kn_uop hit = ki_t_eq(k, ki_t_reshape_to(k, ki_t_iota(k, n, t), &sp), ki_t_reshape_to(k, ki_t_cast(k, idx, t), &si));
    kn_uop sum = ki_t_reduce(k, ki_t_where(k, hit, value, nothing(k, value)), KN_ADD, 2);
    return ki_t_add(k, x, ki_t_squeeze(k, sum, 2));
}
kn_tensor kn_scatter_add(kn_tensor x, kn_tensor idx, kn_tensor value) {
    ENTER("scatter_add", x, idx, value);
    kn_uop u, v;
    ki_meet(k, x, value, &u, &v);
    return ki_handle(k, scatter_add(k, u, idx->u, v));
}

/* PyTorch's: x[.., idx[.., j, ..], ..] += value[.., j, ..]; idx and value have one shape, equal to x's but for the axis. */
kn_tensor kn_scatter_add_along_axis(kn_tensor x, int axis, kn_tensor idx, kn_tensor value) {
    ENTER("scatter_add_along_axis", x, idx, value);
    unsigned rank = ki_rank(x->u);
    int a = ki_axis(k, axis, rank);
    if (a >= 0 && ki_rank(idx->u) != rank) FAIL(KI_E_RANK_WANTED, k->fn, (int)rank, ki_rank(idx->u)), a = -1;
    if (a < 0 || !integer_index(k, idx->u) || !ki_shape_known(k, x->u)) return ki_handle(k, NULL);
    unsigned u = (unsigned)a;
    kn_dtype t = ki_index_dtype((kn_dtype)idx->u->dtype, ki_dim_n(x->u, u));
    ki_shape si = ki_shape_like(idx->u);
    kn_uop v = ki_t_cast(k, ki_t_broadcast_to(k, value->u, &si), (kn_dtype)x->u->dtype);
    kn_uop at = ki_t_unsqueeze(k, ki_t_cast(k, idx->u, t), u), target = ki_t_unsqueeze(k, x->u, u + 1);
    kn_uop hit = target ? ki_t_eq(k, ki_t_iota_axis(k, target, u, t), at) : NULL;
    v = ki_t_unsqueeze(k, v, u);
    if (!v || !hit) return ki_handle(k, NULL);
    kn_uop sum = ki_t_reduce(k, ki_t_where(k, hit, v, nothing(k, v)), KN_ADD, UINT32_C(1) << (u + 1));
    return ki_handle(k, ki_t_add(k, x->u, ki_t_squeeze(k, sum, UINT32_C(1) << (u + 1))));
}

kn_tensor kn_one_hot(kn_tensor idx, int64_t classes, kn_dtype dtype) {
    ENTER("one_hot", idx);
    kn_uop i = idx->u;
    if (!integer_index(k, i)) return ki_handle(k, NULL);
    if (classes < 1 || classes > INT64_C(1) << 47)
        return FAIL(KI_E_SIZE_RANGE, "one_hot", (long long)classes, 0u), ki_handle(k, NULL);
    kn_dtype t = ki_index_dtype((kn_dtype)i->dtype, classes);
    kn_uop hit = ki_t_eq(k, ki_t_unsqueeze(k, ki_t_cast(k, i, t), ki_rank(i)), ki_t_iota(k, classes, t));
    return ki_handle(k, ki_t_cast(k, hit, dtype));
}
