/* skip.c: terms that are left out are not computed. The update acc + where(p & q, x, -0.0), p the same for all lanes and all
 * iterations of the innermost loop r, is acc + where(q, x, -0.0) in a loop r' with r' < where(p, n, 0). What x reads under p
 * needs no gate of its own any more. A maximum leaves out what is -inf likewise. p may be data, what another sum was say: then no loop is too short. */
#include "stages/4_expand/lanes.h"

#include "rules/given.h"
#include "stages/indexing.h"

#include <string.h>

enum { WORTH = 4 }; /* iterations */

/* Between lanes, or along r. *data: it is read from somewhere. */
static bool varies(kn_uop u, kn_uop r, ki_ir *ir, bool *data, bool *ok) {
    kn_uop *node;
    if (ki_rank(u)) return true;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    bool found = false, reads = false;
    for (int64_t i = 0; i < n; i++) found |= node[i] == r, reads |= node[i]->op == KN_LOAD;
    if (n >= 0) ki_free(node);
    *data |= reads && !found;
    *ok &= n >= 0;
    return found;
}

/* A LOAD's gate without the parts that are known; NULL: nothing is left of it. */
static kn_uop left_of(ki_ir *ir, kn_uop gate, const kn_uop *known, unsigned nknown) {
    kn_uop part[KI_MAX_TERMS], left = NULL;
    unsigned n = ki_conjuncts(gate, part), nleft = 0;
    for (unsigned k = 0; k < n; k++) {
        bool said = false;
        for (unsigned j = 0; j < nknown; j++) said |= part[k] == known[j];
        if (!said) part[nleft++] = part[k];
    }
    if (nleft == n) return gate;
    for (unsigned k = 0; k < nleft; k++) left = ki_and(ir, left, part[k]);
    return left;
}

/* x, the gates of its LOADs rid of what is known: of those inside r alone; what does not vary there is read before it. */
static kn_uop without_gates(ki_ir *ir, kn_uop x, kn_uop r, const kn_uop *known, unsigned nknown) {
    kn_uop *node, from[64], to[64];
    uint32_t m = 0;
    int64_t n = ki_toposort(ir, &x, 1, &node);
    ki_map *inside = n < 0 ? NULL : ki_map_take(ir);
    if (inside) ki_map_set(inside, r, r);
    for (int64_t i = 0; inside && i < n && m < 64; i++) {
        kn_uop u = node[i];
        for (uint32_t k = 0; k < u->nsrc; k++)
            if (ki_map_get(inside, u->src[k])) ki_map_set(inside, u, u);
        if (u->op != KN_LOAD || u->nsrc < 3 || !ki_map_get(inside, u->src[0])) continue;
        kn_uop left = left_of(ir, u->src[2], known, nknown);
        if (left == u->src[2]) continue;
        from[m] = u;
        to[m++] = left ? ki_op3(ir, KN_LOAD, u->src[0], u->src[1], left) : ki_op1(ir, KN_LOAD, u->src[0]);
    }
    bool ok = inside != NULL;
    if (ok) ki_map_give(ir, inside);
    if (n >= 0) ki_free(node);
    return !ok ? NULL : m ? ki_substitute(ir, x, from, to, m) : x;
}

/* What x is where all conditions hold that leave it out else, one in another; they are added to part[]. */
static kn_uop kept(kn_op op, kn_uop v, kn_uop *part, unsigned *n) {
    for (*n = 0; v->op == KN_WHERE && ki_changes_nothing(op, v->src[2]) && *n < KI_MAX_TERMS / 2; v = v->src[1]) {
        kn_uop more[KI_MAX_TERMS];
        unsigned m = ki_conjuncts(v->src[0], more);
        if (!m || *n + m > KI_MAX_TERMS) break;
        memcpy(part + *n, more, m * sizeof *part);
        *n += m;
    }
    return v;
}

bool ki_skip_left_out(ki_ir *ir, kn_op op, kn_uop *value, kn_uop *loop) {
    kn_uop v = *value, r = *loop, part[KI_MAX_TERMS], known[KI_MAX_TERMS], p = NULL, q = NULL;
    unsigned n, nknown = 0;
    kn_uop x = kept(op, v, part, &n);
    bool ok = true, data = false;
    if (!n || r->op != KN_RANGE) return true;
    for (unsigned k = 0; k < n && ok; k++) {
        if (varies(part[k], r, ir, &data, &ok)) q = ki_and(ir, q, part[k]);
        else p = ki_and(ir, p, known[nknown++] = part[k]);
    }
    if (!ok || !p || (!data && ki_extent(r) < WORTH)) return ok;
    kn_uop end = ki_op3(ir, KN_WHERE, p, r->src[0], ki_index(ir, 0)), range = end ? ki_with_src(ir, r, &end) : NULL;
    x = range ? without_gates(ir, x, r, known, nknown) : NULL;
    if (x && q) x = ki_op3(ir, KN_WHERE, q, x, v->src[2]);
    if (x) x = ki_substitute(ir, x, &r, &range, 1);
    return x && (*value = x, *loop = range, true);
}
