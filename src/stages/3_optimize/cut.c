/* cut.c: the OptOp CUT: a loop becomes two, [0, at) and [at, n), so that the first part can be split evenly.
 *
 *   END(body, a..., r, b...)  becomes  END(GROUP(END(body', r', b...), END(body'', r'', b''...)), a...)
 *   REDUCE(v, a..., r, b...)  becomes  op(REDUCE(v', a..., r', b...), REDUCE(v'', a''..., r'', b''...))
 * Where n is known at launch alone, `at` is the largest multiple of the OptOp's number in it, so that one part is whole blocks and the other
 * less than one; either may be empty.
 * Another REDUCE over the same loop gets one of its own (dots.c), or is cut alike, so that the two still share it (pipelined.c). What does
 * not depend on the loop is shared by both parts, and so are lanes. The second part owns fresh ranges, for r, for what its closer lists
 * behind r (REDUCE: all), and for every loop inside that depends on one of these, and the buffers that stand inside them. */
#include "ir/scalar.h"
#include "stages/3_optimize/nest.h"

#include <string.h>

#define FAIL(...) (ki_fail(k->ir->env, __VA_ARGS__), NULL)

/* Numbers of the ranges the second part renames; marked in set. */
static void renamed(const ki_nest *k, kn_uop c, kn_uop r, uint64_t *set) {
    const ki_scope *s = &k->scope;
    bool behind = c->op == KN_REDUCE, more = true;
    for (uint32_t j = 1; j < c->nsrc; j++) {
        behind |= c->src[j] == r;
        if (!behind || ki_is_lane(c->src[j])) continue;
        uint32_t q = ki_scope_rank(s, c->src[j]);
        set[q >> 6] |= UINT64_C(1) << (q & 63);
    }
    while (more) {
        more = false;
        for (uint32_t q = 0; q < s->nrange; q++) {
            kn_uop x = k->closer[q];
            if (ki_in_set(set, q) || !x || x == c || ki_is_lane(s->range[q]) || x->id > c->id) continue;
            const uint64_t *f = ki_scope_free(s, x);
            bool depends = false;
            for (uint32_t w = 0; w < s->words; w++) depends |= (f[w] & set[w]) != 0;
            if (depends) set[q >> 6] |= UINT64_C(1) << (q & 63), more = true;
        }
    }
}

/* Buffers that each iteration of a renamed loop has for itself (AFTER lists it): the second part gets its own. */
static uint32_t own_buffers(const ki_nest *k, const uint64_t *set, kn_uop *out) {
    const ki_scope *s = &k->scope;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i], b = u->op == KN_AFTER ? ki_storage(u) : NULL;
        if (!b || b->op != KN_BUFFER || b->arg.buffer->addrspace == KN_GLOBAL) continue;
        bool inside = false, known = false;
        for (uint32_t j = 1; j < u->nsrc; j++)
            inside |= u->src[j]->op == KN_RANGE && ki_in_set(set, ki_scope_rank(s, u->src[j]));
        for (uint32_t j = 0; j < n; j++) known |= out[j] == b;
        if (inside && !known) out[n++] = b;
    }
    return n;
}

/* A loop of c before r; lanes stand nowhere. */
static bool is_before(kn_uop c, kn_uop r, kn_uop loop) {
    return !ki_is_lane(loop) && ki_place_in(c, loop) < ki_place_in(c, r);
}

/* main and tail are whole copies of c, maybe in another order; the loops before r are taken off both and put around the pair. */
static kn_uop cut_end(ki_ir *ir, kn_uop c, kn_uop r, kn_uop main, kn_uop tail) {
    uint32_t n;
    kn_uop part[2] = {main, tail}, *src = ki_malloc((c->nsrc + 1) * sizeof *src), result = NULL;
    if (!src) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    for (int i = 0; i < 2 && part[i]; i++) {
        src[0] = part[i]->src[0], n = 1;
        for (uint32_t j = 1; j < part[i]->nsrc; j++)
            if (!is_before(c, r, part[i]->src[j])) src[n++] = part[i]->src[j];
        part[i] = ki_with_srcs(ir, part[i], src, n);
    }
    src[0] = result = ki_opn(ir, KN_GROUP, part, 2), n = 1;
    for (uint32_t j = 1; j < c->nsrc; j++)
        if (is_before(c, r, c->src[j])) src[n++] = c->src[j];
    if (n > 1 && result) result = ki_opn(ir, KN_END, src, n);
    ki_free(src);
    return result;
}

/* A GROUP directly under the SINK: its members are nests of their own. */
static kn_uop flatten(ki_ir *ir, kn_uop sink) {
    uint32_t n = 0;
    if (!sink) return NULL;
    for (uint32_t i = 0; i < sink->nsrc; i++) n += sink->src[i]->op == KN_GROUP ? sink->src[i]->nsrc : 1;
    kn_uop *src = ki_malloc((n + 1) * sizeof *src), result;
    if (!src) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    n = 0;
    for (uint32_t i = 0; i < sink->nsrc; i++) {
        kn_uop u = sink->src[i];
        for (uint32_t j = 0; j < (u->op == KN_GROUP ? u->nsrc : 1); j++) src[n++] = u->op == KN_GROUP ? u->src[j] : u;
    }
    result = ki_with_srcs(ir, sink, src, n);
    ki_free(src);
    return result;
}

/* Another REDUCE that r is a loop of; NULL: there is none. */
static kn_uop other_closer(const ki_nest *k, kn_uop r, kn_uop c) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u != c && u->op == KN_REDUCE && ki_place_in(u, r) < u->nsrc) return u;
    }
    return NULL;
}

/* Are all of the sum's terms left out? Where it has none at all, by another loop, the other part has none either. */
static bool adds_nothing(kn_uop sum) {
    kn_uop v = sum->op == KN_REDUCE ? sum->src[0] : NULL;
    return v && v->op == KN_CONST &&
           v->arg.bits == ki_scalar_identity((kn_op)sum->arg.reduce.op, (kn_dtype)v->dtype, true);
}

kn_uop ki_opt_cut(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    const ki_scope *s = &k->scope;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), c = ki_nest_closer(k, r), main, tail, both;
    int64_t n = ki_extent(r);
    kn_uop all = r->src[0], at = ki_index(ir, o->arg), left = ki_index(ir, n - o->arg);
    if (!n && o->arg > 0 && all->hi.i > o->arg && ki_scope_fixed(&k->scope, all)) {
        n = all->hi.i;
        left = ki_op2(ir, KN_MOD, all, at);
        at = ki_op2(ir, KN_MUL, ki_op2(ir, KN_IDIV, all, at), at);
    }
    if (!at || !left) return NULL;
    if (o->arg < 1 || o->arg >= n) return FAIL(KI_E_OPT_CUT, (int)o->axis, (int)o->arg, (long long)n);
    if (!ki_is_serial(r)) return FAIL(KI_E_OPT_CUT_KIND, (int)o->axis, "it is no loop");
    if (c->op == KN_END && !ki_nest_independent(k, r))
        return FAIL(KI_E_OPT_CUT_KIND, (int)o->axis, "its iterations depend on each other");
    if (c->op == KN_END && ki_scope_shares(s, c))
        return FAIL(KI_E_OPT_CUT_KIND, (int)o->axis, "a sum goes along with it");
    if (o->id < 0) o->id = (int32_t)ki_nest_next_range(k);
    uint64_t *set = ki_calloc(s->words, sizeof *set);
    ki_swap *swap = ki_calloc(s->nrange + s->n + 1, sizeof *swap);
    kn_uop *own = ki_malloc(s->n * sizeof *own);
    bool ok = set && swap && own;
    uint32_t m = 0;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    if (ok) renamed(k, c, r, set);
    for (uint32_t q = 0; ok && q < s->nrange; q++) {
        kn_uop x = s->range[q];
        if (!ki_in_set(set, q)) continue;
        if (ki_nest_range(k, (uint32_t)o->id + m)) ok = (ki_fail(ir->env, KI_E_OPT_ID, (int)o->id + (int)m), false);
        kn_uop y = ki_range_make(ir, (uint32_t)o->id + m, (kn_axis)x->arg.range.axis, x == r ? left : x->src[0]);
        swap[m++] = (ki_swap){x, x == r ? ki_op2(ir, KN_ADD, y, at) : y, {y, NULL}};
        ok = ok && y;
    }
    uint32_t buffers = ok ? own_buffers(k, set, own) : 0, next = ki_nest_next_buffer(k);
    for (uint32_t j = 0; j < buffers; j++) {
        const ki_buffer *b = own[j]->arg.buffer;
        kn_uop y = ki_buffer_make(ir, next + j, b->size, (kn_dtype)b->dtype, (kn_addrspace)b->addrspace, b->device);
        swap[m++] = (ki_swap){own[j], y, {y, NULL}};
        ok = ok && y;
    }
    tail = ok ? ki_swap_ranges(k, c, swap, m) : NULL;
    kn_uop first = ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, at);
    main = tail && first ? ki_swap_ranges(k, c, &(ki_swap){r, first, {first, NULL}}, 1) : NULL;
    ki_swap rest = m ? swap[0] : (ki_swap){0};
    ki_free(set);
    ki_free(swap);
    ki_free(own);
    bool sum = c->op == KN_REDUCE, decides = ki_hangs_on(k, r, sum);
    if (decides) main = ki_decided(k, main), tail = ki_decided(k, tail);
    if (!main || !tail) return NULL;
    both = sum ? ki_op2(ir, (kn_op)c->arg.reduce.op, main, tail) : cut_end(ir, c, r, main, tail);
    if (decides && sum && adds_nothing(main)) both = tail;
    else if (decides && sum && adds_nothing(tail)) both = main;
    kn_uop other = sum ? other_closer(k, r, c) : NULL, from[2] = {c, other}, to[2] = {both, NULL};
    if (other && ki_nest_opt(k, KI_OPT_PIPELINE, NULL) && m == 1) {
        kn_uop a = ki_swap_ranges(k, other, &(ki_swap){r, first, {first, NULL}}, 1);
        kn_uop b = ki_swap_ranges(k, other, &(ki_swap){r, rest.expr, {rest.list[0], NULL}}, 1);
        to[1] = a && b ? ki_op2(ir, (kn_op)other->arg.reduce.op, a, b) : NULL;
        if (!to[1]) return NULL;
    } else if (other) {
        kn_uop own = ki_range_make(ir, (uint32_t)o->id + m, (kn_axis)r->arg.range.axis, r->src[0]);
        to[1] = own ? ki_swap_ranges(k, other, &(ki_swap){r, own, {own, NULL}}, 1) : NULL;
        if (!to[1]) return NULL;
    }
    return both ? flatten(ir, ki_substitute(ir, k->sink, from, to, other ? 2 : 1)) : NULL;
}
