/* prove_exec.c: the rung by execution. Graphs that match the pattern are made, the rule is applied by the engine itself
 * (its guard, its right side, its C function), and both graphs are evaluated.
 *
 * Rules on STAGE, which mean something only as steps of one derivation, are run as that: the whole set rewrites each
 * elementwise op it has a rule for, and counts for the rules that fired. */
#include "rules/prove_gen.h"
#include "rules/prove_grid.h"
#include "rules/prove_impl.h"
#include "rules/prove_ulps.h"

#include "ir/eval_impl.h"
#include "rules/drive.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WANTED = 60, ATTEMPTS = 6000, ROOM = 65536, ELEMENTS = 3000, DENSE = 16384, CELLS = 1 << 21 };

typedef struct execution {
    ki_env env;
    ki_ir ir;
    ki_match m;
    ki_verdict *out;
    const ki_proof *p;
    void *room;
    bool keep;                 /* the caller's */
    bool fresh;                /* a mutant fired where the rule does not */
    bool loose;                /* something was compared by more than a promise */
    double worst;              /* of functions: ulps */
    uint64_t seed;             /* of their arguments: one less than the first */
    int64_t nodes;             /* of the last one tried */
    const ki_promise *promise; /* of what a derivation begins with; NULL: none, */
    kn_uop arg[2];             /* and of which arguments it is one */
} execution;

static double tolerance(kn_dtype t, bool approximate) {
    switch (t) {
    case KN_F64: return approximate ? 5e-16 : 1e-12; /* of both sides together: 5 to 9 ulps */
    case KN_F32: return approximate ? 2e-7 : 1e-6;   /* 3 to 7 */
    case KN_F16: return 2e-3;
    case KN_BF16: return 2e-2;
    default: return 0.2;
    }
}

static bool mentions(ki_ir *ir, kn_uop u, kn_op op) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    bool found = false;
    for (int64_t k = 0; k < n; k++) found |= node[k]->op == op;
    if (n >= 0) ki_free(node);
    return found;
}

static void print_small(ki_ir *ir, kn_uop u, ki_text *out) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    for (int64_t k = 0; k < n && k < 24; k++) {
        ki_text_printf(out, "%s%%%u=%s(", k ? " " : "", node[k]->id, ki_ops[node[k]->op].name);
        if (node[k]->op == KN_CONST) ki_text_printf(out, "%lld", (long long)node[k]->arg.i);
        for (uint32_t j = 0; j < node[k]->nsrc; j++) ki_text_printf(out, "%s%%%u", j ? "," : "", node[k]->src[j]->id);
        ki_text_put(out, ")");
    }
    if (n >= 0) ki_free(node);
}

/* 1 equal, 0 could not be evaluated (why), -1 differ. */
static int compare(execution *x, kn_uop a, kn_uop b, ki_data data, const char **why) {
    int result = 1;
    bool signless = x->p->rule && x->p->rule->fp & KI_FP_NSZ;
    double most = data == KI_DATA_HARD ? 0 : tolerance((kn_dtype)a->dtype, data == KI_DATA_WILD);
    kn_uop root[2] = {a, b};
    if (!ki_ins_expand(&x->ir, root, 2)) return *why = "an instruction that is not understood", 0;
    a = root[0], b = root[1];
    for (uint64_t seed = 1; seed <= 3 && result == 1; seed++) {
        ki_grid g;
        size_t at;
        if (!ki_grid_eval(&g, &x->ir, root, 2, seed, data)) {
            *why = g.why;
            result = 0;
        } else if (!ki_grid_equal(&g, a, b, most, signless, &at)) {
            result = -1;
            kn_dtype t = (kn_dtype)a->dtype;
            ki_text *o = &x->out->reason;
            ki_text_cut(o, 0);
            bool bad = g.bad[b->id][at];
            ki_text_printf(o, "element %zu: left %g, right %s%g: ", at,
                           ki_is_float(t) ? ki_f64_from_bits(t, g.bits[a->id][at]) : (double)(int64_t)g.bits[a->id][at],
                           bad ? "(no value) " : "",
                           ki_is_float(t) ? ki_f64_from_bits(t, g.bits[b->id][at])
                                          : (double)(int64_t)g.bits[b->id][at]);
            print_small(&x->ir, a, o);
            ki_text_put(o, " => ");
            print_small(&x->ir, b, o);
        }
        ki_grid_free(&g);
    }
    return result;
}

static void because(execution *x, const char *text, const char *detail) {
    ki_text_cut(&x->out->reason, 0);
    ki_text_printf(&x->out->reason, text, detail);
}

/* One graph. 1 the rule fired and held, 0 not, -1 refuted. */
static int attempt(execution *x, ki_gen *g, const char **why) {
    kn_uop root = ki_gen_root(g);
    const ki_ruleset *set = x->p->set;
    uint32_t rule = (uint32_t)(x->p->rule - set->rule);
    ki_env_clear(&x->env); /* shapes that did not meet */
    if (!root) return *why = g->why, 0;
    if (root->dtype == KN_VOID) return *why = "an effect", 0;
    if (!x->keep) memset(x->room, 0, ROOM);
    x->m = (ki_match){.ir = &x->ir, .user = x->room};
    if (!ki_match_rule(&x->m, set, rule, 0, root)) return 0;
    kn_uop v = ki_match_build(&x->m);
    if (!v && x->env.err != KI_E_NONE) {
        because(x, "the right side could not be built: %s", x->env.message.s);
        ki_env_clear(&x->env);
        return -1;
    }
    if (!v || v == root) return 0;
    if (x->p->rule->flags & KI_RF_RETYPE && (v->dtype != root->dtype || !ki_same_shape(v, root)))
        return *why = "another dtype or shape", 0;
    if (mentions(&x->ir, v, KN_STAGE)) return *why = "a step of a derivation", 0;
    int r = compare(x, root, v, KI_DATA_SMALL, why);
    bool word = ki_is_sint((kn_dtype)root->dtype) || ki_is_uint((kn_dtype)root->dtype);
    if (r > 0 && x->p->arith && word && !x->p->rule->fp) r = compare(x, root, v, KI_DATA_WILD, why);
    if (r > 0 && x->p->was) {
        ki_match before = {.ir = &x->ir, .user = x->room};
        x->fresh |= !ki_match_rule(&before, x->p->was, x->p->was_rule, 0, root);
    }
    return r;
}

/* ---- gradients: against a difference of values ------------------------------------------------------------- */

static double total(const ki_grid *g, kn_uop u, bool *bad) {
    double sum = 0;
    for (size_t k = 0; k < g->size * (size_t)u->type->numel; k++) {
        sum += ki_f64_from_bits((kn_dtype)u->dtype, g->bits[u->id][k]);
        *bad |= g->bad[u->id][k] != 0;
    }
    return sum;
}

/* root with each float source s replaced by s + step * d, times g. */
static kn_uop moved_root(ki_ir *ir, kn_uop root, const kn_uop *d, double step, kn_uop g) {
    kn_uop src[16];
    for (uint32_t k = 0; k < root->nsrc; k++)
        src[k] = d[k] ? ki_op2(ir, KN_ADD, root->src[k], ki_op2(ir, KN_MUL, d[k], ki_const_float(ir, KN_F64, step)))
                      : root->src[k];
    return ki_op2(ir, KN_MUL, ki_with_src(ir, root, src), g);
}

static kn_uop like_param(ki_ir *ir, const char *name, unsigned k, kn_uop u) {
    char full[16];
    snprintf(full, sizeof full, "%s%u", name, k);
    return ki_param_make(ir, -1, KN_F64, KN_GLOBAL, 0, full, NULL, u->type->rank ? ki_shape_of(ir, u) : NULL);
}

/* In a tensor program operands have one shape, or are scalars. */
static bool shapes_meet(ki_ir *ir, kn_uop u) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    bool good = true;
    for (int64_t k = 0; k < n; k++) {
        kn_uop v = node[k];
        if (!ki_is_elementwise((kn_op)v->op)) continue;
        for (uint32_t j = 0; j < v->nsrc; j++) good &= v->src[j]->type->rank == 0 || ki_same_shape(v->src[j], v);
    }
    if (n >= 0) ki_free(node);
    return good;
}

/* What a rule may not do at all: differentiate integers, or give a result of another shape than the source has. (An
 * elementwise op broadcasts its operands; the sweep in grad.c sums such results.) NULL: nothing wrong. */
static const char *gradient_form(execution *x, kn_uop root, kn_uop *out) {
    for (int t = 1; t < KI_DTYPE_COUNT; t++)
        for (uint32_t k = 0; k < root->nsrc; k++)
            if (out[k] && x->p->mask[0] >> t & 1 && !ki_is_float((kn_dtype)t)) return "integers have no gradient";
    for (uint32_t k = 0; k < root->nsrc; k++)
        if (out[k] && !shapes_meet(&x->ir, out[k])) return "operands of different shapes";
    if (ki_is_elementwise((kn_op)root->op)) return NULL;
    for (uint32_t k = 0; k < root->nsrc; k++)
        if (out[k] && !ki_same_shape(out[k], root->src[k])) return "a gradient has the shape of its source";
    return NULL;
}

/* Slope of the root along d over two step widths. False where they differ, or the root has no finite value. */
static bool slope_of(execution *x, ki_gen *gen, kn_uop root, const kn_uop *d, kn_uop g, const kn_uop *mine,
                     unsigned nmine, double *slope, double *sum, const char **why) {
    static const double step[] = {1e-5, 5e-6};
    kn_uop node[20];
    ki_grid grid;
    unsigned n = 5;
    node[4] = ki_op2(&x->ir, KN_MUL, root, g);
    for (unsigned k = 0; k < 4; k++) node[k] = moved_root(&x->ir, root, d, k & 1 ? -step[k / 2] : step[k / 2], g);
    for (unsigned k = 0; k < nmine; k++) node[n++] = mine[k];
    for (unsigned k = 0; k < n; k++)
        if (!node[k]) return ki_env_clear(&x->env), *why = "a shape that does not meet its gradient", false;
    bool good = ki_grid_eval(&grid, &x->ir, node, n, gen->state, gen->ties ? KI_DATA_TIES : KI_DATA_SMOOTH),
         bad = false;
    if (good) {
        double s[2];
        for (unsigned k = 0; k < 2; k++)
            s[k] = (total(&grid, node[2 * k], &bad) - total(&grid, node[2 * k + 1], &bad)) / (2 * step[k]);
        *sum = 0;
        bool finite = isfinite(total(&grid, node[4], &bad));
        for (unsigned k = 5; k < n; k++) *sum += total(&grid, node[k], &bad);
        *slope = s[0];
        good = finite && !bad && fabs(s[0] - s[1]) <= 1e-3 * (fabs(s[0]) + 1); /* false with NaN */
    } else {
        *why = grid.why;
    }
    ki_grid_free(&grid);
    return good;
}

static int gradient_attempt(execution *x, ki_gen *gen, const char **why) {
    kn_uop root = ki_gen_root(gen), out[16] = {NULL}, d[16] = {NULL}, mine[16];
    ki_ir *ir = &x->ir;
    ki_env_clear(&x->env);
    if (!root) return *why = gen->why, 0;
    if (root->dtype != KN_F64 || root->nsrc > 16) return *why = "no float result", 0;
    kn_uop g = like_param(ir, "g", 0, root);
    x->m = (ki_match){.ir = ir, .user = x->room, .grad = g, .out = out};
    int r = ki_grad_apply(&x->m, x->p->set, (uint32_t)(x->p->rule - x->p->set->rule), 0, root);
    if (r < 0) return because(x, "the gradient could not be built: %s", x->env.message.s), ki_env_clear(&x->env), -1;
    if (r == 0) return 0;
    const char *form = gradient_form(x, root, out);
    if (form) return because(x, "%s: ", form), print_small(ir, root, &x->out->reason), -1;
    unsigned n = 0, flat = 0, alone = gen->ties ? (unsigned)(gen->state % root->nsrc) : 16;
    for (uint32_t k = 0; k < root->nsrc; k++) {
        if (root->src[k]->dtype != KN_F64 || (alone < 16 && k != alone)) continue;
        d[k] = like_param(ir, "d", k, root->src[k]);
        if (out[k]) mine[n++] = ki_op2(ir, KN_MUL, out[k], d[k]);
        flat++;
    }
    double slope, sum;
    if (!flat || !slope_of(x, gen, root, d, g, mine, n, &slope, &sum, why)) return 0;
    if (isfinite(sum) && fabs(slope - sum) <= 1e-4 * (fabs(slope) + fabs(sum) + 1)) return 1;
    ki_text_cut(&x->out->reason, 0);
    ki_text_printf(&x->out->reason, "slope %g, gradient %g over %u sources: ", slope, sum, flat);
    print_small(ir, root, &x->out->reason);
    return -1;
}

static void by_graphs(execution *x) {
    bool slope = x->p->rule->kind == KI_R_GRAD;
    ki_gen g = {.ir = &x->ir, .set = x->p->set, .rule = x->p->rule, .state = 1, .smooth = slope};
    const char *why = NULL;
    uint64_t held = 0;
    for (unsigned k = 0; k < ATTEMPTS && held < (g.large ? 4 : slope || x->p->mutant ? 5 * WANTED : WANTED); k++) {
        if (k == ATTEMPTS - 300) g.large = held == 0;
        ki_mark mark = ki_ir_mark(&x->ir);
        g.ties = slope && k & 1;
        int r = slope ? gradient_attempt(x, &g, &why) : attempt(x, &g, &why);
        ki_ir_drop(&x->ir, mark);
        if (r < 0) {
            x->out->rung = KI_REFUTED;
            x->out->instances += held;
            return;
        }
        held += (uint64_t)r;
        if (g.why && k > 40 && !held && !g.large) break; /* it never will */
    }
    x->out->instances += held;
    if (held >= 3) {
        x->out->rung = KI_PROVED_EXECUTION;
        x->out->narrower = x->p->was && !slope && !x->fresh;
        ki_text_cut(&x->out->reason, 0);
    } else if (why) {
        because(x, "no graph made for it: %s", why);
    } else {
        because(x, "%s", "the graphs made did not match, or its guard did not hold");
    }
}

/* ---- derivations ------------------------------------------------------------------------------------------- */

static bool has_op(const ki_proof *p, kn_op op) {
    for (unsigned r = 0; r < p->rule->npat; r++)
        if (p->set->pat[p->rule->pat + r].kind == KI_P_NODE && p->set->pat[p->rule->pat + r].op == op) return true;
    return false;
}

static bool builds_op(const ki_proof *p, unsigned term, kn_op op) {
    const ki_term *t = &p->term[term];
    bool found = t->kind == KI_T_OP && t->op == op;
    for (unsigned k = 0; k < t->nkid; k++) found |= builds_op(p, p->set->kid[t->kid + k], op);
    return found;
}

typedef struct steps { /* sets in the order they run */
    const ki_ruleset *set[2];
    unsigned n;
} steps;

static kn_uop run_steps(execution *x, const steps *s, kn_uop root, ki_stats *stats) {
    for (unsigned k = 0; k < s->n && root; k++)
        root =
            ki_rewrite(&x->ir, root,
                       &(ki_rewrite_opts){.sets = &s->set[k], .nsets = 1, .fp = ~0u, .stats = stats, .user = x->room});
    return root;
}

/* What the sources of a root are: lanes, some of them scalars, or the second a constant; NEAR_0: and the first of 20 bits. A function's argument may
 * be known not to be above 0. */
typedef enum sources {
    LANES,
    NOT_ABOVE_0,
    FUNCTION_KINDS,
    FIRST_SCALAR = FUNCTION_KINDS,
    OTHERS_SCALAR,
    ABOVE_0,
    NEAR_0,
    BELOW_0,
    SOURCE_KINDS
} sources;

/* op(x...) for parameters of dtype t. */
static kn_uop applied(execution *x, kn_op op, kn_dtype t, sources which, int64_t dim) {
    kn_uop src[3];
    for (int k = 0; k < ki_ops[op].least; k++) {
        char name[2] = {(char)('a' + k), 0};
        bool scalar = which == (k ? OTHERS_SCALAR : FIRST_SCALAR);
        if (k == 1 && which >= ABOVE_0)
            src[k] = ki_const_bits(&x->ir, t, ki_bits_from_f64(t, which == BELOW_0 ? -7 : 7));
        else
            src[k] =
                ki_param_make(&x->ir, -1, t, KN_GLOBAL, 0, name, NULL, scalar ? NULL : ki_shape_src(&x->ir, &dim, 1));
        if (k == 0 && which == NEAR_0 && ki_is_int(t) && ki_itemsize(t) >= 4)
            src[k] = ki_op2(&x->ir, KN_AND, src[k], ki_const_int(&x->ir, t, 0xFFFFF));
        if (which == NOT_ABOVE_0) {
            kn_uop zero = ki_const_float(&x->ir, t, 0);
            src[k] = ki_op3(&x->ir, KN_WHERE, ki_op2(&x->ir, KN_CMPLT, zero, src[k]), zero, src[k]);
        }
    }
    kn_uop root = ki_make(&x->ir, op, t, src, (uint32_t)ki_ops[op].least, (kn_arg){.bits = 0}, 0);
    ki_env_clear(&x->env);
    return root;
}

/* What a derivation begins with: op(x...) for parameters of dtype t, or the expression that something is promised of, in an order; op is KN_SINK then. */
typedef struct subject {
    kn_op op;
    kn_dtype t;
    sources which;
    unsigned order;
} subject;

static kn_uop begin(execution *x, const subject *s, int64_t dim) {
    kn_uop root, a;
    if (s->op != KN_SINK) {
        root = applied(x, s->op, s->t, s->which, dim);
        x->promise = root ? ki_promise_of(s->op, s->t) : NULL;
        for (unsigned k = 0; k < 2 && root; k++) x->arg[k] = root->src[k ? root->nsrc - 1 : 0];
    } else {
        a = ki_param_make(&x->ir, -1, KN_F32, KN_GLOBAL, 0, "a", NULL, ki_shape_src(&x->ir, &dim, 1));
        kn_uop b = ki_param_make(&x->ir, -1, KN_F32, KN_GLOBAL, 0, "b", NULL, ki_shape_src(&x->ir, &dim, 1));
        root = a && b ? ki_whole_of(&x->ir, s->order, a, b) : NULL;
        x->promise = ki_promise_of_whole(s->order);
        x->arg[0] = a, x->arg[1] = b;
    }
    return root;
}

/* cast(x; to) for lanes of dtype `from`. */
static kn_uop converted(execution *x, kn_dtype from, kn_dtype to) {
    int64_t dim = ELEMENTS;
    kn_uop a = ki_param_make(&x->ir, -1, from, KN_GLOBAL, 0, "a", NULL, ki_shape_src(&x->ir, &dim, 1));
    return ki_cast(&x->ir, a, to);
}

/* A function or expression, as the rules write it out, against what is promised of it. Where a rule that
 * takes it up does not say @fp(afn), its results are the true ones, rounded. 1 kept, -1 not, 0 not evaluated. */
static int keeps_promise(execution *x, kn_uop root, kn_uop v, bool afn, const char **why) {
    kn_uop part[3] = {v, x->arg[0], x->arg[1]};
    kn_dtype t = (kn_dtype)root->dtype;
    x->nodes = v->id - root->id;
    for (unsigned k = 0; k < 6; k++) {
        double most = ki_ulps_promised(x->promise, t, !(k & 1)) * 1.01; /* two or three digits of a sample's worst */
        ki_grid g;
        if (!most || (k & 1 && x->p->fused)) continue;
        if (!afn) most = 0.5;
        bool good = (k & 1 ? ki_grid_eval_split : ki_grid_eval)(&g, &x->ir, part, 3, x->seed + 1 + k / 2, KI_DATA_WILD);
        if (!good) return *why = g.why, ki_grid_free(&g), 0;
        for (size_t e = 0; e < (size_t)v->type->numel; e++) {
            uint64_t in[2];
            for (unsigned j = 0; j < 2; j++) in[j] = g.bits[part[1 + j]->id][part[1 + j]->type->numel == 1 ? 0 : e];
            double off = ki_ulps_off(x->promise, t, in, g.bits[v->id][e]);
            if (g.bad[v->id][e]) off = INFINITY;
            if (off > x->worst) x->worst = off;
            if (off <= most) continue;
            ki_text_cut(&x->out->reason, 0);
            ki_text_printf(&x->out->reason, "left %s(%.17g", ki_promise_name(x->promise), ki_f64_from_bits(t, in[0]));
            if (part[1] != part[2]) ki_text_printf(&x->out->reason, ", %.17g", ki_f64_from_bits(t, in[1]));
            ki_text_printf(&x->out->reason, "), right %.17g: %.4g ulp off, %.3g are promised%s",
                           ki_f64_from_bits(t, g.bits[v->id][e]), off, most / (afn ? 1.01 : 1),
                           afn ? "" : " without @fp(afn)");
            ki_grid_free(&g);
            return -1;
        }
        ki_grid_free(&g);
    }
    return 1;
}

/* Whether all rules that took up a function of the program may give another value than the true one, rounded. */
static bool may_approximate(const ki_ruleset *set, const ki_rule_count *count) {
    bool afn = true;
    for (uint32_t k = 0; k < set->nrule; k++) {
        const ki_pat *p = &set->pat[set->rule[k].pat];
        if (count[k].hits && p->kind == KI_P_NODE && p->op != KN_STAGE) afn &= (set->rule[k].fp & KI_FP_AFN) != 0;
    }
    return afn;
}

/* The sets on one root. instances[k] counts what rule k of the first was tried on (NULL: x's rule alone counts). 1 it fired
 * and the result is right, 0 it did not, -1 wrong, 2 it fired, and a step is left that no rule takes. */
static int derive(execution *x, const steps *s, kn_uop root, uint64_t *instances, const char **why) {
    const ki_ruleset *set = x->p->set;
    ki_stats stats = {0};
    if (!root) return 0;
    kn_uop v = run_steps(x, s, root, &stats);
    ki_rule_count *count = ki_stats_for(&stats, set);
    bool fired = count && (instances ? v != root : count[x->p->rule - set->rule].hits != 0);
    bool exact = x->promise != NULL;
    int r = 0;
    if (!v && count) {
        because(x, "the right side could not be built: %s", x->env.message.s);
        r = -1;
    } else if (fired && mentions(&x->ir, v, KN_STAGE)) {
        r = 2;
    } else if (fired) {
        r = exact ? keeps_promise(x, root, v, may_approximate(set, count), why)
                  : compare(x, root, v, KI_DATA_WILD, why);
        if (r == 1 && !exact) r = compare(x, root, v, KI_DATA_HARD, why);
        x->loose |= !exact;
    }
    ki_env_clear(&x->env);
    uint64_t n = (uint64_t)root->type->numel;
    for (uint32_t k = 0; k < set->nrule && r == 1 && instances; k++) instances[k] += count[k].hits ? n : 0;
    if (r == 1 && !instances) x->out->instances += n;
    ki_stats_free(&stats);
    return r;
}

/* A changed function that kept its promise so far: once more, on other arguments. */
static int derive_densely(execution *x, const steps *s, const subject *of, uint64_t *instances, const char **why) {
    int64_t n = x->nodes > 0 ? CELLS / x->nodes : DENSE;
    x->seed = 10;
    int r = derive(x, s, begin(x, of, n < ELEMENTS ? ELEMENTS : n > DENSE ? DENSE : n), instances, why);
    x->seed = 0;
    return r;
}

typedef struct outcome {
    bool any, left;
} outcome;

/* False: refuted. */
static bool note(outcome *o, int r) {
    o->any |= r == 1;
    o->left |= r == 2;
    return r >= 0;
}

/* As derive, on every op of every dtype; 2 also where some derivations are complete and one is not. */
static int derive_all(execution *x, const steps *s, uint64_t *instances, const char **why) {
    outcome o = {false, false};
    bool ok = true;
    for (unsigned op = 0; op < KI_OP_COUNT && ok; op++) {
        if (!ki_is_elementwise((kn_op)op) || op == KN_WHERE || !s->set[0]->root[op]) continue;
        bool one = ki_ops[op].least < 2;
        for (unsigned t = KN_BOOL; t < KI_DTYPE_COUNT && ok; t++) {
            bool function = ki_promise_of((kn_op)op, (kn_dtype)t) != NULL;
            unsigned kinds = op == KN_CAST ? KI_DTYPE_COUNT : !one ? SOURCE_KINDS : function ? FUNCTION_KINDS : 1;
            for (unsigned k = op == KN_CAST ? KN_BOOL : 0; k < kinds && ok; k++) {
                if (!one && k == NOT_ABOVE_0) continue;
                ki_mark mark = ki_ir_mark(&x->ir);
                const subject of = {.op = (kn_op)op, .t = (kn_dtype)t, .which = (sources)k};
                x->promise = NULL;
                kn_uop root = op != KN_CAST                          ? begin(x, &of, ELEMENTS)
                              : k == t || k == KN_IDX || t == KN_IDX ? NULL
                                                                     : converted(x, (kn_dtype)t, (kn_dtype)k);
                int r = derive(x, s, root, instances, why);
                bool again = r == 1 && x->p->mutant && k < FUNCTION_KINDS && function;
                if (again) r = derive_densely(x, s, &of, instances, why);
                ok = note(&o, r);
                ki_ir_drop(&x->ir, mark);
            }
        }
    }
    for (unsigned k = 0; k < KI_WHOLES && ok; k++) {
        ki_mark mark = ki_ir_mark(&x->ir);
        const subject of = {.op = KN_SINK, .order = k};
        kn_uop root = begin(x, &of, ELEMENTS);
        int r = root && s->set[0]->root[root->op] ? derive(x, s, root, instances, why) : 0;
        if (r == 1 && x->p->mutant) r = derive_densely(x, s, &of, instances, why);
        ok = note(&o, r);
        ki_ir_drop(&x->ir, mark);
    }
    x->promise = NULL;
    return !ok ? -1 : o.left ? 2 : o.any;
}

/* What the caller had run for the whole set at once; 0: nothing. */
static uint64_t derived(const ki_proof *p, const ki_prove_opts *o) {
    for (unsigned k = 0; k < o->npeers && o->derived && !p->mutant; k++)
        if (o->peers[k] == p->set && o->derived[k]) return o->derived[k][p->rule - p->set->rule];
    return 0;
}

static void kept(execution *x) {
    x->out->rung = KI_PROVED_EXECUTION;
    x->out->within = x->worst > 0 && !x->loose;
    ki_text_cut(&x->out->reason, 0);
    if (x->out->within) ki_text_printf(&x->out->reason, "as promised: at most %.3f ulp off", x->worst);
}

/* The set alone; where steps stay open, a set of the same file before or after it. */
static void by_derivation(execution *x, const ki_prove_opts *o) {
    const char *why = NULL;
    const ki_ruleset *set = x->p->set;
    uint64_t before = derived(x->p, o);
    x->out->instances += before;
    int r = before ? 1 : derive_all(x, &(steps){{set}, 1}, NULL, &why);
    bool left = r == 2;
    for (unsigned k = 0; k < o->npeers && (r == 0 || r == 2); k++) {
        const ki_ruleset *q = o->peers[k];
        if (strcmp(q->name, set->name) == 0 || strcmp(q->source, set->source) != 0) continue;
        x->out->instances = 0;
        r = derive_all(x, &(steps){{set, q}, 2}, NULL, &why);
        left |= r == 2;
        if (r == 0 || r == 2) x->out->instances = 0, r = derive_all(x, &(steps){{q, set}, 2}, NULL, &why);
        left |= r == 2;
    }
    if (r == 1) kept(x);
    else if (r < 0) x->out->rung = KI_REFUTED;
    else if (left) because(x, "a step is left that no rule takes%s", ""), x->out->rung = KI_REFUTED;
    else if (why) because(x, "not evaluated: %s", why);
    else if (x->p->mutant) because(x, "no function is written out by it any more%s", ""), x->out->rung = KI_REFUTED;
    else because(x, "no derivation it takes part in could be run%s", "");
}

bool ki_prove_execute(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out) {
    execution x = {.out = out, .p = p};
    if (!ki_env_open(&x.env)) return false;
    ki_env_clear(&x.env); /* settings are not for proofs */
    x.keep = o->user != NULL;
    x.room = o->user ? o->user : ki_calloc(1, ROOM);
    if (x.room && ki_ir_open(&x.ir, &x.env)) {
        x.env.ins = o->ins;
        bool one = p->rule->kind == KI_R_REWRITE && p->rule->rhs; /* a gradient's are many */
        bool step = has_op(p, KN_STAGE) || (one && builds_op(p, p->rule->rhs, KN_STAGE));
        if (step) by_derivation(&x, o);
        else by_graphs(&x);
        ki_ir_close(&x.ir);
    }
    if (!o->user) ki_free(x.room);
    ki_env_close(&x.env);
    return true;
}

bool ki_prove_derive(const ki_ruleset *set, const ki_prove_opts *o, uint64_t *instances) {
    ki_verdict out = {0};
    ki_proof p = {.set = set};
    execution x = {.out = &out, .p = &p};
    const char *why = NULL;
    memset(instances, 0, set->nrule * sizeof *instances);
    if (!ki_env_open(&x.env)) return false;
    x.room = o->user ? o->user : ki_calloc(1, ROOM);
    bool ok = x.room && ki_ir_open(&x.ir, &x.env);
    int r = ok ? derive_all(&x, &(steps){{set}, 1}, instances, &why) : 0;
    if (r < 0 || r == 2)
        memset(instances, 0, set->nrule * sizeof *instances); /* each rule is then tried alone, and says why */
    if (ok) ki_ir_close(&x.ir);
    if (!o->user) ki_free(x.room);
    ki_verdict_free(&out);
    ki_env_close(&x.env);
    return ok;
}
