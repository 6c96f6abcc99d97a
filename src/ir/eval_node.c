/* eval_node.c: tensor nodes that are more than a map of elements: REDUCE, INDEX, STACK, SLICE, BITCAST across sizes. */
#include "ir/eval_impl.h"
#include "ir/scalar.h"

#include <math.h>
#include <string.h>

/* ---- reduce --------------------------------------------------------------------------------------------------- */

/* An accumulator. Floats are summed in double and rounded once, which no tree beats; their bound covers every tree. */
typedef struct acc {
    kn_op op;
    kn_dtype t;
    bool is_float, over;
    double f;
    uint64_t i;
    ki_bound_acc b;
} acc;

static void acc_start(acc *a, kn_op op, kn_dtype t, bool bounds, double each) {
    a->op = op;
    a->t = t;
    a->is_float = ki_is_float(t);
    a->over = false;
    a->i = ki_scalar_identity(op, t, true);
    a->f = a->is_float ? op == KN_MAX ? -INFINITY : ki_f64_from_bits(t, a->i) : 0;
    if (bounds) ki_bound_acc_start(&a->b, op, t, each);
}

static void acc_int(acc *a, uint64_t v) {
    uint64_t in[2] = {a->i, v}, r;
    kn_dtype t[2] = {a->t, a->t};
    if (a->t == KN_IDX || a->t == KN_BOOL || a->op == KN_MAX) {
        if (ki_scalar(a->op, a->t, t, in, &r)) a->i = r;
        else a->over = true;
    } else {
        a->i = a->op == KN_ADD ? a->i + v : a->i * v; /* wraps; extended at the end */
    }
}

static void acc_add(acc *a, uint64_t v) {
    if (!a->is_float) {
        acc_int(a, v);
        return;
    }
    double x = ki_f64_from_bits(a->t, v);
    if (a->op == KN_ADD) a->f += x;
    else if (a->op == KN_MUL) a->f *= x;
    else if (isnan(x) || isnan(a->f)) a->f = NAN;
    else if (x > a->f || (x == a->f && !signbit(x))) a->f = x;
}

static uint64_t acc_end(const acc *a, int64_t n) {
    if (n == 0) return ki_scalar_identity(a->op, a->t, false);
    if (!a->is_float) return a->t == KN_BOOL ? a->i : ki_extend(a->i, ki_dtypes[a->t].bits, !ki_is_uint(a->t));
    return ki_bits_from_f64(a->t, isnan(a->f) ? NAN : a->f);
}

/* Walks the source in the order: result element, then element of the reduced axes. */
typedef struct walk {
    unsigned rank;
    int64_t dim[KI_MAX_RANK], stride[KI_MAX_RANK], c[KI_MAX_RANK], at;
    bool straight;
} walk;

static void walk_start(walk *w, unsigned rank, const int64_t *dim, uint32_t axes) {
    int64_t stride[KI_MAX_RANK], s = 1;
    memset(w, 0, sizeof *w);
    for (unsigned k = rank; k-- > 0; s *= dim[k]) stride[k] = s;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned k = 0; k < rank; k++)
            if ((int)(axes >> k & 1) == pass && dim[k] != 1) {
                w->dim[w->rank] = dim[k];
                w->stride[w->rank++] = stride[k];
            }
    w->straight = true;
    for (unsigned k = 0, r = w->rank; k < r; k++)
        if (k + 1 < r ? w->stride[k] != w->stride[k + 1] * w->dim[k + 1] : w->stride[k] != 1) w->straight = false;
}
static void walk_fill(walk *w, size_t n, int64_t *to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = w->at;
        for (unsigned k = w->rank; k-- > 0;) {
            w->at += w->stride[k];
            if (++w->c[k] < w->dim[k]) break;
            w->at -= w->stride[k] * w->dim[k];
            w->c[k] = 0;
        }
    }
}

static bool emit(ki_tens *t, ki_arr *out, int64_t o, const acc *a, int64_t n) {
    uint64_t v = acc_end(a, n);
    ki_storage_put(a->t, out->data, o, v);
    if (a->over) return ki_fail(t->env, KI_E_EVAL_OVERFLOW, "reduce", 0u), false;
    if (!t->bounds || n == 0) return true;
    double e = ki_bound_acc_end(&a->b, v);
    return ki_arr_put_err(t->env, out, o, 1, &e, 0);
}

/* Terms of each element of u that is a sum, wherever it is moved to since; 1: it is none. */
static double terms_of(ki_tens *t, kn_uop u, kn_dtype dt) {
    int64_t in[KI_MAX_RANK], od[KI_MAX_RANK];
    double n = 1;
    while (u->nsrc && u->dtype == dt) {
        bool sum = u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD, moves = ki_ops[u->op].cls == KI_C_MOVEMENT;
        if (!sum && !moves) break;
        int64_t all = ki_tens_dims(t, u->src[0], in), count = ki_tens_dims(t, u, od);
        if (sum && count) n *= (double)(all / count);
        u = u->src[0];
    }
    return n > 1 ? n : 1;
}

ki_arr *ki_node_reduce(ki_tens *t, kn_uop u) {
    int64_t in[KI_MAX_RANK], od[KI_MAX_RANK], total = ki_tens_dims(t, u->src[0], in), count = ki_tens_dims(t, u, od);
    kn_op op = (kn_op)u->arg.reduce.op;
    kn_dtype dt = (kn_dtype)u->dtype;
    if (u->nsrc > 1) return ki_fail(t->env, KI_E_EVAL_OP, "reduce over ranges", u->id, "tensor"), NULL;
    ki_arr *out = ki_arr_make(t->env, dt, count);
    acc a;
    walk w;
    int64_t at[KI_CHUNK], n = count ? total / count : 0, o = 0, r = 0;
    bool ok = out && (total == 0 || ki_tape_build(t, u->src[0]));
    double each = t->bounds && op == KN_ADD ? terms_of(t, u->src[0], dt) : 1;
    acc_start(&a, op, dt, t->bounds, each);
    for (; ok && n == 0 && o < count; o++) ok = emit(t, out, o, &a, 0);
    walk_start(&w, u->src[0]->type->rank, in, u->arg.reduce.axes);
    for (int64_t s = 0; ok && s < total; s += KI_CHUNK) {
        size_t m = total - s < KI_CHUNK ? (size_t)(total - s) : KI_CHUNK;
        const uint64_t *v;
        const double *err;
        unsigned stride;
        if (!w.straight) walk_fill(&w, m, at);
        ok = ki_tape_run(t, w.straight ? NULL : at, s, m, &v, &err, &stride);
        for (size_t i = 0; ok && i < m; i++) {
            acc_add(&a, v[i * stride]);
            if (t->bounds) ki_bound_acc_add(&a.b, v[i * stride], err ? err[i * stride] : 0);
            if (++r < n) continue;
            ok = emit(t, out, o++, &a, n);
            acc_start(&a, op, dt, t->bounds, each);
            r = 0;
        }
    }
    if (ok) return out;
    ki_arr_drop(out);
    return NULL;
}

/* ---- index ---------------------------------------------------------------------------------------------------- */

/* Value of index k of u (in its own linear order) as an integer. */
static int64_t index_value(const ki_tens *t, kn_uop i, int64_t at, double *err) {
    uint32_t p = ki_at(t, i);
    if (t->flags[p] & KI_T_SCALAR) return (int64_t)t->scalar[p];
    const ki_arr *a = t->arr[p];
    if (a->err) *err += a->err[at];
    uint64_t v = ki_storage_get((kn_dtype)i->dtype, a->data, at);
    return i->dtype == KN_U64 && (int64_t)v < 0 ? INT64_MAX : (int64_t)v;
}

bool ki_node_index_map(ki_tens *t, kn_uop u, const int64_t *from, int64_t start, size_t n, int64_t *to, double *err) {
    int64_t dim[KI_MAX_RANK], size[KI_MAX_RANK], d[KI_MAX_RANK];
    unsigned rank = u->src[0]->type->rank;
    ki_tens_dims(t, u->src[0], dim);
    for (unsigned k = 0; k < rank; k++) size[k] = k + 1 < u->nsrc ? ki_tens_dims(t, u->src[k + 1], d) : dim[k];
    for (size_t i = 0; i < n; i++) {
        int64_t rest = from ? from[i] : start + (int64_t)i, stride = 1, at = 0;
        if (err) err[i] = 0;
        for (unsigned k = rank; k-- > 0; stride *= dim[k]) {
            int64_t c = rest % size[k];
            double e = 0;
            rest /= size[k];
            if (k + 1 < u->nsrc) {
                int64_t own = index_value(t, u->src[k + 1], c, &e);
                if (own < 0 || own >= dim[k]) {
                    ki_fail(t->env, KI_E_EVAL_BOUNDS, "index", u->id, (long long)own, (long long)dim[k]);
                    return false;
                }
                c = own;
            }
            at += c * stride;
            if (err && e != 0) err[i] = INFINITY;
        }
        to[i] = at;
    }
    return true;
}

ki_arr *ki_node_index(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim), at[KI_CHUNK];
    uint64_t v[KI_CHUNK];
    double err[KI_CHUNK];
    ki_arr *src = ki_tens_array(t, u->src[0]), *out = src ? ki_arr_make(t->env, (kn_dtype)u->dtype, n) : NULL;
    bool ok = out != NULL;
    for (int64_t s = 0; ok && s < n; s += KI_CHUNK) {
        size_t m = n - s < KI_CHUNK ? (size_t)(n - s) : KI_CHUNK;
        ok = ki_step(t, m) && ki_node_index_map(t, u, NULL, s, m, at, t->bounds ? err : NULL);
        if (!ok) break;
        ki_arr_get(src, at, 0, m, v);
        ki_arr_put(out, s, m, v, 1);
        if (!t->bounds) continue;
        for (size_t i = 0; i < m && src->err; i++) err[i] += src->err[at[i]];
        ok = ki_arr_put_err(t->env, out, s, m, err, 1);
    }
    ki_arr_drop(src);
    if (ok) return out;
    ki_arr_drop(out);
    return NULL;
}

/* ---- stack, slice, bitcast ------------------------------------------------------------------------------------ */

ki_arr *ki_node_stack(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim), part = u->nsrc ? n / u->nsrc : 0;
    ki_arr *out = ki_arr_make(t->env, (kn_dtype)u->dtype, n);
    bool ok = out != NULL;
    for (uint32_t k = 0; ok && k < u->nsrc && part; k++) {
        ok = ki_tape_build(t, u->src[k]);
        for (int64_t s = 0; ok && s < part; s += KI_CHUNK) {
            size_t m = part - s < KI_CHUNK ? (size_t)(part - s) : KI_CHUNK;
            const uint64_t *v;
            const double *err;
            unsigned stride;
            ok = ki_tape_run(t, NULL, s, m, &v, &err, &stride);
            if (!ok) break;
            ki_arr_put(out, k * part + s, m, v, stride);
            if (t->bounds) ok = ki_arr_put_err(t->env, out, k * part + s, m, err, stride);
        }
    }
    if (ok) return out;
    ki_arr_drop(out);
    return NULL;
}

/* Bytes [offset, offset + size of out) of a source array; bounds become 'exempt' where any byte is uncertain. */
static ki_arr *bytes_at(ki_tens *t, kn_uop u, const ki_arr *src, int64_t offset, int64_t n) {
    int64_t from = (int64_t)ki_itemsize((kn_dtype)src->dtype), to = (int64_t)ki_itemsize((kn_dtype)u->dtype);
    if (offset < 0 || offset + n * to > src->n * from) {
        ki_fail(t->env, KI_E_EVAL_BOUNDS, ki_ops[u->op].name, u->id, (long long)(offset / (from ? from : 1)),
                (long long)src->n);
        return NULL;
    }
    ki_arr *out = ki_arr_make(t->env, (kn_dtype)u->dtype, n);
    if (!out) return NULL;
    if (n) memcpy(out->data, (const char *)src->data + offset, (size_t)(n * to));
    bool floats = ki_is_float((kn_dtype)src->dtype);
    for (int64_t i = 0; t->bounds && (src->err || floats) && i < n; i++) {
        double e = 0;
        for (int64_t b = (offset + i * to) / from; b <= (offset + i * to + to - 1) / from; b++) {
            if (src->err && !ki_certain(src->err[b])) e = INFINITY;
            if (floats &&
                isnan(ki_f64_from_bits((kn_dtype)src->dtype, ki_storage_get((kn_dtype)src->dtype, src->data, b))))
                e = INFINITY;
        }
        if (src->dtype == u->dtype) e = src->err ? src->err[offset / from + i] : 0;
        if (!ki_arr_put_err(t->env, out, i, 1, &e, 0)) {
            ki_arr_drop(out);
            return NULL;
        }
    }
    return out;
}

static ki_arr *bytes_of(ki_tens *t, kn_uop u, int64_t offset, int64_t n) {
    ki_arr *src = ki_tens_array(t, u->src[0]), *out = NULL;
    if (src) out = bytes_at(t, u, src, offset * (int64_t)ki_itemsize((kn_dtype)src->dtype), n);
    ki_arr_drop(src);
    return out;
}

ki_arr *ki_node_slice(ki_tens *t, kn_uop u) {
    int64_t off, dim[KI_MAX_RANK], n = ki_tens_dims(t, u->src[0], dim);
    if (!ki_tens_scalar(t, u->src[1], &off)) return NULL;
    if (off < 0 || off > n) {
        ki_fail(t->env, KI_E_EVAL_BOUNDS, "slice", u->id, (long long)off, (long long)n);
        return NULL;
    }
    return bytes_of(t, u, off, u->arg.i);
}

ki_arr *ki_node_bitcast(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK];
    return bytes_of(t, u, 0, ki_tens_dims(t, u, dim));
}
