/* test_eval_bounds.c: the loops of eval_apply.c against the scalar meaning, and the error bounds against trials: arguments
 * moved inside their bounds, and sums and products by other trees, must land inside the bound that is claimed. */
#include "eval_util.h"

#include "ir/eval_apply.h"

#include <stdlib.h>

static uint64_t seed = 88172645463325252u;
static uint64_t next(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}
static double unit(void) { return (double)(next() >> 11) * 0x1p-53; }

static kn_dtype result_of(kn_op op, kn_dtype t) {
    bool compare = op == KN_CMPLT || op == KN_CMPNE || (op >= KN_CMPGT && op <= KN_CMPEQ);
    return compare ? KN_BOOL : t;
}
static uint64_t random_bits(kn_dtype t) {
    uint64_t v = next();
    if (t == KN_BOOL) return v & 1;
    switch (next() % 6) {
    case 0: return ki_bits_from_f64(t, (double)(int64_t)(v % 7) - 3);
    case 1:
        return ki_is_float(t) ? ki_bits_from_f64(t, (v & 1 ? -1 : 1) * (v & 2   ? INFINITY
                                                                        : v & 4 ? NAN
                                                                                : 0.0))
                              : ki_extend(v, ki_dtypes[t].bits, !ki_is_uint(t));
    case 2: return ki_bits_from_f64(t, (unit() - 0.5) * 200);
    default: break;
    }
    return ki_is_float(t) || ki_is_uint(t)
               ? (ki_dtypes[t].bits == 64 ? v : v & ((UINT64_C(1) << ki_dtypes[t].bits) - 1))
               : ki_extend(v, ki_dtypes[t].bits, true);
}

/* Every op and dtype: the array loop and ki_scalar give the same bits, or both have no value. */
static void loops(void) {
    for (int op = 0; op < KI_OP_COUNT; op++) {
        if (!ki_is_elementwise((kn_op)op)) continue;
        bool ok = true;
        int dtypes = 0;
        for (int t = KN_BOOL; t < KI_DTYPE_COUNT && ok; t++) {
            kn_dtype in[3] = {op == KN_WHERE ? KN_BOOL : (kn_dtype)t, (kn_dtype)t, (kn_dtype)t},
                     out = result_of((kn_op)op, (kn_dtype)t);
            unsigned flags = ki_ops[op].flags;
            if ((flags & KI_FLOAT && !ki_is_float(in[1])) || (flags & KI_INT && ki_is_float(in[1])) ||
                (flags & KI_NUM && t == KN_BOOL) || (op == KN_THREEFRY && t != KN_U64))
                continue;
            dtypes++;
            for (int i = 0; i < 400 && ok; i++) {
                if (op == KN_CAST) out = (kn_dtype)(KN_BOOL + next() % (KI_DTYPE_COUNT - KN_BOOL));
                uint64_t v[3], want = 0, got = 0;
                ki_apply a;
                for (int k = 0; k < 3; k++) v[k] = random_bits(in[k]);
                if (op == KN_SHL || op == KN_SHR) v[1] = random_bits((kn_dtype)t) & 0x7f;
                const uint64_t *src[3] = {&v[0], &v[1], &v[2]};
                bool has = ki_scalar((kn_op)op, out, in, v, &want),
                     can = ki_apply_init(&a, (kn_op)op, out, in, (unsigned)ki_ops[op].least) &&
                           ki_apply_run(&a, 1, src, &got);
                ok = has == can && (!has || got == want);
                if (!ok)
                    printf("# %s %s (%llx, %llx, %llx): loop %d %llx, scalar %d %llx\n", ki_ops[op].name,
                           ki_dtypes[t].name, (unsigned long long)v[0], (unsigned long long)v[1],
                           (unsigned long long)v[2], can, (unsigned long long)got, has, (unsigned long long)want);
            }
        }
        CHECK(ok && dtypes, "loop of %s equals its scalar meaning on %d dtypes", ki_ops[op].name, dtypes);
    }
}

static const kn_dtype floats[] = {KN_F64, KN_F32, KN_F16, KN_BF16, KN_F8E5M2, KN_F8E4M3};
enum { NFLOATS = 6 };

static double scale(kn_op op) { return op == KN_EXP || op == KN_EXP2 || op == KN_TANH ? 8 : op == KN_POW ? 4 : 100; }

/* A value within e of x, of the dtype. */
static uint64_t moved(kn_dtype t, double x, double e) {
    for (int i = 0; i < 8 && e > 0; i++) {
        uint64_t b = ki_bits_from_f64(t, x + (2 * unit() - 1) * e);
        if (fabs(ki_f64_from_bits(t, b) - x) <= e) return b;
    }
    return ki_bits_from_f64(t, x);
}

/* Random arguments with random bounds; whatever they really were, the result is within the claimed bound. */
static void trials(kn_op op, kn_dtype t) {
    unsigned n = (unsigned)ki_ops[op].least, exempt = 0;
    kn_dtype out = result_of(op, t), in[3] = {op == KN_WHERE ? KN_BOOL : t, t, t};
    bool ok = true;
    for (int i = 0; i < 3000 && ok; i++) {
        uint64_t v[3], w[3], a = 0, b = 0;
        double e[3], bound;
        if (op == KN_CAST) out = i & 1 ? KN_I32 : floats[(unsigned)i % NFLOATS];
        for (unsigned k = 0; k < n; k++) {
            double x = (unit() - (next() % 4 ? 0.5 : 0)) * scale(op) * (next() % 3 ? 1 : 0.01);
            v[k] = in[k] == KN_BOOL ? next() & 1 : ki_bits_from_f64(t, x);
            e[k] = in[k] == KN_BOOL  ? (next() % 8 ? 0 : INFINITY)
                   : next() % 3 == 0 ? 0
                                     : fabs(x) * ldexp(1, -(int)(next() % 30)) * unit();
            if (in[k] != KN_BOOL && e[k] != 0) e[k] += ki_ulp(t, x);
            if (in[k] != KN_BOOL && fabs(ki_f64_from_bits(t, v[k])) + e[k] >= ki_float_max(t)) e[k] = INFINITY;
        }
        const uint64_t *src[3] = {&v[0], &v[1], &v[2]}, *src2[3] = {&w[0], &w[1], &w[2]};
        const double *err[3] = {&e[0], &e[1], &e[2]};
        ki_apply s;
        if (!ki_apply_init(&s, op, out, in, n) || !ki_apply_run(&s, 1, src, &a)) continue;
        ki_bound_run(&s, 1, src, err, &a, &bound);
        exempt += bound == INFINITY;
        for (int j = 0; j < 6 && ok; j++) {
            for (unsigned k = 0; k < n; k++)
                w[k] = in[k] == KN_BOOL   ? (e[k] > 0 ? next() & 1 : v[k])
                       : e[k] == INFINITY ? random_bits(t)
                                          : moved(t, ki_f64_from_bits(t, v[k]), e[k]);
            ki_agreement r;
            uint64_t ra = 0, rb = 0;
            ki_apply_run(&s, 1, src2, &b);
            ki_storage_put(out, &ra, 0, a), ki_storage_put(out, &rb, 0, b);
            ki_agree(out, 1, &rb, &ra, &bound, 0, &r);
            ok = r.wrong == 0;
            if (!ok) {
                printf("# %s %s: (%.9g +- %.3g, %.9g +- %.3g) = %.9g +- %.3g, but (%.9g, %.9g) gives %.9g\n",
                       ki_ops[op].name, ki_dtypes[t].name, ki_f64_from_bits(in[0], v[0]), e[0],
                       n > 1 ? ki_f64_from_bits(in[1], v[1]) : 0, n > 1 ? e[1] : 0, r.want, bound,
                       ki_f64_from_bits(in[0], w[0]), n > 1 ? ki_f64_from_bits(in[1], w[1]) : 0, r.got);
            }
        }
    }
    bool tiny = ki_dtypes[t].bits == 8;
    CHECK(ok && (tiny || exempt < 2700), "bound of %s on %s holds (%u of 3000 exempt)", ki_ops[op].name,
          ki_dtypes[t].name, exempt);
}

static bool is_function(kn_op op) {
    return op == KN_EXP || op == KN_EXP2 || op == KN_LOG || op == KN_LOG2 || op == KN_SIN || op == KN_COS ||
           op == KN_TAN || op == KN_TANH || op == KN_ERF || op == KN_POW;
}

/* Functions of small floats: computed in f32, 1.5 ulps (tan, pow 2.2) off, and rounded once. */
static void narrow(kn_op op, kn_dtype t) {
    unsigned n = (unsigned)ki_ops[op].least, certain = 0;
    kn_dtype in[3] = {t, t, t};
    bool ok = true;
    for (int i = 0; i < 3000 && ok; i++) {
        uint64_t v[2], a;
        const uint64_t *src[2] = {&v[0], &v[1]};
        const double *none[2] = {NULL, NULL};
        double bound, x[2];
        ki_apply s, d;
        for (unsigned k = 0; k < 2; k++) v[k] = random_bits(t), x[k] = ki_f64_from_bits(t, v[k]);
        if (!ki_apply_init(&s, op, t, in, n) || !ki_apply_run(&s, 1, src, &a)) continue;
        ki_bound_run(&s, 1, src, none, &a, &bound);
        certain += ki_certain(bound);
        uint64_t wide[2], w; /* the function in double, off by as much as f32 may be */
        const uint64_t *from[2] = {&wide[0], &wide[1]};
        kn_dtype f64[3] = {KN_F64, KN_F64, KN_F64};
        for (unsigned k = 0; k < 2; k++) memcpy(&wide[k], &x[k], sizeof x[k]);
        if (!ki_apply_init(&d, op, KN_F64, f64, n) || !ki_apply_run(&d, 1, from, &w)) continue;
        double f = ki_f64_from_bits(KN_F64, w);
        for (int j = -1; j <= 1 && ok; j++) {
            double off = j * ki_ulp(KN_F32, f) * (op == KN_TAN || op == KN_POW ? 2.1 : 1.4);
            uint64_t got = 0, want = 0;
            ki_agreement r;
            ki_storage_put(t, &got, 0, ki_bits_from_f64(t, isfinite(f) ? f + off : f)), ki_storage_put(t, &want, 0, a);
            ki_agree(t, 1, &got, &want, &bound, 0, &r);
            ok = r.wrong == 0;
            if (!ok)
                printf("# %s(%.9g, %.9g) = %.9g +- %.3g, not %.9g\n", ki_ops[op].name, x[0], x[1], r.want, bound,
                       r.got);
        }
    }
    CHECK(ok && certain > 2000, "%s of %s through f32 is inside the bound (%u of 3000 certain)", ki_ops[op].name,
          ki_dtypes[t].name, certain);
}

/* Sums and products by random trees, products contracted or not. */
static double rounded(kn_dtype t, double v) { return ki_f64_from_bits(t, ki_bits_from_f64(t, v)); }
static double tree(kn_op op, kn_dtype t, double *x, int n) {
    for (; n > 1; n--) {
        int a = (int)(next() % (unsigned)n), b = (int)(next() % (unsigned)(n - 1));
        if (b >= a) b++;
        double r = rounded(t, op == KN_ADD                 ? x[a] + x[b]
                              : op == KN_MUL               ? x[a] * x[b]
                              : isnan(x[a]) || isnan(x[b]) ? NAN
                                                           : fmax(x[a], x[b]));
        int lo = a < b ? a : b, hi = a < b ? b : a;
        x[lo] = r;
        x[hi] = x[n - 1];
    }
    return x[0];
}
/* What is far from 1: infinite, nothing, near what the format holds. */
static double any_special(kn_dtype t) {
    double big = ki_float_max(t), small = ki_ulp(t, 0);
    double v[] = {INFINITY, NAN, 0, big, -big, rounded(t, big / 64), small, -small, rounded(t, small * 8), -INFINITY};
    return rounded(t, v[next() % (ki_dtypes[t].bits == 64 ? 6 : 10)]);
}
static void trees(kn_op op, kn_dtype t) {
    bool ok = true;
    int exact = 0, exempt = 0;
    for (int i = 0; i < 2000 && ok; i++) {
        int n = 1 + (int)(next() % 12), whole = (int)(next() % 2), special = next() % 4 == 0;
        double x[12], y[12], e[12];
        ki_bound_acc acc;
        double f = op == KN_MUL ? 1 : op == KN_ADD ? -0.0 : -INFINITY;
        ki_bound_acc_start(&acc, op, t, 1);
        for (int k = 0; k < n; k++) {
            x[k] = rounded(t, whole ? (double)(next() % 3) : (unit() - 0.5) * 6);
            if (special && next() % 4 == 0) x[k] = any_special(t);
            e[k] = whole || next() % 2 || !isfinite(x[k]) ? 0 : ki_ulp(t, x[k]) * (double)(next() % 4);
            if (fabs(x[k]) == ki_float_max(t)) e[k] = 0;
            ki_bound_acc_add(&acc, ki_bits_from_f64(t, x[k]), e[k]);
            f = op == KN_ADD ? f + x[k] : op == KN_MUL ? f * x[k] : isnan(f) || isnan(x[k]) ? NAN : fmax(f, x[k]);
        }
        uint64_t v = ki_bits_from_f64(t, f);
        double bound = ki_bound_acc_end(&acc, v), want = ki_f64_from_bits(t, v);
        exact += bound == 0;
        exempt += bound == INFINITY;
        for (int j = 0; j < 10 && ok && bound != INFINITY; j++) {
            for (int k = 0; k < n; k++) y[k] = ki_f64_from_bits(t, moved(t, x[k], e[k]));
            double got = tree(op, t, y, n);
            ok = isnan(want) ? isnan(got) : got == want || (bound > 0 && fabs(got - want) <= bound);
            if (!ok)
                printf("# %s of %d %s: %.9g, a tree gives %.9g, bound %.3g\n", ki_ops[op].name, n, ki_dtypes[t].name,
                       want, got, bound);
        }
    }
    CHECK(ok && exact, "reduce %s of %s: any tree is inside the bound (%d exact, %d exempt of 2000)", ki_ops[op].name,
          ki_dtypes[t].name, exact, exempt);
}

/* Sums of sums, added up as one, the large terms first: what follows is rounded to their spacing each time. Sums that are exact are taken for exact as
 * one, too, which they need not be (eval_bound.c). */
static void sums_of_sums(kn_dtype t) {
    bool ok = true;
    double most = 0;
    for (int i = 0; i < 2000 && ok; i++) {
        enum { ROWS = 5, N = 13 };
        int rows = 2 + (int)(next() % (ROWS - 1)), n = 2 + (int)(next() % (N - 1)), few = 1 + (int)(next() % 4);
        double small = rounded(t, unit() * 16 * ki_roundoff(t)), sum = 0, got = 0, all[ROWS * N];
        ki_bound_acc whole, row;
        ki_bound_acc_start(&whole, KN_ADD, t, n);
        for (int r = 0; r < rows; r++) {
            double part = 0;
            ki_bound_acc_start(&row, KN_ADD, t, 1);
            for (int k = 0; k < n; k++) {
                double x = all[r * n + k] = (int)(next() % 12) < few ? -1 : small;
                ki_bound_acc_add(&row, ki_bits_from_f64(t, x), 0);
                part += x;
            }
            uint64_t v = ki_bits_from_f64(t, part);
            ki_bound_acc_add(&whole, v, ki_bound_acc_end(&row, v));
            sum += ki_f64_from_bits(t, v);
        }
        uint64_t v = ki_bits_from_f64(t, sum);
        double bound = ki_bound_acc_end(&whole, v), want = ki_f64_from_bits(t, v);
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < rows * n; k++)
                if ((all[k] == -1) == !pass) got = rounded(t, got + all[k]);
        ok = got == want || bound == 0 || fabs(got - want) <= bound;
        if (bound > 0 && fabs(got - want) / bound > most) most = fabs(got - want) / bound;
        if (!ok) printf("# %d sums of %d: %.9g, as one %.9g, bound %.3g\n", rows, n, want, got, bound);
    }
    CHECK(ok && most > 0.1, "sums of sums of %s, added up as one, are inside the bound (up to %.2f of it)",
          ki_dtypes[t].name, most);
}

static void agreement(void) {
    float got[4] = {1, 2, NAN, 0}, want[4] = {1, 2.5f, NAN, -0.0f};
    double bound[4] = {0, 1, 0, 1};
    ki_agreement r;
    CHECK(ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.worst == 0.5,
          "agree: inside its bound, NaN for NaN, -0 where uncertain");
    bound[1] = 0.25;
    CHECK(!ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.first == 1 && r.wrong == 1 && r.got == 2 && r.want == 2.5,
          "agree: outside its bound");
    bound[1] = INFINITY;
    CHECK(!ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.wrong == 0 && r.exempt == 1,
          "agree: more than 1 %% exempt");
    bound[1] = 1, bound[3] = 0;
    CHECK(!ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.first == 3, "agree: a certain -0 is not +0");
    bound[3] = 1, want[2] = INFINITY;
    CHECK(!ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.first == 2, "agree: NaN is not infinity");
    want[2] = NAN, want[0] = nextafterf(1, 2), bound[0] = KI_ROUNDED;
    CHECK(!ki_agree(KN_F32, 4, got, want, bound, 0, &r) && r.first == 0 && ki_agree(KN_F32, 4, got, want, bound, 1, &r),
          "agree: slack in ulps for what was rounded");
    int32_t gi[2] = {1, 2}, wi[2] = {1, 3};
    CHECK(!ki_agree(KN_I32, 2, gi, wi, NULL, 0, &r) && r.first == 1, "agree: integers are certain");
}

static lab L;
static void programs(void) {
    L.bounds = true;
    lab_iota(&L, 0, 1);
#define T "koine 1 tensor\n"
    static const char *exact =
        T "%x = param \"x\" : f32 [4]\n%a = mul %x 3.0\n%y = reduce add %a axes=(0)\nout \"y\" = %y\n";
    CHECK(lab_parse(&L, exact) && lab_run(&L) && L.bound[0][0] == 0, "small whole numbers stay exact through a sum");
    lab_close(&L);
    CHECK(lab_parse(&L, T "%x = param \"x\" : f32 [4]\n%y = mul %x 0.1\nout \"y\" = %y\n") && lab_run(&L) &&
              L.bound[0][1] == 0 && L.bound[0][3] == KI_ROUNDED,
          "a rounded product is certain, not exact");
    lab_close(&L);
    CHECK(
        lab_parse(&L, T "%x = param \"x\" : f32 [4]\n%a = mul %x 0.1\n%y = reduce add %a axes=(0)\nout \"y\" = %y\n") &&
            lab_run(&L) && L.bound[0][0] > 1e-8 && L.bound[0][0] < 1e-6,
        "a sum of rounded products has a bound");
    lab_close(&L);
    CHECK(lab_parse(
              &L, T
              "%x = param \"x\" : f32 [4]\n%a = exp %x\n%b = lt %a 2.7182817\n%y = cast %b : i32\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][0] == 0 && L.bound[0][1] == INFINITY && L.bound[0][2] == 0,
          "a comparison inside its bound is exempt");
    lab_close(&L);
    CHECK(lab_parse(&L,
                    T "%x = param \"x\" : f32 [4]\n%a = exp %x\n%c = cast %a : i32\n%y = mul %c 0\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][0] == 0,
          "what is exempt and does not matter is certain again");
    lab_close(&L);
    CHECK(lab_parse(&L, T "%x = param \"x\" : f32 [2, 2]\n%a = exp %x\n%p = permute %a order=(1, 0)\n%q = pad %p (0, "
                          "1) (2, 3)\n%y = flip %q axes=(1)\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][2] == 0 && L.bound[0][0] > L.bound[0][1] && L.bound[0][4] > 0,
          "bounds follow their elements through views");
    lab_close(&L);
    /* What dot products of bf16 count as zero: 0x0040 is 2^-127. */
    CHECK(lab_parse(&L, T "%x = param \"x\" : f32 [4]\n%b = const 64:u16\n%c = bitcast %b : bf16\n%d = cast %c : f32\n"
                          "%y = mul %x %d\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][0] <= 0x1p-149 && L.bound[0][1] >= 0x1p-127 && L.bound[0][1] < 0x1.1p-127,
          "a subnormal bf16, widened, may be zero");
    lab_close(&L);
    CHECK(lab_parse(&L,
                    T "%x = param \"x\" : f32 [4]\n%m = mul %x 1e-40\n%y = reduce add %m axes=(0)\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][0] >= 0x1p-126 && L.bound[0][0] < 0x1p-123,
          "so may what is subnormal in a sum");
    lab_close(&L);
    /* fma(1e-30, -1e-30, 0.0) is -0.0; 1e-30 * -1e-30 + 0.0 is 0.0. */
    CHECK(lab_parse(&L, T "%x = param \"x\" : f32 [2]\n%a = mul %x 1e-30\n%b = mul %x -1e-30\n%m = mul %a %b\n"
                          "%y = reduce add %m axes=(0)\nout \"y\" = %y\n") &&
              lab_run(&L) && L.bound[0][0] >= 0x1p-149 && L.bound[0][0] < 0x1p-140,
          "the sign of a sum of one product that underflowed is open");
    lab_close(&L);
}

/* What rounding takes off a number near the least is no number, so it cannot be looked at. */
static void small(void) {
    static const struct {
        kn_op op;
        double x, y;
        bool exact;
    } of[] = {{KN_MUL, 0x1.000001p-1040, 0x1.8p-30, false},
              {KN_MUL, 0x1p-600, 0x1p-600, false},
              {KN_MUL, 0x1.8p-20, 0x1.8p-20, true},
              {KN_MUL, 0, 0x1p-1060, true},
              {KN_DIV, 0x1.8p-1070, 3, false},
              {KN_DIV, 0x1.8p-20, 3, true},
              {KN_SQRT, 0x1p-1073, 0, false},
              {KN_SQRT, 0x1p-20, 0, true}};
    kn_dtype in[3] = {KN_F64, KN_F64, KN_F64};
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
        uint64_t v[2] = {ki_bits_from_f64(KN_F64, of[i].x), ki_bits_from_f64(KN_F64, of[i].y)}, r;
        const uint64_t *src[2] = {&v[0], &v[1]};
        const double *none[2] = {NULL, NULL};
        double bound = -1;
        ki_apply a;
        bool ran =
            ki_apply_init(&a, of[i].op, KN_F64, in, (unsigned)ki_ops[of[i].op].least) && ki_apply_run(&a, 1, src, &r);
        if (ran) ki_bound_run(&a, 1, src, none, &r, &bound);
        CHECK(bound == (of[i].exact ? 0 : KI_ROUNDED), "%s(%g, %g): bound %g", ki_ops[of[i].op].name, of[i].x, of[i].y,
              bound);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) seed ^= strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15u;
    loops();
    agreement();
    for (int op = 0; op < KI_OP_COUNT; op++)
        for (int k = 0; k < NFLOATS; k++)
            if (ki_is_elementwise((kn_op)op) && !(ki_ops[op].flags & KI_INT)) trials((kn_op)op, floats[k]);
    for (int k = 0; k < NFLOATS; k++) {
        for (int op = 0; op < KI_OP_COUNT && ki_dtypes[floats[k]].bits < 32; op++)
            if (ki_is_elementwise((kn_op)op) && is_function((kn_op)op)) narrow((kn_op)op, floats[k]);
        trees(KN_ADD, floats[k]);
        sums_of_sums(floats[k]);
        trees(KN_MUL, floats[k]);
        trees(KN_MAX, floats[k]);
    }
    programs();
    small();
    return tap_done();
}
