/* build.c: right sides: terms to nodes.
 *
 * Operands of elementwise ops may be () and meet any shape, so constants inside stay (); only the whole right side is
 * brought to the root's shape (ki_match_build), as its dtype must be the root's. */
#include "rules/match.h"

#include <string.h>

/* ---- args -------------------------------------------------------------------------------------------------- */

static bool whole_arg(const ki_val *v, kn_op op, kn_arg *arg, kn_dtype *dtype) {
    if (ki_ops[v->op].arg != ki_ops[op].arg) return false;
    *arg = v->arg;
    *dtype = (kn_dtype)v->dtype;
    return true;
}

static int64_t as_int(const ki_val *v) {
    if (v->kind == KI_V_SCALAR) return (int64_t)v->bits;
    if (v->kind == KI_V_AXIS || v->kind == KI_V_INT || v->kind == KI_V_OP || v->kind == KI_V_DTYPE ||
        v->kind == KI_V_SPACE || v->kind == KI_V_DEVICE || v->kind == KI_V_BOOL)
        return (int64_t)v->i;
    return -1;
}

/* Puts the fields of an arg together. Parameters and buffers are only copied whole. */
static bool make_arg(ki_match *m, const ki_term *t, kn_op op, kn_arg *arg, kn_dtype *dtype) {
    ki_val v[5];
    *arg = (kn_arg){.bits = 0};
    *dtype = KN_VOID;
    if (t->narg > 5) return false;
    for (unsigned k = 0; k < t->narg; k++) {
        unsigned kid = m->set->kid[t->kid + t->nkid + k];
        if (m->set->term[kid].kind == KI_T_NOTHING) return true;
        v[k] = ki_expr(m, kid, false);
        if (v[k].kind == KI_V_NONE) return false;
        if (v[k].kind == KI_V_WHOLE && k == 0) return whole_arg(&v[k], op, arg, dtype);
    }
    if (t->narg == 0) return true;
    if (op == KN_CAST || op == KN_BITCAST) {
        *dtype = (kn_dtype)v[0].i;
        return v[0].kind == KI_V_DTYPE;
    }
    if (op == KN_SLICE) {
        arg->i = as_int(&v[0]);
        *dtype = (kn_dtype)v[1].i;
        return t->narg == 2 && v[1].kind == KI_V_DTYPE;
    }
    switch ((ki_argkind)ki_ops[op].arg) {
    case KI_A_INT:
    case KI_A_STORE: arg->i = as_int(&v[0]); return true;
    case KI_A_INTS: arg->ints = v[0].ints; return v[0].kind == KI_V_INTS;
    case KI_A_STR:
    case KI_A_BYTES:
        arg->str = v[0].str;
        if (t->narg > 1) *dtype = (kn_dtype)v[1].i;
        return v[0].kind == KI_V_STR && v[0].str && (t->narg < 2 || v[1].kind == KI_V_DTYPE);
    case KI_A_REDUCE:
        arg->reduce.op = (uint8_t)v[0].i;
        arg->reduce.axes = t->narg > 1 ? (uint32_t)as_int(&v[1]) : 0;
        return v[0].kind == KI_V_OP;
    case KI_A_RANGE:
        arg->range.id = (uint32_t)as_int(&v[0]);
        arg->range.axis = t->narg > 1 ? (uint8_t)as_int(&v[1]) : KN_AX_LOOP;
        return true;
    case KI_A_LOAD: {
        ki_load l;
        memset(&l, 0, sizeof l);
        l.device = (uint16_t)as_int(&v[0]);
        l.addrspace = (uint8_t)(t->narg > 1 ? (v[1].kind == KI_V_AXIS ? v[1].op : as_int(&v[1])) : KN_GLOBAL);
        arg->p = ki_intern(m->ir, &l, sizeof l);
        return arg->p != NULL;
    }
    default: return false;
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------- */

static kn_dtype wanted_dtype(const ki_match *m, const ki_term *t) {
    return t->dtype_reg != KI_NOREG ? (kn_dtype)m->reg[t->dtype_reg]->dtype : (kn_dtype)t->dtype;
}

static kn_uop constant(ki_match *m, const ki_term *t) {
    uint64_t bits;
    kn_dtype d = wanted_dtype(m, t);
    ki_number x = m->set->number[t->at];
    ki_val v = {.kind = KI_V_INT, .i = x.i};
    if (t->kind == KI_T_FLOAT) v.kind = KI_V_REAL, v.f = x.f;
    if (t->kind == KI_T_BOOL) v.kind = KI_V_BOOL;
    if (v.kind == KI_V_INT && d == KN_BOOL && (x.i == 0 || x.i == 1)) v.kind = KI_V_BOOL;
    return ki_val_bits(&v, d, &bits) ? ki_const_bits(m->ir, d, bits) : NULL;
}

static kn_uop value_node(ki_match *m, const ki_term *t) {
    ki_val v = ki_expr(m, m->set->kid[t->kid], false);
    if (v.kind == KI_V_NODE) return v.node;
    kn_dtype d = wanted_dtype(m, t);
    if (d == KI_DTYPE_COUNT && v.kind == KI_V_SCALAR) d = (kn_dtype)v.dtype;
    if (d == KI_DTYPE_COUNT && v.kind == KI_V_INT) d = KN_IDX;
    uint64_t bits;
    return d != KI_DTYPE_COUNT && ki_val_bits(&v, d, &bits) ? ki_const_bits(m->ir, d, bits) : NULL;
}

/* Length of what a source term contributes. */
static uint32_t span(ki_match *m, const ki_term *t) {
    if (t->kind != KI_T_REST && t->kind != KI_T_MAP) return 1;
    return ki_match_val(m, t->x).n;
}

/* recursion: over the term of a rule, as deep as the rule is written. */
static bool put_source(ki_match *m, unsigned term, kn_uop *src, uint32_t *n) {
    const ki_term *t = &m->set->term[term];
    if (t->kind == KI_T_REST) {
        ki_val v = ki_match_val(m, t->x);
        if (v.n) memcpy(src + *n, v.nodes, v.n * sizeof *src);
        *n += v.n;
        return true;
    }
    if (t->kind == KI_T_MAP) {
        uint32_t len = ki_match_val(m, t->x).n;
        bool ok = true;
        for (m->at = 0; m->at < len && ok; m->at++) {
            m->mapped = 1;
            src[*n] = ki_build_term(m, m->set->kid[t->kid]);
            ok = src[(*n)++] != NULL;
        }
        m->mapped = 0;
        return ok;
    }
    src[*n] = ki_build_term(m, (uint16_t)term);
    return src[(*n)++] != NULL;
}

static kn_uop op_node(ki_match *m, const ki_term *t) {
    kn_uop small[8], *src = small, u = NULL;
    uint32_t n = 0, total = 0;
    kn_op op = t->kind == KI_T_OPNAME ? (kn_op)ki_match_val(m, t->x).i : (kn_op)t->op;
    for (unsigned k = 0; k < t->nkid; k++) total += span(m, &m->set->term[m->set->kid[t->kid + k]]);
    if (total > 8 && !(src = ki_malloc(total * sizeof *src))) return ki_fail(m->ir->env, KI_E_NOMEM), NULL;
    bool ok = true;
    for (unsigned k = 0; k < t->nkid && ok; k++) ok = put_source(m, m->set->kid[t->kid + k], src, &n);
    kn_arg arg;
    kn_dtype dtype;
    if (ok && t->flags & KI_TF_DIV && n && ki_is_float((kn_dtype)src[0]->dtype)) op = KN_DIV;
    if (ok && make_arg(m, t, op, &arg, &dtype)) u = ki_make(m->ir, op, dtype, src, n, arg, 0);
    if (src != small) ki_free(src);
    return u;
}

kn_uop ki_build_term(ki_match *m, uint16_t term) {
    const ki_term *t = &m->set->term[term];
    switch ((ki_tkind)t->kind) {
    case KI_T_NAME: {
        const ki_rname *n = &m->set->rname[m->rule->rname + t->x];
        if (n->kind != KI_N_REST) return ki_match_node(m, t->x);
        ki_val v = ki_match_val(m, t->x);
        return m->at < v.n ? v.nodes[m->at] : NULL;
    }
    case KI_T_INT:
    case KI_T_FLOAT:
    case KI_T_BOOL: return constant(m, t);
    case KI_T_OP:
    case KI_T_OPNAME: return op_node(m, t);
    case KI_T_EXPR: return value_node(m, t);
    default: return NULL;
    }
}

/* v in the shape of root: a scalar is broadcast, axes of size 1 are expanded; NULL if that cannot be. */
static kn_uop in_shape(ki_match *m, kn_uop v) {
    const ki_type *want = m->root->type;
    kn_uop dims[KI_MAX_RANK];
    if (v->type->rank == 0) {
        for (unsigned k = 0; k < want->rank; k++) dims[k] = ki_index(m->ir, 1);
        v = ki_op2(m->ir, KN_RESHAPE, v, ki_opn(m->ir, KN_STACK, dims, want->rank));
        bool ones = !want->symbolic;
        for (unsigned k = 0; k < want->rank; k++) ones &= want->dim[k].n == 1;
        if (ones) return v;
    } else {
        if (v->type->rank != want->rank) return NULL;
        for (unsigned k = 0; k < want->rank; k++) {
            if (!ki_same_dim(v->type->dim[k], want->dim[k]) && !ki_is_one(v->type->dim[k])) return NULL;
        }
    }
    return ki_op2(m->ir, KN_EXPAND, v, ki_stack_dims(m->ir, want->dim, want->rank));
}

static kn_uop wrong_type(ki_match *m, kn_uop v) {
    char a[128], b[128];
    kn_uop u = m->root;
    ki_fail(m->ir->env, KI_E_REWRITE_TYPE, ki_rule_name(m->set, m->rule), m->set->source, (unsigned)m->rule->line,
            ki_dtypes[u->dtype].name, ki_shape_text(u->type, a, sizeof a), ki_dtypes[v->dtype].name,
            ki_shape_text(v->type, b, sizeof b));
    return NULL;
}

kn_uop ki_match_build(ki_match *m) {
    const ki_rule *r = m->rule;
    unsigned failures = m->ir->env->more + (m->ir->env->err != KI_E_NONE);
    kn_uop v = r->does ? m->set->does[r->does].fn(m) : r->rhs ? ki_build_term(m, r->rhs) : NULL;
    if (!v) {
        if (m->ir->env->more + (m->ir->env->err != KI_E_NONE) != failures)
            ki_fail_note(m->ir->env, "while applying rule %s (%s:%u) to %%%u = %s", ki_rule_name(m->set, r),
                         m->set->source, (unsigned)r->line, m->root->id, ki_ops[m->root->op].name);
        return NULL;
    }
    if (r->flags & KI_RF_RETYPE || v == m->root) return v;
    if (v->dtype != m->root->dtype) return wrong_type(m, v);
    if (v->type == m->root->type || ki_same_shape(v, m->root)) return v;
    kn_uop w = in_shape(m, v);
    return w ? w : m->ir->env->err != KI_E_NONE ? NULL : wrong_type(m, v);
}
