/* watch.c: see watch.h. A line of the trace:
 *
 *   rangeify symbolic.add_zero src/rules/symbolic.kr:27: add(mul(r0, 4), 0) => mul(r0, 4)
 *
 * Terms are cut below the third level (%id). Lines are appended, each at once, so that several contexts may share a file. */
#include "rules/watch.h"

#include "ir/program.h"
#include "rules/drive.h"

#include <errno.h>
#include <string.h>

enum { LEVELS = 3 };

static void close_watch(ki_env *env) {
    ki_watch *w = env->watch;
    if (w->trace) fclose(w->trace);
    ki_origins_free(&w->origins);
    ki_free(w);
    env->watch = NULL;
}

bool ki_watch_open(ki_env *env, bool check) {
    const char *path = ki_setting(env, KI_VAR_TRACE);
    if (env->watch || (!*path && !check)) return true;
    FILE *f = *path ? fopen(path, "ae") : NULL;
    if (*path && !f) return ki_fail(env, KI_E_FILE_WRITE, path, strerror(errno)), false;
    ki_watch *w = ki_calloc(1, sizeof *w);
    if (!w) {
        if (f) fclose(f);
        return ki_fail(env, KI_E_NOMEM), false;
    }
    if (f) setvbuf(f, NULL, _IOLBF, 1 << 12);
    *w = (ki_watch){.trace = f, .stage = "tensor"};
    env->watch = w;
    env->watch_close = close_watch;
    return true;
}

void ki_watch_stage(ki_env *env, const char *stage, const ki_ruleset *const *spec, unsigned n) {
    ki_watch *w = env->watch;
    if (!w) return;
    w->stage = stage;
    w->nspec = n < KI_WATCH_SPECS ? n : KI_WATCH_SPECS;
    for (unsigned k = 0; k < w->nspec; k++) w->spec[k] = spec[k];
    w->ir = NULL;
}

const ki_origins *ki_watch_origins(const ki_ir *ir) {
    const ki_watch *w = ir->env->watch;
    return w && w->ir == ir ? &w->origins : NULL;
}

/* What cannot be written is lost, which is told once. */
static void put_text(ki_env *env, const char *s) {
    ki_watch *w = env->watch;
    if (fputs(s, w->trace) >= 0 || w->lost) return;
    w->lost = true;
    ki_log(env, "KN_TRACE=%s: %s; the trace is not whole\n", ki_setting(env, KI_VAR_TRACE), strerror(errno));
}

static void put_line(ki_env *env, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after) {
    const ki_watch *w = env->watch;
    ki_text t = {0};
    ki_text_printf(&t, "%s %s.%s %s:%u: ", w->stage, set->name, ki_rule_name(set, rule), set->source,
                   (unsigned)rule->line);
    ki_term_put(&t, before, LEVELS);
    ki_text_put(&t, " => ");
    ki_term_put(&t, after, LEVELS);
    ki_text_put(&t, "\n");
    if (t.s && !t.oom) put_text(env, t.s);
    ki_text_free(&t);
}

bool ki_watch_rewrite(ki_ir *ir, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after,
                      uint32_t since) {
    ki_watch *w = ir->env->watch;
    if (w->trace) put_line(ir->env, set, rule, before, after);
    if (w->ir != ir) ki_origins_free(&w->origins);
    w->ir = ir;
    ki_origins_note(&w->origins, ir, set, rule, before, since);
    return !w->nspec || ki_verify_made(ir, after, since, w->spec, w->nspec, &w->origins, w->stage);
}
