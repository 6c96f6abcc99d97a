/* build.h: what the theme files of the front end are written with.
 *
 * A theme file (unary.c, reduce.c, conv.c, ...) is short functions on UOps and, under them, the public calls, which only
 * unwrap handles, call one of these, and wrap. Inside: NULL in gives NULL out, the failure is in k->env, so a
 * composition is written as one expression and checked at its end. ki_t_... work on UOps of any dtype and shape: they
 * promote and broadcast; constants are made by ki_t_lit(), in the dtype of a neighbour.
 * KN_NO_LOC: here the public names are functions, not the macros that note the caller's place. */
#ifndef KI_BUILD_H
#define KI_BUILD_H

#define KN_NO_LOC
#include "tensor/context.h"

#include <koine/nn.h>
#include <koine/tensor.h>

/* ---- public calls ------------------------------------------------------------------------------------------ */

/* Enters a call on tensors: `k` is their context; returns early with an error tensor where one cannot be used.
 * optional: bit i set: operand i may be NULL. */
kn_tensor ki_enter(kn_ctx **k, const char *fn, const kn_tensor *t, size_t n, unsigned optional);
#define ENTER_(fn, optional, ...)                                                                             \
    kn_ctx *k;                                                                                                \
    do {                                                                                                      \
        const kn_tensor operand_[] = {__VA_ARGS__};                                                           \
        kn_tensor bad_ = ki_enter(&k, fn, operand_, sizeof operand_ / sizeof *operand_, optional);            \
        if (bad_ || !k) return bad_;                                                                          \
    } while (0)
#define ENTER(fn, ...) ENTER_(fn, 0, __VA_ARGS__)
/* A call that takes the context itself; without one (kn_open had no memory) it returns NULL. */
#define ENTER_CTX(name)                      \
    do {                                     \
        if (!k) return NULL;                 \
        ki_begin(k, name);                   \
    } while (0)
void ki_begin(kn_ctx *k, const char *fn); /* of a context that is there */
#define FAIL(...) ki_none(ki_fail(&k->env, __VA_ARGS__))
static inline kn_uop ki_none(int status) { return (void)status, NULL; }

/* batch.c: the roots again where each from[i] is to[i], which has an axis of this size more, in front, as the roots have then; in place. */
bool ki_batched(kn_ctx *k, kn_uop *root, size_t nroot, const kn_uop *from, const kn_uop *to, size_t n, kn_uop size);

/* ---- what was made before (recall.c) ----------------------------------------------------------------------- */

/* The value noted for this key since the last collection, NULL: none. part: a number that belongs to the key, how it is divided say. */
const kn_uop *ki_recall(kn_ctx *k, ki_derivation what, size_t part, const kn_uop *key, size_t n, size_t *nvalue);
void ki_recall_note(kn_ctx *k, ki_derivation what, size_t part, const kn_uop *key, size_t n, const kn_uop *value,
                    size_t nvalue);
void ki_recall_close(kn_ctx *k);

/* ---- shapes ------------------------------------------------------------------------------------------------ */

typedef struct ki_shape {
    unsigned n;
    ki_dim d[KI_MAX_RANK];
} ki_shape;
ki_shape ki_shape_like(kn_uop u);
/* A public list as a shape, symbols (kn_sym) resolved. */
bool ki_shape_read(kn_ctx *k, kn_ints list, ki_shape *out);
bool ki_shape_same(const ki_shape *a, const ki_shape *b);
/* All sizes constant? Else a failure. */
bool ki_shape_known(kn_ctx *k, kn_uop u);
/* Axis, negative from the end, to 0..rank-1; -1 after a failure. */
int ki_axis(kn_ctx *k, int64_t axis, unsigned rank);
/* A list of axes as bits; false after a failure (range, repetition). */
bool ki_axes(kn_ctx *k, kn_ints axes, unsigned rank, uint32_t *bits);
static inline uint32_t all_axes(kn_uop u) { return u ? (UINT32_C(1) << ki_rank(u)) - 1 : 0; }

kn_uop ki_t_reshape_to(kn_ctx *k, kn_uop x, const ki_shape *s);
kn_uop ki_t_expand_to(kn_ctx *k, kn_uop x, const ki_shape *s); /* ranks equal */
kn_uop ki_t_broadcast_to(kn_ctx *k, kn_uop x, const ki_shape *s);
/* Common shape of two values; () meets any shape without a node. */
bool ki_broadcast(kn_ctx *k, kn_uop *a, kn_uop *b);

/* ---- movement ---------------------------------------------------------------------------------------------- */

kn_uop ki_t_reshape(kn_ctx *k, kn_uop x, unsigned n, const int64_t *dim);
#define RESHAPE(x, ...) \
    ki_t_reshape(k, x, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})
kn_uop ki_t_unsqueeze(kn_ctx *k, kn_uop x, unsigned axis);
kn_uop ki_t_squeeze(kn_ctx *k, kn_uop x, uint32_t axes); /* drops these axes, of size 1 */
kn_uop ki_t_swap(kn_ctx *k, kn_uop x, unsigned a, unsigned b);
kn_uop ki_t_move(kn_ctx *k, kn_uop x, unsigned from, unsigned to);
kn_uop ki_t_expand_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t n); /* of size 1, to n */
/* One axis: elements from..from+n; zeros around it up to `before` and `after` more. */
kn_uop ki_t_narrow(kn_ctx *k, kn_uop x, unsigned axis, int64_t from, int64_t n);
kn_uop ki_t_pad_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t before, int64_t after);
kn_uop ki_t_pad_with(kn_ctx *k, kn_uop x, const int64_t *before, const int64_t *after, kn_uop fill); /* () fill, NULL: 0 */
kn_uop ki_t_tile_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t times);
kn_uop ki_t_slice_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t start, int64_t stop, int64_t step);
kn_uop ki_t_flip_axis(kn_ctx *k, kn_uop x, unsigned axis);
/* Windows of `size` elements `dilation` apart, every `step`: (.., n, ..) to (.., out, .., size), the window last. */
kn_uop ki_t_windows(kn_ctx *k, kn_uop x, unsigned axis, int64_t size, int64_t step, int64_t dilation);
kn_uop ki_t_cat(kn_ctx *k, const kn_uop *x, size_t n, int axis);
kn_uop ki_t_diagonal(kn_ctx *k, kn_uop x, int64_t offset); /* of the last two axes */

/* ---- elementwise ------------------------------------------------------------------------------------------- */

kn_uop ki_t_cast(kn_ctx *k, kn_uop x, kn_dtype t);
/* The dtype in which fractions are computed: floats stay, the rest is f32. */
static inline kn_dtype ki_fraction(kn_dtype t) { return ki_is_float(t) ? t : KN_F32; }
static inline kn_uop ki_t_float(kn_ctx *k, kn_uop x) { return x ? ki_t_cast(k, x, ki_fraction((kn_dtype)x->dtype)) : NULL; }
kn_uop ki_t_truth(kn_ctx *k, kn_uop x); /* x != 0 */
kn_uop ki_t_const(kn_ctx *k, kn_dtype t, double v);
kn_uop ki_t_lit(kn_ctx *k, kn_uop like, double v); /* a constant of like's dtype */
kn_uop ki_t_full(kn_ctx *k, const ki_shape *s, kn_uop scalar);
kn_uop ki_t_lowest(kn_ctx *k, kn_dtype t); /* the identity of max */

kn_uop ki_t_unary(kn_ctx *k, kn_op op, kn_uop x);
kn_uop ki_t_binary(kn_ctx *k, kn_op op, kn_uop a, kn_uop b);
kn_uop ki_t_where(kn_ctx *k, kn_uop p, kn_uop a, kn_uop b);
kn_uop ki_t_min(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_add(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_sub(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_mul(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_div(kn_ctx *k, kn_uop a, kn_uop b); /* true division */
kn_uop ki_t_pow(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_max(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_lt(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_gt(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_le(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_ge(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_eq(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_ne(kn_ctx *k, kn_uop a, kn_uop b);

/* Every row of unary.def. */
#define UNARY(name, class, ...) kn_uop ki_t_##name(kn_ctx *k, kn_uop x);
#include "tensor/unary.def"
#undef UNARY
kn_uop ki_t_logaddexp(kn_ctx *k, kn_uop a, kn_uop b); /* floats */
kn_uop ki_t_elu(kn_ctx *k, kn_uop x, double alpha);
kn_uop ki_t_clamp(kn_ctx *k, kn_uop x, double lo, double hi);
kn_uop ki_t_straight(kn_ctx *k, kn_uop value, kn_uop like); /* value, in like's dtype; gradients go to like, of its shape */

/* ---- reductions -------------------------------------------------------------------------------------------- */

/* Over axes given as bits; the axes stay at 1. */
kn_uop ki_t_reduce(kn_ctx *k, kn_uop x, kn_op op, uint32_t axes);
kn_uop ki_t_sum(kn_ctx *k, kn_uop x, uint32_t axes); /* in the accumulating dtype, back in the result's */
kn_uop ki_t_prod(kn_ctx *k, kn_uop x, uint32_t axes);
kn_uop ki_t_max_over(kn_ctx *k, kn_uop x, uint32_t axes);
kn_uop ki_t_min_over(kn_ctx *k, kn_uop x, uint32_t axes);
kn_uop ki_t_mean(kn_ctx *k, kn_uop x, uint32_t axes);
kn_uop ki_t_var(kn_ctx *k, kn_uop x, uint32_t axes, double correction);
kn_uop ki_t_logsumexp(kn_ctx *k, kn_uop x, uint32_t axes);
kn_uop ki_t_scan(kn_ctx *k, kn_uop x, unsigned axis, kn_op op, kn_uop identity); /* identity NULL: 0 */
kn_uop ki_t_softmax(kn_ctx *k, kn_uop x, unsigned axis);
kn_uop ki_t_log_softmax(kn_ctx *k, kn_uop x, unsigned axis);
/* x in the dtype that log_softmax is computed in, and what it takes off all of a row, one after the other: its largest, the logarithm of a sum. */
kn_uop ki_t_log_total(kn_ctx *k, kn_uop x, unsigned axis, kn_uop off[2]);

/* ---- indexing and products --------------------------------------------------------------------------------- */

/* 0, 1, ..., n-1 of shape (n,), of dtype t. */
kn_uop ki_t_iota(kn_ctx *k, int64_t n, kn_dtype t);
/* The same along one axis of a value's shape: (1, .., n, .., 1). */
kn_uop ki_t_iota_axis(kn_ctx *k, kn_uop like, unsigned axis, kn_dtype t);
/* An integer dtype that holds 0..n-1 and the values of idx. */
kn_dtype ki_index_dtype(kn_dtype idx, int64_t n);
kn_uop ki_t_take(kn_ctx *k, kn_uop x, kn_uop idx, unsigned axis);
kn_uop ki_t_matmul(kn_ctx *k, kn_uop a, kn_uop b);
kn_uop ki_t_vector_norm(kn_ctx *k, kn_uop x, double ord, uint32_t axes); /* the axes stay at 1 */
kn_uop ki_t_linear(kn_ctx *k, kn_uop x, kn_uop weight, kn_uop bias);
/* A loss of each element as one asks for it. */
kn_uop ki_t_gathered(kn_ctx *k, kn_uop x, kn_reduction how);

kn_uop ki_t_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi);
kn_uop ki_t_input(kn_ctx *k, const char *name, kn_dtype t, kn_ints shape);

/* Weak literals of two handles take each other's dtype. */
void ki_meet(kn_ctx *k, kn_tensor a, kn_tensor b, kn_uop *ua, kn_uop *ub);
/* A literal b next to a, as a double. */
kn_uop ki_literal(kn_ctx *k, kn_uop a, double b);

/* ---- gradients, realisation -------------------------------------------------------------------------------- */

/* Into out[i] the sum over j of what dy[j] is by way of y[j] to wrt[i]. */
bool ki_grad(kn_ctx *k, const kn_uop *y, const kn_uop *dy, size_t ny, const kn_uop *wrt, size_t n, kn_uop *out);
kn_uop ki_t_placeholder(kn_ctx *k, kn_uop like); /* a PARAM like a value, with a name no other has */

#endif
