/* prefetch.c: when the OptOp PREFETCH (asked.c) pays: what a loop reads, or writes, is asked for before it is its turn.
 *
 * The hardware fetches ahead too, but not far enough where a vector takes long, not across the rows of a matrix, not of many of them at once,
 * not the next row, strip of rows, or panel to be packed, while this one, in the cache by now, is gone through again, and not what a tile of sums is added
 * to and stored in.
 * What numbers lead to, iterations later, is led.c's. */
#include "stages/3_optimize/choose.h"
#include "stages/3_optimize/dots.h"

#include <string.h>

#define LEAST    KI_LEAST_AHEAD
#define MOST     KI_MOST_AHEAD
#define AHEAD    (1 << 12) /* bytes, along memory */
#define BETWEEN  (1 << 13) /* the same of what is found beside heavy sums of other rows */
#define ROOM     (1 << 13) /* bytes of a row for which the first cache has room beside a scale and a shift */
#define STRIP    (1 << 11) /* bytes of a strip of rows to have under way */
#define SOON     1536      /* bytes, along what a sum of little else reads */
#define LIGHT    2         /* weight of a loop that does nothing but add up what it reads */
#define OFTEN    4         /* times that what may be lost is asked for */
#define FAR      (1 << 10) /* bytes from which on two places are of different rows */
#define MOST_ROW (1 << 18) /* bytes of a row that is still in a cache when it is its turn */
#define FIRST    (1 << 15) /* bytes of a first cache: what does not leave room in it waits behind it */
#define LONG_ROW                                                                                                       \
    (1 << 12) /* bytes of a row that has no room in the first cache beside this one and what else is gone through */
#define TIME_AHEAD   (1 << 14) /* bytes of such rows, at least: memory's answer takes longer than one of them */
#define WORTH_ASKING 16        /* weight of what is done to a vector: below, memory alone decides */
#define MOST_INPUTS  2         /* that are gone through at once, and asked for */
#define LEAST_TERMS  32        /* of the sums of a tile: time enough to fetch what comes behind them */
#define FEW_ROWS     4
#define FEW_TIMES    4         /* that an operand is gone through: what is read more often some cache has */
#define BLOCK_ROWS   16        /* that lie apart and are read at once: more than the hardware looks after */
#define SQUARES      4         /* along such rows, and */
#define FEW_SQUARES  2         /* where much is to be under way: the hardware asks for more itself */
#define SHORTEST     16        /* iterations of a loop in an iteration of another */
#define MOST_USES    64        /* of a panel, beside which packing it takes time */
#define BESIDE       (1 << 20) /* bytes of a second-level cache */
#define NEAR         (1 << 18) /* bytes of what the second-level cache is likely to have */
#define SECOND       (1 << 20) /* bytes of what it does not have, whoever wrote it */

/* The PARAM that an access is to; read: that it reads. */
static kn_uop param_at(const ki_nest *k, uint32_t i) {
    kn_uop p = ki_is_access(k->scope.node[i]) ? ki_storage(k->scope.node[i]) : NULL;
    return p && p->op == KN_PARAM ? p : NULL;
}
static kn_uop param_of(const ki_nest *k, uint32_t i) { return k->read[i] ? param_at(k, i) : NULL; }

static bool is_streamed(const ki_nest *k, int32_t slot) {
    const ki_opt *o = NULL;
    while ((o = ki_nest_opt(k, KI_OPT_STREAM, o)))
        if (o->axis == slot) return true;
    return false;
}

static int64_t bytes_of(kn_uop param) { return ki_numel(param) * (int64_t)ki_itemsize((kn_dtype)param->dtype); }

/* ---- when it pays ------------------------------------------------------------------------------------------ */

/* The next access to the PARAM from node *i on, the innermost loop in which it moves on, one that runs: *r. NULL: there is none; all: writes too. */
static kn_uop next_access(const ki_nest *k, kn_uop param, bool all, uint32_t *i, kn_uop *r) {
    while (*i < k->scope.n) {
        uint32_t at = (*i)++;
        kn_uop u = k->scope.node[at], p = all ? param_at(k, at) : param_of(k, at);
        if (p != param) continue;
        if (!k->moves[at]) k->moves[at] = ki_nest_form(k, u) ? ki_innermost(k, u) : u;
        if (k->moves[at] != u && !ki_is_seldom(k, ki_nest_closer(k, k->moves[at]))) return *r = k->moves[at], u;
    }
    return NULL;
}

/* Elements that all loops and lanes together read of it, what padding adds included. */
static double covered(const ki_nest *k, kn_uop access) {
    double n = 1;
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_nest_step(k, access, k->scope.range[q])) n *= (double)ki_extent(k->scope.range[q]);
    return n;
}

/* A row that a and b both read, each in a loop of its own: the bytes to the next one; 0: there is none, or it is too long. */
static int64_t next_row(const ki_nest *k, kn_uop a, kn_uop b) {
    kn_uop best = NULL;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        bool same = ki_is_serial(r) && ki_nest_step(k, a, r) && ki_nest_step(k, a, r) == ki_nest_step(k, b, r);
        if (same && (!best || ki_is_inside(k, r, best))) best = r;
    }
    int64_t s = best ? ki_nest_step(k, a, best) : 0;
    if (s < FAR || s > MOST_ROW) return 0;
    double x = covered(k, a), y = covered(k, b);
    return x < 2 * y && y < 2 * x ? s : 0; /* else they read different rows */
}

typedef struct place {
    kn_uop loop;
    int64_t ahead; /* bytes */
    double worth;
    bool second; /* into the second cache */
    int64_t row; /* bytes to the next row */
    int64_t rows;
} place;

/* Bytes that lanes read of a row. */
static int64_t width(const ki_nest *k, kn_uop access) {
    int64_t n = (int64_t)ki_itemsize((kn_dtype)access->dtype);
    for (uint32_t q = 0; q < k->scope.nrange; q++)
        if (ki_is_lane(k->scope.range[q]) && ki_nest_step(k, access, k->scope.range[q]))
            n *= ki_extent(k->scope.range[q]);
    return n;
}

/* In how many places a loop reads what the access does. */
static unsigned reads_in(const ki_nest *k, kn_uop access, kn_uop loop) {
    unsigned n = 0;
    for (uint32_t i = 0; i < k->scope.n; i++)
        n += param_of(k, i) == ki_storage(access) && ki_scope_has(&k->scope, k->scope.node[i], loop);
    return n;
}

/* Does the loop carry something that it stores as it goes? */
static bool scans(const ki_nest *k, kn_uop loop) {
    kn_uop e = ki_nest_closer(k, loop), store = e->op == KN_END ? ki_nest_store(e) : NULL;
    return store && ki_storage(store->src[0])->op == KN_PARAM && !ki_nest_independent(k, loop);
}

/* Rows of a tile that the access makes, apart from each other. */
static int64_t rows_of(const ki_nest *k, kn_uop access) {
    int64_t far = width(k, access) + 1, rows = 1;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (ki_is_lane(r) && ki_nest_step(k, access, r) * ki_extent(r) >= far && ki_nest_step(k, access, r) >= LEAST)
            far = ki_nest_step(k, access, r) * ki_extent(r), rows = ki_extent(r);
    }
    return rows;
}

/* How far ahead of a loop that goes along memory. */
static int64_t far(const ki_choice *c) { return c->ahead ? c->ahead : AHEAD; }

/* The same along a row that is gone through once: while a Zen 5's memory was slow, two threads took 1.03 times as long with less under way. */
static int64_t along_once(const ki_choice *c) {
    if (c->beside) return FAR;
    return c->ahead ? c->ahead + c->ahead / 2 : c->target->streams > 1 ? AHEAD : BETWEEN;
}

/* The same where a row is kept beside: the first cache has room for half of what is to be under way, then. */
static int64_t beside_kept(const ki_choice *c) { return c->ahead ? (c->ahead + 1) / 2 : AHEAD; }

/* Where much is to be under way two rows that fit in the first cache are kept there, and each loop that goes through one asks for all of the next:
 * shared out and into the second cache, as elsewhere, layer norm took 1.2 times as long. */
static bool goes_far(const ki_choice *c, int64_t row) { return c->ahead && row >= LONG_ROW && 2 * row <= FIRST; }

/* Where wide vectors are stored and the hardware does not fetch streams (a Zen 4). */
bool ki_waits_behind_stores(const ki_choice *c) {
    return !c->ahead && c->target->streams <= 1 && c->target->vector >= 64;
}

/* There each loop asks for all of the next row, not for its share, and the first one for what it reads soon (rows of 8 KiB took 1.08 of the time so). */
static bool asks_again(const ki_choice *c, int64_t row) { return ki_waits_behind_stores(c) && row > ROOM; }

/* Where a loop goes along memory, or down its rows: a wide strip of what takes more than an addition is better left alone. */
static int64_t along(const ki_choice *c, kn_uop access, kn_uop loop) {
    const ki_nest *k = &c->nest;
    kn_uop e = ki_nest_closer(k, loop);
    int64_t s = ki_nest_step(k, access, loop), rows = STRIP / width(k, access);
    bool scan = scans(k, loop);
    int64_t terms;
    if (c->once == loop->arg.range.id + 1) return along_once(c);
    if (s < FAR && ki_longest_sum(k, loop, &terms) && rows_of(k, access) >= FEW_ROWS)
        return 0; /* not the next tile's rows */
    if (s < FAR) return scan || ki_weight_in(k, loop) >= WORTH_ASKING * reads_in(k, access, loop) ? far(c) : 0;
    bool pays = e->op == KN_REDUCE ? e->arg.reduce.op == KN_ADD || rows >= 4 : scan;
    return s <= MOST_ROW && pays ? s * (rows < 1 ? 1 : rows > 8 ? 8 : rows) : 0;
}

/* Does it store the kernel's result, and nothing else? */
static bool stores_result(kn_uop closer) {
    kn_uop body = closer->src[0];
    if (closer->op != KN_END || (body->op != KN_GROUP && body->op != KN_STORE)) return false;
    for (uint32_t i = 0; body->op == KN_GROUP && i < body->nsrc; i++)
        if (body->src[i]->op == KN_STORE && ki_storage(body->src[i]->src[0])->op == KN_BUFFER) return false;
    kn_uop store = ki_nest_store(closer);
    return store && ki_storage(store->src[0])->op == KN_PARAM;
}

/* A read of a PARAM. Of reads in one loop that differ in a constant, as unrolled ones do, all that is asked has one answer: the first one's. */
typedef struct reader {
    kn_uop access, loop;
    uint32_t first, last; /* of those alike; last: where it is the first */
    place at;             /* what its loop could ask for, once that was looked at */
} reader;

static bool is_alike(const ki_nest *k, const reader *a, const reader *b) {
    const ki_affine *f = ki_nest_form(k, a->access), *g = ki_nest_form(k, b->access);
    return a->loop == b->loop && a->access->dtype == b->access->dtype && f->n == g->n &&
           !memcmp(f->t, g->t, f->n * sizeof *f->t);
}

/* All of them, in order; to be freed. NULL: none, or no memory, which env says. */
static reader *readers_of(const ki_nest *k, kn_uop param, uint32_t *n) {
    kn_uop u, r;
    uint32_t m = *n = 0;
    for (uint32_t i = 0; next_access(k, param, false, &i, &r);) m++;
    reader *a = m ? ki_calloc(m, sizeof *a) : NULL;
    if (m && !a) ki_fail(k->ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; a && (u = next_access(k, param, false, &i, &r)); ++*n) {
        a[*n] = (reader){.access = u, .loop = r, .first = *n};
        for (uint32_t j = *n; j-- > 0 && a[*n].first == *n;)
            if (is_alike(k, &a[j], &a[*n])) a[*n].first = a[j].first;
        a[a[*n].first].last = *n;
    }
    return a;
}

/* What the loop of one of them could ask for. */
static place place_of(const ki_choice *c, const reader *a, uint32_t n, const reader *x) {
    const ki_nest *k = &c->nest;
    kn_uop u = x->access, r = x->loop;
    place p = {.loop = r};
    bool result = stores_result(ki_nest_closer(k, r)), waits = ki_weight_in(k, r) < WORTH_ASKING;
    for (uint32_t j = 0, last = 0; j < n; j++) {
        int64_t ahead = a[j].first != j || a[j].loop == r ? 0 : next_row(k, u, a[j].access);
        if (ahead) waits &= ki_nest_closer(k, r)->id < ki_nest_closer(k, a[j].loop)->id;
        if (ahead && a[j].last >= last) p.ahead = ahead, last = a[j].last;
    }
    p.row = p.ahead;
    p.second = p.row >= LONG_ROW;
    if (p.second && waits && 2 * p.row < FIRST) p.ahead = SOON, p.row = 0;
    else if (p.second) p.ahead *= (TIME_AHEAD + p.row - 1) / p.row;
    if (goes_far(c, p.row)) p.second = false;
    if (p.ahead) p.worth = (result ? 1e15 : 2e15) + (double)ki_extent(r) * ki_weight_in(k, r);
    else p = (place){.loop = r, .ahead = along(c, u, r), .worth = (double)ki_extent(r) / (1 + ki_weight_in(k, r))};
    if (c->once == r->arg.range.id + 1) p.second = !c->ahead;
    return p;
}

/* Of the loops that read a PARAM: of several that go through the same row that which has most to do meanwhile, the stores of the
 * kernel's result aside; else the longest, that which has least to do. Where that is the first to read the row, which waits for what was
 * asked for, less is under way, as long as the first cache keeps the row for the others. */
static place best_place(const ki_choice *c, kn_uop param) {
    place best = {0};
    uint32_t n;
    reader *a = readers_of(&c->nest, param, &n);
    for (uint32_t i = 0; i < n; i++) {
        reader *x = &a[a[i].first];
        if (x->loop == best.loop) continue;
        if (!x->at.loop) x->at = place_of(c, a, n, x);
        if (x->at.ahead && x->at.worth > best.worth) best = x->at;
    }
    ki_free(a);
    return best;
}

/* Does a vector of it lie in a row? */
static bool is_row(const ki_nest *k, kn_uop access) {
    int64_t item = (int64_t)ki_itemsize((kn_dtype)access->dtype);
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (ki_is_lane(r) && ki_nest_step(k, access, r) == item && ki_extent(r) * item * 2 >= LEAST) return true;
    }
    return false;
}

/* Does another sum of as many terms read the same rows, in the same loop around both? */
static bool is_read_again(const ki_nest *k, kn_uop param, kn_uop access, kn_uop sum) {
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        kn_uop x = ki_nest_closer(k, r);
        const ki_affine *f = ki_nest_form(k, u), *g = ki_nest_form(k, access);
        if (x == sum || x->op != KN_REDUCE || ki_terms(x) != ki_terms(sum) || !f || !g || f->k != g->k) continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop v = k->scope.range[q];
            if (ki_is_serial(v) && ki_nest_step(k, u, v) && ki_nest_step(k, u, v) == ki_nest_step(k, access, v))
                return true;
        }
    }
    return false;
}

/* What one sum alone reads, each element once: of rows far apart at the same time, where which of them is fetched ahead, and how far, is better
 * said, or along memory, past all caches, where loads that wait leave no room for what the hardware would fetch behind them. Not what AVX2 adds up
 * along memory, in one place or in several: a Zen 3 keeps pace, and took 1.2 to 1.3 times as long where it was asked for. */
static place of_sum(const ki_choice *c, kn_uop param, bool past) {
    const ki_nest *k = &c->nest;
    bool streams = c->target->streams > 1;
    place best = {0};
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        if (ki_nest_step(k, u, r) >= FAR) continue;
        kn_uop x = ki_nest_closer(k, r);
        bool first =
            (c->ahead || streams) && x->op == KN_END && ki_nest_opt(k, KI_OPT_FIRST, NULL) && ki_nest_carries(k, x);
        bool apart = false, once = x->op == KN_REDUCE || first;
        for (uint32_t q = 0; q < k->scope.nrange && once; q++) {
            kn_uop v = k->scope.range[q];
            apart |= v->arg.range.axis == KN_AX_UPCAST && ki_nest_step(k, u, v) >= FAR;
            once = ki_nest_step(k, u, v) || ki_extent(v) == 1 || !ki_scope_has(&k->scope, x, v);
        }
        bool keeps_pace = ki_is_narrow(c) && once && x->arg.reduce.op == KN_ADD;
        int64_t more = ki_extent(r) - (best.loop ? ki_extent(best.loop) : 0);
        bool is_best = more > 0 || (more == 0 && streams && apart); /* rather than what a cut left */
        if (!keeps_pace && (apart || (past && is_row(k, u))) && once && is_best && !is_read_again(k, param, u, x))
            best = (place){.loop = r,
                           .ahead = c->ahead && !apart ? c->ahead
                                    : streams          ? (apart ? FAR : AHEAD)
                                    : apart            ? STRIP
                                                       : SOON,
                           .second = (apart && !streams) || (!c->ahead && (!streams || ki_weight_in(k, r) > LIGHT))};
    }
    return best;
}

/* Large inputs that the loop reads. */
static unsigned inputs_of(const ki_nest *k, kn_uop loop, int64_t least) {
    kn_uop seen[MOST_INPUTS + 1];
    unsigned n = 0;
    for (uint32_t i = 0; i < k->scope.n && n <= MOST_INPUTS; i++) {
        kn_uop p = ki_scope_has(&k->scope, k->scope.node[i], loop) ? param_of(k, i) : NULL;
        unsigned at = 0;
        while (at < n && seen[at] != p) at++;
        if (p && at == n && bytes_of(p) >= least) seen[n++] = p;
    }
    return n;
}

/* Is it read in several places (places.c)? */
static bool goes_apart(const ki_nest *k, kn_uop param) {
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));)
        for (uint32_t q = 0; q < k->scope.nrange; q++)
            if (ki_is_lane(k->scope.range[q]) && ki_nest_step(k, u, k->scope.range[q]) >= FAR) return true;
    return false;
}

/* What is changed element by element and stored past the caches: one input into the first cache, two into the second, in several places
 * into the first; what AVX2 reads so nobody asks for. */
static place of_map(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    kn_uop u, r;
    int64_t terms;
    bool places = goes_apart(k, param);
    if (ki_is_narrow(c) && places) return (place){0};
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        kn_uop e = ki_nest_closer(k, r), store = e->op == KN_END && ki_last_loop(e) == r ? ki_nest_store(e) : NULL;
        kn_uop to = store ? ki_storage(store->src[0]) : NULL;
        if (!to || to->op != KN_PARAM || !is_streamed(k, to->arg.param->slot) || ki_nest_step(k, u, r) >= FAR ||
            !is_row(k, u))
            continue;
        if (ki_itemsize((kn_dtype)to->dtype) < ki_itemsize((kn_dtype)u->dtype)) continue; /* parts of lines */
        unsigned n = inputs_of(k, r, bytes_of(param) / 2);
        if ((n <= MOST_INPUTS || places) && !ki_longest_sum(k, r, &terms))
            return (place){.loop = r, .ahead = STRIP, .second = n > 1 && !places};
    }
    return (place){0};
}

/* How far ahead of a row, or a thread's part of one, that goes by itself: along memory, or so many rows on. */
static int64_t along_row(const ki_choice *c, int64_t bytes, int64_t next) {
    int64_t ahead = beside_kept(c);
    return bytes >= c->ahead ? ahead : (ahead + bytes - 1) / bytes * next;
}

/* What rows are added to, or compared with (rows.c), several at once: the next rows, while these are gone through; where the hardware does that,
 * what stands a little further on in each of them, into the first cache. One at a time where much is to be under way. With AVX2 only where results
 * are stored as they come: a vector by a matrix took 1.2 times as long. */
static place of_rows(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    place best = {0};
    kn_uop u, r;
    kn_uop last = NULL;
    bool one = false; /* is the last one the only read in its loop? */
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        int64_t step = ki_nest_step(k, u, r), row = step * ki_extent(r);
        kn_uop e = ki_nest_closer(k, r), s = e->op == KN_END ? ki_nest_store(e) : NULL;
        if (step >= FAR || e->op != KN_END || (double)row <= best.worth) continue;
        bool deep = c->ahead && e->src[0]->op == KN_STORE, streams = deep || c->target->streams > 1;
        if (r != last) one = reads_in(k, u, r) < 2, last = r;
        if ((one && !deep) || (ki_is_narrow(c) && (!s || ki_storage(s->src[0])->op != KN_PARAM))) continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop v = k->scope.range[q], end = k->closer[q];
            int64_t next = ki_is_serial(v) && v != r ? ki_nest_step(k, u, v) : 0;
            bool part = one && next && end->op == KN_END && ki_scope_has(&k->scope, e, v); /* of a row that was cut */
            if (!next || (end != e && !part) || !ki_nest_carries(k, end)) continue;
            int64_t ahead = one ? along_row(c, row, next) : next < FAR || next > MOST_ROW ? 0 : streams ? FAR : next;
            if (ahead) best = (place){.loop = r, .ahead = ahead, .second = !streams, .worth = (double)row};
        }
    }
    return best;
}

/* Is it what is copied to local memory? */
static bool is_copied(kn_uop closer, kn_uop access) {
    kn_uop store = closer->op == KN_END ? ki_nest_store(closer) : NULL;
    return store && store->src[1] == access && ki_storage(store->src[0])->op == KN_BUFFER;
}

/* Rows that are copied together (STAGE), parts of longer ones: too short for the hardware to fetch ahead. From far apart they would come
 * to the same sets of the first-level cache. */
static place of_copy(const ki_nest *k, kn_uop param) {
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        int64_t one = width(k, u), apart = ki_nest_step(k, u, r), rows = AHEAD / one;
        if (is_row(k, u) && apart > one && apart < FAR && ki_extent(r) > 2 * rows && is_copied(ki_nest_closer(k, r), u))
            return (place){.loop = r, .ahead = apart * rows};
    }
    return (place){0};
}

/* A strip's rows that are copied to all of its panels (pack_strip, tiled.c): the next row, from far apart, while this one is. */
static place of_strip(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    kn_uop u, r;
    for (uint32_t i = 0; ki_is_narrow(c) && (u = next_access(k, param, false, &i, &r));) {
        kn_uop e = ki_nest_closer(k, r);
        uint32_t at = e->op == KN_END ? ki_place_in(e, r) : 0;
        if (at < 2 || !is_row(k, u) || ki_nest_step(k, u, r) != width(k, u) || !is_copied(e, u)) continue;
        int64_t apart = ki_nest_step(k, u, e->src[at - 1]);
        if (apart >= LONG_ROW && apart <= MOST) return (place){.loop = r, .ahead = apart};
    }
    return (place){0};
}

/* Windows that are copied (copy_windows, tiled.c), a channel after the other: in each the rows below this one's, of which the next windows are. */
static place below_windows(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    kn_uop u, r;
    for (uint32_t i = 0; ki_is_narrow(c) && (u = next_access(k, param, false, &i, &r));) {
        int64_t rows = 0;
        if (!ki_is_gated(u) || !is_row(k, u) || ki_nest_step(k, u, r) < FAR || !is_copied(ki_nest_closer(k, r), u))
            continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop lane = k->scope.range[q];
            int64_t all = ki_is_lane(lane) ? ki_nest_step(k, u, lane) * ki_extent(lane) : 0;
            if (all > rows && ki_is_gated_by(k, u, lane)) rows = all;
        }
        if (rows > LEAST && rows < ki_nest_step(k, u, r)) return (place){.loop = r, .ahead = rows, .second = true};
    }
    return (place){0};
}

/* Another loop that asks for half of what `at` does, so that memory is busy for longer: it goes through the same row, by as wide vectors, and
 * has at least half as much to do. NULL: there is none, or one of the two is the first to read the row: it waits for what was asked for. *reads_first: that one. */
static kn_uop shares(const ki_nest *k, kn_uop param, const place *at, kn_uop *reads_first) {
    kn_uop first = NULL, other = NULL, mine = NULL, u, r;
    for (uint32_t i = 0; !mine && (u = next_access(k, param, false, &i, &r));)
        if (r == at->loop) mine = u;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        if (!first || ki_nest_closer(k, r)->id < ki_nest_closer(k, first)->id) first = r;
        bool same = r != at->loop && next_row(k, u, mine) == at->row && width(k, u) == width(k, mine);
        if (same && width(k, u) > LEAST && 2 * ki_weight_in(k, r) >= ki_weight_in(k, at->loop) &&
            (!other || ki_weight_in(k, r) > ki_weight_in(k, other)))
            other = r;
    }
    *reads_first = first;
    return other == first || at->loop == first ? NULL : other;
}

/* What meets the sums of a tile when they are done, and what they are stored in: the next tile's while its sums run. */
static place behind_sums(const ki_nest *k, kn_uop param) {
    place best = {0};
    int64_t terms;
    kn_uop u, r, x;
    for (uint32_t i = 0; (u = next_access(k, param, true, &i, &r));) {
        kn_uop e = ki_nest_closer(k, r);
        int64_t ahead = ki_nest_step(k, u, r);
        if (e->op != KN_END || ki_last_loop(e) != r || !(x = ki_longest_sum(k, r, &terms))) continue;
        if (terms < LEAST_TERMS) continue;
        if (is_row(k, u) && ahead >= LEAST && ahead <= MOST && covered(k, u) > best.worth)
            best = (place){.loop = r, .ahead = ahead, .worth = covered(k, u), .rows = rows_of(k, u)};
    }
    return best;
}

/* A tile of many rows fills the queues of what is on its way to the caches: they are asked for one by one, in iterations of the
 * outermost loop of the longest sum that the loop of tiles is around: all of them, of AMX's. True if that loop had to be made first. */
static bool ask_by_rows(ki_choice *c, place *p) {
    int64_t terms;
    kn_uop longest = ki_longest_sum(&c->nest, p->loop, &terms), first = NULL;
    for (uint32_t j = longest->nsrc; j-- > 1;)
        if (ki_is_serial(longest->src[j])) first = longest->src[j];
    int64_t n = first ? ki_extent(first) : 0, trips = p->rows;
    bool alone = first == ki_last_loop(longest);
    if (ki_is_tiled(longest)) return p->loop = first, false;
    while (alone && trips > 1 && (n % trips || n / trips < SHORTEST)) trips--;
    if (p->rows < FEW_ROWS || (alone ? trips < 2 : n > 2 * p->rows)) return false;
    p->loop = first;
    return alone && (ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, first->arg.range.id, n / trips), true);
}

/* Is there a loop of tiles from one to the next of which the access moves on by what a tile reads of a row, and which goes through
 * that again for each step of the loops inside? */
static bool in_strips(const ki_nest *k, kn_uop access) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop v = k->scope.range[q], e = k->closer[q], u;
        if (!e || e->op != KN_END || !ki_is_serial(v) || ki_nest_step(k, access, v) != width(k, access)) continue;
        u = ki_last_loop(e);
        if (u != v && !ki_scope_has(&k->scope, access, u) && ki_extent(u) >= FEW_ROWS) return true;
    }
    return false;
}

/* The same of rows that AMX's tiles are read from: bytes from one strip of them to the next, where it is gone through again, panel by panel. */
static int64_t next_tiles(const ki_nest *k, kn_uop access, kn_uop sum) {
    kn_uop strips = NULL;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop v = k->scope.range[q];
        if (!ki_is_serial(v) || k->closer[q]->op != KN_END || !ki_scope_has(&k->scope, sum, v)) continue;
        if (ki_nest_step(k, access, v) >= FAR && (!strips || ki_is_inside(k, v, strips))) strips = v;
    }
    kn_uop panels = strips ? ki_last_loop(ki_nest_closer(k, strips)) : NULL;
    bool again = panels && panels != strips && !ki_nest_step(k, access, panels) && ki_extent(panels) > 1;
    return again ? ki_nest_step(k, access, strips) : 0;
}

/* A strip of an operand that a tile's sums read in place, row by row, too far apart for the hardware: the next one is asked for
 * while this one, which is in the second-level cache by now, is gone through again. */
static place next_strip(const ki_nest *k, kn_uop param) {
    place best = {0};
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        kn_uop x = ki_nest_closer(k, r);
        int64_t tiles = x->op == KN_REDUCE && ki_is_tiled(x) && !ki_is_gated(u) ? next_tiles(k, u, x) : 0;
        if (tiles && tiles <= MOST && covered(k, u) > best.worth)
            best = (place){.loop = r, .ahead = tiles, .worth = covered(k, u), .second = true};
        bool sums = ki_nest_closer(k, r)->op == KN_REDUCE && ki_nest_step(k, u, r) >= FAR;
        if (!sums || ki_is_gated(u) || width(k, u) < LEAST || !is_row(k, u) || !in_strips(k, u)) continue;
        if (covered(k, u) > best.worth)
            best = (place){.loop = r, .ahead = width(k, u), .worth = covered(k, u), .second = true};
    }
    return best;
}

/* How often what a sum reads is gone through: iterations of the loops around that only another operand varies in. */
static int64_t times_read(const ki_nest *k, kn_uop sum, kn_uop access) {
    int64_t n = 1;
    for (uint32_t q = 0; q < k->scope.nrange && n < MOST; q++) {
        kn_uop r = k->scope.range[q];
        if (!ki_is_serial(r) || !ki_scope_has(&k->scope, sum, r) || ki_scope_has(&k->scope, access, r)) continue;
        n *= ki_extent(r) ? ki_extent(r) : MOST;
    }
    return n;
}

/* Rows that a tile's sums go along, an element of each at a time: the hardware meets each tile's anew. Those of the next tile are asked for
 * line by line; where multiply-adds take half the time, and leave asking less, not what is gone through often. Nor where vectors are narrow, but of
 * strips (strips.c), whose panels each ask for some of the rows. */
static place next_rows(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    place best = {0};
    kn_uop u, r;
    bool shared = ki_is_narrow(c) && ki_nest_opt(k, KI_OPT_ROWS, NULL);
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        int64_t item = (int64_t)ki_itemsize((kn_dtype)u->dtype), line = LEAST / item, ahead = MOST + 1;
        bool sums = ki_nest_closer(k, r)->op == KN_REDUCE && ki_nest_step(k, u, r) == item;
        if (!sums || ki_is_gated(u) || is_row(k, u) || rows_of(k, u) < FEW_ROWS || ki_extent(r) % line ||
            ki_extent(r) == line)
            continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop tiles = k->scope.range[q];
            bool next = ki_is_serial(tiles) && k->closer[q]->op == KN_END && ki_nest_independent(k, tiles);
            int64_t s = next ? ki_nest_step(k, u, tiles) : 0;
            if (s >= FAR && s < ahead) ahead = s;
        }
        if (ahead <= MOST && covered(k, u) > best.worth &&
            (!c->target->twice || shared || times_read(k, ki_nest_closer(k, r), u) <= FEW_TIMES))
            best = (place){.loop = r, .ahead = ahead, .worth = covered(k, u), .second = ahead >= FIRST};
    }
    return best;
}

/* Rows that a tile's sums go along in steps of less than a line, and in the same lines again for each place in a window: its filters. Nobody fetches ahead
 * what lies in so many rows, by so many steps. The next terms', a row or some of them in each place (8_render/x86/ahead.c). */
static place of_window(const ki_nest *k, kn_uop param) {
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        kn_uop x = ki_nest_closer(k, r);
        int64_t by = ki_nest_step(k, u, r), times = 1;
        if (x->op != KN_REDUCE || ki_last_loop(x) != r || ki_is_gated(u) || is_row(k, u)) continue;
        if (by >= LEAST || by * ki_extent(r) <= LEAST || rows_of(k, u) < FEW_ROWS) continue;
        for (uint32_t j = 1; j < x->nsrc; j++) {
            int64_t s = x->src[j] == r ? 0 : ki_nest_step(k, u, x->src[j]);
            if (s && s < by) times *= ki_extent(x->src[j]);
        }
        if (2 * times >= rows_of(k, u)) return (place){.loop = r, .ahead = by * ki_extent(r)};
    }
    return (place){0};
}

/* Rows far apart that a loop goes along by lines (square.c), where the hardware loses sight of them: what stands a little further on in each. Of so
 * many rows even a second cache has few places (lines of rows 16 KiB apart share them). Of several such loops that which reads most. */
static place of_squares(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    place best = {0};
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        kn_uop e = ki_nest_closer(k, r);
        bool whole = true; /* lines, which one square alone reads */
        int64_t rows = 1, along = (int64_t)ki_itemsize((kn_dtype)u->dtype), next = MOST + 1;
        if (e->op != KN_END || ki_last_loop(e) != r || ki_is_gated(u)) continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop v = k->scope.range[q];
            int64_t s = ki_nest_step(k, u, v);
            whole &= s < FAR || s % LEAST == 0;
            if (s && ki_is_lane(v)) *(s >= FAR ? &rows : &along) *= ki_extent(v);
            else if (s >= FAR && s < next && ki_is_serial(v) && k->closer[q] == e) next = s;
        }
        if (rows < BLOCK_ROWS || along != LEAST || ki_nest_step(k, u, r) != along || ki_extent(r) < SHORTEST) continue;
        bool both = next <= MOST && 2 * rows * ki_extent(r) * along <= BESIDE / 4; /* short rows: the next block */
        bool once = c->ahead && whole && !both;
        place p = {.loop = r, .ahead = both ? next : (once ? FEW_SQUARES : SQUARES) * LEAST, .second = !once};
        p.worth = covered(k, u);
        if (p.worth > best.worth) best = p;
    }
    return best;
}

static bool ask(ki_choice *c, int32_t slot, kn_uop loop, const place *at) {
    if (!ki_is_distance(at->ahead)) return false;
    ki_opt o = {.op = KI_OPT_PREFETCH,
                .axis = (int32_t)loop->arg.range.id,
                .arg = (int32_t)at->ahead,
                .top = at->second,
                .id = slot};
    return ki_choice_look(c, ki_nest_apply(&c->nest, o));
}

/* The rows' loop in parts of a line. Of a strip (strips.c), which has nothing else to wait for, some of a line's terms are written out: what counts
 * the loop, and says where its terms are, takes the multiply-adds' ports. */
static bool ask_for_rows(ki_choice *c, int32_t slot, kn_uop param) {
    place at = next_rows(c, param);
    uint32_t inner = ki_nest_next_range(&c->nest);
    int64_t line = LEAST / (int64_t)ki_itemsize((kn_dtype)param->dtype);
    if (!at.loop || !ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, at.loop->arg.range.id, line) ||
        !ask(c, slot, ki_nest_range(&c->nest, inner), &at))
        return false;
    return c->ok;
}

/* What is found a row ahead (pipelined.c) is read for the first time: it is asked for, and this row, which some cache has by now, is not. */
static place read_ahead(const ki_choice *c, kn_uop param) {
    const ki_nest *k = &c->nest;
    place best = {.second = !c->ahead};
    int64_t row = ki_nest_opt(k, KI_OPT_LATE, NULL) ? beside_kept(c) : far(c);
    int64_t ahead = c->ahead || c->target->streams > 1 ? row : BETWEEN;
    kn_uop u, r;
    for (uint32_t i = 0; ki_nest_opt(k, KI_OPT_PIPELINE, NULL) && (u = next_access(k, param, false, &i, &r));)
        if (ki_reads_ahead(u) && covered(k, u) > best.worth)
            best.loop = r, best.ahead = rows_of(k, u) > 1 ? FAR : ahead, best.worth = covered(k, u);
    return best;
}

/* Where a PARAM is better asked for, the first that knows one. */
static place find_place(const ki_choice *c, kn_uop param) {
    int64_t bytes = bytes_of(param);
    place at = read_ahead(c, param);
    if (at.loop) return at;
    if ((uint64_t)bytes >= c->from && !(at = of_squares(c, param)).loop) at = best_place(c, param);
    bool past = bytes >= BESIDE && (uint64_t)bytes / 2 >= c->from;
    if (!at.loop && bytes >= BESIDE) at = of_rows(c, param);
    if (!at.loop && past) at = of_map(c, param);
    if (!at.loop && bytes >= BESIDE) at = of_sum(c, param, past);
    if (!at.loop && bytes >= BESIDE && !c->target->twice) at = of_window(&c->nest, param);
    if (!at.loop && bytes >= NEAR) at = of_copy(&c->nest, param);
    if (!at.loop && bytes >= SECOND) at = of_strip(c, param);
    if (!at.loop && bytes >= SECOND) at = below_windows(c, param);
    return at;
}

/* What a copy before a tile's sum takes to local memory, a row of it at a time. */
typedef struct packed {
    kn_uop sum;
    int64_t rows, bytes, ahead; /* of a row; to the next panel */
    int64_t tiles, uses;        /* that go through what is copied at once; of each panel */
} packed;

static bool is_packed(const ki_nest *k, kn_uop access, kn_uop r, packed *p) {
    const ki_scope *s = &k->scope;
    kn_uop e = ki_nest_closer(k, r), next = NULL;
    if (ki_is_gated(access) || !is_row(k, access) || !is_copied(e, access)) return false;
    *p = (packed){.rows = 1, .bytes = width(k, access), .tiles = 1, .uses = 1};
    for (uint32_t j = e->nsrc; j-- > 1;) {
        int64_t by = ki_nest_step(k, access, e->src[j]);
        if (!ki_is_serial(e->src[j])) continue;
        if (by == p->bytes && p->rows == 1) p->bytes *= ki_extent(e->src[j]);
        else if (by < p->bytes || p->rows > 1) return false;
        else p->rows = ki_extent(e->src[j]);
    }
    kn_uop buf = ki_storage(ki_nest_store(e)->src[0]), read = NULL;
    for (uint32_t i = 0; i < s->n && !p->sum; i++) {
        kn_uop u = s->node[i], x = k->read[i] && ki_storage(u) == buf ? ki_innermost(k, u) : u;
        if (x != u && ki_nest_closer(k, x)->op == KN_REDUCE) p->sum = ki_nest_closer(k, x), read = u;
    }
    for (uint32_t q = 0; p->sum && q < s->nrange; q++) {
        kn_uop v = s->range[q];
        if (!ki_is_serial(v) || ki_nest_closer(k, v)->op != KN_END) continue;
        if (ki_scope_has(s, e, v) && ki_nest_step(k, access, v) && (!next || ki_is_inside(k, v, next))) next = v;
        if (!ki_scope_has(s, p->sum, v) || ki_scope_has(s, e, v)) continue;
        p->tiles *= ki_extent(v);
        if (!ki_nest_step(k, read, v)) p->uses *= ki_extent(v);
    }
    p->ahead = next ? ki_nest_step(k, access, next) : 0;
    return p->sum && ki_is_distance(p->ahead);
}

/* The next panel, or strip of panels, that comes from far: some of its lines in each tile's sum, so that memory is never asked for more than the queues
 * on the way to it take. Where vectors are narrow: it was measured nowhere else. True if a sum was split. */
static bool ask_for_panel(ki_choice *c, int32_t slot, kn_uop param) {
    const ki_nest *k = &c->nest;
    kn_uop u, r, sum = NULL;
    int64_t trips = 0;
    packed p;
    place best = {.second = true};
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        if (covered(k, u) <= best.worth || !is_packed(k, u, r, &p) || p.sum->nsrc != 2 || p.rows % p.tiles ||
            p.uses > MOST_USES)
            continue;
        int64_t each = p.rows / p.tiles, n = ki_extent(p.sum->src[1]), t = each > 1 ? each : p.bytes / LEAST;
        while (t > 1 && (n % t || n / t < SHORTEST || (each > 1 && each % t))) t--;
        if (t > 1) sum = p.sum->src[1], trips = t, best.worth = covered(k, u), best.ahead = p.ahead;
    }
    uint32_t id = sum ? sum->arg.range.id : 0;
    return sum && ki_choice_do(c, KI_OPT_SPLIT, KN_AX_REDUCE, false, id, ki_extent(sum) / trips) &&
           ask(c, slot, ki_nest_range(&c->nest, id), &best);
}

/* The loop that goes through the PARAM's rows and stores the kernel's results; of several the one that has most of them. */
static kn_uop storing(const ki_nest *k, kn_uop param) {
    kn_uop u, r, best = NULL;
    double most = 0;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));)
        if (covered(k, u) > most && stores_result(ki_nest_closer(k, r))) best = r, most = covered(k, u);
    return best;
}

/* Rows that go in pairs (pairs.c): the next two are asked for by the loop that stores these, each line OFTEN, and what stands a little further on by the
 * first loop to read them. Asked for once they take 1.2 to 1.25 of the time. */
static bool ask_for_pairs(ki_choice *c, int32_t slot, kn_uop param, place *at) {
    const ki_nest *k = &c->nest;
    kn_uop u, r, first = NULL, last = storing(k, param);
    double most = 0;
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));)
        if (covered(k, u) > most) most = covered(k, u);
    for (uint32_t i = 0; (u = next_access(k, param, false, &i, &r));) {
        if (2 * covered(k, u) < most) continue; /* what a cut left */
        if (!first || ki_nest_closer(k, r)->id < ki_nest_closer(k, first)->id) first = r;
    }
    if (!last || last == first) return false;
    for (int n = 0; n < OFTEN; n++)
        if (!ask(c, slot, last, at)) return true;
    at->ahead = BETWEEN;
    (void)ask(c, slot, first, at);
    return true;
}

/* The PARAM's strips are asked for once no loop is split any more. True if a loop was split: all is to be looked at anew. */
static bool ask_for(ki_choice *c, int32_t slot, kn_uop param) {
    int64_t bytes = bytes_of(param);
    if (bytes > SECOND && next_strip(&c->nest, param).loop) return false;
    if (bytes >= SECOND && ask_for_rows(c, slot, param)) return true; /* what goes along a sum of few has it by then */
    place at = find_place(c, param);
    if (!at.loop && bytes >= NEAR) {
        at = behind_sums(&c->nest, param);
        if (at.loop && ask_by_rows(c, &at)) return true;
    }
    /* Where the hardware fetches streams no other loop asks: reading and storing at once is what memory does best there. Asked for in all of them, or
     * shared out, one thread took 1.0 to 1.39 times as long, two 1.0 to 1.05. */
    kn_uop last = at.row && c->target->streams > 1 ? storing(&c->nest, param) : NULL;
    if (last) return (void)ask(c, slot, last, &at), false;
    if (c->paired && at.row && ask_for_pairs(c, slot, param, &at)) return false;
    kn_uop first = NULL, other = at.row ? shares(&c->nest, param, &at, &first) : NULL;
    uint32_t id = other ? other->arg.range.id : 0, first_id = first ? first->arg.range.id : 0;
    bool asked = at.loop && ask(c, slot, at.loop, &at), again = asks_again(c, at.row);
    if (again || goes_far(c, at.row)) at.ahead++; /* the same lines, but not shared out, as what is the same is */
    if (asked && other) asked = ask(c, slot, ki_nest_range(&c->nest, id), &at);
    at.ahead = BETWEEN;
    if (asked && other && again) (void)ask(c, slot, ki_nest_range(&c->nest, first_id), &at);
    return false;
}

/* Results that are stored by squares (square.c), a line's worth of each row at a time, where rows begin anywhere in a line: a store to two lines
 * waits for the second one, which is asked for a square before. */
static place across_lines(const ki_nest *k, kn_uop param) {
    kn_uop u, r;
    for (uint32_t i = 0; (u = next_access(k, param, true, &i, &r));) {
        kn_uop e = ki_nest_closer(k, r);
        bool writes = !k->read[k->scope.at[u->id]],
             square = e->op == KN_END && ki_last_loop(e) == r && width(k, u) >= LEAST;
        if (!writes || !square || ki_nest_step(k, u, r) != LEAST || !is_row(k, u)) continue;
        for (uint32_t q = 0; q < k->scope.nrange; q++) {
            kn_uop v = k->scope.range[q];
            if (ki_is_lane(v) && ki_extent(v) >= BLOCK_ROWS && ki_nest_step(k, u, v) > FAR &&
                ki_nest_step(k, u, v) % LEAST)
                return (place){.loop = r, .ahead = 2 * LEAST - (int64_t)ki_itemsize((kn_dtype)u->dtype)};
        }
    }
    return (place){0};
}

/* A strip's panels (strips.c) that squares are copied to, larger than a first cache: their lines come from a further one to be written. The
 * next square's. */
static place of_panel(const ki_nest *k, kn_uop access) {
    kn_uop buf = ki_storage(access), r = ki_nest_form(k, access) ? ki_innermost(k, access) : access;
    bool known, columns = false;
    kn_uop e = r != access ? ki_nest_closer(k, r) : access, store = e->op == KN_END ? ki_nest_store(e) : NULL;
    if (!store || store->src[0] != access || !ki_is_access(store->src[1]) || ki_last_loop(e) != r) return (place){0};
    if (buf->arg.buffer->size * (int64_t)ki_itemsize((kn_dtype)buf->dtype) < 4 * FIRST) return (place){0};
    for (uint32_t j = 1; j < e->nsrc; j++)
        columns |= ki_is_lane(e->src[j]) && ki_extent(e->src[j]) >= BLOCK_ROWS &&
                   ki_nest_stride(k, access, e->src[j], &known) == 1 &&
                   ki_nest_step(k, store->src[1], e->src[j]) >= FAR;
    bool lines = columns && width(k, access) >= LEAST && is_row(k, access);
    return lines ? (place){.loop = r, .ahead = ki_nest_step(k, access, r)} : (place){0};
}

/* Sums that are kept while further terms are added (strips.c), more of them than a second-level cache has room for, where vectors are narrow, or than a
 * first one, of tiles: those of the next tile. Tiles ask for them while their terms are added. */
static place of_kept(const ki_choice *c, kn_uop access, bool read) {
    const ki_nest *k = &c->nest;
    kn_uop buf = ki_storage(access), r = ki_nest_form(k, access) ? ki_innermost(k, access) : access;
    kn_uop e = r != access ? ki_nest_closer(k, r) : access, store = e->op == KN_END ? ki_nest_store(e) : NULL;
    int64_t terms, bytes = buf->arg.buffer->size * (int64_t)ki_itemsize((kn_dtype)buf->dtype);
    kn_uop sum = store && store->src[0] == access && ki_last_loop(e) == r ? ki_longest_sum(k, r, &terms) : NULL;
    bool tiles = sum && ki_is_tiled(sum) && sum->nsrc == 2, narrow = ki_is_narrow(c) && read && is_row(k, access);
    if (!sum || bytes <= (tiles ? FIRST : NEAR) || (!tiles && (!narrow || terms < LEAST_TERMS))) return (place){0};
    return (place){.loop = tiles ? sum->src[1] : r, .ahead = ki_nest_step(k, access, r)};
}

/* PARAMs that were looked at since a loop was last split: each look goes through all accesses. */
#define SLOTS 256 /* a kernel's are below (run/kernel.c); of others each access is a look */
static bool is_new(uint64_t *seen, int32_t slot) {
    if (slot < 0 || slot >= SLOTS) return slot >= 0;
    bool is = !ki_in_set(seen, (uint32_t)slot);
    seen[slot / 64] |= UINT64_C(1) << slot % 64;
    return is;
}

void ki_choose_prefetches(ki_choice *c) {
    const ki_nest *k = &c->nest;
    uint64_t seen[SLOTS / 64] = {0};
    for (uint32_t i = 0; c->ok && c->open && ki_is_narrow(c) && i < k->scope.n; i++) {
        kn_uop p = param_of(k, i); /* before other loops split their sums */
        int32_t slot = p && bytes_of(p) >= SECOND ? p->arg.param->slot : -1;
        if (is_new(seen, slot) && !ki_is_asked_for(k, slot, KI_ANY_LOOP) && ask_for_panel(c, slot, p))
            i = UINT32_MAX, memset(seen, 0, sizeof seen);
    }
    for (int last = 0; last < 2; last++) {
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; c->ok && c->open && i < k->scope.n; i++) {
            kn_uop p = param_at(k, i); /* in order of access: whose loop is split first decides how others may be */
            int32_t slot = p ? p->arg.param->slot : -1;
            if (!is_new(seen, slot) || ki_is_asked_for(k, slot, KI_ANY_LOOP) || (!last && is_streamed(k, slot)))
                continue;
            place at = last && bytes_of(p) > SECOND ? next_strip(k, p) : (place){0};
            if (at.loop) (void)ask(c, slot, at.loop, &at);
            else if (!last && ask_for(c, slot, p)) i = UINT32_MAX, memset(seen, 0, sizeof seen);
        }
    }
    memset(seen, 0, sizeof seen);
    bool strips = c->ok && c->open && c->target->twice && ki_nest_opt(k, KI_OPT_ROWS, NULL);
    for (uint32_t i = 0; c->ok && c->open && i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], p = ki_is_access(u) ? ki_storage(u) : NULL;
        bool read = k->read[i], large = p && p->op == KN_PARAM && bytes_of(p) >= NEAR;
        bool result = large && !read && !is_streamed(k, p->arg.param->slot);
        bool local = strips && p && p->op == KN_BUFFER && p->arg.buffer->addrspace == KN_LOCAL;
        place at = {0};
        if (result && is_new(seen, p->arg.param->slot)) at = across_lines(k, p);
        if (local && !read) at = of_panel(k, u);
        if (local && !at.loop) at = of_kept(c, u, read);
        if (at.loop && !ki_is_asked_for(k, ki_slot_of(p), (int32_t)at.loop->arg.range.id))
            (void)ask(c, ki_slot_of(p), at.loop, &at);
    }
}
