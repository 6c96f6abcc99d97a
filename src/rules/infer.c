/* infer.c: dtypes of a rule, by unification over dtype variables.
 *
 * Each term of pattern and right side has a variable; ops tie them together as ki_make would (both operands of an
 * add are one dtype, a comparison is bool). A class of variables carries two masks: what any well-formed node
 * allows, and that with the rule's own constraints. The matcher checks a class once, where the two differ. The right
 * side may not narrow a class of the pattern: a rule that needs x:float must say so. */
#include "rules/front.h"

#include <string.h>

#define ANY_VALUE ((UINT32_C(1) << KI_DTYPE_COUNT) - 2) /* all but void */
#define ANY_DTYPE ((UINT32_C(1) << KI_DTYPE_COUNT) - 1)
#define BIT(t)    (UINT32_C(1) << (t))

const uint8_t ki_dtype_rule[KI_OP_COUNT] = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) [KN_##name] = KI_DR_##dtype,
#include "ir/ops.def"
#undef KI_OP
};

static uint32_t kinds(unsigned mask) {
    uint32_t out = 0;
    for (int t = 0; t < KI_DTYPE_COUNT; t++)
        if (mask >> ki_dtypes[t].kind & 1) out |= BIT(t);
    return out;
}

uint32_t ki_dtype_class(const char *name) {
    static const struct {
        const char *name;
        unsigned kinds;
    } classes[] = {
        {"int", 1u << KI_K_INT | 1u << KI_K_UINT | 1u << KI_K_INDEX},
        {"word", 1u << KI_K_INT | 1u << KI_K_UINT},
        {"sint", 1u << KI_K_INT},
        {"uint", 1u << KI_K_UINT},
        {"float", 1u << KI_K_FLOAT},
        {"num", 1u << KI_K_INT | 1u << KI_K_UINT | 1u << KI_K_INDEX | 1u << KI_K_FLOAT},
        {"bits", 1u << KI_K_INT | 1u << KI_K_UINT | 1u << KI_K_BOOL},
    };
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
        if (strcmp(name, classes[k].name) == 0) return kinds(classes[k].kinds);
    kn_dtype t = ki_dtype_named(name, strlen(name));
    return t == KI_DTYPE_COUNT ? 0 : BIT(t);
}

static const char *mask_text(uint32_t mask, char *buf, size_t n) {
    size_t at = 0;
    buf[0] = 0;
    if ((mask & ANY_VALUE) == ANY_VALUE) return "any dtype";
    for (int t = 0; t < KI_DTYPE_COUNT; t++) {
        size_t len = strlen(ki_dtypes[t].name);
        if (!(mask >> t & 1) || at + len + 2 > n) continue;
        if (at) buf[at++] = ' ';
        memcpy(buf + at, ki_dtypes[t].name, len + 1);
        at += len;
    }
    return buf;
}

int ki_var_root(ki_compiler *c, int v) {
    while (c->var[v].parent != v) v = c->var[v].parent = c->var[c->var[v].parent].parent;
    return v;
}

static int new_var(ki_compiler *c, uint32_t natural, uint32_t pos) {
    if (c->nvar == KI_MAX_VARS) return ki_compile_fail(c, KI_E_RULE_LIMIT, pos, "terms in a rule", KI_MAX_VARS), -1;
    c->var[c->nvar] = (ki_dvar){c->nvar, -1, natural, natural};
    return c->nvar++;
}

static bool disagree(ki_compiler *c, uint32_t pos, uint32_t here, uint32_t wanted) {
    char a[160], b[160];
    if (here & wanted && (here == wanted || wanted == ANY_VALUE || wanted == ANY_DTYPE))
        return ki_compile_fail(c, KI_E_RULE_DTYPE, pos, mask_text(here, a, sizeof a), "the dtype of another term");
    return ki_compile_fail(c, KI_E_RULE_DTYPE, pos, mask_text(here, a, sizeof a), mask_text(wanted, b, sizeof b));
}

/* `given`: a constraint the rule states, else one that follows from being well-formed. */
static bool narrow(ki_compiler *c, int v, uint32_t mask, bool given, uint32_t pos) {
    ki_dvar *d = &c->var[ki_var_root(c, v)];
    uint32_t m = d->mask & mask;
    if (!m || (c->frozen && d->reg >= 0 && m != d->mask)) return disagree(c, pos, d->mask, mask);
    d->mask = m;
    if (!given && !c->frozen) d->natural &= mask; /* what the right side needs says nothing of the nodes that match */
    return true;
}

static bool unify(ki_compiler *c, int v, int w, uint32_t pos) {
    v = ki_var_root(c, v);
    w = ki_var_root(c, w);
    if (v == w) return true;
    ki_dvar *a = &c->var[v], *b = &c->var[w];
    uint32_t m = a->mask & b->mask;
    if (!m) return disagree(c, pos, a->mask, b->mask);
    bool single = !(m & (m - 1)) && a->mask == m && b->mask == m;
    if (c->frozen && !single &&
        ((a->reg >= 0 && m != a->mask) || (b->reg >= 0 && m != b->mask) || (a->reg >= 0 && b->reg >= 0)))
        return disagree(c, pos, a->mask, b->mask);
    if (c->frozen && a->reg >= 0 && b->reg >= 0) return true; /* each class of the pattern is checked for itself */
    /* What the right side is made of says nothing of the nodes that match. */
    a->natural = !c->frozen ? a->natural & b->natural : b->reg >= 0 ? b->natural : a->natural;
    if (b->reg >= 0 && (a->reg < 0 || b->reg < a->reg)) a->reg = b->reg;
    a->mask = m;
    b->parent = v;
    return true;
}

/* Ties operands and result of op as ki_make would. self may be -1. */
static bool tie(ki_compiler *c, kn_op op, int self, ki_ast *kid) {
    const ki_op_info *info = &ki_ops[op];
    int src[3] = {-1, -1, -1}, first = -1;
    uint32_t k = 0;
    bool elem = ki_is_elementwise(op) && op != KN_CAST;
    uint32_t allowed = ANY_VALUE;
    if (info->flags & KI_FLOAT) allowed &= kinds(1u << KI_K_FLOAT);
    if (info->flags & KI_INT) allowed &= ~kinds(1u << KI_K_FLOAT);
    if (info->flags & KI_NUM) allowed &= ~BIT(KN_BOOL);
    for (ki_ast *a = kid; a; a = a->next, k++) {
        if (k < 3) src[k] = a->dots ? -1 : a->var;
        bool gate = (op == KN_WHERE && k == 0) || ((op == KN_LOAD || op == KN_STORE) && k == 2);
        if (gate && !narrow(c, a->var, BIT(KN_BOOL), false, a->pos)) return false;
        if (gate) continue;
        bool same = elem || op == KN_STACK || op == KN_LOAD || op == KN_STORE;
        if (elem && !narrow(c, a->var, allowed, false, a->pos)) return false;
        if (same && first >= 0 && !unify(c, first, a->var, a->pos)) return false;
        if (first < 0) first = a->var;
    }
    if (self < 0) return true;
    uint32_t pos = kid ? kid->pos : c->ast->pos;
    switch (ki_dtype_rule[op]) {
    case KI_DR_SRC0: return src[0] < 0 || unify(c, src[0], self, pos);
    case KI_DR_SRC1: return src[1] < 0 || unify(c, src[1], self, pos);
    case KI_DR_SRC2: return src[2] < 0 || unify(c, src[2], self, pos);
    case KI_DR_STACK: return first < 0 || unify(c, first, self, pos);
    case KI_DR_BOOL: return narrow(c, self, BIT(KN_BOOL), false, pos);
    case KI_DR_VOID: return narrow(c, self, BIT(KN_VOID), false, pos);
    case KI_DR_INDEX: return narrow(c, self, BIT(KN_IDX), false, pos);
    case KI_DR_U8: return narrow(c, self, BIT(KN_U8), false, pos);
    default: return true;
    }
}

/* The same for any op of a class: what all of them imply. */
static bool tie_class(ki_compiler *c, const ki_opset *set, int self, ki_ast *kid) {
    bool elem = true, to_src0 = true, to_bool = true;
    uint32_t allowed = 0;
    for (unsigned op = 0; op < KI_OP_COUNT; op++) {
        if (!ki_opset_has(set, op)) continue;
        elem &= ki_is_elementwise((kn_op)op) && op != KN_CAST && op != KN_WHERE;
        to_src0 &= ki_dtype_rule[op] == KI_DR_SRC0;
        to_bool &= ki_dtype_rule[op] == KI_DR_BOOL;
        uint32_t a = ANY_VALUE;
        if (ki_ops[op].flags & KI_FLOAT) a &= kinds(1u << KI_K_FLOAT);
        if (ki_ops[op].flags & KI_INT) a &= ~kinds(1u << KI_K_FLOAT);
        if (ki_ops[op].flags & KI_NUM) a &= ~BIT(KN_BOOL);
        allowed |= a;
    }
    for (ki_ast *a = kid; elem && a; a = a->next) {
        if (!narrow(c, a->var, allowed, false, a->pos)) return false;
        if (a != kid && !unify(c, kid->var, a->var, a->pos)) return false;
    }
    if (to_bool) return narrow(c, self, BIT(KN_BOOL), false, c->ast->pos);
    return !to_src0 || !kid || kid->dots || unify(c, kid->var, self, kid->pos);
}

/* The dtype an arg states, for ops whose dtype is given. */
static bool given_dtype(ki_compiler *c, kn_op op, ki_ast *a) {
    if (op != KN_CAST && op != KN_BITCAST && op != KN_INS) return true;
    const ki_ast *arg = op == KN_INS && a->arg ? a->arg->next : a->arg;
    if (!arg || arg->kind != KI_X_NAME || arg->dots) return true;
    kn_dtype t = ki_dtype_named(arg->name, strlen(arg->name));
    return t == KI_DTYPE_COUNT || narrow(c, a->var, BIT(t), true, arg->pos);
}

static bool infer_term(ki_compiler *c, ki_ast *a, bool pattern);

static bool infer_list(ki_compiler *c, ki_ast *a, bool pattern) {
    for (; a; a = a->next)
        if (!infer_term(c, a, pattern)) return false;
    return true;
}

static void see(ki_compiler *c, const char *name, int var) {
    if (c->nseen == KI_MAX_NAMES * 2) return; /* pattern.c reports too many names */
    c->seen[c->nseen].name = name;
    c->seen[c->nseen++].var = var;
}

/* The variable of a name: that of its first appearance. */
static int name_var(ki_compiler *c, const char *name, bool pattern, uint32_t pos) {
    for (int k = 0; k < c->nseen; k++)
        if (strcmp(c->seen[k].name, name) == 0) return c->seen[k].var;
    int v = new_var(c, ANY_DTYPE, pos);
    if (v >= 0 && pattern) see(c, name, v);
    return v;
}

static bool infer_op(ki_compiler *c, ki_ast *a, bool pattern) {
    if (!infer_list(c, a->kid, pattern)) return false;
    if (a->kind == KI_X_OP) {
        if (!a->divide) return tie(c, (kn_op)a->op, a->var, a->kid);
        ki_opset both = {{0, 0}};
        both.bits[KN_IDIV >> 6] |= UINT64_C(1) << (KN_IDIV & 63);
        both.bits[KN_DIV >> 6] |= UINT64_C(1) << (KN_DIV & 63);
        return tie_class(c, &both, a->var, a->kid);
    }
    if (a->kind == KI_X_CLASS) {
        ki_opset set;
        if (!pattern && a->name == NULL) return true; /* {op} on the right: terms.c */
        return ki_opset_of(c, a, &set) ? tie_class(c, &set, a->var, a->kid) : false;
    }
    kn_op op = ki_op_named(a->name, strlen(a->name));
    if (op == KI_OP_COUNT) return pattern ? ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "op", a->name) : true;
    return given_dtype(c, op, a) && tie(c, op, a->var, a->kid);
}

static bool infer_term(ki_compiler *c, ki_ast *a, bool pattern) {
    bool named = a->kind == KI_X_NAME || (a->kind == KI_X_HASH && pattern);
    a->var = named ? name_var(c, a->name, pattern, a->pos) : new_var(c, ANY_DTYPE, a->pos);
    if (a->var < 0) return false;
    bool ok = true;
    switch (a->kind) {
    case KI_X_HASH: ok = narrow(c, a->var, ANY_VALUE, false, a->pos); break;
    case KI_X_NUMBER: ok = narrow(c, a->var, ANY_VALUE, false, a->pos); break;
    case KI_X_REAL: ok = narrow(c, a->var, kinds(1u << KI_K_FLOAT), pattern, a->pos); break;
    case KI_X_TEXT: return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "a text");
    case KI_X_TRUTH: ok = narrow(c, a->var, BIT(KN_BOOL), pattern, a->pos); break;
    case KI_X_CALL:
    case KI_X_CLASS:
    case KI_X_OP: ok = infer_op(c, a, pattern); break;
    case KI_X_BRACKET:
    case KI_X_BOTH:
    case KI_X_EITHER:
        if (pattern)
            return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos,
                                   a->kind == KI_X_BRACKET ? "'[...]'" : "this operator");
        break;
    default: break;
    }
    if (ok && a->dtypes) ok = narrow(c, a->var, a->dtypes, true, a->pos);
    if (ok && a->label && pattern) see(c, a->label, a->var);
    return ok;
}

/* Registers by class: the pattern has none yet, so mark its classes with the term's order; pattern.c numbers alike. */
static void mark(ki_compiler *c, ki_ast *a) {
    ki_dvar *d = &c->var[ki_var_root(c, a->var)];
    if (d->reg < 0 && !a->dots) d->reg = KI_MAX_REG;
    for (ki_ast *k = a->kid; k; k = k->next) mark(c, k);
}

bool ki_infer_rule(ki_compiler *c) {
    const ki_rule_ast *r = c->ast;
    c->nvar = 0;
    c->frozen = false;
    c->nseen = 0;
    if (!infer_term(c, r->pattern, true)) return false;
    if (r->kind == KI_R_GRAD) see(c, "g", r->pattern->var);
    mark(c, r->pattern);
    c->frozen = true;
    ki_ast *source = r->pattern->kid;
    for (ki_ast *a = r->rhs; a; a = a->next) {
        if (a->kind == KI_X_CALL && strcmp(a->name, "do") == 0) continue;
        if (!infer_term(c, a, false)) return false;
        int like = r->kind == KI_R_GRAD ? (source && !source->dots ? source->var : -1) : r->pattern->var;
        if (source) source = source->next;
        if (a->kind == KI_X_WILD || (c->now->flags & KI_RF_RETYPE)) continue;
        if (like >= 0 && !unify(c, like, a->var, a->pos)) return false;
    }
    return true;
}
