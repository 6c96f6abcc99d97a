/* orders.c: how the sums of floats of a kernel are added up: what has to be the same whatever the number of threads. Of each sum
 * what it adds, wherever that is read from, and the loops and lanes it runs over; as a set, since a CUT makes two sums of one. */
#include "stages/3_optimize/nest.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct orders {
    uint64_t *of; /* ascending, each once */
    uint32_t n;
} orders;

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool is_sum(kn_uop u) {
    return u->op == KN_REDUCE && u->nsrc > 1 && u->arg.reduce.op != KN_MAX && ki_is_float((kn_dtype)u->dtype);
}

/* What is computed, by place: ops alone, without positions, storage and what a padded loop leaves out. */
static uint64_t what_of(kn_uop u, const uint64_t *what) {
    uint64_t h = ki_hash2(u->op, u->dtype);
    if (u->op == KN_INDEX || u->op == KN_CONST || u->dtype == KN_IDX) return 1;
    if (u->op == KN_WHERE && ki_is_const(u->src[2])) return what[u->src[1]->id];
    uint32_t n = u->op == KN_REDUCE || u->op == KN_AFTER ? 1 : u->nsrc;
    for (uint32_t k = 0; k < n; k++) h = ki_hash2(h, what[u->src[k]->id]);
    return h;
}

static uint64_t order_of(kn_uop sum, const uint64_t *what) {
    uint64_t h = what[sum->id];
    for (uint32_t j = 1; j < sum->nsrc; j++)
        if (ki_extent(sum->src[j]) != 1)
            h = ki_hash2(h, (uint64_t)ki_extent(sum->src[j]) << 1 | ki_is_lane(sum->src[j]));
    return h;
}

static bool find_orders(ki_ir *ir, kn_uop sink, orders *o) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    uint32_t all = 0;
    *o = (orders){.of = n < 0 ? NULL : ki_malloc(((size_t)n + 1) * sizeof *o->of)};
    uint64_t *what = o->of ? ki_malloc(((size_t)sink->id + 1) * sizeof *what) : NULL;
    for (int64_t i = 0; i < n && what; i++) {
        what[node[i]->id] = what_of(node[i], what);
        if (is_sum(node[i])) o->of[all++] = order_of(node[i], what);
    }
    if (n >= 0) ki_free(node);
    ki_free(what);
    if (!what) return false;
    qsort(o->of, all, sizeof *o->of, by_value);
    for (uint32_t i = 0; i < all; i++)
        if (!o->n || o->of[o->n - 1] != o->of[i]) o->of[o->n++] = o->of[i];
    return true;
}

bool ki_same_orders(ki_ir *ir, kn_uop a, kn_uop b) {
    orders x, y = {0};
    bool same = find_orders(ir, a, &x) && find_orders(ir, b, &y) && x.n == y.n &&
                (!x.n || memcmp(x.of, y.of, x.n * sizeof *x.of) == 0);
    ki_free(x.of);
    ki_free(y.of);
    return same;
}

bool ki_shares_sums(ki_ir *ir, kn_uop sink) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    bool sums = false, threads = false;
    for (int64_t i = 0; i < n && !(sums && threads); i++) {
        sums |= is_sum(node[i]);
        threads |= node[i]->op == KN_RANGE && node[i]->arg.range.axis == KN_AX_THREAD;
    }
    if (n >= 0) ki_free(node);
    return sums && threads;
}
