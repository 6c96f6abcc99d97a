/* The prover: every built-in rule has a verdict, and false rules are refuted with values. */
#include "rules/prove.h"
#include "stages/x86/x86.h"
#include "tap.h"

#include <rules.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static ki_env env;
static const ki_ruleset *const all_sets[] = {
#define X(name) &ki_rules_##name,
    KI_ALL_RULES(X)
#undef X
};
static uint64_t *derived[sizeof all_sets / sizeof *all_sets];
static ki_prove_opts opts = {.derived = derived,
                             .budget = SANITIZED ? 60000 : 200000,
                             .meaning = ki_x86_ins_meaning,
                             .ins = ki_x86_understand,
                             .peers = all_sets,
                             .npeers = sizeof all_sets / sizeof *all_sets};

/* As the command does it: derivations once a set. */
static void derive_sets(bool begin) {
    for (size_t k = 0; k < sizeof all_sets / sizeof *all_sets; k++) {
        if (begin && all_sets[k]->root[KN_STAGE]) derived[k] = calloc(all_sets[k]->nrule, sizeof **derived);
        if (begin && derived[k]) ki_prove_derive(all_sets[k], &opts, derived[k]);
        if (!begin) free(derived[k]);
    }
}

static void built_in(const ki_ruleset *set) {
    for (uint32_t k = 0; k < set->nrule; k++) {
        if (set->rule[k].kind != KI_R_REWRITE) continue;
        ki_verdict v;
        clock_t t0 = clock();
        if (!ki_prove_rule(&env, set, k, &opts, &v)) return;
        bool good = v.rung != KI_REFUTED && (v.rung != KI_UNPROVED || !v.arith);
        CHECK(good, "%s.%s: %s on %llu", set->name, ki_rule_name(set, &set->rule[k]), ki_rung_names[v.rung],
              (unsigned long long)v.instances);
        if (v.reason.n) printf("# %s\n", v.reason.s);
        ki_verdict_free(&v);
        double s = (double)(clock() - t0) / CLOCKS_PER_SEC;
        if (s > 0.5) printf("# %s took %.1f s\n", ki_rule_name(set, &set->rule[k]), s);
    }
}

/* The one rule of the text gets this verdict. */
static void verdict(const char *rule, ki_rung want) {
    char text[600];
    ki_rules r;
    ki_verdict v;
    snprintf(text, sizeof text,
             "ruleset t\n extern pred pow2(int) = ki_is_pow2 smt \"(and (bvsgt x #0) (= #0 (bvand x (bvsub x "
             "#1))))\"\n a : %s",
             rule);
    if (!ki_rules_load(&env, "t.kr", text, strlen(text), NULL, &r)) {
        CHECK(false, "%s", env.message.s);
        ki_env_clear(&env);
        return;
    }
    ki_prove_rule(&env, r.set, 0, &opts, &v);
    bool late = want == KI_PROVED_SMT && v.rung == KI_PROVED_EXHAUSTIVE; /* the solver ran out of time */
    CHECK(v.rung == want || late, "%s: %s", rule, ki_rung_names[v.rung]);
    if (v.reason.n) printf("# %s\n", v.reason.s);
    ki_verdict_free(&v);
    ki_rules_free(&r);
}

static void bites(void) {
    verdict("x:int + 0 => x", KI_PROVED_EXHAUSTIVE);
    verdict("x + 0 => x", KI_REFUTED); /* -0.0 */
    verdict("x:float * 0.0 => 0.0", KI_REFUTED);
    verdict("x:float - x => 0.0", KI_REFUTED);
    verdict("x:float / x => 1.0 @fp(nnan)", KI_PROVED_EXHAUSTIVE);
    verdict("x:float + 0.0 => x @fp(nsz)", KI_PROVED_EXHAUSTIVE);
    verdict("x:int < x + 1 => true", KI_REFUTED); /* wraps */
    verdict("x:index < x + 1 => true", KI_PROVED_EXHAUSTIVE);
    verdict("x:index % #c => x if 0 <= lo(x) && hi(x) < c", KI_PROVED_EXHAUSTIVE);
    verdict("x:index % #c => x if 0 <= lo(x) && hi(x) <= c", KI_REFUTED);
    verdict("x:index % #c => x if hi(x) < c", KI_REFUTED);
    verdict("(x:index * #a + y) / #c => x * [a / c] + y / #c if c > 0 && a % c == 0 @ends(\"t\")",
            KI_PROVED_EXHAUSTIVE);
    verdict("(x:index * #a + y) / #c => x * [a / c] + y / #c if c > 0 @ends(\"t\")", KI_REFUTED);
    verdict("(x:int * #a + y) / #c => x * [a / c] + y / #c if c > 0 && a % c == 0 @ends(\"t\")", KI_REFUTED);
    verdict("x:int < y => true if hi(x) < lo(y)", KI_PROVED_EXHAUSTIVE);
    verdict("x:int < y => true if hi(x) <= lo(y)", KI_REFUTED);
    verdict("x:uint * #c => x << [c - 1] if c == 1 @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:uint % #c => x & [c - 1] if pow2(c)", KI_PROVED_EXHAUSTIVE);
    verdict("x:uint % #c => x & [c - 1]", KI_REFUTED);
    verdict("max(x:float, y) => where(x < y, y, x) @ends(\"t\")", KI_REFUTED);
    verdict("where(!p, x, y) => where(p, y, x)", KI_PROVED_EXHAUSTIVE);
    verdict("(x:float + #a) + #b => x + [a + b]", KI_REFUTED);
    verdict("(x:float + #a) + #b => x + [a + b] @fp(reassoc)", KI_PROVED_EXHAUSTIVE);
    verdict("(x:float * #a) + #b => x + [a + b] @fp(reassoc)", KI_REFUTED);
    verdict("cast(cast(x:u8; i32); u8) => x", KI_PROVED_EXHAUSTIVE);
    verdict("cast(cast(x:i32; u8); i32) => x", KI_REFUTED);
    verdict("cast(cast(x:i32; i64); i32) => x", KI_PROVED_EXHAUSTIVE);
    verdict("cast(cast(x:u32; i64); u64) => cast(x; u64)", KI_PROVED_EXHAUSTIVE);
    verdict("cast(cast(x:i32; u64); index) => cast(x; index)", KI_REFUTED);
    verdict("cast(x:u8; i32) > 255 => false", KI_PROVED_EXHAUSTIVE);
    verdict("x:u32 + 70000 => x - [-70000] @ends(\"t\")", KI_UNPROVED);
    verdict("x:index % #c => x if c > 5000 && hi(x) < 0 && lo(x) > 0", KI_UNPROVED);
    verdict("{alu2:op}(#a, #b) => [fold(op, a, b)]", KI_PROVED_EXHAUSTIVE);
    verdict("{alu2:op}(#a, #b) => [fold(op, b, a)]", KI_REFUTED);
}

/* With a solver: words of all widths, and constants that 4 bits cannot hold. */
/* Instructions on the right side count as what they mean; registers know no dtype, lanes of bits no width. */
static void instructions(void) {
    verdict("x:f32 + y => ins(x, y; \"VADDPS\", f32) @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:f32 - y => ins(x, y; \"vsubps\", f32) @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:f32 - y => ins(y, x; \"VSUBPS\", f32) @ends(\"t\")", KI_REFUTED);
    verdict("x:f32 < y => ins(x, y, 1:i32; \"VCMPPS_K\", bool) @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:f32 >= y => ins(x, y, 5:i32; \"VCMPPS_K\", bool) @ends(\"t\")", KI_REFUTED); /* not less: with NaN too */
    verdict("max(x:f32, y) => ins(x, y; \"VMAXPS\", f32) @ends(\"t\")", KI_REFUTED);
    verdict("x:u8 ^ y => ins(x, y; \"VPXORD\", u8) @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:bool & y => ins(x, y; \"KANDQ\", bool) @ends(\"t\")", KI_PROVED_EXHAUSTIVE);
    verdict("x:bool & y => ins(x, y; \"KANDNQ\", bool) @ends(\"t\")", KI_REFUTED);
    verdict("x:i32 >> y => ins(x, y; \"VPSRLVD\", i32) @ends(\"t\")", KI_REFUTED);
    verdict("x:f32 + y => ins(x, y; \"VRCP14PS\", f32) @ends(\"t\")", KI_UNPROVED); /* without a meaning */
    verdict("x:f32 + y => ins(x; \"VADDPS\", f32) @ends(\"t\")", KI_UNPROVED);
}

static void by_solver(void) {
    const char *path = getenv("PATH");
    char full[512];
    bool found = false;
    for (const char *s = path; s && *s && !found; s = strchr(s, ':') ? strchr(s, ':') + 1 : NULL) {
        snprintf(full, sizeof full, "%.*s/z3", (int)strcspn(s, ":"), s);
        found = access(full, X_OK) == 0;
    }
    if (!found) {
        CHECK(true, "proof by solver # SKIP no z3 in PATH");
        return;
    }
    opts.z3 = "z3";
    verdict("x:u32 + 70000 => x - [-70000] @ends(\"t\")", KI_UNPROVED);
    verdict("(x:u32 & 65535) & 255 => x & 255", KI_PROVED_SMT);
    verdict("(x:u32 & 65535) & 65536 => x & 65536", KI_REFUTED);
    verdict("x:u8 % #c => x & [c - 1] if pow2(c)", KI_PROVED_SMT);
    verdict("(x:index / #a) / #b => x / [a * b] if a > 0 && b > 0", KI_PROVED_SMT);
    verdict("(x:index + #a) < #b => x < [b - a]", KI_PROVED_SMT);
    opts.z3 = NULL;
}

static unsigned mutants, fate[KI_M_FATES];
static void mutant(void *user, const ki_mutant_report *r) {
    mutants++;
    fate[r->fate]++;
    if (r->fate == KI_M_OPEN) printf("# %s: %s: %s\n", (const char *)user, r->change, r->verdict->reason.s);
    if (r->fate == KI_M_REFUTED && !r->verdict->reason.n) CHECK(false, "%s: no counterexample", r->change);
}

/* All changes of a rule, and what must come of them. */
static void mutations(const ki_ruleset *set, const char *rule, unsigned least_refuted) {
    mutants = 0;
    memset(fate, 0, sizeof fate);
    for (uint32_t k = 0; k < set->nrule; k++)
        if (strcmp(ki_rule_name(set, &set->rule[k]), rule) == 0)
            ki_prove_mutants(&env, set, k, &opts, 1, 0, mutant, (void *)(uintptr_t)ki_rule_name(set, &set->rule[k]));
    CHECK(fate[KI_M_REFUTED] >= least_refuted && fate[KI_M_OPEN] == 0 && fate[KI_M_SURVIVES] == 0,
          "%s.%s: %u mutants, %u refuted, %u harmless, %u survive", set->name, rule, mutants, fate[KI_M_REFUTED],
          fate[KI_M_HARMLESS], fate[KI_M_SURVIVES]);
}

/* One rule of each kind; tests/rules/test_mutants.py runs the command on all. */
static void mutated(void) {
    mutations(&ki_rules_symbolic, "div_split", 10);
    mutations(&ki_rules_symbolic, "mod_range", 8);
    mutations(&ki_rules_float, "add_assoc", 4);
    mutations(&ki_rules_divmod, "lt_mod", 15);
    mutations(&ki_rules_gates, "gate_add", 4);
    mutations(&ki_rules_given, "given_lt", 0);
    mutations(&ki_rules_push, "push_alu3", 1);
    mutations(&ki_rules_grad, "max", 15);
    mutations(&ki_rules_grad, "shrink", 2);
    mutations(&ki_rules_math32, "exp_round", 4);
    mutations(&ki_rules_split, "split", 8);
}

int main(void) {
    if (!ki_env_open(&env)) return 1;
    derive_sets(true);
#define X(name) built_in(&ki_rules_##name);
    KI_ALL_RULES(X)
#undef X
    bites();
    instructions();
    by_solver();
    mutated();
    derive_sets(false);
    ki_env_close(&env);
    return tap_done();
}
