/* pack.c: which operand of a tile is packed in panels, and where.
 *
 * A streamed operand that is not contiguous along v, or is read under a gate, or from far apart, again for every tile of u, is packed first (STAGE); u is
 * the innermost loop then, so that one panel serves all of it. */
#include "stages/3_optimize/tile.h"

#define CACHE_LINE 64
#define CACHE_WAY                                                                                                      \
    (1 << 16) /* bytes of the second-level cache that hold one line of each set, and how often it has them */
#define CACHE_WAYS 16
#define NEAR                                                                                                           \
    (1 << 22) /* bytes of an operand that the caches are likely to have: what comes from memory is better read ahead */
#define FAR (1 << 14) /* bytes of memory that a panel may span and still be read in place */

bool ki_keeps_rows(const ki_nest *k, kn_uop e, kn_uop access, bool *again) {
    const kn_uop *node;
    kn_uop own = ki_word_of(k, access), to = e->src[0]->op == KN_STORE ? ki_storage(e->src[0]->src[0]) : NULL;
    bool rows = false;
    int64_t n = ki_reach_above(k->ir, &e, 1, 0, &node);
    *again = n < 0;
    for (int64_t i = 0; i < n; i++) {
        kn_uop s = k->read[k->scope.at[node[i]->id]] ? ki_storage(node[i]) : NULL;
        kn_uop word = ki_word_of(k, node[i]);
        bool other = word != own && (own == access || word != node[i]); /* single elements beside a word stay */
        *again |= s && other && s == ki_storage(access) && !ki_is_before(k, e, node[i]);
        rows |= s && s->op == KN_BUFFER && s != to && ki_varies_in(k, node[i]->src[0], e);
    }
    return rows;
}

/* STAGE wants the operand read in one place of the nest, or in one that u, the innermost loop then, leaves where it is. Where the nest keeps rows, u must stay outside v, or they would be
 * filled again for each tile. */
static bool alone(const ki_nest *k, kn_uop e, kn_uop access, kn_uop u) {
    bool again, rows = ki_keeps_rows(k, e, access, &again);
    kn_uop p = ki_storage(access);
    if (p->op != KN_PARAM || rows) return false;
    return !again || (u && ki_nest_read_without(k, e, p->arg.param->slot, u) == access);
}

int64_t ki_panel_uses(const ki_nest *k, kn_uop e, const ki_tile *t) {
    int64_t n = 1;
    for (uint32_t j = 1; j < e->nsrc && n < 1 << 20; j++)
        if (!ki_is_lane(e->src[j]) && ki_extent(e->src[j]) && !ki_uses(k, t->streamed, e->src[j]))
            n *= ki_extent(e->src[j]);
    return n;
}

/* A panel of a length known at launch has none. */
static bool has_size(kn_uop x) {
    for (uint32_t j = 1; j < x->nsrc; j++)
        if (ki_extent(x->src[j]) < 1) return false;
    return true;
}

bool ki_may_pack(const ki_nest *k, kn_uop e, kn_uop x, kn_uop a, int64_t n, kn_uop u) {
    return has_size(x) && ki_terms(x) * n * ki_word_bytes(k, a) <= KI_MOST_PACKED && alone(k, e, a, u);
}

/* Do a panel's rows start at whole cache lines and stay in the second-level cache together? Then nothing is gained by packing,
 * where masks make the last vectors of a row cost nothing. Narrow elements are packed to words (dots.c). */
bool ki_fits_in_place(const ki_choice *c, kn_uop x, kn_uop a, kn_uop v) {
    int64_t item = (int64_t)ki_itemsize((kn_dtype)a->dtype), rows = 1, apart = CACHE_WAY;
    bool known;
    for (uint32_t j = 1; j < x->nsrc; j++) {
        int64_t n = ki_extent(x->src[j]), s = ki_nest_stride(&c->nest, a, x->src[j], &known) * item;
        if (!n || !known || s <= 0 || s % CACHE_LINE) return false;
        rows *= n;
        while (s % apart) apart /= 2; /* of so many bytes each is where some row starts */
    }
    bool near = rows * ki_extent(v) * item <= NEAR;
    return near && item >= 4 && ki_masks_are_free(c) && rows * 4 <= CACHE_WAY / apart * CACHE_WAYS * 3;
}

/* Is a window better packed than read under masks? Where two multiply-adds a cycle are done a masked load takes the place of one. */
bool ki_packs_gated(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop u) {
    bool many = u && ki_extent(u) >= KI_MANY_ROWS && ki_is_gated(a);
    return many && c->target->twice && ki_may_pack(&c->nest, e, x, a, 3 * c->lanes, NULL);
}

bool ki_is_hard(const ki_nest *k, const ki_tile *t) {
    bool known;
    if (ki_word_of(k, t->streamed) != t->streamed) return true; /* it is put together */
    return (ki_is_gated(t->streamed) && !t->inner) || ki_nest_stride(k, t->streamed, t->v, &known) != 1 || !known;
}

/* Windows that were copied so that an image's rows are one loop (gates.c), a row of all positions for each term: a tile takes a part of each such
 * row, of which no vector need begin with a line. Where vectors are narrow they are packed once more. */
static bool is_copied_in_rows(const ki_choice *c, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop from = t->streamed->src[0], copy = from->op == KN_AFTER && from->nsrc > 1 ? from->src[1] : NULL;
    kn_uop store = copy && copy->op == KN_END ? ki_nest_store(copy) : NULL;
    if (!ki_is_narrow(c) || !store || !ki_is_access(store->src[1]) || ki_extent(t->v) <= t->step) return false;
    if (ki_uses(k, from, t->u) || ki_uses(k, from, t->v) || ki_word_of(k, t->streamed) != t->streamed) return false;
    return ki_terms(t->reduce) * t->step * t->mw * ki_word_bytes(k, t->streamed) <= KI_MOST_PACKED;
}

bool ki_worth_packing(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t item = ki_word_bytes(k, t->streamed), span = 0;
    bool known, hard = ki_is_hard(k, t);
    if (c->knobs.pack == 1 || t->inner) return false;
    if (t->row || !t->u) return false;
    /* Products of tiles go in parts, or, if a panel is more than a cache holds, are still the fastest as long as it has room (is_too_large). */
    bool fits = ki_is_tiled(t->reduce) ? has_size(t->reduce) && alone(k, e, t->streamed, t->u)
                                       : ki_may_pack(k, e, t->reduce, t->streamed, t->step * t->mw, t->u);
    if (!fits && !is_copied_in_rows(c, t)) return false;
    if (hard) return ki_panel_uses(k, e, t) >= KI_FEW_USES;
    if (c->knobs.pack == 2) return true;
    for (uint32_t j = 1; j < t->reduce->nsrc; j++) {
        int64_t s = ki_nest_stride(k, t->streamed, t->reduce->src[j], &known);
        if (!ki_extent(t->reduce->src[j])) return false;
        if (s < 0) s = -s;
        if (s > 1) span += s * (ki_extent(t->reduce->src[j]) - 1) * item;
    }
    return ki_extent(t->u) / t->mu >= KI_LEAST_TILES && span > FAR;
}

/* Products of tiles are done before their rows come from anywhere but a second-level cache, and a panel's line of each row of the other operand, far from
 * the next one's, would come by itself: several panels are packed side by side, as many as fit there, and a few rows go through all of them. */
bool ki_goes_by_blocks(const ki_choice *c, const ki_tile *t) {
    if (!t->pack || !t->u || t->w || !ki_is_tiled(t->reduce)) return false;
    int64_t bytes = ki_extent(t->u) * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->other);
    return ki_extent(t->v) > t->step || bytes > KI_MOST_ROWS;
}

/* Of sums that are kept: is there a loop around all of them in which what is packed does not vary? It is packed once. */
static bool is_repeated(const ki_choice *c, kn_uop e, kn_uop access) {
    const ki_scope *s = &c->nest.scope;
    for (uint32_t q = 0; q < s->nrange && ki_keeps_sums(c, e); q++)
        if (ki_is_serial(s->range[q]) && ki_extent(s->range[q]) > 1 && ki_scope_has(s, e, s->range[q]) &&
            !ki_uses(&c->nest, access, s->range[q]))
            return true;
    return false;
}

/* Are all panels packed before any is read, so that the other operand goes by once? It is more than stays in a second-level cache while a panel
 * is gone through, and they are less. */
bool ki_is_packed_whole(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    if (!t->pack || !t->u || !ki_may_pack(k, e, t->reduce, t->streamed, ki_extent(t->v), NULL)) return false;
    if (ki_is_tiled(t->reduce)) return ki_goes_by_blocks(c, t);
    if (!c->target->twice || t->row || t->w) return false;
    if (is_repeated(c, e, t->streamed)) return true;
    if (ki_extent(t->v) <= t->step) return false;
    int64_t terms = ki_terms(t->reduce), other = ki_extent(t->u) * ki_word_bytes(k, t->other);
    return other * terms >= KI_MOST_PACKED &&
           ki_extent(t->v) * terms * ki_word_bytes(k, t->streamed) <= KI_MOST_ROWS / 2;
}

bool ki_pack_before(ki_choice *c, uint32_t u, int32_t slot, bool in_rows) {
    kn_uop r = ki_nest_range(&c->nest, u), e = ki_nest_closer(&c->nest, r), before = NULL, last = NULL;
    uint32_t count, inside;
    kn_uop access = ki_nest_read_of(&c->nest, e, slot, &inside);
    ki_nest_read_of(&c->nest, c->nest.sink, slot, &count);
    if (inside > 1) access = ki_nest_read_without(&c->nest, e, slot, r);
    if (ki_last_loop(e) != r || !access) return true;
    kn_uop element = ki_word_element(access);
    bool large = element != access &&
                 ki_numel(ki_storage(element)) * (int64_t)ki_itemsize((kn_dtype)element->dtype) > KI_MOST_PACKED;
    if (count == 1 && !large && is_repeated(c, e, access))
        return ki_choice_do(c, KI_OPT_STAGE, 0, in_rows, UINT32_MAX, slot);
    for (uint32_t j = 1; j < e->nsrc && e->src[j] != r; j++) {
        last = e->src[j];
        bool varies = last->arg.range.axis == KN_AX_THREAD || (ki_extent(last) != 1 && ki_uses(&c->nest, access, last));
        if (varies) before = last;
    }
    if (!before && count > 1) /* outside all loops it must be the only one */
        before = last && ki_extent(e->src[1]) == 1 ? e->src[1] : last;
    if (!before && count > 1) return true;
    return ki_choice_do(c, KI_OPT_STAGE, 0, in_rows, before ? before->arg.range.id : UINT32_MAX, slot);
}
