/* user_rules.c: the public side of the rules engine (koine/rules.h). Callbacks of the user are reached through two
 * functions of the engine's own shape; which one is meant is told by the rule or extern that is being applied. */
#include "tensor/build.h"

#include "rules/rules.h"

#include <koine/rules.h>
#include <string.h>

struct kn_rules {
    ki_rules r;
    const kn_rule_callback *callback;
};

/* What m->user is while a user's rules run. */
typedef struct running {
    kn_ctx *k;
    const kn_rules *rules;
    void *user;
} running;

static const kn_rule_callback *named(const kn_rule_callback *c, const char *name) {
    for (; c && c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

/* An extern: operands that are integers, or it is undefined. */
static bool test(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    const running *now = m->user;
    const kn_rule_callback *c = named(now->rules->callback, m->ext->symbol);
    int64_t arg[8], result = 0;
    if (!c || n > 8) return false;
    for (unsigned k = 0; k < n; k++) {
        if (v[k].kind != KI_V_INT || v[k].i > INT64_MAX || v[k].i < INT64_MIN) return false;
        arg[k] = (int64_t)v[k].i;
    }
    bool yes = c->test(now->user, arg, n, &result) != 0;
    *out = m->ext->result == 'b' ? (ki_val){.kind = KI_V_BOOL, .i = yes} : (ki_val){.kind = KI_V_INT, .i = result};
    return m->ext->result == 'b' || yes;
}

static kn_uop build(ki_match *m) {
    const running *now = m->user;
    const kn_rule_callback *c = named(now->rules->callback, ki_rule_symbol(m->set, m->rule));
    return c ? c->build(m) : NULL;
}

/* The user's table in the engine's terms. NULL out of memory. */
static ki_callback *translate(const kn_rule_callback *c) {
    size_t n = 0;
    while (c && c[n].name) n++;
    ki_callback *out = ki_calloc(n + 1, sizeof *out);
    for (size_t k = 0; out && k < n; k++)
        out[k] = (ki_callback){c[k].name, c[k].test ? test : NULL, c[k].build ? build : NULL};
    return out;
}

kn_rules *kn_rules_load(kn_ctx *k, const char *source, const char *text, const kn_rule_callback *callbacks) {
    ENTER_CTX("rules_load");
    kn_rules *r = ki_calloc(1, sizeof *r);
    ki_callback *table = translate(callbacks);
    bool good = r && table;
    if (!good) ki_fail(&k->env, KI_E_NOMEM);
    good = good && ki_given(k, k->fn, "text", text);
    if (good) good = ki_rules_load(&k->env, source ? source : "rules", text, strlen(text), table, &r->r);
    if (good) r->callback = callbacks;
    ki_free(table);
    if (!good) ki_free(r);
    ki_settle_failure(k);
    return good ? r : NULL;
}

void kn_rules_free(kn_rules *r) {
    if (!r) return;
    ki_rules_free(&r->r);
    ki_free(r);
}

kn_uop kn_rewrite(kn_ctx *k, const kn_rules *r, const char *set, kn_uop root, kn_rewrite_how how, void *user) {
    ENTER_CTX("rewrite");
    if (!r || !root) return NULL;
    const ki_ruleset *s = NULL;
    for (unsigned i = 0; i < r->r.nset && !s; i++)
        if (!set || strcmp(set, r->r.set[i].name) == 0) s = &r->r.set[i];
    kn_uop v = NULL;
    running now = {k, r, user};
    ki_rewrite_opts o = {.sets = &s, .nsets = 1, .driver = (ki_driver)how, .user = &now};
    if (!s) ki_fail(&k->env, KI_E_RULE_UNKNOWN, "rule set", set);
    else if ((unsigned)how > KI_WALK)
        ki_fail(&k->env, KI_E_ARG_INVALID, "rewrite", "the driver is KN_FIXPOINT, KN_TOPDOWN or KN_WALK");
    else v = ki_rewrite(&k->ir, root, &o);
    ki_settle_failure(k);
    return v;
}

kn_ctx *kn_match_ctx(const kn_match *m) { return ((const running *)m->user)->k; }
void *kn_match_user(const kn_match *m) { return ((const running *)m->user)->user; }
kn_uop kn_match_root(const kn_match *m) { return m->root; }
kn_uop kn_match_node(const kn_match *m, unsigned name) { return name < m->rule->nname ? ki_match_node(m, name) : NULL; }
size_t kn_match_rest(const kn_match *m, unsigned name, const kn_uop **nodes) {
    uint32_t n = 0;
    const kn_uop *v = name < m->rule->nname ? ki_match_rest(m, name, &n) : NULL;
    if (nodes) *nodes = v;
    return n;
}
