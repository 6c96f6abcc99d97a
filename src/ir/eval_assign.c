/* eval_assign.c: STORE and AFTER in a tensor graph. A buffer's contents are values here: BUFFER is what it held before,
 * AFTER(buffer, stores) is a copy with the stores applied, so the result does not depend on the order of evaluation.
 * full[BUFFER] gathers all stores in the order of ids, and again in that of the AFTERs, as one STORE may stand behind several; it is what the
 * buffer holds when the program has run. */
#include "ir/eval_impl.h"
#include "ir/scalar.h"

#include <stdlib.h>
#include <string.h>

void ki_patch_free(ki_patch *p) {
    if (!p) return;
    ki_free(p->at);
    ki_arr_drop(p->val);
    ki_free(p);
}

/* One step towards the base; NULL there. */
static kn_uop below(const ki_tens *t, kn_uop u) {
    if (u->op == KN_PARAM) return t->alias[ki_at(t, u)];
    if (u->op == KN_BUFFER) return NULL;
    if (ki_is_view((kn_op)u->op) || u->op == KN_AFTER || u->op == KN_INDEX) return u->src[0];
    return NULL;
}
kn_uop ki_base_of(const ki_tens *t, kn_uop u) {
    for (kn_uop v; (v = below(t, u)) != NULL;) u = v;
    return u->op == KN_PARAM || u->op == KN_BUFFER ? u : NULL;
}

/* Contents the view u sees: those of the youngest AFTER on its way, else of the base. */
static ki_arr *version_of(const ki_tens *t, kn_uop u) {
    for (kn_uop v = u; v; v = below(t, v)) {
        if (v->op == KN_AFTER && t->full[ki_at(t, v)]) return t->full[ki_at(t, v)];
        u = v;
    }
    return t->arr[ki_at(t, u)];
}

/* Linear index in the base of each element of the view u. */
static bool base_map(ki_tens *t, kn_uop u, int64_t n, int64_t *at) {
    int64_t in[KI_MAX_RANK], out[KI_MAX_RANK], off[KI_MAX_RANK];
    for (int64_t i = 0; i < n; i++) at[i] = i;
    for (kn_uop v; (v = below(t, u)) != NULL; u = v) {
        if (u->op == KN_INDEX) {
            if (!ki_node_index_map(t, u, at, 0, (size_t)n, at, NULL)) return false;
        } else if (ki_is_view((kn_op)u->op)) {
            ki_view w;
            if (u->op == KN_PAD) {
                ki_fail(t->env, KI_E_EVAL_OP, "store to a pad", u->id, "tensor");
                return false;
            }
            ki_tens_dims(t, u->src[0], in);
            ki_tens_dims(t, u, out);
            for (unsigned k = 0; u->op == KN_SHRINK && k < u->type->rank; k++)
                if (!ki_tens_scalar(t, u->src[1]->src[k], &off[k])) return false;
            ki_view_make(&w, u, in, out, off);
            if (!w.identity) ki_view_map(&w, at, 0, (size_t)n, at, NULL);
        }
    }
    return true;
}

static ki_arr *copy_of(ki_tens *t, const ki_arr *a) {
    ki_arr *c = ki_arr_make(t->env, (kn_dtype)a->dtype, a->n);
    if (!c) return NULL;
    memcpy(c->data, a->data, (size_t)a->n * ki_itemsize((kn_dtype)a->dtype));
    if (a->err && !ki_arr_put_err(t->env, c, 0, (size_t)a->n, a->err, 1)) {
        ki_arr_drop(c);
        return NULL;
    }
    return c;
}

static bool patch_apply(ki_tens *t, const ki_patch *p, ki_arr *to) {
    for (int64_t i = 0; i < p->n; i++) {
        if (p->at[i] < 0) continue;
        if (p->at[i] >= to->n) {
            ki_fail(t->env, KI_E_EVAL_BOUNDS, "store", 0u, (long long)p->at[i], (long long)to->n);
            return false;
        }
        ki_storage_put((kn_dtype)to->dtype, to->data, p->at[i], ki_storage_get((kn_dtype)to->dtype, p->val->data, i));
        double e = p->val->err ? p->val->err[i] : 0;
        if ((e != 0 || to->err) && !ki_arr_put_err(t->env, to, p->at[i], 1, &e, 0)) return false;
        if (e == 0 && to->err) to->err[p->at[i]] = 0;
    }
    return ki_step(t, (uint64_t)p->n);
}

/* Values of src 1 in the target's shape (size-1 axes broadcast). */
static ki_arr *stored_values(ki_tens *t, kn_uop u, int64_t n) {
    int64_t target[KI_MAX_RANK], own[KI_MAX_RANK], at[KI_CHUNK];
    kn_uop v = u->src[1];
    ki_arr *a = ki_arr_make(t->env, (kn_dtype)v->dtype, n);
    ki_view w = {.identity = true};
    ki_tens_dims(t, u->src[0], target);
    if (ki_tens_dims(t, v, own) != n) ki_view_broadcast(&w, v->type->rank, own, target);
    bool ok = a && (n == 0 || ki_tape_build(t, v));
    for (int64_t s = 0; ok && s < n; s += KI_CHUNK) {
        size_t m = n - s < KI_CHUNK ? (size_t)(n - s) : KI_CHUNK;
        const uint64_t *val;
        const double *err;
        unsigned stride;
        if (!w.identity) v->type->rank ? ki_view_map(&w, NULL, s, m, at, NULL) : (void)memset(at, 0, sizeof at);
        ok = ki_tape_run(t, w.identity ? NULL : at, s, m, &val, &err, &stride);
        if (!ok) break;
        ki_arr_put(a, s, m, val, stride);
        if (t->bounds) ok = ki_arr_put_err(t->env, a, s, m, err, stride);
    }
    if (ok) return a;
    ki_arr_drop(a);
    return NULL;
}

static bool gate_open(const ki_tens *t, kn_uop g, int64_t i) {
    uint32_t at = ki_at(t, g);
    if (t->flags[at] & KI_T_SCALAR) return t->scalar[at] != 0;
    return ki_storage_get(KN_BOOL, t->arr[at]->data, t->arr[at]->n == 1 ? 0 : i) != 0;
}

bool ki_node_store(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u->src[0], dim);
    kn_uop base = ki_base_of(t, u->src[0]);
    if (!base) return ki_fail(t->env, KI_E_EVAL_OP, "store to a value", u->id, "tensor"), false;
    uint32_t b = ki_at(t, base);
    ki_patch *p = ki_calloc(1, sizeof *p);
    if (!p || !(p->at = ki_malloc((size_t)(n ? n : 1) * sizeof *p->at))) {
        ki_free(p);
        return ki_fail(t->env, KI_E_NOMEM), false;
    }
    t->patch[ki_at(t, u)] = p;
    p->n = n;
    if (!base_map(t, u->src[0], n, p->at) || !(p->val = stored_values(t, u, n))) return false;
    if (u->nsrc > 2 && ki_tens_dims(t, u->src[2], dim) != 1 && ki_tens_dims(t, u->src[2], dim) != n)
        return ki_fail(t->env, KI_E_EVAL_FORM, "store", u->id, "its gate has another shape"), false;
    for (int64_t i = 0; u->nsrc > 2 && i < n; i++)
        if (!gate_open(t, u->src[2], i)) p->at[i] = -1;
    if (!t->full[b] && !(t->full[b] = copy_of(t, t->arr[b]))) return false;
    return patch_apply(t, p, t->full[b]);
}

/* ---- after ---------------------------------------------------------------------------------------------------- */

typedef struct list {
    kn_uop *v;
    size_t n, cap;
} list;
static bool push(ki_tens *t, list *l, kn_uop u) {
    if (!ki_array_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v)) return ki_fail(t->env, KI_E_NOMEM), false;
    l->v[l->n++] = u;
    return true;
}
static int by_id(const void *a, const void *b) {
    uint32_t x = (*(const kn_uop *)a)->id, y = (*(const kn_uop *)b)->id;
    return (x > y) - (x < y);
}

/* The STOREs to `base` among the dependencies of u, in order. */
static bool stores_of(ki_tens *t, kn_uop u, kn_uop base, list *out) {
    list work = {0};
    bool ok = true;
    for (uint32_t k = 1; k < u->nsrc && ok; k++) ok = push(t, &work, u->src[k]);
    while (ok && work.n) {
        kn_uop d = work.v[--work.n];
        if (d->op == KN_STORE && ki_base_of(t, d->src[0]) == base) ok = push(t, out, d);
        if (d->op == KN_GROUP || d->op == KN_SINK || d->op == KN_NOOP || d->op == KN_END)
            for (uint32_t k = 0; k < d->nsrc && ok; k++) ok = push(t, &work, d->src[k]);
    }
    ki_free(work.v);
    if (ok && out->n) qsort(out->v, out->n, sizeof *out->v, by_id);
    return ok;
}

/* The view u->src[0] on the new contents. */
static ki_arr *view_on(ki_tens *t, kn_uop u, ki_arr *full) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim);
    ki_arr *out = ki_arr_make(t->env, (kn_dtype)u->dtype, n);
    int64_t *at = out ? ki_malloc((size_t)(n ? n : 1) * sizeof *at) : NULL;
    bool ok = at && base_map(t, u->src[0], n, at);
    if (out && !at) ki_fail(t->env, KI_E_NOMEM);
    for (int64_t i = 0; ok && i < n; i++) {
        ki_storage_put((kn_dtype)u->dtype, out->data, i, ki_storage_get((kn_dtype)u->dtype, full->data, at[i]));
        if (full->err) ok = ki_arr_put_err(t->env, out, i, 1, &full->err[at[i]], 0);
    }
    ki_free(at);
    if (ok) return out;
    ki_arr_drop(out);
    return NULL;
}

ki_arr *ki_node_after(ki_tens *t, kn_uop u) {
    kn_uop base = ki_base_of(t, u->src[0]);
    list stores = {0};
    if (!base) return ki_tape_array(t, u->src[0]);
    bool ok = stores_of(t, u, base, &stores);
    if (ok && !stores.n) {
        ki_free(stores.v);
        return ki_tape_array(t, u->src[0]);
    }
    ki_arr *full = ok ? copy_of(t, version_of(t, u->src[0])) : NULL;
    for (size_t i = 0; full && ok && i < stores.n; i++) {
        const ki_patch *p = t->patch[ki_at(t, stores.v[i])];
        ok = patch_apply(t, p, full) && patch_apply(t, p, t->full[ki_at(t, base)]);
    }
    ki_free(stores.v);
    if (!full) return NULL;
    t->full[ki_at(t, u)] = full;
    return ok ? view_on(t, u, full) : NULL;
}
