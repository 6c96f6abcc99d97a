/* parse.h: what the printer and the parser of the text form share. Private to src/ir.
 *
 * docs/text.md is the grammar. Both sides use the tables and the helpers declared here, so that what is printed
 * is what is read: an operand's expected dtype (`ki_expects`), numbers, names of enumerated args. */
#ifndef KI_PARSE_H
#define KI_PARSE_H

#include "ir/program.h"

#define KI_TEXT_VERSION 1

/* ---- shared tables (program.c) ------------------------------------------------------------------------------ */

extern const char *const ki_space_names[3];              /* "GLOBAL", ... */
extern const char *const ki_optop_names[KI_OPT_COUNT];   /* "split", ... */
/* True where the dtype is part of the node's key (ops.def: GIVEN) and the text must state it. */
bool ki_dtype_given(kn_op op);

/* What a literal at a place is taken for when it has no suffix. */
typedef enum ki_expect {
    KI_X_NONE,  /* nothing: a suffix is needed */
    KI_X_INDEX, /* dtype index */
    KI_X_SHAPE, /* a STACK of index scalars, which may stand inline as (4, %n) */
    KI_X_GROUP  /* the dtype of the first operand of the group that has one */
} ki_expect;
ki_expect ki_expects(kn_op op, uint32_t i);

/* Nearest of n names by edits, NULL if none is near. */
const char *ki_nearest(const char *s, size_t len, const char *(*name)(size_t), size_t n);

/* ---- numbers (parse_num.c) ---------------------------------------------------------------------------------- */

/* A constant's value, shortest text that reads back to the same bits. Floats always show a point, an exponent
 * or a word. */
void ki_num_put(ki_text *t, kn_dtype dtype, uint64_t bits);
void ki_f64_put(ki_text *t, double v);

typedef enum ki_num { KI_NUM_OK, KI_NUM_BAD, KI_NUM_RANGE } ki_num;
/* All of s[0..n) as a value of the dtype. BAD: no such number; RANGE: the dtype cannot hold it. */
ki_num ki_num_read(kn_dtype dtype, const char *s, size_t n, uint64_t *bits);
ki_num ki_f64_read(const char *s, size_t n, double *v);
ki_num ki_i64_read(const char *s, size_t n, int64_t *v);

/* ---- the reader (parse_lex.c) ------------------------------------------------------------------------------- */

typedef struct ki_name_slot {
    const char *s; /* NULL: free */
    uint32_t len, hash;
    kn_uop node;
    size_t at; /* where it was defined */
} ki_name_slot;
typedef struct ki_names { /* open addressing */
    ki_name_slot *slot;
    uint32_t n, cap;
} ki_names;

typedef struct ki_literal { /* a literal whose dtype the line's other operands decide */
    uint32_t index;
    size_t at, end;
} ki_literal;

typedef struct ki_reader {
    ki_ir *ir;
    const char *source, *text;
    size_t n, at;
    bool clean; /* env held no failure when reading began, so that one now is ours */
    ki_names names;
    kn_uop *src; /* operands of the line being read */
    uint32_t nsrc, src_cap;
    ki_literal *lit;
    uint32_t nlit, lit_cap;
    uint64_t run_total; /* operands made from %a..%b so far */
    ki_text str;        /* the string last read */
} ki_reader;

/* Operands written as a run %a..%b, in one text: more are spelled out (a short text must not ask for much memory). */
#define KI_RUN_LIMIT (UINT64_C(1) << 22)

/* Blanks within the line. */
void ki_skip(ki_reader *r);
static inline char ki_peek(const ki_reader *r) { return r->at < r->n ? r->text[r->at] : 0; }
/* At the end of the statement: newline, comment or end of text. */
bool ki_at_end(ki_reader *r);
/* Skips blanks, then c if it is next. */
bool ki_accept(ki_reader *r, char c);
bool ki_expect_char(ki_reader *r, char c, const char *where);
/* A word [A-Za-z_][A-Za-z0-9_]*; length 0 if none is next. */
size_t ki_word(ki_reader *r, const char **s);
bool ki_word_is(const char *s, size_t n, const char *word);
/* Extent of a number or word literal at the cursor, without its suffix; 0 if none. */
size_t ki_literal_len(const ki_reader *r);
bool ki_read_i64(ki_reader *r, int64_t lo, int64_t hi, const char *what, int64_t *v);
bool ki_read_f64(ki_reader *r, double *v);
/* True, and the cursor there, if a string is next, on this line or on a later one. */
bool ki_string_next(ki_reader *r);
/* "..." or x"..." pieces, joined, into r->str. */
bool ki_read_string(ki_reader *r);
/* (1, 2, 3); at most max. */
bool ki_read_ints(ki_reader *r, int64_t *v, unsigned max, unsigned *n);
/* A word out of a table. */
bool ki_read_choice(ki_reader *r, ki_err err, const char *const *names, size_t n, unsigned *out);
bool ki_read_dtype(ki_reader *r, kn_dtype *out);
/* CPU, CUDA:0,CUDA:1 or "..." after @. */
bool ki_read_device(ki_reader *r, unsigned *out);

/* Failure at a place, with at least one argument for the format; always false. */
#define KI_READ_FAIL(r, id, at, ...)                                                                         \
    ki_failed(ki_fail_at((r)->ir->env, id, (r)->source, (r)->text, (r)->n, at, __VA_ARGS__))
static inline bool ki_failed(int status) {
    (void)status;
    return false;
}
bool ki_read_wanted(ki_reader *r, const char *what);
/* The token at a place, for messages, into buf. */
const char *ki_token(const ki_reader *r, size_t at, char *buf, size_t n);
bool ki_read_nomem(ki_reader *r);

ki_name_slot *ki_names_find(ki_names *t, const char *s, size_t len);
bool ki_names_add(ki_names *t, const char *s, size_t len, kn_uop node, size_t at);

/* ---- node lines (parse_node.c, parse_arg.c) ----------------------------------------------------------------- */

/* What a line says behind its colon. */
typedef struct ki_said {
    bool type, dims, device, axis;
    size_t at, end; /* its extent in the text */
    kn_dtype dtype;
    unsigned rank;
    int64_t dim[KI_MAX_RANK];
    uint32_t bounded; /* bit k: dimension k was written <=n */
    unsigned device_id;
    int64_t axis_no;
} ki_said;
bool ki_read_type(ki_reader *r, ki_said *said);
/* Fails: what stands there is not u's type. id: of "whose is that, the text says this". */
bool ki_read_unlike(ki_reader *r, ki_err id, const char *whose, const ki_said *said, kn_uop u);
/* " f32 [4, 4] @CPU axis=0", as the printer writes it (print.c). */
void ki_type_put(ki_text *t, const ki_env *env, kn_dtype dtype, const ki_type *type);
void ki_string_put(ki_text *t, const char *s, size_t n);

/* A node's arg while its line is read. */
typedef struct ki_args {
    kn_op op;
    size_t op_at;
    unsigned seen; /* keys, a bit each */
    int64_t number;            /* INT args, BUFFER size, slot */
    int64_t lohi[2];           /* bounds, as int64 or double bits: read once the dtype is known */
    size_t bounds_at[2], bounds_end[2];
    int64_t ints[KI_MAX_RANK];
    unsigned nints;
    unsigned space, device, axis_type, reduce_op;
    uint32_t id, tag, threads, optimized, native;
    ki_text str; /* name or string */
    bool has_str;
    ki_opt *opt;
    uint32_t nopt, opt_cap;
} ki_args;
bool ki_read_head(ki_reader *r, ki_args *a);       /* what stands before the operands */
bool ki_read_keys(ki_reader *r, ki_args *a);       /* key=value behind them */
bool ki_build_arg(ki_reader *r, ki_args *a, kn_dtype dtype, unsigned device, kn_arg *out);
void ki_args_free(ki_args *a);

/* A whole statement %name = op ... up to its type. */
bool ki_read_node(ki_reader *r, kn_uop *out);
/* One operand that must be a name. */
bool ki_read_ref(ki_reader *r, kn_uop *out);

#endif
