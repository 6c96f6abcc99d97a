/* ends.c: what follows a tile's sums, where that is much, in a loop of its own: the sums of a few rows are kept in a LOCAL buffer (the OptOp ROWS),
 * and the rest of the nest goes along these rows a vector or two at a time. Written out for each of a tile's sums it would be most of the kernel's
 * code: of a gradient of weights, which an optimizer's step follows, 24 times 26 instructions beside 28 of the product. What it reads and writes
 * beside the sums goes by in whole rows then. */
#include "stages/3_optimize/dots.h"

#define LONG_END 16 /* weight of what follows a sum */
#define MANY     12 /* sums of a tile, vectors each */
#define MOST_ROWS                                                                                                      \
    (5 << 12)        /* bytes of the rows that are kept: a first-level cache has room for what the product reads, too */
#define LEAST_ROW 16 /* vectors */
#define MOST_SEEN                                                                                                      \
    (1 << 19)        /* bytes of what the product streams for so long rows, which all rows of the other operand go by */
#define LEAST_SUM 32 /* terms, beside which a sum is stored and read again for little */

/* Is the sum the only one in the nest, of one loop, and its rows none that the kernel keeps anyway? */
static bool is_plain(const ki_nest *k, kn_uop e, kn_uop x) {
    kn_uop s = ki_nest_store(e);
    for (uint32_t i = 0; i < k->scope.at[e->id]; i++) {
        kn_uop u = k->scope.node[i];
        bool loops = u->op == KN_REDUCE || u->op == KN_END || u->op == KN_AFTER;
        if (loops && u != x && ki_varies_in(k, u, e)) return false;
    }
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_is_lane(k->scope.range[q]) && ki_scope_has(&k->scope, x, k->scope.range[q])) return false;
    if (!s || ki_storage(s->src[0])->op != KN_PARAM || ki_is_tiled(x) || ki_reads_written(k, x)) return false;
    return x->nsrc == 2 && x->arg.reduce.op == KN_ADD && !x->arg.reduce.axes && ki_extent(x->src[1]) >= LEAST_SUM;
}

/* How much of a row of m columns is kept at once; 0: there are no such parts of it. */
static int64_t part_of(const ki_nest *k, const ki_tile *t, int64_t m) {
    int64_t bytes = t->mu * (int64_t)ki_itemsize((kn_dtype)t->reduce->dtype), part = m;
    int64_t seen = ki_terms(t->reduce) * ki_word_bytes(k, t->streamed);
    if (m < 1 || m % t->step) return 0;
    while (part && (m % part || part * bytes > MOST_ROWS || part * seen > MOST_SEEN)) part -= t->step;
    return part < LEAST_ROW * t->lanes ? 0 : part;
}

bool ki_choose_end(ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    kn_uop u = t->u, v = t->v, x = t->reduce;
    bool plain = u && !t->row && !t->w && !t->taps && !t->turned && !t->frames && !t->parts && t->mu * t->nv >= MANY;
    int64_t n = plain ? ki_extent(u) : 0, m = plain ? ki_extent(v) : 0, part = n ? part_of(k, t, m) : 0;
    if (!part || n % t->mu || c->knobs.pack == 1 || !is_plain(k, e, x) || ki_work_after(k, e, x) < LONG_END)
        return false;
    uint32_t at = ki_place_in(e, u), to = ki_place_in(e, v), first = at < to ? at : to;
    if (first + 2 != e->nsrc || !ki_nest_independent(k, u) || !ki_nest_independent(k, v)) return false;
    int64_t lanes = t->lanes, terms = ki_extent(x->src[1]);
    uint32_t rows = u->arg.range.id, columns = v->arg.range.id, sum = ki_last_loop(x)->arg.range.id, kept = rows,
             outer = columns;
    kn_axis along = (kn_axis)u->arg.range.axis, across = (kn_axis)v->arg.range.axis;
    if (part < m) {
        columns = ki_nest_next_range(k);
        if (!ki_choice_do(c, KI_OPT_SPLIT, across, false, outer, part)) return true;
    }
    if ((at > to || part < m) && !ki_choice_do(c, KI_OPT_SWAP, 0, false, rows, at > to ? columns : outer)) return true;
    if (n > t->mu) {
        kept = ki_nest_next_range(k);
        if (!ki_choice_do(c, KI_OPT_SPLIT, along, false, rows, t->mu)) return true;
    }
    if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, sum, terms)) return true;
    ki_choice_rows(c, ki_nest_range(k, sum), ki_nest_range(k, kept), 1, false);
    if (!c->ok) return true;
    ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, columns)));
    KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, columns, lanes});
    return true;
}
