/* slots.c: see slots.h. Linear probing; what is full by half doubles. */
#include "base/slots.h"

#include "base/alloc.h"

static void seat(struct ki_slot *slot, uint32_t cap, struct ki_slot s) {
    uint32_t at = s.hash & (cap - 1);
    while (slot[at].number) at = (at + 1) & (cap - 1);
    slot[at] = s;
}

bool ki_slots_add(ki_slots *s, uint32_t hash) {
    if (2 * s->n >= s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 64;
        struct ki_slot *slot = ki_calloc(cap, sizeof *slot);
        if (!slot) return false;
        for (uint32_t k = 0; k < s->cap; k++)
            if (s->slot[k].number) seat(slot, cap, s->slot[k]);
        ki_free(s->slot);
        s->slot = slot;
        s->cap = cap;
    }
    seat(s->slot, s->cap, (struct ki_slot){hash, ++s->n});
    return true;
}

void ki_slots_free(ki_slots *s) {
    ki_free(s->slot);
    *s = (ki_slots){0};
}
