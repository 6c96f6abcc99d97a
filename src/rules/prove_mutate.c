/* prove_mutate.c: changed rules, each compiled and proved again. A condition that can be changed without making the rule
 * false is stronger than it need be, or the prover is blind to it; a right side that can be changed proves the prover
 * blind. A rule is compiled alone, but for steps of a derivation, which mean something only with the rest of their set. */
#include "rules/mutate.h"
#include "rules/prove_impl.h"

#include <string.h>

const char *const ki_fate_names[] = {"refuted", "refused", "harmless", "idle", "survives", "open"};

/* ---- the text of a set with one rule changed ---------------------------------------------------------------- */

static void put_string(ki_text *t, const char *s) {
    ki_text_put(t, "\"");
    for (; *s; s++) ki_text_printf(t, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    ki_text_put(t, "\"");
}

static const char *type_word(char letter) {
    static const char *const words[] = {"int", "node", "nodes", "ints", "const", "any", "bool"};
    const char *at = strchr("inrvcab", letter);
    return at && letter ? words[at - "inrvcab"] : "any";
}

static void put_externs(ki_text *t, const ki_ruleset *set) {
    for (uint32_t k = 0; k < set->nextern; k++) {
        const ki_extern *e = &set->ext[k];
        ki_text_printf(t, "extern %s %s(", e->result == 'b' ? "pred" : "fn", e->name);
        for (const char *s = e->types; *s; s++) ki_text_printf(t, "%s%s", s == e->types ? "" : ", ", type_word(*s));
        ki_text_put(t, ")");
        if (e->result != 'b') ki_text_printf(t, " %s", type_word(e->result));
        ki_text_printf(t, " = %s", e->symbol);
        if (e->smt) ki_text_put(t, " smt "), put_string(t, e->smt);
        ki_text_put(t, "\n");
    }
}

static bool is_step(const ki_ruleset *set, const ki_rule *r) {
    bool step = false;
    for (unsigned k = 0; k < r->npat; k++) step |= set->pat[r->pat + k].op == KN_STAGE;
    return step || strstr(ki_rule_text(set, r), "stage(") != NULL;
}

/* changed: "ruleset t NAME : ..." */
static void put_set(ki_text *t, const ki_ruleset *set, uint32_t rule, const char *changed) {
    static const char *const words[] = {"", "accept ", "grad "};
    bool all = is_step(set, &set->rule[rule]);
    put_externs(t, set);
    ki_text_printf(t, "ruleset %s%s\n", set->name, set->pure ? " : pure" : "");
    for (uint32_t k = 0; k < set->nrule; k++) {
        const ki_rule *r = &set->rule[k];
        if (k == rule) ki_text_printf(t, "%s\n", changed ? changed + strlen("ruleset t ") : ki_rule_text(set, r));
        else if (all) ki_text_printf(t, "%s%s\n", words[r->kind], ki_rule_text(set, r));
    }
}

/* The host functions of a set by their symbols; NULL-terminated. */
static ki_callback *callbacks_of(const ki_ruleset *set) {
    ki_callback *c = ki_calloc(set->nextern + set->ndoes + 1, sizeof *c);
    uint32_t n = 0;
    for (uint32_t k = 0; c && k < set->nextern; k++)
        c[n++] = (ki_callback){.symbol = set->ext[k].symbol, .fn = set->ext[k].fn};
    for (uint32_t k = 1; c && k < set->ndoes; k++)
        c[n++] = (ki_callback){.symbol = set->does[k].symbol, .run = set->does[k].fn};
    return c;
}

bool ki_proof_load(ki_env *env, const ki_ruleset *set, uint32_t rule, const char *changed, ki_ins_meaning meaning,
                   ki_rules *own, uint32_t *at) {
    ki_text text = {0};
    ki_callback *host = callbacks_of(set);
    put_set(&text, set, rule, changed);
    bool ok = host && text.s && !text.oom;
    if (!ok) ki_fail(env, KI_E_NOMEM);
    ok = ok && ki_rules_load_meant(env, set->source, text.s, text.n, host, meaning, own);
    ki_text_free(&text);
    ki_free(host);
    *at = 0;
    while (ok && *at + 1 < own->set->nrule &&
           strcmp(ki_rule_name(own->set, &own->set->rule[*at]), ki_rule_name(set, &set->rule[rule])) != 0)
        ++*at;
    return ok;
}

/* ---- one mutant -------------------------------------------------------------------------------------------- */

static ki_fate fate_of(const ki_verdict *v) {
    switch (v->rung) {
    case KI_REFUTED: return KI_M_REFUTED;
    case KI_PROVED_SMT: return KI_M_HARMLESS;
    case KI_PROVED_EXHAUSTIVE: return v->instances ? KI_M_HARMLESS : KI_M_IDLE;
    case KI_PROVED_EXECUTION: return v->narrower || v->within ? KI_M_HARMLESS : KI_M_SURVIVES;
    case KI_UNPROVED: break;
    }
    return v->instances ? KI_M_OPEN : KI_M_IDLE;
}

/* False only out of memory. */
static bool judge(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_mutant *m, const ki_prove_opts *o,
                  ki_fate *fate, ki_verdict *v) {
    ki_rules own;
    uint32_t at;
    *v = (ki_verdict){0};
    bool ok = true;
    if (!ki_proof_load(env, set, rule, m->text, o->meaning, &own, &at)) {
        ok = env->err != KI_E_NOMEM;
        *fate = KI_M_REFUSED;
        if (ok) ki_text_put(&v->reason, env->message.s ? env->message.s : "");
        if (ok) ki_env_clear(env);
    } else {
        const ki_ruleset *s = own.set;
        ki_proof p;
        ki_proof_make(&p, s, &s->rule[at], s->term, s->rule[at].guard);
        p.mutant = true;
        p.fused = ki_makes_ins(set);
        if (!m->right) p.was = set, p.was_rule = rule;
        ok = ki_prove_taken(env, &p, o, v);
        *fate = fate_of(v);
        ki_rules_free(&own);
    }
    return ok;
}

bool ki_prove_mutants(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o, unsigned every,
                      unsigned first, void (*report)(void *user, const ki_mutant_report *r), void *user) {
    ki_mutants all;
    if (set->rule[rule].kind == KI_R_ACCEPT) return true;
    if (!ki_mutants_make(env, set, rule, &all)) return false;
    bool ok = true;
    for (uint32_t k = every > 1 ? first % every : 0; ok && k<all.n; k += every> 1 ? every : 1) {
        ki_fate fate = KI_M_OPEN;
        ki_verdict v;
        ok = judge(env, set, rule, &all.v[k], o, &fate, &v);
        if (!ok) break;
        report(user, &(ki_mutant_report){all.v[k].change, all.v[k].text + strlen("ruleset t "), fate, &v});
        ki_verdict_free(&v);
    }
    ki_mutants_free(&all);
    return ok;
}
