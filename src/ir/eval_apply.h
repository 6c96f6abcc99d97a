/* eval_apply.h: one elementwise op over arrays of values, and the bound on its error. Private to the interpreter.
 *
 * A value is eight bytes, as CONST stores it. An operand with stride 0 is one value for all elements. */
#ifndef KI_EVAL_APPLY_H
#define KI_EVAL_APPLY_H

#include "ir/uop.h"

typedef struct ki_apply ki_apply;
typedef bool ki_apply_fn(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst);
struct ki_apply {
    ki_apply_fn *fn;
    uint8_t op, out, nsrc;
    uint8_t in[3], stride[3];
};

/* op: elementwise, or BITCAST between dtypes of one size. Strides start at 1. False: not such an op. */
bool ki_apply_init(ki_apply *s, kn_op op, kn_dtype out, const kn_dtype *in, unsigned nsrc);
/* dst[i] = op(src[k][i * stride[k]]...). False: some element has no value (index overflow). */
static inline bool ki_apply_run(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    return s->fn(s, n, src, dst);
}

/* ---- error bounds (DESIGN 10.12), see eval_bound.c ---- */

/* Beside each value stands a double:
 *   0            exact: no rounding ever happened; every right program gives these bits
 *   KI_ROUNDED   rounded, but by correctly rounded operations on values that are certain: these bits too
 *   larger       another right program may differ by so much; infinities and NaNs are certain
 *   infinity     nothing is known: a comparison, cast or index fell inside a bound; the element is exempt */
#define KI_ROUNDED 0x1p-1074
static inline bool ki_certain(double e) { return e <= KI_ROUNDED; }

/* Bounds of dst from bounds of the operands (err[k] NULL: all exact). */
void ki_bound_run(const ki_apply *s, size_t n, const uint64_t *const *src, const double *const *err,
                  const uint64_t *dst, double *out);
/* Spacing of values of a float dtype near v; never 0. */
double ki_ulp(kn_dtype t, double v);
double ki_float_max(kn_dtype t);
double ki_roundoff(kn_dtype t); /* half the spacing at 1 */

/* Reduction by any tree, with mul + add contracted or not. */
typedef struct ki_bound_acc {
    uint8_t op, dtype;
    bool exact, infinite, unknown; /* all terms exact; some term is infinite or NaN; some bound is infinite */
    bool over, nan;                /* some infinity is a product that overflowed; some term is NaN */
    int64_t count;                 /* terms that are not exactly zero */
    double each;                   /* ADD: terms of each of them, that is a sum itself; 1: it is none */
    double abs, err;   /* ADD: sums of |x| and of bounds. MUL: products of |x| and of |x| + bound. MAX: bound */
    double big, small; /* MUL: products of what exceeds 1 and of what is below */
    int low, bits;     /* ADD: lowest bit set in any term. MUL: significant bits in total */
    bool zero;         /* MUL: some term is exactly zero */
} ki_bound_acc;
void ki_bound_acc_start(ki_bound_acc *a, kn_op op, kn_dtype t, double each);
void ki_bound_acc_add(ki_bound_acc *a, uint64_t bits, double err);
double ki_bound_acc_end(const ki_bound_acc *a, uint64_t result);

#endif
