/* strips.c: rows by rows, as of a linear layer (tile_turned, tile.c), where two multiply-adds a cycle are done: the weights' rows go in strips,
 * whose results are kept in a LOCAL buffer (the OptOp ROWS), a vector along the other operand's rows, so that a tile of them may be as wide as
 * registers allow, not as squares of results want it. What is left of the nest stores them a line at a time: two halves of a line, from tiles
 * one after the other, waited for memory where the next tile's vectors did.
 *
 * The sum goes in parts, so that the other operand's panels of one part stay in the second-level cache while a strip's rows go through them; all
 * of them are packed once (pack.c: it is no use to do so for each strip). Where much follows each sum, as gelu does, a block of the strip's rows is
 * copied first (STAGE), which transposes it; the rest goes along the copy a vector at a time. Of a square of rows it was written out 16 times.
 *
 * A few rows by a large matrix that lies along its columns go in strips of columns likewise: the strip's part of the matrix goes through a
 * second-level cache once, and each piece of it serves all rows from the first one. Whole columns would be panels that only the second-level
 * cache holds, packed for few rows. So do very many rows where vectors are narrow, and caches small: by whole columns all of them would come from memory,
 * or a last cache that others use too, for each panel.
 *
 * Products of AMX's tiles, which are done before rows come from anywhere but a second-level cache, go in parts of the sum outermost, where rows are long:
 * as many panels of a part lie side by side as that cache holds, and all rows go by, their sums kept. */
#include "stages/3_optimize/tile.h"

#define STRIP       384 /* rows at most, and */
#define LEAST_STRIP 96  /* at least: a strip's results are stored as so long rows */
#define MANY        8   /* strips, beside which what they do not divide takes little */
#define LEAST_ROWS  64
#define PART        (1 << 10) /* terms, at most, and */
#define NARROW_PART (1 << 9)  /* where vectors are narrow, and caches small */
#define LEAST_PART  (1 << 8)
#define MOST_PART   (1 << 19) /* bytes of a part's panels */
#define MOST_ALL    (1 << 21) /* of all parts' */

#define TURNED_END 24 /* weight of what is done at each result beside its sum: it goes along the results as they lie */

#define MOST_FEW    96 /* rows: of more, panels are worth packing whole */
#define LEAST_FEW   8
#define FEW_PART    256       /* terms of a part of theirs, at most */
#define LEAST_BYTES (1 << 22) /* of the matrix beside them: what a second-level cache does not hold */

#define MANY_BYTES  (3 << 22) /* of very many rows, and */
#define MANY_TERMS  (1 << 11) /* of theirs, at least: panels of fewer leave the second-level cache room for more rows */
#define MANY_PART   512       /* of a part, at most */
#define MOST_BLOCK  2048      /* of these rows, at most: what is kept of them lies in the frame */
#define LEAST_BLOCK 512
#define EVEN_ROWS   8

#define TILED_ROW  (1 << 12) /* bytes of a row that AMX's tiles are read from, */
#define TILED_PART (1 << 11) /* of a part of a longer one, at most, */
#define MOST_SUMS  (1 << 22) /* of the sums that are kept meanwhile, */
#define LEAST_WIDE 128       /* columns of a block, at least */

/* The largest divisor that is no more than most. */
static int64_t part_of(int64_t terms, int64_t most) {
    int64_t n = terms < most ? terms : most;
    while (terms % n) n--;
    return n;
}

/* Of n rows, whole vectors, where these are narrow: tiles of six and whole vectors, no more than most. Such strips divide n, or leave something over. */
static int64_t narrow_strip(int64_t n, int64_t lanes, int64_t most) {
    int64_t unit = 3 * lanes, longest = (most < STRIP ? most : STRIP) / unit * unit, strip = longest;
    while (strip > LEAST_STRIP && n % strip) strip -= unit;
    if (n % strip == 0) return strip;
    return n < longest ? n : longest;
}

/* Of n rows; 0: there are too few. What is left of many is cut off, and is one where all: without it would be written out for squares. */
static int64_t strip_of(int64_t n, bool all) {
    int64_t strip = STRIP;
    if (all && n >= LEAST_STRIP && n < STRIP) return n;
    if (n < MANY * STRIP)
        while (n % strip && strip > LEAST_STRIP) strip /= 2;
    return n % strip && n < MANY * STRIP ? 0 : strip;
}

/* How many loops stand around a and b, threads aside; -1: one stands inside. first: which of the two comes first. */
static int loops_around(kn_uop e, kn_uop a, kn_uop b, kn_uop *first) {
    int around = 0;
    *first = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (!ki_is_serial(r)) continue;
        if (!*first && (r == a || r == b)) *first = r;
        else if (r != a && r != b && *first) return -1;
        around += r != a && r != b;
    }
    return around;
}

/* The operand's rows along r, those of all threads. */
static int64_t rows_of(const ki_nest *k, kn_uop operand, kn_uop r) {
    int64_t n = ki_extent(r);
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->scope.range[q];
        if (x->arg.range.axis == KN_AX_THREAD && ki_scope_has(&k->scope, operand, x)) n *= ki_extent(x);
    }
    return n;
}

/* Is some place that is read, as of a row that a token names, no 32 bits and another one for each row? As lanes they would halve the registers of
 * the whole kernel (5_select/lanes.c). */
static bool has_far_places(const ki_nest *k, kn_uop rows) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        bool fits = u->dtype != KN_IDX || (u->lo.i >= INT32_MIN && u->hi.i <= INT32_MAX);
        if (!fits && ki_scope_has(&k->scope, u, rows)) return true;
    }
    return false;
}

static bool is_plain_row(const ki_nest *k, kn_uop access, kn_uop r) {
    bool known;
    return ki_word_of(k, access) == access && !ki_is_gated(access) && ki_nest_stride(k, access, r, &known) == 1 &&
           known;
}

/* The other operand's rows, of one of what both operands have several of: however threads, cuts and blocks deal them out, since this decides
 * in which order terms are added. */
static int64_t all_rows(const ki_nest *k, const ki_tile *t) {
    int64_t terms = ki_terms(t->reduce);
    return terms > 0 ? ki_numel(ki_storage(t->other)) / terms / ki_nest_shared(k, t->other, t->streamed) : 0;
}

static int64_t bytes_of(const ki_nest *k, kn_uop operand) {
    return ki_numel(ki_storage(operand)) * ki_word_bytes(k, operand);
}

bool ki_is_few(const ki_choice *c, const ki_tile *t) {
    int64_t rows = t->u ? all_rows(&c->nest, t) : 0;
    return c->target->twice && rows >= LEAST_FEW && rows <= MOST_FEW && bytes_of(&c->nest, t->streamed) >= LEAST_BYTES;
}

static bool is_many(const ki_choice *c, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool large = bytes_of(k, t->streamed) >= LEAST_BYTES && bytes_of(k, t->other) >= MANY_BYTES;
    return c->target->twice && ki_is_narrow(c) && large && ki_terms(t->reduce) >= MANY_TERMS && t->u &&
           all_rows(k, t) > MOST_FEW;
}

/* Of n columns, whole tiles: half of a second-level cache holds their panels. */
static int64_t strip_of_many(int64_t n, int64_t tile) {
    static const int64_t tiles[] = {5, 4, 3};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (n % (tiles[i] * tile) == 0) return tiles[i] * tile;
    return n < tiles[0] * tile ? n : tiles[0] * tile;
}

/* Very many rows, in blocks, whose loop stands outside the columns'. True if a step was made. */
static bool block_many(ki_choice *c, const ki_tile *t) {
    int64_t n = ki_extent(t->u);
    uint32_t rows = t->u->arg.range.id, columns = t->v->arg.range.id;
    if (n <= MOST_BLOCK) return false;
    int64_t block = EVEN_ROWS * part_of(n / EVEN_ROWS, MOST_BLOCK / EVEN_ROWS);
    if (block < LEAST_BLOCK || n % block) return ki_choice_even(c, t->u, LEAST_BLOCK);
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, false, rows, block))
        ki_choice_do(c, KI_OPT_SWAP, 0, false, rows, columns);
    return true;
}

/* Does the nest have a sum beside this one? In what is left of the nest it would go element by element: both stay in one tile. */
static bool has_others(const ki_nest *k, kn_uop e, kn_uop sum) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        bool other = x && x->op == KN_REDUCE && x != sum && x != sum->src[0] && !ki_is_lane(k->scope.range[q]);
        if (other && ki_varies_in(k, x, e)) return true;
    }
    return false;
}

/* So many columns at a time, whose loop stands outside the rows', and of the sum so many steps, around all of them: what is summed up is kept. What is left
 * of the nest goes by so many lanes, 0: one. True. */
static bool keep_sums(ki_choice *c, const ki_tile *t, int64_t wide, int64_t part, int64_t lanes) {
    const ki_nest *k = &c->nest;
    uint32_t rows = t->u->arg.range.id, columns = t->v->arg.range.id, sum = t->reduce->src[1]->arg.range.id;
    kn_axis axis = (kn_axis)t->v->arg.range.axis;
    if (ki_extent(t->v) > wide) {
        uint32_t blocks = columns;
        columns = ki_nest_next_range(k);
        if (!ki_choice_do(c, KI_OPT_SPLIT, axis, false, blocks, wide)) return true;
    }
    if (!ki_choice_do(c, KI_OPT_SWAP, 0, false, rows, columns)) return true;
    if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, sum, part)) return true;
    ki_choice_rows(c, ki_nest_range(k, sum), ki_nest_range(k, rows), 1, false);
    if (!c->ok) return true;
    ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, rows)));
    if (lanes) ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, columns, lanes);
    return true;
}

/* A few rows by a large matrix, or very many. */
static bool choose_columns(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool many = is_many(c, t);
    int64_t n = ki_extent(t->v), terms = ki_terms(t->reduce), most = many ? MANY_PART : FEW_PART;
    int64_t part = part_of(terms, most), tile = 3 * c->lanes;
    int64_t strip = many ? strip_of_many(n / tile * tile, tile) : n < 2 * STRIP ? n : STRIP;
    if ((!many && !ki_is_few(c, t)) || t->row || t->w || t->inner || n < (many ? tile : 2 * c->lanes)) return false;
    if (part * 2 < most || terms < 2 * part) return false;
    if (ki_keeps_sums(c, e) || t->reduce->nsrc != 2 || ki_storage(t->streamed)->op != KN_PARAM) return false;
    if (!is_plain_row(k, t->streamed, t->v) || !is_plain_row(k, t->other, t->reduce->src[1])) return false;
    kn_uop first;
    if (loops_around(e, t->u, t->v, &first) < 0 || !ki_nest_independent(k, t->u) || !ki_nest_independent(k, t->v))
        return false;
    if (ki_reads_written(k, t->reduce) || has_others(k, e, t->reduce)) return false;
    if (first != t->v) return ki_choice_do(c, KI_OPT_SWAP, 0, false, t->u->arg.range.id, t->v->arg.range.id), true;
    /* Tiles of other widths wait for what they load. */
    if ((many && ki_choice_even(c, t->v, tile)) || ki_choice_even(c, t->v, strip)) return true;
    if (many && block_many(c, t)) return true;
    return keep_sums(c, t, strip, part, strip % c->lanes ? 0 : c->lanes);
}

/* Where much follows a sum, results are turned first: a copy of a block of rows, of which the rest is written out for one vector, not for a
 * square of them. */
static bool turn_first(ki_choice *c, uint32_t rows, uint32_t of_strip, int32_t kept) {
    ki_nest *k = &c->nest;
    if (ki_extent(ki_nest_range(k, rows)) % c->lanes) return false;
    if (!KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, of_strip, c->lanes})) return true;
    if (!ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)ki_nest_range(k, rows)->arg.range.axis, false, rows, c->lanes))
        return true;
    ki_choice_do(c, KI_OPT_STAGE, 0, false, rows, kept);
    if (c->ok) ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, rows)));
    return true;
}

int64_t ki_part_of_tiles(const ki_choice *c, const ki_tile *t) {
    kn_uop sum = t->reduce;
    int64_t steps = ki_extent(sum->src[1]), row = ki_terms(sum) * ki_word_bytes(&c->nest, t->other);
    bool whole = ki_is_tiled(sum) && t->u && t->lanes == KI_TILE_SIDE && t->mu % KI_TILE_SIDE == 0;
    if (!whole || sum->nsrc != 2 || row <= TILED_ROW || row % steps) return 0;
    int64_t part = part_of(steps, TILED_PART / (row / steps));
    return 2 * part * (row / steps) >= TILED_PART ? part : 0;
}

static double elements_of(const ki_nest *k, kn_uop sum) {
    double n = 1;
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_scope_has(&k->scope, sum, k->scope.range[q])) n *= (double)ki_extent(k->scope.range[q]);
    return n;
}

/* Such sums in the kernel, of half as many elements and more: each has panels and sums of its own on the stack. */
static int64_t sums_beside(const ki_nest *k, kn_uop sum) {
    double least = elements_of(k, sum) / 2;
    int64_t n = 0;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop x = k->scope.node[i];
        n += x->op == KN_REDUCE && ki_is_tiled(x) && elements_of(k, x) >= least;
    }
    return n;
}

/* Products of tiles whose rows are so long: the sum goes in parts, in which blocks of columns are wider, so that the other operand comes by less often
 * (tiled.c has them in parts where this is no way to go, so that the order of terms is the same). True if a step was made. */
static bool choose_parts(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t part = ki_part_of_tiles(c, t), steps = ki_extent(t->reduce->src[1]), n = ki_extent(t->v);
    if (!part || c->knobs.parts || t->w || t->row || ki_keeps_sums(c, e) || !ki_goes_by_blocks(c, t)) return false;
    int64_t column = ki_terms(t->reduce) * ki_word_bytes(k, t->streamed) / steps * part,
            kept = ki_extent(t->u) * (int64_t)ki_itemsize((kn_dtype)t->reduce->dtype);
    int64_t panels = KI_MOST_PACKED / column, sums = MOST_SUMS / kept,
            wide = (panels < sums ? panels : sums) / sums_beside(k, t->reduce),
            even = wide < n ? t->step * part_of(n / t->step, wide / t->step) : n;
    wide = 2 * even > wide ? even
                           : wide / (2 * t->step) * t->step; /* what it leaves over has panels and sums of its own */
    if (wide < LEAST_WIDE && wide < n) return false;
    if (ki_extent(t->u) % t->mu || n % t->step) return false;
    kn_uop first;
    if (ki_storage(t->streamed)->op != KN_PARAM || loops_around(e, t->u, t->v, &first) < 0) return false;
    if (!ki_nest_independent(k, t->u) || !ki_nest_independent(k, t->v)) return false;
    if (ki_reads_written(k, t->reduce) || has_others(k, e, t->reduce)) return false;
    if (first != t->v) return ki_choice_do(c, KI_OPT_SWAP, 0, false, t->u->arg.range.id, t->v->arg.range.id), true;
    if (wide < n && ki_choice_even(c, t->v, wide)) return true;
    c->parts = true;
    return keep_sums(c, t, wide, part, t->step);
}

static bool may_strip(const ki_choice *c, kn_uop e, const ki_tile *t) {
    return c->knobs.pack != 1 && c->target->twice && t->reduce->dtype == KN_F32 && ki_nest_store(e);
}

/* A strip's rows, the terms of a part; false: it may not go so. */
static bool size_strip(const ki_choice *c, kn_uop e, const ki_tile *t, int64_t *strip, int64_t *part) {
    const ki_nest *k = &c->nest;
    int64_t n = t->u ? ki_extent(t->u) : 0, terms = ki_terms(t->reduce), item = ki_word_bytes(k, t->streamed);
    int64_t all = rows_of(k, t->streamed, t->v), m = ki_is_narrow(c) ? all : ki_extent(t->v);
    kn_uop first;
    if (!may_strip(c, e, t) || !n) return false;
    *part = part_of(terms, ki_is_narrow(c) ? NARROW_PART : PART);
    if (*part < LEAST_PART || all < LEAST_ROWS || *part * m * item > MOST_PART || terms * m * item > MOST_ALL)
        return false;
    *strip = ki_is_narrow(c) ? narrow_strip(n / c->lanes * c->lanes, c->lanes, KI_MOST_KEPT / (m * item))
                             : strip_of(n, ki_work_beside(k, e, t->reduce, t->v) >= TURNED_END);
    if (!*strip) return false;
    while (*strip * m * item > KI_MOST_KEPT && *strip > LEAST_STRIP) *strip /= 2;
    if (loops_around(e, t->u, t->v, &first) != 0) return false;
    return ki_nest_independent(k, t->u) && ki_nest_independent(k, t->v) && !ki_reads_written(k, t->reduce);
}

bool ki_goes_in_strips(const ki_choice *c, kn_uop e, const ki_tile *turned) {
    int64_t strip, part;
    return size_strip(c, e, turned, &strip, &part);
}

bool ki_choose_strips(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t strip, part;
    kn_uop first;
    if (ki_is_tiled(t->reduce)) return choose_parts(c, e, t);
    if (!may_strip(c, e, t)) return false;
    if (!t->turned) return choose_columns(c, e, t);
    if (!size_strip(c, e, t, &strip, &part)) return false;
    uint32_t rows = t->v->arg.range.id, columns = t->u->arg.range.id, sum = ki_last_loop(t->reduce)->arg.range.id;
    (void)loops_around(e, t->u, t->v, &first);
    bool is_long = ki_work_beside(k, e, t->reduce, t->v) >= TURNED_END;
    if (first != t->u) return ki_choice_do(c, KI_OPT_SWAP, 0, false, rows, columns), true;
    if (ki_choice_even(c, t->u, strip)) return true;
    uint32_t of_strip = ki_nest_next_range(k);
    if (!ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, false, columns, strip)) return true;
    if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, sum, part)) return true;
    int32_t kept = -1 - (int32_t)ki_nest_next_buffer(k);
    ki_choice_rows(c, ki_nest_range(k, sum), ki_nest_range(k, of_strip), 1, false);
    if (!c->ok || !ki_choice_do(c, KI_OPT_SWAP, 0, false, of_strip, rows)) return true;
    int64_t square = has_far_places(k, ki_nest_range(k, rows)) ? 0 : c->lanes; /* 0: rows one by one */
    if (square && is_long && turn_first(c, rows, of_strip, kept)) return true;
    ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, rows)));
    KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, of_strip, c->lanes}, {KN_AX_UPCAST, rows, square});
    return true;
}
