/* prove_smt.h: what the rung by SMT says a value is. Private to prove_smt.c and smt_float.c. */
#ifndef KI_PROVE_SMT_H
#define KI_PROVE_SMT_H

#include "rules/prove_impl.h"

enum { KI_SMT_CHOICES = 96 };
/* Casts to integers are guarded, so it does not matter what they are out of range; open functions would. */
#define KI_SMT_PRELUDE "(set-option :rewriter.hi_fp_unspecified true)\n"
/* How floats are asked for. */
#define KI_SMT_CIRCUITS "(check-sat-using (then simplify fpa2bv simplify solve-eqs simplify bit-blast sat))"

/* What a piece of SMT text means: a dtype's value, or a number of a guard. A float is its bits, its number, or both: a
 * value that was read or moved has bits; what was computed is a number, whose bits are open where it is NaN. */
typedef enum ki_smt_sort { KI_S_BOOL, KI_S_WORD, KI_S_INT, KI_S_WIDE, KI_S_FLOAT } ki_smt_sort;
typedef struct ki_smt_expr {
    char *s;  /* of a float: a bit-vector */
    char *fp; /* of a float: its number; of f8e4m3 in the format of 5 bits of exponent and 4 of significand */
    ki_smt_sort sort;
    unsigned width;
    bool is_signed;
    bool carried;   /* a NaN would have bits that were carried along: the solver does not know them */
    kn_dtype dtype; /* of a float */
} ki_smt_expr;

typedef struct ki_smt {
    const ki_proof *p;
    ki_arena arena;
    ki_text out, decl;
    kn_dtype dtype[KI_MAX_REG]; /* by first register of a class */
    uint8_t op[KI_MAX_REG];
    unsigned wide, fresh;             /* bits of guard numbers, 0: Int; truths left open */
    unsigned ms;                      /* for a question on words; floats get more */
    unsigned named;                   /* terms with a name of their own */
    bool floats;                      /* some value is one */
    bool canonical;                   /* a computed NaN is the one the interpreter makes, not any */
    size_t start[KI_SMT_CHOICES + 1]; /* of each script in out */
} ki_smt;

static inline bool ki_smt_said(ki_smt_expr e) { return e.s || e.fp; }

KI_PRINTF(2, 3) char *ki_smt_format(ki_smt *m, const char *fmt, ...);
/* f with its two %s replaced, in order; f is no constant. */
char *ki_smt_fill(ki_smt *m, const char *f, const char *a, const char *b);
/* A name for a term of the sort, so that it is written once. */
char *ki_smt_name(ki_smt *m, const char *sort, char *term);

ki_smt_expr ki_smt_float_number(ki_smt *m, kn_dtype t, double v);
char *ki_smt_bits(ki_smt *m, ki_smt_expr e);
char *ki_smt_fp(ki_smt *m, ki_smt_expr e);
/* Neither text: the op has no meaning that can be said. */
ki_smt_expr ki_smt_on_floats(ki_smt *m, kn_op op, const ki_smt_expr *v, unsigned n);
/* From a float, to one (bool as words of SMT's Bool). */
ki_smt_expr ki_smt_from_float(ki_smt *m, ki_smt_expr v, ki_smt_expr to);
ki_smt_expr ki_smt_to_float(ki_smt *m, ki_smt_expr v, kn_dtype t);

#endif
