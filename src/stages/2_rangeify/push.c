/* push.c: the host functions of push.kr. Each gets one node INDEX(v, i...) with an index for every axis of v,
 * and each is the index map of one op; where one needs fresh RANGEs, the context (ki_push, m->user) keeps one
 * set a REDUCE node. */
#include "stages/2_rangeify/push.h"

#include "stages/indexing.h"

#include <string.h>

static bool node(ki_val *out, kn_uop u) {
    out->kind = KI_V_NODE;
    out->node = u;
    return u != NULL;
}

/* Axis k of the source is axis p^-1(k) of the result. */
bool ki_push_unpermute(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    const ki_ints *p = arg[0].ints;
    for (uint32_t k = 0; k < p->n; k++)
        if (p->v[k] == (int64_t)m->at) return node(out, arg[1].nodes[k]);
    return false;
}

bool ki_push_unflip(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    kn_uop t = arg[0].node, i = arg[2].nodes[m->at];
    const ki_ints *p = arg[1].ints;
    bool flipped = false;
    for (uint32_t k = 0; p && k < p->n; k++) flipped |= p->v[k] == (int64_t)m->at;
    if (!flipped) return node(out, i);
    ki_element e = ki_element_of(i);
    kn_uop top = ki_index_add(m->ir, ki_dim_uop(m->ir, t->type->dim[m->at]), ki_index(m->ir, -1));
    e.x = ki_index_add(m->ir, top, ki_index_mul(m->ir, e.x, ki_index(m->ir, -1)));
    return node(out, ki_element_uop(m->ir, e));
}

bool ki_push_along(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    ki_dim d = arg[0].node->type->dim[m->at];
    return node(out, d.n == 1 && !d.sym ? ki_index(m->ir, 0) : arg[1].nodes[m->at]);
}

bool ki_push_shifted(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    ki_element e = ki_element_of(arg[1].nodes[m->at]);
    e.x = ki_index_add(m->ir, e.x, arg[0].node->src[m->at]);
    return node(out, ki_element_uop(m->ir, e));
}

/* o <= i < o + n on one axis; NULL when the bounds of i say so already. */
static kn_uop within(ki_ir *ir, kn_uop i, kn_uop o, ki_dim n) {
    kn_uop lo = NULL, hi = NULL, end = ki_index_add(ir, o, ki_dim_uop(ir, n));
    if (!end) return NULL;
    if (i->lo.i < o->hi.i) /* i >= o, as !(i < o) */
        lo = ki_op1(ir, KN_NOT, ki_op2(ir, KN_CMPLT, i, o));
    if (i->hi.i >= end->lo.i) hi = ki_op2(ir, KN_CMPLT, i, end);
    return ki_and(ir, lo, hi);
}

/* An operand of an elementwise op: a constant is itself, a () value takes no index. */
kn_uop ki_push_operand(ki_ir *ir, kn_uop a, const kn_uop *i, uint32_t n) {
    kn_uop c = ki_peel_const(a), s[KI_MAX_RANK + 1];
    if (c) return c;
    if (a->type->rank == 0) n = 0;
    s[0] = a;
    if (n) memcpy(s + 1, i, n * sizeof *i);
    return ki_opn(ir, KN_INDEX, s, n + 1);
}
/* Inside the window the source, shifted; elsewhere 0. The source's own index is gated by the same conditions. */
kn_uop ki_push_pad(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop d = m->root, v = d->src[0], t = v->src[0], i[KI_MAX_RANK], valid = NULL;
    for (uint32_t k = 0; k < t->type->rank; k++) {
        kn_uop o = v->src[1]->src[k];
        ki_element e = ki_element_of(d->src[k + 1]);
        e.valid = ki_and(ir, e.valid, within(ir, e.x, o, t->type->dim[k]));
        valid = ki_and(ir, valid, e.valid);
        e.x = ki_index_add(ir, e.x, ki_index_mul(ir, o, ki_index(ir, -1)));
        if (!(i[k] = ki_element_uop(ir, e))) return NULL;
    }
    kn_uop x = ki_push_operand(ir, t, i, t->type->rank);
    return valid ? ki_op3(ir, KN_WHERE, valid, x, ki_const_int(ir, (kn_dtype)v->dtype, 0)) : x;
}

bool ki_push_part(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    (void)n;
    return node(out, ki_push_operand(m->ir, arg[0].node, arg[1].nodes, arg[1].n));
}

kn_uop ki_push_reshape(ki_match *m) {
    kn_uop d = m->root, v = d->src[0], t = v->src[0], out[KI_MAX_RANK];
    if (!ki_reshape_index(m->ir, v->type, d->src + 1, t->type, out)) return NULL;
    return ki_push_operand(m->ir, t, out, t->type->rank);
}

/* Element i0 of a stack is source i0: a chain of choices, or the source itself. */
kn_uop ki_push_stack(ki_match *m) {
    kn_uop d = m->root, v = d->src[0];
    ki_element e = ki_element_of(d->src[1]);
    uint32_t n = d->nsrc - 2;
    if (e.x->op == KN_CONST && e.x->arg.i >= 0 && e.x->arg.i < (int64_t)v->nsrc)
        return ki_push_operand(m->ir, v->src[e.x->arg.i], d->src + 2, n);
    kn_uop r = NULL;
    for (uint32_t k = v->nsrc; k-- > 0;) {
        kn_uop x = ki_push_operand(m->ir, v->src[k], d->src + 2, n);
        r = r ? ki_op3(m->ir, KN_WHERE, ki_op2(m->ir, KN_CMPLT, e.x, ki_index(m->ir, k + 1)), x, r) : x;
    }
    return r;
}

/* Indices of an index: a () one was fixed, a shaped one is itself indexed by as many of the outer tuple. */
kn_uop ki_push_index(ki_match *m) {
    kn_uop d = m->root, v = d->src[0], t = v->src[0], s[KI_MAX_RANK + 1];
    uint32_t at = 1;
    s[0] = t;
    for (uint32_t k = 0; k < t->type->rank; k++) {
        kn_uop j = k + 1 < v->nsrc ? v->src[k + 1] : NULL;
        if (!j) {
            s[k + 1] = d->src[at++];
            continue;
        }
        unsigned rank = j->type->rank;
        s[k + 1] = ki_cast(m->ir, ki_push_operand(m->ir, j, d->src + at, rank), KN_IDX);
        at += rank;
    }
    return ki_push_operand(m->ir, t, s + 1, t->type->rank);
}

/* Equal sizes: element by element. Else bytes are split off by shifts, or put together by them. */
kn_uop ki_push_bitcast(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop d = m->root, v = d->src[0], t = v->src[0], s[KI_MAX_RANK];
    kn_dtype to = (kn_dtype)v->dtype, from = (kn_dtype)t->dtype;
    unsigned rank = v->type->rank;
    static const kn_dtype plain[9] = {[1] = KN_U8, [2] = KN_U16, [4] = KN_U32, [8] = KN_U64};
    size_t a = ki_itemsize(from), b = ki_itemsize(to);
    if (a == b) return ki_bitcast(ir, ki_push_operand(ir, t, d->src + 1, rank), to);
    memcpy(s, d->src + 1, rank * sizeof *s);
    ki_element e = ki_element_of(s[rank - 1]);
    if (a > b) { /* one source element holds k of ours */
        int64_t k = (int64_t)(a / b);
        kn_uop part = ki_cast(ir, ki_op2(ir, KN_MOD, e.x, ki_index(ir, k)), plain[a]);
        e.x = ki_op2(ir, KN_IDIV, e.x, ki_index(ir, k));
        s[rank - 1] = ki_element_uop(ir, e);
        kn_uop whole = ki_bitcast(ir, ki_push_operand(ir, t, s, rank), plain[a]);
        kn_uop count = ki_op2(ir, KN_MUL, part, ki_const_int(ir, plain[a], (int64_t)(8 * b)));
        return ki_bitcast(ir, ki_cast(ir, ki_op2(ir, KN_SHR, whole, count), plain[b]), to);
    }
    kn_uop r = NULL;
    for (int64_t k = 0; k < (int64_t)(b / a); k++) {
        ki_element p = {ki_index_add(ir, ki_index_mul(ir, e.x, ki_index(ir, (int64_t)(b / a))), ki_index(ir, k)),
                        e.valid};
        s[rank - 1] = ki_element_uop(ir, p);
        kn_uop x = ki_cast(ir, ki_bitcast(ir, ki_push_operand(ir, t, s, rank), plain[a]), plain[b]);
        if (k) x = ki_op2(ir, KN_SHL, x, ki_const_int(ir, plain[b], k * (int64_t)(8 * a)));
        r = r ? ki_op2(ir, KN_OR, r, x) : x;
    }
    return ki_bitcast(ir, r, to);
}

/* Reduced axes become the REDUCE's own ranges, the same each time this node is indexed. */
kn_uop ki_push_reduce(ki_match *m) {
    ki_push *ctx = m->user;
    ki_ir *ir = m->ir;
    kn_uop d = m->root, v = d->src[0], t = v->src[0], s[KI_MAX_RANK], r[KI_MAX_RANK + 1];
    uint32_t n = 0, first = ctx->range ? ki_push_ranges(ctx, v) : ir->next_range; /* the prover has no context */
    for (unsigned k = 0; k < t->type->rank; k++) {
        s[k] = d->src[k + 1];
        if (!(v->arg.reduce.axes >> k & 1)) continue;
        ki_dim dim = t->type->dim[k];
        if (dim.n == 1 && !dim.sym) s[k] = ki_index(ir, 0);
        else s[k] = r[++n] = ki_range_make(ir, first + k, KN_AX_REDUCE, ki_dim_uop(ir, dim));
    }
    r[0] = ki_push_operand(ir, t, s, t->type->rank);
    if (n == 0) return r[0];
    kn_arg arg = {.bits = 0};
    arg.reduce.op = v->arg.reduce.op;
    return ki_make(ir, KN_REDUCE, KN_VOID, r, n + 1, arg, 0);
}

uint32_t ki_push_ranges(ki_push *ctx, kn_uop reduce) {
    uint32_t *first = &ctx->range[reduce->id];
    if (!*first) {
        *first = ctx->ir->next_range + 1; /* 0 means: not yet */
        ctx->ir->next_range += KI_MAX_RANK;
    }
    return *first - 1;
}
