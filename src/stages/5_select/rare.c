/* rare.c: what is chosen for few lanes and takes long goes in a loop that runs once where a lane needs it, and not at all else.
 *
 *   where(c < v, far, near)  becomes  LOAD(AFTER(acc, END(STORE(acc, where(c < v', far', LOAD(acc))), i)))
 *   acc = near, i = RANGE(cast(c < max over lanes v; index))
 *
 * far', v' are computed of LOADs of what they are made of, which is kept in registers before the loop, so that nothing of them stands outside. What else
 * reads a value computes it as before. Choices by one comparison share a loop. sin, cos and tan are so: near32 and trig32, math32.kr.
 *
 * What holds: a lane's value is what it was, to the bit. Native targets of AVX2 on. */
#include "base/cpuid.h"
#include "stages/5_select/kept.h"
#include "stages/5_select/lanes.h"
#include "stages/5_select/select.h"

#include <string.h>

enum {
    LONG = 48,       /* operations of the chain that is chosen, one behind the other, */
    LONGER = 2,      /* and so many times those of the other one */
    MOST = 16,       /* comparisons in a kernel, */
    MOST_CHOSEN = 4, /* choices by one, */
    MOST_KEPT = 4    /* values that they are made of */
};

typedef struct rare {
    ki_ir *ir;
    kn_uop *node; /* topological order */
    uint32_t n;
    uint32_t *at, *chain; /* by id: place; operations one behind the other */
    uint8_t *use;         /* by place: FAR, ELSE */
    kn_uop compared, chosen[MOST_CHOSEN], kept[MOST_KEPT], seen[MOST];
    uint32_t nchosen, nkept, nseen;
} rare;
enum { FAR = 1, ELSE = 2 };

static bool computes(kn_uop u) {
    return u->dtype != KN_IDX && (ki_is_elementwise((kn_op)u->op) || u->op == KN_INS || u->op == KN_BITCAST);
}

/* By comparing words with a number. */
static bool chooses(kn_uop u) {
    kn_uop c = u->op == KN_WHERE ? u->src[0] : NULL;
    return c && c->op == KN_CMPLT && ki_is_const(c->src[0]) && c->src[1]->dtype == KN_I32;
}

/* What takes long, or what does not. */
static bool is_choice(const rare *r, kn_uop u) {
    kn_uop c = chooses(u) ? u->src[0] : NULL;
    if (!c) return false;
    if (ki_itemsize((kn_dtype)u->dtype) != 4 || ki_numel(c) != ki_numel(u) || ki_numel(u) > KI_KEPT_LANES) return false;
    uint32_t far = r->chain[u->src[1]->id], near = r->chain[u->src[2]->id];
    return far >= LONG && far >= LONGER * near && u->src[2]->op != KN_LOAD;
}

static bool find_choices(rare *r) {
    r->compared = NULL, r->nchosen = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        kn_uop u = r->node[i];
        bool seen = false;
        uint32_t most = 0;
        r->at[u->id] = i;
        for (uint32_t k = 0; k < u->nsrc && computes(u); k++)
            if (r->chain[u->src[k]->id] > most) most = r->chain[u->src[k]->id];
        r->chain[u->id] = most + computes(u);
        if (!is_choice(r, u) || (r->compared && u->src[0] != r->compared) || r->nchosen == MOST_CHOSEN) continue;
        for (uint32_t k = 0; k < r->nseen; k++) seen |= r->seen[k] == u->src[0];
        if (!seen) r->compared = u->src[0], r->chosen[r->nchosen++] = u;
    }
    return r->compared != NULL;
}

/* What those chosen are made of, and the comparison, as far as nothing else reads it: its sources are kept. False: they are too many. */
static bool find_kept(rare *r) {
    memset(r->use, 0, r->n);
    r->nkept = 0;
    for (uint32_t i = r->n; i-- > 0;) {
        kn_uop u = r->node[i];
        bool within = r->use[i] == FAR && computes(u), choice = false;
        for (uint32_t k = 0; k < r->nchosen; k++) choice |= r->chosen[k] == u;
        for (uint32_t k = 0; k < u->nsrc; k++) {
            bool far = within || (choice && k < 2);
            r->use[r->at[u->src[k]->id]] |= far ? FAR : ELSE;
        }
        if (within || !(r->use[i] & FAR) || ki_is_const(u) || u->dtype == KN_IDX || ki_is_const_list(u)) continue;
        if (r->nkept == MOST_KEPT || ki_numel(u) > KI_KEPT_LANES || ki_itemsize((kn_dtype)u->dtype) != 4) return false;
        r->kept[r->nkept++] = u;
    }
    return r->nkept > 0;
}

static kn_uop branch(rare *r, const ki_scope *s, kn_uop sink) {
    ki_ir *ir = r->ir;
    kn_uop v = r->compared->src[1], lanes, again[MOST_KEPT];
    kn_uop acc[MOST_CHOSEN], place[MOST_CHOSEN], update[MOST_CHOSEN], now[MOST_CHOSEN];
    kn_uop most = ki_rank(v) ? ki_reduce(ir, v, KN_MAX, (UINT32_C(1) << ki_rank(v)) - 1) : v;
    if (most && ki_rank(most)) most = ki_reshape(ir, most, NULL, 0);
    kn_uop any =
        most ? ki_op2(ir, KN_CMPLT, ki_index(ir, r->compared->src[0]->arg.i), ki_cast(ir, most, KN_IDX)) : NULL;
    kn_uop i = any ? ki_range_make(ir, ir->next_range, KN_AX_LOOP, ki_cast(ir, any, KN_IDX)) : NULL;
    for (uint32_t k = 0; k < r->nkept && i; k++) {
        kn_uop u = r->kept[k], buf = ki_buffer_make(ir, ir->next_buffer, ki_numel(u), (kn_dtype)u->dtype, KN_REG, 0);
        kn_uop in = ki_keep_in(s, u, buf, NULL, &lanes), put = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, in, lanes), u);
        again[k] = ki_op1(ir, KN_LOAD, ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, buf, put, i), lanes));
        if (!again[k]) return NULL;
    }
    for (uint32_t k = 0; k < r->nchosen && i; k++) {
        kn_uop u = r->chosen[k], c = ki_substitute(ir, r->compared, r->kept, again, r->nkept),
               far = ki_substitute(ir, u->src[1], r->kept, again, r->nkept);
        acc[k] = ki_buffer_make(ir, ir->next_buffer, ki_numel(u), (kn_dtype)u->dtype, KN_REG, 0);
        kn_uop in = ki_keep_in(s, u, acc[k], NULL, &place[k]);
        kn_uop put = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, in, place[k]), u->src[2]);
        kn_uop at = far && c && put ? ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, acc[k], put, i), place[k]) : NULL;
        update[k] = at ? ki_op2(ir, KN_STORE, at, ki_op3(ir, KN_WHERE, c, far, ki_op1(ir, KN_LOAD, at))) : NULL;
        if (!update[k]) return NULL;
    }
    kn_uop all = i && r->nchosen > 1 ? ki_opn(ir, KN_GROUP, update, r->nchosen) : i ? update[0] : NULL;
    kn_uop end = all ? ki_op2(ir, KN_END, all, i) : NULL;
    for (uint32_t k = 0; k < r->nchosen && end; k++) {
        now[k] = ki_op1(ir, KN_LOAD, ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, acc[k], end), place[k]));
        if (!now[k]) return NULL;
    }
    return end ? ki_substitute(ir, sink, r->chosen, now, r->nchosen) : NULL;
}

/* *more: there may be others. */
static kn_uop branch_one(rare *r, kn_uop sink, bool *more) {
    int64_t n = ki_toposort(r->ir, &sink, 1, &r->node);
    kn_uop out = NULL;
    *more = false;
    if (n < 0) return NULL;
    size_t ids = (size_t)sink->id + 1;
    r->n = (uint32_t)n;
    r->at = ki_calloc(2 * ids, sizeof *r->at), r->use = ki_malloc((size_t)n);
    if (!r->at || !r->use) {
        ki_fail(r->ir->env, KI_E_NOMEM);
    } else {
        r->chain = r->at + ids;
        out = sink;
        if (find_choices(r)) {
            ki_scope s;
            bool can = find_kept(r);
            r->seen[r->nseen++] = r->compared;
            if (can) out = ki_scope_open(&s, r->ir, sink) ? branch(r, &s, sink) : NULL;
            if (can) ki_scope_close(&s);
            *more = out && r->nseen < MOST;
        }
    }
    ki_free(r->at), ki_free(r->use), ki_free(r->node);
    return out;
}

kn_uop ki_branch_rare(ki_ir *ir, const ki_target *t, kn_uop sink) {
    rare r = {.ir = ir};
    bool more = false; /* nodes that sink does not reach cost a look */
    for (uint32_t id = 1; sink && id <= sink->id && !more && t->level >= KI_CPU_AVX2_LEVEL; id++)
        more = chooses(ir->node[id]);
    while (more && sink) sink = branch_one(&r, sink, &more);
    return sink;
}
