/* prepare.c: host functions of prepare.kr. */
#include "stages/2_rangeify/rangeify.h"

enum {
    FEW = 8, /* values: fewer are summed up in parts */
    MOST_CHUNKS = 64,
    PART = 1024 /* terms of a product's part: of what a tile reads of both sides so much stays in the caches */
};

/* Of t n elements from `from` on along axis `at`. */
static void part_of(kn_uop t, unsigned at, int64_t from, int64_t n, int64_t *offset, int64_t *dim) {
    for (unsigned k = 0; k < t->type->rank; k++) offset[k] = 0, dim[k] = t->type->dim[k].n;
    offset[at] = from;
    dim[at] = n;
}

/* The largest divisor of n up to MOST_CHUNKS, from `least` on; 0: there is none. */
static int64_t divisor(int64_t n, int64_t least) {
    int64_t c = 0;
    for (int64_t k = least > 2 ? least : 2; k <= MOST_CHUNKS; k++)
        if (n % k == 0) c = k;
    return c;
}

/* Elements that are there of a product's side, before it was laid out beside the other. Narrow ones, which were cast, go by dot products. */
static double elements(kn_uop u) {
    double all = (double)u->type->numel, n = all;
    for (; ki_range_is_view(u); u = u->src[0])
        if ((double)u->src[0]->type->numel < n) n = (double)u->src[0]->type->numel;
    return u->op == KN_CAST ? all : n;
}

/* Is a product's side, of n terms, divided by or less something that was found of all n, as softmax's rows are? The kernel that reads it keeps such
 * rows (row.c), and what follows the whole row would not be known in a part. */
static bool is_row(kn_uop side, int64_t n) {
    enum { NEAR = 4 };
    for (int depth = 0; depth < NEAR; depth++) {
        while (ki_range_is_view(side)) side = side->src[0];
        if (!ki_is_elementwise((kn_op)side->op)) return false;
        for (uint32_t k = 0; k < side->nsrc; k++) {
            kn_uop s = side->src[k];
            while (ki_range_is_view(s)) s = s->src[0];
            bool all = s->op == KN_REDUCE && s->src[0]->type->numel == side->type->numel;
            if (all && s->type->numel * n == side->type->numel) return true;
        }
        side = side->src[0];
    }
    return false;
}

/* In how many parts the n terms of a matrix product are summed up; 0: at once. What a tile reads of one side for all terms of many is in no
 * cache when the next tile reads it again. The parts' sums are as many as both sides have elements at most, else there are fewer. */
static int64_t product_chunks(kn_uop u, int64_t n, const ki_prepare *o) {
    kn_uop t = u->src[0];
    uint32_t axes = u->arg.reduce.axes;
    if (n < o->terms || axes & (axes - 1) || u->arg.reduce.op != KN_ADD || t->op != KN_MUL ||
        !ki_is_float((kn_dtype)u->dtype))
        return 0;
    double a = elements(t->src[0]), b = elements(t->src[1]), all = (double)t->type->numel,
           sums = (double)u->type->numel;
    if (all < KI_SIDE_REUSE * a || all < KI_SIDE_REUSE * b || is_row(t->src[0], n) || is_row(t->src[1], n)) return 0;
    int64_t c = (n + PART - 1) / PART, most = (int64_t)((a + b) / sums);
    if (c > most) c = most;
    if (c > MOST_CHUNKS) c = MOST_CHUNKS;
    for (int64_t k = 0; k <= c / 2 && c - k > 1; k++) {
        if (n % (c - k) == 0) return c - k;
        if (n % (c + k) == 0 && c + k <= MOST_CHUNKS) return c + k;
    }
    return c < 2 ? 0 : c;
}

/* A long sum becomes a stored one over chunks of the longest reduced axis, and one of what they are. Where there are fewer than 8 values
 * the axis n becomes (c, n / c), c the largest divisor up to 64. An axis that has no such divisor leaves less than c behind, which the outer
 * REDUCE's kernel adds. How it is cut depends on the shape alone, so results do not depend on the number of threads. */
kn_uop ki_prepare_chunks(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop u = m->root, t = u->src[0], rest = NULL;
    uint32_t axes = u->arg.reduce.axes, inner = 0;
    const ki_prepare *o = m->user;
    int64_t dim[KI_MAX_RANK], order[KI_MAX_RANK], offset[KI_MAX_RANK], n = 0, c = 0;
    unsigned at = 0, rank = t->type->rank;
    if (u->nsrc != 1 || t->type->numel < o->least || t->type->symbolic || rank + 1 > KI_MAX_RANK) return NULL;
    for (unsigned k = 0; k < rank; k++)
        if (axes >> k & 1 && t->type->dim[k].n > n) n = t->type->dim[k].n, at = k;
    bool few = u->type->numel < FEW;
    if (few) {
        c = divisor(n, o->chunks);
        if (c == 0 && n > MOST_CHUNKS) c = MOST_CHUNKS;
    } else c = product_chunks(u, n, o);
    if (c == 0 || n == c) return NULL;
    if (n % c) {
        part_of(t, at, n - n % c, n % c, offset, dim);
        rest = ki_reduce(ir, ki_shrink(ir, t, offset, dim), (kn_op)u->arg.reduce.op, axes);
        part_of(t, at, 0, n -= n % c, offset, dim);
        t = ki_shrink(ir, t, offset, dim);
        if (!rest || !t) return NULL;
    }
    /* Chunks outermost, one after the other: what one reads, of a product or for several values, stays. */
    for (unsigned k = 0; k <= rank; k++) {
        dim[k] = k < at ? t->type->dim[k].n : k == at ? c : k == at + 1 ? n / c : t->type->dim[k - 1].n;
        order[k] = k == 0 ? at : k <= at ? (int64_t)k - 1 : k;
        bool reduced = order[k] < at ? axes >> order[k] & 1 : order[k] == at ? false : axes >> (order[k] - 1) & 1;
        inner |= (uint32_t)reduced << k;
    }
    ki_load l = {.device = u->type->device, .addrspace = KN_GLOBAL};
    const void *p = ki_intern(ir, &l, sizeof l);
    t = ki_reshape(ir, t, dim, rank + 1);
    if (t && at) t = ki_permute(ir, t, order, rank + 1);
    kn_uop part = t ? ki_reduce(ir, t, (kn_op)u->arg.reduce.op, inner) : NULL;
    kn_uop kept = part && p ? ki_make(ir, KN_LOAD, KN_VOID, &part, 1, (kn_arg){.p = p}, 0) : NULL;
    kn_uop whole = kept ? ki_reduce(ir, kept, (kn_op)u->arg.reduce.op, 1) : NULL;
    for (unsigned k = 0; k < rank; k++) dim[k] = u->type->dim[k].n;
    whole = whole ? ki_reshape(ir, whole, dim, rank) : NULL;
    return rest ? ki_op2(ir, (kn_op)u->arg.reduce.op, whole, rest) : whole;
}

/* ---- sums of many products ------------------------------------------------------------------------------------- */

typedef struct terms { /* of a REDUCE's body, last ones first */
    kn_uop term[KI_MOST_SIDES], side[KI_MOST_SIDES];
    kn_uop rest[KI_MOST_SIDES]; /* what is before them, in order */
    unsigned n, sides, nrest;
    int64_t most, reuse; /* as ki_prepare */
} terms;

/* Both sides of a product, each read many times over; false: it is none, or there is no room. */
static bool add_sides(terms *x, kn_uop t) {
    kn_uop side[2];
    unsigned more = 0;
    for (unsigned k = 0; k < 2; k++) {
        if (t->op != KN_MUL) return false;
        for (side[more] = t->src[k]; ki_range_is_view(side[more]);) side[more] = side[more]->src[0];
        if (side[more]->type->numel * x->reuse > t->type->numel) return false;
        bool met = more && side[0] == side[1];
        for (unsigned j = 0; j < x->sides; j++) met |= x->side[j] == side[more];
        more += !met;
    }
    if (x->sides + more > x->most || x->n == KI_MOST_SIDES) return false;
    for (unsigned k = 0; k < more; k++) x->side[x->sides++] = side[k];
    x->term[x->n++] = t;
    return true;
}

/* As many of the last terms of the sum t as have room. */
static void find_terms(terms *x, kn_uop t, int64_t most, int64_t reuse) {
    *x = (terms){.rest = {t}, .nrest = 1, .most = most, .reuse = reuse};
    while (x->nrest) {
        t = x->rest[x->nrest - 1];
        if (t->op == KN_ADD && x->nrest < KI_MOST_SIDES) {
            x->rest[x->nrest - 1] = t->src[0];
            x->rest[x->nrest++] = t->src[1];
        } else if (add_sides(x, t)) {
            x->nrest--;
        } else {
            break;
        }
    }
}

uint32_t ki_range_sides(kn_uop u) {
    terms x;
    if (u->arg.reduce.op != KN_ADD || u->src[0]->op != KN_ADD) return 0;
    find_terms(&x, u->src[0], KI_MOST_SIDES, KI_SIDE_REUSE);
    return x.nrest ? 0 : x.sides;
}

/* A sum of products that are more than a kernel reads the sides of (a weight's gradient, of each step it was used at): two sums, of which
 * one is stored. What the products add up to, element by element, is far more. */
kn_uop ki_prepare_terms(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop u = m->root, last, first;
    terms x;
    const ki_prepare *o = m->user;
    int64_t most = o->sides ? o->sides : 2; /* those of one product at least */
    if (u->nsrc != 1 || u->src[0]->type->symbolic) return NULL;
    find_terms(&x, u->src[0], most, o->reuse);
    if (!x.nrest || !x.n || !add_sides(&(terms){.most = most, .reuse = o->reuse}, x.rest[x.nrest - 1])) return NULL;
    for (last = x.term[--x.n]; x.n && last;) last = ki_op2(ir, KN_ADD, last, x.term[--x.n]);
    first = x.rest[0];
    for (unsigned k = 1; k < x.nrest && first; k++) first = ki_op2(ir, KN_ADD, first, x.rest[k]);
    first = first ? ki_reduce(ir, first, KN_ADD, u->arg.reduce.axes) : NULL;
    last = last ? ki_reduce(ir, last, KN_ADD, u->arg.reduce.axes) : NULL;
    return first && last ? ki_op2(ir, KN_ADD, first, last) : NULL;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Rows of x that are long and lie along memory, of which nothing else needs what is taken off, what is left, its exponentials, their sum or its
 * logarithm. */
bool ki_prepare_pays(ki_match *m, const ki_val *arg, unsigned n, ki_val *out) {
    const ki_prepare *o = m->user;
    kn_uop x = arg[0].node, off = arg[1].node;
    bool alone = true, along = !x->type->symbolic && x->type->rank && x->type->numel >= o->row * off->type->numel;
    for (unsigned k = 1; k < n && o->users; k++) {
        uint32_t id = arg[k].node->id;
        alone &= id < o->n && o->users[id] <= (k == 1 ? 2 : 1);
    }
    for (unsigned k = 0; o->row && along && k < x->type->rank; k++)
        along = off->type->dim[k].n == (k + 1 < x->type->rank ? x->type->dim[k].n : 1);
    for (kn_uop v = x; o->row && along && ki_range_is_view(v); v = v->src[0]) along = v->op != KN_PERMUTE;
    bool whole = off->type->numel >= FEW || x->type->numel < o->least;
    out->kind = KI_V_BOOL;
    out->i = !o->row || (alone && along && whole);
    return true;
}
