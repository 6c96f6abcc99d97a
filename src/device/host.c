/* host.c: aligned host memory with a cache of free blocks. See host.h.
 *
 * Sizes are rounded to classes an eighth apart, so that a block fits again when a size differs a little. A free block
 * stands in the list of its class and in the list of all by age, both with the one freed last in front. The lists never
 * touch the block itself: where nobody has, a write would have the system clear a huge page. */
#include "device/host.h"

#include <string.h>

enum { ALIGN = 64, CLASSES = 8 * 48, SLACK = 64 << 20, EPOCH = 256 };

typedef struct free_block {
    struct free_block *next, *prev;     /* of its class */
    struct free_block *older, *younger; /* of all */
    void *p;
    size_t size;
} free_block;

typedef struct ki_blocks {
    free_block *list[CLASSES], *youngest, *oldest;
    ki_arena nodes;
    free_block *spare; /* nodes of no block, by next */
    size_t kept;
    size_t high, top; /* the most in use: lately, and in this epoch of frees */
    unsigned frees;
} ki_blocks;

/* Index and size of the class that holds n bytes: 64 .. 512 in steps of 64, then eight steps an octave. */
static unsigned class_of(size_t n, size_t *size) {
    size_t units = n ? (n + ALIGN - 1) / ALIGN : 1;
    if (units <= 8) return *size = units * ALIGN, (unsigned)units - 1;
    unsigned shift = 60 - (unsigned)ki_clz64(units - 1); /* leaves 8..15 */
    size_t top = (units - 1) >> shift;
    *size = ((top + 1) << shift) * ALIGN;
    return 8 * shift + (unsigned)top;
}

/* ---- the lists --------------------------------------------------------------------------------------------- */

static free_block *node(ki_blocks *b) {
    free_block *f = b->spare;
    if (f) b->spare = f->next;
    return f ? f : ki_arena_alloc(&b->nodes, sizeof *f);
}

/* Where there is no room for a node the block goes back to the system. */
static void put(ki_blocks *b, void *p, unsigned class, size_t size) {
    free_block *f = node(b);
    if (!f) {
        ki_data_free(p, size);
        return;
    }
    *f = (free_block){.next = b->list[class], .older = b->youngest, .p = p, .size = size};
    if (f->next) f->next->prev = f;
    if (f->older) f->older->younger = f;
    else b->oldest = f;
    b->list[class] = b->youngest = f;
    b->kept += size;
}

static void *take(ki_blocks *b, free_block *f, unsigned class) {
    if (f->prev) f->prev->next = f->next;
    else b->list[class] = f->next;
    if (f->next) f->next->prev = f->prev;
    if (f->younger) f->younger->older = f->older;
    else b->youngest = f->older;
    if (f->older) f->older->younger = f->younger;
    else b->oldest = f->younger;
    b->kept -= f->size;
    f->next = b->spare;
    b->spare = f;
    return f->p;
}

/* Gives back what was freed longest ago until at most `most` bytes are kept. */
static void trim(ki_blocks *b, size_t most) {
    while (b->kept > most) {
        free_block *f = b->oldest;
        size_t size = f->size, same;
        ki_data_free(take(b, f, class_of(size, &same)), size);
    }
}

/* With `used` bytes in use, how many may be kept. */
static size_t keep(const ki_blocks *b, size_t used) {
    size_t high = b->high > used ? b->high : used;
    return high - used + (high / 2 > SLACK ? high / 2 : SLACK);
}

static void note_use(ki_blocks *b, size_t used) {
    if (used > b->top) b->top = used;
    if (used > b->high) b->high = used;
}

/* The memory of a busier time fades: an eighth an epoch. */
static void note_free(ki_blocks *b, size_t used) {
    if (++b->frees % EPOCH) return;
    b->high -= b->high / 8;
    if (b->high < b->top) b->high = b->top;
    b->top = used;
}

/* ---- the device's functions -------------------------------------------------------------------------------- */

bool ki_host_open(ki_device *d) {
    d->blocks = ki_calloc(1, sizeof *d->blocks);
    return d->blocks || (ki_fail(d->env, KI_E_NOMEM), false);
}

void ki_host_close(ki_device *d) {
    if (d->blocks) {
        trim(d->blocks, 0);
        ki_arena_free(&d->blocks->nodes);
    }
    ki_free(d->blocks);
    d->blocks = NULL;
}

static void *fresh(ki_device *d, size_t size) {
    ki_blocks *b = d->blocks;
    trim(b, keep(b, d->stats.bytes + size));
    void *p = ki_data_alloc(size);
    if (!p) {
        trim(b, 0);
        p = ki_data_alloc(size);
    }
    d->stats.fresh += p != NULL;
    return p;
}

void *ki_host_alloc(ki_device *d, size_t bytes) {
    ki_blocks *b = d->blocks;
    size_t size;
    if (bytes > (size_t)1 << 46) return ki_fail(d->env, KI_E_DEVICE_MEMORY, d->is->name, bytes), NULL;
    unsigned c = class_of(bytes, &size);
    void *p = b->list[c] ? take(b, b->list[c], c) : fresh(d, size);
    d->stats.pooled = b->kept;
    if (!p) return ki_fail(d->env, KI_E_DEVICE_MEMORY, d->is->name, bytes), NULL;
    d->stats.bytes += size;
    if (d->stats.bytes > d->stats.peak) d->stats.peak = d->stats.bytes;
    note_use(b, d->stats.bytes);
    return p;
}

void ki_host_free(ki_device *d, void *p, size_t bytes) {
    ki_blocks *b = d->blocks;
    size_t size;
    if (!p) return;
    unsigned c = class_of(bytes, &size);
    d->stats.bytes -= size;
    note_free(b, d->stats.bytes);
    put(b, p, c, size);
    trim(b, keep(b, d->stats.bytes));
    d->stats.pooled = b->kept;
}

bool ki_host_copy(ki_device *d, ki_copy dir, void *to, const void *from, size_t bytes) {
    (void)d, (void)dir;
    if (bytes) memmove(to, from, bytes);
    return true;
}
