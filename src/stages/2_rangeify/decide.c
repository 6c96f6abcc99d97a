/* decide.c: values are stored, or computed in the loops of those that ask for them, users first (DESIGN 12.1, 12.2). storage.c says which are
 * stored. What is never done: a REDUCE under a range its body lacks. */
#include "stages/2_rangeify/rangeify.h"

#include "base/hash.h"
#include "stages/indexing.h"

#include <string.h>

static bool nomem(rangeifier *r) {
    ki_fail(r->ir->env, KI_E_NOMEM);
    return false;
}

#define GROW(array, count, cap) (ki_array_grow(&(array), &(cap), (size_t)(count) + 1, sizeof *(array)) || nomem(r))

static bool set_map(rangeifier *r, kn_uop d, kn_uop to) {
    if (!to) return false;
    if (d->id >= r->map_cap) {
        uint32_t cap = r->ir->n * 2;
        kn_uop *p = ki_realloc(r->map, cap, sizeof *p);
        if (!p) return nomem(r);
        memset(p + r->map_cap, 0, (cap - r->map_cap) * sizeof *p);
        r->map = p;
        r->map_cap = cap;
    }
    r->map[d->id] = to;
    return true;
}

/* ---- demands ------------------------------------------------------------------------------------------------ */

/* Place of the nest among those that have demands on a value; NONE: it has none. */
static uint32_t asker_of(const rangeifier *r, uint32_t value, uint32_t nest_id, uint32_t *hash) {
    uint32_t at = 0, k;
    *hash = (uint32_t)ki_hash2(value, nest_id);
    while ((k = ki_slots_next(&r->askers, *hash, &at)))
        if (r->asker[k - 1].value == value && r->asker[k - 1].nest == nest_id) break;
    return k - 1;
}

static bool add_asker(rangeifier *r, uint32_t value, uint32_t nest_id, uint32_t hash) {
    if (!GROW(r->asker, r->askers.n, r->asker_cap) || !(ki_slots_add(&r->askers, hash) || nomem(r))) return false;
    r->asker[r->askers.n - 1] = (asker){value, nest_id, NONE};
    r->info[value].askers++;
    r->nest[nest_id].sources += !r->info[value].constant;
    return true;
}

static bool add_demand(rangeifier *r, kn_uop d, uint32_t nest_id, uint32_t ctx, bool linear) {
    info *f = &r->info[d->src[0]->id];
    uint32_t hash, at = asker_of(r, d->src[0]->id, nest_id, &hash);
    for (uint32_t k = at == NONE ? NONE : r->asker[at].last; k != NONE; k = r->demand[k].same)
        if (r->demand[k].d == d && r->demand[k].ctx == ctx) return r->demand[k].linear &= linear, true;
    if (at == NONE) {
        if (!add_asker(r, d->src[0]->id, nest_id, hash)) return false;
        at = r->askers.n - 1;
    }
    if (!GROW(r->demand, r->ndemand, r->demand_cap)) return false;
    r->demand[r->ndemand] = (demand){d, nest_id, ctx, linear, f->first, r->asker[at].last};
    f->first = r->asker[at].last = r->ndemand++;
    return true;
}

/* The body of a REDUCE that runs `outer` times in a nest. */
static bool add_context(rangeifier *r, uint32_t nest_id, uint32_t parent, kn_uop reduce, double outer, uint32_t *out) {
    uint32_t *last = &r->nest[nest_id].context;
    for (uint32_t k = *last; k != NONE; k = r->context[k].next)
        if (r->context[k].parent == parent && r->context[k].reduce == reduce) return *out = k, true;
    if (!GROW(r->context, r->ncontext, r->context_cap)) return false;
    double times = (double)reduce->src[0]->type->numel / (double)(reduce->type->numel ? reduce->type->numel : 1);
    r->context[r->ncontext] = (context){parent, reduce, outer * times, *last};
    *out = *last = r->ncontext++;
    r->nest[nest_id].contexts++;
    return true;
}

/* The demands that are e's sources, in order of ids; < 0: there are demands elsewhere in it. */
static int plain_sources(const rangeifier *r, kn_uop e, kn_uop *out, int most) {
    int n = 0;
    if (is_demand(r, e)) return -1;
    for (uint32_t k = 0; k < e->nsrc; k++) {
        kn_uop s = e->src[k];
        int at = n;
        if (!r->asks[s->id]) continue;
        if (n == most || !is_demand(r, s) || !ki_is_plain(s)) return -1;
        while (at > 0 && out[at - 1]->id > s->id) at--;
        if (at > 0 && out[at - 1] == s) continue;
        memmove(out + at + 1, out + at, (size_t)(n++ - at) * sizeof *out);
        out[at] = s;
    }
    return n;
}

/* Registers every demand in e, which is what a demand became: one op and its index arithmetic. */
static bool scan(rangeifier *r, kn_uop e, uint32_t nest_id, uint32_t ctx, bool linear) {
    enum { MOST = 4 };
    if (is_demand(r, e) && ki_is_plain(e)) return add_demand(r, e, nest_id, ctx, linear);
    if (!ki_range_find_demands(r)) return false;
    kn_uop *order, near[MOST + 1];
    int sources = plain_sources(r, e, near, MOST);
    for (int i = 0; i < sources; i++)
        if (!add_demand(r, near[i], nest_id, ctx, false)) return false;
    if (sources >= 0) return true;
    int64_t n = ki_toposort_above(r->ir, &e, 1, r->top, &order);
    bool ok = n >= 0;
    for (int64_t i = 0; i < n && ok; i++)
        if (is_demand(r, order[i])) ok = add_demand(r, order[i], nest_id, ctx, linear && order[i] == e);
    ki_free(order);
    return ok;
}

kn_uop ki_range_push(rangeifier *r, kn_uop d) {
    extern const ki_ruleset ki_rules_push;
    const ki_ruleset *sets[1] = {&ki_rules_push};
    ki_rewrite_opts o = {.sets = sets, .nsets = 1, .user = &r->push};
    const ki_rule *fired;
    if (ki_is_variable(d->src[0])) return d->src[0]; /* a variable that is itself a result */
    kn_uop e = ki_rewrite_one(r->ir, d, &o, &fired);
    if (!e && r->ir->env->err == KI_E_NONE) ki_fail(r->ir->env, KI_E_RANGEIFY_OP, ki_ops[d->src[0]->op].name);
    /* Arithmetic keeps its indices, which are as simple as they were; its values wait for the whole kernel. */
    return e && ki_is_elementwise((kn_op)d->src[0]->op) ? e : ki_range_simplify(r, e);
}

/* A tensor-level view between a REDUCE and the one it feeds keeps sums sums. */
static bool is_view(kn_uop v) {
    return v->op == KN_RESHAPE || v->op == KN_PERMUTE || v->op == KN_PAD || v->op == KN_SHRINK || v->op == KN_FLIP;
}

/* The loops of v, a REDUCE that is computed in this nest alone, are named by their place. One that folds may be met in many. */
static bool name_loops(rangeifier *r, uint32_t nest_id, kn_uop v) {
    uint32_t first;
    if (v->op != KN_REDUCE || r->info[v->id].folds) return true;
    if (!ki_range_place(r, &r->nest[nest_id].place, v->src[0]->type, v->arg.reduce.axes, &first)) return false;
    return r->push.range[v->id] = first + 1, true;
}

/* What a demand becomes, one step nearer to memory; a sum that folds goes all the way. */
static kn_uop step(rangeifier *r, kn_uop d) {
    kn_uop e = NULL;
    if (d->src[0]->op == KN_REDUCE && r->info[d->src[0]->id].folds && !ki_range_folded(r, d, &e)) return NULL;
    return e ? e : ki_range_push(r, d);
}

/* Nests that read v, a REMAT, run after all it waits for: what that needs is no older. */
static void wait_for(rangeifier *r, kn_uop v) {
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next) {
        nest *n = &r->nest[r->demand[k].nest];
        for (uint32_t j = 1; j < v->nsrc; j++)
            if (n->youngest < v->src[j]->id) n->youngest = v->src[j]->id;
    }
}

/* The demands on v are rewritten into demands on its sources. */
static bool inline_value(rangeifier *r, kn_uop v) {
    if (v->op == KN_REMAT) wait_for(r, v);
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next)
        if (r->demand[k].same == NONE) r->nest[r->demand[k].nest].sources -= !r->info[v->id].constant;
    if (!name_loops(r, r->demand[r->info[v->id].first].nest, v)) return false;
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next) {
        demand q = r->demand[k];
        if (q.d->id >= r->map_cap || !r->map[q.d->id]) {
            kn_uop e = step(r, q.d);
            if (!set_map(r, q.d, e)) return false;
        }
        kn_uop e = r->map[q.d->id];
        uint32_t ctx = q.ctx;
        if (v->op == KN_REDUCE && e->op == KN_REDUCE && !is_tensor(r, e)) {
            ranges free; /* it is computed where its own ranges are open */
            if (!ki_range_free(r, &r->nest[q.nest], q.d, &free)) return false;
            double outer = free.reduce ? ki_range_iterations(r, &r->nest[q.nest], q.ctx) : free.count;
            if (!add_context(r, q.nest, free.reduce ? q.ctx : NONE, v, outer, &ctx)) return false;
            double work = (double)v->src[0]->type->numel / (double)v->type->numel;
            if (work > r->nest[q.nest].reduce_work) r->nest[q.nest].reduce_work = work;
            r->nest[q.nest].sides += ki_range_sides(v);
            if (!scan(r, e->src[0], q.nest, ctx, true)) return false;
            continue;
        }
        /* where(inside, INDEX, 0) of a pad, or where(outside, 0, INDEX), is still linear in the value */
        kn_uop body = v->op == KN_PAD && e->op == KN_WHERE ? e->src[ki_is_const(e->src[1]) ? 2 : 1] : e;
        if (body != e && !scan(r, e->src[0], q.nest, ctx, false)) return false;
        if (!scan(r, body, q.nest, ctx, q.linear && is_view(v))) return false;
    }
    return true;
}

/* ---- storage ------------------------------------------------------------------------------------------------ */

static bool new_nest(rangeifier *r, const ki_type *shape, uint32_t *id) {
    if (!GROW(r->nest, r->nnest, r->nest_cap)) return false;
    nest *n = &r->nest[r->nnest];
    uint32_t first;
    *n = (nest){.rank = shape->rank, .shape = shape, .own = NONE, .context = NONE};
    if (!ki_range_place(r, &n->place, shape, UINT32_MAX, &first)) return false;
    for (unsigned k = 0; k < shape->rank; k++) {
        ki_dim d = shape->dim[k];
        if (d.n == 1 && !d.sym) {
            n->axis[k] = ki_index(r->ir, 0);
        } else {
            n->axis[k] = ki_range_make(r->ir, first + k, KN_AX_LOOP, ki_dim_uop(r->ir, d));
            n->range[n->nrange++] = n->axis[k];
        }
        if (!n->axis[k]) return false;
    }
    *id = r->nnest++;
    return true;
}

static kn_uop view_of_buffer(rangeifier *r, kn_uop v) {
    info *f = &r->info[v->id];
    if (!f->buffer)
        f->buffer =
            ki_buffer_make(r->ir, r->ir->next_buffer, v->type->numel, (kn_dtype)v->dtype, KN_GLOBAL, v->type->device);
    return f->buffer;
}

/* Index of a whole value in a flat buffer; a symbolic axis is laid out at its upper bound. */
static kn_uop flat_read(rangeifier *r, kn_uop buffer, const ki_type *shape, const kn_uop *i) {
    ki_dim dim[KI_MAX_RANK];
    for (unsigned k = 0; k < shape->rank; k++) dim[k] = (ki_dim){shape->dim[k].n, NULL};
    if (shape->symbolic && !(shape = ki_type_make(r->ir, shape->rank, dim, 0, -1))) return NULL;
    ki_element e = ki_linear_index(r->ir, shape, i);
    kn_uop x = ki_element_uop(r->ir, e);
    return x ? ki_range_simplify(r, ki_op2(r->ir, KN_INDEX, buffer, x)) : NULL;
}

static kn_uop assigned_target(kn_uop v) { return v->op == KN_AFTER ? v->src[1]->src[0] : NULL; }
/* The PARAM an assignment writes to; NULL for other values. */
static kn_uop assigned_memory(kn_uop v) {
    kn_uop t = assigned_target(v);
    while (t && t->nsrc && t->op != KN_PARAM) t = t->src[0];
    return t;
}

/* The nest that asks for all of v at its own indices, and only that one does: v may be stored there too. */
static kn_uop stored_value(kn_uop v) {
    return v->op == KN_AFTER ? v->src[1]->src[1] : v->op == KN_LOAD ? v->src[0] : v;
}

/* An assignment writes all of what it passes through, in order. */
static bool writes_all(kn_uop v) {
    kn_uop t = assigned_target(v);
    if (!t) return true;
    while (t->op == KN_RESHAPE || t->op == KN_AFTER) t = t->src[0];
    return t->op == KN_PARAM && t->type->numel == v->type->numel && stored_value(v)->type->numel == v->type->numel;
}

/* Position of an index tuple in memory order. */
static kn_uop position(rangeifier *r, const ki_type *shape, const kn_uop *i) {
    ki_element e = ki_linear_index(r->ir, shape, i);
    return e.valid ? NULL : ki_range_simplify(r, e.x);
}

/* Does the nest ask for all of v, at its own indices alone? *only: and no other nest for any. */
static bool asks_for_all(rangeifier *r, uint32_t id, kn_uop v, bool *only) {
    const nest *n = &r->nest[id];
    *only = !r->info[v->id].awaited;
    if (n->shape->numel != v->type->numel || n->nout >= 16 || n->shape->symbolic || n->scatter) return false;
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next) {
        demand q = r->demand[k];
        if (q.nest != id) {
            *only = false;
            continue;
        }
        if (v->op == KN_AFTER && q.ctx != NONE) return false;
        kn_uop at = position(r, v->type, q.d->src + 1);
        if (!at || at != position(r, n->shape, n->axis)) return false;
    }
    return true;
}

/* Buffers a nest reads; it stores up to 16, and a kernel has room for 64. */
#define MOST_SOURCES 48

bool ki_range_crowds(const rangeifier *r, uint32_t id, kn_uop v) {
    uint32_t more = 0, hash;
    uint32_t sides = v->op == KN_REDUCE && r->nest[id].sides ? ki_range_sides(v) : 0;
    if (sides && r->nest[id].sides + sides > KI_MOST_SIDES) return true;
    if (r->nest[id].sources + v->nsrc <= MOST_SOURCES) return false;
    for (uint32_t j = 0; j < v->nsrc; j++)
        more += !r->info[v->src[j]->id].constant && asker_of(r, v->src[j]->id, id, &hash) == NONE;
    return more > 1 && r->nest[id].sources + more - 1 > MOST_SOURCES;
}

/* Others read what it stores: so it must not need what they make of v, which is younger, nor overwrite what they read. */
static bool may_share(const rangeifier *r, const nest *n, kn_uop v) {
    bool assigns = v->op == KN_AFTER || v->op == KN_LOAD;
    for (uint32_t k = 0; k < n->nout; k++) assigns |= r->output[n->out[k]].node->op == KN_AFTER;
    return !assigns && n->youngest < v->id;
}

static uint32_t host_nest(rangeifier *r, kn_uop v) {
    enum { LOOK_AT = 8 };
    uint32_t host = NONE, looked = 0;
    kn_uop memory = assigned_memory(v);
    if (!writes_all(v)) return NONE;
    for (uint32_t k = r->info[v->id].first; k != NONE && host == NONE && looked++ < LOOK_AT; k = r->demand[k].next) {
        bool only;
        uint32_t id = r->demand[k].nest;
        if (!ki_range_crowds(r, id, v) && asks_for_all(r, id, v, &only) && (only || may_share(r, &r->nest[id], v)))
            host = id;
    }
    /* Two stores of one nest are unordered: not to the same memory. */
    for (uint32_t k = 0; memory && host != NONE && k < r->nest[host].nout; k++)
        if (assigned_memory(r->output[r->nest[host].out[k]].node) == memory) return NONE;
    return host;
}

/* Adds v as an output of nest id, whose ranges index it. */
static bool add_output(rangeifier *r, uint32_t id, kn_uop v, kn_uop value) {
    nest *n = &r->nest[id];
    output o = {.node = v, .value = value};
    kn_uop target = assigned_target(v), i[KI_MAX_RANK];
    const ki_type *shape = target ? target->type : v->type;
    if (!ki_reshape_index(r->ir, n->shape, n->axis, shape, i)) return false;
    if (target) {
        /* As far as it goes: a view on the way may be a value too, which is kept in other memory. What is left becomes
         * INDEX(buffer, i) when resolved. */
        o.index = ki_push_operand(r->ir, target, i, shape->rank);
        while (o.index && o.index->op == KN_INDEX && is_view(o.index->src[0])) o.index = ki_range_push(r, o.index);
    } else {
        o.target = view_of_buffer(r, v);
        o.index = o.target ? flat_read(r, o.target, shape, i) : NULL;
    }
    if (!o.index || !GROW(r->output, r->noutput, r->output_cap)) return false;
    if (target && !scan(r, o.index, id, NONE, false)) return false;
    r->output[r->noutput] = o;
    r->nest[id].out[r->nest[id].nout++] = r->noutput++;
    r->info[v->id].nest = id;
    return true;
}

static bool add_after(rangeifier *r, uint32_t from, uint32_t to) {
    if (from == to) return true;
    if (!GROW(r->after, r->nafter, r->after_cap)) return false;
    r->after[r->nafter].from = from;
    r->after[r->nafter++].to = to;
    return true;
}

/* The BUFFER of the PARAM that v, an AFTER, is all of, row-major; NULL if it is a part or in another order. */
static kn_uop whole_memory(rangeifier *r, kn_uop v) {
    while (v->op == KN_AFTER || v->op == KN_RESHAPE) v = v->src[0];
    return v->op == KN_PARAM ? r->info[v->id].buffer : NULL;
}

/* Demands on a stored value: reads of its buffer, or, in the nest that stores it, the value itself. */
static bool read_back(rangeifier *r, kn_uop v, uint32_t host, kn_uop value) {
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next) {
        demand q = r->demand[k];
        nest *n = &r->nest[q.nest];
        if (n->youngest < v->id && q.nest != host) n->youngest = v->id;
        if (q.nest == host && host != NONE && value) {
            if (!GROW(r->own, r->nown, r->own_cap)) return false;
            r->own[r->nown] = (own_demand){q.d, value, n->own};
            n->own = r->nown++;
            continue;
        }
        if (q.d->id < r->map_cap && r->map[q.d->id] && v->op != KN_AFTER) continue;
        kn_uop memory = v->op == KN_AFTER ? whole_memory(r, v) : NULL;
        if (memory) { /* this version of it: see order.c */
            if (!set_map(r, q.d, flat_read(r, ki_with_tag(r->ir, memory, v->id), v->type, q.d->src + 1))) return false;
        } else if (v->op == KN_AFTER) { /* what it passes through, once the store has run */
            kn_uop e = ki_push_operand(r->ir, v->src[0], q.d->src + 1, q.d->nsrc - 1);
            if (!set_map(r, q.d, e) || !scan(r, e, q.nest, q.ctx, false)) return false;
            if (!add_after(r, q.nest, r->info[v->id].nest)) return false;
        } else if (!set_map(r, q.d, flat_read(r, view_of_buffer(r, v), v->type, q.d->src + 1))) {
            return false;
        }
    }
    return true;
}

static bool store_value(rangeifier *r, kn_uop v) {
    kn_uop x = stored_value(v);
    int64_t scatters = v == x ? r->info[v->id].scatters : 0;
    uint32_t id = scatters || ki_range_meets_product(r, v) ? NONE : host_nest(r, v), host = id;
    /* What is assigned may be a scalar for all of the target. */
    const ki_type *shape = v->op == KN_AFTER ? assigned_target(v)->type : x->type;
    if (id == NONE && !new_nest(r, shape, &id)) return false;
    nest *n = &r->nest[id];
    kn_uop i[KI_MAX_RANK];
    if (x->type->numel == n->shape->numel && !ki_reshape_index(r->ir, n->shape, n->axis, x->type, i)) return false;
    for (unsigned k = 0; k < x->type->rank; k++) {
        if (x->type->numel != n->shape->numel) i[k] = x->type->dim[k].n == 1 ? ki_index(r->ir, 0) : n->axis[k];
        if (!(i[k] = ki_range_simplify(r, i[k]))) return false;
    }
    kn_uop d = ki_push_operand(r->ir, x, i, x->type->rank), value = d;
    if (!d) return false;
    /* An output that is itself computed here is pushed now; what it wraps is a demand like any other. */
    if (x == v && !name_loops(r, id, v)) return false;
    if (x == v && is_demand(r, d)) value = step(r, d);
    if (!value || !add_output(r, id, v, value)) return false;
    uint32_t ctx = NONE;
    kn_uop body = value;
    if (x == v && v->op == KN_REDUCE && value->op == KN_REDUCE) {
        double outer = (double)v->type->numel / (double)(scatters ? scatters : 1);
        if (!add_context(r, id, NONE, v, outer, &ctx)) return false;
        r->nest[id].scatter = scatters != 0;
        r->nest[id].sides += ki_range_sides(v);
        body = value->src[0];
        r->nest[id].reduce_work = (double)v->src[0]->type->numel / (double)v->type->numel;
    }
    return scan(r, body, id, ctx, ctx != NONE) && read_back(r, v, host, value);
}

static bool read_leaf(rangeifier *r, kn_uop v) {
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next)
        if (!set_map(r, r->demand[k].d, flat_read(r, r->info[v->id].buffer, v->type, r->demand[k].d->src + 1)))
            return false;
    return true;
}

/* A variable stands for itself. */
static bool read_variable(rangeifier *r, kn_uop v) {
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next)
        if (!set_map(r, r->demand[k].d, v)) return false;
    return true;
}

/* Assignments to one memory keep their order, read in between or not. */
static bool order_assignments(rangeifier *r) {
    for (int64_t i = 0; i < r->n; i++) {
        kn_uop v = r->order[i], u = v;
        if (v->op != KN_AFTER || r->info[v->id].nest == NONE) continue;
        for (u = v->src[0]; u->nsrc && u->op != KN_PARAM && u->op != KN_AFTER;) u = u->src[0];
        if (u->op == KN_AFTER && r->info[u->id].nest != NONE && !add_after(r, r->info[v->id].nest, r->info[u->id].nest))
            return false;
    }
    return true;
}

/* Nests that store what the values v, a REMAT's, are made of: one that reads the REMAT comes after each. */
static bool order_remat(rangeifier *r, kn_uop v, kn_uop *work, uint32_t *seen, uint32_t now) {
    size_t n = 0;
    bool ok = true;
    for (uint32_t k = 1; k < v->nsrc; k++) work[n++] = v->src[k], seen[v->src[k]->id] = now;
    for (size_t at = 0; at < n && ok; at++) {
        kn_uop u = work[at];
        uint32_t to = r->info[u->id].nest, last = NONE, copy = r->info[v->id].nest;
        if (to != NONE && copy != NONE) ok = add_after(r, copy, to);
        for (uint32_t k = copy == NONE ? r->info[v->id].first : NONE; to != NONE && k != NONE && ok;
             k = r->demand[k].next) {
            if (r->demand[k].nest != last) ok = add_after(r, r->demand[k].nest, to);
            last = r->demand[k].nest;
        }
        uint32_t sources = ki_range_is_view(u) ? 1 : u->nsrc;
        for (uint32_t k = 0; to == NONE && !r->info[u->id].constant && k < sources; k++)
            if (seen[u->src[k]->id] != now) seen[u->src[k]->id] = now, work[n++] = u->src[k];
    }
    return ok;
}

static bool order_remats(rangeifier *r) {
    uint32_t hard = r->nafter, *seen = NULL;
    kn_uop *work = NULL;
    bool ok = true;
    for (int64_t i = 0; i < r->n && ok; i++) {
        kn_uop v = r->order[i];
        if (v->op != KN_REMAT || r->info[v->id].first == NONE) continue;
        if (!seen) seen = ki_calloc(r->top + 1, sizeof *seen), work = ki_malloc(((size_t)r->top + 1) * sizeof *work);
        ok = ((seen && work) || nomem(r)) && order_remat(r, v, work, seen, v->id);
    }
    r->nlater = r->nafter - hard;
    ki_free(seen);
    ki_free(work);
    return ok;
}

bool ki_range_decide(rangeifier *r) {
    bool ok = true;
    for (int64_t i = r->n; i-- > 0 && ok;) {
        kn_uop v = r->order[i];
        info *f = &r->info[v->id];
        if (!f->keep && f->first == NONE) continue;
        if (v->op == KN_PARAM && v->nsrc) ok = read_leaf(r, v);
        else if (ki_range_wants_storage(r, v, &ok)) ok = ok && store_value(r, v);
        else if (v->op == KN_PARAM) ok = read_variable(r, v);
        else if (ok)
            ok = (v->op != KN_REDUCE || r->info[v->id].folds || ki_range_place_reduce(r, v)) && inline_value(r, v);
    }
    return ok && order_assignments(r) && order_remats(r);
}
