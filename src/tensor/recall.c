/* recall.c: what functions of nodes made of them before. Equal nodes are the same pointer until something is collected, so a step that
 * builds what the step before built finds its functions and gradients by comparing pointers.
 *
 * Invariants: a function that is recalled looks at its nodes alone; once k->collections has gone on an entry is not looked into. */
#include "tensor/build.h"

#include "base/hash.h"

#include <string.h>

static ki_recalled *place_of(kn_ctx *k, ki_derivation what, const kn_uop *key, size_t n) {
    uint64_t h = ki_hash2(what, n);
    for (size_t i = 0; i < n; i++) h = ki_hash2(h, key[i]->id);
    return &k->recalled[h % KI_RECALLED];
}

const kn_uop *ki_recall(kn_ctx *k, ki_derivation what, size_t part, const kn_uop *key, size_t n, size_t *nvalue) {
    if (!k->recalled) return NULL;
    const ki_recalled *r = place_of(k, what, key, n);
    if (!r->node || r->collections != k->collections || r->what != what || r->part != part || r->nkey != n) return NULL;
    if (memcmp(r->node, key, n * sizeof *key) != 0) return NULL;
    *nvalue = r->nvalue;
    return r->node + n;
}

void ki_recall_note(kn_ctx *k, ki_derivation what, size_t part, const kn_uop *key, size_t n, const kn_uop *value,
                    size_t nvalue) {
    if (!k->recalled && !(k->recalled = ki_calloc(KI_RECALLED, sizeof *k->recalled))) return;
    ki_recalled *r = place_of(k, what, key, n);
    kn_uop *node = ki_malloc((n + nvalue) * sizeof *node);
    if (!node) return; /* it is made again */
    memcpy(node, key, n * sizeof *key);
    memcpy(node + n, value, nvalue * sizeof *value);
    ki_free(r->node);
    *r = (ki_recalled){
        .node = node, .nkey = n, .nvalue = nvalue, .part = part, .what = what, .collections = k->collections};
}

void ki_recall_close(kn_ctx *k) {
    for (size_t i = 0; k->recalled && i < KI_RECALLED; i++) ki_free(k->recalled[i].node);
    ki_free(k->recalled);
    k->recalled = NULL;
}
