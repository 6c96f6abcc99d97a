/* reduce.c: a REDUCE over loops becomes an accumulator, its start, its update, an END, and a LOAD of the
 * result.
 *
 *   acc   = BUFFER(REG, lanes)
 *   init  = STORE(INDEX(AFTER(acc, outer ranges), lanes), identity)
 *   acc1  = AFTER(acc, init, r...)
 *   upd   = STORE(INDEX(acc1, lanes), op(LOAD(INDEX(acc1, lanes)), v))
 *   value = LOAD(INDEX(AFTER(acc, END(upd, r...)), lanes))
 * A loop that the OptOp TERMS names is written out in upd, one op behind the other, and r... are those around it.
 * The accumulator has a lane for every lane of v, those being reduced too: they are separate running values,
 * which the horizontal REDUCE joins after the loop. REDUCEs that stand on one level and close the same ranges
 * inside the same outer ones share their END; so they do with an END of the program. */
#include "stages/4_expand/lanes.h"

#include "base/cpuid.h"
#include "ir/scalar.h"
#include "stages/accumulate.h"

#include <string.h>

#define MOST_TERMS 8 /* that the OptOp TERMS takes */
#define PLACE(u)   (x->scope.at[(u)->id])

/* v, a lane axis of which is reduced but along which it does not vary, counted n times. */
static kn_uop repeat(ki_ir *ir, kn_op op, kn_uop v, int64_t n) {
    if (op == KN_MAX || n == 1 || !v || v->dtype == KN_BOOL) return v;
    if (op == KN_ADD) return ki_op2(ir, KN_MUL, v, ki_const_int(ir, (kn_dtype)v->dtype, n));
    kn_uop r = NULL; /* v^n by squaring */
    for (; n; n >>= 1) {
        if (n & 1) r = r ? ki_op2(ir, KN_MUL, r, v) : v;
        if (n > 1) v = ki_op2(ir, KN_MUL, v, v);
    }
    return r;
}

/* A sum that rounds goes axis by axis, in the order of u's ranges: which axes those share with others must not say how it adds up. */
kn_uop ki_reduce_lanes(ki_ex *x, kn_uop u, kn_uop v) {
    kn_op op = (kn_op)u->arg.reduce.op;
    bool rounds = op != KN_MAX && ki_is_float((kn_dtype)u->dtype);
    uint32_t axes = 0;
    int64_t times = 1;
    for (uint32_t k = 1; k < u->nsrc && v; k++) {
        if (!ki_is_lane(u->src[k])) continue;
        unsigned a = x->axis[ki_scope_rank(&x->scope, u->src[k])];
        if (ki_rank(v) && ki_dim_n(v, a) > 1) axes |= UINT32_C(1) << a;
        else times *= ki_extent(u->src[k]);
    }
    v = ki_reduce(x->ir, repeat(x->ir, op, v, times), op, u->arg.reduce.axes | (rounds ? 0 : axes));
    for (uint32_t k = 1; k < u->nsrc && rounds; k++) {
        uint32_t axis = ki_is_lane(u->src[k]) ? UINT32_C(1) << x->axis[ki_scope_rank(&x->scope, u->src[k])] : 0;
        if (axis & axes) v = ki_reduce(x->ir, v, op, axis);
    }
    return ki_lane_squeeze(x->ir, v);
}

/* ---- groups: REDUCEs that share a loop ---------------------------------------------------------------------- */

static uint32_t loops_of(kn_uop u, kn_uop *loop) {
    uint32_t n = 0;
    for (uint32_t k = 1; k < u->nsrc; k++)
        if (ki_is_loop(u->src[k])) loop[n++] = u->src[k];
    return n;
}

/* The loops around the whole reduction: free in u, which has closed its own. */
static bool same_nest(const ki_ex *x, kn_uop a, kn_uop b) {
    const ki_scope *s = &x->scope;
    const uint64_t *fa = ki_scope_free(s, a), *fb = ki_scope_free(s, b);
    if (!ki_same_loops(a, b)) return false;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (ki_is_loop(s->range[r]) && ki_in_set(fa, r) != ki_in_set(fb, r)) return false;
    return true;
}

/* ---- one accumulator ---------------------------------------------------------------------------------------- */

typedef struct acc {
    kn_uop buffer, lanes, update;
} acc;

static kn_uop lane_numbers(ki_ex *x, kn_uop v, int64_t *n) {
    int64_t dim[KI_MAX_RANK], coef[KI_MAX_RANK];
    *n = 1;
    for (unsigned k = x->nlane; k-- > 0; *n *= dim[k]) coef[k] = *n, dim[k] = ki_rank(v) ? ki_dim_n(v, k) : 1;
    return ki_lane_steps(x, NULL, coef, dim);
}

/* AFTER(buffer, the loops free in u) */
static kn_uop inside_outer(ki_ex *x, kn_uop u, kn_uop buffer) {
    const ki_scope *s = &x->scope;
    const uint64_t *set = ki_scope_free(s, u);
    kn_uop *loop = ki_malloc((s->nrange + 1) * sizeof *loop);
    uint32_t n = 0;
    if (!loop) return ki_fail(x->ir->env, KI_E_NOMEM), NULL;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (ki_in_set(set, r) && ki_is_loop(s->range[r])) loop[n++] = ki_ex_val(x, s->range[r]);
    kn_uop result = ki_after(x->ir, buffer, loop, n);
    ki_free(loop);
    return result;
}

/* Of the loops of a sum the innermost, if its terms are written out (3_optimize/terms.c); NULL: it runs. */
static kn_uop written_out(const ki_ex *x, const kn_uop *loop, uint32_t nloop) {
    const ki_kernel *info = x->scope.node[x->scope.n - 1]->arg.kernel;
    kn_uop r = nloop > 1 ? loop[nloop - 1] : NULL;
    if (!r || r->op != KN_RANGE || ki_extent(r) < 2 || ki_extent(r) > MOST_TERMS ||
        x->scope.node[x->scope.n - 1]->op != KN_SINK)
        return NULL;
    for (uint32_t i = 0; info && i < info->nopt; i++)
        if (info->opt[i].op == KI_OPT_TERMS && (uint32_t)info->opt[i].axis == r->arg.range.id) return r;
    return NULL;
}

/* Of a maximum of floats the vectors of an iteration, v, are compared with each other first, where NaNs of all are looked for together
 * (lack_x86.kr): the axes beside the one that is a vector. */
static uint32_t joined_axes(const ki_ex *x, kn_uop u, kn_uop v) {
    const ki_target *t = x->target;
    bool floats = u->arg.reduce.op == KN_MAX && (u->dtype == KN_F32 || u->dtype == KN_F64), whole = false;
    uint32_t axes = 0;
    if (!floats || !v || !ki_rank(v) || !t || !t->native || t->level < KI_CPU_AVX512_LEVEL) return 0;
    for (uint32_t k = 1; k < u->nsrc; k++) {
        if (!ki_is_lane(u->src[k])) continue;
        unsigned a = x->axis[ki_scope_rank(&x->scope, u->src[k])];
        if (!whole && ki_dim_n(v, a) * (int64_t)ki_itemsize((kn_dtype)u->dtype) == (int64_t)t->vector) whole = true;
        else if (ki_dim_n(v, a) > 1) axes |= UINT32_C(1) << a;
    }
    return whole ? axes : 0;
}

/* alone: the loops are this REDUCE's only; out: one more, inside them, is written out. */
static bool open_acc(ki_ex *x, kn_uop u, bool alone, kn_uop *loop, uint32_t nloop, kn_uop out, acc *a) {
    ki_ir *ir = x->ir;
    kn_uop v = ki_ex_val(x, u->src[0]), *src = ki_malloc((nloop + 2) * sizeof *src);
    kn_op op = (kn_op)u->arg.reduce.op;
    kn_dtype t = (kn_dtype)u->dtype;
    int64_t n;
    if (!src) return ki_fail(ir->env, KI_E_NOMEM), false;
    if (alone && nloop && !out && v && !ki_skip_left_out(ir, op, &v, &loop[nloop - 1])) return ki_free(src), false;
    uint32_t joined = joined_axes(x, u, v);
    if (joined) v = ki_reduce(ir, v, op, joined);
    a->lanes = lane_numbers(x, v, &n);
    a->buffer = ki_buffer_make(ir, ir->next_buffer, n, t, KN_REG, 0);
    kn_uop start = ki_const_bits(ir, t, ki_scalar_identity(op, t, true));
    bool contract = x->target && ki_target_has(x->target, KN_MULACC);
    src[0] = a->buffer;
    src[1] = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, inside_outer(x, u, a->buffer), a->lanes), start);
    memcpy(src + 2, loop, nloop * sizeof *loop);
    kn_uop base = ki_opn(ir, KN_AFTER, src, nloop + 2);
    for (int64_t i = 0, terms = out ? ki_extent(out) : 1; i < terms && base; i++) { /* each for all lanes */
        kn_uop place = ki_index(ir, i), at = ki_op2(ir, KN_INDEX, base, a->lanes),
               term = out ? ki_substitute(ir, v, &out, &place, 1) : v;
        kn_uop sum = term ? ki_accumulate(ir, contract, op, ki_op1(ir, KN_LOAD, at), term) : NULL;
        a->update = sum ? ki_op2(ir, KN_STORE, at, sum) : NULL;
        base = !a->update ? NULL : i + 1 < terms ? ki_op2(ir, KN_AFTER, base, a->update) : base;
    }
    if (!base) a->update = NULL;
    ki_free(src);
    return a->update != NULL;
}

/* An empty float sum is +0, yet its accumulator starts at -0: where the loops may not run at all, the result
 * is chosen. */
static kn_uop or_empty(ki_ex *x, kn_uop u, kn_uop v) {
    ki_ir *ir = x->ir;
    if (!v || u->arg.reduce.op != KN_ADD || !ki_is_float((kn_dtype)u->dtype)) return v;
    for (uint32_t k = 1; k < u->nsrc; k++) {
        kn_uop bound = u->src[k]->src[0];
        if (bound->lo.i > 0) continue;
        kn_uop some = ki_op2(ir, KN_CMPLT, ki_index(ir, 0), ki_ex_val(x, bound));
        v = ki_op3(ir, KN_WHERE, some, v, ki_const_int(ir, (kn_dtype)u->dtype, 0));
    }
    return v;
}

/* ---- a level ------------------------------------------------------------------------------------------------ */

/* The REDUCEs member[0..n), or an END among them, share one nest. */
static bool lower_group(ki_ex *x, const uint32_t *member, uint32_t n) {
    ki_ir *ir = x->ir;
    kn_uop first = x->scope.node[member[0]];
    acc *a = ki_calloc(n, sizeof *a);
    kn_uop *loop = ki_calloc(first->nsrc + n + 1, sizeof *loop), *list = NULL;
    bool ok = a && loop;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    uint32_t nloop = ok ? loops_of(first, loop + 1) : 0;
    for (uint32_t k = 1; k <= nloop; k++) loop[k] = ki_ex_val(x, loop[k]);
    kn_uop out = ok ? written_out(x, loop + 1, nloop) : NULL;
    nloop -= out != NULL;
    for (uint32_t j = 0; j < n && ok; j++) {
        kn_uop u = x->scope.node[member[j]];
        if (u->op == KN_END) ok = (a[j].update = ki_ex_val(x, u->src[0])) != NULL;
        else ok = open_acc(x, u, n == 1, loop + 1, nloop, out, &a[j]);
    }
    if (ok && n > 1 && !(list = ki_calloc(n, sizeof *list))) ok = (ki_fail(ir->env, KI_E_NOMEM), false);
    for (uint32_t j = 0; ok && list && j < n; j++) list[j] = a[j].update;
    if (ok) loop[0] = list ? ki_opn(ir, KN_GROUP, list, n) : a[0].update;
    kn_uop end = ok ? ki_opn(ir, KN_END, loop, nloop + 1) : NULL;
    for (uint32_t j = 0; j < n && ok; j++) {
        kn_uop u = x->scope.node[member[j]];
        if (u->op == KN_END) {
            ok = (x->val[member[j]] = end) != NULL;
            continue;
        }
        kn_uop v = ki_op1(ir, KN_LOAD, ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, a[j].buffer, end), a[j].lanes));
        v = x->val[member[j]] = or_empty(x, u, ki_reduce_lanes(x, u, v));
        if (v && u->dtype == KN_IDX) x->form[member[j]] = ki_affine_leaf(&x->affines, v);
        ok = v != NULL;
    }
    ki_free(a);
    ki_free(loop);
    ki_free(list);
    return ok;
}

bool ki_expand_reduces(ki_ex *x) {
    uint32_t n = x->npending, *group = ki_malloc((n + 1) * sizeof *group);
    bool ok = group != NULL;
    if (!ok) ki_fail(x->ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; i < n && ok; i++) {
        if (x->pending[i] == UINT32_MAX) continue;
        kn_uop u = x->scope.node[x->pending[i]];
        uint32_t m = 0;
        group[m++] = x->pending[i];
        for (uint32_t j = i + 1; j < n; j++) {
            if (x->pending[j] == UINT32_MAX || !same_nest(x, u, x->scope.node[x->pending[j]])) continue;
            group[m++] = x->pending[j];
            x->pending[j] = UINT32_MAX;
        }
        ok = lower_group(x, group, m);
    }
    x->npending = 0;
    ki_free(group);
    return ok;
}
