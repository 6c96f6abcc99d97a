/* cc.h: the system's C compiler, run as a process, without a shell.
 *
 * Found through KN_CC, CC, cc, gcc, clang, in that order; KN_CC and CC may carry arguments ("ccache gcc -O0"), of which options
 * come after koine's own. A job reads C from a file and writes a shared object; several jobs may run at once. */
#ifndef KI_CC_H
#define KI_CC_H

#include "base/env.h"

#include <sys/types.h>

typedef struct ki_cc {
    char **word; /* program, then its own arguments */
    size_t nword;
    char *path;       /* of the program */
    ki_text identity; /* what tells this compiler from any other: words, path, size, time */
} ki_cc;

/* False: env says what was tried. */
bool ki_cc_find(ki_env *env, ki_cc *cc);
void ki_cc_free(ki_cc *cc);

typedef struct ki_cc_job {
    pid_t pid;  /* 0: not running */
    int errors; /* file that receives what the compiler says; -1: none */
} ki_cc_job;

/* Compiles `source` to the shared object `out`; dir: where temporary files go. flags are separated by spaces. */
bool ki_cc_start(ki_env *env, const ki_cc *cc, const char *const *flags, size_t nflags, const ki_text *source,
                 const char *dir, const char *out, ki_cc_job *job);
/* Waits. False: it failed, and env has the first lines of what it said. */
bool ki_cc_finish(ki_env *env, const ki_cc *cc, ki_cc_job *job);

#endif
