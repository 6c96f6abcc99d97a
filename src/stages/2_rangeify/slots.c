/* slots.c: a kernel's argument may be the part of a buffer that the kernel touches: a SLICE. Kernels that differ in where
 * their parts begin are one kernel then (each step of a recurrent network reads its part of the inputs, and writes its part of
 * the results), which all later stages see once.
 *
 * What a slot's accesses name lies in [lo, hi), by the bounds of their indices. If they all begin with a constant, so much of
 * it as is whole lines goes to the argument, where it differs from call to call, and out of the kernel: index(p, i + c) of f32
 * [size] is index(p', i + c % 16) of f32 [hi - lo], called with slice(b, lo). So
 *
 *   - kernels know as much of addresses as before: a slot begins with a line, whichever it is;
 *   - equality is decided by the store: two kernels are one if they become the same node. Then, and only then, they change: a
 *     kernel without a likeness stays as it was, its arguments whole BUFFERs. Places that are no whole lines apart leave at most
 *     as many kernels as a line has elements;
 *   - it does not matter whether a slot is read, written or both: all accesses of a kernel move alike. Order and memory are
 *     decided by BUFFERs: order.c is done, and plan.c looks through SLICEs. */
#include "stages/2_rangeify/rangeify.h"

enum { LINE = 64 }; /* bytes */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The position of an access, without its gate. */
static kn_uop position(kn_uop index) {
    kn_uop i = index->src[1];
    return i->op == KN_WHERE && i->src[2]->op == KN_INVALID ? i->src[1] : i;
}

/* What a position begins with: so much could be taken off it. */
static kn_uop constant_of(kn_uop i) {
    return ki_is_const(i) ? i : i->op == KN_ADD && ki_is_const(i->src[1]) ? i->src[1] : NULL;
}

/* The slot that source k of u is, or -1. */
static int slot_of(kn_uop u, uint32_t k) {
    kn_uop p = u->src[k];
    return p->op == KN_PARAM && p->type->rank ? p->arg.param->slot : -1;
}

static void note(ki_part *p, kn_uop u, uint32_t k) {
    kn_uop i = u->op == KN_INDEX && k == 0 ? position(u) : NULL;
    bool known = i && i->hi.i < INT64_MAX;
    int64_t lo = known && constant_of(i) ? i->lo.i : 0, hi = known ? i->hi.i + 1 : INT64_MAX;
    p->lo = least(p->lo, lo);
    if (hi > p->hi) p->hi = hi;
}

bool ki_range_parts(ki_ir *ir, const ki_call *c, kn_uop sink, ki_part *part, bool *any) {
    const kn_uop *node;
    for (uint32_t s = 0; s < c->nbuffer; s++) part[s] = (ki_part){.lo = INT64_MAX};
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    for (int64_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < node[i]->nsrc; k++) {
            int s = slot_of(node[i], k);
            if (s >= 0) note(&part[s], node[i], k);
        }
    *any = false;
    for (uint32_t s = 0; s < c->nbuffer; s++) {
        ki_part *p = &part[s];
        int64_t size = ki_numel(c->arg[s]), item = (int64_t)ki_itemsize((kn_dtype)c->arg[s]->dtype);
        p->lo = p->lo > 0 && p->lo < size ? p->lo - p->lo % (LINE / item) : 0;
        p->hi = least(p->hi, size);
        *any |= p->narrow = p->hi - p->lo < size;
    }
    return n >= 0;
}

/* The kernel over the parts it touches. */
static kn_uop over_parts(ki_ir *ir, const ki_call *c, const ki_part *part) {
    kn_uop param[64], v[64], *order, result = NULL;
    int64_t n = ki_toposort(ir, &c->sink, 1, &order);
    ki_map *now = n < 0 ? NULL : ki_map_take(ir);
    for (uint32_t s = 0; now && s < c->nbuffer; s++) {
        int64_t size = part[s].hi - part[s].lo;
        param[s] = ki_param_make(ir, (int)s, (kn_dtype)c->arg[s]->dtype, KN_GLOBAL, c->arg[s]->type->device, NULL, NULL,
                                 ki_shape_src(ir, &size, 1));
    }
    for (int64_t i = 0; now && i < n; i++) {
        kn_uop u = order[i], to = NULL, *src = u->nsrc <= 64 ? v : ki_calloc(u->nsrc, sizeof *src);
        if (!src) ki_fail(ir->env, KI_E_NOMEM);
        for (uint32_t k = 0; src && k < u->nsrc; k++) src[k] = ki_map_get(now, u->src[k]);
        int s = u->op == KN_INDEX ? slot_of(u, 0) : -1;
        if (src && s >= 0 && part[s].narrow) {
            kn_uop gate = src[1]->op == KN_WHERE ? src[1] : NULL, at = position(u), first = constant_of(at);
            src[0] = param[s];
            if (part[s].lo) {
                int64_t left = first->arg.i - part[s].lo;
                at = gate ? gate->src[1] : src[1];
                at = at->op != KN_ADD ? ki_index(ir, left)
                     : left           ? ki_op2(ir, KN_ADD, at->src[0], ki_index(ir, left))
                                      : at->src[0];
                src[1] = gate ? ki_op3(ir, KN_WHERE, gate->src[0], at, gate->src[2]) : at;
            }
        }
        if (src) to = ki_with_src(ir, u, src);
        if (src != v) ki_free(src);
        if (!to) break;
        ki_map_set(now, u, to);
        if (u == c->sink) result = to;
    }
    if (now) ki_map_give(ir, now);
    if (n >= 0) ki_free(order);
    return result;
}

/* Each call's kernel over its parts, or as it is; equal kernels once. */
static bool fit_all(ki_ir *ir, const ki_call *c, uint32_t n, kn_uop *fitted) {
    ki_map *done = ki_map_take(ir);
    ki_part part[64];
    bool ok = done != NULL, any;
    for (uint32_t i = 0; ok && i < n; i++) {
        if ((fitted[i] = ki_map_get(done, c[i].sink))) continue;
        ok = ki_range_parts(ir, &c[i], c[i].sink, part, &any);
        if (ok) fitted[i] = any ? over_parts(ir, &c[i], part) : c[i].sink;
        if ((ok = ok && fitted[i])) ki_map_set(done, c[i].sink, fitted[i]);
    }
    if (done) ki_map_give(ir, done);
    return ok;
}

bool ki_range_slots(rangeifier *r, ki_call *c, uint32_t n) {
    ki_ir *ir = r->ir;
    kn_uop *fitted = ki_calloc((size_t)n + 1, sizeof *fitted), *first = NULL;
    bool *several = NULL, ok = fitted != NULL;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    ok = ok && fit_all(ir, c, n, fitted);
    if (ok && (!(first = ki_calloc(ir->n, sizeof *first)) || !(several = ki_calloc(ir->n, sizeof *several))))
        ok = false, ki_fail(ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; ok && i < n; i++) {
        uint32_t id = fitted[i]->id;
        if (!first[id]) first[id] = c[i].sink;
        several[id] |= first[id] != c[i].sink;
    }
    for (uint32_t i = 0; ok && i < n; i++)
        if (several[fitted[i]->id]) c[i].whole = c[i].sink, c[i].sink = fitted[i];
    ki_free(fitted);
    ki_free(first);
    ki_free(several);
    return ok;
}
