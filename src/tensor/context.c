/* context.c: opening and closing a context, its failure, its settings and its log. */
#include "rules/watch.h"
#include "tensor/build.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)KN_OK == KI_OK && (int)KN_BAD_ARGUMENT == KI_INVALID && (int)KN_PARSE == KI_PARSE &&
                   (int)KN_IO == KI_IO && (int)KN_NOMEM == KI_NOMEM && (int)KN_UNSUPPORTED == KI_UNSUPPORTED &&
                   (int)KN_INTERNAL == KI_INTERNAL && (int)KN_DEVICE == KI_DEVICE &&
                   (int)KN_VERIFY_FAILED == KI_VERIFY_FAILED,
               "public and internal statuses are the same numbers");

kn_ctx *kn_open(const char *device) {
    kn_ctx *k = ki_calloc(1, sizeof *k);
    if (!k) return NULL;
    if (!ki_env_open(&k->env)) return ki_free(k), NULL;
    if (!device || !*device) device = ki_setting(&k->env, KI_VAR_DEVICE);
    k->device = ki_device_id(&k->env, device);
    if (!ki_ir_open(&k->ir, &k->env) || k->env.err == KI_E_NOMEM) {
        ki_ir_close(&k->ir);
        ki_env_close(&k->env);
        return ki_free(k), NULL;
    }
    ki_settle_failure(k);                                      /* of a setting */
    if (!ki_watch_open(&k->env, false)) ki_env_clear(&k->env); /* what is lowered says it again */
    k->rng_seed = ki_setting_number(&k->env, KI_VAR_SEED);
    k->collected_nodes = k->ir.n;
    k->nomem = (struct kn_tensor_s){.k = k, .status = KI_NOMEM};
    return k;
}

void kn_close(kn_ctx *k) {
    if (!k) return;
    if (k->run_close) k->run_close(k);
    ki_handles_close(k);
    ki_recall_close(k);
    ki_storage_close(k);
    ki_free(k->sym);
    ki_text_free(&k->first);
    ki_ir_close(&k->ir);
    ki_env_close(&k->env);
    ki_free(k);
}

/* A failure of the call now running counts too: the run layer may be asked before the call has ended. */
kn_status kn_error(const kn_ctx *k) {
    if (!k) return KN_NOMEM;
    return (kn_status)(k->first_status ? k->first_status : k->env.err != KI_E_NONE ? k->env.status : KI_OK);
}
const char *kn_message(const kn_ctx *k) {
    if (!k) return "no context: there was no memory for one, or kn_open was never called";
    const ki_text *t = k->first_status ? &k->first : k->env.err != KI_E_NONE ? &k->env.message : NULL;
    return !t ? "" : t->s ? t->s : "out of memory";
}
void kn_clear(kn_ctx *k) {
    if (!k) return;
    k->first_status = KI_OK;
    k->first_tensor = NULL;
    ki_text_cut(&k->first, 0);
    ki_env_clear(&k->env);
}

void kn_set_log(kn_ctx *k, void (*log)(void *user, const char *text), void *user) {
    if (!k) return;
    k->env.log = log;
    k->env.log_user = user;
}

static int var_named(const char *name) {
    for (int v = 0; v < KI_VAR_COUNT; v++)
        if (!strcmp(ki_vars[v].name, name)) return v;
    return -1;
}
kn_status kn_set(kn_ctx *k, const char *name, const char *value) {
    if (!k) return KN_BAD_ARGUMENT;
    ki_settle_failure(k);
    if (!ki_given(k, "set", "name", name)) return (kn_status)ki_settle_failure(k);
    int v = var_named(name);
    if (v < 0) ki_fail(&k->env, KI_E_SETTING, name);
    else if (!ki_setting_set(&k->env, (ki_var)v, value)) return (kn_status)ki_settle_failure(k);
    else if (v == KI_VAR_SEED) k->rng_seed = ki_setting_number(&k->env, KI_VAR_SEED), k->rng_counter = 0;
    else if (v == KI_VAR_DEVICE) k->device = ki_device_id(&k->env, ki_setting(&k->env, KI_VAR_DEVICE));
    return (kn_status)ki_settle_failure(k);
}
const char *kn_get(const kn_ctx *k, const char *name) {
    int v = k && name ? var_named(name) : -1;
    return v < 0 ? NULL : ki_setting(&k->env, (ki_var)v);
}

void kn_free(void *p) { ki_free(p); }

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
const char *kn_version(void) { return TEXT(KN_VERSION_MAJOR) "." TEXT(KN_VERSION_MINOR) "." TEXT(KN_VERSION_PATCH); }

const char *kn_dtype_name(kn_dtype t) { return (unsigned)t < KI_DTYPE_COUNT ? ki_dtypes[t].name : "?"; }
size_t kn_dtype_size(kn_dtype t) { return (unsigned)t < KI_DTYPE_COUNT ? ki_dtypes[t].bytes : 0; }

kn_ints kn_ints_of(size_t n, const int64_t *v) {
    kn_ints l = {.n = n > KN_MAX_LIST ? KN_MAX_LIST + 1 : (int64_t)n};
    if (n && !v) l.n = KN_MAX_LIST + 1; /* no list: refused as one too long is */
    for (size_t i = 0; v && i < n && i < KN_MAX_LIST; i++) l.v[i] = v[i];
    return l;
}
