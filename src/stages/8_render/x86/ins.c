/* ins.c: an INS to one machine instruction, and the copies its form asks for. */
#include "stages/8_render/x86/lower.h"

#include "stages/target.h"

#include <string.h>

/* Fused products in their three orders, x1 = ...: 132 x1*x3+x2, 213 x2*x1+x3, 231 x2*x3+x1. */
static const struct {
    uint16_t f231, f213, f132;
} fused[] = {
#define F(I)                                                                                                           \
    {KI_X_##I##231PS, KI_X_##I##213PS, KI_X_##I##132PS}, {KI_X_##I##231PD, KI_X_##I##213PD, KI_X_##I##132PD},          \
        {KI_X_##I##231PH, KI_X_##I##213PH, KI_X_##I##132PH},
    F(VFMADD) F(VFMSUB) F(VFNMADD) F(VFNMSUB)
#undef F
};

typedef struct job {
    ki_lower *l;
    kn_uop u;
    const ki_x86_form *f;
    ki_x86_id form;
    unsigned lanes, len; /* len: 0 128 .. 2 512 */
    kn_uop src[4];       /* by operand; NULL none */
    kn_uop mask;
    ki_mop op[4];
} job;

static bool is_vector(char size) { return size == 'x' || size == 'h' || size == 'n' || size == 'e' || size == 'o'; }
static char size_of(const job *j, unsigned k) { return ki_x86_codes[j->f->op[k]].size; }
static unsigned place_of(const job *j, unsigned k) { return ki_x86_codes[j->f->op[k]].place; }

/* Sources to operands, as ki_x86_sources names them: d, then a b c, then the immediate, then the mask. */
static bool deal(job *j) {
    uint32_t s = 0, n = j->u->nsrc;
    const kn_uop *from = j->u->src;
    if (j->f->attr & KI_XA_RW && s < n) j->src[0] = from[s++];
    for (unsigned k = 1; k < 4 && j->f->op[k]; k++)
        if (place_of(j, k) != KI_XP_IMM && s < n) j->src[k] = from[s++];
    for (unsigned k = 1; k < 4 && j->f->op[k]; k++)
        if (place_of(j, k) == KI_XP_IMM && s < n) j->src[k] = from[s++];
    if (s < n) j->mask = from[s++];
    return s == n;
}

/* Lanes of the instruction, and the vector length that holds each operand's. */
static void measure(job *j) {
    j->lanes = ki_llanes(j->u);
    for (uint32_t k = 0; k < j->u->nsrc; k++)
        if (ki_llanes(j->u->src[k]) > j->lanes) j->lanes = ki_llanes(j->u->src[k]);
    unsigned most = 16;
    for (unsigned k = 0; k < 4 && j->f->op[k]; k++) {
        char c = size_of(j, k);
        kn_uop u = k ? j->src[k] : j->u;
        if (!is_vector(c) || c == 'o' || !u || u->dtype == KN_BOOL) continue;
        unsigned lanes = k && ki_rank(u) ? ki_llanes(u) : k ? j->lanes : ki_llanes(j->u);
        unsigned bytes = lanes * ki_les(u) * (c == 'x' ? 1 : c == 'h' ? 2 : c == 'n' ? 4 : 8);
        if (bytes > most) most = bytes;
    }
    j->len = most > 32 ? 2 : most > 16 ? 1 : 0;
    while (j->len < 2 && j->f->lens && !(j->f->lens >> j->len & 1)) j->len++;
}

static ki_x86_kind kind_of(const job *j, unsigned k) {
    static const uint8_t shift[128] = {['h'] = 1, ['n'] = 2, ['e'] = 3, ['o'] = 2};
    char c = size_of(j, k);
    unsigned s = shift[(unsigned char)c];
    return (ki_x86_kind)(KI_XO_X + (s < j->len ? j->len - s : 0));
}

static bool evex(const job *j) { return j->l->m.features >> KI_CPU_AVX512VL & 1 && j->f->enc & KI_XE_EVEX; }

/* Source k as a memory operand: a LOAD nobody else reads, whole or one element for all lanes. */
static bool from_memory(job *j, unsigned k) {
    kn_uop u = j->src[k];
    if (u->op != KN_LOAD || !ki_lv(j->l, u)->deferred || place_of(j, k) != KI_XP_RM) return false;
    unsigned es = ki_les(u), bytes = ki_llanes(u) * es, all = ki_x86_mem_bytes(j->f, j->len, false);
    bool whole = ki_rank(u) && bytes == all && bytes >= 16;
    bool one = !ki_rank(u) && j->f->attr & KI_XA_BCAST && es == j->f->es && evex(j);
    if (!whole && !one) return false;
    j->op[k] = ki_ldeferred(j->l, u);
    j->op[k].bcast = one;
    j->op[k].ikind = (uint8_t)kind_of(j, k); /* where a narrower destination leaves the length open */
    return true;
}

static bool is_deferred(const job *j, unsigned k) {
    kn_uop u = j->src[k];
    return u && u->op == KN_LOAD && ki_lv(j->l, u)->deferred;
}

/* a op b with op of those that commute, by the form's own meaning. */
static bool commutes(const ki_x86_form *f) {
    const char *m = f->meaning;
    return m[0] == 'a' && m[1] == ' ' && m[2] && strchr("+*&|^", m[2]) && strcmp(m + 3, " b") == 0;
}

static void read_operand(job *j, unsigned k) {
    kn_uop u = j->src[k];
    char c = size_of(j, k);
    if (!u) return;
    if (place_of(j, k) == KI_XP_IMM) {
        if (!ki_is_const(u)) ki_lfail(j->l, j->u, "its immediate is no constant");
        j->op[k] = ki_mimm(u->arg.i);
    } else if (c == 'k') {
        j->op[k] = ki_mreg(KI_XO_K, ki_lmask(j->l, u, j->lanes));
    } else if (is_vector(c)) {
        if (!from_memory(j, k)) j->op[k] = ki_mreg(kind_of(j, k), ki_lvector(j->l, u, j->lanes > 1));
    } else {
        j->op[k] = ki_mreg(ki_les(u) == 8 ? KI_XO_R64 : KI_XO_R32, ki_lgeneral(j->l, u));
    }
}

/* Read here for the last time, in the loop it was made in, and a register of its own: it may be overwritten. */
static bool dies(const job *j, kn_uop u) {
    if (ki_lis_const(u) || (ki_rank(u) == 0 && j->lanes > 1)) return false;
    const ki_lval *v = ki_lv(j->l, u);
    return v->last == j->l->now && !v->outside && !v->alias && v->reg;
}

/* ---- destination ------------------------------------------------------------------------------------------------- */

static ki_vreg slice_for(job *j) {
    const ki_lval *v = ki_lv(j->l, j->u);
    return v->slice ? ki_lslice(j->l, &j->l->local.address[v->slice - 1]) : 0;
}

static ki_mop destination(job *j) {
    ki_mir *m = &j->l->m;
    char c = size_of(j, 0);
    if (c == 'k') return ki_mreg(KI_XO_K, ki_vreg_new(m, KI_RC_K, KI_XO_K));
    if (!is_vector(c)) return ki_mreg(ki_les(j->u) == 8 ? KI_XO_R64 : KI_XO_R32, ki_vreg_new(m, KI_RC_G, KI_XO_R64));
    ki_x86_kind kind = kind_of(j, 0);
    ki_vreg slice = slice_for(j);
    return ki_mreg(kind, slice ? slice : ki_vreg_new(m, KI_RC_V, kind));
}

/* Does another source than the one overwritten stand in d? */
static bool stands_in(const job *j, ki_mop d) {
    for (unsigned k = 1; k < 4; k++)
        if (j->src[k] && j->src[k] != j->src[0] && !ki_lis_const(j->src[k]) && ki_lv(j->l, j->src[k])->reg == d.reg)
            return true;
    return false;
}

static void copy_to(job *j, ki_mop d, ki_vreg from) {
    if (d.reg == from) return;
    KI_LPUT(j->l, KI_M_MOVE, d, ki_mreg((ki_x86_kind)d.kind, from));
    if (d.reg && !j->l->m.v[d.reg].hint) j->l->m.v[d.reg].hint = from;
}

/* d + a * b: overwritten is what dies, d first; under a mask d, whose lanes stay. */
static bool put_fused(job *j, ki_mop d) {
    unsigned t = 0;
    while (t < sizeof fused / sizeof *fused && fused[t].f231 != j->form) t++;
    if (t == sizeof fused / sizeof *fused) return false;
    ki_lower *l = j->l;
    kn_uop z = j->src[0], x = j->src[1], y = j->src[2];
    bool all = j->lanes > 1;
    ki_lval *vz = ki_lis_const(z) ? NULL : ki_lv(l, z);
    bool onto = j->mask || (vz && vz->reg == d.reg) || (dies(j, z) && !is_deferred(j, 0));
    ki_vreg k = j->mask ? ki_lmask(l, j->mask, j->lanes) : 0;
    if (!onto && !is_deferred(j, 1) && dies(j, x)) {
        j->src[1] = y, j->src[2] = z; /* x2 = y, x3 = z */
        copy_to(j, d, ki_lvector(l, x, all));
        j->form = (ki_x86_id)fused[t].f213;
    } else if (!onto && !is_deferred(j, 2) && dies(j, y)) {
        j->src[1] = x, j->src[2] = z;
        copy_to(j, d, ki_lvector(l, y, all));
        j->form = (ki_x86_id)fused[t].f213;
    } else {
        if (is_deferred(j, 1) && !is_deferred(j, 2)) j->src[1] = y, j->src[2] = x;
        copy_to(j, d, ki_lvector(l, z, all));
    }
    read_operand(j, 1);
    read_operand(j, 2);
    j->op[0] = d;
    ki_mput(&l->m, j->form, l->now, 3, j->op)->mask = k;
    return true;
}

/* SSE: the destination stands for the first source. */
static void put_sse(job *j, ki_mop d) {
    unsigned n = 1;
    bool tied = false;
    if (place_of(j, 1) == KI_XP_VVVV && commutes(j->f) && dies(j, j->src[2]) && !is_deferred(j, 2) &&
        !dies(j, j->src[1])) {
        kn_uop t = j->src[1];
        j->src[1] = j->src[2], j->src[2] = t;
    }
    ki_mop own = d;
    if (j->f->attr & KI_XA_RW) copy_to(j, d, ki_lvector(j->l, j->src[0], j->lanes > 1));
    for (unsigned k = 1; k < 4 && j->f->op[k]; k++) {
        read_operand(j, k);
        /* A shift by a constant has its destination there. */
        tied = tied || place_of(j, k) == KI_XP_VVVV || (k == 1 && place_of(j, 0) == KI_XP_VVVV);
    }
    if (tied) {
        /* The second source must outlive the copy. */
        if (j->op[2].kind == d.kind && j->op[2].reg == d.reg)
            own = ki_mreg((ki_x86_kind)d.kind, ki_vreg_new(&j->l->m, KI_RC_V, (ki_x86_kind)d.kind));
        copy_to(j, own, j->op[1].reg);
    }
    ki_mop list[4] = {own};
    for (unsigned k = 1; k < 4 && j->f->op[k]; k++)
        if (place_of(j, k) != KI_XP_VVVV && !(k == 1 && place_of(j, 0) == KI_XP_VVVV)) list[n++] = j->op[k];
    ki_mins *i = ki_mput(&j->l->m, j->form, j->l->now, n, list);
    if (tied) i->flags |= KI_MF_READS0;
    if (own.reg != d.reg) copy_to(j, d, own.reg);
}

static void put_plain(job *j, ki_mop d) {
    ki_vreg k = 0;
    if (commutes(j->f) && is_deferred(j, 1) && !is_deferred(j, 2)) {
        kn_uop t = j->src[1];
        j->src[1] = j->src[2], j->src[2] = t;
    }
    unsigned n = 1;
    if (j->f->attr & KI_XA_RW) copy_to(j, d, ki_lvector(j->l, j->src[0], j->lanes > 1));
    if (j->mask) k = ki_lmask(j->l, j->mask, j->lanes);
    for (; n < 4 && j->f->op[n]; n++) read_operand(j, n);
    j->op[0] = d;
    ki_mins *i = ki_mput(&j->l->m, j->form, j->l->now, n, j->op);
    i->mask = k;
}

void ki_lins(ki_lower *l, kn_uop u) {
    job j = {.l = l, .u = u};
    j.f = ki_x86_row(u->arg.str->s);
    if (!j.f) {
        ki_lfail(l, u, "no such instruction");
        return;
    }
    if (j.f->port == KI_XR_TILE) {
        ki_ltile_product(l, u, j.f);
        return;
    }
    j.form = (ki_x86_id)(j.f - ki_x86_forms);
    if (!deal(&j)) {
        ki_lfail(l, u, "more sources than its form has operands");
        return;
    }
    measure(&j);
    ki_mop d = destination(&j), own = d;
    if (l->m.failed) return;
    if (j.f->attr & KI_XA_RW && stands_in(&j, d))
        own = ki_mreg((ki_x86_kind)d.kind, ki_vreg_new(&l->m, KI_RC_V, (ki_x86_kind)d.kind));
    if (l->m.sse) put_sse(&j, own);
    else if (!put_fused(&j, own)) put_plain(&j, own);
    copy_to(&j, d, own.reg);
    ki_lval *v = ki_lv(l, u);
    v->reg = d.reg;
    v->gpr = d.kind <= KI_XO_R64;
    if (v->wide && d.kind >= KI_XO_X && d.kind <= KI_XO_Z) v->all = ki_lall(l, d.reg, ki_les(u));
}
