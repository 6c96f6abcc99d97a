/* exec.c: programs made ready for a device, the cache of them, and running one. See run.h.
 *
 * A device that launches kernels gets the program lowered to stage render and turned into a schedule, and the graph is
 * dropped; a device that executes programs keeps the program as it was given. */
#include "run/kept.h"
#include "run/search/tune.h"

#include "device/cpu/cpu.h"
#include "ir/scalar.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_EXECS = 1024 };

static bool nomem(ki_run *r) { return ki_fail(&r->k->env, KI_E_NOMEM), false; }

/* ---- ports ----------------------------------------------------------------------------------------------------- */

/* The first of these ports that is a node, by its id: 1 + its place, 0: none is. NULL: out of memory. */
static uint32_t *ports_by_node(ki_run *r, const ki_program *p, const ki_port *port, size_t n) {
    uint32_t *first = ki_calloc(p->ir->n, sizeof *first);
    if (!first) return nomem(r), NULL;
    for (size_t i = n; i-- > 0;) first[port[i].node->id] = (uint32_t)i + 1;
    return first;
}

/* Which in ports of p those of the lowered program came from: callify orders them anew, all else keeps the order. */
static bool find_origins(ki_run *r, ki_exec *e, const ki_program *p, const ki_program *low) {
    bool same = p->stage >= KI_S_CALLIFY || low->stage == p->stage;
    uint32_t *first = same ? NULL : ports_by_node(r, p, p->in, p->nin);
    if (!same && !first) return false;
    for (size_t i = 0; i < low->nin; i++) {
        kn_uop from = low->in[i].origin;
        e->in[i].origin = same ? (i < p->nin ? (int32_t)i : -1) : from ? (int32_t)first[from->id] - 1 : -1;
    }
    ki_free(first);
    return true;
}

/* Outputs that are inputs, or other outputs, as well. */
static bool find_aliases(ki_run *r, ki_exec *e, const ki_program *low) {
    uint32_t *in = ports_by_node(r, low, low->in, low->nin), *out = ports_by_node(r, low, low->out, low->nout);
    for (size_t j = 0; in && out && j < low->nout; j++) {
        uint32_t id = low->out[j].node->id;
        e->out[j].alias = (int32_t)in[id] - 1;
        e->out[j].twin = out[id] == j + 1 ? -1 : (int32_t)out[id] - 1;
    }
    bool ok = in && out;
    ki_free(in);
    ki_free(out);
    return ok;
}

static bool note_variable(ki_run *r, ki_exec *e, const ki_param *p, int32_t *number) {
    if (ki_sched_var_find(e->var, e->nvar, p, number)) return true;
    ki_sched_var *v = ki_realloc(e->var, e->nvar + 1, sizeof *v);
    if (!v) return nomem(r);
    e->var = v;
    if (!ki_sched_var_make(p, v + e->nvar)) return nomem(r);
    e->nvar++;
    return true;
}

/* The variables of the schedule keep their numbers; those that are only ports come after. */
static void take_variables(ki_exec *e) {
    if (!e->schedule) return;
    e->var = e->schedule->var;
    e->nvar = e->schedule->nvar;
    e->schedule->var = NULL;
    e->schedule->nvar = 0;
}

static bool take_ports(ki_run *r, ki_exec *e, const ki_program *given, const ki_program *low) {
    e->in = ki_calloc(low->nin, sizeof *e->in);
    e->out = ki_calloc(low->nout, sizeof *e->out);
    if (!e->in || !e->out) return nomem(r);
    take_variables(e);
    e->nin = low->nin;
    e->nout = low->nout;
    for (size_t i = 0; i < low->nin; i++) {
        const ki_port *q = &low->in[i];
        e->in[i] = (ki_exec_port){(size_t)ki_nbytes(q->node), -1, -1, -1, -1};
        if (q->node->op == KN_PARAM && q->node->type->rank == 0 && !q->node->nsrc &&
            !note_variable(r, e, q->node->arg.param, &e->in[i].variable))
            return false;
    }
    for (size_t j = 0; j < low->nout; j++)
        e->out[j] = (ki_exec_port){(size_t)ki_nbytes(low->out[j].node), -1, -1, -1, -1};
    return find_origins(r, e, given, low) && find_aliases(r, e, low);
}

/* ---- making ---------------------------------------------------------------------------------------------------- */

void ki_exec_free(ki_exec *e) {
    if (!e) return;
    if (e->pins) {
        e->left = true;
        return;
    }
    ki_schedule_free(e->schedule);
    if (e->ir.env) {
        ki_program_free(&e->program);
        ki_ir_close(&e->ir);
    }
    for (uint32_t i = 0; i < e->nvar; i++) ki_free(e->var[i].name);
    ki_free(e->var);
    ki_free(e->in);
    ki_free(e->out);
    ki_free(e);
}

static bool lower_opts(ki_run *r, const ki_device *d, ki_lower_opts *o) {
    *o = (ki_lower_opts){
        .rough = true, .target = ki_target_chosen(&r->k->env, true), .machine = ki_cpu_machine(&r->k->env)};
    if (d->is == &ki_device_cpu) ki_tune(r, o);
    return o->target && o->machine.threads;
}

/* A variable's value reaches an executed program through a port. */
static bool add_variables(ki_exec *e) {
    ki_program *p = &e->program;
    for (uint32_t id = 1; id < e->ir.n; id++) {
        kn_uop u = e->ir.node[id];
        if (u->op != KN_PARAM || u->nsrc || u->arg.param->slot >= 0) continue;
        bool known = false;
        for (size_t i = 0; i < p->nin; i++) {
            kn_uop q = p->in[i].node;
            known = known || (q->op == KN_PARAM && q->arg.param == u->arg.param);
        }
        if (!known && !ki_program_port(p, false, u->arg.param->name, u->arg.param->len, u)) return false;
    }
    return true;
}

/* A callified program rendered, or as the disk has it. */
static bool render(ki_run *r, ki_exec *e, const ki_program *p, const ki_lower_opts *o) {
    ki_digest key;
    bool keep = ki_kept_key(r, p, o, &key);
    uint64_t unsettled = r->unsettled;
    e->kept = keep && ki_kept_find(r, key, &e->ir, &e->program);
    if (!e->kept && !ki_lower(p, &e->ir, KI_S_RENDER, o, &e->program)) return false;
    for (size_t i = 0; e->kept && i < p->nin; i++) e->program.in[i].origin = p->in[i].origin;
    if (keep && !e->kept && unsettled == r->unsettled) ki_kept_store(r, key, &e->program);
    return true;
}

/* The same of any stage. */
static bool render_any(ki_run *r, ki_exec *e, const ki_program *p, const ki_lower_opts *o) {
    if (!o->target->native || p->stage == KI_S_CALLIFY) return render(r, e, p, o);
    if (p->stage > KI_S_CALLIFY) return ki_lower(p, &e->ir, KI_S_RENDER, o, &e->program);
    ki_ir ir;
    ki_program called;
    if (!ki_ir_open(&ir, &r->k->env)) return false;
    bool ok = ki_lower(p, &ir, KI_S_CALLIFY, o, &called);
    if (ok) {
        ok = render(r, e, &called, o);
        ki_program_free(&called);
    }
    ki_ir_close(&ir);
    return ok;
}

/* e->ir and e->program: p lowered as far as the device needs it. */
static bool lower(ki_run *r, ki_exec *e, const ki_program *p, const ki_lower_opts *o) {
    if (!ki_ir_open(&e->ir, &r->k->env)) return false;
    double start = ki_now();
    bool executes = e->device->is->execute != NULL;
    bool ok = executes ? ki_lower(p, &e->ir, p->stage, o, &e->program) : render_any(r, e, p, o);
    r->lower_seconds += ki_now() - start;
    return ok && (!executes || add_variables(e));
}

static bool compile(ki_run *r, ki_device *d, ki_exec *const *e, size_t n, const char *cflags) {
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++) total += e[i]->schedule->nkernel;
    ki_kernel_text *text = ki_calloc(total + 1, sizeof *text);
    if (!text) return nomem(r);
    for (size_t i = 0; i < n; at += e[i++]->schedule->nkernel) ki_schedule_texts(&e[i]->program, e[i]->kept, text + at);
    bool ok = d->is->compile(d, cflags, text, total);
    at = 0;
    for (size_t i = 0; i < n && ok; at += e[i++]->schedule->nkernel) ki_schedule_entries(e[i]->schedule, text + at);
    ki_free(text);
    return ok;
}

bool ki_exec_make(ki_run *r, ki_device *d, const ki_program *const *p, size_t n, ki_exec **out) {
    ki_lower_opts o;
    bool ok = lower_opts(r, d, &o);
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n && ok; i++) {
        ki_exec *e = out[i] = ki_calloc(1, sizeof *e);
        if (!e) {
            ok = nomem(r);
            break;
        }
        e->device = d;
        ok = lower(r, e, p[i], &o);
        if (ok && !d->is->execute) ok = (e->schedule = ki_schedule_make(&e->program)) != NULL;
        ok = ok && take_ports(r, e, p[i], &e->program);
    }
    if (ok && !d->is->execute) ok = compile(r, d, out, n, o.target->cflags);
    for (size_t i = 0; i < n && out[i]; i++) {
        if (ok && out[i]->schedule) { /* the schedule says it all */
            ki_program_free(&out[i]->program);
            ki_ir_close(&out[i]->ir);
        }
        if (ok) continue;
        ki_exec_free(out[i]);
        out[i] = NULL;
    }
    if (ok) r->programs += n;
    return ok;
}

/* ---- the cache ------------------------------------------------------------------------------------------------- */

static ki_exec **find(ki_exec **table, size_t cap, ki_digest key) {
    size_t k = key.a & (cap - 1);
    while (table[k] && (table[k]->key.a != key.a || table[k]->key.b != key.b)) k = (k + 1) & (cap - 1);
    return &table[k];
}

static bool cache_room(ki_run *r) {
    if (r->exec_cap) return true;
    r->exec_cap = 4 * KEEP_EXECS;
    r->exec = ki_calloc(r->exec_cap, sizeof *r->exec);
    if (!r->exec) r->exec_cap = 0;
    return r->exec || nomem(r);
}

static int younger_first(const void *a, const void *b) {
    uint64_t x = (*(ki_exec *const *)a)->used, y = (*(ki_exec *const *)b)->used;
    return (x < y) - (x > y);
}

/* Drops the half that was not used for longest; the table is filled anew with the rest. */
static bool thin_out(ki_run *r) {
    ki_again_forget(r);
    ki_exec **v = ki_calloc(r->nexec, sizeof *v);
    size_t n = 0, keep = r->nexec / 2;
    if (!v) return nomem(r);
    for (size_t i = 0; i < r->exec_cap; i++)
        if (r->exec[i]) v[n++] = r->exec[i];
    qsort(v, n, sizeof *v, younger_first);
    memset(r->exec, 0, r->exec_cap * sizeof *r->exec);
    for (size_t i = 0; i < n; i++) {
        if (i < keep) *find(r->exec, r->exec_cap, v[i]->key) = v[i];
        else ki_exec_free(v[i]);
    }
    r->nexec = keep;
    ki_free(v);
    return true;
}

ki_digest ki_exec_settings(ki_run *r, const ki_device *d) {
    ki_digest all = {d->id, 0};
    for (int v = 0; v < KI_VAR_COUNT; v++) {
        if (!ki_vars[v].code) continue;
        const char *s = ki_setting(&r->k->env, (ki_var)v);
        size_t n = strlen(s);
        all = (ki_digest){ki_hash_bytes(all.a, s, n), ki_hash_bytes(all.b, s, n)};
    }
    return all;
}

ki_exec *ki_exec_find(ki_run *r, ki_device *d, ki_digest settings, const ki_program *p) {
    bool ok;
    ki_digest key = ki_graph_digest(p->ir, &p->root, 1, &ok);
    if (!ok || !cache_room(r)) return NULL;
    key = (ki_digest){ki_hash2(key.a, settings.a), ki_hash2(key.b, settings.b)};
    ki_exec *e = *find(r->exec, r->exec_cap, key);
    if (!e) {
        if (r->nexec >= KEEP_EXECS && !thin_out(r)) return NULL;
        if (!ki_exec_make(r, d, &p, 1, &e)) return NULL;
        e->key = key;
        *find(r->exec, r->exec_cap, key) = e;
        r->nexec++;
    }
    e->used = ++r->tick;
    return e;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static bool scratch_room(ki_run *r, ki_device *d, size_t bytes) {
    if (r->scratch && r->scratch_device == d && r->scratch_bytes >= bytes) return true;
    if (r->scratch) r->scratch_device->is->free(r->scratch_device, r->scratch, r->scratch_bytes);
    r->scratch_bytes = bytes;
    r->scratch_device = d;
    r->scratch = d->is->alloc(d, bytes);
    return r->scratch != NULL;
}

static bool run_schedule(ki_run *r, ki_exec *e, void *const *in, void *const *out, const int64_t *var) {
    ki_schedule *s = e->schedule;
    if (!scratch_room(r, e->device, s->scratch)) return false;
    for (size_t i = 0; i < e->nin; i++)
        if (s->in_slot[i] >= 0) s->base[s->in_slot[i]] = in[i];
    for (size_t j = 0; j < e->nout; j++)
        if (e->out[j].alias < 0 && e->out[j].twin < 0) s->base[s->out_slot[j]] = out[j];
    return ki_schedule_run(s, e->device, var, r->scratch);
}

/* What an execute writes to an output that is an input's memory goes there afterwards. */
static bool run_program(ki_run *r, ki_exec *e, void *const *in, void *const *out, const int64_t *var) {
    ki_device *d = e->device;
    void **i_mem = ki_calloc(e->nin, sizeof *i_mem), **o_mem = ki_calloc(e->nout, sizeof *o_mem);
    int64_t *scalar = ki_calloc(e->nin, sizeof *scalar);
    bool ok = (i_mem && o_mem && scalar) || nomem(r);
    for (size_t i = 0; i < e->nin && ok; i++) {
        int32_t v = e->in[i].variable;
        i_mem[i] = v < 0 ? in[i] : (void *)&scalar[i];
        if (v >= 0) ki_storage_put(e->var[v].dtype, &scalar[i], 0, ki_var_bits(e->var[v].dtype, var[v]));
    }
    for (size_t j = 0; j < e->nout && ok; j++) {
        bool own = e->out[j].alias < 0 && e->out[j].twin < 0;
        ok = (o_mem[j] = own ? out[j] : d->is->alloc(d, e->out[j].bytes)) != NULL;
    }
    ok = ok && d->is->execute(d, &e->program, i_mem, o_mem);
    for (size_t j = 0; o_mem && j < e->nout; j++) {
        if (e->out[j].alias < 0 && e->out[j].twin < 0) continue;
        if (ok && e->out[j].alias >= 0) memcpy(in[e->out[j].alias], o_mem[j], e->out[j].bytes);
        if (o_mem[j]) d->is->free(d, o_mem[j], e->out[j].bytes);
    }
    ki_free(i_mem);
    ki_free(o_mem);
    ki_free(scalar);
    return ok;
}

bool ki_exec_run(ki_run *r, ki_exec *e, void *const *in, void *const *out, const int64_t *var) {
    double start = ki_now();
    ki_device *d = e->device;
    bool ok = e->schedule ? run_schedule(r, e, in, out, var) : run_program(r, e, in, out, var);
    for (size_t j = 0; j < e->nout && ok; j++)
        if (e->out[j].alias < 0 && e->out[j].twin >= 0)
            ok = d->is->copy(d, KI_COPY_WITHIN, out[j], out[e->out[j].twin], e->out[j].bytes);
    r->replays++;
    r->run_seconds += ki_now() - start;
    return ok;
}
