/* prove_ulps.c: what is promised of what rules write out, and whether a result keeps it. The numbers are the
 * worst errors that docs/accuracy.md has (tests/rules holds the two together), so a change that makes a function worse
 * is seen as soon as an argument is among those tried. Oracle: libm in 64 bits of significand. */
#include "rules/prove_ulps.h"

#include <math.h>

struct ki_promise {
    uint8_t op;
    float f32, f32_split, f64, f64_split; /* 0: none */
    long double (*of)(long double);       /* NULL: pow */
};

static const ki_promise functions[] = {
    {KN_EXP, 0.999f, 0.966f, 1.00f, 0.94f, expl}, {KN_EXP2, 0.956f, 0.992f, 0.89f, 0.80f, exp2l},
    {KN_LOG, 0.796f, 0.795f, 0.76f, 0.75f, logl}, {KN_LOG2, 0.781f, 0.795f, 0.71f, 0.71f, log2l},
    {KN_SIN, 0.873f, 0.916f, 0.84f, 0, sinl},     {KN_COS, 0.873f, 0.912f, 0.83f, 0, cosl},
    {KN_TAN, 1.656f, 0, 1.53f, 0, tanl},          {KN_TANH, 0.853f, 0.862f, 0.86f, 0.89f, tanhl},
    {KN_ERF, 0.844f, 0.951f, 0.79f, 0.92f, erfl}, {KN_POW, 1.33f, 1.31f, 1.02f, 0, NULL},
};

/* gelu, which is written out as a whole, where products and sums are fused. */
static const float ROOT_HALF = 0.70710677f;
static long double gelu(long double x) { return x / 2 * erfcl(-x * (long double)ROOT_HALF); }
static const ki_promise whole = {.op = KN_MUL, .f32 = 2.746f, .of = gelu};

/* e^x that a sum takes up, s + e^x: beyond the sum's own rounding, in units of e^x. */
static const ki_promise added = {.op = KN_ADD, .f32 = 2.091f, .of = expl};

static double added_off(long double x, long double s, long double g) {
    long double top = ldexpl(1, 128), power = expl(x), want = s + (power < top ? power : power + INFINITY);
    int e, f;
    if (isinf(want)) return g == want ? 0 : INFINITY;
    if (isnan(want) || isnan(g)) return isnan(want) && isnan(g) ? 0 : INFINITY;
    if (fabsl(want) >= top) want = copysignl(top, want);
    if (isinf(g)) g = copysignl(top, g);
    (void)frexpl(power, &e), (void)frexpl(want, &f);
    e = e < -125 ? -125 : e > 128 ? 128 : e, f = f < -125 ? -125 : f;
    long double off = fabsl(g - want) - ldexpl(0.5L, f - 24);
    return off > 0 ? (double)ldexpl(off, 24 - e) : 0;
}

const ki_promise *ki_promise_of_whole(unsigned order) { return order == KI_SUM_OF_POWER ? &added : &whole; }
const char *ki_promise_name(const ki_promise *p) {
    return p == &whole ? "gelu" : p == &added ? "the sum of b and e^a for a, b = " : ki_ops[p->op].name;
}

kn_uop ki_whole_of(ki_ir *ir, unsigned order, kn_uop x, kn_uop s) {
    if (order == KI_SUM_OF_POWER) return ki_op2(ir, KN_ADD, s, ki_op1(ir, KN_EXP, x));
    kn_uop half = ki_const_float(ir, KN_F32, 0.5), c = ki_const_float(ir, KN_F32, (double)ROOT_HALF);
    kn_uop sum = ki_op2(ir, KN_ADD, ki_op1(ir, KN_ERF, ki_op2(ir, KN_MUL, x, c)), ki_const_float(ir, KN_F32, 1));
    switch (order) {
    case 0: return ki_op2(ir, KN_MUL, ki_op2(ir, KN_MUL, x, half), sum);
    case 1: return ki_op2(ir, KN_MUL, ki_op2(ir, KN_MUL, x, sum), half);
    default: return ki_op2(ir, KN_MUL, x, ki_op2(ir, KN_MUL, sum, half));
    }
}

const ki_promise *ki_promise_of(kn_op op, kn_dtype t) {
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (functions[k].op == op && (t == KN_F32 || t == KN_F64)) return &functions[k];
    return NULL;
}

double ki_ulps_promised(const ki_promise *p, kn_dtype t, bool fused) {
    if (!p) return 0;
    return (double)(t == KN_F32 ? fused ? p->f32 : p->f32_split : fused ? p->f64 : p->f64_split);
}

double ki_ulps_off(const ki_promise *p, kn_dtype t, const uint64_t *in, uint64_t got) {
    int digits = t == KN_F32 ? 24 : 53, least = t == KN_F32 ? -125 : -1021, most = t == KN_F32 ? 128 : 1024, e;
    long double x = (long double)ki_f64_from_bits(t, in[0]), g = (long double)ki_f64_from_bits(t, got);
    if (p == &added) return added_off(x, (long double)ki_f64_from_bits(t, in[1]), g);
    long double want = p->of ? p->of(x) : powl(x, (long double)ki_f64_from_bits(t, in[1]));
    if (isnan(want) || isnan(g)) return isnan(want) && isnan(g) ? 0 : INFINITY;
    if (!signbit(g) != !signbit(want)) return INFINITY;
    if (isinf(want) || want == 0) return g == want ? 0 : INFINITY;
    long double top = copysignl(ldexpl(1, most), want); /* an infinity counts as the step after the largest number */
    if (isinf(g)) g = top;
    if (fabsl(want) > fabsl(top)) want = top;
    if (p == &whole) return (double)(fabsl(g - want) / fmaxl(ldexpl(fabsl(x), -25), 0x1p-149L));
    (void)frexpl(want, &e);
    e = e < least ? least : e > most ? most : e;
    return (double)ldexpl(fabsl(g - want), digits - e);
}
