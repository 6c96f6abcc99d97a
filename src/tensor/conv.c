/* conv.c: convolution over windows, and what a convolution's input gets back (the transposed one). */
#include "tensor/window.h"

#include <string.h>

/* (N, G, 1, Cg, out.., size..) * (1, G, Og, Cg, 1.., size..), summed over Cg and size. */
static kn_uop conv(kn_ctx *k, kn_uop x, kn_uop weight, ki_window *w, int64_t groups) {
    char sx[128], sw[128];
    unsigned n = w->spatial;
    int64_t outputs = ki_dim_n(weight, 0), cg = ki_dim_n(weight, 1);
    if (groups < 1 || ki_dim_n(x, 1) != cg * groups || outputs % groups)
        return FAIL(KI_E_CONV_CHANNELS, ki_shape_text(x->type, sx, sizeof sx),
                    ki_shape_text(weight->type, sw, sizeof sw), (long long)groups);
    kn_dtype t = ki_promote((kn_dtype)x->dtype, (kn_dtype)weight->dtype);
    kn_dtype acc = ki_is_float(t) && ki_dtypes[t].bits < 32 ? KN_F32 : t;
    kn_uop v = ki_window_view(k, ki_t_cast(k, x, acc), w, NULL);
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
    return ki_t_cast(k, ki_t_reshape_to(k, ki_t_reduce(k, p, KN_ADD, sum), &result), t);
}

/* y (N, out, S..) plus bias (out,), if there is one. */
static kn_uop biased(kn_ctx *k, kn_uop y, kn_tensor bias) {
    char s[128];
    if (!y || !bias) return y;
    ki_shape sb = {.n = ki_rank(y) - 1};
    for (unsigned i = 0; i < sb.n; i++) sb.d[i].n = i ? 1 : ki_dim_n(y, 1);
    if (ki_numel(bias->u) != ki_dim_n(y, 1) || ki_rank(bias->u) != 1)
        return FAIL(KI_E_CONV_BIAS, ki_shape_text(bias->u->type, s, sizeof s), (long long)ki_dim_n(y, 1));
    return ki_t_add(k, y, ki_t_reshape_to(k, bias->u, &sb));
}

/* The kernel as a window; x and weight have one rank. */
static bool kernel_window(kn_ctx *k, kn_uop x, kn_uop weight, kn_ints stride, kn_ints padding, kn_ints dilation,
                          ki_window *w) {
    unsigned rank = ki_rank(x);
    *w = (ki_window){.spatial = rank - 2};
    if (rank < 3 || ki_rank(weight) != rank)
        return FAIL(KI_E_RANK_WANTED, k->fn, rank < 3 ? 3 : (int)rank, rank < 3 ? rank : ki_rank(weight));
    if (!ki_shape_known(k, weight) || !ki_window_list(k, stride, w->spatial, 1, "stride", w->stride) ||
        !ki_window_list(k, padding, w->spatial, 0, "padding", w->padding) ||
        !ki_window_list(k, dilation, w->spatial, 1, "dilation", w->dilation))
        return false;
    for (unsigned i = 0; i < w->spatial; i++) w->size[i] = ki_dim_n(weight, 2 + i);
    return true;
}

kn_tensor kn_conv(kn_tensor x, kn_tensor weight, kn_tensor bias, kn_ints stride, kn_ints padding, kn_ints dilation,
                  int groups) {
    ENTER_("conv", 4, x, weight, bias);
    ki_window w;
    if (!kernel_window(k, x->u, weight->u, stride, padding, dilation, &w)) return ki_handle(k, NULL);
    return ki_handle(k, biased(k, conv(k, x->u, weight->u, &w, groups), bias));
}

/* ---- transposed -------------------------------------------------------------------------------------------- */

/* The shape that a convolution by w takes to x's. */
static bool input_of(kn_ctx *k, kn_uop x, kn_uop weight, const ki_window *w, const int64_t *extra, int groups,
                     kn_ints *s) {
    char sx[128], sw[128];
    if (groups < 1 || ki_dim_n(x, 1) != ki_dim_n(weight, 0) || ki_dim_n(x, 1) % groups)
        return FAIL(KI_E_CONV_BACK_CHANNELS, ki_shape_text(x->type, sx, sizeof sx),
                    ki_shape_text(weight->type, sw, sizeof sw), groups);
    *s = KN_LIST(ki_dim_n(x, 0), ki_dim_n(weight, 1) * groups);
    for (unsigned i = 0; i < w->spatial; i++) {
        int64_t reach = w->dilation[i] * (w->size[i] - 1) + 1;
        int64_t n = (ki_dim_n(x, 2 + i) - 1) * w->stride[i] - 2 * w->padding[i] + reach + extra[i];
        if (extra[i] >= w->stride[i] && extra[i] >= w->dilation[i])
            return FAIL(KI_E_CONV_EXTRA, (long long)extra[i], (long long)w->stride[i], (long long)w->dilation[i]);
        if (n < 1) return FAIL(KI_E_CONV_BACK_EMPTY, (long long)n, i);
        s->v[s->n++] = n;
    }
    return true;
}

/* A convolution is linear in its input: what the input gets back for x does not depend on it, so any stands for it. */
static kn_uop conv_back(kn_ctx *k, kn_uop x, kn_uop weight, ki_window *w, const int64_t *extra, int groups) {
    kn_ints s;
    kn_dtype t = ki_promote((kn_dtype)x->dtype, (kn_dtype)weight->dtype);
    if (!ki_is_float(t)) return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[t].name, "floats");
    if (!ki_shape_known(k, x) || !input_of(k, x, weight, w, extra, groups, &s)) return NULL;
    kn_uop any = ki_t_input(k, "input", t, s), y = conv(k, any, weight, w, groups), back;
    if (!y) return NULL;
    /* output_padding of a stride or more (up to a dilation) makes windows that x says nothing of. */
    int64_t before[KI_MAX_RANK] = {0}, after[KI_MAX_RANK] = {0};
    for (unsigned i = 0; i < w->spatial; i++) after[2 + i] = ki_dim_n(y, 2 + i) - ki_dim_n(x, 2 + i);
    x = ki_t_pad_with(k, ki_t_cast(k, x, t), before, after, NULL);
    return x && ki_grad(k, &y, &x, 1, &any, 1, &back) ? back : NULL;
}

kn_tensor kn_conv_transpose(kn_tensor x, kn_tensor weight, kn_tensor bias, kn_ints stride, kn_ints padding,
                            kn_ints output_padding, kn_ints dilation, int groups) {
    ENTER_("conv_transpose", 4, x, weight, bias);
    ki_window w;
    int64_t extra[KI_MAX_RANK];
    if (!kernel_window(k, x->u, weight->u, stride, padding, dilation, &w) ||
        !ki_window_list(k, output_padding, w.spatial, 0, "output_padding", extra))
        return ki_handle(k, NULL);
    return ki_handle(k, biased(k, conv_back(k, x->u, weight->u, &w, extra, groups), bias));
}

/* ---- of images --------------------------------------------------------------------------------------------- */

static bool no_image(kn_tensor x) { return x && x->u && ki_rank(x->u) != 4; }
static kn_tensor refused(const char *fn, kn_tensor x) {
    ENTER(fn, x);
    return FAIL(KI_E_RANK_WANTED, fn, 4, ki_rank(x->u)), ki_handle(k, NULL);
}
kn_tensor kn_conv2d(kn_tensor x, kn_tensor weight, kn_tensor bias, int stride, int padding, int dilation, int groups) {
    if (no_image(x)) return refused("conv2d", x);
    return kn_conv(x, weight, bias, KN_LIST(stride), KN_LIST(padding), KN_LIST(dilation), groups);
}
kn_tensor kn_conv_transpose2d(kn_tensor x, kn_tensor weight, kn_tensor bias, int stride, int padding,
                              int output_padding, int dilation, int groups) {
    if (no_image(x)) return refused("conv_transpose2d", x);
    return kn_conv_transpose(x, weight, bias, KN_LIST(stride), KN_LIST(padding), KN_LIST(output_padding),
                             KN_LIST(dilation), groups);
}
