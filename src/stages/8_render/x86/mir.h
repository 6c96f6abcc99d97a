/* mir.h: machine instructions over virtual registers: what lower*.c makes of a LINEAR, regs.c gives registers to, emit.c makes
 * bytes of.
 *
 * A virtual register belongs to one class and may be written more than once (a loop's counter, an accumulator). What always holds:
 *  - its first write stands before every read, in text and in time; if that write lies outside a loop in which it is read
 *    or written, its value lives through the whole loop;
 *  - operand 0 is what an instruction writes, unless the form only reads it; a source may share a destination's register where
 *    it is read for the last time (forms that forbid it say so in the table). */
#ifndef KI_X86_MIR_H
#define KI_X86_MIR_H

#include "stages/8_render/x86/asm.h"

typedef uint32_t ki_vreg; /* 0: none */
typedef enum ki_rclass { KI_RC_G, KI_RC_V, KI_RC_K, KI_RC_T, KI_RC_COUNT } ki_rclass;
/* A register itself, where the machine leaves no choice. Never one that regs.c gives away. */
#define KI_PHYSICAL(n) (UINT32_C(0xffffff00) | (n))
static inline bool ki_is_physical(ki_vreg r) { return r >= UINT32_C(0xffffff00); }

typedef enum ki_mbase { KI_MB_REG, KI_MB_FRAME, KI_MB_POOL } ki_mbase;

typedef struct ki_mop {
    uint8_t kind;  /* ki_x86_kind */
    uint8_t base;  /* MEM: ki_mbase; reg is the base register of REG (0: none) */
    uint8_t scale; /* MEM: of index */
    uint8_t ikind; /* MEM: X Y Z if index is a vector; of the vector it stands for, or 0 */
    uint8_t bcast; /* MEM: one element for all lanes */
    uint8_t size;  /* MEM: bytes, where the form leaves it open */
    uint32_t label;
    ki_vreg reg, index;
    int64_t v; /* IMM; MEM: displacement */
} ki_mop;

/* Pseudo instructions, numbered behind the forms. */
typedef enum ki_pseudo {
    KI_M_LABEL = KI_X_COUNT, /* op 0: LABEL */
    KI_M_MOVE,               /* op 0 = op 1, registers of one class and kind */
    KI_M_ARG                 /* op 0 = argument number op 1 */
} ki_pseudo;

enum { KI_MF_READS0 = 1, KI_MF_WRITES0 = 2, KI_MF_WRITES2 = 4, KI_MF_LATE = 8 /* sources and destination differ */ };

typedef struct ki_mins {
    uint16_t form; /* ki_x86_id or ki_pseudo */
    uint8_t flags; /* KI_MF_ */
    uint8_t zero, lock;
    ki_vreg mask;
    uint32_t at; /* item of the LINEAR it is for */
    ki_mop op[4];
} ki_mins;

typedef struct ki_vinfo {
    uint8_t cls, kind; /* ki_rclass; widest ki_x86_kind it is used as: size of its slot */
    uint8_t reg;       /* given; NOREG: in memory */
    uint8_t remat;     /* its one write is a load from the pool (label) that may be done again at any use */
    uint8_t frame;     /* where an array of the frame begins, at `label`: counted from the frame's own start, if it has no register */
    uint8_t es;        /* remat: bytes of the element at label that is broadcast; 0: all of the vector is there */
    uint32_t label;
    uint32_t first, last; /* 2 * instruction, + 1 for a write */
    ki_vreg hint;         /* best in the same register */
    float weight;         /* reads and writes, each as often as it is done */
    int32_t slot;         /* offset in the frame, -1 none */
} ki_vinfo;

typedef struct ki_mloop {
    uint32_t begin, end; /* instructions */
    float trips;         /* about */
} ki_mloop;

typedef struct ki_mir {
    ki_env *env;
    const ki_ir *ir; /* of the items */
    const struct ki_target *target;
    uint64_t features;
    bool sse;         /* two operands, no VEX */
    unsigned nvector; /* registers */
    ki_mins *ins;
    uint32_t n;
    ki_mins *block; /* that ins is in, behind room for the entry */
    size_t cap;
    ki_mins *entry; /* what runs once, before all else: where `before` is set appended here; joined by ki_mir_join */
    uint32_t nentry;
    size_t entry_cap;
    bool before;
    ki_vinfo *v; /* by vreg; v[0] unused */
    uint32_t nv;
    size_t v_cap;
    ki_mloop *loop; /* in the order they begin */
    uint32_t nloop;
    size_t loop_cap;
    uint64_t frame;                  /* bytes of locals and temporaries so far, */
    unsigned align;                  /* and to what it is to be aligned */
    uint64_t used[KI_RC_COUNT];      /* regs.c: registers given away, one bit each */
    uint8_t scratch[KI_RC_COUNT][3]; /* regs.c: what reloads go through, and others where there are none; NOREG none */
    uint32_t spills;                 /* virtual registers in memory */
    bool failed, fence, tiles; /* tiles: configured at the entry, released at the exit */
    const kn_uop *item; /* of the LINEAR, for a listing */
    ki_mins nowhere;    /* what is appended after a failure */
} ki_mir;

static inline ki_mop ki_mreg(ki_x86_kind kind, ki_vreg r) { return (ki_mop){.kind = (uint8_t)kind, .reg = r}; }
static inline ki_mop ki_mimm(int64_t v) { return (ki_mop){.kind = KI_XO_IMM, .v = v}; }
static inline ki_mop ki_mlabel(uint32_t l) { return (ki_mop){.kind = KI_XO_LABEL, .label = l}; }
static inline ki_mop ki_mframe(uint64_t at, unsigned size) {
    return (ki_mop){.kind = KI_XO_MEM, .base = KI_MB_FRAME, .scale = 1, .size = (uint8_t)size, .v = (int64_t)at};
}
static inline ki_mop ki_mpool(uint32_t label) {
    return (ki_mop){.kind = KI_XO_MEM, .base = KI_MB_POOL, .scale = 1, .label = label};
}

bool ki_mir_open(ki_mir *m, ki_env *env, const struct ki_target *t, uint32_t n); /* n: of about so many instructions */
void ki_mir_close(ki_mir *m);
ki_vreg ki_vreg_new(ki_mir *m, ki_rclass cls, ki_x86_kind kind); /* 0: failed */
/* Appends; flags from the form. The result may be changed until the next one. */
ki_mins *ki_mput(ki_mir *m, unsigned form, uint32_t at, unsigned nop, const ki_mop *op);
#define KI_MPUT(m, form, at, ...)                                                                                      \
    ki_mput(m, form, at, sizeof((ki_mop[]){__VA_ARGS__}) / sizeof(ki_mop), (ki_mop[]){__VA_ARGS__})
/* A loop begins with the next instruction; its number. Whoever closes it sets `end`, its last instruction. */
uint32_t ki_mloop_open(ki_mir *m, float trips);
/* Entry and body to one list. */
bool ki_mir_join(ki_mir *m);
/* Bytes of the frame, aligned to a power of two; the frame begins with such a multiple too. */
uint64_t ki_mframe_take(ki_mir *m, uint64_t bytes, unsigned align);

/* regs.c: gives each virtual register a register or a place in the frame. */
bool ki_mregs(ki_mir *m);
/* emit.c: bytes, once registers are given. */
bool ki_memit(ki_mir *m, ki_asm *a);
/* How many registers of each class instruction i needs set aside for what is in memory. False: none, and need[] is not written. */
bool ki_mneed(const ki_mir *m, uint32_t i, unsigned need[KI_RC_COUNT]);

#endif
