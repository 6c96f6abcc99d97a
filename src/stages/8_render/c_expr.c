/* c_expr.c: elementwise ops as C expressions. See c_gen.h for how values are held.
 *
 * Each expression is an atom or stands in parentheses, so texts compose without thought of precedence. Meaning rests on
 * KI_C_FLAGS: integers wrap (-fwrapv), no contraction. */
#include "stages/8_render/c_gen.h"

#include <math.h>
#include <string.h>

static unsigned width_of(kn_dtype t) { return ki_celem_bytes[ki_cvalue_elem(t)]; }

const char *ki_cconst(ki_cgen *g, kn_uop u) {
    kn_dtype t = (kn_dtype)u->dtype;
    if (ki_is_float(t)) {
        double v = ki_const_f64(u);
        bool wide = t == KN_F64;
        if (isnan(v)) return wide ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
        if (isinf(v)) return ki_cfmt(g, v < 0 ? "(-__builtin_inf%s())" : "__builtin_inf%s()", wide ? "" : "f");
        const char *s = ki_cfmt(g, wide ? "%.17g" : "%.9g", v);
        const char *dot = strpbrk(s, ".e") ? "" : ".0";
        return ki_cfmt(g, signbit(v) ? "(%s%s%s)" : "%s%s%s", s, dot, wide ? "" : "f");
    }
    int64_t v = u->arg.i;
    if (t == KN_U64) return ki_cfmt(g, "%lluu", (unsigned long long)u->arg.bits);
    if (ki_is_uint(t)) return ki_cfmt(g, "%lldu", (long long)v);
    if (v == INT64_MIN) return "(-9223372036854775807 - 1)"; /* a literal has no sign, and a type by its size */
    if (v == INT32_MIN) return "(-2147483647 - 1)";
    return ki_cfmt(g, v < 0 ? "(%lld)" : "%lld", (long long)v);
}

/* Lanes of the expression being written: 1 while a vector op is written lane by lane. */
static unsigned lanes_now(const ki_cgen *g, kn_uop u) { return g->lane ? 1 : ki_lanes(u); }

/* u's value as a variable, so that it can stand twice or be subscripted. */
const char *ki_clane_name(ki_cgen *g, kn_uop u) {
    ki_cval *v = ki_cv(g, u);
    if (!v->s) return ki_cfail(g, u, "has no value here");
    if (ki_cis_name(v->s)) return v->s;
    ki_celem e = u->dtype == KN_BOOL && ki_rank(u) ? ki_cmask_elem(v->w) : ki_cvalue_elem((kn_dtype)u->dtype);
    const char *name = ki_cfmt(g, "v%u", g->nvar++);
    ki_cline(g, "%s %s = %s;", ki_ctype(g, e, ki_lanes(u)), name, ki_cbare(g, v->s));
    return v->s = name;
}

const char *ki_cscalar(ki_cgen *g, kn_uop u) {
    if (ki_rank(u)) {
        if (!g->lane) return ki_cfail(g, u, "a scalar operand was expected");
        return ki_cfmt(g, u->dtype == KN_BOOL ? "(%s[l] & 1)" : "%s[l]", ki_clane_name(g, u));
    }
    const char *s = ki_cv(g, u)->s;
    return s ? s : ki_cfail(g, u, "has no value here");
}

const char *ki_cvector(ki_cgen *g, kn_uop u, unsigned lanes) {
    if (lanes == 1) return ki_cscalar(g, u);
    const char *s = ki_cv(g, u)->s;
    if (!s) return ki_cfail(g, u, "has no value here");
    if (ki_rank(u) && ki_lanes(u) == lanes) return s;
    if (ki_rank(u)) return ki_cfail(g, u, "lane counts differ");
    return ki_cfmt(g, "%s_of(%s)", ki_ctype(g, ki_cvalue_elem((kn_dtype)u->dtype), lanes), s);
}

/* A mask of width `from` as one of width `to`. */
static const char *widen_mask(ki_cgen *g, const char *s, unsigned lanes, unsigned from, unsigned to) {
    if (from == to) return s;
    return ki_cfmt(g, "__builtin_convertvector(%s, %s)", s, ki_ctype(g, ki_cmask_elem(to), lanes));
}

const char *ki_cmask(ki_cgen *g, kn_uop u, unsigned lanes, unsigned w) {
    const ki_cval *v = ki_cv(g, u);
    if (!v->s) return ki_cfail(g, u, "has no value here");
    if (ki_rank(u)) return widen_mask(g, v->s, lanes, v->w, w);
    ki_celem e = ki_cmask_elem(w);
    return ki_cfmt(g, "%s_of(-(%s)%s)", ki_ctype(g, e, lanes), ki_celem_name[e], v->s);
}

/* Rounds a f32 expression to a small float; the value stays in f32. */
static const char *round_small(ki_cgen *g, kn_dtype t, unsigned lanes, const char *s) {
    const char *name = ki_dtypes[t].name;
    if (lanes > 1 && (t == KN_F16 || t == KN_BF16)) {
        ki_cneed(g, t == KN_F16 ? KI_H_F16 : KI_H_BF16, KI_F32, lanes);
        return ki_cfmt(g, "f32x%u_%sget(f32x%u_%sput(%s))", lanes, name, lanes, name, s);
    }
    ki_cneed(g, KI_H_SMALL, KI_U8, 1);
    return lanes > 1 ? NULL : ki_cfmt(g, "kn_%s_get(kn_%s_put(%s))", name, name, s);
}

/* Brings an arithmetic result back to its dtype: rounding of small floats, width of small integers. */
static const char *settle(ki_cgen *g, kn_dtype t, unsigned lanes, const char *s) {
    if (!s) return NULL;
    if (ki_csmall(t)) return round_small(g, t, lanes, s);
    if (lanes == 1 && width_of(t) < 4) return ki_cfmt(g, "(%s)%s", ki_celem_name[ki_cvalue_elem(t)], s);
    return s;
}

/* ---- casts ------------------------------------------------------------------------------------------------- */

static bool fits_int(kn_uop u, kn_dtype to) {
    if (!(u->flags & KI_BOUNDED) || !ki_is_float((kn_dtype)u->dtype)) return false;
    double lo = (double)ki_int_min(to), hi = (double)ki_int_max(to);
    if (to == KN_U64) lo = 0;
    return u->lo.f >= lo && u->hi.f < hi; /* strictly below: hi may have been rounded up */
}

static const char *cast_scalar(ki_cgen *g, kn_uop a, kn_dtype to, const char *s) {
    kn_dtype from = (kn_dtype)a->dtype;
    ki_celem te = ki_cvalue_elem(to);
    if (to == KN_BOOL) return ki_cfmt(g, "(%s != 0)", s);
    if (ki_csmall(to)) {
        if (from == KN_BOOL || from == to) return ki_cfmt(g, "(f32)%s", s);
        if (from == KN_F32 || ki_csmall(from)) return round_small(g, to, 1, s);
        ki_cneed(g, KI_H_SMALL, KI_U8, 1);
        return ki_cfmt(g, "kn_%s_get(kn_%s_putd((f64)%s))", ki_dtypes[to].name, ki_dtypes[to].name, s);
    }
    if (ki_is_float(from) && !ki_is_float(to) && !fits_int(a, to)) {
        ki_cneed(g, KI_H_FTOI, te, 1);
        return ki_cfmt(g, "kn_f64_%s((f64)%s)", ki_celem_name[te], s);
    }
    if (from == KN_BOOL && to == KN_F32) { /* as bits: compilers make an unpredictable branch of the plain cast */
        ki_cneed(g, KI_H_BITS, KI_U8, 1);
        return ki_cfmt(g, "kn_from_f32(-(u32)%s & 0x3f800000)", s);
    }
    if (ki_cvalue_elem(from) == te && from != KN_BOOL) return s;
    return ki_cfmt(g, "((%s)%s)", ki_celem_name[te], s);
}

static const char *cast_vector(ki_cgen *g, kn_uop u, uint8_t *w) {
    kn_uop a = u->src[0];
    kn_dtype from = (kn_dtype)a->dtype, to = (kn_dtype)u->dtype;
    unsigned n = lanes_now(g, u);
    ki_celem fe = ki_cvalue_elem(from), te = ki_cvalue_elem(to);
    const char *type = ki_ctype(g, te, n);
    if (from == KN_BOOL) {
        if (to == KN_BOOL) return *w = ki_cv(g, a)->w, ki_cv(g, a)->s;
        unsigned b = ki_celem_bytes[te];
        const char *m = ki_cmask(g, a, n, b);
        if (!ki_is_float(to)) return ki_cfmt(g, "(%s)(%s & 1)", type, m);
        return ki_cfmt(g, "(%s)(%s & %s)", type, m, b == 4 ? "0x3f800000" : "0x3ff0000000000000");
    }
    const char *s = ki_cvector(g, a, n);
    if (to == KN_BOOL) {
        *w = ki_celem_bytes[fe];
        return ki_cfmt(g, "(%s)(%s != (%s){0})", ki_ctype(g, ki_cmask_elem(*w), n), s, ki_ctype(g, fe, n));
    }
    if (ki_csmall(to)) {
        if (from == to) return s;
        bool single = from == KN_F32 || ki_csmall(from);
        return single && (to == KN_F16 || to == KN_BF16) ? round_small(g, to, n, s) : NULL;
    }
    if (ki_is_float(from) && !ki_is_float(to) && !(fits_int(a, to) && ki_celem_bytes[te] >= 4)) {
        if (fe != KI_F32 || ki_celem_bytes[te] > 4 || te == KI_U32) return NULL;
        ki_cneed(g, KI_H_FTOI, te, n);
        return ki_cfmt(g, "f32x%u_%s(%s)", n, ki_celem_name[te], s);
    }
    if (fe == te) return s;
    if (ki_celem_bytes[fe] == ki_celem_bytes[te] && !ki_is_float(from) && !ki_is_float(to))
        return ki_cfmt(g, "(%s)%s", type, s);
    return ki_cfmt(g, "__builtin_convertvector(%s, %s)", s, type);
}

static const char *bitcast(ki_cgen *g, kn_uop u, uint8_t *w) {
    kn_uop a = u->src[0];
    kn_dtype from = (kn_dtype)a->dtype, to = (kn_dtype)u->dtype;
    unsigned n = lanes_now(g, u);
    if (from == to) return *w = ki_cv(g, a)->w, ki_cv(g, a)->s;
    if (ki_itemsize(from) != ki_itemsize(to)) return ki_cfail(g, u, "bitcast between widths");
    const char *s = n > 1 ? ki_cv(g, a)->s : ki_cscalar(g, a);
    if (from == KN_BOOL || to == KN_BOOL) return n > 1 ? NULL : ki_cfmt(g, to == KN_BOOL ? "(%s != 0)" : "((u8)%s)", s);
    if (ki_csmall(from) || ki_csmall(to)) {
        if (n > 1) return NULL;
        ki_cneed(g, KI_H_SMALL, KI_U8, 1);
        if (ki_csmall(from)) s = ki_cfmt(g, "kn_%s_put(%s)", ki_dtypes[from].name, s);
        if (ki_csmall(to))
            return ki_cfmt(g, "kn_%s_get((%s)%s)", ki_dtypes[to].name, ki_celem_name[ki_cmemory_elem(to)], s);
        return ki_cfmt(g, "((%s)%s)", ki_celem_name[ki_cvalue_elem(to)], s);
    }
    if (n > 1) return ki_cfmt(g, "(%s)%s", ki_ctype(g, ki_cvalue_elem(to), n), s);
    if (!ki_is_float(from) && !ki_is_float(to)) return ki_cfmt(g, "((%s)%s)", ki_celem_name[ki_cvalue_elem(to)], s);
    ki_cneed(g, KI_H_BITS, KI_U8, 1);
    ki_celem fe = ki_cvalue_elem(from), te = ki_cvalue_elem(to);
    if (ki_is_float(from)) return ki_cfmt(g, "((%s)kn_bits_%s(%s))", ki_celem_name[te], ki_celem_name[fe], s);
    return ki_cfmt(g, "kn_from_%s(%s)", ki_celem_name[te], s);
}

/* ---- comparisons and bools ---------------------------------------------------------------------------------- */

static const char *comparison(kn_op op) {
    switch (op) {
    case KN_CMPLT: return "<";
    case KN_CMPGT: return ">";
    case KN_CMPLE: return "<=";
    case KN_CMPGE: return ">=";
    case KN_CMPEQ: return "==";
    case KN_CMPNE: return "!=";
    default: return NULL;
    }
}

/* Bool operands, scalar (0, 1) or masks (0, -1): bitwise forms that are right for both after `& 1` on scalars. */
static const char *bool_form(kn_op op) {
    switch (op) {
    case KN_ADD:
    case KN_OR:
    case KN_MAX: return "(%s | %s)";
    case KN_MUL:
    case KN_AND: return "(%s & %s)";
    case KN_XOR:
    case KN_CMPNE: return "(%s ^ %s)";
    case KN_CMPLT: return "(~%s & %s)";
    case KN_CMPGT: return "(%s & ~%s)";
    case KN_CMPLE: return "(~%s | %s)";
    case KN_CMPGE: return "(%s | ~%s)";
    case KN_CMPEQ: return "(~%s ^ %s)";
    default: return NULL;
    }
}

static const char *join(ki_cgen *g, const char *form, const char *a, const char *b) {
    const char *cut = strchr(form + 1, '%'), *second;
    cut += 2;
    second = strchr(cut, '%');
    return ki_cfmt(g, "%.*s%s%.*s%s)", (int)(cut - 2 - form), form, a, (int)(second - cut), cut, b);
}

static const char *bool_binary(ki_cgen *g, kn_uop u, uint8_t *w) {
    const char *form = bool_form((kn_op)u->op);
    if (!form) return ki_cfail(g, u, "not an op on bools");
    unsigned n = lanes_now(g, u);
    if (n == 1) {
        const char *a = ki_cscalar(g, u->src[0]), *b = ki_cscalar(g, u->src[1]);
        const char *op = comparison((kn_op)u->op);
        return op ? ki_cfmt(g, "(%s %s %s)", a, op, b) : join(g, form, a, b);
    }
    *w = ki_rank(u->src[0]) ? ki_cv(g, u->src[0])->w : ki_cv(g, u->src[1])->w;
    return join(g, form, ki_cmask(g, u->src[0], n, *w), ki_cmask(g, u->src[1], n, *w));
}

static const char *compare(ki_cgen *g, kn_uop u, uint8_t *w) {
    kn_dtype t = (kn_dtype)u->src[0]->dtype;
    unsigned n = lanes_now(g, u);
    if (t == KN_BOOL) return bool_binary(g, u, w);
    const char *a = ki_cvector(g, u->src[0], n), *b = ki_cvector(g, u->src[1], n), *op = comparison((kn_op)u->op);
    if (n == 1) return ki_cfmt(g, "(%s %s %s)", a, op, b);
    *w = (uint8_t)width_of(t);
    return ki_cfmt(g, "(%s)(%s %s %s)", ki_ctype(g, ki_cmask_elem(*w), n), a, op, b);
}

/* where(a < b, a, b) and where(a > b, a, b), either comparison written either way round. */
static const char *lesser_or_greater(kn_uop u) {
    kn_uop p = u->src[0];
    if ((p->op != KN_CMPLT && p->op != KN_CMPGT) || p->src[0]->dtype != u->dtype) return NULL;
    bool same = p->src[0] == u->src[1] && p->src[1] == u->src[2],
         turned = p->src[0] == u->src[2] && p->src[1] == u->src[1];
    return !same && !turned ? NULL : (p->op == KN_CMPLT) == same ? "lt" : "gt";
}

/* Of constants alone: C would take them for ints, where one of them does not say more. */
static const char *in_full(ki_cgen *g, kn_dtype t, const char *s) {
    bool wide = !ki_is_float(t) && t != KN_BOOL && ki_celem_bytes[ki_cvalue_elem(t)] == 8;
    return wide ? ki_cfmt(g, "(%s)%s", ki_celem_name[ki_cvalue_elem(t)], s) : s;
}

static const char *where(ki_cgen *g, kn_uop u, uint8_t *w) {
    unsigned n = lanes_now(g, u);
    kn_dtype t = (kn_dtype)u->dtype;
    kn_uop p = u->src[0];
    if (t == KN_BOOL && n > 1) {
        *w = ki_rank(p) ? ki_cv(g, p)->w : ki_rank(u->src[1]) ? ki_cv(g, u->src[1])->w : ki_cv(g, u->src[2])->w;
        const char *a = ki_cmask(g, u->src[1], n, *w), *b = ki_cmask(g, u->src[2], n, *w);
        if (!ki_rank(p)) return ki_cfmt(g, "(%s ? %s : %s)", ki_cscalar(g, p), a, b);
        ki_clane_name(g, p);
        const char *m = ki_cmask(g, p, n, *w);
        return ki_cfmt(g, "((%s & %s) | (~%s & %s))", m, a, m, b);
    }
    const char *a = ki_cvector(g, u->src[1], n), *b = ki_cvector(g, u->src[2], n);
    ki_celem e = ki_cvalue_elem(t);
    if (n == 1 && (ki_is_minus_zero(u->src[1]) || ki_is_minus_zero(u->src[2]))) { /* see kn_pick */
        ki_cneed(g, KI_H_BITS, KI_U8, 1);
        return ki_cfmt(g, "kn_pick_%s(%s, %s, %s)", e == KI_F64 ? "f64" : "f32", ki_cscalar(g, p), a, b);
    }
    if (n == 1 && ki_is_const(u->src[1]) && ki_is_const(u->src[2])) a = in_full(g, t, a);
    if (n == 1 || !ki_rank(p)) return ki_cfmt(g, "(%s ? %s : %s)", ki_cscalar(g, p), a, b);
    const char *type = ki_ctype(g, e, n), *pick = ki_is_float(t) ? lesser_or_greater(u) : NULL;
    ki_ctype(g, ki_cmask_elem(ki_celem_bytes[e]), n);
    if (pick) return ki_cneed(g, KI_H_MAX, e, n), ki_cfmt(g, "%s_%s(%s, %s)", type, pick, a, b);
    const char *m = ki_cmask(g, p, n, ki_celem_bytes[e]);
    ki_cneed(g, KI_H_SEL, e, n);
    return ki_cfmt(g, "%s_sel(%s, %s, %s)", type, m, a, b);
}

/* ---- arithmetic --------------------------------------------------------------------------------------------- */

static const char *maximum(ki_cgen *g, kn_uop u, unsigned n, const char *a, const char *b) {
    ki_celem e = ki_cvalue_elem((kn_dtype)u->dtype);
    if (!ki_is_float((kn_dtype)u->dtype)) {
        if (n > 1)
            return ki_cneed(g, KI_H_SEL, e, n), ki_ctype(g, ki_cmask_elem(ki_celem_bytes[e]), n),
                   ki_cneed(g, KI_H_MAX, e, n), ki_cfmt(g, "%s_max(%s, %s)", ki_ctype(g, e, n), a, b);
        ki_cneed(g, KI_H_MAX, e, 1);
        return ki_cfmt(g, "%s_max(%s, %s)", ki_celem_name[e], a, b);
    }
    /* A constant that is no NaN needs less: NaN and -0 of the other side only. */
    kn_uop c = ki_is_const(u->src[1]) ? u->src[1] : ki_is_const(u->src[0]) ? u->src[0] : NULL;
    const char *f = "max";
    if (c && !isnan(ki_const_f64(c))) {
        f = ki_const_f64(c) == 0 && !signbit(ki_const_f64(c)) ? "max0" : ki_const_f64(c) == 0 ? "max" : "maxc";
        if (c == u->src[0] && strcmp(f, "max") != 0) {
            const char *t = a;
            a = b, b = t;
        }
    }
    if (n > 1) ki_ctype(g, ki_cmask_elem(ki_celem_bytes[e]), n), ki_cneed(g, KI_H_SEL, e, n);
    ki_cneed(g, KI_H_MAX, e, n);
    return ki_cfmt(g, "%s_%s(%s, %s)", ki_ctype(g, e, n), f, a, b);
}

/* Floor division. Where bounds show both signs to be positive C's own operators serve. */
static const char *divide(ki_cgen *g, kn_uop u, unsigned n, const char *a, const char *b) {
    kn_dtype t = (kn_dtype)u->dtype;
    ki_celem e = ki_cvalue_elem(t);
    kn_uop x = u->src[0], y = u->src[1];
    bool nonneg = ki_is_uint(t) || x->lo.i >= 0;
    bool plain = nonneg && (t == KN_U64 ? ki_is_const(y) && y->arg.i != 0 : y->lo.i > 0);
    if (plain) return ki_cfmt(g, "(%s %s %s)", a, u->op == KN_IDIV ? "/" : "%", b);
    if (n > 1) return NULL;
    ki_cneed(g, KI_H_DIV, e, 1);
    return ki_cfmt(g, "%s_%s(%s, %s)", ki_celem_name[e], u->op == KN_IDIV ? "idiv" : "mod", a, b);
}

static const char *shift(ki_cgen *g, kn_uop u, unsigned n, const char *a, const char *b) {
    kn_dtype t = (kn_dtype)u->dtype;
    ki_celem e = ki_cvalue_elem(t);
    kn_uop y = u->src[1];
    int64_t bits = 8 * (int64_t)width_of(t);
    const char *op = u->op == KN_SHL ? "<<" : ">>";
    bool in = t == KN_U64 ? ki_is_const(y) && y->arg.i >= 0 && y->arg.i < bits : y->lo.i >= 0 && y->hi.i < bits;
    if (in) return ki_cfmt(g, "(%s %s %s)", a, op, b);
    if (n > 1) return NULL;
    ki_cneed(g, KI_H_SHIFT, e, 1);
    return ki_cfmt(g, "%s_%s(%s, %s)", ki_celem_name[e], u->op == KN_SHL ? "shl" : "shr", a, b);
}

/* Scalar functions of libm: f32 names end in f. */
static const char *libm_name(kn_op op) {
    switch (op) {
    case KN_TRUNC: return "trunc";
    case KN_SQRT: return "sqrt";
    case KN_EXP2: return "exp2";
    case KN_LOG2: return "log2";
    case KN_SIN: return "sin";
    case KN_COS: return "cos";
    case KN_TAN: return "tan";
    case KN_TANH: return "tanh";
    case KN_ERF: return "erf";
    case KN_EXP: return "exp";
    case KN_LOG: return "log";
    case KN_POW: return "pow";
    default: return NULL;
    }
}

static const char *binary_sign(kn_op op) {
    switch (op) {
    case KN_ADD: return "+";
    case KN_SUB: return "-";
    case KN_MUL: return "*";
    case KN_DIV: return "/";
    case KN_XOR: return "^";
    case KN_OR: return "|";
    case KN_AND: return "&";
    default: return NULL;
    }
}

static bool is_signed(kn_dtype t) { return ki_is_sint(t) || t == KN_IDX; }

static const char *one_of(ki_cgen *g, kn_uop u, unsigned n) {
    ki_celem e = ki_cvalue_elem((kn_dtype)u->dtype);
    const char *one = e == KI_F64 ? "1.0" : "1.0f";
    return n > 1 ? ki_cfmt(g, "%s_of(%s)", ki_ctype(g, e, n), one) : one;
}

static const char *mulacc(ki_cgen *g, kn_uop u, unsigned n, const char *a, const char *b, const char *c) {
    kn_dtype t = (kn_dtype)u->dtype;
    ki_celem e = ki_cvalue_elem(t);
    if (!ki_is_float(t)) return settle(g, t, n, ki_cfmt(g, "(%s * %s + %s)", a, b, c));
    if (ki_csmall(t)) { /* the product is exact in double, the sum rounded to odd; one rounding follows */
        if (n > 1) return NULL;
        ki_cneed(g, KI_H_SMALL, KI_U8, 1);
        const char *name = ki_dtypes[t].name;
        return ki_cfmt(g, "kn_%s_get(kn_%s_putd(kn_fma_odd(%s, %s, %s)))", name, name, a, b, c);
    }
    if (n == 1) return ki_cfmt(g, "__builtin_fma%s(%s, %s, %s)", e == KI_F64 ? "" : "f", a, b, c);
    ki_cneed(g, KI_H_FMA, e, n);
    return ki_cfmt(g, "%s_fma(%s, %s, %s)", ki_ctype(g, e, n), a, b, c);
}

static const char *arithmetic(ki_cgen *g, kn_uop u) {
    kn_op op = (kn_op)u->op;
    kn_dtype t = (kn_dtype)u->dtype;
    ki_celem e = ki_cvalue_elem(t);
    unsigned n = lanes_now(g, u);
    const char *s[3] = {"", "", ""}, *sign = binary_sign(op), *fn = libm_name(op);
    for (uint32_t k = 0; k < u->nsrc && k < 3; k++)
        if (!(s[k] = ki_cvector(g, u->src[k], n))) return NULL;
    kn_uop last = u->src[u->nsrc - 1];
    bool constant = n == 1;
    for (uint32_t k = 0; k < u->nsrc; k++) constant &= ki_is_const(u->src[k]);
    if (constant) s[0] = in_full(g, t, s[0]);
    if (op == KN_ADD && n == 1 && ki_is_const(last) && is_signed(t) && last->arg.i < 0 && last->arg.i > INT32_MIN)
        return settle(g, t, n, ki_cfmt(g, "(%s - %lld)", s[0], (long long)-last->arg.i));
    if (sign) return settle(g, t, n, ki_cfmt(g, "(%s %s %s)", s[0], sign, s[1]));
    switch (op) {
    case KN_NEG: return settle(g, t, n, ki_cfmt(g, "(-%s)", s[0]));
    case KN_NOT: return settle(g, t, n, ki_cfmt(g, "(~%s)", s[0]));
    case KN_RECIP: return settle(g, t, n, ki_cfmt(g, "(%s / %s)", one_of(g, u, n), s[0]));
    case KN_MAX: return maximum(g, u, n, s[0], s[1]);
    case KN_IDIV:
    case KN_MOD: return settle(g, t, n, divide(g, u, n, s[0], s[1]));
    case KN_SHL:
    case KN_SHR: return settle(g, t, n, shift(g, u, n, s[0], s[1]));
    case KN_MULACC: return mulacc(g, u, n, s[0], s[1], s[2]);
    case KN_THREEFRY:
        if (n > 1) return NULL;
        ki_cneed(g, KI_H_THREEFRY, KI_U8, 1);
        return ki_cfmt(g, "kn_threefry(%s, %s)", s[0], s[1]);
    default: break;
    }
    if (!fn) return ki_cfail(g, u, "unknown op");
    if (n == 1) {
        const char *tail = e == KI_F64 ? "" : "f";
        const char *call = op == KN_POW ? ki_cfmt(g, "__builtin_pow%s(%s, %s)", tail, s[0], s[1])
                                        : ki_cfmt(g, "__builtin_%s%s(%s)", fn, tail, s[0]);
        return settle(g, t, n, call);
    }
    if (op != KN_SQRT && op != KN_TRUNC) return NULL;
    ki_cneed(g, KI_H_SQRT, e, n);
    return settle(g, t, n, ki_cfmt(g, "%s_%s(%s)", ki_ctype(g, e, n), fn, s[0]));
}

/* ---- lanes -------------------------------------------------------------------------------------------------- */

static const char *stack(ki_cgen *g, kn_uop u, uint8_t *w) {
    unsigned n = lanes_now(g, u);
    bool mask = u->dtype == KN_BOOL;
    ki_celem e = mask ? KI_I32 : ki_cvalue_elem((kn_dtype)u->dtype);
    ki_text t = {0};
    if (mask) *w = 4;
    ki_text_printf(&t, "(%s){", ki_ctype(g, e, n));
    for (uint32_t k = 0; k < u->nsrc; k++)
        ki_text_printf(&t, mask ? "%s-%s" : "%s%s", k ? ", " : "", ki_cscalar(g, u->src[k]));
    ki_text_put(&t, "}");
    return ki_cwritten(g, &t);
}

static const char *lanes_of(ki_cgen *g, kn_uop u, uint8_t *w) {
    kn_uop v = u->src[0], i = u->src[1];
    const char *s = ki_clane_name(g, v);
    bool mask = v->dtype == KN_BOOL;
    if (ki_rank(i) == 0) return ki_cfmt(g, mask ? "(%s[%s] & 1)" : "%s[%s]", s, ki_cscalar(g, i));
    if (i->op != KN_STACK) return ki_cfail(g, u, "lanes of a value need constant numbers");
    ki_text t = {0};
    ki_text_printf(&t, "__builtin_shufflevector(%s, %s", s, s);
    for (uint32_t k = 0; k < i->nsrc; k++) {
        if (!ki_is_const(i->src[k])) return ki_text_free(&t), ki_cfail(g, u, "lanes of a value need constant numbers");
        ki_text_printf(&t, ", %lld", (long long)i->src[k]->arg.i);
    }
    ki_text_put(&t, ")");
    if (mask) *w = ki_cv(g, v)->w;
    ki_celem e = mask ? ki_cmask_elem(*w) : ki_cvalue_elem((kn_dtype)v->dtype);
    return ki_cfmt(g, "(%s)%s", ki_ctype(g, e, lanes_now(g, u)), ki_cwritten(g, &t));
}

const char *ki_cexpr(ki_cgen *g, kn_uop u, uint8_t *w) {
    *w = 0;
    switch ((kn_op)u->op) {
    case KN_CONST: return ki_cconst(g, u);
    case KN_AFTER: return *w = ki_cv(g, u->src[0])->w, ki_cv(g, u->src[0])->s;
    case KN_STACK: return stack(g, u, w);
    case KN_INDEX: return lanes_of(g, u, w);
    case KN_BITCAST: return bitcast(g, u, w);
    case KN_CAST:
        if (lanes_now(g, u) > 1) return cast_vector(g, u, w);
        return cast_scalar(g, u->src[0], (kn_dtype)u->dtype, ki_cscalar(g, u->src[0]));
    case KN_WHERE: return where(g, u, w);
    case KN_NOT:
        if (u->dtype != KN_BOOL) break;
        if (lanes_now(g, u) == 1) return ki_cfmt(g, "(!%s)", ki_cscalar(g, u->src[0]));
        *w = ki_cv(g, u->src[0])->w;
        return ki_cfmt(g, "(~%s)", ki_cv(g, u->src[0])->s);
    case KN_CMPLT:
    case KN_CMPGT:
    case KN_CMPLE:
    case KN_CMPGE:
    case KN_CMPEQ:
    case KN_CMPNE: return compare(g, u, w);
    default: break;
    }
    if (!ki_is_elementwise((kn_op)u->op)) return ki_cfail(g, u, "unexpected here");
    return u->dtype == KN_BOOL ? bool_binary(g, u, w) : arithmetic(g, u);
}

bool ki_clanewise(ki_cgen *g, kn_uop u, const char *name) {
    uint8_t w;
    if (u->dtype == KN_BOOL || !ki_is_elementwise((kn_op)u->op)) {
        if (u->op != KN_BITCAST || u->dtype == KN_BOOL) return false;
    }
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (ki_rank(u->src[k])) ki_clane_name(g, u->src[k]); /* before the loop's line */
    g->lane = true;
    const char *s = ki_cexpr(g, u, &w);
    g->lane = false;
    if (!s) return false;
    unsigned n = ki_lanes(u);
    ki_cline(g, "%s %s;", ki_ctype(g, ki_cvalue_elem((kn_dtype)u->dtype), n), name);
    /* GCC 12 makes vectors of 8 bytes of such lanes, and of x ? 1 : 0 in them -1 and 0: each lane passes through a register. */
    ki_celem e = ki_cvalue_elem((kn_dtype)u->dtype);
    if (!ki_is_float((kn_dtype)u->dtype) && n * ki_celem_bytes[e] <= 8)
        s = ki_cfmt(g, "({ %s t = %s; __asm__(\"\" : \"+r\"(t)); t; })", ki_celem_name[e], s);
    ki_cline(g, "for (int l = 0; l < %u; l++) %s[l] = %s;", n, name, s);
    return true;
}
