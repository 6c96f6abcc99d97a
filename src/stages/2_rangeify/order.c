/* order.c: in which order the kernels run, and what must be copied so that there is one.
 *
 * Memory that is assigned to has versions. Until the calls are made a BUFFER's tag names the version that a kernel reads
 * (0: what an input holds, or a value computed here; else the id of the AFTER that wrote it), and a STORE's tag the
 * version that it makes of the one its target names. So all that order depends on stands in the graphs: a version is
 * read after it was made and before it is overwritten.
 *
 * A kernel that overwrites what it still needs (another element, or for another result), and kernels that need
 * each other's old values, are resolved by writing to new memory first and copying last; a kernel that needs a value both
 * from before and from after an assignment to part of it, by copying the old one first. */
#include "stages/2_rangeify/siblings.h"

#include <stdlib.h>
#include <string.h>

enum { MAKES, READS, ENDS };
typedef struct access {
    uint32_t buffer, version, kernel; /* buffer: its id */
    uint8_t kind;
} access;

typedef struct orderer {
    rangeifier *r;
    ki_kernels *k;
    access *access;
    uint32_t naccess, access_cap;
    ki_edge *edge;
    uint32_t nedge, edge_cap;
} orderer;

static bool nomem(rangeifier *r) { return ki_fail(r->ir->env, KI_E_NOMEM), false; }

static bool is_memory(kn_uop u) {
    return u->op == KN_INDEX && u->src[0]->op == KN_BUFFER && u->src[0]->arg.buffer->addrspace == KN_GLOBAL;
}

/* ---- who touches what ------------------------------------------------------------------------------------------- */

static bool note(orderer *o, uint8_t kind, kn_uop index, uint32_t version, uint32_t kernel) {
    if (o->naccess == o->access_cap) {
        uint32_t cap = o->access_cap ? o->access_cap * 2 : 64;
        access *p = ki_realloc(o->access, cap, sizeof *p);
        if (!p) return nomem(o->r);
        o->access = p;
        o->access_cap = cap;
    }
    o->access[o->naccess++] = (access){index->src[0]->arg.buffer->id, version, kernel, kind};
    return true;
}

static bool collect(orderer *o) {
    o->naccess = 0;
    for (uint32_t k = 0; k < o->k->n; k++) {
        const kn_uop *node;
        int64_t n = ki_reach_above(o->r->ir, &o->k->sink[k], 1, 0, &node);
        bool ok = n >= 0;
        for (int64_t i = 0; i < n && ok; i++) {
            kn_uop u = node[i], t = u->op == KN_STORE ? u->src[0] : NULL;
            if (t && is_memory(t))
                ok = note(o, MAKES, t, u->tag, k) && (!u->tag || note(o, ENDS, t, t->src[0]->tag, k));
            for (uint32_t s = t ? 1 : 0; s < u->nsrc && ok; s++)
                if (is_memory(u->src[s])) ok = note(o, READS, u->src[s], u->src[s]->src[0]->tag, k);
        }
        if (!ok) return false;
    }
    return true;
}

static int by_memory(const void *a, const void *b) {
    const access *x = a, *y = b;
    if (x->buffer != y->buffer) return x->buffer < y->buffer ? -1 : 1;
    if (x->version != y->version) return x->version < y->version ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static bool add_edge(orderer *o, uint32_t before, uint32_t after) {
    if (before == after) return true;
    if (o->nedge == o->edge_cap) {
        uint32_t cap = o->edge_cap ? o->edge_cap * 2 : 64;
        ki_edge *p = ki_realloc(o->edge, cap, sizeof *p);
        if (!p) return nomem(o->r);
        o->edge = p;
        o->edge_cap = cap;
    }
    o->edge[o->nedge++] = (ki_edge){before, after};
    return true;
}

/* Made before read before overwritten; what else decide.c asked for. */
static bool connect(orderer *o) {
    access *a = o->access;
    if (o->naccess) qsort(a, o->naccess, sizeof *a, by_memory);
    o->nedge = 0;
    bool ok = true;
    for (uint32_t i = 0, end; i < o->naccess && ok; i = end) {
        uint32_t reads = i, ends;
        for (end = i; end < o->naccess && a[end].buffer == a[i].buffer && a[end].version == a[i].version;) end++;
        while (reads < end && a[reads].kind == MAKES) reads++;
        for (ends = reads; ends < end && a[ends].kind == READS;) ends++;
        for (uint32_t m = i; m < reads; m++)
            for (uint32_t x = reads; x < end && ok; x++) ok = add_edge(o, a[m].kernel, a[x].kernel);
        for (uint32_t d = ends; d < end; d++)
            for (uint32_t x = reads; x < end && ok; x++)
                if (x != d) ok = add_edge(o, a[x].kernel, a[d].kernel);
    }
    for (uint32_t e = 0; e < o->r->nafter && ok; e++) ok = add_edge(o, o->r->after[e].to, o->r->after[e].from);
    return ok;
}

/* ---- new memory first ------------------------------------------------------------------------------------------- */

/* The END of a sink around a store, or the store itself. */
static kn_uop nest_of(kn_uop sink, kn_uop store) {
    for (uint32_t k = 0; k < sink->nsrc; k++) {
        kn_uop e = sink->src[k], body = e->op == KN_END ? e->src[0] : e;
        if (body == store) return e;
        for (uint32_t j = 0; body->op == KN_GROUP && j < body->nsrc; j++)
            if (body->src[j] == store) return e;
    }
    return NULL;
}

static bool covers(kn_uop nest, int64_t size) {
    int64_t n = 1;
    for (uint32_t k = 1; nest->op == KN_END && k < nest->nsrc; k++)
        if (nest->src[k]->src[0]->op != KN_CONST || ki_mul_overflow(n, nest->src[k]->src[0]->arg.i, &n)) return false;
    return n == size;
}

/* What the sink reads of `version` it reads from `fresh`; what it writes stays. */
static kn_uop read_elsewhere(ki_ir *ir, kn_uop sink, kn_uop version, kn_uop fresh) {
    kn_uop *order, *from = NULL, *to = NULL;
    size_t m = 0;
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    bool ok = n >= 0 && (from = ki_calloc((size_t)n + 1, sizeof *from)) && (to = ki_calloc((size_t)n + 1, sizeof *to));
    for (int64_t i = 0; ok && i < n; i++) {
        kn_uop u = order[i];
        if (u->op != KN_STORE || !is_memory(u->src[0]) || u->src[0]->src[0] != version) continue;
        kn_uop s[3] = {u->src[0], ki_substitute(ir, u->src[1], &version, &fresh, 1), u->nsrc > 2 ? u->src[2] : NULL};
        from[m] = u;
        ok = s[1] && (to[m++] = ki_with_src(ir, u, s)) != NULL;
    }
    if (ok) from[m] = version, to[m++] = fresh;
    sink = ok ? ki_substitute(ir, sink, from, to, m) : NULL;
    ki_free(order);
    ki_free(from);
    ki_free(to);
    return sink;
}

static bool add_kernel(orderer *o, kn_uop sink) {
    ki_kernels *all = o->k;
    if (all->n == all->cap) {
        kn_uop *p = ki_realloc(all->sink, all->cap * 2, sizeof *p);
        if (!p) return nomem(o->r);
        all->sink = p;
        all->cap *= 2;
    }
    all->sink[all->n++] = sink;
    return true;
}

/* Kernel k's store goes to new memory, and a new kernel copies that. Who reads the new version reads the new memory, if
 * all of it is there. */
static bool redirect(orderer *o, uint32_t k, kn_uop store) {
    ki_ir *ir = o->r->ir;
    ki_kernels *all = o->k;
    kn_uop to = store->src[0], b = to->src[0], nest = nest_of(all->sink[k], store), s[KI_MAX_RANK * 4];
    if (!nest || nest->nsrc > KI_MAX_RANK * 4) return ki_fail(ir->env, KI_E_ASSIGN_CYCLE), false;
    kn_uop fresh = ki_buffer_make(ir, ir->next_buffer, b->type->numel, (kn_dtype)b->dtype, KN_GLOBAL, b->type->device);
    kn_uop at = fresh ? ki_op2(ir, KN_INDEX, fresh, to->src[1]) : NULL;
    kn_uop first[3] = {at, store->src[1], store->nsrc > 2 ? store->src[2] : NULL}, last[3] = {to, at, first[2]};
    kn_uop write = at ? ki_with_tag(ir, ki_with_src(ir, store, first), 0) : NULL;
    kn_uop copy = at ? ki_with_src(ir, store, last) : NULL;
    if (!write || !copy) return false;
    memcpy(s, nest->src, nest->nsrc * sizeof *s);
    s[0] = copy;
    if (nest->op == KN_END) copy = ki_with_src(ir, nest, s);
    all->sink[k] = ki_substitute(ir, all->sink[k], &store, &write, 1);
    if (!copy || !all->sink[k] || !(copy = ki_op1(ir, KN_SINK, copy))) return false;
    kn_uop version = ki_with_tag(ir, b, store->tag);
    for (uint32_t i = 0; version && covers(nest, b->type->numel) && i < all->n; i++)
        if (!(all->sink[i] = read_elsewhere(ir, all->sink[i], version, fresh))) return false;
    return version && add_kernel(o, copy);
}

/* What waiting kernels read of a version they read from a copy, made by a new kernel before all of them. */
static bool copy_first(orderer *o, const access *a, const bool *placed) {
    ki_ir *ir = o->r->ir;
    kn_uop *order, old = NULL;
    int64_t n = ki_toposort(ir, &o->k->sink[a->kernel], 1, &order);
    for (int64_t i = 0; i < n && !old; i++) {
        kn_uop u = order[i];
        if (u->op == KN_BUFFER && u->arg.buffer->id == a->buffer && u->tag == a->version) old = u;
    }
    ki_free(order);
    if (!old) return false;
    kn_uop fresh =
        ki_buffer_make(ir, ir->next_buffer, old->type->numel, (kn_dtype)old->dtype, KN_GLOBAL, old->type->device);
    kn_uop r = ki_range_make(ir, ir->next_range, KN_AX_LOOP, ki_index(ir, old->type->numel));
    kn_uop copy =
        fresh && r ? ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, fresh, r), ki_op2(ir, KN_INDEX, old, r)) : NULL;
    if (copy) copy = ki_op1(ir, KN_SINK, ki_op2(ir, KN_END, copy, r));
    if (!copy) return false;
    for (uint32_t i = 0; i < o->k->n; i++)
        if (!placed[i] && !(o->k->sink[i] = read_elsewhere(ir, o->k->sink[i], old, fresh))) return false;
    return add_kernel(o, copy);
}

/* The kernel reads what this store overwrites, other than to make what is stored in the same place. */
static bool overwrites_too_soon(ki_ir *ir, kn_uop sink, kn_uop store, bool *ok) {
    const kn_uop *node;
    kn_uop to = store->src[0];
    uint32_t id = to->src[0]->arg.buffer->id;
    bool soon = false, own = false, any = false;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    for (int64_t i = 0; i < n; i++)
        for (uint32_t s = node[i]->op == KN_STORE ? 1 : 0; s < node[i]->nsrc; s++) {
            kn_uop x = node[i]->src[s];
            if (!is_memory(x) || x->src[0]->arg.buffer->id != id) continue;
            any = true;
            soon |= x != to;
        }
    *ok = n >= 0;
    if (!any || soon || !*ok) return soon;
    /* Read in the same place, then: for this store's value? If so the read comes first by that alone. */
    n = ki_reach_above(ir, &store->src[1], 1, 0, &node);
    for (int64_t i = 0; i < n; i++) own |= node[i] == to;
    *ok = n >= 0;
    return !own;
}

/* Some store of a kernel that must be redirected; NULL: none. must: any that overwrites memory. */
static kn_uop bad_store(orderer *o, uint32_t k, bool must, bool *ok) {
    kn_uop sink = o->k->sink[k];
    for (uint32_t i = 0; i < sink->nsrc; i++) {
        kn_uop e = sink->src[i], body = e->op == KN_END ? e->src[0] : e;
        for (uint32_t j = 0; j < (body->op == KN_GROUP ? body->nsrc : 1); j++) {
            kn_uop u = body->op == KN_GROUP ? body->src[j] : body;
            if (u->op != KN_STORE || !u->tag || !is_memory(u->src[0])) continue;
            if (must || overwrites_too_soon(o->r->ir, sink, u, ok)) return *ok ? u : NULL;
            if (!*ok) return NULL;
        }
    }
    return NULL;
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

/* Kernels that store what is wanted and nothing else. Where memory is what counts they run as soon as they can, and what they read is free
 * sooner; else they stay beside those that read the same. */
static bool find_final(orderer *o, bool *final) {
    const ki_program *p = o->r->p;
    ki_ir *ir = o->r->ir;
    bool *wanted = ki_calloc((size_t)ir->next_buffer + 1, sizeof *wanted);
    if (!wanted) return nomem(o->r);
    for (size_t i = 0; i < p->nout; i++)
        if (p->out[i].node->op == KN_BUFFER) wanted[p->out[i].node->arg.buffer->id] = true;
    for (uint32_t k = 0; k < o->k->n; k++) final[k] = o->r->remat;
    for (uint32_t i = 0; i < o->naccess; i++)
        if (o->access[i].kind == MAKES && !wanted[o->access[i].buffer]) final[o->access[i].kernel] = false;
    ki_free(wanted);
    return true;
}

typedef struct placing {
    uint32_t *out, *waits, n;
    bool *placed, *final;
} placing;

/* Kernel i comes next, and what is wanted and waited for it alone. */
static void place_kernel(const orderer *o, placing *p, uint32_t i) {
    uint32_t at = p->n;
    p->placed[i] = true;
    for (p->out[p->n++] = i; at < p->n; at++) /* the edges of a kernel: sorted by `before`, found from its first */
        for (uint32_t b = p->out[at], e = o->k->first[b]; e < o->nedge && o->edge[e].before == b; e++) {
            uint32_t next = o->edge[e].after;
            if (--p->waits[next] || !p->final[next] || p->placed[next]) continue;
            p->placed[next] = true;
            p->out[p->n++] = next;
        }
}

/* Kernels were made users first, so their reverse is nearly the order; copies, made last of all, go as late as they can.
 * True if all found a place. */
static bool place(orderer *o, placing *p, uint32_t copies) {
    uint32_t count = o->k->n;
    p->n = 0;
    memset(p->waits, 0, count * sizeof *p->waits);
    memset(p->placed, 0, count * sizeof *p->placed);
    for (uint32_t e = 0; e < o->nedge; e++) p->waits[o->edge[e].after]++;
    for (bool progress = true; p->n < count && progress;) {
        progress = false;
        for (uint32_t step = 0; step < count; step++) {
            uint32_t i = step < copies ? copies - 1 - step : step;
            if (p->placed[i] || p->waits[i]) continue;
            place_kernel(o, p, i);
            progress = true;
        }
    }
    return p->n == count;
}

static int by_before(const void *a, const void *b) {
    const ki_edge *x = a, *y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    return (x->after > y->after) - (x->after < y->after);
}

static bool index_edges(orderer *o) {
    uint32_t *first = ki_realloc(o->k->first, o->k->n + 1, sizeof *first);
    if (!first) return nomem(o->r);
    o->k->first = first;
    if (o->nedge) qsort(o->edge, o->nedge, sizeof *o->edge, by_before);
    for (uint32_t i = 0; i <= o->k->n; i++) first[i] = o->nedge;
    for (uint32_t e = o->nedge; e-- > 0;) first[o->edge[e].before] = e;
    return true;
}

/* A read by a waiting kernel, of a version that another of them ends; two: by one that reads a later version, too. */
static const access *read_of_ended(const orderer *o, const bool *placed, bool two) {
    const access *a = o->access;
    for (uint32_t i = 0, end; i < o->naccess; i = end) {
        bool ended = false;
        for (end = i; end < o->naccess && a[end].buffer == a[i].buffer && a[end].version == a[i].version; end++)
            ended |= a[end].kind == ENDS && !placed[a[end].kernel];
        for (uint32_t x = i; x < end && ended; x++) {
            if (a[x].kind != READS || placed[a[x].kernel]) continue;
            bool later = false;
            for (uint32_t y = end; y < o->naccess && a[y].buffer == a[x].buffer; y++)
                later |= a[y].kind == READS && a[y].kernel == a[x].kernel;
            if (later || !two) return &a[x];
        }
    }
    return NULL;
}

/* One kernel of those that wait for each other writes elsewhere first, or reads a copy. */
static bool break_cycle(orderer *o, const bool *placed, uint32_t copies) {
    const access *a = read_of_ended(o, placed, true);
    if (a) return copy_first(o, a, placed);
    for (uint32_t i = copies; i-- > 0;) {
        bool ok = true;
        kn_uop store = placed[i] ? NULL : bad_store(o, i, true, &ok);
        if (!ok) return false;
        if (store) return redirect(o, i, store);
    }
    if ((a = read_of_ended(o, placed, false))) return copy_first(o, a, placed);
    return ki_fail(o->r->ir->env, KI_E_ASSIGN_CYCLE), false;
}

bool ki_range_order(rangeifier *r, ki_kernels *k, uint32_t **out) {
    orderer o = {.r = r, .k = k};
    uint32_t copies = k->n; /* kernels from here on are copies */
    placing p = {0};
    bool ok = true, done = false, parted = false;
    ki_family f = {0};
    for (uint32_t i = 0; i < copies && ok; i++)
        for (kn_uop s; ok && (s = bad_store(&o, i, false, &ok));) ok = redirect(&o, i, s);
    while (ok && !done) {
        ki_free(*out);
        ki_free(p.waits);
        ki_free(p.placed);
        *out = p.out = ki_calloc(k->n + 1, sizeof **out);
        p.waits = ki_calloc(k->n + 1, sizeof *p.waits);
        p.placed = ki_calloc(2 * (size_t)k->n + 1, sizeof *p.placed);
        p.final = p.placed ? p.placed + k->n : NULL;
        ok = (p.out && p.waits && p.placed) || nomem(r);
        ok = ok && collect(&o) && find_final(&o, p.final) && connect(&o) && index_edges(&o);
        if (ok) done = place(&o, &p, copies);
        if (ok && !done && r->nlater) r->nafter -= r->nlater, r->nlater = 0;
        else if (ok && !done) ok = break_cycle(&o, p.placed, copies);
        if (!ok || !done) continue;
        ok = ki_family_open(&f, r, k, *out, o.edge, o.nedge) && (parted || ki_range_part(&f, &done));
        if (ok && !done) ki_family_close(&f); /* parted once, they are placed anew */
        parted = true;
    }
    ok = ok && ki_range_siblings(&f);
    ki_family_close(&f);
    ki_free(p.waits);
    ki_free(p.placed);
    ki_free(o.access);
    ki_free(o.edge);
    return ok;
}
