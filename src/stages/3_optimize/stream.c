/* stream.c: the OptOp STREAM, and when it pays: what a kernel writes to an output goes past the caches.
 *
 * An ordinary store first fetches the line it writes to, and pushes another one out of the cache. For an output larger than
 * the caches, written once, line by line and in full, and not read again here, both are for nothing: whoever reads it
 * next would find only its end in a cache, and begins at its start. The mark changes no value; a renderer that cannot keep
 * to it (an unaligned line, a gate) stores as usual. */
#include "stages/3_optimize/choose.h"

#define FAIL(...) (ki_fail(k->ir->env, __VA_ARGS__), NULL)
#define FEW_TERMS 64        /* of a sum that takes no longer than its result's way to memory */
#define MOST_KEPT (1 << 20) /* bytes: a second-level cache keeps it */
#define SQUARES   (1 << 21) /* bytes of a result by squares that a second-level cache does not keep */
#define SIDE      16        /* rows of results that a square has */

static bool goes_to(kn_uop store, int32_t slot) {
    kn_uop p = store->op == KN_STORE && ki_is_access(store->src[0]) ? ki_storage(store->src[0]) : NULL;
    return p && p->op == KN_PARAM && p->arg.param->slot == slot;
}

static bool is_read(const ki_nest *k, int32_t slot) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop p = k->read[i] ? ki_storage(k->scope.node[i]) : NULL;
        if (p && p->op == KN_PARAM && p->arg.param->slot == slot) return true;
    }
    return false;
}

kn_uop ki_opt_stream(ki_nest *k, ki_opt *o) {
    const ki_scope *s = &k->scope;
    kn_uop *from = ki_calloc(2 * (size_t)s->n, sizeof *from), *to = from ? from + s->n : NULL, result = NULL;
    uint32_t n = 0;
    bool ok = from != NULL;
    if (!ok) return FAIL(KI_E_NOMEM);
    for (uint32_t i = 0; i < s->n && ok; i++) {
        if (!goes_to(s->node[i], o->axis)) continue;
        kn_uop store = n ? ki_substitute(k->ir, s->node[i], from, to, n) : s->node[i]; /* it may stand behind others */
        from[n] = s->node[i];
        ok = store && (to[n++] = ki_with_arg(k->ir, store, (kn_arg){.i = 1})) != NULL;
    }
    o->id = 0; /* it makes nothing that has one */
    if (ok && (n == 0 || is_read(k, o->axis)))
        ki_fail(k->ir->env, KI_E_OPT_STREAM, (int)o->axis,
                n ? "the kernel reads it too" : "the kernel does not write it");
    else if (ok) result = ki_substitute(k->ir, k->sink, from, to, n);
    ki_free(from);
    return result;
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

/* Elements in a row that one iteration of the loops writes: lanes that continue each other from stride 1 on. */
static int64_t row(const ki_nest *k, kn_uop store) {
    const ki_scope *s = &k->scope;
    int64_t n = 1;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t q = 0; q < s->nrange && !more; q++) {
            kn_uop r = s->range[q];
            bool known, lane = ki_is_lane(r) && ki_scope_has(s, store->src[0]->src[1], r);
            if (!lane || ki_extent(r) < 2 || ki_nest_stride(k, store->src[0], r, &known) != n || !known) continue;
            n *= ki_extent(r);
            more = true;
        }
    }
    return n;
}

/* How many elements a store writes. */
static double written(const ki_nest *k, kn_uop store) {
    const ki_scope *s = &k->scope;
    double n = 1;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (ki_scope_has(s, store, s->range[q])) n *= ki_extent(s->range[q]) ? (double)ki_extent(s->range[q]) : 1e9;
    return n;
}

/* All but a sixteenth of it (what cuts leave over) in whole lines, without gates. */
static bool in_lines(const ki_choice *c, int32_t slot, unsigned item) {
    const ki_nest *k = &c->nest;
    double all = 0, good = 0;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (!goes_to(u, slot)) continue;
        double n = written(k, u);
        all += n;
        if (u->nsrc == 2 && u->src[0]->src[1]->op != KN_WHERE && row(k, u) * item % c->target->line == 0) good += n;
    }
    return good >= all * 15 / 16;
}

bool ki_goes_past(const ki_choice *c, const ki_tile *t) {
    kn_uop store = ki_nest_store(ki_nest_closer(&c->nest, t->v)), to = store ? ki_storage(store->src[0]) : NULL;
    return to && ki_is_past(c, to);
}

bool ki_stores_by_rows(const ki_choice *c, kn_uop e, const ki_tile *t) {
    const ki_nest *k = &c->nest;
    int64_t terms = ki_terms(t->reduce);
    if (!c->target->twice || terms > FEW_TERMS || !ki_goes_past(c, t)) return false;
    if (terms * ki_extent(t->v) * ki_word_bytes(k, t->streamed) > MOST_KEPT) return false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop y = k->closer[q];
        if (y && y->op == KN_REDUCE && y != t->reduce && ki_scope_has(&k->scope, y, t->v)) return false;
    }
    return ki_reads_results(k, e, t->reduce, t->u, t->v);
}

/* Is it stored by squares, a line in each of so many rows that are whole lines apart, and nothing else done? Ordinary stores wait for their lines one by
 * one, then, as no hardware fetches them ahead: of 2048 rows by 2048 columns they took 4.8 times as long on a Xeon with tiles, of 768 by 768 1.1 to 1.5
 * (512 by 768 0.65 to 1.55). It was measured nowhere else. */
static bool stores_squares(const ki_choice *c, kn_uop store) {
    const ki_nest *k = &c->nest;
    bool squares = false;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        int64_t step = ki_nest_step(k, store->src[0], r);
        if (k->closer[q] && k->closer[q]->op == KN_REDUCE) return false;
        squares |= ki_is_lane(r) && ki_extent(r) == SIDE && step > c->target->line && step % c->target->line == 0;
    }
    return squares && c->target->streams > 1;
}

void ki_choose_streams(ki_choice *c) {
    for (uint32_t i = 0; c->ok && c->open && i < c->nest.scope.n; i++) {
        kn_uop u = c->nest.scope.node[i], p = u->op == KN_STORE ? ki_storage(u->src[0]) : NULL;
        if (!p || p->op != KN_PARAM || u->arg.i || !ki_is_access(u->src[0])) continue;
        int32_t slot = p->arg.param->slot;
        unsigned item = (unsigned)ki_itemsize((kn_dtype)p->dtype);
        bool past = ki_is_past(c, p) || (ki_numel(p) * item >= SQUARES && stores_squares(c, u));
        if (!past || is_read(&c->nest, slot) || !in_lines(c, slot, item)) continue;
        if (ki_choice_do(c, KI_OPT_STREAM, 0, false, (uint32_t)slot, 0)) i = 0;
    }
}
