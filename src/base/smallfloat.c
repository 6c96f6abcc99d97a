/* smallfloat.c: one encoder and one decoder for every binary float narrower than double.
 *
 * A format is (exponent bits, mantissa bits, has infinity). Invariant: adding one to the bits of a finite
 * positive value gives the next one, across exponents and up to infinity; so rounding up may carry into the
 * exponent unchecked. */
#include "base/smallfloat.h"

#include <stdbool.h>
#include <string.h>

typedef struct format {
    int ebits, mbits;
    bool inf;
} format;
static const format f16 = {5, 10, true}, bf16 = {8, 7, true}, f8e4m3 = {4, 3, false}, f8e5m2 = {5, 2, true};

static uint32_t encode_special(format f, uint32_t sign, uint64_t man) {
    uint32_t top = ((UINT32_C(1) << f.ebits) - 1) << f.mbits, all = (UINT32_C(1) << f.mbits) - 1;
    if (!f.inf) return sign | top | all;
    if (!man) return sign | top;
    return sign | top | (UINT32_C(1) << (f.mbits - 1)) | (uint32_t)(man >> (52 - f.mbits));
}

static uint32_t encode(format f, double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    uint32_t sign = (uint32_t)(b >> 63) << (f.ebits + f.mbits);
    int exp = (int)(b >> 52 & 0x7ff);
    uint64_t man = b & ((UINT64_C(1) << 52) - 1);
    if (exp == 0x7ff) return encode_special(f, sign, man);
    if (!exp) return sign; /* far below the least subnormal of every format */
    int e = exp - 1023 + ((1 << (f.ebits - 1)) - 1), shift = 52 - f.mbits;
    if (e >= (1 << f.ebits)) return encode_special(f, sign, 0);
    uint32_t base = 0; /* a subnormal has no hidden bit and the exponent of e = 1 */
    if (e < 1) shift += 1 - e;
    else base = (uint32_t)(e - 1) << f.mbits; /* the hidden bit adds the missing one */
    if (shift > 54) return sign;
    man |= UINT64_C(1) << 52;
    uint64_t q = man >> shift, rest = man & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    if (rest > half || (rest == half && (q & 1))) q++;
    uint32_t r = base + (uint32_t)q, top = ((UINT32_C(1) << f.ebits) - 1) << f.mbits;
    uint32_t limit = f.inf ? top : top | ((UINT32_C(1) << f.mbits) - 1);
    return sign | (r < limit ? r : limit);
}

static double decode(format f, uint32_t b) {
    uint32_t all = (UINT32_C(1) << f.mbits) - 1, man = b & all;
    int emax = (1 << f.ebits) - 1, bias = (1 << (f.ebits - 1)) - 1, exp = (int)(b >> f.mbits) & emax;
    uint64_t out = (uint64_t)(b >> (f.ebits + f.mbits) & 1) << 63, wide = (uint64_t)man << (52 - f.mbits);
    if (exp == emax && (f.inf || man == all)) {
        out |= UINT64_C(0x7ff) << 52 | wide;
        if (man) out |= UINT64_C(1) << 51; /* quiet */
    } else if (exp) {
        out |= (uint64_t)(exp - bias + 1023) << 52 | wide;
    } else if (man) { /* subnormal: normal as a double */
        int e = 1 - bias;
        for (wide = (uint64_t)man << (52 - f.mbits); !(wide >> 52); wide <<= 1) e--;
        out |= (uint64_t)(e + 1023) << 52 | (wide & ((UINT64_C(1) << 52) - 1));
    }
    double v;
    memcpy(&v, &out, sizeof v);
    return v;
}

uint16_t ki_f16_from_f64(double v) { return (uint16_t)encode(f16, v); }
uint16_t ki_bf16_from_f64(double v) { return (uint16_t)encode(bf16, v); }
uint8_t ki_f8e4m3_from_f64(double v) { return (uint8_t)encode(f8e4m3, v); }
uint8_t ki_f8e5m2_from_f64(double v) { return (uint8_t)encode(f8e5m2, v); }
double ki_f64_from_f16(uint16_t b) { return decode(f16, b); }
double ki_f64_from_bf16(uint16_t b) { return decode(bf16, b); }
double ki_f64_from_f8e4m3(uint8_t b) { return decode(f8e4m3, b); }
double ki_f64_from_f8e5m2(uint8_t b) { return decode(f8e5m2, b); }
