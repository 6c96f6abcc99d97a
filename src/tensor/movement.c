/* movement.c: views, inside the front end: compositions of reshape, permute, expand, pad, shrink and flip.
 * No arithmetic, no copies; every one keeps an untouched axis symbolic. */
#include "tensor/build.h"

#include <string.h>

kn_uop ki_t_unsqueeze(kn_ctx *k, kn_uop x, unsigned axis) {
    if (!x) return NULL;
    ki_shape s = ki_shape_like(x);
    if (s.n == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    memmove(s.d + axis + 1, s.d + axis, (s.n - axis) * sizeof *s.d);
    s.d[axis] = (ki_dim){1, NULL};
    s.n++;
    return ki_t_reshape_to(k, x, &s);
}

kn_uop ki_t_squeeze(kn_ctx *k, kn_uop x, uint32_t axes) {
    if (!x) return NULL;
    ki_shape s = {0};
    for (unsigned i = 0; i < ki_rank(x); i++)
        if (!(axes >> i & 1)) s.d[s.n++] = x->type->dim[i];
    return ki_t_reshape_to(k, x, &s);
}

kn_uop ki_t_swap(kn_ctx *k, kn_uop x, unsigned a, unsigned b) {
    int64_t order[KI_MAX_RANK];
    if (!x) return NULL;
    for (unsigned i = 0; i < ki_rank(x); i++) order[i] = i == a ? b : i == b ? a : i;
    return ki_permute(&k->ir, x, order, ki_rank(x));
}

kn_uop ki_t_move(kn_ctx *k, kn_uop x, unsigned from, unsigned to) {
    int64_t order[KI_MAX_RANK];
    if (!x) return NULL;
    unsigned rank = ki_rank(x), next = 0;
    for (unsigned i = 0; i < rank; i++) {
        if (next == from) next++;
        order[i] = i == to ? from : next++;
    }
    return ki_permute(&k->ir, x, order, rank);
}

kn_uop ki_t_expand_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t n) {
    if (!x) return NULL;
    ki_shape s = ki_shape_like(x);
    s.d[axis] = (ki_dim){n, NULL};
    return ki_t_expand_to(k, x, &s);
}

/* ---- shrink and pad ---------------------------------------------------------------------------------------- */

static kn_uop zero_dims(kn_ctx *k, unsigned n, unsigned axis, int64_t at) {
    ki_shape o = {.n = n};
    o.d[axis].n = at;
    return ki_stack_dims(&k->ir, o.d, n);
}

kn_uop ki_t_narrow(kn_ctx *k, kn_uop x, unsigned axis, int64_t from, int64_t n) {
    if (!x) return NULL;
    ki_shape s = ki_shape_like(x);
    if (from == 0 && s.d[axis].n == n && !s.d[axis].sym) return x;
    s.d[axis] = (ki_dim){n, NULL};
    return ki_op3(&k->ir, KN_SHRINK, x, zero_dims(k, s.n, axis, from), ki_stack_dims(&k->ir, s.d, s.n));
}

kn_uop ki_t_pad_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t before, int64_t after) {
    if (!x || (!before && !after)) return x;
    ki_shape s = ki_shape_like(x);
    if (s.d[axis].sym) return ki_shape_known(k, x), NULL;
    s.d[axis].n += before + after;
    return ki_op3(&k->ir, KN_PAD, x, zero_dims(k, s.n, axis, before), ki_stack_dims(&k->ir, s.d, s.n));
}

static kn_uop pad_zero(kn_ctx *k, kn_uop x, const int64_t *before, const int64_t *after) {
    if (!x) return NULL;
    ki_shape s = ki_shape_like(x), o = {.n = s.n};
    bool any = false;
    for (unsigned i = 0; i < s.n; i++) {
        if (!before[i] && !after[i]) continue;
        if (s.d[i].sym) return ki_shape_known(k, x), NULL;
        any = true;
        o.d[i].n = before[i];
        s.d[i].n += before[i] + after[i];
    }
    return any ? ki_op3(&k->ir, KN_PAD, x, ki_stack_dims(&k->ir, o.d, o.n), ki_stack_dims(&k->ir, s.d, s.n)) : x;
}

kn_uop ki_t_pad_with(kn_ctx *k, kn_uop x, const int64_t *before, const int64_t *after, kn_uop fill) {
    kn_uop padded = pad_zero(k, x, before, after);
    if (!fill || !padded || padded == x) return padded;
    ki_shape s = ki_shape_like(x);
    kn_uop inside = pad_zero(k, ki_t_full(k, &s, ki_t_const(k, KN_BOOL, 1)), before, after);
    return ki_t_where(k, inside, padded, fill);
}

/* ---- repetition, slices, windows --------------------------------------------------------------------------- */

kn_uop ki_t_tile_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t times) {
    if (!x || times == 1) return x;
    ki_shape s = ki_shape_like(x);
    if (s.d[axis].sym) return ki_shape_known(k, x), NULL;
    s.d[axis].n *= times;
    return ki_t_reshape_to(k, ki_t_expand_axis(k, ki_t_unsqueeze(k, x, axis), axis, times), &s);
}

kn_uop ki_t_flip_axis(kn_ctx *k, kn_uop x, unsigned axis) {
    int64_t a = axis;
    return x ? ki_flip(&k->ir, x, &a, 1) : NULL;
}

/* The axis as two, of a and b. */
static kn_uop in_two(kn_ctx *k, kn_uop x, unsigned axis, int64_t a, int64_t b) {
    if (!x) return NULL;
    ki_shape s = ki_shape_like(x);
    if (s.n == KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    memmove(s.d + axis + 1, s.d + axis, (s.n - axis) * sizeof *s.d);
    s.n++;
    s.d[axis].n = a, s.d[axis + 1].n = b;
    return ki_t_reshape_to(k, x, &s);
}

/* Every step-th element of an axis of count * step elements. */
static kn_uop stride_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t count, int64_t step) {
    if (!x || step == 1) return x;
    ki_shape s = ki_shape_like(x);
    s.d[axis].n = count;
    return ki_t_reshape_to(k, ki_t_narrow(k, in_two(k, x, axis, count, step), axis + 1, 0, 1), &s);
}

/* start, stop as Python's slice.indices would have them. */
kn_uop ki_t_slice_axis(kn_ctx *k, kn_uop x, unsigned axis, int64_t start, int64_t stop, int64_t step) {
    if (!x) return NULL;
    if (x->type->dim[axis].sym) return ki_shape_known(k, x), NULL;
    int64_t n = ki_dim_n(x, axis), up = step < 0 ? -step : step;
    int64_t span = step > 0 ? stop - start : start - stop;
    int64_t count = span > 0 ? (span - 1) / up + 1 : 0;
    if (count == 0) return ki_t_narrow(k, x, axis, 0, 0);
    if (count == 1) return ki_t_narrow(k, x, axis, start, 1);
    int64_t first = step > 0 ? start : start - (count - 1) * up, need = count * up, have = n - first;
    kn_uop y = ki_t_narrow(k, x, axis, first, have < need ? have : need);
    if (have < need) y = ki_t_pad_axis(k, y, axis, 0, need - have);
    y = stride_axis(k, y, axis, count, up);
    return step < 0 ? ki_t_flip_axis(k, y, axis) : y;
}

/* The axis, tiled, is cut into rows one `dilation` longer than a multiple of itself: row j starts j * dilation further
 * on. The front of each row, cut into steps, holds the windows' j-th elements. */
kn_uop ki_t_windows(kn_ctx *k, kn_uop x, unsigned axis, int64_t size, int64_t step, int64_t dilation) {
    if (!x) return NULL;
    if (!ki_shape_known(k, x)) return NULL;
    int64_t n = ki_dim_n(x, axis), out = (n - dilation * (size - 1) - 1) / step + 1;
    kn_uop y;
    if (size == 1) {
        y = ki_t_narrow(k, x, axis, 0, (out - 1) * step + 1);
        y = ki_t_slice_axis(k, y, axis, 0, (out - 1) * step + 1, step);
        return ki_t_unsqueeze(k, y, ki_rank(x));
    }
    if (size == step && dilation == 1) { /* none overlaps another: a reshape, which a gradient undoes for nothing */
        y = ki_t_narrow(k, x, axis, 0, out * size);
        return ki_t_move(k, in_two(k, y, axis, out, size), axis + 1, ki_rank(x));
    }
    int64_t need = out * step, times = need > n + dilation ? (need - dilation + n - 1) / n : 1;
    int64_t row = n * times + dilation, total = size * row;
    y = ki_t_tile_axis(k, x, axis, (total + n - 1) / n);
    y = ki_t_narrow(k, y, axis, 0, total);
    y = ki_t_narrow(k, in_two(k, y, axis, size, row), axis + 1, 0, need);
    y = stride_axis(k, y, axis + 1, out, step);
    return ki_t_move(k, y, axis, ki_rank(x));
}

/* Parts padded to the whole, chosen by where they start: exact for every dtype (adding would lose the sign of -0.0). */
kn_uop ki_t_cat(kn_ctx *k, const kn_uop *x, size_t n, int axis) {
    int64_t total = 0, at = 0;
    unsigned a = (unsigned)axis;
    kn_uop all = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!x[i] || !ki_shape_known(k, x[i])) return NULL;
        total += ki_dim_n(x[i], a);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t size = ki_dim_n(x[i], a);
        if (size == 0 && (total != 0 || i + 1 < n)) continue;
        kn_uop part = ki_t_pad_axis(k, x[i], a, at, total - at - size);
        if (!part) return NULL;
        if (all) {
            ki_shape s = ki_shape_like(x[i]);
            s.d[a].n = at;
            kn_uop earlier = ki_t_pad_axis(k, ki_t_full(k, &s, ki_t_const(k, KN_BOOL, 1)), a, 0, total - at);
            all = ki_t_where(k, earlier, all, part);
        } else {
            all = part;
        }
        at += size;
    }
    return all;
}
