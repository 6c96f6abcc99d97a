/* layers.c: parameters of the common layers and their use. */
#include "tensor/build.h"

#include <math.h>

/* What using no layer gives. */
static kn_tensor no_layer(const char *fn, kn_tensor x) {
    ENTER(fn, x);
    ki_given(k, fn, "the layer", NULL);
    return ki_handle(k, NULL);
}

/* Kept, in storage of its own. */
static kn_tensor parameter(kn_tensor init) { return kn_keep(kn_param(init)); }
static kn_tensor uniform(kn_ctx *k, kn_ints shape, int64_t inputs) {
    double limit = 1 / sqrt((double)(inputs > 0 ? inputs : 1));
    return parameter(kn_uniform(k, shape, -limit, limit, KN_F32, NULL));
}

kn_linear_layer kn_linear_new(kn_ctx *k, int64_t in, int64_t out, int bias) {
    kn_linear_layer l = {uniform(k, KN_SHAPE(out, in), in), NULL};
    if (bias) l.bias = uniform(k, KN_SHAPE(out), in);
    return l;
}
kn_tensor kn_linear_apply(const kn_linear_layer *l, kn_tensor x) {
    return l ? kn_linear(x, l->weight, l->bias) : no_layer("linear_apply", x);
}

kn_conv2d_layer kn_conv2d_new(kn_ctx *k, int64_t in, int64_t out, int size, int stride, int padding, int bias) {
    kn_conv2d_layer l = {NULL, NULL, stride, padding, 1, 1};
    int64_t inputs = in * size * size;
    l.weight = uniform(k, KN_SHAPE(out, in, size, size), inputs);
    if (bias) l.bias = uniform(k, KN_SHAPE(out), inputs);
    return l;
}
kn_tensor kn_conv2d_apply(const kn_conv2d_layer *l, kn_tensor x) {
    if (!l) return no_layer("conv2d_apply", x);
    return kn_conv2d(x, l->weight, l->bias, l->stride, l->padding, l->dilation, l->groups);
}

kn_norm_layer kn_layer_norm_new(kn_ctx *k, int64_t size) {
    kn_norm_layer l = {.eps = 1e-5};
    l.weight = parameter(kn_ones(k, KN_SHAPE(size), KN_F32));
    l.bias = parameter(kn_zeros(k, KN_SHAPE(size), KN_F32));
    return l;
}
kn_tensor kn_layer_norm_apply(const kn_norm_layer *l, kn_tensor x) {
    if (!l) return no_layer("layer_norm_apply", x);
    return kn_layer_norm(x, 1, l->weight, l->bias, l->eps);
}

kn_norm_layer kn_batch_norm_new(kn_ctx *k, int64_t channels) {
    kn_norm_layer l = kn_layer_norm_new(k, channels);
    l.momentum = 0.1;
    l.mean = parameter(kn_zeros(k, KN_SHAPE(channels), KN_F32));
    l.var = parameter(kn_ones(k, KN_SHAPE(channels), KN_F32));
    return l;
}
kn_tensor kn_batch_norm_apply(const kn_norm_layer *l, kn_tensor x, int training) {
    if (!l) return no_layer("batch_norm_apply", x);
    if (training) return kn_batch_norm_train(x, l->mean, l->var, l->weight, l->bias, l->momentum, l->eps);
    return kn_batch_norm(x, l->mean, l->var, l->weight, l->bias, l->eps);
}
