/* unshare.c: every loop is closed in one place.
 *
 * A RANGE that two nodes close would be two loops under one name. Where REDUCEs that cannot share a loop, or
 * a REDUCE and an END around it, close the same RANGE, all but one get ranges of their own: the REDUCE's
 * value is rebuilt over them. Lane RANGEs may be shared, they are no loops. Kernels from *rangeify* mostly
 * own their ranges, so this finds nothing to do. */
#include "stages/4_expand/lanes.h"

#include <string.h>

bool ki_same_loops(kn_uop a, kn_uop b) {
    uint32_t i = 1, j = 1;
    for (;; i++, j++) {
        while (i < a->nsrc && !ki_is_loop(a->src[i])) i++;
        while (j < b->nsrc && !ki_is_loop(b->src[j])) j++;
        if (i == a->nsrc || j == b->nsrc) return i == a->nsrc && j == b->nsrc;
        if (a->src[i] != b->src[j]) return false;
    }
}

/* Whether b closes exactly what a does, on one level, inside the same loops: then reduce.c gives them one
 * END. */
static bool one_loop(const ki_scope *s, kn_uop a, kn_uop b) {
    if (b->op != KN_REDUCE || s->level[s->at[a->id]] != s->level[s->at[b->id]]) return false;
    if (memcmp(ki_scope_free(s, a), ki_scope_free(s, b), s->words * sizeof(uint64_t)) != 0) return false;
    if (a->op == KN_END) return ki_same_loops(a, b);
    return a->nsrc == b->nsrc && memcmp(a->src + 1, b->src + 1, (a->nsrc - 1) * sizeof *a->src) == 0;
}

/* owner[rank]: the closer that keeps the range. ENDs choose first, REDUCEs give way. True if somebody has to.
 */
static bool find_owners(const ki_scope *s, kn_uop *owner) {
    bool shared = false;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->n; i++) {
            kn_uop u = s->node[i];
            if (u->op != (pass ? KN_REDUCE : KN_END)) continue;
            for (uint32_t k = 1; k < u->nsrc; k++) {
                if (u->src[k]->op != KN_RANGE || !ki_is_loop(u->src[k])) continue;
                kn_uop *o = &owner[ki_scope_rank(s, u->src[k])];
                if (!*o) *o = u;
                else if (!one_loop(s, *o, u)) shared = true;
            }
        }
    return shared;
}

/* u with fresh RANGEs in place of those it does not own; src are its sources in the new graph. */
static kn_uop rename_loops(const ki_scope *s, kn_uop u, kn_uop *src, kn_uop *const owner, kn_uop *scratch) {
    ki_ir *ir = s->ir;
    kn_uop *from = scratch, *to = scratch + u->nsrc;
    uint32_t n = 0;
    for (uint32_t k = 1; k < u->nsrc; k++) {
        if (u->src[k]->op != KN_RANGE || !ki_is_loop(u->src[k])) continue;
        kn_uop o = owner[ki_scope_rank(s, u->src[k])];
        if (o == u || one_loop(s, o, u)) continue;
        from[n] = src[k];
        to[n] = ki_range_make(ir, ir->next_range, (kn_axis)src[k]->arg.range.axis, src[k]->src[0]);
        if (!to[n]) return NULL;
        n++;
    }
    if (n && !ki_substitute_all(ir, src, u->nsrc, from, to, n)) return NULL;
    return ki_with_src(ir, u, src);
}

static kn_uop rebuild(const ki_scope *s, kn_uop *owner) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->node[i]->nsrc > most) most = s->node[i]->nsrc;
    kn_uop *map = ki_calloc(s->n, sizeof *map), *src = ki_calloc((size_t)most * 3, sizeof *src), result = NULL;
    bool ok = map && src;
    if (!ok) ki_fail(s->ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; i < s->n && ok; i++) {
        kn_uop u = s->node[i];
        for (uint32_t k = 0; k < u->nsrc; k++) src[k] = map[s->at[u->src[k]->id]];
        bool closes = u->op == KN_END || u->op == KN_REDUCE;
        map[i] = closes ? rename_loops(s, u, src, owner, src + most) : ki_with_src(s->ir, u, src);
        ok = map[i] != NULL;
    }
    if (ok) result = map[s->n - 1];
    ki_free(map);
    ki_free(src);
    return result;
}

kn_uop ki_unshare_loops(ki_ir *ir, kn_uop sink) {
    ki_scope s;
    kn_uop result = NULL, *owner = NULL;
    if (ki_scope_open(&s, ir, sink)) {
        owner = ki_calloc(s.nrange + 1, sizeof *owner);
        if (!owner) ki_fail(ir->env, KI_E_NOMEM);
        else result = find_owners(&s, owner) ? rebuild(&s, owner) : sink;
    }
    ki_free(owner);
    ki_scope_close(&s);
    return result;
}
