/* push.h: moving an INDEX one step towards memory. The rules are push.kr; these are their host functions. */
#ifndef KI_PUSH_H
#define KI_PUSH_H

#include "rules/rules.h"

/* m->user of the push rules. range[id]: 1 + first RANGE id of that REDUCE, 0 none yet; for ids of tensor nodes. */
typedef struct ki_push {
    ki_ir *ir;
    uint32_t *range;
} ki_push;

uint32_t ki_push_ranges(ki_push *ctx, kn_uop reduce);
/* INDEX(a, i...) as an operand: constants are themselves, () values take no index. */
kn_uop ki_push_operand(ki_ir *ir, kn_uop a, const kn_uop *i, uint32_t n);

bool ki_push_unpermute(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_push_unflip(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_push_along(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_push_shifted(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
bool ki_push_part(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
kn_uop ki_push_pad(ki_match *m);
kn_uop ki_push_reshape(ki_match *m);
kn_uop ki_push_stack(ki_match *m);
kn_uop ki_push_index(ki_match *m);
kn_uop ki_push_bitcast(ki_match *m);
kn_uop ki_push_reduce(ki_match *m);

/* m->user of prepare.kr. Zeros cut whatever can be cut: right at any length, worth it only for long sums. */
typedef struct ki_prepare {
    int64_t least;  /* elements a REDUCE must have */
    int64_t chunks; /* least number of chunks */
    int64_t terms;  /* terms a matrix product must sum up */
    int64_t sides;  /* of products, that a kernel reads at most */
    int64_t reuse;  /* products that an element of a side is in, at least */
    int64_t row;    /* elements of a row that is worth going through once; 0: all are */
    const uint8_t *users; /* how many read a node, by id, below n; 3: or more. NULL: nobody counted */
    uint32_t n;
} ki_prepare;
bool ki_prepare_pays(ki_match *m, const ki_val *arg, unsigned n, ki_val *out);
kn_uop ki_prepare_chunks(ki_match *m);
kn_uop ki_prepare_terms(ki_match *m);

#endif
