/* prove_mutate.c: changed guards, each proved again. A condition that can be changed without making the rule false is
 * stronger than it need be, or the prover is blind to it. */
#include "rules/prove_impl.h"

#include <string.h>

typedef struct mutation {
    ki_env *env;
    const ki_ruleset *set;
    const ki_rule *rule;
    const ki_prove_opts *o;
    ki_term *term; /* copy, changed in place and restored */
    void (*report)(void *user, const char *change, const ki_verdict *v);
    void *user;
    bool failed;
} mutation;

/* Source text around a term, for the report. */
static void excerpt(const mutation *m, uint32_t pos, ki_text *out) {
    uint32_t from = pos >= m->rule->pos ? pos - m->rule->pos : 0, n = (uint32_t)strlen(m->rule->text);
    uint32_t at = from < n ? from : 0;
    ki_text_printf(out, " at '%.*s'", (int)(n - at < 16 ? n - at : 16), m->rule->text + at);
}

static void try_change(mutation *m, unsigned term, ki_term changed, const char *what) {
    ki_term old = m->term[term];
    ki_text change = {0};
    ki_proof p;
    ki_verdict v;
    if (m->failed) return;
    changed.pos = old.pos;
    m->term[term] = changed;
    ki_text_put(&change, what);
    excerpt(m, old.pos, &change);
    ki_ruleset changed_set = *m->set; /* what the engine runs by */
    changed_set.term = m->term;
    ki_proof_make(&p, &changed_set, m->rule, m->term, m->rule->guard);
    p.mutant = true;
    if (ki_prove_taken(m->env, &p, m->o, &v)) {
        m->report(m->user, change.s ? change.s : what, &v);
        ki_verdict_free(&v);
    } else {
        m->failed = true;
    }
    m->term[term] = old;
    ki_text_free(&change);
}

static ki_term with_op(ki_term t, kn_op op) {
    t.op = (uint8_t)op;
    return t;
}

static void inside(mutation *m, unsigned term) {
    ki_term t = m->term[term];
    if (t.kind == KI_T_INT) {
        ki_term c = t;
        c.i = t.i + 1;
        try_change(m, term, c, "constant + 1");
        c.i = t.i - 1;
        try_change(m, term, c, "constant - 1");
        c.i = -t.i;
        if (t.i) try_change(m, term, c, "constant negated");
    }
    if (t.kind == KI_T_OP && t.nkid == 2) {
        static const struct {
            uint8_t from, to;
            const char *what;
        } turns[] = {{KN_CMPLT, KN_CMPLE, "< to <="},  {KN_CMPLE, KN_CMPLT, "<= to <"},
                     {KN_CMPGT, KN_CMPGE, "> to >="},  {KN_CMPGE, KN_CMPGT, ">= to >"},
                     {KN_CMPEQ, KN_CMPLE, "== to <="}, {KN_CMPEQ, KN_CMPGE, "== to >="},
                     {KN_ADD, KN_SUB, "+ to -"},       {KN_SUB, KN_ADD, "- to +"}};
        bool names = false; /* == between names of ops or dtypes, which have no order */
        for (unsigned k = 0; k < 2; k++) names |= m->term[m->set->kid[t.kid + k]].kind == KI_T_ENUM;
        if (names && t.op == KN_CMPEQ) try_change(m, term, with_op(t, KN_CMPNE), "== to !=");
        if (names && t.op == KN_CMPNE) try_change(m, term, with_op(t, KN_CMPEQ), "!= to ==");
        for (size_t k = 0; k < sizeof turns / sizeof *turns && !names; k++)
            if (t.op == turns[k].from) try_change(m, term, with_op(t, (kn_op)turns[k].to), turns[k].what);
    }
    if (t.kind == KI_T_OP && t.op == KN_NEG) try_change(m, term, m->term[m->set->kid[t.kid]], "minus dropped");
    for (unsigned k = 0; k < t.nkid; k++) inside(m, m->set->kid[t.kid + k]);
}

static void conjuncts(mutation *m, unsigned term) {
    ki_term t = m->term[term];
    if (t.kind == KI_T_AND) {
        for (unsigned k = 0; k < 2; k++) conjuncts(m, m->set->kid[t.kid + k]);
        return;
    }
    ki_term yes = {.kind = KI_T_BOOL, .i = 1, .dtype_reg = KI_NOREG, .dtype = KI_DTYPE_COUNT};
    try_change(m, term, yes, "condition dropped");
    inside(m, term);
}

bool ki_prove_mutants(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o,
                      void (*report)(void *user, const char *change, const ki_verdict *v), void *user) {
    mutation m = {.env = env, .set = set, .rule = &set->rule[rule], .o = o, .report = report, .user = user};
    if (!m.rule->guard || m.rule->kind != KI_R_REWRITE) return true;
    m.term = ki_malloc(set->nterm * sizeof *m.term);
    if (!m.term) return ki_fail(env, KI_E_NOMEM), false;
    memcpy(m.term, set->term, set->nterm * sizeof *m.term);
    conjuncts(&m, m.rule->guard);
    ki_free(m.term);
    return !m.failed;
}
