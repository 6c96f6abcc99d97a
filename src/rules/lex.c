/* lex.c: tokens of the rules language. Newlines mean nothing; # before a space or at the end of a line starts a
 * comment, # before a letter is a constant. */
#include "rules/front.h"

#include <stdlib.h>
#include <string.h>

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool digit(char c) { return c >= '0' && c <= '9'; }
static char peek(const ki_reader *r, size_t k) { return r->at + k < r->n ? r->text[r->at + k] : 0; }

static void skip_blank(ki_reader *r) {
    for (;;) {
        char c = peek(r, 0);
        if (r->at < r->n && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) r->at++;
        else if (c == '#' && !letter(peek(r, 1)))
            while (r->at < r->n && r->text[r->at] != '\n') r->at++;
        else return;
    }
}

static bool lex_number(ki_reader *r) {
    ki_token *t = &r->tok;
    char buf[64];
    size_t n = 0;
    bool real = false, hex = peek(r, 0) == '0' && (peek(r, 1) == 'x' || peek(r, 1) == 'X');
    for (; n < sizeof buf - 1; n++) {
        char c = peek(r, n);
        bool exponent = n && !hex && (buf[n - 1] == 'e' || buf[n - 1] == 'E');
        if (c == '.' && peek(r, n + 1) == '.') break;
        if (!digit(c) && !letter(c) && c != '.' && !(exponent && (c == '+' || c == '-'))) break;
        if (!hex && (c == '.' || c == 'e' || c == 'E')) real = true;
        buf[n] = c;
    }
    buf[n] = 0;
    char *end;
    if (real) {
        t->kind = KI_TOK_FLOAT;
        t->f = strtod(buf, &end);
    } else {
        unsigned long long v = strtoull(buf, &end, 0);
        t->kind = KI_TOK_INT;
        t->i = (int64_t)v;
        if (v > INT64_MAX) return ki_reader_fail(r, KI_E_RULE_SYNTAX, r->at, "an integer below 2^63", buf);
    }
    if (*end) return ki_reader_fail(r, KI_E_RULE_SYNTAX, r->at, "a number", buf);
    r->at += n;
    return true;
}

static bool lex_string(ki_reader *r) {
    size_t start = r->at++;
    while (r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\n')
        r->at += r->text[r->at] == '\\' && r->at + 1 < r->n ? 2 : 1;
    if (peek(r, 0) != '"') return ki_reader_fail(r, KI_E_RULE_SYNTAX, start, "closing \"", "the end of the line");
    r->at++;
    r->tok.kind = KI_TOK_STRING;
    return true;
}

bool ki_lex(ki_reader *r) {
    static const struct {
        char s[4];
        ki_tok kind;
    } multi[] = {{"...", KI_TOK_DOTS}, {"=>", KI_TOK_ARROW}, {"&&", KI_TOK_ANDAND}, {"||", KI_TOK_OROR},
                 {"<<", KI_TOK_SHL},   {">>", KI_TOK_SHR},   {"<=", KI_TOK_LE},     {">=", KI_TOK_GE},
                 {"==", KI_TOK_EQ},    {"!=", KI_TOK_NE}};
    r->end = r->tok.pos + r->tok.len;
    skip_blank(r);
    r->tok = (ki_token){.kind = KI_TOK_END, .pos = (uint32_t)r->at};
    if (r->at >= r->n) return true;
    size_t start = r->at;
    char c = r->text[start];
    bool ok = true;
    if (letter(c)) {
        r->tok.kind = KI_TOK_IDENT;
        while (letter(peek(r, 0)) || digit(peek(r, 0))) r->at++;
    } else if (digit(c)) {
        ok = lex_number(r);
    } else if (c == '"') {
        ok = lex_string(r);
    } else {
        for (size_t k = 0; k < sizeof multi / sizeof *multi && r->tok.kind == KI_TOK_END; k++) {
            size_t len = strlen(multi[k].s);
            if (r->n - start < len || memcmp(r->text + start, multi[k].s, len)) continue;
            r->tok.kind = multi[k].kind;
            r->at += len;
        }
        if (r->tok.kind == KI_TOK_END) {
            if (!strchr("()[]{},;:@#+-*/%&|^!<>=", c) || !c) {
                char what[8] = {(unsigned char)c >= 32 && (unsigned char)c < 127 ? c : '?', 0};
                return ki_reader_fail(r, KI_E_RULE_SYNTAX, start, "a rule", what);
            }
            r->tok.kind = KI_TOK_CHAR;
            r->tok.c = c;
            r->at++;
        }
    }
    r->tok.len = (uint32_t)(r->at - start);
    return ok;
}

char *ki_reader_copy(ki_reader *r, uint32_t pos, uint32_t len) {
    char *s = ki_arena_alloc(r->arena, (size_t)len + 1);
    if (!s) return ki_fail(r->env, KI_E_NOMEM), NULL;
    memcpy(s, r->text + pos, len);
    s[len] = 0;
    return s;
}

char *ki_reader_string(ki_reader *r, const ki_token *t) {
    char *s = ki_reader_copy(r, t->pos + 1, t->len - 2);
    if (!s) return NULL;
    char *out = s;
    for (char *p = s; *p; p++) *out++ = *p == '\\' && p[1] ? *++p : *p;
    *out = 0;
    return s;
}

uint32_t ki_reader_line(const ki_reader *r, uint32_t pos) {
    uint32_t line = 1;
    for (uint32_t i = 0; i < pos && i < r->n; i++) line += r->text[i] == '\n';
    return line;
}
