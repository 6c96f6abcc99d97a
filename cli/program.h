/* program.h: a program file, read and lowered, for `run` and `compile`. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include "cli.h"

#include "ir/program.h"
#include "stages/stages.h"

typedef struct cli_program {
    ki_env *env; /* own, or the caller's */
    ki_env own;
    ki_ir ir, low_ir;
    ki_program in;  /* as read */
    ki_program out; /* lowered; zero until cli_program_lower */
} cli_program;

/* Reads and checks the file c's operand names ("-": standard input). env NULL: one of its own. False after a message; either way
 * cli_program_close follows. */
bool cli_program_open(cli *c, cli_program *p, ki_env *env);
/* The same for what it checks of the ports' values: in[i], out[i] are their arrays. native: to be run by the processor itself, which looks
 * at no access; what is in out is lost. */
bool cli_program_fits(cli *c, const cli_program *p, void *const *in, void *const *out, bool native);
/* Lowers to `to`. False after a message. */
bool cli_program_lower(cli *c, cli_program *p, ki_stage to);
void cli_program_close(cli_program *p);
/* The library's failure as the verb's; returns CLI_FAILED. */
int cli_program_failed(const cli *c, const cli_program *p);

/* Stage by name; KI_S_COUNT after a message. */
ki_stage cli_stage(const cli *c, const char *name);

#endif
