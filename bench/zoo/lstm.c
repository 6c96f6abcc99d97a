/* lstm.c: a sequence through an LSTM, classified by its last state. The cell is a function, built once however many steps there are. */
#include "zoo/zoo.h"

typedef struct sizes {
    int64_t steps, in, hidden, classes;
} sizes;

static const sizes full = {32, 128, 256, 10}, small = {5, 6, 8, 4};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

/* in: what the step's input adds to the gates (B, 4 H), the last h and c (B, H), weight (4 H, H). out: the next h and c. */
static void cell(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    int64_t n = kn_size(in[1], 1);
    kn_tensor gates = kn_add(in[0], kn_linear(in[1], in[3], NULL)), g[4];
    if (kn_split(gates, 1, KN_SHAPE(n, n, n, n), g)) return;
    kn_tensor c = kn_add(kn_mul(kn_sigmoid(g[1]), in[2]), kn_mul(kn_sigmoid(g[0]), kn_tanh(g[2])));
    out[0] = kn_mul(kn_sigmoid(g[3]), kn_tanh(c));
    out[1] = c;
}

kn_tensor zoo_lstm(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor x = zoo_hold(z, ZOO_INPUT, "x", KN_SHAPE(s->steps, z->batch, s->in), -1, 1), state[2];
    /* all steps' inputs at once: one product, which the cell adds to */
    zoo_in(z, "lstm");
    x = zoo_linear(z, "ih", x, 4 * s->hidden, true);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, "hh.weight", KN_SHAPE(4 * s->hidden, s->hidden), -0.1, 0.1);
    state[0] = state[1] = kn_zeros(z->k, KN_SHAPE(z->batch, s->hidden), KN_F32);
    for (int64_t t = 0; t < s->steps; t++) {
        kn_tensor in[4] = {kn_select(x, 0, t), state[0], state[1], w};
        if (kn_function(z->k, cell, NULL, in, 4, state, 2)) break;
    }
    zoo_in(z, "");
    return zoo_linear(z, "fc", state[0], s->classes, true);
}

kn_tensor zoo_lstm_loss(zoo *z) {
    kn_tensor y = zoo_ints(z, "labels", KN_SHAPE(z->batch), sizes_of(z)->classes);
    return kn_cross_entropy(zoo_lstm(z), y);
}
