/* host.c: aligned host memory with a cache of free blocks. See host.h.
 *
 * Sizes are rounded to classes an eighth apart, so that a block fits again when a size differs a little. A free block
 * holds its list node in its own first bytes. Large blocks are aligned and advised for huge pages. */
#include "device/host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, HUGE = 2 << 20, CLASSES = 8 * 48, KEEP_LEAST = 64 << 20 };

typedef struct free_block {
    struct free_block *next;
} free_block;

typedef struct ki_blocks {
    free_block *list[CLASSES];
    size_t kept;
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

bool ki_host_open(ki_device *d) {
    d->blocks = ki_calloc(1, sizeof *d->blocks);
    return d->blocks || (ki_fail(d->env, KI_E_NOMEM), false);
}

static void drop_all(ki_blocks *b) {
    for (unsigned c = 0; c < CLASSES; c++)
        for (free_block *f; (f = b->list[c]);) {
            b->list[c] = f->next;
            ki_free(f);
        }
    b->kept = 0;
}

void ki_host_close(ki_device *d) {
    if (d->blocks) drop_all(d->blocks);
    ki_free(d->blocks);
    d->blocks = NULL;
}

static void *fresh(size_t size) {
    void *p = ki_aligned(size >= 2 * HUGE ? HUGE : ALIGN, size);
#ifdef MADV_HUGEPAGE
    if (p && size >= 2 * HUGE) (void)madvise(p, size / HUGE * HUGE, MADV_HUGEPAGE);
#endif
    return p;
}

void *ki_host_alloc(ki_device *d, size_t bytes) {
    ki_blocks *b = d->blocks;
    size_t size;
    if (bytes > (size_t)1 << 46) return ki_fail(d->env, KI_E_DEVICE_MEMORY, d->is->name, bytes), NULL;
    unsigned c = class_of(bytes, &size);
    void *p = b->list[c];
    if (p) {
        b->list[c] = b->list[c]->next;
        b->kept -= size;
    } else if (!(p = fresh(size))) {
        drop_all(b);
        p = fresh(size);
    }
    if (!p) return ki_fail(d->env, KI_E_DEVICE_MEMORY, d->is->name, bytes), NULL;
    d->stats.bytes += size;
    if (d->stats.bytes > d->stats.peak) d->stats.peak = d->stats.bytes;
    d->stats.pooled = b->kept;
    return p;
}

void ki_host_free(ki_device *d, void *p, size_t bytes) {
    ki_blocks *b = d->blocks;
    size_t size;
    if (!p) return;
    unsigned c = class_of(bytes, &size);
    d->stats.bytes -= size;
    size_t keep = 2 * d->stats.bytes > KEEP_LEAST ? 2 * d->stats.bytes : KEEP_LEAST;
    if (b->kept + size > keep) {
        ki_free(p);
    } else {
        free_block *f = p;
        f->next = b->list[c];
        b->list[c] = f;
        b->kept += size;
    }
    d->stats.pooled = b->kept;
}

bool ki_host_copy(ki_device *d, ki_copy dir, void *to, const void *from, size_t bytes) {
    (void)d, (void)dir;
    if (bytes) memmove(to, from, bytes);
    return true;
}
