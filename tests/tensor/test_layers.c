/* Layers: shapes, what is trained, what is optional. */
#include <koine/koine.h>

#include "../tap.h"

static int shape_is(kn_tensor t, int64_t n, int64_t a, int64_t b, int64_t c, int64_t d) {
    kn_ints s = kn_shape(t);
    const int64_t want[4] = {a, b, c, d};
    int same = s.n == n;
    for (int i = 0; i < n && same; i++) same = s.v[i] == want[i];
    if (!same) printf("# %s\n", kn_why(t));
    return same;
}

int main(void) {
    kn_ctx *k = kn_open("INTERP");
    if (!k) return 1;
    kn_scope_open(k);
    kn_linear_layer fc = kn_linear_new(k, 5, 3, 1), bare = kn_linear_new(k, 5, 3, 0);
    kn_conv2d_layer conv = kn_conv2d_new(k, 2, 4, 3, 1, 1, 1);
    kn_norm_layer ln = kn_layer_norm_new(k, 5), bn = kn_batch_norm_new(k, 4);
    kn_scope_close(k);
    CHECK(kn_check(fc.weight) == KN_OK && kn_check(bn.var) == KN_OK, "parameters outlive the scope they were made in");
    CHECK(shape_is(fc.weight, 2, 3, 5, 0, 0) && shape_is(fc.bias, 1, 3, 0, 0, 0) && !bare.bias,
          "linear: (out, in), bias if wanted");
    kn_tensor x = kn_randn(k, KN_SHAPE(7, 5)), image = kn_randn(k, KN_SHAPE(2, 2, 8, 8));
    CHECK(shape_is(kn_linear_apply(&fc, x), 2, 7, 3, 0, 0) && shape_is(kn_linear_apply(&bare, x), 2, 7, 3, 0, 0),
          "linear applies");
    kn_tensor y = kn_conv2d_apply(&conv, image);
    CHECK(shape_is(conv.weight, 4, 4, 2, 3, 3) && shape_is(y, 4, 2, 4, 8, 8), "conv2d applies");
    CHECK(shape_is(kn_layer_norm_apply(&ln, x), 2, 7, 5, 0, 0), "layer norm applies");
    CHECK(shape_is(kn_batch_norm_apply(&bn, y, 1), 4, 2, 4, 8, 8) &&
              shape_is(kn_batch_norm_apply(&bn, y, 0), 4, 2, 4, 8, 8),
          "batch norm applies, training or not");
    CHECK(kn_realize(bn.mean, bn.var) == KN_OK && kn_item(kn_sum(kn_abs(bn.mean))) > 0, "and its statistics move");
    double most = kn_item(kn_max(kn_abs(fc.weight)));
    CHECK(most <= 0.4472136 && most > 0.2, "weights start within 1/sqrt(inputs)");
    kn_optim *o = kn_sgd(k, (kn_tensor[]){fc.weight, fc.bias}, 2, 0.1, 0, 0);
    const kn_tensor *state;
    CHECK(o && kn_optim_state(o, &state) == 2 && state[0] == fc.weight, "an optimizer says what it writes");
    kn_tensor loss = kn_mse_loss(kn_linear_apply(&fc, x), kn_zeros(k, KN_SHAPE(7, 3), KN_F32));
    kn_tensor before = kn_contiguous(loss);
    CHECK(!kn_optim_step(o, loss) && !kn_optim_realize(o, before), "a step runs");
    double after = kn_item(kn_mse_loss(kn_linear_apply(&fc, x), kn_zeros(k, KN_SHAPE(7, 3), KN_F32)));
    CHECK(after < kn_item(before), "and the loss falls");
    kn_optim_free(o);
    CHECK(!kn_adam(k, (kn_tensor[]){kn_exp(kn_reshape(x, KN_SHAPE(2)))}, 1, 0.1, 0.9, 0.99, 1e-8),
          "no optimizer of an error tensor");
    kn_close(k);
    return tap_done();
}
