/* sort.c: order along an axis: sort, argsort, topk, kthvalue, median, quantile, mode.
 *
 * Elements are compared by keys: unsigned integers in their order, NaN above all, -0.0 and 0.0 equal. Positions are found by
 * keys, values by positions: values are exact (the sign of a zero, what a NaN carries) and gradients go where they came from.
 *
 * Three ways, all stable, each a handful of compositions:
 *  - short rows: an element's place is the number of elements before it, counted in one kernel, n vector steps of an element;
 *  - long rows, all of them: by digits of three bits, least first. A running sum within blocks of 128 counts eight digits at
 *    once, a byte of a u64 each; one over the blocks' counts says where each digit of each block begins; a sum that scatters
 *    moves key and position, packed in a u64. It is linear, with 11 passes for 32 bits (a bitonic network has 210 stages for a
 *    million, and moves as much in each): 75 ns an element of f32 at 16,000 as at a million, on one thread;
 *  - long rows, a few of them: the n-th least key by binary digits, three at a time, from counts of those below seven
 *    candidates: 11 sums for 32 bits; then running sums say which positions are below it. */
#include "tensor/sort.h"

#include <math.h>

enum { SHORT = 512, BLOCK = 128, DIGIT = 3 };

#define L(v) ki_t_lit(k, x, v)

/* ---- rows -------------------------------------------------------------------------------------------------- */

bool ki_rows_of(kn_ctx *k, kn_uop x, uint32_t axes, ki_rows *o) {
    int64_t order[KI_MAX_RANK];
    unsigned rank = x ? ki_rank(x) : 0, n = 0;
    if (!x || !ki_shape_known(k, x)) return false;
    *o = (ki_rows){.r = 1, .n = 1, .shape = ki_shape_like(x)};
    for (unsigned i = 0; i < rank; i++) {
        if (axes >> i & 1) continue;
        order[n++] = i;
        o->r *= ki_dim_n(x, i);
        o->kept.d[o->kept.n++] = x->type->dim[i];
    }
    for (unsigned i = 0; i < rank; i++)
        if (axes >> i & 1) order[n++] = i, o->n *= ki_dim_n(x, i), o->axis = i;
    if (o->n >= INT32_MAX) return FAIL(KI_E_SORT_LONG, k->fn, (long long)o->n);
    if (rank > 1) x = ki_permute(&k->ir, x, order, rank);
    o->x = RESHAPE(x, o->r, o->n);
    return o->x;
}

/* (rows, m) as x's shape with m for the axis. */
kn_uop ki_rows_out(kn_ctx *k, kn_uop y, const ki_rows *o, int64_t m) {
    ki_shape s = o->kept;
    s.d[s.n++] = (ki_dim){m, NULL};
    return y ? ki_t_move(k, ki_t_reshape_to(k, y, &s), s.n - 1, o->axis) : NULL;
}

/* (rows, 1) as the shape that a reduction leaves. */
kn_uop ki_rows_reduced(kn_ctx *k, kn_uop y, const ki_rows *o, uint32_t axes, int keep) {
    ki_shape s = o->shape;
    for (unsigned i = 0; i < s.n; i++)
        if (axes >> i & 1) s.d[i] = (ki_dim){1, NULL};
    return y ? ki_t_reshape_to(k, y, keep ? &s : &o->kept) : NULL;
}

/* x[r, at[r, j]]; what lies outside is 0. */
kn_uop ki_t_pick(kn_ctx *k, kn_uop x, kn_uop at) {
    if (!x || !at) return NULL;
    kn_uop from = ki_t_unsqueeze(k, x, 2),
           hit = ki_t_eq(k, ki_t_iota_axis(k, from, 1, KN_I32), ki_t_unsqueeze(k, at, 1));
    kn_uop none = L(ki_is_float((kn_dtype)x->dtype) ? -0.0 : 0);
    return ki_t_squeeze(k, ki_t_reduce(k, ki_t_where(k, hit, from, none), KN_ADD, 2), 2);
}

/* out[r, at[r, i]] = x[r, i] of n places, no two the same; what lies outside goes nowhere, what nothing goes to is 0. */
kn_uop ki_t_place(kn_ctx *k, kn_uop x, kn_uop at, int64_t n) {
    if (!x || !at) return NULL;
    kn_uop to = RESHAPE(ki_t_iota(k, n, KN_I32), 1, n, 1), hit = ki_t_eq(k, to, ki_t_unsqueeze(k, at, 1));
    return ki_t_squeeze(k, ki_t_reduce(k, ki_t_where(k, hit, ki_t_unsqueeze(k, x, 1), L(0)), KN_ADD, 4), 4);
}

/* 0, 1, ... along the rows of (r, n). */
kn_uop ki_t_positions(kn_ctx *k, int64_t r, int64_t n, kn_dtype t) {
    return ki_t_expand_axis(k, RESHAPE(ki_t_iota(k, n, t), 1, n), 0, r);
}

kn_uop ki_t_stored(kn_ctx *k, kn_uop x) { return x ? ki_op1(&k->ir, KN_CONTIGUOUS, x) : NULL; }
kn_uop ki_t_running(kn_ctx *k, kn_uop x, unsigned axis) { return x ? ki_t_scan(k, x, axis, KN_ADD, NULL) : NULL; }
kn_uop ki_t_count(kn_ctx *k, kn_uop p, unsigned axis) { /* of truths; the axis stays */
    return ki_t_reduce(k, ki_t_cast(k, p, KN_I32), KN_ADD, UINT32_C(1) << axis);
}

/* ---- keys -------------------------------------------------------------------------------------------------- */

/* The order of x, or the opposite one, as that of unsigned integers (u32 or u64), of which so many low bits count. */
kn_uop ki_t_key(kn_ctx *k, kn_uop x, bool down, unsigned *bits) {
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    unsigned width = *bits = t == KN_BOOL ? 1 : ki_dtypes[t].bits;
    kn_dtype u = width <= 8 ? KN_U8 : width == 16 ? KN_U16 : width == 32 ? KN_U32 : KN_U64;
    kn_uop key = x, sign = ki_const_bits(&k->ir, u, UINT64_C(1) << (width - 1));
    if (t == KN_BOOL) {
        key = ki_t_cast(k, ki_t_ne(k, x, ki_t_const(k, KN_BOOL, down)), u);
        down = false;
    } else if (ki_is_float(t)) {
        key = ki_op1(&k->ir, KN_DETACH, ki_t_where(k, ki_t_eq(k, x, L(0)), L(0), x));
        key = key ? ki_bitcast(&k->ir, key, u) : NULL;
        key = ki_t_where(k, ki_t_ge(k, key, sign), ki_t_unary(k, KN_NOT, key), ki_t_binary(k, KN_OR, key, sign));
        key = ki_t_where(k, ki_t_isnan(k, x), ki_t_unary(k, KN_NOT, ki_const_bits(&k->ir, u, 0)), key);
    } else if (ki_is_sint(t)) {
        key = ki_t_binary(k, KN_XOR, ki_bitcast(&k->ir, x, u), sign);
    }
    if (down) key = ki_t_unary(k, KN_NOT, key);
    return key ? ki_t_cast(k, key, width <= 32 ? KN_U32 : KN_U64) : NULL;
}

/* ---- short rows -------------------------------------------------------------------------------------------- */

/* Positions in order: an element's place is how many are before it. */
static kn_uop order_short(kn_ctx *k, kn_uop key) {
    int64_t n = ki_dim_n(key, 1);
    kn_uop a = ki_t_unsqueeze(k, key, 2), b = ki_t_unsqueeze(k, key, 1);
    kn_uop i = RESHAPE(ki_t_iota(k, n, KN_I32), 1, n, 1), j = RESHAPE(ki_t_iota(k, n, KN_I32), 1, 1, n);
    kn_uop tie = ki_t_binary(k, KN_AND, ki_t_eq(k, b, a), ki_t_lt(k, j, i));
    kn_uop at = ki_t_squeeze(k, ki_t_count(k, ki_t_binary(k, KN_OR, ki_t_lt(k, b, a), tie), 2), 4);
    return ki_t_place(k, ki_t_positions(k, ki_dim_n(key, 0), n, KN_I32), at, n);
}

/* ---- long rows --------------------------------------------------------------------------------------------- */

static kn_uop shifted(kn_ctx *k, kn_op op, kn_uop x, unsigned by) { return ki_t_binary(k, op, x, L(by)); }

/* Rows of u64, a whole number of blocks, by one digit. */
static kn_uop by_digit(kn_ctx *k, kn_uop x, unsigned shift) {
    if (!x) return NULL;
    int64_t r = ki_dim_n(x, 0), n = ki_dim_n(x, 1), blocks = n / BLOCK, digits = 1 << DIGIT;
    kn_uop digit = ki_t_binary(k, KN_AND, shifted(k, KN_SHR, x, shift), L((double)(digits - 1)));
    kn_uop byte = shifted(k, KN_SHL, digit, 3), one = ki_t_binary(k, KN_SHL, L(1), byte);
    kn_uop seen = ki_t_running(k, RESHAPE(one, r, blocks, BLOCK), 2); /* BLOCK at most: it fits a byte */
    kn_uop all = RESHAPE(ki_t_narrow(k, seen, 2, BLOCK - 1, 1), r, 1, blocks);
    kn_uop bytes = RESHAPE(shifted(k, KN_SHL, ki_t_iota(k, digits, KN_U64), 3), 1, digits, 1);
    kn_uop counts = ki_t_binary(k, KN_AND, ki_t_binary(k, KN_SHR, all, bytes), L(255));
    counts = RESHAPE(ki_t_cast(k, counts, KN_I32), r, digits * blocks);
    kn_uop start = ki_t_sub(k, ki_t_running(k, counts, 1), counts);
    kn_uop block = ki_t_expand_axis(k, RESHAPE(ki_t_iota(k, blocks, KN_I32), 1, blocks, 1), 2, BLOCK);
    kn_uop which = ki_t_add(k, ki_t_mul(k, ki_t_cast(k, digit, KN_I32), ki_t_const(k, KN_I32, (double)blocks)),
                            RESHAPE(block, 1, n));
    kn_uop before = ki_t_binary(k, KN_SHR, ki_t_sub(k, RESHAPE(seen, r, n), one), byte);
    before = ki_t_cast(k, ki_t_binary(k, KN_AND, before, L(255)), KN_I32);
    return ki_t_place(k, x, ki_t_add(k, ki_t_pick(k, start, which), before), n);
}

/* Positions in the order of 32 bits of the keys, elements being at `at` before. */
static kn_uop by_word(kn_ctx *k, kn_uop key, kn_uop at, unsigned bits) {
    kn_uop x = ki_t_binary(k, KN_OR, shifted(k, KN_SHL, ki_t_cast(k, key, KN_U64), 32), ki_t_cast(k, at, KN_U64));
    for (unsigned b = 0; b < bits; b += DIGIT) x = by_digit(k, x, 32 + b);
    return ki_t_cast(k, ki_t_cast(k, x, KN_U32), KN_I32);
}

static kn_uop order_long(kn_ctx *k, kn_uop key, unsigned bits) {
    int64_t r = ki_dim_n(key, 0), n = ki_dim_n(key, 1), whole = (n + BLOCK - 1) / BLOCK * BLOCK;
    int64_t none[2] = {0},
            more[2] = {0, whole - n}; /* what is added is behind all else: no key is larger, no position */
    kn_uop x = ki_t_pad_with(k, key, none, more, ki_t_unary(k, KN_NOT, ki_t_lit(k, key, 0)));
    kn_uop at = ki_t_positions(k, r, whole, KN_I32);
    at = by_word(k, ki_t_cast(k, x, KN_U32), at, bits < 32 ? bits : 32);
    if (bits == 64) at = by_word(k, ki_t_cast(k, ki_t_pick(k, shifted(k, KN_SHR, x, 32), at), KN_U32), at, 32);
    return ki_t_narrow(k, at, 1, 0, n);
}

/* Positions (rows, n) in order, of i32. */
kn_uop ki_t_order(kn_ctx *k, kn_uop key, unsigned bits) {
    if (!key) return NULL;
    if (ki_numel(key) == 0) return ki_t_cast(k, key, KN_I32);
    return ki_dim_n(key, 1) <= SHORT ? order_short(k, key) : order_long(k, key, bits);
}

/* ---- public: all of them ----------------------------------------------------------------------------------- */

static kn_tensor sorted(kn_tensor t, int axis, int down, const char *fn, bool values) {
    ENTER(fn, t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    ki_rows o;
    if (a < 0 || !ki_rows_of(k, t->u, UINT32_C(1) << a, &o)) return ki_handle(k, NULL);
    unsigned bits;
    kn_uop key = ki_t_key(k, o.x, down != 0, &bits), at = ki_t_order(k, key, bits);
    return ki_handle(k, ki_rows_out(k, values ? ki_t_pick(k, o.x, at) : ki_t_cast(k, at, KN_I64), &o, o.n));
}
kn_tensor kn_sort(kn_tensor t, int axis, int descending) { return sorted(t, axis, descending, "sort", true); }
kn_tensor kn_argsort(kn_tensor t, int axis, int descending) { return sorted(t, axis, descending, "argsort", false); }

/* ---- long rows, a few of them ------------------------------------------------------------------------------ */

/* The n-th least key of each row, n >= 1 of shape (rows or 1, 1): the largest that fewer than n keys are below. (rows, 1) */
static kn_uop nth_key(kn_ctx *k, kn_uop key, unsigned bits, kn_uop n) {
    if (!key || !n) return NULL;
    kn_uop all = ki_t_unsqueeze(k, key, 1), best = ki_t_lit(k, key, 0);
    n = ki_t_unsqueeze(k, n, 1);
    for (unsigned shift = (bits + DIGIT - 1) / DIGIT * DIGIT; shift > 0 && best;) {
        shift -= DIGIT;
        int64_t candidates = (1 << (bits - shift < DIGIT ? bits - shift : DIGIT)) - 1;
        kn_uop v = ki_t_add(k, ki_t_iota(k, candidates, (kn_dtype)key->dtype), ki_t_lit(k, key, 1));
        v = ki_t_add(k, best, RESHAPE(shifted(k, KN_SHL, v, shift), 1, candidates, 1));
        kn_uop below = ki_t_count(k, ki_t_lt(k, all, v), 2);
        kn_uop digit = ki_t_cast(k, ki_t_count(k, ki_t_lt(k, below, n), 1), (kn_dtype)key->dtype);
        best = ki_t_add(k, best, shifted(k, KN_SHL, digit, shift));
    }
    return ki_t_squeeze(k, best, 2);
}

/* Of truths (rows, n): where the first is, (rows, 1); n if there is none. */
kn_uop ki_t_first_of(kn_ctx *k, kn_uop p) {
    if (!p) return NULL;
    kn_uop n = ki_t_const(k, KN_I32, (double)ki_dim_n(p, 1)), left = ki_t_sub(k, n, ki_t_iota_axis(k, p, 1, KN_I32));
    return ki_t_sub(k, n, ki_t_reduce(k, ki_t_where(k, p, left, ki_t_const(k, KN_I32, 0)), KN_MAX, 2));
}

/* Positions of the n least keys, in their order: those below the n-th, and as many as are left of those that equal it. */
static kn_uop least(kn_ctx *k, kn_uop key, unsigned bits, int64_t n) {
    if (!key) return NULL;
    int64_t r = ki_dim_n(key, 0), all = ki_dim_n(key, 1);
    if (all <= SHORT || n > all / 8 || r == 0) return ki_t_narrow(k, ki_t_order(k, key, bits), 1, 0, n);
    kn_uop nth = nth_key(k, key, bits, RESHAPE(ki_t_const(k, KN_I32, (double)n), 1, 1));
    kn_uop below = ki_t_lt(k, key, nth), equal = ki_t_eq(k, key, nth), one = ki_t_const(k, KN_I32, 1);
    kn_uop at = ki_t_add(k, ki_t_count(k, below, 1), ki_t_running(k, ki_t_cast(k, equal, KN_I32), 1));
    at = ki_t_where(k, below, ki_t_running(k, ki_t_cast(k, below, KN_I32), 1),
                    ki_t_where(k, equal, at, ki_t_const(k, KN_I32, 0)));
    at = ki_t_stored(k,
                     ki_t_sub(k, at, one)); /* a running sum is linear where it is stored, not inside of another sum */
    kn_uop chosen = ki_t_place(k, ki_t_stored(k, ki_t_positions(k, r, all, KN_I32)), at, n);
    return ki_t_pick(k, chosen, ki_t_order(k, ki_t_pick(k, key, chosen), bits));
}

void ki_give(kn_ctx *k, kn_tensor *to, kn_uop u) {
    if (to) *to = ki_handle(k, u);
}

kn_tensor ki_all_bad(kn_tensor bad, kn_tensor *const *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (to[i]) *to[i] = bad;
    return bad;
}
kn_tensor ki_fail_all(kn_ctx *k, kn_tensor *const *to, size_t n) { return ki_all_bad(ki_handle(k, NULL), to, n); }

/* Rows along an axis, of which n elements, or the n-th, are asked for. */
static bool some_of(kn_ctx *k, kn_uop x, int64_t n, int64_t least, int axis, ki_rows *o) {
    int a = ki_axis(k, axis, ki_rank(x));
    if (a < 0 || !ki_rows_of(k, x, UINT32_C(1) << a, o)) return false;
    return (n >= least && n <= o->n) || FAIL(KI_E_NTH_RANGE, k->fn, (long long)n, a, (long long)o->n);
}

kn_tensor kn_topk(kn_tensor t, int64_t n, int axis, int largest, kn_tensor *indices) {
    ENTER_OUT("topk", 0, OUT(indices), t);
    unsigned bits;
    ki_rows o;
    if (!some_of(k, t->u, n, 0, axis, &o)) return ki_fail_all(k, OUT(indices));
    kn_uop key = ki_t_key(k, o.x, largest != 0, &bits), at = least(k, key, bits, n);
    kn_uop values = ki_rows_out(k, ki_t_pick(k, o.x, at), &o, n);
    ki_give(k, indices, ki_rows_out(k, ki_t_cast(k, at, KN_I64), &o, n));
    return ki_handle(k, values);
}

/* ---- elements by their place in the order ------------------------------------------------------------------ */

/* Positions (rows, 1) of the elements at places n (from 0) and n + 1 of the order; the first of equals, if the row is long. */
static void at_place(kn_ctx *k, kn_uop x, kn_uop n, kn_uop *at, kn_uop *next) {
    unsigned bits;
    kn_uop key = ki_t_key(k, x, false, &bits), one = ki_t_const(k, KN_I32, 1);
    *at = NULL;
    if (next) *next = NULL;
    if (!key || !n) return;
    if (ki_dim_n(key, 1) <= SHORT) {
        kn_uop order = ki_t_order(k, key, bits), all = n;
        if (ki_dim_n(n, 0) == 1) all = ki_t_expand_axis(k, n, 0, ki_dim_n(key, 0));
        *at = ki_t_pick(k, order, all);
        if (next) *next = ki_t_pick(k, order, ki_t_add(k, all, one));
        return;
    }
    kn_uop nth = nth_key(k, key, bits, ki_t_add(k, n, one));
    *at = ki_t_first_of(k, ki_t_eq(k, key, nth));
    if (!next) return;
    kn_uop above = ki_t_gt(k, key, nth), most = ki_t_unary(k, KN_NOT, ki_t_lit(k, key, 0));
    kn_uop more =
        ki_t_unary(k, KN_NOT, ki_t_reduce(k, ki_t_unary(k, KN_NOT, ki_t_where(k, above, key, most)), KN_MAX, 2));
    kn_uop others = ki_t_count(k, ki_t_le(k, key, nth), 1);
    more = ki_t_where(k, ki_t_gt(k, others, ki_t_add(k, n, one)), nth, more);
    *next = ki_t_first_of(k, ki_t_eq(k, key, more));
}

kn_tensor kn_kthvalue(kn_tensor t, int64_t n, int axis, int keep, kn_tensor *indices) {
    ENTER_OUT("kthvalue", 0, OUT(indices), t);
    ki_rows o;
    kn_uop at;
    if (!some_of(k, t->u, n, 1, axis, &o)) return ki_fail_all(k, OUT(indices));
    uint32_t bit = UINT32_C(1) << o.axis;
    at_place(k, o.x, RESHAPE(ki_t_const(k, KN_I32, (double)(n - 1)), 1, 1), &at, NULL);
    kn_uop value = ki_rows_reduced(k, ki_t_pick(k, o.x, at), &o, bit, keep);
    ki_give(k, indices, ki_rows_reduced(k, ki_t_cast(k, at, KN_I64), &o, bit, keep));
    return ki_handle(k, value);
}

/* Where q lies among n elements, less its fraction, in f64; `fraction` is what numpy's methods make of it. */
static kn_uop virtual_place(kn_ctx *k, kn_uop n, double q, kn_quantile_method method, kn_uop *fraction) {
    kn_uop one = ki_t_const(k, KN_F64, 1), h = ki_t_mul(k, ki_t_sub(k, n, one), ki_t_const(k, KN_F64, q));
    h = ki_t_max(k, h, ki_t_const(k, KN_F64, 0));
    if (method == KN_QUANTILE_NEAREST) h = ki_t_round(k, h);
    kn_uop low = ki_t_floor(k, h), f = ki_t_sub(k, h, low), zero = ki_t_const(k, KN_F64, 0);
    kn_uop between = ki_t_gt(k, f, zero);
    *fraction = method == KN_QUANTILE_LINEAR     ? f
                : method == KN_QUANTILE_HIGHER   ? ki_t_where(k, between, one, zero)
                : method == KN_QUANTILE_MIDPOINT ? ki_t_where(k, between, ki_t_const(k, KN_F64, 0.5), zero)
                                                 : zero;
    return low;
}

/* The quantile of rows; without_nan: of those elements that are numbers. NaN where a row has one, or nothing. */
static kn_uop quantile_of(kn_ctx *k, kn_uop x, double q, kn_quantile_method method, bool without_nan) {
    kn_dtype t = ki_fraction((kn_dtype)x->dtype), wide = t == KN_F64 ? KN_F64 : KN_F32;
    bool may = ki_is_float((kn_dtype)x->dtype);
    int64_t n = ki_dim_n(x, 1);
    kn_uop numbers = RESHAPE(ki_t_const(k, KN_I32, (double)n), 1, 1), f, at, next, nan = NULL;
    kn_uop are = may ? ki_t_count(k, ki_t_eq(k, x, x), 1) : numbers;
    if (without_nan) numbers = are;
    kn_uop low = virtual_place(k, ki_t_cast(k, numbers, KN_F64), q, method, &f);
    at_place(k, x, ki_t_cast(k, low, KN_I32), &at, &next);
    kn_uop a = ki_t_cast(k, ki_t_pick(k, x, at), wide), b = ki_t_cast(k, ki_t_pick(k, x, next), wide);
    kn_uop part = ki_t_cast(k, f, wide), d = ki_t_sub(k, b, a);
    if (!d || !part) return NULL;
    kn_uop rest = ki_t_sub(k, ki_t_lit(k, d, 1), part), up = ki_t_add(k, a, ki_t_mul(k, d, part));
    up = ki_t_where(k, ki_t_ge(k, part, ki_t_lit(k, d, 0.5)), ki_t_sub(k, b, ki_t_mul(k, d, rest)), up);
    kn_uop whole =
        ki_t_binary(k, KN_OR, ki_t_eq(k, part, ki_t_lit(k, d, 0)), ki_t_eq(k, a, b)); /* inf - inf is no number */
    kn_uop y = ki_t_where(k, whole, a, up);
    if (may && without_nan) nan = ki_t_eq(k, are, ki_t_const(k, KN_I32, 0));
    else if (may) nan = ki_t_lt(k, are, ki_t_const(k, KN_I32, (double)n));
    if (nan) y = ki_t_where(k, nan, ki_t_const(k, wide, (double)NAN), y);
    return ki_t_cast(k, y, t);
}

static kn_tensor quantile(kn_tensor t, const char *fn, double q, const kn_ints *list, int keep,
                          kn_quantile_method method, bool without_nan) {
    ENTER(fn, t);
    uint32_t axes = all_axes(t->u);
    char s[128];
    ki_rows o;
    if (!(q >= 0 && q <= 1)) return FAIL(KI_E_PROBABILITY, fn, q), ki_handle(k, NULL);
    if ((unsigned)method > KN_QUANTILE_NEAREST) return FAIL(KI_E_QUANTILE_METHOD, fn, method), ki_handle(k, NULL);
    if ((list && !ki_axes(k, *list, ki_rank(t->u), &axes)) || !ki_rows_of(k, t->u, axes, &o)) return ki_handle(k, NULL);
    unsigned empty = 0;
    while (o.n == 0 && !(axes >> empty & 1 && ki_dim_n(t->u, empty) == 0)) empty++;
    if (o.n == 0) return FAIL(KI_E_EMPTY_REDUCE, fn, empty, ki_shape_text(t->u->type, s, sizeof s)), ki_handle(k, NULL);
    return ki_handle(k, ki_rows_reduced(k, quantile_of(k, o.x, q, method, without_nan), &o, axes, keep));
}
#define QUANTILE(prefix, without_nan)                                                                                  \
    kn_tensor kn_##prefix##quantile(kn_tensor x, double q, kn_quantile_method method) {                                \
        return quantile(x, #prefix "quantile", q, NULL, 0, method, without_nan);                                       \
    }                                                                                                                  \
    kn_tensor kn_##prefix##quantile_over(kn_tensor x, double q, kn_ints axes, int keep, kn_quantile_method method) {   \
        return quantile(x, #prefix "quantile", q, &axes, keep, method, without_nan);                                   \
    }                                                                                                                  \
    kn_tensor kn_##prefix##median(kn_tensor x) {                                                                       \
        return quantile(x, #prefix "median", 0.5, NULL, 0, KN_QUANTILE_MIDPOINT, without_nan);                         \
    }                                                                                                                  \
    kn_tensor kn_##prefix##median_over(kn_tensor x, kn_ints axes, int keep) {                                          \
        return quantile(x, #prefix "median", 0.5, &axes, keep, KN_QUANTILE_MIDPOINT, without_nan);                     \
    }
QUANTILE(, false)
QUANTILE(nan, true)
