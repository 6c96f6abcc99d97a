/* fold.c: host functions of fold.kr: solving a condition for a loop's range. */
#include "stages/2_rangeify/fold.h"

#include "rules/given.h"
#include "stages/indexing.h"

#include <string.h>

static bool truth(ki_val *out, bool v) {
    out->kind = KI_V_BOOL;
    out->i = v;
    return true;
}
bool ki_fold_has_unused(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    kn_uop x = arg[0].node;
    if (m->root->arg.reduce.op != KN_MAX && ki_is_float((kn_dtype)x->dtype)) return truth(out, false);
    if (m->root->arg.reduce.op == KN_MUL) return truth(out, false);
    for (uint32_t k = 0; k < arg[1].n; k++)
        if (!ki_depends(m->ir, x, arg[1].nodes[k])) return truth(out, true);
    return truth(out, false);
}
bool ki_fold_uses_all(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    for (uint32_t k = 0; k < arg[1].n; k++)
        if (!ki_depends(m->ir, arg[0].node, arg[1].nodes[k])) return truth(out, false);
    return truth(out, true);
}
bool ki_fold_is_zero(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)m;
    (void)n;
    kn_uop z = arg[0].node;
    return truth(out, z->op == KN_CONST && ki_const_f64(z) == 0);
}

/* The REDUCE of m over its ranges without range number `drop` (0: keep all), of another body. */
static kn_uop without(ki_match *m, kn_uop body, uint32_t drop) {
    kn_uop s[KI_MAX_RANK * 4];
    uint32_t n = 1;
    if (m->root->nsrc > KI_MAX_RANK * 4) return NULL;
    s[0] = body;
    for (uint32_t k = 1; k < m->root->nsrc; k++)
        if (k != drop) s[n++] = m->root->src[k];
    return n == 1 ? body : ki_with_srcs(m->ir, m->root, s, n);
}

kn_uop ki_fold_unused(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop x = m->root->src[0];
    for (uint32_t k = 1; k < m->root->nsrc; k++) {
        kn_uop r = m->root->src[k];
        if (ki_depends(ir, x, r)) continue;
        if (m->root->arg.reduce.op == KN_ADD && x->dtype != KN_BOOL)
            x = ki_op2(ir, KN_MUL, x, ki_cast(ir, r->src[0], (kn_dtype)x->dtype));
        return x ? without(m, x, k) : NULL;
    }
    return NULL;
}

/* ---- linear forms ------------------------------------------------------------------------------------------- */

/* e as coef·r + rest, rest of dtype index; exact as mathematical integers. */
typedef struct linear {
    int64_t coef;
    kn_uop rest;
    bool ok;
} linear;

/* What data says may be the smallest i64, whose negation is no i64: below -1 it becomes -1. No range is negative. */
static kn_uop no_range_below(ki_ir *ir, kn_uop v) {
    return v && v->lo.i == INT64_MIN ? ki_op2(ir, KN_MAX, v, ki_index(ir, -1)) : v;
}

/* No wrap: the bounds are the exact ones. */
static bool exact_sum(kn_uop u) {
    int64_t lo, hi;
    if (u->dtype == KN_IDX) return true;
    return !ki_add_overflow(u->src[0]->lo.i, u->src[1]->lo.i, &lo) &&
           !ki_add_overflow(u->src[0]->hi.i, u->src[1]->hi.i, &hi) && lo == u->lo.i && hi == u->hi.i;
}

/* The forms of what e is made of, beside its nodes in order of id: the store may be large, e is small. */
typedef struct forms {
    kn_uop *node;
    linear *l;
    size_t n;
} forms;

static const linear *form_of(const forms *f, kn_uop u) { return &f->l[ki_place_of(f->node, f->n, u)]; }

static linear step(ki_ir *ir, kn_uop u, kn_uop r, const forms *f) {
    const linear no = {0, NULL, false};
    if (u == r) return (linear){1, ki_index(ir, 0), true};
    bool has = false;
    for (uint32_t k = 0; k < u->nsrc && !has; k++) {
        const linear *s = form_of(f, u->src[k]);
        has = !s->ok || s->coef;
    }
    if (!ki_is_int((kn_dtype)u->dtype)) return has ? no : (linear){0, NULL, true};
    if (!has) return (linear){0, ki_cast(ir, u, KN_IDX), true};
    const linear *a = form_of(f, u->src[0]), *b = u->nsrc > 1 ? form_of(f, u->src[1]) : a;
    if (!a->ok || !b->ok || !a->rest || !b->rest) return no;
    linear s = {0, NULL, true};
    switch ((kn_op)u->op) {
    case KN_CAST:
        if (u->lo.i != u->src[0]->lo.i || u->hi.i != u->src[0]->hi.i) return no;
        return *a;
    case KN_ADD:
        if (!exact_sum(u) || ki_add_overflow(a->coef, b->coef, &s.coef)) return no;
        s.rest = ki_index_add(ir, a->rest, b->rest);
        break;
    case KN_SUB:
        if (u->dtype != KN_IDX || ki_sub_overflow(a->coef, b->coef, &s.coef)) return no;
        s.rest = ki_index_add(ir, a->rest, ki_index_mul(ir, b->rest, ki_index(ir, -1)));
        break;
    case KN_MUL: {
        const linear *c = b->coef ? a : b, *x = b->coef ? b : a;
        if (u->dtype != KN_IDX || c->coef || c->rest->op != KN_CONST ||
            ki_mul_overflow(x->coef, c->rest->arg.i, &s.coef))
            return no;
        s.rest = ki_index_mul(ir, x->rest, c->rest);
        break;
    }
    default: return no;
    }
    s.ok = s.rest != NULL;
    return s;
}

static linear linear_in(ki_ir *ir, kn_uop e, kn_uop r) {
    forms f = {0};
    linear out = {0, NULL, false};
    int64_t n = ki_toposort(ir, &e, 1, &f.node);
    if (n > 0) f.n = (size_t)n, f.l = ki_malloc(f.n * sizeof *f.l);
    for (size_t i = 0; i < f.n && f.l; i++) f.l[i] = step(ir, f.node[i], r, &f);
    if (f.l) out = f.l[f.n - 1];
    ki_free(f.node);
    ki_free(f.l);
    return out;
}

/* ---- conditions --------------------------------------------------------------------------------------------- */

static kn_uop neg(ki_ir *ir, kn_uop a) { return ki_index_mul(ir, a, ki_index(ir, -1)); }

/* c·r + d < 0, or with `not` >= 0, where c != 0: r < -d/c or r >= it, rounded up, or r > d/|c| or r <= it. */
static void bound(ki_ir *ir, int64_t c, kn_uop d, bool not, ki_solved *s) {
    kn_uop up = c < 0 ? d : ki_index_add(ir, neg(ir, d), ki_index(ir, c - 1));
    if (c != 1 && c != -1) up = ki_op2(ir, KN_IDIV, up, ki_index(ir, c < 0 ? -c : c));
    if (c < 0) up = ki_index_add(ir, up, ki_index(ir, 1));
    bool least = (c > 0) == not ;
    kn_uop *b = least ? &s->lower : &s->upper;
    *b = ki_index_extreme(ir, *b, up, least ? 1 : -1);
}

static void solve_one(ki_ir *ir, kn_uop c, kn_uop r, ki_solved *s) {
    if (!ki_depends(ir, c, r)) {
        s->rest = ki_and(ir, s->rest, c);
        return;
    }
    bool not = false;
    kn_uop u = c;
    while (u->op == KN_NOT) u = u->src[0], not = !not ;
    kn_op op = (kn_op)u->op;
    s->other = true;
    if (u->nsrc != 2 || !ki_is_int((kn_dtype)u->src[0]->dtype)) return;
    linear a = linear_in(ir, u->src[0], r), b = linear_in(ir, u->src[1], r);
    int64_t k;
    if (!a.ok || !b.ok || ki_sub_overflow(a.coef, b.coef, &k) || k == 0) return;
    kn_uop d = ki_index_add(ir, a.rest, neg(ir, b.rest)); /* k·r + d compared with 0 */
    if (!d) return;
    if (op == KN_CMPGT || op == KN_CMPLE) k = -k, d = neg(ir, d), op = op == KN_CMPGT ? KN_CMPLT : KN_CMPGE;
    if (op == KN_CMPGE) op = KN_CMPLT, not = !not ;
    if (op == KN_CMPNE) op = KN_CMPEQ, not = !not ;
    if (op == KN_CMPLT) {
        bound(ir, k, d, not, s);
        s->other = false;
    } else if (op == KN_CMPEQ && !not &&(k == 1 || k == -1) && !s->equal) {
        s->equal = k == 1 ? neg(ir, d) : d;
        s->other = false;
    }
}

bool ki_solve(ki_ir *ir, kn_uop cond, kn_uop r, ki_solved *s) {
    kn_uop part[KI_MAX_TERMS];
    unsigned n = ki_conjuncts(cond, part);
    *s = (ki_solved){.other = n == 0};
    for (unsigned k = 0; k < n && !s->other; k++) solve_one(ir, part[k], r, s);
    s->equal = no_range_below(ir, s->equal);
    return !s->other;
}

kn_uop ki_solved_in(ki_ir *ir, const ki_solved *s, kn_uop r) {
    kn_uop lower = ki_index_extreme(ir, ki_index(ir, 0), s->lower, 1),
           upper = ki_index_extreme(ir, r->src[0], s->upper, -1);
    kn_uop above = ki_op1(ir, KN_NOT, ki_op2(ir, KN_CMPLT, s->equal, lower));
    return ki_op2(ir, KN_AND, above, ki_op2(ir, KN_CMPLT, s->equal, upper));
}

kn_uop ki_fold_count(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop w = m->root->src[0], c = w->src[0], x = w->src[1], z = w->src[2];
    if (!ki_is_int((kn_dtype)x->dtype)) return NULL;
    for (uint32_t k = 1; k < m->root->nsrc; k++) {
        kn_uop r = m->root->src[k];
        ki_solved s;
        if (ki_depends(ir, x, r) || !ki_depends(ir, c, r) || !ki_solve(ir, c, r, &s) || s.equal) continue;
        kn_uop zero = ki_index(ir, 0), lower = ki_index_extreme(ir, zero, s.lower, 1),
               upper = ki_index_extreme(ir, r->src[0], s.upper, -1);
        kn_uop n = ki_op2(ir, KN_MAX, ki_index_add(ir, upper, neg(ir, lower)), zero);
        kn_uop sum = n ? ki_op2(ir, KN_MUL, x, ki_cast(ir, n, (kn_dtype)x->dtype)) : NULL;
        if (sum && s.rest) sum = ki_op3(ir, KN_WHERE, s.rest, sum, z);
        return sum ? without(m, sum, k) : NULL;
    }
    return NULL;
}

kn_uop ki_fold_one_hot(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop w = m->root->src[0], c = w->src[0], x = w->src[1], z = w->src[2];
    for (uint32_t k = 1; k < m->root->nsrc; k++) {
        kn_uop r = m->root->src[k];
        ki_solved s;
        if (!ki_depends(ir, c, r) || !ki_solve(ir, c, r, &s) || !s.equal) continue;
        kn_uop v = s.equal, in = ki_solved_in(ir, &s, r);
        kn_uop valid = ki_and(ir, s.rest, in), at = ki_element_uop(ir, (ki_element){v, in});
        kn_uop picked = valid && at ? ki_substitute(ir, x, &r, &at, 1) : NULL;
        /* Other terms are z: -0.0 changes nothing, +0.0 turns a picked -0.0 into +0.0. */
        if (picked && ki_is_float((kn_dtype)x->dtype) && r->hi.i > 0 && z->arg.bits == 0)
            picked = ki_op2(ir, KN_ADD, picked, z);
        kn_uop body = picked ? ki_op3(ir, KN_WHERE, valid, picked, z) : NULL;
        return body ? without(m, body, k) : NULL;
    }
    return NULL;
}

/* A part r < k of the condition, k below the extent of r: the other terms are zeros. Where those are +0.0 and take part in
 * the sign of a zero sum, one is added back. */
kn_uop ki_fold_shorter(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop w = m->root->src[0], c = w->src[0], z = w->src[2], part[KI_MAX_TERMS];
    for (unsigned n = ki_conjuncts(c, part); n-- > 0;) {
        kn_uop p = part[n];
        if (p->op != KN_CMPLT || p->src[0]->op != KN_RANGE || p->src[1]->op != KN_CONST) continue;
        kn_uop r = p->src[0], k = p->src[1];
        uint32_t at = 1;
        while (at < m->root->nsrc && m->root->src[at] != r) at++;
        if (at == m->root->nsrc || k->arg.i <= 0 || k->arg.i > r->hi.i) continue;
        kn_uop shorter = ki_range_make(ir, ir->next_range, (kn_axis)r->arg.range.axis, k);
        kn_uop sum = shorter ? ki_substitute(ir, m->root, &r, &shorter, 1) : NULL;
        if (sum && ki_is_float((kn_dtype)z->dtype) && z->arg.bits == 0) sum = ki_op2(ir, KN_ADD, sum, z);
        return sum;
    }
    return NULL;
}
