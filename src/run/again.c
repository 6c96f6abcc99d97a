/* again.c: the last plans that were realised. A step that builds its graph as the step before did gets the same nodes, as
 * long as nothing was collected in between; then neither the canonical graph nor its digest is needed to know the exec. The results of a
 * function over buffers are known by its body: other arguments are other buffers at the same ports.
 *
 * Invariants: an entry's key is compared, never looked into, once k->collections has gone on; origins are read only of an entry
 * that was found. A key that begins with a TUPLE is a function's: no root is one. */
#include "run/run.h"

#include <string.h>

uint64_t *ki_again_key(ki_run *r, const ki_plan *plan, size_t *n) {
    kn_uop f = plan->function;
    uint64_t *key = ki_malloc((1 + plan->n + (f ? 2 * f->nsrc : 0)) * sizeof *key);
    if (!key) return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
    *n = 0;
    key[(*n)++] = f ? (uintptr_t)f->src[0] : 0;
    for (size_t i = 0; i < plan->n; i++) key[(*n)++] = f ? (uint64_t)plan->root[i]->arg.i : (uintptr_t)plan->root[i];
    for (uint32_t i = 1; f && i < f->nsrc; i++) {
        key[(*n)++] = (uintptr_t)f->src[i]->type;
        key[(*n)++] = f->src[i]->dtype;
    }
    return key;
}

const ki_again *ki_again_find(const ki_run *r, const uint64_t *key, size_t n, ki_digest settings) {
    for (unsigned i = 0; i < KI_AGAIN; i++) {
        const ki_again *a = &r->again[i];
        if (a->exec && a->collections == r->k->collections && a->nkey == n && a->settings.a == settings.a &&
            a->settings.b == settings.b && memcmp(a->key, key, n * sizeof *key) == 0)
            return a;
    }
    return NULL;
}

/* Which argument of the plan's function a buffer is; each is one alone. */
static uint32_t argument_in(const ki_plan *plan, kn_uop buffer) {
    uint32_t j = plan->function->nsrc;
    while (--j && ki_buffer_under(plan->function->src[j]) != buffer) {
    }
    return j;
}

const ki_again *ki_again_note(ki_run *r, const uint64_t *key, size_t n, ki_digest settings, ki_exec *e,
                              const ki_plan *plan, const ki_program *p) {
    uint64_t *own = ki_malloc(n * sizeof *own);
    kn_uop *origin = ki_calloc(e->nin + 1, sizeof *origin);
    uint32_t *source = ki_calloc(e->nin + 1, sizeof *source);
    if (!own || !origin || !source) {
        ki_free(own), ki_free(origin), ki_free(source);
        return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
    }
    ki_again *a = &r->again[r->next_again++ % KI_AGAIN];
    ki_free(a->key), ki_free(a->origin), ki_free(a->source);
    *a = (ki_again){.key = own,
                    .nkey = n,
                    .origin = origin,
                    .source = source,
                    .collections = r->k->collections,
                    .settings = settings,
                    .exec = e};
    memcpy(own, key, n * sizeof *own);
    for (size_t i = 0; i < e->nin; i++) {
        origin[i] = e->in[i].origin >= 0 ? p->in[e->in[i].origin].origin : NULL;
        source[i] = origin[i] && plan->function ? argument_in(plan, origin[i]) : 0;
    }
    return a;
}

kn_uop ki_again_origin(const ki_again *a, const ki_plan *plan, size_t i) {
    return a->source[i] ? ki_buffer_under(plan->function->src[a->source[i]]) : a->origin[i];
}

void ki_again_forget(ki_run *r) {
    for (unsigned i = 0; i < KI_AGAIN; i++) {
        ki_free(r->again[i].key);
        ki_free(r->again[i].origin);
        ki_free(r->again[i].source);
        r->again[i] = (ki_again){0};
    }
}
