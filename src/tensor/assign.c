/* assign.c: storage that can be written, and writing it.
 *
 * The value of a place is its base: the BUFFER, or after assigns AFTER(base before, STORE(view of base before, value)).
 * Every live tensor that is a view of a place is a movement chain on its base; an assign moves all of them to the new
 * base, so views alias as in numpy. Tensors computed from the old base keep it, and are right when they are realised
 * with or before the assign; ki_plan_done marks the others. */
#include "tensor/build.h"

#include <string.h>

static bool is_view(kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_PERMUTE:
    case KN_FLIP:
    case KN_RESHAPE:
    case KN_SHRINK: return true;
    default: return false;
    }
}

kn_uop ki_view_base(kn_uop u) {
    while (u && is_view(u)) u = u->src[0];
    if (!u) return NULL;
    if (u->op == KN_BUFFER) return u->arg.buffer->addrspace == KN_GLOBAL ? u : NULL;
    return u->op == KN_AFTER && u->nsrc == 2 && u->src[1]->op == KN_STORE ? u : NULL;
}

kn_uop ki_assigned_buffer(kn_uop after) {
    while (after && after->op == KN_AFTER) after = after->src[0];
    return after && after->op == KN_BUFFER ? after : NULL;
}

/* ---- the views of a base ---------------------------------------------------------------------------------------- */

bool ki_views_room(kn_ctx *k, uint32_t id) {
    if (id < k->nview) return true;
    uint32_t n = id + id / 2 + 64;
    struct kn_tensor_s **p = ki_realloc(k->view, n, sizeof *p);
    if (!p) return ki_fail(&k->env, KI_E_NOMEM), false;
    memset(p + k->nview, 0, (n - k->nview) * sizeof *p);
    k->view = p;
    k->nview = n;
    return true;
}

/* The head of the list that t stands in; NULL: in none. */
static struct kn_tensor_s **list_of(kn_ctx *k, const struct kn_tensor_s *t) {
    kn_uop base = ki_view_base(t->u);
    return base ? &k->view[base->id] : t->u ? &k->open : NULL;
}

void ki_views_add(kn_ctx *k, struct kn_tensor_s *t) {
    struct kn_tensor_s **list = list_of(k, t);
    t->view_prev = t->view_next = NULL;
    if (!list) return;
    if (list != &k->open && ki_view_base(t->u)->op == KN_AFTER) k->settled = false;
    if ((t->view_next = *list)) t->view_next->view_prev = t;
    *list = t;
}

void ki_views_drop(kn_ctx *k, struct kn_tensor_s *t) {
    struct kn_tensor_s **list = list_of(k, t);
    if (!list) return;
    if (t->view_prev) t->view_prev->view_next = t->view_next;
    else *list = t->view_next;
    if (t->view_next) t->view_next->view_prev = t->view_prev;
}

void ki_views_none(kn_ctx *k) {
    struct kn_tensor_s **list;
    for (struct kn_tensor_s *t = k->tensors; t; t = t->next)
        if ((list = list_of(k, t))) *list = NULL;
}

void ki_views_again(kn_ctx *k) {
    for (struct kn_tensor_s *t = k->tensors; t; t = t->next) ki_views_add(k, t);
}

/* ---- assigns ---------------------------------------------------------------------------------------------------- */

/* The view chain of u on another base. */
static kn_uop rebased(kn_ctx *k, kn_uop u, kn_uop from, kn_uop to) {
    kn_uop chain[64];
    unsigned n = 0;
    while (u != from) {
        if (n == 64) return ki_substitute(&k->ir, u, &from, &to, 1);
        chain[n++] = u;
        u = u->src[0];
    }
    u = to;
    while (n-- && u) {
        kn_uop src[3] = {u, chain[n]->nsrc > 1 ? chain[n]->src[1] : NULL, chain[n]->nsrc > 2 ? chain[n]->src[2] : NULL};
        u = ki_with_src(&k->ir, chain[n], src);
    }
    return u;
}

static kn_uop write_to(kn_ctx *k, kn_uop base, kn_uop view, kn_uop value) {
    kn_uop store = value ? ki_op2(&k->ir, KN_STORE, view, value) : NULL;
    return store ? ki_op2(&k->ir, KN_AFTER, base, store) : NULL;
}

kn_tensor kn_param(kn_tensor x) {
    ENTER("param", x);
    kn_uop v = x->u;
    if (!ki_shape_known(k, v)) return ki_handle(k, NULL);
    if (v->dtype == KN_IDX)
        return FAIL(KI_E_FN_DTYPE, "param", "index", "a dtype that data can have"), ki_handle(k, NULL);
    ki_shape s = ki_shape_like(v);
    kn_uop buffer = ki_buffer_new(k, ki_numel(v), (kn_dtype)v->dtype, k->device);
    kn_uop base = !buffer || ki_numel(v) == 0 ? buffer : write_to(k, buffer, ki_t_reshape_to(k, buffer, &s), v);
    return ki_handle(k, ki_t_reshape_to(k, base, &s));
}

size_t kn_pending(kn_ctx *k, size_t n, kn_tensor *out) {
    size_t found = 0;
    if (!k || k->settled) return 0;
    for (uint32_t id = 1; id < k->nview && id < k->ir.n; id++) {
        if (!k->view[id] || k->ir.node[id]->op != KN_AFTER) continue;
        if (out && found < n) out[found] = k->view[id];
        found++;
    }
    k->settled = !found;
    return found;
}

/* ---- through any movement --------------------------------------------------------------------------------------- */

/* A slice in steps may reach over the end (PAD), and windows and broadcasts show a place more than once (EXPAND): these are
 * no places that a STORE can take. The value then goes the way back: each movement undone, beside a mask of what was met;
 * of several that meet in one place the last wins. The base is written whole, where the mask says so with the value. */
typedef struct way_back {
    kn_uop value, mask;
} way_back;

/* What the movement u of a makes of a, undone on v, of u's shape. */
static kn_uop undone(kn_ctx *k, kn_uop u, kn_uop a, kn_uop v) {
    ki_shape s = ki_shape_like(a);
    int64_t order[KI_MAX_RANK];
    if (!v) return NULL;
    switch ((kn_op)u->op) {
    case KN_RESHAPE: return ki_t_reshape_to(k, v, &s);
    case KN_PERMUTE:
        for (unsigned i = 0; i < s.n; i++) order[u->arg.ints->v[i]] = i;
        return ki_permute(&k->ir, v, order, s.n);
    case KN_FLIP: return ki_flip(&k->ir, v, u->arg.ints->v, u->arg.ints->n);
    case KN_SHRINK: return ki_op3(&k->ir, KN_PAD, v, u->src[1], ki_stack_dims(&k->ir, s.d, s.n));
    case KN_PAD: return ki_op3(&k->ir, KN_SHRINK, v, u->src[1], ki_stack_dims(&k->ir, s.d, s.n));
    default: return NULL;
    }
}

/* Along axes that u has grown from a's 1: the last element that the mask has. */
static bool undo_expand(kn_ctx *k, kn_uop u, kn_uop a, way_back *w) {
    for (unsigned i = 0; i < ki_rank(u); i++) {
        int64_t n = ki_dim_n(u, i);
        if (ki_dim_n(a, i) == n) continue;
        kn_dtype t = ki_index_dtype(KN_I32, n);
        uint32_t axis = UINT32_C(1) << i;
        kn_uop at = ki_t_iota_axis(k, w->mask, i, t);
        kn_uop last = ki_t_reduce(k, ki_t_where(k, w->mask, at, ki_t_const(k, t, -1)), KN_MAX, axis);
        kn_uop none = ki_t_lit(k, w->value, ki_is_float((kn_dtype)w->value->dtype) ? -0.0 : 0);
        w->value = ki_t_reduce(k, ki_t_where(k, ki_t_eq(k, at, last), w->value, none), KN_ADD, axis);
        w->mask = last ? ki_t_ge(k, last, ki_t_const(k, t, 0)) : NULL;
        if (!w->value || !w->mask) return false;
    }
    return true;
}

/* The base that `view` shows some of by movements, and in *out its elements with value's where it is shown. */
static kn_uop through_movements(kn_ctx *k, kn_uop view, kn_uop value, kn_uop *out) {
    ki_shape s = ki_shape_like(view);
    kn_uop base = view;
    while (!ki_view_base(base)) {
        bool moves = is_view(base) || base->op == KN_PAD || base->op == KN_EXPAND;
        if (!moves || base->type->symbolic) return NULL;
        base = base->src[0];
    }
    way_back w = {value, ki_t_full(k, &s, ki_t_const(k, KN_BOOL, 1))};
    for (kn_uop u = view; u != base && w.value && w.mask; u = u->src[0]) {
        kn_uop a = u->src[0];
        if (u->op == KN_EXPAND) {
            if (!undo_expand(k, u, a, &w)) return NULL;
            continue;
        }
        w.value = undone(k, u, a, w.value);
        w.mask = undone(k, u, a, w.mask);
    }
    *out = ki_t_where(k, w.mask, w.value, base);
    return base;
}

static kn_uop assign(kn_ctx *k, kn_tensor target, kn_uop value, bool weak) {
    kn_uop view = target->u, base = ki_view_base(view), shown = NULL;
    if (!weak && value->dtype != view->dtype)
        return FAIL(KI_E_ASSIGN_DTYPE, ki_dtypes[view->dtype].name, ki_dtypes[value->dtype].name);
    ki_shape s = ki_shape_like(view);
    value = ki_t_broadcast_to(k, ki_t_cast(k, value, (kn_dtype)view->dtype), &s);
    if (!value) return NULL;
    if (!base) {
        shown = through_movements(k, view, value, &value);
        if (!shown) return k->env.err == KI_E_NONE ? FAIL(KI_E_ASSIGN_PLACE, ki_ops[view->op].name) : NULL;
        base = ki_view_base(shown);
    }
    if (ki_numel(view) == 0) return view; /* nothing to write */
    kn_uop next = write_to(k, base, shown ? shown : view, value);
    if (!next || !ki_views_room(k, next->id)) return NULL;
    for (struct kn_tensor_s *t = k->view[base->id]; t; t = k->view[base->id]) {
        kn_uop u = rebased(k, t->u, base, next);
        if (!u) return NULL;
        ki_views_drop(k, t);
        t->u = u;
        ki_views_add(k, t);
    }
    if (shown) target->u = rebased(k, view, base, next); /* in no list of views */
    return target->u;
}

kn_tensor kn_assign(kn_tensor target, kn_tensor value) {
    ENTER("assign", target, value);
    kn_uop u, v;
    ki_meet(k, target, value, &u, &v);
    return assign(k, target, v, value->weak) ? target : ki_handle(k, NULL);
}
