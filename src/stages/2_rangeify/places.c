/* places.c: the names of loops. A nest's RANGEs, and those of the REDUCEs inlined in it, are named by what came before them in the
 * nest and by their shape, so that nests made alike, as those of each layer are, have the same ones: what was found of an index
 * once holds wherever it is met again.
 *
 * No two loops of a nest have one name, and in a nest names are in the order in which its loops came up. */
#include "stages/2_rangeify/rangeify.h"

#include "base/hash.h"

#include <string.h>

static uint64_t hash_of(const ki_place *p) {
    return ki_hash2(ki_hash2(p->before, p->axes), (uint64_t)(uintptr_t)p->shape);
}

static bool same(const ki_place *a, const ki_place *b) {
    return a->before == b->before && a->axes == b->axes && a->shape == b->shape;
}

static uint32_t *slot_of(const ki_places *s, const ki_place *p) {
    for (uint64_t k = hash_of(p);; k++) {
        uint32_t *at = &s->slot[k & (s->nslot - 1)];
        if (!*at || same(&s->place[*at - 1], p)) return at;
    }
}

static bool more_slots(ki_places *s, ki_env *env) {
    uint32_t n = s->nslot ? 2 * s->nslot : 64;
    uint32_t *slot = ki_calloc(n, sizeof *slot);
    if (!slot) return ki_fail(env, KI_E_NOMEM), false;
    ki_free(s->slot);
    s->slot = slot;
    s->nslot = n;
    for (uint32_t k = 0; k < s->n; k++) *slot_of(s, &s->place[k]) = k + 1;
    return true;
}

bool ki_range_place(rangeifier *r, uint32_t *place, const ki_type *shape, uint32_t axes, uint32_t *first) {
    ki_places *s = &r->places;
    ki_place p = {.before = *place, .axes = axes, .shape = shape};
    if (2 * s->n >= s->nslot && !more_slots(s, r->ir->env)) return false;
    uint32_t *at = slot_of(s, &p);
    if (!*at) {
        if (!ki_array_grow(&s->place, &s->cap, (size_t)s->n + 1, sizeof *s->place))
            return ki_fail(r->ir->env, KI_E_NOMEM), false;
        p.first = r->ir->next_range;
        r->ir->next_range += KI_MAX_RANK;
        s->place[s->n++] = p;
        *at = s->n;
    }
    *place = *at;
    *first = s->place[*at - 1].first;
    return true;
}

void ki_places_free(ki_places *s) {
    ki_free(s->place);
    ki_free(s->slot);
    *s = (ki_places){0};
}
