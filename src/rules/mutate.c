/* mutate.c: what a person might get wrong in a rule, done to its text: a constant changed, a comparison loosened, an
 * operator exchanged for its neighbour, operands swapped, a source, a condition, a constraint or a permission dropped,
 * one name in place of another. Each change is a splice of text, found in the parsed rule. */
#include "rules/mutate.h"

#include "rules/front.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct mutator {
    ki_reader reader;
    ki_mutants *out;
    const char *text;
    uint32_t n;
    const char *name[KI_MAX_NAMES]; /* that the pattern binds to nodes */
    unsigned nname;
    bool right; /* in the right side */
    bool step;  /* of a derivation: what dtypes it meets, the step before it made */
    bool slope; /* a gradient: zeros have no sign */
    bool failed;
} mutator;

typedef enum place { IN_PATTERN, IN_RIGHT, IN_GUARD } place;

/* ---- splices ----------------------------------------------------------------------------------------------- */

static void splice(mutator *m, uint32_t from, uint32_t to, const char *with, const char *what) {
    ki_mutants *o = m->out;
    bool same = strlen(with) == to - from && memcmp(with, m->text + from, to - from) == 0; /* equal sources swapped */
    if (m->failed || same) return;
    if (o->n == o->cap) {
        uint32_t cap = o->cap ? o->cap * 2 : 32;
        ki_mutant *v = ki_realloc(o->v, cap, sizeof *v);
        if (!v) {
            m->failed = true;
            return;
        }
        o->v = v;
        o->cap = cap;
    }
    ki_text t = {0}, change = {0};
    ki_text_printf(&t, "%.*s%s%s", (int)from, m->text, with, m->text + to);
    if (!strstr(m->text, "@ends")) ki_text_put(&t, " @ends(\"a mutant\")");
    ki_text_printf(&change, "%s: '%.*s'", what, (int)(to - from), m->text + from);
    if (*with) ki_text_printf(&change, " to '%s'", with);
    o->v[o->n++] = (ki_mutant){.text = t.s, .change = change.s, .right = m->right};
    m->failed |= !t.s || !change.s;
}

static void splice_node(mutator *m, const ki_ast *a, const char *with, const char *what) {
    splice(m, a->from, a->to, with, what);
}

static void put_span(const mutator *m, ki_text *t, const ki_ast *a) {
    ki_text_printf(t, "%.*s", (int)(a->to - a->from), m->text + a->from);
}

/* (left) op (right) in place of a; the operator's own text if op is NULL. */
static void infix(mutator *m, const ki_ast *a, const ki_ast *left, const char *op, const ki_ast *right,
                  const char *what) {
    ki_text t = {0};
    char own[4] = "";
    if (!op) {
        bool two = m->text[a->pos + 1] == '=' || m->text[a->pos + 1] == m->text[a->pos];
        snprintf(own, sizeof own, "%.*s", two ? 2 : 1, m->text + a->pos);
    }
    if (a->label) ki_text_printf(&t, "%s@", a->label);
    ki_text_put(&t, "((");
    put_span(m, &t, left);
    ki_text_printf(&t, ") %s (", op ? op : own);
    put_span(m, &t, right);
    ki_text_put(&t, "))");
    if (a->dtypes) ki_text_printf(&t, "%.*s", (int)(a->bare - a->typed), m->text + a->typed);
    if (t.s) splice_node(m, a, t.s, what);
    ki_text_free(&t);
}

/* b and c, two parts of the text in this order, exchanged. */
static void exchange(mutator *m, const ki_ast *b, const ki_ast *c, const char *what) {
    ki_text t = {0};
    put_span(m, &t, c);
    ki_text_printf(&t, "%.*s", (int)(c->from - b->to), m->text + b->to);
    put_span(m, &t, b);
    if (t.s) splice(m, b->from, c->to, t.s, what);
    ki_text_free(&t);
}

/* ---- constants and names ----------------------------------------------------------------------------------- */

static void another(mutator *m, const ki_ast *a, int64_t v, const char *what) {
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", (long long)v);
    splice_node(m, a, buf, what);
}

static void integer(mutator *m, const ki_ast *a) {
    int64_t v;
    if (!ki_add_overflow(a->i, 1, &v)) another(m, a, v, "constant + 1");
    if (!ki_sub_overflow(a->i, 1, &v)) another(m, a, v, "constant - 1");
    if (!ki_sub_overflow(0, a->i, &v) && v && a->i != 1) another(m, a, v, "sign");
}

static const char *real_text(char *buf, size_t n, double f) {
    snprintf(buf, n, "%.17g", f);
    if (isfinite(f) && !strpbrk(buf, ".e")) snprintf(buf + strlen(buf), n - strlen(buf), ".0");
    return buf;
}

static void real(mutator *m, const ki_ast *a) {
    char buf[48];
    if (isnan(a->f)) {
        splice_node(m, a, "0.0", "constant");
        return;
    }
    splice_node(m, a, real_text(buf, sizeof buf, isinf(a->f) ? 1.0 : a->f + 1), "constant + 1");
    if (a->f != 0 || !m->slope) splice_node(m, a, real_text(buf, sizeof buf, -a->f), "sign");
}

/* The name that follows s among those bound, s itself if there is no other. */
static const char *next_name(const mutator *m, const char *s) {
    for (unsigned k = 0; k < m->nname; k++)
        if (strcmp(m->name[k], s) == 0) return m->name[(k + 1) % m->nname];
    return s;
}

static const char *neighbour_word(const char *s) {
    static const char *const pairs[][2] = {
        {"lo", "hi"},        {"min", "max"},     {"exp", "exp2"},   {"log", "log2"},     {"sin", "cos"},
        {"tan", "tanh"},     {"pad", "shrink"},  {"add", "max"},    {"mul", "add"},      {"f32", "f64"},
        {"i32", "i64"},      {"u32", "u64"},     {"sqrt", "recip"}, {"erf", "tanh"},     {"trunc", "neg"},
        {"flip", "permute"}, {"least", "most"},  {"shl", "shr"},    {"buffer", "param"}, {"index", "int"},
        {"count", "rank"},   {"mulacc", "where"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        for (unsigned j = 0; j < 2; j++)
            if (strcmp(s, pairs[k][j]) == 0) return pairs[k][!j];
    return NULL;
}

static void named(mutator *m, const ki_ast *a, place where) {
    const char *to = next_name(m, a->name), *word = neighbour_word(a->name);
    char buf[80];
    uint32_t end = a->pos + (uint32_t)strlen(a->name);
    if (where == IN_PATTERN) return;
    if (strcmp(to, a->name) != 0) splice(m, a->pos, end, to, "another name");
    else if (word) splice(m, a->pos, end, word, "another word");
    if (a->dots && where == IN_RIGHT) {
        snprintf(buf, sizeof buf, "%s..., %s...", a->name, a->name);
        splice_node(m, a, buf, "twice");
    }
}

/* A name's later occurrences in the pattern, made free. */
static void repeated(mutator *m, const ki_ast *a, unsigned *seen) {
    bool binds = a->kind == KI_X_NAME || a->kind == KI_X_HASH;
    if (binds) {
        unsigned k = 0;
        while (k < m->nname && strcmp(m->name[k], a->name) != 0) k++;
        char buf[80];
        uint32_t at = a->pos + (a->kind == KI_X_HASH);
        snprintf(buf, sizeof buf, "%.60s_other", a->name);
        if (k < m->nname && seen[k]++) splice(m, at, at + (uint32_t)strlen(a->name), buf, "no longer the same");
    }
    for (const ki_ast *k = a->kid; k; k = k->next) repeated(m, k, seen); /* recursion: as deep as the rule is written */
}

/* ---- operators --------------------------------------------------------------------------------------------- */

static void operators(mutator *m, const ki_ast *a, place where) {
    static const struct {
        uint8_t op;
        const char *to[3];
        bool ordered; /* its operands are */
    } turns[] = {
        {KN_ADD, {"-"}, false},         {KN_SUB, {"+"}, true},          {KN_MUL, {"/"}, false},
        {KN_IDIV, {"*", "%"}, true},    {KN_MOD, {"/"}, true},          {KN_AND, {"|"}, false},
        {KN_OR, {"&", "^"}, false},     {KN_XOR, {"|"}, false},         {KN_SHL, {">>"}, true},
        {KN_SHR, {"<<"}, true},         {KN_CMPLT, {"<=", ">="}, true}, {KN_CMPLE, {"<", ">"}, true},
        {KN_CMPGT, {">=", "<="}, true}, {KN_CMPGE, {">", "<"}, true},   {KN_CMPEQ, {"!="}, false},
        {KN_CMPNE, {"=="}, false},
    };
    const ki_ast *left = a->kid, *right = left->next;
    if (!right) {
        ki_text t = {0};
        put_span(m, &t, left);
        if (t.s) splice_node(m, a, t.s, a->op == KN_NEG ? "minus dropped" : "negation dropped");
        ki_text_free(&t);
        return;
    }
    for (size_t k = 0; k < sizeof turns / sizeof *turns; k++) {
        if (turns[k].op != a->op) continue;
        for (unsigned j = 0; j < 3 && turns[k].to[j]; j++) infix(m, a, left, turns[k].to[j], right, "operator");
        if (turns[k].ordered) infix(m, a, right, NULL, left, "operands swapped");
    }
    if (where == IN_GUARD && a->op == KN_CMPEQ) {
        infix(m, a, left, "<=", right, "operator");
        infix(m, a, left, ">=", right, "operator");
    }
}

/* a replaced by a part of it. */
static void keep_part(mutator *m, const ki_ast *a, const ki_ast *part, const char *what) {
    ki_text t = {0};
    put_span(m, &t, part);
    if (t.s) splice_node(m, a, t.s, what);
    ki_text_free(&t);
}

static bool commutes(const ki_ast *a) {
    return a->kind == KI_X_CALL && (strcmp(a->name, "max") == 0 || strcmp(a->name, "mulacc") == 0 ||
                                    strcmp(a->name, "min") == 0 || strcmp(a->name, "gcd") == 0);
}

static void call(mutator *m, const ki_ast *a, place where) {
    const char *word = a->kind == KI_X_CALL ? neighbour_word(a->name) : NULL;
    if (word) splice(m, a->pos, a->pos + (uint32_t)strlen(a->name), word, "another operation");
    if (a->kid && where != IN_PATTERN && !a->kid->dots) keep_part(m, a, a->kid, "operation dropped");
    unsigned n = 0;
    for (const ki_ast *k = a->kid; k && k->next; k = k->next, n++)
        if (n > 0 || !commutes(a)) exchange(m, k, k->next, "sources swapped");
    for (const ki_ast *k = a->kid; k && k->next; k = k->next) splice(m, k->from, k->next->from, "", "source dropped");
    const ki_ast *last = a->kid;
    while (last && last->next && last->next->next) last = last->next;
    if (last && last->next) splice(m, last->to, last->next->to, "", "source dropped");
}

/* ---- the walk ---------------------------------------------------------------------------------------------- */

static void walk(mutator *m, const ki_ast *a, place where) { /* recursion: as deep as the rule is written */
    if (a->dtypes && where == IN_PATTERN && !m->step) splice(m, a->typed, a->bare, "", "constraint dropped");
    switch ((ki_akind)a->kind) {
    case KI_X_NUMBER: integer(m, a); return;
    case KI_X_REAL: real(m, a); return;
    case KI_X_TRUTH: splice_node(m, a, a->i ? "false" : "true", "truth"); return;
    case KI_X_NAME: named(m, a, where); return;
    case KI_X_HASH:
        if (where == IN_PATTERN) splice(m, a->pos, a->pos + 1, "", "need not be constant");
        return;
    case KI_X_OP: operators(m, a, where); break;
    case KI_X_CALL: call(m, a, where); break;
    case KI_X_CLASS: call(m, a, where); break;
    case KI_X_BOTH: infix(m, a, a->kid, "||", a->kid->next, "operator"); break;
    case KI_X_EITHER: infix(m, a, a->kid, "&&", a->kid->next, "operator"); break;
    case KI_X_BRACKET:
    case KI_X_TEXT:
    case KI_X_WILD: break;
    }
    bool two = a->kid && a->kid->next && (a->kind == KI_X_OP || a->kind == KI_X_BOTH || a->kind == KI_X_EITHER);
    bool truth = a->kind == KI_X_BOTH || a->kind == KI_X_EITHER;
    if (two && where != IN_GUARD ? where == IN_RIGHT : truth)
        for (const ki_ast *k = a->kid; k; k = k->next)
            keep_part(m, a, k, truth ? "condition dropped" : "source dropped");
    for (const ki_ast *k = a->kid; k; k = k->next) walk(m, k, where);
    for (const ki_ast *k = a->arg; k; k = k->next) walk(m, k, where);
}

static void names_of(mutator *m, const ki_ast *a) { /* recursion: as deep as the rule is written */
    const char *s[2] = {a->label, a->kind == KI_X_NAME || a->kind == KI_X_HASH ? a->name : NULL};
    for (unsigned j = 0; j < 2; j++) {
        unsigned k = 0;
        while (s[j] && k < m->nname && strcmp(m->name[k], s[j]) != 0) k++;
        if (s[j] && k == m->nname && k < KI_MAX_NAMES) m->name[m->nname++] = s[j];
    }
    for (const ki_ast *k = a->kid; k; k = k->next) names_of(m, k);
}

static void guards(mutator *m, const ki_ast *a) {
    if (a->kind != KI_X_BOTH) splice_node(m, a, "true", "condition dropped");
    walk(m, a, IN_GUARD);
}

/* @fp(...) and its reasons. */
static void permissions(mutator *m, const ki_rule_ast *a) {
    for (const ki_attr *t = a->attr; t; t = t->next) {
        if (strcmp(t->name, "fp") != 0) continue;
        const char *end = strchr(m->text + t->pos, ')');
        if (end) splice(m, t->pos, (uint32_t)(end + 1 - m->text), "", "permission dropped");
    }
}

bool ki_mutants_make(ki_env *env, const ki_ruleset *set, uint32_t rule, ki_mutants *out) {
    const ki_rule *r = &set->rule[rule];
    static const char *const words[] = {"", "accept ", "grad "};
    ki_text text = {0};
    ki_arena arena = {0};
    ki_file_ast file;
    *out = (ki_mutants){0};
    ki_text_printf(&text, "ruleset t %s%s", words[r->kind], ki_rule_text(set, r));
    mutator m = {.out = out, .text = text.s, .n = (uint32_t)text.n, .slope = r->kind == KI_R_GRAD};
    m.reader = (ki_reader){.env = env, .arena = &arena, .source = set->source, .text = text.s, .n = text.n};
    bool ok = text.s && ki_rules_parse(&m.reader, &file);
    if (ok) {
        const ki_rule_ast *a = file.set->rule;
        unsigned seen[KI_MAX_NAMES] = {0};
        m.step = a->pattern->kind == KI_X_CALL && strcmp(a->pattern->name, "stage") == 0;
        names_of(&m, a->pattern);
        repeated(&m, a->pattern, seen);
        walk(&m, a->pattern, IN_PATTERN);
        m.right = true;
        for (const ki_ast *k = a->rhs; k && !r->does; k = k->next) walk(&m, k, IN_RIGHT);
        m.right = false;
        if (a->guard) guards(&m, a->guard);
        permissions(&m, a);
        ok = !m.failed;
    }
    ki_arena_free(&arena);
    ki_text_free(&text);
    if (!ok) ki_mutants_free(out);
    return ok;
}

void ki_mutants_free(ki_mutants *m) {
    for (uint32_t k = 0; k < m->n; k++) {
        ki_free(m->v[k].text);
        ki_free(m->v[k].change);
    }
    ki_free(m->v);
    *m = (ki_mutants){0};
}
