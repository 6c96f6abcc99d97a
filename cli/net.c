/* net.c: a small convolutional network, trained with Adam. See net.h.
 *
 * A step builds its graph afresh inside a scope; equal graphs are compiled once. What changes from step to step (the
 * images, the labels, the learning rate) enters as data, never as a constant, or every step would be a new program. */
#include "net.h"

#include <math.h>
#include <stdbool.h>

static const double decay1 = 0.9, decay2 = 0.99;

static kn_tensor he(kn_ctx *k, kn_ints shape, int64_t fan_in) {
    return kn_param(kn_muls(kn_randn(k, shape), sqrt(2.0 / (double)fan_in)));
}

static int64_t after(int64_t n, int size, int stride, int pad) { return (n + 2 * pad - size) / stride + 1; }

kn_status net_open(net *n, kn_ctx *k, int64_t channels, int64_t height, int64_t width, int classes, int64_t batch) {
    enum { C1 = 16, C2 = 32 };
    bool large = height >= 20 && width >= 20;
    *n = (net){.k = k, .channels = channels, .height = height, .width = width, .batch = batch, .classes = classes};
    n->size = large ? 5 : 3;
    n->stride = large ? 2 : 1;
    n->pad = large ? 0 : 1;
    int64_t s = n->size, h = after(after(height, n->size, n->stride, n->pad), n->size, 1, 0) / 2,
            w = after(after(width, n->size, n->stride, n->pad), n->size, 1, 0) / 2;
    n->p[0] = he(k, KN_SHAPE(C1, channels, s, s), channels * s * s);
    n->p[1] = kn_param(kn_zeros(k, KN_SHAPE(C1), KN_F32));
    n->p[2] = he(k, KN_SHAPE(C2, C1, s, s), C1 * s * s);
    n->p[3] = kn_param(kn_zeros(k, KN_SHAPE(C2), KN_F32));
    n->p[4] = kn_param(kn_muls(kn_randn(k, KN_SHAPE(classes, C2 * h * w)), sqrt(0.5 / (double)(C2 * h * w))));
    n->p[5] = kn_param(kn_zeros(k, KN_SHAPE(classes), KN_F32));
    for (int i = 0; i < NET_PARAMS; i++) {
        n->m[i] = kn_param(kn_zeros_like(n->p[i]));
        n->v[i] = kn_param(kn_zeros_like(n->p[i]));
    }
    n->b1t = n->b2t = 1;
    kn_tensor all[3 * NET_PARAMS];
    for (int i = 0; i < NET_PARAMS; i++) {
        all[3 * i] = n->p[i];
        all[3 * i + 1] = n->m[i];
        all[3 * i + 2] = n->v[i];
    }
    return kn_realize_at(KN_FILE_LINE_, 3 * NET_PARAMS, all);
}

static kn_tensor logits(const net *n, kn_tensor x) {
    x = kn_relu(kn_conv2d(x, n->p[0], n->p[1], n->stride, n->pad, 1, 1));
    x = kn_relu(kn_conv2d(x, n->p[2], n->p[3], 1, 0, 1, 1));
    x = kn_max_pool2d(x, 2, 2, 0);
    return kn_linear(kn_reshape(x, KN_SHAPE(n->batch, -1)), n->p[4], n->p[5]);
}

static kn_tensor images(const net *n, const float *x) {
    return kn_from_host(n->k, x, KN_F32, KN_SHAPE(n->batch, n->channels, n->height, n->width));
}

void net_build(net *n, const float *x, const int32_t *y, double rate, kn_tensor out[NET_OUT]) {
    kn_ctx *k = n->k;
    n->b1t *= decay1;
    n->b2t *= decay2;
    float lr = (float)(rate * sqrt(1 - n->b2t) / (1 - n->b1t)); /* both moments' bias in one number */
    kn_tensor labels = kn_from_host(k, y, KN_I32, KN_SHAPE(n->batch)), step = kn_from_host(k, &lr, KN_F32, KN_SHAPE());
    kn_tensor loss = kn_cross_entropy(logits(n, images(n, x)), labels), g[NET_PARAMS];
    out[0] = loss;
    kn_grad(loss, n->p, NET_PARAMS, g);
    for (int i = 0; i < NET_PARAMS; i++) {
        kn_tensor *o = &out[3 * i + 1];
        o[0] = kn_assign(n->m[i], kn_add(kn_muls(n->m[i], decay1), kn_muls(g[i], 1 - decay1)));
        o[1] = kn_assign(n->v[i], kn_add(kn_muls(n->v[i], decay2), kn_muls(kn_square(g[i]), 1 - decay2)));
        kn_tensor move = kn_div(n->m[i], kn_adds(kn_sqrt(n->v[i]), 1e-7));
        o[2] = kn_assign(n->p[i], kn_sub(n->p[i], kn_mul(move, step)));
    }
}

kn_status net_step(net *n, const float *x, const int32_t *y, double rate, float *loss) {
    kn_tensor out[NET_OUT];
    kn_scope_open(n->k);
    net_build(n, x, y, rate, out);
    kn_status s = kn_realize_at(KN_FILE_LINE_, NET_OUT, out);
    if (!s) s = kn_to_host(out[0], loss, sizeof *loss);
    kn_scope_close(n->k);
    return s;
}

kn_status net_predict(net *n, const float *x, int64_t *label) {
    kn_scope_open(n->k);
    kn_tensor best = kn_argmax(logits(n, images(n, x)), 1, 0);
    kn_status s = kn_to_host(best, label, (size_t)n->batch * sizeof *label);
    kn_scope_close(n->k);
    return s;
}
