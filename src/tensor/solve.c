/* solve.c: triangles, elimination, and what comes of them: cholesky, solve, inverse, determinants, powers. */
#include "tensor/linalg.h"

#define L(like, v) ki_t_lit(k, like, v)

/* ---- right sides ---------------------------------------------------------------------------------------------- */

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

/* ---- triangles ------------------------------------------------------------------------------------------------ */

/* Column by column: the pivot's square root, the column divided by it, its square taken off what is to the right. */
static kn_uop cholesky(kn_ctx *k, kn_uop a) {
    int64_t n = a ? columns_of(a) : 0;
    kn_uop r = row_number(k, a), c = column_number(k, a), lower = a ? ki_t_ge(k, r, c) : NULL;
    for (int64_t j = 0; a && j < n; j++) {
        kn_uop at = L(c, (double)j), l = ki_t_div(k, column(k, a, j), ki_t_sqrt(k, column(k, row(k, a, j), j)));
        kn_uop rest = ki_t_where(k, ki_t_gt(k, c, at), ki_t_sub(k, a, ki_t_mul(k, l, flipped(k, l))), a);
        a = ki_t_step(k, ki_t_where(k, ki_t_eq(k, c, at), l, rest));
    }
    return a ? ki_t_where(k, lower, a, L(a, 0)) : NULL;
}

kn_tensor kn_cholesky(kn_tensor x, int upper) {
    ENTER("cholesky", x);
    kn_dtype t;
    kn_uop a = ki_matrices(k, x->u, KI_SQUARE, KI_LARGEST, &t);
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
        b = ki_t_step(k, ki_t_where(k, ki_t_eq(k, r, at), x, rest));
    }
    return b;
}

kn_tensor kn_solve_triangular(kn_tensor a, kn_tensor b, int upper, int unit) {
    ENTER("solve_triangular", a, b);
    kn_dtype t = ki_promote((kn_dtype)a->u->dtype, (kn_dtype)b->u->dtype);
    kn_uop x = ki_matrices(k, ki_t_cast(k, a->u, t), KI_SQUARE, KI_LARGEST, &t),
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
    e->a = ki_t_step(k, ki_t_where(k, is, over, rest));
    e->a = e->a ? ki_t_narrow(k, ki_t_tile_axis(k, e->a, ki_rank(a) - 1, 2), ki_rank(a) - 1, 1, n) : NULL;
    e->since = ki_t_step(
        k, ki_t_where(k, is, L(e->since, 0), ki_t_where(k, free, e->since, ki_t_add(k, e->since, L(e->since, 1)))));
    if (e->det) e->det = ki_t_step(k, ki_t_mul(k, e->det, d));
    if (e->log_det) e->log_det = ki_t_step(k, ki_t_add(k, e->log_det, ki_t_log(k, ki_t_abs(k, d))));
    if (e->sign) e->sign = ki_t_step(k, ki_t_mul(k, e->sign, ki_t_sign(k, d)));
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
    kn_uop a = ki_matrices(k, x->u, KI_SQUARE, KI_LARGEST, &t);
    return ki_handle(k, ki_t_cast(k, inverse(k, a), t));
}

/* By the inverse, and once more for what that leaves: as good as a backward substitution. */
kn_tensor kn_solve(kn_tensor a, kn_tensor b) {
    ENTER("solve", a, b);
    kn_dtype t = ki_promote((kn_dtype)a->u->dtype, (kn_dtype)b->u->dtype);
    kn_uop x = ki_matrices(k, ki_t_cast(k, a->u, t), KI_SQUARE, KI_LARGEST, &t),
           y = right_side(k, x, b->u, x ? (kn_dtype)x->dtype : t);
    kn_uop inv = y ? ki_t_step(k, inverse(k, x)) : NULL, s = ki_t_step(k, ki_t_matmul(k, inv, y));
    s = ki_t_add(k, s, ki_t_matmul(k, inv, ki_t_sub(k, y, ki_t_matmul(k, x, s))));
    return ki_handle(k, as_given(k, s, b->u, t));
}

kn_tensor kn_det(kn_tensor x) {
    ENTER("det", x);
    kn_dtype t;
    elimination e;
    kn_uop a = ki_matrices(k, x->u, KI_SQUARE, KI_LARGEST, &t);
    if (!eliminate(k, a, &e, true, false)) return ki_handle(k, NULL);
    return ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, e.det, row_bit(a) | column_bit(a)), t));
}

kn_status kn_slogdet(kn_tensor x, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    elimination e;
    if (!out) return ki_no_out("slogdet", &x, 1);
    kn_tensor bad = ki_enter(&k, "slogdet", &x, 1, 0);
    if (bad || !k) return ki_two_bad(out, 2, bad);
    kn_uop a = ki_matrices(k, x->u, KI_SQUARE, KI_LARGEST, &t);
    if (!eliminate(k, a, &e, false, true)) return ki_two_bad(out, 2, ki_handle(k, NULL));
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
        a = ki_t_cast(k, inverse(k, ki_matrices(k, a, KI_SQUARE, KI_LARGEST, &t)), ki_fraction((kn_dtype)a->dtype));
        if (!a) return ki_handle(k, NULL);
    }
    for (unsigned e = n < 0 ? 0u - (unsigned)n : (unsigned)n; e && a; e >>= 1) {
        if (e & 1) r = r ? ki_t_matmul(k, r, a) : a;
        if (e > 1) a = ki_t_matmul(k, a, a);
    }
    if (r || n) return ki_handle(k, r);
    ki_shape s = ki_shape_like(a);
    return ki_handle(k, ki_t_broadcast_to(k, ki_identity(k, rows_of(a), rows_of(a), (kn_dtype)a->dtype), &s));
}
