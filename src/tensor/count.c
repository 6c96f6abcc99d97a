/* count.c: functions that look up and count: searchsorted, bucketize, bincount, histogram, unique, mode, nonzero, masked_select.
 *
 * What is found may be any number: such functions are told how many there is room for, give what is found first and how much
 * that is; places behind it hold 0, or positions that lie outside. Costs grow as the elements do, with the logarithm of the
 * table where one is searched. */
#include "tensor/sort.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

static bool room_ok(kn_ctx *k, int64_t size) {
    return (size >= 0 && size < INT32_MAX) || FAIL(KI_E_SIZE_RANGE, k->fn, (long long)size, 0u);
}
static kn_uop i32(kn_ctx *k, int64_t v) { return ki_t_const(k, KN_I32, (double)v); }
static kn_uop wide(kn_ctx *k, kn_uop x) { return ki_t_cast(k, x, KN_I64); }
static kn_uop scalar(kn_ctx *k, kn_uop x) { return ki_t_reshape_to(k, wide(k, x), &(ki_shape){.n = 0}); }
static kn_uop ones(kn_ctx *k, kn_uop like) {
    if (!like) return NULL;
    ki_shape s = ki_shape_like(like);
    return ki_t_full(k, &s, ki_t_const(k, KN_I32, 1));
}

/* Is place i of `size` one of the `number` (rows, 1) that are taken? (1, size) or (rows, size) */
static kn_uop taken(kn_ctx *k, kn_uop number, int64_t size) {
    return ki_t_lt(k, ki_t_positions(k, 1, size, KN_I32), number);
}

/* Where truths (1, n) are: the first `size` of their positions, n where there are no more. *number: how many, (1, 1). */
static kn_uop where_true(kn_ctx *k, kn_uop p, int64_t size, kn_uop *number) {
    if (!p) return NULL;
    int64_t n = ki_dim_n(p, 1);
    *number = ki_t_stored(k, ki_t_count(k, p, 1));
    kn_uop before = ki_t_sub(k, ki_t_running(k, ki_t_cast(k, p, KN_I32), 1), i32(k, 1));
    kn_uop at = ki_t_stored(k, ki_t_where(k, p, before, i32(k, size)));
    kn_uop found = ki_t_place(k, ki_t_stored(k, ki_t_positions(k, 1, n, KN_I32)), at, size);
    return ki_t_stored(k, ki_t_where(k, taken(k, *number, size), found, i32(k, n)));
}

/* ---- tables ------------------------------------------------------------------------------------------------ */

/* How many of each row of a table (r, n), ascending, are below each v (r, m), or not above it: by halves, short ones counted. */
static kn_uop search(kn_ctx *k, kn_uop table, kn_uop v, bool right) {
    enum { COUNTED = 32 };
    if (!table || !v) return NULL;
    int64_t r = ki_dim_n(v, 0), n = ki_dim_n(table, 1), m = ki_dim_n(v, 1);
    unsigned bits;
    table = ki_t_stored(k, ki_t_key(k, table, false, &bits));
    v = ki_t_key(k, v, false, &bits);
    if (!table || !v) return NULL;
    if (n <= COUNTED) {
        kn_uop a = ki_t_unsqueeze(k, table, 1), b = ki_t_unsqueeze(k, v, 2);
        return ki_t_squeeze(k, ki_t_count(k, right ? ki_t_le(k, a, b) : ki_t_lt(k, a, b), 2), 4);
    }
    ki_shape s = {.n = 2, .d = {{r, NULL}, {m, NULL}}};
    kn_uop at = ki_t_full(k, &s, i32(k, 0));
    for (int64_t left = n, half; left > 0; left = left - half > half - 1 ? left - half : half - 1) {
        half = (left + 1) / 2;
        if (half > 16) half |= 1; /* steps of powers of two would all meet in the same few lines of a cache */
        kn_uop next = ki_t_add(k, at, i32(k, half)), a = ki_t_pick(k, table, ki_t_sub(k, next, i32(k, 1)));
        kn_uop on = ki_t_binary(k, KN_AND, ki_t_le(k, next, i32(k, n)), right ? ki_t_le(k, a, v) : ki_t_lt(k, a, v));
        at = ki_t_where(k, on, next, at);
    }
    return at;
}

static kn_tensor searched(kn_tensor table, kn_tensor v, int right, const char *fn) {
    ENTER(fn, table, v);
    char s[128], t[128];
    kn_uop a, b;
    ki_meet(k, table, v, &a, &b);
    if (!ki_shape_known(k, a) || !ki_shape_known(k, b)) return ki_handle(k, NULL);
    unsigned rank = ki_rank(a);
    bool one = rank == 1, same = rank > 0 && rank == ki_rank(b);
    for (unsigned i = 0; same && i + 1 < rank; i++) same = ki_dim_n(a, i) == ki_dim_n(b, i);
    if (!one && !same)
        return FAIL(KI_E_TABLE_SHAPE, fn, ki_shape_text(a->type, s, sizeof s), ki_shape_text(b->type, t, sizeof t)),
               ki_handle(k, NULL);
    int64_t n = ki_dim_n(a, rank - 1), m = one ? ki_numel(b) : ki_dim_n(b, rank - 1), r = one ? 1 : 1;
    for (unsigned i = 0; !one && i + 1 < rank; i++) r *= ki_dim_n(a, i);
    if (n >= INT32_MAX) return FAIL(KI_E_SORT_LONG, fn, (long long)n), ki_handle(k, NULL);
    kn_dtype d = ki_promote((kn_dtype)a->dtype, (kn_dtype)b->dtype);
    ki_shape shape = ki_shape_like(b);
    a = ki_t_cast(k, RESHAPE(a, r, n), d), b = ki_t_cast(k, RESHAPE(b, r, m), d);
    return ki_handle(k, ki_t_reshape_to(k, wide(k, search(k, a, b, right != 0)), &shape));
}
kn_tensor kn_searchsorted(kn_tensor sorted, kn_tensor values, int right) {
    return searched(sorted, values, right, "searchsorted");
}
kn_tensor kn_bucketize(kn_tensor x, kn_tensor boundaries, int right) {
    return searched(boundaries, x, right, "bucketize");
}

/* ---- counts ------------------------------------------------------------------------------------------------ */

/* Of indices (1, n): how often each of 0 .. size-1 is there, or the sum of the weights (1, n) of where it is. (size,) */
static kn_uop tally(kn_ctx *k, kn_uop at, kn_uop weights, int64_t size) {
    if (!at) return NULL;
    if (!weights) return wide(k, RESHAPE(ki_t_place(k, ones(k, at), at, size), size));
    kn_dtype t = (kn_dtype)weights->dtype, sum = ki_is_float(t)  ? (ki_dtypes[t].bits < 32 ? KN_F32 : t)
                                                 : ki_is_uint(t) ? KN_U64
                                                                 : KN_I64;
    return ki_t_cast(k, RESHAPE(ki_t_place(k, ki_t_cast(k, weights, sum), at, size), size), ki_is_float(t) ? t : sum);
}

/* weights as (1, n), for x's elements; NULL where there are none. False: a failure. */
static bool weights_of(kn_ctx *k, kn_tensor w, kn_uop x, kn_uop *out) {
    *out = NULL;
    if (!w) return true;
    ki_shape s = ki_shape_like(x);
    kn_uop u = ki_t_broadcast_to(k, w->u, &s);
    *out = u ? RESHAPE(u, 1, ki_numel(x)) : NULL;
    return *out;
}

kn_tensor kn_bincount(kn_tensor t, int64_t size, kn_tensor weights) {
    ENTER_("bincount", 2, t, weights);
    kn_uop x = t->u, w;
    if (ki_is_float((kn_dtype)x->dtype) || x->dtype == KN_BOOL)
        return FAIL(KI_E_FN_DTYPE, "bincount", ki_dtypes[x->dtype].name, "an integer index"), ki_handle(k, NULL);
    if (!ki_shape_known(k, x) || !room_ok(k, size) || !weights_of(k, weights, x, &w)) return ki_handle(k, NULL);
    kn_uop at = RESHAPE(x, 1, ki_numel(x));
    if (ki_dtypes[x->dtype].bits >= 32 && x->dtype != KN_I32) { /* as i32, what lies outside stays there */
        kn_uop in = ki_t_binary(k, KN_AND, ki_t_ge(k, at, L(0)), ki_t_lt(k, at, L((double)size)));
        at = ki_t_where(k, in, at, L((double)size));
    }
    return ki_handle(k, tally(k, ki_t_cast(k, at, KN_I32), w, size));
}

/* The i-th of bins + 1 edges from lo to hi, f64 () each, as numpy's linspace has it: rounded to dtype t. */
static kn_uop edge(kn_ctx *k, kn_uop i, int64_t bins, kn_uop lo, kn_uop hi, kn_dtype t) {
    kn_uop n = ki_t_const(k, KN_F64, (double)bins), width = ki_t_div(k, ki_t_sub(k, hi, lo), n);
    kn_uop at = ki_t_add(k, ki_t_mul(k, ki_t_cast(k, i, KN_F64), width), lo);
    at = ki_t_where(k, ki_t_eq(k, i, i32(k, bins)), hi, at);
    return ki_t_cast(k, ki_t_cast(k, at, t), KN_F64);
}

kn_tensor kn_histogram(kn_tensor t, int64_t bins, double lo, double hi, kn_tensor weights, kn_tensor *edges) {
    ENTER_OUT("histogram", 2, OUT(edges), t, weights);
    kn_uop x = t->u, w, from = ki_t_const(k, KN_F64, lo), to = ki_t_const(k, KN_F64, hi);
    if (bins < 1 || bins >= INT32_MAX || !(lo <= hi) || isinf(lo) || isinf(hi))
        return FAIL(KI_E_HISTOGRAM, (long long)bins, lo, hi), ki_fail_all(k, OUT(edges));
    if (!ki_shape_known(k, x) || !weights_of(k, weights, x, &w)) return ki_fail_all(k, OUT(edges));
    int64_t n = ki_numel(x);
    kn_dtype rounded = ki_is_float((kn_dtype)x->dtype) ? (kn_dtype)x->dtype : KN_F64;
    kn_uop v = ki_t_cast(k, ki_op1(&k->ir, KN_DETACH, RESHAPE(x, 1, n)), KN_F64);
    if (lo == hi && n > 0) {
        from = RESHAPE(ki_t_min_over(k, v, 3), 1), to = RESHAPE(ki_t_max_over(k, v, 3), 1);
        kn_uop none = ki_t_eq(k, from, to), half = ki_t_const(k, KN_F64, 0.5);
        kn_uop below = ki_t_where(k, none, ki_t_sub(k, from, half), from);
        to = ki_t_where(k, none, ki_t_add(k, to, half), to), from = below;
    } else if (lo == hi) {
        from = ki_t_const(k, KN_F64, lo - 0.5), to = ki_t_const(k, KN_F64, hi + 0.5);
    }
    kn_uop last = i32(k, bins - 1), one = i32(k, 1), b = ki_t_const(k, KN_F64, (double)bins);
    kn_uop i = ki_t_cast(k, ki_t_mul(k, ki_t_div(k, ki_t_sub(k, v, from), ki_t_sub(k, to, from)), b), KN_I32);
    i = ki_t_min(k, ki_t_max(k, i, i32(k, 0)), last); /* numpy's: a step to what the edges say */
    i = ki_t_sub(k, i, ki_t_cast(k, ki_t_lt(k, v, edge(k, i, bins, from, to, rounded)), KN_I32));
    kn_uop up = ki_t_ge(k, v, edge(k, ki_t_add(k, i, one), bins, from, to, rounded));
    i = ki_t_add(k, i, ki_t_cast(k, ki_t_binary(k, KN_AND, up, ki_t_lt(k, i, last)), KN_I32));
    kn_uop in = ki_t_binary(k, KN_AND, ki_t_ge(k, v, from), ki_t_le(k, v, to));
    kn_uop h = tally(k, ki_t_where(k, in, i, i32(k, bins)), w, bins);
    ki_give(k, edges,
            ki_t_cast(k, edge(k, ki_t_iota(k, bins + 1, KN_I32), bins, from, to, rounded),
                      ki_fraction((kn_dtype)x->dtype)));
    return ki_handle(k, h);
}

/* ---- runs of equals ---------------------------------------------------------------------------------------- */

/* Rows (r, n) in order: `at`: positions; `fresh`: is an element the first of its equals; `id`: how many runs are before its own. */
typedef struct runs {
    kn_uop at, fresh, id;
} runs;
static bool runs_of(kn_ctx *k, kn_uop x, runs *o) {
    unsigned bits;
    kn_uop key = ki_t_key(k, x, false, &bits);
    o->at = ki_t_order(k, key, bits);
    if (!o->at) return false;
    o->at = ki_t_stored(k, o->at);
    kn_uop s = ki_t_stored(k, ki_t_pick(k, key, o->at)), i = ki_t_iota_axis(k, s, 1, KN_I32);
    int64_t n = ki_dim_n(s, 1);
    kn_uop before = n ? ki_t_pad_axis(k, ki_t_narrow(k, s, 1, 0, n - 1), 1, 1, 0) : s;
    o->fresh = ki_t_binary(k, KN_OR, ki_t_ne(k, s, before), ki_t_eq(k, i, i32(k, 0)));
    kn_uop seen = ki_t_running(k, ki_t_cast(k, o->fresh, KN_I32), 1);
    o->id = ki_t_stored(k, ki_t_sub(k, seen, i32(k, 1)));
    return o->id;
}

kn_tensor kn_unique(kn_tensor t, int64_t size, kn_tensor *index, kn_tensor *inverse, kn_tensor *counts,
                    kn_tensor *number) {
    ENTER_OUT("unique", 0, OUT(index, inverse, counts, number), t);
    ki_rows o;
    runs r;
    if (!room_ok(k, size) || !ki_rows_of(k, t->u, all_axes(t->u), &o) || !runs_of(k, o.x, &r))
        return ki_fail_all(k, OUT(index, inverse, counts, number));
    kn_uop many = ki_t_stored(k, ki_t_count(k, r.fresh, 1)), is = taken(k, many, size), out = i32(k, size);
    kn_uop first = ki_t_place(k, r.at, ki_t_where(k, r.fresh, r.id, out), size);
    first = ki_t_stored(k, ki_t_where(k, is, first, i32(k, o.n)));
    kn_uop x = o.x, y = ki_t_where(k, is, ki_t_pick(k, x, first), L(0));
    ki_give(k, index, index ? RESHAPE(wide(k, first), size) : NULL);
    ki_give(k, inverse, inverse ? ki_t_reshape_to(k, wide(k, ki_t_place(k, r.id, r.at, o.n)), &o.shape) : NULL);
    ki_give(k, counts, counts ? tally(k, r.id, NULL, size) : NULL);
    ki_give(k, number, number ? scalar(k, many) : NULL);
    return ki_handle(k, RESHAPE(y, size));
}

kn_tensor kn_mode(kn_tensor t, int axis, int keep, kn_tensor *indices) {
    ENTER_OUT("mode", 0, OUT(indices), t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    char s[128];
    ki_rows o;
    runs r;
    if (a < 0 || !ki_rows_of(k, t->u, UINT32_C(1) << a, &o)) return ki_fail_all(k, OUT(indices));
    if (o.n == 0)
        return FAIL(KI_E_EMPTY_REDUCE, "mode", (unsigned)a, ki_shape_text(t->u->type, s, sizeof s)),
               ki_fail_all(k, OUT(indices));
    if (!runs_of(k, o.x, &r)) return ki_fail_all(k, OUT(indices));
    kn_uop count = ki_t_place(k, ones(k, r.id), r.id, o.n);
    kn_uop most = ki_t_first_of(k, ki_t_eq(k, count, ki_t_reduce(k, count, KN_MAX, 2)));
    kn_uop place = ki_t_first_of(k, ki_t_eq(k, r.id, most)), at = ki_t_pick(k, r.at, place);
    kn_uop value = ki_rows_reduced(k, ki_t_pick(k, o.x, at), &o, UINT32_C(1) << a, keep);
    ki_give(k, indices, ki_rows_reduced(k, wide(k, at), &o, UINT32_C(1) << a, keep));
    return ki_handle(k, value);
}

/* ---- what is true ------------------------------------------------------------------------------------------ */

kn_tensor kn_nonzero(kn_tensor t, int64_t size, kn_tensor *number) {
    ENTER_OUT("nonzero", 0, OUT(number), t);
    kn_uop x = t->u, many, all = NULL, coordinate[KI_MAX_RANK];
    if (!room_ok(k, size) || !ki_shape_known(k, x)) return ki_fail_all(k, OUT(number));
    unsigned rank = ki_rank(x);
    int64_t n = ki_numel(x), step = n;
    if (n >= INT32_MAX) return FAIL(KI_E_SORT_LONG, "nonzero", (long long)n), ki_fail_all(k, OUT(number));
    kn_uop at = where_true(k, ki_t_truth(k, RESHAPE(x, 1, n)), size, &many), is = taken(k, many, size);
    for (unsigned i = 0; i < rank; i++) {
        int64_t d = ki_dim_n(x, i);
        step = d ? step / d : 0;
        kn_uop c = ki_t_binary(k, KN_MOD, ki_t_binary(k, KN_IDIV, at, i32(k, step)), i32(k, d));
        c = RESHAPE(wide(k, ki_t_where(k, is, c, i32(k, d))), size, 1);
        coordinate[i] = c;
    }
    ki_shape none = {.n = 2, .d = {{size, NULL}, {0, NULL}}};
    all = rank ? ki_t_cat(k, coordinate, rank, 1) : ki_t_full(k, &none, ki_t_const(k, KN_I64, 0));
    ki_give(k, number, scalar(k, many));
    return ki_handle(k, all);
}

kn_tensor kn_masked_select(kn_tensor t, kn_tensor mask, int64_t size, kn_tensor *number) {
    ENTER_OUT("masked_select", 0, OUT(number), t, mask);
    kn_uop x = t->u, p = ki_t_truth(k, mask->u), many;
    if (!room_ok(k, size) || !ki_shape_known(k, x) || !ki_shape_known(k, p) || !ki_broadcast(k, &x, &p))
        return ki_fail_all(k, OUT(number));
    ki_shape s = ki_rank(x) ? ki_shape_like(x) : ki_shape_like(p);
    x = ki_t_broadcast_to(k, x, &s), p = ki_t_broadcast_to(k, p, &s);
    if (!x || !p) return ki_fail_all(k, OUT(number));
    int64_t n = ki_numel(x);
    if (n >= INT32_MAX) return FAIL(KI_E_SORT_LONG, "masked_select", (long long)n), ki_fail_all(k, OUT(number));
    kn_uop at = where_true(k, RESHAPE(p, 1, n), size, &many);
    kn_uop y = ki_t_where(k, taken(k, many, size), ki_t_pick(k, RESHAPE(x, 1, n), at), L(0));
    ki_give(k, number, scalar(k, many));
    return ki_handle(k, RESHAPE(y, size));
}
