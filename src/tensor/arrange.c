/* arrange.c: views of several pieces: grids, borders, quarter turns, windows as columns and back. */
#include "tensor/build.h"

#include <string.h>

/* ---- shapes made equal -------------------------------------------------------------------------------------- */

kn_tensor kn_broadcast_to(kn_tensor t, kn_ints shape) {
    ENTER("broadcast_to", t);
    ki_shape s;
    return ki_handle(k, ki_shape_read(k, shape, &s) ? ki_t_broadcast_to(k, t->u, &s) : NULL);
}

static kn_status all_bad(kn_tensor *out, size_t n, kn_tensor bad) {
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

kn_status kn_broadcast_tensors(const kn_tensor *t, size_t n, kn_tensor *out) {
    kn_ctx *k;
    if (!n) return KN_OK;
    if (!out) return ki_no_out("broadcast_tensors", t, n);
    kn_tensor bad = ki_enter(&k, "broadcast_tensors", t, n, 0);
    if (bad || !k) return all_bad(out, n, bad);
    kn_uop whole = t[0]->u;
    for (size_t i = 1; i < n; i++) {
        kn_uop b = t[i]->u;
        if (!ki_broadcast(k, &whole, &b)) return all_bad(out, n, ki_handle(k, NULL));
        if (!ki_rank(whole)) whole = b;
    }
    ki_shape s = ki_shape_like(whole);
    for (size_t i = 0; i < n; i++) out[i] = ki_handle(k, ki_t_broadcast_to(k, t[i]->u, &s));
    return kn_check(out[n - 1]);
}

kn_tensor kn_atleast(kn_tensor t, int rank) {
    ENTER("atleast", t);
    kn_uop x = t->u;
    if (rank > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), ki_handle(k, NULL);
    while (x && (int)ki_rank(x) < rank) x = ki_t_unsqueeze(k, x, 0);
    return ki_handle(k, x);
}

kn_status kn_meshgrid(const kn_tensor *t, size_t n, int xy, kn_tensor *out) {
    kn_ctx *k;
    ki_shape s = {0};
    if (!n) return KN_OK;
    if (!out) return ki_no_out("meshgrid", t, n);
    kn_tensor bad = ki_enter(&k, "meshgrid", t, n, 0);
    if (bad || !k) return all_bad(out, n, bad);
    if (n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK), all_bad(out, n, ki_handle(k, NULL));
    for (size_t i = 0; i < n; i++) {
        if (ki_rank(t[i]->u) > 1)
            return FAIL(KI_E_RANK_WANTED, k->fn, 1, ki_rank(t[i]->u)), all_bad(out, n, ki_handle(k, NULL));
        size_t a = xy && n > 1 && i < 2 ? 1 - i : i;
        s.d[a] = ki_rank(t[i]->u) ? t[i]->u->type->dim[0] : (ki_dim){1, NULL};
        s.n++;
    }
    for (size_t i = 0; i < n; i++) {
        size_t a = xy && n > 1 && i < 2 ? 1 - i : i;
        ki_shape own = {.n = (unsigned)n};
        for (size_t j = 0; j < n; j++) own.d[j] = j == a ? s.d[a] : (ki_dim){1, NULL};
        out[i] = ki_handle(k, ki_t_expand_to(k, ki_t_reshape_to(k, t[i]->u, &own), &s));
    }
    return kn_check(out[n - 1]);
}

/* ---- turned, taken apart ------------------------------------------------------------------------------------- */

kn_tensor kn_rot90(kn_tensor t, int times, int from, int to) {
    ENTER("rot90", t);
    int a = ki_axis(k, from, ki_rank(t->u)), b = a < 0 ? -1 : ki_axis(k, to, ki_rank(t->u));
    if (b < 0) return ki_handle(k, NULL);
    if (a == b) return FAIL(KI_E_AXIS_TWICE, k->fn, a), ki_handle(k, NULL);
    unsigned q = (unsigned)times & 3;
    kn_uop x = t->u;
    if (q == 1 || q == 2) x = ki_t_flip_axis(k, x, (unsigned)b);
    if (q == 2 || q == 3) x = ki_t_flip_axis(k, x, (unsigned)a);
    return ki_handle(k, q & 1 ? ki_t_swap(k, x, (unsigned)a, (unsigned)b) : x);
}

static kn_tensor flipped(kn_tensor t, unsigned axis, const char *fn) {
    ENTER(fn, t);
    if (ki_rank(t->u) <= axis) return FAIL(KI_E_RANK_WANTED, fn, (int)axis + 1, ki_rank(t->u)), ki_handle(k, NULL);
    return ki_handle(k, ki_t_flip_axis(k, t->u, axis));
}
kn_tensor kn_flipud(kn_tensor t) { return flipped(t, 0, "flipud"); }
kn_tensor kn_fliplr(kn_tensor t) { return flipped(t, 1, "fliplr"); }

kn_status kn_unstack(kn_tensor t, int axis, kn_tensor *out) {
    kn_ctx *k;
    if (!out) return ki_no_out("unstack", &t, 1);
    kn_tensor bad = ki_enter(&k, "unstack", &t, 1, 0);
    if (bad || !k) return kn_check(bad);
    int a = ki_axis(k, axis, ki_rank(t->u));
    if (a < 0 || !ki_shape_known(k, t->u)) return kn_check(ki_handle(k, NULL));
    for (int64_t i = 0; i < ki_dim_n(t->u, (unsigned)a); i++)
        out[i] = ki_handle(k, ki_t_squeeze(k, ki_t_narrow(k, t->u, (unsigned)a, i, 1), UINT32_C(1) << a));
    return KN_OK;
}

kn_tensor kn_diff(kn_tensor t, int times, int axis) {
    ENTER("diff", t);
    int a = ki_axis(k, axis, ki_rank(t->u));
    kn_uop x = t->u;
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    if (times < 0) return FAIL(KI_E_SIZE_RANGE, k->fn, (long long)times, (unsigned)a), ki_handle(k, NULL);
    for (int i = 0; x && i < times; i++) {
        int64_t n = ki_dim_n(x, (unsigned)a), left = n > 0 ? n - 1 : 0;
        kn_uop next = ki_t_narrow(k, x, (unsigned)a, n - left, left), own = ki_t_narrow(k, x, (unsigned)a, 0, left);
        x = x->dtype == KN_BOOL ? ki_t_ne(k, next, own) : ki_t_sub(k, next, own);
        if (!left) break;
    }
    return ki_handle(k, x);
}

/* ---- borders -------------------------------------------------------------------------------------------------- */

enum { CONSTANT, REFLECT, SYMMETRIC, REPLICATE, CIRCULAR };

/* `n` elements beside the axis: before it, or behind it. */
static kn_uop border(kn_ctx *k, kn_uop x, unsigned axis, int64_t n, int mode, bool behind) {
    int64_t size = ki_dim_n(x, axis);
    if (mode == REPLICATE) return ki_t_expand_axis(k, ki_t_narrow(k, x, axis, behind ? size - 1 : 0, 1), axis, n);
    if (mode == CIRCULAR) return ki_t_narrow(k, x, axis, behind ? 0 : size - n, n);
    int64_t edge = mode == REFLECT; /* left out */
    return ki_t_flip_axis(k, ki_t_narrow(k, x, axis, behind ? size - edge - n : edge, n), axis);
}

static kn_uop bordered(kn_ctx *k, kn_uop x, unsigned axis, int64_t before, int64_t after, int mode, const char *name) {
    if (!x || (!before && !after)) return x;
    int64_t size = ki_dim_n(x, axis), most = before > after ? before : after;
    if (mode == REPLICATE ? size < 1 : mode == REFLECT ? most >= size : most > size)
        return FAIL(KI_E_PAD_MODE_SIZE, name, axis, (long long)size, (long long)before, (long long)after);
    kn_uop part[3];
    size_t n = 0;
    if (before) part[n++] = border(k, x, axis, before, mode, false);
    part[n++] = x;
    if (after) part[n++] = border(k, x, axis, after, mode, true);
    return ki_t_cat(k, part, n, (int)axis);
}

kn_tensor kn_pad_mode(kn_tensor t, kn_ints pads, const char *mode, double value) {
    static const char *const name[] = {[CONSTANT] = "constant",
                                       [REFLECT] = "reflect",
                                       [SYMMETRIC] = "symmetric",
                                       [REPLICATE] = "replicate",
                                       [CIRCULAR] = "circular"};
    ENTER("pad_mode", t);
    kn_uop x = t->u;
    unsigned rank = ki_rank(x);
    int m = CONSTANT;
    if (!ki_given(k, k->fn, "mode", mode)) return ki_handle(k, NULL);
    while (m <= CIRCULAR && strcmp(mode, name[m]) != 0) m++;
    if (m > CIRCULAR)
        return FAIL(KI_E_MODE, k->fn, mode, "constant, reflect, symmetric, replicate or circular"), ki_handle(k, NULL);
    if (m == CONSTANT) return kn_pad(t, pads, value);
    if (pads.n != 2 * (int64_t)rank) return FAIL(KI_E_PAD_COUNT, 2 * rank, (long long)pads.n), ki_handle(k, NULL);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    for (unsigned i = 0; i < rank; i++) {
        int64_t before = pads.v[2 * i], after = pads.v[2 * i + 1];
        if (before < 0 || after < 0 || before > INT64_C(1) << 40 || after > INT64_C(1) << 40)
            return FAIL(KI_E_PAD_NEGATIVE, i, (long long)before, (long long)after), ki_handle(k, NULL);
        x = bordered(k, x, i, before, after, m, name[m]);
    }
    return ki_handle(k, x);
}
