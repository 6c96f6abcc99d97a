/* expr.c: guards and constant expressions.
 *
 * Values of kind SCALAR are constants of a dtype and compute in it (integers wrap, index must fit int64). In a guard
 * (`truth`) integer constants become mathematical integers at once, so that nothing wraps in a condition. What has no
 * value (an unbounded lo, an overflow, a dtype mismatch) is KI_V_NONE: it makes a conjunction fail, and a disjunction
 * rests on the other side. */
#include "rules/match.h"

#include "ir/scalar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sums of a few of these fit 128 bits, and so does a product of two that pass the test in times(). */
#define LIMIT ((ki_int128)1 << 100)

static const ki_val nothing = {.kind = KI_V_NONE};

static ki_val truth_of(bool b) { return (ki_val){.kind = KI_V_BOOL, .i = b}; }
static ki_val number(ki_int128 i) { return i > LIMIT || i < -LIMIT ? nothing : (ki_val){.kind = KI_V_INT, .i = i}; }
static ki_val scalar(kn_dtype t, uint64_t bits) {
    return (ki_val){.kind = KI_V_SCALAR, .dtype = (uint8_t)t, .bits = bits};
}

static ki_int128 scalar_int(const ki_val *v) {
    return ki_is_uint((kn_dtype)v->dtype) ? (ki_int128)v->bits : (ki_int128)(int64_t)v->bits;
}

/* A constant node as its scalar; others unchanged. */
static ki_val settle(ki_val v, bool truth) {
    if (v.kind == KI_V_NODE) {
        kn_uop k = v.node ? ki_peel_const(v.node) : NULL;
        if (k) v = scalar((kn_dtype)k->dtype, k->arg.bits);
    }
    if (!truth || v.kind != KI_V_SCALAR) return v;
    if (ki_is_float((kn_dtype)v.dtype))
        return (ki_val){.kind = KI_V_REAL, .f = ki_f64_from_bits((kn_dtype)v.dtype, v.bits)};
    return v.dtype == KN_BOOL ? truth_of(v.bits != 0) : number(scalar_int(&v));
}

bool ki_val_bits(const ki_val *v, kn_dtype t, uint64_t *bits) {
    switch ((ki_vkind)v->kind) {
    case KI_V_SCALAR: *bits = v->bits; return v->dtype == t;
    case KI_V_BOOL: *bits = v->i != 0; return t == KN_BOOL;
    case KI_V_REAL:
        if (!ki_is_float(t)) return false;
        *bits = ki_bits_from_f64(t, v->f);
        return true;
    case KI_V_INT: break;
    default: return false;
    }
    if (ki_is_float(t)) {
        *bits = ki_bits_from_f64(t, (double)v->i);
        return v->i > -((ki_int128)1 << 53) && v->i < ((ki_int128)1 << 53) &&
               ki_f64_from_bits(t, *bits) == (double)v->i;
    }
    if (t == KN_VOID) return false;
    ki_int128 most = t == KN_U64 ? (ki_int128)UINT64_MAX : ki_int_max(t);
    *bits = (uint64_t)v->i;
    return v->i >= ki_int_min(t) && v->i <= most;
}

const char *ki_val_text(const ki_val *v, char *buf, size_t n) {
    switch ((ki_vkind)v->kind) {
    case KI_V_INT: snprintf(buf, n, "%lld", (long long)v->i); break;
    case KI_V_REAL: snprintf(buf, n, "%g", v->f); break;
    case KI_V_BOOL: snprintf(buf, n, v->i ? "true" : "false"); break;
    case KI_V_SCALAR:
        if (ki_is_float((kn_dtype)v->dtype)) snprintf(buf, n, "%g", ki_f64_from_bits((kn_dtype)v->dtype, v->bits));
        else snprintf(buf, n, "%lld", (long long)v->bits);
        break;
    case KI_V_NODE: snprintf(buf, n, "%%%u", v->node ? v->node->id : 0); break;
    case KI_V_NODES: snprintf(buf, n, "%u nodes", v->n); break;
    case KI_V_OP: snprintf(buf, n, "%s", ki_ops[(int)v->i].name); break;
    case KI_V_DTYPE: snprintf(buf, n, "%s", ki_dtypes[(int)v->i].name); break;
    case KI_V_AXIS: snprintf(buf, n, "%s", v->i >= 0 && v->i < KI_AX_COUNT ? ki_axis_names[(int)v->i] : "none"); break;
    case KI_V_NONE: snprintf(buf, n, "undefined"); break;
    default: snprintf(buf, n, "%lld", (long long)v->i); break;
    }
    return buf;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------- */

static ki_val times(ki_int128 a, ki_int128 b) {
    ki_int128 x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    return x && y > LIMIT / x ? nothing : number(a * b);
}

static ki_int128 floor_div(ki_int128 a, ki_int128 b) {
    ki_int128 q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

/* Binary op on mathematical integers. */
static ki_val on_numbers(kn_op op, ki_int128 a, ki_int128 b) {
    switch (op) {
    case KN_ADD: return number(a + b);
    case KN_SUB: return number(a - b);
    case KN_MUL: return times(a, b);
    case KN_MAX: return number(a > b ? a : b);
    case KN_IDIV: return number(b ? floor_div(a, b) : 0);
    case KN_MOD: return number(b ? a - floor_div(a, b) * b : 0);
    case KN_AND: return number(a & b);
    case KN_OR: return number(a | b);
    case KN_XOR: return number(a ^ b);
    case KN_SHL: return b < 0 || b > 64 ? nothing : times(a, (ki_int128)1 << b);
    case KN_SHR: return b < 0 || b > 64 ? nothing : number(a >> b);
    case KN_CMPLT: return truth_of(a < b);
    case KN_CMPGT: return truth_of(a > b);
    case KN_CMPLE: return truth_of(a <= b);
    case KN_CMPGE: return truth_of(a >= b);
    case KN_CMPEQ: return truth_of(a == b);
    case KN_CMPNE: return truth_of(a != b);
    default: return nothing;
    }
}

static ki_val on_reals(kn_op op, double a, double b) {
    switch (op) {
    case KN_ADD: return (ki_val){.kind = KI_V_REAL, .f = a + b};
    case KN_SUB: return (ki_val){.kind = KI_V_REAL, .f = a - b};
    case KN_MUL: return (ki_val){.kind = KI_V_REAL, .f = a * b};
    case KN_DIV: return (ki_val){.kind = KI_V_REAL, .f = a / b};
    case KN_CMPLT: return truth_of(a < b);
    case KN_CMPGT: return truth_of(a > b);
    case KN_CMPLE: return truth_of(a <= b);
    case KN_CMPGE: return truth_of(a >= b);
    case KN_CMPEQ: return truth_of(a == b);
    case KN_CMPNE: return truth_of(a != b);
    default: return nothing;
    }
}

static bool is_compare(kn_op op) {
    return op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ;
}

/* An op in the dtype of its scalar operands; plain numbers adopt it. */
static ki_val on_scalars(kn_op op, const ki_val *v, unsigned n) {
    kn_dtype t = KI_DTYPE_COUNT, in[4];
    uint64_t bits[4], out;
    unsigned first = op == KN_WHERE ? 1 : 0;
    for (unsigned k = first; k < n; k++)
        if (v[k].kind == KI_V_SCALAR && t == KI_DTYPE_COUNT) t = (kn_dtype)v[k].dtype;
    if (t == KI_DTYPE_COUNT || n > 4) return nothing;
    for (unsigned k = 0; k < n; k++) {
        in[k] = k < first ? KN_BOOL : t;
        if (!ki_val_bits(&v[k], in[k], &bits[k])) return nothing;
    }
    kn_dtype result = is_compare(op) ? KN_BOOL : t;
    return ki_scalar(op, result, in, bits, &out) ? scalar(result, out) : nothing;
}

static bool same_value(const ki_val *a, const ki_val *b) {
    if (a->kind == KI_V_NODE) return a->node == b->node;
    if (a->kind == KI_V_INTS) return a->ints == b->ints;
    if (a->kind == KI_V_STR) return a->str == b->str;
    if (a->kind == KI_V_WHOLE) return a->op == b->op && a->dtype == b->dtype && a->arg.bits == b->arg.bits;
    return a->i == b->i;
}

static ki_val apply(kn_op op, ki_val *v, unsigned n, bool truth) {
    bool scalars = false, reals = false;
    for (unsigned k = 0; k < n; k++) {
        if (v[k].kind == KI_V_NONE) return nothing;
        scalars |= v[k].kind == KI_V_SCALAR;
        reals |= v[k].kind == KI_V_REAL;
    }
    if (op == KN_NOT && v[0].kind == KI_V_BOOL) return truth_of(!v[0].i);
    if (scalars) return on_scalars(op, v, n);
    if (op == KN_NEG && v[0].kind == KI_V_INT) return number(-v[0].i);
    if (op == KN_NEG && reals) return (ki_val){.kind = KI_V_REAL, .f = -v[0].f};
    if (op == KN_WHERE && v[0].kind == KI_V_BOOL) return v[0].i ? v[1] : v[2];
    if (n != 2) return nothing;
    if (reals) {
        for (unsigned k = 0; k < 2; k++)
            if (v[k].kind == KI_V_INT) v[k] = (ki_val){.kind = KI_V_REAL, .f = (double)v[k].i};
        return v[0].kind == KI_V_REAL && v[1].kind == KI_V_REAL ? on_reals(op, v[0].f, v[1].f) : nothing;
    }
    if (v[0].kind == KI_V_INT && v[1].kind == KI_V_INT) return on_numbers(op, v[0].i, v[1].i);
    /* GLOBAL and LOCAL may mean an address space, `index` an op: the other side decides. */
    for (unsigned k = 0; k < 2; k++)
        if (v[k].kind == KI_V_DTYPE && v[1 - k].kind == KI_V_OP) v[k].kind = KI_V_OP, v[k].i = v[k].op;
        else if (v[k].kind == KI_V_AXIS && v[1 - k].kind == KI_V_SPACE) v[k].kind = KI_V_SPACE, v[k].i = v[k].op;
    if (truth && v[0].kind == v[1].kind && (op == KN_CMPEQ || op == KN_CMPNE))
        return truth_of(same_value(&v[0], &v[1]) == (op == KN_CMPEQ));
    return nothing;
}

/* ---- built-in functions ------------------------------------------------------------------------------------ */

/* Bounds of a node; a constant's are its value. Unbounded: nothing. */
static ki_val bound_of(kn_uop u, bool high) {
    kn_dtype t = (kn_dtype)u->dtype;
    if (u->op == KN_CONST && !ki_is_float(t)) {
        ki_val v = scalar(t, u->arg.bits);
        return number(scalar_int(&v));
    }
    if (!(u->flags & KI_BOUNDED)) return nothing;
    ki_bound b = high ? u->hi : u->lo;
    if (ki_is_float(t)) return (ki_val){.kind = KI_V_REAL, .f = b.f};
    bool infinite = t == KN_IDX ? b.i == (high ? INT64_MAX : INT64_MIN) : t == KN_U64 && high && b.i == INT64_MAX;
    return infinite ? nothing : number(b.i);
}

/* Canonical order of operands: constants last, otherwise by age. */
static bool stands_before(kn_uop a, kn_uop b) {
    bool ka = ki_peel_const(a) != NULL, kb = ki_peel_const(b) != NULL;
    return ka != kb ? kb : a->id < b->id;
}

static ki_val greatest_divisor(ki_int128 a, ki_int128 b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        ki_int128 r = a % b;
        a = b;
        b = r;
    }
    return number(a);
}

static ki_val builtin(ki_match *m, ki_builtin which, const ki_val *v) {
    kn_uop u = v[0].node;
    kn_dtype t = which < KI_B_count || (which > KI_B_count && which <= KI_B_isnan) ? (kn_dtype)u->dtype : KN_VOID;
    switch (which) {
    case KI_B_lo: return bound_of(u, false);
    case KI_B_hi: return bound_of(u, true);
    case KI_B_bounded: return truth_of(bound_of(u, false).kind != KI_V_NONE && bound_of(u, true).kind != KI_V_NONE);
    case KI_B_numel: return number(u->type->numel);
    case KI_B_rank: return number(u->type->rank);
    case KI_B_dim:
        if (v[1].i < 0 || v[1].i >= u->type->rank || u->type->dim[v[1].i].sym) return nothing;
        return number(u->type->dim[v[1].i].n);
    case KI_B_count: return number(v[0].n);
    case KI_B_nsrc: return number(u->nsrc);
    case KI_B_dtype: return (ki_val){.kind = KI_V_DTYPE, .i = t};
    case KI_B_op: return (ki_val){.kind = KI_V_OP, .i = u->op};
    case KI_B_width: return number(t == KN_BOOL ? 1 : ki_dtypes[t].bits);
    case KI_B_least: return ki_is_float(t) || t == KN_IDX ? nothing : number(ki_int_min(t));
    case KI_B_most:
        if (ki_is_float(t) || t == KN_IDX) return nothing;
        return number(t == KN_U64 ? (ki_int128)UINT64_MAX : (ki_int128)ki_int_max(t));
    case KI_B_before: return truth_of(stands_before(u, v[1].node));
    case KI_B_sameshape: return truth_of(ki_same_shape(u, v[1].node));
    case KI_B_symbolic: return truth_of(u->type->symbolic);
    case KI_B_shape: return (ki_val){.kind = KI_V_NODE, .node = ki_shape_of(m->ir, u)};
    case KI_B_isconst: return truth_of(ki_peel_const(u) != NULL);
    case KI_B_isnan: {
        kn_uop k = ki_peel_const(u);
        return truth_of(k && ki_is_float(t) && isnan(ki_f64_from_bits(t, k->arg.bits)));
    }
    case KI_B_abs: return number(v[0].i < 0 ? -v[0].i : v[0].i);
    case KI_B_min: return number(v[0].i < v[1].i ? v[0].i : v[1].i);
    case KI_B_gcd: return greatest_divisor(v[0].i, v[1].i);
    case KI_B_at: return number(m->at);
    case KI_B_COUNT: break;
    }
    return nothing;
}

/* ---- terms ------------------------------------------------------------------------------------------------- */

static const char *const builtin_types[] = {
#define X(name, types, doc) types,
    KI_BUILTINS(X)
#undef X
};

/* The node a name stands for; in a mapped rest, its element. */
static kn_uop name_node(ki_match *m, unsigned name) {
    const ki_rname *n = &m->set->rname[m->rule->rname + name];
    if (n->kind != KI_N_REST) return ki_match_node(m, name);
    ki_val v = ki_match_val(m, name);
    return m->mapped && m->at < v.n ? v.nodes[m->at] : NULL;
}

static ki_val name_value(ki_match *m, unsigned name, bool truth) {
    const ki_rname *n = &m->set->rname[m->rule->rname + name];
    if (n->kind != KI_N_REST) return settle(ki_match_val(m, name), truth && n->kind != KI_N_NODE);
    kn_uop u = name_node(m, name);
    return u ? settle((ki_val){.kind = KI_V_NODE, .node = u}, truth) : nothing;
}

/* Operands of a host function, each as its type letter wants it. */
static bool operands(ki_match *m, const ki_term *t, const char *types, ki_val *v) {
    for (unsigned k = 0; k < t->nkid; k++) {
        unsigned kid = m->set->kid[t->kid + k];
        const ki_term *s = &m->set->term[kid];
        if (types[k] == 'n' && s->kind == KI_T_NAME) {
            v[k] = (ki_val){.kind = KI_V_NODE, .node = name_node(m, s->x)};
            if (!v[k].node) return false;
            continue;
        }
        v[k] = ki_expr(m, kid, types[k] == 'i');
        static const struct {
            char letter;
            uint8_t kind;
        } want[] = {{'i', KI_V_INT},  {'n', KI_V_NODE},   {'r', KI_V_NODES},
                    {'v', KI_V_INTS}, {'c', KI_V_SCALAR}, {'b', KI_V_BOOL}};
        if (v[k].kind == KI_V_NONE) return false;
        for (unsigned j = 0; j < sizeof want / sizeof *want; j++)
            if (want[j].letter == types[k] && v[k].kind != want[j].kind) return false;
        if (types[k] == 'n' && !v[k].node) return false;
    }
    return true;
}

static ki_val fold(ki_match *m, const ki_term *t, bool truth) {
    ki_val v[4];
    if (t->nkid < 2 || t->nkid > 4) return nothing;
    ki_val op = ki_expr(m, m->set->kid[t->kid], false);
    if (op.kind != KI_V_OP) return nothing;
    for (unsigned k = 1; k < t->nkid; k++) v[k - 1] = ki_expr(m, m->set->kid[t->kid + k], truth);
    return apply((kn_op)op.i, v, t->nkid - 1u, truth);
}

static ki_val convert(ki_match *m, const ki_term *t, ki_val v) {
    uint64_t out;
    ki_val to = t->narg ? ki_expr(m, m->set->kid[t->kid + t->nkid], false) : nothing;
    if (to.kind != KI_V_DTYPE) return nothing;
    if (v.kind == KI_V_INT && t->op == KN_CAST && ki_val_bits(&v, (kn_dtype)to.i, &out))
        return scalar((kn_dtype)to.i, out);
    if (v.kind != KI_V_SCALAR) return nothing;
    kn_dtype d = (kn_dtype)to.i, from = (kn_dtype)v.dtype;
    if (t->op == KN_BITCAST) {
        if (ki_dtypes[d].bits != ki_dtypes[from].bits || d == KN_BOOL || from == KN_BOOL) return nothing;
        if (ki_is_float(d)) return scalar(d, ki_extend(v.bits, ki_dtypes[d].bits, false));
        return scalar(d, ki_extend(v.bits, ki_dtypes[d].bits, ki_is_sint(d) || d == KN_IDX));
    }
    return ki_scalar(KN_CAST, d, &from, &v.bits, &out) ? scalar(d, out) : nothing;
}

static ki_val operation(ki_match *m, const ki_term *t, bool truth) {
    ki_val v[4];
    kn_op op = (kn_op)t->op;
    if (t->nkid > 4) return nothing;
    for (unsigned k = 0; k < t->nkid; k++) v[k] = ki_expr(m, m->set->kid[t->kid + k], truth);
    if (t->kind == KI_T_OPNAME) op = (kn_op)ki_match_val(m, t->x).i;
    if (op == KN_CAST || op == KN_BITCAST) return convert(m, t, v[0]);
    if (t->flags & KI_TF_DIV)
        for (unsigned k = 0; k < 2; k++)
            if (v[k].kind == KI_V_REAL || (v[k].kind == KI_V_SCALAR && ki_is_float((kn_dtype)v[k].dtype))) op = KN_DIV;
    return apply(op, v, t->nkid, truth);
}

ki_val ki_expr(ki_match *m, unsigned term, bool truth) {
    const ki_term *t = &m->set->term[term];
    ki_val v[8];
    switch ((ki_tkind)t->kind) {
    case KI_T_NAME: return name_value(m, t->x, truth);
    case KI_T_REST: return ki_match_val(m, t->x);
    case KI_T_INT: return number(ki_term_int(m->set, t));
    case KI_T_FLOAT: return (ki_val){.kind = KI_V_REAL, .f = ki_term_real(m->set, t)};
    case KI_T_BOOL: return truth_of(ki_term_int(m->set, t));
    case KI_T_ENUM: return (ki_val){.kind = t->x, .op = t->op, .i = t->x == KI_V_SPACE ? t->op : t->which};
    case KI_T_OP:
    case KI_T_OPNAME: return operation(m, t, truth);
    case KI_T_EXPR: return ki_expr(m, m->set->kid[t->kid], truth);
    case KI_T_FOLD: return fold(m, t, truth);
    case KI_T_BUILTIN: return operands(m, t, builtin_types[t->x], v) ? builtin(m, (ki_builtin)t->x, v) : nothing;
    case KI_T_CALL: {
        const ki_extern *e = &m->set->ext[t->x];
        ki_val out = nothing;
        m->ext = e;
        if (t->nkid > 8 || !operands(m, t, e->types, v) || !e->fn(m, v, t->nkid, &out)) return nothing;
        return out;
    }
    case KI_T_AND:
    case KI_T_OR: {
        ki_val a = ki_expr(m, m->set->kid[t->kid], truth);
        bool decides = t->kind == KI_T_OR; /* the value that settles it alone */
        if (a.kind == KI_V_BOOL && (a.i != 0) == decides) return a;
        ki_val b = ki_expr(m, m->set->kid[t->kid + 1], truth);
        if (b.kind == KI_V_BOOL && (b.i != 0) == decides) return b;
        return a.kind == KI_V_BOOL && b.kind == KI_V_BOOL ? b : nothing;
    }
    case KI_T_TEXT: {
        const char *s = m->set->letters + t->at;
        return (ki_val){.kind = KI_V_STR, .str = ki_text_arg(m->ir, s, strlen(s))};
    }
    case KI_T_MAP:
    case KI_T_NOTHING: break;
    }
    return nothing;
}

/* Conjuncts one after the other, so that the one that fails is known. */
int ki_guard(ki_match *m, uint16_t term) {
    const ki_term *t = &m->set->term[term];
    if (t->kind == KI_T_AND) {
        int a = ki_guard(m, m->set->kid[t->kid]);
        return a == 1 ? ki_guard(m, m->set->kid[t->kid + 1]) : a;
    }
    ki_val v = ki_expr(m, term, true);
    m->guard_term = term;
    return v.kind == KI_V_BOOL ? v.i != 0 : -1;
}
