/* storage.c: which values get storage (DESIGN 12.1, 12.2).
 *
 * Inlining never changes a value; it changes how often it is computed and how many bytes move. The rules of thumb below weigh the two; each stands
 * in one function, wants_*. They see all demands for a value: users come first. */
#include "stages/2_rangeify/rangeify.h"

#include <string.h>

/* ---- ranges of a demand ------------------------------------------------------------------------------------- */

bool ki_range_free(rangeifier *r, const nest *n, kn_uop d, ranges *out) {
    const kn_uop *node;
    *out = (ranges){.count = 1};
    int64_t count = ki_reach_above(r->ir, d->src + 1, d->nsrc - 1, r->top, &node);
    if (count < 0) return false;
    for (int64_t i = 0; i < count; i++) {
        if (node[i]->op != KN_RANGE) continue;
        bool mine = false;
        for (unsigned j = 0; j < n->nrange; j++)
            if (n->range[j] == node[i]) out->nest |= 1u << j, mine = true;
        if (!mine) out->reduce++;
        out->count *= (double)(node[i]->hi.i + 1);
    }
    return true;
}

double ki_range_iterations(const rangeifier *r, const nest *n, uint32_t ctx) {
    if (ctx != NONE) return r->context[ctx].count;
    double count = 1;
    for (unsigned k = 0; k < n->nrange; k++) count *= (double)(n->range[k]->hi.i + 1);
    return count;
}

/* May these ranges be the outermost of the nest, given those that already must be? */
static bool can_lead(const nest *n, uint32_t set) {
    for (unsigned k = 0; k < n->nprefix; k++)
        if ((n->prefix[k] & set) != set && (n->prefix[k] & set) != n->prefix[k]) return false;
    return n->nprefix < 8;
}
static void lead(nest *n, uint32_t set) {
    unsigned at = 0;
    uint32_t all = n->nrange == 32 ? UINT32_MAX : (1u << n->nrange) - 1;
    if (set == all || set == 0) return;
    for (unsigned k = 0; k < n->nprefix; k++)
        if (n->prefix[k] == set) return;
    while (at < n->nprefix && (n->prefix[at] & set) == n->prefix[at]) at++;
    memmove(n->prefix + at + 1, n->prefix + at, (n->nprefix - at) * sizeof *n->prefix);
    n->prefix[at] = set;
    n->nprefix++;
}

bool ki_range_meets_product(const rangeifier *r, kn_uop v) {
    const info *f = &r->info[v->id];
    if (!f->remat || f->back || !(v->op == KN_REDUCE ? ki_range_is_product(v) : f->products && f->heavy)) return false;
    for (uint32_t k = f->first; k != NONE; k = r->demand[k].next) {
        const nest *n = &r->nest[r->demand[k].nest];
        const info *to = n->nout ? &r->info[r->output[n->out[0]].node->id] : f;
        if (to->back && to->products > 1) return true;
    }
    return false;
}

/* ---- the rules of thumb ------------------------------------------------------------------------------------- */

/* Loops of other nests are other loops, whatever their names. */
static bool same_demand(const demand *a, const demand *b) {
    bool varies = false;
    for (uint32_t k = 1; k < a->d->nsrc; k++) varies |= !ki_is_const(a->d->src[k]);
    return a->d == b->d && (a->nest == b->nest || !varies);
}

static bool has_different_demands(const rangeifier *r, const info *f) {
    for (uint32_t k = f->first; k != NONE; k = r->demand[k].next)
        if (!same_demand(&r->demand[f->first], &r->demand[k])) return true;
    return false;
}

/* Results a row is used for: beyond, a matrix product in tiles is worth a pass through memory. */
#define MOST_COLUMNS 128

/* Can the kernel keep v in a row (row.c) instead of computing it again in its inner loops? */
static bool fits_row(rangeifier *r, kn_uop v, const demand *q, const ranges *free, double again) {
    const nest *n = &r->nest[q->nest];
    double outer = 1;
    for (unsigned b = 0; b < n->nrange; b++)
        if (free->nest >> b & 1) outer *= (double)(n->range[b]->hi.i + 1);
    bool vector = !free->nest; /* one row for all: nothing to make tiles of */
    return free->reduce == 1 && can_lead(n, free->nest) && (vector || again <= MOST_COLUMNS) &&
           free->count / outer <= KI_MOST_ROW && free->count / outer >= KI_LEAST_ROW && !r->info[v->id].heavy;
}

/* Arithmetic an element of what a nest may compute several times, at places that are not those of its loops: a recurrence over
 * neighbours would be computed again for each of a number of places that grows with its steps. */
#define MOST_AGAIN 256

static bool is_elsewhere(kn_uop d) {
    for (uint32_t k = 1; k < d->nsrc; k++)
        if (d->src[k]->op != KN_RANGE && !ki_is_const(d->src[k])) return true;
    return false;
}

/* What computing v for all who ask takes above computing it once in each nest. */
static float computed_again(const rangeifier *r, const info *f) {
    float cost = 0;
    for (uint32_t k = f->first; k != NONE; k = r->demand[k].next)
        if (r->demand[k].same != NONE && is_elsewhere(r->demand[k].d)) cost += f->cost;
    return cost;
}

/* Parts of a sum along what lies beside each other: a kernel has tiles for so many sums (tile.c), and each is to be long beside its end. */
enum { MOST_PARTS = 4, LEAST_PART = 8 };

/* The axis along which v is two values, one after the other: where(pad(true), x, y), as kn_cat says it. *at: where y begins. NONE: it is
 * something else. */
static uint32_t joined_axis(kn_uop v, int64_t *at) {
    kn_uop c = v->op == KN_WHERE ? v->src[0] : NULL;
    kn_uop all = c && c->op == KN_PAD && !c->type->symbolic ? ki_peel_const(c->src[0]) : NULL;
    uint32_t axis = NONE;
    if (!all || !all->arg.bits) return NONE;
    for (unsigned k = 0; k < c->type->rank; k++) {
        if (c->src[0]->type->dim[k].n == c->type->dim[k].n) continue;
        if (axis != NONE || !ki_is_const_int(c->src[1]->src[k], 0)) return NONE;
        axis = k;
    }
    return axis == NONE ? NONE : (*at = c->src[0]->type->dim[axis].n, axis);
}

/* Is the part in memory, whoever reads it? */
static bool is_kept(const rangeifier *r, kn_uop part) {
    while (ki_range_is_view(part)) part = part->src[0];
    const info *f = &r->info[part->id];
    return (part->op == KN_PARAM && !ki_is_variable(part)) || f->keep || (f->users > 1 && (f->heavy || f->cost >= 4));
}

/* Do zeros follow the part that v, joined, ends with? Then it is itself the beginning of what is put together. */
static bool is_begun(kn_uop v, uint32_t axis, int64_t at) {
    kn_uop last = v->src[2];
    return last->op == KN_PAD && at + last->src[0]->type->dim[axis].n < v->type->dim[axis].n;
}

/* Is v parts beside each other that only sums along them ask for? Each part's terms are a sum of their own then (3_optimize cuts the loop),
 * which reads the part where it lies: of one that is kept anyway nothing is copied. */
static bool goes_by_parts(const rangeifier *r, kn_uop v) {
    const info *f = &r->info[v->id];
    int64_t at, end;
    uint32_t axis = joined_axis(v, &at), parts = 1;
    if (axis == NONE || f->awaited) return false;
    bool kept = is_begun(v, axis, at); /* what ends it has said so */
    kn_uop u = v;
    for (end = v->type->dim[axis].n; joined_axis(u, &at) == axis; end = at, u = u->src[1], parts++) {
        if (end - at < LEAST_PART || parts == MOST_PARTS) return false;
        kept |= is_kept(r, u->src[2]);
    }
    if (end < LEAST_PART || !(kept || is_kept(r, u))) return false;
    for (uint32_t k = f->first; k != NONE; k = r->demand[k].next) {
        const demand *q = &r->demand[k];
        kn_uop i = q->d->src[1 + axis];
        bool sum = q->ctx != NONE && r->context[q->ctx].reduce->arg.reduce.op == KN_ADD;
        if (!sum || i->op != KN_RANGE || i->arg.range.axis != KN_AX_REDUCE) return false;
    }
    return true;
}

static bool wants_storage_elementwise(rangeifier *r, kn_uop v, bool *ok) {
    const info *f = &r->info[v->id];
    if (goes_by_parts(r, v)) return false;
    /* Made of nothing but constants and ranges: always cheaper to make than to load. */
    if (f->leaves == 0 && f->cost < 40) return false;
    bool different = has_different_demands(r, f);
    uint32_t nests = f->askers;
    /* The REDUCE below would be stored anyway: store it with what follows it. */
    if (different && f->heavy) return true;
    if (different && computed_again(r, f) > MOST_AGAIN) return true;
    /* m kernels reading k values each, against one that writes and m that read. */
    if (nests > 1 && v->type->numel > 1 && nests * f->leaves > f->leaves + 1 + nests) return true;
    for (uint32_t k = f->first; k != NONE; k = r->demand[k].next) {
        const demand *q = &r->demand[k];
        ranges free;
        if (!ki_range_free(r, &r->nest[q->nest], q->d, &free)) return *ok = false;
        if (q->ctx == NONE || !free.reduce) continue; /* computed outside the inner loops */
        /* Ranges that meet in a quotient (a head of a row) ask for fewer elements than there are of them. */
        bool meet = free.count > (double)v->type->numel;
        double again = ki_range_iterations(r, &r->nest[q->nest], q->ctx) / (meet ? (double)v->type->numel : free.count);
        if (f->cost >= 4 && again >= 16 && f->cost * again > 256) {
            if (meet || !fits_row(r, v, q, &free, again)) return true;
            lead(&r->nest[q->nest], free.nest);
        }
        /* A matmul of a reduce's epilogue: that REDUCE cannot be inlined there. */
        if (f->heavy && again >= 2) return true;
    }
    return false;
}

static bool same_op_sums(const rangeifier *r, const demand *q, kn_uop v) {
    return q->linear && q->ctx != NONE && v->arg.reduce.op == KN_ADD &&
           r->context[q->ctx].reduce->arg.reduce.op == KN_ADD;
}

/* Of a nest. What is optimized as one kernel takes as often as long as there are; a pass through memory beside so many is little. */
#define MOST_REDUCES 24

static bool wants_storage_reduce(rangeifier *r, kn_uop v, bool *ok) {
    const info *f = &r->info[v->id];
    bool different = has_different_demands(r, f);
    uint32_t nests = f->askers;
    if (f->folds) return false;
    double k = (double)v->src[0]->type->numel / (double)v->type->numel;
    if (nests > 1 || different || f->scatters) return true;
    for (uint32_t j = f->first; j != NONE; j = r->demand[j].next) {
        const demand *q = &r->demand[j];
        nest *n = &r->nest[q->nest];
        ranges free;
        if (!ki_range_free(r, n, q->d, &free)) return *ok = false;
        double around = ki_range_iterations(r, n, q->ctx);
        if (n->contexts >= MOST_REDUCES) return true;
        if (q->ctx != NONE && k > 4 && r->info[r->context[q->ctx].reduce->id].scatters) return true;
        if (q->ctx != NONE && free.reduce) { /* a sum inside a sum's body: one sum, if nothing is repeated */
            bool merges = same_op_sums(r, q, v) && around <= free.count * 1.01;
            if (!merges && !(k <= 4 && around <= free.count * 1.01)) return true;
            continue;
        }
        double outer = 1;
        for (unsigned b = 0; b < n->nrange; b++)
            if (free.nest >> b & 1) outer *= (double)(n->range[b]->hi.i + 1);
        bool whole = free.nest == (n->nrange ? (1u << n->nrange) - 1 : 0);
        if (whole) continue;
        if (!can_lead(n, free.nest)) return true;
        /* Few rows leave the threads without work: then a kernel of its own, unless all is small. */
        if (outer < 8 && outer * k > 8192) return true;
    }
    return false;
}

/* Is there a nest that would read too many? */
static bool is_crowded(const rangeifier *r, kn_uop v) {
    for (uint32_t k = r->info[v->id].first; k != NONE; k = r->demand[k].next)
        if (r->demand[k].same == NONE && ki_range_crowds(r, r->demand[k].nest, v)) return true;
    return false;
}

bool ki_range_wants_storage(rangeifier *r, kn_uop v, bool *ok) {
    if (r->info[v->id].keep || v->op == KN_LOAD || ki_range_meets_product(r, v)) return true;
    if (v->op == KN_REDUCE && wants_storage_reduce(r, v, ok)) return true;
    if (ki_is_elementwise((kn_op)v->op) && wants_storage_elementwise(r, v, ok)) return true;
    return is_crowded(r, v);
}

bool ki_range_place_reduce(rangeifier *r, kn_uop v) {
    for (uint32_t j = r->info[v->id].first; j != NONE; j = r->demand[j].next) {
        nest *n = &r->nest[r->demand[j].nest];
        ranges free;
        if (!ki_range_free(r, n, r->demand[j].d, &free)) return false;
        if (!free.reduce) lead(n, free.nest);
    }
    return true;
}
