/* alike.c: sums that are made alike, of values that are alike, fold alike. Each layer of a network has the same ones, so what
 * was found of the first is remembered under a key: the graph that folding looks through, written out in preorder, with what
 * it does not look through as leaves of which only dtype, shape and bounds count.
 *
 * Whatever decides how a sum folds must be in its key. */
#include "stages/2_rangeify/rangeify.h"

#include "base/hash.h"

#include <string.h>

enum { MOST_NODES = 256, MET_AGAIN = 1, CONSTANT, LEAF, INSIDE };

static bool nomem(rangeifier *r) { return ki_fail(r->ir->env, KI_E_NOMEM), false; }

static bool put(rangeifier *r, uint64_t word) {
    ki_alike *a = &r->alike;
    if (!ki_array_grow(&a->word, &a->word_cap, a->nword + 1, sizeof *a->word)) return nomem(r);
    return a->word[a->nword++] = word, true;
}

static bool put_leaf(rangeifier *r, kn_uop u) {
    bool bounded = u->flags & KI_BOUNDED;
    bool ok = put(r, LEAF | (uint64_t)u->dtype << 8 | (uint64_t)bounded << 16) && put(r, (uintptr_t)u->type);
    return ok && (!bounded || (put(r, (uint64_t)u->lo.i) && put(r, (uint64_t)u->hi.i)));
}

static bool put_inside(rangeifier *r, kn_uop u, uint32_t values) {
    bool ok = put(r, INSIDE | (uint64_t)u->dtype << 8 | (uint64_t)u->op << 16 | (uint64_t)u->nsrc << 32) &&
              put(r, (uintptr_t)u->type) && put(r, u->arg.bits);
    for (uint32_t k = values; ok && k < u->nsrc; k++) ok = put(r, u->src[k]->id); /* a shape */
    return ok;
}

/* Appends the key of v. *whole: it is complete; else v is too large to be remembered. */
static bool key_of(rangeifier *r, kn_uop v, bool *whole) {
    kn_uop stack[MOST_NODES] = {v};
    uint32_t depth = 1, base = r->alike.met, n = 0;
    bool ok = put(r, r->nested);
    while (ok && depth) {
        kn_uop u = stack[--depth];
        info *f = &r->info[u->id];
        bool inside = u == v || ki_range_goes_through(r, u);
        uint32_t values = ki_range_is_view(u) ? 1 : u->nsrc;
        if (f->met > base) {
            ok = put(r, MET_AGAIN | (uint64_t)(f->met - base) << 8);
            continue;
        }
        f->met = ++r->alike.met;
        if (u->op == KN_CONST) ok = put(r, CONSTANT | (uint64_t)u->id << 8);
        else if (!inside) ok = put_leaf(r, u);
        else ok = put_inside(r, u, values);
        if (u->op == KN_CONST || !inside) continue;
        if (++n + depth + values >= MOST_NODES) return *whole = false, ok;
        for (uint32_t k = values; k-- > 0;) stack[depth++] = u->src[k];
    }
    return *whole = true, ok;
}

static bool has_key(const ki_alike *a, const ki_alike_sum *e, size_t at, size_t n) {
    return e->n == n && memcmp(a->word + e->at, a->word + at, n * sizeof *a->word) == 0;
}

bool ki_alike_find(rangeifier *r, kn_uop v, ki_alike_sum **out, bool *known) {
    ki_alike *a = &r->alike;
    size_t at = a->nword;
    bool whole;
    *out = NULL;
    *known = false;
    if (!key_of(r, v, &whole)) return false;
    if (!whole) return a->nword = at, true;
    size_t n = a->nword - at;
    uint32_t hash = (uint32_t)ki_hash_bytes(0, a->word + at, n * sizeof *a->word), probe = 0, k;
    while ((k = ki_slots_next(&a->slots, hash, &probe)) && !has_key(a, &a->sum[k - 1], at, n)) {
    }
    if ((*known = k != 0)) return a->nword = at, *out = &a->sum[k - 1], true;
    k = a->slots.n;
    if (!ki_array_grow(&a->sum, &a->sum_cap, k + 1, sizeof *a->sum) || !ki_slots_add(&a->slots, hash)) return nomem(r);
    a->sum[k] = (ki_alike_sum){.at = at, .n = n};
    return *out = &a->sum[k], true;
}

/* ---- demands on one sum ----------------------------------------------------------------------------------------- */

enum { MOST_RANGES = 16, MOST_PAIRS = 64, LOOK_AT = 8 };

typedef struct names {
    kn_uop from[MOST_RANGES], to[MOST_RANGES];
    uint32_t n;
} names;

/* RANGE a is called b; those that are older stay older, since sums of positions are in that order. */
static bool call(names *m, kn_uop a, kn_uop b) {
    if (a->src[0] != b->src[0] || a->arg.range.axis != b->arg.range.axis) return false;
    for (uint32_t k = 0; k < m->n; k++) {
        if (m->from[k] == a) return m->to[k] == b;
        if (m->to[k] == b || (m->from[k]->id < a->id) != (m->to[k]->id < b->id) ||
            (m->from[k]->arg.range.id < a->arg.range.id) != (m->to[k]->arg.range.id < b->arg.range.id))
            return false;
    }
    if (m->n == MOST_RANGES) return false;
    m->from[m->n] = a, m->to[m->n++] = b;
    return true;
}

/* Whether b is a, RANGEs called by other names. */
static bool is_renamed(const rangeifier *r, kn_uop a, kn_uop b, names *m) {
    kn_uop stack[MOST_PAIRS][2] = {{a, b}};
    uint32_t depth = 1, n = 0;
    m->n = 0;
    while (depth) {
        kn_uop x = stack[--depth][0], y = stack[depth][1];
        if (x == y && is_tensor(r, x)) continue;
        if (x->op == KN_RANGE && y->op == KN_RANGE) {
            if (!call(m, x, y)) return false;
            continue;
        }
        bool same = x->op == y->op && x->dtype == y->dtype && x->nsrc == y->nsrc && x->arg.bits == y->arg.bits;
        if (!same || ++n + depth + x->nsrc > MOST_PAIRS) return false;
        for (uint32_t k = 0; k < x->nsrc; k++) stack[depth][0] = x->src[k], stack[depth++][1] = y->src[k];
    }
    return true;
}

kn_uop ki_alike_folded(rangeifier *r, kn_uop d, bool *known) {
    uint32_t looked = 0;
    names m;
    *known = false;
    for (uint32_t k = r->info[d->src[0]->id].folded; k && looked++ < LOOK_AT; k = r->alike.demand[k - 1].next) {
        const struct ki_alike_demand *q = &r->alike.demand[k - 1];
        if (!is_renamed(r, q->d, d, &m)) continue;
        *known = true;
        return q->e ? ki_substitute(r->ir, q->e, m.from, m.to, m.n) : NULL;
    }
    return NULL;
}

bool ki_alike_note(rangeifier *r, kn_uop d, kn_uop e) {
    ki_alike *a = &r->alike;
    if (!ki_array_grow(&a->demand, &a->demand_cap, a->ndemand + 1, sizeof *a->demand)) return nomem(r);
    uint32_t *last = &r->info[d->src[0]->id].folded;
    a->demand[a->ndemand] = (struct ki_alike_demand){d, e, *last};
    *last = ++a->ndemand;
    return true;
}

void ki_alike_free(ki_alike *a) {
    ki_free(a->demand);
    ki_free(a->word);
    ki_free(a->sum);
    ki_slots_free(&a->slots);
    *a = (ki_alike){0};
}
