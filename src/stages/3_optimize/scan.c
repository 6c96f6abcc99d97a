/* scan.c: the OptOp SCAN: a loop that carries a sum takes n elements at a time, side by side.
 *
 *   acc = AFTER(buf, start, r); acc + x(r) is stored, and used   becomes, with r = n r' + l, l n lanes, and n of buf,
 *   acc(l) = AFTER(buf, start, r'); acc(n - 1) + Σ_m where(m <= l, x(n r' + m), -0.0) is stored as acc(l), and used
 * where m runs over n as well: lanes that are added up, in log steps (4_expand/prefix.c). So a step's n sums depend on the last step's by
 * one addition. */
#include "stages/3_optimize/choose.h"

#define FAIL(...) (ki_fail(k->ir->env, __VA_ARGS__), NULL)
enum { MOST = 64, MOST_STORES = 8, LONG = 4 };

typedef struct scan {
    kn_uop end, r;
    kn_uop after, start; /* AFTER(buf, start, r) */
    kn_uop x;            /* what each step adds: an element read */
    kn_uop store, got;
} scan;

static bool is_plus(kn_uop u, kn_uop a, kn_uop *x) {
    if (u->op != KN_ADD || (u->src[0] != a && u->src[1] != a)) return false;
    *x = u->src[u->src[0] == a];
    return *x != a;
}

/* The sum that r carries, if it is the only thing, and what is added is an element read under no condition. */
static bool find(const ki_nest *k, kn_uop r, scan *s) {
    const ki_scope *scope = &k->scope;
    *s = (scan){.end = ki_nest_closer(k, r), .r = r};
    if (!s->end || s->end->op != KN_END || ki_last_loop(s->end) != r) return false;
    for (uint32_t i = 0; i < scope->n; i++) {
        kn_uop u = scope->node[i];
        bool inside = false;
        for (uint32_t j = 1; u->op == KN_AFTER && j < u->nsrc; j++) inside |= u->src[j] == r;
        if (!inside) continue;
        if (s->after || u->nsrc != 3 || u->src[0]->op != KN_BUFFER || u->src[0]->arg.buffer->addrspace != KN_REG ||
            u->src[0]->arg.buffer->size != 1)
            return false;
        s->after = u, s->start = u->src[1 + (u->src[1] == r)];
    }
    if (!s->after || s->start->op != KN_STORE || s->start->nsrc != 2) return false;
    for (uint32_t i = 0; i < scope->n; i++) {
        kn_uop u = scope->node[i];
        if (u->op == KN_STORE && u->src[0]->op == KN_INDEX && u->src[0]->src[0] == s->after) {
            if (s->store || !is_plus(u->src[1], u->src[0], &s->x)) return false;
            s->store = u;
        } else if (s->store && u->op == KN_INDEX && u->src[0]->op == KN_AFTER && u->src[0]->nsrc == 2 &&
                   u->src[0]->src[1] == s->store) {
            if (s->got) return false;
            s->got = u;
        }
    }
    if (!s->got || !ki_is_access(s->x) || ki_is_gated(s->x) || ki_storage(s->x)->op != KN_PARAM) return false;
    if (ki_is_written(k, ki_storage(s->x)->arg.param->slot))
        return false; /* in place a lane would read what another one wrote */
    kn_uop old = s->store->src[0], buf = s->after->src[0];
    for (uint32_t i = 0; i < scope->n; i++) /* nobody else sees the sum before, nor the step's own store */
        for (uint32_t j = 0; j < scope->node[i]->nsrc; j++) {
            kn_uop u = scope->node[i], v = u->src[j];
            if ((v == old && u != s->store && u != s->store->src[1]) || (v == s->store->src[1] && u != s->store) ||
                (v == s->store && u != s->got->src[0]) || (v == s->after && u != old) ||
                (v == buf && u->op == KN_AFTER && u != s->after && u != s->got->src[0] &&
                 u != s->start->src[0]->src[0]))
                return false;
        }
    return true;
}

kn_uop ki_opt_scan(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis);
    int64_t n = ki_extent(r), f = o->arg;
    scan s;
    if (!find(k, r, &s))
        return FAIL(KI_E_OPT_SCAN, (int)o->axis, (int)f, "it carries no sum of elements read, or not that alone");
    if (f < 2 || f > MOST || n % f) return FAIL(KI_E_OPT_SCAN, (int)o->axis, (int)f, "that does not divide it");
    uint32_t next = ki_nest_next_range(k);
    if (o->id < 0) o->id = (int32_t)next;
    if (ki_nest_range(k, (uint32_t)o->id)) return FAIL(KI_E_OPT_ID, (int)o->id);
    if ((uint32_t)o->id >= next) next = (uint32_t)o->id + 1;
    kn_uop many = ki_index(ir, f), l = ki_range_make(ir, (uint32_t)o->id, KN_AX_UPCAST, many);
    kn_uop m = ki_range_make(ir, next, KN_AX_UNROLL, many), set = ki_range_make(ir, next + 1, KN_AX_UPCAST, many);
    kn_uop rest = ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, ki_index(ir, n / f));
    kn_uop first = ki_op2(ir, KN_MUL, rest, many), at = ki_op2(ir, KN_ADD, first, m);
    kn_dtype t = (kn_dtype)s.x->dtype;
    kn_uop none = ki_is_float(t) ? ki_const_float(ir, t, -0.0) : ki_const_int(ir, t, 0);
    kn_uop upto = ki_op2(ir, KN_CMPLT, m, ki_op2(ir, KN_ADD, l, ki_index(ir, 1)));
    kn_arg plus = {.bits = 0};
    plus.reduce.op = KN_ADD;
    kn_uop term = at ? ki_op3(ir, KN_WHERE, upto, ki_substitute(ir, s.x, &r, &at, 1), none) : NULL;
    kn_uop sums = term ? ki_make(ir, KN_REDUCE, KN_VOID, (kn_uop[]){term, m}, 2, plus, 0) : NULL;
    /* the last n sums; before the first step each is what the sum begins with */
    kn_uop buf = ki_buffer_make(ir, ki_nest_next_buffer(k), f, t, KN_REG, 0);
    kn_uop home = ki_nest_home(k, buf, s.start, NULL, 0);
    kn_uop start = ki_op2(ir, KN_END, ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, home, set), s.start->src[1]), set);
    kn_uop acc = ki_op3(ir, KN_AFTER, buf, start, rest);
    kn_uop now = ki_op2(ir, KN_ADD, ki_op2(ir, KN_INDEX, acc, ki_index(ir, f - 1)), sums);
    kn_uop store = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, acc, l), now);
    kn_uop body = s.end->src[0], from[2] = {s.got, r}, to[2] = {now, ki_op2(ir, KN_ADD, first, l)};
    uint32_t count = body->op == KN_GROUP ? body->nsrc : 1, c = 0;
    kn_uop src[MOST_STORES + 1], list[KI_MAX_RANK + 4];
    if (count > MOST_STORES || s.end->nsrc > KI_MAX_RANK + 2 || !to[0] || !to[1])
        return FAIL(KI_E_OPT_SCAN, (int)o->axis, (int)f, "the nest does too much");
    for (; c < count; c++) src[c] = ki_substitute(ir, body->op == KN_GROUP ? body->src[c] : body, from, to, 2);
    src[c] = store;
    list[0] = ki_opn(ir, KN_GROUP, src, c + 1);
    for (uint32_t j = 1; j < s.end->nsrc; j++) list[j] = s.end->src[j] == r ? rest : s.end->src[j];
    list[s.end->nsrc] = l;
    kn_uop end = ki_opn(ir, KN_END, list, s.end->nsrc + 1);
    return end ? ki_substitute(ir, k->sink, &s.end, &end, 1) : NULL;
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

bool ki_choose_scan(ki_choice *c, kn_uop e) {
    const ki_nest *k = &c->nest;
    kn_uop r = ki_last_loop(e), store = ki_nest_store(e);
    scan s;
    bool known;
    if (!r || !store || ki_is_lane(e->src[e->nsrc - 1]) || !ki_nest_carries(k, e) || !find(k, r, &s)) return false;
    int64_t lanes = c->lanes, to = ki_nest_stride(k, store->src[0], r, &known),
            from = known ? ki_nest_stride(k, s.x, r, &known) : 0;
    bool line = 2 * c->target->vector == c->target->line && ki_extent(r) % (2 * lanes) == 0;
    if (line && ki_extent(r) >= LONG * 2 * lanes) lanes *= 2; /* what is stored past the caches is whole lines */
    if (!known || to != from || (to != 1 && to != -1) || c->lanes < 4 || ki_extent(r) % lanes ||
        ki_extent(r) < LONG * lanes)
        return false;
    uint32_t id = r->arg.range.id;
    ki_choice_mark(c, e);
    ki_choice_do(c, KI_OPT_SCAN, 0, false, id, lanes);
    return true;
}
