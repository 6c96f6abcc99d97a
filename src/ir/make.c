/* make.c: makers for the common cases, on top of ki_make. NULL in, NULL out. */
#include "ir/history.h"

#include <stdio.h>
#include <string.h>

#define NOARG ((kn_arg){.bits = 0})

kn_uop ki_op0(ki_ir *ir, kn_op op) { return ki_make(ir, op, KN_VOID, NULL, 0, NOARG, 0); }
kn_uop ki_op1(ki_ir *ir, kn_op op, kn_uop a) { return ki_make(ir, op, KN_VOID, &a, 1, NOARG, 0); }
kn_uop ki_op2(ki_ir *ir, kn_op op, kn_uop a, kn_uop b) {
    return ki_make(ir, op, KN_VOID, (kn_uop[]){a, b}, 2, NOARG, 0);
}
kn_uop ki_op3(ki_ir *ir, kn_op op, kn_uop a, kn_uop b, kn_uop c) {
    return ki_make(ir, op, KN_VOID, (kn_uop[]){a, b, c}, 3, NOARG, 0);
}
kn_uop ki_opn(ki_ir *ir, kn_op op, const kn_uop *src, uint32_t nsrc) {
    return ki_make(ir, op, KN_VOID, src, nsrc, NOARG, 0);
}

kn_uop ki_after(ki_ir *ir, kn_uop memory, const kn_uop *dep, uint32_t n) {
    enum { FEW = 64 };
    kn_uop few[FEW], *src = few;
    if (!memory || n == 0) return memory;
    uint32_t m = memory->op == KN_AFTER ? memory->nsrc : 1;
    if (m + n > FEW && !(src = ki_malloc((m + n) * sizeof *src))) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    memcpy(src, memory->op == KN_AFTER ? memory->src : &memory, m * sizeof *src);
    memcpy(src + m, dep, n * sizeof *src);
    kn_uop after = ki_opn(ir, KN_AFTER, src, m + n);
    if (src != few) ki_free(src);
    return after;
}

/* u over these as many sources has u's dtype, type and bounds: they are derived from what u's own sources share with these. */
static bool derives_alike(kn_uop u, const kn_uop *src) {
    bool known = ki_is_elementwise((kn_op)u->op) ? u->op != KN_WHERE
                                                 : u->op == KN_INDEX || u->op == KN_LOAD || u->op == KN_STORE;
    for (uint32_t k = 0; k < u->nsrc && known; k++) {
        kn_uop a = u->src[k], b = src[k];
        known = a == b || (b && a->dtype == b->dtype && a->type == b->type && a->flags == b->flags &&
                           a->lo.i == b->lo.i && a->hi.i == b->hi.i);
    }
    return known;
}

kn_uop ki_with_srcs(ki_ir *ir, kn_uop u, const kn_uop *src, uint32_t nsrc) {
    if (!u) return NULL;
    if (nsrc == u->nsrc) {
        uint32_t k = 0;
        while (k < nsrc && src[k] == u->src[k]) k++;
        if (k == nsrc) return u;
    }
    kn_uop v = nsrc == u->nsrc && derives_alike(u, src)
                   ? ki_make_as(ir, u, src, u->arg, u->type, u->tag)
                   : ki_make(ir, (kn_op)u->op, (kn_dtype)u->dtype, src, nsrc, u->arg, u->tag);
    return ki_like(ir, v, ir, u);
}
kn_uop ki_with_src(ki_ir *ir, kn_uop u, const kn_uop *src) { return u ? ki_with_srcs(ir, u, src, u->nsrc) : NULL; }
static kn_uop with(ki_ir *ir, kn_uop u, kn_arg arg, uint32_t tag) {
    return ki_like(ir, ki_make(ir, (kn_op)u->op, (kn_dtype)u->dtype, u->src, u->nsrc, arg, tag), ir, u);
}
kn_uop ki_with_arg(ki_ir *ir, kn_uop u, kn_arg arg) { return u ? with(ir, u, arg, u->tag) : NULL; }
kn_uop ki_with_tag(ki_ir *ir, kn_uop u, uint32_t tag) { return u ? with(ir, u, u->arg, tag) : NULL; }

kn_uop ki_const_bits(ki_ir *ir, kn_dtype t, uint64_t bits) {
    return ki_make(ir, KN_CONST, t, NULL, 0, (kn_arg){.bits = bits}, 0);
}
kn_uop ki_const_int(ki_ir *ir, kn_dtype t, int64_t v) {
    return ki_const_bits(ir, t, ki_is_float(t) ? ki_bits_from_f64(t, (double)v) : ki_bits_wrap(t, v));
}
kn_uop ki_const_float(ki_ir *ir, kn_dtype t, double v) { return ki_const_bits(ir, t, ki_bits_from_f64(t, v)); }
kn_uop ki_index(ki_ir *ir, int64_t v) { return ki_const_bits(ir, KN_IDX, (uint64_t)v); }

kn_uop ki_cast(ki_ir *ir, kn_uop a, kn_dtype t) {
    return a && a->dtype != t ? ki_make(ir, KN_CAST, t, &a, 1, NOARG, 0) : a;
}
kn_uop ki_bitcast(ki_ir *ir, kn_uop a, kn_dtype t) {
    return a && a->dtype != t ? ki_make(ir, KN_BITCAST, t, &a, 1, NOARG, 0) : a;
}

kn_uop ki_param_make(ki_ir *ir, int slot, kn_dtype t, kn_addrspace as, unsigned device, const char *name,
                     const int64_t *lohi, kn_uop shape) {
    size_t len = name ? strlen(name) : 0;
    if (!shape && ir->env->err != KI_E_NONE) return NULL; /* a shape that could not be made, perhaps */
    _Alignas(16) char raw[sizeof(ki_param) + 256] = {0};
    ki_param *k = (ki_param *)raw;
    if (len > 255) return ki_fail(ir->env, KI_E_ARG_INVALID, "param", "a name has at most 255 bytes"), NULL;
    k->slot = slot;
    k->device = (uint16_t)device;
    k->dtype = (uint8_t)t;
    k->addrspace = (uint8_t)as;
    k->len = (uint32_t)len;
    if (lohi) k->bounded = 1, k->lo = lohi[0], k->hi = lohi[1];
    if (len) memcpy(k->name, name, len);
    const void *p = ki_intern(ir, k, sizeof(ki_param) + len + 1);
    return p ? ki_make(ir, KN_PARAM, t, &shape, shape != NULL, (kn_arg){.p = p}, 0) : NULL;
}

kn_uop ki_buffer_make(ki_ir *ir, uint32_t id, int64_t size, kn_dtype t, kn_addrspace as, unsigned device) {
    ki_buffer b;
    memset(&b, 0, sizeof b);
    b.id = id, b.device = (uint16_t)device, b.dtype = (uint8_t)t, b.addrspace = (uint8_t)as, b.size = size;
    const void *p = ki_intern(ir, &b, sizeof b);
    return p ? ki_make(ir, KN_BUFFER, t, NULL, 0, (kn_arg){.p = p}, 0) : NULL;
}

kn_uop ki_range_make(ki_ir *ir, uint32_t id, kn_axis axis, kn_uop bound) {
    kn_arg a = {.bits = 0};
    a.range.id = id;
    a.range.axis = (uint8_t)axis;
    return ki_make(ir, KN_RANGE, KN_IDX, &bound, 1, a, 0);
}

kn_uop ki_shape_src(ki_ir *ir, const int64_t *dim, unsigned rank) {
    kn_uop s[KI_MAX_RANK];
    if (rank > KI_MAX_RANK) return ki_fail(ir->env, KI_E_RANK_LIMIT, "shape", rank, KI_MAX_RANK), NULL;
    for (unsigned k = 0; k < rank; k++) s[k] = ki_index(ir, dim[k]);
    return ki_opn(ir, KN_STACK, s, rank);
}

kn_uop ki_stack_dims(ki_ir *ir, const ki_dim *dim, unsigned rank) {
    kn_uop s[KI_MAX_RANK];
    if (rank > KI_MAX_RANK) return ki_fail(ir->env, KI_E_RANK_LIMIT, "shape", rank, KI_MAX_RANK), NULL;
    for (unsigned k = 0; k < rank; k++) s[k] = dim[k].sym ? dim[k].sym : ki_index(ir, dim[k].n);
    return ki_opn(ir, KN_STACK, s, rank);
}
kn_uop ki_shape_of(ki_ir *ir, kn_uop u) { return u ? ki_stack_dims(ir, u->type->dim, u->type->rank) : NULL; }

/* A shape argument as dims; an unchanged one keeps its symbol. */
static bool same_dims(kn_uop a, const int64_t *dim, unsigned rank) {
    if (!a || a->type->rank != rank || a->type->symbolic) return false;
    for (unsigned k = 0; k < rank; k++)
        if (a->type->dim[k].n != dim[k]) return false;
    return true;
}

kn_uop ki_reshape(ki_ir *ir, kn_uop a, const int64_t *dim, unsigned rank) {
    return same_dims(a, dim, rank) ? a : ki_op2(ir, KN_RESHAPE, a, ki_shape_src(ir, dim, rank));
}
kn_uop ki_expand(ki_ir *ir, kn_uop a, const int64_t *dim, unsigned rank) {
    return same_dims(a, dim, rank) ? a : ki_op2(ir, KN_EXPAND, a, ki_shape_src(ir, dim, rank));
}

static kn_uop with_ints(ki_ir *ir, kn_op op, kn_uop a, const int64_t *v, unsigned n) {
    _Alignas(16) char raw[sizeof(ki_ints) + KI_MAX_RANK * sizeof *v] = {0};
    ki_ints *p = (ki_ints *)raw;
    if (!a) return NULL;
    if (n > KI_MAX_RANK) return ki_fail(ir->env, KI_E_RANK_LIMIT, ki_ops[op].name, n, KI_MAX_RANK), NULL;
    p->n = n;
    for (unsigned i = 0; i < n; i++) p->v[i] = v[i];
    const void *q = ki_intern(ir, p, sizeof(ki_ints) + n * sizeof *v);
    return q ? ki_make(ir, op, KN_VOID, &a, 1, (kn_arg){.p = q}, 0) : NULL;
}

kn_uop ki_permute(ki_ir *ir, kn_uop a, const int64_t *order, unsigned rank) {
    bool identity = true;
    for (unsigned k = 0; k < rank; k++) identity &= order[k] == (int64_t)k;
    return identity && a && a->type->rank == rank ? a : with_ints(ir, KN_PERMUTE, a, order, rank);
}
kn_uop ki_flip(ki_ir *ir, kn_uop a, const int64_t *axes, unsigned n) {
    return n == 0 ? a : with_ints(ir, KN_FLIP, a, axes, n);
}

static kn_uop window(ki_ir *ir, kn_op op, kn_uop a, const int64_t *offset, const int64_t *dim) {
    if (!a) return NULL;
    unsigned rank = a->type->rank;
    if (same_dims(a, dim, rank)) {
        bool still = true;
        for (unsigned k = 0; k < rank; k++) still &= offset[k] == 0;
        if (still) return a;
    }
    return ki_op3(ir, op, a, ki_shape_src(ir, offset, rank), ki_shape_src(ir, dim, rank));
}
kn_uop ki_pad(ki_ir *ir, kn_uop a, const int64_t *offset, const int64_t *dim) {
    return window(ir, KN_PAD, a, offset, dim);
}
kn_uop ki_shrink(ki_ir *ir, kn_uop a, const int64_t *offset, const int64_t *dim) {
    return window(ir, KN_SHRINK, a, offset, dim);
}

kn_uop ki_reduce(ki_ir *ir, kn_uop a, kn_op op, uint32_t axes) {
    kn_arg r = {.bits = 0};
    r.reduce.op = (uint8_t)op;
    r.reduce.axes = axes;
    return axes ? ki_make(ir, KN_REDUCE, KN_VOID, &a, 1, r, 0) : a;
}

const ki_bytes *ki_text_arg(ki_ir *ir, const char *s, size_t n) {
    _Alignas(ki_bytes) char small[96];
    void *room = sizeof(ki_bytes) + n + 1 <= sizeof small ? small : ki_malloc(sizeof(ki_bytes) + n + 1);
    ki_bytes *b = room;
    if (!b) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    b->n = n;
    if (n) memcpy(b->s, s, n);
    b->s[n] = 0;
    const ki_bytes *p = ki_intern(ir, b, sizeof *b + n + 1);
    if (room != small) ki_free(room);
    return p;
}

kn_uop ki_str_op(ki_ir *ir, kn_op op, kn_dtype t, const char *s, size_t n, const kn_uop *src, uint32_t nsrc) {
    const ki_bytes *p = ki_text_arg(ir, s, n);
    return p ? ki_make(ir, op, t, src, nsrc, (kn_arg){.p = p}, 0) : NULL;
}

const char *ki_shape_text(const ki_type *t, char *buf, size_t n) {
    size_t at = 0;
#define PUT(...) (at < n ? at += (size_t)snprintf(buf + at, n - at, __VA_ARGS__) : 0)
    PUT("(");
    for (unsigned k = 0; k < t->rank; k++) {
        if (t->dim[k].sym) PUT("%s<=%lld", k ? ", " : "", (long long)t->dim[k].n);
        else PUT("%s%lld", k ? ", " : "", (long long)t->dim[k].n);
    }
    PUT(t->rank == 1 ? ",)" : ")");
#undef PUT
    return buf;
}
