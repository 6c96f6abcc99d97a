/* nn.h: layers and optimizers: parameters and the tensor functions that use and change them. C99 and C++ clean.
 *
 *     kn_linear_layer fc = kn_linear_new(k, 784, 10, 1);             layers are structs of parameters
 *     kn_tensor loss = kn_cross_entropy(kn_linear_apply(&fc, x), labels);
 *     kn_optim *opt = kn_adam(k, params, 2, 1e-3, 0.9, 0.999, 1e-8);  keeps its own state tensors
 *     kn_optim_step(opt, loss);                                       gradients and assigns, lazily
 *     kn_optim_realize(opt, loss);                                    runs the step: state, parameters and loss
 */
#ifndef KN_NN_H
#define KN_NN_H

#include <koine/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers: parameters start as in PyTorch, uniform within 1/sqrt(inputs); they are kept (kn_keep) -------- */

typedef struct kn_linear_layer {
    kn_tensor weight, bias; /* (out, in); (out,) or NULL */
} kn_linear_layer;
KN_API kn_linear_layer kn_linear_new(kn_ctx *k, int64_t in, int64_t out, int bias); /* weight (out, in); bias 0: none */
KN_API kn_tensor kn_linear_apply(const kn_linear_layer *l, kn_tensor x);            /* x (..., in) to (..., out) */

typedef struct kn_conv2d_layer {
    kn_tensor weight, bias; /* (out, in / groups, size, size); (out,) or NULL */
    int stride, padding, dilation, groups;
} kn_conv2d_layer;
KN_API kn_conv2d_layer kn_conv2d_new(kn_ctx *k, int64_t in, int64_t out, int size, int stride, int padding, int bias); /* square windows; bias 0: none */
KN_API kn_tensor kn_conv2d_apply(const kn_conv2d_layer *l, kn_tensor x); /* x (N, in, H, W) */

typedef struct kn_norm_layer {
    kn_tensor weight, bias, mean, var; /* mean and var: batch norm's running statistics, else NULL */
    double eps, momentum;
} kn_norm_layer;
KN_API kn_norm_layer kn_layer_norm_new(kn_ctx *k, int64_t size);                         /* weight 1, bias 0: (size,) */
KN_API kn_tensor kn_layer_norm_apply(const kn_norm_layer *l, kn_tensor x);               /* over the last axis */
KN_API kn_norm_layer kn_batch_norm_new(kn_ctx *k, int64_t channels);                     /* weight 1, bias 0, mean 0, var 1: (channels,) */
KN_API kn_tensor kn_batch_norm_apply(const kn_norm_layer *l, kn_tensor x, int training); /* x (N, C, ...); training: mean and var move, realise them too */

/* ---- optimizers -------------------------------------------------------------------------------------------- */

typedef struct kn_optim kn_optim;
/* The parameters are kept. NULL: kn_message(k) says why. */
KN_API kn_optim *kn_sgd(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double momentum, double weight_decay);
KN_API kn_optim *kn_adam(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double beta1, double beta2, double eps);
KN_API kn_optim *kn_adamw(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double beta1, double beta2, double eps, double weight_decay);
KN_API void kn_optim_free(kn_optim *o);
/* A new learning rate, for the steps that follow; the program stays the same. */
KN_API kn_status kn_optim_rate(kn_optim *o, double rate);
/* Gradients of loss and the assigns of one step, lazily. */
KN_API kn_status kn_optim_step(kn_optim *o, kn_tensor loss);
/* Computes what the step assigned, what else is to be assigned (kn_pending: running statistics), and extra (may be NULL), in one program. */
KN_API kn_status kn_optim_realize(kn_optim *o, kn_tensor extra);
/* The same, captured: kn_replay is the next step, at the rate that kn_optim_rate gave last. NULL: kn_message says why. */
KN_API kn_captured *kn_optim_capture(kn_optim *o, kn_tensor extra);
/* What a step writes: the parameters, then the state. For kn_realize with more tensors. */
KN_API size_t kn_optim_state(const kn_optim *o, const kn_tensor **out);

#ifdef __cplusplus
}
#endif
#ifndef KN_NO_LOC
#define kn_optim_step(...) KN_STATUS_HERE_((kn_optim_step)(__VA_ARGS__))
#define kn_optim_realize(...) KN_STATUS_HERE_((kn_optim_realize)(__VA_ARGS__))
#define kn_linear_apply(...) KN_HERE_((kn_linear_apply)(__VA_ARGS__))
#define kn_conv2d_apply(...) KN_HERE_((kn_conv2d_apply)(__VA_ARGS__))
#define kn_layer_norm_apply(...) KN_HERE_((kn_layer_norm_apply)(__VA_ARGS__))
#define kn_batch_norm_apply(...) KN_HERE_((kn_batch_norm_apply)(__VA_ARGS__))
#endif
#endif
