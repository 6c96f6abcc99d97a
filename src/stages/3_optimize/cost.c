/* cost.c: what a kernel should cost, in cycles of one core, without making code of it.
 *
 * A node runs in the loops that are free in it and in those around them (`runs`); nodes that run in the same loops are one
 * body. A body costs what its busiest port does, or the chain through its accumulators, or what it takes to issue it; what
 * does not fit into the registers is stored and loaded again. Beside that stands memory: for each cache the loops
 * outside of which their accesses no longer fit, and the lines that come from behind it each time around.
 * The model only ranks. It is right where its order is; tests/3_optimize/rank.c holds it against measurements. */
#include "stages/3_optimize/nest.h"
#include "stages/3_optimize/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct body { /* what runs in one set of loops */
    const uint64_t *runs;
    double alu, load, store, shuffle; /* instructions an iteration */
    double acc, live;                 /* registers: of accumulators, of what is loaded for several */
    double width;                     /* registers of the widest value */
    bool chain;
} body;

typedef struct model {
    const ki_target *t;
    const ki_machine *m;
    const ki_nest *k;
    uint32_t *order; /* loops' numbers, outermost first */
    uint32_t norder;
    uint64_t *around; /* by range: the loops it stands in */
    uint64_t *runs;   /* by place */
    bool *vector;     /* by range: lanes that lie side by side in some access */
    body *body;
    uint32_t nbody;
} model;

static double most(double a, double b) { return a > b ? a : b; }

enum { LEAST_TRIPS = 64 }; /* of a loop whose extent is not known */

static double trips(kn_uop r) {
    if (r->arg.range.axis == KN_AX_THREAD) return 1; /* at once */
    int64_t n = ki_extent(r);
    return n ? (double)n : r->hi.i < INT32_MAX ? (double)r->hi.i + 1 : LEAST_TRIPS;
}

static double trips_of(const model *m, const uint64_t *set) {
    double n = 1;
    for (uint32_t q = 0; q < m->norder; q++)
        if (ki_in_set(set, m->order[q])) n *= trips(m->k->scope.range[m->order[q]]);
    return n;
}

/* ---- which loops a node runs in ---------------------------------------------------------------------------- */

/* The set, and all loops around those in it. */
static void close_set(const model *m, const uint64_t *from, uint64_t *to) {
    const ki_scope *s = &m->k->scope;
    for (uint32_t r = 0; r < s->nrange; r++) {
        if (!ki_in_set(from, r) || ki_is_lane(s->range[r])) continue;
        to[r >> 6] |= UINT64_C(1) << (r & 63);
        for (uint32_t w = 0; w < s->words; w++) to[w] |= m->around[(size_t)r * s->words + w];
    }
}

/* Loops in order: closers from the outside in, each one's as it lists them. */
static void order_loops(model *m) {
    const ki_scope *s = &m->k->scope;
    for (uint32_t i = s->n; i-- > 0;) {
        kn_uop c = s->node[i];
        uint64_t *last = NULL;
        if (c->op != KN_END && c->op != KN_REDUCE) continue;
        for (uint32_t j = 1; j < c->nsrc; j++) {
            kn_uop r = c->src[j];
            if (r->op != KN_RANGE || ki_is_lane(r)) continue;
            uint32_t q = ki_scope_rank(s, r);
            uint64_t *around = m->around + (size_t)q * s->words;
            if (last) {
                memcpy(around, last, s->words * sizeof *around);
                uint32_t before = m->order[m->norder - 1];
                around[before >> 6] |= UINT64_C(1) << (before & 63);
            } else {
                close_set(m, ki_scope_free(s, c), around);
                kn_uop e = c->op == KN_END ? m->k->around[i] : NULL;
                for (uint32_t x = 1; e && x < e->nsrc; x++) {
                    if (ki_is_lane(e->src[x])) continue;
                    uint32_t o = ki_scope_rank(s, e->src[x]);
                    around[o >> 6] |= UINT64_C(1) << (o & 63);
                    for (uint32_t w = 0; w < s->words; w++) around[w] |= m->around[(size_t)o * s->words + w];
                }
            }
            last = around;
            m->order[m->norder++] = q;
        }
    }
}

/* ---- instructions ------------------------------------------------------------------------------------------ */

static double lanes_of(const ki_scope *s, kn_uop u) {
    double n = 1;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (ki_is_lane(s->range[r]) && ki_scope_has(s, u, s->range[r])) n *= trips(s->range[r]);
    return n;
}

/* Registers, or instructions, for a value: those along one lane axis share them, every other lane has its own. */
static double vectors(const model *m, kn_uop u) {
    const ki_scope *s = &m->k->scope;
    double n = 1, along = 1;
    for (uint32_t r = 0; r < s->nrange; r++) {
        if (!ki_is_lane(s->range[r]) || !ki_scope_has(s, u, s->range[r])) continue;
        double e = trips(s->range[r]);
        if (m->vector[r] && e > along) n *= along, along = e;
        else n *= e;
    }
    return n * ceil(along * ki_lane_bytes(m->t, u) / m->t->vector);
}

/* An access: pieces that lie side by side, and whether it gathers. */
static void access_ports(const model *m, kn_uop u, body *b, bool stores) {
    const ki_scope *s = &m->k->scope;
    double bytes = ki_lane_bytes(m->t, u), unit = 1, others = 1, n;
    bool gather = false, known;
    for (uint32_t r = 0; r < s->nrange; r++) {
        if (!ki_is_lane(s->range[r]) || !ki_scope_has(s, u->src[1], s->range[r])) continue;
        int64_t c = ki_nest_stride(m->k, u, s->range[r], &known);
        double e = trips(s->range[r]);
        if (known && (c == 1 || c == -1) && unit == 1) unit = e;
        else others *= e, gather |= m->vector[r]; /* each lane of a tile's rows has a register of its own */
    }
    n = others * ceil(unit * bytes / m->t->vector);
    if (stores) b->store += n;
    else b->load += n;
    if (gather) b->shuffle += 1.2 * n; /* put together lane by lane */
    if (u->src[1]->op == KN_WHERE) b->alu += n;
    if (!stores && unit > 1 && others == 1) b->live += n;
}

/* A reduce's accumulators, and the sum across lanes at its end. */
static void reduce_ports(const model *m, kn_uop u, body *inner, body *outer) {
    const ki_scope *s = &m->k->scope;
    double in = vectors(m, u->src[0]), out = vectors(m, u);
    kn_uop x = u->src[0];
    bool fused = m->t->fma && x->op == KN_MUL && ki_is_float((kn_dtype)x->dtype) && u->arg.reduce.op == KN_ADD;
    inner->alu += fused ? 0 : in; /* the product counts as one already */
    inner->acc += in;
    inner->chain = true;
    double across = lanes_of(s, u->src[0]) / lanes_of(s, u);
    if (across > 1) {
        double rest = in > out ? in / out : 1, in_vector = across / rest;
        outer->alu += in - out;
        if (in_vector > 1) outer->shuffle += 2 * log2(in_vector) * lanes_of(s, u), outer->alu += lanes_of(s, u);
    }
}

static body *body_at(model *m, const uint64_t *runs) {
    size_t bytes = m->k->scope.words * sizeof *runs;
    for (uint32_t i = m->nbody; i-- > 0;)
        if (memcmp(m->body[i].runs, runs, bytes) == 0) return &m->body[i];
    m->body[m->nbody] = (body){.runs = runs};
    return &m->body[m->nbody++];
}

static void find_vectors(model *m) {
    const ki_scope *s = &m->k->scope;
    bool known;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!ki_is_access(s->node[i])) continue;
        for (uint32_t r = 0; r < s->nrange; r++)
            if (ki_is_lane(s->range[r]) && ki_nest_stride(m->k, s->node[i], s->range[r], &known) == 1 && known)
                m->vector[r] = true;
    }
}

static void count_ports(model *m) {
    const ki_scope *s = &m->k->scope;
    find_vectors(m);
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        const uint64_t *runs = m->runs + (size_t)i * s->words;
        if (u->op == KN_STORE && ki_is_access(u->src[0])) {
            kn_uop to = ki_storage(u->src[0]);
            if (to->op != KN_BUFFER || to->arg.buffer->addrspace != KN_REG)
                access_ports(m, u->src[0], body_at(m, runs), true);
        } else if (m->k->read[i]) {
            kn_uop from = ki_storage(u);
            if (from->op != KN_BUFFER || from->arg.buffer->addrspace != KN_REG)
                access_ports(m, u, body_at(m, runs), false);
        } else if (u->op == KN_REDUCE) {
            uint32_t at = ki_scope_at(s, u->src[u->nsrc - 1]), from = ki_scope_at(s, u->src[0]);
            const uint64_t *in = m->runs + (size_t)from * s->words;
            if (u->nsrc > 1 && !ki_is_lane(u->src[u->nsrc - 1])) in = m->runs + (size_t)at * s->words;
            reduce_ports(m, u, body_at(m, in), body_at(m, runs));
        } else if (u->dtype != KN_IDX && u->dtype != KN_VOID && ki_is_elementwise((kn_op)u->op)) {
            double w = ki_weight(u) == 4 ? 8 : ki_weight(u), n = vectors(m, u);
            body *b = body_at(m, runs);
            b->alu += n * w;
            b->width = most(b->width, n);
        }
    }
}

enum { LATENCY = 4 };

static double body_cycles(const model *m, const body *b) {
    double regs = b->acc + 2 + (b->acc > 1 && b->live < b->acc ? b->live : 0), spill = regs - m->t->nvector;
    double load = b->load, store = b->store, alu = b->alu;
    if (b->chain && spill > 0) load += 2 * spill, store += 2 * spill;
    /* Wide values are computed one op after the other: what does not fit waits in memory. */
    double room = m->t->nvector / 2.0;
    if (b->width > room) load += alu * (1 - room / b->width), store += alu * (1 - room / b->width);
    double all = alu + load * 0.7 + store + b->shuffle, c = most(most(alu / 2, load / 2), most(store, b->shuffle));
    c = most(most(c, all / 5), 1.2);
    if (b->chain) c = most(c, LATENCY);
    return c * trips_of(m, b->runs);
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

typedef struct stream { /* an access, as lines */
    kn_uop access;
    const uint64_t *runs;
    double factor; /* a store fetches its line first */
    bool local;
} stream;

typedef struct step {
    double stride, n;
} step;
static int by_stride(const void *a, const void *b) {
    double x = ((const step *)a)->stride, y = ((const step *)b)->stride;
    return (x > y) - (x < y);
}

/* Lines that an access touches while the loops of order[from ..] run, the ones outside standing still. */
static double lines(const model *m, const stream *a, uint32_t from) {
    const ki_scope *s = &m->k->scope;
    double bytes = (double)ki_itemsize((kn_dtype)a->access->dtype), span = bytes, pieces = 1;
    step st[64];
    uint32_t n = 0;
    bool known;
    for (uint32_t r = 0; r < s->nrange && n < 64; r++) {
        if (!ki_scope_has(s, a->access->src[1], s->range[r])) continue;
        bool in = ki_is_lane(s->range[r]);
        for (uint32_t q = from; q < m->norder && !in; q++) in = m->order[q] == r;
        if (!in) continue;
        int64_t c = ki_nest_stride(m->k, a->access, s->range[r], &known);
        if (!known) pieces *= trips(s->range[r]);
        else if (c) st[n++] = (step){fabs((double)c) * bytes, trips(s->range[r])};
    }
    qsort(st, n, sizeof *st, by_stride);
    for (uint32_t i = 0; i < n; i++) {
        if (st[i].stride <= most(span, m->t->line)) span += st[i].stride * (st[i].n - 1);
        else pieces *= st[i].n;
    }
    double all = (double)ki_storage(a->access)->type->numel * bytes / m->t->line + 1;
    double found = pieces * ceil(span / m->t->line);
    return found < all || pieces > 1 ? found : all;
}

static double ran(const model *m, const stream *a, uint32_t below) {
    double n = 1;
    for (uint32_t q = 0; q < below; q++)
        if (ki_in_set(a->runs, m->order[q])) n *= trips(m->k->scope.range[m->order[q]]);
    return n;
}

/* Bytes that come from behind a cache of this size. */
static double traffic(const model *m, const stream *a, uint32_t n, double size, bool last) {
    uint32_t d = 0;
    double sum = 0;
    for (;; d++) {
        double need = 0;
        for (uint32_t i = 0; i < n; i++) need += lines(m, &a[i], d) * m->t->line;
        if (need <= size * 0.8 || d == m->norder) break;
    }
    uint32_t from = d ? d - 1 : 0; /* once around, what does not vary there is still at hand */
    for (uint32_t i = 0; i < n; i++) {
        if (last && a[i].local) continue;
        uint32_t own = from; /* a loop inside which there is nothing of it is not once around */
        for (uint32_t q = m->norder; q-- > 0 && own == from;)
            if (ki_in_set(a[i].runs, m->order[q])) own = q < from ? q : from, q = 0;
        sum += lines(m, &a[i], own) * m->t->line * ran(m, &a[i], own) * (last ? a[i].factor : 1);
    }
    return sum;
}

static double memory_cycles(const model *m) {
    const ki_scope *s = &m->k->scope;
    stream *a = ki_calloc(s->n, sizeof *a);
    uint32_t n = 0;
    double cache[3] = {32 << 10, 1 << 20, 32 << 20}, c = 0;
    static const double bytes_a_cycle[3] = {48, 16, 6};
    if (!a) return 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        bool stores = u->op == KN_STORE && ki_is_access(u->src[0]);
        if (!stores && !m->k->read[i]) continue;
        kn_uop x = stores ? u->src[0] : u, p = ki_storage(x);
        bool local = p->op == KN_BUFFER && p->arg.buffer->addrspace != KN_GLOBAL;
        if (local && p->arg.buffer->addrspace == KN_REG) continue;
        a[n++] = (stream){x, m->runs + (size_t)i * s->words, stores && u->arg.i != 1 ? 2 : 1, local};
    }
    for (int l = 0; l < 3; l++) {
        double size = m->m->cache[l] ? (double)m->m->cache[l] : cache[l];
        c += traffic(m, a, n, size, l == 2) / bytes_a_cycle[l];
    }
    ki_free(a);
    return c;
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

enum { WAKE = 4000 }; /* cycles until all threads run and are done */

static double cycles(model *m) {
    const ki_scope *s = &m->k->scope;
    double ports = 0, memory;
    order_loops(m);
    for (uint32_t i = 0; i < s->n; i++) close_set(m, s->free + (size_t)i * s->words, m->runs + (size_t)i * s->words);
    count_ports(m);
    for (uint32_t i = 0; i < m->nbody; i++) ports += body_cycles(m, &m->body[i]);
    memory = memory_cycles(m);
    double c = most(ports, memory) + 0.3 * (ports < memory ? ports : memory);
    return m->k->sink->arg.kernel && m->k->sink->arg.kernel->threads > 1 ? c + WAKE : c;
}

double ki_cost(ki_ir *ir, const ki_target *t, const ki_machine *machine, kn_uop kernel) {
    ki_nest k;
    double c = INFINITY;
    if (ki_nest_open(&k, ir, kernel)) {
        size_t words = k.scope.words;
        model m = {.t = t, .m = machine, .k = &k};
        m.order = ki_calloc(k.scope.nrange + 1, sizeof *m.order);
        m.around = ki_calloc((k.scope.nrange + 1) * words, sizeof *m.around);
        m.runs = ki_calloc(k.scope.n * words, sizeof *m.runs);
        m.vector = ki_calloc(k.scope.nrange + 1, sizeof *m.vector);
        m.body = ki_calloc(2 * (size_t)k.scope.n, sizeof *m.body);
        if (m.order && m.around && m.runs && m.vector && m.body) c = cycles(&m);
        else ki_fail(ir->env, KI_E_NOMEM);
        ki_free(m.order), ki_free(m.around), ki_free(m.runs), ki_free(m.vector), ki_free(m.body);
    }
    ki_nest_close(&k);
    return c;
}
