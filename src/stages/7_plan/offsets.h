/* offsets.h: an allocator of offsets, not of memory: what an arena would look like. Constant time a call.
 *
 * Blocks form a list in address order; free ones also hang in a bin of their size's power of two. Neighbours that are
 * free are joined at once, so no two free blocks touch. */
#ifndef KI_OFFSETS_H
#define KI_OFFSETS_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>

enum { KI_OFFSETS_BINS = 64 };
typedef struct ki_block {
    int64_t offset, size;
    uint32_t before, after;   /* in address order, 0 = none */
    uint32_t fore, next;      /* in the bin */
    bool free;
} ki_block;
typedef struct ki_offsets {
    ki_block *block; /* [0] unused */
    uint32_t n, cap;
    uint32_t spare;  /* unused entries, linked by next */
    uint32_t last;   /* highest block */
    uint32_t bin[KI_OFFSETS_BINS];
    uint64_t used;   /* bins that are not empty */
    int64_t size;
} ki_offsets;

/* A block of at least `size` bytes (a multiple of the alignment, > 0); 0 when out of memory. */
uint32_t ki_offsets_take(ki_offsets *p, int64_t size);
void ki_offsets_give(ki_offsets *p, uint32_t block);
void ki_offsets_close(ki_offsets *p);

#endif
