/* memo.c: side tables of rewriting: normal forms, counters, origins. */
#include "rules/drive.h"

#include <string.h>

/* ---- normal forms ------------------------------------------------------------------------------------------ */

bool ki_memo_grow(ki_memo *m, uint32_t n) {
    uint32_t cap = m->cap ? m->cap : 256;
    while (cap < n) cap = cap > UINT32_MAX / 2 ? UINT32_MAX : cap * 2;
    ki_visit *v = m->cap ? ki_realloc(m->visit, cap, sizeof *v) : ki_calloc(cap, sizeof *v);
    if (!v) return false;
    if (m->cap) memset(v + m->cap, 0, (cap - m->cap) * sizeof *v);
    m->visit = v;
    m->cap = cap;
    return true;
}

void ki_memo_clear(ki_memo *m) {
    m->epoch++;
    if (m->epoch != 0) return;
    memset(m->visit, 0, m->cap * sizeof *m->visit);
    m->epoch = 1;
}

void ki_memo_cut(ki_memo *m, uint32_t n) {
    for (uint32_t k = 0; k < m->cap; k++) {
        ki_visit *v = &m->visit[k];
        if (k >= n || v->form >= n || v->link >= n) *v = (ki_visit){0};
    }
}

void ki_memo_free(ki_memo *m) {
    ki_free(m->visit);
    *m = (ki_memo){0};
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

ki_rule_count *ki_stats_for(ki_stats *s, const ki_ruleset *set) {
    for (uint32_t k = 0; k < s->n; k++)
        if (s->set[k] == set) return s->count[k];
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 8;
        const ki_ruleset **sets = ki_realloc(s->set, cap, sizeof *sets);
        if (!sets) return NULL;
        s->set = sets;
        ki_rule_count **count = ki_realloc(s->count, cap, sizeof *count);
        if (!count) return NULL;
        s->count = count;
        s->cap = cap;
    }
    s->count[s->n] = ki_calloc(set->nrule + 1, sizeof **s->count);
    if (!s->count[s->n]) return NULL;
    s->set[s->n] = set;
    return s->count[s->n++];
}

void ki_stats_free(ki_stats *s) {
    for (uint32_t k = 0; k < s->n; k++) ki_free(s->count[k]);
    ki_free(s->count);
    ki_free(s->set);
    *s = (ki_stats){0};
}

/* ---- origins ----------------------------------------------------------------------------------------------- */

/* Notes that `rule`, applied to `before`, made the nodes since.. of ir. Out of memory loses the note only. */
void ki_origins_note(ki_origins *o, const ki_ir *ir, const ki_ruleset *set, const ki_rule *rule, kn_uop before,
                     uint32_t since) {
    uint32_t now = ir->n;
    if (now > o->cap) {
        uint32_t cap = o->cap ? o->cap : 256;
        while (cap < now) cap *= 2;
        ki_origin *by = ki_realloc(o->by, cap, sizeof *by);
        if (!by) return;
        memset(by + o->cap, 0, (cap - o->cap) * sizeof *by);
        o->by = by;
        o->cap = cap;
    }
    for (uint32_t id = since; id < now; id++)
        o->by[id] = (ki_origin){set, rule, before->id, ki_origin_print(ir->node[id])};
}

void ki_origins_free(ki_origins *o) {
    ki_free(o->by);
    *o = (ki_origins){0};
}
