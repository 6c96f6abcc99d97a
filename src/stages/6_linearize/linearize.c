/* linearize.c: loop placement and order of instructions.
 *
 * 1. The free RANGEs of every node, sources first (a bit set a node; nearly always one word).
 * 2. The loop tree, from the ENDs, users first: what END closes lies in the deepest range still free at it.
 * 3. A node belongs to the block of its deepest free range; an END is the last item of the loop it closes, and stands
 *    for the whole loop in the block around it.
 * 4. Each block is ordered on its own by a depth-first walk from its one root (the END, or the SINK), heavier operand
 *    first (Sethi and Ullman), so that loads come close to their uses and few values live at once.
 * 5. A body of machine instructions that is a long chain of them is scheduled anew (schedule.c).
 *
 * Invariants: deterministic (the graph decides, neither ids nor addresses), linear in nodes and edges times the depth of the nest, no
 * recursion. A block has one root because a node inside a loop reaches an effect only through that loop's END. */
#include "stages/6_linearize/linearize.h"

#include "base/cpuid.h"
#include "stages/6_linearize/schedule.h"

#include <string.h>

#define NONE UINT32_MAX

typedef struct frame {
    uint32_t item, next;
} frame;

/* Items 0..n-1 are nodes, n..n+nrange-1 are whole loops as their surrounding block sees them. Block 0 is the kernel,
 * block r + 1 the body of range r. */
typedef struct lin {
    ki_ir *ir;
    kn_uop sink;
    kn_uop *node;
    uint32_t n, nrange, words;
    uint32_t *at;                  /* id -> node index */
    uint32_t *place;               /* id -> for ki_schedule, 0 */
    kn_uop *body;                  /* for it: a block's nodes */
    uint32_t *range;               /* range -> node index */
    uint32_t *range_of;            /* node index -> range, for RANGE and (first closed) END */
    uint64_t *freeset;             /* node -> bit set of ranges */
    uint64_t *chain;               /* range -> itself and the ranges around it */
    uint32_t *parent;              /* block -> block */
    uint32_t *depth;               /* block */
    uint32_t *root;                /* block -> item its walk starts from */
    uint32_t *block;               /* node -> block, as a source */
    uint32_t *inside;              /* node -> block, as a user: an END uses from within */
    uint32_t *dep_head, *dep_tail; /* loop item -> list of items it needs in its block */
    uint32_t *dep_item, *dep_next;
    uint32_t ndep, dep_cap;
    uint16_t *need;              /* node -> registers its value takes to compute */
    uint8_t *done;               /* item */
    uint32_t *order, *order_end; /* all blocks' lists; per block: where its list ends */
    frame *stack;
    void *mem; /* one allocation for all of the above */
} lin;

static uint64_t *set_of(const lin *l, uint32_t i) { return l->freeset + (size_t)i * l->words; }
static uint64_t *chain_of(const lin *l, uint32_t r) { return l->chain + (size_t)r * l->words; }
static uint32_t index_of(const lin *l, kn_uop u) { return l->at[u->id]; }

/* The deepest range of a set whose blocks have depths; NONE if the set is empty. A range not yet closed is `open`. */
static uint32_t deepest(const lin *l, const uint64_t *s, uint32_t *open) {
    uint32_t best = NONE;
    for (uint32_t w = 0; w < l->words; w++) {
        for (uint64_t bits = s[w]; bits; bits &= bits - 1) {
            uint32_t r = w * 64 + (uint32_t)ki_ctz64(bits);
            if (!l->depth[r + 1]) {
                if (open) *open = r;
            } else if (best == NONE || l->depth[r + 1] > l->depth[best + 1]) {
                best = r;
            }
        }
    }
    return best;
}

static uint32_t range_id(const lin *l, uint32_t r) { return l->node[l->range[r]]->arg.range.id; }

static bool alloc(lin *l) {
    ki_env *env = l->ir->env;
    l->at = ki_calloc((size_t)l->sink->id + 1, sizeof *l->at);
    l->place = ki_calloc((size_t)l->sink->id + 1, sizeof *l->place);
    if (!l->at || !l->place) return ki_fail(env, KI_E_NOMEM), false;
    for (uint32_t i = 0; i < l->n; i++) {
        l->at[l->node[i]->id] = i;
        l->nrange += l->node[i]->op == KN_RANGE;
    }
    uint32_t n = l->n, r = l->nrange, b = r + 1;
    l->words = r ? (r + 63) / 64 : 1;
    size_t words64 = (size_t)l->words * (n + r);
    size_t words32 = (size_t)4 * n + (size_t)3 * r + (size_t)4 * b + (n + r);
    size_t bytes = (size_t)n * sizeof *l->body + words64 * 8 + words32 * 4 + (size_t)n * 2 + (n + r) +
                   (size_t)(n + r + 1) * sizeof(frame);
    char *p = l->mem = ki_calloc(bytes, 1);
    if (!p) return ki_fail(env, KI_E_NOMEM), false;
#define TAKE(field, count) (l->field = (void *)p, p += (count) * sizeof *l->field)
    TAKE(freeset, (size_t)n * l->words);
    TAKE(chain, (size_t)r * l->words);
    TAKE(body, n);
    TAKE(stack, (size_t)n + r + 1);
    TAKE(range_of, n), TAKE(block, n), TAKE(inside, n);
    TAKE(range, r), TAKE(dep_head, r), TAKE(dep_tail, r);
    TAKE(parent, b), TAKE(depth, b), TAKE(root, b), TAKE(order_end, b);
    TAKE(order, (size_t)n + r);
    TAKE(need, n);
    TAKE(done, (size_t)n + r);
#undef TAKE
    return true;
}

/* 1. Free ranges, sources first. */
static void free_ranges(lin *l) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->node[i];
        uint64_t *s = set_of(l, i), only = 0;
        for (uint32_t k = 0; k < u->nsrc && l->words == 1; k++) only |= l->freeset[index_of(l, u->src[k])];
        s[0] = only;
        for (uint32_t k = 0; k < u->nsrc && l->words > 1; k++) {
            const uint64_t *from = set_of(l, index_of(l, u->src[k]));
            for (uint32_t w = 0; w < l->words; w++) s[w] |= from[w];
        }
        l->range_of[i] = NONE;
        if (u->op == KN_RANGE) {
            l->range[r] = i;
            l->range_of[i] = r;
            s[r >> 6] |= UINT64_C(1) << (r & 63);
            r++;
        }
        if (u->op != KN_END) continue;
        for (uint32_t k = 1; k < u->nsrc; k++) {
            uint32_t c = l->range_of[index_of(l, u->src[k])];
            if (c != NONE) s[c >> 6] &= ~(UINT64_C(1) << (c & 63));
        }
        if (u->nsrc > 1) l->range_of[i] = l->range_of[index_of(l, u->src[1])];
    }
}

static bool close_range(lin *l, uint32_t end, uint32_t r, uint32_t block) {
    if (r == NONE) return ki_fail(l->ir->env, KI_E_END_SOURCE), false;
    if (l->depth[r + 1]) return ki_fail(l->ir->env, KI_E_RANGE_CLOSED_TWICE, range_id(l, r)), false;
    l->parent[r + 1] = block;
    l->depth[r + 1] = l->depth[block] + 1;
    l->inside[end] = r + 1;
    uint64_t *c = chain_of(l, r);
    if (block) memcpy(c, chain_of(l, block - 1), l->words * sizeof *c);
    c[r >> 6] |= UINT64_C(1) << (r & 63);
    return true;
}

/* 2. The loop tree, users first: an END's surroundings are known when it is reached. */
static bool loop_tree(lin *l) {
    for (uint32_t i = l->n; i-- > 0;) {
        kn_uop u = l->node[i];
        if (u->op != KN_END || u->nsrc < 2) continue;
        uint32_t open = NONE, outer = deepest(l, set_of(l, i), &open);
        if (open != NONE) return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, open)), false;
        uint32_t b = outer == NONE ? 0 : outer + 1;
        for (uint32_t k = 1; k < u->nsrc; k++) {
            uint32_t r = l->range_of[index_of(l, u->src[k])];
            if (!close_range(l, i, r, b)) return false;
            if (k > 1) l->root[b] = l->n + r; /* a middle loop holds what leads to the next */
            b = r + 1;
        }
        l->root[b] = i;
    }
    l->root[0] = index_of(l, l->sink);
    return true;
}

static bool is_loop_end(kn_uop u) { return u->op == KN_END && u->nsrc > 1; }

/* The item of block(src) that stands for src. */
static uint32_t source_item(const lin *l, uint32_t i) { return is_loop_end(l->node[i]) ? l->n + l->range_of[i] : i; }

/* The loop item of block `a` through which block `b`, nested in it, is reached; NONE if it is not nested. */
static uint32_t loop_towards(const lin *l, uint32_t a, uint32_t b) {
    if (l->depth[b] <= l->depth[a]) return NONE;
    while (l->depth[b] > l->depth[a] + 1) b = l->parent[b];
    return l->parent[b] == a ? l->n + b - 1 : NONE;
}

static bool add_dep(lin *l, uint32_t loop, uint32_t item) {
    uint32_t r = loop - l->n;
    if (l->dep_tail[r] && l->dep_item[l->dep_tail[r]] == item) return true;
    if (l->ndep + 2 > l->dep_cap) {
        uint32_t cap = l->dep_cap ? l->dep_cap * 2 : 64;
        uint32_t *a = ki_realloc(l->dep_item, cap, sizeof *a);
        if (a) l->dep_item = a;
        uint32_t *b = ki_realloc(l->dep_next, cap, sizeof *b);
        if (b) l->dep_next = b;
        if (!a || !b) return ki_fail(l->ir->env, KI_E_NOMEM), false;
        l->dep_cap = cap;
    }
    uint32_t d = ++l->ndep; /* 0 ends a list */
    l->dep_item[d] = item;
    l->dep_next[d] = 0;
    if (l->dep_tail[r]) l->dep_next[l->dep_tail[r]] = d;
    else l->dep_head[r] = d;
    l->dep_tail[r] = d;
    return true;
}

/* The block of a free set, which must be a chain of nested loops. */
static bool block_of(const lin *l, const uint64_t *s, uint32_t *block) {
    uint32_t open = NONE, r = deepest(l, s, &open);
    if (open != NONE) return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, open)), false;
    *block = r == NONE ? 0 : r + 1;
    for (uint32_t w = 0; r != NONE && w < l->words; w++) {
        uint64_t stray = s[w] & ~chain_of(l, r)[w];
        if (!stray) continue;
        uint32_t other = w * 64 + (uint32_t)ki_ctz64(stray);
        return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, other)), false;
    }
    return true;
}

/* What node i needs: registers, operands computed heaviest first, the k-th with k values held; and what the loop that it stands in
 * as a whole needs from the blocks around it. */
static bool needs(lin *l, uint32_t i) {
    kn_uop u = l->node[i];
    uint32_t most = 0, held = 0, count = 0, own = l->block[i], b = l->inside[i];
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t s = index_of(l, u->src[k]), a = l->block[s];
        if (a == own && k < 8 && u->src[k]->dtype != KN_VOID) {
            uint32_t d = l->need[s];
            count += d > 0;
            if (d > most) held = 0, most = d;
            else if (d == most) held++;
        }
        if (a == b) continue;
        uint32_t loop = loop_towards(l, a, b);
        if (loop == NONE) return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, a - 1)), false; /* a is no root */
        if (!add_dep(l, loop, source_item(l, s))) return false;
    }
    uint32_t need = most + held;
    if (need < count) need = count;
    if (u->op == KN_LOAD && need == 0) need = 1;
    l->need[i] = (uint16_t)(need > 60000 ? 60000 : need);
    return true;
}

/* 3. Blocks of nodes and what nodes need, sources first. Neighbours mostly stand in the same loops. */
static bool place(lin *l) {
    uint32_t block = 0;
    const uint64_t *last = NULL;
    for (uint32_t i = 0; i < l->n; i++) {
        const uint64_t *s = set_of(l, i);
        if (!(last && l->words == 1 && *last == *s) && !block_of(l, s, &block)) return false;
        last = s;
        l->block[i] = block;
        if (!is_loop_end(l->node[i])) l->inside[i] = block;
        if (!needs(l, i)) return false;
    }
    uint32_t end = l->block[l->n - 1]; /* the SINK's */
    if (end) return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, end - 1)), false;
    return true;
}

/* The k-th source in visiting order: heavier operands of a value first, effects in their own order. */
static uint32_t visit_source(const lin *l, kn_uop u, uint32_t k) {
    if (u->nsrc < 2 || u->nsrc > 3 || u->dtype == KN_VOID || u->op == KN_AFTER) return k;
    if (u->nsrc == 2) return k ^ (l->need[index_of(l, u->src[0])] < l->need[index_of(l, u->src[1])]);
    uint32_t order[3] = {0, 1, 2};
    for (uint32_t a = 0; a + 1 < u->nsrc; a++)
        for (uint32_t b = 0; b + 1 < u->nsrc - a; b++) {
            uint16_t x = l->need[index_of(l, u->src[order[b]])], y = l->need[index_of(l, u->src[order[b + 1]])];
            if (x < y) {
                uint32_t t = order[b];
                order[b] = order[b + 1], order[b + 1] = t;
            }
        }
    return order[k];
}

/* The next item `f` waits for in block b; NONE when there is none left. */
static inline uint32_t next_dep(const lin *l, frame *f, uint32_t b) {
    if (f->item >= l->n) { /* f->next holds the list position + 1 once begun */
        uint32_t d = f->next == 0 ? l->dep_head[f->item - l->n] : f->next == NONE ? 0 : l->dep_next[f->next];
        f->next = d ? d : NONE;
        return d ? l->dep_item[d] : NONE;
    }
    kn_uop u = l->node[f->item];
    while (f->next < u->nsrc) {
        uint32_t s = index_of(l, u->src[visit_source(l, u, f->next++)]);
        if (l->block[s] == b) return source_item(l, s);
    }
    return NONE;
}

/* 4. One block: depth-first from its root. Appends to l->order from *m on. */
static void order_block(lin *l, uint32_t b, uint32_t *m) {
    frame f = {l->root[b], 0};
    uint32_t top = 0, *order = l->order + *m;
    l->done[f.item] = 1;
    for (;;) {
        uint32_t item = next_dep(l, &f, b);
        if (item == NONE) {
            *order++ = f.item;
            if (!top) break;
            f = l->stack[--top];
        } else if (!l->done[item]) {
            l->done[item] = 1; /* a DAG with ids rising along edges: no item can be waiting for itself */
            l->stack[top++] = f;
            f = (frame){item, 0};
        }
    }
    l->order_end[b] = *m = (uint32_t)(order - l->order);
}

/* Names and constants, and what is built of them alone: they come first, where a reader looks them up. */
static void order_leaves(lin *l, uint32_t *m) {
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->node[i];
        if (u->nsrc ? u->op != KN_STACK && u->op != KN_PARAM : u->op == KN_SINK) continue;
        bool leaf = true;
        for (uint32_t k = 0; k < u->nsrc && leaf; k++) leaf = l->done[index_of(l, u->src[k])];
        if (!leaf) continue;
        l->order[(*m)++] = i;
        l->done[i] = 1;
    }
}

/* 5. The body of an innermost loop, once it is of machine instructions. */
static bool schedule_block(lin *l, uint32_t b, uint32_t from, uint32_t to) {
    const ki_kernel *k = l->sink->arg.kernel;
    if (!b || !k || !k->native) return true;
    for (uint32_t i = from; i < to; i++)
        if (l->order[i] >= l->n) return true; /* a loop */
    for (uint32_t i = from; i < to; i++) l->body[i - from] = l->node[l->order[i]];
    if (!ki_schedule(l->ir->env, l->body, to - from, l->place, k->native > KI_CPU_AVX512_LEVEL ? 32 : 16)) return false;
    for (uint32_t i = from; i < to; i++) l->order[i] = index_of(l, l->body[i - from]);
    return true;
}

static bool order_blocks(lin *l) {
    uint32_t m = 0;
    order_leaves(l, &m);
    for (uint32_t r = 0; r < l->nrange; r++) l->done[l->range[r]] = 1; /* emitted where its loop opens */
    for (uint32_t b = 0; b <= l->nrange; b++) {
        if (b && !l->depth[b]) return ki_fail(l->ir->env, KI_E_RANGE_OPEN, range_id(l, b - 1)), false;
        uint32_t from = m;
        order_block(l, b, &m);
        if (!schedule_block(l, b, from, m)) return false;
    }
    /* Every node but the RANGEs, and every loop, once. */
    if (m != l->n) return ki_fail(l->ir->env, KI_E_INTERNAL, "linearize: a node was not reached"), false;
    return true;
}

/* Blocks joined: each loop item gives way to its RANGE and its block's list. */
static kn_uop assemble(lin *l) {
    kn_uop *list = ki_malloc((size_t)l->n * sizeof *list);
    if (!list) return ki_fail(l->ir->env, KI_E_NOMEM), NULL;
    uint32_t m = 0, top = 0;
    l->stack[top++] = (frame){0, 0}; /* block, place in l->order */
    while (top) {
        frame *f = &l->stack[top - 1];
        if (f->next == l->order_end[f->item]) {
            top--;
            continue;
        }
        uint32_t item = l->order[f->next++];
        if (item < l->n) {
            if (l->node[item] != l->sink) list[m++] = l->node[item];
            continue;
        }
        uint32_t r = item - l->n;
        list[m++] = l->node[l->range[r]];
        l->stack[top++] = (frame){r + 1, l->order_end[r]};
    }
    kn_uop linear = ki_opn(l->ir, KN_LINEAR, list, m);
    ki_free(list);
    return linear ? ki_with_srcs(l->ir, l->sink, &linear, 1) : NULL;
}

kn_uop ki_linearize(ki_ir *ir, kn_uop sink) {
    if (!sink) return NULL;
    if (sink->nsrc == 1 && sink->src[0]->op == KN_LINEAR) return sink;
    lin l = {.ir = ir, .sink = sink};
    int64_t n = ki_postorder(ir, &sink, 1, &l.node); /* ids that other stages have left holes in decide nothing */
    if (n < 0) return NULL;
    l.n = (uint32_t)n;
    kn_uop result = NULL;
    if (alloc(&l)) {
        free_ranges(&l);
        if (loop_tree(&l) && place(&l) && order_blocks(&l)) result = assemble(&l);
    }
    ki_free(l.node);
    ki_free(l.at);
    ki_free(l.place);
    ki_free(l.mem);
    ki_free(l.dep_item);
    ki_free(l.dep_next);
    return result;
}
