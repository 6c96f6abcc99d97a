/* eval_vm.c: runs a compiled kernel. Every access is checked; memory of its own (LOCAL, REG) starts as a pattern, so that
 * what was never written shows. Hardware indices are run in turn, those of a workgroup innermost. */
#include "ir/eval_vm.h"
#include "ir/scalar.h"

#include <string.h>

enum { UNSET = 0xa5 };

typedef struct run {
    const ki_vm *vm;
    ki_env *env;
    uint64_t *slot;
    char **base;   /* by memory */
    int64_t *size; /* elements */
    uint64_t steps;
} run;

void ki_vm_free(ki_vm *vm) {
    if (!vm) return;
    ki_free(vm->code);
    ki_free(vm->mem);
    ki_free(vm->tables);
    ki_free(vm->extracts);
    ki_free(vm->consts);
    ki_free(vm->vars);
    ki_free(vm->special);
    ki_free(vm);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Bytes from the start of what it lies in to its end; INT64_MAX: more than that. */
static int64_t end_of(const ki_mem *m) {
    int64_t n;
    bool far =
        ki_mul_overflow(m->size, (int64_t)ki_itemsize((kn_dtype)m->dtype), &n) || ki_add_overflow(n, m->offset, &n);
    return far ? INT64_MAX : n;
}

bool ki_vm_fits(const ki_vm *vm, ki_env *env, const int64_t *bytes) {
    for (uint32_t i = 0; i < vm->nmem; i++) {
        const ki_mem *m = &vm->mem[i];
        bool argument = m->slot != KI_NOSLOT, inner = !argument && m->parent != KI_NOSLOT;
        int64_t need = end_of(m), have = argument ? bytes[m->slot]
                                         : inner  ? end_of(&vm->mem[m->parent])
                                                  : INT64_MAX - 1;
        if (need <= have && m->offset >= 0) continue;
        return ki_fail(env, KI_E_EVAL_BUFFER, argument ? m->slot : i, (long long)have, (long long)need), false;
    }
    return true;
}

static bool bind_memory(run *r, void *const *buf, const int64_t *bytes) {
    if (!ki_vm_fits(r->vm, r->env, bytes)) return false;
    for (uint32_t i = 0; i < r->vm->nmem; i++) {
        const ki_mem *m = &r->vm->mem[i];
        int64_t need = end_of(m);
        r->size[i] = m->size;
        if (m->slot != KI_NOSLOT) r->base[i] = (char *)buf[m->slot] + m->offset;
        else if (m->parent != KI_NOSLOT) r->base[i] = r->base[m->parent] + (m->offset - r->vm->mem[m->parent].offset);
        else if (!(r->base[i] = ki_malloc((size_t)(need ? need : 1)))) return ki_fail(r->env, KI_E_NOMEM), false;
    }
    return true;
}
static bool own(const ki_mem *m) { return m->slot == KI_NOSLOT && m->parent == KI_NOSLOT; }

static void forget_memory(run *r, bool local) {
    for (uint32_t i = 0; i < r->vm->nmem; i++) {
        const ki_mem *m = &r->vm->mem[i];
        if (own(m) && (local || m->space == KN_REG))
            memset(r->base[i], UNSET, (size_t)m->size * ki_itemsize((kn_dtype)m->dtype));
    }
}

static bool outside(run *r, const ki_instr *i, uint64_t at) {
    ki_fail(r->env, KI_E_EVAL_BOUNDS, ki_ops[i->op].name, i->node, (long long)at, (long long)r->size[i->mem]);
    return false;
}

/* The common dtypes without a call. */
static inline uint64_t fetch(kn_dtype t, const char *base, int64_t at) {
    if (t == KN_F32) {
        uint32_t w;
        memcpy(&w, base + 4 * at, sizeof w);
        return w;
    }
    return ki_storage_get(t, base, at);
}

static bool load(run *r, const ki_instr *i) {
    uint64_t *s = r->slot;
    int64_t size = r->size[i->mem];
    kn_dtype t = (kn_dtype)r->vm->mem[i->mem].dtype;
    for (uint32_t l = 0; l < i->lanes; l++) {
        int64_t at = (int64_t)s[i->a + l * i->sa];
        bool skip = at == INT64_MIN || (i->c != KI_NOSLOT && !s[i->c + l * i->sc]);
        if (skip) s[i->dst + l] = i->b != KI_NOSLOT ? s[i->b + l * i->sb] : 0;
        else if (at < 0 || at >= size) return outside(r, i, (uint64_t)at);
        else s[i->dst + l] = fetch(t, r->base[i->mem], at);
    }
    return true;
}

static bool store(run *r, const ki_instr *i) {
    const uint64_t *s = r->slot;
    int64_t size = r->size[i->mem];
    kn_dtype t = (kn_dtype)r->vm->mem[i->mem].dtype, in[2] = {t, t};
    for (uint32_t l = 0; l < i->lanes; l++) {
        int64_t at = (int64_t)s[i->a + l * i->sa];
        uint64_t v = s[i->b + l * i->sb];
        if (at == INT64_MIN || (i->c != KI_NOSLOT && !s[i->c + l * i->sc])) continue;
        if (at < 0 || at >= size) return outside(r, i, (uint64_t)at);
        if (i->code == KI_V_ATOMIC) {
            uint64_t old[2] = {ki_storage_get(t, r->base[i->mem], at), v};
            if (!ki_scalar(KN_ADD, t, in, old, &v))
                return ki_fail(r->env, KI_E_EVAL_OVERFLOW, ki_ops[i->op].name, i->node), false;
        }
        ki_storage_put(t, r->base[i->mem], at, v);
    }
    return true;
}

/* ---- values --------------------------------------------------------------------------------------------------- */

static bool overflow(run *r, const ki_instr *i) {
    ki_fail(r->env, KI_E_EVAL_OVERFLOW, ki_ops[i->op].name, i->node);
    return false;
}

static bool fold(run *r, const ki_instr *i, uint64_t *acc, uint64_t v) {
    const uint64_t *src[2] = {acc, &v};
    return ki_apply_run(&i->ap, 1, src, acc) || overflow(r, i);
}

static bool reduction(run *r, const ki_instr *i) {
    uint64_t *s = r->slot, id;
    if (i->code == KI_V_ACC) {
        const uint64_t *src[2] = {s + i->dst, s + i->a};
        s[i->b] = 1;
        return ki_apply_run(&i->ap, i->lanes, src, s + i->dst) || overflow(r, i);
    }
    if (i->code == KI_V_LREDUCE) {
        const int32_t *lane = r->vm->tables + i->table;
        for (uint32_t l = 0; l < i->lanes; l++) {
            uint64_t acc = i->extra ? s[i->a + (uint32_t)lane[l * i->extra]]
                                    : ki_scalar_identity((kn_op)i->op, (kn_dtype)i->dtype, false);
            for (uint32_t k = 1; k < i->extra; k++)
                if (!fold(r, i, &acc, s[i->a + (uint32_t)lane[l * i->extra + k]])) return false;
            s[i->dst + l] = acc;
        }
        return true;
    }
    if (i->code == KI_V_ACCEND && s[i->b]) return true;
    id = ki_scalar_identity((kn_op)i->op, (kn_dtype)i->dtype, i->code == KI_V_ACC0);
    if (i->code == KI_V_ACC0) s[i->b] = 0;
    for (uint32_t l = 0; l < i->lanes; l++) s[i->dst + l] = id;
    return true;
}

bool ki_vm_lane(const ki_vm *vm, ki_env *env, const ki_instr *i, const uint64_t *slot, uint32_t l, uint32_t *from) {
    const ki_extract *x = &vm->extracts[i->c];
    int64_t rest = l, at = 0, stride = 1;
    for (unsigned k = x->rank; k-- > 0; stride *= x->dim[k]) {
        int64_t c = rest % x->count[k];
        rest /= x->count[k];
        if (x->index[k] != KI_NOSLOT) c = (int64_t)slot[x->index[k] + (uint64_t)c];
        if (c < 0 || c >= x->dim[k]) {
            ki_fail(env, KI_E_EVAL_BOUNDS, ki_ops[i->op].name, i->node, (long long)c, (long long)x->dim[k]);
            return false;
        }
        at += c * stride;
    }
    *from = i->a + (uint32_t)at;
    return true;
}

static bool extract(run *r, const ki_instr *i) {
    uint32_t from;
    for (uint32_t l = 0; l < i->lanes; l++) {
        if (!ki_vm_lane(r->vm, r->env, i, r->slot, l, &from)) return false;
        r->slot[i->dst + l] = r->slot[from];
    }
    return true;
}

/* BITCAST across sizes, by way of storage. */
static bool convert(run *r, const ki_instr *i) {
    kn_dtype from = (kn_dtype)i->extra, to = (kn_dtype)i->dtype;
    size_t wide = ki_itemsize(to) > ki_itemsize(from) ? ki_itemsize(to) : ki_itemsize(from);
    for (size_t at = 0; at < i->lanes * ki_itemsize(to); at += wide) { /* a run that both dtypes divide */
        _Alignas(8) char raw[8];
        for (size_t b = 0; b < wide; b += ki_itemsize(from))
            ki_storage_put(from, raw, (int64_t)(b / ki_itemsize(from)), r->slot[i->a + (at + b) / ki_itemsize(from)]);
        for (size_t b = 0; b < wide; b += ki_itemsize(to))
            r->slot[i->dst + (at + b) / ki_itemsize(to)] = ki_storage_get(to, raw, (int64_t)(b / ki_itemsize(to)));
    }
    return true;
}

static bool apply(run *r, const ki_instr *i) {
    const uint64_t *src[3] = {r->slot + i->a, i->b == KI_NOSLOT ? NULL : r->slot + i->b,
                              i->c == KI_NOSLOT ? NULL : r->slot + i->c};
    return ki_apply_run(&i->ap, i->lanes, src, r->slot + i->dst) || overflow(r, i);
}

static bool other(run *r, const ki_instr *i) {
    uint64_t *s = r->slot;
    switch ((ki_code)i->code) {
    case KI_V_PICK:
        for (uint32_t l = 0; l < i->lanes; l++) {
            int32_t k = r->vm->tables[i->table + l];
            s[i->dst + l] = k < 0 ? 0 : s[i->a + (uint32_t)k];
        }
        return true;
    case KI_V_COPY: memmove(s + i->dst, s + i->a, i->lanes * sizeof *s); return true;
    case KI_V_EXTRACT: return extract(r, i);
    case KI_V_CONVERT: return convert(r, i);
    default: return reduction(r, i);
    }
}

static bool execute(run *r, size_t pc, size_t end) {
    const ki_instr *code = r->vm->code;
    uint64_t *s = r->slot;
    while (pc < end) {
        const ki_instr *i = &code[pc++];
        switch ((ki_code)i->code) {
        case KI_V_RANGE:
            s[i->dst] = 0;
            if ((int64_t)s[i->a] <= 0) pc += i->jump - 1;
            break;
        case KI_V_END:
            if (r->steps < i->jump + 1u) return ki_fail(r->env, KI_E_EVAL_BUDGET, 0ull), false;
            r->steps -= i->jump + 1u;
            if ((int64_t)++s[i->dst] < (int64_t)s[i->a]) pc -= i->jump + 1;
            break;
        case KI_V_IF:
            if (!s[i->a]) pc += i->jump - 1;
            break;
        case KI_V_APPLY:
            if (!apply(r, i)) return false;
            break;
        case KI_V_LOAD:
            if (!load(r, i)) return false;
            break;
        case KI_V_STORE:
        case KI_V_ATOMIC:
            if (!store(r, i)) return false;
            break;
        default:
            if (!other(r, i)) return false;
        }
    }
    return true;
}

/* ---- the entry ------------------------------------------------------------------------------------------------ */

/* Next combination of hardware indices; false after the last. A workgroup's own count fastest. *fresh: a new group. */
static bool next_special(run *r, bool *fresh) {
    *fresh = false;
    for (int pass = 1; pass >= 0; pass--)
        for (size_t k = 0; k < r->vm->nspecial; k++) {
            const ki_special *p = &r->vm->special[k];
            if (p->local != (pass == 1)) continue;
            if (!p->local) *fresh = true;
            if (++r->slot[p->slot] < r->slot[p->bound]) return true;
            r->slot[p->slot] = 0;
        }
    return false;
}

static bool run_all(run *r, const int64_t *var) {
    const ki_vm *vm = r->vm;
    for (size_t i = 0; i < vm->nconst; i++) r->slot[vm->consts[i].slot] = vm->consts[i].value;
    for (size_t i = 0; i < vm->nvar; i++)
        r->slot[vm->vars[i].slot] = ki_var_bits((kn_dtype)vm->vars[i].value, var[vm->vars[i].source]);
    forget_memory(r, true);
    if (!execute(r, 0, vm->prologue)) return false;
    int64_t group = 1;
    for (size_t i = 0; i < vm->nspecial; i++) {
        int64_t n = (int64_t)r->slot[vm->special[i].bound];
        if (n <= 0) return true;
        if (vm->special[i].local) group *= n;
        r->slot[vm->special[i].slot] = 0;
    }
    if (group > 1 && vm->barrier) return ki_fail(r->env, KI_E_EVAL_OP, "barrier in a workgroup", 0u, "kernel"), false;
    bool more = true, fresh;
    while (more) {
        if (!execute(r, vm->prologue, vm->n)) return false;
        more = next_special(r, &fresh);
        if (more) forget_memory(r, fresh);
    }
    return true;
}

int ki_vm_run(const ki_vm *vm, ki_env *env, void *const *buf, const int64_t *bytes, const int64_t *var,
              uint64_t *budget) {
    run r = {.vm = vm, .env = env, .steps = budget ? *budget : UINT64_MAX};
    r.slot = ki_calloc(vm->nslot + 1, sizeof *r.slot);
    r.base = ki_calloc(vm->nmem + 1, sizeof *r.base);
    r.size = ki_calloc(vm->nmem + 1, sizeof *r.size);
    bool ok = r.slot && r.base && r.size;
    if (!ok) ki_fail(env, KI_E_NOMEM);
    ok = ok && bind_memory(&r, buf, bytes) && run_all(&r, var);
    for (uint32_t i = 0; r.base && i < vm->nmem; i++)
        if (own(&vm->mem[i])) ki_free(r.base[i]);
    ki_free(r.slot);
    ki_free(r.base);
    ki_free(r.size);
    if (budget) *budget = r.steps;
    return ok ? KI_OK : env->status ? env->status : KI_INTERNAL;
}
