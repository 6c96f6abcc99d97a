/* generate.h: random tensor programs, from the op table and a seed.
 *
 * A pool of values grows step by step: an op of ops.def on values of the pool (made to fit by the conversions a front end
 * would insert), a view, a reduction, or one of the compositions that the passes look for (prefix sums, one-hot gathers,
 * softmax, windows, assignments). What nothing has used is an output. The same seed is the same program everywhere.
 *
 * The first letter of an input's name says what its data is made of (data.h): q quarters, r reals, s special values,
 * w whole range, i integers of the port's range. */
#ifndef GENERATE_H
#define GENERATE_H

#include "base/hash.h"
#include "ir/program.h"

#include <stdio.h>
#include <string.h>

enum { POOL = 96, NUMEL = 1200 };

typedef struct gen {
    ki_ir *ir;
    ki_program *p;
    uint64_t state;
    kn_uop val[POOL];
    bool used[POOL];
    unsigned n, nin;
    kn_dtype palette[3]; /* dtypes this program prefers */
    kn_uop assigned[8];  /* params with an assignment */
    unsigned nassigned;
    kn_uop must[8]; /* outputs: what was assigned */
    unsigned nmust;
    const char *kinds; /* letters of inputs */
} gen;

static uint32_t dice(gen *g, uint32_t n) {
    g->state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((ki_mix(g->state) >> 33) % n);
}
static bool chance(gen *g, uint32_t percent) { return dice(g, 100) < percent; }

static const kn_dtype data_dtypes[] = {KN_BOOL, KN_U8,     KN_U16,    KN_U32, KN_U64,  KN_I8,  KN_I16, KN_I32,
                                       KN_I64,  KN_F8E4M3, KN_F8E5M2, KN_F16, KN_BF16, KN_F32, KN_F64};
enum { NDATA = sizeof data_dtypes / sizeof *data_dtypes };

static kn_dtype preferred = KN_VOID; /* of two dtypes in three a program prefers (--prefer) */
static kn_dtype liked_dtype(gen *g, unsigned percent, int i) {
    if (preferred != KN_VOID && i < 2) return preferred;
    return chance(g, percent) ? KN_F32 : data_dtypes[dice(g, NDATA)];
}
static kn_dtype any_dtype(gen *g) { return chance(g, 70) ? g->palette[dice(g, 3)] : data_dtypes[dice(g, NDATA)]; }

static int64_t any_dim(gen *g) {
    static const int64_t common[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 65};
    return common[dice(g, chance(g, 70) ? 10 : 18)];
}
static unsigned any_shape(gen *g, int64_t *dim) {
    unsigned rank = chance(g, 6) ? 0 : 1 + dice(g, chance(g, 80) ? 3 : 5);
    int64_t numel = 1;
    for (unsigned k = 0; k < rank; k++) {
        dim[k] = any_dim(g);
        if (numel * dim[k] > NUMEL) dim[k] = 1;
        numel *= dim[k];
    }
    if (rank && chance(g, 2)) dim[dice(g, rank)] = 0;
    return rank;
}

static kn_uop keep(gen *g, kn_uop u) {
    if (!u) return NULL;
    for (unsigned i = 0; i < g->n; i++)
        if (g->val[i] == u) return u;
    if (g->n < POOL) g->used[g->n] = false, g->val[g->n++] = u;
    return u;
}
static kn_uop take(gen *g) {
    if (!g->n) return NULL;
    unsigned i = chance(g, 60) ? g->n - 1 - dice(g, g->n < 4 ? g->n : 4) : dice(g, g->n);
    g->used[i] = true;
    return g->val[i];
}
static kn_uop input(gen *g, kn_dtype t, const int64_t *dim, unsigned rank, char kind, double lo, double hi) {
    char name[16];
    snprintf(name, sizeof name, "%c%u", kind, g->nin++);
    kn_uop u = ki_param_make(g->ir, -1, t, KN_GLOBAL, 0, name, NULL, ki_shape_src(g->ir, dim, rank));
    if (!u || !ki_program_port(g->p, false, name, strlen(name), u)) return NULL;
    ki_port *q = &g->p->in[g->p->nin - 1];
    if (kind == 'i' || kind == 'r') q->ranged = true, q->lo = lo, q->hi = hi;
    return u;
}
static kn_uop any_input(gen *g, kn_dtype t, const int64_t *dim, unsigned rank) {
    char kind = g->kinds[dice(g, (uint32_t)strlen(g->kinds))];
    if (kind == 'r' && !ki_is_float(t)) kind = 'q';
    return input(g, t, dim, rank, kind, -3, 3);
}

static kn_uop constant(gen *g, kn_dtype t) {
    static const double some[] = {0, 1, 2, 3, -1, 0.5, -2, 0.25, 7, -0.0, 5, -3, 16, 100};
    if (t == KN_BOOL) return ki_const_int(g->ir, t, dice(g, 2));
    if (chance(g, 5)) {
        if (!ki_is_float(t)) return ki_const_int(g->ir, t, chance(g, 50) ? ki_int_min(t) : ki_int_max(t));
        return ki_const_float(g->ir, t, (double[]){1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 1e-30}[dice(g, 4)]);
    }
    double v = some[dice(g, sizeof some / sizeof *some)];
    return ki_is_float(t) ? ki_const_float(g->ir, t, v) : ki_const_int(g->ir, t, (int64_t)v);
}

/* ---- fitting ------------------------------------------------------------------------------------------------ */

static kn_uop flat(gen *g, kn_uop v) { return ki_reshape(g->ir, v, (int64_t[]){ki_numel(v)}, 1); }
static bool rough(gen *g, kn_uop u);
static kn_uop total(gen *g, kn_uop v, kn_op op, uint32_t axes);
static kn_uop to_dtype(gen *g, kn_uop v, kn_dtype t) {
    if (v && !ki_is_float(t) && rough(g, v) && dice(g, 400)) { /* its bits would be anybody's guess */
        int64_t dim[KI_MAX_RANK];
        for (unsigned k = 0; k < ki_rank(v); k++) dim[k] = ki_dim_n(v, k);
        return any_input(g, t, dim, ki_rank(v));
    }
    return v ? ki_cast(g->ir, v, t) : NULL;
}

static kn_uop spread(gen *g, kn_uop v, const int64_t *dim, unsigned rank) { /* a single element everywhere */
    int64_t one[KI_MAX_RANK];
    for (unsigned k = 0; k < rank; k++) one[k] = 1;
    return ki_expand(g->ir, ki_reshape(g->ir, v, one, rank), dim, rank);
}

static kn_uop fit(gen *g, kn_uop v, const int64_t *dim, unsigned rank) {
    int64_t n = 1;
    for (unsigned k = 0; k < rank; k++) n *= dim[k];
    if (!v) return NULL;
    if (ki_numel(v) == n) return ki_reshape(g->ir, v, dim, rank);
    if (ki_numel(v) == 1) return ki_rank(v) == 0 && chance(g, 50) ? v : spread(g, v, dim, rank);
    for (unsigned k = 0; k < rank; k++)
        if (dim[k] == ki_numel(v) && v->type->numel > 0) {
            int64_t one[KI_MAX_RANK];
            for (unsigned j = 0; j < rank; j++) one[j] = j == k ? dim[k] : 1;
            return ki_expand(g->ir, ki_reshape(g->ir, v, one, rank), dim, rank);
        }
    if (ki_numel(v) == 0 || chance(g, 30)) {
        kn_uop r = total(g, v, chance(g, 50) ? KN_ADD : KN_MAX, (1u << ki_rank(v)) - 1u);
        return spread(g, r, dim, rank);
    }
    v = flat(g, v);
    int64_t have = ki_numel(v);
    v = have > n ? ki_shrink(g->ir, v, (int64_t[]){dice(g, (uint32_t)(have - n) + 1)}, &n)
                 : ki_pad(g->ir, v, (int64_t[]){dice(g, (uint32_t)(n - have) + 1)}, &n);
    return ki_reshape(g->ir, v, dim, rank);
}

static void dims_of(kn_uop v, int64_t *dim) {
    for (unsigned k = 0; k < ki_rank(v); k++) dim[k] = ki_dim_n(v, k);
}

/* Another operand for an op on a: its dtype t, its shape a's or (). */
static kn_uop partner(gen *g, kn_uop a, kn_dtype t) {
    int64_t dim[KI_MAX_RANK];
    dims_of(a, dim);
    uint32_t way = dice(g, 100);
    if (way < 30)
        for (unsigned i = g->n; i-- > 0;)
            if (g->val[i]->dtype == t && ki_same_shape(g->val[i], a) && chance(g, 50))
                return g->used[i] = true, g->val[i];
    if (way < 55) return constant(g, t);
    if (way < 85) return fit(g, to_dtype(g, take(g), t), dim, ki_rank(a));
    return any_input(g, t, dim, ki_rank(a));
}

/* ---- certainty ---------------------------------------------------------------------------------------------- */

/* Known only up to an error bound: some function or float sum lies below. */
static bool rough(gen *g, kn_uop u) {
    kn_uop *order;
    if (!u || !ki_is_float((kn_dtype)u->dtype)) return false;
    int64_t n = ki_toposort(g->ir, &u, 1, &order);
    bool r = false;
    for (int64_t i = 0; i < n && !r; i++) {
        kn_op op = (kn_op)order[i]->op;
        r = op == KN_EXP || op == KN_EXP2 || op == KN_LOG || op == KN_LOG2 || op == KN_SIN || op == KN_COS ||
            op == KN_TAN || op == KN_TANH || op == KN_ERF || op == KN_POW ||
            (op == KN_REDUCE && ki_is_float((kn_dtype)order[i]->dtype) && order[i]->arg.reduce.op != KN_MAX);
    }
    if (n >= 0) ki_free(order);
    return r;
}
/* Ops that turn a small error into any: the interpreter then exempts the element, so these are seldom made of rough values. */
static bool jumps(kn_op op) {
    switch (op) {
    case KN_CMPLT:
    case KN_CMPGT:
    case KN_CMPGE:
    case KN_CMPLE:
    case KN_CMPEQ:
    case KN_CMPNE:
    case KN_TRUNC:
    case KN_RECIP:
    case KN_DIV:
    case KN_TAN:
    case KN_POW:
    case KN_LOG:
    case KN_LOG2:
    case KN_EXP:
    case KN_EXP2:
    case KN_SIN:
    case KN_COS:
    case KN_SQRT: return true;
    default: return false;
    }
}

/* A reduction as the front end makes it: small floats are summed in f32, and no product is so long that it overflows. Else an
 * order of the terms decides what comes out. A few are left as they are. */
static kn_uop total(gen *g, kn_uop v, kn_op op, uint32_t axes) {
    if (!v || !ki_is_float((kn_dtype)v->dtype) || op == KN_MAX || dice(g, 25) == 0)
        return ki_reduce(g->ir, v, op, axes);
    kn_dtype t = (kn_dtype)v->dtype;
    int64_t n = 1;
    for (unsigned k = 0; k < ki_rank(v); k++)
        if (axes >> k & 1) n *= ki_dim_n(v, k);
    if (op == KN_MUL && n > 24) op = KN_ADD;
    if (ki_dtypes[t].bits > 16 || n < 4) return ki_reduce(g->ir, v, op, axes);
    return ki_cast(g->ir, ki_reduce(g->ir, ki_cast(g->ir, v, KN_F32), op, axes), t);
}

/* ---- steps -------------------------------------------------------------------------------------------------- */

static bool allowed(kn_op op, kn_dtype t) {
    uint16_t f = ki_ops[op].flags;
    if (op == KN_CAST || op == KN_INS || (op == KN_THREEFRY && t != KN_U64)) return false;
    return !((f & KI_FLOAT && !ki_is_float(t)) || (f & KI_INT && ki_is_float(t)) || (f & KI_NUM && t == KN_BOOL));
}

static kn_uop elementwise(gen *g) {
    kn_uop a = take(g);
    kn_dtype t = (kn_dtype)a->dtype;
    kn_op op;
    if (chance(g, 4)) a = to_dtype(g, a, t = KN_U64);
    do op = (kn_op)dice(g, KI_OP_COUNT);
    while (!ki_is_elementwise(op) || !allowed(op, t));
    if (jumps(op) && rough(g, a) && dice(g, 400)) return a;
    if (op == KN_WHERE) {
        kn_uop p = partner(g, a, KN_BOOL), b = partner(g, a, t);
        if (chance(g, 60)) p = ki_op2(g->ir, KN_CMPLT, a, b);
        return chance(g, 50) ? ki_op3(g->ir, op, p, a, b) : ki_op3(g->ir, op, p, b, a);
    }
    if (ki_ops[op].most == 1) return ki_op1(g->ir, op, a);
    if (ki_ops[op].most == 2) {
        kn_uop b = partner(g, a, t);
        if (jumps(op) && rough(g, b) && dice(g, 400)) return a;
        bool compares = op == KN_CMPLT || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE;
        if (compares && t != KN_BOOL && chance(g, 40)) b = ki_op2(g->ir, KN_MAX, a, b); /* equals are seldom met otherwise */
        return chance(g, 60) ? ki_op2(g->ir, op, a, b) : ki_op2(g->ir, op, b, a);
    }
    if (rough(g, a) && ki_dtypes[t].bits <= 16) return a; /* its sums leave the range of small floats */
    return ki_op3(g->ir, op, a, partner(g, a, t), partner(g, a, t));
}

static kn_uop reshaped(gen *g, kn_uop v) {
    int64_t dim[KI_MAX_RANK], out[KI_MAX_RANK];
    unsigned rank = ki_rank(v), n = 0;
    dims_of(v, dim);
    for (unsigned k = 0; k < rank; k++) {
        if (n && chance(g, 40)) {
            out[n - 1] *= dim[k];
            continue;
        }
        for (int64_t d = 2; d < dim[k] && n < 5; d++)
            if (dim[k] % d == 0 && chance(g, 30)) out[n++] = d, dim[k] /= d;
        if (n < 8) out[n++] = dim[k];
        else out[n - 1] *= dim[k];
        if (n < 6 && chance(g, 15)) out[n++] = 1;
    }
    return ki_reshape(g->ir, v, out, n);
}

static kn_uop padded(gen *g, kn_uop v, bool pad) {
    int64_t dim[KI_MAX_RANK], off[KI_MAX_RANK];
    unsigned rank = ki_rank(v);
    int64_t numel = 1;
    for (unsigned k = 0; k < rank; k++) {
        int64_t d = ki_dim_n(v, k), m = pad ? d + dice(g, 4) : d - (d > 0 ? dice(g, (uint32_t)(d > 6 ? 6 : d)) : 0);
        if (chance(g, 40) || numel * m > NUMEL) m = d;
        dim[k] = m;
        numel *= m;
        off[k] = m == d ? 0 : dice(g, (uint32_t)(m > d ? m - d : d - m) + 1);
    }
    return pad ? ki_pad(g->ir, v, off, dim) : ki_shrink(g->ir, v, off, dim);
}

static kn_uop expanded(gen *g, kn_uop v) {
    int64_t dim[KI_MAX_RANK], in[KI_MAX_RANK];
    unsigned rank = ki_rank(v), n = 0, at = rank > 6 ? 99 : dice(g, rank + 1);
    int64_t numel = ki_numel(v);
    for (unsigned k = 0; k <= rank; k++) {
        if (k == at) {
            int64_t m = 1 + dice(g, 6);
            in[n] = 1;
            dim[n++] = numel * m > NUMEL ? 1 : m;
            numel *= dim[n - 1];
        }
        if (k == rank) break;
        int64_t d = ki_dim_n(v, k), m = d == 1 && chance(g, 60) ? 1 + dice(g, 6) : d;
        if (d == 1 && numel * m > NUMEL) m = 1;
        if (d == 1) numel *= m;
        in[n] = d;
        dim[n++] = m;
    }
    return ki_expand(g->ir, ki_reshape(g->ir, v, in, n), dim, n);
}

static kn_uop movement(gen *g) {
    kn_uop v = take(g);
    unsigned rank = ki_rank(v);
    int64_t a[KI_MAX_RANK];
    switch (dice(g, 6)) {
    case 0:
        for (unsigned k = 0; k < rank; k++) a[k] = k;
        for (unsigned k = rank; k > 1; k--) {
            unsigned j = dice(g, k);
            int64_t t = a[k - 1];
            a[k - 1] = a[j], a[j] = t;
        }
        return ki_permute(g->ir, v, a, rank);
    case 1: {
        unsigned n = 0;
        for (unsigned k = 0; k < rank; k++)
            if (chance(g, 50)) a[n++] = k;
        return ki_flip(g->ir, v, a, n);
    }
    case 2: return padded(g, v, true);
    case 3: return padded(g, v, false);
    case 4: return expanded(g, v);
    default: /* alone, or of rows backwards and cut off in the middle: quotients of what may be negative */
        if (rank && chance(g, 50)) v = reshaped(g, padded(g, ki_flip(g->ir, v, (int64_t[]){rank - 1}, 1), true));
        else v = reshaped(g, v);
        return v && chance(g, 30) ? padded(g, v, false) : v;
    }
}

static kn_uop reduction(gen *g) {
    static const kn_op ops[] = {KN_ADD, KN_ADD, KN_MAX, KN_MUL};
    kn_uop v = take(g);
    unsigned rank = ki_rank(v), axes = rank ? 1 + dice(g, (1u << rank) - 1u) : 0;
    kn_op red = ops[dice(g, 4)];
    if ((red == KN_MUL || ki_dtypes[v->dtype].bits <= 16) && rough(g, v)) red = KN_MAX;
    kn_uop r = total(g, v, red, axes);
    if (!r || chance(g, 50)) return r;
    int64_t dim[KI_MAX_RANK];
    dims_of(v, dim);
    if (chance(g, 50)) { /* and back over the rows, as softmax does */
        kn_uop b = ki_expand(g->ir, r, dim, rank);
        kn_op op = allowed(KN_SUB, (kn_dtype)v->dtype) ? KN_SUB : KN_MAX;
        return ki_op2(g->ir, op, v, b);
    }
    unsigned n = 0;
    for (unsigned k = 0; k < rank; k++)
        if (!(axes >> k & 1)) dim[n++] = ki_dim_n(v, k);
    return ki_reshape(g->ir, r, dim, n);
}

static kn_uop cast(gen *g) {
    kn_uop v = take(g);
    kn_dtype t = any_dtype(g);
    if (rough(g, v) && dice(g, 400)) return ki_is_float(t) ? to_dtype(g, v, t) : v;
    if (chance(g, 60)) return to_dtype(g, v, t);
    unsigned from = ki_dtypes[v->dtype].bits, to = ki_dtypes[t].bits, rank = ki_rank(v);
    int64_t last = rank ? ki_dim_n(v, rank - 1) : 0;
    if (v->dtype == KN_BOOL || t == KN_BOOL || t == v->dtype) return to_dtype(g, v, t);
    if (from != to && (!rank || last * from % to)) return to_dtype(g, v, t);
    return ki_bitcast(g->ir, v, t);
}

static kn_uop stacked(gen *g) {
    kn_uop v = take(g), s[4] = {v};
    unsigned n = 1 + dice(g, 4);
    int64_t dim[KI_MAX_RANK];
    dims_of(v, dim);
    if (ki_rank(v) > 7 || ki_numel(v) * 4 > NUMEL) return v;
    for (unsigned i = 1; i < n; i++) {
        s[i] = partner(g, v, (kn_dtype)v->dtype);
        if (s[i] && !ki_same_shape(s[i], v)) s[i] = spread(g, s[i], dim, ki_rank(v));
    }
    return ki_opn(g->ir, KN_STACK, s, n);
}

static kn_uop indexed(gen *g) {
    kn_uop v = take(g), s[4] = {v};
    unsigned rank = ki_rank(v), n = 0;
    while (n < rank && n < 3 && ki_dim_n(v, n) > 0 && chance(g, n ? 40 : 100)) {
        int64_t d = ki_dim_n(v, n);
        if (chance(g, 50)) s[++n] = ki_index(g->ir, dice(g, (uint32_t)d));
        else
            s[n + 1] = input(g, chance(g, 70) ? KN_I32 : KN_U8, (int64_t[]){1 + dice(g, 5)}, chance(g, 90), 'i', 0,
                             (double)(d - 1)),
                  n++;
    }
    if (n == 0) return v;
    return ki_opn(g->ir, KN_INDEX, s, n + 1);
}

/* ---- compositions ------------------------------------------------------------------------------------------- */

/* Windows of k elements over the last axis: (..., L) to (..., L - k + 1, k), by the repeat-and-reshape way. */
static kn_uop windows(gen *g, kn_uop v, int64_t k) {
    unsigned rank = ki_rank(v), b = rank - 1;
    int64_t L = ki_dim_n(v, b), o = L - k + 1, d[KI_MAX_RANK], zero[KI_MAX_RANK] = {0};
    dims_of(v, d);
    d[b] = 1, d[b + 1] = L;
    v = ki_reshape(g->ir, v, d, rank + 1);
    d[b] = k + 1; /* k rows of L + 1: row j starts at element j */
    v = ki_expand(g->ir, v, d, rank + 1);
    d[b] = (k + 1) * L;
    v = ki_reshape(g->ir, v, d, rank);
    d[b] = k * (L + 1);
    v = ki_shrink(g->ir, v, zero, d);
    d[b] = k, d[b + 1] = L + 1;
    v = ki_reshape(g->ir, v, d, rank + 1);
    d[b + 1] = o;
    v = ki_shrink(g->ir, v, zero, d);
    int64_t order[KI_MAX_RANK];
    for (unsigned j = 0; j <= rank; j++) order[j] = j;
    order[b] = b + 1, order[b + 1] = b;
    return ki_permute(g->ir, v, order, rank + 1);
}

static kn_uop prefix(gen *g, kn_uop v, kn_op op,
                     bool before) { /* cumulative op over the last axis; before: without the own element */
    unsigned rank = ki_rank(v);
    int64_t L = ki_dim_n(v, rank - 1), d[KI_MAX_RANK], off[KI_MAX_RANK] = {0};
    dims_of(v, d);
    if (before && L > 1) d[rank - 1] = L - 1, v = ki_shrink(g->ir, v, off, d);
    else before = false;
    d[rank - 1] = 2 * L - 1;
    off[rank - 1] = before ? L : L - 1;
    kn_uop w = windows(g, ki_pad(g->ir, v, off, d), L), r = total(g, w, op, 1u << rank);
    d[rank - 1] = L;
    return ki_reshape(g->ir, r, d, rank);
}

static kn_uop arange(gen *g, int64_t n, kn_dtype t) {
    kn_uop one = ki_const_int(g->ir, t, 1);
    return ki_op2(g->ir, KN_SUB, prefix(g, spread(g, one, &n, 1), KN_ADD, false), one);
}

static kn_uop rows(gen *g, int64_t least, int64_t most) { /* a value of rank >= 1 whose last axis is least..most long */
    kn_uop v = take(g);
    unsigned rank = ki_rank(v);
    int64_t last = rank ? ki_dim_n(v, rank - 1) : 0;
    if (rank && rank < 5 && last >= least && last <= most && ki_numel(v) > 0) return v;
    int64_t dim[2] = {1 + dice(g, 5), least + dice(g, (uint32_t)(most - least + 1))};
    return fit(g, v, dim, 2);
}

static kn_uop ensure(gen *g, kn_uop v, int64_t rows_, int64_t cols) {
    int64_t d[2] = {rows_, cols};
    return v && ki_rank(v) == 0 ? spread(g, v, d, 2) : v;
}

static kn_uop softmax(gen *g) {
    kn_uop v = rows(g, 2, 33);
    if (!v || !ki_rank(v)) return v;
    if (!ki_is_float((kn_dtype)v->dtype)) v = to_dtype(g, v, KN_F32);
    unsigned a = ki_rank(v) - 1;
    int64_t dim[KI_MAX_RANK];
    dims_of(v, dim);
    kn_uop m = ki_expand(g->ir, ki_reduce(g->ir, v, KN_MAX, 1u << a), dim, a + 1);
    kn_uop e = ki_op1(g->ir, chance(g, 50) ? KN_EXP : KN_EXP2, ki_op2(g->ir, KN_SUB, v, m));
    kn_uop s = ki_expand(g->ir, total(g, e, KN_ADD, 1u << a), dim, a + 1);
    return ki_op2(g->ir, KN_DIV, e, s);
}

static kn_uop layernorm(gen *g) {
    kn_uop v = rows(g, 2, 33);
    if (!v || !ki_rank(v)) return v;
    if (!ki_is_float((kn_dtype)v->dtype)) v = to_dtype(g, v, KN_F32);
    unsigned a = ki_rank(v) - 1;
    int64_t dim[KI_MAX_RANK];
    dims_of(v, dim);
    kn_uop n = ki_const_float(g->ir, (kn_dtype)v->dtype, (double)dim[a]);
    kn_uop m = ki_op2(g->ir, KN_DIV, total(g, v, KN_ADD, 1u << a), n);
    kn_uop d = ki_op2(g->ir, KN_SUB, v, ki_expand(g->ir, m, dim, a + 1));
    kn_uop q = ki_op2(g->ir, KN_DIV, total(g, ki_op2(g->ir, KN_MUL, d, d), KN_ADD, 1u << a), n);
    kn_uop r = ki_op1(g->ir, KN_SQRT, ki_op2(g->ir, KN_ADD, q, ki_const_float(g->ir, (kn_dtype)v->dtype, 0.5)));
    return ki_op2(g->ir, KN_DIV, d, ki_expand(g->ir, r, dim, a + 1));
}

/* out[i, d] = sum over k of where(k = idx[i], table[k, d], -0.0) */
static kn_uop gather(gen *g) {
    kn_uop v = take(g);
    int64_t K = 2 + dice(g, 9), D = 1 + dice(g, 5), I = 1 + dice(g, 7), kd[2] = {K, D}, all[3] = {I, K, D};
    v = ensure(g, fit(g, v, kd, 2), K, D);
    kn_dtype t = chance(g, 70) ? KN_I32 : KN_I64;
    kn_uop i = input(g, t, &I, 1, 'i', chance(g, 80) ? 0 : -1, (double)(chance(g, 80) ? K - 1 : K));
    kn_uop k = ki_expand(g->ir, ki_reshape(g->ir, arange(g, K, t), (int64_t[]){1, K, 1}, 3), all, 3);
    kn_uop hit = ki_op2(g->ir, KN_CMPEQ, k, ki_expand(g->ir, ki_reshape(g->ir, i, (int64_t[]){I, 1, 1}, 3), all, 3));
    if (!v) return NULL;
    kn_uop x = ki_expand(g->ir, ki_reshape(g->ir, v, (int64_t[]){1, K, D}, 3), all, 3);
    kn_uop z = ki_is_float((kn_dtype)v->dtype) ? ki_const_float(g->ir, (kn_dtype)v->dtype, -0.0)
                                               : ki_const_int(g->ir, (kn_dtype)v->dtype, 0);
    kn_uop s = ki_reduce(g->ir, ki_op3(g->ir, KN_WHERE, hit, x, z), KN_ADD, 2);
    return ki_reshape(g->ir, s, (int64_t[]){I, D}, 2);
}

/* out[k, r] = sum over d of where(idx[d] = k, v[d, r], 0); sometimes with the axes in another order. Large enough for
 * rangeify to add each term where it belongs, and not. */
static kn_uop scatter(gen *g) {
    int64_t D = 2 + dice(g, 14), R = chance(g, 50) ? 1 : 1 + dice(g, 17), K = 1 + dice(g, 9), dr[2] = {D, R}, all[3];
    if (chance(g, 40)) K += 30;
    bool last = chance(g, 30);
    kn_uop v = fit(g, take(g), dr, 2);
    if (!v) return NULL;
    v = ki_rank(v) == 2 ? v : spread(g, v, dr, 2);
    kn_dtype t = chance(g, 70) ? KN_I32 : KN_I64;
    kn_uop i = input(g, t, &D, 1, 'i', chance(g, 80) ? 0 : -2,
                     chance(g, 80)   ? (double)K - 1
                     : chance(g, 50) ? 0
                                     : (double)K + 1);
    all[0] = D, all[last ? 1 : 2] = R, all[last ? 2 : 1] = K;
    int64_t at_k[3] = {1, last ? 1 : K, last ? K : 1}, at_r[3] = {D, last ? R : 1, last ? 1 : R};
    kn_uop k = ki_expand(g->ir, ki_reshape(g->ir, arange(g, K, t), at_k, 3), all, 3);
    kn_uop hit = ki_op2(g->ir, KN_CMPEQ, ki_expand(g->ir, ki_reshape(g->ir, i, (int64_t[]){D, 1, 1}, 3), all, 3), k);
    kn_uop x = ki_expand(g->ir, ki_reshape(g->ir, v, at_r, 3), all, 3);
    kn_uop z = ki_is_float((kn_dtype)v->dtype) && chance(g, 60) ? ki_const_float(g->ir, (kn_dtype)v->dtype, -0.0)
                                                                : ki_const_int(g->ir, (kn_dtype)v->dtype, 0);
    kn_uop s = total(g, ki_op3(g->ir, KN_WHERE, hit, x, z), KN_ADD, 1);
    return ki_reshape(g->ir, s, all + 1, 2);
}

static kn_uop matmul(gen *g) {
    int64_t I = any_dim(g), J = any_dim(g), K = any_dim(g);
    while (I * J * K > 4096) I = (I + 1) / 2, J = (J + 1) / 2;
    kn_uop a = take(g);
    kn_dtype t = (kn_dtype)a->dtype;
    int64_t ik[2] = {I, K}, kj[2] = {K, J}, all[3] = {I, K, J};
    a = ensure(g, fit(g, a, ik, 2), I, K);
    kn_uop b = chance(g, 50) ? any_input(g, t, kj, 2) : ensure(g, fit(g, to_dtype(g, take(g), t), kj, 2), K, J);
    a = ki_expand(g->ir, ki_reshape(g->ir, a, (int64_t[]){I, K, 1}, 3), all, 3);
    b = ki_expand(g->ir, ki_reshape(g->ir, b, (int64_t[]){1, K, J}, 3), all, 3);
    bool wide = ki_is_float(t) && ki_dtypes[t].bits <= 16 && chance(g, 70); /* as the front end multiplies them */
    if (wide) a = ki_cast(g->ir, a, KN_F32), b = ki_cast(g->ir, b, KN_F32);
    kn_uop s = total(g, ki_op2(g->ir, KN_MUL, a, b), KN_ADD, 2);
    return ki_reshape(g->ir, wide ? ki_cast(g->ir, s, t) : s, (int64_t[]){I, J}, 2);
}

/* A matrix of narrow factors, as it is or transposed. */
static kn_uop factor(gen *g, kn_dtype t, int64_t rows_, int64_t cols) {
    int64_t d[2] = {rows_, cols}, across[2] = {cols, rows_};
    if (chance(g, 50)) return input(g, t, d, 2, 'q', 0, 0);
    return ki_permute(g->ir, input(g, t, across, 2, 'q', 0, 0), (int64_t[]){1, 0}, 2);
}

/* A product of bf16 or bytes that is large enough for words (3_optimize/dots.c), often for tiles. */
static kn_uop dots(gen *g) {
    static const int64_t some[] = {8, 9, 16, 17, 31, 32, 33, 64};
    static const kn_dtype pairs[][2] = {{KN_BF16, KN_BF16}, {KN_U8, KN_I8}, {KN_I8, KN_I8}, {KN_I8, KN_U8}};
    int64_t I = some[dice(g, 5)], J = some[2 + dice(g, 4)], K = some[2 + dice(g, 6)];
    const kn_dtype *t = pairs[dice(g, 4)], sum = t[0] == KN_BF16 ? KN_F32 : KN_I32;
    if (chance(g, 50)) I = J = 16, K = t[0] == KN_BF16 && chance(g, 50) ? 32 : 64;
    while (I * J * K > 17000) K = (K + 1) / 2;
    int64_t all[3] = {I, K, J};
    kn_uop a = ki_cast(g->ir, factor(g, t[0], I, K), sum), b = ki_cast(g->ir, factor(g, t[1], K, J), sum);
    a = ki_expand(g->ir, ki_reshape(g->ir, a, (int64_t[]){I, K, 1}, 3), all, 3);
    b = ki_expand(g->ir, ki_reshape(g->ir, b, (int64_t[]){1, K, J}, 3), all, 3);
    kn_uop s = ki_reduce(g->ir, ki_op2(g->ir, KN_MUL, a, b), KN_ADD, 2);
    return ki_reshape(g->ir, s, (int64_t[]){I, J}, 2);
}

/* Running sums of what lies in memory, long enough for vectors of them (3_optimize/scan.c). */
static kn_uop running_sums(gen *g) {
    static const kn_dtype some[] = {KN_F32, KN_F32, KN_I32, KN_U16};
    int64_t d[2] = {1 + dice(g, 3), 16 * (1 + dice(g, 5))};
    kn_uop s = prefix(g, any_input(g, some[dice(g, 4)], d, 2), KN_ADD, chance(g, 20));
    return chance(g, 70) ? s : ki_op2(g->ir, KN_ADD, s, partner(g, s, (kn_dtype)s->dtype));
}

/* softmax(q k^T) v, of rows that exist or are new. */
static kn_uop attention(gen *g) {
    int64_t I = 1 + dice(g, 9), K = 2 + dice(g, 20), D = 1 + dice(g, 9), id[2] = {I, D}, kd[2] = {K, D},
            ikd[3] = {I, K, D}, ik[2] = {I, K};
    kn_uop q = take(g);
    kn_dtype t = ki_is_float((kn_dtype)q->dtype) && ki_dtypes[q->dtype].bits > 16 ? (kn_dtype)q->dtype : KN_F32;
    q = ensure(g, fit(g, to_dtype(g, q, t), id, 2), I, D);
    kn_uop k = any_input(g, t, kd, 2), v = chance(g, 50) ? k : any_input(g, t, kd, 2);
    kn_uop a = ki_expand(g->ir, ki_reshape(g->ir, q, (int64_t[]){I, 1, D}, 3), ikd, 3);
    kn_uop b = ki_expand(g->ir, ki_reshape(g->ir, k, (int64_t[]){1, K, D}, 3), ikd, 3);
    kn_uop s = ki_reshape(g->ir, ki_reduce(g->ir, ki_op2(g->ir, KN_MUL, a, b), KN_ADD, 4), ik, 2);
    kn_uop m = ki_expand(g->ir, ki_reduce(g->ir, s, KN_MAX, 2), ik, 2);
    kn_uop e =
        ki_op1(g->ir, KN_EXP, ki_op2(g->ir, KN_MUL, ki_op2(g->ir, KN_SUB, s, m), ki_const_float(g->ir, t, 0.125)));
    kn_uop p = ki_op2(g->ir, KN_DIV, e, ki_expand(g->ir, ki_reduce(g->ir, e, KN_ADD, 2), ik, 2));
    if (chance(g, 30)) keep(g, p);
    a = ki_expand(g->ir, ki_reshape(g->ir, p, (int64_t[]){I, K, 1}, 3), ikd, 3);
    b = ki_expand(g->ir, ki_reshape(g->ir, v, (int64_t[]){1, K, D}, 3), ikd, 3);
    return ki_reshape(g->ir, ki_reduce(g->ir, ki_op2(g->ir, KN_MUL, a, b), KN_ADD, 2), id, 2);
}

/* Several results of one size from the same rows: nests that could share a kernel. */
static kn_uop siblings(gen *g) {
    kn_uop v = take(g), w = partner(g, v, (kn_dtype)v->dtype), last = NULL;
    unsigned rank = ki_rank(v), axes = rank ? 1 + dice(g, (1u << rank) - 1u) : 0, n = 2 + dice(g, 3);
    int64_t dim[KI_MAX_RANK];
    dims_of(v, dim);
    bool whole = chance(g, 30); /* element by element */
    if (rank && !ki_rank(w)) w = spread(g, w, dim, rank);
    for (unsigned i = 0; i < n; i++) {
        static const kn_op ops[] = {KN_ADD, KN_MAX, KN_MUL};
        kn_uop x = chance(g, 50) ? ki_op2(g->ir, ops[dice(g, 3)], v, w) : chance(g, 50) ? w : v;
        last = whole ? x
                     : total(g, x, chance(g, 70) || rough(g, x) ? KN_ADD : KN_MAX,
                             chance(g, 80) ? axes
                             : rank        ? 1 + dice(g, (1u << rank) - 1u)
                                           : 0);
        if (i + 1 < n) keep(g, last);
    }
    return last;
}

static kn_uop window_op(gen *g) {
    kn_uop v = rows(g, 2, 17);
    if (!v || !ki_rank(v) || ki_rank(v) > 5 || ki_numel(v) * ki_dim_n(v, ki_rank(v) - 1) > 8000) return v;
    unsigned rank = ki_rank(v);
    int64_t L = ki_dim_n(v, rank - 1), k = 1 + dice(g, (uint32_t)(L > 5 ? 5 : L));
    uint32_t way = dice(g, 4);
    if (way == 0) return prefix(g, v, KN_ADD, chance(g, 30));
    if (way == 1) return prefix(g, v, chance(g, 50) ? KN_MAX : KN_MUL, chance(g, 30));
    kn_uop w = windows(g, v, k);
    if (!w || chance(g, 30)) return w;
    if (way == 2) return ki_reduce(g->ir, w, KN_MAX, 1u << rank);
    int64_t d[KI_MAX_RANK];
    dims_of(w, d);
    kn_uop f = spread(g, any_input(g, (kn_dtype)w->dtype, NULL, 0), &k, 1);
    if (chance(g, 80)) f = any_input(g, (kn_dtype)w->dtype, &k, 1);
    int64_t one[KI_MAX_RANK];
    for (unsigned j = 0; j < rank + 1; j++) one[j] = j == rank ? k : 1;
    f = ki_expand(g->ir, ki_reshape(g->ir, f, one, rank + 1), d, rank + 1);
    return total(g, ki_op2(g->ir, KN_MUL, w, f), KN_ADD, 1u << rank);
}

static kn_uop argmax(gen *g) {
    kn_uop v = rows(g, 2, chance(g, 70) ? 17 : 90);
    if (!v || !ki_rank(v) || (rough(g, v) && dice(g, 400))) return v;
    unsigned a = dice(g, ki_rank(v));
    int64_t dim[KI_MAX_RANK], one[KI_MAX_RANK];
    dims_of(v, dim);
    unsigned rank = ki_rank(v);
    for (unsigned k = 0; k < rank; k++) one[k] = k == a ? dim[a] : 1;
    kn_op turn = ki_is_float((kn_dtype)v->dtype) ? KN_NEG : KN_NOT;
    bool least = chance(g, 30);
    kn_uop m = ki_reduce(g->ir, least ? ki_op1(g->ir, turn, v) : v, KN_MAX, 1u << a);
    m = ki_expand(g->ir, least ? ki_op1(g->ir, turn, m) : m, dim, rank);
    kn_uop hit = ki_op2(g->ir, KN_CMPEQ, v, m);
    if (chance(g, 70)) hit = ki_op2(g->ir, KN_OR, hit, ki_op2(g->ir, KN_CMPNE, v, v));
    kn_uop pos = ki_expand(g->ir, ki_reshape(g->ir, arange(g, dim[a], KN_I32), one, rank), dim, rank);
    kn_uop back = ki_op2(g->ir, KN_SUB, ki_const_int(g->ir, KN_I32, dim[a]), pos);
    back = chance(g, 30) ? ki_op2(g->ir, KN_MUL, ki_cast(g->ir, hit, KN_I32), back)
                         : ki_op3(g->ir, KN_WHERE, hit, back, ki_const_int(g->ir, KN_I32, 0));
    kn_uop best = ki_reduce(g->ir, back, KN_MAX, 1u << a);
    return ki_op2(g->ir, KN_SUB, ki_const_int(g->ir, KN_I32, dim[a]), best);
}

static kn_uop arange_mask(gen *g) {
    kn_uop v = rows(g, 2, 17);
    if (!v || !ki_rank(v)) return v;
    unsigned rank = ki_rank(v), a = dice(g, rank), b = dice(g, rank);
    int64_t dim[KI_MAX_RANK], one[KI_MAX_RANK];
    dims_of(v, dim);
    if (dim[a] > 40 || dim[b] > 40) return v;
    if (a != b && chance(g, 40)) { /* the same along a: a sum over b of what the mask leaves is a prefix sum */
        int64_t off[KI_MAX_RANK] = {0}, thin[KI_MAX_RANK];
        dims_of(v, thin);
        thin[a] = 1;
        v = ki_expand(g->ir, ki_shrink(g->ir, v, off, thin), dim, rank);
    }
    for (unsigned k = 0; k < rank; k++) one[k] = k == a ? dim[a] : 1;
    kn_uop i = ki_expand(g->ir, ki_reshape(g->ir, arange(g, dim[a], KN_I32), one, rank), dim, rank);
    for (unsigned k = 0; k < rank; k++) one[k] = k == b ? dim[b] : 1;
    kn_uop j = ki_expand(g->ir, ki_reshape(g->ir, arange(g, dim[b], KN_I32), one, rank), dim, rank);
    if (chance(g, 50)) j = ki_op2(g->ir, KN_ADD, j, ki_const_int(g->ir, KN_I32, (int64_t)dice(g, 5) - 2));
    if (chance(g, 20)) j = ki_const_int(g->ir, KN_I32, dice(g, 6));
    static const kn_op cmp[] = {KN_CMPLT, KN_CMPGT, KN_CMPGE, KN_CMPLE, KN_CMPEQ, KN_CMPNE};
    kn_uop p = ki_op2(g->ir, cmp[dice(g, 6)], i, j);
    kn_uop z = constant(g, (kn_dtype)v->dtype), w = ki_op3(g->ir, KN_WHERE, p, v, z);
    return chance(g, 40) && w ? total(g, w, chance(g, 70) ? KN_ADD : KN_MAX, 1u << dice(g, rank)) : w;
}

/* A sum that several want: what is made of it over all rows, by itself and with it. */
static kn_uop wanted_sum(gen *g) {
    kn_uop v = rows(g, 2, 17);
    if (!v || ki_rank(v) < 2) return v;
    if (v->dtype == KN_BOOL) v = to_dtype(g, v, KN_I32);
    unsigned rank = ki_rank(v), b = dice(g, rank - 1);
    kn_uop s = total(g, v, KN_ADD, 1u << (rank - 1)), m = NULL, d;
    if (!s) return NULL;
    int64_t dim[KI_MAX_RANK];
    dims_of(s, dim);
    if (chance(g, 50)) m = ki_op1(g->ir, KN_CONTIGUOUS, s);
    else m = ki_expand(g->ir, ki_reduce(g->ir, s, KN_MAX, 1u << b), dim, rank);
    d = ki_op2(g->ir, KN_SUB, s, m);
    if (!d) return NULL;
    keep(g, d);
    return chance(g, 50) ? ki_op2(g->ir, KN_MAX, m, s) : total(g, d, KN_ADD, 1u << b);
}

/* Every second element of a value as far as there are any, from there on another value. */
static kn_uop continued(gen *g) {
    int64_t R = 1 + dice(g, 3), k = 1 + dice(g, 9), n = k + 1 + dice(g, 8), wide[2] = {R, 2 * k}, part[2] = {R, k}, all[2] = {R, n};
    int64_t off[3] = {0, 0, 0}, thin[3] = {R, k, 1}, one[2] = {1, n};
    kn_uop v = ensure(g, fit(g, take(g), wide, 2), R, 2 * k);
    if (!v) return NULL;
    kn_uop w = ensure(g, fit(g, to_dtype(g, take(g), (kn_dtype)v->dtype), all, 2), R, n);
    if (chance(g, 70)) v = ki_shrink(g->ir, ki_reshape(g->ir, v, (int64_t[]){R, k, 2}, 3), (int64_t[]){0, 0, dice(g, 2)}, thin);
    else v = ki_shrink(g->ir, v, off, part);
    v = ki_pad(g->ir, ki_reshape(g->ir, v, part, 2), off, all);
    kn_uop i = ki_expand(g->ir, ki_reshape(g->ir, arange(g, n, KN_I32), one, 2), all, 2);
    kn_uop there = ki_op2(g->ir, KN_CMPLT, i, ki_const_int(g->ir, KN_I32, k));
    return w ? ki_op3(g->ir, KN_WHERE, there, v, w) : NULL;
}

/* A view of an input is written; what is read elsewhere is the old value. The result is an output. */
static kn_uop assignment(gen *g) {
    if (!g->p->nin || g->nassigned == 8) return NULL;
    kn_uop x = g->p->in[dice(g, (uint32_t)g->p->nin)].node, view = x;
    for (unsigned i = 0; i < g->nassigned; i++)
        if (g->assigned[i] == x) return NULL;
    if (!ki_numel(x)) return NULL;
    if (chance(g, 40)) view = padded(g, view, false);
    if (chance(g, 30)) view = reshaped(g, view);
    if (chance(g, 20) && view && ki_rank(view)) view = ki_flip(g->ir, view, (int64_t[]){0}, 1);
    if (!view || !ki_numel(view)) return NULL;
    kn_uop val = partner(g, chance(g, 50) ? view : x, (kn_dtype)x->dtype);
    int64_t dim[KI_MAX_RANK];
    dims_of(view, dim);
    val = fit(g, val, dim, ki_rank(view));
    if (val && ki_rank(val) == 0) val = spread(g, val, dim, ki_rank(view));
    if (val && ki_is_const(val)) return NULL;
    g->assigned[g->nassigned++] = x;
    kn_uop after = ki_op2(g->ir, KN_AFTER, x, ki_op2(g->ir, KN_STORE, view, val));
    if (after) g->must[g->nmust++] = after;
    return after;
}

/* A state that goes on by parts of one value, all alike, most of whole lines of memory (2_rangeify/slots.c); it may be kept in parts of an
 * input, and read from there. */
static kn_uop recurrence(gen *g) {
    kn_dtype t = any_dtype(g) == KN_BOOL ? KN_I32 : any_dtype(g);
    if (t == KN_BOOL) t = KN_F32;
    int64_t w = chance(g, 80) ? 64 / (int64_t)ki_itemsize(t) : 1 + dice(g, 20), n = 2 + dice(g, 4), k = 2 + dice(g, 3);
    int64_t all[2] = {n + dice(g, 2), w}, one[2] = {1, w}, some[2] = {k, w};
    kn_uop x = any_input(g, t, all, 2), weight = any_input(g, t, some, 2), state = any_input(g, t, &w, 1);
    kn_uop to = chance(g, 40) && g->nassigned < 8 ? any_input(g, t, all, 2) : NULL, kept = to;
    if (to) g->assigned[g->nassigned++] = to;
    for (int64_t i = 0; i < n; i++) {
        int64_t at[2] = {chance(g, 90) ? i : dice(g, (uint32_t)n), 0};
        kn_uop part = ki_reshape(g->ir, ki_shrink(g->ir, x, at, one), &w, 1);
        kn_uop turned = chance(g, 80) ? ki_flip(g->ir, state, (int64_t[]){0}, 1) : state;
        kn_uop rows_ = ki_expand(g->ir, ki_reshape(g->ir, turned, one, 2), some, 2);
        kn_uop most = ki_reshape(g->ir, ki_reduce(g->ir, ki_op2(g->ir, KN_ADD, rows_, weight), KN_MAX, 1), &w, 1);
        state = ki_op2(g->ir, chance(g, 90) ? KN_ADD : KN_MAX, part, most);
        if (to) {
            at[0] = i;
            kn_uop view = ki_reshape(g->ir, ki_shrink(g->ir, to, at, one), &w, 1);
            kept = ki_op2(g->ir, KN_AFTER, kept, ki_op2(g->ir, KN_STORE, view, state));
            if (chance(g, 50)) state = ki_reshape(g->ir, ki_shrink(g->ir, kept, at, one), &w, 1);
        } else if (chance(g, 20)) {
            keep(g, state);
        }
    }
    if (kept) g->must[g->nmust++] = kept;
    return state;
}

/* CONTIGUOUS and its likes; several in a row, with elements moved in between, are buffers that live one after the other. */
static kn_uop marker(gen *g) {
    static const kn_op ops[] = {KN_CONTIGUOUS, KN_CONTIGUOUS_BACKWARD, KN_DETACH};
    kn_uop v = ki_op1(g->ir, ops[dice(g, chance(g, 70) ? 1 : 3)], take(g));
    for (unsigned n = chance(g, 30) ? 1 + dice(g, 3) : 0; n > 0 && v && ki_rank(v); n--) {
        int64_t last = ki_rank(v) - 1;
        kn_uop w = ki_op2(g->ir, KN_MAX, v, ki_flip(g->ir, v, &last, 1));
        v = ki_op1(g->ir, KN_CONTIGUOUS, chance(g, 50) ? w : ki_flip(g->ir, v, &last, 1));
    }
    return v;
}

/* A user's function of one or two arguments, inlined by callify. */
static kn_uop function(gen *g) {
    kn_uop a = take(g), shape = ki_shape_of(g->ir, a);
    kn_dtype t = (kn_dtype)a->dtype;
    kn_uop p = ki_param_make(g->ir, 0, t, KN_GLOBAL, 0, NULL, NULL, shape),
           q = ki_param_make(g->ir, 1, t, KN_GLOBAL, 0, NULL, NULL, shape);
    kn_uop b = partner(g, a, t);
    int64_t dim[KI_MAX_RANK];
    dims_of(a, dim);
    if (b && !ki_same_shape(a, b)) b = spread(g, b, dim, ki_rank(a));
    kn_uop v = ki_op2(g->ir, chance(g, 50) ? KN_ADD : KN_MAX, p, q), w = ki_op2(g->ir, KN_MUL, v, p);
    kn_uop body = ki_op2(g->ir, KN_TUPLE, w, v), f = ki_op3(g->ir, KN_FUNCTION, body, a, b);
    return f ? ki_make(g->ir, KN_GETTUPLE, KN_VOID, &f, 1, (kn_arg){.i = dice(g, 2)}, 0) : NULL;
}

typedef kn_uop step(gen *g);
static const struct {
    step *make;
    unsigned weight;
} steps[] = {{elementwise, 38}, {movement, 18}, {reduction, 10}, {cast, 8},      {stacked, 3},
             {indexed, 3},      {softmax, 2},   {layernorm, 1},  {gather, 3},    {scatter, 2},
             {attention, 1},    {siblings, 3},  {matmul, 3},     {window_op, 4}, {argmax, 6},
             {arange_mask, 3},  {marker, 4},    {function, 1},   {assignment, 2},
             {wanted_sum, 2},   {continued, 2}, {dots, 2},     {running_sums, 2},
             {recurrence, 3}};

static void one_step(gen *g) {
    unsigned total = 0, k = 0;
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) total += steps[i].weight;
    uint32_t r = dice(g, total);
    while (r >= steps[k].weight) r -= steps[k++].weight;
    kn_uop u = steps[k].make(g);
    if (u && ki_numel(u) <= 4 * NUMEL) keep(g, u);
}

/* The program of a seed, in ir (open, empty). */
static bool generate(ki_ir *ir, uint64_t seed, ki_program *p) {
    static const char *const kinds[] = {"q", "qr", "qs", "qqw", "qrsw", "r"};
    *p = (ki_program){.ir = ir, .stage = KI_S_TENSOR};
    gen g = {.ir = ir, .p = p, .state = ki_mix(seed ^ UINT64_C(0x6b6f696e65))};
    g.kinds = kinds[dice(&g, chance(&g, 72) ? 2 : 6)];
    for (int i = 0; i < 3; i++) g.palette[i] = liked_dtype(&g, 35, i);
    unsigned nin = 1 + dice(&g, 3), nstep = 1 + dice(&g, chance(&g, 75) ? 8 : 20);
    int64_t dim[KI_MAX_RANK];
    for (unsigned i = 0; i < nin; i++) {
        unsigned rank = any_shape(&g, dim);
        keep(&g, any_input(&g, any_dtype(&g), dim, rank));
    }
    for (unsigned i = 0; i < nstep && ir->env->err == KI_E_NONE; i++) one_step(&g);
    kn_uop out[POOL];
    unsigned n = 0;
    if (chance(&g, 10)) assignment(&g);
    for (; n < g.nmust; n++) out[n] = g.must[n];
    for (unsigned i = 0; i < g.n && n < 12; i++)
        if (!g.used[i] && g.val[i]->op != KN_PARAM && g.val[i]->op != KN_AFTER && g.val[i]->dtype != KN_IDX)
            out[n++] = g.val[i];
    if (n == 0 && g.n) out[n++] = ki_op1(ir, KN_CONTIGUOUS, g.val[g.n - 1]);
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", i);
        if (!ki_program_port(p, true, name, strlen(name), out[i])) return false;
    }
    return ir->env->err == KI_E_NONE && n && (p->root = ki_opn(ir, KN_SINK, out, n)) != NULL;
}

#endif
