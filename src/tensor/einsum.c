/* einsum.c: sums of products over named axes.
 *
 * An expression becomes terms, each a value and the labels of its axes. A label of one term alone that the result lacks is
 * summed at once; then pairs of terms become one, each a product over (shared kept, left, summed, right) axes and a sum: the
 * form of kn_matmul, which the heuristics for products know. Which pair is next: the cheapest order of all (over subsets)
 * for few terms, for many the pair that leaves least behind. An axis of 1 beside a longer one of its label is dropped. */
#include "tensor/build.h"

#include <string.h>

enum { LETTERS = 52, LABELS = 64, FEW = 10, MOST = 64 };

typedef struct term {
    kn_uop u;
    uint64_t has;
    uint8_t label[KI_MAX_RANK]; /* of each axis of u */
} term;

typedef struct einsum {
    kn_ctx *k;
    term t[MOST];
    unsigned n;
    ki_dim size[LABELS];
    unsigned nlabel;
    uint8_t out[KI_MAX_RANK];
    unsigned nout;
    uint64_t kept; /* labels of the result */
} einsum;

#define BIT(l) (UINT64_C(1) << (l))

/* ---- one pair ---------------------------------------------------------------------------------------------- */

/* The term's axes in the given order of labels, of size 1 where it lacks one. */
static kn_uop laid_out(kn_ctx *k, const term *t, const uint8_t *order, unsigned n) {
    int64_t at[KI_MAX_RANK];
    unsigned own = 0;
    ki_shape s = {.n = n};
    for (unsigned i = 0; i < n; i++) {
        s.d[i] = (ki_dim){1, NULL};
        for (unsigned j = 0; j < ki_rank(t->u); j++)
            if (t->label[j] == order[i]) at[own++] = j, s.d[i] = t->u->type->dim[j];
    }
    kn_uop u = own ? ki_permute(&k->ir, t->u, at, own) : t->u;
    return ki_t_reshape_to(k, u, &s);
}

static unsigned append(const term *t, uint64_t which, uint8_t *order, unsigned n) {
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        if (which & BIT(t->label[i])) {
            if (n < KI_MAX_RANK) order[n] = t->label[i];
            n++;
        }
    return n;
}

/* t summed over the axes that are not kept. */
static bool sum_alone(kn_ctx *k, term *t, uint64_t kept) {
    uint32_t axes = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        if (kept & BIT(t->label[i])) t->label[n++] = t->label[i];
        else axes |= UINT32_C(1) << i;
    if (axes) t->u = ki_t_squeeze(k, ki_t_reduce(k, t->u, KN_ADD, axes), axes);
    t->has &= kept;
    return t->u != NULL;
}

/* a becomes the product of a and b, summed over what is not kept. */
static bool contract(kn_ctx *k, term *a, const term *b, uint64_t kept) {
    uint8_t order[KI_MAX_RANK];
    uint64_t both = a->has & b->has, sum = both & ~kept;
    unsigned n = append(a, both & kept, order, 0);
    n = append(a, a->has & ~both, order, n);
    unsigned first = n;
    n = append(a, sum, order, n);
    unsigned last = n;
    n = append(b, b->has & ~both, order, n);
    if (n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    kn_uop p = ki_t_mul(k, laid_out(k, a, order, n), laid_out(k, b, order, n));
    if (!p) return false;
    uint32_t axes = ((UINT32_C(1) << (last - first)) - 1) << first;
    if (axes) p = ki_t_squeeze(k, ki_t_reduce(k, p, KN_ADD, axes), axes);
    memcpy(a->label, order, first);
    memcpy(a->label + first, order + last, n - last);
    a->u = p;
    a->has = (a->has | b->has) & ~sum;
    return p != NULL;
}

/* ---- in which order ---------------------------------------------------------------------------------------- */

static double elements(const einsum *e, uint64_t has) {
    double v = 1;
    for (; has; has &= has - 1) v *= (double)e->size[__builtin_ctzll(has)].n;
    return v;
}

/* Terms a < b become one, at a; the last takes the place of b. */
static bool join(einsum *e, unsigned a, unsigned b) {
    uint64_t kept = e->kept;
    for (unsigned i = 0; i < e->n; i++)
        if (i != a && i != b) kept |= e->t[i].has;
    /* The side whose axes come first in the result is the left one. */
    for (unsigned i = 0; i < e->nout; i++) {
        uint64_t l = BIT(e->out[i]);
        if (!((e->t[a].has ^ e->t[b].has) & l)) continue;
        if (e->t[b].has & l) {
            term swap = e->t[a];
            e->t[a] = e->t[b], e->t[b] = swap;
        }
        break;
    }
    if (!contract(e->k, &e->t[a], &e->t[b], kept)) return false;
    e->t[b] = e->t[--e->n];
    return true;
}

/* The pair whose product is smallest beside the two. */
static bool join_all_greedily(einsum *e) {
    while (e->n > 1) {
        double best = 0;
        unsigned a = 0, b = 1;
        for (unsigned i = 0; i < e->n; i++)
            for (unsigned j = i + 1; j < e->n; j++) {
                uint64_t kept = e->kept;
                for (unsigned o = 0; o < e->n; o++)
                    if (o != i && o != j) kept |= e->t[o].has;
                double more = elements(e, (e->t[i].has | e->t[j].has) & kept) - elements(e, e->t[i].has) -
                              elements(e, e->t[j].has);
                if ((i || j > 1) && more >= best) continue;
                best = more, a = i, b = j;
            }
        if (!join(e, a, b)) return false;
    }
    return true;
}

/* By subsets of the terms, as bits: the cheapest way to one value, as its left part. A pair costs its multiplications
 * and what it writes. */
static bool join_all_cheaply(einsum *e) {
    unsigned all = (1u << e->n) - 1;
    double cost[1 << FEW];
    uint16_t left[1 << FEW] = {0};
    uint64_t has[1 << FEW];
    for (unsigned s = 1; s <= all; s++) {
        uint64_t in = 0, kept = e->kept;
        for (unsigned i = 0; i < e->n; i++)
            if (s >> i & 1) in |= e->t[i].has;
            else kept |= e->t[i].has;
        has[s] = in & kept;
        cost[s] = 0;
        for (unsigned l = (s - 1) & s; l > (s & ~l); l = (l - 1) & s) { /* each split once */
            unsigned r = s & ~l;
            double c = cost[l] + cost[r] + elements(e, has[l] | has[r]) + elements(e, has[s]);
            if (!left[s] || c < cost[s]) cost[s] = c, left[s] = (uint16_t)l;
        }
    }
    /* From the whole down to the terms, then the pairs in reverse; a joined value stays at the place of its first term. */
    unsigned whole[FEW], n = 0;
    whole[n++] = all;
    for (unsigned i = 0; i < n; i++) {
        unsigned l = left[whole[i]], r = whole[i] & ~l;
        if (l & (l - 1)) whole[n++] = l;
        if (l && r & (r - 1)) whole[n++] = r;
    }
    unsigned at[FEW];
    for (unsigned i = 0; i < e->n; i++) at[i] = i;
    for (unsigned i = e->n > 1 ? n : 0; i-- > 0;) {
        unsigned l = left[whole[i]], x = at[__builtin_ctz(l)], y = at[__builtin_ctz(whole[i] & ~l)];
        unsigned a = x < y ? x : y, b = x < y ? y : x, moved = e->n - 1;
        if (!join(e, a, b)) return false;
        for (unsigned t = 0; t < FEW; t++) {
            if (!(all >> t & 1)) continue;
            if (at[t] == b) at[t] = a;
            else if (at[t] == moved) at[t] = b;
        }
    }
    return true;
}

static kn_uop result(einsum *e, kn_dtype dtype) {
    kn_ctx *k = e->k;
    for (unsigned i = 0; i < e->n; i++) {
        uint64_t kept = e->kept;
        for (unsigned j = 0; j < e->n; j++)
            if (j != i) kept |= e->t[j].has;
        if (!sum_alone(k, &e->t[i], kept)) return NULL;
    }
    if (!(e->n <= FEW ? join_all_cheaply(e) : join_all_greedily(e))) return NULL;
    return ki_t_cast(k, laid_out(k, &e->t[0], e->out, e->nout), dtype);
}

/* ---- operands ---------------------------------------------------------------------------------------------- */

/* An axis named twice: its diagonal. */
static bool diagonals(kn_ctx *k, term *t) {
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        for (unsigned j = i + 1; j < ki_rank(t->u);) {
            if (t->label[i] != t->label[j]) {
                j++;
                continue;
            }
            unsigned rank = ki_rank(t->u);
            t->u = ki_t_diagonal(k, ki_t_move(k, ki_t_move(k, t->u, j, rank - 1), i, rank - 2), 0);
            if (!t->u) return false;
            t->u = ki_t_move(k, t->u, rank - 2, i);
            memmove(t->label + j, t->label + j + 1, rank - 1 - j);
        }
    return t->u != NULL;
}

/* Axes of 1 whose label is longer elsewhere go; what is left has each label once. */
static bool settle(einsum *e, term *t) {
    uint32_t drop = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        if (ki_is_one(t->u->type->dim[i]) && !ki_is_one(e->size[t->label[i]])) drop |= UINT32_C(1) << i;
        else t->label[n++] = t->label[i];
    if (drop) t->u = ki_t_squeeze(e->k, t->u, drop);
    if (!t->u || !diagonals(e->k, t)) return false;
    for (unsigned i = 0; i < ki_rank(t->u); i++) t->has |= BIT(t->label[i]);
    return true;
}

static bool common_dtype(kn_ctx *k, einsum *e, kn_dtype *out) {
    kn_dtype t = (kn_dtype)e->t[0].u->dtype;
    for (unsigned i = 1; i < e->n; i++) t = ki_promote(t, (kn_dtype)e->t[i].u->dtype);
    kn_dtype acc = ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : t;
    for (unsigned i = 0; i < e->n; i++)
        if (!(e->t[i].u = ki_t_cast(k, e->t[i].u, acc))) return false;
    *out = t;
    return true;
}

/* ---- the text ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    kn_ctx *k;
    const char *text, *p;
    int8_t of[LETTERS + KI_MAX_RANK]; /* labels of letters, then of the ellipsis' axes from the end; -1: none yet */
    unsigned spread;                  /* axes that an ellipsis stands for, at most */
} reader;

static bool bad_text(const reader *r, const char *why) {
    kn_ctx *k = r->k;
    return FAIL(KI_E_EINSUM_TEXT, r->text, why);
}

static int letter(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }

static void skip(reader *r) {
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\n') r->p++;
}

/* One term: letters and where the ellipsis stands (-1: nowhere), up to a ',' or "->" or the end. */
static bool read_term(reader *r, uint8_t *name, unsigned *n, int *dots) {
    *n = 0, *dots = -1;
    for (skip(r); *r->p && *r->p != ',' && *r->p != '-'; skip(r)) {
        if (*r->p == '.') {
            if (strncmp(r->p, "...", 3) != 0) return bad_text(r, "an ellipsis is three dots");
            if (*dots >= 0) return bad_text(r, "two ellipses in one term");
            *dots = (int)*n;
            r->p += 3;
            continue;
        }
        int l = letter(*r->p);
        if (l < 0) return bad_text(r, "an axis is a letter");
        if (*n == KI_MAX_RANK) return bad_text(r, "a term has 16 letters at most");
        name[(*n)++] = (uint8_t)l;
        r->p++;
    }
    return true;
}

static bool label_of(reader *r, einsum *e, unsigned name, uint8_t *out) {
    if (r->of[name] < 0) {
        if (e->nlabel == LABELS) return bad_text(r, "more than 64 axes are named");
        e->size[e->nlabel] = (ki_dim){1, NULL};
        r->of[name] = (int8_t)e->nlabel++;
    }
    *out = (uint8_t)r->of[name];
    return true;
}

static bool read_operand(reader *r, einsum *e, unsigned i) {
    kn_ctx *k = r->k;
    uint8_t name[KI_MAX_RANK];
    unsigned n;
    int dots;
    char shape[128];
    if (!read_term(r, name, &n, &dots)) return false;
    term *t = &e->t[i];
    unsigned rank = ki_rank(t->u), spread = dots >= 0 && rank >= n ? rank - n : 0;
    if (dots < 0 ? n != rank : n > rank)
        return FAIL(KI_E_EINSUM_RANK, r->text, i, dots < 0 ? "" : "at least ", n,
                    ki_shape_text(t->u->type, shape, sizeof shape));
    if (spread > r->spread) r->spread = spread;
    for (unsigned a = 0, at = 0; a < rank; a++) {
        bool in = dots >= 0 && (int)a >= dots && a < (unsigned)dots + spread;
        if (!label_of(r, e, in ? LETTERS + (unsigned)dots + spread - 1 - a : name[at++], &t->label[a])) return false;
        ki_dim *s = &e->size[t->label[a]], d = t->u->type->dim[a];
        if (ki_is_one(*s)) *s = d;
        else if (!ki_is_one(d) && !ki_same_dim(*s, d))
            return in ? FAIL(KI_E_EINSUM_SPREAD, r->text, (long long)s->n, (long long)d.n, i)
                      : FAIL(KI_E_EINSUM_SIZE, r->text, (name[at - 1] < 26 ? 'A' : 'a' - 26) + name[at - 1],
                             (long long)s->n, (long long)d.n, i);
    }
    return true;
}

static bool put_out(reader *r, einsum *e, unsigned name) {
    kn_ctx *k = r->k;
    if (r->of[name] < 0) return bad_text(r, "the result names an axis that no operand has");
    if (e->kept & BIT(r->of[name])) return bad_text(r, "the result names an axis twice");
    if (e->nout == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    e->kept |= BIT(r->of[name]);
    e->out[e->nout++] = (uint8_t)r->of[name];
    return true;
}
static bool put_spread(reader *r, einsum *e) {
    for (unsigned i = r->spread; i-- > 0;)
        if (!put_out(r, e, LETTERS + i)) return false;
    return true;
}

static bool read_result(reader *r, einsum *e) {
    uint8_t name[KI_MAX_RANK];
    unsigned n;
    int dots;
    if (r->p[1] != '>') return bad_text(r, "the result comes after ->");
    r->p += 2;
    if (!read_term(r, name, &n, &dots)) return false;
    if (*r->p) return bad_text(r, "nothing comes after the result");
    for (unsigned i = 0; i <= n; i++)
        if (((int)i == dots && !put_spread(r, e)) || (i < n && !put_out(r, e, name[i]))) return false;
    return true;
}

/* Without a result: the ellipsis, then the letters that stand once, in the order of the alphabet. */
static bool implied_result(reader *r, einsum *e) {
    unsigned times[LETTERS] = {0};
    for (const char *p = r->text; *p; p++)
        if (letter(*p) >= 0) times[letter(*p)]++;
    if (!put_spread(r, e)) return false;
    for (unsigned i = 0; i < LETTERS; i++)
        if (times[i] == 1 && !put_out(r, e, i)) return false;
    return true;
}

static bool read_all(reader *r, einsum *e) {
    kn_ctx *k = r->k;
    for (unsigned i = 0;; i++) {
        if (i == e->n) return FAIL(KI_E_EINSUM_COUNT, r->text, "more", e->n);
        if (!read_operand(r, e, i)) return false;
        if (*r->p == ',') r->p++;
        else if (i + 1 < e->n) return FAIL(KI_E_EINSUM_COUNT, r->text, "fewer", e->n);
        else break;
    }
    return *r->p ? read_result(r, e) : implied_result(r, e);
}

static kn_uop einsum_of(kn_ctx *k, const char *text, const kn_tensor *t, unsigned n) {
    einsum *e = ki_calloc(1, sizeof *e);
    reader r = {.k = k, .text = text, .p = text};
    kn_uop u = NULL;
    kn_dtype dtype;
    if (!e) return FAIL(KI_E_NOMEM);
    memset(r.of, -1, sizeof r.of);
    e->k = k, e->n = n;
    for (unsigned i = 0; i < n; i++) e->t[i].u = t[i]->u;
    bool ok = read_all(&r, e) && common_dtype(k, e, &dtype);
    for (unsigned i = 0; i < n && ok; i++) ok = settle(e, &e->t[i]);
    if (ok) u = result(e, dtype);
    ki_free(e);
    return u;
}

kn_tensor kn_einsum(const char *expression, const kn_tensor *t, size_t n) {
    kn_ctx *k;
    if (!t || n == 0) return NULL;
    kn_tensor bad = ki_enter(&k, "einsum", t, n, 0);
    if (bad || !k) return bad;
    if (n > MOST) return FAIL(KI_E_EINSUM_MANY, n, (int)MOST), ki_handle(k, NULL);
    if (!ki_given(k, k->fn, "expression", expression)) return ki_handle(k, NULL);
    return ki_handle(k, einsum_of(k, expression, t, (unsigned)n));
}

/* ---- the same with axes given as lists --------------------------------------------------------------------- */

/* Over pairs of axes; the axes left of a, then those of b. */
static kn_uop product_over(kn_ctx *k, kn_uop a, kn_uop b, kn_ints over_a, kn_ints over_b) {
    uint32_t bits;
    if (!ki_axes(k, over_a, ki_rank(a), &bits) || !ki_axes(k, over_b, ki_rank(b), &bits)) return NULL;
    if (over_a.n != over_b.n) return FAIL(KI_E_TENSORDOT_COUNT, (long long)over_a.n, (long long)over_b.n);
    einsum *e = ki_calloc(1, sizeof *e);
    if (!e) return FAIL(KI_E_NOMEM);
    kn_dtype dtype;
    kn_uop u = NULL;
    *e = (einsum){.k = k, .t = {{.u = a}, {.u = b}}, .n = 2};
    bool ok = common_dtype(k, e, &dtype);
    for (unsigned i = 0; ok && i < ki_rank(a); i++) e->t[0].label[i] = (uint8_t)i, e->t[0].has |= BIT(i);
    for (unsigned i = 0; ok && i < ki_rank(b); i++) e->t[1].label[i] = (uint8_t)(KI_MAX_RANK + i);
    for (int64_t i = 0; ok && i < over_a.n; i++) {
        unsigned x = (unsigned)ki_axis(k, over_a.v[i], ki_rank(a)), y = (unsigned)ki_axis(k, over_b.v[i], ki_rank(b));
        e->t[1].label[y] = (uint8_t)x;
        ok = ki_same_dim(a->type->dim[x], b->type->dim[y]) ||
             FAIL(KI_E_TENSORDOT_SIZE, k->fn, x, (long long)ki_dim_n(a, x), y, (long long)ki_dim_n(b, y));
    }
    for (unsigned i = 0; ok && i < ki_rank(b); i++) e->t[1].has |= BIT(e->t[1].label[i]);
    uint64_t both = e->t[0].has & e->t[1].has;
    if (ok && contract(k, &e->t[0], &e->t[1], ~both)) u = ki_t_cast(k, e->t[0].u, dtype);
    ki_free(e);
    return u;
}

kn_tensor kn_tensordot(kn_tensor a, kn_tensor b, kn_ints axes_a, kn_ints axes_b) {
    ENTER("tensordot", a, b);
    return ki_handle(k, product_over(k, a->u, b->u, axes_a, axes_b));
}

kn_tensor kn_inner(kn_tensor a, kn_tensor b) {
    ENTER("inner", a, b);
    if (!ki_rank(a->u) || !ki_rank(b->u)) return ki_handle(k, ki_t_mul(k, a->u, b->u));
    kn_ints last = {.n = 1, .v = {-1}};
    return ki_handle(k, product_over(k, a->u, b->u, last, last));
}
