/* terms.c: the OptOp TERMS: the innermost loop of a sum, a short one, is written out, term by term.
 *
 * Lanes of a sum (UNROLL) are sums of their own, which are added up at the end; these terms are added to the one accumulator in the order
 * of the loop, so that nothing is added up in another way and no register more is taken. The op changes no node: it stands in the kernel's
 * list of OptOps, where stage 4 (reduce.c) finds it.
 *
 * What counts a long loop, and says where its operands are, costs less where the renderer copies its instructions (8_render/x86/unroll.c). As nodes
 * terms pay where they are few, so that indices fold, and where vectors lie across the rows that they go along: a square is read at once. */
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

#define LONG    32 /* terms of a sum beside which its loop's own instructions count */
#define SUMS    8  /* accumulators of a tile */
#define WRITTEN 4  /* terms */

/* Accumulators of the tile that x sums up, each a vector. */
static int64_t sums_of(const ki_choice *c, kn_uop x) {
    const ki_scope *s = &c->nest.scope;
    int64_t n = 1;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (ki_is_lane(s->range[q]) && ki_scope_has(s, x->src[0], s->range[q])) n *= ki_extent(s->range[q]);
    return n / (int64_t)ki_choice_lanes(c, x);
}

/* Do vectors of what the sum reads lie across rows that r goes along? Terms beside each other are then read as a square (8_render/x86/square.c). */
static bool reads_squares(const ki_choice *c, kn_uop x, kn_uop r) {
    const ki_nest *k = &c->nest;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        bool known,
            along = k->read[i] && ki_scope_has(&k->scope, u, r) && ki_nest_stride(k, u, r, &known) == 1 && known;
        for (uint32_t q = 0; along && q < k->scope.nrange; q++) {
            kn_uop v = k->scope.range[q];
            if (ki_is_lane(v) && ki_extent(v) % c->lanes == 0 && ki_scope_has(&k->scope, x->src[0], v) &&
                ki_nest_stride(k, u, v, &known) > 1)
                return true;
        }
    }
    return false;
}

/* Into how many terms the innermost loop of the sum is written out; 0: it is left alone. */
static int64_t terms_of(const ki_choice *c, kn_uop x) {
    bool products = x->op == KN_REDUCE && x->arg.reduce.op == KN_ADD && x->src[0]->op == KN_MUL;
    kn_uop r = products ? ki_last_loop(x) : NULL;
    int64_t n = r ? ki_extent(r) : 0, terms = WRITTEN;
    if (n < 2 || ki_terms(x) < LONG || ki_is_lane(r) || runs_inside(&c->nest, r) || is_written_out(&c->nest, r))
        return 0;
    while (n % terms) terms--;
    if (n > WRITTEN && c->target->native && !reads_squares(c, x, r)) return 0;
    return terms > 1 && (terms < n || loops_of(x) > 1) && sums_of(c, x) >= SUMS ? terms : 0;
}

static bool write_out(ki_choice *c, kn_uop r, int64_t terms) {
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
        if (!write_out(c, ki_last_loop(x), terms)) return;
        i = UINT32_MAX; /* the nest is another one */
    }
}
