/* pairs.c: rows that are gone through several times go in pairs, a vector of one beside a vector of the other.
 *
 * What all rows share, a scale and a shift, is read once for two of them so, and two rows are fetched at once. With what prefetch.c asks for then it is
 * 0.7 to 0.85 of the time where stores stand in the way of what is asked for (a Zen 4); it was measured on no other processor. Each row is added up as
 * it is by itself. */
#include "stages/3_optimize/choose.h"

enum {
    LEAST =
        1
        << 13, /* bytes of a row: two of half as many have room in a first cache beside a scale and a shift (1.6 of the time) */
    MOST = 1 << 17 /* of longer ones nobody asks for the next two (prefetch.c) */
};

/* Is the nest of e one of sums over rows r, the same all along v, and nothing else? */
static bool sums_rows(const ki_nest *k, kn_uop e, kn_uop r, kn_uop v) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_BUFFER || (u->op == KN_END && u != e)) return false;
        bool over =
            u->op != KN_REDUCE || (u->nsrc == 2 && ki_scope_has(&k->scope, u, r) && !ki_scope_has(&k->scope, u, v));
        if (!over) return false;
    }
    return true;
}

/* Is something that varies in both read for such a sum too? */
static bool reads_again(const ki_nest *k, kn_uop r, kn_uop v) {
    for (uint32_t i = 0; i < k->nreads; i++)
        for (uint32_t j = 0; j < k->nreads && ki_scope_has(&k->scope, k->reads[i], v); j++) {
            kn_uop a = k->reads[i], b = k->reads[j];
            bool rows = ki_scope_has(&k->scope, a, r) && ki_scope_has(&k->scope, b, r);
            if (rows && ki_storage(a) == ki_storage(b) && !ki_scope_has(&k->scope, b, v)) return true;
        }
    return false;
}

void ki_choose_pairs(ki_choice *c) {
    const ki_nest *k = &c->nest;
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL, store = e && e->op == KN_END ? ki_nest_store(e) : NULL;
    if (!store || e->nsrc < 3 || ki_storage(store->src[0])->op != KN_PARAM || !ki_waits_behind_stores(c)) return;
    kn_uop to = ki_storage(store->src[0]), v = e->src[e->nsrc - 1], r = e->src[e->nsrc - 2];
    int64_t item = (int64_t)ki_itemsize((kn_dtype)to->dtype), row = ki_extent(v) * item;
    if ((uint64_t)(ki_numel(to) * item) < c->from || row < LEAST || row > MOST) return;
    if (!ki_is_serial(v) || !ki_is_serial(r) || !ki_extent(r) || ki_extent(r) % 2) return;
    if (!ki_nest_independent(k, r) || !sums_rows(k, e, r, v) || !reads_again(k, r, v)) return;
    c->paired = ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, r->arg.range.id, 2);
}
