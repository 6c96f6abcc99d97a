/* bounds.c: min and max of a node about to be made.
 *
 * Integers and bool always have bounds (at worst the dtype's range); for `index` and u64 INT64_MIN and
 * INT64_MAX stand for infinity. Integer arithmetic wraps, so a bound that could leave the dtype gives its
 * whole range; `index` does not wrap, there a bound that leaves int64 becomes infinite. A float has bounds
 * only where it cannot be NaN. A rule is a static function named bounds_X after the column of ops.def. */
#include "ir/derive.h"

#include "base/whole.h"

#include <math.h>

typedef struct interval {
    int64_t lo, hi;
} interval;

static bool is_integral(kn_dtype t) { return t != KN_VOID && !ki_is_float(t); }
static interval whole(kn_dtype t) { return (interval){ki_int_min(t), ki_int_max(t)}; }
static interval of(kn_uop u) { return (interval){u->lo.i, u->hi.i}; }
static bool float_known(kn_uop u) { return ki_is_float((kn_dtype)u->dtype) && (u->flags & KI_BOUNDED); }

static void set(ki_draft *d, interval v) {
    d->flags |= KI_BOUNDED;
    d->lo.i = v.lo;
    d->hi.i = v.hi;
}
static void set_float(ki_draft *d, double lo, double hi) {
    if (!(lo <= hi)) return;
    d->flags |= KI_BOUNDED;
    d->lo.f = lo;
    d->hi.f = hi;
}

/* Exact result in 128 bits back to the dtype: what does not fit gives the whole range (index: infinity). */
typedef ki_int128 wide;
static int64_t clip(wide v) { return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : (int64_t)v; }
static bool infinite(kn_dtype t) { return t == KN_IDX || t == KN_U64; }
static interval fit(kn_dtype t, wide lo, wide hi) {
    interval all = whole(t);
    if (t == KN_IDX) return (interval){clip(lo), clip(hi)};
    if (lo < all.lo || hi > all.hi || (t == KN_U64 && hi >= INT64_MAX)) return all;
    return (interval){(int64_t)lo, (int64_t)hi};
}
/* Infinity as a number far outside, so that sums and products of it stay outside. */
static wide low(kn_dtype t, int64_t v) { return infinite(t) && v == INT64_MIN ? -((wide)1 << 64) : v; }
static wide high(kn_dtype t, int64_t v) { return infinite(t) && v == INT64_MAX ? (wide)1 << 64 : v; }

static void bounds_NONE(ki_draft *d) { (void)d; }
static void bounds_RANGE(ki_draft *d) {
    if (is_integral(d->dtype)) set(d, whole(d->dtype));
}
static void copy_from(ki_draft *d, kn_uop s) {
    if (s->dtype != d->dtype || !(s->flags & KI_BOUNDED)) {
        bounds_RANGE(d);
        return;
    }
    d->flags |= KI_BOUNDED;
    d->lo = s->lo;
    d->hi = s->hi;
}
static void bounds_SRC0(ki_draft *d) { copy_from(d, d->src[0]); }
/* A gated load may give its alternative. */
static void bounds_LOAD(ki_draft *d) {
    if (d->nsrc == 1) {
        copy_from(d, d->src[0]);
        return;
    }
    kn_uop a = d->src[0], b = d->src[1];
    if (is_integral(d->dtype) && b->dtype == d->dtype)
        set(d, (interval){a->lo.i < b->lo.i ? a->lo.i : b->lo.i, a->hi.i > b->hi.i ? a->hi.i : b->hi.i});
    else bounds_RANGE(d);
}
static void bounds_CONST(ki_draft *d) {
    if (is_integral(d->dtype)) {
        int64_t v = d->dtype == KN_U64 && d->arg.i < 0 ? INT64_MAX : d->arg.i;
        set(d, (interval){v, v});
    } else if (ki_is_float(d->dtype)) {
        double v = ki_f64_from_bits(d->dtype, d->arg.bits);
        set_float(d, v, v);
    }
}
static void bounds_PARAM(ki_draft *d) {
    const ki_param *p = d->arg.param;
    if (!p->bounded) {
        bounds_RANGE(d);
        return;
    }
    if (is_integral(d->dtype)) {
        set(d, (interval){p->lo, p->hi});
        return;
    }
    set_float(d,
              (union {
                  int64_t i;
                  double f;
              }){.i = p->lo}
                  .f,
              (union {
                  int64_t i;
                  double f;
              }){.i = p->hi}
                  .f);
}
static void bounds_PAD(ki_draft *d) {
    kn_uop s = d->src[0];
    copy_from(d, s);
    if (!(d->flags & KI_BOUNDED)) return;
    if (is_integral(d->dtype)) set(d, (interval){d->lo.i < 0 ? d->lo.i : 0, d->hi.i > 0 ? d->hi.i : 0});
    else set_float(d, fmin(d->lo.f, 0), fmax(d->hi.f, 0));
}
static void bounds_STACK(ki_draft *d) {
    if (!d->nsrc) {
        bounds_RANGE(d);
        return;
    }
    copy_from(d, d->src[0]);
    for (uint32_t i = 1; i < d->nsrc && d->flags & KI_BOUNDED; i++) {
        kn_uop s = d->src[i];
        if (!(s->flags & KI_BOUNDED)) d->flags &= (uint16_t)~KI_BOUNDED;
        else if (is_integral(d->dtype))
            set(d, (interval){s->lo.i < d->lo.i ? s->lo.i : d->lo.i, s->hi.i > d->hi.i ? s->hi.i : d->hi.i});
        else set_float(d, fmin(d->lo.f, s->lo.f), fmax(d->hi.f, s->hi.f));
    }
}
/* A max of n values lies where they do; a sum of n values in n times the interval. */
static void bounds_REDUCE(ki_draft *d) {
    kn_uop s = d->src[0];
    bounds_RANGE(d);
    if (!is_integral(d->dtype)) return;
    wide n = 1;
    for (uint32_t i = 1; i < d->nsrc; i++) n *= d->src[i]->hi.i < INT32_MAX ? d->src[i]->hi.i + 1 : (wide)1 << 62;
    for (unsigned k = 0; k < s->type->rank; k++)
        if (d->arg.reduce.axes >> k & 1) n *= s->type->dim[k].n;
    if (n < 1 || n > (wide)1 << 62) return;
    bool fixed = !s->type->symbolic;
    for (uint32_t i = 1; i < d->nsrc; i++) fixed &= d->src[i]->op == KN_RANGE && d->src[i]->src[0]->op == KN_CONST;
    if (d->arg.reduce.op == KN_MAX && fixed) set(d, of(s));
    if (d->arg.reduce.op != KN_ADD || s->dtype == KN_BOOL) return;
    wide lo = low(d->dtype, s->lo.i), hi = high(d->dtype, s->hi.i);
    wide lo_n = lo * (fixed || lo < 0 ? n : 0), hi_n = hi * (fixed || hi > 0 ? n : 0);
    set(d, fit(d->dtype, lo_n, hi_n));
}
static void bounds_GETTUPLE(ki_draft *d) { bounds_RANGE(d); }
/* 0 .. bound-1 */
static void bounds_RANGEOP(ki_draft *d) {
    int64_t hi = d->src[0]->hi.i;
    set(d, (interval){0, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0});
}

static void bounds_TRUNC(ki_draft *d) {
    if (float_known(d->src[0])) set_float(d, trunc(d->src[0]->lo.f), trunc(d->src[0]->hi.f));
}
static void bounds_CAST(ki_draft *d) {
    kn_uop s = d->src[0];
    bounds_RANGE(d);
    kn_dtype from = (kn_dtype)s->dtype;
    if (is_integral(from) && is_integral(d->dtype)) {
        if (d->dtype == KN_BOOL) {
            if (s->lo.i > 0 || s->hi.i < 0) set(d, (interval){1, 1});
            if (s->lo.i == 0 && s->hi.i == 0) set(d, (interval){0, 0});
            return;
        }
        interval all = whole(d->dtype);
        bool open = infinite(from) && (s->lo.i == INT64_MIN || s->hi.i == INT64_MAX);
        if (s->lo.i >= all.lo && s->hi.i <= all.hi && !(open && d->dtype != KN_IDX)) set(d, of(s));
    } else if (is_integral(from) && (d->dtype == KN_F32 || d->dtype == KN_F64) && from != KN_U64 &&
               s->lo.i > INT64_MIN && s->hi.i < INT64_MAX) {
        bool narrow = d->dtype == KN_F32; /* whose values are the bounds: 2^31 - 1 is 2^31 there */
        set_float(d, narrow ? (float)s->lo.i : (double)s->lo.i, narrow ? (float)s->hi.i : (double)s->hi.i);
    }
}

static bool both_floats(ki_draft *d) { return float_known(d->src[0]) && float_known(d->src[1]); }
static void bounds_ADD(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (d->dtype == KN_BOOL) {
        set(d, (interval){a->lo.i | b->lo.i, a->hi.i | b->hi.i});
        return;
    }
    if (is_integral(d->dtype))
        set(d, fit(d->dtype, low(d->dtype, a->lo.i) + low(d->dtype, b->lo.i),
                   high(d->dtype, a->hi.i) + high(d->dtype, b->hi.i)));
}
static void bounds_SUB(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (is_integral(d->dtype))
        set(d, fit(d->dtype, low(d->dtype, a->lo.i) - high(d->dtype, b->hi.i),
                   high(d->dtype, a->hi.i) - low(d->dtype, b->lo.i)));
}
static void bounds_NEG(ki_draft *d) {
    kn_uop a = d->src[0];
    if (is_integral(d->dtype)) set(d, fit(d->dtype, -high(d->dtype, a->hi.i), -low(d->dtype, a->lo.i)));
    else if (float_known(a)) set_float(d, -a->hi.f, -a->lo.f);
}
/* Products of ends; an infinite end times zero is zero. */
static void bounds_MUL(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (d->dtype == KN_BOOL) {
        set(d, (interval){a->lo.i & b->lo.i, a->hi.i & b->hi.i});
        return;
    }
    if (!is_integral(d->dtype)) return;
    wide x[2] = {low(d->dtype, a->lo.i), high(d->dtype, a->hi.i)},
         y[2] = {low(d->dtype, b->lo.i), high(d->dtype, b->hi.i)};
    /* Infinities are 2^64; their products would leave 128 bits only when squared, so bring them down. */
    for (int i = 0; i < 2; i++) {
        if (x[i] > INT64_MAX) x[i] = (wide)INT64_MAX + 1;
        if (y[i] > INT64_MAX) y[i] = (wide)INT64_MAX + 1;
        if (x[i] < INT64_MIN) x[i] = (wide)INT64_MIN - 1;
        if (y[i] < INT64_MIN) y[i] = (wide)INT64_MIN - 1;
    }
    wide lo = x[0] * y[0], hi = lo;
    for (int i = 1; i < 4; i++) {
        wide p = x[i & 1] * y[i >> 1];
        if (p < lo) lo = p;
        if (p > hi) hi = p;
    }
    set(d, fit(d->dtype, lo, hi));
}
static void bounds_MAX(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (is_integral(d->dtype))
        set(d, (interval){a->lo.i > b->lo.i ? a->lo.i : b->lo.i, a->hi.i > b->hi.i ? a->hi.i : b->hi.i});
    else if (both_floats(d)) set_float(d, fmax(a->lo.f, b->lo.f), fmax(a->hi.f, b->hi.f));
}

static void bounds_IDIV(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    set(d, whole(d->dtype));
    if (b->lo.i <= 0) return; /* zero, negative or unknown divisors: nothing is gained by caring */
    bool open_lo = infinite(d->dtype) && a->lo.i == INT64_MIN, open_hi = infinite(d->dtype) && a->hi.i == INT64_MAX;
    int64_t lo = ki_floor_div(a->lo.i, a->lo.i < 0 ? b->lo.i : b->hi.i);
    int64_t hi = ki_floor_div(a->hi.i, a->hi.i < 0 ? b->hi.i : b->lo.i);
    set(d, (interval){open_lo ? INT64_MIN : lo, open_hi ? INT64_MAX : hi});
}
static void bounds_MOD(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    set(d, whole(d->dtype));
    if (b->lo.i <= 0) return;
    if (b->lo.i == b->hi.i && b->hi.i != INT64_MAX && a->lo.i != INT64_MIN && a->hi.i != INT64_MAX &&
        ki_floor_div(a->lo.i, b->lo.i) == ki_floor_div(a->hi.i, b->lo.i)) { /* one period: no wrap inside */
        int64_t q = ki_floor_div(a->lo.i, b->lo.i) * b->lo.i;
        set(d, (interval){a->lo.i - q, a->hi.i - q});
        return;
    }
    int64_t top = b->hi.i == INT64_MAX ? INT64_MAX : b->hi.i - 1;
    set(d, (interval){0, a->lo.i >= 0 && a->hi.i < top ? a->hi.i : top});
}

/* Comparison of two intervals: certain, impossible or open. */
static void decide(ki_draft *d, bool yes, bool no) { set(d, (interval){yes, !no}); }
static bool compare_ends(ki_draft *d, int *lt_all, int *ge_all, int *le_all, int *gt_all, int *apart) {
    kn_uop a = d->src[0], b = d->src[1];
    if (is_integral((kn_dtype)a->dtype)) {
        bool open = infinite((kn_dtype)a->dtype);
        bool ah = open && a->hi.i == INT64_MAX, bh = open && b->hi.i == INT64_MAX;
        bool al = open && a->lo.i == INT64_MIN, bl = open && b->lo.i == INT64_MIN;
        /* u64 constants above INT64_MAX are stored as infinity at both ends: nothing is certain of them */
        bool afar = open && a->lo.i == INT64_MAX, bfar = open && b->lo.i == INT64_MAX;
        *lt_all = !ah && !bl && !afar && a->hi.i < b->lo.i;
        *le_all = !ah && !bl && !afar && a->hi.i <= b->lo.i;
        *ge_all = !al && !bh && !bfar && a->lo.i >= b->hi.i;
        *gt_all = !al && !bh && !bfar && a->lo.i > b->hi.i;
    } else if (float_known(a) && float_known(b)) {
        *lt_all = a->hi.f < b->lo.f;
        *le_all = a->hi.f <= b->lo.f;
        *ge_all = a->lo.f >= b->hi.f;
        *gt_all = a->lo.f > b->hi.f;
    } else {
        return false;
    }
    *apart = *lt_all || *gt_all;
    return true;
}
#define COMPARE(name, yes, no)                                                                                         \
    static void bounds_##name(ki_draft *d) {                                                                           \
        int lt = 0, ge = 0, le = 0, gt = 0, apart = 0;                                                                 \
        set(d, (interval){0, 1});                                                                                      \
        if (compare_ends(d, &lt, &ge, &le, &gt, &apart)) decide(d, yes, no);                                           \
    }
COMPARE(CMPLT, lt, ge)
COMPARE(CMPGE, ge, lt)
COMPARE(CMPGT, gt, le)
COMPARE(CMPLE, le, gt)
/* Equality is certain for two equal single points. */
COMPARE(CMPNE, apart, le &&ge)
COMPARE(CMPEQ, le &&ge, apart)

/* Bits below the highest set one, of non-negative values. */
static int64_t ones_above(int64_t v) { return v <= 0 ? 0 : (int64_t)(UINT64_MAX >> ki_clz64((uint64_t)v)); }
static void bounds_AND(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (d->dtype == KN_BOOL) {
        set(d, (interval){a->lo.i & b->lo.i, a->hi.i & b->hi.i});
        return;
    }
    set(d, whole(d->dtype));
    if (a->lo.i >= 0 && b->lo.i >= 0) set(d, (interval){0, a->hi.i < b->hi.i ? a->hi.i : b->hi.i});
    else if (a->lo.i >= 0) set(d, (interval){0, a->hi.i});
    else if (b->lo.i >= 0) set(d, (interval){0, b->hi.i});
}
static void bounds_OR(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    if (d->dtype == KN_BOOL) {
        set(d, (interval){a->lo.i | b->lo.i, a->hi.i | b->hi.i});
        return;
    }
    set(d, whole(d->dtype));
    if (a->lo.i >= 0 && b->lo.i >= 0 && !(infinite(d->dtype) && (a->hi.i == INT64_MAX || b->hi.i == INT64_MAX)))
        set(d, (interval){a->lo.i > b->lo.i ? a->lo.i : b->lo.i, ones_above(a->hi.i) | ones_above(b->hi.i)});
}
static void bounds_SHR(ki_draft *d) {
    kn_uop a = d->src[0], b = d->src[1];
    set(d, whole(d->dtype));
    if (b->lo.i != b->hi.i || b->lo.i < 0 || b->lo.i >= ki_dtypes[d->dtype].bits || infinite(d->dtype)) return;
    set(d, (interval){a->lo.i >> b->lo.i, a->hi.i >> b->lo.i});
}
static void bounds_NOT(ki_draft *d) {
    kn_uop a = d->src[0];
    if (d->dtype == KN_BOOL) set(d, (interval){!a->hi.i, !a->lo.i});
    else if (ki_is_sint(d->dtype)) set(d, (interval){~a->hi.i, ~a->lo.i});
    else bounds_RANGE(d);
}
static void bounds_WHERE(ki_draft *d) {
    kn_uop p = d->src[0], a = d->src[1], b = d->src[2];
    if (p->lo.i == p->hi.i) {
        copy_from(d, p->lo.i ? a : b);
        return;
    }
    if (b->op == KN_INVALID) { /* an invalid index has no value */
        copy_from(d, a);
        return;
    }
    if (is_integral(d->dtype))
        set(d, (interval){a->lo.i < b->lo.i ? a->lo.i : b->lo.i, a->hi.i > b->hi.i ? a->hi.i : b->hi.i});
    else if (float_known(a) && float_known(b)) set_float(d, fmin(a->lo.f, b->lo.f), fmax(a->hi.f, b->hi.f));
}

void ki_derive_bounds(ki_draft *d) {
    static void (*const rule[KI_OP_COUNT])(ki_draft *) = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) [KN_##name] = bounds_##bounds,
#include "ir/ops.def"
#undef KI_OP
    };
    rule[d->op](d);
    /* INVALID and the like: an integer node always has some bounds. */
    if (!(d->flags & KI_BOUNDED) && is_integral(d->dtype)) set(d, whole(d->dtype));
}
