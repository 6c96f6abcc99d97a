/* resample.c: images of another size: interpolation along one spatial axis after the other, and pixels as channels.
 *
 * Positions are exact: output i of `out` looks at the fraction up / down of the input's axis, in integers, so that no rounding
 * chooses a neighbour (PyTorch computes them in f32). */
#include "tensor/build.h"

#define L(v) ki_t_lit(k, x, v)

/* Where the outputs of an axis of n look: floor(up / down) and what is left, as a part of one. */
typedef struct look {
    kn_dtype t;
    kn_uop at, part; /* (out,): integers; floats */
} look;

static kn_uop number(kn_ctx *k, const look *l, int64_t v) { return ki_t_const(k, l->t, (double)v); }

/* aligned: the ends meet. Else pixels are areas: (i + 1/2) n / out - 1/2. */
static bool look_at(kn_ctx *k, int64_t n, int64_t out, bool aligned, kn_dtype t, look *l) {
    l->t = ki_index_dtype(KN_I32, 2 * (n + 1) * (out + 1));
    kn_uop i = ki_t_iota(k, out, l->t), up, down;
    if (aligned) {
        up = ki_t_mul(k, i, number(k, l, n - 1));
        down = number(k, l, out > 1 ? out - 1 : 1);
    } else {
        kn_uop odd = ki_t_add(k, ki_t_mul(k, i, number(k, l, 2)), number(k, l, 1));
        up = ki_t_sub(k, ki_t_mul(k, odd, number(k, l, n)), number(k, l, out));
        down = number(k, l, 2 * out);
    }
    l->at = ki_t_binary(k, KN_IDIV, up, down); /* towards minus infinity */
    kn_uop rest = ki_t_sub(k, up, ki_t_mul(k, l->at, down));
    l->part = ki_t_div(k, ki_t_cast(k, rest, t), ki_t_cast(k, down, t));
    return l->at && l->part;
}

/* x's elements `by` from where l looks, the ends repeated: min(a, b) as ~max(~a, ~b), which indices can be read through. */
static kn_uop beside(kn_ctx *k, kn_uop x, const look *l, int64_t by, unsigned axis) {
    kn_uop at = ki_t_max(k, ki_t_add(k, l->at, number(k, l, by)), number(k, l, 0));
    at = ki_t_max(k, ki_t_unary(k, KN_NOT, at), number(k, l, -ki_dim_n(x, axis)));
    return ki_t_take(k, x, ki_t_unary(k, KN_NOT, at), axis);
}

/* A value for each output, along the axis of x. */
static kn_uop along(kn_ctx *k, kn_uop v, kn_uop x, unsigned axis) {
    ki_shape s = {.n = ki_rank(x)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = 1;
    s.d[axis] = v ? v->type->dim[0] : s.d[axis];
    return ki_t_reshape_to(k, v, &s);
}

/* Whole factors are movements, whose gradient is a sum over each pixel's copies and no scattering. */
static kn_uop nearest(kn_ctx *k, kn_uop x, unsigned axis, int64_t out, bool exact) {
    int64_t n = ki_dim_n(x, axis);
    if (out % n == 0) {
        ki_shape s = ki_shape_like(x);
        s.d[axis].n = out;
        return ki_t_reshape_to(k, ki_t_expand_axis(k, ki_t_unsqueeze(k, x, axis + 1), axis + 1, out / n), &s);
    }
    if (n % out == 0) return ki_t_slice_axis(k, x, axis, exact ? n / out / 2 : 0, n, n / out);
    look l = {.t = ki_index_dtype(KN_I32, 2 * (n + 1) * (out + 1))};
    kn_uop i = ki_t_iota(k, out, l.t);
    if (exact) i = ki_t_add(k, ki_t_mul(k, i, number(k, &l, 2)), number(k, &l, 1));
    l.at = ki_t_binary(k, KN_IDIV, ki_t_mul(k, i, number(k, &l, n)), number(k, &l, exact ? 2 * out : out));
    return l.at ? ki_t_take(k, x, l.at, axis) : NULL;
}

static kn_uop linear(kn_ctx *k, kn_uop x, unsigned axis, int64_t out, bool aligned) {
    look l;
    if (!look_at(k, ki_dim_n(x, axis), out, aligned, (kn_dtype)x->dtype, &l)) return NULL;
    kn_uop a = beside(k, x, &l, 0, axis), b = beside(k, x, &l, 1, axis), w = along(k, l.part, x, axis);
    return ki_t_add(k, ki_t_mul(k, a, ki_t_sub(k, L(1), w)), ki_t_mul(k, b, w));
}

/* Keys' cubic with a = -3/4 (OpenCV's and PyTorch's): near(d) for d <= 1, far(d) for 1 < d < 2. */
static kn_uop near_weight(kn_ctx *k, kn_uop x) {
    const double a = -0.75;
    kn_uop inner = ki_t_sub(k, ki_t_mul(k, L(a + 2), x), L(a + 3));
    return ki_t_add(k, ki_t_mul(k, ki_t_mul(k, inner, x), x), L(1));
}
static kn_uop far_weight(kn_ctx *k, kn_uop x) {
    const double a = -0.75;
    kn_uop inner = ki_t_add(k, ki_t_mul(k, ki_t_sub(k, ki_t_mul(k, L(a), x), L(5 * a)), x), L(8 * a));
    return ki_t_sub(k, ki_t_mul(k, inner, x), L(4 * a));
}
static kn_uop cubic(kn_ctx *k, kn_uop x, unsigned axis, int64_t out, bool aligned) {
    look l;
    if (!look_at(k, ki_dim_n(x, axis), out, aligned, (kn_dtype)x->dtype, &l)) return NULL;
    kn_uop d = along(k, l.part, x, axis), to_next = ki_t_sub(k, L(1), d), one = L(1), y = NULL;
    const kn_uop weight[4] = {far_weight(k, ki_t_add(k, d, one)), near_weight(k, d), near_weight(k, to_next),
                              far_weight(k, ki_t_add(k, to_next, one))};
    for (int i = 0; i < 4; i++) {
        kn_uop part = ki_t_mul(k, beside(k, x, &l, i - 1, axis), weight[i]);
        y = i ? ki_t_add(k, y, part) : part;
    }
    return y;
}

kn_tensor kn_interpolate(kn_tensor t, kn_ints sizes, kn_interpolation how, int align_corners) {
    ENTER("interpolate", t);
    unsigned rank = ki_rank(t->u);
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, rank), ki_handle(k, NULL);
    if ((unsigned)how > KN_INTERP_CUBIC) return FAIL(KI_E_INTERPOLATION, (int)how), ki_handle(k, NULL);
    bool copies = how == KN_INTERP_NEAREST || how == KN_INTERP_NEAREST_EXACT;
    if (copies && align_corners) return FAIL(KI_E_ALIGNED_COPIES), ki_handle(k, NULL);
    if (sizes.n != 1 && sizes.n != (int64_t)rank - 2)
        return FAIL(KI_E_CONV_LIST, k->fn, "sizes", rank - 2, (long long)sizes.n), ki_handle(k, NULL);
    kn_uop x = copies ? t->u : ki_t_float(k, t->u);
    if (!x || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    kn_dtype d = (kn_dtype)x->dtype;
    if (!copies && ki_dtypes[d].bits < 32) x = ki_t_cast(k, x, KN_F32);
    for (unsigned axis = 2; axis < rank && x; axis++) {
        int64_t out = sizes.v[sizes.n == 1 ? 0 : axis - 2], n = ki_dim_n(x, axis);
        if (out < 1 || n < 1)
            return FAIL(KI_E_CONV_VALUE, k->fn, "size", (long long)(out < 1 ? out : n), 1LL), ki_handle(k, NULL);
        if (out > INT64_C(1) << 24 || n > INT64_C(1) << 24)
            return FAIL(KI_E_CONV_VALUE, k->fn, "size", (long long)(out > n ? out : n), 1LL), ki_handle(k, NULL);
        if (out == n) continue;
        x = copies                    ? nearest(k, x, axis, out, how == KN_INTERP_NEAREST_EXACT)
            : how == KN_INTERP_LINEAR ? linear(k, x, axis, out, align_corners)
                                      : cubic(k, x, axis, out, align_corners);
    }
    return ki_handle(k, ki_t_cast(k, x, d));
}

/* ---- pixels and channels ----------------------------------------------------------------------------------- */

/* (.., C r r, H, W) to (.., C, H r, W r), and back. */
static kn_tensor shuffle(kn_tensor t, int r, bool apart, const char *fn) {
    ENTER(fn, t);
    kn_uop x = t->u;
    unsigned rank = ki_rank(x);
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, fn, 3, rank), ki_handle(k, NULL);
    if (!ki_shape_known(k, x)) return ki_handle(k, NULL);
    int64_t c = ki_dim_n(x, rank - 3), h = ki_dim_n(x, rank - 2), w = ki_dim_n(x, rank - 1), by = r;
    if (r < 1 || r > 1 << 15 || (apart ? h % by || w % by : c % (by * by)))
        return FAIL(KI_E_PIXELS, fn, r, (long long)c, (long long)h, (long long)w), ki_handle(k, NULL);
    ki_shape s = ki_shape_like(x);
    int64_t n = 1;
    for (unsigned i = 0; i + 3 < rank; i++) n *= s.d[i].n;
    if (apart) {
        x = RESHAPE(x, n * c, h / by, by, w / by, by);
        x = ki_t_move(k, ki_t_move(k, x, 2, 1), 4, 2);
        s.d[rank - 3].n = c * by * by, s.d[rank - 2].n = h / by, s.d[rank - 1].n = w / by;
    } else {
        x = RESHAPE(x, n * (c / (by * by)), by, by, h, w);
        x = ki_t_move(k, ki_t_move(k, x, 2, 4), 1, 2);
        s.d[rank - 3].n = c / (by * by), s.d[rank - 2].n = h * by, s.d[rank - 1].n = w * by;
    }
    return ki_handle(k, ki_t_reshape_to(k, x, &s));
}
kn_tensor kn_pixel_shuffle(kn_tensor x, int r) { return shuffle(x, r, false, "pixel_shuffle"); }
kn_tensor kn_pixel_unshuffle(kn_tensor x, int r) { return shuffle(x, r, true, "pixel_unshuffle"); }
