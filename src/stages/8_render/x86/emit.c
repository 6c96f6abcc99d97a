/* emit.c: machine instructions with registers given to bytes: the frame, what comes back from memory before it is used and goes
 * there after it was made, moves that move nothing left out. What came back is not read again while its register holds it. */
#include "base/thread.h"
#include "stages/8_render/x86/report.h"

#include <string.h>

typedef struct held {
    ki_vreg r;
    unsigned kind; /* so wide */
} held;

typedef struct emit {
    ki_mir *m;
    ki_asm *a;
    const ki_mins *now;
    uint8_t taken[KI_RC_COUNT]; /* scratch registers this instruction uses, one bit each */
    held holds[KI_RC_COUNT][3]; /* what is in them still; nothing where code may come from elsewhere */
    held last;                  /* the constant that the instruction before has put into register last_in, if it has */
    unsigned last_in;
} emit;

static const uint8_t saved[] = {KI_X_RBX, 12, 13, 14, 15};

static ki_x86_op frame_at(int64_t at, unsigned bytes) {
    ki_x86_op o = ki_x86_mem(KI_X_RSP, KI_X_NOREG, 1, (int32_t)at);
    o.size = (uint8_t)bytes;
    return o;
}

static ki_x86_op pool_at(uint32_t label, bool bcast) {
    ki_x86_op o = ki_x86_at(label);
    o.bcast = bcast;
    return o;
}

/* ---- between registers and memory ------------------------------------------------------------------------------- */

static void load(emit *e, const ki_vinfo *v, unsigned kind, unsigned reg) {
    ki_asm *a = e->a;
    ki_report_traffic(e->m, a, e->now, v, v->remat ? KI_AGAIN : KI_RELOAD, false);
    if (v->remat) {
        static const uint16_t bcast[9] = {
            [1] = KI_X_VPBROADCASTB, [2] = KI_X_VPBROADCASTW, [4] = KI_X_VBROADCASTSS, [8] = KI_X_VBROADCASTSD};
        ki_x86_id form = v->es ? (ki_x86_id)bcast[v->es] : KI_X_VMOVUPS;
        if (form == KI_X_VBROADCASTSD && kind == KI_XO_X) form = KI_X_VPBROADCASTQ;
        ki_asm_put(a, form, ki_x86_reg((ki_x86_kind)kind, reg), pool_at(v->label, false), (ki_x86_op){0});
    } else if (v->cls == KI_RC_V) {
        ki_asm_put(a, KI_X_VMOVUPS, ki_x86_reg((ki_x86_kind)v->kind, reg), frame_at(v->slot, 0), (ki_x86_op){0});
    } else if (v->cls == KI_RC_K) {
        ki_asm_put(a, KI_X_KMOVQ, ki_x86_reg(KI_XO_K, reg), frame_at(v->slot, 8), (ki_x86_op){0});
    } else {
        ki_asm_put(a, KI_X_MOV_GE, ki_x86_reg(KI_XO_R64, reg), frame_at(v->slot, 8), (ki_x86_op){0});
    }
}

static void store(emit *e, const ki_vinfo *v, unsigned reg) {
    ki_report_traffic(e->m, e->a, e->now, v, KI_SPILL, false);
    if (v->cls == KI_RC_V)
        ki_asm_put(e->a, KI_X_VMOVUPS_ST, frame_at(v->slot, 0), ki_x86_reg((ki_x86_kind)v->kind, reg), (ki_x86_op){0});
    else if (v->cls == KI_RC_K)
        ki_asm_put(e->a, KI_X_KMOVQ_ST, frame_at(v->slot, 8), ki_x86_reg(KI_XO_K, reg), (ki_x86_op){0});
    else ki_asm_put(e->a, KI_X_MOV_EG, frame_at(v->slot, 8), ki_x86_reg(KI_XO_R64, reg), (ki_x86_op){0});
}

/* One of those set aside, by its place among them: the first that this instruction does not use. */
static unsigned scratch(emit *e, unsigned cls) {
    unsigned k = 0;
    while (k < 3 && e->taken[cls] >> k & 1) k++;
    if (k == 3 || e->m->scratch[cls][k] == KI_X_NOREG) {
        if (!e->m->failed) ki_fail(e->m->env, KI_E_INTERNAL, "an instruction needs more registers than are set aside");
        e->m->failed = true;
        return 0;
    }
    e->taken[cls] |= (uint8_t)(1 << k);
    return k;
}

static void hold(emit *e, unsigned cls, unsigned k, ki_vreg r, unsigned kind) { e->holds[cls][k] = (held){r, kind}; }

/* r has another value now. */
static void forget(emit *e, ki_vreg r) {
    unsigned cls = e->m->v[r].cls;
    for (unsigned k = 0; k < 3; k++)
        if (e->holds[cls][k].r == r) hold(e, cls, k, 0, 0);
}

/* o, which is written, has a register: elsewhere that one may be set aside, and what it held is gone. */
static void overwrite(emit *e, const ki_mop *o) {
    if (!e->m->spills || o->kind < KI_XO_R8 || o->kind > KI_XO_T || ki_is_physical(o->reg)) return;
    const ki_vinfo *v = &e->m->v[o->reg];
    for (unsigned k = 0; k < 3; k++)
        if (v->reg != KI_X_NOREG && e->m->scratch[v->cls][k] == v->reg) hold(e, v->cls, k, 0, 0);
}

/* Does the instruction write this one before it has read all? */
static bool writes_early(const emit *e, unsigned cls, unsigned reg) {
    const ki_mins *i = e->now;
    for (unsigned k = 0; i->flags & KI_MF_LATE && k < 4; k += 2) {
        const ki_mop *o = &i->op[k];
        if (o->kind < KI_XO_R8 || o->kind > KI_XO_T || ki_is_physical(o->reg)) continue;
        if (e->m->v[o->reg].cls == cls && e->m->v[o->reg].reg == reg) return true;
    }
    return false;
}

/* Where among those set aside r is, which is in memory: read first if none of them holds it still. */
static unsigned place(emit *e, ki_vreg r, unsigned kind) {
    const ki_vinfo *v = &e->m->v[r];
    for (unsigned k = 0; k < 3; k++) {
        const held *h = &e->holds[v->cls][k];
        if (h->r != r || (v->cls == KI_RC_V && h->kind < kind)) continue;
        if (writes_early(e, v->cls, e->m->scratch[v->cls][k])) continue;
        e->taken[v->cls] |= (uint8_t)(1 << k);
        return k;
    }
    unsigned k = scratch(e, v->cls);
    load(e, v, kind, e->m->scratch[v->cls][k]);
    hold(e, v->cls, k, r, v->remat ? kind : v->kind);
    return k;
}

/* A register operand's number. */
static unsigned number(emit *e, ki_vreg r, unsigned kind) {
    if (ki_is_physical(r)) return r & 255;
    const ki_vinfo *v = &e->m->v[r];
    return v->reg != KI_X_NOREG ? v->reg : e->m->scratch[v->cls][place(e, r, kind)];
}

static inline ki_x86_op memory(emit *e, const ki_mop *o) {
    if (o->base == KI_MB_POOL) return pool_at(o->label, o->bcast);
    ki_x86_op x = {
        .kind = KI_XO_MEM, .reg = KI_X_NOREG, .index = KI_X_NOREG, .scale = o->scale ? o->scale : 1, .v = o->v};
    const ki_vinfo *array = o->base == KI_MB_REG && o->reg && !ki_is_physical(o->reg) ? &e->m->v[o->reg] : NULL;
    if (o->base == KI_MB_FRAME) x.reg = KI_X_RSP;
    else if (array && array->frame && array->reg == KI_X_NOREG) x.reg = KI_X_RSP, x.v += array->label;
    else if (o->reg) x.reg = (uint8_t)number(e, o->reg, KI_XO_R64);
    if (o->index) x.index = (uint8_t)number(e, o->index, o->ikind ? o->ikind : KI_XO_R64);
    x.bcast = o->bcast;
    x.size = o->size;
    x.ikind = o->ikind;
    return x;
}

/* ---- what stays in memory ---------------------------------------------------------------------------------------- */

static const ki_vinfo *in_memory(const ki_mir *m, const ki_mop *o) {
    if (o->kind < KI_XO_R8 || o->kind > KI_XO_T || ki_is_physical(o->reg)) return NULL;
    const ki_vinfo *v = &m->v[o->reg];
    return v->reg == KI_X_NOREG ? v : NULL;
}

/* Is the base register? */
static bool is_in_memory(const ki_mir *m, const ki_mop *o) {
    return o->base == KI_MB_REG && o->reg && m->v[o->reg].reg == KI_X_NOREG && !m->v[o->reg].frame;
}

/* Whether anything the instruction names is there: nearly always nothing is. */
static bool any_in_memory(const ki_mir *m, const ki_mins *i) {
    if (!m->spills) return false;
    for (unsigned k = 0; k < 4 && i->op[k].kind; k++) {
        const ki_mop *o = &i->op[k];
        if (in_memory(m, o)) return true;
        if (o->kind != KI_XO_MEM) continue;
        if (is_in_memory(m, o)) return true;
        if (o->index && m->v[o->index].reg == KI_X_NOREG) return true;
    }
    return i->mask && m->v[i->mask].reg == KI_X_NOREG;
}

/* The operand that is read (or, a general register, written) where it lies; -1: none. One instruction has one at most. */
static int direct(const ki_mir *m, const ki_mins *i) {
    bool any = false;
    for (unsigned k = 0; k < 4 && i->op[k].kind; k++) {
        if (i->op[k].kind == KI_XO_MEM) return -1;
        any |= in_memory(m, &i->op[k]) != NULL;
    }
    if (!any || i->form >= KI_X_COUNT || i->flags & KI_MF_LATE) return -1;
    const ki_x86_form *f = &ki_x86_forms[i->form];
    uint8_t code[4];
    unsigned enc = m->sse && f->enc & KI_XE_SSE ? KI_XE_SSE
                   : f->enc & KI_XE_EVEX        ? KI_XE_EVEX
                   : f->enc & KI_XE_VEX         ? KI_XE_VEX
                                                : KI_XE_SSE;
    unsigned n = ki_x86_operands(f, enc, code);
    for (unsigned k = 0; k < n; k++) {
        const ki_vinfo *v = in_memory(m, &i->op[k]);
        if (!v || ki_x86_codes[code[k]].place != KI_XP_RM) continue;
        bool writes = k == 0 && i->flags & KI_MF_WRITES0;
        if (v->cls == KI_RC_G && i->op[k].kind == KI_XO_R64 && ki_x86_codes[code[k]].size != 'b') return (int)k;
        if (v->cls != KI_RC_V || writes || i->op[k].kind > v->kind) continue;
        char size = ki_x86_codes[code[k]].size;
        if (!v->remat || !v->es) {
            if (size == 'x') return (int)k;
        } else if (size == 'x' && f->attr & KI_XA_BCAST && v->es == f->es && m->features >> KI_CPU_AVX512VL & 1) {
            return (int)k;
        }
    }
    return -1;
}

/* Its destination can share a source's register. */
static bool writes_only(const ki_mins *i) {
    return i->flags & KI_MF_WRITES0 && !(i->flags & (KI_MF_READS0 | KI_MF_LATE));
}

bool ki_mneed(const ki_mir *m, uint32_t at, unsigned n[KI_RC_COUNT]) {
    const ki_mins *i = &m->ins[at];
    if (!any_in_memory(m, i)) return false;
    memset(n, 0, KI_RC_COUNT * sizeof *n);
    int there = direct(m, i);
    if (i->form == KI_M_MOVE) { /* one of both is enough in a register */
        const ki_vinfo *d = in_memory(m, &i->op[0]), *s = in_memory(m, &i->op[1]);
        if (d && s && !d->remat) n[s->cls]++;
    } else if (i->form < KI_X_COUNT) {
        for (unsigned k = 0; k < 4 && i->op[k].kind; k++) {
            const ki_mop *o = &i->op[k];
            const ki_vinfo *v = in_memory(m, o);
            if (v && (int)k != there && k) n[v->cls]++;
            if (o->kind != KI_XO_MEM) continue;
            if (is_in_memory(m, o)) n[KI_RC_G]++;
            if (o->index && m->v[o->index].reg == KI_X_NOREG) n[m->v[o->index].cls]++;
        }
        if (i->mask && m->v[i->mask].reg == KI_X_NOREG) n[KI_RC_K]++;
        const ki_vinfo *d = in_memory(m, &i->op[0]);
        if (d && there != 0 && !(writes_only(i) && (d->remat || n[d->cls]))) n[d->cls]++;
    }
    return true;
}

/* kind: the register it stands for; where the destination is narrower only that says how long it is. */
static ki_x86_op where_it_lies(const ki_vinfo *v, unsigned kind) {
    ki_x86_op o = v->remat ? pool_at(v->label, v->es != 0) : frame_at(v->slot, v->cls == KI_RC_V ? 0 : 8);
    if (v->cls == KI_RC_V) o.ikind = (uint8_t)kind;
    return o;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static void put_move(emit *e, const ki_mins *i) {
    ki_mir *m = e->m;
    const ki_vinfo *d = ki_is_physical(i->op[0].reg) ? NULL : &m->v[i->op[0].reg];
    unsigned kind = i->op[0].kind;
    if (d && d->remat && d->reg == KI_X_NOREG) return;
    const ki_vinfo *s = in_memory(m, &i->op[1]);
    if (!d) memset(e->holds[KI_RC_G], 0, sizeof e->holds[KI_RC_G]); /* the divider's are among those set aside */
    held last = e->last;
    bool copied = s && s->remat && d && last.r == i->op[1].reg && last.kind >= kind; /* accumulators begin alike */
    e->last = (held){0};
    if (d) overwrite(e, &i->op[0]);
    if (s && !copied && (!d || d->reg != KI_X_NOREG)) {
        ki_report_operands(m, e->a, i);
        load(e, s, kind, d ? d->reg : i->op[0].reg & 255);
        if (s->remat && d) e->last = (held){i->op[1].reg, kind}, e->last_in = d->reg;
        return;
    }
    if (copied) e->last = last;
    unsigned from = copied ? e->last_in : number(e, i->op[1].reg, kind);
    if (d && d->reg == KI_X_NOREG) {
        ki_report_operands(m, e->a, i);
        store(e, d, from);
        forget(e, i->op[0].reg);
        return;
    }
    unsigned to = d ? d->reg : i->op[0].reg & 255;
    if (from == to) return;
    ki_report_operands(e->m, e->a, i);
    ki_x86_id form = kind == KI_XO_K ? KI_X_KMOVQ : kind >= KI_XO_X ? KI_X_VMOVAPS : KI_X_MOV_EG;
    ki_asm_put(e->a, form, ki_x86_reg((ki_x86_kind)kind, to), ki_x86_reg((ki_x86_kind)kind, from), (ki_x86_op){0});
}

static void put_argument(emit *e, const ki_mins *i) {
    static const uint8_t where[] = {KI_X_RDI, KI_X_RSI, KI_X_RDX};
    const ki_vinfo *d = &e->m->v[i->op[0].reg];
    unsigned from = where[i->op[1].v];
    if (d->last == d->first) return; /* nobody reads it */
    if (d->reg == KI_X_NOREG) store(e, d, from);
    else if (d->reg != from)
        ki_asm_put(e->a, KI_X_MOV_EG, ki_x86_reg(KI_XO_R64, d->reg), ki_x86_reg(KI_XO_R64, from), (ki_x86_op){0});
}

static inline ki_x86_op source(emit *e, const ki_mins *i, unsigned k, bool there) {
    const ki_mop *o = &i->op[k];
    if (o->kind == KI_XO_MEM) return memory(e, o);
    if (there) return where_it_lies(&e->m->v[o->reg], o->kind);
    if (o->kind == KI_XO_IMM) return ki_x86_imm(o->v);
    if (o->kind == KI_XO_LABEL) return ki_x86_to(o->label);
    return ki_x86_reg((ki_x86_kind)o->kind, number(e, o->reg, o->kind));
}

/* Operand 0 where it is a register in memory that is written: a source's register serves, if it is not read. Its place among those set
 * aside. */
static unsigned written(emit *e, const ki_mins *i, const ki_vinfo *v) {
    unsigned k = 0;
    if (i->flags & KI_MF_READS0) return place(e, i->op[0].reg, i->op[0].kind);
    if (!writes_only(i) || !e->taken[v->cls]) return scratch(e, v->cls);
    while (!(e->taken[v->cls] >> k & 1)) k++;
    return k;
}

/* Operand k is used where it lies. */
static void put_in_place(emit *e, const ki_mins *i, int k) {
    const ki_vinfo *v = &e->m->v[i->op[k].reg];
    bool writes = k == 0 && i->flags & KI_MF_WRITES0, reads = k != 0 || i->flags & KI_MF_READS0 || !writes;
    if (reads) ki_report_traffic(e->m, e->a, i, v, v->remat ? KI_AGAIN : KI_RELOAD, true);
    if (!writes) return;
    ki_report_traffic(e->m, e->a, i, v, KI_SPILL, true);
    forget(e, i->op[k].reg);
}

/* Where an array begins, which has no register. */
static bool is_left_out(const ki_mir *m, const ki_mins *i) {
    const ki_vinfo *v = i->form == KI_X_LEA && !ki_is_physical(i->op[0].reg) ? &m->v[i->op[0].reg] : NULL;
    return v && v->frame && v->reg == KI_X_NOREG;
}

static void put(emit *e, const ki_mins *i) {
    ki_x86_ins x = {.form = i->form, .zero = i->zero, .lock = i->lock};
    if (is_left_out(e->m, i)) return;
    bool any = any_in_memory(e->m, i);
    int there = any ? direct(e->m, i) : -1;
    const ki_vinfo *back = any && i->flags & KI_MF_WRITES0 && there != 0 ? in_memory(e->m, &i->op[0]) : NULL;
    if (back && back->remat) return; /* made where it is used */
    unsigned at = 0;
    for (unsigned k = 1; k < 4 && i->op[k].kind; k++) x.op[k] = source(e, i, k, (int)k == there);
    if (i->mask) x.mask = (uint8_t)number(e, i->mask, KI_XO_K);
    if (back) x.op[0] = ki_x86_reg((ki_x86_kind)i->op[0].kind, e->m->scratch[back->cls][at = written(e, i, back)]);
    else if (i->op[0].kind) x.op[0] = source(e, i, 0, there == 0);
    ki_report_operands(e->m, e->a, i);
    if (there >= 0) put_in_place(e, i, there);
    ki_asm_ins(e->a, &x);
    if (i->flags & KI_MF_WRITES0) overwrite(e, &i->op[0]);
    if (i->flags & KI_MF_WRITES2) overwrite(e, &i->op[2]);
    if (!back) return;
    store(e, back, x.op[0].reg);
    forget(e, i->op[0].reg);
    hold(e, back->cls, at, i->op[0].reg, back->kind);
}

/* ---- the frame --------------------------------------------------------------------------------------------------- */

static ki_x86_op r64(unsigned n) { return ki_x86_reg(KI_XO_R64, n); }

static void touch(ki_asm *a) {
    ki_x86_op top = ki_x86_mem(KI_X_RSP, KI_X_NOREG, 1, 0), none = {0};
    top.size = 8;
    ki_asm_put(a, KI_X_OR_EB, top, ki_x86_imm(0), none);
}

static void put_entry(emit *e, uint64_t frame) {
    ki_asm *a = e->a;
    ki_x86_op none = {0};
    ki_asm_put(a, KI_X_PUSH, r64(KI_X_RBP), none, none);
    ki_asm_put(a, KI_X_MOV_EG, r64(KI_X_RBP), r64(KI_X_RSP), none);
    for (unsigned k = 0; k < sizeof saved; k++)
        if (e->m->used[KI_RC_G] >> saved[k] & 1) ki_asm_put(a, KI_X_PUSH, r64(saved[k]), none, none);
    if (!frame) return;
    /* A page at a time: each is touched before the next, so that the one that guards the stack is met. */
    ki_asm_put(a, KI_X_AND_EI, r64(KI_X_RSP), ki_x86_imm(-(int64_t)e->m->align), none);
    if (e->m->align >= KI_PAGE) touch(a);
    uint64_t left = frame;
    for (; left > KI_PAGE && left <= 4 * KI_PAGE; left -= KI_PAGE) {
        ki_asm_put(a, KI_X_SUB_EI, r64(KI_X_RSP), ki_x86_imm(KI_PAGE), none);
        touch(a);
    }
    if (left > 4 * KI_PAGE) {
        uint32_t again = ki_asm_label(a);
        ki_asm_put(a, KI_X_MOV_OI, ki_x86_reg(KI_XO_R32, KI_X_RAX), ki_x86_imm((int64_t)(left / KI_PAGE)), none);
        ki_asm_bind(a, again);
        ki_asm_put(a, KI_X_SUB_EI, r64(KI_X_RSP), ki_x86_imm(KI_PAGE), none);
        touch(a);
        ki_asm_put(a, KI_X_DEC, r64(KI_X_RAX), none, none);
        ki_asm_put(a, KI_X_JNE, ki_x86_to(again), none, none);
        left %= KI_PAGE;
    }
    if (left) ki_asm_put(a, KI_X_SUB_EI, r64(KI_X_RSP), ki_x86_imm((int64_t)left), none);
}

static void put_exit(emit *e, uint64_t frame) {
    ki_asm *a = e->a;
    ki_x86_op none = {0};
    unsigned n = 0;
    for (unsigned k = 0; k < sizeof saved; k++) n += e->m->used[KI_RC_G] >> saved[k] & 1;
    if (e->m->fence) ki_asm_put(a, KI_X_SFENCE, none, none, none);
    if (e->m->tiles) ki_asm_put(a, KI_X_TILERELEASE, none, none, none);
    if (!e->m->sse) ki_asm_put(a, KI_X_VZEROUPPER, none, none, none);
    if (frame) ki_asm_put(a, KI_X_LEA, r64(KI_X_RSP), ki_x86_mem(KI_X_RBP, KI_X_NOREG, 1, -8 * (int)n), none);
    for (unsigned k = sizeof saved; k-- > 0;)
        if (e->m->used[KI_RC_G] >> saved[k] & 1) ki_asm_put(a, KI_X_POP, r64(saved[k]), none, none);
    ki_asm_put(a, KI_X_POP, r64(KI_X_RBP), none, none);
    ki_asm_put(a, KI_X_RET, none, none, none);
}

bool ki_memit(ki_mir *m, ki_asm *a) {
    emit e = {.m = m, .a = a};
    uint64_t frame = (m->frame + m->align - 1) / m->align * m->align;
    if (m->failed) return false;
    if (m->frame > KI_FRAME_MOST)
        return ki_fail(m->env, KI_E_X86_FRAME, (unsigned long long)m->frame, (unsigned long long)KI_FRAME_MOST), false;
    put_entry(&e, frame);
    for (uint32_t k = 0; k < m->n && !m->failed; k++) {
        const ki_mins *i = e.now = &m->ins[k];
        if (a->listing && i->form != KI_M_ARG && (!k || i->at != m->ins[k - 1].at)) ki_report_item(m, a, i);
        memset(e.taken, 0, sizeof e.taken);
        if (i->form != KI_M_MOVE) e.last = (held){0};
        if (i->form == KI_M_LABEL) {
            if (i->op[0].v) ki_asm_align(a, (unsigned)i->op[0].v);
            ki_asm_bind(a, i->op[0].label);
            memset(e.holds, 0, sizeof e.holds);
        } else if (i->form == KI_M_MOVE) put_move(&e, i);
        else if (i->form == KI_M_ARG) put_argument(&e, i);
        else put(&e, i);
    }
    put_exit(&e, frame);
    if (a->listing) ki_report_registers(m, &a->counts), a->counts.frame = frame;
    return !m->failed && ki_asm_finish(a);
}
