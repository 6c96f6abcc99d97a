/* prove.h: is a rule true? Three rungs, the first that settles it gives the verdict.
 *
 *   exhaustive  every value: 4-bit words with wraparound (signed and not), a window of mathematical integers for
 *               index, all 256 values of the 8-bit floats; every interval that contains the value where a guard asks for
 *               bounds. Rules that hold in real arithmetic only (@fp) are checked in exact rationals.
 *   smt         bit-vectors of 8 to 64 bits, floats of all dtypes, index over Int, when z3 is installed
 *   execution   values of the real dtypes, sampled; graphs that match the pattern, interpreted on both sides
 *
 * A rule that never fired on any instance is not proved. */
#ifndef KI_PROVE_H
#define KI_PROVE_H

#include "rules/rules.h"

typedef enum ki_rung { KI_UNPROVED, KI_PROVED_EXHAUSTIVE, KI_PROVED_SMT, KI_PROVED_EXECUTION, KI_REFUTED } ki_rung;
extern const char *const ki_rung_names[]; /* "unproved", "exhaustive", "smt", "execution", "refuted" */

typedef struct ki_verdict {
    ki_rung rung;
    bool arith;         /* both sides are scalar arithmetic */
    bool does;          /* right side is a C function */
    bool narrower;      /* a mutant: it fired only where the rule does, with the same right side */
    bool within;        /* a step of functions, all of which were as near the true values as is promised of them */
    bool blind;         /* on some instances the rule could not be tried */
    uint64_t instances; /* on which the guard held and the rule fired */
    ki_text reason;     /* counterexample, or why it is unproved */
} ki_verdict;

typedef struct ki_prove_opts {
    uint64_t budget;                /* instances a rule and choice of dtypes; 0: default */
    const char *z3;                 /* command; NULL: no smt rung */
    unsigned z3_ms;                 /* per query; 0: default */
    void *user;                     /* for `do` and extern functions; NULL: 64 KiB of zeros */
    const ki_ruleset *const *peers; /* other rule sets; those of the same file may finish a derivation */
    ki_ins_meaning meaning; /* of machine instructions: a rule with INS on its right is proved of what they mean; NULL: it stays unproved */
    const struct kn_uop_s *(*ins)(ki_ir *, const struct kn_uop_s *); /* the same of a node: what a function (do) has made; NULL: that stays unproved */
    unsigned npeers;
    uint64_t *const
        *derived; /* beside peers, NULL or what ki_prove_derive gave: spares a derivation for every step of it */
} ki_prove_opts;

/* Runs the set on each elementwise op it has a rule for. instances[k]: on how many elements rule k had a part in a result
 * that was right; all 0 if one was wrong. False only out of memory. */
bool ki_prove_derive(const ki_ruleset *set, const ki_prove_opts *o, uint64_t *instances);

/* False only out of memory. Free the verdict's reason. */
bool ki_prove_rule(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o, ki_verdict *out);
/* What became of a changed rule. SURVIVES: it holds on all graphs that were made, which is no proof: either the change
 * means nothing, or the prover is blind to it. OPEN: no verdict. */
typedef enum ki_fate { KI_M_REFUTED, KI_M_REFUSED, KI_M_HARMLESS, KI_M_IDLE, KI_M_SURVIVES, KI_M_OPEN, KI_M_FATES } ki_fate;
extern const char *const ki_fate_names[]; /* refuted; refused (does not compile); harmless (proved); idle (never fires) ... */

typedef struct ki_mutant_report {
    const char *change, *text; /* what was changed; the whole rule as it then reads */
    ki_fate fate;
    const ki_verdict *verdict; /* its reason: the counterexample, or the compiler's message */
} ki_mutant_report;

/* Every change a person might make by mistake (mutate.h) to a rule's text, compiled and proved again; of each `every`
 * changes one (0, 1: all), counted from `first`. */
bool ki_prove_mutants(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o, unsigned every,
                      unsigned first, void (*report)(void *user, const ki_mutant_report *r), void *user);
void ki_verdict_free(ki_verdict *v);
/* One JSON object: set, rule, arith, verdict, do, instances, reason. */
void ki_verdict_json(const ki_ruleset *set, const ki_rule *r, const ki_verdict *v, ki_text *out);

#endif
