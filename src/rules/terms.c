/* terms.c: right sides, constant expressions and guards as ki_term trees.
 *
 * Three modes share one walk: BUILD makes nodes, VALUE computes a constant between brackets (in its dtype), TRUTH
 * computes over mathematical integers in a guard. */
#include "rules/front.h"

#include <string.h>

typedef enum mode { BUILD, VALUE, TRUTH } mode;
enum { MAX_KIDS = 64 };

static unsigned compile_term(ki_compiler *c, ki_ast *a, mode m, kn_dtype fallback);

static const struct {
    const char *name, *types;
} builtins[] = {
#define X(name, types, doc) {#name, types},
    KI_BUILTINS(X)
#undef X
};

/* Of an accept rule each stands alone: messages say where. */
bool ki_push_term(ki_compiler *c, uint32_t pos, ki_term t, uint16_t *at) {
    uint32_t from = c->term.n, place = from;
    if (!KI_PUSH(c, term, t)) return false;
    if (c->now->kind != KI_R_ACCEPT && !KI_ONCE(c, term, from, &place)) return false;
    if (place > UINT16_MAX) return ki_compile_fail(c, KI_E_RULE_LIMIT, pos, "terms in a rule set", UINT16_MAX);
    *at = (uint16_t)place;
    return place != from || KI_PUSH(c, term_pos, pos);
}

static unsigned push_term(ki_compiler *c, const ki_ast *a, ki_term t) {
    uint16_t at;
    return ki_push_term(c, a->pos, t, &at) ? at : 0;
}

static ki_term fresh(ki_tkind kind) {
    return (ki_term){.kind = kind, .op = KI_OP_COUNT, .dtype_reg = KI_NOREG, .dtype = KI_DTYPE_COUNT};
}

static bool set_kids(ki_compiler *c, const ki_ast *a, ki_term *t, const uint16_t *kid, unsigned n) {
    uint32_t from = c->kid.n, at;
    for (unsigned k = 0; k < n; k++)
        if (!KI_PUSH(c, kid, kid[k])) return false;
    if (!KI_ONCE(c, kid, from, &at)) return false;
    t->kid = (uint16_t)at;
    return at + n <= UINT16_MAX || ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "terms in a rule set", UINT16_MAX);
}

/* Where a constant takes its dtype from. */
static void dtype_source(ki_compiler *c, const ki_ast *a, kn_dtype fallback, ki_term *t) {
    if (a->var >= 0) {
        const ki_dvar *d = &c->var[ki_var_root(c, a->var)];
        if (d->mask && !(d->mask & (d->mask - 1))) {
            t->dtype = (uint8_t)ki_ctz64(d->mask);
            return;
        }
        if (d->reg >= 0 && d->reg < KI_MAX_REG) {
            t->dtype_reg = (uint8_t)d->reg;
            return;
        }
    }
    t->dtype = (uint8_t)fallback;
}

static int rest_inside(const ki_compiler *c, const ki_ast *a) {
    if (a->kind == KI_X_NAME) {
        int k = ki_name_find(c, a->name);
        if (k >= 0 && c->rname.v[c->now->rname + (uint32_t)k].kind == KI_N_REST) return k;
    }
    for (const ki_ast *s = a->kid; s; s = s->next) {
        int k = rest_inside(c, s);
        if (k >= 0) return k;
    }
    for (const ki_ast *s = a->arg; s; s = s->next) {
        int k = rest_inside(c, s);
        if (k >= 0) return k;
    }
    return -1;
}

/* ---- what a place takes ------------------------------------------------------------------------------------ */

static bool wants(ki_compiler *c, const ki_ast *a, unsigned term, const char *is, const char *wanted) {
    const ki_term *t = &c->term.v[term];
    bool named = t->kind == KI_T_NAME || t->kind == KI_T_REST;
    const char *name = a->kind == KI_X_NAME || a->kind == KI_X_HASH ? a->name : "this";
    return ki_compile_fail(c, KI_E_RULE_KIND, a->pos, named ? name : "this", is, wanted);
}

static ki_nkind kind_of_name(const ki_compiler *c, unsigned term) {
    return (ki_nkind)c->rname.v[c->now->rname + c->term.v[term].x].kind;
}

/* Operands of arithmetic and comparisons: a node that is no constant has no value there. */
static bool take_values(ki_compiler *c, const ki_ast *list, const uint16_t *kid, unsigned n) {
    const ki_ast *a = list;
    for (unsigned k = 0; k < n && a; k++, a = a->next) {
        if (c->term.v[kid[k]].kind != KI_T_NAME) continue;
        ki_nkind is = kind_of_name(c, kid[k]);
        if (is == KI_N_NODE) return wants(c, a, kid[k], "node", "a value: a constant, its lo, its hi");
        if (is == KI_N_REST && !c->mapped) return wants(c, a, kid[k], "rest", "a value: its count");
    }
    return true;
}

/* Names of ops and dtypes have no order. */
static bool take_order(ki_compiler *c, const ki_ast *list, kn_op op, const uint16_t *kid, unsigned n) {
    bool order = op == KN_CMPLT || op == KN_CMPLE || op == KN_CMPGT || op == KN_CMPGE;
    for (unsigned k = 0; k < n && order; k++)
        if (c->term.v[kid[k]].kind == KI_T_ENUM) return wants(c, list, kid[k], "name", "a number");
    return true;
}

/* A guard and each side of && and ||. */
static bool take_truth(ki_compiler *c, const ki_ast *a, unsigned term) {
    const ki_term *t = &c->term.v[term];
    bool good = t->kind == KI_T_AND || t->kind == KI_T_OR || t->kind == KI_T_BOOL;
    if (t->kind == KI_T_OP) good = ki_dtype_rule[t->op] == KI_DR_BOOL || t->op == KN_NOT;
    if (t->kind == KI_T_CALL) good = c->file->ext[t->x].result == 'b';
    if (t->kind == KI_T_NAME) good = kind_of_name(c, term) == KI_N_CONST;
    if (t->kind == KI_T_BUILTIN)
        good = t->x == KI_B_isconst || t->x == KI_B_isnan || t->x == KI_B_bounded || t->x == KI_B_symbolic ||
               t->x == KI_B_sameshape || t->x == KI_B_before;
    return good || wants(c, a, term, "value", "a condition: a comparison or a predicate");
}

/* ---- names and constants ----------------------------------------------------------------------------------- */

static bool enum_term(const char *s, ki_term *t) {
    static const char *const spaces[] = {"GLOBAL", "LOCAL", "REG"};
    size_t n = strlen(s);
    t->kind = KI_T_ENUM;
    kn_op op = ki_op_named(s, n);
    kn_dtype dtype = ki_dtype_named(s, n);
    /* `index` is a dtype and an op: which is the one, op the other; expr.c and terms of args take what they need. */
    if (dtype != KI_DTYPE_COUNT) return t->x = KI_V_DTYPE, t->which = (int16_t)dtype, t->op = (uint8_t)op, true;
    if (op != KI_OP_COUNT) return t->x = KI_V_OP, t->which = (int16_t)op, true;
    /* GLOBAL, LOCAL are an axis type and an address space: which is the one, op the other, KI_OP_COUNT none. */
    t->which = -1;
    for (int k = 0; k < KI_AX_COUNT; k++)
        if (strcmp(s, ki_axis_names[k]) == 0) t->x = KI_V_AXIS, t->which = (int16_t)k;
    for (int k = 0; k < 3; k++)
        if (strcmp(s, spaces[k]) == 0) t->op = (uint8_t)k, t->x = t->which < 0 ? KI_V_SPACE : KI_V_AXIS;
    return t->which >= 0 || t->op != KI_OP_COUNT;
}

static unsigned name_term(ki_compiler *c, const ki_ast *a, mode m) {
    int k = ki_name_find(c, a->name);
    ki_term t = fresh(KI_T_NAME);
    if (k < 0) {
        if (m != BUILD && enum_term(a->name, &t)) return push_term(c, a, t);
        return ki_compile_fail(c, KI_E_RULE_UNBOUND, a->pos, a->name), 0;
    }
    t.x = (uint8_t)k;
    ki_nkind kind = (ki_nkind)c->rname.v[c->now->rname + (uint32_t)k].kind;
    if (a->dots && kind == KI_N_REST) t.kind = KI_T_REST;
    else if (a->dots) return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "'...' after a name that is no rest"), 0;
    if (m == BUILD && kind == KI_N_REST && !a->dots && !c->mapped)
        return ki_compile_fail(c, KI_E_RULE_KIND, a->pos, a->name, "rest", "a node (write its dots)"), 0;
    if (m == BUILD && (kind == KI_N_ARG || kind == KI_N_OP))
        return ki_compile_fail(c, KI_E_RULE_KIND, a->pos, a->name, kind == KI_N_ARG ? "arg" : "op", "a node"), 0;
    return push_term(c, a, t);
}

static unsigned constant_term(ki_compiler *c, const ki_ast *a, mode m, kn_dtype fallback) {
    ki_term t = fresh(a->kind == KI_X_REAL ? KI_T_FLOAT : a->kind == KI_X_TRUTH ? KI_T_BOOL : KI_T_INT);
    if (!ki_number_of(c, a->kind == KI_X_REAL ? (ki_number){.f = a->f} : (ki_number){.i = a->i}, a->pos, &t.at))
        return 0;
    if (m == BUILD) {
        dtype_source(c, a, fallback, &t);
        if (t.dtype_reg == KI_NOREG && t.dtype == KI_DTYPE_COUNT)
            return ki_compile_fail(c, KI_E_RULE_LITERAL, a->pos, ""), 0;
    }
    return push_term(c, a, t);
}

/* ---- calls ------------------------------------------------------------------------------------------------- */

static bool collect(ki_compiler *c, ki_ast *list, mode m, kn_dtype fallback, uint16_t *kid, unsigned *n) {
    for (ki_ast *s = list; s; s = s->next) {
        if (*n == MAX_KIDS) return ki_compile_fail(c, KI_E_RULE_LIMIT, s->pos, "operands", MAX_KIDS);
        unsigned t = compile_term(c, s, m, fallback);
        if (!t) return false;
        kid[(*n)++] = (uint16_t)t;
    }
    return true;
}

/* Host functions and built-ins: rests are passed whole where the type says so. */
static unsigned host_call(ki_compiler *c, ki_ast *a, ki_tkind kind, unsigned which, const char *types) {
    ki_term t = fresh(kind);
    uint16_t kid[MAX_KIDS];
    unsigned n = 0;
    t.x = (uint8_t)which;
    for (ki_ast *s = a->kid; s; s = s->next, n++) {
        if (n >= strlen(types)) break;
        bool dots = s->dots;
        int rest = s->kind == KI_X_NAME ? ki_name_find(c, s->name) : -1;
        if (rest >= 0 && c->rname.v[c->now->rname + (uint32_t)rest].kind != KI_N_REST) rest = -1;
        if (types[n] == 'r' && rest < 0)
            return ki_compile_fail(c, KI_E_RULE_KIND, s->pos, s->name ? s->name : "this", "value", "a rest"), 0;
        if (rest >= 0 && !c->mapped && strchr("nic", types[n]))
            return ki_compile_fail(c, KI_E_RULE_KIND, s->pos, s->name, "rest", "one node or value"), 0;
        if (rest >= 0) s->dots = types[n] == 'r';
        kid[n] = (uint16_t)compile_term(c, s, VALUE, KI_DTYPE_COUNT);
        s->dots = dots;
        if (!kid[n]) return 0;
    }
    unsigned given = 0;
    for (const ki_ast *s = a->kid; s; s = s->next) given++;
    if (given != strlen(types) || a->arg) {
        char want[32] = {(char)('0' + strlen(types) % 10), 0};
        strcat(want, " operands");
        return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, a->name, want, given), 0;
    }
    t.nkid = n & 127;
    return set_kids(c, a, &t, kid, n) ? push_term(c, a, t) : 0;
}

static int builtin_named(const char *s) {
    for (int k = 0; k < KI_B_COUNT; k++)
        if (strcmp(s, builtins[k].name) == 0) return k;
    return -1;
}

static int extern_named(const ki_compiler *c, const char *s) {
    for (unsigned k = 0; k < c->file->next; k++)
        if (strcmp(s, c->file->ext[k].name) == 0) return (int)k;
    return -1;
}

static bool rhs_args(ki_compiler *c, ki_ast *a, kn_op op, uint16_t *kid, unsigned *n) {
    static const ki_field none = KI_F_COUNT;
    const ki_field *field = op == KI_OP_COUNT ? &none : ki_arg_fields(op);
    bool optional = *field == KI_F_COUNT || op == KN_LOAD || op == KN_SINK;
    unsigned count = 0;
    for (ki_ast *s = a->arg; s; s = s->next, count++, field += *field != KI_F_COUNT) {
        bool whole = s->kind == KI_X_NAME && s->dots, dots = s->dots;
        if (count == KI_MAX_ARGS) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "args", KI_MAX_ARGS);
        if (!whole && *field == KI_F_COUNT)
            return ki_compile_fail(c, KI_E_RULE_ARITY, s->pos, op == KI_OP_COUNT ? "the op" : ki_ops[op].name,
                                   "fewer args", count + 1);
        unsigned t;
        if (s->kind == KI_X_TEXT && *field == KI_F_STR) {
            ki_term text = fresh(KI_T_TEXT);
            t = ki_letters_of(c, s->name, s->pos, &text.at) ? push_term(c, s, text) : 0;
        } else if (*field == KI_F_STR && s->kind != KI_X_NAME) {
            return ki_compile_fail(c, KI_E_RULE_MISPLACED, s->pos, "an arg that is no text");
        } else if (s->kind == KI_X_NAME && strcmp(s->name, "none") == 0) {
            t = push_term(c, s, fresh(KI_T_NOTHING));
        } else {
            s->dots = false;
            t = compile_term(c, s->kind == KI_X_BRACKET ? s->kid : s, VALUE, KI_DTYPE_COUNT);
            s->dots = dots;
        }
        if (!t) return false;
        kid[(*n)++] = (uint16_t)t;
    }
    bool whole = a->arg && a->arg->kind == KI_X_NAME && a->arg->dots;
    if (op == KN_INS && count != 2 && !whole)
        return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, "ins", "a row's name and a dtype after ';'", count);
    if (count || optional) return true;
    return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, ki_ops[op].name, "an arg after ';'", 0u);
}

/* A node of an op, or (VALUE, TRUTH) the op's meaning on constants. */
static unsigned op_term(ki_compiler *c, ki_ast *a, kn_op op, mode m, int opname) {
    ki_term t = fresh(opname >= 0 ? KI_T_OPNAME : KI_T_OP);
    uint16_t kid[MAX_KIDS + KI_MAX_ARGS];
    unsigned n = 0, nkid, rest = 0;
    kn_dtype inner = KI_DTYPE_COUNT;
    t.op = (uint8_t)op;
    t.x = opname >= 0 ? (uint8_t)opname : 0;
    if (a->divide) t.flags |= KI_TF_DIV;
    if (op != KI_OP_COUNT && (ki_ops[op].cls == KI_C_MOVEMENT || ki_ops[op].cls == KI_C_ORDER)) inner = KN_IDX;
    if (!collect(c, a->kid, m, inner, kid, &n)) return 0;
    nkid = n;
    for (const ki_ast *s = a->kid; s; s = s->next) rest += s->dots;
    if (op != KI_OP_COUNT) {
        const ki_op_info *f = &ki_ops[op];
        if (m != BUILD && !ki_is_elementwise(op) && op != KN_BITCAST)
            return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "an op that is not elementwise"), 0;
        if (m != BUILD && !(take_values(c, a->kid, kid, n) && take_order(c, a->kid, op, kid, n))) return 0;
        if ((int64_t)(n - rest) > f->most || (!rest && (int64_t)n < f->least))
            return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, f->name, "another number of sources", n), 0;
    }
    if (!rhs_args(c, a, op, kid, &n)) return 0;
    t.nkid = nkid & 127;
    t.narg = (n - nkid) & KI_MAX_ARGS;
    if (op == KN_IDIV && a->divide && a->kid->var >= 0) {
        uint32_t mask = c->var[ki_var_root(c, a->kid->var)].mask, floats = ki_dtype_class("float");
        if (!(mask & floats) && m == BUILD) t.flags = 0;
    }
    return set_kids(c, a, &t, kid, n) ? push_term(c, a, t) : 0;
}

static unsigned bracket_term(ki_compiler *c, ki_ast *a, ki_ast *inside, kn_dtype fallback) {
    uint16_t kid = (uint16_t)compile_term(c, inside, VALUE, KI_DTYPE_COUNT);
    if (!kid) return 0;
    if (c->term.v[kid].kind == KI_T_NAME && kind_of_name(c, kid) == KI_N_OP)
        return wants(c, inside, kid, "op", "a value"), 0;
    ki_term t = fresh(KI_T_EXPR);
    t.nkid = 1;
    dtype_source(c, a, fallback, &t);
    return set_kids(c, a, &t, &kid, 1) ? push_term(c, a, t) : 0;
}

static unsigned call_term(ki_compiler *c, ki_ast *a, mode m, kn_dtype fallback) {
    kn_op op = ki_op_named(a->name, strlen(a->name));
    if (op != KI_OP_COUNT) return op_term(c, a, op, m, -1);
    int k = builtin_named(a->name), e = extern_named(c, a->name);
    bool fold = strcmp(a->name, "fold") == 0;
    if (m == BUILD && (k >= 0 || e >= 0 || fold)) {
        bool dots = a->dots;
        a->dots = false;
        unsigned t = bracket_term(c, a, a, fallback);
        a->dots = dots;
        return t;
    }
    if (fold) {
        ki_term t = fresh(KI_T_FOLD);
        uint16_t kid[MAX_KIDS];
        unsigned n = 0;
        if (!a->kid) return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, "fold", "an op and its operands", 0u), 0;
        if (!collect(c, a->kid, VALUE, KI_DTYPE_COUNT, kid, &n)) return 0;
        if (n < 2) return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, "fold", "an op and its operands", n), 0;
        const ki_term *op = &c->term.v[kid[0]];
        bool is_op = op->kind == KI_T_ENUM || (op->kind == KI_T_NAME && kind_of_name(c, kid[0]) == KI_N_OP);
        if (!is_op) return wants(c, a->kid, kid[0], "value", "an op"), 0;
        t.nkid = n & 127;
        return set_kids(c, a, &t, kid, n) ? push_term(c, a, t) : 0;
    }
    if (k >= 0) return host_call(c, a, KI_T_BUILTIN, (unsigned)k, builtins[k].types);
    if (e >= 0) return host_call(c, a, KI_T_CALL, (unsigned)e, c->file->ext[e].types);
    return ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, m == BUILD ? "op" : "function", a->name), 0;
}

static unsigned logic_term(ki_compiler *c, ki_ast *a, mode m) {
    ki_term t = fresh(a->kind == KI_X_BOTH ? KI_T_AND : KI_T_OR);
    uint16_t kid[2];
    if (m == BUILD) return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "'&&' or '||'"), 0;
    kid[0] = (uint16_t)compile_term(c, a->kid, m, KI_DTYPE_COUNT);
    kid[1] = kid[0] ? (uint16_t)compile_term(c, a->kid->next, m, KI_DTYPE_COUNT) : 0;
    t.nkid = 2;
    return kid[1] && take_truth(c, a->kid, kid[0]) && take_truth(c, a->kid->next, kid[1]) && set_kids(c, a, &t, kid, 2)
               ? push_term(c, a, t)
               : 0;
}

static unsigned class_term(ki_compiler *c, ki_ast *a, mode m) {
    int k = ki_name_find(c, a->set);
    if (a->name || k < 0 || c->rname.v[c->now->rname + (uint32_t)k].kind != KI_N_OP)
        return ki_compile_fail(c, KI_E_RULE_UNBOUND, a->pos, a->set), 0;
    return op_term(c, a, KI_OP_COUNT, m, k);
}

static unsigned plain_term(ki_compiler *c, ki_ast *a, mode m, kn_dtype fallback) {
    switch ((ki_akind)a->kind) {
    case KI_X_NAME:
    case KI_X_HASH: return name_term(c, a, m);
    case KI_X_NUMBER:
    case KI_X_REAL:
    case KI_X_TRUTH: return constant_term(c, a, m, fallback);
    case KI_X_CALL: return call_term(c, a, m, fallback);
    case KI_X_OP: return op_term(c, a, (kn_op)a->op, m, -1);
    case KI_X_CLASS: return class_term(c, a, m);
    case KI_X_BRACKET: return m == BUILD ? bracket_term(c, a, a->kid, fallback) : compile_term(c, a->kid, m, fallback);
    case KI_X_BOTH:
    case KI_X_EITHER: return logic_term(c, a, m);
    case KI_X_TEXT: return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "a text"), 0;
    case KI_X_WILD: break;
    }
    return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "'_'"), 0;
}

static unsigned compile_term(ki_compiler *c, ki_ast *a, mode m, kn_dtype fallback) {
    if (!a->dots || a->kind == KI_X_NAME) return plain_term(c, a, m, fallback);
    int rest = rest_inside(c, a);
    for (unsigned k = 0; rest < 0 && k < c->now->nname && c->now->nrest == 1; k++)
        if (c->rname.v[c->now->rname + k].kind == KI_N_REST) rest = (int)k; /* at() alone, and one rest */
    if (rest < 0 || m != BUILD)
        return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "'...' without a rest inside"), 0;
    if (c->mapped) return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "a mapped rest inside another"), 0;
    a->dots = false;
    c->mapped = true;
    uint16_t kid = (uint16_t)plain_term(c, a, m, fallback);
    c->mapped = false;
    a->dots = true;
    if (!kid) return 0;
    ki_term t = fresh(KI_T_MAP);
    t.x = (uint8_t)rest;
    t.nkid = 1;
    return set_kids(c, a, &t, &kid, 1) ? push_term(c, a, t) : 0;
}

bool ki_compile_guard(ki_compiler *c, ki_ast *guard) {
    if (!guard) return true;
    c->now->guard = (uint16_t)compile_term(c, guard, TRUTH, KI_DTYPE_COUNT);
    return c->now->guard != 0 && take_truth(c, guard, c->now->guard);
}

/* "do(symbol)". */
static bool do_side(ki_compiler *c, const ki_ast *a) {
    if (!a->kid || a->kid->next || a->kid->kind != KI_X_NAME)
        return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, "do", "the name of one C function", 0u);
    uint32_t k = 1;
    while (k < c->does.n && strcmp(c->does.v[k].symbol, a->kid->name) != 0) k++;
    if (k > UINT8_MAX) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "C functions in a rule set", UINT8_MAX);
    if (k == c->does.n && !KI_PUSH(c, does, (ki_does){.symbol = a->kid->name})) return false;
    c->now->does = (uint8_t)k;
    if (c->written.v[c->rule.n - 1].opaque) return true;
    return ki_compile_fail(c, KI_E_RULE_OPAQUE, a->pos, c->ast->name, a->kid->name);
}

bool ki_compile_rhs(ki_compiler *c, ki_ast *rhs) {
    if (!rhs) return true;
    if (rhs->kind == KI_X_CALL && strcmp(rhs->name, "do") == 0) return do_side(c, rhs);
    if (c->now->kind != KI_R_GRAD) {
        if (rhs->dots) return ki_compile_fail(c, KI_E_RULE_MISPLACED, rhs->pos, "'...'");
        c->now->rhs = (uint16_t)compile_term(c, rhs, BUILD, KI_DTYPE_COUNT);
        return c->now->rhs != 0;
    }
    uint16_t kid[MAX_KIDS];
    unsigned n = 0;
    for (ki_ast *a = rhs; a; a = a->next) {
        if (n == MAX_KIDS) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "gradients", MAX_KIDS);
        kid[n] = (uint16_t)(a->kind == KI_X_WILD ? push_term(c, a, fresh(KI_T_NOTHING))
                                                 : compile_term(c, a, BUILD, KI_DTYPE_COUNT));
        if (!kid[n++]) return false;
    }
    ki_term t = {0};
    c->now->ngrad = (uint8_t)n;
    if (!set_kids(c, rhs, &t, kid, n)) return false;
    c->now->rhs = t.kid;
    return true;
}
