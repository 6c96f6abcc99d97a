/* c_gen.h: what the parts of the C renderer share. Private to 8_render.
 *
 * A value of the dialect becomes a C expression or a variable:
 *   ()    scalar C type; small floats (f16, bf16, f8) are held as f32 that is exactly representable in them
 *   (n,)  GNU vector of n lanes, n a power of two; bool: lanes of signed integers, -1 or 0, `w` bytes wide
 * Text lives in the generator's arena until the kernel is done. */
#ifndef KI_C_GEN_H
#define KI_C_GEN_H

#include "stages/8_render/render.h"
#include "stages/8_render/locals.h"

typedef enum ki_celem { KI_U8, KI_I8, KI_U16, KI_I16, KI_U32, KI_I32, KI_U64, KI_I64, KI_F32, KI_F64, KI_CELEM_COUNT } ki_celem;
extern const char *const ki_celem_name[KI_CELEM_COUNT];
extern const uint8_t ki_celem_bytes[KI_CELEM_COUNT];

/* Text that a kernel may need before its function, in the order it must stand. `e` and `lanes` choose the variant;
 * helpers that have none take KI_U8 and 1. */
typedef enum ki_chelper {
    KI_H_VEC,    /* types ExN and ExNu (unaligned, in memory), splat ExN_of */
    KI_H_SEL,    /* ExN_sel(mask, a, b) */
    KI_H_BITS,   /* scalar bit copies */
    KI_H_SMALL,  /* scalar small floats, every format */
    KI_H_F16,    /* f32xN_f16get, f32xN_f16put */
    KI_H_BF16,   /* f32xN_bf16get, f32xN_bf16put */
    KI_H_MAX,    /* E or ExN maximum of floats */
    KI_H_FMA,    /* ExN_fma */
    KI_H_SQRT,   /* ExN_sqrt */
    KI_H_DIV,    /* E_idiv, E_mod */
    KI_H_SHIFT,  /* E_shl, E_shr */
    KI_H_FTOI,   /* saturating casts: kn_f64_E, f32xN_E */
    KI_H_MLOAD,  /* ExN_mload(p, mask, alt), ExN_mstore(p, mask, v) */
    KI_H_STREAM, /* ExN_stream(p, v): a store past the caches where p is aligned */
    KI_H_THREEFRY,
    KI_H_COUNT
} ki_chelper;

typedef struct ki_cval {
    const char *s;   /* expression or variable; NULL: none (effects, addresses) */
    uint32_t uses;   /* how often the text will stand */
    uint32_t block;  /* loop it is computed in */
    uint32_t user;   /* loop of a user; of the only one if uses is 1 */
    uint8_t w;       /* bool vectors: bytes of a lane */
} ki_cval;

typedef struct ki_cgen {
    ki_ir *ir;
    const ki_target *t;
    kn_uop kernel;
    const kn_uop *inst;
    uint32_t n;
    ki_cval *val;      /* by id */
    ki_locals st;
    ki_arena strs;
    ki_text body, decl;
    uint32_t indent, nvar, block;
    uint8_t need[KI_H_COUNT][KI_CELEM_COUNT]; /* bit k: with 2^k lanes */
    bool lane;   /* a vector op is being written lane by lane, as its scalar form with subscripts [l] */
    bool streams; /* such a store has been written: a fence must follow */
    bool failed;
} ki_cgen;

/* c.c */
const char *ki_cfmt(ki_cgen *g, const char *fmt, ...) KI_PRINTF(2, 3);
/* What was written, as long as g lives, never NULL; where memory ran out g has failed. Frees t. */
const char *ki_cwritten(ki_cgen *g, ki_text *t);
void ki_cline(ki_cgen *g, const char *fmt, ...) KI_PRINTF(2, 3);
void ki_cneed(ki_cgen *g, ki_chelper h, ki_celem e, unsigned lanes);
bool ki_cis_name(const char *s);
/* Without its outermost parentheses, where it stands alone. */
const char *ki_cbare(ki_cgen *g, const char *s);
const char *ki_cfail(ki_cgen *g, kn_uop u, const char *why);
static inline ki_cval *ki_cv(ki_cgen *g, kn_uop u) { return &g->val[u->id]; }
static inline unsigned ki_lanes(kn_uop u) { return u->type->rank ? (unsigned)u->type->dim[0].n : 1; }
/* Name of the C type of a value: lanes 1 is the scalar. Asks for the vector type. */
const char *ki_ctype(ki_cgen *g, ki_celem e, unsigned lanes);
ki_celem ki_cvalue_elem(kn_dtype t);   /* as held in a variable (bool: u8) */
ki_celem ki_cmemory_elem(kn_dtype t);  /* as held in memory */
ki_celem ki_cmask_elem(unsigned w);    /* signed integer of w bytes */
bool ki_csmall(kn_dtype t);            /* f16, bf16, f8 */

/* c_expr.c: expressions */
const char *ki_cscalar(ki_cgen *g, kn_uop u);                    /* a () operand */
const char *ki_cvector(ki_cgen *g, kn_uop u, unsigned lanes);    /* an operand as a vector; () is broadcast; no bool */
const char *ki_cmask(ki_cgen *g, kn_uop u, unsigned lanes, unsigned w); /* a bool operand as a mask of width w */
const char *ki_clane_name(ki_cgen *g, kn_uop u);                  /* a vector as a variable, to be subscripted */
const char *ki_cconst(ki_cgen *g, kn_uop u);
/* Expression of an elementwise or lane op; sets *w for bool vectors. NULL without failure: write it lane by lane. */
const char *ki_cexpr(ki_cgen *g, kn_uop u, uint8_t *w);
/* Statements computing u lane by lane into variable `name`; false: there is no such form. */
bool ki_clanewise(ki_cgen *g, kn_uop u, const char *name);

/* c_mem.c: loads, stores, local storage */
bool ki_caddress(ki_cgen *g, kn_uop index, ki_address *a);
void ki_cdeclare_storage(ki_cgen *g);
void ki_cload(ki_cgen *g, kn_uop u);
void ki_cstore(ki_cgen *g, kn_uop u);

/* c_helpers.c */
void ki_chelpers(ki_cgen *g, ki_text *out);

#endif
