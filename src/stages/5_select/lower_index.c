/* lower_index.c: dtype index becomes i64, or i32 where it is a vector whose every step fits.
 *
 * RANGE, SPECIAL and variables stay of dtype index (their ops say so) and are cast where they are read; bounds of
 * ranges stay too. A scalar is i64: addresses are 64 bits wide. A vector that is read as a value (a mask, a cast, a
 * gather) is i32 if its bounds and those of all it is made of fit, for twice the lanes; one that is only the tail of an
 * address, base + STACK(0, 1, ...), stays i64 and costs nothing. Division and remainder of what is never negative by a
 * power of two become shift and mask on the way.
 *
 * For native targets scalars stay of dtype index, the domain of general registers, and so do tails of addresses; only
 * vectors read as values are lowered, over casts of the scalars they are made from. A cast to data is one to i32 or i64,
 * which is a transfer between registers, and from there to what is wanted. Memory of dtype index holds i64 there: what is
 * loaded from it is data, cast like any other. */
#include "ir/history.h"
#include "rules/given.h"
#include "rules/indexmath.h"
#include "stages/5_select/select.h"

typedef struct lower {
    ki_ir *ir;
    bool native;
    kn_uop *node;
    uint32_t n;
    uint32_t *at;
    uint8_t *want;   /* node index: bit 0 as i64, bit 1 as i32, bit 2 as itself */
    uint8_t *fits;   /* node index: all of it fits i32 */
    uint16_t *depth; /* node index: the innermost loop it is made anew in, numbered outside in; once somebody asks */
    bool deep;       /* somebody has */
    kn_uop *as[3];   /* node index: i64, i32, itself */
    kn_uop *src;
} lower;
enum { W64 = 1, W32 = 2, SELF = 4 };

static bool is_leaf(kn_uop u) {
    return u->op == KN_RANGE || u->op == KN_SPECIAL || u->op == KN_PARAM || u->op == KN_LOAD || u->op == KN_INDEX ||
           u->op == KN_BUFFER;
}

/* Elementwise, list or passage of dtype index. */
static bool is_index(kn_uop u) { return u->dtype == KN_IDX && !is_leaf(u) && u->op != KN_INVALID; }

/* A scalar that stays as it is, and is transferred where a vector is made of it. */
static bool is_general(const lower *l, kn_uop u) { return l->native && u->dtype == KN_IDX && ki_rank(u) == 0; }

static void find_fits(lower *l) {
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->node[i];
        if (u->dtype != KN_IDX) continue;
        bool ok = u->lo.i >= INT32_MIN && u->hi.i <= INT32_MAX, steps = is_index(u) && !is_general(l, u);
        for (uint32_t k = 0; k < u->nsrc && ok && steps; k++)
            ok = u->src[k]->dtype != KN_IDX || l->fits[l->at[u->src[k]->id]];
        l->fits[i] = ok;
    }
}

/* base + STACK(constants), or the list alone; where all of these are 0, base as often as there are lanes. */
static bool is_address_tail(kn_uop i) {
    if (i->op == KN_ADD) {
        if (ki_rank(i->src[0]) && ki_rank(i->src[1])) return false;
        i = ki_rank(i->src[0]) ? i->src[0] : i->src[1];
    }
    if (i->op != KN_STACK) return false;
    bool same = true;
    for (uint32_t k = 0; k < i->nsrc && same; k++) same = i->src[k] == i->src[0];
    for (uint32_t k = 0; k < i->nsrc && !same; k++)
        if (!ki_is_const(i->src[k])) return false;
    return true;
}

static bool in_memory(kn_uop u) {
    return u->op == KN_BUFFER || u->op == KN_PARAM || u->op == KN_AFTER || u->op == KN_SLICE;
}

/* What was loaded, or a lane of a vector. */
static bool is_value(kn_uop u) { return u->op == KN_LOAD || (u->op == KN_INDEX && !in_memory(u->src[0])); }

/* Memory, an address in it, a value: over sources that are i64 already, i64. NULL: u is none of that. */
static kn_uop as_words(lower *l, kn_uop u) {
    bool memory = u->op == KN_BUFFER || (u->op == KN_PARAM && u->nsrc);
    bool within = u->op == KN_AFTER || u->op == KN_INDEX || u->op == KN_SLICE || u->op == KN_LOAD;
    if (u->op == KN_PARAM && memory) {
        const ki_param *p = u->arg.param;
        const int64_t bounds[] = {p->lo, p->hi};
        return ki_param_make(l->ir, p->slot, KN_I64, (kn_addrspace)p->addrspace, p->device, p->len ? p->name : NULL,
                             p->bounded ? bounds : NULL, l->src[0]);
    }
    if (memory) {
        const ki_buffer *b = u->arg.buffer;
        return ki_buffer_make(l->ir, b->id, b->size, KN_I64, (kn_addrspace)b->addrspace, b->device);
    }
    if (!within || l->src[0]->dtype != KN_I64) return NULL;
    return ki_make(l->ir, (kn_op)u->op, KN_I64, l->src, u->nsrc, u->arg, u->tag);
}

/* Does u take this source as data? */
static bool is_data(kn_uop u, uint32_t k) {
    if (u->op == KN_INDEX) return k == 0 && is_value(u);
    return k == 1 && (u->op == KN_STORE || u->op == KN_ATOMICADD || u->op == KN_LOAD);
}

/* How user u wants its source k, when that is of dtype index. */
static uint8_t wanted(const lower *l, kn_uop u, uint32_t k, uint8_t mine) {
    kn_uop s = u->src[k];
    if (l->native && is_data(u, k)) return W64;
    if (u->op == KN_RANGE || u->op == KN_SPECIAL || u->op == KN_PARAM || u->op == KN_AFTER || u->op == KN_END)
        return SELF;
    if (u->dtype == KN_IDX && is_leaf(u) && !(u->op == KN_INDEX && k > 0)) return SELF;
    if (is_index(u)) return mine;
    if (u->op == KN_STORE || u->op == KN_LOAD || u->op == KN_ATOMICADD) return SELF;
    if (l->native && (u->op == KN_INDEX ? ki_rank(s) == 0 || is_address_tail(s) : ki_rank(u) == 0)) return SELF;
    if (u->op == KN_INDEX && (ki_rank(s) == 0 || is_address_tail(s))) return W64;
    bool vector = ki_rank(u) > 0;
    for (uint32_t j = 0; j < u->nsrc && vector; j++)
        vector = u->src[j]->dtype != KN_IDX || l->fits[l->at[u->src[j]->id]];
    return vector && ki_rank(u) ? W32 : W64;
}

static void find_wants(lower *l) {
    for (uint32_t i = l->n; i-- > 0;) {
        kn_uop u = l->node[i];
        if (i + 1 == l->n) l->want[i] = SELF;
        for (uint32_t k = 0; k < u->nsrc; k++) {
            uint8_t *w = &l->want[l->at[u->src[k]->id]];
            bool whole = u->src[k]->dtype != KN_IDX || is_general(l, u->src[k]);
            *w |= whole ? SELF : wanted(l, u, k, l->want[i]);
        }
    }
}

static bool is_pow2(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

/* A source at a width. */
static kn_uop at_width(const lower *l, kn_uop s, uint8_t w) {
    kn_dtype t = w & W64 ? KN_I64 : KN_I32;
    kn_uop self = l->as[2][l->at[s->id]];
    if (s->dtype != KN_IDX || w & SELF) return self;
    if (!is_general(l, s)) return l->as[w & W64 ? 0 : 1][l->at[s->id]];
    return ki_is_const(s) ? ki_const_int(l->ir, t, s->arg.i) : ki_cast(l->ir, self, t);
}

/* Division and remainder by a power of two over the new sources, NULL: u is no such thing. */
static kn_uop by_power(lower *l, kn_uop u, kn_dtype t) {
    if ((u->op != KN_IDIV && u->op != KN_MOD) || u->src[0]->lo.i < 0 || !ki_is_const(u->src[1])) return NULL;
    int64_t c = u->src[1]->arg.i;
    if (!is_pow2(c)) return NULL;
    if (u->op == KN_MOD) return ki_op2(l->ir, KN_AND, l->src[0], ki_const_int(l->ir, t, c - 1));
    return ki_op2(l->ir, KN_SHR, l->src[0], ki_const_int(l->ir, t, ki_ctz64((uint64_t)c)));
}

/* u is (x + c) + STACK(constants), and x as well as each constant + c fits t. */
static bool is_far(const lower *l, kn_uop u, kn_dtype t, kn_uop *x, kn_uop *tail, int64_t *c) {
    if (!l->native || u->op != KN_ADD || !is_address_tail(u)) return false;
    unsigned k = ki_rank(u->src[0]) ? 1 : 0;
    kn_uop base = u->src[k];
    if (ki_rank(base) || base->op != KN_ADD || !ki_is_const(base->src[1])) return false;
    *x = base->src[0], *tail = u->src[1 - k], *c = base->src[1]->arg.i;
    bool ok = t == KN_I64 || l->fits[l->at[(*x)->id]];
    for (uint32_t i = 0; i < (*tail)->nsrc && ok; i++) {
        int64_t v;
        ok = !ki_add_overflow((*tail)->src[i]->arg.i, *c, &v) && (t == KN_I64 || (v >= INT32_MIN && v <= INT32_MAX));
    }
    return ok;
}

/* One node of dtype index at a width, its sources at that width. */
static kn_uop make_at(lower *l, kn_uop u, uint8_t w) {
    kn_dtype t = w == W64 ? KN_I64 : KN_I32;
    if (ki_is_const(u)) return ki_const_int(l->ir, t, u->arg.i);
    if (is_leaf(u)) {
        kn_uop self = l->as[2][l->at[u->id]];
        return ki_cast(l->ir, l->native && is_value(u) && self->op == KN_CAST ? self->src[0] : self, t);
    }
    if (u->op == KN_CAST) return ki_cast(l->ir, l->as[2][l->at[u->src[0]->id]], t);
    kn_uop x, tail;
    int64_t c;
    if (is_far(l, u, t, &x, &tail, &c)) { /* as x + STACK(constants + c): vectors c apart share the transfer of x */
        for (uint32_t i = 0; i < tail->nsrc; i++) l->src[i] = ki_const_int(l->ir, t, tail->src[i]->arg.i + c);
        return ki_op2(l->ir, KN_ADD, at_width(l, x, w), ki_opn(l->ir, KN_STACK, l->src, tail->nsrc));
    }
    for (uint32_t k = 0; k < u->nsrc; k++) l->src[k] = at_width(l, u->src[k], w);
    kn_uop v = by_power(l, u, t);
    if (!v && l->native && w == W32 && ki_divides_near(u)) /* says so where bounds of what is lowered do not */
        l->src[0] = ki_op2(l->ir, KN_AND, l->src[0], ki_const_int(l->ir, t, KI_NEAR - 1));
    return v ? v : ki_make(l->ir, (kn_op)u->op, t, l->src, u->nsrc, u->arg, u->tag);
}

/* The ENDs of loops around others are met first from the end. */
static void find_depths(lower *l) {
    uint16_t next = 0;
    l->deep = true;
    for (uint32_t i = l->n; i-- > 0;)
        for (uint32_t k = 1; l->node[i]->op == KN_END && k < l->node[i]->nsrc; k++) {
            uint16_t *d = &l->depth[l->at[l->node[i]->src[k]->id]];
            if (!*d && next < UINT16_MAX) *d = ++next;
        }
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t k = 0; l->node[i]->op != KN_RANGE && k < l->node[i]->nsrc; k++) {
            uint16_t d = l->depth[l->at[l->node[i]->src[k]->id]];
            if (d > l->depth[i]) l->depth[i] = d;
        }
}

/* The parts of a conjunction of masks, what is known outside first: the rest of it stays there. 0: u is none. */
static unsigned outside_in(lower *l, kn_uop u, kn_uop *part) {
    unsigned n = l->native && u->op == KN_AND && u->dtype == KN_BOOL && ki_rank(u) ? ki_conjuncts(u, part) : 0;
    if (n > 1 && !l->deep) find_depths(l);
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j > 0 && l->depth[l->at[part[j]->id]] < l->depth[l->at[part[j - 1]->id]]; j--) {
            kn_uop t = part[j];
            part[j] = part[j - 1];
            part[j - 1] = t;
        }
    return n;
}

/* Is u x + y < c, or y - x < c, of a scalar x, lanes y and a constant? */
static bool counts(const lower *l, kn_uop u, kn_uop *x, kn_uop *y, bool *less) {
    kn_uop sum = u->op == KN_CMPLT ? u->src[0] : NULL;
    if (!l->native || !sum || sum->op != KN_ADD || sum->dtype != KN_IDX || !ki_is_const(u->src[1])) return false;
    unsigned k = ki_rank(sum->src[0]) ? 1 : 0;
    *x = sum->src[k], *y = sum->src[1 - k];
    *less = (*x)->op == KN_MUL && ki_is_const_int((*x)->src[1], -1);
    if (*less) *x = (*x)->src[0];
    return !ki_rank(*x) && ki_rank(*y);
}

/* A node as itself, over its sources as it wants them. A scalar of dtype index becomes data by a transfer to i32 or i64. */
static kn_uop make_self(lower *l, kn_uop u, uint8_t mine) {
    kn_uop part[KI_MAX_TERMS], all = NULL, x, y;
    unsigned n = outside_in(l, u, part);
    for (unsigned i = 0; i < n; i++) {
        kn_uop p = l->as[2][l->at[part[i]->id]];
        all = all ? ki_op2(l->ir, KN_AND, all, p) : p;
    }
    if (n) return all;
    bool less;
    if (counts(l, u, &x, &y, &less)) { /* y < c - x: what is left for the lanes to do is the comparison */
        kn_uop c = u->src[1], left = l->as[2][l->at[x->id]];
        bool narrow = wanted(l, u, 0, SELF) == W32;
        if (!less || c->arg.i) left = ki_op2(l->ir, less ? KN_ADD : KN_SUB, less ? left : c, less ? c : left);
        if (left && (!narrow || (left->lo.i >= INT32_MIN && left->hi.i <= INT32_MAX)))
            return ki_op2(l->ir, KN_CMPLT, at_width(l, y, narrow ? W32 : W64),
                          ki_cast(l->ir, left, narrow ? KN_I32 : KN_I64));
    }
    for (uint32_t k = 0; k < u->nsrc; k++)
        l->src[k] = at_width(l, u->src[k], u->src[k]->dtype != KN_IDX ? SELF : wanted(l, u, k, mine));
    kn_uop words = l->native && u->dtype == KN_IDX ? as_words(l, u) : NULL;
    if (words) return is_value(u) ? ki_cast(l->ir, words, KN_IDX) : words;
    kn_dtype to = (kn_dtype)u->dtype;
    if (l->native && u->op == KN_CAST && to != KN_IDX && is_general(l, u->src[0])) {
        if (to == KN_BOOL) return ki_op2(l->ir, KN_CMPNE, l->src[0], ki_const_int(l->ir, KN_IDX, 0));
        bool narrow = ki_is_float(to) ? l->fits[l->at[u->src[0]->id]] : ki_dtypes[to].bits <= 32;
        return ki_cast(l->ir, ki_cast(l->ir, l->src[0], narrow ? KN_I32 : KN_I64), to);
    }
    if (u->op == KN_CAST)
        return ki_cast(l->ir, l->src[0], (kn_dtype)u->dtype); /* none where the lowered dtype is wanted */
    kn_uop v = is_general(l, u) ? by_power(l, u, KN_IDX) : NULL;
    return v ? v : ki_with_src(l->ir, u, l->src);
}

/* Nothing of dtype index in it is wanted at a width, nor in what it is made of. */
static bool stays(const lower *l, uint32_t i) {
    kn_uop u = l->node[i];
    bool index = u->dtype == KN_IDX && (is_leaf(u) || u->op == KN_AFTER || u->op == KN_SLICE);
    if (!l->native || l->want[i] != SELF || index || u->op == KN_CAST || u->op == KN_IDIV || u->op == KN_MOD)
        return false;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t s = l->at[u->src[k]->id];
        if (l->as[2][s] != u->src[k] || l->want[s] & (W64 | W32)) return false;
    }
    return true;
}

static kn_uop run(lower *l) {
    find_fits(l);
    find_wants(l);
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->node[i];
        uint8_t w = l->want[i];
        if (stays(l, i)) {
            l->as[2][i] = u;
            continue;
        }
        uint32_t since = l->ir->n;
        bool leaf = u->dtype == KN_IDX && is_leaf(u);
        if ((w & SELF || leaf || u->op == KN_CONST) && !(l->as[2][i] = make_self(l, u, SELF))) return NULL;
        bool index = u->dtype == KN_IDX;
        if (index && w & W64 && !(l->as[0][i] = make_at(l, u, W64))) return NULL;
        if (index && w & W32 && !(l->as[1][i] = make_at(l, u, W32))) return NULL;
        ki_made_for(l->ir, u, since);
    }
    return l->as[2][l->n - 1];
}

kn_uop ki_lower_index(ki_ir *ir, const ki_target *t, kn_uop sink) {
    lower l = {.ir = ir, .native = t->native};
    int64_t n = ki_toposort(ir, &sink, 1, &l.node);
    if (n < 0) return NULL;
    l.n = (uint32_t)n;
    l.at = ki_calloc((size_t)sink->id + 1, sizeof *l.at);
    uint32_t most = 1;
    for (uint32_t i = 0; i < l.n && l.at; i++) {
        l.at[l.node[i]->id] = i;
        if (l.node[i]->nsrc > most) most = l.node[i]->nsrc;
    }
    /* One block for all that is told of nodes. */
    l.as[0] = ki_calloc(((size_t)3 * l.n + most) * sizeof *l.src + (size_t)l.n * (sizeof *l.depth + 2), 1);
    kn_uop r = NULL;
    if (l.at && l.as[0]) {
        for (int k = 1; k < 3; k++) l.as[k] = l.as[k - 1] + l.n;
        l.src = l.as[2] + l.n;
        l.depth = (void *)(l.src + most);
        l.want = (void *)(l.depth + l.n);
        l.fits = l.want + l.n;
        r = run(&l);
    } else {
        ki_fail(ir->env, KI_E_NOMEM);
    }
    ki_free(l.node), ki_free(l.at), ki_free(l.as[0]);
    return r;
}
