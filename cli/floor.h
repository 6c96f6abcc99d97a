/* floor.h: the least memory that a schedule of a program moves. floor.c says by what rules. */
#ifndef KOINE_CLI_FLOOR_H
#define KOINE_CLI_FLOOR_H

#include "ir/program.h"

#include "moved.h"

/* Bytes, for a program at stage callify; -1: out of memory. m: of which memory, or NULL. */
int64_t floor_bytes(const ki_program *p, moved *m);

#endif
