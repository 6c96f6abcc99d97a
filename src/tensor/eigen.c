/* eigen.c: eigenvalues and -vectors of symmetric matrices, by Jacobi's rotations. */
#include "tensor/linalg.h"

#define L(like, v) ki_t_lit(k, like, v)

/* a symmetric, to its eigenvalues (.., n) and eigenvectors, in the order of columns. */
static bool jacobi(kn_ctx *k, kn_uop a, kn_uop *values, kn_uop *vectors) {
    unsigned rank = ki_rank(a), i = rank - 2, j = rank - 1;
    int64_t n = columns_of(a), h = (n + 1) / 2;
    kn_dtype t = (kn_dtype)a->dtype;
    a = ki_evened(k, ki_evened(k, a, i), j);
    ki_shape s = ki_shape_like(a);
    kn_uop v = ki_t_broadcast_to(k, ki_identity(k, 2 * h, 2 * h, t), &s), c, sn;
    for (int64_t round = ki_rounds(2 * h, t); round-- > 0 && a && v;) {
        kn_uop top = ki_t_narrow(k, a, i, 0, h), low = ki_t_narrow(k, a, i, h, h);
        kn_uop app = ki_t_diagonal(k, ki_t_narrow(k, top, j, 0, h), 0),
               apq = ki_t_diagonal(k, ki_t_narrow(k, top, j, h, h), 0),
               aqq = ki_t_diagonal(k, ki_t_narrow(k, low, j, h, h), 0);
        if (!ki_angle(k, app, apq, aqq, &c, &sn)) return false;
        kn_uop cc = ki_t_unsqueeze(k, c, i), cs = ki_t_unsqueeze(k, sn, i), rc = ki_t_unsqueeze(k, c, j),
               rs = ki_t_unsqueeze(k, sn, j);
        a = ki_t_step(k, ki_rotated(k, ki_rotated(k, a, j, cc, cs), i, rc, rs));
        v = ki_t_step(k, ki_rotated(k, v, j, cc, cs));
        a = ki_next_round(k, ki_next_round(k, a, i), j);
        v = ki_next_round(k, v, j);
    }
    if (!a || !v) return false;
    *values = ki_t_diagonal(k, ki_t_narrow(k, ki_t_narrow(k, a, i, 0, n), j, 0, n), 0);
    *vectors = ki_t_narrow(k, ki_t_narrow(k, v, i, 0, n), j, 0, n);
    return *values && *vectors;
}

/* One step of Newton's kind from vectors v of a nearly diagonal v' a v: quadratic, so derivatives pass. Equal values do not
 * mix. */
static bool polish(kn_ctx *k, kn_uop a, kn_uop *w, kn_uop *v) {
    kn_uop vt = flipped(k, *v), s = ki_t_step(k, ki_t_matmul(k, vt, ki_t_matmul(k, a, *v)));
    if (!s) return false;
    kn_uop one = ki_identity(k, columns_of(a), columns_of(a), (kn_dtype)a->dtype),
           r = ki_t_step(k, ki_t_sub(k, one, ki_t_matmul(k, vt, *v)));
    if (!r) return false;
    kn_uop d = ki_t_div(k, ki_t_diagonal(k, s, 0), ki_t_sub(k, L(r, 1), ki_t_diagonal(k, r, 0)));
    if (!d) return false;
    unsigned rank = ki_rank(a);
    kn_uop across = ki_t_unsqueeze(k, d, rank - 2), gap = ki_t_sub(k, across, ki_t_unsqueeze(k, d, rank - 1));
    kn_uop same = gap ? ki_t_eq(k, gap, L(gap, 0)) : NULL;
    kn_uop e = ki_t_div(k, ki_t_add(k, s, ki_t_mul(k, across, r)), ki_t_where(k, same, gap ? L(gap, 1) : NULL, gap));
    e = ki_t_where(k, same, ki_t_mul(k, r, L(r, 0.5)), e);
    *v = ki_t_step(k, ki_t_add(k, *v, ki_t_matmul(k, *v, e)));
    *w = d;
    return *v != NULL;
}

static bool eigh(kn_ctx *k, kn_tensor x, kn_uop *w, kn_uop *v, kn_dtype *t) {
    kn_uop a = ki_matrices(k, x->u, KI_SQUARE, KI_LARGEST_TURNED, t), values, vectors;
    if (!a) return false;
    kn_uop lower = ki_t_ge(k, row_number(k, a), column_number(k, a));
    a = ki_t_where(k, lower, a, flipped(k, a));
    if (!jacobi(k, a, &values, &vectors)) return false;
    kn_uop order = ki_places(k, values, false);
    unsigned rank = ki_rank(a);
    values = ki_t_step(k, ki_in_order(k, ki_t_unsqueeze(k, values, rank - 2), order));
    vectors = ki_t_step(k, ki_in_order(k, vectors, order));
    if (!values || !vectors) return false;
    kn_uop smooth = ki_op1(&k->ir, KN_DETACH, vectors), d = NULL, again;
    if (!smooth || !polish(k, a, &d, &smooth)) return false;
    again = smooth;
    if (!polish(k, a, &d, &again)) return false;
    *w = ki_with_slope(k, ki_t_squeeze(k, values, UINT32_C(1) << (rank - 2)), d);
    *v = ki_with_slope(k, vectors, again);
    return *w && *v;
}

kn_status kn_eigh(kn_tensor x, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    kn_uop w, v;
    if (!out) return ki_no_out("eigh", &x, 1);
    kn_tensor bad = ki_enter(&k, "eigh", &x, 1, 0);
    if (bad || !k) return ki_two_bad(out, 2, bad);
    if (!eigh(k, x, &w, &v, &t)) return ki_two_bad(out, 2, ki_handle(k, NULL));
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
