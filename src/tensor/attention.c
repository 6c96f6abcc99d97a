/* attention.c: attention and rotary positions. */
#include "tensor/build.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

/* The two halves of the last axis, x as (.., 2, E/2): x cos + (the other half) sin, the first half's sine negated. */
static kn_uop rotary(kn_ctx *k, kn_uop x, kn_uop cos, kn_uop sin) {
    unsigned r = ki_rank(x);
    ki_shape s = ki_shape_like(x), split = s;
    split.n = r + 1;
    split.d[r].n = s.d[r - 1].n / 2;
    split.d[r - 1].n = 2;
    kn_uop h = ki_t_reshape_to(k, x, &split), other = h ? ki_t_flip_axis(k, h, r - 1) : NULL;
    if (!other) return NULL;
    kn_uop first = ki_t_eq(k, ki_t_iota_axis(k, h, r - 1, KN_I32), ki_t_const(k, KN_I32, 0));
    cos = ki_t_unsqueeze(k, cos, ki_rank(cos) - 1);
    sin = ki_t_unsqueeze(k, sin, ki_rank(sin) - 1);
    sin = sin ? ki_t_where(k, first, ki_t_neg(k, sin), sin) : NULL;
    return ki_t_reshape_to(k, ki_t_add(k, ki_t_mul(k, h, cos), ki_t_mul(k, other, sin)), &s);
}

kn_tensor kn_rotary(kn_tensor t, kn_tensor cos, kn_tensor sin) {
    ENTER("rotary", t, cos, sin);
    kn_uop x = ki_t_float(k, t->u), c = cos->u, s = sin->u;
    if (!x || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (!ki_rank(x) || !ki_rank(c) || !ki_rank(s)) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u), ki_handle(k, NULL);
    int64_t e = ki_dim_n(x, ki_rank(x) - 1), half = ki_dim_n(c, ki_rank(c) - 1);
    if (ki_rank(x) == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), ki_handle(k, NULL);
    if (e != 2 * half || ki_dim_n(s, ki_rank(s) - 1) != half)
        return FAIL(KI_E_ROTARY_SHAPES, (long long)e, (long long)half, (long long)ki_dim_n(s, ki_rank(s) - 1)),
               ki_handle(k, NULL);
    return ki_handle(k, rotary(k, x, c, s));
}

static kn_uop masked(kn_ctx *k, kn_uop x, kn_uop mask, bool causal) {
    if (mask && mask->dtype != KN_BOOL) x = ki_t_add(k, x, mask);
    if (mask && mask->dtype == KN_BOOL) x = ki_t_where(k, mask, x, x ? L(-(double)INFINITY) : NULL);
    if (!causal || !x) return x;
    unsigned r = ki_rank(x);
    kn_dtype t = ki_index_dtype(KN_I32, ki_dim_n(x, r - 1) + ki_dim_n(x, r - 2));
    kn_uop later = ki_t_gt(k, ki_t_iota_axis(k, x, r - 1, t), ki_t_iota_axis(k, x, r - 2, t));
    return ki_t_where(k, later, L(-(double)INFINITY), x);
}

/* Heads are axis -3. Where q has a multiple of the heads of k and v, neighbours among q's share one of theirs: q
 * (.., Hk, g, L, E), the others (.., Hk, 1, .., ..). */
static int64_t heads_a_group(kn_uop q, kn_uop key) {
    unsigned r = ki_rank(q), rk = ki_rank(key);
    if (r < 3 || rk < 3 || q->type->dim[r - 3].sym || key->type->dim[rk - 3].sym) return 1;
    int64_t h = ki_dim_n(q, r - 3), hk = ki_dim_n(key, rk - 3);
    return hk > 1 && h > hk && h % hk == 0 ? h / hk : 1;
}
static kn_uop grouped(kn_ctx *k, kn_uop x, int64_t g) {
    unsigned r = ki_rank(x);
    if (!x || r < 3) return x;
    if (ki_dim_n(x, r - 3) % g || ki_dim_n(x, r - 3) == 1) return ki_t_unsqueeze(k, x, r - 2);
    ki_shape s = ki_shape_like(x);
    s.d[r] = s.d[r - 1], s.d[r - 1] = s.d[r - 2], s.d[r - 2].n = g, s.d[r - 2].sym = NULL, s.d[r - 3].n /= g, s.n++;
    return s.n > KI_MAX_RANK ? FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK) : ki_t_reshape_to(k, x, &s);
}

kn_tensor kn_attention(kn_tensor q, kn_tensor key, kn_tensor v, kn_tensor mask, int causal, double scale) {
    ENTER_("attention", 8, q, key, v, mask);
    if (mask && ki_is_int((kn_dtype)mask->u->dtype))
        return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[mask->u->dtype].name,
                    "a mask of bool (true: attend) or of floats (added)"),
               ki_handle(k, NULL);
    kn_uop x = ki_t_float(k, q->u), b = key->u;
    if (ki_rank(x) < 2 || ki_rank(b) < 2 || ki_rank(v->u) < 2)
        return FAIL(KI_E_RANK_WANTED, k->fn, 2,
                    ki_rank(x) < 2   ? ki_rank(x)
                    : ki_rank(b) < 2 ? ki_rank(b)
                                     : ki_rank(v->u)),
               ki_handle(k, NULL);
    ki_dim eq = x->type->dim[ki_rank(x) - 1], ek = b->type->dim[ki_rank(b) - 1];
    if (eq.n != ek.n || eq.sym != ek.sym) {
        char sq[128], sk[128];
        return FAIL(KI_E_ATTENTION_SHAPES, ki_shape_text(x->type, sq, sizeof sq),
                    ki_shape_text(b->type, sk, sizeof sk)),
               ki_handle(k, NULL);
    }
    if (scale == 0) scale = 1 / sqrt((double)ki_dim_n(x, ki_rank(x) - 1));
    int64_t g = heads_a_group(x, b);
    kn_uop c = v->u, m = mask ? mask->u : NULL;
    if (g > 1) {
        x = grouped(k, x, g), b = ki_t_unsqueeze(k, b, ki_rank(b) - 2), m = m ? grouped(k, m, g) : NULL;
        c = ki_rank(c) < 3 ? c : ki_t_unsqueeze(k, c, ki_rank(c) - 2);
        if (!x || !b || !c || (mask && !m)) return ki_handle(k, NULL);
    }
    kn_uop s = ki_t_matmul(k, ki_t_mul(k, x, L(scale)), ki_t_swap(k, b, ki_rank(b) - 2, ki_rank(b) - 1));
    s = masked(k, s, m, causal);
    kn_uop y = s ? ki_t_matmul(k, ki_t_softmax(k, s, ki_rank(s) - 1), c) : NULL;
    if (g == 1 || !y) return ki_handle(k, y);
    ki_shape heads = ki_shape_like(y);
    unsigned r = heads.n--;
    heads.d[r - 4].n *= g, heads.d[r - 3] = heads.d[r - 2], heads.d[r - 2] = heads.d[r - 1];
    return ki_handle(k, ki_t_reshape_to(k, y, &heads));
}
