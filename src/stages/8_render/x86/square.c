/* square.c: transposing in registers (elements of 4 bytes). AVX-512: sixteen LOADs of 16 lanes that lie apart, each one element further
 * than the one before, are 16 rows of 16 elements, or eight of them 16 of 8: these are read as rows, and permuted. Eight such STOREs, or
 * a few less, are permuted, and written as rows where the last of them stands. AVX2: eight LOADs of 8 lanes, or four of them, and eight STOREs. */
#include "stages/8_render/x86/lower.h"

enum {
    LANES = 16, /* at most */
    SIDE = 8,
    FEWEST = 6,
    NEAR = 256,
    MOST = 64
}; /* a square's columns, and the least that are stored; items between LOADs; columns between two of a square */

typedef struct column {
    uint32_t item;
    ki_address a;
} column;

/* Of a column; 0: there are none. */
static unsigned lanes_of(const ki_lower *l) {
    if (l->m.features >> KI_CPU_AVX512VL & 1) return LANES;
    return l->m.features >> KI_CPU_AVX2 & 1 ? SIDE : 0;
}

/* Of an array of the frame that is not in registers. */
static bool is_of_frame(const ki_lower *l, const ki_address *a) {
    return a->buf->op == KN_BUFFER && !ki_local_of(&l->local, a->buf)->split;
}

/* A LOAD or a STORE of lanes apart under no condition, of memory that nothing written here is in the way of, or a LOAD of the frame. */
static bool is_column(ki_lower *l, uint32_t i, ki_address *a) {
    kn_uop u = l->inst[i], v = u->op == KN_STORE ? u->src[1] : u;
    if (u->op == KN_STORE ? u->nsrc != 2 || u->arg.i : u->op != KN_LOAD || u->nsrc != 1 || !l->val[i].uses)
        return false;
    if (v->dtype == KN_BOOL || ki_les(v) != 4 || u->src[0]->op != KN_INDEX) return false;
    *a = l->local.address[i];
    if (u->src[0]->src[0]->op != KN_PARAM && !is_of_frame(l, a)) return false;
    if (a->lanes != lanes_of(l) || !a->affine || (a->stride < SIDE && a->stride > -SIDE)) return false;
    a->base = ki_lpeel(a->base, &a->start);
    return true;
}

/* Does the STORE at item i put nothing where a column of `a` lies, of an array of the frame? */
static bool is_beside(const ki_lower *l, uint32_t i, const ki_address *a) {
    ki_address b = l->local.address[i];
    b.base = ki_lpeel(b.base, &b.start);
    int64_t d = b.start - a->start, stride = a->stride < 0 ? -a->stride : a->stride;
    if (b.base != a->base || b.lanes != a->lanes || !b.affine || b.stride != a->stride) return false;
    return d % stride != 0 || d >= stride * a->lanes || d <= -stride * a->lanes;
}

/* May what is stored at `from`, to a, be stored at `to`? Nothing between may read it, and all of it is one stretch. */
static bool may_wait(const ki_lower *l, const ki_address *a, uint32_t from, uint32_t to) {
    bool frame = a->buf->op == KN_BUFFER;
    for (uint32_t i = from + 1; i < to; i++) {
        kn_uop u = l->inst[i], at = u->op == KN_LOAD ? u->src[0]->src[0] : NULL;
        if (frame && u->op == KN_STORE && l->local.address[i].buf == a->buf && !is_beside(l, i, a)) return false;
        if (u->op == KN_RANGE || u->op == KN_END || u->op == KN_IF || u->op == KN_ENDIF || u->op == KN_BARRIER ||
            u->op == KN_ATOMICADD)
            return false;
        bool written = at && at->op == KN_AFTER;
        while (at && at->op == KN_AFTER) at = at->src[0];
        if (at && (frame ? at == a->buf : written && at->op == KN_PARAM)) return false;
    }
    return true;
}

/* Is nothing stored to this array of the frame from item `from` to `to`? */
static bool is_same(const ki_lower *l, const ki_address *a, uint32_t from, uint32_t to) {
    for (uint32_t i = from + 1; i < to && a->buf->op == KN_BUFFER; i++)
        if (l->inst[i]->op == KN_STORE && l->local.address[i].buf == a->buf) return false;
    return true;
}

/* The square of so many columns that column c[0] is the first of. */
static bool find(ki_lower *l, const column *c, size_t n, int side) {
    uint32_t at[2 * LANES - 1] = {0}, i = c->item; /* 1 + item, by where it starts */
    bool store = l->inst[i]->op == KN_STORE;
    at[side - 1] = i + 1;
    for (size_t q = 1; q < n && q < MOST; q++) {
        const ki_address *a = &c->a, *b = &c[q].a;
        uint32_t j = c[q].item;
        if (!store && j >= i + NEAR) break;
        if (l->inst[j]->op != l->inst[i]->op || l->val[j].block != l->val[i].block || l->val[j].square) continue;
        int64_t d = b->start - a->start;
        if (b->buf != a->buf || b->base != a->base || b->stride != a->stride || d <= -side || d >= side) continue;
        at[d + side - 1] = j + 1;
    }
    for (int m = 0; m < side; m++) {
        bool all = true;
        uint32_t last = i;
        for (int k = 0; k < side; k++) all &= at[m + k] != 0, last = at[m + k] > last + 1 ? at[m + k] - 1 : last;
        if (!all || (store ? !may_wait(l, &c->a, i, last) : !is_same(l, &c->a, i, last))) continue;
        for (int k = 0; k < side; k++) {
            l->val[at[m + k] - 1].square = at[m];
            l->val[at[m + k] - 1].next = k + 1 < side ? at[m + k + 1] : 0;
        }
        return true;
    }
    return false;
}

bool ki_lfind_squares(ki_lower *l) {
    size_t n = 0, have = 0;
    column c, *all = NULL;
    int lanes = (int)lanes_of(l);
    if (!lanes) return true;
    for (uint32_t i = 0; i < l->n; i++) {
        if (!is_column(l, i, &c.a)) continue;
        c.item = i;
        if (!ki_array_grow(&all, &have, n + 1, sizeof *all)) {
            ki_free(all);
            return ki_fail(l->ir->env, KI_E_NOMEM), false;
        }
        all[n++] = c;
    }
    for (size_t i = 0; i < n; i++) {
        bool store = l->inst[all[i].item]->op == KN_STORE;
        int least = !store ? lanes / 2 : lanes == LANES ? FEWEST : SIDE;
        for (int side = store ? SIDE : lanes; side >= least && !l->val[all[i].item].square;
             side -= store ? 1 : side / 2)
            if (find(l, all + i, n - i, side)) break;
    }
    ki_free(all);
    return true;
}

static unsigned whole(const ki_lower *l) { return lanes_of(l) == LANES ? KI_XO_Z : KI_XO_Y; }

static ki_vreg two(ki_lower *l, ki_x86_id form, ki_vreg x, ki_vreg y, int imm) {
    unsigned kind = whole(l);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    if (imm < 0) KI_LPUT(l, form, ki_mreg(kind, r), ki_mreg(kind, x), ki_mreg(kind, y));
    else KI_LPUT(l, form, ki_mreg(kind, r), ki_mreg(kind, x), ki_mreg(kind, y), ki_mimm(imm));
    return r;
}

/* What stands in memory behind the lower half. */
static ki_vreg with_upper(ki_lower *l, ki_vreg half, ki_mop from) {
    unsigned kind = whole(l);
    ki_x86_id form = kind == KI_XO_Z ? KI_X_VINSERTF64X4 : KI_X_VINSERTF128;
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, form, ki_mreg(kind, r), ki_mreg(kind, half), from, ki_mimm(1));
    return r;
}

/* Of rows `low` and `low` + 4 half a register's elements each, from element `first` on. */
static ki_vreg rows(ki_lower *l, const ki_address *a, unsigned low, int64_t first) {
    unsigned kind = whole(l);
    ki_vreg half = ki_vreg_new(&l->m, KI_RC_V, kind);
    ki_address at = *a;
    at.start += first;
    ki_mop from = ki_laddress(l, &at, low);
    KI_LPUT(l, KI_X_VMOVUPS, ki_mreg(kind == KI_XO_Z ? KI_XO_Y : KI_XO_X, half), from);
    from = ki_laddress(l, &at, low + 4);
    return with_upper(l, half, from);
}

/* In quarter q of part[k] element k of quarter q of each of the four: of columns, row 4 q + k. */
static void quarters(ki_lower *l, const ki_vreg r[4], ki_vreg part[4]) {
    ki_vreg x = two(l, KI_X_VUNPCKLPS, r[0], r[1], -1), y = two(l, KI_X_VUNPCKLPS, r[2], r[3], -1);
    part[0] = two(l, KI_X_VUNPCKLPD, x, y, -1), part[1] = two(l, KI_X_VUNPCKHPD, x, y, -1);
    x = two(l, KI_X_VUNPCKHPS, r[0], r[1], -1), y = two(l, KI_X_VUNPCKHPS, r[2], r[3], -1);
    part[2] = two(l, KI_X_VUNPCKLPD, x, y, -1), part[3] = two(l, KI_X_VUNPCKHPD, x, y, -1);
}

/* Asks for what the square's first one knows to be wanted further on in the row (the OptOp PREFETCH): into the second cache, or past it, as
 * a line is read once. */
static void ask(ki_lower *l, const ki_lval *v, ki_mop row) {
    ki_mop to = ki_lsized(row, 0);
    to.v += v->ahead;
    for (unsigned k = 0; v->ahead && to.v <= INT32_MAX && k < v->often; k++)
        KI_LPUT(l, v->second ? KI_X_PREFETCHT1 : KI_X_PREFETCHNTA, to);
}

/* AVX2: 8 rows of n, of which each register reads four elements of two. */
static void halves(ki_lower *l, const ki_address *a, ki_vreg *column, unsigned n, const ki_lval *v) {
    ki_vreg r[4];
    for (unsigned k = 0; v->ahead && k < SIDE; k++) ask(l, v, ki_laddress(l, a, k));
    for (unsigned h = 0; 4 * h < n; h++) {
        for (unsigned k = 0; k < 4; k++) r[k] = rows(l, a, k, 4 * h);
        quarters(l, r, column + 4 * h);
    }
}

enum { EVEN = 0x88, ODD = 0xdd }; /* quarters of both */

/* 16 rows of 8: pairs of them in a register, an element in every second quarter. */
static void half_lines(ki_lower *l, const ki_address *a, ki_vreg column[SIDE]) {
    ki_vreg r[4], part[2][4];
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned k = 0; k < 4; k++) r[k] = rows(l, a, 8 * h + k, 0);
        quarters(l, r, part[h]);
    }
    for (unsigned k = 0; k < SIDE; k++)
        column[k] = two(l, KI_X_VSHUFF32X4, part[0][k % 4], part[1][k % 4], k < 4 ? EVEN : ODD);
}

/* 16 rows of 16, each a line that is read once: element k + 4 q in quarter q. All are loaded before they are permuted: a Zen 5 took 1.1 times as long where four
 * were permuted before the next four were loaded. */
static void lines(ki_lower *l, const ki_address *a, ki_vreg column[LANES], const ki_lval *v) {
    ki_vreg r[LANES], part[4][4];
    for (unsigned k = 0; k < LANES; k++) {
        r[k] = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Z);
        ki_mop from = ki_laddress(l, a, k);
        ask(l, v, from);
        KI_LPUT(l, KI_X_VMOVUPS, ki_mreg(KI_XO_Z, r[k]), from);
    }
    for (unsigned g = 0; g < 4; g++) quarters(l, r + 4 * g, part[g]);
    for (unsigned k = 0; k < 4; k++)
        for (unsigned odd = 0; odd < 2; odd++) { /* quarters 0 and 2 of each, or 1 and 3 */
            ki_vreg x = two(l, KI_X_VSHUFF32X4, part[0][k], part[1][k], odd ? ODD : EVEN);
            ki_vreg y = two(l, KI_X_VSHUFF32X4, part[2][k], part[3][k], odd ? ODD : EVEN);
            column[k + 4 * odd] = two(l, KI_X_VSHUFF32X4, x, y, EVEN);
            column[k + 4 * odd + 8] = two(l, KI_X_VSHUFF32X4, x, y, ODD);
        }
}

void ki_lsquare(ki_lower *l, kn_uop u) {
    ki_vreg column[LANES];
    uint32_t i = ki_lv(l, u)->square - 1, n = 0;
    ki_address a = l->local.address[i];
    for (uint32_t q = i + 1; q; q = l->val[q - 1].next) n++;
    if (whole(l) == KI_XO_Y) halves(l, &a, column, n, &l->val[i]);
    else if (n == LANES) lines(l, &a, column, &l->val[i]);
    else half_lines(l, &a, column);
    for (unsigned k = 0; k < n; k++, i = l->val[i].next - 1) l->val[i].reg = column[k];
}

/* AVX2: rows k and 4 + k stand in the quarters k, of four columns each. */
static void store_halves(ki_lower *l, const ki_address *a, const ki_vreg low[4], const ki_vreg high[4]) {
    enum { LOWER = 0x20, UPPER = 0x31 };
    for (unsigned h = 0; h < 2; h++)
        for (unsigned k = 0; k < 4; k++) {
            ki_vreg r = two(l, KI_X_VPERM2F128, low[k], high[k], h ? UPPER : LOWER);
            ki_mop to = ki_laddress(l, a, 4 * h + k);
            KI_LPUT(l, KI_X_VMOVUPS_ST, to, ki_mreg(KI_XO_Y, r));
        }
}

void ki_lstore_square(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    kn_uop x = u->src[1];
    ki_vreg column[SIDE], low[4], high[4], r = ki_lvector(l, x, true);
    ki_address a;
    uint32_t i = v->square - 1;
    /* A slice's register may have another value by then. */
    v->reg = x->op == KN_LOAD && ki_lv(l, x)->alias ? ki_lmove(l, KI_RC_V, whole(l), r) : r;
    unsigned n = 0;
    for (uint32_t q = i + 1; q; q = l->val[q - 1].next, n++)
        if (q - 1 > l->now) return; /* not yet all */
        else column[n] = l->val[q - 1].reg;
    ki_vreg few = n < SIDE ? ki_lfirst(l, n) : 0;
    for (unsigned k = n; k < SIDE; k++) column[k] = column[0]; /* which is not stored */
    a = l->local.address[v->square - 1];
    quarters(l, column, low), quarters(l, column + 4, high);
    if (whole(l) == KI_XO_Y) {
        store_halves(l, &a, low, high);
        return;
    }
    static const int32_t quarters[2][LANES] = {{0, 0, 1, 0, 8, 0, 9, 0, 2, 0, 3, 0, 10, 0, 11, 0},
                                               {4, 0, 5, 0, 12, 0, 13, 0, 6, 0, 7, 0, 14, 0, 15, 0}};
    for (unsigned h = 0; h < 2; h++) {
        ki_vreg number = ki_lnumbers(l, quarters[h], LANES);
        for (unsigned k = 0; k < 4; k++) { /* rows 8 h + k and 8 h + 4 + k */
            r = ki_lmove(l, KI_RC_V, KI_XO_Z, low[k]);
            KI_LPUT(l, KI_X_VPERMT2PD, ki_mreg(KI_XO_Z, r), ki_mreg(KI_XO_Z, number), ki_mreg(KI_XO_Z, high[k]));
            ki_mop to = ki_laddress(l, &a, 8 * h + k);
            ki_mins *low_half = KI_LPUT(l, KI_X_VMOVUPS_ST, to, ki_mreg(KI_XO_Y, r));
            if (few) low_half->mask = few;
            to = ki_laddress(l, &a, 8 * h + 4 + k);
            if (!few) {
                KI_LPUT(l, KI_X_VEXTRACTF64X4, to, ki_mreg(KI_XO_Z, r), ki_mimm(1));
                continue;
            }
            /* Not at once: a masked extract to memory faults on the lanes that it leaves out. */
            ki_vreg high_half = ki_vreg_new(&l->m, KI_RC_V, KI_XO_Y);
            KI_LPUT(l, KI_X_VEXTRACTF64X4, ki_mreg(KI_XO_Y, high_half), ki_mreg(KI_XO_Z, r), ki_mimm(1));
            KI_LPUT(l, KI_X_VMOVUPS_ST, to, ki_mreg(KI_XO_Y, high_half))->mask = few;
        }
    }
}
