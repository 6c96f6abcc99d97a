/* moved.c: which memory a schedule moves more of than the floor. Buffers have no names that both sides know, but sizes. */
#include "moved.h"

#include <stdlib.h>

void moved_add(moved *m, unsigned side, int64_t size, int64_t read, int64_t written) {
    size_t i = 0;
    if (!m || m->failed || read + written == 0) return;
    while (i < m->n && m->row[i].size != size) i++;
    if (i == m->n) {
        if (m->n == m->cap) {
            size_t cap = m->cap ? m->cap * 2 : 32;
            moved_row *p = realloc(m->row, cap * sizeof *p);
            if (!p) {
                m->failed = true;
                return;
            }
            m->row = p;
            m->cap = cap;
        }
        m->row[m->n++] = (moved_row){.size = size};
    }
    m->row[i].read[side] += read;
    m->row[i].written[side] += written;
}

static int64_t above(const moved_row *r) {
    return r->read[MOVED_SCHEDULE] + r->written[MOVED_SCHEDULE] - r->read[MOVED_FLOOR] - r->written[MOVED_FLOOR];
}

static int by_excess(const void *a, const void *b) {
    int64_t x = above(a), y = above(b);
    return (x < y) - (x > y);
}

void moved_print(cli *c, const char *program, moved *m) {
    if (m->n) qsort(m->row, m->n, sizeof *m->row, by_excess);
    if (!c->json)
        printf("%14s %12s %12s %12s %12s %14s\n", "memory, bytes", "written", "read", "floor wr.", "floor read",
               "above");
    for (size_t i = 0; i < m->n; i++) {
        const moved_row *r = &m->row[i];
        if (c->json)
            cli_json(stdout, "s program, i memory, i written, i read, i floor_written, i floor_read, i above", program,
                     r->size, r->written[MOVED_SCHEDULE], r->read[MOVED_SCHEDULE], r->written[MOVED_FLOOR],
                     r->read[MOVED_FLOOR], above(r));
        else /* in times of all of it */
            printf("%14lld %12.2f %12.2f %12.2f %12.2f %14lld\n", (long long)r->size,
                   (double)r->written[MOVED_SCHEDULE] / (double)r->size,
                   (double)r->read[MOVED_SCHEDULE] / (double)r->size, (double)r->written[MOVED_FLOOR] / (double)r->size,
                   (double)r->read[MOVED_FLOOR] / (double)r->size, (long long)above(r));
    }
}

void moved_free(moved *m) {
    free(m->row);
    *m = (moved){0};
}
