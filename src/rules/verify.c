/* verify.c: specs. A spec is a rule set of `accept` rules; every node must be met by one of them.
 *
 * The nearest rule of a violation is the one for the same op that got furthest: most pattern terms matched, then the
 * guard. Ids are a topological order, so reachable nodes are marked by one descending sweep. */
#include "rules/drive.h"
#include "rules/match.h"

#include <stdio.h>
#include <string.h>

/* "%12 = add %3 %7 : i32 (4, 4) in [0, 9]" */
static const char *node_text(kn_uop u, char *buf, size_t n) {
    char shape[128];
    size_t at = (size_t)snprintf(buf, n, "%%%u = %s", u->id, ki_ops[u->op].name);
#define PUT(...) (at < n ? at += (size_t)snprintf(buf + at, n - at, __VA_ARGS__) : 0)
    for (uint32_t k = 0; k < u->nsrc && k < 12; k++) PUT(" %%%u", u->src[k]->id);
    if (u->nsrc > 12) PUT(" ... (%u sources)", u->nsrc);
    if (u->op == KN_CONST) {
        if (ki_is_float((kn_dtype)u->dtype)) PUT(" %g", ki_f64_from_bits((kn_dtype)u->dtype, u->arg.bits));
        else PUT(" %lld", (long long)u->arg.i);
    }
    if (u->op == KN_REDUCE) PUT(" %s axes=%x", ki_ops[u->arg.reduce.op].name, (unsigned)u->arg.reduce.axes);
    if (u->op == KN_RANGE) PUT(" id=%u %s", u->arg.range.id, ki_axis_names[u->arg.range.axis]);
    PUT(" : %s %s", ki_dtypes[u->dtype].name, ki_shape_text(u->type, shape, sizeof shape));
    if (u->flags & KI_BOUNDED && !ki_is_float((kn_dtype)u->dtype))
        PUT(" in [%lld, %lld]", (long long)u->lo.i, (long long)u->hi.i);
#undef PUT
    return buf;
}

static bool accepted(ki_match *m, const ki_ruleset *const *spec, unsigned nspec, kn_uop u) {
    for (unsigned k = 0; k < nspec; k++) {
        const ki_ruleset *s = spec[k];
        const ki_bucket *b = ki_dispatch(s, u);
        for (unsigned i = 0; i < b->n; i++) {
            const ki_entry *e = &s->entry[s->list[b->first + i]];
            if (ki_entry_fits(s, e, u) && s->rule[e->rule].kind == KI_R_ACCEPT &&
                ki_match_rule(m, s, e->rule, e->variant, u))
                return true;
        }
    }
    return false;
}

typedef struct nearest {
    const ki_ruleset *set;
    const ki_rule *rule;
    uint32_t variant;
    unsigned depth;
} nearest;

static nearest find_nearest(ki_match *m, const ki_ruleset *const *spec, unsigned nspec, kn_uop u) {
    nearest best = {0};
    for (unsigned k = 0; k < nspec; k++)
        for (uint32_t i = 0; i < spec[k]->nentry; i++) {
            const ki_ruleset *s = spec[k];
            const ki_entry *e = &s->entry[i];
            const ki_rule *r = &s->rule[e->rule];
            if (r->kind != KI_R_ACCEPT) continue;
            ki_match_rule(m, s, e->rule, e->variant, u);
            /* A rule for another op got nowhere. */
            if (m->depth == 0 && s->pat[r->pat].kind == KI_P_NODE) {
                const ki_pat *p = &s->pat[r->pat];
                if (p->op != KI_OP_COUNT ? p->op != u->op : !ki_opset_has(&s->opset[p->opset], u->op)) continue;
            }
            unsigned depth = m->depth + 1u;
            if (depth > best.depth) best = (nearest){s, r, e->variant, depth};
        }
    return best;
}

/* Operands of the condition that failed, for instance "lo(i) is -3". */
static void guard_values(ki_match *m, ki_env *env) {
    const ki_term *t = &m->set->term[m->guard_term];
    char a[64], b[64];
    if ((t->kind != KI_T_OP && t->kind != KI_T_BUILTIN && t->kind != KI_T_CALL) || !t->nkid) return;
    if (t->kind != KI_T_OP) return;
    ki_val x = ki_expr(m, m->set->kid[t->kid], true);
    if (t->nkid < 2) {
        ki_fail_note(env, "there: %s %s", ki_ops[t->op].name, ki_val_text(&x, a, sizeof a));
        return;
    }
    ki_val y = ki_expr(m, m->set->kid[t->kid + 1], true);
    ki_fail_note(env, "there: %s %s %s", ki_val_text(&x, a, sizeof a), ki_ops[t->op].name,
                 ki_val_text(&y, b, sizeof b));
}

static void report(ki_match *m, const ki_ruleset *const *spec, unsigned nspec, kn_uop u, const ki_origins *origins,
                   const char *where) {
    char buf[512];
    ki_env *env = m->ir->env;
    ki_fail(env, KI_E_SPEC, where, u->id, node_text(u, buf, sizeof buf));
    for (uint32_t k = 0; k < u->nsrc && k < 8; k++)
        ki_fail_note(env, "  source %u: %s", k, node_text(u->src[k], buf, sizeof buf));
    nearest n = find_nearest(m, spec, nspec, u);
    if (!n.rule) {
        ki_fail_note(env, "no rule of the spec is for op %s", ki_ops[u->op].name);
    } else {
        ki_match_rule(m, n.set, (uint32_t)(n.rule - n.set->rule), n.variant, u);
        bool guard = m->depth == n.rule->npat && n.rule->guard;
        const ki_wording *w = n.set->wording;
        const ki_written_rule *written = &w->rule[n.rule - n.set->rule];
        uint32_t pos =
            guard ? w->term[m->guard_term] : w->pat[n.rule->pat + (m->depth < n.rule->npat ? m->depth : 0)].pos;
        uint32_t column = pos >= written->pos ? pos - written->pos : 0;
        ki_fail_note(env, "nearest rule %s (%s:%u):", ki_rule_name(n.set, n.rule), n.set->source,
                     (unsigned)n.rule->line);
        snprintf(buf, sizeof buf, "%s", w->letters + written->text);
        for (char *s = buf; *s; s++)
            if (*s == '\n') *s = ' ';
        ki_fail_note(env, "  %s", buf);
        ki_fail_note(env, "  %*s^ %s", (int)(column < 400 ? column : 400), "",
                     guard ? "does not hold" : "does not fit");
        if (guard) guard_values(m, env);
    }
    const ki_origin *o = origins && u->id < origins->cap ? &origins->by[u->id] : NULL;
    if (o && o->rule && o->print == ki_origin_print(u))
        ki_fail_note(env, "made by rule %s (%s:%u) from %%%u", ki_rule_name(o->set, o->rule), o->set->source,
                     (unsigned)o->rule->line, o->before);
}

bool ki_verify_made(ki_ir *ir, kn_uop v, uint32_t since, const ki_ruleset *const *spec, unsigned nspec,
                    const ki_origins *origins, const char *where) {
    if (v->id < since) return true;
    uint32_t n = v->id - since + 1;
    uint8_t few[256] = {0}, *reached = n <= sizeof few ? few : ki_calloc(n, 1);
    if (!reached) return ki_fail(ir->env, KI_E_NOMEM), false;
    ki_match m = {.ir = ir};
    bool good = true;
    reached[n - 1] = 1;
    for (uint32_t k = n; k-- > 0 && good;) {
        if (!reached[k]) continue;
        kn_uop u = ir->node[since + k];
        for (uint32_t j = 0; j < u->nsrc; j++)
            if (u->src[j]->id >= since) reached[u->src[j]->id - since] = 1;
        good = accepted(&m, spec, nspec, u);
        if (!good) report(&m, spec, nspec, u, origins, where);
    }
    if (reached != few) ki_free(reached);
    return good;
}

bool ki_verify(ki_ir *ir, kn_uop root, const ki_ruleset *const *spec, unsigned nspec, bool closed,
               const ki_origins *origins, const char *where) {
    if (!root || ir->env->err != KI_E_NONE) return false;
    uint8_t *reached = ki_calloc(root->id + 1u, 1);
    if (!reached) return ki_fail(ir->env, KI_E_NOMEM), false;
    ki_match m = {.ir = ir};
    reached[root->id] = 1;
    for (uint32_t id = root->id; id > 0; id--) {
        if (!reached[id]) continue;
        kn_uop u = ir->node[id];
        uint32_t from = closed && (u->op == KN_FUNCTION || u->op == KN_CALL);
        for (uint32_t k = from; k < u->nsrc; k++) reached[u->src[k]->id] = 1;
    }
    bool good = true;
    for (uint32_t id = 1; id <= root->id && good; id++) {
        if (!reached[id] || accepted(&m, spec, nspec, ir->node[id])) continue;
        report(&m, spec, nspec, ir->node[id], origins, where);
        good = false;
    }
    ki_free(reached);
    return good;
}
