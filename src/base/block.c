/* block.c: regions of units, each region's units in use a mask. See block.h.
 *
 * No locks: who sets bits of a mask has those units to itself, and a region goes back to the system only by who sets all of them
 * at once. A process that forks while another thread is in here finds whole masks. */
#include "base/block.h"

#include "base/gnu.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

enum { REGIONS = 128, HUGE = 2 << 20, PAGE = 64 << 10 };

typedef struct region {
    _Atomic(uintptr_t) base;       /* 0: none; 1: about to be one, or none */
    _Atomic(uint64_t) taken, used; /* by unit: in use; in use before, so not cleared */
    _Atomic(size_t) size;          /* KI_UNITS units; or more: of one block alone */
    uint8_t units[KI_UNITS];       /* of the block that begins there */
} region;
typedef struct shelf {
    region table[REGIONS];
    _Atomic(unsigned) nregion; /* places that ever were taken */
} shelf;
static shelf shelves[KI_SHELVES];
static size_t unit_of(const shelf *s) { return s == &shelves[KI_TABLE] ? KI_UNIT_TABLE : KI_UNIT_DATA; }

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED 1 /* who looks for what lies beside a block wants malloc's */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED 1
#endif
#endif
#ifndef WATCHED
#define WATCHED 0
#endif

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* PAGE: a multiple of every page size there is. */
static size_t pages(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }

void *ki_map(size_t n) {
    if (n > SIZE_MAX / 2) return NULL;
    n = pages(n);
    char *p = mmap(NULL, n + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t head = -(uintptr_t)p & (HUGE - 1); /* room to align, which is given back */
    if (head) (void)munmap(p, head);
    if (head < HUGE) (void)munmap(p + head + n, HUGE - head);
#ifdef MADV_HUGEPAGE
    (void)madvise(p + head, n / HUGE * HUGE, MADV_HUGEPAGE); /* whole ones: the rest would be memory nobody asked for */
#endif
    return p + head;
}
void ki_unmap(void *p, size_t n) { (void)munmap(p, pages(n)); }

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static uint64_t run_of(unsigned at, unsigned n) { return (n == KI_UNITS ? UINT64_MAX : (UINT64_C(1) << n) - 1) << at; }

/* A new region whose first units are taken. */
static void *open_region(shelf *s, size_t size, unsigned units) {
    for (unsigned k = 0; k < REGIONS; k++) {
        region *r = &s->table[k];
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&r->base, &none, 1)) continue;
        void *p = ki_map(size);
        if (p) {
            r->units[0] = (uint8_t)units;
            atomic_store(&r->size, size);
            atomic_store(&r->used, run_of(0, units));
            atomic_store(&r->taken, UINT64_MAX); /* nobody takes any before all know where it is */
        }
        atomic_store(&r->base, (uintptr_t)p);
        if (!p) return NULL;
        atomic_store(&r->taken, run_of(0, units));
        for (unsigned n = atomic_load(&s->nregion); n <= k;)
            if (atomic_compare_exchange_weak(&s->nregion, &n, k + 1)) break;
        return p;
    }
    return NULL;
}

static void close_region(region *r, void *p) {
    atomic_store(&r->base, 1); /* before the system may give the address to somebody else */
    ki_unmap(p, atomic_load(&r->size));
    atomic_store(&r->base, 0);
}

/* Units beside each other that are free, from the first on; KI_UNITS: there are none. */
static unsigned fit(uint64_t taken, unsigned n) {
    unsigned at = 0;
    while (at + n <= KI_UNITS && taken & run_of(at, n)) at++;
    return at + n <= KI_UNITS ? at : KI_UNITS;
}

void *ki_block_alloc(ki_shelf of, size_t n, bool *clear) {
    shelf *s = &shelves[of];
    size_t unit = unit_of(s), most = unit * KI_UNITS;
    *clear = true;
    if (WATCHED || n < (of == KI_DATA ? unit / 2 : unit)) return NULL;
    if (n > most) return n > SIZE_MAX / 2 ? NULL : open_region(s, (n + HUGE - 1) / HUGE * HUGE, KI_UNITS);
    unsigned units = (unsigned)((n + unit - 1) / unit), many = atomic_load(&s->nregion), at;
    for (unsigned k = 0; k < many; k++) {
        region *r = &s->table[k];
        if (atomic_load(&r->base) <= 1) continue;
        uint64_t taken = atomic_load(&r->taken);
        while ((at = fit(taken, units)) < KI_UNITS) {
            uint64_t run = run_of(at, units);
            if (!atomic_compare_exchange_weak(&r->taken, &taken, taken | run)) continue;
            *clear = !(atomic_fetch_or(&r->used, run) & run);
            r->units[at] = (uint8_t)units;
            return (char *)atomic_load(&r->base) + at * unit; /* which cannot go any more */
        }
    }
    return open_region(s, most, units);
}

/* The region that holds p, whose block cannot go meanwhile. A block begins at a multiple of its unit, as hardly anything else does. */
static region *region_of(shelf *s, const void *p) {
    if ((uintptr_t)p % unit_of(s)) return NULL;
    unsigned many = atomic_load(&s->nregion);
    for (unsigned k = 0; k < many; k++) {
        uintptr_t base = atomic_load(&s->table[k].base);
        if (base > 1 && (uintptr_t)p - base < atomic_load(&s->table[k].size) && atomic_load(&s->table[k].base) == base)
            return &s->table[k];
    }
    return NULL;
}

static unsigned place_of(const region *r, size_t unit, const void *p) {
    return (unsigned)(((uintptr_t)p - atomic_load(&r->base)) / unit);
}

size_t ki_block_size(ki_shelf of, const void *p) {
    shelf *s = &shelves[of];
    const region *r = region_of(s, p);
    if (!r) return 0;
    size_t size = atomic_load(&r->size), unit = unit_of(s);
    return size > unit * KI_UNITS ? size : r->units[place_of(r, unit, p)] * unit;
}

/* Is another region free? One is kept for what comes next: a new one's pages are cleared once more. */
static bool is_spare(shelf *s, const region *r) {
    unsigned many = atomic_load(&s->nregion);
    for (unsigned k = 0; k < many; k++)
        if (&s->table[k] != r && atomic_load(&s->table[k].base) > 1 && !atomic_load(&s->table[k].taken)) return true;
    return false;
}

bool ki_block_free(ki_shelf of, void *p) {
    shelf *s = &shelves[of];
    region *r = region_of(s, p);
    if (!r) return false;
    size_t unit = unit_of(s);
    unsigned at = place_of(r, unit, p), units = r->units[at];
    void *base = (void *)atomic_load(&r->base);
    if (atomic_load(&r->size) > unit * KI_UNITS) return close_region(r, base), true;
    uint64_t run = run_of(at, units), none = 0;
    if (of == KI_DATA) (void)madvise(p, units * unit, MADV_DONTNEED); /* the rest of its region may stay for long */
    bool last = atomic_fetch_and(&r->taken, ~run) == run;
    if (last && is_spare(s, r) && atomic_compare_exchange_strong(&r->taken, &none, UINT64_MAX)) close_region(r, base);
    return true;
}
