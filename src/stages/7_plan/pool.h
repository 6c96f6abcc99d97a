/* pool.h: an allocator of offsets, not of memory: what an arena would look like. Constant time a call.
 *
 * Blocks form a list in address order; free ones also hang in a bin of their size's power of two. Neighbours that are
 * free are joined at once, so no two free blocks touch. */
#ifndef KI_POOL_H
#define KI_POOL_H

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>

enum { KI_POOL_BINS = 64 };
typedef struct ki_block {
    int64_t offset, size;
    uint32_t before, after;   /* in address order, 0 = none */
    uint32_t fore, next;      /* in the bin */
    bool free;
} ki_block;
typedef struct ki_pool {
    ki_block *block; /* [0] unused */
    uint32_t n, cap;
    uint32_t spare;  /* unused entries, linked by next */
    uint32_t last;   /* highest block */
    uint32_t bin[KI_POOL_BINS];
    uint64_t used;   /* bins that are not empty */
    int64_t size;
} ki_pool;

/* A block of at least `size` bytes (a multiple of the alignment, > 0); 0 when out of memory. */
uint32_t ki_pool_take(ki_pool *p, int64_t size);
void ki_pool_give(ki_pool *p, uint32_t block);
void ki_pool_close(ki_pool *p);

#endif
