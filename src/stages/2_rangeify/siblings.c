/* siblings.c: kernels with no path between them become one, where they read the same memory or are small (DESIGN 12.7).
 *
 * A kernel's nests have disjoint stores and none needs another's: they run in any order, each on all threads. What one has
 * just read the next finds in the caches; nests of equal loops without sums become one loop.
 *
 * Joining two kernels keeps the order's graph without cycles if neither reaches the other. Only kernels near each other
 * in the order are looked at, so that all costs are linear in the program. */
#include "stages/2_rangeify/siblings.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_EDGES = 4096, /* looked at for one pair */
    MOST_NESTS = 16,
    MOST_STORES = 12, /* of one loop */
    NEXT_READERS = 3, /* of a buffer that are tried with each reader */
    NEXT_SMALL = 2,
    TINY = 1 << 14 /* bytes a kernel touches that costs its launch alone */
};

typedef struct pair {
    uint32_t a, b;
    int64_t gain;
} pair;
typedef struct pairs {
    pair *v;
    uint32_t n;
    size_t cap;
} pairs;

static bool nomem(ki_family *f) { return ki_fail(f->r->ir->env, KI_E_NOMEM), false; }

/* ---- what a kernel does ------------------------------------------------------------------------------------------ */

static int by_buffer(const void *a, const void *b) {
    const ki_use *x = a, *y = b;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static bool note(ki_family *f, uint32_t kernel, kn_uop index, kn_uop user, bool read) {
    if (!ki_array_grow(&f->use, &f->use_cap, (size_t)f->nuse + 1, sizeof *f->use)) return nomem(f);
    int64_t bytes = ki_range_touched(f->r->ir, index);
    if (bytes < 0) return false;
    f->use[f->nuse++] =
        (ki_use){index->src[0]->arg.buffer->id, kernel, read ? bytes : 0, bytes, !read, !read && !user->tag};
    return true;
}

/* Uses of one buffer become one. */
static void tidy(ki_family *f, ki_fact *x) {
    ki_use *u = f->use + x->use;
    uint32_t n = f->nuse - x->use, m = 0;
    if (n) qsort(u, n, sizeof *u, by_buffer);
    for (uint32_t i = 0; i < n; i++) {
        if (m && u[m - 1].buffer == u[i].buffer) {
            if (u[i].read > u[m - 1].read) u[m - 1].read = u[i].read;
            if (u[i].bytes > u[m - 1].bytes) u[m - 1].bytes = u[i].bytes;
            u[m - 1].made |= u[i].made;
            u[m - 1].fresh |= u[i].fresh;
        } else {
            u[m++] = u[i];
        }
    }
    x->nuse = m;
    f->nuse = x->use + m;
    for (uint32_t i = 0; i < m; i++) {
        x->bytes += u[i].bytes;
        x->fixed |= u[i].fresh && u[i].read; /* adds up where data says: one thread's work */
    }
}

static bool is_global(kn_uop b) { return b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_GLOBAL; }

static bool look(ki_family *f, uint32_t kernel) {
    ki_fact *x = &f->fact[kernel];
    kn_uop sink = f->k->sink[kernel], *order;
    int64_t n = ki_toposort(f->r->ir, &sink, 1, &order);
    *x = (ki_fact){.use = f->nuse, .nests = sink->nsrc, .next = NONE, .last = kernel, .head = kernel};
    bool ok = n >= 0;
    x->nodes = (uint32_t)n;
    x->fixed = n > KI_MOST_NODES / 2;
    for (int64_t i = 0; i < n && ok && !x->fixed; i++) {
        kn_uop u = order[i];
        if (u->op == KN_PARAM) x->args++; /* a variable */
        if (u->op == KN_RANGE && u->arg.range.id >= x->ranges) x->ranges = u->arg.range.id + 1;
        if (u->op == KN_BUFFER && !is_global(u)) x->fixed = true;
        if (u->op == KN_AFTER || u->op == KN_LOAD) x->fixed = true;
        x->sums |= u->op == KN_REDUCE;
        if (u->dtype != KN_IDX && u->dtype != KN_VOID && u->dtype != KN_BOOL && u->op != KN_BUFFER &&
            ki_itemsize((kn_dtype)u->dtype) > x->widest)
            x->widest = (uint8_t)ki_itemsize((kn_dtype)u->dtype);
        for (uint32_t s = 0; s < u->nsrc && ok; s++)
            if (u->src[s]->op == KN_INDEX && is_global(u->src[s]->src[0]))
                ok = note(f, kernel, u->src[s], u, u->op != KN_STORE || s > 0);
    }
    ki_free(order);
    if (ok) tidy(f, x);
    x->args += x->nuse;
    return ok;
}

int64_t ki_family_shared(const ki_family *f, uint32_t a, uint32_t b) {
    const ki_use *u = f->use + f->fact[a].use, *v = f->use + f->fact[b].use;
    int64_t sum = 0;
    for (uint32_t i = 0, j = 0; i < f->fact[a].nuse && j < f->fact[b].nuse;) {
        if (u[i].buffer == v[j].buffer) sum += u[i].read < v[j].read ? u[i].read : v[j].read;
        if (u[i].buffer <= v[j].buffer) i++;
        else j++;
    }
    return sum;
}

/* ---- which to join ----------------------------------------------------------------------------------------------- */

static bool tiny(const ki_fact *x) { return x->bytes <= TINY && x->nodes < 256; }

/* Sums and what reads much of the same; elementwise work that shares anything (the scalars of an optimizer); small
 * things. */
static bool worth(const ki_fact *a, const ki_fact *b, int64_t gain) {
    int64_t less = a->bytes < b->bytes ? a->bytes : b->bytes;
    if (tiny(a) && tiny(b)) return true;
    if (gain > 0 && !a->sums && !b->sums) return true;
    return gain >= KI_SHARED && gain >= less / KI_SHARED_PART;
}

static bool propose(ki_family *f, pairs *p, uint32_t a, uint32_t b) {
    if (f->fact[a].fixed || f->fact[b].fixed || a == b) return true;
    if (f->fact[a].at > f->fact[b].at) return propose(f, p, b, a);
    int64_t gain = ki_family_shared(f, a, b);
    if (f->fact[b].at - f->fact[a].at > KI_WINDOW || !worth(&f->fact[a], &f->fact[b], gain)) return true;
    if (!ki_array_grow(&p->v, &p->cap, (size_t)p->n + 1, sizeof *p->v)) return nomem(f);
    p->v[p->n++] = (pair){a, b, gain};
    return true;
}

static int by_gain(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    return (x->b > y->b) - (x->b < y->b);
}

typedef struct reader {
    uint32_t buffer, at, kernel;
} reader;
static int by_reader(const void *a, const void *b) {
    const reader *x = a, *y = b;
    if (x->buffer != y->buffer) return x->buffer < y->buffer ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Each reader of a buffer with the next ones, each small kernel with the next small ones, of which the first may need it. */
static bool find_pairs(ki_family *f, pairs *p) {
    reader *v = ki_calloc(f->nuse + 1, sizeof *v);
    uint32_t n = 0, small[NEXT_SMALL], nsmall = 0;
    bool ok = v != NULL || nomem(f);
    for (uint32_t i = 0; i < f->nuse && ok; i++)
        if (f->use[i].read) v[n++] = (reader){f->use[i].buffer, f->fact[f->use[i].kernel].at, f->use[i].kernel};
    if (n) qsort(v, n, sizeof *v, by_reader);
    for (uint32_t i = 0; i < n && ok; i++)
        for (uint32_t j = i + 1; j < n && j <= i + NEXT_READERS && v[j].buffer == v[i].buffer && ok; j++)
            ok = propose(f, p, v[i].kernel, v[j].kernel);
    for (uint32_t i = 0; i < f->k->n && ok; i++) {
        uint32_t k = f->order[i];
        if (k == NONE || f->fact[k].fixed || !tiny(&f->fact[k])) continue;
        for (uint32_t j = nsmall > NEXT_SMALL ? nsmall - NEXT_SMALL : 0; j < nsmall && ok; j++)
            ok = propose(f, p, small[j % NEXT_SMALL], k);
        small[nsmall++ % NEXT_SMALL] = k;
    }
    if (ok && p->n) qsort(p->v, p->n, sizeof *p->v, by_gain);
    ki_free(v);
    return ok;
}

bool ki_family_reach(const ki_family *f, uint32_t a, uint32_t b, bool apart, bool *marked) {
    uint32_t low = f->fact[a].at, high = f->fact[b].at, looked = 0;
    memset(marked, 0, (high - low + 1) * sizeof *marked);
    marked[0] = true;
    for (uint32_t at = low; at < high; at++) {
        if (!marked[at - low] || f->order[at] == NONE) continue;
        for (uint32_t m = f->order[at]; m != NONE; m = f->fact[m].next)
            for (uint32_t e = f->k->first[m]; e < f->nedge && f->edge[e].before == m; e++) {
                uint32_t to = f->fact[f->fact[f->edge[e].after].head].at;
                if (++looked > MOST_EDGES || (apart && to == high)) return false;
                if (to > low && to <= high) marked[to - low] = true;
            }
    }
    return true;
}

/* a and all joined to it take b's place or an earlier one, what they reach comes behind. */
void ki_family_join(ki_family *f, uint32_t a, uint32_t b, const bool *marked) {
    uint32_t low = f->fact[a].at, high = f->fact[b].at, behind[KI_WINDOW + 1], n = 0, at = low;
    ki_fact *x = &f->fact[a], *y = &f->fact[b];
    for (uint32_t i = low + 1; i < high; i++) {
        uint32_t k = f->order[i];
        if (k == NONE) continue;
        if (marked[i - low]) behind[n++] = k;
        else f->order[f->fact[k].at = at++] = k;
    }
    f->order[x->at = at++] = a;
    for (uint32_t i = 0; i < n; i++) f->order[f->fact[behind[i]].at = at++] = behind[i];
    while (at <= high) f->order[at++] = NONE;
    for (uint32_t m = b; m != NONE; m = f->fact[m].next) f->fact[m].head = a;
    f->fact[x->last].next = b;
    x->last = y->last;
    x->nodes += y->nodes;
    x->nests += y->nests;
    x->args += y->args;
    x->bytes += y->bytes;
    x->sums |= y->sums;
}

static void try_pair(ki_family *f, const pair *p) {
    uint32_t a = f->fact[p->a].head, b = f->fact[p->b].head;
    bool marked[KI_WINDOW + 1];
    if (a == b) return;
    if (f->fact[a].at > f->fact[b].at) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    const ki_fact *x = &f->fact[a], *y = &f->fact[b];
    if (y->at - x->at > KI_WINDOW || x->widest != y->widest || x->nodes + y->nodes > KI_MOST_NODES ||
        x->nests + y->nests > MOST_NESTS || x->args + y->args > KI_MOST_ARGS || !worth(x, y, p->gain))
        return;
    if (ki_family_reach(f, a, b, true, marked)) ki_family_join(f, a, b, marked);
}

/* ---- one kernel of several --------------------------------------------------------------------------------------- */

kn_uop ki_family_fresh(ki_ir *ir, kn_uop sink, uint32_t *next) {
    kn_uop *order, *from = NULL, *to = NULL;
    size_t m = 0;
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    bool ok = n >= 0 && (from = ki_calloc((size_t)n + 1, sizeof *from)) && (to = ki_calloc((size_t)n + 1, sizeof *to));
    if (n >= 0 && !ok) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; i < n && ok; i++)
        if (order[i]->op == KN_RANGE) {
            from[m] = order[i];
            to[m] = ki_range_renamed(ir, order[i], (*next)++, (kn_axis)order[i]->arg.range.axis);
            ok = to[m++] != NULL;
        }
    if (ok) sink = ki_substitute(ir, sink, from, to, m);
    ki_free(order);
    ki_free(from);
    ki_free(to);
    return ok ? sink : NULL;
}

static bool is_among(const kn_uop *order, int64_t n, kn_uop u) {
    while (n > 0) {
        int64_t half = n / 2;
        if (order[half] == u) return true;
        if (order[half]->id < u->id) order += half + 1, n -= half + 1;
        else n = half;
    }
    return false;
}

/* Element by element, both read the same at the same place: bodies a and b, over the same ranges. *ok: no failure. */
static bool read_alike(ki_ir *ir, kn_uop a, kn_uop b, bool *ok) {
    kn_uop *in_a = NULL, *in_b = NULL;
    bool alike = false, sums = false;
    int64_t na = ki_toposort(ir, &a, 1, &in_a), nb = na < 0 ? -1 : ki_toposort(ir, &b, 1, &in_b);
    for (int64_t i = 0; i < nb; i++) {
        kn_uop u = in_b[i];
        sums |= u->op == KN_REDUCE;
        for (uint32_t s = u->op == KN_STORE; s < u->nsrc; s++) {
            bool both = u->src[s]->op == KN_INDEX && is_among(in_a, na, u->src[s]);
            alike |= both && ki_range_touched(ir, u->src[s]) >= KI_SHARED;
        }
    }
    if (na >= 0) ki_free(in_a);
    if (nb >= 0) ki_free(in_b);
    *ok = nb >= 0;
    return alike && !sums;
}

/* Two nests without sums over equal ranges as one, if they read the same; NULL if not, or *ok is false. */
static kn_uop one_loop(ki_ir *ir, kn_uop a, kn_uop b, bool *ok) {
    kn_uop s[MOST_STORES + KI_MAX_RANK * 4];
    uint32_t n = 0;
    if (a->op != KN_END || b->op != KN_END || a->nsrc != b->nsrc || a->nsrc > KI_MAX_RANK * 4) return NULL;
    for (uint32_t j = 1; j < a->nsrc; j++)
        if (a->src[j]->src[0] != b->src[j]->src[0]) return NULL;
    kn_uop body[2] = {a->src[0], ki_substitute(ir, b->src[0], b->src + 1, a->src + 1, b->nsrc - 1)};
    if (!body[1]) return *ok = false, NULL;
    if (!read_alike(ir, body[0], body[1], ok) || !read_alike(ir, body[1], body[0], ok)) return NULL;
    for (int k = 0; k < 2; k++) {
        bool group = body[k]->op == KN_GROUP;
        if (n + (group ? body[k]->nsrc : 1) > MOST_STORES) return NULL;
        for (uint32_t j = 0; j < (group ? body[k]->nsrc : 1); j++) s[n++] = group ? body[k]->src[j] : body[k];
    }
    kn_uop group = ki_opn(ir, KN_GROUP, s, n);
    s[0] = group;
    memcpy(s + 1, a->src + 1, (a->nsrc - 1) * sizeof *s);
    group = ki_with_src(ir, a, s);
    *ok = group != NULL;
    return group;
}

/* A nest more, in the loop of another where it may be. */
static bool add_nest(ki_ir *ir, kn_uop *nest, uint32_t *n, kn_uop e) {
    bool ok = true;
    for (uint32_t i = 0; i < *n && ok; i++) {
        kn_uop one = one_loop(ir, nest[i], e, &ok);
        if (one) return nest[i] = one, true;
    }
    if (ok && *n < MOST_NESTS) nest[(*n)++] = e;
    return ok;
}

/* The nests of a and of those joined to it. */
static kn_uop joined(ki_family *f, uint32_t a) {
    ki_ir *ir = f->r->ir;
    kn_uop nest[MOST_NESTS];
    uint32_t n = 0, next = 0;
    for (uint32_t m = a; m != NONE; m = f->fact[m].next)
        if (f->fact[m].ranges > next) next = f->fact[m].ranges;
    for (uint32_t m = a; m != NONE; m = f->fact[m].next) {
        kn_uop sink = m == a ? f->k->sink[m] : ki_family_fresh(ir, f->k->sink[m], &next);
        for (uint32_t i = 0; sink && i < sink->nsrc; i++)
            if (!add_nest(ir, nest, &n, sink->src[i])) return NULL;
        if (!sink) return NULL;
    }
    return ki_with_srcs(ir, f->k->sink[a], nest, n);
}

/* A kernel that has taken others in, finished. */
static kn_uop finished(ki_family *f, kn_uop sink) {
    ki_ir *ir = f->r->ir;
    ki_first *first = NULL;
    bool whole, ok = ki_written_begin(&f->firsts.seen, &sink, 1, &whole);
    if (ok && whole) ok = ki_written_put(&f->firsts.seen, KI_FINISHED) && ki_firsts_find(&f->firsts, &first);
    if (!ok) return NULL;
    if (first && first->done) return ki_firsts_as(&f->firsts, first);
    f->firsts.fresh = ir->next_buffer;
    kn_uop fill, done = ki_range_finish(ir, sink, false, NULL, &fill);
    return done && first && !ki_firsts_note(&f->firsts, first, done) ? NULL : done;
}

static bool rebuild(ki_family *f) {
    uint32_t n = 0;
    for (uint32_t at = 0; at < f->k->n; at++) {
        uint32_t a = f->order[at];
        if (a == NONE) continue;
        kn_uop *sink = &f->k->sink[a];
        if (f->fact[a].one) *sink = finished(f, *sink);
        else if (f->fact[a].next != NONE) *sink = joined(f, a);
        if (!*sink) return false;
        f->order[n++] = a;
    }
    f->k->used = n;
    return true;
}

bool ki_family_open(ki_family *f, rangeifier *r, ki_kernels *k, uint32_t *order, const ki_edge *edge, uint32_t nedge) {
    *f = (ki_family){.r = r, .k = k, .edge = edge, .nedge = nedge, .order = order};
    f->firsts.seen.forms = r->forms;
    bool ok = (f->fact = ki_calloc(k->n + 1, sizeof *f->fact)) != NULL || nomem(f);
    for (uint32_t i = 0; i < k->n && ok; i++) ok = look(f, i);
    for (uint32_t i = 0; i < k->n && ok; i++) f->fact[order[i]].at = i;
    return ok;
}

void ki_family_close(ki_family *f) {
    ki_free(f->fact);
    ki_free(f->use);
    ki_firsts_close(&f->firsts);
    *f = (ki_family){0};
}

bool ki_range_siblings(ki_family *f) {
    pairs p = {0};
    bool ok = ki_range_inside(f) && ki_range_take(f) && find_pairs(f, &p);
    for (uint32_t i = 0; i < p.n && ok; i++) try_pair(f, &p.v[i]);
    ok = ok && rebuild(f);
    ki_free(p.v);
    return ok;
}
