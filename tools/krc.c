/* krc: rules compiler. krc FILE.kr OUT.c prints the rule sets of a file as constant tables; krc -h OUT.h FILE... the
 * header that declares those of all files. Run by the build; the same front end serves the library at run time. */
#include "rules/rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    size_t cap = 0;
    *n = 0;
    if (!f) return NULL;
    do {
        cap = cap ? cap * 2 : 65536;
        char *p = realloc(s, cap + 1);
        if (!p) break;
        s = p;
        *n += fread(s + *n, 1, cap - *n, f);
    } while (*n == cap);
    fclose(f);
    return s;
}

static void quoted(FILE *f, const char *s) {
    if (!s) {
        fputs("NULL", f);
        return;
    }
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if (*s == '\n') fputs("\\n", f);
        else if (*s == '?') fputs("\\?", f); /* no trigraphs */
        else fputc(*s, f);
    }
    fputc('"', f);
}

static void externals(FILE *f, const ki_ruleset *s) {
    for (uint32_t k = 0; k < s->nextern; k++)
        fprintf(f, "bool %s(ki_match *m, const ki_val *v, unsigned n, ki_val *out);\n", s->ext[k].symbol);
    for (uint32_t k = 1; k < s->ndoes; k++) fprintf(f, "kn_uop %s(ki_match *m);\n", s->does[k].symbol);
    fprintf(f, "static const ki_extern ext_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nextern; k++) {
        const ki_extern *e = &s->ext[k];
        fprintf(f, "    {\"%s\", \"%s\", \"%s\", '%c', %s, ", e->name, e->symbol, e->types, e->result, e->symbol);
        quoted(f, e->smt);
        fputs("},\n", f);
    }
    fprintf(f, "    {0}};\nstatic const ki_does does_%s[] = {\n    {0},\n", s->name);
    for (uint32_t k = 1; k < s->ndoes; k++) fprintf(f, "    {\"%s\", %s},\n", s->does[k].symbol, s->does[k].symbol);
    fputs("};\n", f);
}

/* Texts one after the other, "" first. */
static void letters(FILE *f, const char *what, const char *name, const char *v, uint32_t n) {
    fprintf(f, "static const char %s_%s[] =\n", what, name);
    for (uint32_t at = 0; at < n; at += (uint32_t)strlen(v + at) + 1) {
        fputs("    ", f);
        quoted(f, v + at);
        fputs(" \"\\0\"\n", f);
    }
    fputs("    \"\";\n", f);
}

static void places(FILE *f, const char *what, const char *name, const uint32_t *v, uint32_t n) {
    fprintf(f, "static const uint32_t %s_%s[] = {", what, name);
    for (uint32_t k = 0; k < n; k++) fprintf(f, "%s%u,", k % 24 ? "" : "\n    ", v[k]);
    fputs("\n    0};\n", f);
}

static void wording(FILE *f, const ki_ruleset *s) {
    const ki_wording *w = s->wording;
    letters(f, "words", s->name, w->letters, w->nletter);
    fprintf(f, "static const ki_written_rule written_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nrule; k++)
        fprintf(f, "    {%u, %u, %u, %u, %u},\n", w->rule[k].text, w->rule[k].pos, w->rule[k].opaque, w->rule[k].ends,
                w->rule[k].names);
    fputs("    {0}};\n", f);
    places(f, "name", s->name, w->name, w->nname);
    fprintf(f, "static const ki_written_pat written_pat_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->npat; k++)
        fprintf(f, "    {%u, %u, %u},\n", w->pat[k].pos, w->pat[k].mask, w->pat[k].like);
    fputs("};\n", f);
    if (s->spec) places(f, "term_place", s->name, w->term, s->nterm);
    fprintf(f,
            "const ki_wording ki_wording_%s = {.letters = words_%s, .nletter = %u, .nname = %u, .rule = written_%s, "
            ".name = name_%s",
            s->name, s->name, w->nletter, w->nname, s->name, s->name);
    fprintf(f, ", .pat = written_pat_%s", s->name);
    if (s->spec) fprintf(f, ", .term = term_place_%s", s->name);
    fputs("};\n", f);
}

static void rules(FILE *f, const ki_ruleset *s) {
    fprintf(f, "static const ki_rule rule_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nrule; k++) {
        const ki_rule *r = &s->rule[k];
        fprintf(f, "    {%u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u},\n", r->line, r->kind, r->name,
                r->pat, r->rest, r->rname, r->guard, r->rhs, r->flags, r->fp, r->npat, r->nrest, r->nname, r->ngrad,
                r->nswap, r->does);
    }
    fputs("};\n", f);
}

static void patterns(FILE *f, const ki_ruleset *s) {
    fprintf(f, "static const ki_pat pat_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->npat; k++) {
        const ki_pat *p = &s->pat[k];
        fprintf(f, "    {%u, %u, %u, %u, %u, %u, %u, %u, %u, %u, %u, {%u}},\n", p->kind, p->parent, p->src, p->swap,
                p->same, p->op, p->nsrc, p->flags, p->dtypes, p->narg, p->arg, p->opset);
    }
    fprintf(f, "};\nstatic const ki_rest rest_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nrest; k++) {
        const ki_rest *r = &s->rest[k];
        fprintf(f, "    {%u, %u, %u, %u, %u, %u},\n", r->reg, r->from, r->tail, r->same, r->konst, r->dtypes);
    }
    fprintf(f, "    {0}};\nstatic const ki_rname rname_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nname; k++)
        fprintf(f, "    {%u, %u, %u},\n", s->rname[k].kind, s->rname[k].reg, s->rname[k].field);
    fputs("    {0}};\n", f);
    letters(f, "letters", s->name, s->letters, s->nletter);
    fprintf(f, "static const ki_argcond cond_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->ncond; k++) {
        const ki_argcond *c = &s->cond[k];
        fprintf(f, "    {%u, %u, %u, %u, %u, %u, %u},\n", c->field, c->reg, c->like, c->like_field, c->none, c->text,
                c->at);
    }
    fputs("    {0}};\n", f);
}

static void terms(FILE *f, const ki_ruleset *s) {
    fprintf(f, "static const ki_term term_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nterm; k++) {
        const ki_term *t = &s->term[k];
        fprintf(f, "    {%u, %u, %u, %u, %u, %u, %u, %u, {%u}},\n", t->kind, t->narg, t->nkid, t->flags, t->dtype,
                t->dtype_reg, t->op, t->x, t->at);
    }
    fprintf(f, "};\nstatic const ki_number number_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nnumber; k++) /* the bits, whichever it is */
        fprintf(f, "    {(int64_t)UINT64_C(0x%llx)},\n", (unsigned long long)s->number[k].i);
    fputs("    {0}};\n", f);
}

static void bytes(FILE *f, const char *what, const char *name, const uint8_t *v, uint32_t n) {
    fprintf(f, "static const uint8_t %s_%s[] = {", what, name);
    for (uint32_t k = 0; k < n; k++) fprintf(f, "%s%u,", k % 24 ? "" : "\n    ", v[k]);
    fputs("};\n", f);
}

static void numbers(FILE *f, const char *type, const char *what, const char *name, const uint16_t *v, uint32_t n) {
    fprintf(f, "static const %s %s_%s[] = {", type, what, name);
    for (uint32_t k = 0; k < n; k++) fprintf(f, "%s%u,", k % 24 ? "" : "\n    ", v[k]);
    fputs("\n    0};\n", f);
}

static void dispatch(FILE *f, const ki_ruleset *s) {
    fprintf(f, "static const ki_opset opset_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nopset; k++)
        fprintf(f, "    {{UINT64_C(%llu), UINT64_C(%llu)}},\n", (unsigned long long)s->opset[k].bits[0],
                (unsigned long long)s->opset[k].bits[1]);
    fprintf(f, "};\nstatic const ki_entry entry_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nentry; k++)
        fprintf(f, "    {%u, %u, %u, %u},\n", s->entry[k].rule, s->entry[k].src1, s->entry[k].dtypes,
                s->entry[k].variant);
    fprintf(f, "    {0}};\nstatic const ki_bucket bucket_%s[] = {\n", s->name);
    for (uint32_t k = 0; k < s->nbucket; k++) fprintf(f, "    {%u, %u},\n", s->bucket[k].first, s->bucket[k].n);
    fputs("};\n", f);
    numbers(f, "uint16_t", "kid", s->name, s->kid, s->nkid);
    numbers(f, "uint16_t", "list", s->name, s->list, s->nlist);
    numbers(f, "uint16_t", "second", s->name, s->second, s->nsecond);
    numbers(f, "uint16_t", "root", s->name, s->root, KI_OP_COUNT);
    bytes(f, "column", s->name, s->column, KI_OP_COUNT + 1);
}

static void ruleset(FILE *f, const ki_ruleset *s) {
    const char *n = s->name;
    fprintf(f, "\n/* ---- %s ---- */\n", n);
    externals(f, s);
    wording(f, s);
    rules(f, s);
    patterns(f, s);
    terms(f, s);
    dispatch(f, s);
    static const char *const tables[] = {"rule",   "does",   "pat",  "rest", "rname",  "letters",
                                         "number", "term",   "kid",  "cond", "opset",  "ext",
                                         "entry",  "bucket", "list", "root", "column", "second"};
    const struct {
        const char *of;
        uint32_t n;
    } counts[] = {{"rule", s->nrule},     {"pat", s->npat},     {"rest", s->nrest},     {"name", s->nname},
                  {"term", s->nterm},     {"kid", s->nkid},     {"cond", s->ncond},     {"opset", s->nopset},
                  {"extern", s->nextern}, {"entry", s->nentry}, {"bucket", s->nbucket}, {"list", s->nlist},
                  {"letter", s->nletter}, {"does", s->ndoes},   {"number", s->nnumber}, {"second", s->nsecond}};
    fprintf(f,
            "const ki_ruleset ki_rules_%s = {.name = \"%s\", .source = \"%s\", .pure = %d, .spec = %d, .grad = %d,\n",
            n, n, s->source, s->pure, s->spec, s->grad);
    if (s->spec) fprintf(f, "    .wording = &ki_wording_%s,\n", n);
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        fprintf(f, "    .%s = %s_%s,\n", tables[k], tables[k], n);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        fprintf(f, "    .n%s = %u,\n", counts[k].of, counts[k].n);
    fputs("};\n", f);
}

static int header(int argc, char **argv, ki_env *env) {
    FILE *f = fopen(argv[2], "w");
    if (!f) return fprintf(stderr, "krc: %s: %s\n", argv[2], strerror(errno)), 1;
    fputs("/* Made by krc: every rule set. */\n#ifndef KI_GEN_RULES_H\n#define KI_GEN_RULES_H\n\n#include "
          "\"rules/rules.h\"\n\n",
          f);
    int bad = 0;
    char **names = NULL;
    size_t nnames = 0;
    for (int a = 3; a < argc; a++) {
        size_t n;
        ki_rules r;
        char *text = slurp(argv[a], &n);
        if (!text || !ki_rules_compile(env, argv[a], text, n, &r)) {
            fprintf(stderr, "%s\n", text ? env->message.s : argv[a]);
            bad = 1;
            free(text);
            break;
        }
        for (unsigned k = 0; k < r.nset; k++) {
            fprintf(f, "extern const ki_ruleset ki_rules_%s; /* %s */\n", r.set[k].name, argv[a]);
            fprintf(f, "extern const ki_wording ki_wording_%s;\n", r.set[k].name);
            names = realloc(names, (nnames + 1) * sizeof *names);
            if (!names) abort();
            names[nnames++] = strdup(r.set[k].name);
        }
        ki_rules_free(&r);
        free(text);
    }
    fprintf(f, "\n#define KI_ALL_RULES(X) \\\n");
    for (size_t k = 0; k < nnames; k++) fprintf(f, "    X(%s)%s\n", names[k], k + 1 < nnames ? " \\" : "");
    fputs("\n#endif\n", f);
    for (size_t k = 0; k < nnames; k++) free(names[k]);
    free(names);
    return fclose(f) != 0 || bad;
}

int main(int argc, char **argv) {
    ki_env env;
    size_t n;
    ki_rules r;
    if (argc < 3) return fputs("usage: krc FILE.kr OUT.c | krc -h OUT.h FILE.kr...\n", stderr), 2;
    if (!ki_env_open(&env)) return 1;
    ki_env_clear(&env); /* settings are not for the build */
    if (strcmp(argv[1], "-h") == 0) {
        int bad = header(argc, argv, &env);
        if (bad) remove(argv[2]);
        ki_env_close(&env);
        return bad;
    }
    char *text = slurp(argv[1], &n);
    if (!text) return fprintf(stderr, "krc: %s: %s\n", argv[1], strerror(errno)), 1;
    if (!ki_rules_compile(&env, argv[1], text, n, &r))
        return fprintf(stderr, "%s\n", env.message.s ? env.message.s : "out of memory"), 1;
    FILE *f = fopen(argv[2], "w");
    if (!f) return fprintf(stderr, "krc: %s: %s\n", argv[2], strerror(errno)), 1;
    fprintf(f,
            "/* Made by krc from %s. */\n#include \"rules/rules.h\"\n\n"
            "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n",
            argv[1]);
    for (unsigned k = 0; k < r.nset; k++) ruleset(f, &r.set[k]);
    ki_rules_free(&r);
    free(text);
    ki_env_close(&env);
    if (fclose(f) == 0) return 0;
    remove(argv[2]);
    return 1;
}
