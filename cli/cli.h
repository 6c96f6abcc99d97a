/* cli.h: what every verb shares. A verb is one file and one row of the table in main.c; its options are a table too,
 * from which the parser, --help and the man page are made.
 *
 * Output goes to standard output, progress, timings and errors to standard error. A verb returns an exit code. */
#ifndef CLI_H
#define CLI_H

#include "base/env.h"

#include <koine/base.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_STR_(x) #x
#define CLI_STR(x) CLI_STR_(x)
#define CLI_VERSION CLI_STR(KN_VERSION_MAJOR) "." CLI_STR(KN_VERSION_MINOR) "." CLI_STR(KN_VERSION_PATCH)

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

typedef struct cli_opt {
    const char *name; /* without -- */
    const char *arg;  /* what it takes, "FILE", "X.npy Y.npy" (two words: two arguments); NULL: a flag */
    const char *doc;
} cli_opt;

struct cli;
typedef struct cli_verb {
    const char *name, *args; /* args: the synopsis after the name */
    const char *summary;     /* one line */
    const char *text;        /* paragraphs, '\n' between them */
    const cli_opt *opt;      /* ends with a NULL name */
    int least, most;         /* operands */
    int (*run)(struct cli *c);
} cli_verb;

typedef struct cli_given {
    const cli_opt *opt;
    char **arg;
} cli_given;

typedef struct cli {
    const cli_verb *verb;
    cli_given *given;
    int ngiven;
    char **operand;
    int noperand;
    bool json;
} cli;

extern const cli_verb *const cli_verbs[]; /* ends with NULL */
extern const cli_verb cli_run, cli_compile, cli_rules, cli_ops, cli_devices, cli_info, cli_train, cli_bench, cli_help;

/* "koine VERB: ..." on standard error; returns CLI_USAGE or CLI_FAILED. */
int cli_usage(const cli *c, const char *fmt, ...) KI_PRINTF(2, 3);
int cli_fail(const cli *c, const char *fmt, ...) KI_PRINTF(2, 3);

bool cli_has(const cli *c, const char *name);
/* The last value given, or def. */
const char *cli_str(const cli *c, const char *name, const char *def);
/* The i-th value of an option that may be repeated; NULL past the last. */
const char *cli_nth(const cli *c, const char *name, int i);
char **cli_args(const cli *c, const char *name); /* all arguments of the last one given, or NULL */
/* A whole number in [lo, hi]; false after a message. *v keeps its value when the option is absent. */
bool cli_int(const cli *c, const char *name, int64_t lo, int64_t hi, int64_t *v);
bool cli_real(const cli *c, const char *name, double lo, double hi, double *v);

/* JSON lines. cli_json(stdout, "s name, i size", ...) prints one object: s string, i int64_t, d double, b int. */
void cli_json(FILE *f, const char *spec, ...);
void cli_json_string(FILE *f, const char *s);

/* Sends what the library has to say to standard error. */
void cli_log(kn_ctx *k);

/* Seconds, monotonic. */
double cli_now(void);
/* The known word closest to s, NULL if none is near. `word(i)` gives candidates until NULL. */
const char *cli_near(const char *s, const char *(*word)(const void *of, int i), const void *of);

/* x86.c */
int cli_x86(cli *c); /* `koine ops --x86` */

/* help.c */
void cli_help_verb(FILE *f, const cli_verb *v);
void cli_help_all(FILE *f);
void cli_man(FILE *f);

#endif
