/* sort.h: rows and positions: what functions that order and count along an axis are made of. NULL in gives NULL out. */
#ifndef KI_SORT_H
#define KI_SORT_H

#include "tensor/build.h"

/* Axes given as bits, flattened behind all others: (rows, n). */
typedef struct ki_rows {
    kn_uop x;
    int64_t r, n;
    ki_shape kept;  /* the other axes; */
    ki_shape shape; /* x's own, */
    unsigned axis;  /* and the axis, if it is one */
} ki_rows;
bool ki_rows_of(kn_ctx *k, kn_uop x, uint32_t axes, ki_rows *o);
kn_uop ki_rows_out(kn_ctx *k, kn_uop y, const ki_rows *o, int64_t m);                           /* (rows, m) as x's shape with m for the axis */
kn_uop ki_rows_reduced(kn_ctx *k, kn_uop y, const ki_rows *o, uint32_t axes, int keep); /* (rows, 1) */

/* x[r, at[r, j]]; what lies outside is 0. */
kn_uop ki_t_pick(kn_ctx *k, kn_uop x, kn_uop at);
/* out[r, at[r, i]] += x[r, i] of n places that are 0 before; what lies outside goes nowhere. */
kn_uop ki_t_place(kn_ctx *k, kn_uop x, kn_uop at, int64_t n);
/* 0, 1, ... along the rows of (r, n). */
kn_uop ki_t_positions(kn_ctx *k, int64_t r, int64_t n, kn_dtype t);
kn_uop ki_t_stored(kn_ctx *k, kn_uop x);
kn_uop ki_t_running(kn_ctx *k, kn_uop x, unsigned axis); /* sums of integers, in their dtype */
kn_uop ki_t_count(kn_ctx *k, kn_uop p, unsigned axis);   /* of truths, i32; the axis stays */
kn_uop ki_t_first_of(kn_ctx *k, kn_uop p);               /* of truths (rows, n): where the first is, (rows, 1); n if there is none */

/* The order of x, or the opposite one, as that of unsigned integers (u32 or u64), of which so many low bits count. */
kn_uop ki_t_key(kn_ctx *k, kn_uop x, bool down, unsigned *bits);
/* Positions (rows, n) of keys in order, of i32. */
kn_uop ki_t_order(kn_ctx *k, kn_uop key, unsigned bits);

/* A call with more results than one, in to[0..n), each of which may be NULL: enters it, gives one, fails all. */
void ki_give(kn_ctx *k, kn_tensor *to, kn_uop u);
kn_tensor ki_fail_all(kn_ctx *k, kn_tensor *const *to, size_t n);
#define OUT(...) (kn_tensor *const[]){__VA_ARGS__}, sizeof((kn_tensor *const[]){__VA_ARGS__}) / sizeof(kn_tensor *)
kn_tensor ki_all_bad(kn_tensor bad, kn_tensor *const *to, size_t n);
#define ENTER_OUT(fn, optional, out, ...)                                                                  \
    kn_ctx *k;                                                                                             \
    do {                                                                                                   \
        const kn_tensor operand_[] = {__VA_ARGS__};                                                        \
        kn_tensor bad_ = ki_enter(&k, fn, operand_, sizeof operand_ / sizeof *operand_, optional);         \
        if (bad_ || !k) return ki_all_bad(bad_, out);                                                      \
    } while (0)

#endif
