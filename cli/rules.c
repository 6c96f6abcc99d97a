/* rules.c: `koine rules`: the rule sets, one rule explained, and the proof of all. */
#include "cli.h"

#include "prove.h"

#include <builders.h>
#include <rules.h>
#include <stdlib.h>
#include <string.h>

static const ki_ruleset *const own[] = {
#define X(name) &ki_rules_##name,
    KI_ALL_RULES(X)
#undef X
};
enum { OWN = sizeof own / sizeof *own, MOST = 256, BUILDERS = sizeof builders / sizeof *builders - 1 };
/* What the command works on: the library's sets, or those of the files given. */
static const ki_ruleset *sets[MOST];
static int nsets;

static const char *const kinds[] = {"rewrite", "accept", "grad"};

static bool is_file(const char *operand) {
    size_t n = strlen(operand);
    return n > 3 && strcmp(operand + n - 3, ".kr") == 0;
}

static bool wanted(const cli *c, const ki_ruleset *s) {
    bool named = false;
    for (int i = 0; i < c->noperand; i++) {
        if (strcmp(c->operand[i], s->name) == 0) return true;
        named |= !is_file(c->operand[i]);
    }
    return !named;
}

/* ---- rules of a file ---- */

/* Every host function the library's rules name, NULL-terminated: a file may name the same. */
static ki_callback *host_functions(void) {
    size_t most = 1, n = 0;
    for (int s = 0; s < OWN; s++) most += own[s]->nextern + own[s]->ndoes;
    ki_callback *c = calloc(most, sizeof *c);
    for (int s = 0; c && s < OWN; s++) {
        for (uint32_t k = 0; k < own[s]->nextern; k++)
            c[n++] = (ki_callback){.symbol = own[s]->ext[k].symbol, .fn = own[s]->ext[k].fn};
        for (uint32_t k = 1; k < own[s]->ndoes; k++)
            c[n++] = (ki_callback){.symbol = own[s]->does[k].symbol, .run = own[s]->does[k].fn};
    }
    return c;
}

static bool read_file(const char *path, ki_text *out) {
    char part[4096];
    FILE *f = fopen(path, "rb");
    size_t n = 0;
    while (f && (n = fread(part, 1, sizeof part, f)) > 0) ki_text_putn(out, part, n);
    bool ok = f && !ferror(f);
    ki_text_put(out, "");
    if (f) fclose(f);
    return ok && out->s;
}

static int load_file(cli *c, const char *path, ki_rules *out) {
    ki_text text = {0};
    if (!read_file(path, &text)) return ki_text_free(&text), cli_fail(c, "%s cannot be read", path);
    ki_env env;
    ki_callback *host = host_functions();
    bool opened = ki_env_open(&env), ok = host && opened && ki_rules_load(&env, path, text.s, text.n, host, out);
    if (!ok) fprintf(stderr, "koine rules: %s\n", opened && env.message.s ? env.message.s : "out of memory");
    if (opened) ki_env_close(&env);
    free(host);
    ki_text_free(&text);
    for (unsigned k = 0; ok && k < out->nset && nsets < MOST; k++) sets[nsets++] = &out->set[k];
    return ok ? CLI_OK : CLI_FAILED;
}

static const char *set_word(const void *of, int i) {
    (void)of;
    return i < nsets ? sets[i]->name : NULL;
}

static bool known_sets(const cli *c) {
    for (int i = 0; i < c->noperand; i++) {
        bool found = is_file(c->operand[i]);
        for (int s = 0; s < nsets; s++) found |= strcmp(c->operand[i], sets[s]->name) == 0;
        if (found) continue;
        const char *near = cli_near(c->operand[i], set_word, NULL);
        if (near) cli_usage(c, "no rule set %s; did you mean %s?", c->operand[i], near);
        else cli_usage(c, "no rule set %s; `koine rules` lists them", c->operand[i]);
        return false;
    }
    return true;
}

/* ---- listing ---- */

/* A reason as it was written; NULL: none. */
static const char *reason(const ki_ruleset *s, uint32_t at) { return at ? ki_wording_of(s)->letters + at : NULL; }

static const ki_written_rule *written(const ki_ruleset *s, const ki_rule *r) {
    return &ki_wording_of(s)->rule[r - s->rule];
}

static void list_json(const ki_ruleset *s) {
    for (uint32_t i = 0; i < s->nrule; i++) {
        const ki_rule *r = &s->rule[i];
        cli_json(stdout, "s rule, s set, s file, i line, s kind, b do, s reason, s text", ki_rule_name(s, r), s->name,
                 s->source, (int64_t)r->line, kinds[r->kind], r->does != 0, reason(s, written(s, r)->opaque),
                 ki_rule_text(s, r));
    }
}

typedef struct count {
    int64_t rules, use_do, accept, grad;
} count;

static count count_set(const ki_ruleset *s) {
    count n = {.rules = s->nrule};
    for (uint32_t i = 0; i < s->nrule; i++) {
        n.use_do += s->rule[i].does != 0;
        n.accept += s->rule[i].kind == KI_R_ACCEPT;
        n.grad += s->rule[i].kind == KI_R_GRAD;
    }
    return n;
}

static int list(cli *c) {
    count all = {0};
    for (int i = 0; i < nsets; i++) {
        if (!wanted(c, sets[i])) continue;
        if (c->json) {
            list_json(sets[i]);
            continue;
        }
        count n = count_set(sets[i]);
        printf("%-14s %4lld rules  %3lld do  %-5s %s\n", sets[i]->name, (long long)n.rules, (long long)n.use_do,
               sets[i]->spec   ? "spec"
               : sets[i]->grad ? "grad"
               : sets[i]->pure ? "pure"
                               : "",
               sets[i]->source);
        if (c->noperand)
            for (uint32_t r = 0; r < sets[i]->nrule; r++) printf("    %s\n", ki_rule_text(sets[i], &sets[i]->rule[r]));
        all.rules += n.rules;
        all.use_do += n.use_do;
    }
    if (c->json) {
        for (int i = 0; i < BUILDERS && !c->noperand; i++)
            cli_json(stdout, "s builder, s file", builders[i].name, builders[i].file);
        return CLI_OK;
    }
    printf("\n%lld rules, %lld of them do (%.1f %%); %d C functions of the stages build nodes\n", (long long)all.rules,
           (long long)all.use_do, all.rules ? 100.0 * (double)all.use_do / (double)all.rules : 0, (int)BUILDERS);
    return CLI_OK;
}

/* ---- one rule ---- */

static void explain_one(const ki_ruleset *s, const ki_rule *r) {
    static const char *const fp[] = {"nsz", "reassoc", "nnan", "ninf", "contract", "arcp", "afn"};
    printf("%s:%u: %s (%s in set %s)\n\n    %s\n\n", s->source, (unsigned)r->line, ki_rule_name(s, r), kinds[r->kind],
           s->name, ki_rule_text(s, r));
    if (r->fp) {
        printf("holds in real arithmetic; fires where the caller allows:");
        for (unsigned b = 0; b < sizeof fp / sizeof *fp; b++)
            if (r->fp >> b & 1) printf(" %s", fp[b]);
        putchar('\n');
    }
    const char *opaque = reason(s, written(s, r)->opaque), *ends = reason(s, written(s, r)->ends);
    if (r->does) printf("right side in C: %s; because: %s\n", ki_rule_symbol(s, r), opaque ? opaque : "(no reason)");
    if (ends) printf("ends because: %s\n", ends);
}

static const char *rule_word(const void *of, int i) {
    (void)of;
    for (int s = 0; s < nsets; s++) {
        if (i < (int)sets[s]->nrule) return ki_rule_name(sets[s], &sets[s]->rule[i]);
        i -= (int)sets[s]->nrule;
    }
    return NULL;
}

static int explain(cli *c, const char *name) {
    int found = 0, rc = CLI_OK;
    for (int s = 0; s < nsets; s++)
        for (uint32_t i = 0; i < sets[s]->nrule; i++)
            if (strcmp(ki_rule_name(sets[s], &sets[s]->rule[i]), name) == 0) {
                explain_one(sets[s], &sets[s]->rule[i]);
                if (cli_prove_one(c, sets[s], i)) rc = CLI_FAILED;
                found++;
            }
    if (found) return rc;
    const char *near = cli_near(name, rule_word, NULL);
    return near ? cli_fail(c, "no rule %s; did you mean %s?", name, near) : cli_fail(c, "no rule %s", name);
}

static int work_on(cli *c, ki_rules *file) {
    int nfile = 0;
    for (int i = 0; i < c->noperand; i++)
        if (is_file(c->operand[i]) && load_file(c, c->operand[i], &file[nfile++])) return CLI_FAILED;
    for (int i = 0; i < OWN && !nfile; i++) sets[nsets++] = own[i];
    if (!known_sets(c)) return CLI_USAGE;
    const char *name = cli_str(c, "explain", NULL);
    if (name) return explain(c, name);
    if (!cli_has(c, "prove") && !cli_has(c, "mutate")) return list(c);
    const ki_ruleset *chosen[MOST];
    int n = 0;
    for (int i = 0; i < nsets; i++)
        if (wanted(c, sets[i])) chosen[n++] = sets[i];
    return cli_prove(c, chosen, n, sets, nsets, cli_has(c, "mutate"));
}

static int rules(cli *c) {
    ki_rules file[64] = {0};
    int rc = work_on(c, file);
    for (int i = 0; i < 64; i++) ki_rules_free(&file[i]);
    return rc;
}

static const cli_opt options[] = {
    {"prove", NULL, "each rule's verdict: smt, exhaustive, execution, unproved, or refuted with a counterexample"},
    {"mutate", NULL, "changes every rule in every way a person might by mistake, and proves what comes of it"},
    {"every", "N", "with --mutate: one change in N"},
    {"explain", "NAME", "one rule: its text, its place, its reasons, its verdict"},
    {"budget", "N", "instances tried for a rule and a choice of dtypes"},
    {"z3", "CMD", "the solver; default: z3, where it is installed"},
    {"no-z3", NULL, "do without a solver"},
    {"json", NULL, "one object a line"},
    {NULL, NULL, NULL},
};
const cli_verb cli_rules = {
    .name = "rules",
    .args = "[SET | FILE.kr]... [--prove | --mutate | --explain NAME] [--json]",
    .summary = "list, explain and prove the rewrite rules",
    .text =
        "Without options the rule sets are listed, with the number of rules that need C (do), and the number of C "
        "functions in the stages that build nodes; with a set's name its rules too. A file of rules takes the place of "
        "the library's.\n"
        "--prove exits with 1 if a rule is refuted or unproved. --mutate says what became of each changed rule: "
        "refuted "
        "(by a counterexample), refused (it does not compile), harmless (proved, or fires only where the rule does, or "
        "is a step of functions that stay as near the true values as docs/accuracy.md promises), "
        "idle (never fires), survives (holds on all that was tried: equivalent, or the prover is blind) or open; it "
        "exits with 1 if one is open. tests/rules/survivors.txt says why those that survive are equivalent.",
    .opt = options,
    .most = 64,
    .run = rules,
};
