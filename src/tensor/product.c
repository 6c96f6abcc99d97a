/* product.c: products of matrices and vectors: the spec's gemm (multiply, broadcast over a shared axis, and sum),
 * with batches. The small floats multiply and accumulate in f32, rounded once; integers in their own dtype. */
#include "tensor/build.h"

#include <math.h>

static kn_uop bad_shapes(kn_ctx *k, kn_uop a, kn_uop b, int64_t da, int64_t db) {
    char sa[128], sb[128];
    ki_fail(&k->env, KI_E_MATMUL_SHAPES, k->fn, ki_shape_text(a->type, sa, sizeof sa),
            ki_shape_text(b->type, sb, sizeof sb), (long long)da, (long long)db);
    return NULL;
}

kn_uop ki_t_matmul(kn_ctx *k, kn_uop a, kn_uop b) {
    if (!a || !b) return NULL;
    unsigned ra = ki_rank(a), rb = ki_rank(b);
    if (!ra || !rb) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0);
    unsigned ka = ra - 1, kb = rb == 1 ? 0 : rb - 2;
    if (!ki_same_dim(a->type->dim[ka], b->type->dim[kb])) return bad_shapes(k, a, b, ki_dim_n(a, ka), ki_dim_n(b, kb));
    kn_dtype t = ki_promote((kn_dtype)a->dtype, (kn_dtype)b->dtype);
    kn_dtype acc = ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : t;
    a = ki_t_cast(k, a, acc);
    b = ki_t_cast(k, b, acc);
    if (ra == 1) a = ki_t_unsqueeze(k, a, 0); /* (1, K) */
    if (rb == 1) b = ki_t_unsqueeze(k, b, 1); /* (K, 1) */
    if (!a || !b) return NULL;
    a = ki_t_unsqueeze(k, a, ki_rank(a));     /* (.., M, K, 1) */
    b = ki_t_unsqueeze(k, b, ki_rank(b) - 2); /* (.., 1, K, N) */
    kn_uop p = ki_t_mul(k, a, b);
    if (!p) return NULL;
    unsigned rank = ki_rank(p);
    uint32_t sum = UINT32_C(1) << (rank - 2), drop = sum;
    if (ra == 1) drop |= UINT32_C(1) << (rank - 3);
    if (rb == 1) drop |= UINT32_C(1) << (rank - 1);
    return ki_t_cast(k, ki_t_squeeze(k, ki_t_reduce(k, p, KN_ADD, sum), drop), t);
}

kn_uop ki_t_linear(kn_ctx *k, kn_uop x, kn_uop weight, kn_uop bias) {
    if (!x || !weight) return NULL;
    if (ki_rank(weight) != 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ki_rank(weight));
    unsigned r = ki_rank(x);
    if (r && !ki_same_dim(x->type->dim[r - 1], weight->type->dim[1])) {
        char sx[128], sw[128];
        return FAIL(KI_E_LINEAR_SHAPES, ki_shape_text(x->type, sx, sizeof sx), (long long)ki_dim_n(x, r - 1),
                    ki_shape_text(weight->type, sw, sizeof sw), (long long)ki_dim_n(weight, 1));
    }
    kn_uop y = ki_t_matmul(k, x, ki_t_swap(k, weight, 0, 1));
    return bias ? ki_t_add(k, y, bias) : y;
}

kn_tensor kn_matmul(kn_tensor a, kn_tensor b) {
    ENTER("matmul", a, b);
    return ki_handle(k, ki_t_matmul(k, a->u, b->u));
}
static kn_tensor of_rank(kn_tensor a, kn_tensor b, unsigned rank, const char *fn) {
    ENTER(fn, a, b);
    if (ki_rank(a->u) != rank || ki_rank(b->u) != rank)
        return FAIL(KI_E_RANK_WANTED, fn, (int)rank, ki_rank(a->u) != rank ? ki_rank(a->u) : ki_rank(b->u)),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_matmul(k, a->u, b->u));
}
kn_tensor kn_dot(kn_tensor a, kn_tensor b) { return of_rank(a, b, 1, "dot"); }
kn_tensor kn_gemm(kn_tensor a, kn_tensor b) { return of_rank(a, b, 2, "gemm"); }
kn_tensor kn_bmm(kn_tensor a, kn_tensor b) { return of_rank(a, b, 3, "bmm"); }

kn_tensor kn_outer(kn_tensor a, kn_tensor b) {
    ENTER("outer", a, b);
    if (ki_rank(a->u) != 1 || ki_rank(b->u) != 1)
        return FAIL(KI_E_RANK_WANTED, "outer", 1, ki_rank(a->u) != 1 ? ki_rank(a->u) : ki_rank(b->u)),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_mul(k, ki_t_unsqueeze(k, a->u, 1), ki_t_unsqueeze(k, b->u, 0)));
}

kn_tensor kn_linear(kn_tensor x, kn_tensor weight, kn_tensor bias) {
    ENTER_("linear", 4, x, weight, bias);
    return ki_handle(k, ki_t_linear(k, x->u, weight->u, bias ? bias->u : NULL));
}

/* ---- of vectors along an axis ------------------------------------------------------------------------------- */

static kn_dtype product_dtype(kn_dtype t) { return ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : t; }

/* Both broadcast, of one dtype in which products add up; *t is that of the result. */
static bool both_alike(kn_ctx *k, kn_uop *a, kn_uop *b, kn_dtype *t) {
    *t = ki_promote((kn_dtype)(*a)->dtype, (kn_dtype)(*b)->dtype);
    kn_dtype acc = product_dtype(*t);
    *a = ki_t_cast(k, *a, acc), *b = ki_t_cast(k, *b, acc);
    if (!*a || !*b || !ki_broadcast(k, a, b)) return false;
    ki_shape s = ki_shape_like(ki_rank(*a) ? *a : *b);
    *a = ki_t_broadcast_to(k, *a, &s), *b = ki_t_broadcast_to(k, *b, &s);
    return *a && *b;
}

kn_tensor kn_vecdot(kn_tensor x, kn_tensor y, int axis) {
    ENTER("vecdot", x, y);
    kn_uop a = x->u, b = y->u;
    kn_dtype t;
    if (!both_alike(k, &a, &b, &t)) return ki_handle(k, NULL);
    int at = ki_axis(k, axis, ki_rank(a));
    if (at < 0) return ki_handle(k, NULL);
    uint32_t bit = UINT32_C(1) << at;
    return ki_handle(k, ki_t_cast(k, ki_t_squeeze(k, ki_t_reduce(k, ki_t_mul(k, a, b), KN_ADD, bit), bit), t));
}

/* x[i + by mod 3] along an axis of 3. */
static kn_uop turned(kn_ctx *k, kn_uop x, unsigned axis, int64_t by) {
    return ki_t_cat(k, (kn_uop[]){ki_t_narrow(k, x, axis, by, 3 - by), ki_t_narrow(k, x, axis, 0, by)}, 2, (int)axis);
}
kn_tensor kn_cross(kn_tensor x, kn_tensor y, int axis) {
    ENTER("cross", x, y);
    kn_uop a = x->u, b = y->u;
    int at = ki_axis(k, axis, ki_rank(a)), bt = at < 0 ? -1 : ki_axis(k, axis, ki_rank(b));
    if (bt < 0) return ki_handle(k, NULL);
    if (ki_dim_n(a, (unsigned)at) != 3 || ki_dim_n(b, (unsigned)bt) != 3)
        return FAIL(KI_E_CROSS_SIZE, axis, (long long)ki_dim_n(a, (unsigned)at), (long long)ki_dim_n(b, (unsigned)bt)),
               ki_handle(k, NULL);
    unsigned ua = (unsigned)at, ub = (unsigned)bt;
    kn_uop l = ki_t_mul(k, turned(k, a, ua, 1), turned(k, b, ub, 2)),
           r = ki_t_mul(k, turned(k, a, ua, 2), turned(k, b, ub, 1));
    return ki_handle(k, ki_t_sub(k, l, r));
}

kn_tensor kn_kron(kn_tensor x, kn_tensor y) {
    ENTER("kron", x, y);
    kn_uop a = x->u, b = y->u;
    unsigned n = ki_rank(a) > ki_rank(b) ? ki_rank(a) : ki_rank(b);
    if (2 * n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), ki_handle(k, NULL);
    if (!ki_shape_known(k, a) || !ki_shape_known(k, b)) return ki_handle(k, NULL);
    ki_shape sa = {.n = 2 * n}, sb = {.n = 2 * n}, s = {.n = n};
    for (unsigned i = 0; i < n; i++) {
        unsigned da = n - ki_rank(a), db = n - ki_rank(b);
        int64_t na = i < da ? 1 : ki_dim_n(a, i - da), nb = i < db ? 1 : ki_dim_n(b, i - db);
        sa.d[2 * i].n = na, sa.d[2 * i + 1].n = 1;
        sb.d[2 * i].n = 1, sb.d[2 * i + 1].n = nb;
        s.d[i].n = na * nb;
    }
    return ki_handle(k, ki_t_reshape_to(k, ki_t_mul(k, ki_t_reshape_to(k, a, &sa), ki_t_reshape_to(k, b, &sb)), &s));
}

kn_tensor kn_trace(kn_tensor x, int64_t offset) {
    ENTER("trace", x);
    kn_uop d = ki_t_diagonal(k, x->u, offset);
    uint32_t last = d ? UINT32_C(1) << (ki_rank(d) - 1) : 0;
    return ki_handle(k, ki_t_squeeze(k, ki_t_sum(k, d, last), last));
}

/* ---- norms and distances ------------------------------------------------------------------------------------ */

/* The p-th root of the sum of x^p over axes, x not negative. Where the sum is 0 its root has no slope: the gradient is 0. */
static kn_uop root_of_powers(kn_ctx *k, kn_uop x, double p, uint32_t axes) {
    if (!x) return NULL;
    kn_uop s = ki_t_reduce(k,
                           p == 1   ? x
                           : p == 2 ? ki_t_mul(k, x, x)
                                    : ki_t_binary(k, KN_POW, x, ki_t_lit(k, x, p)),
                           KN_ADD, axes);
    if (!s || p == 1) return s;
    kn_uop zero = ki_t_eq(k, s, ki_t_lit(k, s, 0)), safe = ki_t_where(k, zero, ki_t_lit(k, s, 1), s);
    kn_uop r = p == 2 ? ki_t_sqrt(k, safe) : ki_t_binary(k, KN_POW, safe, ki_t_lit(k, s, 1 / p));
    return r ? ki_t_where(k, zero, ki_t_lit(k, r, p < 0 ? INFINITY : 0), r) : NULL;
}

kn_uop ki_t_vector_norm(kn_ctx *k, kn_uop x, double ord, uint32_t axes) {
    x = ki_t_float(k, x);
    if (!x) return NULL;
    kn_dtype t = (kn_dtype)x->dtype;
    x = ki_t_cast(k, x, product_dtype(t));
    kn_uop r, size = ord == 2 ? x : ki_t_abs(k, x);
    if (ord == INFINITY) r = ki_t_max_over(k, size, axes);
    else if (ord == -INFINITY) r = ki_t_min_over(k, size, axes);
    else if (ord == 0) r = ki_t_reduce(k, ki_t_cast(k, ki_t_truth(k, x), product_dtype(t)), KN_ADD, axes);
    else r = root_of_powers(k, size, ord, axes);
    return ki_t_cast(k, r, t);
}

kn_tensor kn_vector_norm(kn_tensor x, double ord) {
    ENTER("vector_norm", x);
    return ki_handle(k, ki_t_squeeze(k, ki_t_vector_norm(k, x->u, ord, all_axes(x->u)), all_axes(x->u)));
}
kn_tensor kn_vector_norm_over(kn_tensor x, double ord, kn_ints axes, int keep) {
    ENTER("vector_norm", x);
    uint32_t bits;
    if (!ki_axes(k, axes, ki_rank(x->u), &bits)) return ki_handle(k, NULL);
    kn_uop r = ki_t_vector_norm(k, x->u, ord, bits);
    return ki_handle(k, keep ? r : ki_t_squeeze(k, r, bits));
}

kn_tensor kn_cdist(kn_tensor x, kn_tensor y, double p) {
    ENTER("cdist", x, y);
    kn_uop a = ki_t_float(k, x->u), b = ki_t_float(k, y->u);
    unsigned ra = ki_rank(x->u), rb = ki_rank(y->u);
    if (ra < 2 || rb < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, ra < 2 ? ra : rb), ki_handle(k, NULL);
    if (!ki_same_dim(x->u->type->dim[ra - 1], y->u->type->dim[rb - 1]))
        return bad_shapes(k, x->u, y->u, ki_dim_n(x->u, ra - 1), ki_dim_n(y->u, rb - 1)), ki_handle(k, NULL);
    kn_uop d = ki_t_sub(k, ki_t_unsqueeze(k, a, ra - 1), ki_t_unsqueeze(k, b, rb - 2));
    uint32_t last = d ? UINT32_C(1) << (ki_rank(d) - 1) : 0;
    return ki_handle(k, ki_t_squeeze(k, ki_t_vector_norm(k, d, p, last), last));
}
