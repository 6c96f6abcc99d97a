/* schedule.c: from a rendered program to a command buffer, and replay. See schedule.h. */
#include "run/schedule.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct maker {
    const ki_program *p;
    ki_env *env;
    ki_schedule *s;
    int32_t *slot_of; /* by node id; -1 */
    uint32_t slot_cap, var_cap;
} maker;

static bool nomem(maker *m) { return ki_fail(m->env, KI_E_NOMEM), false; }

static bool malformed(maker *m, kn_uop u, const char *why) {
    return ki_fail(m->env, KI_E_SCHEDULE_FORM, ki_ops[u->op].name, why), false;
}

/* ---- slots and variables --------------------------------------------------------------------------------------- */

static bool slot_for(maker *m, kn_uop buffer, uint32_t *slot) {
    ki_schedule *s = m->s;
    if (m->slot_of[buffer->id] < 0) {
        if (s->nslot == m->slot_cap) {
            uint32_t cap = m->slot_cap ? m->slot_cap * 2 : 32;
            ki_sched_slot *v = ki_realloc(s->slot, cap, sizeof *v);
            if (!v) return nomem(m);
            s->slot = v;
            m->slot_cap = cap;
        }
        s->slot[s->nslot] = (ki_sched_slot){(size_t)ki_nbytes(buffer), 0};
        m->slot_of[buffer->id] = (int32_t)s->nslot++;
    }
    *slot = (uint32_t)m->slot_of[buffer->id];
    return true;
}

/* A buffer argument: BUFFER, or SLICEs (zero-copy views) of one. */
static bool argument(maker *m, kn_uop u, ki_sched_arg *a) {
    a->offset = 0;
    for (; u->op != KN_BUFFER; u = u->src[0]) {
        if (u->op == KN_AFTER || u->op == KN_BITCAST || u->op == KN_RESHAPE) continue;
        if (u->op != KN_SLICE) return malformed(m, u, "an argument must be a BUFFER or a SLICE of one");
        if (!ki_is_const(u->src[1])) return malformed(m, u, "the offset must be a constant");
        a->offset += u->src[1]->arg.i * (int64_t)ki_itemsize((kn_dtype)u->src[0]->dtype);
    }
    return slot_for(m, u, &a->slot);
}

static bool is_bounded(const ki_param *p) { return p->bounded && !ki_is_float((kn_dtype)p->dtype); }

bool ki_sched_var_find(ki_sched_var *v, uint32_t n, const ki_param *p, int32_t *number) {
    uint32_t i = 0;
    while (i < n && strcmp(v[i].name, p->name)) i++;
    *number = (int32_t)i;
    if (i == n) return false;
    if (is_bounded(p) && p->lo > v[i].lo) v[i].lo = p->lo;
    if (is_bounded(p) && p->hi < v[i].hi) v[i].hi = p->hi;
    return true;
}

bool ki_sched_var_make(const ki_param *p, ki_sched_var *out) {
    *out = (ki_sched_var){ki_malloc(p->len + 1), (kn_dtype)p->dtype, is_bounded(p) ? p->lo : INT64_MIN,
                          is_bounded(p) ? p->hi : INT64_MAX};
    if (out->name) memcpy(out->name, p->name, p->len + 1);
    return out->name != NULL;
}

/* Number of a variable, by name. */
static bool variable(maker *m, kn_uop u, int32_t *number) {
    ki_schedule *s = m->s;
    const ki_param *p = u->arg.param;
    if (ki_sched_var_find(s->var, s->nvar, p, number)) return true;
    if (s->nvar == m->var_cap) {
        uint32_t cap = m->var_cap ? m->var_cap * 2 : 8;
        ki_sched_var *v = ki_realloc(s->var, cap, sizeof *v);
        if (!v) return nomem(m);
        s->var = v;
        m->var_cap = cap;
    }
    ki_sched_var *v = &s->var[s->nvar];
    if (!ki_sched_var_make(p, v)) return nomem(m);
    s->nvar++;
    return true;
}

/* ---- launches ------------------------------------------------------------------------------------------------ */

static bool is_scalar_arg(kn_uop u) { return u->op == KN_CONST || (u->op == KN_PARAM && u->type->rank == 0); }

/* Buffers, then scalars: where call's arguments end and its variables begin. */
static uint32_t buffers_of(kn_uop call) {
    uint32_t n = 1;
    while (n < call->nsrc && !is_scalar_arg(call->src[n])) n++;
    return n - 1;
}

static bool add_launch(maker *m, kn_uop call) {
    ki_schedule *s = m->s;
    kn_uop body = call->src[0];
    ki_launch *l = &s->launch[s->nlaunch++];
    uint32_t nbuf = buffers_of(call);
    *l = (ki_launch){.buf = s->ptr + s->narg, .var = s->value + s->nvalue, .threads = 1};
    for (uint32_t k = 0; k < nbuf; k++)
        if (!argument(m, call->src[k + 1], &s->arg[s->narg++])) return false;
    for (uint32_t k = nbuf + 1; k < call->nsrc; k++) {
        kn_uop u = call->src[k];
        if (!is_scalar_arg(u)) return malformed(m, u, "variables come after buffers");
        s->value[s->nvalue] = u->op == KN_CONST ? u->arg.i : 0;
        s->var_of[s->nvalue] = -1;
        if (u->op == KN_PARAM && !variable(m, u, &s->var_of[s->nvalue])) return false;
        s->nvalue++;
    }
    if (body->op == KN_PROGRAM) {
        l->threads = body->arg.kernel ? body->arg.kernel->threads : 1;
        if (body->nsrc < 2 || (body->src[1]->op != KN_SOURCE && body->src[1]->op != KN_BINARY))
            return malformed(m, body, "it has neither source text nor machine code");
        s->nkernel++;
    } else if (body->op == KN_LOAD) {
        if (nbuf != 2) return malformed(m, body, "a copy takes two buffers");
        int64_t to = ki_nbytes(call->src[1]), from = ki_nbytes(call->src[2]);
        l->copy = true;
        l->bytes = (size_t)(to < from ? to : from);
    } else {
        return malformed(m, body, "only PROGRAMs and copies can be launched");
    }
    return true;
}

static bool alloc_arrays(maker *m, kn_uop root) {
    ki_schedule *s = m->s;
    size_t args = 0;
    for (uint32_t i = 0; i < root->nsrc; i++) {
        if (root->src[i]->op != KN_CALL) return malformed(m, root->src[i], "the root must be a LINEAR of CALLs");
        args += root->src[i]->nsrc;
    }
    s->launch = ki_calloc(root->nsrc, sizeof *s->launch);
    s->arg = ki_calloc(args, sizeof *s->arg);
    s->ptr = ki_calloc(args, sizeof *s->ptr);
    s->var_of = ki_calloc(args, sizeof *s->var_of);
    s->value = ki_calloc(args, sizeof *s->value);
    s->in_slot = ki_calloc(m->p->nin, sizeof *s->in_slot);
    s->out_slot = ki_calloc(m->p->nout, sizeof *s->out_slot);
    return (s->launch && s->arg && s->ptr && s->var_of && s->value && s->in_slot && s->out_slot) || nomem(m);
}

static bool add_ports(maker *m) {
    ki_schedule *s = m->s;
    const ki_program *p = m->p;
    uint32_t slot;
    for (size_t i = 0; i < p->nin; i++, s->nin++) {
        kn_uop u = p->in[i].node;
        int32_t number = 0;
        if (u->op == KN_PARAM) {
            if (!variable(m, u, &number)) return false;
            s->in_slot[i] = -1 - number;
            continue;
        }
        if (u->op != KN_BUFFER) return malformed(m, u, "an input must be a BUFFER or a variable");
        if (!slot_for(m, u, &slot)) return false;
        s->in_slot[i] = (int32_t)slot;
    }
    for (size_t i = 0; i < p->nout; i++, s->nout++) {
        kn_uop u = p->out[i].node;
        if (u->op != KN_BUFFER) return malformed(m, u, "an output must be a BUFFER");
        if (!slot_for(m, u, &slot)) return false;
        s->out_slot[i] = (int32_t)slot;
    }
    return true;
}

/* Every slot that is no port gets its own place in the scratch block (plan has made one arena of most). */
static bool place_scratch(maker *m, uint32_t nport) {
    ki_schedule *s = m->s;
    for (uint32_t k = 0; k < s->nslot; k++) {
        s->slot[k].scratch = -1;
        if (k < nport) continue;
        s->slot[k].scratch = (int64_t)s->scratch;
        s->scratch += (s->slot[k].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    s->base = ki_calloc(s->nslot, sizeof *s->base);
    return s->base || nomem(m);
}

ki_schedule *ki_schedule_make(const ki_program *p) {
    maker m = {.p = p, .env = p->ir->env};
    kn_uop root = p->root;
    if (root->op != KN_LINEAR) return malformed(&m, root, "the root must be a LINEAR of CALLs"), NULL;
    m.s = ki_calloc(1, sizeof *m.s);
    m.slot_of = ki_malloc(p->ir->n * sizeof *m.slot_of);
    bool ok = (m.s && m.slot_of) || nomem(&m);
    if (ok) {
        memset(m.slot_of, 0xff, p->ir->n * sizeof *m.slot_of);
        ok = alloc_arrays(&m, root) && add_ports(&m);
    }
    uint32_t nport = ok ? m.s->nslot : 0;
    for (uint32_t i = 0; i < root->nsrc && ok; i++) ok = add_launch(&m, root->src[i]);
    ok = ok && place_scratch(&m, nport);
    ki_free(m.slot_of);
    if (ok) return m.s;
    ki_schedule_free(m.s);
    return NULL;
}

void ki_schedule_texts(const ki_program *p, bool kept, ki_kernel_text *text) {
    for (uint32_t i = 0; i < p->root->nsrc; i++) {
        kn_uop body = p->root->src[i]->src[0];
        if (body->op != KN_PROGRAM) continue;
        const ki_bytes *s = body->src[1]->arg.str;
        const char *name = ki_kernel_name(body->arg.kernel);
        bool machine = body->src[1]->op == KN_BINARY;
        *text++ = (ki_kernel_text){.name = name, .text = s->s, .n = s->n, .machine = machine, .kept = kept};
    }
}

void ki_schedule_entries(ki_schedule *s, const ki_kernel_text *text) {
    for (size_t i = 0; i < s->nlaunch; i++)
        if (!s->launch[i].copy) s->launch[i].entry = text++->entry;
}

void ki_schedule_free(ki_schedule *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->nvar; i++) ki_free(s->var[i].name);
    ki_free(s->var);
    ki_free(s->launch);
    ki_free(s->arg);
    ki_free(s->ptr);
    ki_free(s->var_of);
    ki_free(s->value);
    ki_free(s->slot);
    ki_free(s->base);
    ki_free(s->in_slot);
    ki_free(s->out_slot);
    ki_free(s);
}

/* ---- replay -------------------------------------------------------------------------------------------------- */

bool ki_schedule_run(ki_schedule *s, ki_device *d, const int64_t *var, void *scratch) {
    for (uint32_t k = 0; k < s->nslot; k++)
        if (s->slot[k].scratch >= 0) s->base[k] = (char *)scratch + s->slot[k].scratch;
    for (size_t i = 0; i < s->narg; i++) s->ptr[i] = (char *)s->base[s->arg[i].slot] + s->arg[i].offset;
    for (size_t i = 0; i < s->nvalue; i++)
        if (s->var_of[i] >= 0) s->value[i] = var[s->var_of[i]];
    return d->is->submit(d, s->launch, s->nlaunch) && d->is->wait(d);
}
