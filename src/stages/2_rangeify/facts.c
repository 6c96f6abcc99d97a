/* facts.c: what decide.c needs to know of each tensor value before it starts, sources first. */
#include "stages/2_rangeify/indexing.h"
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
        for (uint32_t k = 0; k < u->nsrc; k++) {
            bool again = false;
            for (uint32_t j = 0; j < k && k < 16; j++) again |= u->src[j] == u->src[k];
            if (!again) r->info[u->src[k]->id].users++;
        }
    }
}

static bool is_view(kn_uop u) { return ki_ops[u->op].cls == KI_C_MOVEMENT && u->op != KN_STACK && u->op != KN_INDEX; }

/* How often sums read what: users first. A view passes on how often it is read; the body of a sum reads its operands once. */
static void count_reads(rangeifier *r) {
    for (int64_t i = r->n; i-- > 0;) {
        kn_uop u = r->order[i];
        const kn_uop s = u->nsrc ? u->src[0] : NULL;
        if (u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD && ki_is_elementwise((kn_op)s->op)) {
            for (uint32_t k = 0; k < s->nsrc; k++)
                if (is_view(s->src[k]) && r->info[s->src[k]->id].again < 1) r->info[s->src[k]->id].again = 1;
        } else if (is_view(u) && s->type->numel) {
            float again = r->info[u->id].again * (float)u->type->numel / (float)s->type->numel;
            if (again > r->info[s->id].again) r->info[s->id].again = again;
        }
    }
}

/* An operand of a product, in short: see wants_storage_elementwise. */
static bool will_be_stored(const info *f) { return f->cost >= 4 && f->again >= 16 && f->cost * f->again > 256; }

static bool is_compare(kn_op op) {
    return op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPEQ || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE;
}

static void derive(rangeifier *r, kn_uop u) {
    info *f = &r->info[u->id];
    bool value = false; /* has a source that is not a shape */
    f->constant =
        u->op != KN_PARAM && u->op != KN_BUFFER && u->op != KN_LOAD && u->op != KN_AFTER && u->op != KN_BINARY;
    uint32_t last = is_view(u) ? 1 : u->nsrc;
    if (u->op == KN_PARAM) last = 0;
    for (uint32_t k = 0; k < last; k++) {
        const info *s = &r->info[u->src[k]->id];
        value = true;
        f->constant &= s->constant;
        f->compares |= s->compares || (is_compare((kn_op)u->op) && s->constant && !ki_peel_const(u->src[k]));
        /* The end of a REDUCE's chain, used more than once, will be stored: to its users it is a value to load. */
        bool stored = s->users > 1 && (s->heavy || (u->src[k]->op == KN_REDUCE && !s->folds));
        stored |= !is_view(u) && will_be_stored(s);
        bool repeated = k > 0 && u->src[k] == u->src[k - 1];
        if (!stored) f->cost += s->cost;
        if (!repeated) f->leaves += stored ? 1 : s->leaves;
        bool grows = u->op == KN_EXPAND || u->op == KN_PAD || u->op == KN_INDEX;
        bool chain = u->src[k]->op == KN_REDUCE ? !s->folds : s->heavy;
        if (!grows && chain && s->users == 1) f->heavy = true;
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

/* The demand d on a sum with its value folded as far as it goes, demands on what lies deeper left in it. Views and arithmetic
 * over comparisons are expanded on the way, and REDUCEs known to fold; bounded. */
static kn_uop fold_sum(rangeifier *r, kn_uop d) {
    kn_uop e = ki_range_push(r, d), *order;
    if (!e) return NULL;
    for (int steps = 0; steps < 64; steps++) {
        kn_uop pushed;
        d = NULL;
        int64_t n = ki_toposort_above(r->ir, &e, 1, r->top, &order);
        if (n < 0) return NULL;
        for (int64_t k = 0; k < n && !d; k++) {
            if (!is_demand(r, order[k])) continue;
            kn_uop b = order[k]->src[0];
            bool through = ki_ops[b->op].cls == KI_C_MOVEMENT || (b->op == KN_REDUCE && r->info[b->id].folds) ||
                           (ki_is_elementwise((kn_op)b->op) && (r->info[b->id].constant || r->info[b->id].compares));
            if (through && !r->info[b->id].keep) d = order[k];
        }
        ki_free(order);
        if (!d) break;
        if (!(pushed = ki_range_push(r, d)) || !(e = ki_substitute(r->ir, e, &d, &pushed, 1))) return NULL;
    }
    return ki_range_fold(r->ir, e, r->top);
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
    kn_uop e = fold_sum(r, d);
    bool folds;
    if (!no_reduce(r, e, &folds)) return false;
    *out = folds ? e : NULL;
    return true;
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
    if (!f->folds) f->scatters = ki_range_scatters(r->ir, e, range, n);
    return r->ir->env->err == KI_E_NONE;
}

bool ki_range_facts(rangeifier *r) {
    count_users(r);
    count_reads(r);
    for (int64_t i = 0; i < r->n; i++) {
        kn_uop u = r->order[i];
        info *f = &r->info[u->id];
        derive(r, u);
        if (u->op != KN_REDUCE || u->arg.reduce.op != KN_ADD) continue;
        if (!f->constant && !f->compares) continue;
        if (!try_fold(r, u, f)) return false;
        r->nested |= f->folds;
        if (f->folds) f->leaves = f->constant ? 0 : 1, f->cost = 4;
        else f->compares = false;
    }
    return true;
}
