/* frame.c: the OptOp FRAME: what the inner loops read of a PARAM as windows that overlap, as a convolution reads its image, is copied to a
 * LOCAL buffer, zeros where it must not be read, so that it is read without a condition, and rows follow each other.
 *
 *   x[c, 2 y + ky - 1, 2 x + kx - 1], where that is inside,  becomes  buf[c, ky % 2, kx, y + ky / 2, x]
 * A loop y of the nest and a loop ky of a sum that go along the same rows have one place for both. What goes along single elements, kx and x, has
 * places of its own: a row is as long as its results are, so that y and x can be one loop (JOIN), for three times the image. top: these too
 * have one place, the window's, 2 x + kx, and rows are whole: for what is read element by element, buf[c, 2 y + ky, 2 x + kx]. */
#include "stages/3_optimize/nest.h"
#include "stages/indexing.h"

#include "rules/given.h"

#define FAIL(...) (ki_fail(k->ir->env, __VA_ARGS__), NULL)

/* By how much the node's form grows from one r to the next; *ok false: nobody knows. */
static int64_t growth(const ki_nest *k, kn_uop u, kn_uop r, bool *ok) {
    const ki_affine *f = k->form[k->scope.at[u->id]];
    for (uint32_t i = 0; f && i < f->n; i++)
        if (f->t[i].x != r && ki_scope_has(&k->scope, f->t[i].x, r)) *ok = false;
    if (!f && u->op != KN_CONST) *ok = false;
    return f ? ki_affine_coef(f, r) : 0;
}

/* Does the condition know of the two only where they are together, step times y and w? */
static bool knows_both_alike(const ki_nest *k, kn_uop valid, kn_uop y, kn_uop w, int64_t step) {
    kn_uop part[KI_MAX_TERMS];
    unsigned n = valid ? ki_conjuncts(valid, part) : 0;
    bool ok = !valid || n;
    for (unsigned i = 0; ok && i < n; i++) {
        kn_uop p = part[i];
        if (!ki_scope_has(&k->scope, p, y) && !ki_scope_has(&k->scope, p, w)) continue;
        if (p->op != KN_CMPLT || p->src[0]->dtype != KN_IDX) return false;
        int64_t of_y = growth(k, p->src[0], y, &ok) - growth(k, p->src[1], y, &ok);
        int64_t of_w = growth(k, p->src[0], w, &ok) - growth(k, p->src[1], w, &ok);
        ok = ok && of_y == step * of_w;
    }
    return ok;
}

static bool is_in(const ki_frame *f, kn_uop r) {
    for (uint32_t i = 0; i < f->n; i++)
        if (f->pair[i].loop == r || f->pair[i].window == r) return true;
    return false;
}

bool ki_find_frame(const ki_nest *k, kn_uop access, const uint64_t *outer, bool all, ki_frame *f) {
    const ki_affine *a = ki_nest_form(k, access);
    kn_uop valid = ki_element_of(access->src[1]).valid;
    *f = (ki_frame){.all = all};
    for (uint32_t i = 0; a && i < a->n; i++) {
        kn_uop r = a->t[i].x;
        if (r->op != KN_RANGE || !ki_extent(r)) return false;
    }
    for (uint32_t i = 0; a && i < a->n; i++)
        for (uint32_t j = 0; j < a->n && f->n < KI_MOST_DEALT; j++) {
            kn_uop y = a->t[i].x, w = a->t[j].x;
            int64_t c = a->t[j].c, step = c >= (all ? 1 : 2) && a->t[i].c % c == 0 ? a->t[i].c / c : 0;
            if (step < 1 || ki_extent(y) < 2 || (step > KI_MOST_STEP && !all) || ki_extent(w) <= step ||
                !ki_is_serial(y) || ki_is_lane(w))
                continue;
            if (ki_nest_closer(k, y)->op != KN_END || ki_nest_closer(k, w)->op != KN_REDUCE) continue;
            if (ki_in_set(outer, ki_scope_rank(&k->scope, y)) || ki_in_set(outer, ki_scope_rank(&k->scope, w)))
                continue;
            if (is_in(f, y) || is_in(f, w)) continue;
            if (!knows_both_alike(k, valid, y, w, step)) continue;
            f->pair[f->n++] = (ki_frame_pair){y, w, step};
        }
    return f->n > 0;
}

/* Places of r in the copy. */
int64_t ki_framed(const ki_frame *f, kn_uop r) {
    int64_t n = ki_extent(r);
    for (uint32_t i = 0; f && i < f->n; i++) {
        const ki_frame_pair *p = &f->pair[i];
        int64_t more = (ki_extent(p->window) - 1) / p->step;
        if (p->loop == r) return f->all ? 1 : n + more;
        if (p->window == r) return f->all ? (ki_extent(p->loop) - 1) * p->step + n : p->step;
    }
    return n;
}

kn_uop ki_framed_place(ki_ir *ir, const ki_frame *f, kn_uop r) {
    for (uint32_t i = 0; f && i < f->n; i++) {
        const ki_frame_pair *p = &f->pair[i];
        kn_uop step = ki_index(ir, p->step);
        if (f->all && p->loop == r) return ki_index(ir, 0);
        if (f->all && p->window == r) return ki_joined(ir, p->loop, p->step, r);
        if (p->loop == r) return ki_op2(ir, KN_ADD, r, ki_op2(ir, KN_IDIV, p->window, step));
        if (p->window == r) return ki_op2(ir, KN_MOD, r, step);
    }
    return r;
}

kn_uop ki_framed_read(ki_ir *ir, const ki_frame *f, kn_uop read, const ki_swap *swap, uint32_t n) {
    for (uint32_t i = 0; f && read && i < f->n; i++) {
        const ki_frame_pair *p = &f->pair[i];
        kn_uop y = NULL, w = NULL;
        for (uint32_t q = 0; q < n; q++) {
            if (swap[q].from == p->loop) y = swap[q].expr;
            if (swap[q].from == p->window) w = swap[q].expr;
        }
        int64_t last = (ki_extent(p->loop) - 1) * p->step + ki_extent(p->window) - 1;
        if (f->all || p->step == 1) continue; /* every place is read */
        kn_uop inside = ki_op2(ir, KN_CMPLT, ki_joined(ir, y, p->step, w), ki_index(ir, last + 1));
        read = ki_op2(ir, KN_INDEX, read->src[0], ki_element_if(ir, inside, read->src[1]));
    }
    return read;
}

kn_uop ki_opt_frame(ki_nest *k, ki_opt *o) {
    kn_uop u;
    uint64_t *set = ki_find_copied(k, o, &u);
    ki_frame f;
    if (!set) return NULL;
    const char *why = !ki_is_access(u)                        ? "it is read by words"
                      : ki_storage(u)->op != KN_PARAM         ? "it is no PARAM"
                      : !ki_find_frame(k, u, set, o->top, &f) ? "no window goes along its rows"
                                                              : NULL;
    if (!why) return ki_copied(k, o, u, set, &f);
    ki_free(set);
    return FAIL(KI_E_OPT_STAGE, (int)o->arg, why);
}
