/* math_cases.h: what the tests of the mathematical functions share: the functions with their oracles, errors in units in
 * the last place, samples, and a kernel that applies one function to n elements. */
#ifndef MATH_CASES_H
#define MATH_CASES_H

#include "../8_render/harness.h"
#include "device/cpu/codemem.h"
#include "stages/5_select/select.h"
#include "stages/8_render/x86/native.h"

typedef struct function {
    kn_op op;
    double (*f64)(double);
    long double (*f80)(long double);
    double least, most; /* f64: exponents of two of the arguments sampled */
    bool binary;
} function;

static const function functions[] = {
    {KN_EXP, exp, expl, -60, 10, false},      {KN_EXP2, exp2, exp2l, -60, 11, false},
    {KN_LOG, log, logl, -1074, 1024, false},  {KN_LOG2, log2, log2l, -1074, 1024, false},
    {KN_SIN, sin, sinl, -30, 1024, false},    {KN_COS, cos, cosl, -30, 1024, false},
    {KN_TAN, tan, tanl, -30, 1024, false},    {KN_TANH, tanh, tanhl, -40, 6, false},
    {KN_ERF, erf, erfl, -40, 4, false},       {KN_POW, NULL, NULL, -1074, 1024, true},
};
enum { NFUNCTIONS = sizeof functions / sizeof *functions };

static inline double from_bits(uint64_t b) {
    double d;
    memcpy(&d, &b, 8);
    return d;
}
static inline uint64_t to_bits(double d) {
    uint64_t b;
    memcpy(&b, &d, 8);
    return b;
}

/* want is good to far less than an ulp of f32. */
static inline double ulp_f32(float got, double want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : 1e9;
    if (isinf(want)) return isinf(got) && (got < 0) == (want < 0) ? 0 : 1e9;
    if (!signbit(got) != !signbit(want)) return 1e9;
    if (want == 0) return got == 0 ? 0 : 1e9;
    double g = isinf(got) ? copysign(0x1p128, want) : (double)got;
    if (fabs(want) >= 0x1p128) return isinf(got) ? 0 : fabs(g - copysign(0x1p128, want)) * 0x1p-104;
    int e = (int)(to_bits(want) >> 52 & 0x7ff);
    if (e < 1023 - 126) e = 1023 - 126;
    return fabs(g - want) * from_bits((uint64_t)(1023 + 23 + 1023 - e) << 52);
}

static inline double ulp_f64(double got, long double want) {
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : 1e9;
    if (isinf(want)) return isinf(got) && (got < 0) == (want < 0) ? 0 : 1e9;
    if (!signbit(got) != !signbit(want)) return 1e9;
    if (want == 0) return got == 0 ? 0 : 1e9;
    long double g = isinf(got) ? copysignl(0x1p1024L, want) : (long double)got, w = want;
    if (fabsl(w) > 0x1p1024L) w = copysignl(0x1p1024L, w);
    int e;
    frexpl(want, &e);
    if (e < -1021) e = -1021;
    if (e > 1024) e = 1024;
    return (double)ldexpl(fabsl(g - w), 53 - e);
}

static inline uint64_t mixed(uint64_t h) {
    h += UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}
static inline double unit(uint64_t h) { return (double)(h >> 11) * 0x1p-53; }

/* Arguments of pow: any bits, or a base whose power is near a given size. */
static inline void pair_f32(uint64_t k, float *x, float *y) {
    uint64_t a = mixed(2 * k), b = mixed(2 * k + 1);
    uint32_t lo = (uint32_t)a, hi = (uint32_t)(a >> 32);
    memcpy(x, &lo, 4);
    memcpy(y, &hi, 4);
    if (k % 8 == 0) return;
    *x = k % 8 == 1 ? (float)(1 + (unit(a) - 0.5) * ldexp(1, -(int)(b % 24))) : (float)exp2((unit(a) - 0.5) * (k % 2 ? 256 : 8));
    double top = (k & 4 ? 130 : 300) * (unit(b) - 0.5) * 2;
    *y = (float)(top / log2((double)*x));
    if (k % 16 == 5) *y = rintf(*y), *x = -*x;
}

/* Element k of a sample: arguments of all sizes, most of them where the function is neither 0, 1 nor infinite; in
 * every fourth the nearest neighbours of a breakpoint (a multiple of log 2, of pi / 4, a power of two, a half). */
static inline void sample_f64(const function *f, uint64_t k, double *x, double *y) {
    uint64_t a = mixed(3 * k), b = mixed(3 * k + 1), c = mixed(3 * k + 2);
    *y = 0;
    if (f->binary) {
        *x = from_bits(a), *y = from_bits(b);
        if (k % 8 == 0) return;
        *x = k % 8 == 1 ? 1 + (unit(a) - 0.5) * ldexp(1, -(int)(b % 53)) : exp2((unit(a) - 0.5) * (k % 2 ? 2048 : 8));
        *y = (k & 4 ? 1050 : 2400) * (unit(c) - 0.5) * 2 / log2(*x);
        if (k % 16 == 5) *y = rint(*y), *x = -*x;
        return;
    }
    double span = f->most - f->least;
    *x = exp2(f->least + span * unit(a));
    if (f->most > 100 && k % 4 == 1) *x = exp2(-6 + 14 * unit(a));
    if (f->most < 100 && k % 4 == 1) *x = (unit(a)) * exp2(f->most);
    if (k % 4 == 2) {
        static const double step[] = {M_LN2 / 2, M_PI_4, 0.5, M_SQRT2 / 2};
        *x = step[a % 4] * (double)(1 + b % 2048);
        *x = from_bits(to_bits(*x) + c % 9 - 4);
    }
    if (k % 64 == 3) *x = from_bits(a);
    bool positive = (f->op == KN_LOG || f->op == KN_LOG2) && k % 1024;
    if (b >> 63 && !positive) *x = -*x;
}

/* Machine code of a selected kernel, where it runs for as long as the process does. */
static inline kernel_fn *build_native(const ki_target *target, U selected) {
    U k = selected ? ki_linearize(ir, selected) : NULL;
    ki_x86_text code;
    ki_codemem mem = {0};
    kernel_fn *f = NULL;
    if (!k || !ki_render_x86(ir, target, k, &code, NULL)) return NULL;
    if (ki_codemem_make(&env, code.bytes, code.n, &mem)) memcpy(&f, &mem.code, sizeof f);
    ki_x86_text_free(&code);
    return f;
}

/* out[i] = op(x[i], y[i]) for i < n, by vectors of `lanes`; x and y are parameters 1 and 2. C, or machine code, as the target is. */
static inline kernel_fn *compile_function(const ki_target *target, kn_op op, kn_dtype t, int n, int lanes, const char *name) {
    U r = range(n / lanes), i = lanes > 1 ? add(mul(r, C(lanes)), iota(lanes, 0, 1)) : r;
    U x = load(param(1, t, n), i);
    U v = ki_ops[op].least == 2 ? ki_op2(ir, op, x, load(param(2, t, n), i)) : ki_op1(ir, op, x);
    U st = end1(store(param(0, t, n), i, v), r);
    U k = ki_select(ir, target, sink(name, &st, 1));
    kernel_fn *f = !k ? NULL : target->native ? build_native(target, k) : build(target, "cc", k, name);
    if (!f) printf("# %s\n", env.message.s ? env.message.s : "?");
    return f;
}

#endif
