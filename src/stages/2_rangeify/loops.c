/* loops.c: adjacent loops become one where no index gets harder: (i, j) of a contiguous value is one range i·n + j.
 *
 * Tried by substitution: i := k / n, j := k % n; kept if the kernel then has no more divisions and remainders. */
#include "rules/indexmath.h"
#include "stages/2_rangeify/rangeify.h"

#include <string.h>

static int64_t count_divisions(ki_ir *ir, kn_uop sink) {
    kn_uop *order;
    int64_t n = ki_toposort(ir, &sink, 1, &order), count = n < 0 ? -1 : 0;
    for (int64_t i = 0; i < n; i++) count += order[i]->op == KN_IDIV || order[i]->op == KN_MOD;
    ki_free(order);
    return count;
}

/* Sums and multiples: parts of a larger linear form. */
static bool is_linear(kn_uop u) {
    return u->dtype == KN_IDX && (u->op == KN_ADD || u->op == KN_SUB || u->op == KN_NEG ||
                                  (u->op == KN_MUL && (u->src[0]->op == KN_CONST || u->src[1]->op == KN_CONST)));
}

/* Can (a, b) be one range? Wherever the kernel counts with one of them it must count with a·n + b, n the extent of b. */
static bool may_join(const kn_uop *order, int64_t n, kn_uop a, kn_uop b) {
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = order[i];
        if (is_linear(u)) continue;
        for (uint32_t k = 0; k < u->nsrc; k++) {
            kn_uop s = u->src[k];
            ki_linear l;
            int64_t ca = 0, cb = 0, want;
            if ((u->op == KN_END || u->op == KN_REDUCE) && k > 0) continue;
            if (s->dtype != KN_IDX || s->op == KN_CONST || !ki_linear_of(s, &l)) continue;
            for (unsigned t = 0; t < l.n; t++) {
                if (l.term[t] == a) ca = l.coef[t];
                if (l.term[t] == b) cb = l.coef[t];
            }
            if ((ca || cb) && (ki_mul_overflow(cb, b->src[0]->arg.i, &want) || ca != want)) return false;
        }
    }
    return true;
}

/* u, an END or a REDUCE, with ranges at and at+1 replaced by one. */
static kn_uop join(ki_ir *ir, kn_uop sink, kn_uop u, uint32_t at) {
    kn_uop a = u->src[at], b = u->src[at + 1], s[KI_MAX_RANK * 4];
    int64_t n;
    if (a->src[0]->op != KN_CONST || b->src[0]->op != KN_CONST || u->nsrc > KI_MAX_RANK * 4 ||
        ki_mul_overflow(a->src[0]->arg.i, b->src[0]->arg.i, &n))
        return NULL;
    kn_uop r = ki_range_make(ir, ir->next_range, (kn_axis)a->arg.range.axis, ki_index(ir, n)), size = b->src[0];
    kn_uop from[2] = {a, b}, to[2] = {ki_op2(ir, KN_IDIV, r, size), ki_op2(ir, KN_MOD, r, size)};
    /* The loop itself: its sources with one range fewer, its body in the new range. */
    kn_uop body = ki_substitute(ir, u->src[0], from, to, 2);
    uint32_t k = 0;
    s[k++] = body;
    for (uint32_t j = 1; j < u->nsrc; j++)
        if (j == at) s[k++] = r;
        else if (j != at + 1) s[k++] = u->src[j];
    kn_uop joined = body ? ki_with_srcs(ir, u, s, k) : NULL;
    return joined ? ki_substitute(ir, sink, &u, &joined, 1) : NULL;
}

kn_uop ki_range_join_loops(ki_ir *ir, kn_uop sink) {
    int64_t divisions = count_divisions(ir, sink);
    bool again = divisions >= 0;
    while (again) {
        kn_uop *order;
        int64_t n = ki_toposort(ir, &sink, 1, &order);
        if (n < 0) return NULL;
        again = false;
        for (int64_t i = n; i-- > 0 && !again;) {
            kn_uop u = order[i];
            if (u->op != KN_END && u->op != KN_REDUCE) continue;
            for (uint32_t at = u->nsrc - 1; at-- > 1 && !again;) {
                kn_uop a = u->src[at], b = u->src[at + 1];
                if (b->src[0]->op != KN_CONST || !may_join(order, n, a, b)) continue;
                kn_uop t = join(ir, sink, u, at);
                if (t) t = ki_range_fold(ir, t, 0);
                int64_t d = t ? count_divisions(ir, t) : -1;
                if (d < 0 && ir->env->err != KI_E_NONE) {
                    ki_free(order);
                    return NULL;
                }
                if (d < 0 || d > divisions) continue;
                sink = t;
                divisions = d;
                again = true;
            }
        }
        ki_free(order);
    }
    return divisions < 0 ? NULL : sink;
}
