/* places.c: the names of loops. A nest's RANGEs, and those of the REDUCEs inlined in it, are named by what came before them in the
 * nest and by their shape, so that nests made alike, as those of each layer are, have the same ones: what was found of an index
 * once holds wherever it is met again.
 *
 * No two loops of a nest have one name, and in a nest names are in the order in which its loops came up. */
#include "stages/2_rangeify/rangeify.h"

#include "base/hash.h"

#include <string.h>

static uint32_t hash_of(const ki_place *p) {
    return (uint32_t)ki_hash2(ki_hash2(p->before, p->axes), (uint64_t)(uintptr_t)p->shape);
}

static bool same(const ki_place *a, const ki_place *b) {
    return a->before == b->before && a->axes == b->axes && a->shape == b->shape;
}

bool ki_range_place(rangeifier *r, uint32_t *place, const ki_type *shape, uint32_t axes, uint32_t *first) {
    ki_places *s = &r->places;
    ki_place p = {.before = *place, .axes = axes, .shape = shape};
    uint32_t hash = hash_of(&p), at = 0, k;
    while ((k = ki_slots_next(&s->slots, hash, &at)) && !same(&s->place[k - 1], &p)) {
    }
    if (!k) {
        k = s->slots.n + 1;
        if (!ki_array_grow(&s->place, &s->cap, k, sizeof *s->place) || !ki_slots_add(&s->slots, hash))
            return ki_fail(r->ir->env, KI_E_NOMEM), false;
        p.first = r->ir->next_range;
        r->ir->next_range += KI_MAX_RANK;
        s->place[k - 1] = p;
    }
    *place = k;
    *first = s->place[k - 1].first;
    return true;
}

void ki_places_free(ki_places *s) {
    ki_free(s->place);
    ki_slots_free(&s->slots);
    *s = (ki_places){0};
}
