/* entries.c: see entries.h. */
#include "device/cpu/entries.h"

static struct ki_entry_of *place(const ki_entries *e, ki_digest key) {
    size_t k = key.a & (e->cap - 1);
    while (e->table[k].entry && (e->table[k].key.a != key.a || e->table[k].key.b != key.b)) k = (k + 1) & (e->cap - 1);
    return &e->table[k];
}

bool ki_entries_room(ki_entries *e, size_t more) {
    if (e->cap && (e->n + more) * 2 <= e->cap) return true;
    ki_entries next = *e;
    next.cap = e->cap ? e->cap : 64;
    while ((e->n + more) * 2 > next.cap) next.cap *= 2;
    if (!(next.table = ki_calloc(next.cap, sizeof *next.table))) return false;
    for (size_t i = 0; i < e->cap; i++)
        if (e->table[i].entry) *place(&next, e->table[i].key) = e->table[i];
    ki_free(e->table);
    *e = next;
    return true;
}

ki_entry *ki_entries_find(const ki_entries *e, ki_digest key) { return place(e, key)->entry; }

void ki_entries_put(ki_entries *e, ki_digest key, ki_entry *entry) {
    struct ki_entry_of *p = place(e, key);
    if (p->entry) return;
    *p = (struct ki_entry_of){key, entry};
    e->n++;
}

void ki_entries_free(ki_entries *e) {
    ki_free(e->table);
    *e = (ki_entries){0};
}
