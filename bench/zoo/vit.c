/* vit.c: ViT-S/16: patches of an image as tokens, a class token in front, learned positions, pre-norm blocks. */
#include "zoo/zoo.h"

#define EPS 1e-6 /* of its norms */

typedef struct sizes {
    int64_t layers, dim, heads, side, patch, classes;
} sizes;

static const sizes full = {12, 384, 6, 224, 16, 1000}, small = {2, 32, 4, 16, 4, 10};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

/* (B, 3, side, side) to (B, patches, 3 * patch * patch): what a convolution in steps of its own size reads. */
static kn_tensor patches(const sizes *s, kn_tensor x) {
    int64_t b = kn_size(x, 0), n = s->side / s->patch, p = s->patch;
    x = kn_permute(kn_reshape(x, KN_SHAPE(b, 3, n, p, n, p)), KN_LIST(0, 2, 4, 1, 3, 5));
    return kn_reshape(x, KN_SHAPE(b, n * n, 3 * p * p));
}

static kn_tensor block(zoo *z, kn_tensor x) {
    const sizes *s = sizes_of(z);
    int64_t b = kn_size(x, 0), t = kn_size(x, 1);
    kn_tensor h = zoo_linear(z, "attn.qkv", zoo_layer_norm(z, "norm1", x, EPS), 3 * s->dim, true), qkv[3];
    if (kn_split(h, 2, KN_SHAPE(s->dim, s->dim, s->dim), qkv)) return h;
    for (int i = 0; i < 3; i++)
        qkv[i] = kn_transpose(kn_reshape(qkv[i], KN_SHAPE(b, t, s->heads, s->dim / s->heads)), 1, 2);
    kn_tensor a = kn_attention(qkv[0], qkv[1], qkv[2], NULL, 0, 0);
    a = kn_reshape(kn_transpose(a, 1, 2), KN_SHAPE(b, t, s->dim));
    x = kn_add(x, zoo_linear(z, "attn.proj", a, s->dim, true));
    h = kn_gelu(zoo_linear(z, "mlp.fc1", zoo_layer_norm(z, "norm2", x, EPS), 4 * s->dim, true));
    return kn_add(x, zoo_linear(z, "mlp.fc2", h, s->dim, true));
}

kn_tensor zoo_vit(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor x = zoo_hold(z, ZOO_INPUT, "x", KN_SHAPE(z->batch, 3, s->side, s->side), -1, 1);
    x = zoo_linear(z, "patch_embed.proj", patches(s, x), s->dim, true);
    kn_tensor first = zoo_hold(z, ZOO_WEIGHT, "cls_token", KN_SHAPE(1, 1, s->dim), -0.5, 0.5);
    kn_tensor at = zoo_hold(z, ZOO_WEIGHT, "pos_embed", KN_SHAPE(1, kn_size(x, 1) + 1, s->dim), -0.5, 0.5);
    x = kn_add(kn_cat2(kn_expand(first, KN_SHAPE(z->batch, 1, s->dim)), x, 1), at);
    for (int64_t i = 0; i < s->layers; i++) {
        zoo_in(z, "blocks.%d", (int)i);
        x = block(z, x);
    }
    zoo_in(z, "");
    return zoo_linear(z, "head", zoo_layer_norm(z, "norm", kn_select(x, 1, 0), EPS), s->classes, true);
}

kn_tensor zoo_vit_loss(zoo *z) {
    kn_tensor y = zoo_ints(z, "labels", KN_SHAPE(z->batch), sizes_of(z)->classes);
    return kn_cross_entropy(zoo_vit(z), y);
}
