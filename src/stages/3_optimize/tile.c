/* tile.c: register tiles of matrix products, convolutions and their like: of which operands, along which loops. choose.h says what a tile is. How large it
 * is tile_size.c says, what of it is packed pack.c, and its steps are tiled.c's. */
#include "stages/3_optimize/tile.h"

#define ACROSS_LANES 4         /* additions that a sum across lanes is like */
#define SQUARE       8         /* columns that are stored as rows (square.c) */
#define MOST_APART   4         /* elements between two that one vector of results goes to */
#define HEAVY        24        /* weight of a nest of sums */
#define KEPT_PLACES  (1 << 13) /* columns whose largest and its place are kept */
#define ONE_EXP      20        /* weight of one exp and what little may be done with it */

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
        if (!ki_uses(k, has, r) || ki_uses(k, lacks, r) || !ki_nest_independent(k, r)) continue;
        bool older = best && ki_extent(r) == ki_extent(best) && r->arg.range.id < best->arg.range.id;
        if (!best || u || ki_extent(r) > ki_extent(best) || older) best = r;
    }
    return best;
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
        if (!known || r == v || !ki_is_serial(r) || n < KI_FEW_ROWS || ki_uses(k, a, r) || !ki_uses(k, b, r)) continue;
        if (apart > 0 && apart < least && ki_nest_independent(k, r)) least = apart, u = r;
    }
    return u;
}

/* Streamed operand a, other operand b: is there a u? */
static bool pair(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop b, ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool known;
    if (a == b || !ki_uses(k, a, t->v) || ki_uses(k, b, t->v)) return false;
    kn_uop u = ki_apart(k, e, b, a, t->v, NULL);
    int64_t n = ki_extent(t->v), lanes = ki_lanes_for(c, n), stride = ki_nest_stride(k, a, t->v, &known);
    kn_uop row = ki_is_tiled(x) ? NULL : common_row(c, x, a, b);
    /* along the reduce if v's own way gathers, or would fill little of its vectors */
    bool poor = !known || stride != 1 || lanes == 0 || (n < c->lanes && n * 3 < lanes * 2);
    if (row && !(poor && ki_terms(x) >= 4 * c->lanes)) row = NULL;
    t->streamed = a;
    if (row && u && lanes && ki_keeps_sums(c, e) && ki_may_pack(k, e, x, a, lanes, NULL)) row = NULL;
    int64_t after =
        c->target->twice && keeps_rows_whole(c, x, a, b) ? ACROSS_LANES : 0; /* and what is done with each sum */
    if (row && u && lanes && ki_panel_uses(k, e, t) * (after + work_after(k, e, x)) > 2 * ki_terms(x) &&
        ki_may_pack(k, e, x, a, lanes, u))
        row = NULL;
    bool once = u && ki_packs_once(c, e, x, a, t->v, u);
    bool framed = ki_nest_opt(k, KI_OPT_FRAME, NULL); /* a row that stands outside, whatever the tile */
    if (row && once && lanes && (framed || ki_may_pack(k, e, x, a, lanes, u))) row = NULL;
    if (!row && n == 1) lanes = 1; /* a CUT left it */
    if (!row && (lanes == 0 || !u)) return false;
    if (!row && once) u = row_of_image(k, e, b, a, t->v, u);
    t->u = u, t->reduce = x, t->other = b, t->row = row;
    t->lanes = row ? 1 : lanes;
    t->w = t->inner = NULL;
    bool plain = ki_word_of(k, a) == a;
    if (!row && plain && known && stride == 1 && !ki_packs_gated(c, e, x, a, u))
        t->inner = ki_is_gated(a) ? ki_ungated(k, x, a) : ki_fits_in_place(c, x, a, t->v) ? ki_last_loop(x) : NULL;
    if (!row && n <= lanes) t->w = ki_apart(k, e, a, b, t->v, u);
    if (t->w && ki_nest_stride(k, ki_nest_store(e)->src[0], t->w, &known) == 0) t->w = NULL;
    return true;
}

uint32_t ki_other_sums(const ki_choice *c, kn_uop e, const ki_tile *t, bool any, ki_tile also[KI_MOST_ALSO]) {
    const ki_scope *s = &c->nest.scope;
    uint32_t n = 0;
    for (uint32_t q = 0; q < s->nrange && n < KI_MOST_ALSO; q++) {
        kn_uop x = c->nest.closer[q];
        if (!x || x == t->reduce || x->op != KN_REDUCE || x->src[1] != s->range[q] || x->id > e->id) continue;
        if (!ki_scope_has(s, x, t->v) || lanes_in(&c->nest, x)) continue;
        bool found = false;
        const kn_uop *a = c->nest.reads;
        for (uint32_t i = 0; i < c->nest.nreads && !found; i++)
            for (uint32_t j = 0; j < c->nest.nreads && !found && ki_varies_in(&c->nest, a[i], x); j++) {
                also[n] = *t;
                found = ki_varies_in(&c->nest, a[j], x) && pair(c, e, x, a[i], a[j], &also[n]) && also[n].u == t->u &&
                        (any || !also[n].row == !t->row);
            }
        n += found;
    }
    return n;
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
            if (!ki_varies_in(k, k->reads[i], x) || !ki_uses(k, k->reads[i], v)) continue;
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
        unsigned n = ki_terms(x) >= KI_MANY_TERMS ? ki_choice_lanes(c, x) : c->all;
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
                if (!pass && ki_is_tiled(x) && ki_storage(k->reads[i])->op == KN_BUFFER) continue; /* what a cut left */
                for (uint32_t j = 0; j < k->nreads; j++)
                    if (ki_varies_in(k, k->reads[j], x) && pair(c, e, x, k->reads[i], k->reads[j], t)) return true;
            }
        }
    return false;
}

/* The tile with vectors along t->v. False: none, or one that would gather in its inner loop. */
static bool tile_along(ki_choice *c, kn_uop e, ki_tile *t) {
    bool known;
    if (c->knobs.plain || !find_pair(c, e, t)) return false;
    if (c->tile.v == t->v->arg.range.id + 1)
        t->nv = c->tile.nv, t->mu = c->tile.mu, t->mw = c->tile.mw, t->cut = c->tile.cut, t->parts = c->tile.parts;
    else ki_size_tile(c, e, t);
    if (!t->w) t->mw = 1; /* what a CUT leaves may have none */
    t->step = t->nv * t->lanes;
    t->pack = ki_worth_packing(c, e, t);
    t->whole = ki_is_packed_whole(c, e, t);
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
        if (tile_along(c, e, t) && !t->row && !t->pack && ki_terms(t->reduce) >= KI_MANY_TERMS &&
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
    bool whole = c->lanes * sizeof(float) == c->target->vector;
    if ((!ki_masks_are_free(c) && !ki_is_narrow(c)) || c->knobs.nv || c->knobs.mu || c->knobs.pack == 1 || !whole ||
        m % c->lanes || ki_keeps_sums(c, e) || ki_packs_once(c, e, x, t->streamed, columns, rows))
        return false;
    /* What strips leave over goes as they do where vectors are narrow, however few columns it has. */
    int64_t least = ki_is_narrow(c) ? SQUARE : 2 * SQUARE;
    int64_t all = ki_is_narrow(c) ? ki_numel(ki_storage(t->streamed)) / terms : n;
    if (n < least || m < c->lanes || (m > all && all < KI_MANY_TERMS) || t->w || x->nsrc != 2 || !ki_nest_store(e))
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
    turned.nv = m % (2 * c->lanes) == 0 && terms * 2 * c->lanes * 4 <= KI_MOST_PACKED ? 2 : 1;
    turned.step = turned.nv * c->lanes;
    if (!ki_may_pack(k, e, x, turned.streamed, turned.step, NULL)) return false;
    turned.whole = m > turned.step && ki_may_pack(k, e, x, turned.streamed, 2 * m, NULL);
    if (ki_is_narrow(c) && !ki_goes_in_strips(c, e, &turned)) return false; /* squares take all of its registers */
    return *t = turned, true;
}

/* An exp along v, and no sums: one chain of few values at once, which ends long after the next vector's could begin. */
static bool is_exp(const ki_nest *k, kn_uop v) {
    bool is = false;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_REDUCE) return false;
        is |= (u->op == KN_EXP || u->op == KN_EXP2) && ki_scope_has(&k->scope, u, v);
    }
    return is;
}

/* Argmax (what is kept of the columns is two choices by one condition) of rows that are not too long, where much is to be under way: 0.93 of the time
 * with two vectors side by side. */
static bool goes_by_two(const ki_choice *c, kn_uop e, kn_uop v) {
    kn_uop g = e->src[0], a = g->op == KN_GROUP && g->nsrc == 2 ? g->src[0]->src[1] : NULL,
           b = a ? g->src[1]->src[1] : NULL;
    bool places = a && a->op == KN_WHERE && b->op == KN_WHERE && a->src[0] == b->src[0];
    return places && c->ahead && !c->knobs.unroll && ki_extent(v) <= KEPT_PLACES && ki_extent(v) % (2 * c->lanes) == 0;
}

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
    bool light = rows ? weight <= 24 : ki_is_narrow(c) && weight <= ONE_EXP && is_exp(k, v);
    int64_t unroll = ki_unroll(c, v, !rows && (sums || scan) ? 0 : light ? 1 : weight), most = c->target->nvector / 4;
    bool few = sums != 1;
    if (rows && goes_by_two(c, e, v)) unroll = 2;
    /* What follows a sum is written out for each of its vectors: the more that is, the fewer. */
    if (sums && weight > HEAVY) most = c->target->nvector / 8, few = true;
    t->step = ki_lanes_for(c, ki_extent(v)) * (few && unroll > most ? most : unroll);
}
