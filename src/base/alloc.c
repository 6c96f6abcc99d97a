/* alloc.c: host memory and arenas. See alloc.h for what holds. */
#include "base/alloc.h"

#include "base/block.h"
#include "base/gnu.h"

#include <stdlib.h>
#include <string.h>

static uint64_t fail_at;
static int fail_onwards;

void ki_alloc_fail(uint64_t n, int onwards) {
    fail_at = n;
    fail_onwards = onwards;
}

/* True when this allocation is one a test wants to see fail. */
static int must_fail(void) {
    if (KI_LIKELY(fail_at == 0)) return 0;
    if (fail_at > 1) {
        fail_at--;
        return 0;
    }
    if (!fail_onwards) fail_at = 0;
    return 1;
}

void *ki_malloc(size_t n) {
    bool clear;
    if (must_fail()) return NULL;
    void *p = ki_block_alloc(KI_TABLE, n, &clear);
    return p ? p : malloc(n ? n : 1);
}

void *ki_calloc(size_t n, size_t size) {
    bool clear;
    size_t bytes;
    if (ki_mul_overflow(n, size, &bytes) || must_fail()) return NULL;
    void *p = ki_block_alloc(KI_TABLE, bytes, &clear);
    if (!p) return calloc(n ? n : 1, size ? size : 1);
    return clear ? p : memset(p, 0, bytes);
}

/* Where it is, while there is room and it is not much too large for it. */
void *ki_realloc(void *p, size_t n, size_t size) {
    size_t bytes, room;
    bool clear;
    if (ki_mul_overflow(n, size, &bytes) || must_fail()) return NULL;
    size_t block = p ? ki_block_size(KI_TABLE, p) : 0;
    if (block >= bytes && block / 4 <= bytes) return p;
    void *q = ki_block_alloc(KI_TABLE, bytes, &clear);
    if (!q && !block) return realloc(p, bytes ? bytes : 1);
    if (!q && !(q = malloc(bytes ? bytes : 1))) return NULL;
    room = block || !p ? block : ki_malloc_room(p);
    if (p) memcpy(q, p, room < bytes ? room : bytes);
    ki_free(p);
    return q;
}

int ki_array_grow(void *array, size_t *cap, size_t need, size_t size) {
    size_t n = *cap ? *cap : 32;
    void *p;
    if (need <= *cap) return 1;
    while (n < need) n = n > SIZE_MAX / 2 ? need : n * 2;
    memcpy(&p, array, sizeof p); /* whatever it points to */
    if (!(p = ki_realloc(p, n, size))) return 0;
    memcpy(array, &p, sizeof p);
    *cap = n;
    return 1;
}

static void *aligned(size_t align, size_t n) {
    return n > SIZE_MAX - align ? NULL : aligned_alloc(align, (n + align - 1) / align * align);
}
void *ki_aligned(size_t align, size_t n) { return must_fail() ? NULL : aligned(align, n); }

void ki_free(void *p) {
    if (p && !ki_block_free(KI_TABLE, p)) free(p);
}

/* ---- blocks of data -------------------------------------------------------------------------------------------- */

/* From LARGE on malloc's heap would keep holes the system never sees again; what is larger than a shelf has maps of its own. Layer norm's scale
 * and shift elsewhere in their pages than its rows are took 1.05 to 1.08 of its time on a Zen 4. */
enum { LARGE = 4 << 20 };

/* As long as it is asked for, where aligned() would round up to pages and hide what reads beyond it. */
static void *paged(size_t n) {
    void *p;
    return posix_memalign(&p, KI_PAGE, n) ? NULL : p;
}

void *ki_data_alloc(size_t n) {
    bool clear;
    if (must_fail()) return NULL;
    void *p = n <= KI_MOST_DATA ? ki_block_alloc(KI_DATA, n, &clear) : NULL;
    if (p) return p;
    return n < KI_PAGED ? aligned(64, n ? n : 1) : n < LARGE ? paged(n) : ki_map(n);
}

void ki_data_free(void *p, size_t n) {
    if (!p || (n <= KI_MOST_DATA && ki_block_free(KI_DATA, p))) return;
    if (n < LARGE) free(p);
    else ki_unmap(p, n);
}

/* ---- arenas ---------------------------------------------------------------------------------------------------- */

#define CHUNK_HEAD ((sizeof(ki_chunk) + 15) & ~(size_t)15)

static int arena_grow(ki_arena *a, size_t n) {
    size_t size = a->top ? a->top->size * 2 : 16384;
    if (size > (size_t)2 << 20) size = (size_t)2 << 20;
    if (size < n + CHUNK_HEAD) size = n + CHUNK_HEAD;
    ki_chunk *c = ki_malloc(size);
    if (!c) return 0;
    *c = (ki_chunk){a->top, size, CHUNK_HEAD};
    a->top = c;
    a->total += size;
    return 1;
}

void *ki_arena_more(ki_arena *a, size_t n) {
    if (n > SIZE_MAX / 4) return NULL;
    n = (n + 15) & ~(size_t)15;
    if (!arena_grow(a, n)) return NULL;
    void *p = (char *)a->top + a->top->used;
    a->top->used += n;
    return p;
}

ki_arena_mark ki_arena_now(const ki_arena *a) { return (ki_arena_mark){a->top, a->top ? a->top->used : 0}; }

void ki_arena_reset(ki_arena *a, ki_arena_mark m) {
    while (a->top != m.top) {
        ki_chunk *dead = a->top;
        a->top = dead->prev;
        a->total -= dead->size;
        ki_free(dead);
    }
    if (a->top) a->top->used = m.used;
}

void ki_arena_clear(ki_arena *a) {
    if (!a->top) return;
    ki_chunk *keep = a->top;
    a->top = keep->prev;
    ki_arena_free(a);
    *a = (ki_arena){keep, keep->size};
    keep->prev = NULL;
    keep->used = CHUNK_HEAD;
}

void ki_arena_free(ki_arena *a) { ki_arena_reset(a, (ki_arena_mark){NULL, 0}); }
