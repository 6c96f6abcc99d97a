/* phases.c: sums of which only some terms count, by a remainder: the gradient of a convolution with strides, whose output's even rows
 * come from other taps than the odd ones. What is divided is taken apart, loop by loop, until each part's remainder is known: a loop of
 * the nest by SPLIT into steps and phases and CUT into one phase each, then the loops of the sums. What is left out then is not
 * computed. */
#include "stages/3_optimize/choose.h"

#define MOST_PHASES 4

/* What u, a comparison, divides by, so that a condition hangs on the remainder; 0: it is none such. */
static int64_t divisor(kn_uop u) {
    bool is = u->src[0]->op == KN_MOD && u->src[0]->dtype == KN_IDX && u->src[0]->src[1]->op == KN_CONST &&
              u->src[1]->op == KN_CONST;
    return is ? u->src[0]->src[1]->arg.i : 0;
}

/* Where a comparison of a few phases alone changes its value; 0: it is none such. */
static int64_t changes(const ki_nest *k, kn_uop u) {
    kn_uop r;
    int64_t at = ki_changes_at(k, u, &r);
    return at && ki_extent(r) <= MOST_PHASES ? at : 0;
}

/* r, a loop of the nest e, is cut, outermost, or first made to divide by m. */
static bool part_loop(ki_choice *c, kn_uop e, kn_uop r, int64_t m, int64_t at) {
    int64_t n = ki_extent(r);
    uint32_t id = r->arg.range.id;
    if (!at && n > m && n % m == 0)
        return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)r->arg.range.axis, false, id, m), true;
    for (uint32_t j = 1; e->src[j] != r; j++)
        if (ki_is_serial(e->src[j]) && ki_extent(e->src[j]) != 1 && ki_nest_independent(&c->nest, e->src[j]))
            return ki_choice_do(c, KI_OPT_SWAP, 0, false, e->src[j]->arg.range.id, id), true;
    return ki_choice_do(c, KI_OPT_CUT, 0, false, id, at ? at : n > m ? n - n % m : 1), true;
}

/* The same of a loop of a sum: padded, so that it stays one sum. */
static bool part_sum(ki_choice *c, kn_uop e, kn_uop r, int64_t m, int64_t at) {
    int64_t n = ki_extent(r);
    uint32_t id = r->arg.range.id;
    c->phased = e->src[1]->arg.range.id + 1;
    if (!at && n % m) return ki_choice_do(c, KI_OPT_PADTO, 0, false, id, m), true;
    if (!at && n > m) return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)r->arg.range.axis, false, id, m), true;
    return ki_choice_do(c, KI_OPT_CUT, 0, false, id, at ? at : 1), true;
}

/* In this order: phases that a remainder or a choice hangs on, so that what they decide is not split; loops that are divided; the same of
 * sums; and what is left of these, padded, in a nest whose sums were begun with. */
enum { PHASES, CHOICES, LOOPS, SUMS, ENDS };

bool ki_choose_phases(ki_choice *c, kn_uop e) {
    const ki_nest *k = &c->nest;
    bool begun = c->phased == e->src[1]->arg.range.id + 1;
    int last = !ki_nest_store(e) ? LOOPS : begun ? ENDS : SUMS;
    for (int pass = PHASES; pass <= last; pass++) {
        bool sums = pass >= SUMS, ends = pass == CHOICES || pass == ENDS;
        for (uint32_t i = 0; i < k->scope.at[e->id]; i++) {
            kn_uop u = k->scope.node[i];
            if (u->op != KN_CMPLT) continue; /* as nearly all */
            int64_t at = ends ? changes(k, u) : 0, m = ends ? 0 : divisor(u);
            if (ends ? !at || (!sums && !ki_chooses_sum(k, u)) : m < 2 || m > MOST_PHASES) continue;
            const ki_affine *f = k->form[k->scope.at[(ends ? u->src[0] : u->src[0]->src[0])->id]];
            for (uint32_t j = 0; f && j < f->n; j++) {
                kn_uop r = f->t[j].x, x = r->op == KN_RANGE ? ki_nest_closer(k, r) : NULL;
                if (!x || ki_extent(r) < 2 || !ki_is_serial(r) || (pass == PHASES && ki_extent(r) > m)) continue;
                if (sums ? x->op != KN_REDUCE || !ki_varies_in(k, x, e) : x != e || !ki_nest_independent(k, r))
                    continue;
                return sums ? part_sum(c, e, r, m, at) : part_loop(c, e, r, m, at);
            }
        }
    }
    c->phased = 0; /* what is padded from now on is padded for lanes */
    return false;
}
