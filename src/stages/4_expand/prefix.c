/* prefix.c: running sums across lanes, Σ_m where(m < l + 1, x(m), -0.0) with m and l as many lanes (SCAN makes them): in log steps,
 *
 *   t = x along l;  for d = 1, 2, 4, ...:  t(l) = where(l < d, t(l), t(l) + t(l - d))
 *
 * and Σ_m x(m) beside one is its last lane, so that what is carried is what was stored. */
#include "stages/4_expand/lanes.h"

#include "ir/scalar.h"

enum { LEAST_BYTES = 4 }; /* of an element: narrower ones do not move lane by lane */

static bool is_none(kn_uop u) {
    bool is_float = ki_is_float((kn_dtype)u->dtype);
    return ki_is_const(u) && u->arg.bits == ki_scalar_identity(KN_ADD, (kn_dtype)u->dtype, is_float);
}

static bool is_lane_sum(kn_uop u) {
    return u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD && u->nsrc == 2 && ki_is_lane(u->src[1]);
}

static bool is_prefix(const ki_scope *s, kn_uop u, ki_prefix *p) {
    if (!is_lane_sum(u) || u->src[0]->op != KN_WHERE || u->dtype == KN_IDX) return false;
    kn_uop m = u->src[1], c = u->src[0]->src[0], x = u->src[0]->src[1], l;
    if (ki_itemsize((kn_dtype)u->dtype) < LEAST_BYTES || !is_none(u->src[0]->src[2])) return false;
    if (c->op != KN_CMPLT || c->src[0] != m || c->src[1]->op != KN_ADD || !ki_is_const_int(c->src[1]->src[1], 1))
        return false;
    l = c->src[1]->src[0];
    *p = (ki_prefix){u, x, m, l};
    return ki_is_lane(l) && l != m && ki_extent(l) == ki_extent(m) && ki_scope_has(s, x, m) && !ki_scope_has(s, x, l);
}

bool ki_find_prefixes(ki_ex *x) {
    ki_prefix p;
    for (uint32_t i = 0; i < x->scope.n; i++) {
        if (!is_prefix(&x->scope, x->scope.node[i], &p)) continue;
        ki_prefix *more = ki_realloc(x->prefix, x->nprefix + 1, sizeof *more);
        if (!more) return ki_fail(x->ir->env, KI_E_NOMEM), false;
        x->prefix = more;
        x->prefix[x->nprefix++] = p;
    }
    return true;
}

/* t at other lanes of axis k: lane i from max(i - by, 0), of n; n is 0: at lane `by` alone. */
static kn_uop lanes_at(ki_ex *x, kn_uop t, unsigned k, int64_t n, int64_t by) {
    kn_uop src[KI_MAX_RANK + 1] = {t}, list[KI_MOST_PREFIX];
    for (unsigned a = 0; a <= k; a++) {
        int64_t dim = a < k ? ki_dim_n(t, a) : n ? n : 1, back = a < k ? 0 : by;
        for (int64_t i = 0; i < dim; i++) list[i] = ki_index(x->ir, n || a < k ? (i < back ? 0 : i - back) : by);
        src[a + 1] = ki_opn(x->ir, KN_STACK, list, (uint32_t)dim);
    }
    return ki_opn(x->ir, KN_INDEX, src, k + 2);
}

/* All of p's lanes; NULL without an error: x is not as it must be. */
static kn_uop all_lanes(ki_ex *x, const ki_prefix *p) {
    ki_ir *ir = x->ir;
    unsigned m = x->axis[ki_scope_rank(&x->scope, p->m)], l = x->axis[ki_scope_rank(&x->scope, p->l)];
    int64_t n = ki_extent(p->l), order[KI_MAX_RANK], dim[KI_MAX_RANK], coef[KI_MAX_RANK] = {0};
    kn_uop t = ki_ex_val(x, p->term);
    if (ki_rank(t) != x->nlane || ki_dim_n(t, m) != n || ki_dim_n(t, l) != 1 || n > KI_MOST_PREFIX) return NULL;
    for (unsigned k = 0; k < x->nlane; k++) {
        order[k] = k == l ? m : k == m ? l : k;
        dim[k] = k == l ? n : 1;
        if (ki_dim_n(t, k) > KI_MOST_PREFIX) return NULL;
    }
    coef[l] = 1;
    t = ki_permute(ir, t, order, x->nlane);
    kn_uop lane = ki_lane_steps(x, NULL, coef, dim);
    for (int64_t d = 1; d < n && t && lane; d *= 2) {
        kn_uop sum = ki_op2(ir, KN_ADD, t, lanes_at(x, t, l, n, d));
        t = ki_op3(ir, KN_WHERE, ki_op2(ir, KN_CMPLT, lane, ki_index(ir, d)), t, sum);
    }
    return t;
}

kn_uop ki_prefix_lanes(ki_ex *x, kn_uop u) {
    if (!is_lane_sum(u)) return NULL;
    for (uint32_t i = 0; i < x->nprefix; i++) {
        const ki_prefix *p = &x->prefix[i];
        bool last = p->term == u->src[0] && p->m == u->src[1];
        kn_uop t = p->reduce == u || last ? all_lanes(x, p) : NULL;
        if (t && last) t = lanes_at(x, t, x->axis[ki_scope_rank(&x->scope, p->l)], 0, ki_extent(p->l) - 1);
        if (t) return ki_lane_squeeze(x->ir, t);
    }
    return NULL;
}
