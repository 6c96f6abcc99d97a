/* masks.c: truths of native kernels below AVX-512, where no register holds one. A truth about index scalars is 0 or 1 in a
 * general register and stays; every other is to be the sign of a lane, `m < 0` (select_x86.kr). What rules on single nodes
 * cannot see is done here: which of the two a truth is, and where one becomes the other or bytes in memory.
 *
 *   a truth of index scalars among data     0 - cast(cast(g; index); i32) < 0    cast(g; index) is g itself
 *   a truth of data among index scalars     cast(where(t, 1, 0); index) != 0
 *   LOAD of bool                            0 - cast(load; i8) < 0               the cast is of bytes that are 0 or 1: no code
 *   STORE of a truth of data                cast(where(t, 1, 0); bool)           of u8: no code
 *   STACK of truths                         stack(where(t, -1, 0)...) < 0
 * A gate of LOAD and STORE stays `m < 0`, the one place where that is left. */
#include "ir/history.h"
#include "stages/5_select/select.h"

typedef struct masks {
    ki_ir *ir;
    kn_uop *map;      /* by id: what stands for the node */
    uint8_t *general; /* by id: a truth in a general register */
} masks;

static kn_uop negative(const masks *m, kn_uop v) {
    return v ? ki_op2(m->ir, KN_CMPLT, v, ki_const_int(m->ir, (kn_dtype)v->dtype, 0)) : NULL;
}

/* One of two numbers of dtype t. */
static kn_uop number(const masks *m, kn_uop truth, kn_dtype t, int64_t yes) {
    return ki_op3(m->ir, KN_WHERE, truth, ki_const_int(m->ir, t, yes), ki_const_int(m->ir, t, 0));
}

/* Source k of u as a truth of data. */
static kn_uop as_sign(const masks *m, kn_uop u, uint32_t k) {
    kn_uop s = u->src[k], v = m->map[s->id];
    if (!m->general[s->id]) return v;
    if (v->op == KN_CONST) return negative(m, ki_const_int(m->ir, KN_I32, v->arg.i ? -1 : 0));
    kn_uop bit = ki_cast(m->ir, ki_cast(m->ir, v, KN_IDX), KN_I32);
    return negative(m, ki_op2(m->ir, KN_SUB, ki_const_int(m->ir, KN_I32, 0), bit));
}

/* The same as one of index scalars. */
static kn_uop as_general(const masks *m, kn_uop u, uint32_t k) {
    kn_uop s = u->src[k], v = m->map[s->id];
    if (m->general[s->id]) return v;
    return ki_op2(m->ir, KN_CMPNE, ki_cast(m->ir, number(m, v, KN_I32, 1), KN_IDX), ki_const_int(m->ir, KN_IDX, 0));
}

/* As bytes of dtype bool, for memory. */
static kn_uop as_bytes(const masks *m, kn_uop u, uint32_t k) {
    kn_uop v = as_sign(m, u, k);
    return v ? ki_cast(m->ir, number(m, v, KN_U8, 1), KN_BOOL) : NULL;
}

static bool is_general(const masks *m, kn_uop u) {
    if (u->dtype != KN_BOOL || ki_rank(u)) return false;
    if (u->op == KN_CONST || (u->op == KN_PARAM && !u->arg.param->addrspace && u->nsrc == 0)) return true;
    bool all = ki_is_elementwise((kn_op)u->op) && u->nsrc;
    for (uint32_t k = 0; k < u->nsrc && all; k++)
        all = u->src[k]->dtype == KN_IDX || (u->src[k]->dtype == KN_BOOL && m->general[u->src[k]->id]);
    return all;
}

/* What source k of u is to be. */
static kn_uop source(const masks *m, kn_uop u, uint32_t k) {
    kn_uop s = u->src[k], v = m->map[s->id];
    if (s->dtype != KN_BOOL) return v;
    bool scalar = m->general[s->id];
    switch (u->op) {
    case KN_STORE: return k != 1 || (scalar && !ki_rank(u->src[0])) ? v : as_bytes(m, u, k);
    case KN_LOAD: return k != 1 || s->op == KN_CONST ? v : as_bytes(m, u, k);
    case KN_STACK: return number(m, as_sign(m, u, k), KN_I8, -1);
    case KN_CAST: return u->dtype == KN_IDX ? as_general(m, u, k) : as_sign(m, u, k);
    case KN_WHERE:
        if (k == 0 && (u->dtype == KN_IDX || m->general[u->id])) return as_general(m, u, k);
        return m->general[u->id] ? v : as_sign(m, u, k);
    default: break;
    }
    if (!ki_is_elementwise((kn_op)u->op) || m->general[u->id]) return v;
    return as_sign(m, u, k);
}

static kn_uop one(const masks *m, kn_uop u, kn_uop *src) {
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!(src[k] = source(m, u, k))) return NULL;
    kn_uop v = ki_with_src(m->ir, u, src);
    if (!v || u->dtype != KN_BOOL) return v;
    if (u->op == KN_STACK) return negative(m, ki_opn(m->ir, KN_STACK, src, u->nsrc));
    if (u->op == KN_LOAD)
        return negative(m, ki_op2(m->ir, KN_SUB, ki_const_int(m->ir, KN_I8, 0), ki_cast(m->ir, v, KN_I8)));
    return v;
}

kn_uop ki_masks_as_signs(ki_ir *ir, kn_uop sink) {
    kn_uop *order, *src = NULL, out = NULL;
    int64_t n = ki_toposort(ir, &sink, 1, &order);
    if (n < 0) return NULL;
    masks m = {
        .ir = ir, .map = ki_calloc((size_t)sink->id + 1, sizeof *m.map), .general = ki_calloc((size_t)sink->id + 1, 1)};
    uint32_t most = 1;
    for (int64_t i = 0; i < n; i++)
        if (order[i]->nsrc > most) most = order[i]->nsrc;
    src = ki_calloc(most, sizeof *src);
    bool ok = m.map && m.general && src;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; i < n && ok; i++) {
        kn_uop u = order[i];
        m.general[u->id] = is_general(&m, u);
        uint32_t since = ir->n;
        ok = (m.map[u->id] = one(&m, u, src)) != NULL;
        ki_made_for(ir, u, since);
    }
    if (ok) out = m.map[sink->id];
    ki_free(order), ki_free(src), ki_free(m.map), ki_free(m.general);
    return out;
}
