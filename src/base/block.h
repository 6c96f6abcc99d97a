/* block.h: large blocks of host memory, in huge pages. Private to alloc.c.
 *
 * A graph's tables and chunks of nodes come in blocks of 32 KiB and more, which malloc would ask of the system anew, page by page:
 * a page of 4 KiB costs more to get than what is written into it. Here they lie beside each other in regions of 2 MiB. So do
 * blocks of data in regions of 16 MiB: what is not in huge pages is read from memory at three quarters of the rate. */
#ifndef KI_BLOCK_H
#define KI_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

typedef enum ki_shelf { KI_TABLE, KI_DATA, KI_SHELVES } ki_shelf;
/* The least block of each, which its blocks are multiples of; the largest of data that lies beside others. */
enum { KI_UNIT_TABLE = 32 << 10, KI_UNIT_DATA = 256 << 10, KI_UNITS = 64, KI_MOST_DATA = KI_UNITS * KI_UNIT_DATA };

/* At least n bytes, or NULL: too few for a block (half of one of data), or there is no room; malloc may have some. *clear: they are zero.
 * Any thread. */
void *ki_block_alloc(ki_shelf of, size_t n, bool *clear);
/* Bytes of the block at p; 0: p is none. */
size_t ki_block_size(ki_shelf of, const void *p);
bool ki_block_free(ki_shelf of, void *p); /* false: p is none; the memory of one of data is given back */

/* Pages of their own for n bytes, aligned for huge ones and rounded up. */
void *ki_map(size_t n);
void ki_unmap(void *p, size_t n);

#endif
