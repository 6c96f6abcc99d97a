/* tile.c: register tiles of matrix products, convolutions and their like.
 *
 * A reduce of at least two operands, one of which (streamed) is contiguous along the nest's vector range v and constant
 * along u, another constant along v and varying along u: u by mu and v by nv vectors make mu * nv accumulators that each
 * iteration feeds from mu + nv loads. Where both operands are contiguous along the reduce (A times B transposed), the
 * reduce is unrolled by a vector, and u and v give the tile. A streamed operand that would be read with long strides, or
 * under a gate, again for every tile of u, is packed first (STAGE). */
#include "stages/3_optimize/choose.h"

#define MOST_PACKED (1 << 19) /* bytes: it should stay in a core's second-level cache */
#define FAR         (1 << 14) /* bytes of memory that a panel may span and still be read in place */

/* The store's contiguous range. */
static kn_uop vector_range(const ki_choice *c, kn_uop e) {
    kn_uop s = ki_nest_store(e);
    bool known;
    for (uint32_t j = 1; s && j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (ki_is_lane(r) || r->arg.range.axis == KN_AX_THREAD || !ki_extent(r)) continue;
        if (ki_nest_stride(&c->nest, s->src[0], r, &known) == 1 && known && ki_nest_independent(&c->nest, r)) return r;
    }
    return NULL;
}

static bool uses(const ki_nest *k, kn_uop access, kn_uop r) { return ki_scope_has(&k->scope, access->src[1], r); }

/* Whether an access is an operand of the reduce x: it varies along one of x's own loops. */
static bool operand(const ki_nest *k, kn_uop access, kn_uop x) {
    for (uint32_t j = 1; j < x->nsrc; j++)
        if (uses(k, access, x->src[j])) return true;
    return false;
}

static bool lanes_in(const ki_nest *k, kn_uop x) {
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_is_lane(k->scope.range[q]) && ki_scope_has(&k->scope, x->src[0], k->scope.range[q])) return true;
    return false;
}

static int64_t own_extent(kn_uop x) {
    int64_t n = 1;
    for (uint32_t j = 1; j < x->nsrc; j++) n *= ki_extent(x->src[j]) ? ki_extent(x->src[j]) : 64;
    return n;
}

/* A loop of x along which both are contiguous. */
static kn_uop common_row(const ki_nest *k, kn_uop x, kn_uop a, kn_uop b, int64_t lanes) {
    bool ka, kb;
    for (uint32_t j = 1; j < x->nsrc; j++)
        if (ki_nest_stride(k, a, x->src[j], &ka) == 1 && ki_nest_stride(k, b, x->src[j], &kb) == 1 && ka && kb &&
            ki_extent(x->src[j]) >= 4 * lanes)
            return x->src[j];
    return NULL;
}

/* Streamed operand a, other operand b: is there a u? */
static bool pair(const ki_choice *c, kn_uop e, kn_uop x, kn_uop a, kn_uop b, ki_tile *t) {
    const ki_nest *k = &c->nest;
    bool known;
    if (a == b || !uses(k, a, t->v) || uses(k, b, t->v)) return false;
    int64_t sv = ki_nest_stride(k, a, t->v, &known);
    bool dot = sv != 1;
    if (!known || (dot && !common_row(k, x, a, b, c->lanes)) || (!dot && ki_extent(t->v) * 4 < c->lanes)) return false;
    kn_uop u = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop r = e->src[j];
        if (r == t->v || ki_is_lane(r) || r->arg.range.axis == KN_AX_THREAD || ki_extent(r) < 2) continue;
        if (uses(k, a, r) || !uses(k, b, r) || !ki_nest_independent(k, r)) continue;
        if (!u || ki_extent(r) > ki_extent(u)) u = r;
    }
    if (!u) return false;
    t->u = u, t->reduce = x, t->streamed = a, t->dot = dot;
    return true;
}

/* mu and nv: many products for each load, few left over. A short v is padded to whole vectors. */
static void tile_size(const ki_choice *c, ki_tile *t) {
    int64_t most = c->target->nvector >= 32 ? 24 : 12, n = ki_extent(t->u), m = ki_extent(t->v),
            lanes = t->dot ? 1 : c->lanes;
    double best = 0;
    if (!t->dot && m < KI_SHORT * lanes) m = (m + lanes - 1) / lanes * lanes;
    for (int64_t nv = 1; nv <= 4; nv++)
        for (int64_t mu = 1; mu <= 12; mu++) {
            if (mu * nv > most || mu > n || nv * lanes > m || (t->dot && mu > 4)) continue;
            if (!t->dot && m < KI_SHORT * lanes && m % (nv * lanes)) continue;
            double left_u = (double)(n % mu) / (double)n, left_v = (double)(m % (nv * lanes)) / (double)m;
            double score = (double)(mu * nv) / (double)(mu + nv + 1) * (1 - 0.7 * left_u) * (1 - 0.5 * left_v);
            if (n % mu) score *= 0.8; /* another nest each */
            if (m % (nv * lanes)) score *= 0.88;
            if (mu * nv < 8) score *= (double)(mu * nv) / 8;
            if (score > best * 1.001) best = score, t->mu = mu, t->nv = nv;
        }
}

/* Whether the panel of the streamed operand is better copied: read often, and from far apart or under a gate. */
static bool worth_packing(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t item = (int64_t)ki_itemsize((kn_dtype)t->streamed->dtype), own = own_extent(t->reduce), span = 0;
    kn_uop p = ki_storage(t->streamed);
    bool known, gated = t->streamed->src[1]->op == KN_WHERE;
    if (t->dot || p->op != KN_PARAM || ki_extent(t->u) / t->mu < 6 || own * t->step * item > MOST_PACKED) return false;
    /* STAGE wants the operand read in one place of the nest. */
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &e, 1, &node);
    bool alone = n > 0;
    for (int64_t i = 0; i < n; i++)
        if (k->read[k->scope.at[node[i]->id]] && node[i] != t->streamed && ki_storage(node[i]) == p) alone = false;
    ki_free(node);
    if (!alone) return false;
    for (uint32_t j = 1; j < t->reduce->nsrc; j++) {
        int64_t s = ki_nest_stride(k, t->streamed, t->reduce->src[j], &known);
        if (!ki_extent(t->reduce->src[j])) return false;
        if (s < 0) s = -s;
        if (s > 1) span += s * (ki_extent(t->reduce->src[j]) - 1) * item;
    }
    return gated || span > FAR;
}

/* A light nest that only adds up what it reads along v: wide strips, for the memory's sake. */
static bool sums_columns(const ki_nest *k, kn_uop e, kn_uop v) {
    const ki_scope *s = &k->scope;
    int reads = 0, reduces = 0;
    bool known, all = true;
    for (uint32_t q = 0; q < s->nrange; q++) {
        kn_uop x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(s, x, v)) continue;
        reduces++;
        for (uint32_t i = 0; i < s->n; i++) {
            if (!k->read[i] || !operand(k, s->node[i], x) || !uses(k, s->node[i], v)) continue;
            reads++;
            all &= ki_nest_stride(k, s->node[i], v, &known) == 1 && known;
        }
    }
    return reduces == 1 && reads == 1 && all;
}

void ki_find_tile(ki_choice *c, kn_uop e, ki_tile *t) {
    const ki_nest *k = &c->nest;
    const ki_scope *s = &k->scope;
    *t = (ki_tile){.step = 1};
    if (!(t->v = vector_range(c, e))) return;
    for (uint32_t q = 0; q < s->nrange && !t->u; q++) {
        kn_uop x = k->closer[q];
        if (!x || x->op != KN_REDUCE || x->id > e->id || !ki_scope_has(s, x, t->v) || lanes_in(k, x) ||
            own_extent(x) < 4)
            continue;
        for (uint32_t i = 0; i < s->n && !t->u; i++) {
            if (!k->read[i] || !operand(k, s->node[i], x)) continue;
            for (uint32_t j = 0; j < s->n && !t->u; j++)
                if (k->read[j] && operand(k, s->node[j], x)) pair(c, e, x, s->node[i], s->node[j], t);
        }
    }
    if (t->u) {
        if (c->tile.v == t->v->arg.range.id + 1) t->nv = c->tile.nv, t->mu = c->tile.mu;
        else tile_size(c, t);
        t->step = t->nv * (t->dot ? 1 : c->lanes);
        t->pack = worth_packing(c, e, t);
    } else {
        unsigned weight = 0;
        for (uint32_t i = 0; i < s->n; i++)
            if (ki_scope_has(s, s->node[i], t->v)) weight += ki_weight(s->node[i]);
        t->step = c->lanes * ki_unroll(c, t->v, sums_columns(k, e, t->v) ? 0 : weight);
    }
}

static kn_uop end_loop(kn_uop e, bool first) {
    kn_uop r = NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        if (ki_is_lane(e->src[j]) || e->src[j]->arg.range.axis == KN_AX_THREAD) continue;
        r = e->src[j];
        if (first) return r;
    }
    return r;
}

/* Brings u to the outer or inner end of the nest's loops. True if a step was made. */
static bool bring(ki_choice *c, kn_uop e, kn_uop u, bool first) {
    kn_uop to = end_loop(e, first);
    if (!to || to == u || !ki_nest_independent(&c->nest, to)) return false;
    ki_choice_do(c, KI_OPT_SWAP, 0, false, u->arg.range.id, to->arg.range.id);
    return true;
}

/* u is innermost, so that a packed panel serves all of it: the panel is packed before it. */
static bool pack(ki_choice *c, uint32_t u, int32_t slot) {
    kn_uop e = ki_nest_closer(&c->nest, ki_nest_range(&c->nest, u)), before = NULL;
    for (uint32_t j = 1; j < e->nsrc && e->src[j]->arg.range.id != u; j++) before = e->src[j];
    if (!before) return true;
    return ki_choice_do(c, KI_OPT_STAGE, 0, false, before->arg.range.id, slot);
}

/* Extents that the tile divides. What is cut off u is cut off outermost, so that the rest is still one nest with v outside
 * u when it is packed. True if a step was made. */
static bool even_out(ki_choice *c, kn_uop e, const ki_tile *t) {
    if (ki_extent(t->u) % t->mu) return (t->pack && bring(c, e, t->u, true)) || ki_choice_even(c, t->u, t->mu);
    if (t->pack && end_loop(e, false) != t->u && bring(c, e, t->u, false)) return true;
    return t->dot ? ki_choice_even(c, t->v, t->nv) : ki_choice_fit(c, t->v, t->nv);
}

bool ki_apply_tile(ki_choice *c, kn_uop e, const ki_tile *t) {
    uint32_t u = t->u->arg.range.id, v = t->v->arg.range.id, row = 0;
    int32_t slot = t->pack && end_loop(e, false) == t->u ? ki_storage(t->streamed)->arg.param->slot : -1;
    bool dot = t->dot;
    int64_t mu = t->mu, nv = t->nv;
    c->tile.v = v + 1;
    c->tile.mu = mu;
    c->tile.nv = nv;
    if (even_out(c, e, t) || !c->ok) return c->ok;
    if (dot) {
        kn_uop other = NULL;
        for (uint32_t i = 0; i < c->nest.scope.n; i++) {
            kn_uop b = c->nest.scope.node[i];
            if (c->nest.read[i] && operand(&c->nest, b, t->reduce) && !uses(&c->nest, b, t->v) &&
                uses(&c->nest, b, t->u))
                other = b;
        }
        kn_uop r = other ? common_row(&c->nest, t->reduce, t->streamed, other, c->lanes) : NULL;
        if (!r) return ki_choice_mark(c, e), true;
        row = r->arg.range.id;
        if (ki_choice_fit(c, r, 1) || !c->ok) return c->ok;
    }
    ki_choice_mark(c, e);
    ki_choice_mark(c, t->reduce);
    if (mu > 1 && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, u, mu)) return false;
    if (!dot && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, v, c->lanes)) return false;
    if (nv > 1 && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UPCAST, false, v, nv)) return false;
    if (dot && !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_UNROLL, false, row, c->lanes)) return false;
    return slot < 0 || pack(c, u, slot);
}
