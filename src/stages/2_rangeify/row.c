/* row.c: what the loops of a kernel would compute again and again is computed once a row and kept there (DESIGN 12.1).
 *
 * In a nest over (p..., q...), an expression e(p..., r) of one more range r is *repeated* if r belongs to a REDUCE that
 * runs for each of q too, or if the same expression stands in another loop, over a range of the same extent (softmax: exp
 * in the sum and in the result). It becomes
 *   row  = BUFFER(LOCAL, extent of r, at most)
 *   fill = END(STORE(INDEX(AFTER(row, p...), k), e(p..., k)), k)
 *   e    = INDEX(AFTER(row, fill), r)
 * The p are the outermost loops of the nest, so that a row is filled where they are open; without any, once, by each
 * thread (a vector that meets each row of a matrix; what a channel's normalisation costs, since tiles of a sum go around channels and
 * around positions). Nothing but time is at stake:
 * e is computed for the same arguments as before. What contains a REDUCE over r is left alone. */
#include "stages/2_rangeify/rangeify.h"

#include "stages/scope.h"

#include <string.h>

#define MOST_ROWS 8
#define SHARED    8 /* what is worth keeping (ki_op_cost) if it stands in two loops */
#define REPEATED  4 /* if it is computed again for each q */
#define ONCE      2 /* if it is computed again for each q, and one row serves the whole kernel */
#define AFTER_ROW 1 /* if it is computed again for each q of elements of a row that is kept (softmax's quotient) */
#define COSTLY    8 /* if that takes another order of the nest's loops (a normalisation's square root for each tile) */

typedef struct part { /* of a node: what it is to a row */
    kn_uop same;      /* the node over the canonical range of r's extent; NULL: not one that can be kept */
    float cost;       /* of what depends on r, an element */
    uint32_t r;       /* rank of r */
    bool again;       /* computed for each q */
    bool only;        /* the row of the whole kernel: no p. Kept if it is computed again */
    bool of_row;      /* made of elements of a row that is kept already */
    bool shared;      /* stands in another loop too */
    bool asked;       /* by something that is not itself kept */
} part;

typedef struct keeper {
    ki_ir *ir;
    ki_scope s;
    kn_uop end;
    part *part;
    bool *sums;     /* by place: holds a REDUCE over something that is free in the kernel's loops and varies with r */
    kn_uop *range;  /* by rank: the canonical range of its extent, NULL if it is none */
    kn_uop *closer; /* by rank: the REDUCE that closes it, NULL if the nest does */
    bool whole;     /* what serves the whole nest, too */
} keeper;

static bool nomem(ki_ir *ir) { return ki_fail(ir->env, KI_E_NOMEM), false; }

/* How many loops of the nest lead up to and make up the set of `free` other than r; -1 if there are gaps. */
static int leading(const keeper *k, const uint64_t *free, uint32_t r) {
    const ki_scope *s = &k->s;
    int lead = 0, all = 0;
    for (uint32_t q = 0; q < s->nrange; q++) all += q != r && ki_in_set(free, q);
    for (uint32_t j = 1; j < k->end->nsrc; j++) {
        uint32_t q = ki_scope_rank(s, k->end->src[j]);
        if (q == r || !ki_in_set(free, q)) break;
        lead++;
    }
    return lead == all ? lead : -1;
}

/* The one range of `free` that is not among the leading loops: the last of the nest's, or a REDUCE's. */
static uint32_t own_range(const keeper *k, const uint64_t *free) {
    const ki_scope *s = &k->s;
    uint32_t last = NONE;
    for (uint32_t q = 0; q < s->nrange; q++) {
        if (!ki_in_set(free, q)) continue;
        bool nest = false;
        for (uint32_t j = 1; j < k->end->nsrc; j++) nest |= k->end->src[j] == s->range[q];
        if (!nest) return q;
    }
    for (uint32_t j = 1; j < k->end->nsrc; j++)
        if (ki_in_set(free, ki_scope_rank(s, k->end->src[j]))) last = ki_scope_rank(s, k->end->src[j]);
    return last;
}

static void find_closers(keeper *k) {
    for (uint32_t i = 0; i < k->s.n; i++)
        for (uint32_t j = 1; k->s.node[i]->op == KN_REDUCE && j < k->s.node[i]->nsrc; j++)
            k->closer[ki_scope_rank(&k->s, k->s.node[i]->src[j])] = k->s.node[i];
}

/* Is what depends on e's ranges and r computed again for each of some other loops? */
static bool runs_again(const keeper *k, const uint64_t *free, uint32_t r) {
    kn_uop u = k->closer[r];
    const uint64_t *around = u ? ki_scope_free(&k->s, u) : NULL;
    for (uint32_t q = 0; around && q < k->s.nrange; q++)
        if (ki_in_set(around, q) && !ki_in_set(free, q)) return true;
    return false;
}

/* Would another order of the nest's loops, which optimize may choose where there is a sum, compute again what r alone decides? */
static bool may_run_again(const keeper *k, uint32_t r) {
    bool own = false;
    for (uint32_t j = 1; j < k->end->nsrc; j++) own |= k->end->src[j] == k->s.range[r];
    return own && k->end->nsrc > 2 && k->sums[k->s.n - 1];
}

/* Is p computed often enough for what it costs? */
static bool is_repeated(const keeper *k, const part *p) {
    if (!p->same) return false;
    if (!k->closer[p->r]) return k->whole && p->only && p->cost >= COSTLY && may_run_again(k, p->r);
    return p->cost >= (p->of_row ? AFTER_ROW
                       : p->only ? ONCE
                                 : REPEATED) &&
           runs_again(k, ki_scope_free(&k->s, k->s.node[p - k->part]), p->r);
}

/* The most elements of a row; an extent that is known at launch has a bound, one that depends on a loop is none. 0: no row. */
static int64_t most_of(const keeper *k, kn_uop bound) {
    return !ki_scope_fixed(&k->s, bound) || bound->hi.i < KI_LEAST_ROW || bound->hi.i > KI_MOST_ROW ? 0 : bound->hi.i;
}

/* One range stands for all of an extent, so that equal expressions are the same node. */
static kn_uop canonical(keeper *k, uint32_t r) {
    kn_uop range = k->s.range[r], bound = range->src[0];
    if (k->range[r]) return k->range[r];
    if (!most_of(k, bound)) return NULL;
    for (uint32_t q = 0; q < k->s.nrange; q++)
        if (k->range[q] && k->range[q]->src[0] == bound) return k->range[r] = k->range[q];
    return k->range[r] = ki_range_make(k->ir, k->ir->next_range, KN_AX_LOOP, bound);
}

/* Which nodes may be rows, and of which range. */
static void look(keeper *k, uint32_t i) {
    const ki_scope *s = &k->s;
    kn_uop u = s->node[i];
    part *p = &k->part[i];
    const uint64_t *free = s->free + (size_t)i * s->words;
    for (uint32_t j = 0; j < u->nsrc; j++) k->sums[i] |= k->sums[s->at[u->src[j]->id]];
    p->r = NONE;
    if (u->op == KN_REDUCE) k->sums[i] = true;
    if (u->op == KN_INDEX) k->sums[i] = false; /* what is read is there already */
    if (!ki_is_elementwise((kn_op)u->op) || u->dtype == KN_IDX) return;
    uint32_t r = own_range(k, free);
    int lead = r == NONE ? -1 : leading(k, free, r);
    if (lead < 0) return;
    p->only = lead == 0;
    p->cost = ki_op_cost(u);
    for (uint32_t j = 0; j < u->nsrc; j++) {
        kn_uop v = u->src[j];
        const part *q = &k->part[s->at[v->id]];
        bool row = v->op == KN_INDEX && v->src[0]->op == KN_AFTER && v->src[0]->src[0]->op == KN_BUFFER;
        p->of_row |= row && ki_scope_has(s, v, s->range[r]);
        p->of_row |= q->r == r && q->of_row;
        if (q->r == r) p->cost += q->cost;
        /* A sum that varies with r is no element of a row. */
        else if (k->sums[s->at[v->id]] && ki_scope_has(s, v, s->range[r])) p->cost = -1e9f;
    }
    if (p->cost >= 0) p->r = r;
}

/* Every candidate of range r over the canonical one, in one sweep. */
static bool rename_range(keeper *k, uint32_t r) {
    const ki_scope *s = &k->s;
    uint32_t n = 0;
    kn_uop *at = ki_malloc(s->n * sizeof *at), c;
    if (!at) return nomem(k->ir);
    for (uint32_t i = 0; i < s->n; i++)
        if (k->part[i].r == r) at[n++] = s->node[i];
    bool ok = true;
    if (n && (c = canonical(k, r))) {
        ok = ki_substitute_all(k->ir, at, n, &s->range[r], &c, 1);
        n = 0;
        for (uint32_t i = 0; ok && i < s->n; i++)
            if (k->part[i].r == r) k->part[i].same = at[n++];
    }
    ki_free(at);
    return ok;
}

/* Expressions that stand in two loops are the same node by now. */
static bool find_shared(keeper *k) {
    uint32_t *first = ki_malloc(k->ir->n * sizeof *first);
    bool *twice = ki_calloc(k->ir->n, sizeof *twice);
    bool ok = first && twice;
    for (uint32_t i = 0; ok && i < k->ir->n; i++) first[i] = NONE;
    for (int pass = 0; ok && pass < 2; pass++)
        for (uint32_t i = 0; i < k->s.n; i++) {
            part *p = &k->part[i];
            if (!p->same) continue;
            uint32_t id = p->same->id;
            if (first[id] == NONE) first[id] = p->r;
            twice[id] |= first[id] != p->r;
            p->shared = pass && twice[id] && p->cost >= SHARED && !p->only;
        }
    ki_free(first);
    ki_free(twice);
    return ok || nomem(k->ir);
}

/* A truth is no row: it is part of one, or found again. */
static bool kept(const part *p) { return p->same && (p->again || p->shared); }
static bool begins(const part *p) { return kept(p) && p->asked && p->same->dtype != KN_BOOL; }

/* The first node that is worth a row and is not part of another one; *ok: memory was not short. */
static part *choose(keeper *k, bool *ok) {
    const ki_scope *s = &k->s;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t j = 0; j < s->node[i]->nsrc; j++) {
            part *q = &k->part[s->at[s->node[i]->src[j]->id]];
            q->asked |= kept(q) && !(kept(&k->part[i]) && k->part[i].r == q->r);
        }
    part *first = NULL;
    for (uint32_t i = 0; i < s->n && *ok; i++) {
        part *p = &k->part[i];
        if (!begins(p)) continue;
        /* Operands are in order of age, which two loops' need not be. */
        *ok = (p->same = ki_range_sorted(k->ir, p->same)) != NULL;
        if (!first) first = p;
    }
    return *ok ? first : NULL;
}

/* What is kept with p: itself, and of a row that serves the whole nest all others of its range, which one loop fills. */
static uint32_t kept_together(const keeper *k, const part *p, kn_uop *e) {
    uint32_t n = 1;
    e[0] = p->same;
    for (uint32_t i = 0; !k->closer[p->r] && p->only && i < k->s.n && n < MOST_ROWS; i++) {
        const part *q = &k->part[i];
        bool known = !begins(q) || q->r != p->r;
        for (uint32_t j = 0; j < n; j++) known |= q->same == e[j];
        if (!known) e[n++] = q->same;
    }
    return n;
}

/* The kernel with what equals p's node kept in a row. */
static kn_uop keep(keeper *k, const part *p) {
    const ki_scope *s = &k->s;
    ki_ir *ir = k->ir;
    kn_uop r = k->range[p->r], home[KI_MAX_RANK + 2], e[MOST_ROWS], row[MOST_ROWS], set[MOST_ROWS];
    uint32_t at = (uint32_t)(p - k->part), n = 1, m = 0, rows = kept_together(k, p, e);
    int lead = leading(k, s->free + (size_t)at * s->words, p->r);
    kn_uop *from = ki_malloc(s->n * sizeof *from), *to = ki_malloc(s->n * sizeof *to), result = NULL;
    for (int j = 1; j <= lead; j++) home[n++] = k->end->src[j];
    int64_t size = lead ? ki_row_kept(r->src[0]->hi.i) : r->src[0]->hi.i;
    for (uint32_t q = 0; q < rows; q++) {
        home[0] = row[q] = ki_buffer_make(ir, ir->next_buffer, size, (kn_dtype)e[q]->dtype, KN_LOCAL, 0);
        set[q] = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, ki_opn(ir, KN_AFTER, home, n), r), e[q]);
    }
    kn_uop fill = ki_op2(ir, KN_END, rows > 1 ? ki_opn(ir, KN_GROUP, set, rows) : set[0], r);
    for (uint32_t q = 0; q < rows; q++) row[q] = ki_op2(ir, KN_AFTER, row[q], fill);
    bool ok = from && to && fill;
    for (uint32_t i = 0; ok && i < k->s.n; i++)
        for (uint32_t q = 0; ok && q < rows; q++) {
            if (k->part[i].same != e[q]) continue;
            from[m] = s->node[i];
            ok = (to[m++] = ki_op2(ir, KN_INDEX, row[q], s->range[k->part[i].r])) != NULL;
        }
    if (ok) result = ki_substitute(ir, s->node[s->n - 1], from, to, m);
    if (!from || !to) nomem(ir);
    ki_free(from);
    ki_free(to);
    return result;
}

/* *sink with one more row; *more: there was one to keep. */
static bool step(ki_ir *ir, kn_uop *sink, bool whole, bool *more) {
    keeper k = {.ir = ir, .end = (*sink)->src[0], .whole = whole};
    *more = false;
    bool ok = ki_scope_open(&k.s, ir, *sink);
    if (ok) {
        k.part = ki_calloc(k.s.n, sizeof *k.part);
        k.sums = ki_calloc(k.s.n, sizeof *k.sums);
        k.range = ki_calloc(k.s.nrange + 1, sizeof *k.range);
        k.closer = ki_calloc(k.s.nrange + 1, sizeof *k.closer);
        ok = (k.part && k.sums && k.range && k.closer) || nomem(ir);
    }
    if (ok) find_closers(&k);
    for (uint32_t i = 0; ok && i < k.s.n; i++) look(&k, i);
    for (uint32_t r = 0; ok && r < k.s.nrange; r++) ok = rename_range(&k, r);
    ok = ok && find_shared(&k);
    for (uint32_t i = 0; ok && i < k.s.n; i++) k.part[i].again = is_repeated(&k, &k.part[i]);
    part *p = ok ? choose(&k, &ok) : NULL;
    if (p) {
        kn_uop kept_in = keep(&k, p);
        if (kept_in) *sink = kept_in;
        ok = *more = kept_in != NULL;
    }
    ki_scope_close(&k.s);
    ki_free(k.part);
    ki_free(k.sums);
    ki_free(k.range);
    ki_free(k.closer);
    return ok;
}

/* Kernels without a REDUCE, or with storage of their own already (scan.c), have nothing to keep. */
static bool may_keep(ki_ir *ir, kn_uop sink) {
    kn_uop *node;
    if (sink->nsrc != 1 || sink->src[0]->op != KN_END) return false;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    bool reduces = false, storage = n < 0;
    for (int64_t i = 0; i < n; i++) {
        reduces |= node[i]->op == KN_REDUCE;
        storage |= node[i]->op == KN_BUFFER && node[i]->arg.buffer->addrspace != KN_GLOBAL;
    }
    if (n >= 0) ki_free(node);
    return reduces && !storage;
}

kn_uop ki_range_rows(ki_ir *ir, kn_uop sink, bool alone) {
    bool ok = true, more = may_keep(ir, sink);
    for (int n = 0; ok && more && n < MOST_ROWS; n++) ok = step(ir, &sink, alone || n, &more);
    return ok && ir->env->err == KI_E_NONE ? sink : NULL;
}
