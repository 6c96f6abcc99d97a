/* shrink.h: a failing program made small: outputs dropped, nodes replaced by a source, an input or a constant, sizes
 * reduced, as long as a judge says that it still fails in the same way. */
#ifndef SHRINK_H
#define SHRINK_H

#include "stages/verify.h"
#include "ir/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bool judge(void *user, const ki_program *p);

/* What to change: outputs (drop: leave out; descend: the output's source instead), one node, or sizes. */
typedef struct edit {
    enum { DROP, DESCEND, BY_SOURCE, BY_INPUT, BY_CONST, RESIZE, TIGHTEN } how;
    uint32_t at; /* output, or node id */
    uint32_t k;  /* source; RESIZE: old size */
    int64_t to;  /* RESIZE: new size */
} edit;

static bool is_shape(kn_uop u) { return u->dtype == KN_IDX; }

static kn_uop edited_node(ki_ir *ir, const edit *e, kn_uop u, const kn_uop *src) {
    char name[24];
    if (e->how == RESIZE && u->op == KN_CONST && is_shape(u) && u->arg.i && u->arg.i % (int64_t)e->k == 0)
        return ki_index(ir, u->arg.i / (int64_t)e->k * e->to);
    if (e->at == u->id && e->how == BY_SOURCE) return src[e->k];
    if (e->at == u->id && e->how == BY_INPUT) {
        snprintf(name, sizeof name, "q%u", 100 + u->id);
        return ki_param_make(ir, -1, (kn_dtype)u->dtype, KN_GLOBAL, 0, name, NULL, ki_shape_of(ir, u));
    }
    if (e->at == u->id && e->how == BY_CONST) return ki_const_int(ir, (kn_dtype)u->dtype, 1);
    if (e->at == u->id && e->how == TIGHTEN) {
        snprintf(name, sizeof name, "q%u", 500 + u->id);
        return ki_param_make(ir, -1, (kn_dtype)u->dtype, KN_GLOBAL, 0, name, NULL, src[0]);
    }
    return ki_make(ir, (kn_op)u->op, (kn_dtype)u->dtype, src, u->nsrc, ki_import_arg(ir, u), 0);
}

/* p with the edit, in ir (open, empty). False: it makes no sense. */
static bool apply_edit(const ki_program *p, const edit *e, ki_ir *ir, ki_program *q) {
    kn_uop root[64] = {0}, *order, *map = calloc(p->ir->n, sizeof *map), src[64];
    size_t n = 0;
    *q = (ki_program){.ir = ir, .stage = KI_S_TENSOR};
    for (size_t i = 0; i < p->nout && n < 64; i++) {
        kn_uop u = p->out[i].node;
        if (e->how == DROP && e->at == i) continue;
        if (e->how == DESCEND && e->at == i) u = e->k < u->nsrc ? u->src[e->k] : NULL;
        if (!u || u->dtype == KN_VOID || is_shape(u)) return free(map), false;
        root[n++] = u;
    }
    int64_t count = ki_toposort(p->ir, root, n, &order);
    bool ok = n > 0 && count >= 0;
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop u = order[i];
        ok = u->nsrc <= 64;
        for (uint32_t k = 0; ok && k < u->nsrc; k++) src[k] = map[u->src[k]->id];
        ok = ok && (map[u->id] = edited_node(ir, e, u, src)) != NULL;
    }
    if (count >= 0) ki_free(order);
    kn_uop out[64];
    for (size_t i = 0; i < n && ok; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", (unsigned)i);
        ok = ki_program_port(q, true, name, strlen(name), out[i] = map[root[i]->id]);
    }
    ok = ok && (q->root = ki_opn(ir, KN_SINK, out, (uint32_t)n)) != NULL;
    free(map);
    count = ok ? ki_toposort(ir, &q->root, 1, &order) : -1;
    for (int64_t i = 0; i < count && ok; i++) {
        const ki_param *a = order[i]->op == KN_PARAM ? order[i]->arg.param : NULL;
        if (!a || a->slot >= 0) continue;
        ok = ki_program_port(q, false, a->name, a->len, order[i]);
        for (size_t j = 0; ok && j < p->nin; j++) /* its range */
            if (strcmp(p->in[j].name, a->name) == 0) {
                ki_port *to = &q->in[q->nin - 1];
                to->ranged = p->in[j].ranged, to->lo = p->in[j].lo, to->hi = p->in[j].hi;
            }
    }
    if (count >= 0) ki_free(order);
    if (!ok) ki_program_free(q), ki_env_clear(ir->env);
    return ok;
}

/* Makes the edit if the judge still fails; p and its store are replaced. */
static bool try_edit(ki_program *p, const edit *e, judge *fails, void *user) {
    ki_ir *ir = malloc(sizeof *ir);
    ki_program q;
    if (!ir || !ki_ir_open(ir, p->ir->env)) return false;
    if (apply_edit(p, e, ir, &q)) {
        bool legal = ki_verify_stage(&q); /* what nobody may write fails for another reason */
        ki_env_clear(ir->env);
        if (legal && fails(user, &q)) {
            ki_program_free(p);
            ki_ir_close(p->ir);
            free(p->ir);
            *p = q;
            return true;
        }
        ki_program_free(&q);
    }
    ki_ir_close(ir);
    free(ir);
    return false;
}

/* Nodes an assignment writes through: edits would take its value elsewhere. */
static bool *targets_of(ki_program *p, const kn_uop *order, int64_t count) {
    bool *t = calloc(p->ir->n, 1);
    for (int64_t i = count; i-- > 0;) {
        kn_uop u = order[i];
        if ((u->op == KN_STORE || u->op == KN_AFTER || t[u->id]) && u->nsrc) t[u->src[0]->id] = true;
    }
    return t;
}

static bool shrink_nodes(ki_program *p, judge *fails, void *user, int *tries) {
    bool any = false;
    kn_uop *order;
    int64_t count = ki_toposort(p->ir, &p->root, 1, &order);
    bool *target = targets_of(p, order, count);
    for (int64_t i = count; i-- > 0 && *tries > 0;) {
        kn_uop u = order[i];
        if (is_shape(u) || u->dtype == KN_VOID || u->op == KN_CONST || target[u->id]) continue;
        bool done = false;
        for (uint32_t k = 0; !done && k < u->nsrc; k++)
            if (u->src[k]->dtype == u->dtype && ki_same_shape(u->src[k], u))
                --*tries, done = try_edit(p, &(edit){BY_SOURCE, u->id, k, 0}, fails, user);
        if (!done && u->op != KN_PARAM) --*tries, done = try_edit(p, &(edit){BY_INPUT, u->id, 0, 0}, fails, user);
        if (!done && ki_rank(u) == 0) --*tries, done = try_edit(p, &(edit){BY_CONST, u->id, 0, 0}, fails, user);
        if (!done && u->op == KN_PARAM && u->nsrc && u->arg.param->name[0] != 'q')
            --*tries, done = try_edit(p, &(edit){TIGHTEN, u->id, 0, 0}, fails, user);
        if (done) { /* another store, other ids */
            any = true;
            ki_free(order);
            free(target);
            count = ki_toposort(p->ir, &p->root, 1, &order);
            target = targets_of(p, order, count);
            if (i > count) i = count;
        }
    }
    ki_free(order);
    free(target);
    return any;
}

static bool shrink_sizes(ki_program *p, judge *fails, void *user, int *tries) {
    bool any = false;
    for (int64_t size = 70; size > 1 && *tries > 0; size--) {
        bool here = false;
        for (size_t i = 0; i < p->nin; i++)
            for (unsigned k = 0; k < p->in[i].rank; k++) here |= p->in[i].dim[k] == size;
        kn_uop *order;
        int64_t count = ki_toposort(p->ir, &p->root, 1, &order);
        for (int64_t i = 0; i < count && !here; i++)
            here = order[i]->op == KN_CONST && is_shape(order[i]) && order[i]->arg.i == size;
        if (count >= 0) ki_free(order);
        const int64_t to[] = {1, 2, 3, size / 2, size - 1};
        for (int j = 0; here && j < 5; j++) {
            if (to[j] < 1 || to[j] >= size || --*tries < 0) continue;
            if (!try_edit(p, &(edit){RESIZE, 0, (uint32_t)size, to[j]}, fails, user)) continue;
            any = true;
            break;
        }
    }
    return any;
}

static void shrink(ki_program *p, judge *fails, void *user, int tries) {
    for (bool any = true; any && tries > 0;) {
        any = false;
        for (uint32_t i = (uint32_t)p->nout; i-- > 0 && p->nout > 1;)
            --tries, any |= try_edit(p, &(edit){DROP, i, 0, 0}, fails, user);
        for (uint32_t i = 0; i < p->nout; i++)
            for (uint32_t k = 0; k < p->out[i].node->nsrc && tries > 0; k++)
                --tries, any |= try_edit(p, &(edit){DESCEND, i, k, 0}, fails, user);
        any |= shrink_nodes(p, fails, user, &tries);
        any |= shrink_sizes(p, fails, user, &tries);
    }
}

#endif
