/* access.c: what an instruction reads and writes. See x86.h; tests/7_plan/test_x86_access.c holds it against the processor. */
#include "stages/8_render/x86/encode.h"

#define RAX (1u << KI_X_RAX)
#define RDX (1u << KI_X_RDX)

/* Registers that are named by no operand, and operands that are written beside the first. */
static void special(ki_x86_id form, ki_x86_access *a) {
    switch (form) {
    case KI_X_CDQ:
    case KI_X_CQO: a->fixed_reads = RAX, a->fixed_writes = RDX; break;
    case KI_X_MUL:
    case KI_X_IMUL1: a->fixed_reads = RAX, a->fixed_writes = RAX | RDX; break;
    case KI_X_DIV:
    case KI_X_IDIV: a->fixed_reads = a->fixed_writes = RAX | RDX; break;
    case KI_X_CMPXCHG: a->fixed_reads = a->fixed_writes = RAX; break;
    case KI_X_XADD: a->writes |= 2; break;
    case KI_X_MULX: a->fixed_reads = RDX, a->writes |= 2, a->reads &= (uint8_t)~2; break;
    default: break;
    }
}

ki_x86_access ki_x86_access_of(const ki_x86_ins *i) {
    ki_x86_access a = {0};
    uint8_t code[4];
    unsigned enc, len, all = 0;
    if (ki_x86_choose(i, &enc, &len)) return a;
    const ki_x86_form *f = &ki_x86_forms[i->form];
    unsigned n = ki_x86_operands(f, enc, code), kind = i->op[0].kind;
    while (all < 4 && f->op[all]) all++;
    bool reads = f->attr & KI_XA_READS, into = n && !reads;
    /* SSE's destination stands for a source; a narrow register keeps its upper part; merging keeps lanes. */
    bool keeps = n < all || kind == KI_XO_R8 || kind == KI_XO_R16 || (i->mask && !i->zero && kind != KI_XO_K);
    a.writes = into;
    a.reads = (uint8_t)(((1u << n) - 1) & ~(unsigned)into);
    if (into && (f->attr & KI_XA_RW || keeps)) a.reads |= 1;
    if (f->port == KI_XR_GATHER && enc == KI_XE_VEX) a.writes |= 4;
    a.writes_mask = f->attr & KI_XA_MUST;
    a.reads_flags = f->attr & KI_XA_FLAGS;
    a.writes_flags = f->attr & KI_XA_SETS;
    special((ki_x86_id)i->form, &a);
    return a;
}
