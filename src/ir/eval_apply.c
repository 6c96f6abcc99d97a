/* eval_apply.c: elementwise ops over arrays. The common pairs of op and dtype have a loop of their own, the rest goes
 * through ki_scalar; both mean the same (tests/ir/test_eval.c compares them), the loops are there for speed alone. */
#include "ir/eval_apply.h"

#include "ir/scalar.h"

#include <math.h>
#include <string.h>

static inline float as_f32(uint64_t bits) {
    uint32_t b = (uint32_t)bits;
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}
static inline uint64_t of_f32(float f) {
    uint32_t b;
    if (isnan(f)) return 0x7fc00000;
    memcpy(&b, &f, sizeof b);
    return b;
}
static inline double as_f64(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static inline uint64_t of_f64(double d) {
    uint64_t b;
    if (isnan(d)) return UINT64_C(0x7ff8000000000000);
    memcpy(&b, &d, sizeof b);
    return b;
}
static inline int64_t as_int(uint64_t v) { return (int64_t)v; }
static inline uint64_t of_bits(uint64_t v) { return v; }
static inline uint64_t of_i32(uint64_t v) { return (uint64_t)(int64_t)(int32_t)(uint32_t)v; }

#define BINARY(name, type, get, put, expr)                                                                             \
    static bool name(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {                         \
        const uint64_t *p = src[0], *q = src[1];                                                                       \
        size_t sp = s->stride[0], sq = s->stride[1];                                                                   \
        for (size_t i = 0; i < n; i++) {                                                                               \
            type a = get(p[i * sp]), b = get(q[i * sq]);                                                               \
            dst[i] = put(expr);                                                                                        \
        }                                                                                                              \
        return true;                                                                                                   \
    }
/* dtype index: an overflow has no value. */
#define CHECKED(name, builtin)                                                                                         \
    static bool name(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {                         \
        const uint64_t *p = src[0], *q = src[1];                                                                       \
        size_t sp = s->stride[0], sq = s->stride[1];                                                                   \
        bool over = false;                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                               \
            int64_t r;                                                                                                 \
            over |= builtin((int64_t)p[i * sp], (int64_t)q[i * sq], &r);                                               \
            dst[i] = (uint64_t)r;                                                                                      \
        }                                                                                                              \
        return !over;                                                                                                  \
    }

static inline int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t floor_rest(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}

BINARY(f32_add, float, as_f32, of_f32, a + b)
BINARY(f32_sub, float, as_f32, of_f32, a - b)
BINARY(f32_mul, float, as_f32, of_f32, a *b)
BINARY(f32_div, float, as_f32, of_f32, a / b)
BINARY(f32_lt, float, as_f32, of_bits, a < b)
BINARY(f32_ne, float, as_f32, of_bits, a != b)
BINARY(f64_add, double, as_f64, of_f64, a + b)
BINARY(f64_sub, double, as_f64, of_f64, a - b)
BINARY(f64_mul, double, as_f64, of_f64, a *b)
BINARY(f64_div, double, as_f64, of_f64, a / b)
BINARY(f64_lt, double, as_f64, of_bits, a < b)
BINARY(u64_add, uint64_t, of_bits, of_bits, a + b)
BINARY(u64_mul, uint64_t, of_bits, of_bits, a *b)
BINARY(i32_add, uint64_t, of_bits, of_i32, a + b)
BINARY(i32_sub, uint64_t, of_bits, of_i32, a - b)
BINARY(i32_mul, uint64_t, of_bits, of_i32, a *b)
BINARY(int_lt, int64_t, as_int, of_bits, a < b)
BINARY(uint_lt, uint64_t, of_bits, of_bits, a < b)
BINARY(int_max, int64_t, as_int, (uint64_t), a > b ? a : b)
BINARY(int_idiv, int64_t, as_int, (uint64_t), floor_quotient(a, b))
BINARY(int_mod, int64_t, as_int, (uint64_t), floor_rest(a, b))
BINARY(bits_and, uint64_t, of_bits, of_bits, a &b)
BINARY(bits_or, uint64_t, of_bits, of_bits, a | b)
BINARY(bits_xor, uint64_t, of_bits, of_bits, a ^ b)
BINARY(bits_ne, uint64_t, of_bits, of_bits, a != b)
BINARY(bits_eq, uint64_t, of_bits, of_bits, a == b)
CHECKED(index_add, ki_add_overflow)
CHECKED(index_sub, ki_sub_overflow)
CHECKED(index_mul, ki_mul_overflow)

static bool f32_mulacc(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    for (size_t i = 0; i < n; i++)
        dst[i] = of_f32(
            fmaf(as_f32(src[0][i * s->stride[0]]), as_f32(src[1][i * s->stride[1]]), as_f32(src[2][i * s->stride[2]])));
    return true;
}

static bool where(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    for (size_t i = 0; i < n; i++)
        dst[i] = src[0][i * s->stride[0]] ? src[1][i * s->stride[1]] : src[2][i * s->stride[2]];
    return true;
}

static bool generic(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    kn_dtype in[3] = {(kn_dtype)s->in[0], (kn_dtype)s->in[1], (kn_dtype)s->in[2]};
    for (size_t i = 0; i < n; i++) {
        uint64_t v[3] = {0};
        for (unsigned k = 0; k < s->nsrc; k++) v[k] = src[k][i * s->stride[k]];
        if (!ki_scalar((kn_op)s->op, (kn_dtype)s->out, in, v, &dst[i])) return false;
    }
    return true;
}

static bool copy_bits(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    unsigned bits = ki_dtypes[s->out].bits;
    bool sign = ki_is_sint((kn_dtype)s->out);
    for (size_t i = 0; i < n; i++) {
        uint64_t v = src[0][i * s->stride[0]];
        dst[i] = s->out == KN_BOOL ? (v & 0xff) != 0 : ki_extend(v, bits, sign);
    }
    return true;
}

/* Loops that hold for every integer dtype in its extended form, or for one dtype. */
static ki_apply_fn *int_loop(kn_op op, kn_dtype t) {
    bool wide = t == KN_I64 || t == KN_U64, sign = !ki_is_uint(t) && t != KN_BOOL;
    switch (op) {
    case KN_AND: return bits_and;
    case KN_OR: return bits_or;
    case KN_XOR: return bits_xor;
    case KN_CMPNE: return bits_ne;
    case KN_CMPEQ: return bits_eq;
    case KN_CMPLT: return sign ? int_lt : uint_lt;
    case KN_ADD: return t == KN_IDX ? index_add : t == KN_I32 ? i32_add : wide ? u64_add : NULL;
    case KN_SUB: return t == KN_IDX ? index_sub : t == KN_I32 ? i32_sub : NULL;
    case KN_MUL: return t == KN_IDX ? index_mul : t == KN_I32 ? i32_mul : wide ? u64_mul : NULL;
    case KN_MAX: return sign ? int_max : NULL;
    case KN_IDIV: return t == KN_I64 ? int_idiv : NULL;
    case KN_MOD: return t == KN_IDX || t == KN_I64 || t == KN_I32 ? int_mod : NULL;
    default: return NULL;
    }
}
static ki_apply_fn *float_loop(kn_op op, kn_dtype t) {
    if (t != KN_F32 && t != KN_F64) return NULL;
    switch (op) {
    case KN_ADD: return t == KN_F32 ? f32_add : f64_add;
    case KN_SUB: return t == KN_F32 ? f32_sub : f64_sub;
    case KN_MUL: return t == KN_F32 ? f32_mul : f64_mul;
    case KN_DIV: return t == KN_F32 ? f32_div : f64_div;
    case KN_CMPLT: return t == KN_F32 ? f32_lt : f64_lt;
    case KN_CMPNE: return t == KN_F32 ? f32_ne : NULL;
    case KN_MULACC: return t == KN_F32 ? f32_mulacc : NULL;
    default: return NULL;
    }
}

/* index idiv: only INT64_MIN / -1 has no value. */
static bool index_idiv(const ki_apply *s, size_t n, const uint64_t *const *src, uint64_t *dst) {
    for (size_t i = 0; i < n; i++) {
        int64_t a = (int64_t)src[0][i * s->stride[0]], b = (int64_t)src[1][i * s->stride[1]];
        if (a == INT64_MIN && b == -1) return false;
        dst[i] = (uint64_t)floor_quotient(a, b);
    }
    return true;
}

bool ki_apply_init(ki_apply *s, kn_op op, kn_dtype out, const kn_dtype *in, unsigned nsrc) {
    memset(s, 0, sizeof *s);
    if (nsrc > 3 || nsrc == 0) return false;
    s->op = (uint8_t)op;
    s->out = (uint8_t)out;
    s->nsrc = (uint8_t)nsrc;
    for (unsigned k = 0; k < nsrc; k++) {
        s->in[k] = (uint8_t)in[k];
        s->stride[k] = 1;
    }
    if (op == KN_BITCAST) {
        s->fn = copy_bits;
        return ki_itemsize(out) == ki_itemsize(in[0]);
    }
    if (!ki_is_elementwise(op)) return false;
    if (op == KN_WHERE) s->fn = where;
    else if (op == KN_IDIV && in[0] == KN_IDX) s->fn = index_idiv;
    else if (ki_is_float(in[0])) s->fn = float_loop(op, in[0]);
    else if (in[0] != KN_BOOL || op == KN_AND || op == KN_OR || op == KN_XOR || op == KN_CMPNE)
        s->fn = int_loop(op, in[0]);
    if (!s->fn) s->fn = generic;
    return true;
}
