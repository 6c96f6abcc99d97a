/* callify.c: stage 1, a tensor graph becomes one stateless function in a store of its own.
 *
 * Out: FUNCTION(TUPLE(v...), a...): a[k] is a GLOBAL BUFFER, PARAM slot k of the body stands for it.
 * FUNCTIONs of the user are inlined, markers are gone (CONTIGUOUS is a LOAD into new memory), values of no
 * element are constants. The result depends on the program alone: nodes are made in depth-first post-order
 * from the outputs, ids of BUFFERs and slots count from 0 in that order. So equal programs give equal graphs,
 * which the schedule cache rests on. */
#include "stages/stages.h"

#include <string.h>

typedef struct builder {
    const ki_program *in;
    ki_ir *ir;
    ki_map *map;  /* node of in's store -> node of ir */
    kn_uop *leaf; /* slot -> node of in's store */
    uint32_t nleaf, leaf_cap;
} builder;

static bool nomem(ki_ir *ir) {
    ki_fail(ir->env, KI_E_NOMEM);
    return false;
}

static bool is_storage(kn_uop u) {
    return (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL) ||
           (u->op == KN_PARAM && u->nsrc && u->arg.param->addrspace == KN_GLOBAL);
}

/* A function runs on one device, wherever its arguments come from: its nodes name none. */
enum { HERE = 0 };

static kn_uop slot_for(builder *b, kn_uop u, const kn_uop *src) {
    if (b->nleaf == b->leaf_cap) {
        uint32_t cap = b->leaf_cap ? b->leaf_cap * 2 : 16;
        kn_uop *p = ki_realloc(b->leaf, cap, sizeof *p);
        if (!p) return nomem(b->ir), NULL;
        b->leaf = p;
        b->leaf_cap = cap;
    }
    kn_uop shape = u->op == KN_PARAM ? src[0] : ki_shape_src(b->ir, &u->type->dim[0].n, 1);
    kn_uop p = ki_param_make(b->ir, (int)b->nleaf, (kn_dtype)u->dtype, KN_GLOBAL, HERE, NULL, NULL, shape);
    b->leaf[b->nleaf++] = u;
    return p;
}

/* Slots number the buffers of the FUNCTION; a variable has none. */
static kn_uop variable(builder *b, kn_uop u) {
    const ki_param *p = u->arg.param;
    int64_t lohi[2] = {p->lo, p->hi};
    kn_uop v = ki_param_make(b->ir, -1, (kn_dtype)u->dtype, (kn_addrspace)p->addrspace, HERE, p->name,
                             p->bounded ? lohi : NULL, NULL);
    return ki_map_set(b->map, u, v), v;
}

/* The constant every element of a value without elements, or of a reduction of one, is. */
static kn_uop empty_value(builder *b, kn_uop u) {
    kn_dtype t = (kn_dtype)u->dtype;
    kn_uop c = ki_const_int(b->ir, t, 0);
    if (u->op == KN_REDUCE && u->arg.reduce.op == KN_MUL) c = ki_const_int(b->ir, t, 1);
    if (u->op == KN_REDUCE && u->arg.reduce.op == KN_MAX)
        c = ki_is_float(t) ? ki_const_float(b->ir, t, t == KN_F8E4M3 ? -448.0 : -1.0 / 0.0)
                           : ki_const_int(b->ir, t, ki_int_min(t));
    int64_t one[KI_MAX_RANK], dim[KI_MAX_RANK];
    for (unsigned k = 0; k < u->type->rank; k++) one[k] = 1, dim[k] = u->type->dim[k].n;
    return ki_expand(b->ir, ki_reshape(b->ir, c, one, u->type->rank), dim, u->type->rank);
}

/* The place an assignment writes: a view of memory, whatever was written there before. The order of several writes is
 * in the AFTERs around the STORE. */
static kn_uop place(ki_ir *ir, kn_uop target) {
    kn_uop view[64], u = target;
    unsigned n = 0;
    for (; n < 64 && (ki_ops[u->op].cls == KI_C_MOVEMENT || u->op == KN_AFTER) && u->nsrc; u = u->src[0])
        if (u->op != KN_AFTER) view[n++] = u;
    while (n-- > 0 && u) {
        kn_uop s[KI_MAX_RANK + 1] = {u};
        if (view[n]->nsrc > KI_MAX_RANK + 1) return target;
        memcpy(s + 1, view[n]->src + 1, (view[n]->nsrc - 1) * sizeof *s);
        u = ki_with_src(ir, view[n], s);
    }
    return u;
}

static bool is_fixed(kn_uop i) {
    return i->dtype == KN_IDX && i->type->rank == 0 && (i->op == KN_CONST || ki_is_variable(i));
}

/* Indices that are constants or variables become a SHRINK: what is left of INDEX reads its positions from data. */
static kn_uop fixed_indices(ki_ir *ir, const kn_uop *src, uint32_t nsrc) {
    const ki_type *t = src[0]->type;
    ki_dim dim[KI_MAX_RANK] = {0}, kept[KI_MAX_RANK] = {0};
    kn_uop off[KI_MAX_RANK] = {0}, s[KI_MAX_RANK + 1];
    unsigned nkept = 0, n = 1;
    for (unsigned k = 0; k < t->rank; k++) {
        bool fixed = k + 1 < nsrc && is_fixed(src[k + 1]);
        off[k] = fixed ? src[k + 1] : ki_index(ir, 0);
        dim[k] = fixed ? (ki_dim){1, NULL} : t->dim[k];
        if (!fixed) kept[nkept++] = dim[k];
        if (!fixed && k + 1 < nsrc) s[n++] = src[k + 1];
    }
    kn_uop window = ki_op3(ir, KN_SHRINK, src[0], ki_opn(ir, KN_STACK, off, t->rank), ki_stack_dims(ir, dim, t->rank));
    s[0] = ki_op2(ir, KN_RESHAPE, window, ki_stack_dims(ir, kept, nkept));
    return n == 1 ? s[0] : ki_opn(ir, KN_INDEX, s, n);
}

static kn_uop convert(builder *b, kn_uop u, const kn_uop *src) {
    ki_ir *ir = b->ir;
    bool value = u->dtype != KN_VOID && u->op != KN_STACK && u->op != KN_AFTER;
    if (is_storage(u)) return slot_for(b, u, src);
    if (ki_is_variable(u)) return variable(b, u);
    bool alone = u->op == KN_REMAT && u->nsrc == 1;
    if (u->op == KN_DETACH || u->op == KN_CONTIGUOUS_BACKWARD || alone) return src[0];
    if (value && u->type->rank && u->type->numel == 0 && u->op != KN_BINARY) return empty_value(b, u);
    if ((u->op == KN_REDUCE || u->op == KN_PAD) && u->src[0]->type->numel == 0) return empty_value(b, u);
    if (u->op == KN_CONTIGUOUS || u->op == KN_LOAD) {
        ki_load l = {.device = HERE, .addrspace = u->op == KN_LOAD ? u->arg.load->addrspace : KN_GLOBAL};
        const void *p = ki_intern(ir, &l, sizeof l);
        return p ? ki_make(ir, KN_LOAD, KN_VOID, src, u->nsrc, (kn_arg){.p = p}, 0) : NULL;
    }
    for (uint32_t k = 1; u->op == KN_INDEX && k < u->nsrc; k++)
        if (is_fixed(src[k])) return fixed_indices(ir, src, u->nsrc);
    kn_uop stored[3];
    if (u->op == KN_STORE) {
        memcpy(stored, src, u->nsrc * sizeof *src);
        stored[0] = place(ir, src[0]);
        src = stored;
    }
    kn_arg arg = ki_import_arg(ir, u);
    return ki_make(ir, (kn_op)u->op, (kn_dtype)u->dtype, src, u->nsrc, arg, 0);
}

static bool make_ports(builder *b, ki_program *out, kn_uop function, const kn_uop *buffer) {
    const ki_program *in = b->in;
    for (uint32_t k = 0; k < b->nleaf; k++) {
        kn_uop u = b->leaf[k];
        const char *name = u->op == KN_PARAM ? u->arg.param->name : "";
        if (u->op == KN_PARAM && !*name)
            return ki_fail(b->ir->env, KI_E_INPUT_NAMELESS, ki_dtypes[u->dtype].name), false;
        if (!ki_program_port(out, false, name, strlen(name), u)) return false;
        ki_port *port = &out->in[out->nin - 1];
        port->node = buffer[k];
        port->origin = u;
        for (size_t i = 0; i < in->nin; i++)
            if (in->in[i].node == u) port->ranged = in->in[i].ranged, port->lo = in->in[i].lo, port->hi = in->in[i].hi;
    }
    for (size_t i = 0; i < in->nin; i++) {
        if (!ki_is_variable(in->in[i].node)) continue;
        const ki_port *v = &in->in[i];
        if (!ki_program_port(out, false, v->name, strlen(v->name), v->node)) return false;
        ki_port *port = &out->in[out->nin - 1];
        if (!(port->node = variable(b, v->node))) return false;
        port->origin = v->node;
    }
    kn_uop tuple = function->src[0];
    for (size_t i = 0; i < in->nout; i++) {
        if (!ki_program_port(out, true, in->out[i].name, strlen(in->out[i].name), in->out[i].node)) return false;
        kn_uop v = tuple->src[i];
        /* An assigned output is the buffer it was written to. */
        kn_uop base = v;
        while (base->op == KN_RESHAPE) base = base->src[0];
        bool assigned = base->op == KN_AFTER;
        while (base->op == KN_AFTER || base->op == KN_RESHAPE) base = base->src[0]; /* one or more times over */
        out->out[i].node = assigned && base->op == KN_PARAM && base->nsrc
                               ? buffer[base->arg.param->slot]
                               : ki_make(b->ir, KN_GETTUPLE, KN_VOID, &function, 1, (kn_arg){.i = (int64_t)i}, 0);
        if (!out->out[i].node) return false;
    }
    return true;
}

static bool build(builder *b, const kn_uop *order, int64_t count, const kn_uop *root, size_t nroot, ki_program *out) {
    kn_uop *src = NULL, *args = NULL;
    uint32_t cap = 0;
    bool ok = true;
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop u = order[i];
        if (u->nsrc > cap) {
            kn_uop *p = ki_realloc(src, u->nsrc, sizeof *p);
            if (!p) ok = nomem(b->ir);
            else src = p, cap = u->nsrc;
        }
        for (uint32_t k = 0; ok && k < u->nsrc; k++) src[k] = ki_map_get(b->map, u->src[k]);
        kn_uop v = ok && u->op != KN_SINK ? convert(b, u, src) : NULL; /* the tensor root: replaced by the FUNCTION */
        ok = ok && (v || u->op == KN_SINK);
        if (ok) ki_map_set(b->map, u, v);
    }
    if (ok) ok = (args = ki_calloc(b->nleaf + nroot + 1, sizeof *args)) != NULL || nomem(b->ir);
    for (size_t i = 0; ok && i < nroot; i++) args[1 + i] = ki_map_get(b->map, root[i]);
    if (ok) ok = (args[0] = ki_opn(b->ir, KN_TUPLE, args + 1, (uint32_t)nroot)) != NULL;
    for (uint32_t k = 0; ok && k < b->nleaf; k++) {
        kn_uop u = b->leaf[k];
        args[k + 1] = ki_buffer_make(b->ir, k, u->type->numel, (kn_dtype)u->dtype, KN_GLOBAL, HERE);
        ok = args[k + 1] != NULL;
    }
    if (ok) ok = (out->root = ki_opn(b->ir, KN_FUNCTION, args, b->nleaf + 1)) != NULL;
    if (ok) ok = make_ports(b, out, out->root, args + 1);
    ki_free(src);
    ki_free(args);
    return ok;
}

bool ki_callify(const ki_program *in, ki_ir *ir, ki_program *out) {
    builder b = {.in = in, .ir = ir};
    *out = (ki_program){.ir = ir, .stage = KI_S_CALLIFY};
    kn_uop *root = ki_calloc(in->nout + 1, sizeof *root), *order = NULL;
    if (!root) return nomem(ir);
    for (size_t i = 0; i < in->nout; i++) root[i] = in->out[i].node;
    int64_t count = -1;
    bool ok = ki_inline_functions(in->ir, root, in->nout, true) &&
              (count = ki_postorder(in->ir, root, in->nout, &order)) >= 0;
    if (ok) ok = (b.map = ki_map_take(in->ir)) != NULL;
    if (ok) ok = build(&b, order, count, root, in->nout, out);
    ki_free(root);
    ki_free(order);
    ki_map_give(in->ir, b.map);
    ki_free(b.leaf);
    if (!ok) ki_program_free(out);
    return ok;
}
