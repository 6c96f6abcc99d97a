/* again.c: the last plans that were realised. A step that builds its graph as the step before did gets the same nodes, as
 * long as nothing was collected in between; then neither the canonical graph nor its digest is needed to know the exec.
 *
 * Invariants: an entry's nodes are compared, never looked into, once k->collections has gone on; origins are read only of an entry
 * that was found. */
#include "run/run.h"

#include <string.h>

const ki_again *ki_again_find(const ki_run *r, const kn_uop *root, size_t n, ki_digest settings) {
    for (unsigned i = 0; i < KI_AGAIN; i++) {
        const ki_again *a = &r->again[i];
        if (a->exec && a->collections == r->k->collections && a->nroot == n && a->settings.a == settings.a &&
            a->settings.b == settings.b && memcmp(a->root, root, n * sizeof *root) == 0)
            return a;
    }
    return NULL;
}

const ki_again *ki_again_note(ki_run *r, const kn_uop *root, size_t n, ki_digest settings, ki_exec *e,
                              const ki_program *p) {
    kn_uop *v = ki_calloc(n + e->nin + 1, sizeof *v);
    if (!v) return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
    ki_again *a = &r->again[r->next_again++ % KI_AGAIN];
    ki_free(a->root);
    *a = (ki_again){
        .root = v, .origin = v + n, .nroot = n, .collections = r->k->collections, .settings = settings, .exec = e};
    memcpy(v, root, n * sizeof *v);
    for (size_t i = 0; i < e->nin; i++) a->origin[i] = e->in[i].origin >= 0 ? p->in[e->in[i].origin].origin : NULL;
    return a;
}

void ki_again_forget(ki_run *r) {
    for (unsigned i = 0; i < KI_AGAIN; i++) {
        ki_free(r->again[i].root);
        r->again[i] = (ki_again){0};
    }
}
