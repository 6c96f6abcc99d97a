/* eval_emit.c: the instructions of one kernel node. The order of nodes is eval_kernel.c's. */
#include "ir/eval_kernel.h"
#include "ir/scalar.h"

#include <string.h>

enum { WHOLE = 4096 };    /* a buffer stored or loaded without an index has at most so many elements */
enum { LANES = 1 << 24 }; /* a value has at most so many lanes */
#define FAR (INT64_C(1) << 56)

bool ki_comp_fail(ki_comp *c, kn_uop u, const char *why) {
    ki_fail(c->env, KI_E_EVAL_FORM, ki_ops[u->op].name, u->id, why);
    return false;
}

/* Room for one more element of a growing array; false: out of memory. */
static bool grow(ki_comp *c, void *array, size_t *cap, size_t n, size_t size) {
    return n < *cap || ki_array_grow(array, cap, n + 1, size) || (ki_fail(c->env, KI_E_NOMEM), false);
}

uint32_t ki_comp_slots(ki_comp *c, uint64_t lanes) {
    if (c->vm->nslot + lanes >= UINT32_MAX / 2) return ki_fail(c->env, KI_E_NOMEM), KI_NOSLOT;
    uint32_t s = c->vm->nslot;
    c->vm->nslot += (uint32_t)lanes;
    return s;
}

ki_instr *ki_comp_emit(ki_comp *c, ki_code_list *l, kn_uop u, ki_code code) {
    if (!grow(c, &l->v, &l->cap, l->n, sizeof *l->v)) return NULL;
    ki_instr *i = &l->v[l->n++];
    memset(i, 0, sizeof *i);
    i->code = (uint8_t)code;
    i->dtype = u->dtype;
    i->lanes = 1;
    i->dst = i->a = i->b = i->c = i->mem = KI_NOSLOT;
    i->op = u->op;
    i->node = u->id;
    return i;
}

static bool constant(ki_comp *c, uint32_t slot, uint64_t value) {
    if (slot == KI_NOSLOT || !grow(c, &c->vm->consts, &c->cap_const, c->vm->nconst, sizeof *c->vm->consts))
        return false;
    c->vm->consts[c->vm->nconst++] = (ki_fixed){slot, 0, value};
    return true;
}

/* ---- memory and leaves --------------------------------------------------------------------------------------- */

static bool add_mem(ki_comp *c, kn_uop u, ki_mem m) {
    size_t cap = c->cap_mem;
    bool ok = grow(c, &c->vm->mem, &cap, c->vm->nmem, sizeof *c->vm->mem);
    c->cap_mem = cap;
    if (!ok) return false;
    c->mem[ki_place(c, u)] = c->vm->nmem;
    c->vm->mem[c->vm->nmem++] = m;
    return true;
}

bool ki_comp_memory(ki_comp *c, kn_uop u) {
    uint32_t at = ki_place(c, u), s = u->nsrc ? c->mem[ki_place(c, u->src[0])] : KI_NOSLOT;
    ki_mem m = {.dtype = u->dtype, .space = KN_GLOBAL, .slot = KI_NOSLOT, .size = u->type->numel, .parent = KI_NOSLOT};
    c->mem[at] = KI_NOSLOT;
    switch ((kn_op)u->op) {
    case KN_PARAM:
        if (u->type->rank == 0) return true;
        if (u->arg.param->slot < 0) return ki_comp_fail(c, u, "a kernel's buffer has a slot");
        m.slot = (uint32_t)u->arg.param->slot;
        if (m.slot >= c->vm->nargs) {
            if (c->call) return ki_comp_fail(c, u, "the CALL has no argument for this slot");
            c->vm->nargs = m.slot + 1;
        }
        return add_mem(c, u, m);
    case KN_BUFFER:
        m.space = u->arg.buffer->addrspace;
        if (m.space == KN_GLOBAL) return ki_comp_fail(c, u, "a GLOBAL buffer is an argument of the kernel");
        return add_mem(c, u, m);
    case KN_SLICE:
        if (s == KI_NOSLOT) return true;
        if (u->src[1]->op != KN_CONST) return ki_comp_fail(c, u, "its offset is not constant");
        m.space = c->vm->mem[s].space;
        m.slot = c->vm->mem[s].slot;
        m.parent = s;
        if (ki_mul_overflow(u->src[1]->arg.i, (int64_t)ki_itemsize((kn_dtype)u->src[0]->dtype), &m.offset) ||
            ki_add_overflow(m.offset, c->vm->mem[s].offset, &m.offset) || m.offset < 0 || m.offset > FAR)
            return ki_comp_fail(c, u, "its offset is outside any memory");
        return add_mem(c, u, m);
    case KN_AFTER: c->mem[at] = s; return true;
    case KN_RESHAPE: /* of a buffer: the same elements */
    case KN_INDEX: c->mem[at] = s; return true;
    default: return true;
    }
}

bool ki_is_address(const ki_comp *c, kn_uop u) {
    while (u->op == KN_AFTER) u = u->src[0];
    return u->op == KN_INDEX && c->mem[ki_place(c, u)] != KI_NOSLOT;
}
/* Memory as a whole: what an INDEX stands on, a value only when stored or loaded at once. */
static bool is_memory(const ki_comp *c, kn_uop u) { return c->mem[ki_place(c, u)] != KI_NOSLOT && u->op != KN_INDEX; }

/* Place of a variable among the trailing arguments of the CALL. */
static bool variable(ki_comp *c, kn_uop u, uint32_t *which) {
    uint32_t n = 0;
    const ki_param *p = u->arg.param;
    for (uint32_t k = 1; c->call && k < c->call->nsrc; k++) {
        kn_uop a = c->call->src[k];
        if (a->type->rank) continue;
        bool named =
            a->op == KN_PARAM && p->len && a->arg.param->len == p->len && !memcmp(a->arg.param->name, p->name, p->len);
        if (a == u || named || (p->slot >= 0 && (uint32_t)p->slot + 1 == k)) {
            *which = n;
            return true;
        }
        n++;
    }
    return ki_comp_fail(c, u, "the CALL does not pass this variable");
}

/* Value of lane k if u is made of constants alone. */
static bool constant_lane(kn_uop u, uint32_t k, uint64_t *v) {
    while (u->op == KN_RESHAPE) u = u->src[0];
    if (u->op == KN_STACK && k < u->nsrc && u->type->rank == 1) u = u->src[k];
    if (u->op != KN_CONST) return false;
    *v = u->arg.bits;
    return true;
}
static bool all_constant(kn_uop u) {
    uint64_t v;
    if (u->op != KN_STACK || u->type->rank != 1) return false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!constant_lane(u, k, &v)) return false;
    return true;
}

bool ki_comp_leaf(ki_comp *c, kn_uop u, bool *leaf) {
    uint32_t at = ki_place(c, u), which = 0;
    *leaf = true;
    if (u->op == KN_CONST || u->op == KN_INVALID)
        return constant(c, c->slot[at] = ki_comp_slots(c, 1), u->op == KN_CONST ? u->arg.bits : (uint64_t)INT64_MIN);
    if (all_constant(u)) {
        c->slot[at] = ki_comp_slots(c, u->nsrc);
        for (uint32_t k = 0; k < u->nsrc; k++) {
            uint64_t v = 0;
            (void)constant_lane(u, k, &v);
            if (!constant(c, c->slot[at] == KI_NOSLOT ? KI_NOSLOT : c->slot[at] + k, v)) return false;
        }
        return true;
    }
    if (u->op == KN_PARAM && u->type->rank == 0) {
        if (!variable(c, u, &which) || !grow(c, &c->vm->vars, &c->cap_var, c->vm->nvar, sizeof *c->vm->vars))
            return false;
        c->slot[at] = ki_comp_slots(c, 1);
        c->vm->vars[c->vm->nvar++] = (ki_fixed){c->slot[at], which, u->dtype};
        return c->slot[at] != KI_NOSLOT;
    }
    if (u->op == KN_SPECIAL) {
        if (!grow(c, &c->vm->special, &c->cap_special, c->vm->nspecial, sizeof *c->vm->special)) return false;
        c->slot[at] = ki_comp_slots(c, 1);
        c->vm->special[c->vm->nspecial++] =
            (ki_special){c->slot[at], c->slot[ki_place(c, u->src[0])], u->arg.str && u->arg.str->s[0] == 'l'};
        return c->slot[at] != KI_NOSLOT;
    }
    *leaf = u->op == KN_PARAM || u->op == KN_BUFFER;
    return true;
}

/* ---- operands ------------------------------------------------------------------------------------------------- */

static bool table(ki_comp *c, uint64_t n, uint32_t *at) {
    if (!grow(c, &c->vm->tables, &c->cap_table, c->vm->ntable + n, sizeof *c->vm->tables)) return false;
    *at = (uint32_t)c->vm->ntable;
    c->vm->ntable += n;
    return true;
}

static bool lane_dims(ki_comp *c, kn_uop u, int64_t *dim) {
    if (u->type->symbolic || u->type->numel > INT32_MAX / 2)
        return ki_comp_fail(c, u, "a kernel's value has constant lanes");
    for (unsigned k = 0; k < u->type->rank; k++) dim[k] = u->type->dim[k].n;
    return true;
}

/* dst[l] = src lane view(l). */
static bool pick_view(ki_comp *c, ki_code_list *l, kn_uop u, const ki_view *v, uint32_t src, uint32_t lanes,
                      uint32_t *dst) {
    uint32_t at;
    if (!table(c, lanes, &at)) return false;
    for (uint32_t i = 0; i < lanes; i++) {
        int64_t to;
        uint8_t in;
        int64_t from = i;
        ki_view_map(v, &from, 0, 1, &to, &in);
        c->vm->tables[at + i] = in ? (int32_t)to : -1;
    }
    ki_instr *p = ki_comp_emit(c, l, u, KI_V_PICK);
    if (!p) return false;
    p->a = src;
    p->lanes = lanes;
    p->table = at;
    *dst = p->dst = ki_comp_slots(c, lanes);
    return *dst != KI_NOSLOT;
}

/* Slot and stride with which s is read by something of the shape of `like`. */
static bool operand(ki_comp *c, ki_code_list *l, kn_uop s, kn_uop like, uint32_t *slot, uint8_t *stride) {
    int64_t in[KI_MAX_RANK], out[KI_MAX_RANK];
    uint32_t at = ki_place(c, s);
    if (c->slot[at] == KI_NOSLOT) return ki_comp_fail(c, s, "used as a value, and it has none");
    *slot = c->slot[at];
    *stride = ki_lanes(s) != 1;
    if (!*stride || s->type == like->type || ki_same_shape(s, like)) return true;
    if (s->type->rank != like->type->rank) return ki_comp_fail(c, s, "its lanes do not fit its user's");
    if (!lane_dims(c, s, in) || !lane_dims(c, like, out)) return false;
    ki_view v;
    ki_view_broadcast(&v, s->type->rank, in, out);
    return pick_view(c, l, s, &v, *slot, ki_lanes(like), slot);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

static bool emit_apply(ki_comp *c, ki_code_list *l, kn_uop u) {
    uint32_t slot[3] = {KI_NOSLOT, KI_NOSLOT, KI_NOSLOT};
    uint8_t stride[3] = {0};
    kn_dtype in[3];
    for (uint32_t k = 0; k < u->nsrc && k < 3; k++) {
        in[k] = (kn_dtype)u->src[k]->dtype;
        if (!operand(c, l, u->src[k], u, &slot[k], &stride[k])) return false;
    }
    ki_instr *i = ki_comp_emit(c, l, u, KI_V_APPLY);
    if (!i) return false;
    if (!ki_apply_init(&i->ap, (kn_op)u->op, (kn_dtype)u->dtype, in, u->nsrc))
        return ki_comp_fail(c, u, "no scalar meaning");
    memcpy(i->ap.stride, stride, sizeof stride);
    i->a = slot[0], i->b = slot[1], i->c = slot[2];
    i->lanes = ki_lanes(u);
    c->slot[ki_place(c, u)] = i->dst = ki_comp_slots(c, i->lanes);
    return i->dst != KI_NOSLOT;
}

static bool emit_view(ki_comp *c, ki_code_list *l, kn_uop u) {
    int64_t in[KI_MAX_RANK], out[KI_MAX_RANK], off[KI_MAX_RANK] = {0};
    uint32_t src = c->slot[ki_place(c, u->src[0])];
    if (src == KI_NOSLOT) return ki_comp_fail(c, u->src[0], "used as a value, and it has none");
    if (!lane_dims(c, u->src[0], in) || !lane_dims(c, u, out)) return false;
    for (unsigned k = 0; (u->op == KN_PAD || u->op == KN_SHRINK) && k < u->type->rank; k++) {
        if (u->src[1]->src[k]->op != KN_CONST) return ki_comp_fail(c, u, "its offset is not constant");
        off[k] = u->src[1]->src[k]->arg.i;
    }
    ki_view v;
    ki_view_make(&v, u, in, out, off);
    if (v.identity) {
        c->slot[ki_place(c, u)] = src;
        return true;
    }
    return pick_view(c, l, u, &v, src, ki_lanes(u), &c->slot[ki_place(c, u)]);
}

static bool emit_stack(ki_comp *c, ki_code_list *l, kn_uop u) {
    uint32_t lanes = ki_lanes(u), part = u->nsrc ? lanes / u->nsrc : 0, dst = ki_comp_slots(c, lanes);
    if (dst == KI_NOSLOT) return false;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        ki_instr *i = ki_comp_emit(c, l, u, KI_V_COPY);
        if (!i) return false;
        i->a = c->slot[ki_place(c, u->src[k])];
        if (i->a == KI_NOSLOT) return ki_comp_fail(c, u->src[k], "used as a value, and it has none");
        i->dst = dst + k * part;
        i->lanes = part;
    }
    c->slot[ki_place(c, u)] = dst;
    return true;
}

/* INDEX of a value: lanes picked by constants, or by values at run time. */
static bool emit_extract(ki_comp *c, ki_code_list *l, kn_uop u) {
    uint32_t at = (uint32_t)c->vm->nextract;
    kn_uop s = u->src[0];
    if (!grow(c, &c->vm->extracts, &c->cap_extract, at, sizeof *c->vm->extracts)) return false;
    ki_extract *x = &c->vm->extracts[c->vm->nextract++];
    memset(x, 0, sizeof *x);
    x->rank = s->type->rank;
    x->nindex = u->nsrc - 1;
    if (!lane_dims(c, s, x->dim)) return false;
    for (unsigned k = 0; k < x->rank; k++) {
        x->index[k] = k < x->nindex ? c->slot[ki_place(c, u->src[k + 1])] : KI_NOSLOT;
        x->count[k] = k < x->nindex ? u->src[k + 1]->type->numel : x->dim[k];
        if (k < x->nindex && x->index[k] == KI_NOSLOT)
            return ki_comp_fail(c, u->src[k + 1], "used as a value, and it has none");
    }
    ki_instr *i = ki_comp_emit(c, l, u, KI_V_EXTRACT);
    if (!i) return false;
    i->a = c->slot[ki_place(c, s)];
    if (i->a == KI_NOSLOT) return ki_comp_fail(c, s, "used as a value, and it has none");
    i->c = at;
    i->lanes = ki_lanes(u);
    c->slot[ki_place(c, u)] = i->dst = ki_comp_slots(c, i->lanes);
    return i->dst != KI_NOSLOT;
}

void ki_comp_fold(ki_instr *i, kn_uop reduce) {
    kn_dtype t = (kn_dtype)reduce->dtype;
    i->op = reduce->arg.reduce.op;
    (void)ki_apply_init(&i->ap, (kn_op)i->op, t, (kn_dtype[]){t, t}, 2);
}

static bool emit_lane_reduce(ki_comp *c, ki_code_list *l, kn_uop u, uint32_t src) {
    int64_t in[KI_MAX_RANK], out[KI_MAX_RANK];
    if (src == KI_NOSLOT) return ki_comp_fail(c, u->src[0], "used as a value, and it has none");
    uint32_t lanes = ki_lanes(u), all = ki_lanes(u->src[0]), each = lanes ? all / lanes : 0, at, fill = 0;
    if (!lane_dims(c, u->src[0], in) || !lane_dims(c, u, out) || !table(c, all, &at)) return false;
    for (uint32_t o = 0; o < lanes; o++)
        for (uint32_t i = 0; i < all; i++) { /* lane i belongs to o if it agrees off the reduced axes */
            int64_t rest = i, to = 0, stride = 1;
            for (unsigned k = u->type->rank; k-- > 0; rest /= in[k], stride *= out[k])
                if (out[k] != 1) to += rest % in[k] * stride;
            if (to == o) c->vm->tables[at + fill++] = (int32_t)i;
        }
    ki_instr *i = ki_comp_emit(c, l, u, KI_V_LREDUCE);
    if (!i) return false;
    i->a = src;
    i->table = at;
    i->extra = each;
    i->lanes = lanes;
    ki_comp_fold(i, u);
    c->slot[ki_place(c, u)] = i->dst = ki_comp_slots(c, lanes);
    return i->dst != KI_NOSLOT;
}

static bool emit_convert(ki_comp *c, ki_code_list *l, kn_uop u) {
    ki_instr *i = ki_comp_emit(c, l, u, KI_V_CONVERT);
    if (!i) return false;
    i->a = c->slot[ki_place(c, u->src[0])];
    i->extra = u->src[0]->dtype;
    i->b = ki_lanes(u->src[0]);
    i->lanes = ki_lanes(u);
    c->slot[ki_place(c, u)] = i->dst = ki_comp_slots(c, i->lanes);
    return i->a != KI_NOSLOT ? i->dst != KI_NOSLOT : ki_comp_fail(c, u->src[0], "used as a value, and it has none");
}

/* ---- memory access -------------------------------------------------------------------------------------------- */

/* The index under an address, or 0, 1, 2, ... for a whole small buffer. */
static bool address(ki_comp *c, kn_uop u, uint32_t *slot, uint8_t *stride) {
    kn_uop a = u;
    while (a->op == KN_AFTER && a->src[0]->op == KN_INDEX) a = a->src[0];
    if (a->op == KN_INDEX) {
        if (a->nsrc != 2) return ki_comp_fail(c, a, "memory takes one linear index");
        *slot = c->slot[ki_place(c, a->src[1])];
        *stride = ki_lanes(a->src[1]) != 1;
        return *slot != KI_NOSLOT || ki_comp_fail(c, a->src[1], "used as a value, and it has none");
    }
    if (u->type->numel > WHOLE) return ki_comp_fail(c, u, "a whole buffer is no value");
    *slot = ki_comp_slots(c, ki_lanes(u));
    *stride = 1;
    for (uint32_t k = 0; k < ki_lanes(u); k++)
        if (!constant(c, *slot == KI_NOSLOT ? KI_NOSLOT : *slot + k, k)) return false;
    return true;
}

/* LOAD(address, alt?, gate?), or an address used as a value. */
static bool emit_load(ki_comp *c, ki_code_list *l, kn_uop u, kn_uop from) {
    uint32_t idx, alt = KI_NOSLOT, gate = KI_NOSLOT, m = c->mem[ki_place(c, from)];
    uint8_t si, sa = 0, sg = 0;
    if (!address(c, from, &idx, &si)) return false;
    for (uint32_t k = 1; u->op == KN_LOAD && k < u->nsrc; k++) {
        bool is_gate = k == 2 || (u->nsrc == 2 && u->src[1]->dtype == KN_BOOL && u->dtype != KN_BOOL);
        if (!operand(c, l, u->src[k], from, is_gate ? &gate : &alt, is_gate ? &sg : &sa)) return false;
    }
    ki_instr *i = ki_comp_emit(c, l, u, KI_V_LOAD);
    if (!i) return false;
    i->a = idx, i->b = alt, i->c = gate;
    i->sa = si, i->sb = sa, i->sc = sg;
    i->mem = m;
    i->lanes = ki_lanes(from);
    c->slot[ki_place(c, u)] = i->dst = ki_comp_slots(c, i->lanes);
    return i->dst != KI_NOSLOT;
}

static bool emit_store(ki_comp *c, ki_code_list *l, kn_uop u) {
    uint32_t idx, val, gate = KI_NOSLOT, m = c->mem[ki_place(c, u->src[0])];
    uint8_t si, sv, sg = 0;
    if (m == KI_NOSLOT) return ki_comp_fail(c, u, "its target is no memory");
    if (!address(c, u->src[0], &idx, &si) || !operand(c, l, u->src[1], u->src[0], &val, &sv)) return false;
    if (u->nsrc > 2 && !operand(c, l, u->src[2], u->src[0], &gate, &sg)) return false;
    ki_instr *i = ki_comp_emit(c, l, u, u->op == KN_STORE ? KI_V_STORE : KI_V_ATOMIC);
    if (!i) return false;
    i->dtype = u->src[1]->dtype;
    i->a = idx, i->b = val, i->c = gate;
    i->sa = si, i->sb = sv, i->sc = sg;
    i->mem = m;
    i->lanes = ki_lanes(u->src[0]);
    return true;
}

bool ki_comp_node(ki_comp *c, ki_code_list *l, kn_uop u) {
    uint32_t at = ki_place(c, u), s = u->nsrc ? ki_place(c, u->src[0]) : 0;
    bool memory = c->mem[at] != KI_NOSLOT && u->op != KN_INDEX;
    if (!memory && (u->type->symbolic || u->type->numel > LANES))
        return ki_comp_fail(c, u, "a kernel's value has few lanes, and constantly many");
    switch ((kn_op)u->op) {
    case KN_STORE:
    case KN_ATOMICADD: return emit_store(c, l, u);
    case KN_LOAD:
        if (c->mem[s] != KI_NOSLOT) return emit_load(c, l, u, u->src[0]);
        c->slot[at] = c->slot[s];
        return true;
    case KN_INDEX: return c->mem[at] != KI_NOSLOT ? emit_load(c, l, u, u) : emit_extract(c, l, u);
    case KN_AFTER:
        if (!is_memory(c, u)) c->slot[at] = c->slot[s];
        return true;
    case KN_STACK: return emit_stack(c, l, u);
    case KN_REDUCE: return emit_lane_reduce(c, l, u, c->slot[s]);
    case KN_SLICE: return c->mem[at] != KI_NOSLOT || ki_comp_fail(c, u, "of a value");
    case KN_GROUP:
    case KN_SINK:
    case KN_NOOP:
    case KN_END: return true;
    case KN_BARRIER: c->vm->barrier = true; return true;
    case KN_BITCAST:
        return ki_itemsize((kn_dtype)u->dtype) == ki_itemsize((kn_dtype)u->src[0]->dtype) ? emit_apply(c, l, u)
                                                                                          : emit_convert(c, l, u);
    default: break;
    }
    if (ki_is_elementwise((kn_op)u->op)) return emit_apply(c, l, u);
    if (ki_is_view((kn_op)u->op)) return c->mem[at] != KI_NOSLOT || emit_view(c, l, u);
    ki_fail(c->env, KI_E_EVAL_OP, ki_ops[u->op].name, u->id, "kernel");
    return false;
}
