/* where.c: at which places of a result a nest stores, as one number: of each place p the term z^p, added up modulo a prime at a z drawn by nobody who
 * knows the places. Two nests of the same places have the same number, however their loops were split, padded, lapped, cut or shared out.
 *
 * A place is a sum of parts that go their own ways: a loop's multiple, or what several loops make together where a bound, a quotient or a condition
 * joins them, which is counted through. As long as no two choices give the same place the number is a product over the parts; parts that may meet (a
 * loop whose last block laps) are made one first, each place in it once. */
#include "stages/3_optimize/nest.h"

#include "rules/given.h"
#include "rules/indexmath.h"

#include <stdlib.h>
#include <string.h>

#define MOST_COUNTED (1 << 14) /* iterations of loops that are joined, and */
#define MOST_VALUES  (1 << 17) /* values of parts that are made one */

/* Arithmetic modulo the prime 2^61 - 1. */
#define PRIME ((UINT64_C(1) << 61) - 1)
static uint64_t mod_mul(uint64_t a, uint64_t b) {
    ki_int128 p = (ki_int128)a * (ki_int128)b;
    uint64_t r = (uint64_t)(p & (ki_int128)PRIME) + (uint64_t)(p >> 61);
    return r >= PRIME ? r - PRIME : r;
}
uint64_t ki_where_add(uint64_t a, uint64_t b) { return a + b >= PRIME ? a + b - PRIME : a + b; }

/* q^n, and in *sum 1 + q + ... + q^(n - 1). */
static uint64_t mod_power(uint64_t q, uint64_t n, uint64_t *sum) {
    uint64_t power = 1;
    *sum = 0;
    int bit = 63;
    while (bit > 0 && !(n >> bit)) bit--;
    for (; bit >= 0; bit--) {
        *sum = mod_mul(*sum, ki_where_add(power, 1));
        power = mod_mul(power, power);
        if (n >> bit & 1) *sum = ki_where_add(mod_mul(*sum, q), 1), power = mod_mul(power, q);
    }
    return power;
}

/* The values of one part, from 0 up, each once: n of them, step apart, or where `value` lists them at least so far apart; the last one is span. */
typedef struct part {
    int64_t step, span, n;
    int64_t *value;
} part;

/* What is known of one store. Loops that `counts` leaves out are taken at their first iteration. */
typedef struct where {
    const ki_scope *s;
    ki_arena arena;
    uint64_t *counts; /* a set of loops */
    uint32_t *group;  /* by number of a loop: the least number of those it is joined with */
    bool *joined;     /* by that: there is more to it than a multiple of one loop */
    int64_t *v;       /* by node id: its value now */
    int64_t *at;      /* by number of a loop: where it is */
    kn_uop *list;     /* what is computed of a group, sources before users */
    uint8_t *needed;  /* by place: is it in there? */
    uint32_t nlist;
    ki_linear l;               /* what the place is */
    kn_uop cond[KI_MAX_TERMS]; /* and where it is one */
    unsigned ncond, nparts;
    part part[KI_MAX_TERMS + 1];
} where;

static int64_t *room(where *w, int64_t n) { return ki_arena_alloc(&w->arena, (size_t)n * sizeof(int64_t)); }

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* From values in any order: ascending, each once, from 0; what 0 stood for goes to *base. */
static void tidy(part *p, int64_t *base) {
    int64_t n = 1, first;
    qsort(p->value, (size_t)p->n, sizeof *p->value, by_size);
    first = p->value[0], p->step = INT64_MAX, p->value[0] = 0;
    for (int64_t i = 1; i < p->n; i++) {
        int64_t x = p->value[i] - first;
        if (x == p->value[n - 1]) continue;
        if (x - p->value[n - 1] < p->step) p->step = x - p->value[n - 1];
        p->value[n++] = x;
    }
    p->n = n, p->span = p->value[n - 1], *base += first;
}

static bool counts(const where *w, uint32_t q) { return ki_in_set(w->counts, q); }

/* The loops that u stands in, of those that count, are of one part. */
static void join(where *w, kn_uop u) {
    uint32_t least = UINT32_MAX, n = w->s->nrange;
    const uint64_t *in = ki_scope_free(w->s, u);
    for (uint32_t q = 0; q < n; q++)
        if (ki_in_set(in, q) && counts(w, q) && w->group[q] < least) least = w->group[q];
    for (uint32_t q = 0; q < n; q++) {
        uint32_t old = w->group[q];
        if (!ki_in_set(in, q) || !counts(w, q) || old == least) continue;
        for (uint32_t p = 0; p < n; p++)
            if (w->group[p] == old) w->group[p] = least;
    }
    if (least != UINT32_MAX) w->joined[least] = true;
}

/* Whose part u is; NONE: of no loop that counts. */
#define NONE UINT32_MAX
static uint32_t group_of(const where *w, kn_uop u) {
    const uint64_t *in = ki_scope_free(w->s, u);
    for (uint32_t q = 0; q < w->s->nrange; q++)
        if (ki_in_set(in, q) && counts(w, q)) return w->group[q];
    return NONE;
}

static void need(where *w, kn_uop u) { w->needed[ki_scope_at(w->s, u)] = 1; }

/* The list of what a group's loops, conditions and terms are made of; these two as bits. */
static void list(where *w, uint32_t group, uint64_t *conds, uint64_t *terms) {
    const ki_scope *s = w->s;
    memset(w->needed, 0, s->n);
    *conds = *terms = w->nlist = 0;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (counts(w, q) && w->group[q] == group) need(w, s->range[q]);
    for (unsigned c = 0; c < w->ncond; c++)
        if (group_of(w, w->cond[c]) == group) need(w, w->cond[c]), *conds |= UINT64_C(1) << c;
    for (unsigned t = 0; t < w->l.n; t++)
        if (group_of(w, w->l.term[t]) == group) need(w, w->l.term[t]), *terms |= UINT64_C(1) << t;
    for (uint32_t i = s->n; i-- > 0;)
        for (uint32_t k = 0; w->needed[i] && k < s->node[i]->nsrc; k++) need(w, s->node[i]->src[k]);
    for (uint32_t i = 0; i < s->n; i++)
        if (w->needed[i]) w->list[w->nlist++] = s->node[i];
}

/* A length known at launch is taken to be one less than it may be: of that a CUT leaves something over. */
static int64_t value_of(kn_uop variable) { return variable->hi.i - (variable->lo.i < variable->hi.i); }

/* Values of what is listed, and in *in whether this iteration is one. False: nobody can say. */
static bool step(const where *w, uint64_t conds, bool *in) {
    *in = true;
    for (uint32_t i = 0; i < w->nlist && *in; i++) {
        kn_uop u = w->list[i];
        if (u->op != KN_RANGE) {
            if (ki_is_variable(u) && !ki_is_float((kn_dtype)u->dtype)) w->v[u->id] = value_of(u);
            else if (!ki_index_step(u, w->v, &w->v[u->id])) return false;
            continue;
        }
        w->v[u->id] = w->at[ki_scope_rank(w->s, u)];
        *in = w->v[u->id] < w->v[u->src[0]->id];
    }
    for (unsigned c = 0; c < w->ncond && *in; c++) *in = !(conds >> c & 1) || w->v[w->cond[c]->id];
    return true;
}

/* Iterations of a group's loops, all as long as they can be; 0: too many. */
static int64_t iterations(const where *w, uint32_t group) {
    int64_t all = 1;
    for (uint32_t q = 0; q < w->s->nrange; q++) {
        int64_t most = w->s->range[q]->hi.i;
        w->at[q] = 0;
        if (counts(w, q) && w->group[q] == group && (most >= MOST_COUNTED || (all *= most + 1) > MOST_COUNTED))
            return 0;
    }
    return all;
}

static void next_iteration(const where *w, uint32_t group) {
    for (uint32_t q = 0; q < w->s->nrange; q++) {
        if (!counts(w, q) || w->group[q] != group) continue;
        if (w->at[q]++ < w->s->range[q]->hi.i) return;
        w->at[q] = 0;
    }
}

/* Counts through the loops of a group: the values that its terms of the place have where it stores. */
static bool count(where *w, uint32_t group, part *p) {
    int64_t all = iterations(w, group);
    uint64_t conds, terms;
    bool in;
    if (!all || !(p->value = room(w, all))) return false;
    list(w, group, &conds, &terms);
    for (int64_t i = 0; i < all; i++, next_iteration(w, group)) {
        int64_t sum = 0, x = 0;
        if (!step(w, conds, &in)) return false;
        for (unsigned t = 0; t < w->l.n && in; t++)
            if (terms >> t & 1 &&
                (ki_mul_overflow(w->l.coef[t], w->v[w->l.term[t]->id], &x) || ki_add_overflow(sum, x, &sum)))
                return false;
        if (in) p->value[p->n++] = sum;
    }
    return true;
}

/* One loop's multiple. */
static bool multiple(where *w, kn_uop r, int64_t coef, part *p) {
    p->n = r->hi.i + 1, p->step = coef < 0 ? -coef : coef;
    if (r->hi.i < 0) return p->n = 0, true;
    if (r->hi.i == INT64_MAX || coef == INT64_MIN || ki_mul_overflow(p->step, r->hi.i, &p->span)) return false;
    return coef > 0 || !ki_sub_overflow(w->l.k, p->span, &w->l.k);
}

/* Two parts that may meet, as one. */
static bool make_one(where *w, part *a, const part *b) {
    part both = {.n = 0};
    if (a->n > MOST_VALUES / b->n || !(both.value = room(w, a->n * b->n))) return false;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0; j < b->n; j++)
            both.value[both.n++] = (a->value ? a->value[i] : i * a->step) + (b->value ? b->value[j] : j * b->step);
    tidy(&both, &w->l.k);
    *a = both;
    return true;
}

static int by_step(const void *a, const void *b) {
    const part *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* No value of a part is reached by those of smaller steps together. */
static bool set_apart(where *w) {
    qsort(w->part, w->nparts, sizeof *w->part, by_step);
    unsigned n = 0;
    for (unsigned i = 0; i < w->nparts; i++) {
        part p = w->part[i];
        int64_t below = 0;
        w->part[n++] = p;
        for (unsigned j = 0; j + 1 < n; j++)
            if (ki_add_overflow(below, w->part[j].span, &below)) return false;
        for (; n > 1 && w->part[n - 1].step <= below; n--) {
            below -= w->part[n - 2].span;
            if (!make_one(w, &w->part[n - 2], &w->part[n - 1])) return false;
        }
    }
    w->nparts = n;
    return true;
}

/* What belongs together: loops that a term, a condition or another's bound joins. */
static void find_groups(where *w) {
    for (uint32_t q = 0; q < w->s->nrange; q++) w->group[q] = q, w->joined[q] = false;
    for (unsigned t = 0; t < w->l.n; t++)
        if (w->l.term[t]->op != KN_RANGE) join(w, w->l.term[t]);
    for (unsigned c = 0; c < w->ncond; c++) join(w, w->cond[c]);
    for (uint32_t q = 0; q < w->s->nrange; q++)
        if (counts(w, q) && !ki_is_const(w->s->range[q]->src[0])) join(w, w->s->range[q]);
}

/* The part of a loop and those it is joined with, or of what no loop counts in. */
static bool add_part(where *w, uint32_t group) {
    kn_uop r = group == NONE ? NULL : w->s->range[group];
    bool joined = !r || w->joined[group];
    int64_t coef = 0;
    for (unsigned t = 0; t < w->l.n; t++)
        if (w->l.term[t] == r) coef = w->l.coef[t];
    if (!joined && !coef) return true;
    if (w->nparts > KI_MAX_TERMS) return false;
    part *p = &w->part[w->nparts++];
    *p = (part){.step = INT64_MAX};
    if (!(joined ? count(w, group, p) : multiple(w, r, coef, p))) return false;
    if (joined && p->n) tidy(p, &w->l.k);
    w->nparts -= p->n == 1;
    return true;
}

static uint64_t number_of(const where *w) {
    const uint64_t z = UINT64_C(0x17a3c5e9d1f2b846);
    uint64_t rest, number = mod_power(z, (uint64_t)w->l.k, &rest);
    for (unsigned i = 0; i < w->nparts; i++) {
        const part *p = &w->part[i];
        uint64_t sum = 1, at = 1, by = 1;
        int64_t last = 0;
        if (!p->value) mod_power(mod_power(z, (uint64_t)p->step, &rest), (uint64_t)p->n, &sum);
        for (int64_t j = 1; p->value && j < p->n; j++) {
            int64_t d = p->value[j] - p->value[j - 1];
            if (d != last) by = mod_power(z, (uint64_t)d, &rest), last = d;
            sum = ki_where_add(sum, at = mod_mul(at, by));
        }
        number = mod_mul(number, sum);
    }
    return number;
}

static bool find_where(where *w, kn_uop at, uint64_t *number) {
    const ki_scope *s = w->s;
    bool gated = at->op == KN_WHERE && at->src[2]->op == KN_INVALID, none = false;
    if (gated && !(w->ncond = ki_conjuncts(at->src[0], w->cond))) return false;
    if (!ki_linear_of(gated ? at->src[1] : at, &w->l)) return false;
    find_groups(w);
    if (!add_part(w, NONE)) return false;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (counts(w, q) && w->group[q] == q && !add_part(w, q)) return false;
    for (unsigned i = 0; i < w->nparts; i++)
        none |= w->part[i].n < 1; /* a loop without iterations, or a condition never met */
    if (none) return *number = 0, true;
    if (!set_apart(w) || w->l.k < 0) return false;
    return *number = number_of(w), true;
}

bool ki_where(const ki_scope *s, kn_uop at, kn_uop of, kn_uop or, uint64_t *number) {
    size_t loops = s->nrange + 1;
    where w = {.s = s};
    w.counts = ki_arena_alloc(&w.arena, (s->words + 1) * sizeof *w.counts);
    w.group = ki_arena_alloc(&w.arena, loops * sizeof *w.group);
    w.joined = ki_arena_alloc(&w.arena, loops * sizeof *w.joined);
    w.at = ki_arena_alloc(&w.arena, loops * sizeof *w.at);
    w.v = ki_arena_alloc(&w.arena, ((size_t)s->ids + 1) * sizeof *w.v);
    w.list = ki_arena_alloc(&w.arena, ((size_t)s->n + 1) * sizeof *w.list);
    w.needed = ki_arena_alloc(&w.arena, (size_t)s->n + 1);
    bool ok = w.counts && w.group && w.joined && w.at && w.v && w.list && w.needed;
    for (uint32_t i = 0; ok && i < s->words; i++)
        w.counts[i] = ki_scope_free(s, of)[i] | (or ? ki_scope_free(s, or)[i] : 0);
    ok = ok && find_where(&w, at, number);
    ki_arena_free(&w.arena);
    return ok;
}
