/* pipelined.c: the OptOp PIPELINE, software pipelining of two sums of a row: the first one, of the next row, goes along with the second one, of
 * this row.
 *
 * Of rows that the first-level cache does not hold the maximum waits for memory and computes little, and what needs it computes and leaves memory
 * idle. So they share a loop:
 *
 *   m = REDUCE(max, y(r, i), i), s = REDUCE(op, f(x(r, j), m), j), END(STORE(z(r), g(s, m)), r)   becomes, m carried in a register,
 *   first = STORE(reg, REDUCE(max, y(0, i), i)), m = INDEX(AFTER(reg, first, r)), row = STORE(z(r), g(s, m)),
 *   END(GROUP(row, STORE(INDEX(AFTER(reg, first, r, row)), REDUCE(max, y'(min(r + 1, n - 1), j), j))), r)
 * where y' reads AFTER(its PARAM, first): what is found a row ahead is found no sooner than what needs the first row's, so stage 4 (expand.c) meets
 * both on one level and gives them one loop. The row's result reads m before that is overwritten. The last row's maximum is found twice. */
#include "stages/3_optimize/choose.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_PIPELINE, (int)o->axis, (why)), NULL)
enum { MOST_OUTER = 4, MOST_RESULTS = 4, MOST_INPUTS = 4 };

typedef struct pair {
    kn_uop end, r; /* the rows' */
    kn_uop m, i;   /* what is found a row ahead, and its loop */
    kn_uop s, j;   /* what needs it */
} pair;

static kn_uop only_loop(kn_uop u) {
    bool one = u->op == KN_REDUCE && u->nsrc == 2 && !u->arg.reduce.axes && ki_is_serial(u->src[1]);
    return one && ki_extent(u->src[1]) ? u->src[1] : NULL;
}

/* Is it made of elements of PARAMs alone, which nothing in the kernel writes, and the range of one loop? */
static bool reads_inputs(const ki_nest *k, kn_uop m, bool *ok) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &m, 1, &node);
    bool is = *ok = n >= 0, some = false;
    for (int64_t i = 0; i < n && is; i++) {
        kn_uop u = node[i], p = ki_is_access(u) ? ki_storage(u) : NULL;
        is = (u == m || u->op != KN_REDUCE) && u->op != KN_AFTER && u->op != KN_BUFFER && u->op != KN_STORE &&
             u->op != KN_END && u->op != KN_LOAD;
        if (p) is &= p->op == KN_PARAM && !ki_is_written(k, p->arg.param->slot), some = true;
    }
    if (n >= 0) ki_free(node);
    return is && some;
}

static bool is_made_of(const ki_nest *k, kn_uop u, kn_uop v) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &u, 1, &node);
    bool is = false;
    for (int64_t i = 0; i < n; i++) is |= node[i] == v;
    if (n >= 0) ki_free(node);
    return is;
}

/* A store of a PARAM's element, or several. */
static bool stores_results(kn_uop body) {
    uint32_t n = body->op == KN_GROUP ? body->nsrc : 1;
    for (uint32_t i = 0; i < n; i++) {
        kn_uop u = body->op == KN_GROUP ? body->src[i] : body, p = u->op == KN_STORE ? ki_storage(u->src[0]) : NULL;
        if (!p || p->op != KN_PARAM || u->nsrc != 2) return false;
    }
    return n > 0 && n <= MOST_RESULTS;
}

static const char *find_pair(const ki_nest *k, kn_uop r, pair *p) {
    const ki_scope *s = &k->scope;
    kn_uop e = ki_nest_closer(k, r);
    bool ok = true;
    *p = (pair){.r = r, .end = e};
    if (e->op != KN_END || k->sink->nsrc != 1 || k->sink->src[0] != e || e->nsrc > MOST_OUTER ||
        e->src[e->nsrc - 1] != r)
        return "it is not the innermost loop of the only nest";
    for (uint32_t q = 1; q + 1 < e->nsrc; q++)
        if (ki_is_serial(e->src[q]) || ki_is_lane(e->src[q])) return "loops stand around it";
    if (!ki_is_serial(r) || ki_extent(r) < 2 || !ki_nest_independent(k, r)) return "its iterations are not independent";
    if (!stores_results(e->src[0])) return "it does not store results alone";
    for (uint32_t q = 0; q < s->n; q++) {
        kn_uop u = s->node[q];
        if (u->op == KN_AFTER || (u->op == KN_END && u != e)) return "it keeps something already";
        if (u->op != KN_REDUCE) continue;
        kn_uop own = only_loop(u);
        if (!own) return "a sum has several loops, or lanes";
        if (!p->m) {
            if (u->arg.reduce.op != KN_MAX || !ki_scope_has(s, u, r) || !reads_inputs(k, u, &ok))
                return ok ? "its first sum is no maximum of inputs alone" : "there is no memory";
            p->m = u, p->i = own;
        } else if (!p->s) {
            p->s = u, p->j = own;
        } else return "there are more than two sums";
    }
    if (!p->s || p->i == p->j || ki_extent(p->i) != ki_extent(p->j) || !is_made_of(k, p->s->src[0], p->m))
        return "there are no two sums of as many terms of which one needs the other";
    return ok ? NULL : "there is no memory";
}

/* v, all it reads read after `first`. */
static kn_uop behind(const ki_nest *k, kn_uop v, kn_uop first) {
    kn_uop *node, from[MOST_INPUTS], to[MOST_INPUTS];
    uint32_t m = 0;
    int64_t n = ki_toposort(k->ir, &v, 1, &node);
    for (int64_t i = 0; i < n && m < MOST_INPUTS; i++)
        if (node[i]->op == KN_PARAM && ki_rank(node[i]))
            from[m] = node[i], to[m++] = ki_op2(k->ir, KN_AFTER, node[i], first);
    if (n >= 0) ki_free(node);
    return n < 0 ? NULL : ki_substitute(k->ir, v, from, to, m);
}

kn_uop ki_opt_pipeline(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), home[MOST_OUTER];
    pair p;
    const char *why = find_pair(k, r, &p);
    if (why) return FAIL(why);
    kn_uop reg = ki_buffer_make(ir, ki_nest_next_buffer(k), 1, (kn_dtype)p.m->dtype, KN_REG, 0), at = reg;
    uint32_t n = 0;
    home[n++] = reg;
    for (uint32_t q = 1; q + 1 < p.end->nsrc; q++) home[n++] = p.end->src[q];
    if (n > 1) at = ki_opn(ir, KN_AFTER, home, n);
    kn_uop none = ki_index(ir, 0);
    kn_uop next = ki_op2(ir, KN_MAX, ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, r, ki_index(ir, -1)), ki_index(ir, -1)),
                         ki_index(ir, 1 - ki_extent(r)));
    next = ki_op2(ir, KN_MUL, next, ki_index(ir, -1));
    if (!at || !next) return NULL;
    kn_uop y = ki_substitute(ir, p.m, &r, &none, 1);
    kn_uop z = ki_substitute(ir, p.m->src[0], (kn_uop[]){r, p.i}, (kn_uop[]){next, p.j}, 2);
    if (!y || !z) return NULL;
    kn_uop first = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, at, none), y);
    if (!first || !(z = behind(k, z, first))) return NULL;
    z = ki_make(ir, KN_REDUCE, KN_VOID, (kn_uop[]){z, p.j}, 2, p.m->arg, 0);
    kn_uop old = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, reg, first, r), none);
    kn_uop row = old ? ki_substitute(ir, p.end->src[0], &p.m, &old, 1) : NULL, list[MOST_RESULTS + 4], src[MOST_OUTER];
    if (!row) return NULL;
    uint32_t results = row->op == KN_GROUP ? row->nsrc : 1;
    list[0] = reg, list[1] = first, list[2] = r;
    for (uint32_t q = 0; q < results; q++) list[q + 3] = row->op == KN_GROUP ? row->src[q] : row;
    at = ki_op2(ir, KN_INDEX, ki_opn(ir, KN_AFTER, list, results + 3), none);
    list[results + 3] = ki_op2(ir, KN_STORE, at, z);
    src[0] = ki_opn(ir, KN_GROUP, list + 3, results + 1);
    for (uint32_t q = 1; q < p.end->nsrc; q++) src[q] = p.end->src[q];
    kn_uop end = src[0] ? ki_opn(ir, KN_END, src, p.end->nsrc) : NULL;
    return end ? ki_substitute(ir, k->sink, &p.end, &end, 1) : NULL;
}

bool ki_reads_ahead(kn_uop access) {
    return access->op == KN_INDEX && access->src[0]->op == KN_AFTER && ki_storage(access)->op == KN_PARAM;
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

#define HEAVY      16 /* weight of the second sum: below, it waits for memory itself */
#define LEAST_ROWS 16
#define LEAST_ROW  (1 << 9)  /* bytes: shorter ones are better summed up side by side */
#define LONG_ROW   (1 << 16) /* bytes: shorter parts end before what is asked for ahead of them pays */

/* The pair of the kernel's only nest, of rows of so many bytes; NULL: there is none, or it does not pay. */
static kn_uop find_heavy(const ki_choice *c, int64_t least, pair *p) {
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL;
    kn_uop r = e && e->op == KN_END ? e->src[e->nsrc - 1] : NULL;
    if (!r || ki_extent(r) < LEAST_ROWS || find_pair(&c->nest, r, p) || p->m->dtype != p->s->dtype) return NULL;
    int64_t row = ki_extent(p->i) * (int64_t)ki_itemsize((kn_dtype)p->m->dtype);
    return row < least || ki_weight_in(&c->nest, p->j) < HEAVY ? NULL : r;
}

void ki_choose_pipeline(ki_choice *c) {
    pair p;
    kn_uop r = find_heavy(c, LEAST_ROW, &p);
    if (r) ki_choice_do(c, KI_OPT_PIPELINE, 0, false, r->arg.range.id, 0);
}

void ki_find_beside(ki_choice *c) {
    pair p;
    if (c->target->streams < 2 || !find_heavy(c, LONG_ROW, &p)) return;
    uint64_t rows = (uint64_t)ki_extent(p.r) * (uint64_t)ki_extent(p.j) * ki_itemsize((kn_dtype)p.m->dtype);
    if (rows >= c->from) c->beside = p.j->arg.range.id + 1;
}

unsigned ki_weight_ahead(const ki_nest *k, kn_uop r) {
    const ki_scope *s = &k->scope;
    unsigned w = 0;
    bool *is = ki_calloc(s->n, sizeof *is);
    if (!is) return ki_fail(k->ir->env, KI_E_NOMEM), 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        is[i] = ki_reads_ahead(u);
        for (uint32_t q = 0; q < u->nsrc && ki_is_elementwise((kn_op)u->op); q++) is[i] |= is[s->at[u->src[q]->id]];
        if (is[i] && ki_scope_has(s, u, r)) w += ki_weight(u);
    }
    ki_free(is);
    return w;
}
