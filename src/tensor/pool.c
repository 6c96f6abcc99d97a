/* pool.c: pooling: a reduction over windows (window.h), or over nearly equal parts of each spatial axis. */
#include "tensor/window.h"

#include "base/whole.h"

#include <math.h>

static bool pool_window(kn_ctx *k, kn_uop x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation, int ceil,
                        ki_window *w) {
    unsigned rank = ki_rank(x);
    *w = (ki_window){.spatial = rank - 2, .ceil = ceil != 0};
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, rank);
    if (!ki_window_list(k, size, w->spatial, 1, "size", w->size) ||
        !ki_window_list(k, stride, w->spatial, 1, "stride", w->stride) ||
        !ki_window_list(k, padding, w->spatial, 0, "padding", w->padding) ||
        !ki_window_list(k, dilation, w->spatial, 1, "dilation", w->dilation))
        return false;
    for (unsigned i = 0; i < w->spatial; i++)
        if (w->padding[i] > w->size[i] / 2)
            return FAIL(KI_E_POOL_PADDING, k->fn, (long long)w->padding[i], (long long)w->size[i]);
    return true;
}

static uint32_t window_axes(const ki_window *w) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < w->spatial; i++) bits |= UINT32_C(1) << (2 + w->spatial + i);
    return bits;
}

kn_tensor kn_max_pool(kn_tensor t, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation, int ceil) {
    ENTER("max_pool", t);
    ki_window w;
    if (!pool_window(k, t->u, size, stride, padding, dilation, ceil, &w)) return ki_handle(k, NULL);
    kn_uop v = ki_window_view(k, t->u, &w, ki_t_lowest(k, (kn_dtype)t->u->dtype));
    return ki_handle(k, ki_t_squeeze(k, ki_t_reduce(k, v, KN_MAX, window_axes(&w)), window_axes(&w)));
}

/* How many positions of each window count, as (1, 1, out.., 1..): those on the input, or also on its padding; what
 * hangs over behind that (ceil) never does. */
static kn_uop counted(kn_ctx *k, kn_uop x, const ki_window *w, bool padding) {
    ki_shape s = ki_shape_like(x);
    ki_window over = *w;
    s.d[0].n = s.d[1].n = 1;
    kn_uop one = ki_t_const(k, KN_F32, 1);
    if (!padding) return ki_t_sum(k, ki_window_view(k, ki_t_full(k, &s, one), &over, NULL), window_axes(w));
    for (unsigned i = 0; i < w->spatial; i++) s.d[2 + i].n += 2 * w->padding[i], over.padding[i] = 0;
    /* The same windows on what is padded already: rounding up must stop where it does there. */
    int64_t none[KI_MAX_RANK] = {0}, behind[KI_MAX_RANK] = {0};
    for (unsigned i = 0; i < w->spatial; i++) {
        int64_t need = (w->out[i] - 1) * w->stride[i] + w->size[i] - s.d[2 + i].n;
        behind[2 + i] = need > 0 ? need : 0;
    }
    over.ceil = false;
    return ki_t_sum(k, ki_window_view(k, ki_t_pad_with(k, ki_t_full(k, &s, one), none, behind, NULL), &over, NULL),
                    window_axes(w));
}

kn_tensor kn_avg_pool(kn_tensor t, kn_ints size, kn_ints stride, kn_ints padding, int ceil, int count_padding) {
    ENTER("avg_pool", t);
    ki_window w;
    kn_uop x = ki_t_float(k, t->u), mean;
    if (!x || !pool_window(k, x, size, stride, padding, KN_LIST(1), ceil, &w)) return ki_handle(k, NULL);
    uint32_t axes = window_axes(&w);
    kn_uop v = ki_window_view(k, x, &w, NULL);
    if (!v) return ki_handle(k, NULL);
    bool whole = true; /* all windows count all their positions */
    for (unsigned i = 0; i < w.spatial; i++) {
        int64_t end = (w.out[i] - 1) * w.stride[i] + w.size[i];
        whole &= (count_padding || !w.padding[i]) && end <= ki_dim_n(x, 2 + i) + 2 * w.padding[i];
    }
    if (whole) {
        mean = ki_t_mean(k, v, axes);
    } else {
        kn_uop sum = ki_t_sum(k, v, axes);
        mean = sum ? ki_t_cast(k, ki_t_div(k, sum, counted(k, x, &w, count_padding)), (kn_dtype)x->dtype) : NULL;
    }
    return ki_handle(k, ki_t_squeeze(k, mean, axes));
}

kn_tensor kn_lp_pool(kn_tensor t, double p, kn_ints size, kn_ints stride, int ceil) {
    ENTER("lp_pool", t);
    ki_window w;
    kn_uop x = ki_t_float(k, t->u);
    if (!(p > 0) || isinf(p)) return FAIL(KI_E_POOL_POWER, p), ki_handle(k, NULL);
    if (!x || !pool_window(k, x, size, stride, KN_LIST(0), KN_LIST(1), ceil, &w)) return ki_handle(k, NULL);
    uint32_t axes = window_axes(&w);
    kn_uop sum = ki_t_sum(k, ki_window_view(k, ki_t_pow(k, ki_t_abs(k, x), ki_t_lit(k, x, p)), &w, NULL), axes);
    return ki_handle(k, ki_t_squeeze(k, sum ? ki_t_pow(k, sum, ki_t_lit(k, sum, 1 / p)) : NULL, axes));
}

/* ---- parts of an axis -------------------------------------------------------------------------------------- */

/* The most positions that a part of n / out has: floor(i n / out) to ceil((i + 1) n / out) where i n / out leaves the most. */
static int64_t widest(int64_t n, int64_t out) {
    int64_t rest = n % out;
    return n / out + (rest != 0) + (rest > ki_gcd(rest, out));
}

/* Output i of an axis of n stands for its positions floor(i n / out) to ceil((i + 1) n / out): (.., n, ..) to
 * (.., out, .., most), the positions last, `fill` where a part has fewer than the most; `size`: how many it has. */
static kn_uop parts(kn_ctx *k, kn_uop x, unsigned axis, int64_t out, kn_uop fill, kn_uop *size) {
    int64_t n = ki_dim_n(x, axis), most = widest(n, out);
    *size = ki_t_const(k, KN_F32, (double)most);
    if (n % out == 0) return ki_t_windows(k, x, axis, most, most, 1);
    kn_dtype t = ki_index_dtype(KN_I32, (n + 1) * (out + 1));
    kn_uop i = RESHAPE(ki_t_iota(k, out, t), out, 1), j = RESHAPE(ki_t_iota(k, most, t), 1, most);
    kn_uop len = ki_t_const(k, t, (double)n), by = ki_t_const(k, t, (double)out);
    kn_uop first = ki_t_binary(k, KN_IDIV, ki_t_mul(k, i, len), by), up = ki_t_const(k, t, (double)(n + out - 1));
    kn_uop end = ki_t_binary(k, KN_IDIV, ki_t_add(k, ki_t_mul(k, i, len), up), by), at = ki_t_add(k, first, j);
    kn_uop picked = ki_t_take(k, x, at, axis);
    if (!picked) return NULL;
    picked = ki_t_move(k, picked, axis + 1, ki_rank(x));
    ki_shape s = {.n = ki_rank(x) + 1};
    for (unsigned a = 0; a < s.n; a++) s.d[a].n = a == axis ? out : a + 1 == s.n ? most : 1;
    kn_uop inside = ki_t_reshape_to(k, ki_t_lt(k, at, end), &s);
    s.d[s.n - 1].n = 1;
    *size = ki_t_reshape_to(k, ki_t_cast(k, ki_t_sub(k, end, first), KN_F32), &s);
    return ki_t_where(k, inside, picked, fill);
}

static kn_tensor adaptive(kn_tensor t, kn_ints sizes, const char *fn, bool mean) {
    ENTER(fn, t);
    kn_uop x = mean ? ki_t_float(k, t->u) : t->u;
    unsigned rank = ki_rank(t->u);
    int64_t out[KI_MAX_RANK];
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, fn, 3, rank), ki_handle(k, NULL);
    if (!x || !ki_shape_known(k, x) || !ki_window_list(k, sizes, rank - 2, 1, "size", out)) return ki_handle(k, NULL);
    kn_dtype d = (kn_dtype)x->dtype;
    for (unsigned axis = 2; axis < rank && x; axis++) {
        if (ki_dim_n(x, axis) == 0) return FAIL(KI_E_CONV_WINDOW, fn, 1LL, 0LL, axis - 2), ki_handle(k, NULL);
        uint32_t last = UINT32_C(1) << rank;
        kn_uop size, v = parts(k, x, axis, out[axis - 2], mean ? ki_t_const(k, d, 0) : ki_t_lowest(k, d), &size);
        if (!v) x = NULL;
        else if (mean) x = ki_t_cast(k, ki_t_squeeze(k, ki_t_div(k, ki_t_sum(k, v, last), size), last), d);
        else x = ki_t_squeeze(k, ki_t_reduce(k, v, KN_MAX, last), last);
    }
    return ki_handle(k, x);
}
kn_tensor kn_adaptive_avg_pool(kn_tensor t, kn_ints sizes) { return adaptive(t, sizes, "adaptive_avg_pool", true); }
kn_tensor kn_adaptive_max_pool(kn_tensor t, kn_ints sizes) { return adaptive(t, sizes, "adaptive_max_pool", false); }

/* ---- of images --------------------------------------------------------------------------------------------- */

kn_tensor kn_max_pool2d(kn_tensor x, int size, int stride, int padding) {
    return kn_max_pool(x, KN_LIST(size), KN_LIST(stride), KN_LIST(padding), KN_LIST(1), 0);
}
kn_tensor kn_avg_pool2d(kn_tensor x, int size, int stride, int padding) {
    return kn_avg_pool(x, KN_LIST(size), KN_LIST(stride), KN_LIST(padding), 0, 1);
}
