/* orders.c: how the sums of floats of a kernel are added up: what has to be the same whatever the number of threads. Of each sum
 * what it adds, wherever that is read from, and the loops and lanes it runs over; as a set, since a CUT makes two sums of one. Where
 * a CUT's two parts add up in different orders, each must be that of the same places of the result (where.c). Where no order has lanes, and
 * none as many terms as another, they differ in terms alone that a mask or a CUT leaves out: about as many elements of each beside the other are
 * enough then, and the same one first; about, since a loop that is padded, or laps, counts some that are none, or twice. */
#include "stages/3_optimize/dots.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct order {
    uint64_t what, how;
    uint64_t terms; /* of each element, what is padded included */
    uint64_t many;  /* elements; of WHOLE, those of all orders of what it is: one more nest may have them all again */
    int64_t first;  /* the least place of the result that has it; once they are related, one of these: */
    bool lanes;     /* among its loops */
    uint64_t where; /* all places (ki_where), if they are */
    enum { ANYWHERE, KNOWN, UNKNOWN } place; /* ANYWHERE: it need not be known */
    kn_uop sum, at;                          /* a REDUCE, and what it is stored at; NULL */
    kn_uop kept;                             /* what reads it for that, where it is kept first */
} order;
enum { AT_ONCE = -1, BEGINS, LATER };
typedef struct orders {
    order *of; /* ascending, each once */
    uint32_t n;
} orders;

#define WHOLE       (UINT64_C(1) << 20)
#define MOST_BESIDE 64 /* orders that are looked at for each */

static int by_value(const void *a, const void *b) {
    const order *x = a, *y = b;
    if (x->what != y->what) return x->what < y->what ? -1 : 1;
    return (x->how > y->how) - (x->how < y->how);
}

static bool is_sum(kn_uop u) {
    return u->op == KN_REDUCE && u->nsrc > 1 && u->arg.reduce.op != KN_MAX && ki_is_float((kn_dtype)u->dtype);
}

/* What is computed, by place: ops alone, without positions, storage and what a padded loop leaves out. A maximum is exact, found in one loop or
 * in parts, or read where a row before has left it (pipelined.c). */
static uint64_t what_of(kn_uop u, const uint64_t *what) {
    uint64_t h = ki_hash2(u->op, u->dtype);
    if (u->op == KN_REDUCE && u->arg.reduce.op == KN_MAX) return 1;
    if (u->op == KN_MAX && what[u->src[0]->id] == 1 && what[u->src[1]->id] == 1) return 1;
    if (u->op == KN_INDEX || u->op == KN_CONST || u->dtype == KN_IDX) return 1;
    if (u->op == KN_WHERE && ki_is_const(u->src[2])) return what[u->src[1]->id];
    uint32_t n = u->op == KN_REDUCE || u->op == KN_AFTER ? 1 : u->nsrc;
    for (uint32_t k = 0; k < n; k++) h = ki_hash2(h, what[u->src[k]->id]);
    return h;
}

/* Was r split off `of` as the part inside it, and neither joined with anything since? Then the two go on as one loop did. */
static bool is_part_inside(const ki_kernel *info, kn_uop of, kn_uop r) {
    int32_t a = (int32_t)of->arg.range.id, b = (int32_t)r->arg.range.id;
    bool inside = false;
    for (uint32_t i = 0; info && i < info->nopt && !ki_is_lane(of) && !ki_is_lane(r); i++) {
        const ki_opt *o = &info->opt[i];
        bool meets = o->axis == a || o->axis == b || o->arg == a || o->arg == b;
        if (o->op == KI_OPT_SPLIT && o->axis == a) inside = o->id == b && !o->top;
        if (o->op == KI_OPT_JOIN && meets) inside = false;
    }
    return inside;
}

/* How many elements a sum has: iterations and lanes of what it stands in, but of `along`, in which it goes on. */
static uint64_t elements_of(const ki_scope *s, kn_uop sum, kn_uop along) {
    uint64_t n = 1;
    for (uint32_t q = 0; q < s->nrange; q++)
        if (s->range[q] != along && ki_scope_has(s, sum, s->range[q]) && ki_extent(s->range[q]) > 1)
            n *= (uint64_t)ki_extent(s->range[q]);
    return n;
}

/* A sum of products of 16 words goes by tiles of AMX where both sides are whole ones, in the tiles' order, and read under no condition. */
static bool is_whole_tiles(const ki_scope *s, kn_uop sum) {
    uint32_t sides = 0;
    for (int side = 1; side < 3 && ki_is_tiled(sum); side++)
        if (ki_is_gated(ki_word_element(sum->src[0]->src[0]->src[side]))) return false;
    for (uint32_t q = 0; q < s->nrange && ki_is_tiled(sum); q++)
        sides +=
            ki_is_lane(s->range[q]) && ki_extent(s->range[q]) % KI_TILE_SIDE == 0 && ki_scope_has(s, sum, s->range[q]);
    return sides > 1;
}

static order order_of(const ki_scope *s, kn_uop sum, const ki_kernel *info, const uint64_t *what) {
    uint64_t h = 0, n = 1, terms = 1;
    bool lanes = false;
    for (uint32_t j = 1; j < sum->nsrc; j++) {
        kn_uop r = sum->src[j];
        lanes |= ki_is_lane(r);
        terms *= (uint64_t)ki_extent(r);
        n *= (uint64_t)ki_extent(r);
        if (j + 1 < sum->nsrc && is_part_inside(info, r, sum->src[j + 1])) continue;
        if (n != 1) h = ki_hash2(h, n << 1 | ki_is_lane(r));
        n = 1;
    }
    if (is_whole_tiles(s, sum)) h = ki_hash2(h, KI_TILE_SIDE);
    return (order){.what = what[sum->id], .how = h, .terms = terms, .many = elements_of(s, sum, NULL), .lanes = lanes};
}

/* The last of the terms that v adds to *before: what it is, 0: v is none such. */
static uint64_t last_term(kn_uop v, const uint64_t *what, kn_uop *before) {
    uint64_t product = ki_hash2(KN_MUL, v->dtype);
    if (v->op == KN_WHERE && v->src[1]->op == KN_MULACC) v = v->src[1]; /* under a condition (stages/accumulate.c) */
    if (v->op == KN_ADD) return *before = v->src[0], what[v->src[1]->id];
    if (v->op != KN_MULACC) return 0;
    return *before = v->src[2], ki_hash2(ki_hash2(product, what[v->src[0]->id]), what[v->src[1]->id]);
}

/* The STORE that sets what the STORE u adds to, row by row (rows.c); NULL: u does no such thing. Parts of sums of tiles are REDUCEs, wherever what is
 * kept of those before begins. */
static kn_uop start_of_rows(kn_uop u) {
    kn_uop at = u->op == KN_STORE && u->src[0]->op == KN_INDEX ? u->src[0]->src[0] : NULL;
    bool carried = at && at->op == KN_AFTER && at->nsrc == 3 && at->src[1]->op == KN_END && at->src[2]->op == KN_RANGE;
    if (!carried || !ki_is_float((kn_dtype)u->src[1]->dtype)) return NULL;
    kn_uop start = at->src[1]->src[0];
    for (uint32_t i = 0; start->op == KN_GROUP && i < start->nsrc; i++)
        if (ki_storage(start->src[i]->src[0]) == at->src[0]) start = start->src[i];
    kn_uop first = start->op == KN_STORE ? start->src[1] : NULL;
    if (first && first->op == KN_REDUCE && ki_is_tiled(first)) return NULL;
    return first && !ki_is_const(first) ? start : NULL; /* else it is a running sum's */
}

/* The order of such a sum, its terms one after the other, as of the REDUCE that it was; many is 0: it is none. */
static order order_of_rows(const ki_scope *s, kn_uop u, kn_uop start, const uint64_t *what) {
    kn_uop v = u->src[1], before = NULL;
    uint64_t term = last_term(v, what, &before), h = ki_hash2(ki_hash2(KN_REDUCE, v->dtype), term);
    int64_t rows = 0, first = 1;
    for (; v != u->src[0]; v = before, rows++)
        if (!term || last_term(v, what, &before) != term) return (order){0};
    for (v = start->src[1]; what[v->id] != term; v = before, first++)
        if (last_term(v, what, &before) != term) return (order){0};
    kn_uop along = u->src[0]->src[0]->src[2];
    uint64_t terms = (uint64_t)(first + rows * ki_extent(along));
    return (order){
        .what = h, .how = terms == 1 ? 0 : ki_hash2(0, terms << 1), .terms = terms, .many = elements_of(s, u, along)};
}

/* The least place of a store, whatever a condition says of it. */
static int64_t least_of(kn_uop access) {
    kn_uop at = access->src[1];
    return at->op == KN_WHERE ? at->src[1]->lo.i : at->lo.i;
}

/* Of two accesses to outputs the one that says where a sum is: in the first output, the least place. */
static bool comes_before(kn_uop a, kn_uop b) {
    int32_t x = ki_slot_of(ki_storage(a)), y = ki_slot_of(ki_storage(b));
    return x != y ? x < y : least_of(a) < least_of(b);
}

/* The access by which each node gets to an output, what is kept on the way by who reads it; NULL: none. kept: the read of that, the last one on the
 * way. */
static void find_places(const ki_scope *s, kn_uop *to, kn_uop *kept) {
    for (uint32_t i = 0; i < s->n; i++) to[i] = kept[i] = NULL;
    for (uint32_t i = s->n; i-- > 0;) {
        kn_uop u = s->node[i], out = u->op == KN_STORE && u->src[0]->op == KN_INDEX ? ki_storage(u->src[0]) : NULL;
        if (out && out->op == KN_PARAM) to[i] = u->src[0];
        kn_uop from = ki_is_access(u) ? ki_storage(u) : NULL;
        if (from && from->op == KN_BUFFER && !kept[i]) kept[i] = u;
        for (uint32_t k = 0; k < u->nsrc && to[i]; k++) {
            uint32_t j = ki_scope_at(s, u->src[k]);
            if (!to[j] || comes_before(to[i], to[j])) to[j] = to[i], kept[j] = kept[i];
        }
    }
}

/* Does one of them have lanes, or as many terms as another in another order? Else they differ in terms that a mask or a CUT leaves out, which are zeros. */
static bool may_differ(const order *of, uint32_t n) {
    bool differ = false;
    for (uint32_t i = 0; i < n && !differ; i++) {
        differ = of[i].lanes;
        for (uint32_t j = i + 1; j < n && j - i < MOST_BESIDE && !differ; j++)
            differ = of[j].how != of[i].how && of[j].terms == of[i].terms;
    }
    return differ && of[0].how != of[n - 1].how;
}

/* Where each order of one sum is, where it matters. */
static void locate(const ki_scope *s, order *of, uint32_t n) {
    bool differ = may_differ(of, n);
    for (uint32_t i = 0; i < n && differ; i++) {
        kn_uop kept = of[i].kept ? of[i].kept->src[1] : NULL;
        of[i].place = of[i].at && ki_where(s, of[i].at, of[i].sum, kept, &of[i].where) ? KNOWN : UNKNOWN;
    }
}

/* Those that are the same, n of them, as one; how many are left. */
static uint32_t merge(order *of, uint32_t n) {
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!m || of[m - 1].how != of[i].how) {
            of[m++] = of[i];
            continue;
        }
        of[m - 1].many += of[i].many;
        of[m - 1].where = ki_where_add(of[m - 1].where, of[i].where);
        if (of[i].place == UNKNOWN) of[m - 1].place = UNKNOWN;
        if (of[i].first < of[m - 1].first) of[m - 1].first = of[i].first;
    }
    return m;
}

/* The orders of one sum, beside each other. */
static void relate(order *of, uint32_t n) {
    double all = 0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (uint32_t i = 0; i < n; i++) {
        all += (double)of[i].many;
        if (of[i].first < least) least = of[i].first;
        if (of[i].first > most) most = of[i].first;
    }
    for (uint32_t i = 0; i < n; i++) {
        of[i].many = (uint64_t)((double)of[i].many / all * (double)WHOLE);
        of[i].first = least == most ? AT_ONCE : of[i].first > least ? LATER : BEGINS;
    }
}

/* All sums of the kernel, in of, which has room for them: how many. to: room for two lists of its nodes. */
static uint32_t find_sums(const ki_scope *s, const ki_kernel *info, uint64_t *what, kn_uop *to, order *of) {
    uint32_t n = 0;
    kn_uop *kept = to + s->n;
    find_places(s, to, kept);
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i], start = start_of_rows(u);
        what[u->id] = what_of(u, what);
        of[n] = is_sum(u) ? order_of(s, u, info, what) : start ? order_of_rows(s, u, start, what) : (order){0};
        if (!of[n].many) continue;
        of[n].first = to[i] ? least_of(to[i]) : INT64_MAX;
        of[n].sum = u;
        of[n].kept = kept[i];
        of[n++].at = to[i] ? to[i]->src[1] : NULL;
    }
    return n;
}

static bool find_orders(ki_ir *ir, kn_uop sink, orders *o) {
    ki_scope s;
    bool open = ki_scope_open(&s, ir, sink);
    *o = (orders){.of = open ? ki_malloc(((size_t)s.n + 1) * sizeof *o->of) : NULL};
    uint64_t *what = o->of ? ki_malloc(((size_t)sink->id + 1) * sizeof *what) : NULL;
    kn_uop *to = what ? ki_malloc((2 * (size_t)s.n + 1) * sizeof *to) : NULL;
    uint32_t all = to ? find_sums(&s, sink->arg.kernel, what, to, o->of) : 0;
    qsort(o->of, all, sizeof *o->of, by_value);
    for (uint32_t i = 0, end = 0; i < all; i = end) {
        for (end = i; end < all && o->of[end].what == o->of[i].what;) end++;
        locate(&s, o->of + i, end - i);
        memmove(o->of + o->n, o->of + i, (end - i) * sizeof *o->of);
        uint32_t n = merge(o->of + o->n, end - i);
        relate(o->of + o->n, n);
        o->n += n;
    }
    bool ok = to;
    ki_scope_close(&s);
    ki_free(what);
    ki_free(to);
    return ok;
}

/* Where one kernel has in one nest what the other has in several, it does not say which comes first. */
static bool is_alike(const order *a, const order *b) {
    bool about = a->many * 4 <= b->many * 5 && b->many * 4 <= a->many * 5;
    bool place = a->first == b->first || a->first == AT_ONCE || b->first == AT_ONCE;
    if (by_value(a, b) != 0 || a->place != b->place || a->place == UNKNOWN) return false;
    return a->place == KNOWN ? a->where == b->where : about && place;
}

bool ki_same_orders(ki_ir *ir, kn_uop a, kn_uop b) {
    orders x, y = {0};
    bool same = find_orders(ir, a, &x) && find_orders(ir, b, &y) && x.n == y.n;
    for (uint32_t i = 0; same && i < x.n; i++) same = is_alike(&x.of[i], &y.of[i]);
    ki_free(x.of);
    ki_free(y.of);
    return same;
}

bool ki_shares_sums(ki_ir *ir, kn_uop sink) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    bool sums = false, threads = false;
    for (int64_t i = 0; i < n && !(sums && threads); i++) {
        sums |= is_sum(node[i]) || start_of_rows(node[i]);
        threads |= node[i]->op == KN_RANGE && node[i]->arg.range.axis == KN_AX_THREAD;
    }
    if (n >= 0) ki_free(node);
    return sums && threads;
}
