/* smallfloat.h: f16, bf16 and the two 8-bit floats, to and from double. Depends on nothing.
 *
 * To double is exact. From double is one rounding, to nearest, ties to even, subnormals included. So an
 * operation on small floats done in double and rounded once is correctly rounded (53 >= 2 * 11 + 2) for + - *
 * / sqrt.
 *  - f16, bf16, f8e5m2 overflow to infinity.
 *  - f8e4m3 is OCP's "fn" form: no infinity, largest 448, S.1111.111 is NaN. Infinity and whatever rounds
 * above 448 (that is, above 464) become NaN, as in ml_dtypes and JAX; it does not saturate. A NaN keeps its
 * sign and the leading bits of its payload and comes out quiet. */
#ifndef KI_SMALLFLOAT_H
#define KI_SMALLFLOAT_H

#include <stdint.h>

uint16_t ki_f16_from_f64(double v);
uint16_t ki_bf16_from_f64(double v);
uint8_t ki_f8e4m3_from_f64(double v);
uint8_t ki_f8e5m2_from_f64(double v);
double ki_f64_from_f16(uint16_t b);
double ki_f64_from_bf16(uint16_t b);
double ki_f64_from_f8e4m3(uint8_t b);
double ki_f64_from_f8e5m2(uint8_t b);

#endif
