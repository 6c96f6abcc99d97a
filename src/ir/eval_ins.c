/* eval_ins.c: machine instructions in a program to be interpreted: each INS becomes what it means, through the function that
 * env->ins names (the interpreter itself knows no instruction). In a LINEAR the nodes of a meaning stand where the
 * instruction stood, and behind a loop, which may not have run, once more where others need them. */
#include "ir/eval_impl.h"

#include <string.h>

typedef struct swap {
    ki_ir *ir;
    kn_uop *map;  /* by id: what stands for the node */
    kn_uop *list; /* of the LINEAR being made */
    size_t n, cap;
    struct place {
        kn_uop u;
        uint32_t next;
    } * stack;
    size_t depth, stack_cap;
    uint8_t *listed; /* by id: ITEM, MEANT */
} swap;
enum { ITEM = 1, MEANT = 2 }; /* of the list as it was; of a meaning */

static bool room(swap *s, void *array, size_t *cap, size_t n, size_t size) {
    return ki_array_grow(array, cap, n + 1, size) || (ki_fail(s->ir->env, KI_E_NOMEM), false);
}

static bool append(swap *s, kn_uop u, uint8_t as) {
    if (!room(s, &s->list, &s->cap, s->n, sizeof(kn_uop))) return false;
    s->listed[u->id] = as;
    s->list[s->n++] = u;
    return true;
}

/* u and what it needs, sources first, as far as it is not in the list. */
static bool append_all(swap *s, kn_uop u) {
    s->depth = 0;
    for (kn_uop push = u; push || s->depth;) {
        if (push) {
            if (!room(s, &s->stack, &s->stack_cap, s->depth, sizeof *s->stack)) return false;
            s->stack[s->depth++] = (struct place){push, 0};
            push = NULL;
        }
        struct place *top = &s->stack[s->depth - 1];
        while (top->next < top->u->nsrc && s->listed[top->u->src[top->next]->id]) top->next++;
        if (top->next < top->u->nsrc) {
            push = top->u->src[top->next++];
        } else {
            if (!s->listed[top->u->id] && !append(s, top->u, MEANT)) return false;
            s->depth--;
        }
    }
    return true;
}

/* Behind the loops and the branch that u closes. */
static void leave(swap *s, kn_uop u, uint32_t *depth, const size_t *begun) {
    uint32_t closed = u->op == KN_ENDIF;
    for (uint32_t k = 1; u->op == KN_END && k < u->nsrc; k++) closed += u->src[k]->op == KN_RANGE;
    for (; closed && *depth; closed--)
        for (size_t i = begun[--*depth]; i < s->n; i++)
            if (s->listed[s->list[i]->id] == MEANT) s->listed[s->list[i]->id] = 0;
}

static kn_uop relist(swap *s, kn_uop linear) {
    size_t *begun = ki_malloc((linear->nsrc + 1) * sizeof *begun);
    uint32_t depth = 0;
    bool ok = begun != NULL;
    s->n = 0;
    ki_free(s->listed);
    s->listed = ki_calloc(s->ir->n, 1);
    if (!ok || !s->listed) ok = (ki_fail(s->ir->env, KI_E_NOMEM), false);
    for (uint32_t k = 0; k < linear->nsrc && ok; k++) {
        kn_uop was = linear->src[k], now = s->map[was->id];
        if (now->op == KN_RANGE || now->op == KN_IF) begun[depth++] = s->n;
        if (!s->listed[now->id]) ok = was->op == KN_INS ? append_all(s, now) : append(s, now, ITEM);
        if (ok) leave(s, now, &depth, begun);
    }
    ki_free(begun);
    return ok ? ki_with_srcs(s->ir, linear, s->list, (uint32_t)s->n) : NULL;
}

static kn_uop one(swap *s, kn_uop u, kn_uop **src, size_t *cap) {
    if (u->op == KN_LINEAR) return relist(s, u);
    while (u->nsrc > *cap)
        if (!room(s, src, cap, *cap, sizeof(kn_uop))) return NULL;
    for (uint32_t k = 0; k < u->nsrc; k++) (*src)[k] = s->map[u->src[k]->id];
    kn_uop v = ki_with_src(s->ir, u, *src);
    return v && v->op == KN_INS ? s->ir->env->ins(s->ir, v) : v;
}

bool ki_ins_expand(ki_ir *ir, kn_uop *root, size_t n) {
    if (!ir->env->ins) return true;
    kn_uop *order, *src = NULL;
    size_t cap = 0;
    int64_t count = ki_toposort(ir, root, n, &order);
    bool any = false, ok = count >= 0;
    for (int64_t i = 0; i < count && !any; i++) any = order[i]->op == KN_INS;
    swap s = {.ir = ir};
    if (any && !(s.map = ki_calloc(ir->n, sizeof *s.map))) ok = (ki_fail(ir->env, KI_E_NOMEM), false);
    for (int64_t i = 0; i < count && any && ok; i++) ok = (s.map[order[i]->id] = one(&s, order[i], &src, &cap)) != NULL;
    for (size_t i = 0; i < n && any && ok; i++) root[i] = s.map[root[i]->id];
    ki_free(order);
    ki_free(src);
    ki_free(s.map);
    ki_free(s.list);
    ki_free(s.stack);
    ki_free(s.listed);
    return ok;
}
