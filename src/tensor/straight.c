/* straight.c: straight-through: a value whose gradient is another's. DETACH(T, y) is T, and all that reaches it goes to y. */
#include "tensor/build.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

kn_uop ki_t_straight(kn_ctx *k, kn_uop value, kn_uop like) {
    value = value && like ? ki_t_cast(k, value, (kn_dtype)like->dtype) : NULL;
    return value ? ki_op2(&k->ir, KN_DETACH, value, like) : NULL;
}

kn_tensor kn_straight_through(kn_tensor value, kn_tensor x) {
    char a[128], b[128];
    ENTER("straight_through", value, x);
    if (!ki_is_float((kn_dtype)x->u->dtype))
        return FAIL(KI_E_GRAD_DTYPE, k->fn, "what the gradient goes to", ki_dtypes[x->u->dtype].name),
               ki_handle(k, NULL);
    if (!ki_same_shape(value->u, x->u))
        return FAIL(KI_E_STRAIGHT_SHAPE, ki_shape_text(value->u->type, a, sizeof a),
                    ki_shape_text(x->u->type, b, sizeof b)),
               ki_handle(k, NULL);
    return ki_handle(k, ki_t_straight(k, value->u, x->u));
}

/* ---- fake quantization ------------------------------------------------------------------------------------- */

/* x in steps of scale from zero on, as PyTorch rounds: x by the scale's reciprocal, halves to even. The gradient is g where the step
 * is one of low..high, else 0. */
static kn_uop quantized(kn_ctx *k, kn_uop x, kn_uop scale, kn_uop zero, int64_t low, int64_t high) {
    kn_uop lo = L((double)low), hi = L((double)high);
    kn_uop step = ki_t_add(k, ki_t_round(k, ki_t_mul(k, x, ki_t_div(k, L(1), scale))), zero);
    kn_uop within = ki_t_binary(k, KN_AND, ki_t_ge(k, step, lo), ki_t_le(k, step, hi));
    kn_uop kept = ki_t_min(k, ki_t_max(k, step, lo), hi);
    return ki_t_straight(k, ki_t_mul(k, ki_t_sub(k, kept, zero), scale), ki_t_where(k, within, x, L(0)));
}

/* Floats narrower than f32 are quantized as that. NULL: a failure. */
static kn_uop quantizable(kn_ctx *k, kn_tensor t, int64_t low, int64_t high) {
    kn_dtype d = (kn_dtype)t->u->dtype;
    if (!ki_is_float(d)) return FAIL(KI_E_GRAD_DTYPE, k->fn, "the input", ki_dtypes[d].name);
    if (low >= high) return FAIL(KI_E_QUANT_STEPS, k->fn, (long long)low, (long long)high);
    return ki_t_cast(k, t->u, ki_itemsize(d) < 4 ? KN_F32 : d);
}

kn_tensor kn_fake_quantize_per_tensor_affine(kn_tensor t, double scale, int64_t zero_point, int64_t quant_min,
                                             int64_t quant_max) {
    ENTER("fake_quantize_per_tensor_affine", t);
    kn_uop x = quantizable(k, t, quant_min, quant_max);
    if (x && (!(scale > 0) || isinf(scale))) x = FAIL(KI_E_QUANT_SCALE, k->fn, scale);
    if (x && (zero_point < quant_min || zero_point > quant_max))
        x = FAIL(KI_E_QUANT_ZERO, k->fn, (long long)zero_point, (long long)quant_min, (long long)quant_max);
    if (x) x = quantized(k, x, L(scale), L((double)zero_point), quant_min, quant_max);
    return ki_handle(k, ki_t_cast(k, x, (kn_dtype)t->u->dtype));
}

/* One value for each place of the axis, in x's dtype. */
static kn_uop along(kn_ctx *k, kn_uop v, kn_uop x, unsigned axis) {
    char a[128], b[128];
    int64_t dim[KI_MAX_RANK];
    if (ki_rank(v) != 1 || ki_dim_n(v, 0) != ki_dim_n(x, axis))
        return FAIL(KI_E_QUANT_CHANNELS, k->fn, ki_shape_text(v->type, a, sizeof a), axis,
                    ki_shape_text(x->type, b, sizeof b));
    for (unsigned i = 0; i < ki_rank(x); i++) dim[i] = i == axis ? ki_dim_n(x, i) : 1;
    return ki_t_cast(k, ki_t_reshape(k, v, ki_rank(x), dim), (kn_dtype)x->dtype);
}

kn_tensor kn_fake_quantize_per_channel_affine(kn_tensor t, kn_tensor scale, kn_tensor zero_point, int axis,
                                              int64_t quant_min, int64_t quant_max) {
    ENTER("fake_quantize_per_channel_affine", t, scale, zero_point);
    kn_uop x = quantizable(k, t, quant_min, quant_max), s, z;
    int a = x ? ki_axis(k, axis, ki_rank(x)) : -1;
    if (a < 0 || !ki_shape_known(k, x)) return ki_handle(k, NULL);
    s = along(k, scale->u, x, (unsigned)a);
    z = s ? along(k, zero_point->u, x, (unsigned)a) : NULL;
    if (!z) return ki_handle(k, NULL);
    ki_shape shape = ki_shape_like(x);
    s = ki_t_broadcast_to(k, s, &shape);
    z = ki_t_broadcast_to(k, z, &shape);
    x = quantized(k, x, s, z, quant_min, quant_max);
    return ki_handle(k, ki_t_cast(k, x, (kn_dtype)t->u->dtype));
}
