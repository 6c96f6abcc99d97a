/* eval_tensor.c: programs of stages tensor and callify. Nodes are evaluated in id order; a node's array lives until its
 * last reader is done. Views, and elementwise nodes with one reader, are lazy: they are computed inside their reader a
 * chunk at a time (eval_tape.c), so a broadcast product under a REDUCE is never held in memory.
 *
 * Invariants: a lazy node has weight at most LAZY, so that every tape fits; an elementwise node read through something
 * that repeats its elements is not lazy. Shapes are scalars known before anything else is computed. */
#include "ir/eval_impl.h"
#include "ir/scalar.h"

#include <string.h>

enum { LAZY = 50, VIEWS = 10 };

bool ki_data_source(kn_uop u, uint32_t k) {
    switch ((kn_op)u->op) {
    case KN_PARAM: return false;
    case KN_RESHAPE:
    case KN_EXPAND:
    case KN_PAD:
    case KN_SHRINK:
    case KN_SLICE: return k == 0;
    default: return true;
    }
}

int64_t ki_tens_dims(const ki_tens *t, kn_uop u, int64_t *dim) {
    const ki_type *y = u->type;
    int64_t n = 1;
    for (unsigned k = 0; k < y->rank; k++) {
        dim[k] = y->dim[k].sym ? (int64_t)t->scalar[ki_at(t, y->dim[k].sym)] : y->dim[k].n;
        n *= dim[k];
    }
    return n;
}

bool ki_tens_scalar(const ki_tens *t, kn_uop u, int64_t *v) {
    uint32_t at = ki_at(t, u);
    *v = (int64_t)t->scalar[at];
    if ((t->flags[at] & KI_T_SCALAR) && !ki_is_float((kn_dtype)u->dtype)) return true;
    return ki_fail(t->env, KI_E_EVAL_INPUT, "the size or offset", ki_ops[u->op].name, u->id), false;
}

bool ki_step(ki_tens *t, uint64_t n) {
    t->steps += n;
    if (!t->budget || t->steps <= t->budget) return true;
    return ki_fail(t->env, KI_E_EVAL_BUDGET, (unsigned long long)t->budget), false;
}

/* ---- functions inside the graph: their bodies with arguments put in --------------------------------------------- */

static kn_uop inline_one(ki_ir *ir, kn_uop f) {
    kn_uop *order, *from = NULL, *to = NULL, body = NULL;
    int64_t count = ki_toposort(ir, &f->src[0], 1, &order), n = 0;
    if (count < 0) return NULL;
    from = ki_malloc((size_t)count * sizeof *from);
    to = ki_malloc((size_t)count * sizeof *to);
    bool ok = from && to;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; ok && i < count; i++) {
        if (order[i]->op != KN_PARAM || order[i]->arg.param->slot < 0) continue;
        uint32_t slot = (uint32_t)order[i]->arg.param->slot + 1;
        if (slot >= f->nsrc) {
            ki_fail(ir->env, KI_E_EVAL_FORM, "function", f->id, "a PARAM slot has no argument");
            ok = false;
        } else {
            from[n] = order[i];
            to[n++] = f->src[slot];
        }
    }
    if (ok) body = ki_substitute(ir, f->src[0], from, to, (size_t)n);
    ki_free(order);
    ki_free(from);
    ki_free(to);
    return body;
}

/* Replaces every FUNCTION below the roots, inner ones first. `whole`: the root FUNCTION of a callified program, kept. */
static bool inline_functions(ki_ir *ir, kn_uop *root, size_t n, kn_uop whole) {
    kn_uop *order, *map = NULL, *src = NULL;
    uint32_t cap = 0;
    int64_t count = ki_toposort(ir, root, n, &order);
    bool any = false, ok = count >= 0;
    for (int64_t i = 0; i < count; i++) any |= order[i]->op == KN_FUNCTION && order[i] != whole;
    if (!any) {
        ki_free(order);
        return ok;
    }
    map = ki_calloc(ir->n, sizeof *map);
    if (!map) ki_fail(ir->env, KI_E_NOMEM), ok = false;
    for (int64_t i = 0; ok && i < count; i++) {
        kn_uop u = order[i];
        if (u->nsrc > cap) {
            kn_uop *p = ki_realloc(src, u->nsrc, sizeof *p);
            if (!p) {
                ki_fail(ir->env, KI_E_NOMEM);
                ok = false;
                break;
            }
            src = p;
            cap = u->nsrc;
        }
        for (uint32_t k = 0; k < u->nsrc; k++) src[k] = map[u->src[k]->id];
        kn_uop v = ki_with_src(ir, u, src);
        if (v && v->op == KN_FUNCTION && u != whole) v = inline_one(ir, v);
        ok = (map[u->id] = v) != NULL;
    }
    for (size_t i = 0; ok && i < n; i++) root[i] = map[root[i]->id];
    ki_free(order);
    ki_free(map);
    ki_free(src);
    return ok;
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

static void take(ki_tens *t, const kn_uop *order, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (t->pos[order[i]->id]) continue;
        t->order[t->count++] = order[i];
        t->pos[order[i]->id] = (uint32_t)t->count;
    }
}

/* Appends what the roots reach and is not there yet; symbols of shapes first. */
static bool append(ki_tens *t, const kn_uop *root, size_t n) {
    kn_uop *order, *part;
    int64_t count = ki_toposort(t->ir, root, n, &order);
    bool ok = count >= 0;
    for (int64_t i = 0; ok && i < count; i++) {
        const ki_type *y = order[i]->type;
        for (unsigned k = 0; y->symbolic && k < y->rank && ok; k++) {
            if (!y->dim[k].sym || t->pos[y->dim[k].sym->id]) continue;
            int64_t m = ki_toposort(t->ir, &y->dim[k].sym, 1, &part);
            if ((ok = m >= 0)) take(t, part, m);
            ki_free(part);
        }
    }
    if (ok) take(t, order, count);
    ki_free(order);
    return ok;
}

static bool side_arrays(ki_tens *t) {
    size_t n = (size_t)t->count + 1;
    t->arr = ki_calloc(n, sizeof *t->arr);
    t->full = ki_calloc(n, sizeof *t->full);
    t->patch = ki_calloc(n, sizeof *t->patch);
    t->alias = ki_calloc(n, sizeof *t->alias);
    t->uses = ki_calloc(n, sizeof *t->uses);
    t->flags = ki_calloc(n, 1);
    t->weight = ki_calloc(n, 1);
    t->scalar = ki_calloc(n, sizeof *t->scalar);
    t->tape = ki_tape_new();
    if (t->arr && t->full && t->patch && t->alias && t->uses && t->flags && t->weight && t->scalar && t->tape)
        return true;
    return ki_fail(t->env, KI_E_NOMEM), false;
}

static void close_tens(ki_tens *t) {
    for (int64_t i = 0; i < t->count; i++) {
        if (t->arr) ki_arr_drop(t->arr[i]);
        if (t->full) ki_arr_drop(t->full[i]);
        if (t->patch) ki_patch_free(t->patch[i]);
    }
    ki_free(t->order);
    ki_free(t->pos);
    ki_free(t->arr);
    ki_free(t->full);
    ki_free(t->patch);
    ki_free(t->alias);
    ki_free(t->uses);
    ki_free(t->flags);
    ki_free(t->weight);
    ki_free(t->scalar);
    ki_tape_free(t->tape);
}

/* ---- plan: scalars, readers, lazy nodes ---------------------------------------------------------------------------- */

/* A () integer made of constants and variables alone. */
static bool fold_scalar(ki_tens *t, kn_uop u) {
    uint32_t at = ki_at(t, u);
    uint64_t v[3] = {0};
    kn_dtype in[3] = {KN_VOID, KN_VOID, KN_VOID};
    if (u->op == KN_CONST) {
        t->scalar[at] = u->arg.bits;
        t->flags[at] |= KI_T_SCALAR;
        return true;
    }
    if (u->type->rank || ki_is_float((kn_dtype)u->dtype) || !ki_is_elementwise((kn_op)u->op)) return true;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t s = ki_at(t, u->src[k]);
        if (!(t->flags[s] & KI_T_SCALAR) || ki_is_float((kn_dtype)u->src[k]->dtype)) return true;
        v[k] = t->scalar[s];
        in[k] = (kn_dtype)u->src[k]->dtype;
    }
    if (!ki_scalar((kn_op)u->op, (kn_dtype)u->dtype, in, v, &t->scalar[at]))
        return ki_fail(t->env, KI_E_EVAL_OVERFLOW, ki_ops[u->op].name, u->id), false;
    t->flags[at] |= KI_T_SCALAR;
    return true;
}

static void count_uses(ki_tens *t) {
    for (int64_t i = t->count; i-- > 0;) {
        kn_uop u = t->order[i];
        if (!t->uses[i]) continue;
        if (t->alias[i]) {
            uint32_t a = ki_at(t, t->alias[i]);
            t->uses[a]++;
            t->flags[a] |= KI_T_NEED;
        }
        bool elementwise = ki_is_elementwise((kn_op)u->op);
        for (uint32_t k = 0; k < u->nsrc; k++) {
            if (!ki_data_source(u, k)) continue;
            uint32_t s = ki_at(t, u->src[k]);
            t->uses[s]++;
            if (u->op == KN_EXPAND || (elementwise && u->src[k]->type != u->type && !ki_same_shape(u, u->src[k])))
                t->flags[s] |= KI_T_DUP;
            if (u->op == KN_INDEX || u->op == KN_SLICE || u->op == KN_GETTUPLE || u->op == KN_TUPLE ||
                (u->op == KN_STORE && k == 2) ||
                (u->op == KN_BITCAST && ki_itemsize((kn_dtype)u->dtype) != ki_itemsize((kn_dtype)u->src[0]->dtype)))
                t->flags[s] |= KI_T_NEED;
        }
    }
}

static bool by_element(kn_uop u) {
    if (u->op == KN_BITCAST) return ki_itemsize((kn_dtype)u->dtype) == ki_itemsize((kn_dtype)u->src[0]->dtype);
    return ki_is_view((kn_op)u->op) || ki_is_elementwise((kn_op)u->op);
}

static void choose_lazy(ki_tens *t, uint32_t at) {
    kn_uop u = t->order[at];
    int64_t dim[KI_MAX_RANK];
    t->weight[at] = 1;
    if (u->op == KN_TUPLE) t->flags[at] |= KI_T_LAZY; /* keeps its elements as long as it has readers */
    if ((t->flags[at] & KI_T_SCALAR) || !by_element(u) || ki_tens_dims(t, u, dim) == 0) return;
    bool view = ki_is_view((kn_op)u->op), pure = view;
    unsigned w = view ? 2 : 1;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        if (!ki_data_source(u, k)) continue;
        uint32_t s = ki_at(t, u->src[k]);
        w += t->weight[s] + 1u;
        if ((t->flags[s] & KI_T_LAZY) && !(t->flags[s] & KI_T_PURE)) pure = false;
    }
    bool once = t->uses[at] == 1, dup = t->flags[at] & KI_T_DUP;
    if (pure) t->flags[at] |= KI_T_PURE;
    if ((t->flags[at] & KI_T_NEED) || w > LAZY) return;
    if (pure ? !once && w > VIEWS : !once || dup) return;
    t->flags[at] |= KI_T_LAZY;
    t->weight[at] = (uint8_t)w;
}

/* ---- inputs -------------------------------------------------------------------------------------------------------- */

/* Copies between the layout of a port (upper bounds) and a dense array (sizes now). in: from the port. */
static void relayout(const ki_tens *t, kn_uop u, ki_arr *a, void *port, bool in, double *err) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim);
    size_t size = ki_itemsize((kn_dtype)u->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (unsigned k = u->type->rank; k-- > 0;) {
            at += rest % dim[k] * stride;
            rest /= dim[k];
            stride *= u->type->dim[k].n;
        }
        char *p = (char *)port + (size_t)at * size, *q = (char *)a->data + (size_t)i * size;
        in ? memcpy(q, p, size) : memcpy(p, q, size);
        if (err) err[at] = a->err ? a->err[i] : 0;
    }
}

static bool bind_variable(ki_tens *t, kn_uop u, const void *data) {
    const ki_param *p = u->arg.param;
    uint64_t v = ki_storage_get((kn_dtype)u->dtype, data, 0);
    t->scalar[ki_at(t, u)] = v;
    t->flags[ki_at(t, u)] |= KI_T_SCALAR;
    if (!p->bounded || ((int64_t)v >= p->lo && (int64_t)v <= p->hi)) return true;
    return ki_fail(t->env, KI_E_EVAL_VARIABLE, p->name, (long long)v, (long long)p->lo, (long long)p->hi), false;
}

static bool is_variable(kn_uop u) { return ki_is_variable(u) && !ki_is_float((kn_dtype)u->dtype); }

static bool bind_input(ki_tens *t, kn_uop u, const void *data) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim);
    uint32_t at = ki_at(t, u);
    ki_arr *a = u->type->symbolic ? ki_arr_make(t->env, (kn_dtype)u->dtype, n) : ki_calloc(1, sizeof *a);
    if (!a) return ki_fail(t->env, KI_E_NOMEM), false;
    if (u->type->symbolic) {
        relayout(t, u, a, (void *)(uintptr_t)data, true, NULL);
    } else {
        *a = (ki_arr){.refs = 1, .dtype = u->dtype, .borrowed = true, .n = n, .data = (void *)(uintptr_t)data};
    }
    t->arr[at] = a;
    t->uses[at]++; /* a base of stores: lives to the end */
    return true;
}

static bool sizes_known(const ki_tens *t, kn_uop u) {
    int64_t v;
    for (unsigned k = 0; u->type->symbolic && k < u->type->rank; k++) {
        kn_uop s = u->type->dim[k].sym;
        if (!s) continue;
        if (!ki_tens_scalar(t, s, &v)) return false;
        if (v < 0 || v > u->type->dim[k].n)
            return ki_fail(t->env, KI_E_EVAL_BOUNDS, "size", u->id, (long long)v, (long long)u->type->dim[k].n), false;
    }
    return true;
}

static bool bind_inputs(ki_tens *t, const ki_program *p, const kn_uop *node, const void *const *in) {
    for (size_t i = 0; i < p->nin; i++)
        if (t->pos[node[i]->id] && is_variable(node[i]) && !bind_variable(t, node[i], in[i])) return false;
    for (int64_t i = 0; i < t->count; i++)
        if (!fold_scalar(t, t->order[i]) || !sizes_known(t, t->order[i])) return false;
    for (size_t i = 0; i < p->nin; i++) {
        kn_uop u = node[i];
        if (t->pos[u->id] && !is_variable(u) && !t->arr[ki_at(t, u)] && !bind_input(t, u, in[i])) return false;
    }
    return true;
}

/* ---- evaluation ------------------------------------------------------------------------------------------------------ */

static ki_arr *share(ki_arr *a) {
    if (a) a->refs++;
    return a;
}
ki_arr *ki_tens_array(ki_tens *t, kn_uop u) { /* also of a scalar */
    uint32_t at = ki_at(t, u);
    return t->arr[at] ? share(t->arr[at]) : ki_tape_array(t, u);
}

static ki_arr *leaf_array(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK];
    if (u->op == KN_PARAM) {
        kn_uop a = t->alias[ki_at(t, u)];
        if (a) return ki_tens_array(t, a);
        ki_fail(t->env, KI_E_EVAL_INPUT, "param", u->arg.param->len ? u->arg.param->name : "(no name)", u->id);
        return NULL;
    }
    ki_arr *a = ki_arr_make(t->env, (kn_dtype)u->dtype, ki_tens_dims(t, u, dim));
    if (a && u->op == KN_BINARY && a->n) memcpy(a->data, u->arg.str->s, (size_t)a->n);
    return a;
}

/* LOAD(x, alt?, gate?) of values. */
static ki_arr *load_array(ki_tens *t, kn_uop u) {
    if (u->nsrc == 1) return ki_tens_array(t, u->src[0]);
    ki_fail(t->env, KI_E_EVAL_OP, "load with a gate", u->id, "tensor");
    return NULL;
}

static ki_arr *tuple_element(ki_tens *t, kn_uop u) {
    kn_uop s = u->src[0];
    if (s->op != KN_TUPLE) {
        ki_fail(t->env, KI_E_EVAL_FORM, "gettuple", u->id, "its source is no tuple");
        return NULL;
    }
    return ki_tens_array(t, s->src[u->arg.i]);
}

static bool evaluate(ki_tens *t, kn_uop u) {
    uint32_t at = ki_at(t, u);
    int64_t dim[KI_MAX_RANK];
    switch ((kn_op)u->op) {
    case KN_STORE: return ki_node_store(t, u);
    case KN_SINK:
    case KN_GROUP:
    case KN_FUNCTION:
    case KN_NOOP: return true;
    case KN_AFTER: return (t->arr[at] = ki_node_after(t, u)) != NULL;
    case KN_PARAM:
    case KN_BUFFER:
    case KN_BINARY: return (t->arr[at] = leaf_array(t, u)) != NULL;
    case KN_REDUCE: return (t->arr[at] = ki_node_reduce(t, u)) != NULL;
    default: break;
    }
    if (by_element(u) || u->op == KN_CONST || ki_tens_dims(t, u, dim) == 0) t->arr[at] = ki_tape_array(t, u);
    else if (u->op == KN_INDEX) t->arr[at] = ki_node_index(t, u);
    else if (u->op == KN_STACK) t->arr[at] = ki_node_stack(t, u);
    else if (u->op == KN_SLICE) t->arr[at] = ki_node_slice(t, u);
    else if (u->op == KN_BITCAST) t->arr[at] = ki_node_bitcast(t, u);
    else if (u->op == KN_LOAD) t->arr[at] = load_array(t, u);
    else if (u->op == KN_GETTUPLE) t->arr[at] = tuple_element(t, u);
    else ki_fail(t->env, KI_E_EVAL_OP, ki_ops[u->op].name, u->id, "tensor");
    return t->arr[at] != NULL;
}

/* u is done: its sources lose a reader; a lazy one without readers is done too. Buffers and what a STORE may start from
 * stay. `work` has room for every node. */
static void release(ki_tens *t, kn_uop u, kn_uop *work) {
    size_t n = 0;
    work[n++] = u;
    while (n) {
        kn_uop v = work[--n];
        for (uint32_t k = 0; k < v->nsrc; k++) {
            if (!ki_data_source(v, k)) continue;
            uint32_t s = ki_at(t, v->src[k]);
            if (t->uses[s] == 0 || --t->uses[s]) continue;
            if (t->flags[s] & KI_T_LAZY) {
                work[n++] = v->src[k];
            } else if (v->src[k]->op != KN_BUFFER && v->src[k]->op != KN_PARAM && !t->full[s]) {
                ki_arr_drop(t->arr[s]);
                t->arr[s] = NULL;
            }
        }
    }
}

static bool evaluate_all(ki_tens *t) {
    kn_uop *work = ki_malloc((size_t)(t->count + 1) * sizeof *work);
    if (!work) return ki_fail(t->env, KI_E_NOMEM), false;
    bool ok = true;
    for (int64_t i = 0; ok && i < t->count; i++) {
        kn_uop u = t->order[i];
        if (!t->uses[i] || (t->flags[i] & KI_T_SCALAR)) continue;
        choose_lazy(t, (uint32_t)i);
        if ((t->flags[i] & KI_T_LAZY) || t->arr[i]) continue;
        ok = evaluate(t, u);
        if (ok) release(t, u, work);
    }
    ki_free(work);
    return ok;
}

/* A GETTUPLE of a tuple or of the root FUNCTION names the element itself. */
static kn_uop element_of(kn_uop u) {
    while (u->op == KN_GETTUPLE) {
        kn_uop s = u->src[0]->op == KN_FUNCTION ? u->src[0]->src[0] : u->src[0];
        if (s->op != KN_TUPLE) break;
        u = s->src[u->arg.i];
    }
    return u;
}

static bool write_output(ki_tens *t, kn_uop u, void *out, double *bound) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim);
    kn_uop base = u->op == KN_BUFFER ? u : NULL; /* a port that is memory; a PARAM is the value it had before */
    ki_arr *a = base && t->full[ki_at(t, base)] ? share(t->full[ki_at(t, base)]) : ki_tens_array(t, u);
    if (!a) return false;
    if (u->type->symbolic) {
        relayout(t, u, a, out, false, bound);
    } else if (n) {
        memcpy(out, a->data, (size_t)n * ki_itemsize((kn_dtype)u->dtype));
        for (int64_t i = 0; bound && i < n; i++) bound[i] = a->err ? a->err[i] : 0;
    }
    ki_arr_drop(a);
    return true;
}

static bool set_up(ki_tens *t, const ki_program *p, kn_uop *node, kn_uop root) {
    bool whole = root->op == KN_FUNCTION;
    t->order = ki_malloc((size_t)(t->ir->n + 1) * sizeof *t->order);
    t->pos = ki_calloc((size_t)t->ir->n + 1, sizeof *t->pos);
    if (!t->order || !t->pos) return ki_fail(t->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < p->nout; i++) node[p->nin + i] = element_of(node[p->nin + i]);
    /* Arguments before the body, whose PARAMs stand for them. */
    if (whole && !append(t, root->src + 1, root->nsrc - 1)) return false;
    kn_uop body = whole ? root->src[0] : root;
    if (!append(t, &body, 1) || !append(t, node + p->nin, p->nout) || !side_arrays(t)) return false;
    for (int64_t i = 0; whole && i < t->count; i++) {
        kn_uop u = t->order[i];
        if (u->op != KN_PARAM || u->arg.param->slot < 0) continue;
        if ((uint32_t)u->arg.param->slot + 1 >= root->nsrc)
            return ki_fail(t->env, KI_E_EVAL_FORM, "function", root->id, "a PARAM slot has no argument"), false;
        t->alias[i] = root->src[u->arg.param->slot + 1];
    }
    t->uses[ki_at(t, body)]++;
    for (size_t i = 0; i < p->nout; i++) {
        t->uses[ki_at(t, node[p->nin + i])]++;
        t->flags[ki_at(t, node[p->nin + i])] |= KI_T_NEED;
    }
    return true;
}

int ki_eval_tensor(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o) {
    ki_env *env = p->ir->env;
    ki_tens t = {.ir = p->ir, .env = env, .bounds = o && o->bound, .budget = o ? o->budget : 0};
    ki_mark mark = ki_ir_mark(p->ir);
    size_t n = p->nin + p->nout + 1;
    kn_uop *node = ki_malloc(n * sizeof *node);
    if (!node) return ki_fail(env, KI_E_NOMEM);
    for (size_t i = 0; i < p->nin; i++) node[i] = p->in[i].node;
    for (size_t i = 0; i < p->nout; i++) node[p->nin + i] = p->out[i].node;
    node[n - 1] = p->root;
    bool ok = inline_functions(p->ir, node, n, p->root->op == KN_FUNCTION ? p->root : NULL);
    ok = ok && ki_ins_expand(p->ir, node, n) && set_up(&t, p, node, node[n - 1]) && bind_inputs(&t, p, node, in);
    if (ok) {
        count_uses(&t);
        ok = evaluate_all(&t);
    }
    for (size_t i = 0; ok && i < p->nout; i++)
        ok = write_output(&t, node[p->nin + i], out[i], t.bounds ? o->bound[i] : NULL);
    close_tens(&t);
    ki_free(node);
    ki_ir_drop(p->ir, mark);
    return ok ? KI_OK : env->status ? env->status : KI_INTERNAL;
}
