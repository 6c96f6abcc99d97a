/* value.c: operands: a value in the register class an instruction wants it in. */
#include "stages/8_render/x86/lower.h"

#include "stages/target.h"

#include <string.h>

ki_x86_kind ki_lkind(unsigned bytes) { return bytes > 32 ? KI_XO_Z : bytes > 16 ? KI_XO_Y : KI_XO_X; }

bool ki_lfail(ki_lower *l, kn_uop u, const char *why) {
    if (!l->m.failed) ki_fail(l->ir->env, KI_E_RENDER_FORM, ki_ops[u->op].name, why);
    return l->m.failed = true, false;
}

bool ki_lis_const(kn_uop u) {
    if (u->op != KN_STACK) return ki_is_const(u);
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!ki_is_const(u->src[k])) return false;
    return true;
}

ki_vreg ki_lmove(ki_lower *l, ki_rclass c, ki_x86_kind kind, ki_vreg from) {
    ki_vreg r = ki_vreg_new(&l->m, c, kind);
    KI_LPUT(l, KI_M_MOVE, ki_mreg(kind, r), ki_mreg(kind, from));
    if (r && !ki_is_physical(from)) l->m.v[r].hint = from;
    return r;
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

static ki_x86_kind widest(const ki_lower *l) { return ki_lkind(l->m.target->vector); }

/* A vector from the pool, in the entry: it stays in a register as long as there is one for it. */
static ki_vreg pooled(ki_lower *l, const void *bytes, unsigned n, unsigned es, ki_x86_kind kind) {
    ki_mir *m = &l->m;
    uint32_t label = ki_asm_const(l->a, bytes, n);
    ki_vreg r = ki_vreg_new(m, KI_RC_V, kind);
    if (!r || !label) return m->failed = true, 0;
    m->v[r].remat = 1;
    m->v[r].es = (uint8_t)es;
    m->v[r].label = label;
    bool zero = true, was = m->before;
    for (unsigned k = 0; k < n; k++) zero = zero && !((const uint8_t *)bytes)[k];
    m->before = true;
    ki_mop d = ki_mreg(kind, r), p = ki_mpool(label);
    if (zero && m->sse) KI_LPUT(l, KI_X_VXORPS, d, d);
    else if (zero) KI_LPUT(l, KI_X_VXORPS, d, d, d);
    else if (es == 1) KI_LPUT(l, KI_X_VPBROADCASTB, d, p);
    else if (es == 2) KI_LPUT(l, KI_X_VPBROADCASTW, d, p);
    else if (es == 4) KI_LPUT(l, KI_X_VBROADCASTSS, d, p);
    else if (es == 8) KI_LPUT(l, kind == KI_XO_X ? KI_X_VPBROADCASTQ : KI_X_VBROADCASTSD, d, p);
    else KI_LPUT(l, KI_X_VMOVUPS, d, p);
    m->before = was;
    return r;
}

static struct ki_lconst *find_const(ki_lower *l, uint64_t bits, unsigned es) {
    uint32_t k = (uint32_t)(ki_hash_bytes(es, &bits, sizeof bits) & (l->konst_cap - 1));
    while (l->konst[k].reg && (l->konst[k].bits != bits || l->konst[k].es != es)) k = (k + 1) & (l->konst_cap - 1);
    return &l->konst[k];
}

static bool const_room(ki_lower *l) {
    if (2 * (l->nkonst + 1) <= l->konst_cap) return true;
    ki_lower next = {.konst_cap = l->konst_cap ? 2 * l->konst_cap : 64};
    if (!(next.konst = ki_calloc(next.konst_cap, sizeof *next.konst))) {
        ki_fail(l->ir->env, KI_E_NOMEM);
        return l->m.failed = true, false;
    }
    for (uint32_t k = 0; k < l->konst_cap; k++)
        if (l->konst[k].reg) *find_const(&next, l->konst[k].bits, l->konst[k].es) = l->konst[k];
    ki_free(l->konst);
    l->konst = next.konst;
    l->konst_cap = next.konst_cap;
    return true;
}

ki_vreg ki_lconst(ki_lower *l, kn_dtype t, uint64_t bits) {
    unsigned es = (unsigned)ki_itemsize(t);
    uint8_t lanes[64];
    if (l->m.failed || !const_room(l)) return 0;
    if (es < 8) bits &= (UINT64_C(1) << 8 * es) - 1;
    struct ki_lconst *c = find_const(l, bits, es);
    if (c->reg) return c->reg;
    for (unsigned k = 0; k < sizeof lanes; k += es) memcpy(lanes + k, &bits, es);
    /* Where no instruction broadcasts what it reads the whole vector stands there, so that it can be read where it lies. */
    bool broadcasts = l->m.features >> KI_CPU_AVX512VL & 1;
    ki_x86_kind kind = widest(l);
    ki_vreg r = broadcasts ? pooled(l, lanes, es, es, kind) : pooled(l, lanes, kind == KI_XO_X ? 16 : 32, 0, kind);
    *c = (struct ki_lconst){bits, (uint8_t)es, r};
    l->nkonst++;
    return r;
}

ki_vreg ki_ltable(ki_lower *l, kn_uop u, unsigned half) {
    ki_lval *v = ki_lv(l, u);
    ki_vreg *r = half ? &v->all : &v->reg;
    if (*r || l->m.failed) return *r;
    uint8_t lanes[64] = {0};
    unsigned es = ki_les(u), most = sizeof lanes / es, n = u->nsrc - half * most;
    if (n > most) n = most;
    for (uint32_t k = 0; k < n; k++) memcpy(lanes + k * es, &u->src[half * most + k]->arg.bits, es);
    return *r = pooled(l, lanes, n * es < 16 ? 16 : n * es, 0, ki_lkind(n * es));
}

ki_vreg ki_lnumbers(ki_lower *l, const int32_t *v, unsigned n) {
    int32_t lanes[16] = {0};
    if (n > 16) return l->m.failed = true, 0;
    memcpy(lanes, v, n * sizeof *v);
    return pooled(l, lanes, n < 4 ? 16 : n * 4, 0, ki_lkind(n * 4));
}

/* ---- general registers ------------------------------------------------------------------------------------------ */

static ki_vreg number(ki_lower *l, int64_t v) {
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    if (v >= 0 && v <= INT32_MAX) KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, r), ki_mimm(v));
    else if (v >= INT32_MIN && v < 0) KI_LPUT(l, KI_X_MOV_EI, ki_mreg(KI_XO_R64, r), ki_mimm(v));
    else KI_LPUT(l, KI_X_MOVABS, ki_mreg(KI_XO_R64, r), ki_mimm(v));
    return r;
}

static ki_vreg bit_of_mask(ki_lower *l, ki_vreg k) {
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_KMOVW_TO, ki_mreg(KI_XO_R32, r), ki_mreg(KI_XO_K, k));
    KI_LPUT(l, KI_X_AND_EB, ki_mreg(KI_XO_R32, r), ki_mimm(1));
    return r;
}

kn_uop ki_lsign(kn_uop truth) {
    bool is = truth->op == KN_CMPLT && truth->src[0]->dtype != KN_IDX && ki_is_sint((kn_dtype)truth->src[0]->dtype);
    return is ? truth->src[0] : NULL;
}

static ki_vreg bit_of_sign(ki_lower *l, ki_vreg x, unsigned es) {
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l,
            es == 8   ? KI_X_VMOVMSKPD
            : es == 4 ? KI_X_VMOVMSKPS
                      : KI_X_VPMOVMSKB,
            ki_mreg(KI_XO_R32, r), ki_mreg(KI_XO_X, x));
    if (es == 2) KI_LPUT(l, KI_X_SHR_I, ki_mreg(KI_XO_R32, r), ki_mimm(1));
    KI_LPUT(l, KI_X_AND_EB, ki_mreg(KI_XO_R32, r), ki_mimm(1));
    return r;
}

ki_vreg ki_lgeneral(ki_lower *l, kn_uop u) {
    if (ki_is_const(u)) return number(l, u->arg.i);
    ki_lval *v = ki_lv(l, u);
    if (v->gpr) return v->reg;
    if (u->dtype == KN_BOOL && !ki_rank(u) && v->reg && l->m.v[v->reg].cls == KI_RC_K) return bit_of_mask(l, v->reg);
    if (u->dtype == KN_BOOL && ki_lsign(u) && v->reg) return bit_of_sign(l, v->reg, ki_les(ki_lsign(u)));
    ki_lfail(l, u, "it has no general register");
    return 0;
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

ki_vreg ki_lfrom_general(ki_lower *l, ki_vreg r, unsigned es) {
    ki_vreg x = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
    if (es == 8) KI_LPUT(l, KI_X_VMOVQ_G, ki_mreg(KI_XO_X, x), ki_mreg(KI_XO_R64, r));
    else KI_LPUT(l, KI_X_VMOVD, ki_mreg(KI_XO_X, x), ki_mreg(KI_XO_R32, r));
    return x;
}

/* SSE2: doubled until it is 4 bytes, then shuffled. */
static ki_vreg all_sse(ki_lower *l, ki_vreg r, unsigned es) {
    ki_mop d = ki_mreg(KI_XO_X, 0);
    if (es == 1) {
        ki_vreg t = ki_lmove(l, KI_RC_V, KI_XO_X, r);
        d.reg = t;
        ki_mins *i = KI_LPUT(l, KI_X_VPUNPCKLBW, d, d);
        i->flags |= KI_MF_READS0;
        r = t;
    }
    if (es <= 2) {
        ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
        KI_LPUT(l, KI_X_VPSHUFLW, ki_mreg(KI_XO_X, t), ki_mreg(KI_XO_X, r), ki_mimm(0));
        r = t;
    }
    ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
    KI_LPUT(l, KI_X_VPSHUFD, ki_mreg(KI_XO_X, t), ki_mreg(KI_XO_X, r), ki_mimm(es == 8 ? 0x44 : 0));
    return t;
}

ki_vreg ki_lall(ki_lower *l, ki_vreg r, unsigned es) {
    if (l->m.sse) return all_sse(l, r, es);
    ki_x86_kind kind = widest(l);
    ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, kind);
    ki_x86_id form = es == 1   ? KI_X_VPBROADCASTB
                     : es == 2 ? KI_X_VPBROADCASTW
                     : es == 4 ? KI_X_VBROADCASTSS
                               : KI_X_VBROADCASTSD;
    KI_LPUT(l, form, ki_mreg(kind, t), ki_mreg(KI_XO_X, r));
    return t;
}

ki_vreg ki_lvector(ki_lower *l, kn_uop u, bool all) {
    if (ki_is_const(u)) return ki_lconst(l, (kn_dtype)u->dtype, u->arg.bits);
    if (u->op == KN_STACK && ki_lis_const(u) && u->nsrc * ki_les(u) <= 64) return ki_ltable(l, u, 0);
    ki_lval *v = ki_lv(l, u);
    if (v->deferred) {
        v->deferred = 0;
        v->wide = v->wide || (all && !ki_rank(u));
        ki_lload_whole(l, u);
    }
    if (!v->reg || v->gpr || l->m.v[v->reg].cls != KI_RC_V) return ki_lfail(l, u, "it has no vector register"), 0;
    if (!all || ki_rank(u)) return v->reg;
    if (v->all) return v->all;
    return ki_lall(l, v->reg, ki_les(u));
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static ki_vreg mask_from(ki_lower *l, ki_vreg general) {
    ki_vreg k = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
    KI_LPUT(l, KI_X_KMOVQ_G, ki_mreg(KI_XO_K, k), ki_mreg(KI_XO_R64, general));
    return k;
}

ki_vreg ki_lbits(ki_lower *l, int64_t bits) { return mask_from(l, number(l, bits)); }
ki_vreg ki_lfirst(ki_lower *l, unsigned n) { return ki_lbits(l, (INT64_C(1) << n) - 1); }

/* 0 or 1 to no lane or all. */
static ki_vreg spread(ki_lower *l, ki_vreg bit) {
    ki_vreg r = ki_lmove(l, KI_RC_G, KI_XO_R64, bit);
    KI_LPUT(l, KI_X_NEG, ki_mreg(KI_XO_R64, r));
    return mask_from(l, r);
}

ki_vreg ki_lmask(ki_lower *l, kn_uop u, unsigned lanes) {
    if (ki_is_const(u)) return mask_from(l, number(l, u->arg.i ? -1 : 0));
    if (u->op == KN_STACK && ki_lis_const(u)) {
        uint64_t bits = 0;
        for (uint32_t k = 0; k < u->nsrc; k++) bits |= (uint64_t)(u->src[k]->arg.i != 0) << k;
        return mask_from(l, number(l, (int64_t)bits));
    }
    ki_lval *v = ki_lv(l, u);
    if (v->gpr) return spread(l, v->reg);
    if (!v->reg || l->m.v[v->reg].cls != KI_RC_K) return ki_lfail(l, u, "it has no mask register"), 0;
    if (ki_rank(u) || lanes == 1) return v->reg;
    return spread(l, bit_of_mask(l, v->reg));
}

ki_vreg ki_lmask_exact(ki_lower *l, kn_uop u, unsigned lanes) {
    ki_vreg k = ki_lmask(l, u, lanes);
    if (lanes >= 64) return k;
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K),
            n = mask_from(l, number(l, (int64_t)((UINT64_C(1) << lanes) - 1)));
    KI_LPUT(l, KI_X_KANDQ, ki_mreg(KI_XO_K, r), ki_mreg(KI_XO_K, k), ki_mreg(KI_XO_K, n));
    return r;
}

static ki_vreg bytes_of_mask(ki_lower *l, ki_vreg k, unsigned lanes) {
    ki_x86_kind kind = ki_lkind(lanes);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    ki_mins *i = KI_LPUT(l, KI_X_VMOVDQU8, ki_mreg(kind, r), ki_mreg(kind, ki_lconst(l, KN_U8, 1)));
    i->mask = k, i->zero = 1;
    return r;
}

ki_vreg ki_lbytes(ki_lower *l, kn_uop u, unsigned lanes) {
    if (l->m.features >> KI_CPU_AVX512BW & 1) return bytes_of_mask(l, ki_lmask(l, u, lanes), lanes);
    if (ki_lis_const(u)) return ki_lvector(l, u, true);
    ki_lval *v = ki_lv(l, u);
    if (!v->gpr) return ki_lvector(l, u, lanes > 1);
    ki_vreg r = ki_lfrom_general(l, v->reg, 1);
    return lanes > 1 ? ki_lall(l, r, 1) : r;
}
