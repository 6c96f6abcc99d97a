/* terms.c: the OptOp TERMS: the innermost loop of a sum, a short one, is written out, term by term.
 *
 * Lanes of a sum (UNROLL) are sums of their own, which are added up at the end; these terms are added to the one accumulator in the order
 * of the loop, so that nothing is added up in another way and no register more is taken. The op changes no node: it stands in the kernel's
 * list of OptOps, where stage 4 (reduce.c) finds it. */
#include "stages/3_optimize/nest.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_TERMS, (int)o->axis, (why)), NULL)

/* Does a loop, or a sum, run in each iteration of r? */
static bool runs_inside(const ki_nest *k, kn_uop r) {
    const ki_scope *s = &k->scope;
    kn_uop x = ki_nest_closer(k, r);
    for (uint32_t i = 0; i < s->at[x->id]; i++)
        if ((s->node[i]->op == KN_END || s->node[i]->op == KN_REDUCE) && ki_scope_has(s, s->node[i], r)) return true;
    return false;
}

kn_uop ki_opt_terms(ki_nest *k, ki_opt *o) {
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), x = ki_nest_closer(k, r);
    uint32_t loops = 0;
    for (uint32_t j = 1; x->op == KN_REDUCE && j < x->nsrc; j++) loops += !ki_is_lane(x->src[j]);
    const ki_opt *other = NULL;
    bool already = false;
    while ((other = ki_nest_opt(k, KI_OPT_TERMS, other))) already |= other->axis == o->axis;
    const char *why = x->op != KN_REDUCE || x->arg.reduce.op != KN_ADD     ? "it is no loop of a sum"
                      : ki_is_lane(r) || loops < 2 || ki_last_loop(x) != r ? "it is not the innermost of several"
                      : ki_extent(r) < 2 || ki_extent(r) > KI_MOST_TAPS    ? "it is too long, or too short"
                      : already                                            ? "they are already"
                      : runs_inside(k, r)                                  ? "something runs inside it"
                                                                           : NULL;
    return why ? FAIL(why) : k->sink;
}
