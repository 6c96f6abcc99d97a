/* prefix.c: running sums across lanes, Σ_m where(m < l + 1, x(m), -0.0) with m and l as many lanes (SCAN makes them): in log steps,
 *
 *   t = x along l;  for d = 1, 2, 4, ...:  t(l) = where(l % 2d < d, t(l), t(l) + t(l / 2d * 2d + d - 1))
 *
 * (Sklansky: the upper half of each block takes what the lower one comes to. All of a half take the same lane, so that a step moves nothing from one
 * register to another but, of several, a whole sum.)
 *
 * What it is added to, an element of a REG BUFFER of as many lanes (the last one: the last step's sum), is taken in a register. */
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
    *p = (ki_prefix){.reduce = u, .term = x, .m = m, .l = l};
    return ki_is_lane(l) && l != m && ki_extent(l) == ki_extent(m) && ki_scope_has(s, x, m) && !ki_scope_has(s, x, l);
}

/* An element of a REG BUFFER that has as many as the running sum. */
static bool is_carried(const ki_ex *x, kn_uop u, const ki_prefix *p) {
    if (u->op != KN_INDEX || u->nsrc != 2 || !ki_is_const(u->src[1]) || u->src[0]->op != KN_AFTER) return false;
    uint32_t home = x->home[x->scope.at[u->id]];
    kn_uop b = x->scope.node[home];
    return b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_REG && b->arg.buffer->size == ki_extent(p->l) &&
           b->arg.buffer->size <= KI_MOST_PREFIX && !x->own[home];
}

/* What a running sum is added to, where nothing else reads it. */
static void find_carried(const ki_ex *x, ki_prefix *p) {
    const ki_scope *s = &x->scope;
    uint32_t readers = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        for (uint32_t k = 0; u->op == KN_ADD && k < 2; k++)
            if (u->src[k] == p->reduce && is_carried(x, u->src[1 - k], p)) p->from = u->src[1 - k];
    }
    for (uint32_t i = 0; p->from && i < s->n; i++)
        for (uint32_t k = 0; k < s->node[i]->nsrc; k++) readers += s->node[i]->src[k] == p->from;
    if (readers != 1) p->from = NULL;
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
    for (uint32_t i = 0; i < x->nprefix; i++) find_carried(x, x->prefix + i);
    return true;
}

/* t at n other lanes of axis k: of each block of so many all from its lane `at` (of a last one that has none, nobody reads them). */
static kn_uop lanes_at(ki_ex *x, kn_uop t, unsigned k, int64_t n, int64_t block, int64_t at) {
    kn_uop src[KI_MAX_RANK + 1] = {t}, list[KI_MOST_PREFIX];
    for (unsigned a = 0; a <= k; a++) {
        int64_t dim = a < k ? ki_dim_n(t, a) : n;
        for (int64_t i = 0; i < dim; i++) {
            int64_t from = a < k ? i : i / block * block + at;
            list[i] = ki_index(x->ir, from < dim ? from : dim - 1);
        }
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
        kn_uop sum = ki_op2(ir, KN_ADD, t, lanes_at(x, t, l, n, 2 * d, d - 1));
        kn_uop lower = ki_op2(ir, KN_CMPLT, ki_op2(ir, KN_MOD, lane, ki_index(ir, 2 * d)), ki_index(ir, d));
        t = ki_op3(ir, KN_WHERE, lower, t, sum);
    }
    return t;
}

kn_uop ki_prefix_lanes(ki_ex *x, kn_uop u) {
    for (uint32_t i = 0; i < x->nprefix; i++) {
        kn_uop t = x->prefix[i].reduce == u ? all_lanes(x, &x->prefix[i]) : NULL;
        if (t) return ki_lane_squeeze(x->ir, t);
    }
    return NULL;
}

const ki_prefix *ki_prefix_from(const ki_ex *x, kn_uop u) {
    for (uint32_t i = 0; i < x->nprefix; i++)
        if (x->prefix[i].from == u) return &x->prefix[i];
    return NULL;
}

kn_uop ki_prefix_spread(ki_ex *x, const ki_prefix *p, kn_uop all) {
    return all ? lanes_at(x, all, x->axis[ki_scope_rank(&x->scope, p->l)], ki_extent(p->l), ki_extent(p->l),
                          p->from->src[1]->arg.i)
               : NULL;
}
