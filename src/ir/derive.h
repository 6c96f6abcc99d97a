/* derive.h: the rules behind ki_make: dtype, type and bounds of a node about to be made. Private to src/ir. */
#ifndef KI_DERIVE_H
#define KI_DERIVE_H

#include "ir/uop.h"

/* A node being made: the parts of its key, then what the rules derive. */
typedef struct ki_draft {
    ki_ir *ir;
    kn_op op;
    kn_dtype dtype; /* in: given; out: derived */
    const kn_uop *src;
    uint32_t nsrc;
    kn_arg arg;
    const ki_type *type;
    uint16_t flags;
    ki_bound lo, hi;
} ki_draft;

/* Each returns false after recording the failure. */
bool ki_derive_dtype(ki_draft *d);
bool ki_derive_type(ki_draft *d);
void ki_derive_bounds(ki_draft *d);

/* Length of an interned payload; whether an op's arg points to one. */
size_t ki_payload_size(const void *p);
/* In this store what is interned in another one. */
const void *ki_intern_again(ki_ir *ir, const void *p);
#define KI_POINTERS                                                                                                    \
    (1u << KI_A_INTS | 1u << KI_A_PARAM | 1u << KI_A_BUFFER | 1u << KI_A_LOAD | 1u << KI_A_KERNEL | 1u << KI_A_STR |   \
     1u << KI_A_BYTES)
static inline bool ki_arg_is_pointer(kn_op op) { return KI_POINTERS >> ki_ops[op].arg & 1; }

#endif
