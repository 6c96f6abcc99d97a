/* machine.h: a slow machine that runs a kernel after *expand*: ki_linearize, then instruction by instruction
 * over shaped values. It checks every access against the size of its buffer, and poisons REG buffers, so that
 * a kernel which reads what it has not written gives a wrong answer. For tests of stages 3 and 4. */
#ifndef MACHINE_H
#define MACHINE_H

#include "ir/scalar.h"
#include "ir/uop.h"
#include "stages/6_linearize/linearize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mach_mem {
    unsigned char *data;
    int64_t size;
    kn_dtype dtype;
} mach_mem;
typedef struct mach {
    ki_ir *ir;
    mach_mem *param; /* by slot */
    mach_mem *mem;   /* by id: storage a node stands for */
    uint64_t **val;  /* by id */
    int bad;
    long steps;
} mach;

static int64_t mach_broadcast(kn_uop of, kn_uop in, int64_t i) {
    /* element of `in` for flat element i of the shape of `of` */
    int64_t at = 0, stride = 1, rest = i;
    if (ki_rank(in) == 0) return 0;
    for (unsigned k = ki_rank(of); k-- > 0;) {
        int64_t c = rest % ki_dim_n(of, k);
        rest /= ki_dim_n(of, k);
        if (ki_dim_n(in, k) > 1) at += c * stride;
        stride *= ki_dim_n(in, k);
    }
    return at;
}
/* Flat element of u's source that element i of u is: of an INDEX of a value by lists, or a PERMUTE. */
static int64_t mach_moved(const mach *m, kn_uop u, int64_t i) {
    kn_uop a = u->src[0];
    int64_t c[KI_MAX_RANK] = {0}, at = 0;
    for (unsigned k = ki_rank(u); k-- > 0; i /= ki_dim_n(u, k)) {
        int64_t x = i % ki_dim_n(u, k);
        if (u->op == KN_PERMUTE) c[u->arg.ints->v[k]] = x;
        else c[k] = k + 1 < u->nsrc ? (int64_t)m->val[u->src[k + 1]->id][x] : x;
    }
    for (unsigned k = 0; k < ki_rank(a); k++) at = at * ki_dim_n(a, k) + c[k];
    return at;
}
static int mach_fault(mach *m, kn_uop u, const char *why, long long at) {
    if (!m->bad) printf("# machine: %%%u %s: %s %lld\n", u->id, ki_ops[u->op].name, why, at);
    return m->bad = 1;
}

static void mach_value(mach *m, kn_uop u) {
    int64_t n = ki_numel(u);
    uint64_t *v = m->val[u->id];
    kn_uop a = u->nsrc ? u->src[0] : NULL;
    if (!v) v = m->val[u->id] = calloc((size_t)(n ? n : 1), sizeof *v);
    switch ((kn_op)u->op) {
    case KN_CONST: v[0] = u->arg.bits; return;
    case KN_PARAM:
        if (u->arg.param->slot >= 0) m->mem[u->id] = m->param[u->arg.param->slot];
        return;
    case KN_BUFFER: {
        mach_mem *x = &m->mem[u->id];
        if (!x->data) {
            x->size = u->arg.buffer->size;
            x->dtype = (kn_dtype)u->dtype;
            x->data = malloc((size_t)x->size * 8 + 8);
            memset(x->data, 0x7f, (size_t)x->size * 8);
        }
        return;
    }
    case KN_AFTER:
        m->mem[u->id] = m->mem[a->id];
        if (!m->mem[a->id].data) memcpy(v, m->val[a->id], (size_t)n * 8);
        return;
    case KN_INDEX:
        m->mem[u->id] = m->mem[a->id];
        for (int64_t i = 0; i < n; i++)
            v[i] = m->mem[a->id].data ? m->val[u->src[1]->id][i] : m->val[a->id][mach_moved(m, u, i)];
        return;
    case KN_PERMUTE:
        for (int64_t i = 0; i < n; i++) v[i] = m->val[a->id][mach_moved(m, u, i)];
        return;
    case KN_LOAD:
    case KN_STORE: {
        mach_mem *x = &m->mem[a->id];
        if (u->op == KN_STORE) n = ki_numel(a);
        kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (int64_t)m->val[a->id][i];
            if (gate && !m->val[gate->id][mach_broadcast(a, gate, i)]) {
                if (u->op == KN_LOAD) v[i] = m->val[u->src[1]->id][mach_broadcast(a, u->src[1], i)];
                continue;
            }
            if (at < 0 || at >= x->size) {
                mach_fault(m, u, "out of bounds", at);
                return;
            }
            if (u->op == KN_LOAD) v[i] = ki_storage_get(x->dtype, x->data, at);
            else ki_storage_put(x->dtype, x->data, at, m->val[u->src[1]->id][mach_broadcast(a, u->src[1], i)]);
        }
        return;
    }
    case KN_RESHAPE: memcpy(v, m->val[a->id], (size_t)n * 8); return;
    case KN_STACK:
        for (uint32_t k = 0; k < u->nsrc; k++)
            memcpy(v + k * ki_numel(a), m->val[u->src[k]->id], (size_t)ki_numel(a) * 8);
        return;
    case KN_REDUCE: {
        kn_dtype in[2] = {(kn_dtype)u->dtype, (kn_dtype)u->dtype};
        if (u->nsrc != 1) mach_fault(m, u, "ranges left", 0);
        for (int64_t i = 0; i < n; i++) v[i] = ki_scalar_identity((kn_op)u->arg.reduce.op, in[0], true);
        for (int64_t i = 0; i < ki_numel(a); i++) {
            int64_t at = mach_broadcast(a, u, i);
            uint64_t w[2] = {v[at], m->val[a->id][i]};
            ki_scalar((kn_op)u->arg.reduce.op, in[0], in, w, &v[at]);
        }
        return;
    }
    default: break;
    }
    if (ki_is_elementwise((kn_op)u->op)) {
        kn_dtype in[3];
        uint64_t w[3];
        for (int64_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < u->nsrc; k++) {
                in[k] = (kn_dtype)u->src[k]->dtype;
                w[k] = m->val[u->src[k]->id][mach_broadcast(u, u->src[k], i)];
            }
            if (!ki_scalar((kn_op)u->op, (kn_dtype)u->dtype, in, w, &v[i])) mach_fault(m, u, "no value", i);
        }
    }
}

/* Where it goes on once the loops of an END from source k on have finished: with the next iteration of one before, or behind. */
static uint32_t mach_next(mach *m, kn_uop end, uint32_t k, uint32_t at, const uint32_t *pc_of) {
    while (k-- > 1) {
        kn_uop r = end->src[k];
        if ((int64_t)++m->val[r->id][0] < (int64_t)m->val[r->src[0]->id][0]) return pc_of[r->id];
    }
    return at;
}

/* Runs an expanded kernel; false on a fault. */
__attribute__((unused)) static bool mach_run(ki_ir *ir, kn_uop sink, mach_mem *param) {
    kn_uop lin = ki_linearize(ir, sink);
    if (!lin || lin->src[0]->op != KN_LINEAR)
        return printf("# linearize failed: %s\n", ir->env->message.s ? ir->env->message.s : ""), false;
    lin = lin->src[0];
    mach m = {ir, param, calloc(ir->n, sizeof *m.mem), calloc(ir->n, sizeof *m.val), 0, 0};
    uint32_t *pc_of = calloc(ir->n, sizeof *pc_of), *end_of = calloc(ir->n, sizeof *end_of);
    for (uint32_t pc = 0; pc < lin->nsrc; pc++) {
        kn_uop u = lin->src[pc];
        pc_of[u->id] = pc;
        if (u->op == KN_END)
            for (uint32_t k = 1; k < u->nsrc; k++) end_of[u->src[k]->id] = pc;
    }
    for (uint32_t pc = 0; pc < lin->nsrc && !m.bad; pc++) {
        kn_uop u = lin->src[pc];
        if (++m.steps > 400000000) mach_fault(&m, u, "too many steps", 0);
        if (u->op == KN_RANGE) {
            if (!m.val[u->id]) m.val[u->id] = calloc(1, 8);
            m.val[u->id][0] = 0;
            /* a loop that does not run: as if it had finished */
            if ((int64_t)m.val[u->src[0]->id][0] <= 0) {
                kn_uop end = lin->src[pc = end_of[u->id]];
                uint32_t k = 1;
                while (end->src[k] != u) k++;
                pc = mach_next(&m, end, k, pc, pc_of);
            }
        } else if (u->op == KN_END) {
            pc = mach_next(&m, u, u->nsrc, pc, pc_of);
        } else if (u->op == KN_BUFFER && m.mem[u->id].data) {
            continue;
        } else {
            mach_value(&m, u);
        }
    }
    for (uint32_t i = 0; i < ir->n && i < lin->id + 1; i++) {
        free(m.val[i]);
        if (ir->node[i] && i && ir->node[i]->op == KN_BUFFER) free(m.mem[i].data);
    }
    free(m.mem);
    free(m.val);
    free(pc_of);
    free(end_of);
    return !m.bad;
}

#endif
