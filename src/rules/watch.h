/* watch.h: who sees each rewrite of a context: KN_TRACE (a line in a file), KN_VERIFY=2 (what a rewrite makes is met by
 * a spec at once), and the origins by which a violation names the rewrite that made a node. Costs a test of one pointer a
 * rewrite where nobody watches. */
#ifndef KI_WATCH_H
#define KI_WATCH_H

#include "rules/rules.h"

#include <stdio.h>

enum { KI_WATCH_SPECS = 12 };
typedef struct ki_watch {
    FILE *trace;       /* NULL: none */
    bool lost;         /* a line could not be written, which was told */
    const char *stage; /* now running */
    const ki_ruleset *spec[KI_WATCH_SPECS];
    unsigned nspec; /* 0: what is made is not checked */
    const ki_ir *ir; /* the store the origins are of */
    ki_origins origins;
} ki_watch;

/* Gives env its watch, if KN_TRACE names a file or `check` is set and it has none. False: the file cannot be written. */
bool ki_watch_open(ki_env *env, bool check);
/* A stage begins: its name, what its rewrites may make (n 0: anything). Origins are forgotten. */
void ki_watch_stage(ki_env *env, const char *stage, const ki_ruleset *const *spec, unsigned n);
/* A rule fired: nodes since.. of ir are new. False: what it made fits no spec (env says what). */
bool ki_watch_rewrite(ki_ir *ir, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after, uint32_t since);
/* Origins of the nodes of ir, NULL: none known. */
const ki_origins *ki_watch_origins(const ki_ir *ir);

#endif
