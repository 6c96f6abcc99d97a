/* chains.c: a loop whose results are each the end of a long chain of operations becomes two, one after the other: of all chains the first half, whose
 * values are kept in LOCAL memory, then the second.
 *
 *   END(STORE(INDEX(P, i), f(g(x))), i)  becomes  END(STORE(INDEX(P, j), f(LOAD(INDEX(AFTER(B, first), j)))), j)
 *   first = END(STORE(INDEX(B, i), g(x)), i)
 *
 * A processor looks some 250 instructions ahead, in whatever order they stand: of chains of 110 cycles and 60 instructions it has four in its view, of
 * halves of them twice as many. A loop is cut where the longer half is shortest, a value that is kept counting as much as the cycles it takes; what is
 * a step or two from memory is computed in both. Below AVX-512 alone, whose instructions are twice as wide. 3_optimize makes the loop short enough for
 * what is kept to stay in a first cache (block_of, choose.c).
 *
 * What holds: the first half reads nothing that the loop stores or carries, so that it may run to its end before the second begins. Values are the
 * same to the bit. */
#include "base/cpuid.h"
#include "stages/5_select/kept.h"
#include "stages/5_select/select.h"

enum {
    LONG = 65,    /* cycles of a chain from which on it is cut, */
    SHORTER = 85, /* into parts of at most so much of it, percent */
    LOADED = 8,   /* cycles */
    NEAR = 5,     /* cycles from a load: computed again */
    KEPT = 8,     /* cycles that a kept value costs */
    MOST = 4,     /* of them */
    MOST_BYTES = 1 << 14,
    MOST_STORED = 16, /* buffers, by it */
    MOST_CUTS = 8     /* in a kernel */
};
enum { OUTSIDE = -1, CARRIED = -2 }; /* instead of a depth */

typedef struct chains {
    ki_ir *ir;
    ki_scope scope;
    kn_uop range; /* of the loop */
    kn_uop stored[MOST_STORED];
    uint32_t nstored;
    int32_t *depth, *rest; /* by place: cycles from the loop's start, from the second half's, to the value */
    bool *first;           /* by place: in the first half */
    kn_uop cut[MOST + 1];  /* what is kept, and room for the range */
    uint32_t ncut;
} chains;

static int32_t latency_of(kn_uop u) {
    if (u->dtype == KN_IDX) return 0;
    switch ((kn_op)u->op) {
    case KN_LOAD: return LOADED;
    case KN_MUL:
    case KN_MULACC:
    case KN_CAST: return 4;
    case KN_ADD:
    case KN_SUB:
    case KN_MAX: return 3;
    case KN_RECIP:
    case KN_DIV:
    case KN_SQRT: return 14;
    case KN_WHERE: return 2;
    default: return ki_is_elementwise((kn_op)u->op);
    }
}

static kn_uop memory_of(kn_uop access) {
    while (access->op == KN_INDEX || access->op == KN_AFTER) access = access->src[0];
    return access;
}

/* Does any chain of the kernel, loops or not, take so long? Few kernels go on from here. */
static bool has_long(ki_ir *ir, kn_uop sink, bool *ok) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    int32_t *depth = n < 0 ? NULL : ki_calloc((size_t)sink->id + 1, sizeof *depth), longest = 0;
    *ok = depth != NULL;
    if (n >= 0 && !depth) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; i < n && *ok; i++) {
        int32_t most = 0;
        for (uint32_t k = 0; k < node[i]->nsrc; k++)
            if (depth[node[i]->src[k]->id] > most) most = depth[node[i]->src[k]->id];
        bool anew = node[i]->op == KN_AFTER || node[i]->dtype == KN_VOID;
        depth[node[i]->id] = anew ? 0 : most + latency_of(node[i]);
        if (most > longest) longest = most;
    }
    if (n >= 0) ki_free(node);
    ki_free(depth);
    return longest >= LONG;
}

/* Is the loop that e closes last one that runs nothing but itself, and stores to few buffers? */
static bool is_inner(chains *c, kn_uop e) {
    const ki_scope *s = &c->scope;
    c->range = e->src[e->nsrc - 1], c->nstored = 0;
    if (c->range->arg.range.axis == KN_AX_THREAD || ki_extent(c->range) < 2) return false;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        if (u->op == KN_END && u != e && ki_scope_has(s, u->src[0], c->range)) return false;
        if ((u->op != KN_STORE && u->op != KN_ATOMICADD) || !ki_scope_has(s, u, c->range)) continue;
        if (c->nstored == MOST_STORED) return false;
        c->stored[c->nstored++] = memory_of(u->src[0]);
    }
    return true;
}

static bool is_stored(const chains *c, kn_uop access) {
    bool stored = false;
    for (uint32_t k = 0; k < c->nstored; k++) stored |= c->stored[k] == memory_of(access);
    return stored;
}

/* Depths; the longest chain that the loop stores. */
static int32_t measure(chains *c) {
    const ki_scope *s = &c->scope;
    int32_t longest = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        int32_t most = 0;
        c->depth[i] = OUTSIDE;
        if (!ki_scope_has(s, u, c->range)) continue;
        bool carried = u->op == KN_AFTER || (u->op == KN_LOAD && is_stored(c, u->src[0]));
        for (uint32_t k = 0; k < u->nsrc; k++) {
            int32_t d = c->depth[s->at[u->src[k]->id]];
            carried |= d == CARRIED;
            if (d > most) most = d;
        }
        c->depth[i] = carried ? CARRIED : most + latency_of(u);
        if (u->op == KN_STORE && most > longest) longest = most;
    }
    return longest;
}

/* What the second half needs of the first, if that is what the value at a place is made of. 0: it cannot be kept. */
static uint32_t cut_at(chains *c, uint32_t place, kn_uop *cut) {
    const ki_scope *s = &c->scope;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) c->first[i] = i == place;
    for (uint32_t i = place + 1; i-- > 0;)
        for (uint32_t k = 0; c->first[i] && k < s->node[i]->nsrc; k++) {
            uint32_t j = s->at[s->node[i]->src[k]->id];
            c->first[j] |= c->depth[j] > LOADED + NEAR;
        }
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; c->depth[i] != OUTSIDE && !c->first[i] && k < s->node[i]->nsrc; k++) {
            kn_uop u = s->node[i]->src[k];
            bool known = !c->first[s->at[u->id]];
            for (uint32_t j = 0; j < n; j++) known |= cut[j] == u;
            if (known) continue;
            bool lanes = ki_numel(u) > 1 && ki_numel(u) <= KI_KEPT_LANES;
            if (n == MOST || !lanes || ki_itemsize((kn_dtype)u->dtype) != 4) return 0;
            cut[n++] = u;
        }
    return n;
}

/* The longest chain of the second half. */
static int32_t rest_of(chains *c, const kn_uop *cut, uint32_t n) {
    const ki_scope *s = &c->scope;
    int32_t longest = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        int32_t most = 0;
        bool kept = false;
        for (uint32_t j = 0; j < n; j++) kept |= cut[j] == u;
        for (uint32_t k = 0; k < u->nsrc && !kept && c->depth[i] != OUTSIDE; k++) {
            int32_t d = c->rest[s->at[u->src[k]->id]];
            if (d > most) most = d;
        }
        c->rest[i] = kept ? LOADED : c->depth[i] == OUTSIDE ? 0 : most + latency_of(u);
        if (u->op == KN_STORE && most > longest) longest = most;
    }
    return longest;
}

static int64_t bytes_of(const kn_uop *cut, uint32_t n) {
    int64_t bytes = 0;
    for (uint32_t k = 0; k < n; k++) bytes += 4 * ki_numel(cut[k]);
    return bytes;
}

static bool find_cut(chains *c) {
    int32_t longest = measure(c), best = longest * SHORTER / 100;
    kn_uop cut[MOST];
    c->ncut = 0;
    for (uint32_t i = 0; i < c->scope.n && longest >= LONG; i++) {
        int32_t d = c->depth[i];
        if (d * 4 < longest || d >= best || c->scope.node[i]->op == KN_BITCAST) continue;
        uint32_t n = cut_at(c, i, cut);
        if (n == 0 || bytes_of(cut, n) * ki_extent(c->range) > MOST_BYTES) continue;
        int32_t rest = rest_of(c, cut, n), cost = (rest > d ? rest : d) + KEPT * (int32_t)n;
        if (cost >= best) continue;
        best = cost, c->ncut = n;
        for (uint32_t j = 0; j < n; j++) c->cut[j] = cut[j];
    }
    return c->ncut;
}

/* The kernel with its loop in two. */
static kn_uop in_two(chains *c, kn_uop sink) {
    ki_ir *ir = c->ir;
    kn_uop r = c->range, second = ki_range_make(ir, ir->next_range, KN_AX_LOOP, r->src[0]);
    kn_uop store[MOST], place[MOST], now[MOST + 1], buf[MOST];
    for (uint32_t k = 0; k < c->ncut; k++) {
        kn_uop v = c->cut[k], lanes, size = ki_index(ir, ki_numel(v));
        buf[k] = ki_buffer_make(ir, ir->next_buffer, ki_numel(v) * ki_extent(r), (kn_dtype)v->dtype, KN_LOCAL, 0);
        kn_uop to = ki_keep_in(&c->scope, v, buf[k], r, &lanes);
        store[k] =
            ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, to, ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, r, size), lanes)), v);
        place[k] = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, second, size), lanes);
    }
    kn_uop all = c->ncut > 1 ? ki_opn(ir, KN_GROUP, store, c->ncut) : store[0], first = ki_op2(ir, KN_END, all, r);
    for (uint32_t k = 0; k < c->ncut; k++)
        now[k] = ki_op1(ir, KN_LOAD, ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf[k], first), place[k]));
    c->cut[c->ncut] = r, now[c->ncut] = second;
    return first ? ki_substitute(ir, sink, c->cut, now, c->ncut + 1) : NULL;
}

/* sink itself: no loop is worth it. */
static kn_uop cut_one(ki_ir *ir, kn_uop sink) {
    chains c = {.ir = ir};
    kn_uop out = NULL;
    if (ki_scope_open(&c.scope, ir, sink)) {
        uint32_t n = c.scope.n;
        c.depth = ki_calloc(2 * n, sizeof *c.depth), c.first = ki_calloc(n, sizeof *c.first);
        if (c.depth && c.first) c.rest = c.depth + n, out = sink;
        else ki_fail(ir->env, KI_E_NOMEM);
    }
    for (uint32_t i = 0; out == sink && i < c.scope.n; i++)
        if (c.scope.node[i]->op == KN_END && is_inner(&c, c.scope.node[i]) && find_cut(&c)) out = in_two(&c, sink);
    ki_free(c.depth), ki_free(c.first), ki_scope_close(&c.scope);
    return out;
}

kn_uop ki_cut_chains(ki_ir *ir, const ki_target *t, kn_uop sink) {
    bool ok = true;
    if (t->level >= KI_CPU_AVX512_LEVEL || !has_long(ir, sink, &ok)) return ok ? sink : NULL;
    for (int i = 0; i < MOST_CUTS; i++) {
        kn_uop now = cut_one(ir, sink);
        if (!now || now == sink) return now;
        sink = now;
    }
    return sink;
}
