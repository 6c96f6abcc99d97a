/* window.h: what slides over the spatial axes of (N, C, S..): a convolution's kernel, a pool's window. */
#ifndef KI_WINDOW_H
#define KI_WINDOW_H

#include "tensor/build.h"

typedef struct ki_window {
    unsigned spatial; /* axes it slides over */
    bool ceil;        /* a last window may hang over: it starts on the input or on what is padded before it */
    int64_t size[KI_MAX_RANK], stride[KI_MAX_RANK], padding[KI_MAX_RANK], dilation[KI_MAX_RANK];
    int64_t out[KI_MAX_RANK]; /* windows along each axis; ki_window_view sets it */
} ki_window;

/* Stride, padding or dilation, named `what`: one entry for all n spatial axes, or one each, none below `least`. */
bool ki_window_list(kn_ctx *k, kn_ints list, unsigned n, int64_t least, const char *what, int64_t *out);

/* x (N, C, S..), padded with `fill` (NULL: 0), to (N, C, out.., size..). */
kn_uop ki_window_view(kn_ctx *k, kn_uop x, ki_window *w, kn_uop fill);

#endif
