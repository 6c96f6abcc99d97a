/* kernel.c: kernels built by hand (uop.h): checked, rendered, run. A kernel is a SINK in the form of stage rangeify; around
 * it goes the launch that a schedule would make: LINEAR(CALL(SINK, a BUFFER for each PARAM slot, variables...)), in a
 * store of its own. Every buffer is an input and an output, since a hand-built kernel may read and write any. */
#include "run/run.h"

#include <stdio.h>
#include <string.h>

#include <koine/uop.h>

enum { MAX_SLOTS = 256 };

typedef struct job {
    ki_ir ir;
    ki_program p;
} job;

static bool fail(ki_env *env, const char *why) { return ki_fail(env, KI_E_KERNEL_FORM, why), false; }

/* arg[slot]: a BUFFER like the PARAM of that slot. Variables follow. */
static bool arguments(ki_ir *ir, kn_uop sink, kn_uop *arg, uint32_t *nslot, uint32_t *n) {
    kn_uop *order;
    int64_t count = ki_toposort(ir, &sink, 1, &order);
    bool ok = count >= 0;
    *nslot = 0;
    for (int64_t i = 0; i < count && ok; i++) {
        const ki_param *p = order[i]->op == KN_PARAM ? order[i]->arg.param : NULL;
        if (!p || p->slot < 0) continue;
        if (p->slot >= MAX_SLOTS) ok = fail(ir->env, "its PARAM slots are numbered from 0, and below 256");
        else if (arg[p->slot]) ok = fail(ir->env, "two PARAMs have one slot");
        else {
            arg[p->slot] =
                ki_buffer_make(ir, (uint32_t)p->slot + 1, order[i]->type->numel, (kn_dtype)p->dtype, KN_GLOBAL, 0);
            ok = arg[p->slot] != NULL;
            if ((uint32_t)p->slot >= *nslot) *nslot = (uint32_t)p->slot + 1;
        }
    }
    for (uint32_t s = 0; s < *nslot && ok; s++) ok = arg[s] || fail(ir->env, "its PARAM slots leave a gap");
    *n = *nslot;
    for (int64_t i = 0; i < count && ok; i++)
        if (order[i]->op == KN_PARAM && order[i]->arg.param->slot < 0) {
            if (*n == 2 * MAX_SLOTS) ok = fail(ir->env, "it has too many variables");
            else arg[(*n)++] = order[i];
        }
    if (count >= 0) ki_free(order);
    return ok;
}

bool ki_kernel_program(ki_ir *ir, kn_uop sink, ki_program *p) {
    kn_uop src[2 * MAX_SLOTS + 1] = {sink}, *arg = src + 1;
    uint32_t nslot, n;
    char name[24];
    *p = (ki_program){.ir = ir, .stage = KI_S_RANGEIFY};
    if (!arguments(ir, sink, arg, &nslot, &n)) return false;
    kn_uop call = ki_opn(ir, KN_CALL, src, n + 1);
    p->root = call ? ki_op1(ir, KN_LINEAR, call) : NULL;
    bool ok = p->root != NULL;
    for (uint32_t s = 0; s < n && ok; s++) {
        int len = snprintf(name, sizeof name, "%s%u", s < nslot ? "data" : "var", (unsigned)s);
        ok = ki_program_port(p, false, name, (size_t)len, arg[s]) &&
             (s >= nslot || ki_program_port(p, true, name, (size_t)len, arg[s]));
    }
    return ok;
}

static void close_job(job *j) {
    if (!j->ir.env) return;
    ki_program_free(&j->p);
    ki_ir_close(&j->ir);
}

static bool open_job(kn_ctx *k, kn_uop kernel, job *j) {
    *j = (job){0};
    if (!k) return false;
    ki_settle_failure(k);
    if (!kernel) return fail(&k->env, "it is NULL: an earlier constructor failed");
    if (kernel->op != KN_SINK || !kernel->arg.kernel)
        return fail(&k->env, "its root is no SINK with a name (kn_u_kernel)");
    return ki_ir_open(&j->ir, &k->env) && ki_import(&j->ir, &k->ir, &kernel, 1, &kernel) &&
           ki_kernel_program(&j->ir, kernel, &j->p);
}

/* ---- public ------------------------------------------------------------------------------------------------------ */

static bool lower(kn_ctx *k, const ki_program *p, ki_stage to, ki_ir *ir, ki_program *out) {
    ki_lower_opts o = {.machine.threads = 1, .verify = to != KI_S_RENDER};
    return ki_ir_open(ir, &k->env) && ki_lower(p, ir, to, &o, out);
}

kn_status kn_kernel_check(kn_ctx *k, kn_uop kernel) {
    job j;
    ki_ir ir = {0};
    ki_program low = {0};
    if (open_job(k, kernel, &j)) lower(k, &j.p, KI_S_LINEARIZE, &ir, &low);
    if (ir.env) {
        ki_program_free(&low);
        ki_ir_close(&ir);
    }
    close_job(&j);
    return k ? (kn_status)ki_settle_failure(k) : KN_BAD_ARGUMENT;
}

static char *source_of(const ki_program *p) {
    for (uint32_t id = 1; id < p->ir->n; id++) {
        kn_uop u = p->ir->node[id];
        if (u->op != KN_SOURCE) continue;
        char *s = ki_malloc(u->arg.str->n + 1);
        if (s) memcpy(s, u->arg.str->s, u->arg.str->n + 1);
        return s;
    }
    return NULL;
}

char *kn_kernel_source(kn_ctx *k, kn_uop kernel, const char *target) {
    job j;
    ki_ir ir = {0};
    ki_program low = {0};
    char *text = NULL;
    if (open_job(k, kernel, &j) && ki_given(k, "kernel_source", "target", target)) {
        if (strcmp(target, "c") != 0) ki_fail(&k->env, KI_E_KERNEL_TARGET, target);
        else if (lower(k, &j.p, KI_S_RENDER, &ir, &low) && !(text = source_of(&low))) ki_fail(&k->env, KI_E_NOMEM);
    }
    if (ir.env) {
        ki_program_free(&low);
        ki_ir_close(&ir);
    }
    close_job(&j);
    if (k) ki_settle_failure(k);
    return text;
}

kn_status kn_kernel_run(kn_ctx *k, kn_uop kernel, void *const *buffers, size_t n) {
    job j;
    if (open_job(k, kernel, &j)) {
        if (n != j.p.nin) ki_fail(&k->env, KI_E_KERNEL_POINTERS, (unsigned)j.p.nin, n);
        else if (!n || ki_given(k, "kernel_run", "buffers", buffers))
            ki_run_program(k, &j.p, k->env.device[k->device], buffers, buffers);
    }
    close_job(&j);
    return k ? (kn_status)ki_settle_failure(k) : KN_BAD_ARGUMENT;
}
