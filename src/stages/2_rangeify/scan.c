/* scan.c: sums over all that came before, carried along instead of summed anew (DESIGN 12.8); products and maxima too.
 *
 * In a nest over (o..., i), a REDUCE over r of the terms f(j) with j <= i (of the rest the op's identity), where j is r itself or i + r - (n - 1) (how
 * windows of a padded value read), becomes an accumulator in a register: set before the loop over i, which is made the
 * innermost, and grown by f(i) in each step. Only sums whose other conditions know neither i nor r. */
#include "stages/2_rangeify/fold.h"
#include "stages/indexing.h"
#include "stages/2_rangeify/rangeify.h"

#include "ir/scalar.h"
#include "rules/given.h"

#include <string.h>

typedef struct scan {
    kn_uop reduce, r, i, term; /* term: f(i) */
    kn_uop skipped;            /* value of the terms j > i: the op's identity, of sums a zero of either sign */
    kn_uop none;               /* the op's identity */
} scan;

static bool is_skipped(const scan *s, kn_op op, kn_uop c) {
    return c->op == KN_CONST && (op == KN_ADD ? ki_const_f64(c) == 0 : c == s->none);
}

/* One part of the condition: 0 it knows neither, 1 it says j <= i (and shape tells which j), -1 something else. */
static int read_part(ki_ir *ir, kn_uop p, kn_uop i, kn_uop r, int *shape) {
    ki_linear l;
    if (!ki_depends(ir, p, i) && !ki_depends(ir, p, r)) return 0;
    if (p->op != KN_CMPLT || p->src[0]->dtype != KN_IDX || p->src[1]->op != KN_CONST || !ki_linear_of(p->src[0], &l) ||
        l.n != 2)
        return -1;
    unsigned a = l.term[0] == r ? 0 : 1;
    if (l.term[a] != r || l.term[1 - a] != i) return -1;
    int64_t k = p->src[1]->arg.i - l.k, n = r->hi.i + 1;
    if (l.coef[a] == 1 && l.coef[1 - a] == -1 && k == 1 && n >= i->hi.i + 1) return *shape = 0, 1;
    if (l.coef[a] == -1 && l.coef[1 - a] == -1 && k == 2 - n && n >= i->hi.i + 1) return *shape = 1, 1;
    return -1;
}

/* Does REDUCE u carry over range i? */
static bool find(ki_ir *ir, kn_uop u, kn_uop i, scan *s) {
    kn_uop b = u->src[0], r = u->src[1], x, c, rest = NULL, part[KI_MAX_TERMS];
    unsigned n = 0;
    int shape = -1;
    bool element = b->op == KN_INDEX;
    if (u->nsrc != 2 || r->op != KN_RANGE || r->src[0]->op != KN_CONST || i->src[0]->op != KN_CONST) return false;
    kn_dtype t = (kn_dtype)u->dtype;
    kn_op op = (kn_op)u->arg.reduce.op;
    s->none = ki_const_bits(ir, t, ki_scalar_identity(op, t, ki_is_float(t)));
    if (b->op == KN_WHERE && is_skipped(s, op, b->src[2])) {
        c = b->src[0];
        x = b->src[1];
        s->skipped = b->src[2];
    } else if (element && b->nsrc == 2 && b->src[1]->op == KN_WHERE && b->src[1]->src[2]->op == KN_INVALID &&
               (op == KN_ADD || s->none->arg.bits == 0)) { /* it reads 0 */
        c = b->src[1]->src[0];
        x = ki_op2(ir, KN_INDEX, b->src[0], b->src[1]->src[1]);
        s->skipped = ki_const_int(ir, (kn_dtype)b->dtype, 0);
    } else {
        return false;
    }
    if (!(n = ki_conjuncts(c, part))) return false;
    while (n) {
        kn_uop p = part[--n];
        int kind = read_part(ir, p, i, r, &shape);
        if (kind < 0) return false;
        if (kind == 0) rest = ki_and(ir, rest, p);
    }
    if (shape < 0 || !x) return false;
    /* f of a fresh j; it must not know i any more. */
    kn_uop j = ki_range_make(ir, ir->next_range, KN_AX_LOOP, i->src[0]), at = j;
    if (shape == 1)
        at = ki_index_add(ir, ki_index_add(ir, j, ki_index_mul(ir, i, ki_index(ir, -1))), ki_index(ir, r->hi.i));
    kn_uop f = at ? ki_substitute(ir, x, &r, &at, 1) : NULL;
    if (f) f = ki_range_fold(ir, f, 0);
    if (!f || ki_depends(ir, f, i) || ki_depends(ir, f, r)) return false;
    f = ki_substitute(ir, f, &j, &i, 1);
    if (f && rest && !element) f = ki_op3(ir, KN_WHERE, rest, f, s->skipped);
    else if (f && rest) { /* an element read under a condition is not read where the condition fails */
        if (f->op != KN_INDEX || f->nsrc != 2) return false;
        ki_element e = ki_element_of(f->src[1]);
        e.valid = ki_and(ir, rest, e.valid);
        f = ki_op2(ir, KN_INDEX, f->src[0], ki_element_uop(ir, e));
    }
    *s = (scan){u, r, i, f, s->skipped, s->none};
    return f && s->skipped;
}

/* The accumulator's value in iteration i, with the loops o open. */
static kn_uop carry(ki_ir *ir, const scan *s, const kn_uop *o, uint32_t n) {
    kn_uop src[KI_MAX_RANK + 3], zero = ki_index(ir, 0), u = s->reduce;
    kn_uop acc = ki_buffer_make(ir, ir->next_buffer, 1, (kn_dtype)u->dtype, KN_REG, 0);
    src[0] = acc;
    if (n) memcpy(src + 1, o, n * sizeof *o);
    kn_uop home = n ? ki_opn(ir, KN_AFTER, src, n + 1) : acc;
    kn_uop set = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, home, zero), s->none);
    kn_uop at = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, acc, set, s->i), zero);
    kn_uop grown = ki_op2(ir, KN_STORE, at, ki_op2(ir, (kn_op)u->arg.reduce.op, at, s->term));
    kn_uop sum = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, acc, grown), zero);
    if (u->arg.reduce.op != KN_ADD || !ki_is_float((kn_dtype)u->dtype) || !s->skipped || s->skipped->arg.bits)
        return sum;
    /* One +0.0 among the terms left out makes a sum of nothing but -0.0 a +0.0; the last iterations may leave out none. */
    kn_uop some = ki_op2(ir, KN_ADD, sum, s->skipped);
    if (s->i->hi.i < s->r->hi.i) return some;
    return ki_op3(ir, KN_WHERE, ki_op2(ir, KN_CMPLT, s->i, ki_index(ir, s->r->hi.i)), some, sum);
}

/* Every range that u knows and does not bind is one of e's loops: no other REDUCE is around it. */
static bool only_under(ki_ir *ir, kn_uop u, kn_uop e) {
    kn_uop *order;
    int64_t n = ki_toposort(ir, &u, 1, &order);
    bool ok = n >= 0;
    for (int64_t i = 0; i < n && ok; i++) {
        kn_uop r = order[i];
        if (r->op != KN_RANGE) continue;
        ok = false;
        for (uint32_t k = 1; k < e->nsrc; k++) ok |= e->src[k] == r;
        for (int64_t j = i; j < n && !ok; j++)
            for (uint32_t k = 1; order[j]->op == KN_REDUCE && k < order[j]->nsrc; k++) ok |= order[j]->src[k] == r;
    }
    if (n >= 0) ki_free(order);
    return ok;
}

/* END e with the sum carried; i innermost. */
static kn_uop rebuild(ki_ir *ir, kn_uop e, const scan *s) {
    kn_uop src[KI_MAX_RANK + 2], o[KI_MAX_RANK + 1], value;
    uint32_t n = 0;
    for (uint32_t k = 1; k < e->nsrc; k++)
        if (e->src[k] != s->i) o[n++] = e->src[k];
    if (!(value = carry(ir, s, o, n))) return NULL;
    src[0] = ki_substitute(ir, e->src[0], &s->reduce, &value, 1);
    memcpy(src + 1, o, n * sizeof *o);
    src[n + 1] = s->i;
    return src[0] ? ki_opn(ir, KN_END, src, n + 2) : NULL;
}

/* One sum of sink carried, over *along if that is set, which is then set; sink itself where there is none. */
static kn_uop scan_one(ki_ir *ir, kn_uop sink, kn_uop *along) {
    kn_uop *order;
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    if (n < 0) return NULL;
    for (int64_t k = n; k-- > 0;) {
        kn_uop e = order[k];
        scan s;
        if (e->op != KN_END || e->nsrc > KI_MAX_RANK + 1) continue;
        for (int64_t q = 0; q < n; q++) {
            bool found = false;
            for (uint32_t j = 1; j < e->nsrc && order[q]->op == KN_REDUCE && !found; j++)
                found = (!*along || *along == e->src[j]) && ki_depends(ir, order[q], e->src[j]) &&
                        find(ir, order[q], e->src[j], &s) && only_under(ir, order[q], e);
            if (!found) continue;
            kn_uop f = rebuild(ir, e, &s);
            ki_free(order);
            *along = s.i;
            return f ? ki_substitute(ir, sink, &e, &f, 1) : NULL;
        }
    }
    ki_free(order);
    return ir->env->err == KI_E_NONE ? sink : NULL;
}

/* Sums over one range are carried beside each other: there is one innermost loop. */
kn_uop ki_range_scan(ki_ir *ir, kn_uop sink) {
    kn_uop along = NULL, before = NULL;
    while (sink && sink != before) before = sink, sink = scan_one(ir, sink, &along);
    return sink;
}
