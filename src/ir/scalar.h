/* scalar.h: what every elementwise op of ops.def means on one element; the meaning the interpreter, the
 * constant folder and the rule prover share.
 *
 * Values are bits as CONST stores them: integers sign- or zero-extended to 64 bits, bool 0 or 1, floats their
 * own bits zero-extended, index as int64. The two functions return false where the op has no value: an op its
 * dtype does not allow (flags of ops.def), or a result of dtype index that no int64 holds (index is a
 * mathematical integer).
 *  - Integers wrap. idiv and mod floor; by zero they give 0. A shift count outside 0..width-1 gives 0 (shr of
 * a negative number: -1). bool: add and max are or, mul is and.
 *  - f32 and f64: + - * / recip sqrt mulacc correctly rounded; other functions by libm in double, then one
 * rounding. f16, bf16, 8-bit floats: in double (mulacc exactly), then one rounding.
 *  - A computed NaN is the dtype's canonical quiet NaN; neg and where move bits.
 *  - cast: float to float and integer to float round once; float to integer truncates and saturates, NaN
 * gives 0; integer to integer wraps; anything to bool is x != 0 (NaN: true). f8e4m3 overflow gives NaN
 * (smallfloat.h). */
#ifndef KI_SCALAR_H
#define KI_SCALAR_H

#include "ir/uop.h"

/* in_dtype and in_bits have as many entries as the op has sources; out is the dtype of the result (bool for
 * compares). */
bool ki_scalar(kn_op op, kn_dtype out, const kn_dtype *in_dtype, const uint64_t *in_bits, uint64_t *out_bits);
/* The same on integers of any width 1..64 with wraparound; no cast, no threefry below 64 bits. Compares give
 * 0 or 1. */
bool ki_scalar_int(kn_op op, unsigned width, bool is_signed, const uint64_t *in, uint64_t *out);
/* Cast alone. */
bool ki_scalar_cast(kn_dtype to, kn_dtype from, uint64_t bits, uint64_t *out);

/* Start value of a reduction (ADD, MUL, MAX). nonempty: a float sum starts at -0.0, so that it is the
 * identity; an empty sum is +0. MAX starts at the dtype's least value (floats -inf; f8e4m3 -448). */
uint64_t ki_scalar_identity(kn_op op, kn_dtype t, bool nonempty);

/* Threefry 2x32, 20 rounds; low words first. */
uint64_t ki_threefry(uint64_t counter, uint64_t key);

/* Element i of an array in storage form (bool a byte, index int64, small floats their bits), as bits, and
 * back. */
uint64_t ki_storage_get(kn_dtype t, const void *array, int64_t i);
void ki_storage_put(kn_dtype t, void *array, int64_t i, uint64_t bits);

/* Low `width` bits of v, sign- or zero-extended. */
static inline uint64_t ki_extend(uint64_t v, unsigned width, bool is_signed) {
    if (width >= 64) return v;
    v &= (UINT64_C(1) << width) - 1;
    if (is_signed && (v >> (width - 1))) v |= ~UINT64_C(0) << width;
    return v;
}
/* A variable's value travels as an int64_t: an integer as it is, a float as its bits, as a CONST holds them. To the bits of an
 * element of its dtype. */
uint64_t ki_var_bits(kn_dtype t, int64_t value);

/* uop.h declares ki_bits_from_f64, ki_f64_from_bits, ki_bits_wrap and ki_const_f64; scalar.c defines them. */

#endif
