/* test_x86_access.c: what an instruction reads and writes, as x86.h says, against the processor. Every register, mask and flag is
 * given a random value, the instruction runs, and all are looked at: nothing else than what it is said to write may change.
 * Then once more with other values in everything it is not said to read: what it writes must come out the same. Once with
 * the registers of each level that the processor has: 16 xmm, 16 ymm, 32 zmm and masks. */
#include "../8_render/x86_forms.h"
#include "../tap.h"
#include "device/cpu/codemem.h"
#include "stages/8_render/x86/asm.h"

#include <stdlib.h>

typedef struct state {
    uint64_t gpr[16], k[8];
    uint8_t vec[32][64], flag[8]; /* flag: c z s o p, a byte each */
    int32_t before;               /* flags come from comparing this with 77 */
} state;
typedef struct job {
    _Alignas(64) state in, out;
} job;

static ki_env env;
static uint64_t seed = 0x9e3779b97f4a7c15;
static uint64_t rnd(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed * UINT64_C(0x2545f4914f6cdd1d);
}
static const ki_x86_op none;

/* The level that is tried: its features, its vector registers, their bytes, their kind. */
typedef struct level {
    uint64_t features;
    unsigned vectors, bytes;
    ki_x86_kind kind;
    bool masks;
} level;
static level now;

static ki_x86_op at(size_t offset) { return ki_x86_mem(KI_X_RDI, KI_X_NOREG, 1, (int32_t)offset); }
#define GPR(n)  ki_x86_reg(KI_XO_R64, n)
#define MASK(n) ki_x86_reg(KI_XO_K, n)

/* All registers but rsp and rdi, from or to a state. */
static void move_all(ki_asm *a, size_t base, bool store) {
    for (unsigned r = 0; r < 16; r++) {
        if (r == KI_X_RSP || r == KI_X_RDI) continue;
        ki_x86_op m = at(base + offsetof(state, gpr) + 8 * r);
        if (store) ki_asm_put(a, KI_X_MOV_EG, m, GPR(r), none);
        else ki_asm_put(a, KI_X_MOV_GE, GPR(r), m, none);
    }
    for (unsigned k = 0; k < 8 && now.masks; k++) {
        ki_x86_op m = at(base + offsetof(state, k) + 8 * k);
        if (store) ki_asm_put(a, KI_X_KMOVQ_ST, m, MASK(k), none);
        else ki_asm_put(a, KI_X_KMOVQ, MASK(k), m, none);
    }
    for (unsigned v = 0; v < now.vectors; v++) {
        ki_x86_op m = at(base + offsetof(state, vec) + 64 * v), z = ki_x86_reg(now.kind, v);
        if (store) ki_asm_put(a, KI_X_VMOVUPS_ST, m, z, none);
        else ki_asm_put(a, KI_X_VMOVUPS, z, m, none);
    }
}

static bool compile(const ki_x86_ins *i, ki_codemem *out) {
    static const uint8_t saved[] = {3, 5, 12, 13, 14, 15};
    static const uint16_t flags[] = {KI_X_SETB, KI_X_SETE, KI_X_SETS, KI_X_SETO, KI_X_SETP};
    ki_asm a;
    ki_asm_open(&a, &env, now.features);
    for (unsigned k = 0; k < 6; k++) ki_asm_put(&a, KI_X_PUSH, GPR(saved[k]), none, none);
    move_all(&a, offsetof(job, in), false);
    ki_x86_op before = at(offsetof(job, in) + offsetof(state, before));
    before.size = 4;
    ki_asm_put(&a, KI_X_CMP_EI, before, ki_x86_imm(77), none);
    ki_asm_ins(&a, i);
    for (unsigned k = 0; k < 5; k++)
        ki_asm_put(&a, (ki_x86_id)flags[k], at(offsetof(job, out) + offsetof(state, flag) + k), none, none);
    move_all(&a, offsetof(job, out), true);
    if (now.bytes > 16) ki_asm_put(&a, KI_X_VZEROUPPER, none, none, none);
    for (unsigned k = 6; k-- > 0;) ki_asm_put(&a, KI_X_POP, GPR(saved[k]), none, none);
    ki_asm_put(&a, KI_X_RET, none, none, none);
    bool ok = ki_asm_finish(&a) && ki_codemem_make(&env, a.code, a.n, out);
    ki_asm_close(&a);
    return ok;
}

static void call(const ki_codemem *m, job *j) {
    union { /* ISO C has no cast for this */
        void *p;
        void (*f)(job *);
    } entry = {m->code};
    entry.f(j);
}

/* ---- which registers that is ------------------------------------------------------------------------------------- */

typedef struct sets { /* bit n: register n */
    uint32_t gpr, k, vec;
    bool flags;
} sets;

static void add_operand(sets *s, const ki_x86_op *o) {
    if (o->kind >= KI_XO_R8 && o->kind <= KI_XO_R64) s->gpr |= 1u << o->reg;
    if (o->kind >= KI_XO_X && o->kind <= KI_XO_Z) s->vec |= 1u << o->reg;
    if (o->kind == KI_XO_K) s->k |= 1u << o->reg;
}

static void claims(const ki_x86_ins *i, sets *reads, sets *writes) {
    ki_x86_access a = ki_x86_access_of(i);
    *reads = (sets){.gpr = a.fixed_reads, .flags = a.reads_flags};
    *writes = (sets){.gpr = a.fixed_writes, .flags = a.writes_flags};
    for (unsigned k = 0; k < 4; k++) {
        if (a.reads >> k & 1) add_operand(reads, &i->op[k]);
        if (a.writes >> k & 1) add_operand(writes, &i->op[k]);
    }
    if (i->mask) reads->k |= 1u << i->mask;
}

static void randomize(state *s, const sets *keep) {
    for (unsigned r = 0; r < 16; r++)
        if (!(keep->gpr >> r & 1)) s->gpr[r] = rnd();
    for (unsigned k = 0; k < 8 && now.masks; k++)
        if (!(keep->k >> k & 1)) s->k[k] = rnd();
    for (unsigned v = 0; v < now.vectors; v++)
        for (unsigned b = 0; b < now.bytes && !(keep->vec >> v & 1); b++) s->vec[v][b] = (uint8_t)rnd();
    if (!keep->flags) s->before = rnd() % 3 ? (int32_t)rnd() : 77;
}

/* Registers (not rsp, rdi) in which two states differ. */
static sets differ(const state *x, const state *y) {
    sets d = {.flags = memcmp(x->flag, y->flag, 5) != 0};
    for (unsigned r = 0; r < 16; r++)
        d.gpr |= (uint32_t)(r != KI_X_RSP && r != KI_X_RDI && x->gpr[r] != y->gpr[r]) << r;
    for (unsigned k = 0; k < 8; k++) d.k |= (uint32_t)(x->k[k] != y->k[k]) << k;
    for (unsigned v = 0; v < now.vectors; v++) d.vec |= (uint32_t)(memcmp(x->vec[v], y->vec[v], 64) != 0) << v;
    return d;
}

static void flags_before(state *s) { /* what cmp before, 77 gives */
    int32_t r = (int32_t)((uint32_t)s->before - 77u);
    int64_t wide = (int64_t)s->before - 77;
    s->flag[0] = (uint32_t)s->before < 77u;
    s->flag[1] = r == 0;
    s->flag[2] = r < 0;
    s->flag[3] = wide != r;
    s->flag[4] = !__builtin_parity((unsigned)r & 255);
}

static bool outside(sets d, const sets *allowed) {
    return d.gpr & ~allowed->gpr || d.k & ~allowed->k || d.vec & ~allowed->vec || (d.flags && !allowed->flags);
}

static void calm(state *s, const ki_x86_ins *i) { /* a division that does not trap */
    /* SSE leaves what lies above 128 bits as it is; a program in SSE has nothing there. */
    for (unsigned v = 0; v < now.vectors && i->enc == KI_XE_SSE; v++) memset(s->vec[v] + 16, 0, 48);
    if (i->form != KI_X_DIV && i->form != KI_X_IDIV) return;
    s->gpr[KI_X_RDX] = 0;
    s->gpr[KI_X_RAX] &= 0x3f;
    s->gpr[i->op[0].reg] |= 0x40;
    s->gpr[i->op[0].reg] &= 0x7fff;
}

static bool holds(const ki_x86_ins *i, const char **why) {
    static job one, two;
    ki_codemem code = {0};
    sets reads, writes;
    claims(i, &reads, &writes);
    if (!compile(i, &code)) return *why = env.message.s, false;
    *why = NULL;
    for (int n = 0; n < 6 && !*why; n++) {
        randomize(&one.in, &(sets){0});
        calm(&one.in, i);
        flags_before(&one.in);
        two = one;
        randomize(&two.in, &reads);
        if (i->enc == KI_XE_SSE) calm(&two.in, i);
        flags_before(&two.in);
        call(&code, &one);
        call(&code, &two);
        if (outside(differ(&one.in, &one.out), &writes)) *why = "it writes more than it says";
        sets d = differ(&one.out, &two.out);
        d.gpr &= writes.gpr, d.k &= writes.k, d.vec &= writes.vec;
        if (d.gpr || d.k || d.vec) *why = "it reads more than it says";
    }
    ki_codemem_free(&code);
    return !*why;
}

/* ---- every form on registers ----------------------------------------------------------------------------------------- */

typedef struct tally {
    size_t n;
    bool bad;
} tally;

static void try(tally *t, const ki_x86_ins *i) {
    const char *why;
    ki_text line = {0};
    t->n++;
    if (holds(i, &why) || t->bad) return;
    ki_x86_print(i, &line);
    printf("# %s: %s\n", line.s, why);
    ki_text_free(&line);
    ki_env_clear(&env);
    t->bad = true;
}

static bool on_registers(const x86_walk *w) {
    for (unsigned k = 0; k < w->n; k++) {
        ki_x86_place p = (ki_x86_place)ki_x86_codes[w->code[k]].place;
        if (p == KI_XP_MEM || p == KI_XP_VSIB || p == KI_XP_JUMP) return false;
    }
    switch (w->form) { /* control, the stack, all vectors at once */
    case KI_X_PUSH:
    case KI_X_POP:
    case KI_X_JMP_E:
    case KI_X_CALL_E:
    case KI_X_RET:
    case KI_X_UD2:
    case KI_X_INT3:
    case KI_X_VZEROUPPER:
    case KI_X_VZEROALL: return false;
    default: return w->f->port != KI_XR_TILE;
    }
}

static void each(unsigned form, tally *t) {
    static const uint8_t gpr[4] = {8, 9, 10, 11};
    x86_walk w = {.f = &ki_x86_forms[form], .form = form, .osize = 4};
    for (w.enc = 1; w.enc <= 4; w.enc *= 2)
        for (w.len = 0; w.len < 3 && w.f->enc & w.enc; w.len++) {
            if (w.f->lens ? !(w.f->lens >> w.len & 1) : w.len) continue;
            if ((w.enc == KI_XE_SSE && w.len) || (w.enc == KI_XE_VEX && w.len == 2)) continue;
            if (ki_x86_needs(w.f, w.enc, w.len) & ~now.features) continue;
            w.n = ki_x86_operands(w.f, w.enc, w.code);
            if (!on_registers(&w)) continue;
            ki_x86_ins i = {.form = (uint16_t)form, .enc = (uint8_t)w.enc};
            for (unsigned k = 0; k < w.n; k++) {
                i.op[k] = x86_held(&w, k);
                if (i.op[k].kind >= KI_XO_R8 && i.op[k].kind <= KI_XO_R64 && ki_x86_codes[w.code[k]].place != KI_XP_CL)
                    i.op[k].reg = gpr[k];
            }
            try(t, &i);
            if (!(w.f->attr & KI_XA_MASK) || w.enc != KI_XE_EVEX) continue;
            i.mask = 7;
            try(t, &i);
            if (!(w.f->attr & KI_XA_ZERO)) continue;
            i.zero = 1;
            try(t, &i);
        }
}

static void at_level(const char *name) {
    size_t all = 0;
    for (unsigned form = 0; form < KI_X_COUNT; form++) {
        tally t = {0};
        each(form, &t);
        all += t.n;
        if (t.n)
            CHECK(!t.bad, "%s: form %u %s reads and writes what it says, %zu ways", name, form, ki_x86_forms[form].name,
                  t.n);
    }
    printf("# %s: %zu instructions\n", name, all);
}

int main(void) {
    if (!ki_env_open(&env)) return 1;
    uint64_t has = ki_cpu_features(), masks = KI_CPU_BIT(KI_CPU_AVX512F) | KI_CPU_BIT(KI_CPU_AVX512BW);
    uint64_t sse = ki_cpu_level_features(KI_CPU_SSE2_LEVEL), avx = ki_cpu_level_features(KI_CPU_AVX2_LEVEL);
    now = (level){has & sse, 16, 16, KI_XO_X, false};
    at_level("sse2");
    now = (level){has & avx, 16, 32, KI_XO_Y, false};
    if (has & KI_CPU_BIT(KI_CPU_AVX)) at_level("avx2");
    now = (level){has, 32, 64, KI_XO_Z, true};
    if (!(masks & ~has)) at_level("all");
    ki_env_close(&env);
    return tap_done();
}
