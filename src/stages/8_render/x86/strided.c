/* strided.c: a vector whose lanes lie a few elements apart, or in reverse (AVX-512; AVX2: every second one of 32 bits). It is read as whole
 * vectors that cover it and touch nothing before its first nor behind its last element; permutations pick the lanes. Under a mask no
 * element but those of its lanes is touched. It is stored under masks that leave out what lies between (AVX-512). */
#include "stages/8_render/x86/lower.h"

enum { MOST_APART = 4 };

static bool permutes(const ki_lower *l) { return l->m.features >> KI_CPU_AVX512VL & 1; }

bool ki_lis_strided(const ki_lower *l, const ki_address *a, unsigned es, kn_uop gate) {
    unsigned bytes = a->lanes * es;
    bool masked = gate && ki_rank(gate), fits = (es == 4 || es == 8) && (bytes == 16 || bytes == 32 || bytes == 64);
    bool near = (a->stride > 1 && a->stride <= MOST_APART) || (a->stride == -1 && !masked);
    if (!a->affine || !fits || !near || permutes(l)) return a->affine && fits && near;
    kn_uop sign = masked ? ki_lsign(gate) : NULL;
    bool may = !masked || (sign && ki_les(sign) == es);
    return a->stride == 2 && es == 4 && may && !l->m.sse && l->m.features >> KI_CPU_AVX2 & 1;
}

/* Half of a mask's signs, each with a lane after it that is not read. */
static ki_mop spread(ki_lower *l, ki_vreg mask, ki_x86_kind kind, bool high) {
    ki_vreg half = mask, r = ki_vreg_new(&l->m, KI_RC_V, kind);
    ki_mop m = ki_mreg(KI_XO_X, mask);
    if (high) half = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
    if (high && kind == KI_XO_Y) KI_LPUT(l, KI_X_VEXTRACTF128, ki_mreg(KI_XO_X, half), ki_mreg(kind, mask), ki_mimm(1));
    else if (high) KI_LPUT(l, KI_X_VMOVHLPS, ki_mreg(KI_XO_X, half), m, m);
    KI_LPUT(l, KI_X_VPMOVZXDQ, ki_mreg(kind, r), ki_mreg(KI_XO_X, half));
    return ki_mreg(kind, r);
}

/* Two vectors that cover the lanes. Without a mask the second one ends with the last of them, so its own stand a place further. */
static ki_vreg every_second(ki_lower *l, const ki_address *a, ki_vreg mask) {
    unsigned n = a->lanes, at = mask ? n : n - 1;
    ki_x86_kind kind = ki_lkind(n * 4);
    ki_address from = *a;
    from.stride = 1;
    ki_mop v[2], r = ki_mreg(kind, ki_vreg_new(&l->m, KI_RC_V, kind));
    for (unsigned k = 0; k < 2; k++) {
        ki_mop o = ki_laddress(l, &from, k ? at : 0);
        v[k] = ki_mreg(kind, ki_vreg_new(&l->m, KI_RC_V, kind));
        if (mask) KI_LPUT(l, KI_X_VMASKMOVPS, v[k], spread(l, mask, kind, k), o);
        else KI_LPUT(l, KI_X_VMOVUPS, v[k], o);
    }
    KI_LPUT(l, KI_X_VSHUFPS, r, v[0], v[1], ki_mimm(mask ? 0x88 : 0xd8));
    if (kind == KI_XO_Y) KI_LPUT(l, KI_X_VPERMPD_I, r, r, ki_mimm(0xd8));
    return r.reg;
}

/* The mask's bits moved to where their lanes are among all the elements; a general register. */
static ki_vreg bits_apart(ki_lower *l, ki_vreg mask, unsigned n, unsigned stride) {
    ki_vreg g[3];
    uint64_t places = 0;
    for (unsigned k = 0; k < n; k++) places |= UINT64_C(1) << (k * stride);
    for (unsigned k = 0; k < 3; k++) g[k] = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_KMOVQ_TO, ki_mreg(KI_XO_R64, g[0]), ki_mreg(KI_XO_K, mask));
    KI_LPUT(l, KI_X_MOVABS, ki_mreg(KI_XO_R64, g[1]), ki_mimm((int64_t)places));
    KI_LPUT(l, KI_X_PDEP, ki_mreg(KI_XO_R64, g[2]), ki_mreg(KI_XO_R64, g[0]), ki_mreg(KI_XO_R64, g[1]));
    return g[2];
}

/* n elements in a row from the one `at` behind the first; bits: those to be read, 0: all. */
static ki_vreg row(ki_lower *l, const ki_address *a, unsigned es, unsigned at, ki_vreg bits) {
    ki_address from = *a;
    ki_x86_kind kind = ki_lkind(a->lanes * es);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    from.stride = 1;
    ki_mop o = ki_laddress(l, &from, at);
    if (!bits) return KI_LPUT(l, KI_X_VMOVUPS, ki_mreg(kind, r), o), r;
    ki_vreg g = ki_lmove(l, KI_RC_G, KI_XO_R64, bits), k = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
    if (at) KI_LPUT(l, KI_X_SHR_I, ki_mreg(KI_XO_R64, g), ki_mimm(at));
    KI_LPUT(l, KI_X_KMOVQ_G, ki_mreg(KI_XO_K, k), ki_mreg(KI_XO_R64, g));
    ki_mins *i = KI_LPUT(l, es == 4 ? KI_X_VMOVUPS : KI_X_VMOVUPD, ki_mreg(kind, r), o);
    i->mask = k, i->zero = 1;
    return r;
}

/* Lanes at[k] of x, or, from n on, of y (0: of x alone). */
static ki_vreg picked(ki_lower *l, ki_vreg x, ki_vreg y, const uint8_t *at, unsigned n, unsigned es) {
    int32_t v[16] = {0};
    for (unsigned k = 0; k < n; k++) v[k * (es / 4)] = at[k];
    ki_x86_kind kind = ki_lkind(n * es);
    ki_mop number = ki_mreg(kind, ki_lnumbers(l, v, n * (es / 4)));
    ki_vreg r = ki_lmove(l, KI_RC_V, kind, x);
    KI_LPUT(l, es == 4 ? KI_X_VPERMT2PS : KI_X_VPERMT2PD, ki_mreg(kind, r), number, ki_mreg(kind, y ? y : x));
    return r;
}

ki_vreg ki_lstrided(ki_lower *l, const ki_address *a, unsigned es, ki_vreg mask) {
    unsigned n = a->lanes, s = (unsigned)(a->stride < 0 ? 1 : a->stride), last = (n - 1) * s;
    uint8_t at[16];
    if (!permutes(l)) return every_second(l, a, mask);
    if (a->stride < 0) {
        ki_address first = *a;
        first.start -= n - 1;
        for (unsigned k = 0; k < n; k++) at[k] = (uint8_t)(n - 1 - k);
        return picked(l, row(l, &first, es, 0, 0), 0, at, n, es);
    }
    ki_vreg bits = mask ? bits_apart(l, mask, n, s) : 0, r = row(l, a, es, 0, bits);
    for (unsigned from = 0; from + n <= last;) { /* r holds what lies before from + n */
        unsigned next = from + 2 * n > last ? last + 1 - n : from + n;
        for (unsigned k = 0; k < n; k++) {
            bool old = k * s < from + n, read = !old && k * s < next + n;
            at[k] = (uint8_t)(read ? n + k * s - next : !old || from ? k : k * s);
        }
        r = picked(l, r, row(l, a, es, next, bits), at, n, es);
        from = next;
    }
    return r;
}

/* Five instructions a vector of memory beside two a lane. */
bool ki_lstores_strided(const ki_lower *l, const ki_address *a, unsigned es) {
    return permutes(l) && a->stride > 1 && ki_lis_strided(l, a, es, NULL) && 5 * a->stride < 2 * (int64_t)a->lanes;
}

void ki_lstore_strided(ki_lower *l, const ki_address *a, unsigned es, ki_vreg x) {
    unsigned n = a->lanes, s = (unsigned)a->stride;
    ki_x86_kind kind = ki_lkind(n * es);
    ki_address to = *a;
    to.stride = 1;
    int64_t last = 0;
    for (unsigned from = 0, mask = 0; from <= (n - 1) * s; from += n) {
        uint8_t at[16] = {0};
        int64_t bits = 0;
        for (unsigned k = 0; k < n; k++) {
            if ((from + k) % s) continue;
            at[k] = (uint8_t)((from + k) / s);
            bits |= INT64_C(1) << k;
        }
        if (bits != last) mask = ki_lbits(l, last = bits);
        ki_vreg r = picked(l, x, 0, at, n, es);
        ki_mop o = ki_laddress(l, &to, from);
        KI_LPUT(l, es == 4 ? KI_X_VMOVUPS_ST : KI_X_VMOVUPD_ST, o, ki_mreg(kind, r))->mask = mask;
    }
}
