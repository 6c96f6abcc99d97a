/* mutate.h: changed texts of a rule. Private to the prover. */
#ifndef KI_MUTATE_H
#define KI_MUTATE_H

#include "rules/rules.h"

typedef struct ki_mutant {
    char *text;   /* "ruleset t NAME : ..." */
    char *change; /* "constant + 1: '0' to '1'" */
    bool right;   /* in the right side */
} ki_mutant;
typedef struct ki_mutants {
    ki_mutant *v;
    uint32_t n, cap;
} ki_mutants;

/* All of them, in the order of the text. Free them. False: out of memory (or a rule that does not parse, in env). */
bool ki_mutants_make(ki_env *env, const ki_ruleset *set, uint32_t rule, ki_mutants *out);
void ki_mutants_free(ki_mutants *m);

#endif
