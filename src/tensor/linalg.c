/* linalg.c: factorisations of small matrices, batched over all axes but the last two.
 *
 * Each is a loop over columns (or, for eigenvalues, over rounds of rotations) that is written out: a step reads the matrix
 * that the step before has stored, so that there are a few kernels a step, most of them the same but for their buffers.
 * That is for small matrices: LARGEST says how large. Gradients go back through the steps, to any order. Computed in f32
 * at least. What is not defined (no square root, a pivot of 0) comes out as infinities and NaN, as elsewhere in koine. */
#include "tensor/build.h"

#include <math.h>
#include <string.h>

enum { LARGEST = 128, LARGEST_TURNED = 64 /* by rotations: rounds grow with the sweeps too */ };

#define L(like, v) ki_t_lit(k, like, v)

/* ---- what all of them do ------------------------------------------------------------------------------------- */

/* A step's result is stored, and so is its gradient. */
static kn_uop stored(kn_ctx *k, kn_uop x) {
    x = x ? ki_op1(&k->ir, KN_CONTIGUOUS, x) : NULL;
    return x && ki_is_float((kn_dtype)x->dtype) ? ki_op1(&k->ir, KN_CONTIGUOUS_BACKWARD, x) : x;
}

/* x as matrices of floats to compute with; *t is the dtype of the result. */
static kn_uop matrices(kn_ctx *k, kn_uop x, bool is_square, int most, kn_dtype *t) {
    char s[128];
    if (!x) return NULL;
    unsigned rank = ki_rank(x);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, rank);
    if (!ki_shape_known(k, x)) return NULL;
    int64_t m = ki_dim_n(x, rank - 2), n = ki_dim_n(x, rank - 1);
    if (is_square && m != n) return FAIL(KI_E_SQUARE, k->fn, ki_shape_text(x->type, s, sizeof s));
    if (m > most || n > most) return FAIL(KI_E_LINALG_SIZE, k->fn, (long long)(m > n ? m : n), most);
    if (rank + 1 > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK - 1);
    *t = ki_fraction((kn_dtype)x->dtype);
    return ki_t_cast(k, x, ki_dtypes[*t].bits < 32 ? KN_F32 : *t);
}

static int64_t rows_of(kn_uop x) { return ki_dim_n(x, ki_rank(x) - 2); }
static int64_t columns_of(kn_uop x) { return ki_dim_n(x, ki_rank(x) - 1); }
static kn_uop row_number(kn_ctx *k, kn_uop x) { return x ? ki_t_iota_axis(k, x, ki_rank(x) - 2, KN_I32) : NULL; }
static kn_uop column_number(kn_ctx *k, kn_uop x) { return x ? ki_t_iota_axis(k, x, ki_rank(x) - 1, KN_I32) : NULL; }
static kn_uop row(kn_ctx *k, kn_uop x, int64_t i) { return x ? ki_t_narrow(k, x, ki_rank(x) - 2, i, 1) : NULL; }
static kn_uop column(kn_ctx *k, kn_uop x, int64_t j) { return x ? ki_t_narrow(k, x, ki_rank(x) - 1, j, 1) : NULL; }
static kn_uop flipped(kn_ctx *k, kn_uop x) { return x ? ki_t_swap(k, x, ki_rank(x) - 2, ki_rank(x) - 1) : NULL; }
static uint32_t row_bit(kn_uop x) { return x ? UINT32_C(1) << (ki_rank(x) - 2) : 0; }
static uint32_t column_bit(kn_uop x) { return x ? UINT32_C(1) << (ki_rank(x) - 1) : 0; }

static kn_uop identity(kn_ctx *k, int64_t m, int64_t n, kn_dtype t) {
    kn_uop r = RESHAPE(ki_t_iota(k, m, KN_I32), m, 1), c = RESHAPE(ki_t_iota(k, n, KN_I32), 1, n);
    return ki_t_cast(k, ki_t_eq(k, r, c), t);
}

/* Batch axes of b as those of a and b broadcast. */
static kn_uop with_batch_of(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b) return NULL;
    kn_uop x = ki_t_narrow(k, ki_t_narrow(k, a, ki_rank(a) - 2, 0, 0), ki_rank(a) - 1, 0, 0);
    kn_uop y = ki_t_narrow(k, ki_t_narrow(k, b, ki_rank(b) - 2, 0, 0), ki_rank(b) - 1, 0, 0);
    if (!x || !y || !ki_broadcast(k, &x, &y)) return NULL;
    ki_shape s = ki_shape_like(x);
    s.d[s.n - 2] = b->type->dim[ki_rank(b) - 2], s.d[s.n - 1] = b->type->dim[ki_rank(b) - 1];
    return ki_t_broadcast_to(k, b, &s);
}

/* A right-hand side: a vector as a column. */
static kn_uop right_side(kn_ctx *k, kn_uop a, kn_uop b, kn_dtype t) {
    char sa[128], sb[128];
    kn_uop y = ki_t_cast(k, b, t);
    if (y && ki_rank(y) == 1) y = ki_t_unsqueeze(k, y, 1);
    if (!a || !y) return NULL;
    if (ki_rank(y) < 2 || rows_of(y) != rows_of(a) || y->type->symbolic)
        return FAIL(KI_E_SOLVE_SHAPES, k->fn, ki_shape_text(a->type, sa, sizeof sa),
                    ki_shape_text(b->type, sb, sizeof sb));
    return y;
}
static kn_uop as_given(kn_ctx *k, kn_uop x, kn_uop b, kn_dtype t) {
    x = ki_t_cast(k, x, t);
    return x && ki_rank(b) == 1 ? ki_t_squeeze(k, x, column_bit(x)) : x;
}

static kn_status two_bad(kn_tensor *out, size_t n, kn_tensor bad) {
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

/* ---- triangles ------------------------------------------------------------------------------------------------ */

/* Column by column: the pivot's square root, the column divided by it, its square taken off what is to the right. */
static kn_uop cholesky(kn_ctx *k, kn_uop a) {
    int64_t n = a ? columns_of(a) : 0;
    kn_uop r = row_number(k, a), c = column_number(k, a), lower = a ? ki_t_ge(k, r, c) : NULL;
    for (int64_t j = 0; a && j < n; j++) {
        kn_uop at = L(c, (double)j), l = ki_t_div(k, column(k, a, j), ki_t_sqrt(k, column(k, row(k, a, j), j)));
        kn_uop rest = ki_t_where(k, ki_t_gt(k, c, at), ki_t_sub(k, a, ki_t_mul(k, l, flipped(k, l))), a);
        a = stored(k, ki_t_where(k, ki_t_eq(k, c, at), l, rest));
    }
    return a ? ki_t_where(k, lower, a, L(a, 0)) : NULL;
}

kn_tensor kn_cholesky(kn_tensor x, int upper) {
    ENTER("cholesky", x);
    kn_dtype t;
    kn_uop a = matrices(k, x->u, true, LARGEST, &t);
    kn_uop l = cholesky(k, upper ? flipped(k, a) : a);
    return ki_handle(k, l ? ki_t_cast(k, upper ? flipped(k, l) : l, t) : NULL);
}

/* Row by row: an unknown, and what it makes taken off the rows to come. */
static kn_uop substituted(kn_ctx *k, kn_uop a, kn_uop b, bool upper, bool unit) {
    b = with_batch_of(k, a, b);
    if (!b) return NULL;
    int64_t n = rows_of(a);
    kn_uop r = row_number(k, b);
    for (int64_t i = 0; b && i < n; i++) {
        int64_t j = upper ? n - 1 - i : i;
        kn_uop at = L(r, (double)j), x = row(k, b, j);
        if (!unit) x = ki_t_div(k, x, column(k, row(k, a, j), j));
        kn_uop rest = ki_t_sub(k, b, ki_t_mul(k, column(k, a, j), x));
        rest = ki_t_where(k, upper ? ki_t_lt(k, r, at) : ki_t_gt(k, r, at), rest, b);
        b = stored(k, ki_t_where(k, ki_t_eq(k, r, at), x, rest));
    }
    return b;
}

kn_tensor kn_solve_triangular(kn_tensor a, kn_tensor b, int upper, int unit) {
    ENTER("solve_triangular", a, b);
    kn_dtype t = ki_promote((kn_dtype)a->u->dtype, (kn_dtype)b->u->dtype);
    kn_uop x = matrices(k, ki_t_cast(k, a->u, t), true, LARGEST, &t),
           y = right_side(k, x, b->u, x ? (kn_dtype)x->dtype : t);
    return ki_handle(k, as_given(k, y ? substituted(k, x, y, upper != 0, unit != 0) : NULL, b->u, t));
}

/* ---- elimination ---------------------------------------------------------------------------------------------- */

/* Gauss and Jordan's, in place: the first column is eliminated by the row, of those that were no pivot yet, where it is
 * largest; it becomes the inverse's, and goes to the end. All steps are the same kernels. */
typedef struct elimination {
    kn_uop a;             /* in the end: the inverse, its rows and columns in the order of pivots */
    kn_uop since;         /* steps since a row was the pivot, -1 before */
    kn_uop det;           /* the pivots' product, */
    kn_uop log_det, sign; /* or its logarithm and sign; NULL: not asked for */
} elimination;

static bool eliminate_first(kn_ctx *k, elimination *e) {
    kn_uop a = e->a, c = column(k, a, 0), r = row_number(k, a);
    if (!c) return false;
    int64_t n = columns_of(a);
    kn_uop free = ki_t_lt(k, e->since, L(e->since, 0)), size = ki_t_where(k, free, ki_t_abs(k, c), L(a, -1));
    kn_uop hit = size ? ki_t_eq(k, size, ki_t_reduce(k, size, KN_MAX, row_bit(size))) : NULL;
    if (hit) hit = ki_t_binary(k, KN_OR, hit, ki_t_isnan(k, size));
    kn_uop first = ki_t_where(k, hit, ki_t_sub(k, L(r, (double)n), r), L(r, 0));
    first = first ? ki_t_sub(k, L(r, (double)n), ki_t_reduce(k, first, KN_MAX, row_bit(first))) : NULL;
    kn_uop is = first ? ki_t_eq(k, r, first) : NULL;
    kn_uop pivots = is ? ki_t_reduce(k, ki_t_where(k, is, a, L(a, -0.0)), KN_ADD, row_bit(a)) : NULL;
    kn_uop d = column(k, pivots, 0), left = ki_t_eq(k, column_number(k, a), L(r, 0));
    if (!d) return false;
    kn_uop over = ki_t_div(k, ki_t_where(k, left, L(a, 1), pivots), d);
    kn_uop rest = ki_t_sub(k, ki_t_where(k, left, L(a, 0), a), ki_t_mul(k, c, over));
    e->a = stored(k, ki_t_where(k, is, over, rest));
    e->a = e->a ? ki_t_narrow(k, ki_t_tile_axis(k, e->a, ki_rank(a) - 1, 2), ki_rank(a) - 1, 1, n) : NULL;
    e->since = stored(
        k, ki_t_where(k, is, L(e->since, 0), ki_t_where(k, free, e->since, ki_t_add(k, e->since, L(e->since, 1)))));
    if (e->det) e->det = stored(k, ki_t_mul(k, e->det, d));
    if (e->log_det) e->log_det = stored(k, ki_t_add(k, e->log_det, ki_t_log(k, ki_t_abs(k, d))));
    if (e->sign) e->sign = stored(k, ki_t_mul(k, e->sign, ki_t_sign(k, d)));
    return e->a && e->since;
}

/* 1 or -1: of how the rows would have to be ordered. */
static kn_uop parity(kn_ctx *k, kn_uop since, kn_dtype t) {
    if (!since) return NULL;
    kn_uop other = flipped(k, since), pair = ki_t_binary(k, KN_AND, ki_t_gt(k, since, other),
                                                         ki_t_gt(k, row_number(k, since), column_number(k, other)));
    kn_uop swaps = ki_t_reduce(k, ki_t_cast(k, pair, KN_I32), KN_ADD, row_bit(pair) | column_bit(pair));
    kn_uop odd = swaps ? ki_t_binary(k, KN_AND, swaps, L(swaps, 1)) : NULL;
    return odd ? ki_t_where(k, ki_t_eq(k, odd, L(odd, 0)), ki_t_const(k, t, 1), ki_t_const(k, t, -1)) : NULL;
}

static bool eliminate(kn_ctx *k, kn_uop a, elimination *e, bool det, bool log_det) {
    if (!a) return false;
    int64_t n = columns_of(a);
    ki_shape s = ki_shape_like(a);
    s.d[s.n - 1].n = 1;
    *e = (elimination){.a = a, .since = ki_t_full(k, &s, ki_t_const(k, KN_I32, -1))};
    s.d[s.n - 2].n = 1;
    if (det) e->det = ki_t_full(k, &s, L(a, 1));
    if (log_det) e->log_det = ki_t_full(k, &s, L(a, 0)), e->sign = ki_t_full(k, &s, L(a, 1));
    for (int64_t i = 0; i < n; i++)
        if (!eliminate_first(k, e)) return false;
    if (det) e->det = ki_t_mul(k, e->det, parity(k, e->since, (kn_dtype)a->dtype));
    if (log_det) e->sign = ki_t_mul(k, e->sign, parity(k, e->since, (kn_dtype)a->dtype));
    return true;
}

/* The row that was the j-th pivot holds the unknown j; its column j belongs to what that row's equation was. */
static kn_uop inverse(kn_ctx *k, kn_uop a) {
    elimination e;
    if (!a) return NULL;
    int64_t n = columns_of(a);
    if (!n || !ki_numel(a)) return a;
    if (!eliminate(k, a, &e, false, false)) return NULL;
    unsigned rank = ki_rank(a);
    kn_uop step = ki_t_sub(k, L(e.since, (double)(n - 1)), e.since); /* (.., n, 1): when a row was the pivot */
    kn_uop x = ki_t_unsqueeze(k, e.a, rank), at = ki_t_unsqueeze(k, flipped(k, step), rank - 2);
    if (!x || !at) return NULL;
    /* (.., row, column, equation) summed over columns, then (.., unknown, row, equation) over rows */
    kn_uop hit = ki_t_eq(k, ki_t_iota_axis(k, x, rank - 1, KN_I32), at);
    x = ki_t_reduce(k, ki_t_where(k, hit, x, L(x, -0.0)), KN_ADD, UINT32_C(1) << (rank - 1));
    x = x ? ki_t_unsqueeze(k, ki_t_squeeze(k, x, UINT32_C(1) << (rank - 1)), rank - 2) : NULL;
    ki_shape s = {.n = rank + 1};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == rank - 2 ? n : 1;
    hit = ki_t_eq(k, ki_t_reshape_to(k, ki_t_iota(k, n, KN_I32), &s), ki_t_unsqueeze(k, step, rank - 2));
    x = hit && x ? ki_t_reduce(k, ki_t_where(k, hit, x, L(x, -0.0)), KN_ADD, UINT32_C(1) << (rank - 1)) : NULL;
    return ki_t_squeeze(k, x, UINT32_C(1) << (rank - 1));
}

kn_tensor kn_inv(kn_tensor x) {
    ENTER("inv", x);
    kn_dtype t;
    kn_uop a = matrices(k, x->u, true, LARGEST, &t);
    return ki_handle(k, ki_t_cast(k, inverse(k, a), t));
}

/* By the inverse, and once more for what that leaves: as good as a backward substitution. */
kn_tensor kn_solve(kn_tensor a, kn_tensor b) {
    ENTER("solve", a, b);
    kn_dtype t = ki_promote((kn_dtype)a->u->dtype, (kn_dtype)b->u->dtype);
    kn_uop x = matrices(k, ki_t_cast(k, a->u, t), true, LARGEST, &t),
           y = right_side(k, x, b->u, x ? (kn_dtype)x->dtype : t);
    kn_uop inv = y ? stored(k, inverse(k, x)) : NULL, s = stored(k, ki_t_matmul(k, inv, y));
    s = ki_t_add(k, s, ki_t_matmul(k, inv, ki_t_sub(k, y, ki_t_matmul(k, x, s))));
    return ki_handle(k, as_given(k, s, b->u, t));
}

kn_tensor kn_det(kn_tensor x) {
    ENTER("det", x);
    kn_dtype t;
    elimination e;
    kn_uop a = matrices(k, x->u, true, LARGEST, &t);
    if (!eliminate(k, a, &e, true, false)) return ki_handle(k, NULL);
    return ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, e.det, row_bit(a) | column_bit(a)), t));
}

kn_status kn_slogdet(kn_tensor x, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    elimination e;
    kn_tensor bad = ki_enter(&k, "slogdet", &x, 1, 0);
    if (bad || !k) return two_bad(out, 2, bad);
    kn_uop a = matrices(k, x->u, true, LARGEST, &t);
    if (!eliminate(k, a, &e, false, true)) return two_bad(out, 2, ki_handle(k, NULL));
    uint32_t both = row_bit(a) | column_bit(a);
    out[0] = ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, e.sign, both), t));
    out[1] = ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, e.log_det, both), t));
    return kn_check(out[1]);
}

kn_tensor kn_matrix_power(kn_tensor x, int n) {
    ENTER("matrix_power", x);
    kn_dtype t;
    kn_uop a = x->u, r = NULL;
    if (n < 0 || ki_rank(a) < 2 || a->type->symbolic || rows_of(a) != columns_of(a)) {
        a = ki_t_cast(k, inverse(k, matrices(k, a, true, LARGEST, &t)), ki_fraction((kn_dtype)a->dtype));
        if (!a) return ki_handle(k, NULL);
    }
    for (unsigned e = n < 0 ? 0u - (unsigned)n : (unsigned)n; e && a; e >>= 1) {
        if (e & 1) r = r ? ki_t_matmul(k, r, a) : a;
        if (e > 1) a = ki_t_matmul(k, a, a);
    }
    if (r || n) return ki_handle(k, r);
    ki_shape s = ki_shape_like(a);
    return ki_handle(k, ki_t_broadcast_to(k, identity(k, rows_of(a), rows_of(a), (kn_dtype)a->dtype), &s));
}

/* ---- reflections ---------------------------------------------------------------------------------------------- */

/* Householder's: v turns column j, from its j-th element on, into one element; r loses v (v' r) times 2 / v'v, q likewise. */
static bool reflect(kn_ctx *k, kn_uop *q, kn_uop *r, int64_t j) {
    kn_uop x = column(k, *r, j), at = row_number(k, x);
    if (!at) return false;
    kn_uop below = ki_t_gt(k, at, L(at, (double)j)), head = row(k, x, j);
    kn_uop tail = ki_t_where(k, below, x, L(x, 0)),
           rest = tail ? ki_t_reduce(k, ki_t_mul(k, tail, tail), KN_ADD, row_bit(tail)) : NULL;
    if (!rest) return false;
    kn_uop none = ki_t_eq(k, rest, L(rest, 0)),
           norm = ki_t_sqrt(k, ki_t_where(k, none, L(rest, 1), ki_t_add(k, rest, ki_t_mul(k, head, head))));
    kn_uop first = ki_t_where(k, ki_t_lt(k, head, L(head, 0)), ki_t_sub(k, head, norm), ki_t_add(k, head, norm));
    kn_uop v = ki_t_where(k, ki_t_eq(k, at, L(at, (double)j)), first, tail);
    kn_uop scale =
        ki_t_where(k, none, L(rest, 0), ki_t_div(k, L(rest, 2), ki_t_add(k, rest, ki_t_mul(k, first, first))));
    v = stored(k, v), scale = stored(k, scale);
    kn_uop w = v ? ki_t_mul(k, scale, ki_t_reduce(k, ki_t_mul(k, v, *r), KN_ADD, row_bit(*r))) : NULL;
    *r = stored(k, ki_t_sub(k, *r, ki_t_mul(k, v, w)));
    kn_uop vt = flipped(k, v),
           u = vt ? ki_t_mul(k, scale, ki_t_reduce(k, ki_t_mul(k, *q, vt), KN_ADD, column_bit(*q))) : NULL;
    *q = stored(k, ki_t_sub(k, *q, ki_t_mul(k, u, vt)));
    return *q && *r;
}

kn_status kn_qr(kn_tensor x, int complete, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    kn_tensor bad = ki_enter(&k, "qr", &x, 1, 0);
    if (bad || !k) return two_bad(out, 2, bad);
    kn_uop r = matrices(k, x->u, false, LARGEST, &t);
    if (!r) return two_bad(out, 2, ki_handle(k, NULL));
    int64_t m = rows_of(r), n = columns_of(r), less = m < n ? m : n, kept = complete ? m : less;
    ki_shape s = ki_shape_like(r);
    s.d[s.n - 1].n = m;
    kn_uop q = ki_t_broadcast_to(k, identity(k, m, m, (kn_dtype)r->dtype), &s);
    bool ok = q != NULL;
    for (int64_t j = 0; ok && j < less && j + 1 < m; j++) ok = reflect(k, &q, &r, j);
    if (!ok) return two_bad(out, 2, ki_handle(k, NULL));
    r = ki_t_where(k, ki_t_ge(k, column_number(k, r), row_number(k, r)), r, L(r, 0));
    out[0] = ki_handle(k, ki_t_cast(k, ki_t_narrow(k, q, ki_rank(q) - 1, 0, kept), t));
    out[1] = ki_handle(k, ki_t_cast(k, r ? ki_t_narrow(k, r, ki_rank(r) - 2, 0, kept) : NULL, t));
    return kn_check(out[0]) ? kn_check(out[0]) : kn_check(out[1]);
}

/* ---- rotations ------------------------------------------------------------------------------------------------ */

/* Jacobi's: rows (or columns) are paired as (i, i + h) of 2h; all pairs turn at once, then change places as the players of a
 * tournament do, which brings each beside each other one in 2h - 1 rounds, and back. All rounds are the same kernels. */
static kn_uop next_round(kn_ctx *k, kn_uop x, unsigned axis) {
    if (!x) return NULL;
    int64_t n = ki_dim_n(x, axis), h = n / 2;
    if (h < 2) return x;
    kn_uop part[5] = {ki_t_narrow(k, x, axis, 0, 1), ki_t_narrow(k, x, axis, h, 1), ki_t_narrow(k, x, axis, 1, h - 2),
                      ki_t_narrow(k, x, axis, h + 1, h - 1), ki_t_narrow(k, x, axis, h - 1, 1)};
    return ki_t_cat(k, part, 5, (int)axis);
}

/* x's halves along the axis, p and q, become c p - s q and s p + c q; c and s (.., h) stand along it. */
static kn_uop rotated(kn_ctx *k, kn_uop x, unsigned axis, kn_uop c, kn_uop s) {
    if (!x || !c || !s) return NULL;
    int64_t h = ki_dim_n(x, axis) / 2;
    kn_uop p = ki_t_narrow(k, x, axis, 0, h), q = ki_t_narrow(k, x, axis, h, h);
    kn_uop half[2] = {ki_t_sub(k, ki_t_mul(k, c, p), ki_t_mul(k, s, q)),
                      ki_t_add(k, ki_t_mul(k, s, p), ki_t_mul(k, c, q))};
    return ki_t_cat(k, half, 2, (int)axis);
}

/* The cosine and sine that make b zero between a and d; b 0: none. */
static bool angle(kn_ctx *k, kn_uop a, kn_uop b, kn_uop d, kn_uop *c, kn_uop *s) {
    kn_uop none = b ? ki_t_eq(k, b, L(b, 0)) : NULL, safe = ki_t_where(k, none, b ? L(b, 1) : NULL, b);
    kn_uop turn = ki_t_div(k, ki_t_sub(k, d, a), ki_t_add(k, safe, safe)), size = ki_t_abs(k, turn);
    if (!size) return false;
    kn_uop t = ki_t_recip(k, ki_t_add(k, size, ki_t_sqrt(k, ki_t_add(k, ki_t_mul(k, size, size), L(size, 1)))));
    t = ki_t_where(k, none, L(size, 0), ki_t_where(k, ki_t_lt(k, turn, L(turn, 0)), ki_t_neg(k, t), t));
    *c = t ? stored(k, ki_t_rsqrt(k, ki_t_add(k, ki_t_mul(k, t, t), L(t, 1)))) : NULL;
    *s = *c ? stored(k, ki_t_mul(k, t, *c)) : NULL;
    return *s != NULL;
}

/* Sweeps until nothing is left in practice: convergence is quadratic, and later with more columns. */
static int64_t rounds(int64_t n, kn_dtype t) {
    int64_t sweeps = t == KN_F64 ? 8 : 6;
    for (int64_t m = 4; m < n; m *= 4) sweeps++;
    return n < 2 ? 0 : sweeps * (n - 1);
}

/* Rows and columns of 0 to an even size. */
static kn_uop evened(kn_ctx *k, kn_uop x, unsigned axis) {
    return x && ki_dim_n(x, axis) % 2 ? ki_t_pad_axis(k, x, axis, 0, 1) : x;
}

/* a symmetric, to its eigenvalues (.., n) and eigenvectors, in the order of columns. */
static bool jacobi(kn_ctx *k, kn_uop a, kn_uop *values, kn_uop *vectors) {
    unsigned rank = ki_rank(a), i = rank - 2, j = rank - 1;
    int64_t n = columns_of(a), h = (n + 1) / 2;
    kn_dtype t = (kn_dtype)a->dtype;
    a = evened(k, evened(k, a, i), j);
    ki_shape s = ki_shape_like(a);
    kn_uop v = ki_t_broadcast_to(k, identity(k, 2 * h, 2 * h, t), &s), c, sn;
    for (int64_t round = rounds(2 * h, t); round-- > 0 && a && v;) {
        kn_uop top = ki_t_narrow(k, a, i, 0, h), low = ki_t_narrow(k, a, i, h, h);
        kn_uop app = ki_t_diagonal(k, ki_t_narrow(k, top, j, 0, h), 0),
               apq = ki_t_diagonal(k, ki_t_narrow(k, top, j, h, h), 0),
               aqq = ki_t_diagonal(k, ki_t_narrow(k, low, j, h, h), 0);
        if (!angle(k, app, apq, aqq, &c, &sn)) return false;
        kn_uop cc = ki_t_unsqueeze(k, c, i), cs = ki_t_unsqueeze(k, sn, i), rc = ki_t_unsqueeze(k, c, j),
               rs = ki_t_unsqueeze(k, sn, j);
        a = stored(k, rotated(k, rotated(k, a, j, cc, cs), i, rc, rs));
        v = stored(k, rotated(k, v, j, cc, cs));
        a = next_round(k, next_round(k, a, i), j);
        v = next_round(k, v, j);
    }
    if (!a || !v) return false;
    *values = ki_t_diagonal(k, ki_t_narrow(k, ki_t_narrow(k, a, i, 0, n), j, 0, n), 0);
    *vectors = ki_t_narrow(k, ki_t_narrow(k, v, i, 0, n), j, 0, n);
    return *values && *vectors;
}

/* Where each of w (.., n) stands in ascending order (negated: in descending), as (.., place, n) of bool. */
static kn_uop places(kn_ctx *k, kn_uop w, bool descending) {
    if (!w) return NULL;
    unsigned rank = ki_rank(w);
    kn_uop a = ki_t_unsqueeze(k, w, rank), b = ki_t_unsqueeze(k, w, rank - 1); /* rows against columns */
    if (!a || !b) return NULL;
    kn_uop r = row_number(k, ki_t_unsqueeze(k, w, rank)), c = column_number(k, b);
    kn_uop before = ki_t_binary(k, KN_OR, descending ? ki_t_gt(k, a, b) : ki_t_lt(k, a, b),
                                ki_t_binary(k, KN_AND, ki_t_eq(k, a, b), ki_t_lt(k, r, c)));
    kn_uop place = before ? stored(k, ki_t_reduce(k, ki_t_cast(k, before, KN_I32), KN_ADD, row_bit(before))) : NULL;
    return place ? ki_t_eq(k, r, place) : NULL;
}

/* Columns of x, or elements of a vector (.., 1, n), in the order of places. */
static kn_uop in_order(kn_ctx *k, kn_uop x, kn_uop places) {
    if (!x || !places) return NULL;
    unsigned rank = ki_rank(x);
    x = ki_t_unsqueeze(k, x, rank - 1), places = ki_t_unsqueeze(k, places, rank - 2); /* (.., m, place, n) */
    kn_uop y = x ? ki_t_reduce(k, ki_t_where(k, places, x, L(x, -0.0)), KN_ADD, UINT32_C(1) << rank) : NULL;
    return y ? ki_t_squeeze(k, y, UINT32_C(1) << rank) : NULL;
}

/* `value`, with the derivatives of `smooth`, which is equal to it but for roundings (or not defined). */
static kn_uop with_slope(kn_ctx *k, kn_uop value, kn_uop smooth) {
    if (!value || !smooth) return NULL;
    kn_uop none = ki_t_sub(k, smooth, ki_op1(&k->ir, KN_DETACH, smooth));
    return ki_t_add(k, ki_op1(&k->ir, KN_DETACH, value),
                    none ? ki_t_where(k, ki_t_eq(k, none, none), none, L(none, 0)) : NULL);
}

/* One step of Newton's kind from vectors v of a nearly diagonal v' a v: quadratic, so derivatives pass. Equal values do not
 * mix. */
static bool polish(kn_ctx *k, kn_uop a, kn_uop *w, kn_uop *v) {
    kn_uop vt = flipped(k, *v), s = stored(k, ki_t_matmul(k, vt, ki_t_matmul(k, a, *v)));
    if (!s) return false;
    kn_uop one = identity(k, columns_of(a), columns_of(a), (kn_dtype)a->dtype),
           r = stored(k, ki_t_sub(k, one, ki_t_matmul(k, vt, *v)));
    if (!r) return false;
    kn_uop d = ki_t_div(k, ki_t_diagonal(k, s, 0), ki_t_sub(k, L(r, 1), ki_t_diagonal(k, r, 0)));
    if (!d) return false;
    unsigned rank = ki_rank(a);
    kn_uop across = ki_t_unsqueeze(k, d, rank - 2), gap = ki_t_sub(k, across, ki_t_unsqueeze(k, d, rank - 1));
    kn_uop same = gap ? ki_t_eq(k, gap, L(gap, 0)) : NULL;
    kn_uop e = ki_t_div(k, ki_t_add(k, s, ki_t_mul(k, across, r)), ki_t_where(k, same, gap ? L(gap, 1) : NULL, gap));
    e = ki_t_where(k, same, ki_t_mul(k, r, L(r, 0.5)), e);
    *v = stored(k, ki_t_add(k, *v, ki_t_matmul(k, *v, e)));
    *w = d;
    return *v != NULL;
}

static bool eigh(kn_ctx *k, kn_tensor x, kn_uop *w, kn_uop *v, kn_dtype *t) {
    kn_uop a = matrices(k, x->u, true, LARGEST_TURNED, t), values, vectors;
    if (!a) return false;
    kn_uop lower = ki_t_ge(k, row_number(k, a), column_number(k, a));
    a = ki_t_where(k, lower, a, flipped(k, a));
    if (!jacobi(k, a, &values, &vectors)) return false;
    kn_uop order = places(k, values, false);
    unsigned rank = ki_rank(a);
    values = stored(k, in_order(k, ki_t_unsqueeze(k, values, rank - 2), order));
    vectors = stored(k, in_order(k, vectors, order));
    if (!values || !vectors) return false;
    kn_uop smooth = ki_op1(&k->ir, KN_DETACH, vectors), d = NULL, again;
    if (!smooth || !polish(k, a, &d, &smooth)) return false;
    again = smooth;
    if (!polish(k, a, &d, &again)) return false;
    *w = with_slope(k, ki_t_squeeze(k, values, UINT32_C(1) << (rank - 2)), d);
    *v = with_slope(k, vectors, again);
    return *w && *v;
}

kn_status kn_eigh(kn_tensor x, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    kn_uop w, v;
    kn_tensor bad = ki_enter(&k, "eigh", &x, 1, 0);
    if (bad || !k) return two_bad(out, 2, bad);
    if (!eigh(k, x, &w, &v, &t)) return two_bad(out, 2, ki_handle(k, NULL));
    out[0] = ki_handle(k, ki_t_cast(k, w, t));
    out[1] = ki_handle(k, ki_t_cast(k, v, t));
    return kn_check(out[1]);
}
kn_tensor kn_eigvalsh(kn_tensor x) {
    ENTER("eigvalsh", x);
    kn_dtype t;
    kn_uop w, v;
    return ki_handle(k, eigh(k, x, &w, &v, &t) ? ki_t_cast(k, w, t) : NULL);
}

/* ---- singular values ------------------------------------------------------------------------------------------- */

/* Hestenes': columns of x (m >= n) turned in pairs until all are orthogonal: *w = x v. */
static bool hestenes(kn_ctx *k, kn_uop x, kn_uop *w, kn_uop *v) {
    unsigned rank = ki_rank(x), j = rank - 1;
    int64_t n = columns_of(x), h = (n + 1) / 2;
    kn_dtype t = (kn_dtype)x->dtype;
    kn_uop a = evened(k, x, j), c, s;
    ki_shape shape = ki_shape_like(a);
    shape.d[rank - 2].n = 2 * h;
    kn_uop turns = ki_t_broadcast_to(k, identity(k, 2 * h, 2 * h, t), &shape);
    for (int64_t round = rounds(2 * h, t); round-- > 0 && a && turns;) {
        kn_uop p = ki_t_narrow(k, a, j, 0, h), q = ki_t_narrow(k, a, j, h, h),
               size = ki_t_reduce(k, ki_t_mul(k, a, a), KN_ADD, row_bit(a));
        kn_uop both = ki_t_reduce(k, ki_t_mul(k, p, q), KN_ADD, row_bit(a));
        if (!size || !angle(k, ki_t_narrow(k, size, j, 0, h), both, ki_t_narrow(k, size, j, h, h), &c, &s))
            return false;
        a = next_round(k, stored(k, rotated(k, a, j, c, s)), j);
        turns = next_round(k, stored(k, rotated(k, turns, j, c, s)), j);
    }
    if (!a || !turns) return false;
    *w = ki_t_narrow(k, a, j, 0, n);
    *v = ki_t_narrow(k, ki_t_narrow(k, turns, rank - 2, 0, n), j, 0, n);
    return *w && *v;
}

typedef struct singular {
    kn_uop u, s, v; /* (.., m, n), (.., 1, n), (.., n, n), m >= n */
    kn_uop rest;    /* (.., m, m - n): what completes u */
} singular;

/* Pairs that differ; i, j of (x_ij b_j + y_ij b_i) / (b_j^2 - b_i^2), halves of r on the diagonal and between equal ones. */
static kn_uop mixed(kn_ctx *k, kn_uop x, kn_uop y, kn_uop b, kn_uop r) {
    kn_uop bi = flipped(k, b), gap = ki_t_mul(k, ki_t_sub(k, b, bi), ki_t_add(k, b, bi)),
           same = gap ? ki_t_eq(k, gap, L(gap, 0)) : NULL;
    kn_uop e = ki_t_div(k, ki_t_add(k, ki_t_mul(k, x, b), ki_t_mul(k, y, bi)),
                        ki_t_where(k, same, gap ? L(gap, 1) : NULL, gap));
    return r ? ki_t_where(k, same, ki_t_mul(k, r, L(r, 0.5)), e) : NULL;
}

/* As polish, for both sides; u also takes what a v has outside of it. */
static bool polish_both(kn_ctx *k, kn_uop a, singular *x) {
    kn_uop ut = flipped(k, x->u), vt = flipped(k, x->v), av = stored(k, ki_t_matmul(k, a, x->v)),
           t = stored(k, ki_t_matmul(k, ut, av));
    if (!t) return false;
    kn_uop one = identity(k, columns_of(a), columns_of(a), (kn_dtype)a->dtype);
    kn_uop r = stored(k, ki_t_sub(k, one, ki_t_matmul(k, ut, x->u))),
           q = stored(k, ki_t_sub(k, one, ki_t_matmul(k, vt, x->v)));
    if (!r || !q) return false;
    kn_uop d = ki_t_diagonal(k, ki_t_add(k, r, q), 0);
    kn_uop s = ki_t_div(k, ki_t_diagonal(k, t, 0), ki_t_sub(k, L(d, 1), ki_t_mul(k, d, L(d, 0.5))));
    if (!s) return false;
    x->s = s = stored(k, ki_t_unsqueeze(k, s, ki_rank(a) - 2));
    kn_uop alpha = ki_t_add(k, t, ki_t_mul(k, s, r)), beta = ki_t_add(k, flipped(k, t), ki_t_mul(k, s, q));
    kn_uop e = mixed(k, alpha, beta, s, r), f = mixed(k, beta, alpha, s, q);
    kn_uop zero = s ? ki_t_eq(k, s, L(s, 0)) : NULL, safe = ki_t_where(k, zero, s ? L(s, 1) : NULL, s);
    kn_uop inside = ki_t_matmul(k, x->u, ki_t_add(k, t, ki_t_matmul(k, r, t))),
           outside = ki_t_div(k, ki_t_sub(k, av, inside), safe);
    outside = ki_t_where(k, zero, s ? L(s, 0) : NULL, outside);
    x->u = stored(k, ki_t_add(k, ki_t_add(k, x->u, ki_t_matmul(k, x->u, e)), outside));
    x->v = stored(k, ki_t_add(k, x->v, ki_t_matmul(k, x->v, f)));
    return x->u && x->v;
}

/* a (.., m, n), m >= n. Columns in order make a QR whose R is diagonal but for signs: its Q is complete where they are 0. */
static bool singular_of(kn_ctx *k, kn_uop a, singular *out) {
    kn_uop w, v, q, r;
    if (!a || !hestenes(k, a, &w, &v)) return false;
    int64_t m = rows_of(a), n = columns_of(a);
    kn_uop size = stored(k, ki_t_vector_norm(k, w, 2, row_bit(w)));
    kn_uop order = size ? places(k, ki_t_squeeze(k, size, row_bit(size)), true) : NULL;
    kn_uop s = stored(k, in_order(k, size, order));
    r = w = stored(k, in_order(k, w, order));
    v = stored(k, in_order(k, v, order));
    ki_shape shape = ki_shape_like(a);
    shape.d[shape.n - 1].n = m;
    q = ki_t_broadcast_to(k, identity(k, m, m, (kn_dtype)a->dtype), &shape);
    if (!s || !w || !v || !q) return false;
    for (int64_t j = 0; j < n && j + 1 < m; j++)
        if (!reflect(k, &q, &r, j)) return false;
    kn_uop d = ki_t_diagonal(k, ki_t_narrow(k, r, ki_rank(r) - 2, 0, n), 0);
    if (!d) return false;
    d = ki_t_unsqueeze(k, d, ki_rank(d) - 1);
    kn_uop u = ki_t_narrow(k, q, ki_rank(q) - 1, 0, n);
    u = stored(k, ki_t_where(k, d ? ki_t_lt(k, d, L(d, 0)) : NULL, ki_t_neg(k, u), u));
    if (!u) return false;
    singular x = {ki_op1(&k->ir, KN_DETACH, u), s, ki_op1(&k->ir, KN_DETACH, v), NULL};
    if (!x.u || !x.v || !polish_both(k, a, &x) || !polish_both(k, a, &x)) return false;
    *out = (singular){with_slope(k, u, x.u), with_slope(k, s, x.s), with_slope(k, v, x.v), NULL};
    out->rest = ki_op1(&k->ir, KN_DETACH, ki_t_narrow(k, q, ki_rank(q) - 1, n, m - n));
    return out->u && out->s && out->v && out->rest;
}

/* Of any matrix, by its taller form; *wide: u and v have changed places. */
static bool svd(kn_ctx *k, kn_uop x, singular *out, bool *wide, kn_dtype *t) {
    kn_uop a = matrices(k, x, false, LARGEST_TURNED, t);
    *wide = a && rows_of(a) < columns_of(a);
    return singular_of(k, *wide ? flipped(k, a) : a, out);
}

kn_status kn_svd(kn_tensor x, int complete, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    singular s;
    bool wide;
    kn_tensor bad = ki_enter(&k, "svd", &x, 1, 0);
    if (bad || !k) return two_bad(out, 3, bad);
    if (!svd(k, x->u, &s, &wide, &t)) return two_bad(out, 3, ki_handle(k, NULL));
    if (complete) s.u = ki_t_cat(k, (kn_uop[]){s.u, s.rest}, 2, (int)ki_rank(s.u) - 1);
    out[0] = ki_handle(k, ki_t_cast(k, wide ? s.v : s.u, t));
    out[1] = ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, s.s, row_bit(s.s)), t));
    out[2] = ki_handle(k, ki_t_cast(k, flipped(k, wide ? s.u : s.v), t));
    return kn_check(out[0]) ? kn_check(out[0]) : kn_check(out[2]);
}

/* Singular values (.., 1, r), NULL after a failure. */
static kn_uop values_of(kn_ctx *k, kn_uop x, kn_dtype *t) {
    singular s;
    bool wide;
    return svd(k, x, &s, &wide, t) ? s.s : NULL;
}

kn_tensor kn_svdvals(kn_tensor x) {
    ENTER("svdvals", x);
    kn_dtype t;
    kn_uop s = values_of(k, x->u, &t);
    return ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, s, row_bit(s)), t));
}

/* Which singular values count: those above tolerance times the largest; 0: the longer side times the dtype's epsilon. */
static kn_uop counting(kn_ctx *k, kn_uop x, kn_uop s, double tolerance) {
    if (!s) return NULL;
    double longer = (double)(rows_of(x) > columns_of(x) ? rows_of(x) : columns_of(x)),
           eps = s->dtype == KN_F64 ? 0x1p-52 : 0x1p-23;
    return ki_t_gt(
        k, s, ki_t_mul(k, ki_t_narrow(k, s, ki_rank(s) - 1, 0, 1), L(s, tolerance > 0 ? tolerance : longer * eps)));
}

kn_tensor kn_matrix_rank(kn_tensor x, double tolerance) {
    ENTER("matrix_rank", x);
    kn_dtype t;
    kn_uop s = values_of(k, x->u, &t), yes = counting(k, x->u, s, tolerance);
    return ki_handle(k,
                     yes ? ki_t_squeeze(k, ki_t_sum(k, yes, column_bit(yes)), row_bit(yes) | column_bit(yes)) : NULL);
}

kn_tensor kn_pinv(kn_tensor x, double tolerance) {
    ENTER("pinv", x);
    kn_dtype t;
    singular s;
    bool wide;
    if (!svd(k, x->u, &s, &wide, &t)) return ki_handle(k, NULL);
    kn_uop yes = counting(k, x->u, s.s, tolerance), safe = ki_t_where(k, yes, s.s, L(s.s, 1));
    kn_uop over = ki_t_where(k, yes, ki_t_recip(k, safe), L(s.s, 0)),
           y = ki_t_matmul(k, ki_t_mul(k, s.v, over), flipped(k, s.u));
    return ki_handle(k, y ? ki_t_cast(k, wide ? flipped(k, y) : y, t) : NULL);
}

kn_tensor kn_matrix_norm(kn_tensor x, const char *ord, int keep) {
    static const char *const name[] = {"fro", "nuc", "1", "-1", "2", "-2", "inf", "-inf"};
    ENTER("matrix_norm", x);
    kn_uop a = x->u, r;
    kn_dtype t = ki_fraction((kn_dtype)a->dtype);
    unsigned rank = ki_rank(a);
    size_t o = 0;
    while (ord && o < 8 && strcmp(ord, name[o]) != 0) o++;
    if (!ord || o == 8)
        return FAIL(KI_E_MODE, k->fn, ord ? ord : "(null)", "fro, nuc, 1, -1, 2, -2, inf or -inf"), ki_handle(k, NULL);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, rank), ki_handle(k, NULL);
    uint32_t both = row_bit(a) | column_bit(a);
    bool least = name[o][0] == '-';
    if (o == 0) {
        r = ki_t_vector_norm(k, a, 2, both);
    } else if (name[o][least] == '1' || name[o][least] == 'i') { /* sums of columns, or of rows */
        uint32_t over = name[o][least] == '1' ? row_bit(a) : column_bit(a);
        kn_uop sums = ki_t_vector_norm(k, a, 1, over);
        r = least ? ki_t_min_over(k, sums, both & ~over) : ki_t_max_over(k, sums, both & ~over);
    } else {
        kn_uop s = values_of(k, a, &t);
        r = !s       ? NULL
            : o == 1 ? ki_t_sum(k, s, column_bit(s))
                     : ki_t_narrow(k, s, rank - 1, least ? columns_of(s) - 1 : 0, 1);
    }
    r = ki_t_cast(k, r, t);
    return ki_handle(k, keep ? r : ki_t_squeeze(k, r, both));
}
