/* eval_bound.c: how far another right program's value may lie from the interpreter's: the stated bound of each op
 * (DESIGN 10.12). What the numbers mean stands in eval_apply.h; this is the table:
 *
 *   op                              inputs certain              inputs uncertain (by ea, eb), plus an ulp of the result
 *   integer, bool, and bit ops      exact                       exempt, unless no operand within reach changes the result
 *   + - * / recip sqrt mulacc cast  exact or ROUNDED            first-order propagation, division over the interval
 *   trunc max neg where             as the operand              difference over the interval
 *   exp exp2 log log2 tanh erf      1.5u of the result, f64 3u  the same over [x - e, x + e], monotone
 *   sin cos                         1.5u of the result, f64 3u  min(e, 2) more
 *   tan pow                         2.2u, f64 3u                 over the interval; exempt across a pole
 *   compare, float to integer       exact                       exempt where the answer changes inside the bound
 *   ADD of n nonzero terms          0 if every partial sum of every tree is exact, else n + 2 roundoffs of the sum of |x|
 *                                   of n sums of m terms each the same of n m terms, and n times their bounds: a program may
 *                                   add all up as one (what is exact so is taken for exact as one: its terms are not known)
 *                                   f32: the least normal number for each term, if one has bits below it (*)
 *   cast of bf16 to f32             (*) a subnormal number: itself
 *   MUL of n terms                  2n roundoffs of the product, and what may underflow on the way; exempt if some tree
 *                                   may overflow
 *   MAX                             the largest bound
 * u is the spacing (ulp) of the result's dtype, and of f32 in functions of the smaller floats: these are computed there and
 * rounded once, so they are certain but where two results lie that near. A finite value that may reach the largest finite
 * one is exempt, so that an infinity or NaN with a finite bound is certain; it is exact unless a product of finite
 * values overflowed, which a contraction would not have done.
 * (*) A sum of products of bf16 may go by dot products (3_optimize/dots.c), whose instruction counts what is subnormal as 0. */
#include "ir/eval_apply.h"
#include "ir/scalar.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- facts of the formats ------------------------------------------------------------------------------------ */

static int digits(kn_dtype t) { /* significant bits, the hidden one counted */
    switch (t) {
    case KN_F64: return 53;
    case KN_F32: return 24;
    case KN_F16: return 11;
    case KN_BF16: return 8;
    case KN_F8E4M3: return 4;
    default: return 3;
    }
}
static int least_exponent(kn_dtype t) {
    switch (t) {
    case KN_F64: return -1022;
    case KN_F32:
    case KN_BF16: return -126;
    case KN_F8E4M3: return -6;
    default: return -14; /* f16, f8e5m2 */
    }
}
double ki_float_max(kn_dtype t) {
    switch (t) {
    case KN_F64: return DBL_MAX;
    case KN_F32: return (double)FLT_MAX;
    case KN_F16: return 65504;
    case KN_BF16: return 0x1.fep127;
    case KN_F8E4M3: return 448;
    default: return 57344;
    }
}
double ki_roundoff(kn_dtype t) { return ldexp(1, -digits(t)); }

double ki_ulp(kn_dtype t, double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    int e = (int)(b >> 52 & 0x7ff) - 1023;
    if (e < least_exponent(t)) e = least_exponent(t);
    e -= digits(t) - 1;
    if (e < -1060) e = -1060; /* stays apart from KI_ROUNDED */
    if (e < -1022) return ldexp(1, e);
    b = (uint64_t)(e + 1023) << 52;
    memcpy(&v, &b, sizeof v);
    return v;
}

/* ---- exactness ----------------------------------------------------------------------------------------------- */

static bool sum_exact(double a, double b, double s) {
    double t = a + b, z = t - a, e = (a - (t - z)) + (b - z);
    return t == s && e == 0;
}
/* Is v a b? Of what is less than this the rest of the product may be less than any number: it is taken for rounded. */
static bool product_exact(double a, double b, double v) {
    return v == 0 ? a == 0 || b == 0 : fabs(v) >= 0x1p-960 && fma(a, b, -v) == 0;
}

static bool rounded_nothing(kn_op op, kn_dtype t, const double *x, double v) {
    switch (op) {
    case KN_ADD: return sum_exact(x[0], x[1], v);
    case KN_SUB: return sum_exact(x[0], -x[1], v);
    case KN_MUL: return product_exact(x[0], x[1], v);
    case KN_DIV: return product_exact(v, x[1], x[0]) && isfinite(x[1]);
    case KN_RECIP: return fma(v, x[0], -1) == 0;
    case KN_SQRT: return product_exact(v, v, x[0]);
    case KN_MULACC: return product_exact(x[0], x[1], x[0] * x[1]) && sum_exact(x[0] * x[1], x[2], v);
    default: return (void)t, false;
    }
}

/* ---- floats from floats -------------------------------------------------------------------------------------- */

/* A bound, once the value is known: near the largest finite value nothing is. */
static double finish(kn_dtype t, double v, double e) {
    if (isnan(e)) return INFINITY;
    if (isfinite(v) && fabs(v) + e >= ki_float_max(t))
        return fabs(v) == ki_float_max(t) && ki_certain(e) ? e : INFINITY;
    return e;
}
/* Difference over an interval of the argument, the function monotone on it; NaN if the ends are of another kind. */
static double spread(double lo, double mid, double hi) {
    if (isnan(mid)) return isnan(lo) && isnan(hi) ? 0 : INFINITY;
    if (!isfinite(mid)) return lo == mid && hi == mid ? 0 : INFINITY;
    double a = fabs(lo - mid), b = fabs(hi - mid);
    return isnan(a) || isnan(b) ? INFINITY : a > b ? a : b;
}
static double call(kn_op op, double x) {
    switch (op) {
    case KN_EXP2: return exp2(x);
    case KN_LOG2: return log2(x);
    case KN_SIN: return sin(x);
    case KN_EXP: return exp(x);
    case KN_LOG: return log(x);
    case KN_COS: return cos(x);
    case KN_TAN: return tan(x);
    case KN_TANH: return tanh(x);
    case KN_ERF: return erf(x);
    default: return sqrt(x);
    }
}

/* A function's result v = round(d) in t, where d is known to `more` before its own error of n ulps. */
static kn_dtype computed_in(kn_dtype t) { return t == KN_F64 ? t : KN_F32; }
static double end_function(kn_dtype t, double d, double v, double more, double n) {
    kn_dtype c = computed_in(t);
    more += n * ki_ulp(c, fabs(d) + more);
    if (t == c || !isfinite(more)) return finish(t, v, more);
    double r = spread(ki_f64_from_bits(t, ki_bits_from_f64(t, d - more)), v,
                      ki_f64_from_bits(t, ki_bits_from_f64(t, d + more)));
    return r == 0 && v != 0 ? KI_ROUNDED : finish(t, v, r + (v == 0 ? ki_ulp(t, 0) : 0));
}

/* What select's functions keep to (docs/accuracy.md), and the error of the value here: half an ulp of f32, one of f64;
 * libm's functions of f64, called where they are faster, keep to 2 ulps. */
static double ulps(kn_op op, kn_dtype t) { return t == KN_F64 ? 3 : op == KN_TAN || op == KN_POW ? 2.2 : 1.5; }

static double bound_function(kn_op op, kn_dtype t, double x, double e, double v) {
    double d = call(op, x), more = 0;
    if (!ki_certain(e)) {
        if (op == KN_SIN || op == KN_COS) more = isfinite(x) ? fmin(e, 2) : INFINITY;
        else more = spread(call(op, x - e), d, call(op, x + e));
        if (op == KN_TAN && (e >= M_PI_2 || call(op, x - e) > d || call(op, x + e) < d)) return INFINITY;
    }
    if (!isfinite(v)) {
        bool edge = isfinite(d) && fabs(d) <= ki_float_max(t) * (1 + 32 * ki_roundoff(t));
        return edge || more > 0 ? INFINITY : 0;
    }
    return end_function(t, d, v, more, ulps(op, computed_in(t)));
}

static double bound_pow(kn_dtype t, const double *x, const double *e, double v) {
    double more = 0;
    if (!ki_certain(e[0]) || !ki_certain(e[1])) {
        double a = x[0], b = x[1], ea = e[0], eb = e[1];
        if (a - ea > 0) { /* monotone in each argument: the corners bound it */
            double p = spread(pow(a - ea, b - eb), pow(a, b), pow(a + ea, b + eb));
            double q = spread(pow(a - ea, b + eb), pow(a, b), pow(a + ea, b - eb));
            more = p > q ? p : q;
        } else if (ki_certain(eb) && b == trunc(b) && b >= 0) {
            more = pow(fabs(a) + ea, b) + fabs(v);
        } else {
            return INFINITY;
        }
    }
    double d = pow(x[0], x[1]);
    if (!isfinite(v)) {
        bool edge = isfinite(d) && fabs(d) <= ki_float_max(t) * (1 + 64 * ki_roundoff(t));
        return edge || more > 0 ? INFINITY : 0;
    }
    return end_function(t, d, v, more, ulps(KN_POW, computed_in(t)));
}

static double bound_max(const double *x, const double *e) {
    if (isnan(x[0]) || isnan(x[1])) return e[0] > e[1] ? e[0] : e[1];
    if (x[0] - e[0] > x[1] + e[1]) return e[0];
    if (x[1] - e[1] > x[0] + e[0]) return e[1];
    return e[0] > e[1] ? e[0] : e[1];
}

/* An operand that is infinite or NaN is certain; does it alone decide a result that is infinite or NaN? */
static bool decided(kn_op op, const double *x, const double *e) {
    switch (op) {
    case KN_MUL:
    case KN_MULACC:
        for (int k = 0; k < 2; k++)
            if (!isfinite(x[k]) && !isnan(x[k]) && fabs(x[1 - k]) <= e[1 - k]) return false; /* inf * (0 or not 0) */
        return true;
    case KN_DIV: return fabs(x[1]) > e[1] || isnan(x[0]) || isnan(x[1]);
    default: return true;
    }
}

/* Propagation alone, all operands finite. */
static double propagated(kn_op op, const double *x, const double *e) {
    switch (op) {
    case KN_ADD:
    case KN_SUB: return e[0] + e[1];
    case KN_MULACC:
    case KN_MUL: return fabs(x[0]) * e[1] + fabs(x[1]) * e[0] + e[0] * e[1] + (op == KN_MULACC ? e[2] : 0);
    case KN_DIV: return fabs(x[1]) > e[1] ? (e[0] + fabs(x[0] / x[1]) * e[1]) / (fabs(x[1]) - e[1]) : INFINITY;
    case KN_RECIP: return fabs(x[0]) > e[0] ? fabs(1 / x[0]) * e[0] / (fabs(x[0]) - e[0]) : INFINITY;
    case KN_SQRT: return spread(sqrt(x[0] - e[0]), sqrt(x[0]), sqrt(x[0] + e[0]));
    default: return INFINITY;
    }
}

/* Bound of an infinity or NaN: that of the infinities and NaNs it was made of. */
static double certain_end(unsigned n, const double *x, const double *e) {
    double worst = 0;
    for (unsigned k = 0; k < n; k++)
        if (!isfinite(x[k]) && e[k] > worst) worst = e[k];
    return worst;
}

/* Correctly rounded operations. */
static double bound_rounded(kn_op op, kn_dtype t, unsigned n, const double *x, const double *e, double v) {
    bool certain = true, finite = true, exact = true;
    for (unsigned k = 0; k < n; k++) {
        certain &= ki_certain(e[k]);
        exact &= e[k] == 0;
        finite &= isfinite(x[k]) != 0;
    }
    if (certain && !isfinite(v)) return finite && (op == KN_MUL || op == KN_MULACC) ? KI_ROUNDED : certain_end(n, x, e);
    if (certain) return exact && rounded_nothing(op, t, x, v) ? 0 : KI_ROUNDED;
    if (!finite) return decided(op, x, e) ? (isfinite(v) ? ki_ulp(t, v) : KI_ROUNDED) : INFINITY;
    if (!isfinite(v) && !(op == KN_SQRT && isnan(v))) return INFINITY;
    double more = propagated(op, x, e);
    if (isnan(v)) return more == 0 ? KI_ROUNDED : INFINITY;
    return finish(t, v, more + ki_ulp(t, fabs(v) + (isfinite(more) ? more : 0)));
}

static double bound_trunc(kn_dtype t, double x, double e, double v) {
    if (ki_certain(e) || !isfinite(x)) return e;
    double more = spread(trunc(x - e), v, trunc(x + e));
    if (more == 0 && v == 0 && fabs(x) <= e) return ki_ulp(t, 0); /* the sign of the zero */
    return more == 0 ? KI_ROUNDED : more;
}

/* ---- one element --------------------------------------------------------------------------------------------- */

static bool any_unknown(unsigned n, const double *e) {
    for (unsigned k = 0; k < n; k++)
        if (e[k] == INFINITY) return true;
    return false;
}

/* Operands float, result bool. */
static double bound_compare(const double *x, const double *e) {
    if (ki_certain(e[0]) && ki_certain(e[1])) return 0;
    if (isnan(x[0]) || isnan(x[1]) || x[0] == INFINITY || x[1] == INFINITY || x[0] == -INFINITY || x[1] == -INFINITY)
        return any_unknown(2, e) ? INFINITY : 0;
    return fabs(x[0] - x[1]) > e[0] + e[1] ? 0 : INFINITY;
}

static double bound_cast(const ki_apply *s, uint64_t in, double e, uint64_t out) {
    kn_dtype from = (kn_dtype)s->in[0], to = (kn_dtype)s->out;
    if (to == from) return e;
    if (!ki_is_float(from)) {
        uint64_t back;
        if (e != 0 || !ki_is_float(to)) return e;
        double v = ki_f64_from_bits(to, out);
        bool same = isfinite(v) && ki_scalar_cast(from, to, out, &back) && back == in && fabs(v) < 0x1p63;
        return same ? 0 : KI_ROUNDED;
    }
    double x = ki_f64_from_bits(from, in);
    if (ki_is_float(to)) {
        double v = ki_f64_from_bits(to, out);
        if (from == KN_BF16 && to == KN_F32 && x != 0 && fabs(x) < 0x1p-126) return fabs(x) + e;
        if (ki_certain(e)) return e == 0 && v == x ? 0 : KI_ROUNDED;
        if (!isfinite(v)) return isfinite(x) ? INFINITY : e;
        return finish(to, v, e + ki_ulp(to, fabs(v) + (isfinite(e) ? e : 0)));
    }
    if (ki_certain(e)) return 0;
    if (to == KN_BOOL) return isnan(x) || fabs(x) > e ? 0 : INFINITY;
    return ki_bits_from_f64(to, x - e) == ki_bits_from_f64(to, x + e) && !isnan(x) ? 0 : INFINITY;
}

/* All integers or bools, some operand unknown: certain only where a known one decides. */
static double bound_int(const ki_apply *s, const uint64_t *v, const double *e) {
    bool is_bool = s->in[0] == KN_BOOL;
    for (unsigned k = 0; k < s->nsrc && k < 2; k++) {
        if (e[k] != 0) continue;
        bool zero = v[k] == 0, one = is_bool && v[k] == 1;
        if (zero && (s->op == KN_MUL || s->op == KN_AND)) return 0;
        if (one && (s->op == KN_ADD || s->op == KN_OR || s->op == KN_MAX)) return 0;
    }
    return INFINITY;
}

static double bound_where(const ki_apply *s, const uint64_t *v, const double *e) {
    if (e[0] == 0) return v[0] ? e[1] : e[2];
    double worst = e[1] > e[2] ? e[1] : e[2];
    if (v[1] == v[2]) return worst;
    kn_dtype t = (kn_dtype)s->out;
    if (!ki_is_float(t)) return INFINITY;
    double a = ki_f64_from_bits(t, v[1]), b = ki_f64_from_bits(t, v[2]);
    return isfinite(a) && isfinite(b) ? fabs(a - b) + worst + ki_ulp(t, 0) : INFINITY;
}

static double bound_float(const ki_apply *s, const uint64_t *in, const double *e, uint64_t out) {
    kn_dtype t = (kn_dtype)s->in[0];
    double x[3] = {0}, v;
    for (unsigned k = 0; k < s->nsrc; k++) x[k] = ki_f64_from_bits(t, in[k]);
    switch ((kn_op)s->op) {
    case KN_CMPLT:
    case KN_CMPGT:
    case KN_CMPGE:
    case KN_CMPLE:
    case KN_CMPEQ:
    case KN_CMPNE: return bound_compare(x, e);
    case KN_NEG: return e[0];
    default: break;
    }
    if (any_unknown(s->nsrc, e)) return INFINITY;
    v = ki_f64_from_bits(t, out);
    switch ((kn_op)s->op) {
    case KN_MAX: return bound_max(x, e);
    case KN_TRUNC: return bound_trunc(t, x[0], e[0], v);
    case KN_POW: return bound_pow(t, x, e, v);
    case KN_ADD:
    case KN_SUB:
    case KN_MUL:
    case KN_DIV:
    case KN_RECIP:
    case KN_SQRT:
    case KN_MULACC: return bound_rounded((kn_op)s->op, t, s->nsrc, x, e, v);
    default: return bound_function((kn_op)s->op, t, x[0], e[0], v);
    }
}

/* A NaN's payload is free, so its bits are not known. */
static bool is_nan(kn_dtype t, uint64_t bits) { return ki_is_float(t) && isnan(ki_f64_from_bits(t, bits)); }

void ki_bound_run(const ki_apply *s, size_t n, const uint64_t *const *src, const double *const *err,
                  const uint64_t *dst, double *out) {
    bool floats = ki_is_float((kn_dtype)s->in[0]), known = true;
    for (unsigned k = 0; k < s->nsrc; k++) known &= err[k] == NULL;
    if (known && !floats && !(s->op == KN_CAST && ki_is_float((kn_dtype)s->out))) {
        memset(out, 0, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v[3] = {0};
        double e[3] = {0};
        bool exact = true;
        for (unsigned k = 0; k < s->nsrc; k++) {
            v[k] = src[k][i * s->stride[k]];
            if (err[k]) e[k] = err[k][i * s->stride[k]];
            exact &= e[k] == 0;
        }
        if (s->op == KN_WHERE) out[i] = bound_where(s, v, e);
        else if (s->op == KN_CAST) out[i] = bound_cast(s, v[0], e[0], dst[i]);
        else if (s->op == KN_BITCAST) out[i] = ki_certain(e[0]) && !is_nan((kn_dtype)s->in[0], v[0]) ? 0 : INFINITY;
        else if (floats) out[i] = bound_float(s, v, e, dst[i]);
        else out[i] = exact ? 0 : bound_int(s, v, e);
    }
}

/* ---- reductions ---------------------------------------------------------------------------------------------- */

void ki_bound_acc_start(ki_bound_acc *a, kn_op op, kn_dtype t, double each) {
    memset(a, 0, sizeof *a);
    a->op = (uint8_t)op;
    a->dtype = (uint8_t)t;
    a->exact = true;
    a->each = each;
    a->low = 4096;
    if (op == KN_MUL) a->abs = a->err = a->big = a->small = 1;
}

/* Exponent of the lowest bit set and count of significant bits, of a finite nonzero double. */
static int lowest_bit(double x, int *bits) {
    int e;
    uint64_t m = (uint64_t)ldexp(fabs(frexp(x, &e)), 53);
    int z = ki_ctz64(m);
    *bits = 53 - z;
    return e - 53 + z;
}

void ki_bound_acc_add(ki_bound_acc *a, uint64_t v, double err) {
    kn_dtype t = (kn_dtype)a->dtype;
    if (err == INFINITY) a->unknown = true;
    if (err != 0) a->exact = false;
    if (a->unknown || !ki_is_float(t)) return;
    double x = ki_f64_from_bits(t, v), m = fabs(x);
    if (a->op == KN_MAX) {
        if (err > a->err) a->err = err;
        return;
    }
    if (!isfinite(x)) {
        a->infinite = true;
        a->over |= !isnan(x) && err != 0;
        a->nan |= isnan(x);
        return;
    }
    int bits;
    if (a->op == KN_ADD) {
        if (x == 0 && err == 0) return;
        a->count++;
        a->abs += m;
        a->err += err;
        if (x != 0) {
            int low = lowest_bit(x, &bits);
            if (low < a->low) a->low = low;
        }
        return;
    }
    a->count++;
    a->abs *= m;
    a->err *= m + err;
    if (m + err > 1) a->big *= m + err;
    if (m - err <= 0) {
        if (err == 0) a->zero = true;
        else a->small = 0;
    } else if (m - err < 1) {
        a->small *= m - err;
    }
    if (x != 0) lowest_bit(x, &bits), a->bits += bits > 1 ? bits : 0;
}

static double end_add(const ki_bound_acc *a, double v) {
    kn_dtype t = (kn_dtype)a->dtype;
    double n = (double)a->count;
    if (a->nan) return 0;
    if (a->infinite) return a->over || a->abs + a->err > ki_float_max(t) ? INFINITY : 0;
    if (!isfinite(v)) return INFINITY;
    double flushed = t == KN_F32 && a->low < -126 ? n * 0x1p-126 : 0;
    bool fits = a->abs < ldexp(1, digits(t) + (a->low > 2000 ? 0 : a->low)) && a->abs <= ki_float_max(t);
    if (flushed == 0 && a->exact && (a->count <= 1 || fits)) return 0;
    /* One term beside zeros: what a product underflowed to, of which contraction keeps the sign that + 0.0 takes. */
    double sign = a->count && v == 0 ? ki_ulp(t, 0) : 0;
    if (a->count <= 1) return finish(t, v, a->err + flushed + sign);
    /* n - 1 sums, and the products where these are contracted; the interpreter's own sum in double. What a sum among the terms has lost each of them may
     * lose, where all are added up as one. */
    double err = a->each > 1 ? n * a->err : a->err, all = n * a->each, own = t == KN_F64 ? all : 3,
           slack = (all + own) * ki_roundoff(t) * (a->abs + err) + all * ki_ulp(t, 0) + flushed;
    if (a->abs + err + slack >= ki_float_max(t)) return INFINITY;
    return err + slack;
}

static double end_mul(const ki_bound_acc *a, double v) {
    kn_dtype t = (kn_dtype)a->dtype;
    double n = (double)a->count;
    double least = ldexp(1, least_exponent(t));
    if (a->nan) return 0;
    if (a->infinite) return a->zero || a->small < least || a->over ? INFINITY : 0;
    if (!isfinite(v) || a->big >= ki_float_max(t) / 2) return INFINITY;
    if (a->zero) return a->exact ? 0 : ki_ulp(t, 0); /* no infinity can meet it; its sign may be open */
    if (a->exact && a->bits <= digits(t) && a->small >= ldexp(1, least_exponent(t) + digits(t))) return 0;
    if (a->count <= 1) return finish(t, v, a->err - a->abs);
    double lost = a->small < least ? 2 * n * a->big * ki_ulp(t, 0) : 0; /* each underflow, times all that follows */
    return finish(t, v,
                  a->err - a->abs + 2 * n * ki_roundoff(t) * a->err * (1 + n * ki_roundoff(t)) + ki_ulp(t, v) + lost);
}

double ki_bound_acc_end(const ki_bound_acc *a, uint64_t result) {
    if (a->unknown) return INFINITY;
    if (!ki_is_float((kn_dtype)a->dtype)) return a->exact ? 0 : INFINITY;
    double v = ki_f64_from_bits((kn_dtype)a->dtype, result);
    if (a->op == KN_MAX) return a->err;
    return a->op == KN_ADD ? end_add(a, v) : end_mul(a, v);
}
