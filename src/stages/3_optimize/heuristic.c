/* heuristic.c: OptOps for a CPU, chosen by hand-written rules from strides and extents alone.
 *
 *  - A nest is vectorised along the range in which its store is contiguous, a row reduction along the range in which its
 *    loads are, with several accumulators; a matrix product gets a register tile and its streamed operand packed.
 *  - A factor that does not divide is made to: CUT takes the remainder off, which is then a nest of its own; a tile's last part begins
 *    earlier instead, where little is done twice so.
 *  - The order in which a reduce adds up depends on shapes and strides alone, never on the number of threads: whatever part
 *    of a kernel is treated apart (what a CUT leaves over) ends up with the same vectors along the reduce, or none.
 *  - Threads split an outer loop when the kernel's work is worth waking them.
 *  - An output larger than the caches, written line by line and not read again, is written past them.
 *  - A row's result is stored while the next one is worked on, where that is the only time that memory has to write.
 *  - Rows that are gone through several times go in pairs, where what is asked for is lost behind stores (pairs.c).
 *  - What is summed up down the columns of a large matrix goes row by row, several at a time.
 *  - Rows by rows, both along the sum, go in strips whose results are kept, and then transposed to where they are stored (strips.c).
 *  - A long sum of products that both operands lie along is added up part by part, around a block of results (parts.c).
 *  - Where a remainder says which terms of a sum count, the loops are taken apart until each part knows (phases.c).
 *  - Where vectors are narrow, rows for their sums alone, and two operands of what is written past the caches, are read in several places (places.c).
 *  - A running sum along rows takes a vector at a time; what a long loop reads of a large input is asked for ahead.
 * Nests are treated one at a time; each step is an OptOp (ki_nest_apply), after which the kernel is looked at anew. A nest is
 * done when the ids of its ranges are marked, so what a CUT adds is found by itself. Whatever is decided for a range must
 * hold again after the CUT that it asked for: thresholds ask n >= factor, and a cut leaves a multiple of the factor. */
#include "stages/3_optimize/dots.h"

#include "base/thread.h"

#include <string.h>

/* ---- steps ------------------------------------------------------------------------------------------------- */

bool ki_choice_look(ki_choice *c, kn_uop sink) {
    bool renewed =
        c->open && c->ok && sink && ki_scope_renew(&c->nest.scope, sink); /* PREFETCH, STREAM: no node is another */
    if (renewed) return c->nest.sink = c->sink = sink, true;
    if (c->open) ki_nest_close(&c->nest);
    c->open = true;
    c->sink = sink;
    return c->ok = c->ok && sink && ki_nest_open(&c->nest, c->ir, sink);
}

bool ki_choice_do(ki_choice *c, ki_optop op, kn_axis target, bool top, uint32_t axis, int64_t arg) {
    ki_opt o = {
        .op = (uint8_t)op, .target = (uint8_t)target, .top = top, .axis = (int32_t)axis, .arg = (int32_t)arg, .id = -1};
    c->ok = c->ok && c->steps++ < KI_MOST_OPTS;
    return ki_choice_look(c, c->ok ? ki_nest_apply(&c->nest, o) : NULL);
}

bool ki_choice_split(ki_choice *c, const ki_part *part, uint32_t n) {
    ki_opt o[KI_MOST_SPLITS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (part[i].n && m < KI_MOST_SPLITS)
            o[m++] = (ki_opt){.op = KI_OPT_SPLIT,
                              .target = (uint8_t)part[i].to,
                              .axis = (int32_t)part[i].axis,
                              .arg = (int32_t)part[i].n,
                              .id = -1};
    if (!c->ok || m < 2 || n > KI_MOST_SPLITS) m = 0;
    bool clean = c->ir->env->err == KI_E_NONE;
    kn_uop all = m ? ki_nest_split(&c->nest, o, m) : NULL;
    if (!all && clean && c->ir->env->err != KI_E_NONE) return c->ok = false;
    if (all) return c->steps += m, ki_choice_look(c, all);
    for (uint32_t i = 0; i < n; i++)
        if (part[i].n && !ki_choice_do(c, KI_OPT_SPLIT, part[i].to, false, part[i].axis, part[i].n)) return false;
    return c->ok;
}

void ki_choice_mark(ki_choice *c, kn_uop closer) {
    for (uint32_t j = 1; j < closer->nsrc; j++) {
        uint32_t id = closer->src[j]->arg.range.id;
        if (closer->src[j]->arg.range.axis == KN_AX_THREAD) continue; /* shared by nests */
        if (id < KI_MOST_RANGES) c->done[id >> 6] |= UINT64_C(1) << (id & 63);
    }
}

/* Lanes split off before a CUT are both parts' own: they say nothing about a nest that has other loops. */
static bool is_done(const ki_choice *c, kn_uop closer) {
    bool loops = false, lanes = false;
    for (uint32_t j = 1; j < closer->nsrc; j++) {
        uint32_t id = closer->src[j]->arg.range.id;
        if (closer->src[j]->arg.range.axis == KN_AX_THREAD) continue;
        bool marked = id >= KI_MOST_RANGES || (c->done[id >> 6] >> (id & 63) & 1), lane = ki_is_lane(closer->src[j]);
        if (marked && !lane) return true;
        loops |= !lane;
        lanes |= lane && !marked;
    }
    return !loops && !lanes;
}

/* A multiple of f: true if a CUT was needed and made (the kernel is another one now). */
bool ki_choice_even(ki_choice *c, kn_uop r, int64_t f) {
    int64_t n = ki_extent(r);
    if (n % f == 0) return false;
    ki_choice_do(c, KI_OPT_CUT, 0, false, r->arg.range.id, n - n % f);
    return true;
}

/* ---- what a kernel does ------------------------------------------------------------------------------------ */

unsigned ki_weight(kn_uop u) {
    if (u->dtype == KN_IDX || u->dtype == KN_VOID) return 0;
    switch ((kn_op)u->op) {
    case KN_EXP:
    case KN_EXP2: return 16;
    case KN_LOG:
    case KN_LOG2:
    case KN_SIN:
    case KN_COS:
    case KN_TAN:
    case KN_TANH:
    case KN_ERF:
    case KN_POW:
    case KN_THREEFRY: return 20;
    case KN_INS:
    case KN_DIV:
    case KN_SQRT:
    case KN_RECIP:
    case KN_IDIV:
    case KN_MOD: return 4;
    default: return ki_is_elementwise((kn_op)u->op) || ki_is_access(u) || u->op == KN_REDUCE;
    }
}

unsigned ki_weight_in(const ki_nest *k, kn_uop r) {
    unsigned w = 0;
    for (uint32_t i = 0; i < k->scope.n; i++)
        if (ki_scope_has(&k->scope, k->scope.node[i], r)) w += ki_weight(k->scope.node[i]);
    return w;
}

/* Weighted operations of a node: it runs once for every iteration of its free ranges. */
static double work_at(const ki_scope *s, kn_uop u) {
    double times = ki_weight(u);
    const uint64_t *set = ki_scope_free(s, u);
    for (uint32_t r = 0; r < s->nrange && times != 0; r++)
        if (ki_in_set(set, r)) times *= s->range[r]->hi.i < INT32_MAX ? (double)s->range[r]->hi.i + 1 : 1e9;
    return times;
}

static double work_of(const ki_nest *k) {
    double total = 0;
    for (uint32_t i = 0; i < k->scope.n; i++) total += work_at(&k->scope, k->scope.node[i]);
    return total;
}

/* Widest element that is computed on, in the loops of a reduce or anywhere. */
static unsigned widest(const ki_target *t, const ki_nest *k, kn_uop reduce) {
    unsigned w = 1;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (!ki_weight(u) || u->dtype == KN_BOOL || (reduce && u != reduce && !ki_varies_in(k, u, reduce))) continue;
        unsigned b = ki_lane_bytes(t, u);
        if (b > w) w = b;
    }
    return w;
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

#define WORTH_THREADS  100000.0
#define MANY_POSITIONS 3000 /* beside which packing filters once more takes little */
#define MOST_PARTS     32   /* of a thread, and */
#define PART_BYTES     (1 << 20)
#define LONG_ROW       (1 << 10)
#define MANY_PANELS    8 /* of a thread, beside which the rest of its part is little */

/* Threads for an extent: an exact divisor not far below what there is, else all, leaving a remainder. */
static int64_t thread_count(int64_t n, unsigned threads) {
    for (int64_t t = threads; t * 2 > threads && t > 1; t--)
        if (n % t == 0) return t;
    return threads;
}

/* So many threads that each has a part when n is dealt in equal ones, the last one shorter. */
static int64_t busy_threads(int64_t n, int64_t threads) {
    int64_t q = n ? (n + threads - 1) / threads : 1;
    return (n + q - 1) / q;
}

/* What the nest does outside r each thread does again (a norm before the product of its row): no more than its part inside. */
static bool covers(const ki_choice *c, kn_uop e, kn_uop r) {
    const ki_scope *s = &c->nest.scope;
    kn_uop *node;
    int64_t n = ki_toposort(c->ir, &e, 1, &node);
    bool sums = false;
    double inside = 0, outside = 0;
    for (int64_t i = 0; i < n; i++) {
        bool in = ki_scope_has(s, node[i], r);
        *(in ? &inside : &outside) += work_at(s, node[i]);
        sums |= !in && node[i]->op == KN_REDUCE && node[i]->nsrc > 1;
    }
    if (n >= 0) ki_free(node);
    return n >= 0 && (!sums || outside * c->threads <= inside);
}

static bool may_thread(const ki_choice *c, kn_uop e, kn_uop r) {
    return ki_extent(r) && ki_is_serial(r) && ki_nest_independent(&c->nest, r) && covers(c, e, r);
}

/* A loop that no later step will name: its bound need not be constant. */
static bool is_plain(const ki_choice *c, kn_uop e, const ki_tile *t, kn_uop r) {
    if (t->reduce) return r != t->v && r != t->u && r != t->w;
    if (!t->v) return true;
    return (r != t->v || t->step <= 1) && r != ki_crossing(c, e, t->v);
}

/* Is what the tile streams copied first (its vectors would be of elements apart), and is there a loop that t threads divide and the
 * copies vary in? Around u each of them would copy all. */
static bool copies_parts(const ki_choice *c, kn_uop e, const ki_tile *tile, int64_t t) {
    bool known;
    int64_t apart = ki_nest_stride(&c->nest, tile->streamed, tile->v, &known);
    if (!known || apart == 1 || ki_extent(tile->v) % c->lanes) return false;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == tile->v || ki_extent(r) < t || ki_extent(r) % t) continue;
        if (ki_scope_has(&c->nest.scope, tile->streamed, r) && may_thread(c, e, r)) return true;
    }
    return false;
}

/* Is v so long that each of t threads has many panels, and u so short that parts of it would use each too little to have it packed, or that
 * packing is much of the time? Each thread would go through all of the streamed operand. */
static bool wants_panels(const ki_choice *c, const ki_tile *tile, int64_t t) {
    if (!tile->u || tile->row || tile->inner || tile->step < 1) return false;
    bool few = ki_extent(tile->u) < t * tile->mu * KI_LEAST_TILES || (tile->pack && ki_is_few(c, tile));
    return few && ki_extent(tile->v) >= t * tile->step * MANY_PANELS;
}

static bool is_tiled(const ki_tile *tile) { return tile->reduce && ki_is_tiled(tile->reduce); }

/* In such units threads divide r; all: the vector's loop too. What is no whole tile of AMX is slow, and adds up in another order, so the same rows and
 * columns are none, whatever the number of threads. */
static int64_t unit_of(const ki_tile *tile, kn_uop r, bool all) {
    if (r == tile->v) return all || is_tiled(tile) ? tile->step : 1;
    return r == tile->u && is_tiled(tile) ? KI_TILE_SIDE : 1;
}

/* The outermost loop that the threads divide, in units of *unit; not the vector's, unless it is long or the panel of a
 * matrix product. */
static kn_uop divided(const ki_choice *c, kn_uop e, const ki_tile *tile, int64_t *unit) {
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_extent(r), least = is_tiled(tile) ? unit_of(tile, r, true) : 1,
                t = c->count ? c->count : thread_count(n / least, c->threads),
                u = unit_of(tile, r, !wants_panels(c, tile, t));
        if (n < t * u || n % (t * u) || !may_thread(c, e, r)) continue;
        if (r == tile->u && ki_extent(tile->v) % (t * tile->step) == 0 && ki_extent(tile->v) >= t * tile->step)
            continue;
        if (r == tile->u && (wants_panels(c, tile, t) || copies_parts(c, e, tile, t))) continue;
        return *unit = u, r;
    }
    /* Tiles of a part that they do not divide lap. */
    for (uint32_t j = 1; j < e->nsrc && is_tiled(tile); j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_extent(r), t = c->count ? c->count : thread_count(n / KI_TILE_SIDE, c->threads);
        bool side = (r == tile->u || r == tile->v) && may_thread(c, e, r) && ki_nest_laps(&c->nest, r);
        if (side && t > 1 && n % t == 0 && n / t >= KI_TILE_SIDE) return *unit = 1, r;
    }
    return NULL;
}

/* A multiple of f; of tiles what is left has one, too. True if a CUT was made. */
static bool even_tiles(ki_choice *c, const ki_tile *tile, kn_uop r, int64_t f) {
    int64_t n = ki_extent(r), rest = n % f;
    bool more = is_tiled(tile) && rest && rest < KI_TILE_SIDE && n > 2 * f;
    return more ? ki_choice_do(c, KI_OPT_CUT, 0, false, r->arg.range.id, n - rest - f), true : ki_choice_even(c, r, f);
}

/* The outermost loop that can be dealt unevenly: more threads have work than where it must come out even. */
static kn_uop dealt(const ki_choice *c, kn_uop e, const ki_tile *tile, int64_t most) {
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_extent(r), t = c->count ? c->count : busy_threads(n, c->threads);
        if (t <= most || n < 2 || busy_threads(n, t) != t || !is_plain(c, e, tile, r) || !may_thread(c, e, r)) continue;
        return r;
    }
    return NULL;
}

/* The longest one, what does not divide cut off. */
static kn_uop cut(const ki_choice *c, kn_uop e, const ki_tile *tile, int64_t *unit) {
    kn_uop best = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t u = unit_of(tile, r, true), t = c->count ? c->count : c->threads;
        if (ki_extent(r) < 4 * t * u || !may_thread(c, e, r)) continue;
        if (!best || ki_extent(r) > ki_extent(best)) best = r, *unit = u;
    }
    return best;
}

/* How many parts of the images of a batch each of t threads may have, where each of them packs all filters (windows.c): these are gone through by so
 * many positions, of two images at least. */
static int64_t parts_of_images(const ki_choice *c, const ki_tile *tile, kn_uop r, int64_t t) {
    kn_uop e = ki_nest_closer(&c->nest, r);
    int64_t p = 4, positions = 1;
    if ((!tile->first && !tile->outside) || r == tile->u || ki_scope_has(&c->nest.scope, tile->streamed, r)) return 1;
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (e->src[j] != tile->v && positions < MANY_POSITIONS * t * p) positions *= ki_extent(e->src[j]);
    while (p > 1 && (ki_extent(r) % (2 * p * t) || positions < MANY_POSITIONS * t * p)) p /= 2;
    return p;
}

/* A sum, or a maximum, of rows that follow each other in memory: a thread that memory, or who shares the core, holds up leaves parts to the others. */
static int64_t parts_of_rows(const ki_nest *k, kn_uop r, int64_t t) {
    int64_t p = MOST_PARTS, bytes = INT64_MAX;
    kn_uop sum = NULL;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op != KN_REDUCE || u->nsrc < 2) continue;
        if (sum) return 1;
        sum = u;
    }
    for (uint32_t i = 0; sum && i < k->nreads; i++) {
        int64_t item = (int64_t)ki_itemsize((kn_dtype)k->reads[i]->dtype), row = ki_nest_step(k, k->reads[i], r);
        if (ki_nest_step(k, k->reads[i], sum->src[sum->nsrc - 1]) != item || row < LONG_ROW) return 1;
        if (row < bytes) bytes = row;
    }
    while (p > 1 && (ki_extent(r) % (p * t) || ki_extent(r) / (p * t) < PART_BYTES / bytes)) p /= 2;
    return sum ? p : 1;
}

/* Parts of r for each of t threads, of which one that is late leaves some to the others: several where a part copies nothing that another
 * does too, in a kernel of one sum of products. Around a tile's loops each part reads the other operand. */
static int64_t parts_each(const ki_choice *c, const ki_tile *tile, kn_uop r, int64_t unit, int64_t t) {
    const ki_scope *s = &c->nest.scope;
    bool known;
    uint32_t sums = 0;
    if (c->single || c->count || t != c->threads || c->sink->nsrc != 1) return 1;
    if (!tile->reduce) return parts_of_rows(&c->nest, r, t);
    if (tile->pack) return unit == 1 ? parts_of_images(c, tile, r, t) : 1;
    bool copied = ki_nest_stride(&c->nest, tile->streamed, tile->v, &known) != 1;
    if (copied && (r == tile->u || !ki_scope_has(s, tile->streamed, r))) return 1;
    for (uint32_t i = 0; i < s->n; i++) sums += s->node[i]->op == KN_REDUCE && s->node[i]->nsrc > 1;
    int64_t p = r == tile->v || r == tile->u || r == tile->w ? 2 : 8;
    while (p > 1 && (ki_extent(r) % (p * t * unit) || work_of(&c->nest) < c->alone * (double)(p * t))) p /= 2;
    return sums == 1 ? p : 1;
}

static bool split_threads(ki_choice *c, kn_uop r, int64_t t) {
    c->count = t;
    return ki_choice_do(c, KI_OPT_SPLIT, KN_AX_THREAD, true, r->arg.range.id, t);
}

/* Splits `count` (0: choose it) threads off a loop of this END, outermost. True if a step was made. */
static bool divide_nest(ki_choice *c, kn_uop e) {
    c->lanes = ki_nest_lanes(c, e);
    int64_t unit = 1;
    ki_tile tile = {0};
    ki_find_tile(c, e, &tile);
    /* 0: too short for vectors. */
    if (tile.step < 1 || (tile.v && !tile.reduce && ki_sums_rows(c, e, tile.v))) tile.step = 1;
    kn_uop best = divided(c, e, &tile, &unit);
    int64_t t = c->count ? c->count : best ? thread_count(ki_extent(best), c->threads) : 1;
    kn_uop plain = c->even || (best && t == c->threads) ? NULL : dealt(c, e, &tile, best ? t : 1);
    if (plain) return split_threads(c, plain, c->count ? c->count : busy_threads(ki_extent(plain), c->threads));
    if (!best && !(best = cut(c, e, &tile, &unit))) return false;
    t = c->count ? c->count : thread_count(ki_extent(best) / unit, c->threads);
    bool vectors = best == tile.v && unit > 1 && !tile.reduce && !c->even;
    bool fewer = vectors && !c->count && busy_threads(ki_extent(best) / unit, c->threads) > t;
    if (ki_extent(best) % (t * unit) == 0 && !fewer)
        return split_threads(c, best, t * parts_each(c, &tile, best, unit, t));
    if (vectors && ki_extent(best) % unit == 0) /* dealt next, in units */
        return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)best->arg.range.axis, false, best->arg.range.id, unit);
    bool whole = vectors || (is_tiled(&tile) && ki_extent(best) % unit); /* what is no whole tile by itself first */
    if (e->src[1] == best) return even_tiles(c, &tile, best, whole ? unit : t * unit);
    if (!ki_nest_independent(&c->nest, e->src[1])) return false;
    return ki_choice_do(c, KI_OPT_SWAP, 0, false, e->src[1]->arg.range.id, best->arg.range.id);
}

static bool has_thread(kn_uop e) {
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (e->src[j]->arg.range.axis == KN_AX_THREAD) return true;
    return false;
}

/* Of every nest that is a tile's the columns that are no whole vectors, for nests of their own, which stay with thread 0: whatever threads leave over of
 * the rows goes the ways of one thread. True if a cut was made. */
static bool cut_columns(ki_choice *c) {
    for (uint32_t i = 0; c->ok && i < c->sink->nsrc; i++) {
        kn_uop e = c->sink->src[i];
        ki_tile t = {0};
        if (e->op != KN_END) continue;
        c->lanes = ki_nest_lanes(c, e);
        ki_find_tile(c, e, &t);
        bool rest = t.u && t.v && t.reduce && ki_extent(t.v) > c->lanes && ki_extent(t.v) % c->lanes;
        if (!rest || !ki_nest_independent(&c->nest, t.u) || !ki_nest_independent(&c->nest, t.v)) continue;
        uint32_t u = t.u->arg.range.id, v = t.v->arg.range.id;
        /* What is cut off has its columns outermost, as where there are no threads. */
        bool inside = ki_place_in(e, t.u) < ki_place_in(e, t.v);
        if (inside && !ki_choice_do(c, KI_OPT_SWAP, 0, false, u, v)) return false;
        (void)even_tiles(c, &t, ki_nest_range(&c->nest, v), c->lanes);
        return c->ok && (!inside || ki_choice_do(c, KI_OPT_SWAP, 0, false, v, u));
    }
    return false;
}

/* Every nest of the kernel, over the same threads; one that cannot be split, and what a cut leaves over, stays with thread
 * 0. */
static void thread_kernel(ki_choice *c) {
    uint32_t known = ki_nest_next_range(&c->nest);
    uint64_t tried[KI_MOST_RANGES / 64] = {0};
    if (c->threads < 2 || work_of(&c->nest) < c->alone) return;
    while (c->knobs.whole && cut_columns(c)) {
    }
    for (bool more = true; more && c->ok;) {
        more = false;
        for (uint32_t i = 0; c->ok && i < c->sink->nsrc && !more; i++) {
            kn_uop e = c->sink->src[i];
            if (e->op != KN_END || has_thread(e) || e->src[1]->arg.range.id >= known) continue;
            uint32_t id = e->src[1]->arg.range.id;
            if (id >= KI_MOST_RANGES || tried[id >> 6] >> (id & 63) & 1) continue;
            more = divide_nest(c, e);
            if (!more) tried[id >> 6] |= UINT64_C(1) << (id & 63);
        }
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

/* A nest that copies what it reads has no sums; what it carries itself is one. */
static bool is_copying(kn_uop u) {
    bool copies = u->op == KN_END && u->src[0]->op == KN_STORE && ki_is_access(u->src[0]->src[1]);
    kn_uop from = copies ? ki_storage(u->src[0]->src[1]) : NULL;
    return copies && !(from && from->op == KN_BUFFER && from->arg.buffer->addrspace == KN_REG);
}

/* The next closer that nothing has been decided for: ENDs first, they decide for the reduces inside. */
static kn_uop next_closer(const ki_choice *c) {
    const ki_scope *s = &c->nest.scope;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = s->n; i-- > 0;) {
            kn_uop u = s->node[i];
            if (u->op == (pass ? KN_REDUCE : KN_END) && u->nsrc > 1 && !is_done(c, u) &&
                !(c->knobs.sums && is_copying(u)))
                return u;
        }
    return NULL;
}

unsigned ki_choice_lanes(const ki_choice *c, kn_uop reduce) {
    unsigned n = c->target->vector / widest(c->target, &c->nest, reduce) >> c->knobs.narrow;
    return n < 1 ? 1 : n;
}

#define MOST_CUTS 48 /* of sums, in one kernel: with each the next one looks through one sum more */

static kn_uop choose(ki_choice *c, const ki_machine *m, kn_uop sink) {
    kn_uop u;
    c->from = c->knobs.stream ? 0 : m->stream;
    c->ahead = (int64_t)(m->ahead + c->target->line - 1) / c->target->line * c->target->line;
    if (ki_choice_look(c, sink)) {
        c->lanes = c->all = ki_choice_lanes(c, NULL);
        for (int cuts = 0; cuts < MOST_CUTS && ki_cut_sums(c); cuts++) {
        }
        if (c->ok) ki_choose_dots(c);
        if (c->ok && c->from && c->target->native) ki_find_long_rows(c);
        if (c->ok && c->target->native) ki_choose_apart(c);
        if (c->ok) thread_kernel(c);
        if (c->ok && c->from && c->target->native) ki_choose_pairs(c);
        if (c->ok && c->from && c->target->stream) ki_choose_late(c);
        if (c->ok && c->from && c->target->native && !c->knobs.sums) ki_choose_pipeline(c);
    }
    while (c->ok && (u = next_closer(c))) {
        c->lanes = u->op == KN_END ? ki_nest_lanes(c, u) : ki_choice_lanes(c, u);
        if (u->op == KN_END) ki_choose_nest(c, u);
        else ki_choose_reduce(c, u);
    }
    if (c->from && c->target->stream && !c->knobs.sums) ki_choose_streams(c);
    if (c->from && c->target->native && !c->knobs.sums) ki_choose_prefetches(c), ki_choose_led(c);
    if (c->target->native && !c->knobs.sums) ki_choose_terms(c);
    if (c->from && c->target->native && !c->knobs.sums) ki_choose_rotations(c);
    if (c->open) ki_nest_close(&c->nest);
    return c->ok ? c->sink : NULL;
}

#define LEFT       (1 << 16) /* bytes of a frame for what registers do not hold */
#define MOST_LOCAL (1 << 22) /* of local memory, beside that, where no sums of AMX's tiles are kept for many rows */

/* Is all local memory of the kernel more than a stack has? Each nest has its own, and none knows of the others'. A row is kept for each lane that its
 * home names. */
static bool is_too_large(ki_ir *ir, kn_uop sink, bool parts) {
    const kn_uop *node;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    double bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = node[i], b = u->op == KN_AFTER ? u->src[0] : u;
        bool home = u->op == KN_AFTER && u->nsrc > 1 && u->src[1]->op == KN_RANGE;
        if ((u->op != KN_BUFFER && !home) || b->op != KN_BUFFER || b->arg.buffer->addrspace != KN_LOCAL) continue;
        double lanes = 1;
        for (uint32_t j = 1; home && j < u->nsrc; j++)
            if (ki_is_lane(u->src[j])) lanes *= (double)ki_extent(u->src[j]);
        bytes += (double)b->arg.buffer->size * (double)ki_itemsize((kn_dtype)b->dtype) * (home ? lanes - 1 : 1);
    }
    return bytes > (parts ? KI_FRAME_MOST : MOST_LOCAL) - LEFT;
}

kn_uop ki_opt_choose(ki_ir *ir, const ki_target *t, const ki_machine *m, const ki_knobs *knobs, kn_uop sink) {
    bool clean = ir->env->err == KI_E_NONE;
    ki_choice c = {.ir = ir, .target = t, .threads = m->threads ? m->threads : 1, .single = m->single, .ok = true},
              from;
    c.alone = m->alone ? (double)m->alone : WORTH_THREADS;
    if (knobs) c.knobs = *knobs;
    if (c.knobs.threads && c.knobs.threads < c.threads) c.threads = c.knobs.threads;
    from = c;
    kn_uop chosen = choose(&c, m, sink);
    /* With fewer sums that are kept, without panels, then with fewer rows in a tile. */
    static const ki_knobs less[] = {
        {.parts = 1}, {.pack = 1}, {.pack = 1, .mu = 4}, {.pack = 1, .mu = 2}, {.pack = 1, .mu = 1}};
    for (size_t i = 0; i < sizeof less / sizeof *less && chosen && !from.knobs.mu && is_too_large(ir, chosen, c.parts);
         i++) {
        if (less[i].parts ? !c.parts : from.knobs.pack && !less[i].mu) continue;
        c = from;
        c.knobs.parts = 1, c.knobs.mu = less[i].mu;
        if (less[i].pack) c.knobs.pack = less[i].pack;
        chosen = choose(&c, m, sink);
    }
    /* Rows that are kept: as it stands it runs at least. */
    if (chosen && !from.knobs.mu && is_too_large(ir, chosen, c.parts)) return sink;
    if (chosen || c.even || !clean || ir->env->status == KI_NOMEM) return chosen;
    /* A step was refused that wants a constant bound: with even parts only. */
    ki_env_clear(ir->env);
    c = from;
    c.even = true;
    return choose(&c, m, sink);
}
