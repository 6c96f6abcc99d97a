/* prepare.c: host functions of prepare.kr. */
#include "stages/2_rangeify/push.h"

enum { MOST_CHUNKS = 64 };

/* n elements of t from `from` on along axis `at`. */
static kn_uop part_of(ki_ir *ir, kn_uop t, unsigned at, int64_t from, int64_t n) {
    int64_t offset[KI_MAX_RANK] = {0}, dim[KI_MAX_RANK];
    for (unsigned k = 0; k < t->type->rank; k++) dim[k] = t->type->dim[k].n;
    offset[at] = from;
    dim[at] = n;
    return ki_shrink(ir, t, offset, dim);
}

/* REDUCE to fewer than 8 values: the longest reduced axis n becomes (c, n / c), c the largest divisor up to 64; the inner
 * REDUCE is stored. An axis that has no such divisor leaves less than 64 behind, which the outer REDUCE's kernel adds.
 * How it is cut depends on the shape alone, so results do not depend on the number of threads. */
kn_uop ki_prepare_chunks(ki_match *m) {
    ki_ir *ir = m->ir;
    kn_uop u = m->root, t = u->src[0], rest = NULL;
    uint32_t axes = u->arg.reduce.axes, inner = 0;
    const ki_prepare *o = m->user;
    int64_t dim[KI_MAX_RANK], n = 0, c = 0;
    unsigned at = 0, rank = t->type->rank;
    if (u->nsrc != 1 || t->type->numel < o->least || u->type->numel >= 8 || t->type->symbolic || rank + 1 > KI_MAX_RANK)
        return NULL;
    for (unsigned k = 0; k < rank; k++)
        if (axes >> k & 1 && t->type->dim[k].n > n) n = t->type->dim[k].n, at = k;
    for (int64_t k = o->chunks > 2 ? o->chunks : 2; k <= MOST_CHUNKS; k++)
        if (n % k == 0) c = k;
    if (n == c || (c == 0 && n <= MOST_CHUNKS)) return NULL;
    if (c == 0) {
        c = MOST_CHUNKS;
        rest = ki_reduce(ir, part_of(ir, t, at, n - n % c, n % c), (kn_op)u->arg.reduce.op, axes);
        t = part_of(ir, t, at, 0, n -= n % c);
        if (!rest || !t) return NULL;
    }
    for (unsigned k = 0; k <= rank; k++) {
        dim[k] = k < at ? t->type->dim[k].n : k == at ? c : k == at + 1 ? n / c : t->type->dim[k - 1].n;
        bool reduced = k < at ? axes >> k & 1 : k == at ? false : axes >> (k - 1) & 1;
        inner |= (uint32_t)reduced << k;
    }
    ki_load l = {.device = u->type->device, .addrspace = KN_GLOBAL};
    const void *p = ki_intern(ir, &l, sizeof l);
    kn_uop part = ki_reduce(ir, ki_reshape(ir, t, dim, rank + 1), (kn_op)u->arg.reduce.op, inner);
    kn_uop kept = part && p ? ki_make(ir, KN_LOAD, KN_VOID, &part, 1, (kn_arg){.p = p}, 0) : NULL;
    kn_uop whole = kept ? ki_reduce(ir, kept, (kn_op)u->arg.reduce.op, UINT32_C(1) << at) : NULL;
    for (unsigned k = 0; k < rank; k++) dim[k] = u->type->dim[k].n;
    whole = whole ? ki_reshape(ir, whole, dim, rank) : NULL;
    return rest ? ki_op2(ir, (kn_op)u->arg.reduce.op, whole, rest) : whole;
}
