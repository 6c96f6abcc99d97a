/* prove.h: `koine rules --prove` and `--mutate`. */
#ifndef CLI_PROVE_H
#define CLI_PROVE_H

#include "cli.h"

#include "rules/rules.h"

/* Proves the rules of n sets (mutates their guards instead), several at a time; prints a line or object each. */
int cli_prove(cli *c, const ki_ruleset *const *set, int n, const ki_ruleset *const *peer, int npeer, bool mutate);
/* One rule's verdict, in words. */
int cli_prove_one(cli *c, const ki_ruleset *set, uint32_t rule);

#endif
