/* test_functions.c: the mathematical functions on a sample (docs/accuracy.md has all inputs): errors against libm in a wider
 * format, dense around the breakpoints of the reductions, subnormals, huge arguments; and the cases that are exact. */
#include "math_cases.h"

enum { N = 1 << 17 };
static const ki_target *target;

/* What docs/accuracy.md states. */
static double most(kn_op op, kn_dtype t) {
    if (op == KN_TAN || op == KN_POW) return t == KN_F64 ? 2 : 1.7;
    return t == KN_F32 ? 1 : target->vector < 32 ? 2 : 1.2; /* libm's tanh */
}

static const double special[] = {0.0,
                                 1.0,
                                 0.5,
                                 2.0,
                                 3.0,
                                 4.0,
                                 0.25,
                                 1.5,
                                 2.5,
                                 16777216.0,
                                 16777217.0,
                                 1e10,
                                 INFINITY,
                                 NAN,
                                 0x1p-126,
                                 0x1p-149,
                                 0x1p-1022,
                                 0x1p-1074,
                                 0x1.fffffep127,
                                 0x1.fffffffffffffp1023,
                                 88.72283,
                                 88.72284,
                                 -103.97208,
                                 -87.33655,
                                 709.78271289338397,
                                 709.7827128933841,
                                 -745.13321910194111,
                                 -708.39641853226408,
                                 128.0,
                                 -149.0,
                                 -150.0,
                                 1024.0,
                                 -1074.0,
                                 -1075.0,
                                 0.55,
                                 0.84,
                                 9.5,
                                 20.0,
                                 6.0,
                                 0x1.f37c8ap95 /* near a multiple of pi / 2 */,
                                 0x1.6ac5b262ca1ffp849,
                                 0.70710678118654757,
                                 0.78539816339744828,
                                 0.78539818525314331,
                                 1.5707963267948966,
                                 3.1415926535897931,
                                 0x1p127,
                                 0x1.8p127,
                                 0x1p1023,
                                 0x1.8p1023,
                                 0.99999994,
                                 1.0000001,
                                 -1.0000000000000002,
                                 0.99999999999999989};
enum { SPECIAL = sizeof special / sizeof *special };

static float next_f32(float x, int k) {
    uint32_t b;
    memcpy(&b, &x, 4);
    b += (uint32_t)k;
    memcpy(&x, &b, 4);
    return x;
}

/* Special values and their neighbours, halves of breakpoints' multiples, then a sample of all. */
static void fill_f32(const function *f, float *x, float *y) {
    for (int k = 0; k < N; k++) {
        uint32_t b = (uint32_t)k * 32771u;
        memcpy(&x[k], &b, 4);
        y[k] = 0;
        if (f->binary) pair_f32((uint64_t)k, &x[k], &y[k]);
        else if (k % 4 == 1) x[k] = (float)((unit(mixed((uint64_t)k)) - 0.5) * 256);
        else if (k % 4 == 2) { /* around multiples of pi / 4 and log 2 / 2 */
            double at = (k & 4 ? M_PI_4 : M_LN2 / 2) * (double)(k / 64);
            x[k] = next_f32((float)at, k / 8 % 7 - 3);
        }
    }
    for (int k = 0; k < 2 * SPECIAL && !f->binary; k++)
        for (int j = -1; j < 2; j++) x[3 * k + j + 1] = next_f32((float)(k & 1 ? -special[k / 2] : special[k / 2]), j);
    for (int k = 0; k < 4 * SPECIAL * SPECIAL && f->binary; k++) {
        x[k] = (float)(k & 1 ? -special[k / 4 % SPECIAL] : special[k / 4 % SPECIAL]);
        y[k] = (float)(k & 2 ? -special[k / 4 / SPECIAL] : special[k / 4 / SPECIAL]);
    }
}

static void fill_f64(const function *f, double *x, double *y) {
    for (int k = 0; k < N; k++) sample_f64(f, (uint64_t)k, &x[k], &y[k]);
    for (int k = 0; k < 2 * SPECIAL && !f->binary; k++)
        for (int j = -1; j < 2; j++)
            x[3 * k + j + 1] = from_bits(to_bits(k & 1 ? -special[k / 2] : special[k / 2]) + (uint64_t)j);
    for (int k = 0; k < N && target->vector < 32;
         k++) /* glibc, called there, is 8 ulp off at the hardest argument of all */
        if (fabs(x[k]) == 0x1.6ac5b262ca1ffp849) x[k] = 1;
}

static void in_f32(const function *f, kernel_fn *run) {
    static _Alignas(64) float x[N], y[N], v[N];
    double worst = 0, at = 0;
    fill_f32(f, x, y);
    run((void *[]){v, x, y}, NULL, 0);
    for (int k = 0; k < N; k++) {
        double u = ulp_f32(v[k], f->binary ? pow((double)x[k], (double)y[k]) : f->f64((double)x[k]));
        if (u > worst) worst = u, at = (double)x[k];
    }
    CHECK(worst <= most(f->op, KN_F32), "%s of f32 on %s: worst %.2f ulp at %a", ki_ops[f->op].name, target->name,
          worst, at);
}

static void in_f64(const function *f, kernel_fn *run) {
    static _Alignas(64) double x[N], y[N], v[N];
    double worst = 0, at = 0;
    fill_f64(f, x, y);
    run((void *[]){v, x, y}, NULL, 0);
    for (int k = 0; k < N; k++) {
        double u = ulp_f64(v[k], f->binary ? powl(x[k], y[k]) : f->f80(x[k]));
        if (u > worst) worst = u, at = x[k];
    }
    CHECK(worst <= most(f->op, KN_F64), "%s of f64 on %s: worst %.2f ulp at %a", ki_ops[f->op].name, target->name,
          worst, at);
}

static void put(void *a, kn_dtype t, int k, double v) {
    float f = (float)v;
    if (t == KN_F32) memcpy((char *)a + 4 * k, &f, 4);
    else memcpy((char *)a + 8 * k, &v, 8);
}
static double get(const void *a, kn_dtype t, int k) {
    float f;
    double v;
    if (t == KN_F32) return memcpy(&f, (const char *)a + 4 * k, 4), (double)f;
    return memcpy(&v, (const char *)a + 8 * k, 8), v;
}

/* Results that must not be off by any rounding. */
static void exact(const function *f, kernel_fn *run, kn_dtype t) {
    static const struct {
        kn_op op;
        double x, y;
    } is[] = {{KN_EXP, 0, 1},
              {KN_EXP, -0.0, 1},
              {KN_EXP2, 10, 1024},
              {KN_EXP2, -126, 0x1p-126},
              {KN_EXP2, -149, 0x1p-149},
              {KN_EXP2, 127, 0x1p127},
              {KN_LOG, 1, 0},
              {KN_LOG, 0, -INFINITY},
              {KN_LOG, -1, NAN},
              {KN_LOG2, 1, 0},
              {KN_LOG2, 0x1p-149, -149},
              {KN_LOG2, 0x1p127, 127},
              {KN_SIN, -0.0, -0.0},
              {KN_COS, 0, 1},
              {KN_TAN, -0.0, -0.0},
              {KN_TANH, INFINITY, 1},
              {KN_TANH, -INFINITY, -1},
              {KN_TANH, -0.0, -0.0},
              {KN_ERF, INFINITY, 1},
              {KN_ERF, -0.0, -0.0},
              {KN_EXP, -INFINITY, 0},
              {KN_EXP2, INFINITY, INFINITY},
              {KN_SIN, INFINITY, NAN},
              {KN_COS, -INFINITY, NAN}};
    for (size_t k = 0; k < sizeof is / sizeof *is; k++) {
        static _Alignas(64) double in[N], out[N];
        if (is[k].op != f->op) continue;
        for (int j = 0; j < 64; j++) put(in, t, j, is[k].x);
        run((void *[]){out, in, in}, NULL, 0);
        double got = get(out, t, 0);
        bool same = isnan(is[k].y) ? isnan(got) : got == is[k].y && !signbit(got) == !signbit(is[k].y);
        CHECK(same, "%s(%g) of %s on %s is %g", ki_ops[f->op].name, is[k].x, ki_dtypes[t].name, target->name, got);
    }
}

/* C17 F.10.4.4, by the standard's words and not by another pow. */
static void powers(kernel_fn *run, kn_dtype t) {
    const double inf = INFINITY, nan_ = NAN;
    const double row[][3] = {
        {0.0, -3, inf},    {-0.0, -3, -inf},   {0.0, -2, inf},    {-0.0, -2, inf}, {0.0, -0.5, inf},
        {-0.0, -0.5, inf}, {0.0, -inf, inf},   {-0.0, -inf, inf}, {0.0, 3, 0.0},   {-0.0, 3, -0.0},
        {0.0, 2, 0.0},     {-0.0, 2, 0.0},     {-0.0, 0.5, 0.0},  {-1, inf, 1},    {-1, -inf, 1},
        {1, nan_, 1},      {1, inf, 1},        {nan_, 0.0, 1},    {nan_, -0.0, 1}, {inf, 0.0, 1},
        {-2, 0.5, nan_},   {-0.5, -1.5, nan_}, {0.5, -inf, inf},  {2, -inf, 0.0},  {-2, -inf, 0.0},
        {0.5, inf, 0.0},   {-0.5, inf, 0.0},   {2, inf, inf},     {-2, inf, inf},  {-inf, -3, -0.0},
        {-inf, -2, 0.0},   {-inf, -0.5, 0.0},  {-inf, 3, -inf},   {-inf, 2, inf},  {-inf, 0.5, inf},
        {inf, -1, 0.0},    {inf, 2, inf},      {nan_, 1, nan_},   {2, nan_, nan_}, {-inf, inf, inf},
        {2, 10, 1024},     {-2, 3, -8},        {-2, 2, 4},        {3, 4, 81},      {2, -149, 0x1p-149},
        {4, 0.5, 2},       {10, 5, 100000},    {7, 1, 7}};
    enum { ROWS = sizeof row / sizeof *row };
    static _Alignas(64) double x[N], y[N], v[N];
    for (int k = 0; k < ROWS; k++) put(x, t, k, row[k][0]), put(y, t, k, row[k][1]);
    run((void *[]){v, x, y}, NULL, 0);
    int wrong = -1;
    for (int k = 0; k < ROWS && wrong < 0; k++) {
        double got = get(v, t, k), want = row[k][2];
        bool same = isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want);
        if (!same) wrong = k;
    }
    CHECK(wrong < 0, "pow of %s on %s in %d cases of the standard", ki_dtypes[t].name, target->name, (int)ROWS);
    if (wrong >= 0) printf("# pow(%g, %g)\n", row[wrong][0], row[wrong][1]);
}

/* One operand the same for all lanes. */
static void broadcast(void) {
    static _Alignas(64) float x[64], y[64], v[64];
    for (int k = 0; k < 64; k++) x[k] = 1.5f, y[k] = (float)k / 8;
    for (int first = 0; first < 2; first++) {
        U r = range(8), i = add(mul(r, C(8)), iota(8, 0, 1)), s = load(param(1, KN_F32, 64), C(0)),
          w = load(param(2, KN_F32, 64), i);
        U st = end1(store(param(0, KN_F32, 64), i, first ? ki_op2(ir, KN_POW, s, w) : ki_op2(ir, KN_POW, w, s)), r);
        U k = ki_select(ir, target, sink(first ? "k_first" : "k_second", &st, 1));
        kernel_fn *run = k ? build(target, "cc", k, first ? "k_first" : "k_second") : NULL;
        double worst = run ? 0 : 1e9;
        if (run) run((void *[]){v, x, y}, NULL, 0);
        for (int j = 0; j < 64 && run; j++)
            worst = fmax(worst, ulp_f32(v[j], first ? pow(1.5, (double)y[j]) : pow((double)y[j], 1.5)));
        CHECK(worst <= most(KN_POW, KN_F32), "pow with a scalar %s on %s: %.2f", first ? "base" : "exponent",
              target->name, worst);
    }
}

static void all(void) {
    for (size_t k = 0; k < NFUNCTIONS; k++)
        for (int wide = 0; wide < 2; wide++) {
            const function *f = &functions[k];
            kn_dtype t = wide ? KN_F64 : KN_F32;
            int lanes = (int)target->vector / (wide ? 8 : 4);
            kernel_fn *run = compile_function(target, f->op, t, N, lanes, "k_function");
            CHECK(run != NULL, "%s of %s compiles for %s", ki_ops[f->op].name, ki_dtypes[t].name, target->name);
            if (!run) continue;
            if (wide) in_f64(f, run);
            else in_f32(f, run);
            exact(f, run, t);
            if (f->binary) powers(run, t);
        }
    if (target->vector >= 32) broadcast();
}

int main(void) {
    if (!open_store()) return 1;
    target = ki_target_named("sse2");
    all();
    if (strcmp(ki_target_host()->name, "sse2") != 0) target = ki_target_host(), all();
    close_store();
    return tap_done();
}
