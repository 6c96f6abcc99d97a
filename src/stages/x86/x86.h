/* x86.h: the subset of x86-64 that koine writes, as one table, and what an instruction is.
 *
 * x86.def has a row a form (`ki_x86_form`): mnemonic, operands, encodings, features, latency, ports, and meaning. A form is
 * one instruction whatever its vector length and encoding: `vaddps` is addps, VEX.128 and .256, EVEX.128 to .512. Select
 * chooses rows, plan fills in registers, render (8_render/x86) makes bytes and listings of them: no other place knows
 * an opcode.
 *
 * Operands are in Intel's order and notation, a place and a size (`ki_x86_code`):
 *   place  G V K T  ModRM.reg: general, vector, mask, tile      size  b w d q    8 to 64 bits; v 16, 32, 64; y 32, 64
 *          E W      ModRM.rm: register or memory                      x          the vector length of the instruction
 *          R U      ModRM.rm: register only                           h n e      half, a quarter, an eighth of it
 *          M S      memory only; S with a vector index                o          128 bits
 *          B H      VEX.vvvv       L  top bits of the immediate
 *          O        low bits of the opcode
 *          I J      immediate, jump distance
 *
 * Meaning: an expression of the rules language (docs/rules.md) for one result lane. a, b, c are the sources in order, d
 * the destination's old value where it is read (attr RW), i the immediate (i32), j the number of the lane (i32). `types`
 * gives the lanes' dtypes: result, then a, b, c; the last is repeated. A mask is bool lanes. meaning.c reads it. Masking
 * with {k} is the same for all: where(k, meaning, d), or 0 for d. Flags: cmp and test have none of their own; what reads
 * flags is stated over a and b, the operands of the cmp before it; its own sources follow as c.
 *
 * Latency and port class are for Golden Cove (Sapphire Rapids), registers only: coarse, not yet checked against measured tables. */
#ifndef KI_X86_H
#define KI_X86_H

#include "base/cpuid.h"
#include "ir/uop.h"

typedef enum ki_x86_id {
#define KI_X86(id, ...) KI_X_##id,
#include "stages/x86/x86.def"
#undef KI_X86
    KI_X_COUNT
} ki_x86_id;

enum { KI_XE_SSE = 1, KI_XE_VEX = 2, KI_XE_EVEX = 4 }; /* encodings; SSE: legacy, with or without REX */
enum { /* attr */
    KI_XA_RW = 1,        /* operand 0 is read too */
    KI_XA_READS = 2,     /* operand 0 is read only */
    KI_XA_MASK = 4,      /* {k} */
    KI_XA_ZERO = 8,      /* {k}{z} */
    KI_XA_MUST = 16,     /* a gather: {k} may not be left out */
    KI_XA_ROUND = 32,    /* {rn-sae} and so on */
    KI_XA_SAE = 64,      /* {sae} */
    KI_XA_EW = 128,      /* W is EVEX's; VEX has 0 */
    KI_XA_SETS = 256,    /* writes flags */
    KI_XA_FLAGS = 512,   /* reads flags */
    KI_XA_D64 = 1024,    /* 64 bits without REX.W */
    KI_XA_LOCK = 2048,   /* takes the lock prefix */
    KI_XA_FIXED = 4096,  /* uses rax, rdx beside its operands */
    KI_XA_DISTINCT = 8192, /* vector or tile registers must differ */
    KI_XA_BCAST = 16384, /* {1toN}: the memory operand may be one element */
    KI_XA_TWIN = 32768   /* another row is its VEX encoding */
};

/* Operand codes: place, then size. */
typedef enum ki_x86_place { KI_XP_NONE, KI_XP_REG, KI_XP_RM, KI_XP_RMREG, KI_XP_MEM, KI_XP_VSIB, KI_XP_VVVV, KI_XP_OPC, KI_XP_IMM, KI_XP_IS4, KI_XP_CL, KI_XP_JUMP } ki_x86_place;
#define KI_X86_CODES(X)                                                                                                \
    X(Gb, REG, 'b') X(Gw, REG, 'w') X(Gd, REG, 'd') X(Gq, REG, 'q') X(Gv, REG, 'v') X(Gy, REG, 'y')                    \
    X(Eb, RM, 'b') X(Ew, RM, 'w') X(Ed, RM, 'd') X(Eq, RM, 'q') X(Ev, RM, 'v') X(Ey, RM, 'y')                          \
    X(Edb, RM, '1') X(Edw, RM, '2') /* register of 32 bits, memory of 8 or 16 */                                       \
    X(Rd, RMREG, 'd') X(Rq, RMREG, 'q') X(Ry, RMREG, 'y') X(By, VVVV, 'y') X(Oy, OPC, 'y') X(Od, OPC, 'd') X(Oq, OPC, 'q') X(Cl, CL, 'b')\
    X(Vx, REG, 'x') X(Vh, REG, 'h') X(Vn, REG, 'n') X(Vo, REG, 'o') X(Hx, VVVV, 'x') X(Hh, VVVV, 'h') X(Ho, VVVV, 'o')                  \
    X(Wx, RM, 'x') X(Wh, RM, 'h') X(Wn, RM, 'n') X(We, RM, 'e') X(Wo, RM, 'o')                                         \
    X(Ux, RMREG, 'x') X(Uo, RMREG, 'o') X(Lx, IS4, 'x') X(M, MEM, '*') X(My, MEM, 'y') X(Mt, MEM, '#') X(Sx, VSIB, 'x') X(Sh, VSIB, 'h')\
    X(Kg, REG, 'k') X(Kv, VVVV, 'k') X(Km, RM, 'k') X(Ku, RMREG, 'k') X(Tg, REG, 't') X(Tm, RMREG, 't') X(Tv, VVVV, 't')\
    X(Ib, IMM, 'b') /* sign-extended */ X(Ub, IMM, 'u') X(Iz, IMM, 'z') X(Iq, IMM, 'q') X(Jz, JUMP, 'z')
typedef enum ki_x86_code {
    KI_XC_NONE,
#define X(code, place, size) KI_XC_##code,
    KI_X86_CODES(X)
#undef X
        KI_XC_COUNT
} ki_x86_code;
typedef struct ki_x86_code_info {
    uint8_t place;
    char size, name[4];
} ki_x86_code_info;
extern const ki_x86_code_info ki_x86_codes[KI_XC_COUNT];

/* How much memory the memory operand is (and so N of disp8*N). EL: elements of `es` bytes, whatever the length; UNIT: all, N one element. */
typedef enum ki_x86_tuple { KI_XT_NONE, KI_XT_FULL, KI_XT_HALF, KI_XT_QUARTER, KI_XT_EIGHTH, KI_XT_EL1, KI_XT_EL2, KI_XT_EL4, KI_XT_EL8, KI_XT_B16, KI_XT_DUP, KI_XT_UNIT } ki_x86_tuple;

/* Port classes. The masks of ports, for up to 256 bits and for 512, are in table.c. */
#define KI_X86_PORTS(X)                                                                                                \
    X(NONE) X(ALU) X(SHIFT) X(MUL) X(DIV) X(BRANCH) X(LOAD) X(STORE) X(FADD) X(FMA) X(VALU) X(VSHIFT) X(SHUF) X(CROSS) \
    X(FDIV) X(CVT) X(MASK) X(MASK5) X(TOGPR) X(FROMGPR) X(GATHER) X(SCATTER) X(TILE)
typedef enum ki_x86_port {
#define X(p) KI_XR_##p,
    KI_X86_PORTS(X)
#undef X
        KI_XR_COUNT
} ki_x86_port;
typedef struct ki_x86_port_info {
    const char *name;
    uint16_t narrow, wide; /* bit k: port k */
} ki_x86_port_info;
extern const ki_x86_port_info ki_x86_ports[KI_XR_COUNT];

typedef struct ki_x86_form {
    const char *id, *name, *types, *meaning; /* id: the row's, as the arg of INS has it (there in any case); types, meaning: "" where it moves control or state, not values */
    uint8_t op[4];                      /* ki_x86_code */
    uint8_t pp, map, opcode;            /* prefix 0 none, 1 66, 2 F3, 3 F2; map 0 one byte, 1 0F, 2 0F38, 3 0F3A, 5, 6 */
    uint8_t w, ext;                     /* W bit; ModRM.reg where it extends the opcode, 8 none */
    uint8_t enc, lens;                  /* KI_XE_; bit k: 128 << k bits, 0 no vectors */
    uint8_t tuple, es;                  /* memory; size of an element: T1, broadcast, mask */
    uint8_t feat[3];                    /* ki_cpu_feature the SSE, VEX, EVEX encodings need (VL apart) */
    uint8_t lat, port;
    uint16_t attr;
} ki_x86_form;
extern const ki_x86_form ki_x86_forms[KI_X_COUNT];
/* `_Static_assert`s of table.c keep the enum and the array in step. */

/* ---- an instruction ------------------------------------------------------------------------------------------ */

typedef enum ki_x86_kind { KI_XO_NONE, KI_XO_R8, KI_XO_R16, KI_XO_R32, KI_XO_R64, KI_XO_X, KI_XO_Y, KI_XO_Z, KI_XO_K, KI_XO_T, KI_XO_MEM, KI_XO_IMM, KI_XO_LABEL } ki_x86_kind;
enum { KI_X_RAX, KI_X_RCX, KI_X_RDX, KI_X_RBX, KI_X_RSP, KI_X_RBP, KI_X_RSI, KI_X_RDI, KI_X_NOREG = 254, KI_X_RIP = 255 };
typedef enum ki_x86_round { KI_X_RNONE, KI_X_RN, KI_X_RD, KI_X_RU, KI_X_RZ, KI_X_SAE } ki_x86_round;

typedef struct ki_x86_op {
    uint8_t kind;         /* ki_x86_kind */
    uint8_t reg;          /* number; MEM: base, NOREG none, RIP */
    uint8_t index, scale; /* MEM: NOREG none; 1 2 4 8 */
    uint8_t ikind;        /* MEM: X Y Z of a vector index; or of the vector it stands for, where no register says it; else NONE */
    uint8_t size;         /* MEM: bytes; 0: what the form says */
    uint8_t bcast;        /* MEM: one element for all lanes */
    uint32_t label;       /* LABEL, MEM of RIP: of the assembler, 0 none */
    int64_t v;            /* IMM: value; MEM: displacement */
} ki_x86_op;

typedef struct ki_x86_ins {
    uint16_t form; /* ki_x86_id */
    uint8_t enc;   /* KI_XE_, 0: VEX, else EVEX, as operands ask; SSE must be asked for where there is another */
    uint8_t mask;  /* k1 .. k7, 0 none */
    uint8_t zero, round, lock;
    ki_x86_op op[4];
} ki_x86_ins;

static inline ki_x86_op ki_x86_reg(ki_x86_kind kind, unsigned n) { return (ki_x86_op){.kind = (uint8_t)kind, .reg = (uint8_t)n}; }
static inline ki_x86_op ki_x86_imm(int64_t v) { return (ki_x86_op){.kind = KI_XO_IMM, .v = v}; }
static inline ki_x86_op ki_x86_to(uint32_t label) { return (ki_x86_op){.kind = KI_XO_LABEL, .label = label}; }
static inline ki_x86_op ki_x86_mem(unsigned base, unsigned index, unsigned scale, int32_t disp) {
    return (ki_x86_op){.kind = KI_XO_MEM, .reg = (uint8_t)base, .index = (uint8_t)index, .scale = (uint8_t)scale, .v = disp};
}
static inline ki_x86_op ki_x86_at(uint32_t label) { /* rip-relative */
    return (ki_x86_op){.kind = KI_XO_MEM, .reg = KI_X_RIP, .index = KI_X_NOREG, .scale = 1, .label = label};
}

/* What it reads and writes beside memory; a memory operand's base and index are read whatever stands here. */
typedef struct ki_x86_access {
    uint8_t reads, writes;              /* bit k: operand k */
    uint32_t fixed_reads, fixed_writes; /* bit r: general register r, which no operand names */
    bool reads_flags, writes_flags;
    bool writes_mask; /* a gather empties {k} */
} ki_x86_access;
ki_x86_access ki_x86_access_of(const ki_x86_ins *i); /* access.c; nothing for what cannot be encoded */

/* ---- reading the table ---------------------------------------------------------------------------------------- */

/* First form of that mnemonic (without `v` for SSE rows too) from `from` on; KI_X_COUNT if none. */
ki_x86_id ki_x86_named(const char *name, ki_x86_id from);
/* The row of that id, in any case; NULL: none. A hashed table. */
const ki_x86_form *ki_x86_row(const char *id);
const char *ki_x86_name(const ki_x86_form *f, unsigned enc); /* without the v in the SSE encoding */
/* Features the form needs in an encoding at a vector length (0 128, 1 256, 2 512), one bit each. */
uint64_t ki_x86_needs(const ki_x86_form *f, unsigned enc, unsigned len);
/* Bytes of its memory operand at that length; 0: any (lea, prefetch), or by the operand's own size. */
unsigned ki_x86_mem_bytes(const ki_x86_form *f, unsigned len, bool bcast);

/* ---- meaning (meaning.c) -------------------------------------------------------------------------------------- */

/* The rule that says what a form means, as text: `name : tuple(sources) => meaning`. False: it has none. */
bool ki_x86_meaning_text(const ki_x86_form *f, ki_text *out);
/* dtype of lane k of `types`: 0 the result, 1 a, ... */
kn_dtype ki_x86_dtype(const ki_x86_form *f, unsigned k);
/* Names of its sources in order: d if it is read, a, b, c, i if it has an immediate, k if its meaning names it. Their number. */
unsigned ki_x86_sources(const ki_x86_form *f, char name[8]);
/* The form's value over those sources; the result has `lanes` lanes. NULL: it has no meaning, or env says why. */
kn_uop ki_x86_meaning(ki_ir *ir, const ki_x86_form *f, const kn_uop *src, unsigned nsrc, unsigned lanes);
/* The same for INS(sources; "row"), dtype and shape checked: what env->ins is set to. Registers know no dtype: a source or
 * result of another dtype of the row's width is read by its bits, and a row that works bit by bit (and, or, xor, andn,
 * vpternlog) has lanes of any width; on mask registers, lanes of bool. */
kn_uop ki_x86_understand(ki_ir *ir, kn_uop u);
/* The same as text, for the prover (a ki_ins_meaning of rules.h). */
bool ki_x86_ins_meaning(const char *row, kn_dtype lanes, ki_text *out, kn_dtype *result);

#endif
