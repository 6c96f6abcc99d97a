/* view.c: the public movement functions: arguments as numpy and PyTorch have them, checked, then movement.c. */
#include "tensor/build.h"

#include <stdio.h>
#include <string.h>

/* A list with at most one -1, as a reshape of x. */
static kn_uop reshaped(kn_ctx *k, kn_uop x, kn_ints shape) {
    char a[128], b[128];
    int64_t known = 1, guess = -1;
    ki_shape s;
    for (int64_t i = 0; i < shape.n && i < KN_MAX_LIST; i++) {
        if (shape.v[i] == -1 && guess < 0) guess = i;
        else if (shape.v[i] == -1) return FAIL(KI_E_RESHAPE_TWO, k->fn);
        else if (shape.v[i] >= 0 && ki_mul_overflow(known, shape.v[i], &known)) known = INT64_MAX;
    }
    if (guess >= 0) {
        if (!ki_shape_known(k, x)) return NULL;
        if (known == 0 || ki_numel(x) % known)
            return FAIL(KI_E_RESHAPE_LEFT, ki_shape_text(x->type, a, sizeof a), (long long)ki_numel(x),
                        (long long)known);
        shape.v[guess] = ki_numel(x) / known;
    }
    if (!ki_shape_read(k, shape, &s)) return NULL;
    const ki_type *type = ki_type_make(&k->ir, s.n, s.d, 0, -1);
    if (type && !type->symbolic && !x->type->symbolic && type->numel != ki_numel(x))
        return FAIL(KI_E_RESHAPE_SIZE, ki_shape_text(x->type, a, sizeof a), (long long)ki_numel(x),
                    ki_shape_text(type, b, sizeof b), (long long)type->numel);
    return type ? ki_t_reshape_to(k, x, &s) : NULL;
}

kn_tensor kn_reshape(kn_tensor t, kn_ints shape) {
    ENTER("reshape", t);
    return ki_handle(k, reshaped(k, t->u, shape));
}

kn_tensor kn_permute(kn_tensor t, kn_ints order) {
    ENTER("permute", t);
    unsigned rank = ki_rank(t->u);
    uint32_t bits;
    int64_t v[KI_MAX_RANK];
    if (order.n != rank) return FAIL(KI_E_AXES_COUNT, "permute", rank, (long long)order.n), ki_handle(k, NULL);
    if (!ki_axes(k, order, rank, &bits)) return ki_handle(k, NULL);
    for (unsigned i = 0; i < rank; i++) v[i] = ki_axis(k, order.v[i], rank);
    return ki_handle(k, ki_permute(&k->ir, t->u, v, rank));
}

static kn_uop swapped(kn_ctx *k, kn_uop x, int a, int b) {
    return a < 0 || b < 0 ? NULL : ki_t_swap(k, x, (unsigned)a, (unsigned)b);
}

kn_tensor kn_transpose(kn_tensor t, int a, int b) {
    ENTER("transpose", t);
    unsigned rank = ki_rank(t->u);
    return ki_handle(k, swapped(k, t->u, ki_axis(k, a, rank), ki_axis(k, b, rank)));
}
kn_tensor kn_mT(kn_tensor t) {
    ENTER("mT", t);
    unsigned rank = ki_rank(t->u);
    return ki_handle(k, swapped(k, t->u, ki_axis(k, -2, rank), ki_axis(k, -1, rank)));
}
kn_tensor kn_moveaxis(kn_tensor t, int from, int to) {
    ENTER("moveaxis", t);
    int a = ki_axis(k, from, ki_rank(t->u)), b = ki_axis(k, to, ki_rank(t->u));
    return ki_handle(k, a < 0 || b < 0 ? NULL : ki_t_move(k, t->u, (unsigned)a, (unsigned)b));
}

kn_tensor kn_expand(kn_tensor t, kn_ints shape) {
    ENTER("expand", t);
    unsigned rank = ki_rank(t->u);
    ki_shape s;
    kn_ints known = shape;
    for (int64_t i = 0; i < shape.n && i < KN_MAX_LIST; i++)
        if (shape.v[i] == -1 && i >= shape.n - (int64_t)rank) known.v[i] = 1;
    if (!ki_shape_read(k, known, &s)) return ki_handle(k, NULL);
    for (unsigned i = 0; i < s.n; i++)
        if (shape.v[i] == -1) s.d[i] = t->u->type->dim[i - (s.n - rank)];
    return ki_handle(k, ki_t_broadcast_to(k, t->u, &s));
}

kn_tensor kn_pad(kn_tensor t, kn_ints pads, double value) {
    ENTER("pad", t);
    kn_uop x = t->u;
    unsigned rank = ki_rank(x);
    int64_t before[KI_MAX_RANK], after[KI_MAX_RANK];
    if (pads.n != 2 * (int64_t)rank) return FAIL(KI_E_PAD_COUNT, 2 * rank, (long long)pads.n), ki_handle(k, NULL);
    for (unsigned i = 0; i < rank; i++) {
        before[i] = pads.v[2 * i];
        after[i] = pads.v[2 * i + 1];
        if (before[i] < 0 || after[i] < 0 || before[i] > INT64_C(1) << 47 || after[i] > INT64_C(1) << 47)
            return FAIL(KI_E_PAD_NEGATIVE, i, (long long)before[i], (long long)after[i]), ki_handle(k, NULL);
    }
    kn_uop fill = ki_t_lit(k, x, value);
    return ki_handle(k, ki_t_pad_with(k, x, before, after, fill && fill->arg.bits ? fill : NULL));
}

kn_tensor kn_shrink(kn_tensor t, kn_ints start, kn_ints size) {
    ENTER("shrink", t);
    kn_uop x = t->u;
    ki_shape o, s;
    if (!ki_shape_read(k, start, &o) || !ki_shape_read(k, size, &s)) return ki_handle(k, NULL);
    if (o.n != ki_rank(x) || s.n != o.n)
        return FAIL(KI_E_AXES_COUNT, "shrink", ki_rank(x), (long long)(o.n != ki_rank(x) ? o.n : s.n)),
               ki_handle(k, NULL);
    for (unsigned i = 0; i < s.n; i++)
        if (!o.d[i].sym && !s.d[i].sym && !x->type->dim[i].sym && o.d[i].n + s.d[i].n > ki_dim_n(x, i))
            return FAIL(KI_E_SHRINK_RANGE, i, (long long)o.d[i].n, (long long)(o.d[i].n + s.d[i].n),
                        (long long)ki_dim_n(x, i)),
                   ki_handle(k, NULL);
    return ki_handle(k, ki_op3(&k->ir, KN_SHRINK, x, ki_stack_dims(&k->ir, o.d, o.n), ki_stack_dims(&k->ir, s.d, s.n)));
}

kn_tensor kn_flip(kn_tensor t, kn_ints axes) {
    ENTER("flip", t);
    uint32_t bits;
    int64_t v[KI_MAX_RANK];
    unsigned n = 0;
    if (!ki_axes(k, axes, ki_rank(t->u), &bits)) return ki_handle(k, NULL);
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        if (bits >> i & 1) v[n++] = i;
    return ki_handle(k, ki_flip(&k->ir, t->u, v, n));
}

/* A bound of a slice as a position: from the end if negative, clamped to what the direction can reach. */
static int64_t bound(int64_t v, int64_t n, bool back) {
    if (v < 0) v = v < -n ? -1 : v + n;
    if (v < 0) return back ? -1 : 0;
    return v >= n ? (back ? n - 1 : n) : v;
}

kn_tensor kn_slice(kn_tensor t, int axis, int64_t start, int64_t stop, int64_t step) {
    ENTER("slice", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0) return ki_handle(k, NULL);
    if (step == 0 || step < -(INT64_C(1) << 47) || step > INT64_C(1) << 47)
        return FAIL(KI_E_SLICE_STEP), ki_handle(k, NULL);
    int64_t n = ki_dim_n(t->u, (unsigned)a);
    int64_t from = bound(start, n, step < 0);
    int64_t to = stop == KN_TO_END ? (step < 0 ? -1 : n) : bound(stop, n, step < 0);
    return ki_handle(k, ki_t_slice_axis(k, t->u, (unsigned)a, from, to, step));
}

kn_tensor kn_select(kn_tensor t, int axis, int64_t index) {
    ENTER("select", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0) return ki_handle(k, NULL);
    int64_t n = ki_dim_n(t->u, (unsigned)a);
    if (index < -n || index >= n) return FAIL(KI_E_SELECT_RANGE, (long long)index, a, (long long)n), ki_handle(k, NULL);
    kn_uop y = ki_t_narrow(k, t->u, (unsigned)a, index < 0 ? index + n : index, 1);
    return ki_handle(k, ki_t_squeeze(k, y, UINT32_C(1) << a));
}

/* ---- several into one, one into several -------------------------------------------------------------------- */

/* Dtypes promoted; shapes equal but for `axis` (-1: equal). */
static bool join(kn_ctx *k, const kn_tensor *t, size_t n, int axis, kn_uop *u) {
    char a[128], b[128], may[64];
    kn_dtype d = (kn_dtype)t[0]->u->dtype;
    for (size_t i = 1; i < n; i++) {
        d = ki_promote(d, (kn_dtype)t[i]->u->dtype);
        kn_uop x = t[0]->u, y = t[i]->u;
        bool same = ki_rank(x) == ki_rank(y);
        for (unsigned j = 0; same && j < ki_rank(x); j++)
            same = (int)j == axis || (ki_dim_n(x, j) == ki_dim_n(y, j) && x->type->dim[j].sym == y->type->dim[j].sym);
        if (same) continue;
        snprintf(may, sizeof may, axis < 0 ? "all must be equal" : "they may differ on axis %d only", axis);
        return FAIL(KI_E_JOIN_SHAPE, k->fn, (unsigned)i, ki_shape_text(y->type, b, sizeof b),
                    ki_shape_text(x->type, a, sizeof a), may);
    }
    for (size_t i = 0; i < n; i++)
        if (!(u[i] = ki_t_cast(k, t[i]->u, d))) return false;
    return true;
}

/* A new axis in front. In groups, of which several kernels make it: one has no room for any number of buffers. */
static kn_uop stacked(kn_ctx *k, kn_uop *u, size_t n) {
    enum { GROUP = 32 };
    size_t groups = 0;
    if (n <= GROUP || u[0]->type->symbolic) return ki_opn(&k->ir, KN_STACK, u, (uint32_t)n);
    for (size_t i = 0; i < n; i += GROUP)
        u[groups++] = ki_opn(&k->ir, KN_STACK, u + i, (uint32_t)(n - i < GROUP ? n - i : GROUP));
    return ki_t_cat(k, u, groups, 0);
}

static kn_tensor joined(const kn_tensor *t, size_t n, int axis, const char *fn, bool fresh) {
    kn_ctx *k;
    if (!t || n == 0) return NULL;
    kn_tensor bad = ki_enter(&k, fn, t, n, 0);
    if (bad || !k) return bad;
    kn_uop *u = ki_malloc(n * sizeof *u), r = NULL;
    int a = u ? ki_axis(k, axis, ki_rank(t[0]->u) + fresh) : (ki_fail(&k->env, KI_E_NOMEM), -1);
    if (a >= 0 && join(k, t, n, fresh ? -1 : a, u))
        r = fresh ? ki_t_move(k, stacked(k, u, n), 0, (unsigned)a) : ki_t_cat(k, u, n, a);
    ki_free(u);
    return ki_handle(k, r);
}
kn_tensor kn_cat(const kn_tensor *t, size_t n, int axis) { return joined(t, n, axis, "cat", false); }
kn_tensor kn_stack(const kn_tensor *t, size_t n, int axis) { return joined(t, n, axis, "stack", true); }
kn_tensor kn_cat2(kn_tensor a, kn_tensor b, int axis) { return kn_cat((kn_tensor[]){a, b}, 2, axis); }

static kn_status all_bad(kn_tensor *out, int64_t n, kn_tensor bad) {
    for (int64_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

kn_status kn_split(kn_tensor t, int axis, kn_ints sizes, kn_tensor *out) {
    kn_ctx *k;
    int64_t at = 0, n = sizes.n > KN_MAX_LIST ? 0 : sizes.n;
    if (!out) return ki_no_out("split", &t, 1);
    kn_tensor bad = ki_enter(&k, "split", &t, 1, 0);
    if (bad || !k) return all_bad(out, n, bad);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, t->u)) return all_bad(out, n, ki_handle(k, NULL));
    for (int64_t i = 0; i < n; i++) {
        if (sizes.v[i] < 0 || sizes.v[i] > INT64_C(1) << 47)
            return FAIL(KI_E_SIZE_RANGE, k->fn, (long long)sizes.v[i], (unsigned)a),
                   all_bad(out, n, ki_handle(k, NULL));
        at += sizes.v[i];
    }
    if (at != ki_dim_n(t->u, (unsigned)a) || n != sizes.n)
        return FAIL(KI_E_SPLIT_SIZES, (long long)at, a, (long long)ki_dim_n(t->u, (unsigned)a)),
               all_bad(out, n, ki_handle(k, NULL));
    at = 0;
    kn_status s = KN_OK;
    for (int64_t i = 0; i < n; i++) {
        out[i] = ki_handle(k, ki_t_narrow(k, t->u, (unsigned)a, at, sizes.v[i]));
        if (kn_check(out[i])) s = kn_check(out[i]);
        at += sizes.v[i];
    }
    return s;
}

kn_status kn_chunk(kn_tensor t, int axis, int n, kn_tensor *out) {
    kn_ctx *k;
    if (!out) return ki_no_out("chunk", &t, 1);
    kn_tensor bad = ki_enter(&k, "chunk", &t, 1, 0);
    if (bad || !k) return all_bad(out, n, bad);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a >= 0 && (n < 1 || n > KN_MAX_LIST)) FAIL(KI_E_CHUNK_COUNT, n, KN_MAX_LIST), a = -1;
    if (a < 0) return all_bad(out, n < 1 ? 0 : n, ki_handle(k, NULL));
    int64_t size = ki_dim_n(t->u, (unsigned)a);
    kn_ints sizes = {.n = n};
    for (int i = 0; i < n; i++) sizes.v[i] = size / n + (i < size % n);
    return kn_split(t, a, sizes, out);
}

/* ---- repetition -------------------------------------------------------------------------------------------- */

kn_tensor kn_tile(kn_tensor t, kn_ints times) {
    ENTER("tile", t);
    kn_uop x = t->u;
    ki_shape s;
    if (!ki_shape_read(k, times, &s)) return ki_handle(k, NULL);
    while (x && ki_rank(x) < s.n) x = ki_t_unsqueeze(k, x, 0);
    for (unsigned i = 0; x && i < s.n; i++) x = ki_t_tile_axis(k, x, ki_rank(x) - s.n + i, s.d[i].n);
    return ki_handle(k, x);
}

kn_tensor kn_repeat(kn_tensor t, int64_t times, int axis) {
    ENTER("repeat", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, t->u)) return ki_handle(k, NULL);
    if (times < 0 || times > INT64_C(1) << 40)
        return FAIL(KI_E_SIZE_RANGE, "repeat", (long long)times, 0u), ki_handle(k, NULL);
    ki_shape s = ki_shape_like(t->u);
    s.d[a].n *= times;
    kn_uop y = ki_t_expand_axis(k, ki_t_unsqueeze(k, t->u, (unsigned)a + 1), (unsigned)a + 1, times);
    return ki_handle(k, ki_t_reshape_to(k, y, &s));
}

kn_tensor kn_roll(kn_tensor t, int64_t shift, int axis) {
    ENTER("roll", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, t->u)) return ki_handle(k, NULL);
    int64_t n = ki_dim_n(t->u, (unsigned)a), s = n ? (shift % n + n) % n : 0;
    if (s == 0) return ki_handle(k, t->u);
    return ki_handle(k, ki_t_narrow(k, ki_t_tile_axis(k, t->u, (unsigned)a, 2), (unsigned)a, n - s, n));
}

/* ---- axes of size 1 ---------------------------------------------------------------------------------------- */

kn_tensor kn_squeeze(kn_tensor t, int axis) {
    ENTER("squeeze", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0) return ki_handle(k, NULL);
    return ki_handle(k, ki_dim_n(t->u, (unsigned)a) == 1 ? ki_t_squeeze(k, t->u, UINT32_C(1) << a) : t->u);
}
kn_tensor kn_squeeze_all(kn_tensor t) {
    ENTER("squeeze_all", t);
    uint32_t bits = 0;
    for (unsigned i = 0; i < ki_rank(t->u); i++)
        if (ki_dim_n(t->u, i) == 1 && !t->u->type->dim[i].sym) bits |= UINT32_C(1) << i;
    return ki_handle(k, ki_t_squeeze(k, t->u, bits));
}
kn_tensor kn_unsqueeze(kn_tensor t, int axis) {
    ENTER("unsqueeze", t);
    int a = ki_axis(k, axis, ki_rank(t->u) + 1);
    return ki_handle(k, a < 0 ? NULL : ki_t_unsqueeze(k, t->u, (unsigned)a));
}

kn_tensor kn_flatten(kn_tensor t, int first, int last) {
    ENTER("flatten", t);
    kn_uop x = t->u;
    if (ki_rank(x) == 0) return ki_handle(k, RESHAPE(x, 1));
    int a = ki_axis(k, first, ki_rank(x)), b = ki_axis(k, last, ki_rank(x));
    if (a < 0 || b < 0) return ki_handle(k, NULL);
    if (a > b) return FAIL(KI_E_FLATTEN_ORDER, a, b), ki_handle(k, NULL);
    ki_shape s = {0};
    for (unsigned i = 0; i < ki_rank(x); i++) {
        if ((int)i > a && (int)i <= b) {
            if (x->type->dim[i].sym || s.d[s.n - 1].sym) return ki_shape_known(k, x), ki_handle(k, NULL);
            s.d[s.n - 1].n *= ki_dim_n(x, i);
        } else {
            s.d[s.n++] = x->type->dim[i];
        }
    }
    return ki_handle(k, ki_t_reshape_to(k, x, &s));
}

kn_tensor kn_unflatten(kn_tensor t, int axis, kn_ints shape) {
    ENTER("unflatten", t);
    kn_uop x = t->u;
    int a = ki_axis(k, axis, ki_rank(x));
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (shape.n < 0 || shape.n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), ki_handle(k, NULL);
    int64_t n = 1, size = ki_dim_n(x, (unsigned)a);
    bool open = false, far = false;
    for (int64_t i = 0; i < shape.n; i++) {
        open |= shape.v[i] == -1;
        if (shape.v[i] >= 0) far |= __builtin_mul_overflow(n, shape.v[i], &n);
    }
    if (!open && (far || n != size))
        return FAIL(KI_E_UNFLATTEN_SIZE, a, (long long)size, (long long)n), ki_handle(k, NULL);
    kn_ints s = {0};
    for (int i = 0; i < a; i++) s.v[s.n++] = ki_dim_n(x, (unsigned)i);
    for (int64_t i = 0; i < shape.n; i++) s.v[s.n++] = shape.v[i];
    for (unsigned i = (unsigned)a + 1; i < ki_rank(x); i++) s.v[s.n++] = ki_dim_n(x, i);
    return ki_handle(k, reshaped(k, x, s));
}

/* ---- triangles, diagonals, windows ------------------------------------------------------------------------- */

static kn_tensor triangle(kn_tensor t, int64_t diagonal, bool upper, const char *fn) {
    ENTER(fn, t);
    kn_uop x = t->u;
    unsigned rank = ki_rank(x);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, fn, 2, rank), ki_handle(k, NULL);
    kn_uop r = ki_t_iota_axis(k, x, rank - 2, KN_I64), c = ki_t_iota_axis(k, x, rank - 1, KN_I64);
    kn_uop edge = r ? ki_t_add(k, r, ki_t_lit(k, r, (double)diagonal)) : NULL;
    return ki_handle(k, ki_t_where(k, upper ? ki_t_ge(k, c, edge) : ki_t_le(k, c, edge), x, ki_t_lit(k, x, 0)));
}
kn_tensor kn_tril(kn_tensor t, int64_t diagonal) { return triangle(t, diagonal, false, "tril"); }
kn_tensor kn_triu(kn_tensor t, int64_t diagonal) { return triangle(t, diagonal, true, "triu"); }

/* Rows one longer than the matrix is wide: the diagonal is their first column. */
kn_uop ki_t_diagonal(kn_ctx *k, kn_uop x, int64_t offset) {
    if (!x) return NULL;
    unsigned rank = ki_rank(x);
    if (rank < 2) return FAIL(KI_E_RANK_WANTED, k->fn, 2, rank);
    if (!ki_shape_known(k, x)) return NULL;
    int64_t rows = ki_dim_n(x, rank - 2), columns = ki_dim_n(x, rank - 1);
    int64_t r0 = offset < 0 ? -offset : 0, c0 = offset > 0 ? offset : 0;
    int64_t n = rows - r0 < columns - c0 ? rows - r0 : columns - c0;
    if (n <= 0)
        return ki_t_squeeze(k, ki_t_narrow(k, ki_t_narrow(k, x, rank - 2, 0, rows ? 1 : 0), rank - 1, 0, 0),
                            rows ? UINT32_C(1) << (rank - 2) : 0);
    x = ki_t_narrow(k, ki_t_narrow(k, x, rank - 2, r0, n), rank - 1, c0, n);
    if (n == 1) return ki_t_squeeze(k, x, UINT32_C(1) << (rank - 2));
    ki_shape s = ki_shape_like(x);
    s.n--;
    s.d[rank - 2].n = n * n;
    x = ki_t_pad_axis(k, ki_t_reshape_to(k, x, &s), rank - 2, 0, n);
    s.d[rank - 2].n = n, s.d[rank - 1].n = n + 1, s.n++;
    return ki_t_squeeze(k, ki_t_narrow(k, ki_t_reshape_to(k, x, &s), rank - 1, 0, 1), UINT32_C(1) << (rank - 1));
}
kn_tensor kn_diagonal(kn_tensor t, int64_t offset) {
    ENTER("diagonal", t);
    return ki_handle(k, ki_t_diagonal(k, t->u, offset));
}

kn_tensor kn_diag(kn_tensor t) {
    ENTER("diag", t);
    kn_uop x = t->u;
    if (ki_rank(x) != 1) return FAIL(KI_E_RANK_WANTED, "diag", 1, ki_rank(x)), ki_handle(k, NULL);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    int64_t n = ki_dim_n(x, 0);
    kn_dtype it = ki_index_dtype(KN_I32, n);
    kn_uop on = ki_t_eq(k, RESHAPE(ki_t_iota(k, n, it), n, 1), RESHAPE(ki_t_iota(k, n, it), 1, n));
    return ki_handle(k, ki_t_where(k, on, RESHAPE(x, n, 1), ki_t_lit(k, x, 0)));
}

kn_tensor kn_unfold(kn_tensor t, int axis, int64_t size, int64_t step) {
    ENTER("unfold", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0) return ki_handle(k, NULL);
    if (size < 1 || step < 1 || size > ki_dim_n(t->u, (unsigned)a))
        return FAIL(KI_E_WINDOW, "unfold", (long long)size, (long long)step, a, (long long)ki_dim_n(t->u, (unsigned)a)),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_windows(k, t->u, (unsigned)a, size, step, 1));
}
