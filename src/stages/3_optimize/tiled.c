/* tiled.c: a tile's steps: loops in order and in blocks, extents that it divides, lanes, panels.
 *
 * One step at a time while loops are put right, after which the nest is looked at anew (ki_choose_nest); all lanes at once at the end. A CUT leaves two nests
 * under the loops around it, so u is cut while it stands outside v, and v while it stands outside u. */
#include "stages/3_optimize/tile.h"

#define MOST_BLOCK (5 << 17) /* bytes of a block of rows that is gone through twice */
#define ROWS       8         /* tiles of such a block, at least */
#define DOT_BLOCK                                                                                                      \
    (5                                                                                                                 \
     << 15) /* bytes of rows that stay in a second-level cache while tiles of others go by, and how many rows at least */
#define LEAST_DOTS  8
#define MOST_WINDOW 3 /* places along one axis of a window */

static bool swap(ki_choice *c, kn_uop a, kn_uop b) {
    ki_choice_do(c, KI_OPT_SWAP, 0, false, a->arg.range.id, b->arg.range.id);
    return true;
}

/* Bytes of the words of the other operand, for all rows, of products of tiles for those of one, if they lie apart in memory: they are packed too. 0: they
 * do not. */
static int64_t apart_bytes(ki_choice *c, const ki_tile *t) {
    bool packs = t->pack && ki_storage(t->other)->op == KN_PARAM && ki_is_split_word(&c->nest, t->other);
    int64_t rows = !packs ? 0 : ki_is_tiled(t->reduce) ? t->mu : ki_extent(t->u);
    return rows ? rows * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->other) : 0;
}

/* Words of the other operand of which each sign is turned (dots.c): once for a tile's rows, and not at each use of each. */
static bool turns_words(const ki_choice *c, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    return t->pack && t->u && !t->row && !ki_is_tiled(t->reduce) && ki_storage(t->other)->op == KN_PARAM &&
           ki_word_of(k, t->other)->op == KN_XOR;
}

/* The loop r in n blocks, their loop around the other one. True. */
static bool put_blocks(ki_choice *c, kn_uop e, kn_uop r, int64_t n, kn_uop other) {
    uint32_t id = other->arg.range.id, outer = ki_nest_next_range(&c->nest);
    bool inside = ki_place_in(e, other) < ki_place_in(e, r);
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)r->arg.range.axis, true, r->arg.range.id, n) && inside)
        ki_choice_do(c, KI_OPT_SWAP, 0, false, id, outer);
    return true;
}

/* Where these are more than a cache holds, rows are taken in blocks: the loop over blocks goes around the panels. True if a step was
 * made. */
static bool block_rows(ki_choice *c, const ki_tile *t) {
    int64_t all = apart_bytes(c, t), n = t->u ? ki_extent(t->u) : 0, f = 2;
    if (all <= KI_MOST_ROWS || n % (t->mu * ROWS) || n == t->mu * ROWS || !ki_nest_independent(&c->nest, t->v))
        return false;
    while (n % (f * t->mu * ROWS) || (all / f > KI_MOST_ROWS && f * t->mu * ROWS < n)) f++;
    uint32_t outer = ki_nest_next_range(&c->nest), v = t->v->arg.range.id;
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, true, t->u->arg.range.id, f))
        ki_choice_do(c, KI_OPT_SWAP, 0, false, v, outer);
    return true;
}

/* Panels of products of tiles in blocks, the loop over blocks outermost. True if a step was made. */
static bool block_panels(ki_choice *c, kn_uop e, const ki_tile *t) {
    int64_t n = ki_extent(t->v) / t->step, f = n;
    if (t->whole || ki_extent(t->v) % t->step || !ki_goes_by_blocks(c, t)) return false;
    while (f > 1 && (n % f || !ki_may_pack(&c->nest, e, t->reduce, t->streamed, f * t->step, NULL))) f--;
    return f > 1 && ki_nest_independent(&c->nest, t->v) && put_blocks(c, e, t->v, n / f, t->u);
}

/* Products of rows by rows, both of which lie along the sum, where a second-level cache is small: a block of the streamed rows stays in it, and a
 * tile's rows of the others, more of which a tile has, in the first one while they go by. Else all of these went by for each tile. True if a step
 * was made. */
static bool block_dots(ki_choice *c, kn_uop e, const ki_tile *t) {
    int64_t row = ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed), n = ki_extent(t->v), f = DOT_BLOCK / row;
    if (!c->target->twice || !ki_is_narrow(c) || !t->row || !t->u || t->parts) return false;
    if (t->mu < t->nv || row * ki_extent(t->u) <= DOT_BLOCK || row * n <= 2 * DOT_BLOCK) return false;
    if (!ki_nest_independent(&c->nest, t->v) || !ki_nest_independent(&c->nest, t->u)) return false;
    while (f > 1 && (n % f || f % t->nv)) f--;
    return f >= LEAST_DOTS && put_blocks(c, e, t->v, n / f, t->u);
}

/* What is cut off goes through the whole of the other operands again (column.c): where they are more than a second-level cache holds, main
 * part and rest take them block by block, under one loop. Panels would be packed for each block again: only one is. True if a step was made. */
static bool block_cut(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t row = 0, n = t->u ? ki_extent(t->u) : 0, f = n;
    int64_t rest = ki_extent(t->v) % t->step;
    if (t->row || (t->pack && !t->cut) || rest < 1 || rest > KI_FEW_COLUMNS || !ki_nest_independent(k, t->v))
        return false;
    for (uint32_t i = 0; i < k->scope.at[e->id]; i++) {
        kn_uop x = k->scope.node[i];
        if (x->op == KN_REDUCE && x->nsrc > 1 && ki_uses(k, x, t->u))
            row += ki_terms(x) * (int64_t)ki_itemsize((kn_dtype)x->dtype);
    }
    if (n * row <= KI_MOST_PACKED) return false;
    while (f > 1 && (n % f || f % t->mu || f * row > MOST_BLOCK)) f--;
    if (f * f < n || f % t->mu) return false; /* the longer loop is the tile's */
    return put_blocks(c, e, t->u, n / f, t->v);
}

/* Of an extent that the tile does not divide the last part may begin earlier: no nest for what is left, but some of it twice. Not of what is
 * framed, or packed for several parts: it lies as its addresses say. A product of tiles takes as long as two rows of it by other instructions. */
static bool laps(const ki_choice *c, const ki_tile *t, kn_uop r, int64_t part) {
    int64_t n = ki_extent(r), twice = n % part ? part - n % part : 0;
    bool framed = t->frames || t->taps;
    bool pays = ki_is_tiled(t->reduce) || twice * ki_least_lapped(&c->nest, t, r) <= n;
    return twice && n > part && pays && !framed && ki_nest_laps(&c->nest, r);
}
static bool laps_rows(ki_choice *c, const ki_tile *t) {
    return t->u && laps(c, t, t->u, t->mu) && (ki_is_tiled(t->reduce) || !apart_bytes(c, t));
}
static bool laps_columns(const ki_choice *c, const ki_tile *t) {
    bool long_enough = t->row || t->cut || ki_extent(t->v) >= KI_SHORT * t->lanes || ki_is_tiled(t->reduce);
    bool in_lines = !ki_goes_past(c, t); /* what begins within a line is not stored past the caches */
    if (t->cut && ki_leaves_vectors(c, t, ki_extent(t->v), t->step)) return false; /* less than a tile done twice */
    bool whole = t->whole && !ki_is_tiled(t->reduce);
    return long_enough && in_lines && !whole && !t->first && !t->parts && laps(c, t, t->v, t->step);
}

/* Extents that the tile divides. True if a step was made. */
static bool even_out(ki_choice *c, kn_uop e, const ki_tile *t) {
    bool outer = t->u && ki_place_in(e, t->u) < ki_place_in(e, t->v);
    int64_t n = ki_extent(t->v), unit = t->mu;
    if (apart_bytes(c, t) > KI_MOST_ROWS && ki_extent(t->u) > t->mu * ROWS) unit *= ROWS;
    if (t->u && ki_extent(t->u) % unit && !laps_rows(c, t))
        return outer ? ki_choice_even(c, t->u, unit) : swap(c, t->u, t->v);
    if (t->inner && !t->cut && n % t->step) return ki_choice_do(c, KI_OPT_PADTO, 0, false, t->v->arg.range.id, t->step);
    bool cuts = t->row ? n % t->nv : (t->cut || n >= KI_SHORT * t->lanes) && n % t->step, over = laps_columns(c, t);
    cuts = cuts && !over;
    if (cuts && block_cut(c, e, t)) return true;
    if (cuts && outer) return swap(c, t->u, t->v);
    if (t->row || t->cut ? cuts && ki_choice_even(c, t->v, t->step) : n > 1 && !over && ki_choice_fit(c, t->v, t->nv))
        return true;
    if (t->row && ki_choice_fit(c, t->row, 1)) return true;
    kn_uop last = ki_last_loop(e), inner = t->whole ? t->v : t->u;
    return t->pack && last != inner && ki_nest_independent(&c->nest, last) && swap(c, inner, last);
}

/* Of two operands that are both read in place, the inner one of the loops u and v goes over the smaller: what is read again is at
 * hand. A window reads an element once for all of its terms. True if a step was made. */
static bool order_operands(ki_choice *c, kn_uop e, const ki_tile *t) {
    int64_t over_v = ki_extent(t->v), over_u = ki_terms(t->reduce) * ki_extent(t->u);
    for (uint32_t j = 1; j < t->reduce->nsrc; j++)
        if (!ki_is_gated_by(&c->nest, t->streamed, t->reduce->src[j])) over_v *= ki_extent(t->reduce->src[j]);
    bool inside = ki_place_in(e, t->u) > ki_place_in(e, t->v);
    return inside != (over_u < over_v && !ki_stores_by_rows(c, e, t)) && swap(c, t->u, t->v);
}

/* What is packed outside all loops of its nest, where another nest reads it too: a loop that runs once is put around them. */
static bool put_once(ki_choice *c, uint32_t v, int32_t slot) {
    kn_uop r = ki_nest_range(&c->nest, v), e = ki_nest_closer(&c->nest, r), access;
    uint32_t inside, count;
    access = ki_nest_read_of(&c->nest, e, slot, &inside);
    ki_nest_read_of(&c->nest, c->nest.sink, slot, &count);
    for (uint32_t j = 1; j < e->nsrc && e->src[j] != r; j++)
        if (e->src[j]->arg.range.axis == KN_AX_THREAD || ki_uses(&c->nest, access, e->src[j])) return true;
    kn_uop first = e->src[1];
    return count < 2 || ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)first->arg.range.axis, true, first->arg.range.id, 1);
}

/* Panels of which each is packed once: their loop goes around all that is no thread's, but where the other one must, to be cut. True if a step
 * was made. */
static bool put_outside(ki_choice *c, kn_uop e, const ki_tile *t) {
    uint32_t j = 1;
    if (!t->outside || (t->u && ki_extent(t->u) % t->mu && !laps_rows(c, t))) return false;
    while (e->src[j] != t->v && e->src[j]->arg.range.axis == KN_AX_THREAD) j++;
    return e->src[j] != t->v && ki_nest_independent(&c->nest, e->src[j]) && swap(c, e->src[j], t->v);
}

/* An image with channels innermost is framed as it lies: the sum's loop along them is its innermost, and the others stand as the filters lie, so
 * that a filter's window is packed as one row. True if a step was made. */
static bool channels_inside(ki_choice *c, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop x = t->reduce, last = ki_last_loop(x);
    bool known[2];
    if (!t->frames || t->turned || !last) return false;
    for (uint32_t j = 1; j < x->nsrc; j++)
        if (x->src[j] != last && ki_nest_stride(k, t->other, x->src[j], known) == 1 && known[0])
            return swap(c, x->src[j], last);
    for (uint32_t j = 1; j + 1 < x->nsrc && x->src[j + 1] != last; j++)
        if (ki_nest_stride(k, t->streamed, x->src[j], known) <
                ki_nest_stride(k, t->streamed, x->src[j + 1], known + 1) &&
            known[0] && known[1])
            return swap(c, x->src[j], x->src[j + 1]);
    return false;
}

/* Rows of a product of whole tiles, too long to stay while all panels go by: the sum goes in parts (ki_part_of_tiles) around loop `id`, or, where that
 * would keep too much, in each tile. Tiles begin as what is kept (5_select/tiles.c), so terms are added in the order in which they were. What is decided
 * does not hang on how many panels or rows a thread has. */
static bool block_sum(ki_choice *c, const ki_tile *t, int64_t part, uint32_t sum, uint32_t id) {
    kn_uop other = ki_nest_range(&c->nest, id);
    kn_uop e = ki_nest_closer(&c->nest, other);
    int64_t kept = ki_extent(other) * t->mu * t->step * (int64_t)ki_itemsize((kn_dtype)t->reduce->dtype);
    for (uint32_t j = 1; kept > KI_MOST_KEPT && j < e->nsrc && !ki_is_lane(other); j++) other = e->src[j];
    if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, sum, part)) return false;
    uint32_t first = ki_nest_next_range(&c->nest);
    ki_choice_rows(c, ki_nest_range(&c->nest, sum), other, 1, true);
    for (uint32_t i = first; c->ok && i < ki_nest_next_range(&c->nest); i++) {
        kn_uop made = ki_nest_range(&c->nest, i);
        if (made) ki_choice_mark(c, ki_nest_closer(&c->nest, made));
    }
    return c->ok;
}

/* Are all panels of a strip of columns (strips.c) packed at once, a row of it after the other? Where vectors are narrow: a panel's piece of a row is a
 * line and a half, and what is read in such pieces, far from each other, nobody fetches ahead. The next row is asked for (prefetch.c). */
static bool packs_strip(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool known, along = ki_nest_stride(k, t->streamed, t->v, &known) == 1 && known;
    int64_t bytes = ki_extent(t->v) * ki_terms(t->reduce) * ki_word_bytes(k, t->streamed);
    return t->pack && ki_is_narrow(c) && along && ki_keeps_sums(c, e) && ki_place_in(e, t->v) > 1 &&
           ki_extent(t->v) > t->step && bytes <= KI_MOST_ROWS;
}

static bool pack_strip(ki_choice *c, uint32_t u, uint32_t v, int32_t slot) {
    kn_uop rows = ki_nest_range(&c->nest, u), r = ki_nest_range(&c->nest, v), e = ki_nest_closer(&c->nest, r);
    uint32_t at = ki_place_in(e, r), other = ki_place_in(e, rows);
    kn_uop part = e->src[(at < other ? at : other) - 1];
    uint32_t panels = ki_nest_next_range(&c->nest);
    return ki_choice_do(c, KI_OPT_STAGE, 0, false, part->arg.range.id, slot) &&
           ki_choice_do(c, KI_OPT_SWAP, 0, false, panels, panels + 1);
}

/* Loops that say which of a copy's lanes are read, as those along a window, are lanes too where vectors are narrow, if they are few: else they stand
 * around all others (stage.c), and each channel's rows, far from the next one's, come by once for each of them. first: the copy's first loop. */
static void copy_windows(ki_choice *c, uint32_t first) {
    const ki_nest *k = &c->nest;
    for (uint32_t id = first, end = ki_nest_next_range(k); c->ok && ki_is_narrow(c) && id < end; id++) {
        kn_uop r = ki_nest_range(k, id), e = r ? ki_nest_closer(k, r) : NULL, store = e ? ki_nest_store(e) : NULL;
        if (!store || !ki_is_serial(r) || !ki_is_access(store->src[1]) || ki_extent(r) > MOST_WINDOW) continue;
        if (ki_is_gated_by(k, store->src[1], r)) ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, id, ki_extent(r));
    }
}

static ki_part part(kn_axis to, uint32_t id, int64_t n) { return (ki_part){to, id, n < 2 ? 0 : n}; }

static ki_part along(const ki_choice *c, kn_uop row) {
    return part(KN_AX_UNROLL, row->arg.range.id, ki_lanes_for(c, ki_extent(row)));
}

bool ki_apply_tile(ki_choice *c, kn_uop e, const ki_tile *t) {
    uint32_t u = t->u ? t->u->arg.range.id : 0, v = t->v->arg.range.id, w = t->w ? t->w->arg.range.id : 0;
    c->tile.v = v + 1;
    c->tile.mu = t->mu;
    c->tile.nv = t->nv;
    c->tile.mw = t->mw;
    c->tile.cut = t->cut;
    c->tile.parts = t->parts;
    ki_tile also[KI_MOST_ALSO];
    int32_t slot[KI_MOST_ALSO + 2];
    uint32_t n = ki_other_sums(c, e, t, false, also), panels = 0;
    if (put_outside(c, e, t) || channels_inside(c, t) || !c->ok) return c->ok;
    if (t->frames && ki_frame_all(c, e, t->other, t->u)) return c->ok;
    if (!t->row && !t->turned && ki_join_rows(c, e, t->v)) return c->ok;
    if (t->inner && ki_lift_gate(c, t->reduce, t->inner)) return c->ok;
    for (uint32_t i = 0; i < n; i++)
        if (also[i].inner && ki_lift_gate(c, also[i].reduce, also[i].inner)) return c->ok;
    if (even_out(c, e, t) || !c->ok) return c->ok;
    for (uint32_t i = 0; i < n; i++)
        if (also[i].row && ki_choice_fit(c, also[i].row, 1)) return c->ok;
    bool again, free = t->inner || (t->u && !t->pack && !ki_keeps_rows(&c->nest, e, t->streamed, &again));
    if (block_dots(c, e, t)) return c->ok;
    if (free && order_operands(c, e, t)) return c->ok;
    if (block_rows(c, t) || block_panels(c, e, t)) return c->ok;
    if (t->pack) slot[panels++] = ki_slot_of(ki_storage(t->streamed));
    for (uint32_t i = 0; i < n; i++)
        if (ki_worth_packing(c, e, &also[i])) slot[panels++] = ki_slot_of(ki_storage(also[i].streamed));
    int64_t apart = apart_bytes(c, t);
    bool by_strips = apart && apart <= KI_MOST_PACKED && ki_is_tiled(t->reduce);
    int32_t other = apart ? ki_storage(t->other)->arg.param->slot : 0;
    if (apart && apart <= KI_MOST_ROWS && !by_strips) slot[panels++] = other;
    int32_t turned = !apart && turns_words(c, t) ? ki_storage(t->other)->arg.param->slot : -1;
    ki_part lanes[KI_MOST_ALSO + 6] = {part((kn_axis)t->v->arg.range.axis, v, t->parts ? ki_extent(t->v) / t->nv : 0),
                                       part(KN_AX_UPCAST, u, t->mu), part(KN_AX_UPCAST, w, t->mw),
                                       part(KN_AX_UPCAST, v, t->lanes), part(KN_AX_UPCAST, v, t->nv)};
    uint32_t m = 5;
    if (t->row) lanes[m++] = along(c, t->row);
    bool over_u = laps_rows(c, t), over_v = laps_columns(c, t), strip = packs_strip(c, e, t);
    ki_choice_mark(c, e);
    ki_choice_mark(c, t->reduce);
    for (uint32_t i = 0; i < n; i++) {
        if (also[i].row) lanes[m++] = along(c, also[i].row);
        ki_choice_mark(c, also[i].reduce);
    }
    int64_t piece = by_strips ? 0 : ki_part_of_tiles(c, t); /* a copied strip is near */
    uint32_t steps = t->reduce->src[1]->arg.range.id;
    uint32_t sum[KI_MAX_RANK], sums = 0, taps = t->taps ? t->taps->arg.range.id : UINT32_MAX;
    bool copied = t->pack || ki_storage(t->streamed)->op == KN_BUFFER; /* as the sums go */
    for (uint32_t j = t->reduce->nsrc; copied && j-- > 1 && sums < KI_MAX_RANK;)
        sum[sums++] = t->reduce->src[j]->arg.range.id;
    uint32_t inside = ki_nest_next_range(&c->nest);
    if (over_v && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, v, t->step)) return false;
    if (over_v) lanes[3] = part(KN_AX_UPCAST, inside, t->nv > 1 ? t->lanes : 0), lanes[4].n = 0;
    if (over_u && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, u, t->mu)) return false;
    if (over_u) lanes[1].n = 0;
    if (!ki_choice_split(c, lanes, m)) return false;
    for (uint32_t i = 0; i < panels; i++)
        if (t->first ? !ki_choice_do(c, KI_OPT_STAGE, 0, false, UINT32_MAX, slot[i])
            : strip && i == 0
                ? !pack_strip(c, u, v, slot[i])
                : (t->whole && !put_once(c, v, slot[i])) || !ki_pack_before(c, t->whole ? v : u, slot[i], false))
            return false;
    copy_windows(c, inside);
    if (by_strips && !ki_choice_do(c, KI_OPT_STAGE, 0, false, u, other)) return false;
    if (turned >= 0 && !ki_choice_do(c, KI_OPT_STAGE, 0, true, u, turned)) return false;
    for (uint32_t i = 0; i < sums && c->ok; i++) ki_join_sums(c, sum[i]);
    if (c->ok && piece && !block_sum(c, t, piece, steps, t->whole ? v : u)) return false;
    if (c->ok && taps != UINT32_MAX) ki_choice_do(c, KI_OPT_TERMS, 0, false, taps, 0);
    return c->ok;
}
