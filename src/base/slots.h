/* slots.h: the places of an array's elements by their hashes. The array only grows; whoever has it compares elements.
 *
 *     uint32_t at = 0, k;
 *     while ((k = ki_slots_next(&s, hash, &at)) && !same(&array[k - 1], &x)) {}
 *     if (!k) ...append x to the array, and ki_slots_add(&s, hash) */
#ifndef KI_SLOTS_H
#define KI_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ki_slots {
    struct ki_slot {
        uint32_t hash, number; /* number: 1 + place in the array; 0: free */
    } *slot;
    uint32_t n, cap; /* cap: a power of two, at least twice n */
} ki_slots;

/* 1 + place of the next element with this hash; 0: there is no other. *at: 0 at first. */
static inline uint32_t ki_slots_next(const ki_slots *s, uint32_t hash, uint32_t *at) {
    while (s->cap) {
        const struct ki_slot *p = &s->slot[(hash + (*at)++) & (s->cap - 1)];
        if (!p->number || p->hash == hash) return p->number;
    }
    return 0;
}
/* The element that was appended last has this hash. False: out of memory, and nothing has changed. */
bool ki_slots_add(ki_slots *s, uint32_t hash);
void ki_slots_free(ki_slots *s);

#endif
