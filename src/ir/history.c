/* history.c: see history.h. */
#include "ir/history.h"

#include <string.h>

bool ki_history_open(ki_env *env) {
    if (!env->history) env->history = ki_calloc(1, sizeof *env->history);
    if (!env->history) return ki_fail(env, KI_E_NOMEM), false;
    env->history->stage = "";
    return true;
}

void ki_history_close(ki_env *env) {
    if (env->history) ki_free(env->history->step);
    ki_free(env->history);
    env->history = NULL;
}

/* 0: no memory. */
static uint32_t add(ki_history *h, ki_step s) {
    if (!h->n) h->n = 1;
    if (h->n >= h->cap && !ki_array_grow(&h->step, &h->cap, (size_t)h->n + 1, sizeof *h->step)) return 0;
    h->step[h->n] = s;
    return h->n++;
}

static bool room(ki_ir *ir) {
    if (ir->n <= ir->why_cap) return true;
    uint32_t cap = ir->cap > ir->n ? ir->cap : ir->n;
    uint32_t *why = ki_realloc(ir->why, cap, sizeof *why);
    if (!why) return false;
    memset(why + ir->why_cap, 0, (cap - ir->why_cap) * sizeof *why);
    ir->why = why;
    ir->why_cap = cap;
    return true;
}

void ki_history_copy(ki_ir *to, kn_uop v, const ki_ir *from, kn_uop u) {
    uint32_t step = ki_why(from, u);
    if (step && room(to) && !to->why[v->id]) to->why[v->id] = step;
}

void ki_history_begin(ki_ir *ir) {
    ki_history *h = ir->env->history;
    uint32_t of[KI_OP_COUNT] = {0};
    for (uint32_t id = 1; h && room(ir) && id < ir->n; id++) {
        unsigned op = ir->node[id]->op;
        if (!of[op]) of[op] = add(h, (ki_step){.stage = "tensor", .op = ki_ops[op].name});
        if (!ir->why[id]) ir->why[id] = of[op];
    }
}

void ki_history_enter(ki_env *env, const char *stage) {
    if (env->history) env->history->stage = stage;
}

void ki_history_leave(ki_ir *ir) {
    ki_history *h = ir->env->history;
    if (!h || !room(ir)) return;
    uint32_t own = add(h, (ki_step){.stage = h->stage});
    for (uint32_t id = 1; id < ir->n; id++)
        if (!ir->why[id]) ir->why[id] = own;
}

void ki_history_rule(ki_ir *ir, const char *set, const char *rule, const char *source, uint32_t line, kn_uop before,
                     uint32_t since) {
    ki_history *h = ir->env->history;
    if (since >= ir->n || !room(ir)) return;
    /* An INDEX that goes one op further is about that op. */
    uint32_t from = before->op == KN_INDEX ? ki_why(ir, before->src[0]) : 0;
    if (!from) from = ki_why(ir, before);
    uint32_t step = add(h, (ki_step){h->stage, set, rule, source, NULL, line, from});
    for (uint32_t id = since; id < ir->n; id++)
        if (!ir->why[id]) ir->why[id] = step;
}

void ki_history_made(ki_ir *ir, kn_uop u, uint32_t since) {
    uint32_t step = ki_why(ir, u);
    if (!step || !room(ir)) return;
    for (uint32_t id = since; id < ir->n; id++)
        if (!ir->why[id]) ir->why[id] = step;
}

void ki_history_put(ki_text *t, const ki_ir *ir, kn_uop u, unsigned most) {
    const ki_history *h = ir->env->history;
    const char *last = "";
    unsigned n = 0;
    for (uint32_t k = h ? ki_why(ir, u) : 0; k; k = h->step[k].from) {
        const ki_step *s = &h->step[k];
        if (s->rule && s->rule == last) continue; /* again and again */
        last = s->rule ? s->rule : "";
        if (n++ == most) {
            ki_text_put(t, " < ...");
            return;
        }
        if (n > 1) ki_text_put(t, " < ");
        const char *file = s->source ? strrchr(s->source, '/') : NULL;
        if (s->rule)
            ki_text_printf(t, "%s.%s (%s:%u)", s->set, s->rule, file ? file + 1 : s->source, (unsigned)s->line);
        else if (s->op) ki_text_printf(t, "%s of the program", s->op);
        else ki_text_put(t, s->stage);
    }
}
