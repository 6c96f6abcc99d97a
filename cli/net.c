/* net.c: a small convolutional network, trained with Adam. See net.h.
 *
 * A step is captured: its graph is built once. What changes from step to step (the images, the labels, the learning rate)
 * lies in memory that is written to in between. */
#include "net.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static kn_tensor he(kn_ctx *k, kn_ints shape, int64_t fan_in) {
    return kn_param(kn_muls(kn_randn(k, shape), sqrt(2.0 / (double)fan_in)));
}

/* Memory of a tensor that is written to between steps; koine frees it when nothing needs it any more. */
static void *shared(kn_ctx *k, kn_dtype dtype, size_t item, kn_ints shape, kn_tensor *t) {
    size_t n = 1;
    for (int64_t i = 0; i < shape.n; i++) n *= (size_t)shape.v[i];
    void *data = calloc(n, item);
    if (data && kn_check(*t = kn_keep(kn_borrow_host(k, data, dtype, shape, free, data)))) free(data), data = NULL;
    return data;
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
    n->x = shared(k, KN_F32, sizeof *n->x, KN_SHAPE(batch, channels, height, width), &n->images);
    n->y = shared(k, KN_I32, sizeof *n->y, KN_SHAPE(batch), &n->labels);
    if (!n->x || !n->y) return kn_error(k) ? kn_error(k) : KN_NOMEM;
    n->adam = kn_adam(k, n->p, NET_PARAMS, 0, 0.9, 0.99, 1e-7);
    return n->adam ? kn_optim_realize(n->adam, NULL) : kn_error(k);
}

void net_close(net *n) {
    kn_captured_free(n->step);
    kn_captured_free(n->guess);
    kn_optim_free(n->adam);
    if (n->images) kn_drop(n->images);
    if (n->labels) kn_drop(n->labels);
    *n = (net){0};
}

static kn_tensor logits(const net *n, kn_tensor x) {
    x = kn_relu(kn_conv2d(x, n->p[0], n->p[1], n->stride, n->pad, 1, 1));
    x = kn_relu(kn_conv2d(x, n->p[2], n->p[3], 1, 0, 1, 1));
    x = kn_max_pool2d(x, 2, 2, 0);
    return kn_linear(kn_reshape(x, KN_SHAPE(n->batch, -1)), n->p[4], n->p[5]);
}

kn_tensor net_build(net *n) {
    kn_tensor loss = kn_cross_entropy(logits(n, n->images), n->labels);
    kn_optim_step(n->adam, loss);
    return loss;
}

kn_status net_step(net *n, double rate, float *loss) {
    kn_status s = kn_optim_rate(n->adam, rate);
    if (s) return s;
    if (n->step) {
        s = kn_replay(n->step);
    } else {
        kn_scope_open(n->k);
        n->loss = kn_keep(net_build(n));
        n->step = kn_optim_capture(n->adam, n->loss);
        kn_scope_close(n->k);
        if (!n->step) s = kn_error(n->k);
    }
    return s ? s : kn_to_host(n->loss, loss, sizeof *loss);
}

kn_status net_predict(net *n, int64_t *label) {
    kn_status s = KN_OK;
    if (n->guess) {
        s = kn_replay(n->guess);
    } else {
        kn_scope_open(n->k);
        n->best = kn_keep(kn_argmax(logits(n, n->images), 1, 0));
        n->guess = kn_capture(n->best);
        kn_scope_close(n->k);
        if (!n->guess) s = kn_error(n->k);
    }
    return s ? s : kn_to_host(n->best, label, (size_t)n->batch * sizeof *label);
}
