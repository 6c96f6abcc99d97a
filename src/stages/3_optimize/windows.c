/* windows.c: the tile of a convolution whose filters are few beside its positions.
 *
 * Vectors go across the store, along filters, which are packed once (STAGE), and results are stored by squares (8_render/x86/square.c). The image is
 * read element by element, in place, or, where it has a border, from a frame (FRAME's top): neither strides nor where rows end matter, and what
 * is copied is copied once, where windows along an image's rows are packed once for each of their terms. The terms of a window's row are written
 * out (TERMS), so that an element serves several of them.
 *
 * Where image and results have channels innermost (layout.c), the store goes along filters as it is, and so do panels of what is no window: one
 * product for each position. At a batch they are packed once for all of it. */
#include "stages/3_optimize/dots.h"

#define MOST_PANEL   (1 << 20) /* bytes of the filters of a tile, which the second-level cache is to keep */
#define MOST_FILTERS (5 << 19) /* of all, which are packed once for a whole batch */
#define COLUMNS      8         /* that a square has, */
#define FEWEST       6         /* or, stored under a mask, at least */
#define FEW_ALONG    4         /* where nothing is turned */
/* Of the time of a convolution's multiply-adds: packing windows takes the first for each of so many filters, reading them in steps the second
 * besides, packing filters the third for each of so many positions. */
#define PACKED   9.0
#define IN_STEPS 0.12
#define TURNED   20.0

/* By how many elements of what a loop of the sum goes along is v's step, where windows of an image overlap; 0: they do not. */
static int64_t window_step(const ki_nest *k, kn_uop x, kn_uop access, kn_uop v) {
    bool known[2];
    int64_t step = ki_nest_stride(k, access, v, known);
    for (uint32_t j = 1; known[0] && step > 0 && j < x->nsrc; j++) {
        int64_t s = ki_nest_stride(k, access, x->src[j], known + 1);
        if (known[1] && s > 0 && step % s == 0 && ki_extent(x->src[j]) > step / s) return step / s;
    }
    return 0;
}

/* Do so many filters cost less to pack than windows would, for each filter, or read in steps? Both of the time of the multiply-adds. */
static bool filters_are_few(int64_t filters, int64_t positions, int64_t step) {
    double windows = PACKED / (double)filters + (step > 1 ? IN_STEPS : 0);
    return TURNED / (double)positions < windows;
}

bool ki_reads_results(const ki_nest *k, kn_uop e, kn_uop x, kn_uop filters, kn_uop columns) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = 0; i < s->at[e->id]; i++)
        if (k->read[i] && ki_scope_has(s, s->node[i], filters) && ki_scope_has(s, s->node[i], columns) &&
            !ki_varies_in(k, s->node[i], x))
            return true;
    return false;
}

bool ki_packs_once(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop v, kn_uop u) {
    const ki_nest *k = &c->nest;
    kn_uop from = ki_storage(a);
    bool machine = ki_target_takes_panels(c->target) && c->lanes == 16;
    bool free = !c->knobs.nv && !c->knobs.mu && c->knobs.pack != 1 && !ki_keeps_sums(c, e) && !ki_is_tiled(x);
    bool shared = false;
    int64_t positions = 1;
    uint32_t count;
    if (!machine || !free || !u || from->op != KN_PARAM || ki_word_of(k, a) != a || !ki_nest_store(e)) return false;
    if (ki_itemsize((kn_dtype)a->dtype) != 4 || ki_extent(v) % (2 * c->lanes) || ki_extent(v) < 1) return false;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == v) continue;
        if (ki_extent(r) < 1 || ki_scope_has(&k->scope, a, r)) return false;
        shared |= r != u && ki_is_serial(r) && ki_extent(r) > 1;
        positions *= ki_extent(r);
    }
    if (!shared || positions < KI_PANEL_POSITIONS) return false;
    ki_nest_read_of(k, k->sink, from->arg.param->slot, &count); /* STAGE wants one */
    return count == 1;
}

void ki_place_panels(const ki_choice *c, ki_tile *t) {
    int64_t bytes = ki_extent(t->v) * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed);
    t->first = bytes <= MOST_FILTERS;
    t->whole = bytes <= MOST_PANEL;
    t->outside = !t->first;
}

/* The same of a nest that stores along filters, t->v: the loop along which windows of the image overlap that is nearest to the image's rows is
 * the tile's other one. Which terms are one after the other in memory is the image's to say: channels. */
static bool tile_along_filters(ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop x = t->reduce, columns = NULL, rows, before;
    bool known, frames = ki_is_gated(t->other);
    int64_t nearest = 0, few = COLUMNS, reduces = 0;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == t->v || !ki_is_serial(r) || ki_scope_has(&k->scope, t->streamed, r)) continue;
        int64_t apart = window_step(k, x, t->other, r) ? ki_nest_stride(k, t->other, r, &known) : 0;
        if (apart > 0 && (!columns || apart < nearest)) columns = r, nearest = apart;
    }
    int64_t n = columns ? ki_extent(columns) : 0;
    while (few >= FEW_ALONG && n % few) few--;
    if (few < FEW_ALONG || n < 1 || !ki_packs_once(c, e, x, t->streamed, t->v, columns)) return false;
    if (2 * c->lanes * ki_terms(x) * ki_word_bytes(k, t->streamed) > MOST_PANEL) return false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop y = k->closer[q];
        reduces += y && y->op == KN_REDUCE && y->src[1] == k->scope.range[q];
    }
    if (reduces != 1 || (frames && !ki_frame_parts(k, e, t->other, columns, &rows, &before))) return false;
    *t = (ki_tile){.v = t->v,
                   .u = columns,
                   .reduce = x,
                   .streamed = t->streamed,
                   .other = t->other,
                   .lanes = c->lanes,
                   .mu = few,
                   .nv = 2,
                   .step = 2 * c->lanes,
                   .pack = true,
                   .frames = frames};
    ki_place_panels(c, t);
    return true;
}

bool ki_tile_windows(ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop x = t->reduce, filters = t->u, columns = t->v, store = ki_nest_store(e), rows, before,
           last = ki_last_loop(x);
    int64_t m = ki_extent(filters), n = ki_extent(columns), reduces = 0, positions = n, all = 1, few = COLUMNS;
    bool known;
    uint32_t count;
    if (!ki_target_takes_panels(c->target) || c->lanes != 16 || t->row || !store) return false;
    if (tile_along_filters(c, e, t)) return true;
    if (ki_itemsize((kn_dtype)store->src[1]->dtype) != 4 || ki_itemsize((kn_dtype)t->streamed->dtype) != 4)
        return false;
    if (c->knobs.nv || c->knobs.mu || c->knobs.pack == 1 || ki_keeps_sums(c, e) || m % (2 * c->lanes)) return false;
    while (few >= FEWEST && n % few) few--;
    if (few < FEWEST || n < 1 || m < 1 || ki_nest_stride(k, store->src[0], columns, &known) != 1 || !known)
        return false;
    int64_t step = window_step(k, x, t->streamed, columns), panel = ki_terms(x) * ki_word_bytes(k, t->other);
    kn_uop from = ki_storage(t->other);
    if (!step || !last || from->op != KN_PARAM || ki_word_of(k, t->other) != t->other) return false;
    if (ki_nest_stride(k, t->other, last, &known) != 1 || !known) return false;
    ki_nest_read_of(k, k->sink, from->arg.param->slot, &count); /* STAGE wants one */
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop y = k->closer[q];
        reduces += y && y->op == KN_REDUCE && y->src[1] == k->scope.range[q];
    }
    bool inside = false; /* filters' loop: there a panel is packed once */
    for (uint32_t j = 1; j < e->nsrc; j++) {
        inside |= e->src[j] == filters;
        if (e->src[j] == columns || ki_scope_has(&k->scope, t->other, e->src[j])) continue;
        if (inside) positions *= ki_extent(e->src[j]);
        else all *= ki_extent(e->src[j]);
    }
    bool whole = all > 1 && m * panel <= MOST_FILTERS;
    if (reduces != 1 || count != 1 || 2 * c->lanes * panel > MOST_PANEL) return false;
    if (!filters_are_few(m, whole ? positions * all : positions, step)) return false;
    /* That comes by squares, too, of COLUMNS. */
    if (few < COLUMNS && ki_reads_results(k, e, x, filters, columns)) return false;
    bool frames = ki_is_gated(t->streamed);
    if (frames && !ki_frame_parts(k, e, t->streamed, columns, &rows, &before)) return false;
    *t = (ki_tile){.v = filters,
                   .u = columns,
                   .reduce = x,
                   .streamed = t->other,
                   .other = t->streamed,
                   .taps = x->nsrc > 2 && ki_extent(last) <= KI_MOST_TAPS ? last : NULL,
                   .lanes = c->lanes,
                   .mu = few,
                   .nv = 2,
                   .step = 2 * c->lanes,
                   .pack = true,
                   .turned = true,
                   .frames = frames,
                   .first = whole};
    return true;
}
