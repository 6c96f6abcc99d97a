/* batch.c: a graph again with one more axis, in front: what it makes of many values of some of its leaves at once.
 *
 * Elementwise ops go element by element; the axes of movements and reductions are one further; what does not depend on the leaves is
 * repeated, which costs nothing. So one graph of N places takes the place of N graphs. */
#include "tensor/build.h"

#include <stdint.h>
#include <string.h>

typedef struct batch {
    kn_ctx *k;
    ki_map *map; /* a node that has the axis -> it with it */
    kn_uop n;    /* the axis's length */
} batch;

static ki_dim length(const batch *b) {
    return b->n->op == KN_CONST ? (ki_dim){b->n->arg.i, NULL} : (ki_dim){b->n->hi.i, b->n};
}

/* u with the axis in front, repeated where it has none. As an operand of `user` a scalar takes its shape. */
static kn_uop with_axis(const batch *b, kn_uop u, kn_uop user) {
    kn_uop x = ki_map_get(b->map, u);
    bool has = x != NULL, scalar = !ki_rank(u) && ki_is_elementwise((kn_op)user->op);
    ki_shape of = ki_shape_like(scalar ? user : u), s = {.n = of.n + 1};
    if (has && !(scalar && of.n)) return x;
    if (s.n > KI_MAX_RANK) return ki_none(ki_fail(&b->k->env, KI_E_RANK_TOO_LARGE, b->k->fn, KI_MAX_RANK));
    for (unsigned i = 0; i < of.n; i++) s.d[i + 1] = scalar ? (ki_dim){1, NULL} : of.d[i];
    s.d[0] = has ? length(b) : (ki_dim){1, NULL};
    x = ki_t_reshape_to(b->k, has ? x : u, &s);
    memcpy(s.d + 1, of.d, of.n * sizeof *of.d);
    s.d[0] = length(b);
    return x ? ki_t_expand_to(b->k, x, &s) : NULL;
}

/* The list first, s... */
static kn_uop after_one(ki_ir *ir, kn_uop first, kn_uop s) {
    kn_uop v[KI_MAX_RANK + 1] = {first};
    if (s->nsrc >= KI_MAX_RANK)
        return ki_fail(ir->env, KI_E_RANK_LIMIT, "a value for each of many", s->nsrc + 1, KI_MAX_RANK), NULL;
    memcpy(v + 1, s->src, s->nsrc * sizeof *v);
    return ki_opn(ir, KN_STACK, v, s->nsrc + 1);
}

/* Axes of a permute or a flip. */
static kn_uop moved_axes(const batch *b, kn_uop u) {
    _Alignas(ki_ints) unsigned char room[sizeof(ki_ints) + (KI_MAX_RANK + 1) * sizeof(int64_t)] = {0};
    ki_ints *p = (ki_ints *)room;
    const ki_ints *of = u->arg.ints;
    if (u->op == KN_PERMUTE) p->v[p->n++] = 0;
    for (uint32_t i = 0; i < of->n && p->n <= KI_MAX_RANK; i++) p->v[p->n++] = of->v[i] + 1;
    kn_uop x = ki_map_get(b->map, u->src[0]);
    const void *arg = ki_intern(&b->k->ir, p, sizeof *p + p->n * sizeof *p->v);
    return arg ? ki_make(&b->k->ir, (kn_op)u->op, KN_VOID, &x, 1, (kn_arg){.p = arg}, 0) : NULL;
}

/* Each source with the axis, as the node has it. */
static kn_uop each(const batch *b, kn_uop u) {
    kn_uop small[8], *src = u->nsrc <= 8 ? small : ki_malloc(u->nsrc * sizeof *src), v = NULL;
    if (!src) return ki_fail(&b->k->env, KI_E_NOMEM), NULL;
    bool ok = true;
    for (uint32_t i = 0; i < u->nsrc && ok; i++) {
        bool scalar = ki_rank(u->src[i]) == 0 && !ki_map_get(b->map, u->src[i]) && ki_is_elementwise((kn_op)u->op);
        ok = (src[i] = scalar ? u->src[i] : with_axis(b, u->src[i], u)) != NULL;
    }
    if (ok) v = ki_with_src(&b->k->ir, u, src);
    if (src != small) ki_free(src);
    return v;
}

static kn_uop with_batch(const batch *b, kn_uop u) {
    kn_ctx *k = b->k;
    ki_ir *ir = &k->ir;
    kn_uop x = ki_map_get(b->map, u->src[0]), v;
    kn_arg arg = u->arg;
    if (ki_is_elementwise((kn_op)u->op)) return each(b, u);
    switch ((kn_op)u->op) {
    case KN_PERMUTE:
    case KN_FLIP: return moved_axes(b, u);
    case KN_RESHAPE:
    case KN_EXPAND: return (v = after_one(ir, b->n, u->src[1])) ? ki_op2(ir, (kn_op)u->op, x, v) : NULL;
    case KN_PAD:
    case KN_SHRINK:
        v = after_one(ir, b->n, u->src[2]);
        return v ? ki_op3(ir, (kn_op)u->op, x, after_one(ir, ki_index(ir, 0), u->src[1]), v) : NULL;
    case KN_STACK: return (v = each(b, u)) ? ki_t_swap(k, v, 0, 1) : NULL;
    case KN_REDUCE: arg.reduce.axes <<= 1; return u->nsrc == 1 ? ki_make(ir, KN_REDUCE, KN_VOID, &x, 1, arg, 0) : NULL;
    case KN_BITCAST:
    case KN_LOAD: return ki_make(ir, (kn_op)u->op, (kn_dtype)u->dtype, &x, 1, arg, 0);
    case KN_CONTIGUOUS:
    case KN_CONTIGUOUS_BACKWARD:
    case KN_DETACH: return each(b, u);
    default: return FAIL(KI_E_NO_GRADIENT, k->fn, ki_ops[u->op].name, ""); /* no rule makes one */
    }
}

bool ki_batched(kn_ctx *k, kn_uop *root, size_t nroot, const kn_uop *from, const kn_uop *to, size_t n, kn_uop size) {
    batch b = {.k = k, .n = size};
    kn_uop *order = NULL;
    int64_t count = -1;
    bool ok = ki_inline_functions(&k->ir, root, nroot, true) &&
              (count = ki_toposort(&k->ir, root, nroot, &order)) >= 0 && (b.map = ki_map_take(&k->ir)) != NULL;
    for (size_t i = 0; i < n && ok; i++) ki_map_set(b.map, from[i], to[i]);
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop u = order[i], v = NULL;
        bool has = false;
        for (uint32_t s = 0; s < u->nsrc && !ki_map_get(b.map, u); s++) has |= ki_map_get(b.map, u->src[s]) != NULL;
        if (!has) continue;
        v = u->op == KN_REMAT ? with_axis(&b, u->src[0], u)
                              : with_batch(&b, u); /* what a REMAT waits for is not there */
        if (!(ok = v != NULL)) break;
        ki_map_set(b.map, u, v);
    }
    for (size_t i = 0; i < nroot && ok; i++) ok = (root[i] = with_axis(&b, root[i], root[i])) != NULL;
    if (b.map) ki_map_give(&k->ir, b.map);
    ki_free(order);
    return ok;
}
