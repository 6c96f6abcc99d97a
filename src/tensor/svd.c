/* svd.c: singular values and vectors, and what is made of them: rank, pseudo-inverse, norms of matrices. */
#include "tensor/linalg.h"

#include <string.h>

#define L(like, v) ki_t_lit(k, like, v)

/* Hestenes': columns of x (m >= n) turned in pairs until all are orthogonal: *w = x v. */
static bool hestenes(kn_ctx *k, kn_uop x, kn_uop *w, kn_uop *v) {
    unsigned rank = ki_rank(x), j = rank - 1;
    int64_t n = columns_of(x), h = (n + 1) / 2;
    kn_dtype t = (kn_dtype)x->dtype;
    kn_uop a = ki_evened(k, x, j), c, s;
    ki_shape shape = ki_shape_like(a);
    shape.d[rank - 2].n = 2 * h;
    kn_uop turns = ki_t_broadcast_to(k, ki_identity(k, 2 * h, 2 * h, t), &shape);
    for (int64_t round = ki_rounds(2 * h, t); round-- > 0 && a && turns;) {
        kn_uop p = ki_t_narrow(k, a, j, 0, h), q = ki_t_narrow(k, a, j, h, h),
               size = ki_t_reduce(k, ki_t_mul(k, a, a), KN_ADD, row_bit(a));
        kn_uop both = ki_t_reduce(k, ki_t_mul(k, p, q), KN_ADD, row_bit(a));
        if (!size || !ki_angle(k, ki_t_narrow(k, size, j, 0, h), both, ki_t_narrow(k, size, j, h, h), &c, &s))
            return false;
        a = ki_next_round(k, ki_t_step(k, ki_rotated(k, a, j, c, s)), j);
        turns = ki_next_round(k, ki_t_step(k, ki_rotated(k, turns, j, c, s)), j);
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
    kn_uop ut = flipped(k, x->u), vt = flipped(k, x->v), av = ki_t_step(k, ki_t_matmul(k, a, x->v)),
           t = ki_t_step(k, ki_t_matmul(k, ut, av));
    if (!t) return false;
    kn_uop one = ki_identity(k, columns_of(a), columns_of(a), (kn_dtype)a->dtype);
    kn_uop r = ki_t_step(k, ki_t_sub(k, one, ki_t_matmul(k, ut, x->u))),
           q = ki_t_step(k, ki_t_sub(k, one, ki_t_matmul(k, vt, x->v)));
    if (!r || !q) return false;
    kn_uop d = ki_t_diagonal(k, ki_t_add(k, r, q), 0);
    kn_uop s = ki_t_div(k, ki_t_diagonal(k, t, 0), ki_t_sub(k, L(d, 1), ki_t_mul(k, d, L(d, 0.5))));
    if (!s) return false;
    x->s = s = ki_t_step(k, ki_t_unsqueeze(k, s, ki_rank(a) - 2));
    kn_uop alpha = ki_t_add(k, t, ki_t_mul(k, s, r)), beta = ki_t_add(k, flipped(k, t), ki_t_mul(k, s, q));
    kn_uop e = mixed(k, alpha, beta, s, r), f = mixed(k, beta, alpha, s, q);
    kn_uop zero = s ? ki_t_eq(k, s, L(s, 0)) : NULL, safe = ki_t_where(k, zero, s ? L(s, 1) : NULL, s);
    kn_uop inside = ki_t_matmul(k, x->u, ki_t_add(k, t, ki_t_matmul(k, r, t))),
           outside = ki_t_div(k, ki_t_sub(k, av, inside), safe);
    outside = ki_t_where(k, zero, s ? L(s, 0) : NULL, outside);
    x->u = ki_t_step(k, ki_t_add(k, ki_t_add(k, x->u, ki_t_matmul(k, x->u, e)), outside));
    x->v = ki_t_step(k, ki_t_add(k, x->v, ki_t_matmul(k, x->v, f)));
    return x->u && x->v;
}

/* a (.., m, n), m >= n. Columns in order make a QR whose R is diagonal but for signs: its Q is complete where they are 0. */
static bool singular_of(kn_ctx *k, kn_uop a, singular *out) {
    kn_uop w, v, q, r;
    ki_reflection h;
    if (!a || !hestenes(k, a, &w, &v)) return false;
    int64_t m = rows_of(a), n = columns_of(a);
    kn_uop size = ki_t_step(k, ki_t_vector_norm(k, w, 2, row_bit(w)));
    kn_uop order = size ? ki_places(k, ki_t_squeeze(k, size, row_bit(size)), true) : NULL;
    kn_uop s = ki_t_step(k, ki_in_order(k, size, order));
    r = w = ki_t_step(k, ki_in_order(k, w, order));
    v = ki_t_step(k, ki_in_order(k, v, order));
    ki_shape shape = ki_shape_like(a);
    shape.d[shape.n - 1].n = m;
    q = ki_t_broadcast_to(k, ki_identity(k, m, m, (kn_dtype)a->dtype), &shape);
    if (!s || !w || !v || !q) return false;
    for (int64_t j = 0; j < n && j + 1 < m; j++)
        if (!ki_reflect(k, &r, j, &h) || !(q = ki_mirror_rows(k, h, q))) return false;
    kn_uop d = ki_t_diagonal(k, ki_t_narrow(k, r, ki_rank(r) - 2, 0, n), 0);
    if (!d) return false;
    d = ki_t_unsqueeze(k, d, ki_rank(d) - 1);
    kn_uop u = ki_t_narrow(k, q, ki_rank(q) - 1, 0, n);
    u = ki_t_step(k, ki_t_where(k, d ? ki_t_lt(k, d, L(d, 0)) : NULL, ki_t_neg(k, u), u));
    if (!u) return false;
    singular x = {ki_op1(&k->ir, KN_DETACH, u), s, ki_op1(&k->ir, KN_DETACH, v), NULL};
    if (!x.u || !x.v || !polish_both(k, a, &x) || !polish_both(k, a, &x)) return false;
    *out = (singular){ki_with_slope(k, u, x.u), ki_with_slope(k, s, x.s), ki_with_slope(k, v, x.v), NULL};
    out->rest = ki_op1(&k->ir, KN_DETACH, ki_t_narrow(k, q, ki_rank(q) - 1, n, m - n));
    return out->u && out->s && out->v && out->rest;
}

/* Of any matrix, by its taller form; where that is long, by its R. *wide: u and v have changed places. */
static bool svd(kn_ctx *k, kn_uop x, bool complete, singular *out, bool *wide, kn_dtype *t) {
    kn_uop a = ki_matrices(k, x, complete ? KI_ANY_WHOLE : KI_ANY, KI_LARGEST_TURNED, t), q = NULL;
    *wide = a && rows_of(a) < columns_of(a);
    if (*wide) a = flipped(k, a);
    if (a && rows_of(a) > KI_LARGEST_TURNED && !ki_thin_qr(k, a, &q, &a)) return false;
    if (!singular_of(k, a, out)) return false;
    return !q || (out->u = ki_t_step(k, ki_t_matmul(k, q, out->u)));
}

kn_status kn_svd(kn_tensor x, int complete, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    singular s;
    bool wide;
    if (!out) return ki_no_out("svd", &x, 1);
    kn_tensor bad = ki_enter(&k, "svd", &x, 1, 0);
    if (bad || !k) return ki_two_bad(out, 3, bad);
    if (!svd(k, x->u, complete, &s, &wide, &t)) return ki_two_bad(out, 3, ki_handle(k, NULL));
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
    return svd(k, x, false, &s, &wide, t) ? s.s : NULL;
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
    if (!svd(k, x->u, false, &s, &wide, &t)) return ki_handle(k, NULL);
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
    if (!ki_given(k, k->fn, "ord", ord)) return ki_handle(k, NULL);
    while (o < 8 && strcmp(ord, name[o]) != 0) o++;
    if (o == 8) return FAIL(KI_E_MODE, k->fn, ord, "fro, nuc, 1, -1, 2, -2, inf or -inf"), ki_handle(k, NULL);
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
