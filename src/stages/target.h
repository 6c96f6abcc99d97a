/* target.h: what a code generator must know of the machine it writes for. A table of constants; no target is
 * known to the stages by name, only by these facts. Each level of x86-64 is there twice: for C, and for machine code. */
#ifndef KI_TARGET_H
#define KI_TARGET_H

#include "ir/uop.h"

typedef struct ki_target {
    const char *name;     /* "sse2", "avx2", "avx512", "dot", "fp16", "amx" */
    const char *cflags;   /* what the C compiler must be told */
    bool native;          /* select chooses instructions of x86-64 (INS) for it; else C text is written */
    uint8_t level;        /* ki_cpu_level: which rule sets of 5_select (select_x86, lack_x86) serve it */
    unsigned vector;      /* bytes of a vector register */
    unsigned nvector;     /* how many there are */
    unsigned line;        /* bytes of a cache line: arenas are aligned to it */
    bool fma;             /* MULACC on floats is one instruction */
    bool libm;            /* scalar exp, log, ... may be called (C) */
    bool half;            /* f16 is computed as it is, not in f32 */
    bool stream;          /* it can store past the caches */
    bool twice;           /* two multiply-adds of whole vectors a cycle: what a tile loads beside them counts */
    unsigned streams;     /* parts of a long row side by side, each fetched ahead by itself; 1: a row is one */
    uint64_t takes[2];    /* bit per kn_op: DECOMP ops taken as they are */
} ki_target;

/* What is known of the machine itself, beyond its instructions. */
typedef struct ki_machine {
    unsigned threads; /* to run on; 0: 1 */
    uint64_t stream;  /* bytes of an output from which on it is better written past the caches; 0: never */
    uint64_t ahead;   /* bytes to ask for ahead along memory, in the first cache; 0: 4 KiB and less (prefetch.c) */
    uint64_t alone;   /* weighted operations below which a kernel stays on one thread; 0: as measured */
    bool single;      /* one part of a kernel for each thread; else several where that costs nothing */
    uint64_t cache[3]; /* bytes of the first, second and last cache; 0: as most machines have */
} ki_machine;

/* Flags every C kernel is compiled with; the meaning of the text depends on them. What gcc 12 gets wrong, found by random programs:
 * value range propagation takes c ? v : (d ? 3 : 0), vectors v, for another value; what makes vectors of statements forgets that two values
 * were rounded to f32 on one of two ways; without trapping math (f32)(i8)x keeps the sign
 * of a zero. (It also needs kn_pick, c_helpers.c.) Loops must be turned into blends: without, training takes 20 times as long. */
#define KI_C_FLAGS "-std=gnu17 -O2 -ffp-contract=off -fwrapv -fno-math-errno -fno-strict-aliasing -fno-tree-vrp -fno-tree-slp-vectorize -w -Wno-psabi"

/* Has it tiles of filters by positions, whose panels are packed once (3_optimize/windows.c)? Where it has, networks want channels innermost
 * (2_rangeify/layout.c). And the positions beside which packing is little. */
bool ki_target_takes_panels(const ki_target *t);
enum { KI_PANEL_POSITIONS = 512 };

/* By name; NULL if unknown. The first is the least every x86-64 has. */
const ki_target *ki_target_named(const char *name);  /* for C */
const ki_target *ki_target_native(const char *name); /* for machine code: sse2, avx2, avx512, dot, fp16, amx */
/* The best one this processor runs. */
const ki_target *ki_target_host(void);
/* What KN_CODE and KN_CPU say, else machine code for the host (C, where that is no x86-64). here: code of it is to run on this
 * machine, so what the machine lacks is refused. NULL: env says what there is. The one reader of these settings. */
const ki_target *ki_target_chosen(ki_env *env, bool here);

static inline bool ki_target_has(const ki_target *t, kn_op op) {
    return !(ki_ops[op].flags & KI_DECOMP) || (t->takes[op >> 6] >> (op & 63) & 1);
}

/* Bytes that a lane of u takes where it is computed: small floats are f32 there, but f16 where the target computes it as it is:
 * all but quotients, roots and functions. */
static inline unsigned ki_lane_bytes(const ki_target *t, kn_uop u) {
    unsigned bytes = (unsigned)ki_itemsize((kn_dtype)u->dtype);
    if (!ki_is_float((kn_dtype)u->dtype) || bytes >= 4) return bytes;
    bool slow = u->op == KN_DIV || u->op == KN_SQRT || u->op == KN_RECIP || !ki_target_has(t, (kn_op)u->op);
    return t->half && u->dtype == KN_F16 && !slow ? bytes : 4;
}

#endif
