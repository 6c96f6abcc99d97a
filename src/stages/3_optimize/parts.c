/* parts.c: long sums of products that both operands lie along, as the gradient of a convolution's filters: one of the sum's loops, the
 * images, goes around a block of results, which are kept in a LOCAL buffer (the OptOp ROWS), so that vectors lie along a loop in which
 * neither operand is contiguous. pack.c packs a panel of one operand, of one part of the sum, for all rows of the other one. A sum across
 * lanes of both, which it would be else, reads every operand again for each few results, all of it from memory.
 *
 * The operand that is packed is the one under a mask, or with fewer elements to pack. What is left of the nest copies the block. */
#include "stages/3_optimize/choose.h"

#define LEAST_TERMS 256       /* of the sum */
#define MANY_TERMS  (1 << 14) /* of one that has lanes, but too few of them */
#define PART_TERMS  512       /* of a part, at least, if there are as many */
#define LEAST_USES  16        /* of a panel */
#define MOST_PANEL  (1 << 20) /* bytes: it stays in the second-level cache; half of it where it is wider than a vector */
#define MOST_WIDE   4         /* vectors of a block */

/* How often those of the nest's loops run that `has` knows and `lacks` does not, whatever threads share them: what decides the order of
 * a sum must not depend on their number. */
static int64_t times(const ki_choice *c, kn_uop e, kn_uop has, kn_uop lacks) {
    const ki_scope *s = &c->nest.scope;
    int64_t n = 1;
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (ki_extent(e->src[j]) && ki_scope_has(s, has, e->src[j]) && !ki_scope_has(s, lacks, e->src[j]))
            n *= ki_extent(e->src[j]);
    return n;
}

/* The nest's only sum; NULL: it has none, or more. */
static kn_uop only_sum(const ki_nest *k, kn_uop e) {
    kn_uop x = NULL;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop y = k->closer[q];
        bool in = y && y->op == KN_REDUCE && ki_varies_in(k, y, e);
        if (in && x && x != y) return NULL;
        if (in) x = y;
    }
    return x;
}

/* That sum, of products of two operands, neither of which lies along a loop of the nest that is as long as a vector, whose loops may
 * change places; else NULL. */
static kn_uop long_product(const ki_choice *c, kn_uop e, kn_uop operand[2]) {
    const ki_nest *k = &c->nest;
    kn_uop x = only_sum(k, e);
    bool known;
    if (!x || x->arg.reduce.op != KN_ADD || x->arg.reduce.axes || x->nsrc < 3 || x->dtype != KN_F32) return NULL;
    if (x->src[0]->op != KN_MUL) return NULL;
    for (uint32_t j = 1; j < x->nsrc; j++)
        if (!ki_extent(x->src[j])) return NULL;
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (ki_is_serial(e->src[j]) && !ki_nest_independent(k, e->src[j])) return NULL;
    for (uint32_t i = 0; i < 2; i++) {
        kn_uop u = operand[i] = x->src[0]->src[i];
        if (!ki_is_access(u) || ki_storage(u)->op != KN_PARAM || ki_word_of(k, u) != u) return NULL;
        for (uint32_t j = 1; j < e->nsrc; j++)
            if (ki_extent(e->src[j]) >= c->lanes && ki_nest_stride(k, u, e->src[j], &known) == 1 && known) return NULL;
    }
    return operand[0] == operand[1] ? NULL : x;
}

/* The loop stands so many places from the end of its nest. */
static bool put_last(ki_choice *c, uint32_t id, uint32_t place) {
    kn_uop e = ki_nest_closer(&c->nest, ki_nest_range(&c->nest, id)), at = e->src[e->nsrc - place];
    return at->arg.range.id == id || ki_choice_do(c, KI_OPT_SWAP, 0, false, at->arg.range.id, id);
}

/* What is left of the nest stores the sums. */
static void store_block(ki_choice *c, uint32_t lanes_of) {
    kn_uop r = ki_nest_range(&c->nest, lanes_of), e = ki_nest_closer(&c->nest, r), store = ki_nest_store(e);
    bool known;
    ki_choice_mark(c, e);
    if (store && ki_nest_stride(&c->nest, store->src[0], r, &known) == 1 && known)
        ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, lanes_of, c->lanes);
}

/* What `has` knows and `lacks` does not but u: a panel serves these loops too, which stand inside the sum's. How many. */
static uint32_t other_loops(const ki_nest *k, kn_uop e, kn_uop u, kn_uop has, kn_uop lacks, uint32_t id[KI_MAX_RANK]) {
    uint32_t n = 0;
    for (uint32_t j = 1; j < e->nsrc && n < KI_MAX_RANK; j++) {
        kn_uop r = e->src[j];
        bool is = r != u && ki_is_serial(r) && ki_extent(r) > 1;
        if (is && ki_scope_has(&k->scope, has, r) && !ki_scope_has(&k->scope, lacks, r)) id[n++] = r->arg.range.id;
    }
    return n;
}

bool ki_choose_parts(ki_choice *c, kn_uop e, bool few) {
    kn_uop operand[2], x = ki_keeps_sums(c, e) ? NULL : long_product(c, e, operand);
    if (!x || ki_terms(x) < (few ? MANY_TERMS : LEAST_TERMS)) return false;
    int64_t all[2];
    kn_uop own[2];
    for (int i = 0; i < 2; i++) {
        own[i] = ki_apart(&c->nest, e, operand[i], operand[!i], NULL, NULL);
        all[i] = times(c, e, operand[i], operand[!i]);
    }
    bool gated[2] = {ki_is_gated(operand[0]), ki_is_gated(operand[1])};
    int packed = gated[0] != gated[1] ? gated[1] : all[1] < all[0];
    if (gated[packed] && (!own[packed] || ki_extent(own[packed]) < c->lanes))
        packed = !packed; /* nothing to put lanes along */
    kn_uop r = x->src[1], v = own[packed], u = own[!packed];
    int64_t n = ki_extent(r), rest = ki_terms(x) / (n ? n : 1), f = 1, wide = MOST_WIDE;
    if (!u || !v || (gated[0] && gated[1]) || n < 2 || ki_extent(v) % c->lanes || all[!packed] < LEAST_USES)
        return false;
    while (rest * f < PART_TERMS && f * 2 < n && n % (f * 2) == 0) f *= 2;
    int64_t vector = c->lanes * (int64_t)sizeof(float), panel = rest * f * vector, kept = all[!packed] * vector;
    while (wide > 1 &&
           (ki_extent(v) % (wide * c->lanes) || 2 * panel * wide > MOST_PANEL || kept * wide > KI_MOST_KEPT))
        wide /= 2;
    if (panel > MOST_PANEL || kept > KI_MOST_KEPT) return false;
    uint32_t other[KI_MAX_RANK], others = other_loops(&c->nest, e, u, operand[!packed], operand[packed], other);
    uint32_t rows = u->arg.range.id, whole = v->arg.range.id, part = r->arg.range.id, block = whole;
    if (ki_extent(v) > wide * c->lanes) {
        block = ki_nest_next_range(&c->nest);
        ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)v->arg.range.axis, false, whole, wide * c->lanes);
    }
    bool ok = c->ok && put_last(c, rows, 2) && put_last(c, block, 1);
    uint32_t first = rows;
    for (uint32_t i = 0; ok && i < others; i++) ok = put_last(c, other[i], 3 + i), first = other[i];
    if (ok && f > 1) ok = ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, part, f);
    if (ok) ki_choice_rows(c, ki_nest_range(&c->nest, part), ki_nest_range(&c->nest, first), 1, false);
    if (c->ok) store_block(c, block);
    return true;
}
