/* capture.c: a step that was realised, kept to be run again: its exec, and where each port's memory lies.
 *
 * What always holds:
 *  - every buffer among the ports is held (ki_storage.held), so that its memory stays where it is whether or not a tensor
 *    still shows it, and the exec stays (ki_exec.pins), though other programs may have driven it out of the cache;
 *  - where kernels are launched a replay allocates nothing, unless tensors were born since the last one that may read what it overwrites.
 * Random streams are in ports like others; a replay moves each on, in the order in which the step drew of them. */
#define KN_NO_LOC
#include "run/run.h"

#include <stdlib.h>
#include <string.h>

#include <koine/tensor.h>

struct kn_captured {
    ki_run *r;
    kn_captured *prev, *next; /* all of r's */
    ki_exec *exec;
    void **in, **out; /* memory by port of exec, those of variables NULL */
    uint32_t *held, *wrote,
        *draw; /* ids of buffers: all among the ports; what is overwritten; states of random streams */
    size_t nheld, nwrote, ndraw;
};

static bool id_known(const uint32_t *v, size_t n, uint32_t id) {
    while (n--)
        if (v[n] == id) return true;
    return false;
}

static void hold(kn_captured *c, kn_uop buffer) {
    uint32_t id = buffer->arg.buffer->id;
    ki_storage *s = &c->r->k->storage[id];
    s->held++;
    c->held[c->nheld++] = id;
    if (s->drawn && !id_known(c->draw, c->ndraw, id)) c->draw[c->ndraw++] = id;
}

static void wrote(kn_captured *c, kn_uop buffer) { c->wrote[c->nwrote++] = buffer->arg.buffer->id; }

/* As the stream stood when they were drawn. */
static void sort_draws(kn_captured *c) {
    const ki_storage *s = c->r->k->storage;
    for (size_t i = 1; i < c->ndraw; i++) {
        uint32_t id = c->draw[i];
        size_t j = i;
        uint64_t base = *(const uint64_t *)s[id].data;
        for (; j && *(const uint64_t *)s[c->draw[j - 1]].data > base; j--) c->draw[j] = c->draw[j - 1];
        c->draw[j] = id;
    }
}

kn_captured *ki_captured_new(ki_run *r, ki_exec *e, void **in, void **out, const kn_uop *in_buffer,
                             const kn_uop *out_buffer) {
    kn_captured *c = ki_calloc(1, sizeof *c);
    size_t ports = e->nin + e->nout + 1;
    if (!c) return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
    *c = (kn_captured){.r = r, .exec = e};
    c->held = ki_malloc(ports * sizeof *c->held);
    c->wrote = ki_malloc(2 * ports * sizeof *c->wrote);
    c->draw = ki_malloc(ports * sizeof *c->draw);
    if (!c->held || !c->wrote || !c->draw) {
        ki_free(c->held), ki_free(c->wrote), ki_free(c->draw), ki_free(c);
        return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
    }
    c->in = in;
    c->out = out;
    for (size_t i = 0; i < e->nin; i++)
        if (in_buffer[i]) hold(c, in_buffer[i]);
    for (size_t j = 0; j < e->nout; j++) {
        if (out_buffer[j]) hold(c, out_buffer[j]), wrote(c, out_buffer[j]);
        else if (e->out[j].alias >= 0) wrote(c, in_buffer[e->out[j].alias]);
    }
    sort_draws(c);
    e->pins++;
    if ((c->next = r->captured)) c->next->prev = c;
    r->captured = c;
    return c;
}

void ki_captured_close(kn_captured *c) {
    if (c->prev) c->prev->next = c->next;
    else c->r->captured = c->next;
    if (c->next) c->next->prev = c->prev;
    for (size_t i = 0; i < c->nheld; i++) c->r->k->storage[c->held[i]].held--;
    if (!--c->exec->pins && c->exec->left) ki_exec_free(c->exec);
    ki_free(c->in);
    ki_free(c->out);
    ki_free(c->held);
    ki_free(c->wrote);
    ki_free(c->draw);
    ki_free(c);
}

/* Are all tensors born since then data, which nothing makes stale? */
static bool are_data(const kn_ctx *k, uint64_t since) {
    for (const struct kn_tensor_s *t = k->tensors; t && t->born >= since; t = t->next)
        if (t->u && (t->past || !ki_view_base(t->u))) return false;
    return true;
}

/* What is overwritten, told of to tensors that were born since it was last. */
static bool mark(kn_ctx *k, const uint32_t *id, size_t n) {
    uint64_t since = k->births + 1;
    for (size_t i = 0; i < n; i++)
        if (k->storage[id[i]].marked < since) since = k->storage[id[i]].marked;
    if (since == k->births + 1) return true;
    if (!are_data(k, since) && !ki_overwritten(k, id, n)) return false;
    for (size_t i = 0; i < n; i++) k->storage[id[i]].marked = k->births + 1;
    return true;
}

/* The stream's state where each drew of it, as the same calls made now would have it. */
static bool draw(kn_captured *c) {
    kn_ctx *k = c->r->k;
    for (size_t i = 0; i < c->ndraw; i++) {
        ki_storage *s = &k->storage[c->draw[i]];
        uint64_t *state = s->data;
        state[0] = k->rng_counter;
        state[1] = k->rng_seed;
        k->rng_counter += s->drawn;
    }
    return !c->ndraw || mark(k, c->draw, c->ndraw);
}

/* What is assigned and still to be computed comes first, as it would if the step were built anew: it may be read here, or read what is
 * overwritten. */
static bool settle(kn_ctx *k) {
    size_t n = kn_pending(k, 0, NULL);
    kn_tensor *t = n ? ki_malloc(n * sizeof *t) : NULL;
    bool ok = !n || t || (ki_fail(&k->env, KI_E_NOMEM), false);
    if (t) ok = ki_realize(k, t, kn_pending(k, n, t), NULL, NULL);
    if (!ok) ki_fail_note(&k->env, "to compute what was assigned before, which comes first");
    ki_free(t);
    return ok;
}

/* The BUFFER that t shows all of in its order, realised; NULL: env has the failure. */
static kn_uop place_of(kn_tensor t) {
    kn_ctx *k = t->k;
    kn_uop u = ki_usable(t, "write") ? t->u : NULL, base = u;
    if (!u) return NULL;
    while (base->op == KN_RESHAPE) base = base->src[0];
    if (base != ki_view_base(u)) return ki_fail(&k->env, KI_E_WRITE_PLACE, ki_ops[u->op].name), NULL;
    return ki_realize(k, &t, 1, NULL, NULL) ? ki_buffer_under(t->u) : NULL;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

/* A kn_param whose first value is still to be computed has it before: what a step starts from is no part of it. */
static bool begin(kn_ctx *k, size_t n, const kn_tensor *t) {
    ki_plan plan;
    if (!ki_plan_open(k, t, n, &plan)) return false;
    kn_tensor *first = ki_malloc((plan.nassign + 1) * sizeof *first);
    bool ok = first || (ki_fail(&k->env, KI_E_NOMEM), false);
    size_t m = 0;
    for (size_t i = 0; i < plan.nassign && ok; i++) {
        kn_uop to = plan.root[i]->src[0];
        if (to->op != KN_BUFFER || ki_storage_of(k, to)->data) continue;
        first[m] = ki_handle(k, plan.root[i]);
        ok = kn_check(first[m++]) == KN_OK;
    }
    ok = ok && (!m || ki_realize(k, first, m, NULL, NULL));
    for (size_t i = 0; i < m; i++) kn_drop(first[i]);
    ki_free(first);
    ki_plan_close(&plan);
    return ok;
}

kn_captured *kn_capture_at(const char *file, int line, size_t n, const kn_tensor *t) {
    kn_captured *c = NULL;
    kn_ctx *k = ki_context_of(t, n);
    if (!k) return NULL;
    ki_settle_failure(k);
    k->env.loc = (ki_loc){file, line};
    if (begin(k, n, t) && ki_realize(k, t, n, NULL, &c)) ki_maybe_collect(k, k->depth == 0);
    k->env.loc = (ki_loc){NULL, 0};
    return ki_settle_failure(k) ? NULL : c;
}

kn_status kn_replay(kn_captured *c) {
    if (!c) return KN_BAD_ARGUMENT;
    ki_run *r = c->r;
    kn_ctx *k = r->k;
    ki_settle_failure(k);
    if (settle(k) && ki_bind_variables(r, c->exec) && mark(k, c->wrote, c->nwrote) && draw(c) &&
        ki_exec_run(r, c->exec, c->in, c->out, r->value))
        ki_copy_passed_through(c->exec, c->in, c->out);
    return (kn_status)ki_settle_failure(k);
}

void kn_captured_free(kn_captured *c) {
    if (c) ki_captured_close(c);
}

kn_status kn_write(kn_tensor t, const void *from, size_t bytes) {
    if (!t) return KN_BAD_ARGUMENT;
    kn_ctx *k = t->k;
    ki_settle_failure(k);
    kn_uop b = settle(k) ? place_of(t) : NULL;
    size_t need = b ? (size_t)ki_nbytes(b) : 0;
    ki_storage *s = b ? ki_storage_of(k, b) : NULL;
    if (b && need != bytes) ki_fail(&k->env, KI_E_WRITE_SIZE, need, bytes);
    else if (b && bytes && ki_given(k, "write", "from", from) && mark(k, &b->arg.buffer->id, 1)) {
        if (s->device && !s->borrowed) s->device->is->copy(s->device, KI_COPY_IN, s->data, from, bytes);
        else memcpy(s->data, from, bytes);
    }
    return (kn_status)ki_settle_failure(k);
}
