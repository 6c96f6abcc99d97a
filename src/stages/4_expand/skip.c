/* skip.c: terms that are left out are not computed. The update acc + where(p & q, x, -0.0), p the same for all lanes and all
 * iterations of the innermost loop r, is acc + where(q, x, -0.0) in a loop r' with r' < where(p, n, 0). What x reads under p
 * needs no gate of its own any more. */
#include "stages/4_expand/lanes.h"

#include "rules/given.h"

enum { WORTH = 4 }; /* iterations */

static bool varies(kn_uop u, kn_uop r, ki_ir *ir, bool *ok) {
    kn_uop *node;
    int64_t n = ki_rank(u) ? 0 : ki_toposort(ir, &u, 1, &node);
    bool found = ki_rank(u) != 0;
    if (found) return true;
    for (int64_t i = 0; i < n; i++) found |= node[i] == r || node[i]->op == KN_LOAD;
    if (n >= 0) ki_free(node);
    *ok &= n >= 0;
    return found;
}

static kn_uop both(ki_ir *ir, kn_uop a, kn_uop b) { return a ? ki_op2(ir, KN_AND, a, b) : b; }

/* x, its gates rid of what is known. */
static kn_uop without_gates(ki_ir *ir, kn_uop x, const kn_uop *known, unsigned nknown) {
    kn_uop *node, from[64], to[64], part[KI_MAX_TERMS];
    uint32_t m = 0;
    int64_t n = ki_toposort(ir, &x, 1, &node);
    for (int64_t i = 0; i < n && m < 64; i++) {
        kn_uop u = node[i], gate = u->op == KN_INDEX ? u->src[1] : NULL, left = NULL;
        if (!gate || gate->op != KN_WHERE || gate->src[2]->op != KN_INVALID) continue;
        unsigned parts = ki_conjuncts(gate->src[0], part), drop = 0;
        for (unsigned k = 0; k < parts; k++) {
            bool said = false;
            for (unsigned j = 0; j < nknown; j++) said |= part[k] == known[j];
            drop += said;
            if (!said) left = both(ir, left, part[k]);
        }
        if (!drop) continue;
        from[m] = u;
        to[m++] = ki_op2(ir, KN_INDEX, u->src[0],
                         left ? ki_op3(ir, KN_WHERE, left, gate->src[1], gate->src[2]) : gate->src[1]);
    }
    if (n >= 0) ki_free(node);
    return n < 0 ? NULL : m ? ki_substitute(ir, x, from, to, m) : x;
}

bool ki_skip_left_out(ki_ir *ir, kn_uop *value, kn_uop *loop) {
    kn_uop v = *value, r = *loop, part[KI_MAX_TERMS], known[KI_MAX_TERMS], p = NULL, q = NULL;
    if (v->op != KN_WHERE || !ki_is_minus_zero(v->src[2]) || r->op != KN_RANGE || ki_extent(r) < WORTH) return true;
    unsigned n = ki_conjuncts(v->src[0], part), nknown = 0;
    bool ok = true;
    for (unsigned k = 0; k < n && ok; k++) {
        if (varies(part[k], r, ir, &ok)) q = both(ir, q, part[k]);
        else p = both(ir, p, known[nknown++] = part[k]);
    }
    if (!ok || !p) return ok;
    kn_uop end = ki_op3(ir, KN_WHERE, p, r->src[0], ki_index(ir, 0)), range = end ? ki_with_src(ir, r, &end) : NULL;
    kn_uop x = range ? without_gates(ir, v->src[1], known, nknown) : NULL;
    if (x && q) x = ki_op3(ir, KN_WHERE, q, x, v->src[2]);
    if (!x || !(x = ki_substitute(ir, x, &r, &range, 1))) return false;
    return *value = x, *loop = range, true;
}
