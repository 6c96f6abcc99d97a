/* prove_ulps.c: what is promised of the functions that rules write out, and whether a result keeps it. The numbers are the
 * worst errors that docs/accuracy.md has (tests/rules holds the two together), so a change that makes a function worse
 * is seen as soon as an argument is among those tried. Oracle: libm in 64 bits of significand. */
#include "rules/prove_ulps.h"

#include <math.h>

typedef struct promise {
    uint8_t op;
    float f32, f32_split, f64, f64_split; /* 0: none */
    long double (*of)(long double);       /* NULL: pow */
} promise;

static const promise promises[] = {
    {KN_EXP, 0.999f, 0.966f, 1.00f, 0.94f, expl}, {KN_EXP2, 0.956f, 0.992f, 0.89f, 0.80f, exp2l},
    {KN_LOG, 0.796f, 0.795f, 0.76f, 0.75f, logl}, {KN_LOG2, 0.781f, 0.795f, 0.71f, 0.71f, log2l},
    {KN_SIN, 0.873f, 0.916f, 0.84f, 0, sinl},     {KN_COS, 0.873f, 0.912f, 0.83f, 0, cosl},
    {KN_TAN, 1.656f, 0, 1.53f, 0, tanl},          {KN_TANH, 0.853f, 0.862f, 0.86f, 0.89f, tanhl},
    {KN_ERF, 0.844f, 0.951f, 0.79f, 0.92f, erfl}, {KN_POW, 1.33f, 1.31f, 1.02f, 0, NULL},
};

static const promise *promise_of(kn_op op) {
    for (size_t k = 0; k < sizeof promises / sizeof *promises; k++)
        if (promises[k].op == op) return &promises[k];
    return NULL;
}

double ki_ulps_promised(kn_op op, kn_dtype t, bool fused) {
    const promise *p = promise_of(op);
    if (!p || (t != KN_F32 && t != KN_F64)) return 0;
    return (double)(t == KN_F32 ? fused ? p->f32 : p->f32_split : fused ? p->f64 : p->f64_split);
}

double ki_ulps_off(kn_op op, kn_dtype t, const uint64_t *in, uint64_t got) {
    int digits = t == KN_F32 ? 24 : 53, least = t == KN_F32 ? -125 : -1021, most = t == KN_F32 ? 128 : 1024, e;
    const promise *p = promise_of(op);
    long double x = (long double)ki_f64_from_bits(t, in[0]), g = (long double)ki_f64_from_bits(t, got);
    long double want = p->of ? p->of(x) : powl(x, (long double)ki_f64_from_bits(t, in[1]));
    if (isnan(want) || isnan(g)) return isnan(want) && isnan(g) ? 0 : INFINITY;
    if (!signbit(g) != !signbit(want)) return INFINITY;
    if (isinf(want) || want == 0) return g == want ? 0 : INFINITY;
    long double top = copysignl(ldexpl(1, most), want); /* an infinity counts as the step after the largest number */
    if (isinf(g)) g = top;
    if (fabsl(want) > fabsl(top)) want = top;
    (void)frexpl(want, &e);
    e = e < least ? least : e > most ? most : e;
    return (double)ldexpl(fabsl(g - want), digits - e);
}
