/* moved.h: which memory a schedule moves more of than the floor, by size. */
#ifndef KOINE_CLI_MOVED_H
#define KOINE_CLI_MOVED_H

#include "cli.h"

enum { MOVED_SCHEDULE, MOVED_FLOOR, MOVED_SIDES };
typedef struct moved_row { /* of all memory of this size, bytes */
    int64_t size, written[MOVED_SIDES], read[MOVED_SIDES];
} moved_row;
typedef struct moved {
    moved_row *row;
    size_t n, cap;
    bool failed;
} moved;

/* m may be NULL: nothing is kept. */
void moved_add(moved *m, unsigned side, int64_t size, int64_t read, int64_t written);
/* A line for each size, what is most above the floor first. */
void moved_print(cli *c, const char *program, moved *m);
void moved_free(moved *m);

#endif
