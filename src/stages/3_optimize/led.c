/* led.c: what a number from memory leads to (a label's logit, a word's row) no hardware asks for before it has read the number: a loop reads a later
 * iteration's number and asks for what it leads to. The OptOp PREFETCH of so many iterations; 8_render/x86/ahead.c makes the code. */
#include "stages/3_optimize/choose.h"

#define MOST_TIMES 8         /* iterations ahead */
#define LEAST      (1 << 7)  /* bytes that an iteration reads: else the processor has looked at several at once */
#define AHEAD      (6 << 10) /* bytes: what is read while memory answers */

kn_uop ki_led_by(const ki_nest *k, kn_uop access) {
    const ki_affine *f = ki_nest_form(k, access);
    for (uint32_t t = 0; f && t < f->n; t++) {
        kn_uop x = f->t[t].x, d = x->op == KN_CAST ? x->src[0] : NULL;
        bool number = d && (d->dtype == KN_I32 || d->dtype == KN_I64) && ki_is_access(d);
        if (!number || ki_storage(d)->op != KN_PARAM || !ki_nest_form(k, d)) continue;
        bool lanes = false; /* a vector of numbers leads to as many places */
        for (uint32_t q = 0; q < k->scope.nrange; q++)
            lanes |= ki_is_lane(k->scope.range[q]) && ki_scope_has(&k->scope, d, k->scope.range[q]);
        kn_uop loop = ki_innermost(k, d);
        if (!lanes && loop != d && ki_extent(loop) != 1 && !ki_is_gated(d))
            return loop; /* of one iteration none is later */
    }
    return NULL;
}

/* Bytes that one of its iterations reads. */
static int64_t bytes_in(const ki_nest *k, kn_uop loop) {
    int64_t all = 0;
    for (uint32_t i = 0; i < k->nreads; i++) {
        kn_uop u = k->reads[i];
        int64_t n = ki_scope_has(&k->scope, u, loop) ? (int64_t)ki_itemsize((kn_dtype)u->dtype) : 0;
        for (uint32_t q = 0; q < k->scope.nrange && n; q++) {
            kn_uop r = k->scope.range[q];
            bool inside = r != loop && (ki_is_lane(r) || ki_is_inside(k, r, loop));
            if (inside && ki_nest_step(k, u, r) && n < AHEAD) n *= ki_extent(r) ? ki_extent(r) : AHEAD;
        }
        all += n;
    }
    return all;
}

/* Does the loop ask so already? A number leads to one place. */
static bool is_led(const ki_nest *k, kn_uop loop) {
    const ki_opt *o = NULL;
    while ((o = ki_nest_opt(k, KI_OPT_PREFETCH, o)))
        if (o->axis == (int32_t)loop->arg.range.id && o->arg <= KI_MOST_LED) return true;
    return false;
}

void ki_choose_led(ki_choice *c) {
    const ki_nest *k = &c->nest;
    for (uint32_t i = 0; c->ok && c->open && i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], p = k->read[i] && ki_is_access(u) ? ki_storage(u) : NULL;
        kn_uop loop = p && p->op == KN_PARAM && ki_is_past(c, p) ? ki_led_by(k, u) : NULL;
        if (!loop || is_led(k, loop) || ki_is_asked_for(k, p->arg.param->slot, (int32_t)loop->arg.range.id)) continue;
        int64_t bytes = bytes_in(k, loop), trips = ki_extent(loop), times = (AHEAD + bytes - 1) / bytes;
        if (bytes < LEAST) continue;
        if (times > MOST_TIMES) times = MOST_TIMES;
        if (trips && times > trips / 2) times = trips / 2;
        ki_opt o = {.op = KI_OPT_PREFETCH,
                    .axis = (int32_t)loop->arg.range.id,
                    .arg = (int32_t)times,
                    .id = p->arg.param->slot};
        (void)ki_choice_look(c, ki_nest_apply(&c->nest, o));
    }
}
