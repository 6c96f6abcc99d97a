/* product.c: products of matrices and vectors: the spec's gemm (multiply, broadcast over a shared axis, and sum),
 * with batches. The small floats multiply and accumulate in f32, rounded once; integers in their own dtype. */
#include "tensor/build.h"

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
