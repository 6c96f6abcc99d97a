/* qr.c: Householder's QR. */
#include "tensor/linalg.h"

#define L(like, v) ki_t_lit(k, like, v)

/* Householder's: v turns column j, from its j-th element on, into one element; its other columns lose v (v' r) times 2 / v'v. */
bool ki_reflect(kn_ctx *k, kn_uop *r, int64_t j, ki_reflection *h) {
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
    *h = (ki_reflection){ki_t_step(k, v), ki_t_step(k, scale)};
    return (*r = ki_mirror(k, *h, *r)) != NULL;
}

kn_uop ki_mirror(kn_ctx *k, ki_reflection h, kn_uop x) {
    if (!h.v || !x) return NULL;
    kn_uop w = ki_t_mul(k, h.scale, ki_t_reduce(k, ki_t_mul(k, h.v, x), KN_ADD, row_bit(x)));
    return ki_t_step(k, ki_t_sub(k, x, ki_t_mul(k, h.v, w)));
}

kn_uop ki_mirror_rows(kn_ctx *k, ki_reflection h, kn_uop x) {
    kn_uop vt = flipped(k, h.v);
    if (!vt || !x) return NULL;
    kn_uop u = ki_t_mul(k, h.scale, ki_t_reduce(k, ki_t_mul(k, x, vt), KN_ADD, column_bit(x)));
    return ki_t_step(k, ki_t_sub(k, x, ki_t_mul(k, u, vt)));
}

static kn_uop identities(kn_ctx *k, kn_uop like, int64_t m, int64_t n) {
    ki_shape s = ki_shape_like(like);
    s.d[s.n - 2].n = m, s.d[s.n - 1].n = n;
    return ki_t_broadcast_to(k, ki_identity(k, m, n, (kn_dtype)like->dtype), &s);
}

static kn_uop upper(kn_ctx *k, kn_uop r, int64_t rows) {
    if (!r) return NULL;
    r = ki_t_where(k, ki_t_ge(k, column_number(k, r), row_number(k, r)), r, L(r, 0));
    return r ? ki_t_narrow(k, r, ki_rank(r) - 2, 0, rows) : NULL;
}

/* Q as the reflections of an identity of n columns, the last one first: nothing has m columns. */
bool ki_thin_qr(kn_ctx *k, kn_uop a, kn_uop *q, kn_uop *r) {
    ki_reflection h[KI_LARGEST];
    int64_t m = rows_of(a), n = columns_of(a);
    *r = a;
    for (int64_t j = 0; j < n; j++)
        if (!ki_reflect(k, r, j, &h[j])) return false;
    *q = identities(k, a, m, n);
    for (int64_t j = n; j-- > 0 && *q;) *q = ki_mirror(k, h[j], *q);
    return *q && (*r = upper(k, *r, n));
}

static bool whole_qr(kn_ctx *k, kn_uop a, int64_t kept, kn_uop *q, kn_uop *r) {
    int64_t m = rows_of(a), n = columns_of(a);
    ki_reflection h;
    *r = a;
    *q = identities(k, a, m, m);
    for (int64_t j = 0; j < n && j + 1 < m && *q; j++) *q = ki_reflect(k, r, j, &h) ? ki_mirror_rows(k, h, *q) : NULL;
    if (*q) *q = ki_t_narrow(k, *q, ki_rank(*q) - 1, 0, kept);
    return *q && (*r = upper(k, *r, kept));
}

kn_status kn_qr(kn_tensor x, int complete, kn_tensor *out) {
    kn_ctx *k;
    kn_dtype t;
    if (!out) return ki_no_out("qr", &x, 1);
    kn_tensor bad = ki_enter(&k, "qr", &x, 1, 0);
    if (bad || !k) return ki_two_bad(out, 2, bad);
    kn_uop a = ki_matrices(k, x->u, complete ? KI_ANY_WHOLE : KI_ANY, KI_LARGEST, &t), q, r;
    bool thin = a && !complete && rows_of(a) > KI_LARGEST;
    int64_t kept = a && !complete && columns_of(a) < rows_of(a) ? columns_of(a) : a ? rows_of(a) : 0;
    if (!a || !(thin ? ki_thin_qr(k, a, &q, &r) : whole_qr(k, a, kept, &q, &r)))
        return ki_two_bad(out, 2, ki_handle(k, NULL));
    out[0] = ki_handle(k, ki_t_cast(k, q, t));
    out[1] = ki_handle(k, ki_t_cast(k, r, t));
    return kn_check(out[0]) ? kn_check(out[0]) : kn_check(out[1]);
}
