/* scatter.c: sums, products and maxima over a comparison with data, by adding each term where it belongs (DESIGN 12.8).
 *
 * A nest over (o..., i, t...) stores REDUCE(add) over d of where(i = h(d), x, 0): every output looks at every d. It becomes
 * two kernels: one fills the output with the zero, and in one a loop over d adds x to the element h(d), if there is one:
 *
 *     for o, i, t: out[o, i, t] = 0
 *     for o, d, t: if (h(d) is an i) out[o, h(d), t] += x(o, h(d), d, t)
 *
 * A product's other value is 1, and a maximum's the lowest. The loop over d keeps its order, so an element's terms add up in
 * the order of d. What d is, i and the condition may be
 * several: each axis that an equality determines is scattered; reduced ranges that the condition does not know are summed first. facts.c asks whether a value is such a sum, decide.c then stores it in a nest of its own. */
#include "stages/2_rangeify/fold.h"
#include "stages/indexing.h"
#include "stages/2_rangeify/rangeify.h"

#include "rules/indexmath.h"

#include <math.h>
#include <string.h>

#define MOST (KI_MAX_RANK * 4)

typedef struct scatter {
    kn_uop reduce, hit, term; /* sum of where(hit, term, zero) */
    kn_op op;                 /* add, or mul or max with their identity as zero */
    kn_uop none;              /* the zero */
    bool plus;                /* zero is +0.0, and is a term where nothing is hit */
    bool zero;                /* +0.0 is one more term in any case */
    kn_uop axis[KI_MAX_RANK]; /* scattered; hit says axis = at */
    kn_uop at[KI_MAX_RANK];
    uint32_t n;
    kn_uop valid;             /* all else that hit says, of axes as of at */
    kn_uop d[MOST], in[MOST]; /* reduced ranges: that hit knows; the others */
    uint32_t nd, nin;
} scatter;

static bool is_zero(kn_uop u) { return u->op == KN_CONST && ki_const_f64(u) == 0; }

/* A term that changes nothing; of a sum a zero of either sign. */
static bool is_none(kn_uop u, kn_op op) {
    if (u->op != KN_CONST || op == KN_ADD) return is_zero(u);
    kn_dtype t = (kn_dtype)u->dtype;
    if (op == KN_MUL) return ki_const_f64(u) == 1;
    return ki_is_float(t) ? ki_const_f64(u) == -INFINITY : u->arg.i == ki_int_min(t);
}

static bool is_flag(kn_uop u) { return u->op == KN_CAST && u->src[0]->dtype == KN_BOOL; }

/* b as where(hit, term, zero), if its last op says so; returns zero. */
static kn_uop gate(ki_ir *ir, kn_uop b, kn_op op, kn_uop *hit, kn_uop *term) {
    bool sum = op == KN_ADD;
    if (sum && is_flag(b)) {
        *hit = b->src[0];
        *term = ki_const_int(ir, (kn_dtype)b->dtype, 1);
        return ki_const_int(ir, (kn_dtype)b->dtype, 0);
    }
    if (sum && b->op == KN_MUL && !ki_is_float((kn_dtype)b->dtype) && (is_flag(b->src[0]) || is_flag(b->src[1]))) {
        uint32_t flag = is_flag(b->src[0]) ? 0 : 1;
        *hit = b->src[flag]->src[0];
        *term = b->src[1 - flag];
        return ki_const_int(ir, (kn_dtype)b->dtype, 0);
    }
    if (b->op == KN_WHERE && is_none(b->src[2], op)) {
        *hit = b->src[0];
        *term = b->src[1];
        return b->src[2];
    }
    if (b->op == KN_WHERE && is_none(b->src[1], op)) {
        *hit = ki_op1(ir, KN_NOT, b->src[0]);
        *term = b->src[2];
        return b->src[1];
    }
    if (sum && b->op == KN_INDEX && b->nsrc == 2 && b->src[1]->op == KN_WHERE && b->src[1]->src[2]->op == KN_INVALID) {
        *hit = b->src[1]->src[0];
        *term = b; /* still gated */
        return ki_const_int(ir, (kn_dtype)b->dtype, 0);
    }
    return NULL;
}

/* The same under casts, through which a sum's zeros stay zeros. */
static kn_uop gate_of(ki_ir *ir, kn_uop b, kn_op op, kn_uop *hit, kn_uop *term) {
    kn_uop cast[4], zero;
    uint32_t n = 0;
    for (; op == KN_ADD && b->op == KN_CAST && !is_flag(b) && n < 4; b = b->src[0]) cast[n++] = b;
    for (zero = gate(ir, b, op, hit, term); zero && *term && n;) {
        kn_dtype t = (kn_dtype)cast[--n]->dtype;
        *term = ki_cast(ir, *term, t);
        zero = ki_is_float(t) ? ki_const_float(ir, t, ki_const_f64(zero)) : ki_const_int(ir, t, 0);
    }
    return zero && *hit && *term ? zero : NULL;
}

static bool depends_on_any(ki_ir *ir, kn_uop x, const kn_uop *r, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        if (ki_depends(ir, x, r[k])) return true;
    return false;
}

/* Axes that the condition determines by an equality. */
static bool find_axes(ki_ir *ir, scatter *s, const kn_uop *range, uint32_t n) {
    kn_uop rest = s->hit;
    for (uint32_t k = 0; k < n && rest && s->n < KI_MAX_RANK; k++) {
        ki_solved v;
        if (!ki_depends(ir, rest, range[k]) || !ki_solve(ir, rest, range[k], &v) || !v.equal) continue;
        if (depends_on_any(ir, v.equal, s->axis, s->n)) continue;
        bool used = false;
        for (uint32_t j = 0; j < s->n; j++) used |= ki_depends(ir, s->at[j], range[k]);
        if (used) continue;
        s->valid = ki_and(ir, s->valid, ki_solved_in(ir, &v, range[k]));
        s->axis[s->n] = range[k];
        s->at[s->n++] = v.equal;
        rest = v.rest;
    }
    if (!s->n) return false;
    s->valid = ki_substitute(ir, ki_and(ir, s->valid, rest), s->axis, s->at, s->n);
    return s->valid != NULL;
}

/* Is value, in loops over range[0..n), such a sum? */
static bool find(ki_ir *ir, kn_uop value, const kn_uop *range, uint32_t n, scatter *s) {
    kn_uop u = value, c, zero;
    memset(s, 0, sizeof *s);
    s->zero = u->op == KN_ADD && ki_is_float((kn_dtype)u->dtype) && is_zero(u->src[1]) && !u->src[1]->arg.bits;
    if (s->zero) u = u->src[0];
    if (u->op != KN_REDUCE || u->nsrc < 2 || u->nsrc > MOST) return false;
    s->op = (kn_op)u->arg.reduce.op;
    if (s->op != KN_ADD && (s->zero || (s->op != KN_MAX && s->op != KN_MUL))) return false;
    if (!(zero = gate_of(ir, u->src[0], s->op, &s->hit, &s->term))) return false;
    s->reduce = u;
    s->none = zero;
    s->plus = s->op == KN_ADD && !s->zero && ki_is_float((kn_dtype)zero->dtype) && !zero->arg.bits;
    for (uint32_t k = 1; k < u->nsrc; k++) {
        c = u->src[k];
        if (c->op != KN_RANGE || c->src[0]->lo.i < 1) return false; /* a sum of nothing is another zero */
        if (ki_depends(ir, s->hit, c)) s->d[s->nd++] = c;
        else s->in[s->nin++] = c;
    }
    return s->nd && find_axes(ir, s, range, n);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------ */

/* Several substitutions at once, NULL passed on. */
static kn_uop with(ki_ir *ir, kn_uop u, const kn_uop *from, const kn_uop *to, uint32_t n) {
    return u ? ki_substitute(ir, u, from, to, n) : NULL;
}

/* The reduced ranges that the condition knows become loops. */
static bool open_loops(ki_ir *ir, scatter *s) {
    kn_uop loop[MOST];
    for (uint32_t k = 0; k < s->nd; k++)
        if (!(loop[k] = ki_range_make(ir, ir->next_range, KN_AX_LOOP, s->d[k]->src[0]))) return false;
    s->hit = with(ir, s->hit, s->d, loop, s->nd);
    s->term = with(ir, s->term, s->d, loop, s->nd);
    s->valid = with(ir, s->valid, s->d, loop, s->nd);
    for (uint32_t k = 0; k < s->n; k++)
        if (!(s->at[k] = with(ir, s->at[k], s->d, loop, s->nd))) return false;
    memcpy(s->d, loop, s->nd * sizeof *loop);
    return s->hit && s->term && s->valid;
}

/* An element that not every d hits has a +0.0 among its terms: then it is no -0.0. Only the element that the first d hits can
 * be hit by all; the others start at +0.0. It is not if some d hits it and a next d, along one of the ranges, does not. */
static kn_uop missed_next(ki_ir *ir, const scatter *s) {
    kn_uop any = NULL;
    for (uint32_t k = 0; k < s->nd; k++) {
        kn_uop r = s->d[k], from[KI_MAX_RANK + 1], to[KI_MAX_RANK + 1];
        kn_uop more = ki_op2(ir, KN_CMPLT, r, ki_index_add(ir, r->src[0], ki_index(ir, -1)));
        memcpy(from, s->axis, s->n * sizeof *from);
        memcpy(to, s->at, s->n * sizeof *to);
        from[s->n] = r;
        to[s->n] = more ? ki_element_uop(ir, (ki_element){ki_index_add(ir, r, ki_index(ir, 1)), more}) : NULL;
        kn_uop miss = to[s->n] ? ki_op1(ir, KN_NOT, with(ir, s->hit, from, to, s->n + 1)) : NULL;
        miss = miss ? ki_op2(ir, KN_AND, more, miss) : NULL;
        any = any ? ki_op2(ir, KN_OR, any, miss) : miss;
        if (!any) return NULL;
    }
    return any;
}

/* What is stored at `at`, an INDEX of the output. */
static kn_uop grown(ki_ir *ir, const scatter *s, kn_uop at) {
    kn_dtype t = (kn_dtype)s->reduce->dtype;
    kn_uop to[KI_MAX_RANK], src[MOST + 1], old = at;
    for (uint32_t k = 0; k < s->n; k++)
        if (!(to[k] = ki_element_uop(ir, (ki_element){s->at[k], s->valid}))) return NULL;
    kn_uop x = with(ir, s->term, s->axis, to, s->n), hit = with(ir, s->hit, s->axis, to, s->n);
    src[0] = x = hit ? with(ir, x, &hit, &s->valid, 1) : NULL; /* what reads are gated by */
    memcpy(src + 1, s->in, s->nin * sizeof *src);
    if (s->nin && x) x = ki_with_srcs(ir, s->reduce, src, s->nin + 1);
    if (s->plus) {
        kn_uop first = NULL, none = ki_const_float(ir, t, -0.0), miss = missed_next(ir, s);
        for (uint32_t k = 0; k < s->nd; k++) first = ki_and(ir, first, ki_op2(ir, KN_CMPLT, s->d[k], ki_index(ir, 1)));
        old = first ? ki_op3(ir, KN_WHERE, first, none, at) : NULL;
        x = x && miss ? ki_op2(ir, KN_ADD, x, ki_op3(ir, KN_WHERE, miss, ki_const_float(ir, t, 0), none)) : NULL;
    }
    return old && x ? ki_op2(ir, s->op, old, x) : NULL;
}

/* END of a body that is all of a SINK. */
static kn_uop sink_of(ki_ir *ir, kn_uop index, kn_uop value, kn_uop *loop, uint32_t n) {
    loop[0] = index && value ? ki_op2(ir, KN_STORE, index, value) : NULL;
    kn_uop end = loop[0] ? ki_opn(ir, KN_END, loop, n + 1) : NULL;
    return end ? ki_range_fold(ir, ki_op1(ir, KN_SINK, end), 0) : NULL;
}

static kn_uop fill_kernel(ki_ir *ir, kn_uop e, const scatter *s) {
    kn_uop loop[KI_MAX_RANK + 1], u = s->reduce;
    kn_dtype t = (kn_dtype)u->dtype;
    kn_uop none = s->op != KN_ADD  ? s->none
                  : ki_is_float(t) ? ki_const_float(ir, t, s->plus || s->zero ? 0.0 : -0.0)
                                   : ki_const_int(ir, t, 0);
    memcpy(loop, e->src, e->nsrc * sizeof *loop);
    return sink_of(ir, e->src[0]->src[0], none, loop, e->nsrc - 1);
}

static kn_uop add_kernel(ki_ir *ir, kn_uop e, const scatter *s) {
    kn_uop loop[MOST + KI_MAX_RANK + 1], to = e->src[0]->src[0];
    uint32_t n = 1;
    bool opened = false;
    for (uint32_t k = 1; k < e->nsrc; k++) {
        bool scattered = false;
        for (uint32_t j = 0; j < s->n; j++) scattered |= s->axis[j] == e->src[k];
        if (scattered && !opened) memcpy(loop + n, s->d, s->nd * sizeof *loop), n += s->nd;
        opened |= scattered;
        if (!scattered) loop[n++] = e->src[k];
    }
    kn_uop x = with(ir, to->src[1], s->axis, s->at, s->n);
    x = x ? ki_element_uop(ir, (ki_element){x, s->valid}) : NULL;
    kn_uop at = x ? ki_op2(ir, KN_INDEX, to->src[0], x) : NULL;
    return sink_of(ir, at, at ? grown(ir, s, at) : NULL, loop, n - 1);
}

kn_uop ki_range_scatter(ki_ir *ir, kn_uop sink, kn_uop *fill) {
    kn_uop e = sink->src[0], store = e->op == KN_END ? e->src[0] : NULL;
    scatter s;
    *fill = NULL;
    if (!store || store->op != KN_STORE || store->nsrc != 2 || e->nsrc > KI_MAX_RANK + 1) return sink;
    if (!find(ir, store->src[1], e->src + 1, e->nsrc - 1, &s)) return ir->env->err == KI_E_NONE ? sink : NULL;
    *fill = fill_kernel(ir, e, &s);
    return *fill && open_loops(ir, &s) ? add_kernel(ir, e, &s) : NULL;
}

/* ---- the fact --------------------------------------------------------------------------------------------------- */

static double extents(const kn_uop *r, uint32_t n) {
    double count = 1;
    for (uint32_t k = 0; k < n; k++) count *= (double)r[k]->hi.i + 1;
    return count;
}

/* How many values an axis has, with those that the condition counts in one number with it: axis + n·other = .. */
static double places(const scatter *s, uint32_t k, const kn_uop *range, uint32_t n) {
    double count = (double)s->axis[k]->hi.i + 1;
    kn_uop at = s->at[k];
    ki_linear l;
    if (at->op == KN_MAX) at = at->src[0]; /* ki_solve */
    for (uint32_t j = 0; j < n && ki_linear_of(at, &l); j++)
        for (unsigned t = 0; t < l.n; t++)
            if (l.term[t] == range[j]) count *= (double)range[j]->hi.i + 1;
    return count;
}

int64_t ki_range_scatters(ki_ir *ir, kn_uop value, const kn_uop *range, uint32_t n) {
    scatter s;
    if (!find(ir, value, range, n, &s)) return 0;
    double to = 1, trailing = extents(range, n);
    for (uint32_t k = 0; k < s.n; k++) to *= places(&s, k, range, n);
    for (uint32_t k = 0; k < n && trailing > 1; k++) {
        trailing /= (double)range[k]->hi.i + 1;
        if (range[k] == s.axis[0]) break;
    }
    /* Dense, a vector of outputs looks at a d in an instruction or two, and users of the sum may share its loops. */
    if (extents(s.d, s.nd) < 8 || to * (trailing < 16 ? trailing : 16) < 32) return 0;
    return (int64_t)to;
}
