/* filled.c: a row that the kernel keeps and fills with sums of products (attention's scores). A tile around has several rows as lanes (tile.c), so each
 * vector of what all rows share is loaded once for all of them: the row's elements are lanes, and what is shared lies apart along them and is packed in
 * panels, outside the loop over rows. Without that each element would be a sum across lanes. */
#include "stages/3_optimize/tile.h"

#define LEAST_SHARED 3 /* rows of a tile: fewer are not worth packing what they share */
#define MOST_VECTORS 4 /* side by side: fewer loads for each product */
#define WASTE        6 /* of a row that is padded to so many: a sixth */

/* The sum of a nest that fills a row by an operand that lies along v, *a, the same for all *rows of the tile around, and one that is theirs. */
static kn_uop find_product(const ki_nest *k, kn_uop e, kn_uop v, kn_uop *a, int64_t *rows) {
    const ki_scope *s = &k->scope;
    for (uint32_t q = 0; q < s->nrange; q++) {
        kn_uop x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->arg.reduce.op != KN_ADD || x->id > e->id || !ki_scope_has(s, x, v)) continue;
        kn_uop b = NULL;
        *rows = 1;
        *a = NULL;
        for (uint32_t r = 0; r < s->nrange; r++)
            if (ki_is_lane(s->range[r]) && ki_scope_has(s, x, s->range[r])) *rows *= ki_extent(s->range[r]);
        for (uint32_t i = 0; i < k->nreads; i++) {
            kn_uop u = k->reads[i];
            if (!ki_varies_in(k, u, x)) continue;
            bool lanes = false;
            for (uint32_t r = 0; r < s->nrange; r++)
                lanes |= ki_is_lane(s->range[r]) && ki_scope_has(s, u, s->range[r]);
            *(ki_scope_has(s, u, v) ? a : &b) = u;
            if (ki_scope_has(s, u, v) == lanes) *rows = 0; /* rows' own, or of no row */
        }
        if (*a && b && *rows >= LEAST_SHARED) return x;
    }
    return NULL;
}

/* The innermost loop around the nest that a varies in: it is packed inside that one. NULL: outside all. */
static kn_uop loop_before(const ki_nest *k, kn_uop e, kn_uop a) {
    const ki_scope *s = &k->scope;
    kn_uop best = NULL;
    for (uint32_t q = 0; q < s->nrange; q++) {
        kn_uop r = s->range[q], c = k->closer[q];
        if (ki_is_lane(r) || !c || c->op != KN_END || !ki_scope_has(s, e, r)) continue;
        if (r->arg.range.axis != KN_AX_THREAD && !ki_uses(k, a, r)) continue;
        if (!best || ki_place_in(c, best) < ki_place_in(c, r)) best = r;
    }
    return best;
}

/* Vectors of a row side by side: as many as there are accumulators for, if padding the row to them costs little. */
static int64_t vectors(const ki_choice *c, int64_t n, int64_t rows) {
    int64_t nv = MOST_VECTORS;
    while (nv > 1 && (nv * rows > c->target->nvector * 3 / 4 ||
                      (nv * c->lanes - n % (nv * c->lanes)) % (nv * c->lanes) * WASTE > n))
        nv /= 2;
    return nv;
}

bool ki_choose_filled(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    kn_uop s = ki_nest_store(e), a, x;
    int64_t n = v ? ki_extent(v) : 0, rows;
    if (n < c->lanes || !s || ki_storage(s->src[0])->op != KN_BUFFER || c->knobs.plain || c->knobs.pack == 1)
        return false;
    if (!(x = find_product(k, e, v, &a, &rows)) || ki_storage(a)->op != KN_PARAM) return false;
    int64_t nv = vectors(c, n, rows);
    uint32_t iv = v->arg.range.id;
    int32_t slot = ki_storage(a)->arg.param->slot;
    kn_uop before = loop_before(k, e, a);
    kn_uop around = before ? ki_nest_closer(k, before) : k->sink;
    if (ki_is_written(k, slot) || ki_nest_read_inside(k, around, slot, before) != a) return false;
    if (n % (nv * c->lanes)) return ki_choice_do(c, KI_OPT_PADTO, 0, false, iv, nv * c->lanes), true;
    uint32_t inside = before ? before->arg.range.id : UINT32_MAX;
    ki_choice_mark(c, e);
    ki_choice_mark(c, x);
    if (KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, iv, c->lanes}, {KN_AX_UPCAST, iv, nv > 1 ? nv : 0}))
        ki_choice_do(c, KI_OPT_STAGE, 0, false, inside, slot);
    return true;
}
