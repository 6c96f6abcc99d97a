/* kept.c: see kept.h. */
#include "stages/5_select/kept.h"

#define MOST_RANGES 32

kn_uop ki_keep_in(const ki_scope *s, kn_uop v, kn_uop buffer, kn_uop but, kn_uop *lanes) {
    ki_ir *ir = s->ir;
    kn_uop lane[KI_KEPT_LANES], from[MOST_RANGES + 1] = {buffer};
    int64_t step = 1, dim[KI_MAX_RANK];
    uint32_t m = 1;
    *lanes = ki_rank(v) ? NULL : ki_index(ir, 0);
    for (unsigned a = 0; a < ki_rank(v); step *= ki_dim_n(v, a++)) {
        for (unsigned b = 0; b < ki_rank(v); b++) dim[b] = b == a ? ki_dim_n(v, a) : 1;
        for (int64_t i = 0; i < dim[a]; i++) lane[i] = ki_index(ir, i * step);
        if (dim[a] == 1 && (*lanes || a + 1 < ki_rank(v))) continue;
        kn_uop list = ki_reshape(ir, ki_opn(ir, KN_STACK, lane, (uint32_t)dim[a]), dim, ki_rank(v));
        *lanes = *lanes ? ki_op2(ir, KN_ADD, *lanes, list) : list;
    }
    for (uint32_t q = 0; q < s->nrange && m <= MOST_RANGES; q++)
        if (s->range[q] != but && (ki_scope_has(s, v, s->range[q]) || s->range[q]->arg.range.axis == KN_AX_THREAD))
            from[m++] = s->range[q];
    return m > 1 ? ki_opn(ir, KN_AFTER, from, m) : buffer;
}
