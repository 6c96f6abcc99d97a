/* zoo.h: whole networks with random weights, written over the public API: what compile times, kernel counts and speed are
 * measured on. A model is one function that builds a step's graph; the command (`koine bench`) and the programs
 * build/zoo/NAME share it.
 *
 * What a model holds (weights, running statistics, caches, inputs) it names where it uses it. The first pass, in
 * zoo_open, makes these tensors one by one; each later pass meets them in the same order. The first pass must write
 * nothing: a model asks z->making before it assigns. */
#ifndef ZOO_H
#define ZOO_H

#include <koine/koine.h>
#include <koine/nn.h>

#include <stdbool.h>
#include <stdint.h>

enum { ZOO_NAME = 64 };
typedef enum zoo_kind { ZOO_WEIGHT, ZOO_STATE, ZOO_INPUT } zoo_kind;
typedef struct zoo_tensor {
    char name[2 * ZOO_NAME]; /* as PyTorch's modules are named: layer1.0.conv1.weight */
    zoo_kind kind;
    kn_tensor t;
} zoo_tensor;

struct zoo_model;
typedef struct zoo {
    kn_ctx *k;
    const struct zoo_model *model;
    int64_t batch;
    bool small;      /* a few thousand weights: for tests against another implementation */
    bool making;     /* the first pass */
    int64_t context; /* of a decode step: positions there are, 0 of other models */
    char prefix[ZOO_NAME];
    zoo_tensor *held;
    size_t nheld, next;
    kn_optim *optim;  /* of models that train */
    kn_status status; /* what went wrong while tensors were made */
} zoo;

typedef struct zoo_model {
    const char *name, *doc;
    int64_t batch;                                                     /* unless told otherwise */
    kn_tensor (*build)(zoo *z);                                        /* the result: logits, or the loss */
    kn_optim *(*optim)(kn_ctx *k, const kn_tensor *weights, size_t n); /* NULL: the model does not train */
} zoo_model;

extern const zoo_model zoo_models[]; /* the last has no name */
const zoo_model *zoo_find(const char *name);

/* Makes and fills what the model holds. batch 0: the model's own. zoo_close in any case. */
kn_status zoo_open(zoo *z, kn_ctx *k, const zoo_model *m, int64_t batch, bool small);
void zoo_close(zoo *z);
/* Builds a step: its result, and in *out (free() it) with it all that the step writes: *n tensors for kn_realize_at.
 * NULL: see kn_message. Open a scope around it. */
kn_tensor zoo_step(zoo *z, kn_tensor **out, size_t *n);

/* ---- for models ------------------------------------------------------------------------------------------------- */

/* What follows is named PREFIX.name. */
void zoo_in(zoo *z, const char *format, ...);
/* A tensor that is held: f32, uniform between lo and hi; ints: i32 below n. */
kn_tensor zoo_hold(zoo *z, zoo_kind kind, const char *name, kn_ints shape, double lo, double hi);
kn_tensor zoo_ints(zoo *z, const char *name, kn_ints shape, int64_t n);
/* x (.., in) to (.., out), weights NAME.weight and, if wanted, NAME.bias. */
kn_tensor zoo_linear(zoo *z, const char *name, kn_tensor x, int64_t out, bool bias);
/* x normalised along its last axis, weights NAME.weight and NAME.bias. */
kn_tensor zoo_layer_norm(zoo *z, const char *name, kn_tensor x, double eps);
/* Where in its sequence a decode step's token stands: the variable "position", below `context`; 128 until it is bound again. */
kn_tensor zoo_position(zoo *z, int64_t context);
/* Puts the keys or values x (B, H, 1, E) of that token into their cache; all of them up to it. */
kn_tensor zoo_cached(zoo *z, const char *name, kn_tensor x, int64_t context);

kn_tensor zoo_resnet50(zoo *z);
kn_tensor zoo_resnet50_loss(zoo *z);
kn_tensor zoo_gpt2(zoo *z);
kn_tensor zoo_gpt2_loss(zoo *z);
kn_tensor zoo_gpt2_decode(zoo *z);
kn_tensor zoo_llama_decode(zoo *z);
kn_tensor zoo_vit(zoo *z);
kn_tensor zoo_vit_loss(zoo *z);
kn_tensor zoo_lstm(zoo *z);
kn_tensor zoo_lstm_loss(zoo *z);
kn_tensor zoo_unet(zoo *z);
kn_tensor zoo_unet_loss(zoo *z);
kn_tensor zoo_moe(zoo *z);
kn_tensor zoo_moe_loss(zoo *z);

#endif
