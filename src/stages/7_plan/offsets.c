/* offsets.c: see offsets.h. */
#include "stages/7_plan/offsets.h"

#include "base/gnu.h"

static unsigned bin_of(int64_t size) { return 63 - (unsigned)ki_clz64((uint64_t)size); }

static uint32_t new_block(ki_offsets *p) {
    if (p->spare) {
        uint32_t b = p->spare;
        p->spare = p->block[b].next;
        return b;
    }
    if (p->n + 1 >= p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 64;
        ki_block *v = ki_realloc(p->block, cap, sizeof *v);
        if (!v) return 0;
        p->block = v;
        p->cap = cap;
    }
    return ++p->n;
}

static void bin_add(ki_offsets *p, uint32_t b) {
    ki_block *k = &p->block[b];
    unsigned bin = bin_of(k->size);
    k->free = true;
    k->fore = 0;
    k->next = p->bin[bin];
    if (k->next) p->block[k->next].fore = b;
    p->bin[bin] = b;
    p->used |= UINT64_C(1) << bin;
}

static void bin_remove(ki_offsets *p, uint32_t b) {
    ki_block *k = &p->block[b];
    unsigned bin = bin_of(k->size);
    k->free = false;
    if (k->fore) p->block[k->fore].next = k->next;
    else p->bin[bin] = k->next;
    if (k->next) p->block[k->next].fore = k->fore;
    if (!p->bin[bin]) p->used &= ~(UINT64_C(1) << bin);
}

/* The tightest of the first few in the size's own bin, else any of the next bin that has one: that fits for sure. */
static uint32_t find(const ki_offsets *p, int64_t size) {
    unsigned bin = bin_of(size);
    uint32_t best = 0, left = 16;
    for (uint32_t b = p->bin[bin]; b && left; b = p->block[b].next, left--)
        if (p->block[b].size >= size && (!best || p->block[b].size < p->block[best].size)) best = b;
    if (best) return best;
    uint64_t above = bin < 63 ? p->used >> (bin + 1) << (bin + 1) : 0;
    if (!above) return 0;
    left = 16;
    for (uint32_t b = p->bin[ki_ctz64(above)]; b && left; b = p->block[b].next, left--)
        if (!best || p->block[b].size < p->block[best].size) best = b;
    return best;
}

/* Cuts what is above `size` off b as a free block. */
static bool split(ki_offsets *p, uint32_t b, int64_t size) {
    if (p->block[b].size == size) return true;
    uint32_t r = new_block(p);
    if (!r) return false;
    ki_block *k = &p->block[b], *rest = &p->block[r];
    *rest = (ki_block){.offset = k->offset + size, .size = k->size - size, .before = b, .after = k->after};
    if (k->after) p->block[k->after].before = r;
    else p->last = r;
    k->after = r;
    k->size = size;
    bin_add(p, r);
    return true;
}

/* At the top: a free block there grows to the size. */
static uint32_t grow(ki_offsets *p, int64_t size) {
    uint32_t b = p->last;
    if (b && p->block[b].free) {
        bin_remove(p, b);
        p->size += size - p->block[b].size;
        p->block[b].size = size;
        return b;
    }
    b = new_block(p);
    if (!b) return 0;
    p->block[b] = (ki_block){.offset = p->size, .size = size, .before = p->last};
    if (p->last) p->block[p->last].after = b;
    p->last = b;
    p->size += size;
    return b;
}

uint32_t ki_offsets_take(ki_offsets *p, int64_t size) {
    uint32_t b = find(p, size);
    if (!b) return grow(p, size);
    bin_remove(p, b);
    return split(p, b, size) ? b : 0;
}

/* Joins b with the block after it; b's links are repaired, the other's entry is free again. */
static void join(ki_offsets *p, uint32_t b) {
    uint32_t r = p->block[b].after;
    p->block[b].size += p->block[r].size;
    p->block[b].after = p->block[r].after;
    if (p->block[r].after) p->block[p->block[r].after].before = b;
    else p->last = b;
    p->block[r].next = p->spare;
    p->spare = r;
}

void ki_offsets_give(ki_offsets *p, uint32_t b) {
    uint32_t after = p->block[b].after, before = p->block[b].before;
    if (after && p->block[after].free) bin_remove(p, after), join(p, b);
    if (before && p->block[before].free) bin_remove(p, before), join(p, before), b = before;
    bin_add(p, b);
}

void ki_offsets_close(ki_offsets *p) {
    ki_free(p->block);
    *p = (ki_offsets){0};
}
