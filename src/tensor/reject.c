/* reject.c: gamma, beta, dirichlet, chi-square, Student's t, poisson, binomial: drawn by rejection with a fixed number of tries, since a graph
 * has no loop that ends when it likes. All tries are made at once, along an axis; the first that is accepted is made again from
 * its counter, so that nothing but its number is kept. If none is, the last one stands: that is how far a distribution is from
 * the exact one, besides rounding. Everything is computed in f64, in functions that every device rounds alike (plain.c).
 *
 *  - gamma: Marsaglia and Tsang's, 8 tries, each accepted with a probability of 0.95 at least: 4e-11 are not. Below 1,
 *    gamma(a) = gamma(a + 1) u^(1/a); as a logarithm, which a beta of small parameters needs.
 *  - poisson, binomial: below a mean of 10 the inverse of the distribution, of 53 bits, by its first 48 terms (1e-16 lie
 *    beyond); above, Hoermann's transformed rejection (PTRS, BTRS), 16 tries of 0.7 at least: 4e-9 are not. Means up to 10^8: beyond,
 *    logarithms of factorials are rounded to more than 1e-7. */
#include "tensor/random.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

enum { GAMMA_TRIES = 8, COUNT_TRIES = 16, TERMS = 48, INVERSE_BELOW = 10 };

/* What is drawn for m elements in a row: parameters (1, m) of f64, and their places in the streams' planes of m counters. */
typedef struct family {
    kn_uop a, b;  /* parameters; b may be NULL */
    kn_uop place; /* 0 .. m-1, u64 */
    int64_t m;
    const ki_stream *of;
} family;

/* The generator's words of plane `plane`, (planes, m) or (1, m): u64, by number. */
static kn_uop plane_bits(kn_ctx *k, const family *f, kn_uop plane) {
    kn_uop x = plane;
    return x ? ki_stream_at(k, f->of, ki_t_add(k, ki_t_mul(k, x, L((double)f->m)), f->place)) : NULL;
}
static kn_uop plane_of(kn_ctx *k, const family *f, int64_t plane) {
    return plane_bits(k, f, ki_t_const(k, KN_U64, (double)plane));
}

/* A try: its value, and whether it is accepted (NULL: not asked for). plane: its first one. */
typedef kn_uop attempt(kn_ctx *k, const family *f, kn_uop plane, kn_uop *accepted);

/* The first of `tries` that is accepted, each of which takes `each` planes from `from` on. */
static kn_uop first_accepted(kn_ctx *k, const family *f, attempt *of, int64_t from, int tries, int each) {
    kn_uop number = RESHAPE(ki_t_iota(k, tries, KN_I32), tries, 1), ok, x = number;
    if (!x) return NULL;
    kn_uop plane = ki_t_cast(k, ki_t_add(k, ki_t_mul(k, x, L(each)), L((double)from)), KN_U64);
    of(k, f, plane, &ok);
    x = ki_t_min_over(k, ki_t_where(k, ok, number, L(tries - 1)), 1);
    return x ? of(k, f, ki_t_cast(k, ki_t_add(k, ki_t_mul(k, x, L(each)), L((double)from)), KN_U64), NULL) : NULL;
}

/* ---- gamma ---------------------------------------------------------------------------------------------------- */

enum { GAMMA_PLANES = 2 * GAMMA_TRIES + 1 };

/* log(d v) of v = (1 + c z)^3, d = a - 1/3, c = 1 / sqrt(9 d), for a from 1 on. */
static kn_uop gamma_try(kn_ctx *k, const family *f, kn_uop plane, kn_uop *accepted) {
    kn_uop x = f->a, z = ki_normal(k, plane_bits(k, f, plane), KN_F64);
    if (!x || !z) return accepted ? *accepted = NULL : NULL;
    kn_uop d = ki_t_sub(k, ki_t_where(k, ki_t_lt(k, x, L(1)), ki_t_add(k, x, L(1)), x), L(1.0 / 3));
    kn_uop s = ki_t_add(k, L(1), ki_t_div(k, z, ki_t_sqrt(k, ki_t_mul(k, L(9), d)))), positive = ki_t_gt(k, s, L(0));
    kn_uop root = ki_t_where(k, positive, s, L(1)), v = ki_t_mul(k, root, ki_t_mul(k, root, root));
    kn_uop log_v = ki_t_mul(k, L(3), ki_plain_log(k, root));
    if (accepted) {
        kn_uop bound = ki_t_add(k, ki_t_mul(k, L(0.5), ki_t_mul(k, z, z)),
                                ki_t_mul(k, d, ki_t_add(k, ki_t_sub(k, L(1), v), log_v)));
        kn_uop e = ki_plain_exponential(k, plane_bits(k, f, ki_t_add(k, plane, ki_t_const(k, KN_U64, 1))), KN_F64);
        *accepted = ki_t_binary(k, KN_AND, positive, ki_t_gt(k, ki_t_add(k, e, bound), L(0)));
    }
    return ki_t_add(k, ki_plain_log(k, d), log_v);
}

/* The logarithm of gamma(a), from plane `from` on; NaN where a is below 0. */
static kn_uop log_gamma(kn_ctx *k, const family *f, int64_t from) {
    kn_uop x = f->a, y = first_accepted(k, f, gamma_try, from, GAMMA_TRIES, 2);
    kn_uop e = ki_plain_exponential(k, plane_of(k, f, from + 2 * GAMMA_TRIES), KN_F64);
    if (!x || !y) return NULL;
    y = ki_t_where(k, ki_t_lt(k, x, L(1)), ki_t_sub(k, y, ki_t_div(k, e, x)), y);
    return ki_t_where(k, ki_t_ge(k, x, L(0)), y, L(NAN));
}

/* ---- counts --------------------------------------------------------------------------------------------------- */

/* log(x!) of whole x >= 0, by Stirling's series at x + 9. */
static kn_uop log_factorial(kn_ctx *k, kn_uop n) {
    kn_uop x = n;
    if (!x) return NULL;
    kn_uop near = ki_t_lt(k, x, L(16)), low = ki_t_where(k, near, x, L(0)), product = L(1);
    for (int i = 1; i <= 8; i++) product = ki_t_mul(k, product, ki_t_add(k, low, L(i)));
    kn_uop y = ki_t_add(k, x, ki_t_where(k, near, L(9), L(1))), r = ki_t_div(k, L(1), y), q = ki_t_mul(k, r, r);
    kn_uop series = L(-1.0 / 1680);
    const double terms[] = {1.0 / 1260, -1.0 / 360, 1.0 / 12};
    for (int i = 0; i < 3; i++) series = ki_t_add(k, ki_t_mul(k, series, q), L(terms[i]));
    kn_uop whole = ki_t_sub(k, ki_t_mul(k, ki_t_sub(k, y, L(0.5)), ki_plain_log(k, y)), y);
    whole = ki_t_add(k, ki_t_add(k, whole, L(0.91893853320467274178)), ki_t_mul(k, series, r));
    return ki_t_sub(k, whole, ki_t_where(k, near, ki_plain_log(k, product), L(0)));
}

/* What Hoermann's two have in common: u in (-1/2, 1/2) and v in (0, 1), a candidate by a hat of width b around `centre`, and the logarithm of
 * v times the hat's height there, which is to be at most that of the probability. `quick`: accepted without. */
typedef struct hat {
    kn_uop a, b, centre, ratio; /* of v below which the middle is accepted */
    kn_uop candidate, log_height, quick;
} hat;
static bool hat_at(kn_ctx *k, const family *f, kn_uop plane, hat *h) {
    kn_uop bits = plane_bits(k, f, plane), x = ki_t_cast(k, ki_word32(k, bits, 0), KN_F64);
    kn_uop v = ki_t_cast(k, ki_word32(k, bits, 1), KN_F64);
    if (!x || !v || !h->ratio) return false;
    kn_uop u = ki_t_mul(k, ki_t_add(k, x, L(0.5 - 0x1p31)), L(0x1p-32)), side = ki_t_sub(k, L(0.5), ki_t_abs(k, u));
    v = ki_t_mul(k, ki_t_add(k, v, L(0.5)), L(0x1p-32));
    kn_uop slope = ki_t_add(k, ki_t_div(k, ki_t_mul(k, L(2), h->a), side), h->b);
    h->candidate = ki_t_floor(k, ki_t_add(k, ki_t_mul(k, slope, u), h->centre));
    kn_uop height = ki_t_add(k, ki_t_div(k, h->a, ki_t_mul(k, side, side)), h->b);
    h->log_height = ki_plain_log(k, ki_t_div(k, v, height));
    h->quick = ki_t_binary(k, KN_AND, ki_t_ge(k, side, L(0.07)), ki_t_le(k, v, h->ratio));
    return h->quick != NULL;
}

static kn_uop poisson_try(kn_ctx *k, const family *f, kn_uop plane, kn_uop *accepted) {
    kn_uop x = f->a ? ki_t_max(k, f->a, ki_t_lit(k, f->a, INVERSE_BELOW)) : NULL; /* below, it is not used */
    if (accepted) *accepted = NULL;
    if (!x) return NULL;
    hat h = {.b = ki_t_add(k, L(0.931), ki_t_mul(k, L(2.53), ki_t_sqrt(k, x))), .centre = ki_t_add(k, x, L(0.43))};
    h.a = ki_t_add(k, L(-0.059), ki_t_mul(k, L(0.02483), h.b));
    h.ratio = ki_t_sub(k, L(0.9277), ki_t_div(k, L(3.6224), ki_t_sub(k, h.b, L(2))));
    if (!hat_at(k, f, plane, &h)) return NULL;
    kn_uop n = ki_t_max(k, h.candidate, L(0));
    if (!accepted) return n;
    kn_uop scale = ki_t_add(k, L(1.1239), ki_t_div(k, L(1.1328), ki_t_sub(k, h.b, L(3.4))));
    kn_uop log_p = ki_t_sub(k, ki_t_sub(k, ki_t_mul(k, n, ki_plain_log(k, x)), x), log_factorial(k, n));
    kn_uop below = ki_t_le(k, ki_t_add(k, h.log_height, ki_plain_log(k, scale)), log_p);
    *accepted = ki_t_binary(k, KN_AND, ki_t_ge(k, h.candidate, L(0)), ki_t_binary(k, KN_OR, h.quick, below));
    return n;
}

/* n trials (a) of probability b, at most 1/2. */
static kn_uop binomial_try(kn_ctx *k, const family *f, kn_uop plane, kn_uop *accepted) {
    kn_uop n = f->a, x = f->b;
    if (accepted) *accepted = NULL;
    if (!n || !x) return NULL;
    kn_uop mean = ki_t_mul(k, n, x), large = ki_t_ge(k, mean, L(INVERSE_BELOW)); /* below, it is not used */
    n = ki_t_where(k, large, n, L(40));
    x = ki_t_where(k, large, x, L(0.25));
    kn_uop other = ki_t_sub(k, L(1), x), deviation = ki_t_sqrt(k, ki_t_mul(k, ki_t_mul(k, n, x), other));
    hat h = {.b = ki_t_add(k, L(1.15), ki_t_mul(k, L(2.53), deviation)),
             .centre = ki_t_add(k, ki_t_mul(k, n, x), L(0.5))};
    h.a = ki_t_add(k, ki_t_add(k, L(-0.0873), ki_t_mul(k, L(0.0248), h.b)), ki_t_mul(k, L(0.01), x));
    h.ratio = ki_t_sub(k, L(0.92), ki_t_div(k, L(4.2), h.b));
    if (!hat_at(k, f, plane, &h)) return NULL;
    kn_uop v = ki_t_min(k, ki_t_max(k, h.candidate, L(0)), n);
    if (!accepted) return v;
    kn_uop mode = ki_t_floor(k, ki_t_mul(k, ki_t_add(k, n, L(1)), x));
    kn_uop scale = ki_t_mul(k, ki_t_add(k, L(2.83), ki_t_div(k, L(5.1), h.b)), deviation);
    kn_uop there = ki_t_add(k, log_factorial(k, mode), log_factorial(k, ki_t_sub(k, n, mode)));
    kn_uop here = ki_t_add(k, log_factorial(k, v), log_factorial(k, ki_t_sub(k, n, v)));
    kn_uop odds = ki_t_mul(k, ki_t_sub(k, v, mode), ki_plain_log(k, ki_t_div(k, x, other)));
    kn_uop below =
        ki_t_le(k, ki_t_add(k, h.log_height, ki_plain_log(k, scale)), ki_t_add(k, ki_t_sub(k, there, here), odds));
    *accepted = ki_t_binary(k, KN_AND, ki_t_eq(k, v, h.candidate), ki_t_binary(k, KN_OR, h.quick, below));
    return v;
}

/* How many sums of p, p r(0), p r(0) r(1), ... a random number in (0, 1] is above. r(j) = (rise + fall j) / (j + 1). */
static kn_uop inverse(kn_ctx *k, const family *f, kn_uop p, kn_uop rise, kn_uop fall) {
    kn_uop x = ki_plain_middle(k, plane_of(k, f, COUNT_TRIES), KN_F64), sum = p, n = x ? L(0) : NULL;
    for (int j = 0; j < TERMS && n; j++) {
        n = ki_t_add(k, n, ki_t_where(k, ki_t_gt(k, x, sum), L(1), L(0)));
        kn_uop step = fall ? ki_t_add(k, rise, ki_t_mul(k, fall, L(j))) : rise;
        p = ki_t_mul(k, p, ki_t_mul(k, step, L(1.0 / (j + 1))));
        sum = ki_t_add(k, sum, p);
    }
    return n;
}

static kn_uop poisson(kn_ctx *k, const family *f) {
    kn_uop x = f->a, many = first_accepted(k, f, poisson_try, 0, COUNT_TRIES, 1);
    if (!x || !many) return NULL;
    kn_uop few = ki_t_lt(k, x, L(INVERSE_BELOW)), rate = ki_t_where(k, few, x, L(1));
    kn_uop v = ki_t_where(k, few, inverse(k, f, ki_plain_exp(k, ki_t_neg(k, rate)), rate, NULL), many);
    return ki_t_where(k, ki_t_ge(k, x, L(0)), v, L(NAN));
}

static kn_uop binomial(kn_ctx *k, const family *whole) {
    kn_uop n = whole->a, x = whole->b;
    if (!n || !x) return NULL;
    kn_uop right =
        ki_t_binary(k, KN_AND, ki_t_ge(k, n, L(0)), ki_t_binary(k, KN_AND, ki_t_ge(k, x, L(0)), ki_t_le(k, x, L(1))));
    kn_uop likely = ki_t_gt(k, x, L(0.5)), p = ki_t_where(k, likely, ki_t_sub(k, L(1), x), x);
    family f = *whole;
    f.a = ki_t_where(k, right, ki_t_floor(k, n), L(0));
    f.b = ki_t_where(k, right, p, L(0));
    kn_uop many = first_accepted(k, &f, binomial_try, 0, COUNT_TRIES, 1),
           few = ki_t_lt(k, ki_t_mul(k, f.a, f.b), L(INVERSE_BELOW));
    kn_uop trials = ki_t_where(k, few, f.a, L(1)), other = ki_t_sub(k, L(1), f.b), odds = ki_t_div(k, f.b, other);
    kn_uop none = ki_plain_exp(k, ki_t_mul(k, trials, ki_plain_log(k, other)));
    kn_uop v = ki_t_where(k, few, inverse(k, &f, none, ki_t_mul(k, trials, odds), ki_t_neg(k, odds)), many);
    return ki_t_where(k, right, ki_t_where(k, likely, ki_t_sub(k, f.a, v), v), L(NAN));
}

/* ---- public ------------------------------------------------------------------------------------------------ */

/* What is drawn: parameters as they meet, in a row; the shape and dtype that the result will have. */
typedef struct draw {
    family f;
    ki_stream of;
    ki_shape shape;
    kn_dtype t;
} draw;

/* Parameters a and b (NULL: none), of which draws take so many planes. Nothing flows back into them. */
static bool draw_open(kn_ctx *k, draw *o, kn_tensor a, kn_tensor b, int64_t planes, kn_tensor key) {
    kn_uop p[2] = {a->u, NULL};
    if (b) ki_meet(k, a, b, &p[0], &p[1]);
    o->t = ki_fraction((kn_dtype)p[0]->dtype);
    if (b) o->t = ki_fraction(ki_promote((kn_dtype)p[0]->dtype, (kn_dtype)p[1]->dtype));
    if (b && !ki_broadcast(k, &p[0], &p[1])) return false;
    kn_uop wide = b && !ki_rank(p[0]) ? p[1] : p[0];
    if (!ki_shape_known(k, wide)) return false;
    o->shape = ki_shape_like(wide);
    o->f.m = ki_numel(wide);
    for (int i = 0; i < 2 && p[i]; i++) {
        p[i] = ki_t_broadcast_to(k, ki_t_cast(k, ki_op1(&k->ir, KN_DETACH, p[i]), KN_F64), &o->shape);
        p[i] = p[i] ? RESHAPE(p[i], 1, o->f.m) : NULL;
    }
    o->f.a = p[0];
    o->f.b = p[1];
    o->f.place = RESHAPE(ki_t_iota(k, o->f.m, KN_U64), 1, o->f.m);
    o->f.of = &o->of;
    return p[0] && o->f.place && ki_stream_open(k, &o->of, key, planes * o->f.m);
}
static kn_tensor drawn(kn_ctx *k, const draw *o, kn_uop y) {
    return ki_handle(k, ki_t_cast(k, ki_t_reshape_to(k, y, &o->shape), o->t));
}
#define OPEN(name, a, b, planes, key)                                                                                  \
    draw o;                                                                                                            \
    kn_tensor bad = ki_key_enter(k, name, key);                                                                        \
    if (bad) return bad;                                                                                               \
    if (!draw_open(k, &o, a, b, planes, key)) return ki_handle(k, NULL)

kn_tensor kn_gamma(kn_tensor a, kn_tensor key) {
    ENTER_("gamma", 2, a, key);
    OPEN("gamma", a, NULL, GAMMA_PLANES, key);
    return drawn(k, &o, ki_plain_exp(k, log_gamma(k, &o.f, 0)));
}
kn_tensor kn_chi_square(kn_tensor df, kn_tensor key) {
    ENTER_("chi_square", 2, df, key);
    OPEN("chi_square", df, NULL, GAMMA_PLANES, key);
    kn_uop x = o.f.a = ki_t_mul(k, o.f.a, ki_t_lit(k, o.f.a, 0.5));
    return drawn(k, &o, x ? ki_t_mul(k, L(2), ki_plain_exp(k, log_gamma(k, &o.f, 0))) : NULL);
}
/* A normal number over the root of chi_square(df) / df. */
kn_tensor kn_student_t(kn_tensor df, kn_tensor key) {
    ENTER_("student_t", 2, df, key);
    OPEN("student_t", df, NULL, GAMMA_PLANES + 1, key);
    kn_uop x = o.f.a = ki_t_mul(k, o.f.a, ki_t_lit(k, o.f.a, 0.5));
    kn_uop z = ki_normal(k, plane_of(k, &o.f, GAMMA_PLANES), KN_F64),
           log_root = ki_t_sub(k, ki_plain_log(k, x), log_gamma(k, &o.f, 0));
    return drawn(k, &o, x ? ki_t_mul(k, z, ki_plain_exp(k, ki_t_mul(k, L(0.5), log_root))) : NULL);
}
kn_tensor kn_beta(kn_tensor a, kn_tensor b, kn_tensor key) {
    ENTER_("beta", 4, a, b, key);
    OPEN("beta", a, b, 2 * GAMMA_PLANES, key);
    family other = o.f;
    other.a = o.f.b;
    kn_uop x = log_gamma(k, &o.f, 0), y = log_gamma(k, &other, GAMMA_PLANES);
    if (!x || !y) return ki_handle(k, NULL);
    return drawn(k, &o, ki_t_div(k, L(1), ki_t_add(k, L(1), ki_plain_exp(k, ki_t_sub(k, y, x)))));
}
/* Gammas over their sum, along the last axis. */
kn_tensor kn_dirichlet(kn_tensor a, kn_tensor key) {
    ENTER_("dirichlet", 2, a, key);
    int axis = ki_axis(k, -1, ki_rank(a->u));
    if (axis < 0) return ki_handle(k, NULL);
    OPEN("dirichlet", a, NULL, GAMMA_PLANES, key);
    uint32_t last = UINT32_C(1) << axis;
    kn_uop x = ki_t_reshape_to(k, log_gamma(k, &o.f, 0), &o.shape);
    if (!x || !o.f.m) return drawn(k, &o, x);
    x = ki_plain_exp(k, ki_t_sub(k, x, ki_t_max_over(k, x, last)));
    return drawn(k, &o, ki_t_div(k, x, ki_t_sum(k, x, last)));
}
kn_tensor kn_poisson(kn_tensor rate, kn_tensor key) {
    ENTER_("poisson", 2, rate, key);
    OPEN("poisson", rate, NULL, COUNT_TRIES + 1, key);
    return drawn(k, &o, poisson(k, &o.f));
}
kn_tensor kn_binomial(kn_tensor n, kn_tensor p, kn_tensor key) {
    ENTER_("binomial", 4, n, p, key);
    OPEN("binomial", n, p, COUNT_TRIES + 1, key);
    return drawn(k, &o, binomial(k, &o.f));
}
