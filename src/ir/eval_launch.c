/* eval_launch.c: programs from rangeify to render: a LINEAR of CALLs over BUFFERs and SLICEs of them. Buffers that are no
 * port start as a pattern, so that what was never written shows. */
#include "ir/eval_impl.h"
#include "ir/eval_vm.h"
#include "ir/scalar.h"

#include <string.h>

enum { UNSET = 0xa5 };

typedef struct storage {
    char *data;
    int64_t bytes;
    bool mine;
} storage;
typedef struct launches {
    ki_ir *ir;
    ki_env *env;
    const ki_program *p;
    kn_uop *var; /* variables and their values */
    int64_t *value;
    size_t nvar;
    storage *at; /* by id of the BUFFER node */
    ki_vm **vm;  /* by id of the kernel: of the CALL that launched it first */
    uint32_t ids;
    uint64_t budget;
    bool dry; /* storage has no memory, and addresses all the same */
    int64_t used;
} launches;

static bool is_variable(kn_uop u) { return u->op == KN_PARAM && u->type->rank == 0; }

/* Storage of a CALL's argument: BUFFER, PARAM, or a SLICE, AFTER, RESHAPE of one. */
static bool locate(launches *l, kn_uop u, void **data, int64_t *bytes) {
    int64_t offset = 0;
    kn_uop top = u;
    for (; u->op != KN_BUFFER && u->op != KN_PARAM; u = u->src[0]) {
        if (u->op == KN_SLICE && u->src[1]->op == KN_CONST) {
            int64_t more;
            if (ki_mul_overflow(u->src[1]->arg.i, (int64_t)ki_itemsize((kn_dtype)u->src[0]->dtype), &more) ||
                ki_add_overflow(offset, more, &offset))
                offset = -1;
        } else if (u->nsrc == 0 || (u->op != KN_AFTER && u->op != KN_RESHAPE && u->op != KN_BITCAST)) {
            ki_fail(l->env, KI_E_EVAL_FORM, ki_ops[u->op].name, u->id,
                    "an argument of a CALL is a BUFFER or a SLICE of one");
            return false;
        }
    }
    if (u->op == KN_BUFFER && u->arg.buffer->addrspace != KN_GLOBAL)
        return ki_fail(l->env, KI_E_EVAL_FORM, "buffer", u->id, "outside kernels all BUFFERs are GLOBAL"), false;
    storage *s = &l->at[u->id];
    if (!s->data && l->dry) {
        s->bytes = ki_nbytes(u);
        s->data = (char *)(intptr_t)++l->used;
        if (ki_add_overflow(l->used, s->bytes, &l->used)) return ki_fail(l->env, KI_E_NOMEM), false;
    }
    if (!s->data) {
        s->bytes = ki_nbytes(u);
        s->mine = true;
        if (!(s->data = ki_malloc((size_t)(s->bytes ? s->bytes : 1)))) return ki_fail(l->env, KI_E_NOMEM), false;
        memset(s->data, UNSET, (size_t)s->bytes);
    }
    *bytes = ki_nbytes(top);
    if (offset < 0 || *bytes > s->bytes || offset > s->bytes - *bytes) {
        ki_fail(l->env, KI_E_EVAL_BOUNDS, ki_ops[top->op].name, top->id, (long long)offset, (long long)s->bytes);
        return false;
    }
    *data = (char *)((intptr_t)s->data + offset);
    return true;
}

/* What the interpreter cannot run it knows nothing against. */
static bool passes(ki_env *env) {
    bool unknown = env->err == KI_E_EVAL_OP;
    if (unknown) ki_env_clear(env);
    return unknown;
}

static bool wrong_call(launches *l, kn_uop call, const char *why) {
    return ki_fail(l->env, KI_E_EVAL_FORM, "call", call->id, why), false;
}

static bool is_param(const ki_mem *m) { return m->slot != KI_NOSLOT && m->parent == KI_NOSLOT; }

/* What stages take for granted: one slot is one PARAM, and what a kernel writes lies in no other of its arguments. */
static bool lie_apart(launches *l, kn_uop call, const ki_vm *vm, void *const *buf, const int64_t *bytes) {
    for (uint32_t i = 0; i < vm->nmem; i++)
        for (uint32_t j = 0; j < i && is_param(&vm->mem[i]); j++)
            if (is_param(&vm->mem[j]) && vm->mem[i].slot == vm->mem[j].slot)
                return wrong_call(l, call, "two PARAMs of its kernel have one slot");
    for (size_t k = 0; k < vm->n; k++) {
        bool writes = vm->code[k].code == KI_V_STORE || vm->code[k].code == KI_V_ATOMIC;
        uint32_t w = writes ? vm->mem[vm->code[k].mem].slot : KI_NOSLOT;
        for (uint32_t j = 0; w != KI_NOSLOT && j < vm->nargs; j++) {
            intptr_t a = (intptr_t)buf[w], b = (intptr_t)buf[j];
            if (j == w || a >= b + bytes[j] || b >= a + bytes[w]) continue;
            return wrong_call(l, call, "an argument that the kernel writes to overlaps another");
        }
    }
    return true;
}

/* The kernel, launched by this CALL with so many arguments. */
static bool launch(launches *l, kn_uop call, void **buf, int64_t *bytes, uint32_t nbuf, int64_t *var, uint32_t nvar) {
    ki_vm **vm = &l->vm[call->src[0]->id];
    bool first = !*vm;
    if (first && !(*vm = ki_vm_make(l->ir, call))) return l->dry && passes(l->env);
    if (nbuf != (*vm)->nargs || nvar != (*vm)->ntrailing)
        return wrong_call(l, call, "its kernel is called with more arguments, or fewer, elsewhere");
    if (l->dry)
        return ki_vm_fits(*vm, l->env, bytes) && lie_apart(l, call, *vm, buf, bytes) &&
               (!first || ki_vm_stays(*vm, l->env, var));
    return ki_vm_run(*vm, l->env, buf, bytes, var, l->p ? &l->budget : NULL) == KI_OK;
}

static bool run_call(launches *l, kn_uop call, void **buf, int64_t *bytes, int64_t *var) {
    uint32_t nbuf = 0, nvar = 0;
    bool known = true; /* the variables */
    kn_uop body = call->src[0];
    for (uint32_t k = 1; k < call->nsrc; k++) {
        kn_uop a = call->src[k];
        bool ok;
        if (a->type->rank) ok = locate(l, a, &buf[nbuf], &bytes[nbuf]), nbuf++;
        else var[nvar++] = ki_eval_index(l->ir, a, l->var, l->value, l->nvar, &ok), known &= ok, ok |= l->dry;
        if (!ok) return ki_fail(l->env, KI_E_EVAL_INPUT, "argument", ki_ops[a->op].name, a->id), false;
    }
    if (body->op == KN_LOAD) { /* a copy: the first argument from the second */
        if (nbuf < 2 || bytes[0] != bytes[1])
            return ki_fail(l->env, KI_E_EVAL_FORM, "load", body->id, "copies between equal buffers"), false;
        if (!l->dry) memmove(buf[0], buf[1], (size_t)bytes[0]);
        return true;
    }
    if (launch(l, call, buf, bytes, nbuf, known ? var : NULL, nvar)) return true;
    bool named = body->op == KN_SINK || body->op == KN_PROGRAM;
    if (named) ki_fail_note(l->env, "in kernel %s", ki_kernel_name(body->arg.kernel));
    return false;
}

static bool run_calls(launches *l, kn_uop root) {
    uint32_t most = root->nsrc, n = root->op == KN_CALL ? 1 : root->nsrc;
    for (uint32_t i = 0; root->op == KN_LINEAR && i < n; i++)
        if (root->src[i]->nsrc > most) most = root->src[i]->nsrc;
    void **buf = ki_calloc(most + 1, sizeof *buf);
    int64_t *bytes = ki_calloc(most + 1, sizeof *bytes), *var = ki_calloc(most + 1, sizeof *var);
    bool ok = buf && bytes && var;
    if (!ok) ki_fail(l->env, KI_E_NOMEM);
    for (uint32_t i = 0; ok && i < n; i++) {
        kn_uop call = root->op == KN_CALL ? root : root->src[i];
        if (call->op != KN_CALL) {
            ki_fail(l->env, KI_E_EVAL_FORM, ki_ops[call->op].name, call->id, "a launch list holds CALLs");
            ok = false;
        } else {
            ok = run_call(l, call, buf, bytes, var);
        }
    }
    ki_free(buf);
    ki_free(bytes);
    ki_free(var);
    return ok;
}

/* Inputs: variables by value; buffers by copy, since a kernel may write them. */
static bool bind(launches *l, const ki_program *p, const void *const *in) {
    for (size_t i = 0; i < p->nin && in; i++) {
        kn_uop u = p->in[i].node;
        if (is_variable(u)) {
            const ki_param *a = u->arg.param;
            int64_t v = (int64_t)ki_storage_get((kn_dtype)u->dtype, in[i], 0);
            l->var[l->nvar] = u;
            l->value[l->nvar++] = v;
            if (a->bounded && !ki_is_float((kn_dtype)u->dtype) && (v < a->lo || v > a->hi)) {
                ki_fail(l->env, KI_E_EVAL_VARIABLE, a->name, (long long)v, (long long)a->lo, (long long)a->hi);
                return false;
            }
            continue;
        }
        if (l->dry) continue;
        void *data;
        int64_t bytes, given = (int64_t)ki_itemsize(p->in[i].dtype);
        if (!locate(l, u, &data, &bytes)) return false;
        for (unsigned k = 0; k < p->in[i].rank; k++) given *= p->in[i].dim[k];
        memcpy(data, in[i], (size_t)(given < bytes ? given : bytes));
    }
    return true;
}

int ki_eval_launches(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o) {
    ki_env *env = p->ir->env;
    launches l = {.ir = p->ir,
                  .env = env,
                  .ids = p->ir->n,
                  .p = o && o->budget ? p : NULL,
                  .budget = o ? o->budget : 0,
                  .dry = o && o->dry};
    if (o && o->bound) return ki_fail(env, KI_E_EVAL_OP, "error bounds", p->root->id, "kernel");
    l.var = ki_malloc((p->nin + 1) * sizeof *l.var);
    l.value = ki_malloc((p->nin + 1) * sizeof *l.value);
    l.at = ki_calloc((size_t)l.ids + 1, sizeof *l.at);
    l.vm = ki_calloc((size_t)l.ids + 1, sizeof *l.vm);
    bool ok = l.var && l.value && l.at && l.vm;
    if (!ok) ki_fail(env, KI_E_NOMEM);
    ok = ok && bind(&l, p, in) && run_calls(&l, p->root);
    for (size_t i = 0; ok && i < p->nout; i++) {
        void *data;
        int64_t bytes, want = (int64_t)ki_itemsize(p->out[i].dtype);
        for (unsigned k = 0; k < p->out[i].rank; k++) want *= p->out[i].dim[k];
        ok = locate(&l, p->out[i].node, &data, &bytes);
        if (ok && !l.dry) memcpy(out[i], data, (size_t)(want < bytes ? want : bytes));
    }
    for (uint32_t i = 0; l.at && i <= l.ids; i++)
        if (l.at[i].mine) ki_free(l.at[i].data);
    for (uint32_t i = 0; l.vm && i <= l.ids; i++) ki_vm_free(l.vm[i]);
    ki_free(l.var);
    ki_free(l.value);
    ki_free(l.at);
    ki_free(l.vm);
    return ok ? KI_OK : env->status ? env->status : KI_INTERNAL;
}
