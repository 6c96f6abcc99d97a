/* lanes.c: which lane axis becomes vector registers, and how it is cut.
 *
 * An axis is worth as much as the memory accesses it makes contiguous, less those it would turn into gathers. The
 * stride of every index along every axis is found in one ascending sweep. */
#include "stages/5_select/lanes.h"

bool ki_is_storage(kn_uop u) {
    while (u->op == KN_AFTER) u = u->src[0];
    return u->op == KN_PARAM || u->op == KN_BUFFER;
}

bool ki_has_lanes(kn_uop u) { return ki_rank(u) > 0 && u->dtype != KN_VOID && !ki_is_storage(u) && u->op != KN_STACK; }

static bool is_const_list(kn_uop u) {
    if (u->op != KN_STACK || !u->nsrc) return false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!ki_is_const(u->src[k])) return false;
    return true;
}

/* Whether a list of constants, row-major over u's axes, grows evenly along axis k. */
static bool even_along(kn_uop u, const kn_uop *c, unsigned k, int64_t *step) {
    int64_t inner = 1, n = ki_dim_n(u, k), total = ki_numel(u);
    for (unsigned j = k + 1; j < ki_rank(u); j++) inner *= ki_dim_n(u, j);
    *step = c[inner]->arg.i - c[0]->arg.i;
    for (int64_t i = 0; i + inner < total; i++) {
        if (i / inner % n == n - 1) continue;
        if (c[i + inner]->arg.i - c[i]->arg.i != *step) return false;
    }
    return true;
}

static void list_stride(kn_uop u, kn_uop list, int64_t *coef, uint32_t *odd) {
    bool known = is_const_list(list) && ki_numel(u) == (int64_t)list->nsrc;
    for (unsigned k = 0; k < ki_rank(u); k++) {
        if (ki_dim_n(u, k) == 1) continue;
        if (!known || !even_along(u, list->src, k, &coef[k])) coef[k] = 0, *odd |= 1u << k;
    }
}

static void all_odd(kn_uop u, uint32_t *odd) {
    for (unsigned k = 0; k < ki_rank(u); k++)
        if (ki_dim_n(u, k) > 1) *odd |= 1u << k;
}

static void strides(const ki_lanes *l, const uint32_t *at, kn_uop u, int64_t *coef, uint32_t *odd) {
    if (!ki_rank(u) || !ki_is_int((kn_dtype)u->dtype)) return;
    uint32_t a = u->nsrc > 0 ? at[u->src[0]->id] : 0, b = u->nsrc > 1 ? at[u->src[1]->id] : 0;
    const int64_t *ca = l->coef + (size_t)a * l->rank, *cb = l->coef + (size_t)b * l->rank;
    switch ((kn_op)u->op) {
    case KN_STACK: list_stride(u, u, coef, odd); return;
    case KN_RESHAPE:
        if (u->src[0]->op == KN_STACK) list_stride(u, u->src[0], coef, odd);
        else all_odd(u, odd);
        return;
    case KN_CAST:
    case KN_AFTER:
        if (!ki_is_int((kn_dtype)u->src[0]->dtype)) break;
        for (unsigned k = 0; k < l->rank; k++) coef[k] = ca[k];
        *odd = l->odd[a];
        return;
    case KN_ADD:
    case KN_SUB:
        for (unsigned k = 0; k < l->rank; k++)
            coef[k] = (int64_t)((uint64_t)ca[k] + (uint64_t)(u->op == KN_ADD ? cb[k] : -cb[k]));
        *odd = l->odd[a] | l->odd[b];
        return;
    case KN_MUL: {
        kn_uop c = ki_is_const(u->src[1]) ? u->src[1] : ki_is_const(u->src[0]) ? u->src[0] : NULL;
        if (!c) break;
        const int64_t *x = c == u->src[1] ? ca : cb;
        for (unsigned k = 0; k < l->rank; k++) coef[k] = (int64_t)((uint64_t)x[k] * (uint64_t)c->arg.i);
        *odd = l->odd[c == u->src[1] ? a : b];
        return;
    }
    default: break;
    }
    all_odd(u, odd);
}

/* What an access is worth if axis k is the vector: contiguous good, gather bad. */
static int64_t worth(const ki_lanes *l, const uint32_t *at, kn_uop access, unsigned k) {
    kn_uop index = access->src[0];
    while (index->op == KN_AFTER) index = index->src[0];
    if (index->op != KN_INDEX || index->nsrc != 2 || !ki_is_storage(index->src[0])) return 0;
    kn_uop buf = index->src[0], i = index->src[1];
    while (buf->op == KN_AFTER) buf = buf->src[0];
    if (buf->op == KN_BUFFER && buf->arg.buffer->addrspace == KN_REG) return 0;
    if (ki_rank(i) <= k || ki_dim_n(i, k) == 1) return 0;
    uint32_t n = at[i->id];
    bool odd = l->odd[n] >> k & 1;
    if (!odd && l->coef[(size_t)n * l->rank + k] == 1) return access->op == KN_STORE ? 3 : 2;
    return -4;
}

static unsigned lane_bytes(kn_dtype t) {
    if (t == KN_BOOL || t == KN_IDX || t == KN_VOID) return 1;
    unsigned bytes = (unsigned)ki_itemsize(t);
    return ki_is_float(t) && bytes < 4 ? 4 : bytes; /* small floats compute as f32 */
}

static void cut(ki_lanes *l, int64_t lanes) {
    uint32_t at = 0, left = (uint32_t)l->size[l->vector];
    while (left && l->nchunk < KI_MAX_CHUNK) {
        while (lanes > left) lanes /= 2;
        l->chunk[l->nchunk++] = (ki_lane_chunk){at, (uint32_t)lanes};
        at += (uint32_t)lanes;
        left -= (uint32_t)lanes;
    }
    if (left) l->vector = -1; /* absurdly long: scalars */
}

bool ki_find_lanes(ki_ir *ir, const ki_target *t, const kn_uop *node, uint32_t n, const uint32_t *at, ki_lanes *l) {
    *l = (ki_lanes){.vector = -1};
    unsigned wide = 1;
    for (uint32_t i = 0; i < n; i++)
        if (ki_has_lanes(node[i]) && ki_rank(node[i]) > l->rank) l->rank = ki_rank(node[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (!ki_has_lanes(node[i])) continue;
        if (ki_rank(node[i]) != l->rank)
            return ki_fail(ir->env, KI_E_SELECT_LANES, ki_ops[node[i]->op].name, ki_rank(node[i]), l->rank), false;
        for (unsigned k = 0; k < l->rank; k++)
            if (ki_dim_n(node[i], k) > l->size[k]) l->size[k] = ki_dim_n(node[i], k);
        unsigned b = lane_bytes((kn_dtype)node[i]->dtype);
        if (ki_numel(node[i]) > 1 && b > wide) wide = b;
    }
    if (!l->rank) return true;
    l->coef = ki_calloc((size_t)n * l->rank, sizeof *l->coef);
    l->odd = ki_calloc(n, sizeof *l->odd);
    if (!l->coef || !l->odd) return ki_fail(ir->env, KI_E_NOMEM), false;
    int64_t score[KI_MAX_RANK] = {0}, best = -1;
    for (uint32_t i = 0; i < n; i++) /* an axis that two ranges of different extent share stays unrolled */
        for (unsigned k = 0; ki_has_lanes(node[i]) && k < l->rank; k++)
            if (ki_dim_n(node[i], k) > 1 && ki_dim_n(node[i], k) != l->size[k]) score[k] = INT32_MIN;
    for (uint32_t i = 0; i < n; i++) {
        if (ki_rank(node[i]) == l->rank) strides(l, at, node[i], l->coef + (size_t)i * l->rank, &l->odd[i]);
        if (node[i]->op != KN_LOAD && node[i]->op != KN_STORE) continue;
        for (unsigned k = 0; k < l->rank; k++) score[k] += worth(l, at, node[i], k);
    }
    for (unsigned k = 0; k < l->rank; k++)
        if (l->size[k] >= 2 && score[k] >= best && score[k] >= 0) best = score[k], l->vector = (int)k;
    if (l->vector >= 0) cut(l, t->vector / wide >= 2 ? t->vector / wide : 2);
    return true;
}
