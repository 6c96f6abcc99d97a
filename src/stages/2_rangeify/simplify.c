/* simplify.c: the rule sets rangeify runs, in one place. */
#include "stages/2_rangeify/rangeify.h"

#include <rules.h>

#include <stdio.h>

/* Demands inside the indices of others (positions that are data) become variables, all but u itself. A demand has been
 * registered as it is, perhaps already met: what simplifying would make of it nobody would meet. */
static kn_uop hide_demands(rangeifier *r, kn_uop u, kn_uop *demand, kn_uop *name, size_t *n, size_t most) {
    kn_uop *order;
    int64_t count = ki_toposort_above(r->ir, &u, 1, r->top, &order);
    bool ok = count >= 0;
    *n = 0;
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop d = order[i];
        char text[24];
        if (d == u || !is_demand(r, d)) continue;
        if (*n == most) {
            *n = most + 1;
            break;
        }
        int len = snprintf(text, sizeof text, "demand %u", d->id);
        int64_t bounds[2] = {d->lo.i, d->hi.i};
        bool whole = !ki_is_float((kn_dtype)d->dtype) && d->flags & KI_BOUNDED;
        demand[*n] = d;
        ok = len > 0 && (name[(*n)++] = ki_param_make(r->ir, -1, (kn_dtype)d->dtype, KN_GLOBAL, d->type->device, text,
                                                      whole ? bounds : NULL, NULL)) != NULL;
    }
    ki_free(order);
    if (!ok) return NULL;
    return *n && *n <= most ? ki_substitute(r->ir, u, demand, name, *n) : u;
}

kn_uop ki_range_simplify(rangeifier *r, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates, &ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod,
                                             &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets,
                         .nsets = sizeof sets / sizeof *sets,
                         .driver = KI_FIXPOINT,
                         .floor = r->top,
                         /* values are what facts.c has looked at */ .memo = &r->memo};
    kn_uop demand[32], name[32], v = u;
    size_t n = 0;
    if (u && r->nested) {
        v = hide_demands(r, u, demand, name, &n, 32);
        if (n > 32) return u;
    }
    v = v ? ki_rewrite(r->ir, v, &o) : NULL;
    return v && n ? ki_substitute(r->ir, v, name, demand, n) : v;
}

kn_uop ki_range_fold(ki_ir *ir, kn_uop u, uint32_t floor) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates,  &ki_rules_symbolic, &ki_rules_bool,
                                             &ki_rules_divmod, &ki_rules_float,    &ki_rules_fold};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .floor = floor};
    return u ? ki_rewrite(ir, u, &o) : NULL;
}

kn_uop ki_range_prepare(ki_ir *ir, kn_uop tuple) {
    ki_prepare worth = {.least = 65536, .chunks = 8};
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod, &ki_rules_float,
                                             &ki_rules_prepare};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .user = &worth};
    return ki_rewrite(ir, tuple, &o);
}
