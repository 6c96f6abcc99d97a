/* graph.c: the public graph-building API of uop.h: thin wrappers that name ops by text and check what C cannot. */
#include "tensor/build.h"

#include <string.h>

#define BEGIN ENTER_CTX("graph")
/* A constructor's failure is the context's; the result says so by NULL. */
static kn_uop end(kn_ctx *k, kn_uop u) {
    ki_settle_failure(k);
    return u;
}

static bool op_named(kn_ctx *k, const char *name, kn_op *op) {
    if (!ki_given(k, k->fn, "op", name)) return false;
    *op = ki_op_named(name, strlen(name));
    return *op != KI_OP_COUNT || FAIL(KI_E_OP_NAME, name);
}
static bool dtype_known(kn_ctx *k, kn_dtype t) {
    return ((unsigned)t < KI_DTYPE_COUNT && t != KN_VOID) ||
           FAIL(KI_E_DTYPE_GIVEN, k->fn, kn_dtype_name(t), "a dtype of a value");
}

kn_uop kn_u_make(kn_ctx *k, const char *op, size_t n, const kn_uop *src) {
    BEGIN;
    kn_op o;
    if (!op_named(k, op, &o) || (n && !ki_given(k, k->fn, "src", src))) return end(k, NULL);
    for (size_t i = 0; i < n; i++)
        if (!src[i]) return k->first_status ? NULL : (FAIL(KI_E_NULL_SOURCE, op, (unsigned)i), end(k, NULL));
    int kind = ki_ops[o].arg;
    bool plain = kind == KI_A_NONE || kind == KI_A_LOAD || kind == KI_A_STORE || kind == KI_A_KERNEL;
    if (!plain || (o == KN_BITCAST || o == KN_CAST)) return FAIL(KI_E_OP_ARG, op), end(k, NULL);
    return end(k, n > UINT32_MAX ? NULL : ki_opn(&k->ir, o, src, (uint32_t)n));
}

kn_uop kn_u_int(kn_ctx *k, kn_dtype t, int64_t v) {
    BEGIN;
    return end(k, dtype_known(k, t) ? ki_const_int(&k->ir, t, v) : NULL);
}
kn_uop kn_u_float(kn_ctx *k, kn_dtype t, double v) {
    BEGIN;
    return end(k, dtype_known(k, t) ? ki_t_const(k, t, v) : NULL);
}
kn_uop kn_u_param(kn_ctx *k, int slot, kn_dtype t, int64_t size) {
    BEGIN;
    if (!dtype_known(k, t)) return end(k, NULL);
    return end(k, ki_param_make(&k->ir, slot, t, KN_GLOBAL, 0, NULL, NULL, ki_shape_src(&k->ir, &size, 1)));
}
kn_uop ki_t_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi) {
    if (!ki_given(k, k->fn, "name", name)) return NULL;
    if (!*name || lo < 0 || lo > hi || hi > INT64_C(1) << 47)
        return FAIL(KI_E_VARIABLE, name, (long long)lo, (long long)hi);
    return ki_param_make(&k->ir, -1, KN_IDX, KN_GLOBAL, 0, name, (int64_t[]){lo, hi}, NULL);
}
kn_uop kn_u_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi) {
    BEGIN;
    return end(k, ki_t_variable(k, name, lo, hi));
}
kn_uop ki_t_input(kn_ctx *k, const char *name, kn_dtype t, kn_ints shape) {
    ki_shape s;
    if (!name || !*name) return FAIL(KI_E_INPUT_NAME);
    if (!dtype_known(k, t) || !ki_shape_read(k, shape, &s)) return NULL;
    return ki_param_make(&k->ir, -1, t, KN_GLOBAL, k->device, name, NULL, ki_stack_dims(&k->ir, s.d, s.n));
}
kn_uop kn_u_input(kn_ctx *k, const char *name, kn_dtype t, kn_ints shape) {
    BEGIN;
    return end(k, ki_t_input(k, name, t, shape));
}
kn_uop kn_u_buffer(kn_ctx *k, kn_dtype t, int64_t size, kn_space space) {
    BEGIN;
    if (!dtype_known(k, t)) return end(k, NULL);
    if (space == KN_IN_GLOBAL) return end(k, ki_buffer_new(k, size, t, k->device));
    return end(k, ki_buffer_make(&k->ir, k->ir.next_buffer++, size, t, space == KN_IN_LOCAL ? KN_LOCAL : KN_REG, 0));
}
kn_uop kn_u_range(kn_ctx *k, kn_uop bound, kn_axis_type axis) {
    BEGIN;
    if (!bound) return end(k, NULL);
    if ((unsigned)axis >= KI_AX_COUNT)
        return FAIL(KI_E_ARG_INVALID, "range", "the axis type is one of kn_axis_type"), end(k, NULL);
    return end(k, ki_range_make(&k->ir, k->ir.next_range++, (kn_axis)axis, bound));
}
kn_uop kn_u_special(kn_ctx *k, const char *name, kn_uop bound) {
    BEGIN;
    if (!bound || !ki_given(k, k->fn, "name", name)) return end(k, NULL);
    return end(k, ki_str_op(&k->ir, KN_SPECIAL, KN_IDX, name, strlen(name), &bound, 1));
}
kn_uop kn_u_cast(kn_ctx *k, kn_uop x, kn_dtype t) {
    BEGIN;
    return end(k, x && dtype_known(k, t) ? ki_cast(&k->ir, x, t) : NULL);
}
kn_uop kn_u_bitcast(kn_ctx *k, kn_uop x, kn_dtype t) {
    BEGIN;
    return end(k, x && dtype_known(k, t) ? ki_bitcast(&k->ir, x, t) : NULL);
}
kn_uop kn_u_shape(kn_ctx *k, kn_ints shape) {
    BEGIN;
    ki_shape s;
    return end(k, ki_shape_read(k, shape, &s) ? ki_stack_dims(&k->ir, s.d, s.n) : NULL);
}

static kn_uop with_ints(kn_ctx *k, kn_op op, kn_uop x, kn_ints axes) {
    _Alignas(16) char raw[sizeof(ki_ints) + KN_MAX_LIST * sizeof(int64_t)] = {0};
    ki_ints *p = (ki_ints *)raw;
    if (axes.n < 0 || axes.n > KN_MAX_LIST) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    p->n = (uint32_t)axes.n;
    memcpy(p->v, axes.v, (size_t)axes.n * sizeof *axes.v);
    const void *arg = ki_intern(&k->ir, p, sizeof(ki_ints) + (size_t)axes.n * sizeof *axes.v);
    return arg ? ki_make(&k->ir, op, KN_VOID, &x, 1, (kn_arg){.p = arg}, 0) : NULL;
}
kn_uop kn_u_axes(kn_ctx *k, const char *op, kn_uop x, kn_ints axes) {
    BEGIN;
    kn_op o;
    if (!x || !op_named(k, op, &o)) return end(k, NULL);
    if (ki_ops[o].arg != KI_A_INTS) return FAIL(KI_E_OP_ARG, op), end(k, NULL);
    return end(k, with_ints(k, o, x, axes));
}

static kn_uop reduce(kn_ctx *k, kn_uop x, const char *op, uint32_t axes, size_t n, const kn_uop *ranges) {
    kn_op o;
    if (!x || !op_named(k, op, &o)) return NULL;
    kn_arg arg = {.bits = 0};
    arg.reduce.op = (uint8_t)o;
    arg.reduce.axes = axes;
    kn_uop *src = ki_malloc((n + 1) * sizeof *src);
    if (!src) return FAIL(KI_E_NOMEM);
    src[0] = x;
    if (n) memcpy(src + 1, ranges, n * sizeof *src);
    kn_uop u = ki_make(&k->ir, KN_REDUCE, KN_VOID, src, (uint32_t)n + 1, arg, 0);
    ki_free(src);
    return u;
}
kn_uop kn_u_reduce(kn_ctx *k, kn_uop x, const char *op, kn_ints axes) {
    BEGIN;
    uint32_t bits;
    return end(k, x && ki_axes(k, axes, ki_rank(x), &bits) ? reduce(k, x, op, bits, 0, NULL) : NULL);
}
kn_uop kn_u_reduce_ranges(kn_ctx *k, kn_uop x, const char *op, size_t n, const kn_uop *ranges) {
    BEGIN;
    return end(k, !n || ki_given(k, k->fn, "ranges", ranges) ? reduce(k, x, op, 0, n, ranges) : NULL);
}
kn_uop kn_u_get(kn_ctx *k, kn_uop tuple, int64_t i) {
    BEGIN;
    return end(k, tuple ? ki_make(&k->ir, KN_GETTUPLE, KN_VOID, &tuple, 1, (kn_arg){.i = i}, 0) : NULL);
}
kn_uop kn_u_kernel(kn_ctx *k, const char *name, kn_uop effect) {
    BEGIN;
    if (!effect || !ki_given(k, k->fn, "name", name)) return end(k, NULL);
    size_t len = strlen(name), bytes = sizeof(ki_kernel) + len + 1;
    ki_kernel *info = ki_calloc(1, bytes);
    if (!info) return FAIL(KI_E_NOMEM), end(k, NULL);
    info->len = (uint32_t)len;
    info->threads = 1;
    memcpy(&info->opt[0], name, len + 1);
    const void *arg = ki_intern(&k->ir, info, bytes);
    ki_free(info);
    return end(k, arg ? ki_make(&k->ir, KN_SINK, KN_VOID, &effect, 1, (kn_arg){.p = arg}, 0) : NULL);
}

/* ---- readers ----------------------------------------------------------------------------------------------- */

const char *kn_uop_op(kn_uop u) { return u ? ki_ops[u->op].name : ""; }
kn_dtype kn_uop_dtype(kn_uop u) { return u ? (kn_dtype)u->dtype : KN_VOID; }
uint32_t kn_uop_id(kn_uop u) { return u ? u->id : 0; }
uint32_t kn_uop_nsrc(kn_uop u) { return u ? u->nsrc : 0; }
kn_uop kn_uop_src(kn_uop u, uint32_t i) { return u && i < u->nsrc ? u->src[i] : NULL; }
int kn_uop_rank(kn_uop u) { return u ? (int)ki_rank(u) : 0; }
int64_t kn_uop_dim(kn_uop u, unsigned axis) { return u && axis < ki_rank(u) ? ki_dim_n(u, axis) : 0; }
kn_uop kn_uop_sym(kn_uop u, unsigned axis) { return u && axis < ki_rank(u) ? u->type->dim[axis].sym : NULL; }
static bool bounded(kn_uop u, bool is_float) {
    return u && u->flags & KI_BOUNDED && u->dtype != KN_VOID && ki_is_float((kn_dtype)u->dtype) == is_float;
}
int kn_uop_bounds_int(kn_uop u, int64_t *lo, int64_t *hi) {
    if (!bounded(u, false)) return 0;
    if (lo) *lo = u->lo.i;
    if (hi) *hi = u->hi.i;
    return 1;
}
int kn_uop_bounds_float(kn_uop u, double *lo, double *hi) {
    if (!bounded(u, true)) return 0;
    if (lo) *lo = u->lo.f;
    if (hi) *hi = u->hi.f;
    return 1;
}
int kn_uop_const_int(kn_uop u, int64_t *v) {
    if (!u || u->op != KN_CONST || ki_is_float((kn_dtype)u->dtype)) return 0;
    if (v) *v = u->arg.i;
    return 1;
}
int kn_uop_const_float(kn_uop u, double *v) {
    if (!u || u->op != KN_CONST || !ki_is_float((kn_dtype)u->dtype)) return 0;
    if (v) *v = ki_const_f64(u);
    return 1;
}

char *kn_uop_text(kn_ctx *k, kn_uop root) {
    BEGIN;
    ki_text t = {0};
    bool ok = root && ki_print_graph(&k->ir, root, &t);
    if (ok) return ki_text_take(&t);
    if (!root) ki_given(k, k->fn, "the node", root);
    ki_text_free(&t);
    return end(k, NULL), NULL;
}
