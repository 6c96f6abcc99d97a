/* inside.c: what is made row by row of what another kernel reads anyway is made inside that one (DESIGN 12.7).
 *
 * A normalisation's mean, a softmax's maximum and sum are stored where several kernels need them, by a kernel of their own that has
 * read all of the rows when the next one begins to read them again. Where that one's outermost loops are the rows it computes a row's
 * sums itself, as if nobody else needed them, and stores them too:
 *
 *   SINK(END(STORE(s(p), f(p)), p...)) and SINK(END(STORE(y(p, q), g(INDEX(s(p)), p, q)), p..., q...))  become
 *   SINK(END(STORE(AFTER(y, STORE(s(p), f(p)))(p, q), g(f(p), p, q)), p..., q...))
 *
 * Whole rows, that a sum over their elements reads for a few results each (what attention makes of its scores), likewise:
 *
 *   SINK(END(STORE(e(p, k), f(p, k)), p..., k)) and SINK(END(STORE(y(p, q), sum of INDEX(e(p, r)) * .. over r), p..., q...))  become
 *   SINK(END(STORE(AFTER(y, END(STORE(e(p, k), f(p, k)), k))(p, q), sum of f(p, r) * .. over r), p..., q...))
 *
 * row.c then keeps what stands in two of its loops. Values and what is stored stay the same. */
#include "rules/indexmath.h"
#include "stages/indexing.h"
#include "stages/scope.h"
#include "stages/2_rangeify/siblings.h"

#include <string.h>

enum {
    MOST_HUNG = 24,     /* stores in front of a row's own */
    LEAST_ROWS = 8,     /* threads divide rows */
    MOST_RESULTS = 128, /* of a row that is read by a sum: what a kernel keeps a row for (decide.c) */
    MOST_KERNELS = 16   /* that need a kernel's results: so many are tried */
};

typedef struct taking { /* a's nest into b's */
    ki_ir *ir;
    kn_uop a, b;                           /* their ENDs */
    kn_uop loop[KI_MAX_RANK];              /* of b: the rows */
    unsigned nloop;                        /* so many; the others of b are results of a row */
    kn_uop column, at;                     /* of whole rows: a's last loop, and b's range that reads them; or NULL */
    kn_uop hung[MOST_HUNG];                /* what is stored in front */
    kn_uop from[MOST_HUNG], to[MOST_HUNG]; /* what b reads of it, and what that is */
    unsigned nhung, nread;
} taking;

static kn_uop target_of(kn_uop store) {
    kn_uop t = store->src[0]->src[0];
    while (t->op == KN_AFTER) t = t->src[0];
    return t;
}

/* A kernel of one nest that stores to memory which held nothing before. */
static kn_uop only_nest(kn_uop sink) {
    kn_uop e = sink->nsrc == 1 ? sink->src[0] : NULL, body = e && e->op == KN_END ? e->src[0] : NULL;
    if (!body || e->nsrc > KI_MAX_RANK) return NULL;
    for (uint32_t i = 0; i < (body->op == KN_GROUP ? body->nsrc : 1); i++) {
        kn_uop s = body->op == KN_GROUP ? body->src[i] : body;
        if (s->op != KN_STORE || s->nsrc != 2 || s->tag || target_of(s)->op != KN_BUFFER) return NULL;
    }
    for (uint32_t j = 1; j < e->nsrc; j++)
        if (e->src[j]->op != KN_RANGE || e->src[j]->src[0]->op != KN_CONST) return NULL;
    return e;
}

/* The one REDUCE of a nest, NULL if there are none or several, *n of them. */
static kn_uop sum_of(ki_ir *ir, kn_uop end, uint32_t *n) {
    const kn_uop *node;
    kn_uop sum = NULL;
    int64_t count = ki_reach_above(ir, &end, 1, 0, &node);
    *n = 0;
    for (int64_t i = 0; i < count; i++)
        if (node[i]->op == KN_REDUCE) sum = node[i], ++*n;
    return *n == 1 ? sum : NULL;
}

/* Terms of all the sums of one REDUCE of a nest, of the one that has most; 0: there is none. */
static double terms_of(ki_ir *ir, kn_uop end) {
    ki_scope s;
    double most = 0;
    for (bool ok = ki_scope_open(&s, ir, end), once = true; ok && once; once = false)
        for (uint32_t i = 0; i < s.n; i++) {
            double times = 1;
            if (s.node[i]->op != KN_REDUCE) continue;
            for (uint32_t r = 0; r < s.nrange; r++)
                if (ki_in_set(ki_scope_free(&s, s.node[i]->src[0]), r)) times *= (double)(s.range[r]->hi.i + 1);
            if (times > most) most = times;
        }
    ki_scope_close(&s);
    return most;
}

/* Are a's loops, but the last one of whole rows, b's outermost ones; or is a's only one several of these joined? *row: what it is of them. */
static bool match_rows(taking *t, kn_uop *row) {
    unsigned rows = t->a->nsrc - 1 - (t->column != NULL), most = t->b->nsrc - 1;
    int64_t n = 1;
    *row = NULL;
    for (t->nloop = 0; t->nloop < rows && t->nloop < most; t->nloop++) {
        t->loop[t->nloop] = t->b->src[t->nloop + 1];
        if (t->b->src[t->nloop + 1]->src[0] != t->a->src[t->nloop + 1]->src[0]) break;
    }
    if (rows && t->nloop == rows) return true;
    ki_dim dim[KI_MAX_RANK];
    for (t->nloop = 0; rows == 1 && t->nloop < most && n < ki_extent(t->a->src[1]); t->nloop++) {
        t->loop[t->nloop] = t->b->src[t->nloop + 1];
        n *= dim[t->nloop].n = ki_extent(t->loop[t->nloop]);
        dim[t->nloop].sym = NULL;
    }
    if (rows != 1 || n != ki_extent(t->a->src[1])) return false;
    const ki_type *shape = ki_type_make(t->ir, t->nloop, dim, 0, -1);
    return shape && (*row = ki_linear_index(t->ir, shape, t->loop).x) != NULL;
}

/* Terms of a sum may stand in another order. */
static bool same_place(kn_uop a, kn_uop b) {
    ki_linear x, y;
    if (a == b) return true;
    if (!ki_linear_of(a->src[1], &x) || !ki_linear_of(b->src[1], &y) || x.n != y.n || x.k != y.k) return false;
    for (unsigned i = 0; i < x.n; i++)
        if (x.term[i] != y.term[i] || x.coef[i] != y.coef[i]) return false;
    return true;
}

/* a's stores, in b's loops, and what b reads of them. False: it reads something else of them, or nothing. */
static bool match_reads(taking *t, kn_uop row) {
    kn_uop from[KI_MAX_RANK], to[KI_MAX_RANK], *order, put[MOST_HUNG], body, k = t->column;
    unsigned m = 0, rows = t->a->nsrc - 1 - (k != NULL);
    for (; m < rows; m++) from[m] = t->a->src[m + 1], to[m] = row ? row : t->loop[m];
    if (!(body = ki_substitute(t->ir, t->a->src[0], from, to, m)) || !(body = ki_range_fold(t->ir, body, 0)))
        return false;
    unsigned n = body->op == KN_GROUP ? body->nsrc : 1;
    for (uint32_t i = 0; i < n; i++) {
        kn_uop s = body->op == KN_GROUP ? body->src[i] : body, at = s->src[0]->src[0], to = target_of(s);
        for (uint32_t j = 1; at->op == KN_AFTER && j < at->nsrc && t->nhung < MOST_HUNG; j++)
            t->hung[t->nhung++] = at->src[j];
        if (!(put[i] = ki_substitute(t->ir, s, &at, &to, 1)) || t->nhung + n >= MOST_HUNG) return false;
    }
    int64_t count = ki_toposort(t->ir, &t->b, 1, &order);
    bool ok = count >= 0;
    for (int64_t q = 0; q < count && ok; q++)
        for (uint32_t i = 0; i < n && ok; i++) {
            if (order[q]->op != KN_INDEX || order[q]->src[0] != target_of(put[i])) continue;
            kn_uop s = k ? ki_range_fold(t->ir, ki_substitute(t->ir, put[i], &k, &t->at, 1), 0) : put[i];
            ok = s && same_place(s->src[0], order[q]) && t->nread < MOST_HUNG;
            if (ok) t->from[t->nread] = order[q], t->to[t->nread++] = s->src[1];
        }
    if (count >= 0) ki_free(order);
    for (uint32_t i = 0; i < n; i++) t->hung[t->nhung++] = put[i];
    return ok && t->nread;
}

/* b's kernel with all of it in it. */
static kn_uop taken_in(const taking *t, kn_uop sink) {
    kn_uop src[MOST_HUNG + 1], e = ki_substitute(t->ir, sink, t->from, t->to, t->nread), *last = &src[t->nhung];
    kn_uop body = e ? e->src[0]->src[0] : NULL, first = body && body->op == KN_GROUP ? body->src[0] : body;
    if (!e) return NULL;
    src[0] = target_of(first);
    memcpy(src + 1, t->hung, t->nhung * sizeof *src);
    if (t->column) *last = ki_op2(t->ir, KN_END, *last, t->column);
    kn_uop after = *last ? ki_opn(t->ir, KN_AFTER, src, t->nhung + 1) : NULL;
    kn_uop store = after ? ki_substitute(t->ir, first, src, &after, 1) : NULL;
    return store ? ki_substitute(t->ir, e, &first, &store, 1) : NULL;
}

/* Would a's sums, made inside b, be what they cost alone, and rows enough for the threads? */
static bool pays(ki_family *f, const taking *t, uint32_t a, uint32_t b) {
    double rows = 1, results = 1, work;
    uint32_t own;
    for (unsigned j = 0; j + 1 < t->b->nsrc; j++)
        if (j < t->nloop) rows *= (double)ki_extent(t->b->src[j + 1]);
        else results *= (double)ki_extent(t->b->src[j + 1]);
    if (rows < LEAST_ROWS) return false;
    if (!t->column) {
        work = terms_of(t->ir, t->a);
        return work > 0 && work * f->fact[a].widest <= 2.0 * (double)ki_family_shared(f, a, b);
    }
    int64_t n = ki_extent(t->column);
    if (!sum_of(t->ir, t->b, &own) || results > MOST_RESULTS || n < KI_LEAST_ROW || n > KI_MOST_ROW) return false;
    work = terms_of(t->ir, t->a);
    return work > 0 && work <= 2 * rows * (double)n && terms_of(t->ir, t->b) == rows * results * (double)n;
}

/* Does a way lead from a to b by others? marked: what a reaches. */
static bool leads_around(const ki_family *f, uint32_t a, uint32_t b, const bool *marked) {
    uint32_t low = f->fact[a].at, high = f->fact[b].at;
    for (uint32_t at = low + 1; at < high; at++)
        for (uint32_t m = marked[at - low] ? f->order[at] : NONE; m != NONE; m = f->fact[m].next)
            for (uint32_t e = f->k->first[m]; e < f->nedge && f->edge[e].before == m; e++)
                if (f->fact[f->edge[e].after].head == b) return true;
    return false;
}

/* b's kernel with a's in it, folded; NULL: it cannot be, or need not. *ok: no failure. */
static kn_uop make_one(ki_family *f, taking *t, uint32_t a, uint32_t b, bool *ok) {
    ki_ir *ir = t->ir;
    uint32_t next = f->fact[a].ranges > f->fact[b].ranges ? f->fact[a].ranges : f->fact[b].ranges;
    kn_uop row, sink = ki_family_fresh(ir, f->k->sink[a], &next), e = NULL;
    if (sink) {
        t->a = sink->src[0];
        if (t->column) t->column = t->a->src[t->a->nsrc - 1];
        if (match_rows(t, &row) && pays(f, t, a, b) && match_reads(t, row)) e = taken_in(t, f->k->sink[b]);
        if (e) e = ki_range_fold(ir, e, 0); /* rows are kept once all are in (siblings.c) */
    }
    return *ok = ir->env->err == KI_E_NONE, e;
}

static kn_uop as_first(ki_firsts *s, const ki_first *first, bool *ok) {
    kn_uop e = ki_firsts_as(s, first);
    return *ok = e != NULL, e;
}

/* As make_one, once for all that are written alike, and of whom it depends on the same. */
static kn_uop one_of(ki_family *f, taking *t, uint32_t a, uint32_t b, bool *ok) {
    ki_firsts *s = &f->firsts;
    ki_first *first = NULL;
    kn_uop pair[2] = {f->k->sink[a], f->k->sink[b]};
    const ki_fact *x = &f->fact[a], *y = &f->fact[b];
    bool whole;
    *ok = ki_written_begin(&s->seen, pair, 2, &whole);
    if (*ok && whole)
        *ok = ki_written_put(&s->seen, (uint64_t)x->ranges << 32 | y->ranges) &&
              ki_written_put(&s->seen, (uint64_t)ki_family_shared(f, a, b)) &&
              ki_written_put(&s->seen, (uint64_t)x->widest << 16 | (uint64_t)(t->column != NULL) << 8 | KI_TOOK_IN) &&
              ki_firsts_find(s, &first);
    if (!*ok) return NULL;
    if (first && first->name) return first->done ? as_first(s, first, ok) : NULL;
    s->fresh = t->ir->next_buffer;
    kn_uop e = make_one(f, t, a, b, ok);
    if (*ok && first) *ok = ki_firsts_note(s, first, e);
    return e;
}

/* *done: b has taken a in; whole: a's rows, which b's sum reads. */
static bool take_in(ki_family *f, uint32_t a, uint32_t b, bool whole, bool *done) {
    ki_ir *ir = f->r->ir;
    taking t = {.ir = ir, .b = only_nest(f->k->sink[b])};
    bool marked[KI_WINDOW + 1], ok;
    uint32_t sums;
    kn_uop sum;
    if (!t.b || f->fact[a].nodes + f->fact[b].nodes > KI_MOST_NODES ||
        f->fact[a].args + f->fact[b].args > KI_MOST_ARGS || f->fact[a].at > f->fact[b].at ||
        f->fact[b].at - f->fact[a].at > KI_WINDOW || f->fact[a].widest != f->fact[b].widest ||
        !(t.a = only_nest(f->k->sink[a])) || t.a->nsrc > t.b->nsrc + whole)
        return true;
    if (whole) {
        t.column = t.a->src[t.a->nsrc - 1];
        if (t.a->nsrc < 3 || t.a->src[0]->op == KN_GROUP || !(sum = sum_of(ir, t.b, &sums)) || sum->nsrc != 2 ||
            sum->src[1]->src[0] != t.column->src[0])
            return true;
        t.at = sum->src[1];
    }
    /* What needs no copy of a is asked first: nearly all pairs end here. */
    if (!whole && (ki_family_shared(f, a, b) < KI_SHARED || (sum_of(ir, t.b, &sums), sums))) return true;
    kn_uop e = one_of(f, &t, a, b, &ok);
    if (!e || !ki_family_reach(f, a, b, false, marked) || leads_around(f, a, b, marked)) return ok;
    ki_family_join(f, a, b, marked);
    f->k->sink[a] = e;
    f->fact[a].one = f->fact[a].fixed = f->fact[b].fixed = *done = true;
    if (f->fact[b].ranges > f->fact[a].ranges) f->fact[a].ranges = f->fact[b].ranges;
    return true;
}

/* The first kernel that needs a's results and can take it in. */
static bool find_place(ki_family *f, uint32_t a, bool whole, bool *done) {
    bool ok = true;
    uint32_t tried = 0;
    for (uint32_t m = a; m != NONE && ok && !*done; m = f->fact[m].next)
        for (uint32_t e = f->k->first[m]; e < f->nedge && f->edge[e].before == m && ok && !*done; e++) {
            uint32_t b = f->edge[e].after;
            if (e > f->k->first[m] && f->edge[e - 1].after == b) continue;
            if (b != f->fact[b].head || f->fact[b].fixed || f->fact[b].head == a || tried++ == MOST_KERNELS) continue;
            ok = take_in(f, a, b, whole, done);
        }
    return ok;
}

bool ki_range_inside(ki_family *f) {
    bool ok = true;
    for (uint32_t a = 0; a < f->k->n && ok; a++) {
        bool done = false, also = false;
        if (f->fact[a].fixed || !f->fact[a].sums || f->fact[a].head != a) continue;
        ok = find_place(f, a, false, &done);
        if (ok && done) ok = find_place(f, a, true, &also);
    }
    return ok;
}
