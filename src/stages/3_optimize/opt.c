/* opt.c: one OptOp: is it legal here, and what it makes of the kernel. The table below is the specification's. */
#include "stages/3_optimize/optimize.h"
#include "stages/3_optimize/nest.h"

#include <string.h>

#define FAIL(...) (ki_fail(k->ir->env, __VA_ARGS__), NULL)
#define BIT(ax)   (1u << KN_AX_##ax)

/* From which types a target may be split off, and on which side. A type may also be split into itself, either side. */
static const struct split_rule {
    uint16_t from;
    bool inner, outer;
} split_rules[KI_AX_COUNT] = {
    [KN_AX_LOCAL] = {BIT(GLOBAL) | BIT(LOOP), true, false},
    [KN_AX_THREAD] = {BIT(GLOBAL), false, true},
    [KN_AX_GROUP] = {BIT(REDUCE), true, true},
    [KN_AX_UPCAST] = {BIT(GLOBAL) | BIT(LOCAL) | BIT(LOOP), true, false},
    [KN_AX_UNROLL] = {BIT(REDUCE) | BIT(GROUP), true, false},
    [KN_AX_LOOP] = {BIT(GLOBAL), true, true},
};

/* The type a range counts as: an independent LOOP is a g nobody has named. */
static kn_axis standing(const ki_nest *k, kn_uop r) {
    kn_axis ax = (kn_axis)r->arg.range.axis;
    return ax == KN_AX_LOOP && ki_nest_independent(k, r) ? KN_AX_GLOBAL : ax;
}

static bool split_allowed(const ki_nest *k, kn_uop r, const ki_opt *o) {
    kn_axis own = (kn_axis)r->arg.range.axis, from = standing(k, r);
    if (o->target >= KI_AX_COUNT) return false;
    if (o->target == own && own != KN_AX_THREAD) return true;
    const struct split_rule *rule = &split_rules[o->target];
    if (!(rule->from >> from & 1) || !(o->top ? rule->outer : rule->inner)) return false;
    /* The table lets a LOOP be upcast; one that carries something must not be. */
    return !(from == KN_AX_LOOP && (o->target == KN_AX_UPCAST || o->target == KN_AX_LOCAL));
}

static kn_uop thread_range(const ki_nest *k) {
    for (uint32_t i = 0; i < k->scope.nrange; i++)
        if (k->scope.range[i]->arg.range.axis == KN_AX_THREAD) return k->scope.range[i];
    return NULL;
}

/* An extent that is known at launch, as CUT leaves it: a multiple of a constant that f divides. */
static bool is_even(kn_uop n, int64_t f) {
    return n->op == KN_MUL && n->src[1]->op == KN_CONST && f >= 1 && n->src[1]->arg.i % f == 0;
}

/* The ranges that OptOp o makes of r, n long: a part, and how many there are: of what the parts do not divide the last is shorter,
 * min(q, n - t q), written so that its bounds say so: q - max(0, t q + q - n); of lanes it begins earlier, *before being minus where each
 * begins: max(-f q, f - n). */
static bool two_ranges(ki_ir *ir, kn_uop r, int64_t n, const ki_opt *o, kn_uop *part, kn_uop *rest, kn_uop *before) {
    int64_t q = (n + o->arg - 1) / o->arg;
    kn_uop t = *part = ki_range_make(ir, (uint32_t)o->id, (kn_axis)o->target, ki_index(ir, o->arg)), bound;
    if (!n) {
        bound = ki_op2(ir, KN_MUL, r->src[0]->src[0], ki_index(ir, r->src[0]->src[1]->arg.i / o->arg));
    } else if (n % o->arg && o->target == KN_AX_THREAD) {
        kn_uop over = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, t, ki_index(ir, q)), ki_index(ir, q - n));
        kn_uop cut = ki_op2(ir, KN_MUL, ki_op2(ir, KN_MAX, over, ki_index(ir, 0)), ki_index(ir, -1));
        bound = ki_op2(ir, KN_ADD, cut, ki_index(ir, q));
    } else {
        bound = ki_index(ir, q);
    }
    *rest = ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, bound);
    if (n % o->arg && o->target == KN_AX_UPCAST && before)
        *before = ki_op2(ir, KN_MAX, ki_op2(ir, KN_MUL, *rest, ki_index(ir, -o->arg)), ki_index(ir, o->arg - n));
    return *part && *rest;
}

kn_uop ki_joined(ki_ir *ir, kn_uop outer, int64_t size, kn_uop inner) {
    return ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, outer, ki_index(ir, size)), inner);
}

/* A nest of the kernel's own, not one that fills local memory, of which each thread has its own. */
static bool is_outermost(const ki_nest *k, kn_uop closer) {
    for (uint32_t i = 0; i < k->sink->nsrc; i++)
        if (k->sink->src[i] == closer) return true;
    return false;
}

static kn_uop opt_split(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), t = o->target == KN_AX_THREAD ? thread_range(k) : NULL, part, rest,
           expr;
    int64_t n = ki_extent(r), f = o->arg;
    if (!split_allowed(k, r, o))
        return FAIL(KI_E_OPT_SPLIT, ki_axis_names[r->arg.range.axis], (int)o->axis,
                    o->target < KI_AX_COUNT ? ki_axis_names[o->target] : "?", o->top ? "outer" : "inner");
    if ((o->target == KN_AX_LOCAL || o->target == KN_AX_GROUP) && ki_nest_opt(k, KI_OPT_NOLOCALS, NULL))
        return FAIL(KI_E_OPT_NOLOCALS, ki_axis_names[o->target]);
    bool whole = !n && !o->top && is_even(r->src[0], f);
    if (r->src[0]->op != KN_CONST && !whole) return FAIL(KI_E_OPT_SYMBOLIC, (int)o->axis);
    bool uneven = o->target == KN_AX_THREAD && f > 0 && (f - 1) * ((n + f - 1) / f) < n; /* work for each */
    bool laps = f > 0 && n > f && n % f && o->target == KN_AX_UPCAST && ki_nest_laps(k, r);
    if (f < 1 || (n < 1 && !whole) || (n % f && !uneven && !laps))
        return FAIL(KI_E_OPT_DIVIDE, (int)f, (int)o->axis, (long long)n);
    if (o->target == KN_AX_THREAD && !is_outermost(k, ki_nest_closer(k, r))) return FAIL(KI_E_OPT_THREAD, (int)o->axis);
    if (t && (o->id < 0 || (uint32_t)o->id == t->arg.range.id)) {
        if (ki_extent(t) != f || ki_scope_has(&k->scope, ki_nest_closer(k, r)->src[0], t))
            return FAIL(KI_E_OPT_THREAD, (int)o->axis);
        o->id = (int32_t)t->arg.range.id;
    } else if (t) {
        return FAIL(KI_E_OPT_THREAD, (int)o->axis);
    }
    if (o->id < 0) o->id = (int32_t)ki_nest_next_range(k);
    if (!t && ki_nest_range(k, (uint32_t)o->id)) return FAIL(KI_E_OPT_ID, (int)o->id);
    kn_uop before = NULL;
    if (!two_ranges(ir, r, n, o, &part, &rest, &before)) return NULL;
    kn_uop outer = o->top ? part : rest, inner = o->top ? rest : part;
    expr = before ? ki_joined(ir, before, -1, part) : ki_joined(ir, outer, o->top ? (n + f - 1) / f : f, inner);
    /* A part of extent 1 stays a range: it is what the OptOps that follow may name. */
    kn_uop made = expr ? ki_swap_ranges(k, k->sink, &(ki_swap){r, expr, {outer, inner}}, 1) : NULL;
    return o->target == r->arg.range.axis && ki_hangs_on(k, r, false) ? ki_decided(k, made) : made;
}

/* A range that lanes are split off. */
typedef struct parted {
    kn_uop range, rest; /* the kernel's; what is left of it */
    int64_t left;
} parted;

/* Which of n is o's; a new one is appended. NULL: o may have to be refused, or needs more than parts. */
static parted *part_of(const ki_nest *k, const ki_opt *o, parted *p, uint32_t *n) {
    uint32_t i = 0;
    while (i < *n && p[i].range->arg.range.id != (uint32_t)o->axis) i++;
    if (i == *n) {
        kn_uop r = ki_nest_range(k, (uint32_t)o->axis);
        if (!r || !ki_nest_closer(k, r) || !ki_extent(r) || !split_allowed(k, r, o)) return NULL;
        if (r->arg.range.axis == o->target && ki_hangs_on(k, r, false)) return NULL;
        p[(*n)++] = (parted){r, r, ki_extent(r)};
    }
    return o->arg >= 1 && p[i].left % o->arg == 0 ? &p[i] : NULL;
}

kn_uop ki_nest_split(ki_nest *k, const ki_opt *opt, uint32_t n) {
    ki_ir *ir = k->ir;
    parted part[KI_MOST_SPLITS], *p;
    ki_swap swap[KI_MOST_SPLITS];
    ki_opt o[KI_MOST_SPLITS];
    uint32_t nparted = 0, fresh = ki_nest_next_range(k);
    if (n > KI_MOST_SPLITS || !n) return NULL;
    for (uint32_t i = 0; i < n; i++) {
        o[i] = opt[i];
        if (o[i].op != KI_OPT_SPLIT || o[i].top || (o[i].target != KN_AX_UPCAST && o[i].target != KN_AX_UNROLL))
            return NULL;
        if (!(p = part_of(k, &o[i], part, &nparted))) return NULL;
        o[i].id = (int32_t)(fresh + i);
        kn_uop lane, from = p->rest;
        if (!two_ranges(ir, p->range, p->left, &o[i], &lane, &p->rest, NULL)) return NULL;
        p->left /= o[i].arg;
        swap[i] = (ki_swap){from, NULL, {p->rest, lane}};
    }
    /* The value of a range: its rest times the size of a part, plus the part, from the last one inwards. */
    for (uint32_t j = 0; j < nparted; j++) {
        kn_uop e = part[j].rest;
        uint32_t first = 0;
        for (uint32_t i = n; i-- > 0;) {
            if (o[i].axis != (int32_t)part[j].range->arg.range.id) continue;
            e = ki_joined(ir, e, o[i].arg, swap[i].list[1]);
            first = i;
        }
        if (!(swap[first].expr = e)) return NULL;
    }
    kn_uop made = ki_swap_in_turn(k, k->sink, swap, n);
    for (uint32_t i = 0; i < n; i++) made = ki_kernel_with(ir, made, &o[i], NULL);
    return made;
}

/* Does a loop that stands between the two carry something from one of its iterations to the next? */
static bool parts_carried(const ki_nest *k, kn_uop end, kn_uop a, kn_uop b) {
    uint32_t i = ki_place_in(end, a), j = ki_place_in(end, b);
    bool is = false;
    for (uint32_t q = (i < j ? i : j) + 1; q < (i < j ? j : i); q++)
        is |= ki_is_loop(end->src[q]) && !ki_nest_independent(k, end->src[q]);
    return is;
}

static kn_uop opt_swap(ki_nest *k, ki_opt *o) {
    kn_uop a = ki_nest_range(k, (uint32_t)o->axis), b = ki_nest_range(k, (uint32_t)o->arg), c;
    if (!b) return FAIL(KI_E_OPT_AXIS, (int)o->arg);
    c = ki_nest_closer(k, a);
    if (!c || c != ki_nest_closer(k, b))
        return FAIL(KI_E_OPT_SWAP, (int)o->axis, (int)o->arg, "they are not loops of one nest");
    if (c->op == KN_END && (!ki_nest_independent(k, a) || !ki_nest_independent(k, b) || parts_carried(k, c, a, b)))
        return FAIL(KI_E_OPT_SWAP, (int)o->axis, (int)o->arg, "iterations depend on each other");
    if (a->arg.range.axis == KN_AX_THREAD || b->arg.range.axis == KN_AX_THREAD)
        return FAIL(KI_E_OPT_SWAP, (int)o->axis, (int)o->arg, "threads stand outermost");
    if (ki_scope_has(&k->scope, a->src[0], b) || ki_scope_has(&k->scope, b->src[0], a))
        return FAIL(KI_E_OPT_SWAP, (int)o->axis, (int)o->arg, "one's extent depends on the other");
    kn_uop *src = ki_malloc(c->nsrc * sizeof *src), with, result;
    if (!src) return FAIL(KI_E_NOMEM);
    for (uint32_t j = 0; j < c->nsrc; j++) src[j] = c->src[j] == a ? b : c->src[j] == b ? a : c->src[j];
    with = ki_with_src(k->ir, c, src);
    result = with ? ki_substitute(k->ir, k->sink, &c, &with, 1) : NULL;
    ki_free(src);
    return result;
}

/* Is r the place in a REG buffer? There are no more of them than it counts. */
static bool counts_registers(const ki_nest *k, kn_uop r) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], b = ki_is_access(u) ? ki_storage(u) : NULL;
        bool reg = b && b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_REG;
        if (reg && ki_scope_has(&k->scope, u->src[1], r)) return true;
    }
    return false;
}

static kn_uop apply(ki_nest *k, ki_opt *o) {
    kn_uop r = NULL;
    if (o->op == KI_OPT_NOLOCALS) {
        for (uint32_t i = 0; i < k->scope.nrange; i++) {
            kn_axis ax = (kn_axis)k->scope.range[i]->arg.range.axis;
            if (ax == KN_AX_LOCAL || ax == KN_AX_GROUP || ax == KN_AX_WARP)
                return FAIL(KI_E_OPT_NOLOCALS, ki_axis_names[ax]);
        }
        return k->sink;
    }
    if (o->op == KI_OPT_STREAM) return ki_opt_stream(k, o);
    if (o->op >= KI_OPT_COUNT) return FAIL(KI_E_ARG_INVALID, "optimize", "there is no such OptOp");
    bool copies = o->op == KI_OPT_STAGE || o->op == KI_OPT_DEAL || o->op == KI_OPT_FRAME;
    if (!(copies && o->axis < 0)) {
        r = ki_nest_range(k, (uint32_t)o->axis);
        if (!r || !ki_nest_closer(k, r)) return FAIL(KI_E_OPT_AXIS, (int)o->axis);
        bool known = ki_extent(r) || o->op == KI_OPT_SPLIT || o->op == KI_OPT_CUT || o->op == KI_OPT_PADTO;
        if (!copies && o->op != KI_OPT_SWAP && o->op != KI_OPT_PREFETCH && !known)
            return FAIL(KI_E_OPT_SYMBOLIC, (int)o->axis);
    }
    switch ((ki_optop)o->op) {
    case KI_OPT_SPLIT: return opt_split(k, o);
    case KI_OPT_SWAP: return opt_swap(k, o);
    case KI_OPT_PADTO:
        if ((ki_nest_closer(k, r)->op == KN_END && !ki_nest_independent(k, r)) || counts_registers(k, r))
            return FAIL(KI_E_OPT_PADTO, (int)o->axis);
        if (o->arg < 1) return FAIL(KI_E_OPT_DIVIDE, (int)o->arg, (int)o->axis, (long long)ki_extent(r));
        if (!ki_extent(r) && r->src[0]->hi.i > o->arg) return FAIL(KI_E_OPT_SYMBOLIC, (int)o->axis);
        return ki_opt_padto(k, o);
    case KI_OPT_JOIN: return ki_opt_join(k, o);
    case KI_OPT_TC: return ki_opt_tc(k, o);
    case KI_OPT_CUT: return ki_opt_cut(k, o);
    case KI_OPT_PREFETCH: return ki_opt_prefetch(k, o);
    case KI_OPT_SCAN: return ki_opt_scan(k, o);
    case KI_OPT_FIRST: return ki_opt_first(k, o);
    case KI_OPT_ROWS:
        if (ki_nest_opt(k, KI_OPT_NOLOCALS, NULL)) return FAIL(KI_E_OPT_NOLOCALS, "ROWS");
        return ki_opt_rows(k, o);
    case KI_OPT_TERMS: return ki_opt_terms(k, o);
    case KI_OPT_LATE: return ki_opt_late(k, o);
    case KI_OPT_PIPELINE: return ki_opt_pipeline(k, o);
    case KI_OPT_ROTATE: return ki_opt_rotate(k, o);
    case KI_OPT_DEAL:
        if (ki_nest_opt(k, KI_OPT_NOLOCALS, NULL)) return FAIL(KI_E_OPT_NOLOCALS, "DEAL");
        return ki_opt_deal(k, o);
    case KI_OPT_FRAME:
        if (ki_nest_opt(k, KI_OPT_NOLOCALS, NULL)) return FAIL(KI_E_OPT_NOLOCALS, "FRAME");
        return ki_opt_frame(k, o);
    case KI_OPT_STAGE:
        if (ki_nest_opt(k, KI_OPT_NOLOCALS, NULL)) return FAIL(KI_E_OPT_NOLOCALS, "STAGE");
        return ki_opt_stage(k, o);
    default: return NULL;
    }
}

kn_uop ki_nest_apply(ki_nest *k, ki_opt opt) {
    kn_uop result = apply(k, &opt);
    return ki_kernel_with(k->ir, result, &opt, NULL);
}

kn_uop ki_apply_opt(ki_ir *ir, kn_uop sink, ki_opt opt) {
    ki_nest k;
    kn_uop result = NULL;
    if (!sink) return NULL;
    if (ki_nest_open(&k, ir, sink)) result = ki_nest_apply(&k, opt);
    ki_nest_close(&k);
    return result;
}

/* Of anything in the store. */
static bool has_threads(const ki_ir *ir) {
    for (uint32_t id = 1; id < ir->n; id++)
        if (ir->node[id]->op == KN_RANGE && ir->node[id]->arg.range.axis == KN_AX_THREAD) return true;
    return false;
}

/* The end of the stage: threads outermost and counted. */
static kn_uop finish(ki_ir *ir, kn_uop sink) {
    ki_nest k;
    uint32_t threads = 1;
    kn_uop result = NULL;
    if (!has_threads(ir)) return ki_kernel_with(ir, sink, NULL, &threads);
    if (ki_nest_open(&k, ir, sink)) result = ki_hoist_threads(&k);
    for (uint32_t i = 0; i < k.scope.nrange; i++)
        if (k.scope.range[i]->arg.range.axis == KN_AX_THREAD) threads = (uint32_t)ki_extent(k.scope.range[i]);
    ki_nest_close(&k);
    return ki_kernel_with(ir, result, NULL, &threads);
}

kn_uop ki_apply_opts(ki_ir *ir, kn_uop sink, const ki_opt *opt, uint32_t n) {
    sink = ki_flatten_sums(ir, sink);
    for (uint32_t i = 0; i < n && sink; i++) sink = ki_apply_opt(ir, sink, opt[i]);
    return sink ? finish(ir, sink) : NULL;
}

static uint32_t threads_of(ki_ir *ir, kn_uop sink) {
    const kn_uop *node;
    int64_t n = ki_reach_above(ir, &sink, 1, 0, &node);
    for (int64_t i = 0; i < n; i++)
        if (node[i]->op == KN_RANGE && node[i]->arg.range.axis == KN_AX_THREAD) return (uint32_t)ki_extent(node[i]);
    return 1;
}

/* What the heuristics choose: for as many threads as there are, or the most that add up as one thread does, if that is more
 * than half of them, what is no whole vector with one of them where that helps; in several parts for each only where that adds up so too. */
static kn_uop choose(ki_ir *ir, const ki_target *t, const ki_machine *m, kn_uop sink) {
    ki_machine some = *m;
    kn_uop chosen = ki_opt_choose(ir, t, m, NULL, sink), alone;
    if (!chosen || m->threads < 2 || !ki_shares_sums(ir, chosen)) return chosen;
    some.threads = 1;
    if (!(alone = ki_opt_choose(ir, t, &some, &(ki_knobs){.sums = 1}, sink))) return NULL;
    if (ki_same_orders(ir, alone, chosen)) return chosen;
    some.single = true;
    for (some.threads = m->threads; chosen && some.threads * 2 > m->threads; some.threads--)
        for (uint8_t whole = 0; chosen && whole < 2; whole++) {
            chosen = ki_opt_choose(ir, t, &some, &(ki_knobs){.whole = whole}, sink);
            bool enough = chosen && (!whole || threads_of(ir, chosen) >= some.threads);
            if (enough && ki_same_orders(ir, alone, chosen)) return chosen;
        }
    some.threads = 1;
    return chosen ? ki_opt_choose(ir, t, &some, NULL, sink) : NULL;
}

kn_uop ki_optimize(ki_ir *ir, const ki_target *t, const ki_machine *m, kn_uop sink) {
    if (!sink) return NULL;
    if (sink->arg.kernel && sink->arg.kernel->optimized) return sink;
    bool untouched = !sink->arg.kernel || sink->arg.kernel->nopt == 0, clean = ir->env->err == KI_E_NONE;
    if (untouched && !(sink = ki_flatten_sums(ir, sink))) return NULL;
    if (untouched && t) {
        kn_uop chosen = choose(ir, t, m, sink);
        ki_machine one = *m;
        /* An OptOp that was refused is the heuristics' mistake, not the program's: the kernel is right without. Sums are added up
         * as one thread does, so what one thread's heuristics choose comes first. */
        one.threads = 1;
        if (!chosen && clean && ir->env->status != KI_NOMEM && m->threads > 1)
            ki_env_clear(ir->env), chosen = choose(ir, t, &one, sink);
        if (clean && ir->env->err != KI_E_NONE && ir->env->status == KI_NOMEM) return NULL;
        if (!chosen && !clean) return NULL;
        if (!chosen) ki_env_clear(ir->env);
        if (chosen) sink = chosen;
    }
    return finish(ir, sink);
}
