/* eval_kernel.h: a kernel on its way to instructions. Private to eval_kernel.c (order), eval_emit.c (instructions). */
#ifndef KI_EVAL_KERNEL_H
#define KI_EVAL_KERNEL_H

#include "ir/eval_vm.h"

typedef struct ki_code_list {
    ki_instr *v;
    size_t n, cap;
} ki_code_list;

typedef struct ki_region { /* the inside of one loop, or of the kernel */
    struct ki_region *parent;
    uint32_t uid, range, counter, bound; /* range: its number; slots */
    ki_code_list code;
} ki_region;

typedef struct ki_comp {
    ki_ir *ir;
    ki_env *env;
    ki_vm *vm;
    kn_uop call; /* NULL: a bare kernel */
    kn_uop *order;
    int64_t count;
    uint32_t *pos;  /* by id: 1 + place */
    uint32_t *slot; /* by place: where the value stands */
    uint32_t *mem;  /* by place: memory a node is or points into, KI_NOSLOT: it is a value */
    uint32_t *inst; /* by place: uid of the region that holds the value, 0: none */
    uint32_t *rank; /* by place: number of a RANGE */
    uint64_t *freeset;
    uint32_t words, nrange, uids;
    size_t cap_const, cap_var, cap_mem, cap_table, cap_extract, cap_special;
} ki_comp;

static inline uint32_t ki_place(const ki_comp *c, kn_uop u) { return c->pos[u->id] - 1; }
static inline uint32_t ki_lanes(kn_uop u) { return (uint32_t)u->type->numel; }
bool ki_comp_fail(ki_comp *c, kn_uop u, const char *why);
/* Fresh slots. KI_NOSLOT: too many (recorded). */
uint32_t ki_comp_slots(ki_comp *c, uint64_t lanes);
ki_instr *ki_comp_emit(ki_comp *c, ki_code_list *l, kn_uop u, ki_code code); /* NULL: out of memory */
/* Memory of PARAM, BUFFER, SLICE, AFTER ...: fills mem[]. */
bool ki_comp_memory(ki_comp *c, kn_uop u);
/* Constants, variables, specials: their slot, no instruction. *leaf: u was one. */
bool ki_comp_leaf(ki_comp *c, kn_uop u, bool *leaf);
/* The instructions of one node whose sources have their slots. Loops and REDUCEs over ranges are not for it. */
bool ki_comp_node(ki_comp *c, ki_code_list *l, kn_uop u);
void ki_comp_fold(ki_instr *i, kn_uop reduce);  /* i combines two values as this REDUCE does */
bool ki_is_address(const ki_comp *c, kn_uop u); /* INDEX into memory */

#endif
