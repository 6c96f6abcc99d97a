/* alloc.h: every byte the library takes from the host passes here, so that a test can fail any one of them.
 *
 * Invariants: a failed call returns NULL and changes nothing; sizes are multiplied with a check. */
#ifndef KI_ALLOC_H
#define KI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *ki_malloc(size_t n);
void *ki_calloc(size_t n, size_t size);
/* Grows or shrinks an array to n elements; on failure the old one stays valid. */
void *ki_realloc(void *p, size_t n, size_t size);
/* Makes room for `need` elements in an array that grows by doubling: `array` is the address of its pointer. False: out of
 * memory, and nothing has changed. */
int ki_array_grow(void *array, size_t *cap, size_t need, size_t size);
/* n bytes at a multiple of align, a power of two; freed by ki_free. */
void *ki_aligned(size_t align, size_t n);
void ki_free(void *p);
/* What is as large as KI_PAGED, or larger, begins with a page: what lies at one place in two blocks does so in a page, and a load does not wait for a store
 * that stands a little further on in its own. */
enum { KI_PAGE = 4 << 10, KI_PAGED = 8 << 10 };
/* n bytes for data: aligned by 64 bytes if smaller, contents undefined. A large block is pages of its own, huge ones where the system has
 * them, and goes back to the system when it is freed. */
void *ki_data_alloc(size_t n);
void ki_data_free(void *p, size_t n);

/* Fail the n-th allocation from now (1 = the next), and all after it if `onwards`; 0 switches this off. */
void ki_alloc_fail(uint64_t n, int onwards);

/* Arena: chunks that never move. Reset to a mark discards what is younger. */
typedef struct ki_chunk {
    struct ki_chunk *prev;
    size_t size, used;
} ki_chunk;
typedef struct ki_arena {
    ki_chunk *top;
    size_t total; /* bytes in chunks */
} ki_arena;
typedef struct ki_arena_mark {
    ki_chunk *top;
    size_t used;
} ki_arena_mark;

void *ki_arena_more(ki_arena *a, size_t n); /* in a new chunk */
/* 16-byte aligned, not cleared; NULL when the host has no more. */
static inline void *ki_arena_alloc(ki_arena *a, size_t n) {
    size_t up = (n + 15) & ~(size_t)15;
    if (up < n || !a->top || a->top->size - a->top->used < up) return ki_arena_more(a, n);
    void *p = (char *)a->top + a->top->used;
    a->top->used += up;
    return p;
}
ki_arena_mark ki_arena_now(const ki_arena *a);
void ki_arena_reset(ki_arena *a, ki_arena_mark m);
/* Empties it, but keeps its youngest chunk for what comes next. */
void ki_arena_clear(ki_arena *a);
void ki_arena_free(ki_arena *a);

#endif
