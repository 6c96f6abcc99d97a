/* target.h: what a code generator must know of the machine it writes for. A table of constants; no target is
 * known to the stages by name, only by these facts. */
#ifndef KI_TARGET_H
#define KI_TARGET_H

#include "ir/uop.h"

typedef struct ki_target {
    const char *name;     /* "sse2", "avx2", "avx512", "amx" */
    const char *cflags;   /* what the C compiler must be told */
    unsigned vector;      /* bytes of a vector register */
    unsigned nvector;     /* how many there are */
    unsigned line;        /* bytes of a cache line: arenas are aligned to it */
    bool fma;             /* MULACC on floats is one instruction */
    bool libm;            /* scalar exp, log, ... may be called (C) */
    bool stream;          /* it can store past the caches */
    uint64_t native[2];   /* bit per kn_op: DECOMP ops taken as they are */
} ki_target;

/* What is known of the machine itself, beyond its instructions. */
typedef struct ki_machine {
    unsigned threads; /* to run on; 0: 1 */
    uint64_t stream;  /* bytes of an output from which on it is better written past the caches; 0: never */
    uint64_t alone;   /* weighted operations below which a kernel stays on one thread; 0: as measured */
} ki_machine;

/* Flags every C kernel is compiled with; the meaning of the text depends on them. gcc 12's value range propagation takes
 * c ? v : (d ? 3 : 0), vectors v, for another value (found by a random program). */
#define KI_C_FLAGS "-std=gnu17 -O2 -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fno-tree-vrp -w -Wno-psabi"

/* By name; NULL if unknown. The first is the least every x86-64 has. */
const ki_target *ki_target_named(const char *name);
/* The best one this processor runs. */
const ki_target *ki_target_host(void);
/* What KN_CPU says, else the host's. here: code of it is to run on this machine, so what the machine lacks is refused. NULL: env
 * says what there is. The one reader of the setting. */
const ki_target *ki_target_chosen(ki_env *env, bool here);

static inline bool ki_target_has(const ki_target *t, kn_op op) {
    return !(ki_ops[op].flags & KI_DECOMP) || (t->native[op >> 6] >> (op & 63) & 1);
}

#endif
