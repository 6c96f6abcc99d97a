/* part.c: an optimizer's update, which shares a nest with the sum it needs, overwrites weights that another kernel still
 * reads, and so cannot be its sibling, though the sum reads what that kernel reads. Where that is much, the sum gets
 * memory of its own: it can be the sibling then, and the update comes last, with those of other weights.
 *
 *   SINK(END(stores of f(sum), r...))  becomes  SINK(END(STORE(t[r...], sum), r...)) and SINK(END(stores of f(t[r...]), r...)) */
#include "stages/2_rangeify/siblings.h"

#include <string.h>

enum { MOST_TRIED = 16 }; /* kernels that one may join */

/* The one REDUCE of the kernel that stands in no other's body; NULL if there are several, or none. */
static kn_uop outer_sum(ki_ir *ir, kn_uop end, bool *ok) {
    kn_uop *order, found = NULL;
    int64_t n = ki_toposort(ir, &end, 1, &order);
    uint32_t inside = 0, count = 0;
    for (int64_t i = n; i-- > 0;) /* users first: what is met before is not below what comes */
        if (order[i]->op == KN_REDUCE) count++, found = found ? found : order[i];
    ki_free(order);
    *ok = n >= 0;
    if (!found) return NULL;
    n = ki_toposort(ir, &found, 1, &order);
    for (int64_t i = 0; i < n; i++) inside += order[i]->op == KN_REDUCE;
    ki_free(order);
    *ok = n >= 0;
    return inside == count ? found : NULL;
}

/* Does the sum vary along every loop of the END, and are these of constant extent? */
static bool fills(ki_ir *ir, kn_uop sum, kn_uop end, bool *ok) {
    kn_uop *order;
    int64_t n = ki_toposort(ir, &sum, 1, &order);
    uint32_t seen = 0;
    bool constant = true;
    for (uint32_t j = 1; j < end->nsrc; j++) {
        constant &= end->src[j]->src[0]->op == KN_CONST;
        for (int64_t i = 0; i < n; i++) seen += order[i] == end->src[j];
    }
    ki_free(order);
    *ok = n >= 0;
    return constant && seen == end->nsrc - 1;
}

/* END of a kernel that overwrites memory with what it makes of one sum; NULL of others. */
static kn_uop parts_of(ki_ir *ir, kn_uop sink, kn_uop *sum, bool *ok) {
    kn_uop end = sink->src[0], body = end->src[0];
    bool over = false;
    if (sink->nsrc != 1 || end->op != KN_END) return NULL;
    for (uint32_t j = 0; j < (body->op == KN_GROUP ? body->nsrc : 1); j++) {
        kn_uop s = body->op == KN_GROUP ? body->src[j] : body;
        if (s->op != KN_STORE) return NULL;
        over |= s->tag != 0;
    }
    if (!over || !(*sum = outer_sum(ir, end, ok))) return NULL;
    return fills(ir, *sum, end, ok) && *ok ? end : NULL;
}

/* Marks the buffers that the sum reads, or takes the marks away. */
static bool reads(const ki_family *f, kn_uop sum, bool *of, bool mark) {
    kn_uop *order;
    int64_t n = ki_toposort(f->r->ir, &sum, 1, &order);
    for (int64_t i = 0; i < n; i++)
        if (order[i]->op == KN_BUFFER) of[order[i]->arg.buffer->id] = mark;
    ki_free(order);
    return n >= 0;
}

/* Is kernel a worth joining with b's sum, and would it be possible? of: buffers the sum reads. */
static bool can_join(const ki_family *f, uint32_t a, uint32_t b, const bool *of, int64_t cost) {
    const ki_fact *x = &f->fact[a], *y = &f->fact[b];
    bool marked[KI_WINDOW + 1];
    int64_t gain = -2 * cost, all = cost;
    if (x->fixed || x->at > y->at || y->at - x->at > KI_WINDOW || x->widest != y->widest) return false;
    for (uint32_t j = 0; j < y->nuse; j++) {
        const ki_use *v = &f->use[y->use + j];
        if (of[v->buffer]) all += v->read;
        for (uint32_t i = 0; i < x->nuse && of[v->buffer]; i++) {
            const ki_use *u = &f->use[x->use + i];
            if (u->buffer == v->buffer) gain += u->read < v->read ? u->read : v->read;
        }
    }
    if (gain < KI_SHARED || gain < all / KI_SHARED_PART || !ki_family_reach(f, a, b, false, marked)) return false;
    for (uint32_t at = x->at; at < y->at; at++) { /* what a reaches makes none of it */
        const ki_fact *m = &f->fact[f->order[at]];
        for (uint32_t i = 0; marked[at - x->at] && i < m->nuse; i++)
            if (f->use[m->use + i].made && of[f->use[m->use + i].buffer]) return false;
    }
    return true;
}

/* Kernel b keeps the sum, a new one is added for the rest. */
static bool part(ki_family *f, uint32_t b, kn_uop end, kn_uop sum) {
    ki_ir *ir = f->r->ir;
    ki_kernels *k = f->k;
    kn_uop at = ki_index(ir, 0), s[KI_MAX_RANK * 4], fill;
    int64_t size = 1;
    if (end->nsrc > KI_MAX_RANK * 4) return true;
    for (uint32_t j = end->nsrc; j-- > 1;) {
        at = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, end->src[j], ki_index(ir, size)), at);
        if (ki_mul_overflow(size, end->src[j]->src[0]->arg.i, &size)) return true;
    }
    kn_uop to = ki_buffer_make(ir, ir->next_buffer, size, (kn_dtype)sum->dtype, KN_GLOBAL, sum->type->device);
    to = ki_op2(ir, KN_INDEX, to, at);
    memcpy(s, end->src, end->nsrc * sizeof *s);
    s[0] = ki_op2(ir, KN_STORE, to, sum);
    kn_uop first = ki_op1(ir, KN_SINK, ki_with_src(ir, end, s));
    kn_uop rest = to ? ki_substitute(ir, k->sink[b], &sum, &to, 1) : NULL;
    if (first) first = ki_range_finish(ir, first, false, NULL, &fill);
    if (rest) rest = ki_range_finish(ir, rest, false, NULL, &fill);
    if (!first || !rest) return false;
    if (k->n == k->cap) {
        kn_uop *p = ki_realloc(k->sink, k->cap * 2, sizeof *p);
        if (!p) return ki_fail(ir->env, KI_E_NOMEM), false;
        k->sink = p;
        k->cap *= 2;
    }
    k->sink[b] = first;
    k->sink[k->n++] = rest;
    return true;
}

bool ki_range_part(ki_family *f, bool *whole) {
    rangeifier *r = f->r;
    ki_kernels *k = f->k;
    uint32_t n = k->n;
    bool *of = ki_calloc(r->ir->next_buffer + 1, sizeof *of), *done = ki_calloc(n + 1, sizeof *done);
    uint8_t *tried = ki_calloc(n + 1, sizeof *tried);
    bool ok = (of && done && tried) || (ki_fail(r->ir->env, KI_E_NOMEM), false);
    for (uint32_t i = 0; i < r->nafter && ok; i++) /* what waits for such a nest waits for its update */
        done[r->after[i].from] = done[r->after[i].to] = true;
    *whole = true;
    for (uint32_t e = 0; e < f->nedge && ok; e++) {
        uint32_t a = f->edge[e].before, b = f->edge[e].after;
        kn_uop sum = NULL, end;
        if (done[b] || f->fact[b].fixed || !f->fact[b].sums || tried[b] == MOST_TRIED) continue;
        if (ki_family_shared(f, a, b) < KI_SHARED) continue;
        tried[b]++;
        if (!(end = parts_of(r->ir, k->sink[b], &sum, &ok))) continue;
        int64_t cost = (int64_t)ki_itemsize((kn_dtype)sum->dtype);
        for (uint32_t j = 1; j < end->nsrc; j++) cost *= end->src[j]->src[0]->arg.i;
        ok = reads(f, sum, of, true);
        bool can = ok && can_join(f, a, b, of, cost);
        ok = ok && reads(f, sum, of, false);
        if (!ok || !can) continue;
        ok = part(f, b, end, sum);
        done[b] = true;
        *whole = false;
    }
    ki_free(of);
    ki_free(done);
    ki_free(tried);
    return ok;
}
