/* first.c: the OptOp FIRST: the largest element of a row and the place of the first such come of one pass, n elements of it side by side.
 *
 *   m = REDUCE(max, y(r), r), p = REDUCE(max, where(y(q) == m or y(q) is NaN, f(q), none), q), f falling from element to element
 * becomes, with lanes l of n and r = h + n i + l, h so that the last n are whole ones (the first two steps may overlap: what is met again is
 * not larger than itself),
 *   at each step  p' = where(m < y, or y is NaN and m is not, f, p),  m' = the same of y and m
 * so that each lane knows its own largest element and where that is, and then the same two REDUCEs over the lanes.
 * ROWS (rows.c) takes the step for columns. */
#include "stages/3_optimize/choose.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_FIRST, (int)o->axis, (int)o->arg, (why)), NULL)
enum { MOST = 256, VECTORS = 4, LONG = 4 };

typedef struct question {      /* is x, turned as the maximum m is where it is compared, m, or NaN? */
    kn_uop x, m, equal, other; /* the comparison, and its other side: m, or m turned back */
    bool turned;
} question;

/* Of a comparison's side x with its other one. */
static bool asks(kn_uop equal, kn_uop x, kn_uop other, question *q) {
    bool turned = other->op == KN_NEG || other->op == KN_NOT;
    *q = (question){x, turned ? other->src[0] : other, equal, other, turned};
    return q->m->op == KN_REDUCE;
}

static bool is_nan(kn_uop u, kn_uop x) { return u->op == KN_CMPNE && u->src[0] == x && u->src[1] == x; }

static bool find_question(kn_uop hit, question *q) {
    uint32_t sides = hit->op == KN_OR ? 2 : 1;
    for (uint32_t i = 0; i < sides; i++) {
        kn_uop u = sides > 1 ? hit->src[i] : hit;
        for (uint32_t j = 0; u->op == KN_CMPEQ && j < 2; j++) {
            kn_uop x = u->src[j];
            bool settled = sides > 1 ? is_nan(hit->src[1 - i], x) : !ki_is_float((kn_dtype)x->dtype);
            if (settled && asks(u, x, u->src[1 - j], q)) return true;
        }
    }
    return false;
}

/* By how much f is less from one q to the next, never below none; 0: it may be otherwise. */
static int64_t fall(const ki_nest *k, kn_uop f, kn_uop q, kn_uop none) {
    kn_uop at = f->op == KN_SUB && f->src[0]->op == KN_CONST ? f->src[1] : NULL;
    if (!at || at->op != KN_CAST || at->src[0]->dtype != KN_IDX || !ki_is_int((kn_dtype)f->dtype)) return 0;
    const ki_affine *form = k->form[k->scope.at[at->src[0]->id]];
    bool counts = form && form->n == 1 && form->t[0].x == q && form->t[0].c > 0;
    /* what may wrap around has the bounds of its dtype */
    bool bounded = ki_is_const(none) && f->lo.i >= none->arg.i && f->lo.i > ki_int_min((kn_dtype)f->dtype);
    return counts && bounded ? form->t[0].c : 0;
}

/* The loop of a maximum over one alone. */
static kn_uop only_loop(kn_uop u) {
    bool one = u->op == KN_REDUCE && u->arg.reduce.op == KN_MAX && u->nsrc == 2 && !u->arg.reduce.axes;
    return one && ki_is_serial(u->src[1]) && ki_extent(u->src[1]) ? u->src[1] : NULL;
}

bool ki_find_first(const ki_nest *k, kn_uop place, ki_first *p) {
    const ki_scope *s = &k->scope;
    kn_uop w = place->src[0];
    question ask;
    *p = (ki_first){.place = place, .q = only_loop(place)};
    if (!p->q || w->op != KN_WHERE || !find_question(w->src[0], &ask)) return false;
    if (!(p->fall = fall(k, w->src[1], p->q, w->src[2]))) return false;
    p->most = ask.m, p->r = only_loop(ask.m);
    if (!p->r || ki_extent(p->r) != ki_extent(p->q)) return false;
    kn_uop y = p->most->src[0];
    if (ask.turned && y->op != ask.other->op) return false;
    if (ki_substitute(k->ir, ask.x, &p->q, &p->r, 1) != (ask.turned ? y->src[0] : y)) return false;
    if (ki_nest_loops_inside(k, p->r)) return false; /* what asks says the same of q */
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t j = 0; j < s->node[i]->nsrc; j++) {
            kn_uop u = s->node[i], v = u->src[j];
            p->seen |= (v == ask.m && u != ask.equal && u != ask.other) || (v == ask.other && u != ask.equal);
        }
    return true;
}

kn_uop ki_first_step(ki_ir *ir, const ki_first *p, kn_uop y, kn_uop f, kn_uop m[2]) {
    bool nan = ki_is_float((kn_dtype)y->dtype);
    kn_uop more = nan ? ki_op1(ir, KN_NOT, ki_op2(ir, KN_CMPLE, y, m[0])) : ki_op2(ir, KN_CMPLT, m[0], y);
    if (nan) more = ki_op2(ir, KN_AND, more, ki_op2(ir, KN_CMPEQ, m[0], m[0]));
    m[1] = ki_op3(ir, KN_WHERE, more, f, m[1]);
    return m[0] = p->seen ? ki_op2(ir, KN_MAX, m[0], y) : ki_op3(ir, KN_WHERE, more, y, m[0]);
}

kn_uop ki_opt_first(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop q = ki_nest_range(k, (uint32_t)o->axis), lane[4], buf[2], at[2], put[2], set[2];
    int64_t n = o->arg, all = ki_extent(q), h = n > 0 ? (all - 1) % n + 1 : 0;
    ki_first p;
    if (!ki_find_first(k, ki_nest_closer(k, q), &p))
        return FAIL("it does not look for what a maximum is, or loops inside");
    if (n < 2 || n > MOST || n >= all) return FAIL("so many lanes there are not");
    uint32_t next = ki_nest_next_range(k), buffer = ki_nest_next_buffer(k);
    if (o->id < 0) o->id = (int32_t)next;
    if (ki_nest_range(k, (uint32_t)o->id)) return FAIL("the id is taken");
    if ((uint32_t)o->id > next) next = (uint32_t)o->id;
    for (uint32_t i = 0; i < 4; i++)
        lane[i] = ki_range_make(ir, next + i, i < 2 ? KN_AX_UPCAST : KN_AX_UNROLL, ki_index(ir, n));
    kn_uop i = ki_range_make(ir, q->arg.range.id, KN_AX_LOOP, ki_index(ir, (all - h) / n)), y, f, done;
    for (uint32_t v = 0; v < 2; v++) { /* the first n */
        kn_uop x = v ? p.place->src[0]->src[1] : p.most->src[0];
        buf[v] = ki_buffer_make(ir, buffer + v, n, (kn_dtype)x->dtype, KN_REG, 0);
        kn_uop own = ki_nest_home(k, buf[v], p.place, NULL, 0);
        put[v] = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, own, lane[0]), ki_substitute(ir, x, v ? &q : &p.r, lane, 1));
    }
    done = ki_op2(ir, KN_END, ki_op2(ir, KN_GROUP, put[0], put[1]), lane[0]);
    for (uint32_t v = 0; v < 2; v++)
        at[v] = set[v] = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, buf[v], done, i), lane[1]);
    /* what does not change from step to step stands by itself: n places on, f is n falls less */
    kn_uop first = ki_op2(ir, KN_ADD, lane[1], ki_index(ir, h)), step = ki_op2(ir, KN_MUL, i, ki_index(ir, n));
    y = ki_substitute(ir, p.most->src[0], &p.r, (kn_uop[]){ki_op2(ir, KN_ADD, step, first)}, 1);
    f = ki_substitute(ir, p.place->src[0]->src[1], &q, &first, 1);
    step = ki_cast(ir, ki_op2(ir, KN_MUL, i, ki_index(ir, n * p.fall)), (kn_dtype)p.place->dtype);
    f = ki_op2(ir, KN_SUB, f, step);
    if (!at[0] || !at[1] || !y || !f || !ki_first_step(ir, &p, y, f, set)) return NULL;
    for (uint32_t v = 0; v < 2; v++) put[v] = ki_op2(ir, KN_STORE, at[v], set[v]);
    kn_uop found[2];
    done = ki_op3(ir, KN_END, ki_op2(ir, KN_GROUP, put[0], put[1]), i, lane[1]);
    kn_arg largest = {.bits = 0};
    largest.reduce.op = KN_MAX;
    for (uint32_t v = 0; v < 2; v++) { /* the largest of the lanes, and the first place of those that have it */
        kn_uop x = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf[0], done), lane[2 + v]);
        if (v) {
            kn_uop hit = ki_op2(ir, KN_CMPEQ, x, found[0]);
            if (ki_is_float((kn_dtype)y->dtype)) hit = ki_op2(ir, KN_OR, hit, ki_op2(ir, KN_CMPNE, x, x));
            x = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf[1], done), lane[3]);
            x = ki_op3(ir, KN_WHERE, hit, x, p.place->src[0]->src[2]);
        }
        if (!(found[v] = x ? ki_make(ir, KN_REDUCE, KN_VOID, (kn_uop[]){x, lane[2 + v]}, 2, largest, 0) : NULL))
            return NULL;
    }
    return ki_substitute(ir, k->sink, (kn_uop[]){p.most, p.place}, found, 2);
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

bool ki_choose_first(ki_choice *c, kn_uop place) {
    const ki_nest *k = &c->nest;
    ki_first p;
    int64_t n = VECTORS * c->lanes;
    bool along = false, known;
    if (!ki_find_first(k, place, &p)) return false;
    for (uint32_t i = 0; i < k->scope.n; i++)
        along |= k->read[i] && ki_nest_stride(k, k->scope.node[i], p.r, &known) == 1 && known;
    while (n > c->lanes && (c->apart || ki_extent(p.r) < LONG * n)) n /= 2;
    if (!along || c->lanes < 2 || ki_extent(p.r) < LONG * n) return false;
    uint32_t id = p.q->arg.range.id, next = ki_nest_next_range(k);
    ki_choice_mark(c, place);
    if (!ki_choice_do(c, KI_OPT_FIRST, 0, false, id, n)) return true;
    for (uint32_t i = 0; i < 4; i++) ki_choice_mark(c, ki_nest_closer(k, ki_nest_range(k, next + i)));
    return true;
}
