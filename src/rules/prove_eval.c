/* prove_eval.c: both sides of a rule on values of small domains. It shares the meaning of each op (scalar.h) with the
 * interpreter and nothing with the matcher: what a rule says is read from its tables a second time, here. */
#include "rules/prove_eval.h"

#include "ir/scalar.h"

#include <math.h>
#include <string.h>

#define LIMIT ((ki_int128)1 << 60)

static const ki_pval none = {.kind = KI_PV_NONE};
static ki_pval integer(ki_int128 i) {
    return i > LIMIT * LIMIT || i < -LIMIT * LIMIT ? none : (ki_pval){.kind = KI_PV_INT, .i = i};
}
static ki_pval truth(bool b) { return (ki_pval){.kind = KI_PV_BOOL, .i = b}; }
static ki_pval real(double f) { return (ki_pval){.kind = KI_PV_REAL, .f = f}; }
static ki_pval typed(ki_domain d, uint64_t bits) { return (ki_pval){.kind = KI_PV_TYPED, .d = d, .bits = bits}; }
static const ki_domain bool_domain = {.kind = KI_D_BOOL, .width = 1, .dtype = KN_BOOL};

/* An outcome that depends on what is not modelled: both are tried. */
static bool chance(ki_theorem *t) {
    unsigned k = t->nchance < 31 ? t->nchance++ : 30;
    return t->chance >> k & 1;
}

/* ---- exact ratios ------------------------------------------------------------------------------------------ */

static ki_pval ratio(ki_domain d, ki_int128 n, ki_int128 den) {
    ki_int128 a = n < 0 ? -n : n, b = den < 0 ? -den : den;
    if (b == 0) return none;
    while (b) {
        ki_int128 r = a % b;
        a = b;
        b = r;
    }
    if (a == 0) a = 1;
    n /= a, den /= a;
    if (den < 0) n = -n, den = -den;
    if (n > LIMIT || n < -LIMIT || den > LIMIT) return none;
    return (ki_pval){.kind = KI_PV_TYPED, .d = d, .i = n, .den = den};
}

static ki_pval on_ratios(kn_op op, const ki_pval *v, unsigned n) {
    ki_domain d = v[op == KN_WHERE].d;
    ki_int128 a = v[0].i, b = v[0].den, p = n > 1 ? v[1].i : 0, q = n > 1 ? v[1].den : 1;
    switch (op) {
    case KN_ADD: return ratio(d, a * q + p * b, b * q);
    case KN_SUB: return ratio(d, a * q - p * b, b * q);
    case KN_MUL: return ratio(d, a * p, b * q);
    case KN_DIV: return p == 0 ? none : ratio(d, a * q, b * p);
    case KN_RECIP: return a == 0 ? none : ratio(d, b, a);
    case KN_NEG: return ratio(d, -a, b);
    case KN_TRUNC: return ratio(d, a / b, 1);
    case KN_MAX: return a * q > p * b ? v[0] : v[1];
    case KN_MULACC: {
        ki_pval m = ratio(d, a * p, b * q);
        return m.kind == KI_PV_NONE ? none : ratio(d, m.i * v[2].den + v[2].i * m.den, m.den * v[2].den);
    }
    case KN_CMPLT: return typed(bool_domain, a * q < p * b);
    case KN_CMPGT: return typed(bool_domain, a * q > p * b);
    case KN_CMPLE: return typed(bool_domain, a * q <= p * b);
    case KN_CMPGE: return typed(bool_domain, a * q >= p * b);
    case KN_CMPEQ: return typed(bool_domain, a * q == p * b);
    case KN_CMPNE: return typed(bool_domain, a * q != p * b);
    case KN_WHERE: return v[0].bits ? v[1] : v[2];
    default: return none;
    }
}

/* ---- domains ----------------------------------------------------------------------------------------------- */

static const double edge_floats[] = {
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 0.1, 1.5, -1.5, 7.0, -3.0, 0.75, 10.0, 100.0, -129.0, 255.0, 256.0,
    1e-3, 65504.0, 16777217.0, 3e9, -3e9, 1e20, 1e-20, 1e-40, 1e300, -1e300,
    /* a little above halfway in f16, bf16, f8e4m3, f8e5m2, f32: rounding twice goes wrong */
    1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-4 + 0x1p-40, -1 - 0x1p-3 - 0x1p-40, 1 + 0x1p-24 + 0x1p-50};
static const int64_t edge_ints[] = {0, 1, -1, 2, 3, -2, 7, 8, -7, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768,
                                    65535, 65536, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_C(1) << 32, INT64_MAX,
                                    INT64_MIN, INT64_C(0x123456789abcdef), 1000003, -77, 100,
                                    /* the same of bf16 by way of f32 and of f64, of f32 by way of f64 */
                                    0x40400001, INT64_C(0x4040000000000001), INT64_C(0x4000004000000001)};
/* Where only the size matters; a constant of an address is none of the last two. */
static const int64_t far_ints[KI_FAR_INDICES] = {
    0, 1, -1, 7, INT64_C(1) << 20, -(INT64_C(1) << 20), INT64_C(1) << 40, -(INT64_C(1) << 40)};
enum { NFLOATS = sizeof edge_floats / sizeof *edge_floats, NINTS = sizeof edge_ints / sizeof *edge_ints };

uint32_t ki_domain_size(const ki_domain *d) {
    switch ((ki_dkind)d->kind) {
    case KI_D_BOOL: return 2;
    case KI_D_WORD: return d->sampled ? (uint32_t)d->reach : 1u << d->width;
    case KI_D_INDEX: return d->sampled ? (uint32_t)d->reach : 2u * (uint32_t)d->reach + 1;
    case KI_D_FLOAT: return (uint32_t)d->reach;
    case KI_D_RATIO:
    case KI_D_REAL: return (uint32_t)d->reach;
    }
    return 0;
}

ki_pval ki_domain_value(const ki_domain *d, uint32_t k) {
    kn_dtype t = (kn_dtype)d->dtype;
    switch ((ki_dkind)d->kind) {
    case KI_D_BOOL: return typed(*d, k);
    case KI_D_WORD:
        if (d->sampled)
            return typed(*d, ki_bits_wrap(t, k < NINTS ? edge_ints[k] : (int64_t)(k * UINT64_C(0x9e3779b97f4a7c15))));
        return typed(*d, ki_extend(k, d->width, d->is_signed));
    case KI_D_INDEX: {
        /* 0, 1, -1, 2, ...: small values first, so that counterexamples are small. */
        int64_t v = k & 1 ? (int64_t)(k + 1) / 2 : -(int64_t)(k / 2);
        if (d->sampled && k < NINTS) v = edge_ints[k] / 4;
        if (d->room) v = far_ints[k];
        return typed(*d, (uint64_t)v);
    }
    case KI_D_FLOAT:
        if (d->reach >= 256) return typed(*d, k); /* all of them */
        if (k < NFLOATS) return typed(*d, ki_bits_from_f64(t, edge_floats[k]));
        if (k < NFLOATS + 3)
            return typed(*d, ki_bits_from_f64(t, k == NFLOATS ? NAN : k == NFLOATS + 1 ? INFINITY : -INFINITY));
        return typed(*d, ki_bits_from_f64(t, (double)(int64_t)(k * UINT64_C(0x9e3779b97f4a7c15)) * 1e-17));
    case KI_D_RATIO: {
        static const int8_t num[] = {0, 1, -1, 2, -2, 1, 3, -3, 5, -1, 7}, den[] = {1, 1, 1, 1, 1, 2, 1, 1, 3, 3, 4};
        return (ki_pval){.kind = KI_PV_TYPED, .d = *d, .i = num[k % 11], .den = den[k % 11]};
    }
    case KI_D_REAL: {
        static const double reals[] = {0.37, 1.0, -1.25, 2.6, 0.0, -0.61, 3.3, 0.04, -4.5, 12.0, -0.002, 0.93};
        return (ki_pval){.kind = KI_PV_TYPED, .d = *d, .f = reals[k % 12]};
    }
    }
    return none;
}

static bool is_nan(const ki_pval *v) {
    if (v->kind != KI_PV_TYPED) return v->kind == KI_PV_REAL && isnan(v->f);
    if (v->d.kind == KI_D_REAL) return isnan(v->f);
    return v->d.kind == KI_D_FLOAT && isnan(ki_f64_from_bits((kn_dtype)v->d.dtype, v->bits));
}

static void note(ki_theorem *t, const ki_pval *v) {
    if (v->kind != KI_PV_TYPED) return;
    if (v->d.kind == KI_D_REAL) {
        t->saw_nan |= isnan(v->f);
        t->saw_inf |= isinf(v->f) != 0;
        if (fabs(v->f) > t->scale) t->scale = fabs(v->f);
    }
    if (v->d.kind != KI_D_FLOAT) return;
    double f = ki_f64_from_bits((kn_dtype)v->d.dtype, v->bits);
    t->saw_nan |= isnan(f);
    t->saw_inf |= isinf(f) != 0;
}

/* A value as a mathematical integer, double or truth, for guards. */
static ki_pval settle(ki_pval v) {
    if (v.kind != KI_PV_TYPED) return v;
    switch ((ki_dkind)v.d.kind) {
    case KI_D_BOOL: return truth(v.bits != 0);
    case KI_D_WORD: return integer(v.d.is_signed ? (ki_int128)(int64_t)v.bits : (ki_int128)v.bits);
    case KI_D_INDEX: return integer((int64_t)v.bits);
    case KI_D_FLOAT: return real(ki_f64_from_bits((kn_dtype)v.d.dtype, v.bits));
    case KI_D_RATIO: return real((double)v.i / (double)v.den);
    case KI_D_REAL: return real(v.f);
    }
    return none;
}

bool ki_pval_less(const ki_pval *a, const ki_pval *b) {
    ki_pval x = settle(*a), y = settle(*b);
    return x.kind == KI_PV_REAL ? x.f < y.f : x.i < y.i;
}

/* A number as a value of domain d; none if it has no such value. */
static ki_pval adopt(ki_pval v, ki_domain d) {
    if (v.kind == KI_PV_POISON) return v;
    if (v.kind == KI_PV_TYPED) return v.d.kind == d.kind && v.d.dtype == d.dtype && v.d.width == d.width ? v : none;
    if (v.kind == KI_PV_FREE || v.kind == KI_PV_NONE || v.kind == KI_PV_ENUM) return none;
    bool whole = v.kind != KI_PV_REAL;
    double f = whole ? (double)v.i : v.f;
    switch ((ki_dkind)d.kind) {
    case KI_D_BOOL: return whole && (v.kind == KI_PV_BOOL || v.i == 0 || v.i == 1) ? typed(d, v.i != 0) : none;
    case KI_D_WORD: {
        if (v.kind != KI_PV_INT) return none;
        uint64_t bits = ki_extend((uint64_t)v.i, d.width, d.is_signed);
        ki_pval back = settle(typed(d, bits));
        return back.i == v.i ? typed(d, bits) : none;
    }
    case KI_D_INDEX:
        return v.kind == KI_PV_INT && v.i >= INT64_MIN && v.i <= INT64_MAX ? typed(d, (uint64_t)v.i) : none;
    case KI_D_FLOAT: {
        uint64_t bits = ki_bits_from_f64((kn_dtype)d.dtype, f);
        bool exact = ki_f64_from_bits((kn_dtype)d.dtype, bits) == f || isnan(f);
        return exact ? typed(d, bits) : none;
    }
    case KI_D_RATIO: {
        if (!isfinite(f)) return none;
        ki_int128 den = 1;
        for (int k = 0; k < 50 && f != floor(f); k++) f *= 2, den *= 2;
        return fabs(f) < 1e15 ? ratio(d, (ki_int128)f, den) : none;
    }
    case KI_D_REAL: return (ki_pval){.kind = KI_PV_TYPED, .d = d, .f = f};
    }
    return none;
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static bool is_compare(kn_op op) {
    return op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ;
}

static ki_pval on_typed(ki_theorem *t, kn_op op, const ki_pval *v, unsigned n) {
    unsigned first = op == KN_WHERE;
    ki_domain d = v[first].d;
    uint64_t in[4], out;
    kn_dtype dt[4];
    for (unsigned k = first; k < n; k++)
        if (v[k].d.kind != d.kind || v[k].d.dtype != d.dtype || v[k].d.width != d.width)
            return t->unsupported = true, none;
    if (op == KN_WHERE) return v[0].bits ? v[1] : v[2];
    if (d.kind == KI_D_RATIO) return on_ratios(op, v, n);
    for (unsigned k = 0; k < n; k++) {
        in[k] = v[k].bits;
        dt[k] = (kn_dtype)d.dtype;
        if (d.kind == KI_D_REAL) memcpy(&in[k], &v[k].f, 8), dt[k] = KN_F64;
    }
    ki_domain to = is_compare(op) ? bool_domain : d;
    bool good = d.kind == KI_D_WORD && !d.sampled ? ki_scalar_int(op, d.width, d.is_signed, in, &out)
                                                  : ki_scalar(op, is_compare(op) ? KN_BOOL : dt[0], dt, in, &out);
    if (!good) {
        t->unsupported |= d.kind != KI_D_INDEX;
        t->overflowed |= !t->bracket;
        return none;
    }
    ki_pval r = typed(to, out);
    if (to.kind == KI_D_REAL) memcpy(&r.f, &out, 8);
    return r;
}

static ki_int128 floor_quotient(ki_int128 a, ki_int128 b) {
    ki_int128 q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static ki_pval on_numbers(kn_op op, ki_int128 a, ki_int128 b) {
    bool small = a < LIMIT && a > -LIMIT && b < LIMIT && b > -LIMIT;
    switch (op) {
    case KN_ADD: return integer(a + b);
    case KN_SUB: return integer(a - b);
    case KN_MUL: return small ? integer(a * b) : none;
    case KN_MAX: return integer(a > b ? a : b);
    case KN_IDIV: return integer(b ? floor_quotient(a, b) : 0);
    case KN_MOD: return integer(b ? a - floor_quotient(a, b) * b : 0);
    case KN_AND: return integer(a & b);
    case KN_OR: return integer(a | b);
    case KN_XOR: return integer(a ^ b);
    case KN_SHL: return b < 0 || b > 50 || !small ? none : integer(a * ((ki_int128)1 << b));
    case KN_SHR: return b < 0 || b > 64 ? none : integer(a >> b);
    case KN_CMPLT: return truth(a < b);
    case KN_CMPGT: return truth(a > b);
    case KN_CMPLE: return truth(a <= b);
    case KN_CMPGE: return truth(a >= b);
    case KN_CMPEQ: return truth(a == b);
    case KN_CMPNE: return truth(a != b);
    default: return none;
    }
}

static ki_pval on_reals(kn_op op, double a, double b) {
    switch (op) {
    case KN_ADD: return real(a + b);
    case KN_SUB: return real(a - b);
    case KN_MUL: return real(a * b);
    case KN_DIV: return real(a / b);
    case KN_MAX: return real(a > b ? a : b);
    case KN_CMPLT: return truth(a < b);
    case KN_CMPGT: return truth(a > b);
    case KN_CMPLE: return truth(a <= b);
    case KN_CMPGE: return truth(a >= b);
    case KN_CMPEQ: return truth(a == b);
    case KN_CMPNE: return truth(a != b);
    default: return none;
    }
}

/* Any op on any mix of values, as `[...]` and guards have them. */
static ki_pval operate(ki_theorem *t, kn_op op, ki_pval *v, unsigned n) {
    unsigned first = op == KN_WHERE;
    const ki_pval *like = NULL;
    for (unsigned k = 0; k < n; k++) {
        if (v[k].kind != KI_PV_POISON) continue;
        if (op != KN_WHERE || k == 0 || v[0].kind != KI_PV_TYPED) return v[k];
        return v[v[0].bits ? 1 : 2];
    }
    for (unsigned k = 0; k < n; k++) {
        if (v[k].kind == KI_PV_NONE) return none;
        if (v[k].kind == KI_PV_FREE) return is_compare(op) ? truth(chance(t)) : v[k];
        if (k >= first && v[k].kind == KI_PV_TYPED && !like) like = &v[k];
    }
    if (op == KN_NOT && v[0].kind == KI_PV_BOOL) return truth(!v[0].i);
    if (like) {
        for (unsigned k = 0; k < n; k++) v[k] = adopt(v[k], k < first ? bool_domain : like->d);
        for (unsigned k = 0; k < n; k++)
            if (v[k].kind == KI_PV_NONE) return none;
        ki_pval r = on_typed(t, op, v, n);
        note(t, &r);
        return r;
    }
    if (op == KN_WHERE && v[0].kind == KI_PV_BOOL) return v[0].i ? v[1] : v[2];
    if (op == KN_NEG) return v[0].kind == KI_PV_INT ? integer(-v[0].i) : real(-v[0].f);
    if (n != 2) return none;
    if (v[0].kind == KI_PV_ENUM || v[1].kind == KI_PV_ENUM || v[0].kind == KI_PV_BOOL) {
        if (op != KN_CMPEQ && op != KN_CMPNE) return none;
        return truth((v[0].i == v[1].i) == (op == KN_CMPEQ));
    }
    if (v[0].kind == KI_PV_INT && v[1].kind == KI_PV_INT) return on_numbers(op, v[0].i, v[1].i);
    double a = v[0].kind == KI_PV_INT ? (double)v[0].i : v[0].f, b = v[1].kind == KI_PV_INT ? (double)v[1].i : v[1].f;
    return on_reals(op, a, b);
}

/* ---- the left side ----------------------------------------------------------------------------------------- */

static ki_pval convert(ki_theorem *t, kn_op op, ki_pval v, ki_domain to) {
    uint64_t out;
    if (v.kind != KI_PV_TYPED || v.d.kind == KI_D_RATIO || to.kind == KI_D_RATIO || to.kind == KI_D_REAL ||
        v.d.kind == KI_D_REAL)
        return t->unsupported = true, none;
    kn_dtype from = (kn_dtype)v.d.dtype, d = (kn_dtype)to.dtype;
    if (t->scaled) {
        bool same = v.d.kind == KI_D_WORD && to.kind == KI_D_WORD && v.d.width == to.width;
        if (op == KN_BITCAST && !same) return none;
        if (to.kind == KI_D_BOOL) return typed(to, v.bits != 0);
        return typed(to, to.kind == KI_D_WORD ? ki_extend(v.bits, to.width, to.is_signed) : v.bits);
    }
    if (op == KN_BITCAST) {
        if (ki_dtypes[d].bits != ki_dtypes[from].bits || d == KN_BOOL || from == KN_BOOL) return none;
        return typed(to, ki_is_float(d) || !ki_is_sint(d) ? ki_extend(v.bits, ki_dtypes[d].bits, false)
                                                          : ki_extend(v.bits, ki_dtypes[d].bits, true));
    }
    return ki_scalar_cast(d, from, v.bits, &out) ? typed(to, out) : none;
}

ki_pval ki_theorem_left(ki_theorem *t, unsigned reg) {
    reg = ki_canonical(t, reg);
    const ki_pat *p = &t->set->pat[t->rule->pat + reg];
    if (t->leaf[reg]) {
        note(t, &t->value[reg]);
        return t->value[reg];
    }
    if (p->kind == KI_P_LIT) {
        ki_pval v = ki_theorem_term(t, p->term);
        bool wrong = v.kind == KI_PV_REAL && t->dom[reg].kind != KI_D_FLOAT && t->dom[reg].kind != KI_D_RATIO &&
                     t->dom[reg].kind != KI_D_REAL;
        return wrong || (v.kind == KI_PV_BOOL && t->dom[reg].kind != KI_D_BOOL) ? none : adopt(v, t->dom[reg]);
    }
    ki_pval v[4];
    unsigned op = p->op == KI_OP_COUNT ? t->op[reg] : p->op;
    for (unsigned k = 0; k < t->nkid[reg]; k++) {
        v[k] = ki_theorem_left(t, t->kid[reg][k]);
        if (v[k].kind == KI_PV_NONE) return none;
    }
    if (op == KN_INVALID) return (ki_pval){.kind = KI_PV_POISON};
    if (op == KN_CAST || op == KN_BITCAST) return convert(t, (kn_op)op, v[0], t->dom[reg]);
    return operate(t, (kn_op)op, v, t->nkid[reg]);
}

/* ---- terms ------------------------------------------------------------------------------------------------- */

static ki_pval bound(ki_theorem *t, unsigned reg, bool high) {
    reg = ki_canonical(t, reg);
    const ki_pat *p = &t->set->pat[t->rule->pat + reg];
    if (p->kind == KI_P_CONST || p->kind == KI_P_LIT) {
        ki_pval v = ki_theorem_left(t, reg);
        return is_nan(&v) ? none : settle(v);
    }
    return settle(high ? t->hi[reg] : t->lo[reg]);
}

static ki_pval on_node(ki_theorem *t, ki_builtin b, unsigned reg) {
    ki_domain d = t->dom[reg];
    const ki_pat *p = &t->set->pat[t->rule->pat + ki_canonical(t, reg)];
    kn_dtype dt = (kn_dtype)d.dtype;
    bool wide = d.kind == KI_D_INDEX;
    switch (b) {
    case KI_B_lo: return bound(t, reg, false);
    case KI_B_hi: return bound(t, reg, true);
    case KI_B_bounded: return truth(bound(t, reg, false).kind != KI_PV_NONE);
    case KI_B_width: return integer(d.kind == KI_D_WORD ? d.width : d.kind == KI_D_BOOL ? 1 : ki_dtypes[dt].bits);
    case KI_B_least:
        return wide || d.kind >= KI_D_FLOAT ? none : integer(d.is_signed ? -((ki_int128)1 << (d.width - 1)) : 0);
    case KI_B_most: return wide || d.kind >= KI_D_FLOAT ? none : integer(((ki_int128)1 << (d.width - d.is_signed)) - 1);
    case KI_B_dtype: return (ki_pval){.kind = KI_PV_ENUM, .i = dt};
    case KI_B_isconst:
        return p->kind == KI_P_CONST || p->kind == KI_P_LIT ? truth(true)
               : p->kind == KI_P_NODE                       ? truth(false)
                                                            : truth(chance(t));
    case KI_B_isnan: {
        ki_pval v = ki_theorem_left(t, reg);
        return truth(p->kind != KI_P_ANY && is_nan(&v));
    }
    case KI_B_symbolic:
    case KI_B_sameshape:
    case KI_B_before: return truth(chance(t));
    default: return (ki_pval){.kind = KI_PV_FREE};
    }
}

static ki_pval on_integers(ki_builtin b, const ki_pval *v) {
    ki_int128 x = v[0].i, y = v[1].i;
    if (v[0].kind != KI_PV_INT || (b != KI_B_abs && v[1].kind != KI_PV_INT)) return none;
    if (b == KI_B_abs) return integer(x < 0 ? -x : x);
    if (b == KI_B_min) return integer(x < y ? x : y);
    x = x < 0 ? -x : x, y = y < 0 ? -y : y;
    while (y) {
        ki_int128 r = x % y;
        x = y;
        y = r;
    }
    return integer(x);
}

/* Operands of functions of integers are mathematical, wherever they stand. */
static ki_pval guard_value(ki_theorem *t, unsigned term);

static ki_pval builtin(ki_theorem *t, const ki_term *s) {
    const ki_term *a = s->nkid ? &t->term[t->set->kid[s->kid]] : NULL;
    if (s->x == KI_B_abs || s->x == KI_B_min || s->x == KI_B_gcd) {
        ki_pval v[2] = {none, none};
        for (unsigned k = 0; k < s->nkid && k < 2; k++) v[k] = settle(guard_value(t, t->set->kid[s->kid + k]));
        return on_integers((ki_builtin)s->x, v);
    }
    if (!a || a->kind != KI_T_NAME) return (ki_pval){.kind = KI_PV_FREE};
    const ki_rname *n = &t->set->rname[t->rule->rname + a->x];
    if (n->kind != KI_N_NODE && n->kind != KI_N_CONST) return (ki_pval){.kind = KI_PV_FREE};
    return on_node(t, (ki_builtin)s->x, n->reg);
}

/* Host functions of integers are called; what depends on nodes is left open. */
static ki_pval host(ki_theorem *t, const ki_term *s) {
    const ki_extern *e = &t->set->ext[s->x];
    ki_val arg[8], out = {.kind = KI_V_NONE};
    for (unsigned k = 0; k < s->nkid && k < 8; k++) {
        ki_pval v = settle(guard_value(t, t->set->kid[s->kid + k]));
        if (e->types[k] != 'i' || v.kind == KI_PV_FREE || !e->fn) {
            if (e->result == 'b') return truth(chance(t));
            t->unsupported = true;
            return none;
        }
        if (v.kind != KI_PV_INT) return none;
        arg[k] = (ki_val){.kind = KI_V_INT, .i = v.i};
    }
    ki_match m = {.set = t->set, .rule = t->rule};
    if (!e->fn(&m, arg, s->nkid, &out)) return none;
    return out.kind == KI_V_BOOL ? truth(out.i) : out.kind == KI_V_INT ? integer(out.i) : none;
}

static ki_pval name(ki_theorem *t, unsigned x) {
    const ki_rname *n = &t->set->rname[t->rule->rname + x];
    if (n->kind == KI_N_NODE || n->kind == KI_N_CONST) return ki_theorem_left(t, n->reg);
    if (n->kind == KI_N_OP) return (ki_pval){.kind = KI_PV_ENUM, .i = t->op[n->reg]};
    if (n->kind == KI_N_ARG && n->field == KI_F_DTYPE) return (ki_pval){.kind = KI_PV_ENUM, .i = t->dom[n->reg].dtype};
    return (ki_pval){.kind = KI_PV_FREE};
}

static ki_domain term_domain(const ki_theorem *t, const ki_term *s) {
    if (s->dtype_reg != KI_NOREG) return t->dom[s->dtype_reg];
    if (s->dtype == KN_BOOL) return bool_domain;
    for (unsigned k = 0; k < t->rule->npat; k++)
        if (t->dom[k].dtype == s->dtype) return t->dom[k];
    if (t->scaled && s->dtype != KN_IDX && s->dtype != KI_DTYPE_COUNT) return ki_scaled_word((kn_dtype)s->dtype);
    if (s->dtype == KN_IDX)
        return (ki_domain){.kind = KI_D_INDEX, .width = 64, .is_signed = 1, .dtype = KN_IDX, .reach = 6};
    return s->dtype == KI_DTYPE_COUNT ? t->dom[0]
                                      : (ki_domain){.kind = ki_is_float((kn_dtype)s->dtype) ? KI_D_FLOAT : KI_D_WORD,
                                                    .dtype = s->dtype,
                                                    .width = ki_dtypes[s->dtype].bits,
                                                    .is_signed = ki_is_sint((kn_dtype)s->dtype),
                                                    .reach = 30,
                                                    .sampled = true};
}

static ki_domain dtype_domain(const ki_theorem *t, kn_dtype d) {
    ki_term s = {.dtype = (uint8_t)d, .dtype_reg = KI_NOREG};
    return term_domain(t, &s);
}

static ki_pval operation(ki_theorem *t, const ki_term *s) {
    ki_pval v[4];
    kn_op op = (kn_op)s->op;
    if (s->nkid > 4 || (s->kind == KI_T_FOLD && s->nkid < 2)) return t->unsupported = true, none;
    for (unsigned k = 0; k < s->nkid; k++) v[k] = ki_theorem_term(t, t->set->kid[s->kid + k]);
    if (s->kind == KI_T_OPNAME) op = (kn_op)t->op[t->set->rname[t->rule->rname + s->x].reg];
    if (s->kind == KI_T_FOLD) return v[0].kind == KI_PV_ENUM ? operate(t, (kn_op)v[0].i, v + 1, s->nkid - 1u) : none;
    if (op == KN_CAST || op == KN_BITCAST) {
        ki_pval to = s->narg ? ki_theorem_term(t, t->set->kid[s->kid + s->nkid]) : none;
        return to.kind == KI_PV_ENUM ? convert(t, op, v[0], dtype_domain(t, (kn_dtype)to.i)) : none;
    }
    if (op == KN_INVALID) return (ki_pval){.kind = KI_PV_POISON};
    if (!ki_is_elementwise(op)) return t->unsupported = true, none;
    if (s->flags & KI_TF_DIV)
        for (unsigned k = 0; k < 2; k++)
            if (v[k].kind == KI_PV_REAL || (v[k].kind == KI_PV_TYPED && v[k].d.kind >= KI_D_FLOAT)) op = KN_DIV;
    return operate(t, op, v, s->nkid);
}

ki_pval ki_theorem_term(ki_theorem *t, unsigned term) {
    const ki_term *s = &t->term[term];
    switch ((ki_tkind)s->kind) {
    case KI_T_NAME: return name(t, s->x);
    case KI_T_INT:
    case KI_T_FLOAT:
    case KI_T_BOOL: {
        ki_number x = t->set->number[s->at];
        ki_pval v = s->kind == KI_T_FLOAT ? real(x.f) : s->kind == KI_T_BOOL ? truth(x.i) : integer(x.i);
        bool context = s->dtype_reg != KI_NOREG || s->dtype != KI_DTYPE_COUNT;
        return context ? adopt(v, term_domain(t, s)) : v;
    }
    case KI_T_ENUM: return (ki_pval){.kind = KI_PV_ENUM, .i = s->which};
    case KI_T_OP:
    case KI_T_OPNAME:
    case KI_T_FOLD: return operation(t, s);
    case KI_T_EXPR: {
        t->bracket++;
        ki_pval v = ki_theorem_term(t, t->set->kid[s->kid]);
        t->bracket--;
        bool context = s->dtype_reg != KI_NOREG || s->dtype != KI_DTYPE_COUNT;
        return context ? adopt(v, term_domain(t, s)) : v;
    }
    case KI_T_BUILTIN: return builtin(t, s);
    case KI_T_CALL: return host(t, s);
    default: t->unsupported = true; return none;
    }
}

ki_pval ki_theorem_right(ki_theorem *t) { return adopt(ki_theorem_term(t, t->rule->rhs), t->dom[0]); }

/* ---- guards: over numbers, not over values of a dtype ------------------------------------------------------- */

static ki_pval guard_value(ki_theorem *t, unsigned term) {
    const ki_term *s = &t->term[term];
    ki_pval v[4];
    if (s->kind == KI_T_AND || s->kind == KI_T_OR) {
        bool decides = s->kind == KI_T_OR;
        ki_pval a = guard_value(t, t->set->kid[s->kid]);
        if (a.kind == KI_PV_BOOL && (a.i != 0) == decides) return a;
        ki_pval b = guard_value(t, t->set->kid[s->kid + 1]);
        if (b.kind == KI_PV_BOOL && (b.i != 0) == decides) return b;
        return a.kind == KI_PV_BOOL && b.kind == KI_PV_BOOL ? b : none;
    }
    if (s->kind != KI_T_OP || s->op == KN_CAST || s->op == KN_BITCAST) return settle(ki_theorem_term(t, term));
    if (s->nkid > 4) return none;
    for (unsigned k = 0; k < s->nkid; k++) v[k] = guard_value(t, t->set->kid[s->kid + k]);
    kn_op op = (kn_op)s->op;
    if (s->flags & KI_TF_DIV && (v[0].kind == KI_PV_REAL || v[1].kind == KI_PV_REAL)) op = KN_DIV;
    return operate(t, op, v, s->nkid);
}

int ki_theorem_guard(ki_theorem *t) {
    if (!t->guard) return 1;
    ki_pval v = guard_value(t, t->guard);
    if (v.kind == KI_PV_FREE) return chance(t);
    return v.kind == KI_PV_BOOL ? v.i != 0 : -1;
}

/* ---- comparing and printing -------------------------------------------------------------------------------- */

bool ki_theorem_equal(const ki_theorem *t, const ki_pval *a, const ki_pval *b) {
    if (a->kind == KI_PV_POISON && b->kind == KI_PV_POISON) return true;
    if (a->kind != KI_PV_TYPED || b->kind != KI_PV_TYPED) return false;
    if (a->d.kind == KI_D_RATIO) return a->i == b->i && a->den == b->den;
    if (a->d.kind == KI_D_REAL) {
        if (isnan(a->f) || isnan(b->f)) return isnan(a->f) && isnan(b->f);
        if (isinf(a->f) || isinf(b->f)) return a->f == b->f;
        return a->f == b->f || fabs(a->f - b->f) <= 1e-9 * (t->scale + 1e-6);
    }
    if (a->bits == b->bits) return true;
    if (a->d.kind != KI_D_FLOAT) return false;
    if (is_nan(a) && is_nan(b)) return true;
    kn_dtype d = (kn_dtype)a->d.dtype;
    /* Neighbours of one sign: what an approximation, rounded to 16 bits once more, may give. (To 8 bits all values agree.) */
    bool few = a->d.width == 16 && !is_nan(a) && !is_nan(b);
    if (t->rule->fp & KI_FP_AFN && few && (a->bits + 1 == b->bits || b->bits + 1 == a->bits)) return true;
    return t->rule->fp & KI_FP_NSZ && ki_f64_from_bits(d, a->bits) == 0 && ki_f64_from_bits(d, b->bits) == 0;
}

void ki_pval_print(const ki_pval *v, ki_text *out) {
    ki_pval s = settle(*v);
    if (v->kind == KI_PV_TYPED && v->d.kind == KI_D_RATIO && v->den != 1)
        ki_text_printf(out, "%lld/%lld", (long long)v->i, (long long)v->den);
    else if (s.kind == KI_PV_REAL) ki_text_printf(out, "%.9g", s.f);
    else if (s.kind == KI_PV_BOOL) ki_text_put(out, s.i ? "true" : "false");
    else if (s.kind == KI_PV_INT && s.i > INT64_MAX) ki_text_printf(out, "%llu", (unsigned long long)s.i);
    else if (s.kind == KI_PV_INT) ki_text_printf(out, "%lld", (long long)s.i);
    else ki_text_put(out, v->kind == KI_PV_POISON ? "invalid" : "?");
}
