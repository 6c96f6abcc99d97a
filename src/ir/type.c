/* type.c: dtype and shape of a node about to be made: the one place where shape errors arise.
 *
 * A rule is a static function named dtype_X or shape_X after the column of ops.def; a missing one fails to
 * compile. Most results are the type of a source, so the common path makes nothing. */
#include "ir/derive.h"

#include <string.h>

#define FAIL(...) (ki_fail(d->ir->env, __VA_ARGS__), false)
#define NAME      (ki_ops[d->op].name)

static const char *shape_name(const ki_type *t, char *buf) { return ki_shape_text(t, buf, 128); }

/* ---- dtype -------------------------------------------------------------------------------------------------- */

static bool dtype_GIVEN(ki_draft *d) {
    (void)d;
    return true;
}
static bool dtype_SRC0(ki_draft *d) { return d->dtype = (kn_dtype)d->src[0]->dtype, true; }
static bool dtype_SRC1(ki_draft *d) { return d->dtype = (kn_dtype)d->src[1]->dtype, true; }
static bool dtype_SRC2(ki_draft *d) { return d->dtype = (kn_dtype)d->src[2]->dtype, true; }
static bool dtype_BOOL(ki_draft *d) { return d->dtype = KN_BOOL, true; }
static bool dtype_VOID(ki_draft *d) { return d->dtype = KN_VOID, true; }
static bool dtype_INDEX(ki_draft *d) { return d->dtype = KN_IDX, true; }
static bool dtype_U8(ki_draft *d) { return d->dtype = KN_U8, true; }
static bool dtype_STACK(ki_draft *d) {
    d->dtype = d->nsrc ? (kn_dtype)d->src[0]->dtype : KN_IDX;
    for (uint32_t i = 1; i < d->nsrc; i++)
        if (d->src[i]->dtype != d->dtype)
            return FAIL(KI_E_DTYPE_MISMATCH, "stack", ki_dtypes[d->dtype].name, ki_dtypes[d->src[i]->dtype].name);
    return true;
}
/* A FUNCTION is a TUPLE, hence void; a body that is one value gives that value's dtype. */
static bool dtype_TUPLE(ki_draft *d) { return dtype_SRC0(d); }

static kn_uop tuple_element(ki_draft *d) {
    kn_uop t = d->src[0];
    if (t->op == KN_FUNCTION) t = t->src[0];
    if (t->op != KN_TUPLE) {
        ki_fail(d->ir->env, KI_E_ARG_INVALID, "gettuple", "its source is no tuple");
        return NULL;
    }
    if (d->arg.i < 0 || d->arg.i >= (int64_t)t->nsrc) {
        ki_fail(d->ir->env, KI_E_TUPLE_INDEX, (long long)d->arg.i, t->nsrc);
        return NULL;
    }
    return t->src[d->arg.i];
}
static bool dtype_GETTUPLE(ki_draft *d) {
    kn_uop e = tuple_element(d);
    return e && (d->dtype = (kn_dtype)e->dtype, true);
}

/* Operand dtypes of an elementwise op: equal (the last two, for WHERE), and of the op's kind. */
static bool check_operands(ki_draft *d) {
    const ki_op_info *info = &ki_ops[d->op];
    uint32_t first = d->op == KN_WHERE ? 1 : 0;
    kn_dtype t = (kn_dtype)d->src[first]->dtype;
    if (d->op == KN_WHERE && d->src[0]->dtype != KN_BOOL)
        return FAIL(KI_E_DTYPE_CLASS, NAME, ki_dtypes[d->src[0]->dtype].name, "bool as the condition");
    for (uint32_t i = first + 1; i < d->nsrc; i++)
        if (d->src[i]->dtype != t)
            return FAIL(KI_E_DTYPE_MISMATCH, NAME, ki_dtypes[t].name, ki_dtypes[d->src[i]->dtype].name);
    if (t == KN_VOID) return FAIL(KI_E_DTYPE_CLASS, NAME, "void", "a value");
    if (info->flags & KI_FLOAT && !ki_is_float(t)) return FAIL(KI_E_DTYPE_CLASS, NAME, ki_dtypes[t].name, "a float");
    if (info->flags & KI_INT && ki_is_float(t))
        return FAIL(KI_E_DTYPE_CLASS, NAME, ki_dtypes[t].name, "an integer or bool");
    if (info->flags & KI_NUM && t == KN_BOOL) return FAIL(KI_E_DTYPE_CLASS, NAME, "bool", "a number");
    if (d->op == KN_THREEFRY && t != KN_U64) return FAIL(KI_E_DTYPE_CLASS, NAME, ki_dtypes[t].name, "u64");
    return true;
}

bool ki_derive_dtype(ki_draft *d) {
    static bool (*const rule[KI_OP_COUNT])(ki_draft *) = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) [KN_##name] = dtype_##dtype,
#include "ir/ops.def"
#undef KI_OP
    };
    if (!rule[d->op](d)) return false;
    return ki_is_elementwise(d->op) && d->op != KN_CAST ? check_operands(d) : true;
}

/* ---- shape -------------------------------------------------------------------------------------------------- */

static unsigned device_of(ki_draft *d) {
    for (uint32_t i = 0; i < d->nsrc; i++)
        if (d->src[i]->type->device) return d->src[i]->type->device;
    return 0;
}

static bool with_dims(ki_draft *d, unsigned rank, const ki_dim *dim, unsigned device, int axis) {
    return (d->type = ki_type_make(d->ir, rank, dim, device, axis)) != NULL;
}

/* Source i as a list of dims: a STACK of () index values. */
static bool read_dims(ki_draft *d, uint32_t i, unsigned *rank, ki_dim *dim) {
    kn_uop s = d->src[i];
    if (s->op != KN_STACK || s->dtype != KN_IDX) return FAIL(KI_E_SHAPE_SOURCE, NAME, i);
    if (s->nsrc > KI_MAX_RANK) return FAIL(KI_E_RANK_LIMIT, NAME, s->nsrc, KI_MAX_RANK);
    *rank = s->nsrc;
    for (uint32_t k = 0; k < s->nsrc; k++) {
        kn_uop e = s->src[k];
        if (e->type->rank != 0) return FAIL(KI_E_SHAPE_SOURCE, NAME, i);
        dim[k] = e->op == KN_CONST ? (ki_dim){e->arg.i, NULL} : (ki_dim){e->hi.i, e};
    }
    return true;
}

static bool shape_SCALAR(ki_draft *d) {
    unsigned device = ki_ops[d->op].cls == KI_C_SOURCE ? 0 : device_of(d);
    return device ? with_dims(d, 0, NULL, device, -1) : (d->type = d->ir->scalar, true);
}

static bool shape_SRC0(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    if (d->op == KN_LOAD) {
        const ki_load *l = d->arg.load;
        if (l && l->device && l->device != t->device) return with_dims(d, t->rank, t->dim, l->device, -1);
        for (uint32_t i = 1; i < d->nsrc; i++) /* alt, gate: () or the shape */
            if (d->src[i]->type->rank && d->src[i]->type->rank != t->rank)
                return FAIL(KI_E_RANK_MISMATCH, NAME, t->rank, d->src[i]->type->rank);
    }
    return d->type = t, true;
}
static bool shape_SRC2(ki_draft *d) { return d->type = d->src[2]->type, true; }

/* Elementwise: () meets any shape; else equal ranks, and on each axis equal sizes or 1. */
static bool shape_ELEM(ki_draft *d) {
    const ki_type *t = d->nsrc ? d->src[0]->type : d->ir->scalar;
    bool merge = false;
    for (uint32_t i = 1; i < d->nsrc; i++) {
        const ki_type *s = d->src[i]->type;
        if (s == t || (s->rank == 0 && (!s->device || s->device == t->device))) continue;
        if (t->rank == 0 && (!t->device || t->device == s->device)) t = s;
        else merge = true;
    }
    if (!merge) return d->type = t, true;
    ki_dim dim[KI_MAX_RANK];
    unsigned rank = 0, device = 0;
    int axis = -1;
    const ki_type *first = NULL;
    char a[128], b[128];
    for (uint32_t i = 0; i < d->nsrc; i++) {
        const ki_type *s = d->src[i]->type;
        if (s->device && device && s->device != device)
            return FAIL(KI_E_DEVICE_MISMATCH, NAME, d->ir->env->device[device], d->ir->env->device[s->device]);
        if (s->device) device = s->device;
        if (s->axis >= 0) axis = s->axis;
        if (s->rank == 0) continue;
        if (!first) {
            first = s;
            rank = s->rank;
            memcpy(dim, s->dim, rank * sizeof *dim);
            continue;
        }
        if (s->rank != rank) return FAIL(KI_E_SHAPE_MISMATCH, NAME, shape_name(first, a), shape_name(s, b), 0);
        for (unsigned k = 0; k < rank; k++) {
            if (ki_same_dim(dim[k], s->dim[k]) || ki_is_one(s->dim[k])) continue;
            if (!ki_is_one(dim[k]))
                return FAIL(KI_E_SHAPE_MISMATCH, NAME, shape_name(first, a), shape_name(s, b), (int)k);
            dim[k] = s->dim[k];
        }
    }
    return with_dims(d, rank, dim, device, axis);
}

static bool shape_PARAM(ki_draft *d) {
    const ki_param *p = d->arg.param;
    ki_dim dim[KI_MAX_RANK];
    unsigned rank = 0;
    if (d->nsrc && !read_dims(d, 0, &rank, dim)) return false;
    return with_dims(d, rank, dim, p->device, -1);
}

static bool shape_BUFFER(ki_draft *d) {
    const ki_buffer *b = d->arg.buffer;
    const char *name = b->device ? d->ir->env->device[b->device] : "";
    int64_t n = 1;
    for (const char *c = name; *c; c++) n += *c == ',';
    if (b->size < 0 || b->size > (INT64_C(1) << 47) / n) return FAIL(KI_E_DIM_RANGE, "buffer", (long long)b->size);
    return with_dims(d, 1, &(ki_dim){n * b->size, NULL}, b->device, n > 1 ? 0 : -1);
}

static bool shape_BYTES(ki_draft *d) { return with_dims(d, 1, &(ki_dim){(int64_t)d->arg.str->n, NULL}, 0, -1); }

/* Where source axis k of a reshape ends up, by its leading product; -1 if the boundary is not kept. */
static int reshaped_axis(const ki_type *from, const ki_dim *dim, unsigned rank, int axis) {
    int64_t lead = 1, at = 1;
    for (int k = 0; k < axis; k++) lead *= from->dim[k].n;
    for (unsigned k = 0; k < rank; k++) {
        if (at == lead && !ki_is_one(dim[k])) return (int)k;
        at *= dim[k].n;
    }
    return -1;
}

/* Symbolic sizes: the products must agree in their bounds and in the multiset of symbols. */
static bool same_symbols(const ki_type *t, const ki_dim *dim, unsigned rank) {
    unsigned used = 0;
    for (unsigned k = 0; k < t->rank; k++) {
        if (!t->dim[k].sym) continue;
        unsigned j = 0;
        while (j < rank && (dim[j].sym != t->dim[k].sym || used >> j & 1)) j++;
        if (j == rank) return false;
        used |= 1u << j;
    }
    for (unsigned j = 0; j < rank; j++)
        if (dim[j].sym && !(used >> j & 1)) return false;
    return true;
}

static bool shape_RESHAPE(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    ki_dim dim[KI_MAX_RANK];
    unsigned rank;
    char a[128], b[128];
    if (!read_dims(d, 1, &rank, dim)) return false;
    int axis = t->axis >= 0 ? reshaped_axis(t, dim, rank, t->axis) : -1;
    if (!with_dims(d, rank, dim, t->device, axis)) return false;
    if (d->type->numel == t->numel && (!t->symbolic && !d->type->symbolic ? true : same_symbols(t, dim, rank)))
        return true;
    return FAIL(KI_E_RESHAPE_SIZE, shape_name(t, a), (long long)t->numel, shape_name(d->type, b),
                (long long)d->type->numel);
}

static bool shape_EXPAND(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    ki_dim dim[KI_MAX_RANK];
    unsigned rank;
    char a[128], b[128];
    if (!read_dims(d, 1, &rank, dim)) return false;
    if (rank != t->rank) return FAIL(KI_E_RANK_MISMATCH, NAME, t->rank, rank);
    if (!with_dims(d, rank, dim, t->device, t->axis)) return false;
    for (unsigned k = 0; k < rank; k++)
        if (!ki_is_one(t->dim[k]) && !ki_same_dim(t->dim[k], dim[k]))
            return FAIL(KI_E_EXPAND_AXIS, (int)k, shape_name(t, a), shape_name(d->type, b));
    return true;
}

static bool bad_order(ki_draft *d, const ki_ints *p) {
    ki_text t = {0};
    for (uint32_t k = 0; p && k < p->n && k <= KI_MAX_RANK; k++)
        ki_text_printf(&t, k ? ", %lld" : "(%lld", (long long)p->v[k]);
    ki_text_put(&t, t.n ? ")" : "()");
    ki_fail(d->ir->env, KI_E_PERMUTE_ORDER, t.s ? t.s : "", d->src[0]->type->rank);
    ki_text_free(&t);
    return false;
}

static bool shape_PERMUTE(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    const ki_ints *p = d->arg.ints;
    ki_dim dim[KI_MAX_RANK];
    uint32_t seen = 0;
    int axis = -1;
    if (!p || p->n != t->rank) return bad_order(d, p);
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->v[k] < 0 || p->v[k] >= t->rank || seen >> p->v[k] & 1) return bad_order(d, p);
        seen |= 1u << p->v[k];
        dim[k] = t->dim[p->v[k]];
        if (p->v[k] == t->axis) axis = (int)k;
    }
    return with_dims(d, t->rank, dim, t->device, axis);
}

static bool axes_in_range(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    const ki_ints *p = d->arg.ints;
    for (uint32_t k = 0; p && k < p->n; k++)
        if (p->v[k] < 0 || p->v[k] >= t->rank || (k && p->v[k] <= p->v[k - 1]))
            return FAIL(KI_E_ARG_INVALID, NAME, "axes are named once each, ascending, and lie below the rank");
    return true;
}
static bool shape_FLIP(ki_draft *d) { return axes_in_range(d) && (d->type = d->src[0]->type, true); }

static bool shape_REPLICATED(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    const ki_ints *p = d->arg.ints;
    ki_dim dim[KI_MAX_RANK];
    int axis = t->axis;
    if (!axes_in_range(d)) return false;
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    for (uint32_t k = 0; p && k < p->n; k++) {
        dim[p->v[k]] = (ki_dim){1, NULL};
        if (p->v[k] == axis) axis = -1;
    }
    return with_dims(d, t->rank, dim, t->device, axis);
}

/* PAD and SHRINK: the smaller window [o, o + n) must lie in [0, N). Symbolic sizes are checked by their
 * bounds. */
static bool window(ki_draft *d, bool pad) {
    const ki_type *t = d->src[0]->type;
    ki_dim off[KI_MAX_RANK], dim[KI_MAX_RANK];
    unsigned rank, rank2;
    if (!read_dims(d, 1, &rank, off) || !read_dims(d, 2, &rank2, dim)) return false;
    if (rank != t->rank || rank2 != t->rank)
        return FAIL(KI_E_RANK_MISMATCH, NAME, t->rank, rank != t->rank ? rank : rank2);
    for (unsigned k = 0; k < rank; k++) {
        ki_dim in = pad ? t->dim[k] : dim[k], all = pad ? dim[k] : t->dim[k];
        bool exact = !off[k].sym && !in.sym && !all.sym;
        int64_t lo = off[k].sym ? off[k].sym->lo.i : off[k].n;
        if (lo < 0 || in.n < 0 || all.n < 0 || (exact && off[k].n > all.n - in.n))
            return FAIL(KI_E_PAD_RANGE, NAME, (int)k, (long long)off[k].n, (long long)dim[k].n, (long long)t->dim[k].n);
    }
    return with_dims(d, rank, dim, t->device, t->axis);
}
static bool shape_PAD(ki_draft *d) { return window(d, true); }
static bool shape_SHRINK(ki_draft *d) { return window(d, false); }

/* Each () index removes its axis, a shaped one puts its shape there. On a flat buffer this is 'one linear
 * index'. */
static bool shape_INDEX(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    ki_dim dim[KI_MAX_RANK];
    unsigned rank = 0;
    if (d->nsrc - 1 > t->rank) return FAIL(KI_E_INDEX_COUNT, d->nsrc - 1, t->rank);
    /* One linear index: the result's type is its own. */
    if (d->nsrc == 2 && t->rank == 1 && ki_is_int((kn_dtype)d->src[1]->dtype)) {
        const ki_type *s = d->src[1]->type;
        if (s->device == t->device && s->axis < 0) return d->type = s, true;
    }
    for (uint32_t i = 1; i < d->nsrc + (t->rank - (d->nsrc - 1)); i++) {
        const ki_type *s = i < d->nsrc ? d->src[i]->type : NULL;
        unsigned add = s ? s->rank : 1;
        if (s && !ki_is_int((kn_dtype)d->src[i]->dtype))
            return FAIL(KI_E_DTYPE_CLASS, NAME, ki_dtypes[d->src[i]->dtype].name, "an integer index");
        if (rank + add > KI_MAX_RANK) return FAIL(KI_E_RANK_LIMIT, NAME, rank + add, KI_MAX_RANK);
        if (add) memcpy(dim + rank, s ? s->dim : &t->dim[i - 1], add * sizeof *dim);
        rank += add;
    }
    if (rank == 0 && !t->device) return d->type = d->ir->scalar, true;
    return with_dims(d, rank, dim, t->device, -1);
}

static bool shape_STACK(ki_draft *d) {
    ki_dim dim[KI_MAX_RANK];
    char a[128], b[128];
    const ki_type *t = d->nsrc ? d->src[0]->type : d->ir->scalar;
    for (uint32_t i = 1; i < d->nsrc; i++)
        if (!ki_same_shape(d->src[i], d->src[0]))
            return FAIL(KI_E_STACK_SHAPE, i, shape_name(d->src[i]->type, a), shape_name(t, b));
    if (t->rank + 1 > KI_MAX_RANK) return FAIL(KI_E_RANK_LIMIT, NAME, t->rank + 1u, KI_MAX_RANK);
    dim[0] = (ki_dim){d->nsrc, NULL};
    memcpy(dim + 1, t->dim, t->rank * sizeof *dim);
    return with_dims(d, t->rank + 1u, dim, device_of(d), t->axis >= 0 ? t->axis + 1 : -1);
}

static bool shape_SLICE(ki_draft *d) { return with_dims(d, 1, &(ki_dim){d->arg.i, NULL}, device_of(d), -1); }

static bool shape_BITCAST(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    size_t from = ki_itemsize((kn_dtype)d->src[0]->dtype), to = ki_itemsize(d->dtype);
    ki_dim dim[KI_MAX_RANK];
    char a[128];
    if (from == to && from) return d->type = t, true;
    if (!from || !to || t->rank == 0 || t->dim[t->rank - 1].sym ||
        (t->dim[t->rank - 1].n * (int64_t)from) % (int64_t)to)
        return FAIL(KI_E_BITCAST_SIZE, shape_name(t, a), ki_dtypes[d->dtype].name);
    memcpy(dim, t->dim, t->rank * sizeof *dim);
    dim[t->rank - 1].n = dim[t->rank - 1].n * (int64_t)from / (int64_t)to;
    return with_dims(d, t->rank, dim, t->device, t->axis);
}

static bool shape_REDUCE(ki_draft *d) {
    const ki_type *t = d->src[0]->type;
    kn_op op = (kn_op)d->arg.reduce.op;
    uint32_t axes = d->arg.reduce.axes;
    ki_dim dim[KI_MAX_RANK];
    if (op != KN_ADD && op != KN_MUL && op != KN_MAX)
        return FAIL(KI_E_REDUCE_OP, op < KI_OP_COUNT ? ki_ops[op].name : "?");
    if (axes >> t->rank) return FAIL(KI_E_REDUCE_AXIS, 31 - __builtin_clz(axes), t->rank);
    for (uint32_t i = 1; i < d->nsrc; i++)
        if (d->src[i]->type->rank) return FAIL(KI_E_SHAPE_SOURCE, NAME, i);
    if (!axes) return d->type = t, true;
    for (unsigned k = 0; k < t->rank; k++) dim[k] = axes >> k & 1 ? (ki_dim){1, NULL} : t->dim[k];
    return with_dims(d, t->rank, dim, t->device, t->axis >= 0 && axes >> t->axis & 1 ? -1 : t->axis);
}

/* The body's shape; PARAM shapes that are symbolic are substituted when the function is inlined. */
static bool shape_FUNCTION(ki_draft *d) { return d->type = d->src[0]->type, true; }
static bool shape_GETTUPLE(ki_draft *d) {
    kn_uop e = tuple_element(d);
    return e && (d->type = e->type, true);
}

static bool shape_STORE(ki_draft *d) {
    const ki_type *t = d->src[0]->type, *v = d->src[1]->type;
    char a[128], b[128];
    if (d->src[0]->dtype != d->src[1]->dtype)
        return FAIL(KI_E_STORE_DTYPE, ki_dtypes[d->src[0]->dtype].name, ki_dtypes[d->src[1]->dtype].name);
    bool fits = v->rank == 0 || v->rank == t->rank;
    for (unsigned k = 0; fits && k < v->rank; k++) fits = ki_is_one(v->dim[k]) || ki_same_dim(v->dim[k], t->dim[k]);
    if (!fits) return FAIL(KI_E_STORE_SHAPE, shape_name(t, a), shape_name(v, b));
    return shape_SCALAR(d);
}

bool ki_derive_type(ki_draft *d) {
    static bool (*const rule[KI_OP_COUNT])(ki_draft *) = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) [KN_##name] = shape_##shape,
#include "ir/ops.def"
#undef KI_OP
    };
    return rule[d->op](d);
}
