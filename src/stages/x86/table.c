/* table.c: x86.def as constant arrays, and the questions asked of a row. See x86.h. */
#include "stages/x86/x86.h"

#include <stdatomic.h>
#include <string.h>
#include <strings.h>

/* What the rows are written in. */
enum { NP, P66, F3, F2, NX = 8, NO = KI_XC_NONE, NONE = 0 };
enum { S = KI_XE_SSE, V = KI_XE_VEX, E = KI_XE_EVEX, SV = S | V, VE = V | E, SVE = S | V | E };
enum { X = 1, Y = 2, Z = 4, XY = X | Y, YZ = Y | Z, XYZ = X | Y | Z };
enum {
    RW = KI_XA_RW,
    READS = KI_XA_READS,
    MK = KI_XA_MASK,
    MZ = KI_XA_MASK | KI_XA_ZERO,
    MUST = KI_XA_MUST,
    ER = KI_XA_ROUND,
    SAE = KI_XA_SAE,
    EW = KI_XA_EW,
    SETS = KI_XA_SETS,
    FLAGS = KI_XA_FLAGS,
    D64 = KI_XA_D64,
    LOCK = KI_XA_LOCK,
    FIXED = KI_XA_FIXED,
    DISTINCT = KI_XA_DISTINCT,
    BC = KI_XA_BCAST,
    TWIN = KI_XA_TWIN
};
enum {
    FULL = KI_XT_FULL,
    HALF = KI_XT_HALF,
    QUARTER = KI_XT_QUARTER,
    EIGHTH = KI_XT_EIGHTH,
    EL1 = KI_XT_EL1,
    EL2 = KI_XT_EL2,
    EL4 = KI_XT_EL4,
    EL8 = KI_XT_EL8,
    B16 = KI_XT_B16,
    DUP = KI_XT_DUP,
    UNIT = KI_XT_UNIT
};
enum {
#define X_(name, level) name = KI_CPU_##name,
    KI_CPU_FEATURES(X_)
#undef X_
        AVXI = KI_CPU_COUNT /* integers: AVX at 128 bits, AVX2 at 256 */
};
enum {
    ALU = KI_XR_ALU,
    SHIFT,
    MUL,
    DIV,
    BRANCH,
    LOAD,
    STORE,
    FADD,
    FMA,
    VALU,
    VSHIFT,
    SHUF,
    CROSS,
    FDIV,
    CVT,
    MASK,
    MASK5,
    TOGPR,
    FROMGPR,
    GATHER,
    SCATTER,
    TILE,
};
_Static_assert((int)TILE == (int)KI_XR_TILE, "port classes in the order of KI_X86_PORTS");

#define UNWRAP(...) __VA_ARGS__
#define CODES(...)  FOUR(__VA_ARGS__, NO, NO, NO, NO)
#define FOUR(a, b, c, d, ...)                                                                                          \
    { a, b, c, d }

/* Operand codes by the names of the rows; after the last use of X as a length. */
enum {
#define X_(code, place, size) code = KI_XC_##code,
#define X                     X_
    KI_X86_CODES(X_)
#undef X
#undef X_
};

#define ENCODING(p_, m_, o_, w_, e_) .pp = p_, .map = m_, .opcode = (uint8_t)(o_), .w = w_, .ext = (uint8_t)(e_)
#define MEMORY(t_, e_)               .tuple = t_, .es = e_
#define COST(l_, p_)                 .lat = l_, .port = p_

const ki_x86_form ki_x86_forms[KI_X_COUNT] = {
#define KI_X86(row, nm, ops, encoding, encs, attrs, lengths, memory, feats, cost, ty, means)                           \
    [KI_X_##row] = {.id = #row,                                                                                        \
                    .name = nm,                                                                                        \
                    .types = ty,                                                                                       \
                    .meaning = means,                                                                                  \
                    .op = CODES ops,                                                                                   \
                    ENCODING encoding,                                                                                 \
                    .enc = encs,                                                                                       \
                    .lens = lengths,                                                                                   \
                    MEMORY memory,                                                                                     \
                    .feat = {UNWRAP feats},                                                                            \
                    COST cost,                                                                                         \
                    .attr = (uint16_t)(attrs)},
#include "stages/x86/x86.def"
#undef KI_X86
};

const ki_x86_code_info ki_x86_codes[KI_XC_COUNT] = {
#define X_(code, p, s) [KI_XC_##code] = {KI_XP_##p, s, #code},
    KI_X86_CODES(X_)
#undef X_
};

/* Ports of Golden Cove: 0 1 5 6 10 integers, 0 1 5 vectors (512 bits: 0 with 1, and 5), 2 3 11 loads, 4 9 store data. */
#define P(k) (1u << (k))
const ki_x86_port_info ki_x86_ports[KI_XR_COUNT] = {
    [KI_XR_NONE] = {"none", 0, 0},
    [KI_XR_ALU] = {"alu", P(0) | P(1) | P(5) | P(6) | P(10), P(0) | P(5)},
    [KI_XR_SHIFT] = {"shift", P(0) | P(6), P(0) | P(6)},
    [KI_XR_MUL] = {"mul", P(1), P(1)},
    [KI_XR_DIV] = {"div", P(1), P(1)},
    [KI_XR_BRANCH] = {"branch", P(0) | P(6), P(0) | P(6)},
    [KI_XR_LOAD] = {"load", P(2) | P(3) | P(11), P(2) | P(3)},
    [KI_XR_STORE] = {"store", P(4) | P(9), P(4) | P(9)},
    [KI_XR_FADD] = {"fadd", P(1) | P(5), P(0) | P(5)},
    [KI_XR_FMA] = {"fma", P(0) | P(1), P(0) | P(5)},
    [KI_XR_VALU] = {"valu", P(0) | P(1) | P(5), P(0) | P(5)},
    [KI_XR_VSHIFT] = {"vshift", P(0) | P(1), P(0)},
    [KI_XR_SHUF] = {"shuffle", P(1) | P(5), P(5)},
    [KI_XR_CROSS] = {"cross", P(5), P(5)},
    [KI_XR_FDIV] = {"fdiv", P(0), P(0)},
    [KI_XR_CVT] = {"convert", P(0) | P(1), P(0)},
    [KI_XR_MASK] = {"mask", P(0), P(0)},
    [KI_XR_MASK5] = {"mask5", P(5), P(5)},
    [KI_XR_TOGPR] = {"to-gpr", P(0), P(0)},
    [KI_XR_FROMGPR] = {"from-gpr", P(5), P(5)},
    [KI_XR_GATHER] = {"gather", P(2) | P(3) | P(11), P(2) | P(3)},
    [KI_XR_SCATTER] = {"scatter", P(4) | P(9), P(4) | P(9)},
    [KI_XR_TILE] = {"tile", P(5), P(5)},
};
#undef P

const char *ki_x86_name(const ki_x86_form *f, unsigned enc) {
    return enc == KI_XE_SSE && f->enc != KI_XE_SSE && f->name[0] == 'v' ? f->name + 1 : f->name;
}

kn_dtype ki_x86_dtype(const ki_x86_form *f, unsigned k) {
    const char *s = f->types;
    size_t n = strcspn(s, " ");
    for (; k && s[n]; k--) s += n + 1, n = strcspn(s, " ");
    return ki_dtype_named(s, n);
}

ki_x86_id ki_x86_named(const char *name, ki_x86_id from) {
    for (unsigned k = from; k < KI_X_COUNT; k++) {
        const ki_x86_form *f = &ki_x86_forms[k];
        if (strcmp(f->name, name) == 0 || (f->enc & KI_XE_SSE && strcmp(ki_x86_name(f, KI_XE_SSE), name) == 0))
            return (ki_x86_id)k;
    }
    return KI_X_COUNT;
}

/* Rows by a hash of their ids, in any case: place k holds a row's number + 1. Made once a process. */
enum { PLACES = 4096 };
_Static_assert(2 * KI_X_COUNT < PLACES, "half of the places stay free");

static unsigned place_of(const char *id) {
    uint32_t h = 2166136261u;
    for (; *id; id++) h = (h ^ (uint32_t)(*id & ~0x20)) * 16777619u;
    return (h ^ h >> 15) % PLACES;
}

static const uint16_t *places(void) {
    static _Atomic(uint16_t *) made;
    uint16_t *known = atomic_load(&made), *own;
    if (known || !(own = ki_calloc(PLACES, sizeof *own))) return known;
    for (unsigned k = 0; k < KI_X_COUNT; k++) {
        unsigned at = place_of(ki_x86_forms[k].id);
        while (own[at]) at = (at + 1) % PLACES;
        own[at] = (uint16_t)(k + 1);
    }
    if (atomic_compare_exchange_strong(&made, &known, own)) return own;
    ki_free(own); /* another thread was faster */
    return known;
}

const ki_x86_form *ki_x86_row(const char *id) {
    const uint16_t *place = places();
    for (unsigned at = place_of(id); place && place[at]; at = (at + 1) % PLACES)
        if (strcasecmp(ki_x86_forms[place[at] - 1].id, id) == 0) return &ki_x86_forms[place[at] - 1];
    for (unsigned k = 0; k < KI_X_COUNT && !place; k++) /* no memory for the table */
        if (strcasecmp(ki_x86_forms[k].id, id) == 0) return &ki_x86_forms[k];
    return NULL;
}

uint64_t ki_x86_needs(const ki_x86_form *f, unsigned enc, unsigned len) {
    unsigned feat = f->feat[enc == KI_XE_SSE ? 0 : enc == KI_XE_VEX ? 1 : 2];
    if (feat == AVXI) feat = len ? KI_CPU_AVX2 : KI_CPU_AVX;
    uint64_t bits = KI_CPU_BIT(feat);
    if (enc == KI_XE_EVEX && len < 2 && f->lens > X) bits |= KI_CPU_BIT(KI_CPU_AVX512VL);
    return bits;
}

unsigned ki_x86_mem_bytes(const ki_x86_form *f, unsigned len, bool bcast) {
    unsigned whole = 16u << len;
    if (bcast) return f->es;
    switch ((ki_x86_tuple)f->tuple) {
    case KI_XT_NONE: return 0;
    case KI_XT_FULL:
    case KI_XT_UNIT: return whole;
    case KI_XT_HALF: return whole / 2;
    case KI_XT_QUARTER: return whole / 4;
    case KI_XT_EIGHTH: return whole / 8;
    case KI_XT_EL1: return f->es;
    case KI_XT_EL2: return 2u * f->es;
    case KI_XT_EL4: return 4u * f->es;
    case KI_XT_EL8: return 8u * f->es;
    case KI_XT_B16: return 16;
    case KI_XT_DUP: return len ? whole : 8;
    }
    return 0;
}
