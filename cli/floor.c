/* floor.c: the bytes that every schedule of a program moves, from its tensor graph alone, before any stage has decided
 * anything.
 *
 * What must be in memory: inputs, outputs, and
 *  - an operand of a sum that was itself computed by a sum, if the sum reads each of its elements more than once, along
 *    what it sums over: a matrix product, a convolution, a gradient of one. Kept out of memory, the sum behind the operand
 *    would be done again each time. (A value that is fixed while a sum runs, a row's maximum or mean, need not be.)
 *  - the value of a sum that two stored values need of which one needs the other: when the second is computed the first
 *    is complete, so it is read again, or done again.
 *    What alone is made of it, element by element (a bias added, a residual), is stored in its place.
 *  - a matrix product or a convolution that is needed together with a sum over it along axes of both its sides (a convolution, and
 *    the mean of some channels at all positions), and that sum: no row or column of the product knows it before all others are
 *    computed, so the product is read again, or done again. A sum along one side's axes alone (a row of scores, a channel's mean)
 *    is a row's, which a kernel can keep, as is what is made element by element.
 *    Where the sum behind an operand is stored for this, the operand itself need not be.
 * Each is written once. It is read once by every kernel that cannot be one with another that reads it: two stored values
 * of which one needs the other are not made by one kernel (but element by element), so that is the longest chain of
 * stored values which read it and need each other. What a one-hot sum chooses from is read as far as it is chosen. */
#include "floor.h"

#include <string.h>

typedef struct edge { /* a store that another one reads */
    uint32_t of;
    bool same;
} edge;

typedef struct work {
    kn_uop *order; /* ids ascending */
    int64_t n;
    ki_ir *ir;
    bool *constant; /* by id: no memory below */
    bool *fresh;    /* a sum of data stands below, nothing stored between */
    bool *stored;
    bool *must;    /* stored: outputs and assignments */
    kn_uop *block; /* by id, of a sum over a product that is stored for it: that one. One kernel makes all of these */
    kn_uop *user;  /* by id: the only one; NULL: there are none or several */
    kn_uop *store; /* the stored values, inputs not among them: ids ascending */
    uint32_t nstore;
    int64_t **limit; /* by store, by id: elements that it may read, 0: it does not read this, SAME */
    edge *edge;      /* the same of stores, few of which read each other: first[s] up to first[s + 1] are those of s */
    uint32_t *first;
    size_t room;
} work;
enum { SAME = -1 }; /* needed element by element: made in the same kernel, or may be */

static bool is_input(kn_uop u) { return u->op == KN_PARAM && u->nsrc; }
static int64_t bytes_of(kn_uop u, int64_t elements) { return elements * (int64_t)ki_itemsize((kn_dtype)u->dtype); }
/* A REDUCE of data that adds up two or more. */
static bool is_sum(const work *w, kn_uop u) {
    return u->op == KN_REDUCE && !w->constant[u->id] && u->src[0]->type->numel >= 2 * u->type->numel;
}
/* The value that a store writes, and what stands for it afterwards. */
static kn_uop value_of(kn_uop u) { return u->op == KN_AFTER ? u->src[1]->src[1] : u; }

/* Sources that are values: not shapes. */
static uint32_t values(kn_uop u) {
    if (u->op == KN_PARAM) return 0;
    return ki_ops[u->op].cls == KI_C_MOVEMENT && u->op != KN_STACK && u->op != KN_INDEX ? 1 : u->nsrc;
}

static void mark(work *w) {
    for (int64_t i = 0; i < w->n; i++) {
        kn_uop u = w->order[i];
        bool constant = !is_input(u) && u->op != KN_BUFFER, fresh = false;
        for (uint32_t k = 0; k < values(u); k++) {
            kn_uop s = u->src[k];
            constant &= w->constant[s->id];
            fresh |= w->fresh[s->id] && !w->stored[s->id];
        }
        w->constant[u->id] = constant;
        w->fresh[u->id] = fresh || is_sum(w, u);
    }
}

static bool find_users(work *w) {
    uint32_t *n = ki_calloc(w->ir->n, sizeof *n);
    if (!n) return false;
    for (int64_t i = 0; i < w->n; i++)
        for (uint32_t k = 0; k < values(w->order[i]); k++) {
            uint32_t id = w->order[i]->src[k]->id;
            w->user[id] = n[id]++ ? NULL : w->order[i];
        }
    ki_free(n);
    return true;
}

/* What alone is made of u, element by element: as good to store as u. */
static kn_uop end_of_chain(const work *w, kn_uop u) {
    for (kn_uop t; !w->stored[u->id] && (t = w->user[u->id]) != NULL; u = t) {
        bool along = ki_is_elementwise((kn_op)t->op) || t->op == KN_RESHAPE || t->op == KN_PERMUTE;
        if (!along || t->type->numel != u->type->numel || w->stored[t->id]) break;
    }
    return u;
}

/* ---- operands of sums -------------------------------------------------------------------------------------------- */

/* Axes of v that those in the mask of u = reshape(v) are made of. */
static uint32_t through_reshape(const ki_type *u, const ki_type *v, uint32_t mask) {
    uint32_t out = 0;
    for (unsigned a = 0, b = 0; a < u->rank || b < v->rank;) {
        int64_t pa = 1, pb = 1;
        unsigned a0 = a, b0 = b;
        do {
            if (a < u->rank && (pa <= pb || b == v->rank)) pa *= u->dim[a++].n;
            else pb *= v->dim[b++].n;
        } while (pa != pb && (a < u->rank || b < v->rank));
        bool in = false;
        for (unsigned k = a0; k < a; k++) in |= mask >> k & 1 && u->dim[k].n > 1;
        for (unsigned k = b0; in && k < b; k++) out |= (uint32_t)(v->dim[k].n > 1) << k;
    }
    return out;
}

static bool varies(const ki_type *t, uint32_t mask) {
    for (unsigned k = 0; k < t->rank; k++)
        if (mask >> k & 1 && t->dim[k].n > 1) return true;
    return false;
}

typedef struct step {
    kn_uop u;
    uint32_t mask; /* axes the sum goes along */
    double times;  /* each element of u is read so often */
} step;

/* One op nearer to memory: x's operands onto the stack. */
static uint32_t descend(step x, step *out) {
    kn_uop u = x.u, s = u->src[0];
    uint32_t n = 0, m = 0;
    switch ((kn_op)u->op) {
    case KN_PERMUTE:
        for (unsigned k = 0; k < u->type->rank; k++)
            if (x.mask >> k & 1) m |= UINT32_C(1) << u->arg.ints->v[k];
        out[n++] = (step){s, m, x.times};
        break;
    case KN_RESHAPE: out[n++] = (step){s, through_reshape(u->type, s->type, x.mask), x.times}; break;
    case KN_EXPAND:
    case KN_SHRINK: out[n++] = (step){s, x.mask, x.times * (double)u->type->numel / (double)s->type->numel}; break;
    case KN_PAD:
    case KN_FLIP: out[n++] = (step){s, x.mask, x.times}; break;
    default:
        for (uint32_t k = 0; ki_is_elementwise((kn_op)u->op) && k < u->nsrc; k++)
            if (u->src[k]->type->rank) out[n++] = (step){u->src[k], x.mask, x.times};
    }
    return n;
}

/* The first operand of the sum that must be stored and is not; NULL: none. */
static kn_uop operand(const work *w, kn_uop sum) {
    enum { ROOM = 4096 };
    step stack[ROOM];
    uint32_t n = 0, looked = 0;
    stack[n++] = (step){sum->src[0], sum->arg.reduce.axes, 1};
    while (n && looked++ < ROOM) {
        step x = stack[--n];
        bool view = ki_ops[x.u->op].cls == KI_C_MOVEMENT;
        if (w->stored[x.u->id] || !w->fresh[x.u->id] || !varies(x.u->type, x.mask)) continue;
        if (!view && x.times >= 2) return x.u;
        if (n + 8 < ROOM && x.u->op != KN_REDUCE) n += descend(x, stack + n);
    }
    return NULL;
}

/* Stores sum u, or what alone is made of it; what was stored for it alone need not be. */
static bool store_sum(work *w, kn_uop u) {
    w->stored[end_of_chain(w, u)->id] = true;
    mark(w);
    for (int64_t j = 0; j < w->n; j++) {
        uint32_t id = w->order[j]->id;
        if (w->stored[id] && !w->must[id] && !w->fresh[id]) w->stored[id] = false;
    }
    return true;
}

/* ---- products that are needed with a sum over them -------------------------------------------------------------- */

/* *mask: what the axes in x's mask are of c, a value below of which each element is read once. */
static bool find_axes(step x, kn_uop c, uint32_t *mask) {
    enum { ROOM = 1024 };
    step stack[ROOM];
    uint32_t n = 0, looked = 0;
    stack[n++] = x;
    while (n && looked++ < ROOM) {
        x = stack[--n];
        if (x.u == c) return *mask = x.mask, x.times < 2;
        if (n + 8 < ROOM && x.u->op != KN_REDUCE) n += descend(x, stack + n);
    }
    return false;
}

/* A side of a product, below its views. */
static step side_of(kn_uop side, uint32_t mask) {
    step x = {side, mask, 1}, next[1];
    while (ki_ops[x.u->op].cls == KI_C_MOVEMENT && x.u->op != KN_STACK && x.u->op != KN_INDEX && descend(x, next))
        x = next[0];
    return x;
}

/* A sum of products that reads what both its sides are made of several times: more work than reading it again. */
static bool is_product(const work *w, kn_uop u) {
    kn_uop t = u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD ? u->src[0] : NULL;
    return t && t->op == KN_MUL && is_sum(w, u) && side_of(t->src[0], 0).times >= 2 && side_of(t->src[1], 0).times >= 2;
}

/* Does sum u, over what is made of the product c element by element, go along axes of both c's sides? */
static bool sums_block(kn_uop u, kn_uop c) {
    uint32_t mask;
    kn_uop t = c->src[0];
    if (!find_axes((step){u->src[0], u->arg.reduce.axes, 1}, c, &mask)) return false;
    mask &= ~c->arg.reduce.axes; /* those it has summed up itself */
    step a = side_of(t->src[0], mask), b = side_of(t->src[1], mask);
    return varies(a.u->type, a.mask) && varies(b.u->type, b.mask);
}

/* Is the product c needed with such sums? at: by id, what c is in: SUMS are these sums. */
enum { ITSELF = 1, SUMMED = 2, SUMS = 4 };
static bool meets_own_sum(const work *w, kn_uop c, uint8_t *at) {
    bool meets = false;
    memset(at, 0, w->ir->n);
    at[c->id] = ITSELF;
    for (int64_t i = 0; i < w->n; i++) {
        kn_uop u = w->order[i];
        uint8_t has = 0;
        for (uint32_t k = 0; k < values(u); k++)
            if (!w->stored[u->src[k]->id]) has |= at[u->src[k]->id] & (ITSELF | SUMMED);
        if (u == c || !has) continue;
        meets |= has == (ITSELF | SUMMED);
        if (u->op != KN_REDUCE) at[u->id] = has;
        else if (has & ITSELF && sums_block(u, c)) at[u->id] = SUMMED | SUMS;
        else at[u->id] = has & SUMMED;
    }
    return meets;
}

/* Stores the product c and the sums it is needed with, if there are any. */
static bool store_block(work *w, kn_uop c, uint8_t *at) {
    if (!is_product(w, c) || w->stored[c->id] || !meets_own_sum(w, c, at)) return false;
    for (int64_t i = 0; i < w->n; i++)
        if (at[w->order[i]->id] & SUMS) w->stored[w->order[i]->id] = true, w->block[w->order[i]->id] = c;
    return store_sum(w, c);
}

/* ---- stored values ----------------------------------------------------------------------------------------------- */

/* Does the sum choose one element, the one whose position equals data? */
static bool chooses(const work *w, kn_uop sum) {
    kn_uop u = sum->op == KN_REDUCE && sum->arg.reduce.op == KN_ADD ? sum->src[0] : NULL;
    while (u && (ki_ops[u->op].cls == KI_C_MOVEMENT || u->op == KN_CAST || u->op == KN_NEG) && u->nsrc) u = u->src[0];
    if (!u || (u->op != KN_WHERE && u->op != KN_MUL)) return false;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        kn_uop c = u->src[k];
        while ((ki_ops[c->op].cls == KI_C_MOVEMENT || c->op == KN_CAST) && c->nsrc) c = c->src[0];
        if (c->op == KN_CMPEQ && w->constant[c->src[0]->id] != w->constant[c->src[1]->id]) return true;
    }
    return false;
}

/* What store s reads: down from it to what is stored. */
static void find_reads(work *w, uint32_t s) {
    int64_t *l = w->limit[s];
    kn_uop v = value_of(w->store[s]), own = w->store[s];
    memset(l, 0, w->ir->n * sizeof *l);
    l[v->id] = SAME;
    for (int64_t i = w->n; i-- > 0;) {
        kn_uop u = w->order[i];
        if (!l[u->id] || w->constant[u->id] || (w->stored[u->id] && u != own && (u != v || v != own))) continue;
        bool along = l[u->id] == SAME && (ki_is_elementwise((kn_op)u->op) || u->op == KN_RESHAPE);
        int64_t most = l[u->id] == SAME ? INT64_MAX : l[u->id];
        if ((chooses(w, u) || u->op == KN_SHRINK) && u->type->numel < most) most = u->type->numel;
        for (uint32_t k = 0; k < values(u); k++) {
            int64_t *to = &l[u->src[k]->id];
            if (along && *to == 0) *to = SAME;
            else if (!along && *to < most) *to = most;
        }
    }
    if (v == own) l[v->id] = 0;
}

/* Does store s need store t by way of another? */
static bool needs_else(const work *w, uint32_t s, uint32_t t, bool *need) {
    for (uint32_t r = t; r <= s; r++) {
        need[r] = r == t;
        for (uint32_t e = w->first[r]; e < w->first[r + 1] && !need[r]; e++)
            need[r] = w->edge[e].of >= t && need[w->edge[e].of] && (r != s || w->edge[e].of != t);
    }
    return need[s];
}

static bool list_edges(work *w) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < w->nstore; s++) {
        if (!ki_array_grow(&w->edge, &w->room, n + s + 1, sizeof *w->edge)) return false;
        w->first[s] = n;
        for (uint32_t t = 0; t < s; t++) {
            int64_t how = w->limit[s][w->store[t]->id];
            if (how) w->edge[n++] = (edge){t, how == SAME};
        }
    }
    w->first[w->nstore] = n;
    return true;
}

static bool collect(work *w) {
    bool *need = ki_calloc((size_t)w->n + 1, sizeof *need);
    if (!need) return false;
    w->nstore = 0;
    for (int64_t i = 0; i < w->n; i++)
        if (w->stored[w->order[i]->id]) w->store[w->nstore++] = w->order[i];
    for (uint32_t s = 0; s < w->nstore; s++) {
        if (!w->limit[s] && !(w->limit[s] = ki_calloc(w->ir->n, sizeof **w->limit))) return ki_free(need), false;
        find_reads(w, s);
    }
    for (uint32_t s = 0; s < w->nstore; s++)
        for (uint32_t t = 0; t < s; t++) {
            kn_uop of = w->block[w->store[s]->id];
            if (of && of == w->block[w->store[t]->id] && w->limit[s][w->store[t]->id])
                w->limit[s][w->store[t]->id] = SAME;
        }
    if (!list_edges(w)) return ki_free(need), false;
    for (uint32_t s = 0; s < w->nstore; s++) /* what is the same kernel's stays so only if no path leads around */
        for (uint32_t e = w->first[s]; e < w->first[s + 1]; e++)
            if (w->edge[e].same && needs_else(w, s, w->edge[e].of, need)) {
                w->limit[s][w->store[w->edge[e].of]->id] = INT64_MAX;
                w->edge[e].same = false;
            }
    for (uint32_t s = 0; s < w->nstore; s++) /* inputs, and sums on the way, are read */
        for (int64_t i = 0; i < w->n; i++)
            if (w->limit[s][w->order[i]->id] == SAME && !w->stored[w->order[i]->id])
                w->limit[s][w->order[i]->id] = INT64_MAX;
    ki_free(need);
    return true;
}

/* Longest chain of kernels that read u and need each other: how many they are, or the elements they read. Stored values that are made
 * element by element from each other are one kernel: it needs what each of them needs, and reads what one of them reads. Sources have
 * smaller ids than what needs them. length: of each store; behind those, what comes before its kernel. */
static int64_t chain(const work *w, kn_uop u, int64_t *length, bool elements) {
    int64_t longest = 0, *before = length + w->nstore;
    for (uint32_t s = 0; s < w->nstore; s++) {
        int64_t own = w->limit[s][u->id];
        own = own <= 0 ? 0 : !elements ? 1 : own < u->type->numel ? own : u->type->numel;
        before[s] = 0;
        for (const edge *e = w->edge + w->first[s]; e < w->edge + w->first[s + 1]; e++) {
            int64_t behind = e->same ? before[e->of] : length[e->of];
            if (behind > before[s]) before[s] = behind;
            if (e->same && length[e->of] - before[e->of] > own) own = length[e->of] - before[e->of];
        }
        length[s] = before[s] + own;
        if (length[s] > longest) longest = length[s];
    }
    return longest;
}

/* Marks one value more that must be stored. False: there is none, or *ok is. */
static bool one_more(work *w, int64_t *length, uint8_t *at, bool *ok) {
    mark(w);
    for (int64_t i = 0; i < w->n; i++) {
        kn_uop o = is_sum(w, w->order[i]) ? operand(w, w->order[i]) : NULL;
        if (o) return w->stored[o->id] = true;
    }
    if (!(*ok = collect(w))) return false;
    for (int64_t i = 0; i < w->n; i++) {
        kn_uop u = w->order[i];
        if (is_sum(w, u) && !w->stored[u->id] && chain(w, u, length, false) >= 2) return store_sum(w, u);
    }
    for (int64_t i = 0; i < w->n; i++)
        if (store_block(w, w->order[i], at)) return true;
    return false;
}

static int64_t count(work *w, int64_t *length, moved *m) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < w->n; i++) {
        kn_uop u = w->order[i];
        if (!is_input(u) && !w->stored[u->id]) continue;
        kn_uop v = value_of(u);
        int64_t written = w->stored[u->id] ? bytes_of(v, v->type->numel) : 0;
        int64_t read = bytes_of(u, chain(w, u, length, true));
        moved_add(m, MOVED_FLOOR, bytes_of(v, v->type->numel), read, written);
        bytes += read + written;
    }
    return bytes;
}

int64_t floor_bytes(const ki_program *p, moved *m) {
    kn_uop tuple = p->root->src[0];
    work w = {.ir = p->ir};
    w.n = ki_toposort(p->ir, &tuple, 1, &w.order);
    if (w.n < 0) return -1;
    w.constant = ki_calloc(p->ir->n, 1);
    w.fresh = ki_calloc(p->ir->n, 1);
    w.stored = ki_calloc(p->ir->n, 1);
    w.must = ki_calloc(p->ir->n, 1);
    w.block = ki_calloc(p->ir->n, sizeof *w.block);
    w.user = ki_calloc(p->ir->n, sizeof *w.user);
    w.store = ki_calloc((size_t)w.n + 1, sizeof *w.store);
    w.limit = ki_calloc((size_t)w.n + 1, sizeof *w.limit);
    w.first = ki_calloc((size_t)w.n + 1, sizeof *w.first);
    int64_t *length = ki_calloc(2 * (size_t)w.n + 2, sizeof *length), bytes = -1;
    uint8_t *at = ki_calloc(p->ir->n, 1);
    bool ok = at && w.constant && w.fresh && w.stored && w.must && w.block && w.user && find_users(&w) && w.store &&
              w.limit && w.first && length;
    for (int64_t i = 0; i < w.n && ok; i++)
        if (w.order[i]->op == KN_AFTER) w.stored[w.order[i]->id] = w.must[w.order[i]->id] = true;
    for (uint32_t i = 0; i < tuple->nsrc && ok; i++) {
        kn_uop v = tuple->src[i];
        while (v->op == KN_RESHAPE) v = v->src[0];
        if (!is_input(v)) w.stored[v->id] = w.must[v->id] = true;
    }
    while (ok && one_more(&w, length, at, &ok)) {
    }
    if (ok) bytes = count(&w, length, m);
    for (uint32_t s = 0; w.limit && s < w.n; s++) ki_free(w.limit[s]);
    ki_free(w.constant);
    ki_free(w.fresh);
    ki_free(w.stored);
    ki_free(w.must);
    ki_free(w.block);
    ki_free(w.user);
    ki_free(w.store);
    ki_free(w.limit);
    ki_free(w.edge);
    ki_free(w.first);
    ki_free(length);
    ki_free(at);
    ki_free(w.order);
    return bytes;
}
