/* reduce.c: reductions and scans.
 *
 * Inside, axes are bits and a reduced axis stays, of size 1. Sums and products accumulate in f32 for the small floats
 * and in 64 bits for integers. A scan is the spec's prefix_sum: windows over the padded axis, reduced. */
#include "tensor/sort.h"

#include <float.h>
#include <math.h>

#define L(v) ki_t_lit(k, x, v)

kn_uop ki_t_reduce(kn_ctx *k, kn_uop x, kn_op op, uint32_t axes) { return x ? ki_reduce(&k->ir, x, op, axes) : NULL; }

static kn_dtype accumulator(kn_dtype t) {
    if (ki_is_float(t)) return ki_dtypes[t].bits < 32 ? KN_F32 : t;
    return t == KN_IDX ? t : ki_is_uint(t) ? KN_U64 : KN_I64;
}

static kn_uop accumulate(kn_ctx *k, kn_uop x, kn_op op, uint32_t axes) {
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = accumulator(t);
    kn_uop r = ki_t_reduce(k, ki_t_cast(k, x, acc), op, axes);
    return ki_is_float(t) ? ki_t_cast(k, r, t) : r;
}
kn_uop ki_t_sum(kn_ctx *k, kn_uop x, uint32_t axes) { return accumulate(k, x, KN_ADD, axes); }
kn_uop ki_t_prod(kn_ctx *k, kn_uop x, uint32_t axes) { return accumulate(k, x, KN_MUL, axes); }

/* Nothing has no largest element. */
static bool nonempty(kn_ctx *k, kn_uop x, uint32_t axes) {
    char s[128];
    if (!x) return false;
    for (unsigned i = 0; i < ki_rank(x); i++)
        if (axes >> i & 1 && ki_dim_n(x, i) == 0)
            return FAIL(KI_E_EMPTY_REDUCE, k->fn, i, ki_shape_text(x->type, s, sizeof s));
    return true;
}
kn_uop ki_t_max_over(kn_ctx *k, kn_uop x, uint32_t axes) {
    return nonempty(k, x, axes) ? ki_t_reduce(k, x, KN_MAX, axes) : NULL;
}

/* The mirror image under a map that turns the order round: -x, or ~x on integers. */
kn_uop ki_t_min_over(kn_ctx *k, kn_uop x, uint32_t axes) {
    if (!nonempty(k, x, axes)) return NULL;
    if (x->dtype == KN_BOOL) return ki_t_reduce(k, x, KN_MUL, axes);
    if (!ki_is_float((kn_dtype)x->dtype) && x->dtype != KN_IDX)
        return ki_t_unary(k, KN_NOT, ki_t_reduce(k, ki_t_unary(k, KN_NOT, x), KN_MAX, axes));
    return ki_t_neg(k, ki_t_reduce(k, ki_t_neg(k, x), KN_MAX, axes));
}

/* Number of elements reduced, as a () value of dtype t. */
static kn_uop count(kn_ctx *k, kn_uop x, uint32_t axes, kn_dtype t) {
    int64_t n = 1;
    kn_uop sym = NULL;
    for (unsigned i = 0; i < ki_rank(x); i++) {
        if (!(axes >> i & 1)) continue;
        ki_dim d = x->type->dim[i];
        if (d.sym) sym = sym ? ki_op2(&k->ir, KN_MUL, sym, d.sym) : d.sym;
        else n *= d.n;
    }
    if (!sym) return ki_t_const(k, t, (double)n);
    return ki_t_cast(k, ki_op2(&k->ir, KN_MUL, sym, ki_index(&k->ir, n)), t);
}

/* Small floats: sum and quotient in f32, rounded once. */
kn_uop ki_t_mean(kn_ctx *k, kn_uop x, uint32_t axes) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = accumulator(t);
    return ki_t_cast(k, ki_t_div(k, ki_t_reduce(k, ki_t_cast(k, x, acc), KN_ADD, axes), count(k, x, axes, acc)), t);
}

kn_uop ki_t_var(kn_ctx *k, kn_uop x, uint32_t axes, double correction) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = accumulator(t);
    x = ki_t_cast(k, x, acc);
    kn_uop d = ki_t_sub(k, x, ki_t_mean(k, x, axes)), n = x ? count(k, x, axes, acc) : NULL;
    if (correction != 0) n = ki_t_max(k, ki_t_sub(k, n, ki_t_const(k, acc, correction)), ki_t_const(k, acc, 0));
    return ki_t_cast(k, ki_t_div(k, ki_t_reduce(k, ki_t_mul(k, d, d), KN_ADD, axes), n), t);
}
static kn_uop std_of(kn_ctx *k, kn_uop x, uint32_t axes, double correction) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    return ki_t_cast(k, ki_t_sqrt(k, ki_t_var(k, ki_t_cast(k, x, accumulator(t)), axes, correction)), t);
}

/* Of an infinite maximum the largest number is subtracted, or the least: inf - inf would be NaN. In this form prepare.kr knows it. */
kn_uop ki_t_logsumexp(kn_ctx *k, kn_uop x, uint32_t axes) {
    x = ki_t_float(k, x);
    if (!nonempty(k, x, axes)) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    x = ki_t_cast(k, x, accumulator(t));
    kn_uop least = L(t == KN_F64 ? -DBL_MAX : -(double)FLT_MAX),
           m = ki_t_max(k, ki_t_reduce(k, x, KN_MAX, axes), least);
    kn_uop safe = ki_t_neg(k, ki_t_max(k, ki_t_neg(k, m), least));
    safe = safe ? ki_op1(&k->ir, KN_DETACH, safe) : NULL;
    return ki_t_cast(k, ki_t_add(k, ki_t_log(k, ki_t_sum(k, ki_t_exp(k, ki_t_sub(k, x, safe)), axes)), safe), t);
}

static kn_uop any_of(kn_ctx *k, kn_uop x, uint32_t axes) { return ki_t_reduce(k, ki_t_truth(k, x), KN_ADD, axes); }
static kn_uop all_of(kn_ctx *k, kn_uop x, uint32_t axes) { return ki_t_reduce(k, ki_t_truth(k, x), KN_MUL, axes); }
static kn_uop count_nonzero_of(kn_ctx *k, kn_uop x, uint32_t axes) { return ki_t_sum(k, ki_t_truth(k, x), axes); }
static kn_uop norm_of(kn_ctx *k, kn_uop x, uint32_t axes) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    x = ki_t_cast(k, x, accumulator(t));
    return ki_t_cast(k, ki_t_sqrt(k, ki_t_sum(k, ki_t_mul(k, x, x), axes)), t);
}

/* ---- leaving NaN out ---------------------------------------------------------------------------------------- */

static kn_uop numbers_or(kn_ctx *k, kn_uop x, kn_uop instead) {
    return !x || !ki_is_float((kn_dtype)x->dtype) ? x : ki_t_where(k, ki_t_isnan(k, x), instead, x);
}
static kn_uop numbers(kn_ctx *k, kn_uop x, double instead) { return numbers_or(k, x, x ? L(instead) : NULL); }
static kn_uop nansum_of(kn_ctx *k, kn_uop x, uint32_t axes) { return ki_t_sum(k, numbers(k, x, 0), axes); }
static kn_uop nanprod_of(kn_ctx *k, kn_uop x, uint32_t axes) { return ki_t_prod(k, numbers(k, x, 1), axes); }

/* The largest number; NaN where there is none. */
static kn_uop nanmax_of(kn_ctx *k, kn_uop x, uint32_t axes) {
    kn_uop m = ki_t_max_over(k, numbers_or(k, x, x ? ki_t_lowest(k, (kn_dtype)x->dtype) : NULL), axes);
    if (!m || !ki_is_float((kn_dtype)x->dtype)) return m;
    return ki_t_where(k, ki_t_reduce(k, ki_t_isnan(k, x), KN_MUL, axes), L((double)NAN), m);
}
static kn_uop nanmin_of(kn_ctx *k, kn_uop x, uint32_t axes) {
    if (!x || !ki_is_float((kn_dtype)x->dtype)) return ki_t_min_over(k, x, axes);
    return ki_t_neg(k, nanmax_of(k, ki_t_neg(k, x), axes));
}

/* How many numbers, in dtype t. */
static kn_uop count_numbers(kn_ctx *k, kn_uop x, uint32_t axes, kn_dtype t) {
    return x ? ki_t_cast(k, ki_t_sum(k, ki_t_eq(k, x, x), axes), t) : NULL;
}
static kn_uop nanmean_of(kn_ctx *k, kn_uop x, uint32_t axes) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = accumulator(t);
    kn_uop sum = ki_t_reduce(k, ki_t_cast(k, numbers(k, x, 0), acc), KN_ADD, axes);
    return ki_t_cast(k, ki_t_div(k, sum, count_numbers(k, x, axes, acc)), t);
}
static kn_uop nanvar_of(kn_ctx *k, kn_uop x, uint32_t axes, double correction) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = accumulator(t);
    x = ki_t_cast(k, x, acc);
    kn_uop d = ki_t_where(k, ki_t_isnan(k, x), x ? L(0) : NULL, ki_t_sub(k, x, nanmean_of(k, x, axes))),
           n = count_numbers(k, x, axes, acc); /* an infinity's d is NaN, and stays */
    if (correction != 0) n = ki_t_max(k, ki_t_sub(k, n, ki_t_const(k, acc, correction)), ki_t_const(k, acc, 0));
    return ki_t_cast(k, ki_t_div(k, ki_t_reduce(k, ki_t_mul(k, d, d), KN_ADD, axes), n), t);
}
static kn_uop nanstd_of(kn_ctx *k, kn_uop x, uint32_t axes, double correction) {
    return ki_t_sqrt(k, nanvar_of(k, x, axes, correction));
}

/* ---- the public pairs -------------------------------------------------------------------------------------- */

static kn_uop finish(kn_ctx *k, kn_uop r, uint32_t axes, int keep) { return keep ? r : ki_t_squeeze(k, r, axes); }

#define REDUCTION(name, fn)                                                                                            \
    kn_tensor kn_##name(kn_tensor t) {                                                                                 \
        ENTER(#name, t);                                                                                               \
        return ki_handle(k, finish(k, fn(k, t->u, all_axes(t->u)), all_axes(t->u), 0));                                \
    }                                                                                                                  \
    kn_tensor kn_##name##_over(kn_tensor t, kn_ints axes, int keep) {                                                  \
        ENTER(#name, t);                                                                                               \
        uint32_t bits;                                                                                                 \
        bool ok = ki_axes(k, axes, ki_rank(t->u), &bits);                                                              \
        return ki_handle(k, ok ? finish(k, fn(k, t->u, bits), bits, keep) : NULL);                                     \
    }
REDUCTION(sum, ki_t_sum)
REDUCTION(prod, ki_t_prod)
REDUCTION(max, ki_t_max_over)
REDUCTION(min, ki_t_min_over)
REDUCTION(mean, ki_t_mean)
REDUCTION(any, any_of)
REDUCTION(all, all_of)
REDUCTION(logsumexp, ki_t_logsumexp)
REDUCTION(count_nonzero, count_nonzero_of)
REDUCTION(norm, norm_of)
REDUCTION(nansum, nansum_of)
REDUCTION(nanprod, nanprod_of)
REDUCTION(nanmax, nanmax_of)
REDUCTION(nanmin, nanmin_of)
REDUCTION(nanmean, nanmean_of)

#define SPREAD(name, fn)                                                                                               \
    kn_tensor kn_##name(kn_tensor t, double correction) {                                                              \
        ENTER(#name, t);                                                                                               \
        return ki_handle(k, finish(k, fn(k, t->u, all_axes(t->u), correction), all_axes(t->u), 0));                    \
    }                                                                                                                  \
    kn_tensor kn_##name##_over(kn_tensor t, kn_ints axes, int keep, double correction) {                               \
        ENTER(#name, t);                                                                                               \
        uint32_t bits;                                                                                                 \
        bool ok = ki_axes(k, axes, ki_rank(t->u), &bits);                                                              \
        return ki_handle(k, ok ? finish(k, fn(k, t->u, bits, correction), bits, keep) : NULL);                         \
    }
SPREAD(var, ki_t_var)
SPREAD(std, std_of)
SPREAD(nanvar, nanvar_of)
SPREAD(nanstd, nanstd_of)

/* ---- positions --------------------------------------------------------------------------------------------- */

/* n minus the position, where the element is the extreme one (or NaN), 0 elsewhere: the maximum is the first. */
static kn_uop arg_of(kn_ctx *k, kn_uop x, int axis, int keep, kn_uop (*extreme)(kn_ctx *, kn_uop, uint32_t)) {
    if (axis < 0 || !ki_shape_known(k, x)) return NULL;
    uint32_t bit = UINT32_C(1) << axis;
    kn_uop m = extreme(k, x, bit), hit = ki_t_eq(k, x, m);
    if (!hit) return NULL;
    if (ki_is_float((kn_dtype)x->dtype)) hit = ki_t_binary(k, KN_OR, hit, ki_t_isnan(k, x));
    int64_t n = ki_dim_n(x, (unsigned)axis);
    kn_dtype t = ki_index_dtype(KN_I32, n);
    kn_uop left = ki_t_sub(k, ki_t_const(k, t, (double)n), ki_t_iota_axis(k, x, (unsigned)axis, t));
    kn_uop best = ki_t_reduce(k, ki_t_where(k, hit, left, ki_t_const(k, t, 0)), KN_MAX, bit);
    return finish(k, ki_t_cast(k, ki_t_sub(k, ki_t_const(k, t, (double)n), best), KN_I64), bit, keep);
}
kn_tensor kn_argmax(kn_tensor t, int axis, int keep) {
    ENTER("argmax", t);
    return ki_handle(k, arg_of(k, t->u, ki_axis(k, axis, ki_rank(t->u)), keep, ki_t_max_over));
}
kn_tensor kn_argmin(kn_tensor t, int axis, int keep) {
    ENTER("argmin", t);
    return ki_handle(k, arg_of(k, t->u, ki_axis(k, axis, ki_rank(t->u)), keep, ki_t_min_over));
}

/* ---- scans ------------------------------------------------------------------------------------------------- */

/* Window i of the axis with n - 1 identities in front ends at element i. As in the spec: the padded axis of 2n - 1,
 * n + 1 times in a row, cut into n rows of 2n, of which the first n count: row i starts i further on. */
kn_uop ki_t_scan(kn_ctx *k, kn_uop x, unsigned axis, kn_op op, kn_uop identity) {
    if (!ki_shape_known(k, x)) return NULL;
    unsigned last = ki_rank(x) - 1;
    int64_t n = ki_dim_n(x, axis), before[KI_MAX_RANK] = {0}, after[KI_MAX_RANK] = {0};
    if (n <= 1) return x;
    x = ki_t_move(k, x, axis, last);
    before[last] = n - 1;
    kn_uop y = ki_t_pad_with(k, x, before, after, identity);
    y = ki_t_tile_axis(k, y, last, n + 1);
    y = ki_t_narrow(k, y, last, 0, 2 * n * n);
    if (!y) return NULL;
    ki_shape s = ki_shape_like(y);
    if (s.n == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    s.d[s.n - 1].n = n;
    s.d[s.n++].n = 2 * n;
    y = ki_t_narrow(k, ki_t_reshape_to(k, y, &s), last + 1, 0, n);
    y = ki_t_squeeze(k, ki_t_reduce(k, y, op, UINT32_C(1) << (last + 1)), UINT32_C(1) << (last + 1));
    return ki_t_move(k, y, last, axis);
}

static kn_uop scan(kn_ctx *k, kn_uop x, int axis, kn_op op) {
    if (axis < 0) return NULL;
    kn_dtype t = (kn_dtype)x->dtype, acc = op == KN_MAX ? t : accumulator(t);
    x = ki_t_cast(k, x, acc);
    kn_uop identity = op == KN_ADD ? ki_is_float(acc) ? L(-0.0) : NULL : op == KN_MUL ? L(1) : ki_t_lowest(k, acc);
    kn_uop r = ki_t_scan(k, x, (unsigned)axis, op, identity);
    return ki_is_float(t) ? ki_t_cast(k, r, t) : r;
}
#define SCAN(name, op)                                                                                                 \
    kn_tensor kn_##name(kn_tensor t, int axis) {                                                                       \
        ENTER(#name, t);                                                                                               \
        return ki_handle(k, scan(k, t->u, ki_axis(k, axis, ki_rank(t->u)), op));                                       \
    }
SCAN(cumsum, KN_ADD)
SCAN(cumprod, KN_MUL)

/* The last position so far at which x is its running maximum m (or NaN): the largest such position. What is long is stored between: a
 * running maximum is carried over what is stored. */
static kn_uop record_of(kn_ctx *k, kn_uop x, kn_uop m, int axis, bool store) {
    if (!x || !m) return NULL;
    kn_uop hit = ki_t_eq(k, x, store ? ki_op1(&k->ir, KN_CONTIGUOUS, m) : m);
    if (ki_is_float((kn_dtype)x->dtype)) hit = ki_t_binary(k, KN_OR, hit, ki_t_isnan(k, x));
    kn_dtype it = ki_index_dtype(KN_I32, ki_dim_n(x, (unsigned)axis));
    kn_uop at = ki_t_where(k, hit, ki_t_iota_axis(k, x, (unsigned)axis, it), ki_t_const(k, it, 0));
    if (at && store) at = ki_op1(&k->ir, KN_CONTIGUOUS, at);
    return at ? scan(k, at, axis, KN_MAX) : NULL;
}

/* The derivative goes to where the maximum so far is: n elements take n of them. */
static kn_uop running_max(kn_ctx *k, kn_uop x, int axis) {
    enum { SHORT = 16 };
    ki_rows o, p;
    kn_uop m = axis < 0 || !x ? NULL : scan(k, x, axis, KN_MAX);
    if (!m || !ki_is_float((kn_dtype)x->dtype)) return m;
    uint32_t bit = UINT32_C(1) << axis;
    kn_uop at = record_of(k, x, m, axis, ki_dim_n(x, (unsigned)axis) > SHORT);
    if (!at || !ki_rows_of(k, x, bit, &o) || !ki_rows_of(k, at, bit, &p)) return NULL;
    return ki_t_straight(k, m, ki_rows_out(k, ki_t_pick(k, o.x, p.x), &o, o.n));
}

/* Turned round by -x, or ~x of integers. */
static kn_uop turned(kn_ctx *k, kn_uop x) {
    return ki_t_unary(k, ki_is_float((kn_dtype)x->dtype) ? KN_NEG : KN_NOT, x);
}

kn_tensor kn_cummax(kn_tensor t, int axis) {
    ENTER("cummax", t);
    return ki_handle(k, running_max(k, t->u, ki_axis(k, axis, ki_rank(t->u))));
}
kn_tensor kn_cummin(kn_tensor t, int axis) {
    ENTER("cummin", t);
    kn_uop m = running_max(k, turned(k, t->u), ki_axis(k, axis, ki_rank(t->u)));
    return ki_handle(k, m ? turned(k, m) : NULL);
}

static kn_tensor record(kn_tensor t, int axis, bool least, const char *fn) {
    ENTER(fn, t);
    kn_uop x = least ? turned(k, t->u) : t->u;
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !x) return ki_handle(k, NULL);
    return ki_handle(k, ki_t_cast(k, record_of(k, x, scan(k, x, a, KN_MAX), a, true), KN_I64));
}
kn_tensor kn_cummax_indices(kn_tensor t, int axis) { return record(t, axis, false, "cummax_indices"); }
kn_tensor kn_cummin_indices(kn_tensor t, int axis) { return record(t, axis, true, "cummin_indices"); }

/* logcumsumexp of a short last axis: each element by its own maximum so far. */
static kn_uop all_before(kn_ctx *k, kn_uop x) {
    if (!x) return NULL;
    unsigned last = ki_rank(x) - 1;
    int64_t n = ki_dim_n(x, last);
    kn_uop i = ki_t_iota(k, n, KN_I32), upto = ki_t_le(k, RESHAPE(i, 1, n), RESHAPE(i, n, 1));
    kn_uop y = ki_t_where(k, upto, ki_t_unsqueeze(k, x, last), L(-(double)INFINITY));
    return ki_t_squeeze(k, ki_t_logsumexp(k, y, UINT32_C(2) << last), UINT32_C(2) << last);
}

/* The last axis, of floats of 32 bits or more, in blocks of 16; what they come to, in blocks again, and so on; then back, each
 * block with what is before it. */
static kn_uop logcumsumexp_of(kn_ctx *k, kn_uop x) {
    enum { BLOCK = 16, MOST = 12 }; /* 16^12 = 2^48 */
    if (!x || ki_numel(x) == 0) return x;
    kn_uop part[MOST], none = L(-(double)INFINITY);
    unsigned last = ki_rank(x) - 1, levels = 0;
    int64_t size[MOST], first[KI_MAX_RANK] = {0}, more[KI_MAX_RANK] = {0}, zero[KI_MAX_RANK] = {0};
    first[last] = 1;
    for (; x && ki_dim_n(x, last) > BLOCK; levels++) {
        int64_t n = size[levels] = ki_dim_n(x, last), blocks = (n + BLOCK - 1) / BLOCK;
        more[last] = blocks * BLOCK - n;
        ki_shape s = ki_shape_like(x);
        s.d[last].n = blocks, s.d[last + 1] = (ki_dim){BLOCK, NULL}, s.n++;
        kn_uop y = all_before(k, ki_t_reshape_to(k, ki_t_pad_with(k, x, zero, more, none), &s));
        if (!y) return NULL;
        part[levels] = y = ki_op1(&k->ir, KN_CONTIGUOUS, y);
        x = ki_t_squeeze(k, ki_t_narrow(k, y, last + 1, BLOCK - 1, 1), UINT32_C(2) << last);
        x = ki_t_narrow(k, x, last, 0, blocks - 1);
    }
    x = all_before(k, x);
    while (x && levels > 0) {
        x = ki_t_unsqueeze(k, ki_t_pad_with(k, x, first, zero, none), last + 1);
        x = ki_t_logaddexp(k, part[--levels], x);
        if (!x) return NULL;
        ki_shape s = ki_shape_like(x);
        s.n--, s.d[last].n *= BLOCK;
        x = ki_t_narrow(k, ki_t_reshape_to(k, x, &s), last, 0, size[levels]);
    }
    return x;
}
kn_tensor kn_logcumsumexp(kn_tensor t, int axis) {
    ENTER("logcumsumexp", t);
    kn_uop x = ki_t_float(k, t->u);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (ki_rank(x) + 2 > KI_MAX_RANK)
        return FAIL(KI_E_RANK_TOO_LARGE, "logcumsumexp", KI_MAX_RANK - 2), ki_handle(k, NULL);
    kn_dtype dt = (kn_dtype)x->dtype;
    unsigned last = ki_rank(x) - 1;
    kn_uop y = logcumsumexp_of(k, ki_t_move(k, ki_t_cast(k, x, accumulator(dt)), (unsigned)a, last));
    return ki_handle(k, ki_t_cast(k, ki_t_move(k, y, last, (unsigned)a), dt));
}

kn_tensor kn_prefix_sum(kn_tensor t) {
    ENTER("prefix_sum", t);
    return ki_handle(k, scan(k, t->u, ki_axis(k, 0, ki_rank(t->u)), KN_ADD));
}

/* ---- softmax ----------------------------------------------------------------------------------------------- */

/* A row's largest, to which no gradient goes. */
static kn_uop largest(kn_ctx *k, kn_uop x, unsigned axis) {
    kn_uop m = ki_t_reduce(k, x, KN_MAX, UINT32_C(1) << axis);
    return m ? ki_op1(&k->ir, KN_DETACH, m) : NULL;
}
/* Exponentials and their sum in f32 at least. A row is divided by its sum once: a product by the reciprocal, which is 1 at most, as the sum
 * is 1 at least. */
kn_uop ki_t_softmax(kn_ctx *k, kn_uop x, unsigned axis) {
    if (!x) return NULL;
    kn_dtype t = ki_fraction((kn_dtype)x->dtype);
    x = ki_t_cast(k, x, accumulator(t));
    kn_uop e = ki_t_exp(k, ki_t_sub(k, x, largest(k, x, axis)));
    kn_uop sum = ki_t_reduce(k, e, KN_ADD, UINT32_C(1) << axis);
    return ki_t_cast(k, ki_t_mul(k, e, ki_t_unary(k, KN_RECIP, sum)), t);
}
kn_uop ki_t_log_total(kn_ctx *k, kn_uop x, unsigned axis, kn_uop off[2]) {
    x = x ? ki_t_cast(k, x, accumulator(ki_fraction((kn_dtype)x->dtype))) : NULL;
    off[0] = x ? largest(k, x, axis) : NULL;
    off[1] = ki_t_log(k, ki_t_reduce(k, ki_t_exp(k, ki_t_sub(k, x, off[0])), KN_ADD, UINT32_C(1) << axis));
    return off[1] ? x : NULL;
}
kn_uop ki_t_log_softmax(kn_ctx *k, kn_uop x, unsigned axis) {
    if (!x) return NULL;
    kn_uop off[2], y = ki_t_log_total(k, x, axis, off);
    return ki_t_cast(k, ki_t_sub(k, ki_t_sub(k, y, off[0]), off[1]), ki_fraction((kn_dtype)x->dtype));
}

static kn_tensor along(kn_tensor t, int axis, const char *fn, kn_uop (*f)(kn_ctx *, kn_uop, unsigned), bool negate) {
    ENTER(fn, t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    return ki_handle(k, a < 0 ? NULL : f(k, negate ? ki_t_neg(k, t->u) : t->u, (unsigned)a));
}
kn_tensor kn_softmax(kn_tensor t, int axis) { return along(t, axis, "softmax", ki_t_softmax, false); }
kn_tensor kn_log_softmax(kn_tensor t, int axis) { return along(t, axis, "log_softmax", ki_t_log_softmax, false); }
kn_tensor kn_softmin(kn_tensor t, int axis) { return along(t, axis, "softmin", ki_t_softmax, true); }
