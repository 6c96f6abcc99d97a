/* pairs.c: rows that are gone through several times go in pairs, a vector of one beside a vector of the other.
 *
 * What all rows share, a scale and a shift, is read once for two of them so. With what prefetch.c asks for then it is 0.66 to 0.98 of the time where what
 * is asked for is lost behind stores (a Zen 4), 0.66 to 0.87 where the hardware fetches streams (a Xeon with tiles); it was measured on no other processor.
 * Each row is added up as it is by itself. */
#include "stages/3_optimize/choose.h"

#define LEAST          (1 << 13) /* bytes of a row: shorter ones took 0.9 to 1.6 of the time; */
#define LEAST_STREAMED (1 << 12) /* of 4 KiB 0.76 to 1.0 where the hardware fetches streams, shorter ones 1.0 to 1.19 */
#define MOST           (1 << 17) /* of longer ones nobody asks for the next two (prefetch.c) */

/* Is the nest of e one of sums over rows r, the same all along v, and nothing else? What is added up under a condition is left as it is: with lanes it would
 * always be. */
static bool sums_rows(const ki_nest *k, kn_uop e, kn_uop r, kn_uop v) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_BUFFER || (u->op == KN_END && u != e)) return false;
        if (u->op != KN_REDUCE) continue;
        bool over = u->nsrc == 2 && ki_scope_has(&k->scope, u, r) && !ki_scope_has(&k->scope, u, v);
        if (!over || ki_is_seldom(k, u)) return false;
    }
    return true;
}

/* Does the access lie along memory in the loop of a sum? */
static bool lies_along(const ki_nest *k, kn_uop access) {
    bool known;
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (k->closer[q] && k->closer[q]->op == KN_REDUCE &&
            ki_nest_stride(k, access, k->scope.range[q], &known) == 1 && known)
            return true;
    return false;
}

/* Are rows, of elements so large, read along v and for such a sum too? */
static bool reads_again(const ki_nest *k, kn_uop r, kn_uop v, int64_t item) {
    for (uint32_t i = 0; i < k->nreads; i++) {
        kn_uop a = k->reads[i];
        bool known, row = ki_scope_has(&k->scope, a, r) && ki_nest_stride(k, a, v, &known) == 1 && known;
        for (uint32_t j = 0; j < k->nreads && row && (int64_t)ki_itemsize((kn_dtype)a->dtype) == item; j++) {
            kn_uop b = k->reads[j];
            bool sum =
                ki_storage(a) == ki_storage(b) && ki_scope_has(&k->scope, b, r) && !ki_scope_has(&k->scope, b, v);
            if (sum && lies_along(k, b)) return true;
        }
    }
    return false;
}

void ki_choose_pairs(ki_choice *c) {
    const ki_nest *k = &c->nest;
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL, store = e && e->op == KN_END ? ki_nest_store(e) : NULL;
    if (!store || e->nsrc < 3 || ki_storage(store->src[0])->op != KN_PARAM) return;
    bool streams = !c->ahead && c->target->streams > 1;
    if (!streams && !ki_waits_behind_stores(c)) return;
    kn_uop to = ki_storage(store->src[0]), v = e->src[e->nsrc - 1], r = e->src[e->nsrc - 2];
    int64_t item = (int64_t)ki_itemsize((kn_dtype)to->dtype), row = ki_extent(v) * item;
    if (!ki_is_past(c, to) || row < (streams ? LEAST_STREAMED : LEAST) || row > MOST) return;
    if (!ki_is_serial(v) || !ki_is_serial(r) || !ki_extent(r) || ki_extent(r) % 2) return;
    if (!ki_nest_independent(k, r) || !sums_rows(k, e, r, v) || !reads_again(k, r, v, item)) return;
    c->paired = ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, r->arg.range.id, 2);
}
