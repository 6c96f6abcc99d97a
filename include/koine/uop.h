/* uop.h: the graph itself: building nodes by hand, reading them, their text. C99 and C++ clean.
 *
 * A node (kn_uop) is immutable and unique: equal (op, dtype, sources, arg) is the same pointer. It belongs to its
 * context. A constructor that cannot make a well-formed node returns NULL and records why (kn_message); given a NULL
 * source it returns NULL, so a graph is checked once, at its end. Ops are named as in the text form (`koine ops`).
 *
 *   A kernel: out[i] = a[i] + b[i] for i below 16
 *     kn_uop out = kn_u_param(k, 0, KN_I32, 16), a = kn_u_param(k, 1, KN_I32, 16), b = kn_u_param(k, 2, KN_I32, 16);
 *     kn_uop i = kn_u_range(k, kn_u_int(k, KN_IDX, 16), KN_LOOP);
 *     kn_uop sum = kn_u(k, "add", kn_u(k, "index", a, i), kn_u(k, "index", b, i));
 *     kn_uop kernel = kn_u_kernel(k, "sum", kn_u(k, "end", kn_u(k, "store", kn_u(k, "index", out, i), sum), i));
 *   A value: reduce max over axis 1
 *     kn_uop m = kn_u_reduce(k, x, "max", KN_AXES(1));
 *   Reading: every node, sources first
 *     for (uint32_t j = 0; j < kn_uop_nsrc(u); j++) visit(kn_uop_src(u, j)); */
#ifndef KN_UOP_H
#define KN_UOP_H

#include <koine/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef const struct kn_uop_s *kn_uop;

/* ---- lists of integers: shapes, axes, pads ----------------------------------------------------------------- */

#define KN_MAX_LIST 32
typedef struct kn_ints {
    int64_t n; /* more than KN_MAX_LIST: the list was too long, and every call refuses it */
    int64_t v[KN_MAX_LIST];
} kn_ints;
KN_API kn_ints kn_ints_of(size_t n, const int64_t *v);
#ifdef __cplusplus
extern "C++" {
template <class... A> static inline kn_ints kn_list(A... a) {
    const int64_t v[] = {0, static_cast<int64_t>(a)...};
    return kn_ints_of(sizeof...(a), v + 1);
}
}
#define KN_LIST(...) kn_list(__VA_ARGS__)
#else
#define KN_LIST(...) \
    kn_ints_of(sizeof((const int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1, (const int64_t[]){0, __VA_ARGS__} + 1)
#endif
#define KN_SHAPE(...) KN_LIST(__VA_ARGS__)
#define KN_AXES(...) KN_LIST(__VA_ARGS__)
#define KN_PADS(...) KN_LIST(__VA_ARGS__) /* before, after of axis 0, then of axis 1, ... */

/* ---- constructors ------------------------------------------------------------------------------------------ */

/* The specification's axis types and address spaces. */
typedef enum kn_axis_type {
    KN_GLOBAL_AXIS, KN_LOCAL_AXIS, KN_WARP_AXIS, KN_THREAD_AXIS, KN_LOOP_AXIS, KN_REDUCE_AXIS, KN_GROUP_AXIS,
    KN_UPCAST_AXIS, KN_UNROLL_AXIS
} kn_axis_type;
typedef enum kn_space { KN_IN_GLOBAL, KN_IN_LOCAL, KN_IN_REG } kn_space;

/* Any op without arg: kn_u(k, "add", a, b). */
KN_API kn_uop kn_u_make(kn_ctx *k, const char *op, size_t n, const kn_uop *src);
#ifdef __cplusplus
extern "C++" {
template <class... A> static inline kn_uop kn_u(kn_ctx *k, const char *op, A... a) {
    const kn_uop v[] = {nullptr, a...};
    return kn_u_make(k, op, sizeof...(a), v + 1);
}
}
#else
#define kn_u(k, ...) KN_U_(k, __VA_ARGS__, NULL)
#define KN_U_(k, op, ...) \
    kn_u_make(k, op, sizeof((const kn_uop[]){__VA_ARGS__}) / sizeof(kn_uop) - 1, (const kn_uop[]){__VA_ARGS__})
#endif

KN_API kn_uop kn_u_int(kn_ctx *k, kn_dtype t, int64_t v);
KN_API kn_uop kn_u_float(kn_ctx *k, kn_dtype t, double v);
KN_API kn_uop kn_u_param(kn_ctx *k, int slot, kn_dtype t, int64_t size); /* slot-th buffer of a kernel, flat */
KN_API kn_uop kn_u_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi); /* scalar of dtype index */
KN_API kn_uop kn_u_input(kn_ctx *k, const char *name, kn_dtype t, kn_ints shape); /* named input of a tensor program */
KN_API kn_uop kn_u_buffer(kn_ctx *k, kn_dtype t, int64_t size, kn_space space);   /* a new one each time */
KN_API kn_uop kn_u_range(kn_ctx *k, kn_uop bound, kn_axis_type axis);             /* a new one each time */
KN_API kn_uop kn_u_special(kn_ctx *k, const char *name, kn_uop bound);
KN_API kn_uop kn_u_cast(kn_ctx *k, kn_uop x, kn_dtype t);
KN_API kn_uop kn_u_bitcast(kn_ctx *k, kn_uop x, kn_dtype t);
KN_API kn_uop kn_u_shape(kn_ctx *k, kn_ints shape); /* a stack of index constants, as reshape, expand, pad, shrink take */
KN_API kn_uop kn_u_axes(kn_ctx *k, const char *op, kn_uop x, kn_ints axes); /* permute, flip, replicated */
KN_API kn_uop kn_u_reduce(kn_ctx *k, kn_uop x, const char *op, kn_ints axes);
KN_API kn_uop kn_u_reduce_ranges(kn_ctx *k, kn_uop x, const char *op, size_t n, const kn_uop *ranges);
KN_API kn_uop kn_u_get(kn_ctx *k, kn_uop tuple, int64_t i);
KN_API kn_uop kn_u_kernel(kn_ctx *k, const char *name, kn_uop effect); /* SINK with kernel info */

/* ---- readers ----------------------------------------------------------------------------------------------- */

KN_API const char *kn_uop_op(kn_uop u); /* "add", ...; "" of NULL, as all below give 0, NULL or "" */
KN_API kn_dtype kn_uop_dtype(kn_uop u);
KN_API uint32_t kn_uop_id(kn_uop u); /* sources have smaller ones */
KN_API uint32_t kn_uop_nsrc(kn_uop u);
KN_API kn_uop kn_uop_src(kn_uop u, uint32_t i);
KN_API int kn_uop_rank(kn_uop u);
KN_API int64_t kn_uop_dim(kn_uop u, unsigned axis); /* a symbolic one: its upper bound */
KN_API kn_uop kn_uop_sym(kn_uop u, unsigned axis);  /* the expression of a symbolic axis, else NULL */
/* Bounds of the values. 0: unknown. */
KN_API int kn_uop_bounds_int(kn_uop u, int64_t *lo, int64_t *hi);
KN_API int kn_uop_bounds_float(kn_uop u, double *lo, double *hi);
KN_API int kn_uop_const_int(kn_uop u, int64_t *v); /* an integer or bool constant's value */
KN_API int kn_uop_const_float(kn_uop u, double *v);

/* ---- text, checks, other forms ----------------------------------------------------------------------------- */

/* The nodes of a graph as text, for reading; NULL on failure. The caller frees it with kn_free. */
KN_API char *kn_uop_text(kn_ctx *k, kn_uop root);

/* A hand-built kernel (SINK): checked against the specification of the stage it is at, rendered for a target ("c"),
 * or run on the context's device with one pointer per PARAM slot. Implemented by the run layer. */
KN_API kn_status kn_kernel_check(kn_ctx *k, kn_uop kernel);
KN_API char *kn_kernel_source(kn_ctx *k, kn_uop kernel, const char *target);
KN_API kn_status kn_kernel_run(kn_ctx *k, kn_uop kernel, void *const *buffers, size_t n);

#ifdef __cplusplus
}
#endif
#endif
