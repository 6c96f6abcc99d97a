/* places.c: what is read from memory in several places far apart, one beside the other, where the hardware fetches ahead for several places faster than
 * for one: where vectors are narrow (a Zen 3, which is not asked for what it fetches so, prefetch.c), and with FP16 (Xeons, which are asked a little ahead).
 *
 * Rows for their sums alone go in four, a vector of each. What is added to what must not hang on the threads, so this comes before they have their parts,
 * and a kernel that has such rows adds all of them up so (`apart`); nor on what is stored past the caches. Two operands of what is stored past the caches
 * go in two, each thread's part by itself, on Xeons one in four and three in two, which on a Zen 3 are no faster so. A matrix times a vector is a tile of
 * rows far apart (tile_size.c). */
#include "stages/3_optimize/choose.h"

enum {
    LEAST_FAR = 1 << 10, /* bytes of a row */
    LEAST_ALL = 1 << 22, /* of all rows: some come from memory, or a last cache */
    LEAST_ROWS = 64,     /* as many, or vectors */
    LIGHT = 12,          /* weight of what is done with an element */
    PAGE = 1 << 12       /* bytes from one place to the next: four 2 KiB apart took 1.15 of the time of two */
};

/* Does the nest, of rows v, read long ones from memory, once, for little that is done with them, and store nothing but their sums? */
static bool reads_rows(const ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    int64_t bytes = 0;
    ki_first p;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q], x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(&k->scope, x, v)) continue;
        int64_t row = ki_terms(x) * (int64_t)ki_itemsize((kn_dtype)x->dtype);
        if (row < LEAST_FAR || ki_weight_in(k, r) > LIGHT) return false;
        if (k->scope.level[k->scope.at[x->id]] && !ki_find_first(k, x, &p)) return false; /* made of another sum */
        bytes = row * ki_extent(v);
    }
    return bytes >= LEAST_ALL && ki_sums_rows(c, e, v);
}

void ki_choose_apart(ki_choice *c) {
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL, v = e && e->op == KN_END && e->nsrc == 2 ? e->src[1] : NULL;
    if (!ki_likes_places(c) || !v || !ki_is_serial(v) || ki_extent(v) < LEAST_ROWS) return;
    uint32_t id = v->arg.range.id;
    ki_tile t = {0};
    c->lanes = ki_nest_lanes(c, e);
    if (!reads_rows(c, e, v)) return;
    ki_find_tile(c, e, &t);
    if (t.reduce) return;
    c->apart = true;
    ki_choice_even(c, v, KI_PLACES);
    if (!c->ok) return;
    int64_t rows = ki_extent(ki_nest_range(&c->nest, id)) / KI_PLACES;
    KI_CHOICE_SPLIT(c, {(kn_axis)v->arg.range.axis, id, rows}, {KN_AX_UPCAST, id, KI_PLACES});
}

/* A root takes so long that memory has time in one place: in four took 1.0 to 2.2 times as long. */
static bool has_roots(const ki_nest *k, kn_uop v) {
    for (uint32_t i = 0; i < k->scope.n; i++)
        if (k->scope.node[i]->op == KN_SQRT && ki_scope_has(&k->scope, k->scope.node[i], v)) return true;
    return false;
}

int64_t ki_places_along(const ki_choice *c, kn_uop e, kn_uop v, int64_t lanes, int64_t *unroll) {
    const ki_nest *k = &c->nest;
    kn_uop store = ki_nest_store(e), to = store ? ki_storage(store->src[0]) : NULL;
    bool known, others = false, narrow = ki_is_narrow(c);
    uint32_t reads = 0, operands = 0; /* what is no operand is a row of the kernel's own */
    if (!ki_likes_places(c) || !c->target->native || !to || to->op != KN_PARAM || !ki_is_past(c, to)) return 1;
    for (uint32_t j = 1; j < e->nsrc; j++) others |= e->src[j] != v && e->src[j]->arg.range.axis != KN_AX_THREAD;
    for (uint32_t i = 0; i < k->nreads; i++) {
        kn_uop u = k->reads[i];
        if (!ki_scope_has(&k->scope, u->src[1], v)) continue;
        others |= ki_nest_stride(k, u, v, &known) != 1 || !known || ki_is_gated(u);
        reads++, operands += ki_storage(u)->op == KN_PARAM;
    }
    if (others || ki_extent(v) < LEAST_ROWS * lanes * *unroll) return 1;
    if (narrow) return reads == 2 && ki_weight_in(k, v) <= LIGHT ? 2 : 1;
    if (!reads || operands > 3 || *unroll < 2 || has_roots(k, v))
        return 1; /* so heavy that vectors go one by one: not for memory to bound */
    int64_t bytes = ki_extent(v) * (int64_t)ki_itemsize((kn_dtype)to->dtype), n = operands < 2 ? KI_PLACES : 2;
    while (n > 1 && bytes / n < PAGE) n /= 2;
    if (n > 1) *unroll /= 2;
    return n;
}
