/* Who sees rewrites: the trace file, the check of what each rewrite makes, the rewrite a violation names. */
#include "rules/rules.h"
#include "rules/watch.h"
#include "tap.h"

#include <rules.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ki_env env;
static ki_ir ir;

static const char sets[] = "ruleset r\n"
                           "m : x:i32 * 2 => x << 1 @ends(\"t\")\n"
                           "n : -(-x:i32) => x\n";
static const char spec[] = "ruleset s\n"
                           "accept leaf : {param|const}(_...)\n"
                           "accept alu  : {mul|neg|add}(_...)\n";

static bool load(const char *text, ki_rules *out) {
    bool ok = ki_rules_load(&env, "t.kr", text, strlen(text), NULL, out);
    CHECK(ok, "rules");
    return ok;
}

static kn_uop var(const char *name) { return ki_param_make(&ir, -1, KN_I32, KN_GLOBAL, 0, name, NULL, NULL); }
static kn_uop num(int64_t i) { return ki_const_int(&ir, KN_I32, i); }

static void read_file(const char *path, char *buf, size_t n) {
    FILE *f = fopen(path, "r");
    size_t got = f ? fread(buf, 1, n - 1, f) : 0;
    buf[got] = 0;
    if (f) fclose(f);
}

static void open_all(const char *trace, bool check) {
    ki_env_open(&env);
    ki_setting_set(&env, KI_VAR_TRACE, trace);
    CHECK(ki_watch_open(&env, check), "watch");
    ki_ir_open(&ir, &env);
}
static void close_all(void) {
    ki_ir_close(&ir);
    ki_env_close(&env);
}

static void nobody(void) {
    ki_rules r;
    open_all(NULL, false);
    CHECK(env.watch == NULL, "nobody watches unless asked");
    if (load(sets, &r)) {
        kn_uop x = var("x"), v = ki_simplify_with(&ir, ki_op2(&ir, KN_MUL, x, num(2)), r.set, NULL);
        CHECK(v && v->op == KN_SHL, "and rules fire");
        CHECK(ki_watch_origins(&ir) == NULL, "without origins");
        ki_rules_free(&r);
    }
    close_all();
}

static void traced(void) {
    char path[] = "/tmp/koine-watch-XXXXXX", text[1000];
    int fd = mkstemp(path);
    ki_rules r;
    open_all(path, false);
    if (load(sets, &r)) {
        kn_uop x = var("x"), two = ki_op2(&ir, KN_MUL, x, num(2));
        ki_watch_stage(&env, "fancy", NULL, 0);
        kn_uop deep = ki_op2(&ir, KN_ADD, two, ki_op1(&ir, KN_NEG, ki_op1(&ir, KN_NEG, two)));
        ki_simplify_with(&ir, deep, r.set, NULL);
        ki_rules_free(&r);
    }
    close_all();
    read_file(path, text, sizeof text);
    CHECK(strcmp(text, "fancy r.m t.kr:2: mul(x, 2) => shl(x, 1)\n"
                       "fancy r.n t.kr:3: neg(neg(shl(x, 1))) => shl(x, 1)\n") == 0,
          "a line a rewrite: stage, rule, place, before, after");
    if (fd >= 0) close(fd), unlink(path);
    ki_env_open(&env);
    ki_setting_set(&env, KI_VAR_TRACE, "/nowhere/at/all");
    CHECK(!ki_watch_open(&env, false) && env.err == KI_E_FILE_WRITE, "a file that cannot be written is an error");
    ki_env_close(&env);
}

static void checked(void) {
    ki_rules r, s;
    open_all(NULL, true);
    if (load(sets, &r) && load(spec, &s)) {
        const ki_ruleset *specs[] = {s.set};
        kn_uop x = var("x"), two = ki_op2(&ir, KN_MUL, x, num(2));
        kn_uop twice = ki_op1(&ir, KN_NEG, ki_op1(&ir, KN_NEG, two));
        ki_watch_stage(&env, "fancy", specs, 1);
        CHECK(ki_rewrite_one(&ir, twice, &(ki_rewrite_opts){.sets = (const ki_ruleset *[]){r.set}, .nsets = 1}, NULL) ==
                  two,
              "what fits is left alone");
        CHECK(ki_simplify_with(&ir, two, r.set, NULL) == NULL && env.err == KI_E_SPEC,
              "what does not ends the rewrite");
        CHECK(strstr(env.message.s, "fancy: node") && strstr(env.message.s, "shl") &&
                  strstr(env.message.s, "made by rule m (t.kr:2) from"),
              "and is named with the rule");
        printf("# %s\n", env.message.s);
        ki_env_clear(&env);

        /* Later: the spec after the stage. */
        ki_watch_stage(&env, "fancy", NULL, 0);
        kn_uop v = ki_simplify_with(&ir, ki_op2(&ir, KN_MUL, var("y"), num(2)), r.set, NULL);
        kn_uop w = ki_op2(&ir, KN_SHL, var("z"), num(3));
        CHECK(!ki_verify(&ir, v, specs, 1, false, ki_watch_origins(&ir), "after") &&
                  strstr(env.message.s, "made by rule m (t.kr:2) from"),
              "a violation names the rewrite that made the node");
        ki_env_clear(&env);
        CHECK(!ki_verify(&ir, w, specs, 1, false, ki_watch_origins(&ir), "after") && !strstr(env.message.s, "made by"),
              "and none for a node no rule made");
        ki_env_clear(&env);
        ki_rules_free(&r);
        ki_rules_free(&s);
    }
    close_all();
}

int main(void) {
    nobody();
    traced();
    checked();
    return tap_done();
}
