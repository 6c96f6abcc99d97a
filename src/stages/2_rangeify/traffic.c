/* traffic.c: the memory that kernels touch: what a schedule moves is each buffer once for each kernel that reads it, once for
 * each that writes it. */
#include "stages/2_rangeify/rangeify.h"

/* The product of the extents of its ranges, at most all of it. */
int64_t ki_range_touched(ki_ir *ir, kn_uop index) {
    const kn_uop *node;
    int64_t n = ki_reach_above(ir, &index->src[1], index->nsrc - 1, 0, &node), count = 1,
            size = ki_numel(index->src[0]);
    for (int64_t i = 0; i < n; i++)
        if (node[i]->op == KN_RANGE && count < INT64_C(1) << 40) count *= node[i]->hi.i + 1;
    return n < 0 ? -1 : (count < size ? count : size) * (int64_t)ki_itemsize((kn_dtype)index->dtype);
}

ki_traffic ki_count_traffic(const ki_program *p, ki_traffic_each *each, void *user) {
    ki_traffic t = {0};
    for (uint32_t c = 0; c < p->root->nsrc; c++) {
        kn_uop call = p->root->src[c], *order;
        if (call->op != KN_CALL) continue;
        int64_t n = ki_toposort(p->ir, &call->src[0], 1, &order);
        int64_t *read = ki_calloc(call->nsrc, sizeof *read), *write = ki_calloc(call->nsrc, sizeof *write);
        for (int64_t i = 0; read && write && i < n; i++) {
            kn_uop u = order[i];
            for (uint32_t k = 0; k < u->nsrc; k++) {
                kn_uop x = u->src[k];
                kn_uop to = x->op == KN_INDEX ? x->src[0] : x;
                while (to->op == KN_AFTER) to = to->src[0]; /* something is stored before (inside.c) */
                if (x->op != KN_INDEX || to->op != KN_PARAM) continue;
                int32_t slot = to->arg.param->slot;
                if (slot < 0 || slot + 1 >= (int32_t)call->nsrc) continue;
                int64_t bytes = ki_range_touched(p->ir, x);
                int64_t *side = u->op == KN_STORE && k == 0 ? &write[slot + 1] : &read[slot + 1];
                if (bytes > *side) *side = bytes;
            }
        }
        for (uint32_t k = 0; read && write && k < call->nsrc; k++) {
            t.bytes += read[k] + write[k];
            if (each && k) each(user, call->src[k], read[k], write[k]);
        }
        t.kernels++;
        ki_free(order);
        ki_free(read);
        ki_free(write);
    }
    return t;
}
