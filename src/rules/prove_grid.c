/* prove_grid.c: the evaluator behind proof by execution. One ascending sweep; each node holds its value at every
 * position of the grid that its RANGEs span, so a REDUCE over ranges is a fold along the grid. It knows the ops a value
 * is made of, up to reduces and reads of memory; effects it does not. */
#include "rules/prove_grid.h"

#include "base/hash.h"
#include "ir/scalar.h"

#include <math.h>
#include <string.h>

static size_t numel(kn_uop u) { return (size_t)u->type->numel; }

/* ---- data -------------------------------------------------------------------------------------------------- */

/* What decides a function's ends; of two operands all pairs. */
static const double edge[] = {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              0.5,
                              1e-3,
                              88.0,
                              -87.0,
                              1e-30,
                              3e38,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              1e-40,
                              -3e-42,
                              2.0,
                              3.0,
                              -5.0,
                              -2.5,
                              0x1.f37c8ap95 /* as near a multiple of pi / 2 as f32 comes */,
                              0x1.6ac5b262ca1ffp849 /* f64 */};
enum { NEDGE = sizeof edge / sizeof *edge };

/* One of the graph's constants or a float a few steps beside it; an integer is taken as one and as a float's bits. */
static uint64_t beside(const ki_grid *g, kn_dtype t, uint64_t h) {
    kn_uop c = g->point[h % g->npoint];
    uint64_t sign = h >> 20 & 1 ? UINT64_C(1) << (ki_dtypes[t].bits - 1) : 0, bits = c->arg.bits;
    if (ki_is_float((kn_dtype)c->dtype)) bits = ki_bits_from_f64(t, ki_f64_from_bits((kn_dtype)c->dtype, bits));
    else if (h >> 21 & 1) bits = ki_bits_from_f64(t, (double)(int64_t)bits);
    return ki_extend((bits + (h >> 32) % 7 - 3) ^ sign, ki_dtypes[t].bits, false);
}

/* Element e of what stands for floats of every kind: ends, what stands beside constants, and of the rest every third of any
 * size the dtype has, the others from 1/256 to 64. */
static uint64_t wild(const ki_grid *g, kn_uop u, uint64_t e) {
    kn_dtype t = (kn_dtype)u->dtype;
    uint64_t h = ki_hash2(ki_hash2(g->seed, u->id), e);
    if (u->type->numel == 1) e += 2 * NEDGE * NEDGE; /* alone, an end would hide the rest */
    if (e < (g->power ? NEDGE * NEDGE : NEDGE)) return ki_bits_from_f64(t, edge[e % NEDGE]);
    if (g->npoint && e % 5 == 0) return beside(g, t, h);
    int top = t == KN_F64 ? 1023 : t == KN_F32 || t == KN_BF16 ? 127 : 15, size = (int)(h % 14) - 8;
    if (e % 3 == 0) size = (int)(h / 14 % (2 * (unsigned)top + 1)) - top;
    double v = ldexp((double)(h >> 11) / 9007199254740992.0 + 1.0, size);
    return ki_bits_from_f64(t, h >> 63 ? -v : v);
}

/* y of x^y: with all ends of x all ends; else three of four times one for which the power is within the dtype's range, or
 * just outside. */
static uint64_t exponent(const ki_grid *g, kn_uop u, uint64_t e) {
    kn_dtype t = (kn_dtype)u->dtype;
    kn_uop x = g->power->src[0];
    uint64_t h = ki_hash2(ki_hash2(g->seed, u->id), e);
    if (e < NEDGE * NEDGE && u->type->numel > 1) return ki_bits_from_f64(t, edge[e / NEDGE]);
    if (e % 4 == 0) return wild(g, u, e);
    double base = fabs(ki_f64_from_bits(t, wild(g, x, x->type->numel == 1 ? 0 : e)));
    double power = ((double)(h >> 11) / 9007199254740992.0 - 0.5) * (h & 2 ? 20 : t == KN_F64 ? 2200 : 310);
    return ki_bits_from_f64(t, h & 1 ? power / log2(base) : nearbyint(power / log2(base)));
}

/* ---- where steps go wrong ---- */

/* A number of few digits, now and then a step beside one, at 2^size: of such there are ties. */
static double digits(uint64_t h, int size) {
    unsigned zeros = (unsigned)(h >> 8) % 53;
    double v = (double)(((h >> 11) | UINT64_C(1) << 52) >> zeros << zeros & ((UINT64_C(1) << 53) - 1));
    return ldexp(h & 1 ? -v : v, size - 52);
}

static int least_size(kn_dtype t) { return t == KN_F64 ? -1074 : t == KN_F32 ? -149 : t == KN_BF16 ? -133 : -24; }

/* Of integers a second that is the first or near it, a count, or like the first beside a power of two. */
static int64_t hard_integer(const ki_grid *g, unsigned which, uint64_t e) {
    uint64_t h = ki_hash2(ki_hash2(g->seed, 700 + which), e), size = h & 63;
    if (which == 0 || h >> 32 & 1) {
        uint64_t v = (UINT64_C(1) << size) + (h >> 33) % 3 - 1;
        if (h >> 36 & 1) v += UINT64_C(1) << (h >> 40 & 63);
        if (h >> 37 & 1) v += UINT64_C(1) << (h >> 46 & 63);
        return (int64_t)(h >> 38 & 1 ? 0 - v : v);
    }
    uint64_t first = (uint64_t)hard_integer(g, 0, e);
    switch (h >> 34 & 3) {
    case 0: return (int64_t)first;
    case 1: return (int64_t)(first + (h >> 40) % 5 - 2);
    case 2: return (int64_t)(first ^ UINT64_C(1) << size);
    default: return (int64_t)((h >> 40) % 68) - 2;
    }
}

/* Of floats the ends of narrower ones and what lies halfway between two; a second whose product with the first is near
 * either end; a third near that product's opposite, or far off by as many places as decide the rounding. */
static uint64_t hard_float(const ki_grid *g, kn_dtype t, unsigned which, uint64_t e) {
    uint64_t h = ki_hash2(ki_hash2(g->seed, 800 + which), e), k = ki_mix(h), step = k % 5 < 2 ? k / 5 % 3 - 1 : 0;
    int least = least_size(t),
        span = t == KN_F64                   ? 2098
               : t == KN_F32 || t == KN_BF16 ? 276
                                             : 39,
        size = least + (int)(k / 16 % (unsigned)span);
    if (g->npoint && k % 7 == 0) return beside(g, t, h);
    if (e % 64 == which * 7) return ki_bits_from_f64(t, edge[k / 64 % NEDGE]);
    double v = digits(h, k & 1 ? size : (int)(k / 16 % 70) - 35);
    if (which == 1) {
        int first = 0;
        (void)frexp(ki_f64_from_bits(t, hard_float(g, t, 0, e)), &first);
        if (k / 2 % 3 == 0) v = digits(h, least + (int)(k / 16 % 120) - first);
        if (k / 2 % 3 == 1) v = digits(h, least + span - (int)(k / 16 % 4) - first);
    } else if (which == 2) {
        double p = ki_f64_from_bits(t, hard_float(g, t, 0, e)) * ki_f64_from_bits(t, hard_float(g, t, 1, e));
        int at = 0;
        if (isfinite(p)) (void)frexp(p, &at);
        if (k / 2 % 8 < 3) v = -p;
        else if (k / 2 % 8 < 6) v = digits(h, at + (int)(k / 16 % 230) - 115);
        else if (k / 2 % 8 == 6)
            v = digits(h & ~UINT64_C(0xfff00), at + (int)(k / 16 % 8) + (t == KN_F64 ? 50 : t == KN_F32 ? 21 : 8));
    } else if (which == 0 && k & 2) {
        static const uint8_t narrow[] = {KN_F8E4M3, KN_F8E5M2, KN_F16, KN_BF16, KN_F32};
        kn_dtype s = (kn_dtype)narrow[k / 4 % 5];
        uint64_t b = (h >> 20) & ((UINT64_C(1) << (ki_dtypes[s].bits - 1)) - 1) & (h & 2 ? ~UINT64_C(0) : 7);
        double low = ki_f64_from_bits(s, b), high = ki_f64_from_bits(s, b + 1);
        if (isfinite(low)) v = k & 4 ? low : isfinite(high) ? low + (high - low) / 2 : low * 1.03125;
        if (h & 1) v = -v;
    }
    return ki_extend(ki_bits_from_f64(t, v) + step, ki_dtypes[t].bits, false);
}

/* Element e of a parameter or buffer: depends on the node's name or number, not on the graph around it. */
static uint64_t datum(const ki_grid *g, kn_uop u, uint64_t e) {
    kn_dtype t = (kn_dtype)u->dtype;
    uint64_t h = ki_hash2(ki_hash2(g->seed, u->id), e);
    if (u->flags & KI_BOUNDED && !ki_is_float(t)) {
        bool bounded = u->lo.i > INT64_MIN / 2 && u->hi.i < INT64_MAX / 2;
        if (bounded && (t == KN_IDX || (u->op == KN_PARAM && u->arg.param->bounded)))
            return ki_bits_wrap(t, u->lo.i + (int64_t)(h % (uint64_t)(u->hi.i - u->lo.i + 1)));
    }
    if (t == KN_BOOL) return h & 1;
    if (g->data == KI_DATA_HARD && u->op == KN_PARAM) {
        unsigned which = (unsigned)(u->arg.param->name[0] - 'a') % 3;
        return ki_is_float(t) ? hard_float(g, t, which, e) : ki_bits_wrap(t, hard_integer(g, which, e));
    }
    if (!ki_is_float(t))
        return ki_bits_wrap(t, g->data == KI_DATA_WILD ? (int64_t)(h >> (h & 63)) : (int64_t)(h % 21) - 10);
    if (g->data == KI_DATA_SMOOTH) return ki_bits_from_f64(t, 0.2 + 1.6 * (double)(h >> 11) / 9007199254740992.0);
    if (g->data == KI_DATA_TIES) {
        static const double few[] = {0, 0, 1, 2, -1, 1};
        bool whole = u->op == KN_PARAM && u->arg.param->name[0] == 'd';
        bool weight = u->op == KN_PARAM && u->arg.param->name[0] == 'g';
        if (weight) return ki_bits_from_f64(t, few[2 + h % 3]);
        return ki_bits_from_f64(t, whole ? 1 + (double)(ki_hash2(g->seed, u->id) % 3) / 2 : few[h % 6]);
    }
    if (g->data == KI_DATA_SMALL) return ki_bits_from_f64(t, (double)((int64_t)(h % 17) - 8) / 2);
    return g->power && u == g->power->src[1] ? exponent(g, u, e) : wild(g, u, e);
}

/* ---- positions --------------------------------------------------------------------------------------------- */

static void coordinates(kn_uop u, size_t e, int64_t *x) {
    for (unsigned k = u->type->rank; k-- > 0;) {
        x[k] = (int64_t)(e % (size_t)u->type->dim[k].n);
        e /= (size_t)u->type->dim[k].n;
    }
}

/* Element of u at coordinates x of rank rank; size-1 axes are broadcast. */
static size_t element(kn_uop u, const int64_t *x) {
    size_t e = 0;
    for (unsigned k = 0; k < u->type->rank; k++)
        e = e * (size_t)u->type->dim[k].n + (u->type->dim[k].n == 1 ? 0 : (size_t)x[k]);
    return e;
}

typedef struct cell {
    uint64_t bits;
    uint8_t bad;
} cell;

static cell read_cell(const ki_grid *g, kn_uop u, size_t p, size_t e) {
    size_t at = p * numel(u) + e;
    return (cell){g->bits[u->id][at], g->bad[u->id][at]};
}

static int64_t shape_value(const ki_grid *g, kn_uop stack, size_t p, unsigned k) {
    return (int64_t)read_cell(g, stack->src[k], p, 0).bits;
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static bool unknown(ki_grid *g, kn_uop u) {
    g->why = ki_ops[u->op].name;
    return false;
}

static bool two_roundings(kn_dtype t, const uint64_t *in, uint64_t *out) {
    const kn_dtype dt[2] = {t, t};
    uint64_t sum[2] = {0, in[2]};
    return ki_scalar(KN_MUL, t, dt, in, sum) && ki_scalar(KN_ADD, t, dt, sum, out);
}

/* What source s has for element e of u, which it may be spread over. */
static cell read_source(const ki_grid *g, kn_uop u, kn_uop s, size_t p, size_t e) {
    size_t n = numel(s), at = e;
    if (n == 1) {
        at = 0;
    } else if (n != numel(u)) {
        int64_t x[KI_MAX_RANK] = {0};
        coordinates(u, e, x);
        at = element(s, x);
    }
    return (cell){g->bits[s->id][p * n + at], g->bad[s->id][p * n + at]};
}

static bool elementwise(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    uint64_t in[4];
    kn_dtype dt[4];
    uint8_t bad = 0;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        cell c = read_source(g, u, u->src[k], p, e);
        in[k] = c.bits;
        dt[k] = (kn_dtype)u->src[k]->dtype;
        if (u->op == KN_WHERE && k > 0 && (in[0] != 0) != (k == 1)) continue; /* the branch not taken */
        bad |= c.bad;
    }
    *out = (cell){0, bad};
    if (bad) return true;
    if (g->split && u->op == KN_MULACC && ki_is_float((kn_dtype)u->dtype))
        return two_roundings((kn_dtype)u->dtype, in, &out->bits);
    if (!ki_scalar((kn_op)u->op, (kn_dtype)u->dtype, dt, in, &out->bits)) out->bad = KI_GRID_OUTSIDE;
    return true;
}

/* INDEX: () indices remove their axis, shaped ones put their axes in its place. */
static bool indexed(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    int64_t x[KI_MAX_RANK] = {0}, y[KI_MAX_RANK] = {0};
    kn_uop t = u->src[0];
    unsigned at = 0, n = u->nsrc - 1;
    coordinates(u, e, x);
    *out = (cell){0, 0};
    for (unsigned k = 0; k < t->type->rank; k++) {
        if (k >= n) {
            y[k] = x[at++];
            continue;
        }
        kn_uop i = u->src[k + 1];
        cell c = read_cell(g, i, p, i->type->rank ? element(i, x + at) : 0);
        at += i->type->rank;
        if (c.bad & KI_GRID_OUTSIDE) return out->bad = c.bad, true;
        if (c.bad) { /* memory reads 0 at an invalid index; any other value has none there */
            kn_uop base = t;
            while (base->op == KN_AFTER) base = base->src[0];
            out->bad = base->op == KN_PARAM || base->op == KN_BUFFER ? 0 : KI_GRID_POISON;
            return true;
        }
        y[k] = (int64_t)c.bits;
        if (y[k] < 0 || y[k] >= t->type->dim[k].n) return out->bad = KI_GRID_OUTSIDE, true;
    }
    size_t f = 0;
    for (unsigned k = 0; k < t->type->rank; k++) f = f * (size_t)t->type->dim[k].n + (size_t)y[k];
    *out = read_cell(g, t, p, f);
    return true;
}

/* Elements of the last axis are parted, or put together: the first is lowest. */
static cell recast(const ki_grid *g, kn_uop u, size_t p, size_t e) {
    kn_uop t = u->src[0];
    unsigned to = ki_dtypes[u->dtype].bits, from = ki_dtypes[t->dtype].bits;
    cell out = read_cell(g, t, p, e * to / from);
    if (to <= from) out.bits >>= to * (e % (from / to));
    else out.bits = ki_extend(out.bits, from, false);
    for (unsigned k = 1; k < to / from; k++) {
        cell next = read_cell(g, t, p, e * (to / from) + k);
        out.bits |= ki_extend(next.bits, from, false) << (k * from);
        out.bad |= next.bad;
    }
    out.bits = ki_extend(out.bits, to, ki_is_sint((kn_dtype)u->dtype));
    return out;
}

static bool moved(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    int64_t x[KI_MAX_RANK] = {0}, y[KI_MAX_RANK] = {0};
    kn_uop t = u->src[0];
    coordinates(u, e, x);
    memcpy(y, x, sizeof y);
    *out = (cell){0, 0};
    switch (u->op) {
    case KN_PERMUTE:
        for (unsigned k = 0; k < u->type->rank; k++) y[u->arg.ints->v[k]] = x[k];
        break;
    case KN_FLIP:
        for (uint32_t k = 0; k < u->arg.ints->n; k++)
            y[u->arg.ints->v[k]] = u->type->dim[u->arg.ints->v[k]].n - 1 - x[u->arg.ints->v[k]];
        break;
    case KN_RESHAPE: *out = read_cell(g, t, p, e); return true;
    case KN_EXPAND: break;
    case KN_PAD:
    case KN_SHRINK:
        for (unsigned k = 0; k < u->type->rank; k++) {
            int64_t o = shape_value(g, u->src[1], p, k);
            y[k] = u->op == KN_PAD ? x[k] - o : x[k] + o;
            if (y[k] < 0 || y[k] >= t->type->dim[k].n) return true; /* padding: 0 */
        }
        break;
    case KN_STACK: *out = read_cell(g, u->src[x[0]], p, element(u->src[x[0]], x + 1)); return true;
    case KN_BITCAST: *out = recast(g, u, p, e); return true;
    default: return unknown(g, u);
    }
    *out = read_cell(g, t, p, element(t, y));
    return true;
}

/* Folds along the reduced axes and, on the grid, along the ranges. */
static bool reduced(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    int64_t x[KI_MAX_RANK] = {0}, y[KI_MAX_RANK] = {0};
    kn_uop t = u->src[0];
    kn_dtype d = (kn_dtype)u->dtype, dt[2] = {d, d};
    uint64_t in[2] = {ki_scalar_identity((kn_op)u->arg.reduce.op, d, true), 0};
    coordinates(u, e, x);
    *out = (cell){0, 0};
    size_t base = p;
    for (uint32_t k = 1; k < u->nsrc; k++)
        for (uint32_t r = 0; r < g->nrange; r++)
            if (g->range[r] == u->src[k]) base -= p / g->stride[r] % g->extent[r] * g->stride[r];
    for (size_t q = base; q < g->size; q++) {
        bool along = true; /* q differs from base in reduced ranges only */
        for (uint32_t r = 0; r < g->nrange && along; r++) {
            bool free = false;
            for (uint32_t k = 1; k < u->nsrc; k++) free |= g->range[r] == u->src[k];
            along = free || q / g->stride[r] % g->extent[r] == base / g->stride[r] % g->extent[r];
        }
        if (!along) continue;
        for (size_t f = 0; f < numel(t); f++) {
            coordinates(t, f, y);
            bool mine = true;
            for (unsigned k = 0; k < t->type->rank; k++) mine &= u->arg.reduce.axes >> k & 1 || y[k] == x[k];
            if (!mine) continue;
            cell c = read_cell(g, t, q, f);
            out->bad |= c.bad;
            in[1] = c.bits;
            if (!ki_scalar((kn_op)u->arg.reduce.op, d, dt, in, &in[0])) out->bad |= KI_GRID_OUTSIDE;
        }
    }
    out->bits = in[0];
    return true;
}

static bool loaded(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    int64_t x[KI_MAX_RANK] = {0};
    coordinates(u, e, x);
    cell gate = {1, 0};
    if (u->nsrc > 2) gate = read_cell(g, u->src[2], p, element(u->src[2], x));
    *out = gate.bits ? read_cell(g, u->src[0], p, e) : read_cell(g, u->src[1], p, element(u->src[1], x));
    return true;
}

static bool one_cell(ki_grid *g, kn_uop u, size_t p, size_t e, cell *out) {
    *out = (cell){u->arg.bits, 0};
    if (ki_is_elementwise((kn_op)u->op)) return elementwise(g, u, p, e, out);
    switch (u->op) {
    case KN_CONST: return true;
    case KN_PARAM:
    case KN_BUFFER: out->bits = datum(g, u, e); return true;
    case KN_INVALID: *out = (cell){0, KI_GRID_POISON}; return true;
    case KN_RANGE:
        for (uint32_t r = 0; r < g->nrange; r++)
            if (g->range[r] == u) out->bits = p / g->stride[r] % g->extent[r];
        return true;
    case KN_INDEX: return indexed(g, u, p, e, out);
    case KN_REDUCE: return reduced(g, u, p, e, out);
    case KN_LOAD: return loaded(g, u, p, e, out);
    case KN_AFTER:
    case KN_CONTIGUOUS:
    case KN_CONTIGUOUS_BACKWARD:
    case KN_DETACH:
    case KN_REMAT: *out = read_cell(g, u->src[0], p, e); return true;
    default: return moved(g, u, p, e, out);
    }
}

/* ---- the sweep --------------------------------------------------------------------------------------------- */

static bool add_range(ki_grid *g, kn_uop u) {
    kn_uop n = u->src[0];
    if (n->op != KN_CONST || n->arg.i < 1 || g->nrange == KI_GRID_RANGES) return unknown(g, u);
    g->range[g->nrange] = u;
    g->extent[g->nrange] = (uint32_t)n->arg.i;
    g->stride[g->nrange++] = g->size;
    if (n->arg.i > KI_GRID_MOST / g->size) return g->why = "too many positions", false;
    g->size *= (uint32_t)n->arg.i;
    return true;
}

static bool one_node(ki_grid *g, kn_uop u) {
    size_t n = g->size * numel(u);
    if (u->dtype == KN_VOID || u->type->symbolic) return unknown(g, u);
    if (n > KI_GRID_MOST * 4) return g->why = "too many elements", false;
    g->bits[u->id] = ki_malloc((n + 1) * sizeof **g->bits);
    g->bad[u->id] = ki_malloc(n + 1);
    if (!g->bits[u->id] || !g->bad[u->id]) return g->why = "out of memory", false;
    for (size_t p = 0; p < g->size; p++)
        for (size_t e = 0; e < numel(u); e++) {
            cell c;
            if (!one_cell(g, u, p, e, &c)) return false;
            g->bits[u->id][p * numel(u) + e] = c.bits;
            g->bad[u->id][p * numel(u) + e] = c.bad;
        }
    return true;
}

static bool is_param(kn_uop u) { return u->op == KN_PARAM; }

static bool evaluate(ki_grid *g, ki_ir *ir, const kn_uop *root, unsigned nroot) {
    kn_uop *node = NULL;
    g->ir = ir;
    g->size = 1;
    g->n = ir->n;
    for (unsigned k = 0; k < nroot; k++)
        if (root[k]->op == KN_POW && is_param(root[k]->src[0]) && is_param(root[k]->src[1])) g->power = root[k];
    g->bits = ki_calloc(ir->n, sizeof *g->bits);
    g->bad = ki_calloc(ir->n, sizeof *g->bad);
    int64_t n = ki_toposort(ir, root, nroot, &node);
    bool good = g->bits && g->bad && n >= 0;
    if (!good) g->why = "out of memory";
    for (int64_t k = 0; good && k < n; k++)
        if (node[k]->op == KN_RANGE) good = add_range(g, node[k]);
    for (int64_t k = 0; k < n && g->npoint < KI_GRID_POINTS; k++)
        if (node[k]->op == KN_CONST && node[k]->dtype != KN_BOOL) g->point[g->npoint++] = node[k];
    for (int64_t k = 0; good && k < n; k++) good = one_node(g, node[k]);
    ki_free(node);
    return good;
}

bool ki_grid_eval(ki_grid *g, ki_ir *ir, const kn_uop *root, unsigned nroot, uint64_t seed, ki_data data) {
    *g = (ki_grid){.seed = seed, .data = data};
    return evaluate(g, ir, root, nroot);
}

bool ki_grid_eval_split(ki_grid *g, ki_ir *ir, const kn_uop *root, unsigned nroot, uint64_t seed, ki_data data) {
    *g = (ki_grid){.seed = seed, .data = data, .split = true};
    return evaluate(g, ir, root, nroot);
}

void ki_grid_free(ki_grid *g) {
    for (uint32_t k = 0; k < g->n && g->bits && g->bad; k++) {
        ki_free(g->bits[k]);
        ki_free(g->bad[k]);
    }
    ki_free(g->bits);
    ki_free(g->bad);
    g->bits = NULL;
    g->bad = NULL;
}

/* A sum is -0.0 only if all its terms are, in whatever order they are added: a zero's sign is no matter of tolerance. */
static bool near(kn_dtype t, uint64_t a, uint64_t b, double tolerance, bool signless) {
    if (a == b) return true;
    if (!ki_is_float(t)) return false;
    double x = ki_f64_from_bits(t, a), y = ki_f64_from_bits(t, b);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (x == 0 && y == 0) return signless;
    if (tolerance == 0) return false;
    if (isinf(x) || isinf(y)) return x == y;
    return x == y || fabs(x - y) <= tolerance * (fabs(x) + fabs(y)) + 1e-37;
}

bool ki_grid_equal(const ki_grid *g, kn_uop a, kn_uop b, double tolerance, bool signless, size_t *where) {
    size_t n = g->size * numel(a);
    for (size_t k = 0; k < n; k++) {
        if (g->bad[a->id][k]) continue;
        if (!g->bad[b->id][k] && near((kn_dtype)a->dtype, g->bits[a->id][k], g->bits[b->id][k], tolerance, signless))
            continue;
        *where = k;
        return false;
    }
    return true;
}
