/* expand.c: stage 4, one sweep over a kernel, sources first, that maps every node to its shaped counterpart.
 *
 *  - A lane RANGE is an iota; elementwise ops broadcast by themselves; indices are kept as affine forms, so
 * that what reaches a LOAD is scalar base + constants.
 *  - INDEX of storage has two counterparts: an address (under STORE, LOAD) and a value (a LOAD of it).
 *  - Validity is a column of its own: where(valid, i, invalid) is i with gate `valid`, and the gate goes to
 * LOAD and STORE.
 *  - A REG or LOCAL BUFFER that stands inside lane ranges (AFTER names them) has one copy a lane, one after the other.
 *  - REDUCEs are lowered a level at a time (reduce.c), so that independent ones share a loop, an END's too.
 * The sweep goes by (level, place); a node only needs what came before it in that order. */
#include "ir/history.h"
#include "stages/4_expand/lanes.h"
#include "stages/indexing.h"

#include <string.h>

#define PLACE(u) (x->scope.at[(u)->id])

void ki_lane_dims(const ki_ex *x, const int64_t *extent, uint32_t mask, int64_t *dim) {
    for (unsigned k = 0; k < x->nlane; k++) dim[k] = mask >> k & 1 ? extent[k] : 1;
}

/* ---- lane axes ---------------------------------------------------------------------------------------------- */

/* What is added up varies along r, or it is added up along r: then each lane of r counts, though nothing may vary. */
static bool sums_in(const ki_ex *x, kn_uop reduce, uint32_t r) {
    for (uint32_t j = 1; j < reduce->nsrc; j++)
        if (reduce->src[j] == x->scope.range[r]) return true;
    return ki_scope_has(&x->scope, reduce->src[0], x->scope.range[r]);
}

/* True if some node varies along both ranges, or adds up along one what varies along the other; then they need two axes. */
static bool meet(const ki_ex *x, uint32_t a, uint32_t b) {
    const ki_scope *s = &x->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint64_t *set = s->free + (size_t)i * s->words;
        if (ki_in_set(set, a) && ki_in_set(set, b)) return true;
        if (s->node[i]->op == KN_REDUCE && sums_in(x, s->node[i], a) && sums_in(x, s->node[i], b)) return true;
    }
    return false;
}

/* Whether range r may have axis c: it meets no other range of that axis and, if `even`, has their extent, if `alike`, the kind of the first
 * of them. */
static bool may_share(const ki_ex *x, uint32_t r, unsigned c, bool even, bool alike) {
    const ki_scope *s = &x->scope;
    if (alike && x->lane[c]->arg.range.axis != s->range[r]->arg.range.axis) return false;
    if (even && ki_extent(x->lane[c]) != ki_extent(s->range[r])) return false;
    for (uint32_t q = 0; q < r; q++)
        if (x->axis[q] == c && meet(x, q, r)) return false;
    return true;
}

/* Lane ranges get axes in order of id. One that never meets the ranges of an earlier axis of its extent shares that axis:
 * sibling loops (those of a softmax) are all vectors along one axis then. One of its own kind is taken first. When axes run out, extents may differ. */
static bool assign_axes(ki_ex *x) {
    const ki_scope *s = &x->scope;
    for (uint32_t r = 0; r < s->nrange; r++) x->axis[r] = KI_NO_LANE;
    for (uint32_t r = 0; r < s->nrange; r++) {
        unsigned k = KI_NO_LANE;
        if (!ki_is_lane(s->range[r])) continue;
        if (ki_extent(s->range[r]) < 1) return ki_fail(x->ir->env, KI_E_LANE_EXTENT, s->range[r]->arg.range.id), false;
        for (unsigned c = 0; c < 2 * x->nlane && k == KI_NO_LANE; c++)
            if (may_share(x, r, c % x->nlane, true, c < x->nlane)) k = c % x->nlane;
        if (k == KI_NO_LANE && x->nlane < KI_MAX_RANK) {
            k = x->nlane++;
            x->lane[k] = s->range[r];
        }
        for (unsigned c = 0; c < x->nlane && k == KI_NO_LANE; c++)
            if (may_share(x, r, c, false, false)) k = c;
        if (k == KI_NO_LANE) return ki_fail(x->ir->env, KI_E_LANE_AXES, KI_MAX_RANK), false;
        x->axis[r] = (uint8_t)k;
    }
    return true;
}

/* ---- storage ------------------------------------------------------------------------------------------------ */

static bool is_storage(kn_uop u) {
    while (u->op == KN_AFTER) u = u->src[0];
    return u->op == KN_BUFFER || u->op == KN_SLICE || (u->op == KN_PARAM && ki_rank(u) == 1);
}

/* Where each address comes from, and which lane axes each BUFFER of the kernel's own needs a copy for. */
static void find_homes(ki_ex *x) {
    const ki_scope *s = &x->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        x->home[i] = i;
        if (u->op == KN_AFTER) x->home[i] = x->home[PLACE(u->src[0])];
        if (u->op == KN_INDEX) x->home[i] = x->home[PLACE(u->src[0])];
        kn_uop b = s->node[x->home[i]];
        if (u->op != KN_AFTER || b->op != KN_BUFFER || b->arg.buffer->addrspace == KN_GLOBAL) continue;
        for (uint32_t k = 1; k < u->nsrc; k++) {
            if (!ki_is_lane(u->src[k])) continue;
            uint32_t r = ki_scope_rank(s, u->src[k]);
            x->own[x->home[i]] |= UINT32_C(1) << x->axis[r];
            x->own_ranges[(size_t)x->home[i] * s->words + (r >> 6)] |= UINT64_C(1) << (r & 63);
        }
    }
}

/* Copies a BUFFER of the kernel's own has, and the extents they are counted by. */
static int64_t copies(ki_ex *x, uint32_t home, int64_t *dim) {
    const ki_scope *s = &x->scope;
    int64_t n = 1;
    for (unsigned k = 0; k < x->nlane; k++) dim[k] = 1;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (ki_in_set(x->own_ranges + (size_t)home * s->words, r)) dim[x->axis[r]] = ki_extent(s->range[r]);
    for (unsigned k = 0; k < x->nlane; k++) n *= dim[k];
    return n;
}

static kn_uop map_buffer(ki_ex *x, kn_uop u) {
    int64_t dim[KI_MAX_RANK];
    const ki_buffer *b = u->arg.buffer;
    if (!x->own[PLACE(u)]) return u;
    return ki_buffer_make(x->ir, b->id, b->size * copies(x, PLACE(u), dim), (kn_dtype)b->dtype,
                          (kn_addrspace)b->addrspace, b->device);
}

/* The index of an address; in a BUFFER with copies, that in this lane's copy. */
static kn_uop own_index(ki_ex *x, kn_uop u) {
    const ki_scope *s = &x->scope;
    uint32_t home = x->home[PLACE(u)], seen = 0;
    int64_t dim[KI_MAX_RANK], stride;
    const ki_affine *f = x->form[PLACE(u->src[1])];
    if (!x->own[home]) return ki_ex_val(x, u->src[1]);
    stride = copies(x, home, dim) * s->node[home]->arg.buffer->size;
    for (unsigned k = 0; k < x->nlane; k++) {
        stride /= dim[k];
        for (uint32_t r = 0; f && r < s->nrange; r++) {
            if (x->axis[r] != k || seen >> k & 1 || !ki_in_set(x->own_ranges + (size_t)home * s->words, r)) continue;
            f = ki_affine_add(&x->affines, f, ki_affine_leaf(&x->affines, s->range[r]), stride);
            seen |= UINT32_C(1) << k;
        }
    }
    return f ? ki_lane_index(x, f) : NULL;
}

/* ---- gates -------------------------------------------------------------------------------------------------- */

/* Of an index being computed; what was read from memory is valid, wherever it was read. */
static kn_uop validity(const ki_ex *x, kn_uop u) {
    bool computed = u->op == KN_INVALID || (u->dtype == KN_IDX && ki_is_elementwise((kn_op)u->op));
    return computed ? x->gate[PLACE(u)] : NULL;
}

/* Both branches of a WHERE that may be invalid: valid where the chosen one is. */
static kn_uop gate_where(ki_ir *ir, kn_uop p, kn_uop a, kn_uop b) {
    if (!a && !b) return NULL;
    kn_uop l = a ? ki_op2(ir, KN_AND, p, a) : p, r = ki_op1(ir, KN_NOT, p);
    if (b && ki_is_const_int(b, 0)) return l;
    if (b) r = ki_op2(ir, KN_AND, r, b);
    if (a && ki_is_const_int(a, 0)) return r;
    return ki_op2(ir, KN_OR, l, r);
}

/* A gate that is certain is none; one that is impossible is the constant false. */
static kn_uop settle(ki_ir *ir, kn_uop gate) {
    if (!gate || gate->lo.i == 1) return NULL;
    return gate->hi.i == 0 ? ki_const_int(ir, KN_BOOL, 0) : gate;
}

static kn_uop make_load(ki_ex *x, kn_uop addr, kn_uop alt, kn_uop gate) {
    ki_ir *ir = x->ir;
    if (!gate) return ki_op1(ir, KN_LOAD, addr);
    if (!alt) alt = ki_const_int(ir, (kn_dtype)addr->dtype, 0);
    if (ki_is_const_int(gate, 0)) return alt;
    return ki_op3(ir, KN_LOAD, addr, alt, gate);
}

/* An address has every lane its gate tells apart: zeros are added along the others. */
static kn_uop widen(ki_ex *x, kn_uop idx, kn_uop gate) {
    int64_t dim[KI_MAX_RANK], n = 1;
    bool wider = false;
    if (!ki_rank(gate) || ki_is_const_int(gate, 0)) return idx;
    for (unsigned k = 0; k < x->nlane; k++) {
        int64_t d = ki_rank(idx) ? ki_dim_n(idx, k) : 1;
        dim[k] = d == 1 ? ki_dim_n(gate, k) : 1;
        wider |= dim[k] > 1;
        n *= dim[k];
    }
    if (!wider) return idx;
    kn_uop *zero = ki_malloc((size_t)n * sizeof *zero), r;
    if (!zero) return ki_fail(x->ir->env, KI_E_NOMEM), NULL;
    for (int64_t i = 0; i < n; i++) zero[i] = ki_index(x->ir, 0);
    r = ki_reshape(x->ir, ki_opn(x->ir, KN_STACK, zero, (uint32_t)n), dim, x->nlane);
    ki_free(zero);
    return ki_op2(x->ir, KN_ADD, idx, r);
}

/* ---- nodes -------------------------------------------------------------------------------------------------- */

static bool map_index(ki_ex *x, uint32_t i, kn_uop u) {
    ki_ir *ir = x->ir;
    if (!is_storage(u->src[0]) || u->nsrc != 2) {
        kn_uop src[KI_MAX_RANK + 1];
        for (uint32_t k = 0; k < u->nsrc; k++) src[k] = ki_ex_val(x, u->src[k]);
        return (x->val[i] = ki_with_src(ir, u, src)) != NULL;
    }
    const ki_prefix *sum = ki_prefix_from(x, u);
    kn_uop gate = x->gate[i] = settle(ir, validity(x, u->src[1]));
    kn_uop idx = sum ? ki_lane_index(x, ki_affine_leaf(&x->affines, sum->l)) : own_index(x, u);
    if (gate && idx) idx = widen(x, idx, gate);
    x->ptr[i] = ki_op2(ir, KN_INDEX, ki_ex_val(x, u->src[0]), idx);
    x->val[i] = x->ptr[i] ? make_load(x, x->ptr[i], NULL, gate) : NULL;
    if (sum) x->val[i] = ki_prefix_spread(x, sum, x->val[i]);
    return x->val[i] != NULL;
}

static bool map_load(ki_ex *x, uint32_t i, kn_uop u) {
    kn_uop addr = u->src[0], alt = u->nsrc > 1 ? ki_ex_val(x, u->src[1]) : NULL;
    kn_uop gate = u->nsrc > 2 ? ki_ex_val(x, u->src[2]) : NULL;
    if (!x->ptr[PLACE(addr)]) return ki_fail(x->ir->env, KI_E_INTERNAL, "expand: LOAD of no address"), false;
    gate = settle(x->ir, ki_and(x->ir, x->gate[PLACE(addr)], gate));
    return (x->val[i] = make_load(x, x->ptr[PLACE(addr)], alt, gate)) != NULL;
}

static bool map_store(ki_ex *x, uint32_t i, kn_uop u) {
    kn_uop addr = x->ptr[PLACE(u->src[0])], v = ki_ex_val(x, u->src[1]);
    kn_uop gate = u->nsrc > 2 ? ki_ex_val(x, u->src[2]) : NULL;
    if (!addr) addr = ki_ex_val(x, u->src[0]);
    gate = settle(x->ir, ki_and(x->ir, x->gate[PLACE(u->src[0])], gate));
    if (gate && ki_is_const_int(gate, 0)) x->val[i] = ki_op0(x->ir, KN_GROUP);
    else x->val[i] = ki_make(x->ir, KN_STORE, KN_VOID, (kn_uop[]){addr, v, gate}, gate ? 3 : 2, u->arg, 0);
    return x->val[i] != NULL;
}

/* END, AFTER, SINK, GROUP and the like: lane RANGEs among the sources from `first` on go. */
static bool map_order(ki_ex *x, uint32_t i, kn_uop u, uint32_t first) {
    kn_uop small[16], *src = u->nsrc > 16 ? ki_malloc(u->nsrc * sizeof *src) : small;
    uint32_t n = 0;
    if (!src) return ki_fail(x->ir->env, KI_E_NOMEM), false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (k < first || ki_is_loop(u->src[k])) src[n++] = ki_ex_val(x, u->src[k]);
    x->val[i] = n == 1 && (u->op == KN_END || u->op == KN_AFTER) ? src[0] : ki_with_srcs(x->ir, u, src, n);
    if (src != small) ki_free(src);
    return x->val[i] != NULL;
}

/* dtype index: as an affine form where it has one, written out only where it is read (ki_ex_val). */
static bool map_index_math(ki_ex *x, uint32_t i, kn_uop u) {
    const ki_affine *form[3] = {0};
    kn_uop src[3];
    for (uint32_t k = 0; k < u->nsrc; k++) form[k] = x->form[PLACE(u->src[k])];
    if ((x->form[i] = ki_affine_of(&x->affines, u, form))) return true;
    for (uint32_t k = 0; k < u->nsrc; k++) src[k] = ki_ex_val(x, u->src[k]);
    x->val[i] = ki_lane_fold(x, (kn_op)u->op, (kn_dtype)u->dtype, src, u->nsrc);
    if (!x->val[i]) x->val[i] = ki_with_src(x->ir, u, src);
    return x->val[i] && (x->form[i] = ki_affine_leaf(&x->affines, x->val[i]));
}

static bool map_elementwise(ki_ex *x, uint32_t i, kn_uop u) {
    ki_ir *ir = x->ir;
    kn_uop src[3], gate = NULL;
    if (u->op == KN_WHERE && u->dtype == KN_IDX) {
        kn_uop a = validity(x, u->src[1]), b = validity(x, u->src[2]);
        x->gate[i] = gate_where(ir, ki_ex_val(x, u->src[0]), a, b);
        if ((a || b) && !x->gate[i]) return false;
        uint32_t only = u->src[2]->op == KN_INVALID ? 1 : u->src[1]->op == KN_INVALID ? 2 : 0;
        if (only) {
            x->val[i] = ki_ex_val(x, u->src[only]);
            x->form[i] = x->form[PLACE(u->src[only])];
            return true;
        }
    } else if (u->dtype == KN_IDX) {
        for (uint32_t k = 0; k < u->nsrc; k++) gate = ki_and(ir, gate, validity(x, u->src[k]));
        x->gate[i] = gate;
    }
    if (u->dtype == KN_IDX && u->op != KN_CAST) return map_index_math(x, i, u);
    if (u->op == KN_CMPLT && u->src[0]->dtype == KN_IDX)
        x->val[i] = ki_lane_less(x, x->form[PLACE(u->src[0])], x->form[PLACE(u->src[1])]);
    if (x->val[i]) return true;
    for (uint32_t k = 0; k < u->nsrc; k++) src[k] = ki_ex_val(x, u->src[k]);
    x->val[i] = ki_lane_fold(x, (kn_op)u->op, (kn_dtype)u->dtype, src, u->nsrc);
    if (!x->val[i]) x->val[i] = ki_with_src(ir, u, src);
    return x->val[i] != NULL;
}

static bool map_reduce(ki_ex *x, uint32_t i, kn_uop u) {
    for (uint32_t k = 1; k < u->nsrc; k++)
        if (ki_is_loop(u->src[k])) return x->pending[x->npending++] = i, true;
    kn_uop running = ki_prefix_lanes(x, u);
    return (x->val[i] = running ? running : ki_reduce_lanes(x, u, ki_ex_val(x, u->src[0]))) != NULL;
}

/* An END waits for the REDUCEs that close its loop as well. */
static bool map_end(ki_ex *x, uint32_t i, kn_uop u) {
    if (ki_scope_shares(&x->scope, u)) return x->pending[x->npending++] = i, true;
    return map_order(x, i, u, 1);
}

static bool map_other(ki_ex *x, uint32_t i, kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_BUFFER: return (x->val[i] = map_buffer(x, u)) != NULL;
    case KN_INVALID:
        x->gate[i] = ki_const_int(x->ir, KN_BOOL, 0);
        return (x->val[i] = ki_index(x->ir, 0)) && x->gate[i];
    case KN_RANGE:
        if (ki_is_lane(u)) {
            return (x->form[i] = ki_affine_leaf(&x->affines, u)) != NULL;
        }
        if (ki_is_unit(u)) return (x->val[i] = ki_index(x->ir, 0)) != NULL;
        return map_order(x, i, u, 1);
    case KN_INDEX: return map_index(x, i, u);
    case KN_LOAD: return map_load(x, i, u);
    case KN_STORE: return map_store(x, i, u);
    case KN_REDUCE: return map_reduce(x, i, u);
    case KN_END: return map_end(x, i, u);
    default: return map_order(x, i, u, u->op == KN_AFTER ? 1 : u->nsrc);
    }
}

static bool map_node(ki_ex *x, uint32_t i) {
    kn_uop u = x->scope.node[i];
    bool each = ki_is_elementwise((kn_op)u->op) || (u->op == KN_INS && u->nsrc <= 3);
    if (!(each ? map_elementwise(x, i, u) : map_other(x, i, u))) return false;
    bool opaque = u->dtype == KN_IDX && !x->form[i] && x->val[i];
    return !opaque || (x->form[i] = ki_affine_leaf(&x->affines, x->val[i]));
}

/* ---- the stage ---------------------------------------------------------------------------------------------- */

/* A form inside a quotient: its lane RANGEs as iotas. */
static kn_uop lane_node(void *x, const ki_affine *f) { return ki_lane_index(x, f); }

static bool open_ex(ki_ex *x, ki_ir *ir, const ki_target *t, kn_uop sink) {
    memset(x, 0, sizeof *x);
    x->ir = x->affines.ir = ir;
    x->target = t;
    x->affines.node = lane_node;
    x->affines.user = x;
    if (!ki_scope_open(&x->scope, ir, sink)) return false;
    uint32_t n = x->scope.n;
    x->axis = ki_calloc(x->scope.nrange + 1, 1);
    x->val = ki_calloc(n, sizeof *x->val);
    x->ptr = ki_calloc(n, sizeof *x->ptr);
    x->gate = ki_calloc(n, sizeof *x->gate);
    x->form = ki_calloc(n, sizeof *x->form);
    x->home = ki_calloc(n, sizeof *x->home);
    x->own = ki_calloc(n, sizeof *x->own);
    x->own_ranges = ki_calloc((size_t)n * x->scope.words, sizeof *x->own_ranges);
    x->pending = ki_calloc(n, sizeof *x->pending);
    if (!x->axis || !x->val || !x->ptr || !x->gate || !x->form || !x->home || !x->own || !x->own_ranges || !x->pending)
        return ki_fail(ir->env, KI_E_NOMEM), false;
    return true;
}

static void close_ex(ki_ex *x) {
    ki_scope_close(&x->scope);
    ki_arena_free(&x->affines.arena);
    ki_free(x->axis);
    ki_free(x->val);
    ki_free(x->ptr);
    ki_free(x->gate);
    ki_free(x->form);
    ki_free(x->home);
    ki_free(x->own);
    ki_free(x->own_ranges);
    ki_free(x->pending);
    ki_free(x->prefix);
}

/* Places in order of level: a counting sort. */
static uint32_t *by_level(const ki_scope *s) {
    uint32_t *count = ki_calloc(s->nlevel + 1, sizeof *count), *order = ki_calloc(s->n, sizeof *order);
    if (count && order) {
        for (uint32_t i = 0; i < s->n; i++) count[s->level[i] + 1]++;
        for (uint32_t l = 0; l < s->nlevel; l++) count[l + 1] += count[l];
        for (uint32_t i = 0; i < s->n; i++) order[count[s->level[i]]++] = i;
    } else {
        ki_free(order);
        order = NULL;
    }
    ki_free(count);
    return order;
}

kn_uop ki_expand_kernel(ki_ir *ir, const ki_target *t, kn_uop sink) {
    ki_ex x;
    kn_uop result = NULL;
    uint32_t *order = NULL;
    if (!(sink = ki_unshare_loops(ir, sink))) return NULL;
    bool ok = open_ex(&x, ir, t, sink) && assign_axes(&x);
    if (ok) find_homes(&x);
    ok = ok && ki_find_prefixes(&x);
    if (ok && !(order = by_level(&x.scope))) ok = (ki_fail(ir->env, KI_E_NOMEM), false);
    for (uint32_t i = 0; ok && i < x.scope.n; i++) {
        uint32_t since = ir->n;
        ok = map_node(&x, order[i]);
        ki_made_for(ir, x.scope.node[order[i]], since);
        bool last = i + 1 == x.scope.n || x.scope.level[order[i + 1]] != x.scope.level[order[i]];
        if (ok && last && x.npending) ok = ki_expand_reduces(&x);
    }
    if (ok) result = x.val[x.scope.n - 1];
    ki_free(order);
    close_ex(&x);
    return result;
}
