/* spread.c: a value that is spread over several places, as the gradient of pooling is over a window: its sums ask for a quotient of a loop
 * alone. The places that share a quotient stand beside each other, as lanes that no sum varies in, so that each sum, and what follows from
 * it, is computed once for all of them. */
#include "stages/3_optimize/choose.h"

#define MOST_PLACES 4 /* beside each other: what differs between them is written out for each */

/* By what the nest divides r, a loop of its own, in whole parts; 0: by nothing. */
static int64_t divisor(const ki_nest *k, kn_uop e, kn_uop r) {
    for (uint32_t i = k->scope.at[r->id] + 1; i < k->scope.at[e->id]; i++) {
        kn_uop u = k->scope.node[i];
        bool by = u->op == KN_IDIV && u->src[0] == r && u->src[1]->op == KN_CONST;
        int64_t m = by ? u->src[1]->arg.i : 0;
        if (m > 1 && m <= MOST_PLACES && ki_extent(r) > m && ki_extent(r) % m == 0) return m;
    }
    return 0;
}

/* Is there a sum of products by r / m, and none by r otherwise? */
static bool sums_quotient(const ki_nest *k, kn_uop e, kn_uop r, int64_t m) {
    const ki_scope *s = &k->scope;
    uint32_t from = s->at[r->id], to = s->at[e->id];
    uint8_t *itself = ki_calloc(to + 1, 1); /* by place: what depends on more of r */
    int products = 0;
    bool all = itself;
    if (itself) itself[from] = 1;
    for (uint32_t i = from + 1; i < to && all; i++) {
        kn_uop u = s->node[i];
        bool quotient = u->op == KN_IDIV && u->src[0] == r && ki_is_const_int(u->src[1], m);
        for (uint32_t j = 0; j < u->nsrc && !quotient; j++) {
            uint32_t at = s->at[u->src[j]->id];
            itself[i] |= at < i && itself[at];
        }
        if (u->op != KN_REDUCE || u->nsrc < 2 || !ki_scope_has(s, u, r)) continue;
        all = !itself[i];
        products += u->src[0]->op == KN_MUL;
    }
    ki_free(itself);
    return all && products;
}

/* The next loop that is divided so, into at most `most` places; what divides it in *m. NULL: there is none. */
static kn_uop spread_loop(const ki_nest *k, kn_uop e, int64_t most, int64_t *m) {
    kn_uop store = ki_nest_store(e);
    bool known;
    for (uint32_t j = 1; store && j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (!ki_is_serial(r) || ki_nest_stride(k, store->src[0], r, &known) == 1 || !(*m = divisor(k, e, r))) continue;
        if (*m <= most && ki_nest_independent(k, r) && sums_quotient(k, e, r, *m)) return r;
    }
    return NULL;
}

bool ki_choose_spread(ki_choice *c, kn_uop e) {
    ki_part lanes[MOST_PLACES];
    uint32_t n = 0;
    int64_t m, places = MOST_PLACES;
    kn_uop r;
    for (uint32_t j = 1; j < e->nsrc; j++) /* those that an earlier look has found */
        if (ki_is_lane(e->src[j])) places /= ki_extent(e->src[j]);
    for (; c->ok && (r = spread_loop(&c->nest, e, places, &m)); places /= m) {
        uint32_t id = ki_nest_next_range(&c->nest);
        if (!ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)r->arg.range.axis, false, r->arg.range.id, m)) break;
        lanes[n++] = (ki_part){KN_AX_UPCAST, id, m};
        e = ki_nest_closer(&c->nest, ki_nest_range(&c->nest, id));
    }
    if (c->ok) ki_choice_split(c, lanes, n);
    return n > 0;
}
