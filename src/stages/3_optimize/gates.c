/* gates.c: a streamed operand that is contiguous but for where it must not be read, as the input of a convolution is beyond its
 * border, needs no packing: a vector is loaded under a mask, and the mask costs nothing where the innermost loop of the sum
 * leaves it as it is.
 *
 *   sum over c, ky, kx of x[c, y + ky, x + kx] w[c, ky, kx]  runs as  c in blocks, kx, ky, c inside a block
 * The block is short, so that what the loops around it read again still stands near, and long, since what a mask costs it costs a
 * block. Rows that end within a vector are then one row for all of them (JOIN): y * n + x is contiguous too, and masks do not mind
 * where a row ends.
 * How a sum is ordered depends on its own loops alone. */
#include "stages/3_optimize/choose.h"

#include <stdlib.h>

#define MOST_STAGED  (1 << 20) /* bytes of an operand that are copied so that rows can be joined */
#define MOST_DEALT   (1 << 21) /* the same where rows are dealt out: each element once */
#define FEWEST_ROWS  7         /* framed together: windows overlap */
#define MOST_FRAMED  (1 << 20) /* the same where windows are: a second-level cache keeps it, and what goes by */
#define MOST_STRIP   (1 << 19) /* of an image that is more, bytes of rows framed at a time */
#define FEWEST_STRIP 4         /* of those, at least */
#define MOST_VECTORS 7         /* of a tile (tile.c) */
#define SHORTEST     8         /* terms that a mask must serve */
#define BLOCK        32        /* about so many of them */

bool ki_is_gated_by(const ki_nest *k, kn_uop access, kn_uop r) {
    for (kn_uop i = access->src[1]; i->op == KN_WHERE; i = i->src[1])
        if (ki_scope_has(&k->scope, i->src[0], r)) return true;
    return false;
}

bool ki_is_gated(kn_uop access) { return access->src[1]->op == KN_WHERE; }

kn_uop ki_ungated(const ki_nest *k, kn_uop reduce, kn_uop access) {
    kn_uop found = NULL, last = ki_last_loop(reduce);
    bool gated = false;
    for (uint32_t j = 1; j < reduce->nsrc; j++) { /* the innermost: of a loop in blocks, the block */
        kn_uop r = reduce->src[j];
        if (ki_is_lane(r)) continue;
        bool decides = ki_is_gated_by(k, access, r);
        gated |= decides;
        if (!decides && ki_extent(r) >= SHORTEST) found = r;
    }
    return gated ? found : last;
}

/* The divisor nearest to BLOCK; n itself if it has none. */
static int64_t block_of(int64_t n) {
    int64_t best = n;
    for (int64_t f = SHORTEST; f <= 2 * BLOCK && n > 2 * BLOCK; f++)
        if (n % f == 0 && (best == n || llabs(f - BLOCK) < llabs(best - BLOCK))) best = f;
    return best;
}

bool ki_lift_gate(ki_choice *c, kn_uop reduce, kn_uop inner) {
    kn_uop last = ki_last_loop(reduce);
    if (inner == last) return false;
    int64_t f = block_of(ki_extent(inner));
    if (f < ki_extent(inner)) return ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, inner->arg.range.id, f), true;
    return ki_choice_do(c, KI_OPT_SWAP, 0, false, inner->arg.range.id, last->arg.range.id), true;
}

/* ---- rows of rows ------------------------------------------------------------------------------------------ */

/* Elements of outer and inner follow each other, n of the inner to one of the outer, or the access has nothing to do with them. */
static bool counts_both(const ki_nest *k, kn_uop access, kn_uop outer, kn_uop inner) {
    bool known[2];
    int64_t a = ki_nest_stride(k, access, outer, known), b = ki_nest_stride(k, access, inner, known + 1);
    return known[0] && known[1] && a == b * ki_extent(inner);
}

/* Would every term of a sum have a mask of its own, since all of its loops decide about it? */
static bool masks_terms(const ki_nest *k, kn_uop access) {
    for (uint32_t q = 0; ki_is_gated(access) && q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        if (!x || x->op != KN_REDUCE || !ki_scope_has(&k->scope, access, k->scope.range[q])) continue;
        if (!ki_ungated(k, x, access)) return true;
    }
    return false;
}

/* The loop of the nest inside which all that the access reads along outer, inner and the sums is copied once: *before, NULL for outside all
 * loops. False: there is none, or it cannot be copied. */
static bool may_copy(const ki_nest *k, kn_uop e, kn_uop access, kn_uop outer, kn_uop inner, bool again,
                     kn_uop *before) {
    kn_uop b = ki_storage(access);
    bool varies = true;
    uint32_t first = 1; /* loop that is no thread's: panels may go around, for each of which it is copied */
    while (first + 1 < e->nsrc && e->src[first]->arg.range.axis == KN_AX_THREAD) first++;
    bool panels = again && first < e->nsrc && !ki_scope_has(&k->scope, access, e->src[first]);
    uint32_t count;
    *before = NULL;
    if (b->op != KN_PARAM || !k->read[k->scope.at[access->id]]) return false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (!ki_scope_has(&k->scope, access, r) || r->arg.range.axis == KN_AX_THREAD) continue;
        if (ki_is_lane(r) || (ki_nest_closer(k, r) != e && ki_nest_closer(k, r)->op != KN_REDUCE)) return false;
    }
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        bool uses = ki_scope_has(&k->scope, access, r) && r != outer && r != inner && ki_extent(r) != 1;
        if (r->arg.range.axis == KN_AX_THREAD && !uses) continue; /* each thread copies for itself */
        if (uses && !varies) return false;
        if (uses) *before = r;
        varies &= uses || (panels && j == first);
    }
    ki_nest_read_of(k, *before ? e : k->sink, b->arg.param->slot, &count);
    return count == 1;
}

/* May what it reads be staged, as often as it is read? Of outer's iterations in so many parts. */
static bool may_stage(const ki_nest *k, kn_uop e, kn_uop access, kn_uop outer, int64_t parts, kn_uop inner,
                      kn_uop *before) {
    int64_t size = (int64_t)ki_itemsize((kn_dtype)access->dtype);
    if (!ki_scope_has(&k->scope, access, outer) || !ki_scope_has(&k->scope, access, inner)) return false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (!ki_scope_has(&k->scope, access, r)) continue;
        if (r != outer && r != inner && ki_nest_closer(k, r)->op != KN_REDUCE) continue;
        if ((size *= r == outer ? ki_extent(r) / parts : ki_extent(r)) > MOST_STAGED) return false;
    }
    return size > 0 && may_copy(k, e, access, outer, inner, false, before);
}

/* May it be dealt out, so that its rows follow each other, under masks that serve many terms? */
static bool may_deal(const ki_nest *k, kn_uop e, kn_uop access, kn_uop outer, kn_uop inner, kn_uop *before) {
    bool known[2], may = false;
    ki_deal d;
    int64_t a = ki_nest_stride(k, access, outer, known), b = ki_nest_stride(k, access, inner, known + 1);
    if (!known[0] || !known[1] || masks_terms(k, access) || !may_copy(k, e, access, outer, inner, false, before))
        return false;
    uint64_t *set = ki_calloc(k->scope.words, sizeof *set);
    if (set && ki_mark_outer(k, *before, set) && ki_find_deal(k, access, set, &d) && d.n == 2) {
        int64_t bytes = d.next[1] * d.blocks * (int64_t)ki_itemsize((kn_dtype)access->dtype);
        may = b == d.unit[0] * d.step[0] && a == d.unit[1] * d.step[1] && d.unit[1] == d.next[0] &&
              d.next[0] == b * ki_extent(inner) && bytes <= MOST_DEALT;
    }
    ki_free(set);
    return may;
}

/* May windows of it be framed, outer's iterations in so many parts, so that outer and inner go along it as one loop? *all: bytes of what is
 * framed beside it, of all of which a cache keeps no more. */
static bool may_frame(const ki_nest *k, kn_uop e, kn_uop access, kn_uop outer, int64_t parts, kn_uop inner,
                      kn_uop *before, int64_t *all) {
    const ki_scope *s = &k->scope;
    bool may = false, rows = false;
    ki_frame f;
    if (!may_copy(k, e, access, outer, inner, false, before) || !ki_scope_has(s, access, inner)) return false;
    uint64_t *set = ki_calloc(s->words, sizeof *set);
    if (set && ki_mark_outer(k, *before, set) && ki_find_frame(k, access, set, false, &f)) {
        int64_t bytes = (int64_t)ki_itemsize((kn_dtype)access->dtype);
        may = ki_scope_rank(s, outer) < ki_scope_rank(s, inner);
        for (uint32_t i = 0; i < f.n; i++) rows |= f.pair[i].loop == outer;
        for (uint32_t q = 0; may && q < s->nrange; q++) {
            kn_uop r = s->range[q];
            if (!ki_scope_has(s, access, r) || ki_in_set(set, q)) continue;
            int64_t n = ki_framed(&f, r);
            if (r == outer) n -= ki_extent(r) - ki_extent(r) / parts;
            may = (bytes *= n) <= MOST_FRAMED;
        }
        may = may && (*all += bytes) <= MOST_FRAMED;
    }
    ki_free(set);
    return may && rows;
}

/* Outer's iterations in so many parts. The loop over parts goes where what is copied in it, inside `before`, is copied once. */
static bool split_rows(ki_choice *c, kn_uop e, kn_uop outer, int64_t parts, kn_uop before) {
    kn_uop behind = NULL;
    for (uint32_t j = e->nsrc - 1; j > 0 && e->src[j] != before; j--)
        if (e->src[j]->arg.range.axis != KN_AX_THREAD) behind = e->src[j];
    if (!behind || !ki_nest_independent(&c->nest, behind)) return false;
    uint32_t loop = ki_nest_next_range(&c->nest), at = behind->arg.range.id;
    if (ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)outer->arg.range.axis, true, outer->arg.range.id, parts) &&
        behind != outer)
        ki_choice_do(c, KI_OPT_SWAP, 0, false, at, loop);
    return true;
}

/* Bytes of windows of the access framed whole, of rows in so many parts, inside *before; 0: they cannot be. */
static int64_t all_framed(const ki_nest *k, kn_uop e, kn_uop access, kn_uop rows, int64_t parts, kn_uop v,
                          kn_uop *before) {
    const ki_scope *s = &k->scope;
    int64_t bytes = (int64_t)ki_itemsize((kn_dtype)access->dtype);
    bool along = false;
    ki_frame f;
    if (!may_copy(k, e, access, rows, v, true, before)) return 0;
    uint64_t *set = ki_calloc(s->words, sizeof *set);
    bool may = set && ki_mark_outer(k, *before, set) && ki_find_frame(k, access, set, true, &f);
    for (uint32_t q = 0; may && q < s->nrange; q++) {
        kn_uop r = s->range[q];
        if (!ki_scope_has(s, access, r) || ki_in_set(set, q)) continue;
        int64_t n = ki_framed(&f, r);
        for (uint32_t i = 0; i < f.n; i++) {
            along |= f.pair[i].loop == v;
            if (f.pair[i].window == r && f.pair[i].loop == rows)
                n -= (ki_extent(rows) - ki_extent(rows) / parts) * f.pair[i].step;
        }
        may = (bytes *= n) <= MOST_FRAMED;
    }
    ki_free(set);
    return may && along ? bytes : 0;
}

int64_t ki_frame_parts(const ki_nest *k, kn_uop e, kn_uop access, kn_uop v, kn_uop *rows, kn_uop *before) {
    bool known;
    *rows = v; /* the loop along whose steps rows lie nearest to each other */
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == v || ki_extent(r) < 2 || !ki_scope_has(&k->scope, access, r)) continue;
        if (*rows == v || ki_nest_stride(k, access, r, &known) < ki_nest_stride(k, access, *rows, &known)) *rows = r;
    }
    if (all_framed(k, e, access, *rows, 1, v, before)) return 1;
    for (int64_t parts = 2, n = ki_extent(*rows); *rows != v && parts * FEWEST_STRIP <= n; parts++) {
        int64_t bytes = n % parts ? 0 : all_framed(k, e, access, *rows, parts, v, before);
        if (bytes && bytes <= MOST_STRIP) return parts;
    }
    return 0;
}

bool ki_frame_all(ki_choice *c, kn_uop e, kn_uop access, kn_uop v) {
    kn_uop rows, before;
    int64_t parts = ki_frame_parts(&c->nest, e, access, v, &rows, &before);
    if (parts > 1) return split_rows(c, e, rows, parts, before);
    int32_t slot = ki_storage(access)->arg.param->slot;
    return parts && ki_choice_do(c, KI_OPT_FRAME, 0, true, before ? before->arg.range.id : UINT32_MAX, slot);
}

/* Of a hundred lanes in vectors over n, how many do something. With few registers a tile of many rows is two vectors wide at most. */
static int64_t busy(const ki_choice *c, int64_t n) {
    int64_t unit = c->lanes * (c->target->nvector < 32 ? 2 : 1);
    return 100 * n / ((n + unit - 1) / unit * unit);
}

typedef struct staged {
    kn_uop access, before;
    ki_optop how;
} staged;

/* May outer, in so many parts, and inner be one loop? *first: what must be staged before, or dealt out. */
static bool may_join(const ki_nest *k, kn_uop e, kn_uop outer, int64_t parts, kn_uop inner, ki_optop how,
                     staged *first) {
    const ki_scope *s = &k->scope;
    int64_t framed = 0;
    *first = (staged){0};
    for (uint32_t i = 0; i <= s->at[e->id]; i++) {
        kn_uop u = s->node[i], before;
        if (!ki_is_access(u) || !(ki_scope_has(s, u, outer) || ki_scope_has(s, u, inner))) continue;
        bool both = counts_both(k, u, outer, inner);
        if (how == KI_OPT_FRAME && (!both || ki_is_gated(u))) {
            if (!may_frame(k, e, u, outer, parts, inner, &before, &framed)) return false;
            if (!first->access) *first = (staged){u, before, KI_OPT_FRAME};
            continue;
        }
        bool deals = !both && how == KI_OPT_DEAL && may_deal(k, e, u, outer, inner, &before);
        if (both ? masks_terms(k, u) : !deals && !may_stage(k, e, u, outer, parts, inner, &before)) return false;
        if (!both && !first->access) *first = (staged){u, before, deals ? KI_OPT_DEAL : KI_OPT_STAGE};
    }
    return true;
}

static bool copy_first(ki_choice *c, const staged *first) {
    uint32_t before = first->before ? first->before->arg.range.id : UINT32_MAX;
    ki_choice_do(c, first->how, 0, false, before, ki_storage(first->access)->arg.param->slot);
    return true;
}

/* The next step towards one loop for outer and inner. */
static bool join_pair(ki_choice *c, kn_uop e, kn_uop outer, kn_uop inner, ki_optop how) {
    staged first;
    if (!may_join(&c->nest, e, outer, 1, inner, how, &first)) return false;
    if (first.access) copy_first(c, &first);
    else ki_choice_do(c, KI_OPT_JOIN, 0, false, outer->arg.range.id, inner->arg.range.id);
    return true;
}

/* Outer's iterations in so many parts, each staged or framed by itself. */
static bool part_rows(ki_choice *c, kn_uop e, kn_uop outer, int64_t parts, kn_uop inner, ki_optop how) {
    staged first = {0};
    if (!may_join(&c->nest, e, outer, parts, inner, how, &first) || !first.access) return false;
    return split_rows(c, e, outer, parts, first.before);
}

/* Where the whole is too much to stage: a few rows together, which fill their registers and are a tile's. */
static bool stage_rows(ki_choice *c, kn_uop e, kn_uop outer, kn_uop inner) {
    int64_t m = ki_extent(outer), n = ki_extent(inner), rows = MOST_VECTORS * c->lanes / n;
    while (rows > 1 && (m % rows || rows * n % c->lanes || busy(c, rows * n) <= busy(c, n))) rows--;
    return rows > 1 && rows < m && part_rows(c, e, outer, m / rows, inner, KI_OPT_STAGE);
}

/* Windows of all rows, so that they can be one; where rows fill their vectors, of as many as may be framed together. */
static bool frame_rows(ki_choice *c, kn_uop e, kn_uop outer, kn_uop inner, bool joins) {
    int64_t m = ki_extent(outer);
    staged first;
    if (joins) return join_pair(c, e, outer, inner, KI_OPT_FRAME);
    if (may_join(&c->nest, e, outer, 1, inner, KI_OPT_FRAME, &first)) return first.access && copy_first(c, &first);
    for (int64_t parts = 2; parts * FEWEST_ROWS <= m; parts++)
        if (m % parts == 0 && part_rows(c, e, outer, parts, inner, KI_OPT_FRAME)) return true;
    return false;
}

/* Do the reads inside the sum x go along both loops as along one? */
static bool sums_both(const ki_nest *k, kn_uop x, kn_uop outer, kn_uop inner) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = 0; i < s->at[x->id]; i++)
        if (ki_is_access(s->node[i]) && (ki_scope_has(s, s->node[i], outer) || ki_scope_has(s, s->node[i], inner)) &&
            !counts_both(k, s->node[i], outer, inner))
            return false;
    return true;
}

bool ki_join_sums(ki_choice *c, uint32_t id) {
    kn_uop inner = ki_nest_range(&c->nest, id), x = ki_nest_closer(&c->nest, inner), outer = NULL;
    for (uint32_t j = 1; j < x->nsrc && x->src[j] != inner; j++) outer = ki_is_lane(x->src[j]) ? outer : x->src[j];
    if (!outer || ki_is_lane(inner) || !sums_both(&c->nest, x, outer, inner)) return false;
    return ki_choice_do(c, KI_OPT_JOIN, 0, false, outer->arg.range.id, id);
}

bool ki_join_rows(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    bool known;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        int64_t n = ki_extent(v), m = ki_extent(r);
        if (r == v || ki_is_lane(r) || r->arg.range.axis != v->arg.range.axis || m < 2) continue;
        if (ki_nest_stride(k, ki_nest_store(e)->src[0], r, &known) != n || !known) continue;
        if (!ki_nest_independent(k, r) || !ki_nest_independent(k, v)) continue;
        bool joins = busy(c, m * n) > busy(c, n);
        /* A mask is free but for its place: where two multiply-adds a cycle are done a masked load takes that of one. */
        if (c->target->twice && ki_masks_are_free(c) && frame_rows(c, e, r, v, joins)) return true;
        if (!joins) continue;
        if (join_pair(c, e, r, v, KI_OPT_STAGE) || stage_rows(c, e, r, v)) return true;
        /* What is dealt out is read in place. */
        if (ki_masks_are_free(c) && join_pair(c, e, r, v, KI_OPT_DEAL)) return true;
    }
    return false;
}
