/* ahead.c: what loops ask the caches for before it is read (the OptOp PREFETCH) where no LOAD or STORE of a vector does so by itself: rows behind a sum, lines that a
 * sum goes along, rows of a window's filters. */
#include "stages/8_render/x86/lower.h"

#include <string.h>

#define MOST_BEHIND 64 /* vectors that are stored, or read, behind a sum */

int64_t ki_lturn(ki_lower *l, ki_vreg counter, int64_t times, int64_t rows, int64_t apart, ki_vreg *at) {
    int64_t each = (rows + times - 1) / times, half = 0;
    while (times >> (half + 1) >= rows) half++;
    *at = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    ki_mop to = ki_mreg(KI_XO_R64, *at), from = ki_mreg(KI_XO_R64, counter);
    if (half) KI_LPUT(l, KI_X_MOV_GE, to, from), KI_LPUT(l, KI_X_SHR_I, to, ki_mimm(half));
    KI_LPUT(l, KI_X_IMUL_I, to, half ? to : from, ki_mimm(each * apart));
    return each;
}

/* The vectors of the PARAM, or that are stored to the BUFFER, of this slot: one, or a tile's rows, so many elements apart. 0: it is no access to it. */
static unsigned vectors_of(const ki_lower *l, uint32_t item, int32_t slot, ki_address *a, int64_t *step) {
    kn_uop u = l->inst[item];
    *step = 0;
    unsigned rows = u->op == KN_STORE ? ki_ltile_rows(u, a, step) : 0;
    if (rows) return ki_lslot(a->buf) == slot ? rows : 0;
    if (!ki_lmoves_vector(l, u, slot)) return 0;
    return *a = l->local.address[item], 1;
}

/* Such vectors that stand behind the loop of which l->now is the first item, in none inside: their first elements, ascending,
 * counted from *base. 0: none, or not all from the same place. */
static uint32_t behind(const ki_lower *l, int32_t slot, kn_uop *base, int64_t *start, ki_address *at, bool *stored) {
    int64_t depth = 0, step;
    uint32_t i = l->now, n = 0;
    do {
        if (l->inst[i]->op == KN_RANGE) depth++;
        if (l->inst[i]->op == KN_END) depth -= l->inst[i]->nsrc - 1;
    } while (++i < l->n && depth > 0);
    for (; i < l->n && depth >= 0; i++) {
        kn_uop u = l->inst[i];
        ki_address a;
        if (u->op == KN_RANGE) depth++;
        if (u->op == KN_END) depth -= u->nsrc - 1;
        unsigned rows = depth ? 0 : vectors_of(l, i, slot, &a, &step);
        for (unsigned r = 0; r < rows; r++) {
            int64_t from = a.start + r * step;
            kn_uop b = ki_lpeel(a.base, &from);
            uint32_t k = n;
            while (k > 0 && start[k - 1] > from) k--;
            if (n && (b != *base || a.lanes != at->lanes)) return 0;
            *stored = u->op == KN_STORE || (n && *stored), *base = b, *at = a;
            if (k > 0 && start[k - 1] == from) continue; /* what is read, then stored: a moment, a weight */
            if (n == MOST_BEHIND) return 0;
            memmove(start + k + 1, start + k, (n++ - k) * sizeof *start);
            start[k] = from;
        }
    }
    return n;
}

void ki_lask_rows(ki_lower *l, ki_vreg counter, int64_t trips, int32_t slot, int64_t ahead) {
    kn_uop base = NULL;
    int64_t start[MOST_BEHIND], line = l->m.target->line;
    ki_address a = {0};
    bool stored = false;
    uint32_t n = behind(l, slot, &base, start, &a, &stored), k = 1;
    while (k < n && start[k] == start[k - 1] + a.lanes) k++;
    if (k >= n || trips < 1 || (base && !ki_lv(l, base)->gpr)) return; /* one row; not known yet where it is */
    int64_t es = (int64_t)ki_les(a.buf), width = (start[k - 1] + a.lanes - start[0]) * es, row = start[k] - start[0];
    int64_t rows = n / k, each = (rows + trips - 1) / trips;
    ki_mop o = ki_lbase(l, a.buf);
    o.scale = (uint8_t)es, o.v += start[0] * es + ahead;
    if (each * row > INT32_MAX / es || o.v < INT32_MIN || o.v + each * row * es + width > INT32_MAX) return;
    (void)ki_lturn(l, counter, trips, rows, row, &o.index);
    ki_mop at = ki_mreg(KI_XO_R64, o.index);
    if (base) KI_LPUT(l, KI_X_ADD_GE, at, ki_mreg(KI_XO_R64, ki_lgeneral(l, base)));
    /* a row of an array need not begin with a line */
    int64_t last = width <= line || a.buf->op == KN_BUFFER ? width : width + line - 1;
    for (int64_t r = 0; r < each; r++)
        for (int64_t v = 0; v < last; v += line) {
            ki_mop to = o;
            to.v += r * row * es + (v < width ? v : width - 1);
            KI_LPUT(l, stored ? KI_X_PREFETCHW : KI_X_PREFETCHT0, ki_lsized(to, 0));
        }
}

/* How far an index goes on with the loop, given that it is one plus *rest, known before the loop; 0: it is something else. */
static int64_t goes_on(kn_uop base, kn_uop loop, kn_uop *rest) {
    for (int k = 0; base && base->op == KN_ADD && k < 2; k++) {
        kn_uop x = base->src[k];
        bool times = x->op == KN_MUL && x->src[0] == loop && ki_is_const(x->src[1]);
        *rest = base->src[1 - k];
        if (x == loop || times) return times ? x->src[1]->arg.i : 1;
    }
    return 0;
}

/* The loop around the one that has just been opened in which each iteration reads the same rows again, which begin at `from`; NULL: there is
 * none, or not so far inside. */
static const struct ki_lloop *reads_again(const ki_lower *l, kn_uop from) {
    for (uint32_t d = l->depth - 1; d-- > 0 && l->loop[d].range;) {
        kn_uop r = l->loop[d].range;
        if (l->at[from->id] < l->at[r->id]) return ki_is_const(r->src[0]) && r->src[0]->arg.i > 1 ? &l->loop[d] : NULL;
        if (!goes_on(from, r, &from)) return NULL;
    }
    return NULL;
}

/* The next LOAD from *i on, of one element of the PARAM of this slot, that stands in the loop which has been opened, and in none inside: where it
 * reads; buf is NULL: there is none. depth: 1 at first. */
static ki_address next_element(const ki_lower *l, int32_t slot, uint32_t *i, int64_t *depth) {
    while (*i<l->n && * depth> 0) {
        kn_uop u = l->inst[(*i)++];
        if (u->op == KN_RANGE) ++*depth;
        if (u->op == KN_END) *depth -= u->nsrc - 1;
        if (u->op != KN_LOAD || *depth != 1 || u->nsrc != 1) continue;
        ki_address a = l->local.address[*i - 1];
        if (a.lanes == 1 && a.buf->op == KN_PARAM && a.buf->arg.param->slot == slot) return a;
    }
    return (ki_address){0};
}

void ki_lask_lines(ki_lower *l, kn_uop loop, const ki_opt *o) {
    int64_t depth = 1, trips = ki_is_const(loop->src[0]) ? loop->src[0]->arg.i : 0, apart = 0;
    ki_address row[MOST_BEHIND], a;
    uint32_t rows = 0, i = l->now + 1;
    bool alike = true;
    while ((a = next_element(l, o->id, &i, &depth)).buf) {
        kn_uop from;
        int64_t step = goes_on(ki_lpeel(a.base, &a.start), loop, &from), line = l->m.target->line / ki_les(a.buf);
        if (step < 1 || trips * step > line || ki_is_const(from) || !ki_lv(l, from)->gpr) continue; /* not known yet */
        uint32_t k = 0;
        while (k < rows && (from != row[k].base || a.start < row[k].start || a.start >= row[k].start + step)) k++;
        if (k < rows || rows == MOST_BEHIND) continue; /* a term behind another one */
        a.base = from;
        if (rows == 1) apart = a.start - row[0].start;
        alike &= !rows || (from == row[0].base && a.start == row[rows - 1].start + apart);
        row[rows++] = a;
    }
    const struct ki_lloop *again = alike && rows > 1 ? reads_again(l, row[0].base) : NULL;
    int64_t parts = again ? again->range->src[0]->arg.i : 1, each = (rows + parts - 1) / parts;
    ki_vreg share = 0;
    if (again && each * apart <= INT32_MAX) { /* each time some of them */
        share = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, KI_X_IMUL_I, ki_mreg(KI_XO_R64, share), ki_mreg(KI_XO_R64, again->counter), ki_mimm(each * apart));
        KI_LPUT(l, KI_X_ADD_GE, ki_mreg(KI_XO_R64, share), ki_mreg(KI_XO_R64, ki_lgeneral(l, row[0].base)));
    }
    for (uint32_t k = 0; k < (share ? each : rows); k++) {
        row[k].start += o->arg / (int64_t)ki_les(row[k].buf);
        ki_mop to = ki_laddress(l, &row[k], 0);
        if (share) to.index = share;
        KI_LPUT(l, o->top ? KI_X_PREFETCHT1 : KI_X_PREFETCHT0, ki_lsized(to, 0));
    }
}

#define MOST_NESTED 8 /* terms of an index, and loops around one, that are looked at */

/* Of an index that is a sum: how far each loop takes it on, and the terms that are left. How many; UINT32_MAX: more than MOST_NESTED. */
static uint32_t split_index(kn_uop index, const kn_uop *loop, uint32_t n, int64_t *by, kn_uop rest[MOST_NESTED]) {
    kn_uop left[MOST_NESTED] = {index};
    uint32_t rests = 0;
    for (uint32_t k = index ? 1 : 0; k > 0;) {
        kn_uop x = left[--k], r = x->op == KN_MUL && ki_is_const(x->src[1]) ? x->src[0] : x;
        uint32_t j = 0;
        while (j < n && loop[j] != r) j++;
        if (j < n) by[j] += r == x ? 1 : x->src[1]->arg.i;
        else if (x->op == KN_ADD && k + 2 <= MOST_NESTED) left[k++] = x->src[0], left[k++] = x->src[1];
        else if (rests >= MOST_NESTED) rests = UINT32_MAX;
        else rest[rests++] = x;
    }
    return rests;
}

/* How far an index that is a sum goes on with the loop. */
static int64_t moves_on(kn_uop index, kn_uop loop) {
    kn_uop rest[MOST_NESTED];
    int64_t by = 0;
    (void)split_index(index, &loop, 1, &by, rest);
    return by;
}

/* The loops around the one that has just been opened in which that reads the same lines again, as each goes on by no more than `step`, what one of
 * its iterations does: how often they run it together, and the depth of the outermost. */
static int64_t times_again(const ki_lower *l, kn_uop index, int64_t step, uint32_t *outermost) {
    int64_t times = 1;
    for (*outermost = l->depth - 1; *outermost > 0; --*outermost) {
        kn_uop r = l->loop[*outermost - 1].range;
        if (!r || r->arg.range.axis != KN_AX_REDUCE || !ki_is_const(r->src[0])) break;
        int64_t by = moves_on(index, r), n = r->src[0]->arg.i;
        if (by < 1 || n > step / by || times > step / n) break;
        times *= n;
    }
    return times;
}

/* The LOADs in the loop that has just been opened, each of one element of the PARAM, from rows that are equally far *apart (elements): how many, which is
 * the first, and all their index but what is constant in it. 0: others are among them. */
static uint32_t rows_in(const ki_lower *l, int32_t slot, uint32_t *first, kn_uop *index, int64_t *apart) {
    int64_t depth = 1, at = 0;
    uint32_t rows = 0, i = l->now + 1;
    ki_address a;
    *apart = 0;
    while ((a = next_element(l, slot, &i, &depth)).buf) {
        kn_uop from = ki_lpeel(a.base, &a.start);
        if (rows == 1) *apart = a.start - at;
        if (rows ? from != *index || a.start - at != *apart : !from) return 0;
        if (!rows) *first = i - 1, *index = from;
        at = a.start, rows++;
    }
    return rows;
}

void ki_lask_terms(ki_lower *l, kn_uop loop, const ki_opt *o) {
    struct ki_lloop *p = &l->loop[l->depth - 1];
    uint32_t first = 0, outermost, rows;
    int64_t apart, trips = ki_is_const(loop->src[0]) ? loop->src[0]->arg.i : 0;
    kn_uop index = NULL;
    if (p->far || (rows = rows_in(l, o->id, &first, &index, &apart)) < 2) return;
    int64_t es = ki_les(l->local.address[first].buf), line = l->m.target->line / es, step = moves_on(index, loop);
    if (step < 1 || step >= line || step * trips <= line) return;
    int64_t times = times_again(l, index, step, &outermost), each = (rows + times - 1) / times;
    if (times < 2 || apart <= 0 || apart * es > INT32_MAX / (rows + each)) return;
    p->far = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64), p->rows = (uint32_t)each, p->apart = apart * es;
    l->val[first].ahead = o->arg, l->val[first].second = o->top, l->val[first].terms = 1;
    ki_mop far = ki_mreg(KI_XO_R64, p->far);
    for (uint32_t d = outermost; d < l->depth - 1; d++) { /* which time it is, counted from the outermost loop on */
        int64_t n = d + 2 < l->depth ? l->loop[d + 1].bound->arg.i : each * p->apart;
        ki_mop counter = ki_mreg(KI_XO_R64, l->loop[d].counter);
        if (d > outermost) KI_LPUT(l, KI_X_ADD_GE, far, counter);
        KI_LPUT(l, KI_X_IMUL_I, far, d > outermost ? far : counter, ki_mimm(n));
    }
    KI_LPUT(l, KI_X_ADD_GE, far, ki_mreg(KI_XO_R64, ki_lbase(l, l->local.address[first].buf).reg));
}

#define MOST_COPYING 4 /* loops of a copy */

typedef struct copying {
    kn_uop loop[64]; /* around it, outermost first */
    uint32_t loops;
    ki_address at;
    kn_uop index;       /* of its first element, but what is constant in it */
    int64_t start, end; /* that, of all that its innermost loop reads: elements */
} copying;

/* The last vectors of the PARAM that were copied before now. */
static bool find_copying(const ki_lower *l, int32_t slot, copying *c) {
    kn_uop open[64];
    uint32_t n = 0;
    c->loops = 0;
    for (uint32_t i = 0; i < l->now; i++) {
        kn_uop u = l->inst[i];
        if (u->op == KN_RANGE && n < 64) open[n++] = u;
        if (u->op == KN_END) n -= u->nsrc - 1 < n ? u->nsrc - 1 : n;
        kn_uop read = u->op == KN_STORE && l->local.address[i].buf->op == KN_BUFFER ? u->src[1] : NULL;
        if (!read || read->op != KN_LOAD || read->nsrc != 1 || !n || !ki_lmoves_vector(l, read, slot)) continue;
        ki_address a = *ki_lplace(l, read);
        int64_t from = a.start;
        kn_uop index = ki_lpeel(a.base, &from);
        if (!c->loops || c->loop[c->loops - 1] != open[n - 1] || c->index != index) {
            *c = (copying){.loops = n, .at = a, .index = index, .start = from, .end = from + a.lanes};
            memcpy(c->loop, open, n * sizeof *open);
        }
        if (from < c->start) c->start = from;
        if (from + a.lanes > c->end) c->end = from + a.lanes;
    }
    return c->loops > 0;
}

void ki_lask_copied(ki_lower *l, const ki_opt *o) {
    copying c;
    kn_uop around[64], rest[MOST_NESTED];
    ki_vreg counter[64];
    uint32_t n = 0, same = 0, rows = 0;
    if (!find_copying(l, o->id, &c)) return;
    for (uint32_t d = 0; d < l->depth; d++)
        if (l->loop[d].range) around[n] = l->loop[d].range, counter[n++] = l->loop[d].counter;
    while (same < n && same < c.loops && around[same] == c.loop[same]) same++;
    const kn_uop *loop = c.loop + same;
    uint32_t loops = c.loops - same;
    int64_t by[MOST_COPYING] = {0}, width = c.end - c.start, es = ki_les(c.at.buf), line = l->m.target->line / es,
            times = 1;
    if (!loops || loops > MOST_COPYING || same == n) return;
    uint32_t rests = split_index(c.index, loop, loops, by, rest);
    if (rests == UINT32_MAX) return;
    for (uint32_t j = 1; j < loops; j++) rows = by[j] > by[rows] ? j : rows;
    for (uint32_t j = loops; j-- > 0;) { /* what goes along a row, innermost loops first */
        if (!ki_is_const(loop[j]->src[0])) return;
        if (j != rows && by[j] != width) return;
        if (j != rows) width *= loop[j]->src[0]->arg.i;
    }
    for (uint32_t j = same; j < n; j++) {
        if (!ki_is_const(around[j]->src[0])) return;
        if (j + 1 < n) times *= around[j]->src[0]->arg.i;
    }
    /* what has become of the rest, and that it does not stand in the copy's own loops */
    for (uint32_t j = 0; j < rests; j++)
        if (!ki_lv(l, rest[j])->gpr || l->at[rest[j]->id] > l->at[loop[0]->id]) return;
    int64_t all = loop[rows]->src[0]->arg.i, trips = around[n - 1]->src[0]->arg.i,
            each = times > 0 && all % times == 0 ? all / times : 0;
    int64_t apart = by[rows], some = trips > 0 && each % trips == 0 ? each / trips : 0;
    if (!each || (!some && each > 1)) return;
    if (o->arg + c.end * es < 0 || (apart * all + width) * es > INT32_MAX - o->arg - c.end * es) return;
    int64_t step = some ? some * apart : (width + trips - 1) / trips, part = some ? width : step;
    ki_mop to = ki_lbase(l, c.at.buf), at, more;
    to.index = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64), to.scale = (uint8_t)es, to.v += c.start * es + o->arg;
    at = ki_mreg(KI_XO_R64, to.index), more = ki_mreg(KI_XO_R64, ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64));
    KI_LPUT(l, KI_X_IMUL_I, at, ki_mreg(KI_XO_R64, counter[n - 1]), ki_mimm(step));
    for (uint32_t j = n - 1; j-- > same;) {
        int64_t inside = each * apart;
        for (uint32_t i = j + 1; i + 1 < n; i++) inside *= around[i]->src[0]->arg.i;
        KI_LPUT(l, KI_X_IMUL_I, more, ki_mreg(KI_XO_R64, counter[j]), ki_mimm(inside));
        KI_LPUT(l, KI_X_ADD_GE, at, more);
    }
    for (uint32_t j = 0; j < rests; j++) KI_LPUT(l, KI_X_ADD_GE, at, ki_mreg(KI_XO_R64, ki_lgeneral(l, rest[j])));
    for (int64_t r = 0; r < (some ? some : 1); r++)
        for (int64_t v = 0; v < part + line - 1; v += line) {
            ki_mop lines = to;
            lines.v += (r * apart + (v < part ? v : part - 1)) * es;
            KI_LPUT(l, KI_X_PREFETCHT1, ki_lsized(lines, 0));
        }
}

/* ---- where data leads ---------------------------------------------------------------------------------------- */

/* Does the CAST make an index of what the LOAD, one element, reads evenly further on in each iteration of the loop it stands in? */
static bool leads(const ki_lower *l, kn_uop cast, kn_uop loop) {
    kn_uop d = cast->op == KN_CAST && cast->dtype == KN_IDX ? cast->src[0] : NULL, rest[MOST_NESTED];
    if (!d || d->op != KN_LOAD || d->nsrc != 1 || (d->dtype != KN_I32 && d->dtype != KN_I64)) return false;
    const ki_address *a = ki_lplace(l, d);
    int64_t by = 0;
    uint32_t n = a->buf->op == KN_PARAM && a->lanes == 1 ? split_index(a->base, &loop, 1, &by, rest) : UINT32_MAX;
    if (n == UINT32_MAX || by < 1) return false;
    for (uint32_t k = 0; k < n; k++) /* known before the loop: no part of it goes on otherwise */
        if (!ki_is_const(rest[k]) && l->at[rest[k]->id] > l->at[loop->id]) return false;
    return true;
}

/* Which of the CASTs the access's place is found by, if it is one alone. */
static uint32_t led_by(const ki_lower *l, const ki_address *a, const uint32_t *cast, uint32_t casts) {
    uint32_t by = UINT32_MAX, found = 0;
    for (uint32_t k = 0; k < casts; k++)
        if (moves_on(a->base, l->inst[cast[k]])) by = cast[k], found++;
    return found == 1 ? by : UINT32_MAX;
}

void ki_lfind_led(ki_lower *l, const ki_opt *o) {
    uint32_t i = 0, cast[MOST_NESTED], casts = 0;
    while (i < l->n && !(l->inst[i]->op == KN_RANGE && l->inst[i]->arg.range.id == (uint32_t)o->axis)) i++;
    if (i == l->n) return;
    kn_uop loop = l->inst[i];
    for (int64_t depth = 1; ++i < l->n && depth > 0;) {
        kn_uop u = l->inst[i];
        if (u->op == KN_RANGE) depth++;
        if (u->op == KN_END) depth -= u->nsrc - 1;
        if (depth == 1 && casts < MOST_NESTED && leads(l, u, loop)) cast[casts++] = i;
        const ki_address *a = u->op == KN_LOAD ? &l->local.address[i] : NULL;
        if (!a || a->buf->op != KN_PARAM || a->buf->arg.param->slot != o->id || !a->affine) continue;
        if (a->lanes > 1 ? a->stride != 1 : depth > 1) continue; /* elements of a row one by one: each line as often */
        uint32_t by = led_by(l, a, cast, casts);
        if (by == UINT32_MAX) continue;
        if (!l->val[by].leads) l->val[by].leads = i + 1, l->val[by].ahead = o->arg;
        const ki_address *first = &l->local.address[l->val[by].leads - 1];
        bool alike = moves_on(first->base, l->inst[by]) == moves_on(a->base, l->inst[by]) &&
                     moves_on(first->base, loop) == moves_on(a->base, loop) && first->buf == a->buf;
        if (alike) l->val[i].led = by + 1;
    }
}

/* The last iterations ask for where they are themselves led to: there may be no further element to read. */
void ki_lask_next(ki_lower *l, kn_uop cast) {
    const struct ki_lloop *p = l->depth ? &l->loop[l->depth - 1] : NULL;
    ki_lval *v = ki_lv(l, cast);
    const ki_address *a = &l->local.address[v->leads - 1], *d = ki_lplace(l, cast->src[0]);
    if (!p || !p->range) return;
    int64_t es = ki_les(a->buf), on = v->ahead * moves_on(d->base, p->range) * ki_les(d->buf),
            by = moves_on(a->base, cast) * es;
    ki_mop at = ki_laddress(l, d, 0), base = ki_lbase(l, a->buf);
    base.v += v->ahead * moves_on(a->base, p->range) * es;
    if (on < 1 || at.v + on > INT32_MAX || by != (int32_t)by || base.v != (int32_t)base.v) return;
    ki_mop g[4];
    for (int k = 0; k < 4; k++) g[k] = ki_mreg(KI_XO_R64, ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64));
    KI_LPUT(l, KI_X_LEA, g[0], ki_lsized(at, 0));
    at.v += on;
    KI_LPUT(l, KI_X_LEA, g[1], ki_lsized(at, 0));
    KI_LPUT(l, KI_X_LEA, g[2], (ki_mop){.kind = KI_XO_MEM, .reg = p->counter, .scale = 1, .v = v->ahead});
    if (ki_is_const(p->bound) && p->bound->arg.i <= INT32_MAX) KI_LPUT(l, KI_X_CMP_EI, g[2], ki_mimm(p->bound->arg.i));
    else KI_LPUT(l, KI_X_CMP_GE, g[2], ki_mreg(KI_XO_R64, ki_lgeneral(l, p->bound)));
    KI_LPUT(l, KI_X_CMOVGE, g[1], g[0]);
    ki_mop next = {.kind = KI_XO_MEM, .reg = g[1].reg, .scale = 1};
    KI_LPUT(l, d->buf->dtype == KN_I64 ? KI_X_MOV_GE : KI_X_MOVSXD, g[3], ki_lsized(next, ki_les(d->buf)));
    KI_LPUT(l, KI_X_SUB_GE, g[3], ki_mreg(KI_XO_R64, v->reg));
    KI_LPUT(l, KI_X_IMUL_I, g[3], g[3], ki_mimm(by));
    v->all = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    base.index = g[3].reg, base.scale = 1;
    KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, v->all), ki_lsized(base, 0));
}
