/* rank.h: how well the cost model of search orders kernels: its rank beside measured time. */
#ifndef KOINE_CLI_RANK_H
#define KOINE_CLI_RANK_H

#include "cli.h"

#include "ir/program.h"

/* Prints a line for each different kernel of a program at stage rangeify. */
int rank_kernels(cli *c, const char *program, ki_env *env, const ki_program *p);

#endif
