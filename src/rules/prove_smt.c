/* prove_smt.c: the rung by SMT. A rule becomes SMT-LIB text for each choice of dtypes: words are bit-vectors of their
 * real width, index is Int with floor division spelled out, bool is Bool, floats are those of smt_float.c. A guard is over
 * mathematical integers: for words that is a signed bit-vector wide enough that nothing in it overflows. First the guard
 * must be satisfiable, then, with both sides distinct, it must not be. The text goes to a solver as a file on its standard
 * input. */
#include "rules/prove_smt.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { MAX_CHOICES = KI_SMT_CHOICES, NAMED = 96 };
typedef ki_smt_expr expr;
typedef ki_smt smt;

static const expr unsaid;

char *ki_smt_format(ki_smt *m, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 200000 ? ki_arena_alloc(&m->arena, (size_t)n + 1) : NULL;
    if (s) vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

char *ki_smt_name(smt *m, const char *sort, char *term) {
    if (!term || !sort || term[0] != '(') return term;
    char *name = ki_smt_format(m, "t%u", m->named++);
    if (name) ki_text_printf(&m->decl, "(define-fun %s () %s %s)\n", name, sort, term);
    return name;
}

char *ki_smt_fill(smt *m, const char *f, const char *a, const char *b) {
    char *s = ki_arena_alloc(&m->arena, strlen(f) + strlen(a) + strlen(b) + 1), *o = s;
    if (!s) return NULL;
    for (unsigned k = 0; *f; f++) {
        if (*f == '%') o = stpcpy(o, k++ ? b : a), f++;
        else *o++ = *f;
    }
    *o = 0;
    return s;
}

static expr like(expr a, char *s) {
    a.s = s;
    a.fp = NULL;
    return a;
}
/* The variable of a leaf, by its name in the rule. */
static char *leaf_name(smt *m, unsigned reg) {
    const char *name = "_";
    for (unsigned k = 0; k < m->p->rule->nname; k++) {
        const ki_rname *n = &m->p->set->rname[m->p->rule->rname + k];
        if ((n->kind == KI_N_NODE || n->kind == KI_N_CONST) && n->reg == reg)
            name = ki_name_text(m->p->set, m->p->rule, k);
    }
    return ki_smt_format(m, "%s!%u", name, reg);
}

static expr yes_no(char *s) { return (expr){.s = s, .sort = KI_S_BOOL, .width = 1}; }

static kn_dtype dtype_of(const smt *m, unsigned reg) { return m->dtype[m->p->cls[reg]]; }

static expr sort_of(kn_dtype t) {
    if (t == KN_BOOL) return (expr){.sort = KI_S_BOOL, .width = 1};
    if (t == KN_IDX) return (expr){.sort = KI_S_INT, .is_signed = true};
    if (ki_is_float(t)) return (expr){.sort = KI_S_FLOAT, .width = ki_dtypes[t].bits, .dtype = t};
    return (expr){.sort = KI_S_WORD, .width = ki_dtypes[t].bits, .is_signed = ki_is_sint(t)};
}

static char *sort_name(smt *m, expr e) {
    return e.sort == KI_S_BOOL ? "Bool" : e.sort == KI_S_INT ? "Int" : ki_smt_format(m, "(_ BitVec %u)", e.width);
}

/* An integer as a value of a sort. */
static expr number(smt *m, expr want, int64_t v) {
    if (want.sort == KI_S_FLOAT) return ki_smt_float_number(m, want.dtype, (double)v);
    if (want.sort == KI_S_BOOL) return v == 0 || v == 1 ? like(want, v ? "true" : "false") : unsaid;
    if (want.sort == KI_S_INT)
        return like(want, v < 0 ? ki_smt_format(m, "(- %llu)", -(unsigned long long)v)
                                : ki_smt_format(m, "%lld", (long long)v));
    if (want.sort == KI_S_WORD && want.width < 64) {
        int64_t low = want.is_signed ? -(INT64_C(1) << (want.width - 1)) : 0;
        int64_t high = (INT64_C(1) << (want.width - want.is_signed)) - 1;
        if (v < low || v > high) return unsaid;
    } else if (want.sort == KI_S_WORD && !want.is_signed && v < 0) {
        return unsaid;
    }
    return like(want, v < 0 ? ki_smt_format(m, "(bvneg (_ bv%llu %u))", -(unsigned long long)v, want.width)
                            : ki_smt_format(m, "(_ bv%llu %u)", (unsigned long long)v, want.width));
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static expr on_bools(smt *m, kn_op op, const expr *v) {
    const char *a = v[0].s, *b = v[1].s, *f = NULL;
    switch (op) {
    case KN_ADD:
    case KN_MAX:
    case KN_OR: f = "(or %s %s)"; break;
    case KN_MUL:
    case KN_AND: f = "(and %s %s)"; break;
    case KN_XOR:
    case KN_CMPNE: f = "(distinct %s %s)"; break;
    case KN_CMPEQ: f = "(= %s %s)"; break;
    case KN_CMPLT: f = "(and (not %s) %s)"; break;
    case KN_CMPGT: f = "(and %s (not %s))"; break;
    case KN_CMPLE: f = "(or (not %s) %s)"; break;
    case KN_CMPGE: f = "(or %s (not %s))"; break;
    case KN_NOT: return yes_no(ki_smt_format(m, "(not %s)", a));
    default: return unsaid;
    }
    return yes_no(ki_smt_fill(m, f, a, b));
}

static expr on_ints(smt *m, kn_op op, const expr *v, unsigned n) {
    const char *a = v[0].s, *b = n > 1 ? v[1].s : "", *c = n > 2 ? v[2].s : "";
    static const struct {
        uint8_t op;
        const char *s;
    } compare[] = {{KN_CMPLT, "<"},  {KN_CMPGT, ">"}, {KN_CMPLE, "<="},
                   {KN_CMPGE, ">="}, {KN_CMPEQ, "="}, {KN_CMPNE, "distinct"}};
    for (size_t k = 0; k < sizeof compare / sizeof *compare; k++)
        if (compare[k].op == op) return yes_no(ki_smt_format(m, "(%s %s %s)", compare[k].s, a, b));
    char *quotient =
        n > 1 ? ki_smt_format(m, "(ite (= %s 0) 0 (ite (> %s 0) (div %s %s) (div (- %s) (- %s))))", b, b, a, b, a, b)
              : NULL;
    switch (op) {
    case KN_ADD: return like(v[0], ki_smt_format(m, "(+ %s %s)", a, b));
    case KN_SUB: return like(v[0], ki_smt_format(m, "(- %s %s)", a, b));
    case KN_MUL: return like(v[0], ki_smt_format(m, "(* %s %s)", a, b));
    case KN_NEG: return like(v[0], ki_smt_format(m, "(- %s)", a));
    case KN_MAX: return like(v[0], ki_smt_format(m, "(ite (< %s %s) %s %s)", a, b, b, a));
    case KN_MULACC: return like(v[0], ki_smt_format(m, "(+ (* %s %s) %s)", a, b, c));
    case KN_IDIV: return quotient ? like(v[0], quotient) : unsaid;
    case KN_MOD:
        return quotient ? like(v[0], ki_smt_format(m, "(ite (= %s 0) 0 (- %s (* %s %s)))", b, a, b, quotient)) : unsaid;
    default: return unsaid;
    }
}

static expr on_words(smt *m, kn_op op, const expr *v, unsigned n) {
    const char *a = v[0].s, *b = n > 1 ? v[1].s : "", *c = n > 2 ? v[2].s : "", *s = v[0].is_signed ? "s" : "u";
    unsigned w = v[0].width;
    static const struct {
        uint8_t op;
        const char *s;
    } plain[] = {{KN_ADD, "bvadd"}, {KN_SUB, "bvsub"}, {KN_MUL, "bvmul"}, {KN_AND, "bvand"},
                 {KN_OR, "bvor"},   {KN_XOR, "bvxor"}, {KN_SHL, "bvshl"}},
      compare[] = {{KN_CMPLT, "lt"}, {KN_CMPGT, "gt"}, {KN_CMPLE, "le"}, {KN_CMPGE, "ge"}};
    for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
        if (plain[k].op == op) return like(v[0], ki_smt_format(m, "(%s %s %s)", plain[k].s, a, b));
    for (size_t k = 0; k < sizeof compare / sizeof *compare; k++)
        if (compare[k].op == op) return yes_no(ki_smt_format(m, "(bv%s%s %s %s)", s, compare[k].s, a, b));
    switch (op) {
    case KN_CMPEQ: return yes_no(ki_smt_format(m, "(= %s %s)", a, b));
    case KN_CMPNE: return yes_no(ki_smt_format(m, "(distinct %s %s)", a, b));
    case KN_NEG: return like(v[0], ki_smt_format(m, "(bvneg %s)", a));
    case KN_NOT: return like(v[0], ki_smt_format(m, "(bvnot %s)", a));
    case KN_MAX: return like(v[0], ki_smt_format(m, "(ite (bv%slt %s %s) %s %s)", s, a, b, b, a));
    case KN_MULACC: return like(v[0], ki_smt_format(m, "(bvadd (bvmul %s %s) %s)", a, b, c));
    case KN_SHR: return like(v[0], ki_smt_format(m, "(%s %s %s)", v[0].is_signed ? "bvashr" : "bvlshr", a, b));
    case KN_MOD:
        return like(v[0], ki_smt_format(m, "(ite (= %s (_ bv0 %u)) (_ bv0 %u) (%s %s %s))", b, w, w,
                                        v[0].is_signed ? "bvsmod" : "bvurem", a, b));
    case KN_IDIV:
        if (!v[0].is_signed)
            return like(v[0], ki_smt_format(m, "(ite (= %s (_ bv0 %u)) (_ bv0 %u) (bvudiv %s %s))", b, w, w, a, b));
        return like(v[0],
                    ki_smt_format(m,
                                  "(ite (= %s (_ bv0 %u)) (_ bv0 %u) (let ((q (bvsdiv %s %s)) (r (bvsrem %s %s))) "
                                  "(ite (and (distinct r (_ bv0 %u)) (xor (bvslt r (_ bv0 %u)) (bvslt %s (_ bv0 %u)))) "
                                  "(bvsub q (_ bv1 %u)) q)))",
                                  b, w, w, a, b, a, b, w, w, b, w, w));
    default: return unsaid;
    }
}

static expr operation(smt *m, kn_op op, const expr *v, unsigned n) {
    if (!n) return unsaid;
    for (unsigned k = 0; k < n; k++)
        if (!ki_smt_said(v[k])) return unsaid;
    unsigned first = op == KN_WHERE;
    for (unsigned k = first + 1; k < n; k++)
        if (v[k].sort != v[first].sort || v[k].width != v[first].width || v[k].dtype != v[first].dtype) return unsaid;
    if (op == KN_WHERE && v[0].sort != KI_S_BOOL) return unsaid;
    if (v[first].sort == KI_S_FLOAT) return n <= 3 ? ki_smt_on_floats(m, op, v, n) : unsaid;
    if (op == KN_WHERE)
        return v[0].sort == KI_S_BOOL ? like(v[1], ki_smt_format(m, "(ite %s %s %s)", v[0].s, v[1].s, v[2].s)) : unsaid;
    if (v[0].sort == KI_S_BOOL) {
        expr two[2] = {v[0], n > 1 ? v[1] : v[0]};
        return n <= 2 ? on_bools(m, op, two) : unsaid;
    }
    return v[0].sort == KI_S_INT ? on_ints(m, op, v, n) : on_words(m, op, v, n);
}

/* Long terms are written once: a rule may use them often. */
static expr brief(smt *m, expr e) {
    if (e.s && strlen(e.s) > NAMED) e.s = ki_smt_name(m, sort_name(m, e), e.s);
    return e;
}

static expr operate(smt *m, kn_op op, const expr *v, unsigned n) { return brief(m, operation(m, op, v, n)); }

static expr reinterpret(smt *m, expr v, expr to) {
    bool bits = v.sort == KI_S_WORD || v.sort == KI_S_FLOAT, takes = to.sort == KI_S_WORD || to.sort == KI_S_FLOAT;
    if (!bits || !takes || v.width != to.width) return unsaid;
    return v.sort == KI_S_FLOAT && to.dtype == v.dtype && to.sort == KI_S_FLOAT ? v : like(to, ki_smt_bits(m, v));
}

static expr conversion(smt *m, kn_op op, expr v, kn_dtype t) {
    expr to = sort_of(t);
    if (!ki_smt_said(v)) return unsaid;
    if (op == KN_BITCAST) return reinterpret(m, v, to);
    if (to.sort == KI_S_FLOAT) return ki_smt_to_float(m, v, t);
    if (v.sort == KI_S_FLOAT) return ki_smt_from_float(m, v, to);
    if (v.sort == KI_S_BOOL) {
        expr one = number(m, to, 1), zero = number(m, to, 0);
        return to.sort == KI_S_BOOL ? v : like(to, ki_smt_format(m, "(ite %s %s %s)", v.s, one.s, zero.s));
    }
    if (to.sort == KI_S_BOOL) return like(to, ki_smt_format(m, "(distinct %s %s)", v.s, number(m, v, 0).s));
    if (v.sort == KI_S_INT)
        return to.sort == KI_S_INT ? v : like(to, ki_smt_format(m, "((_ int2bv %u) %s)", to.width, v.s));
    if (to.sort == KI_S_INT) {
        if (!v.is_signed) return like(to, ki_smt_format(m, "(bv2nat %s)", v.s));
        return like(to, ki_smt_format(m, "(ite (bvslt %s (_ bv0 %u)) (- (bv2nat (bvneg %s))) (bv2nat %s))", v.s,
                                      v.width, v.s, v.s));
    }
    if (to.width == v.width) return like(to, v.s);
    if (to.width < v.width) return like(to, ki_smt_format(m, "((_ extract %u 0) %s)", to.width - 1, v.s));
    return like(to, ki_smt_format(m, "((_ %s_extend %u) %s)", v.is_signed ? "sign" : "zero", to.width - v.width, v.s));
}

static expr convert(smt *m, kn_op op, expr v, kn_dtype t) { return brief(m, conversion(m, op, v, t)); }

/* ---- both sides -------------------------------------------------------------------------------------------- */

static expr real(smt *m, expr want, double v) {
    return want.sort == KI_S_FLOAT ? ki_smt_float_number(m, want.dtype, v) : unsaid;
}

static expr left(smt *m, unsigned reg) {
    const ki_pat *pat = m->p->set->pat + m->p->rule->pat;
    if (pat[reg].same != KI_NOREG) reg = pat[reg].same;
    expr want = sort_of(dtype_of(m, reg)), v[4];
    if (m->p->leaf[reg]) return like(want, leaf_name(m, reg));
    if (m->p->kind[reg] == KI_P_LIT) {
        const ki_term *t = &m->p->term[pat[reg].term];
        if (t->kind == KI_T_FLOAT) return real(m, want, ki_term_real(m->p->set, t));
        if (t->kind == KI_T_BOOL && want.sort != KI_S_BOOL) return unsaid;
        return number(m, want, ki_term_int(m->p->set, t));
    }
    unsigned op = pat[reg].op == KI_OP_COUNT ? m->op[reg] : pat[reg].op;
    for (unsigned k = 0; k < m->p->nkid[reg]; k++) v[k] = left(m, m->p->kid[reg][k]);
    if (op == KN_CAST || op == KN_BITCAST) return convert(m, (kn_op)op, v[0], dtype_of(m, reg));
    return operate(m, (kn_op)op, v, m->p->nkid[reg]);
}

static expr bound(smt *m, const ki_term *s) {
    const ki_term *a = s->nkid ? &m->p->term[m->p->set->kid[s->kid]] : NULL;
    if (!a || a->kind != KI_T_NAME) return unsaid;
    const ki_rname *n = &m->p->set->rname[m->p->rule->rname + a->x];
    if (n->kind != KI_N_NODE && n->kind != KI_N_CONST) return unsaid;
    const ki_pat *pat = m->p->set->pat + m->p->rule->pat;
    unsigned reg = pat[n->reg].same == KI_NOREG ? n->reg : pat[n->reg].same;
    if (m->p->kind[reg] == KI_P_CONST) return left(m, reg);
    return like(sort_of(dtype_of(m, reg)), ki_smt_format(m, "%s%u", s->x == KI_B_lo ? "lo" : "hi", reg));
}

/* The dtype that the arg of a cast names; void: cannot be said. */
static kn_dtype dtype_arg(const smt *m, const ki_term *a) {
    const ki_proof *p = m->p;
    if (a->kind == KI_T_EXPR) a = &p->term[p->set->kid[a->kid]];
    if (a->kind == KI_T_BUILTIN && a->x == KI_B_dtype && a->nkid) a = &p->term[p->set->kid[a->kid]];
    if (a->kind == KI_T_ENUM) return (kn_dtype)a->which;
    return a->kind == KI_T_NAME ? dtype_of(m, p->set->rname[p->rule->rname + a->x].reg) : KN_VOID;
}

/* A value of the right side; `want`: the sort of its place, for literals. */
static expr right(smt *m, unsigned term, expr want) {
    const ki_term *s = &m->p->term[term];
    const uint16_t *kid = ki_term_kids(m->p->set, s);
    expr v[4];
    if (s->dtype_reg != KI_NOREG) want = sort_of(dtype_of(m, s->dtype_reg));
    else if (s->dtype != KI_DTYPE_COUNT) want = sort_of((kn_dtype)s->dtype);
    switch ((ki_tkind)s->kind) {
    case KI_T_NAME: {
        const ki_rname *n = &m->p->set->rname[m->p->rule->rname + s->x];
        return n->kind == KI_N_NODE || n->kind == KI_N_CONST ? left(m, n->reg) : unsaid;
    }
    case KI_T_INT:
    case KI_T_BOOL: return number(m, want, ki_term_int(m->p->set, s));
    case KI_T_FLOAT: return real(m, want, ki_term_real(m->p->set, s));
    case KI_T_EXPR: return right(m, kid[0], want);
    case KI_T_BUILTIN: return s->x == KI_B_lo || s->x == KI_B_hi ? bound(m, s) : unsaid;
    case KI_T_OP:
    case KI_T_OPNAME: {
        kn_op op = s->kind == KI_T_OP ? (kn_op)s->op : (kn_op)m->op[m->p->set->rname[m->p->rule->rname + s->x].reg];
        if (s->nkid > 4) return unsaid;
        bool cast = op == KN_CAST || op == KN_BITCAST;
        /* A literal takes the sort of an operand that has one. */
        expr of = want;
        for (unsigned pass = 0; pass < 2; pass++)
            for (unsigned k = 0; k < s->nkid; k++) {
                const ki_term *t = &m->p->term[kid[k]];
                bool literal = t->kind == KI_T_INT || t->kind == KI_T_BOOL || t->kind == KI_T_FLOAT;
                if (literal != (pass == 1)) continue;
                v[k] = right(m, kid[k], of);
                if (!literal && !(op == KN_WHERE && k == 0)) of = v[k];
            }
        if (s->flags & KI_TF_DIV && s->nkid && v[0].sort == KI_S_FLOAT) op = KN_DIV;
        if (!cast) return operate(m, op, v, s->nkid);
        kn_dtype t = s->narg ? dtype_arg(m, &m->p->term[kid[s->nkid]]) : KN_VOID;
        return t == KN_VOID ? unsaid : convert(m, op, v[0], t);
    }
    default: return unsaid;
    }
}

/* ---- guards ------------------------------------------------------------------------------------------------ */

static expr wide_sort(const smt *m) {
    return m->wide ? (expr){.sort = KI_S_WIDE, .width = m->wide, .is_signed = true}
                   : (expr){.sort = KI_S_INT, .is_signed = true};
}

/* A value of a dtype as a number of the guard. */
static expr widen(smt *m, expr v) {
    if (!v.s || v.sort == KI_S_BOOL || v.sort == KI_S_WIDE) return v;
    if (v.sort == KI_S_FLOAT) return unsaid;
    if (v.sort == KI_S_INT) return m->wide ? unsaid : v;
    expr to = wide_sort(m);
    if (!m->wide || v.width > to.width) return unsaid;
    return like(to, ki_smt_format(m, "((_ %s_extend %u) %s)", v.is_signed ? "sign" : "zero", to.width - v.width, v.s));
}

/* What cannot be said is left open: any truth value. */
static expr open_truth(smt *m) {
    char *s = ki_smt_format(m, "open%u", m->fresh++);
    ki_text_printf(&m->decl, "(declare-const %s Bool)\n", s ? s : "open");
    return yes_no(s);
}

/* The text of an extern predicate: x, y, z are its operands, #n constants. */
static expr template(smt *m, const ki_extern *e, const expr *v, unsigned n) {
    ki_text t = {0};
    if (!e->smt || !m->wide) return unsaid;
    for (const char *s = e->smt; *s; s++) {
        bool alone = (s == e->smt || strchr(" (", s[-1])) && (s[1] == 0 || strchr(" )", s[1]));
        if (alone && *s >= 'x' && *s <= 'z' && (unsigned)(*s - 'x') < n) ki_text_put(&t, v[*s - 'x'].s);
        else if (*s == '#') ki_text_printf(&t, "(_ bv%ld %u)", strtol(s + 1, (char **)&s, 10), m->wide), s--;
        else ki_text_putc(&t, *s);
    }
    expr out = yes_no(t.s ? ki_smt_format(m, "%s", t.s) : NULL);
    ki_text_free(&t);
    return out;
}

/* A number that comes from graphs, not from values. */
static bool unmodelled(const smt *m, unsigned term) {
    const ki_term *s = &m->p->term[term];
    return s->kind == KI_T_BUILTIN && (s->x == KI_B_rank || s->x == KI_B_numel || s->x == KI_B_nsrc);
}

static expr guard(smt *m, unsigned term) {
    const ki_term *s = &m->p->term[term];
    const uint16_t *kid = ki_term_kids(m->p->set, s);
    expr v[4] = {unsaid, unsaid, unsaid, unsaid};
    switch ((ki_tkind)s->kind) {
    case KI_T_AND:
    case KI_T_OR:
        v[0] = guard(m, kid[0]), v[1] = guard(m, kid[1]);
        return v[0].s && v[1].s
                   ? yes_no(ki_smt_format(m, "(%s %s %s)", s->kind == KI_T_AND ? "and" : "or", v[0].s, v[1].s))
                   : unsaid;
    case KI_T_INT: return number(m, wide_sort(m), ki_term_int(m->p->set, s));
    case KI_T_BOOL: return yes_no(ki_term_int(m->p->set, s) ? "true" : "false");
    case KI_T_NAME: return widen(m, right(m, term, unsaid));
    case KI_T_BUILTIN:
        if (s->x == KI_B_lo || s->x == KI_B_hi) return widen(m, bound(m, s));
        if (s->x == KI_B_before || s->x == KI_B_isconst || s->x == KI_B_sameshape || s->x == KI_B_symbolic)
            return open_truth(m);
        return unsaid;
    case KI_T_CALL: {
        const ki_extern *e = &m->p->set->ext[s->x];
        for (unsigned k = 0; k < s->nkid && k < 4; k++) {
            v[k] = guard(m, kid[k]);
            if (!v[k].s) return unsaid;
        }
        return e->result == 'b' && s->nkid <= 3 ? template(m, e, v, s->nkid) : unsaid;
    }
    case KI_T_OP:
        if (s->nkid > 3 || s->op == KN_SHL || s->op == KN_SHR) return unsaid;
        for (unsigned k = 0; k < s->nkid; k++) {
            if (unmodelled(m, kid[k])) return open_truth(m);
            v[k] = guard(m, kid[k]);
        }
        if (s->op == KN_MUL && m->p->term[kid[0]].kind == KI_T_OP && m->p->term[kid[1]].kind == KI_T_OP) return unsaid;
        return operate(m, (kn_op)s->op, v, s->nkid);
    default: return unsaid;
    }
}

/* ---- a script ---------------------------------------------------------------------------------------------- */

/* One choice of dtypes and ops. False: something cannot be said. */
static bool script(smt *m) {
    const ki_proof *p = m->p;
    m->decl.n = 0;
    m->wide = 0;
    bool ints = false, floats = false, bounds = false;
    for (unsigned r = 0; r < p->rule->npat; r++) {
        if (!p->live[r]) continue;
        expr e = sort_of(dtype_of(m, r));
        if (e.sort == KI_S_WORD && 2 * e.width + 8 > m->wide) m->wide = 2 * e.width + 8;
        ints |= e.sort == KI_S_INT;
        floats |= e.sort == KI_S_FLOAT;
    }
    if ((ints && m->wide && p->guard) || (ints && floats)) return false;
    ki_text_put(&m->decl, "(push)\n");
    for (unsigned r = 0; r < p->rule->npat; r++) {
        if (!p->live[r] || !p->leaf[r]) continue;
        expr e = sort_of(dtype_of(m, r));
        const char *name = sort_name(m, e), *le = e.sort == KI_S_INT ? "<=" : e.is_signed ? "bvsle" : "bvule";
        ki_text_printf(&m->decl, "(declare-const %s %s)\n", leaf_name(m, r), name);
        if (!p->bounds[r] || p->kind[r] == KI_P_CONST) continue;
        if (e.sort == KI_S_BOOL || e.sort == KI_S_FLOAT) return false;
        bounds = true;
        ki_text_printf(&m->decl,
                       "(declare-const lo%u %s)\n(declare-const hi%u %s)\n(assert (and (%s lo%u %s) (%s %s hi%u)))\n",
                       r, name, r, name, le, r, leaf_name(m, r), le, leaf_name(m, r), r);
    }
    expr l = left(m, 0), r = right(m, p->rule->rhs, sort_of(dtype_of(m, 0))), g = yes_no("true");
    if (p->guard) g = guard(m, p->guard);
    if (!ki_smt_said(l) || !ki_smt_said(r) || !g.s || g.sort != KI_S_BOOL) return false;
    if (l.sort != r.sort || l.width != r.width || l.dtype != r.dtype) return false;
    if (l.sort == KI_S_FLOAT) l.s = ki_smt_fp(m, l), r.s = ki_smt_fp(m, r); /* all NaN are one */
    floats |= strstr(m->decl.s, "fp") != NULL;
    const char *check = floats ? KI_SMT_CIRCUITS : "(check-sat)";
    unsigned ms = m->ms * (!floats ? 1 : p->mutant ? 2 : 10);
    ki_text_printf(&m->out, "(set-option :timeout %u)\n%s(assert %s)\n%s\n(assert (distinct %s %s))\n%s\n(pop)\n", ms,
                   m->decl.s, g.s, p->guard || bounds ? check : "(echo \"sat\")", l.s, r.s, check);
    m->floats |= floats;
    return true;
}

static bool op_fits(unsigned op, kn_dtype t) {
    unsigned f = ki_ops[op].flags;
    if (op == KN_THREEFRY || (f & KI_NUM && t == KN_BOOL)) return false;
    return !(f & (ki_is_float(t) ? KI_INT : KI_FLOAT));
}

/* The dtypes that computed nodes get must be those chosen for them. */
static bool consistent(const smt *m) {
    const ki_pat *pat = m->p->set->pat + m->p->rule->pat;
    for (unsigned r = 0; r < m->p->rule->npat; r++) {
        if (!m->p->live[r] || m->p->leaf[r] || m->p->kind[r] != KI_P_NODE || !m->p->nkid[r]) continue;
        unsigned op = pat[r].op == KI_OP_COUNT ? m->op[r] : pat[r].op;
        if (op == KN_CAST || op == KN_BITCAST) continue;
        kn_dtype t = dtype_of(m, m->p->kid[r][op == KN_WHERE]);
        bool compare =
            op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ;
        if (!op_fits(op, t) || dtype_of(m, r) != (compare ? KN_BOOL : t)) return false;
    }
    return true;
}

/* All choices; the number of scripts, -1: something cannot be said, or there are too many. */
static int scripts(smt *m) {
    const ki_proof *p = m->p;
    uint8_t option[KI_MAX_REG][KI_DTYPE_COUNT];
    unsigned noption[KI_MAX_REG] = {0}, digit[KI_MAX_REG * 2] = {0}, n = p->rule->npat, tries = 0;
    int made = 0;
    for (unsigned r = 0; r < n; r++) {
        unsigned c = p->cls[r];
        if (!p->live[r] || noption[c]) continue;
        for (unsigned t = 1; t < KI_DTYPE_COUNT; t++) {
            if (!(p->mask[c] >> t & 1)) continue;
            if (ki_is_float((kn_dtype)t) && p->rule->fp) return -1; /* true in looser arithmetic only */
            option[c][noption[c]++] = (uint8_t)t;
        }
    }
    for (;;) {
        for (unsigned r = 0; r < n; r++) {
            if (noption[r]) m->dtype[r] = (kn_dtype)option[r][digit[r]];
            m->op[r] = p->chosen[r] ? p->choice[r][digit[n + r]] : 0;
        }
        if (++tries > 20000) return -1;
        if (consistent(m)) {
            if (made == MAX_CHOICES || !script(m)) return -1;
            m->start[++made] = m->out.n;
        }
        unsigned k = 0;
        for (; k < 2 * n; k++) {
            unsigned limit = k < n ? noption[k] : p->chosen[k - n] ? p->nchoice[k - n] : 0;
            if (limit < 2) continue;
            if (++digit[k] < limit) break;
            digit[k] = 0;
        }
        if (k == 2 * n) return made;
    }
}

/* ---- the solver -------------------------------------------------------------------------------------------- */

/* Runs it on the script; its answers as text. False: it could not be run. */
static bool solve(const char *z3, const ki_text *script_text, ki_text *answer) {
    char path[] = "/tmp/koine-smt-XXXXXX", *argv[] = {(char *)(uintptr_t)z3, "-in", "-smt2", NULL};
    int in = mkstemp(path), out[2];
    if (in < 0) return false;
    unlink(path);
    bool good = ki_fd_write(in, script_text->s, script_text->n) && lseek(in, 0, SEEK_SET) == 0;
    if (!good || pipe(out)) return close(in), false;
    posix_spawn_file_actions_t fa;
    pid_t pid;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in, 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_addclose(&fa, out[0]);
    good = posix_spawnp(&pid, z3, &fa, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&fa);
    close(in);
    close(out[1]);
    char buf[4096];
    ssize_t n;
    while (good && ((n = read(out[0], buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR))) {
        if (n <= 0) continue;
        ki_text_putn(answer, buf, (size_t)n);
        if (answer->s && strstr(answer->s, "unknown")) kill(pid, SIGKILL); /* one open choice leaves the rule open */
    }
    close(out[0]);
    while (good && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    return good && answer->s;
}

/* Two answers a script: can the guard hold; can the sides then differ. *at: the script that refutes. */
static ki_rung read_answers(const char *s, int made, uint64_t *held, int *at) {
    for (int k = 0; k < made; k++) {
        bool pair[2];
        for (int j = 0; j < 2; j++) {
            bool sat = strncmp(s, "sat", 3) == 0, unsat = strncmp(s, "unsat", 5) == 0;
            if (!sat && !unsat) return KI_UNPROVED; /* unknown, a timeout, an error */
            pair[j] = sat;
            s += sat ? 3 : 5;
            while (*s == '\n' || *s == '\r') s++;
        }
        *at = k;
        if (pair[1]) return KI_REFUTED;
        *held += pair[0];
    }
    return *held ? KI_PROVED_SMT : KI_UNPROVED;
}

/* The values of the script that refutes, asked for in a run of its own. */
static void counterexample(smt *m, const char *z3, int at, ki_text *reason) {
    ki_text one = {0}, answer = {0};
    ki_text_put(&one, KI_SMT_PRELUDE);
    ki_text_putn(&one, m->out.s + m->start[at], m->start[at + 1] - m->start[at] - strlen("(pop)\n"));
    ki_text_put(&one, "(get-value (");
    for (unsigned r = 0; r < m->p->rule->npat; r++)
        if (m->p->live[r] && m->p->leaf[r]) ki_text_printf(&one, " %s", leaf_name(m, r));
    ki_text_put(&one, "))\n");
    ki_text_cut(reason, 0);
    ki_text_put(reason, "at full width the sides differ:");
    if (!one.oom && solve(z3, &one, &answer))
        for (const char *s = answer.s; *s; s++)
            if (*s == '(') { /* what follows the answers "sat" */
                for (; *s; s++) ki_text_putc(reason, *s == '\n' ? ' ' : *s);
                break;
            }
    ki_text_free(&one);
    ki_text_free(&answer);
}

/* All choices, asked once. made: scripts, 0 or less none. */
static ki_rung ask(smt *m, const ki_prove_opts *o, uint64_t *held, int *at) {
    ki_text answer = {0};
    ki_rung rung = KI_UNPROVED;
    *held = 0;
    m->out.n = 0;
    m->fresh = m->named = 0;
    ki_text_put(&m->out, KI_SMT_PRELUDE);
    m->start[0] = m->out.n;
    int made = scripts(m);
    if (made > 0 && !m->out.oom && solve(o->z3, &m->out, &answer)) rung = read_answers(answer.s, made, held, at);
    ki_text_free(&answer);
    if (rung == KI_REFUTED && m->fresh) rung = KI_UNPROVED; /* what was left open may not be so */
    return rung;
}

ki_rung ki_prove_smt(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out) {
    if (!p->scalar || p->opaque || !o->z3) return KI_UNPROVED;
    smt *m = ki_calloc(1, sizeof *m);
    if (!m) return KI_UNPROVED;
    uint64_t held = 0;
    int at = 0;
    m->p = p;
    m->ms = o->z3_ms ? o->z3_ms : 1000;
    ki_rung rung = ask(m, o, &held, &at);
    if (rung == KI_REFUTED && m->floats) { /* with the NaN of the interpreter as well? */
        m->canonical = true;
        rung = ask(m, o, &held, &at);
        if (rung == KI_PROVED_SMT) rung = KI_UNPROVED;
    }
    if (rung == KI_PROVED_SMT) {
        ki_text_cut(&out->reason, 0);
        out->instances += held;
    }
    if (rung == KI_REFUTED) counterexample(m, o->z3, at, &out->reason);
    ki_text_free(&m->out);
    ki_text_free(&m->decl);
    ki_arena_free(&m->arena);
    ki_free(m);
    return rung;
}
