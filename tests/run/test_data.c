/* Blocks of data: of every size, from several threads at once, none in another, aligned; what is freed is given back. */
#include "base/alloc.h"
#include "../tap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 48, ROUNDS = 400, THREADS = 3 };

typedef struct held {
    unsigned char *p;
    size_t n;
    unsigned char mark;
} held;

/* From 1 byte to 20 MiB: below, within and above what is put beside others. */
static size_t size_of(uint32_t *x) {
    *x = *x * 1664525u + 1013904223u;
    return (size_t)1 + ((*x >> 4) % 1000) * (((size_t)20 << 20) >> (*x >> 28) % 12) / 1000;
}

/* Its ends, and a byte of each page. */
static void paint(const held *h) {
    for (size_t i = 0; i < h->n; i += 4096) h->p[i] = h->mark;
    h->p[h->n - 1] = h->mark;
}
static bool is_whole(const held *h) {
    for (size_t i = 0; i < h->n; i += 4096)
        if (h->p[i] != h->mark) return false;
    return h->p[h->n - 1] == h->mark;
}

static void *churn(void *seed) {
    held held[BLOCKS] = {0};
    uint32_t x = (uint32_t)(uintptr_t)seed;
    bool good = true;
    for (int i = 0; i < ROUNDS && good; i++) {
        struct held *h = &held[(x >> 8) % BLOCKS];
        good = !h->p || is_whole(h);
        ki_data_free(h->p, h->n);
        *h = (struct held){.n = size_of(&x), .mark = (unsigned char)(i * 7 + (int)(uintptr_t)seed)};
        h->p = ki_data_alloc(h->n);
        good = good && h->p && (uintptr_t)h->p % (h->n < 8 << 10 ? 64 : 4096) == 0;
        if (good) paint(h);
    }
    for (int i = 0; i < BLOCKS; i++) {
        good = good && (!held[i].p || is_whole(&held[i]));
        ki_data_free(held[i].p, held[i].n);
    }
    return good ? seed : NULL;
}

/* Bytes of this process in memory. */
static size_t resident(void) {
    unsigned long all = 0, here = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &all, &here) != 2) here = 0;
    if (f) fclose(f);
    return here * (size_t)sysconf(_SC_PAGESIZE);
}

int main(void) {
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, churn, (void *)(i + 1));
    for (uintptr_t i = 0; i < THREADS; i++) {
        void *good;
        pthread_join(t[i], &good);
        CHECK(good != NULL, "thread %d: no block lies in another", (int)i);
    }
    /* Every second one is kept: what lay between them goes all the same. */
    enum { MANY = 64, EACH = 3 << 20 };
    void *p[MANY];
    size_t before = resident();
    for (int i = 0; i < MANY; i++) {
        p[i] = ki_data_alloc(EACH);
        memset(p[i], 1, EACH);
    }
    size_t full = resident();
    for (int i = 0; i < MANY; i += 2) ki_data_free(p[i], EACH);
    size_t half = resident();
    CHECK(full - before >= (size_t)MANY * EACH && before + (size_t)MANY * EACH * 3 / 4 > half,
          "what is freed is given back, its neighbours kept: %zu, %zu, %zu KiB", before >> 10, full >> 10, half >> 10);
    bool whole = true;
    for (int i = 1; i < MANY; i += 2) whole &= ((unsigned char *)p[i])[EACH - 1] == 1 && *(unsigned char *)p[i] == 1;
    CHECK(whole, "and they are as they were");
    for (int i = 1; i < MANY; i += 2) ki_data_free(p[i], EACH);
    return tap_done();
}
