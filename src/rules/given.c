/* given.c: simplification under a condition.
 *
 * A conjunction is read as facts: linear forms with upper bounds. Quotients, remainders and comparisons inside an
 * expression are then decided with the tighter bounds. Nothing else is learnt from a condition; what is not
 * Σ coef·term < c is passed over. */
#include "rules/given.h"

#include <rules.h>

#include <stdio.h>
#include <string.h>

/* Least and greatest value of one term, by the facts on it alone. */
static void term_bounds(const ki_facts *f, kn_uop t, int64_t *lo, int64_t *hi) {
    *lo = t->lo.i;
    *hi = t->hi.i;
    for (unsigned i = 0; i < f->n; i++) {
        const ki_linear *l = &f->form[i];
        if (l->n != 1 || l->term[0] != t) continue;
        if (l->coef[0] == 1 && f->hi[i] < *hi) *hi = f->hi[i];
        if (l->coef[0] == -1 && -f->hi[i] > *lo) *lo = -f->hi[i];
    }
}

static int64_t coef_of(const ki_linear *l, kn_uop t) {
    for (unsigned i = 0; i < l->n; i++)
        if (l->term[i] == t) return l->coef[i];
    return 0;
}

/* How often `fact` stands in sign * l, all of its terms alike: 8 y - 8 r + x has 8 of y - r. 0: not once. */
static int64_t times_in(const ki_linear *l, const ki_linear *fact, int sign) {
    int64_t times = 0;
    for (unsigned i = 0; i < fact->n; i++) {
        int64_t c = sign * coef_of(l, fact->term[i]), f = fact->coef[i];
        if (c % f || c / f < 1 || (i && c / f != times)) return 0;
        times = c / f;
    }
    return times;
}

/* An upper bound of sign * (l less its constant) from facts on several terms at a time, fact `first`, which is one, before the
 * others, of the rest by each term. False: none. */
static bool bound_by_parts(const ki_facts *f, const ki_linear *l, int sign, unsigned first, ki_int128 *out) {
    if (!times_in(l, &f->form[first], sign)) return false; /* as with another one first */
    ki_linear rest = *l;
    *out = 0;
    for (unsigned j = 0; j < f->n; j++) {
        unsigned i = (first + j) % f->n;
        const ki_linear *fact = &f->form[i];
        int64_t times = fact->n > 1 ? times_in(&rest, fact, sign) : 0;
        if (!times) continue;
        *out += (ki_int128)times * f->hi[i];
        for (unsigned k = 0; k < rest.n; k++)
            if (coef_of(fact, rest.term[k])) rest.coef[k] = 0;
    }
    for (unsigned k = 0; k < rest.n; k++) {
        int64_t lo, hi, c = sign * rest.coef[k];
        term_bounds(f, rest.term[k], &lo, &hi);
        if (c && (c > 0 ? hi == INT64_MAX : lo == INT64_MIN)) return false;
        *out += (ki_int128)c * (c > 0 ? hi : lo);
    }
    return true;
}

void ki_facts_tighten(const ki_facts *f, const ki_linear *l, int64_t *lo, int64_t *hi) {
    ki_int128 a = l->k, b = l->k;
    bool open_a = false, open_b = false;
    for (unsigned i = 0; i < l->n; i++) {
        int64_t tl, th, c = l->coef[i];
        term_bounds(f, l->term[i], &tl, &th);
        a += (ki_int128)c * (c > 0 ? tl : th);
        b += (ki_int128)c * (c > 0 ? th : tl);
        open_a |= c > 0 ? tl == INT64_MIN : th == INT64_MAX;
        open_b |= c > 0 ? th == INT64_MAX : tl == INT64_MIN;
    }
    if (!open_a && a > *lo && a < INT64_MAX) *lo = (int64_t)a;
    if (!open_b && b < *hi && b > INT64_MIN) *hi = (int64_t)b;
    ki_int128 up;
    for (unsigned i = 0; i < f->n; i++) {
        if (f->form[i].n < 2) continue; /* looked at above */
        if (bound_by_parts(f, l, 1, i, &up) && up + l->k < *hi && up + l->k > INT64_MIN) *hi = (int64_t)(up + l->k);
        if (bound_by_parts(f, l, -1, i, &up) && l->k - up > *lo && l->k - up < INT64_MAX) *lo = (int64_t)(l->k - up);
    }
}

/* Bounds this side of 2^61 keep every sum above inside int64. */
static bool modest(int64_t v) { return v > -(INT64_C(1) << 61) && v < INT64_C(1) << 61; }

static void learn(ki_facts *f, kn_uop c) {
    if (f->n == KI_MAX_FACTS || c->op != KN_CMPLT || c->src[0]->dtype != KN_IDX || c->src[1]->op != KN_CONST) return;
    ki_linear *l = &f->form[f->n];
    if (!ki_linear_of(c->src[0], l) || !modest(l->k) || !modest(c->src[1]->arg.i)) return;
    f->hi[f->n++] = c->src[1]->arg.i - 1 - l->k;
    l->k = 0;
}

/* What the parts of a conjunction say, but for part number `but` (-1: all). */
static void learn_all(ki_facts *f, const kn_uop *part, unsigned n, int but) {
    f->n = 0; /* the rest is read up to n */
    for (unsigned k = 0; k < n; k++)
        if ((int)k != but) learn(f, part[k]);
}

/* x / c and x % c for the node `u`, where the facts leave x one period of c. */
static bool parted(kn_uop u, const ki_facts *f, ki_linear *q, ki_linear *r) {
    ki_linear l;
    if (!ki_linear_of(u->src[0], &l) || !modest(l.k)) return false;
    for (int sign = 0; sign < 2; sign++)
        if (ki_one_period(&l, u->src[1]->arg.i, sign, f, q, r)) return true;
    return false;
}

/* What the facts make of the comparison u with a constant: 1 true, 0 false, -1 open. */
static int truth(kn_uop u, const ki_facts *f) {
    ki_linear l;
    int64_t lo, hi, c = u->src[1]->arg.i;
    if (!ki_linear_of(u->src[0], &l) || !modest(l.k)) return -1;
    ki_linear_bounds(&l, &lo, &hi);
    ki_facts_tighten(f, &l, &lo, &hi);
    return hi < c ? 1 : lo >= c ? 0 : -1;
}

kn_uop ki_given_div(ki_match *m) {
    ki_linear q, r;
    return parted(m->root, m->user, &q, &r) ? ki_linear_uop(m->ir, &q) : NULL;
}

kn_uop ki_given_mod(ki_match *m) {
    ki_linear q, r;
    return parted(m->root, m->user, &q, &r) ? ki_linear_uop(m->ir, &r) : NULL;
}

kn_uop ki_given_lt(ki_match *m) {
    int yes = truth(m->root, m->user);
    return yes < 0 ? NULL : ki_const_int(m->ir, KN_BOOL, yes);
}

/* Would one of these rules fire in u? Without facts: is there anything that one could look at? What they leave alone is as
 * simple as it was. */
static bool decidable(ki_ir *ir, kn_uop u, const ki_facts *f) {
    const kn_uop *node;
    bool found = false;
    ki_linear q, r;
    int64_t n = ki_reach_above(ir, &u, 1, 0, &node);
    for (int64_t i = 0; i < n && !found; i++) {
        kn_uop x = node[i];
        bool divides = x->op == KN_IDIV || x->op == KN_MOD, compares = x->op == KN_CMPLT;
        if (!f->n) found = divides || compares;
        else if (!(divides || compares) || x->src[0]->dtype != KN_IDX || !ki_is_const(x->src[1])) continue;
        else if (compares) found = truth(x, f) >= 0;
        else found = x->src[1]->arg.i > 0 && parted(x, f, &q, &r);
    }
    return found;
}

static kn_uop rewritten(ki_ir *ir, kn_uop u, ki_facts *f) {
    static const ki_ruleset *const sets[] = {&ki_rules_given, &ki_rules_symbolic, &ki_rules_divmod};
    ki_rewrite_opts o = {.sets = sets, .nsets = 3, .driver = KI_FIXPOINT, .user = f};
    return decidable(ir, u, f) ? ki_rewrite(ir, u, &o) : u;
}
static kn_uop under(ki_ir *ir, kn_uop u, ki_facts *f) { return f->n ? rewritten(ir, u, f) : u; }

/* Reads inside an index: positions that are data. All that are reached but through another read, each once; one may stand
 * in another as well. -1: too many, or a failure. */
static int reads_in(ki_ir *ir, kn_uop x, kn_uop *read, int most) {
    kn_uop *order;
    int n = 0;
    int64_t count = ki_toposort(ir, &x, 1, &order);
    if (count < 0) return -1;
    for (int64_t i = 0; i < count && n == 0; i++) n = order[i]->op == KN_INDEX;
    ki_map *reached = n ? ki_map_take(ir) : NULL;
    if (n && !reached) return ki_free(order), -1;
    n = 0;
    if (reached) ki_map_set(reached, x, x);
    for (int64_t i = count; reached && i-- > 0;) {
        kn_uop u = order[i];
        if (!ki_map_get(reached, u)) continue;
        if (u->op == KN_INDEX && n++ < most) read[n - 1] = u;
        for (uint32_t k = 0; k < u->nsrc && u->op != KN_INDEX; k++) ki_map_set(reached, u->src[k], u);
    }
    ki_free(order);
    ki_map_give(ir, reached);
    return n > most ? -1 : n;
}

/* x under the facts, its reads left as they are: read[k] stands there as name[k]. Number of reads, -1: stays. *x is NULL
 * if the facts say nothing (names are younger than reads, so the order of terms is no news). */
enum { MOST_READS = 16 };
static int under_but_reads(ki_ir *ir, kn_uop *x, ki_facts *f, kn_uop *read, kn_uop *name) {
    int n = f->n ? reads_in(ir, *x, read, MOST_READS) : 0;
    if (n == 0) return (*x = under(ir, *x, f)) ? 0 : -1;
    for (int k = 0; k < n; k++) {
        char text[24];
        snprintf(text, sizeof text, "read %d", k);
        name[k] = ki_param_make(ir, -1, (kn_dtype)read[k]->dtype, KN_GLOBAL, 0, text, NULL, NULL);
        if (!name[k]) return -1;
    }
    kn_uop y = n > 0 ? ki_substitute(ir, *x, read, name, (size_t)n) : NULL, plain = y;
    if (y) plain = rewritten(ir, y, &(ki_facts){.n = 0}), y = rewritten(ir, plain, f);
    if (!y || !plain) return -1;
    *x = y == plain ? NULL : y;
    return n;
}

/* An index under the facts. Its reads happen whether they hold or not: each keeps its own condition. */
static kn_uop read_index_under(ki_ir *ir, kn_uop x, ki_facts *f) {
    kn_uop read[MOST_READS], name[MOST_READS], whole = x;
    int n = under_but_reads(ir, &x, f, read, name);
    return n > 0 && x ? ki_substitute(ir, x, name, read, (size_t)n) : n < 0 ? NULL : x ? x : whole;
}

/* Parts of a conjunction, oldest first, each once. 0: too many. */
unsigned ki_conjuncts(kn_uop c, kn_uop *part) {
    kn_uop stack[KI_MAX_TERMS];
    unsigned n = 0, depth = 0;
    stack[depth++] = c;
    while (depth) {
        kn_uop u = stack[--depth];
        if (u->op == KN_AND && u->dtype == KN_BOOL) {
            if (depth + 2 > KI_MAX_TERMS) return 0;
            stack[depth++] = u->src[0];
            stack[depth++] = u->src[1];
            continue;
        }
        unsigned at = 0;
        while (at < n && part[at]->id < u->id) at++;
        if (at < n && part[at] == u) continue;
        if (n == KI_MAX_TERMS) return 0;
        memmove(part + at + 1, part + at, (n - at) * sizeof *part);
        part[at] = u;
        n++;
    }
    return n;
}

/* A part under the facts of the others. Only one that divides needs rewriting; else its bounds decide it. */
static kn_uop decide(ki_ir *ir, kn_uop p, ki_facts *f) {
    ki_linear l;
    if (f->n == 0 || p->op != KN_CMPLT || p->src[0]->dtype != KN_IDX || p->src[1]->op != KN_CONST) return p;
    if (!ki_linear_of(p->src[0], &l) || !modest(l.k)) return p;
    for (unsigned i = 0; i < l.n; i++)
        if (l.term[i]->op == KN_IDIV || l.term[i]->op == KN_MOD) return read_index_under(ir, p, f);
    int yes = truth(p, f);
    return yes < 0 ? p : ki_const_int(ir, KN_BOOL, yes);
}

kn_uop ki_conjunction(ki_match *m) {
    kn_uop part[KI_MAX_TERMS], u = NULL;
    unsigned n = ki_conjuncts(m->root, part);
    if (!n) return NULL;
    /* Each under the others as they then stand: of two that imply each other one remains. */
    for (unsigned i = 0; i < n; i++) {
        ki_facts f;
        learn_all(&f, part, n, (int)i);
        kn_uop p = decide(m->ir, part[i], &f);
        if (!p) return NULL;
        part[i] = p;
    }
    for (unsigned i = 1; i < n; i++) /* by age again */
        for (unsigned j = i; j > 0 && part[j]->id < part[j - 1]->id; j--) {
            kn_uop t = part[j];
            part[j] = part[j - 1];
            part[j - 1] = t;
        }
    for (unsigned i = 0; i < n; i++) {
        if (ki_is_const_int(part[i], 0)) return part[i];
        if (ki_is_const_int(part[i], 1) || (i && part[i] == part[i - 1])) continue;
        u = u ? ki_op2(m->ir, KN_AND, u, part[i]) : part[i];
    }
    if (!u) u = ki_const_int(m->ir, KN_BOOL, 1);
    return u == m->root ? NULL : u;
}

/* Is `node` part of c? */
static bool reaches(ki_ir *ir, kn_uop c, kn_uop node) {
    kn_uop *order;
    if (c->id < node->id) return false;
    int64_t n = ki_toposort_above(ir, &c, 1, node->id - 1, &order);
    bool found = n < 0; /* a failure counts as yes */
    for (int64_t i = 0; i < n; i++) found |= order[i] == node;
    if (n >= 0) ki_free(order);
    return found;
}

/* A read that only matters where c holds, and that c does not ask for: its own condition gives way to c, and its index
 * is simplified under c. Where the index then stays inside the buffer for all values, no condition is left on it. NULL:
 * stays as it is. */
static kn_uop read_under(ki_ir *ir, kn_uop read, kn_uop c, const kn_uop *cs, unsigned nc, ki_facts *f) {
    if (read->nsrc != 2 || reaches(ir, c, read)) return NULL;
    kn_uop gated = read->src[1], part[KI_MAX_TERMS], b = read->src[0], i;
    if (gated->op != KN_WHERE || gated->src[2]->op != KN_INVALID) return NULL;
    unsigned n = ki_conjuncts(gated->src[0], part);
    /* Only where c says all of it: then the condition is c itself, and nothing is left to do a second time. */
    for (unsigned k = 0; k < n; k++) {
        bool said = part[k] == c;
        kn_uop p = said ? c : decide(ir, part[k], f);
        if (!p) return NULL;
        for (unsigned j = 0; j < nc; j++) said |= part[k] == cs[j];
        if (!said && !ki_is_const_int(p, 1)) return NULL;
    }
    if (!n || !(i = read_index_under(ir, gated->src[1], f))) return NULL;
    bool inside = b->type->rank == 1 && i->lo.i >= 0 && i->hi.i < b->type->numel;
    return ki_op2(ir, KN_INDEX, b, inside ? i : ki_op3(ir, KN_WHERE, c, i, gated->src[2]));
}

/* The same for an index used only where c holds: its reads may be gated by c instead. */
static kn_uop index_under(ki_ir *ir, kn_uop x, kn_uop c, const kn_uop *cs, unsigned nc, ki_facts *f) {
    kn_uop read[MOST_READS], name[MOST_READS], gated[MOST_READS], whole = x;
    int n = under_but_reads(ir, &x, f, read, name);
    for (int k = 0; k < n; k++) {
        gated[k] = read_under(ir, read[k], c, cs, nc, f);
        if (!gated[k]) gated[k] = read[k];
    }
    if (n <= 0) return n < 0 ? NULL : x;
    return x ? ki_substitute(ir, x, name, gated, (size_t)n) : ki_substitute(ir, whole, read, gated, (size_t)n);
}

kn_uop ki_given_index(ki_match *m) {
    kn_uop c = m->root->src[0], x = m->root->src[1], part[KI_MAX_TERMS];
    unsigned n = ki_conjuncts(c, part);
    ki_facts f;
    learn_all(&f, part, n, -1);
    kn_uop y = index_under(m->ir, x, c, part, n, &f);
    return y && y != x ? ki_op3(m->ir, KN_WHERE, c, y, m->root->src[2]) : NULL;
}

kn_uop ki_gate_reads(ki_match *m) {
    kn_uop c = m->root->src[0], x = m->root->src[1], part[KI_MAX_TERMS], from[32], to[32], *order;
    unsigned n = ki_conjuncts(c, part), changes = 0;
    ki_facts f;
    learn_all(&f, part, n, -1);
    if (!f.n || x->op == KN_INVALID || x->dtype == KN_IDX) return NULL;
    int64_t count = ki_toposort(m->ir, &x, 1, &order);
    if (count < 0 || count > 4096) return ki_free(order), NULL;
    for (int64_t i = 0; i < count; i++)
        if (order[i]->op == KN_REDUCE) changes = 32; /* a loop inside: its reads are another scope's */
    for (int64_t i = 0; i < count && changes < 32; i++) {
        if (order[i]->op != KN_INDEX) continue;
        kn_uop r = read_under(m->ir, order[i], c, part, n, &f);
        if (r && r != order[i]) from[changes] = order[i], to[changes++] = r;
    }
    ki_free(order);
    if (!changes || changes >= 32) return NULL;
    kn_uop y = ki_substitute(m->ir, x, from, to, changes);
    return y && y != x ? ki_op3(m->ir, KN_WHERE, c, y, m->root->src[2]) : NULL;
}
