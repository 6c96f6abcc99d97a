/* blame.h: which op made elements of a program exempt. Every value is evaluated with its bounds; an op is to blame where
 * some of its elements are exempt and none of its operands has one that is. An output's exempt elements are put down to
 * the first such op below it. */
#ifndef BLAME_H
#define BLAME_H

#include "data.h"
#include "ir/eval_impl.h"

#include <stdio.h>

typedef struct blamed {
    double *bound;
    void *value;
    int64_t n, exempt;
    bool value_of; /* could be an output */
    bool born;
} blamed;

/* The values of p that could be outputs: all but sizes, stores and what stands in a function's body. */
static void mark_values(const ki_program *p, kn_uop *order, int64_t count, blamed *b) {
    b[p->root->id].value_of = true;
    for (int64_t i = count; i-- > 0;) {
        kn_uop u = order[i];
        if (!b[u->id].value_of) continue;
        for (uint32_t k = u->op == KN_FUNCTION ? 1 : 0; k < u->nsrc; k++)
            if (ki_data_source(u, k)) b[u->src[k]->id].value_of = true;
    }
    for (int64_t i = 0; i < count; i++) {
        kn_uop u = order[i];
        if (u->dtype == KN_VOID || u->dtype == KN_IDX || u->op == KN_AFTER) b[u->id].value_of = false;
    }
}

/* Evaluates up to PORTS values at once: several programs over the inputs of p. */
static bool evaluate_values(const ki_program *p, const arrays *d, kn_uop *order, int64_t count, blamed *b) {
    for (int64_t i = 0; i < count;) {
        ki_program q = {.ir = p->ir, .stage = KI_S_TENSOR, .in = p->in, .nin = p->nin};
        void *out[PORTS];
        double *bound[PORTS];
        kn_uop node[PORTS];
        uint32_t n = 0;
        for (; i < count && n < PORTS; i++) {
            blamed *v = &b[order[i]->id];
            if (!v->value_of || !ki_program_port(&q, true, "v", 1, order[i])) continue;
            v->n = ki_numel(order[i]);
            out[n] = v->value = array_new((size_t)v->n * ki_itemsize((kn_dtype)order[i]->dtype));
            bound[n] = v->bound = calloc((size_t)v->n + 1, sizeof(double));
            node[n++] = order[i];
        }
        bool ok = n == 0 || ((q.root = ki_opn(p->ir, KN_SINK, node, n)) != NULL &&
                             ki_eval(&q, (const void *const *)d->in, out, &(ki_eval_opts){.bound = bound}) == KI_OK);
        q.in = NULL, q.nin = 0;
        ki_program_free(&q);
        if (!ok) return false;
    }
    return true;
}

static void describe(kn_uop u, const blamed *b) {
    const blamed *v = &b[u->id];
    int64_t at = 0;
    while (v->bound[at] != INFINITY) at++;
    printf("%s.%s = %g of", ki_ops[u->op].name, ki_dtypes[u->dtype].name,
           ki_f64_from_bits((kn_dtype)u->dtype, ki_storage_get((kn_dtype)u->dtype, v->value, at)));
    for (uint32_t k = 0; k < u->nsrc; k++) {
        kn_uop s = u->src[k];
        if (!b[s->id].value_of) continue;
        if (b[s->id].n != v->n && b[s->id].n != 1) {
            printf(" [%lld]", (long long)b[s->id].n);
            continue;
        }
        int64_t i = b[s->id].n == 1 ? 0 : at;
        printf(" %.9g.%s(%.3g)",
               ki_f64_from_bits((kn_dtype)s->dtype, ki_storage_get((kn_dtype)s->dtype, b[s->id].value, i)),
               ki_dtypes[s->dtype].name, b[s->id].bound[i]);
    }
}

/* Adds the exempt elements of p's outputs to count, by the op to blame; verbose: a line each. */
static void blame(const ki_program *p, const arrays *d, uint64_t seed, int64_t count[KI_OP_COUNT], bool verbose) {
    kn_uop *order;
    blamed *b = calloc(p->ir->n + 8, sizeof *b);
    int64_t n = ki_toposort(p->ir, &p->root, 1, &order);
    uint32_t ids = p->ir->n;
    if (n < 0 || !b) return;
    mark_values(p, order, n, b);
    if (evaluate_values(p, d, order, n, b))
        for (int64_t i = 0; i < n; i++) {
            blamed *v = &b[order[i]->id];
            bool below = false;
            for (int64_t j = 0; v->value_of && j < v->n; j++) v->exempt += v->bound[j] == INFINITY;
            for (uint32_t k = 0; k < order[i]->nsrc; k++) below |= b[order[i]->src[k]->id].exempt != 0;
            if (!v->value_of) v->exempt = below;
            v->born = v->exempt && !below;
        }
    for (size_t i = 0; i < p->nout; i++) {
        kn_uop *part, u = p->out[i].node, first = NULL;
        int64_t exempt = 0, m = ki_toposort(p->ir, &u, 1, &part);
        for (int64_t j = 0; j < port_numel(&p->out[i]); j++) exempt += d->bound[i][j] == INFINITY;
        for (int64_t j = 0; j < m && exempt && !first; j++)
            if (part[j]->id < ids && b[part[j]->id].born) first = part[j];
        if (m >= 0) ki_free(part);
        if (!exempt) continue;
        count[first ? first->op : 0] += exempt;
        if (!verbose) continue;
        printf("# %llu y%zu: %lld of %lld exempt: ", (unsigned long long)seed, i, (long long)exempt,
               (long long)port_numel(&p->out[i]));
        if (first) describe(first, b);
        printf("\n");
    }
    for (uint32_t i = 0; i < ids; i++) free(b[i].bound), free(b[i].value);
    ki_free(order);
    free(b);
}

#endif
