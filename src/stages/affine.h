/* affine.h: index arithmetic as sums: k + sum of c * x, the x being RANGEs or what is opaque.
 *
 * Optimize reads strides from it, expand splits an index into base and lanes by it. Quotients and remainders
 * by constants are taken apart where bounds and divisibility allow: (16 i + l) / 64 is (16 i) / 64 when 0 <=
 * l < 16. Terms stand in order of node id, no coefficient is 0, no term is a constant. dtype `index` only: it
 * does not wrap; a sum that would leave int64 is not made (NULL: keep the node opaque). */
#ifndef KI_AFFINE_H
#define KI_AFFINE_H

#include "ir/uop.h"

typedef struct ki_affine_term {
    kn_uop x;
    int64_t c;
} ki_affine_term;
typedef struct ki_affine {
    int64_t k;
    uint32_t n;
    ki_affine_term t[];
} ki_affine;
typedef struct ki_affines {
    ki_ir *ir;
    ki_arena arena;
    /* Node of a form that becomes part of a leaf, where the terms do not stand for themselves; NULL: ki_affine_node. */
    kn_uop (*node)(void *user, const struct ki_affine *f);
    void *user;
} ki_affines;

/* The form of a node that is taken as it is: a constant, or one opaque term. */
const ki_affine *ki_affine_leaf(ki_affines *a, kn_uop x);
/* The form of u (dtype index), given those of its sources; NULL when it has none but ki_affine_leaf. */
const ki_affine *ki_affine_of(ki_affines *a, kn_uop u, const ki_affine *const *src);
/* f + s * g. NULL on overflow or out of memory (then env says so, as all here do), or where f or g is. */
const ki_affine *ki_affine_add(ki_affines *a, const ki_affine *f, const ki_affine *g, int64_t s);
/* Bounds, false if unbounded. */
bool ki_affine_bounds(const ki_affine *f, int64_t *lo, int64_t *hi);
/* As a node: the terms for which keep (user, x) holds (NULL: all), with k or without. */
kn_uop ki_affine_node(ki_affines *a, const ki_affine *f);
static inline int64_t ki_affine_coef(const ki_affine *f, kn_uop x) {
    for (uint32_t i = 0; i < f->n; i++)
        if (f->t[i].x == x) return f->t[i].c;
    return 0;
}
/* Forms of every index node of a list in topological order (others NULL), by place in the list. */
const ki_affine **ki_affine_all(ki_affines *a, const kn_uop *node, uint32_t n, const uint32_t *at);

#endif
