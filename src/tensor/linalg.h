/* linalg.h: factorisations of small matrices, batched over all axes but the last two: what all of them do (linalg.c).
 *
 * Each is a loop over columns (or, for eigenvalues, over rounds of rotations) that is written out: a step reads the matrix
 * that the step before has stored, so that there are a few kernels a step, most of them the same but for their buffers.
 * That is for small matrices: KI_LARGEST says how large. Gradients go back through the steps, to any order. Computed in f32
 * at least. What is not defined (no square root, a pivot of 0) comes out as infinities and NaN, as elsewhere in koine. */
#ifndef KI_LINALG_H
#define KI_LINALG_H

#include "tensor/build.h"

enum { KI_LARGEST = 128, KI_LARGEST_TURNED = 64 /* by rotations: rounds grow with the sweeps too */ };

static inline int64_t rows_of(kn_uop x) { return ki_dim_n(x, ki_rank(x) - 2); }
static inline int64_t columns_of(kn_uop x) { return ki_dim_n(x, ki_rank(x) - 1); }
static inline kn_uop row_number(kn_ctx *k, kn_uop x) { return x ? ki_t_iota_axis(k, x, ki_rank(x) - 2, KN_I32) : NULL; }
static inline kn_uop column_number(kn_ctx *k, kn_uop x) { return x ? ki_t_iota_axis(k, x, ki_rank(x) - 1, KN_I32) : NULL; }
static inline kn_uop row(kn_ctx *k, kn_uop x, int64_t i) { return x ? ki_t_narrow(k, x, ki_rank(x) - 2, i, 1) : NULL; }
static inline kn_uop column(kn_ctx *k, kn_uop x, int64_t j) { return x ? ki_t_narrow(k, x, ki_rank(x) - 1, j, 1) : NULL; }
static inline kn_uop flipped(kn_ctx *k, kn_uop x) { return x ? ki_t_swap(k, x, ki_rank(x) - 2, ki_rank(x) - 1) : NULL; }
static inline uint32_t row_bit(kn_uop x) { return x ? UINT32_C(1) << (ki_rank(x) - 2) : 0; }
static inline uint32_t column_bit(kn_uop x) { return x ? UINT32_C(1) << (ki_rank(x) - 1) : 0; }

/* A step's result is stored, and so is its gradient. */
kn_uop ki_t_step(kn_ctx *k, kn_uop x);
/* x as matrices of floats to compute with; *t is the dtype of the result. How long their sides may be: the shorter one `most`, or both,
 * where something of the longer one's square is made. */
typedef enum ki_sides { KI_ANY, KI_ANY_WHOLE, KI_SQUARE } ki_sides;
kn_uop ki_matrices(kn_ctx *k, kn_uop x, ki_sides sides, int most, kn_dtype *t);
kn_uop ki_identity(kn_ctx *k, int64_t m, int64_t n, kn_dtype t);
kn_status ki_two_bad(kn_tensor *out, size_t n, kn_tensor bad);

/* ---- reflections (qr.c) ---- */

/* I - scale v v', which is its own inverse. */
typedef struct ki_reflection {
    kn_uop v, scale; /* (.., m, 1), (.., 1, 1) */
} ki_reflection;
/* *h turns column j of *r, from its j-th element on, into one element; *r becomes h r. */
bool ki_reflect(kn_ctx *k, kn_uop *r, int64_t j, ki_reflection *h);
kn_uop ki_mirror(kn_ctx *k, ki_reflection h, kn_uop x);      /* h x */
kn_uop ki_mirror_rows(kn_ctx *k, ki_reflection h, kn_uop x); /* x h */
/* q (.., m, n) and r (.., n, n) of a (.., m, n), m >= n, n at most KI_LARGEST. */
bool ki_thin_qr(kn_ctx *k, kn_uop a, kn_uop *q, kn_uop *r);

/* ---- rotations: rows (or columns) in pairs (i, i + h) of 2h, which change places in rounds ---- */

kn_uop ki_evened(kn_ctx *k, kn_uop x, unsigned axis); /* with one of 0 more, if it is an odd one */
int64_t ki_rounds(int64_t n, kn_dtype t);
/* The cosine and sine that make b zero between a and d; b 0: none. */
bool ki_angle(kn_ctx *k, kn_uop a, kn_uop b, kn_uop d, kn_uop *c, kn_uop *s);
/* x's halves along the axis, p and q, become c p - s q and s p + c q; c and s (.., h) stand along it. */
kn_uop ki_rotated(kn_ctx *k, kn_uop x, unsigned axis, kn_uop c, kn_uop s);
kn_uop ki_next_round(kn_ctx *k, kn_uop x, unsigned axis);

/* ---- what comes of them ---- */

/* Where each of w (.., n) stands in ascending or descending order, as (.., place, n) of bool; columns of x in that order. */
kn_uop ki_places(kn_ctx *k, kn_uop w, bool descending);
kn_uop ki_in_order(kn_ctx *k, kn_uop x, kn_uop places);
/* `value`, with the derivatives of `smooth`, which is equal to it but for roundings (or not defined). */
kn_uop ki_with_slope(kn_ctx *k, kn_uop value, kn_uop smooth);

#endif
