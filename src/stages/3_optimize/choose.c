/* choose.c: vectors for one nest, or for one reduce whose nest has none. */
#include "stages/3_optimize/choose.h"

#include "base/cpuid.h"

bool ki_masks_are_free(const ki_choice *c) { return c->target->native && c->target->level >= KI_CPU_AVX512_LEVEL; }

int64_t ki_lanes_for(const ki_choice *c, int64_t n) {
    int64_t bits = 0, up = 1;
    if (n >= c->lanes) return c->lanes;
    if (n < 2 || n * 4 < c->lanes) return 0;
    for (int64_t m = n; m; m &= m - 1) bits++;
    if (bits == 1 || (bits == 2 && n >= 6 && !ki_masks_are_free(c))) return n; /* one or two registers, no masks */
    while (up < n) up *= 2;
    return up;
}

static int64_t vectors_of(const ki_choice *c, kn_uop r) { return (ki_extent(r) + c->lanes - 1) / c->lanes; }

int64_t ki_unroll(const ki_choice *c, kn_uop r, unsigned weight) {
    int64_t n = vectors_of(c, r);
    int64_t most = weight == 0 ? c->target->nvector / 2 : weight <= 12 ? 4 : weight <= 40 ? 2 : 1;
    if (!ki_lanes_for(c, ki_extent(r))) return 0;
    if (c->knobs.unroll) most = c->knobs.unroll;
    else if (n > KI_SHORT && most > n / 2) most = most > 8 && n >= 16 ? 8 : 4;
    while (n < KI_SHORT && n % most) most = c->knobs.unroll ? most - 1 : most / 2;
    return most;
}

/* Are words read along r? A vector of them is not read in part. */
static bool reads_words(const ki_nest *k, kn_uop r) {
    for (uint32_t i = 0; i < k->nreads; i++)
        if (ki_word_of(k, k->reads[i]) != k->reads[i] && ki_reads_row(k, k->reads[i], r)) return true;
    return false;
}

bool ki_choice_fit(ki_choice *c, kn_uop r, int64_t vectors) {
    int64_t lanes = ki_lanes_for(c, ki_extent(r));
    if (lanes && ki_extent(r) > lanes && reads_words(&c->nest, r)) return ki_choice_even(c, r, lanes);
    if (vectors_of(c, r) >= KI_SHORT) {
        int64_t left = ki_extent(r) % (vectors * lanes);
        if (left == 0) return false;
        /* What is left over must be worth a vector itself, so that it is computed in the same order. */
        if (!ki_lanes_for(c, left)) left += vectors * lanes;
        if (left >= ki_extent(r)) /* not one such piece */
            return ki_choice_do(c, KI_OPT_PADTO, 0, false, r->arg.range.id, vectors * lanes), true;
        return ki_choice_do(c, KI_OPT_CUT, 0, false, r->arg.range.id, ki_extent(r) - left), true;
    }
    if (ki_extent(r) % lanes == 0) return false;
    return ki_choice_do(c, KI_OPT_PADTO, 0, false, r->arg.range.id, lanes), true;
}

kn_uop ki_nest_store(kn_uop end) {
    kn_uop b = end->src[0];
    if (b->op == KN_GROUP && b->nsrc) b = b->src[0];
    return b->op == KN_STORE && ki_is_access(b->src[0]) ? b : NULL;
}

/* Whether the reduce x reads contiguously along r, or, given NULL, along one of its own loops that is at least so long. */
static bool reads_along(const ki_nest *k, kn_uop x, kn_uop r, int64_t least) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!k->read[i]) continue;
        bool own = false, unit = false, known;
        for (uint32_t j = 1; j < x->nsrc; j++) {
            if (!ki_scope_has(s, s->node[i]->src[1], x->src[j])) continue;
            own = true;
            unit |= ki_extent(x->src[j]) >= least && ki_nest_stride(k, s->node[i], x->src[j], &known) == 1 && known;
        }
        if (!own) continue;
        if (r ? ki_nest_stride(k, s->node[i], r, &known) == 1 && known : unit) return true;
    }
    return false;
}

bool ki_sums_rows(const ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(&k->scope, x, v)) continue;
        if (!reads_along(k, x, v, 0) && reads_along(k, x, NULL, c->lanes / 2)) return true;
    }
    return false;
}

kn_uop ki_crossing(const ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    bool known;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop a = k->scope.node[i];
        if (!k->read[i] || ki_nest_stride(k, a, v, &known) == 1 || !ki_scope_has(&k->scope, a->src[1], v)) continue;
        for (uint32_t j = 1; j < e->nsrc; j++) {
            kn_uop r = e->src[j];
            if (!ki_is_serial(r) || r == v || !ki_extent(r)) continue;
            if (ki_nest_stride(k, a, r, &known) == 1 && known && ki_nest_independent(k, r)) return r;
        }
    }
    return NULL;
}

#define ACROSS      8
#define HALF        4   /* columns of a square of 8 lanes (square.c) */
#define FEW_OPS     8   /* weight of what is written out for each line of a block, and */
#define MOST_ACROSS 100 /* of what is for ACROSS vectors of it */
#define MANY        8   /* vectors of rows that are written several at once */
#define CHANNELS    8   /* of memory, by lines */
#define MOST_LINES  16  /* of a row of results, and bytes between rows: */
#define NOT_NEAR    (1 << 13)
#define NOT_FAR     (1 << 15)
#define FURTHEST    (1 << 16)

/* Where a copy goes along two loops as along one they are one. True if a step was made. */
static bool join_copied(ki_choice *c, kn_uop e, kn_uop to, kn_uop from) {
    bool known[4];
    for (uint32_t i = 1; i < e->nsrc; i++)
        for (uint32_t j = 1; j < e->nsrc; j++) {
            kn_uop outer = e->src[i], inner = e->src[j];
            int64_t n = ki_extent(inner);
            if (i == j || !ki_is_serial(outer) || !ki_is_serial(inner) || n < 2 || ki_extent(outer) < 2) continue;
            int64_t a = ki_nest_stride(&c->nest, from, inner, known),
                    b = ki_nest_stride(&c->nest, to, inner, known + 1);
            bool both = ki_nest_stride(&c->nest, from, outer, known + 2) == a * n &&
                        ki_nest_stride(&c->nest, to, outer, known + 3) == b * n;
            if (a != 1 || !both || !known[0] || !known[1] || !known[2] || !known[3]) continue;
            return ki_choice_do(c, KI_OPT_JOIN, 0, false, outer->arg.range.id, inner->arg.range.id), true;
        }
    return false;
}

/* Are columns read and written as rows (square.c)? */
static bool has_squares(const ki_choice *c) {
    return c->target->native && c->target->level >= KI_CPU_AVX2_LEVEL && c->lanes * 4 == c->target->vector;
}

/* A copy whose lanes are read apart from each other, of what lies along one of its loops: ACROSS steps of that at once, which are read as
 * rows (square.c). */
static bool choose_squares(ki_choice *c, kn_uop e) {
    const ki_nest *k = &c->nest;
    kn_uop s = ki_nest_store(e), from = s ? s->src[1] : NULL;
    bool known, rows = false;
    if (!from || !has_squares(c) || !ki_is_access(from) || ki_is_gated(from) || ki_itemsize((kn_dtype)from->dtype) != 4)
        return false;
    for (uint32_t j = 1; j < e->nsrc; j++)
        rows |= ki_is_lane(e->src[j]) && ki_extent(e->src[j]) == c->lanes &&
                ki_nest_stride(k, s->src[0], e->src[j], &known) == 1 &&
                ki_nest_stride(k, from, e->src[j], &known) >= ACROSS;
    if (rows && join_copied(c, e, s->src[0], from)) return true;
    for (uint32_t j = 1; j < e->nsrc && rows; j++) {
        kn_uop r = e->src[j];
        if (!ki_is_serial(r) || ki_extent(r) < ACROSS || ki_nest_stride(k, from, r, &known) != 1 || !known) continue;
        ki_choice_mark(c, e); /* what is cut off has the same lanes, and stays as it is */
        ki_choice_even(c, r, ACROSS);
        if (c->ok) ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, r->arg.range.id, ACROSS);
        return true;
    }
    return false;
}

/* r a multiple of f: when it is cut the other loop is to stand inside it, so that its parts are nests of both. True if a step was made. */
static bool even_around(ki_choice *c, kn_uop e, kn_uop r, kn_uop other, int64_t f) {
    if (ki_extent(r) % f == 0 || ki_place_in(e, r) < ki_place_in(e, other)) return ki_choice_even(c, r, f);
    return ki_choice_do(c, KI_OPT_SWAP, 0, false, other->arg.range.id, r->arg.range.id), true;
}

static bool has_sums(const ki_nest *k) {
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (k->closer[q] && k->closer[q]->op == KN_REDUCE) return true;
    return false;
}

/* Bytes between what e stores past the caches by steps of u; 0: it does not, or that is not known. */
static int64_t stored_apart(const ki_choice *c, kn_uop e, kn_uop u) {
    kn_uop s = ki_nest_store(e), p = s ? ki_storage(s->src[0]) : NULL;
    return p && p->op == KN_PARAM && ki_is_past(c, p) ? ki_nest_step(&c->nest, s->src[0], u) : 0;
}

kn_uop ki_only_read(const ki_nest *k, kn_uop r) {
    kn_uop read = NULL;
    for (uint32_t i = 0; i < k->nreads; i++) {
        if (!ki_scope_has(&k->scope, k->reads[i], r)) continue;
        if (read) return NULL;
        read = k->reads[i];
    }
    return read;
}

/* Bytes between what is read along u for steps of v, where nothing else is read along v; 0: there is something else, or it is not known. */
static int64_t read_apart(const ki_nest *k, kn_uop v, kn_uop u) {
    kn_uop read = ki_only_read(k, v);
    bool known;
    return read && ki_nest_stride(k, read, u, &known) == 1 && known ? ki_nest_step(k, read, v) : 0;
}

/* Lines of results that a block stores beside each other where what is asked for is lost behind stores (a Zen 4), each an iteration further on than the one
 * before (rotate.c): of 4096 rows by 16 KiB 16 took 0.83, eight 0.9, four 0.93 of the time of four that are not. Each is so many more rows that are read at
 * once: what is read of rows further apart shares a few sets of the second cache. Little is to be left over, and nothing else read: of another matrix
 * beside it eight took 1.4 to 1.9 times as long. */
static int64_t many_lines(const ki_choice *c, kn_uop v, int64_t read, int64_t stored) {
    int64_t least = read < stored ? read : stored, most = read < stored ? stored : read;
    int64_t n = ki_extent(v), left = n % (8 * c->lanes);
    if (most > FURTHEST || 8 * left > n) return 4;
    return least >= NOT_NEAR && most <= NOT_FAR && (n - left) % (MOST_LINES * c->lanes) == 0 ? MOST_LINES : 8;
}

/* Vectors of a block's row: one where there are few, else as many as make lines of results that are stored at about the same time: two, or, past the
 * caches, if they are whole lines apart, four. Where much is to be under way not four: each reads 16 more rows at once, and 64 are read at two thirds of
 * the rate of 48 there; three where what is stored in a row shares a channel of memory, as it seems, with what is stored in all others: lines beside each
 * other do not. Two where the hardware fetches streams (Xeons with FP16): four took 1.1 to 2.2 times as long. */
static int64_t vectors_of_block(const ki_choice *c, kn_uop e, kn_uop v, kn_uop u, bool halves) {
    int64_t apart = halves ? 0 : stored_apart(c, e, u), line = c->target->line, n = 2;
    int64_t read = apart && has_squares(c) && ki_waits_behind_stores(c) ? read_apart(&c->nest, v, u) : 0;
    if (read) n = many_lines(c, v, read, apart);
    else if (apart && apart % line == 0 && c->target->streams < 2)
        n = !c->ahead ? 4 : apart % (CHANNELS * line) == 0 ? 3 : 2;
    return ki_extent(v) < (n < MANY ? MANY - MANY % n : n) * c->lanes ? 1 : n;
}

/* A transposing nest goes in blocks, vectors along v by ACROSS along u, or by a line where that is read in one (square.c), u innermost:
 * each cache line read is used up while it is at hand, each line written is filled at once, and those beside it.
 * Where a line is two vectors they are stored one after the other, of HALF a square each: what is stored past the caches is then whole lines,
 * however few of them a processor gathers at once. Of what takes more than a few instructions ACROSS vectors are as many as are worth writing
 * out; read lane by lane they took 10 to 20 times as long. */
static void choose_blocks(ki_choice *c, uint32_t iv, uint32_t iu) {
    int64_t line = c->target->line / 4, beside, across; /* line: elements, which a square of as many reads */
    bool halves = has_squares(c) && c->lanes < line;
    kn_uop e, v, u;
    do { /* what is cut off comes later: lanes of other lengths that it has would go outside of these (expand.c) */
        v = ki_nest_range(&c->nest, iv), u = ki_nest_range(&c->nest, iu), e = ki_nest_closer(&c->nest, v);
        bool heavy = ki_weight_in(&c->nest, v) > FEW_OPS;
        int64_t n = ki_extent(u);
        beside = heavy ? 1 : vectors_of_block(c, e, v, u, halves);
        across = halves ? HALF : ACROSS;
        if (!heavy && !halves && has_squares(c) && n >= line && (n % line == 0 || n % ACROSS)) across = line;
        if (!even_around(c, e, v, u, beside * c->lanes) && !even_around(c, e, u, v, across)) break;
    } while (c->ok);
    if (!c->ok) return;
    ki_choice_mark(c, e);
    kn_uop last = ki_last_loop(e);
    if (last != u && ki_nest_independent(&c->nest, last) &&
        !ki_choice_do(c, KI_OPT_SWAP, 0, false, iu, last->arg.range.id))
        return;
    ki_part lanes = {KN_AX_UPCAST, iv, c->lanes}, lines = {KN_AX_UPCAST, iv, beside > 1 ? beside : 0},
            columns = {KN_AX_UPCAST, iu, across};
    KI_CHOICE_SPLIT(c, lanes, halves ? columns : lines, halves ? lines : columns);
}

/* A nest whose results are few in a row (v) but whose sums read rows along u: vectors along u, all of v beside each other, so
 * that what is stored lane by lane is stored close together. */
static bool choose_across(ki_choice *c, kn_uop e, kn_uop v, kn_uop u) {
    const ki_nest *k = &c->nest;
    bool sums = false;
    for (uint32_t q = 0; q < k->scope.nrange && !sums; q++) {
        kn_uop x = k->closer[q];
        sums =
            x && x->op == KN_REDUCE && x->id < e->id && ki_scope_has(&k->scope, x, v) && ki_scope_has(&k->scope, x, u);
    }
    int64_t n = ki_extent(v);
    if (!sums || n >= c->lanes || n > ACROSS || ki_extent(u) % c->lanes) return false;
    uint32_t iv = v->arg.range.id, iu = u->arg.range.id;
    ki_choice_mark(c, e);
    KI_CHOICE_SPLIT(c, {KN_AX_UPCAST, iu, c->lanes}, {KN_AX_UPCAST, iv, n});
    return true;
}

/* ---- windows ----------------------------------------------------------------------------------------------- */

#define FEW_TAPS   16  /* terms of a sum that are written out */
#define MOST_TERMS 160 /* vectors of them in one nest */

/* Terms of the sums of this nest that vary along v, if they are few in each; 0: there are none, or too many, or lanes already. */
static int64_t few_taps(const ki_nest *k, kn_uop e, kn_uop v) {
    int64_t most = 0;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        int64_t n = 1;
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(&k->scope, x, v)) continue;
        for (uint32_t j = 1; j < x->nsrc; j++) n *= ki_is_lane(x->src[j]) ? 0 : ki_extent(x->src[j]);
        if (n < 2 || n > FEW_TAPS) return 0;
        if (n > most) most = n;
    }
    return most;
}

/* A loop whose next iteration reads again, in a sum, what this one read: rows of windows that overlap. Of *taps each, *step apart. */
static kn_uop overlapping(const ki_nest *k, kn_uop e, kn_uop v, int64_t *taps, int64_t *step) {
    bool known[2];
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == v || !ki_is_serial(r) || ki_extent(r) < 2) continue;
        for (uint32_t i = 0; i < k->nreads; i++)
            for (uint32_t q = 0; q < k->scope.nrange; q++) {
                kn_uop tap = k->scope.range[q];
                if (ki_nest_closer(k, tap)->op != KN_REDUCE) continue;
                int64_t a = ki_nest_stride(k, k->reads[i], r, known),
                        b = ki_nest_stride(k, k->reads[i], tap, known + 1);
                bool again = known[0] && known[1] && a > 0 && b > 0 && a % b == 0 && a / b < ki_extent(tap);
                if (again && ki_nest_independent(k, r)) return *taps = ki_extent(tap), *step = a / b, r;
            }
    }
    return NULL;
}

/* Do four windows beside each other read an eighth less for each than two do? */
static bool saves_rows(int64_t taps, int64_t step) { return 8 * (3 * step + taps) <= 7 * 2 * (step + taps); }

/* Sums of a few terms, as of pooling and of convolutions channel by channel, are written out, so that their masks are made once,
 * and rows that read the same stand beside each other. False: nothing was done. */
static bool choose_window(ki_choice *c, kn_uop e, kn_uop v, int64_t lanes, int64_t unroll) {
    const ki_nest *k = &c->nest;
    int64_t taps = few_taps(k, e, v), f = 1, high, step;
    kn_uop row = taps ? overlapping(k, e, v, &high, &step) : NULL;
    if (!row) return false;
    if (ki_choice_fit(c, v, unroll)) return true;
    for (int64_t n = 4; n > 1 && f == 1; n--)
        if (ki_extent(row) % n == 0 && n * unroll * taps <= MOST_TERMS && (n < 3 || saves_rows(high, step))) f = n;
    ki_part part[KI_MAX_RANK + 3];
    uint32_t iv = v->arg.range.id, ir = row->arg.range.id, n = 0;
    ki_choice_mark(c, e);
    for (uint32_t q = 0; q < k->scope.nrange && n < KI_MAX_RANK; q++) {
        kn_uop r = k->scope.range[q], x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(&k->scope, x, v)) continue;
        ki_choice_mark(c, x);
        part[n++] = (ki_part){KN_AX_UNROLL, r->arg.range.id, ki_extent(r)};
    }
    part[n++] = (ki_part){KN_AX_UPCAST, iv, lanes};
    part[n++] = (ki_part){KN_AX_UPCAST, iv, unroll > 1 ? unroll : 0};
    part[n++] = (ki_part){KN_AX_UPCAST, ir, f > 1 ? f : 0};
    ki_choice_split(c, part, n);
    return true;
}

/* ---- parts of a row ----------------------------------------------------------------------------------------- */

/* Is u one of what the conjunction p asks for, or p itself? */
static bool is_part_of(kn_uop u, kn_uop p) {
    while (p != u && p->op == KN_AND) p = p->src[1] == u ? u : p->src[0];
    return p == u;
}

bool ki_chooses_sum(const ki_nest *k, kn_uop u) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop w = s->node[i], p = w->op == KN_WHERE && w->dtype != KN_IDX ? w->src[0] : NULL;
        if (!p || !(w->src[1]->op == KN_REDUCE || s->level[s->at[w->src[1]->id]])) continue;
        if (!u || is_part_of(u, p)) return true;
    }
    return false;
}

/* What is several values beside each other, each a sum of its own, is cut where one ends and the next begins. True if a step was
 * made. */
static bool cut_values(ki_choice *c, kn_uop e) {
    const ki_nest *k = &c->nest;
    bool any = ki_chooses_sum(k, NULL); /* else there are as many comparisons as pieces, and each would be looked for */
    for (uint32_t i = 0; any && i < k->scope.n; i++) {
        kn_uop r;
        if (k->scope.node[i]->op != KN_CMPLT) continue;
        int64_t at = ki_changes_at(k, k->scope.node[i], &r);
        if (at < c->lanes || ki_nest_closer(k, r) != e || !ki_is_serial(r)) continue;
        if (!ki_nest_independent(k, r) || !ki_chooses_sum(k, k->scope.node[i])) continue;
        kn_uop first = e->src[1]; /* the parts are whole nests if nothing stands around r */
        if (first == r || first->arg.range.axis == KN_AX_THREAD || !ki_nest_independent(k, first))
            return ki_choice_do(c, KI_OPT_CUT, 0, false, r->arg.range.id, at), true;
        return ki_choice_do(c, KI_OPT_SWAP, 0, false, first->arg.range.id, r->arg.range.id), true;
    }
    return false;
}

/* Does u say which of two values that vary with r is meant? */
static bool chooses_values(const ki_nest *k, kn_uop u, kn_uop r) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = s->at[u->id]; i < s->n; i++) {
        kn_uop w = s->node[i], p = w->op == KN_WHERE && w->dtype != KN_IDX ? w->src[0] : NULL;
        if (!p || !ki_scope_has(s, w->src[1], r) || !ki_scope_has(s, w->src[2], r)) continue;
        if (is_part_of(u, p)) return true;
    }
    return false;
}

bool ki_cut_sums(ki_choice *c) {
    const ki_nest *k = &c->nest;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop r;
        if (k->scope.node[i]->op != KN_CMPLT) continue;
        int64_t at = ki_changes_at(k, k->scope.node[i], &r);
        kn_uop x = at ? ki_nest_closer(k, r) : NULL;
        if (!x || x->op != KN_REDUCE || x->arg.reduce.op != KN_ADD || !chooses_values(k, k->scope.node[i], r)) continue;
        return ki_choice_do(c, KI_OPT_CUT, 0, false, r->arg.range.id, at);
    }
    return false;
}

/* A row of heads, each with a matrix of its own: what is divided by the head's width is a loop over heads. True if a step was made. */
static bool split_heads(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    for (uint32_t i = 0; v && i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], by = u->op == KN_IDIV ? u->src[1] : NULL;
        if (!by || by->op != KN_CONST || u->src[0] != v || ki_nest_closer(k, v) != e) continue;
        int64_t d = by->arg.i, n = ki_extent(v);
        if (d < c->lanes || d >= n || n % d) continue;
        return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)v->arg.range.axis, false, v->arg.range.id, d), true;
    }
    return false;
}

/* Sums that nothing makes vectors of, eight at a time: one would wait for its own last addition. */
static bool choose_apart(ki_choice *c, kn_uop e) {
    for (uint32_t j = e->nsrc; j-- > 1 && ki_nest_store(e);) {
        kn_uop r = e->src[j];
        int64_t n = ki_is_serial(r) ? ki_extent(r) : 0, f = 8;
        while (f > 1 && n % f) f /= 2;
        if (n < 2 || f < 2 || !ki_sums_in(&c->nest, r, 0) || ki_sums_rows(c, e, r) || !ki_nest_independent(&c->nest, r))
            continue;
        ki_choice_mark(c, e);
        return ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, r->arg.range.id, f), true;
    }
    return false;
}

#define FEW_PICKED 4 /* where there are others beside them */

/* A copy whose lanes are read one by one: several vectors of it would be as many more instructions, and no faster. */
static bool picks_lanes(const ki_choice *c, kn_uop e, kn_uop v) {
    kn_uop s = ki_nest_store(e), from = s ? s->src[1] : NULL;
    bool known;
    return from && ki_is_access(from) && ki_nest_stride(&c->nest, from, v, &known) >= ACROSS && known;
}

static bool has_lanes(kn_uop e) {
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (ki_is_lane(e->src[j])) return true;
    return false;
}

/* ---- extents known at launch ------------------------------------------------------------------------------- */

/* Whole blocks, which the steps that follow make vectors of, and what is left, padded to one. True if a step was made. */
static bool choose_whole(ki_choice *c, kn_uop r) {
    kn_uop n = r->src[0];
    unsigned weight = ki_weight_in(&c->nest, r);
    int64_t block = c->lanes * (weight <= 12 ? 4 : weight <= 40 ? 2 : 1);
    uint32_t id = r->arg.range.id;
    if (n->op == KN_MUL && ki_is_const_int(n->src[1], block))
        return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)r->arg.range.axis, false, id, block), true;
    if (n->hi.i < block) return ki_choice_do(c, KI_OPT_PADTO, 0, false, id, block), true;
    if (c->lanes < 2 || n->hi.i < 2 * block || !ki_scope_fixed(&c->nest.scope, n)) return false;
    return ki_choice_do(c, KI_OPT_CUT, 0, false, id, block), true;
}

/* A nest without sums whose results follow each other along such a loop. */
static bool choose_whole_nest(ki_choice *c, kn_uop e) {
    kn_uop s = ki_nest_store(e);
    bool known;
    for (uint32_t j = 1; s && j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (!ki_is_serial(r) || ki_extent(r) || ki_nest_stride(&c->nest, s->src[0], r, &known) != 1 || !known) continue;
        if (!ki_sums_in(&c->nest, r, 0) && ki_nest_independent(&c->nest, r)) return choose_whole(c, r);
    }
    return false;
}

/* A sum along such a loop of what follows each other. */
static bool choose_whole_sum(ki_choice *c, kn_uop x) {
    const ki_nest *k = &c->nest;
    bool known;
    for (uint32_t j = 1; j < x->nsrc; j++)
        for (uint32_t i = 0; ki_is_serial(x->src[j]) && !ki_extent(x->src[j]) && i < k->scope.n; i++)
            if (k->read[i] && ki_nest_stride(k, k->scope.node[i], x->src[j], &known) == 1 && known)
                return choose_whole(c, x->src[j]);
    return false;
}

#define BLOCK    64 /* iterations of a loop of long chains, */
#define FEWEST   16
#define CHAIN    20 /* weight of its body, and */
#define FUNCTION 16 /* of something in it */

/* Iterations of a block of a loop along v whose chains are to be cut in two (5_select/chains.c): a first cache has what is kept of it. 0: of all of it,
 * or they are short. */
static int64_t block_of(const ki_choice *c, kn_uop v, int64_t trips) {
    const ki_nest *k = &c->nest;
    bool function = false;
    if (!c->target->native || !ki_is_narrow(c) || trips <= BLOCK || ki_weight_in(k, v) < CHAIN) return 0;
    for (uint32_t i = 0; i < k->scope.n && !function; i++)
        function = ki_scope_has(&k->scope, k->scope.node[i], v) && ki_weight(k->scope.node[i]) >= FUNCTION;
    int64_t n = function ? BLOCK : 0;
    while (n && trips % n) n--;
    return n >= FEWEST ? n : 0;
}

void ki_choose_nest(ki_choice *c, kn_uop e) {
    ki_tile t = {0};
    if (choose_whole_nest(c, e)) return;
    if (ki_choose_phases(c, e) || cut_values(c, e) || ki_choose_spread(c, e)) return;
    ki_find_tile(c, e, &t);
    bool few = t.reduce && !t.row && ki_extent(t.v) * 2 <= c->lanes;
    if ((!t.reduce || t.row || few) && ki_choose_parts(c, e, few)) return;
    if (ki_choose_column(c, e, t.v) || ki_choose_filled(c, e, t.v)) return;
    if (t.reduce) {
        if (ki_choose_strips(c, e, &t) || ki_choose_end(c, e, &t)) return;
        ki_apply_tile(c, e, &t);
        return;
    }
    if (split_heads(c, e, t.v) || ki_choose_rows(c, e, t.v)) return;
    if (!t.v && (ki_choose_scan(c, e) || choose_apart(c, e) || choose_squares(c, e))) return;
    if (!t.v || ki_sums_rows(c, e, t.v)) {
        ki_choice_mark(c, e);
        return;
    }
    uint32_t id = t.v->arg.range.id;
    int64_t lanes = ki_lanes_for(c, ki_extent(t.v)), unroll = lanes ? t.step / lanes : 0;
    if (unroll == 0) {
        ki_choice_mark(c, e);
        return;
    }
    kn_uop u = ki_crossing(c, e, t.v);
    if (u && choose_across(c, e, t.v, u)) return;
    unsigned most = has_sums(&c->nest) ? FEW_OPS : MOST_ACROSS; /* sums beside it would keep no lanes */
    if (u && ki_extent(u) >= ACROSS && ki_extent(t.v) >= c->lanes && ki_weight_in(&c->nest, t.v) <= most) {
        choose_blocks(c, t.v->arg.range.id, u->arg.range.id);
        return;
    }
    if (!c->knobs.unroll && picks_lanes(c, e, t.v)) {
        unroll = 1;
        if (has_lanes(e) && lanes > FEW_PICKED) lanes = FEW_PICKED;
    }
    if (choose_window(c, e, t.v, lanes, unroll) || ki_choice_fit(c, t.v, unroll)) return;
    int64_t places = ki_places_along(c, e, t.v, lanes, &unroll);
    bool one = places == 1;
    if (!one && ki_choice_even(c, t.v, places * lanes * unroll)) return;
    uint32_t part = one ? id : ki_nest_next_range(&c->nest);
    ki_choice_mark(c, e);
    KI_CHOICE_SPLIT(c, {(kn_axis)t.v->arg.range.axis, id, one ? 0 : ki_extent(t.v) / places},
                    {KN_AX_UPCAST, id, one ? 0 : places}, {KN_AX_UPCAST, part, lanes},
                    {KN_AX_UPCAST, part, unroll > 1 ? unroll : 0},
                    {KN_AX_LOOP, part, one ? block_of(c, t.v, ki_extent(t.v) / (lanes * unroll)) : 0});
}

/* Does the kernel multiply rows that it keeps by what it reads? Then several rows are tiled together (tile.c), and its other
 * reduces go along each of them. */
static bool tiles_rows(const ki_nest *k) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        bool own = false, other = false;
        for (uint32_t i = 0; x && x->op == KN_REDUCE && i < k->scope.n; i++) {
            if (!k->read[i] || !ki_varies_in(k, k->scope.node[i]->src[1], x)) continue;
            if (ki_storage(k->scope.node[i])->op == KN_BUFFER) own = true;
            else other = true;
        }
        if (own && other) return true;
    }
    return false;
}

void ki_choose_reduce(ki_choice *c, kn_uop x) {
    ki_nest *k = &c->nest;
    const ki_scope *s = &k->scope;
    kn_uop best = NULL;
    int most = 0;
    bool known, ahead = ki_nest_opt(k, KI_OPT_PIPELINE, NULL) != NULL;
    if (ki_choose_first(c, x)) return;
    bool tiled = tiles_rows(k) || c->apart;
    for (uint32_t q = 0; q < s->nrange; q++) { /* lanes it has already */
        if (!ki_is_lane(s->range[q]) || !ki_scope_has(s, x->src[0], s->range[q])) continue;
        if ((!tiled && !c->paired) || reads_along(k, x, s->range[q], 0)) {
            ki_choice_mark(c, x);
            return;
        }
    }
    if (choose_whole_sum(c, x)) return;
    for (uint32_t j = 1; j < x->nsrc; j++) {
        int unit = 0;
        if (ki_extent(x->src[j]) < 2 || !ki_unroll(c, x->src[j], 100)) continue;
        for (uint32_t i = 0; i < k->nreads; i++)
            unit += !(ahead && ki_reads_ahead(k->reads[i])) && ki_nest_stride(k, k->reads[i], x->src[j], &known) == 1 &&
                    known;
        if (unit > most) most = unit, best = x->src[j];
    }
    if (!best) {
        ki_choice_mark(c, x);
        return;
    }
    uint32_t id = best->arg.range.id;
    unsigned weight = ki_weight_in(k, best) - (ahead ? ki_weight_ahead(k, best) : 0);
    int64_t unroll = ki_unroll(c, best, weight), lanes = ki_lanes_for(c, ki_extent(best));
    /* A product of rows adds up in the same order as a dot tile, which other rows of the kernel may be part of; a row that is not read beside
     * others as one that is. */
    if (most > 1 || tiled) unroll = 1;
    int64_t parts = c->beside == id + 1 && unroll > 1 && lanes == c->lanes ? c->target->streams : 0;
    if (ki_is_seldom(k, x) && ki_extent(best) % (unroll * lanes)) { /* in one loop, which is run or is not */
        (void)ki_choice_do(c, KI_OPT_PADTO, 0, false, id, unroll * lanes);
        return;
    }
    if (ki_choice_fit(c, best, parts ? parts : unroll)) return;
    ki_choice_mark(c, x);
    if (parts) { /* a vector of each part, in a register of its own */
        uint32_t part = ki_nest_next_range(k);
        if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, true, id, parts)) return;
        KI_CHOICE_SPLIT(c, {KN_AX_UNROLL, id, lanes}, {KN_AX_UNROLL, part, parts});
        return;
    }
    KI_CHOICE_SPLIT(c, {KN_AX_UNROLL, id, lanes}, {KN_AX_UNROLL, id, unroll > 1 ? unroll : 0});
}
