/* tiles.c: the tile registers of AMX. A tile is a value of 1024 bytes: 16 rows of 64, lanes in row-major order, (256,) of 32 bits,
 * (512,) of 16 or (1024,) of 8; a bitcast between these is no code.
 *
 *   LOAD, STORE     of a list of places whose rows lie one stride apart: tileload, tilestore
 *   STORE of a constant to a slice of a split REG BUFFER: tilezero, or a tileload of one row again and again
 *   STORE of a LOAD to a slice: tileload
 *   INS of a tile product: its d is the slice it is written to
 * A tile is never copied and never spilled: what would ask for it is refused. The registers are configured once, at the entry,
 * all of them as whole tiles, and released at the exit. */
#include "stages/8_render/x86/lower.h"

enum { ROWS = 16, ROW = 64, PALETTE = 1, TILES = 8 };
#define LONG_ROW                                                                                                       \
    (1                                                                                                                 \
     << 12) /* bytes from row to row: of a strip of such rows the first cache keeps nothing until they are read again */

bool ki_lis_tile(kn_uop u) {
    return ki_rank(u) == 1 && u->dtype != KN_BOOL && u->dtype != KN_IDX && ki_llanes(u) * ki_les(u) == ROWS * ROW;
}

static ki_vreg new_tile(ki_lower *l) {
    if (!l->m.tiles) {
        uint8_t config[64] = {PALETTE};
        for (unsigned k = 0; k < TILES; k++) config[16 + 2 * k] = ROW, config[48 + k] = ROWS;
        bool was = l->m.before;
        l->m.before = true;
        KI_LPUT(l, KI_X_LDTILECFG, ki_mpool(ki_asm_const(l->a, config, sizeof config)));
        l->m.before = was;
        l->m.tiles = true;
    }
    return ki_vreg_new(&l->m, KI_RC_T, KI_XO_T);
}

ki_vreg ki_ltile_slice(ki_lower *l, ki_vreg *slice) {
    if (!*slice) *slice = new_tile(l);
    return *slice;
}

/* A register that holds so much through the kernel. */
static ki_vreg stride_of(ki_lower *l, int64_t bytes) {
    enum { KEPT = sizeof l->stride / sizeof *l->stride };
    unsigned k = 0;
    while (k < KEPT && l->stride[k].reg && l->stride[k].bytes != bytes) k++;
    if (k < KEPT && l->stride[k].reg) return l->stride[k].reg;
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    l->m.before = k < KEPT;
    KI_LPUT(l, KI_X_MOV_EI, ki_mreg(KI_XO_R64, r), ki_mimm(bytes));
    l->m.before = false;
    if (k < KEPT) l->stride[k].bytes = bytes, l->stride[k].reg = r;
    return r;
}

/* Where the first of a tile's rows lies, and how many elements further on the next one does. NULL: so it is; else what is wrong. */
static const char *rows_of(kn_uop index, ki_address *row, int64_t *step) {
    if (ki_address_of(index, row)) return "a tile's places are a list";
    int64_t n = ROW / (int64_t)ki_les(row->buf);
    kn_uop plus = row->base, list = row->affine ? NULL : ki_llist(row->base, &plus);
    if (!row->affine && !list) return "a tile's places are a list";
    if (row->affine && row->stride != 1) return "a tile's rows are whole";
    int64_t first = row->start;
    *step = n;
    for (uint32_t k = 0; list && k < list->nsrc; k++) {
        if (!ki_is_const(list->src[k])) return "a tile's places are a list of constants";
        if (k == 0) first = list->src[0]->arg.i;
        if (k == n) *step = list->src[n]->arg.i - first;
        if (list->src[k]->arg.i != first + (k < n ? 0 : k / n * *step) + k % n)
            return "a tile's rows lie one stride apart";
    }
    *row =
        (ki_address){.buf = row->buf, .base = plus, .start = first, .stride = 1, .lanes = (unsigned)n, .affine = true};
    return NULL;
}

unsigned ki_ltile_rows(kn_uop u, ki_address *row, int64_t *step) {
    bool tile = u->op == KN_STORE ? u->nsrc == 2 && ki_lis_tile(u->src[1]) : u->op == KN_LOAD && ki_lis_tile(u);
    return tile && !rows_of(u->src[0], row, step) ? ROWS : 0;
}

/* The memory operand of a tile: its first row, and the stride from row to row, which is so many bytes. */
static bool rows_at(ki_lower *l, kn_uop u, ki_mop *out, int64_t *apart) {
    ki_address a;
    int64_t step;
    const char *why = rows_of(u->src[0], &a, &step);
    if (why) return ki_lfail(l, u, why);
    *apart = step * ki_les(a.buf);
    if (*apart != (int32_t)*apart) return ki_lfail(l, u, "a tile's rows lie too far apart");
    ki_mop at = ki_laddress(l, &a, 0);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, r), at);
    *out = (ki_mop){.kind = KI_XO_MEM, .base = KI_MB_REG, .reg = r, .index = stride_of(l, *apart), .scale = 1};
    return true;
}

/* Is it the right operand of the last product that reads it? */
static bool is_right(ki_lower *l, kn_uop u) {
    kn_uop user = l->inst[ki_lv(l, u)->last];
    if (user->op == KN_BITCAST) u = user, user = l->inst[ki_lv(l, u)->last];
    return user->op == KN_INS && user->nsrc == 3 && user->src[2] == u;
}

/* The OptOp PREFETCH of a sum's loop: the loop around it goes through the same tiles again, and each time asks for some of their rows, so many bytes
 * further on, so that it has asked for all of them once. */
static void ask_ahead(ki_lower *l, const ki_lval *v, ki_mop at, int64_t apart) {
    const struct ki_lloop *around = l->depth > 1 ? &l->loop[l->depth - 2] : NULL;
    kn_uop bound = around && around->range ? around->range->src[0] : NULL;
    int64_t times = bound && ki_is_const(bound) ? bound->arg.i : 1, each = ROWS;
    if (v->ahead + ROWS * apart > INT32_MAX) return;
    ki_mop to = {.kind = KI_XO_MEM, .base = KI_MB_REG, .reg = at.reg, .scale = 1, .v = v->ahead};
    if (times > 1) each = ki_lturn(l, around->counter, times, ROWS, apart, &to.index);
    for (int64_t k = 0; k < each; k++, to.v += apart)
        KI_LPUT(l, v->second ? KI_X_PREFETCHT1 : KI_X_PREFETCHT0, ki_lsized(to, 0));
}

void ki_lload_tile(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    ki_address a;
    ki_mop at;
    int64_t apart;
    ki_vreg slice = ki_address_of(u->src[0], &a) ? 0 : ki_lslice(l, &a);
    if (u->nsrc > 1) {
        ki_lfail(l, u, "a tile has no gate");
    } else if (slice) {
        v->reg = slice;
        if (!v->alias) ki_lfail(l, u, "a tile is not copied");
    } else if (rows_at(l, u, &at, &apart)) {
        /* A panel goes by once for all rows of the other operand, which stay in the first-level cache as long as it does not take their place,
         * if they can. */
        bool panel = a.buf->op == KN_BUFFER && !v->slice && is_right(l, u);
        bool strip = a.buf->op == KN_PARAM && !v->slice && apart >= LONG_ROW;
        v->reg = v->slice ? ki_lslice(l, &l->local.address[v->slice - 1]) : new_tile(l);
        KI_LPUT(l, panel || strip ? KI_X_TILELOADDT1 : KI_X_TILELOADD, ki_mreg(KI_XO_T, v->reg), at);
        if (v->ahead) ask_ahead(l, v, at, apart);
    }
}

static void fill(ki_lower *l, ki_vreg tile, kn_uop c) {
    unsigned es = ki_les(c);
    uint8_t row[ROW];
    if (!c->arg.bits) {
        KI_LPUT(l, KI_X_TILEZERO, ki_mreg(KI_XO_T, tile));
        return;
    }
    for (unsigned k = 0; k < ROW; k++) row[k] = (uint8_t)(c->arg.bits >> 8 * (k % es));
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, r), ki_mpool(ki_asm_const(l->a, row, sizeof row)));
    KI_LPUT(l, KI_X_TILELOADD, ki_mreg(KI_XO_T, tile),
            (ki_mop){.kind = KI_XO_MEM, .base = KI_MB_REG, .reg = r, .index = stride_of(l, 0), .scale = 1});
}

void ki_lstore_tile(ki_lower *l, kn_uop u) {
    kn_uop v = u->src[1];
    ki_address a;
    ki_mop at;
    int64_t apart;
    ki_vreg slice = ki_address_of(u->src[0], &a) ? 0 : ki_lslice(l, &a);
    if (u->nsrc > 2) {
        ki_lfail(l, u, "a tile has no gate");
    } else if (slice && ki_is_const(v)) {
        fill(l, slice, v);
    } else if (slice) {
        if (ki_lv(l, v)->reg != slice) ki_lfail(l, u, "a tile is not copied");
    } else if (!ki_lis_tile(v)) {
        ki_lfail(l, u, "a tile is stored whole");
    } else if (rows_at(l, u, &at, &apart)) {
        KI_LPUT(l, KI_X_TILESTORED, at, ki_mreg(KI_XO_T, ki_lv(l, v)->reg));
    }
}

void ki_ltile_product(ki_lower *l, kn_uop u, const ki_x86_form *f) {
    ki_lval *v = ki_lv(l, u), *d = ki_is_const(u->src[0]) ? NULL : ki_lv(l, u->src[0]);
    ki_address a;
    if (u->nsrc != 3 || !d || !v->slice || ki_address_of(l->inst[v->slice - 1]->src[0], &a)) {
        ki_lfail(l, u, "a product of tiles is added to the slice it is stored to");
        return;
    }
    v->reg = ki_lslice(l, &a);
    if (v->reg != d->reg) {
        ki_lfail(l, u, "a tile is not copied");
        return;
    }
    KI_LPUT(l, (ki_x86_id)(f - ki_x86_forms), ki_mreg(KI_XO_T, v->reg), ki_mreg(KI_XO_T, ki_lv(l, u->src[1])->reg),
            ki_mreg(KI_XO_T, ki_lv(l, u->src[2])->reg));
}
