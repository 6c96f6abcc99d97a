/* select.c: stage 5 as a sequence of steps. See select.h. */
#include "stages/5_select/select.h"

kn_uop ki_select(ki_ir *ir, const ki_target *t, kn_uop sink) {
    if (!sink) return NULL;
    kn_uop s = sink;
    if (!t->native) {
        s = ki_devectorize(ir, t, s);
        if (s) s = ki_decompose(ir, t, s);
        return s ? ki_lower_index(ir, t, s) : NULL;
    }
    /* First what is wide on the way, so that lanes are as many as the widest of it leaves room for in a register; what
     * lanes and index arithmetic then make may lack instructions again. */
    s = ki_decompose(ir, t, ki_tile_sums(ir, t, s));
    if (s) s = ki_branch_rare(ir, t, s);
    if (s) s = ki_lack(ir, t->level, s);
    if (s) s = ki_cut_chains(ir, t, s);
    if (s) s = ki_devectorize(ir, t, s);
    if (s) s = ki_read_words(ir, t, s);
    if (s) s = ki_lower_index(ir, t, s);
    if (s) s = ki_lack(ir, t->level, s);
    return s ? ki_select_x86(ir, t, s) : NULL;
}
