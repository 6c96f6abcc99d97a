/* realize.c: from tensors to values: plan, callify, find or compile, bind storage, run, and hand the results back.
 *
 * On an error nothing has changed but time spent: all that can fail is done before the program runs, which may overwrite what it reads,
 * and nothing after it. Storage that a program writes for the first time is made here; storage freed is the collector's business
 * (tensor/storage.c), but for what a realize that failed had made. */
#define KN_NO_LOC
#include "run/run.h"

#include <string.h>

#include <koine/tensor.h>

/* ---- variables --------------------------------------------------------------------------------------------------- */

kn_status kn_bind(kn_ctx *k, const char *name, int64_t value) {
    if (!k) return KN_BAD_ARGUMENT;
    ki_settle_failure(k);
    if (!ki_given(k, "bind", "name", name)) return (kn_status)ki_settle_failure(k);
    ki_run *r = ki_run_of(k);
    size_t i = 0;
    while (r && i < r->nbinding && strcmp(r->binding[i].name, name)) i++;
    if (r && i == r->nbinding) {
        size_t n = strlen(name) + 1;
        ki_binding *v = ki_realloc(r->binding, i + 1, sizeof *v);
        if (v) r->binding = v;
        char *s = v ? ki_malloc(n) : NULL;
        if (!s) return ki_fail(&k->env, KI_E_NOMEM), (kn_status)ki_settle_failure(k);
        memcpy(s, name, n);
        r->binding[r->nbinding++].name = s;
    }
    if (r) r->binding[i].value = value;
    return (kn_status)ki_settle_failure(k);
}

bool ki_variable_holds(ki_env *env, const char *name, int64_t lo, int64_t hi, int64_t value) {
    if (value >= lo && value <= hi) return true;
    ki_fail(env, KI_E_VARIABLE_RANGE, name, (long long)value, (long long)lo, (long long)hi);
    return false;
}

bool ki_variable_now(kn_ctx *k, const char *name, int64_t lo, int64_t hi, int64_t *value) {
    const ki_run *r = k->run; /* NULL: nothing was bound yet */
    for (size_t i = 0; r && i < r->nbinding; i++)
        if (strcmp(r->binding[i].name, name) == 0)
            return ki_variable_holds(&k->env, name, lo, hi, *value = r->binding[i].value);
    return ki_fail(&k->env, KI_E_VARIABLE_UNBOUND, name), false;
}

bool ki_bind_variables(ki_run *r, const ki_exec *e) {
    if (e->nvar > r->value_cap) {
        int64_t *v = ki_realloc(r->value, e->nvar, sizeof *v);
        if (!v) return ki_fail(&r->k->env, KI_E_NOMEM), false;
        r->value = v;
        r->value_cap = e->nvar;
    }
    for (uint32_t v = 0; v < e->nvar; v++) {
        const ki_sched_var *x = &e->var[v];
        if (!ki_variable_now(r->k, x->name, x->lo, x->hi, &r->value[v])) return false;
    }
    return true;
}

/* ---- storage ----------------------------------------------------------------------------------------------------- */

/* Memory for a BUFFER on d. */
static bool make_storage(kn_ctx *k, ki_device *d, kn_uop buffer) {
    ki_storage *s = ki_storage_of(k, buffer);
    size_t bytes = (size_t)ki_nbytes(buffer);
    s->data = d->is->alloc(d, bytes);
    if (!s->data) return false;
    s->device = d;
    s->bytes = bytes;
    k->live_bytes += bytes;
    k->new_bytes += bytes;
    return true;
}

static void drop_storage(kn_ctx *k, kn_uop buffer) {
    ki_storage *s = ki_storage_of(k, buffer);
    k->live_bytes -= s->bytes;
    k->new_bytes -= s->bytes;
    k->run_free(k, s);
    s->device = NULL;
    s->bytes = 0;
}

/* A view on a new BUFFER of the shape of u; a symbolic axis is laid out at its upper bound. */
static kn_uop place_for(kn_ctx *k, ki_device *d, kn_uop u) {
    int64_t dim[KI_MAX_RANK], zero[KI_MAX_RANK] = {0};
    for (unsigned a = 0; a < u->type->rank; a++) dim[a] = u->type->dim[a].n;
    kn_uop b = ki_buffer_new(k, u->type->numel, (kn_dtype)u->dtype, d->id);
    if (!b) return NULL;
    kn_uop v = ki_reshape(&k->ir, b, dim, u->type->rank);
    if (!u->type->symbolic) return v;
    return ki_op3(&k->ir, KN_SHRINK, v, ki_shape_src(&k->ir, zero, u->type->rank), ki_shape_of(&k->ir, u));
}

static kn_uop buffer_of(kn_uop view) {
    while (view && view->op != KN_BUFFER) view = view->src[0];
    return view;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

typedef struct job {
    kn_ctx *k;
    ki_run *r;
    ki_plan plan;
    ki_ir ir; /* of the callified program */
    ki_program callified;
    kn_uop *value; /* by root of the plan */
    kn_uop place;  /* of the last root that stays */
    void **in, **out;
    kn_uop *in_buffer, *out_buffer; /* what they are the memory of; of an assignment's result and a variable NULL */
    kn_uop *made;                   /* those whose memory is new */
    size_t nmade;
    kn_captured **captured; /* NULL: it is not to be kept */
} job;

static bool have_storage(job *j, ki_device *d, kn_uop buffer) {
    if (ki_storage_of(j->k, buffer)->data) return true;
    if (!make_storage(j->k, d, buffer)) return false;
    j->made[j->nmade++] = buffer;
    return true;
}

static bool open_memory(job *j, ki_device *d, const ki_again *a) {
    const ki_exec *e = a->exec;
    kn_ctx *k = j->k;
    j->in = ki_calloc(e->nin, sizeof *j->in);
    j->out = ki_calloc(e->nout, sizeof *j->out);
    j->value = ki_calloc(j->plan.n + 1, sizeof *j->value);
    j->in_buffer = ki_calloc(2 * (e->nin + e->nout) + 1, sizeof *j->in_buffer);
    if (!j->in || !j->out || !j->value || !j->in_buffer) return ki_fail(&k->env, KI_E_NOMEM), false;
    j->out_buffer = j->in_buffer + e->nin;
    j->made = j->out_buffer + e->nout;
    for (size_t i = 0; i < e->nin; i++) {
        kn_uop u = ki_again_origin(a, &j->plan, i);
        if (e->in[i].variable >= 0) continue;
        if (!u || u->op != KN_BUFFER) {
            ki_fail(&k->env, KI_E_INPUT_MISSING, u && u->op == KN_PARAM ? u->arg.param->name : "?");
            return false;
        }
        if (!have_storage(j, d, u)) return false;
        j->in[i] = ki_storage_of(k, u)->data;
        j->in_buffer[i] = u;
    }
    for (size_t i = j->plan.nassign; i < j->plan.n; i++) {
        if (!(j->value[i] = place_for(k, d, j->plan.root[i]))) return false;
        kn_uop b = j->out_buffer[i] = buffer_of(j->value[i]);
        if (!have_storage(j, d, b)) return false;
        j->out[i] = ki_storage_of(k, b)->data;
    }
    return true;
}

bool ki_copy_passed_through(const ki_exec *e, void *const *in, void *const *out) {
    ki_device *d = e->device;
    for (size_t i = 0; i < e->nout; i++)
        if (out[i] && e->out[i].alias >= 0 &&
            !d->is->copy(d, KI_COPY_WITHIN, out[i], in[e->out[i].alias], e->out[i].bytes))
            return false;
    return true;
}

/* A value of symbolic shape stays what it was: its shape is another when its variables are, and it is computed anew. So does a variable. */
static bool stays(kn_uop root) { return root->type->symbolic || ki_is_variable(root); }

static bool prepare(job *j) {
    for (size_t i = j->plan.nassign; i < j->plan.n; i++) {
        kn_uop u = j->plan.root[i];
        if (!stays(u)) continue;
        j->place = j->value[i];
        j->value[i] = u;
    }
    return ki_plan_prepare(j->k, &j->plan, j->value);
}

/* The exec of a plan that is not known, by the canonical graph. */
static ki_exec *lowered(job *j, ki_device *d, ki_digest settings, bool watched) {
    kn_ctx *k = j->k;
    if (!ki_plan_program(k, &j->plan) || !ki_ir_open(&j->ir, &k->env)) return NULL;
    double start = ki_now();
    bool ok = watched ? ki_lower(&j->plan.program, &j->ir, KI_S_CALLIFY, NULL, &j->callified)
                      : ki_callify(&j->plan.program, &j->ir, &j->callified);
    j->r->lower_seconds += ki_now() - start;
    return ok ? ki_exec_find(j->r, d, settings, &j->callified) : NULL;
}

/* The plan's exec and what its ports stand for, as the last time if there was one. */
static const ki_again *find(job *j, ki_device *d) {
    ki_run *r = j->r;
    const ki_env *env = &j->k->env;
    /* The pipeline's driver prints, checks and tidies up; every step of a training loop comes by here and needs none. */
    bool watched = *ki_setting(env, KI_VAR_DEBUG) || ki_setting_number(env, KI_VAR_VERIFY);
    ki_digest settings = ki_exec_settings(r, d);
    size_t n;
    uint64_t *key = ki_again_key(r, &j->plan, &n);
    const ki_again *a = key && !watched ? ki_again_find(r, key, n, settings) : NULL;
    if (a) {
        a->exec->used = ++r->tick;
    } else if (key) {
        ki_exec *e = lowered(j, d, settings, watched);
        a = e ? ki_again_note(r, key, n, settings, e, &j->plan, &j->callified) : NULL;
    }
    ki_free(key);
    return a;
}

/* Where the memory lies is the captured step's from now on. */
static bool capture(job *j, ki_exec *e) {
    kn_captured *c = ki_captured_new(j->r, e, j->in, j->out, j->in_buffer, j->out_buffer);
    if (c) j->in = j->out = NULL;
    return (*j->captured = c) != NULL;
}

static bool run_job(job *j) {
    unsigned id = 0;
    for (size_t i = 0; i < j->plan.n && !id; i++) id = j->plan.root[i]->type->device;
    ki_device *d = ki_run_device(j->r, id ? id : j->k->device);
    const ki_again *a = d ? find(j, d) : NULL;
    if (!a || !ki_bind_variables(j->r, a->exec) || !open_memory(j, d, a) || !prepare(j)) return false;
    void **in = j->in, **out = j->out;
    if (j->captured && !capture(j, a->exec)) return false;
    if (!ki_exec_run(j->r, a->exec, in, out, j->r->value) || !ki_copy_passed_through(a->exec, in, out)) return false;
    ki_plan_done(j->k, &j->plan);
    return true;
}

/* What can be captured has roots, and each a place of its own. */
static bool can_capture(const job *j) {
    if (!j->plan.n) return ki_fail(&j->k->env, KI_E_CAPTURE_NOTHING), false;
    for (size_t i = j->plan.nassign; i < j->plan.n; i++)
        if (stays(j->plan.root[i])) return ki_fail(&j->k->env, KI_E_CAPTURE_SYMBOLIC), false;
    return true;
}

bool ki_realize(kn_ctx *k, const kn_tensor *t, size_t n, kn_uop *place, kn_captured **kept) {
    job j = {.k = k, .r = ki_run_of(k), .captured = kept};
    if (!j.r || !ki_plan_open(k, t, n, &j.plan)) return false;
    bool ok = (!kept || can_capture(&j)) && (j.plan.n == 0 || run_job(&j));
    if (!ok && kept && *kept) ki_captured_close(*kept), *kept = NULL;
    while (!ok && j.nmade) drop_storage(k, j.made[--j.nmade]);
    if (j.ir.env) {
        ki_program_free(&j.callified);
        ki_ir_close(&j.ir);
    }
    ki_free(j.in);
    ki_free(j.out);
    ki_free(j.value);
    ki_free(j.in_buffer);
    ki_plan_close(&j.plan);
    if (place) *place = j.place;
    return ok;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

kn_ctx *ki_context_of(const kn_tensor *t, size_t n) {
    for (size_t i = 0; t && i < n; i++)
        if (t[i]) return t[i]->k;
    return NULL;
}

kn_status kn_realize_at(const char *file, int line, size_t n, const kn_tensor *t) {
    kn_ctx *k = ki_context_of(t, n);
    if (!k) return n ? KN_BAD_ARGUMENT : KN_OK;
    ki_settle_failure(k);
    k->env.loc = (ki_loc){file, line};
    if (ki_realize(k, t, n, NULL, NULL)) ki_maybe_collect(k, k->depth == 0);
    k->env.loc = (ki_loc){NULL, 0};
    return (kn_status)ki_settle_failure(k);
}
