/* prove_gen.c: graphs for proof by execution. A pattern is made bottom-up with random shapes, args and leaves; leaves
 * prefer what rules care about: loop variables, reads of memory that depend on them, small constants, linear forms.
 * What does not fit (shapes that cannot meet) gives NULL, and the caller tries again. */
#include "rules/prove_gen.h"

#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the place wants: a shape, a tensor of any shape, an index below a limit. */
typedef struct want {
    bool shaped, tensor, memory;
    unsigned rank;
    int64_t dim[KI_MAX_RANK];
    int64_t limit;
} want;
static const want anything;

static uint32_t roll(ki_gen *g, uint32_t n) { return (uint32_t)(ki_mix(g->state += UINT64_C(0x9e3779b97f4a7c15)) % n); }

static kn_uop param(ki_gen *g, kn_dtype t, const int64_t *dim, unsigned rank, int64_t lo, int64_t hi) {
    char name[24];
    int64_t b[2] = {lo, hi};
    snprintf(name, sizeof name, "v%u", g->serial++);
    return ki_param_make(g->ir, -1, t, KN_GLOBAL, 0, name, lo <= hi ? b : NULL,
                         rank ? ki_shape_src(g->ir, dim, rank) : NULL);
}

/* ---- leaves ------------------------------------------------------------------------------------------------ */

static kn_uop loop(ki_gen *g, int64_t limit) {
    for (unsigned tries = 0; tries < 4 && g->nrange; tries++) {
        kn_uop r = g->range[roll(g, g->nrange)];
        if (!limit || r->hi.i < limit) return r;
    }
    return NULL;
}

static kn_uop scaled(ki_gen *g, int64_t limit) {
    kn_uop v = roll(g, 3) ? loop(g, limit) : NULL;
    int64_t top = limit ? limit : 2 + roll(g, 12);
    if (!v) v = param(g, KN_IDX, NULL, 0, !limit && roll(g, 4) == 0 ? -6 : 0, top - 1);
    return v;
}

/* An index; below the limit if there is one, else a linear form of a few terms. */
static kn_uop index_leaf(ki_gen *g, int64_t limit) {
    ki_ir *ir = g->ir;
    if (limit) {
        if (roll(g, 4) == 0) return ki_index(ir, roll(g, (uint32_t)limit));
        kn_uop i = scaled(g, limit);
        if (roll(g, 5)) return i;
        kn_uop c = ki_op2(ir, KN_CMPLT, scaled(g, 0), ki_index(ir, 1 + roll(g, 5)));
        return ki_op3(ir, KN_WHERE, c, i, ki_op0(ir, KN_INVALID));
    }
    kn_uop sum = scaled(g, 0);
    unsigned n = roll(g, 3);
    if (roll(g, 2)) sum = ki_op2(ir, KN_MUL, sum, ki_index(ir, 1 + roll(g, 6)));
    for (unsigned k = 0; k < n; k++) {
        kn_uop t = scaled(g, 0);
        if (roll(g, 2)) t = ki_op2(ir, KN_MUL, t, ki_index(ir, 2 + roll(g, 6)));
        if (roll(g, 6) == 0) t = ki_op2(ir, roll(g, 2) ? KN_MOD : KN_IDIV, t, ki_index(ir, 1 + roll(g, 4)));
        sum = ki_op2(ir, KN_ADD, sum, t);
    }
    return roll(g, 3) ? sum : ki_op2(ir, KN_ADD, sum, ki_index(ir, (int64_t)roll(g, 9) - 4));
}

static kn_uop constant(ki_gen *g, kn_dtype t) {
    static const int8_t some[] = {0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 12, -1, -2, -3};
    if (t == KN_BOOL) return ki_const_int(g->ir, t, roll(g, 2));
    if (ki_is_float(t) && roll(g, 4) == 0) return ki_const_float(g->ir, t, -0.0);
    return ki_const_int(g->ir, t, ki_is_uint(t) ? (int64_t)roll(g, 9) : some[roll(g, 14)]);
}

/* A scalar: a variable, a read that depends on the loops, a condition on them, a constant. */
static kn_uop scalar_leaf(ki_gen *g, kn_dtype t) {
    ki_ir *ir = g->ir;
    if (t == KN_IDX) return index_leaf(g, 0);
    if (t == KN_BOOL && g->nrange && roll(g, 2)) {
        static const uint8_t compare[] = {KN_CMPLT, KN_CMPLT, KN_CMPLT, KN_CMPNE, KN_CMPEQ};
        kn_uop a = roll(g, 2) ? loop(g, 0) : scaled(g, 0), b = roll(g, 2) ? scaled(g, 0) : ki_index(ir, roll(g, 5));
        bool turn = roll(g, 4) == 0;
        kn_uop c = ki_op2(ir, (kn_op)compare[roll(g, 5)], turn ? b : a, turn ? a : b);
        if (roll(g, 4) == 0) c = ki_op1(ir, KN_NOT, c);
        if (roll(g, 5) == 0)
            c = ki_op2(ir, KN_AND, c, ki_op2(ir, KN_CMPLT, scaled(g, 0), ki_index(ir, 1 + roll(g, 5))));
        return g->cond = c;
    }
    if (!g->smooth && roll(g, 3) == 0) return constant(g, t);
    if (!g->nrange || roll(g, 4) == 0) return param(g, t, NULL, 0, 1, 0);
    int64_t size = 0, dim;
    kn_uop at = NULL;
    for (unsigned k = 0; k < g->nrange; k++) {
        if (roll(g, 4) == 0) continue;
        kn_uop step = ki_op2(ir, KN_MUL, g->range[k], ki_index(ir, size + 1));
        at = at ? ki_op2(ir, KN_ADD, at, step) : step;
        size += g->range[k]->hi.i * (size + 1);
    }
    if (at && g->cond && roll(g, 3) == 0) at = ki_op3(ir, KN_WHERE, g->cond, at, ki_op0(ir, KN_INVALID));
    dim = size + 1;
    kn_uop mem = param(g, t, &dim, 1, 1, 0);
    return at ? ki_op2(ir, KN_INDEX, mem, at) : param(g, t, NULL, 0, 1, 0);
}

static kn_uop tensor_leaf(ki_gen *g, kn_dtype t, const want *w) {
    int64_t dim[3];
    unsigned rank = w->shaped ? w->rank : 1 + roll(g, 3);
    const int64_t *d = w->shaped ? w->dim : dim;
    for (unsigned k = 0; !w->shaped && k < rank; k++) dim[k] = 1 + roll(g, 4);
    if (g->large && !w->shaped)
        rank = 2, dim[0] = 1 + roll(g, 2), dim[1] = 65536 + 1024 * (int64_t)roll(g, 32) + (roll(g, 2) ? 0 : 15);
    if (!w->memory && !g->smooth && roll(g, 8) == 0) {
        int64_t ones[KI_MAX_RANK];
        for (unsigned k = 0; k < rank; k++) ones[k] = 1;
        return ki_expand(g->ir, ki_reshape(g->ir, constant(g, t), ones, rank), d, rank);
    }
    kn_uop u = t == KN_IDX ? param(g, t, d, rank, 0, 7) : param(g, t, d, rank, 1, 0);
    if (!w->memory && !g->smooth && g->nrange && t != KN_IDX && t != KN_BOOL && roll(g, 3) == 0)
        return ki_op2(g->ir, roll(g, 2) ? KN_ADD : KN_MUL, u, scalar_leaf(g, t)); /* differs by loop as well */
    return w->memory && roll(g, 5) == 0 ? ki_op1(g->ir, KN_CONTIGUOUS, u) : u;
}

static kn_uop leaf(ki_gen *g, kn_dtype t, const want *w) {
    if (t == KN_VOID) return g->why = "an effect", NULL;
    if ((w->shaped && w->rank) || w->tensor) {
        if (w->limit && t == KN_IDX && w->rank == 1) { /* a shaped index */
            kn_uop s[KI_MAX_RANK];
            for (int64_t k = 0; k < w->dim[0]; k++) s[k] = ki_index(g->ir, roll(g, (uint32_t)w->limit));
            return ki_opn(g->ir, KN_STACK, s, (uint32_t)w->dim[0]);
        }
        return tensor_leaf(g, t, w);
    }
    return w->limit && t == KN_IDX ? index_leaf(g, w->limit) : scalar_leaf(g, t);
}

/* ---- nodes ------------------------------------------------------------------------------------------------- */

static kn_uop make(ki_gen *g, unsigned reg, const want *w);

static const ki_pat *pat(const ki_gen *g, unsigned reg) { return &g->set->pat[g->rule->pat + reg]; }
static kn_dtype dtype_of(const ki_gen *g, unsigned reg) {
    return (kn_dtype)g->dtype[ki_written_pats(g->set, g->rule)[reg].like];
}

/* Register of source src (from the front, or from the end), -1 none. */
static int kid(const ki_gen *g, unsigned reg, unsigned src, bool tail) {
    for (unsigned k = 1; k < g->rule->npat; k++) {
        const ki_pat *p = pat(g, k);
        if (p->parent == reg && p->src == src && !(p->flags & KI_PF_TAIL) == !tail) return (int)k;
    }
    return -1;
}

static const ki_rest *rest_of(const ki_gen *g, unsigned reg) {
    for (unsigned k = 0; k < g->rule->nrest; k++)
        if (g->set->rest[g->rule->rest + k].reg == reg) return &g->set->rest[g->rule->rest + k];
    return NULL;
}

/* A field of the arg that the pattern fixes. */
static bool fixed(const ki_gen *g, unsigned reg, ki_field f, int64_t *out) {
    const ki_pat *p = pat(g, reg);
    for (unsigned k = 0; k < p->narg; k++) {
        const ki_argcond *c = &g->set->cond[p->arg + k];
        if (c->field != f || c->none || (c->like != KI_NOREG && !g->reg[c->like])) continue;
        if (c->like == KI_NOREG) *out = g->set->number[c->at].i;
        else *out = f == KI_F_REDUCE_OP ? g->reg[c->like]->arg.reduce.op : g->reg[c->like]->arg.i;
        return true;
    }
    return false;
}

static want like(kn_uop u) {
    want w = {.shaped = true, .rank = u->type->rank};
    for (unsigned k = 0; k < w.rank; k++) w.dim[k] = u->type->dim[k].n;
    return w;
}

/* Operands share a shape: those that are patterns set it, leaves follow, now and then as a scalar. */
static kn_uop elementwise(ki_gen *g, unsigned reg, kn_op op, const want *w) {
    kn_uop src[4] = {NULL};
    want shape = *w;
    int n = ki_ops[op].least;
    shape.limit = op == KN_WHERE ? w->limit : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < n; k++) {
            int r = kid(g, reg, (unsigned)k, false);
            bool node = r >= 0 && pat(g, (unsigned)r)->kind == KI_P_NODE;
            if (src[k] || node != (pass == 0)) continue;
            want here = shape;
            if (op == KN_WHERE && k == 0) here.limit = 0;
            src[k] = r >= 0 ? make(g, (unsigned)r, &here)
                            : leaf(g, op == KN_WHERE && k == 0 ? KN_BOOL : dtype_of(g, reg), &here);
            if (!src[k]) return NULL;
            if (src[k]->type->rank && !shape.shaped) shape = like(src[k]), shape.limit = 0;
        }
    kn_dtype t = dtype_of(g, reg);
    return ki_make(g->ir, op, t, src, (uint32_t)n, (kn_arg){.bits = 0}, 0);
}

static kn_uop first_source(ki_gen *g, unsigned reg, bool tensor) {
    want w = {.tensor = tensor, .memory = pat(g, reg)->op == KN_INDEX};
    int r = kid(g, reg, 0, false);
    return r >= 0 ? make(g, (unsigned)r, &w) : leaf(g, dtype_of(g, reg), &w);
}

/* Binds the source that states a shape, made here. */
static kn_uop bind_shape(ki_gen *g, unsigned reg, unsigned src, const int64_t *dim, unsigned rank) {
    kn_uop s = ki_shape_src(g->ir, dim, rank);
    int r = kid(g, reg, src, false);
    if (r < 0) return s;
    if (pat(g, (unsigned)r)->kind != KI_P_ANY) return g->why = "a pattern inside a shape", NULL;
    if (pat(g, (unsigned)r)->same != KI_NOREG) return g->reg[pat(g, (unsigned)r)->same];
    return g->reg[r] = s;
}

static kn_uop permuted(ki_gen *g, kn_uop t) {
    int64_t p[KI_MAX_RANK];
    unsigned n = t->type->rank;
    for (unsigned k = 0; k < n; k++) p[k] = k;
    for (unsigned k = n; k > 1; k--) {
        unsigned j = roll(g, k);
        int64_t x = p[k - 1];
        p[k - 1] = p[j];
        p[j] = x;
    }
    bool same = true;
    for (unsigned k = 0; k < n; k++) same &= p[k] == (int64_t)k;
    return same ? NULL : ki_permute(g->ir, t, p, n);
}

static kn_uop movement(ki_gen *g, unsigned reg, kn_op op) {
    kn_uop t = first_source(g, reg, true), s, o;
    int64_t d[KI_MAX_RANK], off[KI_MAX_RANK];
    if (!t || t->type->symbolic) return NULL;
    unsigned n = t->type->rank;
    for (unsigned k = 0; k < n; k++) d[k] = t->type->dim[k].n, off[k] = 0;
    switch (op) {
    case KN_PERMUTE: return permuted(g, t);
    case KN_FLIP: {
        unsigned m = 0;
        for (unsigned k = 0; k < n; k++)
            if (roll(g, 2)) off[m++] = k;
        return m ? ki_flip(g->ir, t, off, m) : NULL;
    }
    case KN_RESHAPE: {
        int64_t numel = t->type->numel;
        unsigned m = 0;
        while (numel > 1 && m < 3) {
            int64_t f = m == 2 ? numel : 1 + roll(g, (uint32_t)numel);
            while (numel % f) f--;
            d[m++] = f;
            numel /= f;
        }
        if (numel > 1) return NULL;
        s = bind_shape(g, reg, 1, d, m);
        return s ? ki_op2(g->ir, op, t, s) : NULL;
    }
    case KN_EXPAND:
        for (unsigned k = 0; k < n; k++)
            if (d[k] == 1) d[k] = 1 + roll(g, 4);
        s = bind_shape(g, reg, 1, d, n);
        return s ? ki_op2(g->ir, op, t, s) : NULL;
    case KN_PAD:
    case KN_SHRINK:
        for (unsigned k = 0; k < n; k++) {
            int64_t grow = op == KN_PAD ? roll(g, 3) : -(int64_t)roll(g, (uint32_t)d[k]);
            off[k] = grow ? roll(g, (uint32_t)(grow < 0 ? -grow : grow) + 1) : 0;
            d[k] += grow;
        }
        o = bind_shape(g, reg, 1, off, n);
        s = bind_shape(g, reg, 2, d, n);
        return o && s ? ki_op3(g->ir, op, t, o, s) : NULL;
    default: return g->why = ki_ops[op].name, NULL;
    }
}

static kn_uop read_at(ki_gen *g, unsigned reg) {
    kn_uop src[KI_MAX_RANK + 1];
    unsigned n = 1;
    src[0] = first_source(g, reg, true);
    if (!src[0] || src[0]->type->symbolic) return NULL;
    bool rest = rest_of(g, reg) != NULL;
    unsigned listed = pat(g, reg)->nsrc, most = src[0]->type->rank;
    unsigned count = rest ? most : listed - 1; /* where indices are a rest, stages name every axis */
    if (count > most || count + 1 < listed) return NULL;
    for (unsigned k = 0; k < count; k++, n++) {
        int r = k + 1 < listed ? kid(g, reg, k + 1, false) : -1;
        want w = {.limit = src[0]->type->dim[k].n};
        src[n] = r >= 0 ? make(g, (unsigned)r, &w) : leaf(g, KN_IDX, &w);
        if (!src[n]) return NULL;
    }
    return ki_opn(g->ir, KN_INDEX, src, n);
}

static kn_uop stacked(ki_gen *g, unsigned reg) {
    kn_uop src[4];
    unsigned n = rest_of(g, reg) ? 1 + roll(g, 3) : pat(g, reg)->nsrc;
    want w = anything;
    if (roll(g, 2)) w.tensor = true;
    for (unsigned k = 0; k < n && n <= 4; k++) {
        int r = kid(g, reg, k, false);
        src[k] = r >= 0 ? make(g, (unsigned)r, &w) : leaf(g, dtype_of(g, reg), &w);
        if (!src[k]) return NULL;
        w = like(src[k]);
    }
    return n <= 4 ? ki_opn(g->ir, KN_STACK, src, n) : NULL;
}

/* Over loops of its own, or along axes. */
static kn_uop reduced(ki_gen *g, unsigned reg, bool tensor) {
    static const uint8_t ops[] = {KN_ADD, KN_ADD, KN_MAX, KN_MUL};
    bool loops = rest_of(g, reg) && roll(g, g->rule->nrest > 1 ? 6 : 3), ranges = loops || pat(g, reg)->nsrc > 1;
    int64_t op = ops[roll(g, 4)], axes = 0;
    kn_uop src[4];
    unsigned n = 1, own = ranges ? 1 + roll(g, 2) : 0, outer = g->nrange;
    if (pat(g, reg)->nsrc > 1) own = pat(g, reg)->nsrc - 1u;
    for (unsigned k = 0; k < own && g->nrange < 4; k++) {
        kn_uop r = ki_range_make(g->ir, g->ir->next_range, KN_AX_REDUCE, ki_index(g->ir, 2 + roll(g, 3)));
        int named = kid(g, reg, k + 1, false);
        if (named >= 0) {
            if (pat(g, (unsigned)named)->kind != KI_P_ANY) return g->why = "a pattern for a range", NULL;
            g->reg[named] = r;
        }
        g->range[g->nrange++] = src[n++] = r;
    }
    src[0] = first_source(g, reg, !ranges || tensor);
    g->nrange = outer; /* closed outside */
    if (!src[0]) return NULL;
    if (op == KN_MUL && src[0]->dtype == KN_IDX) op = KN_ADD; /* no index is a product of many */
    fixed(g, reg, KI_F_REDUCE_OP, &op);
    unsigned rank = src[0]->type->rank;
    if (!ranges) {
        if (!rank) return NULL;
        axes = 1 + roll(g, (1u << rank) - 1);
    }
    kn_arg a = {.bits = 0};
    a.reduce.op = (uint8_t)op;
    a.reduce.axes = (uint32_t)axes;
    return ki_make(g->ir, KN_REDUCE, KN_VOID, src, n, a, 0);
}

/* One of a class of ops was chosen: its operands get dtypes it takes, where the class left them apart. */
static void settle_dtypes(ki_gen *g, unsigned reg, kn_op op) {
    int first = -1;
    const ki_written_pat *written = ki_written_pats(g->set, g->rule);
    for (int k = 0; k < ki_ops[op].least; k++) {
        int r = kid(g, reg, (unsigned)k, false);
        if (r < 0 || g->reg[r]) continue;
        unsigned c = written[r].like;
        if (op == KN_WHERE && k == 0) {
            if (written[c].mask >> KN_BOOL & 1) g->dtype[c] = KN_BOOL;
        } else if (first < 0) {
            first = (int)c;
        } else if (written[c].mask >> g->dtype[first] & 1) {
            g->dtype[c] = g->dtype[first];
        }
    }
}

/* load(place, alternative, gate) of one element. */
static kn_uop gated_load(ki_gen *g, unsigned reg) {
    int place = kid(g, reg, 0, false), other = kid(g, reg, 1, false), gate = kid(g, reg, 2, false);
    int64_t n = 2 + roll(g, 6);
    if (place < 0 || other < 0 || gate < 0 || pat(g, (unsigned)place)->kind != KI_P_ANY) return NULL;
    kn_uop memory = param(g, dtype_of(g, reg), &n, 1, 1, 0);
    kn_uop src[3] = {ki_op2(g->ir, KN_INDEX, memory, scaled(g, n)), make(g, (unsigned)other, &anything),
                     make(g, (unsigned)gate, &anything)};
    g->reg[place] = src[0];
    return src[1] && src[2] && !src[1]->type->rank && !src[2]->type->rank
               ? ki_make(g->ir, KN_LOAD, KN_VOID, src, 3, (kn_arg){.bits = 0}, 0)
               : NULL;
}

/* Elements first .. first + n - 1 beside each other, as x:u32 of `x | y << 16`; lanes: of more than one, two, some way apart. */
static kn_uop neighbours(ki_gen *g, kn_uop memory, kn_uop at, unsigned first, unsigned n, int64_t apart) {
    kn_dtype t = (kn_dtype)memory->dtype;
    kn_uop all = NULL;
    for (unsigned k = first; k < first + n; k++) {
        kn_uop lane[2] = {ki_index(g->ir, k), ki_index(g->ir, k + apart)}, i = at;
        if (apart) i = ki_op2(g->ir, KN_ADD, at, ki_opn(g->ir, KN_STACK, lane, 2));
        else if (k) i = ki_op2(g->ir, KN_ADD, at, lane[0]);
        kn_uop e = ki_op1(g->ir, KN_LOAD, ki_op2(g->ir, KN_INDEX, memory, i));
        e = ki_cast(g->ir, ki_bitcast(g->ir, e, t == KN_BF16 ? KN_U16 : KN_U8), KN_U32);
        if (all) e = ki_op2(g->ir, KN_SHL, e, ki_const_int(g->ir, KN_U32, 8));
        all = all ? ki_op2(g->ir, KN_OR, all, e) : e;
    }
    return all;
}

/* x | y << 16, a word of memory; sometimes not quite. */
static kn_uop word(ki_gen *g, unsigned reg) {
    static const uint8_t of[] = {KN_BF16, KN_I8, KN_U8};
    int x = kid(g, reg, 0, false), high = kid(g, reg, 1, false);
    if (x < 0 || high < 0 || pat(g, (unsigned)high)->op != KN_SHL || dtype_of(g, reg) != KN_U32) return NULL;
    int y = kid(g, (unsigned)high, 0, false), by = kid(g, (unsigned)high, 1, false);
    if (y < 0 || by < 0 || pat(g, (unsigned)x)->kind != KI_P_ANY || pat(g, (unsigned)y)->kind != KI_P_ANY) return NULL;
    kn_dtype t = (kn_dtype)of[roll(g, 3)];
    unsigned n = t == KN_BF16 ? 1 : 2, off = roll(g, 8) ? n : n + 1;
    int64_t size = 48, apart = roll(g, 2) ? (int64_t)roll(g, 9) : 0;
    kn_uop memory = param(g, t, &size, 1, 1, 0), at = scaled(g, 12);
    if (roll(g, 2)) at = ki_op2(g->ir, KN_ADD, at, ki_index(g->ir, 1 + roll(g, 5)));
    g->reg[x] = neighbours(g, memory, at, 0, n, apart);
    g->reg[y] = neighbours(g, memory, at, off, n, apart);
    g->reg[by] = ki_const_int(g->ir, KN_U32, 16);
    return ki_op2(g->ir, KN_OR, g->reg[x], g->reg[high] = ki_op2(g->ir, KN_SHL, g->reg[y], g->reg[by]));
}

static bool is_nan(const ki_gen *g, const ki_pat *p) {
    const ki_term *t = p->kind == KI_P_LIT ? &g->set->term[p->term] : NULL;
    return t && t->kind == KI_T_FLOAT && isnan(ki_term_real(g->set, t));
}

/* where(k, x, nan), a maximum as machine code finds it: x the greatest of two or four values, k that none of them is NaN. */
static kn_uop maximum(ki_gen *g, unsigned reg) {
    int k = kid(g, reg, 0, false), x = kid(g, reg, 1, false), nan = kid(g, reg, 2, false);
    kn_dtype t = dtype_of(g, reg);
    bool single = t == KN_F32, ok = k >= 0 && x >= 0 && nan >= 0 && (single || t == KN_F64);
    if (!ok || pat(g, (unsigned)x)->kind != KI_P_ANY || !is_nan(g, pat(g, (unsigned)nan))) return NULL;
    bool pair = pat(g, (unsigned)k)->op == KN_INS; /* the pattern names the two */
    int a = pair ? kid(g, (unsigned)k, 0, false) : -1, b = pair ? kid(g, (unsigned)k, 1, false) : -1;
    want w = {.shaped = true, .rank = 1, .dim = {5}};
    const char *row = single ? "VRANGEPS" : "VRANGEPD";
    kn_uop all = NULL, most = NULL;
    for (unsigned n = pair ? 1 : 1 + roll(g, 2); n-- > 0;) {
        kn_uop src[3] = {leaf(g, t, &w), leaf(g, t, &w), ki_const_int(g->ir, KN_I32, 7)};
        kn_uop is = ki_str_op(g->ir, KN_INS, KN_BOOL, single ? "VCMPPS_K" : "VCMPPD_K", 8, src, 3);
        if (a >= 0) g->reg[a] = src[0];
        if (b >= 0) g->reg[b] = src[1];
        src[2] = ki_const_int(g->ir, KN_I32, 5);
        kn_uop more = ki_str_op(g->ir, KN_INS, t, row, 8, src, 3);
        most = most ? ki_str_op(g->ir, KN_INS, t, row, 8, (kn_uop[]){most, more, src[2]}, 3) : more;
        all = all ? ki_op2(g->ir, KN_AND, all, is) : is;
    }
    kn_uop none = make(g, (unsigned)nan, &w);
    g->reg[k] = all, g->reg[x] = most;
    return all && most && none ? ki_op3(g->ir, KN_WHERE, all, most, none) : NULL;
}

static kn_uop node(ki_gen *g, unsigned reg, const want *w) {
    const ki_pat *p = pat(g, reg);
    unsigned op = p->op;
    for (unsigned tries = 0; op == KI_OP_COUNT && tries < 400; tries++) {
        unsigned k = roll(g, KI_OP_COUNT);
        if (ki_opset_has(&g->set->opset[p->opset], k) && k != KN_THREEFRY &&
            (rest_of(g, reg) ? p->nsrc == 0 : p->nsrc == ki_ops[k].least))
            op = k;
    }
    if (op == KI_OP_COUNT) return NULL;
    if (p->op == KI_OP_COUNT && ki_is_elementwise((kn_op)op)) settle_dtypes(g, reg, (kn_op)op);
    kn_uop greatest = op == KN_WHERE ? maximum(g, reg) : NULL;
    if (greatest) return greatest;
    if (op == KN_CAST) {
        kn_uop t = kid(g, reg, 0, false) >= 0 ? make(g, (unsigned)kid(g, reg, 0, false), w) : NULL;
        return t ? ki_make(g->ir, KN_CAST, dtype_of(g, reg), &t, 1, (kn_arg){.bits = 0}, 0) : NULL;
    }
    if (op == KN_BITCAST) {
        kn_uop t = first_source(g, reg, w->tensor || w->shaped);
        return t ? ki_make(g->ir, KN_BITCAST, dtype_of(g, reg), &t, 1, (kn_arg){.bits = 0}, 0) : NULL;
    }
    kn_uop read = op == KN_OR && pat(g, reg)->op == KN_OR ? word(g, reg) : NULL;
    if (read) return read;
    if (ki_is_elementwise((kn_op)op)) return elementwise(g, reg, (kn_op)op, w);
    switch (op) {
    case KN_INDEX: return read_at(g, reg);
    case KN_STACK: return stacked(g, reg);
    case KN_REDUCE: return reduced(g, reg, w->tensor);
    case KN_LOAD: {
        if (p->nsrc == 3) return gated_load(g, reg);
        kn_uop t = p->nsrc == 1 ? first_source(g, reg, true) : NULL;
        ki_load l = {.addrspace = KN_GLOBAL};
        const void *arg = t ? ki_intern(g->ir, &l, sizeof l) : NULL;
        return arg ? ki_make(g->ir, KN_LOAD, KN_VOID, &t, 1, (kn_arg){.p = arg}, 0) : NULL;
    }
    case KN_INVALID: return ki_op0(g->ir, KN_INVALID);
    case KN_CONTIGUOUS:
    case KN_CONTIGUOUS_BACKWARD:
    case KN_DETACH:
    case KN_REMAT: {
        kn_uop t =
            kid(g, reg, 0, false) >= 0 ? make(g, (unsigned)kid(g, reg, 0, false), w) : leaf(g, dtype_of(g, reg), w);
        return ki_op1(g->ir, (kn_op)op, t);
    }
    default: return movement(g, reg, (kn_op)op);
    }
}

static kn_uop literal(ki_gen *g, unsigned reg) {
    const ki_term *t = &g->set->term[pat(g, reg)->term];
    kn_dtype d = dtype_of(g, reg);
    if (t->kind == KI_T_FLOAT) return ki_const_float(g->ir, d, ki_term_real(g->set, t));
    return ki_const_int(g->ir, d, ki_term_int(g->set, t));
}

static kn_uop make(ki_gen *g, unsigned reg, const want *w) {
    const ki_pat *p = pat(g, reg);
    if (g->why) return NULL;
    if (p->same != KI_NOREG) reg = p->same, p = pat(g, reg);
    if (g->reg[reg] && p->kind != KI_P_NODE) return g->reg[reg];
    switch ((ki_pkind)p->kind) {
    case KI_P_ANY: g->reg[reg] = leaf(g, dtype_of(g, reg), w); break;
    case KI_P_CONST: g->reg[reg] = constant(g, dtype_of(g, reg)); break;
    case KI_P_LIT: g->reg[reg] = literal(g, reg); break;
    case KI_P_NODE: g->reg[reg] = node(g, reg, w); break;
    }
    return g->reg[reg];
}

kn_uop ki_gen_root(ki_gen *g) {
    static const uint8_t liked[] = {KN_IDX, KN_F32, KN_I32, KN_F32, KN_BOOL, KN_U8, KN_I64, KN_F16, KN_U32, KN_F64};
    const ki_written_pat *written = ki_written_pats(g->set, g->rule);
    memset(g->reg, 0, sizeof g->reg);
    g->nrange = g->serial = 0;
    g->cond = NULL;
    g->why = NULL;
    for (unsigned r = 0; r < g->rule->npat; r++) {
        uint32_t mask = written[r].mask;
        if (written[r].like != r) continue;
        g->dtype[r] = KN_VOID;
        for (unsigned tries = 0; tries < 60 && g->dtype[r] == KN_VOID; tries++) {
            unsigned t = liked[roll(g, tries < 20 ? 3 : 10)];
            if (mask >> t & 1) g->dtype[r] = (uint8_t)t;
        }
        for (unsigned t = 1; t < KI_DTYPE_COUNT && g->dtype[r] == KN_VOID; t++)
            if (mask >> t & 1) g->dtype[r] = (uint8_t)t;
    }
    for (unsigned r = 0; r < g->rule->npat && g->smooth; r++)
        if (ki_is_float((kn_dtype)g->dtype[r]) && written[r].mask >> KN_F64 & 1) g->dtype[r] = KN_F64;
    unsigned outer = g->smooth ? 0 : 1 + roll(g, 2);
    for (unsigned k = 0; k < outer; k++)
        g->range[g->nrange++] = ki_range_make(g->ir, g->ir->next_range, KN_AX_LOOP, ki_index(g->ir, 2 + roll(g, 4)));
    return make(g, 0, &anything);
}
