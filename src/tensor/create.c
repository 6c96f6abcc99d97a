/* create.c: tensors from nothing and from host memory, positions, variables. */
#include "tensor/build.h"

#include <math.h>
#include <string.h>

/* ---- host memory ------------------------------------------------------------------------------------------- */

static bool dtype_ok(kn_ctx *k, kn_dtype t) {
    if ((unsigned)t < KI_DTYPE_COUNT && t != KN_VOID && t != KN_IDX) return true;
    return FAIL(KI_E_DTYPE_GIVEN, k->fn, kn_dtype_name(t), "a dtype that data can have");
}

/* A BUFFER for `s` elements under a RESHAPE; *storage is its empty storage. */
static kn_uop host_buffer(kn_ctx *k, kn_dtype t, const ki_shape *s, ki_storage **storage, size_t *bytes) {
    for (unsigned i = 0; i < s->n; i++)
        if (s->d[i].sym) return FAIL(KI_E_SYMBOLIC_DATA, k->fn);
    const ki_type *type = ki_type_make(&k->ir, s->n, s->d, 0, -1);
    if (!type) return NULL;
    kn_uop b = ki_buffer_new(k, type->numel, t, k->device);
    if (!b) return NULL;
    *storage = ki_storage_of(k, b);
    *bytes = (size_t)type->numel * ki_itemsize(t);
    return b;
}

kn_tensor kn_from_host(kn_ctx *k, const void *data, kn_dtype t, kn_ints shape) {
    ENTER_CTX("from_host");
    ki_shape s;
    ki_storage *st;
    size_t bytes;
    if (!dtype_ok(k, t) || !ki_shape_read(k, shape, &s)) return ki_handle(k, NULL);
    kn_uop b = host_buffer(k, t, &s, &st, &bytes);
    if (b && bytes && !ki_given(k, "from_host", "data", data)) return ki_handle(k, NULL);
    if (!b || !ki_storage_host(k, st, bytes)) return ki_handle(k, NULL);
    if (bytes) memcpy(st->data, data, bytes);
    return ki_handle(k, ki_t_reshape_to(k, b, &s));
}

kn_tensor kn_borrow_host(kn_ctx *k, void *data, kn_dtype t, kn_ints shape, void (*release)(void *owner), void *owner) {
    ENTER_CTX("borrow_host");
    ki_shape s;
    ki_storage *st;
    size_t bytes;
    if (!dtype_ok(k, t) || !ki_shape_read(k, shape, &s)) return ki_handle(k, NULL);
    kn_uop b = host_buffer(k, t, &s, &st, &bytes);
    if (b && bytes && !ki_given(k, "borrow_host", "data", data)) return ki_handle(k, NULL);
    if (!b) return ki_handle(k, NULL);
    if ((uintptr_t)data % ki_itemsize(t)) return FAIL(KI_E_UNALIGNED, (unsigned)ki_itemsize(t)), ki_handle(k, NULL);
    st->data = data;
    st->bytes = bytes;
    st->borrowed = true;
    kn_tensor r = ki_handle(k, ki_t_reshape_to(k, b, &s));
    if (r->u) st->release = release, st->owner = owner; /* else it stays the caller's */
    return r;
}

/* ---- constants --------------------------------------------------------------------------------------------- */

/* The node is what the literal is alone; beside another operand its exact value counts. */
kn_tensor kn_scalar(kn_ctx *k, double v) {
    ENTER_CTX("scalar");
    kn_tensor t = ki_handle(k, ki_const_float(&k->ir, KN_F32, v));
    if (t->u) t->weak = KI_WEAK_FLOAT, t->lit.f = v;
    return t;
}
kn_tensor kn_int(kn_ctx *k, int64_t v) {
    ENTER_CTX("int");
    kn_tensor t = ki_handle(k, ki_const_int(&k->ir, KN_I64, v));
    if (t->u) t->weak = KI_WEAK_INT, t->lit.i = v;
    return t;
}

static kn_tensor filled(kn_ctx *k, const char *fn, kn_ints shape, double v, kn_dtype t) {
    ENTER_CTX(fn);
    ki_shape s;
    bool ok = dtype_ok(k, t) && ki_shape_read(k, shape, &s);
    return ki_handle(k, ok ? ki_t_full(k, &s, ki_t_const(k, t, v)) : NULL);
}
kn_tensor kn_full(kn_ctx *k, kn_ints shape, double v, kn_dtype t) { return filled(k, "full", shape, v, t); }
kn_tensor kn_zeros(kn_ctx *k, kn_ints shape, kn_dtype t) { return filled(k, "zeros", shape, 0, t); }
kn_tensor kn_ones(kn_ctx *k, kn_ints shape, kn_dtype t) { return filled(k, "ones", shape, 1, t); }

static kn_tensor like(kn_tensor x, const char *fn, double v) {
    ENTER(fn, x);
    ki_shape s = ki_shape_like(x->u);
    return ki_handle(k, ki_t_full(k, &s, ki_t_lit(k, x->u, v)));
}
kn_tensor kn_full_like(kn_tensor x, double v) { return like(x, "full_like", v); }
kn_tensor kn_zeros_like(kn_tensor x) { return like(x, "zeros_like", 0); }
kn_tensor kn_ones_like(kn_tensor x) { return like(x, "ones_like", 1); }

/* ---- positions --------------------------------------------------------------------------------------------- */

/* The spec's arange: the prefix sum of ones, less 1. Long ones in two digits, so that the graph as written stays small
 * to interpret; to the compiler both are the loop's index. Counted in signed integers, where subtracting 1 does not wrap
 * and the whole folds to the index. */
kn_uop ki_t_iota(kn_ctx *k, int64_t n, kn_dtype t) {
    enum { DIGIT = 512 };
    if (!ki_is_sint(t)) return ki_t_cast(k, ki_t_iota(k, n, KN_I64), t);
    if (n > DIGIT) {
        int64_t high = (n + DIGIT - 1) / DIGIT;
        kn_uop hi = ki_t_mul(k, RESHAPE(ki_t_iota(k, high, t), high, 1), ki_t_const(k, t, DIGIT));
        kn_uop lo = RESHAPE(ki_t_iota(k, DIGIT, t), 1, DIGIT);
        return ki_t_narrow(k, RESHAPE(ki_t_add(k, hi, lo), high * DIGIT), 0, 0, n);
    }
    kn_uop one = ki_t_const(k, t, 1);
    ki_shape s = {.n = 1, .d = {{n, NULL}}};
    return ki_t_sub(k, ki_t_scan(k, ki_t_full(k, &s, one), 0, KN_ADD, NULL), one);
}

kn_uop ki_t_iota_axis(kn_ctx *k, kn_uop like, unsigned axis, kn_dtype t) {
    if (!like || !ki_shape_known(k, like)) return NULL;
    ki_shape s = {.n = ki_rank(like)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == axis ? ki_dim_n(like, i) : 1;
    return ki_t_reshape_to(k, ki_t_iota(k, ki_dim_n(like, axis), t), &s);
}

kn_dtype ki_index_dtype(kn_dtype idx, int64_t n) {
    kn_dtype own = n < INT32_MAX ? KN_I32 : KN_I64, t = ki_promote(idx, own);
    return ki_is_float(t) ? KN_I64 : t;
}

kn_tensor kn_arange(kn_ctx *k, double start, double stop, double step, kn_dtype t) {
    ENTER_CTX("arange");
    double span = (stop - start) / step, n = ceil(span);
    if (!dtype_ok(k, t)) return ki_handle(k, NULL);
    if (!(step != 0) || !isfinite(span) || n > 1e15) return FAIL(KI_E_ARANGE, start, stop, step), ki_handle(k, NULL);
    int64_t count = n > 0 ? (int64_t)n : 0;
    bool whole = start == trunc(start) && step == trunc(step);
    kn_dtype work = ki_is_float(t) ? KN_F64 : KN_I64;
    if (ki_is_float(t) && whole && ki_dtypes[t].bits >= 32) work = t; /* exact as long as the result is */
    if (!ki_is_float(t) && !whole) work = KN_F64;
    kn_uop x = ki_t_iota(k, count, ki_is_float(work) ? ki_index_dtype(KN_I32, count) : work);
    x = ki_t_cast(k, x, work);
    if (step != 1) x = ki_t_mul(k, x, ki_t_const(k, work, step));
    if (start != 0) x = ki_t_add(k, x, ki_t_const(k, work, start));
    return ki_handle(k, ki_t_cast(k, x, t));
}

/* numpy's: start + i * step, the last one exactly stop. */
kn_tensor kn_linspace(kn_ctx *k, double start, double stop, int64_t n, kn_dtype t) {
    ENTER_CTX("linspace");
    if (!dtype_ok(k, t)) return ki_handle(k, NULL);
    if (n < 0 || n > INT64_C(1) << 47) return FAIL(KI_E_SIZE_RANGE, "linspace", (long long)n, 0u), ki_handle(k, NULL);
    kn_uop i = ki_t_iota(k, n, KN_I64);
    kn_uop x = ki_t_add(
        k, ki_t_mul(k, ki_t_cast(k, i, KN_F64), ki_t_const(k, KN_F64, n > 1 ? (stop - start) / (double)(n - 1) : 0)),
        ki_t_const(k, KN_F64, start));
    if (n > 1) x = ki_t_where(k, ki_t_eq(k, i, ki_t_lit(k, i, (double)(n - 1))), ki_t_const(k, KN_F64, stop), x);
    return ki_handle(k, ki_t_cast(k, x, t));
}

kn_tensor kn_eye(kn_ctx *k, int64_t rows, int64_t columns, kn_dtype t) {
    ENTER_CTX("eye");
    ki_shape s;
    if (!dtype_ok(k, t) || !ki_shape_read(k, KN_SHAPE(rows, columns), &s)) return ki_handle(k, NULL);
    kn_dtype it = ki_index_dtype(KN_I32, rows > columns ? rows : columns);
    kn_uop r = RESHAPE(ki_t_iota(k, rows, it), rows, 1), c = RESHAPE(ki_t_iota(k, columns, it), 1, columns);
    return ki_handle(k, ki_t_cast(k, ki_t_eq(k, r, c), t));
}

/* ---- variables and inputs ---------------------------------------------------------------------------------- */

kn_tensor kn_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi) {
    ENTER_CTX("variable");
    return ki_handle(k, ki_t_variable(k, name, lo, hi));
}
kn_tensor kn_input(kn_ctx *k, const char *name, kn_dtype t, kn_ints shape) {
    ENTER_CTX("input");
    return ki_handle(k, dtype_ok(k, t) ? ki_t_input(k, name, t, shape) : NULL);
}
