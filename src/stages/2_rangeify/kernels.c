/* kernels.c: nests become kernels: demands resolved, loops ordered, buffers numbered, calls in execution
 * order.
 *
 * A kernel's RANGEs count from 0 and its PARAMs from slot 0, so that equal kernels are the same node. */
#include "stages/indexing.h"
#include "stages/2_rangeify/rangeify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool nomem(rangeifier *r) {
    ki_fail(r->ir->env, KI_E_NOMEM);
    return false;
}

/* ---- resolving demands -------------------------------------------------------------------------------------- */

typedef struct resolver {
    rangeifier *r;
    kn_uop *final;             /* by id */
    uint32_t cap, nest, known; /* known: what is younger has no demand in it */
    uint32_t *met, nmet;       /* ids of this nest: names of loops are shared, what a demand is need not be */
    size_t met_cap;
    kn_uop *stack;
    size_t n, stack_cap;
} resolver;

static bool room(resolver *s) {
    uint32_t n = s->r->ir->n;
    if (n <= s->cap) return true;
    uint32_t cap = n * 2;
    kn_uop *p = ki_realloc(s->final, cap, sizeof *p);
    if (!p) return nomem(s->r);
    memset(p + s->cap, 0, (cap - s->cap) * sizeof *p);
    s->final = p;
    s->cap = cap;
    return true;
}

static bool visit(resolver *s, kn_uop u) {
    if (s->n == s->stack_cap) {
        size_t cap = s->stack_cap ? s->stack_cap * 2 : 256;
        kn_uop *p = ki_realloc(s->stack, cap, sizeof *p);
        if (!p) return nomem(s->r);
        s->stack = p;
        s->stack_cap = cap;
    }
    s->stack[s->n++] = u;
    return true;
}

/* What asks for nothing is itself: nearly all index arithmetic. */
static bool is_whole(const resolver *s, kn_uop u) { return u->id >= s->known || !s->r->asks[u->id]; }

static kn_uop done(const resolver *s, kn_uop u) { return is_whole(s, u) ? u : u->id < s->cap ? s->final[u->id] : NULL; }

static bool settle(resolver *s, kn_uop u, kn_uop to) {
    if (!ki_array_grow(&s->met, &s->met_cap, (size_t)s->nmet + 1, sizeof *s->met)) return nomem(s->r);
    s->met[s->nmet++] = u->id;
    s->final[u->id] = to;
    s->n--;
    return true;
}

static void forget(resolver *s) {
    while (s->nmet) s->final[s->met[--s->nmet]] = NULL;
}

/* What demand d is in this nest. */
static kn_uop became(const resolver *s, kn_uop d) {
    const rangeifier *r = s->r;
    for (uint32_t k = r->nest[s->nest].own; k != NONE; k = r->own[k].next)
        if (r->own[k].d == d) return r->own[k].value;
    return d->id < r->map_cap ? r->map[d->id] : NULL;
}

/* u with every demand below it replaced by what it became, to the end. */
static kn_uop resolve(resolver *s, kn_uop root) {
    rangeifier *r = s->r;
    if (is_whole(s, root)) return root;
    if (!visit(s, root)) return NULL;
    while (s->n) {
        kn_uop u = s->stack[s->n - 1];
        if (!room(s)) return NULL;
        if (s->final[u->id]) {
            s->n--;
            continue;
        }
        if (is_demand(r, u)) {
            kn_uop to = became(s, u);
            if (!to) return ki_fail(r->ir->env, KI_E_INTERNAL, "rangeify: a demand was never met"), NULL;
            kn_uop f = done(s, to);
            if (f ? !settle(s, u, f) : !visit(s, to)) return NULL;
            continue;
        }
        bool ready = true;
        for (uint32_t k = 0; k < u->nsrc && ready; k++)
            if (!done(s, u->src[k])) {
                ready = false;
                if (!visit(s, u->src[k])) return NULL;
            }
        if (!ready) continue;
        kn_uop src[64], *v = u->nsrc <= 64 ? src : ki_calloc(u->nsrc, sizeof *v);
        if (!v) return nomem(r), NULL;
        for (uint32_t k = 0; k < u->nsrc; k++) v[k] = done(s, u->src[k]);
        kn_uop f = ki_with_src(r->ir, u, v);
        if (v != src) ki_free(v);
        if (!f || !room(s) || !settle(s, u, f)) return NULL;
    }
    return s->final[root->id];
}

/* ---- one kernel --------------------------------------------------------------------------------------------- */

/* Loop order: the sets that must lead, then axis order. */
static unsigned loop_order(const nest *n, kn_uop *out) {
    uint32_t taken = 0;
    unsigned count = 0;
    for (unsigned p = 0; p <= n->nprefix; p++) {
        uint32_t set = p < n->nprefix ? n->prefix[p] : UINT32_MAX;
        for (unsigned k = 0; k < n->nrange; k++)
            if (set >> k & 1 && !(taken >> k & 1)) out[count++] = n->range[k], taken |= 1u << k;
    }
    return count;
}

/* The version of its memory that an assignment replaces: see order.c. */
static uint32_t version_before(kn_uop v) {
    if (v->op != KN_AFTER) return 0;
    for (v = v->src[0]; v->op == KN_RESHAPE;) v = v->src[0];
    return v->op == KN_AFTER ? v->id : 0;
}

/* SINK(END(GROUP(STORE...), ranges...)), with BUFFERs and versions. */
static kn_uop nest_sink(resolver *s, uint32_t id) {
    rangeifier *r = s->r;
    nest *n = &r->nest[id];
    kn_uop store[16], end[KI_MAX_RANK + 1];
    forget(s);
    s->nest = id;
    for (uint32_t k = 0; k < n->nout; k++) {
        output *o = &r->output[n->out[k]];
        kn_uop index = resolve(s, o->index), value = resolve(s, o->value);
        if (!index || !value) return NULL;
        index = ki_range_simplify(r, index);
        if (!index) return NULL;
        if (index->op != KN_INDEX || index->src[0]->op != KN_BUFFER)
            return ki_fail(r->ir->env, KI_E_ASSIGN_TARGET), NULL;
        o->target = ki_with_tag(r->ir, index->src[0], 0);
        index = ki_op2(r->ir, KN_INDEX, ki_with_tag(r->ir, o->target, version_before(o->node)), index->src[1]);
        store[k] = ki_with_tag(r->ir, ki_op2(r->ir, KN_STORE, index, value), o->node->op == KN_AFTER ? o->node->id : 0);
    }
    kn_uop body = n->nout == 1 ? store[0] : ki_opn(r->ir, KN_GROUP, store, n->nout);
    unsigned loops = loop_order(n, end + 1);
    end[0] = body;
    kn_uop e = loops ? ki_opn(r->ir, KN_END, end, loops + 1) : body;
    return e ? ki_op1(r->ir, KN_SINK, e) : NULL;
}

/* ---- each REDUCE owns its ranges ------------------------------------------------------------------------ */

typedef struct renames {
    kn_uop *from, *to;
    uint32_t n, cap;
} renames;

kn_uop ki_range_renamed(ki_ir *ir, kn_uop r, uint32_t id, kn_axis axis) {
    return ki_range_make(ir, id, axis, r->src[0]);
}

static bool rename_range(ki_ir *ir, renames *s, kn_uop r) {
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 32;
        kn_uop *from = ki_realloc(s->from, cap, sizeof *from);
        if (from) s->from = from;
        kn_uop *to = from ? ki_realloc(s->to, cap, sizeof *to) : NULL;
        if (!to) return ki_fail(ir->env, KI_E_NOMEM), false;
        s->to = to;
        s->cap = cap;
    }
    s->from[s->n] = r;
    return (s->to[s->n++] = ki_range_renamed(ir, r, ir->next_range, KN_AX_REDUCE)) != NULL;
}

/* REDUCE u over the ranges from[0..n) anew: what inside depends on them is copied, and a REDUCE that is copied gets ranges
 * of its own too. */
static kn_uop copy_reduce(ki_ir *ir, kn_uop u, renames *s) {
    kn_uop *order;
    int64_t n = ki_toposort(ir, &u, 1, &order);
    ki_map *copied = n < 0 ? NULL : ki_map_take(ir);
    bool ok = copied != NULL, more = true;
    for (uint32_t k = 0; ok && k < s->n; k++) ki_map_set(copied, s->from[k], s->from[k]);
    while (ok && more) { /* once for each REDUCE inside a REDUCE */
        more = false;
        for (int64_t i = 0; ok && i + 1 < n; i++) {
            kn_uop x = order[i];
            bool depends = ki_map_get(copied, x) != NULL;
            for (uint32_t k = 0; k < x->nsrc && !depends; k++) depends = ki_map_get(copied, x->src[k]) != NULL;
            if (!depends) continue;
            ki_map_set(copied, x, x);
            for (uint32_t k = 1; ok && x->op == KN_REDUCE && k < x->nsrc; k++) {
                if (x->src[k]->op != KN_RANGE || ki_map_get(copied, x->src[k])) continue;
                ki_map_set(copied, x->src[k], x->src[k]);
                ok = more = rename_range(ir, s, x->src[k]);
            }
        }
    }
    ki_map_give(ir, copied);
    if (n >= 0) ki_free(order);
    return ok ? ki_substitute(ir, u, s->from, s->to, s->n) : NULL;
}

/* Of REDUCEs that share a range the last keeps it: one may stand inside another, whose body then knows but one of that name. */
static kn_uop own_ranges(ki_ir *ir, kn_uop sink) {
    kn_uop *order, result = NULL, src[64];
    renames s = {0};
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    uint32_t known = ir->n;
    kn_uop *now = n < 0 ? NULL : ki_calloc(known, sizeof *now);
    uint32_t *closers = now ? ki_calloc(known, sizeof *closers) : NULL;
    bool ok = closers || (ki_fail(ir->env, KI_E_NOMEM), false);
    for (int64_t i = 0; ok && i < n; i++)
        for (uint32_t k = 1; order[i]->op == KN_REDUCE && k < order[i]->nsrc; k++) closers[order[i]->src[k]->id]++;
    for (int64_t i = 0; ok && i < n; i++) {
        kn_uop u = order[i], *v = u->nsrc <= 64 ? src : ki_calloc(u->nsrc, sizeof *v);
        if (!(ok = v != NULL)) break;
        for (uint32_t k = 0; k < u->nsrc; k++) v[k] = now[u->src[k]->id];
        kn_uop x = ki_with_src(ir, u, v);
        s.n = 0;
        for (uint32_t k = 1; ok && u->op == KN_REDUCE && k < u->nsrc; k++) {
            if (--closers[u->src[k]->id]) ok = rename_range(ir, &s, u->src[k]);
        }
        if (ok && x && s.n) x = copy_reduce(ir, x, &s);
        ok = ok && (now[u->id] = x) != NULL;
        if (v != src) ki_free(v);
    }
    if (ok) result = now[sink->id];
    if (n >= 0) ki_free(order);
    ki_free(now);
    ki_free(closers);
    ki_free(s.from);
    ki_free(s.to);
    return result;
}

static bool add_arg(rangeifier *r, ki_call *c, kn_uop u) {
    for (uint32_t k = 0; k < c->narg; k++)
        if (c->arg[k] == u) return true;
    if (c->narg == 64) return ki_fail(r->ir->env, KI_E_KERNEL_BUFFERS, 64), false;
    c->arg[c->narg++] = u;
    return true;
}

/* What an INDEX is in, stores before it (inside.c) or not. */
static kn_uop memory_of(kn_uop index) {
    kn_uop u = index->src[0];
    while (u->op == KN_AFTER) u = u->src[0];
    return u;
}

static bool is_global(kn_uop u) { return u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL; }

/* Versions (order.c) have served. */
static kn_uop without_versions(ki_ir *ir, kn_uop sink) {
    kn_uop *order, *from = NULL, *to = NULL;
    size_t m = 0;
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    bool ok = n >= 0 && (from = ki_calloc((size_t)n + 1, sizeof *from)) && (to = ki_calloc((size_t)n + 1, sizeof *to));
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; ok && i < n; i++)
        if (order[i]->tag && order[i]->op == KN_STORE)
            from[m] = order[i], ok = (to[m++] = ki_with_tag(ir, order[i], 0)) != NULL;
    ok = ok && (sink = ki_substitute(ir, sink, from, to, m)) != NULL;
    ki_free(order);
    ki_free(from);
    ki_free(to);
    return ok ? sink : NULL;
}

/* Rows of a kernel that is alone, found in a store of its own. */
static kn_uop with_rows(ki_ir *ir, kn_uop sink) {
    ki_ir *own = sink->nsrc == 1 ? ki_ir_take(ir) : NULL;
    kn_uop k = NULL, rows = NULL;
    if (!own) return ir->env->err == KI_E_NONE ? sink : NULL;
    bool ok = ki_import(own, ir, &sink, 1, &k);
    own->next_buffer = ir->next_buffer;
    ok = ok && (rows = ki_range_rows(own, k, true));
    if (ok && rows == k) rows = sink; /* it has none */
    else ok = ok && ki_import(ir, own, &rows, 1, &rows);
    ki_ir_give(ir, own);
    return ok ? rows : NULL;
}

/* BUFFERs become PARAM slots, outputs first; ranges are renumbered in post-order. */
static bool number(rangeifier *r, kn_uop sink, ki_call *c) {
    ki_ir *ir = r->ir;
    kn_uop *order, *from = NULL, *to = NULL;
    size_t m = 0;
    if (!(sink = without_versions(ir, sink)) || !(sink = with_rows(ir, sink))) return false;
    int64_t n = ki_postorder(ir, &sink, 1, &order);
    bool ok = n >= 0 && (from = ki_calloc((size_t)n + 1, sizeof *from)) && (to = ki_calloc((size_t)n + 1, sizeof *to));
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    c->nbuffer = c->narg = 0;
    for (int64_t i = 0; ok && i < n; i++)
        if (order[i]->op == KN_STORE && is_global(memory_of(order[i]->src[0])))
            ok = add_arg(r, c, ki_with_tag(ir, memory_of(order[i]->src[0]), 0));
    for (int64_t i = 0; ok && i < n; i++)
        if (is_global(order[i])) ok = add_arg(r, c, ki_with_tag(ir, order[i], 0));
    c->nbuffer = c->narg;
    for (int64_t i = 0; ok && i < n; i++)
        if (order[i]->op == KN_PARAM) ok = add_arg(r, c, order[i]);
    for (int64_t i = 0; ok && i < n; i++) {
        kn_uop b = order[i];
        if (b->op != KN_BUFFER || b->arg.buffer->addrspace != KN_GLOBAL) continue;
        uint32_t k = 0;
        while (k + 1 < c->nbuffer && c->arg[k]->arg.p != b->arg.p) k++;
        from[m] = b;
        to[m++] = ki_param_make(ir, (int)k, (kn_dtype)b->dtype, KN_GLOBAL, b->type->device, NULL, NULL,
                                ki_shape_src(ir, &b->type->dim[0].n, 1));
    }
    uint32_t id = 0, own = 0;
    for (int64_t i = 0; ok && i < n; i++) {
        kn_uop u = order[i];
        if (u->op == KN_BUFFER && !is_global(u)) {
            const ki_buffer *b = u->arg.buffer;
            from[m] = u;
            to[m++] = ki_buffer_make(ir, own++, b->size, (kn_dtype)u->dtype, (kn_addrspace)b->addrspace, b->device);
        }
        if (u->op != KN_RANGE) continue;
        kn_arg a = u->arg;
        a.range.id = id++;
        from[m] = u;
        to[m++] = ki_with_arg(ir, u, a);
    }
    ok = ok && (c->sink = ki_substitute(ir, sink, from, to, m)) != NULL;
    ki_free(order);
    ki_free(from);
    ki_free(to);
    return ok;
}

/* What kernels written alike have in common: their numbered sink, and which of their buffers is which argument. */
typedef struct kind {
    kn_uop sink, arg[64]; /* variables */
    uint32_t number[64];  /* buffers */
    uint32_t nbuffer, narg;
} kind;
typedef struct numbering {
    ki_written seen;
    kind **kind; /* by number of the kernel in `seen`; NULL: a large one */
    size_t cap;
} numbering;

static bool note_kind(rangeifier *r, numbering *s, uint32_t kernel, const ki_call *c) {
    kind *a = s->kind[kernel] = ki_malloc(sizeof *a);
    if (!a) return nomem(r);
    *a = (kind){.sink = c->sink, .nbuffer = c->nbuffer, .narg = c->narg};
    for (uint32_t i = 0; i < c->narg; i++) {
        if (i >= c->nbuffer) a->arg[i] = c->arg[i];
        else if (!ki_name_number(&s->seen.buffer, r->ir->env, c->arg[i]->arg.buffer->id, &a->number[i])) return false;
    }
    return true;
}

static bool as_kind(rangeifier *r, numbering *s, const kind *a, ki_call *c) {
    *c = (ki_call){.sink = a->sink, .nbuffer = a->nbuffer, .narg = a->narg};
    for (uint32_t i = 0; i < a->narg; i++)
        if (!(c->arg[i] = i < a->nbuffer ? ki_with_tag(r->ir, s->seen.called[a->number[i]], 0) : a->arg[i]))
            return false;
    return true;
}

static bool number_all(rangeifier *r, const ki_kernels *k, const uint32_t *order, ki_call *c) {
    numbering s = {.seen = {.forms = r->forms}};
    bool ok = true, whole, known;
    uint32_t kernel;
    for (uint32_t i = 0; i < k->used && ok; i++) {
        kn_uop sink = k->sink[order[i]];
        ok = ki_written_begin(&s.seen, &sink, 1, &whole);
        if (ok && !whole) ok = number(r, sink, &c[i]);
        if (!ok || !whole) continue;
        ok = ki_written_find(&s.seen, &kernel, &known);
        if (ok && known) ok = as_kind(r, &s, s.kind[kernel], &c[i]);
        if (!ok || known) continue;
        ok = ki_array_grow(&s.kind, &s.cap, (size_t)kernel + 1, sizeof *s.kind) || nomem(r);
        if (ok) s.kind[kernel] = NULL;
        ok = ok && number(r, sink, &c[i]) && note_kind(r, &s, kernel, &c[i]);
    }
    for (uint32_t i = 0; i < s.seen.slots.n && i < s.cap; i++) ki_free(s.kind[i]);
    ki_free(s.kind);
    ki_written_close(&s.seen);
    return ok;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

/* r_64_32 (has a reduce) or e_4096: sizes of the loops, outer first; a number where another kernel has the
 * name. */
static kn_uop name_kernel(rangeifier *r, kn_uop sink, uint32_t copy) {
    kn_uop *order;
    int64_t n = ki_postorder(r->ir, &sink, 1, &order);
    if (n < 0) return NULL;
    bool reduce = false;
    _Alignas(16) char raw[sizeof(ki_kernel) + 96] = {0};
    ki_kernel *k = (ki_kernel *)raw;
    char *name = (char *)k->opt;
    for (int64_t i = 0; i < n; i++) reduce |= order[i]->op == KN_REDUCE;
    int at = snprintf(name, 96, "%s", reduce ? "r" : "e");
    for (int64_t i = 0; i < n; i++) {
        kn_uop e = order[i];
        for (uint32_t j = 1; (e->op == KN_END || e->op == KN_REDUCE) && j < e->nsrc && at < 64; j++)
            at += snprintf(name + at, 96 - (size_t)at, e->src[j]->src[0]->op == KN_CONST ? "_%lld" : "_n%lld",
                           (long long)e->src[j]->src[0]->hi.i);
    }
    if (copy) at += snprintf(name + at, 96 - (size_t)at, "n%u", copy);
    ki_free(order);
    k->len = (uint32_t)at;
    k->threads = 1;
    const void *p = ki_intern(r->ir, k, sizeof *k + (size_t)at + 1);
    return p ? ki_with_arg(r->ir, sink, (kn_arg){.p = p}) : NULL;
}

static bool name_all(rangeifier *r, ki_call *c, uint32_t n) {
    kn_uop *bare = ki_calloc(n, sizeof *bare);
    if (!bare) return nomem(r);
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        bare[i] = c[i].sink;
        kn_uop named = NULL;
        for (uint32_t j = 0; j < i && !named; j++)
            if (bare[j] == bare[i]) named = c[j].sink;
        uint32_t copy = 0;
        while (ok && !named) { /* the first free number */
            kn_uop k = name_kernel(r, bare[i], copy++);
            if (!k) ok = false;
            bool taken = false;
            for (uint32_t j = 0; ok && j < i; j++)
                taken |= strcmp(ki_kernel_name(c[j].sink->arg.kernel), ki_kernel_name(k->arg.kernel)) == 0;
            if (ok && !taken) named = k;
        }
        if (ok) c[i].sink = named;
    }
    ki_free(bare);
    return ok;
}

/* ---- the program -------------------------------------------------------------------------------------------- */

static bool emit(rangeifier *r, ki_call *c, uint32_t n) {
    kn_uop *line = ki_calloc(n + 1, sizeof *line);
    if (!line) return nomem(r);
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        ki_call *k = &c[i];
        ki_part part[64];
        kn_uop s[65];
        bool any = false;
        s[0] = k->sink;
        memcpy(s + 1, k->arg, k->narg * sizeof *s);
        if (k->whole && !(ok = ki_range_parts(r->ir, k, k->whole, part, &any))) break;
        for (uint32_t j = 0; any && j < k->nbuffer; j++) {
            kn_uop of[2] = {s[j + 1], ki_index(r->ir, part[j].lo)};
            kn_arg size = {.i = part[j].hi - part[j].lo};
            if (part[j].narrow) s[j + 1] = ki_make(r->ir, KN_SLICE, (kn_dtype)of[0]->dtype, of, 2, size, 0);
        }
        ok = (line[i] = ki_opn(r->ir, KN_CALL, s, k->narg + 1)) != NULL;
    }
    if (ok) ok = (r->p->root = ki_opn(r->ir, KN_LINEAR, line, n)) != NULL;
    ki_free(line);
    return ok;
}

/* What a kernel alone decides, in a store of its own: its size is what it costs. *fill: one to run before it, or NULL. While
 * layouts are tried only they matter: the sink as it was. */
kn_uop ki_range_finish(ki_ir *ir, kn_uop sink, bool scatter, ki_layouts *l, kn_uop *fill) {
    kn_uop k[2] = {NULL, NULL};
    uint32_t n = 1;
    bool tries = !scatter && l && l->step == KI_TRY;
    ki_ir *own = ki_ir_take(ir);
    *fill = NULL;
    bool ok = own && ki_import(own, ir, &sink, 1, k);
    if (own) own->next_buffer = ir->next_buffer;
    ok = ok && (k[0] = ki_range_fold(own, k[0], 0)) && (k[0] = ki_range_scan(own, k[0])) &&
         (k[0] = ki_layouts_apply(scatter ? NULL : l, own, k[0]));
    if (!tries) {
        ok = ok && (k[0] = ki_range_join_loops(own, k[0]));
        if (ok && scatter) ok = (k[0] = ki_range_scatter(own, k[0], &k[1])) != NULL;
        if (k[1]) n = 2;
        for (uint32_t i = 0; ok && n == 2 && i < n; i++) ok = (k[i] = ki_range_join_loops(own, k[i])) != NULL;
        for (uint32_t i = 0; ok && i < n; i++)
            ok = (k[i] = own_ranges(own, k[i])) && (k[i] = ki_range_rows(own, k[i], false));
        ok = ok && ki_import(ir, own, k, n, k);
        if (ok) *fill = k[1];
    }
    ki_ir_give(ir, own);
    return ok ? tries ? sink : k[0] : NULL;
}

/* Every nest's SINK. From here on they alone are the program: the tensor graph and the demands are given back. */
static bool resolve_all(rangeifier *r, kn_uop *sink) {
    resolver s = {.r = r};
    ki_range_forget(r);
    bool ok = ki_range_find_demands(r);
    s.known = r->nasks;
    for (uint32_t i = 0; i < r->nnest && ok; i++) ok = (sink[i] = nest_sink(&s, i)) != NULL;
    ki_free(s.final);
    ki_free(s.met);
    ki_free(s.stack);
    ki_free(r->map);
    ki_free(r->asks);
    r->map = NULL;
    r->asks = NULL;
    r->nasks = 0;
    r->asks_cap = 0;
    ki_memo_free(&r->memo);
    if (r->nnest) r->p->root = sink[0]; /* until there are calls */
    return ok && ki_program_collect(r->p, sink, r->nnest);
}

/* Every nest's kernel; again, if there are axes to be moved, those that see it. */
static bool finish_all(rangeifier *r, ki_kernels *k) {
    ki_layouts l;
    ki_twins twins;
    kn_uop *nest = ki_calloc(r->nnest + 1, sizeof *nest), fill = NULL;
    if ((!nest && !nomem(r)) || !ki_twins_open(&twins, r->forms)) return ki_free(nest), false;
    bool ok = ki_layouts_open(&l, r->p, r->opts->target), any = true;
    memcpy(nest, k->sink, r->nnest * sizeof *nest);
    for (int step = KI_WISH; step <= KI_MOVE && ok && any; step++) {
        l.step = step;
        for (uint32_t i = 0; i < r->nnest && ok; i++) {
            bool touched = true;
            if (step != KI_WISH) ok = ki_layouts_touch(&l, r->ir, nest[i], r->nest[i].scatter, &touched);
            if (!ok || !touched) continue;
            bool apart = r->nest[i].scatter; /* one that does is touched by no layout: it comes by once */
            kn_uop done =
                apart ? ki_range_finish(r->ir, nest[i], true, &l, &fill) : ki_twins_finish(&twins, r->ir, nest[i], &l);
            ok = done != NULL;
            if (ok && step != KI_TRY) k->sink[i] = done;
            if (apart && fill) k->sink[k->n++] = fill; /* order.c: the other reads what this one makes */
        }
        ki_layouts_settle(&l);
        any = ki_layouts_any(&l);
    }
    ki_layouts_close(&l);
    ki_twins_close(&twins);
    ki_free(nest);
    return ok;
}

bool ki_range_kernels(rangeifier *r) {
    ki_kernels k = {.n = r->nnest,
                    .cap = 2 * r->nnest + 1}; /* nest i is kernel i; a scattering one has a kernel more */
    uint32_t *order = NULL;
    ki_call *c = NULL;
    bool merged = false, ok = (k.sink = ki_calloc(k.cap, sizeof *k.sink)) != NULL || nomem(r);
    ok = ok && resolve_all(r, k.sink);
    ki_forms forms = {.ir = r->ir};
    r->forms = &forms;
    ok = ok && finish_all(r, &k) && ki_range_order(r, &k, &order);
    ok = ok && ((c = ki_calloc(k.used + 1, sizeof *c)) != NULL || nomem(r));
    ok = ok && number_all(r, &k, order, c) && ki_range_in_place(r, c, &k, order, &merged) &&
         (!merged || number_all(r, &k, order, c));
    ok = ok && ki_range_slots(r, c, k.used) && name_all(r, c, k.used) && emit(r, c, k.used);
    ki_forms_close(&forms);
    r->forms = NULL;
    ki_free(c);
    ki_free(order);
    ki_free(k.sink);
    ki_free(k.first);
    return ok;
}
