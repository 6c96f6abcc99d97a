/* random.h: where random numbers come from (random.c), and functions of them that every device rounds alike (plain.c). */
#ifndef KI_RANDOM_H
#define KI_RANDOM_H

#include "tensor/build.h"

/* ---- bits ---------------------------------------------------------------------------------------------------- */

/* A stream of `count` counters: of a key, or (key NULL) the next ones of the context's. */
typedef struct ki_stream {
    kn_uop base, key; /* u64, (); base NULL: counters start from 0, and their words and the key's change places, as JAX has them */
    bool wide;        /* counters do not fit 32 bits */
} ki_stream;
bool ki_stream_open(kn_ctx *k, ki_stream *o, kn_tensor key, int64_t count);
/* What the generator makes of counters, u64: two words of 32 random bits. */
kn_uop ki_stream_at(kn_ctx *k, const ki_stream *o, kn_uop counter);
kn_uop ki_stream_draw(kn_ctx *k, const ki_stream *o, const ki_shape *s); /* counters 0, 1, ... in a shape */
kn_uop ki_word32(kn_ctx *k, kn_uop bits, unsigned which);                  /* 0: the low one, 1: the high one; u32 */

/* A call that takes the context and a key, which may be NULL. */
#define ENTER_KEY(name, given)                                \
    do {                                                      \
        ENTER_CTX(name);                                      \
        kn_tensor bad_ = ki_key_enter(k, name, (given));      \
        if (bad_) return bad_;                                \
    } while (0)
kn_tensor ki_key_enter(kn_ctx *k, const char *fn, kn_tensor key);
/* Sizes and dtype of what is drawn: constant, and a float. */
bool ki_draw_shape(kn_ctx *k, const char *fn, kn_ints shape, kn_dtype t, ki_shape *s);
kn_uop ki_drawn(kn_ctx *k, kn_tensor key, const ki_shape *s);        /* bits: a counter for each element */
kn_uop ki_uniform(kn_ctx *k, kn_uop bits, bool keyed, kn_dtype t); /* [0, 1) */
kn_uop ki_normal(kn_ctx *k, kn_uop bits, kn_dtype t);              /* t: f32 or f64, as below */
/* The dtype that draws of dtype t are computed in. */
static inline kn_dtype ki_draw_dtype(kn_dtype t) { return t == KN_F64 ? KN_F64 : KN_F32; }

/* ---- functions that every device rounds alike: multiplications, additions, a division or a root ---------------- */

kn_uop ki_plain_log(kn_ctx *k, kn_uop x); /* normal, > 0 */
kn_uop ki_plain_exp(kn_ctx *k, kn_uop x); /* f64 */
/* cos and sin (which may be NULL) of 2 pi (word + within) / 2^32; within, of dtype t, may be NULL. */
void ki_plain_turn(kn_ctx *k, kn_uop word, kn_uop within, kn_dtype t, kn_uop *cosine, kn_uop *sine);
kn_uop ki_plain_normal_at(kn_ctx *k, kn_uop p); /* where the normal distribution is p, of f64 */
/* Of the 32 low bits, for f64 all: u uniform in (0, 1], -log(u), log(u / (1 - u)). */
kn_uop ki_plain_middle(kn_ctx *k, kn_uop bits, kn_dtype t);
kn_uop ki_plain_exponential(kn_ctx *k, kn_uop bits, kn_dtype t);
kn_uop ki_plain_logistic(kn_ctx *k, kn_uop bits, kn_dtype t);

#endif
