/* meant.c: right sides with machine instructions read as what those mean, for the prover: ins(x, y; "VADDPS", f32) becomes
 * x + y. Names of a meaning's operands are replaced by the sources; where a source or the result has another dtype of
 * the same width, a bitcast stands between (registers know no dtype). Immediates are constants of the rule, so conditions
 * on them are decided here: what remains is arithmetic, and no longer than it must be. */
#include "rules/front.h"

#include <string.h>

typedef struct meant {
    ki_compiler *c;
    const ki_ast *names; /* operands of the meaning, a list */
    ki_ast *source[8];   /* what stands for them */
    uint32_t pos;        /* of the instruction: where its nodes are said to be */
    bool failed;
} meant;

static ki_ast *fresh(meant *m, ki_akind kind) {
    ki_ast *a = ki_arena_alloc(m->c->r->arena, sizeof *a);
    if (!a) return ki_fail(m->c->r->env, KI_E_NOMEM), m->failed = true, NULL;
    *a = (ki_ast){.kind = (uint8_t)kind, .pos = m->pos, .from = m->pos, .to = m->pos, .var = -1, .reg = -1};
    return a;
}

static ki_ast *copy_tree(meant *m, const ki_ast *a, bool substitute);

static void copy_list(meant *m, const ki_ast *from, ki_ast **to, bool substitute) {
    for (; from && !m->failed; from = from->next, to = &(*to)->next)
        if (!(*to = copy_tree(m, from, substitute))) return;
}

/* ---- what is known of constants ------------------------------------------------------------------------------ */

static bool is_number(const ki_ast *a) { return a && a->kind == KI_X_NUMBER; }

static ki_ast *decide(meant *m, ki_ast *a) {
    const ki_ast *x = a->kid, *y = x ? x->next : NULL;
    bool two = is_number(x) && is_number(y) && !y->next;
    ki_ast *out = NULL;
    if (a->kind == KI_X_CALL && strcmp(a->name, "where") == 0 && x && x->kind == KI_X_TRUTH) {
        ki_ast *chosen = x->i ? a->kid->next : a->kid->next->next;
        chosen->next = NULL;
        return chosen;
    }
    if (a->kind == KI_X_CALL && strcmp(a->name, "cast") == 0 && is_number(x) && a->arg && a->arg->kind == KI_X_NAME &&
        x->i >= 0 && x->i < 128) {
        if ((out = fresh(m, KI_X_NUMBER))) out->i = x->i, out->dtypes = ki_dtype_class(a->arg->name);
        return out;
    }
    if (a->kind != KI_X_OP || !two) return a;
    int64_t p = x->i, q = y->i;
    switch (a->op) {
    case KN_CMPEQ:
    case KN_CMPNE:
    case KN_CMPLT:
    case KN_CMPGT:
        if ((out = fresh(m, KI_X_TRUTH)))
            out->i = a->op == KN_CMPEQ ? p == q : a->op == KN_CMPNE ? p != q : a->op == KN_CMPLT ? p < q : p > q;
        return out;
    case KN_AND:
        if ((out = fresh(m, KI_X_NUMBER))) out->i = p & q, out->dtypes = x->dtypes;
        return out;
    default: return a;
    }
}

/* ---- substitution ---------------------------------------------------------------------------------------------- */

static ki_ast *copy_tree(meant *m, const ki_ast *a, bool substitute) { /* recursion: as deep as the rule is written */
    unsigned k = 0;
    if (substitute && a->kind == KI_X_NAME) {
        for (const ki_ast *n = m->names; n; n = n->next, k++)
            if (strcmp(n->name, a->name) == 0) return copy_tree(m, m->source[k], false);
    }
    ki_ast *b = fresh(m, (ki_akind)a->kind);
    if (!b) return NULL;
    *b = *a;
    b->kid = b->arg = b->next = NULL;
    b->pos = b->from = b->to = m->pos;
    copy_list(m, a->kid, &b->kid, substitute);
    copy_list(m, a->arg, &b->arg, false);
    return m->failed ? NULL : substitute ? decide(m, b) : b;
}

static ki_ast *bits_as(meant *m, ki_ast *a, const ki_ast *dtype, const char *name) {
    ki_ast *b = fresh(m, KI_X_CALL), *t = dtype ? copy_tree(m, dtype, false) : fresh(m, KI_X_NAME);
    if (!b || !t) return NULL;
    if (!dtype) t->name = name;
    b->name = "bitcast";
    b->kid = a;
    b->arg = t;
    return b;
}

/* The one dtype a term can have, KI_DTYPE_COUNT: more than one. */
static kn_dtype only_dtype(const ki_compiler *c, const ki_ast *a) {
    if (a->var < 0) return KI_DTYPE_COUNT;
    uint32_t mask = c->var[ki_var_root((ki_compiler *)(uintptr_t)c, a->var)].mask;
    return mask && !(mask & (mask - 1)) ? (kn_dtype)ki_ctz64(mask) : KI_DTYPE_COUNT;
}

/* The meaning of a row as parsed; *result: its dtype. NULL after a failure, or if the row has none. */
static const ki_rule_ast *meaning_of(meant *m, const ki_ast *ins, kn_dtype given, kn_dtype *result) {
    ki_text text = {0};
    ki_file_ast file = {0};
    ki_reader *r = m->c->r;
    ki_text_put(&text, "ruleset meaning\n");
    bool has = r->meaning(ins->arg->name, given, &text, result);
    if (!has) ki_reader_fail(r, KI_E_RULE_UNKNOWN, ins->pos, "instruction (or it has no meaning)", ins->arg->name);
    char *own = has && !text.oom ? ki_arena_alloc(r->arena, text.n + 1) : NULL;
    if (has && !own) ki_fail(r->env, KI_E_NOMEM);
    if (own) memcpy(own, text.s, text.n + 1);
    ki_reader inner = {.env = r->env, .arena = r->arena, .source = ins->arg->name, .text = own, .n = text.n};
    bool ok = own && ki_rules_parse(&inner, &file);
    ki_text_free(&text);
    m->failed |= !ok;
    return ok ? file.set->rule : NULL;
}

static ki_ast *expand(meant *m, ki_ast *a);

static bool names_old(const meant *m) { return m->names && strcmp(m->names->name, "d") == 0; }

static ki_ast *where_else(meant *m, ki_ast *mask, ki_ast *yes, ki_ast *no) {
    ki_ast *w = fresh(m, KI_X_CALL);
    if (!w || !yes || !no) return NULL;
    w->name = "where";
    mask->next = yes;
    yes->next = no;
    w->kid = mask;
    return w;
}

static ki_ast *both(meant *m, ki_ast *mask, ki_ast *truth) {
    ki_ast *w = fresh(m, KI_X_OP);
    if (!w) return NULL;
    w->op = KN_AND;
    mask->next = truth;
    truth->next = NULL;
    w->kid = mask;
    return w;
}

static ki_ast *mean_one(meant *m, ki_ast *a) {
    kn_dtype given = only_dtype(m->c, a), result;
    const ki_rule_ast *rule = meaning_of(m, a, given, &result);
    if (!rule) return NULL;
    meant own = {.c = m->c, .names = rule->pattern->kid, .pos = a->pos};
    unsigned k = 0;
    const ki_ast *n = own.names;
    ki_ast *next, *mask = NULL;
    for (ki_ast *s = a->kid; s; s = next, n = n ? n->next : NULL, k++) {
        next = s->next;
        if (!n && !next && (names_old(&own) || result == KN_BOOL)) {
            /* {k}: lanes it does not name keep the destination's old value, those of a mask are 0 */
            if (!(mask = expand(m, s))) return NULL;
            break;
        }
        if (!n || k == 8)
            return ki_compile_fail(m->c, KI_E_RULE_ARITY, a->pos, a->arg->name, "fewer sources", k + 1), NULL;
        kn_dtype has = only_dtype(m->c, s), want = (kn_dtype)ki_ctz64(n->dtypes);
        s->next = NULL;
        if (!(s = expand(m, s))) return NULL;
        own.source[k] = has == want ? s : bits_as(m, s, NULL, ki_dtypes[want].name);
        if (!own.source[k]) return NULL;
    }
    if (n) return ki_compile_fail(m->c, KI_E_RULE_ARITY, a->pos, a->arg->name, "more sources", k), NULL;
    ki_ast *out = copy_tree(&own, rule->rhs, true);
    if (out && mask && !names_old(&own)) out = both(m, mask, out);
    else if (out && mask) out = where_else(m, mask, out, copy_tree(m, own.source[0], false));
    return !out || given == result ? out : bits_as(m, out, a->arg->next, NULL);
}

/* -cast(x < y; i32) < 0 is x < y. */
static ki_ast *truth_of_sign(ki_ast *a) {
    ki_ast *neg = a->kid, *zero = neg ? neg->next : NULL, *cast = zero ? neg->kid : NULL;
    bool sign = a->kind == KI_X_OP && a->op == KN_CMPLT && is_number(zero) && zero->i == 0 && neg->kind == KI_X_OP &&
                neg->op == KN_NEG && cast->kind == KI_X_CALL && strcmp(cast->name, "cast") == 0;
    ki_ast *truth = sign ? cast->kid : NULL;
    static const uint8_t cmps[] = {KN_CMPLT, KN_CMPGT, KN_CMPLE, KN_CMPGE, KN_CMPEQ, KN_CMPNE};
    if (!truth || truth->next || truth->kind != KI_X_OP || !memchr(cmps, truth->op, sizeof cmps)) return a;
    truth->next = a->next;
    return truth;
}

static ki_ast *expand(meant *m, ki_ast *a) { /* recursion: as deep as the rule is written */
    if (a->kind == KI_X_CALL && strcmp(a->name, "ins") == 0 && a->arg && a->arg->kind == KI_X_TEXT) {
        ki_ast *next = a->next, *out = mean_one(m, a);
        if (out) out->next = next;
        return out;
    }
    for (ki_ast **k = &a->kid; *k; k = &(*k)->next)
        if (!(*k = expand(m, *k))) return NULL;
    return truth_of_sign(a);
}

bool ki_mean_rhs(ki_compiler *c, ki_ast **rhs) {
    if (!*rhs) return true;
    meant m = {.c = c};
    ki_ast *out = expand(&m, *rhs);
    if (out) *rhs = out;
    return out != NULL;
}
