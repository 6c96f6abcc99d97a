/* linalg.c: what factorisations of small matrices have in common: steps, rotations, order. */
#include "tensor/linalg.h"

#define L(like, v) ki_t_lit(k, like, v)

/* A step's result is stored, and so is its gradient. */
kn_uop ki_t_step(kn_ctx *k, kn_uop x) {
    x = x ? ki_op1(&k->ir, KN_CONTIGUOUS, x) : NULL;
    return x && ki_is_float((kn_dtype)x->dtype) ? ki_op1(&k->ir, KN_CONTIGUOUS_BACKWARD, x) : x;
}

/* x as matrices of floats to compute with; *t is the dtype of the result. */
kn_uop ki_matrices(kn_ctx *k, kn_uop x, ki_sides sides, int most, kn_dtype *t) {
    char s[128];
    if (!x) return NULL;
    unsigned rank = ki_rank(x);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, rank);
    if (!ki_shape_known(k, x)) return NULL;
    int64_t m = ki_dim_n(x, rank - 2), n = ki_dim_n(x, rank - 1);
    if (sides == KI_SQUARE && m != n) return FAIL(KI_E_SQUARE, k->fn, ki_shape_text(x->type, s, sizeof s));
    int64_t side = (sides == KI_ANY) == (m < n) ? m : n; /* the shorter, or the longer one */
    if (side > most) {
        int64_t shorter = m < n ? m : n;
        ki_fail(&k->env, KI_E_LINALG_SIZE, k->fn, (long long)side, most);
        if (sides == KI_ANY_WHOLE && shorter <= most)
            ki_fail_note(&k->env, "not completed, factors of %lld x %lld and less are made", (long long)side,
                         (long long)shorter);
        return NULL;
    }
    if (rank + 1 > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK - 1);
    *t = ki_fraction((kn_dtype)x->dtype);
    return ki_t_cast(k, x, ki_dtypes[*t].bits < 32 ? KN_F32 : *t);
}

kn_uop ki_identity(kn_ctx *k, int64_t m, int64_t n, kn_dtype t) {
    kn_uop r = RESHAPE(ki_t_iota(k, m, KN_I32), m, 1), c = RESHAPE(ki_t_iota(k, n, KN_I32), 1, n);
    return ki_t_cast(k, ki_t_eq(k, r, c), t);
}

kn_status ki_two_bad(kn_tensor *out, size_t n, kn_tensor bad) {
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

/* ---- rotations ------------------------------------------------------------------------------------------------ */

/* Jacobi's: rows (or columns) are paired as (i, i + h) of 2h; all pairs turn at once, then change places as the players of a
 * tournament do, which brings each beside each other one in 2h - 1 rounds, and back. All rounds are the same kernels. */
kn_uop ki_next_round(kn_ctx *k, kn_uop x, unsigned axis) {
    if (!x) return NULL;
    int64_t n = ki_dim_n(x, axis), h = n / 2;
    if (h < 2) return x;
    kn_uop part[5] = {ki_t_narrow(k, x, axis, 0, 1), ki_t_narrow(k, x, axis, h, 1), ki_t_narrow(k, x, axis, 1, h - 2),
                      ki_t_narrow(k, x, axis, h + 1, h - 1), ki_t_narrow(k, x, axis, h - 1, 1)};
    return ki_t_cat(k, part, 5, (int)axis);
}

/* x's halves along the axis, p and q, become c p - s q and s p + c q; c and s (.., h) stand along it. */
kn_uop ki_rotated(kn_ctx *k, kn_uop x, unsigned axis, kn_uop c, kn_uop s) {
    if (!x || !c || !s) return NULL;
    int64_t h = ki_dim_n(x, axis) / 2;
    kn_uop p = ki_t_narrow(k, x, axis, 0, h), q = ki_t_narrow(k, x, axis, h, h);
    kn_uop half[2] = {ki_t_sub(k, ki_t_mul(k, c, p), ki_t_mul(k, s, q)),
                      ki_t_add(k, ki_t_mul(k, s, p), ki_t_mul(k, c, q))};
    return ki_t_cat(k, half, 2, (int)axis);
}

/* The cosine and sine that make b zero between a and d; b 0: none. */
bool ki_angle(kn_ctx *k, kn_uop a, kn_uop b, kn_uop d, kn_uop *c, kn_uop *s) {
    kn_uop none = b ? ki_t_eq(k, b, L(b, 0)) : NULL, safe = ki_t_where(k, none, b ? L(b, 1) : NULL, b);
    kn_uop turn = ki_t_div(k, ki_t_sub(k, d, a), ki_t_add(k, safe, safe)), size = ki_t_abs(k, turn);
    if (!size) return false;
    kn_uop t = ki_t_recip(k, ki_t_add(k, size, ki_t_sqrt(k, ki_t_add(k, ki_t_mul(k, size, size), L(size, 1)))));
    t = ki_t_where(k, none, L(size, 0), ki_t_where(k, ki_t_lt(k, turn, L(turn, 0)), ki_t_neg(k, t), t));
    *c = t ? ki_t_step(k, ki_t_rsqrt(k, ki_t_add(k, ki_t_mul(k, t, t), L(t, 1)))) : NULL;
    *s = *c ? ki_t_step(k, ki_t_mul(k, t, *c)) : NULL;
    return *s != NULL;
}

/* Sweeps until nothing is left in practice: convergence is quadratic, and later with more columns. */
int64_t ki_rounds(int64_t n, kn_dtype t) {
    int64_t sweeps = t == KN_F64 ? 8 : 6;
    for (int64_t m = 4; m < n; m *= 4) sweeps++;
    return n < 2 ? 0 : sweeps * (n - 1);
}

/* Rows and columns of 0 to an even size. */
kn_uop ki_evened(kn_ctx *k, kn_uop x, unsigned axis) {
    return x && ki_dim_n(x, axis) % 2 ? ki_t_pad_axis(k, x, axis, 0, 1) : x;
}

/* ---- what comes of them --------------------------------------------------------------------------------------- */

/* Where each of w (.., n) stands in ascending order (negated: in descending), as (.., place, n) of bool. */
kn_uop ki_places(kn_ctx *k, kn_uop w, bool descending) {
    if (!w) return NULL;
    unsigned rank = ki_rank(w);
    kn_uop a = ki_t_unsqueeze(k, w, rank), b = ki_t_unsqueeze(k, w, rank - 1); /* rows against columns */
    if (!a || !b) return NULL;
    kn_uop r = row_number(k, ki_t_unsqueeze(k, w, rank)), c = column_number(k, b);
    kn_uop before = ki_t_binary(k, KN_OR, descending ? ki_t_gt(k, a, b) : ki_t_lt(k, a, b),
                                ki_t_binary(k, KN_AND, ki_t_eq(k, a, b), ki_t_lt(k, r, c)));
    kn_uop place = before ? ki_t_step(k, ki_t_reduce(k, ki_t_cast(k, before, KN_I32), KN_ADD, row_bit(before))) : NULL;
    return place ? ki_t_eq(k, r, place) : NULL;
}

/* Columns of x, or elements of a vector (.., 1, n), in the order of places. */
kn_uop ki_in_order(kn_ctx *k, kn_uop x, kn_uop places) {
    if (!x || !places) return NULL;
    unsigned rank = ki_rank(x);
    x = ki_t_unsqueeze(k, x, rank - 1), places = ki_t_unsqueeze(k, places, rank - 2); /* (.., m, place, n) */
    kn_uop y = x ? ki_t_reduce(k, ki_t_where(k, places, x, L(x, -0.0)), KN_ADD, UINT32_C(1) << rank) : NULL;
    return y ? ki_t_squeeze(k, y, UINT32_C(1) << rank) : NULL;
}

/* `value`, with the derivatives of `smooth`, which is equal to it but for roundings (or not defined). */
kn_uop ki_with_slope(kn_ctx *k, kn_uop value, kn_uop smooth) {
    kn_uop none = ki_t_sub(k, smooth, smooth);
    return none ? ki_t_straight(k, value, ki_t_where(k, ki_t_eq(k, none, none), smooth, L(none, 0))) : NULL;
}
