/* rules.h: rule sets in memory, matching, rewriting, verifying, gradients. The language is in docs/rules.md.
 *
 * A rule set is constant data: krc prints it as C tables at build time, ki_rules_load makes the same tables at run
 * time. Nothing in it is written after that; counters, memos and traces belong to the caller.
 *
 * How a rule is stored. Its pattern is a list of `ki_pat`, each of which binds one register: register k is source
 * `src` of register `parent`, register 0 is the root. A commutative node gives its two children a `swap` bit; a
 * variant of the rule is a mask of these bits, so commuted forms share all tables and differ in the dispatch entry
 * alone. Guards, constant expressions and right sides are `ki_term` trees.
 *
 * Dispatch: root op -> op of the root's first source -> entries in file order; each entry is a rule and a variant. */
#ifndef KI_RULES_H
#define KI_RULES_H

#include "ir/uop.h"

enum { KI_MAX_REG = 48, KI_MAX_NAMES = 48, KI_MAX_RESTS = 8, KI_MAX_ARGS = 7 };

typedef struct ki_match ki_match;

/* ---- values of names and expressions ----------------------------------------------------------------------- */

typedef enum ki_vkind {
    KI_V_NONE,   /* undefined: a guard that needs it does not hold */
    KI_V_INT,    /* mathematical integer */
    KI_V_REAL,   /* double, in guards */
    KI_V_BOOL,   /* truth */
    KI_V_SCALAR, /* constant of a dtype */
    KI_V_NODE,
    KI_V_NODES,  /* a rest */
    KI_V_INTS,   /* interned list of integers */
    KI_V_OP,
    KI_V_DTYPE,
    KI_V_AXIS,
    KI_V_SPACE,
    KI_V_DEVICE,
    KI_V_STR,
    KI_V_WHOLE /* the whole arg of a node */
} ki_vkind;

typedef struct ki_val {
    uint8_t kind;
    uint8_t dtype; /* SCALAR; WHOLE: dtype of the node it was taken from */
    uint8_t op;    /* WHOLE: op of that node */
    uint32_t n;    /* NODES */
    union {
        ki_int128 i;
        double f;
        uint64_t bits;
        kn_uop node;
        const kn_uop *nodes;
        const ki_ints *ints;
        const ki_bytes *str;
        kn_arg arg;
    };
} ki_val;

/* Host functions a rule may name. A predicate sets *out to a BOOL. False: undefined, the rule does not match.
 * In a mapped rest `m->at` is the position. */
typedef bool (*ki_rule_fn)(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
/* Right side of last resort. NULL: no match (or a failure recorded in env). */
typedef kn_uop (*ki_rule_do)(ki_match *m);

/* ---- tables ------------------------------------------------------------------------------------------------ */

typedef enum ki_pkind { KI_P_ANY, KI_P_NODE, KI_P_CONST, KI_P_LIT } ki_pkind;
enum { KI_PF_TAIL = 1, KI_PF_REST = 2, KI_PF_FREE = 4 /* any sources: call form without parentheses */ };
#define KI_NOREG 255

typedef struct ki_pat { /* 16 bytes: there are four thousand of them in the library */
    uint8_t kind, parent, src, swap; /* src from the end with KI_PF_TAIL; swap: bit number, KI_NOREG none */
    uint8_t same;                    /* register it must equal, KI_NOREG none */
    uint8_t op;                      /* NODE: the op, KI_OP_COUNT: one of opset */
    uint8_t nsrc, flags;             /* sources the pattern lists, rests apart */
    unsigned dtypes : 24;            /* mask, 0: not checked (implied) */
    unsigned narg : 8;               /* conditions on the arg, from cond[arg] on */
    uint16_t arg;
    union {
        uint16_t opset; /* NODE */
        uint16_t term;  /* LIT: the literal */
    };
} ki_pat;
_Static_assert(sizeof(ki_pat) == 16 && KI_DTYPE_COUNT <= 24, "of two words");

typedef struct ki_argcond {
    uint8_t field;     /* ki_field */
    uint8_t reg, like; /* like: the register whose same field it must equal, KI_NOREG: value */
    uint8_t like_field;
    uint8_t none, text; /* the arg must be absent; must read so */
    uint16_t at;        /* the value among the set's numbers, the text among its letters */
} ki_argcond;

typedef struct ki_rest {
    uint8_t reg, from, tail; /* sources from .. nsrc - tail of reg */
    uint8_t same;            /* rest it must equal, KI_NOREG none */
    uint8_t konst;
    uint32_t dtypes;
} ki_rest;

/* Fields of args by kind, in the order the language lists them; WHOLE is all of it. */
typedef enum ki_field {
    KI_F_WHOLE, KI_F_INT, KI_F_INTS, KI_F_REDUCE_OP, KI_F_REDUCE_AXES, KI_F_RANGE_ID, KI_F_RANGE_AXIS, KI_F_DTYPE,
    KI_F_SLOT, KI_F_SPACE, KI_F_DEVICE, KI_F_BUFFER_ID, KI_F_BUFFER_SIZE, KI_F_STR, KI_F_KERNEL, KI_F_COUNT
} ki_field;

typedef enum ki_nkind { KI_N_NODE, KI_N_CONST, KI_N_REST, KI_N_ARG, KI_N_OP, KI_N_GRAD } ki_nkind;
typedef struct ki_rname {
    uint8_t kind, reg, field; /* REST: reg is the rest's number */
} ki_rname;

typedef enum ki_tkind {
    KI_T_NAME,   /* x: name */
    KI_T_INT,    /* at */
    KI_T_FLOAT,  /* at */
    KI_T_BOOL,   /* at */
    KI_T_ENUM,   /* x: ki_vkind, which */
    KI_T_OP,     /* op, kids: sources, then nargs args */
    KI_T_OPNAME, /* the same, op is name x */
    KI_T_EXPR,   /* [kid] */
    KI_T_REST,   /* x: rest name spliced */
    KI_T_MAP,    /* kid once for each element of rest name x */
    KI_T_CALL,   /* x: extern number */
    KI_T_BUILTIN,/* x: ki_builtin */
    KI_T_FOLD,   /* kids: op, operands */
    KI_T_AND,
    KI_T_OR,
    KI_T_TEXT,   /* at, an arg */
    KI_T_NOTHING /* _ : no gradient; `none`: no arg */
} ki_tkind;

typedef struct ki_term { /* 8 bytes, and equal ones are one: thirteen thousand are written in the library */
    unsigned kind : 5, narg : 3;
    unsigned nkid : 7, flags : 1; /* kids: nkid sources or operands, then narg args */
    unsigned dtype : 8;           /* fixed dtype, KI_DTYPE_COUNT: unknown */
    unsigned dtype_reg : 8;       /* literal, EXPR: register whose dtype it takes, KI_NOREG: fixed */
    uint8_t op, x;
    union {
        uint16_t kid;
        uint16_t at; /* INT, FLOAT, BOOL: in the set's numbers; TEXT: in its letters */
        int16_t which;
    };
} ki_term;
_Static_assert(sizeof(ki_term) == 8, "a word");
enum { KI_TF_DIV = 1 /* `/`: idiv or div by the operands' dtype */ };

#define KI_BUILTINS(X)                                                                                                 \
    X(lo, "n", "least value of a node or constant")                                                                    \
    X(hi, "n", "greatest value")                                                                                       \
    X(bounded, "n", "whether lo and hi are known")                                                                     \
    X(numel, "n", "number of elements")                                                                                \
    X(rank, "n", "number of axes")                                                                                     \
    X(dim, "ni", "size of an axis")                                                                                    \
    X(count, "r", "length of a rest")                                                                                  \
    X(nsrc, "n", "number of sources")                                                                                  \
    X(dtype, "n", "dtype of a node or constant")                                                                       \
    X(op, "n", "op of a node")                                                                                         \
    X(width, "n", "bits of its dtype")                                                                                 \
    X(least, "n", "least value of its dtype")                                                                          \
    X(most, "n", "greatest value of its dtype")                                                                        \
    X(before, "nn", "canonical operand order: a stands left of b")                                                     \
    X(sameshape, "nn", "equal shapes")                                                                                 \
    X(symbolic, "n", "some dimension is symbolic")                                                                     \
    X(shape, "n", "the shape as a stack of index scalars")                                                             \
    X(isconst, "n", "a constant, broadcast or not")                                                                    \
    X(isnan, "n", "a constant that is NaN")                                                                            \
    X(abs, "i", "absolute value")                                                                                      \
    X(min, "ii", "lesser of two numbers")                                                                              \
    X(gcd, "ii", "greatest common divisor")                                                                            \
    X(at, "", "position in a mapped rest")
typedef enum ki_builtin {
#define X(name, types, doc) KI_B_##name,
    KI_BUILTINS(X)
#undef X
        KI_B_COUNT
} ki_builtin;

typedef struct ki_extern {
    const char *name, *symbol;
    const char *types; /* one letter an argument: i int, n node, r nodes, v ints, c const, a anything */
    char result;       /* b pred, i n v c */
    ki_rule_fn fn;
    const char *smt; /* NULL none */
} ki_extern;

enum { KI_FP_NSZ = 1, KI_FP_REASSOC = 2, KI_FP_NNAN = 4, KI_FP_NINF = 8, KI_FP_CONTRACT = 16, KI_FP_ARCP = 32, KI_FP_AFN = 64 };
enum { KI_RF_COMMUTED = 1, KI_RF_RETYPE = 2, KI_RF_ORDERED = 4, KI_RF_LATE = 8 /* some arg equals that of a later node */ };
typedef enum ki_rkind { KI_R_REWRITE, KI_R_ACCEPT, KI_R_GRAD } ki_rkind;

typedef struct ki_rule { /* 24 bytes: there are twelve hundred of them in the library */
    unsigned line : 24, kind : 8;
    uint16_t name; /* in the set's letters: a pointer would have to be relocated */
    uint16_t pat, rest, rname;
    uint16_t guard; /* term, 0: none */
    uint16_t rhs;   /* term, 0: does or accept; GRAD: index into kid of ngrad terms */
    uint8_t flags, fp;
    uint8_t npat, nrest, nname, ngrad;
    uint8_t nswap;
    uint8_t does; /* its right side is that C function of the set; 0: none */
} ki_rule;
_Static_assert(sizeof(ki_rule) == 24, "of three words");

typedef struct ki_does {
    const char *symbol;
    ki_rule_do fn;
} ki_does;

typedef union ki_number {
    int64_t i;
    double f;
} ki_number;

/* A set as it was written: what people and the prover read. In the library itself only specs have theirs. */
typedef struct ki_written_rule {
    uint32_t text, pos;    /* the rule as written, in letters; where it stands in the source */
    uint32_t opaque, ends; /* the reasons, in letters; 0 none */
    uint32_t names;        /* the first of its names: they are numbered as its ki_rname */
} ki_written_rule;
typedef struct ki_written_pat {
    uint32_t pos;
    unsigned mask : 24; /* dtypes its class admits */
    unsigned like : 8;  /* first register of that class */
} ki_written_pat;
typedef struct ki_wording {
    const char *letters; /* each text with its NUL; "" comes first */
    uint32_t nletter, nname;
    const ki_written_rule *rule;
    const uint32_t *name; /* in letters */
    const ki_written_pat *pat; /* of each */
    const uint32_t *term;      /* where each stands in the source: of a spec */
} ki_wording;

typedef struct ki_opset {
    uint64_t bits[2];
} ki_opset;
static inline bool ki_opset_has(const ki_opset *s, unsigned op) { return s->bits[op >> 6] >> (op & 63) & 1; }

typedef struct ki_entry { /* one rule in one variant */
    uint16_t rule;
    uint16_t src1; /* ops the second source may have; 0: any */
    unsigned dtypes : 24; /* of the root; 0: any */
    unsigned variant : 8;
} ki_entry;
typedef struct ki_bucket {
    uint16_t first, n;
} ki_bucket;

typedef struct ki_ruleset {
    const char *name, *source; /* file */
    bool pure, spec, grad;
    uint32_t nrule, npat, nrest, nname, nterm, nkid, ncond, nopset, nextern, nentry, nbucket, nlist, nletter, ndoes;
    uint32_t nnumber, nsecond;
    const ki_wording *wording; /* of what was loaded at run time, and of specs; else NULL: ki_wording_of */
    const ki_rule *rule;
    const ki_does *does; /* does[0] is none */
    const ki_pat *pat;
    const ki_rest *rest;
    const ki_rname *rname;
    const char *letters; /* names of rules and texts, each once and with its NUL; "" comes first */
    const ki_number *number; /* of literals */
    const ki_term *term; /* term[0] unused */
    const uint16_t *kid;
    const ki_argcond *cond;
    const ki_opset *opset; /* opset[0] is all */
    const ki_extern *ext;
    const ki_entry *entry;
    const ki_bucket *bucket;  /* bucket[0] is empty */
    const uint16_t *list;     /* entry numbers */
    const uint16_t *root;     /* by root op: where its row begins in second, 0 none */
    const uint8_t *column;    /* by op of source 0 (ops: no source): its place in a row */
    const uint16_t *second;   /* bucket */
} ki_ruleset;

static inline const char *ki_rule_name(const ki_ruleset *s, const ki_rule *r) { return s->letters + r->name; }
/* The C function that is its right side, NULL none. */
static inline const char *ki_rule_symbol(const ki_ruleset *s, const ki_rule *r) { return s->does[r->does].symbol; }

/* A set's wording wherever it is: for the command and the prover, which are in no shared library. */
const ki_wording *ki_wording_of(const ki_ruleset *s);
static inline const char *ki_rule_text(const ki_ruleset *s, const ki_rule *r) {
    const ki_wording *w = ki_wording_of(s);
    return w->letters + w->rule[r - s->rule].text;
}
/* Of a rule's name: what it is called. */
static inline const char *ki_name_text(const ki_ruleset *s, const ki_rule *r, unsigned name) {
    const ki_wording *w = ki_wording_of(s);
    return w->letters + w->name[w->rule[r - s->rule].names + name];
}
static inline const ki_written_pat *ki_written_pats(const ki_ruleset *s, const ki_rule *r) {
    return ki_wording_of(s)->pat + r->pat;
}

static inline int64_t ki_term_int(const ki_ruleset *s, const ki_term *t) { return s->number[t->at].i; }
static inline double ki_term_real(const ki_ruleset *s, const ki_term *t) { return s->number[t->at].f; }

/* Of a term that has none, nothing to be read. */
static inline const uint16_t *ki_term_kids(const ki_ruleset *s, const ki_term *t) {
    return &s->kid[t->nkid || t->narg ? t->kid : 0];
}

/* ---- matching ---------------------------------------------------------------------------------------------- */

struct ki_match {
    ki_ir *ir;
    void *user;
    kn_uop root;
    const ki_ruleset *set;
    const ki_rule *rule;
    uint32_t variant;
    kn_uop reg[KI_MAX_REG];
    kn_uop grad;    /* GRAD: the incoming gradient */
    kn_uop *out;    /* GRAD by `do`: one result a source, NULL none */
    const ki_extern *ext; /* the host function being called */
    uint32_t at;    /* position in a mapped rest */
    uint8_t mapped; /* a mapped rest is being built */
    uint16_t depth; /* how far the last failed attempt got: patterns, then the guard */
    uint16_t guard_term; /* the condition last looked at */
};

/* Tries one rule in one variant on root, guard included. */
bool ki_match_rule(ki_match *m, const ki_ruleset *set, uint32_t rule, uint32_t variant, kn_uop root);
/* Builds the right side for a match. NULL: no match after all (constant arithmetic), or a failure in env. */
kn_uop ki_match_build(ki_match *m);
/* The same for one term of it (gradients, tests). */
kn_uop ki_build_term(ki_match *m, uint16_t term);
/* Value of a guard: 1 holds, 0 does not, -1 undefined. */
int ki_guard(ki_match *m, uint16_t term);

/* For `do` functions: names in order of first appearance. */
kn_uop ki_match_node(const ki_match *m, unsigned name);
const kn_uop *ki_match_rest(const ki_match *m, unsigned name, uint32_t *n);
ki_val ki_match_val(const ki_match *m, unsigned name);

/* The CONST under RESHAPE and EXPAND, NULL if it is no broadcast constant. */
static inline kn_uop ki_peel_const(kn_uop u) {
    while (u->op == KN_EXPAND || u->op == KN_RESHAPE) u = u->src[0];
    return u->op == KN_CONST ? u : NULL;
}

/* ---- rewriting --------------------------------------------------------------------------------------------- */

typedef enum ki_driver { KI_FIXPOINT, KI_TOPDOWN, KI_WALK } ki_driver;

/* Normal forms kept across calls; a caller's own, one per store, rule sets and options. Only pure sets are kept.
 * ki_memo_cut before ki_ir_drop to a mark of n nodes; ki_memo_clear before ki_ir_collect. */
void ki_memo_clear(ki_memo *m);
void ki_memo_cut(ki_memo *m, uint32_t n);
void ki_memo_free(ki_memo *m);

typedef struct ki_rule_count {
    uint64_t attempts, hits;
} ki_rule_count;
/* Counters, made on demand, one block a rule set. */
typedef struct ki_stats {
    const ki_ruleset **set;
    ki_rule_count **count; /* count[i][rule] */
    uint32_t n, cap;
} ki_stats;
ki_rule_count *ki_stats_for(ki_stats *s, const ki_ruleset *set); /* NULL out of memory */
void ki_stats_free(ki_stats *s);

/* Which rewrite made a node; by id, of the node with this fingerprint (ids are used again after a drop). */
typedef struct ki_origin {
    const ki_ruleset *set;
    const ki_rule *rule;
    uint32_t before, print;
} ki_origin;
typedef struct ki_origins {
    ki_origin *by;
    uint32_t cap;
} ki_origins;
void ki_origins_free(ki_origins *o);

typedef struct ki_rewrite_opts {
    const ki_ruleset *const *sets;
    unsigned nsets;
    ki_driver driver;
    unsigned fp;     /* KI_FP_ flags the caller allows */
    bool closed;     /* do not enter the body (source 0) of FUNCTION and CALL */
    uint32_t floor;  /* nodes with ids up to this stay as they are */
    bool (*stays)(const void *of, kn_uop u); /* such a node does, and what is only below it; NULL: none */
    const void *of;
    uint64_t budget; /* rules that may fire; 0: by the size of the graph */
    void *user;      /* for `do` and extern functions: m->user */
    ki_memo *memo;
    ki_stats *stats;
    ki_origins *origins;
    void (*trace)(void *trace_user, const ki_ruleset *set, const ki_rule *rule, kn_uop before, kn_uop after);
    void *trace_user;
} ki_rewrite_opts;

/* root rewritten; root itself if nothing changed; NULL after a failure in env. */
kn_uop ki_rewrite(ki_ir *ir, kn_uop root, const ki_rewrite_opts *opts);
/* One rule set, bottom-up to a fixed point. */
kn_uop ki_simplify_with(ki_ir *ir, kn_uop root, const ki_ruleset *set, ki_memo *memo);
/* First rule that matches root itself, applied once; NULL if none (env clear) or failed (env set). */
kn_uop ki_rewrite_one(ki_ir *ir, kn_uop root, const ki_rewrite_opts *opts, const ki_rule **fired);

/* Gradients: out[k] is that of root's source k under incoming gradient g, NULL for none. 1 found, 0 no rule, -1 failed. */
int ki_grad_rules(ki_ir *ir, const ki_ruleset *set, kn_uop root, kn_uop g, kn_uop *out, void *user);

/* ---- specs ------------------------------------------------------------------------------------------------- */

/* Every node reachable from root is matched by an accept rule of one of the specs. Otherwise the failure names the
 * node, its sources, the nearest rule and, given origins, the rewrite that made it. `closed` as in rewriting. */
bool ki_verify(ki_ir *ir, kn_uop root, const ki_ruleset *const *spec, unsigned nspec, bool closed,
               const ki_origins *origins, const char *where);

/* ---- loading ----------------------------------------------------------------------------------------------- */

typedef struct ki_callback { /* a host function by the symbol the text names */
    const char *symbol;
    ki_rule_fn fn; /* one of the two */
    ki_rule_do run;
} ki_callback;

/* Rule sets of one text; all memory in `arena`. */
typedef struct ki_rules {
    ki_arena arena;
    ki_ruleset *set;
    unsigned nset;
} ki_rules;
/* callback NULL-terminated or NULL: unknown symbols are then errors. Fails with a place and a caret. */
bool ki_rules_load(ki_env *env, const char *source, const char *text, size_t n, const ki_callback *callback, ki_rules *out);
/* What a machine instruction means: `name : tuple(sources) => expression` into out, for lanes of that dtype where the row knows
 * no width (KI_DTYPE_COUNT: as the row has it); *result is the dtype of the expression. False: it has no meaning. */
typedef bool (*ki_ins_meaning)(const char *row, kn_dtype lanes, ki_text *out, kn_dtype *result);
/* As ki_rules_load; each INS of a right side is replaced by what it means (the prover's reading). */
bool ki_rules_load_meant(ki_env *env, const char *source, const char *text, size_t n, const ki_callback *callback,
                         ki_ins_meaning meaning, ki_rules *out);
/* For krc: symbols stay names. */
bool ki_rules_compile(ki_env *env, const char *source, const char *text, size_t n, ki_rules *out);
void ki_rules_free(ki_rules *r);

/* Helpers any rule text may name as extern without a callback (pow2, log2, ...); NULL if unknown. */
ki_rule_fn ki_rule_helper(const char *symbol);

#endif
