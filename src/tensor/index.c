/* index.c: indexing by tensors, as the spec's compositions: a comparison of positions with the index, and a sum.
 * Where nothing matches a float sum is -0.0, the identity of addition, so that folding the sum to an indexed read is
 * exact for every selected value. */
#include "tensor/build.h"

#include <string.h>

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

/* Where the axis of x (.., n, ..) has the position that idx (.., d, ..) says: (.., n, d, ..), shapes broadcast. */
static kn_uop along_hit(kn_ctx *k, kn_uop x, kn_uop idx, unsigned axis) {
    if (!x || !idx || !ki_shape_known(k, x)) return NULL;
    kn_dtype t = ki_index_dtype((kn_dtype)idx->dtype, ki_dim_n(x, axis));
    kn_uop at = ki_t_unsqueeze(k, ki_t_cast(k, idx, t), axis), place = ki_t_unsqueeze(k, x, axis + 1);
    return at && place ? ki_t_eq(k, ki_t_iota_axis(k, place, axis, t), at) : NULL;
}

/* out[.., i, ..] = x[.., idx[.., i, ..], ..]: x and idx equal but for the axis (or 1, broadcast). */
static kn_uop take_along(kn_ctx *k, kn_uop x, kn_uop idx, unsigned axis) {
    kn_uop hit = along_hit(k, x, idx, axis);
    return hit ? pick(k, hit, ki_t_unsqueeze(k, x, axis + 1), axis) : NULL;
}

/* The axis of a call on x and an idx of its rank; -1 after a failure. */
static int along_axis(kn_ctx *k, kn_tensor x, kn_tensor idx, int axis) {
    unsigned rank = ki_rank(x->u);
    int a = ki_axis(k, axis, rank);
    if (a >= 0 && ki_rank(idx->u) != rank) FAIL(KI_E_RANK_WANTED, k->fn, (int)rank, ki_rank(idx->u)), a = -1;
    return a < 0 || !ki_shape_known(k, x->u) || !ki_shape_known(k, idx->u) || !integer_index(k, idx->u) ? -1 : a;
}

kn_tensor kn_take_along_axis(kn_tensor x, kn_tensor idx, int axis) {
    ENTER("take_along_axis", x, idx);
    int a = along_axis(k, x, idx, axis);
    if (a < 0) return ki_handle(k, NULL);
    return ki_handle(k, take_along(k, x->u, from_end(k, idx->u, ki_dim_n(x->u, (unsigned)a)), (unsigned)a));
}

/* ---- several index tensors --------------------------------------------------------------------------------- */

/* x[idx...] of numpy: the axes of x that have an index, and where the broadcast indices' axes stand in the result. */
typedef struct places {
    unsigned m, axis[KI_MAX_RANK]; /* indexed axes of x, */
    kn_uop idx[KI_MAX_RANK];       /* and their indices, counted from the start, all of shape `at` */
    ki_shape at;
    unsigned first;                    /* axes of x before them in the result */
    unsigned rest[KI_MAX_RANK], nrest; /* axes of x without one */
} places;

static bool read_places(kn_ctx *k, kn_uop x, const kn_tensor *idx, size_t n, places *p) {
    unsigned rank = ki_rank(x);
    memset(p, 0, sizeof *p);
    if (n > rank) return FAIL(KI_E_INDICES, k->fn, n, rank);
    if (!ki_shape_known(k, x)) return false;
    for (unsigned i = 0; i < rank; i++) {
        kn_uop u = i < n && idx[i] ? idx[i]->u : NULL;
        if (!u) {
            p->rest[p->nrest++] = i;
            continue;
        }
        if (!ki_shape_known(k, u) || !(p->idx[p->m] = from_end(k, u, ki_dim_n(x, i)))) return false;
        p->axis[p->m++] = i;
    }
    if (!p->m) return FAIL(KI_E_INDEX_NONE, k->fn);
    p->at = ki_shape_like(p->idx[0]);
    for (unsigned i = 1; i < p->m; i++) {
        kn_uop a = ki_t_broadcast_to(k, p->idx[0], &p->at), b = p->idx[i];
        if (!ki_broadcast(k, &a, &b)) return false;
        p->at = ki_shape_like(ki_rank(a) ? a : b);
    }
    bool together = p->axis[p->m - 1] - p->axis[0] == p->m - 1;
    p->first = together ? p->axis[0] : 0;
    for (unsigned i = 0; i < p->m; i++)
        if (!(p->idx[i] = ki_t_broadcast_to(k, p->idx[i], &p->at))) return false;
    if (rank + p->at.n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    return true;
}

/* x's axes as (first.., indexed.., others..). */
static kn_uop ordered(kn_ctx *k, kn_uop x, const places *p, bool back) {
    int64_t order[KI_MAX_RANK], from[KI_MAX_RANK];
    unsigned n = 0;
    for (unsigned i = 0; i < p->first; i++) order[n++] = p->rest[i];
    for (unsigned i = 0; i < p->m; i++) order[n++] = p->axis[i];
    for (unsigned i = p->first; i < p->nrest; i++) order[n++] = p->rest[i];
    for (unsigned i = 0; i < n; i++) from[order[i]] = i;
    return x ? ki_permute(&k->ir, x, back ? from : order, n) : NULL;
}

/* Axes 1 but for n of them from `at`, which are s's. */
static kn_uop spread(kn_ctx *k, kn_uop u, unsigned rank, unsigned at) {
    if (!u) return NULL;
    ki_shape s = {.n = rank};
    for (unsigned i = 0; i < rank; i++)
        s.d[i] = i >= at && i < at + ki_rank(u) ? u->type->dim[i - at] : (ki_dim){1, NULL};
    return ki_t_reshape_to(k, u, &s);
}

/* Which places the indices name: (1.., indexed.., at.., 1..), as many axes as x has and the indices. x is ordered. */
static kn_uop places_hit(kn_ctx *k, kn_uop x, const places *p) {
    unsigned rank = ki_rank(x) + p->at.n;
    kn_uop hit = NULL;
    for (unsigned i = 0; i < p->m; i++) {
        int64_t n = ki_dim_n(x, p->first + i);
        kn_dtype t = ki_index_dtype((kn_dtype)p->idx[i]->dtype, n);
        kn_uop one = ki_t_eq(k, spread(k, ki_t_iota(k, n, t), rank, p->first + i),
                             spread(k, ki_t_cast(k, p->idx[i], t), rank, p->first + p->m));
        hit = hit ? ki_t_binary(k, KN_AND, hit, one) : one;
    }
    return hit;
}

/* u with n axes of 1 in front of axis `at`. */
static kn_uop with_ones(kn_ctx *k, kn_uop u, unsigned at, unsigned n) {
    for (unsigned i = 0; i < n && u; i++) u = ki_t_unsqueeze(k, u, at);
    return u;
}

static uint32_t bits(unsigned from, unsigned n) { return ((UINT32_C(1) << n) - 1) << from; }

static bool bad_mask(kn_ctx *k, kn_uop mask, kn_uop x) {
    char a[128], b[128];
    return FAIL(KI_E_INDEX_MASK, k->fn, ki_shape_text(mask->type, a, sizeof a), ki_shape_text(x->type, b, sizeof b));
}

kn_tensor kn_index(kn_tensor x, const kn_tensor *idx, size_t n) {
    kn_ctx *k;
    kn_tensor all[KI_MAX_RANK + 1] = {x};
    places p;
    for (size_t i = 0; idx && i < n && i < KI_MAX_RANK; i++) all[i + 1] = idx[i];
    kn_tensor bad = ki_enter(&k, "index", all, (n < KI_MAX_RANK ? n : KI_MAX_RANK) + 1, ~1u);
    if (bad || !k) return bad;
    if (n && !ki_given(k, k->fn, "idx", idx)) return ki_handle(k, NULL);
    if (!x) return FAIL(KI_E_TENSOR_NULL, "index", 0u), ki_handle(k, NULL);
    for (size_t i = 0; i < n && i < KI_MAX_RANK; i++)
        if (idx[i] && idx[i]->u->dtype == KN_BOOL) return bad_mask(k, idx[i]->u, x->u), ki_handle(k, NULL);
    if (!read_places(k, x->u, idx, n, &p)) return ki_handle(k, NULL);
    kn_uop u = ordered(k, x->u, &p, false), hit = u ? places_hit(k, u, &p) : NULL;
    u = with_ones(k, u, p.first + p.m, p.at.n);
    if (!u || !hit) return ki_handle(k, NULL);
    uint32_t axes = bits(p.first, p.m);
    u = ki_t_reduce(k, ki_t_where(k, hit, u, nothing(k, u)), KN_ADD, axes);
    return ki_handle(k, ki_t_squeeze(k, u, axes));
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

/* ---- writing, the last one wins ----------------------------------------------------------------------------- */

/* Sum, product or maximum over axes of value where hit, of the identity elsewhere. */
static kn_uop met(kn_ctx *k, kn_op op, kn_uop hit, kn_uop value, uint32_t axes) {
    if (!hit || !value) return NULL;
    kn_uop none = op == KN_ADD   ? nothing(k, value)
                  : op == KN_MUL ? ki_t_lit(k, value, 1)
                                 : ki_t_lowest(k, (kn_dtype)value->dtype);
    return ki_t_squeeze(k, ki_t_reduce(k, ki_t_where(k, hit, value, none), op, axes), axes);
}

/* 0, 1, .. n-1, to be read beside data: stored where it has more digits (ki_t_iota) than are looked through there. */
static kn_uop numbers(kn_ctx *k, int64_t n) {
    kn_uop u = ki_t_iota(k, n, ki_index_dtype(KN_I32, n));
    return u && n > INT64_C(1) << 18 ? ki_op1(&k->ir, KN_CONTIGUOUS, u) : u;
}

/* The number of the last term that hits, -1 where none does: terms are counted along n axes from `at`. */
static kn_uop last_hit(kn_ctx *k, kn_uop hit, unsigned at, unsigned n) {
    if (!hit) return NULL;
    int64_t count = 1;
    ki_shape s = {.n = ki_rank(hit)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i >= at && i < at + n ? ki_dim_n(hit, i) : 1, count *= s.d[i].n;
    kn_dtype t = ki_index_dtype(KN_I32, count);
    if (!count) return NULL;
    kn_uop number = ki_t_reshape_to(k, numbers(k, count), &s);
    kn_uop last = met(k, KN_MAX, hit, number, bits(at, n));
    return ki_t_max(k, last, ki_t_const(k, t, -1));
}

/* x (first.., n.., others..), value (first.., at.., others..), both ordered. */
static kn_uop put_places(kn_ctx *k, kn_uop x, kn_uop value, const places *p, bool add) {
    unsigned at = p->first + p->m;
    kn_uop hit = x ? places_hit(k, x, p) : NULL;
    if (!hit || !value) return NULL;
    if (add) return ki_t_add(k, x, met(k, KN_ADD, hit, with_ones(k, value, p->first, p->m), bits(at, p->at.n)));
    kn_uop last = last_hit(k, hit, at, p->at.n);
    if (!last) return NULL;
    /* last (1.., n.., 1..) as an index of value's flattened `at` axes. */
    ki_shape flat = {0}, own = {0};
    int64_t count = 1;
    for (unsigned i = 0; i < p->at.n; i++) count *= p->at.d[i].n;
    for (unsigned i = 0; i < p->first; i++) flat.d[flat.n++] = value->type->dim[i];
    flat.d[flat.n++].n = count;
    for (unsigned i = p->first + p->at.n; i < ki_rank(value); i++) flat.d[flat.n++] = value->type->dim[i];
    for (unsigned i = p->first; i < at; i++) own.d[own.n++] = x->type->dim[i];
    kn_uop taken = ki_t_take(k, ki_t_reshape_to(k, value, &flat), ki_t_reshape_to(k, last, &own), p->first);
    return ki_t_where(k, ki_t_ge(k, last, ki_t_lit(k, last, 0)), taken, x);
}

/* A mask over the leading axes; value is broadcast to x's shape. */
static kn_uop put_mask(kn_ctx *k, kn_uop x, kn_uop mask, kn_uop value, bool add) {
    unsigned n = ki_rank(mask), rank = ki_rank(x);
    bool fits = n <= rank;
    for (unsigned i = 0; i < n && fits; i++) fits = ki_same_dim(mask->type->dim[i], x->type->dim[i]);
    if (!fits) return bad_mask(k, mask, x), NULL;
    ki_shape s = ki_shape_like(x);
    value = ki_t_broadcast_to(k, value, &s);
    return ki_t_where(k, with_ones(k, mask, n, rank - n), add ? ki_t_add(k, x, value) : value, x);
}

static kn_uop index_put(kn_ctx *k, kn_tensor x, const kn_tensor *idx, size_t n, kn_tensor value, bool add) {
    kn_uop u, v;
    places p;
    ki_meet(k, x, value, &u, &v);
    u = x->u;
    v = ki_t_cast(k, v, (kn_dtype)u->dtype);
    for (size_t i = 0; i < n && i < KI_MAX_RANK; i++)
        if (idx[i] && idx[i]->u->dtype == KN_BOOL)
            return n == 1 ? put_mask(k, u, idx[i]->u, v, add) : (bad_mask(k, idx[i]->u, u), NULL);
    if (!read_places(k, u, idx, n, &p) || !v) return NULL;
    ki_shape s = {0};
    for (unsigned i = 0; i < p.first; i++) s.d[s.n++] = u->type->dim[p.rest[i]];
    for (unsigned i = 0; i < p.at.n; i++) s.d[s.n++] = p.at.d[i];
    for (unsigned i = p.first; i < p.nrest; i++) s.d[s.n++] = u->type->dim[p.rest[i]];
    v = ki_t_broadcast_to(k, v, &s);
    if (!v || !ki_numel(v)) return v ? u : NULL;
    return ordered(k, put_places(k, ordered(k, u, &p, false), v, &p, add), &p, true);
}

/* Enters a call on x, value and indices that may be NULL. */
static kn_tensor enter_put(kn_ctx **k, const char *fn, kn_tensor x, const kn_tensor *idx, size_t n, kn_tensor value) {
    kn_tensor all[KI_MAX_RANK + 2] = {x, value};
    size_t m = n < KI_MAX_RANK ? n : KI_MAX_RANK;
    for (size_t i = 0; idx && i < m; i++) all[i + 2] = idx[i];
    kn_tensor bad = ki_enter(k, fn, all, m + 2, ~3u);
    return bad || !*k || !n || ki_given(*k, fn, "idx", idx) ? bad : ki_handle(*k, NULL);
}

kn_tensor kn_index_put(kn_tensor x, const kn_tensor *idx, size_t n, kn_tensor value, int add) {
    kn_ctx *k;
    kn_tensor bad = enter_put(&k, "index_put", x, idx, n, value);
    if (bad || !k) return bad;
    return ki_handle(k, index_put(k, x, idx, n, value, add != 0));
}
kn_tensor kn_setitem(kn_tensor target, const kn_tensor *idx, size_t n, kn_tensor value) {
    kn_ctx *k;
    kn_tensor bad = enter_put(&k, "setitem", target, idx, n, value);
    if (bad || !k) return bad;
    if (n == 0) return kn_assign(target, value);
    kn_uop u = index_put(k, target, idx, n, value, false);
    return u ? kn_assign(target, ki_handle(k, u)) : ki_handle(k, NULL);
}

/* ---- along an axis ------------------------------------------------------------------------------------------ */

enum { PUT, SUM, PROD, MEAN, AMAX, AMIN };

/* Integers and bools turn their order round by ~. */
static kn_uop turned(kn_ctx *k, kn_uop x) {
    return x ? ki_t_unary(k, ki_is_float((kn_dtype)x->dtype) ? KN_NEG : KN_NOT, x) : NULL;
}

/* What value, met where idx says, makes of x's part of the same extent but for the axis. */
static kn_uop meet_along(kn_ctx *k, kn_uop x, unsigned axis, kn_uop idx, kn_uop value, int how, bool include) {
    uint32_t over = UINT32_C(1) << (axis + 1);
    kn_dtype t = (kn_dtype)x->dtype,
             acc = ki_is_float(t) && ki_dtypes[t].bits < 32 && how != AMAX && how != AMIN && how != PUT ? KN_F32 : t;
    kn_uop hit = along_hit(k, x, idx, axis), v = ki_t_unsqueeze(k, ki_t_cast(k, value, acc), axis),
           own = ki_t_cast(k, x, acc), r;
    if (!hit || !v || !own) return NULL;
    if (how == PUT) {
        ki_shape s = {.n = ki_rank(hit)};
        for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == axis + 1 ? ki_dim_n(hit, i) : 1;
        kn_dtype it = ki_index_dtype(KN_I32, s.d[axis + 1].n);
        kn_uop number = ki_t_reshape_to(k, numbers(k, s.d[axis + 1].n), &s);
        kn_uop last = ki_t_max(k, met(k, KN_MAX, hit, number, over), ki_t_const(k, it, -1));
        return last ? ki_t_where(k, ki_t_ge(k, last, ki_t_lit(k, last, 0)), take_along(k, value, last, axis), x) : NULL;
    }
    kn_uop times =
        how == SUM && include ? NULL : ki_t_squeeze(k, ki_t_reduce(k, ki_t_cast(k, hit, KN_I32), KN_ADD, over), over);
    kn_uop some = times ? ki_t_gt(k, times, ki_t_lit(k, times, 0)) : NULL;
    switch (how) {
    case PROD:
        r = met(k, KN_MUL, hit, v, over);
        if (include) r = ki_t_mul(k, own, r);
        break;
    case AMAX:
        r = met(k, KN_MAX, hit, v, over);
        if (include) r = ki_t_max(k, own, r);
        break;
    case AMIN:
        r = met(k, KN_MAX, hit, turned(k, v), over);
        if (include) r = ki_t_max(k, turned(k, own), r);
        r = turned(k, r);
        break;
    default: /* SUM and MEAN */
        r = met(k, KN_ADD, hit, v, over);
        if (include) r = ki_t_add(k, own, r);
        if (how == MEAN && times) {
            kn_uop n = include ? ki_t_add(k, times, ki_t_lit(k, times, 1)) : ki_t_max(k, times, ki_t_lit(k, times, 1));
            n = ki_t_cast(k, n, acc);
            r = ki_is_float(acc) ? ki_t_div(k, r, n) : ki_t_binary(k, KN_IDIV, r, n);
        }
        break;
    }
    r = ki_t_cast(k, r, t);
    return include ? r : ki_t_where(k, some, r, x);
}

/* idx has x's rank, and no axis but the one longer than x's; value has idx's shape. What idx does not reach stays. */
static kn_tensor along(kn_ctx *k, kn_tensor x, int axis, kn_tensor idx, kn_tensor value, int how, bool include) {
    char a[128], b[128];
    kn_uop u, v;
    ki_meet(k, x, value, &u, &v);
    u = x->u;
    int at = along_axis(k, x, idx, axis);
    if (at < 0) return ki_handle(k, NULL);
    ki_shape si = ki_shape_like(idx->u), part = ki_shape_like(u);
    int64_t none[KI_MAX_RANK] = {0}, after[KI_MAX_RANK] = {0};
    bool whole = true;
    for (unsigned i = 0; i < si.n; i++) {
        if ((int)i == at) continue;
        if (si.d[i].n > part.d[i].n)
            return FAIL(KI_E_ALONG_SHAPE, k->fn, "an index", ki_shape_text(idx->u->type, a, sizeof a),
                        ki_shape_text(u->type, b, sizeof b), at),
                   ki_handle(k, NULL);
        after[i] = part.d[i].n - si.d[i].n;
        part.d[i].n = si.d[i].n;
        whole &= !after[i];
    }
    v = ki_t_cast(k, ki_t_broadcast_to(k, v, &si), (kn_dtype)u->dtype);
    if (!v || !ki_numel(v)) return ki_handle(k, v ? u : NULL);
    kn_uop i = from_end(k, idx->u, ki_dim_n(u, (unsigned)at)), own = u;
    for (unsigned d = 0; d < part.n; d++) own = ki_t_narrow(k, own, d, 0, part.d[d].n);
    kn_uop r = own && i ? meet_along(k, own, (unsigned)at, i, v, how, include) : NULL;
    if (whole || !r) return ki_handle(k, r);
    kn_uop inside = ki_t_pad_with(k, ki_t_full(k, &part, ki_t_const(k, KN_BOOL, 1)), none, after, NULL);
    return ki_handle(k, ki_t_where(k, inside, ki_t_pad_with(k, r, none, after, NULL), u));
}

kn_tensor kn_scatter_add_along_axis(kn_tensor x, int axis, kn_tensor idx, kn_tensor value) {
    ENTER("scatter_add_along_axis", x, idx, value);
    return along(k, x, axis, idx, value, SUM, true);
}
kn_tensor kn_put_along_axis(kn_tensor x, int axis, kn_tensor idx, kn_tensor value) {
    ENTER("put_along_axis", x, idx, value);
    return along(k, x, axis, idx, value, PUT, true);
}
kn_tensor kn_scatter_reduce(kn_tensor x, int axis, kn_tensor idx, kn_tensor value, const char *how, int include_self) {
    static const char *const name[] = {
        [SUM] = "sum", [PROD] = "prod", [MEAN] = "mean", [AMAX] = "amax", [AMIN] = "amin"};
    ENTER("scatter_reduce", x, idx, value);
    if (!ki_given(k, k->fn, "how", how)) return ki_handle(k, NULL);
    for (int i = SUM; i <= AMIN; i++)
        if (strcmp(how, name[i]) == 0) return along(k, x, axis, idx, value, i, include_self != 0);
    return FAIL(KI_E_MODE, "scatter_reduce", how, "sum, prod, mean, amax or amin"), ki_handle(k, NULL);
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
