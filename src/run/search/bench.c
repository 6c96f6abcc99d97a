/* bench.c: see tune.h. The kernel's text is read into a context of its own, so that what a trial's lowering says, or fails at, reaches
 * nobody else. Inputs are random: floats in (-1, 1), positions that are gathered from within the bounds the kernel itself
 * checks, the rest small. */
#include "run/search/tune.h"

#include "base/cgroup.h"
#include "base/thread.h"
#include "ir/scalar.h"
#include "run/search/sample.h"
#include "stages/scope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct ki_bench {
    kn_ctx *k;
    ki_run *r;
    ki_device *device;
    ki_ir ir;
    ki_program p;
    kn_uop sink;
    ki_sampling on;
    int64_t *var;
    ki_text said;
    bool open;
};

/* ---- a context like another -------------------------------------------------------------------------------------- */

static kn_ctx *context_like(const ki_env *like) {
    static const struct {
        ki_var v;
        const char *value;
    } own[] = {{KI_VAR_DEVICE, "CPU"}, {KI_VAR_DEBUG, ""}, {KI_VAR_TRACE, ""},   {KI_VAR_VERIFY, "0"},
               {KI_VAR_BEAM, "0"},     {KI_VAR_PERF, "0"}, {KI_VAR_CACHE, "off"}};
    kn_ctx *k = kn_open("CPU");
    bool ok = k != NULL;
    for (int v = 0; v < KI_VAR_COUNT && ok; v++) ok = ki_setting_set(&k->env, (ki_var)v, ki_setting(like, (ki_var)v));
    for (size_t i = 0; i < sizeof own / sizeof *own && ok; i++) ok = ki_setting_set(&k->env, own[i].v, own[i].value);
    if (ok) return k;
    kn_close(k);
    return NULL;
}

/* ---- what a kernel reads and writes ------------------------------------------------------------------------------ */

static kn_uop param_of(kn_uop u) {
    while (u->op == KN_INDEX || u->op == KN_AFTER || u->op == KN_LOAD || u->op == KN_CAST || u->op == KN_BITCAST)
        u = u->src[0];
    return u->op == KN_PARAM && u->arg.param->slot >= 0 ? u : NULL;
}

static bool note_access(ki_sample_buffer *b, const kn_uop *node, size_t n) {
    for (size_t i = 0; i < n; i++) {
        kn_uop u = node[i], p;
        for (uint32_t j = 0; j < u->nsrc; j++) {
            bool to = u->op == KN_STORE && j == 0;
            if (u->src[j]->op != KN_INDEX || u->op == KN_INDEX || !(p = param_of(u->src[j]))) continue;
            *(to ? &b[p->arg.param->slot].written : &b[p->arg.param->slot].read) = true;
        }
        /* a position in data, as an index */
        if (u->op == KN_INDEX && u->nsrc == 2 && (p = param_of(u->src[1]))) b[p->arg.param->slot].read = true;
        if (u->op == KN_ATOMICADD && (p = param_of(u->src[0])))
            b[p->arg.param->slot].written = b[p->arg.param->slot].read = true;
    }
    return true;
}

/* Integers below this are what the kernel checks for: the least constant that data from the slot is compared with. */
static int64_t bound_of(const kn_uop *node, size_t n, int32_t slot) {
    int64_t least = 0;
    for (size_t i = 0; i < n; i++) {
        kn_uop u = node[i];
        if (u->op != KN_CMPLT || !ki_is_const(u->src[1]) || ki_is_float((kn_dtype)u->src[1]->dtype)) continue;
        kn_uop p = param_of(u->src[0]);
        int64_t c = u->src[1]->arg.i;
        if (p && p->arg.param->slot == slot && c > 1 && (!least || c < least)) least = c;
    }
    return least;
}

static void fill(const ki_sample_buffer *b, kn_uop param, int64_t bound, uint64_t seed) {
    const ki_param *p = param->arg.param;
    kn_dtype t = b->dtype;
    size_t n = b->bytes / ki_itemsize(t);
    bool floats = ki_is_float(t), given = p->bounded && !floats && p->hi >= p->lo;
    int64_t lo = given ? p->lo : 0, most = given ? p->hi - p->lo + 1 : bound ? bound : t == KN_BOOL ? 2 : 100;
    if (most < 1) most = 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t x = seed >> 24;
        double f = (double)(int64_t)(x & 0xffffff) / 0x800000 - 1;
        if (t == KN_F32) ((float *)b->data)[i] = (float)f;
        else if (floats) ki_storage_put(t, b->data, (int64_t)i, ki_bits_from_f64(t, f));
        else ki_storage_put(t, b->data, (int64_t)i, ki_bits_wrap(t, lo + (int64_t)(x % (uint64_t)most)));
    }
}

/* Sets, by place, of the loops along which a value's floats vary as random ones do, all their bits, not in whether they are there. */
static void find_random(const ki_scope *s, uint64_t *set) {
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        bool load = u->op == KN_INDEX && ki_itemsize((kn_dtype)u->dtype) >= 4;
        for (uint32_t w = 0; w < s->words && load; w++) set[i * s->words + w] = s->free[i * s->words + w];
        for (uint32_t j = 0; j < u->nsrc; j++)
            for (uint32_t w = 0; w < s->words && u->op != KN_INDEX && ki_is_float((kn_dtype)u->src[j]->dtype); w++)
                set[i * s->words + w] |= set[s->at[u->src[j]->id] * s->words + w];
    }
}

/* In units in the last place how far two orders of a sum may be apart: errors of random terms go both ways, those of one that is added again and
 * again all go the same way. */
static double apart(const ki_scope *s, const uint64_t *random, kn_uop sum) {
    const uint64_t *varies = random + (size_t)s->at[sum->src[0]->id] * s->words;
    double terms = 1, again = 1;
    for (uint32_t j = 1; j < sum->nsrc; j++) {
        kn_uop r = sum->src[j];
        double n = r->op == KN_RANGE && r->hi.i < INT32_MAX ? (double)r->hi.i + 1 : 1;
        terms *= n;
        if (r->op == KN_RANGE && !ki_in_set(varies, ki_scope_rank(s, r))) again *= n;
    }
    return fmin(4 * sqrt(terms * again), fmax(4 * sqrt(terms), 2 * terms));
}

/* By how much results may differ: sums are added up in other orders. False: out of memory. */
static bool find_slack(ki_bench *b) {
    ki_scope s;
    double most = 4;
    bool ok = ki_scope_open(&s, &b->ir, b->sink);
    uint64_t *random = ok ? ki_calloc((size_t)s.n * s.words + 1, sizeof *random) : NULL;
    if (random) find_random(&s, random);
    for (uint32_t i = 0; i < s.n && random; i++) {
        kn_uop u = s.node[i];
        if (u->op == KN_REDUCE) most = fmax(most, apart(&s, random, u));
        if (u->nsrc && ki_is_float((kn_dtype)u->src[0]->dtype) && u->op != KN_STORE && u->op != KN_INDEX)
            b->on.decides |= u->dtype == KN_BOOL || ki_is_int((kn_dtype)u->dtype);
    }
    b->on.slack = ldexp(16 + most, -24);
    ok = random != NULL;
    ki_free(random);
    ki_scope_close(&s);
    return ok;
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static const char *take_buffers(ki_bench *b, const kn_uop *node, size_t n) {
    kn_uop call = b->p.root->src[0], param[256] = {NULL};
    size_t bytes = 0, nbuf = 0, nvar = 0;
    while (nbuf + 1 < call->nsrc && call->src[nbuf + 1]->op == KN_BUFFER) nbuf++;
    b->on.buffer = ki_calloc(nbuf + 1, sizeof *b->on.buffer);
    b->var = ki_calloc(call->nsrc, sizeof *b->var);
    if (!b->on.buffer || !b->var || nbuf > 256) return "there is no memory";
    b->on.nbuffer = nbuf;
    b->on.var = b->var;
    for (size_t i = 0; i < nbuf; i++) {
        kn_uop u = call->src[i + 1];
        size_t item = ki_itemsize((kn_dtype)u->dtype);
        b->on.buffer[i] = (ki_sample_buffer){.bytes = (size_t)u->type->numel * item, .dtype = (kn_dtype)u->dtype};
        bytes += b->on.buffer[i].bytes;
    }
    for (size_t i = nbuf + 1; i < call->nsrc; i++) {
        kn_uop u = call->src[i];
        const ki_param *p = u->op == KN_PARAM ? u->arg.param : NULL;
        if (!p || !p->bounded || ki_is_float((kn_dtype)p->dtype)) return "a variable has no bounds";
        b->var[nvar++] = p->hi;
    }
    uint64_t all = ki_memory_bytes();
    if (all && bytes > all / 8) return "its buffers take too much memory to be there several times";
    for (size_t i = 0; i < n; i++)
        if (node[i]->op == KN_PARAM && node[i]->arg.param->slot >= 0) param[node[i]->arg.param->slot & 255] = node[i];
    note_access(b->on.buffer, node, n);
    if (!ki_sampling_open(&b->on, &b->k->env)) return "there is no memory";
    for (size_t i = 0; i < nbuf; i++)
        if (b->on.buffer[i].read && param[i])
            fill(&b->on.buffer[i], param[i], bound_of(node, n, (int32_t)i), UINT64_C(0x9e3779b97f4a7c15) * (i + 1));
    ki_sampling_seal(&b->on);
    /* Beside each other only where they do not share more than they use. */
    b->on.jobs = bytes < 1 << 19 ? ki_cpu_count() / 2 : 1;
    return NULL;
}

static const char *open_bench(ki_bench *b, const ki_env *like, const char *text, size_t n) {
    kn_uop *node;
    if (!(b->k = context_like(like)) || !(b->r = ki_run_of(b->k))) return "there is no memory";
    if (!(b->device = ki_run_device(b->r, b->k->device))) return "there is no device";
    if (!ki_ir_open(&b->ir, &b->k->env) || !ki_parse(&b->ir, "a kernel", text, n, &b->p)) return "it has no text";
    b->open = true;
    b->sink = b->p.root->src[0]->src[0];
    int64_t count = ki_toposort(&b->ir, &b->sink, 1, &node);
    if (count < 0) return "there is no memory";
    const char *why = find_slack(b) ? take_buffers(b, node, (size_t)count) : "there is no memory";
    ki_free(node);
    return why;
}

ki_bench *ki_bench_open(const ki_env *like, const char *text, size_t n, const char **why) {
    ki_bench *b = ki_calloc(1, sizeof *b);
    *why = b ? open_bench(b, like, text, n) : "there is no memory";
    if (!*why) return b;
    ki_bench_close(b);
    return NULL;
}

void ki_bench_close(ki_bench *b) {
    if (!b) return;
    ki_sampling_close(&b->on);
    ki_free(b->on.buffer);
    ki_free(b->var);
    ki_text_free(&b->said);
    if (b->open) ki_program_free(&b->p);
    if (b->ir.env) ki_ir_close(&b->ir);
    kn_close(b->k);
    ki_free(b);
}

ki_ir *ki_bench_kernel(ki_bench *b, kn_uop *sink) {
    *sink = b->sink;
    return &b->ir;
}

ki_text *ki_bench_said(ki_bench *b) { return &b->said; }

/* ---- trials ---------------------------------------------------------------------------------------------------------- */

static void say(ki_bench *b, const ki_trial *t, const char *what) {
    ki_text_put(&b->said, "  [");
    ki_opts_put(&b->said, t->opt, t->nopt);
    ki_text_printf(&b->said, "]: %s\n", what);
}

static void say_outcome(ki_bench *b, const ki_trial *t, const ki_sample *s) {
    char text[200];
    if (s->outcome == KI_CRASHED && !s->signal)
        snprintf(text, sizeof text, "ended, and what this process does with SIGCHLD hides how");
    else if (s->outcome == KI_CRASHED)
        snprintf(text, sizeof text, "crashed, signal %d: a defect of the compiler", s->signal);
    else if (s->outcome == KI_WRONG)
        snprintf(text, sizeof text, "element %zu of buffer %zu is %g, not %g: a defect of the compiler", s->at,
                 s->buffer, s->got, s->expected);
    else return; /* too slow is no defect, nor is what could not be run */
    say(b, t, text);
}

/* The program of a trial, in a store of its own. */
static bool make(ki_bench *b, const ki_trial *t, ki_ir *ir, ki_program *p) {
    kn_uop sink = NULL;
    *p = (ki_program){0};
    if (!ki_ir_open(ir, &b->k->env)) return *ir = (ki_ir){0}, false;
    if (!ki_import(ir, &b->ir, &b->sink, 1, &sink) || !(sink = ki_apply_opts(ir, sink, t->opt, t->nopt))) return false;
    return ki_kernel_program(ir, sink, p);
}

/* No memory, no process, no file: what failed says nothing of the list that it failed for. */
static bool lacking(const ki_env *e) {
    return e->status == KI_NOMEM || e->status == KI_IO || (e->status == KI_DEVICE && e->err != KI_E_CC_FAILED);
}

/* Kernels ready to be called: all at once, or, if one of them cannot be made, each for itself. False: the means are lacking. */
static bool compile(ki_bench *b, const ki_program *p, ki_trial *const *t, size_t n, ki_exec **out) {
    const ki_program **list = ki_calloc(n + 1, sizeof *list);
    size_t *at = ki_calloc(n + 1, sizeof *at), m = 0;
    ki_exec **made = ki_calloc(n + 1, sizeof *made);
    for (size_t i = 0; list && at && made && i < n; i++)
        if (p[i].root) list[m] = &p[i], at[m++] = i;
    bool all = m && ki_exec_make(b->r, b->device, list, m, made), ok = list && at && made;
    for (size_t i = 0; i < m; i++) {
        ki_env_clear(&b->k->env);
        if (!all && !ki_exec_make(b->r, b->device, &list[i], 1, &made[i])) {
            if (lacking(&b->k->env)) ok = false;
            else if (b->k->env.err != KI_E_LANE_AXES) say(b, t[at[i]], b->k->env.message.s ? b->k->env.message.s : "?");
            made[i] = NULL;
        }
        out[at[i]] = made[i];
    }
    ki_env_clear(&b->k->env);
    ki_free(list), ki_free(at), ki_free(made);
    return ok;
}

/* Runs those that were made. False: some could not be run; those that were have their times, or, again, none has a new one. */
static bool sample(ki_bench *b, ki_trial *const *t, size_t n, ki_exec *const *e, double best, bool again) {
    ki_sample *v = ki_calloc(n + 1, sizeof *v);
    size_t *at = ki_calloc(n + 1, sizeof *at), m = 0;
    double *least = ki_calloc(n + 1, sizeof *least);
    bool ok = v && at && least;
    for (size_t i = 0; ok && i < n; i++) {
        least[i] = (double)INFINITY;
        if (!e[i] || e[i]->schedule->nlaunch != 1) continue;
        const ki_launch *l = &e[i]->schedule->launch[0];
        v[m] = (ki_sample){.entry = l->entry, .threads = l->threads};
        at[m++] = i;
    }
    for (int turn = 0; ok && turn < (again ? 3 : 1); turn++) { /* by turns: a slower minute hits all of them */
        ok = ki_sample_all(&b->on, v, m, best);
        for (size_t i = 0; i < m; i++) {
            if (v[i].outcome == KI_NO_CHILD) least[at[i]] = 0;
            if (v[i].outcome == KI_RAN && v[i].seconds < least[at[i]]) least[at[i]] = v[i].seconds;
            if (v[i].outcome != KI_RAN && !turn) say_outcome(b, t[at[i]], &v[i]);
        }
    }
    for (size_t i = 0; i < n && (ok || (least && !again)); i++) t[i]->time = least[i];
    ki_free(v), ki_free(at), ki_free(least);
    return ok;
}

bool ki_bench_measure(ki_bench *b, ki_trial *const *t, size_t n, double best, bool again) {
    ki_ir *ir = ki_calloc(n + 1, sizeof *ir);
    ki_program *p = ki_calloc(n + 1, sizeof *p);
    ki_exec **e = ki_calloc(n + 1, sizeof *e);
    bool room = ir && p && e, ok = room;
    for (size_t i = 0; i < n && ok; i++) {
        if (!make(b, t[i], &ir[i], &p[i])) p[i].root = NULL, ok = !lacking(&b->k->env);
        ki_env_clear(&b->k->env);
    }
    ok = ok && compile(b, p, t, n, e) && sample(b, t, n, e, best, again);
    for (size_t i = 0; i < n && room; i++) {
        ki_exec_free(e[i]);
        ki_program_free(&p[i]);
        if (ir[i].env) ki_ir_close(&ir[i]);
    }
    ki_free(ir), ki_free(p), ki_free(e);
    return ok;
}
