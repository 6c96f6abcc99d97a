/* unroll.c: the innermost loop of a tile's sums is written out several times: what counts the loop, and what its addresses go on by, is done once for
 * all of them. The terms are added in the order of the loop, to the same registers: only displacements differ from copy to copy, and
 * nothing but registers and bytes is done again (as nodes the terms go through all stages before; docs/experiments.md).
 *
 * What holds: nothing is copied that jumps, or that reads the loop's counter, or an induction variable, but in an address. A register that each
 * copy writes before it reads it is one of the copy's own, so that no copy waits for another one's, nor holds a register for it; the very last
 * has the loop's, which who comes behind the loop may read. */
#include "stages/8_render/x86/lower.h"

#include <string.h>

#define COPIES     4
#define MOST_BODY  64  /* instructions */
#define MOST_ALL   144 /* of all copies */
#define LEAST_RUNS 2   /* of the loop that is left */
#define SUMS       8   /* of a tile: what adds to fewer, a vector by a matrix, was as fast either way */

/* What moves on with the loop: the counter and its induction variables. */
static int64_t step_of(const ki_lower *l, const struct ki_lloop *p, ki_vreg r) {
    if (!r) return 0;
    if (r == p->counter) return 1;
    for (uint32_t k = l->opened; k-- > 0 && l->inst[l->induction[k].head] == p->range;)
        if (l->induction[k].reg == r) return l->induction[k].step;
    return 0;
}

static bool is_register(const ki_mop *o) { return o->kind >= KI_XO_R8 && o->kind <= KI_XO_T; }

/* How much further on an address is in the next iteration. */
static int64_t goes_on(const ki_lower *l, const struct ki_lloop *p, const ki_mop *o) {
    int64_t by = o->base == KI_MB_REG ? step_of(l, p, o->reg) : 0;
    return by + step_of(l, p, o->index) * (o->scale ? o->scale : 1);
}

static bool may_copy(const ki_lower *l, const struct ki_lloop *p, const ki_mins *i) {
    if (i->form == KI_M_LABEL) return false;
    for (unsigned k = 0; k < 4 && i->op[k].kind; k++) {
        const ki_mop *o = &i->op[k];
        if (o->kind == KI_XO_LABEL || (is_register(o) && step_of(l, p, o->reg))) return false;
        if (o->kind != KI_XO_MEM) continue;
        int64_t far = o->v + goes_on(l, p, o) * (2 * COPIES);
        if (far < INT32_MIN || far > INT32_MAX) return false;
    }
    return true;
}

/* Does it add to what was there before the loop: a multiply-add, a dot product? Plain sums of rows, and maxima, took longer when written out. */
static bool accumulates(const struct ki_lloop *p, const ki_mins *i) {
    return i->op[2].kind && i->op[0].kind >= KI_XO_X && is_register(&i->op[0]) && i->op[0].reg < p->registers &&
           (i->flags & (KI_MF_READS0 | KI_MF_WRITES0)) == (KI_MF_READS0 | KI_MF_WRITES0);
}

static bool is_worth(const ki_lower *l, const struct ki_lloop *p, const ki_mins *body, uint32_t n) {
    uint32_t sums = 0;
    for (uint32_t j = 0; j < n; j++) {
        if (!may_copy(l, p, &body[j])) return false;
        sums += accumulates(p, &body[j]);
    }
    return sums >= SUMS;
}

/* ---- registers of a copy's own ----------------------------------------------------------------------------------- */

enum { UNSEEN, OWN, SHARED };

static void meet(ki_lunroll *u, ki_vreg r, uint8_t as) {
    if (r >= u->first && r < u->end && !u->seen[r - u->first]) u->seen[r - u->first] = as;
}

static void find_own(ki_lunroll *u) {
    memset(u->seen, UNSEEN, u->end - u->first);
    for (uint32_t j = 0; j < u->n; j++) {
        const ki_mins *i = &u->body[j];
        meet(u, i->mask, SHARED);
        for (int pass = 0; pass < 2; pass++) /* what is read, then what is written */
            for (unsigned k = 0; k < 4 && i->op[k].kind; k++) {
                const ki_mop *o = &i->op[k];
                bool writes = is_register(o) && ((k == 0 && i->flags & KI_MF_WRITES0 && !(i->flags & KI_MF_READS0)) ||
                                                 (k == 2 && i->flags & KI_MF_WRITES2));
                if (o->kind == KI_XO_MEM && !pass && o->base == KI_MB_REG) meet(u, o->reg, SHARED);
                if (o->kind == KI_XO_MEM && !pass) meet(u, o->index, SHARED);
                if (is_register(o) && writes == pass) meet(u, o->reg, pass ? OWN : SHARED);
            }
    }
}

static bool is_own(const ki_lunroll *u, ki_vreg r) {
    return r >= u->first && r < u->end && u->seen[r - u->first] == OWN;
}

static ki_vreg own(ki_lower *l, ki_vreg r) {
    ki_lunroll *u = &l->unroll;
    if (!is_own(u, r)) return r;
    ki_vreg *to = &u->own[r - u->first];
    if (*to) return *to;
    ki_vinfo v = l->m.v[r];
    *to = ki_vreg_new(&l->m, (ki_rclass)v.cls, (ki_x86_kind)v.kind);
    if (*to) l->m.v[*to].hint = is_own(u, v.hint) ? u->own[v.hint - u->first] : v.hint;
    return *to;
}

/* The body's instruction in iteration `nth` from where the counter stands. */
static ki_mins copy_of(ki_lower *l, const struct ki_lloop *p, const ki_mins *i, int64_t nth, bool last) {
    ki_mins to = *i;
    for (unsigned k = 0; k < 4 && to.op[k].kind; k++) {
        ki_mop *o = &to.op[k];
        if (o->kind == KI_XO_MEM) o->v += nth * goes_on(l, p, o);
        if (last) continue;
        if (is_register(o) || (o->kind == KI_XO_MEM && o->base == KI_MB_REG)) o->reg = own(l, o->reg);
        if (o->kind == KI_XO_MEM) o->index = own(l, o->index);
    }
    if (!last) to.mask = own(l, to.mask);
    return to;
}

static void put_copies(ki_lower *l, const struct ki_lloop *p, uint32_t copies, bool last) {
    ki_lunroll *u = &l->unroll;
    for (uint32_t nth = 0; nth < copies; nth++) {
        memset(u->own, 0, (u->end - u->first) * sizeof *u->own);
        for (uint32_t j = 0; j < u->n; j++) {
            ki_mins i = copy_of(l, p, &u->body[j], nth, last && nth + 1 == copies);
            *ki_mput(&l->m, i.form, i.at, 4, i.op) = i;
        }
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool room(ki_lower *l, uint32_t n, uint32_t registers) {
    ki_lunroll *u = &l->unroll;
    if (ki_array_grow(&u->body, &u->body_cap, n, sizeof *u->body) &&
        ki_array_grow(&u->own, &u->own_cap, registers, sizeof *u->own) &&
        ki_array_grow(&u->seen, &u->seen_cap, registers, sizeof *u->seen))
        return true;
    ki_fail(l->ir->env, KI_E_NOMEM);
    return l->m.failed = true, false;
}

bool ki_lmay_unroll(const ki_lower *l, kn_uop range) {
    return l->m.target->twice && range->arg.range.axis == KN_AX_REDUCE && ki_is_const(range->src[0]) &&
           range->src[0]->arg.i >= LEAST_RUNS * 2 && range->src[0]->arg.i <= INT32_MAX;
}

uint32_t ki_lunroll_loop(ki_lower *l, const struct ki_lloop *p) {
    ki_mir *m = &l->m;
    ki_lunroll *u = &l->unroll;
    if (m->failed || !ki_lmay_unroll(l, p->range) || p->number + 1 != m->nloop) return 1;
    uint32_t begin = m->loop[p->number].begin + 1, n = m->n - begin;
    int64_t trips = p->bound->arg.i, copies = COPIES;
    while (copies > 1 && (copies * n > MOST_ALL || trips / copies < LEAST_RUNS)) copies--;
    if (!n || n > MOST_BODY || copies < 2 || !is_worth(l, p, &m->ins[begin], n)) return 1;
    u->first = p->registers, u->end = m->nv, u->n = n;
    if (!room(l, n, u->end - u->first + 1)) return 1;
    memcpy(u->body, &m->ins[begin], n * sizeof *u->body);
    find_own(u);
    m->n = begin;
    put_copies(l, p, (uint32_t)copies, trips % copies == 0);
    if (!m->failed) m->loop[p->number].trips /= (float)copies;
    return (uint32_t)copies;
}

void ki_lunroll_rest(ki_lower *l, const struct ki_lloop *p, uint32_t copies) {
    put_copies(l, p, (uint32_t)(p->bound->arg.i % copies), true);
}
