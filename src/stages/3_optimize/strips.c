/* strips.c: rows by rows, as of a linear layer (tile_turned, tile.c), where two multiply-adds a cycle are done: the weights' rows go in strips,
 * whose results are kept in a LOCAL buffer (the OptOp ROWS), a vector along the other operand's rows, so that a tile of them may be as wide as
 * registers allow, not as squares of results want it. What is left of the nest stores them a line at a time: two halves of a line, from tiles
 * one after the other, waited for memory where the next tile's vectors did.
 *
 * The sum goes in parts, so that the other operand's panels of one part stay in the second-level cache while a strip's rows go through them; all
 * of them are packed once (tile.c: it is no use to do so for each strip). */
#include "stages/3_optimize/choose.h"

#define STRIP       384 /* rows at most, and */
#define LEAST_STRIP 96  /* at least: a strip's results are stored as so long rows */
#define MANY        8   /* strips, beside which what they do not divide takes little */
#define LEAST_ROWS  64
#define PART        (1 << 10) /* terms, at most */
#define LEAST_PART  (1 << 8)
#define MOST_PART   (1 << 19) /* bytes of a part's panels */
#define MOST_ALL    (1 << 21) /* of all parts' */

/* The largest divisor. */
static int64_t part_of(int64_t terms) {
    int64_t n = terms < PART ? terms : PART;
    while (terms % n) n--;
    return n;
}

/* Of n rows; 0: there are too few. What is left of many is cut off. */
static int64_t strip_of(int64_t n) {
    int64_t strip = STRIP;
    if (n < MANY * STRIP)
        while (n % strip && strip > LEAST_STRIP) strip /= 2;
    return n % strip && n < MANY * STRIP ? 0 : strip;
}

/* The nest's only loops? first: which comes first, threads aside. */
static bool are_all(kn_uop e, kn_uop a, kn_uop b, kn_uop *first) {
    bool all = true;
    *first = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        if (!ki_is_serial(e->src[j])) continue;
        all &= e->src[j] == a || e->src[j] == b;
        if (!*first) *first = e->src[j];
    }
    return all;
}

/* The operand's rows, those of all threads. */
static int64_t rows_of(const ki_nest *k, const ki_tile *t) {
    int64_t n = ki_extent(t->v);
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (r->arg.range.axis == KN_AX_THREAD && ki_scope_has(&k->scope, t->streamed, r)) n *= ki_extent(r);
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

bool ki_choose_strips(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t m = ki_extent(t->v), n = t->u ? ki_extent(t->u) : 0, terms = ki_terms(t->reduce), part = part_of(terms);
    int64_t strip = n ? strip_of(n) : 0, item = ki_word_bytes(k, t->streamed);
    if (c->knobs.pack == 1 || !t->turned || !c->target->twice || t->reduce->dtype != KN_F32 ||
        e->src[0]->op != KN_STORE)
        return false;
    if (!strip || part < LEAST_PART || rows_of(k, t) < LEAST_ROWS) return false;
    if (part * m * item > MOST_PART || terms * m * item > MOST_ALL) return false;
    while (strip * m * item > KI_MOST_KEPT && strip > LEAST_STRIP) strip /= 2;
    kn_uop first;
    if (!are_all(e, t->u, t->v, &first)) return false;
    if (!ki_nest_independent(k, t->u) || !ki_nest_independent(k, t->v)) return false;
    uint32_t rows = t->v->arg.range.id, columns = t->u->arg.range.id, sum = ki_last_loop(t->reduce)->arg.range.id;
    if (first != t->u) return ki_choice_do(c, KI_OPT_SWAP, 0, false, rows, columns), true;
    if (ki_choice_even(c, t->u, strip)) return true;
    uint32_t of_strip = ki_nest_next_range(k);
    if (!ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)t->u->arg.range.axis, false, columns, strip)) return true;
    if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, sum, part)) return true;
    ki_choice_rows(c, ki_nest_range(k, sum), ki_nest_range(k, of_strip), 1, false);
    if (!c->ok || !ki_choice_do(c, KI_OPT_SWAP, 0, false, of_strip, rows)) return true;
    ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, rows)));
    int64_t square = has_far_places(k, ki_nest_range(k, rows)) ? 0 : c->lanes; /* 0: rows one by one */
    KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, of_strip, c->lanes}, {KN_AX_UPCAST, rows, square});
    return true;
}
