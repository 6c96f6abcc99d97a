/* nest.c: questions about a kernel's loops and accesses. See nest.h. */
#include "stages/3_optimize/nest.h"

#include "rules/given.h"

#include <stdlib.h>
#include <string.h>

bool ki_is_access(kn_uop u) { return u->op == KN_INDEX && u->nsrc == 2 && ki_storage(u) != NULL; }

kn_uop ki_storage(kn_uop u) {
    while (u->op == KN_AFTER || u->op == KN_INDEX) u = u->src[0];
    return u->op == KN_BUFFER || u->op == KN_SLICE || (u->op == KN_PARAM && ki_rank(u) == 1) ? u : NULL;
}

/* A loop that both an END and a REDUCE close (pipelined.c) is the END's. */
static void find_closers(ki_nest *k) {
    const ki_scope *s = &k->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        if (u->op != KN_END && u->op != KN_REDUCE) continue;
        for (uint32_t j = 1; j < u->nsrc; j++)
            if (u->src[j]->op == KN_RANGE) {
                kn_uop *own = &k->closer[ki_scope_rank(s, u->src[j])];
                if (!*own || (*own)->op != KN_END || u->op == KN_END) *own = u;
            }
    }
    /* Users stand behind their sources: going down, an END is handed to the ENDs directly inside it. */
    for (uint32_t i = s->n; i-- > 0;) {
        kn_uop u = s->node[i];
        if (u->op != KN_END && u->op != KN_GROUP) continue;
        kn_uop outer = u->op == KN_END ? u : k->around[i];
        for (uint32_t j = 0; j < (u->op == KN_END ? 1 : u->nsrc); j++)
            if (u->src[j]->op == KN_END || u->src[j]->op == KN_GROUP) k->around[s->at[u->src[j]->id]] = outer;
    }
}

bool ki_nest_open(ki_nest *k, ki_ir *ir, kn_uop sink) {
    memset(k, 0, sizeof *k);
    k->ir = k->affines.ir = ir;
    k->sink = sink;
    if (!ki_scope_open(&k->scope, ir, sink)) return false;
    ki_scope *s = &k->scope;
    k->form = ki_affine_all(&k->affines, s->node, s->n, s->at);
    k->closer = ki_calloc((s->nrange + 1 + 5 * (size_t)s->n) * sizeof *k->closer + s->n, 1); /* one block for seven */
    if (!k->form || !k->closer) return ki_fail(ir->env, KI_E_NOMEM), false;
    k->around = k->closer + s->nrange + 1;
    k->word = k->around + s->n;
    k->moves = k->word + s->n;
    k->reads = k->moves + s->n;
    k->orders = k->reads + s->n;
    k->read = (void *)(k->orders + s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        if (u->op == KN_WHERE && u->dtype == KN_IDX && u->src[2]->op == KN_INVALID)
            k->form[i] = k->form[s->at[u->src[1]->id]];
        for (uint32_t j = 0; j < u->nsrc; j++)
            if (u->src[j]->op == KN_INDEX && ki_is_access(u->src[j]) && !(u->op == KN_STORE && j == 0))
                k->read[s->at[u->src[j]->id]] = 1;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (k->read[i]) k->reads[k->nreads++] = s->node[i];
        if (s->node[i]->op == KN_AFTER || s->node[i]->op == KN_STORE) k->orders[k->norders++] = s->node[i];
    }
    find_closers(k);
    ki_find_words(k);
    return true;
}

void ki_nest_close(ki_nest *k) {
    ki_scope_close(&k->scope);
    ki_arena_free(&k->affines.arena);
    ki_free(k->form);
    ki_free(k->closer);
    memset(k, 0, sizeof *k);
}

kn_uop ki_nest_range(const ki_nest *k, uint32_t id) {
    uint32_t lo = 0, hi = k->scope.nrange;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (k->scope.range[mid]->arg.range.id < id) lo = mid + 1;
        else hi = mid;
    }
    return lo < k->scope.nrange && k->scope.range[lo]->arg.range.id == id ? k->scope.range[lo] : NULL;
}

uint32_t ki_nest_next_range(const ki_nest *k) {
    return k->scope.nrange ? k->scope.range[k->scope.nrange - 1]->arg.range.id + 1 : 0;
}

uint32_t ki_nest_next_buffer(const ki_nest *k) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_BUFFER && u->arg.buffer->id >= next) next = u->arg.buffer->id + 1;
    }
    return next;
}

bool ki_nest_own_buffer(const ki_nest *k, int32_t *id) {
    if (*id < 0) *id = (int32_t)ki_nest_next_buffer(k);
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op == KN_BUFFER && u->arg.buffer->id == (uint32_t)*id)
            return ki_fail(k->ir->env, KI_E_OPT_ID, (int)*id), false;
    }
    return true;
}

const ki_opt *ki_nest_opt(const ki_nest *k, ki_optop op, const ki_opt *last) {
    const ki_kernel *info = k->sink->arg.kernel;
    for (uint32_t i = last ? (uint32_t)(last - info->opt) + 1 : 0; info && i < info->nopt; i++)
        if (info->opt[i].op == op) return &info->opt[i];
    return NULL;
}

kn_uop ki_nest_home(const ki_nest *k, kn_uop buf, kn_uop u, const kn_uop *except, uint32_t n) {
    kn_uop loop[64];
    uint32_t m = 0;
    for (uint32_t q = 0; q < k->scope.nrange && m < 64; q++) {
        bool in = ki_scope_has(&k->scope, u, k->scope.range[q]);
        for (uint32_t i = 0; i < n; i++) in &= except[i] != k->scope.range[q];
        if (in) loop[m++] = k->scope.range[q];
    }
    return ki_after(k->ir, buf, loop, m);
}

kn_uop ki_last_loop(kn_uop closer) {
    for (uint32_t j = closer->nsrc; j-- > 1;)
        if (ki_is_serial(closer->src[j])) return closer->src[j];
    return NULL;
}

bool ki_varies_in(const ki_nest *k, kn_uop u, kn_uop closer) {
    for (uint32_t j = 1; j < closer->nsrc; j++)
        if (ki_scope_has(&k->scope, u, closer->src[j])) return true;
    return false;
}

/* What is left out where c does not hold, again and again. */
bool ki_is_seldom(const ki_nest *k, kn_uop closer) {
    kn_uop part[KI_MAX_TERMS], *node;
    bool found = false;
    for (kn_uop v = closer->src[0]; closer->op == KN_REDUCE && v->op == KN_WHERE && !found; v = v->src[1]) {
        if (!ki_changes_nothing((kn_op)closer->arg.reduce.op, v->src[2])) break;
        unsigned n = ki_conjuncts(v->src[0], part);
        for (unsigned i = 0; i < n && !found; i++) {
            int64_t m = ki_varies_in(k, part[i], closer) ? -1 : ki_toposort(k->ir, &part[i], 1, &node);
            for (int64_t j = 0; j < m; j++) found |= node[j]->op == KN_REDUCE;
            if (m >= 0) ki_free(node);
        }
    }
    return found;
}

bool ki_sums_in(const ki_nest *k, kn_uop r, int64_t least) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->scope.range[q], c = k->closer[q];
        if (c && c->op == KN_REDUCE && ki_is_serial(x) && ki_extent(x) >= least && ki_scope_has(&k->scope, c, r))
            return true;
    }
    return false;
}

kn_uop ki_longest_sum(const ki_nest *k, kn_uop r, int64_t *most) {
    kn_uop longest = NULL;
    *most = 0;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop x = k->closer[q];
        int64_t terms = 1;
        if (!x || x->op != KN_REDUCE || x == longest || !ki_scope_has(&k->scope, x, r)) continue;
        for (uint32_t j = 1; j < x->nsrc; j++)
            if (ki_is_serial(x->src[j]) && ki_mul_overflow(terms, ki_extent(x->src[j]), &terms)) terms = 0;
        if (terms > *most) *most = terms, longest = x;
    }
    return longest;
}

const ki_affine *ki_nest_form(const ki_nest *k, kn_uop access) {
    kn_uop idx = access->src[1];
    return idx->dtype == KN_IDX ? k->form[k->scope.at[idx->id]] : NULL;
}

/* Whether r is free in a term. A term that divmod made is not in the scope: it is searched. */
static bool in_term(const ki_nest *k, kn_uop x, kn_uop r) {
    const ki_scope *s = &k->scope;
    if (x == r) return true;
    bool old = s->n && x->id <= s->node[s->n - 1]->id; /* ids of the scope go up to the sink's */
    if (old && s->node[s->at[x->id]] == x) return ki_scope_has(s, x, r);
    const kn_uop *node;
    bool found = false;
    int64_t n = ki_reach_above(k->ir, &x, 1, 0, &node);
    for (int64_t i = 0; i < n; i++) found |= node[i] == r;
    return found;
}

/* Where a SPLIT lets its last part begin earlier, -max(-f q, f - n): f, and n in *all. 0: u is no such thing. */
static int64_t lapped(kn_uop u, int64_t *all) {
    kn_uop q = u->op == KN_MAX && u->src[0]->op == KN_MUL ? u->src[0]->src[0] : NULL;
    if (!q || q->op != KN_RANGE || !ki_is_const(u->src[0]->src[1]) || !ki_is_const(u->src[1])) return 0;
    int64_t f = -u->src[0]->src[1]->arg.i;
    *all = f - u->src[1]->arg.i;
    return f > 1 && (q->hi.i + 1) * f >= *all && q->hi.i * f < *all ? f : 0;
}

int64_t ki_nest_stride(const ki_nest *k, kn_uop access, kn_uop r, bool *known) {
    const ki_affine *f = ki_nest_form(k, access);
    int64_t c = 0;
    *known = f != NULL;
    for (uint32_t i = 0; f && i < f->n; i++) {
        int64_t n, part = f->t[i].x->op == KN_MAX ? lapped(f->t[i].x, &n) : 0;
        if (f->t[i].x == r) c = f->t[i].c;
        else if (part && f->t[i].x->src[0]->src[0] == r) c = -f->t[i].c * part; /* but for the last one */
        else if (in_term(k, f->t[i].x, r)) *known = false;
    }
    return c;
}

/* ---- independence ------------------------------------------------------------------------------------------ */

/* A digit of an address: c times something between 0 and span; with those below it, it ends `less` earlier (lapped). */
typedef struct digit {
    int64_t c;
    ki_int128 span, less;
} digit;
#define MOST_DIGITS 32

static int by_size(const void *a, const void *b) {
    int64_t x = ((const digit *)a)->c, y = ((const digit *)b)->c;
    return (x > y) - (x < y);
}

/* Distinct digits give distinct sums: the smaller ones together never reach the next. */
static bool mixed_radix(digit *d, uint32_t n) {
    ki_int128 reach = 0;
    qsort(d, n, sizeof *d, by_size);
    for (uint32_t i = 0; i < n; i++) {
        if (d[i].span == 0) continue;
        if (d[i].c <= reach) return false;
        reach += d[i].c * d[i].span - d[i].less;
    }
    return true;
}

/* What has no bounds spans so much that no digit can be larger: it may be the last. A part that begins earlier stores again what another one
 * does, the same: the digit is the one it would be. */
static digit term_digit(ki_affine_term t) {
    int64_t n, f = t.c < 0 ? lapped(t.x, &n) : 0;
    if (f) {
        int64_t parts = (n + f - 1) / f;
        return (digit){-t.c * f, parts - 1, (ki_int128)-t.c * (parts * f - n)};
    }
    ki_int128 span = (ki_int128)t.x->hi.i - t.x->lo.i;
    return (digit){llabs(t.c), span < INT64_MAX ? span : INT64_MAX, 0};
}

/* Terms that a gate says are not negative. */
typedef struct signs {
    kn_uop x[8];
    uint32_t n;
} signs;

static bool not_negative(const signs *s, kn_uop x) {
    bool found = x->lo.i >= 0;
    for (uint32_t i = 0; i < s->n; i++) found |= s->x[i] == x;
    return found;
}

/* If f contains c * g for the sum g that a gate keeps in [0, limit): c, else 0. g itself must be a mixed-radix number. */
static int64_t gated_part(const ki_affine *f, const ki_affine *g, const signs *s) {
    digit d[MOST_DIGITS];
    int64_t c = 0;
    if (g->k || g->n == 0 || g->n > MOST_DIGITS) return 0;
    for (uint32_t i = 0; i < g->n; i++) {
        int64_t cf = ki_affine_coef(f, g->t[i].x);
        if (cf == 0 || cf % g->t[i].c || (c && cf / g->t[i].c != c) || g->t[i].c < 0 || !not_negative(s, g->t[i].x))
            return 0;
        c = cf / g->t[i].c;
        d[i] = term_digit(g->t[i]);
    }
    return mixed_radix(d, g->n) ? c : 0;
}

/* The next "sum < constant" among the conditions an index is valid under; *at walks the nested wheres and ands. */
static const ki_affine *next_gate(const ki_nest *k, kn_uop *stack, uint32_t *n, int64_t *limit) {
    while (*n) {
        kn_uop u = stack[--*n];
        if ((u->op == KN_AND || (u->op == KN_MUL && u->dtype == KN_BOOL)) && *n + 2 <= MOST_DIGITS) {
            stack[(*n)++] = u->src[0];
            stack[(*n)++] = u->src[1];
        } else if (u->op == KN_CMPLT && u->src[0]->dtype == KN_IDX && u->src[1]->op == KN_CONST) {
            *limit = u->src[1]->arg.i;
            return k->form[k->scope.at[u->src[0]->id]];
        }
    }
    return NULL;
}

/* The conditions that an access's index is valid under, on a stack for next_gate. */
static uint32_t gates(kn_uop access, kn_uop *stack) {
    uint32_t n = 0;
    for (kn_uop i = access->src[1]; i->op == KN_WHERE && n < MOST_DIGITS; i = i->src[1]) stack[n++] = i->src[0];
    return n;
}

/* -x < 1 */
static void find_signs(const ki_nest *k, kn_uop access, signs *s) {
    kn_uop stack[MOST_DIGITS];
    uint32_t m = gates(access, stack);
    const ki_affine *g;
    int64_t limit;
    s->n = 0;
    while (s->n < 8 && (g = next_gate(k, stack, &m, &limit)))
        if (g->n == 1 && g->t[0].c < 0 && g->k == 0 && limit == 1) s->x[s->n++] = g->t[0].x;
}

/* Distinct values of r give distinct addresses: the terms are the digits of a mixed-radix number, r one of them. Terms that
 * a gate bounds together are one digit. */
static bool injective(const ki_nest *k, kn_uop access, kn_uop r) {
    const ki_affine *f = ki_nest_form(k, access), *g;
    kn_uop stack[MOST_DIGITS];
    digit d[MOST_DIGITS];
    uint64_t used = 0;
    uint32_t n = 0, m;
    int64_t limit;
    signs s;
    bool known;
    if (!f || f->n > MOST_DIGITS || ki_nest_stride(k, access, r, &known) == 0 || !known) return false;
    find_signs(k, access, &s);
    m = gates(access, stack);
    while ((g = next_gate(k, stack, &m, &limit))) {
        int64_t c = gated_part(f, g, &s);
        uint64_t part = 0;
        for (uint32_t i = 0; c && i < f->n; i++)
            if (ki_affine_coef(g, f->t[i].x)) part |= UINT64_C(1) << i;
        if (!c || part & used || limit < 1) continue;
        used |= part;
        d[n++] = (digit){llabs(c), limit - 1, 0};
    }
    for (uint32_t i = 0; i < f->n; i++)
        if (!(used >> i & 1)) d[n++] = term_digit(f->t[i]);
    return mixed_radix(d, n);
}

/* An AFTER(REG, init, r): what one iteration leaves, the next one reads. AFTER(REG, r) alone only says "inside r". */
static bool carries(kn_uop u, kn_uop r) {
    bool loop = false, other = false;
    if (!ki_storage(u)) return false;
    for (uint32_t j = 1; j < u->nsrc; j++) {
        loop |= u->src[j] == r;
        other |= u->src[j]->op != KN_RANGE;
    }
    return loop && other;
}

int64_t ki_nest_step(const ki_nest *k, kn_uop access, kn_uop r) {
    bool known;
    if (!ki_scope_has(&k->scope, access, r)) return 0; /* of most loops: no term needs looking at */
    int64_t s = ki_nest_stride(k, access, r, &known) * (int64_t)ki_itemsize((kn_dtype)access->dtype);
    return !known ? 0 : s < 0 ? -s : s;
}

bool ki_is_inside(const ki_nest *k, kn_uop a, kn_uop b) {
    kn_uop e = ki_nest_closer(k, a);
    return e == ki_nest_closer(k, b) ? ki_place_in(e, a) > ki_place_in(e, b) : ki_scope_has(&k->scope, e, b);
}

kn_uop ki_innermost(const ki_nest *k, kn_uop access) {
    kn_uop best = access;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (ki_is_serial(r) && ki_nest_step(k, access, r) && (best == access || ki_is_inside(k, r, best))) best = r;
    }
    return best;
}

bool ki_nest_loops_inside(const ki_nest *k, kn_uop r) {
    bool found = false;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        found |= (u->op == KN_REDUCE || u->op == KN_END || u->op == KN_AFTER) && ki_scope_has(&k->scope, u, r);
    }
    return found;
}

bool ki_nest_carries(const ki_nest *k, kn_uop end) {
    for (uint32_t i = 0; i < k->norders; i++) {
        kn_uop u = k->orders[i];
        for (uint32_t j = 1; u->op == KN_AFTER && j < end->nsrc; j++)
            if (carries(u, end->src[j])) return true;
    }
    return false;
}

int32_t ki_slot_of(kn_uop storage) {
    if (storage->op == KN_PARAM) return storage->arg.param->slot;
    return storage->op == KN_BUFFER ? -1 - (int32_t)storage->arg.buffer->id : INT32_MIN;
}

bool ki_is_before(const ki_nest *k, kn_uop end, kn_uop read) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q], c = ki_scope_has(&k->scope, read, r) ? k->closer[q] : NULL;
        bool around = ki_scope_has(&k->scope, end, r);
        if (c && c->op == KN_END && c != end && !around && !ki_varies_in(k, c, end)) return true;
    }
    return false;
}

kn_uop ki_nest_read_of(const ki_nest *k, kn_uop root, int32_t slot, uint32_t *count) {
    kn_uop found = NULL, *node;
    int64_t n = ki_toposort(k->ir, &root, 1, &node);
    uint32_t words = 0;
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = node[i];
        uint32_t at = k->scope.at[u->id];
        bool whole = k->word[at] ? k->word[at] == u : k->read[at] != 0;
        kn_uop p = whole ? ki_storage(ki_word_element(u)) : NULL;
        if (!p || ki_slot_of(p) != slot || (words && !k->word[at])) continue;
        if (root->op == KN_END && ki_is_before(k, root, u)) continue;
        if (k->word[at] && !words++) *count = 0;
        found = u;
        ++*count;
    }
    if (n >= 0) ki_free(node);
    return found;
}

/* Of several reads, elements all, the one that these n loops leave where it is, or the one that they move; NULL: none, or several. */
enum { LEFT, MOVED };
static kn_uop one_read(const ki_nest *k, kn_uop root, int32_t slot, const kn_uop *loop, uint32_t n, bool which) {
    kn_uop found = NULL, *node;
    int64_t count = ki_toposort(k->ir, &root, 1, &node);
    bool one = count >= 0;
    for (int64_t i = 0; i < count && one; i++) {
        uint32_t at = k->scope.at[node[i]->id];
        kn_uop p = k->read[at] ? ki_storage(node[i]) : NULL;
        if (!p || ki_slot_of(p) != slot) continue;
        one = !k->word[at];
        bool moves = false;
        for (uint32_t j = 0; j < n; j++) moves |= ki_scope_has(&k->scope, node[i], loop[j]);
        if (moves != which) continue;
        one &= !found;
        found = node[i];
    }
    if (count >= 0) ki_free(node);
    return one ? found : NULL;
}

kn_uop ki_nest_read_without(const ki_nest *k, kn_uop root, int32_t slot, kn_uop r) {
    return one_read(k, root, slot, &r, 1, LEFT);
}

kn_uop ki_nest_read_inside(const ki_nest *k, kn_uop root, int32_t slot, kn_uop axis) {
    uint32_t count, at = axis ? ki_place_in(root, axis) + 1 : 0;
    kn_uop found = ki_nest_read_of(k, root, slot, &count), last = axis ? ki_last_loop(root) : NULL;
    if (count < 2) return found;
    if (axis && slot < 0) return one_read(k, root, slot, root->src + at, root->nsrc - at, MOVED);
    if (!last || last == axis) return NULL;
    found = ki_nest_read_without(k, root, slot, last);
    return found ? found : one_read(k, root, slot, root->src + at, root->nsrc - at, LEFT);
}

int64_t ki_nest_shared(const ki_nest *k, kn_uop a, kn_uop b) {
    int64_t n = 1;
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (!ki_extent(r) || (k->closer[q] && k->closer[q]->op == KN_REDUCE)) continue;
        if (ki_scope_has(&k->scope, a, r) && ki_scope_has(&k->scope, b, r)) n *= ki_extent(r);
    }
    return n;
}

/* Is u part of what the loops of closer do? What stands in another nest is done before them all, or after. */
static bool is_inside(const ki_nest *k, kn_uop closer, kn_uop u) {
    const kn_uop *node;
    int64_t n = ki_reach_above(k->ir, &closer, 1, 0, &node);
    bool found = n < 0;
    for (int64_t i = 0; i < n && !found; i++) found = node[i] == u;
    return found;
}

bool ki_nest_independent(const ki_nest *k, kn_uop r) {
    const ki_scope *s = &k->scope;
    kn_uop c = ki_nest_closer(k, r);
    bool stored = false;
    if (!c || c->op != KN_END) return false;
    for (uint32_t i = 0; i < k->norders; i++) {
        kn_uop u = k->orders[i];
        if (u->op == KN_AFTER && carries(u, r)) return false;
        if (u->op != KN_STORE || !ki_scope_has(s, u, r)) continue;
        kn_uop b = ki_storage(u->src[0]);
        if (!b) return false;
        if (b->op == KN_BUFFER && b->arg.buffer->addrspace != KN_GLOBAL) {
            /* each iteration of an outer loop has its own, one of the filling loop its element */
            stored |= injective(k, u->src[0], r);
            continue;
        }
        if (!injective(k, u->src[0], r)) return false;
        stored = true;
        /* what is read of the same storage must be what this iteration writes */
        for (uint32_t j = 0; j < k->nreads; j++)
            if (ki_storage(k->reads[j]) == b && k->reads[j]->src[1] != u->src[0]->src[1] &&
                is_inside(k, c, k->reads[j]))
                return false;
    }
    return stored;
}

/* Does the nest itself do this store, not one inside it? */
static bool is_own_store(kn_uop closer, kn_uop u) {
    kn_uop b = closer->src[0];
    bool own = b == u;
    for (uint32_t i = 0; b->op == KN_GROUP && i < b->nsrc; i++) own |= b->src[i] == u;
    return own;
}

bool ki_nest_laps(const ki_nest *k, kn_uop r) {
    const ki_scope *s = &k->scope;
    kn_uop c = ki_nest_closer(k, r);
    if (!c || c->op != KN_END || !ki_is_serial(r) || !ki_nest_independent(k, r) || ki_nest_carries(k, c)) return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->node[i]->op == KN_ATOMICADD) return false;
    for (uint32_t i = 0; i < k->norders; i++) {
        kn_uop u = k->orders[i], b = u->op == KN_STORE ? ki_storage(u->src[0]) : NULL;
        if (!b || !ki_scope_has(s, u, r)) continue;
        /* what a nest inside fills it fills again */
        if (b->op == KN_BUFFER && b->arg.buffer->addrspace != KN_GLOBAL && !is_own_store(c, u)) continue;
        for (uint32_t j = 0; j < k->nreads; j++)
            if (ki_storage(k->reads[j]) == b && is_inside(k, c, k->reads[j])) return false;
    }
    return true;
}
