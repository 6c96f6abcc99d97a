/* Blocks of memory: threads that take, grow, clear and give back blocks of all sizes never meet in one, and find what they wrote. */
#include "base/alloc.h"
#include "base/block.h"
#include "../tap.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { HELD = 24, STEPS = 3000, THREADS = 4 };

typedef struct held {
    uint32_t *p;
    size_t n; /* words */
    uint32_t mark;
} held;

typedef struct worker {
    uint64_t seed;
    const char *wrong;
} worker;

static uint64_t draw(worker *w) {
    w->seed ^= w->seed << 13, w->seed ^= w->seed >> 7, w->seed ^= w->seed << 17;
    return w->seed;
}

/* The first and last word of each page hold the mark, and what lies between at random. */
static void write_marks(held *h) {
    for (size_t i = 0; i < h->n; i += 512) h->p[i] = h->mark;
    h->p[h->n - 1] = h->mark;
}
static bool has_marks(const held *h, size_t n) {
    for (size_t i = 0; i < n; i += 512)
        if (h->p[i] != h->mark) return false;
    return n < h->n || h->p[n - 1] == h->mark;
}

static size_t words(worker *w) {
    static const size_t most[] = {64, 16 << 10, 200 << 10, 520 << 10, 800 << 10};
    return 1 + draw(w) % most[draw(w) % (sizeof most / sizeof *most)];
}

static void step(worker *w, held *h) {
    if (!h->p) {
        bool clear = draw(w) & 1;
        h->n = words(w);
        h->mark = (uint32_t)draw(w) | 1;
        h->p = clear ? ki_calloc(h->n, sizeof *h->p) : ki_malloc(h->n * sizeof *h->p);
        if (!h->p) w->wrong = "no memory";
        for (size_t i = 0; h->p && clear && i < h->n; i++)
            if (h->p[i]) w->wrong = "what was to be cleared is not";
        if (h->p) write_marks(h);
    } else if (draw(w) & 1) {
        size_t n = words(w);
        uint32_t *p = ki_realloc(h->p, n, sizeof *p);
        if (!p) {
            w->wrong = "no memory to grow";
            return;
        }
        h->p = p;
        if (!has_marks(h, n < h->n ? n : h->n)) w->wrong = "what was grown has changed";
        h->n = n;
        write_marks(h);
    } else {
        if (!has_marks(h, h->n)) w->wrong = "somebody else wrote here";
        ki_free(h->p);
        h->p = NULL;
    }
}

static void *work(void *arg) {
    worker *w = arg;
    held h[HELD] = {0};
    for (int k = 0; k < STEPS && !w->wrong; k++) step(w, &h[draw(w) % HELD]);
    for (int k = 0; k < HELD; k++) ki_free(h[k].p);
    return NULL;
}

int main(void) {
    pthread_t id[THREADS];
    worker w[THREADS];
    for (int k = 0; k < THREADS; k++) {
        w[k] = (worker){.seed = 88172645463325252u + (uint64_t)k * 977};
        if (pthread_create(&id[k], NULL, work, &w[k])) return 1;
    }
    for (int k = 0; k < THREADS; k++) {
        pthread_join(id[k], NULL);
        CHECK(!w[k].wrong, "thread %d: %s", k, w[k].wrong ? w[k].wrong : "its blocks are its own");
    }
    void *large = ki_data_alloc(KI_UNIT_DATA), *half = ki_data_alloc(KI_UNIT_DATA / 2 + 1);
    CHECK((uintptr_t)large % KI_UNIT_DATA || (uintptr_t)half % KI_UNIT_DATA == 0,
          "half a unit of data lies beside others too, in huge pages");
    ki_data_free(large, KI_UNIT_DATA), ki_data_free(half, KI_UNIT_DATA / 2 + 1);
    ki_alloc_fail(1, 0);
    CHECK(!ki_malloc(1 << 20) && !w[0].wrong, "a large block can be made to fail");
    void *p = ki_malloc(SIZE_MAX / 2 - 4096);
    CHECK(!p, "what nobody has is refused");
    return tap_done();
}
