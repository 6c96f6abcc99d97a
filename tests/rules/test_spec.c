/* Specs and gradients as rules. */
#include "rules/rules.h"
#include "tap.h"

#include <string.h>

static ki_env env;
static ki_ir ir;

static kn_uop var(const char *name, kn_dtype t, int64_t lo, int64_t hi) {
    return ki_param_make(&ir, -1, t, KN_GLOBAL, 0, name, lo <= hi ? (int64_t[]){lo, hi} : NULL, NULL);
}

static void specs(void) {
    static const char text[] = "ruleset s\n"
                               "accept leaf : {param|const|stack}(_...)\n"
                               "accept alu  : {alu}(_...)\n"
                               "accept load : index(b, i:index) if 0 <= lo(i) && hi(i) < numel(b)\n";
    ki_rules r;
    CHECK(ki_rules_load(&env, "s.kr", text, strlen(text), NULL, &r), "a spec loads");
    const ki_ruleset *s = r.set;
    kn_uop b = ki_param_make(&ir, 0, KN_F32, KN_GLOBAL, 0, NULL, NULL, ki_shape_src(&ir, (int64_t[]){10}, 1));
    kn_uop good = ki_op2(&ir, KN_INDEX, b, var("i", KN_IDX, 0, 9)),
           bad = ki_op2(&ir, KN_INDEX, b, var("j", KN_IDX, -3, 9));
    CHECK(ki_verify(&ir, ki_op2(&ir, KN_ADD, good, good), &s, 1, false, NULL, "test"), "a legal graph passes");
    CHECK(!ki_verify(&ir, ki_op2(&ir, KN_ADD, good, bad), &s, 1, false, NULL, "test"), "a violation is found");
    CHECK(env.err == KI_E_SPEC && strstr(env.message.s, "nearest rule load (s.kr:4)") &&
              strstr(env.message.s, "0 le -3"),
          "it names the nearest rule and the condition that failed");
    printf("# %s\n", env.message.s);
    ki_env_clear(&env);
    CHECK(!ki_verify(&ir, ki_op1(&ir, KN_DETACH, good), &s, 1, false, NULL, "test") &&
              strstr(env.message.s, "no rule of the spec is for op detach"),
          "an op the spec does not know");
    ki_env_clear(&env);
    ki_rules_free(&r);
}

static void gradients(void) {
    static const char text[] = "ruleset d\n"
                               "grad mul : x:float * y => g * y, g * x\n"
                               "grad where : where(p, x, y:float) => _, where(p, g, 0), where(p, 0, g)\n"
                               "grad sub : x:float - y => g, -g\n"
                               "grad stack : stack(x:float...) => index(g, [at()])...\n"
                               "grad max : max(x:float, #c) => where(x > c, g, 0), _ if c > 0.0\n";
    ki_rules r;
    CHECK(ki_rules_load(&env, "d.kr", text, strlen(text), NULL, &r), "gradients load");
    if (env.err) printf("# %s\n", env.message.s);
    kn_uop x = var("x", KN_F32, 1, 0), y = var("y", KN_F32, 1, 0), g = var("g", KN_F32, 1, 0),
           p = var("p", KN_BOOL, 1, 0), out[3];
    kn_uop zero = ki_const_float(&ir, KN_F32, 0), two = ki_const_float(&ir, KN_F32, 2);
    CHECK(ki_grad_rules(&ir, r.set, ki_op2(&ir, KN_MUL, x, y), g, out, NULL) == 1 &&
              out[0] == ki_op2(&ir, KN_MUL, g, y) && out[1] == ki_op2(&ir, KN_MUL, g, x),
          "mul");
    CHECK(ki_grad_rules(&ir, r.set, ki_op3(&ir, KN_WHERE, p, x, y), g, out, NULL) == 1 && !out[0] &&
              out[1] == ki_op3(&ir, KN_WHERE, p, g, zero) && out[2] == ki_op3(&ir, KN_WHERE, p, zero, g),
          "where has none for its condition");
    CHECK(ki_grad_rules(&ir, r.set, ki_op2(&ir, KN_MAX, two, x), g, out, NULL) == 1 && !out[0] && out[1] &&
              out[1]->op == KN_WHERE,
          "a commuted pattern swaps its gradients");
    kn_uop st = ki_op2(&ir, KN_STACK, x, y), gs = ki_op2(&ir, KN_STACK, g, g);
    CHECK(ki_grad_rules(&ir, r.set, st, gs, out, NULL) == 1 && out[1] == ki_op2(&ir, KN_INDEX, gs, ki_index(&ir, 1)),
          "a mapped rest");
    if (env.err) printf("# %s\n", env.message.s);
    CHECK(ki_grad_rules(&ir, r.set, ki_op1(&ir, KN_EXP, x), g, out, NULL) == 0, "no rule, no gradient");
    ki_rules_free(&r);
}

int main(void) {
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return 1;
    specs();
    gradients();
    ki_ir_close(&ir);
    ki_env_close(&env);
    return tap_done();
}
