/* optim.c: optimizers as tensor functions: gradients, arithmetic, assigns. The learning rate and the powers of the
 * betas are tensors, so that every step is the same program. The rate lies in memory that is written to between steps: each step has
 * the nodes of the one before (run/again.c). */
#define KN_NO_LOC
#include <koine/nn.h>

#include "base/alloc.h"
#include "tensor/context.h"

#include <string.h>

typedef enum kind { SGD, ADAM } kind;
struct kn_optim {
    kn_ctx *k;
    kind kind;
    size_t n;
    double momentum, beta1, beta2, eps, decay;
    int coupled; /* weight decay enters the gradient (SGD); else it acts on the weight (AdamW) */
    size_t nstate;
    int pending;                    /* a step that was not realised here may yet read the rate */
    float *now;                     /* what rate's memory is */
    kn_tensor rate, power1, power2; /* the betas' powers so far */
    kn_tensor *state;               /* what a step writes: params, first moments, second moments, powers */
};

static kn_tensor held(kn_tensor t) { return kn_keep(kn_param(t)); }
static kn_tensor value(kn_ctx *k, double v) { return held(kn_full(k, KN_SHAPE(), v, KN_F32)); }

static kn_status no_memory(kn_ctx *k) { return ki_fail(&k->env, KI_E_NOMEM), (kn_status)ki_settle_failure(k); }

static kn_status new_rate(kn_optim *o, float rate) {
    float *now = ki_malloc(sizeof *now);
    if (!now) return no_memory(o->k);
    *now = rate;
    kn_tensor t = kn_keep(kn_borrow_host(o->k, now, KN_F32, KN_SHAPE(), ki_free, now));
    if (kn_check(t)) return ki_free(now), kn_check(t);
    if (o->rate) kn_drop(o->rate);
    o->rate = t;
    o->now = now;
    o->pending = 0;
    return KN_OK;
}

static kn_optim *open_optim(kn_ctx *k, const kn_tensor *params, size_t n, kind kind, double rate, size_t moments) {
    if (!k || (n && !ki_given(k, kind == SGD ? "sgd" : "adam", "params", params))) return NULL;
    kn_optim *o = ki_calloc(1, sizeof *o);
    if (!o) return NULL;
    o->k = k, o->kind = kind, o->n = n;
    o->state = ki_calloc(n * (1 + moments) + 2, sizeof *o->state);
    if (!o->state || new_rate(o, (float)rate)) return kn_optim_free(o), NULL;
    for (size_t i = 0; i < n; i++) o->state[o->nstate++] = kn_keep(params[i]);
    for (size_t m = 0; m < moments; m++)
        for (size_t i = 0; i < n; i++) o->state[o->nstate++] = held(kn_zeros_like(params[i]));
    if (kind == ADAM) {
        o->state[o->nstate++] = o->power1 = value(k, 1);
        o->state[o->nstate++] = o->power2 = value(k, 1);
    }
    for (size_t i = 0; i < o->nstate; i++)
        if (kn_check(o->state[i])) return kn_optim_free(o), NULL;
    return o;
}

kn_optim *kn_sgd(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double momentum, double weight_decay) {
    kn_optim *o = open_optim(k, params, n, SGD, rate, momentum != 0);
    if (o) o->momentum = momentum, o->decay = weight_decay, o->coupled = 1;
    return o;
}
kn_optim *kn_adamw(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double beta1, double beta2, double eps,
                   double weight_decay) {
    kn_optim *o = open_optim(k, params, n, ADAM, rate, 2);
    if (o) o->beta1 = beta1, o->beta2 = beta2, o->eps = eps, o->decay = weight_decay;
    return o;
}
kn_optim *kn_adam(kn_ctx *k, const kn_tensor *params, size_t n, double rate, double beta1, double beta2, double eps) {
    return kn_adamw(k, params, n, rate, beta1, beta2, eps, 0);
}

void kn_optim_free(kn_optim *o) {
    if (!o) return;
    for (size_t i = o->n; i < o->nstate; i++) kn_drop(o->state[i]); /* the parameters are the caller's */
    kn_drop(o->rate);
    ki_free(o->state);
    ki_free(o);
}

/* A captured step reads the rate where it is. */
static bool is_captured(const kn_optim *o) { return ki_storage_of(o->k, ki_buffer_under(o->rate->u))->held; }

kn_status kn_optim_rate(kn_optim *o, double rate) {
    if (!o) return KN_BAD_ARGUMENT;
    if (o->pending && !is_captured(o)) return new_rate(o, (float)rate);
    kn_status s = o->pending ? kn_realize_at(NULL, 0, o->nstate, o->state) : KN_OK; /* by the old one */
    if (s) return s;
    o->pending = 0;
    *o->now = (float)rate;
    return KN_OK;
}

size_t kn_optim_state(const kn_optim *o, const kn_tensor **out) {
    if (out) *out = o ? o->state : NULL;
    return o ? o->nstate : 0;
}

/* ---- a step ------------------------------------------------------------------------------------------------ */

/* v = momentum v + g; p -= rate v */
static kn_status sgd(kn_optim *o, size_t i, kn_tensor g, kn_tensor rate) {
    kn_tensor p = o->state[i];
    if (o->decay != 0) g = kn_add(g, kn_muls(p, o->decay));
    if (o->momentum != 0) g = kn_assign(o->state[o->n + i], kn_add(kn_muls(o->state[o->n + i], o->momentum), g));
    return kn_check(kn_assign(p, kn_sub(p, kn_mul(rate, g))));
}

/* Bias-corrected moments; decay acts on the weight itself. What corrects them is a step's, not an element's: sqrt(v / c2) is
 * sqrt(v) r2, so that an element divides once. */
static kn_status adam(kn_optim *o, size_t i, kn_tensor g, kn_tensor rate, kn_tensor c1, kn_tensor r2) {
    kn_tensor p = o->state[i], *m = &o->state[o->n + i], *v = &o->state[2 * o->n + i];
    kn_tensor m1 = kn_assign(*m, kn_add(kn_muls(*m, o->beta1), kn_muls(g, 1 - o->beta1)));
    kn_tensor v1 = kn_assign(*v, kn_add(kn_muls(*v, o->beta2), kn_muls(kn_square(g), 1 - o->beta2)));
    kn_tensor step = kn_mul(kn_div(rate, c1), kn_div(m1, kn_adds(kn_mul(kn_sqrt(v1), r2), o->eps)));
    if (o->decay != 0) step = kn_add(step, kn_mul(kn_muls(rate, o->decay), p));
    return kn_check(kn_assign(p, kn_sub(p, step)));
}

kn_status kn_optim_step(kn_optim *o, kn_tensor loss) {
    if (!o) return KN_BAD_ARGUMENT;
    kn_tensor *g = ki_calloc(o->n + 1, sizeof *g), c1 = NULL, r2 = NULL;
    if (!g) return no_memory(o->k);
    o->pending = 1;
    kn_status s = kn_grad(loss, o->state, o->n, g);
    if (!s && o->kind == ADAM) {
        kn_tensor one = kn_int(o->k, 1);
        c1 = kn_sub(one, kn_assign(o->power1, kn_muls(o->power1, o->beta1)));
        r2 = kn_rsqrt(kn_sub(one, kn_assign(o->power2, kn_muls(o->power2, o->beta2))));
    }
    for (size_t i = 0; i < o->n && !s; i++) {
        kn_tensor rate = kn_cast(o->rate, kn_dtype_of(g[i]));
        s = o->kind == SGD ? sgd(o, i, g[i], rate)
                           : adam(o, i, g[i], rate, kn_cast(c1, kn_dtype_of(g[i])), kn_cast(r2, kn_dtype_of(g[i])));
    }
    ki_free(g);
    return s;
}

/* All that is to be assigned: what the step writes, and what its loss moves besides (running statistics). captured, if not NULL: the step is
 * kept. */
static kn_status realized(kn_optim *o, kn_tensor extra, kn_captured **captured) {
    if (!o) return KN_BAD_ARGUMENT;
    size_t n = kn_pending(o->k, 0, NULL);
    kn_tensor *t = ki_malloc((n + o->nstate + 1) * sizeof *t);
    if (!t) return no_memory(o->k);
    memcpy(t, o->state, o->nstate * sizeof *t); /* for the message if one is an error */
    kn_pending(o->k, n, t + o->nstate);
    n += o->nstate;
    if (extra) t[n++] = extra;
    if (captured) *captured = kn_capture_at(NULL, 0, n, t);
    kn_status s = captured ? *captured ? KN_OK : kn_error(o->k) : kn_realize_at(NULL, 0, n, t);
    ki_free(t);
    if (!s) o->pending = 0;
    return s;
}

kn_status kn_optim_realize(kn_optim *o, kn_tensor extra) { return realized(o, extra, NULL); }

kn_captured *kn_optim_capture(kn_optim *o, kn_tensor extra) {
    kn_captured *c = NULL;
    return realized(o, extra, &c) == KN_OK ? c : NULL;
}
