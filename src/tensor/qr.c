/* qr.c: Householder's QR. */
#include "tensor/linalg.h"

#define L(like, v) ki_t_lit(k, like, v)

/* Householder's: v turns column j, from its j-th element on, into one element; r loses v (v' r) times 2 / v'v, q likewise. */
bool ki_reflect(kn_ctx *k, kn_uop *q, kn_uop *r, int64_t j) {
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
    v = ki_t_step(k, v), scale = ki_t_step(k, scale);
    kn_uop w = v ? ki_t_mul(k, scale, ki_t_reduce(k, ki_t_mul(k, v, *r), KN_ADD, row_bit(*r))) : NULL;
    *r = ki_t_step(k, ki_t_sub(k, *r, ki_t_mul(k, v, w)));
    kn_uop vt = flipped(k, v),
           u = vt ? ki_t_mul(k, scale, ki_t_reduce(k, ki_t_mul(k, *q, vt), KN_ADD, column_bit(*q))) : NULL;
    *q = ki_t_step(k, ki_t_sub(k, *q, ki_t_mul(k, u, vt)));
    return *q && *r;
}

kn_status kn_qr(kn_tensor x, int complete, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    kn_tensor bad = ki_enter(&k, "qr", &x, 1, 0);
    if (bad || !k) return ki_two_bad(out, 2, bad);
    kn_uop r = ki_matrices(k, x->u, false, KI_LARGEST, &t);
    if (!r) return ki_two_bad(out, 2, ki_handle(k, NULL));
    int64_t m = rows_of(r), n = columns_of(r), less = m < n ? m : n, kept = complete ? m : less;
    ki_shape s = ki_shape_like(r);
    s.d[s.n - 1].n = m;
    kn_uop q = ki_t_broadcast_to(k, ki_identity(k, m, m, (kn_dtype)r->dtype), &s);
    bool ok = q != NULL;
    for (int64_t j = 0; ok && j < less && j + 1 < m; j++) ok = ki_reflect(k, &q, &r, j);
    if (!ok) return ki_two_bad(out, 2, ki_handle(k, NULL));
    r = ki_t_where(k, ki_t_ge(k, column_number(k, r), row_number(k, r)), r, L(r, 0));
    out[0] = ki_handle(k, ki_t_cast(k, ki_t_narrow(k, q, ki_rank(q) - 1, 0, kept), t));
    out[1] = ki_handle(k, ki_t_cast(k, r ? ki_t_narrow(k, r, ki_rank(r) - 2, 0, kept) : NULL, t));
    return kn_check(out[0]) ? kn_check(out[0]) : kn_check(out[1]);
}
