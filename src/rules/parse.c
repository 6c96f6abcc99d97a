/* parse.c: text to ki_ast, by recursive descent with a depth limit. Nothing is resolved here. Grammar: docs/rules.md. */
#include "rules/front.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 60 };
typedef struct parser {
    ki_reader *r;
    int depth;
} parser;

static ki_ast *expression(parser *p, int level);

static ki_ast *node(parser *p, ki_akind kind, uint32_t pos) {
    ki_ast *a = ki_arena_alloc(p->r->arena, sizeof *a);
    if (!a) return ki_fail(p->r->env, KI_E_NOMEM), NULL;
    *a = (ki_ast){.kind = (uint8_t)kind, .pos = pos, .from = pos, .var = -1, .reg = -1};
    return a;
}

static bool is_char(const parser *p, char c) { return p->r->tok.kind == KI_TOK_CHAR && p->r->tok.c == c; }

static bool expected(parser *p, const char *what) {
    char found[40];
    const ki_token *t = &p->r->tok;
    if (t->kind == KI_TOK_END) snprintf(found, sizeof found, "the end of the text");
    else snprintf(found, sizeof found, "'%.*s'", (int)(t->len < 30 ? t->len : 30), p->r->text + t->pos);
    return ki_reader_fail(p->r, KI_E_RULE_SYNTAX, t->pos, what, found);
}

static bool take_char(parser *p, char c) {
    char what[4] = {'\'', c, '\'', 0};
    return is_char(p, c) ? ki_lex(p->r) : expected(p, what);
}

static char *take_ident(parser *p, const char *what) {
    if (p->r->tok.kind != KI_TOK_IDENT) return expected(p, what), NULL;
    char *s = ki_reader_copy(p->r, p->r->tok.pos, p->r->tok.len);
    return s && ki_lex(p->r) ? s : NULL;
}

static bool is_word(const parser *p, const char *word) {
    const ki_token *t = &p->r->tok;
    return t->kind == KI_TOK_IDENT && t->len == strlen(word) && memcmp(p->r->text + t->pos, word, t->len) == 0;
}

/* ---- expressions ------------------------------------------------------------------------------------------- */

/* ":int" or ":{int bool}", the colon being the current token. */
static bool constraint(parser *p, ki_ast *a) {
    if (!ki_lex(p->r)) return false;
    bool many = is_char(p, '{');
    if (many && !ki_lex(p->r)) return false;
    do {
        uint32_t pos = p->r->tok.pos;
        char *s = take_ident(p, "a dtype");
        if (!s) return false;
        uint32_t mask = ki_dtype_class(s);
        if (!mask) return ki_reader_fail(p->r, KI_E_RULE_UNKNOWN, pos, "dtype", s);
        a->dtypes |= mask;
    } while (many && !is_char(p, '}'));
    return many ? ki_lex(p->r) : true;
}

/* What may follow any operand: constraint and dots. */
static ki_ast *suffix(parser *p, ki_ast *a) {
    if (!a) return NULL;
    a->to = p->r->end;
    if (is_char(p, ':')) {
        a->typed = p->r->tok.pos;
        if (!constraint(p, a)) return NULL;
        a->bare = a->to = p->r->end;
    }
    if (p->r->tok.kind == KI_TOK_DOTS) {
        a->dots = true;
        if (!ki_lex(p->r)) return NULL;
        a->to = p->r->end;
    }
    return a;
}

/* Operands up to `)` or `;` in *kid, args after `;` in *arg. The parenthesis is the current token. */
static bool arguments(parser *p, ki_ast *a) {
    if (!take_char(p, '(')) return false;
    ki_ast **list = &a->kid;
    bool args = false;
    while (!is_char(p, ')')) {
        if (is_char(p, ';') && !args) {
            args = true;
            list = &a->arg;
            if (!ki_lex(p->r)) return false;
            continue;
        }
        ki_ast *k = expression(p, 0);
        if (!k) return false;
        *list = k;
        list = &k->next;
        if (is_char(p, ',')) {
            if (!ki_lex(p->r)) return false;
            if (is_char(p, ')')) return expected(p, "an operand");
        } else if (!is_char(p, ')') && !(is_char(p, ';') && !args)) {
            return expected(p, "',' or ')'");
        }
    }
    return ki_lex(p->r);
}

/* "{set:name}" up to and with the closing brace. */
static ki_ast *class_head(parser *p) {
    ki_ast *a = node(p, KI_X_CLASS, p->r->tok.pos);
    if (!a || !take_char(p, '{')) return NULL;
    uint32_t start = p->r->tok.pos;
    while (p->r->tok.kind == KI_TOK_IDENT || is_char(p, '|'))
        if (!ki_lex(p->r)) return NULL;
    if (p->r->tok.pos == start) return expected(p, "a class of ops"), NULL;
    a->set = ki_reader_copy(p->r, start, p->r->end - start);
    if (!a->set) return NULL;
    if (is_char(p, ':')) {
        if (!ki_lex(p->r)) return NULL;
        a->name = take_ident(p, "a name for the op");
        if (!a->name) return NULL;
    }
    return take_char(p, '}') ? a : NULL;
}

static ki_ast *word(parser *p) {
    uint32_t pos = p->r->tok.pos;
    char *s = take_ident(p, "a name");
    if (!s) return NULL;
    if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0) {
        ki_ast *a = node(p, KI_X_TRUTH, pos);
        if (a) a->i = *s == 't';
        return a;
    }
    if (strcmp(s, "inf") == 0 || strcmp(s, "nan") == 0) {
        ki_ast *a = node(p, KI_X_REAL, pos);
        if (a) a->f = *s == 'i' ? (double)INFINITY : (double)NAN;
        return a;
    }
    if (strcmp(s, "_") == 0) return node(p, KI_X_WILD, pos);
    ki_ast *a;
    if (is_char(p, '(')) {
        a = node(p, KI_X_CALL, pos);
        if (a) a->name = s;
        return a && arguments(p, a) ? a : NULL;
    }
    /* n@( pattern ): the parenthesis tells it from an attribute. */
    if (is_char(p, '@') && p->r->at < p->r->n && p->r->text[p->r->at] == '(') {
        if (!ki_lex(p->r) || !ki_lex(p->r)) return NULL;
        a = expression(p, 0);
        if (!a || !take_char(p, ')')) return NULL;
        if (a->label) return ki_reader_fail(p->r, KI_E_RULE_MISPLACED, pos, "a second name"), NULL;
        a->label = s;
        a->from = pos;
        return a;
    }
    a = node(p, KI_X_NAME, pos);
    if (a) a->name = s;
    return a;
}

static ki_ast *primary(parser *p) {
    const ki_token *t = &p->r->tok;
    uint32_t pos = t->pos;
    ki_ast *a = NULL;
    if (t->kind == KI_TOK_IDENT) return word(p);
    if (t->kind == KI_TOK_INT || t->kind == KI_TOK_FLOAT) {
        a = node(p, t->kind == KI_TOK_INT ? KI_X_NUMBER : KI_X_REAL, pos);
        if (!a) return NULL;
        a->i = t->i;
        a->f = t->f;
        return ki_lex(p->r) ? a : NULL;
    }
    if (is_char(p, '#')) {
        a = node(p, KI_X_HASH, pos);
        if (!a || !ki_lex(p->r)) return NULL;
        a->name = take_ident(p, "a name");
        return a->name ? a : NULL;
    }
    if (is_char(p, '(')) {
        if (!ki_lex(p->r)) return NULL;
        a = expression(p, 0);
        if (a) a->from = pos;
        return a && take_char(p, ')') ? a : NULL;
    }
    if (is_char(p, '[')) {
        a = node(p, KI_X_BRACKET, pos);
        if (!a || !ki_lex(p->r)) return NULL;
        a->kid = expression(p, 0);
        return a->kid && take_char(p, ']') ? a : NULL;
    }
    if (is_char(p, '{')) {
        a = class_head(p);
        return a && arguments(p, a) ? a : NULL;
    }
    if (t->kind == KI_TOK_STRING) {
        a = node(p, KI_X_TEXT, pos);
        if (a) a->name = ki_reader_string(p->r, t);
        return a && a->name && ki_lex(p->r) ? a : NULL;
    }
    return expected(p, "an expression"), NULL;
}

static ki_ast *unary(parser *p) {
    uint32_t pos = p->r->tok.pos;
    bool minus = is_char(p, '-');
    if (!minus && !is_char(p, '!')) return suffix(p, primary(p));
    if (++p->depth > MAX_DEPTH) return ki_reader_fail(p->r, KI_E_RULE_LIMIT, pos, "nesting", MAX_DEPTH), NULL;
    if (!ki_lex(p->r)) return NULL;
    bool literal = p->r->tok.kind == KI_TOK_INT || p->r->tok.kind == KI_TOK_FLOAT || is_word(p, "inf");
    ki_ast *k = unary(p);
    p->depth--;
    if (!k) return NULL;
    if (minus && literal) {
        k->i = -k->i;
        k->f = -k->f;
        k->pos = k->from = pos;
        return k;
    }
    ki_ast *a = node(p, KI_X_OP, pos);
    if (!a) return NULL;
    a->op = minus ? KN_NEG : KN_NOT;
    a->kid = k;
    a->to = k->to;
    return a;
}

/* Binary operators by level, loosest first; level 7 is {class}, tightest. */
static bool operator_at(const parser *p, int level, uint8_t *op, uint8_t *kind) {
    static const struct {
        uint8_t level, tok;
        char c;
        uint8_t kind, op;
    } table[] = {
        {0, KI_TOK_OROR, 0, KI_X_EITHER, 0},      {1, KI_TOK_ANDAND, 0, KI_X_BOTH, 0},
        {2, KI_TOK_CHAR, '<', KI_X_OP, KN_CMPLT}, {2, KI_TOK_CHAR, '>', KI_X_OP, KN_CMPGT},
        {2, KI_TOK_LE, 0, KI_X_OP, KN_CMPLE},     {2, KI_TOK_GE, 0, KI_X_OP, KN_CMPGE},
        {2, KI_TOK_EQ, 0, KI_X_OP, KN_CMPEQ},     {2, KI_TOK_NE, 0, KI_X_OP, KN_CMPNE},
        {3, KI_TOK_CHAR, '|', KI_X_OP, KN_OR},    {4, KI_TOK_CHAR, '^', KI_X_OP, KN_XOR},
        {5, KI_TOK_CHAR, '&', KI_X_OP, KN_AND},   {6, KI_TOK_SHL, 0, KI_X_OP, KN_SHL},
        {6, KI_TOK_SHR, 0, KI_X_OP, KN_SHR},      {7, KI_TOK_CHAR, '+', KI_X_OP, KN_ADD},
        {7, KI_TOK_CHAR, '-', KI_X_OP, KN_SUB},   {8, KI_TOK_CHAR, '*', KI_X_OP, KN_MUL},
        {8, KI_TOK_CHAR, '/', KI_X_OP, KN_IDIV},  {8, KI_TOK_CHAR, '%', KI_X_OP, KN_MOD},
        {9, KI_TOK_CHAR, '{', KI_X_CLASS, 0},
    };
    const ki_token *t = &p->r->tok;
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        if (table[k].level != level || table[k].tok != t->kind) continue;
        if (t->kind == KI_TOK_CHAR && table[k].c != t->c) continue;
        *op = table[k].op;
        *kind = table[k].kind;
        return true;
    }
    return false;
}

static ki_ast *expression(parser *p, int level) {
    if (level > 9) return unary(p);
    if (level == 0 && ++p->depth > MAX_DEPTH)
        return ki_reader_fail(p->r, KI_E_RULE_LIMIT, p->r->tok.pos, "nesting", MAX_DEPTH), NULL;
    ki_ast *left = expression(p, level + 1);
    uint8_t op, kind;
    while (left && operator_at(p, level, &op, &kind)) {
        ki_ast *a;
        if (kind == KI_X_CLASS) {
            a = class_head(p);
        } else {
            a = node(p, kind, p->r->tok.pos);
            if (a) a->divide = is_char(p, '/');
            if (a && !ki_lex(p->r)) return NULL;
        }
        ki_ast *right = a ? expression(p, level + 1) : NULL;
        if (!right) return NULL;
        a->op = op;
        a->kid = left;
        a->from = left->from;
        a->to = right->to;
        left->next = right;
        left = a;
        if (level == 2 && operator_at(p, 2, &op, &kind)) return expected(p, "'&&' between two comparisons"), NULL;
    }
    if (level == 0) p->depth--;
    return left;
}

/* ---- rules ------------------------------------------------------------------------------------------------- */

/* "@name(...)" with the text between the parentheses: a string's content, or words as they stand. */
static bool attribute(parser *p, ki_rule_ast *rule) {
    ki_attr *a = ki_arena_alloc(p->r->arena, sizeof *a);
    if (!a) return ki_fail(p->r->env, KI_E_NOMEM), false;
    *a = (ki_attr){.pos = p->r->tok.pos, .text = "", .next = rule->attr};
    if (!take_char(p, '@')) return false;
    a->name = take_ident(p, "an attribute");
    if (!a->name) return false;
    rule->attr = a;
    if (!is_char(p, '(')) return true;
    if (!ki_lex(p->r)) return false;
    if (p->r->tok.kind == KI_TOK_STRING) {
        a->text = ki_reader_string(p->r, &p->r->tok);
        if (!a->text || !ki_lex(p->r)) return false;
    } else {
        uint32_t start = p->r->tok.pos;
        while (p->r->tok.kind == KI_TOK_IDENT || is_char(p, '|') || is_char(p, ','))
            if (!ki_lex(p->r)) return false;
        a->text = ki_reader_copy(p->r, start, p->r->end > start ? p->r->end - start : 0);
        if (!a->text) return false;
    }
    return take_char(p, ')');
}

static bool right_side(parser *p, ki_rule_ast *rule) {
    if (p->r->tok.kind != KI_TOK_ARROW) return expected(p, "'=>'");
    if (!ki_lex(p->r)) return false;
    ki_ast **list = &rule->rhs;
    for (;;) {
        *list = expression(p, 0);
        if (!*list) return false;
        if (rule->kind != KI_R_GRAD || !is_char(p, ',')) return true;
        list = &(*list)->next;
        if (!ki_lex(p->r)) return false;
    }
}

static ki_rule_ast *rule(parser *p, ki_rkind kind) {
    ki_rule_ast *a = ki_arena_alloc(p->r->arena, sizeof *a);
    if (!a) return ki_fail(p->r->env, KI_E_NOMEM), NULL;
    *a = (ki_rule_ast){.kind = (uint8_t)kind, .pos = p->r->tok.pos};
    a->name = take_ident(p, "a rule name");
    if (!a->name || !take_char(p, ':')) return NULL;
    a->pattern = expression(p, 0);
    if (!a->pattern) return NULL;
    if (kind != KI_R_ACCEPT && !right_side(p, a)) return NULL;
    for (;;) {
        if (is_word(p, "if") && !a->guard) {
            if (!ki_lex(p->r)) return NULL;
            a->guard = expression(p, 0);
            if (!a->guard) return NULL;
        } else if (is_char(p, '@')) {
            if (!attribute(p, a)) return NULL;
        } else {
            break;
        }
    }
    a->end = p->r->end;
    if (p->r->tok.kind != KI_TOK_IDENT && p->r->tok.kind != KI_TOK_END)
        return expected(p, "an operator, 'if', '@' or the next rule"), NULL;
    return a;
}

/* "pred name(types) = symbol smt "..."" or "fn name(types) type = symbol". */
static bool external(parser *p, ki_file_ast *out, unsigned *cap) {
    static const struct {
        const char *word;
        char letter;
    } types[] = {{"int", 'i'},   {"node", 'n'}, {"nodes", 'r'}, {"ints", 'v'},
                 {"const", 'c'}, {"any", 'a'},  {"bool", 'b'}};
    ki_extern e = {0};
    bool pred = is_word(p, "pred");
    if (!pred && !is_word(p, "fn")) return expected(p, "'pred' or 'fn'");
    if (!ki_lex(p->r)) return false;
    e.name = take_ident(p, "a name");
    if (!e.name || !take_char(p, '(')) return false;
    char letters[16], *copy;
    unsigned n = 0;
    bool result = false;
    for (;;) {
        bool close = is_char(p, ')');
        if (close && (!ki_lex(p->r) || (result = true, pred))) break;
        if (!close || result) {
            unsigned k = 0;
            while (k < 7 && !is_word(p, types[k].word)) k++;
            if (k == 7) return expected(p, "int, node, nodes, ints, const, bool or any");
            if (!ki_lex(p->r)) return false;
            if (result) {
                e.result = types[k].letter;
                break;
            }
            if (n == sizeof letters - 1) return expected(p, "fewer parameters");
            letters[n++] = types[k].letter;
            if (is_char(p, ',') && !ki_lex(p->r)) return false;
        }
    }
    if (pred) e.result = 'b';
    copy = ki_arena_alloc(p->r->arena, n + 1);
    if (!copy) return ki_fail(p->r->env, KI_E_NOMEM), false;
    memcpy(copy, letters, n);
    copy[n] = 0;
    e.types = copy;
    if (!take_char(p, '=')) return false;
    e.symbol = take_ident(p, "a C function");
    if (!e.symbol) return false;
    if (is_word(p, "smt")) {
        if (!ki_lex(p->r)) return false;
        if (p->r->tok.kind != KI_TOK_STRING) return expected(p, "a string");
        e.smt = ki_reader_string(p->r, &p->r->tok);
        if (!e.smt || !ki_lex(p->r)) return false;
    }
    if (out->next == *cap) {
        unsigned grown = *cap ? *cap * 2 : 8;
        ki_extern *v = ki_arena_alloc(p->r->arena, grown * sizeof *v);
        if (!v) return ki_fail(p->r->env, KI_E_NOMEM), false;
        if (out->next) memcpy(v, out->ext, out->next * sizeof *v);
        out->ext = v;
        *cap = grown;
    }
    out->ext[out->next++] = e;
    return true;
}

static ki_set_ast *set_head(parser *p) {
    ki_set_ast *s = ki_arena_alloc(p->r->arena, sizeof *s);
    if (!s) return ki_fail(p->r->env, KI_E_NOMEM), NULL;
    if (!ki_lex(p->r)) return NULL;
    *s = (ki_set_ast){.pos = p->r->tok.pos};
    s->name = take_ident(p, "a name for the rule set");
    if (!s->name) return NULL;
    if (is_char(p, ':')) {
        if (!ki_lex(p->r)) return NULL;
        if (!is_word(p, "pure")) return expected(p, "'pure'"), NULL;
        s->pure = true;
        if (!ki_lex(p->r)) return NULL;
    }
    return s;
}

bool ki_rules_parse(ki_reader *r, ki_file_ast *out) {
    parser p = {r, 0};
    ki_set_ast **set = &out->set, *now = NULL;
    ki_rule_ast **last = NULL;
    unsigned cap = 0;
    *out = (ki_file_ast){0};
    if (!ki_lex(r)) return false;
    while (r->tok.kind != KI_TOK_END) {
        bool colon = r->at < r->n && r->text[r->at] == ':'; /* a rule may be called `extern` */
        if (is_word(&p, "ruleset") && !colon) {
            now = set_head(&p);
            if (!now) return false;
            *set = now;
            set = &now->next;
            last = &now->rule;
            out->nset++;
            continue;
        }
        if (is_word(&p, "extern") && !colon) {
            if (!ki_lex(r) || !external(&p, out, &cap)) return false;
            continue;
        }
        if (!now) return expected(&p, "'ruleset NAME'");
        ki_rkind kind = is_word(&p, "accept") ? KI_R_ACCEPT : is_word(&p, "grad") ? KI_R_GRAD : KI_R_REWRITE;
        if (kind != KI_R_REWRITE && !colon && !ki_lex(r)) return false;
        ki_rule_ast *a = rule(&p, kind);
        if (!a) return false;
        *last = a;
        last = &a->next;
        now->nrule++;
    }
    return now ? true : expected(&p, "'ruleset NAME'");
}
