/* affine.c: sums over index terms. See affine.h. Forms are immutable and live in the arena of their
 * ki_affines. */
#include "stages/affine.h"

#include "base/whole.h"

static ki_affine *fresh(ki_affines *a, uint32_t cap) {
    ki_affine *f = ki_arena_alloc(&a->arena, sizeof *f + cap * sizeof *f->t);
    if (!f) return ki_fail(a->ir->env, KI_E_NOMEM), NULL;
    f->k = 0, f->n = 0;
    return f;
}

const ki_affine *ki_affine_leaf(ki_affines *a, kn_uop x) {
    ki_affine *f = x ? fresh(a, 1) : NULL;
    if (!f) return NULL;
    if (x->op == KN_CONST) f->k = x->arg.i;
    else f->t[f->n++] = (ki_affine_term){x, 1};
    return f;
}

const ki_affine *ki_affine_add(ki_affines *a, const ki_affine *f, const ki_affine *g, int64_t s) {
    ki_affine *h = f && g ? fresh(a, f->n + g->n) : NULL;
    int64_t c;
    if (!h || ki_mul_overflow(g->k, s, &c) || ki_add_overflow(f->k, c, &h->k)) return NULL;
    for (uint32_t i = 0, j = 0; i < f->n || j < g->n;) {
        if (j == g->n || (i < f->n && f->t[i].x->id < g->t[j].x->id)) {
            h->t[h->n++] = f->t[i++];
            continue;
        }
        if (ki_mul_overflow(g->t[j].c, s, &c)) return NULL;
        kn_uop x = g->t[j++].x;
        if (i < f->n && f->t[i].x == x && ki_add_overflow(f->t[i++].c, c, &c)) return NULL;
        if (c) h->t[h->n++] = (ki_affine_term){x, c};
    }
    return h;
}

/* Exact in 128 bits; a term without bounds, or an end outside int64, counts as unbounded. */
bool ki_affine_bounds(const ki_affine *f, int64_t *lo, int64_t *hi) {
    ki_int128 l = f->k, h = f->k;
    for (uint32_t i = 0; i < f->n; i++) {
        int64_t xl = f->t[i].x->lo.i, xh = f->t[i].x->hi.i, c = f->t[i].c;
        if (xl == INT64_MIN || xh == INT64_MAX) return false;
        l += (ki_int128)c * (c > 0 ? xl : xh);
        h += (ki_int128)c * (c > 0 ? xh : xl);
    }
    if (l < INT64_MIN || h > INT64_MAX) return false;
    *lo = (int64_t)l;
    *hi = (int64_t)h;
    return true;
}

/* Larger strides first, then ids, so that equal addresses read alike; k last. */
kn_uop ki_affine_node(ki_affines *a, const ki_affine *f) {
    ki_ir *ir = a->ir;
    kn_uop sum = NULL;
    bool failed = false;
    for (uint32_t i = 0; i < f->n && !failed; i++) {
        kn_uop x = f->t[i].x;
        if (f->t[i].c != 1) x = ki_op2(ir, KN_MUL, x, ki_index(ir, f->t[i].c));
        sum = sum ? ki_op2(ir, KN_ADD, sum, x) : x;
        failed = !sum;
    }
    if (failed) return NULL;
    if (!sum) return ki_index(ir, f->k);
    return f->k ? ki_op2(ir, KN_ADD, sum, ki_index(ir, f->k)) : sum;
}

/* The part of f whose coefficients m divides (or, `others`, does not), with k = 0. */
static ki_affine *part(ki_affines *a, const ki_affine *f, int64_t m, bool others) {
    ki_affine *p = fresh(a, f->n);
    for (uint32_t i = 0; p && i < f->n; i++)
        if ((f->t[i].c % m != 0) == others) p->t[p->n++] = f->t[i];
    return p;
}

/* f by the constant c > 0: f = c * whole + rest, rest = high + low, 0 <= low < g, g divides c and high.
 * Then f / c = whole + high / c and f mod c = high mod c + low; high vanishes when 0 <= rest < c. */
static const ki_affine *divmod(ki_affines *a, const ki_affine *f, int64_t c, bool mod) {
    ki_affine *whole = part(a, f, c, false), *rest = part(a, f, c, true);
    int64_t lo, hi;
    if (!whole || !rest) return NULL;
    for (uint32_t i = 0; i < whole->n; i++) whole->t[i].c /= c;
    whole->k = ki_floor_div(f->k, c);
    rest->k = f->k - whole->k * c;
    if (ki_affine_bounds(rest, &lo, &hi) && lo >= 0 && hi < c) return mod ? rest : whole;
    /* Try each divisor g of c that some coefficients share, the largest first: g is the gcd of c and the
     * coefficients not below it. */
    ki_affine *low = NULL, *high = NULL;
    int64_t g = c;
    for (uint32_t i = 0; i < rest->n; i++) {
        int64_t m = ki_gcd(rest->t[i].c, c);
        if (m <= 1) continue;
        ki_affine *l = part(a, rest, m, true), *h = part(a, rest, m, false);
        if (!l || !h) return NULL;
        l->k = rest->k % m;
        h->k = rest->k - l->k;
        if (ki_affine_bounds(l, &lo, &hi) && lo >= 0 && hi < m && (!low || m < g)) low = l, high = h, g = m;
    }
    if (!low || (low->n == 0 && whole->n == 0)) return NULL;
    kn_uop n = a->node ? a->node(a->user, high) : ki_affine_node(a, high);
    kn_uop q = ki_op2(a->ir, mod ? KN_MOD : KN_IDIV, n, ki_index(a->ir, c));
    const ki_affine *leaf = q ? ki_affine_leaf(a, q) : NULL;
    return leaf ? ki_affine_add(a, mod ? low : whole, leaf, 1) : NULL;
}

const ki_affine *ki_affine_of(ki_affines *a, kn_uop u, const ki_affine *const *src) {
    const ki_affine *zero;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!src[k]) return NULL;
    switch ((kn_op)u->op) {
    case KN_CONST: return ki_affine_leaf(a, u);
    case KN_ADD: return ki_affine_add(a, src[0], src[1], 1);
    case KN_SUB: return ki_affine_add(a, src[0], src[1], -1);
    case KN_NEG: return (zero = fresh(a, 0)) ? ki_affine_add(a, zero, src[0], -1) : NULL;
    case KN_MUL: {
        uint32_t c = src[1]->n == 0;
        if (!c && src[0]->n) return NULL;
        return (zero = fresh(a, 0)) ? ki_affine_add(a, zero, src[!c], src[c]->k) : NULL;
    }
    case KN_IDIV: return src[1]->n == 0 && src[1]->k > 0 ? divmod(a, src[0], src[1]->k, false) : NULL;
    case KN_MOD: return src[1]->n == 0 && src[1]->k > 0 ? divmod(a, src[0], src[1]->k, true) : NULL;
    default: return NULL;
    }
}

const ki_affine **ki_affine_all(ki_affines *a, const kn_uop *node, uint32_t n, const uint32_t *at) {
    const ki_affine **form = ki_calloc(n + 1, sizeof *form), *src[3];
    for (uint32_t i = 0; form && i < n; i++) {
        kn_uop u = node[i];
        if (u->dtype != KN_IDX || u->type->rank || u->op == KN_INVALID) continue;
        if (ki_is_elementwise((kn_op)u->op)) {
            for (uint32_t k = 0; k < u->nsrc; k++) src[k] = form[at[u->src[k]->id]];
            form[i] = ki_affine_of(a, u, src);
        }
        if (!form[i]) form[i] = ki_affine_leaf(a, u);
    }
    return form;
}
