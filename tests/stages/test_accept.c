/* A spec that accepts more than it should is sound and useless. Here: which accept rules are the only one to accept some
 * node of some program, at some stage; dropping another would go unnoticed, so each such is listed, and the list may only
 * shrink. The programs are the examples, the golden ones and those that once went wrong. */
#include "ir/program.h"
#include "rules/drive.h"
#include "stages/stages.h"
#include "stages/verify.h"
#include "tap.h"

#include <glob.h>
#include <rules.h>
#include <stdlib.h>
#include <string.h>

static const ki_ruleset *const specs[] = {&ki_rules_spec_tensor,    &ki_rules_spec_callify, &ki_rules_spec_rangeify,
                                          &ki_rules_spec_optimize,  &ki_rules_spec_expand,  &ki_rules_spec_select,
                                          &ki_rules_spec_linearize, &ki_rules_spec_plan,    &ki_rules_spec_render};
enum { SPECS = sizeof specs / sizeof *specs, RULES = 64 };
static unsigned alone[SPECS][RULES]; /* nodes that only this rule accepts */

static unsigned number(const ki_ruleset *s) {
    for (unsigned k = 0; k < SPECS; k++)
        if (specs[k] == s) return k;
    return SPECS;
}

/* The one rule that accepts u, if there is just one. */
static void one_node(ki_ir *ir, kn_uop u, const ki_ruleset *const *spec, unsigned n) {
    ki_match m = {.ir = ir};
    unsigned found = 0, set = 0, rule = 0;
    for (unsigned k = 0; k < n; k++)
        for (uint32_t i = 0, last = UINT32_MAX; i < spec[k]->nentry; i++) {
            const ki_entry *e = &spec[k]->entry[i];
            if (e->rule == last || !ki_match_rule(&m, spec[k], e->rule, e->variant, u)) continue;
            last = e->rule;
            found++, set = number(spec[k]), rule = e->rule;
        }
    if (found == 1 && set < SPECS && rule < RULES) alone[set][rule]++;
}

static void one_stage(const ki_program *in, ki_stage s, const ki_target *target) {
    ki_ir ir;
    ki_program out;
    if (!ki_ir_open(&ir, in->ir->env)) return;
    if (ki_lower(in, &ir, s, &(ki_lower_opts){.target = target, .machine.threads = 4}, &out)) {
        kn_uop *node;
        unsigned n;
        const ki_ruleset *const *spec = ki_stage_specs(s, &n);
        int64_t count = ki_toposort(&ir, &out.root, 1, &node);
        for (int64_t k = 0; k < count; k++) one_node(&ir, node[k], spec, n);
        if (count >= 0) ki_free(node);
        ki_program_free(&out);
    }
    ki_env_clear(in->ir->env);
    ki_ir_close(&ir);
}

/* native: for machine code of this level from tensors on; NULL: for C, and for avx2 from what it is. */
static void one_text(const char *path, const char *text, size_t n, const char *native) {
    ki_env env;
    ki_ir ir;
    ki_program p = {0};
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return;
    if (ki_parse(&ir, path, text, n, &p)) {
        for (ki_stage s = p.stage; s < KI_S_COUNT; s++) one_stage(&p, s, native ? ki_target_native(native) : NULL);
        if (!native) one_stage(&p, KI_S_RENDER, ki_target_native("avx2"));
        ki_program_free(&p);
    }
    ki_ir_close(&ir);
    ki_env_close(&env);
}

static void one_program(const char *path) {
    static char text[1 << 18];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    one_text(path, text, n, NULL);
}

/* Ops that stand in none of the files. */
static const char more[] = "koine 1 tensor\n"
                           "%a = param \"a\" : f32 [4, 8]\n"
                           "%b = param \"b\" : f32 [4, 8]\n"
                           "%c = param \"c\" : f32 [4, 8]\n"
                           "%d = detach %a %b\n"
                           "%y = mulacc %d %b %c\n"
                           "out \"y\" = %y\n";

/* A product that goes by dot products. */
static const char dots[] = "koine 1 tensor\n"
                           "%a = param \"a\" : bf16 [16, 64, 1]\n"
                           "%b = param \"b\" : bf16 [1, 64, 64]\n"
                           "%x = expand %a (16, 64, 64)\n"
                           "%y = expand %b (16, 64, 64)\n"
                           "%c = cast %x : f32\n"
                           "%d = cast %y : f32\n"
                           "%p = mul %c %d\n"
                           "%s = reduce add %p axes=(1)\n"
                           "out \"s\" = %s\n";

/* What no program here has alone, and why. */
static const char *const unnoticed[] = {
    /* copies between devices: one device runs here */
    "spec_tensor.copy", "spec_rangeify.copy", "spec_optimize.copy", "spec_expand.copy",
    /* user functions are inlined as they are read; stores past the cache need large outputs of a machine that has them */
    "spec_tensor.call", "spec_optimize.stream", "spec_expand.stream", "spec_select.stream",
    /* axes that targets with groups, waves and a grid have */
    "spec_rangeify.parallel", "spec_expand.group", "spec_expand.local", "spec_expand.warp", "spec_expand.grouped",
    "spec_select.parallel",
    /* no target here has such instructions, or the frontend no such op */
    "spec_select.atomic", "spec_select.machine", "spec_select.branch",
    /* the same nodes are accepted as parts of a kernel: select's spec stands beside these from then on. That a kernel holds
     * one list and the program calls is checked by root_is_right (stages/verify.c) */
    "spec_select.program", "spec_linearize.kernel", "spec_linearize.list", "spec_plan.program", "spec_plan.call",
    "spec_plan.global", "spec_plan.slice", "spec_plan.offset", "spec_plan.variable", NULL};

static bool listed(const char *name) {
    for (unsigned k = 0; unnoticed[k]; k++)
        if (strcmp(unnoticed[k], name) == 0) return true;
    return false;
}

int main(void) {
    static const char *const folders[] = {"examples/*.kn",    "tests/golden/*.kn",    "tests/golden/regress/*.kn",
                                          "../examples/*.kn", "../tests/golden/*.kn", "../tests/golden/regress/*.kn"};
    unsigned programs = 0;
    for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
        glob_t g;
        if (glob(folders[k], 0, NULL, &g)) continue;
        for (size_t i = 0; i < g.gl_pathc; i++) one_program(g.gl_pathv[i]), programs++;
        globfree(&g);
    }
    one_text("more", more, strlen(more), NULL);
    one_text("dots", dots, strlen(dots), "dot");
    CHECK(programs > 20, "%u programs", programs);
    for (unsigned s = 0; s < SPECS; s++)
        for (uint32_t r = 0; r < specs[s]->nrule && r < RULES; r++) {
            char name[100];
            snprintf(name, sizeof name, "%s.%s", specs[s]->name, ki_rule_name(specs[s], &specs[s]->rule[r]));
            CHECK(alone[s][r] || listed(name), "%s: %u nodes need it%s", name, alone[s][r],
                  listed(name) ? " (listed as unnoticed)" : "");
        }
    return tap_done();
}
