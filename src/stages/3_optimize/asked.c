/* asked.c: the OptOp PREFETCH: in each iteration a loop asks the caches for what lies so many bytes ahead of what it reads, or writes, or where
 * numbers lead so many iterations later (led.c).
 *
 * The op changes no node: it stands in the kernel's list of OptOps, where the machine code is made from it. Asking for what lies
 * beyond a buffer is no access. */
#include "stages/3_optimize/choose.h"

#define MOST_TIMES 8 /* that anything is asked for */

static const ki_opt *asked_for(const ki_nest *k, int32_t slot, int32_t loop) {
    const ki_opt *o = NULL;
    while ((o = ki_nest_opt(k, KI_OPT_PREFETCH, o)))
        if (o->id == slot && (loop == KI_ANY_LOOP || o->axis == loop)) return o;
    return NULL;
}
bool ki_is_asked_for(const ki_nest *k, int32_t slot, int32_t loop) { return asked_for(k, slot, loop) != NULL; }

bool ki_is_distance(int64_t bytes) { return bytes >= KI_LEAST_AHEAD && bytes <= KI_MOST_AHEAD; }

/* Is it an access that the loop is around, or of what follows a sum's loop; one that what the loop reads leads to? */
static bool asks_of(const ki_nest *k, kn_uop access, kn_uop r, bool led) {
    return led ? ki_led_by(k, access) == r
               : ki_scope_has(&k->scope, access, r) || ki_nest_closer(k, r)->op == KN_REDUCE;
}

kn_uop ki_opt_prefetch(ki_nest *k, ki_opt *o) {
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis);
    bool meets = false, led = o->arg >= 1 && o->arg <= KI_MOST_LED;
    for (uint32_t i = 0; i < k->scope.n && !meets; i++) {
        kn_uop u = k->scope.node[i];
        meets = ki_is_access(u) && ki_slot_of(ki_storage(u)) == o->id && asks_of(k, u, r, led);
    }
    const ki_opt *asked = asked_for(k, o->id, o->axis), *same = NULL;
    unsigned times = 0;
    while ((same = ki_nest_opt(k, KI_OPT_PREFETCH, same))) times += same->id == o->id && same->axis == o->axis;
    const char *why = !meets && led                     ? "no number that the loop reads leads to it"
                      : !meets                          ? "the loop neither reads nor writes it"
                      : led && o->top                   ? "it goes to the first cache"
                      : !led && !ki_is_distance(o->arg) ? "that is no distance"
                      : asked && (asked->arg != o->arg || asked->top != o->top) ? "it is already, otherwise"
                      : times >= MOST_TIMES                                     ? "it is already, often enough"
                                                                                : NULL;
    if (why) ki_fail(k->ir->env, KI_E_OPT_PREFETCH, (int)o->id, (int)o->arg, led ? "iterations" : "bytes", why);
    return why ? NULL : k->sink;
}
