/* test_scalar.c: the scalar meaning of every op against definitions written here in another way: wide
 * integers for narrow ones, a search over all values for 8-bit floats, published vectors for Threefry. Prints
 * TAP. */
#include "base/smallfloat.h"
#include "ir/scalar.h"

#include <fenv.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int count, failed;
static char note[256];

static void report(const char *name, bool ok) {
    printf("%sok %d - %s\n", ok ? "" : "not ", ++count, name);
    if (!ok && note[0]) printf("# %s\n", note);
    failed += !ok;
    note[0] = 0;
}
#define CHECK(cond, ...) ((cond) ? true : (snprintf(note, sizeof note, __VA_ARGS__), false))

static uint64_t one(kn_op op, kn_dtype t, uint64_t a, uint64_t b, uint64_t c) {
    kn_dtype in[3] = {op == KN_WHERE ? KN_BOOL : t, t, t};
    bool compare =
        op == KN_CMPLT || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ || op == KN_CMPNE;
    uint64_t r = 0xdeadbeef;
    return ki_scalar(op, compare ? KN_BOOL : t, in, (uint64_t[]){a, b, c}, &r) ? r : 0xbadbadbadbad;
}

/* ---- integers of 1 to 6 bits: every operand, against unbounded arithmetic reduced at the end ---- */

static int64_t floor_quotient(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool expected(kn_op op, int w, bool s, int64_t a, int64_t b, int64_t c, int64_t *r) {
    switch (op) {
    case KN_ADD: *r = a + b; break;
    case KN_SUB: *r = a - b; break;
    case KN_MUL: *r = a * b; break;
    case KN_NEG: *r = -a; break;
    case KN_MULACC: *r = a * b + c; break;
    case KN_MAX: *r = a > b ? a : b; break;
    case KN_IDIV: *r = b ? floor_quotient(a, b) : 0; break;
    case KN_MOD: *r = b ? a - floor_quotient(a, b) * b : 0; break;
    case KN_XOR: *r = a ^ b; break;
    case KN_OR: *r = a | b; break;
    case KN_AND: *r = a & b; break;
    case KN_NOT: *r = -1 - a; break;
    case KN_SHL: *r = b < 0 || b >= w ? 0 : a * (INT64_C(1) << b); break;
    case KN_SHR: *r = b < 0 || b >= w ? (a < 0 ? -1 : 0) : floor_quotient(a, INT64_C(1) << b); break;
    case KN_WHERE: *r = a != 0 ? b : c; break;
    case KN_CMPLT: *r = a < b; return true;
    case KN_CMPGT: *r = a > b; return true;
    case KN_CMPGE: *r = a >= b; return true;
    case KN_CMPLE: *r = a <= b; return true;
    case KN_CMPEQ: *r = a == b; return true;
    case KN_CMPNE: *r = a != b; return true;
    default: return false;
    }
    int64_t m = INT64_C(1) << w;
    *r = (*r % m + m) % m;
    if (s && *r >= m / 2) *r -= m;
    return true;
}

static bool small_ints(kn_op op, int w, bool s) {
    int64_t lo = s ? -(INT64_C(1) << (w - 1)) : 0, hi = lo + (INT64_C(1) << w) - 1;
    int64_t blo = ki_ops[op].least > 1 ? lo : 0, bhi = ki_ops[op].least > 1 ? hi : 0;
    int64_t clo = ki_ops[op].least > 2 ? lo : 0, chi = ki_ops[op].least > 2 ? hi : 0;
    for (int64_t a = lo; a <= hi; a++)
        for (int64_t b = blo; b <= bhi; b++)
            for (int64_t c = clo; c <= chi; c++) {
                int64_t want;
                uint64_t got = 0;
                if (!expected(op, w, s, a, b, c, &want)) return CHECK(false, "no definition");
                bool ok = ki_scalar_int(op, (unsigned)w, s, (uint64_t[]){(uint64_t)a, (uint64_t)b, (uint64_t)c}, &got);
                if (!CHECK(ok && (int64_t)got == want,
                           "w %d %s (%" PRId64 ", %" PRId64 ", %" PRId64 ") = %" PRId64 ", want %" PRId64, w,
                           s ? "signed" : "unsigned", a, b, c, (int64_t)got, want))
                    return false;
            }
    return true;
}

static const kn_op int_ops[] = {KN_ADD,   KN_SUB,   KN_MUL,   KN_NEG,   KN_MULACC, KN_MAX,   KN_IDIV,
                                KN_MOD,   KN_XOR,   KN_OR,    KN_AND,   KN_NOT,    KN_SHL,   KN_SHR,
                                KN_WHERE, KN_CMPLT, KN_CMPGT, KN_CMPGE, KN_CMPLE,  KN_CMPEQ, KN_CMPNE};

static void test_ints(void) {
    for (size_t i = 0; i < sizeof int_ops / sizeof *int_ops; i++) {
        bool ok = true;
        for (int w = 1; w <= 4 && ok; w++)
            ok = small_ints(int_ops[i], w, false) && (w == 1 || small_ints(int_ops[i], w, true));
        if (ok && ki_ops[int_ops[i]].least <= 2)
            ok = small_ints(int_ops[i], 8, true) && small_ints(int_ops[i], 8, false);
        char name[64];
        snprintf(name, sizeof name, "integers: %s", ki_ops[int_ops[i]].name);
        report(name, ok);
    }
    report("integers: i64 edges", one(KN_IDIV, KN_I64, (uint64_t)INT64_MIN, (uint64_t)-1, 0) == (uint64_t)INT64_MIN &&
                                      one(KN_MOD, KN_I64, (uint64_t)INT64_MIN, (uint64_t)-1, 0) == 0 &&
                                      one(KN_SHR, KN_I64, (uint64_t)-8, 1, 0) == (uint64_t)-4 &&
                                      one(KN_SHL, KN_U64, 1, 64, 0) == 0 &&
                                      one(KN_SHL, KN_U64, 1, 63, 0) == UINT64_C(1) << 63 &&
                                      one(KN_SHR, KN_I32, (uint64_t)-1, (uint64_t)-1, 0) == (uint64_t)-1);
    report("integers: u64 compares unsigned", one(KN_CMPLT, KN_U64, 1, UINT64_MAX, 0) == 1 &&
                                                  one(KN_MAX, KN_U64, 1, UINT64_MAX, 0) == UINT64_MAX &&
                                                  one(KN_IDIV, KN_U64, UINT64_MAX, 2, 0) == UINT64_MAX / 2);
    report("integers: u32 stays zero-extended, i32 sign-extended",
           one(KN_ADD, KN_U32, 0xffffffff, 1, 0) == 0 &&
               one(KN_ADD, KN_I32, 0x7fffffff, 1, 0) == (uint64_t)INT64_C(-0x80000000) &&
               one(KN_NOT, KN_U32, 0, 0, 0) == 0xffffffff);
}

static void test_index(void) {
    kn_dtype t[3] = {KN_IDX, KN_IDX, KN_IDX};
    uint64_t r, big = (uint64_t)INT64_MAX;
    report("index: overflow has no value", !ki_scalar(KN_ADD, KN_IDX, t, (uint64_t[]){big, 1}, &r) &&
                                               !ki_scalar(KN_MUL, KN_IDX, t, (uint64_t[]){big, 2}, &r) &&
                                               !ki_scalar(KN_MULACC, KN_IDX, t, (uint64_t[]){big, 1, 1}, &r) &&
                                               !ki_scalar(KN_SHL, KN_IDX, t, (uint64_t[]){3, 62}, &r) &&
                                               !ki_scalar(KN_NEG, KN_IDX, t, (uint64_t[]){(uint64_t)INT64_MIN}, &r));
    report("index: floor division",
           ki_scalar(KN_IDIV, KN_IDX, t, (uint64_t[]){(uint64_t)-7, 2}, &r) && (int64_t)r == -4 &&
               ki_scalar(KN_MOD, KN_IDX, t, (uint64_t[]){(uint64_t)-7, 2}, &r) && r == 1 &&
               ki_scalar(KN_SHL, KN_IDX, t, (uint64_t[]){(uint64_t)-1, 63}, &r) && (int64_t)r == INT64_MIN);
    report("index: cast", !ki_scalar_cast(KN_IDX, KN_U64, UINT64_MAX, &r) &&
                              ki_scalar_cast(KN_IDX, KN_I32, (uint64_t)-3, &r) && (int64_t)r == -3 &&
                              ki_scalar_cast(KN_I8, KN_IDX, 300, &r) && (int64_t)r == 44);
}

static void test_bool(void) {
    bool ok = true;
    for (uint64_t a = 0; a < 2; a++)
        for (uint64_t b = 0; b < 2; b++)
            ok &= one(KN_ADD, KN_BOOL, a, b, 0) == (a | b) && one(KN_MUL, KN_BOOL, a, b, 0) == (a & b) &&
                  one(KN_MAX, KN_BOOL, a, b, 0) == (a | b) && one(KN_XOR, KN_BOOL, a, b, 0) == (a ^ b) &&
                  one(KN_CMPLT, KN_BOOL, a, b, 0) == (!a && b) && one(KN_NOT, KN_BOOL, a, 0, 0) == !a &&
                  one(KN_CMPEQ, KN_BOOL, a, b, 0) == (a == b);
    report("bool", ok);
    kn_dtype t[2] = {KN_BOOL, KN_BOOL}, f[2] = {KN_F32, KN_F32};
    uint64_t r;
    report("an op its dtype does not allow has no value",
           !ki_scalar(KN_SUB, KN_BOOL, t, (uint64_t[]){1, 1}, &r) &&
               !ki_scalar(KN_XOR, KN_F32, f, (uint64_t[]){1, 1}, &r) &&
               !ki_scalar(KN_SQRT, KN_BOOL, t, (uint64_t[]){1, 1}, &r) &&
               !ki_scalar(KN_IDIV, KN_F32, f, (uint64_t[]){1, 1}, &r) &&
               !ki_scalar(KN_PERMUTE, KN_F32, f, (uint64_t[]){1, 1}, &r));
}

/* ---- 8-bit floats: nearest value found by search ---- */

static double value8(bool e4m3, unsigned b) { /* from the format's definition */
    int e = e4m3 ? (b >> 3 & 15) : (b >> 2 & 31), m = e4m3 ? (b & 7) : (b & 3), bias = e4m3 ? 7 : 15, mb = e4m3 ? 3 : 2;
    double s = b & 0x80 ? -1 : 1;
    if (e4m3 ? (b & 0x7f) == 0x7f : e == 31 && m) return NAN;
    if (!e4m3 && e == 31) return s * INFINITY;
    return s * (e ? ldexp(1 + ldexp(m, -mb), e - bias) : ldexp(m, 1 - bias - mb));
}
/* Nearest finite, ties to even; beyond the largest by half a step: infinity or NaN. */
static unsigned nearest8(bool e4m3, double v) {
    unsigned sign = signbit(v) ? 0x80 : 0, top = e4m3 ? 0x7e : 0x7b, best = 0;
    double a = fabs(v), past = e4m3 ? 464 : 61440;
    if (isnan(v) || (e4m3 ? a > past : a >= past)) return isnan(v) ? 0x100 : e4m3 ? 0x100 : sign | 0x7c;
    for (unsigned b = 1; b <= top; b++) {
        double now = fabs(value8(e4m3, b) - a), was = fabs(value8(e4m3, best) - a);
        if (now < was || (now == was && !(b & 1))) best = b;
    }
    return sign | best;
}
static bool same8(bool e4m3, unsigned want, unsigned got) {
    return want == 0x100 ? isnan(value8(e4m3, got)) : want == got;
}

static void test_f8(bool e4m3) {
    kn_dtype t = e4m3 ? KN_F8E4M3 : KN_F8E5M2;
    char name[80];
    bool ok = true;
    for (unsigned b = 0; b < 256; b++) {
        double w = value8(e4m3, b), g = e4m3 ? ki_f64_from_f8e4m3((uint8_t)b) : ki_f64_from_f8e5m2((uint8_t)b);
        ok &= CHECK((isnan(w) && isnan(g)) || (w == g && signbit(w) == signbit(g)), "%02x: %g, want %g", b, g, w);
    }
    snprintf(name, sizeof name, "%s: decode", ki_dtypes[t].name);
    report(name, ok);
    ok = true;
    for (unsigned b = 0; b < 0x7f && ok; b++) { /* neighbours of every value and of every midpoint */
        double lo = value8(e4m3, b), hi = value8(e4m3, b + 1), mid = isfinite(hi) ? (lo + hi) / 2 : e4m3 ? 464 : 61440;
        double p[] = {lo,    mid,    nextafter(mid, 0), nextafter(mid, INFINITY), nextafter(lo, INFINITY), -mid, -lo,
                      1e300, 1e-300, -INFINITY};
        for (size_t i = 0; i < sizeof p / sizeof *p && ok && !isnan(lo); i++) {
            unsigned got = (unsigned)ki_bits_from_f64(t, p[i]);
            ok = CHECK(same8(e4m3, nearest8(e4m3, p[i]), got), "%a gives %02x, want %02x", p[i], got,
                       nearest8(e4m3, p[i]));
        }
    }
    snprintf(name, sizeof name, "%s: round to nearest even", ki_dtypes[t].name);
    report(name, ok);
    static const kn_op ops[] = {KN_ADD, KN_SUB, KN_MUL, KN_DIV, KN_MAX, KN_SQRT, KN_RECIP, KN_TRUNC, KN_MULACC};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        ok = true;
        for (unsigned a = 0; a < 256 && ok; a++)
            for (unsigned b = 0; b < (ki_ops[ops[k]].least > 1 ? 256 : 1) && ok; b++) {
                unsigned cb = (a * 31 + b * 17) & 255;
                double x = value8(e4m3, a), y = value8(e4m3, b), c = value8(e4m3, cb), r = NAN;
                switch (ops[k]) { /* exact in long double, or as near as cannot matter */
                case KN_ADD: r = x + y; break;
                case KN_SUB: r = x - y; break;
                case KN_MUL: r = x * y; break;
                case KN_DIV: r = x / y; break;
                case KN_MAX:
                    r = isnan(x) || isnan(y) ? NAN
                        : x == 0 && y == 0   ? (signbit(x) && signbit(y) ? -0.0 : 0.0)
                                             : fmax(x, y);
                    break;
                case KN_SQRT: r = sqrt(x); break;
                case KN_RECIP: r = 1 / x; break;
                case KN_TRUNC: r = trunc(x); break;
                default: r = x * y + c; break; /* exponents span under 53 bits: exact */
                }
                unsigned got = (unsigned)one(ops[k], t, a, b, cb), want = nearest8(e4m3, r);
                ok = CHECK(same8(e4m3, want, got), "(%g, %g, %g) gives %02x, want %02x", x, y, c, got, want);
            }
        snprintf(name, sizeof name, "%s: %s, all operands", ki_dtypes[t].name, ki_ops[ops[k]].name);
        report(name, ok);
    }
}

static void test_16(kn_dtype t) {
    int mb = t == KN_F16 ? 10 : 7, emax = t == KN_F16 ? 31 : 255, bias = t == KN_F16 ? 15 : 127;
    bool ok = true, half = true;
    double before = 0;
    for (unsigned b = 0; b < 0x10000; b++) {
        int e = (int)(b >> mb) & emax, m = (int)(b & ((1u << mb) - 1));
        double s = b & 0x8000 ? -1 : 1,
               w = e == emax ? (m ? NAN : s * INFINITY)
                             : s * (e ? ldexp(1 + ldexp(m, -mb), e - bias) : ldexp(m, 1 - bias - mb));
        double g = ki_f64_from_bits(t, b);
        ok &= CHECK((isnan(w) && isnan(g)) || (w == g && signbit(w) == signbit(g)), "%04x: %g, want %g", b, g, w);
        uint64_t back = ki_bits_from_f64(t, g);
        ok &= isnan(g) ? (back & 0x8000) == (b & 0x8000) && isnan(ki_f64_from_bits(t, back))
                       : CHECK(back == b, "%04x comes back as %04x", b, (unsigned)back);
        if (b && b < 0x8000 && isfinite(g)) { /* between the one before and this: ties to even, both sides */
            double mid = (before + g) / 2;
            half &= ki_bits_from_f64(t, mid) == (b & 1 ? b - 1 : b) &&
                    ki_bits_from_f64(t, nextafter(mid, INFINITY)) == b &&
                    ki_bits_from_f64(t, nextafter(mid, 0)) == b - 1;
        }
        before = g;
    }
    char name[80];
    snprintf(name, sizeof name, "%s: every value there and back", ki_dtypes[t].name);
    report(name, ok);
    snprintf(name, sizeof name, "%s: every midpoint to even", ki_dtypes[t].name);
    report(name, half);
    double top = ki_f64_from_bits(t, t == KN_F16 ? 0x7bff : 0x7f7f), past = t == KN_F16 ? 65520 : ldexp(511, 119);
    snprintf(name, sizeof name, "%s: overflow to infinity", ki_dtypes[t].name);
    report(name, ki_bits_from_f64(t, nextafter(past, 0)) == ki_bits_from_f64(t, top) &&
                     isinf(ki_f64_from_bits(t, ki_bits_from_f64(t, past))));
}

/* mulacc on bf16: the sum lies a hair beside a tie that double cannot see. */
static void test_mulacc(void) {
    uint64_t x = ki_bits_from_f64(KN_BF16, 1.0625), y = x; /* 1.12890625: midway between 1.125 and 1.1328125 */
    uint64_t up = one(KN_MULACC, KN_BF16, x, y, ki_bits_from_f64(KN_BF16, ldexp(1, -100)));
    uint64_t down = one(KN_MULACC, KN_BF16, x, y, ki_bits_from_f64(KN_BF16, -ldexp(1, -100)));
    report("bf16 mulacc rounds once",
           ki_f64_from_bits(KN_BF16, up) == 1.1328125 && ki_f64_from_bits(KN_BF16, down) == 1.125);
    float p = 0x1.000002p0f, q = 0x1.000002p0f, r = -0x1.000004p0f;
    uint64_t in[3] = {ki_bits_from_f64(KN_F32, (double)p), ki_bits_from_f64(KN_F32, (double)q),
                      ki_bits_from_f64(KN_F32, (double)r)};
    report("f32 mulacc rounds once", ki_f64_from_bits(KN_F32, one(KN_MULACC, KN_F32, in[0], in[1], in[2])) == 0x1p-46);
}

static void test_casts(void) {
    uint64_t r;
    struct {
        kn_dtype to, from;
        double v;
        int64_t want;
    } row[] = {{KN_I8, KN_F32, 127.9, 127},
               {KN_I8, KN_F32, 128, 127},
               {KN_I8, KN_F32, -128.9, -128},
               {KN_I8, KN_F32, -1e30, -128},
               {KN_U8, KN_F32, -3, 0},
               {KN_U8, KN_F32, 300, 255},
               {KN_U8, KN_F16, 254.5, 254},
               {KN_I32, KN_F64, 2147483648.0, INT32_MAX},
               {KN_I32, KN_F64, -INFINITY, INT32_MIN},
               {KN_I64, KN_F64, 9.3e18, INT64_MAX},
               {KN_I64, KN_F64, -9.3e18, INT64_MIN},
               {KN_U64, KN_F64, 1e30, -1},
               {KN_U64, KN_F64, 9223372036854775808.0, INT64_MIN},
               {KN_I64, KN_F32, NAN, 0},
               {KN_U32, KN_F64, 4294967296.0, 0xffffffff},
               {KN_I16, KN_F64, -0.99, 0},
               {KN_IDX, KN_F64, 1e30, INT64_MAX},
               {KN_BOOL, KN_F32, NAN, 1},
               {KN_BOOL, KN_F32, -0.0, 0},
               {KN_BOOL, KN_F64, 1e-320, 1}};
    bool ok = true;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        ok &= CHECK(ki_scalar_cast(row[i].to, row[i].from, ki_bits_from_f64(row[i].from, row[i].v), &r) &&
                        (int64_t)r == row[i].want,
                    "%s of %g: %" PRId64, ki_dtypes[row[i].to].name, row[i].v, (int64_t)r);
    report("cast: float to integer saturates, NaN to 0", ok);
    ok = ki_scalar_cast(KN_U8, KN_I32, 300, &r) && r == 44;
    ok &= ki_scalar_cast(KN_I8, KN_U8, 200, &r) && (int64_t)r == -56;
    ok &= ki_scalar_cast(KN_U64, KN_I8, (uint64_t)-1, &r) && r == UINT64_MAX;
    ok &= ki_scalar_cast(KN_I32, KN_U64, UINT64_C(0x180000000), &r) && (int64_t)r == INT32_MIN;
    report("cast: integer to integer wraps", ok);
    int64_t tie = (INT64_C(1) << 62) + (INT64_C(1) << 54); /* a tie of bf16; double loses the last bit of tie + 1 */
    ok = ki_scalar_cast(KN_BF16, KN_I64, (uint64_t)tie, &r) && ki_f64_from_bits(KN_BF16, r) == ldexp(1, 62);
    ok &= ki_scalar_cast(KN_BF16, KN_I64, (uint64_t)(tie + 1), &r) &&
          ki_f64_from_bits(KN_BF16, r) == ldexp(1, 62) + ldexp(1, 55);
    ok &= ki_scalar_cast(KN_BF16, KN_I64, (uint64_t) - (tie + 1), &r) &&
          ki_f64_from_bits(KN_BF16, r) == -(ldexp(1, 62) + ldexp(1, 55));
    ok &= ki_scalar_cast(KN_F64, KN_U64, UINT64_MAX, &r) && ki_f64_from_bits(KN_F64, r) == 0x1p64;
    ok &= ki_scalar_cast(KN_F32, KN_I64, (uint64_t) - ((INT64_C(1) << 24) + 1), &r) &&
          ki_f64_from_bits(KN_F32, r) == -0x1p24;
    ok &= ki_scalar_cast(KN_F16, KN_U64, UINT64_MAX, &r) && r == 0x7c00;
    ok &= ki_scalar_cast(KN_F8E4M3, KN_I32, 464, &r) && r == 0x7e && ki_scalar_cast(KN_F8E4M3, KN_I32, 465, &r) &&
          r == 0x7f;
    report("cast: integer to float rounds once", ok);
    ok = ki_scalar_cast(KN_F16, KN_F64, ki_bits_from_f64(KN_F64, 1 + 0x1p-11 + 0x1p-40), &r) && r == 0x3c01;
    ok &= ki_scalar_cast(KN_F32, KN_F64, ki_bits_from_f64(KN_F64, 1 + 0x1p-24), &r) && r == 0x3f800000;
    report("cast: float to float rounds once", ok);
}

static void test_floats(void) {
    uint64_t nan = ki_bits_from_f64(KN_F32, NAN), zero = 0, neg = 0x80000000, inf = 0x7f800000, onef = 0x3f800000;
    report("compare: NaN is false, ne is true",
           !one(KN_CMPLT, KN_F32, nan, onef, 0) && !one(KN_CMPGE, KN_F32, nan, onef, 0) &&
               !one(KN_CMPLE, KN_F32, onef, nan, 0) && !one(KN_CMPEQ, KN_F32, nan, nan, 0) &&
               one(KN_CMPNE, KN_F32, nan, nan, 0) && !one(KN_CMPGT, KN_F32, nan, nan, 0));
    report("compare: -0 equals +0", one(KN_CMPEQ, KN_F32, zero, neg, 0) && !one(KN_CMPLT, KN_F32, neg, zero, 0));
    report("max: NaN wins, +0 over -0",
           one(KN_MAX, KN_F32, nan, onef, 0) == 0x7fc00000 && one(KN_MAX, KN_F32, inf, nan, 0) == 0x7fc00000 &&
               one(KN_MAX, KN_F32, zero, neg, 0) == zero && one(KN_MAX, KN_F32, neg, zero, 0) == zero &&
               one(KN_MAX, KN_F32, neg, neg, 0) == neg);
    report("neg flips the sign of 0 and NaN",
           one(KN_NEG, KN_F32, zero, 0, 0) == neg &&
               one(KN_NEG, KN_F64, UINT64_C(0x7ff8000000000001), 0, 0) == UINT64_C(0xfff8000000000001));
    report("recip, div: zero gives infinity", one(KN_RECIP, KN_F32, neg, 0, 0) == (inf | neg) &&
                                                  one(KN_DIV, KN_F32, onef, zero, 0) == inf &&
                                                  one(KN_DIV, KN_F32, zero, zero, 0) == 0x7fc00000);
    report("trunc keeps -0", one(KN_TRUNC, KN_F32, 0xbf000000, 0, 0) == neg);
    report("where moves bits", one(KN_WHERE, KN_F32, 1, 0x7f800001, 0) == 0x7f800001);
    bool ok = true;
    uint64_t s = 88172645463325252u;
    for (int i = 0; i < 100000 && ok; i++) { /* f32 arithmetic is the machine's */
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        uint32_t xb = (uint32_t)s, yb = (uint32_t)(s >> 32);
        if (i & 1) yb = (yb & 0x807fffff) | (xb & 0x7f800000); /* near in exponent */
        float x, y;
        memcpy(&x, &xb, 4), memcpy(&y, &yb, 4);
        volatile float r[5] = {x + y, x - y, x * y, x / y, sqrtf(x)};
        static const kn_op op[5] = {KN_ADD, KN_SUB, KN_MUL, KN_DIV, KN_SQRT};
        for (int k = 0; k < 5; k++) {
            float want = r[k], got;
            uint32_t gb = (uint32_t)one(op[k], KN_F32, xb, yb, 0);
            memcpy(&got, &gb, 4);
            ok &= CHECK((isnan(want) && isnan(got)) || memcmp(&want, &got, 4) == 0, "%s(%a, %a) = %a, want %a",
                        ki_ops[op[k]].name, (double)x, (double)y, (double)got, (double)want);
        }
    }
    report("f32 + - * / sqrt as the machine's", ok);
    struct {
        kn_op op;
        double x, want;
    } row[] = {{KN_EXP2, 3, 8},
               {KN_LOG2, 8, 3},
               {KN_SIN, 0.5, 0.479425538604203},
               {KN_EXP, 1, M_E},
               {KN_LOG, 10, M_LN10},
               {KN_COS, 1, 0.5403023058681398},
               {KN_TAN, 1, 1.5574077246549022},
               {KN_TANH, 0.5, 0.46211715726000975},
               {KN_ERF, 0.5, 0.5204998778130465},
               {KN_RECIP, 3, 1.0 / 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        static const kn_dtype ts[] = {KN_F64, KN_F32, KN_F16, KN_BF16, KN_F8E5M2, KN_F8E4M3};
        ok = true;
        for (size_t k = 0; k < sizeof ts / sizeof *ts; k++) {
            uint64_t got = one(row[i].op, ts[k], ki_bits_from_f64(ts[k], row[i].x), 0, 0);
            ok &= ts[k] == KN_F64
                      ? fabs(ki_f64_from_bits(KN_F64, got) - row[i].want) <= 4e-16 * fabs(row[i].want)
                      : got == ki_bits_from_f64(ts[k],
                                                ki_f64_from_bits(ts[k], ki_bits_from_f64(ts[k], row[i].x)) == row[i].x
                                                    ? row[i].want
                                                    : NAN) ||
                            ki_f64_from_bits(ts[k], ki_bits_from_f64(ts[k], row[i].x)) != row[i].x;
        }
        char name[48];
        snprintf(name, sizeof name, "value of %s in every float", ki_ops[row[i].op].name);
        report(name, ok);
    }
    report("pow", ki_f64_from_bits(KN_F64, one(KN_POW, KN_F64, ki_bits_from_f64(KN_F64, 2),
                                               ki_bits_from_f64(KN_F64, -2), 0)) == 0.25 &&
                      ki_f64_from_bits(KN_F32, one(KN_POW, KN_F32, nan, zero, 0)) == 1);
}

static void test_threefry(void) { /* Random123's known answers for threefry2x32, 20 rounds */
    static const uint32_t v[][6] = {{0, 0, 0, 0, 0x6b200159, 0x99ba4efe},
                                    {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x1cb996fc, 0xbb002be7},
                                    {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xc4923a9c, 0x483df7a0}};
    bool ok = true;
    for (size_t i = 0; i < 3; i++) {
        uint64_t ctr = v[i][0] | (uint64_t)v[i][1] << 32, key = v[i][2] | (uint64_t)v[i][3] << 32,
                 want = v[i][4] | (uint64_t)v[i][5] << 32;
        ok &= CHECK(one(KN_THREEFRY, KN_U64, ctr, key, 0) == want, "vector %zu: %016" PRIx64, i,
                    one(KN_THREEFRY, KN_U64, ctr, key, 0));
    }
    report("threefry 2x32-20: known answers", ok);
}

static void test_storage(void) {
    bool ok = true;
    for (int t = KN_BOOL; t < KI_DTYPE_COUNT; t++) {
        char raw[24] = {0};
        uint64_t v = ki_bits_from_f64((kn_dtype)t, t == KN_BOOL ? 1 : ki_is_uint((kn_dtype)t) ? 5 : -2);
        ki_storage_put((kn_dtype)t, raw, 1, v);
        ok &= CHECK(ki_storage_get((kn_dtype)t, raw, 1) == v && ki_storage_get((kn_dtype)t, raw, 0) == 0 &&
                        ki_storage_get((kn_dtype)t, raw, 2) == 0,
                    "%s", ki_dtypes[t].name);
    }
    report("storage form there and back", ok);
    report("identities",
           ki_scalar_identity(KN_ADD, KN_F32, true) == 0x80000000 && ki_scalar_identity(KN_ADD, KN_F32, false) == 0 &&
               ki_scalar_identity(KN_ADD, KN_I32, true) == 0 && ki_scalar_identity(KN_MAX, KN_F16, true) == 0xfc00 &&
               ki_scalar_identity(KN_MAX, KN_U8, true) == 0 &&
               (int64_t)ki_scalar_identity(KN_MAX, KN_I8, true) == -128 &&
               ki_scalar_identity(KN_MUL, KN_BF16, true) == 0x3f80 && ki_scalar_identity(KN_MUL, KN_I64, true) == 1);
}

int main(void) {
    test_ints();
    test_index();
    test_bool();
    test_f8(true);
    test_f8(false);
    test_16(KN_F16);
    test_16(KN_BF16);
    test_mulacc();
    test_casts();
    test_floats();
    test_threefry();
    test_storage();
    printf("1..%d\n", count);
    return failed != 0;
}
