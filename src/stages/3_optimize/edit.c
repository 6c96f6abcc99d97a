/* edit.c: rebuilding a kernel with a range replaced, padded, or its threads hoisted. */
#include "stages/3_optimize/nest.h"
#include "stages/indexing.h"

#include "base/whole.h"
#include "ir/scalar.h"
#include "rules/rules.h"

#include <rules.h>

#include <string.h>

/* ---- kernel info ------------------------------------------------------------------------------------------- */

/* The sink with one more OptOp in its kernel info and, if threads is given, that count and the mark of being optimized. */
kn_uop ki_kernel_with(ki_ir *ir, kn_uop sink, const ki_opt *add, const uint32_t *threads) {
    const ki_kernel *old = sink ? sink->arg.kernel : NULL;
    uint32_t nopt = (old ? old->nopt : 0) + (add != NULL), len = old ? old->len : 0;
    size_t size = sizeof(ki_kernel) + nopt * sizeof(ki_opt) + len + 1;
    if (!sink) return NULL;
    ki_kernel *k = ki_calloc(1, size);
    if (!k) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    k->threads = 1;
    if (old) {
        memcpy(k, old, sizeof *k + old->nopt * sizeof(ki_opt));
        memcpy((char *)&k->opt[nopt], ki_kernel_name(old), len);
    }
    k->nopt = nopt;
    k->len = len;
    if (add) k->opt[nopt - 1] = *add;
    if (threads) k->threads = *threads, k->optimized = 1;
    const void *p = ki_intern(ir, k, size);
    ki_free(k);
    return p ? ki_with_arg(ir, sink, (kn_arg){.p = p}) : NULL;
}

/* ---- ranges by others -------------------------------------------------------------------------------------- */

/* Loops of an END in their order of duty: threads, loops, lanes; otherwise as listed. Lanes stay where they are listed if
 * one of the loops carries a value: what it carries was set inside the loops before it. */
static void order_loops(kn_uop *src, uint32_t n, kn_uop *scratch, bool carried) {
    uint32_t m = 0;
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t j = 0; j < n; j++) {
            int duty = ki_is_lane(src[j]) && !carried                                     ? 2
                       : src[j]->op == KN_RANGE && src[j]->arg.range.axis == KN_AX_THREAD ? 0
                                                                                          : 1;
            if (duty == pass) scratch[m++] = src[j];
        }
    memcpy(src, scratch, n * sizeof *src);
}

static bool is_listed(const kn_uop *src, uint32_t n, kn_uop r) {
    for (uint32_t j = 1; j < n; j++)
        if (src[j] == r) return true;
    return false;
}

/* u's sources after one swap of a range that is listed among them; their number. */
static uint32_t splice(kn_uop *src, uint32_t m, const ki_swap *w) {
    uint32_t j = 1, to = 0;
    kn_uop put[2];
    while (j < m && src[j] != w->from) j++;
    if (j == m) return m;
    for (int i = 0; i < 2; i++)
        if (w->list[i]) put[to++] = w->list[i];
    memmove(src + j + to, src + j + 1, (m - j - 1) * sizeof *src);
    memcpy(src + j, put, to * sizeof *src);
    return m + to - 1;
}

/* The same of swaps done one after the other: what one lists the next may be from. */
static uint32_t spliced_in_turn(ki_nest *k, kn_uop u, kn_uop *map, const ki_swap *swap, uint32_t n, kn_uop *src,
                                kn_uop *scratch, bool *spliced) {
    bool lists = u->op == KN_END || u->op == KN_REDUCE || u->op == KN_AFTER;
    uint32_t m = u->nsrc;
    for (uint32_t j = 0; j < m; j++) {
        kn_uop s = u->src[j];
        src[j] = lists && j > 0 && s->op == KN_RANGE ? s : map[k->scope.at[s->id]];
    }
    *spliced = false;
    bool carried = u->op == KN_END && ki_nest_carries(k, u);
    for (uint32_t q = 0; q < n && lists; q++) {
        uint32_t now = splice(src, m, &swap[q]);
        if (now == m) continue;
        m = now;
        *spliced = true;
        if (u->op == KN_END) order_loops(src + 1, m - 1, scratch, carried);
    }
    return m;
}

/* Sources of u after the edit, in src (room for nsrc + n more); their number. */
static uint32_t edited_sources(const ki_nest *k, kn_uop u, kn_uop *map, const ki_swap *swap, uint32_t n, kn_uop *src,
                               bool *spliced) {
    bool lists = u->op == KN_END || u->op == KN_REDUCE || u->op == KN_AFTER;
    uint32_t m = 0;
    *spliced = false;
    for (uint32_t j = 0; j < u->nsrc; j++) {
        const ki_swap *w = NULL;
        for (uint32_t q = 0; lists && j > 0 && q < n; q++)
            if (swap[q].from == u->src[j]) w = &swap[q];
        if (!w) {
            src[m++] = map[k->scope.at[u->src[j]->id]];
            continue;
        }
        *spliced = true;
        for (int i = 0; i < 2; i++)
            if (w->list[i] && !is_listed(src, m, w->list[i])) src[m++] = w->list[i];
    }
    return m;
}

static kn_uop swap_ranges(ki_nest *k, kn_uop root, const ki_swap *swap, uint32_t n, bool in_turn) {
    const ki_scope *s = &k->scope;
    uint32_t last = s->at[root->id], most = 0;
    for (uint32_t i = 0; i <= last; i++)
        if (s->node[i]->nsrc > most) most = s->node[i]->nsrc;
    size_t room = 2 * (size_t)(most + n + 1);
    kn_uop *map = ki_calloc((s->n + room) * sizeof *map + s->n, 1), result = NULL;
    if (!map) return ki_fail(k->ir->env, KI_E_NOMEM), NULL;
    kn_uop *src = map + s->n;
    uint8_t *wanted = (void *)(src + room);
    bool ok = true;
    wanted[last] = 1;
    for (uint32_t q = 0; q < n; q++)
        if (swap[q].expr) map[s->at[swap[q].from->id]] = swap[q].expr;
    for (uint32_t i = last + 1; i-- > 0;)
        for (uint32_t j = 0; wanted[i] && j < s->node[i]->nsrc; j++) wanted[s->at[s->node[i]->src[j]->id]] = 1;
    for (uint32_t i = 0; ok && i <= last; i++) {
        kn_uop u = s->node[i];
        bool spliced;
        if (!wanted[i] || map[i]) continue;
        bool same = true;
        for (uint32_t j = 0; j < u->nsrc && same; j++) same = map[s->at[u->src[j]->id]] == u->src[j];
        if (same) {
            map[i] = u;
            continue;
        }
        kn_uop *scratch = src + most + n + 1;
        uint32_t m = in_turn ? spliced_in_turn(k, u, map, swap, n, src, scratch, &spliced)
                             : edited_sources(k, u, map, swap, n, src, &spliced);
        if (spliced && u->op == KN_END && !in_turn) order_loops(src + 1, m - 1, scratch, ki_nest_carries(k, u));
        map[i] = spliced && m == 1 && u->op != KN_REDUCE ? src[0] : ki_with_srcs(k->ir, u, src, m);
        ok = map[i] != NULL;
    }
    if (ok) result = map[last];
    ki_free(map);
    return result;
}

kn_uop ki_swap_ranges(ki_nest *k, kn_uop root, const ki_swap *swap, uint32_t n) {
    return swap_ranges(k, root, swap, n, false);
}
kn_uop ki_swap_in_turn(ki_nest *k, kn_uop root, const ki_swap *swap, uint32_t n) {
    return swap_ranges(k, root, swap, n, true);
}

/* Scratch of a pass that rebuilds the kernel node by node. */
typedef struct edit {
    ki_nest *k;
    kn_uop *map; /* by place */
    kn_uop *src; /* room for any node's sources */
} edit;

static bool edit_open(edit *e, ki_nest *k) {
    uint32_t most = 4;
    for (uint32_t i = 0; i < k->scope.n; i++)
        if (k->scope.node[i]->nsrc > most) most = k->scope.node[i]->nsrc;
    *e = (edit){k, ki_calloc(k->scope.n, sizeof *e->map), ki_calloc(most, sizeof *e->src)};
    if (!e->map || !e->src) return ki_fail(k->ir->env, KI_E_NOMEM), false;
    return true;
}
static kn_uop edit_close(edit *e, bool ok) {
    kn_uop result = ok ? e->map[e->k->scope.n - 1] : NULL;
    ki_free(e->map);
    ki_free(e->src);
    return result;
}
static kn_uop mapped(const edit *e, kn_uop u) { return e->map[e->k->scope.at[u->id]]; }

/* ---- what a smaller loop decides --------------------------------------------------------------------------- */

int64_t ki_changes_at(const ki_nest *k, kn_uop u, kn_uop *r) {
    const ki_affine *f = u->op == KN_CMPLT && u->src[0]->dtype == KN_IDX && u->src[1]->op == KN_CONST
                             ? k->form[k->scope.at[u->src[0]->id]]
                             : NULL;
    *r = f && f->n == 1 && f->t[0].x->op == KN_RANGE && (f->t[0].c == 1 || f->t[0].c == -1) ? f->t[0].x : NULL;
    int64_t at = !*r ? 0 : f->t[0].c == 1 ? u->src[1]->arg.i - f->k : f->k - u->src[1]->arg.i + 1;
    return at > 0 && at < ki_extent(*r) ? at : 0;
}

bool ki_hangs_on(const ki_nest *k, kn_uop r, bool alone) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], x;
        bool hangs = alone ? u->op == KN_MOD || (ki_changes_at(k, u, &x) && x == r)
                           : u->op == KN_CMPLT || u->op == KN_IDIV || u->op == KN_MOD;
        if (hangs && ki_scope_has(&k->scope, u, r)) return true;
    }
    return false;
}

/* An AFTER of the kernel as it was is shared, by the other part or by others: what comes before it would be done twice, written in two ways. */
static bool is_shared(const void *nest, kn_uop u) {
    const ki_scope *s = &((const ki_nest *)nest)->scope;
    return u->op == KN_AFTER && u->id < s->ids && s->node[s->at[u->id]] == u;
}

kn_uop ki_decided(const ki_nest *k, kn_uop u) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates, &ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod,
                                             &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT, .of = k};
    for (uint32_t i = 0; i < k->norders && !o.stays; i++)
        if (k->orders[i]->op == KN_AFTER) o.stays = is_shared;
    return u ? ki_rewrite(k->ir, u, &o) : NULL;
}

/* ---- JOIN -------------------------------------------------------------------------------------------------- */

/* A sum's terms must come in the same order; of an END, what stands between the two loops is done for each iteration of both. */
static bool may_join(const ki_nest *k, kn_uop c, kn_uop outer, kn_uop inner) {
    if (c->op == KN_REDUCE) return ki_place_in(c, outer) + 1 == ki_place_in(c, inner);
    return ki_nest_independent(k, outer) && ki_nest_independent(k, inner);
}

/* Does a term that is no range itself vary with one of both? */
static bool hides(const ki_nest *k, const ki_affine *f, kn_uop outer, kn_uop inner) {
    for (uint32_t t = 0; t < f->n; t++) {
        kn_uop x = f->t[t].x;
        if (x->op != KN_RANGE && (ki_depends(k->ir, x, outer) || ki_depends(k->ir, x, inner))) return true;
    }
    return false;
}

/* f with c * joined for (c * n) * outer + c * inner; NULL: it is no sum of that kind. */
static kn_uop joined_sum(ki_nest *k, const ki_affine *f, kn_uop outer, kn_uop inner, kn_uop joined) {
    int64_t c = ki_affine_coef(f, inner), up;
    if (c == 0 || ki_mul_overflow(c, ki_extent(inner), &up) || ki_affine_coef(f, outer) != up) return NULL;
    if (hides(k, f, outer, inner)) return NULL;
    const ki_affine *leaf[3] = {ki_affine_leaf(&k->affines, outer), ki_affine_leaf(&k->affines, inner),
                                ki_affine_leaf(&k->affines, joined)};
    for (int i = 0; i < 3 && f; i++)
        f = leaf[i] ? ki_affine_add(&k->affines, f, leaf[i], i == 0 ? -up : i == 1 ? -c : c) : NULL;
    return f ? ki_affine_node(&k->affines, f) : NULL;
}

/* What counts both ranges together says so, so that it is plain in the joined one; the rest divides it. */
kn_uop ki_opt_join(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    const ki_scope *s = &k->scope;
    kn_uop outer = ki_nest_range(k, (uint32_t)o->axis), inner = ki_nest_range(k, (uint32_t)o->arg);
    kn_uop c = ki_nest_closer(k, outer);
    const char *why = !inner || inner == outer        ? "there is no such pair"
                      : c != ki_nest_closer(k, inner) ? "they are not loops of one nest"
                      : outer->arg.range.axis != inner->arg.range.axis || ki_is_lane(outer)
                          ? "they are of different types, or lanes"
                      : outer->arg.range.axis == KN_AX_THREAD           ? "threads are counted apart"
                      : !ki_extent(inner)                               ? "the inner extent is not constant"
                      : ki_extent(outer) > INT32_MAX / ki_extent(inner) ? "the product of their extents is too large"
                      : !may_join(k, c, outer, inner) ? "loops of a sum must follow each other, others be independent"
                                                      : NULL;
    if (why) return ki_fail(ir->env, KI_E_OPT_JOIN, (int)o->axis, (int)o->arg, why), NULL;
    int64_t n = ki_extent(inner);
    kn_uop j =
        ki_range_make(ir, outer->arg.range.id, (kn_axis)outer->arg.range.axis, ki_index(ir, ki_extent(outer) * n));
    ki_swap *swap = ki_malloc((s->n + 2) * sizeof *swap);
    if (!swap || !j) return ki_free(swap), ki_fail(ir->env, KI_E_NOMEM), NULL;
    uint32_t m = 2;
    swap[0] = (ki_swap){outer, ki_op2(ir, KN_IDIV, j, ki_index(ir, n)), {j, NULL}};
    swap[1] = (ki_swap){inner, ki_op2(ir, KN_MOD, j, ki_index(ir, n)), {j, NULL}};
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop sum = k->form[i] && s->node[i]->op != KN_WHERE ? joined_sum(k, k->form[i], outer, inner, j) : NULL;
        if (sum) swap[m++] = (ki_swap){s->node[i], sum, {NULL, NULL}};
    }
    kn_uop result = ki_swap_ranges(k, k->sink, swap, m);
    ki_free(swap);
    return result;
}

/* ---- PADTO ------------------------------------------------------------------------------------------------- */

/* The extent of o->axis becomes the next multiple of o->arg; one known at launch alone, no more than o->arg, becomes that. Every
 * access that depends on the range is made invalid beyond the old extent; a REDUCE over it reduces the identity there. */
kn_uop ki_opt_padto(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    const ki_scope *s = &k->scope;
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis);
    int64_t n = ki_extent(r), padded = n ? (n + o->arg - 1) / o->arg * o->arg : o->arg;
    if (padded == n) return k->sink;
    kn_uop wide = ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, ki_index(ir, padded));
    kn_uop inside = ki_op2(ir, KN_CMPLT, wide, r->src[0]);
    edit e;
    bool ok = edit_open(&e, k) && wide && inside;
    for (uint32_t i = 0; ok && i < s->n; i++) {
        kn_uop u = s->node[i];
        for (uint32_t j = 0; j < u->nsrc; j++) e.src[j] = mapped(&e, u->src[j]);
        if (u == r) {
            e.map[i] = wide;
        } else {
            if (ki_is_access(u) && ki_scope_has(s, u->src[1], r)) {
                kn_uop b = ki_storage(u);
                bool reg = b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_REG;
                if (!reg) e.src[1] = ki_element_if(ir, inside, e.src[1]);
            }
            /* A CUT may have written a sum that two nests share in two ways: both close r. */
            if (u->op == KN_REDUCE && ki_place_in(u, r) < u->nsrc) {
                kn_dtype t = (kn_dtype)u->dtype;
                kn_uop none = ki_const_bits(ir, t, ki_scalar_identity((kn_op)u->arg.reduce.op, t, true));
                e.src[0] = ki_op3(ir, KN_WHERE, inside, e.src[0], none);
            }
            e.map[i] = ki_with_src(ir, u, e.src);
        }
        ok = e.map[i] != NULL;
    }
    return edit_close(&e, ok);
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

/* All that the nest is made of, to `shared`, or, given `seen`, what of it was seen in another nest. */
static bool note_nodes(ki_ir *ir, kn_uop nest, ki_map *seen, ki_map *shared) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &nest, 1, &node);
    for (int64_t i = 0; i < n; i++) ki_map_set(!seen || ki_map_get(seen, node[i]) ? shared : seen, node[i], node[i]);
    if (n >= 0) ki_free(node);
    return n >= 0;
}

static bool is_global(kn_uop access) {
    kn_uop b = ki_is_access(access) ? ki_storage(access) : NULL;
    return b && !(b->op == KN_BUFFER && b->arg.buffer->addrspace != KN_GLOBAL);
}

/* In a nest that runs on thread 0 alone, every access is made invalid on the others. What other nests share stays as it is, but where it is stored to: a
 * copy of what fills a buffer would fill the same one, with nothing, and one of a sum would close the same loops once more. */
static kn_uop only_thread_0(ki_ir *ir, kn_uop nest, kn_uop thread, const ki_map *shared) {
    kn_uop *node, one = ki_op2(ir, KN_CMPLT, thread, ki_index(ir, 1)), result = NULL;
    ki_scope s;
    bool ok = one && ki_scope_open(&s, ir, nest);
    if (!one) return NULL;
    kn_uop *map = ok ? ki_calloc(s.n, sizeof *map) : NULL, *buf = NULL;
    uint32_t most = 0;
    node = s.node;
    for (uint32_t i = 0; ok && i < s.n; i++)
        if (node[i]->nsrc > most) most = node[i]->nsrc;
    buf = ki_calloc(most + 1, sizeof *buf);
    if (ok && (!map || !buf)) ok = (ki_fail(ir->env, KI_E_NOMEM), false);
    for (uint32_t i = 0; ok && i < s.n; i++) {
        kn_uop u = node[i];
        for (uint32_t j = 0; j < u->nsrc; j++) buf[j] = map[s.at[u->src[j]->id]];
        bool keep = ki_map_get(shared, u), read = !keep && is_global(u),
             store = !keep && u->op == KN_STORE && buf[0] == u->src[0] && is_global(buf[0]);
        if (read || store) {
            const kn_uop *of = read ? buf : buf[0]->src;
            const kn_uop src[2] = {of[0], ki_element_if(ir, one, of[1])};
            buf[0] = ki_with_src(ir, read ? u : buf[0], src);
        }
        map[i] = keep ? u : read || (store && !buf[0]) ? buf[0] : ki_with_src(ir, u, buf);
        ok = map[i] != NULL;
    }
    if (ok) result = map[s.n - 1];
    ki_free(map);
    ki_free(buf);
    ki_scope_close(&s);
    return result;
}

/* Does the nest store to memory only in its outermost loop, r? */
static bool stores_in(ki_ir *ir, kn_uop nest, kn_uop r) {
    ki_scope s;
    bool ok = ki_scope_open(&s, ir, nest);
    for (uint32_t i = 0; ok && i < s.n; i++) {
        bool stores = s.node[i]->op == KN_STORE && is_global(s.node[i]->src[0]);
        ok = !stores || ki_scope_has(&s, s.node[i], r);
    }
    ki_scope_close(&s);
    return ok;
}

/* The same of a nest with a loop: its outermost one runs no time on the others. */
static kn_uop no_round_but_0(ki_ir *ir, kn_uop nest, kn_uop thread, const ki_map *shared) {
    kn_uop r = nest->op == KN_END && nest->nsrc > 1 ? nest->src[1] : NULL;
    bool may = r && ki_is_serial(r) && ki_extent(r) && !ki_map_get(shared, r) && stores_in(ir, nest, r);
    if (!may) return only_thread_0(ir, nest, thread, shared);
    kn_uop less = ki_index_add(ir, r->src[0], ki_index_mul(ir, thread, ki_index(ir, -ki_extent(r))));
    kn_uop bound = less ? ki_op2(ir, KN_MAX, less, ki_index(ir, 0)) : NULL;
    kn_uop now = bound ? ki_with_srcs(ir, r, &bound, 1) : NULL;
    return now ? ki_substitute(ir, nest, &r, &now, 1) : NULL;
}

/* The sink with its THREAD range, if it has one, closed by one END around everything: SINK(END(GROUP(nests...), t)). A nest
 * that t does not divide runs on thread 0. A sink with one nest is as it should be. */
kn_uop ki_hoist_threads(ki_nest *k) {
    const ki_scope *s = &k->scope;
    ki_ir *ir = k->ir;
    kn_uop t = NULL, sink = k->sink;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (s->range[r]->arg.range.axis == KN_AX_THREAD) t = s->range[r];
    if (!t || (sink->nsrc == 1 && sink->src[0]->op == KN_END)) return sink;
    kn_uop *nest = ki_calloc(sink->nsrc + 1, sizeof *nest), *loop = NULL;
    ki_map *shared = ki_map_take(ir), *seen = ki_map_take(ir);
    bool ok = nest && shared && seen;
    for (uint32_t i = 0; ok && i < sink->nsrc; i++)
        ok = note_nodes(ir, sink->src[i], ki_place_in(sink->src[i], t) < sink->src[i]->nsrc ? NULL : seen, shared);
    for (uint32_t i = 0; ok && i < sink->nsrc; i++) {
        kn_uop u = sink->src[i];
        uint32_t n = 0;
        bool has = false;
        if (!(loop = ki_calloc(u->nsrc + 1, sizeof *loop))) {
            ok = false;
            break;
        }
        for (uint32_t j = 0; j < u->nsrc; j++) {
            if (u->src[j] == t) has = true;
            else loop[n++] = u->src[j];
        }
        if (has) nest[i] = n == 1 ? loop[0] : ki_with_srcs(ir, u, loop, n);
        else nest[i] = no_round_but_0(ir, u, t, shared);
        ki_free(loop);
        ok = nest[i] != NULL;
    }
    kn_uop all = ok ? ki_op2(ir, KN_END, ki_opn(ir, KN_GROUP, nest, sink->nsrc), t) : NULL;
    ki_free(nest);
    if (shared) ki_map_give(ir, shared);
    if (seen) ki_map_give(ir, seen);
    return all ? ki_with_srcs(ir, sink, &all, 1) : NULL;
}
