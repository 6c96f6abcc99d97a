/* square.c: transposing in registers (AVX-512, elements of 4 bytes). Eight LOADs of 16 lanes that lie apart, each one element further
 * than the one before, are 16 rows of 8 elements: these are read as rows, and permuted. */
#include "stages/8_render/x86/lower.h"

enum { LANES = 16, SIDE = 8, NEAR = 256 };

/* A LOAD of lanes apart under no condition, of memory that nothing written here is in the way of. */
static bool is_column(ki_lower *l, uint32_t i, ki_address *a) {
    kn_uop u = l->inst[i];
    if (u->op != KN_LOAD || u->nsrc != 1 || u->dtype == KN_BOOL || ki_les(u) != 4 || !l->val[i].uses) return false;
    if (ki_llanes(u) != LANES || u->src[0]->op != KN_INDEX || u->src[0]->src[0]->op != KN_PARAM) return false;
    if (ki_address_of(u->src[0], a) || !a->affine || (a->stride < SIDE && a->stride > -SIDE)) return false;
    a->base = ki_lpeel(a->base, &a->start);
    return true;
}

/* The square that item i is the first of. */
static void find(ki_lower *l, uint32_t i, const ki_address *a) {
    uint32_t at[2 * SIDE - 1] = {0}; /* 1 + item, by where it starts */
    at[SIDE - 1] = i + 1;
    for (uint32_t j = i + 1; j < l->n && j < i + NEAR; j++) {
        ki_address b;
        if (l->val[j].block != l->val[i].block || l->val[j].square || !is_column(l, j, &b)) continue;
        int64_t d = b.start - a->start;
        if (b.buf != a->buf || b.base != a->base || b.stride != a->stride || d <= -SIDE || d >= SIDE) continue;
        at[d + SIDE - 1] = j + 1;
    }
    for (unsigned m = 0; m < SIDE; m++) {
        bool all = true;
        for (unsigned k = 0; k < SIDE; k++) all &= at[m + k] != 0;
        for (unsigned k = 0; all && k < SIDE; k++) {
            l->val[at[m + k] - 1].square = at[m];
            l->val[at[m + k] - 1].next = k + 1 < SIDE ? at[m + k + 1] : 0;
        }
        if (all) return;
    }
}

void ki_lfind_squares(ki_lower *l) {
    ki_address a;
    if (!(l->m.features >> KI_CPU_AVX512VL & 1)) return;
    for (uint32_t i = 0; i < l->n; i++)
        if (!l->val[i].square && is_column(l, i, &a)) find(l, i, &a);
}

static ki_mop zmm(ki_vreg r) { return ki_mreg(KI_XO_Z, r); }

static ki_vreg two(ki_lower *l, ki_x86_id form, ki_vreg x, ki_vreg y, int imm) {
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Z);
    if (imm < 0) KI_LPUT(l, form, zmm(r), zmm(x), zmm(y));
    else KI_LPUT(l, form, zmm(r), zmm(x), zmm(y), ki_mimm(imm));
    return r;
}

/* Rows `low` and `low` + 4, 8 elements each. */
static ki_vreg rows(ki_lower *l, const ki_address *a, unsigned low) {
    ki_vreg half = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Z), r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Z);
    ki_mop from = ki_laddress(l, a, low);
    KI_LPUT(l, KI_X_VMOVUPS, ki_mreg(KI_XO_Y, half), from);
    from = ki_laddress(l, a, low + 4);
    KI_LPUT(l, KI_X_VINSERTF64X4, zmm(r), zmm(half), from, ki_mimm(1));
    return r;
}

/* Four such pairs: in quarter q of part[k] element k + 4 (q % 2) of four rows. */
static void quarters(ki_lower *l, const ki_address *a, unsigned low, ki_vreg part[4]) {
    ki_vreg r[4];
    for (unsigned k = 0; k < 4; k++) r[k] = rows(l, a, low + k);
    ki_vreg x = two(l, KI_X_VUNPCKLPS, r[0], r[1], -1), y = two(l, KI_X_VUNPCKLPS, r[2], r[3], -1);
    part[0] = two(l, KI_X_VUNPCKLPD, x, y, -1), part[1] = two(l, KI_X_VUNPCKHPD, x, y, -1);
    x = two(l, KI_X_VUNPCKHPS, r[0], r[1], -1), y = two(l, KI_X_VUNPCKHPS, r[2], r[3], -1);
    part[2] = two(l, KI_X_VUNPCKLPD, x, y, -1), part[3] = two(l, KI_X_VUNPCKHPD, x, y, -1);
}

void ki_lsquare(ki_lower *l, kn_uop u) {
    ki_vreg low[4], high[4];
    ki_address a;
    uint32_t i = ki_lv(l, u)->square - 1;
    if (ki_address_of(l->inst[i]->src[0], &a)) return;
    quarters(l, &a, 0, low);
    quarters(l, &a, 8, high);
    for (unsigned k = 0; k < SIDE; k++, i = l->val[i].next - 1)
        l->val[i].reg = two(l, KI_X_VSHUFF32X4, low[k % 4], high[k % 4], k < 4 ? 0x88 : 0xdd);
}
