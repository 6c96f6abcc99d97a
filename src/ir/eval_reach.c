/* eval_reach.c: where a compiled kernel's accesses lead, as far as loops and variables alone say.
 *
 * The kernel is gone through some hundred times without any memory. Each time every loop stands at one of its values: at its ends,
 * in all combinations; then one of them at its last values, among which gates end; then all anywhere. What is made of data is dark,
 * and of variables that have no values yet: nothing is said of an index, a gate or a loop's end that is. So a place outside that is
 * met here is one that the kernel leads to; that none is met proves nothing. */
#include "ir/eval_vm.h"
#include "ir/scalar.h"

#include <string.h>

enum { AXES = 6, CORNERS = 1 << AXES, SWEPT = 128, PASSES = CORNERS + SWEPT + 64, STEPS = 1 << 18 };

typedef struct walk {
    const ki_vm *vm;
    ki_env *env;
    uint64_t *slot;
    uint8_t *dark;                 /* by slot */
    unsigned pass, depth, deepest; /* depth: loops that are open */
    uint64_t steps;
} walk;

static void hide(walk *w, const ki_instr *i) { memset(w->dark + i->dst, 1, i->lanes); }

/* Where a loop of n iterations that stands in `depth` others stands in this pass. */
static uint64_t stand(const walk *w, uint64_t n) {
    unsigned swept = w->pass - CORNERS, all = w->deepest ? w->deepest : 1;
    if (w->pass < CORNERS) return w->pass >> w->depth % AXES & 1 ? n - 1 : 0;
    if (swept < SWEPT) return n - 1 - (w->depth == swept % all ? swept / all % n : 0);
    return ki_hash2(w->pass, w->depth) % n;
}

static void outside(walk *w, const ki_instr *i, int64_t at) {
    const ki_mem *m = &w->vm->mem[i->mem];
    ki_fail(w->env, KI_E_EVAL_BOUNDS, ki_ops[i->op].name, i->node, (long long)at, (long long)m->size);
    if (m->slot != KI_NOSLOT) ki_fail_note(w->env, "that PARAM slot %u has", m->slot);
}

static bool access(walk *w, const ki_instr *i) {
    int64_t size = w->vm->mem[i->mem].size;
    for (uint32_t l = 0; l < i->lanes; l++) {
        uint32_t a = i->a + l * i->sa, c = i->c + l * i->sc;
        int64_t at = (int64_t)w->slot[a];
        bool known = !w->dark[a] && at != INT64_MIN && (i->c == KI_NOSLOT || (!w->dark[c] && w->slot[c]));
        if (!known || (at >= 0 && at < size)) continue;
        return outside(w, i, at), false;
    }
    if (i->code == KI_V_LOAD) hide(w, i);
    return true;
}

/* One lane; a choice that is known needs only what it chooses. */
static bool apply(walk *w, const ki_instr *i, uint32_t l) {
    uint32_t from[3] = {i->a + l * i->ap.stride[0], i->b + l * i->ap.stride[1], i->c + l * i->ap.stride[2]};
    const uint64_t *src[3];
    bool dark = false;
    for (unsigned k = 0; k < i->ap.nsrc; k++) {
        src[k] = w->slot + from[k];
        bool needless = i->op == KN_WHERE && k && !w->dark[from[0]] && (k == 1) != (*src[0] != 0);
        dark |= w->dark[from[k]] && !needless;
    }
    bool fits = dark || ki_apply_run(&i->ap, 1, src, w->slot + i->dst + l);
    w->dark[i->dst + l] = dark || !fits;
    return fits || (ki_fail(w->env, KI_E_EVAL_OVERFLOW, ki_ops[i->op].name, i->node), false);
}

/* Which lanes are dark says what any of its indices is made of. */
static bool extract(walk *w, const ki_instr *i) {
    const ki_extract *x = &w->vm->extracts[i->c];
    uint32_t from;
    bool dark = false;
    for (unsigned k = 0; k < x->nindex; k++) dark |= memchr(w->dark + x->index[k], 1, (size_t)x->count[k]) != NULL;
    for (uint32_t l = 0; l < i->lanes; l++) {
        if (!dark && !ki_vm_lane(w->vm, w->env, i, w->slot, l, &from)) return false;
        if (!dark) w->slot[i->dst + l] = w->slot[from];
        w->dark[i->dst + l] = dark || w->dark[from];
    }
    return true;
}

static void pick(walk *w, const ki_instr *i) {
    for (uint32_t l = 0; l < i->lanes; l++) {
        int32_t k = w->vm->tables[i->table + l];
        w->slot[i->dst + l] = k < 0 ? 0 : w->slot[i->a + (uint32_t)k];
        w->dark[i->dst + l] = k >= 0 && w->dark[i->a + (uint32_t)k];
    }
}

static bool step(walk *w, const ki_instr *i, size_t *pc) {
    bool dark = i->a != KI_NOSLOT && w->dark[i->a];
    switch ((ki_code)i->code) {
    case KI_V_RANGE:
        if (dark || (int64_t)w->slot[i->a] <= 0) {
            *pc += i->jump - 1;
        } else {
            w->slot[i->dst] = stand(w, w->slot[i->a]);
            w->dark[i->dst] = 0;
            if (++w->depth > w->deepest) w->deepest = w->depth;
        }
        return true;
    case KI_V_END: w->depth--; return true;
    case KI_V_IF:
        if (dark || !w->slot[i->a]) *pc += i->jump - 1;
        return true;
    case KI_V_LOAD:
    case KI_V_STORE:
    case KI_V_ATOMIC: return access(w, i);
    case KI_V_APPLY:
        for (uint32_t l = 0; l < i->lanes; l++)
            if (!apply(w, i, l)) return false;
        return true;
    case KI_V_EXTRACT: return extract(w, i);
    case KI_V_PICK: pick(w, i); return true;
    case KI_V_COPY:
        memmove(w->slot + i->dst, w->slot + i->a, i->lanes * sizeof *w->slot);
        memmove(w->dark + i->dst, w->dark + i->a, i->lanes);
        return true;
    default: hide(w, i); return true;
    }
}

static bool go(walk *w, size_t pc, size_t end) {
    while (pc < end) {
        const ki_instr *i = &w->vm->code[pc++];
        w->steps += i->lanes + 1;
        if (!step(w, i, &pc)) return false;
    }
    return true;
}

/* Hardware indices are loops around all others. */
static bool begin(walk *w, const int64_t *var) {
    const ki_vm *vm = w->vm;
    memset(w->dark, 1, vm->nslot);
    for (size_t i = 0; i < vm->nconst; i++) {
        w->slot[vm->consts[i].slot] = vm->consts[i].value;
        w->dark[vm->consts[i].slot] = 0;
    }
    for (size_t i = 0; i < vm->nvar; i++) {
        const ki_fixed *v = &vm->vars[i];
        w->slot[v->slot] = var ? ki_var_bits((kn_dtype)v->value, var[v->source]) : 0;
        w->dark[v->slot] = !var;
    }
    w->depth = 0;
    if (!go(w, 0, vm->prologue)) return false;
    for (size_t i = 0; i < vm->nspecial; i++, w->depth++) {
        const ki_special *s = &vm->special[i];
        bool dark = w->dark[s->bound];
        if (!dark && (int64_t)w->slot[s->bound] <= 0) return false;
        if (!dark) w->slot[s->slot] = stand(w, w->slot[s->bound]);
        w->dark[s->slot] = dark;
    }
    return true;
}

bool ki_vm_stays(const ki_vm *vm, ki_env *env, const int64_t *var) {
    walk w = {.vm = vm, .env = env, .slot = ki_calloc(vm->nslot + 1, sizeof *w.slot), .dark = ki_malloc(vm->nslot + 1)};
    bool ok = w.slot && w.dark;
    if (!ok) ki_fail(env, KI_E_NOMEM);
    for (unsigned k = 0; ok && k < PASSES && (k < 2 || w.steps < STEPS); k++) {
        w.pass = k ^ (k & 1 ? CORNERS - 2 : 0); /* the first two: all at their first, all at their last */
        if (k > 1 && w.deepest < AXES && w.pass < CORNERS && w.pass >> w.deepest) continue; /* one there was */
        if (begin(&w, var)) go(&w, vm->prologue, vm->n);
        ok = env->err == KI_E_NONE;
    }
    ki_free(w.slot);
    ki_free(w.dark);
    return ok;
}
