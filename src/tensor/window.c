/* window.c: windows over spatial axes as a view. See window.h. */
#include "tensor/window.h"

bool ki_window_list(kn_ctx *k, kn_ints list, unsigned n, int64_t least, const char *what, int64_t *out) {
    if (list.n != 1 && list.n != (int64_t)n) return FAIL(KI_E_CONV_LIST, k->fn, what, n, (long long)list.n);
    for (unsigned i = 0; i < n; i++) {
        out[i] = list.v[list.n == 1 ? 0 : i];
        if (out[i] < least || out[i] > INT64_C(1) << 40)
            return FAIL(KI_E_CONV_VALUE, k->fn, what, (long long)out[i], (long long)least);
    }
    return true;
}

/* Windows along axis i, and how far the last one hangs over the padded input. */
static int64_t count(const ki_window *w, unsigned i, int64_t n, int64_t reach, int64_t *over) {
    int64_t room = n + 2 * w->padding[i] - reach, out = room / w->stride[i] + 1;
    if (w->ceil && room % w->stride[i] && out * w->stride[i] < n + w->padding[i]) out++;
    *over = (out - 1) * w->stride[i] > room ? (out - 1) * w->stride[i] - room : 0;
    return out;
}

kn_uop ki_window_view(kn_ctx *k, kn_uop x, ki_window *w, kn_uop fill) {
    int64_t before[KI_MAX_RANK] = {0}, after[KI_MAX_RANK] = {0};
    if (!ki_shape_known(k, x)) return NULL;
    for (unsigned i = 0; i < w->spatial; i++) {
        int64_t n = ki_dim_n(x, 2 + i), reach = w->dilation[i] * (w->size[i] - 1) + 1, over;
        if (reach > n + 2 * w->padding[i])
            return FAIL(KI_E_CONV_WINDOW, k->fn, (long long)reach, (long long)(n + 2 * w->padding[i]), i);
        w->out[i] = count(w, i, n, reach, &over);
        before[2 + i] = w->padding[i];
        after[2 + i] = w->padding[i] + over;
    }
    x = ki_t_pad_with(k, x, before, after, fill);
    for (unsigned i = 0; i < w->spatial; i++) x = ki_t_windows(k, x, 2 + i, w->size[i], w->stride[i], w->dilation[i]);
    return x;
}
