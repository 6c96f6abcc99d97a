/* inplace.c: a result takes the place of a value that is read here for the last time.
 *
 * A residual x + f(y) reads of x what it stores in the same place, and nobody reads x again: it is stored where x is. A line is not fetched to be
 * overwritten, nor pushed out of a cache that x is in, and there is one buffer less. So the kernel reads and writes one slot, as where memory is
 * assigned to, and all later stages see that.
 *
 *   - Both are whole buffers between kernels, of one size, no ports, and calls are in execution order: order.c is done, slots.c is not.
 *   - All reads of x are of the one place that is stored, by loops that come to each place once (order.c asks the same of assignments), and the
 *     kernel is one nest: what it reads of x is read before that place is written.
 *   - A kernel that several calls share changes for all of them, or for none. */
#include "stages/2_rangeify/rangeify.h"

#include <string.h>

#define LEAST (1 << 22) /* bytes: some cache has less anyway, and a nest that reads what it stores takes fewer tiles */

typedef struct lives { /* by BUFFER id: 1 + call; 0: none */
    uint32_t *first, *last;
    kn_uop *now; /* by BUFFER id: where it is stored; NULL: in itself */
    bool *port;
    int64_t least; /* bytes; no more than what goes past the caches, which tests set */
} lives;

static uint32_t id_of(kn_uop b) { return b->arg.buffer->id; }

/* The BUFFER of a port, the ins before the outs; NULL: a variable's. */
static kn_uop port_buffer(const ki_program *p, size_t i) {
    kn_uop u = i < p->nin ? p->in[i].node : p->out[i - p->nin].node;
    while (u->op != KN_BUFFER && u->nsrc) u = u->src[0];
    return u->op == KN_BUFFER ? u : NULL;
}

static bool open_lives(const rangeifier *r, const ki_call *c, uint32_t n, lives *l) {
    const ki_program *p = r->p;
    size_t most = (size_t)r->ir->next_buffer + 1;
    l->least = r->opts && r->opts->machine.stream && r->opts->machine.stream < LEAST ? (int64_t)r->opts->machine.stream
                                                                                     : LEAST;
    for (size_t i = 0; i < p->nin + p->nout; i++) {
        kn_uop u = port_buffer(p, i);
        if (u && id_of(u) >= most) most = (size_t)id_of(u) + 1;
    }
    l->first = ki_calloc(most, sizeof *l->first);
    l->last = ki_calloc(most, sizeof *l->last);
    l->now = ki_calloc(most, sizeof *l->now);
    l->port = ki_calloc(most, sizeof *l->port);
    if (!l->first || !l->last || !l->now || !l->port) return ki_fail(r->ir->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < p->nin + p->nout; i++) {
        kn_uop u = port_buffer(p, i);
        if (u) l->port[id_of(u)] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < c[i].nbuffer; k++) {
            uint32_t b = id_of(c[i].arg[k]);
            if (!l->first[b]) l->first[b] = i + 1;
            l->last[b] = i + 1;
        }
    return true;
}

static void close_lives(lives *l) {
    ki_free(l->first);
    ki_free(l->last);
    ki_free(l->now);
    ki_free(l->port);
}

/* Might call i store its argument `to` where `from` is, by size and by who else needs them? */
static bool may_take(const lives *l, const ki_call *c, uint32_t i, uint32_t to, uint32_t from) {
    kn_uop b = c->arg[to], a = c->arg[from];
    if (l->first[id_of(b)] != i + 1 || l->last[id_of(a)] != i + 1 || l->first[id_of(a)] == i + 1) return false;
    if (l->port[id_of(a)] || l->port[id_of(b)] || a->dtype != b->dtype || ki_numel(a) != ki_numel(b)) return false;
    return a->type->device == b->type->device && ki_numel(a) * (int64_t)ki_itemsize((kn_dtype)a->dtype) >= l->least;
}

static bool is_slot(kn_uop u, uint32_t slot) {
    return u->op == KN_PARAM && u->type->rank && u->arg.param->slot == (int32_t)slot;
}

/* Has a kernel stored it? Else it is somebody's. */
static bool is_made(ki_ir *ir, const lives *l, const ki_call *c, kn_uop a, bool *ok) {
    const ki_call *first = &c[l->first[id_of(a)] - 1];
    const kn_uop *node;
    uint32_t slot = 0;
    bool made = false;
    while (slot < first->nbuffer && first->arg[slot] != a) slot++;
    int64_t n = ki_reach_above(ir, &first->sink, 1, 0, &node);
    for (int64_t i = 0; i < n && !made; i++)
        made = node[i]->op == KN_STORE && node[i]->src[0]->op == KN_INDEX && is_slot(node[i]->src[0]->src[0], slot);
    *ok &= n >= 0;
    return made;
}

/* Do these loops come to each of so many places once? They do if there are as many, since all of it is stored. */
static bool comes_once(kn_uop nest, int64_t size) {
    int64_t n = 1;
    for (uint32_t k = 1; k < nest->nsrc; k++)
        if (nest->src[k]->src[0]->op != KN_CONST || ki_mul_overflow(n, nest->src[k]->src[0]->arg.i, &n)) return false;
    return n == size;
}

/* Does the kernel store slot `to` once, and read of slot `from` the same place alone, for that? *ok: false: out of memory. */
static bool stores_what_it_reads(ki_ir *ir, kn_uop sink, uint32_t to, uint32_t from, bool *ok) {
    kn_uop nest = sink->src[0], body = nest->op == KN_END ? nest->src[0] : NULL, store = NULL, read = NULL;
    const kn_uop *node;
    if (sink->nsrc != 1 || !body) return false;
    for (uint32_t j = 0; j < (body->op == KN_GROUP ? body->nsrc : 1); j++) {
        kn_uop u = body->op == KN_GROUP ? body->src[j] : body;
        if (u->op == KN_STORE && u->src[0]->op == KN_INDEX && is_slot(u->src[0]->src[0], to)) store = u;
    }
    if (!store || store->nsrc != 2 || !comes_once(nest, ki_numel(store->src[0]->src[0]))) return false;
    kn_uop at = store->src[0]->src[1];
    int64_t n = ki_reach_above(ir, &at, 1, 0, &node);
    bool plain = n >= 0;
    for (int64_t i = 0; i < n; i++)
        plain &= node[i]->op == KN_RANGE || node[i]->op == KN_CONST || node[i]->op == KN_ADD || node[i]->op == KN_MUL ||
                 node[i]->op == KN_IDIV || node[i]->op == KN_MOD;
    *ok &= n >= 0;
    n = plain ? ki_reach_above(ir, &sink, 1, 0, &node) : 0;
    for (int64_t i = 0; i < n && plain; i++)
        for (uint32_t k = 0; k < node[i]->nsrc && plain; k++) {
            kn_uop u = node[i], p = u->src[k];
            if (is_slot(p, to)) plain = u == store->src[0];
            if (is_slot(p, from)) plain = u->op == KN_INDEX && u->nsrc == 2 && k == 0 && u->src[1] == at, read = u;
            plain = plain && (p != store->src[0] || (u == store && k == 0));
        }
    *ok &= n >= 0;
    if (!plain || !read) return false;
    bool own = false;
    n = ki_reach_above(ir, &store->src[1], 1, 0, &node);
    for (int64_t i = 0; i < n; i++) own |= node[i] == read;
    *ok &= n >= 0;
    return own;
}

/* The kernel over memory as it is now. */
static kn_uop over_places(ki_ir *ir, kn_uop sink, const lives *l) {
    kn_uop old[64], now[64];
    const kn_uop *node;
    size_t m = 0;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    for (int64_t i = 0; i < n && m < 64; i++)
        if (node[i]->op == KN_BUFFER && node[i]->arg.buffer->addrspace == KN_GLOBAL && l->now[id_of(node[i])])
            old[m++] = node[i];
    for (size_t i = 0; i < m; i++)
        if (!(now[i] = ki_with_tag(ir, l->now[id_of(old[i])], old[i]->tag))) return NULL;
    return n < 0 ? NULL : m ? ki_substitute(ir, sink, old, now, m) : sink;
}

enum { UNSEEN, NEVER, PAIR };

/* Of each kernel, by its id: PAIR + 64 to + from, if all of its calls can. */
static bool find_pairs(rangeifier *r, const ki_call *c, uint32_t n, const lives *l, uint32_t *pair) {
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        uint32_t *p = &pair[c[i].sink->id], found = NEVER;
        if (*p == NEVER) continue;
        for (uint32_t to = 0; to < c[i].nbuffer && found == NEVER; to++)
            for (uint32_t from = to + 1; from < c[i].nbuffer && found == NEVER && ok; from++)
                if (may_take(l, &c[i], i, to, from) && is_made(r->ir, l, c, c[i].arg[from], &ok) &&
                    (*p == PAIR + 64 * to + from || stores_what_it_reads(r->ir, c[i].sink, to, from, &ok)))
                    found = PAIR + 64 * to + from;
        *p = *p == UNSEEN || *p == found ? found : NEVER;
    }
    return ok;
}

bool ki_range_in_place(rangeifier *r, const ki_call *c, ki_kernels *k, const uint32_t *order, bool *any) {
    lives l = {0};
    uint32_t *pair = ki_calloc(r->ir->n, sizeof *pair);
    bool ok = pair && open_lives(r, c, k->used, &l) && find_pairs(r, c, k->used, &l, pair);
    if (!pair) ki_fail(r->ir->env, KI_E_NOMEM);
    *any = false;
    for (uint32_t i = 0; i < k->used && ok; i++) {
        uint32_t p = pair[c[i].sink->id];
        if (p >= PAIR) {
            kn_uop a = c[i].arg[(p - PAIR) % 64], b = c[i].arg[(p - PAIR) / 64];
            l.now[id_of(b)] = l.now[id_of(a)] ? l.now[id_of(a)] : a;
            *any = true;
        }
        if (*any) ok = (k->sink[order[i]] = over_places(r->ir, k->sink[order[i]], &l)) != NULL;
    }
    close_lives(&l);
    ki_free(pair);
    return ok;
}
