/* dots.c: the OptOp TC: a sum of products of narrow elements becomes one of dot products that one instruction makes.
 *
 *   REDUCE(mul(cast(x), cast(y)), ..., k, ...; add)   becomes   REDUCE(INS(none, wx, wy; row), ..., k', ...; add)
 *   wx = x[g k'] | x[g k' + 1] << bits | ...  (wy likewise), none: the sum's identity
 *
 * A word is g neighbours along k. It is arithmetic: where an operand lies along k in memory select reads all of it at once
 * (`words`, select_x86.kr), where it does not a STAGE packs it, which copies words as it copies elements: (k / g, n, g), what
 * the manuals call VNNI's layout, is a LOCAL buffer of words like any other. Expand makes INS(sum so far, a, b) of it.
 * So a tensor core is a row of the table below; loops, tiles and lanes are other OptOps, before and after.
 *
 *   r   rows 0 bf16, 1 u8 by i8, 2 i8 by i8. The instruction of 1 and 2 takes unsigned bytes by signed ones: for 2 the first
 *       factor is x + 128 (its sign bit turned) and 128 times the sum of y is taken off again, a REDUCE that x's loops
 *       are not around. Integers are exact. `top`: x and y, as the product has them, change places.
 *       3 to 6, bf16 and bytes of all signs, are tiles of AMX: 16 words a product, a sum over 16 lanes inside the sum, of which select
 *       makes products of tiles where rows and columns are 16 (5_select/tiles.c).
 *
 * Sums of bf16 in f32: their order is the kernel's (DESIGN 10.12); the instruction counts subnormal factors, sums and
 * products as zero, which the interpreter's bounds allow for (eval_bound.c).
 *
 *   %x = index %a %i : bf16         tc 2 0      %x0 = index %a (i K + 2 k)       %x1 = index %a (i K + 2 k + 1)
 *   %y = index %b %j : bf16         ------>     %wx = or (cast (bitcast %x0)) (shl (cast (bitcast %x1)) 16) : u32
 *   %p = mul (cast %x) (cast %y)                %p = ins "VDPBF16PS" -0.0 %wx %wy : f32
 *   %s = reduce add %p %k                       %s = reduce add %p %k'           k' of half the extent */
#include "stages/3_optimize/dots.h"

#include "base/cpuid.h"
#include "ir/scalar.h"
#include "stages/3_optimize/tile.h"
#include "stages/indexing.h"

#include <string.h>

static const struct ki_dot {
    const char *row;
    uint8_t x, y, sum, group;
    bool biased;
    uint8_t words, level; /* words of one product, 1 or a tile's 16 */
} dots[] = {
    {"VDPBF16PS", KN_BF16, KN_BF16, KN_F32, 2, false, 1, KI_CPU_DOT_LEVEL},
    {"VPDPBUSD", KN_U8, KN_I8, KN_I32, 4, false, 1, KI_CPU_DOT_LEVEL},
    {"VPDPBUSD", KN_I8, KN_I8, KN_I32, 4, true, 1, KI_CPU_DOT_LEVEL},
    {"VDPBF16PS", KN_BF16, KN_BF16, KN_F32, 2, false, 16, KI_CPU_AMX_LEVEL},
    {"VPDPBUSD", KN_U8, KN_I8, KN_I32, 4, false, 16, KI_CPU_AMX_LEVEL},
    {"VPDPBSSD", KN_I8, KN_I8, KN_I32, 4, false, 16, KI_CPU_AMX_LEVEL},
    {"VPDPBUUD", KN_U8, KN_U8, KN_I32, 4, false, 16, KI_CPU_AMX_LEVEL},
};
enum { DOTS = sizeof dots / sizeof *dots };

/* The factors of a sum of products that row serves; they are memory. */
static bool factors(kn_uop sum, const struct ki_dot *row, bool top, kn_uop *x, kn_uop *y) {
    kn_uop p = sum->op == KN_REDUCE && sum->arg.reduce.op == KN_ADD ? sum->src[0] : NULL;
    if (!p || p->op != KN_MUL || p->dtype != row->sum) return false;
    if (p->src[0]->op != KN_CAST || p->src[1]->op != KN_CAST) return false;
    *x = p->src[top]->src[0];
    *y = p->src[1 - top]->src[0];
    return (*x)->dtype == row->x && (*y)->dtype == row->y && ki_is_access(*x) && ki_is_access(*y);
}

/* The row of the table for this sum on this target, -1: none. y: the factor that goes as signed bytes; `top` as TC wants it; *group:
 * the elements it takes at a time. */
static int row_of(const ki_target *t, kn_uop sum, bool tiles, kn_uop y, bool *top, int64_t *group) {
    kn_uop a, b;
    for (int r = 0; t->native && r < DOTS; r++)
        for (int swapped = 0; swapped < 2 && t->level >= dots[r].level && (dots[r].words > 1) == tiles; swapped++)
            if (factors(sum, &dots[r], swapped, &a, &b) && (b == y || dots[r].x != dots[r].y))
                return *top = swapped, *group = dots[r].group * dots[r].words, r;
    return -1;
}

/* x at g to .. g to + g - 1 for r, joined by pairs, the first lowest; all: each of them is one of r's. */
static kn_uop word(ki_nest *n, kn_uop x, kn_uop r, kn_uop to, int64_t g, bool all) {
    ki_ir *ir = n->ir;
    kn_uop part[4];
    for (int64_t k = 0; k < g; k++) {
        kn_uop at = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, to, ki_index(ir, g)), ki_index(ir, k));
        kn_uop e = at ? ki_swap_ranges(n, x, &(ki_swap){r, at, {to, NULL}}, 1) : NULL;
        kn_uop src[2] = {e ? e->src[0] : NULL};
        if (e && !all && (src[1] = ki_element_if(ir, ki_op2(ir, KN_CMPLT, at, r->src[0]), e->src[1])))
            e = ki_with_srcs(ir, e, src, 2);
        part[k] = ki_cast(ir, ki_bitcast(ir, e, g == 4 ? KN_U8 : KN_U16), KN_U32);
    }
    for (int64_t by = 32 / g; g > 1; g /= 2, by *= 2)
        for (int64_t k = 0; k < g; k += 2)
            part[k / 2] = ki_op2(ir, KN_OR, part[k], ki_op2(ir, KN_SHL, part[k + 1], ki_const_int(ir, KN_U32, by)));
    return part[0];
}

kn_uop ki_opt_tc(ki_nest *n, ki_opt *o) {
    ki_ir *ir = n->ir;
    kn_uop r = ki_nest_range(n, (uint32_t)o->axis), sum = ki_nest_closer(n, r), x, y, list[64], made = NULL;
    const struct ki_dot *d = o->arg >= 0 && o->arg < DOTS ? &dots[o->arg] : NULL;
    if (!d || ki_is_lane(r) || !factors(sum, d, o->top, &x, &y) || sum->nsrc > 64)
        return ki_fail(ir->env, KI_E_OPT_TC, (int)o->arg, (int)o->axis), NULL;
    int64_t group = d->group * d->words, extent = ki_extent(r);
    bool all = extent && extent % group == 0;
    if (!extent || (!all && d->words == 1))
        return ki_fail(ir->env, KI_E_OPT_DIVIDE, (int)group, (int)o->axis, (long long)ki_extent(r)), NULL;
    if (o->id < 0 && d->words > 1) o->id = (int32_t)ki_nest_next_range(n);
    if (d->words > 1 && ki_nest_range(n, (uint32_t)o->id)) return ki_fail(ir->env, KI_E_OPT_ID, (int)o->id), NULL;
    kn_uop to =
        ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, ki_index(ir, (extent + group - 1) / group));
    kn_uop lane = d->words > 1 ? ki_range_make(ir, (uint32_t)o->id, KN_AX_UNROLL, ki_index(ir, d->words)) : NULL;
    kn_uop at = lane ? ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, to, lane->src[0]), lane) : to;
    kn_uop turn = ki_const_int(ir, KN_U32, 0x80808080), a = at ? word(n, x, r, at, d->group, all) : NULL;
    kn_uop none = ki_const_bits(ir, (kn_dtype)d->sum, ki_scalar_identity(KN_ADD, (kn_dtype)d->sum, true));
    kn_uop b = a ? word(n, y, r, at, d->group, all) : NULL;
    /* The correction first: of two sums over one loop the later one is who closes it (find_closers). */
    for (int pass = d->biased ? 0 : 1; pass < 2; pass++) {
        kn_uop src[3] = {none, !pass ? turn : d->biased ? ki_op2(ir, KN_XOR, a, turn) : a, b};
        if (!none || !src[1] || !b) return NULL;
        for (uint32_t j = 1; j < sum->nsrc; j++) list[j] = sum->src[j] == r ? to : sum->src[j];
        list[0] = ki_str_op(ir, KN_INS, (kn_dtype)d->sum, d->row, strlen(d->row), src, 3);
        if (lane) list[0] = ki_make(ir, KN_REDUCE, KN_VOID, (kn_uop[]){list[0], lane}, list[0] ? 2 : 0, sum->arg, 0);
        kn_uop part = list[0] ? ki_with_srcs(ir, sum, list, sum->nsrc) : NULL;
        if (!pass) part = ki_op2(ir, KN_SUB, none, part);
        made = made ? ki_op2(ir, KN_ADD, made, part) : part;
    }
    return made ? ki_substitute(ir, n->sink, &sum, &made, 1) : NULL;
}

/* Does this sum go by AMX tiles? */
bool ki_is_tiled(kn_uop sum) { return sum->src[0]->op == KN_REDUCE && sum->src[0]->src[0]->op == KN_INS; }

/* ---- words as one value ------------------------------------------------------------------------------------ */

/* What is shifted and joined: an element that was read, or a smaller word. NULL: neither. */
static kn_uop piece(const ki_nest *n, kn_uop u) {
    if (u->op == KN_SHL && u->dtype == KN_U32) u = u->src[0];
    if (u->op == KN_OR) return n->word[n->scope.at[u->id]] == u ? u : NULL;
    if (u->op != KN_CAST || u->dtype != KN_U32) return NULL;
    u = u->src[0]->op == KN_BITCAST ? u->src[0]->src[0] : u->src[0];
    return ki_is_access(u) ? u : NULL;
}

kn_uop ki_word_element(kn_uop u) {
    while (u->op == KN_XOR || u->op == KN_OR || u->op == KN_CAST || u->op == KN_BITCAST) u = u->src[0];
    return u;
}

kn_uop ki_word_of(const ki_nest *n, kn_uop access) {
    kn_uop u = access, up;
    while ((up = n->word[n->scope.at[u->id]]) && up != u) u = up;
    return u;
}

/* Of an element or a smaller word the next larger one, of the largest itself. Sources stand before their users. */
void ki_find_words(ki_nest *n) {
    for (uint32_t i = 0; i < n->scope.n; i++) {
        kn_uop u = n->scope.node[i];
        if (u->op == KN_XOR && n->word[n->scope.at[u->src[0]->id]] == u->src[0] && ki_is_const(u->src[1]))
            n->word[i] = n->word[n->scope.at[u->src[0]->id]] = u;
        if (u->op != KN_OR || u->dtype != KN_U32) continue;
        kn_uop a = piece(n, u->src[0]), b = piece(n, u->src[1]);
        if (a && b) n->word[i] = n->word[n->scope.at[a->id]] = n->word[n->scope.at[b->id]] = u;
    }
}

unsigned ki_word_bytes(const ki_nest *n, kn_uop access) {
    return (unsigned)ki_itemsize((kn_dtype)ki_word_of(n, access)->dtype);
}

bool ki_reads_row(const ki_nest *n, kn_uop access, kn_uop r) {
    bool known;
    int64_t one = ki_word_bytes(n, access) / (unsigned)ki_itemsize((kn_dtype)access->dtype);
    return ki_nest_stride(n, access, r, &known) == one && known;
}

bool ki_is_split_word(ki_nest *n, kn_uop access) {
    kn_uop u = ki_word_of(n, access);
    if (u == access) return false;
    if (u->op == KN_XOR) u = u->src[0];
    while (u->src[0]->op == KN_OR) u = u->src[0];
    const ki_affine *a = ki_nest_form(n, ki_word_element(u)), *b = ki_nest_form(n, ki_word_element(u->src[1]->src[0]));
    const ki_affine *d = a && b ? ki_affine_add(&n->affines, b, a, -1) : NULL;
    return !d || d->n || d->k != 1;
}

/* ---- choosing ---------------------------------------------------------------------------------------------- */

#define LEAST_USES  8 /* of a packed panel */
#define LEAST_WORDS 4 /* of a sum */

/* The loop of the sum that goes by words: one along which the factor that is not packed lies in memory, or in a dot tile both. */
static kn_uop loop_of(const ki_choice *c, const ki_tile *t, kn_uop x) {
    bool known;
    kn_uop last = t->reduce->src[t->reduce->nsrc - 1];
    if (t->row) return t->row;
    for (uint32_t j = 1; j < t->reduce->nsrc; j++)
        if (ki_nest_stride(&c->nest, x, t->reduce->src[j], &known) == 1 && known) return t->reduce->src[j];
    return last;
}

/* May the sum of tile t go by dot products, and has its loop not been tried? *group: the elements it takes at a time. A product of tiles is never turned. */
static bool may_dot(const ki_choice *c, const uint64_t *tried, const ki_tile *t, ki_opt *tc, int64_t *group) {
    bool top, fits = !t->w && ki_extent(t->u ? t->u : t->v) >= LEAST_USES;
    kn_uop r = loop_of(c, t, t->other), along = t->turned ? t->streamed : t->other;
    bool known, square = fits && t->u && ki_extent(t->u) >= KI_TILE_SIDE && ki_extent(t->v) >= KI_TILE_SIDE;
    square = square && (t->row ? ki_lanes_for(c, ki_extent(t->v)) : t->lanes) == KI_TILE_SIDE &&
             ((ki_nest_stride(&c->nest, along, r, &known) == 1 && known) || ki_storage(along)->op == KN_PARAM);
    int row = square ? row_of(c->target, t->reduce, true, t->turned ? t->other : t->streamed, &top, group) : -1;
    if (row < 0 || ki_extent(r) < *group)
        row = fits ? row_of(c->target, t->reduce, false, t->streamed, &top, group) : -1;
    if (row < 0 || ki_is_gated(t->streamed)) return false;
    uint32_t id = r->arg.range.id;
    if (ki_is_gated(t->other) || id >= KI_MOST_RANGES || tried[id >> 6] >> (id & 63) & 1) return false;
    *tc = (ki_opt){.op = KI_OPT_TC, .axis = (int32_t)id, .arg = row, .top = top};
    return ki_extent(r) >= (dots[row].words > 1 ? 1 : LEAST_WORDS) * *group;
}

static bool is_dot(kn_uop sum) { return sum->src[0]->op == KN_INS || ki_is_tiled(sum); }

/* The tile of a nest, and, where its sum goes by dot products, those of the sums beside that. How many. */
static uint32_t tiles_of(ki_choice *c, kn_uop end, ki_tile t[1 + KI_MOST_ALSO]) {
    ki_find_tile(c, end, t);
    return !t->reduce ? 0 : t->u && is_dot(t->reduce) ? 1 + ki_other_sums(c, end, t, ki_is_tiled(t->reduce), t + 1) : 1;
}

/* The first sum that has a tile, that no instruction adds up yet, and that has not been tried; beside another one that goes as that one does, which what
 * is left of a cut does not, and of words that are read as they lie: both may read the same ones, and one operand is copied for one sum. */
static bool next_sum(ki_choice *c, const uint64_t *tried, ki_opt *tc, int64_t *group) {
    const ki_scope *s = &c->nest.scope;
    ki_tile t[1 + KI_MOST_ALSO];
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t j = 0, n = s->node[i]->op == KN_END ? tiles_of(c, s->node[i], t) : 0; j < n; j++) {
            if (!may_dot(c, tried, &t[j], tc, group)) continue;
            const struct ki_dot *d = &dots[tc->arg];
            bool known, along = ki_nest_stride(&c->nest, t[j].other, ki_nest_range(&c->nest, (uint32_t)tc->axis),
                                               &known) == 1 &&
                                known;
            if (!j || (along && !d->biased && (d->words > 1) == ki_is_tiled(t->reduce))) return true;
        }
    return false;
}

/* Can rows whose words lie apart be copied for tiles, strip by strip, or part by part (choose_parts, strips.c)? */
static bool may_copy(ki_choice *c, const ki_tile *t) {
    if (!ki_is_tiled(t->reduce) || !ki_is_split_word(&c->nest, t->other)) return true;
    bool whole = ki_extent(t->u) % t->mu == 0 && ki_extent(t->v) % t->step == 0;
    return t->mu * ki_terms(t->reduce) * ki_word_bytes(&c->nest, t->other) <= KI_MOST_PACKED ||
           (whole && ki_part_of_tiles(c, t));
}

/* Is the sum over loop `id` one of dot products that has a tile? */
static bool is_tiled(ki_choice *c, uint32_t id) {
    const ki_scope *s = &c->nest.scope;
    ki_tile t[1 + KI_MOST_ALSO];
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0, n = s->node[i]->op == KN_END ? tiles_of(c, s->node[i], t) : 0; k < n; k++) {
            kn_uop sum = t[k].reduce;
            for (uint32_t j = 1; j < sum->nsrc && is_dot(sum) && may_copy(c, &t[k]); j++)
                if (sum->src[j]->arg.range.id == id) return true;
        }
    return false;
}

/* What a cut has left of a sum that goes by tiles is one product of tiles more, of words that are no terms where it has no more: both operands are copied
 * for it, with zeros there. y: the second operand's storage. */
static void choose_rest(ki_choice *c, uint32_t id, int64_t row, kn_uop y, int64_t terms) {
    kn_uop before = c->sink, r = ki_nest_range(&c->nest, id), sum = r ? ki_nest_closer(&c->nest, r) : NULL, a, b;
    for (int top = 0; sum && top < 2; top++) {
        if (!factors(sum, &dots[row], top, &a, &b) || ki_storage(b) != y || ki_is_gated(a) || ki_is_gated(b)) continue;
        int64_t all = (ki_numel(ki_storage(a)) + ki_numel(y)) / terms * KI_TILE_SIDE * (int64_t)sizeof(uint32_t);
        if (all > KI_MOST_ROWS || ki_storage(a)->op != KN_PARAM || y->op != KN_PARAM) return;
        int32_t slot[] = {ki_slot_of(ki_storage(a)), ki_slot_of(y)};
        bool done = ki_choice_do(c, KI_OPT_TC, 0, top, id, row) &&
                    ki_choice_do(c, KI_OPT_STAGE, 0, false, id, slot[0]) &&
                    ki_choice_do(c, KI_OPT_STAGE, 0, false, id, slot[1]);
        if (done && !is_tiled(c, id)) ki_choice_look(c, before);
        return;
    }
}

void ki_choose_dots(ki_choice *c) {
    uint64_t tried[KI_MOST_RANGES / 64] = {0};
    ki_opt tc;
    int64_t group;
    while (c->ok && next_sum(c, tried, &tc, &group)) {
        kn_uop before = c->sink, r = ki_nest_range(&c->nest, (uint32_t)tc.axis);
        uint32_t rest = ki_nest_next_range(&c->nest);
        int64_t terms = ki_extent(r);
        kn_uop x, y;
        ki_choice_even(c, r, group); /* what is left over of vectors' words adds up as it did */
        r = ki_nest_range(&c->nest, (uint32_t)tc.axis);
        bool known = c->ok && factors(ki_nest_closer(&c->nest, r), &dots[tc.arg], tc.top, &x, &y);
        tried[tc.axis >> 6] |= UINT64_C(1) << (tc.axis & 63);
        if (!ki_choice_do(c, KI_OPT_TC, 0, tc.top, (uint32_t)tc.axis, tc.arg)) return;
        if (!is_tiled(c, (uint32_t)tc.axis)) ki_choice_look(c, before);
        else if (known && terms % group && dots[tc.arg].words > 1) choose_rest(c, rest, tc.arg, ki_storage(y), terms);
    }
}
