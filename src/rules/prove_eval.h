/* prove_eval.h: rules evaluated over small domains. Private to the prover. */
#ifndef KI_PROVE_EVAL_H
#define KI_PROVE_EVAL_H

#include "rules/prove.h"

typedef enum ki_dkind { KI_D_BOOL, KI_D_WORD, KI_D_INDEX, KI_D_FLOAT, KI_D_RATIO, KI_D_REAL } ki_dkind;
enum { KI_FAR_INDICES = 8, KI_FAR_CONSTANTS = 6 };
/* What values of a dtype class are for one check. FLOAT: bits of `dtype`. RATIO: exact n/d. REAL: double, compared
 * with a tolerance. `sampled`: not all values are tried. */
typedef struct ki_domain {
    uint8_t kind, width, is_signed, dtype;
    int32_t reach; /* INDEX: -reach..reach; FLOAT, WORD sampled, RATIO, REAL: how many values */
    bool sampled, room; /* room: INDEX, few and far apart */
} ki_domain;

typedef enum ki_pkind_ { KI_PV_NONE, KI_PV_TYPED, KI_PV_INT, KI_PV_REAL, KI_PV_BOOL, KI_PV_ENUM, KI_PV_FREE, KI_PV_POISON } ki_pvkind;
/* POISON: an index that must not be used, and all that is computed from it. */
typedef struct ki_pval {
    uint8_t kind;
    ki_domain d; /* TYPED */
    union {
        uint64_t bits;
        ki_int128 i; /* INT, BOOL, ENUM; RATIO: numerator */
        double f;    /* REAL, and TYPED of domain REAL */
    };
    ki_int128 den;
} ki_pval;

typedef struct ki_theorem { /* one rule under one choice of domains and ops */
    const ki_ruleset *set;
    const ki_rule *rule;
    const ki_term *term; /* the set's, or a mutated copy */
    uint16_t guard;      /* of the rule, or changed */
    ki_domain dom[KI_MAX_REG];
    uint8_t op[KI_MAX_REG];       /* NODE with a class: the op chosen */
    bool leaf[KI_MAX_REG];        /* the value is enumerated, not computed */
    bool scaled;                  /* words of 8, 16, 32, 64 bits have 2, 3, 4, 5 */
    bool bounds[KI_MAX_REG];      /* lo or hi of it is asked */
    uint8_t nkid[KI_MAX_REG], kid[KI_MAX_REG][4];
    ki_pval value[KI_MAX_REG];    /* leaves */
    ki_pval lo[KI_MAX_REG], hi[KI_MAX_REG]; /* kind NONE: unbounded */
    uint32_t chance, nchance;     /* outcomes of what cannot be computed here, and how many were asked for */
    bool saw_nan, saw_inf;
    bool overflowed;              /* an index node of the right side left 64 bits */
    unsigned bracket;             /* inside [...], where that means no match */
    bool unsupported;             /* something has no meaning in these domains */
    double scale;                 /* REAL: largest magnitude met */
} ki_theorem;

/* The word that stands for an integer dtype where widths are scaled. */
static inline ki_domain ki_scaled_word(kn_dtype t) {
    unsigned bits = ki_dtypes[t].bits, width = bits == 8 ? 2 : bits == 16 ? 3 : bits == 32 ? 4 : 5;
    return (ki_domain){.kind = KI_D_WORD, .width = (uint8_t)width, .is_signed = ki_is_sint(t), .dtype = (uint8_t)t};
}
uint32_t ki_domain_size(const ki_domain *d);
ki_pval ki_domain_value(const ki_domain *d, uint32_t k);
bool ki_pval_less(const ki_pval *a, const ki_pval *b);
void ki_pval_print(const ki_pval *v, ki_text *out);
/* Value of register reg, of the right side (as the root's domain), of the guard (1, 0, -1 undefined). */
ki_pval ki_theorem_left(ki_theorem *t, unsigned reg);
ki_pval ki_theorem_right(ki_theorem *t);
int ki_theorem_guard(ki_theorem *t);
ki_pval ki_theorem_term(ki_theorem *t, unsigned term);
bool ki_theorem_equal(const ki_theorem *t, const ki_pval *a, const ki_pval *b);
static inline unsigned ki_canonical(const ki_theorem *t, unsigned reg) {
    uint8_t same = t->set->pat[t->rule->pat + reg].same;
    return same == KI_NOREG ? reg : same;
}

#endif
