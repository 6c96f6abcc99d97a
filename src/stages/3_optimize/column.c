/* column.c: a matrix times a few vectors whose elements lie apart, as where a CUT leaves one or four positions of an image.
 *
 *   sum over c, ky, kx of x[c, 6 + ky, 6 + kx] w[o, c, ky, kx]
 * The vectors are copied once (STAGE), each in the order in which a row of the matrix lies in memory; the loops of the sum are then one
 * (JOIN) along which all are contiguous: with one vector a row takes a sixteenth of the multiplications, with four a quarter. */
#include "stages/3_optimize/choose.h"

#define MOST_SUMS   4
#define LEAST_ROWS  4
#define LEAST_LANES 4         /* vectors in a row: each ends in a sum across lanes */
#define MOST_BYTES  (1 << 18) /* of the copy, which every row reads */
#define ROWS        4         /* at once */
#define BUSY        8         /* sums at once, of several vectors: multiply-adds that start while one of them runs */
#define FIRST       (1 << 15) /* bytes of a copy that more rows need not share: a first cache has it */

typedef struct column {
    uint32_t loop[KI_MAX_RANK], n; /* of the sum, as they lie in a row of the matrix */
    int32_t slot;                  /* of the vector */
    int64_t bytes;                 /* of the copy */
} column;

/* The sum's loops in the order of the row of memory that they are together; false: they are none. */
static bool is_row(const ki_nest *k, kn_uop access, kn_uop sum, column *o) {
    kn_uop loop[KI_MAX_RANK];
    int64_t stride[KI_MAX_RANK], next = 1;
    bool known;
    if (sum->nsrc < 2 || sum->nsrc - 1 > KI_MAX_RANK) return false;
    for (o->n = 0; o->n + 1 < sum->nsrc; o->n++) {
        kn_uop r = sum->src[o->n + 1];
        int64_t s = ki_nest_stride(k, access, r, &known);
        uint32_t at = o->n;
        if (!known || r->arg.range.axis != KN_AX_REDUCE || ki_extent(r) < 2) return false;
        for (; at > 0 && stride[at - 1] < s; at--) stride[at] = stride[at - 1], loop[at] = loop[at - 1];
        stride[at] = s, loop[at] = r;
    }
    for (uint32_t j = o->n; j-- > 0; next *= ki_extent(loop[j])) {
        if (stride[j] != next) return false;
        o->loop[j] = loop[j]->arg.range.id;
    }
    return true;
}

/* The operands of a sum of products of two that are read: *n is how many there are. */
static void operands(const ki_nest *k, kn_uop sum, kn_uop *found, uint32_t *n) {
    const ki_scope *s = &k->scope;
    *n = 0;
    for (uint32_t i = 0; i < s->at[sum->id]; i++)
        if (k->read[i] && ki_varies_in(k, s->node[i], sum)) {
            if (*n < 2) found[*n] = s->node[i];
            ++*n;
        }
}

/* A loop over rows: the matrix varies in it, the vector does not, nor does it lie along another one than v. */
static kn_uop rows_of(const ki_nest *k, kn_uop e, kn_uop matrix, kn_uop vector, kn_uop v) {
    kn_uop u = NULL;
    bool known;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (ki_is_lane(r)) return NULL;
        if (r != v && ki_extent(r) > 1 && ki_nest_stride(k, vector, r, &known) == 1) return NULL;
        if (r == v && ki_scope_has(&k->scope, matrix, v)) return NULL;
        bool row = ki_is_serial(r) && ki_scope_has(&k->scope, matrix, r) && !ki_scope_has(&k->scope, vector, r);
        if (row && ki_extent(r) >= LEAST_ROWS && ki_nest_independent(k, r)) u = r;
    }
    return u;
}

/* A buffer that is filled before the nest. */
static bool is_copy(const ki_nest *k, kn_uop e, kn_uop access) {
    kn_uop from = access->src[0];
    return from->op == KN_AFTER && ki_storage(access)->op == KN_BUFFER && !ki_varies_in(k, from, e);
}

/* Is the sum one of this kind, over rows u (NULL: any, which is then set) and the vectors of v (NULL: one)? */
static bool is_column(const ki_choice *c, kn_uop e, kn_uop sum, kn_uop v, kn_uop *u, column *o) {
    const ki_nest *k = &c->nest;
    kn_uop of[2];
    uint32_t n, count;
    operands(k, sum, of, &n);
    if (n != 2 || sum->arg.reduce.op != KN_ADD) return false;
    for (int i = 0; i < 2; i++) {
        kn_uop matrix = of[i], vector = of[1 - i], from = ki_storage(vector), r;
        if (ki_word_of(k, matrix) != matrix || ki_word_of(k, vector) != vector || !is_row(k, matrix, sum, o)) continue;
        if (!(r = rows_of(k, e, matrix, vector, v)) || (*u && *u != r)) continue;
        int64_t terms = 1, lanes = ki_choice_lanes(c, sum);
        for (uint32_t j = 1; j < sum->nsrc; j++) terms *= ki_extent(sum->src[j]);
        o->bytes = terms * (v ? ki_extent(v) : 1) * (int64_t)ki_itemsize((kn_dtype)vector->dtype);
        if (terms % lanes || terms < LEAST_LANES * lanes || o->bytes > MOST_BYTES) continue;
        o->slot = ki_slot_of(from);
        if (from->op == KN_PARAM ? ki_is_written(k, o->slot) : !is_copy(k, e, vector)) continue;
        ki_nest_read_of(k, e, o->slot, &count);
        if (count == 1) return *u = r, true;
    }
    return false;
}

bool ki_choose_column(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    column of[MOST_SUMS];
    uint32_t n = 0;
    kn_uop u = NULL;
    int64_t vectors = v ? ki_extent(v) : 1;
    if (vectors < 1 || vectors > KI_FEW_COLUMNS || e->nsrc < 3 || !ki_nest_store(e)) return false;
    for (uint32_t i = 0; i < k->scope.at[e->id]; i++) {
        kn_uop x = k->scope.node[i];
        if (x->op != KN_REDUCE || x->nsrc < 2 || !ki_varies_in(k, x, e)) continue;
        if (n == MOST_SUMS || !is_column(c, e, x, v, &u, &of[n++])) return false;
    }
    kn_uop last = ki_last_loop(e);
    if (!n || (last != u && !ki_nest_independent(k, last))) return false;
    uint32_t iu = u->arg.range.id;
    int64_t f = ROWS, most = c->target->nvector / 2, bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes = of[i].bytes > bytes ? of[i].bytes : bytes;
    if (bytes <= FIRST && most > BUSY) most = BUSY;
    while (ki_extent(u) % f || (vectors > 1 && f * vectors > most)) f /= 2;
    if (last != u) ki_choice_do(c, KI_OPT_SWAP, 0, false, iu, last->arg.range.id);
    if (vectors > 1) ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, v->arg.range.id, vectors);
    ki_part part[MOST_SUMS + 1] = {{KN_AX_UPCAST, iu, f > 1 ? f : 0}};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; c->ok && j < of[i].n; j++) { /* in this order */
            kn_uop at = ki_nest_closer(k, ki_nest_range(k, of[i].loop[0]))->src[j + 1];
            if (at->arg.range.id != of[i].loop[j])
                ki_choice_do(c, KI_OPT_SWAP, 0, false, at->arg.range.id, of[i].loop[j]);
        }
        if (c->ok) ki_pack_before(c, iu, of[i].slot, vectors > 1);
        for (uint32_t j = 1; c->ok && j < of[i].n; j++)
            ki_choice_do(c, KI_OPT_JOIN, 0, false, of[i].loop[0], of[i].loop[j]);
    }
    if (!c->ok) return true;
    ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, iu)));
    for (uint32_t i = 0; i < n; i++) {
        kn_uop x = ki_nest_closer(k, ki_nest_range(k, of[i].loop[0]));
        ki_choice_mark(c, x);
        part[i + 1] = (ki_part){KN_AX_UNROLL, of[i].loop[0], ki_choice_lanes(c, x)};
    }
    ki_choice_split(c, part, n + 1);
    return true;
}
