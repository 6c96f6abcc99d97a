/* prove_impl.h: what the rungs of the prover share. Private. */
#ifndef KI_PROVE_IMPL_H
#define KI_PROVE_IMPL_H

#include "rules/prove_eval.h"

/* A rule taken apart once: what is enumerated, what is computed. */
typedef struct ki_proof {
    const ki_ruleset *set;
    const ki_rule *rule;
    const ki_term *term;
    uint16_t guard;
    bool mutant;      /* a changed rule */
    bool fused;       /* of a set that makes instructions: what runs them has mulacc as one */
    const ki_ruleset *was; /* of a mutant with the rule's own right side: the rule */
    uint32_t was_rule;
    bool arith;       /* both sides are scalar arithmetic */
    bool scalar;      /* the exhaustive rung applies (opaque nodes may stand in for values) */
    bool opaque;      /* some pattern node is taken as any value: a counterexample may not be one */
    bool real_dtypes; /* converts or asks for dtypes: no small stand-ins */
    bool scaled;      /* converts integers only, and no constant depends on the width: scaled-down words do */
    bool exact_reals, rough_reals; /* @fp rules: rationals, or doubles with a tolerance */
    bool any_bounds, rhs_bounds;
    bool same;        /* both sides are the same expression */
    bool parametric[KI_MAX_REG]; /* by class: its values are only passed around, so a few stand for all */
    uint8_t kind[KI_MAX_REG], cls[KI_MAX_REG];
    uint32_t mask[KI_MAX_REG];
    bool live[KI_MAX_REG], leaf[KI_MAX_REG], bounds[KI_MAX_REG], chosen[KI_MAX_REG];
    uint8_t nkid[KI_MAX_REG], kid[KI_MAX_REG][4];
    uint8_t choice[KI_MAX_REG][KI_OP_COUNT], nchoice[KI_MAX_REG];
} ki_proof;

void ki_proof_make(ki_proof *p, const ki_ruleset *set, const ki_rule *rule, const ki_term *term, uint16_t guard);
/* SMALL: every value of small domains. WIDE: sampled larger ones. EDGES: words of real width about the constants of a guard, in all
 * intervals between them. ROOM: whether an index of the right side can leave 64
 * bits where those of the left are addresses (constants up to 2^20, others up to 2^40) and the guard holds. */
typedef enum ki_pass { KI_PASS_SMALL, KI_PASS_WIDE, KI_PASS_EDGES, KI_PASS_ROOM } ki_pass;
bool ki_prove_enumerate(const ki_proof *p, uint64_t budget, ki_pass pass, ki_verdict *out, bool *sampled, bool *vain);
bool ki_prove_execute(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out);
bool ki_prove_apart(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out); /* the same, in a process of its own */
/* PROVED_SMT, REFUTED, or UNPROVED: the solver cannot say, or is not there. */
ki_rung ki_prove_smt(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out);
/* The set's rule alone (steps of a derivation: with their set), its text changed to `changed` ("ruleset t NAME : ...", NULL:
 * as it is), INS as what they mean. False: it does not compile, or out of memory; env says. */
/* Does any rule of it make a machine instruction? */
bool ki_makes_ins(const ki_ruleset *set);
bool ki_proof_load(ki_env *env, const ki_ruleset *set, uint32_t rule, const char *changed, ki_ins_meaning meaning,
                   ki_rules *own, uint32_t *at);
/* All rungs on a rule taken apart. False only out of memory. */
bool ki_prove_taken(ki_env *env, const ki_proof *p, const ki_prove_opts *o, ki_verdict *out);

#endif
