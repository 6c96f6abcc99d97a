/* grad.c: the reverse sweep. Graph to graph, so gradients of gradients work; iterative: nodes in descending id order
 * have all their users behind them.
 *
 * What the gradient of a node gives each source is a rule of grad.kr. A contribution of another shape than its source
 * (a () operand, an axis of 1 that broadcast) is summed to it in one place, add_to. DETACH and integer or bool values
 * end the sweep; an assigned place is a leaf. */
#include "tensor/build.h"

#include "rules/rules.h"

#include "rules.h"

#include <string.h>

typedef struct sweep {
    kn_ctx *k;
    kn_uop *g;      /* by id: gradient so far */
    uint8_t *needs; /* by id: some wanted node is below */
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

static bool pullback(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop small[8], *out = u->nsrc <= 8 ? small : ki_malloc(u->nsrc * sizeof *out);
    if (!out) return FAIL(KI_E_NOMEM);
    int found = ki_grad_rules(&k->ir, &ki_rules_grad, u, g, out, NULL);
    bool ok = found > 0;
    if (found == 0) FAIL(KI_E_NO_GRADIENT, ki_ops[u->op].name);
    for (uint32_t i = 0; i < u->nsrc && ok; i++) ok = !out[i] || add_to(s, u->src[i], out[i]);
    if (out != small) ki_free(out);
    return ok;
}

/* ---- the sweep --------------------------------------------------------------------------------------------- */

static bool ends_here(kn_uop u) { return u->op == KN_DETACH || u->op == KN_AFTER || !ki_is_float((kn_dtype)u->dtype); }

static void find_needs(sweep *s, kn_uop *order, int64_t count, const kn_uop *wrt, size_t n) {
    for (size_t i = 0; i < n; i++) s->needs[wrt[i]->id] = 1;
    for (int64_t i = 0; i < count; i++) {
        kn_uop u = order[i];
        if (ends_here(u)) continue; /* unless wanted itself */
        for (uint32_t j = 0; j < u->nsrc && !s->needs[u->id]; j++)
            s->needs[u->id] = s->needs[u->src[j]->id] && ki_is_float((kn_dtype)u->src[j]->dtype);
    }
}

static bool run(sweep *s, kn_uop *order, int64_t count) {
    for (int64_t i = count; i-- > 0;) {
        kn_uop u = order[i];
        if (!s->g[u->id] || !s->needs[u->id] || ends_here(u)) continue;
        bool below = false;
        for (uint32_t j = 0; j < u->nsrc; j++) below |= s->needs[u->src[j]->id];
        if (below && !pullback(s, u, s->g[u->id])) return false;
    }
    return true;
}

bool ki_grad(kn_ctx *k, const kn_uop *y, const kn_uop *dy, size_t ny, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop *root = ki_malloc((2 * ny + n) * sizeof *root), *order = NULL, *at = root ? root + 2 * ny : NULL;
    sweep s = {.k = k};
    bool ok = root || (ki_fail(&k->env, KI_E_NOMEM), false);
    int64_t count = 0;
    if (ok) {
        memcpy(root, y, ny * sizeof *y);
        memcpy(root + ny, dy, ny * sizeof *dy);
        memcpy(at, wrt, n * sizeof *wrt);
        ok = ki_inline_functions(k, root, 2 * ny + n) && (count = ki_toposort(&k->ir, root, ny, &order)) >= 0;
    }
    if (ok) {
        s.g = ki_calloc(k->ir.n, sizeof *s.g);
        s.needs = ki_calloc(k->ir.n, 1);
        ok = (s.g && s.needs) || (ki_fail(&k->env, KI_E_NOMEM), false);
    }
    if (ok) {
        find_needs(&s, order, count, at, n);
        for (size_t i = 0; i < ny && ok; i++) ok = add_to(&s, root[i], root[ny + i]);
        ok = ok && run(&s, order, count);
    }
    for (size_t i = 0; i < n && ok; i++) {
        kn_uop x = at[i];
        ki_shape shape = ki_shape_like(x);
        out[i] = s.g[x->id] ? s.g[x->id] : ki_t_full(k, &shape, ki_t_lit(k, x, 0));
        ok = out[i] != NULL;
    }
    ki_free(root);
    ki_free(order);
    ki_free(s.g);
    ki_free(s.needs);
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
    for (;;) {
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
}

/* ---- what is asked for ------------------------------------------------------------------------------------- */

typedef bool derive(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out);

static bool pulled(kn_ctx *k, kn_uop y, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    return ki_grad(k, &y, v, 1, wrt, n, out);
}

/* J v is the gradient, by g, of what J^T g makes of it: the rules are linear in g, so nothing of g is left. What a view's way
 * back goes back is that view again, and elementwise rules are their own transposes: the graph is a forward sweep's. */
static bool push(kn_ctx *k, const kn_uop *y, size_t ny, const kn_uop *v, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop *g = ki_malloc((ny + n + 1) * sizeof *g), *back = g ? g + ny : NULL;
    bool ok = g || (ki_fail(&k->env, KI_E_NOMEM), false);
    for (size_t i = 0; i < ny && ok; i++) ok = (g[i] = ki_t_placeholder(k, y[i])) != NULL;
    ok = ok && ki_grad(k, y, g, ny, wrt, n, back) && ki_grad(k, back, v, n, g, ny, out);
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
