/* scalar.c: the scalar meaning of every elementwise op. One switch for integers of any width, one for bool,
 * one for doubles; f32 goes its own way only where double would round twice.
 *
 * Whoever edits this: nothing here may depend on rules, renderers or the host's floating-point flags; it is
 * the reference the others are compared with. Compiled with contraction off. */
#include "ir/scalar.h"

#include "base/smallfloat.h"

#include <math.h>
#include <string.h>

/* ---- bits and numbers --------------------------------------------------------------------------------------- */

static float f32_of(uint64_t bits) {
    uint32_t b = (uint32_t)bits;
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}
static uint64_t bits_of_f32(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}
static double f64_of(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static uint64_t bits_of_f64(double d) {
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

static uint64_t float_bits(kn_dtype t, double v) {
    switch (t) {
    case KN_F64: return bits_of_f64(v);
    case KN_F32: return bits_of_f32((float)v);
    case KN_F16: return ki_f16_from_f64(v);
    case KN_BF16: return ki_bf16_from_f64(v);
    case KN_F8E4M3: return ki_f8e4m3_from_f64(v);
    default: return ki_f8e5m2_from_f64(v);
    }
}
static double float_value(kn_dtype t, uint64_t bits) {
    switch (t) {
    case KN_F64: return f64_of(bits);
    case KN_F32: return (double)f32_of(bits);
    case KN_F16: return ki_f64_from_f16((uint16_t)bits);
    case KN_BF16: return ki_f64_from_bf16((uint16_t)bits);
    case KN_F8E4M3: return ki_f64_from_f8e4m3((uint8_t)bits);
    default: return ki_f64_from_f8e5m2((uint8_t)bits);
    }
}
static uint64_t sign_bit(kn_dtype t) { return UINT64_C(1) << (ki_dtypes[t].bits - 1); }

static uint64_t canonical_nan(kn_dtype t) {
    switch (t) {
    case KN_F64: return UINT64_C(0x7ff8000000000000);
    case KN_F32: return 0x7fc00000;
    case KN_F16: return 0x7e00;
    case KN_BF16: return 0x7fc0;
    case KN_F8E4M3: return 0x7f;
    default: return 0x7e;
    }
}

/* Truncate and saturate to a signed or unsigned integer of w bits; NaN gives 0. */
static uint64_t int_from_f64(double v, unsigned w, bool is_signed) {
    if (isnan(v)) return 0;
    v = trunc(v);
    if (is_signed) {
        double top = ldexp(1.0, (int)w - 1);
        if (v < -top) return ~UINT64_C(0) << (w - 1);
        if (v >= top) return (UINT64_C(1) << (w - 1)) - 1;
        return (uint64_t)(int64_t)v;
    }
    if (v <= 0) return 0;
    if (v >= ldexp(1.0, (int)w)) return w >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << w) - 1;
    return (uint64_t)v;
}

/* An integer as a double such that one more rounding, to a format of at most 51 bits, rounds the integer
 * once: to nearest if exact, else to odd. */
static double odd_f64(uint64_t magnitude, bool negative) {
    if (magnitude >> 53) {
        int shift = 11 - (ki_clz64(magnitude) < 11 ? ki_clz64(magnitude) : 11);
        uint64_t lost = magnitude & ((UINT64_C(1) << shift) - 1);
        magnitude = (magnitude >> shift | (lost != 0)) << shift;
    }
    return negative ? -(double)magnitude : (double)magnitude;
}

static uint64_t float_from_int(kn_dtype to, uint64_t bits, bool is_signed) {
    if (to == KN_F64) return bits_of_f64(is_signed ? (double)(int64_t)bits : (double)bits);
    if (to == KN_F32) return bits_of_f32(is_signed ? (float)(int64_t)bits : (float)bits);
    bool neg = is_signed && (int64_t)bits < 0;
    return float_bits(to, odd_f64(neg ? 0 - bits : bits, neg));
}

static bool is_signed_dtype(kn_dtype t) { return ki_dtypes[t].kind == KI_K_INT || ki_dtypes[t].kind == KI_K_INDEX; }

bool ki_scalar_cast(kn_dtype to, kn_dtype from, uint64_t bits, uint64_t *out) {
    if (to == KN_VOID || from == KN_VOID) return false;
    if (to == from) {
        *out = bits;
    } else if (ki_is_float(from)) {
        double v = float_value(from, bits);
        if (to == KN_BOOL) *out = v != 0; /* true for NaN */
        else if (ki_is_float(to)) *out = float_bits(to, v);
        else *out = int_from_f64(v, ki_dtypes[to].bits, is_signed_dtype(to));
    } else if (to == KN_BOOL) {
        *out = bits != 0;
    } else if (ki_is_float(to)) {
        *out = float_from_int(to, bits, is_signed_dtype(from));
    } else {
        if (ki_dtypes[to].kind == KI_K_INDEX && from == KN_U64 && (int64_t)bits < 0) return false;
        *out = ki_extend(bits, ki_dtypes[to].bits, is_signed_dtype(to));
    }
    return true;
}

uint64_t ki_bits_from_f64(kn_dtype t, double v) {
    uint64_t out = 0;
    if (ki_is_float(t)) return float_bits(t, v);
    (void)ki_scalar_cast(t, KN_F64, bits_of_f64(v), &out);
    return out;
}
double ki_f64_from_bits(kn_dtype t, uint64_t bits) {
    if (ki_is_float(t)) return float_value(t, bits);
    return is_signed_dtype(t) ? (double)(int64_t)bits : (double)bits;
}
uint64_t ki_bits_wrap(kn_dtype t, int64_t v) {
    uint64_t out = 0;
    (void)ki_scalar_cast(t, KN_I64, (uint64_t)v, &out);
    return out;
}

uint64_t ki_var_bits(kn_dtype t, int64_t value) { return ki_is_float(t) ? (uint64_t)value : ki_bits_wrap(t, value); }

bool ki_is_minus_zero(kn_uop u) {
    kn_dtype t = (kn_dtype)u->dtype;
    return ki_is_const(u) && ki_is_float(t) && u->arg.bits == ki_bits_from_f64(t, -0.0);
}
bool ki_changes_nothing(kn_op op, kn_uop u) {
    if (op != KN_MAX) return op == KN_ADD && ki_is_minus_zero(u);
    return ki_is_const(u) && u->arg.bits == ki_scalar_identity(KN_MAX, (kn_dtype)u->dtype, true);
}
double ki_const_f64(kn_uop u) { return ki_f64_from_bits((kn_dtype)u->dtype, u->arg.bits); }

/* ---- storage ------------------------------------------------------------------------------------------------ */

uint64_t ki_storage_get(kn_dtype t, const void *array, int64_t i) {
    const char *p = (const char *)array + i * (int64_t)ki_dtypes[t].bytes;
    uint64_t v = 0;
    switch (ki_dtypes[t].bytes) {
    case 1: v = *(const uint8_t *)p; break;
    case 2: {
        uint16_t w;
        memcpy(&w, p, sizeof w);
        v = w;
        break;
    }
    case 4: {
        uint32_t w;
        memcpy(&w, p, sizeof w);
        v = w;
        break;
    }
    default: memcpy(&v, p, sizeof v);
    }
    if (t == KN_BOOL) return v != 0;
    return ki_is_sint(t) ? ki_extend(v, ki_dtypes[t].bits, true) : v;
}

void ki_storage_put(kn_dtype t, void *array, int64_t i, uint64_t bits) {
    char *p = (char *)array + i * (int64_t)ki_dtypes[t].bytes;
    switch (ki_dtypes[t].bytes) {
    case 1: *(uint8_t *)p = (uint8_t)bits; break;
    case 2: {
        uint16_t w = (uint16_t)bits;
        memcpy(p, &w, sizeof w);
        break;
    }
    case 4: {
        uint32_t w = (uint32_t)bits;
        memcpy(p, &w, sizeof w);
        break;
    }
    default: memcpy(p, &bits, sizeof bits);
    }
}

/* ---- integers ----------------------------------------------------------------------------------------------- */

static bool less_int(uint64_t a, uint64_t b, bool is_signed) { return is_signed ? (int64_t)a < (int64_t)b : a < b; }

/* Floor quotient and remainder; both 0 for a divisor of 0. */
static void floor_div(uint64_t a, uint64_t b, bool is_signed, uint64_t *q, uint64_t *r) {
    *q = *r = 0;
    if (!b) return;
    if (!is_signed) {
        *q = a / b;
        *r = a % b;
    } else if (b == ~UINT64_C(0)) {
        *q = 0 - a; /* INT_MIN / -1 wraps to INT_MIN */
    } else {
        int64_t x = (int64_t)a, y = (int64_t)b, quo = x / y, rem = x % y;
        if (rem && (rem < 0) != (y < 0)) {
            quo--;
            rem += y;
        }
        *q = (uint64_t)quo;
        *r = (uint64_t)rem;
    }
}

static uint64_t shift_right(uint64_t a, uint64_t n, unsigned width, bool is_signed) {
    bool fill = is_signed && (int64_t)a < 0;
    if (n >= width) return fill ? ~UINT64_C(0) : 0; /* a negative count is huge */
    return fill ? ~(~a >> n) : a >> n;
}

bool ki_scalar_int(kn_op op, unsigned width, bool is_signed, const uint64_t *in, uint64_t *out) {
    uint64_t a = in[0], b = ki_ops[op].least > 1 ? in[1] : 0, c = ki_ops[op].least > 2 ? in[2] : 0, r = 0, q;
    switch (op) {
    case KN_ADD: r = a + b; break;
    case KN_SUB: r = a - b; break;
    case KN_MUL: r = a * b; break;
    case KN_NEG: r = 0 - a; break;
    case KN_MULACC: r = a * b + c; break;
    case KN_MAX: r = less_int(a, b, is_signed) ? b : a; break;
    case KN_IDIV: floor_div(a, b, is_signed, &r, &q); break;
    case KN_MOD: floor_div(a, b, is_signed, &q, &r); break;
    case KN_XOR: r = a ^ b; break;
    case KN_OR: r = a | b; break;
    case KN_AND: r = a & b; break;
    case KN_NOT: r = ~a; break;
    case KN_SHR: r = shift_right(a, b, width, is_signed); break;
    case KN_SHL: r = b < width ? a << b : 0; break;
    case KN_WHERE: r = a ? b : c; break;
    case KN_CMPLT: *out = less_int(a, b, is_signed); return true;
    case KN_CMPGT: *out = less_int(b, a, is_signed); return true;
    case KN_CMPGE: *out = !less_int(a, b, is_signed); return true;
    case KN_CMPLE: *out = !less_int(b, a, is_signed); return true;
    case KN_CMPEQ: *out = a == b; return true;
    case KN_CMPNE: *out = a != b; return true;
    case KN_THREEFRY:
        if (width != 64) return false;
        r = ki_threefry(a, b);
        break;
    default: return false;
    }
    *out = ki_extend(r, width, is_signed);
    return true;
}

/* dtype index: the same on mathematical integers; no value where int64 cannot hold the result. */
static bool scalar_index(kn_op op, const uint64_t *in, uint64_t *out) {
    int64_t a = (int64_t)in[0], b = ki_ops[op].least > 1 ? (int64_t)in[1] : 0, r;
    switch (op) {
    case KN_ADD:
        if (ki_add_overflow(a, b, &r)) return false;
        break;
    case KN_SUB:
        if (ki_sub_overflow(a, b, &r)) return false;
        break;
    case KN_MUL:
        if (ki_mul_overflow(a, b, &r)) return false;
        break;
    case KN_MULACC:
        if (ki_mul_overflow(a, b, &r) || ki_add_overflow(r, (int64_t)in[2], &r)) return false;
        break;
    case KN_NEG:
        if (ki_sub_overflow((int64_t)0, a, &r)) return false;
        break;
    case KN_IDIV:
        if (a == INT64_MIN && b == -1) return false;
        return ki_scalar_int(op, 64, true, in, out);
    case KN_SHL:
        if (in[1] < 64 && a && (in[1] == 63 ? a != -1 : ki_mul_overflow(a, INT64_C(1) << in[1], &r))) return false;
        return ki_scalar_int(op, 64, true, in, out);
    case KN_THREEFRY: return false;
    default: return ki_scalar_int(op, 64, true, in, out);
    }
    *out = (uint64_t)r;
    return true;
}

static bool scalar_bool(kn_op op, const uint64_t *in, uint64_t *out) {
    switch (op) {
    case KN_ADD: op = KN_OR; break;
    case KN_MUL: op = KN_AND; break;
    case KN_NOT: *out = !in[0]; return true;
    default: break;
    }
    return ki_scalar_int(op, 1, false, in, out);
}

uint64_t ki_threefry(uint64_t counter, uint64_t key) {
    static const unsigned turn[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t k[3] = {(uint32_t)key, (uint32_t)(key >> 32), 0};
    k[2] = k[0] ^ k[1] ^ UINT32_C(0x1bd11bda);
    uint32_t x = (uint32_t)counter + k[0], y = (uint32_t)(counter >> 32) + k[1];
    for (unsigned group = 0; group < 5; group++) {
        for (unsigned i = 0; i < 4; i++) {
            unsigned n = turn[group & 1][i];
            x += y;
            y = (y << n | y >> (32 - n)) ^ x;
        }
        x += k[(group + 1) % 3];
        y += k[(group + 2) % 3] + group + 1;
    }
    return (uint64_t)y << 32 | x;
}

/* ---- floats ------------------------------------------------------------------------------------------------- */

static double max_f64(double a, double b) {
    if (isnan(a) || isnan(b)) return NAN;
    if (a == b) return signbit(a) ? b : a; /* max(-0, +0) = +0 */
    return a > b ? a : b;
}

static bool compare_f64(kn_op op, double a, double b, uint64_t *out) {
    switch (op) {
    case KN_CMPLT: *out = a < b; return true;
    case KN_CMPGT: *out = a > b; return true;
    case KN_CMPGE: *out = a >= b; return true;
    case KN_CMPLE: *out = a <= b; return true;
    case KN_CMPEQ: *out = a == b; return true;
    case KN_CMPNE: *out = a != b; return true;
    default: return false;
    }
}

/* a * b is exact (small floats); the sum is rounded to odd, so that one more rounding to the small format is
 * the only one. */
static double mulacc_odd(double a, double b, double c) {
    double p = a * b, s = p + c;
    if (!isfinite(s)) return s;
    double t = s - p, e = (p - (s - t)) + (c - t); /* exact error of the sum */
    uint64_t bits = bits_of_f64(s);
    if (e == 0 || (bits & 1)) return s;
    return f64_of((e > 0) == (s > 0) ? bits + 1 : bits - 1);
}

/* Ops on doubles; for narrower formats the caller rounds once more. */
static bool arith_f64(kn_op op, double a, double b, double c, double *r) {
    switch (op) {
    case KN_RECIP: *r = 1 / a; break;
    case KN_TRUNC: *r = trunc(a); break;
    case KN_ADD: *r = a + b; break;
    case KN_SUB: *r = a - b; break;
    case KN_MUL: *r = a * b; break;
    case KN_DIV: *r = a / b; break;
    case KN_MAX: *r = max_f64(a, b); break;
    case KN_SQRT: *r = sqrt(a); break;
    case KN_EXP2: *r = exp2(a); break;
    case KN_LOG2: *r = log2(a); break;
    case KN_SIN: *r = (double)sinl((long double)a); break; /* f64's own reduction may be 8 ulp off */
    case KN_EXP: *r = exp(a); break;
    case KN_LOG: *r = log(a); break;
    case KN_COS: *r = (double)cosl((long double)a); break;
    case KN_TAN: *r = (double)tanl((long double)a); break;
    case KN_TANH: *r = tanh(a); break;
    case KN_ERF: *r = erf(a); break;
    case KN_POW: *r = pow(a, b); break;
    case KN_MULACC: *r = fma(a, b, c); break;
    default: return false;
    }
    return true;
}

/* f32: double rounds + - * / sqrt recip innocuously (53 >= 2 * 24 + 2), fma it would not. */
static bool scalar_float(kn_op op, kn_dtype t, const uint64_t *in, uint64_t *out) {
    int n = ki_ops[op].least;
    if (op == KN_NEG) {
        *out = in[0] ^ sign_bit(t);
        return true;
    }
    if (op == KN_WHERE) {
        *out = in[0] ? in[1] : in[2];
        return true;
    }
    double a = float_value(t, in[0]), b = n > 1 ? float_value(t, in[1]) : 0, c = n > 2 ? float_value(t, in[2]) : 0, r;
    if (compare_f64(op, a, b, out)) return true;
    if (op == KN_MULACC && t == KN_F32) r = (double)fmaf((float)a, (float)b, (float)c);
    else if (op == KN_MULACC && t != KN_F64) r = mulacc_odd(a, b, c);
    else if (!arith_f64(op, a, b, c, &r)) return false;
    *out = isnan(r) ? canonical_nan(t) : float_bits(t, r);
    return true;
}

/* ---- the entry ---------------------------------------------------------------------------------------------- */

bool ki_scalar(kn_op op, kn_dtype out, const kn_dtype *in_dtype, const uint64_t *in_bits, uint64_t *out_bits) {
    if (op == KN_CAST) return ki_scalar_cast(out, in_dtype[0], in_bits[0], out_bits);
    if (!ki_is_elementwise(op)) return false;
    kn_dtype t = in_dtype[op == KN_WHERE ? 1 : 0];
    unsigned flags = ki_ops[op].flags;
    if (ki_is_float(t)) return !(flags & KI_INT) && scalar_float(op, t, in_bits, out_bits);
    if (flags & KI_FLOAT) return false;
    switch (ki_dtypes[t].kind) {
    case KI_K_BOOL: return !(flags & KI_NUM) && scalar_bool(op, in_bits, out_bits);
    case KI_K_INDEX: return scalar_index(op, in_bits, out_bits);
    case KI_K_INT: return op != KN_THREEFRY && ki_scalar_int(op, ki_dtypes[t].bits, true, in_bits, out_bits);
    case KI_K_UINT: return ki_scalar_int(op, ki_dtypes[t].bits, false, in_bits, out_bits);
    default: return false;
    }
}

uint64_t ki_scalar_identity(kn_op op, kn_dtype t, bool nonempty) {
    if (op == KN_MUL) return ki_is_float(t) ? float_bits(t, 1) : 1;
    if (op == KN_MAX) {
        if (t == KN_F8E4M3) return 0xfe;
        return ki_is_float(t) ? float_bits(t, -HUGE_VAL) : t == KN_BOOL ? 0 : (uint64_t)ki_int_min(t);
    }
    return ki_is_float(t) && nonempty ? sign_bit(t) : 0;
}
