/* fetch.c: elements of tensors to host memory.
 *
 * A value of symbolic shape lies in memory laid out at the upper bounds, under a SHRINK; its elements are gathered at the
 * bounds that the variables have now. */
#define KN_NO_LOC
#include "run/run.h"

#include "ir/scalar.h"

#include <math.h>
#include <string.h>

#include <koine/tensor.h>

/* The part of `u` that lies in a buffer as it is: u itself, or what its symbolic SHRINK from the origin cuts. */
static kn_uop laid_out(kn_uop u) {
    if (!u->type->symbolic || u->op != KN_SHRINK || u->src[0]->type->symbolic) return u;
    for (unsigned a = 0; a < u->type->rank; a++)
        if (!ki_is_const_int(u->src[1]->src[a], 0)) return u;
    return u->src[0];
}

/* Realises t; the storage of its buffer, NULL on failure. *at: t's value as it lies there. */
static ki_storage *realized(kn_tensor t, const char *fn, kn_uop *at) {
    kn_ctx *k = t->k;
    if (!ki_usable(t, fn)) return NULL;
    kn_uop place = NULL, b = t->u->type->symbolic ? ki_buffer_under(*at = laid_out(t->u)) : NULL;
    if (!b) {
        if (!ki_realize(k, &t, 1, &place, NULL)) return NULL;
        b = ki_buffer_under(*at = laid_out(place ? place : t->u));
    }
    if (b) return ki_storage_of(k, b);
    ki_fail(&k->env, KI_E_INTERNAL, "a realised tensor has no buffer");
    return NULL;
}

/* The size of an axis with the variables' present values. */
static bool size_now(kn_ctx *k, unsigned axis, kn_uop sym, int64_t *n) {
    kn_uop *order, *var = NULL;
    int64_t *value = NULL;
    size_t m = 0;
    int64_t count = ki_toposort(&k->ir, &sym, 1, &order);
    bool ok = count >= 0 && (var = ki_calloc((size_t)count, sizeof *var)) &&
              (value = ki_calloc((size_t)count, sizeof *value));
    if (!ok) ki_fail(&k->env, KI_E_NOMEM);
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop v = order[i];
        if (!ki_is_variable(v)) continue;
        var[m] = v;
        ok = ki_variable_now(k, v->arg.param->name, v->lo.i, v->hi.i, &value[m++]);
    }
    if (ok) *n = ki_eval_index(&k->ir, sym, var, value, m, &ok);
    if (!ok) ki_fail(&k->env, KI_E_SIZE_OF_DATA, axis); /* unless the reason has been said */
    ki_free(order);
    ki_free(var);
    ki_free(value);
    return ok;
}

/* The same of all axes, and how many elements that makes. */
static bool shape_now(kn_ctx *k, const ki_type *t, int64_t *dim, size_t *numel) {
    *numel = 1;
    for (unsigned a = 0; a < t->rank; a++) {
        const ki_dim *d = &t->dim[a];
        dim[a] = d->n;
        if (d->sym && !size_now(k, a, d->sym, &dim[a])) return false;
        if (dim[a] < 0 || dim[a] > d->n) return ki_fail(&k->env, KI_E_SIZE_NOW, a, dim[a], d->n), false;
        *numel *= (size_t)dim[a];
    }
    return true;
}

static bool copy_out(const ki_storage *s, size_t offset, void *to, size_t bytes) {
    const char *from = (const char *)s->data + offset;
    if (!bytes) return true;
    if (s->device && !s->borrowed) return s->device->is->copy(s->device, KI_COPY_OUT, to, from, bytes);
    memcpy(to, from, bytes);
    return true;
}

/* Row by row of the last axis. */
static bool copy_part(const ki_storage *s, kn_uop all, const int64_t *dim, void *to, size_t item) {
    unsigned rank = all->type->rank;
    int64_t at[KI_MAX_RANK] = {0}, rows = 1;
    for (unsigned a = 0; a < rank; a++) rows *= a + 1 < rank || dim[a] == 0 ? dim[a] : 1;
    size_t run = (rank ? (size_t)dim[rank - 1] : 1) * item;
    for (int64_t r = 0; r < rows; r++) {
        size_t offset = 0;
        for (unsigned a = 0; a < rank; a++) offset = offset * (size_t)all->type->dim[a].n + (size_t)at[a];
        if (!copy_out(s, offset * item, (char *)to + (size_t)r * run, run)) return false;
        for (unsigned a = rank - 1; a-- > 0 && ++at[a] == dim[a];) at[a] = 0;
    }
    return true;
}

/* ---- public ---------------------------------------------------------------------------------------------------- */

kn_status kn_to_host(kn_tensor t, void *to, size_t bytes) {
    if (!t) return KN_BAD_ARGUMENT;
    kn_ctx *k = t->k;
    int64_t dim[KI_MAX_RANK];
    ki_settle_failure(k);
    kn_uop at = NULL;
    ki_storage *s = realized(t, "to_host", &at);
    size_t item = s ? ki_itemsize((kn_dtype)t->u->dtype) : 0, numel;
    bool ok = s && shape_now(k, t->u->type, dim, &numel);
    if (ok && numel * item != bytes) ki_fail(&k->env, KI_E_HOST_SIZE, numel * item, bytes), ok = false;
    ok = ok && (!bytes || ki_given(k, "to_host", "to", to));
    if (ok && t->u->type->symbolic) copy_part(s, at, dim, to, item);
    else if (ok) copy_out(s, 0, to, bytes);
    return (kn_status)ki_settle_failure(k);
}

const void *kn_data(kn_tensor t) {
    if (!t) return NULL;
    kn_ctx *k = t->k;
    ki_settle_failure(k);
    ki_storage *s = NULL;
    kn_uop at;
    if (ki_usable(t, "data") && t->u->type->symbolic) ki_fail(&k->env, KI_E_SYMBOLIC_DATA_PLACE);
    else s = realized(t, "data", &at);
    const void *data = s ? s->data : NULL; /* every device so far computes in host memory */
    ki_settle_failure(k);
    return data;
}

double kn_item(kn_tensor t) {
    if (!t) return NAN;
    kn_ctx *k = t->k;
    uint64_t bits = 0;
    double v = NAN;
    ki_settle_failure(k);
    if (ki_usable(t, "item") && ki_numel(t->u) != 1) {
        ki_fail(&k->env, KI_E_NOT_ONE_ELEMENT, (long long)ki_numel(t->u));
    } else {
        kn_uop at;
        int64_t dim[KI_MAX_RANK];
        size_t numel;
        ki_storage *s = realized(t, "item", &at);
        kn_dtype dt = s ? (kn_dtype)t->u->dtype : KN_VOID;
        bool ok = s && shape_now(k, t->u->type, dim, &numel);
        if (ok && numel != 1) ki_fail(&k->env, KI_E_NOT_ONE_ELEMENT, (long long)numel);
        else if (ok && copy_out(s, 0, &bits, ki_itemsize(dt))) v = ki_f64_from_bits(dt, ki_storage_get(dt, &bits, 0));
    }
    ki_settle_failure(k);
    return v;
}
