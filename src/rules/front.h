/* front.h: the front end of the rules language, shared by krc and by the running library. Private to src/rules.
 *
 * text --lex, parse--> ki_ast --compile--> tables of ki_ruleset. Everything lives in the arena of the result. Every
 * function returns false (or NULL) after a failure is recorded with its place; the first failure ends the work. */
#ifndef KI_FRONT_H
#define KI_FRONT_H

#include "base/slots.h"
#include "rules/rules.h"

typedef enum ki_tok {
    KI_TOK_END, KI_TOK_IDENT, KI_TOK_INT, KI_TOK_FLOAT, KI_TOK_STRING,
    KI_TOK_ARROW, KI_TOK_DOTS, KI_TOK_ANDAND, KI_TOK_OROR, KI_TOK_SHL, KI_TOK_SHR, KI_TOK_LE, KI_TOK_GE, KI_TOK_EQ,
    KI_TOK_NE, /* the rest are their own characters */
    KI_TOK_CHAR
} ki_tok;

typedef struct ki_token {
    ki_tok kind;
    char c; /* CHAR */
    uint32_t pos, len;
    int64_t i;
    double f;
} ki_token;

/* The text being read, and where failures go. */
typedef struct ki_reader {
    ki_env *env;
    ki_arena *arena;
    const char *source, *text;
    size_t n, at;
    ki_token tok; /* the current one */
    uint32_t end; /* end of the token before it */
    ki_ins_meaning meaning; /* INS of right sides becomes that; NULL: stays */
} ki_reader;

bool ki_lex(ki_reader *r); /* next token into r->tok */
/* Fails at an offset of the text; always false. */
#define ki_reader_fail(r, err, pos, ...)                                                                               \
    ki_false(ki_fail_at((r)->env, err, (r)->source, (r)->text, (r)->n, pos, __VA_ARGS__))
static inline bool ki_false(int status) {
    (void)status;
    return false;
}
char *ki_reader_copy(ki_reader *r, uint32_t pos, uint32_t len);     /* part of the text, NUL-terminated */
char *ki_reader_string(ki_reader *r, const ki_token *t);            /* a STRING token's content */
uint32_t ki_reader_line(const ki_reader *r, uint32_t pos);

typedef enum ki_akind {
    KI_X_NAME,    /* name */
    KI_X_HASH,    /* #name */
    KI_X_NUMBER,  /* i */
    KI_X_REAL,    /* f */
    KI_X_TRUTH,   /* i */
    KI_X_CALL,    /* name(kids; args) */
    KI_X_OP,      /* infix or prefix algebra: op */
    KI_X_CLASS,   /* {set:name}(kids; args) or infix */
    KI_X_BRACKET, /* [kid] */
    KI_X_BOTH,    /* && */
    KI_X_EITHER,  /* || */
    KI_X_TEXT,    /* "name", an arg */
    KI_X_WILD     /* _ */
} ki_akind;

typedef struct ki_ast ki_ast;
struct ki_ast {
    uint8_t kind;
    bool dots;       /* followed by ... */
    bool divide;     /* OP written `/` */
    uint8_t op;      /* OP */
    uint32_t dtypes; /* constraint, 0 none */
    uint32_t pos;
    uint32_t from, to;   /* all of its text, parentheses, name and constraint with it */
    uint32_t typed, bare; /* from here to `bare` stands the constraint */
    const char *name;  /* NAME HASH CALL, CLASS: the name bound, NULL none */
    const char *label; /* n@( ... ) */
    const char *set;   /* CLASS: text between the braces */
    int64_t i;
    double f;
    ki_ast *kid, *arg; /* lists through next */
    ki_ast *next;
    int var; /* dtype variable (infer.c), -1 none */
    int reg; /* pattern: register */
};

typedef struct ki_attr {
    const char *name, *text;
    uint32_t pos;
    struct ki_attr *next;
} ki_attr;

typedef struct ki_rule_ast {
    uint8_t kind; /* ki_rkind */
    const char *name;
    uint32_t pos, end;
    ki_ast *pattern, *rhs, *guard; /* rhs: list for gradients */
    ki_attr *attr;
    struct ki_rule_ast *next;
} ki_rule_ast;

typedef struct ki_set_ast {
    const char *name;
    uint32_t pos;
    bool pure;
    ki_rule_ast *rule;
    unsigned nrule;
    struct ki_set_ast *next;
} ki_set_ast;

typedef struct ki_file_ast {
    ki_set_ast *set;
    unsigned nset;
    ki_extern *ext;
    unsigned next;
} ki_file_ast;

bool ki_rules_parse(ki_reader *r, ki_file_ast *out);
/* Mask of dtypes by class or dtype name, 0 if unknown. */
uint32_t ki_dtype_class(const char *name);

/* ---- compiling --------------------------------------------------------------------------------------------- */

enum { KI_DR_GIVEN, KI_DR_SRC0, KI_DR_SRC1, KI_DR_SRC2, KI_DR_BOOL, KI_DR_VOID, KI_DR_INDEX, KI_DR_U8, KI_DR_STACK, KI_DR_TUPLE, KI_DR_GETTUPLE };
extern const uint8_t ki_dtype_rule[KI_OP_COUNT];

#define KI_VEC(T)                                                                                                      \
    struct {                                                                                                           \
        T *v;                                                                                                          \
        uint32_t n, cap;                                                                                               \
    }
/* The runs of elements that a table holds once. */
typedef struct ki_runs {
    struct ki_run {
        uint32_t at, n;
    } *run;
    uint32_t cap;
    ki_slots slots;
} ki_runs;
enum { KI_MAX_VARS = 512 };
typedef struct ki_var_info_ { /* dtype variable: union-find */
    int parent, reg;          /* reg: first register of the class, -1 none */
    uint32_t natural, mask;   /* what well-formed nodes allow; with the rule's constraints */
} ki_dvar;

typedef struct ki_compiler {
    ki_reader *r;
    const ki_file_ast *file;
    /* tables of the set being made */
    KI_VEC(ki_rule) rule;
    KI_VEC(ki_pat) pat;
    KI_VEC(ki_rest) rest;
    KI_VEC(ki_rname) rname;
    KI_VEC(char) letters;
    KI_VEC(ki_term) term;
    KI_VEC(uint16_t) kid;
    KI_VEC(ki_argcond) cond;
    KI_VEC(ki_opset) opset;
    KI_VEC(ki_entry) entry;
    KI_VEC(ki_bucket) bucket;
    KI_VEC(uint16_t) list;
    KI_VEC(uint16_t) second;
    uint16_t root[KI_OP_COUNT];
    uint8_t column[KI_OP_COUNT + 1];
    KI_VEC(ki_does) does;
    KI_VEC(ki_number) number;
    /* what may stand once for many */
    struct {
        ki_runs letters, rname, cond, number, kid, term;
    } once;
    /* its wording */
    KI_VEC(ki_written_rule) written;
    KI_VEC(char) wording;
    KI_VEC(uint32_t) bound;
    KI_VEC(ki_written_pat) written_pat;
    KI_VEC(uint32_t) term_pos;
    /* the rule being compiled */
    ki_rule *now;
    const char *name[KI_MAX_NAMES]; /* that its pattern binds */
    const ki_rule_ast *ast;
    ki_dvar var[KI_MAX_VARS];
    int nvar;
    bool mapped; /* inside a mapped term: a rest name is its element */
    bool frozen; /* pattern done: the right side may not narrow it */
    struct {
        const char *name;
        int var;
    } seen[KI_MAX_NAMES * 2]; /* names of the pattern and their dtype variables */
    int nseen;
} ki_compiler;

bool ki_vec_room(void **v, uint32_t n, uint32_t *cap, size_t size);
#define KI_PUSH(c, vec, ...)                                                                                           \
    (ki_vec_room((void **)&(c)->vec.v, (c)->vec.n, &(c)->vec.cap, sizeof *(c)->vec.v)                                  \
         ? ((c)->vec.v[(c)->vec.n] = (__VA_ARGS__), (c)->vec.n++, true)                                                \
         : (ki_fail((c)->r->env, KI_E_NOMEM), false))
/* What was pushed from `from` on, once: *at is where it stands. False out of memory. */
#define KI_ONCE(c, vec, from, at)                                                                                      \
    ki_once((c), &(c)->once.vec, (c)->vec.v, &(c)->vec.n, sizeof *(c)->vec.v, from, at)
bool ki_once(ki_compiler *c, ki_runs *r, const void *v, uint32_t *n, size_t size, uint32_t from, uint32_t *at);
#define ki_compile_fail(c, err, pos, ...) ki_reader_fail((c)->r, err, pos, __VA_ARGS__)
static inline uint32_t ki_rule_pos(const ki_compiler *c, const ki_rule *r) { return c->written.v[r - c->rule.v].pos; }
static inline const char *ki_rule_called(const ki_compiler *c, const ki_rule *r) { return c->letters.v + r->name; }

/* infer.c */
bool ki_infer_rule(ki_compiler *c);
int ki_var_root(ki_compiler *c, int v);
/* meant.c: each INS of the right side (inferred once) becomes its meaning; to be inferred again. */
bool ki_mean_rhs(ki_compiler *c, ki_ast **rhs);
/* pattern.c */
bool ki_compile_pattern(ki_compiler *c, ki_ast *pattern);
int ki_name_find(const ki_compiler *c, const char *name); /* number in the rule, -1 */
/* A text among the wording's letters. */
bool ki_worded(ki_compiler *c, const char *s, size_t n, uint32_t *at);
/* The number of a literal's value. */
bool ki_number_of(ki_compiler *c, ki_number x, uint32_t pos, uint16_t *at);
/* Where a rule's name or a text stands in the set's letters. */
bool ki_letters_of(ki_compiler *c, const char *text, uint32_t pos, uint16_t *at);
bool ki_opset_of(ki_compiler *c, const ki_ast *a, ki_opset *out);
const ki_field *ki_arg_fields(kn_op op); /* KI_F_COUNT-terminated */
/* terms.c */
bool ki_push_term(ki_compiler *c, uint32_t pos, ki_term t, uint16_t *at);
bool ki_compile_rhs(ki_compiler *c, ki_ast *rhs);
bool ki_compile_guard(ki_compiler *c, ki_ast *guard);
/* check.c */
bool ki_check_order(ki_compiler *c);
bool ki_check_set(ki_compiler *c); /* duplicates, shadows */
/* Whether every node that Q in variant qv matches is matched by P in variant pv, guards apart. map: P's registers to Q's. */
bool ki_pattern_covers(const ki_compiler *c, const ki_rule *p, uint32_t pv, const ki_rule *q, uint32_t qv, uint8_t *map);
bool ki_rule_may_fail(const ki_compiler *c, const ki_rule *r); /* matched, guard holds, and yet may not fire */
/* dispatch.c */
bool ki_compile_dispatch(ki_compiler *c);
/* compile.c */
bool ki_rules_compile_meant(ki_env *env, const char *source, const char *text, size_t n, ki_ins_meaning meaning, ki_rules *out);
bool ki_compile_file(ki_reader *r, const ki_file_ast *file, ki_rules *out);

#endif
