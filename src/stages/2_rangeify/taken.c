/* taken.c: a product that one other kernel reads row by row, and nobody else, is made inside that one (DESIGN 12.4).
 *
 * Attention's scores are a sum of products, and what weighs the values with them keeps rows of them anyway (softmax, row.c). As many as there are
 * queries times keys, they would be written to memory for it and read again. Where that kernel's outermost loops are the rows it makes a row itself,
 * keeps it, and the scores are nowhere else:
 *
 *   SINK(END(STORE(s(p, k), f(p, k)), p..., k)) and SINK(END(STORE(y(p, q), .. INDEX(s(p, r)) ..), p..., q...))  become
 *   row  = BUFFER(LOCAL, extent of k)
 *   fill = END(STORE(INDEX(AFTER(row, p...), k), f(p, k)), k)
 *   SINK(END(STORE(y(p, q), .. INDEX(AFTER(row, fill), r) ..), p..., q...))
 *
 * Nothing but where they lie changes: every value is computed once, as before. It takes rows enough for tiles of them (3_optimize/filled.c). */
#include "rules/indexmath.h"
#include "stages/scope.h"
#include "stages/2_rangeify/siblings.h"

enum {
    /* That meet the same keys, and as many keys: fewer scores stay in the second cache, and what packing the keys takes is more. */
    LEAST_ROWS = 128,
    /* Elements of a row: a tile's rows, of scores and of what softmax makes of them, fit a stack. */
    MOST_TAKEN = 1 << 15
};

typedef struct taking {
    ki_ir *ir;
    kn_uop a, b;              /* their ENDs */
    kn_uop store;             /* a's */
    ki_linear at;             /* where it stores */
    kn_uop row[KI_MAX_TERMS]; /* by term of `at`: b's loop; NULL: the column's */
    unsigned column;          /* the term */
    kn_uop from[64], to[64];  /* b's reads, and of what range in place of the column */
    unsigned n;
    kn_uop product; /* a's sum of queries by keys, */
    unsigned query; /* and which side the queries are */
} taking;

static kn_uop only_end(kn_uop sink) {
    kn_uop e = sink->nsrc == 1 ? sink->src[0] : NULL;
    for (uint32_t j = 1; e && e->op == KN_END && j < e->nsrc; j++)
        if (e->src[j]->op != KN_RANGE || e->src[j]->src[0]->op != KN_CONST) return NULL;
    return e && e->op == KN_END && e->nsrc <= KI_MAX_TERMS ? e : NULL;
}

/* One value, stored as it lies to memory that held nothing before. */
static bool match_store(taking *t) {
    kn_uop s = t->store = t->a->src[0];
    bool plain = s->op == KN_STORE && s->nsrc == 2 && !s->tag && s->src[0]->op == KN_INDEX &&
                 s->src[0]->src[0]->op == KN_BUFFER && ki_linear_of(s->src[0]->src[1], &t->at);
    if (!plain || t->at.n != t->a->nsrc - 1) return false;
    for (unsigned i = 0; i < t->at.n; i++)
        if (t->at.term[i]->op != KN_RANGE) return false;
    return true;
}

static bool is_loop_of(kn_uop end, kn_uop r) {
    for (uint32_t j = 1; j < end->nsrc; j++)
        if (end->src[j] == r) return true;
    return false;
}

/* A loop r of b that is two of a's, joined (loops.c), in a's way: where a stores the inner one goes in steps of as many elements, and so far that the
 * outer one goes on from there. *inner: its extent; 0: it is none. */
static void find_joined(const taking *t, const ki_linear *l, kn_uop *r, int64_t *inner) {
    *inner = 0;
    for (unsigned j = 0; j < l->n; j++)
        for (unsigned i = 0; i < t->at.n; i++)
            for (unsigned o = 0; o < t->at.n; o++) {
                int64_t n = ki_extent(t->at.term[i]), m = ki_extent(t->at.term[o]);
                if (l->term[j]->op != KN_RANGE || !is_loop_of(t->b, l->term[j]) || t->at.coef[i] != l->coef[j])
                    continue;
                if (t->at.coef[o] == n * t->at.coef[i] && ki_extent(l->term[j]) == n * m) *r = l->term[j], *inner = n;
            }
}

enum { MOST = 64 };

/* u with two loops in its list where `one` stands for both; u itself: it does not. NULL: out of memory. */
static kn_uop relisted(ki_ir *ir, kn_uop u, kn_uop one, kn_uop x, kn_uop y) {
    kn_uop src[MOST];
    uint32_t k = 0;
    for (uint32_t j = 0; j < u->nsrc && k + 2 < MOST; j++) {
        src[k++] = u->src[j] == one ? x : u->src[j];
        if (u->src[j] == one) src[k++] = y;
    }
    return k == u->nsrc ? u : ki_with_srcs(ir, u, src, k);
}

/* b's kernel with such a loop as two, also where rows are kept in it. */
static kn_uop split(const taking *t, kn_uop sink, kn_uop r, int64_t inner, uint32_t *next) {
    ki_ir *ir = t->ir;
    const kn_uop *node;
    kn_uop x = ki_range_make(ir, (*next)++, KN_AX_LOOP, ki_index(ir, ki_extent(r) / inner)),
           y = ki_range_make(ir, (*next)++, KN_AX_LOOP, ki_index(ir, inner)), from[MOST], to[MOST];
    kn_uop one = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, x, ki_index(ir, inner)), y);
    kn_uop all = one ? ki_substitute(ir, sink, &r, &one, 1) : NULL;
    int64_t n = all ? ki_reach_above(ir, &all, 1, 0, &node) : -1;
    uint32_t m = 0;
    for (int64_t i = 0; i < n && m < MOST; i++) {
        if (node[i]->op != KN_AFTER) continue;
        from[m] = node[i];
        if (!(to[m] = relisted(ir, from[m], one, x, y))) return NULL;
        m += to[m] != from[m];
    }
    if (n < 0 || !(all = ki_substitute(ir, all, from, to, m))) return NULL;
    kn_uop end = relisted(ir, all->src[0], one, x, y);
    return end && (all = ki_with_srcs(ir, all, &end, 1)) ? ki_range_fold(ir, all, 0) : NULL;
}

/* b's loops in a's way, of what one read says. *sink: b's kernel. False: out of memory. */
static bool part_loops(taking *t, kn_uop *sink, uint32_t *next) {
    kn_uop memory = t->store->src[0]->src[0], r = NULL;
    for (unsigned joined = 0; joined + 1 < t->at.n; joined++) {
        const kn_uop *node;
        ki_linear l;
        int64_t n = ki_reach_above(t->ir, &t->b, 1, 0, &node), inner = 0;
        for (int64_t i = 0; i < n && !inner; i++)
            if (node[i]->op == KN_INDEX && node[i]->src[0] == memory && ki_linear_of(node[i]->src[1], &l) &&
                l.n < t->at.n)
                find_joined(t, &l, &r, &inner);
        if (n < 0) return false;
        if (!inner) return true;
        if (!(*sink = split(t, *sink, r, inner, next))) return false;
        if (!(t->b = only_end(*sink))) return true;
    }
    return true;
}

/* A read of b's: in each row by a range of its own, and else along b's loops, the same in all reads. */
static bool match_read(taking *t, kn_uop read) {
    ki_linear l;
    unsigned column = KI_MAX_TERMS;
    if (!ki_linear_of(read->src[1], &l) || l.n != t->at.n || l.k != t->at.k || t->n == 64) return false;
    for (unsigned i = 0; i < t->at.n; i++) {
        unsigned j = 0;
        while (j < l.n && l.coef[j] != t->at.coef[i]) j++;
        if (j == l.n || l.term[j]->op != KN_RANGE || l.term[j]->src[0] != t->at.term[i]->src[0]) return false;
        if (!is_loop_of(t->b, l.term[j])) {
            if (column != KI_MAX_TERMS) return false;
            column = i;
            t->to[t->n] = l.term[j];
        } else if (t->row[i] && t->row[i] != l.term[j]) {
            return false;
        } else {
            t->row[i] = l.term[j];
        }
    }
    if (column == KI_MAX_TERMS || (t->n && column != t->column)) return false;
    t->column = column;
    t->from[t->n++] = read;
    return true;
}

/* A sum of products of a row that is kept: what rows are tiled for. */
static bool weighs_row(kn_uop u) {
    if (u->op != KN_REDUCE || u->arg.reduce.op != KN_ADD || u->src[0]->op != KN_MUL) return false;
    for (uint32_t j = 0; j < 2; j++) {
        kn_uop at = u->src[0]->src[j], row = at->op == KN_INDEX ? at->src[0] : NULL;
        bool own = row && row->op == KN_AFTER && row->src[0]->op == KN_BUFFER;
        if (own && row->src[0]->arg.buffer->addrspace == KN_LOCAL) return true;
    }
    return false;
}

/* All of b's reads; does it weigh with rows made of them, and are these its outermost loops? */
static bool match_reads(taking *t) {
    const kn_uop *node;
    kn_uop memory = t->store->src[0]->src[0];
    int64_t n = ki_reach_above(t->ir, &t->b, 1, 0, &node);
    bool ok = n >= 0, weighs = false;
    for (int64_t i = 0; i < n && ok; i++) {
        kn_uop u = node[i];
        weighs |= weighs_row(u);
        ok = u == memory || u->op != KN_BUFFER || u->arg.buffer != memory->arg.buffer; /* another version */
        for (uint32_t j = 0; j < u->nsrc && ok; j++)
            if (u->src[j] == memory) ok = u->op == KN_INDEX && match_read(t, u);
    }
    if (!ok || !weighs || !t->n || t->row[t->column] || t->b->nsrc <= t->at.n) return false;
    for (uint32_t j = 1; j < t->at.n; j++) {
        bool leads = false;
        for (unsigned i = 0; i < t->at.n; i++) leads |= t->row[i] == t->b->src[j];
        if (!leads) return false;
    }
    return true;
}

/* Is x a sum of keys, as they lie, one after the other along the column and the same in all of r, by queries, of which it is the other way round? */
static bool is_product(ki_scope *s, kn_uop x, kn_uop column, kn_uop r, unsigned query) {
    bool sum = x->op == KN_REDUCE && x->nsrc == 2 && x->arg.reduce.op == KN_ADD && x->src[0]->op == KN_MUL;
    kn_uop q = sum ? x->src[0]->src[query] : NULL, key = sum ? x->src[0]->src[!query] : NULL;
    if (!sum || key->op != KN_INDEX || x->src[1]->src[0]->op != KN_CONST) return false;
    return ki_scope_has(s, key, column) && !ki_scope_has(s, key, r) && !ki_scope_has(s, q, column) &&
           ki_scope_has(s, q, r);
}

/* Is it such a sum, of rows and columns enough? */
static bool pays(taking *t) {
    ki_scope s;
    kn_uop column = t->at.term[t->column];
    int64_t n = ki_extent(column), most = 0;
    bool ok = n >= LEAST_ROWS && n <= MOST_TAKEN && ki_scope_open(&s, t->ir, t->a);
    if (!ok) return false;
    t->product = NULL;
    for (uint32_t i = 0; i < s.n; i++)
        for (unsigned j = 0; j < t->at.n; j++)
            for (unsigned query = 0; query < 2; query++) {
                kn_uop r = t->at.term[j];
                if (j == t->column || !is_product(&s, s.node[i], column, r, query)) continue;
                t->product = s.node[i], t->query = query;
                if (ki_extent(r) > most) most = ki_extent(r);
            }
    ki_scope_close(&s);
    return most >= LEAST_ROWS;
}

/* A row of the nest, kept where its loops of rows are open: AFTER(buffer, what fills it with value along r). */
static kn_uop kept(const taking *t, kn_uop value, kn_uop r) {
    kn_uop home[KI_MAX_TERMS + 1];
    uint32_t n = 1;
    home[0] = ki_buffer_make(t->ir, t->ir->next_buffer, ki_row_kept(ki_extent(r)), (kn_dtype)value->dtype, KN_LOCAL, 0);
    for (uint32_t j = 1; j < t->at.n; j++) home[n++] = t->b->src[j];
    kn_uop at = ki_op2(t->ir, KN_INDEX, ki_opn(t->ir, KN_AFTER, home, n), r), put = ki_op2(t->ir, KN_STORE, at, value);
    return put ? ki_op2(t->ir, KN_AFTER, home[0], ki_op2(t->ir, KN_END, put, r)) : NULL;
}

/* What is computed of the queries (their scale) is computed once a row, too. */
static kn_uop with_queries(const taking *t, kn_uop value, kn_uop product, uint32_t *next) {
    kn_uop q = product->src[0]->src[t->query], r = product->src[1], own, row;
    if (q->op == KN_INDEX) return value;
    own = ki_range_make(t->ir, (*next)++, KN_AX_LOOP, r->src[0]);
    kn_uop of = own ? ki_substitute(t->ir, q, &r, &own, 1) : NULL;
    kn_uop now = of && (row = kept(t, of, own)) ? ki_op2(t->ir, KN_INDEX, row, r) : NULL;
    return now ? ki_substitute(t->ir, value, &q, &now, 1) : NULL;
}

/* b's kernel, which makes a's rows; NULL: out of memory. */
static kn_uop taken(taking *t, kn_uop sink, uint32_t *next) {
    ki_ir *ir = t->ir;
    kn_uop from[KI_MAX_TERMS], to[KI_MAX_TERMS], made[2] = {t->store->src[1], t->product};
    uint32_t m = 0;
    for (unsigned i = 0; i < t->at.n; i++)
        if (i != t->column) from[m] = t->at.term[i], to[m++] = t->row[i];
    if (!ki_substitute_all(ir, made, 2, from, to, m)) return NULL;
    kn_uop value = with_queries(t, made[0], made[1], next), row = value ? kept(t, value, t->at.term[t->column]) : NULL;
    for (unsigned i = 0; i < t->n && row; i++)
        if (!(t->to[i] = ki_op2(ir, KN_INDEX, row, t->to[i]))) return NULL;
    return row ? ki_substitute(ir, sink, t->from, t->to, t->n) : NULL;
}

/* The only kernel that comes after a; NONE: there are others, or none. */
static uint32_t only_user(const ki_family *f, uint32_t a) {
    uint32_t b = NONE;
    for (uint32_t e = f->k->first[a]; e < f->nedge && f->edge[e].before == a; e++) {
        if (b != NONE && f->edge[e].after != b) return NONE;
        b = f->edge[e].after;
    }
    return b;
}

static bool is_wanted(const ki_family *f, kn_uop memory) {
    const ki_program *p = f->r->p;
    for (size_t i = 0; i < p->nout; i++)
        if (p->out[i].node->op == KN_BUFFER && p->out[i].node->arg.buffer == memory->arg.buffer) return true;
    return false;
}

/* What a sink touches, and the next free number of a RANGE. */
static uint32_t look(ki_ir *ir, kn_uop sink, uint32_t *next) {
    const kn_uop *node;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    uint32_t args = n < 0 ? KI_MOST_ARGS + 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        args += node[i]->op == KN_PARAM || (node[i]->op == KN_BUFFER && node[i]->arg.buffer->addrspace == KN_GLOBAL);
        if (node[i]->op == KN_RANGE && node[i]->arg.range.id >= *next) *next = node[i]->arg.range.id + 1;
    }
    return args;
}

static bool take(ki_family *f, uint32_t a, uint32_t b) {
    ki_ir *ir = f->r->ir;
    kn_uop user = f->k->sink[b];
    taking t = {.ir = ir, .b = only_end(user)};
    bool marked[KI_WINDOW + 1];
    uint32_t next = 0;
    if (!t.b || !(t.a = only_end(f->k->sink[a])) || !match_store(&t) || is_wanted(f, t.store->src[0]->src[0]) ||
        look(ir, f->k->sink[a], &next) + look(ir, user, &next) > KI_MOST_ARGS)
        return ir->env->err == KI_E_NONE;
    if (!part_loops(&t, &user, &next) || !t.b || !match_reads(&t) || !pays(&t) ||
        !ki_family_reach(f, a, b, false, marked))
        return ir->env->err == KI_E_NONE;
    kn_uop sink = ki_family_fresh(ir, f->k->sink[a], &next); /* its ranges are none of b's */
    if (!sink) return false;
    ki_linear before = t.at;
    t.a = sink->src[0];
    bool same = match_store(&t) && t.at.n == before.n;
    for (unsigned i = 0; same && i < before.n; i++) same = t.at.coef[i] == before.coef[i];
    if (!same || !pays(&t)) return ir->env->err == KI_E_NONE;
    kn_uop e = taken(&t, user, &next);
    if (!e) return false;
    ki_family_join(f, a, b, marked);
    f->k->sink[a] = e;
    return f->fact[a].one = f->fact[a].fixed = f->fact[b].fixed = true;
}

bool ki_range_take(ki_family *f) {
    bool ok = true;
    for (uint32_t a = 0; a < f->k->n && ok; a++) {
        const ki_fact *x = &f->fact[a];
        if (x->fixed || x->one || !x->sums || x->head != a || x->next != NONE) continue;
        uint32_t b = only_user(f, a); /* one that keeps rows is fixed */
        if (b == NONE || !f->fact[b].fixed || f->fact[b].head != b || f->fact[b].next != NONE || f->fact[b].one)
            continue;
        if (f->fact[b].at < x->at || f->fact[b].at - x->at > KI_WINDOW) continue;
        ok = take(f, a, b);
    }
    return ok;
}
