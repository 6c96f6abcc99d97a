/* function.c: a C function on tensors as one FUNCTION node, and back.
 *
 * f runs on placeholders: PARAMs with names of their own ("#n"), so that a function traced inside another cannot take
 * one for its own. What the result reads besides them (buffers, assigned places, placeholders of an outer trace) is
 * captured as further arguments; then all become PARAM slots. */
#include "tensor/build.h"

#include <stdio.h>
#include <string.h>

typedef struct list {
    kn_uop *v;
    size_t n, cap;
} list;
static bool push(kn_ctx *k, list *l, kn_uop u) {
    if (!ki_array_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v)) return ki_fail(&k->env, KI_E_NOMEM), false;
    l->v[l->n++] = u;
    return true;
}

static kn_uop named(kn_ctx *k, kn_uop like, const char *name) {
    return ki_param_make(&k->ir, -1, (kn_dtype)like->dtype, KN_GLOBAL, like->type->device, name, NULL,
                         ki_shape_of(&k->ir, like));
}

kn_uop ki_t_placeholder(kn_ctx *k, kn_uop like) {
    char name[32];
    snprintf(name, sizeof name, "#%llu", (unsigned long long)++k->births);
    return named(k, like, name);
}

/* A trace begins, and ends: what is born in between may hold its placeholders. */
typedef struct scene {
    ki_trace *at; /* NULL: too deep */
    bool fresh;   /* its placeholders have names that were never used */
} scene;

/* Where nothing is left of the last trace so deep its names are used again: a function traced again is the same nodes. What is computed
 * again must not be, since nodes that were there before count as found outside. */
static scene begin_trace(kn_ctx *k, bool again) {
    scene s = {.at = k->tracing < KI_TRACES ? &k->trace[k->tracing] : NULL};
    k->tracing++;
    s.fresh = again || !s.at || s.at->alive;
    if (s.at) *s.at = (ki_trace){.first = k->births, .last = 0};
    return s;
}
static void end_trace(kn_ctx *k, const scene *s) {
    k->tracing--;
    if (!s->at) return;
    s->at->last = k->births;
    for (const struct kn_tensor_s *t = k->tensors; t && t->born > s->at->first; t = t->next) s->at->alive++;
}

/* Argument i of a function that is traced. */
static kn_uop argument(kn_ctx *k, const scene *s, kn_uop like, size_t i) {
    char name[32];
    if (s->fresh) return ki_t_placeholder(k, like);
    snprintf(name, sizeof name, "#%u.%zu", k->tracing, i);
    return named(k, like, name);
}

static bool is_memory(kn_uop u) {
    return (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL) || u->op == KN_AFTER;
}
/* Memory in its shape is one value: what a handle has, and gradients are by. */
static bool captured(kn_uop u) {
    return is_memory(u) || (u->op == KN_RESHAPE && is_memory(u->src[0])) ||
           (u->op == KN_PARAM && u->arg.param->len && u->arg.param->name[0] == '#');
}

/* By id: met in which search; nothing is captured below it. */
typedef struct below {
    uint32_t *met, search;
    uint8_t *none;
    list work;
} below;

/* Is there something captured at u or below? */
static bool holds(kn_ctx *k, kn_uop u, below *b, bool *ok) {
    bool found = false;
    b->search++;
    b->work.n = 0;
    *ok = push(k, &b->work, u);
    for (size_t at = 0; at < b->work.n && *ok && !found; at++) {
        kn_uop v = b->work.v[at];
        found = captured(v);
        for (uint32_t s = 0; s < v->nsrc && *ok; s++) {
            uint32_t id = v->src[s]->id;
            if (b->none[id] || b->met[id] == b->search) continue;
            b->met[id] = b->search;
            *ok = push(k, &b->work, v->src[s]);
        }
    }
    for (size_t i = 0; i < b->work.n && !found; i++) b->none[b->work.v[i]->id] = 1;
    return found;
}

/* What the outputs read and `from` has not: leaves; or, where `before` is not 0, values that were there before the function ran, the
 * nodes up to there: they are found outside, and not computed again. */
static bool capture(kn_ctx *k, const kn_uop *out, size_t nout, uint32_t before, list *from) {
    list work = {0};
    uint8_t *seen = ki_calloc(k->ir.n, 1);
    below b = {.met = ki_calloc(k->ir.n, sizeof *b.met), .none = ki_calloc(k->ir.n, 1)};
    bool ok = (seen && b.met && b.none) || (ki_fail(&k->env, KI_E_NOMEM), false);
    for (size_t i = 0; i < from->n && ok; i++) seen[from->v[i]->id] = 1;
    for (size_t i = 0; i < nout && ok; i++)
        if (!seen[out[i]->id]) seen[out[i]->id] = 1, ok = push(k, &work, out[i]);
    for (size_t at = 0; at < work.n && ok; at++) {
        kn_uop u = work.v[at];
        bool value = u->id < before && u->dtype != KN_VOID && u->op != KN_FUNCTION;
        if (captured(u) || (value && holds(k, u, &b, &ok))) {
            ok = ok && push(k, from, u);
            continue;
        }
        for (uint32_t s = 0; s < u->nsrc && ok; s++)
            if (!seen[u->src[s]->id]) seen[u->src[s]->id] = 1, ok = push(k, &work, u->src[s]);
    }
    ki_free(seen);
    ki_free(b.met);
    ki_free(b.none);
    ki_free(b.work.v);
    ki_free(work.v);
    return ok;
}

/* The outputs over slots, from[i] as slot i, and what else they read as further ones. */
static kn_uop over_slots(kn_ctx *k, kn_uop *out, size_t nout, uint32_t before, list *from) {
    list to = {0};
    kn_uop tuple = NULL;
    bool ok = capture(k, out, nout, before, from);
    for (size_t i = 0; i < from->n && ok; i++) {
        kn_uop f = from->v[i];
        kn_uop p = ki_param_make(&k->ir, (int)i, (kn_dtype)f->dtype, KN_GLOBAL, f->type->device, NULL, NULL,
                                 ki_shape_of(&k->ir, f));
        ok = p && push(k, &to, p);
    }
    if (ok && ki_substitute_all(&k->ir, out, nout, from->v, to.v, from->n))
        tuple = ki_opn(&k->ir, KN_TUPLE, out, (uint32_t)nout);
    ki_free(to.v);
    return tuple;
}

/* FUNCTION(TUPLE(out...), args...): from[i] in the outputs is what args[i] stands for. */
static kn_uop close_over(kn_ctx *k, kn_uop *out, size_t nout, uint32_t before, list *from, list *args) {
    list key = {0}, value = {0}; /* the outputs and what they are over; the TUPLE and what it captured */
    size_t given = from->n, n = 0;
    bool ok = true;
    for (size_t i = 0; i < nout && ok; i++) ok = push(k, &key, out[i]);
    for (size_t i = 0; i < given && ok; i++) ok = push(k, &key, from->v[i]);
    const kn_uop *known = ok && !before ? ki_recall(k, KI_TRACED, nout, key.v, key.n, &n) : NULL;
    kn_uop tuple = known ? known[0] : ok ? over_slots(k, out, nout, before, from) : NULL, fn = NULL;
    ok = tuple && push(k, &value, tuple);
    for (size_t i = 1; i < n && ok; i++) ok = push(k, from, known[i]);
    for (size_t i = given; i < from->n && ok; i++) ok = push(k, &value, from->v[i]) && push(k, args, from->v[i]);
    if (ok && !known && !before) ki_recall_note(k, KI_TRACED, nout, key.v, key.n, value.v, value.n);
    kn_uop *src = ok ? ki_malloc((args->n + 1) * sizeof *src) : NULL;
    if (src) {
        src[0] = tuple;
        if (args->n) memcpy(src + 1, args->v, args->n * sizeof *src);
        fn = ki_opn(&k->ir, KN_FUNCTION, src, (uint32_t)args->n + 1);
    } else if (ok) {
        ki_fail(&k->env, KI_E_NOMEM);
    }
    ki_free(src);
    ki_free(key.v);
    ki_free(value.v);
    return fn;
}

static kn_status all_bad(kn_ctx *k, kn_tensor bad, kn_tensor *out, size_t n) {
    if (!bad) bad = ki_handle(k, NULL);
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

static kn_status trace(kn_ctx *k, const char *name, bool again, kn_fn f, void *user, const kn_tensor *in, size_t nin,
                       kn_tensor *out, size_t nout) {
    if (!k) return KN_BAD_ARGUMENT;
    ki_begin(k, name);
    if ((nout && !ki_given(k, name, "out", out)) || (nin && !ki_given(k, name, "in", in)))
        return (kn_status)ki_settle_failure(k);
    list from = {0}, args = {0};
    uint32_t before = 0;
    uint64_t collections = k->collections;
    kn_ctx *own;
    kn_tensor bad = ki_enter(&own, name, in, nin, 0);
    if (bad || !ki_given(k, name, "the function", (const void *)(uintptr_t)f)) return all_bad(k, bad, out, nout);
    kn_tensor *hold = ki_malloc((nin + 1) * sizeof *hold);
    kn_uop *res = ki_malloc((nout + 1) * sizeof *res), fn = NULL;
    bool ok = hold && res;
    if (!ok) ki_fail(&k->env, KI_E_NOMEM);
    scene now = begin_trace(k, again);
    for (size_t i = 0; i < nin && ok; i++) {
        size_t j = 0; /* equal inputs are one argument */
        while (j < args.n && args.v[j] != in[i]->u) j++;
        if (j == args.n) ok = push(k, &args, in[i]->u) && push(k, &from, argument(k, &now, in[i]->u, j)) && from.v[j];
        if (ok) hold[i] = ki_handle(k, from.v[j]);
    }
    if (ok) {
        for (size_t i = 0; i < nout; i++) out[i] = NULL;
        before = k->ir.n;
        f(user, hold, out);
        ki_begin(k, name);
    }
    for (size_t i = 0; i < nout && ok; i++) {
        if (!out[i] || !(ok = ki_usable(out[i], name))) {
            if (!out[i]) ki_fail(&k->env, KI_E_FUNCTION_OUT, name, (unsigned)i), ok = false;
            break;
        }
        res[i] = again ? ki_op1(&k->ir, KN_REMAT, out[i]->u) : out[i]->u;
        ok = res[i] != NULL;
    }
    end_trace(k, &now);
    if (ok) fn = close_over(k, res, nout, again && k->collections == collections ? before : 0, &from, &args);
    ki_free(from.v);
    ki_free(args.v);
    ki_free(hold);
    ki_free(res);
    if (!fn) return all_bad(k, NULL, out, nout);
    for (size_t i = 0; i < nout; i++) out[i] = ki_handle(k, kn_u_get(k, fn, (int64_t)i));
    return KN_OK;
}

kn_status kn_function(kn_ctx *k, kn_fn f, void *user, const kn_tensor *in, size_t nin, kn_tensor *out, size_t nout) {
    return trace(k, "function", false, f, user, in, nin, out, nout);
}
kn_status kn_checkpoint(kn_ctx *k, kn_fn f, void *user, const kn_tensor *in, size_t nin, kn_tensor *out, size_t nout) {
    return trace(k, "checkpoint", true, f, user, in, nin, out, nout);
}
