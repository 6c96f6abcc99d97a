/* tile_size.c: how many rows, vectors and accumulators a register tile has. Of all that registers have room for that with the best score: products for
 * each load, less what is left over, padded or done apart. */
#include "stages/3_optimize/tile.h"

#include <math.h>

#define MANY_SUMS   20 /* accumulators: with fewer, what is loaded takes time where two multiply-adds a cycle are done */
#define PANEL_ROWS  6  /* of one whose panels are packed once for all of a batch */
#define EVEN        8  /* rows that leave no nest of a few, which would add up the last columns otherwise */
#define FIRST_LEVEL (1 << 15) /* bytes of a panel that stay in the first-level cache */
#define WIDE        4         /* vectors */
#define LONG_ROW    (3 << 12) /* bytes: a vector as long, and what goes by, is more than the first-level cache keeps */

/* Registers a vector of n lanes takes. */
static int64_t pieces(const ki_choice *c, int64_t n) {
    int64_t bits = n / c->lanes;
    for (n %= c->lanes; n > 0; n &= n - 1) bits++;
    return bits;
}

/* A matrix times a vector, which memory bounds: one row after the other is how it lies, and what the hardware fetches ahead. Several rows
 * beside each other pay from the caches, where one sum's chain of additions is slower than they are. From memory they are rows of as many
 * parts of the matrix, so that each goes on where it was: where rows are so long that the vector is not in the first-level cache when
 * it is its turn again, where rows of several matrices take turns, so that none is fetched ahead while another one is read, and, always, where the hardware
 * fetches ahead for four places faster than for one. */
static bool is_read_once(const ki_choice *c, const ki_tile *t) {
    kn_uop from = ki_storage(t->streamed);
    if (!t->row || t->u || ki_is_tiled(t->reduce) || from->op != KN_PARAM || c->target->vector < 32) return false;
    return ki_numel(from) * (int64_t)ki_itemsize((kn_dtype)from->dtype) >= KI_MOST_PACKED;
}

/* Does it say how many rows? */
static bool goes_along_memory(const ki_choice *c, kn_uop e, ki_tile *t) {
    ki_tile also[KI_MOST_ALSO];
    bool far = ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed) >= LONG_ROW;
    if (!is_read_once(c, t)) return false;
    /* Of several that take turns twice as many. */
    int64_t n = ki_other_sums(c, e, t, false, also) ? 2 * KI_PLACES : far || ki_likes_places(c) ? KI_PLACES : 1;
    t->parts = n > 1 && ki_extent(t->v) >= n * n;
    if (t->parts) t->nv = n;
    return t->parts || !far;
}

static bool wanted(const ki_knobs *k, int64_t mu, int64_t nv, int64_t mw) {
    return (!k->mu || mu == k->mu) && (!k->nv || nv == k->nv) && (!k->mw || mw == k->mw);
}

bool ki_leaves_vectors(const ki_choice *c, const ki_tile *t, int64_t n, int64_t step) {
    return t->inner && !c->target->twice && n % step % t->lanes == 0 && ki_terms(t->reduce) >= KI_MANY_TERMS;
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
    double nest = ki_is_gated(t->streamed) && ki_leaves_vectors(c, t, n, step) ? 1 : 0.97; /* another one */
    double pad = padded % step ? 0 : (double)n / (double)padded * masks,
           apart = nest * (double)n / ((double)(n - over) + rest);
    bool free = ki_masks_are_free(c);
    bool may = over && n > step && (few ? free || c->target->twice : free && ki_lanes_for(c, over));
    *cut = may && (t->inner || n % t->lanes) && apart > pad;
    return *cut ? apart : pad;
}

/* Are there rows of a tile that divide so many? */
static bool has_even_rows(int64_t n) {
    for (int64_t mu = KI_FEW_ROWS; mu <= 2 * KI_FEW_ROWS; mu++)
        if (n % mu == 0) return true;
    return false;
}

int64_t ki_least_lapped(const ki_nest *k, const ki_tile *t, kn_uop r) {
    bool kept = r == t->u && ki_storage(t->other)->op == KN_BUFFER, products = false;
    for (uint32_t q = 0; kept && q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        products |=
            x && x->op == KN_REDUCE && x != t->reduce && x->src[0]->op == KN_MUL && ki_scope_has(&k->scope, x, r);
    }
    return products ? KI_LEAST_KEPT : KI_LEAST_LAPPED;
}

/* A short v, or one under a mask, is padded to whole vectors or cut. */
void ki_size_tile(const ki_choice *c, kn_uop e, ki_tile *t) {
    int64_t own = ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->streamed) * t->lanes;
    int64_t panel = ki_is_hard(&c->nest, t) ? own : 0;
    bool plain = t->inner && !ki_is_gated(t->streamed);
    int64_t regs =
        t->row ? pieces(c, ki_extent(t->row) < c->lanes ? ki_extent(t->row) : c->lanes) : pieces(c, t->lanes);
    int64_t most = (c->target->nvector >= 32 ? 24 : 12) / regs, n = t->u ? ki_extent(t->u) : 1, m = ki_extent(t->v);
    if (c->knobs.mu || c->knobs.nv || c->knobs.mw) most = (c->target->nvector - 2) / regs;
    int64_t most_w = t->w ? 6 : 1, cut_from = t->row ? 8 : KI_SHORT * t->lanes;
    bool long_row = t->row && ki_terms(t->reduce) >= KI_MANY_TERMS;
    bool lost = !t->row && (panel || (ki_is_gated(t->streamed) && !ki_masks_are_free(c)));
    double best = 0;
    int64_t least = t->u ? ki_least_lapped(&c->nest, t, t->u) : KI_LEAST_LAPPED, all_v = m;
    bool fits = !t->row && (t->inner || m < cut_from), cut = false;
    bool once = t->u && !t->row && !t->inner && ki_packs_once(c, e, t->reduce, t->streamed, t->v, t->u),
         may_lap = (once || (least == KI_LEAST_KEPT && !has_even_rows(n))) && ki_nest_laps(&c->nest, t->u);
    ki_tile places = {.v = t->v, .reduce = t->reduce, .streamed = t->streamed};
    if (once) ki_place_panels(c, &places);
    bool may_lap_v =
        once && places.outside && ki_nest_laps(&c->nest, t->v); /* what is packed at once lies as its addresses say */
    if (fits) m = (m + t->lanes - 1) / t->lanes * t->lanes;     /* in whole vectors */
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
                if (!t->row && nv > 1 && panel * nv * mw > KI_MOST_PACKED) continue;
                if (!wanted(&c->knobs, mu, nv, mw)) continue;
                if (mu * nv * mw > (nv > 4 && !t->row && regs == 1 ? 28 : most) || mu > n || nv * t->lanes > m ||
                    (t->row && (mu > 4 || mu * nv > (long_row ? 24 : 20))))
                    continue;
                if (t->row && nv > 4 && m != nv && !long_row)
                    continue; /* each product of a dot tile ends in a sum across lanes */
                int64_t step = nv * t->lanes, over = m % step;
                bool lapped_v = may_lap_v && over && m > step && (step - over) * KI_LEAST_LAPPED <= m;
                int64_t padded = t->inner ? m + (over ? step - over : 0) : m;
                double filled = fits ? busy(c, t, all_v, padded, step, &cut) : 1;
                if (filled == 0 || (t->row && m < cut_from && over)) continue;
                if (mw > 1 && ki_extent(t->w) % mw) continue;
                double left_u = (double)(n % mu) / (double)n, left_v = (double)over / (double)m;
                bool lapped = may_lap && n > mu && n % mu && (mu - n % mu) * least <= n;
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
                if (lost && !lapped && n > mu && n % mu && n % mu < KI_FEW_USES) score *= 0.5;
                if (n % mu && !lapped)
                    score *= c->target->twice && n >= KI_MANY_ROWS * mu ? 0.9 : 0.75; /* another nest each */
                score *= fits ? filled : over && !lapped_v ? 0.88 * (1 - 0.5 * left_v) : 1;
                if (all * (double)regs < 8) score *= all * (double)regs / 8;
                if (c->target->twice && !t->inner && all * (double)regs < MANY_SUMS) score *= 0.9;
                /* A panel comes from the second cache at half a vector a cycle. */
                if (c->target->twice && !t->row && own * nv > FIRST_LEVEL && mu < KI_FEW_ROWS)
                    score *= (double)mu / KI_FEW_ROWS;
                /* So does one that all rows share, while few of them are there to use it; eight are a power of two apart in a first cache's sets. */
                if (once && mu < PANEL_ROWS) score *= (double)mu / PANEL_ROWS;
                if (once && mu == 2 * KI_FEW_ROWS) score *= 0.95;
                if (score > best * 1.001) best = score, t->mu = mu, t->nv = nv, t->mw = mw, t->cut = cut;
            }
}
