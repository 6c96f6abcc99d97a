/* eval_vm.h: the instructions a kernel becomes. Private to eval_kernel.c (makes them), eval_vm.c (runs them)
 * and eval_reach.c (asks where they lead).
 *
 * A value is `lanes` consecutive 8-byte slots of one frame. Loops are RANGE ... END by jump; all else is in line. */
#ifndef KI_EVAL_VM_H
#define KI_EVAL_VM_H

#include "ir/eval_impl.h"

typedef enum ki_code {
    KI_V_RANGE,   /* slot dst = 0; if the bound a is not positive go behind the END at jump */
    KI_V_END,     /* next value of the RANGE at jump, or fall out */
    KI_V_IF,      /* unless a go to jump */
    KI_V_APPLY,   /* dst = op(a, b, c) */
    KI_V_PICK,    /* dst[l] = a[table[l]], 0 where the table has -1 */
    KI_V_COPY,    /* dst[0..lanes) = a[0..lanes) */
    KI_V_LOAD,    /* dst = mem[a], b the alternative, c the gate (NOSLOT: none) */
    KI_V_STORE,   /* mem[a] = b where c */
    KI_V_ATOMIC,  /* mem[a] += b */
    KI_V_ACC0,    /* dst = identity of the reduction; slot b = 0 */
    KI_V_ACC,     /* dst = op(dst, a); slot b = 1 */
    KI_V_ACCEND,  /* dst = the empty reduction's value unless slot b */
    KI_V_LREDUCE, /* dst[l] = reduction of a over the table's lanes: lanes groups of `extra` entries */
    KI_V_EXTRACT, /* INDEX of a value by dynamic indices, see ki_extract */
    KI_V_CONVERT, /* dst = BITCAST of a across sizes */
} ki_code;

#define KI_NOSLOT UINT32_MAX

typedef struct ki_instr {
    uint8_t code, dtype, one; /* one: all operands have a single lane */
    uint8_t sa, sb, sc;       /* strides of a, b, c */
    uint32_t lanes, dst, a, b, c;
    uint32_t mem, jump;
    uint32_t table, extra; /* into tables */
    uint32_t op, node;     /* for messages and reductions */
    ki_apply ap;
} ki_instr;

typedef struct ki_extract { /* EXTRACT: c is its place in `extracts` */
    unsigned rank, nindex;
    int64_t dim[KI_MAX_RANK];
    uint32_t index[KI_MAX_RANK]; /* slots */
    int64_t count[KI_MAX_RANK];  /* lanes of each index, or the axis itself */
} ki_extract;

typedef struct ki_mem {
    uint8_t dtype, space; /* kn_addrspace */
    uint16_t pad;
    uint32_t slot;   /* argument, or KI_NOSLOT: the vm's own */
    int64_t size;    /* elements; of an argument at most its bytes */
    int64_t offset;  /* bytes */
    uint32_t parent; /* a SLICE: memory it lies in */
} ki_mem;

typedef struct ki_fixed {  /* set before the kernel starts */
    uint32_t slot, source; /* source: index of a variable or special */
    uint64_t value;
} ki_fixed;

typedef struct ki_special {
    uint32_t slot, bound; /* slots; the bound is a constant or a variable's slot */
    bool local;           /* index within a workgroup */
} ki_special;

struct ki_vm {
    ki_instr *code;
    size_t n;
    ki_mem *mem;
    uint32_t nmem;
    int32_t *tables;
    size_t ntable;
    ki_extract *extracts;
    size_t nextract;
    ki_fixed *consts, *vars;
    size_t nconst, nvar;
    ki_special *special;
    size_t nspecial;
    uint32_t prologue; /* instructions that compute the bounds of specials */
    uint32_t nslot, nargs, ntrailing;
    bool barrier;
};

/* eval_vm.c: has each PARAM slot's argument, of so many bytes, room for what the kernel takes it for? */
bool ki_vm_fits(const ki_vm *vm, ki_env *env, const int64_t *bytes);
/* The same: the slot that lane l of an EXTRACT is. False: there is none, env says so. */
bool ki_vm_lane(const ki_vm *vm, ki_env *env, const ki_instr *i, const uint64_t *slot, uint32_t l, uint32_t *from);
/* eval_reach.c: does the kernel stay in its memory, as far as loops and variables (var NULL: not these) alone say where it goes? */
bool ki_vm_stays(const ki_vm *vm, ki_env *env, const int64_t *var);

#endif
