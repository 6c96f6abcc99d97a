/* run.c: the run layer's state: devices, bindings, numbers; and running a program on host memory. See run.h. */
#include "run/run.h"

#include "ir/scalar.h"
#include "run/search/tune.h"

#include <string.h>
#include <time.h>

double ki_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void free_storage(kn_ctx *k, ki_storage *s) {
    (void)k;
    if (s->device) s->device->is->free(s->device, s->data, s->bytes);
    else ki_data_free(s->data, s->bytes);
    s->data = NULL;
}

static void run_close(kn_ctx *k) {
    ki_run *r = k->run;
    if (!r) return;
    ki_again_forget(r);
    while (r->captured) ki_captured_close(r->captured);
    for (size_t i = 0; i < r->exec_cap; i++) ki_exec_free(r->exec[i]);
    ki_free(r->exec);
    if (r->scratch) r->scratch_device->is->free(r->scratch_device, r->scratch, r->scratch_bytes);
    /* Storage outlives the run layer by a moment: give back what devices own. */
    for (uint32_t i = 0; i < k->nstorage; i++) {
        ki_storage *s = &k->storage[i];
        if (!s->device || s->borrowed || !s->data) continue;
        free_storage(k, s);
        s->device = NULL;
    }
    for (unsigned i = 0; i < r->ndevice; i++) ki_device_close(r->device[i]);
    ki_free(r->device);
    for (size_t i = 0; i < r->nbinding; i++) ki_free(r->binding[i].name);
    ki_free(r->binding);
    ki_free(r->value);
    ki_tuned_free(r);
    ki_code_cache_close(&r->cache);
    ki_free(r);
    k->run = NULL;
    k->run_close = NULL;
    k->run_free = NULL;
}

ki_run *ki_run_of(kn_ctx *k) {
    if (k->run) return k->run;
    ki_run *r = ki_calloc(1, sizeof *r);
    if (!r) return ki_fail(&k->env, KI_E_NOMEM), NULL;
    r->k = k;
    k->run = r;
    k->run_close = run_close;
    k->run_free = free_storage;
    return r;
}

ki_device *ki_run_device(ki_run *r, unsigned id) {
    if (id >= r->ndevice) {
        ki_device **v = ki_realloc(r->device, id + 1, sizeof *v);
        if (!v) return ki_fail(&r->k->env, KI_E_NOMEM), NULL;
        memset(v + r->ndevice, 0, (id + 1 - r->ndevice) * sizeof *v);
        r->device = v;
        r->ndevice = id + 1;
    }
    if (!r->device[id]) r->device[id] = ki_device_open(&r->k->env, id);
    return r->device[id];
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

int kn_device_at(size_t i, kn_device_info *out) {
    for (size_t k = 0; k <= i; k++)
        if (!ki_device_classes[k]) return 0;
    const ki_device_class *c = ki_device_classes[i];
    if (out) *out = (kn_device_info){c->name, c->doc, !c->runs ? "none" : c->execute ? "interpreted" : "compiled"};
    return 1;
}

kn_stats kn_stats_of(const kn_ctx *k) {
    kn_stats s = {0};
    const ki_run *r = k ? k->run : NULL;
    if (!r) return s;
    s.programs = r->programs;
    s.replays = r->replays;
    s.kernels_searched = r->searched;
    s.trials_measured = r->measured;
    s.lower_seconds = r->lower_seconds;
    s.run_seconds = r->run_seconds;
    s.scratch_bytes = r->scratch_bytes;
    for (unsigned i = 0; i < r->ndevice; i++) {
        if (!r->device[i]) continue;
        const ki_device_stats *d = &r->device[i]->stats;
        s.kernels_launched += d->launched;
        s.kernels_compiled += d->compiled;
        s.kernels_cached += d->cached;
        s.compiler_runs += d->compiler_runs;
        s.compile_seconds += d->compile_seconds;
        s.bytes += d->bytes;
        s.peak_bytes += d->peak;
        s.pooled_bytes += d->pooled;
    }
    return s;
}

/* ---- programs -------------------------------------------------------------------------------------------------- */

bool ki_prepare(kn_ctx *k, const char *device, const ki_program *const *p, size_t n, ki_exec **out) {
    ki_run *r = ki_run_of(k);
    unsigned id = r ? device ? ki_device_intern(&k->env, device) : k->device : 0;
    ki_device *d = id ? ki_run_device(r, id) : NULL;
    memset(out, 0, n * sizeof *out);
    return d && ki_exec_make(r, d, p, n, out);
}

/* Inputs by port of e, from those by port of p. A variable's value stands in its input. */
static bool take_inputs(ki_run *r, const ki_exec *e, const ki_program *p, void *const *in, void **to, int64_t *var) {
    ki_env *env = &r->k->env;
    const ki_sched_var *x = e->var;
    uint8_t *known = ki_calloc(e->nvar, 1);
    bool ok = known || (ki_fail(env, KI_E_NOMEM), false);
    for (size_t i = 0; i < e->nin && ok; i++) {
        int32_t o = e->in[i].origin, v = e->in[i].variable;
        to[i] = o >= 0 ? in[o] : NULL;
        if (!to[i] && e->in[i].bytes) {
            ki_fail(env, KI_E_INPUT_MISSING, o >= 0 ? p->in[o].name : "?");
            ok = false;
        } else if (v >= 0) {
            var[v] = (int64_t)ki_storage_get(x[v].dtype, to[i], 0);
            known[v] = 1;
            ok = ki_variable_holds(env, x[v].name, x[v].lo, x[v].hi, var[v]);
        }
    }
    for (uint32_t v = 0; v < e->nvar && ok; v++)
        if (!known[v]) ok = (ki_fail(env, KI_E_VARIABLE_UNBOUND, x[v].name), false);
    ki_free(known);
    return ok;
}

bool ki_run_prepared(kn_ctx *k, ki_exec *e, const ki_program *p, void *const *in, void *const *out) {
    ki_run *r = ki_run_of(k);
    void **mem = ki_calloc(e->nin, sizeof *mem);
    int64_t *var = ki_calloc(e->nvar, sizeof *var);
    bool ok = (mem && var && r) || (ki_fail(&k->env, KI_E_NOMEM), false);
    ok = ok && take_inputs(r, e, p, in, mem, var);
    /* An output that is an input's memory is worked on in a copy: the caller's input stays as it is. */
    for (size_t j = 0; j < e->nout && ok; j++) {
        int32_t a = e->out[j].alias;
        if (a < 0 || e->out[j].twin >= 0) continue;
        memcpy(out[j], mem[a], e->out[j].bytes);
        mem[a] = out[j];
    }
    ok = ok && ki_exec_run(r, e, mem, out, var);
    for (size_t j = 0; j < e->nout && ok; j++)
        if (e->out[j].alias >= 0 && e->out[j].twin >= 0) memcpy(out[j], mem[e->out[j].alias], e->out[j].bytes);
    ki_free(mem);
    ki_free(var);
    return ok;
}

bool ki_run_program(kn_ctx *k, const ki_program *p, const char *device, void *const *in, void *const *out) {
    ki_exec *e;
    if (!ki_prepare(k, device, &p, 1, &e)) return false;
    bool ok = ki_run_prepared(k, e, p, in, out);
    ki_exec_free(e);
    return ok;
}
