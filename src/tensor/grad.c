/* grad.c: the reverse sweep. Graph to graph, so gradients of gradients work; iterative: nodes in descending id order
 * have all their users behind them.
 *
 * What the gradient of a node gives each source is a rule of grad.kr. A contribution of another shape than its source
 * (a () operand, an axis of 1 that broadcast) is summed to it in one place, add_to. DETACH and integer or bool values
 * end the sweep; an assigned place is a leaf. */
#include "tensor/build.h"

#include "rules/rules.h"

#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes being walked, users first. Those of what is computed again may have been met outside: what they had there waits. */
typedef struct frame {
    kn_uop *order, *kept; /* kept: their gradients so far, then their gets */
    int64_t n, at;
} frame;

typedef struct sweep {
    kn_ctx *k;
    kn_uop *g;      /* by id: gradient so far */
    kn_uop *get;    /* by id of a FUNCTION, its first GETTUPLE with a gradient; by id of that the next */
    uint8_t *needs; /* by id: some wanted node is below */
    uint32_t room;  /* ids */
    frame *frame;   /* one inside the other */
    size_t depth, cap;
} sweep;

/* ---- accumulation ------------------------------------------------------------------------------------------ */

/* g, of a shape that x broadcasts to, summed down to x's. */
static kn_uop summed_to(kn_ctx *k, kn_uop g, kn_uop x) {
    if (!g || ki_same_shape(g, x)) return g;
    uint32_t axes = 0;
    if (ki_rank(g) == ki_rank(x)) {
        for (unsigned i = 0; i < ki_rank(x); i++)
            if (ki_dim_n(x, i) == 1 && ki_dim_n(g, i) != 1) axes |= UINT32_C(1) << i;
        return ki_t_cast(k, ki_t_sum(k, g, axes), (kn_dtype)x->dtype);
    }
    if (ki_rank(g) == 0) { /* a () gradient of a shaped value: the same for all */
        ki_shape s = ki_shape_like(x);
        return ki_t_full(k, &s, g);
    }
    return ki_t_squeeze(k, ki_t_cast(k, ki_t_sum(k, g, all_axes(g)), (kn_dtype)x->dtype), all_axes(g));
}

static bool add_to(sweep *s, kn_uop x, kn_uop g) {
    if (!s->needs[x->id]) return true;
    g = summed_to(s->k, g, x);
    if (g && s->g[x->id]) g = ki_t_add(s->k, s->g[x->id], g);
    s->g[x->id] = g;
    return g != NULL;
}

/* ---- what grad.kr names ------------------------------------------------------------------------------------------ */

/* Axes that an expand of x to e has grown, as bits. */
bool ki_grown_axes(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    kn_uop x = v[0].node, e = v[1].node;
    uint32_t axes = 0;
    for (unsigned i = 0; i < ki_rank(e); i++) {
        ki_dim from = x->type->dim[i], to = e->type->dim[i];
        if (from.n == 1 && !from.sym && (to.n != 1 || to.sym)) axes |= UINT32_C(1) << i;
    }
    *out = (ki_val){.kind = KI_V_INT, .i = axes};
    return true;
}

bool ki_inverse_order(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)n;
    _Alignas(ki_ints) unsigned char room[sizeof(ki_ints) + KI_MAX_RANK * sizeof(int64_t)] = {0};
    ki_ints *r = (ki_ints *)room;
    r->n = v[0].ints->n;
    for (uint32_t i = 0; i < r->n; i++) r->v[v[0].ints->v[i]] = i;
    *out = (ki_val){.kind = KI_V_INTS, .ints = ki_intern(m->ir, r, sizeof *r + r->n * sizeof *r->v)};
    return out->ints != NULL;
}

/* Source i had place i of the leading axis. */
kn_uop ki_grad_stack(ki_match *m) {
    kn_uop u = m->root, g = m->grad;
    ki_shape at = {.n = ki_rank(u)}, size = ki_shape_like(u);
    size.d[0] = (ki_dim){1, NULL};
    for (uint32_t i = 0; i < u->nsrc; i++) {
        at.d[0].n = i;
        kn_uop part =
            ki_op3(m->ir, KN_SHRINK, g, ki_stack_dims(m->ir, at.d, at.n), ki_stack_dims(m->ir, size.d, size.n));
        m->out[i] = ki_op2(m->ir, KN_RESHAPE, part, ki_shape_of(m->ir, u->src[i]));
        if (!m->out[i]) return NULL;
    }
    return u;
}

/* A copy to a device goes back to the source's. */
kn_uop ki_grad_copy(ki_match *m) {
    kn_uop x = m->root->src[0];
    if (x->type->device == m->root->type->device) return m->out[0] = m->grad;
    ki_load to;
    memset(&to, 0, sizeof to);
    to.device = x->type->device;
    const void *arg = ki_intern(m->ir, &to, sizeof to);
    return m->out[0] = arg ? ki_make(m->ir, KN_LOAD, KN_VOID, &m->grad, 1, (kn_arg){.p = arg}, 0) : NULL;
}

/* The failure names the first call whose result has u in it. */
static void no_gradient(kn_ctx *k, kn_uop u) {
    uint8_t *has = ki_calloc(k->ir.n, 1);
    const struct kn_tensor_s *call = NULL;
    char at[256] = "";
    for (uint32_t id = u->id; has && id < k->ir.n; id++) {
        kn_uop v = k->ir.node[id];
        has[id] = v == u;
        for (uint32_t j = 0; v && j < v->nsrc; j++) has[id] |= has[v->src[j]->id];
    }
    for (const struct kn_tensor_s *t = k->tensors; has && t; t = t->next)
        if (t->u && t->loc.file && has[t->u->id]) call = t; /* the list ends with the oldest */
    if (call) snprintf(at, sizeof at, ", of the call at %.200s:%d,", call->loc.file, call->loc.line);
    ki_free(has);
    FAIL(KI_E_NO_GRADIENT, k->fn, ki_ops[u->op].name, at);
}

static bool pullback(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop small[8], *out = u->nsrc <= 8 ? small : ki_malloc(u->nsrc * sizeof *out);
    if (!out) return FAIL(KI_E_NOMEM);
    int found = ki_grad_rules(&k->ir, &ki_rules_grad, u, g, out, NULL);
    bool ok = found > 0;
    if (found == 0) no_gradient(k, u);
    for (uint32_t i = 0; i < u->nsrc && ok; i++) ok = !out[i] || add_to(s, u->src[i], out[i]);
    if (out != small) ki_free(out);
    return ok;
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

static bool ends_here(kn_uop u) {
    if (u->op == KN_FUNCTION) return false;
    return (u->op == KN_DETACH && u->nsrc == 1) || u->op == KN_AFTER || !ki_is_float((kn_dtype)u->dtype);
}

static void find_needs(sweep *s, kn_uop *order, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        kn_uop u = order[i];
        if (ends_here(u)) continue; /* unless wanted itself */
        uint32_t first = u->op == KN_FUNCTION,
                 end = u->op == KN_REMAT ? 1 : u->nsrc; /* a body is its own, waiting no use */
        for (uint32_t j = first; j < end && !s->needs[u->id]; j++) s->needs[u->id] = s->needs[u->src[j]->id];
    }
}

static bool grow(sweep *s) {
    uint32_t n = s->k->ir.n, had = s->room;
    kn_uop *g = ki_realloc(s->g, n, sizeof *g), *get = g ? ki_realloc(s->get, n, sizeof *get) : NULL;
    if (g) s->g = g;
    if (get) s->get = get;
    uint8_t *needs = get ? ki_realloc(s->needs, n, 1) : NULL;
    if (!needs) return ki_fail(&s->k->env, KI_E_NOMEM), false;
    s->needs = needs;
    if (n <= had) return true;
    memset(g + had, 0, (n - had) * sizeof *g);
    memset(get + had, 0, (n - had) * sizeof *get);
    memset(needs + had, 0, n - had);
    s->room = n;
    return true;
}

/* Takes order over. */
static bool push_frame(sweep *s, kn_uop *order, int64_t n) {
    kn_uop *kept = ki_malloc(2 * (size_t)n * sizeof *kept + 1);
    if (!kept || !grow(s) || !ki_array_grow(&s->frame, &s->cap, s->depth + 1, sizeof *s->frame))
        return ki_free(kept), ki_free(order), ki_fail(&s->k->env, KI_E_NOMEM), false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = order[i]->id;
        kept[i] = s->g[id], kept[n + i] = s->get[id];
        s->g[id] = s->get[id] = NULL;
    }
    s->frame[s->depth++] = (frame){order, kept, n, n};
    find_needs(s, order, n);
    return true;
}

static void pop_frame(sweep *s) {
    frame f = s->frame[--s->depth];
    for (int64_t i = 0; i < f.n && s->depth; i++)
        s->g[f.order[i]->id] = f.kept[i], s->get[f.order[i]->id] = f.kept[f.n + i];
    ki_free(f.order);
    ki_free(f.kept);
}

/* ---- what is computed again ----------------------------------------------------------------------------------- */

static kn_uop result(kn_uop tuple, int64_t i) {
    kn_uop v = tuple->src[i];
    return v->op == KN_REMAT && v->nsrc == 1 ? v->src[0] : v;
}

static int by_id(const void *a, const void *b) {
    uint32_t x = (*(const kn_uop *)a)->id, y = (*(const kn_uop *)b)->id;
    return (x > y) - (x < y);
}

/* What was made of args, which are REMATs, and these. */
static kn_uop *made_of(kn_ctx *k, kn_uop tuple, const kn_uop *args, uint32_t nargs, int64_t *count) {
    kn_uop *v = NULL;
    size_t n = 0, cap = 0;
    ki_map *seen = ki_map_take(&k->ir);
    bool ok = seen && ki_array_grow(&v, &cap, (size_t)tuple->nsrc + nargs + 1, sizeof *v);
    if (seen && !ok) ki_fail(&k->env, KI_E_NOMEM);
    for (uint32_t i = 0; i < nargs && ok; i++) /* nothing below them */
        if (!ki_map_get(seen, args[i])) ki_map_set(seen, args[i], args[i]), v[n++] = args[i];
    size_t at = n;
    for (uint32_t i = 0; i < tuple->nsrc && ok; i++) {
        kn_uop u = result(tuple, i);
        if (!ki_map_get(seen, u)) ki_map_set(seen, u, u), v[n++] = u;
    }
    for (; at < n && ok; at++) {
        kn_uop u = v[at];
        ok = ki_array_grow(&v, &cap, n + u->nsrc, sizeof *v) || (ki_fail(&k->env, KI_E_NOMEM), false);
        for (uint32_t j = u->op == KN_FUNCTION; j < u->nsrc && ok; j++)
            if (!ki_map_get(seen, u->src[j])) ki_map_set(seen, u->src[j], u->src[j]), v[n++] = u->src[j];
    }
    if (seen) ki_map_give(&k->ir, seen);
    if (!ok) return ki_free(v), NULL;
    qsort(v, n, sizeof *v, by_id);
    *count = (int64_t)n;
    return v;
}

/* All gradients of a function's results are there: it is applied again, to REMATs that wait for these, and the walk goes on in what
 * that makes. Nothing the function computed the first time is kept for it. */
static bool enter(sweep *s, kn_uop fn) {
    ki_ir *ir = &s->k->ir;
    uint32_t nin = fn->nsrc - 1, most = fn->src[0]->nsrc, n = 0;
    kn_uop *get = ki_malloc((2 * (size_t)most + nin + 1) * sizeof *get), *v = get ? get + most : NULL,
           *args = get ? v + most + 1 : NULL;
    bool ok = get || (ki_fail(&s->k->env, KI_E_NOMEM), false);
    for (kn_uop u = s->get[fn->id]; u && ok; u = s->get[u->id]) get[n] = u, v[++n] = s->g[u->id];
    for (uint32_t j = 0; j < nin && ok; j++) {
        v[0] = fn->src[j + 1];
        ok = (args[j] = v[0]->dtype == KN_IDX ? v[0] : ki_opn(ir, KN_REMAT, v, n + 1)) != NULL;
    }
    kn_uop tuple = ok ? ki_applied(ir, fn->src[0], args, nin) : NULL, *order;
    int64_t count;
    ok = tuple && (order = made_of(s->k, tuple, args, nin, &count)) && push_frame(s, order, count);
    for (uint32_t i = 0; i < n && ok; i++) ok = add_to(s, result(tuple, get[i]->arg.i), v[i + 1]);
    ki_free(get);
    return ok;
}

/* ---- the sweep --------------------------------------------------------------------------------------------- */

static bool visit(sweep *s, kn_uop u) {
    if (!s->needs[u->id]) return true;
    if (u->op == KN_FUNCTION) return !s->get[u->id] || enter(s, u);
    if (!s->g[u->id] || ends_here(u)) return true;
    bool below = false;
    for (uint32_t j = 0; j < u->nsrc; j++) below |= s->needs[u->src[j]->id];
    if (below && u->op == KN_DETACH)
        return add_to(s, u->src[1], s->g[u->id]); /* straight-through: no derivative, so no rule */
    if (below && u->op == KN_GETTUPLE) s->get[u->id] = s->get[u->src[0]->id], s->get[u->src[0]->id] = u;
    else if (below) return pullback(s, u, s->g[u->id]);
    return true;
}

/* !ok: only ends what has begun. */
static bool run(sweep *s, bool ok) {
    while (s->depth && ok) {
        frame *f = &s->frame[s->depth - 1];
        if (f->at) ok = visit(s, f->order[--f->at]);
        else pop_frame(s);
    }
    while (s->depth) pop_frame(s);
    return ok;
}

static bool sweep_back(kn_ctx *k, const kn_uop *y, const kn_uop *dy, size_t ny, const kn_uop *wrt, size_t n,
                       kn_uop *out) {
    kn_uop *root = ki_malloc((2 * ny + n) * sizeof *root), *order = NULL, *at = root ? root + 2 * ny : NULL;
    sweep s = {.k = k};
    bool ok = root || (ki_fail(&k->env, KI_E_NOMEM), false);
    int64_t count = 0;
    if (ok) {
        memcpy(root, y, ny * sizeof *y);
        memcpy(root + ny, dy, ny * sizeof *dy);
        memcpy(at, wrt, n * sizeof *wrt);
        ok = ki_inline_functions(&k->ir, root, 2 * ny + n, false) &&
             (count = ki_toposort(&k->ir, root, ny, &order)) >= 0;
    }
    if (ok && !grow(&s)) ki_free(order), ok = false;
    for (size_t i = 0; i < n && ok; i++) s.needs[at[i]->id] = 1;
    ok = ok && push_frame(&s, order, count);
    for (size_t i = 0; i < ny && ok; i++) ok = add_to(&s, root[i], root[ny + i]);
    ok = run(&s, ok);
    for (size_t i = 0; i < n && ok; i++) {
        kn_uop x = at[i];
        ki_shape shape = ki_shape_like(x);
        out[i] = s.g[x->id] ? s.g[x->id] : ki_t_full(k, &shape, ki_t_lit(k, x, 0));
        ok = out[i] != NULL;
    }
    ki_free(root);
    ki_free(s.frame);
    ki_free(s.g);
    ki_free(s.get);
    ki_free(s.needs);
    return ok;
}

bool ki_grad(kn_ctx *k, const kn_uop *y, const kn_uop *dy, size_t ny, const kn_uop *wrt, size_t n, kn_uop *out) {
    size_t nkey = 2 * ny + n, found;
    kn_uop *key = ki_malloc((nkey + 1) * sizeof *key);
    if (!key) return ki_fail(&k->env, KI_E_NOMEM), false;
    memcpy(key, y, ny * sizeof *y);
    memcpy(key + ny, dy, ny * sizeof *dy);
    memcpy(key + 2 * ny, wrt, n * sizeof *wrt);
    const kn_uop *known = ki_recall(k, KI_GRADIENT, ny, key, nkey, &found);
    bool ok = known || sweep_back(k, y, dy, ny, wrt, n, out);
    if (known) memcpy(out, known, n * sizeof *out);
    else if (ok) ki_recall_note(k, KI_GRADIENT, ny, key, nkey, out, n);
    ki_free(key);
    return ok;
}

/* ---- realised values --------------------------------------------------------------------------------------- */

/* Live tensors that are realised, and in the graph of the roots: their data, and what it was computed from. */
typedef struct history {
    kn_uop *now, *past;
    size_t n, cap;
} history;

static bool note(kn_ctx *k, history *h, const struct kn_tensor_s *t) {
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 16;
        kn_uop *a = ki_realloc(h->now, cap, sizeof *a), *b = a ? ki_realloc(h->past, cap, sizeof *b) : NULL;
        if (a) h->now = a;
        if (!b) return ki_fail(&k->env, KI_E_NOMEM), false;
        h->past = b;
        h->cap = cap;
    }
    h->now[h->n] = t->u;
    h->past[h->n++] = t->past;
    return true;
}

/* The roots with realised values taken back to their graphs. A past may hold data realised before it: again, until there
 * is none. */
static bool take_back(kn_ctx *k, kn_uop *root, size_t n, history *h) {
    const struct kn_tensor_s *realised = k->tensors;
    while (realised && !realised->past) realised = realised->next;
    while (realised) {
        size_t first = h->n;
        kn_uop *order;
        int64_t count = ki_toposort(&k->ir, root, n, &order);
        uint8_t *seen = count < 0 ? NULL : ki_calloc(k->ir.n, 1);
        bool ok = seen || (count >= 0 && (ki_fail(&k->env, KI_E_NOMEM), false));
        for (int64_t i = 0; i < count && ok; i++) seen[order[i]->id] = 1;
        for (struct kn_tensor_s *t = k->tensors; ok && t; t = t->next)
            if (t->u && t->past && seen[t->u->id]) seen[t->u->id] = 0, ok = note(k, h, t);
        ki_free(order);
        ki_free(seen);
        if (!ok || h->n == first) return ok;
        if (!ki_substitute_all(&k->ir, root, n, h->now + first, h->past + first, h->n - first)) return false;
    }
    return true;
}

/* ---- what is asked for ------------------------------------------------------------------------------------- */

typedef bool derive(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out);

static bool pulled(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    return ki_grad(k, &y, v, 1, wrt, n, out);
}

/* J v is the gradient, by g, of what J^T g makes of it: the rules are linear in g, so nothing of g is left. What a view's way
 * back goes back is that view again, and elementwise rules are their own transposes: the graph is a forward sweep's. */
static bool push(kn_ctx *k, const kn_uop *y, size_t ny, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop *g = ki_malloc(2 * (ny + n + 1) * sizeof *g), *back = g ? g + ny : NULL, *root = g ? back + n : NULL;
    bool ok = g || (ki_fail(&k->env, KI_E_NOMEM), false);
    if (ok) {
        memcpy(root, y, ny * sizeof *y);
        memcpy(root + ny, wrt, n * sizeof *wrt);
        ok = ki_inline_functions(&k->ir, root, ny + n, true); /* forward there is nothing to compute again */
    }
    for (size_t i = 0; i < ny && ok; i++) ok = (g[i] = ki_t_placeholder(k, root[i])) != NULL;
    ok = ok && ki_grad(k, root, g, ny, root + ny, n, back) && ki_grad(k, back, v, n, g, ny, out);
    ki_free(g);
    return ok;
}

static bool pushed(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    return push(k, &y, 1, v, wrt, n, out);
}

/* H v, forward over reverse: of attention it keeps a fifth less in memory than the gradient of (gradient, v). */
static bool curved(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    ki_shape s = ki_shape_like(y);
    kn_uop one = ki_t_full(k, &s, ki_t_lit(k, y, 1)), *g = ki_malloc((n + 1) * sizeof *g);
    if (!g) ki_fail(&k->env, KI_E_NOMEM);
    bool ok = one && g && ki_grad(k, &y, &one, 1, wrt, n, g) && push(k, g, n, v, wrt, n, out);
    ki_free(g);
    return ok;
}

/* ---- whole matrices of derivatives ------------------------------------------------------------------------ */

/* As many values of like's shape as it has elements: in each another element is 1, the others 0. */
static kn_uop units(kn_ctx *k, kn_uop like) {
    int64_t n = (int64_t)like->type->numel;
    ki_shape s = {.n = 1, .d = {{n, NULL}}};
    kn_uop i = ki_t_iota(k, n, KN_I64), is = i ? ki_t_eq(k, RESHAPE(i, n, 1), RESHAPE(i, 1, n)) : NULL;
    for (unsigned a = 0; a < ki_rank(like) && s.n < KI_MAX_RANK; a++) s.d[s.n++] = like->type->dim[a];
    return is ? ki_t_reshape_to(k, ki_t_cast(k, is, (kn_dtype)like->dtype), &s) : NULL;
}

/* Of y by x, in y's axes and then x's: all rows at once backward, or all columns forward where there are fewer of these. */
static kn_uop matrix(kn_ctx *k, kn_uop y, kn_uop x) {
    if (!ki_shape_known(k, y) || !ki_shape_known(k, x)) return NULL;
    int64_t rows = (int64_t)y->type->numel, columns = (int64_t)x->type->numel;
    bool forward = columns < rows;
    ki_shape shape = ki_shape_like(y), s = ki_shape_like(x);
    if (shape.n + s.n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    for (unsigned i = 0; i < s.n; i++) shape.d[shape.n++] = s.d[i];
    if (!rows || !columns) return ki_t_full(k, &shape, ki_t_lit(k, y, 0));
    kn_uop g = ki_t_placeholder(k, y), e = units(k, forward ? x : y), v = g, all = NULL;
    bool ok = g && e && ki_grad(k, &y, &g, 1, &x, 1, &all);
    if (ok && forward) {
        kn_uop back = all;
        ok = (v = ki_t_placeholder(k, x)) && ki_grad(k, &back, &v, 1, &g, 1, &all);
    }
    ok = ok && ki_batched(k, &all, 1, &v, &e, 1, ki_index(&k->ir, forward ? columns : rows));
    if (ok && forward) all = ki_t_swap(k, RESHAPE(all, columns, rows), 0, 1);
    return ok && all ? ki_t_reshape_to(k, all, &shape) : NULL;
}

static bool whole(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop root[2] = {y, wrt[0]};
    (void)v, (void)n;
    return ki_inline_functions(&k->ir, root, 2, true) && (*out = matrix(k, root[0], root[1])) != NULL;
}

static bool whole_twice(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop root[2];
    (void)n;
    if (!ki_grad(k, &y, v, 1, wrt, 1, &root[0])) return false;
    root[1] = wrt[0];
    return ki_inline_functions(&k->ir, root, 2, true) && (*out = matrix(k, root[0], root[1])) != NULL;
}

/* One of these, of y and wrt taken back to where they come from. */
static bool through_data(kn_ctx *k, derive *f, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out,
                         size_t nout) {
    history h = {0};
    kn_uop *root = ki_malloc((n + 1) * sizeof *root);
    bool ok = root || (ki_fail(&k->env, KI_E_NOMEM), false);
    if (ok) {
        root[0] = y;
        memcpy(root + 1, wrt, n * sizeof *wrt);
        ok = take_back(k, root, n + 1, &h) && f(k, root[0], v, root + 1, n, out);
        /* What is computed already is not computed again. */
        ok = ok && (!h.n || ki_substitute_all(&k->ir, out, nout, h.past, h.now, h.n));
    }
    ki_free(root);
    ki_free(h.now);
    ki_free(h.past);
    return ok;
}

/* ---- public ------------------------------------------------------------------------------------------------ */

static kn_status all_bad(kn_tensor bad, kn_tensor *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

/* Of a call on y without a list that it needs. */
static kn_status not_given(const char *fn, kn_tensor y, const char *what, kn_tensor *out, size_t nout) {
    kn_ctx *k;
    kn_tensor bad = ki_enter(&k, fn, &y, 1, 0);
    if (!bad && k) ki_given(k, fn, what, NULL), bad = ki_handle(k, NULL);
    return all_bad(bad, out, out ? nout : 0);
}

static bool has_derivative(kn_ctx *k, const char *what, kn_tensor t) {
    return ki_is_float((kn_dtype)t->u->dtype) || FAIL(KI_E_GRAD_DTYPE, k->fn, what, ki_dtypes[t->u->dtype].name);
}

/* The given vector v for t, of its shape and in its dtype; ones where none is given. */
static kn_uop given(kn_ctx *k, kn_tensor v, kn_tensor t) {
    char a[128], b[128];
    ki_shape s = ki_shape_like(t->u);
    if (!v) return ki_t_full(k, &s, ki_t_lit(k, t->u, 1));
    if (!ki_same_shape(v->u, t->u))
        return FAIL(KI_E_GRAD_SHAPE, k->fn, ki_shape_text(v->u->type, a, sizeof a),
                    ki_shape_text(t->u->type, b, sizeof b));
    return ki_t_cast(k, v->u, (kn_dtype)t->u->dtype);
}

/* along: the vectors are of wrt, else one is of y. */
static bool checked(kn_ctx *k, derive *f, bool along, kn_tensor y, const kn_tensor *v, const kn_tensor *wrt, size_t n,
                    kn_uop *out, size_t nout) {
    kn_uop *u = ki_malloc((2 * n + 1) * sizeof *u), *x = u ? u + n + 1 : NULL;
    bool ok = u || (ki_fail(&k->env, KI_E_NOMEM), false);
    if (ok && y->cut) ok = FAIL(KI_E_GRAD_CUT);
    ok = ok && has_derivative(k, "what is differentiated", y);
    for (size_t i = 0; i < n && ok; i++)
        ok = has_derivative(k, "a tensor to differentiate by", wrt[i]) && (x[i] = wrt[i]->u);
    for (size_t i = 0; i < (along ? n : 1) && ok; i++) ok = (u[i] = given(k, v[i], along ? wrt[i] : y)) != NULL;
    ok = ok && through_data(k, f, y->u, u, x, n, out, nout);
    ki_free(u);
    return ok;
}

static kn_status differentiate(const char *fn, derive *f, bool along, kn_tensor y, const kn_tensor *v,
                               const kn_tensor *wrt, size_t n, kn_tensor *out, size_t nout) {
    kn_ctx *k = NULL;
    size_t nv = along ? n : 1;
    const char *missing = n && !wrt ? "wrt" : nv && !v ? "v" : nout && !out ? "out" : NULL;
    if (missing) return not_given(fn, y, missing, out, nout);
    kn_tensor *all = ki_malloc((n + nv + 1) * sizeof *all), bad = NULL;
    if (all) {
        all[0] = y;
        memcpy(all + 1, v, nv * sizeof *v);
        memcpy(all + 1 + nv, wrt, n * sizeof *wrt);
        bad = ki_enter(&k, fn, all, n + nv + 1, along ? 0 : 2);
    } else if (y) {
        ki_fail(&y->k->env, KI_E_NOMEM);
        bad = ki_handle(y->k, NULL);
    }
    ki_free(all);
    if (bad || !k) return all_bad(bad, out, nout);
    kn_uop *u = ki_malloc((nout + 1) * sizeof *u);
    if (!u) ki_fail(&k->env, KI_E_NOMEM);
    bool ok = u && checked(k, f, along, y, v, wrt, n, u, nout);
    kn_status status = KN_OK;
    if (!ok) status = all_bad(ki_handle(k, NULL), out, nout);
    for (size_t i = 0; i < nout && ok; i++) out[i] = ki_handle(k, u[i]);
    ki_free(u);
    return status;
}

kn_status kn_vjp(kn_tensor y, kn_tensor v, const kn_tensor *wrt, size_t n, kn_tensor *out) {
    return differentiate("vjp", pulled, false, y, &v, wrt, n, out, n);
}
kn_status kn_grad(kn_tensor loss, const kn_tensor *wrt, size_t n, kn_tensor *out) {
    return differentiate("grad", pulled, false, loss, (const kn_tensor[]){NULL}, wrt, n, out, n);
}
kn_tensor kn_grad1(kn_tensor loss, kn_tensor wrt) {
    kn_tensor g = NULL;
    kn_grad(loss, &wrt, 1, &g);
    return g;
}
kn_tensor kn_jvp(kn_tensor y, const kn_tensor *wrt, const kn_tensor *v, size_t n) {
    kn_tensor t = NULL;
    differentiate("jvp", pushed, true, y, v, wrt, n, &t, 1);
    return t;
}
kn_status kn_hvp(kn_tensor loss, const kn_tensor *wrt, const kn_tensor *v, size_t n, kn_tensor *out) {
    return differentiate("hvp", curved, true, loss, v, wrt, n, out, n);
}
kn_tensor kn_jacobian(kn_tensor y, kn_tensor x) {
    kn_tensor t = NULL;
    differentiate("jacobian", whole, false, y, (const kn_tensor[]){NULL}, &x, 1, &t, 1);
    return t;
}
kn_tensor kn_hessian(kn_tensor loss, kn_tensor x) {
    kn_tensor t = NULL;
    differentiate("hessian", whole_twice, false, loss, (const kn_tensor[]){NULL}, &x, 1, &t, 1);
    return t;
}
