/* report.c: see report.h. */
#include "stages/8_render/x86/report.h"

#include "ir/history.h"
#include "ir/parse.h"
#include "ir/program.h"
#include "stages/target.h"

enum { STEPS = 5 };

/* Loops that instruction `at` stands in; *inner: none of them has another inside. */
static unsigned depth_at(const ki_mir *m, uint32_t at, bool *inner) {
    unsigned depth = 0;
    uint32_t last = UINT32_MAX;
    for (uint32_t k = 0; k < m->nloop && m->loop[k].begin <= at; k++)
        if (at <= m->loop[k].end) depth++, last = k;
    /* In the order they begin: one inside the last would be next. */
    *inner = depth && (last + 1 == m->nloop || m->loop[last + 1].begin > m->loop[last].end);
    return depth;
}

void ki_report_item(const ki_mir *m, ki_asm *a, const ki_mins *i) {
    ki_text *t = a->listing;
    kn_uop u = m->item[i->at];
    uint32_t step = ki_why(m->ir, u);
    bool inner;
    unsigned depth = depth_at(m, (uint32_t)(i - m->ins), &inner);
    ki_text_printf(t, "# %%%u = ", u->id);
    ki_term_put(t, u, 1);
    ki_text_put(t, " : ");
    ki_type_put(t, m->env, (kn_dtype)u->dtype, u->type);
    ki_text_put(t, "\n");
    if (u->op == KN_RANGE) {
        ki_text_put(t, "#     loop of ");
        ki_term_put(t, u->src[0], 1);
        ki_text_printf(t, ", depth %u\n", depth + 1);
    } else if (step) {
        ki_text_put(t, "#     by ");
        if (step == a->said) ki_text_put(t, "the same");
        else ki_history_put(t, m->ir, u, STEPS);
        ki_text_put(t, inner ? "; innermost\n" : "\n");
        a->said = step;
    }
}

static void put_register(const ki_mir *m, ki_text *t, ki_vreg r) {
    if (!r || ki_is_physical(r)) return;
    ki_text_printf(t, " v%u%s", r, m->v[r].reg == KI_X_NOREG ? "*" : "");
}

void ki_report_operands(const ki_mir *m, ki_asm *a, const ki_mins *i) {
    bool writes = i->flags & KI_MF_WRITES0 && i->op[0].kind != KI_XO_MEM;
    if (!a->listing) return;
    if (writes) {
        put_register(m, &a->note, i->op[0].reg);
        ki_text_put(&a->note, " <-");
        if (i->flags & KI_MF_READS0) put_register(m, &a->note, i->op[0].reg);
    }
    for (unsigned k = writes; k < 4 && i->op[k].kind; k++) {
        const ki_mop *o = &i->op[k];
        if (o->kind == KI_XO_MEM) {
            const ki_vinfo *v = o->base == KI_MB_REG && o->reg && !ki_is_physical(o->reg) ? &m->v[o->reg] : NULL;
            bool array = v && v->frame && v->reg == KI_X_NOREG;
            if (o->base == KI_MB_REG && !array) put_register(m, &a->note, o->reg);
            else ki_text_put(&a->note, o->base == KI_MB_POOL ? " constant" : " frame");
            put_register(m, &a->note, o->index);
        } else if (o->kind >= KI_XO_R8 && o->kind <= KI_XO_T) {
            put_register(m, &a->note, o->reg);
        }
    }
    put_register(m, &a->note, i->mask);
}

void ki_report_traffic(const ki_mir *m, ki_asm *a, const ki_mins *i, const ki_vinfo *v, ki_traffic what,
                       bool in_place) {
    static const char *const words[] = {"spill", "reload", "constant again"};
    bool inner;
    if (!a->listing) return;
    ki_x86_counts *c = &a->counts;
    depth_at(m, (uint32_t)(i - m->ins), &inner);
    c->traffic[what]++;
    c->inner[what] += inner;
    if (in_place) ki_text_printf(&a->note, " (%s)", words[what]);
    else ki_text_printf(&a->note, " %s v%u", words[what], (unsigned)(v - m->v));
}

void ki_report_registers(const ki_mir *m, ki_x86_counts *c) {
    const unsigned of[KI_RC_COUNT] = {12, m->nvector, m->features >> KI_CPU_AVX512F & 1 ? 7 : 0,
                                      m->tiles ? 8 : 0}; /* as regs.c gives them */
    for (unsigned k = 0; k < KI_RC_COUNT; k++) {
        c->of[k] = of[k];
        for (uint64_t used = m->used[k]; used; used &= used - 1) c->used[k]++;
    }
    for (ki_vreg r = 1; r < m->nv; r++) {
        const ki_vinfo *v = &m->v[r];
        if (v->first == UINT32_MAX || v->reg != KI_X_NOREG || v->last == v->first || v->frame) continue;
        if (v->remat) c->constants++;
        else c->spilled++;
    }
}
