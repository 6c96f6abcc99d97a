/* pattern.c: the left side of a rule as a list of ki_pat in pre-order, one register each, and its names.
 *
 * A parent always stands before its children. The children of a commutative node carry a swap bit, so that a variant
 * of the rule is a mask. */
#include "rules/front.h"

#include <string.h>

/* ---- classes of ops ---------------------------------------------------------------------------------------- */

static bool in_class(const char *s, size_t n, unsigned op) {
    const ki_op_info *f = &ki_ops[op];
#define IS(word) (n == sizeof word - 1 && memcmp(s, word, n) == 0)
    if (IS("any")) return true;
    if (IS("alu1")) return f->cls == KI_C_UNARY && op != KN_CAST;
    if (IS("alu2")) return f->cls == KI_C_BINARY;
    if (IS("alu3")) return f->cls == KI_C_TERNARY;
    if (IS("alu")) return ki_is_elementwise((kn_op)op) && op != KN_CAST;
    if (IS("elementwise")) return ki_is_elementwise((kn_op)op);
    if (IS("cmp"))
        return op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ;
    if (IS("comm")) return f->flags & KI_COMM;
    if (IS("assoc")) return f->flags & KI_ASSOC;
    if (IS("idem")) return f->flags & KI_IDEM;
    if (IS("effect")) return f->flags & KI_EFFECT;
    if (IS("decomposed")) return f->flags & KI_DECOMP;
    if (IS("movement")) return f->cls == KI_C_MOVEMENT;
    if (IS("marker")) return f->cls == KI_C_MARKER;
    if (IS("leaf")) return f->cls == KI_C_SOURCE;
    if (IS("codegen")) return f->cls == KI_C_CODEGEN;
    if (IS("internal")) return f->cls == KI_C_INTERNAL;
#undef IS
    return strlen(f->name) == n && memcmp(f->name, s, n) == 0;
}

bool ki_opset_of(ki_compiler *c, const ki_ast *a, ki_opset *out) {
    *out = (ki_opset){{0, 0}};
    for (const char *s = a->set; *s;) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        bool found = false;
        for (unsigned op = 0; n && op < KI_OP_COUNT; op++) {
            if (!in_class(s, n, op)) continue;
            out->bits[op >> 6] |= UINT64_C(1) << (op & 63);
            found = true;
        }
        if (n && !found) return ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "class of ops", a->set);
        s += n ? n : 1;
    }
    return true;
}

static uint16_t intern_opset(ki_compiler *c, ki_opset s) {
    for (uint32_t k = 0; k < c->opset.n; k++)
        if (memcmp(&c->opset.v[k], &s, sizeof s) == 0) return (uint16_t)k;
    return KI_PUSH(c, opset, s) ? (uint16_t)(c->opset.n - 1) : 0;
}

/* ---- args -------------------------------------------------------------------------------------------------- */

const ki_field *ki_arg_fields(kn_op op) {
    static const ki_field none[] = {KI_F_COUNT}, dtype[] = {KI_F_DTYPE, KI_F_COUNT}, one[] = {KI_F_INT, KI_F_COUNT},
                          slice[] = {KI_F_INT, KI_F_DTYPE, KI_F_COUNT}, ints[] = {KI_F_INTS, KI_F_COUNT},
                          reduce[] = {KI_F_REDUCE_OP, KI_F_REDUCE_AXES, KI_F_COUNT},
                          range[] = {KI_F_RANGE_ID, KI_F_RANGE_AXIS, KI_F_COUNT},
                          param[] = {KI_F_SLOT, KI_F_DTYPE, KI_F_SPACE, KI_F_DEVICE, KI_F_COUNT},
                          buffer[] = {KI_F_BUFFER_ID, KI_F_BUFFER_SIZE, KI_F_DTYPE,
                                      KI_F_SPACE,     KI_F_DEVICE,      KI_F_COUNT},
                          load[] = {KI_F_DEVICE, KI_F_SPACE, KI_F_COUNT}, kernel[] = {KI_F_KERNEL, KI_F_COUNT},
                          str[] = {KI_F_STR, KI_F_DTYPE, KI_F_COUNT};
    if (op == KN_CAST || op == KN_BITCAST) return dtype;
    if (op == KN_SLICE) return slice;
    switch ((ki_argkind)ki_ops[op].arg) {
    case KI_A_INT:
    case KI_A_STORE: return one;
    case KI_A_INTS: return ints;
    case KI_A_REDUCE: return reduce;
    case KI_A_RANGE: return range;
    case KI_A_PARAM: return param;
    case KI_A_BUFFER: return buffer;
    case KI_A_LOAD: return load;
    case KI_A_KERNEL: return kernel;
    case KI_A_STR:
    case KI_A_BYTES: return str;
    case KI_A_NONE:
    case KI_A_CONST: break;
    }
    return none;
}

static int enum_named(ki_field f, const char *s) {
    static const char *const spaces[] = {"GLOBAL", "LOCAL", "REG"};
    size_t n = strlen(s);
    if (f == KI_F_REDUCE_OP) return ki_op_named(s, n) == KI_OP_COUNT ? -1 : (int)ki_op_named(s, n);
    if (f == KI_F_DTYPE) return ki_dtype_named(s, n) == KI_DTYPE_COUNT ? -1 : (int)ki_dtype_named(s, n);
    for (int k = 0; f == KI_F_RANGE_AXIS && k < KI_AX_COUNT; k++)
        if (strcmp(s, ki_axis_names[k]) == 0) return k;
    for (int k = 0; f == KI_F_SPACE && k < 3; k++)
        if (strcmp(s, spaces[k]) == 0) return k;
    return -1;
}

/* ---- names ------------------------------------------------------------------------------------------------- */

int ki_name_find(const ki_compiler *c, const char *name) {
    for (unsigned k = 0; k < c->now->nname; k++)
        if (strcmp(c->name[k], name) == 0) return (int)k;
    return -1;
}

bool ki_letters_of(ki_compiler *c, const char *text, uint32_t pos, uint16_t *place) {
    uint32_t from = c->letters.n, at;
    for (size_t k = 0; k <= strlen(text); k++)
        if (!KI_PUSH(c, letters, text[k])) return false;
    if (!KI_ONCE(c, letters, from, &at)) return false;
    if (at > UINT16_MAX) return ki_compile_fail(c, KI_E_RULE_LIMIT, pos, "letters of names and texts", UINT16_MAX);
    *place = (uint16_t)at;
    return true;
}

bool ki_number_of(ki_compiler *c, ki_number x, uint32_t pos, uint16_t *place) {
    uint32_t from = c->number.n, at;
    if (!KI_PUSH(c, number, x) || !KI_ONCE(c, number, from, &at)) return false;
    *place = (uint16_t)at;
    return at <= UINT16_MAX || ki_compile_fail(c, KI_E_RULE_LIMIT, pos, "numbers in a rule set", UINT16_MAX);
}

static bool bind(ki_compiler *c, const char *name, ki_nkind kind, unsigned reg, unsigned field, uint32_t pos) {
    if (c->now->nname == KI_MAX_NAMES) return ki_compile_fail(c, KI_E_RULE_LIMIT, pos, "names", KI_MAX_NAMES);
    if (!KI_PUSH(c, rname, (ki_rname){(uint8_t)kind, (uint8_t)reg, (uint8_t)field})) return false;
    c->name[c->now->nname++] = name;
    uint32_t at;
    return ki_worded(c, name, strlen(name), &at) && KI_PUSH(c, bound, at);
}

static const char *const kind_names[] = {"node", "constant", "rest", "arg", "op", "gradient"};

/* The earlier binding of a name, which must be of the same kind; -1 none, -2 failed. */
static int earlier(ki_compiler *c, const char *name, ki_nkind kind, uint32_t pos) {
    int k = ki_name_find(c, name);
    if (k < 0) return -1;
    ki_nkind was = (ki_nkind)c->rname.v[c->now->rname + (uint32_t)k].kind;
    if (was == kind) return k;
    return ki_compile_fail(c, KI_E_RULE_KIND, pos, name, kind_names[was], kind_names[kind]), -2;
}

/* ---- the pattern ------------------------------------------------------------------------------------------- */

static bool arg_conditions(ki_compiler *c, const ki_ast *a, kn_op op, unsigned reg, ki_pat *p) {
    const ki_field *field = ki_arg_fields(op);
    uint32_t from = c->cond.n, place;
    unsigned count = 0;
    for (const ki_ast *k = a->arg; k; k = k->next) {
        ki_field f = *field;
        if (count++ == KI_MAX_ARGS) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "args", KI_MAX_ARGS);
        bool whole = k->kind == KI_X_NAME && k->dots;
        if (whole) f = KI_F_WHOLE;
        else if (f == KI_F_COUNT)
            return ki_compile_fail(c, KI_E_RULE_ARITY, k->pos, ki_ops[op].name, "fewer args",
                                   (unsigned)(field - ki_arg_fields(op)) + 1);
        else field++;
        if (k->kind == KI_X_WILD) continue;
        ki_argcond cond = {.field = (uint8_t)f, .reg = (uint8_t)reg, .like = KI_NOREG};
        if (k->kind == KI_X_TEXT && f == KI_F_STR) {
            cond.text = 1;
            if (!ki_letters_of(c, k->name, k->pos, &cond.at)) return false;
        } else if (k->kind == KI_X_NUMBER && f != KI_F_STR) {
            if (!ki_number_of(c, (ki_number){.i = k->i}, k->pos, &cond.at)) return false;
        } else if (k->kind != KI_X_NAME) {
            return ki_compile_fail(c, KI_E_RULE_MISPLACED, k->pos, "this arg");
        } else if (!whole && strcmp(k->name, "none") == 0) {
            cond.none = 1;
        } else if (!whole && enum_named(f, k->name) >= 0) {
            if (f == KI_F_DTYPE && (op == KN_CAST || op == KN_BITCAST || op == KN_INS))
                continue; /* infer.c checks the dtype */
            if (!ki_number_of(c, (ki_number){.i = enum_named(f, k->name)}, k->pos, &cond.at)) return false;
        } else {
            int was = earlier(c, k->name, KI_N_ARG, k->pos);
            if (was == -2) return false;
            if (was < 0) {
                if (!bind(c, k->name, KI_N_ARG, reg, f, k->pos)) return false;
                continue;
            }
            cond.like = c->rname.v[c->now->rname + (uint32_t)was].reg;
            cond.like_field = c->rname.v[c->now->rname + (uint32_t)was].field;
            if (cond.like >= reg) c->now->flags |= KI_RF_LATE;
        }
        if (!KI_PUSH(c, cond, cond)) return false;
        p->narg++;
    }
    if (!KI_ONCE(c, cond, from, &place)) return false;
    p->arg = (uint16_t)place;
    return place <= UINT16_MAX || ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "conditions in a rule set", UINT16_MAX);
}

static bool same_ast(const ki_ast *a, const ki_ast *b) {
    if (!a || !b) return a == b;
    if (a->kind != b->kind || a->op != b->op || a->i != b->i || a->dots != b->dots || a->dtypes != b->dtypes)
        return false;
    if (memcmp(&a->f, &b->f, sizeof a->f) || !a->name != !b->name || (a->name && strcmp(a->name, b->name)))
        return false;
    const ki_ast *x = a->kid, *y = b->kid;
    for (; x && y; x = x->next, y = y->next)
        if (!same_ast(x, y)) return false;
    return x == y && !a->arg && !b->arg;
}

static bool all_commute(const ki_opset *s) {
    for (unsigned op = 0; op < KI_OP_COUNT; op++)
        if (ki_opset_has(s, op) && !(ki_ops[op].flags & KI_COMM)) return false;
    return true;
}

static bool add_pat(ki_compiler *c, ki_ast *a, unsigned parent, unsigned src, unsigned flags, unsigned swap);

static bool add_rest(ki_compiler *c, const ki_ast *a, unsigned reg, unsigned from, unsigned tail) {
    ki_rest r = {(uint8_t)reg, (uint8_t)from, (uint8_t)tail, KI_NOREG, a->kind == KI_X_HASH, a->dtypes};
    if (a->kind != KI_X_NAME && a->kind != KI_X_HASH && a->kind != KI_X_WILD)
        return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "'...' after a pattern");
    if (c->now->nrest == KI_MAX_RESTS) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "rests", KI_MAX_RESTS);
    if (a->kind != KI_X_WILD) {
        int was = earlier(c, a->name, KI_N_REST, a->pos);
        if (was == -2) return false;
        if (was >= 0) r.same = c->rname.v[c->now->rname + (uint32_t)was].reg;
        else if (!bind(c, a->name, KI_N_REST, c->now->nrest, 0, a->pos)) return false;
    }
    if (!KI_PUSH(c, rest, r)) return false;
    c->now->nrest++;
    return true;
}

/* Sources of a node: at most one rest, the others counted from the front before it and from the end after it. */
static bool add_sources(ki_compiler *c, ki_ast *a, unsigned reg, uint32_t at, bool commutes) {
    unsigned n = 0, before = 0, k = 0;
    bool rest = false;
    for (const ki_ast *s = a->kid; s; s = s->next) {
        if (s->dots && rest) return ki_compile_fail(c, KI_E_RULE_MISPLACED, s->pos, "a second rest");
        if (s->dots) rest = true;
        else n++, before += !rest;
    }
    unsigned swap = KI_NOREG;
    if (commutes && n == 2 && !rest && !(c->now->flags & KI_RF_ORDERED) && !same_ast(a->kid, a->kid->next)) {
        if (c->now->nswap == 6) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "commutative nodes", 6);
        swap = c->now->nswap++;
    }
    c->pat.v[at].nsrc = (uint8_t)n;
    if (rest) c->pat.v[at].flags |= KI_PF_REST;
    for (ki_ast *s = a->kid; s; s = s->next) {
        if (s->dots) {
            if (!add_rest(c, s, reg, before, n - before)) return false;
            continue;
        }
        unsigned src = k < before ? k : n - k;
        if (!add_pat(c, s, reg, src, k < before ? 0 : KI_PF_TAIL, swap)) return false;
        k++;
    }
    return true;
}

static bool check_arity(ki_compiler *c, const ki_ast *a, kn_op op) {
    unsigned n = 0;
    bool rest = false;
    for (const ki_ast *s = a->kid; s; s = s->next) s->dots ? (rest = true) : n++;
    const ki_op_info *f = &ki_ops[op];
    if ((int64_t)n <= f->most && (rest || (int64_t)n >= f->least)) return true;
    char want[40];
    if (f->most == KI_MANY) strcpy(want, "more sources");
    else
        strcpy(want, f->least == f->most && f->most == 1   ? "one source"
                     : f->least == f->most && f->most == 2 ? "two sources"
                                                           : "another number of sources");
    return ki_compile_fail(c, KI_E_RULE_ARITY, a->pos, f->name, want, n);
}

static bool node_pat(ki_compiler *c, ki_ast *a, uint32_t at, unsigned reg) {
    kn_op op = KI_OP_COUNT;
    ki_opset set = {{0, 0}};
    if (a->kind == KI_X_OP && !a->divide) op = (kn_op)a->op;
    if (a->kind == KI_X_CALL) {
        op = ki_op_named(a->name, strlen(a->name));
        if (op == KI_OP_COUNT) return ki_compile_fail(c, KI_E_RULE_UNKNOWN, a->pos, "op", a->name);
    }
    c->pat.v[at].op = (uint8_t)op;
    if (op != KI_OP_COUNT) {
        if (!check_arity(c, a, op)) return false;
    } else {
        if (a->divide) {
            uint32_t m = c->var[ki_var_root(c, a->kid->var)].mask;
            bool floats = false, ints = false;
            for (int t = 0; t < KI_DTYPE_COUNT; t++)
                if (m >> t & 1) (ki_is_float((kn_dtype)t) ? (floats = true) : (ints = true));
            op = floats && ints ? KI_OP_COUNT : floats ? KN_DIV : KN_IDIV;
            c->pat.v[at].op = (uint8_t)op;
            set.bits[KN_IDIV >> 6] |= UINT64_C(1) << (KN_IDIV & 63);
            set.bits[KN_DIV >> 6] |= UINT64_C(1) << (KN_DIV & 63);
        } else if (!ki_opset_of(c, a, &set)) {
            return false;
        }
        c->pat.v[at].opset = intern_opset(c, set);
        if (a->kind == KI_X_CLASS && a->name) {
            int was = earlier(c, a->name, KI_N_OP, a->pos);
            if (was == -2) return false;
            if (was >= 0)
                return ki_compile_fail(c, KI_E_RULE_TWICE, a->pos, "op", a->name, ki_reader_line(c->r, a->pos));
            if (!bind(c, a->name, KI_N_OP, reg, 0, a->pos)) return false;
        }
    }
    bool commutes = op != KI_OP_COUNT ? ki_ops[op].flags & KI_COMM : a->kind == KI_X_CLASS && all_commute(&set);
    kn_op like = op;
    for (unsigned k = 0; like == KI_OP_COUNT && k < KI_OP_COUNT; k++)
        if (ki_opset_has(&set, k)) like = (kn_op)k;
    return add_sources(c, a, reg, at, commutes) && arg_conditions(c, a, like, reg, &c->pat.v[at]);
}

static bool literal_pat(ki_compiler *c, const ki_ast *a, uint32_t at) {
    ki_term t = {.dtype_reg = KI_NOREG, .dtype = KI_DTYPE_COUNT};
    t.kind = a->kind == KI_X_REAL ? KI_T_FLOAT : a->kind == KI_X_TRUTH ? KI_T_BOOL : KI_T_INT;
    uint16_t term;
    if (!ki_number_of(c, a->kind == KI_X_REAL ? (ki_number){.f = a->f} : (ki_number){.i = a->i}, a->pos, &t.at) ||
        !ki_push_term(c, a->pos, t, &term))
        return false;
    c->pat.v[at].kind = KI_P_LIT;
    c->pat.v[at].term = term;
    return true;
}

/* Checks the dtype of a class once, at its first register, and only where the rule asks for more than any
 * well-formed node gives. */
static bool class_register(ki_compiler *c, const ki_ast *a, uint32_t at, unsigned reg) {
    ki_dvar *d = &c->var[ki_var_root(c, a->var)];
    bool first = d->reg < 0 || d->reg >= KI_MAX_REG;
    if (first) d->reg = (int)reg;
    ki_written_pat w = {.pos = a->pos, .mask = d->mask & 0xffffff, .like = (uint8_t)d->reg};
    if (first && d->mask != d->natural) c->pat.v[at].dtypes = d->mask & 0xffffff;
    return KI_PUSH(c, written_pat, w);
}

static bool add_pat(ki_compiler *c, ki_ast *a, unsigned parent, unsigned src, unsigned flags, unsigned swap) {
    unsigned reg = c->now->npat;
    if (reg == KI_MAX_REG) return ki_compile_fail(c, KI_E_RULE_LIMIT, a->pos, "terms in a pattern", KI_MAX_REG);
    ki_pat p = {.kind = KI_P_ANY,
                .parent = (uint8_t)parent,
                .src = (uint8_t)src,
                .flags = (uint8_t)flags,
                .swap = (uint8_t)swap,
                .same = KI_NOREG,
                .op = KI_OP_COUNT};
    uint32_t at = c->pat.n;
    if (!KI_PUSH(c, pat, p)) return false;
    c->now->npat++;
    a->reg = (int)reg;
    if (!class_register(c, a, at, reg)) return false;
    if (a->label) {
        if (ki_name_find(c, a->label) >= 0)
            return ki_compile_fail(c, KI_E_RULE_TWICE, a->pos, "name", a->label, ki_reader_line(c->r, a->pos));
        if (!bind(c, a->label, KI_N_NODE, reg, 0, a->pos)) return false;
    }
    switch (a->kind) {
    case KI_X_WILD: return true;
    case KI_X_NAME:
    case KI_X_HASH: {
        ki_nkind kind = a->kind == KI_X_HASH ? KI_N_CONST : KI_N_NODE;
        c->pat.v[at].kind = a->kind == KI_X_HASH ? KI_P_CONST : KI_P_ANY;
        int was = earlier(c, a->name, kind, a->pos);
        if (was == -2) return false;
        if (was < 0) return bind(c, a->name, kind, reg, 0, a->pos);
        c->pat.v[at].same = c->rname.v[c->now->rname + (uint32_t)was].reg;
        return true;
    }
    case KI_X_NUMBER:
    case KI_X_REAL:
    case KI_X_TRUTH: return literal_pat(c, a, at);
    case KI_X_CALL:
    case KI_X_OP:
    case KI_X_CLASS: c->pat.v[at].kind = KI_P_NODE; return node_pat(c, a, at, reg);
    default: return ki_compile_fail(c, KI_E_RULE_MISPLACED, a->pos, "this"); /* infer.c refused it already */
    }
}

bool ki_compile_pattern(ki_compiler *c, ki_ast *pattern) {
    if (pattern->dots) return ki_compile_fail(c, KI_E_RULE_MISPLACED, pattern->pos, "a rest as root");
    if (!add_pat(c, pattern, 0, 0, 0, KI_NOREG)) return false;
    return c->now->kind != KI_R_GRAD || bind(c, "g", KI_N_GRAD, 0, 0, pattern->pos);
}
