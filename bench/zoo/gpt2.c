/* gpt2.c: GPT-2 124M: pre-norm blocks, learned positions, logits by the token embedding. */
#include "zoo/zoo.h"

#include <math.h>

#define EPS 1e-5 /* of its norms */

typedef struct sizes {
    int64_t layers, dim, heads, vocab, context, tokens;
} sizes;

static const sizes full = {12, 768, 12, 50257, 1024, 128}, small = {2, 32, 4, 97, 1024, 8};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

/* (B, T, H * E) to (B, H, T, E) */
static kn_tensor heads(const sizes *s, kn_tensor x) {
    kn_ints split = KN_SHAPE(kn_size(x, 0), kn_size(x, 1), s->heads, s->dim / s->heads);
    return kn_transpose(kn_reshape(x, split), 1, 2);
}

static kn_tensor block(zoo *z, kn_tensor x, bool decode) {
    const sizes *s = sizes_of(z);
    kn_tensor h = zoo_linear(z, "attn.c_attn", zoo_layer_norm(z, "ln_1", x, EPS), 3 * s->dim, true), qkv[3];
    if (kn_split(h, 2, KN_SHAPE(s->dim, s->dim, s->dim), qkv)) return h;
    for (int i = 0; i < 3; i++) qkv[i] = heads(s, qkv[i]);
    for (int i = 1; decode && i < 3; i++) qkv[i] = zoo_cached(z, i == 1 ? "attn.k" : "attn.v", qkv[i], s->context);
    kn_tensor a = kn_attention(qkv[0], qkv[1], qkv[2], NULL, !decode, 0);
    a = kn_reshape(kn_transpose(a, 1, 2), KN_SHAPE(kn_size(x, 0), kn_size(x, 1), s->dim));
    x = kn_add(x, zoo_linear(z, "attn.c_proj", a, s->dim, true));
    h = kn_gelu_tanh(zoo_linear(z, "mlp.c_fc", zoo_layer_norm(z, "ln_2", x, EPS), 4 * s->dim, true));
    return kn_add(x, zoo_linear(z, "mlp.c_proj", h, s->dim, true));
}

static kn_tensor logits(zoo *z, bool decode) {
    const sizes *s = sizes_of(z);
    int64_t n = decode ? 1 : s->tokens, from = decode ? kn_sym(zoo_position(z, s->context)) : 0;
    kn_tensor tokens = zoo_ints(z, "tokens", KN_SHAPE(z->batch, n), s->vocab);
    double limit = 1 / sqrt((double)s->dim);
    kn_tensor wte = zoo_hold(z, ZOO_WEIGHT, "wte.weight", KN_SHAPE(s->vocab, s->dim), -limit, limit);
    kn_tensor wpe = zoo_hold(z, ZOO_WEIGHT, "wpe.weight", KN_SHAPE(s->context, s->dim), -limit, limit);
    kn_tensor x = kn_add(kn_embedding(wte, tokens), kn_shrink(wpe, KN_LIST(from, 0), KN_SHAPE(n, s->dim)));
    for (int64_t i = 0; i < s->layers; i++) {
        zoo_in(z, "h.%d", (int)i);
        x = block(z, x, decode);
    }
    zoo_in(z, "");
    return kn_linear(zoo_layer_norm(z, "ln_f", x, EPS), wte, NULL);
}

kn_tensor zoo_gpt2(zoo *z) { return logits(z, false); }
kn_tensor zoo_gpt2_decode(zoo *z) { return logits(z, true); }

kn_tensor zoo_gpt2_loss(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor y = zoo_ints(z, "labels", KN_SHAPE(z->batch * s->tokens), s->vocab);
    return kn_cross_entropy(kn_reshape(logits(z, false), KN_SHAPE(-1, s->vocab)), y);
}
