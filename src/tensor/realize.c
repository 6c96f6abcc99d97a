/* realize.c: from wanted tensors to one program, and from its results back to every live tensor. */
#define KN_NO_LOC
#include "tensor/context.h"

#include <stdio.h>
#include <string.h>

#include <koine/tensor.h>

static bool is_assignment(kn_uop u) { return u->op == KN_AFTER && u->nsrc == 2 && u->src[1]->op == KN_STORE; }

/* Nothing to compute: data, or what an assignment of the same plan leaves in a buffer. */
static bool is_place(kn_uop u) {
    while (u->op == KN_RESHAPE) u = u->src[0];
    return is_assignment(u) || (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL);
}

/* The function all of these are results of, where its arguments are buffers, each another: nothing is assigned below it. */
static kn_uop called(kn_ctx *k, const kn_uop *want, size_t n) {
    kn_uop f = n && want[0]->op == KN_GETTUPLE ? want[0]->src[0] : NULL;
    if (!f || f->op != KN_FUNCTION || f->src[0]->op != KN_TUPLE) return NULL;
    for (size_t i = 1; i < n; i++)
        if (want[i]->op != KN_GETTUPLE || want[i]->src[0] != f) return NULL;
    ki_map *met = ki_map_take(&k->ir);
    bool ok = met != NULL;
    for (uint32_t j = 1; j < f->nsrc && ok; j++) {
        kn_uop b = ki_buffer_under(f->src[j]);
        ok = b && !ki_map_get(met, b);
        if (ok) ki_map_set(met, b, b);
    }
    ki_map_give(&k->ir, met);
    return ok ? f : NULL;
}

static bool collect_roots(kn_ctx *k, kn_uop *want, size_t n, ki_plan *plan) {
    kn_uop *order = NULL;
    plan->function = called(k, want, n);
    int64_t count = plan->function ? 0 : ki_toposort(&k->ir, want, n, &order);
    if (count < 0) return false;
    size_t assigns = 0;
    for (int64_t i = 0; i < count; i++) assigns += is_assignment(order[i]);
    plan->root = ki_malloc((assigns + n + 1) * sizeof *plan->root);
    ki_map *seen = ki_map_take(&k->ir);
    bool ok = plan->root && seen;
    if (!ok) ki_fail(&k->env, KI_E_NOMEM);
    for (int64_t i = 0; i < count && ok; i++)
        if (is_assignment(order[i])) ki_map_set(seen, plan->root[plan->n++] = order[i], order[i]);
    plan->nassign = plan->n;
    for (size_t i = 0; i < n && ok; i++)
        if (!ki_map_get(seen, want[i]) && !is_place(want[i]))
            ki_map_set(seen, plan->root[plan->n++] = want[i], want[i]);
    ki_free(order);
    ki_map_give(&k->ir, seen);
    return ok;
}

bool ki_plan_program(kn_ctx *k, ki_plan *plan) {
    ki_program *p = &plan->program;
    p->ir = &k->ir;
    p->stage = KI_S_TENSOR;
    p->root = ki_opn(&k->ir, KN_SINK, plan->root, (uint32_t)plan->n);
    if (!p->root) return false;
    for (size_t i = 0; i < plan->n; i++) {
        char name[24];
        int len = snprintf(name, sizeof name, "%zu", i);
        if (!ki_program_port(p, true, name, (size_t)len, plan->root[i])) return false;
    }
    return true;
}

/* By id. reads: the node needs a buffer that has been written, as it was before. stale: and this plan has not computed it. */
typedef struct overwritten {
    uint8_t *reads, *stale;
} overwritten;

static bool open_overwritten(kn_ctx *k, overwritten *o) {
    *o = (overwritten){ki_calloc(k->ir.n, 1), ki_calloc(k->ir.n, 1)};
    return (o->reads && o->stale) || (ki_fail(&k->env, KI_E_NOMEM), false);
}

static void close_overwritten(overwritten *o) {
    ki_free(o->reads);
    ki_free(o->stale);
}

/* To all nodes that read what is marked. done, by id, may be NULL: 2: an assign of the plan, 1: another root of it. */
static void spread(kn_ctx *k, const uint8_t *done, overwritten *o) {
    for (uint32_t id = 1; id < k->ir.n; id++) {
        kn_uop u = k->ir.node[id];
        if ((done && done[id] == 2) || u->op == KN_BUFFER) continue;
        for (uint32_t s = 0; s < u->nsrc; s++) {
            o->reads[id] |= o->reads[u->src[s]->id];
            if (!done || !done[id]) o->stale[id] |= o->stale[u->src[s]->id];
        }
    }
}

static bool find_overwritten(kn_ctx *k, const ki_plan *plan, overwritten *o) {
    uint8_t *done = ki_calloc(k->ir.n, 1);
    if (!open_overwritten(k, o) || !done) return ki_free(done), ki_fail(&k->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < plan->n; i++) done[plan->root[i]->id] = i < plan->nassign ? 2 : 1;
    for (size_t i = 0; i < plan->nassign; i++) { /* of several assigns to a place the last one stands */
        uint32_t buffer = ki_assigned_buffer(plan->root[i])->id, before = plan->root[i]->src[0]->id;
        o->reads[buffer] = o->stale[buffer] = o->reads[before] = o->stale[before] = 1;
    }
    spread(k, done, o);
    ki_free(done);
    return true;
}

/* How many of the bases of these views are to be assigned, are not by the plan, and read what it overwrites (or all): those come first. */
static size_t spoilt(kn_ctx *k, const ki_plan *plan, bool all, kn_tensor *view, size_t n, bool *ok) {
    ki_map *planned = ki_map_take(&k->ir);
    overwritten o = {NULL, NULL};
    size_t other = 0, found = 0;
    *ok = planned != NULL;
    for (size_t i = 0; i < plan->nassign && *ok; i++) ki_map_set(planned, plan->root[i], plan->root[i]);
    for (size_t i = 0; i < n && *ok; i++)
        if (!ki_map_get(planned, ki_view_base(view[i]->u))) view[other++] = view[i];
    ki_map_give(&k->ir, planned);
    if (!*ok || !other || all) return *ok ? other : 0;
    *ok = find_overwritten(k, plan, &o);
    for (size_t i = 0; i < other && *ok; i++)
        if (o.stale[ki_view_base(view[i]->u)->id]) view[found++] = view[i];
    close_overwritten(&o);
    return found;
}

#define LINKS 8 /* each looks at the whole graph */

/* The plan with what else is to be assigned and reads, as it was, what the plan overwrites; with all that is to be where that is a long chain. */
static bool add_spoilt(kn_ctx *k, kn_uop **want, size_t n, ki_plan *plan) {
    size_t pending = kn_pending(k, 0, NULL), found, links = 0;
    kn_tensor *view = pending ? ki_malloc(pending * sizeof *view) : NULL;
    bool ok = view != NULL;
    if (!pending) return true;
    do {
        found = ok ? spoilt(k, plan, ++links > LINKS, view, kn_pending(k, pending, view), &ok) : 0;
        kn_uop *more = found ? ki_realloc(*want, n + found, sizeof *more) : NULL;
        ok = ok && (!found || more);
        if (!ok || !found) break;
        *want = more;
        for (size_t i = 0; i < found; i++) more[n++] = ki_view_base(view[i]->u);
        ki_free(plan->root);
        *plan = (ki_plan){0};
        ok = collect_roots(k, *want, n, plan);
    } while (ok);
    ki_free(view);
    return ok || (ki_fail(&k->env, KI_E_NOMEM), false);
}

bool ki_plan_open(kn_ctx *k, const kn_tensor *t, size_t n, ki_plan *plan) {
    *plan = (ki_plan){0};
    kn_uop *want = ki_malloc((n ? n : 1) * sizeof *want);
    if (!want) return ki_fail(&k->env, KI_E_NOMEM), false;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        if (!t[i]) ki_fail(&k->env, KI_E_TENSOR_NULL, "realize", (unsigned)i), ok = false;
        else if (t[i]->k != k) ki_fail(&k->env, KI_E_TENSOR_CONTEXT, "realize"), ok = false;
        else ok = ki_usable(t[i], "realize");
        if (ok) want[i] = t[i]->u;
    }
    ok = ok && collect_roots(k, want, n, plan) && (!plan->nassign || add_spoilt(k, &want, n, plan));
    ki_free(want);
    if (!ok) ki_plan_close(plan);
    return ok;
}

/* ---- afterwards -------------------------------------------------------------------------------------------- */

/* Tensors, and a node for each. */
typedef struct nodes {
    struct kn_tensor_s **t;
    kn_uop *u;
    size_t n, tcap, ucap;
} nodes;

static bool add_node(kn_ctx *k, nodes *v, struct kn_tensor_s *t, kn_uop u) {
    if (!ki_array_grow(&v->t, &v->tcap, v->n + 1, sizeof(struct kn_tensor_s *)) ||
        !ki_array_grow(&v->u, &v->ucap, v->n + 1, sizeof *v->u))
        return ki_fail(&k->env, KI_E_NOMEM), false;
    v->t[v->n] = t;
    v->u[v->n++] = u;
    return true;
}

struct ki_changes {
    overwritten o;  /* none, where nothing is assigned */
    uint32_t from;  /* the least id of a root */
    uint8_t *value; /* by id from there on: a root that is no assign */
    nodes shown;    /* the tensors that may read a root, and what they will show; */
    nodes past;     /* all that are to remember what they were computed from, and that */
};

static void changes_free(struct ki_changes *a) {
    if (!a) return;
    close_overwritten(&a->o);
    ki_free(a->value);
    ki_free(a->shown.t), ki_free(a->shown.u);
    ki_free(a->past.t), ki_free(a->past.u);
    ki_free(a);
}

void ki_plan_close(ki_plan *plan) {
    if (plan->program.ir) ki_program_free(&plan->program);
    ki_free(plan->root);
    changes_free(plan->changes);
    *plan = (ki_plan){0};
}

static bool is_stale(const overwritten *o, kn_uop u) {
    if (!o->stale || !o->stale[u->id]) return false;
    kn_uop base = ki_view_base(u);
    return !base || (base->op != KN_BUFFER && o->stale[base->id]); /* any other view shows the new value */
}

static void mark_stale(kn_ctx *k, const overwritten *o) {
    for (struct kn_tensor_s *t = k->tensors; t; t = t->next) {
        if (t->past && o->reads[t->past->id]) t->past = NULL, t->cut = 1;
        if (!t->u || !is_stale(o, t->u)) continue;
        ki_views_drop(k, t);
        t->u = NULL;
        t->dead = KI_STALE;
        t->status = KI_INVALID;
    }
}

static bool add_readers(kn_ctx *k, struct ki_changes *a, struct kn_tensor_s *list) {
    for (struct kn_tensor_s *t = list; t; t = t->view_next)
        if (t->u->id >= a->from && !is_stale(&a->o, t->u) && !add_node(k, &a->shown, t, t->u)) return false;
    return true;
}

/* Views of data that are roots themselves: each buffer's views once. */
static bool add_views(kn_ctx *k, const ki_plan *plan, struct ki_changes *a) {
    ki_map *seen = ki_map_take(&k->ir);
    bool ok = seen != NULL;
    for (size_t i = 0; i < plan->n && ok; i++) {
        kn_uop base = ki_view_base(plan->root[i]);
        if (!base || base->op != KN_BUFFER || ki_map_get(seen, base)) continue;
        ki_map_set(seen, base, base);
        ok = add_readers(k, a, k->view[base->id]);
    }
    ki_map_give(&k->ir, seen);
    return ok;
}

/* The live tensors that may read a root: what is data already, and older than all of them, is not looked at, so that a realize costs
 * what it is about and not what lives beside it. */
static bool find_readers(kn_ctx *k, const ki_plan *plan, struct ki_changes *a) {
    if (!add_readers(k, a, k->open)) return false;
    for (uint32_t id = a->from; id < k->ir.n && id < k->nview; id++) /* what is still to be assigned */
        if (k->view[id] && k->ir.node[id]->op == KN_AFTER && !add_readers(k, a, k->view[id])) return false;
    return add_views(k, plan, a);
}

static bool find_values(kn_ctx *k, const ki_plan *plan, struct ki_changes *a) {
    a->from = UINT32_MAX;
    for (size_t i = 0; i < plan->n; i++)
        if (plan->root[i]->id < a->from) a->from = plan->root[i]->id;
    if (!(a->value = ki_calloc(k->ir.n - a->from, 1))) return ki_fail(&k->env, KI_E_NOMEM), false;
    for (size_t i = plan->nassign; i < plan->n; i++) a->value[plan->root[i]->id - a->from] = 1;
    return true;
}

static bool is_value(const struct ki_changes *a, kn_uop u) {
    return u && u->id >= a->from && a->value[u->id - a->from];
}

/* Where something is assigned, all that tensors were computed from, or will have been, unless that no longer gives them. */
static bool find_pasts(kn_ctx *k, const ki_plan *plan, struct ki_changes *a) {
    for (struct kn_tensor_s *t = plan->nassign ? k->tensors : NULL; t; t = t->next) {
        kn_uop past = is_value(a, t->u) ? t->u : t->past;
        if (past && !a->o.reads[past->id] && !add_node(k, &a->past, t, past)) return false;
    }
    return true;
}

/* value[i] for root[i]; in pasts only what assigns leave. */
static bool replace(kn_ctx *k, const ki_plan *plan, const kn_uop *value, struct ki_changes *a) {
    kn_uop *to = ki_malloc(plan->n * sizeof *to);
    if (!to) return ki_fail(&k->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < plan->n; i++) to[i] = i < plan->nassign ? ki_assigned_buffer(plan->root[i]) : value[i];
    bool ok = ki_substitute_all(&k->ir, a->past.u, a->past.n, plan->root, to, plan->nassign) &&
              ki_substitute_all(&k->ir, a->shown.u, a->shown.n, plan->root, to, plan->n) && ki_views_room(k, k->ir.n);
    ki_free(to);
    return ok;
}

bool ki_plan_prepare(kn_ctx *k, ki_plan *plan, const kn_uop *value) {
    struct ki_changes *a = plan->changes = ki_calloc(1, sizeof *a);
    if (!a) return ki_fail(&k->env, KI_E_NOMEM), false;
    return (!plan->nassign || find_overwritten(k, plan, &a->o)) && find_values(k, plan, a) &&
           find_readers(k, plan, a) && find_pasts(k, plan, a) && replace(k, plan, value, a);
}

void ki_plan_done(kn_ctx *k, const ki_plan *plan) {
    struct ki_changes *a = plan->changes;
    for (size_t i = 0; i < a->shown.n; i++) { /* realised values remember the graph they came from */
        struct kn_tensor_s *t = a->shown.t[i];
        if (is_value(a, t->u)) t->past = t->u, t->cut = 0;
    }
    if (plan->nassign) mark_stale(k, &a->o);
    for (size_t i = 0; i < a->past.n; i++) a->past.t[i]->past = a->past.u[i];
    for (size_t i = 0; i < a->shown.n; i++) {
        ki_views_drop(k, a->shown.t[i]);
        a->shown.t[i]->u = a->shown.u[i];
        ki_views_add(k, a->shown.t[i]);
    }
}

bool ki_overwritten(kn_ctx *k, const uint32_t *buffer, size_t n) {
    overwritten o;
    uint8_t *wrote = ki_calloc(k->nstorage + 1u, 1);
    bool ok = open_overwritten(k, &o) && (wrote || (ki_fail(&k->env, KI_E_NOMEM), false));
    for (size_t i = 0; i < n && ok; i++) wrote[buffer[i]] = 1;
    for (uint32_t id = 1; id < k->ir.n && ok; id++) {
        kn_uop u = k->ir.node[id];
        if (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL && u->arg.buffer->id < k->nstorage)
            o.reads[id] = o.stale[id] = wrote[u->arg.buffer->id];
    }
    if (ok) spread(k, NULL, &o), mark_stale(k, &o);
    close_overwritten(&o);
    ki_free(wrote);
    return ok;
}
