/* smt_float.c: floats in SMT-LIB, by the theory of FloatingPoint: what scalar.c says of them, on text. A NaN that was
 * computed has any bits (the interpreter's are canonical, a machine's may not be), so that no proof rests on a payload.
 * tests/rules/test_smt_float.c holds each op and cast against the interpreter. */
#include "rules/prove_smt.h"

#include "ir/scalar.h"

#include <stdio.h>
#include <string.h>

typedef ki_smt_expr expr;
static const expr unsaid;

/* Bits of exponent and of significand. f8e4m3 has no format of IEEE's kind: its numbers are some of those of (5, 4). */
typedef struct format {
    unsigned e, s;
} format;

static format format_of(kn_dtype t) {
    switch (t) {
    case KN_F16: return (format){5, 11};
    case KN_BF16: return (format){8, 8};
    case KN_F32: return (format){8, 24};
    case KN_F64: return (format){11, 53};
    case KN_F8E5M2: return (format){5, 3};
    default: return (format){5, 4};
    }
}

static char *sort_name(ki_smt *m, kn_dtype t) {
    format f = format_of(t);
    return ki_smt_format(m, "(_ FloatingPoint %u %u)", f.e, f.s);
}

/* The NaN that the interpreter computes. */
static uint64_t canonical_nan(kn_dtype t) {
    uint64_t zero[2] = {0, 0}, nan = 0;
    (void)ki_scalar(KN_DIV, t, (kn_dtype[2]){t, t}, zero, &nan);
    return nan;
}

static char *named(ki_smt *m, kn_dtype t, char *term) { return ki_smt_name(m, sort_name(m, t), term); }

static expr number(ki_smt *m, kn_dtype t, char *fp) {
    return (expr){.fp = fp ? named(m, t, fp) : NULL, .sort = KI_S_FLOAT, .width = ki_dtypes[t].bits, .dtype = t};
}

/* Of f8e4m3 by its bits: what (4, 4) reads them as, but for the largest exponent, which has numbers here and one NaN. */
static char *e4m3_number(ki_smt *m, const char *b) {
    return ki_smt_format(m,
                         "(ite (= ((_ extract 6 0) %s) #b1111111) (_ NaN 5 4) (ite (= ((_ extract 6 3) %s) #b1111) "
                         "((_ to_fp 5 4) (concat ((_ extract 7 7) %s) #b10111 ((_ extract 2 0) %s))) "
                         "((_ to_fp 5 4) RNE ((_ to_fp 4 4) %s))))",
                         b, b, b, b, b);
}

static char *number_of_bits(ki_smt *m, kn_dtype t, const char *b) {
    format f = format_of(t);
    return t == KN_F8E4M3 ? e4m3_number(m, b) : ki_smt_format(m, "((_ to_fp %u %u) %s)", f.e, f.s, b);
}

char *ki_smt_fp(ki_smt *m, expr e) {
    if (e.fp || !e.s) return e.fp;
    return named(m, e.dtype, number_of_bits(m, e.dtype, e.s));
}

/* Of a computed number: a constant that reads as it. */
char *ki_smt_bits(ki_smt *m, expr e) {
    if (e.s || !e.fp) return e.s;
    char *b = ki_smt_format(m, "bits%u", m->named++);
    char *back = b ? number_of_bits(m, e.dtype, b) : NULL;
    if (!back) return NULL;
    ki_text_printf(&m->decl, "(declare-const %s (_ BitVec %u))\n(assert (= %s %s))\n", b, e.width, back, e.fp);
    if (m->canonical && e.carried) ki_text_printf(&m->decl, "(assert (not (fp.isNaN %s)))\n", e.fp);
    else if (m->canonical)
        ki_text_printf(&m->decl, "(assert (=> (fp.isNaN %s) (= %s (_ bv%llu %u))))\n", e.fp, b,
                       (unsigned long long)canonical_nan(e.dtype), e.width);
    return b;
}

expr ki_smt_float_number(ki_smt *m, kn_dtype t, double v) {
    unsigned w = ki_dtypes[t].bits;
    return (expr){.s = ki_smt_format(m, "(_ bv%llu %u)", (unsigned long long)ki_bits_from_f64(t, v), w),
                  .sort = KI_S_FLOAT,
                  .width = w,
                  .dtype = t};
}

/* ---- rounding ----------------------------------------------------------------------------------------------- */

/* A number of any format, `from` of it, as one of t. */
static char *rounded(ki_smt *m, kn_dtype t, format from, const char *x) {
    format f = format_of(t);
    if (t != KN_F8E4M3) return ki_smt_format(m, "((_ to_fp %u %u) RNE %s)", f.e, f.s, x);
    /* Below 16 as (4, 4) rounds, whose least exponent is the same; above as (5, 4), and what passes 448 is NaN. */
    char *wide = named(m, t, ki_smt_format(m, "((_ to_fp 5 4) RNE %s)", x));
    return ki_smt_format(
        m,
        "(ite (fp.lt (fp.abs %s) ((_ to_fp %u %u) RNE 16.0)) ((_ to_fp 5 4) RNE ((_ to_fp 4 4) RNE %s)) "
        "(ite (fp.leq (fp.abs %s) ((_ to_fp 5 4) RNE 448.0)) %s (_ NaN 5 4)))",
        x, from.e, from.s, x, wide, wide);
}

expr ki_smt_to_float(ki_smt *m, expr v, kn_dtype t) {
    if (v.sort == KI_S_FLOAT && v.dtype == t) return v;
    if (v.sort == KI_S_BOOL) {
        expr one = ki_smt_float_number(m, t, 1), zero = ki_smt_float_number(m, t, 0);
        one.s = ki_smt_format(m, "(ite %s %s %s)", v.s, one.s, zero.s);
        return one;
    }
    if (v.sort == KI_S_WORD) {
        format f = format_of(t == KN_F8E4M3 ? KN_F32 : t); /* what f32 has to round is too large for f8e4m3 */
        char *x = ki_smt_format(m, "((_ to_fp%s %u %u) RNE %s)", v.is_signed ? "" : "_unsigned", f.e, f.s, v.s);
        return number(m, t, t == KN_F8E4M3 ? rounded(m, t, f, x) : x);
    }
    if (v.sort != KI_S_FLOAT) return unsaid;
    expr e = number(m, t, rounded(m, t, format_of(v.dtype), ki_smt_fp(m, v)));
    e.carried = true;
    return e;
}

/* Truncated and saturated; NaN is 0. */
expr ki_smt_from_float(ki_smt *m, expr v, expr to) {
    char *x = ki_smt_fp(m, v);
    format f = format_of(v.dtype);
    if (to.sort == KI_S_BOOL) to.s = ki_smt_format(m, "(not (fp.isZero %s))", x);
    if (to.sort != KI_S_WORD) return to;
    unsigned w = to.width;
    unsigned long long half = 1ULL << (w - 1);
    if (to.is_signed)
        to.s = ki_smt_format(
            m,
            "(ite (fp.isNaN %s) (_ bv0 %u) (ite (fp.leq %s ((_ to_fp %u %u) RNE (- %llu.0))) (_ bv%llu %u) "
            "(ite (fp.geq %s ((_ to_fp %u %u) RNE %llu.0)) (_ bv%llu %u) ((_ fp.to_sbv %u) RTZ %s))))",
            x, w, x, f.e, f.s, half, half, w, x, f.e, f.s, half, half - 1, w, w, x);
    else
        to.s = ki_smt_format(m,
                             "(ite (or (fp.isNaN %s) (fp.leq %s (_ +zero %u %u))) (_ bv0 %u) "
                             "(ite (fp.geq %s ((_ to_fp %u %u) RNE (* 2.0 %llu.0))) (bvnot (_ bv0 %u)) "
                             "((_ fp.to_ubv %u) RTZ %s)))",
                             x, x, f.e, f.s, w, x, f.e, f.s, half, w, w, x);
    return to;
}

/* ---- ops ---------------------------------------------------------------------------------------------------- */

static const char *comparison(kn_op op) {
    switch (op) {
    case KN_CMPLT: return "(fp.lt %s %s)";
    case KN_CMPGT: return "(fp.gt %s %s)";
    case KN_CMPLE: return "(fp.leq %s %s)";
    case KN_CMPGE: return "(fp.geq %s %s)";
    case KN_CMPEQ: return "(fp.eq %s %s)";
    case KN_CMPNE: return "(not (fp.eq %s %s))";
    default: return NULL;
    }
}

/* On numbers of one format. */
static char *arithmetic(ki_smt *m, kn_op op, format f, char *const *x) {
    switch (op) {
    case KN_ADD: return ki_smt_format(m, "(fp.add RNE %s %s)", x[0], x[1]);
    case KN_SUB: return ki_smt_format(m, "(fp.sub RNE %s %s)", x[0], x[1]);
    case KN_MUL: return ki_smt_format(m, "(fp.mul RNE %s %s)", x[0], x[1]);
    case KN_DIV: return ki_smt_format(m, "(fp.div RNE %s %s)", x[0], x[1]);
    case KN_SQRT: return ki_smt_format(m, "(fp.sqrt RNE %s)", x[0]);
    case KN_RECIP: return ki_smt_format(m, "(fp.div RNE ((_ to_fp %u %u) RNE 1.0) %s)", f.e, f.s, x[0]);
    case KN_TRUNC: return ki_smt_format(m, "(fp.roundToIntegral RTZ %s)", x[0]);
    case KN_MULACC: return ki_smt_format(m, "(fp.fma RNE %s %s %s)", x[0], x[1], x[2]);
    case KN_MAX:
        return ki_smt_format(m,
                             "(ite (or (fp.isNaN %s) (fp.isNaN %s)) (_ NaN %u %u) (ite (fp.eq %s %s) "
                             "(ite (fp.isNegative %s) %s %s) (ite (fp.gt %s %s) %s %s)))",
                             x[0], x[1], f.e, f.s, x[0], x[1], x[0], x[1], x[0], x[0], x[1], x[0], x[1]);
    default: return NULL;
    }
}

/* f8e4m3 is calculated in a wider format and rounded: exactly, or to more than twice its bits. So is what z3 refuses of
 * the least formats, and fused products of f16, of which z3 4.8 says "sat" with numbers for which it gives equal sides: in f64 what
 * decides their rounding is exact. */
static bool goes_wide(kn_op op, kn_dtype t) {
    bool rounds = op == KN_ADD || op == KN_SUB || op == KN_DIV || op == KN_RECIP || op == KN_TRUNC;
    if (t == KN_F16 && op == KN_MULACC) return true;
    return t == KN_F8E4M3 || (t == KN_F8E5M2 && rounds) || (t == KN_BF16 && op == KN_TRUNC);
}

static expr calculated(ki_smt *m, kn_op op, kn_dtype t, char *const *x, unsigned n) {
    if (!goes_wide(op, t)) return number(m, t, arithmetic(m, op, format_of(t), x));
    kn_dtype wide = op == KN_MULACC ? KN_F64 : KN_F32;
    format f = format_of(wide);
    char *y[3] = {NULL, NULL, NULL};
    for (unsigned k = 0; k < n && k < 3; k++) y[k] = ki_smt_format(m, "((_ to_fp %u %u) RNE %s)", f.e, f.s, x[k]);
    char *r = arithmetic(m, op, f, y);
    return r ? number(m, t, rounded(m, t, f, named(m, wide, r))) : unsaid;
}

/* Moves bits; where both were computed, numbers. */
static expr chosen(ki_smt *m, const expr *v) {
    expr e = v[1];
    if (!v[1].s && !v[2].s) {
        e.fp = ki_smt_format(m, "(ite %s %s %s)", v[0].s, v[1].fp, v[2].fp);
        e.carried = v[1].carried || v[2].carried;
        return e;
    }
    e.fp = NULL;
    e.s = ki_smt_format(m, "(ite %s %s %s)", v[0].s, ki_smt_bits(m, v[1]), ki_smt_bits(m, v[2]));
    return e;
}

expr ki_smt_on_floats(ki_smt *m, kn_op op, const expr *v, unsigned n) {
    if (op == KN_WHERE) return chosen(m, v);
    kn_dtype t = v[0].dtype;
    if (op == KN_NEG && v[0].s) {
        expr e = v[0];
        e.fp = NULL;
        e.s = ki_smt_format(m, "(bvxor %s (_ bv%llu %u))", v[0].s, 1ULL << (e.width - 1), e.width);
        return e;
    }
    char *x[3] = {NULL, NULL, NULL};
    for (unsigned k = 0; k < n && k < 3; k++) x[k] = ki_smt_fp(m, v[k]);
    if (op == KN_NEG) {
        expr e = number(m, t, ki_smt_format(m, "(fp.neg %s)", x[0]));
        e.carried = true;
        return e;
    }
    const char *compare = comparison(op);
    if (compare)
        return (expr){.s = x[0] && x[1] ? ki_smt_fill(m, compare, x[0], x[1]) : NULL, .sort = KI_S_BOOL, .width = 1};
    return calculated(m, op, t, x, n);
}
