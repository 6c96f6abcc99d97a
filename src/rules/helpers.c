/* helpers.c: host functions that every rule text may name without a callback. Pure, on arguments alone. */
#include "rules/helpers.h"

#include <string.h>

bool ki_is_pow2(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    *out = (ki_val){.kind = KI_V_BOOL, .i = v[0].i > 0 && (v[0].i & (v[0].i - 1)) == 0};
    return true;
}

bool ki_log2_exact(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    ki_int128 i = v[0].i, k = 0;
    if (i <= 0 || (i & (i - 1))) return false;
    while (i > 1) i >>= 1, k++;
    *out = (ki_val){.kind = KI_V_INT, .i = k};
    return true;
}

bool ki_is_loaded(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    bool loaded = true;
    for (uint32_t j = 0; j < v[0].n && loaded; j++) {
        kn_uop u = v[0].nodes[j];
        if (u->op != KN_INDEX) continue;
        u = u->src[0];
        while (u->op == KN_AFTER || u->op == KN_SLICE) u = u->src[0];
        loaded = u->op != KN_BUFFER && u->op != KN_PARAM;
    }
    *out = (ki_val){.kind = KI_V_BOOL, .i = loaded};
    return true;
}

/* Index k of the permuted value's source: i[j] where p[j] = k; in a mapped rest, k is the position. */
bool ki_unpermute(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)n;
    for (uint32_t j = 0; j < v[0].ints->n; j++) {
        if (v[0].ints->v[j] != (int64_t)m->at) continue;
        if (j >= v[1].n) return false;
        *out = (ki_val){.kind = KI_V_NODE, .node = v[1].nodes[j]};
        return true;
    }
    return false;
}

/* permute(permute(x; p); q) = permute(x; compose(p, q)). */
bool ki_compose_order(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)n;
    _Alignas(ki_ints) unsigned char room[sizeof(ki_ints) + KI_MAX_RANK * sizeof(int64_t)] = {0};
    ki_ints *r = (ki_ints *)room;
    if (v[0].ints->n != v[1].ints->n || v[0].ints->n > KI_MAX_RANK) return false;
    r->n = v[0].ints->n;
    for (uint32_t j = 0; j < r->n; j++) {
        int64_t at = v[1].ints->v[j];
        if (at < 0 || at >= r->n) return false;
        r->v[j] = v[0].ints->v[at];
    }
    *out = (ki_val){.kind = KI_V_INTS, .ints = ki_intern(m->ir, r, sizeof *r + r->n * sizeof *r->v)};
    return out->ints != NULL;
}

bool ki_is_identity(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    (void)m, (void)n;
    bool same = true;
    for (uint32_t j = 0; j < v[0].ints->n; j++) same &= v[0].ints->v[j] == (int64_t)j;
    *out = (ki_val){.kind = KI_V_BOOL, .i = same};
    return true;
}

ki_rule_fn ki_rule_helper(const char *symbol) {
    static const struct {
        const char *symbol;
        ki_rule_fn fn;
    } table[] = {
        {"ki_is_pow2", ki_is_pow2},     {"ki_log2_exact", ki_log2_exact},       {"ki_is_loaded", ki_is_loaded},
        {"ki_unpermute", ki_unpermute}, {"ki_compose_order", ki_compose_order}, {"ki_is_identity", ki_is_identity}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (strcmp(table[k].symbol, symbol) == 0) return table[k].fn;
    return NULL;
}
