/* devec.c: lane axes become registers. A value has at most one vector axis (lanes.c), cut into chunks of 2^k lanes; along
 * the others it is unrolled. So each node of the input has parts, row-major over its own axes with chunks in place of the vector
 * axis; a chunk of one lane is a scalar, and so is every part of a value that does not vary along the vector.
 *
 * Index parts are kept as base + c + stride * lane as long as they are affine, and written in that form, where somebody asks for
 * them, so that memory accesses show base + STACK(0, 1, ...) to whoever reads addresses. REG BUFFERs are laid out again with the vector
 * axis innermost: which element sits where in a REG buffer is nobody's business but the kernel's. */
#include "ir/history.h"
#include "stages/5_select/lanes.h"

#include <string.h>

typedef struct affine {
    kn_uop base; /* NULL: 0 */
    int64_t c, step;
    uint32_t lanes;
    bool ok;
} affine;

typedef struct devec {
    ki_ir *ir;
    const ki_target *t;
    kn_uop *node;
    uint32_t n;
    uint32_t *at; /* id -> node index */
    ki_lanes l;
    uint32_t *first; /* node index -> its parts */
    uint32_t *count;
    uint32_t *ext; /* node index * rank + axis -> parts along it, of what has several */
    kn_uop *part;  /* NULL: aff, not written yet */
    affine *aff;   /* beside part */
    uint32_t npart, cap;
    kn_uop *list; /* scratch */
    uint32_t nlist, list_cap;
    struct {
        int64_t start, step;
        uint32_t n;
        kn_uop list;
    } known[32];     /* progressions made */
    int64_t *relaid; /* node index of a REG BUFFER * rank + axis: its strides */
    uint8_t *relay;  /* node index: 0 unseen, 1 laid out anew, 2 kept */
} devec;

typedef struct place {       /* one part of a value */
    uint32_t c[KI_MAX_RANK]; /* lane, or chunk on the vector axis */
} place;

static kn_uop fail(devec *d, kn_uop u, const char *why) {
    char shape[128];
    ki_fail(d->ir->env, KI_E_SELECT_OP, ki_ops[u->op].name, ki_shape_text(u->type, shape, sizeof shape), why);
    return NULL;
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

static uint32_t extent(const devec *d, kn_uop u, unsigned k) {
    if (k >= ki_rank(u) || ki_dim_n(u, k) <= 1) return 1;
    return d->l.vectors >> k & 1 ? ki_lane_chunks(&d->l, k) : (uint32_t)ki_dim_n(u, k);
}

static bool is_lanes(const devec *d, kn_uop u) {
    return ki_has_lanes(&d->l, u) || (u->op == KN_STACK && d->l.rank == 1 && (int64_t)u->nsrc == d->l.size[0]);
}

static uint32_t part_count(const devec *d, kn_uop u) {
    uint32_t n = 1;
    if (is_lanes(d, u))
        for (unsigned k = 0; k < d->l.rank; k++) n *= extent(d, u, k);
    return n;
}

static place place_of(const devec *d, kn_uop u, uint32_t part) {
    place p = {{0}};
    for (unsigned k = d->l.rank; k-- > 0;) {
        uint32_t e = extent(d, u, k);
        p.c[k] = part % e;
        part /= e;
    }
    return p;
}

/* Number of u's part at p, where size-1 axes broadcast. */
static inline uint32_t part_at(const devec *d, kn_uop u, const place *p) {
    uint32_t at = 0, i = d->at[u->id];
    if (d->count[i] == 1) return d->first[i];
    const uint32_t *ext = d->ext + (size_t)i * d->l.rank;
    for (unsigned k = 0; k < d->l.rank; k++) at = at * ext[k] + (ext[k] > 1 ? p->c[k] : 0);
    return d->first[i] + at;
}

/* The vector axis u varies along, -1 none. */
static int vector_of(const devec *d, kn_uop u) { return is_lanes(d, u) ? ki_vector_axis(&d->l, u) : -1; }

/* u's register at p. */
static ki_lane_chunk chunk_of(const devec *d, kn_uop u, const place *p) {
    int v = vector_of(d, u);
    return v < 0 ? (ki_lane_chunk){0, 1} : ki_lane_chunk_at(&d->l, (unsigned)v, p->c[v]);
}

static uint32_t part_lanes(const devec *d, kn_uop u, const place *p) { return chunk_of(d, u, p).len; }

static bool room(devec *d, uint32_t more) {
    if (d->npart + more <= d->cap) return true;
    uint32_t cap = d->cap ? d->cap * 2 : d->n * 4; /* most values have few parts */
    while (cap < d->npart + more) cap *= 2;
    kn_uop *a = ki_realloc(d->part, cap, sizeof *a);
    if (a) d->part = a;
    affine *b = ki_realloc(d->aff, cap, sizeof *b);
    if (b) d->aff = b;
    if (!a || !b) return ki_fail(d->ir->env, KI_E_NOMEM), false;
    d->cap = cap;
    return true;
}

static bool push(devec *d, kn_uop u) {
    if (!u) return false;
    if (d->nlist == d->list_cap) {
        uint32_t cap = d->list_cap ? d->list_cap * 2 : 64;
        kn_uop *p = ki_realloc(d->list, cap, sizeof *p);
        if (!p) return ki_fail(d->ir->env, KI_E_NOMEM), false;
        d->list = p;
        d->list_cap = cap;
    }
    d->list[d->nlist++] = u;
    return true;
}

/* ---- affine indices ----------------------------------------------------------------------------------------- */

/* STACK(start, start + step, ...) of dtype index. */
static kn_uop progression(devec *d, int64_t start, int64_t step, uint32_t n) {
    kn_uop s[128];
    uint32_t at = (uint32_t)((uint64_t)start / n + (uint64_t)step + n) % 32;
    if (d->known[at].list && d->known[at].start == start && d->known[at].step == step && d->known[at].n == n)
        return d->known[at].list;
    for (uint32_t k = 0; k < n && k < 128; k++) s[k] = ki_index(d->ir, start + (int64_t)k * step);
    kn_uop list = ki_opn(d->ir, KN_STACK, s, n);
    d->known[at].start = start, d->known[at].step = step, d->known[at].n = n, d->known[at].list = list;
    return list;
}

static kn_uop write_affine(devec *d, const affine *a) {
    if (a->lanes == 1 || a->step == 0) {
        if (!a->base) return ki_index(d->ir, a->c);
        return a->c ? ki_op2(d->ir, KN_ADD, a->base, ki_index(d->ir, a->c)) : a->base;
    }
    if (!a->base) return progression(d, a->c, a->step, a->lanes);
    kn_uop base = a->c ? ki_op2(d->ir, KN_ADD, a->base, ki_index(d->ir, a->c)) : a->base;
    return ki_op2(d->ir, KN_ADD, base, progression(d, 0, a->step, a->lanes));
}

/* Part number i. */
static kn_uop written(devec *d, uint32_t i) {
    return d->part[i] ? d->part[i] : (d->part[i] = write_affine(d, &d->aff[i]));
}

/* All parts of u's sources from `from` on, onto the list. */
static bool push_sources(devec *d, kn_uop u, uint32_t from) {
    for (uint32_t k = from; k < u->nsrc; k++) {
        uint32_t s = d->at[u->src[k]->id];
        for (uint32_t j = 0; j < d->count[s]; j++)
            if (!push(d, written(d, d->first[s] + j))) return false;
    }
    return true;
}

/* The affine form of an index op from its sources'; ok = false: there is none. */
static affine affine_op(devec *d, kn_op op, affine a, affine b) {
    affine r = {.ok = a.ok && b.ok}, none = {0};
    if (!r.ok) return none;
    if (op == KN_ADD) {
        if (ki_add_overflow(a.c, b.c, &r.c) || ki_add_overflow(a.step, b.step, &r.step)) return none;
        r.base = !a.base ? b.base : !b.base ? a.base : ki_op2(d->ir, KN_ADD, a.base, b.base);
        return r;
    }
    if (op == KN_SUB) {
        if (ki_sub_overflow(a.c, b.c, &r.c) || ki_sub_overflow(a.step, b.step, &r.step)) return none;
        r.base = a.base;
        if (b.base) r.base = ki_op2(d->ir, KN_SUB, a.base ? a.base : ki_index(d->ir, 0), b.base);
        return r;
    }
    if (op != KN_MUL) return none;
    if (!a.base && a.step == 0) { /* the constant to the right */
        affine t = a;
        a = b, b = t;
    }
    if (b.base || b.step) return none;
    if (ki_mul_overflow(a.c, b.c, &r.c) || ki_mul_overflow(a.step, b.c, &r.step)) return none;
    if (a.base && b.c) r.base = b.c == 1 ? a.base : ki_op2(d->ir, KN_MUL, a.base, ki_index(d->ir, b.c));
    return r;
}

static affine plain(kn_uop u) {
    if (ki_is_const(u)) return (affine){NULL, u->arg.i, 0, 1, true};
    return (affine){u, 0, 0, 1, true};
}

/* ---- values ------------------------------------------------------------------------------------------------- */

/* What unrolling decides: a lane's own number makes comparisons and quotients constant. NULL: nothing. *which: the
 * source that is the result, -1 a constant. */
static kn_uop decided(kn_uop u, const kn_uop *s, int *which) {
    bool both = u->nsrc == 2 && u->dtype == KN_BOOL && s[0]->dtype == KN_BOOL;
    bool conj = u->op == KN_AND || u->op == KN_MUL, disj = u->op == KN_OR || u->op == KN_ADD || u->op == KN_MAX;
    *which = -1;
    if (u->op == KN_WHERE && ki_is_const(s[0])) *which = s[0]->arg.i ? 1 : 2;
    for (int k = 0; k < 2 && both && *which < 0; k++)
        if (ki_is_const(s[k]) && ((conj && s[k]->arg.i) || (disj && !s[k]->arg.i))) *which = 1 - k;
    if (*which >= 0) return s[*which];
    for (int k = 0; k < 2 && both; k++)
        if (ki_is_const(s[k]) && ((conj && !s[k]->arg.i) || (disj && s[k]->arg.i))) return s[k];
    return NULL;
}

/* A result that its bounds leave one value. */
static kn_uop by_bounds(devec *d, kn_uop r) {
    bool known = r && (r->dtype == KN_BOOL || ki_is_int((kn_dtype)r->dtype)) && r->dtype != KN_U64;
    if (!known || ki_is_const(r) || r->lo.i != r->hi.i || r->lo.i == INT64_MAX || r->lo.i == INT64_MIN) return r;
    return ki_const_int(d->ir, (kn_dtype)r->dtype, r->lo.i);
}

static kn_uop elementwise_part(devec *d, kn_uop u, const place *p, affine *aff) {
    kn_uop s[4];
    affine a[4] = {{0}};
    if (u->nsrc > 4) return fail(d, u, "too many operands");
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t i = part_at(d, u->src[k], p);
        if (!(s[k] = written(d, i))) return NULL;
        a[k] = d->aff[i];
    }
    int which;
    kn_uop r = decided(u, s, &which);
    if (r && which >= 0) *aff = a[which];
    if (!r) r = by_bounds(d, ki_make(d->ir, (kn_op)u->op, (kn_dtype)u->dtype, s, u->nsrc, u->arg, u->tag));
    if (r && u->dtype == KN_IDX && !aff->ok && ki_rank(r) == 0) *aff = plain(r);
    return r;
}

/* u's part of a list in row-major order over u's axes: the first of so many that stand *step apart. */
static const kn_uop *list_at(const devec *d, kn_uop u, kn_uop list, const place *p, uint32_t *lanes, int64_t *step) {
    int64_t at = 0;
    ki_lane_chunk chunk = chunk_of(d, u, p);
    int v = vector_of(d, u);
    *lanes = chunk.len, *step = 0;
    for (unsigned k = 0; k < ki_rank(u); k++) {
        bool vector = (int)k == v;
        at = at * ki_dim_n(u, k) + (vector ? chunk.offset : ki_dim_n(u, k) > 1 ? p->c[k] : 0);
        *step = vector ? 1 : *step * ki_dim_n(u, k);
    }
    return list->src + at;
}

/* The list that u is: NULL, none. */
static kn_uop list_of(kn_uop u) {
    kn_uop list = u->op == KN_RESHAPE ? u->src[0] : u;
    return list->op == KN_STACK && ki_numel(u) == (int64_t)list->nsrc ? list : NULL;
}

static kn_uop list_part(devec *d, kn_uop u, const place *p) {
    uint32_t lanes;
    int64_t step;
    kn_uop list = list_of(u), e[128];
    if (!list) return fail(d, u, "a reshape of something other than a list");
    const kn_uop *at = list_at(d, u, list, p, &lanes, &step);
    bool same = true;
    for (uint32_t k = 0; k < lanes; k++) {
        e[k] = at[(int64_t)k * step];
        same = same && e[k] == e[0];
    }
    return same ? e[0] : ki_opn(d->ir, KN_STACK, e, lanes);
}

static affine list_affine(const devec *d, kn_uop u, kn_uop list, const place *p) {
    uint32_t lanes;
    int64_t step;
    const kn_uop *at = list_at(d, u, list, p, &lanes, &step);
    affine a = {NULL, at[0]->arg.i, lanes > 1 ? at[step]->arg.i - at[0]->arg.i : 0, lanes, true};
    for (uint32_t k = 0; k < lanes && a.ok; k++)
        a.ok = ki_is_const(at[(int64_t)k * step]) && at[(int64_t)k * step]->arg.i == a.c + (int64_t)k * a.step;
    return a;
}

/* u's part at p as an affine form, if it has one. */
static affine affine_part(devec *d, kn_uop u, const place *p) {
    affine a = {0};
    kn_uop list = u->dtype == KN_IDX ? list_of(u) : NULL;
    if (list) return list_affine(d, u, list, p);
    if (u->dtype != KN_IDX || u->nsrc != 2 || !ki_is_elementwise((kn_op)u->op)) return a;
    a = affine_op(d, (kn_op)u->op, d->aff[part_at(d, u->src[0], p)], d->aff[part_at(d, u->src[1], p)]);
    a.lanes = part_lanes(d, u, p);
    return a;
}

/* ---- storage ------------------------------------------------------------------------------------------------ */

static kn_uop storage_root(kn_uop u) {
    while (u->op == KN_AFTER) u = u->src[0];
    return u;
}
static bool is_reg(kn_uop buf) { return buf->op == KN_BUFFER && buf->arg.buffer->addrspace == KN_REG; }

/* Whether a REG BUFFER's accesses all index it by lanes alone, with the same strides: then it can be laid out anew.
 * That nothing but lanes is in an index shows in its bounds. */
static void note_reg(devec *d, kn_uop index) {
    kn_uop buf = storage_root(index->src[0]), i = index->src[1];
    if (!is_reg(buf)) return;
    uint32_t b = d->at[buf->id], n = d->at[i->id];
    int64_t *old = d->relaid + (size_t)b * d->l.rank, most = 0, count = 1;
    const int64_t *coef = d->l.coef + (size_t)n * d->l.rank;
    bool ok = is_lanes(d, i) && !d->l.odd[n] && d->relay[b] != 2 && vector_of(d, i) >= 0;
    for (unsigned k = 0; k < d->l.rank && ok; k++) {
        int64_t want = ki_dim_n(i, k) > 1 ? coef[k] : 0;
        ok = want >= 0 && (d->relay[b] == 0 || old[k] == want);
        old[k] = want;
        most += want * (ki_dim_n(i, k) - 1);
        count *= ki_dim_n(i, k);
    }
    ok = ok && count == buf->arg.buffer->size && i->lo.i == 0 && i->hi.i == most && most == count - 1;
    d->relay[b] = ok ? 1 : 2;
}

/* Where i is in a laid out REG BUFFER: row-major with the vector axis last; *len: of so many lanes. */
static int64_t reg_place(const devec *d, kn_uop i, const place *p, uint32_t *len) {
    int64_t at = 0;
    unsigned v = (unsigned)vector_of(d, i);
    ki_lane_chunk chunk = chunk_of(d, i, p);
    for (unsigned k = 0; k < d->l.rank; k++)
        if (k != v) at = at * ki_dim_n(i, k) + (ki_dim_n(i, k) > 1 ? p->c[k] : 0);
    *len = chunk.len;
    return at * ki_dim_n(i, v) + chunk.offset;
}

/* The part of v that holds its element at these coordinates, and which lane of it that is. */
static kn_uop part_with(devec *d, kn_uop v, const int64_t *at, uint32_t *lane) {
    place p = {{0}};
    int along = vector_of(d, v);
    *lane = 0;
    for (unsigned k = 0; k < d->l.rank; k++) p.c[k] = (uint32_t)at[k];
    if (along >= 0) {
        uint32_t c = 0, end = ki_lane_chunks(&d->l, (unsigned)along) - 1;
        while (c < end && ki_lane_chunk_at(&d->l, (unsigned)along, c + 1).offset <= at[along]) c++;
        p.c[along] = c;
        *lane = (uint32_t)at[along] - ki_lane_chunk_at(&d->l, (unsigned)along, c).offset;
    }
    return written(d, part_at(d, v, &p));
}

/* Lanes of a value at other places (4_expand/prefix.c): axes in another order, or some of their lanes. */
static kn_uop moved_part(devec *d, kn_uop u, const place *p) {
    ki_lane_chunk chunk = chunk_of(d, u, p);
    kn_uop v = u->src[0], from[128], lane[128];
    int along = vector_of(d, u);
    bool one = true, same = true;
    if (chunk.len > 128 || ki_rank(v) != d->l.rank) return fail(d, u, "too many lanes");
    for (uint32_t i = 0; i < chunk.len; i++) {
        int64_t at[KI_MAX_RANK];
        uint32_t n;
        for (unsigned k = 0; k < d->l.rank; k++) {
            int64_t x = (int)k == along ? chunk.offset + i : p->c[k];
            if (u->op == KN_PERMUTE) at[u->arg.ints->v[k]] = x;
            else at[k] = k + 1 < u->nsrc ? u->src[k + 1]->src[x]->arg.i : x;
        }
        if (!(from[i] = part_with(d, v, at, &n))) return NULL;
        one = one && from[i] == from[0];
        same = same && n == i;
        lane[i] = ki_index(d->ir, n);
    }
    bool whole = one && (!ki_rank(from[0]) || (same && ki_numel(from[0]) == chunk.len));
    if (whole) return from[0];
    if (one)
        return ki_op2(d->ir, KN_INDEX, from[0], chunk.len > 1 ? ki_opn(d->ir, KN_STACK, lane, chunk.len) : lane[0]);
    for (uint32_t i = 0; i < chunk.len; i++)
        if (ki_rank(from[i])) from[i] = ki_op2(d->ir, KN_INDEX, from[i], lane[i]);
    return ki_opn(d->ir, KN_STACK, from, chunk.len);
}

static kn_uop index_part(devec *d, kn_uop u, const place *p) {
    kn_uop buf = storage_root(u->src[0]);
    if (ki_is_const_list(u->src[0]) && u->nsrc == 2) /* a table: the whole of it for each part */
        return ki_op2(d->ir, KN_INDEX, u->src[0], written(d, part_at(d, u->src[1], p)));
    if (!ki_is_storage(u->src[0])) return moved_part(d, u, p);
    if (u->nsrc != 2) return fail(d, u, "an index of several axes");
    uint32_t b = d->at[u->src[0]->id], len;
    kn_uop at;
    if (is_reg(buf) && d->relay && d->relay[d->at[buf->id]] == 1) {
        int64_t first = reg_place(d, u->src[1], p, &len);
        at = ki_index(d->ir, first);
        if (len > 1) at = first ? ki_op2(d->ir, KN_ADD, at, progression(d, 0, 1, len)) : progression(d, 0, 1, len);
    } else {
        at = written(d, part_at(d, u->src[1], p));
    }
    return at ? ki_op2(d->ir, KN_INDEX, d->part[d->first[b]], at) : NULL;
}

static kn_uop access_part(devec *d, kn_uop u, const place *p) {
    kn_uop s[3];
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!(s[k] = written(d, part_at(d, u->src[k], p)))) return NULL;
    if (u->nsrc > 2 && ki_is_const(s[2])) { /* a gate that is decided */
        if (s[2]->arg.i)
            return ki_make(d->ir, (kn_op)u->op, (kn_dtype)u->dtype, s, u->op == KN_LOAD ? 1 : 2, u->arg, 0);
        return u->op == KN_LOAD ? s[1] : ki_op0(d->ir, KN_GROUP);
    }
    bool masked = u->nsrc > 2 && ki_rank(s[2]);
    if (masked && s[0]->op == KN_INDEX && !ki_rank(s[0])) { /* one address in every lane: masks need one a lane */
        kn_uop at[128];
        for (int64_t k = 0; k < ki_dim_n(s[2], 0); k++) at[k] = s[0]->src[1];
        s[0] = ki_op2(d->ir, KN_INDEX, s[0]->src[0], ki_opn(d->ir, KN_STACK, at, (uint32_t)ki_dim_n(s[2], 0)));
        if (!s[0]) return NULL;
    }
    return ki_make(d->ir, (kn_op)u->op, (kn_dtype)u->dtype, s, u->nsrc, u->arg, u->tag);
}

/* ---- reduction over lanes ----------------------------------------------------------------------------------- */

/* list[from..nlist) as one value: a balanced tree, in order. */
static kn_uop tree(devec *d, kn_op op, uint32_t from) {
    while (d->nlist - from > 1) {
        uint32_t m = from;
        for (uint32_t k = from; k < d->nlist; k += 2)
            d->list[m++] = k + 1 < d->nlist ? ki_op2(d->ir, op, d->list[k], d->list[k + 1]) : d->list[k];
        d->nlist = m;
    }
    return d->list[from];
}

/* A vector to a scalar, halving. */
static kn_uop across(devec *d, kn_op op, kn_uop v, uint32_t lanes) {
    if (ki_rank(v) == 0 && lanes > 1) { /* the same in every lane */
        kn_uop s[128];
        for (uint32_t k = 0; k < lanes; k++) s[k] = v;
        v = ki_opn(d->ir, KN_STACK, s, lanes);
    }
    for (; v && lanes > 2; lanes /= 2)
        v = ki_op2(d->ir, op, ki_op2(d->ir, KN_INDEX, v, progression(d, 0, 1, lanes / 2)),
                   ki_op2(d->ir, KN_INDEX, v, progression(d, lanes / 2, 1, lanes / 2)));
    if (v && lanes == 2)
        v = ki_op2(d->ir, op, ki_op2(d->ir, KN_INDEX, v, ki_index(d->ir, 0)),
                   ki_op2(d->ir, KN_INDEX, v, ki_index(d->ir, 1)));
    return v;
}

/* Odometer over the axes in `axes`, within u. */
static bool advance(const devec *d, kn_uop u, uint32_t axes, place *p) {
    for (unsigned k = d->l.rank; k-- > 0;) {
        if (!(axes >> k & 1)) continue;
        if (++p->c[k] < extent(d, u, k)) return true;
        p->c[k] = 0;
    }
    return false;
}

/* u's parts at p and at all of the axes, pushed. */
static bool push_parts(devec *d, kn_uop u, uint32_t axes, place *p) {
    do {
        if (!push(d, written(d, part_at(d, u, p)))) return false;
    } while (advance(d, u, axes, p));
    return true;
}

/* A row that adds up along one axis: how, its length and dtype alone say, not which axes are vectors nor how wide the kernel's
 * registers are, which what stands beside it decides. */
typedef struct row {
    kn_uop v;
    kn_op op;
    uint32_t along, axes; /* its axis; the others it adds up over */
    uint32_t n, lanes;    /* as ki_lane_chunk_of has them */
    uint32_t part;        /* lanes of a part: of a register, 1 if the axis is no vector */
} row;

/* The part of an axis that starts at this lane. */
static uint32_t part_from(const row *r, uint32_t lane) {
    uint32_t c = lane / r->part < r->n / r->part ? lane / r->part : r->n / r->part;
    while (ki_lane_chunk_of(r->n, r->part, c).offset < lane) c++;
    return c;
}

/* Chunks c .. end of the row as one, then by halves: parts first, then the lanes of what is left. */
static kn_uop row_chunk(devec *d, const row *r, place *p, uint32_t c, uint32_t end) {
    uint32_t from = d->nlist, len = ki_lane_chunk_of(r->n, r->lanes, c).len, step = len < r->part ? len : r->part;
    for (uint32_t lane = 0; lane < len; lane += step) {
        uint32_t start = d->nlist;
        for (uint32_t q = c; q < end; q++) {
            p->c[r->along] = part_from(r, ki_lane_chunk_of(r->n, r->lanes, q).offset + lane);
            if (!push_parts(d, r->v, r->axes, p)) return NULL;
        }
        kn_uop one = tree(d, r->op, start);
        d->nlist = start;
        if (!push(d, one)) return NULL;
    }
    for (uint32_t half = len / step / 2; half; half /= 2)
        for (uint32_t k = 0; k < half; k++) {
            uint32_t pair = d->nlist;
            if (!push(d, d->list[from + k]) || !push(d, d->list[from + k + half])) return NULL;
            d->list[from + k] = tree(d, r->op, pair);
            d->nlist = pair;
        }
    d->nlist = from;
    return across(d, r->op, d->list[from], step);
}

static kn_uop reduce_part(devec *d, kn_uop u, const place *at) {
    row r = {.v = u->src[0], .op = (kn_op)u->arg.reduce.op, .axes = u->arg.reduce.axes};
    uint32_t from = d->nlist;
    int along = vector_of(d, r.v);
    bool vector = along >= 0 && (r.axes >> along & 1), any = vector;
    if (u->nsrc != 1) return fail(d, u, "a reduce over ranges");
    place p = *at;
    for (unsigned k = 0; k < d->l.rank; k++)
        if (r.axes >> k & 1) p.c[k] = 0;
    for (unsigned k = 0; k < d->l.rank && !any; k++)
        if (r.axes >> k & 1 && extent(d, r.v, k) > 1) along = (int)k, any = true;
    if (!any) return written(d, part_at(d, r.v, &p));
    r.along = (uint32_t)along;
    r.axes &= ~(UINT32_C(1) << along);
    r.n = (uint32_t)ki_dim_n(r.v, (unsigned)along);
    r.lanes = ki_row_lanes(d->t, r.v, r.n);
    r.part = vector ? d->l.lanes[along] : 1;
    uint32_t chunks = ki_lane_chunks_of(r.n, r.lanes), full = r.n / r.lanes;
    for (uint32_t c = 0, end = full; c < chunks; c = end++) { /* full ones join; what is left of the axis follows */
        kn_uop one = row_chunk(d, &r, &p, c, end);
        if (!one || !push(d, one)) return NULL;
    }
    kn_uop sum = tree(d, r.op, from);
    d->nlist = from;
    return sum;
}

/* ---- the walk ----------------------------------------------------------------------------------------------- */

static kn_uop first_part(devec *d, kn_uop u, affine *aff) {
    uint32_t i = d->first[d->at[u->id]];
    return *aff = d->aff[i], written(d, i);
}

static kn_uop value_part(devec *d, kn_uop u, const place *p, affine *aff) {
    switch ((kn_op)u->op) {
    case KN_RESHAPE:
        if (ki_numel(u) == 1 && u->src[0]->op != KN_STACK) return first_part(d, u->src[0], aff);
        return list_part(d, u, p);
    case KN_STACK: return list_part(d, u, p);
    case KN_EXPAND: {
        uint32_t i = part_at(d, u->src[0], p);
        return *aff = d->aff[i], written(d, i);
    }
    case KN_INDEX: return index_part(d, u, p);
    case KN_PERMUTE: return moved_part(d, u, p);
    case KN_INS: return elementwise_part(d, u, p, aff);
    case KN_LOAD: return access_part(d, u, p);
    case KN_REDUCE: return reduce_part(d, u, p);
    case KN_BITCAST:
        if (ki_itemsize((kn_dtype)u->dtype) != ki_itemsize((kn_dtype)u->src[0]->dtype))
            return fail(d, u, "a bitcast between widths");
        return elementwise_part(d, u, p, aff);
    case KN_AFTER: {
        uint32_t from = d->nlist;
        if (!push(d, written(d, part_at(d, u->src[0], p))) || !push_sources(d, u, 1)) return NULL;
        kn_uop r = ki_opn(d->ir, KN_AFTER, d->list + from, d->nlist - from);
        d->nlist = from;
        return r;
    }
    default: break;
    }
    return ki_is_elementwise((kn_op)u->op) ? elementwise_part(d, u, p, aff) : fail(d, u, "not an op on lanes");
}

/* STORE in parts, one GROUP of them. */
static kn_uop store(devec *d, kn_uop u) {
    kn_uop to = u->src[0];
    uint32_t n = d->count[d->at[to->id]], from = d->nlist;
    for (uint32_t k = 0; k < n; k++) {
        place p = place_of(d, to, k);
        if (!push(d, access_part(d, u, &p))) return NULL;
    }
    kn_uop r = n == 1 ? d->list[from] : ki_opn(d->ir, KN_GROUP, d->list + from, n);
    d->nlist = from;
    return r;
}

/* What has no lanes: the same node over the new sources. */
static kn_uop rebuild(devec *d, kn_uop u) {
    uint32_t from = d->nlist;
    if (u->op == KN_RANGE && u->arg.range.axis == KN_AX_THREAD) {
        kn_uop bound = written(d, d->first[d->at[u->src[0]->id]]);
        return ki_str_op(d->ir, KN_SPECIAL, KN_VOID, "thread", 6, &bound, 1);
    }
    if (u->nsrc == 0 || u->op == KN_PARAM) return u; /* a PARAM's source is its shape */
    if (!push_sources(d, u, 0)) return NULL;
    if (u->op == KN_END) { /* a thread is no loop */
        uint32_t m = from + 1;
        for (uint32_t k = from + 1; k < d->nlist; k++)
            if (d->list[k]->op == KN_RANGE) d->list[m++] = d->list[k];
        d->nlist = m;
    }
    kn_uop r;
    if (u->op == KN_END && d->nlist - from == 1) r = d->list[from];
    else r = ki_with_srcs(d->ir, u, d->list + from, d->nlist - from);
    d->nlist = from;
    return r;
}

static bool scalar_node(devec *d, kn_uop u, uint32_t i) {
    place zero = {{0}};
    affine aff = ki_rank(u) == 0 ? affine_part(d, u, &zero) : (affine){0};
    kn_uop r = NULL;
    if (aff.ok) return d->aff[d->first[i]] = aff, d->part[d->first[i]] = NULL, true;
    if (u->op == KN_STORE) r = store(d, u);
    else if (u->op == KN_REDUCE)
        r = u->nsrc == 1 && u->arg.reduce.axes == 0 ? first_part(d, u->src[0], &aff)
                                                    : fail(d, u, "a reduce over ranges");
    else if (u->op == KN_RESHAPE && ki_rank(u) == 0) r = first_part(d, u->src[0], &aff);
    else if (u->op == KN_LOAD && u->nsrc > 2) r = access_part(d, u, &zero);
    else if (u->op == KN_INDEX && ki_is_const_list(u->src[0]) && u->nsrc == 2) r = index_part(d, u, &zero);
    else if (ki_is_elementwise((kn_op)u->op) || u->op == KN_INS) r = elementwise_part(d, u, &zero, &aff);
    else r = rebuild(d, u);
    if (!r) return false;
    if (!aff.ok && r->dtype == KN_IDX && ki_rank(r) == 0) aff = plain(r);
    d->part[d->first[i]] = r;
    d->aff[d->first[i]] = aff;
    return true;
}

/* The next part's, row-major. */
static void step_place(const devec *d, const uint32_t *ext, place *p) {
    for (unsigned k = d->l.rank; k-- > 0;) {
        if (++p->c[k] < ext[k]) return;
        p->c[k] = 0;
    }
}

static bool lanes_node(devec *d, kn_uop u, uint32_t i) {
    uint32_t *ext = d->ext + (size_t)i * d->l.rank;
    for (unsigned k = 0; k < d->l.rank; k++) ext[k] = extent(d, u, k);
    place p = {{0}};
    for (uint32_t k = 0; k < d->count[i]; k++, step_place(d, ext, &p)) {
        affine aff = affine_part(d, u, &p);
        kn_uop r = aff.ok ? NULL : value_part(d, u, &p, &aff);
        if (!r && !aff.ok) return false;
        d->part[d->first[i] + k] = r;
        d->aff[d->first[i] + k] = aff;
    }
    return true;
}

static bool node_parts(devec *d, uint32_t i) {
    kn_uop u = d->node[i];
    uint32_t n = part_count(d, u);
    if (!room(d, n)) return false;
    d->first[i] = d->npart;
    d->count[i] = n;
    d->npart += n;
    uint32_t since = d->ir->n;
    bool ok = is_lanes(d, u) ? lanes_node(d, u, i) : scalar_node(d, u, i);
    ki_made_for(d->ir, u, since);
    return ok;
}

static bool walk(devec *d) {
    if (!ki_find_lanes(d->ir, d->t, d->node, d->n, d->at, &d->l)) return false;
    d->first = ki_calloc(d->n, sizeof *d->first);
    d->count = ki_calloc(d->n, sizeof *d->count);
    d->ext = ki_calloc((size_t)d->n * d->l.rank + 1, sizeof *d->ext);
    bool regs = d->l.vectors != 0;
    if (regs) d->relay = ki_calloc(d->n, 1), d->relaid = ki_calloc((size_t)d->n * d->l.rank, sizeof *d->relaid);
    if (!d->first || !d->count || !d->ext || (regs && (!d->relay || !d->relaid)))
        return ki_fail(d->ir->env, KI_E_NOMEM), false;
    /* Where a REG element sits is decided before the first access is written. */
    for (uint32_t i = 0; i < d->n && regs; i++) {
        kn_uop u = d->node[i];
        if (u->op == KN_INDEX && u->nsrc == 2 && ki_is_storage(u->src[0])) note_reg(d, u);
    }
    for (uint32_t i = 0; i < d->n; i++)
        if (!node_parts(d, i)) return false;
    return true;
}

kn_uop ki_devectorize(ki_ir *ir, const ki_target *t, kn_uop sink) {
    devec d = {.ir = ir, .t = t};
    kn_uop result = NULL;
    int64_t n = ki_toposort(ir, &sink, 1, &d.node);
    if (n < 0) return NULL;
    d.n = (uint32_t)n;
    d.at = ki_calloc((size_t)sink->id + 1, sizeof *d.at);
    if (!d.at) ki_fail(ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; d.at && i < d.n; i++) d.at[d.node[i]->id] = i;
    if (d.at && walk(&d)) result = written(&d, d.first[d.n - 1]);
    ki_free(d.node), ki_free(d.at), ki_free(d.l.coef), ki_free(d.l.odd), ki_free(d.first), ki_free(d.count),
        ki_free(d.ext);
    ki_free(d.part), ki_free(d.aff), ki_free(d.list), ki_free(d.relaid), ki_free(d.relay);
    return result;
}
