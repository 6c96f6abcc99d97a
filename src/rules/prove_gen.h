/* prove_gen.h: random graphs that a pattern is likely to match. Private to the prover. */
#ifndef KI_PROVE_GEN_H
#define KI_PROVE_GEN_H

#include "rules/rules.h"

typedef struct ki_gen {
    ki_ir *ir;
    const ki_ruleset *set;
    const ki_rule *rule;
    uint64_t state;
    uint8_t dtype[KI_MAX_REG]; /* by first register of a class */
    kn_uop reg[KI_MAX_REG];
    kn_uop range[4];           /* loops around the pattern */
    unsigned nrange, serial;
    kn_uop cond; /* a condition made before: reads may stand under it */
    bool smooth; /* f64 tensors without loops around them: for gradients */
    bool ties;   /* data with equal and zero elements */
    bool large;  /* tensors of some hundred thousand elements */
    const char *why;           /* what it cannot make; NULL: bad luck, try again */
} ki_gen;

/* A root, or NULL. Each call starts from g->state. */
kn_uop ki_gen_root(ki_gen *g);

#endif
