/* llama.c: a decode step of Llama 3.2 1B: RMS norm, rotary positions, grouped-query attention, SwiGLU; logits by the
 * token embedding. */
#include "zoo/zoo.h"

#include <math.h>

typedef struct sizes {
    int64_t layers, dim, heads, kv, hidden, vocab, context;
} sizes;

static const sizes full = {16, 2048, 32, 8, 8192, 128256, 512}, small = {2, 32, 4, 2, 48, 101, 1024};
static const sizes *sizes_of(const zoo *z) { return z->small ? &small : &full; }

static kn_tensor norm(zoo *z, const char *name, kn_tensor x) {
    return kn_rms_norm(x, 1, zoo_hold(z, ZOO_WEIGHT, name, KN_SHAPE(kn_size(x, -1)), 0.5, 1.5), 1e-5);
}

/* The angles of the position: (1, E / 2). */
static kn_tensor angles(zoo *z) {
    const sizes *s = sizes_of(z);
    int64_t half = s->dim / s->heads / 2;
    kn_tensor i = kn_arange(z->k, 0, (double)half, 1, KN_F32);
    kn_tensor turn = kn_exp(kn_muls(i, -log(500000.0) / (double)half));
    return kn_unsqueeze(kn_mul(turn, kn_cast(zoo_position(z, s->context), KN_F32)), 0);
}

static kn_tensor attention(zoo *z, kn_tensor x) {
    const sizes *s = sizes_of(z);
    int64_t each = s->dim / s->heads, group = s->heads / s->kv, b = z->batch;
    int64_t own[3] = {s->dim, s->kv * each, s->kv * each};
    kn_tensor a = angles(z), cos = kn_cos(a), sin = kn_sin(a), qkv[3];
    x = zoo_linear(z, "self_attn.qkv_proj", x, own[0] + own[1] + own[2], false);
    if (kn_split(x, 2, KN_SHAPE(own[0], own[1], own[2]), qkv)) return x;
    for (int i = 0; i < 3; i++) qkv[i] = kn_reshape(qkv[i], KN_SHAPE(b, s->kv, i ? 1 : group, each));
    kn_tensor q = kn_rotary(qkv[0], cos, sin), k = kn_rotary(qkv[1], cos, sin), v = qkv[2];
    k = zoo_cached(z, "self_attn.k", k, s->context);
    v = zoo_cached(z, "self_attn.v", v, s->context);
    /* the queries of a group share keys and values: they are the rows of one attention */
    x = kn_reshape(kn_attention(q, k, v, NULL, 0, 0), KN_SHAPE(b, 1, s->dim));
    return zoo_linear(z, "self_attn.o_proj", x, s->dim, false);
}

static kn_tensor mlp(zoo *z, kn_tensor x) {
    const sizes *s = sizes_of(z);
    kn_tensor gate = kn_silu(zoo_linear(z, "mlp.gate_proj", x, s->hidden, false));
    kn_tensor up = zoo_linear(z, "mlp.up_proj", x, s->hidden, false);
    return zoo_linear(z, "mlp.down_proj", kn_mul(gate, up), s->dim, false);
}

kn_tensor zoo_llama_decode(zoo *z) {
    const sizes *s = sizes_of(z);
    kn_tensor token = zoo_ints(z, "tokens", KN_SHAPE(z->batch, 1), s->vocab);
    double limit = 1 / sqrt((double)s->dim);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, "embed_tokens.weight", KN_SHAPE(s->vocab, s->dim), -limit, limit);
    kn_tensor x = kn_embedding(w, token);
    for (int64_t i = 0; i < s->layers; i++) {
        zoo_in(z, "layers.%d", (int)i);
        x = kn_add(x, attention(z, norm(z, "input_layernorm.weight", x)));
        x = kn_add(x, mlp(z, norm(z, "post_attention_layernorm.weight", x)));
    }
    zoo_in(z, "");
    return kn_linear(norm(z, "norm.weight", x), w, NULL);
}
