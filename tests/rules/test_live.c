/* No rule is dead: each is the first to fire on some graph that matches it, among the sets the pipeline runs it with. One
 * that never is stands behind a rule that says the same. */
#include "rules/prove_gen.h"
#include "rules/rules.h"
#include "tap.h"

#include <rules.h>
#include <stdlib.h>
#include <string.h>

static ki_env env;
static ki_ir ir;

/* As simplify.c, given.c and decompose.c put them together. */
static const ki_ruleset *const fold[] = {&ki_rules_gates,  &ki_rules_symbolic, &ki_rules_bool,
                                         &ki_rules_divmod, &ki_rules_float,    &ki_rules_fold};
static const ki_ruleset *const push[] = {&ki_rules_push};

static bool fires(const ki_ruleset *const *sets, unsigned n, const ki_ruleset *set, uint32_t rule) {
    static char room[65536];
    ki_gen g = {.ir = &ir, .set = set, .rule = &set->rule[rule], .state = 7};
    bool live = false;
    for (unsigned k = 0; k < 20000 && !live; k++) {
        ki_mark mark = ki_ir_mark(&ir);
        const ki_rule *fired = NULL;
        kn_uop root = ki_gen_root(&g);
        memset(room, 0, sizeof room);
        ki_env_clear(&env);
        /* A swap into canonical order comes first where it may; looser arithmetic may leave nothing for a rule. */
        ki_rewrite_opts o = {.sets = sets, .nsets = n, .fp = k & 1 ? 0 : ~0u, .user = room};
        for (unsigned step = 0; step < 2 && root && root->dtype != KN_VOID && !live; step++) {
            root = ki_rewrite_one(&ir, root, &o, &fired);
            live = root && fired == &set->rule[rule];
            if (root && !(fired->flags & KI_RF_ORDERED)) break;
        }
        ki_env_clear(&env);
        ki_ir_drop(&ir, mark);
    }
    return live;
}

static void all(const ki_ruleset *const *sets, unsigned n) {
    for (unsigned s = 0; s < n; s++)
        for (uint32_t r = 0; r < sets[s]->nrule; r++)
            CHECK(fires(sets, n, sets[s], r), "%s.%s fires", sets[s]->name, ki_rule_name(sets[s], &sets[s]->rule[r]));
}

int main(void) {
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return 1;
    all(fold, sizeof fold / sizeof *fold);
    all(push, sizeof push / sizeof *push);
    ki_ir_close(&ir);
    ki_env_close(&env);
    return tap_done();
}
