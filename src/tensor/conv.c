/* conv.c: convolution and pooling over windows: a view (ki_t_windows), then a product or a reduction. */
#include "tensor/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Stride, padding or dilation: one entry for all spatial axes, or one each. */
static bool per_axis(kn_ctx *k, kn_ints list, unsigned n, int64_t least, const char *what, int64_t *out) {
    if (list.n != 1 && list.n != (int64_t)n) return FAIL(KI_E_CONV_LIST, k->fn, what, n, (long long)list.n);
    for (unsigned i = 0; i < n; i++) {
        out[i] = list.v[list.n == 1 ? 0 : i];
        if (out[i] < least || out[i] > INT64_C(1) << 40)
            return FAIL(KI_E_CONV_VALUE, k->fn, what, (long long)out[i], (long long)least);
    }
    return true;
}

typedef struct window {
    unsigned spatial;
    int64_t size[KI_MAX_RANK], stride[KI_MAX_RANK], padding[KI_MAX_RANK], dilation[KI_MAX_RANK], out[KI_MAX_RANK];
} window;

/* x (N, C, S..), padded with `fill`, to (N, C, out.., size..). */
static kn_uop windows(kn_ctx *k, kn_uop x, window *w, kn_uop fill) {
    int64_t pad[KI_MAX_RANK] = {0};
    if (!ki_shape_known(k, x)) return NULL;
    for (unsigned i = 0; i < w->spatial; i++) {
        int64_t n = ki_dim_n(x, 2 + i) + 2 * w->padding[i], reach = w->dilation[i] * (w->size[i] - 1) + 1;
        if (reach > n) return FAIL(KI_E_CONV_WINDOW, k->fn, (long long)reach, (long long)n, i);
        w->out[i] = (n - reach) / w->stride[i] + 1;
        pad[2 + i] = w->padding[i];
    }
    x = ki_t_pad_with(k, x, pad, pad, fill);
    for (unsigned i = 0; i < w->spatial; i++) x = ki_t_windows(k, x, 2 + i, w->size[i], w->stride[i], w->dilation[i]);
    return x;
}

/* ---- convolution ------------------------------------------------------------------------------------------- */

/* (N, G, 1, Cg, out.., size..) * (1, G, Og, Cg, 1.., size..), summed over Cg and size. */
static kn_uop conv(kn_ctx *k, kn_uop x, kn_uop weight, kn_uop bias, window *w, int64_t groups) {
    char sx[128], sw[128];
    unsigned n = w->spatial;
    int64_t outputs = ki_dim_n(weight, 0), cg = ki_dim_n(weight, 1);
    if (groups < 1 || ki_dim_n(x, 1) != cg * groups || outputs % groups)
        return FAIL(KI_E_CONV_CHANNELS, ki_shape_text(x->type, sx, sizeof sx),
                    ki_shape_text(weight->type, sw, sizeof sw), (long long)groups);
    kn_dtype t = ki_promote((kn_dtype)x->dtype, (kn_dtype)weight->dtype);
    kn_dtype acc = ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : t;
    kn_uop v = windows(k, ki_t_cast(k, x, acc), w, NULL);
    if (!v) return NULL;
    if (4 + 2 * n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    ki_shape a = {.n = 4 + 2 * n}, b = {.n = 4 + 2 * n}, result = {.n = 2 + n};
    a.d[0] = x->type->dim[0], a.d[1].n = groups, a.d[2].n = 1, a.d[3].n = cg;
    b.d[0].n = 1, b.d[1].n = groups, b.d[2].n = outputs / groups, b.d[3].n = cg;
    result.d[0] = x->type->dim[0], result.d[1].n = outputs;
    uint32_t sum = 1u << 3;
    for (unsigned i = 0; i < n; i++) {
        a.d[4 + i].n = result.d[2 + i].n = w->out[i];
        b.d[4 + i].n = 1;
        a.d[4 + n + i].n = b.d[4 + n + i].n = w->size[i];
        sum |= UINT32_C(1) << (4 + n + i);
    }
    kn_uop p = ki_t_mul(k, ki_t_reshape_to(k, v, &a), ki_t_reshape_to(k, ki_t_cast(k, weight, acc), &b));
    kn_uop y = ki_t_cast(k, ki_t_reshape_to(k, ki_t_reduce(k, p, KN_ADD, sum), &result), t);
    if (!bias) return y;
    ki_shape sb = {.n = 1 + n};
    for (unsigned i = 0; i <= n; i++) sb.d[i].n = i ? 1 : outputs;
    if (ki_numel(bias) != outputs || ki_rank(bias) != 1)
        return FAIL(KI_E_CONV_BIAS, ki_shape_text(bias->type, sx, sizeof sx), (long long)outputs);
    return ki_t_add(k, y, ki_t_reshape_to(k, bias, &sb));
}

kn_tensor kn_conv(kn_tensor x, kn_tensor weight, kn_tensor bias, kn_ints stride, kn_ints padding, kn_ints dilation,
                  int groups) {
    ENTER_("conv", 4, x, weight, bias);
    unsigned rank = ki_rank(x->u);
    window w = {.spatial = rank - 2};
    if (rank < 3 || ki_rank(weight->u) != rank)
        return FAIL(KI_E_RANK_WANTED, k->fn, rank < 3 ? 3 : (int)rank, rank < 3 ? rank : ki_rank(weight->u)),
               ki_handle(k, NULL);
    if (!ki_shape_known(k, weight->u) || !per_axis(k, stride, w.spatial, 1, "stride", w.stride) ||
        !per_axis(k, padding, w.spatial, 0, "padding", w.padding) ||
        !per_axis(k, dilation, w.spatial, 1, "dilation", w.dilation))
        return ki_handle(k, NULL);
    for (unsigned i = 0; i < w.spatial; i++) w.size[i] = ki_dim_n(weight->u, 2 + i);
    return ki_handle(k, conv(k, x->u, weight->u, bias ? bias->u : NULL, &w, groups));
}

kn_tensor kn_conv2d(kn_tensor x, kn_tensor weight, kn_tensor bias, int stride, int padding, int dilation, int groups) {
    if (x && x->u && ki_rank(x->u) != 4) {
        ENTER_("conv2d", 4, x, weight, bias);
        return FAIL(KI_E_RANK_WANTED, "conv2d", 4, ki_rank(x->u)), ki_handle(k, NULL);
    }
    return kn_conv(x, weight, bias, KN_LIST(stride), KN_LIST(padding), KN_LIST(dilation), groups);
}

/* ---- pooling ----------------------------------------------------------------------------------------------- */

static bool pool_window(kn_ctx *k, kn_uop x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation,
                        window *w) {
    unsigned rank = ki_rank(x);
    *w = (window){.spatial = rank - 2};
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, rank);
    if (!per_axis(k, size, w->spatial, 1, "size", w->size) ||
        !per_axis(k, stride, w->spatial, 1, "stride", w->stride) ||
        !per_axis(k, padding, w->spatial, 0, "padding", w->padding) ||
        !per_axis(k, dilation, w->spatial, 1, "dilation", w->dilation))
        return false;
    for (unsigned i = 0; i < w->spatial; i++)
        if (w->padding[i] > w->size[i] / 2)
            return FAIL(KI_E_POOL_PADDING, k->fn, (long long)w->padding[i], (long long)w->size[i]);
    return true;
}

static uint32_t window_axes(const window *w) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < w->spatial; i++) bits |= UINT32_C(1) << (2 + w->spatial + i);
    return bits;
}

kn_tensor kn_max_pool(kn_tensor t, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation) {
    ENTER("max_pool", t);
    window w;
    if (!pool_window(k, t->u, size, stride, padding, dilation, &w)) return ki_handle(k, NULL);
    kn_uop v = windows(k, t->u, &w, ki_t_lowest(k, (kn_dtype)t->u->dtype));
    return ki_handle(k, ki_t_squeeze(k, ki_t_reduce(k, v, KN_MAX, window_axes(&w)), window_axes(&w)));
}

kn_tensor kn_avg_pool(kn_tensor t, kn_ints size, kn_ints stride, kn_ints padding, int count_padding) {
    ENTER("avg_pool", t);
    window w;
    kn_uop x = ki_t_float(k, t->u);
    if (!x || !pool_window(k, x, size, stride, padding, KN_LIST(1), &w)) return ki_handle(k, NULL);
    uint32_t axes = window_axes(&w);
    kn_uop v = windows(k, x, &w, NULL), mean;
    bool padded = false;
    for (unsigned i = 0; i < w.spatial; i++) padded |= w.padding[i] != 0;
    if (count_padding || !padded) {
        mean = ki_t_mean(k, v, axes);
    } else {
        ki_shape s = ki_shape_like(x);
        s.d[0].n = s.d[1].n = 1;
        kn_uop n = ki_t_sum(k, windows(k, ki_t_full(k, &s, ki_t_const(k, KN_F32, 1)), &w, NULL), axes);
        kn_uop sum = ki_t_sum(k, v, axes);
        mean = sum ? ki_t_cast(k, ki_t_div(k, sum, n), (kn_dtype)x->dtype) : NULL;
    }
    return ki_handle(k, ki_t_squeeze(k, mean, axes));
}

kn_tensor kn_max_pool2d(kn_tensor x, int size, int stride, int padding) {
    return kn_max_pool(x, KN_LIST(size), KN_LIST(stride), KN_LIST(padding), KN_LIST(1));
}
kn_tensor kn_avg_pool2d(kn_tensor x, int size, int stride, int padding) {
    return kn_avg_pool(x, KN_LIST(size), KN_LIST(stride), KN_LIST(padding), 1);
}

/* ---- windows as columns ------------------------------------------------------------------------------------- */

/* x (N, C, S..) to (N, C * size.., places): a column holds a window. */
static kn_uop as_columns(kn_ctx *k, kn_uop x, window *w) {
    kn_uop v = windows(k, x, w, NULL); /* (N, C, out.., size..) */
    if (!v) return NULL;
    unsigned n = w->spatial;
    int64_t order[KI_MAX_RANK] = {0, 1};
    ki_shape s = {.n = 3, .d = {x->type->dim[0], x->type->dim[1], {1, NULL}}};
    for (unsigned i = 0; i < n; i++) {
        order[2 + i] = 2 + n + i, order[2 + n + i] = 2 + i;
        s.d[1].n *= w->size[i], s.d[2].n *= w->out[i];
    }
    return ki_t_reshape_to(k, ki_permute(&k->ir, v, order, 2 + 2 * n), &s);
}

static bool column_windows(kn_ctx *k, unsigned spatial, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation,
                           window *w) {
    *w = (window){.spatial = spatial};
    if (2 + 2 * spatial > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    return per_axis(k, size, spatial, 1, "size", w->size) && per_axis(k, stride, spatial, 1, "stride", w->stride) &&
           per_axis(k, padding, spatial, 0, "padding", w->padding) &&
           per_axis(k, dilation, spatial, 1, "dilation", w->dilation);
}

kn_tensor kn_im2col(kn_tensor x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation) {
    ENTER("im2col", x);
    window w;
    unsigned rank = ki_rank(x->u);
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, rank), ki_handle(k, NULL);
    bool ok = column_windows(k, rank - 2, size, stride, padding, dilation, &w);
    return ki_handle(k, ok ? as_columns(k, x->u, &w) : NULL);
}

/* The transpose of as_columns, which is what its gradient is. */
kn_tensor kn_col2im(kn_tensor columns, kn_ints image, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation) {
    ENTER("col2im", columns);
    char got[128], wanted[64];
    window w;
    ki_shape s, read;
    kn_uop u = ki_t_float(k, columns->u), x, y, out;
    if (ki_rank(columns->u) != 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, ki_rank(columns->u)), ki_handle(k, NULL);
    if (!u || !ki_shape_known(k, u) || !ki_shape_read(k, image, &read)) return ki_handle(k, NULL);
    if (!column_windows(k, read.n, size, stride, padding, dilation, &w)) return ki_handle(k, NULL);
    int64_t each = 1;
    for (unsigned i = 0; i < read.n; i++) each *= w.size[i];
    s = (ki_shape){.n = 2 + read.n, .d = {u->type->dim[0], {ki_dim_n(u, 1) / each, NULL}}};
    memcpy(s.d + 2, read.d, read.n * sizeof *s.d);
    x = ki_t_full(k, &s, ki_t_lit(k, u, 0));
    y = x ? as_columns(k, x, &w) : NULL;
    if (!y) return ki_handle(k, NULL);
    if (!ki_same_shape(y, u)) {
        snprintf(wanted, sizeof wanted, "(N, C * %lld, %lld)", (long long)each, (long long)ki_dim_n(y, 2));
        return FAIL(KI_E_FOLD_SHAPE, k->fn, ki_shape_text(u->type, got, sizeof got), wanted), ki_handle(k, NULL);
    }
    return ki_handle(k, ki_grad(k, y, u, &x, 1, &out) ? out : NULL);
}
