/* check.c: what a rule set must promise: that rewriting ends, and that every rule can fire.
 *
 * Termination: the right side is smaller in a Knuth-Bendix order, that is, no name occurs more often than on the left
 * and the total weight of ops is less; otherwise the rule carries @ends. Shadowing: an earlier rule that always fires
 * and whose pattern covers a later one. */
#include "rules/front.h"

#include <string.h>

/* ---- the reduction order ----------------------------------------------------------------------------------- */

static unsigned op_weight(unsigned op) {
    if (op == KI_OP_COUNT) return 6;
    switch (op) {
    case KN_IDIV:
    case KN_MOD:
    case KN_DIV:
    case KN_RECIP:
    case KN_POW: return 8;
    case KN_MUL:
    case KN_WHERE: return 4;
    case KN_NOT:
    case KN_NEG: return 2;
    default: return 3;
    }
}

typedef struct measure {
    unsigned weight;
    unsigned count[KI_MAX_REG]; /* occurrences of what a register holds */
    unsigned rest[KI_MAX_RESTS];
} measure;

static unsigned canonical(const ki_compiler *c, const ki_rule *r, unsigned reg) {
    uint8_t same = c->pat.v[r->pat + reg].same;
    return same == KI_NOREG ? reg : same;
}

static unsigned pat_weight(const ki_compiler *c, const ki_pat *p) {
    if (p->kind != KI_P_NODE) return 1;
    if (p->op != KI_OP_COUNT) return op_weight(p->op);
    unsigned least = 8;
    for (unsigned op = 0; op < KI_OP_COUNT; op++)
        if (ki_opset_has(&c->opset.v[p->opset], op) && op_weight(op) < least) least = op_weight(op);
    return least;
}

/* Adds the part of the pattern under register reg. Pre-order: a subtree is the run of terms whose ancestors meet reg. */
static void measure_pattern(const ki_compiler *c, const ki_rule *r, unsigned reg, measure *m) {
    bool in[KI_MAX_REG] = {false};
    for (unsigned k = reg; k < r->npat; k++) {
        const ki_pat *p = &c->pat.v[r->pat + k];
        in[k] = k == reg || in[p->parent];
        if (!in[k] || (k != reg && k == 0)) continue;
        m->weight += pat_weight(c, p);
        if (p->kind == KI_P_ANY || p->kind == KI_P_CONST) m->count[canonical(c, r, k)]++;
    }
    for (unsigned k = 0; k < r->nrest; k++) {
        const ki_rest *s = &c->rest.v[r->rest + k];
        if (in[s->reg]) m->rest[s->same == KI_NOREG ? k : s->same]++;
    }
}

static void measure_term(const ki_compiler *c, const ki_rule *r, unsigned term, measure *m) {
    const ki_term *t = &c->term.v[term];
    const ki_rname *n = &c->rname.v[r->rname + t->x];
    switch ((ki_tkind)t->kind) {
    case KI_T_NAME:
        if (n->kind == KI_N_NODE || n->kind == KI_N_CONST) measure_pattern(c, r, n->reg, m);
        else m->weight++;
        return;
    case KI_T_REST: m->rest[n->reg]++; return;
    case KI_T_MAP: m->weight += 1000; return;
    case KI_T_OPNAME: m->weight += pat_weight(c, &c->pat.v[r->pat + n->reg]); break;
    case KI_T_OP: m->weight += t->flags & KI_TF_DIV ? op_weight(KN_DIV) : op_weight(t->op); break;
    default: m->weight++; return;
    }
    for (unsigned k = 0; k < t->nkid; k++) measure_term(c, r, c->kid.v[t->kid + k], m);
}

bool ki_check_order(ki_compiler *c) {
    const ki_rule *r = c->now;
    if (r->kind != KI_R_REWRITE || c->written.v[r - c->rule.v].ends || r->does) return true;
    measure left = {0}, right = {0};
    measure_pattern(c, r, 0, &left);
    measure_term(c, r, r->rhs, &right);
    bool less = right.weight < left.weight;
    for (unsigned k = 0; k < KI_MAX_REG; k++) less &= right.count[k] <= left.count[k];
    for (unsigned k = 0; k < KI_MAX_RESTS; k++) less &= right.rest[k] <= left.rest[k];
    return less ? true : ki_compile_fail(c, KI_E_RULE_ORDER, c->ast->rhs->pos, c->ast->name);
}

/* ---- one pattern covering another -------------------------------------------------------------------------- */

/* Register of source src of reg in a variant, KI_NOREG if it is in a rest. */
static unsigned child(const ki_compiler *c, const ki_rule *r, uint32_t variant, unsigned reg, unsigned src, bool tail) {
    for (unsigned k = 1; k < r->npat; k++) {
        const ki_pat *p = &c->pat.v[r->pat + k];
        if (p->parent != reg || !(p->flags & KI_PF_TAIL) != !tail) continue;
        unsigned at = p->swap == KI_NOREG ? p->src : p->src ^ (variant >> p->swap & 1);
        if (at == src) return k;
    }
    return KI_NOREG;
}

static bool is_literal(const ki_term *t) {
    return t->kind == KI_T_INT || t->kind == KI_T_FLOAT || t->kind == KI_T_BOOL;
}

/* Of floats the bits: numbers stand once. */
static bool same_literal(const ki_term *a, const ki_term *b) { return a->kind == b->kind && a->at == b->at; }

static void pat_ops(const ki_compiler *c, const ki_pat *p, ki_opset *s) {
    *s = c->opset.v[p->kind == KI_P_NODE ? p->opset : 0];
    if (p->op == KI_OP_COUNT) return;
    *s = (ki_opset){{0, 0}};
    s->bits[p->op >> 6] = UINT64_C(1) << (p->op & 63);
}

static bool same_args(const ki_compiler *c, const ki_pat *a, const ki_pat *b) {
    if (a->narg > b->narg) return false;
    for (unsigned k = 0; k < a->narg; k++) {
        const ki_argcond *x = &c->cond.v[a->arg + k];
        bool found = false;
        for (unsigned j = 0; j < b->narg && x->like == KI_NOREG; j++) {
            const ki_argcond *y = &c->cond.v[b->arg + j];
            found |= y->like == KI_NOREG && y->field == x->field && y->at == x->at && y->none == x->none &&
                     y->text == x->text;
        }
        if (!found) return false;
    }
    return true;
}

typedef struct cover {
    const ki_compiler *c;
    const ki_rule *p, *q;
    uint32_t pv, qv;
    uint8_t *map;
} cover;

static bool covers_node(cover *k, unsigned pr, unsigned qr);

static bool covers_sources(cover *k, const ki_pat *a, const ki_pat *b, unsigned pr, unsigned qr) {
    bool ra = a->flags & KI_PF_REST, rb = b->flags & KI_PF_REST;
    for (unsigned j = 0; j < k->p->nrest; j++) {
        const ki_rest *s = &k->c->rest.v[k->p->rest + j];
        if (s->reg == pr && (s->dtypes || s->konst || s->same != KI_NOREG)) return false;
    }
    if (ra && a->nsrc == 0) return true;
    if (a->nsrc != b->nsrc || ra != rb) return false;
    for (unsigned tail = 0; tail < 2; tail++)
        for (unsigned src = 0; src <= a->nsrc; src++) {
            unsigned x = child(k->c, k->p, k->pv, pr, src, tail), y = child(k->c, k->q, k->qv, qr, src, tail);
            if (x == KI_NOREG && y == KI_NOREG) continue;
            if (x == KI_NOREG || y == KI_NOREG || !covers_node(k, x, y)) return false;
        }
    return true;
}

static bool covers_node(cover *k, unsigned pr, unsigned qr) {
    const ki_compiler *c = k->c;
    const ki_pat *a = &c->pat.v[k->p->pat + pr], *b = &c->pat.v[k->q->pat + qr];
    k->map[pr] = (uint8_t)qr;
    uint32_t admits = c->written_pat.v[k->q->pat + qr].mask;
    if (a->dtypes && admits & ~a->dtypes) return false;
    if (a->same != KI_NOREG) {
        unsigned was = k->map[a->same];
        return was != KI_NOREG && canonical(c, k->q, was) == canonical(c, k->q, qr) && b->kind != KI_P_NODE;
    }
    switch ((ki_pkind)a->kind) {
    case KI_P_ANY: return true;
    case KI_P_CONST: return b->kind == KI_P_CONST || b->kind == KI_P_LIT;
    case KI_P_LIT: return b->kind == KI_P_LIT && same_literal(&c->term.v[a->term], &c->term.v[b->term]);
    case KI_P_NODE: break;
    }
    if (b->kind != KI_P_NODE) return false;
    ki_opset x, y;
    pat_ops(c, a, &x);
    pat_ops(c, b, &y);
    return !(y.bits[0] & ~x.bits[0]) && !(y.bits[1] & ~x.bits[1]) && same_args(c, a, b) &&
           covers_sources(k, a, b, pr, qr);
}

bool ki_pattern_covers(const ki_compiler *c, const ki_rule *p, uint32_t pv, const ki_rule *q, uint32_t qv,
                       uint8_t *map) {
    cover k = {c, p, q, pv, qv, map};
    memset(map, KI_NOREG, KI_MAX_REG);
    return covers_node(&k, 0, 0);
}

/* ---- duplicates and shadows -------------------------------------------------------------------------------- */

static bool computes(const ki_compiler *c, unsigned term) {
    const ki_term *t = &c->term.v[term];
    if (t->kind == KI_T_EXPR) return true;
    for (unsigned k = 0; k < (unsigned)t->nkid + t->narg; k++)
        if (computes(c, c->kid.v[t->kid + k])) return true;
    return false;
}

bool ki_rule_may_fail(const ki_compiler *c, const ki_rule *r) {
    return r->guard || r->does || (r->kind == KI_R_REWRITE && r->rhs && computes(c, r->rhs));
}

/* Guards equal up to the renaming that map gives. */
static bool same_guard(const ki_compiler *c, const ki_rule *p, const ki_rule *q, unsigned x, unsigned y,
                       const uint8_t *map) {
    if (!x || !y) return x == y;
    const ki_term *a = &c->term.v[x], *b = &c->term.v[y];
    if (a->kind != b->kind || a->nkid != b->nkid || a->narg != b->narg) return false;
    if (a->kind == KI_T_NAME || a->kind == KI_T_REST) {
        const ki_rname *m = &c->rname.v[p->rname + a->x], *n = &c->rname.v[q->rname + b->x];
        if (m->kind != n->kind || m->field != n->field) return false;
        return m->kind == KI_N_REST ? m->reg == n->reg : canonical(c, q, map[m->reg]) == canonical(c, q, n->reg);
    }
    if (is_literal(a)) return same_literal(a, b);
    if (a->op != b->op || a->x != b->x) return false;
    if (a->kind == KI_T_ENUM) return a->which == b->which;
    if (a->kind == KI_T_TEXT) return a->at == b->at;
    for (unsigned k = 0; k < (unsigned)a->nkid + a->narg; k++)
        if (!same_guard(c, p, q, c->kid.v[a->kid + k], c->kid.v[b->kid + k], map)) return false;
    return true;
}

static bool check_pair(ki_compiler *c, const ki_rule *p, const ki_rule *q) {
    uint8_t map[KI_MAX_REG], back[KI_MAX_REG];
    bool certain = !ki_rule_may_fail(c, p) && !(p->fp & ~q->fp) && p->kind == KI_R_REWRITE;
    for (uint32_t v = 0; v < 1u << p->nswap; v++) {
        if (!ki_pattern_covers(c, p, v, q, 0, map)) continue;
        bool same = !p->does && !q->does && p->fp == q->fp && same_guard(c, p, q, p->guard, q->guard, map) &&
                    p->npat == q->npat && ki_pattern_covers(c, q, 0, p, v, back);
        if (same || certain)
            return ki_compile_fail(c, same ? KI_E_RULE_SAME : KI_E_RULE_SHADOWED, ki_rule_pos(c, q),
                                   ki_rule_called(c, q), ki_rule_called(c, p), (unsigned)p->line);
    }
    return true;
}

bool ki_check_set(ki_compiler *c) {
    for (uint32_t j = 1; j < c->rule.n; j++)
        for (uint32_t i = 0; i < j; i++) {
            const ki_pat *a = &c->pat.v[c->rule.v[i].pat], *b = &c->pat.v[c->rule.v[j].pat];
            if (a->kind == KI_P_NODE && a->op != KI_OP_COUNT && (b->kind != KI_P_NODE || b->op != a->op)) continue;
            if (!check_pair(c, &c->rule.v[i], &c->rule.v[j])) return false;
        }
    return true;
}
