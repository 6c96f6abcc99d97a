/* locals.h: what every renderer asks of a kernel's memory: addresses, and which local buffers are variables.
 *
 * A REG BUFFER whose every access is a constant slice, each element always in the same slice, is `split`: a renderer keeps one
 * variable a slice, in registers. Any other REG or LOCAL BUFFER is an array. */
#ifndef KI_LOCALS_H
#define KI_LOCALS_H

#include "ir/uop.h"

typedef struct ki_address {
    kn_uop buf;     /* PARAM or BUFFER */
    kn_uop base;    /* () index, or NULL: 0 */
    int64_t start;  /* constant added to it */
    int64_t stride; /* between lanes, if affine */
    unsigned lanes;
    bool affine; /* else `base` is the whole (n,) index */
} ki_address;

/* The address an INDEX (or an AFTER of one) names. NULL: well; else what is wrong with it. */
const char *ki_address_of(kn_uop index, ki_address *a);

/* A buffer or an address in one, not a value. */
bool ki_is_memory(kn_uop u);
/* Place of a variable among var[]: the order of the CALL's trailing sources; where only the SINK is given, `seen`, how many
 * variables stand before it in the list. */
uint32_t ki_variable_place(kn_uop kernel, kn_uop variable, uint32_t seen);

typedef struct ki_local { /* a REG or LOCAL BUFFER */
    kn_uop buf;
    bool split;
    uint16_t align;  /* an array: what its place is a multiple of, bytes */
    uint16_t *start; /* split: element -> first element of its slice, plus 1 */
    uint8_t *lanes;  /* split: first element -> lanes of its slice; 0: no slice begins here */
} ki_local;

typedef struct ki_locals {
    ki_local *local;
    uint32_t n;
    uint32_t *place;      /* by id of a BUFFER: index + 1 into local */
    uint64_t written[64]; /* slots of PARAMs stored to, one bit each */
    ki_address *address;  /* by item: where a LOAD, a STORE, an ATOMICADD goes; of others nothing */
    void *mem;            /* start and lanes of all */
} ki_locals;

/* Of a LINEAR's items; top: the largest id among them. False: env says why. */
bool ki_locals_open(ki_locals *s, ki_env *env, const kn_uop *inst, uint32_t n, uint32_t top);
void ki_locals_close(ki_locals *s);
static inline const ki_local *ki_local_of(const ki_locals *s, kn_uop buf) { return &s->local[s->place[buf->id] - 1]; }
/* A slot of 4096 or more counts as written. */
static inline bool ki_is_written(const ki_locals *s, int slot) {
    return slot >= 4096 || s->written[slot >> 6] >> (slot & 63) & 1;
}

#endif
