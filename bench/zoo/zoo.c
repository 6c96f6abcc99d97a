/* zoo.c: the table of models, and what they hold. See zoo.h. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kn_optim *sgd(kn_ctx *k, const kn_tensor *w, size_t n) { return kn_sgd(k, w, n, 0.1, 0.9, 1e-4); }
static kn_optim *adamw(kn_ctx *k, const kn_tensor *w, size_t n) {
    return kn_adamw(k, w, n, 1e-3, 0.9, 0.999, 1e-8, 0.01);
}

const zoo_model zoo_models[] = {
    {"resnet50_forward", "ResNet-50, one image of 224 x 224", 1, zoo_resnet50, NULL},
    {"resnet50_train", "a step of ResNet-50, SGD with momentum", 16, zoo_resnet50_loss, sgd},
    {"gpt2_forward", "GPT-2 124M, 128 tokens, all logits", 1, zoo_gpt2, NULL},
    {"gpt2_train", "a step of GPT-2 124M on 128 tokens, AdamW", 1, zoo_gpt2_loss, adamw},
    {"gpt2_decode", "GPT-2 124M, a token at any position", 1, zoo_gpt2_decode, NULL},
    {"llama_decode", "Llama 3.2 1B, a token at any position", 1, zoo_llama_decode, NULL},
    {"vit_forward", "ViT-S/16, one image of 224 x 224", 1, zoo_vit, NULL},
    {"vit_train", "a step of ViT-S/16, AdamW", 8, zoo_vit_loss, adamw},
    {"lstm_forward", "an LSTM of 256 over 32 steps", 16, zoo_lstm, NULL},
    {"lstm_train", "a step of the LSTM, SGD with momentum", 16, zoo_lstm_loss, sgd},
    {"unet_forward", "a block of a U-Net, 64 channels of 64 x 64", 1, zoo_unet, NULL},
    {"unet_train", "a step of the U-Net block, AdamW", 4, zoo_unet_loss, adamw},
    {"moe_forward", "a layer of 8 experts, two a token, 128 tokens", 1, zoo_moe, NULL},
    {"moe_train", "a step of the layer of experts, AdamW", 1, zoo_moe_loss, adamw},
    {NULL, NULL, 0, NULL, NULL},
};

const zoo_model *zoo_find(const char *name) {
    for (const zoo_model *m = zoo_models; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

/* ---- what a model holds ------------------------------------------------------------------------------------------ */

void zoo_in(zoo *z, const char *format, ...) {
    va_list v;
    va_start(v, format);
    vsnprintf(z->prefix, sizeof z->prefix, format, v);
    va_end(v);
}

/* Storage with t's values: filled at once, so that equal shapes share their kernels and nothing waits in the graph. */
static kn_tensor make(zoo *z, zoo_kind kind, const char *name, kn_tensor t) {
    zoo_tensor *v = realloc(z->held, (z->nheld + 1) * sizeof *v);
    if (!v) return z->status = KN_NOMEM, t;
    z->held = v;
    v += z->nheld++;
    v->kind = kind;
    v->t = t = kn_keep(kn_param(t));
    snprintf(v->name, sizeof v->name, "%s%s%s", z->prefix, *z->prefix ? "." : "", name);
    if (!z->status) z->status = kn_realize(t);
    return t;
}

static kn_tensor met(zoo *z) { return z->next < z->nheld ? z->held[z->next++].t : NULL; }

kn_tensor zoo_hold(zoo *z, zoo_kind kind, const char *name, kn_ints shape, double lo, double hi) {
    return z->making ? make(z, kind, name, kn_uniform(z->k, shape, lo, hi, KN_F32, NULL)) : met(z);
}

kn_tensor zoo_ints(zoo *z, const char *name, kn_ints shape, int64_t n) {
    return z->making ? make(z, ZOO_INPUT, name, kn_randint(z->k, shape, 0, n, KN_I32, NULL)) : met(z);
}

kn_tensor zoo_linear(zoo *z, const char *name, kn_tensor x, int64_t out, bool bias) {
    char text[ZOO_NAME];
    int64_t in = kn_size(x, -1);
    double limit = 1 / sqrt((double)in);
    snprintf(text, sizeof text, "%s.weight", name);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, text, KN_SHAPE(out, in), -limit, limit), b = NULL;
    snprintf(text, sizeof text, "%s.bias", name);
    if (bias) b = zoo_hold(z, ZOO_WEIGHT, text, KN_SHAPE(out), -limit, limit);
    return kn_linear(x, w, b);
}

kn_tensor zoo_layer_norm(zoo *z, const char *name, kn_tensor x, double eps) {
    char text[ZOO_NAME];
    kn_ints s = KN_SHAPE(kn_size(x, -1));
    snprintf(text, sizeof text, "%s.weight", name);
    kn_tensor w = zoo_hold(z, ZOO_WEIGHT, text, s, 0.5, 1.5);
    snprintf(text, sizeof text, "%s.bias", name);
    return kn_layer_norm(x, 1, w, zoo_hold(z, ZOO_WEIGHT, text, s, -0.5, 0.5), eps);
}

kn_tensor zoo_position(zoo *z, int64_t context) {
    if (!z->context && !z->status) z->status = kn_bind(z->k, "position", 128);
    z->context = context;
    return kn_variable(z->k, "position", 0, context - 1);
}

kn_tensor zoo_cached(zoo *z, const char *name, kn_tensor x, int64_t context) {
    int64_t b = kn_size(x, 0), heads = kn_size(x, 1), each = kn_size(x, 3);
    kn_tensor cache = zoo_hold(z, ZOO_STATE, name, KN_SHAPE(b, heads, context, each), -1, 1),
              at = zoo_position(z, context);
    if (!z->making) kn_assign(kn_shrink(cache, KN_LIST(0, 0, kn_sym(at), 0), KN_SHAPE(b, heads, 1, each)), x);
    return kn_shrink(cache, KN_LIST(0, 0, 0, 0), KN_SHAPE(b, heads, kn_sym(kn_adds(at, 1)), each));
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static kn_status open_optim(zoo *z) {
    kn_tensor *w = malloc((z->nheld + 1) * sizeof *w);
    const kn_tensor *state;
    size_t n = 0;
    if (!w) return KN_NOMEM;
    for (size_t i = 0; i < z->nheld; i++)
        if (z->held[i].kind == ZOO_WEIGHT) w[n++] = z->held[i].t;
    z->optim = z->model->optim(z->k, w, n);
    free(w);
    if (!z->optim) return kn_error(z->k) ? kn_error(z->k) : KN_NOMEM;
    n = kn_optim_state(z->optim, &state);
    kn_status s = KN_OK;
    for (size_t i = 0; i < n && !s; i++) s = kn_realize(state[i]);
    return s;
}

kn_status zoo_open(zoo *z, kn_ctx *k, const zoo_model *m, int64_t batch, bool small) {
    *z = (zoo){.k = k, .model = m, .batch = batch ? batch : m->batch, .small = small, .making = true};
    kn_scope_open(k);
    kn_tensor result = m->build(z);
    if (!z->status) z->status = kn_check(result);
    kn_scope_close(k);
    z->making = false;
    if (!z->status && m->optim) z->status = open_optim(z);
    return z->status;
}

void zoo_close(zoo *z) {
    kn_optim_free(z->optim);
    for (size_t i = 0; i < z->nheld; i++) kn_drop(z->held[i].t);
    free(z->held);
    *z = (zoo){0};
}

kn_tensor zoo_step(zoo *z, kn_tensor **out, size_t *n) {
    const kn_tensor *state = NULL;
    *z->prefix = 0;
    z->next = 0;
    kn_tensor result = z->model->build(z);
    if (z->optim && !kn_check(result) && kn_optim_step(z->optim, result)) return NULL;
    size_t nstate = z->optim ? kn_optim_state(z->optim, &state) : 0;
    *n = 0;
    *out = malloc((1 + nstate + z->nheld) * sizeof **out);
    if (!*out) return NULL;
    (*out)[(*n)++] = result;
    for (size_t i = 0; i < nstate; i++) (*out)[(*n)++] = state[i];
    for (size_t i = 0; i < z->nheld; i++)
        if (z->held[i].kind == ZOO_STATE) (*out)[(*n)++] = z->held[i].t;
    return result;
}
