/* rotate.c: the OptOp ROTATE: each lane of a nest goes through a loop of it from another place on, a few iterations further than the lane before,
 * and from the loop's beginning at its end. Every lane sees every iteration once, in another order.
 *
 * What lies a power of two of bytes apart shares sets of the caches and, as it seems, channels of memory: where lanes read rows, all of them are at such
 * places at once. Rotated, some are elsewhere. */
#include "stages/3_optimize/choose.h"
#include "stages/indexing.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_ROTATE, (int)o->axis, (int)o->arg, (why)), NULL)

/* Does something else hang on r than what its nest does in each iteration: a loop along it too, or one that is as long as r says? */
static bool has_others(const ki_nest *k, kn_uop r) {
    kn_uop e = ki_nest_closer(k, r);
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if ((u->op == KN_END || u->op == KN_REDUCE) && u != e && ki_place_in(u, r) < u->nsrc) return true;
        if (u->op == KN_RANGE && u != r && ki_scope_has(&k->scope, u, r)) return true;
    }
    return ki_nest_loops_inside(k, r);
}

/* Why r of a nest cannot be rotated by n for each of the lanes; NULL: it can. */
static const char *refused(const ki_nest *k, kn_uop r, kn_uop lane, int64_t n) {
    kn_uop e = ki_nest_closer(k, r);
    return e->op != KN_END || !ki_is_serial(r) || !ki_nest_independent(k, r)
               ? "its iterations depend on each other, or it is no loop"
           : has_others(k, r) ? "something else loops along it, or inside it"
           : !lane || !ki_is_lane(lane) || ki_place_in(e, lane) >= e->nsrc ? "that is no lane of its nest"
           : n < 1 || n >= ki_extent(r)                                    ? "so many iterations it has not"
                                                                           : NULL;
}

kn_uop ki_opt_rotate(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), lane = ki_nest_range(k, (uint32_t)o->id);
    const char *why = refused(k, r, lane, o->arg);
    if (why) return FAIL(why);
    /* the place of a lane's iteration, counted from the first lane's beginning: which round, and where in it */
    int64_t n = ki_extent(r), rounds = ((ki_extent(lane) - 1) * o->arg + n - 1) / n + 1;
    const ki_type *all = ki_type_make(ir, 1, (ki_dim[]){{.n = rounds * n}}, 0, -1),
                  *each = ki_type_make(ir, 2, (ki_dim[]){{.n = rounds}, {.n = n}}, 0, -1);
    kn_uop place = ki_joined(ir, lane, o->arg, r), at[2];
    if (!all || !each || !place || !ki_reshape_index(ir, all, &place, each, at)) return NULL;
    return ki_swap_ranges(k, k->sink, &(ki_swap){r, at[1], {r, NULL}}, 1);
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

enum {
    LINE = 64,      /* bytes */
    APART = 12,     /* lines from the first lane's place to the last one's, at most, where much is to be under way */
    MOST = 1 << 21, /* bytes between the rows that two beside each other store, and */
    MOST_OF_TWO = 11 << 18, /* where there are no others: of 3.5 MiB and more they took 1.1 to 1.25 times as long */
    TIMES = 8,              /* so far the loop goes */
    SIDE = 16,              /* of a square (square.c) */
    FAR = 512 /* bytes from which on two rows are far apart; of rows that are no whole lines apart it gains nothing */
};

static bool is_far(int64_t bytes) { return bytes >= FAR && bytes % LINE == 0; }

/* Of what is read by squares of rows, and stored as rows, a line of each in every iteration of r: the lane that counts lines beside each other;
 * NULL: there is none. */
static kn_uop lines_of(const ki_nest *k, kn_uop e, kn_uop r, kn_uop from) {
    kn_uop s = ki_nest_store(e), to = s ? s->src[0] : NULL, lines = NULL;
    bool reads = false, writes = false;
    if (!to || ki_storage(to)->op != KN_PARAM || ki_storage(from)->op != KN_PARAM || ki_is_gated(from)) return NULL;
    for (uint32_t j = 1; j < e->nsrc; j++) {
        kn_uop v = e->src[j];
        int64_t in = ki_nest_step(k, from, v), out = ki_nest_step(k, to, v);
        if (!ki_is_lane(v)) continue;
        reads |= ki_extent(v) == SIDE && is_far(in);
        writes |= ki_extent(v) == SIDE && is_far(out);
        if (out == LINE && is_far(in) && ki_extent(v) > 1) lines = v;
    }
    return reads && writes && ki_nest_step(k, from, r) == LINE && is_far(ki_nest_step(k, to, r)) ? lines : NULL;
}

/* How far r is rotated for each line: 0: not at all. */
static int64_t lines_apart(const ki_choice *c, kn_uop e, kn_uop r, kn_uop lines) {
    int64_t others = ki_extent(lines) - 1, row = ki_nest_step(&c->nest, ki_nest_store(e)->src[0], r);
    int64_t n = (others > 1 ? MOST : MOST_OF_TWO) / row, most = c->ahead ? APART / others : 1;
    if (n > most) n = most;
    return TIMES * n <= ki_extent(r) ? n : 0;
}

/* Where much is to be under way, squares side by side take 0.8 to 0.9 of the time so; where what is asked for is lost behind stores (a Zen 4), by one
 * iteration for each line, 0.83 to 0.93, past the caches, if nothing else is read (of another matrix beside it 1.4). It was measured nowhere else. */
static bool pays(const ki_choice *c, kn_uop e, kn_uop r) {
    bool past = ki_is_past(c, ki_storage(ki_nest_store(e)->src[0]));
    return c->ahead || (ki_waits_behind_stores(c) && past && ki_only_read(&c->nest, r));
}

void ki_choose_rotations(ki_choice *c) {
    const ki_nest *k = &c->nest;
    for (uint32_t q = 0; c->ok && q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q], e = k->closer[q], lines = NULL;
        if (!e || e->op != KN_END || ki_last_loop(e) != r) continue;
        for (uint32_t i = 0; i < k->nreads && !lines; i++)
            if (ki_scope_has(&k->scope, k->reads[i], r)) lines = lines_of(k, e, r, k->reads[i]);
        int64_t n = lines && pays(c, e, r) ? lines_apart(c, e, r, lines) : 0;
        if (n > 0 && !refused(k, r, lines, n))
            ki_choice_look(c, ki_nest_apply(&c->nest, (ki_opt){.op = KI_OPT_ROTATE,
                                                               .axis = (int32_t)r->arg.range.id,
                                                               .arg = (int32_t)n,
                                                               .id = (int32_t)lines->arg.range.id}));
    }
}
