/* lanes.c: lanes put together (STACK) and taken out (INDEX of a value with constant lanes), tables (INDEX of a STACK of constants). */
#include "stages/8_render/x86/lower.h"

#include <string.h>

void ki_lstack(ki_lower *l, kn_uop u) {
    if (ki_lis_const(u) || u->dtype == KN_IDX) return; /* made where it is read */
    ki_lval *v = ki_lv(l, u);
    unsigned es = ki_les(u), n = u->nsrc;
    if (u->dtype == KN_BOOL) {
        ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        v->reg = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
        KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, g), ki_mimm(0));
        for (unsigned k = n; k-- > 0;)
            KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, g),
                    (ki_mop){.kind = KI_XO_MEM, .reg = ki_lgeneral(l, u->src[k]), .index = g, .scale = 2});
        KI_LPUT(l, KI_X_KMOVQ_G, ki_mreg(KI_XO_K, v->reg), ki_mreg(KI_XO_R64, g));
        return;
    }
    uint64_t at = ki_mframe_take(&l->m, 64, 64);
    for (unsigned k = 0; k < n; k++) ki_lput(l, ki_lvector(l, u->src[k], false), es, ki_mframe(at + k * es, 0), false);
    v->reg = ki_vreg_new(&l->m, KI_RC_V, ki_lkind(n * es));
    ki_lget(l, v->reg, n * es, ki_mframe(at, 0));
}

/* First lane and number, if the lanes wanted stand in a row. */
static bool run_of(kn_uop i, int64_t *first, unsigned *n) {
    *n = ki_llanes(i);
    if (ki_is_const(i)) return *first = i->arg.i, true;
    if (i->op != KN_STACK) return false;
    *first = i->src[0]->arg.i;
    for (uint32_t k = 0; k < i->nsrc; k++)
        if (!ki_is_const(i->src[k]) || i->src[k]->arg.i != *first + k) return false;
    return true;
}

/* Bytes from..from+n of a vector, to the lowest: a part of 128 or 256 bits, then a shift within 128. */
static ki_vreg bytes_of(ki_lower *l, ki_vreg x, unsigned all, unsigned from, unsigned n) {
    bool wide = l->m.features >> KI_CPU_AVX512VL & 1;
    if (n == 32 && from == 32) {
        ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Y);
        KI_LPUT(l, KI_X_VEXTRACTF64X4, ki_mreg(KI_XO_Y, r), ki_mreg(KI_XO_Z, x), ki_mimm(1));
        return r;
    }
    if (from >= 16) {
        ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
        KI_LPUT(l, wide ? KI_X_VEXTRACTF32X4 : KI_X_VEXTRACTF128, ki_mreg(KI_XO_X, r), ki_mreg(ki_lkind(all), x),
                ki_mimm(from / 16));
        x = r, from %= 16;
    }
    if (!from) return x;
    ki_vreg r;
    if (l->m.sse) {
        r = ki_lmove(l, KI_RC_V, KI_XO_X, x);
        KI_LPUT(l, KI_X_VPSRLDQ_I, ki_mreg(KI_XO_X, r), ki_mimm(from))->flags |= KI_MF_READS0;
    } else {
        r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
        KI_LPUT(l, wide ? KI_X_VPSRLDQ_EI : KI_X_VPSRLDQ_I, ki_mreg(KI_XO_X, r), ki_mreg(KI_XO_X, x), ki_mimm(from));
    }
    return r;
}

static void pick_bits(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    int64_t first;
    unsigned n;
    if (!run_of(u->src[1], &first, &n)) {
        ki_lfail(l, u, "lanes of a mask are taken in a row");
        return;
    }
    v->reg = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
    KI_LPUT(l, KI_X_KSHIFTRQ, ki_mreg(KI_XO_K, v->reg), ki_mreg(KI_XO_K, ki_lmask(l, u->src[0], ki_llanes(u->src[0]))),
            ki_mimm(first));
}

/* Do the words of all 16 bytes come from their own 16 in the same order? */
static bool stays_within(const int32_t *word, unsigned n) {
    for (unsigned k = 0; k < n; k++)
        if (word[k] / 4 != (int32_t)k / 4 || word[k] % 4 != word[k % 4]) return false;
    return true;
}

/* Lanes of 4 or 8 bytes in any order, as words: one permutation, which takes more where words go from one 16 bytes to others. */
static ki_vreg permuted(ki_lower *l, ki_vreg x, unsigned all, const kn_uop *lane, unsigned n, unsigned es) {
    unsigned bytes = all > n * es ? all : n * es, each = es / 4;
    int32_t word[16] = {0};
    for (unsigned k = 0; k < n * each; k++) word[k] = (int32_t)(lane[k / each]->arg.i * each + k % each);
    ki_mop r = ki_mreg(ki_lkind(bytes), ki_vreg_new(&l->m, KI_RC_V, ki_lkind(bytes)));
    ki_mop from = ki_mreg(ki_lkind(bytes), x);
    if (bytes > 16 && !stays_within(word, bytes / 4)) {
        KI_LPUT(l, KI_X_VPERMPS, r, ki_mreg(ki_lkind(bytes), ki_lnumbers(l, word, bytes / 4)), from);
    } else {
        int64_t two_bits = 0;
        for (unsigned k = 0; k < 4; k++) two_bits |= (int64_t)word[k] << 2 * k;
        KI_LPUT(l, KI_X_VPSHUFD, r, from, ki_mimm(two_bits));
    }
    return r.reg;
}

void ki_lpick(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    kn_uop x = u->src[0], i = u->src[1];
    unsigned es = ki_les(u), all = ki_llanes(x) * es, n;
    int64_t first;
    if (u->dtype == KN_BOOL) {
        pick_bits(l, u);
        return;
    }
    if (!ki_lis_const(i)) {
        ki_lfail(l, u, "lanes of a value need constant numbers");
        return;
    }
    ki_vreg from = ki_lvector(l, x, true);
    bool run = run_of(i, &first, &n);
    unsigned at = run ? (unsigned)first * es : 0;
    bool inside = run && (at / 16 == (at + n * es - 1) / 16 || at % (n * es) == 0);
    if (inside) {
        ki_vreg r = bytes_of(l, from, all, at, n * es);
        bool slice = x->op == KN_LOAD && ki_lv(l, x)->alias; /* will be written again */
        v->reg = r == from && slice ? ki_lmove(l, KI_RC_V, ki_lkind(n * es), r) : r;
    } else if (es >= 4) {
        v->reg = permuted(l, from, all, n > 1 ? i->src : &i, n, es);
    } else {
        uint64_t there = ki_mframe_take(&l->m, 64, 64), to = ki_mframe_take(&l->m, 64, 64);
        ki_lput(l, from, all, ki_mframe(there, 0), false);
        for (unsigned k = 0; k < n; k++) {
            ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
            int64_t lane = ki_is_const(i) ? i->arg.i : i->src[k]->arg.i;
            ki_lget(l, t, es, ki_mframe(there + (uint64_t)lane * es, 0));
            ki_lput(l, t, es, ki_mframe(to + k * es, 0), false);
        }
        v->reg = ki_vreg_new(&l->m, KI_RC_V, ki_lkind(n * es));
        ki_lget(l, v->reg, n * es, ki_mframe(to, 0));
    }
    if (v->wide && n == 1) v->all = ki_lall(l, v->reg, es);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The words of a table, whose lanes the low bits of an index number. */
static bool is_table(kn_uop list) { return list->op == KN_STACK && (list->nsrc == 16 || list->nsrc == 32); }

kn_uop ki_lentry(kn_uop u) {
    if (u->op != KN_INDEX || u->nsrc != 2 || !ki_lis_const(u->src[0]) || !is_table(u->src[0])) return NULL;
    kn_uop i = u->src[1];
    if (i->dtype != KN_I32 || ki_is_const(i) || ki_les(u) != 4) return NULL;
    bool masked = i->op == KN_INS && strcmp(i->arg.str->s, "VPANDD") == 0 && i->nsrc == 2;
    return masked && ki_is_const(i->src[1]) && i->src[1]->arg.i == u->src[0]->nsrc - 1 ? i->src[0] : i;
}

/* The table is permuted, a register of 64 bytes however few lanes are wanted: those behind them nobody reads. One of 32 words is two registers. */
void ki_llook_up(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    ki_vreg place = ki_lvector(l, ki_lentry(u), false), table = ki_ltable(l, u->src[0], 0);
    ki_mop at = ki_mreg(KI_XO_Z, place);
    if (u->src[0]->nsrc > 16) {
        v->reg = ki_lmove(l, KI_RC_V, KI_XO_Z, table);
        KI_LPUT(l, KI_X_VPERMT2PS, ki_mreg(KI_XO_Z, v->reg), at, ki_mreg(KI_XO_Z, ki_ltable(l, u->src[0], 1)));
    } else {
        v->reg = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Z);
        KI_LPUT(l, KI_X_VPERMPS, ki_mreg(KI_XO_Z, v->reg), at, ki_mreg(KI_XO_Z, table));
    }
    if (v->wide && !ki_rank(u)) v->all = ki_lall(l, v->reg, ki_les(u));
}
