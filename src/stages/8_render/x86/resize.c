/* resize.c: below AVX-512, integer lanes to half or twice their width: AVX2 has instructions for twice, neither has one for half. */
#include "stages/8_render/x86/lower.h"

static ki_mop vx(ki_x86_kind kind, ki_vreg r) { return ki_mreg(kind, r); }

/* x op y in a register of its own; SSE's destination is x. */
static ki_vreg two(ki_lower *l, ki_x86_id form, ki_x86_kind kind, ki_vreg x, ki_vreg y) {
    if (l->m.sse) {
        ki_vreg r = ki_lmove(l, KI_RC_V, kind, x);
        KI_LPUT(l, form, vx(kind, r), vx(kind, y))->flags |= KI_MF_READS0;
        return r;
    }
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, form, vx(kind, r), vx(kind, x), vx(kind, y));
    return r;
}

/* The same by a constant count. */
static ki_vreg shift(ki_lower *l, ki_x86_id form, ki_x86_kind kind, ki_vreg x, int count) {
    if (l->m.sse) {
        ki_vreg r = ki_lmove(l, KI_RC_V, kind, x);
        KI_LPUT(l, form, vx(kind, r), ki_mimm(count))->flags |= KI_MF_READS0;
        return r;
    }
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, form, vx(kind, r), vx(kind, x), ki_mimm(count));
    return r;
}

static ki_vreg widen_sse(ki_lower *l, ki_vreg x, unsigned es, bool sign) {
    static const uint16_t zip[9] = {[1] = KI_X_VPUNPCKLBW, [2] = KI_X_VPUNPCKLWD, [4] = KI_X_VPUNPCKLDQ};
    if (!sign) return two(l, (ki_x86_id)zip[es], KI_XO_X, x, ki_lconst(l, KN_U32, 0));
    if (es == 4) return two(l, KI_X_VPUNPCKLDQ, KI_XO_X, x, shift(l, KI_X_VPSRAD_I, KI_XO_X, x, 31));
    ki_vreg t = two(l, (ki_x86_id)zip[es], KI_XO_X, x, x);
    return shift(l, es == 1 ? KI_X_VPSRAW_I : KI_X_VPSRAD_I, KI_XO_X, t, es == 1 ? 8 : 16);
}

static ki_vreg widen(ki_lower *l, ki_vreg x, unsigned es, bool sign, unsigned lanes) {
    static const uint16_t forms[2][9] = {{[1] = KI_X_VPMOVZXBW, [2] = KI_X_VPMOVZXWD, [4] = KI_X_VPMOVZXDQ},
                                         {[1] = KI_X_VPMOVSXBW, [2] = KI_X_VPMOVSXWD, [4] = KI_X_VPMOVSXDQ}};
    if (l->m.sse) return widen_sse(l, x, es, sign);
    ki_x86_kind kind = ki_lkind(2 * lanes * es);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, forms[sign][es], vx(kind, r), vx(KI_XO_X, x));
    return r;
}

/* Halves of 128 bits: what is packed must fit, so it is cut first. */
static ki_vreg narrow(ki_lower *l, ki_vreg x, unsigned es, unsigned lanes) {
    ki_x86_kind kind = ki_lkind(lanes * es);
    if (es == 4) x = shift(l, KI_X_VPSRAD_I, kind, shift(l, KI_X_VPSLLD_I, kind, x, 16), 16);
    if (es == 2) x = two(l, KI_X_VANDPS, kind, x, ki_lconst(l, KN_U16, 255));
    ki_vreg high = x;
    if (kind == KI_XO_Y) {
        high = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
        KI_LPUT(l, KI_X_VEXTRACTF128, vx(KI_XO_X, high), vx(kind, x), ki_mimm(1));
    }
    if (es == 4) return two(l, KI_X_VPACKSSDW, KI_XO_X, x, high);
    if (es == 2) return two(l, KI_X_VPACKUSWB, KI_XO_X, x, high);
    ki_vreg r;
    if (l->m.sse) {
        r = ki_lmove(l, KI_RC_V, KI_XO_X, x);
        KI_LPUT(l, KI_X_VSHUFPS, vx(KI_XO_X, r), vx(KI_XO_X, high), ki_mimm(0x88))->flags |= KI_MF_READS0;
    } else {
        r = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
        KI_LPUT(l, KI_X_VSHUFPS, vx(KI_XO_X, r), vx(KI_XO_X, x), vx(KI_XO_X, high), ki_mimm(0x88));
    }
    return r;
}

void ki_lresize(ki_lower *l, kn_uop u) {
    kn_uop s = u->src[0];
    ki_lval *v = ki_lv(l, u);
    unsigned from = ki_les(s), to = ki_les(u), lanes = ki_llanes(u);
    ki_vreg x = ki_lvector(l, s, false);
    for (; from < to; from *= 2) x = widen(l, x, from, ki_is_sint((kn_dtype)s->dtype), lanes);
    for (; from > to; from /= 2) x = narrow(l, x, from, lanes);
    v->reg = ki_lmove(l, KI_RC_V, ki_lkind(lanes * to), x);
    if (v->wide && !ki_rank(u)) v->all = ki_lall(l, v->reg, to);
}
