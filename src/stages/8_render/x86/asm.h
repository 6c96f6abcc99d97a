/* asm.h: instructions in a row: labels, a pool of constants behind the code, alignment.
 *
 * Once something fails it stays failed (env says what) and later calls do nothing: a writer checks once, at the end. Memory is
 * reserved by doubling; writing an instruction allocates nothing else. A jump back is short where it reaches; a jump
 * forward always has 32 bits. */
#ifndef KI_X86_ASM_H
#define KI_X86_ASM_H

#include "stages/8_render/x86/encode.h"
#include "stages/8_render/x86/native.h"

typedef struct ki_asm_fix { /* 4 bytes at `at` become label - end */
    size_t at, end;
    uint32_t label;
} ki_asm_fix;

typedef struct ki_asm {
    ki_env *env;
    uint64_t features; /* ki_cpu_features of the machine the code is for */
    uint8_t *code;
    size_t n, cap;
    size_t *label; /* by label: its offset, SIZE_MAX unbound; [0] unused */
    uint32_t nlabel, label_cap;
    ki_asm_fix *fix;
    size_t nfix, fix_cap;
    struct ki_asm_const {
        uint32_t label, at; /* at: in pool */
        uint32_t n;
    } * konst; /* open addressing by content; label 0 free */
    uint32_t nkonst, konst_cap;
    uint8_t *pool;
    size_t npool, pool_cap;
    bool failed;
    ki_text *listing; /* NULL: none is wanted */
    ki_text note;     /* with a listing: goes behind the next instruction */
    uint32_t said;    /* the step (ir/history.h) that the listing last named */
    ki_x86_counts counts;
} ki_asm;

void ki_asm_open(ki_asm *a, ki_env *env, uint64_t features);
void ki_asm_close(ki_asm *a);

uint32_t ki_asm_label(ki_asm *a);            /* a fresh one; 0 failed */
void ki_asm_bind(ki_asm *a, uint32_t label); /* here; once a label */
/* Without an encoding asked for, SSE is taken where the features have no AVX. What they lack is refused. */
void ki_asm_ins(ki_asm *a, const ki_x86_ins *i);
/* The same in short: no mask, encoding by the operands. */
void ki_asm_put(ki_asm *a, ki_x86_id form, ki_x86_op x, ki_x86_op y, ki_x86_op z);
/* Nops up to a multiple of `to` (a power of two up to 64). */
void ki_asm_align(ki_asm *a, unsigned to);
/* Label of n bytes (1 to 64, a power of two) in the pool, aligned to n; equal bytes stand there once. */
uint32_t ki_asm_const(ki_asm *a, const void *bytes, unsigned n);
/* Puts the pool behind the code and fills in what was open. a->code[0..a->n) can then run from any place aligned to 64. */
KI_NODISCARD bool ki_asm_finish(ki_asm *a);

#endif
