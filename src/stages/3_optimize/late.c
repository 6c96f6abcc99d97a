/* late.c: the OptOp LATE: the result of a row is stored while the next row is worked on.
 *
 * Of a row that is kept (e, in a LOCAL buffer), summed up and then stored, the last loop does nothing but write, faster than memory takes it,
 * and while the others compute memory has nothing to write. So it goes along with the loop that fills e, of the next row:
 *
 *   END(STORE(y(r, j), f(e(j), s(r))), r, j), e(j') = v(r, j')   becomes, the values s of a row carried in registers,
 *   fill = END(GROUP(STORE(y(max(r - 1, 0), j'), f(e(j'), s)), STORE(e(j'), v(r, j'))), j')
 *   all  = END(STORE(s, s(r)), r), then END(STORE(y(n - 1, j), f(e(j), s)), j)
 * What the first iteration stores is zeros' and is stored again by the second one. */
#include "stages/3_optimize/choose.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_LATE, (int)o->axis, (why)), NULL)
enum { MOST_KEPT = 4, MOST_READS = 4, MOST_AROUND = 4 };

typedef struct late {
    kn_uop end, r, j, store; /* the result's */
    kn_uop fill, loop, buf, home,
        value;               /* END(STORE(INDEX(home, loop), value), loop), home = AFTER(buf, loops around) */
    kn_uop full;             /* AFTER(buf, fill) */
    kn_uop read[MOST_READS]; /* of it, at j */
    kn_uop kept[MOST_KEPT];  /* values of a row that the result needs */
    uint32_t nread, nkept;
} late;

/* The nest, and the one loop inside that fills a buffer: all else that stands there is sums. */
static const char *find_loops(const ki_nest *k, kn_uop r, late *f) {
    kn_uop e = ki_nest_closer(k, r);
    *f = (late){.r = r, .end = e};
    if (e->op != KN_END || k->sink->nsrc != 1 || k->sink->src[0] != e || e->nsrc < 3 || e->nsrc > MOST_AROUND ||
        e->src[e->nsrc - 2] != r)
        return "it is not the loop around the innermost one of the only nest";
    f->j = e->src[e->nsrc - 1], f->store = e->src[0];
    for (uint32_t i = 1; i + 2 < e->nsrc; i++)
        if (ki_is_serial(e->src[i]) || ki_is_lane(e->src[i])) return "loops stand around it";
    if (!ki_is_serial(r) || !ki_is_serial(f->j) || ki_extent(r) < 2 || !ki_nest_independent(k, r))
        return "its iterations are not independent";
    if (f->store->op != KN_STORE || f->store->nsrc != 2 || ki_storage(f->store->src[0])->op != KN_PARAM)
        return "it does not store one result";
    if (ki_is_gated_by(k, f->store->src[0], r))
        return "the last row may not be stored, and what comes before it would go with it";
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_LOAD || (u->op == KN_BUFFER && f->buf) || (u->op == KN_END && u != e && f->fill))
            return "there is more than one loop inside that fills a buffer";
        if (k->read[i] && ki_storage(u) == ki_storage(f->store->src[0])) return "it reads what it writes";
        if (u->op == KN_BUFFER) f->buf = u;
        if (u->op == KN_END && u != e) f->fill = u;
    }
    if (!f->fill || !f->buf) return "no loop inside fills a buffer";
    if (!ki_scope_has(&k->scope, f->fill, r)) return "the buffer is filled once for all rows";
    kn_uop put = f->fill->src[0], to = put->op == KN_STORE && put->nsrc == 2 ? put->src[0] : NULL;
    f->loop = f->fill->src[1];
    if (f->fill->nsrc != 2 || !to || to->nsrc != 2 || to->src[1] != f->loop || ki_extent(f->loop) != ki_extent(f->j) ||
        !ki_extent(f->j) || f->buf->arg.buffer->addrspace != KN_LOCAL || to->src[0]->op != KN_AFTER ||
        to->src[0]->src[0] != f->buf)
        return "what fills the buffer is no loop of as many steps, element by element";
    f->home = to->src[0], f->value = put->src[1];
    return NULL;
}

static bool keep(kn_uop *list, uint32_t *n, uint32_t most, kn_uop u) {
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == u) return true;
    return *n < most && (list[(*n)++] = u, true);
}

/* What of the row the result is made from. */
static const char *find_values(const ki_nest *k, late *f) {
    const ki_scope *s = &k->scope;
    bool ok = true;
    for (uint32_t i = 0; i < s->n && ok; i++) {
        kn_uop u = s->node[i];
        bool inner = ki_scope_has(s, u, f->j), filling = ki_scope_has(s, u, f->loop);
        if (u->op == KN_REDUCE && (inner || filling)) return "a sum stands in one of the two loops";
        if (u->op == KN_AFTER && u != f->home) {
            ok = (!f->full || f->full == u) && u->nsrc == 2 && u->src[0] == f->buf && u->src[1] == f->fill;
            f->full = u;
        }
        if (!inner || u->dtype == KN_IDX || u->op == KN_STORE || u->op == KN_END) continue;
        if (u->op == KN_INDEX) {
            if (f->full && u->src[0] == f->full)
                ok = u->nsrc == 2 && u->src[1] == f->j && keep(f->read, &f->nread, MOST_READS, u);
            continue;
        }
        for (uint32_t q = 0; q < u->nsrc && ok; q++) {
            kn_uop v = u->src[q];
            if (v->dtype != KN_IDX && ki_scope_has(s, v, f->r) && !ki_scope_has(s, v, f->j))
                ok = keep(f->kept, &f->nkept, MOST_KEPT, v);
        }
    }
    return ok && f->full && f->nread && f->nkept
               ? NULL
               : "the result is not made from the buffer's element and few values of the row";
}

/* AFTER(buf, the loops around r) */
static kn_uop around(ki_ir *ir, const late *f, kn_uop buf) {
    return ki_after(ir, buf, f->end->src + 1, f->end->nsrc > 3 ? f->end->nsrc - 3 : 0);
}

/* The result's store, of row r at j, made of elements of `e` and the values `kept`. */
static kn_uop result(ki_ir *ir, const late *f, kn_uop r, kn_uop j, kn_uop e, kn_uop *kept) {
    kn_uop from[MOST_KEPT + MOST_READS + 2], to[MOST_KEPT + MOST_READS + 2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->nkept; i++) from[n] = f->kept[i], to[n++] = kept[i];
    for (uint32_t i = 0; i < f->nread; i++) from[n] = f->read[i], to[n++] = e;
    from[n] = f->r, to[n++] = r;
    from[n] = f->j, to[n++] = j;
    for (uint32_t i = 0; i < n; i++)
        if (!to[i]) return NULL;
    return ki_substitute(ir, f->store, from, to, n);
}

kn_uop ki_opt_late(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), reg[MOST_KEPT], old[MOST_KEPT], put[MOST_KEPT], src[MOST_AROUND];
    late f;
    const char *why = find_loops(k, r, &f);
    if (!why) why = find_values(k, &f);
    if (why) return FAIL(why);
    uint32_t next = ki_nest_next_buffer(k);
    kn_uop i = ki_range_make(ir, ki_nest_next_range(k), KN_AX_LOOP, f.loop->src[0]);
    kn_uop at = ki_op2(ir, KN_INDEX, around(ir, &f, f.buf), i), none = ki_const_bits(ir, (kn_dtype)f.value->dtype, 0);
    kn_uop start = ki_op2(ir, KN_END, ki_op2(ir, KN_STORE, at, none), i);
    kn_uop e = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, f.buf, start, r), f.loop);
    for (uint32_t q = 0; q < f.nkept; q++) {
        reg[q] = ki_buffer_make(ir, next + q, 1, (kn_dtype)f.kept[q]->dtype, KN_REG, 0);
        at = ki_op2(ir, KN_INDEX, around(ir, &f, reg[q]), ki_index(ir, 0));
        none = ki_const_bits(ir, (kn_dtype)f.kept[q]->dtype, 0);
        kn_uop first = ki_op2(ir, KN_STORE, at, none);
        old[q] = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, reg[q], first, r), ki_index(ir, 0));
    }
    kn_uop before = ki_op2(ir, KN_MAX, ki_op2(ir, KN_ADD, r, ki_index(ir, -1)), ki_index(ir, 0));
    kn_uop both = ki_op2(ir, KN_GROUP, result(ir, &f, before, f.loop, e, old), ki_op2(ir, KN_STORE, e, f.value));
    kn_uop full = ki_op2(ir, KN_AFTER, f.buf, ki_op2(ir, KN_END, both, f.loop));
    for (uint32_t q = 0; q < f.nkept; q++)
        put[q] = ki_op2(ir, KN_STORE, old[q], full ? ki_substitute(ir, f.kept[q], &f.full, &full, 1) : NULL);
    kn_uop all = ki_op2(ir, KN_END, f.nkept > 1 ? ki_opn(ir, KN_GROUP, put, f.nkept) : put[0], r);
    for (uint32_t q = 0; q < f.nkept; q++)
        old[q] = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, reg[q], all), ki_index(ir, 0));
    e = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, f.buf, all), f.j);
    uint32_t n = 0;
    src[n++] = result(ir, &f, ki_index(ir, ki_extent(r) - 1), f.j, e, old);
    for (uint32_t q = 1; q < f.end->nsrc; q++)
        if (f.end->src[q] != r) src[n++] = f.end->src[q];
    kn_uop end = src[0] ? ki_opn(ir, KN_END, src, n) : NULL;
    return end ? ki_substitute(ir, k->sink, &f.end, &end, 1) : NULL;
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

#define HEAVY      16 /* weight of what fills the buffer: below, memory is busy anyway */
#define LEAST_ROWS 16
#define MOST_ROW   (1 << 15) /* bytes: what a first-level cache holds */

void ki_choose_late(ki_choice *c) {
    const ki_nest *k = &c->nest;
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL;
    if (!e || e->op != KN_END || e->nsrc < 3) return;
    late f;
    kn_uop r = e->src[e->nsrc - 2], p = e->src[0]->op == KN_STORE ? ki_storage(e->src[0]->src[0]) : NULL;
    if (!p || p->op != KN_PARAM || ki_extent(r) < LEAST_ROWS || find_loops(k, r, &f) || find_values(k, &f)) return;
    int64_t item = (int64_t)ki_itemsize((kn_dtype)p->dtype), n = ki_extent(f.j);
    if (!ki_is_past(c, p) || n * item > MOST_ROW || n % (4 * c->lanes)) return;
    if (ki_weight_in(k, f.loop) >= HEAVY) ki_choice_do(c, KI_OPT_LATE, 0, false, r->arg.range.id, 0);
}
