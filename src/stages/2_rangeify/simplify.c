/* simplify.c: the rule sets rangeify runs, in one place. */
#include "stages/2_rangeify/rangeify.h"

#include <rules.h>

#include <stdio.h>

bool ki_range_find_demands(rangeifier *r) {
    uint32_t n = r->ir->n;
    if (!ki_array_grow(&r->asks, &r->asks_cap, n, sizeof *r->asks)) return ki_fail(r->ir->env, KI_E_NOMEM), false;
    for (; r->nasks < n; r->nasks++) {
        kn_uop u = r->nasks > r->top ? r->ir->node[r->nasks] : NULL;
        bool asks = u && is_demand(r, u);
        for (uint32_t k = 0; u && k < u->nsrc && !asks; k++) asks = r->asks[u->src[k]->id];
        r->asks[r->nasks] = asks;
    }
    return true;
}

kn_uop ki_range_hide(rangeifier *r, kn_uop u, hidden *h) {
    kn_uop *order;
    bool any = false;
    h->n = 0;
    h->too_many = false;
    if (!ki_range_find_demands(r)) return NULL;
    for (uint32_t k = 0; k < u->nsrc && !any; k++) any = r->asks[u->src[k]->id];
    if (!any) return u; /* nearly always */
    int64_t count = ki_toposort_above(r->ir, &u, 1, r->top, &order);
    bool ok = count >= 0;
    for (int64_t i = 0; i < count && ok && !h->too_many; i++) {
        kn_uop d = order[i];
        char text[24];
        if (d == u || !is_demand(r, d)) continue;
        if ((h->too_many = h->n == MOST_HIDDEN)) break;
        int len = snprintf(text, sizeof text, "demand %u", d->id);
        int64_t bounds[2] = {d->lo.i, d->hi.i};
        bool whole = !ki_is_float((kn_dtype)d->dtype) && d->flags & KI_BOUNDED;
        h->demand[h->n] = d;
        ok = len > 0 && (h->name[h->n++] = ki_param_make(r->ir, -1, (kn_dtype)d->dtype, KN_GLOBAL, d->type->device,
                                                         text, whole ? bounds : NULL, NULL)) != NULL;
    }
    ki_free(order);
    if (!ok) return NULL;
    return h->n && !h->too_many ? ki_substitute(r->ir, u, h->demand, h->name, h->n) : u;
}

kn_uop ki_range_show(rangeifier *r, kn_uop u, const hidden *h) {
    return u && h->n && !h->too_many ? ki_substitute(r->ir, u, h->name, h->demand, h->n) : u;
}

kn_uop ki_range_simplify(rangeifier *r, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates, &ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod,
                                             &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets,
                         .nsets = sizeof sets / sizeof *sets,
                         .driver = KI_FIXPOINT,
                         .floor = r->top,
                         /* values are what facts.c has looked at */ .memo = &r->memo};
    if (u && is_demand(r, u) && ki_is_plain(u)) return u;
    hidden h = {0};
    kn_uop v = u && r->nested ? ki_range_hide(r, u, &h) : u;
    if (h.too_many) return u;
    return ki_range_show(r, v ? ki_rewrite(r->ir, v, &o) : NULL, &h);
}

kn_uop ki_range_fold(ki_ir *ir, kn_uop u, uint32_t floor) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates,  &ki_rules_symbolic, &ki_rules_bool,
                                             &ki_rules_divmod, &ki_rules_float,    &ki_rules_fold};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .floor = floor};
    return u ? ki_rewrite(ir, u, &o) : NULL;
}

kn_uop ki_range_sorted(ki_ir *ir, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic};
    ki_rewrite_opts o = {.sets = sets, .nsets = 1, .driver = KI_FIXPOINT};
    return ki_rewrite(ir, u, &o);
}

/* How many read each node of v's, counted up to three; NULL: no logarithm is taken, or env says why. */
static uint8_t *count_users(ki_ir *ir, kn_uop v) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &v, 1, &node);
    uint8_t *users = NULL;
    bool any = false;
    for (int64_t i = 0; i < n; i++) any |= node[i]->op == KN_LOG;
    if (any && !(users = ki_calloc((size_t)v->id + 1, 1))) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; i < n && users; i++)
        for (uint32_t k = 0; k < node[i]->nsrc; k++) users[node[i]->src[k]->id] += users[node[i]->src[k]->id] < 3;
    if (n >= 0) ki_free(node);
    return users;
}

/* Each node once: what a rule makes is not for the rule. */
static kn_uop walk(ki_ir *ir, kn_uop v, const ki_ruleset *set, ki_prepare *worth) {
    ki_rewrite_opts o = {.sets = &set, .nsets = 1, .driver = KI_WALK, .fp = KI_FP_AFN, .user = worth};
    return v ? ki_rewrite(ir, v, &o) : NULL;
}

kn_uop ki_range_prepare(ki_ir *ir, kn_uop tuple) {
    ki_prepare worth = {
        .least = 65536, .chunks = 8, .terms = 4097, .sides = KI_MOST_SIDES, .reuse = KI_SIDE_REUSE, .row = 256};
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod, &ki_rules_float,
                                             &ki_rules_prepare};
    uint8_t *users = count_users(ir, tuple);
    kn_uop v = tuple;
    if (users) {
        worth.users = users, worth.n = v->id + 1;
        v = walk(ir, v, &ki_rules_once, &worth);
        if (v != tuple) v = walk(ir, v, &ki_rules_choose, &worth);
        ki_free(users), worth.users = NULL;
    }
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .user = &worth};
    return v && ir->env->err == KI_E_NONE ? ki_rewrite(ir, v, &o) : NULL;
}
