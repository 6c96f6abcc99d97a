/* columns.c: windows (window.h) as columns of a matrix, and back. */
#include "tensor/window.h"

#include <stdio.h>
#include <string.h>

/* x (N, C, S..) to (N, C * size.., places): a column holds a window. */
static kn_uop as_columns(kn_ctx *k, kn_uop x, ki_window *w) {
    kn_uop v = ki_window_view(k, x, w, NULL); /* (N, C, out.., size..) */
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
                           ki_window *w) {
    *w = (ki_window){.spatial = spatial};
    if (2 + 2 * spatial > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    return ki_window_list(k, size, spatial, 1, "size", w->size) &&
           ki_window_list(k, stride, spatial, 1, "stride", w->stride) &&
           ki_window_list(k, padding, spatial, 0, "padding", w->padding) &&
           ki_window_list(k, dilation, spatial, 1, "dilation", w->dilation);
}

kn_tensor kn_im2col(kn_tensor x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation) {
    ENTER("im2col", x);
    ki_window w;
    unsigned rank = ki_rank(x->u);
    if (rank < 3) return FAIL(KI_E_RANK_WANTED, k->fn, 3, rank), ki_handle(k, NULL);
    bool ok = column_windows(k, rank - 2, size, stride, padding, dilation, &w);
    return ki_handle(k, ok ? as_columns(k, x->u, &w) : NULL);
}

/* The transpose of as_columns, which is what its gradient is. */
kn_tensor kn_col2im(kn_tensor columns, kn_ints image, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation) {
    ENTER("col2im", columns);
    char got[128], wanted[64];
    ki_window w;
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
    return ki_handle(k, ki_grad(k, &y, &u, 1, &x, 1, &out) ? out : NULL);
}
