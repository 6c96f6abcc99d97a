/* select.c: stage 5 as a sequence of steps. See select.h. */
#include "stages/5_select/select.h"

kn_uop ki_select(ki_ir *ir, const ki_target *t, kn_uop sink) {
    if (!sink) return NULL;
    kn_uop s = ki_devectorize(ir, t, sink);
    if (s) s = ki_decompose(ir, t, s);
    if (s) s = ki_lower_index(ir, t, s);
    if (s && t->native) s = ki_lack(ir, t->level, s);
    return s && t->native ? ki_select_x86(ir, t, s) : s;
}
