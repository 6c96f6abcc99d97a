/* moe.c: a layer of experts: each token goes to the two of eight that a gate rates highest, and takes their sum by softmax.
 *
 * Every expert sees every token, and the others' hidden values are weighed by 0. Shapes cannot depend on data, so sending each
 * expert its own tokens alone would need room for all of them at each, or drop some where too many choose one. So: four times the
 * multiply-adds that are needed, in two products as wide as all experts together, and nothing dropped. */
#include "zoo/zoo.h"

#include <math.h>

typedef struct sizes {
    int64_t tokens, dim, hidden, experts;
} sizes;

static const sizes full = {128, 512, 1024, 8}, small = {12, 8, 16, 4};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

/* Where each row's largest is, and the next. */
static kn_tensor best_two(kn_tensor x) {
    kn_tensor first = kn_eq(x, kn_max_over(x, KN_AXES(-1), 1));
    kn_tensor rest = kn_masked_fill(x, first, -INFINITY);
    return kn_logical_or(first, kn_eq(rest, kn_max_over(rest, KN_AXES(-1), 1)));
}

/* *balance: how unevenly the gate chooses; 1 where each expert has its share. */
static kn_tensor layer(zoo *z, kn_tensor *balance) {
    const sizes *s = sizes_of(z);
    int64_t n = z->batch * s->tokens, e = s->experts;
    double limit = 1 / sqrt((double)s->dim), inner = 1 / sqrt((double)s->hidden);
    kn_tensor x = zoo_hold(z, ZOO_INPUT, "x", KN_SHAPE(n, s->dim), -1, 1);
    kn_tensor rate = zoo_linear(z, "gate", x, e, false), chosen = best_two(rate);
    kn_tensor weight = kn_softmax(kn_where(chosen, rate, kn_full_like(rate, -INFINITY)), -1);
    kn_tensor up = zoo_hold(z, ZOO_WEIGHT, "experts.up", KN_SHAPE(e * s->hidden, s->dim), -limit, limit);
    kn_tensor down = zoo_hold(z, ZOO_WEIGHT, "experts.down", KN_SHAPE(e * s->hidden, s->dim), -inner, inner);
    kn_tensor h = kn_reshape(kn_gelu_tanh(kn_linear(x, up, NULL)), KN_SHAPE(n, e, s->hidden));
    h = kn_reshape(kn_mul(h, kn_unsqueeze(weight, -1)), KN_SHAPE(n, e * s->hidden));
    kn_tensor share = kn_mean_over(kn_cast(chosen, KN_F32), KN_AXES(0), 0);
    *balance = kn_muls(kn_sum(kn_mul(share, kn_mean_over(kn_softmax(rate, -1), KN_AXES(0), 0))), (double)e / 2);
    return kn_add(x, kn_matmul(h, down));
}

kn_tensor zoo_moe(zoo *z) {
    kn_tensor balance;
    return layer(z, &balance);
}

kn_tensor zoo_moe_loss(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor balance, y = zoo_hold(z, ZOO_INPUT, "target", KN_SHAPE(z->batch * s->tokens, s->dim), -1, 1);
    kn_tensor loss = kn_mse_loss(layer(z, &balance), y);
    return kn_add(loss, kn_muls(balance, 0.01));
}
