/* test_decomp.c: functions that select writes as straight-line code: error in units of the last place over all of f32
 * (every 9973rd, and special values), vectors and scalars the same bits, nothing left for libm. */
#include "../8_render/harness.h"
#include "ir/scalar.h"
#include "stages/5_select/select.h"

#include <math.h>

enum { N = 430688 }; /* 2^32 / 9973, a multiple of 16 */

static const ki_target *target;
static float x[N], v[N], s[N];

static kernel_fn *compile(kn_op op, int lanes, const char *name) {
    U r = range(N / lanes), i = lanes > 1 ? add(mul(r, C(lanes)), iota(lanes, 0, 1)) : r;
    U st = end1(store(param(0, KN_F32, N), i, ki_op1(ir, op, load(param(1, KN_F32, N), i))), r);
    U k = ki_select(ir, target, sink(name, &st, 1));
    if (!k) printf("# %s\n", env.message.s ? env.message.s : "?");
    return k ? build(target, "cc", k, name) : NULL;
}

static double ulp(float got, double want) {
    int e;
    float w = (float)want;
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (isinf(w) || isinf(got)) return w == got ? 0 : 1e9;
    if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : 1e9;
    frexp(fmax(fabs(want), 0x1p-126), &e);
    return fabs((double)got - want) / ldexp(1, e - 24);
}

static void try(kn_op op, double (*f)(double), double most) {
    kernel_fn *wide = compile(op, (int)target->vector / 4, "k_wide"), *narrow = compile(op, 1, "k_narrow");
    double worst = 0;
    float at = 0;
    int same = 1;
    if (wide && narrow) {
        wide((void *[]){v, x}, NULL, 0);
        narrow((void *[]){s, x}, NULL, 0);
    }
    for (int k = 0; k < N && wide && narrow; k++) {
        double u = ulp(v[k], f((double)x[k]));
        if (u > worst) worst = u, at = x[k];
        same = same && (memcmp(&v[k], &s[k], 4) == 0 || (isnan(v[k]) && isnan(s[k])));
    }
    CHECK(wide && narrow && worst <= most, "%s on %s: worst %.2f ulp at %a", ki_ops[op].name, target->name, worst,
          (double)at);
    CHECK(same, "%s on %s: vectors and scalars agree", ki_ops[op].name, target->name);
}

static void fill(void) {
    static const float special[] = {
        0.0f,       -0.0f,           INFINITY,     -INFINITY,    NAN,         1,          -1,   0x1p-126f, 0x1p-149f,
        -0x1p-149f, 0x1.fffffep127f, 88.72284f,    88.72283f,    -103.97208f, -87.33655f, -104, 128,       -150,
        -149,       0.625f,          0.707106769f, 0.999999940f, 1.00000012f, 4,          9};
    for (uint32_t k = 0; k < N; k++) {
        uint32_t b = k * UINT32_C(9973);
        memcpy(&x[k], &b, 4);
    }
    memcpy(x, special, sizeof special);
}

static void try_threefry(int lanes) {
    enum { M = 64 };
    U r = range(M / lanes), i = lanes > 1 ? add(mul(r, C(lanes)), iota(lanes, 0, 1)) : r;
    U v = ki_op2(ir, KN_THREEFRY, load(param(1, KN_U64, M), i), load(param(2, KN_U64, 1), C(0)));
    U st = end1(store(param(0, KN_U64, M), i, v), r), k = ki_select(ir, target, sink("k_rng", &st, 1));
    kernel_fn *f = k ? build(target, "cc", k, "k_rng") : NULL;
    uint64_t a[M], out[M], key = UINT64_C(0x123456789abcdef);
    for (int j = 0; j < M; j++) a[j] = (uint64_t)j * UINT64_C(0x9e3779b97f4a7c15);
    if (f) f((void *[]){out, a, &key}, NULL, 0);
    int ok = f != NULL;
    for (int j = 0; j < M && ok; j++) ok = out[j] == ki_threefry(a[j], key);
    CHECK(ok, "threefry on %s, %d lanes", target->name, lanes);
}

int main(void) {
    static const char *const names[] = {"sse2", "avx2", "avx512"};
    if (!open_store()) return 1;
    fill();
    for (int k = 0; k < 3; k++) {
        target = ki_target_named(names[k]);
        try(KN_EXP, exp, 1);
        try(KN_EXP2, exp2, 1);
        try(KN_LOG, log, 1);
        try(KN_LOG2, log2, 1);
        try(KN_TANH, tanh, 1);
        try(KN_ERF, erf, 1);
        try(KN_SIN, sin, 1);
        try(KN_COS, cos, 1);
        try(KN_TAN, tan, 1.7);
        try_threefry(1);
        try_threefry(8);
        if (strcmp(ki_target_host()->name, names[k]) == 0) break;
    }
    close_store();
    return tap_done();
}
