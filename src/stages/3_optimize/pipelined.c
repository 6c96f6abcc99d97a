/* pipelined.c: the OptOp PIPELINE, software pipelining of a row: its maximum, of the next row, goes along with what needs it, of this row.
 *
 * Of rows that the first-level cache does not hold the maximum waits for memory and computes little, and what needs it computes and leaves memory
 * idle. So they share a loop, where that is a sum's:
 *
 *   m = REDUCE(max, y(r, i), i), s = REDUCE(op, f(x(r, j), m), j), END(STORE(z(r), g(s, m)), r)   becomes, m carried in a register,
 *   first = STORE(reg, REDUCE(max, y(0, i), i)), m = INDEX(AFTER(reg, first, r)), row = STORE(z(r), g(s, m)),
 *   END(GROUP(row, STORE(INDEX(AFTER(reg, first, r, row)), REDUCE(max, y'(min(r + 1, n - 1), j), j))), r)
 *
 * and where it fills a buffer, what reads that standing behind both (of rows that LATE has changed: late.c):
 *
 *   fill = END(STORE(e(j), f(x(r, j), m)), j), full = AFTER(e, fill)   becomes, m = INDEX(AFTER(reg, first, r)),
 *   full = AFTER(e, fill, STORE(INDEX(AFTER(reg, first, r, fill)), REDUCE(max, y'(min(r + 1, n - 1), j), j)))
 *
 * y' reads AFTER(its PARAM, first): what is found a row ahead is found no sooner than what needs the first row's, so stage 4 (expand.c) meets
 * both on one level and gives them one loop. What needs m reads it before that is overwritten. The last row's maximum is found twice. */
#include "stages/3_optimize/choose.h"
#include "stages/indexing.h"

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_PIPELINE, (int)o->axis, (why)), NULL)
enum { MOST_OUTER = 4, MOST_RESULTS = 4, MOST_INPUTS = 4, MOST_FULL = 4 };

/* What is found a row ahead, and what it goes along with: a sum that needs it, or the loop that fills a buffer with what does, and nothing else. */
typedef struct pair {
    kn_uop end, r;          /* the rows' */
    kn_uop m, i;            /* the maximum, and its loop */
    kn_uop s, j;            /* what it goes along with: REDUCE or END */
    kn_uop full[MOST_FULL]; /* AFTER(buffer, s), each */
    uint32_t nfull;
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

/* With a sum. */
static const char *find_sum(const ki_nest *k, kn_uop r, pair *p) {
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

/* Is m needed but by what p->s fills? */
static bool is_needed_beside(const ki_nest *k, const pair *p, bool *ok) {
    const ki_scope *s = &k->scope;
    bool *needs = ki_calloc(s->n, sizeof *needs);
    if (!(*ok = needs != NULL)) return true;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        needs[i] = u == p->m;
        for (uint32_t q = 0; q < u->nsrc && u != p->m && u != p->s; q++) needs[i] |= needs[s->at[u->src[q]->id]];
    }
    bool is = needs[s->n - 1];
    ki_free(needs);
    return is;
}

/* With a loop that fills a buffer. */
static const char *find_fill(const ki_nest *k, kn_uop r, pair *p) {
    const ki_scope *s = &k->scope;
    kn_uop e = ki_nest_closer(k, r);
    bool ok = true;
    *p = (pair){.r = r, .end = e};
    if (e->op != KN_END || e->nsrc != 2 || !ki_is_serial(r) || ki_extent(r) < 2) return "it is no loop over rows alone";
    for (uint32_t q = 0; q < s->n && ok; q++) {
        kn_uop u = s->node[q];
        if (u->op != KN_REDUCE || u->arg.reduce.op != KN_MAX || !ki_scope_has(s, u, r) || !reads_inputs(k, u, &ok))
            continue;
        if (p->m) return "it has several maxima of inputs";
        p->m = u, p->i = only_loop(u);
    }
    if (!p->i) return ok ? "it has no maximum of inputs alone over one loop" : "there is no memory";
    for (uint32_t q = 0; q < s->n; q++) {
        kn_uop u = s->node[q], j = u->op == KN_END && u->nsrc == 2 ? u->src[1] : NULL;
        bool is = j && ki_scope_has(s, u, r) && ki_is_serial(j) && ki_extent(j) == ki_extent(p->i);
        if (is && !p->s && is_made_of(k, u->src[0], p->m)) p->s = u, p->j = j;
        for (uint32_t f = 0; p->s && f < u->nsrc; f++) {
            if (u->src[f] != p->s) continue;
            if (u->op != KN_AFTER || f != 1 || u->nsrc != 2 || p->nfull == MOST_FULL)
                return "what needs the maximum fills no buffer that is read afterwards";
            p->full[p->nfull++] = u;
        }
    }
    if (!p->nfull) return "no loop of as many steps fills a buffer with what needs the maximum";
    if (is_needed_beside(k, p, &ok)) return ok ? "something else needs the maximum as well" : "there is no memory";
    return NULL;
}

/* v, all it reads read after `first`. */
static kn_uop behind(const ki_nest *k, kn_uop v, kn_uop first) {
    kn_uop *node, from[MOST_INPUTS], to[MOST_INPUTS];
    uint32_t m = 0;
    int64_t n = ki_toposort(k->ir, &v, 1, &node);
    for (int64_t i = 0; i < n && m < MOST_INPUTS; i++)
        if (node[i]->op == KN_PARAM && ki_rank(node[i]))
            from[m] = node[i], to[m++] = ki_after(k->ir, node[i], &first, 1);
    if (n >= 0) ki_free(node);
    return n < 0 ? NULL : ki_substitute(k->ir, v, from, to, m);
}

kn_uop ki_opt_pipeline(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), home[MOST_OUTER], none = ki_index(ir, 0);
    pair p;
    const char *why = find_sum(k, r, &p);
    if (why && find_fill(k, r, &p)) return FAIL(why);
    kn_uop reg = ki_buffer_make(ir, ki_nest_next_buffer(k), 1, (kn_dtype)p.m->dtype, KN_REG, 0), at = reg;
    uint32_t n = 0;
    home[n++] = reg;
    for (uint32_t q = 0; q < k->scope.nrange; q++) { /* lanes of it, threads, loops around the rows */
        kn_uop x = k->scope.range[q];
        if (x == r || !(ki_scope_has(&k->scope, p.m, x) || ki_scope_has(&k->scope, p.end->src[0], x))) continue;
        if (n == MOST_OUTER) return FAIL("loops stand around it");
        home[n++] = x;
    }
    if (n > 1) at = ki_opn(ir, KN_AFTER, home, n);
    kn_uop next = ki_index_extreme(ir, ki_index_add(ir, r, ki_index(ir, 1)), ki_index(ir, ki_extent(r) - 1), -1);
    if (!at || !next) return NULL;
    kn_uop y = ki_substitute(ir, p.m, &r, &none, 1);
    kn_uop z = ki_substitute(ir, p.m->src[0], (kn_uop[]){r, p.i}, (kn_uop[]){next, p.j}, 2);
    if (!y || !z) return NULL;
    kn_uop first = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, at, none), y);
    if (!first || !(z = behind(k, z, first))) return NULL;
    z = ki_make(ir, KN_REDUCE, KN_VOID, (kn_uop[]){z, p.j}, 2, p.m->arg, 0);
    kn_uop old = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, reg, first, r), none),
           list[MOST_RESULTS + 4] = {reg, first, r};
    /* What reads this row's maximum comes before the next one's: the row's results, or the loop that fills the buffer. */
    kn_uop now = old ? ki_substitute(ir, p.nfull ? p.s : p.end->src[0], &p.m, &old, 1) : NULL, to[MOST_FULL];
    if (!now) return NULL;
    n = now->op == KN_GROUP ? now->nsrc : 1;
    for (uint32_t q = 0; q < n; q++) list[q + 3] = now->op == KN_GROUP ? now->src[q] : now;
    at = ki_op2(ir, KN_INDEX, ki_opn(ir, KN_AFTER, list, n + 3), none);
    kn_uop put = list[n + 3] = ki_op2(ir, KN_STORE, at, z);
    for (uint32_t q = 0; q < p.nfull; q++)
        if (!(to[q] = ki_op3(ir, KN_AFTER, p.full[q]->src[0], now, put))) return NULL;
    if (p.nfull) return ki_substitute(ir, k->sink, p.full, to, p.nfull);
    home[0] = ki_opn(ir, KN_GROUP, list + 3, n + 1);
    for (uint32_t q = 1; q < p.end->nsrc; q++) home[q] = p.end->src[q];
    kn_uop end = home[0] ? ki_opn(ir, KN_END, home, p.end->nsrc) : NULL;
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

/* Is there enough work beside the maximum, in rows of so many bytes? */
static bool is_heavy(const ki_nest *k, const pair *p, int64_t least) {
    int64_t row = ki_extent(p->i) * (int64_t)ki_itemsize((kn_dtype)p->m->dtype);
    return ki_extent(p->r) >= LEAST_ROWS && row >= least && ki_weight_in(k, p->j) >= HEAVY;
}

/* Of the kernel's only nest. */
static bool sums_heavily(const ki_choice *c, int64_t least, pair *p) {
    kn_uop e = c->sink->nsrc == 1 ? c->sink->src[0] : NULL;
    kn_uop r = e && e->op == KN_END ? e->src[e->nsrc - 1] : NULL;
    return r && !find_sum(&c->nest, r, p) && p->m->dtype == p->s->dtype && is_heavy(&c->nest, p, least);
}

/* Of rows that LATE stores. */
static bool fills_heavily(const ki_choice *c, pair *p) {
    const ki_nest *k = &c->nest;
    const ki_opt *late = ki_nest_opt(k, KI_OPT_LATE, NULL);
    kn_uop r = late ? ki_nest_range(k, (uint32_t)late->axis) : NULL;
    return r && !find_fill(k, r, p) && is_heavy(k, p, LEAST_ROW);
}

void ki_choose_pipeline(ki_choice *c) {
    pair p;
    /* Rows that a first cache holds wait for memory where much must be under way for all of its rate, or no hardware fetches streams; vectors that are
     * narrow take longer than it. */
    bool waits = c->ahead || (c->target->streams < 2 && !ki_is_narrow(c));
    if (sums_heavily(c, LEAST_ROW, &p) || (waits && fills_heavily(c, &p)))
        ki_choice_do(c, KI_OPT_PIPELINE, 0, false, p.r->arg.range.id, 0);
}

/* The sum that goes through a row once, where others do if need be (2_rangeify/prepare.kr): its loop. */
static kn_uop find_once(const ki_nest *k) {
    kn_uop loop = NULL;
    bool seldom = false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q], j = k->scope.range[q];
        if (!x || x->op != KN_REDUCE || x->nsrc != 2 || !ki_is_serial(j)) continue;
        if (ki_is_seldom(k, x)) seldom = true;
        else if (x->arg.reduce.op == KN_ADD && ki_weight_in(k, j) >= HEAVY) loop = j;
    }
    return seldom ? loop : NULL;
}

void ki_find_long_rows(ki_choice *c) {
    pair p;
    kn_uop e = c->sink->nsrc == 1 && c->sink->src[0]->op == KN_END ? c->sink->src[0] : NULL;
    kn_uop once = e ? find_once(&c->nest) : NULL, j = once;
    if (once) c->once = once->arg.range.id + 1;
    if (!once && c->target->streams > 1 && sums_heavily(c, LONG_ROW, &p)) j = p.j;
    if (!j || c->target->streams < 2) return;
    uint64_t row = (uint64_t)ki_extent(j) * ki_itemsize((kn_dtype)ki_nest_closer(&c->nest, j)->dtype);
    uint64_t rows = row * (uint64_t)ki_extent(e->src[e->nsrc - 1]);
    if (row >= LONG_ROW && rows >= c->from) c->beside = j->arg.range.id + 1;
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
