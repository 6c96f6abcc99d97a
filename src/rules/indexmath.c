/* indexmath.c: arithmetic of `index` as linear forms. What the rules of divmod.kr cannot say is said here: sums of any
 * number of terms. `index` is a mathematical integer; where a constant would leave int64 there is no match.
 *
 * Whoever edits this: each function must return its argument's value, exactly, for every value of the terms within
 * their bounds, and must return NULL when it would give back the node it was given. */
#include "rules/given.h"

#include "base/whole.h"

#include <string.h>

/* ---- linear forms ------------------------------------------------------------------------------------------ */

static bool add_term(ki_linear *l, int64_t coef, kn_uop t) {
    unsigned at = 0;
    while (at < l->n && l->term[at]->id < t->id) at++;
    if (at < l->n && l->term[at] == t) {
        if (ki_add_overflow(l->coef[at], coef, &l->coef[at])) return false;
        if (l->coef[at]) return true;
        memmove(l->coef + at, l->coef + at + 1, (l->n - at - 1) * sizeof *l->coef);
        memmove(l->term + at, l->term + at + 1, (l->n - at - 1) * sizeof *l->term);
        l->n--;
        return true;
    }
    if (l->n == KI_MAX_TERMS || coef == 0) return coef == 0;
    memmove(l->coef + at + 1, l->coef + at, (l->n - at) * sizeof *l->coef);
    memmove(l->term + at + 1, l->term + at, (l->n - at) * sizeof *l->term);
    l->coef[at] = coef;
    l->term[at] = t;
    l->n++;
    return true;
}

static bool add_scaled(ki_linear *l, kn_uop root, int64_t scale) {
    struct {
        kn_uop u;
        int64_t c;
    } stack[128];
    unsigned n = 0;
    stack[n].u = root;
    stack[n++].c = scale;
    while (n) {
        kn_uop u = stack[--n].u;
        int64_t c = stack[n].c, v;
        if (n + 2 > 128) return false;
        if (u->op == KN_CONST) {
            if (ki_mul_overflow(u->arg.i, c, &v) || ki_add_overflow(l->k, v, &l->k)) return false;
        } else if (u->op == KN_ADD || u->op == KN_SUB) {
            stack[n].u = u->src[0];
            stack[n++].c = c;
            stack[n].u = u->src[1];
            if (ki_mul_overflow(c, u->op == KN_SUB ? -1 : 1, &stack[n++].c)) return false;
        } else if (u->op == KN_NEG) {
            stack[n].u = u->src[0];
            if (ki_mul_overflow(c, -1, &stack[n++].c)) return false;
        } else if (u->op == KN_MUL && (u->src[1]->op == KN_CONST || u->src[0]->op == KN_CONST)) {
            unsigned k = u->src[1]->op == KN_CONST;
            stack[n].u = u->src[1 - k];
            if (ki_mul_overflow(c, u->src[k]->arg.i, &stack[n++].c)) return false;
        } else if (!add_term(l, c, u)) {
            return false;
        }
    }
    return true;
}

bool ki_linear_of(kn_uop u, ki_linear *out) {
    out->k = 0;
    out->n = 0;
    return add_scaled(out, u, 1);
}

static kn_uop scaled(ki_ir *ir, kn_uop t, int64_t c) { return c == 1 ? t : ki_op2(ir, KN_MUL, t, ki_index(ir, c)); }

kn_uop ki_linear_uop(ki_ir *ir, const ki_linear *l) {
    kn_uop s = NULL;
    for (unsigned i = 0; i < l->n; i++) {
        kn_uop t = scaled(ir, l->term[i], l->coef[i]);
        s = s ? ki_op2(ir, KN_ADD, s, t) : t;
    }
    if (!s) return ki_index(ir, l->k);
    return l->k ? ki_op2(ir, KN_ADD, s, ki_index(ir, l->k)) : s;
}

static int64_t clip(ki_int128 v) { return v <= INT64_MIN ? INT64_MIN : v >= INT64_MAX ? INT64_MAX : (int64_t)v; }
void ki_linear_bounds(const ki_linear *l, int64_t *lo, int64_t *hi) {
    ki_int128 a = l->k, b = l->k;
    bool open_lo = false, open_hi = false;
    for (unsigned i = 0; i < l->n; i++) {
        int64_t c = l->coef[i], tl = l->term[i]->lo.i, th = l->term[i]->hi.i;
        a += (ki_int128)c * (c > 0 ? tl : th);
        b += (ki_int128)c * (c > 0 ? th : tl);
        open_lo |= c > 0 ? tl == INT64_MIN : th == INT64_MAX;
        open_hi |= c > 0 ? th == INT64_MAX : tl == INT64_MIN;
    }
    *lo = open_lo ? INT64_MIN : clip(a);
    *hi = open_hi ? INT64_MAX : clip(b);
}

static kn_uop changed(ki_match *m, kn_uop u) { return u == m->root ? NULL : u; }

/* ---- sums -------------------------------------------------------------------------------------------------- */

static bool const_divisor(kn_uop u, kn_op op, int64_t *c) {
    if (u->op != op || u->src[1]->op != KN_CONST || u->src[1]->arg.i <= 0) return false;
    *c = u->src[1]->arg.i;
    return true;
}

/* a·(x % c) + a·c·(x / c) = a·x, and with (x / c) % d instead of x / c it is a·(x % (c·d)). */
static bool join(ki_ir *ir, ki_linear *l) {
    for (unsigned i = 0; i < l->n; i++) {
        int64_t c, d, want;
        if (!const_divisor(l->term[i], KN_MOD, &c) || ki_mul_overflow(l->coef[i], c, &want)) continue;
        kn_uop x = l->term[i]->src[0];
        for (unsigned j = 0; j < l->n; j++) {
            kn_uop q = l->term[j], whole = NULL;
            int64_t e, cd;
            if (l->coef[j] != want) continue;
            if (const_divisor(q, KN_IDIV, &e) && e == c && q->src[0] == x) whole = x;
            else if (const_divisor(q, KN_MOD, &d) && const_divisor(q->src[0], KN_IDIV, &e) && e == c &&
                     q->src[0]->src[0] == x && !ki_mul_overflow(c, d, &cd))
                whole = ki_op2(ir, KN_MOD, x, ki_index(ir, cd));
            if (!whole) continue;
            int64_t a = l->coef[i];
            kn_uop ti = l->term[i], tj = q;
            if (!add_term(l, -a, ti) || !add_term(l, -want, tj)) return false;
            return add_scaled(l, whole, a);
        }
    }
    return false;
}

static bool is_scaled(kn_uop u, kn_uop t, int64_t c) {
    return c == 1 ? u == t : u->op == KN_MUL && u->src[0] == t && ki_is_const_int(u->src[1], c);
}

/* What ki_linear_uop would make of l is u; told without making it. */
static bool is_written(kn_uop u, const ki_linear *l) {
    unsigned n = l->n;
    if (n && l->k) {
        if (u->op != KN_ADD || !ki_is_const_int(u->src[1], l->k)) return false;
        u = u->src[0];
    }
    for (; n > 1; n--, u = u->src[0])
        if (u->op != KN_ADD || !is_scaled(u->src[1], l->term[n - 1], l->coef[n - 1])) return false;
    return n == 1 && is_scaled(u, l->term[0], l->coef[0]);
}

kn_uop ki_index_sum(ki_match *m) {
    ki_linear l;
    if (!ki_linear_of(m->root, &l)) return NULL;
    while (join(m->ir, &l)) {
    }
    return is_written(m->root, &l) ? NULL : ki_linear_uop(m->ir, &l);
}

/* ---- division ---------------------------------------------------------------------------------------------- */

bool ki_one_period(const ki_linear *l, int64_t c, bool sign, const struct ki_facts *facts, ki_linear *q, ki_linear *r) {
    int64_t lo, hi;
    q->n = r->n = 0;
    q->k = 0;
    r->k = l->k;
    for (unsigned i = 0; i < l->n; i++) {
        int64_t a = ki_floor_mod(l->coef[i], c);
        if (sign && a > c - a) a -= c;
        if (!add_term(q, ki_floor_div(l->coef[i] - a, c), l->term[i]) || !add_term(r, a, l->term[i])) return false;
    }
    ki_linear_bounds(r, &lo, &hi);
    if (facts) ki_facts_tighten(facts, r, &lo, &hi);
    if (lo == INT64_MIN || hi == INT64_MAX) return false;
    int64_t p = ki_floor_div(lo, c);
    if (p != ki_floor_div(hi, c)) return false;
    q->k += p;
    r->k -= p * c;
    return true;
}

/* Terms whose coefficient g divides, with the constant's multiple of g; the others, y, stay in [0, g). */
static bool split_by(const ki_linear *l, int64_t g, ki_linear *a, ki_linear *y) {
    int64_t lo, hi;
    a->n = y->n = 0;
    y->k = ki_floor_mod(l->k, g);
    a->k = ki_floor_div(l->k, g);
    for (unsigned i = 0; i < l->n; i++)
        if (!(l->coef[i] % g ? add_term(y, l->coef[i], l->term[i]) : add_term(a, l->coef[i] / g, l->term[i])))
            return false;
    ki_linear_bounds(y, &lo, &hi);
    return lo >= 0 && hi < g && a->n > 0;
}

static kn_uop over(ki_ir *ir, const ki_linear *l, int64_t c, kn_op op) {
    kn_uop u = ki_linear_uop(ir, l);
    if (c == 1) return op == KN_IDIV ? u : ki_index(ir, 0);
    return ki_op2(ir, op, u, ki_index(ir, c));
}

/* l = q·c + r with the remainders nearest to zero, if r then varies less than l and within two periods: q and r / c are
 * bounded apart, so a long r would only lose what is known of their sum. */
static bool nearest(const ki_linear *l, int64_t c, ki_linear *q, ki_linear *r) {
    int64_t lo, hi, rlo, rhi;
    q->n = r->n = 0;
    q->k = 0;
    r->k = l->k;
    for (unsigned i = 0; i < l->n; i++) {
        int64_t a = ki_floor_mod(l->coef[i], c);
        if (a > c - a) a -= c;
        if (!add_term(q, ki_floor_div(l->coef[i] - a, c), l->term[i]) || !add_term(r, a, l->term[i])) return false;
    }
    ki_linear_bounds(l, &lo, &hi);
    ki_linear_bounds(r, &rlo, &rhi);
    if (rlo == INT64_MIN || rhi == INT64_MAX || q->n == 0 || (ki_int128)rhi - rlo >= 2 * (ki_int128)c) return false;
    return lo == INT64_MIN || hi == INT64_MAX || (ki_int128)rhi - rlo < (ki_int128)hi - lo;
}

kn_uop ki_index_div(ki_match *m) {
    ki_linear l, q, r;
    int64_t c;
    if (!const_divisor(m->root, KN_IDIV, &c) || !ki_linear_of(m->root->src[0], &l)) return NULL;
    for (int sign = 0; sign < 2; sign++)
        if (ki_one_period(&l, c, sign, NULL, &q, &r)) return changed(m, ki_linear_uop(m->ir, &q));
    for (unsigned i = 0; i < l.n; i++) {
        int64_t g = ki_gcd(l.coef[i], c);
        if (g > 1 && split_by(&l, g, &q, &r)) return changed(m, over(m->ir, &q, c / g, KN_IDIV));
    }
    if (nearest(&l, c, &q, &r))
        return changed(m, ki_op2(m->ir, KN_ADD, ki_linear_uop(m->ir, &q), over(m->ir, &r, c, KN_IDIV)));
    /* Whole multiples of c come out. */
    q.n = r.n = 0;
    q.k = ki_floor_div(l.k, c);
    r.k = ki_floor_mod(l.k, c);
    for (unsigned i = 0; i < l.n; i++)
        if (!(l.coef[i] % c ? add_term(&r, l.coef[i], l.term[i]) : add_term(&q, l.coef[i] / c, l.term[i]))) return NULL;
    if (!q.n && !q.k) return NULL;
    return changed(m, ki_op2(m->ir, KN_ADD, ki_linear_uop(m->ir, &q), over(m->ir, &r, c, KN_IDIV)));
}

kn_uop ki_index_mod(ki_match *m) {
    ki_linear l, q, r;
    int64_t c;
    if (!const_divisor(m->root, KN_MOD, &c) || !ki_linear_of(m->root->src[0], &l)) return NULL;
    for (int sign = 0; sign < 2; sign++)
        if (ki_one_period(&l, c, sign, NULL, &q, &r)) return changed(m, ki_linear_uop(m->ir, &r));
    for (unsigned i = 0; i < l.n; i++) {
        int64_t g = ki_gcd(l.coef[i], c);
        if (g <= 1 || !split_by(&l, g, &q, &r)) continue;
        kn_uop high = over(m->ir, &q, c / g, KN_MOD);
        return changed(m, ki_op2(m->ir, KN_ADD, scaled(m->ir, high, g), ki_linear_uop(m->ir, &r)));
    }
    if (nearest(&l, c, &q, &r)) return changed(m, over(m->ir, &r, c, KN_MOD));
    r.n = 0;
    r.k = ki_floor_mod(l.k, c);
    bool dropped = r.k != l.k;
    for (unsigned i = 0; i < l.n; i++) {
        if (l.coef[i] % c == 0) dropped = true;
        else if (!add_term(&r, l.coef[i], l.term[i])) return NULL;
    }
    return dropped ? changed(m, over(m->ir, &r, c, KN_MOD)) : NULL;
}

/* ---- comparison -------------------------------------------------------------------------------------------- */

/* x < y as Σ coef·term < c in lowest terms; what stays below the step of the others is dropped. */
kn_uop ki_index_lt(ki_match *m) {
    ki_linear l, a, y;
    ki_ir *ir = m->ir;
    int64_t lo, hi, g = 0, c;
    if (m->root->src[0]->dtype != KN_IDX || !ki_linear_of(m->root->src[0], &l) || !add_scaled(&l, m->root->src[1], -1))
        return NULL;
    ki_linear_bounds(&l, &lo, &hi);
    if (hi < 0 && hi != INT64_MAX) return ki_const_int(ir, KN_BOOL, 1);
    if (lo >= 0) return ki_const_int(ir, KN_BOOL, 0);
    /* Data may be any i64: the difference of two is none. */
    if (!ki_is_const(m->root->src[1]) && (lo == INT64_MIN || hi == INT64_MAX)) return NULL;
    for (unsigned i = 0; i < l.n; i++) g = ki_gcd(l.coef[i], g);
    /* Try the steps of single terms, largest first by trying all: a term smaller than the step only rounds. */
    for (unsigned i = 0; i < l.n; i++) {
        int64_t step = l.coef[i] < 0 ? -l.coef[i] : l.coef[i];
        if (step > g && step > 0 && split_by(&l, step, &a, &y) && y.n) { /* step·a + y < 0, 0 <= y < step */
            l = a;
            g = 0;
            for (unsigned j = 0; j < l.n; j++) g = ki_gcd(l.coef[j], g);
            break;
        }
    }
    if (g > 1) { /* g·s + k < 0  is  s < -k/g rounded up */
        for (unsigned i = 0; i < l.n; i++) l.coef[i] /= g;
        c = -ki_floor_div(l.k, g);
    } else if (ki_sub_overflow((int64_t)0, l.k, &c)) {
        return NULL;
    }
    l.k = 0;
    if (l.n == 0) return ki_const_int(ir, KN_BOOL, 0 < c);
    return changed(m, ki_op2(ir, KN_CMPLT, ki_linear_uop(ir, &l), ki_index(ir, c)));
}
