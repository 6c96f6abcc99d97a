/* terms.c: the OptOp TERMS: the innermost loop of a sum, a short one, is written out, term by term.
 *
 * Lanes of a sum (UNROLL) are sums of their own, which are added up at the end; these terms are added to the one accumulator in the order
 * of the loop, so that nothing is added up in another way and no register more is taken. The op changes no node: it stands in the kernel's
 * list of OptOps, where stage 4 (reduce.c) finds it.
 *
 * It pays where vectors are narrow: a term of a tile of AVX2 is twelve multiply-adds, done in six cycles, and seven loads; what counts the loop, and
 * says where its operands are, is another seven to ten instructions (docs/experiments.md, AVX2 on a Zen 3). */
#include "stages/3_optimize/choose.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_TERMS, (int)o->axis, (why)), NULL)

/* Does a loop, or a sum, run in each iteration of r? */
static bool runs_inside(const ki_nest *k, kn_uop r) {
    const ki_scope *s = &k->scope;
    kn_uop x = ki_nest_closer(k, r);
    for (uint32_t i = 0; i < s->at[x->id]; i++)
        if ((s->node[i]->op == KN_END || s->node[i]->op == KN_REDUCE) && ki_scope_has(s, s->node[i], r)) return true;
    return false;
}

static bool is_written_out(const ki_nest *k, kn_uop r) {
    const ki_opt *o = NULL;
    while ((o = ki_nest_opt(k, KI_OPT_TERMS, o)))
        if (o->axis == (int32_t)r->arg.range.id) return true;
    return false;
}

static uint32_t loops_of(kn_uop x) {
    uint32_t n = 0;
    for (uint32_t j = 1; j < x->nsrc; j++) n += !ki_is_lane(x->src[j]);
    return n;
}

kn_uop ki_opt_terms(ki_nest *k, ki_opt *o) {
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), x = ki_nest_closer(k, r);
    uint32_t loops = x->op == KN_REDUCE ? loops_of(x) : 0;
    const char *why = x->op != KN_REDUCE || x->arg.reduce.op != KN_ADD     ? "it is no loop of a sum"
                      : ki_is_lane(r) || loops < 2 || ki_last_loop(x) != r ? "it is not the innermost of several"
                      : ki_extent(r) < 2 || ki_extent(r) > KI_MOST_TAPS    ? "it is too long, or too short"
                      : is_written_out(k, r)                               ? "they are already"
                      : runs_inside(k, r)                                  ? "something runs inside it"
                                                                           : NULL;
    return why ? FAIL(why) : k->sink;
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

#define LONG 32 /* terms of a sum beside which its loop's own instructions count */
#define SUMS 8  /* accumulators of a tile */

/* Accumulators of the tile that x sums up, each a vector. */
static int64_t sums_of(const ki_choice *c, kn_uop x) {
    const ki_scope *s = &c->nest.scope;
    int64_t n = 1;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (ki_is_lane(s->range[q]) && ki_scope_has(s, x->src[0], s->range[q])) n *= ki_extent(s->range[q]);
    return n / (int64_t)ki_choice_lanes(c, x);
}

/* Into how many terms the innermost loop of the sum is written out; 0: it is left alone. */
static int64_t terms_of(const ki_choice *c, kn_uop x) {
    bool products = x->op == KN_REDUCE && x->arg.reduce.op == KN_ADD && x->src[0]->op == KN_MUL;
    kn_uop r = products ? ki_last_loop(x) : NULL;
    int64_t n = r ? ki_extent(r) : 0, terms = KI_WRITTEN;
    if (n < 2 || ki_terms(x) < LONG || ki_is_lane(r) || runs_inside(&c->nest, r) || is_written_out(&c->nest, r))
        return 0;
    while (n % terms) terms--;
    return terms > 1 && (terms < n || loops_of(x) > 1) && sums_of(c, x) >= SUMS ? terms : 0;
}

bool ki_write_out(ki_choice *c, kn_uop r, int64_t terms) {
    uint32_t id = r->arg.range.id, inner = ki_nest_next_range(&c->nest);
    if (ki_extent(r) > terms) {
        if (!ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, id, terms)) return false;
        id = inner;
    }
    return ki_choice_do(c, KI_OPT_TERMS, 0, false, id, 0);
}

void ki_choose_terms(ki_choice *c) {
    if (!c->target->twice || !ki_is_narrow(c)) return;
    for (uint32_t i = 0; c->ok && c->open && i < c->nest.scope.n; i++) {
        kn_uop x = c->nest.scope.node[i];
        int64_t terms = terms_of(c, x);
        if (!terms) continue;
        if (!ki_write_out(c, ki_last_loop(x), terms)) return;
        i = UINT32_MAX; /* the nest is another one */
    }
}
