/* facts.c: what decide.c needs to know of each tensor value before it starts, sources first. */
#include "stages/indexing.h"
#include "stages/2_rangeify/rangeify.h"

float ki_op_cost(kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_CAST:
    case KN_BITCAST: return 0.5f;
    case KN_RECIP:
    case KN_DIV:
    case KN_SQRT:
    case KN_IDIV:
    case KN_MOD: return 5;
    case KN_EXP:
    case KN_EXP2:
    case KN_LOG:
    case KN_LOG2:
    case KN_TANH:
    case KN_ERF: return 15;
    case KN_SIN:
    case KN_COS:
    case KN_TAN:
    case KN_POW: return 30;
    case KN_THREEFRY: return 80;
    default: return 1;
    }
}

static void count_users(rangeifier *r) {
    for (int64_t i = 0; i < r->n; i++) {
        kn_uop u = r->order[i];
        for (uint32_t k = 0; k < (u->op == KN_REMAT ? 1 : u->nsrc); k++) { /* who waits for a value does not read it */
            bool again = false;
            for (uint32_t j = 0; j < k && k < 16; j++) again |= u->src[j] == u->src[k];
            if (!again) r->info[u->src[k]->id].users++;
        }
    }
}

bool ki_range_is_view(kn_uop u) {
    return (ki_ops[u->op].cls == KI_C_MOVEMENT && u->op != KN_STACK && u->op != KN_INDEX) || u->op == KN_REMAT;
}

/* How often sums read what: users first. A view passes on how often it is read; the body of a sum reads its operands once. */
static void count_reads(rangeifier *r) {
    for (int64_t i = r->n; i-- > 0;) {
        kn_uop u = r->order[i];
        const kn_uop s = u->nsrc ? u->src[0] : NULL;
        if (u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD && ki_is_elementwise((kn_op)s->op)) {
            for (uint32_t k = 0; k < s->nsrc; k++)
                if (ki_range_is_view(s->src[k]) && r->info[s->src[k]->id].again < 1) r->info[s->src[k]->id].again = 1;
        } else if (ki_range_is_view(u) && s->type->numel) {
            float again = r->info[u->id].again * (float)u->type->numel / (float)s->type->numel;
            if (again > r->info[s->id].again) r->info[s->id].again = again;
        }
    }
}

/* An operand of a product, in short: see wants_storage_elementwise. */
static bool will_be_stored(const info *f) { return f->cost >= 4 && f->again >= 16 && f->cost * f->again > 256; }

/* Do all users of s come together in u, by way of values used once: relu(s) = s <= 0 ? 0 : s? Then u ends what s began. */
static bool meets(const rangeifier *r, kn_uop s, kn_uop u) {
    enum { LOOK_AT = 12 };
    kn_uop seen[LOOK_AT] = {u};
    uint32_t n = 1, found = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool uses = false;
        for (uint32_t k = 0; k < seen[i]->nsrc; k++) {
            kn_uop v = seen[i]->src[k];
            uses |= v == s;
            if (v != s && n < LOOK_AT && ki_is_elementwise((kn_op)v->op) && r->info[v->id].users == 1) seen[n++] = v;
        }
        found += uses;
    }
    return found == r->info[s->id].users;
}

static bool is_compare(kn_op op) {
    return op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPEQ || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE;
}

bool ki_range_is_product(kn_uop u) {
    kn_uop t = u->src[0];
    if (u->arg.reduce.op != KN_ADD || t->op != KN_MUL) return false;
    for (unsigned k = 0; k < 2; k++) {
        kn_uop side = t->src[k];
        while (ki_range_is_view(side)) side = side->src[0];
        if (side->type->numel > t->type->numel / 8) return false;
    }
    return true;
}

/* Is u its last source, bounded from above: where(0 < d, 0, d)? Then d is counted once. What is bounded from below (relu) counts twice: a residual
 * sum that two read is stored so, with which ResNet-50's training step took 0.95 of its time. */
static bool is_bound(kn_uop u) {
    return u->op == KN_WHERE && u->src[0]->op == KN_CMPLT && u->src[0]->src[0] == u->src[1] &&
           u->src[0]->src[1] == u->src[2] && ki_peel_const(u->src[1]);
}

static void derive(rangeifier *r, kn_uop u) {
    info *f = &r->info[u->id];
    bool value = false; /* has a source that is not a shape */
    f->constant =
        u->op != KN_PARAM && u->op != KN_BUFFER && u->op != KN_LOAD && u->op != KN_AFTER && u->op != KN_BINARY;
    uint32_t last = ki_range_is_view(u) ? 1 : u->nsrc;
    if (u->op == KN_PARAM) last = 0;
    f->remat = u->op == KN_REMAT;
    f->back = f->awaited;
    for (uint32_t k = 0; k < last; k++) {
        const info *s = &r->info[u->src[k]->id];
        value = true;
        f->constant &= s->constant;
        f->remat |= s->remat;
        f->back |= s->back;
        bool here = is_compare((kn_op)u->op) && s->constant && !ki_peel_const(u->src[k]);
        f->compares |= s->compares || here;
        f->counts |= s->counts || here;
        /* The end of a REDUCE's chain, used more than once, will be stored: to its users it is a value to load. */
        bool stored = s->users > 1 && (s->heavy || (u->src[k]->op == KN_REDUCE && !s->folds));
        stored |= !ki_range_is_view(u) && will_be_stored(s);
        bool repeated = k > 0 && u->src[k] == u->src[k - 1], met = k == 2 && is_bound(u);
        if (!stored && !met) f->cost += s->cost;
        if (!repeated && !met) f->leaves += stored ? 1 : s->leaves;
        bool grows = u->op == KN_EXPAND || u->op == KN_PAD || u->op == KN_INDEX;
        bool chain = u->src[k]->op == KN_REDUCE ? !s->folds : s->heavy;
        if (!grows && chain && (s->users == 1 || (ki_is_elementwise((kn_op)u->op) && meets(r, u->src[k], u))))
            f->heavy = true;
        uint8_t more = repeated || !chain || stored ? 0
                       : u->src[k]->op == KN_REDUCE ? ki_range_is_product(u->src[k])
                                                    : s->products;
        f->products = f->products + more > 2 ? 2 : f->products + more;
    }
    if (ki_is_elementwise((kn_op)u->op)) f->cost += ki_op_cost(u);
    if (u->op == KN_EXPAND && u->type->numel) f->leaves *= (float)u->src[0]->type->numel / (float)u->type->numel;
    if (u->op == KN_REDUCE || u->op == KN_LOAD || u->op == KN_AFTER || (!value && u->op != KN_CONST)) {
        f->cost = 0;
        f->leaves = 1;
    }
    if (u->op == KN_REDUCE) f->heavy = false;
    if (f->leaves > 1000) f->leaves = 1000;
    if (f->cost > 1e6f) f->cost = 1e6f;
}

bool ki_range_goes_through(const rangeifier *r, kn_uop v) {
    const info *f = &r->info[v->id];
    if (f->keep) return false;
    return ki_ops[v->op].cls == KI_C_MOVEMENT || v->op == KN_REMAT || (v->op == KN_REDUCE && f->folds) ||
           (ki_is_elementwise((kn_op)v->op) && (f->constant || f->compares));
}

/* The demand d on a sum with its value folded as far as it goes, demands on what lies deeper left in it. What it looks
 * through is expanded on the way, all demands that are there at a time, those on constants before others, which what is compared
 * with them may be deep below; bounded. Positions that are data stay as they are:
 * they come from outside, where they may have been met. */
static kn_uop fold_sum(rangeifier *r, kn_uop asked) {
    enum { WAVE = 32, MOST = 64 };
    hidden h = {0};
    kn_uop d = r->nested ? ki_range_hide(r, asked, &h) : asked;
    if (!d) return NULL;
    if (h.too_many) return ki_range_push(r, asked);
    kn_uop e = ki_range_push(r, d), from[WAVE], to[WAVE], *order;
    size_t n = 1;
    for (unsigned steps = 0; e && n && steps < MOST; steps += (unsigned)n) {
        int64_t count = ki_toposort_above(r->ir, &e, 1, r->top, &order);
        n = 0;
        for (unsigned rest = 0; rest < 2 && !n; rest++)
            for (int64_t k = 0; k < count && n < WAVE && steps + n < MOST; k++)
                if (is_demand(r, order[k]) && ki_range_goes_through(r, order[k]->src[0]) &&
                    (rest || r->info[order[k]->src[0]->id].constant))
                    from[n++] = order[k];
        ki_free(order);
        bool ok = count >= 0;
        for (size_t k = 0; k < n && ok; k++) ok = (to[k] = ki_range_push(r, from[k])) != NULL;
        if (!ok) return NULL;
        if (n) e = ki_substitute(r->ir, e, from, to, n);
    }
    return ki_range_show(r, e ? ki_range_fold(r->ir, e, r->top) : NULL, &h);
}

static bool no_reduce(rangeifier *r, kn_uop e, bool *none) {
    kn_uop *order;
    int64_t n = e ? ki_toposort_above(r->ir, &e, 1, r->top, &order) : -1;
    if (n < 0) return false;
    *none = true;
    for (int64_t k = 0; k < n; k++) *none &= order[k]->op != KN_REDUCE;
    ki_free(order);
    return true;
}

/* *out: the sum folded away; NULL if it stays a REDUCE. */
bool ki_range_folded(rangeifier *r, kn_uop d, kn_uop *out) {
    bool folds, known;
    *out = ki_alike_folded(r, d, &known);
    if (known) return r->ir->env->err == KI_E_NONE;
    kn_uop e = fold_sum(r, d);
    if (!no_reduce(r, e, &folds)) return false;
    *out = folds ? e : NULL;
    return ki_alike_note(r, d, *out);
}

/* Whether e still compares loop positions: then what a sum has become may make another one fold. Positions that are data
 * do not. */
static bool compares_ranges(rangeifier *r, kn_uop e, bool *does) {
    kn_uop *order;
    int64_t n = ki_toposort_above(r->ir, &e, 1, r->top, &order);
    bool *has = n < 0 ? NULL : ki_malloc((size_t)n + 1); /* a RANGE, other than to read data at */
    *does = false;
    for (int64_t i = 0; has && i < n; i++) {
        kn_uop u = order[i];
        has[i] = u->op == KN_RANGE;
        for (uint32_t k = 0; k < u->nsrc && u->op != KN_INDEX; k++)
            if (u->src[k]->id > r->top) has[i] |= has[ki_place_of(order, (size_t)n, u->src[k])];
        *does |= has[i] && is_compare((kn_op)u->op);
    }
    bool ok = has || n < 0 || (ki_fail(r->ir->env, KI_E_NOMEM), false);
    ki_free(has);
    ki_free(order);
    return ok && n >= 0;
}

/* Does the sum v fold, or else add terms where data says? */
static bool try_fold(rangeifier *r, kn_uop v, info *f) {
    kn_uop i[KI_MAX_RANK], range[KI_MAX_RANK], e;
    uint32_t n = 0;
    for (unsigned k = 0; k < v->type->rank; k++) {
        ki_dim d = v->type->dim[k];
        i[k] = d.n == 1 && !d.sym ? ki_index(r->ir, 0)
                                  : ki_range_make(r->ir, r->ir->next_range, KN_AX_LOOP, ki_dim_uop(r->ir, d));
        if (!i[k]) return false;
        if (i[k]->op == KN_RANGE) range[n++] = i[k];
    }
    kn_uop d = ki_push_operand(r->ir, v, i, v->type->rank);
    if (!d || !no_reduce(r, e = fold_sum(r, d), &f->folds)) return false;
    if (f->folds) return compares_ranges(r, e, &f->counts);
    f->scatters = ki_range_scatters(r->ir, e, range, n);
    return r->ir->env->err == KI_E_NONE;
}

/* As try_fold, once for all sums that are made alike. */
static bool fold_once(rangeifier *r, kn_uop v, info *f) {
    ki_alike_sum *s;
    bool known;
    if (!ki_alike_find(r, v, &s, &known)) return false;
    if (known) return f->folds = s->folds, f->counts = s->counts, f->scatters = s->scatters, true;
    if (!try_fold(r, v, f)) return false;
    if (s) s->folds = f->folds, s->counts = f->counts, s->scatters = f->scatters;
    return true;
}

/* A product or a maximum of where(.., x, its identity) may be one that scatters; it does not fold. */
static bool scatters_apart(rangeifier *r, kn_uop u, info *f) {
    bool counts = f->counts;
    if (!counts || u->src[0]->op != KN_WHERE) return true;
    if (!fold_once(r, u, f)) return false;
    f->folds = false;
    f->counts = counts && !f->scatters;
    f->compares &= !f->scatters;
    return true;
}

bool ki_range_facts(rangeifier *r) {
    count_users(r);
    count_reads(r);
    for (int64_t i = 0; i < r->n; i++) {
        kn_uop u = r->order[i];
        info *f = &r->info[u->id];
        derive(r, u);
        if (u->op != KN_REDUCE) continue;
        if (u->arg.reduce.op != KN_ADD) {
            if (!scatters_apart(r, u, f)) return false;
            continue;
        }
        if (!f->constant && !f->compares) continue;
        if ((f->constant || f->counts) && !fold_once(r, u, f)) return false;
        r->nested |= f->folds;
        if (f->folds) f->leaves = f->constant ? 0 : 1, f->cost = 4;
        else f->compares = f->counts = false;
    }
    return true;
}
