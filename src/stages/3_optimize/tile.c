/* tile.c: register tiles of matrix products, convolutions and their like. choose.h says what a tile is.
 *
 * A streamed operand that is not contiguous along v, or is read under a gate, or from far apart, again for every tile of u,
 * is packed first (STAGE); u is the innermost loop then, so that one panel serves all of it. A CUT leaves two nests under
 * the loops around it, so u is cut while it stands outside v, and v while it stands outside u. */
#include "stages/3_optimize/dots.h"

#include <math.h>

#define MOST_PACKED  (1 << 20) /* bytes: a panel should stay in a core's second-level cache */
#define MOST_ROWS    (1 << 19) /* bytes of a block of rows that is packed, beside a panel */
#define MOST_BLOCK   (5 << 17) /* bytes of a block of rows that is gone through twice */
#define ROWS         8         /* tiles of such a block, at least */
#define MANY_SUMS    20 /* accumulators: with fewer, what is loaded takes time where two multiply-adds a cycle are done */
#define FEW_ROWS     4   /* of a tile: with fewer, a panel's vectors take longer to come than to multiply */
#define PANEL_ROWS   6   /* of one whose panels are packed once for all of a batch */
#define FEW_USES     8   /* of a panel: fewer are not worth packing it */
#define MANY_ROWS    32  /* times a tile's, beside which the nest of what is left takes little */
#define EVEN         8   /* rows that leave no nest of a few, which would add up the last columns otherwise */
#define ACROSS_LANES 4   /* additions that a sum across lanes is like */
#define MANY_TERMS   256 /* of a sum: beside them a store of lanes one by one is nothing */
#define MOST_ALSO    4
#define CACHE_LINE   64
#define CACHE_WAY                                                                                                      \
    (1 << 16) /* bytes of the second-level cache that hold one line of each set, and how often it has them */
#define CACHE_WAYS 16
#define NEAR                                                                                                           \
    (1 << 22) /* bytes of an operand that the caches are likely to have: what comes from memory is better read ahead */
#define FIRST_LEVEL (1 << 15) /* bytes of a panel that stay in the first-level cache */
#define WIDE        4         /* vectors */
#define FAR         (1 << 14) /* bytes of memory that a panel may span and still be read in place */
#define SQUARE      8         /* columns that are stored as rows (square.c) */
#define MOST_APART  4         /* elements between two that one vector of results goes to */
#define LONG_ROW    (3 << 12) /* bytes: a vector as long, and what goes by, is more than the first-level cache keeps */
#define LEAST_LAPPED                                                                                                   \
    20 /* of an extent, as many as are done twice: a nest for what is left takes no longer than a twentieth */
#define STREAMS 4 /* parts of a matrix that are read beside each other; of several that take turns twice as many */

/* The store's contiguous range, or, apart[0] > 1, what comes nearest to one: every second, third, fourth element. */
static kn_uop vector_range(const ki_choice *c, kn_uop e, int64_t *apart) {
    kn_uop s = ki_nest_store(e), best = NULL;
    bool known;
    for (uint32_t j = 1; s && j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_is_serial(r) ? ki_extent(r) : 0, d = n ? ki_nest_stride(&c->nest, s->src[0], r, &known) : 0;
        if (d < 1 || !known || d > MOST_APART || (d > 1 && !ki_lanes_for(c, n))) continue;
        bool better = !best || (n > 1 && (ki_extent(best) == 1 || d < *apart));
        if (better && ki_nest_independent(&c->nest, r)) best = r, *apart = d;
    }
    return best;
}

/* By its index or, a row the kernel keeps, by what stands in it. */
static bool uses(const ki_nest *k, kn_uop access, kn_uop r) { return ki_scope_has(&k->scope, access, r); }

static bool lanes_in(const ki_nest *k, kn_uop x) {
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_is_lane(k->scope.range[q]) && ki_scope_has(&k->scope, x->src[0], k->scope.range[q])) return true;
    return false;
}

int64_t ki_terms(kn_uop x) {
    int64_t n = ki_is_tiled(x) ? 16 : 1;
    for (uint32_t j = 1; j < x->nsrc; j++) n *= ki_extent(x->src[j]) ? ki_extent(x->src[j]) : 64;
    return n;
}

/* A loop of x along which both operands are contiguous and as long as a vector, or nearly. */
static kn_uop common_row(const ki_choice *c, kn_uop x, kn_uop a, kn_uop b) {
    for (uint32_t j = 1; j < x->nsrc; j++) {
        kn_uop r = x->src[j];
        int64_t n = ki_extent(r);
        if (n * 2 < c->lanes || (n < c->lanes && ki_lanes_for(c, n) != n)) continue;
        if (ki_reads_row(&c->nest, a, r) && ki_reads_row(&c->nest, b, r)) return r;
    }
    return NULL;
}

kn_uop ki_apart(const ki_nest *k, kn_uop e, kn_uop has, kn_uop lacks, kn_uop v, kn_uop u) {
    kn_uop best = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == v || r == u || !ki_is_serial(r) || ki_extent(r) < 2) continue;
        if (!uses(k, has, r) || uses(k, lacks, r) || !ki_nest_independent(k, r)) continue;
        bool older = best && ki_extent(r) == ki_extent(best) && r->arg.range.id < best->arg.range.id;
        if (!best || u || ki_extent(r) > ki_extent(best) || older) best = r;
    }
    return best;
}

/* Does e read rows that its loops fill, other than sums that it carries, and, *again, what access reads in another place? */
static bool keeps_rows(const ki_nest *k, kn_uop e, kn_uop access, bool *again) {
    const kn_uop *node;
    kn_uop own = ki_word_of(k, access), to = e->src[0]->op == KN_STORE ? ki_storage(e->src[0]->src[0]) : NULL;
    bool rows = false;
    int64_t n = ki_reach_above(k->ir, &e, 1, 0, &node);
    *again = n < 0;
    for (int64_t i = 0; i < n; i++) {
        kn_uop s = k->read[k->scope.at[node[i]->id]] ? ki_storage(node[i]) : NULL;
        kn_uop word = ki_word_of(k, node[i]);
        bool other = word != own && (own == access || word != node[i]); /* single elements beside a word stay */
        *again |= s && other && s == ki_storage(access);
        rows |= s && s->op == KN_BUFFER && s != to && ki_varies_in(k, node[i]->src[0], e);
    }
    return rows;
}

/* STAGE wants the operand read in one place of the nest, or in one that u, the innermost loop then, leaves where it is. Where the nest keeps rows, u must stay outside v, or they would be
 * filled again for each tile. */
static bool alone(const ki_nest *k, kn_uop e, kn_uop access, kn_uop u) {
    bool again, rows = keeps_rows(k, e, access, &again);
    kn_uop p = ki_storage(access);
    if (p->op != KN_PARAM || rows) return false;
    return !again || (u && ki_nest_read_without(k, e, p->arg.param->slot, u) == access);
}

/* How often the panel is read once it is packed: iterations of the loops it does not vary in, for all threads, so that none adds up otherwise. */
static int64_t uses_of_panel(const ki_nest *k, kn_uop e, const ki_tile *t) {
    int64_t n = 1;
    for (uint32_t j = 1; j < e->nsrc && n < 1 << 20; j++)
        if (!ki_is_lane(e->src[j]) && ki_extent(e->src[j]) && !uses(k, t->streamed, e->src[j]))
            n *= ki_extent(e->src[j]);
    return n;
}

/* May x's operand a be packed in panels of n lanes? u: for each of which all of that loop goes by, NULL: it is packed otherwise. */
static bool may_pack(const ki_nest *k, kn_uop e, kn_uop x, kn_uop a, int64_t n, kn_uop u) {
    return ki_terms(x) * n * ki_word_bytes(k, a) <= MOST_PACKED && alone(k, e, a, u);
}

/* What is done with each sum x before it is stored, in additions. */
static int64_t work_after(const ki_nest *k, kn_uop e, kn_uop x) {
    const ki_scope *s = &k->scope;
    uint8_t *after = ki_calloc(s->n, 1);
    int64_t work = 0;
    for (uint32_t i = s->at[x->id] + 1; after && i <= s->at[e->id]; i++) {
        kn_uop u = s->node[i];
        for (uint32_t j = 0; j < u->nsrc; j++) after[i] |= u->src[j] == x || after[s->at[u->src[j]->id]];
        if (after[i]) work += ki_weight(u);
    }
    ki_free(after);
    return work;
}

/* Do a panel's rows start at whole cache lines and stay in the second-level cache together? Then nothing is gained by packing,
 * where masks make the last vectors of a row cost nothing. Narrow elements are packed to words (dots.c). */
static bool fits_in_place(const ki_choice *c, kn_uop x, kn_uop a, kn_uop v) {
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
static bool packs_gated(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop u) {
    bool many = u && ki_extent(u) >= MANY_ROWS && ki_is_gated(a);
    return many && c->target->twice && may_pack(&c->nest, e, x, a, 3 * c->lanes, NULL);
}

/* Can threads deal out the nest without cutting u, so that what is left of it, where a panel has few uses, is none that adds up otherwise?
 * There is a loop that both operands have, or vectors fill all that a has beside the sum, whatever was cut off since. */
static bool keeps_rows_whole(const ki_choice *c, kn_uop x, kn_uop a, kn_uop b) {
    return ki_numel(ki_storage(a)) % (ki_terms(x) * c->lanes) == 0 || ki_nest_shared(&c->nest, a, b) > 1;
}

/* Of the loops that b uses and a does not, the one whose rows of b are nearest to each other, if a tile fits in: u, the longest, may go from image
 * to image. */
static kn_uop row_of_image(const ki_nest *k, kn_uop e, kn_uop b, kn_uop a, kn_uop v, kn_uop u) {
    bool known;
    int64_t least = ki_nest_stride(k, b, u, &known);
    for (uint32_t j = 1; known && j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_extent(r), apart = ki_nest_stride(k, b, r, &known);
        if (!known || r == v || !ki_is_serial(r) || n < FEW_ROWS || uses(k, a, r) || !uses(k, b, r)) continue;
        if (apart > 0 && apart < least && ki_nest_independent(k, r)) least = apart, u = r;
    }
    return u;
}

/* Streamed operand a, other operand b: is there a u? */
static bool pair(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop b, ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool known;
    if (a == b || !uses(k, a, t->v) || uses(k, b, t->v)) return false;
    kn_uop u = ki_apart(k, e, b, a, t->v, NULL);
    int64_t n = ki_extent(t->v), lanes = ki_lanes_for(c, n), stride = ki_nest_stride(k, a, t->v, &known);
    kn_uop row = common_row(c, x, a, b);
    /* along the reduce if v's own way gathers, or would fill little of its vectors */
    bool poor = !known || stride != 1 || lanes == 0 || (n < c->lanes && n * 3 < lanes * 2);
    if (row && !(poor && ki_terms(x) >= 4 * c->lanes)) row = NULL;
    t->streamed = a;
    if (row && u && lanes && ki_keeps_sums(c, e) && may_pack(k, e, x, a, lanes, NULL)) row = NULL;
    int64_t after =
        c->target->twice && keeps_rows_whole(c, x, a, b) ? ACROSS_LANES : 0; /* and what is done with each sum */
    if (row && u && lanes && uses_of_panel(k, e, t) * (after + work_after(k, e, x)) > 2 * ki_terms(x) &&
        may_pack(k, e, x, a, lanes, u))
        row = NULL;
    if (row && u && lanes && may_pack(k, e, x, a, lanes, u) && ki_packs_once(c, e, x, a, t->v, u)) row = NULL;
    if (!row && n == 1) lanes = 1; /* a CUT left it */
    if (!row && (lanes == 0 || !u)) return false;
    if (!row && u && ki_packs_once(c, e, x, a, t->v, u)) u = row_of_image(k, e, b, a, t->v, u);
    t->u = u, t->reduce = x, t->other = b, t->row = row;
    t->lanes = row ? 1 : lanes;
    t->w = t->inner = NULL;
    bool plain = ki_word_of(k, a) == a;
    if (!row && plain && known && stride == 1 && !packs_gated(c, e, x, a, u))
        t->inner = ki_is_gated(a) ? ki_ungated(k, x, a) : fits_in_place(c, x, a, t->v) ? ki_last_loop(x) : NULL;
    if (!row && n <= lanes) t->w = ki_apart(k, e, a, b, t->v, u);
    if (t->w && ki_nest_stride(k, ki_nest_store(e)->src[0], t->w, &known) == 0) t->w = NULL;
    return true;
}

/* Registers a vector of n lanes takes. */
static int64_t pieces(const ki_choice *c, int64_t n) {
    int64_t bits = n / c->lanes;
    for (n %= c->lanes; n > 0; n &= n - 1) bits++;
    return bits;
}

/* Is the streamed operand no plain row along v? Then it must be packed. */
static bool is_hard(const ki_nest *k, const ki_tile *t) {
    bool known;
    if (ki_word_of(k, t->streamed) != t->streamed) return true; /* it is put together */
    return (ki_is_gated(t->streamed) && !t->inner) || ki_nest_stride(k, t->streamed, t->v, &known) != 1 || !known;
}

/* Other sums of products that the tile's loops are around: they share its lanes. Their number in also[]. */
static uint32_t other_sums(const ki_choice *c, kn_uop e, const ki_tile *t, ki_tile also[MOST_ALSO]) {
    const ki_scope *s = &c->nest.scope;
    uint32_t n = 0;
    for (uint32_t q = 0; q < s->nrange && n < MOST_ALSO; q++) {
        kn_uop x = c->nest.closer[q];
        if (!x || x == t->reduce || x->op != KN_REDUCE || x->src[1] != s->range[q] || x->id > e->id) continue;
        if (!ki_scope_has(s, x, t->v) || lanes_in(&c->nest, x)) continue;
        bool found = false;
        const kn_uop *a = c->nest.reads;
        for (uint32_t i = 0; i < c->nest.nreads && !found; i++)
            for (uint32_t j = 0; j < c->nest.nreads && !found && ki_varies_in(&c->nest, a[i], x); j++) {
                also[n] = *t;
                found = ki_varies_in(&c->nest, a[j], x) && pair(c, e, x, a[i], a[j], &also[n]) && also[n].u == t->u &&
                        !also[n].row == !t->row;
            }
        n += found;
    }
    return n;
}

/* A matrix times a vector, which memory bounds: one row after the other is how it lies, and what the hardware fetches ahead. Several rows
 * beside each other pay from the caches, where one sum's chain of additions is slower than they are. From memory they are rows of as many
 * parts of the matrix, so that each goes on where it was: where rows are so long that the vector is not in the first-level cache when
 * it is its turn again, and where rows of several matrices take turns, so that none is fetched ahead while another one is read. */
static bool is_read_once(const ki_choice *c, const ki_tile *t) {
    kn_uop from = ki_storage(t->streamed);
    if (!t->row || t->u || ki_is_tiled(t->reduce) || from->op != KN_PARAM || c->target->vector < 32) return false;
    return ki_numel(from) * (int64_t)ki_itemsize((kn_dtype)from->dtype) >= MOST_PACKED;
}

/* Does it say how many rows? */
static bool goes_along_memory(const ki_choice *c, kn_uop e, ki_tile *t) {
    ki_tile also[MOST_ALSO];
    bool far = ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed) >= LONG_ROW;
    if (!is_read_once(c, t)) return false;
    int64_t n = other_sums(c, e, t, also) ? 2 * STREAMS : far ? STREAMS : 1;
    t->parts = n > 1 && ki_extent(t->v) >= n * n;
    if (t->parts) t->nv = n;
    return t->parts || !far;
}

static bool wanted(const ki_knobs *k, int64_t mu, int64_t nv, int64_t mw) {
    return (!k->mu || mu == k->mu) && (!k->nv || nv == k->nv) && (!k->mw || mw == k->mw);
}

/* Are whole vectors left of n columns that are read in place, in tiles `step` wide? Beside a long sum the nest they go in takes no time. */
static bool leaves_vectors(const ki_choice *c, const ki_tile *t, int64_t n, int64_t step) {
    return t->inner && !c->target->twice && n % step % t->lanes == 0 && ki_terms(t->reduce) >= MANY_TERMS;
}

/* Of v's n lanes, in tiles `step` wide, those that do something: the last tile is padded, if that divides `padded`, or, *cut, what is left is
 * done apart, in one register, a part of one, or one by one. */
static double busy(const ki_choice *c, const ki_tile *t, int64_t n, int64_t padded, int64_t step, bool *cut) {
    int64_t over = n % step, whole = (over + t->lanes - 1) / t->lanes;
    /* In less than a register, and less time, unless its column is read where it stands; a few go along the sum (column.c). */
    bool even = over == 1 || (t->u && ki_extent(t->u) % EVEN == 0);
    bool few = over && over <= KI_FEW_COLUMNS && even,
         half = 2 * over <= t->lanes && ki_storage(t->streamed)->op == KN_PARAM;
    if (t->inner && !ki_is_gated(t->streamed)) half = false;
    half |= few;
    double rest = (double)t->lanes * (few ? 0.3 : half ? 0.85 : 1.15 * (double)whole);
    double masks = padded == n ? 1 : ki_goes_past(c, t) ? 0.94 : t->inner && !ki_is_gated(t->streamed) ? 0.98 : 1;
    double nest = ki_is_gated(t->streamed) && leaves_vectors(c, t, n, step) ? 1 : 0.97; /* another one */
    double pad = padded % step ? 0 : (double)n / (double)padded * masks,
           apart = nest * (double)n / ((double)(n - over) + rest);
    bool free = ki_masks_are_free(c);
    bool may = over && n > step && (few ? free || c->target->twice : free && ki_lanes_for(c, over));
    *cut = may && (t->inner || n % t->lanes) && apart > pad;
    return *cut ? apart : pad;
}

/* Are there rows of a tile that divide so many? */
static bool has_even_rows(int64_t n) {
    for (int64_t mu = FEW_ROWS; mu <= 2 * FEW_ROWS; mu++)
        if (n % mu == 0) return true;
    return false;
}

/* nv, mu, mw: many products for each load, few left over. A short v, or one under a mask, is padded to whole vectors or cut. */
static void tile_size(const ki_choice *c, kn_uop e, ki_tile *t) {
    int64_t own = ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed) * t->lanes;
    int64_t panel = is_hard(&c->nest, t) ? own : 0;
    bool plain = t->inner && !ki_is_gated(t->streamed);
    int64_t regs =
        t->row ? pieces(c, ki_extent(t->row) < c->lanes ? ki_extent(t->row) : c->lanes) : pieces(c, t->lanes);
    int64_t most = (c->target->nvector >= 32 ? 24 : 12) / regs, n = t->u ? ki_extent(t->u) : 1, m = ki_extent(t->v);
    if (c->knobs.mu || c->knobs.nv || c->knobs.mw) most = (c->target->nvector - 2) / regs;
    int64_t most_w = t->w ? 6 : 1, cut_from = t->row ? 8 : KI_SHORT * t->lanes;
    bool long_row = t->row && ki_terms(t->reduce) >= MANY_TERMS;
    bool lost = !t->row && (panel || (ki_is_gated(t->streamed) && !ki_masks_are_free(c)));
    double best = 0;
    bool fits = !t->row && (t->inner || m < cut_from), cut = false;
    bool once = t->u && !t->row && !t->inner && ki_packs_once(c, e, t->reduce, t->streamed, t->v, t->u),
         may_lap = once && ki_nest_laps(&c->nest, t->u);
    ki_tile places = {.v = t->v, .reduce = t->reduce, .streamed = t->streamed};
    if (once) ki_place_panels(c, &places);
    bool may_lap_v =
        once && places.outside && ki_nest_laps(&c->nest, t->v); /* what is packed at once lies as its addresses say */
    int64_t all_v = m;
    if (fits) m = (m + t->lanes - 1) / t->lanes * t->lanes; /* in whole vectors */
    t->nv = t->mu = t->mw = 1;
    t->cut = t->parts = false;
    if (!c->knobs.nv && goes_along_memory(c, e, t)) return;
    if (ki_is_tiled(t->reduce) && n >= 16) { /* four accumulators, if there are so many */
        t->mu = n >= 32 ? 32 : 16;
        t->nv = m >= 2 * t->lanes && (m >= cut_from || m % (2 * t->lanes) == 0) ? 2 : 1;
        return;
    }
    /* A short v is one tile wide if nothing between divides it: seven vectors of four rows leave four registers. */
    int64_t most_v = t->row ? 6 : m < cut_from && c->target->nvector >= 32 ? 7 : 4;
    for (int64_t nv = 1; nv <= most_v; nv++)
        for (int64_t mw = 1; mw <= most_w; mw++)
            for (int64_t mu = 1; mu <= 12; mu++) {
                if (!t->row && nv > 1 && panel * nv * mw > MOST_PACKED) continue;
                if (!wanted(&c->knobs, mu, nv, mw)) continue;
                if (mu * nv * mw > (nv > 4 && !t->row && regs == 1 ? 28 : most) || mu > n || nv * t->lanes > m ||
                    (t->row && (mu > 4 || mu * nv > (long_row ? 24 : 20))))
                    continue;
                if (t->row && nv > 4 && m != nv && !long_row)
                    continue; /* each product of a dot tile ends in a sum across lanes */
                int64_t step = nv * t->lanes, over = m % step;
                bool lapped_v = may_lap_v && over && m > step && (step - over) * LEAST_LAPPED <= m;
                int64_t padded = t->inner ? m + (over ? step - over : 0) : m;
                double filled = fits ? busy(c, t, all_v, padded, step, &cut) : 1;
                if (filled == 0 || (t->row && m < cut_from && over)) continue;
                if (mw > 1 && ki_extent(t->w) % mw) continue;
                double left_u = (double)(n % mu) / (double)n, left_v = (double)over / (double)m;
                bool lapped = may_lap && n > mu && n % mu && (mu - n % mu) * LEAST_LAPPED <= n;
                /* A nest for what is left would read what is packed, too. */
                if (once && ((over && !lapped_v) || (n % mu && !lapped && has_even_rows(n)))) continue;
                if (lapped) left_u = (double)(mu - n % mu) / (double)n;
                double all = (double)(mu * nv * mw), loads = (double)(mu + nv * mw);
                double score = all / (loads + 1) * (1 - 0.7 * left_u);
                /* A vector under a mask lies across two lines; the first-level cache has it. */
                double far = plain && own * nv > FIRST_LEVEL ? 0.4 * (double)nv : 0;
                /* Lines that are stored, or added to, wait less where four are beside each other. */
                double behind = plain ? all * (nv < WIDE ? 12 : 10) / (double)ki_terms(t->reduce) : 0;
                if (t->inner)
                    score = all / (fmax(all, loads + (double)(nv * mw)) + 1 + far + behind) * (1 - 0.7 * left_u);
                /* What is left would be neither packed nor read in place. */
                if (lost && !lapped && n > mu && n % mu && n % mu < FEW_USES) score *= 0.5;
                if (n % mu && !lapped)
                    score *= c->target->twice && n >= MANY_ROWS * mu ? 0.9 : 0.75; /* another nest each */
                score *= fits ? filled : over && !lapped_v ? 0.88 * (1 - 0.5 * left_v) : 1;
                if (all * (double)regs < 8) score *= all * (double)regs / 8;
                if (c->target->twice && !t->inner && all * (double)regs < MANY_SUMS) score *= 0.9;
                /* A panel comes from the second cache at half a vector a cycle. */
                if (c->target->twice && !t->row && own * nv > FIRST_LEVEL && mu < FEW_ROWS)
                    score *= (double)mu / FEW_ROWS;
                /* So does one that all rows share, while few of them are there to use it; eight are a power of two apart in a first cache's sets. */
                if (once && mu < PANEL_ROWS) score *= (double)mu / PANEL_ROWS;
                if (once && mu == 2 * FEW_ROWS) score *= 0.95;
                if (score > best * 1.001) best = score, t->mu = mu, t->nv = nv, t->mw = mw, t->cut = cut;
            }
}

static bool worth_packing(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t item = ki_word_bytes(k, t->streamed), span = 0;
    bool known, hard = is_hard(k, t);
    if (c->knobs.pack == 1 || t->inner) return false;
    if (t->row || !t->u || !may_pack(k, e, t->reduce, t->streamed, t->step * t->mw, t->u)) return false;
    if (hard) return uses_of_panel(k, e, t) >= FEW_USES;
    if (c->knobs.pack == 2) return true;
    for (uint32_t j = 1; j < t->reduce->nsrc; j++) {
        int64_t s = ki_nest_stride(k, t->streamed, t->reduce->src[j], &known);
        if (!ki_extent(t->reduce->src[j])) return false;
        if (s < 0) s = -s;
        if (s > 1) span += s * (ki_extent(t->reduce->src[j]) - 1) * item;
    }
    return ki_extent(t->u) / t->mu >= KI_LEAST_TILES && span > FAR;
}

int ki_sums_columns(const ki_nest *k, kn_uop e, kn_uop v) {
    const ki_scope *s = &k->scope;
    int reduces = 0;
    bool known, all = true;
    for (uint32_t q = 0; q < s->nrange; q++) {
        kn_uop x = k->closer[q];
        int reads = 0;
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(s, x, v)) continue;
        reduces++;
        for (uint32_t i = 0; i < k->nreads; i++) {
            if (!ki_varies_in(k, k->reads[i], x) || !uses(k, k->reads[i], v)) continue;
            reads++;
            all &= ki_nest_stride(k, k->reads[i], v, &known) == 1 && known;
        }
        all &= reads == 1;
    }
    return all && reduces <= 2 ? reduces : 0;
}

unsigned ki_nest_lanes(const ki_choice *c, kn_uop e) {
    const ki_scope *s = &c->nest.scope;
    int64_t apart = 0;
    kn_uop v = vector_range(c, e, &apart);
    unsigned least = 0;
    if (ki_keeps_sums(c, e)) return ki_choice_lanes(c, e);
    if (apart != 1 || !ki_sums_columns(&c->nest, e, v)) return c->all;
    for (uint32_t q = 0; q < s->nrange; q++) {
        kn_uop x = c->nest.closer[q];
        if (!x || x->op != KN_REDUCE || !ki_scope_has(s, x, v)) continue;
        unsigned n = ki_terms(x) >= MANY_TERMS ? ki_choice_lanes(c, x) : c->all;
        if (!least || n < least) least = n;
    }
    return least;
}

static bool find_pair(const ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    const ki_scope *s = &k->scope;
    bool known;
    for (int pass = 0; pass < 2; pass++) /* a contiguous operand first */
        for (uint32_t q = 0; q < s->nrange; q++) {
            kn_uop x = k->closer[q];
            if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(s, x, t->v) || lanes_in(k, x) ||
                ki_terms(x) < 4)
                continue;
            for (uint32_t i = 0; i < k->nreads; i++) {
                if (!ki_varies_in(k, k->reads[i], x)) continue;
                if (!pass && (ki_nest_stride(k, k->reads[i], t->v, &known) != 1 || !known)) continue;
                for (uint32_t j = 0; j < k->nreads; j++)
                    if (ki_varies_in(k, k->reads[j], x) && pair(c, e, x, k->reads[i], k->reads[j], t)) return true;
            }
        }
    return false;
}

/* Products of tiles are done before their rows come from anywhere but a second-level cache: several panels are packed side by side, as many as
 * fit there, and a few rows go through all of them. */
static bool goes_by_blocks(const ki_choice *c, const ki_tile *t) {
    if (!t->pack || !t->u || t->w || !ki_is_tiled(t->reduce)) return false;
    return ki_extent(t->u) * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->other) > MOST_ROWS;
}

/* Of sums that are kept: is there a loop around all of them in which what is packed does not vary? It is packed once. */
static bool is_repeated(const ki_choice *c, kn_uop e, kn_uop access) {
    const ki_scope *s = &c->nest.scope;
    for (uint32_t q = 0; q < s->nrange && ki_keeps_sums(c, e); q++)
        if (ki_is_serial(s->range[q]) && ki_extent(s->range[q]) > 1 && ki_scope_has(s, e, s->range[q]) &&
            !uses(&c->nest, access, s->range[q]))
            return true;
    return false;
}

/* Are all panels packed before any is read, so that the other operand goes by once? It is more than stays in a second-level cache while a panel
 * is gone through, and they are less. */
static bool is_packed_whole(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    if (!t->pack || !t->u || !may_pack(k, e, t->reduce, t->streamed, ki_extent(t->v), NULL)) return false;
    if (ki_is_tiled(t->reduce)) return goes_by_blocks(c, t);
    if (!c->target->twice || t->row || t->w) return false;
    if (is_repeated(c, e, t->streamed)) return true;
    if (ki_extent(t->v) <= t->step) return false;
    int64_t terms = ki_terms(t->reduce), other = ki_extent(t->u) * ki_word_bytes(k, t->other);
    return other * terms >= MOST_PACKED && ki_extent(t->v) * terms * ki_word_bytes(k, t->streamed) <= MOST_ROWS / 2;
}

/* The tile with vectors along t->v. False: none, or one that would gather in its inner loop. */
static bool tile_along(ki_choice *c, kn_uop e, ki_tile *t) {
    bool known;
    if (c->knobs.plain || !find_pair(c, e, t)) return false;
    if (c->tile.v == t->v->arg.range.id + 1)
        t->nv = c->tile.nv, t->mu = c->tile.mu, t->mw = c->tile.mw, t->cut = c->tile.cut, t->parts = c->tile.parts;
    else tile_size(c, e, t);
    t->step = t->nv * t->lanes;
    t->pack = worth_packing(c, e, t);
    t->whole = is_packed_whole(c, e, t);
    if (t->pack && !t->row && t->u && ki_packs_once(c, e, t->reduce, t->streamed, t->v, t->u)) ki_place_panels(c, t);
    if (!t->row && !t->pack && ki_word_of(&c->nest, t->streamed) != t->streamed) return false;
    return t->row || t->pack || (ki_nest_stride(&c->nest, t->streamed, t->v, &known) == 1 && known);
}

/* Where u leaves accumulators unused, the loop inside it that the same operand varies along takes them: both directions of a window are fed by
 * one load of the streamed one. In C it would be so much text, for results stored lane by lane, that compiling takes longer than that saves. */
static void widen(const ki_choice *c, kn_uop e, ki_tile *t) {
    bool may = c->target->native && !t->w && t->mu == ki_extent(t->u);
    kn_uop w = !may ? NULL : ki_apart(&c->nest, e, t->other, t->streamed, t->v, t->u);
    int64_t n = w ? ki_extent(w) : 1, f = n, most = c->target->nvector - 4;
    while (f > 1 && (n % f || f * t->mu * t->nv > most)) f--;
    if (f > 1) t->w = w, t->mw = f;
}

/* Where the store's way is no good: whole vectors along another loop in which an operand is contiguous, its results, which
 * are few beside what each adds up, stored one by one. */
static bool tile_across(ki_choice *c, kn_uop e, ki_tile *t) {
    ki_tile best = {0};
    bool known;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_is_serial(r) ? ki_extent(r) : 0, most = best.v ? ki_extent(best.v) : 0;
        if (n < c->lanes || n % c->lanes || !ki_nest_independent(&c->nest, r)) continue;
        if (n < most || (n == most && r->arg.range.id > best.v->arg.range.id)) continue;
        *t = (ki_tile){.step = 1, .v = r};
        if (tile_along(c, e, t) && !t->row && !t->pack && ki_terms(t->reduce) >= MANY_TERMS &&
            ki_nest_stride(&c->nest, t->streamed, r, &known) == 1 && known) {
            if (t->u) widen(c, e, t);
            best = *t;
        }
    }
    return best.v ? (*t = best, true) : false;
}

/* Of a sum of r's own loops alone: does the access lie along the innermost one? */
static bool lies_along_sum(const ki_nest *k, kn_uop x, kn_uop access) {
    bool known;
    kn_uop last = ki_last_loop(x);
    return last && ki_nest_stride(k, access, last, &known) == 1 && known && ki_word_of(k, access) == access;
}

/* Rows by rows, as of a linear layer: both operands lie along the sum. Vectors go across the store, along the other operand's rows, which
 * are packed, and results are stored by squares of SQUARE columns. What was streamed, the weights, is read element by element, in place:
 * it would be as much to pack, or each product would end in a sum across lanes. */
static bool tile_turned(ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop x = t->reduce, rows = t->u, columns = t->v;
    int64_t m = rows ? ki_extent(rows) : 0, n = ki_extent(columns), terms = ki_terms(x), reduces = 0;
    if (!ki_masks_are_free(c) || c->knobs.nv || c->knobs.mu || c->knobs.pack == 1 || c->lanes != 16 || m % c->lanes ||
        ki_keeps_sums(c, e) || ki_packs_once(c, e, x, t->streamed, columns, rows))
        return false;
    if (n < 2 * SQUARE || m < c->lanes || (m > n && n < MANY_TERMS) || t->w || x->nsrc != 2 || !ki_nest_store(e))
        return false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop y = k->closer[q];
        reduces += y && y->op == KN_REDUCE && (ki_scope_has(&k->scope, y, rows) || ki_scope_has(&k->scope, y, columns));
    }
    if (reduces != 1 || ki_is_gated(t->streamed) || ki_is_gated(t->other) || !lies_along_sum(k, x, t->streamed) ||
        ki_word_of(k, t->other) != t->other)
        return false;
    ki_tile turned = {.v = rows,
                      .u = columns,
                      .reduce = x,
                      .streamed = t->other,
                      .other = t->streamed,
                      .lanes = c->lanes,
                      .pack = true,
                      .turned = true};
    turned.mu = SQUARE;
    turned.nv = m % (2 * c->lanes) == 0 && terms * 2 * c->lanes * 4 <= MOST_PACKED ? 2 : 1;
    turned.step = turned.nv * c->lanes;
    if (!may_pack(k, e, x, turned.streamed, turned.step, NULL)) return false;
    turned.whole = m > turned.step && may_pack(k, e, x, turned.streamed, 2 * m, NULL);
    return *t = turned, true;
}

#define LONG_END 24 /* weight of a nest of sums */

void ki_find_tile(ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t apart = 0;
    kn_uop v = vector_range(c, e, &apart);
    *t = (ki_tile){.step = 1, .v = v};
    if (!v) return;
    bool along = tile_along(c, e, t);
    if (t->reduce && t->u && ki_tile_windows(c, e, t)) return;
    if (along) {
        if (t->u && (t->row || t->pack) && tile_turned(c, e, t)) return;
        ki_tile across = *t;
        bool beside = t->pack || (c->target->native && !t->row);
        bool poor =
            beside && ki_extent(v) * 4 <= c->lanes * 3 && ki_nest_store(e); /* a part of a register, or what fills it */
        if (poor && tile_across(c, e, &across)) *t = across;
        return;
    }
    bool gathers = t->reduce != NULL;
    if (ki_nest_store(e) && tile_across(c, e, t)) return;
    *t = (ki_tile){.step = gathers ? 0 : 1, .v = v};
    if (apart > 1) t->v = NULL;
    if (gathers || apart > 1) return; /* better none of this */
    unsigned weight = ki_weight_in(k, v);
    int sums = ki_sums_columns(k, e, v);
    bool scan = !sums && weight <= 12 && ki_nest_carries(k, e); /* down the columns */
    bool rows = ki_keeps_sums(c, e);                            /* which go along memory */
    int64_t unroll = rows ? ki_unroll(c, v, weight <= 24 ? 1 : weight) : ki_unroll(c, v, sums || scan ? 0 : weight),
            most = c->target->nvector / 4;
    bool few = sums != 1;
    /* What follows a sum is written out for each of its vectors: the more that is, the fewer. */
    if (sums && weight > LONG_END) most = c->target->nvector / 8, few = true;
    t->step = ki_lanes_for(c, ki_extent(v)) * (few && unroll > most ? most : unroll);
}

static bool swap(ki_choice *c, kn_uop a, kn_uop b) {
    ki_choice_do(c, KI_OPT_SWAP, 0, false, a->arg.range.id, b->arg.range.id);
    return true;
}

/* Bytes of the words of the other operand, for all rows, if they lie apart in memory: they are packed too. 0: they do not. */
static int64_t apart_bytes(ki_choice *c, const ki_tile *t) {
    bool packs = t->pack && ki_storage(t->other)->op == KN_PARAM && ki_is_split_word(&c->nest, t->other);
    return packs ? ki_extent(t->u) * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->other) : 0;
}

/* Words of the other operand of which each sign is turned (dots.c): once for a tile's rows, and not at each use of each. */
static bool turns_words(const ki_choice *c, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    return t->pack && t->u && !t->row && !ki_is_tiled(t->reduce) && ki_storage(t->other)->op == KN_PARAM &&
           ki_word_of(k, t->other)->op == KN_XOR;
}

/* Where these are more than a cache holds, rows are taken in blocks: the loop over blocks goes around the panels. True if a step was
 * made. */
static bool block_rows(ki_choice *c, const ki_tile *t) {
    int64_t all = apart_bytes(c, t), n = t->u ? ki_extent(t->u) : 0, f = 2;
    if (all <= MOST_ROWS || n % (t->mu * ROWS) || n == t->mu * ROWS || !ki_nest_independent(&c->nest, t->v))
        return false;
    while (n % (f * t->mu * ROWS) || (all / f > MOST_ROWS && f * t->mu * ROWS < n)) f++;
    uint32_t outer = ki_nest_next_range(&c->nest), v = t->v->arg.range.id;
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, true, t->u->arg.range.id, f))
        ki_choice_do(c, KI_OPT_SWAP, 0, false, v, outer);
    return true;
}

/* Panels of products of tiles in blocks, the loop over blocks outermost. True if a step was made. */
static bool block_panels(ki_choice *c, kn_uop e, const ki_tile *t) {
    int64_t n = ki_extent(t->v) / t->step, f = n;
    if (t->whole || ki_extent(t->v) % t->step || !goes_by_blocks(c, t)) return false;
    while (f > 1 && (n % f || !may_pack(&c->nest, e, t->reduce, t->streamed, f * t->step, NULL))) f--;
    uint32_t u = t->u->arg.range.id, outer = ki_nest_next_range(&c->nest);
    if (f < 2 || !ki_nest_independent(&c->nest, t->v)) return false;
    bool inside = ki_place_in(e, t->u) < ki_place_in(e, t->v);
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->v->arg.range.axis, true, t->v->arg.range.id, n / f) && inside)
        ki_choice_do(c, KI_OPT_SWAP, 0, false, u, outer);
    return true;
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
        if (x->op == KN_REDUCE && x->nsrc > 1 && uses(k, x, t->u))
            row += ki_terms(x) * (int64_t)ki_itemsize((kn_dtype)x->dtype);
    }
    if (n * row <= MOST_PACKED) return false;
    while (f > 1 && (n % f || f % t->mu || f * row > MOST_BLOCK)) f--;
    if (f * f < n || f % t->mu) return false; /* the longer loop is the tile's */
    uint32_t outer = ki_nest_next_range(k), v = t->v->arg.range.id;
    bool before = ki_place_in(e, t->v) < ki_place_in(e, t->u);
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, true, t->u->arg.range.id, n / f) && before)
        ki_choice_do(c, KI_OPT_SWAP, 0, false, v, outer);
    return true;
}

/* Of an extent that the tile does not divide the last part may begin earlier: no nest for what is left, but some of it twice. Not of what is
 * framed, or packed for several parts: it lies as its addresses say. */
static bool laps(const ki_choice *c, const ki_tile *t, kn_uop r, int64_t part) {
    int64_t n = ki_extent(r), twice = n % part ? part - n % part : 0;
    bool framed = t->frames || t->taps || ki_is_tiled(t->reduce);
    return twice && n > part && twice * LEAST_LAPPED <= n && !framed && ki_nest_laps(&c->nest, r);
}
static bool laps_rows(ki_choice *c, const ki_tile *t) { return t->u && laps(c, t, t->u, t->mu) && !apart_bytes(c, t); }
static bool laps_columns(const ki_choice *c, const ki_tile *t) {
    bool long_enough = t->row || t->cut || ki_extent(t->v) >= KI_SHORT * t->lanes;
    bool in_lines = !ki_goes_past(c, t); /* what begins within a line is not stored past the caches */
    if (t->cut && leaves_vectors(c, t, ki_extent(t->v), t->step)) return false; /* less than a tile done twice */
    return long_enough && in_lines && !t->whole && !t->first && !t->parts && laps(c, t, t->v, t->step);
}

/* Extents that the tile divides. True if a step was made. */
static bool even_out(ki_choice *c, kn_uop e, const ki_tile *t) {
    bool outer = t->u && ki_place_in(e, t->u) < ki_place_in(e, t->v);
    int64_t n = ki_extent(t->v), unit = t->mu;
    if (apart_bytes(c, t) > MOST_ROWS && ki_extent(t->u) > t->mu * ROWS) unit *= ROWS;
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

bool ki_pack_before(ki_choice *c, uint32_t u, int32_t slot, bool in_rows) {
    kn_uop r = ki_nest_range(&c->nest, u), e = ki_nest_closer(&c->nest, r), before = NULL, last = NULL;
    uint32_t count, inside;
    kn_uop access = ki_nest_read_of(&c->nest, e, slot, &inside);
    ki_nest_read_of(&c->nest, c->nest.sink, slot, &count);
    if (inside > 1) access = ki_nest_read_without(&c->nest, e, slot, r);
    if (ki_last_loop(e) != r || !access) return true;
    if (count == 1 && is_repeated(c, e, access)) return ki_choice_do(c, KI_OPT_STAGE, 0, in_rows, UINT32_MAX, slot);
    for (uint32_t j = 1; j < e->nsrc && e->src[j] != r; j++) {
        last = e->src[j];
        bool varies = last->arg.range.axis == KN_AX_THREAD || (ki_extent(last) != 1 && uses(&c->nest, access, last));
        if (varies) before = last;
    }
    if (!before && count > 1) /* outside all loops it must be the only one */
        before = last && ki_extent(e->src[1]) == 1 ? e->src[1] : last;
    if (!before && count > 1) return true;
    return ki_choice_do(c, KI_OPT_STAGE, 0, in_rows, before ? before->arg.range.id : UINT32_MAX, slot);
}

/* What is packed outside all loops of its nest, where another nest reads it too: a loop that runs once is put around them. */
static bool put_once(ki_choice *c, uint32_t v, int32_t slot) {
    kn_uop r = ki_nest_range(&c->nest, v), e = ki_nest_closer(&c->nest, r), access;
    uint32_t inside, count;
    access = ki_nest_read_of(&c->nest, e, slot, &inside);
    ki_nest_read_of(&c->nest, c->nest.sink, slot, &count);
    for (uint32_t j = 1; j < e->nsrc && e->src[j] != r; j++)
        if (e->src[j]->arg.range.axis == KN_AX_THREAD || uses(&c->nest, access, e->src[j])) return true;
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
    ki_tile also[MOST_ALSO];
    int32_t slot[MOST_ALSO + 2];
    uint32_t n = other_sums(c, e, t, also), panels = 0;
    if (put_outside(c, e, t) || channels_inside(c, t) || !c->ok) return c->ok;
    if (t->frames && ki_frame_all(c, e, t->other, t->u)) return c->ok;
    if (!t->row && !t->turned && ki_join_rows(c, e, t->v)) return c->ok;
    if (t->inner && ki_lift_gate(c, t->reduce, t->inner)) return c->ok;
    for (uint32_t i = 0; i < n; i++)
        if (also[i].inner && ki_lift_gate(c, also[i].reduce, also[i].inner)) return c->ok;
    if (even_out(c, e, t) || !c->ok) return c->ok;
    for (uint32_t i = 0; i < n; i++)
        if (also[i].row && ki_choice_fit(c, also[i].row, 1)) return c->ok;
    bool again, free = t->inner || (t->u && !t->pack && !keeps_rows(&c->nest, e, t->streamed, &again));
    if (free && order_operands(c, e, t)) return c->ok;
    if (block_rows(c, t) || block_panels(c, e, t)) return c->ok;
    if (t->pack) slot[panels++] = ki_storage(t->streamed)->arg.param->slot;
    for (uint32_t i = 0; i < n; i++)
        if (worth_packing(c, e, &also[i])) slot[panels++] = ki_storage(also[i].streamed)->arg.param->slot;
    int64_t apart = apart_bytes(c, t);
    if (apart && apart <= MOST_ROWS) slot[panels++] = ki_storage(t->other)->arg.param->slot;
    int32_t turned = !apart && turns_words(c, t) ? ki_storage(t->other)->arg.param->slot : -1;
    ki_part lanes[MOST_ALSO + 6] = {part((kn_axis)t->v->arg.range.axis, v, t->parts ? ki_extent(t->v) / t->nv : 0),
                                    part(KN_AX_UPCAST, u, t->mu), part(KN_AX_UPCAST, w, t->mw),
                                    part(KN_AX_UPCAST, v, t->lanes), part(KN_AX_UPCAST, v, t->nv)};
    uint32_t m = 5;
    if (t->row) lanes[m++] = along(c, t->row);
    bool over_u = laps_rows(c, t), over_v = laps_columns(c, t);
    ki_choice_mark(c, e);
    ki_choice_mark(c, t->reduce);
    for (uint32_t i = 0; i < n; i++) {
        if (also[i].row) lanes[m++] = along(c, also[i].row);
        ki_choice_mark(c, also[i].reduce);
    }
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
                     : (t->whole && !put_once(c, v, slot[i])) || !ki_pack_before(c, t->whole ? v : u, slot[i], false))
            return false;
    if (turned >= 0 && !ki_choice_do(c, KI_OPT_STAGE, 0, true, u, turned)) return false;
    for (uint32_t i = 0; i < sums && c->ok; i++) ki_join_sums(c, sum[i]);
    if (c->ok && taps != UINT32_MAX) ki_choice_do(c, KI_OPT_TERMS, 0, false, taps, 0);
    return c->ok;
}
