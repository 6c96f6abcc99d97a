/* watch.c: see watch.h. A line of the trace:
 *
 *   rangeify symbolic.add_zero src/rules/symbolic.kr:27: add(mul(r0, 4), 0) => mul(r0, 4)
 *
 * Terms are cut below the third level (%id). Lines are appended, each at once, so that several contexts may share a file. */
#include "rules/watch.h"

#include "rules/drive.h"

#include <errno.h>
#include <string.h>

enum { LEVELS = 3, SOURCES = 8 };

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

static void put_constant(ki_text *t, kn_uop u) {
    if (ki_is_float((kn_dtype)u->dtype)) ki_text_printf(t, "%.9g", ki_f64_from_bits((kn_dtype)u->dtype, u->arg.bits));
    else if (u->dtype == KN_BOOL) ki_text_put(t, u->arg.bits ? "true" : "false");
    else ki_text_printf(t, "%lld", (long long)u->arg.i);
}

/* recursion: LEVELS deep. */
static void put_term(ki_text *t, kn_uop u, unsigned level) {
    if (u->op == KN_CONST) {
        put_constant(t, u);
        return;
    }
    if (u->op == KN_RANGE) {
        ki_text_printf(t, "r%u", (unsigned)u->arg.range.id);
        return;
    }
    if (u->op == KN_PARAM && !u->nsrc && u->arg.param->len) {
        ki_text_printf(t, "%.*s", (int)u->arg.param->len, u->arg.param->name);
        return;
    }
    if (level == LEVELS || (!u->nsrc && u->op != KN_INVALID)) {
        ki_text_printf(t, "%%%u", u->id);
        return;
    }
    ki_text_put(t, ki_ops[u->op].name);
    if (u->op == KN_CAST || u->op == KN_BITCAST) ki_text_printf(t, ".%s", ki_dtypes[u->dtype].name);
    if (u->op == KN_REDUCE) ki_text_printf(t, ".%s", ki_ops[u->arg.reduce.op].name);
    ki_text_put(t, "(");
    for (uint32_t k = 0; k < u->nsrc && k < SOURCES; k++) {
        if (k) ki_text_put(t, ", ");
        put_term(t, u->src[k], level + 1);
    }
    ki_text_put(t, u->nsrc > SOURCES ? ", ...)" : ")");
}

static void put_line(const ki_watch *w, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after) {
    ki_text t = {0};
    ki_text_printf(&t, "%s %s.%s %s:%u: ", w->stage, set->name, rule->name, set->source, (unsigned)rule->line);
    put_term(&t, before, 0);
    ki_text_put(&t, " => ");
    put_term(&t, after, 0);
    ki_text_put(&t, "\n");
    if (t.s && !t.oom) fputs(t.s, w->trace);
    ki_text_free(&t);
}

bool ki_watch_rewrite(ki_ir *ir, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after,
                      uint32_t since) {
    ki_watch *w = ir->env->watch;
    if (w->trace) put_line(w, set, rule, before, after);
    if (w->ir != ir) ki_origins_free(&w->origins);
    w->ir = ir;
    ki_origins_note(&w->origins, ir, set, rule, before, since);
    return !w->nspec || ki_verify_made(ir, after, since, w->spec, w->nspec, &w->origins, w->stage);
}
